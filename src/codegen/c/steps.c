/* Pointwise kernels with long chains of costly ops, in steps: a lane loop for each part of the
 * chain, over blocks of lanes that stay in L1, with arrays between the loops.
 *
 *     double y0[512], y1[512];
 *     for (int l = 0; l < n; l++) y0[l] = m_tanh_f64(p1[l]);
 *     for (int l = 0; l < n; l++) y1[l] = m_tanh_f64(y0[l]);
 *     for (int l = 0; l < n; l++) s0[l] = m_tanh_f64(y1[l]);
 *
 * In one loop every operation waits for the one before it, and the next vector is further ahead
 * than the processor looks. Here the vectors of a loop do not wait for each other.
 *
 * Loops are cut before costly ops alone, and never between a product and the sum that takes it in
 * with one rounding: results are those of one loop, bit for bit. */
#include "base/round.h"
#include "codegen/c/kernel.h"

#include <string.h>

enum {
    STEP_COST = 16,  /* of a chain, from which on its step is full */
    STEPS_MOST = 32, /* each is a loop for the compiler to vectorize, */
    STEPS_FEW = 8,   /* which pays less below so many points: */
    FEW_POINTS = 16 << 10,
    STEPS_LEAST_COST = 40, /* of a kernel's longest chain */
    STEP_RUN = 128,        /* shortest run of lanes */
    STEP_BYTES = 16 << 10, /* of all arrays: they stay in L1 beside what is loaded and stored */
    STEP_LANES = 512,
    STEP_LANES_LEAST = 128,
    AGAIN_COST = 3 /* of what is computed from loads again in place of an array */
};

/* Where an expression stands, while steps are counted from the last one. */
typedef struct Spot {
    int step;
    int64_t chain; /* of its step: cost from here to the end */
    bool first;    /* no costly op may come before it in its step */
} Spot;

/* Users of a value by what they do to a product. */
typedef struct Users {
    int sums, others, unknown;
} Users;

/* ---- choices ----------------------------------------------------------------------------- */

static const Expr *expression(const CKernel *c, int id) { return c->e.kernel->expr[id]; }

static bool is_term(const CKernel *c, int id) { return c->e.info.expr[id].users > 0; }

/* Doubles take twice as many vectors, and longer polynomials. */
static int64_t cost_of(const Expr *x) { return c_own_cost(x) * (x->dtype == CB_F64 ? 2 : 1); }

static bool is_costly(const Expr *x) { return x->op < OP_COUNT && c_own_cost(x) >= APART_COST; }

static bool is_sum(const Expr *x) { return x->op == OP_add || x->op == OP_sub; }

static bool is_product(const Expr *x) {
    if (x->op >= OP_COUNT || x->op == OP_constant || is_costly(x)) return false;
    const char *tokens = op_text_tokens(x->op, x->dtype); /* NULL: of lanes as they are */
    return tokens && strchr(tokens, '*');
}

static void move_before(Spot *spot, int step, int64_t chain, bool first) {
    bool earlier = step > spot->step;
    if (earlier || (step == spot->step && chain > spot->chain)) spot->chain = chain;
    spot->first = earlier ? first : spot->first || (first && step == spot->step);
    if (earlier) spot->step = step;
}

static int64_t longest_chain(const CKernel *c) {
    int64_t *chain = arena_new_array(c->e.arena, int64_t, c->e.count + 1), longest = 0;
    for (int id = 0; id < c->e.count; id++) {
        const Expr *x = expression(c, id);
        if (!is_term(c, id)) continue;
        for (int i = 0; i < x->input_count; i++)
            if (chain[x->input[i]->id] > chain[id]) chain[id] = chain[x->input[i]->id];
        chain[id] += cost_of(x);
        if (chain[id] > longest) longest = chain[id];
    }
    return longest;
}

/* From users to inputs, each as late as it may be: beside what alone uses it. A product stays with
 * the costly op that begins a step, which may begin with a sum. most: of a step's chain, from which
 * on it is full. */
