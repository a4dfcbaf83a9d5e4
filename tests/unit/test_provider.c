/* Providers: oneDNN and our own engine agree on random steps; plugins that are missing or fail in
 * every way end in our own engine with a reason; the tuner measures once and survives what happens
 * to its entries. Where the plugin for oneDNN was not built, its part is skipped. */
#define _GNU_SOURCE
#include "children.h"
#include "test_support.h"

#include "base/option.h"
#include "failing_once.h"
#include "jit/cache.h"
#include "method/plugin.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a step in a function ----------------------------------------------------------------- */

enum { MOST_WEIGHTS = 3 };

typedef struct Net { /* convolutions in a row (three run channels-last), or one product */
    int rank;        /* spatial dims; 0: a product */
    int layers;
    bool relu, residual;
    bool wide, scaled; /* the bias is f32 whatever the rest is; the result is times the bias
                        * first */
    int64_t stride, padding, dilation, groups;
    cb_tensor *weight[MOST_WEIGHTS], *bias[MOST_WEIGHTS];
} Net;

static cb_tensor *convolve(const Net *n, cb_tensor *x, int layer) {
    cb_tensor *w = n->weight[layer], *b = n->wide ? NULL : n->bias[layer];
    int64_t stride = layer ? 1 : n->stride, padding = layer ? 0 : n->padding;
    int64_t dilation = layer ? 1 : n->dilation, groups = layer ? 1 : n->groups;
    if (n->rank == 1) return cb_conv1d(x, w, b, stride, padding, dilation, groups);
    if (n->rank == 3) return cb_conv3d(x, w, b, stride, padding, dilation, groups);
    return cb_conv2d(x, w, b, stride, padding, dilation, groups);
}

static cb_tensor *add_wide(const Net *n, cb_tensor *y, cb_tensor *bias) {
    static const int64_t ones[3] = {1, 1, 1};
    cb_dim_list dims = {.count = n->rank + 1, .at = {cb_numel(bias)}};
    memcpy(dims.at + 1, ones, sizeof *ones * (size_t)n->rank);
    cb_tensor *wide = cb_to(y, CB_F32), *along = (cb_reshape)(bias, dims);
    if (n->scaled) wide = cb_mul(wide, along);
    return cb_to(cb_add(wide, along), cb_dtype_of(y));
}

static int body(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    const Net *n = user;
    cb_tensor *y = inputs[0];
    (void)count;
    for (int layer = 0; layer < n->layers; layer++) {
        cb_tensor *bias = n->bias[layer];
        y = n->rank ? convolve(n, y, layer) : cb_linear(y, n->weight[layer], n->wide ? NULL : bias);
        if (n->wide && bias) y = add_wide(n, y, bias);
        if (n->residual && layer + 1 == n->layers) y = cb_add(y, inputs[1]);
        if (n->relu) y = cb_relu(y);
    }
    outputs[0] = y;
    return 1;
}

/* Small integers, so that the sums of f32 are exact. */
static cb_tensor *integers(const int64_t *size, int rank, cb_dtype dtype) {
    int64_t count = 1;
    for (int d = 0; d < rank; d++) count *= size[d];
    double *data = malloc(sizeof *data * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) data[i] = rand() % 5 - 2;
    cb_dim_list dims = {.count = rank};
    memcpy(dims.at, size, sizeof *size * (size_t)rank);
    cb_tensor *x = cb_to((cb_from_data)(data, CB_F64, dims), dtype);
    free(data);
    return x;
}

typedef struct Sample {
    Net net;
    cb_tensor *input[2];
    cb_dtype dtype;
} Sample;

static int64_t pick(int64_t low, int64_t high) { return low + rand() % (high - low + 1); }

