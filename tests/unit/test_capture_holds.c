/* What compiled functions hold for: strides, numbers to the bit, what a function keeps, which
 * frozen tensors have changed. Each against the same calls run eagerly, and with the number of
 * graphs that they take. */
#include "capture_support.h"

/* Elements, and signs of zeros. */
static void expect_identical(cb_tensor *x, cb_tensor *y) {
    float a[64], b[64];
    expect_equal(x, y);
    assert_int_equal(cb_read(x, a, CB_F32), CB_OK);
    assert_int_equal(cb_read(y, b, CB_F32), CB_OK);
    for (int64_t i = 0; i < cb_numel(x); i++)
        if (signbit(a[i]) != signbit(b[i])) fail_msg("element %lld: another sign", (long long)i);
}

static void expect_equal_contiguous(cb_tensor *x, cb_tensor *y) {
    expect_equal(cb_contiguous(x), cb_contiguous(y));
}

/* ---- strides -------------------------------------------------------------------------------- */

static cb_tensor *adds(cb_tensor *x, cb_tensor *y) { return cb_add(cb_mul(x, 2.0), y); }

enum { LAYOUTS = 7 };

/* The same sizes, 4 x 4, in all ways to lie; a row that repeats; a whole that repeats. */
static void make_layouts(cb_tensor **x) {
    cb_tensor *wide = cb_reshape(cb_sin(cb_to(cb_arange(0, 64), CB_F32)), cb_dims(8, 8));
    x[0] = cb_clone(cb_slice(wide, 0, 0, 4, 1));
    x[0] = cb_clone(cb_slice(x[0], 1, 0, 4, 1));
    x[1] = cb_transpose(cb_clone(x[0]), 0, 1);
    x[2] = cb_slice(cb_slice(wide, 0, 0, 4, 1), 1, 2, 6, 1);
    x[3] = cb_slice(cb_slice(wide, 0, 0, 8, 2), 1, 0, 8, 2);
    x[4] = cb_slice(cb_slice(wide, 0, 0, 8, 2), 1, 1, 5, 1);
    x[5] = cb_expand(cb_slice(wide, 0, 3, 4, 1), cb_dims(4, 8));
    x[5] = cb_slice(x[5], 1, 0, 4, 1);
    x[6] = cb_expand(cb_slice(cb_slice(wide, 0, 3, 4, 1), 1, 5, 6, 1), cb_dims(4, 4));
}

static void expect_guarded(const char *options) {
    cb_function *fast = cb_compile(adds, options);
    cb_tensor *x[LAYOUTS];
    cb_scope_open();
    make_layouts(x);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < LAYOUTS; i++)
            for (int k = 0; k < LAYOUTS; k++) {
                cb_tensor *y = k == i ? cb_mul(x[k], 1.0) : x[k]; /* never the same tensor */
                expect_equal_contiguous(cb_call(fast, x[i], y), adds(x[i], y));
            }
    assert_int_equal(cb_stats(fast).graphs, LAYOUTS * LAYOUTS - (LAYOUTS - 1));
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_scope_close();
    cb_function_free(fast);
}

/* Strides of dimensions with one element, and of empty tensors, are nobody's business. */
static void expect_free(const char *options) {
    cb_function *fast = cb_compile(adds, options);
    cb_scope_open();
    cb_tensor *wide = ramp(6, 4), *column = cb_slice(wide, 1, 0, 1, 1);
    cb_tensor *x[] = {ramp(1, 4), cb_slice(wide, 0, 0, 1, 1),
                      cb_transpose(cb_slice(ramp(4, 1), 0, 0, 4, 1), 0, 1)};
    for (int i = 0; i < 3; i++)
        expect_equal_contiguous(cb_call(fast, x[i], ramp(1, 4)), adds(x[i], ramp(1, 4)));
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_tensor *empty[] = {cb_empty(cb_dims(0, 4), CB_F32), cb_slice(wide, 0, 2, 2, 1),
                          cb_transpose(cb_empty(cb_dims(4, 0), CB_F32), 0, 1)};
    for (int i = 0; i < 3; i++) assert_int_equal(cb_numel(cb_call(fast, empty[i], ramp(1, 4))), 0);
    assert_int_equal(cb_stats(fast).graphs, 2);
    expect_equal_contiguous(cb_call(fast, column, ramp(1, 4)), adds(column, ramp(1, 4)));
    assert_int_equal(cb_stats(fast).graphs, 3);
    cb_scope_close();
    cb_function_free(fast);
}

