/* Running one generated kernel on filled buffers and comparing with the reference. */
#ifndef CARBIDE_TEST_KERNEL_RUN_H
#define CARBIDE_TEST_KERNEL_RUN_H

#include "codegen/c/c.h"
#include "codegen/target.h"
#include "jit/code.h"
#include "kernel_reference.h"
#include "test_support.h"
#include "vm/launch.h"

#include <math.h>
#include <stdio.h>

enum { MAX_BUFFERS = 12 };

/* ---- running -------------------------------------------------------------------------------- */

typedef struct Data {
    void *before[MAX_BUFFERS], *wanted[MAX_BUFFERS], *got[MAX_BUFFERS];
    void *bound[MAX_BUFFERS];
} Data;

static uint32_t random_state = 1;
static uint32_t next_random(void) {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* Quarters, on which short computations are exact: no rounding tips a comparison. */
static bool quarters = false;

/* Floats in [-2, 2], small integers; 64-bit ones are also indices, below 7. */
static Scalar random_value(cb_dtype dtype) {
    if (dtype_is_float(dtype) && quarters)
        return (Scalar){.f = (double)(next_random() % 17) / 4.0 - 2.0};
    if (dtype_is_float(dtype)) return (Scalar){.f = (double)(next_random() % 4001) / 1000.0 - 2.0};
    if (dtype == CB_BOOL) return (Scalar){.i = next_random() & 1};
    if (dtype == CB_I64) return (Scalar){.i = next_random() % 7};
    return (Scalar){.i = (int64_t)(next_random() % 300) - 150};
}

static size_t bytes_of(const KernelBuffer *buffer) {
    return (size_t)buffer->numel * cb_dtype_size(buffer->dtype) + 64;
}

static void fill(const Kernel *kernel, Data *data) {
    for (int b = 0; b < length(kernel->buffer); b++) {
        const KernelBuffer *buffer = &kernel->buffer[b];
        size_t bytes = bytes_of(buffer);
        data->before[b] = calloc(bytes, 1);
        data->wanted[b] = calloc(bytes, 1);
        data->got[b] = calloc(bytes, 1);
        for (int64_t i = 0; i < buffer->numel && buffer->role != BUFFER_OUT; i++)
            scalar_store((char *)data->before[b] + i * (int64_t)cb_dtype_size(buffer->dtype),
                         buffer->dtype, random_value(buffer->dtype));
        memcpy(data->wanted[b], data->before[b], bytes);
        memcpy(data->got[b], data->before[b], bytes);
        data->bound[b] = buffer->role == BUFFER_IN ? data->before[b] : data->got[b];
    }
}

static void release(const Kernel *kernel, Data *data) {
    for (int b = 0; b < length(kernel->buffer); b++) {
        free(data->before[b]);
        free(data->wanted[b]);
        free(data->got[b]);
    }
}

/* As vm/launch.c does it. */
static void combine(const Kernel *kernel, const KernelInfo *info, int pass, int64_t *slot) {
    int64_t stride = kernel->outer_size * kernel->split;
    for (int r = 0; r < length(info->reduce); r++) {
        const Expr *e = info->reduce[r];
        if (info->expr[e->id].pass != pass) continue;
        for (int64_t o = 0; o < kernel->outer_size; o++)
            for (int64_t c = 1; c < kernel->split; c++) {
                Scalar pair[2];
                memcpy(&pair[0], &slot[r * stride + o], 8);
                memcpy(&pair[1], &slot[r * stride + c * kernel->outer_size + o], 8);
                Scalar value = scalar_eval(e->imm.i, e->dtype, pair);
                memcpy(&slot[r * stride + o], &value, 8);
            }
    }
}

static void run_split(const Kernel *kernel, KernelFunction *function, void *const *buffer) {
    Arena *arena = arena_new();
    KernelInfo info = kernel_analyze(kernel, arena);
    int64_t items = kernel->outer_size * kernel->split;
    int64_t *slot = calloc((size_t)(items * length(info.reduce)) + 1, 8);
    for (int pass = 0; pass < info.pass_count; pass++) {
        for (int64_t low = 0; low < items; low += 5)
            function(buffer, low, low + 5 < items ? low + 5 : items, pass, slot);
        combine(kernel, &info, pass, slot);
    }
    function(buffer, 0, kernel->outer_size, info.pass_count, slot);
    free(slot);
    arena_free(arena);
}

/* Ranges of uneven sizes, that start and end within runs. */
static void run_plain(const Kernel *kernel, KernelFunction *function, void *const *buffer) {
    int64_t size = kernel->outer_size, low = 0;
    for (int64_t step = 1; low < size; step = step * 3 + 1) {
        int64_t high = low + step < size ? low + step : size;
        function(buffer, low, high, 0, NULL);
        low = high;
    }
}

static double tolerance(cb_dtype dtype) {
    return dtype == CB_F64 && !quarters ? 1e-11
           : dtype == CB_F16            ? 2e-3
           : dtype == CB_BF16           ? 1.6e-2
                                        : 2e-5;
}

static bool close_to(cb_dtype dtype, Scalar a, Scalar b) {
    if (!dtype_is_float(dtype)) return a.i == b.i;
    if (isnan(a.f) || isnan(b.f)) return isnan(a.f) && isnan(b.f);
    return a.f == b.f || fabs(a.f - b.f) <= tolerance(dtype) * (1 + fabs(b.f));
}

/* Prints the first difference. */
static bool compare(const Kernel *kernel, const Data *data) {
    for (int b = 0; b < length(kernel->buffer); b++) {
        cb_dtype dtype = kernel->buffer[b].dtype;
        size_t element = cb_dtype_size(dtype);
        for (int64_t i = 0; i < kernel->buffer[b].numel; i++) {
            size_t at = (size_t)i * element;
            Scalar got = scalar_load((char *)data->got[b] + at, dtype);
            Scalar wanted = scalar_load((char *)data->wanted[b] + at, dtype);
            if (close_to(dtype, got, wanted)) continue;
            print_error("%s: b%d[%lld]: %g (%lld), wanted %g (%lld)\n", kernel->name, b,
                        (long long)i, got.f, (long long)got.i, wanted.f, (long long)wanted.i);
            return false;
        }
        size_t end = (size_t)kernel->buffer[b].numel * element;
        if (memcmp((char *)data->got[b] + end, (char *)data->before[b] + end, 64)) {
            print_error("%s: wrote beyond b%d\n", kernel->name, b);
            return false;
        }
    }
    return true;
}

static bool check_kernel(const Kernel *kernel, const Code *code) {
    Data data;
    KernelFunction *function = code_function(code, kernel->name);
    assert_non_null(function);
    fill(kernel, &data);
    reference_run(kernel, data.before, data.wanted);
    if (kernel->split > 1)
        run_split(kernel, function, data.bound);
    else
        run_plain(kernel, function, data.bound);
    bool same = compare(kernel, &data);
    release(kernel, &data);
    return same;
}

static const Target *written_for; /* NULL: C for CPUs */

static int count_expressions(const Kernel *const *kernel, int count) {
    int expressions = 0;
    for (int k = 0; k < count; k++) expressions += length(kernel[k]->expr);
    return expressions;
}

static Code *compile(const Kernel *const *kernel, int count, Arena *arena) {
    Buffer source = buffer_new(arena);
    int expressions = count_expressions(kernel, count);
    if (written_for)
        target_render(written_for, kernel, NULL, count, &source);
    else
        c_render(kernel, NULL, count, &source);
    assert_int_equal(count_expressions(kernel, count), expressions); /* they are left as they are */
    const char **name = arena_new_array(arena, const char *, count);
    for (int i = 0; i < count; i++) name[i] = kernel[i]->name;
    CodeResult result = code_load(buffer_text(&source), source.length, name, count, NULL);
    if (!result.code) {
        fputs(buffer_text(&source), stderr); /* too long for print_error */
        FAIL("%s\n%s", reason_info(result.reason)->id, result.message ? result.message : "");
    }
    return result.code;
}

/* Whether the rows of an op compute a dtype. */
static inline bool takes(const OpInfo *info, cb_dtype dtype) {
    bool is_float = dtype_is_float(dtype);
    switch (info->dtype) {
    case DTYPE_FLOAT:
        return is_float;
    case DTYPE_INT:
        return !is_float;
    case DTYPE_SHIFT:
        return !is_float && dtype != CB_BOOL;
    case DTYPE_LOGICAL:
        return dtype == CB_BOOL;
    case DTYPE_NUMERIC:
        return dtype != CB_BOOL;
    case DTYPE_SAME:
    case DTYPE_BOOL:
        return true;
    default:
        return false;
    }
}

/* ---- kernels as text ------------------------------------------------------------------------- */

enum { MAX_KERNELS = 64 };

static inline void check_all(const char *const *text, int count) {
    Arena *arena = arena_new();
    const Kernel *kernel[MAX_KERNELS];
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < count; i++) {
        Buffer why = buffer_new(arena);
        kernel[i] = kernel_parse(arena, text[i]);
        if (!kernel[i]) FAIL("%s", cb_error());
        if (!kernel_verify(kernel[i], &why)) FAIL("%s: %s", kernel[i]->name, buffer_text(&why));
    }
    Code *code = compile(kernel, count, arena);
    for (int i = 0; i < count; i++) assert_true(check_kernel(kernel[i], code));
    code_release(code);
    arena_free(arena);
}

#endif
