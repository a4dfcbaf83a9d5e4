/* Graph nodes -> loop IR (lower.h). One function per kind of node; pointwise ops need none of their
 * own, since the op's name in the expression is all that engines need. */
#include "lower/lower.h"

#include <string.h>

typedef struct Memo {
    const Node *node;
    Expr *guard, *value;
    Expr *position[CB_MAX_RANK];
} Memo;

Lowering lowering_new(Kernel *kernel, void *user) {
    return (Lowering){.kernel = kernel, .user = user, .memo = map_new(kernel->arena)};
}

static bool is_copy(Op op) { return op == OP_contiguous || op == OP_clone; }

bool lower_expands(const Node *node) {
    switch (op_info(node->op)->kind) {
    case KIND_POINTWISE:
    case KIND_VIEW:
    case KIND_SOURCE:
    case KIND_RANDOM:
    case KIND_JOIN:
    case KIND_GATHER:
        return true;
    default:
        return node->op == OP_constant;
    }
}

/* ---- small expressions ---------------------------------------------------------------------- */

static Expr *binary(Lowering *l, Op op, cb_dtype dtype, Expr *a, Expr *b) {
    Expr *input[2] = {a, b};
    return a && b ? expr_op(l->kernel, op, dtype, input, 2) : NULL;
}

static Expr *select_of(Lowering *l, Expr *condition, Expr *yes, Expr *no) {
    Expr *input[3] = {condition, yes, no};
    return yes && no ? expr_op(l->kernel, OP_where, yes->dtype, input, 3) : NULL;
}

static Expr *both(Lowering *l, Expr *guard, Expr *condition) {
    return guard ? binary(l, OP_logical_and, CB_BOOL, guard, condition) : condition;
}

static Expr *negated(Lowering *l, Expr *condition) {
    return expr_op(l->kernel, OP_logical_not, CB_BOOL, &condition, 1);
}

static bool is_true(const Expr *e) { return e->op == OP_constant && e->imm.i; }
static bool is_false(const Expr *e) { return e->op == OP_constant && !e->imm.i; }

static Expr *given_number(Lowering *l, cb_dtype dtype, cb_operand value) {
    Scalar s = scalar_convert(number_scalar(&value), number_dtype(&value), dtype);
    return expr_constant(l->kernel, compute_dtype(dtype), s);
}

static Expr *number(Lowering *l, cb_dtype dtype, double value) {
    return given_number(l, dtype, cb_operand_float(value));
}

/* low <= position < high */
static Expr *within(Lowering *l, Expr *position, int64_t low, int64_t high) {
    Expr *above = index_compare(l->kernel, OP_ge, position, low);
    return both(l, above, index_compare(l->kernel, OP_lt, position, high));
}

/* ---- kinds ---------------------------------------------------------------------------------- */

static Expr *lower_pointwise(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    Expr *input[3], *at[CB_MAX_RANK];
    for (int i = 0; i < node->input_count; i++) {
        broadcast_position(l->kernel, node, node->input[i], position, at);
        input[i] = lower_at(l, node->input[i], at, guard);
        if (!input[i]) return NULL;
    }
    if (is_copy(node->op)) return input[0];
    if (node->op == OP_unrounded) return expr_to(l->kernel, input[0], compute_dtype(node->dtype));
    if (node->op == OP_to) return expr_to(l->kernel, input[0], node->dtype);
    bool compares = (node->op == OP_lt || node->op == OP_ge) && input[1]->op == OP_constant;
    if (compares && index_is_arithmetic(input[0]))
        return index_compare(l->kernel, node->op, input[0], input[1]->imm.i);
    Expr *value =
        expr_op(l->kernel, node->op, compute_dtype(node->dtype), input, node->input_count);
    return l->precise ? expr_to(l->kernel, value, node->dtype) : value;
}

static Expr *lower_view(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    Expr *at[CB_MAX_RANK];
    view_position(l->kernel, node, position, at);
    for (int i = 0; i < node->input[0]->rank && guard; i++)
        at[i] = index_where(l->kernel, at[i], guard);
    return lower_at(l, node->input[0], at, guard);
}

