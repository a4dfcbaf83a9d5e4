/* Executables on both engines: outputs, strided and mutated inputs, aliases, checks, matmuls,
 * sorts, splits. */
#include "executable_of.h"

#include "base/option.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(cb_tensor *x, int count, const double *expected) {
    double got[64];
    assert_non_null(x);
    assert_int_equal(cb_numel(x), count);
    assert_int_equal(cb_read(x, got, CB_F64), CB_OK);
    for (int i = 0; i < count; i++) expect_near(got[i], expected[i], 1e-5);
}

static void two_outputs_of_one_kernel(void **state) {
    Executable *e =
        executable_of(state,
                      "graph(x: f32[4], y: f32[4]) {\n  s = add(x, y)\n  p = mul(x, y)\n"
                      "  return s, p\n}",
                      NULL);
    cb_tensor *in[] = {ramp(cb_dims(4), 1, 1), ramp(cb_dims(4), 0, 2)}, *out[2];
    assert_true(run_executable(e, in, out));
    expect(out[0], 4, (double[]){1, 4, 7, 10});
    expect(out[1], 4, (double[]){0, 4, 12, 24});
    executable_free(e);
}

static void the_same_output_twice_and_reshaped(void **state) {
    Executable *e = executable_of(state,
                                  "graph(x: f32[2, 3]) {\n  s = add(x, 1.0)\n"
                                  "  r = reshape(s, sizes=[3, 2])\n  return s, s, r\n}",
                                  NULL);
    cb_tensor *in[] = {ramp(cb_dims(2, 3), 0, 1)}, *out[3];
    assert_true(run_executable(e, in, out));
    expect(out[1], 6, (double[]){1, 2, 3, 4, 5, 6});
    expect(out[2], 6, (double[]){1, 2, 3, 4, 5, 6});
    assert_int_equal(cb_size(out[2], 0), 3);
    assert_int_equal(cb_stride(out[2], 0), 2);
    executable_free(e);
}

static void an_output_that_is_an_input(void **state) {
    Executable *e =
        executable_of(state, "graph(x: f32[3]) {\n  s = neg(x)\n  return x, s\n}", NULL);
    cb_tensor *in[] = {ramp(cb_dims(3), 1, 1)}, *out[2];
    assert_true(run_executable(e, in, out));
    assert_true(cb_shares_storage(out[0], in[0]));
    expect(out[1], 3, (double[]){-1, -2, -3});
    executable_free(e);
}

static void strides_of_an_input_are_baked_in(void **state) {
    const int64_t stride[] = {1, 2};
    Executable *e =
        executable_of(state, "graph(x: f32[2, 3]) {\n  s = mul(x, 2.0)\n  return s\n}", stride);
    cb_tensor *base = ramp(cb_dims(3, 2), 0, 1), *in[] = {cb_t(base)}, *out[1];
    assert_true(run_executable(e, in, out));
    expect(out[0], 6, (double[]){0, 4, 8, 2, 6, 10});
    executable_free(e);
}

static void a_reshaped_strided_input_is_copied(void **state) {
    const int64_t stride[] = {1, 2};
    Executable *e = executable_of(
        state, "graph(x: f32[2, 3]) {\n  r = reshape(x, sizes=[6])\n  return r\n}", stride);
    cb_tensor *base = ramp(cb_dims(3, 2), 0, 1), *in[] = {cb_t(base)}, *out[1];
    assert_true(run_executable(e, in, out));
    expect(out[0], 6, (double[]){0, 2, 4, 1, 3, 5});
    assert_int_equal(cb_stride(out[0], 0), 1);
    assert_false(cb_shares_storage(out[0], base));
    executable_free(e);
}

/* ---- mutation ---- */

