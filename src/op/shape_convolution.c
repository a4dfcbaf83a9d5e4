/* The shape rule of convolution, with one stride, padding and dilation per spatial dim.
 *
 *     f32[8, 3, 224, 224] x f32[64, 3, 7, 7], stride=[2], padding=[3]  ->  f32[8, 64, 112, 112],
 *     stride=[2, 2], padding=[3, 3], dilation=[1, 1]
 *
 * x is [batch, channels, spatial...] and the weight [out channels, channels / groups, spatial...];
 * with channels_last the channels stand at the end of both, and of the result. */
#include "op/infer.h"

/* Who makes such calls writes attributes by the places of those of conv1d. */
_Static_assert(ATTR_conv1d_groups == ATTR_conv3d_groups &&
                   ATTR_conv_transpose1d_dilation == ATTR_conv_transpose3d_dilation,
               "convolutions of all ranks have one layout of attributes");

/* One number for each of n spatial dims, at least low; a single one is repeated. */
static bool spatial(InferCall *call, int word, const char *name, int n, int64_t low) {
    cb_dim_list dims = attr_dims(call->attrs, word);
    if (dims.count == 1)
        for (int i = 1; i < n; i++) dims.at[dims.count++] = dims.at[0];
    if (dims.count != n)
        return infer_fail(call, CB_ERR_ARGUMENT, "%d numbers of %s for %d spatial dims", dims.count,
                          name, n);
    for (int i = 0; i < n; i++)
        if (dims.at[i] < low || dims.at[i] > INT32_MAX)
            return infer_fail(call, CB_ERR_ARGUMENT, "%s %lld cannot be taken", name,
                              (long long)dims.at[i]);
    attr_set_dims(call->attrs, word, dims);
    return true;
}

static bool channels_fit(const InferCall *call, int64_t channels, int64_t outputs, int64_t inner) {
    int64_t groups = call->attrs->word[ATTR_convolution_groups];
    if (groups < 1 || channels % groups || outputs % groups)
        return infer_fail(call, CB_ERR_ARGUMENT,
                          "%lld groups do not divide %lld channels into %lld", (long long)groups,
                          (long long)channels, (long long)outputs);
    if (inner * groups != channels)
        return infer_fail(
            call, CB_ERR_SHAPE, "the weight takes %lld channels (%lld groups of %lld), not %lld",
            (long long)(inner * groups), (long long)groups, (long long)inner, (long long)channels);
    return true;
}

static bool result_sizes(InferCall *call, int n, int first) {
    const Meta *x = &call->input[0], *weight = &call->input[1];
    const int64_t *word = call->attrs->word;
    for (int i = 0; i < n; i++) {
        int64_t kernel = weight->size[first + i], stride = word[ATTR_convolution_stride + 1 + i];
        int64_t padding = word[ATTR_convolution_padding + 1 + i], padded, extent;
        int64_t dilation = word[ATTR_convolution_dilation + 1 + i];
        if (kernel < 1) return infer_fail(call, CB_ERR_SHAPE, "the kernel is empty");
        bool fits = !__builtin_add_overflow(x->size[first + i], 2 * padding, &padded) &&
                    !__builtin_mul_overflow(kernel - 1, dilation, &extent) && extent < padded;
        if (!fits)
            return infer_fail(call, CB_ERR_SHAPE,
                              "a kernel of %lld with dilation %lld is larger than %lld and its "
                              "padding of %lld",
                              (long long)kernel, (long long)dilation, (long long)x->size[first + i],
                              (long long)padding);
        call->out->result.size[first + i] = (padded - 1 - extent) / stride + 1;
    }
    return true;
}

bool infer_convolution(InferCall *call) {
    const Meta *x = &call->input[0], *weight = &call->input[1];
    int64_t *last = &call->attrs->word[ATTR_convolution_channels_last];
    int n = x->rank - 2;
    if (n < 1 || n > 3 || weight->rank != x->rank)
        return infer_fail(call, CB_ERR_SHAPE,
                          "both need a batch or output dim, channels and 1 to 3 spatial dims");
    if (!dtype_is_float(call->out->result.dtype))
        return infer_fail(call, CB_ERR_DTYPE, "%s is not a floating point dtype",
                          cb_dtype_name(call->out->result.dtype));
    if (!spatial(call, ATTR_convolution_stride, "stride", n, 1) ||
        !spatial(call, ATTR_convolution_padding, "padding", n, 0) ||
        !spatial(call, ATTR_convolution_dilation, "dilation", n, 1))
        return false;
    *last = *last != 0;
    int channel = *last ? n + 1 : 1;
    if (!channels_fit(call, x->size[channel], weight->size[0], weight->size[channel])) return false;
    call->out->result.rank = x->rank;
    call->out->result.size[0] = x->size[0];
    call->out->result.size[channel] = weight->size[0];
    return result_sizes(call, n, *last ? 1 : 2);
}
