/* Lists: kernels along one axis that do the same to other tensors run as one step, the way an
 * optimizer updates all parameters. Each keeps its buffers and its code, which those of one size
 * share; what they have in common is the launch, which spreads all of their points over the
 * threads.
 *
 * Needs the steps in order. A kernel waits for a later one of its kind if nobody reads what it
 * writes before then, and if waiting neither takes its operands out of the cache nor keeps more in
 * memory.
 *
 *     k0(a), matmul, k1(b), k2(c)     ->     matmul, k0(a) with k1(b), k2(c) */
#include "sched/list.h"

#include <string.h>

enum {
    LIST_KERNELS = 256,
    SMALL_BYTES = 1 << 18, /* of traffic: little lost if it comes from memory */
    COLD_STEPS = 4         /* since an operand was written: it is in no cache any more */
};

typedef struct OpenList { /* the open one of its kind */
    int *step;            /* vec: members, ascending */
    int64_t bytes;        /* the largest member's */
    int limit;            /* step that reads what a member writes first */
    int keeps;            /* step up to which members' operands are alive anyway */
    bool cold;            /* no member has read what was just written */
} OpenList;

typedef struct Lists {
    Plan *plan;
    Arena *arena;
    int *writer;              /* by value: last step that writes it; -1: none yet */
    int *reader, *last;       /* by value: first and last step behind the writer that reads it */
    OpenList *open;           /* vec */
    const OpenList **list_of; /* by step: that it belongs to; NULL: it stays alone */
} Lists;

static const Kernel *kernel_at(const Lists *l, int step) {
    return l->plan->kernel[l->plan->step[step].kernel];
}

/* One axis, and every element stored once. */
static bool may_wait(const Plan *plan, const Step *step) {
    if (step->kind != STEP_KERNEL) return false;
    const Kernel *kernel = plan->kernel[step->kernel];
    if (length(kernel->axis) > 1) return false;
    for (int i = 0; i < length(kernel->buffer); i++)
        if (kernel->buffer[i].role == BUFFER_INOUT) return false;
    for (int i = 0; i < length(kernel->store); i++)
        if (kernel->store[i].mode != STORE_SET) return false;
    return true;
}

/* ---- who reads what -------------------------------------------------------------------------- */

static void touch(Lists *l, int value, int step, bool writes) {
    if (writes) {
        l->writer[value] = step;
        return;
    }
    if (step < l->reader[value]) l->reader[value] = step;
    l->last[value] = step;
}

