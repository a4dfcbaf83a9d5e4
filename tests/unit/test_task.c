/* Which steps are offered to a provider, and as what: products and convolutions with epilogues that
 * fit (result * scale + bias + residual, relu) and ones that do not. A provider that computes each
 * task by its definition (tests/plugins/plain.c) and our own engine agree in every case. */
#define _GNU_SOURCE
#include "test_support.h"

#include "carbide.h"
#include "failing_once.h"
#include "jit/cache.h"
#include "run/execute.h"
#include "tensor/tensor.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the cases --------------------------------------------------------------------------- */

/* Weights are the last: where frozen, they are captured, and the others inputs of the function. */
enum { X, IMAGE, BATCH, V, R, R2, WIDE, COLUMN, HALF, LONG, TONES, CHANNELS, NONE_X, INPUTS };
enum { W = INPUTS, KERNEL, NONE_W, COUNT };

static cb_tensor *in[COUNT]; /* of the case's dtype, but WIDE and CHANNELS are f32, HALF bf16 */

typedef struct Case {
    const char *name;
    cb_tensor *(*make)(void);
    cb_dtype dtype;
    const char *task; /* as the provider got it; "": it was not asked */
} Case;

static cb_tensor *matmul(void) { return cb_matmul(in[X], in[W]); }
static cb_tensor *wide(void) { return cb_to(matmul(), CB_F32); }
static cb_tensor *conv(void) { return cb_conv2d(in[IMAGE], in[KERNEL], NULL, 1, 1); }
static cb_tensor *per_channel(void) { return cb_reshape(in[CHANNELS], cb_dims(8, 1, 1)); }

#define BODY(name, value)                                                                          \
    static cb_tensor *name(void) { return value; }

BODY(bias, cb_add(matmul(), in[V]))
BODY(bias_first, cb_add(in[V], matmul()))
BODY(scale, cb_mul(matmul(), in[V]))
BODY(scale_first, cb_mul(in[V], matmul()))
BODY(all_of_it, cb_relu(cb_add(cb_add(cb_mul(matmul(), in[V]), in[WIDE]), in[R])))
BODY(residual, cb_add(matmul(), in[R]))
BODY(bias_and_residual, cb_add(cb_add(matmul(), in[V]), in[R]))
BODY(residual_and_bias, cb_add(cb_add(matmul(), in[R]), in[V]))
BODY(two_biases, cb_add(cb_add(matmul(), in[V]), in[WIDE]))
BODY(two_residuals, cb_add(cb_add(matmul(), in[R]), in[R2]))
BODY(along_rows, cb_add(matmul(), in[COLUMN]))
BODY(scaled_rows, cb_mul(matmul(), in[COLUMN]))
BODY(turned_residual, cb_add(matmul(), cb_t(in[R])))
BODY(every_second, cb_add(matmul(), cb_slice(in[LONG], 0, 0, INT64_MAX, 2)))
BODY(less, cb_sub(matmul(), in[V]))
BODY(squared, cb_square(matmul()))
BODY(by_number, cb_mul(matmul(), 3.0))
BODY(plus_number, cb_add(matmul(), 3.0))
BODY(sigmoid, cb_sigmoid(matmul()))
BODY(half_bias, cb_add(matmul(), cb_to(in[HALF], CB_F32)))
BODY(wide_bias, cb_to(cb_add(wide(), in[WIDE]), CB_BF16))
BODY(wide_scale, cb_to(cb_add(cb_mul(wide(), in[WIDE]), in[WIDE]), CB_BF16))
BODY(wide_residual, cb_to(cb_add(wide(), cb_to(in[R], CB_F32)), CB_BF16))
BODY(wide_result, cb_add(wide(), in[WIDE]))
BODY(other_result, cb_to(matmul(), CB_F64))
BODY(there_and_back, cb_to(cb_add(cb_to(matmul(), CB_F64), cb_to(in[V], CB_F64)), CB_F32))
BODY(rounded_bias, cb_add(matmul(), cb_to(in[WIDE], CB_BF16)))
BODY(scaled_there_and_back, cb_to(cb_mul(cb_to(matmul(), CB_F64), cb_to(in[V], CB_F64)), CB_F32))
BODY(no_columns, cb_matmul(in[X], cb_slice(in[W], 1, 0, 0)))
BODY(no_batch, cb_matmul(in[X], cb_transpose(cb_slice(in[BATCH], 0, 0, 0), 1, 2)))
BODY(two_halves,
     cb_add(matmul(),
            cb_cat(((cb_tensor *[]){cb_slice(in[V], 0, 0, 5), cb_slice(in[V], 0, 3, 14)}), 2, 0)))
