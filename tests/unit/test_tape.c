/* The tape: gradients of what ran eagerly, by cb_backward and cb_grad; what is refused. Every op's
 * gradient by itself is test_grad's. */
#include "fixture.h"

#include <math.h>
#include <string.h>

/* Leaves no tensor, and none of their memory. */
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

static cb_tensor *numbers(cb_dtype dtype, int count, const double *value) {
    return cb_to(cb_from_data(value, CB_F64, cb_dims(count)), dtype);
}
#define VALUES(dtype, ...)                                                                         \
    numbers((dtype), sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

static cb_tensor *leaf(cb_tensor *x) {
    assert_ptr_equal(cb_requires_grad_(x, true), x);
    return x;
}

static void expect(cb_tensor *x, int count, const double *wanted) {
    double value[16];
    if (cb_error()) fail_msg("%s", cb_error());
    assert_non_null(x);
    assert_int_equal(cb_numel(x), count);
    assert_int_equal(cb_read(x, value, CB_F64), CB_OK);
    for (int i = 0; i < count; i++)
        if (!(fabs(value[i] - wanted[i]) <= 1e-12)) /* nor NaN */
            fail_msg("element %d is %.17g, not %.17g", i, value[i], wanted[i]);
}
#define EXPECT(x, ...)                                                                             \
    expect((x), sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

static void expect_refused(const char *part) {
    assert_non_null(cb_error());
    if (!strstr(cb_error(), part)) fail_msg("'%s' lacks '%s'", cb_error(), part);
    cb_clear_error();
}

static void adds_up(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2, 3)), *x = VALUES(CB_F64, 4, 5, 6);
    cb_tensor *y = cb_mul(w, x), *l = cb_sum(cb_mul(y, w)); /* w used twice */
    assert_true(cb_requires_grad(w) && cb_requires_grad(l) && !cb_requires_grad(x));
    assert_null(cb_tensor_grad(w));
    assert_int_equal(cb_backward(l, NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 8, 20, 36);
    assert_int_equal(cb_backward(l, NULL), CB_OK); /* what is saved is still there */
    EXPECT(cb_tensor_grad(w), 16, 40, 72);
    cb_zero_grad(w);
    assert_null(cb_tensor_grad(w));
    assert_int_equal(cb_backward(y, VALUES(CB_F64, 1, 0, -1)), CB_OK);
    EXPECT(cb_tensor_grad(w), 4, 0, -6);
    assert_null(cb_tensor_grad(x));
}

static cb_tensor *with_number(int op, cb_tensor *x, int64_t number) {
    cb_tensor *all = cb_ge(x, -INFINITY);
    return op == 0   ? cb_maximum(x, number)
           : op == 1 ? cb_minimum(x, number)
                     : cb_where(all, x, number);
}

/* What is built for a gradient is not taken for an op with a number that is known to it, whichever
 * that is, nor the other way about. */
static void no_op_is_taken_for_a_gradient(void **state) {
    (void)state;
    cb_tensor *x = VALUES(CB_F64, -9.5, -2.5, 0.5, 7.5);
    for (int op = 0; op < 3; op++)
        for (int64_t number = -1; number >= -8; number--) {
            cb_tensor *w = leaf(cb_clone(x)), *y = with_number(op, w, 5);
            assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
            double a = op == 1, b = op == 2 ? 1 : a, c = op == 0 || op == 2;
            EXPECT(cb_tensor_grad(w), b, b, b, c);
            double least = (double)number, is[4] = {-9.5, -2.5, 0.5, 7.5};
            for (int i = 0; i < 4 && op < 2; i++)
                is[i] = op == 0 ? fmax(is[i], least) : fmin(is[i], least);
            EXPECT(with_number(op, x, number), is[0], is[1], is[2], is[3]);
        }
}

/* A gradient that reads its op's result comes from that tensor, as in PyTorch, whose numbers these
 * are: of exp(w) by w it is exp(w) itself, and of another one that is equal there is none. Division
 * reads its operands. */
static void reads_results(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 0.5, 2)), *g, *h[4];
    cb_tensor *a = cb_exp(w), *b = cb_exp(w), *c = cb_div(1, w), *d = cb_softmax(w, 0);
    cb_tensor *loss = cb_add(cb_sum(a), cb_add(cb_sum(c), cb_select(d, 0, 0)));
    assert_int_equal(cb_grad_graph(loss, NULL, &w, 1, &g), CB_OK);
    cb_tensor *by[] = {a, b, c, d};
    assert_int_equal(cb_grad(cb_sum(cb_mul(g, VALUES(CB_F64, 3, 5))), NULL, by, 4, h), CB_OK);
    EXPECT(h[0], 3, 5);
    assert_null(h[1]);
    assert_null(h[2]);
    cb_tensor *s = cb_softmax(w, 0);
    double s0 = cb_item(cb_select(s, 0, 0)), s1 = cb_item(cb_select(s, 0, 1));
    EXPECT(h[3], 3 - (2 * 3 * s0 + 5 * s1), -5 * s0);
}

