/* What a checkpoint has recorded, and how the function's next run is held against it.
 *
 *     y = checkpoint(f, x)       f: h = exp(x); y = h * h
 *     record                     0: exp, saves x, which is kept; 1: mul, saves h, which was born in
 *                                the run: its place in node 1 is empty once f has returned
 *     a gradient comes to y      f runs again on x: exp is record 0, mul is record 1, whose places
 *                                take the h of this run; it goes back by the nodes of the first run
 *
 * Nodes are made once: in a run that is not the first, what an op computes has the history that the
 * first run gave it. So leaves, hooks and gradients by what is on the way are as without a
 * checkpoint, and a function that does something else is found at the first op that differs. */
#include "eager/checkpoint.h"

#include "base/map.h"
#include "base/memory.h"
#include "op/custom.h"
#include "tensor/read.h"
#include "tensor/tracer.h"

#include <string.h>

/* ---- lifetime ------------------------------------------------------------------------------- */

static bool host_reads(const Tensor *x);

Checkpoint *checkpoint_new(int inputs) {
    size_t bytes = sizeof(Checkpoint) + sizeof(CheckpointInput) * (size_t)inputs;
    Checkpoint *checkpoint = memory_zalloc(bytes);
    if (!checkpoint) {
        fail_memory(bytes);
        return NULL;
    }
    atomic_init(&checkpoint->references, 1);
    checkpoint->head.host_reads = host_reads;
    checkpoint->site = site_current();
    checkpoint->input_count = inputs;
    return checkpoint;
}

Checkpoint *checkpoint_retain(Checkpoint *checkpoint) {
    atomic_fetch_add_explicit(&checkpoint->references, 1, memory_order_relaxed);
    return checkpoint;
}

/* Nodes that nobody holds any more come before `first`. */
static TapeNode *drop(Checkpoint *checkpoint, TapeNode *first) {
    while (checkpoint &&
           atomic_fetch_sub_explicit(&checkpoint->references, 1, memory_order_acq_rel) == 1) {
        Checkpoint *outer = checkpoint->outer;
        for (int i = 0; i < checkpoint->input_count; i++) {
            CheckpointInput *input = &checkpoint->input[i];
            if (input->saved.storage) storage_release(input->saved.storage);
            if (input->node) first = tape_drop(input->node, first);
        }
        for (int i = 0; i < checkpoint->read_count; i++)
            if (checkpoint->read[i].storage) storage_release(checkpoint->read[i].storage);
        if (outer) outer->record[checkpoint->place].inner = NULL;
        memory_free(checkpoint->record);
        memory_free(checkpoint->read);
        memory_free(checkpoint->read_seat);
        memory_free(checkpoint->answer);
        memory_free(checkpoint);
        checkpoint = outer;
    }
    return first;
}

TapeNode *checkpoint_drop_node(TapeNode *node, TapeNode *first) {
    if (!node->checkpoint) return first;
    node->checkpoint->record[node->place].node = NULL;
    return drop(node->checkpoint, first);
}

void checkpoint_release(Checkpoint *checkpoint) {
    TapeNode *first = drop(checkpoint, NULL);
    if (first) tape_free(first);
}

/* Room for one more in a list; NULL with an error. */
static void *grow(void *list, int count, int *capacity, size_t bytes) {
    if (count < *capacity) return list;
    int more = *capacity ? 2 * *capacity : 16;
    void *grown = memory_resize(list, bytes * (size_t)more);
    if (grown)
        *capacity = more;
    else
        fail_memory(bytes * (size_t)more);
    return grown;
}

/* ---- the first run --------------------------------------------------------------------------- */

static CheckpointRecord *add_record(Checkpoint *checkpoint) {
    CheckpointRecord *grown = grow(checkpoint->record, checkpoint->record_count,
                                   &checkpoint->record_capacity, sizeof *grown);
    if (!grown) return NULL;
    checkpoint->record = grown;
    return &grown[checkpoint->record_count++];
}

bool checkpoint_add(TapeNode *node) {
    Checkpoint *checkpoint = checkpoint_current();
    if (!checkpoint || checkpoint->again) return true;
    CheckpointRecord *record = add_record(checkpoint);
    if (!record) return false;
    *record = (CheckpointRecord){node, NULL, node->op, node->meta, node->site};
    for (int i = 0; i < node->saves; i++)
        if (node->saved[i].storage) node->saved[i].owner = checkpoint_of(node->saved[i].storage);
    node->checkpoint = checkpoint_retain(checkpoint);
    node->place = checkpoint->record_count - 1;
    return true;
}

