/* Nodes as loops: the elements of each kind of node, planned with fusion and run on the VM, against
 * numbers written down here. */
#include "graph/graph.h"
#include "inside.h"
#include "run/execute.h"

#include <math.h>
#include <string.h>

#include "fixture.h" /* last: its fail() is cmocka's */

enum { MOST = 64 };

/* The result of a graph of one output over x: f32[12] = -6, -5 ... 5, and n: f32[12], the same with
 * a NaN in place 3. */
static cb_tensor *result_of(const char *body, bool generate) {
    Arena *arena = arena_new();
    const char *text = arena_format(arena, "graph(x: f32[12], n: f32[12]) { %s\n return y }", body);
    Graph *graph = graph_parse(arena, text);
    if (!graph) fail_msg("%s\n%s", cb_error(), text);
    graph->device = device_default();
    graph_optimize(graph, NULL);
    Executable *executable = executable_new(
        plan_build(graph, arena, NULL, (PlanOptions){.fuse = true, .generate = generate}),
        (ExecutableOptions){.generate = generate});
    assert_non_null(executable);
    float value[12];
    for (int i = 0; i < 12; i++) value[i] = (float)(i - 6);
    cb_tensor *in[2] = {cb_from_data(value, CB_F32, cb_dims(12)), NULL}, *out[1];
    value[3] = NAN;
    in[1] = cb_from_data(value, CB_F32, cb_dims(12));
    if (!run_executable(executable, in, out)) fail_msg("%s\n%s", cb_error(), body);
    executable_free(executable);
    return out[0];
}

#define VALUES(...)                                                                                \
    (const double[]){__VA_ARGS__}, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))

/* Equal to the bit; a NaN is a NaN. */
static void expect_of(const char *body, bool generate, const double *wanted, int count) {
    double got[MOST];
    cb_tensor *y = result_of(body, generate);
    assert_int_equal(cb_numel(y), count);
    assert_int_equal(cb_read(y, got, CB_F64), CB_OK);
    for (int i = 0; i < count; i++)
        if (got[i] != wanted[i] && !(isnan(got[i]) && isnan(wanted[i])))
            fail_msg("element %d: %g, not %g\n%s", i, got[i], wanted[i], body);
}

static void expect(const char *body, const double *wanted, int count) {
    expect_of(body, false, wanted, count);
}

/* On the VM and as generated C. */
static void expect_twice(const char *body, const double *wanted, int count) {
    expect_of(body, false, wanted, count);
    expect_of(body, true, wanted, count);
}

static void parts_and_turns(void **state) {
    (void)state;
    expect("s = slice(x, dim=0, start=3, end=11, step=3)\n y = mul(s, 2.0)", VALUES(-6, 0, 6));
    expect("s = slice(x, dim=0, start=1, end=12, step=2)\n t = slice(s, dim=0, start=1, end=6, "
           "step=3)\n"
           " y = neg(t)",
           VALUES(3, -3));
    expect("r = reshape(x, sizes=[3, 4])\n f = flip(r, dims=[1])\n s = slice(f, dim=0, start=2)\n"
           " y = add(s, 1.0)",
           VALUES(6, 5, 4, 3));
    expect("w = window(x, dim=0, size=3, step=4, dilation=2)\n y = add(w, 0.5)",
           VALUES(-5.5, -3.5, -1.5, -1.5, 0.5, 2.5));
}

static void written_parts(void **state) {
    (void)state;
    expect("h = slice(x, dim=0, end=5)\n s = neg(h)\n"
           " y = slice_scatter(x, s, dim=0, start=1, end=11, step=2)",
           VALUES(-6, 6, -4, 5, -2, 4, 0, 3, 2, 2, 4, 5));
    expect("h = slice(x, dim=0, end=3)\n y = slice_scatter(x, h, dim=0, start=2, end=10, step=3)",
           VALUES(-6, -5, -6, -3, -2, -5, 0, 1, -4, 3, 4, 5));
}

/* The value of a pad is a number of x's dtype. */
static void padding(void **state) {
    (void)state;
    expect("s = slice(x, dim=0, end=2)\n y = pad(s, padding=[1, 2], value=0.1)",
           VALUES(0.1f, -6, -5, 0.1f, 0.1f));
    expect("s = slice(x, dim=0, end=2)\n h = to(s, dtype=bf16)\n"
           " p = pad(h, padding=[0, 1], value=0.1)\n y = to(p, dtype=f32)",
           VALUES(-6, -5, 0.10009765625));
    expect("s = slice(x, dim=0, end=1)\n i = to(s, dtype=i8)\n"
           " p = pad(i, padding=[1, 0], value=2.75)\n y = to(p, dtype=f32)",
           VALUES(2, -6));
    expect("r = reshape(x, sizes=[3, 4])\n y = pad(r, padding=[-1, -1, -2, 1], value=9.0)",
           VALUES(3, 4, 9, 9));
}

