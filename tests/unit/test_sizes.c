/* Compiled functions over sizes that change: what they compute, beside eager, and how many
 * of them had to be compiled. */
#include "capture_support.h"

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

static cb_tensor *running(cb_tensor *x) { return cb_sub(cb_cumsum(x, 0), cb_sum(x)); }

static cb_tensor *wave(int64_t rows, int64_t columns) {
    cb_tensor *x = cb_to(cb_arange(0, rows * columns), CB_F32);
    return cb_reshape(cb_sin(cb_mul(x, 0.37)), cb_dims(rows, columns));
}

/* The function for rows of 48 (by_row: rows of varying length), of sizes low, low + step ...; how
 * many of them were compiled. */
static int64_t sweep(cb_function_1 *function, const char *options, bool by_row, int low, int high,
                     int step) {
    cb_function *fast = cb_compile(function, options);
    for (int n = low; n < high; n += step) {
        cb_scope_open();
        cb_tensor *x = by_row ? wave(5, n) : wave(n, 48);
        expect_tensor(cb_call(fast, x), function(x), 2e-5, 2e-5);
        cb_scope_close();
    }
    assert_null(cb_error());
    int64_t compiled = cb_stats(fast).compiled;
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    return compiled;
}

static const struct {
    const char *name;
    cb_function_1 *function;
    bool by_row;
    int most; /* compilations for all sizes from 0 to 130 */
} functions[] = {
    {"pointwise", pointwise, false, 2},
    {"softmax", softmax, false, 2},
    {"softmax by row", softmax, true, 3},
    {"normalized", normalized, false, 2},
    {"normalized by row", normalized, true, 5},
    {"columns", columns, false, 20},
    {"turned", turned, false, 4},
    {"running", running, false, 20},
};

/* From the first size to the last, all of them between. */
static void test_every_size(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "1000");
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        int64_t compiled = sweep(functions[k].function, "", functions[k].by_row, 0, MOST, 1);
        if (compiled > functions[k].most)
            FAIL("%s was compiled %d times", functions[k].name, (int)compiled);
    }
}

static void test_options(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "100");
    assert_int_equal(sweep(softmax, "", false, 40, 60, 1), 2);
    assert_int_equal(sweep(softmax, "dynamic=0", false, 61, 65, 1), 4);
    assert_int_equal(sweep(normalized, "dynamic=1", false, 40, 60, 1), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_every_size),
    };
    return run_counted(tests);
}
