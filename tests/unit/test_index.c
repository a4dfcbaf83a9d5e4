/* Index arithmetic: every simplification keeps the value, on all points of small boxes and at
 * random points of large ones; positions that are equal become one pointer. */
#include "test_support.h"

#include "lower/index.h"

#include <stdlib.h>

enum { AXES = 3, TREES = 20000 };

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

static int64_t evaluate(const Expr *e, const int64_t *axis) {
    if (e->op == OP_constant) return e->imm.i;
    if (e->op == OP_lt) return evaluate(e->input[0], axis) < e->input[1]->imm.i;
    if (e->op == OP_ge) return evaluate(e->input[0], axis) >= e->input[1]->imm.i;
    if (e->op == EX_axis) return axis[e->imm.i];
    int64_t a = evaluate(e->input[0], axis), b = evaluate(e->input[1], axis);
    if (e->op == OP_add) return a + b;
    if (e->op == OP_mul) return a * b;
    int64_t q = floor_divide(a, b);
    return e->op == OP_floor_divide ? q : a - q * b;
}

/* A random tree of index operations, and its value at one point without any simplification. */
typedef struct IndexTree {
    Expr *expr;
    int op; /* 0 axis, 1 constant, 2 add, 3 scale, 4 divide, 5 remainder */
    int64_t number;
    struct IndexTree *left, *right;
} IndexTree;

static int64_t direct(const IndexTree *t, const int64_t *axis) {
    switch (t->op) {
    case 0:
        return axis[t->number];
    case 1:
        return t->number;
    case 2:
        return direct(t->left, axis) + direct(t->right, axis);
    case 3:
        return direct(t->left, axis) * t->number;
    case 4:
        return floor_divide(direct(t->left, axis), t->number);
    default: {
        int64_t a = direct(t->left, axis);
        return a - floor_divide(a, t->number) * t->number;
    }
    }
}

/* Constants and scales may be negative, as those of flips, pads and concatenations are. */
static IndexTree *grow(Kernel *k, int depth, int64_t largest) {
    IndexTree *t = arena_zalloc(k->arena, sizeof *t);
    t->op = depth == 0 ? rand() % 2 : 2 + rand() % 4;
    t->number = t->op == 0 ? rand() % AXES : 1 + rand() % largest;
    if ((t->op == 1 || t->op == 3) && rand() % 3 == 0) t->number = -t->number;
    if (t->op > 1) t->left = grow(k, depth - 1, largest);
    if (t->op == 2) t->right = grow(k, depth - 1, largest);
    switch (t->op) {
    case 0:
        t->expr = expr_axis(k, (int)t->number);
        break;
    case 1:
        t->expr = expr_int(k, t->number);
        break;
    case 2:
        t->expr = index_add(k, t->left->expr, t->right->expr);
        break;
    case 3:
        t->expr = index_scale(k, t->left->expr, t->number);
        break;
    case 4:
        t->expr = index_divide(k, t->left->expr, t->number);
        break;
    default:
        t->expr = index_remainder(k, t->left->expr, t->number);
        break;
    }
    return t;
}

static void check_tree(const IndexTree *t, const int64_t *axis) {
    int64_t want = direct(t, axis), got = evaluate(t->expr, axis);
    if (want != got)
        print_error("axes %lld %lld %lld: %lld instead of %lld\n", (long long)axis[0],
                    (long long)axis[1], (long long)axis[2], (long long)got, (long long)want);
    assert_int_equal(got, want);
    assert_true(t->expr->low <= got && got <= t->expr->high);
}

static void check_comparisons(Kernel *k, const IndexTree *t, const int64_t *axis) {
    int64_t number = rand() % 25 - 8, at = direct(t, axis);
    assert_int_equal(evaluate(index_compare(k, OP_lt, t->expr, number), axis), at < number);
    assert_int_equal(evaluate(index_compare(k, OP_ge, t->expr, number), axis), at >= number);
}

