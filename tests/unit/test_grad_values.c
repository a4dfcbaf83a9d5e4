/* Whose gradient is whose, where one graph has a node for several tensors: copies that nothing
 * follows, equal ops and views, leaves that are written to, and what is asked for by name. Each
 * program runs eagerly and compiled, three times; its results, gradients and tensors must be the
 * same numbers, and where eager has no gradient, there is none. */
#include "fixture.h"

#include <math.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

static cb_tensor *w, *v, *t; /* two leaves and a tensor that is none */

/* What a program found out, as results: for NULL, which is no result, a number of its own. */
enum { MOST_RESULTS = 32 };
static int results;
static cb_tensor *result[MOST_RESULTS];
static void give(cb_tensor *x) { result[results++] = x ? x : cb_full(cb_dims(3), -77, CB_F64); }
static void give_gradients(cb_tensor *loss, cb_tensor *a, cb_tensor *b) {
    cb_tensor *wrt[] = {a, b}, *g[2] = {NULL};
    cb_grad(loss, NULL, wrt, b ? 2 : 1, g);
    for (int i = 0; i < (b ? 2 : 1); i++) give(g[i]);
}

/* Parts of the loss have weights of their own, so that each shows in a gradient. */
static cb_tensor *part(cb_tensor *x, double weight) { return cb_sum(cb_mul(x, weight)); }
static cb_tensor *parts(cb_tensor *a, cb_tensor *b) { return cb_add(part(a, 3), part(b, 5)); }

/* ---- copies that nothing follows ------------------------------------------------------------- */

static void assigned(cb_tensor *to, cb_tensor *x) {
    cb_no_grad_open();
    cb_assign(to, x);
    cb_no_grad_close();
}

static void copy_of_a_leaf(void) {
    assigned(t, w);
    cb_backward(cb_sum(cb_mul(w, t)), NULL);
}

static void copy_into_a_new_one(void) {
    cb_tensor *c = cb_zeros(cb_dims(3), CB_F64);
    assigned(c, cb_mul(w, 2));
    give(c);
    cb_backward(cb_sum(cb_mul(w, c)), NULL);
}

/* Through views of both, and one number to all. */
static void copy_of_a_part(void) {
    cb_tensor *c = cb_zeros(cb_dims(2, 3), CB_F64);
    assigned(cb_select(c, 0, 1), w);
    assigned(cb_slice(c, 1, 0, 1), cb_slice(w, 0, 1, 2));
    give(cb_select(c, 0, 1));
    cb_backward(cb_sum(cb_mul(w, c)), NULL);
}

/* A copy made where it is followed, of what is not. */
static void copy_of_a_detached_one(void) {
    cb_assign(t, cb_detach(w));
    cb_backward(cb_sum(cb_mul(w, t)), NULL);
}

/* In f32 and back, and a second write over the first. */
static void copy_of_another_dtype(void) {
    cb_tensor *c = cb_zeros(cb_dims(3));
    assigned(c, w);
    assigned(t, c);
    cb_no_grad_open();
    cb_mul_(t, w);
    cb_no_grad_close();
    cb_backward(cb_sum(cb_mul(w, t)), NULL);
}

/* A target network: what is written to requires a gradient, too, which is its own. */
static void copy_to_a_leaf(void) {
    assigned(v, w);
    cb_backward(parts(w, v), NULL);
}

static void copy_of_a_result_to_a_leaf(void) {
    assigned(v, cb_mul(w, 2));
    cb_backward(parts(w, v), NULL);
}

static void leaf_from_itself(void) {
    assigned(v, cb_mul(v, 0.5));
    cb_backward(parts(w, v), NULL);
}

/* ---- asked for, and cut off ------------------------------------------------------------------ */

static void by_a_detached_one(void) {
    cb_tensor *a = cb_mul(w, 2), *d = cb_detach(a);
    give_gradients(cb_sum(cb_mul(a, d)), w, d);
    give_gradients(cb_sum(cb_mul(a, d)), a, cb_detach(d));
}

static void by_what_nothing_follows(void) {
    cb_no_grad_open();
    cb_tensor *a = cb_mul(w, 2), *s = cb_slice(w, 0, 0, 3);
    cb_no_grad_close();
    give_gradients(cb_add(part(w, 3), parts(a, s)), a, s);
}

/* Integers have no gradient, nor what comes of them; a tensor from outside is no leaf. */
static void by_what_has_none(void) {
    cb_tensor *a = cb_to(cb_to(w, CB_I64), CB_F64);
    cb_tensor *loss = cb_sum(cb_mul(w, a));
    give_gradients(loss, w, a);
    give_gradients(loss, v, t);
    give_gradients(loss, loss, NULL);
}