bool checkpoint_nest(Checkpoint *outer, Checkpoint *inner) {
    CheckpointRecord *record = add_record(outer);
    if (!record) return false;
    *record = (CheckpointRecord){.inner = inner, .op = OP_none, .site = inner->site};
    inner->outer = checkpoint_retain(outer);
    inner->place = outer->record_count - 1;
    return true;
}

bool checkpoint_tell(int answer) {
    Checkpoint *checkpoint = checkpoint_current();
    if (!checkpoint || checkpoint->again) return true;
    int *grown = grow(checkpoint->answer, checkpoint->answer_count, &checkpoint->answer_capacity,
                      sizeof *grown);
    if (!grown) return false;
    checkpoint->answer = grown;
    grown[checkpoint->answer_count++] = answer;
    return true;
}

bool checkpoint_told(int *answer) {
    Checkpoint *checkpoint = checkpoint_current();
    if (!checkpoint || !checkpoint->again) return false;
    bool over = checkpoint->answers_met == checkpoint->answer_count; /* it does something else */
    *answer = over ? 0 : checkpoint->answer[checkpoint->answers_met++];
    return true;
}

Checkpoint *checkpoint_of(const Storage *storage) {
    Checkpoint *checkpoint = checkpoint_current();
    while (checkpoint && storage->serial < checkpoint->born) checkpoint = checkpoint->outer;
    return checkpoint;
}

void checkpoint_save(Saved *saved, const Tensor *x) {
    saved->storage = storage_retain(x->storage);
    saved->version = storage_version(x->storage);
    saved->offset = x->offset;
    memcpy(saved->stride, x->stride, sizeof saved->stride);
}

/* ---- what is read ---------------------------------------------------------------------------- */

/* Where it stands, or would. */
static int *seat_of(const Checkpoint *checkpoint, uint64_t serial) {
    int last = 2 * checkpoint->read_capacity - 1, at = (int)hash_mix(serial, 0) & last;
    int *seat = checkpoint->read_seat;
    while (seat[at] && checkpoint->read[seat[at] - 1].serial != serial) at = (at + 1) & last;
    return &seat[at];
}

static CheckpointRead *find_read(const Checkpoint *checkpoint, const Storage *storage) {
    int seat = checkpoint->read_count ? *seat_of(checkpoint, storage->serial) : 0;
    return seat ? &checkpoint->read[seat - 1] : NULL;
}

/* Room for one more; false with an error. */
static bool grow_reads(Checkpoint *checkpoint) {
    int before = checkpoint->read_capacity;
    CheckpointRead *grown =
        grow(checkpoint->read, checkpoint->read_count, &checkpoint->read_capacity, sizeof *grown);
    if (grown) checkpoint->read = grown;
    if (!grown || checkpoint->read_capacity == before) return grown;
    size_t bytes = 2 * sizeof(int) * (size_t)checkpoint->read_capacity;
    int *seat = memory_zalloc(bytes);
    if (!seat) {
        checkpoint->read_capacity = before; /* which the table is for */
        fail_memory(bytes);
        return false;
    }
    memory_free(checkpoint->read_seat);
    checkpoint->read_seat = seat;
    for (int i = 0; i < checkpoint->read_count; i++)
        *seat_of(checkpoint, checkpoint->read[i].serial) = i + 1;
    return true;
}

static bool add_read(Checkpoint *checkpoint, Storage *storage, ReadBy reader) {
    CheckpointRead *read = find_read(checkpoint, storage);
    if (!read) {
        if (!grow_reads(checkpoint)) return false;
        *seat_of(checkpoint, storage->serial) = checkpoint->read_count + 1;
        read = &checkpoint->read[checkpoint->read_count++];
        *read = (CheckpointRead){.storage = checkpoint_of(storage) ? NULL : storage_retain(storage),
                                 .serial = storage->serial};
    }
    CheckpointReads *by = &read->by[reader];
    uint64_t version = storage_version(storage);
    by->changed |= by->any && by->version != version;
    if (!by->any) *by = (CheckpointReads){true, by->changed, version, site_current()};
    return true;
}

/* False with an error. */
static bool fail_changed(const Checkpoint *checkpoint, const CheckpointRead *read, Site site) {
    char of[64], by[64], what[32] = "a tensor from outside";
    site_format(checkpoint->site, of, sizeof of);
    site_format(site, by, sizeof by);
    for (int i = 0; i < checkpoint->input_count; i++)
        if (read->storage && checkpoint->input[i].saved.storage == read->storage)
            snprintf(what, sizeof what, "input %d", i);
    fail(CB_ERR_ARGUMENT,
         "backward: %s, which the function of the checkpoint at %s reads at %s, was modified in "
         "place since, and it is to run again with the elements as they were",
         what, of, by);
    return false;
}