BODY(padded, cb_add(matmul(), cb_pad(cb_slice(in[V], 0, 0, 11), cb_dims(2, 3))))
BODY(many, cb_add(cb_matmul(in[BATCH], in[W]), in[V]))
BODY(shared, cb_matmul(in[X], cb_transpose(in[BATCH], 1, 2)))
BODY(repeated, cb_matmul(cb_expand(in[X], cb_dims(3, 16, 8)), cb_expand(in[W], cb_dims(3, 8, 16))))
BODY(nothing_to_sum, cb_matmul(in[NONE_X], in[NONE_W]))
BODY(nothing, cb_matmul(cb_slice(in[X], 0, 0, 0), in[W]))
BODY(image, conv())
BODY(image_bias, cb_conv2d(in[IMAGE], in[KERNEL], in[TONES], 1, 1))
BODY(image_relu, cb_relu(conv()))
BODY(image_scale, cb_relu(cb_mul(conv(), per_channel())))
BODY(image_twice, cb_add(conv(), conv()))
BODY(image_along, cb_add(conv(), cb_select(cb_select(in[IMAGE], 0, 0), 0, 0)))
BODY(image_wide,
     cb_to(cb_relu(cb_add(cb_mul(cb_to(conv(), CB_F32), per_channel()), per_channel())), CB_BF16))

static const Case cases[] = {
    {"matmul", matmul, CB_F32, "matmul f32"},
    {"bias", bias, CB_F32, "matmul f32 bias f32"},
    {"bias first", bias_first, CB_F32, "matmul f32 bias f32"},
    {"scale", scale, CB_F32, "matmul f32 scale"},
    {"scale first", scale_first, CB_F32, "matmul f32 scale"},
    {"all of it", all_of_it, CB_F32, "matmul f32 scale bias f32 residual relu"},
    {"residual", residual, CB_F32, "matmul f32 residual"},
    {"bias and residual", bias_and_residual, CB_F32, "matmul f32 bias f32 residual"},
    {"residual and bias", residual_and_bias, CB_F32, "matmul f32"},
    {"two biases", two_biases, CB_F32, "matmul f32"},
    {"two residuals", two_residuals, CB_F32, "matmul f32"},
    {"along rows", along_rows, CB_F32, "matmul f32"},
    {"scaled rows", scaled_rows, CB_F32, "matmul f32"},
    {"turned residual", turned_residual, CB_F32, "matmul f32"},
    {"every second", every_second, CB_F32, "matmul f32"},
    {"less", less, CB_F32, "matmul f32"},
    {"squared", squared, CB_F32, "matmul f32"},
    {"by a number", by_number, CB_F32, "matmul f32"},
    {"plus a number", plus_number, CB_F32, "matmul f32"},
    {"sigmoid", sigmoid, CB_F32, "matmul f32"},
    {"half bias", half_bias, CB_F32, "matmul f32"},
    {"other result", other_result, CB_F32, "matmul f32"},
    {"there and back", there_and_back, CB_F32, "matmul f32"},
    {"scaled there and back", scaled_there_and_back, CB_F32, "matmul f32"},
    {"two halves", two_halves, CB_F32, "matmul f32 bias f32"}, /* each row reads them: stored */
    {"padded", padded, CB_F32, "matmul f32 bias f32"},
    {"no columns", no_columns, CB_F32, ""},
    {"no batch", no_batch, CB_F32, ""},
    {"many", many, CB_F32, "matmul f32 bias f32"},
    {"shared", shared, CB_F32, "matmul f32"},
    {"repeated", repeated, CB_F32, ""},
    {"nothing to sum", nothing_to_sum, CB_F32, ""},
    {"nothing", nothing, CB_F32, ""},
    {"matmul", matmul, CB_BF16, "matmul bf16"},
    {"bias", bias, CB_BF16, "matmul bf16 bias bf16"},
    {"scale", scale, CB_BF16, "matmul bf16"},
    {"residual", residual, CB_BF16, "matmul bf16 residual"},
    {"wide bias", wide_bias, CB_BF16, "matmul bf16 bias f32"},
    {"along rows", along_rows, CB_BF16, "matmul bf16"},
    {"rounded bias", rounded_bias, CB_BF16, "matmul bf16"},
    {"wide scale", wide_scale, CB_BF16, "matmul bf16 scale bias f32"},
    {"wide residual", wide_residual, CB_BF16, "matmul bf16 residual"},
    {"wide result", wide_result, CB_BF16, "matmul bf16"},
    {"matmul", matmul, CB_F16, ""},
    {"matmul", matmul, CB_F64, ""},
    {"matmul", matmul, CB_I32, ""},
    {"image", image, CB_F32, "conv f32"},
    {"image", image, CB_BF16, "conv bf16"},
    {"image", image, CB_F16, ""},
    {"image bias", image_bias, CB_F32, "conv f32 bias f32"},
    {"image relu", image_relu, CB_F32, "conv f32 relu"},
    {"image scale", image_scale, CB_F32, "conv f32 scale relu"},
    {"image twice", image_twice, CB_F32, "conv f32"},
    {"image bias", image_bias, CB_BF16, "conv bf16 bias bf16"},
    {"image wide", image_wide, CB_BF16, "conv bf16 scale bias f32 relu"},
    {"image along", image_along, CB_F32, "conv f32"},
};