/* What flattens a transposed tensor is a copy: it is followed as the view would be. */
static void by_a_flattened_copy(void) {
    cb_tensor *table = cb_mul(cb_unsqueeze(w, 1), cb_unsqueeze(v, 0));
    cb_tensor *turned = cb_transpose(cb_expand(cb_unsqueeze(w, 0), cb_dims(2, 3)), 0, 1);
    cb_tensor *copy = cb_flatten(cb_transpose(table, 0, 1)), *of_a_leaf = cb_flatten(turned);
    cb_tensor *apart =
        cb_unflatten(cb_narrow(cb_flip(of_a_leaf, cb_dims(0)), 0, 1, 4), 0, cb_dims(2, 2));
    give(cb_full(cb_dims(3), cb_requires_grad(of_a_leaf) + 2 * cb_requires_grad(apart), CB_F64));
    give_gradients(part(of_a_leaf, 3), w, NULL);
    cb_backward(cb_add(parts(cb_mul(copy, copy), of_a_leaf), part(apart, 7)), NULL);
}

/* ---- one node, several tensors --------------------------------------------------------------- */

static void by_equal_ops(void) {
    cb_tensor *a = cb_mul(w, 2), *b = cb_mul(w, 2);
    give_gradients(parts(a, b), a, b);
    give_gradients(parts(a, b), b, w);
    give_gradients(part(a, 3), b, w);
    give_gradients(part(a, 3), a, a);
}

static void by_equal_views(void) {
    cb_tensor *a = cb_mul(w, v), *b = cb_reshape(a, cb_dims(1, 3)),
              *c = cb_reshape(a, cb_dims(1, 3));
    cb_tensor *d = cb_reshape(c, cb_dims(3)), *e = cb_contiguous(a);
    cb_tensor *loss = cb_add(cb_add(parts(b, c), parts(d, a)), part(e, 0.1));
    give_gradients(loss, cb_reshape(b, cb_dims(3)), d);
    give_gradients(loss, e, a);
    cb_tensor *wrt[] = {b, c, cb_slice(w, 0, 0, 2)}, *g[3];
    cb_grad(loss, NULL, wrt, 3, g);
    for (int i = 0; i < 3; i++) give(g[i] ? cb_reshape(g[i], cb_dims(3)) : NULL);
}

/* Views of a leaf, which is a node that many things are. */
static void by_views_of_a_leaf(void) {
    cb_tensor *a = cb_slice(w, 0, 0, 2), *b = cb_slice(w, 0, 0, 2), *c = cb_contiguous(w);
    cb_tensor *loss = cb_add(parts(a, b), cb_add(part(c, 7), part(w, 11)));
    give_gradients(loss, a, b);
    give_gradients(loss, c, w);
    cb_backward(loss, NULL);
}

/* The inside of a composite has the same op, before and behind it; and so has a gradient. */
static void by_what_a_composite_has(void) {
    cb_tensor *mean = cb_mean(w), *spread = cb_var(w), *again = cb_mean(w), *away = cb_sub(w, mean);
    cb_tensor *wave = cb_sin(w), *other = cb_cos(w);
    cb_tensor *g, *loss = cb_add(cb_mul(mean, spread), cb_mul(again, cb_sum(cb_square(away))));
    loss = cb_add(loss, cb_add(cb_std(w), cb_sum(cb_mul(wave, other))));
    cb_grad_graph(loss, NULL, &w, 1, &g);
    give(g);
    give_gradients(cb_add(loss, part(g, 2)), mean, again);
    give_gradients(cb_add(loss, part(g, 2)), other, away);
    give_gradients(cb_add(loss, part(g, 2)), spread, w);
}

/* Drawn again they would be other numbers. */
static void by_equal_ops_of_what_is_drawn(void) {
    cb_tensor *r = cb_rand(cb_dims(3), CB_F64), *d = cb_dropout(w, 0.5, true);
    cb_tensor *a = cb_mul(d, r), *b = cb_mul(d, r);
    give(a);
    give_gradients(cb_add(parts(a, b), part(cb_dropout(w, 0.5, true), 2)), a, w);
    give(cb_rand(cb_dims(3), CB_F64));
    give_gradients(cb_sum(cb_mul(a, b)), b, d);
}

