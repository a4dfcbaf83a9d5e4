/* Every allocation of what users do fails, once and from then on: the answer is right or an error,
 * nothing leaks, and the same work succeeds afterwards.
 *
 * A scenario makes all it needs, gives its numbers to `take` and frees everything. Its first run
 * sets what is right and counts the allocations; then it runs again with each of them failing.
 * Long scenarios are sampled: CARBIDE_FAULTS=all tries every allocation. */
#include "failing_once.h"
#include "fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_NUMBERS = 8192, MOST_RUNS = 120 };

static struct {
    double number[MOST_NUMBERS];
    int count;
    bool compare, differs;
} answer;

static bool after_it; /* all allocations behind the one that fails do, too */
static int64_t taken, live;

static void *faulty(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        if (pointer) live--;
        free(pointer);
        return NULL;
    }
    taken++;
    if (countdown == 0) {
        if (!after_it) countdown = -1;
        return NULL;
    }
    if (countdown > 0) countdown--;
    void *out = realloc(pointer, bytes);
    if (out && !pointer) live++;
    return out;
}

/* The numbers of x belong to the answer; NULL is what a failed call gives. */
static void take(cb_tensor *x) {
    if (!x) return;
    static double number[MOST_NUMBERS];
    int64_t count = cb_numel(x);
    assert_true(count >= 0 && count + answer.count <= MOST_NUMBERS);
    if (cb_read(x, number, CB_F64) != CB_OK) return;
    for (int64_t i = 0; i < count; i++) {
        double *at = &answer.number[answer.count++];
        if (!answer.compare)
            *at = number[i];
        else if (!(fabs(*at - number[i]) <= 1e-3 + 1e-3 * fabs(*at)))
            answer.differs = true;
    }
}

static void free_text(char *text) { cb_free_text(text); }

/* ---- scenarios ------------------------------------------------------------------------------ */

static cb_tensor *ramp(int rows, int columns) {
    cb_tensor *flat = cb_to(cb_arange(0, (int64_t)rows * columns), CB_F32);
    return cb_sub(cb_mul(cb_reshape(flat, cb_dims(rows, columns)), 0.0625), 0.75);
}

static void ops_one_by_one(void) {
    cb_tensor *x = ramp(6, 8), *indices = NULL;
    cb_tensor *both[] = {x, cb_exp(x)};
    take(cb_softmax(cb_matmul(x, cb_t(x)), 1));
    take(cb_sort(x, 1, true, &indices));
    take(cb_cat(both, 2, 0));
    take(cb_index_select(x, 0, cb_arange(0, 3)));
    take(cb_scatter_add(cb_zeros(cb_dims(4, 8)), 0,
                        cb_remainder(cb_to(cb_ceil(cb_abs(x)), CB_I64), 4), x));
    take(cb_conv2d(cb_reshape(x, cb_dims(1, 1, 6, 8)), cb_ones(cb_dims(2, 1, 3, 3))));
    take(cb_layer_norm(x, 8));
    take(cb_add_(x, 1.0));
    char text[400];
    cb_format(x, text, sizeof text);
}

static cb_tensor *norm_and_gelu(cb_tensor *x, cb_tensor *y) {
    cb_tensor *half = cb_slice(x, 1, 0, 4);
    cb_assign(half, cb_mul(half, 2.0));
    return cb_gelu(cb_add(cb_layer_norm(x, 8), y));
}

static void call_compiled(const char *options) {
    cb_function *fast = cb_compile(norm_and_gelu, options);
    for (int i = 0; fast && i < 2; i++) {
        cb_tensor *x = ramp(6, 8);
        if (!x) continue;
        take(cb_call(fast, x, cb_mul(x, 0.5)));
    }
    if (fast) free_text(cb_explain(fast));
    cb_function_free(fast);
}
static void compiled_on_the_vm(void) { call_compiled("backend=vm"); }
static void compiled_as_c(void) { call_compiled("backend=c"); }
static void compiled_as_one_graph(void) { call_compiled("backend=vm,fullgraph=1"); }

