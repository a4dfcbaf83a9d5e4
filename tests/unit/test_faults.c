/* Every allocation of what users do fails (faults.h). What they compile: test_faults_capture.c. */
#include "custom_ops.h"
#include "faults.h"

#include <pthread.h>
#include <unistd.h>

/* ---- scenarios ------------------------------------------------------------------------------ */

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

static cb_tensor *own_ops(cb_tensor *x, cb_tensor *y) {
    cb_tensor *flat = cb_reshape(cb_mul(x, y), -1), *part[2] = {NULL, NULL}, *both[] = {x, y};
    cb_call_op_n("test.split", &flat, 1, 8, CB_NO_FLOATS, part, 2);
    cb_tensor *sum = cb_call_op("test.add_count", both, 2, CB_NO_DIMS, CB_NO_FLOATS);
    return cb_add(cb_add(cb_sum(part[0]), cb_sum(part[1])), call_max(cb_transpose(sum, 0, 1)));
}

static void ops_of_the_program(void) {
    register_test_ops();
    cb_function *fast = cb_compile(own_ops, "backend=vm");
    for (int i = 0; i < 3; i++) {
        cb_tensor *x = ramp(6, 8), *y = x ? cb_exp(x) : NULL;
        if (x && y) take(i && fast ? cb_call(fast, x, y) : own_ops(x, y));
    }
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
    cb_tensor *row[100] = {NULL}, *line = cb_zeros(cb_dims(100));
    if (line && cb_split(line, 1, 0, row, 100) == 100) take(cb_cat(row, 100, 0));
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
    cb_module *linear = cb_module_add(net, "first", cb_nn_linear(3, 2));
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

static void count_visited(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)buffer;
    *(int *)user += name && tensor;
}

/* Of more names than the first block of memory holds. */
static void large_states(void) {
    enum { TENSORS = 90 };
    cb_module *net = cb_module_new("Net", NULL, NULL);
    bool added = net && cb_module_inputs(net, "first, second") == CB_OK &&
                 cb_module_extra(net, "of many tensors") == CB_OK;
    char name[64];
    for (int i = 0; i < TENSORS && added; i++) {
        snprintf(name, sizeof name, "a_name_that_is_as_long_as_names_of_parameters_%d", i);
        added = cb_module_parameter(net, name, cb_full(cb_dims(2), i)) != NULL;
    }
    int visited = 0;
    if (added) cb_module_visit(net, count_visited, &visited);
    if (visited == TENSORS && cb_module_save_state(net, state_path) == CB_OK &&
        cb_module_load_state(net, state_path, true) == CB_OK)
        take(cb_module_get(net, name));
    cb_module_free(net);
}

/* ---- other threads -------------------------------------------------------------------------- */

static pthread_t first_thread;

/* Nothing for any thread but the first. */
static void *first_alone(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        free(pointer);
        return NULL;
    }
    return pthread_equal(pthread_self(), first_thread) ? realloc(pointer, bytes) : NULL;
}

/* What fails on a thread of the team is an error of the call. Where others have the processors, the
 * first thread works alone at times. */
static void workers_without_memory(void **state) {
    (void)state;
    int before = cb_threads(), failed = 0, tries = 4000;
    first_thread = pthread_self();
    cb_cleanup();
    cb_set_allocator((cb_allocator){first_alone, NULL});
    cb_set_threads(4);
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(4, 16, 40, 40)), *a = cb_ones(cb_dims(300, 300));
    cb_tensor *same = cb_ones(cb_dims(32, 16, 3, 3)), *wide = cb_ones(cb_dims(32, 16, 5, 5));
    for (int i = 0; i < 4 || (!failed && i < tries); i++) {
        if (i >= 4) usleep(5000);
        cb_tensor *y = i % 4 == 0   ? cb_conv2d(x, same, NULL, 1, 1)
                       : i % 4 == 1 ? cb_conv2d(x, wide, NULL, 2)
                       : i % 4 == 2 ? cb_matmul(a, a)
                                    : cb_matmul(cb_to(a, CB_F16), cb_to(a, CB_F16));
        assert_true((y == NULL) == (cb_error() != NULL));
        failed += y == NULL;
        cb_clear_error();
    }
    cb_scope_close();
    assert_true(failed > 0);
    cb_cleanup();
    cb_set_threads(before);
    cb_set_allocator((cb_allocator){faulty, NULL});
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
        SCENARIO(ops_of_the_program),
        SCENARIO(network_compiled),
        SCENARIO(autocast_and_attention),
        SCENARIO(graphs),
        SCENARIO(files),
        SCENARIO(layers),
        SCENARIO(attention_with_all_options),
        SCENARIO(several_at_a_time),
        SCENARIO(states),
        SCENARIO(large_states),
        FEW_TENSORS(ops_one_by_one),
        FEW_TENSORS(autocast_and_attention),
        FEW_TENSORS(graphs),
        FEW_TENSORS(files),
        FEW_TENSORS(layers),
        FEW_TENSORS(attention_with_all_options),
        FEW_TENSORS(several_at_a_time),
        FEW_TENSORS(states),
        cmocka_unit_test(workers_without_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(state_path), unlink(array_path);
    return failed;
}