static Expr *lower_source(Lowering *l, const Node *node, Expr *const *position) {
    if (node->op == OP_full)
        return given_number(l, node->dtype, attr_number(node->attrs, ATTR_full_value));
    const int64_t *word = node->attrs->word;
    Expr *value = index_scale(l->kernel, position[0], word[ATTR_arange_step]);
    return expr_to(l->kernel, index_offset(l->kernel, value, word[ATTR_arange_start]), node->dtype);
}

/* 63 random bits -> the distribution. Uniform numbers are multiples of 2^-24 (f32) and 2^-53 (f64)
 * in [0, 1); normal ones come by Box and Muller's transform from two halves of the bits. */
static Expr *uniform(Lowering *l, Expr *bits, int shift, int width, cb_dtype dtype) {
    Expr *high = binary(l, OP_right_shift, CB_I64, bits, expr_int(l->kernel, shift));
    if (width < 32) high = expr_to(l->kernel, high, CB_I32); /* AVX2 converts no 64-bit integers */
    Expr *whole = expr_to(l->kernel, high, dtype);
    return binary(l, OP_mul, dtype, whole, number(l, dtype, 1.0 / (double)(1ll << width)));
}

static Expr *unary(Lowering *l, Op op, Expr *a) { return expr_op(l->kernel, op, a->dtype, &a, 1); }

static Expr *normal(Lowering *l, Expr *bits, cb_dtype dtype) {
    Expr *low = binary(l, OP_bitwise_and, CB_I64, bits, expr_int(l->kernel, (1ll << 31) - 1));
    Expr *angle = uniform(l, low, dtype == CB_F64 ? 0 : 7, dtype == CB_F64 ? 31 : 24, dtype);
    Expr *radius = uniform(l, bits, dtype == CB_F64 ? 31 : 39, dtype == CB_F64 ? 32 : 24, dtype);
    double half = dtype == CB_F64 ? 0x1p-33 : 0x1p-25; /* in (0, 1): the logarithm is finite */
    Expr *positive = binary(l, OP_add, dtype, radius, number(l, dtype, half));
    Expr *square = binary(l, OP_mul, dtype, unary(l, OP_log, positive), number(l, dtype, -2.0));
    Expr *turn = binary(l, OP_mul, dtype, angle, number(l, dtype, 6.283185307179586));
    return binary(l, OP_mul, dtype, unary(l, OP_sqrt, square), unary(l, OP_cos, turn));
}

/* low <= number < high of 63 bits of (seed, offset, index). For a range of 2^63 numbers or more all
 * 64 bits are drawn, the second word at the index's complement, and what lies beyond the range
 * starts anew at low: the sums wrap. */
static Expr *integer_within(Lowering *l, Expr *bits, Expr *const state[3], int64_t low,
                            int64_t high) {
    Kernel *k = l->kernel;
    uint64_t count = (uint64_t)high - (uint64_t)low, first = (uint64_t)low + (1ull << 63);
    if (count < 1ull << 63) {
        Expr *in_range = binary(l, OP_remainder, CB_I64, bits, expr_int(k, (int64_t)count));
        return binary(l, OP_add, CB_I64, in_range, expr_int(k, low));
    }
    Expr *index = binary(l, OP_bitwise_xor, CB_I64, state[2], expr_int(k, -1));
    Expr *other[3] = {state[0], state[1], index};
    Expr *high_bits = binary(l, OP_left_shift, CB_I64, bits, expr_int(k, 1));
    Expr *all = binary(l, OP_bitwise_xor, CB_I64, high_bits,
                       expr_op(k, OP_philox, CB_I64, other, 3)); /* + 2^63: 0 <= it < 2^64 */
    Expr *beyond = binary(l, OP_ge, CB_BOOL, all, expr_int(k, (int64_t)(count - (1ull << 63))));
    Expr *start =
        select_of(l, beyond, expr_int(k, (int64_t)(first - count)), expr_int(k, (int64_t)first));
    return binary(l, OP_add, CB_I64, all, start);
}