static cb_tensor *asks_for_a_value(cb_tensor *x) {
    cb_tensor *y = cb_sum(x, 1);
    double first = cb_item(cb_select(y, 0, 0));
    return cb_add(y, first > 0 ? 1.0 : 2.0);
}

static void breaks(void) {
    cb_function *fast = cb_compile(asks_for_a_value, "backend=vm");
    cb_tensor *x = ramp(6, 8);
    for (int i = 0; fast && x && i < 2; i++) take(cb_call(fast, x));
    if (fast) free_text(cb_explain(fast));
    cb_function_free(fast);
}

static cb_module *small_network(void) {
    cb_manual_seed(3);
    cb_module *network =
        cb_nn_sequential(cb_nn_conv2d(2, 4, 3, 1, "same"), cb_nn_batch_norm2d(4), cb_nn_relu(),
                         cb_nn_max_pool2d(2), cb_nn_flatten(), cb_nn_linear(4 * 9, 5));
    if (network) cb_module_train(network, false);
    return network;
}

static void network_compiled(void) {
    cb_module *network = small_network();
    cb_tensor *x = cb_reshape(ramp(2, 72), cb_dims(2, 2, 6, 6));
    if (network) take(cb_forward(network, x));
    cb_function *fast = network ? cb_compile(network, "backend=vm") : NULL;
    for (int i = 0; fast && x && i < 2; i++) take(cb_call(fast, x));
    if (fast) free_text(cb_explain(fast));
    cb_function_free(fast);
    cb_module_free(network);
}

static void autocast_and_attention(void) {
    cb_manual_seed(5);
    cb_module *attention = cb_nn_multihead_attention(8, 2);
    cb_tensor *x = cb_reshape(ramp(6, 8), cb_dims(1, 6, 8));
    cb_autocast_open(CB_BF16);
    if (attention) take(cb_forward(attention, x, x, x));
    cb_function *fast = attention ? cb_compile(attention, "backend=vm,autocast=bf16") : NULL;
    cb_tensor *inputs[] = {x, x, x};
    if (fast && x) take(cb_call_1(fast, inputs, 3));
    cb_autocast_close();
    cb_function_free(fast);
    cb_module_free(attention);
}

static void graphs(void) {
    cb_module *network = small_network();
    cb_graph *graph = network ? cb_symbolic_trace(network) : NULL;
    char *text = graph ? cb_graph_text(graph) : NULL;
    cb_graph *again = text ? cb_graph_parse(text, network) : NULL;
    cb_tensor *x = cb_reshape(ramp(2, 72), cb_dims(2, 2, 6, 6)), *out = NULL;
    if (again && x && cb_graph_run(again, &x, 1, &out, 1) == 1) take(out);
    if (again && x) cb_graph_propagate_shapes(again, &x, 1);
    if (again) {
        free_text(cb_graph_tabular(again));
        free_text(cb_graph_readable(again, 0));
        free_text(cb_graph_dot(again));
        free_text(cb_graph_code(again, "forward"));
        cb_graph *copy = cb_graph_copy(again);
        cb_node *relu = copy ? cb_graph_find(copy, "_2") : NULL;
        if (relu) cb_node_replace_all_uses(relu, cb_node_previous(relu));
        if (copy) cb_graph_dead_code(copy);
        if (copy) cb_graph_lint(copy);
        cb_function *fast = copy ? cb_compile(copy, "backend=vm") : NULL;
        if (fast && x) take(cb_call(fast, x));
        cb_function_free(fast);
        cb_graph_free(copy);
    }
    free_text(text);
    cb_graph_free(again);
    cb_graph_free(graph);
    cb_module_free(network);
}

static char state_path[64], array_path[64];

static void files(void) {
    cb_module *network = small_network(), *other = small_network();
    cb_tensor *x = cb_reshape(ramp(2, 72), cb_dims(2, 2, 6, 6));
    if (network && other && cb_module_save_state(network, state_path) == CB_OK &&
        cb_module_load_state(other, state_path, true) == CB_OK)
        take(cb_forward(other, x));
    if (x && cb_npy_save(array_path, x) == CB_OK) take(cb_npy_load(array_path));
    cb_module_free(network);
    cb_module_free(other);
}