/* What a replay hands out looks as what was recorded, whatever its rank. */
static int64_t seen[2][CB_MAX_RANK + 1][CB_MAX_RANK], (*seen_now)[CB_MAX_RANK];
static cb_tensor *looks(cb_tensor *x) {
    for (int rank = 1; rank <= CB_MAX_RANK; rank++) {
        cb_tensor *y = cb_mul(x, 2.0);
        for (int i = 1; i < rank; i++) y = cb_unsqueeze(y, -1);
        y = cb_transpose(y, 0, -1);
        for (int i = 0; i < cb_rank(y); i++)
            seen_now[rank][i] = cb_size(y, i) * 1000 + cb_stride(y, i);
    }
    return cb_mul(x, 2.0);
}

static void test_shells_of_each_rank(void **state) {
    (void)state;
    cb_function *fast = cb_compile(looks, VM);
    cb_scope_open();
    cb_tensor *x = ramp(1, 7);
    for (int round = 0; round < 2; round++) {
        memset(seen_now = seen[round], 0, sizeof seen[round]);
        cb_call(fast, cb_reshape(x, cb_dims(7)));
    }
    assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
    assert_int_equal(seen[1][CB_MAX_RANK][CB_MAX_RANK - 1] / 1000, 7);
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

/* A view of nothing has the strides of its view, as in eager: guards alone take any. */
static int64_t repeated_stride;
static cb_tensor *repeats_nothing(cb_tensor *x) {
    cb_tensor *y = cb_expand(cb_unsqueeze(x, 0), cb_dims(2, 0, 3));
    repeated_stride = cb_stride(y, 0);
    return cb_mul(y, 2.0);
}

static void test_strides_of_nothing(void **state) {
    (void)state;
    cb_function *fast = cb_compile(repeats_nothing, VM);
    cb_scope_open();
    for (int round = 0; round < 3; round++) {
        repeated_stride = -1;
        assert_non_null(cb_call(fast, cb_zeros(cb_dims(0, 3))));
        assert_int_equal(repeated_stride, 0);
    }
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

static void test_strides(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "64");
    expect_guarded(VM);
    expect_guarded("fullgraph=1, " VM);
    expect_free(VM);
    expect_free("fullgraph=1, " VM);
    cb_set_option("recompile_limit", "8");
    assert_null(cb_error());
}

/* A tensor from outside has no guard of its own: its op does not match. */
static cb_tensor *outside;

static cb_tensor *adds_outside(cb_tensor *x) { return cb_add(cb_mul(x, 2.0), outside); }

static void test_captured_strides(void **state) {
    (void)state;
    cb_function *fast = cb_compile(adds_outside, VM);
    cb_tensor *x[LAYOUTS];
    cb_scope_open();
    make_layouts(x);
    cb_set_option("recompile_limit", "64");
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < LAYOUTS; i++) {
            outside = x[i];
            cb_tensor *y = cb_mul(x[1], 1.0);
            expect_equal_contiguous(cb_call(fast, y), adds_outside(y));
        }
    assert_int_equal(cb_stats(fast).graphs, LAYOUTS);
    outside = cb_to(x[0], CB_F64);
    cb_tensor *y = cb_call(fast, x[0]);
    assert_int_equal(cb_dtype_of(y), CB_F64);
    outside = cb_slice(x[0], 0, 0, 1, 1);
    expect_equal(cb_call(fast, x[0]), adds_outside(x[0]));
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_set_option("recompile_limit", "8");
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

/* ---- numbers -------------------------------------------------------------------------------- */

static double number;
static int which;

static cb_tensor *by_number(cb_tensor *x) { return cb_mul(x, number); }
static cb_tensor *by_attribute(cb_tensor *x) { return cb_leaky_relu(x, number); }
static cb_tensor *by_assignment(cb_tensor *x) {
    cb_tensor *y = cb_clone(x);
    cb_fill_(y, number);
    return y;
}

static cb_tensor *by_kind(cb_tensor *x) {
    cb_tensor *y = which % 4 == 0   ? cb_mul(x, 1.0)
                   : which % 4 == 1 ? cb_mul(x, INT64_C(0x3ff0000000000000))
                   : which % 4 == 2 ? cb_mul(x, 1)
                                    : cb_mul(x, (bool)1);
    return which / 4 % 2 ? cb_clone(cb_transpose(y, 0, 0)) : cb_clone(y);
}

/* Zeros differ by their sign, a NaN is itself, and each number has its graph, where none may be an
 * argument. */
static void test_numbers(void **state) {
    (void)state;
    cb_function_1 *functions[] = {by_number, by_attribute, by_assignment};
    const double numbers[] = {0.0, -0.0, 2.0, -2.0, 0x1p-1074};
    for (int f = 0; f < 3; f++) {
        cb_function *fast = cb_compile(functions[f], "backend=vm, dynamic=off");
        cb_scope_open();
        cb_tensor *x = ramp(2, 4);
        for (int i = 0; i < 15; i++) {
            number = numbers[i % 5];
            expect_identical(cb_call(fast, x), functions[f](x));
        }
        number = NAN;
        for (int i = 0; i < 3; i++) {
            float read[8];
            assert_int_equal(cb_read(cb_call(fast, x), read, CB_F32), CB_OK);
            assert_true(isnan(read[0]));
        }
        assert_int_equal(cb_stats(fast).graphs, 6);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_scope_close();
        cb_function_free(fast);
    }
    assert_null(cb_error());
}

/* They are the same bits, or the same value, and give other dtypes. */
static void test_kinds_of_numbers(void **state) {
    (void)state;
    const cb_dtype dtypes[] = {CB_F32, CB_I64, CB_I64, CB_BOOL};
    cb_function *fast = cb_compile(by_kind, VM);
    cb_scope_open();
    cb_tensor *x = cb_full(cb_dims(2), true, CB_BOOL);
    for (int step = 0; step < 24; step++) {
        which = step * 3;
        cb_tensor *y = cb_call(fast, x), *expected = by_kind(x);
        assert_int_equal(cb_dtype_of(y), dtypes[which % 4]);
        assert_true(cb_item_int(cb_sum(y)) == cb_item_int(cb_sum(expected)));
    }
    assert_int_equal(cb_stats(fast).graphs, 8);
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

/* ---- what the function keeps ---------------------------------------------------------------- */

static cb_tensor *saved[3];

/* By the bits of which: y, z and the result are kept; the ops are the same. */
static cb_tensor *keeps(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *z = cb_exp(y), *sum = cb_add(z, y);
    cb_tensor *made[] = {y, z, sum};
    for (int i = 0; i < 3; i++) saved[i] = which >> i & 1 ? cb_keep(made[i]) : NULL;
    return which & 8 ? z : sum;
}

static void test_keeping(void **state) {
    (void)state;
    cb_function *fast = cb_compile(keeps, VM);
    cb_set_option("recompile_limit", "32");
    cb_scope_open();
    cb_tensor *x = ramp(2, 4), *expected[3] = {cb_mul(x, 2.0)};
    expected[1] = cb_exp(expected[0]);
    expected[2] = cb_add(expected[1], expected[0]);
    for (int step = 0; step < 48; step++) {
        which = step * 7 % 16;
        cb_tensor *result = cb_call(fast, x);
        expect_equal(result, expected[which & 8 ? 1 : 2]);
        for (int i = 0; i < 3; i++) {
            if (saved[i]) expect_equal(saved[i], expected[i]);
            if (saved[i] != result) cb_free(saved[i]);
        }
        bool both = result == saved[1] || result == saved[2]; /* kept and returned */
        assert_int_equal(both, which & 8 ? which >> 1 & 1 : which >> 2 & 1);
        if (both) cb_free(result);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_int_equal(cb_stats(fast).graphs, 8); /* a result that is kept as well is a result */
    cb_scope_close();
    cb_set_option("recompile_limit", "8");
    cb_function_free(fast);
    assert_null(cb_error());
}

/* ---- frozen tensors ------------------------------------------------------------------------- */

static cb_tensor *weight, *half, *beside;

static cb_tensor *uses_weight(cb_tensor *x) { return cb_mul(x, cb_exp(weight)); }

static cb_tensor *writes_half(cb_tensor *x) {
    cb_add_(half, 0.5);
    return cb_mul(x, cb_exp(weight));
}

static cb_tensor *writes_weight(cb_tensor *x) {
    cb_add_(weight, 0.5);
    return cb_mul(x, cb_exp(weight));
}

static cb_tensor *writes_weight_only(cb_tensor *x) {
    cb_add_(weight, 0.5);
    return cb_mul(x, 2.0);
}

/* The weight is the last thing that the first op knows. */
static cb_tensor *copies_weight(cb_tensor *x) {
    cb_assign(x, weight);
    return cb_add(cb_mul(beside, 2.0), cb_exp(weight));
}

static cb_tensor *writes_input(cb_tensor *x) {
    cb_tensor *y = cb_mul(beside, cb_exp(weight));
    cb_add_(x, 0.5);
    return cb_add(y, x);
}

/* A frozen tensor is a constant while nobody writes to it, under this or any other name. */
static void expect_frozen(cb_function_1 *function, const char *options) {
    cb_function *fast = cb_compile(function, options);
    cb_scope_open();
    cb_tensor *all[2], *x[2], *input[2];
    for (int k = 0; k < 2; k++) {
        all[k] = ramp(4, 4);
        x[k] = ramp(2, 4);
    }
    for (int step = 0; step < 18; step++) {
        cb_tensor *result[2];
        for (int k = 0; k < 2; k++) {
            cb_scope_open();
            beside = x[k];
            weight = cb_narrow(all[k], 0, step % 9 < 6 ? 0 : 1, 2);
            half = cb_narrow(all[k], 0, step % 2 ? 1 : 2, 2);
            input[k] = step % 3 ? x[k] : half;
            if (step % 4 == 3) cb_mul_(cb_select(all[k], 0, 1), 0.5);
            result[k] = cb_keep(k ? cb_call(fast, input[k]) : function(input[k]));
            cb_scope_close();
        }
        expect_equal(result[1], result[0]);
        expect_equal(all[1], all[0]);
        expect_equal(x[1], x[0]);
        cb_free(result[0]);
        cb_free(result[1]);
        cb_assign(x[0], cb_sin(x[0]));
        cb_assign(x[1], cb_sin(x[1]));
        cb_assign(all[0], cb_sin(all[0]));
        cb_assign(all[1], cb_sin(all[1]));
    }
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

static void test_frozen(void **state) {
    (void)state;
    cb_function_1 *functions[] = {uses_weight, writes_half, writes_weight, writes_input,
                                  copies_weight};
    cb_set_option("recompile_limit", "64");
    for (int f = 0; f < 5; f++) {
        expect_frozen(functions[f], "freeze=1, " VM);
        expect_frozen(functions[f], VM);
    }
    cb_set_option("recompile_limit", "8");
}

/* Storage, place and version: each alone tells that it is another tensor. */
static void test_frozen_identity(void **state) {
    (void)state;
    cb_function *fast = cb_compile(uses_weight, "freeze=1, " VM);
    cb_scope_open();
    cb_tensor *x = ramp(2, 4), *all = ramp(4, 4);
    for (int step = 0; step < 8; step++) {
        if (step == 0) weight = cb_narrow(all, 0, 0, 2);
        if (step == 2) weight = cb_narrow(all, 0, 1, 2);
        if (step == 4) weight = cb_neg(weight);
        if (step == 6) cb_fill_(weight, 0.5);
        expect_equal(cb_call(fast, x), uses_weight(x));
        assert_int_equal(cb_stats(fast).graphs, step / 2 + 1);
    }
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

/* What the function itself changes, by whatever name, is no constant. */
static void test_never_frozen(void **state) {
    (void)state;
    cb_function_1 *functions[] = {writes_half, writes_weight};
    for (int f = 0; f < 2; f++) {
        cb_function *fast = cb_compile(functions[f], "freeze=1, " VM);
        cb_scope_open();
        cb_tensor *all[] = {ramp(4, 4), ramp(4, 4)}, *x = ramp(2, 4), *result[2];
        for (int step = 0; step < 6; step++) {
            for (int k = 0; k < 2; k++) {
                weight = cb_narrow(all[k], 0, 0, 2);
                half = cb_narrow(all[k], 0, 1, 2);
                result[k] = k ? cb_call(fast, x) : functions[f](x);
            }
            expect_equal(result[1], result[0]);
            expect_equal(all[1], all[0]);
        }
        assert_int_equal(cb_stats(fast).graphs, 1);
        cb_scope_close();
        cb_function_free(fast);
    }
    assert_null(cb_error());
}

/* Nothing is written to a tensor without elements: it may be a constant. */
static void test_written_empty(void **state) {
    (void)state;
    cb_function *fast = cb_compile(writes_weight_only, "freeze=1, " VM);
    cb_scope_open();
    cb_tensor *x = ramp(2, 4);
    weight = cb_empty(cb_dims(0, 4), CB_F32);
    for (int step = 0; step < 6; step++) expect_equal(cb_call(fast, x), cb_mul(x, 2.0));
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

static cb_tensor *reads_both(cb_module *self, cb_tensor *const *in, int count) {
    (void)count;
    return cb_add(cb_mul(in[0], cb_module_get(self, "weight")), cb_exp(outside));
}

/* With freeze=auto they are the module's tensors: another one may change between the calls. */
static void test_tensors_of_others(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = ramp(2, 4);
    cb_module *module = cb_module_new("Both", reads_both, NULL);
    cb_module_parameter(module, "weight", ramp(2, 4));
    cb_module_train(module, false);
    cb_function *fast = cb_compile(module, VM);
    outside = ramp(2, 4);
    for (int step = 0; step < 6; step++) {
        cb_fill_(outside, 0.25 * step);
        expect_equal(cb_call(fast, x), cb_forward(module, x));
    }
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_fill_(cb_module_get(module, "weight"), 3.0);
    expect_equal(cb_call(fast, x), cb_forward(module, x));
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shells_of_each_rank),
        cmocka_unit_test(test_strides_of_nothing),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_captured_strides),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_kinds_of_numbers),
        cmocka_unit_test(test_keeping),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_frozen_identity),
        cmocka_unit_test(test_never_frozen),
        cmocka_unit_test(test_written_empty),
        cmocka_unit_test(test_tensors_of_others),
    };
    return run_counted(tests);
}