static void an_input_is_updated_in_place(void **state) {
    Executable *e =
        executable_of(state,
                      "graph(w: f32[4], g: f32[4]) {\n  d = mul(g, 0.5)\n  n = sub(w, d)\n"
                      "  mutate w = n\n  return\n}",
                      NULL);
    cb_tensor *in[] = {ramp(cb_dims(4), 1, 1), ramp(cb_dims(4), 0, 2)};
    void *data = cb_data(in[0]);
    assert_true(run_executable(e, in, NULL));
    assert_ptr_equal(cb_data(in[0]), data);
    expect(in[0], 4, (double[]){1, 1, 1, 1});
    /* Inputs of one storage: the value is computed aside. */
    cb_tensor *both[] = {in[1], in[1]};
    assert_true(run_executable(e, both, NULL));
    expect(in[1], 4, (double[]){0, 1, 2, 3});
    executable_free(e);
}

/* Rows 2 and 3 from there on, and where that is outside the first or the last ones: read by a
 * kernel and by a product, written, and read behind the write. */
static void parts_begin_where_an_input_says(void **state) {
    Executable *e =
        executable_of(state,
                      "graph(x: f32[6, 2], y: f32[2, 2], eye: f32[2, 2], at: i64[]) {\n"
                      "  part = dynamic_slice(x, at, 0, 2)\n"
                      "  written = dynamic_slice_scatter(x, mul(y, 10.0), at, 0)\n"
                      "  mutate x = written\n"
                      "  return neg(part), matmul(part, eye), dynamic_slice(written, 1, 0, 2)\n}",
                      NULL);
    static const int64_t starts[] = {0, 3, 4, 5, 100, INT64_MAX, -1, INT64_MIN};
    for (size_t k = 0; k < sizeof starts / sizeof *starts; k++) {
        const float square[] = {1, 0, 0, 1};
        int64_t at = starts[k];
        cb_tensor *in[] = {ramp(cb_dims(6, 2), 0, 1), ramp(cb_dims(2, 2), 1, 1),
                           cb_from_data(square, CB_F32, cb_dims(2, 2)),
                           cb_from_data(&at, CB_I64, cb_dims())};
        cb_tensor *out[3];
        assert_true(run_executable(e, in, out));
        int64_t row = at < 0 ? 0 : at > 4 ? 4 : at;
        double first = 2 * (double)row, after[12];
        for (int i = 0; i < 12; i++) after[i] = i;
        for (int i = 0; i < 4; i++) after[2 * row + i] = 10 * (i + 1);
        expect(out[0], 4, (double[]){-first, -first - 1, -first - 2, -first - 3});
        expect(out[1], 4, (double[]){first, first + 1, first + 2, first + 3});
        expect(out[2], 4, after + 2);
        expect(in[0], 12, after);
    }
    executable_free(e);
}

static void a_mutated_input_may_be_strided(void **state) {
    const int64_t stride[] = {1, 2};
    Executable *e = executable_of(
        state, "graph(w: f32[2, 3]) {\n  n = add(w, 1.0)\n  mutate w = n\n  return n\n}", stride);
    cb_tensor *base = ramp(cb_dims(3, 2), 0, 1), *in[] = {cb_t(base)}, *out[1];
    assert_true(run_executable(e, in, out));
    expect(base, 6, (double[]){1, 2, 3, 4, 5, 6});
    expect(out[0], 6, (double[]){1, 3, 5, 2, 4, 6});
    executable_free(e);
}

static void neighbours_are_read_before_they_change(void **state) {
    Executable *e = executable_of(state,
                                  "graph(x: f32[4]) {\n  f = flip(x, dims=[0])\n  n = add(x, f)\n"
                                  "  mutate x = n\n  return\n}",
                                  NULL);
    cb_tensor *in[] = {cb_from_data(((float[]){1, 10, 100, 1000}), CB_F32, cb_dims(4))};
    assert_true(run_executable(e, in, NULL));
    expect(in[0], 4, (double[]){1001, 110, 110, 1001});
    executable_free(e);
}

