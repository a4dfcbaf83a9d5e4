/* Kernels of a list as one launch: their work lies side by side, in pieces that are each worth a
 * thread, of which a small kernel is a part. Those that are split go pass by pass, all of them
 * before the next. Pieces differ in nothing but who computes them.
 *
 *     three vectors of 9,000, 500 and 700 numbers, 4,000 to a piece: 2.25 + 0.125 + 0.175, 3 pieces
 *     0: 4,000 of the first   1: 4,000 more   2: its last 1,000, and both others */
#include "base/parallel.h"
#include "tensor/tensor.h"
#include "vm/launch.h"

enum { STACK_SLOTS = 256 };

typedef struct ListRun {
    ListPart *part;
    int count, pass;
    int64_t pieces;
} ListRun;

static int64_t items_of(const Launch *launch, int pass) {
    if (launch->piece) return 0; /* it has run by itself */
    if (launch->split == 1) return pass ? 0 : launch->outer_size;
    return pass < launch->pass_count ? launch->outer_size * launch->split : 0;
}

/* How many items of the part lie before a place among the pieces. */
static int64_t items_before(const ListRun *list, const ListPart *part, int64_t place) {
    int64_t items = items_of(part->launch, list->pass);
    double at = ((double)place - part->pieces) * (double)part->launch->grain;
    if (place == list->pieces || at >= (double)items) return items;
    int64_t unit = part->launch->unit;
    return at <= 0 ? 0 : (int64_t)at / unit * unit;
}

static void run_pieces(void *user, int64_t low, int64_t high) {
    const ListRun *list = user;
    for (int i = 0; i < list->count; i++) {
        const ListPart *part = &list->part[i];
        int64_t from = items_before(list, part, low), to = items_before(list, part, high);
        if (from < to) launch_part(part->launch, part->buffer, from, to, list->pass, part->slot);
    }
}

/* false: no part has work in this pass. */
static bool run_pass(ListRun *list) {
    double pieces = 0;
    for (int i = 0; i < list->count; i++) {
        const Launch *launch = list->part[i].launch;
        list->part[i].pieces = pieces;
        pieces += (double)items_of(launch, list->pass) / (double)launch->grain;
    }
    list->pieces = (int64_t)pieces + 1;
    if (pieces > 0) parallel_for(list->pieces, 1, run_pieces, list);
    return pieces > 0;
}

static void end_pass(const ListRun *list) {
    for (int i = 0; i < list->count; i++) {
        const ListPart *part = &list->part[i];
        const Launch *launch = part->launch;
        if (launch->split == 1 || list->pass >= launch->pass_count) continue;
        launch_combine(launch, list->pass, part->slot);
        if (list->pass + 1 == launch->pass_count)
            launch_part(launch, part->buffer, 0, launch->outer_size, launch->pass_count,
                        part->slot);
    }
}

static int64_t slots_of(const Launch *launch) {
    return launch->split > 1 ? launch->outer_size * launch->split * launch->reduce_count : 0;
}

bool list_run(ListPart *part, int count) {
    ListRun list = {.part = part, .count = count};
    int64_t slots = 0;
    Scalar stack[STACK_SLOTS], *slot = stack;
    for (int i = 0; i < count; i++) {
        slots += slots_of(part[i].launch);
        if (part[i].launch->piece && !launch_run(part[i].launch, part[i].buffer)) return false;
    }
    Storage *storage = slots > STACK_SLOTS ? storage_new((size_t)slots * sizeof(Scalar)) : NULL;
    if (slots > STACK_SLOTS && !storage) return false;
    if (storage) slot = storage->data;
    for (int i = 0; i < count; i++) {
        part[i].slot = slot;
        slot += slots_of(part[i].launch);
    }
    for (; run_pass(&list); list.pass++) end_pass(&list);
    if (storage) storage_release(storage);
    return true;
}
