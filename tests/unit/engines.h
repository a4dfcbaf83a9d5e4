/* One function in every engine: eager, the VM and compiled C, with 1, 2 and 16 threads. */
#ifndef CARBIDE_TEST_ENGINES_H
#define CARBIDE_TEST_ENGINES_H

#include "fixture.h"

#include <math.h>
#include <string.h>

enum { MOST_OUTPUTS = 8 };

/* expected[o]: the elements of output o, to the bit (NaN is NaN, 0 is not -0), or to within
 * tolerance[o]. */
static inline void expect_elements(cb_tensor *y, const double *expected, double tolerance,
                                   const char *where) {
    if (cb_error()) fail_msg("%s: %s", where, cb_error());
    assert_non_null(y);
    int64_t count = cb_numel(y);
    double *value = malloc(sizeof *value * (size_t)(count + 1));
    assert_int_equal(cb_read(y, value, CB_F64), CB_OK);
    for (int64_t i = 0; i < count; i++) {
        bool both = isnan(value[i]) && isnan(expected[i]);
        bool close = tolerance ? fabs(value[i] - expected[i]) <= tolerance
                               : !memcmp(&value[i], &expected[i], sizeof *value);
        if (!both && !close)
            fail_msg("%s: element %lld of %s is %.17g, not %.17g", where, (long long)i,
                     cb_dtype_name(cb_dtype_of(y)), value[i], expected[i]);
    }
    free(value);
}

static inline void expect_near(cb_function_n *function, cb_tensor *const *input, int inputs,
                               double *const *expected, const double *tolerance, int outputs) {
    static const char *const engines[] = {"eager", "backend=vm", "backend=c"};
    static const int threads[] = {1, 2, 16};
    int before = cb_threads();
    for (int e = 0; e < 3; e++) {
        cb_function *fast = e ? cb_compile_n(function, NULL, engines[e]) : NULL;
        for (int t = 0; t < 3; t++) {
            cb_tensor *y[MOST_OUTPUTS] = {NULL};
            char where[80];
            cb_set_threads(threads[t]);
            cb_scope_open();
            if (fast)
                cb_call_n(fast, input, inputs, y, outputs);
            else
                function(input, inputs, y, NULL);
            for (int o = 0; o < outputs; o++) {
                snprintf(where, sizeof where, "%s, %d threads, output %d", engines[e], threads[t],
                         o);
                expect_elements(y[o], expected[o], tolerance[o], where);
            }
            cb_scope_close();
        }
        cb_function_free(fast);
    }
    cb_set_threads(before);
}

static inline void expect_everywhere(cb_function_n *function, cb_tensor *const *input, int inputs,
                                     double *const *expected, int outputs) {
    static const double none[MOST_OUTPUTS];
    expect_near(function, input, inputs, expected, none, outputs);
}

#endif
