/* Training steps that are compiled: forward, cb_backward and the update as one graph. Each step
 * runs eagerly and compiled from the same seed, and must come to the same numbers; what it was
 * compiled to is counted. Parameters are f64, so that only the order of roundings differs. */
#include "fixture.h"

#include "elements.h"

#include <math.h>
#include <string.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { MOST = 12, STEPS = 8 };

static cb_tensor *w[MOST]; /* parameters, and what else a step writes to */
static int parameters, tensors;

static cb_tensor *made(cb_tensor *x, bool requires_grad) {
    w[tensors++] = x;
    parameters += requires_grad;
    return requires_grad ? cb_requires_grad_(x, true) : x;
}

static cb_tensor *weight(cb_dim_list sizes) {
    return made(cb_mul(cb_randn(sizes, CB_F64), 0.4), true);
}

static void sgd(double rate) {
    cb_no_grad_open();
    for (int i = 0; i < parameters; i++)
        if (cb_tensor_grad(w[i])) cb_sub_(w[i], cb_mul(cb_tensor_grad(w[i]), rate));
    cb_no_grad_close();
}

static void zero_grad(void) {
    for (int i = 0; i < parameters; i++) cb_zero_grad(w[i]);
}

typedef struct Training {
    void (*make)(void); /* fills w */
    cb_tensor *(*step)(cb_tensor *x, cb_tensor *t);
    void (*after)(int step); /* by the caller, or NULL */
} Training;

typedef struct Course {
    double loss[STEPS], end[MOST]; /* end: a sum over each tensor that tells its elements apart */
} Course;

static double told(cb_tensor *x) {
    cb_tensor *flat = cb_reshape(cb_detach(x), cb_dims(cb_numel(x)));
    return cb_item(cb_sum(cb_mul(flat, cb_cos(cb_arange(0, cb_numel(x), 1, CB_F64)))));
}

/* From the same seed, so that all draws are the same, too. */
static Course train(const Training *training, cb_function *fast) {
    Course course;
    cb_manual_seed(11);
    parameters = tensors = 0;
    cb_scope_open();
    training->make();
    cb_tensor *x = cb_randn(cb_dims(6, 4), CB_F64);
    cb_tensor *t = cb_remainder(cb_arange(0, 6), 3);
    for (int step = 0; step < STEPS; step++) {
        cb_scope_open();
        cb_tensor *loss = fast ? cb_call(fast, x, t) : training->step(x, t);
        if (cb_error()) fail_msg("step %d: %s", step, cb_error());
        course.loss[step] = cb_item(loss);
        if (training->after) training->after(step);
        cb_scope_close();
    }
    cb_no_grad_open();
    for (int i = 0; i < tensors; i++) course.end[i] = told(w[i]);
    cb_no_grad_close();
    cb_scope_close();
    return course;
}

static void expect_near(const char *what, int i, double got, double wanted) {
    if (!(fabs(got - wanted) <= 1e-9 * (1 + fabs(wanted))))
        fail_msg("%s %d: %.17g, eager has %.17g", what, i, got, wanted);
}

/* The counts of the compiled run. */
static cb_function_stats expect_as_eager(const Training *training, const char *options) {
    cb_function *fast = cb_compile(training->step, options);
    Course eager = train(training, NULL), compiled = train(training, fast);
    for (int i = 0; i < STEPS; i++) expect_near("loss", i, compiled.loss[i], eager.loss[i]);
    for (int i = 0; i < tensors; i++) expect_near("tensor", i, compiled.end[i], eager.end[i]);
    assert_true(fabs(eager.loss[STEPS - 1] - eager.loss[0]) > 1e-6); /* it does learn */
    cb_function_stats stats = cb_stats(fast);
    cb_function_free(fast);
    return stats;
}

static void expect_graphs(const Training *training, const char *options, int graphs) {
    cb_function_stats stats = expect_as_eager(training, options);
    if (stats.graphs != graphs || stats.eager_calls)
        fail_msg("%d graphs, %d eager calls; %d graphs were expected", (int)stats.graphs,
                 (int)stats.eager_calls, graphs);
}