/* Views that show all of a tensor are nodes of graphs no more than what they are of. */
static void views_of_everything(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 2, 3)), *a = cb_slice(w, 0, 0, 2), *g[2], *h;
    cb_tensor *b = cb_expand(cb_reshape(a, cb_dims(2)), cb_dims(2)), *wrt[] = {a, w};
    assert_int_equal(cb_grad_graph(cb_sum(cb_mul(b, b)), NULL, wrt, 2, g), CB_OK);
    EXPECT(g[0], 4, 6);
    EXPECT(g[1], 4, 6);
    assert_int_equal(cb_grad(cb_sum(cb_mul(g[1], VALUES(CB_F64, 5, 7))), NULL, &w, 1, &h), CB_OK);
    EXPECT(h, 10, 14);
}

/* Operands that lead to nothing that is asked for may have been written to. */
static void leaves_out_what_leads_nowhere(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 2, 3)), *x = VALUES(CB_F64, 4, 5), *g[2];
    cb_tensor *a = cb_mul(w, x), *y = cb_mul(a, 3), *wrt[] = {a, w};
    cb_fill_(x, 7);
    assert_int_equal(cb_grad(cb_sum(y), NULL, wrt, 1, g), CB_OK);
    EXPECT(g[0], 3, 3);
    assert_int_not_equal(cb_grad(cb_sum(y), NULL, wrt, 2, g), CB_OK);
    expect_refused("operand 1 of mul");
}