static void small_boxes_exhaustively(void **state) {
    (void)state;
    srand(7);
    for (int round = 0; round < TREES / 100; round++) {
        Arena *arena = arena_new();
        Kernel *k = kernel_new(arena);
        int64_t size[AXES], axis[AXES];
        for (int i = 0; i < AXES; i++) kernel_axis(k, size[i] = 1 + rand() % 7, false);
        for (int n = 0; n < 100; n++) {
            IndexTree *t = grow(k, 1 + rand() % 4, 12);
            for (int i = 0; i < AXES; i++) axis[i] = rand() % size[i];
            check_comparisons(k, t, axis);
            for (axis[0] = 0; axis[0] < size[0]; axis[0]++)
                for (axis[1] = 0; axis[1] < size[1]; axis[1]++)
                    for (axis[2] = 0; axis[2] < size[2]; axis[2]++) check_tree(t, axis);
        }
        arena_free(arena);
    }
}

static void large_boxes_at_random(void **state) {
    (void)state;
    srand(11);
    Arena *arena = arena_new();
    Kernel *k = kernel_new(arena);
    int64_t size[AXES] = {70000, 1024, 9973}, axis[AXES];
    for (int i = 0; i < AXES; i++) kernel_axis(k, size[i], false);
    for (int n = 0; n < TREES; n++) {
        IndexTree *t = grow(k, 1 + rand() % 4, 5000);
        for (int point = 0; point < 20; point++) {
            for (int i = 0; i < AXES; i++) axis[i] = rand() % size[i];
            check_tree(t, axis);
        }
    }
    arena_free(arena);
}

/* flatten over one shape, unflatten over another that divides it, flatten again: the same
 * pointer. */
static void reshapes_disappear(void **state) {
    (void)state;
    Arena *arena = arena_new();
    Kernel *k = kernel_new(arena);
    int64_t domain[3] = {8, 12, 64};
    int64_t shape[5][4] = {{96, 64}, {8, 768}, {8, 12, 4, 16}, {2, 4, 12, 64}, {6144}};
    int rank[5] = {2, 2, 4, 4, 1};
    Expr *axis[3], *position[4];
    for (int i = 0; i < 3; i++) axis[i] = expr_axis(k, kernel_axis(k, domain[i], false));
    Expr *flat = index_flatten(k, 3, domain, axis);
    for (int i = 0; i < 5; i++) {
        index_unflatten(k, rank[i], shape[i], flat, position);
        assert_ptr_equal(index_flatten(k, rank[i], shape[i], position), flat);
    }
    index_unflatten(k, 3, domain, flat, position);
    for (int i = 0; i < 3; i++) assert_ptr_equal(position[i], axis[i]);
    arena_free(arena);
}

/* A part of a flat axis (a row of it, backwards, moved, all of that once more) by the dims that it
 * was made of: the same pointer. */
static void merged_dims_disappear(void **state) {
    (void)state;
    Arena *arena = arena_new();
    Kernel *k = kernel_new(arena);
    Expr *flat = expr_axis(k, kernel_axis(k, 6144, false)), *row[5], *position[3];
    row[0] = index_remainder(k, flat, 768);
    row[1] = index_offset(k, index_scale(k, row[0], -1), 767);
    row[2] = index_offset(k, row[0], -5);
    row[3] = index_remainder(k, index_offset(k, flat, 1), 768);
    row[4] = index_offset(k, index_scale(k, row[3], -1), 700);
    int64_t shape[3][3] = {{12, 8, 8}, {2, 6, 64}, {256, 3, 1}};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++) {
            index_unflatten(k, 3, shape[j], row[i], position);
            assert_ptr_equal(index_flatten(k, 3, shape[j], position), row[i]);
        }
    Expr *part = index_divide(k, flat, 8), *other = index_divide(k, index_offset(k, flat, 1), 8);
    assert_ptr_equal(index_divide(k, row[0], 8), index_remainder(k, part, 96));
    Expr *mixed = index_add(k, index_remainder(k, flat, 8), index_scale(k, other, 8));
    assert_int_equal(evaluate(mixed, (int64_t[]){7}), 15);
    arena_free(arena);
}