/* ---- running them ------------------------------------------------------------------------ */

/* Small integers, whose sums are exact. */
static cb_tensor *integers(cb_dim_list dims, cb_dtype dtype) {
    int64_t numel = 1;
    for (int d = 0; d < dims.count; d++) numel *= dims.at[d];
    cb_tensor *x = cb_sub(cb_remainder(cb_mul(cb_arange(0, numel), 7), 5), 2);
    return cb_to((cb_reshape)(x, dims), dtype);
}

/* Results of bf16 that are smaller stay f32 until their epilogue has read them (sched/wide.c). */
static void make_inputs(cb_dtype dtype) {
    int64_t rows = dtype == CB_BF16 ? 257 : 16, columns = dtype == CB_BF16 ? 256 : 16;
    int64_t pixels = dtype == CB_BF16 ? 33 : 8;
    in[X] = integers(cb_dims(rows, 8), dtype), in[W] = integers(cb_dims(8, columns), dtype);
    in[V] = integers(cb_dims(columns), dtype), in[R] = integers(cb_dims(rows, columns), dtype);
    in[R2] = integers(cb_dims(rows, columns), dtype);
    in[WIDE] = integers(cb_dims(columns), CB_F32), in[COLUMN] = integers(cb_dims(rows, 1), dtype);
    in[HALF] = integers(cb_dims(columns), CB_BF16);
    in[LONG] = integers(cb_dims(2 * columns), dtype);
    in[IMAGE] = integers(cb_dims(2, 4, pixels, pixels), dtype);
    in[KERNEL] = integers(cb_dims(8, 4, 3, 3), dtype);
    in[TONES] = integers(cb_dims(8), dtype);
    in[CHANNELS] = integers(cb_dims(8), CB_F32), in[BATCH] = integers(cb_dims(3, rows, 8), dtype);
    in[NONE_X] = cb_zeros(cb_dims(rows, 0), dtype),
    in[NONE_W] = cb_zeros(cb_dims(0, columns), dtype);
}

static bool frozen; /* what is captured never changes */

static int body(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    cb_tensor *before[COUNT];
    memcpy(before, in, sizeof before);
    memcpy(in, inputs, sizeof *in * (size_t)count);
    outputs[0] = ((const Case *)user)->make();
    memcpy(in, before, sizeof before);
    return 1;
}

static char *explained; /* of the last function */

/* What is computed by this provider, with another number of threads at last. */
static cb_tensor *compute(const Case *c, const char *provider, const char *mode) {
    char options[100];
    cb_tensor *y[2] = {NULL};
    snprintf(options, sizeof options, "backend=vm,freeze=%d,mode=%s", frozen, mode);
    assert_int_equal(cb_set_option("provider", provider), CB_OK);
    cb_function *fast = cb_compile_n(body, (void *)(uintptr_t)c, options);
    assert_non_null(fast);
    for (int i = 0; i < 2; i++) {
        if (cb_call_n(fast, in, frozen ? INPUTS : COUNT, &y[i], 1) != 1)
            FAIL("%s: %s", c->name, cb_error());
        cb_set_threads(cb_threads() == 1 ? 2 : 1);
    }
    cb_set_threads(0);
    cb_free_text(explained);
    explained = cb_explain(fast);
    cb_function_free(fast);
    if (cb_item(cb_all(cb_eq(y[0], y[1]))) != 1) FAIL("%s: threads differ", c->name);
    return y[0];
}

