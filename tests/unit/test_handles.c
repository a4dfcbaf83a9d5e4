/* Handles of tensors that are gone: every public function refuses them by an error that names where
 * the tensor was made and freed, however often its slot was used since. */
#include "fixture.h"

#include "tensor/tensor.h"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* ---- one dead tensor, every function --------------------------------------------------------- */

static int made_at, freed_at;

static cb_tensor *dead_tensor(void) {
    made_at = __LINE__ + 1;
    cb_tensor *x = cb_keep(cb_ones(cb_dims(2, 3)));
    freed_at = __LINE__ + 1;
    cb_free(x);
    return x;
}

static void expect_gone(void) {
    char made[64], freed[64];
    snprintf(made, sizeof made, "made at test_handles.c:%d ", made_at);
    snprintf(freed, sizeof freed, "freed at test_handles.c:%d", freed_at);
    assert_non_null(cb_error());
    assert_int_equal(cb_error_status(), CB_ERR_ARGUMENT);
    if (!strstr(cb_error(), made) || !strstr(cb_error(), freed) ||
        !strstr(cb_error(), "the tensor is gone"))
        print_error("expected '%s' and '%s' in '%s'\n", made, freed, cb_error());
    assert_non_null(strstr(cb_error(), "the tensor is gone"));
    assert_non_null(strstr(cb_error(), made));
    assert_non_null(strstr(cb_error(), freed));
    cb_clear_error();
}