static void find_readers(Lists *l) {
    const Plan *plan = l->plan;
    for (int s = 0; s < length(plan->step); s++) {
        const Step *step = &plan->step[s];
        for (int i = 0; i < step->in_count; i++) touch(l, step->in[i], s, false);
        for (int i = 0; i < length(step->part); i++) touch(l, step->part[i].value, s, false);
        if (step->kind == STEP_WRITE) touch(l, step->out, s, false);
        if (step->out >= 0) touch(l, step->out, s, true);
        const KernelBuffer *buffer = step->kernel < 0 ? NULL : plan->kernel[step->kernel]->buffer;
        for (int i = 0; i < length(buffer); i++) {
            bool own = buffer[i].value == step->out; /* of a product, by its epilogue */
            if (buffer[i].role != BUFFER_OUT && !own) touch(l, buffer[i].value, s, false);
            if (buffer[i].role != BUFFER_IN) touch(l, buffer[i].value, s, true);
        }
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int lesser(int a, int b) { return a < b ? a : b; }

/* What the kernel at step adds to its list, or begins one with. */
static OpenList alone(const Lists *l, int step) {
    const Kernel *kernel = kernel_at(l, step);
    int steps = length(l->plan->step);
    OpenList list = {.bytes = kernel->bytes, .limit = steps, .keeps = steps, .cold = true};
    int64_t dies = 0, written = 0;
    for (int i = 0; i < length(kernel->buffer); i++) {
        const KernelBuffer *buffer = &kernel->buffer[i];
        int64_t bytes = buffer->numel * (int64_t)cb_dtype_size(buffer->dtype);
        if (buffer->role == BUFFER_OUT) {
            list.limit = lesser(list.limit, l->reader[buffer->value]);
            written += bytes;
            continue;
        }
        if (l->writer[buffer->value] > step) list.limit = step; /* reads what was there before */
        bool temporary = l->plan->value[buffer->value].place == VALUE_TEMPORARY;
        if (!temporary) continue;
        bool fresh = l->writer[buffer->value] >= step - COLD_STEPS;
        if (fresh && bytes > SMALL_BYTES) list.cold = false;
        if (l->last[buffer->value] == step) dies += bytes;
        if (l->last[buffer->value] > step) list.keeps = lesser(list.keeps, l->last[buffer->value]);
    }
    if (dies > written) list.keeps = step;
    return list;
}

static bool same_kind(const Kernel *a, const Kernel *b) {
    return length(a->axis) == length(b->axis) && a->outer_count == b->outer_count &&
           length(a->store) == length(b->store) && a->kind == b->kind;
}

static bool may_join(const OpenList *list, int step) {
    int count = length(list->step);
    if (count == LIST_KERNELS || list->limit <= step) return false;
    if (list->step[count - 1] == step - 1) return true; /* nothing in between */
    return list->keeps >= step && (list->cold || list->bytes <= SMALL_BYTES);
}

/* The open list of the kernel's kind; one that it may not join is given up for a new one. */
static OpenList *list_for(Lists *l, int step) {
    OpenList own = alone(l, step);
    int at = 0;
    while (at < length(l->open) &&
           !same_kind(kernel_at(l, l->open[at].step[0]), kernel_at(l, step)))
        at++;
    if (at == length(l->open)) push(l->arena, l->open, own);
    OpenList *list = &l->open[at];
    if (!list->step || !may_join(list, step)) {
        *list = own;
    } else {
        list->bytes = list->bytes > own.bytes ? list->bytes : own.bytes;
        list->limit = lesser(list->limit, own.limit);
        list->keeps = lesser(list->keeps, own.keeps);
        list->cold &= own.cold;
    }
    push(l->arena, list->step, step);
    return list;
}

/* ---- the new order --------------------------------------------------------------------------- */

/* By step: of a list, its last member, which all others wait for; of others, the step itself. */
static int *find_places(Lists *l) {
    int steps = length(l->plan->step);
    int *place = arena_new_array(l->arena, int, steps + 1);
    for (int s = 0; s < steps; s++) {
        place[s] = s;
        if (!may_wait(l->plan, &l->plan->step[s])) continue;
        const OpenList *list = list_for(l, s);
        for (int i = 0; i < length(list->step); i++) place[list->step[i]] = s;
    }
    return place;
}

static void renumber(Plan *plan, const int *place, const int *number, int nodes) {
    for (int i = 0; i < nodes; i++)
        if (plan->node_step[i] >= 0) plan->node_step[i] = number[place[plan->node_step[i]]];
}

void join_lists(Plan *plan, Arena *arena, int nodes) {
    int values = length(plan->value), steps = length(plan->step);
    Lists l = {.plan = plan, .arena = arena};
    l.writer = arena_new_array(arena, int, values + 1);
    l.reader = arena_new_array(arena, int, values + 1);
    l.last = arena_new_array(arena, int, values + 1);
    for (int v = 0; v < values; v++) l.writer[v] = l.last[v] = -1, l.reader[v] = steps;
    find_readers(&l);
    int *place = find_places(&l), *number = arena_new_array(arena, int, steps + 1), count = 0;
    int **list = arena_new_array(arena, int *, steps + 1);
    for (int s = 0; s < steps; s++)
        if (plan->step[s].kind == STEP_KERNEL)
            push(plan->arena, list[place[s]], plan->step[s].kernel);
    for (int s = 0; s < steps; s++) {
        if (place[s] != s) continue;
        number[s] = count;
        plan->step[count] = plan->step[s];
        if (length(list[s]) > 1) {
            plan->step[count].list = list[s];
            plan->step[count].kernel = list[s][0];
        }
        count++;
    }
    truncate_to(plan->step, count);
    renumber(plan, place, number, nodes);
}
