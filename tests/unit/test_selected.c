/* nonzero and masked_select: results as large as a value says, beside plain loops. */
#include "capture_support.h"
#include "fixture.h"

enum { MOST = 40000 };

static float numbers[MOST];
static int64_t place[MOST];

/* Some of them 0, as many as the share says; returns how many are not. */
static int64_t draw(int count, int share) {
    static unsigned state = 7;
    int64_t kept = 0;
    for (int i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        numbers[i] = (int)(state >> 16) % 100 < share ? (float)(1 + i % 97) : 0;
        if (numbers[i] != 0) place[kept++] = i;
    }
    return kept;
}

static cb_tensor *nonzero(cb_tensor *x) { return cb_nonzero(x); }
static cb_tensor *selected(cb_tensor *x) { return cb_masked_select(x, cb_ne(x, 0)); }
static cb_tensor *doubled(cb_tensor *x) {
    return cb_mul(cb_masked_select(cb_add(x, 1), cb_ne(x, 0)), 2);
}

static void expect_places(cb_tensor *found, int64_t kept, int64_t columns) {
    int64_t got[2 * MOST];
    assert_non_null(found);
    assert_int_equal(cb_dtype_of(found), CB_I64);
    assert_int_equal(cb_size(found, 0), kept);
    assert_int_equal(cb_size(found, 1), 2);
    assert_int_equal(cb_read(found, got, CB_I64), CB_OK);
    for (int64_t i = 0; i < kept; i++) {
        assert_int_equal(got[2 * i], place[i] / columns);
        assert_int_equal(got[2 * i + 1], place[i] % columns);
    }
}

static void expect_numbers(cb_tensor *found, int64_t kept, float add, float times) {
    float got[MOST];
    assert_non_null(found);
    assert_int_equal(cb_rank(found), 1);
    assert_int_equal(cb_numel(found), kept);
    assert_int_equal(cb_read(found, got, CB_F32), CB_OK);
    for (int64_t i = 0; i < kept; i++) assert_true(got[i] == (numbers[place[i]] + add) * times);
}

/* Over more than one chunk, none and all of them; the number changes from call to call. */
static void as_loops(void **state) {
    (void)state;
    static const int columns[] = {1, 7, 200, 200, 200, 200, 13};
    static const int rows[] = {5, 0, 200, 200, 200, 200, 3000};
    static const int shares[] = {50, 50, 0, 100, 3, 60, 50};
    cb_function *fast[] = {cb_compile(nonzero, VM), cb_compile(selected, VM),
                           cb_compile(doubled, "backend=c")};
    for (size_t i = 0; i < 3 * sizeof columns / sizeof *columns; i++) {
        size_t c = i % (sizeof columns / sizeof *columns);
        int64_t kept = draw(rows[c] * columns[c], shares[c]);
        cb_tensor *x = cb_from_data(numbers, CB_F32, cb_dims(rows[c], columns[c]));
        expect_places(cb_nonzero(x), kept, columns[c]);
        expect_numbers(selected(x), kept, 0, 1);
        expect_places(cb_call(fast[0], x), kept, columns[c]);
        expect_numbers(cb_call(fast[1], x), kept, 0, 1);
        expect_numbers(cb_call(fast[2], x), kept, 1, 2);
    }
    for (int f = 0; f < 3; f++) {
        assert_int_equal(cb_stats(fast[f]).eager_calls, 0);
        cb_function_free(fast[f]);
    }
}

static void expect_elements(cb_tensor *x, cb_dtype dtype, int count, const double *expected) {
    double got[16];
    assert_non_null(x);
    assert_int_equal(cb_dtype_of(x), dtype);
    assert_int_equal(cb_numel(x), count);
    assert_int_equal(cb_read(x, got, CB_F64), CB_OK);
    for (int i = 0; i < count; i++) assert_true(got[i] == expected[i]);
}
#define EXPECT(x, dtype, ...)                                                                      \
    expect_elements((x), dtype, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),           \
                    (double[]){__VA_ARGS__})

/* Turned, expanded, without dims; the mask and x are broadcast together. */
static void as_they_lie(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((float[]){1, 0, 2, 3, 4, 0}, CB_F32, cb_dims(2, 3));
    EXPECT(cb_nonzero(cb_transpose(x, 0, 1)), CB_I64, 0, 0, 0, 1, 1, 1, 2, 0);
    cb_tensor *mask = cb_to(cb_from_data((float[]){1, 0, 1}, CB_F32, cb_dims(3)), CB_BOOL);
    cb_tensor *column = cb_from_data((float[]){5, 6}, CB_F32, cb_dims(2, 1));
    EXPECT(cb_masked_select(column, mask), CB_F32, 5, 5, 6, 6);
    EXPECT(cb_masked_select(cb_ones(3), cb_ones(cb_dims(2, 1), CB_BOOL)), CB_F32, 1, 1, 1, 1, 1, 1);
    for (int i = 0; i < 2; i++) {
        cb_tensor *none = cb_nonzero(cb_full(cb_dims(), i));
        assert_int_equal(cb_size(none, 0), i);
        assert_int_equal(cb_size(none, 1), 0);
        assert_int_equal(cb_numel(cb_masked_select(cb_ones(3), cb_full(cb_dims(), i, CB_BOOL))),
                         3 * i);
    }
    cb_tensor *every_other = cb_slice(cb_ne(cb_flatten(x), 0), 0, 0, 6, 2); /* 1, 2, 4 of x */
    EXPECT(cb_masked_select(cb_arange(0, 3), every_other), CB_I64, 0, 1, 2);
    EXPECT(cb_masked_select(cb_arange(0, 3), cb_flip(every_other, cb_dims(0))), CB_I64, 0, 1, 2);
    assert_int_equal(cb_size(cb_nonzero(cb_ones(cb_dims(3, 0))), 1), 2);
    cb_tensor *nan = cb_full(cb_dims(2), NAN);
    EXPECT(cb_select(cb_nonzero(nan), 1, 0), CB_I64, 0, 1);
}

static void gradient(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((float[]){3, 0, -2, 5}, CB_F32, cb_dims(4));
    assert_non_null(cb_requires_grad_(x, true));
    cb_tensor *kept = cb_masked_select(x, cb_gt(x, 0));
    assert_int_equal(cb_backward(cb_sum(cb_square(kept)), NULL), CB_OK);
    EXPECT(cb_tensor_grad(x), CB_F32, 6, 0, 0, 10);
}

static void refused(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(3);
    REFUSED(cb_masked_select(x, x), "masked_select: the mask is f32, not bool: f32[");
    REFUSED(cb_masked_select(x, cb_ones(2, CB_BOOL)), "masked_select: sizes do not broadcast");
    assert_null(cb_nonzero(NULL));
    assert_null(cb_masked_select(x, NULL));
    assert_null(cb_error());
    cb_function *fast = cb_compile(nonzero, "fullgraph=1," VM);
    REFUSED(cb_call(fast, x), "fullgraph: the function asked for a value");
    cb_function_free(fast);
    static const struct {
        cb_tensor *(*of)(cb_tensor *);
        const char *words;
    } asks[] = {{nonzero, "another one behind: cb_nonzero"},
                {selected, "another one behind: cb_masked_select"}};
    for (int i = 0; i < 2; i++) {
        fast = cb_compile(asks[i].of, "fullgraph=1," VM);
        assert_null(cb_call(fast, x));
        expect_error(asks[i].words);
        cb_function_free(fast);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_loops),
        cmocka_unit_test(as_they_lie),
        cmocka_unit_test(gradient),
        cmocka_unit_test(refused),
    };
    return run_counted(tests);
}
