/* Gradients of every op of the table beside differences in f64, first and second order.
 *
 *     L(x) = sum(op(x) * c)      with a random cotangent c
 *     M(x) = sum(dL/dx * e)      with a random direction e: its gradient is the second order
 *
 * For a random direction d, sum(dL/dx * d) is (L(x + h d) - L(x - h d)) / 2h up to h squared, and M
 * likewise. All of it is one graph, run on the vector VM. The tape must come to the same. */
#include "graph_support.h"

#include "call_ops.h"
#include "gradients.h"
#include "graph/grad/grad.h"
#include "inside.h"
#include "run/execute.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 8, TRIALS = 2 };
#define STEP 1e-5

#define COMPLAIN(...) (print_error(__VA_ARGS__), print_error("\n"), complaints++)
static int complaints;

typedef struct Case {
    const char *text; /* for messages */
    GradientDomain domain;
    int given, count; /* inputs of the call, which come first, and all */
    Executable *executable;
    cb_tensor *in[2 * MOST + 1];
    cb_tensor *out[2 + 2 * MOST]; /* L, M, dL/dx of the inputs, dM/dx */
} Case;

static Node *times_sum(Graph *graph, Node *x, Node *y) {
    return call_reduce(graph, OP_sum, call2(graph, OP_mul, x, y), (cb_dim_list){-1, {0}}, false);
}

/* A gradient that is not there is 0. */
static Node *or_zero(Graph *graph, Node *g, const Node *x) {
    return g ? g : node_splat(graph, x, (Scalar){0});
}

/* Behind the inputs of the call: the cotangent, and a direction for each. */
static bool differentiate(Graph *graph, int given) {
    Node *x[MOST], *first[MOST], *second[MOST], *y = graph->output[0];
    Meta meta = node_meta(y);
    Node *c = graph_input(graph, &meta), *sum = NULL;
    for (int i = 0; i < given; i++) x[i] = graph->input[i];
    if (!graph_grad(graph, &y, &c, 1, x, given, first, NULL)) return false;
    for (int i = 0; i < given; i++) {
        meta = node_meta(x[i]);
        Node *e = graph_input(graph, &meta);
        if (!dtype_is_float(x[i]->dtype)) continue;
        first[i] = or_zero(graph, first[i], x[i]);
        if (!node_same_meta(first[i], x[i])) return false;
        Node *part = times_sum(graph, first[i], e);
        sum = sum ? call2(graph, OP_add, sum, part) : part;
    }
    Node *one = call_constant(graph, CB_F64, 1);
    if (!graph_grad(graph, &sum, &one, 1, x, given, second, NULL)) return false;
    graph->output[0] = times_sum(graph, y, c);
    push(graph->arena, graph->output, sum);
    for (int order = 0; order < 2; order++)
        for (int i = 0; i < given; i++)
            if (dtype_is_float(x[i]->dtype))
                push(graph->arena, graph->output,
                     or_zero(graph, (order ? second : first)[i], x[i]));
    return true;
}

static cb_tensor *random_input(const Meta *meta, GradientDomain domain) {
    cb_dim_list sizes = {meta->rank, {0}};
    memcpy(sizes.at, meta->size, sizeof meta->size);
    if (meta->dtype == CB_BOOL) return cb_to(cb_randint(0, 2, sizes), CB_BOOL);
    if (!dtype_is_float(meta->dtype)) return cb_randint(0, 3, sizes);
    cb_tensor *u = cb_rand(sizes, CB_F64);
    if (domain == WIDE) return cb_mul(cb_sub(u, 0.5), 8);
    if (domain == ABOVE_ONE) return cb_add(u, 1.2);
    if (domain == POSITIVE) return cb_add(u, 0.3);
    cb_tensor *size = cb_add(cb_mul(u, 0.6), 0.3);
    return cb_where(cb_gt(cb_rand(sizes), 0.5), size, cb_neg(size));
}