static void expect(const Case *c) {
    cb_scope_open();
    make_inputs(c->dtype);
    cb_tensor *wanted = compute(c, "own", "default");
    setenv("CARBIDE_TEST_TASK", "", 1);
    cb_tensor *found = compute(c, "plain", "default");
    if (strcmp(getenv("CARBIDE_TEST_TASK"), c->task) != 0)
        FAIL("%s in %s: '%s', not '%s'", c->name, cb_dtype_name(c->dtype),
             getenv("CARBIDE_TEST_TASK"), c->task);
    assert_int_equal(cb_dtype_of(found), cb_dtype_of(wanted));
    if (cb_item(cb_all(cb_eq(found, wanted))) != 1)
        FAIL("%s in %s: another result", c->name, cb_dtype_name(c->dtype));
    cb_scope_close();
}

static void test_tasks(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < (cases[i].dtype == CB_F32 ? 2 : 1); k++) {
            frozen = k == 0;
            expect(&cases[i]);
        }
}

/* Each op rounds: an epilogue in one pass would not. */
static void test_rounding(void **state) {
    (void)state;
    static const Case rounded[] = {
        {"bias", bias, CB_BF16, "matmul bf16"},
        {"bias", bias, CB_F32, "matmul f32 bias f32"},
        {"image bias", image_bias, CB_BF16, "conv bf16"},
    };
    cb_set_option("precise", "1");
    for (int i = 0; i < 3; i++) expect(&rounded[i]);
    cb_set_option("precise", "0");
}

/* ---- measuring --------------------------------------------------------------------------- */

BODY(image_small, cb_relu(cb_add(conv(), cb_reshape(in[TONES], cb_dims(8, 1, 1)))))
BODY(image_last, cb_convolution(cb_permute(in[IMAGE], cb_dims(0, 2, 3, 1)),
                                cb_permute(in[KERNEL], cb_dims(0, 2, 3, 1)), cb_dims(1, 1),
                                cb_dims(1, 1), cb_dims(1, 1), 1, true))
BODY(small, cb_relu(matmul()))

static cb_tensor *extra[40];

static cb_tensor *many_residuals(void) {
    cb_tensor *y = matmul();
    for (int i = 0; i < 40; i++) y = cb_add(y, extra[i]);
    return y;
}

/* What the entry of the cache says of the step; "": nothing was measured. */
static const Case tuned[] = {
    {"matmul", matmul, CB_F32, "tuned matmul f32 to f32 of 16x16x8 strides 8x1x16x1 batch"},
    {"all of it", all_of_it, CB_F32, " then mul, add, relu 1280 "},
    {"every second", every_second, CB_F32, " then add 768 "},
    {"many", many, CB_F32, " batch 3 by 128 and 0 then add 1536 "},
    {"shared", shared, CB_F32, " strides 8x1x1x8 batch 3 by 0 and 128"},
    {"small", small, CB_F16, ""},
    {"many residuals", many_residuals, CB_F32, ""},
    {"matmul", matmul, CB_BF16, "tuned matmul bf16 to bf16 of "},
    {"image", image, CB_F32, "tuned convolution f32 to f32 of 2x4x8x1 in 1x8x8 kernel 1x3x3 "},
    {"image scale", image_scale, CB_F32, " channels first then mul, relu 4096 "},
    {"image small", image_small, CB_F16, "tuned convolution f16 to f32 of "},
    {"image last", image_last, CB_F32, " channels last"},
};

static char directory[] = "/tmp/carbide-task-XXXXXX";

static void keep_key(void *user, const CacheEntry *entry) {
    memcpy(user, entry->key, sizeof entry->key);
}

/* What is measured, and how that ends. */
static void tune(const Case *c, const char *word) {
    cb_tensor *wanted = compute(c, "own", "default");
    cb_tensor *found = compute(c, "auto", "max-autotune");
    if (!strstr(explained, word)) FAIL("%s: no '%s' in %s", c->name, word, explained);
    if (cb_item(cb_all(cb_eq(found, wanted))) != 1) FAIL("%s: another result", c->name);
}