static void inputs_may_change_places(void **state) {
    Executable *e = executable_of(state,
                                  "graph(x: f32[2], y: f32[2]) {\n  mutate x = y\n  mutate y = x\n"
                                  "  return x\n}",
                                  NULL);
    cb_tensor *in[] = {ramp(cb_dims(2), 1, 1), ramp(cb_dims(2), 5, 1)}, *out[1];
    assert_true(run_executable(e, in, out));
    expect(in[0], 2, (double[]){5, 6});
    expect(in[1], 2, (double[]){1, 2});
    expect(out[0], 2, (double[]){1, 2}); /* the value from before */
    executable_free(e);
}

static void an_old_value_is_used_after_the_new_one(void **state) {
    Executable *e = executable_of(state,
                                  "graph(x: f32[300]) {\n  n = mul(x, 2.0)\n  s = sum(n, dim=[0])\n"
                                  "  y = mul(x, s)\n  mutate x = n\n  return y\n}",
                                  NULL);
    cb_tensor *in[] = {ramp(cb_dims(300), 1, 0)}, *out[1];
    assert_true(run_executable(e, in, out));
    expect_near(cb_item(cb_amax(out[0], CB_ALL, false)), 600, 1e-3);
    expect_near(cb_item(cb_amin(in[0], CB_ALL, false)), 2, 1e-6);
    executable_free(e);
}

typedef struct Update {
    const char *inputs, *body; /* of a graph that ends in the new value n of w */
    const char *results;       /* returned besides */
} Update;

static const Update updates[] = {
    {"w: f32[8, 8]", "n = mul(w, 2.0)", ""},
    {"w: f32[8, 8]", "m = mean(w, dim=[1], keepdim=true)\n  n = sub(w, m)", ""},
    {"w: f32[8, 8]", "m = sum(w)\n  n = mul(w, m)", ""},
    {"w: f32[8, 8]", "n = cumsum(w, dim=1)", ""},
    {"w: f32[8, 8]", "n = matmul(w, w)", ""},
    {"w: f32[8, 8]", "m = matmul(w, w)\n  n = add(m, w)", ""},
    {"w: f32[8, 8]", "m = matmul(w, w)\n  n = add(w, 1.0)", ", m"},
    {"w: f32[8, 8]", "i = argsort(w)\n  j = to(i, dtype=f32)\n  n = add(w, j)", ""},
    {"w: f32[8, 8]", "i = argsort(w)\n  n = mul(w, 2.0)", ", i"},
    {"w: f32[8, 8]",
     "a = slice(w, dim=0, start=3)\n  b = slice(w, dim=0, end=3)\n"
     "  n = concat(a, b)",
     ""},
    {"w: f32[8, 8]", "f = flip(w, dims=[0])\n  n = mul(w, 2.0)\n  m = add(f, 1.0)", ", m"},
    {"w: f32[8, 8]", "n = mul(w, 2.0)\n  m = add(n, 1.0)", ", m"},
    {"w: f32[8, 8]", "n = mul(w, 2.0)", ", n"},
    {"w: f32[8, 8]", "n = mul(w, 2.0)\n  m = sum(n, dim=[0])", ", m"},
    {"w: f32[8, 8]", "n = permute(w, dims=[1, 0])", ""},
    {"w: f32[8, 8], i: i64[8, 8]", "n = scatter_add(w, dim=0, index=i, src=w)", ""},
    {"w: f32[8, 8], i: i64[8, 8]", "m = mul(w, 2.0)\n  n = scatter(m, dim=1, index=i, src=w)", ""},
    {"w: f32[8, 8], i: i64[8, 8]", "m = gather(w, dim=0, index=i)\n  n = add(w, m)", ""},
    {"w: f32[1], i: i64[8, 8], x: f32[300000]", "m = sum(x, dim=[0])\n  n = add(w, m)", ""},
    {"w: f32[1], i: i64[8, 8], x: f32[300000]", "m = sum(x)\n  n = reshape(m, sizes=[1])", ""},
};