static bool build(Case *c, const char *inputs, const char *call) {
    Arena *own = arena_new();
    Graph *graph =
        graph_parse(own, arena_format(own, "graph(%s) { z = %s\nreturn z }", inputs, call));
    c->given = graph ? length(graph->input) : 0;
    if (graph && differentiate(graph, c->given)) {
        Buffer why = buffer_new(own);
        if (!graph_verify(graph, &why)) COMPLAIN("%s: %s", c->text, buffer_text(&why));
        c->count = length(graph->input);
        for (int i = 0; i < c->count; i++) {
            Meta meta = node_meta(graph->input[i]);
            c->in[i] = random_input(&meta, i < c->given ? c->domain : SIGNED);
        }
        graph_optimize(graph, NULL);
        graph->device = device_default();
        c->executable = executable_new(plan_build(graph, own, NULL, (PlanOptions){.fuse = true}),
                                       (ExecutableOptions){0});
        return true;
    }
    COMPLAIN("%s: %s", c->text, cb_error() ? cb_error() : "a gradient of another shape");
    cb_clear_error();
    arena_free(own);
    return false;
}

static double item(cb_tensor *x) {
    double value = NAN;
    assert_int_equal(cb_read(x, &value, CB_F64), CB_OK);
    return value;
}

/* ---- eagerly -------------------------------------------------------------------------------- */

static void compare(const Case *c, int order, int i, cb_tensor *got, cb_tensor *wanted) {
    cb_tensor *same = got ? got : cb_zeros_like(wanted);
    double off = item(cb_sum(cb_abs(cb_sub(cb_detach(same), wanted))));
    double scale = item(cb_sum(cb_abs(wanted))) + 1;
    if (!(off <= 1e-11 * scale))
        COMPLAIN("%s: order %d to input %d is off by %g of %g eagerly", c->text, order, i, off,
                 scale);
}

/* The tape's gradients, and those that it has of them, are the graph's. */
static void check_tape(Case *c, const char *inputs, const char *call) {
    cb_tensor *wrt[MOST], *first[MOST], *second[MOST], *sum = NULL;
    int which[MOST], floats = 0;
    for (int i = 0; i < c->given; i++)
        if (dtype_is_float(cb_dtype_of(c->in[i])))
            wrt[floats] = cb_requires_grad_(c->in[i], true), which[floats++] = i;
    cb_manual_seed(5);
    cb_tensor *y = call_ops(inputs, call, c->in);
    if (strstr(call, "dropout")) return; /* an eager op draws other numbers than a graph's first */
    if (y && !cb_requires_grad(y)) return; /* a step */
    if (!y || cb_grad_graph(y, c->in[c->given], wrt, floats, first) != CB_OK) {
        COMPLAIN("%s: %s", c->text, cb_error());
        cb_clear_error();
        return;
    }
    for (int k = 0; k < floats; k++) {
        compare(c, 1, which[k], first[k], c->out[2 + k]);
        if (!first[k] || !cb_requires_grad(first[k])) continue;
        cb_tensor *part = cb_sum(cb_mul(first[k], c->in[c->given + 1 + which[k]]));
        sum = sum ? cb_add(sum, part) : part;
    }
    memset(second, 0, sizeof second);
    if (sum && cb_grad(sum, NULL, wrt, floats, second) != CB_OK) {
        COMPLAIN("%s: %s", c->text, cb_error());
        cb_clear_error();
    }
    for (int k = 0; k < floats; k++) compare(c, 2, which[k], second[k], c->out[2 + floats + k]);
    for (int k = 0; k < floats; k++) cb_requires_grad_(wrt[k], false);
}

static bool run(Case *c, cb_tensor **in, cb_tensor **out) {
    cb_manual_seed(5); /* the same dropout every time */
    if (run_executable(c->executable, in, out)) return true;
    COMPLAIN("%s: %s", c->text, cb_error());
    cb_clear_error();
    return false;
}

/* L and M at x + h d for input i. */
static bool at(Case *c, int i, cb_tensor *d, double h, double value[2]) {
    cb_tensor *in[2 * MOST + 1], *out[2 + 2 * MOST];
    memcpy(in, c->in, sizeof in);
    in[i] = cb_add(c->in[i], cb_mul(d, h));
    if (!run(c, in, out)) return false;
    for (int order = 0; order < 2; order++) value[order] = item(out[order]);
    return true;
}

