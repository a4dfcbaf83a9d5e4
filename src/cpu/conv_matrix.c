/* Convolution with a kernel of 1, channels first: a matrix product over x where it lies.
 *
 *     out[n][o][p] = sum over i of weight[o][i] * x[n][i][p]
 *
 * x and the result keep their order, where other methods would turn both. */
#include "cpu/conv_internal.h"
#include "cpu/gemm.h"
#include <string.h>

/* Whether all positions of an image are evenly spaced. Dims of one position have any stride. */
static bool is_even(const ConvolutionTask *s) {
    int64_t step = s->x_spatial[2] * s->in_size[2];
    for (int d = 1; d >= 0; d--) {
        if (s->in_size[d] > 1 && s->x_spatial[d] != step) return false;
        step *= s->in_size[d];
    }
    return true;
}

bool conv_is_matrix(const ConvolutionTask *s) {
    bool exact = s->dtype == CB_F64 || (s->dtype == CB_F32 && !s->reduced);
    if (!exact || s->channels_last || s->groups != 1) return false;
    for (int d = 0; d < 3; d++) {
        if (s->kernel[d] != 1 || s->stride[d] != 1 || s->padding[d] != 0) return false;
    }
    return is_even(s);
}

/* [out channel][channel] */
Storage *conv_matrix_pack(Convolution *c) {
    const ConvolutionTask *s = &c->task;
    Storage *storage = storage_new((size_t)(s->out_channels * s->channels * c->element));
    if (!storage) return NULL;
    char *to = storage->data;
    for (int64_t o = 0; o < s->out_channels; o++)
        for (int64_t i = 0; i < s->channels; i++, to += c->element) {
            int64_t from = s->weight_offset + o * s->weight_out + i * s->weight_in;
            memcpy(to, c->weight + from * c->element, (size_t)c->element);
        }
    return storage;
}

void conv_matrix_run(Convolution *c) {
    const ConvolutionTask *s = &c->task;
    MatmulTask product = {.dtype = s->dtype,
                          .batch = s->batch,
                          .m = s->out_channels,
                          .n = c->positions,
                          .k = s->channels,
                          .batch_rank = 1,
                          .batch_size = {s->batch},
                          .a_m = s->channels,
                          .a_k = 1,
                          .b_k = s->x_channel,
                          .b_n = s->x_spatial[2],
                          .b_batch = {s->x_batch},
                          .b_offset = s->x_offset};
    Operands operands = {.in = {c->packed, c->x},
                         .out = c->out,
                         .epilogue = c->epilogue,
                         .epilogue_buffer = c->epilogue_buffer};
    GemmMethod method = gemm_fits(&product, GEMM_VECTOR) ? GEMM_VECTOR : GEMM_PANELS;
    if (!gemm_run(&product, method, &operands))
        atomic_store_explicit(c->failed, true, memory_order_relaxed);
}
