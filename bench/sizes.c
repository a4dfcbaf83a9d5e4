/* What sizes as arguments of kernels cost beside sizes that are written into their code: every
 * function on every shape, compiled with `dynamic=0`, with its rows marked (cb_mark_dynamic), as
 * batches that change are, and with `dynamic=1`, and called in turn; the least of each in
 * microseconds, the worst ratio of the last first.
 *
 *     bench_sizes [THREADS] [MS] [PART OF A NAME]
 *     {"case": "softmax 512x200", "literal_us": 44.1, "rows_us": 44.3, "rows_ratio": 1.00,
 *      "arguments_us": 45.0, "ratio": 1.02}
 *
 * MS is spent on each case. The first use of a cache takes a compilation for each of them. */
#include <carbide.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- functions of one matrix ----------------------------------------------------------------- */

static cb_tensor *pointwise(cb_tensor *x) { return cb_add(cb_mul(x, 2.0), cb_abs(x)); }
static cb_tensor *gelu(cb_tensor *x) { return cb_gelu(x); }
static cb_tensor *bytes(cb_tensor *x) { return cb_logical_and(cb_gt(x, 0.0), cb_lt(x, 1.0)); }
static cb_tensor *halves(cb_tensor *x) { return cb_to(cb_mul(x, 2.0), CB_F16); }
static cb_tensor *rows(cb_tensor *x) { return cb_sum(cb_mul(x, x), 1); }
static cb_tensor *columns(cb_tensor *x) { return cb_sum(cb_mul(x, x), 0); }
static cb_tensor *both(cb_tensor *x) { return cb_sum(cb_mul(x, x)); }
static cb_tensor *largest(cb_tensor *x) { return cb_argmax(x, 1); }
static cb_tensor *softmax(cb_tensor *x) { return cb_softmax(x, 1); }
static cb_tensor *down(cb_tensor *x) { return cb_softmax(x, 0); }
static cb_tensor *turned(cb_tensor *x) { return cb_contiguous(cb_transpose(cb_add(x, 1), 0, 1)); }
static cb_tensor *copied(cb_tensor *x) { return cb_contiguous(cb_transpose(x, 0, 1)); }
static cb_tensor *added(cb_tensor *x) { /* one operand lies, the other stands */
    cb_tensor *t = cb_contiguous(cb_transpose(cb_mul(x, 2.0), 0, 1));
    return cb_sum(t, 1);
}
static cb_tensor *side(cb_tensor *x) { return cb_cat(((cb_tensor *[]){x, cb_neg(x)}), 2, 1); }
static cb_tensor *below(cb_tensor *x) { return cb_cat(((cb_tensor *[]){x, cb_neg(x)}), 2, 0); }
static cb_tensor *padded(cb_tensor *x) { return cb_pad(x, cb_dims(1, 2, 1, 2), 0.5); }
static cb_tensor *rolled(cb_tensor *x) { return cb_sub(cb_roll(x, 1, 1), cb_roll(x, -1, 0)); }
static cb_tensor *outer(cb_tensor *x) {
    return cb_add(cb_mul(x, cb_slice(x, 1, 0, 1)), cb_slice(x, 0, 0, 1));
}
static cb_tensor *chosen(cb_tensor *x) {
    cb_tensor *order = cb_sub((double)(cb_size(x, 0) - 1), cb_arange(0, cb_size(x, 0)));
    return cb_index_select(x, 0, cb_to(order, CB_I64));
}
static cb_tensor *halved(cb_tensor *x) { return cb_mul(cb_slice(x, 1, 0, cb_size(x, 1), 2), 3.0); }
static cb_tensor *sums(cb_tensor *x) { return cb_cumsum(x, 1); }
static cb_tensor *normed(cb_tensor *x) { return cb_sub(x, cb_mean(x, 0, true)); }
static cb_tensor *product(cb_tensor *x) {
    return cb_relu(cb_matmul(x, cb_transpose(cb_add(x, 1), 0, 1)));
}
static cb_tensor *norm(cb_tensor *x) {
    return cb_gelu(cb_layer_norm(x, cb_dims(cb_size(x, 1)), NULL, NULL, 1e-5));
}