#define EXPECT_GONE(call)                                                                          \
    do {                                                                                           \
        (void)(call);                                                                              \
        if (!cb_error()) print_error("%s takes it\n", #call);                                      \
        expect_gone();                                                                             \
    } while (0)

static cb_tensor *same(cb_tensor *x) { return x; }
static cb_tensor *picks_first(cb_tensor *x, cb_tensor *y) {
    (void)y;
    return x;
}
static int same_n(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    outputs[0] = inputs[0];
    return 1;
}

static void readers(void **state) {
    (void)state;
    cb_tensor *x = dead_tensor(), *live = cb_ones(cb_dims(2, 3));
    float out[6];
    char text[64];
    EXPECT_GONE(cb_rank(x));
    EXPECT_GONE(cb_size(x, 0));
    EXPECT_GONE(cb_stride(x, 0));
    EXPECT_GONE(cb_numel(x));
    EXPECT_GONE(cb_dtype_of(x));
    EXPECT_GONE(cb_is_contiguous(x));
    EXPECT_GONE(cb_shares_storage(x, live));
    EXPECT_GONE(cb_shares_storage(live, x));
    EXPECT_GONE(cb_item(x));
    EXPECT_GONE(cb_item_int(x));
    EXPECT_GONE(cb_data(x));
    EXPECT_GONE((cb_changed(x), 0));
    EXPECT_GONE(cb_read(x, out, CB_F32));
    EXPECT_GONE((cb_print(x), 0));
    EXPECT_GONE(cb_format(x, text, sizeof text));
    EXPECT_GONE(cb_npy_save("/tmp/never.npy", x));
    const char *name = "x";
    EXPECT_GONE(cb_safetensors_save("/tmp/never.safetensors", &name, &x, 1));
}

static void owners(void **state) {
    (void)state;
    cb_tensor *x = dead_tensor();
    EXPECT_GONE((cb_free(x), 0));
    EXPECT_GONE(cb_keep(x));
    EXPECT_GONE(cb_scope_add(x));
    cb_module *module = cb_module_new("M", NULL, NULL);
    EXPECT_GONE(cb_module_parameter(module, "a", x));
    EXPECT_GONE(cb_module_buffer(module, "a", x));
    EXPECT_GONE(cb_module_share(module, "a", x));
    cb_module_free(module);
}

static void ops(void **state) {
    (void)state;
    cb_tensor *x = dead_tensor(), *y = cb_ones(cb_dims(2, 3)), *out[2];
    EXPECT_GONE(cb_neg(x));
    assert_null(cb_add(y, x));
    assert_non_null(strstr(cb_error(), "add: input 1 (b): "));
    expect_gone();
    EXPECT_GONE(cb_where(x, y, y));
    EXPECT_GONE(cb_t(x));
    EXPECT_GONE(cb_linear(y, cb_ones(cb_dims(4, 3)), x)); /* an optional one is not left out */
    EXPECT_GONE(cb_split(x, 1, 0, out, 2));
    EXPECT_GONE(cb_chunk(x, 2, 0, out, 2));
    EXPECT_GONE(cb_sort(x, 0, false, NULL));
    EXPECT_GONE(cb_topk(x, 1, 0, true, out));
    EXPECT_GONE(cb_cat(((cb_tensor *[]){y, x}), 2, 0));
    EXPECT_GONE(cb_stack(((cb_tensor *[]){x, y}), 2, 0));
    assert_null(cb_cat(((cb_tensor *[]){y, y, x}), 3, 0));
    assert_non_null(strstr(cb_error(), ": cat: input 2: the tensor is gone"));
    expect_gone();
    EXPECT_GONE(cb_assign(x, y));
    EXPECT_GONE(cb_assign(y, x));
    EXPECT_GONE(cb_fill_(x, 1));
    EXPECT_GONE(cb_fill_(y, x));
    EXPECT_GONE(cb_add_(y, x));
    EXPECT_GONE(cb_relu_(x));
    EXPECT_GONE(cb_assign_result(y, x));
}

static void calls(void **state) {
    (void)state;
    cb_tensor *x = dead_tensor(), *y = cb_ones(cb_dims(2, 3)), *out[1];
    cb_module *module = cb_nn_linear(3, 3), *attention = cb_nn_multihead_attention(3, 1);
    EXPECT_GONE(cb_forward(module, x));
    EXPECT_GONE(cb_multihead_attention(attention, y, y, x, NULL, NULL, true, NULL));
    EXPECT_GONE(cb_multihead_attention(attention, y, y, y, NULL, x, true, NULL));
    cb_function *fast = cb_compile(picks_first, "backend=vm");
    for (int i = 0; i < 2; i++) EXPECT_GONE(cb_call(fast, x, y));
    for (int i = 0; i < 2; i++) EXPECT_GONE(cb_call(fast, y, x));
    EXPECT_GONE(cb_call_n(fast, ((cb_tensor *[]){y, x}), 2, out, 1));
    cb_function_free(fast);
    cb_graph *graph = cb_symbolic_trace(module);
    EXPECT_GONE(cb_graph_run(graph, &x, 1, out, 1));
    EXPECT_GONE(cb_graph_propagate_shapes(graph, &x, 1));
    cb_graph_free(graph);
    EXPECT_GONE(cb_symbolic_trace_with(module, &x, 1));
    EXPECT_GONE(cb_symbolic_trace_function_with(same_n, NULL, "x", &x, 1));
    cb_module_free(module);
    cb_module_free(attention);
}

/* ---- functions that give back, or use, what is gone ------------------------------------------ */

static cb_tensor *stale;

static cb_tensor *uses_stale(cb_tensor *x) { return cb_add(x, stale); }
static cb_tensor *gives_stale(cb_tensor *x) { return (void)x, stale; }
static int gives_stale_n(cb_tensor *const *x, int count, cb_tensor **outputs, void *user) {
    (void)x, (void)count, (void)user;
    outputs[0] = stale;
    return 1;
}
static cb_tensor *forward_stale(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)inputs, (void)count;
    return stale;
}
static cb_tensor *forward_frees(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)count;
    freed_at = __LINE__ + 1;
    cb_free(inputs[0]);
    return cb_neg(inputs[0]);
}

