/* Sinks: sums that rows meet in (STORE_SUM), in kernels that go along these rows. Kernels as text
 * on both engines beside their definition; what a training step is made of, whose kernels are
 * counted; and the same bits for any number of threads. */
#include "test_support.h"

#include "elements.h"
#include "kernel_vm.h"

#include <stdlib.h>

enum { TEXT = 1200, ROWS = 70, CLASSES = 65, EXAMPLES = 700, WIDTH = 48 };

/* ---- kernels as text ------------------------------------------------------------------------- */

/* The columns of exp(x - max) summed, the rows' sums added up, a count; and rows are stored. */
static char *sinks(const char *dtype, int n, bool varies) {
    char *text = malloc(TEXT);
    snprintf(text, TEXT,
             "kernel sinks_%s_%d_%d(outer a0:%d, inner a1:%d%s) row split 1 parts 4 {"
             " b0: in %s[%d] b1: in i64[%d] b2: out %s[%d] b3: out %s[1] b4: out i64[1]"
             " b5: out %s[%d] t0 = %s load b0[((a0*%d)+a1)] t1 = %s reduce amax t0"
             " t2 = %s sub t0, t1 t3 = %s exp t2 t4 = %s reduce sum t3 t5 = i64 load b1[a0]"
             " t6 = bool eq [a1], t5 t7 = %s where t6, t4, t3"
             " sum b2[a1] = t3 sum b3[0] = t4 sum b4[0] = t5 store b5[((a0*%d)+a1)] = t7 }",
             dtype, n, varies, ROWS, n, varies ? "+" : "", dtype, ROWS * n, ROWS, dtype, n, dtype,
             dtype, ROWS * n, dtype, n, dtype, dtype, dtype, dtype, dtype, n);
    return text;
}

static void rows_meet_in_sums(void **state) {
    (void)state;
    static const int lengths[] = {1, 3, 16, 17, 31, 32, 33, 47, 64, 65, 100, 257, 1030};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    char *text[4 * LENGTHS];
    for (int i = 0; i < 4 * LENGTHS; i++) {
        text[i] = sinks(i & 1 ? "f64" : "f32", lengths[i / 4], i & 2);
        check_text(text[i]);
    }
    check_all((const char *const *)text, 4 * LENGTHS);
    for (int i = 0; i < 4 * LENGTHS; i++) free(text[i]);
}

/* Several axes of each kind, of which sinks keep some. */
static void sums_keep_some_axes(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel batches(outer a0:3, outer a1:40, inner a2:20) row split 1 parts 3 { b0: in "
        "f32[2400]"
        " b1: out f32[120] b2: out f32[60] b3: out f32[3] t0 = f32 load b0[(((a0*800)+(a1*20))+a2)]"
        " t1 = f32 reduce amax t0 store b1[((a0*40)+a1)] = t1 sum b2[((a0*20)+a2)] = t0"
        " sum b3[a0] = t1 }",
        "kernel planes(outer a0:70, inner a1:5, inner a2:33) row split 1 parts 7 { b0: in "
        "i32[11550]"
        " b1: out i32[70] b2: out i32[165] t0 = i32 load b0[(((a0*165)+(a1*33))+a2)]"
        " t1 = i32 reduce amin t0 store b1[a0] = t1 sum b2[((a1*33)+a2)] = t0 }",
        "kernel across(outer a0:90, inner a1:3) row split 1 parts 2 { b0: in f32[270] b1: out "
        "f32[90]"
        " b2: out f32[3] b3: out i64[1] t0 = f32 load b0[((a0*3)+a1)] t1 = f32 reduce sum t0"
        " store b1[a0] = t1 sum b2[a1] = t0 sum b3[0] = 1:i64 }",
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) check_text(text[i]);
    check_all(text, sizeof text / sizeof *text);
}

/* ---- training -------------------------------------------------------------------------------- */

static int norm(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *y = cb_layer_norm(in[0], cb_dims(WIDTH), in[1], in[2]);
    return cb_grad(y, in[3], in, 3, out) == CB_OK ? 3 : -1;
}

static int entropy(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_cross_entropy(in[0], in[1]);
    return cb_grad(out[0], NULL, in, 1, out + 1) == CB_OK ? 2 : -1;
}

/* Of a relu behind a bias: nothing but the gradient's sum is new, and they share a kernel. */
static int biased(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *y = cb_relu(cb_add(in[0], in[1]));
    return cb_grad(y, in[3], in, 2, out) == CB_OK ? 2 : -1;
}

static cb_tensor *leaf(cb_tensor *x) { return cb_requires_grad_(x, true); }

static void operands(cb_tensor **in, bool classes) {
    cb_manual_seed(3);
    if (classes) {
        in[0] = leaf(cb_randn(cb_dims(EXAMPLES, CLASSES)));
        cb_tensor *target = cb_randint(0, CLASSES, cb_dims(EXAMPLES));
        in[1] = cb_masked_fill(target, cb_eq(target, 7), -100);
        return;
    }
    in[0] = leaf(cb_randn(cb_dims(EXAMPLES, WIDTH)));
    in[1] = leaf(cb_randn(cb_dims(WIDTH)));
    in[2] = leaf(cb_randn(cb_dims(WIDTH)));
    in[3] = cb_randn(cb_dims(EXAMPLES, WIDTH));
}

