/* Kernels and their interned expressions: constructors, constant folding, bounds.
 * Interning makes equal expressions one pointer, so recomputation inside a kernel costs nothing. */
#include "lower/loop.h"

#include <stdint.h>
#include <string.h>

Kernel *kernel_new(Arena *arena) {
    Kernel *kernel = arena_zalloc(arena, sizeof *kernel);
    kernel->arena = arena;
    kernel->table = map_new(arena);
    kernel->split = kernel->parts = 1;
    kernel->like = -1;
    kernel->outer_size = kernel->inner_size = 1;
    kernel->name = "kernel";
    kernel->origin = "";
    return kernel;
}

Kernel *kernel_over(const Kernel *kernel, Arena *arena) {
    Kernel *over = arena_alloc(arena, sizeof *over);
    int count = length(kernel->expr);
    *over = *kernel;
    over->arena = arena;
    over->below = kernel;
    over->table = map_new(arena);
    over->expr = vec_grow(arena, NULL, count, sizeof *over->expr);
    for (int id = 0; id < count; id++) push(arena, over->expr, kernel->expr[id]);
    return over;
}

int kernel_axis(Kernel *kernel, int64_t size, bool inner) {
    check(inner || kernel->outer_count == length(kernel->axis), "outer axes come first");
    push(kernel->arena, kernel->axis, (Axis){.size = size, .inner = inner});
    if (inner) {
        kernel->inner_size *= size;
    } else {
        kernel->outer_count++;
        kernel->outer_size *= size;
    }
    return length(kernel->axis) - 1;
}

int64_t axis_typical(const Kernel *kernel, int axis) {
    const Axis *a = &kernel->axis[axis];
    if (a->few && a->varies) return FEW_POINTS;
    return a->varies && a->size > 1 && a->size <= TYPICAL_MOST ? TYPICAL : a->size;
}

int64_t kernel_typical_row(const Kernel *kernel) {
    int64_t row = 1;
    for (int a = kernel->outer_count; a < length(kernel->axis); a++) row *= axis_typical(kernel, a);
    return row;
}

bool kernel_varies(const Kernel *kernel) {
    bool varies = false;
    for (int a = 0; a < length(kernel->axis); a++) varies |= kernel->axis[a].varies;
    return varies;
}

bool stride_varies(const Kernel *kernel, int64_t stride) {
    for (int a = 0; a < length(kernel->axis); a++) {
        const Axis *axis = &kernel->axis[a];
        if (axis->varies && axis->size > 1 && stride && stride % axis->size == 0) return true;
    }
    return false;
}

int kernel_buffer(Kernel *kernel, cb_dtype dtype, BufferRole role, int64_t numel, int value) {
    KernelBuffer buffer = {dtype, role, numel, value, false};
    push(kernel->arena, kernel->buffer, buffer);
    return length(kernel->buffer) - 1;
}

void kernel_store(Kernel *kernel, int buffer, Expr *index, Expr *value, Expr *guard,
                  StoreMode mode) {
    Store store = {buffer, mode, index, value, guard};
    push(kernel->arena, kernel->store, store);
}

bool kernel_has_scan(const Kernel *kernel) {
    for (int i = 0; i < length(kernel->expr); i++)
        if (kernel->expr[i]->op == EX_scan) return true;
    return false;
}

cb_dtype expr_running(const Expr *scan) {
    return scan->dtype == CB_F32 && reduce_adds(scan->imm.i) ? CB_F64 : scan->dtype;
}

bool kernel_has_sink(const Kernel *kernel) {
    for (int i = 0; i < length(kernel->store); i++)
        if (kernel->store[i].mode == STORE_SUM) return true;
    return false;
}

bool kernel_in_order(const Kernel *kernel) {
    for (int i = 0; i < length(kernel->store); i++)
        if (kernel->store[i].mode == STORE_LAST || kernel->store[i].mode == STORE_ADD) return true;
    return kernel_has_scan(kernel);
}