/* ---- whole steps ----------------------------------------------------------------------------- */

static void make_mlp(void) {
    weight(cb_dims(8, 4));
    weight(cb_dims(8));
    weight(cb_dims(3, 8));
    weight(cb_dims(3));
}

static cb_tensor *mlp_loss(cb_tensor *x, cb_tensor *t) {
    cb_tensor *h = cb_relu(cb_linear(x, w[0], w[1]));
    return cb_cross_entropy(cb_linear(h, w[2], w[3]), t);
}

static cb_tensor *mlp_step(cb_tensor *x, cb_tensor *t) {
    cb_tensor *loss = mlp_loss(x, t);
    cb_backward(loss, NULL);
    sgd(0.1);
    zero_grad();
    return loss;
}

/* Gradients that nobody sees are temporaries: the update is one kernel behind the products. */
static void a_step_is_one_graph(void **state) {
    (void)state;
    const Training training = {make_mlp, mlp_step, NULL};
    expect_graphs(&training, NULL, 1);
    cb_function_stats stats = expect_as_eager(&training, "freeze=1"); /* parameters are none */
    assert_int_equal(stats.graphs, 1);
    assert_int_equal(stats.kernels, 12);
    expect_graphs(&training, "fullgraph=1", 1);
}

/* zero_grad before the step: the first call finds no gradient, the others one that dies. What lives
 * at the end is the leaf's. */
static cb_tensor *zeroing_first(cb_tensor *x, cb_tensor *t) {
    zero_grad();
    cb_tensor *loss = mlp_loss(x, t);
    cb_backward(loss, NULL);
    sgd(0.1);
    return loss;
}

static void update_outside(int step) {
    (void)step;
    sgd(0.1);
}

static void zero_sometimes(int step) {
    if (step % 3 < 2) return;
    sgd(0.1);
    zero_grad();
}

static cb_tensor *gradients_alone(cb_tensor *x, cb_tensor *t) {
    cb_tensor *loss = mlp_loss(x, t);
    cb_backward(loss, NULL);
    return loss;
}

static cb_tensor *gradients_anew(cb_tensor *x, cb_tensor *t) {
    zero_grad();
    return gradients_alone(x, t);
}

static void gradients_that_live_are_stored(void **state) {
    (void)state;
    const Training first = {make_mlp, zeroing_first, NULL};
    const Training outside = {make_mlp, gradients_anew, update_outside};
    const Training sums = {make_mlp, gradients_alone, zero_sometimes};
    expect_graphs(&first, NULL, 1);
    expect_graphs(&outside, NULL, 1);
    expect_graphs(&sums, NULL, 2); /* with a gradient to add to, and without one */
    expect_graphs(&first, "fullgraph=1", 1);
    expect_graphs(&outside, "fullgraph=1", 1);
    expect_graphs(&sums, "fullgraph=1", 2); /* whichever tensor it is */
}

static cb_tensor *two_losses(cb_tensor *x, cb_tensor *t) {
    cb_tensor *h = cb_tanh(cb_linear(x, w[0], w[1]));
    cb_tensor *y = cb_linear(h, w[2], w[3]);
    cb_tensor *loss = cb_cross_entropy(y, t), *size = cb_mean(cb_mul(h, h));
    cb_backward(loss, NULL);
    cb_backward(size, cb_full(CB_NO_DIMS, 0.25, CB_F64));
    sgd(0.1);
    zero_grad();
    return loss;
}

static cb_tensor *clipped(cb_tensor *x, cb_tensor *t) {
    cb_tensor *loss = mlp_loss(x, t), *sum = NULL;
    cb_backward(loss, NULL);
    for (int i = 0; i < parameters; i++) {
        cb_tensor *g = cb_tensor_grad(w[i]), *square = cb_sum(cb_mul(g, g));
        sum = sum ? cb_add(sum, square) : square;
    }
    cb_tensor *scale = cb_minimum(cb_div(0.05, cb_sqrt(sum)), 1.0);
    for (int i = 0; i < parameters; i++) cb_mul_(cb_tensor_grad(w[i]), scale);
    sgd(1);
    zero_grad();
    return loss;
}