/* How many inputs took copies. */
static int run_update(void **state, const Update *u, bool mutates, cb_tensor *const *in,
                      cb_tensor **out) {
    int64_t bytes;
    char text[400];
    snprintf(text, sizeof text,
             mutates ? "graph(%s) {\n  %s\n  mutate w = n\n  return%s\n}"
                     : "graph(%s) {\n  %s\n  return n%s\n}",
             u->inputs, u->body, u->results + (mutates && *u->results));
    Executable *e = executable_of(state, text, NULL);
    assert_true(run_executable(e, in, out));
    int copies = executable_copies(e, &bytes);
    assert_int_equal(executable_moves(e), executable_plan(e)->bytes + bytes);
    executable_free(e);
    return copies;
}

/* In place or aside: the new value is the one that the same graph returns, and what else it returns
 * comes from the old one. */
static void updates_are_as_if_computed_aside(void **state) {
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
        const Update *u = &updates[i];
        bool is_vector = strncmp(u->inputs, "w: f32[1]", 9) == 0;
        cb_tensor *w = ramp(is_vector ? cb_dims(1) : cb_dims(8, 8), -3, 0.125f);
        cb_tensor *index = cb_remainder(cb_mul(cb_reshape(cb_arange(0, 64), cb_dims(8, 8)), 5), 8);
        cb_tensor *in[] = {w, cb_contiguous(index), ramp(cb_dims(300000), 0, 1e-3f)};
        cb_tensor *wanted[2] = {NULL}, *got[1] = {NULL};
        run_update(state, u, false, in, wanted);
        run_update(state, u, true, in, got);
        if (cb_item(cb_all(cb_eq(w, wanted[0]))) != 1) FAIL("%s: another value", u->body);
        if (*u->results && cb_item(cb_all(cb_eq(got[0], wanted[1]))) != 1)
            FAIL("%s: another result", u->body);
    }
}

typedef struct FoldedUpdate {
    Update update;
    int copies;
} FoldedUpdate;

static const FoldedUpdate folded[] = {
    {{"", "n = mul(w, 2.0)\n  m = sum(n)", ", m"}, 0},
    {{"", "n = mul(w, 2.0)\n  m = amax(n, dim=[1])", ", m"}, 0},
    {{"", "n = mul(w, 2.0)\n  m = sum(w)", ", m"}, 0},
    {{"", "m = mean(w, dim=[1], keepdim=true)\n  n = sub(w, m)", ""}, 0},
    {{"", "n = softmax(w, dim=1)", ""}, 0},
    {{"", "s = mean(w, dim=[1], keepdim=true)\n  n = sub(w, s)\n  m = mul(w, 2.0)", ", m"}, 0},
    {{"", "s = amax(w, dim=[1], keepdim=true)\n  m = sub(w, s)\n  n = exp(m)", ", m"}, 0},
    {{"", "n = mul(w, 2.0)\n  s = sum(n, dim=[1], keepdim=true)\n  m = sub(w, s)", ", m"}, 1},
    {{"",
      "n = mul(w, 2.0)\n  s = sum(w, dim=[1], keepdim=true)\n  m = amax(abs(sub(w, s)), dim=[1])",
      ", m"},
     1},
    {{"", "n = mul(w, 2.0)\n  f = flip(w, dims=[1])\n  m = sum(mul(f, n), dim=[1])", ", m"}, 1},
};

/* In rows, and in one row that is cut, by the VM and by generated code. */
static void folds_beside_an_update(void **state) {
    static const char *const inputs[] = {"w: f32[64, 40]", "w: f32[1, 20000]"};
    for (size_t i = 0; i < 2 * sizeof folded / sizeof *folded; i++) {
        Update u = folded[i / 2].update;
        u.inputs = inputs[i % 2];
        cb_tensor *w = ramp(i % 2 ? cb_dims(1, 20000) : cb_dims(64, 40), -3, 0.0625f);
        cb_tensor *wanted[2] = {NULL}, *got[1] = {NULL};
        cb_tensor *in[] = {w};
        run_update(state, &u, false, in, wanted);
        int copies = run_update(state, &u, true, in, got);
        if (copies != folded[i / 2].copies) FAIL("%s: %d copies", u.body, copies);
        if (cb_item(cb_all(cb_eq(w, wanted[0]))) != 1) FAIL("%s: another value", u.body);
        if (*u.results && cb_item(cb_all(cb_eq(got[0], wanted[1]))) != 1)
            FAIL("%s: another result", u.body);
    }
}

