/* The interface between Carbide and a provider: a library of somebody else's that computes products
 * and convolutions. A provider lives in a plugin, libcarbide_NAME.so, which is loaded on first need
 * (method/plugin.c), so that Carbide itself needs no such library.
 *
 * A task describes a step by sizes and strides; work is a task made ready for one number of
 * threads:
 *
 *     Provider *p = carbide_provider();
 *     void *work = p->create(&task, &sizes, why, sizeof why);   // NULL: it cannot, why says so
 *     p->pack(work, weight, packed);                            // sizes.packed bytes, once
 *     p->run(work, &operands);                                  // any number of threads at once
 *     p->free(work);
 *
 * Nothing here belongs to a tensor, a plan or an arena: the plugin includes this header alone.
 * Whoever changes a struct raises PROVIDER_INTERFACE: a plugin of another one is refused. */
#ifndef CARBIDE_METHOD_PROVIDER_H
#define CARBIDE_METHOD_PROVIDER_H

#include "carbide.h"

enum { PROVIDER_INTERFACE = 1, PROVIDER_RANK = 12 };

typedef struct ProviderTensor { /* strides in elements; a dim of size 1 may have any */
    int rank;
    int64_t size[PROVIDER_RANK], stride[PROVIDER_RANK];
} ProviderTensor;

typedef enum ProviderKind {
    PROVIDER_MATMUL,     /* out[.., m, n] = x[.., m, k] * weight[.., k, n]; a batch dim of size 1
                          * is broadcast */
    PROVIDER_CONVOLUTION /* out[b, o, p..] from x[b, i, p..] and weight[o, i of its group, q..];
                          * 1 to 3 spatial dims */
} ProviderKind;

/* The result is max(x * weight * scale + bias + residual, 0), each of the four if asked for. */
typedef struct ProviderTask {
    ProviderKind kind;
    cb_dtype dtype; /* of all tensors: CB_F32, CB_BF16 */
    ProviderTensor x, weight, out;
    int64_t stride[3], padding[3], dilation[3], groups; /* convolution */
    bool scale;    /* f32, contiguous, by n or by out channel */
    bool bias;     /* contiguous, by n or by out channel */
    cb_dtype bias_dtype; /* dtype or CB_F32 */
    bool residual; /* lies as out does */
    bool relu;
    bool reduced;  /* f32 operands may be rounded to bf16 */
    bool pack;     /* the weight never changes: it may take a form of the provider's own */
    int threads;
} ProviderTask;

typedef struct ProviderSizes {
    size_t packed;  /* bytes of the packed weight; 0: run reads the weight as it is */
    size_t scratch; /* bytes that run may write to meanwhile */
    char method[48]; /* the provider's name for its code, for explain */
} ProviderSizes;

typedef struct ProviderOperands { /* packed and scratch are 64-byte aligned */
    const void *x, *weight, *packed, *scale, *bias, *residual;
    void *out, *scratch;
} ProviderOperands;

typedef struct Provider {
    int interface; /* PROVIDER_INTERFACE */
    size_t task_bytes;
    const char *name, *version; /* "oneDNN", "2.6.3" */
    const char *library; /* the file that it lies in */
    void *(*create)(const ProviderTask *task, ProviderSizes *sizes, char *why, size_t why_bytes);
    bool (*pack)(const void *work, const void *weight, void *packed);
    bool (*unpack)(const void *work, const void *packed, void *weight); /* strides of the task */
    bool (*run)(const void *work, const ProviderOperands *operands);
    void (*free)(void *work);
} Provider;

/* The one symbol of a plugin. NULL when its library is of no use; *why says so then. */
typedef const Provider *ProviderEntry(const char **why);
#define PROVIDER_SYMBOL "carbide_provider"

#endif
