/* The option dump: every stage of one compilation as text on stderr, with every kind of step. */
#include "fixture.h"

#include <stdio.h>
#include <unistd.h>

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope)

static char text[1 << 18];

/* What body writes to stderr. */
static const char *stderr_of(void (*body)(void)) {
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int before = dup(2);
    assert_true(before >= 0 && dup2(fileno(file), 2) >= 0);
    body();
    fflush(stderr);
    assert_true(dup2(before, 2) >= 0);
    close(before);
    rewind(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    fclose(file);
    return text;
}

static void expect(const char *part) {
    if (!strstr(text, part)) fail_msg("no '%s' in\n%.3000s", part, text);
}

static int every_step(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *picture = in[0], *weight = in[1], *rows = in[2], *index = in[3];
    out[0] = cb_relu(cb_conv2d(picture, weight, NULL, 2, 1, 1, 2));
    cb_tensor *square = cb_matmul(rows, cb_t(rows));
    out[1] = cb_argsort(square, 1);
    out[2] = cb_index_select(square, 0, index);
    out[3] = cb_mul(square, cb_rand_like(square));
    cb_tensor *heads = cb_reshape(rows, cb_dims(1, 2, 64, 64));
    out[4] = cb_scaled_dot_product_attention(heads, heads, heads, NULL, 0.0, true);
    cb_add_(rows, 1.0);
    return 5;
}

static void call_every_step(void) {
    cb_function *fast = cb_compile_n(every_step, NULL, "backend=c");
    const int64_t places[] = {1, 3};
    cb_tensor *in[] = {cb_ones(cb_dims(1, 4, 8, 8)), cb_ones(cb_dims(6, 2, 3, 3)),
                       cb_randn(cb_dims(128, 64)), cb_from_data(places, CB_I64, cb_dims(2))};
    cb_tensor *out[5];
    assert_int_equal(cb_call_n(fast, in, 4, out, 5), 5);
    cb_function_free(fast);
}

static void every_stage_is_written(void **state) {
    (void)state;
    assert_int_equal(cb_set_option("dump", "cglskr"), CB_OK);
    stderr_of(call_every_step);
    assert_int_equal(cb_set_option("dump", ""), CB_OK);
    expect("---- graph");
    expect("# as captured");
    expect("---- loops");
    expect("---- schedule");
    expect("---- kernels");
    expect("convolution v");
    expect("kernel 3x3, stride 2x2, padding 1x1, groups 2");
    expect("matmul v");
    expect("argsort v");
    expect("check v");
    expect("in [0, 128) for index_select");
    expect("temporary");
    expect("random");
    expect("-> input 2");
    expect("attention v");
    expect(", causal]");
}

static cb_tensor *one_op(cb_tensor *x) { return cb_exp(x); }

static void call_on_the_vm(void) {
    cb_function *fast = cb_compile(one_op, "backend=vm");
    assert_non_null(cb_call(fast, cb_ones(cb_dims(8))));
    assert_non_null(cb_call(fast, cb_ones(cb_dims(9))));
    cb_function_free(fast);
}

static void the_vm_has_no_source(void **state) {
    (void)state;
    assert_int_equal(cb_set_option("dump", "k"), CB_OK);
    stderr_of(call_on_the_vm);
    expect("(on the vector VM)");
    assert_null(strstr(text, "---- graph"));
    assert_int_equal(cb_set_option("dump", "cr"), CB_OK);
    stderr_of(call_on_the_vm);
    assert_int_equal(cb_set_option("dump", ""), CB_OK);
    expect("f32[8]");
    assert_null(strstr(text, "---- kernels"));
}

static void nothing_is_written_unasked(void **state) {
    (void)state;
    assert_string_equal(stderr_of(call_on_the_vm), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(every_stage_is_written),
        ONE(the_vm_has_no_source),
        ONE(nothing_is_written_unasked),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