/* Two conversions are one only when the first loses nothing. */
static void conversions_that_lose(void **state) {
    (void)state;
    expect("s = slice(x, dim=0, start=1, end=2)\n m = mul(s, 53.0)\n h = to(m, dtype=f16)\n"
           " b = to(h, dtype=bf16)\n y = to(b, dtype=f32)",
           VALUES(-264)); /* of -265 */
    expect("s = slice(x, dim=0, end=2)\n m = mul(s, 0.5)\n h = to(m, dtype=f16)\n"
           " i = to(h, dtype=i64)\n y = to(i, dtype=f32)",
           VALUES(-3, -2));
    expect("s = slice(x, dim=0, start=7, end=8)\n m = mul(s, 65536.0)\n b = to(m, dtype=bf16)\n"
           " h = to(b, dtype=f16)\n y = to(h, dtype=f32)",
           VALUES(INFINITY));
    expect("s = slice(x, dim=0, end=1)\n i = to(s, dtype=i8)\n u = to(i, dtype=u8)\n"
           " y = to(u, dtype=i32)",
           VALUES(250));
}

static void folds_of_one_number(void **state) {
    (void)state;
    expect("f = full(sizes=[3], value=2.0)\n y = sum(f)", VALUES(6));
    expect("f = full(sizes=[3], value=2.0)\n y = prod(f)", VALUES(8));
}

/* Trees that have an op to themselves, and others that look like them. */
static void joined_trees(void **state) {
    (void)state;
    expect("s = slice(n, dim=0, end=6)\n m = maximum(s, -4.0)\n y = minimum(m, -3.0)",
           VALUES(-4, -4, -4, NAN, -3, -3));
    expect("s = slice(x, dim=0, end=3)\n m = maximum(s, nan)\n y = minimum(m, 2.0)",
           VALUES(NAN, NAN, NAN));
    expect("s = slice(x, dim=0, end=3)\n m = maximum(s, -5.0)\n y = minimum(m, nan)",
           VALUES(NAN, NAN, NAN));
    expect("s = slice(x, dim=0, start=2, end=5)\n t = slice(n, dim=0, start=2, end=5)\n"
           " m = maximum(s, t)\n y = minimum(m, 1.0)",
           VALUES(-4, NAN, -2));
    expect("s = slice(x, dim=0, start=2, end=5)\n t = slice(n, dim=0, start=2, end=5)\n"
           " m = maximum(s, -9.0)\n y = minimum(m, t)",
           VALUES(-4, NAN, -2));
    /* 6 / clamp(x + 3, 1, 4) is no hardsigmoid, whichever way its operands stand. */
    expect("s = slice(x, dim=0, start=4, end=7)\n a = add(s, 3.0)\n m = maximum(a, 0.0)\n"
           " c = minimum(m, 6.0)\n y = div(6.0, c)",
           VALUES(6, 3, 2));
    expect("s = slice(x, dim=0, start=4, end=8)\n c = gt(0.0, s)\n p = mul(s, 8.0)\n"
           " y = where(c, s, p)",
           VALUES(-2, -1, 0, 8));
    expect("s = slice(x, dim=0, start=4, end=8)\n c = gt(s, 0.0)\n t = flip(s, dims=[0])\n"
           " p = mul(t, 8.0)\n y = where(c, s, p)",
           VALUES(8, 0, -8, 1));
}

/* What a negative number divides is no position of the normal form, but may be part of one. */
static void positions_of_odd_divisions(void **state) {
    (void)state;
    expect_twice("i = arange(0, 4, 1, i64)\n j = add(remainder(i, -3), 2)\n"
                 " y = index_select(x, 0, j)",
                 VALUES(-4, -6, -5, -4));
    expect_twice("i = arange(0, 4, 1, i64)\n j = add(mul(remainder(i, -3), 3), 6)\n"
                 " k = add(j, floor_divide(i, -3))\n y = index_select(mul(x, 2.0), 0, add(k, 2))",
                 VALUES(4, -10, -4, 2));
    expect_twice("r = reshape(x, sizes=[3, 4])\n i = arange(0, 3, 1, i64)\n"
                 " y = index_select(r, 0, add(remainder(i, -2), 1))",
                 VALUES(-2, -1, 0, 1, -6, -5, -4, -3, -2, -1, 0, 1));
    /* An axis is not cut by what is no number of the kernel. */
    expect_twice("m = to(abs(x), i64)\n i = arange(0, 12, 1, i64)\n"
                 " y = where(lt(x, 0), x, to(add(remainder(i, m), floor_divide(i, -4)), f32))",
                 VALUES(-6, -5, -4, -3, -2, -1, -2, -2, -2, -3, -1, -2));
}