/* Gradients of values on the way, which nobody adds to anything. */
static cb_tensor *listed(cb_tensor *x, cb_tensor *t) {
    cb_tensor *h = cb_tanh(cb_linear(x, w[0], w[1]));
    cb_tensor *loss = cb_cross_entropy(cb_linear(h, w[2], w[3]), t), *got[4];
    cb_tensor *wrt[] = {w[0], h, x, w[2]};
    if (cb_grad(loss, NULL, wrt, 4, got)) return NULL;
    if (got[2] || cb_tensor_grad(w[0])) return NULL;
    cb_no_grad_open();
    cb_sub_(w[0], cb_mul(got[0], 0.1));
    cb_sub_(w[2], cb_mul(got[3], 0.1));
    cb_sub_(w[1], cb_mul(cb_sum(got[1], 0), 0.1));
    cb_no_grad_close();
    return loss;
}

/* A penalty on the gradient, which is gone back over; another gradient is a constant. */
static cb_tensor *penalized(cb_tensor *x, cb_tensor *t) {
    cb_tensor *h = cb_tanh(cb_linear(x, w[0], w[1]));
    cb_tensor *loss = cb_cross_entropy(cb_linear(h, w[2], w[3]), t), *got[2], *constant;
    if (cb_grad(loss, NULL, &w[2], 1, &constant)) return NULL;
    if (cb_grad_graph(loss, NULL, (cb_tensor *[]){w[0], h}, 2, got)) return NULL;
    if (cb_requires_grad(constant) || !cb_requires_grad(got[0])) return NULL;
    cb_tensor *size = cb_add(cb_sum(cb_mul(got[0], got[0])), cb_mean(cb_softplus(got[1])));
    loss = cb_add(loss, cb_add(cb_mul(size, 0.3), cb_sum(cb_mul(constant, w[2]))));
    cb_backward(loss, NULL);
    sgd(0.1);
    zero_grad();
    return loss;
}

/* A value of its own without a gradient, computed between and by ops of the graph's. */
static cb_tensor *cut(cb_tensor *x, cb_tensor *t) {
    cb_tensor *h = cb_linear(x, w[0], w[1]);
    cb_no_grad_open();
    cb_tensor *scale = cb_add(cb_amax(cb_abs(h)), 1), *same = cb_mul(h, h),
              *row = cb_select(h, 0, 1);
    cb_no_grad_close();
    if (cb_requires_grad(scale) || cb_requires_grad(row) || !cb_requires_grad(h)) return NULL;
    cb_tensor *y = cb_div(cb_add(cb_mul(h, h), cb_mul(same, row)), scale);
    y = cb_linear(cb_add(y, cb_detach(h)), w[2], w[3]);
    cb_tensor *loss = cb_cross_entropy(y, t);
    cb_backward(loss, NULL);
    sgd(0.1);
    zero_grad();
    return loss;
}

/* Two steps in one call: what was written is a leaf, again. */
static cb_tensor *twice(cb_tensor *x, cb_tensor *t) {
    mlp_step(x, t);
    return mlp_step(x, t);
}

static void ways_to_use_gradients(void **state) {
    (void)state;
    cb_tensor *(*step[])(cb_tensor *, cb_tensor *) = {two_losses, clipped, listed,
                                                      cut,        twice,   penalized};
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        const Training training = {make_mlp, step[i], NULL};
        expect_graphs(&training, NULL, 1);
        expect_graphs(&training, "fullgraph=1", 1);
    }
}

static void make_with_state(void) {
    make_mlp();
    for (int i = 0; i < 4; i++) made(cb_zeros_like(cb_detach(w[i])), false);
}

static cb_tensor *momentum(cb_tensor *x, cb_tensor *t) {
    cb_tensor *loss = cb_cross_entropy(
        cb_linear(cb_dropout(cb_gelu(cb_linear(x, w[0], w[1])), 0.3, true), w[2], w[3]), t);
    cb_backward(loss, NULL);
    cb_no_grad_open();
    for (int i = 0; i < parameters; i++) {
        cb_add_(cb_mul_(w[4 + i], 0.9), cb_tensor_grad(w[i]));
        cb_sub_(w[i], cb_mul(w[4 + i], 0.05));
        cb_zero_grad(w[i]);
    }
    cb_no_grad_close();
    return loss;
}

