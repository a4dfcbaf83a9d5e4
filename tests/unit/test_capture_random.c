/* Random programs with views, writes and captured tensors: compiled (recorded, then replayed)
 * against eager. Results, written inputs and shared storage must agree. A program is its seed: the
 * function below draws its ops from it, the same ones every time that it runs; over other sizes,
 * with another number, where those change from call to call. */
#include "backends.h"
#include "carbide.h"

#include <math.h>
#include <string.h>

#include "test_support.h"

enum { PROGRAMS = 2000, OF_BACKENDS = 400, OF_C = 4, ROUNDS = 3, MAX_VALUES = 24, MAX_RESULTS = 4 };

static const int size_of_call[][2] = {{3, 4}, {5, 4}, {5, 6}, {7, 8},
                                      {3, 4}, {1, 6}, {6, 3}, {5, 4}};
enum { CALLS_OF_SIZES = sizeof size_of_call / sizeof *size_of_call };

static uint64_t program, random_state;
static double addend = 1.5;
static cb_tensor *captured[2];

static int draw(int64_t count) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)count);
}

static bool same_sizes(cb_tensor *a, cb_tensor *b) {
    if (cb_rank(a) != cb_rank(b)) return false;
    for (int d = 0; d < cb_rank(a); d++)
        if (cb_size(a, d) != cb_size(b, d)) return false;
    return true;
}

/* A view of a, or NULL where the drawn one does not apply. */
static cb_tensor *draw_view(cb_tensor *a) {
    int rank = cb_rank(a), dim = rank ? draw(rank) : 0;
    int64_t size = rank ? cb_size(a, dim) : 0, start = size ? draw(size) : 0;
    switch (draw(6)) {
    case 0:
        return rank == 2 ? cb_transpose(a, 0, 1) : NULL;
    case 1:
        return size ? cb_select(a, dim, start) : NULL;
    case 2:
        return size ? cb_slice(a, dim, start, size - draw(size - start), 1 + draw(2)) : NULL;
    case 3:
        return cb_reshape(a, cb_dims(cb_numel(a)));
    case 4:
        return rank < 4 ? cb_unsqueeze(a, draw(rank + 1)) : NULL;
    default:
        return cb_squeeze(a);
    }
}

static void draw_write(cb_tensor *a, cb_tensor *b) {
    switch (draw(3)) {
    case 0:
        cb_fill_(a, draw(5));
        break;
    case 1:
        cb_assign(a, cb_cos(a));
        break;
    default:
        if (same_sizes(a, b)) cb_assign(a, b);
    }
}

/* The number as an operand and as an attribute. */
static cb_tensor *draw_number(cb_tensor *a) {
    switch (draw(6)) {
    case 0:
        return cb_leaky_relu(a, addend / 16);
    case 1:
        return cb_hardtanh(a, -addend / 8, addend / 4);
    case 2:
        return cb_threshold(a, 0.25, addend);
    case 3:
        return cb_softplus(a, addend, 20);
    case 4:
        return cb_mul(addend, a);
    default:
        return cb_add(a, addend);
    }
}

static cb_tensor *draw_op(cb_tensor *a, cb_tensor *b) {
    switch (draw(10)) {
    case 0:
        return draw_number(a);
    case 1:
        return cb_sin(a);
    case 2:
        return cb_clone(a);
    case 3:
        return cb_contiguous(a);
    case 4:
        return cb_rank(a) ? cb_sum(a, draw(cb_rank(a)), draw(2)) : NULL;
    case 5:
        return same_sizes(a, b) ? cb_sub(a, b) : NULL;
    case 6:
        draw_write(a, b);
        return NULL;
    default:
        return draw_view(a);
    }
}

static int run_program(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)user;
    cb_tensor *value[MAX_VALUES] = {inputs[0], inputs[count - 1], captured[0], captured[1]};
    int values = 4, results;
    random_state = program;
    for (int step = 3 + draw(14); step > 0; step--) {
        cb_tensor *a = value[draw(values)], *b = value[draw(values)], *made = draw_op(a, b);
        if (made) value[values++] = made;
    }
    results = 1 + draw(MAX_RESULTS);
    for (int i = 0; i < results; i++) outputs[i] = value[draw(values)];
    return results;
}

/* ---- comparing ----------------------------------------------------------------------------- */

typedef struct Run {
    cb_tensor *input[2], *captured[2], *output[MAX_RESULTS];
    int results;
} Run;

static cb_tensor *wave(int64_t rows, int64_t columns, double step) {
    double data[64];
    for (int i = 0; i < rows * columns; i++) data[i] = sin(i * step) + step;
    return cb_from_data(data, CB_F64, cb_dims(rows, columns));
}