static void functions(void **state) {
    (void)state;
    static const char *const options[] = {"backend=vm", "backend=vm, fullgraph=1"};
    cb_tensor *x = cb_ones(cb_dims(2, 3));
    stale = dead_tensor();
    for (int i = 0; i < 2; i++) {
        cb_function *one = cb_compile(uses_stale, options[i]);
        cb_function *two = cb_compile(gives_stale, options[i]);
        cb_function *any = cb_compile_n(gives_stale_n, NULL, options[i]);
        for (int k = 0; k < 2; k++) {
            EXPECT_GONE(cb_call(one, x));
            EXPECT_GONE(cb_call(two, x));
            EXPECT_GONE(cb_call(any, x));
        }
        cb_function_free(one);
        cb_function_free(two);
        cb_function_free(any);
    }
    EXPECT_GONE(cb_symbolic_trace_function(gives_stale_n, NULL, 1, "x"));
    cb_module *module = cb_module_new("M", forward_stale, NULL);
    EXPECT_GONE(cb_forward(module, x));
    EXPECT_GONE(cb_symbolic_trace(module));
    cb_module_free(module);
    module = cb_module_new("M", forward_frees, NULL);
    made_at = __LINE__ + 1;
    x = cb_ones(2);
    EXPECT_GONE(cb_forward(module, x));
    cb_module_free(module);
}

/* A tensor that was captured is freed: the compiled function says so when it is called again. */
static void captured(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(2);
    cb_function *fast = cb_compile(uses_stale, "backend=vm");
    made_at = __LINE__ + 1;
    stale = cb_keep(cb_full(2, 3));
    assert_true(cb_item(cb_sum(cb_call(fast, x))) == 8);
    freed_at = __LINE__ + 1;
    cb_free(stale);
    cb_tensor *other = cb_full(2, 9); /* in its place */
    EXPECT_GONE(cb_call(fast, x));
    stale = other;
    assert_true(cb_item(cb_sum(cb_call(fast, x))) == 20);
    cb_function_free(fast);
}

/* ---- slots that are used again --------------------------------------------------------------- */

/* The mistake that started this: an accumulator made in an inner scope. */
static void inner_scope(void **state) {
    (void)state;
    cb_scope_open();
    made_at = __LINE__ + 1;
    cb_tensor *sum = cb_zeros(2);
    freed_at = __LINE__ + 1;
    cb_scope_close();
    cb_tensor *other = cb_full(2, 42), *more = cb_full(2, 43), *alone = cb_ones(2);
    assert_int_equal(cb_rank(sum), -1);
    assert_non_null(strstr(cb_error(), ", where its scope ended"));
    cb_clear_error();
    cb_free(alone);
    assert_int_equal(cb_rank(alone), -1);
    assert_null(strstr(cb_error(), "scope"));
    cb_clear_error();
    EXPECT_GONE(cb_add(sum, 1));
    EXPECT_GONE((cb_print(sum), 0));
    assert_true(cb_item(cb_sum(other)) == 84 && cb_item(cb_sum(more)) == 86);
}

/* A record has 16 bits for a line and what freed: what does not fit is not told. */
static void of_line(int line, bool scope, const char *made, const char *freed) {
    char wanted[128];
    cb_tensor *x;
    cb_scope_open();
    site_set((Site){.file = "long.c", .line = line});
    x = (cb_ones)(cb_dims(2), CB_F32);
    if (!scope) (cb_free)(x);
    (cb_scope_close)();
    assert_int_equal((cb_rank)(x), -1);
    snprintf(wanted, sizeof wanted, "made at %s and freed at %s%s", made, freed,
             scope ? ", where its scope ended" : "");
    char *found = strstr(cb_error(), wanted);
    assert_true(found && !found[strlen(wanted)]);
    cb_clear_error();
}

static void large_lines(void **state) {
    (void)state;
    for (int scope = 0; scope < 2; scope++) {
        of_line(21843, scope, "long.c:21843", "long.c:21843");
        of_line(21844, scope, "long.c:21844", "long.c");
        of_line(65534, scope, "long.c:65534", "long.c");
        of_line(65535, scope, "long.c", "long.c");
        of_line(250000, scope, "long.c", "long.c");
    }
}

static int compare(const void *a, const void *b) {
    uintptr_t p = (uintptr_t) * (cb_tensor *const *)a, q = (uintptr_t) * (cb_tensor *const *)b;
    return p < q ? -1 : p > q;
}