/* A layer of each kind of constructor and forward, put together once and called. */
static void layers(void) {
    cb_manual_seed(4);
    cb_module *layer[] = {
        cb_nn_embedding(4, 3, 1),
        cb_nn_layer_norm(cb_dims(8)),
        cb_nn_rms_norm(cb_dims(8)),
        cb_nn_group_norm(2, 6),
        cb_nn_instance_norm1d(6, 1e-5, 0.1, true, true),
        cb_nn_batch_norm1d(6, 1e-5, -1),
        cb_nn_prelu(6),
        cb_nn_conv1d(6, 4, 3, 1, "same", 1, 2, false, "circular"),
        cb_nn_conv_transpose1d(6, 2, 3, 2),
        cb_nn_upsample(CB_NO_DIMS, 2, "linear"),
        cb_nn_reflection_pad1d(2),
        cb_nn_constant_pad1d(1, 0.5),
        cb_nn_dropout1d(0.25),
        cb_nn_softmax(1),
        cb_nn_identity(),
        cb_nn_gelu(true),
    };
    cb_tensor *flat = ramp(6, 8), *x = cb_reshape(flat, cb_dims(1, 6, 8));
    cb_tensor *number = cb_remainder(cb_arange(0, 6), 4);
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        cb_tensor *input = i ? x : number;
        if (layer[i] && input) take(cb_forward(layer[i], input));
        if (layer[i]) free_text(cb_module_text(layer[i]));
        cb_module_free(layer[i]);
    }
}

static void attention_with_all_options(void) {
    cb_manual_seed(6);
    cb_module *a = cb_nn_multihead_attention(8, 2, 0, true, true, true, 4, 8, true);
    cb_tensor *q = cb_reshape(ramp(6, 8), cb_dims(2, 3, 8)), *weights = NULL;
    cb_tensor *k = cb_reshape(ramp(6, 4), cb_dims(2, 3, 4));
    cb_tensor *hidden = cb_gt(cb_reshape(cb_arange(0, 6), cb_dims(2, 3)), 4);
    if (a && q && k && hidden) {
        take(cb_multihead_attention(a, q, k, q, hidden, NULL, true, &weights, true));
        take(weights);
        take(cb_multihead_attention(a, q, k, q, hidden, NULL, true, NULL, true));
    }
    cb_module_free(a);
}

static void several_at_a_time(void) {
    cb_tensor *x = ramp(4, 6), *empty = cb_ones(cb_dims(0), CB_F64), *piece[4] = {NULL}, *places;
    if (x && cb_split(x, 2, 1, piece, 4) == 3)
        for (int i = 0; i < 3; i++) take(piece[i]);
    if (x && cb_chunk(x, 2, 0, piece, 4) == 2) take(piece[1]);
    cb_tensor *list[] = {x, empty, x};
    if (x && empty) take(cb_cat(list, 3, 0));
    list[1] = x;
    if (x) take(cb_stack(list, 3, 1));
    if (x) take(cb_topk(x, 2, 1, true, &places));
    double number[2] = {1, 2};
    take(cb_from_data(number, CB_F64, cb_dims(2)));
    cb_tensor *mean = cb_zeros(cb_dims(6)), *var = cb_ones(cb_dims(6));
    if (x && mean && var) take(cb_batch_norm(x, mean, var, NULL, NULL, true, 0.5, 1e-5));
}

/* A state that does not fit is reported, and one that fits the wrong way round is loaded. */
static void states(void) {
    cb_module *net = cb_module_new("Net", NULL, NULL);
    cb_module *linear = cb_nn_linear(3, 2);
    if (!net || !cb_module_add(net, "first", linear)) {
        cb_module_free(linear);
        linear = NULL;
    }
    cb_tensor *weight = linear ? cb_module_get(net, "first.weight") : NULL;
    cb_tensor *turned = weight ? cb_module_parameter(net, "turned", cb_t(ramp(3, 2))) : NULL;
    char *keys = NULL;
    if (turned && cb_module_share(net, "tied", weight) && cb_module_to(net, CB_F64) == CB_OK &&
        cb_module_save_state(net, state_path) == CB_OK) {
        cb_module_load_state_keys(net, state_path, false, &keys);
        take(cb_module_get(net, "turned"));
        free_text(keys);
        cb_module_parameter(net, "more", cb_ones(cb_dims(2)));
        if (cb_module_load_state(net, state_path, true) == CB_ERR_ARGUMENT) cb_clear_error();
    }
    cb_module_free(net);
}

