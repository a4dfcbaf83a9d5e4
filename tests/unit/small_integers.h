/* Matrices of small integers, of which every dtype gives exact products. */
#ifndef CARBIDE_TEST_SMALL_INTEGERS_H
#define CARBIDE_TEST_SMALL_INTEGERS_H

#include "test_support.h"

#include "op/op.h"
#include <stdlib.h>

static uint32_t seed = 1;
static int small(void) {
    seed = seed * 1664525 + 1013904223;
    return (int)(seed >> 24) % 9 - 4;
}

static void *random_matrix(cb_dtype dtype, int64_t count) {
    size_t width = cb_dtype_size(dtype);
    char *data = malloc((size_t)count * width + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        int value = dtype == CB_BOOL ? small() > 2 : small();
        Scalar scalar = dtype_is_float(dtype) ? (Scalar){.f = value} : (Scalar){.i = value};
        scalar_store(data + (size_t)i * width, dtype, scalar);
    }
    return data;
}

static double value_at(const void *data, cb_dtype dtype, int64_t i) {
    Scalar value = scalar_load((const char *)data + (size_t)i * cb_dtype_size(dtype), dtype);
    return dtype_is_float(dtype) ? value.f : (double)value.i;
}

#endif