static void make_cnn(void) {
    weight(cb_dims(3, 1, 2, 2));
    weight(cb_dims(3));
    weight(cb_dims(3));
    weight(cb_dims(3, 3));
    made(cb_zeros(cb_dims(3), CB_F64), false);
    made(cb_ones(cb_dims(3), CB_F64), false);
}

static cb_tensor *cnn(cb_tensor *x, cb_tensor *t) {
    cb_tensor *y = cb_conv2d(cb_reshape(x, cb_dims(6, 1, 2, 2)), w[0], NULL, 1, 1);
    y = cb_relu(cb_batch_norm(y, w[4], w[5], w[1], w[2], true));
    cb_tensor *loss = cb_cross_entropy(cb_matmul(cb_mean(y, cb_dims(2, 3)), w[3]), t);
    cb_backward(loss, NULL);
    sgd(0.1);
    zero_grad();
    return loss;
}

static void make_transformer(void) {
    weight(cb_dims(3, 8)); /* tokens */
    weight(cb_dims(8, 24));
    weight(cb_dims(8, 8));
    weight(cb_dims(8));
    weight(cb_dims(8));
    weight(cb_dims(16, 8));
    weight(cb_dims(8, 16));
}

static cb_tensor *transformer(cb_tensor *x, cb_tensor *t) {
    cb_tensor *h = cb_embedding(t, w[0]);
    cb_tensor *n = cb_layer_norm(h, cb_dims(8), w[3], w[4]), *part[3];
    cb_tensor *qkv = cb_reshape(cb_matmul(n, w[1]), cb_dims(6, 3, 2, 4));
    for (int i = 0; i < 3; i++) part[i] = cb_transpose(cb_select(qkv, 1, i), 0, 1);
    cb_tensor *a = cb_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0, true);
    h = cb_add(h, cb_matmul(cb_reshape(cb_transpose(a, 0, 1), cb_dims(6, 8)), w[2]));
    n = cb_layer_norm(h, cb_dims(8), w[3], w[4]);
    h = cb_add(h, cb_linear(cb_gelu(cb_linear(n, w[5])), w[6]));
    cb_tensor *y = cb_linear(h, w[0]); /* the tied head */
    cb_tensor *loss = cb_add(cb_cross_entropy(y, t), cb_mul(cb_mean(x), 0));
    cb_backward(loss, NULL);
    sgd(0.1);
    zero_grad();
    return loss;
}

static void networks(void **state) {
    (void)state;
    const Training training[] = {{make_with_state, momentum, NULL},
                                 {make_cnn, cnn, NULL},
                                 {make_transformer, transformer, NULL}};
    for (int i = 0; i < 3; i++) expect_graphs(&training[i], NULL, 1);
    for (int i = 0; i < 3; i++) expect_graphs(&training[i], "fullgraph=1", 1);
}

/* ---- breaks ---------------------------------------------------------------------------------- */

static double seen;

static cb_tensor *asks_behind(cb_tensor *x, cb_tensor *t) {
    cb_tensor *loss = mlp_loss(x, t);
    cb_backward(loss, NULL);
    seen = cb_item(loss);
    sgd(seen > 100 ? 0.01 : 0.1);
    zero_grad();
    return loss;
}

static cb_tensor *asks_a_gradient(cb_tensor *x, cb_tensor *t) {
    cb_tensor *loss = mlp_loss(x, t);
    cb_backward(loss, NULL);
    seen = cb_item(cb_sum(cb_tensor_grad(w[3])));
    sgd(0.1);
    zero_grad();
    return loss;
}

static cb_tensor *asks_before(cb_tensor *x, cb_tensor *t) {
    cb_tensor *loss = mlp_loss(x, t);
    seen = cb_item(loss);
    cb_backward(loss, NULL);
    sgd(0.1);
    zero_grad();
    return loss;
}