/* ---- steps of every kind ---- */

static void a_product_with_its_epilogue(void **state) {
    Executable *e =
        executable_of(state,
                      "graph(x: f32[2, 3], w: f32[3, 2], b: f32[2]) {\n  m = matmul(x, w)\n"
                      "  a = add(m, b)\n  r = relu(a)\n  return r\n}",
                      NULL);
    cb_tensor *in[] = {ramp(cb_dims(2, 3), 0, 1), ramp(cb_dims(3, 2), 0, 1),
                       ramp(cb_dims(2), -20, -20)};
    cb_tensor *out[1];
    assert_true(run_executable(e, in, out));
    expect(out[0], 4, (double[]){0, 0, 8, 0});
    executable_free(e);
}

static void sorted_rows(void **state) {
    Executable *e = executable_of(
        state, "graph(x: f32[2, 3]) {\n  y = neg(x)\n  i = argsort(y)\n  return i\n}", NULL);
    cb_tensor *in[] = {cb_from_data(((float[]){3, 1, 2, 5, 6, 4}), CB_F32, cb_dims(2, 3))}, *out[1];
    assert_true(run_executable(e, in, out));
    expect(out[0], 6, (double[]){0, 2, 1, 1, 0, 2});
    executable_free(e);
}

static void an_index_outside_is_an_error(void **state) {
    Executable *e =
        executable_of(state,
                      "graph(x: f32[4], i: i64[2], w: f32[2]) {\n"
                      "  g = index_select(x, dim=0, index=i)\n  mutate w = g\n  return g\n}",
                      NULL);
    int64_t index[] = {3, 1};
    cb_tensor *i = cb_from_data(index, CB_I64, cb_dims(2)), *w = ramp(cb_dims(2), 7, 0);
    cb_tensor *in[] = {ramp(cb_dims(4), 0, 1), i, w}, *out[1];
    assert_true(run_executable(e, in, out));
    expect(out[0], 2, (double[]){3, 1});
    ((int64_t *)cb_data(i))[1] = 4;
    assert_false(run_executable(e, in, out));
    assert_int_equal(cb_error_status(), CB_ERR_INDEX);
    assert_non_null(strstr(cb_error(), "index_select: index 4 is out of range for size 4"));
    cb_clear_error();
    assert_null(out[0]);
    expect(w, 2, (double[]){3, 1}); /* as the run before left it */
    ((int64_t *)cb_data(i))[1] = -1;
    assert_false(run_executable(e, in, out));
    cb_clear_error();
    executable_free(e);
}

/* The node that is checked knows whose it is, through all passes. */
static void an_index_inside_of_a_composite(void **state) {
    Executable *e = executable_of(state,
                                  "graph(i: i64[2]) {\n  y = one_hot(i, 4)\n"
                                  "  z = mul(y, 2)\n  return z\n}",
                                  NULL);
    cb_tensor *in[] = {cb_full(cb_dims(2), 4, CB_I64)}, *out[1];
    assert_false(run_executable(e, in, out));
    assert_string_equal(cb_error(), "graph text:2: one_hot: index 4 is out of range for size 4, "
                                    "in one_hot(i64[2])");
    cb_clear_error();
    executable_free(e);
}

static double sum_with(const Executable *e, cb_tensor *x, int threads) {
    cb_tensor *out[2];
    cb_set_threads(threads);
    assert_true(run_executable(e, &x, out));
    cb_set_threads(0);
    return cb_item(out[0]) + cb_item(out[1]);
}