/* As many kernels as said, for generated code and for the VM; what eager gives; and the same bits
 * on any number of threads. */
static void check_step(cb_function_n *body, bool classes, const int kernels[2]) {
    static const int threads[] = {1, 2, 3, 16};
    cb_tensor *in[4], *wanted[3] = {NULL}, *first[3] = {NULL}, *out[3];
    cb_scope_open();
    operands(in, classes);
    int count = body(in, 4, wanted, NULL);
    for (int vm = 0; vm < 2; vm++) {
        cb_function *fast = cb_compile_n(body, NULL, vm ? "backend=vm" : "");
        for (int t = 0; t < 4; t++) {
            cb_set_threads(threads[t]);
            assert_int_equal(cb_call_n(fast, in, classes ? 2 : 4, out, 3), count);
            for (int i = 0; i < count; i++) {
                if (!t) first[i] = out[i];
                expect_tensor(out[i], first[i], 0, 0);
                expect_tensor(out[i], wanted[i], 1e-5, 1e-5);
            }
        }
        assert_int_equal(cb_stats(fast).kernels, kernels[vm]);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
    cb_set_threads(0);
    cb_scope_close();
}

/* The gradients to x, weight and bias are one kernel. */
static void layer_norm_backward_is_a_kernel(void **state) {
    (void)state;
    check_step(norm, false, (const int[]){1, 1});
}

/* Loss and gradient are one; the targets are counted and checked before it. The VM adds up the
 * losses, of which a row has one, in a kernel of their own. */
static void cross_entropy_is_a_kernel(void **state) {
    (void)state;
    check_step(entropy, true, (const int[]){3, 4});
}

static void a_bias_gradient_is_in_its_producers_kernel(void **state) {
    (void)state;
    check_step(biased, false, (const int[]){1, 1});
}

/* ---- optimizers ------------------------------------------------------------------------------ */

typedef struct Update {
    cb_optimizer *optimizer;
    cb_tensor *parameter[160];
    int count;
    bool clips;
} Update;

static int update(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Update *u = user;
    (void)in, (void)count;
    if (u->clips) out[0] = cb_clip_grad_norm_(u->parameter, u->count, 1.0, 2);
    return cb_optimizer_step(u->optimizer) == CB_OK ? u->clips : -1;
}

static void add(Update *u, cb_dim_list sizes) { u->parameter[u->count++] = leaf(cb_randn(sizes)); }

/* The parameters of GPT-2, 16 wide and of 600 words. */
static void add_gpt2(Update *u) {
    enum { N = 16, LAYERS = 12 };
    add(u, cb_dims(600, N)), add(u, cb_dims(64, N));
    for (int i = 0; i < LAYERS; i++) {
        add(u, cb_dims(N)), add(u, cb_dims(N));
        add(u, cb_dims(3 * N, N)), add(u, cb_dims(3 * N));
        add(u, cb_dims(N, N)), add(u, cb_dims(N));
        add(u, cb_dims(N)), add(u, cb_dims(N));
        add(u, cb_dims(4 * N, N)), add(u, cb_dims(4 * N));
        add(u, cb_dims(N, 4 * N)), add(u, cb_dims(N));
    }
    add(u, cb_dims(N)), add(u, cb_dims(N));
    cb_tensor *sum = NULL;
    for (int i = 0; i < u->count; i++) {
        cb_tensor *square = cb_sum(cb_square(u->parameter[i]));
        sum = sum ? cb_add(sum, square) : square;
    }
    assert_int_equal(cb_backward(sum, NULL), CB_OK);
    u->optimizer = cb_optimizer_new("AdamW", NULL);
    assert_int_equal(cb_optimizer_add(u->optimizer, u->parameter, u->count, NULL), CB_OK);
}

static int64_t kernels_of_update(bool clips) {
    Update u = {.clips = clips};
    cb_tensor *out[1];
    cb_scope_open();
    add_gpt2(&u);
    cb_function *fast = cb_compile_n(update, &u, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(cb_call_n(fast, NULL, 0, out, 1), clips);
    int64_t kernels = cb_stats(fast).kernels;
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    cb_optimizer_free(u.optimizer);
    cb_scope_close();
    return kernels;
}

/* AdamW of all of GPT-2: lists, however many parameters there are. The norm of as many gradients is
 * sums, twice, and twice what adds these up. */
static void all_parameters_are_updated_by_two_kernels(void **state) {
    (void)state;
    assert_int_equal(kernels_of_update(false), 2); /* the step's numbers, and the list */
    assert_int_equal(kernels_of_update(true), 4 + 2);
}

int main(void) {
    cb_set_option("cache", "0");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_meet_in_sums),
        cmocka_unit_test(sums_keep_some_axes),
        cmocka_unit_test(layer_norm_backward_is_a_kernel),
        cmocka_unit_test(cross_entropy_is_a_kernel),
        cmocka_unit_test(a_bias_gradient_is_in_its_producers_kernel),
        cmocka_unit_test(all_parameters_are_updated_by_two_kernels),
    };
    int failed = cmocka_run_group_tests_name("sinks", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
