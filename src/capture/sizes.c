/* Which sizes of an entry others will have (PlanSizes): what differs from an entry of the same ops,
 * and what is said to vary, by the option dynamic or by cb_mark_dynamic.
 *
 *     entry 0   i64[1, 10] -> f32[1, 10, 768] -> f32[1, 12, 10, 64] ...
 *     entry 1   i64[1, 11] -> f32[1, 11, 768] -> f32[1, 12, 11, 64] ...     varying: 11
 *
 * That is a guess, for form and speed alone: 12 tokens beside 12 heads do no harm. */
#include "capture/functional.h"

static void add_size(Arena *arena, int64_t **varying, int64_t size) {
    for (int i = 0; i < length(*varying); i++)
        if ((*varying)[i] == size) return;
    if (size > 1) push(arena, *varying, size); /* 0 and 1 make other graphs */
}

/* Dims that are of size 1, or empty, in one of them alone. */
static int count_special(const Trace *a, const Trace *b) {
    int count = 0;
    for (int v = 0; v < length(a->value); v++) {
        const Meta *p = &a->value[v].meta, *q = &b->value[v].meta;
        for (int d = 0; d < p->rank && d < q->rank; d++)
            count += p->size[d] != q->size[d] && (p->size[d] < 2 || q->size[d] < 2);
    }
    return count;
}

/* An entry that stays, of the same ops and arguments over other sizes, best one that has 1 where
 * this one does; NULL: there is none, or one is over these. */
static const Entry *find_resembling(const Function *function, const Entry *entry) {
    const Entry *found = NULL;
    int least = 0;
    for (const Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) {
        if (!e->executable || e->trace->argument_count != entry->trace->argument_count ||
            !trace_resembles(e->trace, entry->trace))
            continue;
        if (trace_alike(e->trace, entry->trace, length(entry->trace->op))) return NULL;
        if (entry_may_leave(e)) continue;
        int special = count_special(e->trace, entry->trace);
        if (!found || special < least) found = e, least = special;
    }
    return found;
}

const Trace *sizes_find_known(const Call *call) {
    const Entry *known = atomic_load(&call->function->first);
    while (known && known->resumes) known = atomic_load(&known->next);
    return known && !call->resumed ? known->trace : NULL;
}

static void add_differing(Arena *arena, int64_t **varying, const Trace *from, const Trace *to) {
    for (int v = 0; v < length(to->value); v++) {
        const Meta *p = &from->value[v].meta, *q = &to->value[v].meta;
        for (int d = 0; d < q->rank; d++)
            if (d >= p->rank || p->size[d] != q->size[d]) add_size(arena, varying, q->size[d]);
    }
}

/* Of what is computed: a few less than a size that is said to vary, x[1:]. */
static void add_following(Arena *arena, int64_t **varying, const Trace *trace) {
    int marked = length(*varying);
    for (int v = 0; v < length(trace->value); v++) {
        const Meta *meta = &trace->value[v].meta;
        for (int d = 0; d < meta->rank && trace->value[v].kind == VALUE_IS_RESULT; d++)
            for (int i = 0; i < marked; i++) {
                int64_t less = (*varying)[i] - meta->size[d];
                if (less > 0 && less <= FEW_LESS) add_size(arena, varying, meta->size[d]);
            }
    }
}

static void add_marked(Arena *arena, int64_t **varying, const Entry *entry, Tensor *const *value) {
    bool all = entry->function->options.dynamic == DYNAMIC_ASKED;
    for (int v = 0; v < entry->input_count; v++)
        for (int d = 0; d < value[v]->rank; d++)
            if (all || value[v]->dynamic >> d & 1) add_size(arena, varying, value[v]->size[d]);
    add_following(arena, varying, entry->trace);
}

PlanSizes sizes_choose(const Entry *entry, Tensor *const *value) {
    const Function *function = entry->function;
    PlanSizes sizes = {.vary = false};
    int64_t *varying = NULL;
    Arena *arena = entry->trace->arena;
    if (function->options.dynamic == DYNAMIC_OFF) return sizes;
    const Entry *known = find_resembling(function, entry);
    if (known) {
        sizes.like = executable_plan(known->executable);
        add_differing(arena, &varying, known->trace, entry->trace);
    }
    add_marked(arena, &varying, entry, value);
    sizes.varying = varying;
    sizes.vary = known || varying || function->options.dynamic == DYNAMIC_ASKED;
    return sizes;
}