/* The outermost one that runs again, or NULL. */
static Checkpoint *find_again(void) {
    Checkpoint *again = NULL;
    for (Checkpoint *c = checkpoint_current(); c; c = c->outer)
        if (c->again) again = c;
    return again;
}

/* As it is read again, it is not what the first run has read. */
static bool is_doubtful(Checkpoint *again, const Storage *storage, ReadBy reader) {
    if (storage->serial >= again->born) return set_has(&again->doubtful, storage->serial);
    const CheckpointRead *read = find_read(again, storage);
    const CheckpointReads *by = read ? &read->by[reader] : NULL;
    if (!by || !by->any || by->version == storage_version(storage)) return false;
    if (!again->doubtful.count) again->doubted = (int)(read - again->read);
    return true;
}

/* Where the first run read it so or, where only what it made of it is read so, at all. */
static Site site_of(const CheckpointRead *read, ReadBy reader) {
    int by = reader;
    for (int k = 0; !read->by[by].any && k < READERS; k++) by = k;
    return read->by[by].site;
}

static bool reads(const Tensor *x, ReadBy reader, bool *doubts) {
    Checkpoint *again = x->storage ? find_again() : NULL;
    if (again && is_doubtful(again, x->storage, reader)) {
        const CheckpointRead *read = find_read(again, x->storage);
        if (!read) read = &again->read[again->doubted];
        if (doubts) *doubts = true;
        return doubts || fail_changed(again, read, site_of(read, reader));
    }
    for (Checkpoint *c = checkpoint_current(); x->storage && c && !c->again; c = c->outer)
        if (x->storage->serial < c->born && !add_read(c, x->storage, reader)) return false;
    return true;
}

bool checkpoint_reads(const Tensor *x) { return reads(x, READS_FOR_GRADIENTS, NULL); }

bool checkpoint_reads_else(const Tensor *x, bool *doubts) { return reads(x, READS_ELSE, doubts); }

static bool host_reads(const Tensor *x) { return reads(x, READS_BY_HOST, NULL); }

bool checkpoint_doubts(const Storage *made) {
    Checkpoint *again = find_again();
    if (!again || set_add(&again->doubtful, made->serial)) return true;
    fail_memory(0);
    return false;
}

void checkpoint_runs_graph(void) {
    for (Checkpoint *c = checkpoint_current(); c; c = c->outer) c->graphs = true;
}

bool checkpoint_reads_hold(const Checkpoint *checkpoint) {
    for (int i = 0; i < checkpoint->read_count; i++) {
        const CheckpointRead *read = &checkpoint->read[i];
        for (int by = 0; by < READERS && !read->storage; by++)
            if (read->by[by].changed) return fail_changed(checkpoint, read, read->by[by].site);
    }
    return true;
}

/* Those within have read it as it was. */
static void note_write(Checkpoint *checkpoint, const Storage *storage) {
    for (int i = 0; i < checkpoint->record_count; i++) {
        const Checkpoint *inner = checkpoint->record[i].inner;
        CheckpointRead *read = inner ? find_read(inner, storage) : NULL;
        for (int by = 0; by < READERS && read; by++) read->by[by].changed = true;
    }
}

bool checkpoint_writes(const Storage *storage) {
    const Checkpoint *again = NULL;
    for (Checkpoint *c = checkpoint_current(); c; c = c->outer) {
        if (c->again) again = c;
        if (!c->again && storage->serial >= c->born) note_write(c, storage);
    }
    return !again || storage->serial >= again->born;
}

bool checkpoint_is_again(void) { return find_again(); }

/* ---- elements ---------------------------------------------------------------------------------
 *
 * What a gradient goes through is computed from the operands of records, and those are as they were
 * where the records are, except for what no gradient goes through: a mask, noise, data. Whatever
 * computed them is no record, so it is their elements that are held against the first run's. */

/* In pieces, so that it does not matter how the elements lie. */
static bool digest_bytes(void *user, const void *bytes, size_t count) {
    enum { PIECE = 1 << 14 };
    uint64_t *digest = user;
    for (size_t done = 0; done < count; done += PIECE) {
        size_t piece = count - done < PIECE ? count - done : PIECE;
        *digest = hash_bytes((const char *)bytes + done, piece, *digest);
    }
    return true;
}

/* Never 0, but where they could not be read. */
static uint64_t digest_of(const Tensor *x) {
    uint64_t digest = 0;
    return tensor_hand_over(x, digest_bytes, &digest) ? digest | 1 : 0;
}