/* No handle is given twice: of one slot that is used again and again, and of many. */
static void every_handle_is_new(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    cb_tensor **handle = malloc(sizeof *handle * COUNT), *x = cb_ones(2);
    for (int i = 0; i < COUNT; i++) {
        handle[i] = cb_t(x);
        if (i % 3) cb_free(handle[i]);
        if (i % 1000 == 0) cb_scope_open();
        if (i % 1000 == 999) cb_scope_close();
    }
    for (int i = 1; i < COUNT; i += 98) { /* each 1000th lies in the scope around */
        if (i % 1000 == 0) continue;
        assert_int_equal(cb_rank(handle[i]), -1);
        assert_int_equal(cb_error_status(), CB_ERR_ARGUMENT);
        assert_non_null(strstr(cb_error(), "the tensor is gone"));
        cb_clear_error();
    }
    qsort(handle, COUNT, sizeof *handle, compare);
    for (int i = 1; i < COUNT; i++) assert_true(handle[i] != handle[i - 1]);
    free(handle);
}

/* C takes a number, or another pointer, where a tensor belongs, with a warning at the most. */
static void no_tensors(void **state) {
    (void)state;
    static _Alignas(256) float numbers[128];
    const uintptr_t no_tensor[] = {1,
                                   5,
                                   255,
                                   256,
                                   65280,
                                   100,
                                   1000001,
                                   0x100000,
                                   0x7654321000,
                                   0xFFFFFFFF,
                                   (uintptr_t)-1,
                                   (uintptr_t)-256,
                                   (uintptr_t)INT32_MIN,
                                   0xcccccccccccccccc,
                                   0xaaaaaaaaaaaaaaaa,
                                   0x5555555555555555,
                                   0xcdcdcdcdcdcdcdcd,
                                   0xa5a5a5a5a5a5a5a5,
                                   0xfefefefefefefefe,
                                   0xdeadbeefdeadbeef,
                                   0x8000000000000000,
                                   0x7ff8000000000000, /* a NaN */
                                   0x0123456789abcdef,
                                   0x6d6d6d6d6d6d6d6d, /* between heap and mappings */
                                   (uintptr_t)(numbers + 1),
                                   (uintptr_t)numbers};
    cb_tensor *x = cb_ones(cb_dims(2, 3)), *index = cb_zeros(cb_dims(2, 1), CB_I64);
    for (size_t i = 0; i < sizeof no_tensor / sizeof *no_tensor; i++) {
        cb_tensor *y = (cb_tensor *)no_tensor[i]; // NOLINT(performance-no-int-to-ptr)
        assert_null(cb_scatter(x, 1, index, y));
        expect_error("scatter: input 2 (src): ");
        assert_int_equal(cb_rank(y), -1);
        expect_error("is no tensor, but a number or another pointer");
        cb_free(y);
        expect_error("free: ");
    }
}

/* Every sixteenth pointer of malloc could be a slot's; these lie between slots. */
static void aligned_pointers(void **state) {
    (void)state;
    enum { COUNT = 100, BYTES = 4096 };
    void *aligned[COUNT];
    cb_tensor *x = cb_ones(2);
    for (int i = 0; i < COUNT; i++) {
        aligned[i] = aligned_alloc(256, BYTES);
        assert_non_null(aligned[i]);
        memset(aligned[i], 0x11, BYTES);
        for (int k = 0; k < 1000; k++) cb_t(x);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_null(cb_neg(aligned[i]));
        expect_error("is no tensor, but a number or another pointer");
        free(aligned[i]);
    }
}

/* A slot that has had all of its 2^24 numbers is not used again. Skips to the last ones. */
static void numbers_run_out(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip_because("slots wait before they are used again");
#endif
    cb_tensor *x = cb_ones(2), *y = cb_t(x);
    Tensor *slot = tensor_in(y, "test");
    const uintptr_t last = 0xFFFE0000000000FE;
    atomic_store(&slot->handle, (uintptr_t)slot | last);
    cb_tensor *before = tensor_out(slot);
    cb_free(before);
    cb_tensor *final = cb_t(x);
    assert_ptr_equal(tensor_in(final, "test"), slot);
    assert_int_equal((uintptr_t) final - (uintptr_t)before, 1);
    cb_free(final);
    for (int i = 0; i < 10000; i++) assert_ptr_not_equal(tensor_in(cb_t(x), "test"), slot);
    assert_int_equal(cb_rank(final), -1);
    cb_clear_error();
    assert_int_equal(cb_rank(y), -1); /* from before the jump */
    cb_clear_error();
    assert_null(cb_error());
}