static void check_direction(Case *c, int i, int place, int floats, int trial) {
    cb_manual_seed(7 + trial);
    Meta meta = meta_of(c->in[i]);
    cb_tensor *d = random_input(&meta, SIGNED);
    double low[2], high[2];
    if (!at(c, i, d, -STEP, low) || !at(c, i, d, STEP, high)) return;
    for (int order = 0; order < 2; order++) {
        cb_tensor *products = cb_mul(c->out[2 + order * floats + place], d);
        double got = item(cb_sum(products)), wanted = (high[order] - low[order]) / (2 * STEP);
        double scale = item(cb_sum(cb_abs(products))) + fabs(high[order]) + 1;
        if (fabs(got - wanted) <= 2e-7 * scale) continue;
        COMPLAIN("%s: order %d to input %d: %.10g, and by differences %.10g", c->text, order + 1, i,
                 got, wanted);
    }
}

static void check_call(const char *inputs, const char *call, GradientDomain domain) {
    char text[256];
    snprintf(text, sizeof text, "%s of %s", call, inputs);
    Case c = {.text = text, .domain = domain};
    cb_scope_open();
    int floats = 0;
    if (build(&c, inputs, call) && run(&c, c.in, c.out)) {
        for (int i = 0; i < c.given; i++) floats += dtype_is_float(cb_dtype_of(c.in[i]));
        for (int i = 0, place = 0; i < c.given; i++) {
            if (!dtype_is_float(cb_dtype_of(c.in[i]))) continue;
            for (int trial = 0; trial < TRIALS; trial++)
                check_direction(&c, i, place, floats, trial);
            place++;
        }
        check_tape(&c, inputs, call);
    }
    executable_free(c.executable);
    cb_scope_close();
}

/* Results that are never floating point. */
static bool has_no_gradient(const OpInfo *info, Op op) {
    static const Op others[] = {OP_full_like, OP_zeros_like, OP_ones_like,
                                OP_rand_like, OP_randn_like, OP_one_hot,
                                OP_argmax,    OP_argmin,     OP_count_nonzero};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i] == op) return true;
    bool indices = op >= OP_max_pool1d_indices && op <= OP_max_pool3d_indices;
    if (op_refuses_gradient(op)) return true;
    return *op_gradient(op) == '!' ? info->kind != KIND_VIEW : indices;
}

static void every_op(void **state) {
    static const char *const shapes[][2] = {{"x: f64[3, 4]", "y: f64[3, 4]"},
                                            {"x: f64[3, 1]", "y: f64[2, 1, 4]"},
                                            {"x: f64[]", "y: f64[2]"},
                                            {"x: f64[0, 2]", "y: f64[2]"}};
    (void)state;
    for (Op op = OP_none + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        int tensors;
        bool alone = tensors_alone(info, &tensors);
        if (info->kind == KIND_SPECIAL || info->flags & LOWERED || has_no_gradient(info, op))
            continue;
        if (!tensors || has_gradient_row(op)) continue;
        if (!alone || tensors > 2) COMPLAIN("%s has no row", info->name);
        for (int s = 0; s < 4 && alone && tensors <= 2; s++) {
            char inputs[96], call[96];
            snprintf(inputs, sizeof inputs, tensors > 1 ? "%s, %s" : "%s", shapes[s][0],
                     shapes[s][1]);
            snprintf(call, sizeof call, tensors > 1 ? "%s(x, y)" : "%s(x)", info->name);
            check_call(inputs, call, domain_of(op));
        }
    }
    assert_int_equal(complaints, 0);
}

static void every_row(void **state) {
    (void)state;
    for (int i = 0; i < GRADIENT_ROWS; i++)
        check_call(gradient_rows[i].inputs, gradient_rows[i].call, gradient_rows[i].domain);
    assert_int_equal(complaints, 0);
}

/* ---- slices of one tensor -------------------------------------------------------------------- */

enum { ROWS = 5, COLUMNS = 9, MOST_SLICES = 9 };

static unsigned drawn;
static int draw(int below) {
    drawn = drawn * 1664525 + 1013904223;
    return (int)(drawn >> 16) % below;
}

