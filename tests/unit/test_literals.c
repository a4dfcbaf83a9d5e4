/* Tensors that a compiled function makes from bytes of its own are constants of its graph, until
 * their bytes change. */
#include "capture_support.h"
#include "fixture.h"

static float table[4] = {1, 2, 3, 4};

static int begin(void **state) {
    for (int i = 0; i < 4; i++) table[i] = (float)i + 1;
    return open_scope(state);
}

static cb_tensor *scaled(cb_tensor *x) { return cb_mul(x, cb_exp(cb_from_data(table, CB_F32, 4))); }

static bool is_constant(cb_function *fast) {
    char *text = cb_explain(fast);
    bool found = strstr(text, ", a constant") != NULL;
    cb_free_text(text);
    return found;
}

static void expect_call(cb_function *fast, cb_function_1 *function) {
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    expect_equal(cb_call(fast, x), function(y));
    expect_equal(x, y);
}

static void same_bytes_are_a_constant(void **state) {
    (void)state;
    cb_function *fast = cb_compile(scaled, VM);
    for (int i = 0; i < 3; i++) expect_call(fast, scaled);
    assert_true(is_constant(fast));
    assert_int_equal(cb_stats(fast).graphs, 1);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    fast = cb_compile(scaled, "freeze=0," VM);
    expect_call(fast, scaled);
    assert_false(is_constant(fast));
    cb_function_free(fast);
}

/* Once: then they are an input. */
static void other_bytes_compile_once_more(void **state) {
    (void)state;
    cb_function *fast = cb_compile(scaled, VM);
    for (int i = 0; i < 8; i++) {
        expect_call(fast, scaled);
        expect_call(fast, scaled);
        assert_int_equal(cb_stats(fast).graphs, i ? 2 : 1);
        table[i % 4] += 0.5f;
    }
    assert_int_equal(cb_stats(fast).recompiles, 1);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

static cb_tensor *two_tables(cb_tensor *x) {
    static const float fixed[] = {4, 3, 2, 1};
    cb_tensor *a = cb_from_data(table, CB_F32, 4), *b = cb_from_data(fixed, CB_F32, 4);
    return cb_add(cb_mul(x, a), b);
}

/* What did not change stays a constant. */
static void each_by_its_own_bytes(void **state) {
    (void)state;
    cb_function *fast = cb_compile(two_tables, VM);
    for (int i = 0; i < 4; i++, table[1] += 1) expect_call(fast, two_tables);
    assert_int_equal(cb_stats(fast).graphs, 2);
    char *text = cb_explain(fast), *second = strstr(text, "\nentry 1");
    assert_non_null(second);
    char *constant = strstr(second, ", a constant");
    assert_non_null(constant);
    assert_null(strstr(constant + 1, ", a constant"));
    cb_free_text(text);
    cb_function_free(fast);
}

static cb_dtype kind;

static cb_tensor *of_a_kind(cb_tensor *x) {
    static const uint8_t bytes[32] = {1, 0, 1, 1, 0, 0, 1};
    return cb_add(x, cb_to(cb_from_data(bytes, kind, 4), CB_F32));
}

static void all_dtypes(void **state) {
    (void)state;
    for (kind = 0; kind < CB_DTYPE_COUNT; kind++) {
        cb_function *fast = cb_compile(of_a_kind, VM);
        for (int i = 0; i < 3; i++) expect_call(fast, of_a_kind);
        assert_true(is_constant(fast));
        assert_int_equal(cb_stats(fast).graphs, 1);
        cb_function_free(fast);
    }
}

static cb_tensor *counts_in_it(cb_tensor *x) {
    cb_tensor *own = cb_from_data(table, CB_F32, 4);
    cb_add_(own, 1.0);
    cb_tensor *y = cb_mul(x, own);
    cb_mul_(cb_slice(own, 0, 1, 3), 2.0);
    return cb_add(y, own);
}

/* What the function writes to is no constant. */
static void writes_are_seen(void **state) {
    (void)state;
    cb_function *fast = cb_compile(counts_in_it, VM);
    for (int i = 0; i < 4; i++, table[0] += 1) expect_call(fast, counts_in_it);
    assert_false(is_constant(fast));
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
}

static cb_tensor *filled_through_a_pointer(cb_tensor *x) {
    cb_tensor *own = cb_empty(4, CB_F32);
    memcpy(cb_data(own), table, sizeof table);
    return cb_mul(x, own);
}

static void pointers_are_no_constants(void **state) {
    (void)state;
    cb_function *fast = cb_compile(filled_through_a_pointer, VM);
    for (int i = 0; i < 4; i++, table[0] += 1) expect_call(fast, filled_through_a_pointer);
    cb_function_free(fast);
}

enum { LARGE = 1025 };

static cb_tensor *with_large(cb_tensor *x) {
    static float many[LARGE];
    many[0] = table[0];
    return cb_add(x, cb_sum(cb_from_data(many, CB_F32, LARGE)));
}

static void large_ones_are_inputs(void **state) {
    (void)state;
    cb_function *fast = cb_compile(with_large, VM);
    for (int i = 0; i < 3; i++, table[0] += 1) expect_call(fast, with_large);
    assert_false(is_constant(fast));
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
}

/* The function runs once: its bytes stay what they were, as its numbers do. */
static void fullgraph_holds_them(void **state) {
    (void)state;
    cb_function *fast = cb_compile(scaled, "fullgraph=1," VM);
    cb_tensor *x = ramp(3, 4), *first = scaled(x);
    for (int i = 0; i < 3; i++, table[0] += 1) expect_equal(cb_call(fast, x), first);
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
}

static double rate;

static cb_tensor *with_rate(cb_tensor *x) {
    return cb_add(cb_mul(x, rate), cb_from_data(table, CB_F32, 4));
}

/* An entry that takes any number stands in for the one before it, with the same bytes. */
static void numbers_beside_them(void **state) {
    (void)state;
    cb_function *fast = cb_compile(with_rate, VM);
    for (rate = 0.125; rate < 2; rate += 0.125) expect_call(fast, with_rate);
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_tensor *wide = cb_to(ramp(3, 4), CB_F64);
    cb_set_option("recompile_limit", "2"); /* for which the first one counts no more */
    expect_tensor(cb_call(fast, wide), with_rate(wide), 1e-9, 1e-9);
    cb_set_option("recompile_limit", "8");
    assert_int_equal(cb_stats(fast).graphs, 3);
    cb_function_free(fast);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, close_scope_without_error)
    const struct CMUnitTest tests[] = {
        TEST(same_bytes_are_a_constant), TEST(other_bytes_compile_once_more),
        TEST(each_by_its_own_bytes),     TEST(all_dtypes),
        TEST(writes_are_seen),           TEST(pointers_are_no_constants),
        TEST(large_ones_are_inputs),     TEST(fullgraph_holds_them),
        TEST(numbers_beside_them)};
    return cmocka_run_group_tests_name("literals", tests, NULL, clean_up);
}
