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
 * Of more than a few costly ops each is the call of a function over arrays, which the compiler
 * vectorizes once, and loops compute what stands between them:
 *
 *     for (int l = 0; l < n; l++) y0[l] = m_tanh_f32(p1[l]);
 *     lanes_tanh_f32(whole, y1, y0);
 *     for (int l = 0; l < whole; l++) y0[l] = y1[l] * 0.5f;
 *     lanes_tanh_f32(whole, y1, y0);
 *     for (int l = 0; l < n; l++) s0[l] = m_tanh_f32(y1[l]);
 *
 * Calls round what they take and give, as eager does.
 *
 * What stays in arrays goes by whole vectors, as the compiler sees: it writes no code for the rest
 * of one, which would take it longer than the loop.
 *
 * Loops are cut before costly ops alone, and never between a product and the sum that takes it in
 * with one rounding: without calls, results are those of one loop, bit for bit. */
#include "base/round.h"
#include "codegen/c/kernel.h"

#include <string.h>

enum {
    STEP_COST = 16,        /* of a chain, from which on its step is full */
    STEPS_MOST = 16,       /* each is a loop for the compiler to vectorize */
    STEPS_LEAST_COST = 40, /* of a kernel's longest chain */
    CALLS_LEAST = 9,       /* costly ops of a kernel, from which on they are calls */
    STEP_RUN = 128,        /* shortest run of lanes */
    STEP_BYTES = 16 << 10, /* of all arrays: they stay in L1 beside what is loaded and stored */
    STEP_LANES = 512,
    STEP_LANES_LEAST = 128,
    WHOLE_LANES = 16, /* a vector of f32 */
    AGAIN_COST = 3    /* of what is computed from loads again in place of an array */
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

/* Whether the op is the call of a function over arrays. What is loaded or stored is computed by the
 * loop that does that, while it waits for memory. */
static bool is_call(const CKernel *c, const Expr *x) {
    bool memory = false;
    if (!c->calls || !c->e.local[x->id].level || !emit_may_call(x)) return false;
    for (int i = 0; i < x->input_count; i++) memory |= x->input[i]->op == EX_load;
    for (int s = 0; s < c->store_count; s++) memory |= c->e.kernel->store[s].value == x;
    return !memory;
}

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

/* From users to inputs, each as late as it may be: beside what alone uses it. Calls read and make
 * arrays. A product stays with the costly op that begins a step, which may begin with a sum. most:
 * of a step's chain, from which on it is full. */
static void place_all(const CKernel *c, Spot *spot, int64_t most) {
    for (int id = c->e.count - 1; id >= 0; id--) {
        const Expr *x = expression(c, id);
        if (!is_term(c, id)) continue;
        int64_t chain = spot[id].chain + cost_of(x);
        bool call = is_call(c, x), full = spot[id].first || (is_costly(x) && chain >= most);
        for (int i = 0; i < x->input_count; i++) {
            bool stays = full && !call && is_costly(x) && is_product(x->input[i]);
            bool cut = (full && !stays) || call || is_call(c, x->input[i]);
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
static bool may_part(const CKernel *c, const Expr *x, const Users *users) {
    bool ends_open = is_product(x) || (is_costly(x) && !is_call(c, x));
    return !ends_open || users->others > 0 || !dtype_is_float(x->dtype);
}

/* By expression: whether a call reads it. */
static bool *find_called(const CKernel *c) {
    bool *called = arena_new_array(c->e.arena, bool, c->e.count + 1);
    for (int id = 0; id < c->e.count; id++) {
        const Expr *x = expression(c, id);
        for (int i = 0; i < x->input_count && is_call(c, x); i++) called[x->input[i]->id] = true;
    }
    return called;
}

/* Of one step: what earlier ones compute for it. False: that may not come from an array. */
static bool find_inputs(CKernel *c, int step, const bool *array, const Users *users, bool *needed) {
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
        bool earlier = value->step < step && array[id];
        if (earlier && !may_part(c, x, &users[id])) return false;
        if (earlier && !value->last) value->last = step;
        for (int i = 0; i < x->input_count && !earlier; i++) needed[x->input[i]->id] = true;
    }
    return true;
}

/* What goes from step to step through an array, and the last step that reads it. */
static bool find_arrays(CKernel *c) {
    const Users *users = find_users(c);
    const bool *again = find_again(c, users);
    bool *array = find_called(c), *needed = arena_new_array(c->e.arena, bool, c->e.count + 1);
    for (int id = 0; id < c->e.count; id++) array[id] |= !again[id] && c->e.local[id].level > 0;
    for (int step = c->step_count - 1; step >= 0; step--) {
        memset(needed, 0, (size_t)c->e.count * sizeof *needed);
        if (!find_inputs(c, step, array, users, needed)) return false;
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

static bool has_calls(const CKernel *c) {
    int count = 0;
    for (int id = 0; id < c->e.count; id++)
        count += is_term(c, id) && emit_may_call(expression(c, id));
    return count >= CALLS_LEAST;
}

/* Lanes of a block whose arrays stay in L1; less than STEP_LANES_LEAST: there is no way. */
static int64_t place_steps(CKernel *c, int64_t longest) {
    Emit *e = &c->e;
    Spot *spot = arena_new_array(e->arena, Spot, e->count + 1);
    int64_t part = longest / STEPS_MOST;
    int last = 0;
    place_all(c, spot, part < STEP_COST ? STEP_COST : part);
    for (int id = 0; id < e->count; id++)
        if (is_term(c, id) && spot[id].step > last) last = spot[id].step;
    c->step_count = last + 1;
    c->step_value = arena_new_array(e->arena, StepValue, e->count + 1);
    for (int id = 0; id < e->count; id++) c->step_value[id].step = last - spot[id].step;
    int64_t bytes = find_arrays(c) ? name_arrays(c) : 0;
    return bytes ? STEP_BYTES / bytes / STEP_LANES_LEAST * STEP_LANES_LEAST : 0;
}

void c_choose_steps(CKernel *c) {
    Emit *e = &c->e;
    bool pointwise = c->shape == SHAPE_NESTED && !c->inner_count && !c->reduce_count;
    if (!pointwise || c->turns || c->edge || c->scalar) return;
    if (axis_typical(e->kernel, e->lane_axis) < STEP_RUN) return;
    int64_t longest = longest_chain(c);
    if (longest < STEPS_LEAST_COST) return;
    c->calls = has_calls(c);
    int64_t lanes = place_steps(c, longest);
    if (lanes < STEP_LANES_LEAST) {
        c->step_count = 0;
        return;
    }
    c->lanes = c->out_lanes = least(c->lanes, least(lanes, STEP_LANES));
    int64_t cost = 0;
    for (int id = 0; id < e->count; id++) {
        const Expr *x = expression(c, id);
        if (is_term(c, id) && emit_may_call(x) && !is_call(c, x)) cost += c_own_cost(x);
    }
    e->apart &= cost > APART_ARITHMETIC;
}

/* ---- text -------------------------------------------------------------------------------- */

static const char *array_name(const CKernel *c, int id) {
    return arena_format(c->e.arena, "y%d", c->step_value[id].array);
}

static bool is_made(const CKernel *c, int id, int step) {
    return c->step_value[id].last && c->step_value[id].step == step;
}

static bool is_called(const CKernel *c, int id, int step) {
    return is_made(c, id, step) && is_call(c, expression(c, id));
}

static bool is_looped(const CKernel *c, int id, int step) {
    return is_made(c, id, step) && !is_call(c, expression(c, id));
}

/* Stores are loops, too. */
static bool has_loop(const CKernel *c, int step) {
    for (int id = 0; id < c->e.count; id++)
        if (is_looped(c, id, step)) return true;
    return step == c->step_count - 1;
}

static void put_function(CKernel *c, const Expr *x) {
    Emit *e = &c->e;
    static const char *const names[] = {"a", "b", "c"};
    const char *type = c_array_type(c, x->dtype);
    Phrase argument[3];
    Buffer head = buffer_new(e->arena);
    putf(&head, "static __attribute__((noinline)) void lanes_%s_%s(int n, %s *restrict y",
         op_info(x->op)->name, cb_dtype_name(x->dtype), type);
    for (int i = 0; i < x->input_count; i++) {
        argument[i] = c_lane(c, names[i]);
        putf(&head, ", const %s *%s", type, names[i]);
    }
    emit_open(e, "%s)", buffer_text(&head));
    emit_line(e, "const int whole = n & -%d;", WHOLE_LANES);
    c->whole = true;
    c_open_lanes(c, "");
    emit_line(e, "y[l] = %s;",
              text_op(e, x->op, x->dtype, x->dtype, argument, x->input_count).text);
    emit_close(e);
    emit_close(e);
    c->whole = false;
}

void c_lane_functions(CKernel *c) {
    for (int id = 0; id < c->e.count && c->step_count; id++) {
        const Expr *x = expression(c, id);
        if (!c->step_value[id].last || !is_call(c, x) || c->e.usage->lanes[x->op][x->dtype])
            continue;
        c->e.usage->lanes[x->op][x->dtype] = true;
        put_function(c, x);
    }
}

static void call_function(CKernel *c, const Expr *x) {
    Buffer text = buffer_new(c->e.arena);
    putf(&text, "lanes_%s_%s(whole, %s", op_info(x->op)->name, cb_dtype_name(x->dtype),
         array_name(c, (int)x->id));
    for (int i = 0; i < x->input_count; i++)
        putf(&text, ", %s", array_name(c, (int)x->input[i]->id));
    emit_line(&c->e, "%s);", buffer_text(&text));
}

/* Of a loop that is collected. */
static bool loads_any(const CKernel *c) {
    for (int id = 0; id < c->e.count; id++) {
        const Local *local = &c->e.local[id];
        if (expression(c, id)->op == EX_load && local->needed && !local->name.text) return true;
    }
    return false;
}

/* Behind what is loaded lie numbers, since denormals, which memory may hold, are slow. */
static void fill_whole(CKernel *c, int step) {
    for (int id = 0; id < c->e.count; id++)
        if (is_looped(c, id, step))
            emit_line(&c->e, "for (int l = n; l < whole; l++) %s[l] = 0;", array_name(c, id));
}

static void one_loop(CKernel *c, int step) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    bool stores = step == c->step_count - 1; /* what is stored may be loaded before */
    emit_begin(e);
    for (int id = 0; id < e->count; id++)
        if (is_looped(c, id, step)) emit_root(e, e->kernel->expr[id], e->lane_level);
    for (int s = 0; s < c->store_count && stores; s++) emit_root_store(e, s, e->row_level);
    emit_collect(e);
    c->whole = !stores && !loads_any(c);
    emit_block(e);
    c_open_reading_lanes(c, "");
    emit_declare(e, e->lane_level);
    for (int id = 0; id < e->count; id++)
        if (is_looped(c, id, step))
            emit_line(e, "%s[l] = %s;", array_name(c, id), text_value(e, expression(c, id)).text);
    for (int s = 0; s < c->store_count && stores; s++) c_store(c, s);
    emit_close(e);
    if (!c->whole) fill_whole(c, step);
    emit_close(e);
    emit_forget(e, mark);
    c->whole = false;
}

static void one_step(CKernel *c, int step) {
    for (int id = 0; id < c->e.count; id++)
        if (is_called(c, id, step)) call_function(c, expression(c, id));
    if (has_loop(c, step)) one_loop(c, step);
    for (int id = 0; id < c->e.count; id++)
        if (is_made(c, id, step)) emit_name(&c->e, expression(c, id), c_lane(c, array_name(c, id)));
}

void c_lanes_in_steps(CKernel *c) {
    Emit *e = &c->e;
    Mark mark = emit_mark(e);
    emit_line(e, "const int whole = (n + %d) & -%d;", WHOLE_LANES - 1, WHOLE_LANES);
    for (int i = 0; i < length(c->step_array); i++)
        emit_line(e, "%s y%d[%lld] __attribute__((aligned(64)));",
                  c_array_type(c, c->step_array[i]), i, (long long)c->lanes);
    for (int step = 0; step < c->step_count; step++) one_step(c, step);
    emit_forget(e, mark);
    c_flush_outs(c, e->info.pass_count);
}