/* An index that no gradient needs is not saved, and not looked at again. */
static void adds_to_what_requires_it(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2, 3)), *source = VALUES(CB_F64, 4, 5);
    cb_tensor *index = cb_from_data((int64_t[]){2, 2}, CB_I64, cb_dims(2));
    cb_tensor *y = cb_scatter_add(w, 0, index, source);
    assert_int_equal(cb_backward(cb_sum(cb_mul(y, y)), NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 2, 4, 24);
    assert_int_equal(cb_backward(cb_sum(cb_scatter_add(w, 0, index, leaf(source))), NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 3, 5, 25);
    EXPECT(cb_tensor_grad(source), 1, 1);
}

/* A remainder is rounded as Python's, also where the quotient is too small to be below 0. */
static void remainders_by_infinity(void **state) {
    (void)state;
    cb_tensor *b = leaf(VALUES(CB_F64, -INFINITY, INFINITY, -2));
    assert_int_equal(cb_backward(cb_sum(cb_remainder(VALUES(CB_F64, 3, 3, 3), b)), NULL), CB_OK);
    EXPECT(cb_tensor_grad(b), 1, 0, 2);
}

/* Nothing of the base counts, not even one whose logarithm or inverse is infinite. */
static void powers_of_0(void **state) {
    (void)state;
    cb_tensor *a = leaf(VALUES(CB_F64, 0, 0, 3));
    cb_tensor *powers = cb_add(cb_pow(a, VALUES(CB_F64, 0, 2, 0)), cb_pow(a, 0));
    assert_int_equal(cb_backward(cb_sum(powers), NULL), CB_OK);
    EXPECT(cb_tensor_grad(a), 0, 0, 0);
}

/* A gradient that is the cotangent itself, or shares its elements, has its own. */
static void owns_its_gradient(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *v = leaf(VALUES(CB_F64, 1, 2));
    cb_tensor *g = VALUES(CB_F64, 1, 1);
    assert_int_equal(cb_backward(cb_add(w, v), g), CB_OK);
    assert_int_equal(cb_backward(w, g), CB_OK);
    cb_fill_(g, 9);
    EXPECT(cb_tensor_grad(w), 2, 2);
    EXPECT(cb_tensor_grad(v), 1, 1);
}

static void broadcasts_views_and_dtypes(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F32, 1, 2, 3, 4, 5, 6)), *b = leaf(VALUES(CB_F64, 1, 2));
    cb_tensor *m = cb_transpose(cb_reshape(w, cb_dims(2, 3)), 0, 1); /* [3, 2] */
    cb_tensor *y = cb_add(cb_mul(m, 2.5), b);
    assert_int_equal(cb_dtype_of(y), CB_F64);
    assert_int_equal(cb_backward(cb_sum(cb_select(y, 0, 1)), NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 0, 2.5, 0, 0, 2.5, 0);
    assert_int_equal(cb_dtype_of(cb_tensor_grad(w)), CB_F32);
    EXPECT(cb_tensor_grad(b), 1, 1);
    cb_tensor *both[] = {w, cb_exp(cb_to(b, CB_F32)), w};
    cb_zero_grad(w);
    assert_int_equal(cb_backward(cb_sum(cb_narrow(cb_cat(both, 3, 0), 0, 4, 5)), NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 1, 0, 0, 0, 1, 1);
}

static void gradients_of_results(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *other = leaf(VALUES(CB_F64, 1));
    cb_tensor *y = cb_mul(w, w), *l = cb_sum(cb_mul(y, y)), *got[3];
    cb_tensor *wrt[] = {w, y, other};
    assert_int_equal(cb_grad(l, NULL, wrt, 3, got), CB_OK);
    EXPECT(got[0], 4, 32);
    EXPECT(got[1], 2, 8);
    assert_null(got[2]);
    assert_null(cb_tensor_grad(w)); /* nothing was added */
}

/* The gradient of 3 w^2 v is 6 w v, and once more 6 v. */
static void gradients_of_gradients(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *v = VALUES(CB_F64, 3, 5), *g, *h, *third;
    cb_tensor *l = cb_sum(cb_pow(w, 3));
    assert_int_equal(cb_grad_graph(l, NULL, &w, 1, &g), CB_OK);
    EXPECT(g, 3, 12);
    assert_true(cb_requires_grad(g));
    cb_tensor *along = cb_sum(cb_mul(g, v));
    assert_int_equal(cb_grad_graph(along, NULL, &w, 1, &h), CB_OK);
    EXPECT(h, 18, 60);
    assert_int_equal(cb_grad(cb_sum(h), NULL, &w, 1, &third), CB_OK);
    EXPECT(third, 18, 30);
    assert_false(cb_requires_grad(third));
    assert_int_equal(cb_backward(cb_add(l, cb_sum(cb_mul(g, g))), NULL), CB_OK); /* a penalty */
    EXPECT(cb_tensor_grad(w), 3 + 36, 12 + 288);
    assert_int_equal(cb_grad(l, NULL, &w, 1, &g), CB_OK); /* without a graph: a constant */
    assert_false(cb_requires_grad(g));
    cb_zero_grad(w);
    assert_int_equal(cb_backward(cb_sum(cb_mul(g, w)), NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 3, 12);
    cb_add_(v, 1);
    assert_int_not_equal(cb_grad_graph(along, NULL, &w, 1, &third), CB_OK);
    expect_refused("was modified in place, 1 time since");
}

/* By the cotangent, too: the product of v with the Jacobian, transposed twice, is that with v. */
static void gradients_by_the_cotangent(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *u = leaf(VALUES(CB_F64, 1, 1)), *g, *jv;
    cb_tensor *y = cb_mul(cb_sum(w), w);
    assert_int_equal(cb_grad_graph(y, u, &w, 1, &g), CB_OK);
    EXPECT(g, 6, 6);
    assert_int_equal(cb_grad(g, VALUES(CB_F64, 1, -1), &u, 1, &jv), CB_OK);
    EXPECT(jv, 3, -3);
    cb_no_grad_open();
    assert_int_equal(cb_grad_graph(y, u, &w, 1, &g), CB_OK);
    cb_no_grad_close();
    EXPECT(g, 6, 6);
    assert_false(cb_requires_grad(g));
    cb_autocast_open(CB_BF16); /* what is gone back over was f64 */
    assert_int_equal(cb_grad_graph(cb_matmul(w, w), NULL, &w, 1, &g), CB_OK);
    cb_autocast_close();
    assert_true(cb_requires_grad(g));
}

static void no_grad_and_detach(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2));
    cb_no_grad_open();
    assert_false(cb_requires_grad(cb_mul(w, 2)));
    cb_mul_(w, 3); /* a step of an optimizer */
    cb_no_grad_close();
    EXPECT(w, 3, 6);
    cb_tensor *d = cb_detach(cb_mul(w, 2));
    assert_false(cb_requires_grad(d));
    assert_true(cb_shares_storage(cb_detach(w), w));
    assert_int_equal(cb_backward(cb_sum(cb_mul(d, w)), NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 6, 12);
    assert_false(cb_requires_grad(cb_gt(w, 0)));
    cb_no_grad_close();
    expect_refused("none is open");
}

/* The mask of the forward pass is that of the gradient, and the same as without a tape. */
static void dropout_keeps_its_mask(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(64), CB_F64), *w = leaf(cb_ones(cb_dims(64), CB_F64));
    cb_manual_seed(3);
    cb_tensor *plain = cb_dropout(x, 0.25, true);
    cb_manual_seed(3);
    cb_tensor *y = cb_dropout(w, 0.25, true);
    assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
    cb_tensor *differences[] = {cb_sub(plain, cb_detach(y)), cb_sub(plain, cb_tensor_grad(w))};
    for (int i = 0; i < 2; i++) EXPECT(cb_sum(cb_abs(differences[i])), 0);
}