static Run make_run(int seed, const int size[2]) {
    int rows = size[0], columns = size[1];
    Run run = {.input = {wave(rows, columns, 1), wave(rows, columns, 2)},
               .captured = {wave(rows, columns, 3), wave(columns, rows, 4)}};
    if (seed % 5 == 4) run.input[1] = cb_transpose(run.input[1], 0, 1);
    if (seed % 7 == 6) run.input[1] = cb_slice(run.input[0], 1, 0, 2); /* shared memory */
    return run;
}

static void expect_equal(int seed, cb_tensor *got, cb_tensor *expected) {
    double a[64], b[64];
    if (!got || !same_sizes(got, expected)) fail_msg("program %d: sizes differ", seed);
    cb_read(got, a, CB_F64);
    cb_read(expected, b, CB_F64);
    for (int64_t i = 0; i < cb_numel(got); i++)
        if (!(fabs(a[i] - b[i]) <= 1e-9 * (1 + fabs(b[i]))))
            fail_msg("program %d: %g, eager %g", seed, a[i], b[i]);
}

static void compare(int seed, const Run *got, const Run *eager) {
    if (got->results != eager->results) fail_msg("program %d: %s", seed, cb_error());
    for (int i = 0; i < 2; i++) {
        expect_equal(seed, got->input[i], eager->input[i]);
        expect_equal(seed, got->captured[i], eager->captured[i]);
    }
    for (int i = 0; i < got->results; i++) {
        expect_equal(seed, got->output[i], eager->output[i]);
        for (int k = 0; k < 2; k++)
            assert_int_equal(cb_shares_storage(got->output[i], got->input[k]),
                             cb_shares_storage(eager->output[i], eager->input[k]));
        for (int k = 0; k < i; k++)
            assert_int_equal(cb_shares_storage(got->output[i], got->output[k]),
                             cb_shares_storage(eager->output[i], eager->output[k]));
    }
}

static void call(cb_function *fast, int seed, const int size[2]) {
    cb_scope_open();
    Run eager = make_run(seed, size), got = make_run(seed, size);
    memcpy(captured, eager.captured, sizeof captured);
    eager.results = run_program(eager.input, 2, eager.output, NULL);
    memcpy(captured, got.captured, sizeof captured);
    got.results = cb_call_n(fast, got.input, 2, got.output, MAX_RESULTS);
    compare(seed, &got, &eager);
    cb_scope_close();
}

static void run_programs(const char *options, int programs) {
    for (int seed = 0; seed < programs; seed++) {
        program = (uint64_t)seed * 2654435761u + 12345;
        cb_function *fast = cb_compile_n(run_program, NULL, options);
        for (int round = 0; round < ROUNDS; round++) call(fast, seed, size_of_call[0]);
        assert_int_equal(cb_stats(fast).calls, ROUNDS);
        assert_true(cb_stats(fast).graphs <= 1);
        cb_function_free(fast);
    }
}

/* With sizes and numbers that change from call to call; how many graphs the C compiler ran for. */
static int64_t run_sizes(const char *options, int programs) {
    int64_t compiled = 0;
    for (int seed = 0; seed < programs; seed++) {
        program = (uint64_t)seed * 2654435761u + 12345;
        cb_function *fast = cb_compile_n(run_program, NULL, options);
        for (int k = 0; k < CALLS_OF_SIZES; k++) {
            addend = 1.5 + k;
            call(fast, seed, size_of_call[k]);
        }
        compiled += cb_stats(fast).compiled;
        assert_true(cb_stats(fast).graphs <= CALLS_OF_SIZES);
        cb_function_free(fast);
    }
    addend = 1.5;
    return compiled;
}

static void test_programs_of_sizes(void **state) {
    (void)state;
    assert_int_equal(run_sizes("backend=vm, dynamic=1", OF_BACKENDS), 0);
    run_sizes("backend=vm", OF_BACKENDS);
    if (strcmp(cb_get_option("device"), "cpu")) return;
    assert_true(run_sizes("dynamic=1", OF_C) > 0);
    run_sizes("", OF_C);
}

static void test_programs(void **state) {
    (void)state;
    run_programs("backend=vm", PROGRAMS);
}

static void test_unfused_programs(void **state) {
    (void)state;
    run_programs("backend=vm, fuse=0", PROGRAMS);
}

static void test_programs_of_backends(void **state) {
    (void)state;
    if (strcmp(cb_get_option("device"), "cpu"))
        skip_because("graphs with writes are not a backend's on other devices");
    assert_int_equal(register_test_backends(), CB_OK);
    run_programs("backend=counting", OF_BACKENDS);
    run_programs("backend=inner", OF_BACKENDS);
    assert_true(seen.freed == seen.compiled && seen.compiled > OF_BACKENDS);
    cb_free_text(seen.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs), cmocka_unit_test(test_unfused_programs),
        cmocka_unit_test(test_programs_of_sizes), cmocka_unit_test(test_programs_of_backends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
