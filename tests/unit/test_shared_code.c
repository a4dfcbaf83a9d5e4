/* Functions of many small kernels: those that differ in numbers alone share code, and what is left
 * is scalar code where that is good enough. The numbers are eager's, and the C compiler has little
 * to do. */
#include "adder.h"

#include "carbide.h"

#include <string.h>

enum { STEPS = 40, ROWS = 9, LONG = 80 };

static void expect_shared(cb_function_1 *function, cb_tensor *x, int most) {
    cb_scope_open();
    cb_function *fast = cb_compile(function, "backend=c");
    cb_tensor *wanted = function(x), *found = cb_call(fast, x);
    assert_null(cb_error());
    cb_tensor *exact = cb_to(wanted, CB_F64),
              *differs = cb_abs(cb_sub(cb_to(found, CB_F64), exact));
    differs = cb_div(differs, cb_add(cb_abs(exact), 1.0));
    assert_true(cb_item(cb_amax(differs)) < 1e-5);
    char *text = cb_explain(fast);
    const char *engine = strstr(text, "engine: C");
    assert_non_null(engine);
    const char *different = strstr(engine, " different");
    assert_non_null(different);
    while (different[-1] >= '0' && different[-1] <= '9') different--;
    if (atoi(different) > most) FAIL("more than %d kernels differ in %s", most, text);
    cb_free_text(text);
    cb_function_free(fast);
    cb_scope_close();
}

/* Kernels that differ in a float, or in two that are one number in each. */
static cb_tensor *many_numbers(cb_tensor *x) {
    cb_tensor *row[STEPS];
    for (int i = 0; i < STEPS; i++) {
        double number = 0.5 + 0.25 * i;
        row[i] = cb_sum(cb_mul(cb_add(x, number), cb_sub(x, i % 2 ? number : 1.0)), -1);
    }
    return cb_stack(row, STEPS, 0);
}

/* Cells that are written one by one: each at another place, from other places. */
static cb_tensor *cells(cb_tensor *x) {
    cb_tensor *d = cb_mul(cb_ones(cb_dims(ROWS, ROWS)), 9.0);
    for (int i = 1; i < ROWS; i++)
        for (int j = 1; j < ROWS; j++) {
            cb_tensor *above = cb_select(cb_select(d, 0, i - 1), 0, j);
            cb_tensor *beside = cb_select(cb_select(d, 0, i), 0, j - 1);
            cb_tensor *own = cb_abs(cb_sub(cb_select(cb_select(x, 0, i), 0, j), 0.5));
            cb_assign(cb_select(cb_select(d, 0, i), 0, j),
                      cb_add(own, cb_minimum(above, cb_mul(beside, 0.5))));
        }
    return d;
}

/* A recurrence whose steps are all kept. */
static cb_tensor *average(cb_tensor *x) {
    cb_tensor *row[4 * STEPS], *y = cb_select(x, 0, 0);
    for (int i = 0; i < 4 * STEPS; i++) {
        y = cb_add(cb_mul(y, 0.9), cb_mul(cb_select(x, 0, i % ROWS), 0.1));
        row[i] = y;
    }
    return cb_stack(row, 4 * STEPS, 0);
}

/* Integers, and what is drawn: the number of the draw is all that differs. */
static cb_tensor *draws(cb_tensor *x) {
    cb_tensor *row[STEPS];
    cb_manual_seed(3);
    for (int i = 0; i < STEPS; i++)
        row[i] = cb_add(cb_sum(cb_rand_like(x)), cb_sum(cb_mul(cb_to(x, CB_I64), 11 + i)));
    return cb_stack(row, STEPS, 0);
}

/* Steps of a recurrence over rows that are no small work each, from other places. */
static cb_tensor *paths(cb_tensor *x) {
    cb_tensor *row[STEPS], *y = cb_slice(x, 0, 0, LONG);
    for (int i = 0; i < STEPS; i++) {
        cb_tensor *all = cb_add(cb_unsqueeze(y, 0), cb_unsqueeze(cb_slice(x, 0, i, i + LONG), 1));
        y = cb_amax(all, 1);
        row[i] = cb_sum(all, 0);
    }
    return cb_add(cb_stack(row, STEPS, 0), y);
}

static cb_tensor *wave(int64_t rows, int64_t columns) {
    cb_tensor *all = cb_sin(cb_arange(0, rows * columns));
    return cb_reshape(cb_mul(all, 3.0), cb_dims(rows, columns));
}

static void kernels_share_code(void **state) {
    (void)state;
    cb_set_option("cache", "0");
    cb_scope_open();
    expect_shared(many_numbers, wave(3, 5), 10);
    expect_shared(many_numbers, cb_to(wave(40, 50), CB_F64), 10);
    expect_shared(cells, wave(ROWS, ROWS), 45); /* of 64: small places are no arguments */
    expect_shared(draws, wave(3, 4), 15);
    expect_shared(paths, cb_flatten(wave(STEPS, LONG)), 15);
    cb_scope_close();
}

/* "$copy" is the source, whose compiler's arguments are kept, too. */
static void slight_files_are_scalar(void **state) {
    (void)state;
    char body[600], path[300], text[4000] = "";
    snprintf(body, sizeof body, "echo \"$@\" >>%s/said\nexec cc \"$@\"", root);
    use_script("compiler", body);
    cb_set_option("cache", "0");
    cb_scope_open();
    expect_shared(average, wave(ROWS, 3), 60);
    snprintf(path, sizeof path, "%s/said", root);
    FILE *said = fopen(path, "r");
    assert_non_null(said);
    size_t length = fread(text, 1, sizeof text - 1, said);
    fclose(said);
    assert_true(length > 0);
    assert_non_null(strstr(text, "-O1 -fno-openmp-simd"));
    cb_scope_close();
}

static int kind;

static cb_tensor *kinds(cb_tensor *x) {
    return kind == 0 ? cb_sin(x) : kind == 1 ? cb_exp(x) : cb_tanh(x);
}

/* A function whose code the process has stops where the first one did: the limit is of kinds. */
static void limits_are_of_kinds(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = wave(ROWS, 3);
    cb_set_option("recompile_limit", "2");
    cb_function *both[2]; /* code stays while a function has it */
    for (int again = 0; again < 2; again++) {
        cb_function *fast = both[again] = cb_compile(kinds, "backend=c");
        for (kind = 0; kind < 3; kind++) cb_call(fast, x);
        cb_function_stats stats = cb_stats(fast);
        assert_int_equal(stats.graphs, 2);
        assert_int_equal(stats.compiled, again ? 0 : 2);
        assert_int_equal(stats.eager_calls, 1);
    }
    for (int k = 0; k < 2; k++) cb_function_free(both[k]);
    cb_set_option("recompile_limit", "8");
    cb_scope_close();
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(kernels_share_code),
        CASE(limits_are_of_kinds),
        CASE(slight_files_are_scalar),
    };
    return cmocka_run_group_tests_name("shared code", tests, NULL, NULL);
}