/* Where it was freed is forgotten before that it was freed is. */
static void long_ago(void **state) {
    (void)state;
    cb_tensor *x = dead_tensor(), *y = cb_ones(2);
    for (int i = 0; i < 3000; i++) cb_free(cb_t(y));
    EXPECT_GONE(cb_rank(x));
    for (int i = 0; i < 20000; i++) cb_free(cb_t(y));
    assert_int_equal(cb_rank(x), -1);
    expect_error("the tensor is gone: it was freed long ago");
}

/* With the option check it is not forgotten so soon, and the slot is overwritten. */
static void with_the_option_check(void **state) {
    (void)state;
    assert_int_equal(cb_set_option("check", "1"), CB_OK);
    cb_tensor *y = cb_ones(2), *x = dead_tensor();
    const Tensor *slot = (const Tensor *)((uintptr_t)x & HANDLE_ADDRESS);
    for (int i = 0; i < 10000; i++) {
        cb_tensor *z = cb_t(y);
        assert_ptr_not_equal(tensor_in(z, "test"), slot);
        cb_free(z);
    }
    EXPECT_GONE(cb_rank(x));
#if !defined(__SANITIZE_ADDRESS__)
    for (int i = 0; i < CB_MAX_RANK; i++) assert_true(slot->size[i] == slot->stride[7]);
    assert_true((slot->size[0] & 0xFF) == 0xA5);
    float *data = cb_data(y);
    cb_free(y);
    assert_true(data[0] != data[0]); /* memory of a freed storage is NaN */
#endif
    assert_int_equal(cb_set_option("check", "0"), CB_OK);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *use_and_free(void *x) {
    bool good = cb_rank(x) == 2 && cb_item(cb_sum(x)) == 6;
    freed_at = __LINE__ + 1;
    cb_free(x);
    for (int i = 0; i < 100; i++) cb_free(cb_ones(2));
    good = good && cb_rank(x) == -1 && cb_error_status() == CB_ERR_ARGUMENT;
    return good ? x : NULL;
}

static void *make(void *unused) {
    (void)unused;
    made_at = __LINE__ + 1;
    return cb_keep(cb_ones(cb_dims(2, 3)));
}

static void other_threads(void **state) {
    (void)state;
    pthread_t thread;
    void *x, *result;
    assert_int_equal(pthread_create(&thread, NULL, make, NULL), 0);
    pthread_join(thread, &x);
    assert_true(cb_item(cb_sum((cb_tensor *)x)) == 6); /* its thread has ended */
    assert_int_equal(pthread_create(&thread, NULL, use_and_free, x), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, x);
    assert_int_equal(cb_rank(x), -1);
    expect_error("the tensor is gone");
}

static pthread_barrier_t freed, asked;

static void *frees_and_waits(void *x) {
    freed_at = __LINE__ + 1;
    cb_free(x);
    for (int i = 0; i < 10; i++) cb_free(cb_t(cb_ones(cb_dims(1, 1))));
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&asked);
    return NULL;
}

/* Another thread freed it and lives: its list of the last deaths is asked, too. */
static void freed_elsewhere(void **state) {
    (void)state;
    pthread_t thread;
    pthread_barrier_init(&freed, NULL, 2);
    pthread_barrier_init(&asked, NULL, 2);
    cb_tensor *x = make(NULL);
    assert_int_equal(pthread_create(&thread, NULL, frees_and_waits, x), 0);
    pthread_barrier_wait(&freed);
    EXPECT_GONE(cb_rank(x));
    pthread_barrier_wait(&asked);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&freed);
    pthread_barrier_destroy(&asked);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void collect(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)name, (void)buffer;
    *(cb_tensor **)user = tensor;
}

