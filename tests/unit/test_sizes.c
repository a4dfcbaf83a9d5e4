/* Compiled functions over sizes that change: what they compute, beside eager, and how many
 * of them had to be compiled. */
#include "capture_support.h"
#include <pthread.h>

enum { MOST = 131 };

static cb_tensor *pointwise(cb_tensor *x) { return gelu(cb_add(x, 3)); }

static cb_tensor *softmax(cb_tensor *x) { return cb_softmax(cb_mul(x, 2.0), -1); }

static cb_tensor *normalized(cb_tensor *x) {
    cb_tensor *d = cb_sub(x, cb_mean(x, cb_dims(-1), true));
    cb_tensor *v = cb_mean(cb_mul(d, d), cb_dims(-1), true);
    return gelu(cb_mul(d, cb_rsqrt(cb_add(v, 1e-5))));
}

static cb_tensor *columns(cb_tensor *x) { return cb_mean(cb_softmax(x, 0), cb_dims(0), false); }

static cb_tensor *turned(cb_tensor *x) {
    cb_tensor *padded = cb_cat(((cb_tensor *[]){x, cb_neg(x)}), 2, 1);
    return cb_add(cb_contiguous(cb_transpose(padded, 0, 1)), 1.0);
}

static cb_tensor *copied(cb_tensor *x) { return cb_contiguous(cb_transpose(x, 0, 1)); }

static cb_tensor *transposed(cb_tensor *x) { /* two groups of columns, which are counted */
    cb_tensor *group = cb_reshape(cb_to(cb_arange(0, 2), CB_F32), cb_dims(2, 1, 1));
    cb_tensor *y = cb_reshape(x, cb_dims(cb_size(x, 0), 2, cb_size(x, 1) / 2));
    return cb_add(cb_contiguous(cb_permute(y, cb_dims(1, 2, 0))), group);
}

static cb_tensor *running(cb_tensor *x) { return cb_sub(cb_cumsum(x, 0), cb_sum(x)); }

static cb_tensor *wave(int64_t rows, int64_t columns) {
    cb_tensor *x = cb_to(cb_arange(0, rows * columns), CB_F32);
    return cb_reshape(cb_sin(cb_mul(x, 0.37)), cb_dims(rows, columns));
}

/* The function for so many columns (0: five rows of varying length), of sizes low, low + step ...;
 * how many of them were compiled. */
static int64_t sweep_columns(cb_function_1 *function, const char *options, int columns, int low,
                             int high, int step) {
    cb_function *fast = cb_compile(function, options);
    for (int n = low; n < high; n += step) {
        cb_scope_open();
        cb_tensor *x = columns ? wave(n, columns) : wave(5, n);
        expect_tensor(cb_call(fast, x), function(x), 2e-5, 2e-5);
        cb_scope_close();
    }
    assert_null(cb_error());
    int64_t compiled = cb_stats(fast).compiled;
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    return compiled;
}

static int64_t sweep(cb_function_1 *function, const char *options, bool by_row, int low, int high,
                     int step) {
    return sweep_columns(function, options, by_row ? 0 : 48, low, high, step);
}

static const struct {
    const char *name;
    cb_function_1 *function;
    bool by_row;
    int most; /* compilations for all sizes from 0 to 130, of which 1 is one by itself */
} functions[] = {
    {"pointwise", pointwise, false, 2},
    {"softmax", softmax, false, 2},
    {"softmax by row", softmax, true, 2},
    {"normalized", normalized, false, 2},
    {"normalized by row", normalized, true, 3}, /* means of powers of two are products */
    /* The same, the mean of nothing, and 48 columns beside 48 rows, or a few more, which are taken
     * for a size that varies. */
    {"columns", columns, false, 6},
    {"turned", turned, false, 2},
    {"copied", copied, false, 2},
    {"transposed", transposed, false, 3}, /* 2 rows in 2 groups: 48 is one number more */
    {"running", running, false, 4},       /* sums of sums from 512 elements on, and from 6144 */
};

/* From the first size to the last, all of them between. */
static void test_every_size(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "8");
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        int64_t compiled = sweep(functions[k].function, "", functions[k].by_row, 0, MOST, 1);
        if (compiled > functions[k].most)
            FAIL("%s was compiled %d times", functions[k].name, (int)compiled);
    }
}

static cb_tensor *tail(cb_tensor *x) { return cb_softmax(cb_slice(x, 1, 1, cb_size(x, 1), 1), 1); }
static cb_tensor *steps(cb_tensor *x) {
    int64_t n = cb_size(x, 1);
    return cb_sub(cb_slice(x, 1, 1, n, 1), cb_slice(x, 1, 0, n - 1, 1));
}
static cb_tensor *variance(cb_tensor *x) { return cb_var(x, 1); }
static cb_tensor *centred(cb_tensor *x) { return cb_sub(x, cb_mean(x, 1, true)); }