static void norms_move_statistics(void **state) {
    (void)state;
    cb_tensor *x = leaf(cb_randn(cb_dims(6, 2), CB_F64));
    cb_tensor *mean = cb_zeros(cb_dims(2), CB_F64), *var = cb_ones(cb_dims(2), CB_F64);
    cb_tensor *y = cb_batch_norm(x, mean, var, NULL, NULL, true, 0.1);
    assert_false(cb_requires_grad(mean));
    assert_int_equal(cb_backward(cb_sum(cb_mul(y, y)), NULL), CB_OK);
    assert_non_null(cb_tensor_grad(x));
}

static void writes_are_seen(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *x = VALUES(CB_F64, 3, 4);
    cb_tensor *product = cb_mul(w, x), *sum = cb_add(w, x);
    cb_add_(x, 1);
    assert_int_not_equal(cb_backward(cb_sum(product), NULL), CB_OK);
    expect_refused("operand 1 of mul");
    assert_null(cb_tensor_grad(w));
    assert_int_equal(cb_backward(cb_sum(sum), NULL), CB_OK); /* which reads neither */
    EXPECT(cb_tensor_grad(w), 1, 1);
    assert_null(cb_add_(w, 1));
    expect_refused("the target requires a gradient");
    assert_null(cb_assign(x, w));
    expect_refused("the value requires a gradient");
    EXPECT(x, 4, 5);
}

