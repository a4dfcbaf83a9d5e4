/* The rule that decides whether eager and compiled results agree (cli/accuracy.c): a benchmark must
 * not praise a kernel that computes something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../cli/accuracy.c"
#include "../../cli/screen.c"
#include "../../cli/subject.c"
#include "../../cli/training.c"

static int identity(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    *output = cb_mul(x[0], 1.5);
    return 1;
}

/* The same but for what user says: added to every element. */
static int shifted(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count;
    *output = cb_add(cb_mul(x[0], 1.5), *(double *)user);
    return 1;
}

static int total(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count, (void)user;
    *output = cb_sum(x[0]);
    return 1;
}

static int pixels(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    (void)count;
    double shift = user ? *(double *)user : 0;
    *output = cb_to(cb_add(cb_to(x[0], CB_F32), shift), CB_U8);
    return 1;
}

static Accuracy judge(const BenchCase *row, cb_tensor *x, cb_function_n *compiled, double *shift) {
    Subject subject = {
        .row = row, .autocast = CB_SAME, .batch = row->batch, .input_count = 1, .input = {x}};
    Accuracy accuracy = {.agree = false};
    cb_function *fast = cb_compile_n(compiled, shift, "backend=vm");
    assert_non_null(fast);
    assert_true(accuracy_check(&subject, fast, &accuracy));
    cb_function_free(fast);
    assert_null(cb_error());
    return accuracy;
}

enum { ROWS = 3, LONG_ROW = 1 << 19 }; /* more than one part, of rows that do not fill it */
static const BenchCase rows = {
    .name = "rows", .body = identity, .batch = ROWS, .input = {{{BATCH, LONG_ROW}, 1}}};

static void test_equal_results_agree(void **state) {
    (void)state;
    cb_scope_open();
    double none = 0;
    Accuracy accuracy = judge(&rows, cb_randn(cb_dims(ROWS, LONG_ROW)), shifted, &none);
    assert_true(accuracy.agree);
    assert_true(accuracy.max_error <= accuracy.eager_error && accuracy.max_error < 1e-6);
    cb_scope_close();
}

static void test_a_shift_is_found(void **state) {
    (void)state;
    cb_scope_open();
    double much = 1e-2, little = 1e-6;
    cb_tensor *x = cb_randn(cb_dims(ROWS, LONG_ROW));
    Accuracy accuracy = judge(&rows, x, shifted, &much);
    assert_false(accuracy.agree);
    assert_true(accuracy.max_error > 0.99e-2 && accuracy.max_error < 1.01e-2);
    assert_true(judge(&rows, x, shifted, &little).agree);
    cb_scope_close();
}

/* The last row of the last part counts too. */
static void test_one_wrong_element_is_found(void **state) {
    (void)state;
    cb_scope_open();
    double value[4] = {0, 1, 2, NAN}, none = 0;
    const BenchCase four = {.name = "four", .body = identity, .batch = 4, .input = {{{BATCH}, 1}}};
    cb_tensor *x = cb_from_data(value, CB_F64, cb_dims(4));
    assert_true(judge(&four, x, shifted, &none).agree); /* NaN equals NaN */
    none = NAN;
    Accuracy accuracy = judge(&four, x, shifted, &none);
    assert_false(accuracy.agree);
    assert_true(isinf(accuracy.max_error));
    cb_scope_close();
}

static void test_sums_are_whole(void **state) {
    (void)state;
    cb_scope_open();
    const BenchCase sum = {
        .name = "sum", .body = total, .batch = 1000, .whole = true, .input = {{{BATCH}, 1}}};
    Accuracy accuracy = judge(&sum, cb_randn(cb_dims(1000)), total, NULL);
    assert_true(accuracy.agree && accuracy.max_error < 1e-3);
    cb_scope_close();
}

static void test_pixels_may_differ_by_one(void **state) {
    (void)state;
    cb_scope_open();
    const BenchCase picture = {
        .name = "picture", .body = pixels, .batch = 200, .input = {{{BATCH}, 1}}};
    double one = 1, two = 2;
    cb_tensor *x = cb_to(cb_arange(0, 200), CB_U8);
    assert_true(judge(&picture, x, pixels, &one).agree);
    assert_false(judge(&picture, x, pixels, &two).agree);
    cb_scope_close();
}

static cb_module *layer(void) { return cb_nn_linear(6, 3, true); }

/* The loss, and nothing learnt from it. */
static int idle_step(cb_tensor *const *x, int count, cb_tensor **output, void *user) {
    const Subject *subject = user;
    (void)count;
    *output = cb_cross_entropy(cb_forward(subject->module, x[0]), x[1]);
    return 1;
}

static bool learns_alike(const char *optimizer, cb_function_n *compiled) {
    const BenchCase learns = {.name = "learns",
                              .network = layer,
                              .body = training_step,
                              .optimizer = optimizer,
                              .rates = "lr=1e-7",
                              .whole = true,
                              .dtype = CB_F32,
                              .batch = 16,
                              .input = {{{BATCH, 6}, 1}, {{BATCH}, 0}},
                              .below = 3};
    Subject subject;
    Accuracy accuracy = {.agree = false};
    assert_true(subject_open(&subject, &learns, (SubjectOptions)SUBJECT_OPTIONS_DEFAULT));
    cb_function *fast = cb_compile_n(compiled, &subject, "backend=vm");
    double before = cb_item(cb_sum(cb_abs(subject.parameter[0])));
    assert_true(accuracy_check(&subject, fast, &accuracy));
    cb_tensor *weight = cb_module_get(subject.module, "weight");
    assert_true(cb_item(cb_sum(cb_abs(weight))) == before); /* the steps were taken back */
    cb_function_free(fast);
    subject_close(&subject);
    assert_null(cb_error());
    return accuracy.agree;
}

static void test_steps_are_compared(void **state) {
    (void)state;
    assert_true(learns_alike("AdamW", training_step));
    assert_true(learns_alike("SGD", training_step));
    assert_false(learns_alike("AdamW", idle_step));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_results_agree),
        cmocka_unit_test(test_a_shift_is_found),
        cmocka_unit_test(test_one_wrong_element_is_found),
        cmocka_unit_test(test_sums_are_whole),
        cmocka_unit_test(test_pixels_may_differ_by_one),
        cmocka_unit_test(test_steps_are_compared),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