static cb_tensor *any_slice(cb_tensor *x) {
    int dim = draw(2), size = dim ? COLUMNS : ROWS, start = draw(size), kind = draw(7);
    if (kind == 0) return cb_select(x, dim, start);
    if (kind == 1) return cb_narrow(cb_flip(x, cb_dims(dim)), dim, start, 1);
    if (kind == 2) return cb_slice(x, dim, start, size, 1 + draw(3));
    if (kind == 3) return cb_select(cb_select(x, 0, draw(ROWS)), 0, draw(COLUMNS));
    if (kind == 4) return cb_slice(cb_slice(x, 0, 1, 4), 1, start, start + 1 + draw(3));
    return cb_slice(x, dim, start, start + draw(size - start + 1));
}

/* By the seed: slices of x, each with a weight; of some seeds all of x, too. */
static int64_t slices_of;
static cb_tensor *weighted_slices(cb_tensor *x, int power) {
    drawn = (unsigned)slices_of;
    int count = 1 + draw(MOST_SLICES);
    cb_tensor *sum = cb_mul(cb_sum(cb_pow(x, power)), draw(2) * 100.0);
    for (int k = 0; k < count; k++)
        sum = cb_add(sum, cb_mul(cb_sum(cb_pow(any_slice(x), power)), k + 1.0));
    return sum;
}

static cb_tensor *gradient_of_slices(cb_tensor *x) {
    cb_tensor *g = NULL;
    assert_int_equal(cb_grad(weighted_slices(x, 1), NULL, &x, 1, &g), CB_OK);
    return g;
}

static cb_tensor *second_of_slices(cb_tensor *x) {
    cb_tensor *g = NULL, *second = NULL;
    assert_int_equal(cb_grad_graph(weighted_slices(x, 3), NULL, &x, 1, &g), CB_OK);
    assert_int_equal(cb_grad(cb_sum(g), NULL, &x, 1, &second), CB_OK);
    return second;
}

/* The sum of powers of 1 is linear: its gradient by one element is what it is of that alone. */
static void of_slices(void **state) {
    (void)state;
    enum { ALL = ROWS * COLUMNS };
    cb_tensor *one = cb_view(cb_eye(ALL), cb_dims(-1, ROWS, COLUMNS));
    cb_tensor *x = cb_to(cb_randint(1, 4, cb_dims(ROWS, COLUMNS)), CB_F32);
    cb_requires_grad_(x, true);
    for (slices_of = 1; slices_of <= 40; slices_of++) {
        float at[ALL], eager[ALL], second[ALL], compiled[ALL];
        cb_function *fast = cb_compile(gradient_of_slices, "backend=vm, fullgraph=1");
        assert_int_equal(cb_read(x, at, CB_F32), CB_OK);
        assert_int_equal(cb_read(gradient_of_slices(x), eager, CB_F32), CB_OK);
        assert_int_equal(cb_read(second_of_slices(x), second, CB_F32), CB_OK);
        assert_int_equal(cb_read(cb_call(fast, x), compiled, CB_F32), CB_OK);
        for (int i = 0; i < ALL; i++) {
            float wanted = (float)item(weighted_slices(cb_select(one, 0, i), 1));
            if (eager[i] != wanted || compiled[i] != wanted || second[i] != 6 * at[i] * wanted)
                COMPLAIN("slices %d at %d: %g eagerly, %g compiled, %g second, not %g",
                         (int)slices_of, i, eager[i], compiled[i], second[i], wanted);
        }
        cb_function_free(fast);
    }
    assert_int_equal(complaints, 0);
}

/* ---- products with one matrix ---------------------------------------------------------------- */

enum { INNER = 9, OUTER = 11, MOST_PRODUCTS = 7 };

static cb_tensor *numbers(int64_t rows, int64_t columns) {
    cb_tensor *x = cb_remainder(cb_mul(cb_arange(0, rows * columns), 2 + draw(5)), 7);
    return cb_to(cb_view(x, cb_dims(rows, columns)), CB_F32);
}

/* Of a few rows or of as many as the matrix has, which is read as it is, by rows of two dims, as
 * several, turned, turned with something added, and from the left. */