/* One handle names one tensor, whichever way it comes; nobody but the module frees it. */
static void parameters(void **state) {
    (void)state;
    cb_module *module = cb_nn_linear(2, 2, false), *other = cb_nn_relu();
    cb_tensor *weight = cb_module_get(module, "weight"), *found[1];
    assert_int_equal(cb_module_parameters(module, found, 1), 1);
    assert_ptr_equal(found[0], weight);
    cb_module_visit(module, collect, found);
    assert_ptr_equal(found[0], weight);
    assert_ptr_equal(cb_keep(weight), weight);
    cb_free(weight);
    expect_error("free: the tensor is a parameter or buffer of a module, which frees it");
    assert_null(cb_scope_add(weight));
    expect_error("scope_add: the tensor is a parameter or buffer of a module");
    assert_null(cb_module_parameter(other, "stolen", weight));
    expect_error("cb_module_share ties it");
    assert_ptr_equal(cb_module_parameter(module, "weight", weight), weight);
    made_at = __LINE__ + 1;
    cb_tensor *now = cb_module_parameter(module, "weight", cb_ones(cb_dims(2, 2)));
    assert_int_equal(cb_rank(weight), -1); /* replaced */
    cb_clear_error();
    freed_at = __LINE__ + 1;
    cb_module_free(module);
    EXPECT_GONE(cb_rank(now));
    cb_module_free(other);
}

/* ---- functions, modules and graphs ----------------------------------------------------------- */

#define EXPECT_FREED(call, words)                                                                  \
    do {                                                                                           \
        snprintf(said, sizeof said, words " was freed at test_handles.c:%d", freed_at);            \
        (void)(call);                                                                              \
        expect_error(said);                                                                        \
    } while (0)

/* Nothing reads or changes a module that was freed, and no file is written for it. */
static void freed_modules(void **state) {
    (void)state;
    char said[128], path[] = "/tmp/carbide-freed-XXXXXX";
    const char *name;
    cb_tensor *x = cb_ones(cb_dims(2, 3)), *out[1];
    close(mkstemp(path));
    cb_module *module = cb_nn_sequential(cb_nn_linear(3, 3));
    cb_graph *graph = cb_symbolic_trace(module);
    assert_int_equal(cb_module_save_state(module, path), CB_OK);
    freed_at = __LINE__ + 1;
    cb_module_free(module);
    EXPECT_FREED(cb_module_save_state(module, path), "cb_module_save_state: the module");
    EXPECT_FREED(cb_module_load_state(module, path, false), "cb_module_load_state: the module");
    cb_safetensors *file = cb_safetensors_open(path);
    assert_int_equal(cb_safetensors_count(file), 2);
    cb_safetensors_close(file);
    EXPECT_FREED(cb_module_inputs(module, "x"), "cb_module_inputs: the module");
    EXPECT_FREED(cb_module_extra(module, "x"), "cb_module_extra: the module");
    EXPECT_FREED((cb_module_on_free(module, NULL), 0), "cb_module_on_free: the module");
    EXPECT_FREED(cb_module_user(module), "cb_module_user: the module");
    EXPECT_FREED(cb_module_type(module), "cb_module_type: the module");
    EXPECT_FREED(cb_module_training(module), "cb_module_training: the module");
    EXPECT_FREED(cb_module_is_leaf(module), "cb_module_is_leaf: the module");
    EXPECT_FREED((cb_module_set_leaf(module, true), 0), "cb_module_set_leaf: the module");
    EXPECT_FREED(cb_module_child_count(module), "cb_module_child_count: the module");
    EXPECT_FREED(cb_module_child_at(module, 0, &name), "cb_module_child_at: the module");
    EXPECT_FREED(cb_graph_new(module), "cb_graph_new: the module");
    EXPECT_FREED(cb_graph_parse("graph():", module), "cb_graph_new: the module");
    EXPECT_FREED(cb_graph_lint(graph), "cb_graph_lint: the graph's module");
    EXPECT_FREED(cb_graph_run(graph, &x, 1, out, 1), "cb_graph_run: the graph's module");
    EXPECT_FREED(cb_graph_readable(graph, 0), "cb_graph_readable: the graph's module");
    EXPECT_FREED(cb_graph_dot(graph), "cb_graph_dot: the graph's module");
    cb_free_text(cb_graph_text(graph));
    cb_graph_free(graph);
    assert_null(cb_error());
    unlink(path);
}

