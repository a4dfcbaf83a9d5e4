/* Lifetimes of the temporaries -> their offsets in the plan's arena block.
 *
 * Needs final steps and outputs, and which of these are computed in place. A temporary lives from
 * the first step that touches it to the last one, both included, and to the end of the plan when an
 * output names it; two whose lives meet share no byte.
 *
 * One sweep over the steps: the temporaries that begin at a step are placed, largest first, each
 * into the smallest hole that holds it, else at the end of the block; those that end there are
 * given back afterwards, and holes that touch become one. Holes are few, so the time is near-linear
 * in steps.
 *
 *     step 0 writes t0[1 KB], step 1 t0 -> t1[1 KB], step 2 t1 -> t2[1 KB]: offsets 0, 1024, 0 */
#include "sched/memory.h"
#include "base/round.h"

enum {
    ALIGNMENT = 64,
    SAME_SETS = 4096 /* so far apart, places share few lines of L1 */
};

typedef struct Life {
    int first, last; /* steps; first > last: never touched */
    int next_first,
        next_last; /* chains of the values that begin, end at the same step; -1: the end */
} Life;

typedef struct Hole {
    int64_t offset, bytes;
} Hole;

typedef struct Planner {
    Plan *plan;
    Life *life;                   /* by value */
    int *first_begin, *first_end; /* by step: heads of the chains */
    Hole *hole;                   /* vec, by offset; none touches the next */
    int64_t top;                  /* bytes of the block so far */
} Planner;

/* A kernel that writes many values of whole pages finds room for all of them in L1: the next one
 * begins a line further on. */
static int64_t bytes_of(const PlanValue *value) {
    int64_t bytes = value->numel * (int64_t)cb_dtype_size(value->dtype);
    bytes = round_up(bytes, ALIGNMENT);
    return bytes > 0 && bytes % SAME_SETS == 0 ? bytes + ALIGNMENT : bytes;
}

/* ---- lifetimes ---- */

static void touch(Planner *planner, int value, int step) {
    Life *life = &planner->life[value];
    if (step < life->first) life->first = step;
    if (step > life->last) life->last = step;
}

static void touch_kernel(Planner *planner, int kernel, int step) {
    const KernelBuffer *buffer = planner->plan->kernel[kernel]->buffer;
    for (int i = 0; i < length(buffer); i++) touch(planner, buffer[i].value, step);
}

static void touch_step(Planner *planner, const Step *step, int number) {
    for (int i = 0; i < step->in_count; i++) touch(planner, step->in[i], number);
    for (int i = 0; i < length(step->part); i++) touch(planner, step->part[i].value, number);
    if (step->out >= 0) touch(planner, step->out, number);
    for (int i = 0; i < step_kernels(step); i++)
        touch_kernel(planner, step_kernel(step, i), number);
}

static void find_lives(Planner *planner) {
    Plan *plan = planner->plan;
    int values = length(plan->value), steps = length(plan->step);
    planner->life = arena_new_array(plan->arena, Life, values);
    for (int v = 0; v < values; v++) planner->life[v].first = steps, planner->life[v].last = -1;
    for (int s = 0; s < steps; s++) touch_step(planner, &plan->step[s], s);
    for (int i = 0; i < length(plan->output); i++)
        if (plan->output[i].value >= 0) planner->life[plan->output[i].value].last = steps;
}

static void chain_lives(Planner *planner) {
    Plan *plan = planner->plan;
    int steps = length(plan->step);
    planner->first_begin = arena_new_array(plan->arena, int, steps + 1);
    planner->first_end = arena_new_array(plan->arena, int, steps + 1);
    for (int s = 0; s <= steps; s++) planner->first_begin[s] = planner->first_end[s] = -1;
    for (int v = length(plan->value) - 1; v >= 0; v--) {
        Life *life = &planner->life[v];
        if (plan->value[v].place != VALUE_TEMPORARY || life->first > life->last) continue;
        life->next_first = planner->first_begin[life->first];
        planner->first_begin[life->first] = v;
        life->next_last = planner->first_end[life->last];
        planner->first_end[life->last] = v;
    }
}