/* n - 1 of this size is n of the one before, a mean divides by n, and a variance by n - 1: one
 * compilation for a size that is said to vary, two for one that does. */
static void test_one_less(void **state) {
    (void)state;
    cb_function_1 *const function[] = {tail, steps, variance, centred};
    for (int k = 0; k < 4; k++)
        for (int first = 10; first < 60; first += 43) {
            cb_cleanup(); /* no code of the one before */
            assert_int_equal(sweep(function[k], "dynamic=1", true, first, first + 4, 1), 1);
            cb_cleanup(); /* no code of the one before */
            assert_int_equal(sweep(function[k], "", true, first, first + 4, 1), 2);
        }
}

static cb_tensor *mixed(cb_tensor *x) { /* conditions on rows and columns, values of either */
    cb_tensor *y = cb_sub(cb_roll(x, 1, 1), cb_roll(x, -1, 0));
    return cb_add(cb_mul(y, cb_slice(x, 1, 0, 1)), cb_slice(x, 0, 0, 1));
}

static cb_tensor *cut(cb_tensor *x) { /* rows that are no run */
    return cb_mul(cb_slice(x, 1, 1, cb_size(x, 1)), 3.0);
}

static cb_tensor *scaled(cb_tensor *x) { /* a number of each row, and of each column */
    return cb_add(cb_mul(x, cb_slice(x, 1, 0, 1)), cb_slice(x, 0, 0, 1));
}

static cb_tensor *halved(cb_tensor *x) { return cb_slice(cb_add(x, 1), 1, 0, cb_size(x, 1), 2); }

/* Elements that lie two or three apart, or as far as rows of so many are long: a text for each, one
 * of long rows and one of short ones. */
static void test_near_elements(void **state) {
    (void)state;
    for (int rows = 2; rows < 6; rows++) { /* a step of 2 is taken for two rows */
        assert_in_range(sweep_columns(halved, "dynamic=1", 4003, rows, rows + 1, 1), 0, 1);
        assert_in_range(sweep_columns(copied, "dynamic=1", rows, 4003, 4004, 1), 0, 1);
    }
    for (int columns = 3; columns < 9; columns++)
        assert_in_range(sweep_columns(halved, "dynamic=1", columns, 4003, 4004, 1), 0, 1);
}

static cb_tensor *in_runs(cb_tensor *x) { /* of 24 */
    int64_t groups = cb_size(x, 1) / 24;
    cb_tensor *group = cb_reshape(cb_to(cb_arange(0, groups), CB_F32), cb_dims(groups, 1, 1));
    cb_tensor *y = cb_reshape(x, cb_dims(cb_size(x, 0), groups, 24));
    return cb_add(cb_contiguous(cb_permute(y, cb_dims(1, 2, 0))), group);
}

/* Elements that lie a multiple of 4096 bytes apart go through tiles, whole ones. */
static void test_tiles(void **state) {
    (void)state;
    const char *const options[] = {"dynamic=0", "dynamic=1"};
    int threads = cb_threads();
    cb_set_threads(3);
    for (int k = 0; k < 2; k++) {
        assert_in_range(sweep_columns(copied, options[k], 1024, 67, 68, 1), 0, 1);
        assert_in_range(sweep_columns(turned, options[k], 1024, 67, 68, 1), 0, 1);
        assert_in_range(sweep_columns(in_runs, options[k], 3072, 67, 68, 1), 0, 1);
    }
    cb_set_threads(threads);
}

/* Parts of a result that begin within a row, of each number of elements that a text has, and of
 * rows that are one run. */
static void test_short_rows_in_parts(void **state) {
    (void)state;
    int threads = cb_threads();
    cb_set_threads(3);
    for (int rows = 2; rows < 11; rows++)
        assert_in_range(sweep_columns(transposed, "dynamic=1", 36006, rows, rows + 1, 1), 0, 1);
    for (int columns = 2; columns < 20; columns += 9) {
        assert_in_range(sweep_columns(mixed, "dynamic=1", columns, 20011, 20012, 1), 0, 1);
        assert_in_range(sweep_columns(cut, "dynamic=1", columns + 1, 20011, 20012, 1), 0, 1);
        assert_in_range(sweep_columns(scaled, "dynamic=1", columns, 20011, 20012, 1), 0, 1);
    }
    cb_set_threads(threads);
}

static cb_tensor *down(cb_tensor *x) { return cb_softmax(x, 0); }

/* Up to 128 rows are folded in registers, whole blocks of their columns, and what is computed for
 * each is kept. */
static void test_few_rows(void **state) {
    (void)state;
    assert_in_range(sweep_columns(columns, "dynamic=1", 200, 3, 20, 1), 1, 2);
    assert_in_range(sweep_columns(running, "dynamic=1", 200, 3, 20, 1), 1, 2);
    assert_in_range(sweep_columns(down, "dynamic=1", 200, 3, 131, 21), 1, 1);
}

