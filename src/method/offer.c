/* Task -> what providers are told of it (offer.h): sizes and strides. */
#include "method/offer.h"

#include "cpu/gemm.h"

static void add_dim(ProviderTensor *x, int64_t size, int64_t stride) {
    x->size[x->rank] = size;
    x->stride[x->rank++] = stride;
}

static bool is_offered(int dtype, bool wide) {
    return (dtype == CB_F32 || dtype == CB_BF16) && !wide;
}

static bool set_matmul(const Task *given, Offer *out) {
    MatmulTask step = given->matmul;
    ProviderTask *task = &out->task;
    if (!is_offered(step.dtype, step.wide) || step.rounds_b) return false;
    task->dtype = step.dtype, task->reduced = step.reduced;
    task->pack &= gemm_copies(&step);
    gemm_fold(&step);
    task->groups = 1;
    for (int d = 0; d < step.batch_rank; d++) {
        int64_t size = step.batch_size[d];
        if (size > 1 && step.a_batch[d] == 0 && step.b_batch[d] == 0) return false;
        add_dim(&task->x, step.a_batch[d] ? size : 1, step.a_batch[d]);
        add_dim(&task->weight, step.b_batch[d] ? size : 1, step.b_batch[d]);
        add_dim(&task->out, size, 0);
    }
    add_dim(&task->x, step.m, step.a_m), add_dim(&task->x, step.k, step.a_k);
    add_dim(&task->weight, step.k, step.b_k), add_dim(&task->weight, step.n, step.b_n);
    add_dim(&task->out, step.m, 0), add_dim(&task->out, step.n, 0);
    contiguous_strides(task->out.rank, task->out.size, task->out.stride);
    out->x_offset = step.a_offset, out->weight_offset = step.b_offset;
    return true;
}

static bool set_convolution(const Task *given, Offer *out) {
    const ConvolutionTask *step = &given->convolution;
    ProviderTask *task = &out->task;
    if (!is_offered(step->dtype, step->wide)) return false;
    task->dtype = step->dtype, task->reduced = step->reduced;
    int64_t inner = step->channels / step->groups, positions = 1;
    task->groups = step->groups;
    add_dim(&task->x, step->batch, step->x_batch);
    add_dim(&task->x, step->channels, step->x_channel);
    add_dim(&task->weight, step->out_channels, step->weight_out);
    add_dim(&task->weight, inner, step->weight_in);
    add_dim(&task->out, step->batch, 0), add_dim(&task->out, step->out_channels, 0);
    for (int k = 3 - step->rank, d = 0; k < 3; k++, d++) {
        add_dim(&task->x, step->in_size[k], step->x_spatial[k]);
        add_dim(&task->weight, step->kernel[k], step->weight_spatial[k]);
        add_dim(&task->out, step->out_size[k], 0);
        task->stride[d] = step->stride[k], task->padding[d] = step->padding[k];
        task->dilation[d] = step->dilation[k];
        positions *= step->out_size[k];
    }
    contiguous_strides(task->out.rank, task->out.size, task->out.stride);
    if (step->channels_last) {
        for (int d = task->out.rank - 1; d >= 2; d--) task->out.stride[d] *= step->out_channels;
        task->out.stride[1] = 1;
        task->out.stride[0] = positions * step->out_channels;
    }
    out->x_offset = step->x_offset, out->weight_offset = step->weight_offset;
    return true;
}

static int64_t span_of(const ProviderTensor *x) {
    int64_t span = 1;
    for (int d = 0; d < x->rank; d++) span += (x->size[d] - 1) * x->stride[d];
    return span;
}

static bool is_empty(const ProviderTensor *x) {
    for (int d = 0; d < x->rank; d++)
        if (x->size[d] == 0) return true;
    return false;
}

bool offer_of(const Task *given, ProviderKind kind, bool packs, Offer *out) {
    static bool (*const set[])(const Task *, Offer *) = {
        [PROVIDER_MATMUL] = set_matmul, [PROVIDER_CONVOLUTION] = set_convolution};
    ProviderTask *task = &out->task;
    *out = (Offer){.task = {.kind = kind, .pack = packs}};
    if (!set[kind](given, out) || is_empty(&task->x) || is_empty(&task->weight)) return false;
    out->weight_span = span_of(&task->weight);
    return true;
}