/* ---- one allocation after the other --------------------------------------------------------- */

static void run(void (*scenario)(void)) {
    answer.count = 0;
    cb_scope_open();
    scenario();
    countdown = -1;
    cb_scope_close();
    cb_cleanup();
}

/* Without faults: right, and no memory stays. */
static void run_well(void (*scenario)(void), int64_t kept) {
    answer.differs = false;
    run(scenario);
    if (cb_error()) fail_msg("without a fault: %s", cb_error());
    assert_false(answer.differs);
    assert_int_equal(cb_memory().live_tensors, 0);
    assert_int_equal(live, kept);
}

/* What survives a failed allocation is either right or missing; an answer that lacks numbers says
 * why. */
static void run_with_fault(void (*scenario)(void), int64_t at, int numbers, int64_t kept) {
    answer.differs = false;
    cb_clear_error();
    countdown = at;
    run(scenario);
    if (answer.count < numbers) {
        if (!cb_error())
            fail_msg("allocation %lld: an answer is missing without an error", (long long)at);
        if (cb_error_status() != CB_ERR_MEMORY)
            fail_msg("allocation %lld: %s", (long long)at, cb_error());
    } else if (answer.differs)
        fail_msg("allocation %lld: another answer", (long long)at);
    assert_int_equal(cb_memory().live_tensors, 0);
    if (live != kept)
        fail_msg("allocation %lld: %lld blocks leak", (long long)at, (long long)(live - kept));
    cb_clear_error();
}

static void each_allocation_fails(void **state) {
    void (*scenario)(void) = *(void (**)(void)) * state;
    cb_clear_error();
    answer.compare = false;
    run(scenario);
    if (cb_error()) fail_msg("without a fault: %s", cb_error());
    answer.compare = true;
    int numbers = answer.count;
    int64_t kept = live;
    run_well(scenario, kept);
    taken = 0;
    run_well(scenario, kept);
    const char *amount = getenv("CARBIDE_FAULTS");
    bool all = amount && strcmp(amount, "all") == 0;
    int64_t step = all || taken < MOST_RUNS ? 1 : taken / MOST_RUNS + 1, count = taken;
    for (int64_t n = 0; n < count; n += step)
        for (int from = 0; from < 2; from++) {
            after_it = from;
            run_with_fault(scenario, n + (from && !all ? step / 2 : 0), numbers, kept);
        }
    run_well(scenario, kept);
}

#define SCENARIO(name)                                                                             \
    {                                                                                              \
#name, each_allocation_fails, NULL, NULL, &(void (*[1])(void)) { name }                    \
    }

int main(void) {
    snprintf(state_path, sizeof state_path, "/tmp/carbide-faults-%d.safetensors", (int)getpid());
    snprintf(array_path, sizeof array_path, "/tmp/carbide-faults-%d.npy", (int)getpid());
    cb_set_allocator((cb_allocator){faulty, NULL});
    const struct CMUnitTest tests[] = {
        SCENARIO(ops_one_by_one),
        SCENARIO(compiled_on_the_vm),
        SCENARIO(compiled_as_c),
        SCENARIO(compiled_as_one_graph),
        SCENARIO(breaks),
        SCENARIO(network_compiled),
        SCENARIO(autocast_and_attention),
        SCENARIO(graphs),
        SCENARIO(files),
        SCENARIO(layers),
        SCENARIO(attention_with_all_options),
        SCENARIO(several_at_a_time),
        SCENARIO(states),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(state_path), unlink(array_path);
    return failed;
}
