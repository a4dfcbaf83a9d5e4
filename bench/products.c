/* Products of many shapes: eager, compiled as the recorded model chooses, and with
 * mode=max-autotune, in turn. compare_products.py asks it and PyTorch beside it.
 *
 *     bench_products THREADS
 *     f32 65 16 32 16 nn 40      stdin: dtype, batch, m, k, n, layout (t: an operand is the
 *                                transposition of what lies in memory), ms to spend
 *     {"eager_us": 12.1, "default_us": 12.0, "tuned_us": 11.9, "by": "small", "tuned": "onednn"}
 *
 * The least of each. CARBIDE_CACHE_DIR should be a folder of its own: measured times are kept. */
#include <carbide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EAGER, DEFAULT, TUNED, SIDES };

static bool turned_a, turned_b; /* what the function is made for */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static cb_tensor *operand(const char *dtype, int64_t batch, int64_t rows, int64_t columns) {
    cb_tensor *x = cb_randn(cb_dims(batch, rows, columns));
    if (!strcmp(dtype, "bf16")) x = cb_to(x, CB_BF16);
    if (!strcmp(dtype, "f16")) x = cb_to(x, CB_F16);
    if (!strcmp(dtype, "f64")) x = cb_to(x, CB_F64);
    return cb_keep(cb_contiguous(batch == 1 ? cb_squeeze(x, 0) : x));
}

static int product(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *a = turned_a ? cb_transpose(in[0], -1, -2) : in[0];
    cb_tensor *b = turned_b ? cb_transpose(in[1], -1, -2) : in[1];
    out[0] = cb_matmul(a, b);
    return out[0] ? 1 : -1;
}

static double time_once(cb_function *function, cb_tensor *const *in) {
    cb_tensor *out[1];
    cb_scope_open();
    double start = now_us();
    if (function)
        cb_call_n(function, in, 2, out, 1);
    else
        product(in, 2, out, NULL);
    double end = now_us();
    cb_scope_close();
    return end - start;
}

/* Who computes the step, as cb_explain tells it: "matmul f32: 1 x [2, 3] x [3, 4]; panels". */
static void method_of(cb_function *function, char *name, size_t bytes) {
    char *text = cb_explain(function), *by = text ? strstr(text, "]; ") : NULL;
    snprintf(name, bytes, "%.*s", by ? (int)strcspn(by + 3, " ,\n") : 1, by ? by + 3 : "?");
    if (getenv("PRODUCTS_EXPLAIN") && by)
        fprintf(stderr, "      %.*s\n", (int)strcspn(by, "\n"), by);
    cb_free_text(text);
}

static void measure(cb_tensor *const *in, double budget_ms) {
    cb_function *function[SIDES] = {NULL, cb_compile_n(product, NULL, ""),
                                    cb_compile_n(product, NULL, "mode=max-autotune")};
    double least[SIDES] = {1e30, 1e30, 1e30};
    char by[2][32];
    for (int i = 0; i < 3; i++)
        for (int side = 0; side < SIDES; side++) time_once(function[side], in);
    double end = now_us() + budget_ms * 1e3;
    for (int round = 0; round < 5 || now_us() < end; round++)
        for (int side = 0; side < SIDES; side++)
            for (int i = 0; i < 3; i++) { /* the first ones find what another side has left */
                double us = time_once(function[side], in);
                if (us < least[side]) least[side] = us;
            }
    for (int i = 0; i < 2; i++) method_of(function[DEFAULT + i], by[i], sizeof by[i]);
    printf("{\"eager_us\": %.2f, \"default_us\": %.2f, \"tuned_us\": %.2f, \"by\": \"%s\", "
           "\"tuned\": \"%s\"}\n",
           least[EAGER], least[DEFAULT], least[TUNED], by[0], by[1]);
    for (int side = 0; side < SIDES; side++) cb_function_free(function[side]);
}

int main(int count, char **word) {
    if (count > 1) cb_set_threads(atoi(word[1]));
    char line[256], dtype[8], layout[3];
    long long batch, m, k, n;
    double budget_ms;
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%7s %lld %lld %lld %lld %2s %lf", dtype,
                                                     &batch, &m, &k, &n, layout, &budget_ms) == 7) {
        turned_a = layout[0] == 't', turned_b = layout[1] == 't';
        cb_scope_open();
        cb_tensor *in[2] = {operand(dtype, batch, turned_a ? k : m, turned_a ? m : k),
                            operand(dtype, batch, turned_b ? n : k, turned_b ? k : n)};
        measure(in, budget_ms);
        cb_free(in[0]), cb_free(in[1]);
        cb_scope_close();
        if (cb_error()) return (fprintf(stderr, "%s: %s\n", line, cb_error()), 1);
        fflush(stdout);
    }
    return 0;
}