static void values_behind_are_events(void **state) {
    (void)state;
    const Training loss = {make_mlp, asks_behind, NULL},
                   gradient = {make_mlp, asks_a_gradient, NULL};
    expect_graphs(&loss, NULL, 2);
    expect_graphs(&gradient, NULL, 2);
}

/* The history is needed behind the event: the tape goes over two graphs. */
static void values_before_are_events(void **state) {
    (void)state;
    const Training training = {make_mlp, asks_before, NULL};
    assert_int_equal(expect_as_eager(&training, "backward=tape").eager_calls, STEPS);
    expect_graphs(&training, NULL, 2);
}

/* ---- guards ---------------------------------------------------------------------------------- */

static cb_tensor *squares(cb_tensor *a, cb_tensor *b) {
    cb_tensor *loss = cb_sum(cb_mul(cb_mul(a, a), b));
    if (cb_requires_grad(loss)) cb_backward(loss, NULL);
    return loss;
}

static void expect_gradient(cb_tensor *x, double wanted) {
    assert_non_null(cb_tensor_grad(x));
    assert_true(cb_item(cb_select(cb_tensor_grad(x), 0, 0)) == wanted);
}

/* Which inputs require a gradient is guarded; so is whether gradients are wanted at all. */
static void leaves_are_guarded(void **state) {
    (void)state;
    cb_function *fast = cb_compile(squares, NULL);
    cb_tensor *a = cb_full(cb_dims(2), 3, CB_F64), *b = cb_full(cb_dims(2), 5, CB_F64);
    cb_requires_grad_(a, true);
    assert_true(cb_item(cb_call(fast, a, b)) == 90);
    expect_gradient(a, 30);
    assert_null(cb_tensor_grad(b));
    cb_zero_grad(a);
    cb_requires_grad_(b, true);
    cb_tensor *loss = cb_call(fast, a, b);
    assert_false(cb_requires_grad(loss)); /* it was gone back over */
    expect_gradient(a, 30);
    expect_gradient(b, 9);
    assert_false(cb_shares_storage(cb_tensor_grad(a), cb_tensor_grad(b)));
    cb_zero_grad(a), cb_zero_grad(b);
    cb_no_grad_open();
    assert_true(cb_item(cb_call(fast, a, b)) == 90);
    cb_no_grad_close();
    assert_null(cb_tensor_grad(a));
    cb_requires_grad_(a, false);
    cb_call(fast, a, b);
    expect_gradient(b, 9);
    assert_int_equal(cb_stats(fast).graphs, 4);
    cb_requires_grad_(a, true);
    for (int i = 1; i < 3; i++) {
        cb_call(fast, a, b); /* with a gradient to add to */
        cb_zero_grad(a);
        cb_zero_grad(b);
        cb_call(fast, b, b); /* one leaf twice */
        cb_call(fast, b, b);
        expect_gradient(b, 150);
    }
    cb_function_free(fast);
}

static cb_tensor *adds(cb_tensor *a, cb_tensor *b) {
    cb_backward(cb_sum(cb_add(a, b)), NULL);
    return cb_tensor_grad(a);
}

/* Gradients that are one value have storages of their own. */
static void lie_apart(const char *options) {
    cb_function *fast = cb_compile(adds, options);
    cb_tensor *a = cb_requires_grad_(cb_ones(cb_dims(2), CB_F64), true);
    cb_tensor *b = cb_requires_grad_(cb_ones(cb_dims(2), CB_F64), true);
    for (int i = 1; i < 4; i++) {
        cb_tensor *g = cb_call(fast, a, b);
        if (!options) assert_ptr_equal(g, cb_tensor_grad(a));
        assert_true(cb_shares_storage(g, cb_tensor_grad(a)));
        expect_gradient(a, i);
        expect_gradient(b, i);
        assert_false(cb_shares_storage(cb_tensor_grad(a), cb_tensor_grad(b)));
    }
    cb_function_free(fast);
}

static void gradients_lie_apart(void **state) {
    (void)state;
    lie_apart(NULL);
    lie_apart("fullgraph=1");
}