static void refusals(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *x = VALUES(CB_F64, 3, 4);
    cb_tensor *q = leaf(cb_ones(cb_dims(2, 3, 4))), *wrt[] = {w, NULL}, *got[2];
    assert_null(cb_requires_grad_(cb_ones(cb_dims(2), CB_I64), true));
    expect_refused("i64");
    assert_null(cb_requires_grad_(cb_mul(w, 2), false));
    expect_refused("the result of mul");
    cb_backward(x, NULL);
    expect_refused("requires a gradient");
    cb_backward(NULL, NULL);
    expect_refused("NULL");
    cb_backward(cb_mul(w, x), NULL);
    expect_refused("f64[2] is no single number");
    cb_backward(cb_sum(w), x);
    expect_refused("a gradient of f64[2] for a tensor of f64[]");
    cb_grad(cb_sum(w), NULL, wrt, 2, got);
    expect_refused("tensor 1 is NULL");
    cb_tensor *y =
        cb_floor_divide(w, 2); /* computed, as in PyTorch, which refuses to go back to it */
    assert_true(cb_requires_grad(y));
    cb_backward(cb_sum(y), NULL);
    expect_refused("comes to floor_divide (test_tape.c:");
    assert_null(cb_scaled_dot_product_attention(q, q, q, NULL, 0.5));
    expect_refused("dropout inside of attention");
    assert_null(cb_to_device(w, "cpu"));
    expect_refused("to_device");
    assert_ptr_equal(cb_requires_grad_(w, false), w);
    assert_false(cb_requires_grad(w));
}

/* As many numbers as are taken off, or fewer: the divisor is 0, there and back. */
static void spreads_without_freedom(void **state) {
    (void)state;
    double got[2];
    for (int correction = 2; correction < 4; correction++) {
        cb_tensor *w = leaf(VALUES(CB_F64, 1, 2));
        cb_backward(cb_var(w, CB_ALL, correction), NULL);
        assert_int_equal(cb_read(cb_tensor_grad(w), got, CB_F64), CB_OK);
        assert_true(isinf(got[0]) && isinf(got[1]));
        cb_zero_grad(w);
        cb_backward(cb_std(w, CB_ALL, correction), NULL);
        assert_int_equal(cb_read(cb_tensor_grad(w), got, CB_F64), CB_OK);
        assert_true(isnan(got[0]) && isnan(got[1]));
    }
}