/* ---- holes ---- */

static void remove_hole(Planner *planner, int at) {
    int count = length(planner->hole);
    for (int i = at; i + 1 < count; i++) planner->hole[i] = planner->hole[i + 1];
    truncate_to(planner->hole, count - 1);
}

static void insert_hole(Planner *planner, int at, Hole hole) {
    push(planner->plan->arena, planner->hole, hole);
    for (int i = length(planner->hole) - 1; i > at; i--) planner->hole[i] = planner->hole[i - 1];
    planner->hole[at] = hole;
}

static void give_back(Planner *planner, int64_t offset, int64_t bytes) {
    int at = 0, count = length(planner->hole);
    while (at < count && planner->hole[at].offset < offset) at++;
    bool joins_next = at < count && offset + bytes == planner->hole[at].offset;
    Hole *before = at > 0 ? &planner->hole[at - 1] : NULL;
    if (before && before->offset + before->bytes == offset) {
        before->bytes += bytes;
        if (!joins_next) return;
        before->bytes += planner->hole[at].bytes;
        remove_hole(planner, at);
    } else if (joins_next) {
        planner->hole[at].offset = offset;
        planner->hole[at].bytes += bytes;
    } else {
        insert_hole(planner, at, (Hole){offset, bytes});
    }
}

/* The smallest hole that holds bytes, else the end of the block, which a last hole there already
 * begins. */
static int64_t take(Planner *planner, int64_t bytes) {
    int best = -1, count = length(planner->hole);
    for (int i = 0; i < count; i++) {
        int64_t size = planner->hole[i].bytes;
        if (size >= bytes && (best < 0 || size < planner->hole[best].bytes)) best = i;
    }
    if (best >= 0) {
        Hole *hole = &planner->hole[best];
        int64_t offset = hole->offset;
        hole->offset += bytes, hole->bytes -= bytes;
        if (hole->bytes == 0) remove_hole(planner, best);
        return offset;
    }
    int64_t offset = planner->top;
    if (count > 0) {
        Hole last = planner->hole[count - 1];
        if (last.offset + last.bytes == planner->top) {
            offset = last.offset;
            remove_hole(planner, count - 1);
        }
    }
    planner->top = offset + bytes;
    return offset;
}

/* ---- placement ---- */

/* The values that begin at a step, largest first; they are few, so insertion sort. */
static int *beginning_at(Planner *planner, int step) {
    int *value = NULL;
    const PlanValue *values = planner->plan->value;
    for (int v = planner->first_begin[step]; v >= 0; v = planner->life[v].next_first) {
        push(planner->plan->arena, value, v);
        for (int i = length(value) - 1;
             i > 0 && bytes_of(&values[value[i - 1]]) < bytes_of(&values[value[i]]); i--) {
            int swapped = value[i - 1];
            value[i - 1] = value[i], value[i] = swapped;
        }
    }
    return value;
}

/* What may be computed in place has no part in the block. */
static void put_aside(Planner *planner) {
    Plan *plan = planner->plan;
    for (int i = plan->output_count; i < length(plan->output); i++) {
        if (!plan->output[i].in_place) continue;
        int v = plan->output[i].value;
        plan->value[v].offset = plan->aside_bytes;
        plan->aside_bytes += bytes_of(&plan->value[v]);
        planner->life[v] = (Life){.first = length(plan->step), .last = -1};
    }
}

void plan_memory(Plan *plan) {
    Planner planner = {.plan = plan};
    find_lives(&planner);
    put_aside(&planner);
    chain_lives(&planner);
    for (int s = 0; s < length(plan->step); s++) {
        int *value = beginning_at(&planner, s);
        for (int i = 0; i < length(value); i++) {
            PlanValue *placed = &plan->value[value[i]];
            placed->offset = take(&planner, bytes_of(placed));
        }
        for (int v = planner.first_end[s]; v >= 0; v = planner.life[v].next_last)
            if (bytes_of(&plan->value[v]) > 0)
                give_back(&planner, plan->value[v].offset, bytes_of(&plan->value[v]));
    }
    plan->arena_bytes = planner.top;
}
