/* Operations that tests of custom ops register, and a log of what their kernels did. */
#ifndef CARBIDE_TEST_CUSTOM_OPS_H
#define CARBIDE_TEST_CUSTOM_OPS_H

#include "carbide.h"
#include <stdio.h>
#include <string.h>

static char custom_log[512];
static int custom_runs; /* of pure kernels */

static inline int64_t array_numel(const cb_array *array) {
    int64_t numel = 1;
    for (int i = 0; i < array->rank; i++) numel *= array->size[i];
    return numel;
}

/* y[i] = max of x[0 .. i], over all elements in order */
static cb_status running_max(const cb_op_call *call) {
    const float *x = call->input[0].data;
    float *y = call->output[0].data, most = -1e30f;
    for (int64_t i = 0; i < array_numel(&call->input[0]); i++)
        y[i] = most = x[i] > most ? x[i] : most;
    custom_runs++;
    return CB_OK;
}

/* x: f32[n] -> f32[at], i64[n - at]: the first elements, and the others rounded */
static cb_status split_shape(const cb_op_call *call) {
    int64_t at = call->integers[0];
    const cb_array *x = &call->input[0];
    if (x->rank != 1) return (cb_fail)(CB_ERR_SHAPE, "only vectors are split");
    if (at < 0 || at > x->size[0]) return CB_ERR_ARGUMENT;
    call->output[0] = (cb_array){.dtype = CB_F32, .rank = 1, .size = {at}};
    call->output[1] = (cb_array){.dtype = CB_I64, .rank = 1, .size = {x->size[0] - at}};
    return CB_OK;
}

static cb_status sets_nothing(const cb_op_call *call) {
    (void)call;
    return CB_OK;
}

static cb_status split(const cb_op_call *call) {
    const float *x = call->input[0].data;
    int64_t at = call->integers[0], *rest = call->output[1].data;
    if (at) memcpy(call->output[0].data, x, sizeof *x * (size_t)at);
    for (int64_t i = at; i < call->input[0].size[0]; i++) rest[i - at] = (int64_t)x[i];
    return CB_OK;
}

/* x *= factor */
static cb_status scale(const cb_op_call *call) {
    float *x = call->input[0].data;
    for (int64_t i = 0; i < array_numel(&call->input[0]); i++) x[i] *= (float)call->floats[0];
    return CB_OK;
}

/* gives x + y, and counts in y: y += 1 */
static cb_status add_count(const cb_op_call *call) {
    const float *x = call->input[0].data;
    float *y = call->input[1].data, *out = call->output[0].data;
    for (int64_t i = 0; i < array_numel(&call->input[0]); i++) out[i] = x[i] + y[i], y[i] += 1;
    return CB_OK;
}

static cb_status note(const cb_op_call *call) {
    const float *x = call->input[0].data;
    snprintf(custom_log + strlen(custom_log), sizeof custom_log - strlen(custom_log), "%lld:%g ",
             (long long)call->integers[0], array_numel(&call->input[0]) ? (double)x[0] : 0.0);
    return CB_OK;
}

static cb_status noise(const cb_op_call *call) {
    float *y = call->output[0].data;
    for (int64_t i = 0; i < array_numel(&call->output[0]); i++)
        y[i] = (float)((call->seed * 31 + call->draw * 17 + i) % 101);
    return CB_OK;
}

static cb_status fails(const cb_op_call *call) {
    (void)call;
    return (cb_fail)(CB_ERR_IO, "the disk is full");
}

static cb_status tries(const cb_op_call *call) {
    (void)call;
    snprintf(custom_log + strlen(custom_log), sizeof custom_log - strlen(custom_log), "t ");
    return (cb_fail)(CB_ERR_IO, "it was tried");
}

static cb_status fails_silently(const cb_op_call *call) {
    (void)call;
    return CB_ERR_IO;
}

static inline cb_status register_test_ops(void) {
    const cb_custom_op ops[] = {
        {.name = "test.running_max", .inputs = 1, .outputs = 1, .kernel = running_max},
        {.name = "test.split",
         .inputs = 1,
         .outputs = 2,
         .integers = 1,
         .shape = split_shape,
         .kernel = split},
        {.name = "test.scale_", .inputs = 1, .floats = 1, .mutates = 1, .kernel = scale},
        {.name = "test.add_count", .inputs = 2, .outputs = 1, .mutates = 2, .kernel = add_count},
        {.name = "test.note", .inputs = 1, .integers = 1, .effects = true, .kernel = note},
        {.name = "test.noise", .inputs = 1, .outputs = 1, .effects = true, .kernel = noise},
        {.name = "test.shapeless",
         .inputs = 1,
         .outputs = 1,
         .shape = sets_nothing,
         .kernel = fails},
        {.name = "test.fails", .inputs = 1, .outputs = 1, .kernel = fails},
        {.name = "test.tries", .inputs = 1, .outputs = 1, .effects = true, .kernel = tries},
        {.name = "test.fails_silently", .inputs = 1, .outputs = 1, .kernel = fails_silently}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (cb_register_op(&ops[i]) != CB_OK) return cb_error_status();
    return CB_OK;
}

static inline cb_tensor *call_max(cb_tensor *x) {
    return cb_call_op("test.running_max", &x, 1, CB_NO_DIMS, CB_NO_FLOATS);
}
static inline void call_note(cb_tensor *x, int64_t what) {
    cb_call_op("test.note", &x, 1, what, CB_NO_FLOATS);
}
static inline cb_tensor *call_scale(cb_tensor *x, double factor) {
    return cb_call_op("test.scale_", &x, 1, CB_NO_DIMS, cb_floats(factor));
}

#endif