/* What was computed from a leaf goes back to it while it is one, as in PyTorch. */
static void leaves_that_are_switched(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *y = cb_sum(cb_mul(w, 2));
    cb_requires_grad_(w, false);
    assert_null(cb_tensor_grad(w));
    assert_false(cb_requires_grad(cb_mul(w, 2)));
    assert_int_equal(cb_backward(y, NULL), CB_OK); /* to nobody */
    cb_requires_grad_(w, true);
    assert_null(cb_tensor_grad(w));
    assert_int_equal(cb_backward(y, NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 2, 2);
    assert_int_equal(cb_backward(cb_sum(cb_mul(w, 3)), NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 5, 5);
    cb_requires_grad_(cb_requires_grad_(w, false), true);
    assert_null(cb_tensor_grad(w)); /* switching off frees it */
    cb_requires_grad_(w, false);
}

static cb_tensor *twice(cb_tensor *x) { return cb_mul(x, 2); }

static cb_tensor *goes_back(cb_tensor *x) {
    cb_requires_grad_(x, true);
    return x;
}

/* ---- what a compiled function says of it ---- */

static int told_line; /* of the op that is to blame */
static cb_tensor *outer;

static cb_tensor *gradient_of(cb_tensor *x) {
    cb_tensor *g = NULL;
    cb_grad(cb_sum(cb_square(x)), NULL, &x, 1, &g);
    return g;
}

static cb_tensor *gradient_of_outer(cb_tensor *x) { return cb_mul(x, gradient_of(outer)); }

static cb_tensor *gradient_of_own(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    return cb_mul(inputs[0], gradient_of(cb_module_get(self, "scale")));
}

static cb_tensor *writes_to_a_result(cb_tensor *x) {
    told_line = __LINE__ + 1;
    cb_tensor *y = cb_mul(outer, x), *z = cb_detach(y);
    cb_add_(z, 1.0);
    cb_backward(cb_sum(cb_square(outer)), NULL);
    return z;
}

static cb_tensor *clears_an_error(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    told_line = __LINE__ + 1;
    if (!cb_matmul(x, cb_ones(cb_dims(5, 5)))) cb_clear_error();
    return cb_add(y, 1.0);
}

static cb_tensor *clears_it_before_an_event(cb_tensor *x) {
    cb_tensor *y = clears_an_error(x);
    return cb_mul(y, cb_item(cb_sum(y)));
}

/* Once with default options, by explain, and once as the error of fullgraph. */
static void expect_told(cb_function *fast, cb_function *whole, cb_tensor *x, const char *before,
                        const char *behind) {
    char words[160];
    assert_non_null(cb_call(fast, x));
    assert_null(cb_call(whole, x));
    snprintf(words, sizeof words, "%stest_tape.c:%d%s", before, told_line, behind);
    char *text = cb_explain(fast);
    if (!strstr(text, words)) print_error("no '%s' in %s\n", words, text);
    assert_non_null(strstr(text, words));
    cb_free_text(text);
    expect_refused(words);
    cb_function_free(fast);
    cb_function_free(whole);
}

static void reasons_name_who_is_to_blame(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *x = cb_ones(cb_dims(2), CB_F64);
    told_line = __LINE__ + 1;
    cb_tensor *y = cb_mul(w, 2);
    outer = y;
    expect_told(cb_compile(gradient_of, "backward=tape"),
                cb_compile(gradient_of, "backward=tape, fullgraph=1"), y,
                "input 0 is the result of mul at ", ": take cb_detach of it");
    expect_told(cb_compile(gradient_of_outer, "backward=tape"),
                cb_compile(gradient_of_outer, "backward=tape, fullgraph=1"), x,
                "a tensor that the function finds is the result of mul at ", ": take");
    cb_module *net = cb_module_new("Scaled", gradient_of_own, NULL);
    cb_module_buffer(net, "scale", y);
    expect_told(cb_compile(net, "backward=tape"), cb_compile(net, "backward=tape, fullgraph=1"), x,
                "scale is the result of mul at ",
                ": take cb_detach of it, and cb_requires_grad_ where");
    cb_module_free(net);
    outer = w;
    expect_told(cb_compile(writes_to_a_result, NULL), cb_compile(writes_to_a_result, "fullgraph=1"),
                x, "it writes to the result of mul at ", ", whose history");
    expect_told(cb_compile(clears_an_error, NULL), cb_compile(clears_an_error, "fullgraph=1"), x,
                "an op failed: ", ": matmul: ");
    expect_told(cb_compile(clears_it_before_an_event, NULL),
                cb_compile(clears_an_error, "fullgraph=1"), x, "an op failed: ", ": matmul: ");
}

/* Never a result without its history: what may not compile that runs op by op, and says so. */
static void compiled_functions_run_eagerly(void **state) {
    (void)state;
    cb_function *fast = cb_compile(twice, "backward=tape"),
                *whole = cb_compile(twice, "backward=tape, fullgraph=1");
    cb_tensor *w = leaf(VALUES(CB_F64, 1, 2)), *y = cb_call(fast, w);
    assert_true(cb_requires_grad(y));
    assert_int_equal(cb_backward(cb_sum(y), NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 2, 2);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "gradients are recorded"));
    cb_free_text(text);
    assert_null(cb_call(whole, w));
    expect_refused("fullgraph: gradients are recorded");
    cb_no_grad_open();
    EXPECT(cb_call(whole, w), 2, 4);
    cb_no_grad_close();
    cb_function_free(fast);
    cb_function_free(whole);
}

static int goes_back_traced(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = goes_back(x[0]);
    return 1;
}

static void refused_inside_of_a_trace(void **state) {
    (void)state;
    cb_tensor *x = VALUES(CB_F64, 1);
    assert_null(cb_symbolic_trace_function_with(goes_back_traced, NULL, NULL, &x, 1));
    expect_refused("not inside of what is being traced: make the leaf outside");
}

/* Recording, going back and freeing take no stack. */
static void deep_chains(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F64, 1)), *y = w;
    for (int i = 0; i < 50000; i++) {
        cb_tensor *next = cb_add(y, 1);
        if (y != w) cb_free(y);
        y = next;
    }
    assert_int_equal(cb_backward(y, NULL), CB_OK);
    EXPECT(cb_tensor_grad(w), 1);
}