/* The last ones that were freed are known. */
static void other_objects(void **state) {
    (void)state;
    char said[128];
    cb_tensor *x = cb_ones(cb_dims(2, 3)), *out[1];
    cb_module *module = cb_nn_linear(3, 3);
    cb_graph *graph = cb_symbolic_trace(module);
    cb_function *fast = cb_compile(same, "backend=vm"), *of_module = cb_compile(module);
    freed_at = __LINE__ + 1;
    cb_function_free(fast), cb_graph_free(graph), cb_module_free(module);
    EXPECT_FREED((cb_function_free(fast), 0), "free: the compiled function");
    EXPECT_FREED(cb_call(fast, x), "call: the compiled function");
    EXPECT_FREED(cb_explain(fast), "explain: the compiled function");
    EXPECT_FREED(cb_stats(fast).calls, "stats: the compiled function");
    EXPECT_FREED((cb_graph_free(graph), 0), "cb_graph_free: the graph");
    EXPECT_FREED(cb_graph_run(graph, &x, 1, out, 1), "cb_graph_run: the graph");
    EXPECT_FREED(cb_graph_text(graph), "the graph");
    EXPECT_FREED((cb_module_free(module), 0), "cb_module_free: the module");
    EXPECT_FREED(cb_forward(module, x), "forward: the module");
    EXPECT_FREED(cb_call(of_module, x), "forward: the module");
    EXPECT_FREED(cb_module_get(module, "weight"), "cb_module_get: the module");
    EXPECT_FREED(cb_module_child(module, "0"), "cb_module_child: the module");
    EXPECT_FREED(cb_module_text(module), "cb_module_text: the module");
    EXPECT_FREED((cb_module_train(module, true), 0), "cb_module_train: the module");
    EXPECT_FREED(cb_module_to(module, CB_F64), "cb_module_to: the module");
    EXPECT_FREED(cb_module_parameter(module, "a", x), "cb_module_parameter: the module");
    EXPECT_FREED(cb_nn_sequential(module), "cb_module_add: the child");
    EXPECT_FREED(cb_compile(module), "compile: the module");
    EXPECT_FREED(cb_compile(graph), "compile: the graph");
    for (int i = 0; i < 60; i++) cb_module_free(cb_nn_relu());
    EXPECT_FREED(cb_forward(module, x), "forward: the module");
    cb_function_free(of_module);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* After a clean-up old handles are not asked about; new ones are unlike all old ones. */
static void after_a_clean_up(void **state) {
    (void)state;
    enum { COUNT = 300 };
    cb_tensor *old[COUNT], *now[COUNT];
    for (int i = 0; i < COUNT; i++) old[i] = cb_ones(1);
    cb_cleanup();
    cb_scope_open();
    for (int i = 0; i < COUNT; i++) now[i] = cb_ones(1);
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < COUNT; k++) assert_ptr_not_equal(old[i], now[k]);
}

static void nothing_is_nothing(void **state) {
    (void)state;
    cb_free(NULL);
    assert_null(cb_keep(NULL));
    assert_null(cb_scope_add(NULL));
    assert_null(cb_error());
    cb_tensor *x = cb_ones(2);
    assert_ptr_equal(cb_scope_add(cb_keep(x)), x);
    assert_ptr_equal(cb_fill_(x, 2), x);
    assert_ptr_equal(cb_add_(x, 2), x);
    cb_function *fast = cb_compile(same, "backend=vm");
    for (int i = 0; i < 2; i++) assert_ptr_equal(cb_call(fast, x), x);
    cb_function_free(fast);
    assert_null(cb_error());
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scope, close_scope)
    const struct CMUnitTest tests[] = {
        TEST(readers),
        TEST(owners),
        TEST(ops),
        TEST(calls),
        TEST(functions),
        TEST(captured),
        TEST(inner_scope),
        TEST(large_lines),
        TEST(numbers_run_out),
        TEST(every_handle_is_new),
        TEST(no_tensors),
        TEST(aligned_pointers),
        TEST(long_ago),
        TEST(other_threads),
        TEST(with_the_option_check),
        TEST(freed_elsewhere),
        TEST(parameters),
        TEST(after_a_clean_up),
        TEST(nothing_is_nothing),
        TEST(freed_modules),
        TEST(other_objects),
    };
    return cmocka_run_group_tests_name("handles", tests, NULL, clean_up);
}
