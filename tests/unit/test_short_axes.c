/* Kernels whose last axis is short, on both engines: how they are walked, and what they compute. */
#include "device/device.h"
#include "executable_of.h"
#include "sched/schedule.h"

#include <stdio.h>

/* Every pair of points: generated code has its lanes along the second point, and the coordinates
 * within them; the VM walks several short axes at once by itself. Positions that were loaded stay
 * as they are. */
static void short_last_axes(void **state) {
    enum { N = 100, COORDINATES = 3 };
    Executable *e = executable_of(
        state,
        "graph(x: f32[100, 1, 3], y: f32[1, 100, 3], i: i64[100]) {\n  d = sub(x, y)\n"
        "  f = reshape(x, sizes=[100, 3])\n  r = index_select(f, dim=0, index=i)\n  return d, r\n}",
        NULL);
    cb_tensor *x = ramp(cb_dims(N, 1, COORDINATES), 0, 100), *out[2];
    cb_tensor *y = ramp(cb_dims(1, N, COORDINATES), 0, 1);
    cb_tensor *in[] = {x, y, cb_sub(N - 1, cb_arange(0, N))};
    assert_true(run_executable(e, in, out));
    const float *d = cb_data(out[0]), *r = cb_data(out[1]);
    for (int at = 0; at < N * N * COORDINATES; at++) {
        int k = at % COORDINATES, b = at / COORDINATES % N, a = at / COORDINATES / N;
        expect_near(d[at], 100 * (COORDINATES * a + k) - (COORDINATES * b + k), 0);
        expect_near(r[COORDINATES * b + k], 100 * (COORDINATES * (N - 1 - b) + k), 0);
    }
    const Plan *plan = executable_plan(e);
    assert_int_equal(length(plan->kernel), 2);
    bool lanes_before = *(const bool *)*state;
    for (int i = 0; i < 2; i++) {
        const Kernel *kernel = plan->kernel[i];
        bool pairs = length(kernel->axis) == 3;
        assert_int_equal(kernel->outer_size, pairs && lanes_before ? N * N
                                             : pairs               ? N * N * COORDINATES
                                                                   : N * COORDINATES);
    }
    executable_free(e);
}

/* Parts of rows: lanes along them, and across them where they are a few bytes, or dear and taken
 * apart in registers. */
static void parts_of_rows(void **state) {
    static const struct {
        const char *dtype, *size, *graph;
        int part;
        bool across;
    } cases[] = {
        {"f32", "7", "neg(slice(x, 1, 1, 4))", 3, false},
        {"f32", "7", "neg(slice(x, 1, 1, 3))", 2, true},
        {"f32", "8", "sigmoid(slice(x, 1, 1, 5))", 4, true},
        {"f32", "7", "sigmoid(slice(x, 1, 1, 5))", 4, false},
        {"f32", "8", "sigmoid(slice(x, 1, 1, 6))", 5, false},
        {"u8", "12", "neg(slice(x, 1, 1, 9))", 8, true},
        {"u8", "12", "neg(slice(x, 1, 1, 10))", 9, false},
        {"f32", "15", "neg(slice(x, 1, 1, 14, 2))", 7, true},
    };
    bool generated = *(const bool *)*state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        snprintf(text, sizeof text, "graph(x: %s[100, %s]) { return %s }", cases[i].dtype,
                 cases[i].size, cases[i].graph);
        Executable *e = executable_of(state, text, NULL);
        const Plan *plan = executable_plan(e);
        assert_int_equal(plan->kernel[0]->outer_size,
                         generated && cases[i].across ? 100 : 100 * cases[i].part);
        executable_free(e);
    }
}

/* Pieces that begin with a row are runs of one axis, where they are long enough for a loop each and
 * what is read goes on; conditions that change elsewhere keep their rows. */
