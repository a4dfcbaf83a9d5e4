/* Tensors beside each other, for tests of the public API. */
#ifndef CARBIDE_TEST_ELEMENTS_H
#define CARBIDE_TEST_ELEMENTS_H

#include "test_support.h"

#include "carbide.h"
#include <math.h>
#include <stdlib.h>

/* The same dtype and sizes, and elements as near as the two limits say, the second times the one
 * that is expected. NaN is NaN. Read from memory: no op of the library decides. */
static inline void expect_tensor(cb_tensor *found, cb_tensor *expected, double absolute,
                                 double relative) {
    if (!found || !expected) FAIL("no tensor: %s", cb_error() ? cb_error() : "NULL");
    assert_string_equal(cb_dtype_name(cb_dtype_of(found)), cb_dtype_name(cb_dtype_of(expected)));
    assert_int_equal(cb_rank(found), cb_rank(expected));
    for (int d = 0; d < cb_rank(found); d++)
        assert_int_equal(cb_size(found, d), cb_size(expected, d));
    int64_t count = cb_numel(found);
    double *x = malloc(sizeof *x * 2 * (size_t)(count + 1)), *y = x + count;
    assert_int_equal(cb_read(found, x, CB_F64), CB_OK);
    assert_int_equal(cb_read(expected, y, CB_F64), CB_OK);
    for (int64_t i = 0; i < count; i++) {
        bool same = x[i] == y[i] || (isnan(x[i]) && isnan(y[i]));
        if (!same && !(fabs(x[i] - y[i]) <= absolute + relative * fabs(y[i])))
            FAIL("element %lld is %.9g, not %.9g", (long long)i, x[i], y[i]);
    }
    free(x);
}

#endif