bool kernel_may_split(const Kernel *kernel) {
    for (int i = 0; i < length(kernel->store); i++)
        if (kernel->store[i].mode == STORE_LAST || kernel->store[i].mode == STORE_SUM) return false;
    return !kernel_has_scan(kernel);
}

static void mark(const Expr *e, bool *live) {
    if (live[e->id]) return;
    live[e->id] = true;
    for (int i = 0; i < e->input_count; i++) mark(e->input[i], live);
}

const bool *kernel_live(const Kernel *kernel, Arena *arena) {
    bool *live = arena_new_array(arena, bool, length(kernel->expr) + 1);
    for (int i = 0; i < length(kernel->store); i++) {
        const Store *store = &kernel->store[i];
        mark(store->value, live);
        mark(store->index, live);
        if (store->guard) mark(store->guard, live);
    }
    return live;
}

/* ---- bounds of i64 expressions ------------------------------------------------------------- */

bool expr_bounded(const Expr *e) { return e->low > INT64_MIN || e->high < INT64_MAX; }

static void bound_sum(Expr *e) {
    int64_t low, high;
    const Expr *a = e->input[0], *b = e->input[1];
    if (!expr_bounded(a) || !expr_bounded(b)) return;
    if (__builtin_add_overflow(a->low, b->low, &low)) return;
    if (__builtin_add_overflow(a->high, b->high, &high)) return;
    e->low = low, e->high = high;
}

static void bound_product(Expr *e) {
    int64_t p, q;
    const Expr *a = e->input[0], *b = e->input[1];
    if (b->op != OP_constant || !expr_bounded(a)) return;
    if (__builtin_mul_overflow(a->low, b->imm.i, &p)) return;
    if (__builtin_mul_overflow(a->high, b->imm.i, &q)) return;
    e->low = p < q ? p : q, e->high = p < q ? q : p;
}