void checkpoint_note(Saved *saved, const Tensor *x) {
    const Checkpoint *checkpoint = checkpoint_current(), *born = checkpoint_of(x->storage);
    bool followed = x->history && (!born || storage_version(x->storage) == 0);
    if (checkpoint->again || followed) return;
    if (born) {
        saved->digest = digest_of(x);
        return;
    }
    saved->serial = x->storage->serial;
    saved->offset = x->offset;
    memcpy(saved->stride, x->stride, sizeof saved->stride);
}

static bool may_be_approximate(const Checkpoint *checkpoint) {
    while (checkpoint && !checkpoint->graphs) checkpoint = checkpoint->outer;
    return checkpoint;
}

/* Of sizes that are the same. */
static bool has_same_elements(const Checkpoint *checkpoint, const Saved *saved, const Tensor *x) {
    if (may_be_approximate(checkpoint)) return true;
    if (saved->digest) return digest_of(x) == saved->digest;
    if (!saved->serial) return true;
    Tensor first = *x;
    first.offset = saved->offset;
    memcpy(first.stride, saved->stride, sizeof first.stride);
    if (x->storage->serial == saved->serial && x->offset == first.offset &&
        !memcmp(x->stride, first.stride, sizeof *x->stride * x->rank))
        return true; /* checkpoint_reads_hold */
    const int *seat = seat_of(checkpoint, saved->serial);
    first.storage = *seat ? checkpoint->read[*seat - 1].storage : NULL;
    return first.storage && first.device == saved->meta.device && digest_of(&first) == digest_of(x);
}

/* ---- another run ----------------------------------------------------------------------------- */

static void describe(Op op, const Meta *meta, Site site, char *out, size_t bytes) {
    char of[128], line[64];
    meta_format(meta, of, sizeof of);
    site_format(site, line, sizeof line);
    if (op == OP_none || op == OP_backward)
        snprintf(out, bytes, "a %s (%s)", op == OP_none ? "checkpoint" : "compiled function", line);
    else
        snprintf(out, bytes, "%s to %s (%s)", op_info(op)->name, of, line);
}

/* The record that comes now is not that; NULL: the function has returned. False. */
static bool does_else(const Checkpoint *checkpoint, int at, const char *now) {
    char line[64], first[256] = "nothing more";
    site_format(checkpoint->site, line, sizeof line);
    if (at < checkpoint->record_count) {
        const CheckpointRecord *record = &checkpoint->record[at];
        describe(record->op, &record->meta, record->site, first, sizeof first);
    }
    fail(CB_ERR_ARGUMENT,
         "backward: the function of the checkpoint at %s does something else when it runs again: "
         "%s, where its first run did %s",
         line, now, first);
    return false;
}

static bool is_like(const CheckpointRecord *record, Op op, const Meta *meta) {
    const Meta *first = &record->meta;
    return record->op == op && first->dtype == meta->dtype && first->rank == meta->rank &&
           !memcmp(first->size, meta->size, sizeof *meta->size * meta->rank);
}

bool checkpoint_meet(Op op, const Meta *meta, TapeNode **known) {
    Checkpoint *checkpoint = checkpoint_current();
    *known = NULL;
    if (!checkpoint || !checkpoint->again) return true;
    const CheckpointRecord *record = &checkpoint->record[checkpoint->at];
    bool over = checkpoint->at == checkpoint->record_count;
    if (!over && record->op != OP_none && is_like(record, op, meta)) {
        *known = record->node;
        checkpoint->at++;
        return true;
    }
    char now[256];
    describe(op, meta, site_current(), now, sizeof now);
    return does_else(checkpoint, checkpoint->at, now);
}

static bool is_same_call(const Checkpoint *inner, cb_function_n *function, Tensor *const *x,
                         int count) {
    bool same = inner->function == function && inner->input_count == count;
    for (int i = 0; i < count && same; i++) {
        const Meta now = tensor_meta(x[i]), *first = &inner->input[i].saved.meta;
        same = now.dtype == first->dtype && now.rank == first->rank &&
               !memcmp(now.size, first->size, sizeof *now.size * now.rank) &&
               (x[i]->history ? tape_node(x[i]) : NULL) == inner->input[i].node;
    }
    return same;
}

bool checkpoint_meet_inner(Checkpoint *outer, cb_function_n *function, Tensor *const *x, int count,
                           Checkpoint **inner) {
    bool over = outer->at == outer->record_count;
    const CheckpointRecord *record = over ? NULL : &outer->record[outer->at];
    *inner = record ? record->inner : NULL;
    if (record && record->op == OP_none && (!*inner || is_same_call(*inner, function, x, count))) {
        outer->at++;
        return true;
    }
    char now[256];
    describe(OP_none, &(Meta){.rank = 0}, site_current(), now, sizeof now);
    return does_else(outer, outer->at, *inner ? "another checkpoint" : now);
}