static void long_sums_do_not_depend_on_threads(void **state) {
    Executable *e =
        executable_of(state,
                      "graph(x: f32[300000]) {\n  s = sum(x, dim=[0])\n  m = amax(x, dim=[0])\n"
                      "  return s, m\n}",
                      NULL);
    cb_tensor *x = ramp(cb_dims(300000), 0, 1e-3f);
    double one = sum_with(e, x, 1);
    assert_true(one == sum_with(e, x, 2));
    assert_true(one == sum_with(e, x, 5));
    double expected = 299999.0 * 300000 / 2 * 1e-3 + 299.999;
    assert_true(fabs(one - expected) < expected * 1e-6);
    executable_free(e);
}

/* Chunks of many outer points are combined by several threads: each fold, each range of points. */
static void columns_do_not_depend_on_threads(void **state) {
    enum { ROWS = 2000, COLUMNS = 701, RESULTS = 6 };
    Executable *e = executable_of(
        state,
        "graph(x: f32[2000, 701]) {\n  s = sum(x, dim=[0])\n  h = amax(x, dim=[0])\n"
        "  l = amin(x, dim=[0])\n  i = to(x, dtype=i64)\n  t = sum(i, dim=[0])\n"
        "  m = amax(i, dim=[0])\n  n = amin(i, dim=[0])\n  return s, h, l, t, m, n\n}",
        NULL);
    cb_tensor *x = cb_empty(cb_dims(ROWS, COLUMNS), CB_F32), *one[RESULTS], *out[RESULTS];
    float *data = cb_data(x);
    for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = (float)(i % 4001 - 2000);
    for (int threads = 1; threads <= 5; threads += 2) {
        cb_set_threads(threads);
        assert_true(run_executable(e, &x, threads == 1 ? one : out));
        for (int r = 0; threads > 1 && r < RESULTS; r++)
            assert_memory_equal(cb_data(one[r]), cb_data(out[r]),
                                (size_t)COLUMNS * cb_dtype_size(cb_dtype_of(one[r])));
    }
    cb_set_threads(0);
    for (int c = 0; c < COLUMNS; c++) {
        double sum = 0, high = -1e9, low = 1e9;
        for (int r = 0; r < ROWS; r++) {
            double value = (double)data[r * COLUMNS + c];
            sum += value;
            high = value > high ? value : high;
            low = value < low ? value : low;
        }
        double expected[RESULTS] = {sum, high, low, sum, high, low};
        for (int r = 0; r < RESULTS; r++)
            expect_near(cb_item(cb_select(one[r], 0, c)), expected[r], 0);
    }
    executable_free(e);
}

/* Chunks of integers, whose sums and products wrap. */
static void long_reductions_of_integers(void **state) {
    static const cb_dtype dtypes[] = {CB_BOOL, CB_U8, CB_I8, CB_I32, CB_I64};
    enum { COUNT = 300000 };
    for (int d = 0; d < 5; d++) {
        char text[400];
        const char *name = cb_dtype_name(dtypes[d]);
        snprintf(text, sizeof text,
                 "graph(x: %s[%d]) {\n  s = sum(x, dim=[0])\n  p = prod(x, dim=0)\n"
                 "  a = amax(x, dim=[0])\n  i = amin(x, dim=[0])\n  y = any(x, dim=[0])\n"
                 "  l = all(x, dim=[0])\n  return s, p, a, i, y, l\n}",
                 name, COUNT);
        Executable *e = executable_of(state, text, NULL);
        cb_tensor *odd = cb_add(cb_mul(cb_remainder(cb_arange(0, COUNT), 50), 2), 1);
        cb_tensor *x = cb_to(odd, dtypes[d]), *out[6];
        int64_t sum = 0, product = 1, most = INT64_MIN, least = INT64_MAX;
        int64_t *element = malloc(COUNT * sizeof *element);
        assert_int_equal(cb_read(x, element, CB_I64), CB_OK);
        for (int i = 0; i < COUNT; i++) {
            sum += element[i];
            product = (int64_t)((uint64_t)product * (uint64_t)element[i]);
            if (element[i] > most) most = element[i];
            if (element[i] < least) least = element[i];
        }
        free(element);
        assert_true(run_executable(e, &x, out));
        int64_t wanted[] = {sum, product, most, least, 1, 1};
        for (int i = 0; i < 6; i++) {
            int64_t got;
            assert_int_equal(cb_read(out[i], &got, CB_I64), CB_OK);
            if (got != wanted[i])
                FAIL("%s, result %d: %lld, not %lld", name, i, (long long)got,
                     (long long)wanted[i]);
        }
        executable_free(e);
    }
}