static int64_t floor_divide(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static void bound_extreme(Expr *e) {
    const Expr *a = e->input[0], *b = e->input[1];
    bool least = e->op == OP_minimum;
    e->low = (a->low < b->low) == least ? a->low : b->low;
    e->high = (a->high < b->high) == least ? a->high : b->high;
}

static void bound(const Kernel *kernel, Expr *e) {
    e->low = INT64_MIN, e->high = INT64_MAX;
    if (e->dtype != CB_I64) return;
    if (e->op == OP_minimum || e->op == OP_maximum) bound_extreme(e);
    if (e->op == OP_constant) e->low = e->high = e->imm.i;
    if (e->op == EX_axis) e->low = 0, e->high = kernel->axis[e->imm.i].size - 1;
    if (e->op == OP_add) bound_sum(e);
    if (e->op == OP_mul) bound_product(e);
    if (e->op != OP_floor_divide && e->op != OP_remainder) return;
    const Expr *a = e->input[0], *b = e->input[1];
    if (b->op != OP_constant || b->imm.i <= 0) return;
    if (e->op == OP_remainder)
        e->low = 0, e->high = b->imm.i - 1;
    else if (expr_bounded(a))
        e->low = floor_divide(a->low, b->imm.i), e->high = floor_divide(a->high, b->imm.i);
}

/* ---- interning ------------------------------------------------------------------------------ */

static bool same(const Expr *a, const Expr *b) {
    bool same_op = a->op == b->op && a->dtype == b->dtype; /* untested: equal hashes */
    if (!same_op || a->imm.i != b->imm.i) return false;    /* untested: equal hashes */
    return memcmp(a->input, b->input, sizeof a->input) == 0;
}

static uint32_t axes_of(const Kernel *kernel, const Expr *e) {
    if (e->op == EX_axis) return 1u << e->imm.i;
    uint32_t axes = 0;
    for (int i = 0; i < e->input_count; i++) axes |= e->input[i]->axes;
    uint32_t outer = (1u << kernel->outer_count) - 1;
    if (e->op == EX_scan)
        axes |= ((1u << length(kernel->axis)) - 1) & ~outer; /* also of a constant */
    return e->op == EX_reduce ? axes & outer : axes;
}

static uint64_t hash_of(const Expr *e) {
    uint64_t hash = hash_mix((uint64_t)e->op << 8 | (uint8_t)e->dtype, (uint64_t)e->imm.i);
    for (int i = 0; i < e->input_count; i++) hash = hash_mix(hash, e->input[i]->id);
    return hash;
}

static Expr *intern(Kernel *kernel, int op, cb_dtype dtype, Scalar imm, Expr *const *input,
                    int input_count) {
    Expr key = {.op = op, .dtype = dtype, .input_count = (uint8_t)input_count};
    key.imm = imm;
    for (int i = 0; i < input_count; i++) key.input[i] = input[i];
    uint64_t hash = hash_of(&key);
    for (const Kernel *k = kernel; k; k = k->below)
        for (MapEntry *e = map_first(&k->table, hash); e; e = map_next(e))
            if (same(e->value, &key)) return e->value; /* untested: equal hashes */
    Expr *expr = arena_alloc(kernel->arena, sizeof *expr);
    *expr = key;
    expr->id = (uint32_t)length(kernel->expr);
    bound(kernel, expr);
    expr->axes = axes_of(kernel, expr);
    push(kernel->arena, kernel->expr, expr);
    map_put(&kernel->table, hash, expr);
    return expr;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static Expr *copied(const Kernel *copy, const Expr *e) { return e ? copy->expr[e->id] : NULL; }

static void copy_expressions(Kernel *copy, const Kernel *kernel) {
    int count = length(kernel->expr);
    Expr *block = arena_alloc(copy->arena, sizeof *block * (size_t)count);
    copy->expr = vec_grow(copy->arena, NULL, count, sizeof *copy->expr);
    for (int id = 0; id < count; id++) {
        Expr *e = &block[id];
        *e = *kernel->expr[id];
        for (int i = 0; i < e->input_count; i++) e->input[i] = copied(copy, e->input[i]);
        push(copy->arena, copy->expr, e);
        map_put(&copy->table, hash_of(e), e);
    }
}

Kernel *kernel_copy(const Kernel *kernel, Arena *arena) {
    Kernel *copy = arena_alloc(arena, sizeof *copy);
    *copy = *kernel;
    copy->arena = arena;
    copy->table = map_new(arena);
    copy->axis = NULL, copy->buffer = NULL, copy->store = NULL;
    copy->name = arena_text(arena, kernel->name);
    copy->origin = arena_text(arena, kernel->origin);
    copy_expressions(copy, kernel);
    for (int i = 0; i < length(kernel->axis); i++) push(arena, copy->axis, kernel->axis[i]);
    for (int i = 0; i < length(kernel->buffer); i++) push(arena, copy->buffer, kernel->buffer[i]);
    for (int i = 0; i < length(kernel->store); i++) {
        Store s = kernel->store[i];
        s.index = copied(copy, s.index), s.value = copied(copy, s.value);
        s.guard = copied(copy, s.guard);
        push(arena, copy->store, s);
    }
    return copy;
}

Kernel *kernel_again(const Kernel *first, const Kernel *kernel, Arena *arena) {
    Kernel *again = arena_alloc(arena, sizeof *again);
    *again = *first;
    again->buffer = NULL;
    again->name = arena_text(arena, kernel->name);
    again->origin = arena_text(arena, kernel->origin);
    again->node_count = kernel->node_count;
    again->like = kernel->like;
    for (int i = 0; i < length(kernel->buffer); i++) push(arena, again->buffer, kernel->buffer[i]);
    return again;
}

/* ---- constructors ---------------------------------------------------------------------------- */

Expr *expr_constant(Kernel *kernel, cb_dtype dtype, Scalar value) {
    return intern(kernel, OP_constant, dtype, value, NULL, 0);
}

Expr *expr_int(Kernel *kernel, int64_t value) {
    return expr_constant(kernel, CB_I64, (Scalar){.i = value});
}

Expr *expr_axis(Kernel *kernel, int axis) {
    return intern(kernel, EX_axis, CB_I64, (Scalar){.i = axis}, NULL, 0);
}

Expr *expr_load(Kernel *kernel, int buffer, cb_dtype compute, Expr *index, Expr *guard) {
    Expr *input[2] = {index, guard};
    if (guard && guard->op == OP_constant && !guard->imm.i)
        return expr_constant(kernel, compute, (Scalar){.i = 0});
    if (guard && guard->op == OP_constant) guard = NULL;
    return intern(kernel, EX_load, compute, (Scalar){.i = buffer}, input, guard ? 2 : 1);
}

static bool is_bool(const Expr *e, int64_t value) {
    return e->dtype == CB_BOOL && e->op == OP_constant && e->imm.i == value;
}

/* x - max(x): never above 0, where exp costs less. */
static bool is_below_maximum(const Expr *x) {
    if (x->op != OP_sub) return false;
    const Expr *most = x->input[1];
    return most->op == EX_reduce && most->imm.i == OP_amax && most->input[0] == x->input[0];
}

/* What guards and positions need; the graph's rules have simplified everything else. */
static Expr *simplify(Expr *const *input, Op op) {
    if (op == OP_logical_and && is_bool(input[0], 1)) return input[1];
    if (op == OP_logical_and && (is_bool(input[1], 1) || input[0] == input[1])) return input[0];
    if (op == OP_logical_and && is_bool(input[0], 0)) return input[0];
    if (op == OP_logical_and && is_bool(input[1], 0)) return input[1];
    if (op == OP_where && input[0]->op == OP_constant) return input[0]->imm.i ? input[1] : input[2];
    return NULL;
}

/* A comparison of bounded integers that always comes out the same; -1: it depends. */
static int decided(Op op, const Expr *a, const Expr *b) {
    if (a->dtype != CB_I64 || !expr_bounded(a) || !expr_bounded(b)) return -1;
    if (op == OP_lt) return a->high < b->low ? 1 : a->low >= b->high ? 0 : -1;
    if (op == OP_ge) return a->low >= b->high ? 1 : a->high < b->low ? 0 : -1;
    return -1;
}

Expr *expr_op(Kernel *kernel, Op op, cb_dtype dtype, Expr *const *input, int input_count) {
    bool constant = op != OP_philox;
    for (int i = 0; i < input_count; i++) constant &= input[i]->op == OP_constant;
    if (constant) {
        Scalar value[3];
        for (int i = 0; i < input_count; i++) value[i] = input[i]->imm;
        cb_dtype compute = op == OP_where ? input[1]->dtype : input[0]->dtype;
        return expr_constant(kernel, dtype, scalar_eval(op, compute, value));
    }
    Expr *simple = simplify(input, op);
    if (simple) return simple;
    if (op == OP_exp && is_below_maximum(input[0])) op = OP_exp_nonpositive;
    Expr *joined[3];
    Op whole = expr_join(op, dtype, input, input_count, joined);
    if (whole) return intern(kernel, whole, dtype, (Scalar){.i = 0}, joined, op_info(whole)->arity);
    int known = input_count == 2 ? decided(op, input[0], input[1]) : -1;
    if (known >= 0) return expr_constant(kernel, CB_BOOL, (Scalar){.i = known});
    return intern(kernel, op, dtype, (Scalar){.i = 0}, input, input_count);
}

Expr *expr_to(Kernel *kernel, Expr *input, cb_dtype dtype) {
    cb_dtype compute = compute_dtype(dtype);
    if (input->dtype == dtype) return input;
    if (input->op == OP_constant)
        return expr_constant(kernel, compute, scalar_convert(input->imm, input->dtype, dtype));
    return intern(kernel, OP_to, compute, (Scalar){.i = dtype}, &input, 1);
}

Expr *expr_reduce(Kernel *kernel, Op reduce, Expr *input) {
    return intern(kernel, EX_reduce, input->dtype, (Scalar){.i = reduce}, &input, 1);
}

Expr *expr_scan(Kernel *kernel, Op reduce, Expr *input) {
    return intern(kernel, EX_scan, input->dtype, (Scalar){.i = reduce}, &input, 1);
}