static cb_tensor *kept_w;

static cb_tensor *goes_back_over_one(cb_tensor *x) {
    cb_backward(cb_sum(cb_mul(x, kept_w)), NULL);
    return x;
}

/* Without the function: what it found and left of gradients is the entry's. */
static void gradients_without_the_function(void **state) {
    (void)state;
    cb_function *fast = cb_compile(goes_back_over_one, "fullgraph=1");
    cb_tensor *x = cb_full(cb_dims(2), 3, CB_F64);
    kept_w = cb_requires_grad_(cb_ones(cb_dims(2), CB_F64), true);
    for (int i = 1; i < 4; i++) {
        cb_call(fast, x);
        expect_gradient(kept_w, 3 * i);
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_zero_grad(kept_w);
    cb_call(fast, x);
    expect_gradient(kept_w, 3);
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_requires_grad_(kept_w, false);
    cb_call(fast, x);
    expect_error("requires a gradient");
    cb_function_free(fast);
}

/* ---- what a graph does not have -------------------------------------------------------------- */

static cb_tensor *untracked(cb_tensor *x) {
    cb_backward(cb_sum(cb_detach(x)), NULL);
    return x;
}

static cb_tensor *several(cb_tensor *x) {
    cb_backward(cb_mul(x, 2), NULL);
    return x;
}

static cb_tensor *written(cb_tensor *x) {
    cb_add_(cb_mul(x, 2), 1);
    return x;
}

static cb_tensor *no_gradient(cb_tensor *x) {
    cb_tensor *loss = cb_sum(cb_floor_divide(x, 2));
    return cb_backward(loss, NULL) == CB_OK ? loss : NULL;
}

static void errors_are_those_of_eager(void **state) {
    (void)state;
    cb_function_1 *function[] = {untracked, several, written, no_gradient};
    cb_tensor *x = cb_requires_grad_(cb_ones(cb_dims(2), CB_F64), true);
    for (size_t i = 0; i < sizeof function / sizeof *function; i++) {
        char wanted[256];
        cb_function *fast = cb_compile(function[i], NULL);
        function[i](x);
        assert_non_null(cb_error());
        const char *words = strstr(cb_error(), ": ");
        snprintf(wanted, sizeof wanted, "%.60s", words ? words : cb_error());
        cb_clear_error();
        cb_call(fast, x);
        expect_error(wanted);
        cb_function_free(fast);
    }
}

static cb_tensor *gradient_alone(cb_tensor *x) {
    cb_tensor *g;
    return cb_grad_graph(cb_sum(cb_exp(x)), NULL, &x, 1, &g) ? NULL : g;
}

/* Never without its history. */
static void gradients_that_are_returned(void **state) {
    (void)state;
    cb_function *fast = cb_compile(gradient_alone, NULL);
    cb_tensor *x = cb_requires_grad_(cb_zeros(cb_dims(2), CB_F64), true);
    for (int i = 1; i < 4; i++) {
        cb_backward(cb_sum(cb_mul(cb_call(fast, x), 3)), NULL);
        expect_gradient(x, 3 * i);
    }
    cb_no_grad_open();
    cb_call(fast, x);
    expect_error("requires a gradient"); /* nothing was recorded to go back over */
    cb_no_grad_close();
    cb_function_free(fast);
}

static cb_tensor *found;

static cb_tensor *goes_on_outside(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2);
    cb_backward(cb_sum(cb_mul(y, found)), NULL);
    return y;
}

/* What it finds was computed from a leaf: the tape knows how, and goes over the graph. */
static void history_that_is_found(void **state) {
    (void)state;
    cb_function *fast = cb_compile(goes_on_outside, NULL);
    cb_tensor *leaf = cb_requires_grad_(cb_ones(cb_dims(2), CB_F64), true);
    for (int i = 1; i < 4; i++) {
        found = cb_mul(leaf, 3);
        cb_call(fast, cb_full(cb_dims(2), 5, CB_F64));
        expect_gradient(leaf, 30 * i);
    }
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
}