/* Of one coordinate or value comparisons are said, whatever was made of it. */
static void comparisons(void **state) {
    (void)state;
    Arena *arena = arena_new();
    Kernel *k = kernel_new(arena);
    Expr *a = expr_axis(k, kernel_axis(k, 100, false)),
         *b = expr_axis(k, kernel_axis(k, 100, false));
    Expr *third = index_offset(k, index_scale(k, index_divide(k, a, 3), 2), -1);
    Expr *back = index_offset(k, index_scale(k, third, -1), 40), *both = index_add(k, third, b);
    Expr *below[2] = {a, expr_int(k, 9)}, *apart[2] = {both, below[1]};
    Expr *is_below = expr_op(k, OP_lt, CB_BOOL, below, 2);
    assert_ptr_equal(index_compare(k, OP_lt, third, 4), is_below);
    assert_ptr_equal(index_compare(k, OP_lt, third, 5), is_below);
    assert_ptr_equal(index_compare(k, OP_ge, back, 36), is_below);
    assert_ptr_equal(index_compare(k, OP_lt, back, 36), expr_op(k, OP_ge, CB_BOOL, below, 2));
    assert_ptr_equal(index_compare(k, OP_lt, both, 9), expr_op(k, OP_lt, CB_BOOL, apart, 2));
    assert_int_equal(index_compare(k, OP_lt, third, 66)->op, OP_constant);
    arena_free(arena);
}

static void affine_parts(void **state) {
    (void)state;
    Arena *arena = arena_new();
    Kernel *k = kernel_new(arena);
    Expr *a = expr_axis(k, kernel_axis(k, 10, false)), *b = expr_axis(k, kernel_axis(k, 10, true));
    Expr *index = index_offset(k, index_add(k, index_scale(k, a, 30), index_scale(k, b, 3)), 5),
         *rest;
    int64_t stride[2];
    assert_true(index_affine(k, index, stride, &rest));
    assert_int_equal(stride[0], 30);
    assert_int_equal(stride[1], 3);
    assert_int_equal(rest->imm.i, 5);
    Expr *bent = index_add(k, index, index_divide(k, b, 2));
    assert_false(index_affine(k, bent, stride, &rest));
    assert_true(index_linear(k, bent, 0, stride, &rest));
    assert_int_equal(stride[0], 30);
    assert_false(index_linear(k, bent, 1, stride, &rest));
    arena_free(arena);
}

/* What is told of an index by conditions on its remainders. */
static void test_where(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Kernel *k = kernel_new(arena);
    for (int i = 0; i < 2; i++) kernel_axis(k, 10, false);
    Expr *a = index_offset(k, expr_axis(k, 0), 1), *b = expr_axis(k, 1), *zero = expr_int(k, 0);
    Expr *even[2] = {index_remainder(k, a, 2), zero}, *third[2] = {index_remainder(k, b, 3), zero};
    Expr *odd[2] = {even[0], expr_int(k, 1)};
    Expr *both[2] = {expr_op(k, OP_eq, CB_BOOL, even, 2), expr_op(k, OP_eq, CB_BOOL, third, 2)};
    Expr *all = expr_op(k, OP_logical_and, CB_BOOL, both, 2);
    Expr *by2 = index_scale(k, index_divide(k, a, 2), 2);
    Expr *by3 = index_scale(k, index_divide(k, b, 3), 3);
    Expr *sum = index_add(k, by2, by3);
    assert_ptr_equal(index_where(k, by2, both[0]), a);
    assert_ptr_equal(index_where(k, by2, both[1]), by2);
    assert_ptr_equal(index_where(k, by2, expr_op(k, OP_eq, CB_BOOL, odd, 2)), by2);
    assert_ptr_equal(index_where(k, sum, all), index_add(k, a, b));
    assert_ptr_equal(index_where(k, index_divide(k, a, 2), all), index_divide(k, a, 2));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(small_boxes_exhaustively),
                                       cmocka_unit_test(large_boxes_at_random),
                                       cmocka_unit_test(reshapes_disappear),
                                       cmocka_unit_test(merged_dims_disappear),
                                       cmocka_unit_test(comparisons),
                                       cmocka_unit_test(test_where),
                                       cmocka_unit_test(affine_parts)};
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