/* Of what two gradients that are equal became, of the second order. */
static void by_equal_gradients(void) {
    cb_tensor *wrt[] = {w, v}, *g[2], *h[2];
    cb_grad_graph(cb_sum(cb_square(cb_add(w, v))), NULL, wrt, 2, g);
    cb_tensor *by[] = {cb_mul(g[0], 2), cb_mul(g[1], 2)};
    cb_grad_graph(cb_add(part(cb_exp(by[0]), 0.1), part(cb_square(by[1]), 3)), NULL, by, 2, h);
    give(h[0]), give(h[1]);
    give_gradients(parts(h[0], h[1]), w, by[1]);
    give_gradients(parts(h[0], h[1]), by[0], v);
}

/* What a gradient reads of its op's result is that result: it has a gradient by it, and by none
 * that is equal. The second is computed when the gradient by the first has been asked for. */
static void by_what_a_gradient_reads(void) {
    cb_tensor *g, *h, *a = cb_exp(w);
    cb_grad_graph(cb_sum(a), NULL, &w, 1, &g);
    give_gradients(part(g, 3), a, NULL);
    cb_tensor *e = cb_exp(w);
    give_gradients(cb_add(part(g, 3), part(e, 2)), a, e);
    cb_tensor *c = cb_div(v, w), *s = cb_softmax(w, 0);
    cb_grad_graph(cb_add(parts(a, c), part(s, 7)), NULL, &w, 1, &g);
    give_gradients(part(g, 3), a, c);
    cb_tensor *b = cb_exp(w), *d = cb_div(v, w), *z = cb_softmax(w, 0);
    give_gradients(cb_add(part(g, 3), part(b, 2)), a, b);
    give_gradients(cb_add(part(g, 3), part(d, 2)), c, d);
    cb_grad_graph(cb_add(part(z, 2), part(b, 2)), NULL, &w, 1, &h);
    give_gradients(parts(g, h), s, z);
    give_gradients(parts(g, h), a, b);
    give_gradients(cb_sum(cb_mul(g, h)), a, w);
}

/* Of a gradient that is a tensor at hand, and of a copy, which is not. */
static void by_what_is_handed_on(void) {
    cb_tensor *g, *h, *a = cb_exp(w), *b = cb_exp(w), *c = cb_contiguous(a), *d = cb_clone(a);
    cb_grad_graph(cb_add(v, w), a, &w, 1, &g);
    give_gradients(parts(g, b), a, b);
    give_gradients(cb_add(parts(c, d), part(a, 2)), c, d);
    cb_grad_graph(cb_add(parts(c, d), part(a, 2)), NULL, &w, 1, &g);
    give_gradients(part(g, 3), a, c);
    give_gradients(parts(g, b), d, b);
    cb_grad_graph(cb_add(v, w), a, &w, 1, &g);
    cb_grad_graph(part(g, 3), NULL, &w, 1, &h);
    give_gradients(part(h, 2), a, g);
    give_gradients(parts(g, b), g, b);
    cb_tensor *row = cb_exp(cb_reshape(w, cb_dims(1, 3))), *same = cb_flip(row, cb_dims(0)),
              *again = cb_flip(row, cb_dims(0));
    cb_grad_graph(cb_add(part(same, 3), part(again, 5)), NULL, &w, 1, &g);
    give_gradients(part(g, 2), same, row);
}

/* What one call gives: further back comes of it, as of its own tensor where it shares elements. */
static void by_gradients_on_the_way(void) {
    cb_tensor *s = cb_reshape(w, cb_dims(1, 3)), *e = cb_exp(w), *g[3];
    cb_tensor *loss = cb_add(part(cb_square(s), 2), part(cb_mul(e, e), 3));
    cb_grad_graph(loss, NULL, (cb_tensor *[]){s, e, w}, 3, g);
    give_gradients(part(g[2], 5), cb_reshape(g[0], cb_dims(3)), w);
    give_gradients(part(g[2], 5), g[1], w);
    cb_tensor *to_s;
    cb_grad(part(g[2], 5), NULL, &g[0], 1, &to_s);
    give(cb_reshape(to_s, cb_dims(3)));
}

/* An add hands one tensor on to both, which is the other one's gradient, too; products are two. */
static void by_gradients_of_one_tensor(void) {
    cb_tensor *wrt[] = {w, v}, *g[2], *h[2];
    cb_grad_graph(cb_sum(cb_square(cb_add(w, v))), NULL, wrt, 2, g);
    give_gradients(part(cb_exp(g[0]), 2), g[1], NULL);
    give_gradients(cb_add(part(cb_exp(g[0]), 2), part(g[1], 3)), g[1], g[0]);
    cb_grad_graph(cb_sum(cb_square(cb_add(cb_mul(w, 2), cb_mul(v, 2)))), NULL, wrt, 2, h);
    give_gradients(part(cb_exp(h[0]), 2), h[1], h[0]);
    cb_grad_graph(cb_sum(cb_square(cb_add(cb_add(w, v), w))), NULL, wrt, 2, h);
    give_gradients(part(cb_exp(h[0]), 2), h[1], h[0]);
}