static void long_scans_run_in_order(void **state) {
    Executable *e = executable_of(state,
                                  "graph(x: f32[2, 100000]) {\n  c = cumsum(x, dim=1)\n"
                                  "  d = slice(c, dim=1, start=99990)\n  s = sum(x, dim=[1])\n"
                                  "  return d, s, c\n}",
                                  NULL);
    cb_tensor *in[] = {cb_ones(cb_dims(2, 100000), CB_F32)}, *out[3];
    assert_true(run_executable(e, in, out));
    expect_near(cb_item(cb_amin(out[0], CB_ALL, false)), 99991, 0);
    expect_near(cb_item(cb_amax(out[2], CB_ALL, false)), 100000, 0);
    expect(out[1], 2, (double[]){100000, 100000});
    executable_free(e);
}

/* Sums and products so far are taken in f64 and rounded once: along rows, along columns (few and
 * many of them), from the end as gradients take them, of f32 and of halves. */
static void long_scans_round_once(void **state) {
    static const struct {
        cb_dtype dtype;
        int rows, columns, dim;
    } cases[] = {{CB_F32, 1, 1000003, 1}, {CB_F32, 1000003, 1, 0}, {CB_F32, 250001, 4, 0},
                 {CB_F32, 15001, 70, 0},  {CB_F32, 70, 15001, 1},  {CB_F16, 5, 70001, 1},
                 {CB_F16, 15001, 70, 0},  {CB_BF16, 3, 70001, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        const char *name = cb_dtype_name(cases[i].dtype);
        snprintf(text, sizeof text,
                 "graph(x: %s[%d, %d]) {\n  s = cumsum(x, dim=%d)\n  f = flip(x, dims=[%d])\n"
                 "  b = cumsum(f, dim=%d)\n  p = cumprod(x, dim=%d)\n  return s, b, p\n}",
                 name, cases[i].rows, cases[i].columns, cases[i].dim, cases[i].dim, cases[i].dim,
                 cases[i].dim);
        Executable *e = executable_of(state, text, NULL);
        int64_t count = (int64_t)cases[i].rows * cases[i].columns, along = cases[i].dim;
        cb_tensor *ramp = cb_remainder(cb_mul(cb_arange(0, count), 7919), 1009);
        cb_tensor *x = cb_add(cb_div(ramp, 32768), 0.985);
        x = cb_reshape(x, cb_dims(cases[i].rows, cases[i].columns));
        x = cb_to(x, cases[i].dtype);
        cb_tensor *wide = cb_to(x, CB_F64), *out[3];
        cb_tensor *exact[] = {cb_cumsum(wide, along),
                              cb_cumsum(cb_flip(wide, cb_dims(along)), along),
                              cb_cumprod(wide, along)};
        assert_true(run_executable(e, &x, out));
        for (int r = 0; r < 3; r++) {
            cb_tensor *expected = cb_to(cb_to(exact[r], CB_F32), cb_dtype_of(x));
            double wrong = cb_item(cb_sum(cb_to(cb_ne(out[r], expected), CB_I64)));
            if (wrong > 0)
                FAIL("%s[%d, %d] along %d, result %d: %.0f wrong", name, cases[i].rows,
                     cases[i].columns, cases[i].dim, r, wrong);
        }
        executable_free(e);
    }
}

static void nothing_to_do(void **state) {
    Executable *e = executable_of(
        state, "graph(x: f32[0, 3]) {\n  y = exp(x)\n  s = sum(y, dim=[0])\n  return y, s\n}",
        NULL);
    cb_tensor *in[] = {cb_empty(cb_dims(0, 3), CB_F32)}, *out[2];
    assert_true(run_executable(e, in, out));
    assert_int_equal(cb_numel(out[0]), 0);
    expect(out[1], 3, (double[]){0, 0, 0});
    executable_free(e);
}

static void equal_seeds_draw_equal_numbers(void **state) {
    Executable *e = executable_of(state, "graph() {\n  r = rand(sizes=[50])\n  return r\n}", NULL);
    cb_tensor *a[1], *b[1], *c[1];
    cb_manual_seed(5);
    assert_true(run_executable(e, NULL, a));
    assert_true(run_executable(e, NULL, b));
    cb_manual_seed(5);
    assert_true(run_executable(e, NULL, c));
    assert_memory_equal(cb_data(a[0]), cb_data(c[0]), 50 * sizeof(float));
    assert_memory_not_equal(cb_data(a[0]), cb_data(b[0]), 50 * sizeof(float));
    executable_free(e);
}

/* ---- threads ---- */

typedef struct RunCaller {
    const Executable *executable;
    float first;
    bool ok;
} RunCaller;

static void *call_often(void *user) {
    RunCaller *caller = user;
    caller->ok = true;
    for (int i = 0; i < 200; i++) {
        cb_scope_open();
        cb_tensor *x = ramp(cb_dims(64, 16), caller->first, 0), *out[1];
        caller->ok &= run_executable(caller->executable, &x, out);
        caller->ok &= fabs(cb_item(out[0]) - 1024 * (caller->first + 1)) < 1e-2;
        cb_scope_close();
    }
    return NULL;
}

static void several_threads_share_one(void **state) {
    Executable *e =
        executable_of(state,
                      "graph(x: f32[64, 16]) {\n  r = add(x, 1.0)\n  c = cumsum(r, dim=1)\n"
                      "  s = slice(c, dim=1, start=15)\n  t = sum(s)\n  return t\n}",
                      NULL);
    RunCaller caller[4];
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        caller[i] = (RunCaller){e, (float)i, false};
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, &caller[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_true(caller[i].ok);
    }
    executable_free(e);
}

static int run_engine(bool generate) {
    void *state = &generate;
    const struct CMUnitTest tests[] = {
        ONE(two_outputs_of_one_kernel),
        ONE(the_same_output_twice_and_reshaped),
        ONE(an_output_that_is_an_input),
        ONE(strides_of_an_input_are_baked_in),
        ONE(a_reshaped_strided_input_is_copied),
        ONE(an_input_is_updated_in_place),
        ONE(parts_begin_where_an_input_says),
        ONE(a_mutated_input_may_be_strided),
        ONE(neighbours_are_read_before_they_change),
        ONE(inputs_may_change_places),
        ONE(an_old_value_is_used_after_the_new_one),
        ONE(updates_are_as_if_computed_aside),
        ONE(folds_beside_an_update),
        ONE(a_product_with_its_epilogue),
        ONE(sorted_rows),
        ONE(an_index_outside_is_an_error),
        ONE(an_index_inside_of_a_composite),
        ONE(long_sums_do_not_depend_on_threads),
        ONE(columns_do_not_depend_on_threads),
        ONE(long_reductions_of_integers),
        ONE(long_scans_run_in_order),
        ONE(long_scans_round_once),
        ONE(nothing_to_do),
        ONE(equal_seeds_draw_equal_numbers),
        ONE(several_threads_share_one),
    };
    return cmocka_run_group_tests_name(generate ? "C" : "VM", tests, NULL, NULL);
}

int main(void) { return run_engine(false) + run_engine(true); }