static void place_all(const CKernel *c, Spot *spot, int64_t most) {
    for (int id = c->e.count - 1; id >= 0; id--) {
        const Expr *x = expression(c, id);
        if (!is_term(c, id)) continue;
        int64_t chain = spot[id].chain + cost_of(x);
        bool full = spot[id].first || (is_costly(x) && chain >= most);
        for (int i = 0; i < x->input_count; i++) {
            bool stays = full && is_costly(x) && is_product(x->input[i]);
            bool cut = full && !stays;
            move_before(&spot[x->input[i]->id], spot[id].step + cut, cut ? 0 : chain, stays);
        }
    }
}

static Users *find_users(const CKernel *c) {
    Users *users = arena_new_array(c->e.arena, Users, c->e.count + 1);
    for (int s = 0; s < c->store_count; s++) users[c->e.kernel->store[s].value->id].others++;
    for (int id = c->e.count - 1; id >= 0; id--) {
        const Expr *x = expression(c, id);
        const Users *own = &users[id];
        if (!is_term(c, id)) continue;
        bool negated = x->op == OP_neg && own->sums == 1 && !own->others && !own->unknown;
        bool sums = is_sum(x) || negated;
        bool other = x->op == OP_mul || x->op == OP_div || x->op == OP_where || is_costly(x);
        for (int i = 0; i < x->input_count; i++) {
            Users *input = &users[x->input[i]->id];
            input->sums += sums;
            input->others += other;
            input->unknown += !sums && !other;
        }
    }
    return users;
}

/* Whether later steps compute a value again. A product in sums alone is rounded with these,
 * another one is not. */
static bool *find_again(const CKernel *c, const Users *users) {
    bool *again = arena_new_array(c->e.arena, bool, c->e.count + 1);
    int64_t *cost = arena_new_array(c->e.arena, int64_t, c->e.count + 1);
    for (int id = 0; id < c->e.count; id++) {
        const Expr *x = expression(c, id);
        cost[id] = c_own_cost(x);
        for (int i = x->op == EX_load; i < x->input_count; i++) {
            int input = (int)x->input[i]->id;
            cost[id] += again[input] ? cost[input] : AGAIN_COST;
        }
        bool free = x->op >= OP_COUNT || x->op == OP_constant;
        if (is_product(x))
            again[id] = !users[id].others && !users[id].unknown;
        else
            again[id] = free || (!is_costly(x) && cost[id] <= AGAIN_COST);
    }
    return again;
}

/* Whether an array may stand for the value: a product is not in sums alone then. */
static bool may_part(const Expr *x, const Users *users) {
    bool ends_open = is_product(x) || is_costly(x);
    return !ends_open || users->others > 0 || !dtype_is_float(x->dtype);
}

/* Of one step: what earlier ones compute for it. False: that may not come from an array. */
static bool find_inputs(CKernel *c, int step, const bool *again, const Users *users, bool *needed) {
    for (int s = 0; s < c->store_count && step == c->step_count - 1; s++) {
        const Store *store = &c->e.kernel->store[s];
        needed[store->value->id] = true;
        if (store->guard) needed[store->guard->id] = true;
    }
    for (int id = c->e.count - 1; id >= 0; id--) {
        const Expr *x = expression(c, id);
        StepValue *value = &c->step_value[id];
        if (value->last && value->step == step) needed[id] = true;
        if (!needed[id] || !is_term(c, id)) continue;
        bool earlier = value->step < step && !again[id] && c->e.local[id].level > 0;
        if (earlier && !may_part(x, &users[id])) return false;
        if (earlier && !value->last) value->last = step;
        for (int i = 0; i < x->input_count && !earlier; i++) needed[x->input[i]->id] = true;
    }
    return true;
}

/* What goes from step to step through an array, and the last step that reads it. */
static bool find_arrays(CKernel *c) {
    const Users *users = find_users(c);
    const bool *again = find_again(c, users);
    bool *needed = arena_new_array(c->e.arena, bool, c->e.count + 1);
    for (int step = c->step_count - 1; step >= 0; step--) {
        memset(needed, 0, (size_t)c->e.count * sizeof *needed);
        if (!find_inputs(c, step, again, users, needed)) return false;
    }
    return true;
}