static void pieces_between_rows(void **state) {
    static const struct {
        const char *graph;
        int axes;
    } cases[] = {
        {"concat(x, y)", 1},
        {"pad(x, padding=[0, 0, 1, 2])", 1},
        {"where(reshape(arange(0, 50), [50, 1]) < 25, x, 0)", 1},
        {"where(reshape(arange(0, 50), [50, 1]) == 25, x, 0)", 2},
        {"flip(concat(x, y), dims=[0])", 2},
        {"pad(x, padding=[1, 0, 1, 2])", 2},
        {"slice(concat(x, y), 0, 0, 98, 2)", 2},
        {"concat(slice(x, 0, 0, 3), slice(x, 0, 5, 9))", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[160];
        snprintf(text, sizeof text, "graph(x: f32[50, 3], y: f32[48, 3]) { return %s }",
                 cases[i].graph);
        Executable *e = executable_of(state, text, NULL);
        const Plan *plan = executable_plan(e);
        assert_int_equal(length(plan->kernel[0]->axis), cases[i].axes);
        executable_free(e);
    }
}

/* A guard keeps a load within its buffer: one that asks for other coordinates, and is always there,
 * has none. */
static void guards_of_other_coordinates(void **state) {
    static const struct {
        const char *size;
        int guarded;
    } cases[] = {{"17, 1", 1}, {"1, 1", 1}, {"1, 200", 2}, {"17, 200", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        snprintf(text, sizeof text,
                 "graph(x: f32[17, 200], w: f32[%s]) { return pad(mul(x, w), padding=[2, 2]) }",
                 cases[i].size);
        Executable *e = executable_of(state, text, NULL);
        const Kernel *kernel = executable_plan(e)->kernel[0];
        int guarded = 0;
        for (int id = 0; id < length(kernel->expr); id++)
            guarded += kernel->expr[id]->op == EX_load && kernel->expr[id]->input_count > 1;
        assert_int_equal(guarded, cases[i].guarded);
        executable_free(e);
    }
}

/* Products of complex numbers, whose parts lie side by side: generated code has its lanes along the
 * numbers. */
static void stacks_along_a_short_last_axis(void **state) {
    enum { N = 500 };
    Executable *e = executable_of(
        state,
        "graph(x: f32[500, 2], y: f32[500, 2]) {\n  a = select(x, 1, 0)\n  b = select(x, 1, 1)\n"
        "  c = select(y, 1, 0)\n  d = select(y, 1, 1)\n"
        "  return concat(unsqueeze(a * c - b * d, 1), unsqueeze(a * d + b * c, 1), dim=1)\n}",
        NULL);
    cb_tensor *in[] = {ramp(cb_dims(N, 2), 0, 1), ramp(cb_dims(N, 2), 3, 2)}, *out;
    assert_true(run_executable(e, in, &out));
    const float *x = cb_data(in[0]), *y = cb_data(in[1]), *z = cb_data(out);
    for (int i = 0; i < 2 * N; i += 2) {
        expect_near(z[i], x[i] * y[i] - x[i + 1] * y[i + 1], 0);
        expect_near(z[i + 1], x[i] * y[i + 1] + x[i + 1] * y[i], 0);
    }
    const Plan *plan = executable_plan(e);
    assert_int_equal(length(plan->kernel), 1);
    assert_int_equal(plan->kernel[0]->outer_size, *(const bool *)*state ? N : 2 * N);
    executable_free(e);
}

/* Of so many that each element would ask for many conditions: lanes go across the rows, too,
 * however many elements these have. */
static void stacks_of_many(void **state) {
    enum { N = 300, PIECES = 17 };
    char text[4000];
    int at = snprintf(text, sizeof text, "graph(x: f32[300, 17]) {\n  t0 = slice(x, 1, 0, 1)\n");
    for (int i = 1; i < PIECES; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  t%d = concat(t%d, slice(x, 1, %d, %d) * %d, dim=1)\n", i, i - 1,
                       PIECES - i, PIECES - i + 1, i + 1);
    snprintf(text + at, sizeof text - (size_t)at, "  return t%d\n}", PIECES - 1);
    Executable *e = executable_of(state, text, NULL);
    cb_tensor *x = ramp(cb_dims(N, PIECES), 0, 1), *out;
    assert_true(run_executable(e, &x, &out));
    const float *from = cb_data(x), *to = cb_data(out);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < PIECES; k++)
            expect_near(to[PIECES * i + k], (k + 1) * from[PIECES * i + (k ? PIECES - k : 0)], 0);
    const Plan *plan = executable_plan(e);
    assert_int_equal(length(plan->kernel), 1);
    assert_int_equal(plan->kernel[0]->form, FORM_TILE);
    assert_int_equal(plan->kernel[0]->outer_size, *(const bool *)*state ? N : N * PIECES);
    executable_free(e);
}

/* Nearest neighbours of twice the size: rows are found by a division, lanes go along what is
 * doubled. */
static void repeats_along_a_short_last_axis(void **state) {
    enum { ROWS = 60, COLUMNS = 50 };
    Executable *e = executable_of(state,
                                  "graph(x: f32[60, 50]) {\n  a = expand(reshape(x, sizes=[60, 1, "
                                  "50, 1]), sizes=[60, 2, 50, 2])\n"
                                  "  return reshape(a, sizes=[120, 100])\n}",
                                  NULL);
    cb_tensor *x = ramp(cb_dims(ROWS, COLUMNS), 0, 1), *out;
    assert_true(run_executable(e, &x, &out));
    const float *from = cb_data(x), *to = cb_data(out);
    for (int i = 0; i < 2 * ROWS; i++)
        for (int k = 0; k < 2 * COLUMNS; k++)
            expect_near(to[i * 2 * COLUMNS + k], from[i / 2 * COLUMNS + k / 2], 0);
    int points = (*(const bool *)*state ? 2 : 4) * ROWS * COLUMNS;
    assert_int_equal(executable_plan(e)->kernel[0]->outer_size, points);
    executable_free(e);
}

/* Rows with a value for each row and each column: generated code walks them as one run where they
 * are short, and so many that there are rows for every thread. */
static void rows_of_a_few_elements(void **state) {
    static const int rows[] = {500, 500, 1000, 4000, 500, 12}, columns[] = {3, 9, 63, 15, 64, 9};
    for (int i = 0; i < 6; i++) {
        int n = rows[i], count = columns[i];
        char text[200];
        snprintf(text, sizeof text,
                 "graph(x: f32[%d, %d], y: f32[%d, 1], z: f32[%d]) { return x * y + z }", n, count,
                 n, count);
        Executable *e = executable_of(state, text, NULL);
        cb_tensor *in[] = {ramp(cb_dims(n, count), 0, 1), ramp(cb_dims(n, 1), -9, 1),
                           ramp(cb_dims(count), 3, 5)};
        cb_tensor *out;
        assert_true(run_executable(e, in, &out));
        const float *to = cb_data(out);
        for (int at = 0; at < n * count; at++)
            expect_near(to[at], at * (at / count - 9.0) + 3 + 5 * (at % count), 16); /* of 2^28 */
        bool laid = *(const bool *)*state && i < 4;
        assert_int_equal(executable_plan(e)->kernel[0]->outer_size, laid ? n : n * count);
        assert_int_equal(executable_plan(e)->kernel[0]->split, 1);
        executable_free(e);
    }
}

/* A few columns' values would do as well from every point of one long row; the rows are walked as
 * they are. */
static void a_value_for_each_column(void **state) {
    enum { N = 500, COLUMNS = 9 };
    Executable *e = executable_of(state, "graph(x: f32[500, 9], z: f32[9]) { return x + z }", NULL);
    cb_tensor *in[] = {ramp(cb_dims(N, COLUMNS), 0, 1), ramp(cb_dims(COLUMNS), 3, 5)}, *out;
    assert_true(run_executable(e, in, &out));
    const float *to = cb_data(out);
    for (int at = 0; at < N * COLUMNS; at++) expect_near(to[at], at + 3 + 5 * (at % COLUMNS), 0);
    int points = *(const bool *)*state ? N : N * COLUMNS;
    assert_int_equal(executable_plan(e)->kernel[0]->outer_size, points);
    executable_free(e);
}

/* Two values for each column, of the same chosen row: what both begin with has a name in each. */
static void two_values_for_each_column(void **state) {
    enum { N = 100, COLUMNS = 8 };
    Executable *e = executable_of(state,
                                  "graph(x: f32[100, 8], y: f32[100, 8], i: i64[1]) {\n"
                                  "  r = x * index_select(y, 0, i) + index_select(x, 0, i) * y\n"
                                  "  return r + (sin(r) + tanh(r)) * 0.0\n}",
                                  NULL);
    cb_tensor *in[] = {ramp(cb_dims(N, COLUMNS), 0, 1), ramp(cb_dims(N, COLUMNS), 1, 2),
                       cb_full(cb_dims(1), 1, CB_I64)};
    cb_tensor *out;
    assert_true(run_executable(e, in, &out));
    const float *to = cb_data(out);
    for (int at = 0; at < N * COLUMNS; at++) {
        int chosen = COLUMNS + at % COLUMNS;
        expect_near(to[at], at * (1 + 2 * chosen) + chosen * (1 + 2 * at), 0);
    }
    executable_free(e);
}

/* Lanes go across rows of up to 23 elements that are folded and then stored, of 15 that are folded
 * alone. */
static void lanes_across_folded_rows(void **state) {
    static const char *const text[] = {"graph(x: f32[200, 23]) { return softmax(x, dim=1) }",
                                       "graph(x: f32[200, 24]) { return softmax(x, dim=1) }",
                                       "graph(x: f32[200, 15]) { return amax(x, dim=[1]) }",
                                       "graph(x: f32[200, 16]) { return amax(x, dim=[1]) }"};
    static const int columns[] = {23, 24, 15, 16};
    for (int i = 0; i < 4; i++) {
        Executable *e = executable_of(state, text[i], NULL);
        cb_tensor *x = ramp(cb_dims(200, columns[i]), 0, 1), *out;
        assert_true(run_executable(e, &x, &out));
        double last = i < 2 ? 1 - exp(-1) : 200 * columns[i] - 1; /* 1 / (1 + 1/e + 1/e^2 ...) */
        expect_near(((const float *)cb_data(out))[cb_numel(out) - 1], last, 1e-5);
        assert_int_equal(executable_plan(e)->kernel[0]->form, i % 2 ? FORM_ROW : FORM_TILE);
        executable_free(e);
    }
}

/* Where lanes could go along rows and across them, they go across windows, which share what they
 * read; backwards is along memory, too. Rows of a few elements are not cut into chunks. */
static void lanes_by_what_is_read(void **state) {
    static const struct {
        const char *graph;
        Form form;
        int chunks;
    } cases[] = {
        {"graph(x: f32[40, 300]) { return amax(window(x, 1, 16), dim=[2]) }", FORM_TILE, 1},
        {"graph(x: f32[40, 300]) { return amax(window(x, 1, 65), dim=[2]) }", FORM_ROW, 1},
        {"graph(x: f32[100, 160]) { return sum(flip(x, dims=[1]), dim=[0]) }", FORM_TILE, 1},
        {"graph(x: f32[1000, 16, 4]) { return softmax(x, dim=1) }", FORM_TILE, 1},
        {"graph(x: f32[64, 64, 20]) { return amax(x, dim=[1]) }", FORM_TILE, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Executable *e = executable_of(state, cases[i].graph, NULL);
        const Kernel *kernel = executable_plan(e)->kernel[0];
        assert_int_equal(kernel->form, cases[i].form);
        assert_int_equal(kernel->split, cases[i].chunks);
        executable_free(e);
    }
}

/* Many rows whose length varies. What is stored goes along them from a few elements on, but for
 * elements that no mask leaves out, what is folded alone, and costly work for each row. */
static void lanes_along_rows_that_vary(void **state) {
    (void)state;
    static const struct {
        const char *dtype, *point, *row;
        int least;
    } all[] = {{"f32", "neg t0", "neg t2", 8},  {"f32", "exp t0", "neg t2", 12},
               {"f32", "neg t0", "log t2", 24}, {"f64", "neg t0", "neg t2", 8},
               {"f64", "exp t0", "neg t2", 24}, {"bf16", "neg t0", "neg t2", 24},
               {"f32", "neg t0", NULL, 16}};
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < 14; i++) {
        const char *dtype = all[i / 2].dtype, *row = all[i / 2].row;
        int n = all[i / 2].least - 1 + i % 2;
        char text[600];
        int at =
            snprintf(text, sizeof text,
                     "kernel k(outer a0:5000, inner a1:%d+) row split 1 { b0: in %s[%d]"
                     " b1: out %s[%d] t0 = %s load b0[((a0*%d)+a1)] t1 = %s %s"
                     " t2 = %s reduce sum t1",
                     n, dtype, 5000 * n, dtype, 5000 * n, dtype, n, dtype, all[i / 2].point, dtype);
        if (row)
            snprintf(text + at, sizeof text - (size_t)at,
                     " t3 = %s %s t4 = %s sub t1, t3 store b1[((a0*%d)+a1)] = t4 }", dtype, row,
                     dtype, n);
        else
            snprintf(text + at, sizeof text - (size_t)at, " store b1[a0] = t2 }");
        Kernel *kernel = kernel_parse(arena, text);
        choose_form(kernel, &machine_cpu);
        assert_int_equal(kernel->form, i % 2 ? FORM_ROW : FORM_TILE);
    }
    arena_free(arena);
}

/* What a row has one of says nothing of where the lanes go: each channel of batch norm's x has its
 * own weight and bias. */
static void lanes_along_rows_of_channels(void **state) {
    Executable *e = executable_of(state,
                                  "graph(x: f32[3, 64, 40], w: f32[64], b: f32[64]) {"
                                  " return batch_norm(x, none, none, w, b, training=true) }",
                                  NULL);
    cb_tensor *in[] = {ramp(cb_dims(3, 64, 40), 0, 1), ramp(cb_dims(64), 1, 0),
                       ramp(cb_dims(64), 0, 1)},
              *out;
    assert_true(run_executable(e, in, &out));
    assert_int_equal(executable_plan(e)->kernel[0]->form, FORM_ROW);
    cb_tensor *sum = cb_sum(cb_reshape(out, cb_dims(3, 64, 40)), cb_dims(0, 2));
    for (int c = 0; c < 64; c++) expect_near(((const float *)cb_data(sum))[c], 120 * c, 0.1);
    executable_free(e);
}

static int run_engine(bool generate) {
    void *state = &generate;
    const struct CMUnitTest tests[] = {
        ONE(short_last_axes),
        ONE(parts_of_rows),
        ONE(pieces_between_rows),
        ONE(guards_of_other_coordinates),
        ONE(stacks_along_a_short_last_axis),
        ONE(stacks_of_many),
        ONE(repeats_along_a_short_last_axis),
        ONE(rows_of_a_few_elements),
        ONE(a_value_for_each_column),
        ONE(two_values_for_each_column),
        ONE(lanes_across_folded_rows),
        ONE(lanes_by_what_is_read),
        ONE(lanes_along_rows_of_channels),
        ONE(lanes_along_rows_that_vary),
    };
    return cmocka_run_group_tests_name(generate ? "C" : "VM", tests, NULL, NULL);
}

int main(void) { return run_engine(false) + run_engine(true); }