static Expr *lower_random(Lowering *l, const Node *node, Expr *const *position) {
    Kernel *k = l->kernel;
    cb_dtype dtype = compute_dtype(node->dtype);
    int64_t draw = node_draw(node);
    Expr *flat = index_flatten(k, node->rank, node->size, position);
    Expr *offset = binary(l, OP_add, CB_I64, l->random_state(l, 1), expr_int(k, draw));
    Expr *state[3] = {l->random_state(l, 0), offset, flat};
    Expr *bits = expr_op(k, OP_philox, CB_I64, state, 3);
    if (node->op == OP_randint) {
        const int64_t *word = node->attrs->word;
        int64_t low = word[ATTR_randint_low], high = word[ATTR_randint_high];
        return expr_to(k, integer_within(l, bits, state, low, high), node->dtype);
    }
    bool wide = dtype == CB_F64;
    Expr *value = node->op == OP_randn ? normal(l, bits, dtype)
                                       : uniform(l, bits, wide ? 10 : 39, wide ? 53 : 24, dtype);
    return expr_to(k, value, node->dtype);
}

static Expr *lower_concat(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    int dim = (int)node->attrs->word[ATTR_concat_dim];
    int64_t first = node->input[0]->size[dim];
    Expr *at[CB_MAX_RANK];
    Expr *in_first = within(l, position[dim], 0, first);
    if (is_true(in_first)) return lower_at(l, node->input[0], position, guard);
    memcpy(at, position, sizeof *position * node->rank);
    at[dim] = index_offset(l->kernel, position[dim], -first);
    if (is_false(in_first)) return lower_at(l, node->input[1], at, guard);
    Expr *a = lower_at(l, node->input[0], position, both(l, guard, in_first));
    Expr *b = lower_at(l, node->input[1], at, both(l, guard, negated(l, in_first)));
    return select_of(l, in_first, a, b);
}

static Expr *lower_pad(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    cb_dim_list padding = attr_dims(node->attrs, ATTR_pad_padding);
    const Node *x = node->input[0];
    Expr *at[CB_MAX_RANK];
    Expr *inside = expr_constant(l->kernel, CB_BOOL, (Scalar){.i = 1});
    for (int i = 0; i < node->rank; i++) {
        int from_last = 2 * (node->rank - 1 - i); /* PyTorch's order: the last dimension first */
        int64_t left = from_last < padding.count ? padding.at[from_last] : 0;
        at[i] = index_offset(l->kernel, position[i], -left);
        if (x->size[i] != node->size[i] || left)
            inside = both(l, inside, within(l, at[i], 0, x->size[i]));
    }
    Expr *value = lower_at(l, x, at, both(l, guard, inside));
    return select_of(l, inside, value,
                     given_number(l, node->dtype, attr_number(node->attrs, ATTR_pad_value)));
}

static Expr *lower_slice_scatter(Lowering *l, const Node *node, Expr *const *position,
                                 Expr *guard) {
    const int64_t *word = node->attrs->word;
    int dim = (int)word[ATTR_slice_scatter_dim];
    int64_t start = word[ATTR_slice_scatter_start], step = word[ATTR_slice_scatter_step];
    int64_t count = node->input[1]->size[dim];
    Expr *at[CB_MAX_RANK];
    Expr *along = index_offset(l->kernel, position[dim], -start);
    Expr *inside = within(l, along, 0, (count - 1) * step + 1);
    Expr *left = index_remainder(l->kernel, along, step);
    if (step > 1) inside = both(l, inside, binary(l, OP_eq, CB_BOOL, left, expr_int(l->kernel, 0)));
    memcpy(at, position, sizeof *position * node->rank);
    at[dim] = index_divide(l->kernel, along, step);
    Expr *from_source = lower_at(l, node->input[1], at, both(l, guard, inside));
    Expr *from_base = lower_at(l, node->input[0], position, guard);
    return select_of(l, inside, from_source, from_base);
}

/* Where a part begins, at most at `most`. One value for all positions, so it asks for no guard. */
static Expr *lower_start(Lowering *l, const Node *start, int64_t most) {
    Expr *position[1] = {NULL}, *given = lower_at(l, start, position, NULL);
    if (!given) return NULL;
    Expr *below = binary(l, OP_minimum, CB_I64, given, expr_int(l->kernel, most));
    return binary(l, OP_maximum, CB_I64, below, expr_int(l->kernel, 0));
}