static void measure(const Case *c) {
    char key[CACHE_KEY], text[CACHE_TEXT];
    cb_scope_open();
    make_inputs(c->dtype);
    for (int i = 0; i < 40; i++) extra[i] = integers(cb_dims(16, 16), CB_F32);
    tune(c, *c->task ? " measured: " : "");
    if (*c->task) {
        assert_int_equal(cache_visit(directory, keep_key, key), 1);
        assert_true(cache_describe(directory, key, text));
        if (!strstr(text, c->task)) FAIL("%s: no '%s' in %s", c->name, c->task, text);
        if ((strstr(text, " constant") != NULL) != (frozen && c->make != shared))
            FAIL("%s: constant?", text);
        if (strstr(text, " then ") && !strstr(text, " on the vm"))
            FAIL("%s: whose code is the epilogue?", text); /* backend=vm */
        tune(c, " measured before: ");
    }
    cache_clear(directory);
    cb_scope_close();
}

static void test_measuring(void **state) {
    (void)state;
    assert_non_null(mkdtemp(directory));
    cb_set_option("cache_dir", directory);
    for (size_t i = 0; i < sizeof tuned / sizeof *tuned; i++)
        for (int k = 0; k < 2; k++) {
            frozen = k;
            measure(&tuned[i]);
        }
    cb_set_float32_matmul_precision("medium");
    const Case reduced = {"reduced", matmul, CB_F32, " reduced"};
    measure(&reduced);
    cb_set_float32_matmul_precision("highest");
    rmdir(directory);
}

/* ---- what is measured is what runs ------------------------------------------------------- */

static _Atomic int epilogues;

static void count_epilogue(void *const *buffer, int64_t low, int64_t high, int pass, void *slot) {
    (void)buffer, (void)low, (void)high, (void)pass, (void)slot;
    epilogues++;
}

/* The step of a convolution of bf16 with a bias and relu, too large for sums in f32. */
static const char half_image[] =
    "graph(x: bf16[2, 28, 28, 16], w: bf16[16, 3, 3, 16], b: bf16[16]) {\n"
    "  y = convolution(x, w, stride=[1, 1], padding=[0, 0], dilation=[2, 2], channels_last=true)\n"
    "  return relu(y + b)\n}";

/* An epilogue that the methods do on the way is no kernel, for the tuner as when it runs. */
static void test_measured_ends(void **state) {
    (void)state;
    cb_set_option("plugin_dir", "/nonexistent"); /* our own methods alone */
    cb_set_option("cache", "0");
    for (int precise = 0; precise < 2; precise++) {
        cb_set_option("precise", precise ? "1" : "0");
        Arena *arena = arena_new();
        if (!arena || arena_guard(arena)) abort();
        Graph *graph = graph_parse(arena, half_image);
        if (!graph) FAIL("%s", cb_error());
        graph_optimize(graph, NULL);
        const int64_t *strides[CB_MAX_ARGS] = {NULL};
        Plan *plan = plan_build(graph, arena, strides, (PlanOptions){.fuse = true});
        const Step *step = &plan->step[0];
        assert_int_equal(length(plan->step), 1);
        assert_int_equal(step->task.kind, TASK_CONVOLUTION);
        Launch launch;
        Work work;
        MethodRefusal refusal = {0};
        assert_true(launch_init(&launch, plan->kernel[step->kernel], count_epilogue, false));
        epilogues = 0;
        method_choose(plan, step, (ConstantWeight){.number = -1}, &launch, true, &work, &refusal);
        assert_non_null(strstr(work.text, " measured: "));
        assert_int_equal(work.end.fused, !precise);
        assert_int_equal(epilogues == 0, !precise);
        work_free(&work);
        launch_free(&launch);
        arena_free(arena);
    }
    cb_set_option("precise", "0");
    cb_set_option("cache", "1");
    cb_set_option("plugin_dir", CARBIDE_TEST_PLUGINS);
}

/* ---- a provider that fails later --------------------------------------------------------- */

typedef struct LateRefusal {
    const char *what; /* refused behind the first call */
    int threads;      /* of the calls then; 2: those it was made for */
    int eager;        /* calls that nobody has a weight for, where it was captured */
} LateRefusal;

static const LateRefusal refusals[] = {
    {"create", 3, 0}, {"pack", 3, 0},     {"open", 3, 2},
    {"run", 2, 0},    {"run open", 2, 2}, {"create", 2, 0}, /* it is not asked again */
};

static cb_tensor *call(cb_function *fast) {
    cb_tensor *y = NULL;
    cb_call_n(fast, in, frozen ? INPUTS : COUNT, &y, 1);
    return y;
}