static const struct {
    const char *name;
    cb_function_1 *function;
} functions[] = {
    {"pointwise", pointwise}, {"gelu", gelu},       {"bytes", bytes},     {"halves", halves},
    {"rows", rows},           {"columns", columns}, {"both", both},       {"argmax", largest},
    {"softmax", softmax},     {"down", down},       {"turned", turned},   {"copied", copied},
    {"added", added},         {"side", side},       {"below", below},     {"padded", padded},
    {"rolled", rolled},       {"outer", outer},     {"chosen", chosen},   {"halved", halved},
    {"cumsum", sums},         {"centred", normed},  {"product", product}, {"layer norm", norm},
};

static const int shapes[][2] = {
    {4096, 1024}, {2000, 1000}, {512, 200}, {2000, 37}, {1000, 100}, {500, 768},  {5000, 50},
    {1000, 770},  {300, 200},   {33, 65},   {1001, 17}, {17, 1001},  {3, 100003}, {100003, 3},
    {2, 4099},    {4099, 2},    {7, 9},     {255, 257}, {128, 12},   {20000, 8},  {64, 300},
};

/* ---- measuring ------------------------------------------------------------------------------- */

typedef struct Row {
    char name[48];
    double best[3];
} Row;

static Row row[1024];

static bool measure(Row *r, cb_function_1 *function, int height, int width, double budget_us) {
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(height, width));
    if (cb_mark_dynamic(x, 0) != CB_OK) return false;
    cb_function *fast[] = {cb_compile(function, "fullgraph=1,dynamic=0"),
                           cb_compile(function, "fullgraph=1"),
                           cb_compile(function, "fullgraph=1,dynamic=1")};
    r->best[0] = r->best[1] = r->best[2] = INFINITY;
    double end = INFINITY;
    for (int run = -3; run < 20 || now_us() < end; run++) {
        if (run == 0) end = now_us() + budget_us;
        for (int i = 0; i < 3; i++) {
            double start = now_us();
            cb_scope_open();
            if (!cb_call(fast[i], x)) return false;
            cb_scope_close();
            if (run >= 0) r->best[i] = fmin(r->best[i], now_us() - start);
        }
    }
    for (int i = 0; i < 3; i++) cb_function_free(fast[i]);
    cb_scope_close();
    return true;
}

static double ratio(const Row *r) { return r->best[2] / r->best[0]; }

static int worst_first(const void *a, const void *b) {
    double difference = ratio(b) - ratio(a);
    return (difference > 0) - (difference < 0);
}

int main(int argc, char **argv) {
    cb_set_threads(argc > 1 ? atoi(argv[1]) : 1);
    double budget_us = (argc > 2 ? atof(argv[2]) : 30) * 1e3;
    int count = 0;
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            Row *r = &row[count];
            int height = shapes[s][0], width = shapes[s][1];
            snprintf(r->name, sizeof r->name, "%s %dx%d", functions[f].name, height, width);
            if (argc > 3 && !strstr(r->name, argv[3])) continue;
            if (functions[f].function == product && height * height * (double)width > 1e8) continue;
            if (!measure(r, functions[f].function, height, width, budget_us)) {
                fprintf(stderr, "%s: %s\n", r->name, cb_error());
                return 1;
            }
            count++;
        }
    qsort(row, (size_t)count, sizeof *row, worst_first);
    for (int i = 0; i < count; i++)
        printf("{\"case\": \"%s\", \"literal_us\": %.2f, \"rows_us\": %.2f, \"rows_ratio\": %.2f, "
               "\"arguments_us\": %.2f, \"ratio\": %.2f}\n",
               row[i].name, row[i].best[0], row[i].best[1], row[i].best[1] / row[i].best[0],
               row[i].best[2], ratio(&row[i]));
    return 0;
}