static void drawn_integers(void **state) {
    (void)state;
    cb_tensor *y = result_of("y = randint(low=-7, high=-4, sizes=[60])", false);
    assert_true(cb_item(cb_amin(y, CB_ALL, false)) == -7);
    assert_true(cb_item(cb_amax(y, CB_ALL, false)) == -5);
    y = result_of(
        "a = randint(low=0, high=1000, sizes=[60])\n b = randint(low=0, high=1000, sizes=[60])\n"
        " y = sub(a, b)",
        false);
    assert_true(cb_item(cb_amax(cb_abs(y), CB_ALL, false)) > 0); /* each draw has its numbers */
}

enum { DRAWS = 4096 };

static int wide_draws(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    const int64_t *bound = user;
    (void)x, (void)count;
    *output = cb_randint(bound[0], bound[1], cb_dims(DRAWS));
    return 1;
}

static void expect_same_draws(int64_t *bound, const char *options, const int64_t *wanted) {
    int64_t got[DRAWS];
    cb_tensor *y;
    cb_function *f = cb_compile_n(wide_draws, bound, options);
    cb_manual_seed(7);
    assert_int_equal(cb_call_n(f, NULL, 0, &y, 1), 1);
    assert_int_equal(cb_read(y, got, CB_I64), CB_OK);
    assert_memory_equal(got, wanted, sizeof got);
    cb_function_free(f);
}

/* Ranges of 2^63 numbers and more, whose width is no int64_t: every part of them is drawn. */
static void drawn_integers_of_wide_ranges(void **state) {
    static int64_t bounds[][2] = {
        {INT64_MIN, INT64_MAX}, {INT64_MIN, 0}, {INT64_MIN, 1}, {-5, INT64_MAX}, {0, INT64_MAX}};
    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        int64_t low = bounds[i][0], high = bounds[i][1], drawn[DRAWS];
        uint64_t width = (uint64_t)high - (uint64_t)low;
        cb_manual_seed(7);
        assert_int_equal(cb_read(cb_randint(low, high, cb_dims(DRAWS)), drawn, CB_I64), CB_OK);
        int eighth[8] = {0}, odd = 0;
        for (int j = 0; j < DRAWS; j++) {
            assert_true(drawn[j] >= low && drawn[j] < high);
            eighth[((uint64_t)drawn[j] - (uint64_t)low) / (width / 8 + 1)]++;
            odd += (int)(drawn[j] & 1);
        }
        for (int part = 0; part < 8; part++) assert_in_range(eighth[part], 400, 640);
        assert_in_range(odd, 1900, 2200);
        expect_same_draws(bounds[i], "backend=vm", drawn);
        expect_same_draws(bounds[i], "backend=c", drawn);
    }
}

/* In f64 a loop hands its vector to a function where each lane takes its own branch. */
static void angles_near_and_far(void **state) {
    (void)state;
    expect_twice("c = where(lt(x, 0), 1e22, to(x, f64))\n"
                 " y = round(mul(sin(c), 1000.0))",
                 VALUES(-852, -852, -852, -852, -852, -852, 0, 841, 909, 141, -757, -959));
}

/* 1 + 2^-8 is halfway between two numbers of bf16 and goes to the even one, 1. */
static void precise_rounds_every_op(void **state) {
    (void)state;
    const char *body = "s = slice(x, dim=0, start=7, end=8)\n h = to(s, dtype=bf16)\n"
                       " a = add(h, 0.00390625)\n y = sub(a, 1.0)";
    expect(body, VALUES(0.00390625));
    assert_int_equal(cb_set_option("precise", "1"), CB_OK);
    expect(body, VALUES(0));
    assert_int_equal(cb_set_option("precise", "0"), CB_OK);
}

int main(void) {
#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope_without_error)
    const struct CMUnitTest tests[] = {
        ONE(parts_and_turns),
        ONE(written_parts),
        ONE(padding),
        ONE(conversions_that_lose),
        ONE(folds_of_one_number),
        ONE(joined_trees),
        ONE(drawn_integers),
        ONE(drawn_integers_of_wide_ranges),
        ONE(precise_rounds_every_op),
        ONE(angles_near_and_far),
        ONE(positions_of_odd_divisions),
    };
    return cmocka_run_group_tests_name("lowering", tests, NULL, clean_up);
}