/* A leaf that it begins with is not what is given back, nor what a gradient by that comes to. */
static void by_what_begins_with_a_leaf(void) {
    cb_tensor *e = cb_exp(w), *g[2];
    cb_grad_graph(e, v, (cb_tensor *[]){e, w}, 2, g);
    give_gradients(part(g[1], 3), g[0], v);
    cb_backward(part(cb_mul(g[0], g[1]), 2), NULL);
    give(cb_tensor_grad(g[0]));
}

static void leaves_of_one_value(void) {
    cb_no_grad_open();
    cb_fill_(w, 2), cb_fill_(v, 2);
    cb_no_grad_close();
    cb_backward(parts(w, v), NULL);
}

static void leaves_of_one_copy(void) {
    cb_tensor *c = cb_mul(t, 2);
    assigned(w, c), assigned(v, c), assigned(w, c);
    cb_tensor *a = cb_mul(c, 2);
    cb_backward(cb_add(part(w, 3), part(a, 2)), NULL);
    give(a);
}

/* The same number twice is one write, and the leaf is used before, between and behind them. */
static void leaf_written_again(void) {
    cb_tensor *before = part(w, 3), *view = cb_slice(w, 0, 0, 2),
              *sum = cb_add(before, cb_sum(view));
    for (int i = 0; i < 2; i++) {
        cb_no_grad_open();
        cb_fill_(w, 2);
        cb_no_grad_close();
        sum = cb_add(sum, cb_add(cb_sum(view), part(w, 5)));
    }
    give_gradients(sum, view, w);
    cb_backward(sum, NULL);
}

/* The whole is recorded again, with what is found and written between. */
static void recorded_again(void) {
    cb_tensor *g, *a = cb_mul(w, v), *first = cb_sum(cb_mul(a, t));
    cb_grad(first, NULL, &w, 1, &g);
    assigned(t, cb_add(g, 1));
    cb_tensor *b = cb_mul(w, v), *c = cb_mul(w, v);
    give_gradients(cb_add(parts(a, b), cb_sum(cb_mul(c, t))), c, b);
    cb_tensor *d = cb_exp(c), *e = cb_exp(c);
    give_gradients(cb_add(parts(d, e), cb_sum(cb_mul(b, t))), d, b);
    give_gradients(parts(a, e), a, c);
    cb_backward(cb_add(parts(a, e), cb_sum(cb_mul(w, t))), NULL);
    give(cb_tensor_grad(w));
}