static void make_convolution(Sample *s) {
    Net *n = &s->net;
    int64_t groups = pick(0, 2), inner = pick(1, 9), batch = pick(1, 3), size[5], weight[5];
    n->rank = (int)pick(1, 3);
    n->layers = rand() % 2 ? 3 : 1;
    n->stride = pick(1, 2), n->padding = pick(0, 2), n->dilation = pick(1, 2);
    n->groups = groups == 0 ? 1 : groups == 1 ? 2 : inner;
    if (groups == 2) inner = 1; /* depthwise */
    int64_t outputs = n->groups * pick(1, 7);
    size[0] = batch, size[1] = inner * n->groups;
    weight[0] = outputs, weight[1] = inner;
    for (int d = 2; d < n->rank + 2; d++) size[d] = pick(5, 11), weight[d] = pick(1, 3);
    s->input[0] = integers(size, n->rank + 2, s->dtype);
    for (int layer = 0; layer < n->layers; layer++) {
        if (layer) {
            weight[1] = weight[0], weight[0] = pick(1, 20);
            for (int d = 2; d < n->rank + 2; d++) weight[d] = 1;
        }
        n->weight[layer] = integers(weight, n->rank + 2, s->dtype);
        n->bias[layer] = rand() % 3 ? integers(weight, 1, s->dtype) : NULL;
    }
}

static void make_product(Sample *s) {
    int64_t rank = pick(2, 3), size[3], k = pick(1, 70), weight[2] = {pick(1, 70), k};
    for (int d = 0; d < rank; d++) size[d] = pick(1, 20);
    size[rank - 1] = k;
    s->net.layers = 1;
    s->input[0] = integers(size, (int)rank, s->dtype);
    s->net.weight[0] = integers(weight, 2, s->dtype);
    s->net.bias[0] = rand() % 3 ? integers(weight, 1, s->dtype) : NULL;
}

static Sample sample_of(unsigned seed, cb_dtype dtype) {
    Sample s = {.dtype = dtype};
    srand(seed);
    if (rand() % 3)
        make_convolution(&s);
    else
        make_product(&s);
    s.net.relu = rand() % 2;
    s.net.wide = rand() % 3 == 0;
    s.net.scaled = rand() % 2;
    for (int layer = 0; layer < s.net.layers && s.net.wide; layer++)
        if (s.net.bias[layer]) s.net.bias[layer] = cb_to(s.net.bias[layer], CB_F32);
    cb_tensor *y[1];
    assert_int_equal(body(s.input, 1, y, &s.net), 1);
    assert_non_null(y[0]);
    int64_t size[8];
    for (int d = 0; d < cb_rank(y[0]); d++) size[d] = cb_size(y[0], d);
    s.input[1] = integers(size, cb_rank(y[0]), dtype);
    s.net.residual = rand() % 2;
    return s;
}

/* ---- running ------------------------------------------------------------------------------ */

static cb_tensor *call(const Sample *s, cb_function *fast) {
    cb_tensor *y = NULL;
    int count = cb_call_n(fast, s->input, s->net.residual ? 2 : 1, &y, 1);
    if (count != 1) print_error("%s\n", cb_error());
    assert_int_equal(count, 1);
    return y;
}

/* Called once: then it is compiled. */
static cb_function *compile(Sample *s, const char *provider, const char *options) {
    assert_int_equal(cb_set_option("provider", provider), CB_OK);
    cb_function *fast = cb_compile_n(body, &s->net, options);
    assert_non_null(fast);
    call(s, fast);
    return fast;
}

static bool explains(cb_function *fast, const char *word) {
    char *text = cb_explain(fast);
    bool found = strstr(text, word) != NULL;
    cb_free_text(text);
    return found;
}

static void expect_explained(cb_function *fast, const char *word) {
    if (explains(fast, word)) return;
    char *text = cb_explain(fast);
    print_error("no '%s' in\n", word);
    fputs(text, stderr);
    cb_free_text(text);
    FAIL("explain lacks a word");
}