/* i64 and f16 alone promote to f16, in which 100001 is inf; with f32 beside them, to f32. */
static int join_all(cb_tensor *const *input, int count, cb_tensor **output, void *user) {
    (void)user;
    output[0] = cb_cat(input, count, 0);
    output[1] = cb_stack(input, count, 0);
    return 2;
}

/* What is freed behind the walk: of 64 gradients few are there at once. */
static void gradients_are_freed_on_the_way(void **state) {
    enum { DEEP = 64, WIDE = 1 << 16 };
    (void)state;
    cb_tensor *x = cb_requires_grad_(cb_ones(WIDE, CB_F64), true), *y = x;
    for (int i = 0; i < DEEP; i++) y = cb_sin(y);
    cb_tensor *loss = cb_sum(y);
    int64_t held = cb_memory().live_bytes, each = WIDE * (int64_t)sizeof(double);
    assert_true(held >= cb_memory().peak_bytes - 2 * each); /* the most that there was so far */
    assert_int_equal(cb_backward(loss, NULL), CB_OK);
    assert_true(cb_memory().peak_bytes < held + 8 * each);
}

static void joins_in_the_dtype_of_all(void **state) {
    (void)state;
    static const double wanted[] = {100001, 70000, 1, 2, 3, 4, 5, 6};
    for (int way = 0; way < 3; way++) { /* eagerly, with a history, compiled */
        cb_dtype half = way == 1 ? CB_BF16 : CB_F16;
        cb_tensor *input[] = {VALUES(CB_I64, 100001, 70000), VALUES(half, 1, 2),
                              VALUES(CB_F32, 3, 4), VALUES(CB_F32, 5, 6)};
        cb_tensor *output[2];
        if (way == 1) leaf(input[3]);
        cb_function *function = cb_compile_n(join_all, NULL, "backend=vm,fullgraph=1");
        if (way < 2)
            join_all(input, 4, output, NULL);
        else
            assert_int_equal(cb_call_n(function, input, 4, output, 2), 2);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(cb_dtype_of(output[i]), CB_F32);
            expect(output[i], 8, wanted);
        }
        cb_function_free(function);
    }
}

/* A gradient that somebody multiplied by is another one when more is added to it. */
static void what_is_added_is_a_write(void **state) {
    (void)state;
    cb_tensor *w = leaf(VALUES(CB_F32, 2, 3)), *v = leaf(VALUES(CB_F32, 5, 7));
    assert_int_equal(cb_backward(cb_sum(cb_mul(w, 4.0)), NULL), CB_OK);
    cb_tensor *y = cb_sum(cb_mul(cb_tensor_grad(w), v));
    assert_int_equal(cb_backward(cb_sum(w), NULL), CB_OK);
    assert_int_not_equal(cb_backward(y, NULL), CB_OK);
    assert_non_null(cb_error());
    cb_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(adds_up),
        TEST(no_op_is_taken_for_a_gradient),
        TEST(reads_results),
        TEST(views_of_everything),
        TEST(leaves_out_what_leads_nowhere),
        TEST(adds_to_what_requires_it),
        TEST(remainders_by_infinity),
        TEST(powers_of_0),
        TEST(owns_its_gradient),
        TEST(broadcasts_views_and_dtypes),
        TEST(gradients_of_results),
        TEST(gradients_of_gradients),
        TEST(gradients_by_the_cotangent),
        TEST(no_grad_and_detach),
        TEST(joins_in_the_dtype_of_all),
        TEST(dropout_keeps_its_mask),
        TEST(norms_move_statistics),
        TEST(writes_are_seen),
        TEST(what_is_added_is_a_write),
        TEST(leaves_that_are_switched),
        TEST(spreads_without_freedom),
        TEST(refusals),
        TEST(reasons_name_who_is_to_blame),
        TEST(compiled_functions_run_eagerly),
        TEST(refused_inside_of_a_trace),
        TEST(deep_chains),
        TEST(gradients_are_freed_on_the_way),
    };
    return cmocka_run_group_tests_name("tape", tests, NULL, NULL);
}
