/* What the files of convolution share.
 *
 *   conv.c           entry: converts what the method cannot multiply as it is
 *   conv_cost.c      what the methods take, by the recorded model
 *   conv_direct.c    channels last in x and out: register tiles over x where it lies
 *   conv_winograd.c  the same for 3x3 and 5x5 kernels: fewer multiplications
 *   conv_winograd_sums.c  weight gradients of 3x3 kernels, likewise
 *   conv_depthwise.c the same for one channel to a group: no products over channels
 *   conv_tiles.c     the same for bf16 on AMX tiles
 *   conv_matrix.c    channels first and a kernel of 1: a matrix product
 *   conv_planes.c    channels first and few of them to a group: positions as lanes
 *   conv_order.c     x, weight and result in another dtype or order of dims
 *   conv_gather.c    everything else: windows gathered into panels */
#ifndef CARBIDE_CPU_CONV_INTERNAL_H
#define CARBIDE_CPU_CONV_INTERNAL_H

#include "base/round.h"
#include "cpu/conv.h"
#include "cpu/end_kernel.h"
#include "cpu/gemm_internal.h"

typedef struct ConvMethod ConvMethod;

typedef struct Convolution { /* one call of convolution_run */
    ConvolutionTask task;
    const ConvMethod *method;
    const Launch *epilogue; /* what is left of it: nothing where there is an end */
    void *const *epilogue_buffer;
    const KnownEnd *known_end; /* what the epilogue amounts to; or NULL */
    const End *end;            /* sums are to come to it; or NULL */
    const GemmType *type;
    GemmConvert *convert; /* of x and weight, before anything else; or NULL */
    GemmConvert *narrow;  /* of sums that wait in a scratch, to out; or NULL */
    int64_t element;      /* bytes of one summed element, and of type->together packed ones */
    int64_t x_bytes;      /* of one element of x and weight, which are converted already */
    int64_t out_bytes;
    const char *x, *weight;
    char *out;
    int64_t positions; /* of one image */
    int64_t outputs;   /* out channels of a group */
    int64_t line;      /* conv_direct.c: channels, where lines of the kernel stand for them; or 0 */
    const char *packed;
    _Atomic bool *failed; /* a thread found no memory */
} Convolution;

enum { CONV_TASK_PRODUCTS = 250 * 1000 }; /* multiplications that are worth waking a thread for */

/* Each method: whether it can compute a task; the weights packed in a new block (NULL: no memory),
 * which c->packed points to when it runs. Without pack and run it is another method's work, over
 * copies (conv_turned_run). */
struct ConvMethod {
    const char *name;
    bool (*fits)(const ConvolutionTask *task);
    MethodCost (*cost)(const ConvolutionTask *task, int tile, bool constant); /* NULL: 0 */
    bool (*fits_bf16)(const ConvolutionTask *task); /* as gemm_bf16 takes it; NULL: never */
    Storage *(*pack)(Convolution *c);
    void (*run)(Convolution *c);
    int tile;  /* of Winograd's methods, or 0: run takes x as it is and writes the result in its
               * dtype; the weight is packed in f32 */
    bool ends; /* run wants c->end in any case */
    bool packs_places; /* what is packed tells where the elements of x lie */
};

bool conv_is_direct(const ConvolutionTask *task);
bool conv_direct_is_bf16(const ConvolutionTask *task);
Storage *conv_direct_pack(Convolution *c);
void conv_direct_run(Convolution *c);
bool conv_is_matrix(const ConvolutionTask *task);
Storage *conv_matrix_pack(Convolution *c);
void conv_matrix_run(Convolution *c);
bool conv_fits_depthwise(const ConvolutionTask *task);
Storage *conv_depthwise_pack(Convolution *c);
void conv_depthwise_run(Convolution *c);
bool conv_fits_planes(const ConvolutionTask *task);
Storage *conv_planes_pack(Convolution *c);
void conv_planes_run(Convolution *c);
Storage *conv_gather_pack(Convolution *c);
void conv_gather_run(Convolution *c);
bool conv_fits_winograd_4(const ConvolutionTask *task);
bool conv_fits_winograd_67(const ConvolutionTask *task); /* 6 and 7 */
bool conv_fits_winograd_9(const ConvolutionTask *task);
Storage *conv_winograd_pack(Convolution *c); /* by tiles of c->method->tile */
void conv_winograd_run(Convolution *c);
/* Points of all tiles of a side: products of every channel and out channel. */
int64_t conv_winograd_points(const ConvolutionTask *s, int64_t tile);
bool conv_fits_winograd_sums(const ConvolutionTask *task);
void conv_winograd_sums_run(Convolution *c);
bool conv_fits_tiles(const ConvolutionTask *task);
Storage *conv_tiles_pack(Convolution *c);
void conv_tiles_run(Convolution *common);

MethodCost conv_direct_cost(const ConvolutionTask *task, int tile, bool constant);
MethodCost conv_gather_cost(const ConvolutionTask *task, int tile, bool constant);
MethodCost conv_winograd_cost(const ConvolutionTask *task, int tile, bool constant);
MethodCost conv_matrix_cost(const ConvolutionTask *task, int tile, bool constant);
MethodCost conv_turned_cost(const ConvolutionTask *task, int tile, bool constant);

/* x, the weight: converted and contiguous, with c->task's strides. NULL: no memory. */
Storage *conv_convert_x(Convolution *c);
Storage *conv_convert_weight(Convolution *c);
void conv_converted_x(ConvolutionTask *s); /* the strides that conv_convert_x will leave */
/* The same convolution over a contiguous copy of x with channels last, its result channels last. */
ConvolutionTask conv_turned(const ConvolutionTask *task);
/* Runs `last`, made by conv_turned of c's task, and copies its result to c->out. No epilogue. */
bool conv_turned_run(Convolution *c, const ConvolutionTask *last, int method);

/* The epilogue, if there is one, for `rows` runs of `columns` elements of the result; run r begins
 * at element first + r * step. */
void conv_epilogue(const Convolution *c, int64_t first, int64_t step, int64_t rows,
                   int64_t columns);
/* `rows` runs of `columns` elements of the result are done; run r begins at element first + r *
 * step and waits in sum + r * sum_stride for its end or, for f16 and bf16, to be narrowed. Then the
 * epilogue. With an end a run is of one position. */
void conv_finish(const Convolution *c, int64_t first, int64_t step, int64_t rows, int64_t columns,
                 const float *sum, int64_t sum_stride);

#endif