/* f32 to the bit; bf16 within what rounding once more or less may change. */
static void expect_same(const Sample *s, cb_tensor *found, cb_tensor *wanted, unsigned seed) {
    int64_t count = cb_numel(wanted);
    assert_int_equal(cb_numel(found), count);
    double *a = malloc(sizeof *a * (size_t)(count + 1)), *b = malloc(sizeof *b * (size_t)count + 8);
    assert_int_equal(cb_read(found, a, CB_F64), CB_OK);
    assert_int_equal(cb_read(wanted, b, CB_F64), CB_OK);
    double largest = 1;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(b[i]));
    double tolerance = s->dtype == CB_F32 ? 0 : 0.02 * largest;
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance))
            FAIL("sample %u %s: element %d is %g, not %g", seed, cb_dtype_name(s->dtype), (int)i,
                 a[i], b[i]);
    free(a), free(b);
}

static bool has_onednn(void) { return plugin_find("onednn")->provider != NULL; }

/* ---- agreement ---------------------------------------------------------------------------- */

static int fused; /* functions with an f32 bias that oneDNN adds */

static int agree(unsigned seed, cb_dtype dtype) {
    int provided = 0;
    cb_scope_open();
    Sample s = sample_of(seed, dtype);
    for (int frozen = 0; frozen < 2; frozen++) {
        const char *options = frozen ? "backend=vm,freeze=1" : "backend=vm,freeze=0";
        cb_function *own = compile(&s, "own", options);
        cb_tensor *wanted = call(&s, own);
        assert_false(explains(own, "; onednn ("));
        cb_function *other = compile(&s, "onednn", options);
        expect_same(&s, call(&s, other), wanted, seed);
        provided += explains(other, "; onednn (");
        if (s.net.wide && !s.net.residual && s.net.layers == 1 && s.net.bias[0])
            fused += explains(other, "fused");
        if (seed % 4 == 0) { /* other numbers of threads make versions of their own */
            cb_set_threads(1);
            expect_same(&s, call(&s, other), wanted, seed);
            cb_set_threads(3);
            expect_same(&s, call(&s, other), wanted, seed);
            cb_set_threads(0);
        }
        cb_function_free(own);
        cb_function_free(other);
    }
    assert_null(cb_error());
    cb_scope_close();
    return provided;
}

static void random_steps_agree(void **state) {
    (void)state;
    if (!has_onednn()) skip_because("no plugin for oneDNN: %s", plugin_find("onednn")->detail);
    int f32 = 0, bf16 = 0, count = 60;
    for (unsigned seed = 0; seed < (unsigned)count; seed++) f32 += agree(seed, CB_F32);
    for (unsigned seed = 100; seed < 100 + (unsigned)count / 2; seed++)
        bf16 += agree(seed, CB_BF16);
    print_message("oneDNN computed %d of %d functions in f32, %d of %d in bf16\n", f32, 2 * count,
                  bf16, count);
    assert_true(f32 > count && fused > 0);
}

static cb_tensor *rectify(cb_tensor *x, cb_tensor *w) {
    return cb_relu(cb_conv2d(x, w, NULL, 1, 1));
}

/* Where a sum is -infinity relu gives 0. */
static void infinity_passes_relu(void **state) {
    (void)state;
    if (!has_onednn()) skip_because("no plugin for oneDNN: %s", plugin_find("onednn")->detail);
    cb_scope_open();
    assert_int_equal(cb_set_option("provider", "onednn"), CB_OK);
    cb_tensor *x = cb_randn(cb_dims(1, 32, 28, 28)), *w = cb_randn(cb_dims(32, 32, 3, 3));
    float *element = cb_data(x);
    element[3 * 28 + 3] = INFINITY;
    cb_function *fast = cb_compile(rectify, "backend=vm");
    cb_tensor *y = cb_call(fast, x, w), *wanted = rectify(x, w);
    expect_explained(fast, "onednn");
    assert_true(cb_item(cb_sum(cb_isinf(wanted))) > 0);
    assert_true(cb_item(cb_sum(cb_isnan(y))) == 0);
    assert_true(cb_item(cb_all(cb_eq(cb_isinf(y), cb_isinf(wanted)))) == 1);
    cb_function_free(fast);
    cb_set_option("provider", "auto");
    cb_scope_close();
}