static cb_tensor *from_first(cb_tensor *x) { /* of 77 rows, and of seven times 11 */
    cb_tensor *y = cb_div(cb_sub(x, cb_slice(x, 0, 0, 1)), cb_sum(cb_abs(x), cb_dims(0), true));
    return cb_add(y, cb_amax(cb_reshape(x, cb_dims(7, 11, cb_size(x, 1))), cb_dims(0, 1), false));
}

static cb_tensor *slabs(cb_tensor *x) {
    return cb_softmax(cb_reshape(x, cb_dims(7, 11, cb_size(x, 1))), 1);
}

/* Rows do not go on where the ones before end, have a number each, or ask where they are: they are
 * folded one by one. */
static cb_tensor *one_by_one(cb_tensor *x) {
    cb_tensor *part = cb_slice(x, 1, 1, cb_size(x, 1)), *first = cb_slice(x, 1, 0, 1);
    cb_tensor *weighted = cb_sum(cb_mul(x, first), cb_dims(0), true);
    cb_tensor *largest = cb_to(cb_argmax(x, 0, true), CB_F32);
    cb_tensor *each = cb_slice(cb_add(largest, weighted), 1, 1, cb_size(x, 1));
    return cb_mul(cb_softmax(part, 0), each);
}

/* Few columns, of several rows at a time, as one run, under a mask, or of a length that has a text.
 */
static void test_few_columns(void **state) {
    (void)state;
    cb_function_1 *const function[] = {columns, from_first, slabs, mixed, scaled, one_by_one, cut};
    for (int k = 0; k < 7; k++) {
        cb_function *fast = cb_compile(function[k], "dynamic=1");
        for (int n = 2 + (k == 5); n < 66; n += n < 20 ? 1 : 11) { /* one behind the first: none */
            cb_scope_open();
            cb_tensor *x = wave(77, n);
            expect_tensor(cb_call(fast, x), function[k](x), 2e-5, 2e-5);
            cb_scope_close();
        }
        assert_in_range(cb_stats(fast).compiled, 0, 2);
        cb_function_free(fast);
    }
}

static cb_tensor *norms(cb_tensor *x) { return cb_sum(cb_mul(x, x), 1); }
static cb_tensor *fractions(cb_tensor *x) { return cb_div(x, cb_sum(cb_abs(x), 1, true)); }

/* Many of which each is a lane: two texts for all, literal lengths or not. Results that lie go
 * along whole blocks of them. */
static void test_short_rows(void **state) {
    (void)state;
    assert_in_range(sweep_columns(fractions, "dynamic=1", 19, 203, 207, 1), 0, 1);
    cb_function_1 *const function[] = {norms, softmax, fractions};
    for (int k = 0; k < 3; k++) {
        cb_function *fast = cb_compile(function[k], "dynamic=1");
        for (int n = 2; n < 10; n++) {
            cb_scope_open();
            cb_tensor *x = wave(5003, n);
            expect_tensor(cb_call(fast, x), function[k](x), 2e-5, 2e-5);
            cb_scope_close();
        }
        assert_in_range(cb_stats(fast).compiled, 0, 1);
        cb_function_free(fast);
    }
}

/* Rows of GPT-2's width: one thread's work each, whether 8 of them are there, 11 or 16. */
static void test_wide_rows(void **state) {
    (void)state;
    assert_in_range(sweep_columns(normalized, "", 768, 8, 24, 1), 1, 2);
}

static void test_options(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "100");
    assert_int_equal(sweep(softmax, "", false, 40, 60, 1), 2);
    assert_int_equal(sweep(softmax, "dynamic=0", true, 61, 65, 1), 4);
    assert_int_equal(sweep(softmax, "dynamic=0", false, 61, 65, 1), 1); /* of any number of rows */
    assert_int_equal(sweep(softmax, "dynamic=1", true, 40, 60, 1), 1);
}

/* Kernels of their own, so that no case runs the code of another one. */
static cb_tensor *with_sin(cb_tensor *x) { return cb_softmax(cb_sin(x), -1); }
static cb_tensor *with_cos(cb_tensor *x) { return cb_softmax(cb_cos(x), -1); }
static cb_tensor *with_tanh(cb_tensor *x) { return cb_softmax(cb_tanh(x), -1); }
static cb_tensor *with_abs(cb_tensor *x) { return cb_softmax(cb_abs(x), -1); }
static cb_tensor *with_exp(cb_tensor *x) { return cb_softmax(cb_exp(x), -1); }