static cb_tensor *scaled(cb_tensor *x) { return cb_mul(cb_exp(x), 2); }

/* A result with a history is never given without it. */
static void what_is_gone_back_over_outside(void **state) {
    (void)state;
    cb_function *fast = cb_compile(scaled, "backward=tape"), *back = cb_compile(squares, NULL);
    cb_tensor *x = cb_requires_grad_(cb_zeros(cb_dims(2), CB_F64), true);
    for (int i = 1; i < 4; i++) {
        cb_backward(cb_sum(cb_call(fast, x)), NULL);
        expect_gradient(x, 2 * i);
    }
    cb_zero_grad(x);
    cb_call(back, cb_call(fast, x), x); /* from a history outside to the leaf */
    expect_gradient(x, 4);
    cb_no_grad_open();
    cb_call(fast, x);
    cb_no_grad_close();
    assert_int_equal(cb_stats(fast).graphs, 1);
    assert_int_equal(cb_stats(fast).eager_calls, 4);
    cb_function_free(fast);
    cb_function_free(back);
}

/* ---- gradients of zeros ---------------------------------------------------------------------- */

static bool detached; /* what would get zeros */
static cb_tensor *leaf[4];

/* To leaf 0 comes x, and zeros that need no work. */
static cb_tensor *without_leaves_of_zeros(cb_tensor *x, cb_tensor *none) {
    cb_tensor *through = detached ? cb_detach(leaf[0]) : leaf[0];
    cb_tensor *loss = cb_add(cb_sum(cb_mul(leaf[0], x)), cb_sum(cb_floor(cb_neg(through))));
    loss = cb_add(loss, cb_sum(cb_cos(cb_gather(through, 0, none))));
    cb_backward(loss, NULL);
    return loss;
}

/* To leaves 1, 2 and 3 come zeros alone: of floor, of what is empty, of a sign. */
static cb_tensor *with_zeros(cb_tensor *x, cb_tensor *none) {
    cb_tensor *loss = cb_sum(cb_floor(cb_exp(leaf[1])));
    loss = cb_add(loss, cb_sum(cb_cos(cb_index_select(leaf[2], 0, none))));
    loss = cb_add(loss, cb_sum(cb_sign(cb_tanh(cb_mul(leaf[3], x)))));
    cb_backward(cb_add(loss, cb_sum(cb_mul(leaf[0], x))), NULL);
    return loss;
}

static int kernels_of_zeros(cb_tensor *x, cb_tensor *none, bool apart) {
    detached = apart;
    for (int i = 0; i < 4; i++) cb_zero_grad(leaf[i]);
    cb_function *f = cb_compile(without_leaves_of_zeros, "fullgraph=1");
    assert_non_null(cb_call(f, x, none));
    assert_memory_equal(cb_data_const(cb_tensor_grad(leaf[0])), cb_data_const(x), 5 * 4);
    int kernels = (int)cb_stats(f).kernels;
    cb_function_free(f);
    return kernels;
}

static void zeros_are_gradients(void **state) {
    (void)state;
    static const float zero[5];
    cb_tensor *x = cb_add(cb_rand(cb_dims(5)), 0.5), *none = cb_zeros(cb_dims(0), CB_I64);
    for (int i = 0; i < 4; i++) leaf[i] = cb_requires_grad_(cb_rand(cb_dims(5)), true);
    for (int compiled = 0; compiled < 2; compiled++) {
        for (int i = 0; i < 4; i++) cb_zero_grad(leaf[i]);
        cb_function *f = cb_compile(with_zeros, "fullgraph=1");
        cb_tensor *loss = compiled ? cb_call(f, x, none) : with_zeros(x, none);
        if (!loss) fail_msg("%s", cb_error());
        assert_memory_equal(cb_data_const(cb_tensor_grad(leaf[0])), cb_data_const(x), sizeof zero);
        for (int i = 1; i < 4; i++) {
            assert_non_null(cb_tensor_grad(leaf[i]));
            assert_memory_equal(cb_data_const(cb_tensor_grad(leaf[i])), zero, sizeof zero);
        }
        cb_function_free(f);
    }
    assert_int_equal(kernels_of_zeros(x, none, false), kernels_of_zeros(x, none, true));
    assert_false(cb_requires_grad(cb_full_like(leaf[0], 3.0)));
    assert_false(cb_requires_grad(cb_gt(leaf[0], 3.0)));
}