static void a_forked_child_computes(void **state) {
    (void)state;
    if (!has_onednn()) skip_because("no plugin for oneDNN: %s", plugin_find("onednn")->detail);
    cb_scope_open();
    Sample s = sample_of(4, CB_F32);
    cb_function *own = compile(&s, "own", "backend=vm,freeze=1");
    cb_function *other = compile(&s, "onednn", "backend=vm,freeze=1");
    cb_tensor *wanted = call(&s, own);
    call(&s, other);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        expect_same(&s, call(&s, other), wanted, 4);
        leave_child(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cb_function_free(own);
    cb_function_free(other);
    cb_scope_close();
}

/* ---- faults ------------------------------------------------------------------------------- */

/* A provider of this name ends in our own engine, with a word in explain that says why. */
static void expect_fault(const char *provider, const char *word) {
    for (unsigned seed = 0; seed < 12; seed++) {
        cb_scope_open();
        Sample s = sample_of(seed, CB_F32);
        cb_function *own = compile(&s, "own", "backend=vm,freeze=1");
        cb_function *faulty = compile(&s, provider, "backend=vm,freeze=1");
        cb_tensor *wanted = call(&s, own);
        for (int i = 0; i < 2; i++) expect_same(&s, call(&s, faulty), wanted, seed);
        cb_set_threads(1);
        expect_same(&s, call(&s, faulty), wanted, seed);
        cb_set_threads(0);
        expect_explained(faulty, word);
        cb_function_free(own);
        cb_function_free(faulty);
        assert_null(cb_error());
        cb_scope_close();
    }
}

static void plugins_may_fail(void **state) {
    (void)state;
    char before[512];
    snprintf(before, sizeof before, "%s", cb_get_option("plugin_dir"));
    assert_int_equal(cb_set_option("plugin_dir", "/nowhere"), CB_OK);
    expect_fault("onednn", "the provider's plugin was not found");
    expect_fault("../x", "no such name can be");
    assert_int_equal(cb_set_option("plugin_dir", CARBIDE_TEST_PLUGINS), CB_OK);
    expect_fault("wrong_interface", "it has interface 2, Carbide has 1");
    expect_fault("no_library", "its library has other plans");
    expect_fault("create_fails", "Faulty 0: it is not in the mood");
    expect_fault("pack_fails", "Faulty 0: the weight cannot be packed");
    expect_fault("run_fails", "run_fails (faulty");
    expect_fault("nothing", "it is no plugin of Carbide");
    cb_set_option("plugin_dir", before);
}

/* ---- one more version --------------------------------------------------------------------- */

static cb_tensor *weight;
static char plugins_before[512];

static cb_tensor *multiply(cb_tensor *x) { return cb_matmul(x, weight); }

static _Atomic int runs;

static cb_function *compile_slow(cb_tensor *x) {
    char place[32];
    snprintf(place, sizeof place, "%p", (void *)&runs);
    setenv("CARBIDE_TEST_RUNS", place, 1);
    runs = 0;
    weight = cb_mul(cb_ones(cb_dims(8, 8)), 2);
    snprintf(plugins_before, sizeof plugins_before, "%s", cb_get_option("plugin_dir"));
    assert_int_equal(cb_set_option("plugin_dir", CARBIDE_TEST_PLUGINS), CB_OK);
    assert_int_equal(cb_set_option("provider", "slow"), CB_OK);
    cb_set_threads(2);
    cb_function *fast = cb_compile(multiply, "backend=vm, freeze=1");
    assert_true(cb_item(cb_sum(cb_call(fast, x))) == 1024);
    assert_true(runs > 0);
    return fast;
}

static void close_slow(cb_function *fast) {
    cb_function_free(fast);
    cb_set_threads(0);
    unsetenv("CARBIDE_TEST_RUNS");
    cb_set_option("provider", "auto");
    cb_set_option("plugin_dir", plugins_before);
}

typedef struct Called {
    cb_function *fast;
    cb_tensor *x;
} Called;

static void *call_slowly(void *user) {
    const Called *called = user;
    cb_scope_open();
    bool right = cb_item(cb_sum(cb_call(called->fast, called->x))) == 1024;
    cb_scope_close();
    return right ? user : NULL;
}

static sem_t forked;

/* To ThreadSanitizer a thread that has ended and is not joined yet is a leak of the child. */
static void *call_until_forked(void *user) {
    void *right = call_slowly(user);
    sem_wait(&forked);
    return right;
}

/* A thread is making a version when another one forks: the child must be able to make its own. */
static void a_fork_waits_for_a_version(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(8, 8));
    Called called = {compile_slow(x), x};
    pthread_t thread;
    void *right;
    sem_init(&forked, 0, 0);
    setenv("CARBIDE_TEST_SLOW", "1", 1);
    cb_set_threads(3);
    assert_int_equal(pthread_create(&thread, NULL, call_until_forked, &called), 0);
    usleep(200 * 1000);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        leave_child(call_slowly(&called) ? 0 : 1);
    }
    int status = -1;
    sem_post(&forked);
    waitpid(child, &status, 0);
    pthread_join(thread, &right);
    sem_destroy(&forked);
    assert_non_null(right);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    unsetenv("CARBIDE_TEST_SLOW");
    close_slow(called.fast);
    cb_scope_close();
}