/* Arrays are taken over from values that nothing reads any more. Bytes of a lane. */
static int64_t name_arrays(CKernel *c) {
    int *until = arena_new_array(c->e.arena, int, c->e.count + 1);
    int64_t bytes = 0;
    for (int step = 0; step < c->step_count; step++)
        for (int id = 0; id < c->e.count; id++) {
            StepValue *value = &c->step_value[id];
            if (!value->last || value->step != step) continue;
            int array = 0, count = length(c->step_array);
            cb_dtype dtype = expression(c, id)->dtype;
            while (array < count && (c->step_array[array] != dtype || until[array] >= step))
                array++;
            if (array == count) {
                push(c->e.arena, c->step_array, dtype);
                bytes += (int64_t)cb_dtype_size(dtype);
            }
            until[array] = value->last;
            value->array = array;
        }
    return bytes;
}

static int64_t most_steps(const CKernel *c) {
    int64_t points = 1;
    for (int axis = 0; axis < c->e.kernel->outer_count; axis++)
        points *= axis_typical(c->e.kernel, axis);
    return points < FEW_POINTS ? STEPS_FEW : STEPS_MOST;
}

void c_choose_steps(CKernel *c) {
    Emit *e = &c->e;
    bool pointwise = c->shape == SHAPE_NESTED && !c->inner_count && !c->reduce_count;
    if (!pointwise || c->turns || c->edge || c->scalar) return;
    if (axis_typical(e->kernel, e->lane_axis) < STEP_RUN) return;
    Spot *spot = arena_new_array(e->arena, Spot, e->count + 1);
    int64_t longest = longest_chain(c), part = longest / most_steps(c);
    if (longest < STEPS_LEAST_COST) return;
    place_all(c, spot, part < STEP_COST ? STEP_COST : part);
    int last = 0;
    for (int id = 0; id < e->count; id++)
        if (is_term(c, id) && spot[id].step > last) last = spot[id].step;
    c->step_count = last + 1;
    c->step_value = arena_new_array(e->arena, StepValue, e->count + 1);
    for (int id = 0; id < e->count; id++) c->step_value[id].step = last - spot[id].step;
    int64_t bytes = find_arrays(c) ? name_arrays(c) : 0;
    int64_t lanes = bytes ? STEP_BYTES / bytes / STEP_LANES_LEAST * STEP_LANES_LEAST : 0;
    if (lanes < STEP_LANES_LEAST)
        c->step_count = 0;
    else
        c->lanes = c->out_lanes = least(c->lanes, least(lanes, STEP_LANES));
}

/* ---- text -------------------------------------------------------------------------------- */

static const char *array_name(const CKernel *c, int id) {
    return arena_format(c->e.arena, "y%d", c->step_value[id].array);
}

static bool is_made(const CKernel *c, int id, int step) {
    return c->step_value[id].last && c->step_value[id].step == step;
}

static bool makes_any(const CKernel *c, int step) {
    for (int id = 0; id < c->e.count; id++)
        if (is_made(c, id, step)) return true;
    return step == c->step_count - 1;
}

static void one_step(CKernel *c, int step) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    bool stores = step == c->step_count - 1; /* what is stored may be loaded before */
    emit_begin(e);
    for (int id = 0; id < e->count; id++)
        if (is_made(c, id, step)) emit_root(e, e->kernel->expr[id], e->lane_level);
    for (int s = 0; s < c->store_count && stores; s++) emit_root_store(e, s, e->row_level);
    emit_collect(e);
    emit_block(e);
    c_open_reading_lanes(c, "");
    emit_declare(e, e->lane_level);
    for (int id = 0; id < e->count; id++)
        if (is_made(c, id, step))
            emit_line(e, "%s[l] = %s;", array_name(c, id), text_value(e, expression(c, id)).text);
    for (int s = 0; s < c->store_count && stores; s++) c_store(c, s);
    emit_close(e);
    emit_close(e);
    emit_forget(e, mark);
    for (int id = 0; id < e->count; id++)
        if (is_made(c, id, step)) emit_name(e, expression(c, id), c_lane(c, array_name(c, id)));
}

void c_lanes_in_steps(CKernel *c) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    for (int i = 0; i < length(c->step_array); i++)
        emit_line(e, "%s y%d[%lld] __attribute__((aligned(64)));",
                  c_array_type(c, c->step_array[i]), i, (long long)c->lanes);
    for (int step = 0; step < c->step_count; step++)
        if (makes_any(c, step)) one_step(c, step);
    emit_forget(e, mark);
    c_flush_outs(c, e->info.pass_count);
}