/* Rows of varying length: open from the first compilation on where that is marked. */
static void test_marks(void **state) {
    (void)state;
    static const struct {
        cb_function_1 *function;
        const char *options;
        int marked, compiled;
    } cases[] = {{with_sin, "", 1, 1},
                 {with_cos, "", -1, 1},
                 {with_tanh, "", 0, 2},
                 {with_abs, "fullgraph=1", 1, 1},
                 {with_exp, "dynamic=0", 1, 5}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cb_function *fast = cb_compile(cases[k].function, cases[k].options);
        for (int n = 201; n < 206; n++) {
            cb_scope_open();
            cb_tensor *x = wave(40, n);
            assert_int_equal(cb_mark_dynamic(x, cases[k].marked), CB_OK);
            expect_tensor(cb_call(fast, x), cases[k].function(x), 2e-5, 2e-5);
            cb_scope_close();
        }
        assert_int_equal(cb_stats(fast).compiled, cases[k].compiled);
        cb_function_free(fast);
    }
    cb_tensor *x = wave(2, 3);
    assert_int_equal(cb_mark_dynamic(x, 2), CB_ERR_SHAPE);
    assert_string_equal(strchr(cb_error(), 'm'), "mark_dynamic: dim 2 of a tensor of rank 2");
    assert_int_equal(cb_mark_dynamic(x, -3), CB_ERR_SHAPE);
    assert_int_equal(cb_mark_dynamic(NULL, 0), CB_ERR_ARGUMENT);
    cb_clear_error();
}

/* Sizes that no compiler ran for count for no limit, and the last 8 of them
 * stay, however little memory they may hold. */
static void test_entries_leave(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "3");
    cb_set_option("entries_mb", "0");
    cb_function *fast = cb_compile(softmax, "");
    for (int round = 0; round < 2; round++)
        for (int n = 140; n < 180; n++) {
            cb_scope_open();
            cb_tensor *x = wave(n, 48);
            expect_tensor(cb_call(fast, x), softmax(x), 2e-5, 2e-5);
            cb_scope_close();
        }
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.eager_calls, 0);
    assert_in_range(stats.graphs, 40 + 40 - 8 - 3, 80); /* most were recorded again */
    assert_in_range(stats.compiled, 0, 2);
    char *text = cb_explain(fast);
    int entries = 0;
    for (const char *at = text; (at = strstr(at, "C, compiled for other sizes")); at++) entries++;
    assert_int_equal(entries, 8);
    cb_free_text(text);
    cb_set_option("entries_mb", "48");
    cb_function_free(fast);
}

static cb_tensor *sum_of_products(cb_tensor *x) { return cb_sum(cb_mul(cb_add(x, 1.0), x), -1); }

/* Sizes that vary at once have code of many kinds: 1 or more rows, short, split, past the caches.
 * Eight of them count as one. */
static void test_kinds_of_sizes(void **state) {
    (void)state;
    static const int64_t size[][2] = {{2, 7714},  {3, 61509}, {3, 5239}, {1, 22392},
                                      {1, 61067}, {1, 1721},  {1, 330},  {3, 500}};
    enum { SIZES = sizeof size / sizeof *size };
    cb_set_option("recompile_limit", "2");
    cb_function *fast = cb_compile(sum_of_products, "dynamic=1");
    for (int i = 0; i < 2 * SIZES; i++) {
        cb_scope_open();
        cb_tensor *x = wave((int)size[i % SIZES][0], (int)size[i % SIZES][1]);
        expect_tensor(cb_call(fast, x), sum_of_products(x), 1e-4, 1e-4);
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_in_range(cb_stats(fast).compiled, 3, SIZES);
    cb_set_option("recompile_limit", "8");
    cb_function_free(fast);
}

typedef struct SizesThread {
    cb_function *fast;
    int first;
} SizesThread;

static void *call_sizes(void *user) {
    const SizesThread *caller = user;
    for (int k = 0; k < 60; k++) {
        cb_scope_open();
        cb_tensor *x = wave(100 + (caller->first + k) % 40, 48);
        expect_tensor(cb_call(caller->fast, x), softmax(x), 2e-5, 2e-5);
        cb_scope_close();
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    SizesThread caller[THREADS];
    cb_function *fast = cb_compile(softmax, "");
    for (int t = 0; t < THREADS; t++) {
        caller[t] = (SizesThread){fast, 7 * t};
        assert_int_equal(pthread_create(&thread[t], NULL, call_sizes, &caller[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    assert_in_range(cb_stats(fast).compiled, 0, 2);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_entries_leave),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_every_size),
        cmocka_unit_test(test_kinds_of_sizes),
        cmocka_unit_test(test_wide_rows),
        cmocka_unit_test(test_one_less),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_near_elements),
        cmocka_unit_test(test_short_rows_in_parts),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_few_columns),
        cmocka_unit_test(test_short_rows),
    };
    setenv("CARBIDE_PASSING_SIZES", "0", 1); /* all of them are compiled */
    return run_counted(tests);
}