/* Memory that runs out once does not cost the step its provider. */
static void a_version_may_be_tried_again(void **state) {
    (void)state;
    cb_scope_open();
    cb_tensor *x = cb_ones(cb_dims(8, 8));
    cb_function *fast = compile_slow(x);
    for (int n = 0; n < 8; n++) {
        cb_set_threads(3 + n);
        countdown = n;
        cb_call(fast, x);
        countdown = -1;
        cb_clear_error();
        int before = runs;
        assert_true(cb_item(cb_sum(cb_call(fast, x))) == 1024);
        assert_int_equal(runs, before + 1);
    }
    close_slow(fast);
    cb_scope_close();
}

static int convolution(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    outputs[0] = cb_conv2d(inputs[0], inputs[1]);
    return 1;
}

/* Without measuring, provider=auto asks nobody: our engine is as fast where it was measured. */
static void nobody_is_asked_unmeasured(void **state) {
    (void)state;
    cb_set_option("provider", "auto");
    cb_scope_open();
    cb_tensor *inputs[] = {cb_ones(cb_dims(1, 16, 40, 40)), cb_ones(cb_dims(16, 16, 3, 3))};
    cb_tensor *y = NULL;
    cb_function *fast = cb_compile_n(convolution, NULL, "backend=vm");
    assert_int_equal(cb_call_n(fast, inputs, 2, &y, 1), 1);
    assert_true(cb_item(cb_min(y)) == 144 && cb_item(cb_max(y)) == 144);
    assert_false(explains(fast, "; onednn ("));
    assert_false(explains(fast, "our own engine computes"));
    cb_function_free(fast);
    cb_scope_close();
}

/* ---- the tuner ---------------------------------------------------------------------------- */

static char directory[] = "/tmp/carbide-tune-XXXXXX";

static void expect_tuned(Sample *s, const char *word) {
    cb_function *fast = compile(s, "auto", "backend=vm,freeze=1,mode=max-autotune");
    cb_function *own = compile(s, "own", "backend=vm,freeze=1");
    expect_same(s, call(s, fast), call(s, own), 0);
    expect_explained(fast, word);
    cb_function_free(fast);
    cb_function_free(own);
}