bool checkpoint_is_over(const Checkpoint *checkpoint) {
    return checkpoint->at == checkpoint->record_count ||
           does_else(checkpoint, checkpoint->at, "it returns");
}

void checkpoint_differs(const TapeNode *known, const char *how) {
    const Checkpoint *checkpoint = checkpoint_current();
    char now[256];
    describe(known->op, &known->meta, site_current(), now, sizeof now);
    snprintf(now + strlen(now), sizeof now - strlen(now), " %s", how);
    does_else(checkpoint, checkpoint->at - 1, now);
}

static bool is_same_number(const cb_operand *a, const cb_operand *b) {
    return a->kind == b->kind &&
           (a->kind == CB_OPERAND_TENSOR || !memcmp(&a->f, &b->f, sizeof a->f));
}

static bool is_same(const TapeNode *node, const cb_operand *input, const Attrs *attrs) {
    if (node->kind != TAPE_OP) return false;
    size_t words = attrs ? sizeof *node->word * op_info(node->op)->word_count : 0;
    if (words && memcmp(node->word, attrs->word, words) != 0) return false;
    for (int i = 0; i < node->count; i++) {
        const Tensor *x = input[i].kind == CB_OPERAND_TENSOR ? input[i].tensor : NULL;
        const Saved *saved = &node->saved[i];
        if (!x && !is_same_number(&saved->number, &input[i])) return false;
        if (x && (saved->number.kind != CB_OPERAND_TENSOR || x->rank != saved->meta.rank ||
                  memcmp(x->size, saved->meta.size, sizeof *x->size * x->rank) != 0))
            return false;
        if (x && x->dtype != saved->meta.dtype) return false;
        if (node->producer[i] && node->producer[i] != tape_node(x)) return false;
    }
    return true;
}

/* For operands that are the same else. */
static bool reads_same(const TapeNode *node, const cb_operand *input) {
    for (int i = 0; i < node->count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR && input[i].tensor &&
            !has_same_elements(node->checkpoint, &node->saved[i], input[i].tensor))
            return false;
    return true;
}

bool checkpoint_take(TapeNode *known, const cb_operand *input, const Attrs *attrs) {
    bool same = is_same(known, input, attrs);
    if (!same || !reads_same(known, input)) {
        checkpoint_differs(known, same ? "of other elements" : "of other operands or attributes");
        return false;
    }
    for (int i = 0; i < known->count; i++) {
        Saved *saved = &known->saved[i];
        if (!saved->owner || !saved->owner->filling || saved->storage) continue;
        checkpoint_save(saved, input[i].tensor);
    }
    return true;
}

/* ---- letting go ------------------------------------------------------------------------------ */

static bool is_filled(const Saved *saved) { return saved->owner && saved->owner->filled; }

static void let_go(Saved *saved) {
    if (saved->storage) storage_release(saved->storage);
    saved->storage = NULL;
}

static void forget_node(TapeNode *node, const Checkpoint *owner) {
    for (int i = 0; i < node->saves; i++)
        if (node->saved[i].owner == owner) let_go(&node->saved[i]);
    if (node->kind != TAPE_TOGETHER || node->checkpoint != owner || node->forgotten) return;
    node->steps->forget(node->state);
    node->forgotten = true;
}

static void forget_within(Checkpoint *checkpoint, const Checkpoint *owner) {
    for (int i = 0; i < checkpoint->input_count; i++)
        if (checkpoint->input[i].saved.owner == owner) let_go(&checkpoint->input[i].saved);
    for (int i = 0; i < checkpoint->record_count; i++) {
        const CheckpointRecord *record = &checkpoint->record[i];
        if (record->node) forget_node(record->node, owner);
        if (record->inner) forget_within(record->inner, owner);
    }
}

void checkpoint_forget(Checkpoint *checkpoint) { forget_within(checkpoint, checkpoint); }

void checkpoint_pass_inputs(Checkpoint *checkpoint) {
    for (int i = 0; i < checkpoint->input_count; i++)
        if (is_filled(&checkpoint->input[i].saved)) let_go(&checkpoint->input[i].saved);
}

void checkpoint_pass(TapeNode *node) {
    for (int i = 0; i < node->saves; i++)
        if (is_filled(&node->saved[i])) let_go(&node->saved[i]);
    bool several = node->kind == TAPE_TOGETHER && node->checkpoint;
    if (several && node->checkpoint->filled) forget_node(node, node->checkpoint);
}