/* The gradients of rearranged elements read no element: they depend on nothing, in a graph, too,
 * where they are made of zeros of the sizes of what was sliced. */
static cb_tensor *(*rearranged)(cb_tensor *x);
static bool followed;
static cb_tensor *rolled(cb_tensor *x) { return cb_roll(x, 1, 1); }
static cb_tensor *circled(cb_tensor *x) { return cb_circular_pad(x, cb_dims(2, 1)); }
static cb_tensor *mirrored(cb_tensor *x) { return cb_reflection_pad(x, cb_dims(2, 1)); }
static cb_tensor *squared(cb_tensor *x) { return cb_square(x); }

static cb_tensor *gradient_of(cb_tensor *x) {
    cb_tensor *g = NULL;
    cb_grad_graph(cb_sum(rearranged(x)), NULL, &x, 1, &g);
    followed = cb_requires_grad(g);
    return cb_detach(g);
}

static void gradients_of_sizes_alone(void **state) {
    (void)state;
    static cb_tensor *(*const functions[])(cb_tensor *) = {rolled, circled, mirrored, squared};
    cb_tensor *x = cb_requires_grad_(cb_rand(cb_dims(3, 4)), true);
    for (int i = 0; i < 4; i++) {
        rearranged = functions[i];
        cb_function *f = cb_compile(gradient_of, "");
        for (int call = 0; call < 3; call++) {
            followed = i < 3;
            assert_non_null(call ? cb_call(f, x) : gradient_of(x));
            assert_int_equal(followed, i == 3);
        }
        assert_int_equal(cb_stats(f).eager_calls, 0);
        cb_function_free(f);
    }
}

/* Where a factor behind floor is infinite, PyTorch's gradient is NaN, of a sum with others, too. */
static cb_tensor *behind_infinity(cb_tensor *x) {
    static cb_tensor *(*const step[])(cb_operand) = {(cb_floor), (cb_round), (cb_sign), (cb_trunc)};
    cb_tensor *inverse = cb_div(1, leaf[0]), *loss = cb_sum(cb_mul(leaf[0], x));
    for (int i = 0; i < 4; i++) loss = cb_add(loss, cb_sum(step[i](cb_operand_tensor(inverse))));
    cb_backward(loss, NULL);
    return loss;
}

static void zeros_times_infinity(void **state) {
    (void)state;
    static const char *const options[] = {NULL, "", "backend=vm", "backend=eager", "fullgraph=1"};
    cb_tensor *x = cb_full(cb_dims(3), 3);
    for (int i = 0; i < 5; i++) {
        leaf[0] = cb_requires_grad_(cb_arange(0, 3, 1, CB_F32), true);
        cb_function *f = cb_compile(behind_infinity, options[i]);
        cb_tensor *loss = i ? cb_call(f, x) : behind_infinity(x);
        if (!loss) fail_msg("%s", cb_error());
        const float *g = cb_data_const(cb_tensor_grad(leaf[0]));
        assert_true(isnan(g[0]));
        assert_true(g[1] == 3 && g[2] == 3);
        cb_function_free(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_step_is_one_graph),
        TEST(gradients_that_live_are_stored),
        TEST(ways_to_use_gradients),
        TEST(networks),
        TEST(values_behind_are_events),
        TEST(values_before_are_events),
        TEST(leaves_are_guarded),
        TEST(gradients_lie_apart),
        TEST(gradients_without_the_function),
        TEST(errors_are_those_of_eager),
        TEST(gradients_that_are_returned),
        TEST(history_that_is_found),
        TEST(what_is_gone_back_over_outside),
        TEST(zeros_are_gradients),
        TEST(gradients_of_sizes_alone),
        TEST(zeros_times_infinity),
    };
    return cmocka_run_group_tests_name("grad_capture", tests, NULL, NULL);
}