/* What no op has met, but somebody who looked at its gradient, keeps its number. */
static void recorded_again_with_what_was_looked_at(void) {
    if (cb_tensor_grad(v)) give(cb_tensor_grad(v));
    cb_tensor *a = cb_exp(w), *b = cb_exp(w);
    give_gradients(parts(a, b), a, b);
    cb_backward(cb_sum(cb_mul(a, v)), NULL);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* A gradient has a history where it depends on a leaf, and may be written to where it does not. */
static void ask_whether(cb_tensor *loss) {
    cb_tensor *g;
    cb_grad_graph(loss, NULL, &w, 1, &g);
    bool has = cb_requires_grad(g);
    give(cb_full(cb_dims(3), has, CB_F64));
    if (!has) give(cb_sub_(g, t));
    if (has) cb_backward(cb_sum(g), NULL);
}

static void history_of_gradients(void) {
    ask_whether(part(w, 2));
    ask_whether(cb_sum(w));
    ask_whether(cb_sum(cb_mul(w, t)));
    ask_whether(cb_sum(cb_mul(w, cb_detach(v))));
    ask_whether(cb_sum(cb_mul(w, cb_to(cb_to(w, CB_I64), CB_F64))));
    ask_whether(cb_sum(cb_relu(w)));
    ask_whether(cb_sum(cb_mul(w, v)));
    ask_whether(cb_sum(cb_square(w)));
    ask_whether(cb_sum(cb_exp(w)));
    ask_whether(part(cb_relu(w), 2));
}

typedef struct GradProgram {
    const char *name;
    void (*run)(void);
} GradProgram;
#define PROGRAM(run)                                                                               \
    { #run, run }
static const GradProgram programs[] = {
    PROGRAM(copy_of_a_leaf),
    PROGRAM(copy_into_a_new_one),
    PROGRAM(copy_of_a_part),
    PROGRAM(copy_of_a_detached_one),
    PROGRAM(copy_of_another_dtype),
    PROGRAM(copy_to_a_leaf),
    PROGRAM(copy_of_a_result_to_a_leaf),
    PROGRAM(leaf_from_itself),
    PROGRAM(by_a_detached_one),
    PROGRAM(by_what_nothing_follows),
    PROGRAM(by_what_has_none),
    PROGRAM(by_a_flattened_copy),
    PROGRAM(by_equal_ops),
    PROGRAM(by_equal_views),
    PROGRAM(by_views_of_a_leaf),
    PROGRAM(by_what_a_composite_has),
    PROGRAM(by_equal_ops_of_what_is_drawn),
    PROGRAM(by_equal_gradients),
    PROGRAM(by_what_a_gradient_reads),
    PROGRAM(by_what_is_handed_on),
    PROGRAM(by_gradients_on_the_way),
    PROGRAM(by_gradients_of_one_tensor),
    PROGRAM(by_what_begins_with_a_leaf),
    PROGRAM(leaves_of_one_value),
    PROGRAM(leaves_of_one_copy),
    PROGRAM(history_of_gradients),
    PROGRAM(leaf_written_again),
    PROGRAM(recorded_again),
    PROGRAM(recorded_again_with_what_was_looked_at),
};

enum { CALLS = 3, NUMBERS = 128 };
typedef struct Found {
    int count;
    double number[NUMBERS];
} Found;

static void note(Found *found, cb_tensor *x) {
    double element[3] = {-77};
    int64_t count = x ? cb_numel(x) : 1;
    assert_true(count <= 3 && found->count + count <= NUMBERS);
    if (x) assert_int_equal(cb_read(x, element, CB_F64), CB_OK);
    for (int64_t i = 0; i < count; i++) found->number[found->count++] = element[i];
}

static int run_program(cb_tensor *const *input, int count, cb_tensor **output, void *user) {
    const GradProgram *program = user;
    (void)input, (void)count;
    results = 0;
    program->run();
    give(cb_mul(t, 2));
    for (int i = 0; i < results; i++) output[i] = result[i];
    return results;
}

/* What it finds, call by call, eagerly or compiled with these options. */
static void run_calls(const GradProgram *program, const char *options, Found found[CALLS]) {
    cb_tensor *output[MOST_RESULTS];
    cb_function *fast = options ? cb_compile_n(run_program, (void *)program, options) : NULL;
    cb_scope_open();
    cb_manual_seed(5);
    w = cb_requires_grad_(cb_add(cb_arange(0, 3, 1, CB_F64), 1.5), true);
    v = cb_requires_grad_(cb_add(cb_arange(0, 3, 1, CB_F64), 0.25), true);
    t = cb_full(cb_dims(3), 7, CB_F64);
    for (int call = 0; call < CALLS; call++) {
        found[call].count = 0;
        int count = fast ? cb_call_n(fast, NULL, 0, output, MOST_RESULTS)
                         : run_program(NULL, 0, output, (void *)program);
        if (cb_error()) FAIL("%s, %s: %s", program->name, options ? options : "eager", cb_error());
        for (int i = 0; i < count; i++) note(&found[call], output[i]);
        note(&found[call], cb_tensor_grad(w));
        note(&found[call], cb_tensor_grad(v));
        note(&found[call], w), note(&found[call], v), note(&found[call], t);
        cb_zero_grad(w), cb_zero_grad(v);
    }
    if (fast && cb_stats(fast).eager_calls) FAIL("%s, %s: not compiled", program->name, options);
    cb_scope_close();
    cb_function_free(fast);
}

static void as_eager(const GradProgram *program, const char *options) {
    Found eager[CALLS], compiled[CALLS];
    run_calls(program, NULL, eager);
    run_calls(program, options, compiled);
    for (int call = 0; call < CALLS; call++) {
        assert_int_equal(compiled[call].count, eager[call].count);
        for (int i = 0; i < eager[call].count; i++)
            if (!(fabs(compiled[call].number[i] - eager[call].number[i]) <=
                  1e-12 * (1 + fabs(eager[call].number[i]))))
                FAIL("%s, %s, call %d: number %d is %g, eager has %g", program->name, options, call,
                     i, compiled[call].number[i], eager[call].number[i]);
    }
}

static void as_eager_everywhere(const char *options) {
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) as_eager(&programs[i], options);
}

static void compiled(void **state) {
    (void)state;
    as_eager_everywhere("");
}

static void with_other_backends(void **state) {
    (void)state;
    as_eager_everywhere("backend=vm");
    as_eager_everywhere("backend=eager");
}

static void without_the_function(void **state) {
    (void)state;
    as_eager_everywhere("fullgraph=1");
}

/* ---- where formulas change ------------------------------------------------------------------- */

static cb_tensor *logistic(cb_tensor *x) {
    return cb_binary_cross_entropy_with_logits(x, cb_ones_like(x));
}
static cb_tensor *smooth(cb_tensor *x) {
    return cb_smooth_l1_loss(x, cb_zeros_like(x), CB_REDUCE_MEAN, 0.5);
}
static cb_tensor *huber(cb_tensor *x) { return cb_huber_loss(x, cb_zeros_like(x)); }
static cb_tensor *logsigmoid(cb_tensor *x) { return cb_logsigmoid(x); }
static cb_tensor *hardswish(cb_tensor *x) { return cb_hardswish(x); }
static cb_tensor *distance(cb_tensor *x) {
    return cb_pairwise_distance(cb_expand(x, cb_dims(3)), cb_zeros(cb_dims(3)), 3.0, 0.0);
}
static cb_tensor *root_distance(cb_tensor *x) {
    return cb_pairwise_distance(cb_cat((cb_tensor *[]){x, cb_ones(1)}, 2, 0), cb_zeros(2), 0.5,
                                0.0);
}

static cb_tensor *elu(cb_tensor *x) { return cb_elu(x, 1.5); }
static cb_tensor *celu(cb_tensor *x) { return cb_celu(x, 1.5); }
static cb_tensor *selu(cb_tensor *x) { return cb_selu(x); }
static cb_tensor *elu_far(cb_tensor *x) { return cb_mul(cb_elu(x), 1e8); }
static cb_tensor *celu_far(cb_tensor *x) { return cb_mul(cb_celu(x), 1e8); }
static cb_tensor *selu_far(cb_tensor *x) { return cb_mul(cb_selu(x), 1e8); }
static cb_tensor *power_0(cb_tensor *x) { return cb_pow(x, 0.0); }
static cb_tensor *slope_of_power_1(cb_tensor *x) {
    cb_tensor *slope = NULL;
    cb_grad_graph(cb_sum(cb_pow(x, 1.0)), NULL, &x, 1, &slope);
    return slope;
}

/* First and second derivatives at one point, as PyTorch 2.11 has them. */
static void at_kinks(void **state) {
    (void)state;
    static const struct {
        cb_tensor *(*of)(cb_tensor *);
        double x, first, second;
    } row[] = {{logsigmoid, 0, 0.5, -0.25},
               {logistic, 0, -0.5, 0.25},
               {smooth, 0, 0, 2},
               {huber, 0, 0, 1},
               {hardswish, -3, 0, 0},
               {hardswish, 3, 1, 0},
               {distance, 0, 0, 0},
               {root_distance, 0, 0, 0},
               {elu, 0, 1.5, 0},
               {celu, 0, 1, 0},
               {selu, 0, 1.75809934, 0},
               {elu, NAN, 1, 0},
               {celu, NAN, 1, 0},
               {selu, NAN, 1.05070099, 0},
               {elu, INFINITY, 1, 0},
               {elu_far, -20, 0.20611536, 0.20611536},
               {celu_far, -20, 0.20611536, 0.20611536},
               {selu_far, -20, 0.36237128, 0.36237128},
               {power_0, 0, 0, 0},
               {slope_of_power_1, 0, 0, 0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        cb_tensor *x = cb_requires_grad_(cb_full(1, row[i].x), true), *first, *second;
        cb_tensor *y = cb_sum(row[i].of(x));
        assert_int_equal(cb_grad_graph(y, NULL, &x, 1, &first), CB_OK);
        assert_int_equal(cb_grad(cb_sum(first), NULL, &x, 1, &second), CB_OK);
        double near[] = {cb_item(first) - row[i].first, cb_item(second) - row[i].second};
        if (!(fabs(near[0]) <= 1e-6 && fabs(near[1]) <= 1e-6)) /* nor NaN */
            fail_msg("row %zu: %g and %g", i, cb_item(first), cb_item(second));
    }
}

static cb_tensor *limited(cb_tensor *x) { return cb_clamp(x, -1, 2); }
static cb_tensor *limited_below(cb_tensor *x) { return cb_clamp(x, 0.5); }
static cb_tensor *limited_above(cb_tensor *x) { return cb_clamp(x, NULL, 0.5); }
static cb_tensor *limited_by_nan(cb_tensor *x) { return cb_clamp(x, NAN); }
static cb_tensor *hardsigmoid(cb_tensor *x) { return cb_hardsigmoid(x); }
static cb_tensor *greatest(cb_tensor *x) { return cb_max(x); }
static cb_tensor *least(cb_tensor *x) { return cb_min(x); }
static cb_tensor *sloped(cb_tensor *x) { return cb_prelu(x, cb_full(1, INFINITY)); }
static cb_tensor *three_of(cb_tensor *x) { return cb_adaptive_max_pool1d(cb_unsqueeze(x, 0), 3); }
static cb_tensor *two_of(cb_tensor *x) { return cb_adaptive_max_pool1d(cb_unsqueeze(x, 0), 2); }
static cb_tensor *leaky_without_limit(cb_tensor *x) { return cb_leaky_relu(x, INFINITY); }
static cb_tensor *elu_without_limit(cb_tensor *x) { return cb_elu(x, INFINITY); }
static cb_tensor *value_of_elu(cb_tensor *x) { return cb_mul(x, cb_detach(elu_without_limit(x))); }
static cb_tensor *value_of_celu(cb_tensor *x) { return cb_mul(x, cb_detach(cb_celu(x, INFINITY))); }

/* At NaN, at limits and among equals, as PyTorch 2.11 has it; eagerly and compiled. */
static cb_tensor *(*odd)(cb_tensor *);
static cb_tensor *gradient_of_odd(cb_tensor *x) {
    cb_tensor *first = NULL;
    cb_grad(cb_sum(odd(x)), NULL, &x, 1, &first);
    return first;
}

static void at_odd_elements(void **state) {
    (void)state;
    static const struct {
        cb_tensor *(*of)(cb_tensor *);
        float x[4], first[4];
    } row[] = {
        {limited, {NAN, -1, 2, 2.5}, {0, 1, 1, 0}},
        {smooth, {INFINITY, -INFINITY, 0.25, 3}, {0.25, -0.25, 0.125, 0.25}},
        {huber, {INFINITY, -INFINITY, 0.25, 3}, {0.25, -0.25, 0.0625, 0.25}},
        {limited_below, {NAN, 0.5, 0.25, 7}, {0, 1, 0, 1}},
        {limited_above, {NAN, 0.5, 0.25, 7}, {0, 1, 1, 0}},
        {limited_by_nan, {NAN, 0.5, 0.25, 7}, {0, 0, 0, 0}},
        {hardsigmoid, {NAN, -3, 3, 0}, {0, 0, 0, 1 / 6.f}},
        {greatest, {1, NAN, 2, NAN}, {0, 0.5, 0, 0.5}},
        {greatest, {5, 1, 5, 0}, {0.5, 0, 0.5, 0}},
        {least, {1, NAN, 2, 0}, {0, 1, 0, 0}},
        {sloped, {1, 2, 3, -1}, {1, 1, 1, INFINITY}},
        {two_of, {5, 5, 3, 3}, {1, 0, 1, 0}},
        {three_of, {1, 5, 5, 0}, {0, 2, 1, 0}},
        {leaky_without_limit, {1, -1, 3, 0}, {1, INFINITY, 1, INFINITY}},
        {elu_without_limit, {1, -1, 3, 0}, {1, INFINITY, 1, INFINITY}},
        {value_of_elu, {1, -1, 3, 0}, {1, -INFINITY, 3, 0}},
        {value_of_celu, {1, 0, 3, -0.f}, {1, 0, 3, 0}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        cb_function *fast = cb_compile(gradient_of_odd);
        cb_tensor *x = cb_requires_grad_(cb_from_data(row[i].x, CB_F32, cb_dims(4)), true);
        odd = row[i].of;
        const float *eager = cb_data(gradient_of_odd(x)), *compiled = cb_data(cb_call(fast, x));
        for (int k = 0; k < 4; k++)
            if (eager[k] != row[i].first[k] || compiled[k] != row[i].first[k])
                fail_msg("row %zu, [%d]: %g and %g", i, k, eager[k], compiled[k]);
        cb_function_free(fast);
    }
}

static cb_tensor *extreme(cb_tensor *x, int way) {
    switch (way) {
    case 0:
        return cb_max(x);
    case 1:
        return cb_min(x);
    case 2:
        return cb_amax(x);
    case 3:
        return cb_amin(x);
    case 4:
        return cb_amax(x, 1);
    default:
        return cb_amin(x, 1, true);
    }
}

static int way;
static cb_tensor *gradient_of_extreme(cb_tensor *x) {
    cb_tensor *y = extreme(x, way), *first = NULL;
    cb_grad(y, cb_full_like(y, 64.0), &x, 1, &first);
    return first;
}

/* Shared among more elements than f16 can count. */
static void among_many_equals(void **state) {
    (void)state;
    enum { COUNT = 70000 };
    cb_tensor *x = cb_requires_grad_(cb_ones(cb_dims(1, COUNT), CB_F16), true);
    for (way = 0; way < 6; way++) {
        cb_function *fast = cb_compile(gradient_of_extreme, "backend=vm");
        for (int compiled = 0; compiled < 2; compiled++) {
            cb_tensor *g = compiled ? cb_call(fast, x) : gradient_of_extreme(x);
            if (!g) fail_msg("%s", cb_error());
            assert_int_equal(cb_dtype_of(g), CB_F16);
            double got = cb_item(cb_select(cb_select(g, 0, 0), 0, 5));
            if (fabs(got - 64.0 / COUNT) > 1e-6) fail_msg("way %d, %d: %g", way, compiled, got);
        }
        cb_function_free(fast);
    }
}

/* The row 3e-9, 4e-9, 0 has a norm below eps: it is divided by eps, and its gradient is that of a
 * division by the norm. Numbers of PyTorch 2.11. */
static void cosine_below_eps(void **state) {
    (void)state;
    static const double at[] = {3e-9, 4e-9, 0, 1, 2, 2, 1, 2, 2, 2, -1, 2};
    static const double expected[2][12] = {
        {11333333.333333336, 37333333.33333333, 66666666.666666664, 0.1728395061728395,
         -0.20987654320987653, 0.12345679012345678, 0.05925925925925925, 0.05185185185185184,
         -0.08148148148148149, 0.012345679012345678, 0.2716049382716049, 0.12345679012345678},
        {-1.730666659096296e+16, -3.285333337807407e+16, -3.6666666670370376e+16,
         -0.8106995884773661, 1.1687242798353905, -0.9547325102880658, -20444444.824691355,
         -26222222.434567884, 36444444.79876545, -1.1591220850480108, -1.2537722908093276,
         -1.7640603566529491}};
    cb_tensor *x = cb_requires_grad_(cb_from_data(at, CB_F64, cb_dims(4, 3)), true), *order[2];
    cb_tensor *y = cb_cosine_similarity(cb_narrow(x, 0, 0, 2), cb_narrow(x, 0, 2, 2));
    cb_tensor *weights = cb_reshape(cb_arange(1, 13, 1, CB_F64), cb_dims(4, 3));
    assert_int_equal(cb_grad_graph(cb_sum(y), NULL, &x, 1, &order[0]), CB_OK);
    assert_int_equal(cb_grad(cb_sum(cb_mul(order[0], weights)), NULL, &x, 1, &order[1]), CB_OK);
    for (int k = 0; k < 24; k++) {
        double got = ((const double *)cb_data(order[k / 12]))[k % 12],
               want = expected[k / 12][k % 12];
        if (!(fabs(got - want) <= 1e-9 * fabs(want)))
            fail_msg("order %d, [%d]: %.17g, not %.17g", k / 12 + 1, k % 12, got, want);
    }
}

/* ---- 3x3 weights, by Winograd's method where compiled ---------------------------------------- */

static int64_t border;

static cb_tensor *gradient_of_a_filter(cb_tensor *x, cb_tensor *filter) {
    cb_tensor *y = cb_conv2d(x, filter, NULL, 1, border), *g;
    return cb_grad(cb_sum(cb_mul(y, cb_sin(y))), NULL, &filter, 1, &g) ? NULL : g;
}

static void of_a_filter(void **state) {
    (void)state;
    cb_tensor *x = cb_randn(cb_dims(3, 17, 9, 6), CB_F32);
    cb_tensor *filter = cb_requires_grad_(cb_randn(cb_dims(20, 17, 3, 3), CB_F32), true);
    cb_function *fast = cb_compile(gradient_of_a_filter, NULL);
    for (border = 0; border < 3; border++) {
        cb_tensor *wanted = gradient_of_a_filter(x, filter), *got = cb_call(fast, x, filter);
        double most = cb_item(cb_amax(cb_abs(cb_sub(got, wanted))));
        assert_true(most < 1e-5 * cb_item(cb_amax(cb_abs(wanted))));
    }
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(at_kinks),
        TEST(at_odd_elements),
        TEST(among_many_equals),
        TEST(cosine_below_eps),
        TEST(of_a_filter),
        TEST(compiled),
        TEST(with_other_backends),
        TEST(without_the_function),
    };
    return cmocka_run_group_tests_name("grad_values", tests, NULL, NULL);
}