static void keep_key(void *user, const CacheEntry *entry) {
    memcpy(user, entry->key, sizeof entry->key);
}

/* The entry of a convolution with channels first; turned -1: that candidate is not in it. */
static void set_times(const char *key, const char *description, double gather, double turned) {
    char text[128], line[40] = "";
    if (turned != -1) snprintf(line, sizeof line, "channels last %g\n", turned);
    snprintf(text, sizeof text, "milliseconds of the best run\ngather %g\n%s%s", gather, line,
             has_onednn() ? "onednn 3e5\n" : "");
    assert_true(cache_set(directory, key, description, text));
}

static Sample small_convolution(cb_dtype dtype) {
    Sample s = {.dtype = dtype, .net = {.rank = 2, .layers = 1, .stride = 1, .dilation = 1}};
    s.net.groups = 1, s.net.relu = true;
    s.net.weight[0] = integers((int64_t[]){16, 8, 3, 3}, 4, dtype);
    s.net.bias[0] = integers((int64_t[]){16}, 1, dtype);
    s.input[0] = integers((int64_t[]){1, 8, 12, 12}, 4, dtype);
    return s;
}

static void the_tuner_measures_once(void **state) {
    (void)state;
    char key[CACHE_KEY], path[CACHE_PATH], text[CACHE_TEXT];
    assert_non_null(mkdtemp(directory));
    cb_set_option("cache_dir", directory);
    cb_scope_open();
    Sample s = small_convolution(CB_F32);
    expect_tuned(&s, " measured: ");
    assert_int_equal(cache_visit(directory, keep_key, key), 1);
    assert_true(cache_describe(directory, key, text));
    assert_non_null(strstr(text, "tuned convolution f32 to f32"));
    expect_tuned(&s, " measured before: ");
    cache_path(directory, key, path);
    assert_int_equal(truncate(path, 40), 0); /* a torn entry */
    expect_tuned(&s, " measured: ");
    expect_tuned(&s, " measured before: ");
    set_times(key, text, 0.1, -1); /* an entry that lacks a candidate */
    expect_tuned(&s, " measured: ");
    set_times(key, text, 0.1, -3); /* a time that cannot be */
    expect_tuned(&s, " measured: ");
    set_times(key, text, 1e-5, 2e5);
    expect_tuned(&s, "; gather, measured before: gather 0.000 ms, channels last 200000.000 ms");
    set_times(key, "of another step", 2e5, 1e-5);
    expect_tuned(&s, " measured: "); /* a foreign entry */
    cb_set_threads(cb_threads() == 1 ? 2 : 1);
    expect_tuned(&s, " measured: "); /* another key */
    cb_set_threads(0);
    char before[64];
    snprintf(before, sizeof before, "%s", cb_get_option("skip"));
    cb_set_option("skip", strcmp(before, "bf16") == 0 ? "amx" : "bf16");
    expect_tuned(&s, " measured: "); /* what is left out decides on the kernels, too */
    cb_set_option("skip", before);
    for (cb_dtype dtype = CB_F16; dtype <= CB_BF16; dtype++) { /* whose sums are f32 in both */
        s = small_convolution(dtype);
        expect_tuned(&s, " measured: ");
        expect_tuned(&s, " measured before: ");
    }
    assert_int_equal(cache_clear(directory), 5);
    rmdir(directory);
    cb_scope_close();
    assert_null(cb_error());
}

int main(void) {
    cb_set_allocator((cb_allocator){fail_once, NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_steps_agree),
        cmocka_unit_test(a_forked_child_computes),
        cmocka_unit_test(infinity_passes_relu),
        cmocka_unit_test(plugins_may_fail),
        cmocka_unit_test(a_fork_waits_for_a_version),
        cmocka_unit_test(a_version_may_be_tried_again),
        cmocka_unit_test(nobody_is_asked_unmeasured),
        cmocka_unit_test(the_tuner_measures_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
