/* The two C APIs of oneDNN as one.
 *
 * 2.x: a memory descriptor is a struct, an operation has a descriptor of its own, from which an
 * iterator yields implementations. 3.x: memory descriptors are objects, and one call makes the
 * first implementation. Here a descriptor is a `Layout`, freed by layout_free, and an operation is
 * made by convolution_describe or product_describe.
 *
 * Each returns oneDNN's status; NULL pointers are objects that were not made. */
#ifndef CARBIDE_PLUGINS_ONEDNN_API_H
#define CARBIDE_PLUGINS_ONEDNN_API_H

#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

/* relu as a clip to [0, infinity]: oneDNN's own relu multiplies what is negative by 0, and some of
 * its implementations make NaN of -infinity so. */
#define RELU dnnl_eltwise_clip, 0, INFINITY

typedef struct ConvolutionDims {
    dnnl_dims_t stride, dilation, padding; /* dilation: 0 is none */
} ConvolutionDims;

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t MemoryLayout;
typedef const_dnnl_memory_desc_t LayoutView; /* belongs to a primitive descriptor */

static inline LayoutView layout_view(const MemoryLayout *layout) { return *layout; }

static inline dnnl_status_t layout_strided(MemoryLayout *out, int rank, const dnnl_dims_t size,
                                           dnnl_data_type_t type, const dnnl_dims_t stride) {
    return dnnl_memory_desc_create_with_strides(out, rank, size, type, stride);
}

static inline dnnl_status_t layout_any(MemoryLayout *out, int rank, const dnnl_dims_t size,
                                       dnnl_data_type_t type) {
    return dnnl_memory_desc_create_with_tag(out, rank, size, type, dnnl_format_tag_any);
}

static inline void layout_free(MemoryLayout *layout) {
    if (*layout) dnnl_memory_desc_destroy(*layout);
    *layout = NULL;
}

static inline dnnl_status_t relu_append(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_eltwise(ops, RELU);
}

static inline dnnl_status_t convolution_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                                 LayoutView x, LayoutView weight, LayoutView bias,
                                                 LayoutView y, const ConvolutionDims *dims,
                                                 const_dnnl_primitive_attr_t attr) {
    return dnnl_convolution_forward_primitive_desc_create(
        out, engine, dnnl_forward_inference, dnnl_convolution_direct, x, weight, bias, y,
        dims->stride, dims->dilation, dims->padding, dims->padding, attr);
}

static inline dnnl_status_t product_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                             LayoutView x, LayoutView weight, LayoutView bias,
                                             LayoutView y, const_dnnl_primitive_attr_t attr) {
    return dnnl_matmul_primitive_desc_create(out, engine, x, weight, bias, y, attr);
}

#else

typedef dnnl_memory_desc_t MemoryLayout;
typedef const dnnl_memory_desc_t *LayoutView;

static inline LayoutView layout_view(const MemoryLayout *layout) { return layout; }

static inline dnnl_status_t layout_strided(MemoryLayout *out, int rank, const dnnl_dims_t size,
                                           dnnl_data_type_t type, const dnnl_dims_t stride) {
    return dnnl_memory_desc_init_by_strides(out, rank, size, type, stride);
}

static inline dnnl_status_t layout_any(MemoryLayout *out, int rank, const dnnl_dims_t size,
                                       dnnl_data_type_t type) {
    return dnnl_memory_desc_init_by_tag(out, rank, size, type, dnnl_format_tag_any);
}

static inline void layout_free(MemoryLayout *layout) { memset(layout, 0, sizeof *layout); }

static inline dnnl_status_t relu_append(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_eltwise(ops, 1.0f, RELU);
}

static inline dnnl_status_t convolution_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                                 LayoutView x, LayoutView weight, LayoutView bias,
                                                 LayoutView y, const ConvolutionDims *dims,
                                                 const_dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &op, dnnl_forward_inference, dnnl_convolution_direct, x, weight, bias, y, dims->stride,
        dims->dilation, dims->padding, dims->padding);
    return status ? status : dnnl_primitive_desc_create(out, &op, attr, engine, NULL);
}

static inline dnnl_status_t product_describe(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                             LayoutView x, LayoutView weight, LayoutView bias,
                                             LayoutView y, const_dnnl_primitive_attr_t attr) {
    dnnl_matmul_desc_t op;
    dnnl_status_t status = dnnl_matmul_desc_init(&op, x, weight, bias, y);
    return status ? status : dnnl_primitive_desc_create(out, &op, attr, engine, NULL);
}

#endif
#endif