static Expr *lower_dynamic_slice(Lowering *l, const Node *node, Expr *const *position,
                                 Expr *guard) {
    int dim = (int)node->attrs->word[ATTR_dynamic_slice_dim];
    const Node *x = node->input[0];
    Expr *at[CB_MAX_RANK];
    Expr *start = lower_start(l, node->input[1], x->size[dim] - node->size[dim]);
    if (!start) return NULL;
    memcpy(at, position, sizeof *position * node->rank);
    at[dim] = index_add(l->kernel, position[dim], start);
    return lower_at(l, x, at, guard);
}

static Expr *lower_dynamic_slice_scatter(Lowering *l, const Node *node, Expr *const *position,
                                         Expr *guard) {
    int dim = (int)node->attrs->word[ATTR_dynamic_slice_scatter_dim];
    int64_t count = node->input[1]->size[dim];
    Expr *at[CB_MAX_RANK];
    Expr *start = lower_start(l, node->input[2], node->size[dim] - count);
    if (!start) return NULL;
    memcpy(at, position, sizeof *position * node->rank);
    at[dim] = index_add(l->kernel, position[dim], index_scale(l->kernel, start, -1));
    Expr *inside = within(l, at[dim], 0, count);
    Expr *from_source = lower_at(l, node->input[1], at, both(l, guard, inside));
    Expr *from_base = lower_at(l, node->input[0], position, guard);
    return select_of(l, inside, from_source, from_base);
}

/* gather: the index has the output's shape; index_select: it is a vector along dim. */
static Expr *lower_gather(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    bool vector = node->op == OP_index_select;
    int dim = (int)node->attrs->word[ATTR_along_dim];
    Expr *at[CB_MAX_RANK];
    Expr *chosen = lower_at(l, node->input[1], vector ? &position[dim] : position, guard);
    if (!chosen) return NULL;
    memcpy(at, position, sizeof *position * node->rank);
    at[dim] = expr_to(l->kernel, chosen, CB_I64);
    return lower_at(l, node->input[0], at, guard);
}

static Expr *lower_join(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    switch (node->op) {
    case OP_concat:
        return lower_concat(l, node, position, guard);
    case OP_pad:
        return lower_pad(l, node, position, guard);
    case OP_dynamic_slice:
        return lower_dynamic_slice(l, node, position, guard);
    case OP_dynamic_slice_scatter:
        return lower_dynamic_slice_scatter(l, node, position, guard);
    default:
        return lower_slice_scatter(l, node, position, guard);
    }
}

static Expr *lower_kind(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    if (node->op == OP_constant)
        return expr_constant(l->kernel, compute_dtype(node->dtype), node_constant(node));
    switch (op_info(node->op)->kind) {
    case KIND_POINTWISE:
        return lower_pointwise(l, node, position, guard);
    case KIND_VIEW:
        return lower_view(l, node, position, guard);
    case KIND_SOURCE:
        return lower_source(l, node, position);
    case KIND_RANDOM:
        return lower_random(l, node, position);
    case KIND_JOIN:
        return lower_join(l, node, position, guard);
    case KIND_GATHER:
        return lower_gather(l, node, position, guard);
    default:
        check(false, "%s is not expanded in place", op_info(node->op)->name);
    }
}

Expr *lower_expand(Lowering *l, const Node *node, Expr *const *position) {
    return lower_kind(l, node, position, NULL);
}

Expr *lower_at(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    if (l->is_leaf(l, node)) return l->leaf(l, node, position, guard);
    uint64_t hash = hash_mix(node->id, guard ? guard->id + 1 : 0);
    for (int i = 0; i < node->rank; i++) hash = hash_mix(hash, position[i]->id);
    for (MapEntry *e = map_first(&l->memo, hash); e; e = map_next(e)) {
        Memo *memo = e->value;
        size_t bytes = sizeof *position * node->rank;
        bool same = memo->node == node && memo->guard == guard;  /* untested: equal hashes */
        same = same && !memcmp(memo->position, position, bytes); /* untested: equal hashes */
        if (same) return memo->value;                            /* untested: equal hashes */
    }
    Expr *value = lower_kind(l, node, position, guard);
    Memo *memo = arena_zalloc(l->kernel->arena, sizeof *memo);
    *memo = (Memo){.node = node, .guard = guard, .value = value};
    memcpy(memo->position, position, sizeof *position * node->rank);
    map_put(&l->memo, hash, memo);
    return value;
}
