/* Compares eager and compiled results with the same function computed in float64.
 *
 * The rule is that of PyTorch's model suites: the results agree when they are close to each other,
 * element by element, or when the compiled one is about as near to float64 as eager is:
 *     rmse(fp64, compiled) <= m * rmse(fp64, eager) + tolerance / 10      m = 2; 3 for 16 bits or
 *                                                                         under 1000 elements
 * NaN equals NaN. Whole numbers may differ by one: pixels are rounded.
 *
 * float64 copies of a large case and of all that it computes on the way would need gigabytes, so
 * cases whose results follow the batch are checked in parts of PART elements.
 *
 * Of a network that learns the losses of a few steps are compared. */
#include "measure.h"

#include <math.h>
#include <stdlib.h>

enum { PART = 1 << 20, FEW = 1000 };
static const double TRAINING_TOLERANCE = 1e-3; /* AdamW divides by what is rounded */

typedef struct Sums { /* over the elements so far */
    double max_error, eager_error, eager_square, compiled_square;
    double tolerance;
    int64_t count;
    bool close;
} Sums;

static double tolerance_of(cb_dtype dtype) {
    switch (dtype) {
    case CB_F64:
        return 1e-9;
    case CB_F32:
        return 1e-4;
    case CB_F16:
        return 1e-3;
    case CB_BF16:
        return 1.6e-2;
    default:
        return 1;
    }
}

/* |a - b|; 0 for two NaN or equal infinities, infinity for NaN beside a number. */
static double distance(double a, double b) {
    if (a == b || (isnan(a) && isnan(b))) return 0;
    double d = fabs(a - b);
    return isnan(d) ? INFINITY : d;
}

static void add_part(Sums *sums, const double *exact, const double *eager, const double *compiled,
                     int64_t count) {
    double tolerance = sums->tolerance, relative = tolerance < 1 ? tolerance : 0;
    for (int64_t i = 0; i < count; i++) {
        double e = distance(eager[i], exact[i]), c = distance(compiled[i], exact[i]);
        sums->eager_error = fmax(sums->eager_error, e);
        sums->max_error = fmax(sums->max_error, c);
        sums->eager_square += e * e;
        sums->compiled_square += c * c;
        double apart = distance(eager[i], compiled[i]);
        if (apart > tolerance + relative * fabs(eager[i])) sums->close = false;
    }
    sums->count += count;
}

static bool agree(const Sums *sums, cb_dtype dtype) {
    if (sums->close) return true;
    double n = (double)sums->count;
    double factor = cb_dtype_size(dtype) == 2 || sums->count < FEW ? 3 : 2;
    return sqrt(sums->compiled_square / n) <=
           factor * sqrt(sums->eager_square / n) + sums->tolerance / 10;
}

typedef struct Results {
    const Subject *subject;
    cb_tensor *eager, *compiled;
    double *exact_value, *eager_value, *compiled_value; /* of one part */
} Results;

static bool is_float(cb_dtype dtype) { return dtype >= CB_F16; }

/* Items [start, start + count) of a batch; everything when count is 0. */
static cb_tensor *part_of(cb_tensor *x, int64_t start, int64_t count) {
    return count ? cb_narrow(x, 0, start, count) : x;
}

/* The case in float64 on a part of its inputs. */
static cb_tensor *exact_part(const Subject *subject, int64_t start, int64_t count) {
    cb_tensor *input[CASE_INPUTS];
    for (int i = 0; i < subject->input_count; i++) {
        bool batched = subject->row->input[i].size[0] == BATCH;
        input[i] = part_of(subject->input[i], start, batched ? count : 0);
        if (input[i] && is_float(cb_dtype_of(input[i]))) input[i] = cb_to(input[i], CB_F64);
    }
    return subject->optimizer ? training_exact(subject, input)
                              : subject_result(subject, NULL, input);
}

static bool add_range(const Results *results, int64_t start, int64_t count, Sums *sums) {
    cb_scope_open();
    cb_tensor *exact = exact_part(results->subject, start, count);
    bool done =
        exact && cb_read(exact, results->exact_value, CB_F64) == CB_OK &&
        cb_read(part_of(results->eager, start, count), results->eager_value, CB_F64) == CB_OK &&
        cb_read(part_of(results->compiled, start, count), results->compiled_value, CB_F64) == CB_OK;
    if (done)
        add_part(sums, results->exact_value, results->eager_value, results->compiled_value,
                 cb_numel(exact));
    cb_scope_close();
    return done;
}

static bool add_all(Results *results, Sums *sums) {
    const Subject *subject = results->subject;
    int64_t numel = cb_numel(results->compiled), batch = subject->batch;
    if (subject->row->whole || numel <= PART) batch = 0;
    int64_t step = batch ? (PART * batch + numel - 1) / numel : 0;
    size_t bytes = (size_t)(batch ? step * (numel / batch) : numel) * sizeof(double);
    results->exact_value = malloc(bytes);
    results->eager_value = malloc(bytes);
    results->compiled_value = malloc(bytes);
    bool done = results->exact_value && results->eager_value && results->compiled_value;
    if (subject->module) done = done && cb_module_to(subject->module, CB_F64) == CB_OK;
    if (!batch) return done && add_range(results, 0, 0, sums);
    for (int64_t i = 0; i < batch && done; i += step)
        done = add_range(results, i, step < batch - i ? step : batch - i, sums);
    return done;
}

static cb_tensor *compared(const Subject *subject, cb_function *fast) {
    return subject->optimizer ? training_losses(subject, fast, subject->input)
                              : subject_result(subject, fast, subject->input);
}

bool accuracy_check(const Subject *subject, cb_function *fast, Accuracy *out) {
    Results results = {.subject = subject};
    Sums sums = {.close = true};
    cb_scope_open();
    results.eager = compared(subject, NULL);
    results.compiled = compared(subject, fast);
    bool done = results.eager && results.compiled;
    bool same = done && cb_dtype_of(results.eager) == cb_dtype_of(results.compiled) &&
                cb_numel(results.eager) == cb_numel(results.compiled);
    if (same) sums.tolerance = tolerance_of(cb_dtype_of(results.compiled));
    if (subject->optimizer) sums.tolerance = fmax(sums.tolerance, TRAINING_TOLERANCE);
    if (same) done = add_all(&results, &sums);
    if (done && subject->module) done = cb_module_to(subject->module, subject->dtype) == CB_OK;
    if (done)
        *out = (Accuracy){.max_error = sums.max_error,
                          .eager_error = sums.eager_error,
                          .agree = same && agree(&sums, cb_dtype_of(results.compiled))};
    free(results.exact_value);
    free(results.eager_value);
    free(results.compiled_value);
    cb_scope_close();
    return done;
}