static void refuse(const LateRefusal *r, const Case *c) {
    char eager[32];
    cb_scope_open();
    make_inputs(c->dtype);
    cb_tensor *wanted = c->make(), *y;
    cb_set_threads(2);
    cb_function *fast = cb_compile_n(body, (void *)(uintptr_t)c,
                                     frozen ? "backend=vm,freeze=1" : "backend=vm,freeze=0");
    assert_non_null(call(fast));
    setenv("CARBIDE_TEST_REFUSED", r->what, 1);
    cb_set_threads(r->threads);
    for (int i = 0; i < 4; i++) {
        if (i == 2) unsetenv("CARBIDE_TEST_REFUSED");
        y = call(fast);
        if (!y) FAIL("%s of %s: %s", r->what, c->name, cb_error());
        if (cb_item(cb_all(cb_eq(y, wanted))) != 1)
            FAIL("%s of %s: another result", r->what, c->name);
    }
    snprintf(eager, sizeof eager, " %d eager", frozen ? r->eager : 0);
    cb_free_text(explained);
    explained = cb_explain(fast);
    if (!strstr(explained, eager))
        FAIL("%s of %s: no %s in %s", r->what, c->name, eager, explained);
    cb_set_threads(0);
    cb_function_free(fast);
    cb_scope_close();
}

static void test_refusals(void **state) {
    (void)state;
    const Case steps[] = {{"product", all_of_it, CB_F32, ""},
                          {"sigmoid", sigmoid, CB_F32, ""},
                          {"image", image_scale, CB_F32, ""}};
    cb_set_option("provider", "plain");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        for (int k = 0; k < 6; k++) {
            frozen = k & 1;
            refuse(&refusals[i], &steps[k / 2]);
        }
}

/* ---- memory ------------------------------------------------------------------------------ */

/* The n-th allocation of compiling and calling fails. False: there are not so many. */
static bool fail_at(const Case *c, const char *provider, const char *mode, int n) {
    char options[100];
    cb_tensor *y = NULL;
    cb_set_option("plugin_dir", CARBIDE_TEST_PLUGINS); /* cb_cleanup forgets all three */
    cb_set_option("cache", "0");
    cb_set_option("provider", provider);
    snprintf(options, sizeof options, "backend=vm,freeze=%d,mode=%s", frozen, mode);
    cb_scope_open();
    make_inputs(c->dtype);
    cb_tensor *wanted = c->make();
    storage_trim(); /* freed memory that is kept would not be asked for */
    countdown = n;
    cb_function *fast = cb_compile_n(body, (void *)(uintptr_t)c, options);
    for (int i = 0; fast && i < 2; i++) { /* with another number of threads at last */
        y = NULL;
        cb_call_n(fast, in, frozen ? INPUTS : COUNT, &y, 1);
        cb_set_threads(cb_threads() == 1 ? 2 : 1);
    }
    bool failed = countdown <= 0;
    countdown = -1;
    cb_set_threads(0);
    if (!y && cb_error_status() != CB_ERR_MEMORY) FAIL("%s, %d: %s", c->name, n, cb_error());
    if (y && cb_item(cb_all(cb_eq(y, wanted))) != 1) FAIL("%s, %d: another result", c->name, n);
    cb_clear_error();
    cb_function_free(fast);
    cb_scope_close();
    cb_cleanup();
    return failed;
}

static void fail_each(const char *provider, const char *mode) {
    const Case steps[] = {{"product", all_of_it, CB_F32, ""},
                          {"sigmoid", sigmoid, CB_F32, ""},
                          {"image", image_scale, CB_F32, ""}};
    cb_set_option("provider", provider);
    for (int i = 0; i < 3; i++) {
        fail_at(&steps[i], provider, mode, INT_MAX);
        int64_t before = live_blocks;
        int n = 0;
        while (fail_at(&steps[i], provider, mode, n)) {
            if (live_blocks != before)
                FAIL("%s, %d: %d blocks leak", steps[i].name, n, (int)(live_blocks - before));
            n++;
        }
        assert_true(n > 20);
    }
}

static void test_memory(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        frozen = k;
        stays_failed = false;
        fail_each("plain", "default");
        stays_failed = true;
        fail_each("auto", "max-autotune");
    }
}

int main(void) {
    cb_set_allocator((cb_allocator){fail_once, NULL});
    cb_set_option("plugin_dir", CARBIDE_TEST_PLUGINS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tasks),     cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_measuring), cmocka_unit_test(test_measured_ends),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("tasks", tests, NULL, NULL);
}
