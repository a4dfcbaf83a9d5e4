/* What the files of gemm share. */
#ifndef CARBIDE_CPU_GEMM_INTERNAL_H
#define CARBIDE_CPU_GEMM_INTERNAL_H

#include "cpu/gemm.h"
#include "cpu/gemm_kernel.h"
#include "tensor/tensor.h"
#include <stdatomic.h>

enum {
    GEMM_MAX_WIDTH = 32,   /* rows or columns of the largest register tile */
    GEMM_RUN_K = 64,       /* of k, for which rows of A and B are read before the next ones are */
    GEMM_LONG_PIECE = 512, /* of k, some of those, which gemm_long sums in the task's own
                            * precision */
    GEMM_SUM_GAP = 16      /* between rows of sums in a scratch: at a stride of a power of two they
                            * would fall into few sets of the cache */
};

typedef struct Gemm { /* one call of gemm_run */
    MatmulTask task;  /* the batch folded into rows where that is possible */
    const char *a, *b;
    const char *packed; /* b in panels, when it never changes; or NULL */
    char *out;
    const Launch *epilogue;
    void *const *epilogue_buffer;
    const GemmType *type;
    GemmConvert *convert, *convert_b; /* before packing, of a, and of b; or NULL */
    GemmConvert *narrow;  /* of sums that wait in a scratch, to out; or NULL */
    size_t element;       /* bytes of one summed element, and of `together` packed ones */
    int64_t input_bytes;  /* bytes of one element of a, and of out unless the task is wide */
    int64_t b_bytes;      /* of b, which may lie in f32 while the others do not */
    int threads;
    _Atomic bool *failed; /* a thread found no memory */
} Gemm;

/* What multiplies bf16 itself, or NULL: then it is widened to f32. Chosen at the first call;
 * CARBIDE_SKIP=bf16 leaves all of it out, amx the tiles. */
const GemmType *gemm_bf16(void);
/* Whether it computes the task, if it is asked. */
bool gemm_may_be_bf16(const MatmulTask *task);
/* The type that computes a dtype, and the conversions around it. reduced: f32 may be rounded to
 * bf16; bf16: the caller can use gemm_bf16. */
typedef struct GemmChoice {
    const GemmType *type;
    GemmConvert *convert, *narrow;
} GemmChoice;
GemmChoice gemm_choose(cb_dtype dtype, bool reduced, bool bf16);
/* Of f32 to what the type multiplies for a dtype of halves. */
GemmConvert *gemm_rounds(const GemmType *type, cb_dtype dtype);
int64_t gemm_k_block(const Gemm *gemm); /* of k, that is summed by itself */
/* Offsets of a batch item in elements, a_offset and b_offset included. */
void gemm_batch_offsets(const MatmulTask *task, int64_t batch, int64_t *a, int64_t *b);
/* Runs the epilogue on rows [row, row + rows) of the batch*m rows, columns [column, column +
 * columns). */
void gemm_epilogue(const Gemm *gemm, int64_t row, int64_t rows, int64_t column, int64_t columns);

typedef struct GemmLanes { /* rows of A or columns of B as they lie */
    bool of_a;
    const char *in;
    int64_t lane_stride, k_stride;
    int64_t lanes, each; /* each: of one panel */
    int64_t k;
} GemmLanes;
int gemm_width(const Gemm *gemm, bool of_a); /* of a panel, in lanes */
int64_t gemm_bytes(const Gemm *gemm, bool of_a); /* of an element as it lies */
/* Packs them in panels of panel_bytes each, side by side; converted: room for one as it lies, of
 * the type it is multiplied in. */
void gemm_pack_lanes(const Gemm *gemm, char *out, int64_t panel_bytes, const GemmLanes *lanes,
                     char *converted);

/* Packed panels of both operands, and those of a b that never changes. false: no memory. */
bool gemm_panels(const Gemm *gemm);
MethodCost gemm_panels_cost(const MatmulTask *task, bool constant);
MethodCost gemm_bf16_cost(const MatmulTask *task, bool constant);
bool gemm_pack_panels(const Gemm *gemm, Storage **packed);
/* Whether gemm_small computes a folded task, and what; and cycles for an item of it. */
bool gemm_fits_small(const MatmulTask *task);
MethodCost gemm_small_cost(const MatmulTask *task, bool constant);
double gemm_small_cycles(const MatmulTask *task);
bool gemm_small(const Gemm *gemm);
/* Whether gemm_vector computes a folded task, the cycles that it takes, and whether panels of a b
 * that is packed once would serve it better. */
bool gemm_fits_vector(const MatmulTask *task);
double gemm_vector_cycles(const MatmulTask *task);
bool gemm_vector_wants_panels(const MatmulTask *task);
bool gemm_vector(const Gemm *gemm);
/* Whether gemm_tall and gemm_long compute a folded task. */
bool gemm_fits_tall(const MatmulTask *task);
bool gemm_tall(const Gemm *gemm);
bool gemm_fits_long(const MatmulTask *task);
bool gemm_long(const Gemm *gemm);
MethodCost gemm_tall_cost(const MatmulTask *task, bool constant);
MethodCost gemm_long_cost(const MatmulTask *task, bool constant);
/* Whether gemm_swept computes a folded task. */
bool gemm_fits_swept(const MatmulTask *task);
MethodCost gemm_swept_cost(const MatmulTask *task, bool constant);
bool gemm_swept(const Gemm *gemm);
bool gemm_integer(const Gemm *gemm);
/* Whether gemm_turned computes a folded task, and whether panels packed once serve it better. */
bool gemm_fits_turned(const MatmulTask *task);
MethodCost gemm_turned_cost(const MatmulTask *task, bool constant);
double gemm_turned_cycles(const MatmulTask *task);
MethodCost gemm_cost_of(double cycles);
bool gemm_turned(const Gemm *gemm);

#endif
