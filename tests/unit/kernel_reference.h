/* What a kernel means, one element at a time: the definition that engines are tested against.
 * Loads read the buffers as they were before the kernel; stores happen in program order. */
#ifndef CARBIDE_TEST_KERNEL_REFERENCE_H
#define CARBIDE_TEST_KERNEL_REFERENCE_H

#include "lower/loop.h"

#include <stdlib.h>
#include <string.h>

typedef struct Reference {
    const Kernel *kernel;
    void *const *in; /* buffers before */
    void *const *out;
    int64_t at[16]; /* coordinates */
    Scalar *row;    /* by expression: values of reduces at this outer point, and of scans so far */
    int64_t *count; /* of as many inner points */
} Reference;

static Scalar reference_value(Reference *r, const Expr *e);

static void reference_inner_point(Reference *r, int64_t position) {
    for (int a = length(r->kernel->axis) - 1; a >= r->kernel->outer_count; a--) {
        r->at[a] = position % r->kernel->axis[a].size;
        position /= r->kernel->axis[a].size;
    }
}

/* Folds the operand over inner points [0, count), from where the last fold of it ended. */
static Scalar reference_fold(Reference *r, const Expr *e, int64_t count) {
    int64_t saved[16], from = r->count[e->id];
    Scalar value = r->row[e->id];
    if (!from || from > count) from = 0, value = scalar_identity(e->imm.i, e->dtype);
    memcpy(saved, r->at, sizeof saved);
    for (int64_t i = from; i < count; i++) {
        reference_inner_point(r, i);
        Scalar pair[2] = {value, reference_value(r, e->input[0])};
        if (dtype_is_float(e->dtype) && e->imm.i == OP_sum)
            value.f += pair[1].f;
        else
            value = scalar_eval(e->imm.i, e->dtype, pair);
    }
    memcpy(r->at, saved, sizeof saved);
    r->row[e->id] = value, r->count[e->id] = count;
    return dtype_is_float(e->dtype) ? scalar_convert(value, CB_F64, e->dtype) : value;
}

static int64_t reference_position(const Reference *r) {
    int64_t position = 0;
    for (int a = r->kernel->outer_count; a < length(r->kernel->axis); a++)
        position = position * r->kernel->axis[a].size + r->at[a];
    return position;
}

static Scalar reference_load(Reference *r, const Expr *e) {
    const KernelBuffer *buffer = &r->kernel->buffer[e->imm.i];
    if (e->input_count == 2 && !reference_value(r, e->input[1]).i) return (Scalar){.i = 0};
    int64_t index = reference_value(r, e->input[0]).i;
    check(index >= 0 && index < buffer->numel, "load at %lld of %lld", (long long)index,
          (long long)buffer->numel);
    const char *base = r->in[e->imm.i];
    return scalar_load(base + index * (int64_t)cb_dtype_size(buffer->dtype), buffer->dtype);
}

static Scalar reference_value(Reference *r, const Expr *e) {
    if (e->op == OP_constant) return e->imm;
    if (e->op == EX_axis) return (Scalar){.i = r->at[e->imm.i]};
    if (e->op == EX_load) return reference_load(r, e);
    if (e->op == EX_scan) return reference_fold(r, e, reference_position(r) + 1);
    if (e->op == EX_reduce) return reference_fold(r, e, r->kernel->inner_size);
    Scalar input[3];
    for (int i = 0; i < e->input_count; i++) input[i] = reference_value(r, e->input[i]);
    if (e->op == OP_to) return scalar_convert(input[0], e->input[0]->dtype, e->imm.i);
    return scalar_eval(e->op, e->op == OP_where ? e->dtype : e->input[0]->dtype, input);
}

static void reference_store(Reference *r, const Store *store) {
    const KernelBuffer *buffer = &r->kernel->buffer[store->buffer];
    if (store->guard && !reference_value(r, store->guard).i) return;
    int64_t index = reference_value(r, store->index).i;
    check(index >= 0 && index < buffer->numel, "store at %lld of %lld", (long long)index,
          (long long)buffer->numel);
    char *element = (char *)r->out[store->buffer] + index * (int64_t)cb_dtype_size(buffer->dtype);
    Scalar value = reference_value(r, store->value);
    if (store_adds(store->mode)) {
        Scalar pair[2] = {scalar_load(element, buffer->dtype), value};
        value = scalar_eval(OP_add, buffer->dtype, pair);
    }
    scalar_store(element, buffer->dtype, value);
}

static bool reference_is_inner(const Kernel *kernel, const Store *store) {
    uint32_t axes = store->index->axes | store->value->axes;
    if (store->guard) axes |= store->guard->axes;
    return axes >> kernel->outer_count != 0 || store->mode == STORE_ADD;
}

static void reference_run(const Kernel *kernel, void *const *in, void *const *out) {
    size_t count = (size_t)length(kernel->expr) + 1;
    Reference r = {.kernel = kernel, .in = in, .out = out};
    r.row = calloc(count, sizeof *r.row);
    r.count = calloc(count, sizeof *r.count);
    for (int64_t outer = 0; outer < kernel->outer_size; outer++) {
        int64_t rest = outer;
        for (int a = kernel->outer_count - 1; a >= 0; a--) {
            r.at[a] = rest % kernel->axis[a].size;
            rest /= kernel->axis[a].size;
        }
        memset(r.count, 0, count * sizeof *r.count);
        for (int s = 0; s < length(kernel->store); s++) {
            bool inner = reference_is_inner(kernel, &kernel->store[s]);
            for (int64_t i = 0; i < (inner ? kernel->inner_size : 1); i++) {
                if (inner) reference_inner_point(&r, i);
                reference_store(&r, &kernel->store[s]);
            }
        }
    }
    free(r.row);
    free(r.count);
}

#endif
