/* cb_checkpoint in networks that are compiled, with their gradients in the same graph and outside:
 * what is computed again there, what is not, and the memory that this saves. */
#include "capture/joint.h"
#include "carbide_custom.h"
#include "elements.h"
#include "fixture.h"
#include "run/executable.h"

#include <math.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

enum { ROWS = 256, WIDTH = 32, LAYERS = 12, LEAVES = 8, ELEMENTS = 1 << 16 };

static bool plainly;                  /* without checkpoints */
static cb_tensor *weight[LAYERS];     /* leaves */
static cb_tensor *table, *mean, *var; /* what all layers read, and statistics */
static cb_tensor *indices;

static cb_tensor *part(cb_function_n *function, void *user, cb_tensor *x) {
    cb_tensor *y = NULL;
    if (!plainly) return cb_checkpoint(function, user, &x, 1);
    return function(&x, 1, &y, user) > 0 ? y : NULL;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static int dense(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *w = user, *h = cb_softmax(cb_gelu(cb_matmul(x[0], w)), 1);
    (void)count;
    y[0] = cb_add(cb_tanh(cb_matmul(cb_exp(h), w)), x[0]);
    return 1;
}

/* All layers read one table, and draw. */
static int turned(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = cb_exp(cb_mul(cb_tanh(cb_matmul(x[0], user)), table));
    (void)count;
    h = cb_matmul(cb_dropout(cb_sin(cb_mul(h, table)), 0.25, true), user);
    y[0] = cb_add(x[0], cb_mul(h, cb_rand(cb_dims(ROWS, WIDTH))));
    return 1;
}

static int normalized(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = cb_matmul(x[0], user);
    (void)count;
    h = cb_batch_norm(h, mean, var, NULL, NULL, true, 0.1, 1e-5);
    y[0] = cb_add(cb_mul(cb_sigmoid(h), cb_exp(cb_mul(h, 0.1))), x[0]);
    return 1;
}

/* The greatest elements leave, and what they are of is compared with them. */
static int greatest(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = cb_add(cb_mul(cb_matmul(cb_mul(x[0], table), user), 0.7), table);
    (void)count;
    y[0] = cb_amax(h, 1, true);
    return 1;
}

/* Where the greatest of windows lie is asked by gradients alone. */
static int pooled(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = cb_reshape(cb_tanh(cb_matmul(x[0], user)), cb_dims(1, ROWS, WIDTH));
    (void)count;
    h = cb_max_pool1d(cb_exp(h), 3, 1, 1);
    y[0] = cb_add(cb_reshape(h, cb_dims(ROWS, WIDTH)), x[0]);
    return 1;
}

/* Rows go where an index says that the layer computes. */
static int routed(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = cb_tanh(cb_matmul(x[0], user)), *to = cb_mean(cb_sigmoid(h), 1, false);
    (void)count;
    to = cb_to(cb_mul(to, WIDTH - 1.0), CB_I64);
    h = cb_mul(cb_index_select(cb_tanh(user), 0, to), cb_exp(h));
    h = cb_add(h, cb_embedding(indices, user));
    y[0] = cb_add(cb_matmul(h, user), x[0]);
    return 1;
}

static int nested(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    y[0] = part(turned, user, cb_sin(part(dense, user, x[0])));
    return 1;
}

/* It goes back itself, and what it gives follows from that. */
static int penalized(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = cb_tanh(cb_matmul(x[0], user)), *w = user, *g = NULL;
    (void)count;
    cb_grad_graph(cb_sum(cb_mul(cb_exp(h), table)), NULL, &w, 1, &g);
    y[0] = cb_add(cb_mul(cb_tanh(cb_matmul(h, g)), 0.1), x[0]);
    return 1;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static cb_function_n *layer;

static bool ends_outside; /* behind the last layer */

static cb_tensor *network(cb_tensor *x) {
    for (int i = 0; i < LAYERS; i++) x = part(layer, weight[i], x);
    return ends_outside ? cb_mul(x, 1.5) : x;
}

static cb_tensor *step(cb_tensor *x) {
    x = network(x);
    cb_tensor *loss = cb_mean(cb_mul(x, x));
    cb_backward(loss, NULL);
    return loss;
}

static void set_up(void) {
    cb_manual_seed(5);
    for (int i = 0; i < LAYERS; i++)
        weight[i] = cb_requires_grad_(cb_mul(cb_randn(cb_dims(WIDTH, WIDTH)), 0.15), true);
    table = cb_rand(cb_dims(ROWS, WIDTH));
    mean = cb_zeros(WIDTH), var = cb_ones(WIDTH);
    indices = cb_randint(0, WIDTH, ROWS);
}

static int read_all(cb_tensor *x, double *out, int total) {
    assert_non_null(x);
    assert_true(total + cb_numel(x) <= ELEMENTS);
    cb_read(x, out + total, CB_F64);
    return total + (int)cb_numel(x);
}

/* What a step leaves: its loss, gradients, statistics and the next draw. options NULL: op by op.
 * The tensors of its temporaries. */
static double run(cb_function_n *layers, bool plain, const char *options, double *out) {
    cb_scope_open();
    set_up();
    plainly = plain, layer = layers;
    cb_tensor *x = cb_randn(cb_dims(ROWS, WIDTH));
    cb_function *fast = options ? cb_compile(step, options) : NULL;
    int total = read_all(fast ? cb_call(fast, x) : step(x), out, 0);
    for (int i = 0; i < LAYERS; i++) total = read_all(cb_tensor_grad(weight[i]), out, total);
    total = read_all(mean, out, total);
    total = read_all(var, out, total);
    total = read_all(cb_rand(4), out, total);
    if (cb_error()) print_error("%s\n", cb_error());
    assert_null(cb_error());
    assert_true(total < ELEMENTS);
    int64_t bytes = 0;
    if (fast) bytes = executable_plan(atomic_load(&fast->first)->executable)->arena_bytes;
    cb_function_free(fast);
    cb_scope_close();
    return (double)bytes / (sizeof(float) * ROWS * WIDTH);
}

typedef struct Case {
    cb_function_n *layer;
    double least, most, without; /* tensors: the results of layers, and one's inside; at least */
} Case;

static void same_with_less(void **state) {
    static double with[ELEMENTS], without[ELEMENTS], eager[ELEMENTS];
    static const Case cases[] = {{dense, 18, 20, 60},      {turned, 16, 18, 50},
                                 {normalized, 17, 19, 48}, {greatest, 15, 17, 28},
                                 {routed, 18, 20, 70},     {nested, 23, 25, 120},
                                 {pooled, 17, 20, 60},     {penalized, 20, 22, 60}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        double kept = run(c->layer, false, "backend=vm", with);
        double all = run(c->layer, true, "backend=vm", without);
        run(c->layer, false, NULL, eager);
        assert_true(kept > c->least && kept < c->most && all > c->without);
        assert_memory_equal(with, without, sizeof with);
        for (int k = 0; k < ELEMENTS; k++)
            assert_true(fabs(with[k] - eager[k]) <= 1e-6 * (1 + fabs(eager[k])));
    }
}

/* Computing again counts among the rewrites, of which there may be none. */
static void none_without_rewrites(void **state) {
    static double out[ELEMENTS];
    (void)state;
    assert_int_equal(cb_set_option("passes", "0"), CB_OK);
    double kept = run(dense, false, "backend=vm", out), all = run(dense, true, "backend=vm", out);
    assert_int_equal(cb_set_option("passes", "-1"), CB_OK);
    assert_true(kept == all);
}

/* ---- what is done once ----------------------------------------------------------------------- */

static int calls_of_own;

static cb_status copies(const cb_op_call *call) {
    const float *x = call->input[0].data;
    float *y = call->output[0].data;
    for (int i = 0; i < ROWS * WIDTH; i++) y[i] = x[i];
    calls_of_own++;
    return CB_OK;
}

static int with_own(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = cb_tanh(cb_matmul(x[0], user)), *copy = cb_detach(h);
    (void)count;
    copy = cb_call_op("test.copies", &copy, 1, CB_NO_DIMS, cb_floats());
    y[0] = cb_add(cb_mul(cb_exp(h), copy), x[0]); /* a gradient reads the copy */
    return 1;
}

static void own_operations_run_once(void **state) {
    static double with[ELEMENTS], without[ELEMENTS];
    (void)state;
    cb_register_op(&(cb_custom_op){"test.copies", 1, 1, .kernel = copies});
    for (int plain = 0; plain < 2; plain++) {
        calls_of_own = 0;
        run(with_own, plain, "backend=vm", plain ? without : with);
        assert_int_equal(calls_of_own, LAYERS);
    }
    assert_memory_equal(with, without, sizeof with);
}

/* ---- gradients outside ----------------------------------------------------------------------- */

static const int64_t tensor = sizeof(float) * ROWS * WIDTH;

static int steps; /* that lead back */

/* Of a forward pass that is compiled alone: what its calls hold for the gradients. */
static int64_t hold(bool plain, double *out) {
    cb_scope_open();
    set_up();
    plainly = plain, layer = dense;
    cb_function *fast = cb_compile(network, "backend=vm");
    cb_tensor *x = cb_randn(cb_dims(ROWS, WIDTH));
    int64_t before = cb_memory().live_bytes;
    cb_tensor *y = cb_call(fast, x);
    int64_t bytes = cb_memory().live_bytes - before;
    assert_int_equal(cb_backward(cb_sum(cb_mul(y, y)), NULL), CB_OK);
    cb_read(cb_tensor_grad(weight[0]), out, CB_F64);
    const Backward *backward = atomic_load(&fast->first)->backward;
    steps = length(executable_plan(atomic_load(&backward->executable))->step);
    cb_function_free(fast);
    cb_scope_close();
    return bytes;
}

static void less_is_held(void **state) {
    double with[WIDTH * WIDTH], without[WIDTH * WIDTH];
    (void)state;
    int64_t bytes = hold(false, with), more = hold(true, without);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        assert_true(fabs(with[i] - without[i]) <= 1e-4 * (1 + fabs(without[i])));
    assert_true(bytes < (LAYERS + 1) * tensor); /* y, and between layers */
    assert_true(bytes > LAYERS * tensor - tensor && more > bytes + tensor);
}

/* What leads back from the last op is none of its checkpoint's, and not computed again. */
static void gradients_are_outside(void **state) {
    double out[WIDTH * WIDTH];
    (void)state;
    hold(false, out);
    int ends_with_a_layer = steps;
    ends_outside = true;
    hold(false, out);
    ends_outside = false;
    assert_true(ends_with_a_layer <= steps);
}

/* The insides of a layer are computed again right before its gradients: of all layers together, 5
 * tensors each, there would be more. Before anything else that takes memory. */
static void peak(void **state) {
    double out[WIDTH * WIDTH];
    (void)state;
    hold(false, out);
    assert_true(cb_memory().peak_bytes < 3 * LAYERS * tensor);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(peak),         TEST(same_with_less),        TEST(own_operations_run_once),
        TEST(less_is_held), TEST(gradients_are_outside), TEST(none_without_rewrites)};
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