static cb_tensor *any_product(cb_tensor *w) {
    int rows = 1 + draw(3) * draw(4), kind = draw(7);
    cb_tensor *x = numbers(rows, kind < 3 ? INNER : OUTER), *y = NULL;
    if (kind == 0) y = cb_matmul(x, w);
    if (kind == 1) y = cb_flatten(cb_matmul(cb_unsqueeze(x, 1), w), 0, 1);
    if (kind == 2) {
        cb_tensor *matrices = cb_expand(w, cb_dims(2, 3, INNER, OUTER));
        y = cb_flatten(cb_matmul(cb_view(x, cb_dims(1, 1, rows, INNER)), matrices), 0, 2);
    }
    if (kind == 3) y = cb_matmul(x, cb_transpose(w, 0, 1));
    if (kind == 4) y = cb_matmul(x, cb_add(cb_transpose(w, 0, 1), 1));
    if (kind == 5) y = cb_linear(x, w, NULL);
    if (kind == 6) y = cb_matmul(w, cb_transpose(x, 0, 1));
    return cb_sum(cb_mul(y, numbers(cb_size(y, 0), cb_size(y, 1))));
}

static int64_t products_of;
static cb_tensor *gradient_of_products(cb_tensor *w) {
    drawn = (unsigned)products_of;
    int count = 1 + draw(MOST_PRODUCTS);
    cb_tensor *sum = cb_mul(cb_sum(w), draw(2) * 100.0), *g = NULL;
    for (int k = 0; k < count; k++) sum = cb_add(sum, any_product(w));
    assert_int_equal(cb_grad(sum, NULL, &w, 1, &g), CB_OK);
    return g;
}

/* Eagerly they are added up one by one; all numbers are small integers. */
static void of_products(void **state) {
    (void)state;
    cb_tensor *w = cb_requires_grad_(cb_randn(cb_dims(INNER, OUTER)), true);
    for (products_of = 1; products_of <= 40; products_of++) {
        cb_function *fast = cb_compile(gradient_of_products, "backend=vm, fullgraph=1");
        cb_tensor *same = cb_eq(cb_call(fast, w), gradient_of_products(w));
        if (item(cb_all(same)) != 1) COMPLAIN("products %d", (int)products_of);
        cb_function_free(fast);
    }
    assert_int_equal(complaints, 0);
}

/* What comes to x first is the caller's own, and a part is added to it. */
static void of_a_slice_beside_all(void **state) {
    (void)state;
    cb_tensor *x = cb_requires_grad_(cb_randn(cb_dims(4)), true), *given = cb_ones(cb_dims(4));
    cb_tensor *g, *y = cb_add(x, cb_expand(cb_slice(x, 0, 1, 2), cb_dims(4)));
    assert_int_equal(cb_grad(y, given, &x, 1, &g), CB_OK);
    assert_true(item(cb_sum(given)) == 4 && item(cb_sum(g)) == 8);
    assert_true(item(cb_select(g, 0, 1)) == 5);
}

/* ---- on devices ------------------------------------------------------------------------------ */

/* The gradient of a 3x3 weight that Winograd's method sums over pictures turns its result
 * around. */
static int turned_around(int device) {
    Arena *own = arena_new();
    Graph *graph = graph_parse(own, "graph(x: f32[16, 64, 16, 16], w: f32[64, 64, 3, 3]) {\n"
                                    " return convolution(x, w, stride=[1, 1], padding=[1, 1]) }");
    graph->device = device;
    Meta meta = node_meta(graph->output[0]);
    Node *given = graph_input(graph, &meta), *to = NULL;
    assert_true(graph_grad(graph, graph->output, &given, 1, &graph->input[1], 1, &to, NULL));
    int count = 0;
    for (int i = 0; i < length(graph->node); i++) count += graph->node[i]->op == OP_flip;
    arena_free(own);
    return count;
}

static void methods_of_the_host_are_for_the_host(void **state) {
    (void)state;
    assert_int_equal(turned_around(DEVICE_cpu), 1);
    assert_int_equal(turned_around(DEVICE_guarded), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(every_op),
                                       TEST(every_row),
                                       TEST(of_slices),
                                       TEST(of_products),
                                       TEST(of_a_slice_beside_all),
                                       TEST(methods_of_the_host_are_for_the_host)};
    return cmocka_run_group_tests_name("grad", tests, NULL, NULL);
}
