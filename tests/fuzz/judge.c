/* The verdict on two results of one recipe (judge.h).
 *
 * Close to eager, or else not further than eager from the same recipe in f64. A third case is left:
 * at a discontinuity (a comparison, a floor, an argmax, a variance of equal numbers under a ceil)
 * the last bit of a rounding decides. Whether that is so is found out, not assumed: the recipe runs
 * eagerly several times with every rounding moved by a unit or two in the last place, and a value
 * must lie within what these runs span. Where they all say the same, it must be that.
 *
 * An exact recipe has nothing to forgive: all of its ops round correctly, so its bits are equal. */
#include "judge.h"

#include <math.h>
#include <string.h>

void result_collect(Result *result, cb_tensor *const *output, int count) {
    result->count = count;
    result->failed = count < 0;
    for (int i = 0; i < count; i++) {
        if (!output[i] || cb_read(output[i], result->value[i], CB_F64)) {
            result->failed = true;
            return;
        }
        result->meta[i] = tensor_meta(tensor_in(output[i], "fuzz"));
    }
}

void run_eager(const Recipe *recipe, Result *result) {
    cb_tensor *input[MAX_INPUTS], *output[MAX_OUTPUTS] = {0};
    cb_scope_open();
    recipe_inputs(recipe, input);
    result_collect(result, output, recipe_call(input, recipe->input_count, output, (void *)recipe));
    cb_scope_close();
}

static double rmse(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(a[i]) && isfinite(b[i])) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return count ? sqrt(sum / (double)count) : 0;
}

static bool close_to(double a, double b, double tolerance) {
    if ((isnan(a) && isnan(b)) || a == b) return true;
    return fabs(a - b) <= tolerance + tolerance * fabs(b);
}

static bool all_close(const double *a, const double *b, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!close_to(a[i], b[i], 1e-4)) return false;
    return true;
}

/* The same numbers are finite in all three, and the errors are alike. */
static bool no_worse(const double *other, const double *eager, const double *wide, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (isfinite(other[i]) != isfinite(wide[i]) && isfinite(eager[i]) == isfinite(wide[i]))
            return false;
    double ref = rmse(eager, wide, count);
    return ref > 0 && rmse(other, wide, count) <= 3 * ref + 1e-5;
}

/* What rounding may make of one element. */
typedef struct Span {
    double low, high;
    bool nan;
} Span;

static void widen(Span *span, double value) {
    span->nan |= isnan(value);
    span->low = fmin(span->low, value); /* fmin and fmax pass over NaN */
    span->high = fmax(span->high, value);
}

static bool within(const Span *span, double value) {
    if (isnan(value)) return span->nan;
    double spread = span->high - span->low; /* NaN: all infinities of one sign, or no number */
    if (isinf(spread) || isnan(spread)) return value >= span->low && value <= span->high;
    double slack = spread + 1e-5 + 1e-5 * fmax(fabs(span->low), fabs(span->high));
    return value >= span->low - slack && value <= span->high + slack;
}

/* Every element that is not close to eager's lies within the span of the jittered runs. */
static bool by_jitter(const Recipe *recipe, const Result *eager, const Result *other,
                      const Result *wide, bool wide_counts) {
    static Result run[JITTERS];
    for (int j = 0; j < JITTERS; j++) {
        Recipe moved = *recipe;
        moved.jitter = (uint64_t)j + 1;
        run_eager(&moved, &run[j]);
        if (run[j].failed || run[j].count != eager->count) return false;
    }
    for (int o = 0; o < eager->count; o++)
        for (int64_t i = 0; i < meta_numel(&eager->meta[o]); i++) {
            double value = other->value[o][i];
            if (close_to(value, eager->value[o][i], 1e-4)) continue;
            Span span = {.low = INFINITY, .high = -INFINITY};
            widen(&span, eager->value[o][i]);
            if (wide_counts) widen(&span, wide->value[o][i]);
            for (int j = 0; j < JITTERS; j++) widen(&span, run[j].value[o][i]);
            if (!within(&span, value)) return false;
        }
    return true;
}

static bool same_metas(const Result *a, const Result *b) {
    for (int i = 0; i < a->count; i++)
        if (memcmp(&a->meta[i], &b->meta[i], sizeof(Meta))) return false;
    return true;
}

/* NaN is NaN; 0 is not -0. */
static bool same_values(const Result *a, const Result *b) {
    for (int i = 0; i < a->count; i++)
        for (int64_t k = 0; k < meta_numel(&a->meta[i]); k++) {
            double x = a->value[i][k], y = b->value[i][k];
            if (!(isnan(x) && isnan(y)) && memcmp(&x, &y, sizeof x)) return false;
        }
    return true;
}

Verdict judge(const Recipe *recipe, const Result *eager, const Result *other, const char **why) {
    static Result wide;
    *why = "one fails";
    if (eager->failed != other->failed || eager->count != other->count) return DIFFER;
    if (eager->failed) return AGREE;
    *why = "metas differ";
    if (!same_metas(eager, other)) return DIFFER;
    *why = "values differ";
    if (recipe->exact) return same_values(eager, other) ? AGREE : DIFFER;
    bool close = true;
    for (int i = 0; i < eager->count; i++)
        close &= all_close(other->value[i], eager->value[i], meta_numel(&eager->meta[i]));
    if (close) return AGREE;
    Recipe wider = *recipe;
    wider.widened = true;
    run_eager(&wider, &wide);
    bool judged = !wide.failed && wide.count == eager->count;
    for (int i = 0; i < eager->count && judged; i++)
        judged = meta_numel(&wide.meta[i]) == meta_numel(&eager->meta[i]);
    bool good = judged;
    for (int i = 0; i < eager->count && good; i++) {
        int64_t n = meta_numel(&eager->meta[i]);
        good = all_close(other->value[i], eager->value[i], n) ||
               no_worse(other->value[i], eager->value[i], wide.value[i], n);
    }
    if (good) return AGREE;
    return by_jitter(recipe, eager, other, &wide, judged) ? AGREE_BY_JITTER : DIFFER;
}
