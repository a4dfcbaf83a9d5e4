/* What the files of op_infer share: promote.c (dtypes), shape.c (entry, broadcasting, reductions,
 * sources), shape_view.c, shape_index.c. */
#ifndef CARBIDE_OP_INFER_H
#define CARBIDE_OP_INFER_H

#include "op/op.h"

/* One call under inference; canonical attributes and the result are written into it. */
typedef struct InferCall {
    Op op;
    const OpInfo *info;
    const Meta *input;
    int input_count;
    Attrs *attrs;
    Inferred *out;
} InferCall;

bool infer_dtypes(InferCall *call);
bool infer_view(InferCall *call);  /* KIND_VIEW */
bool infer_index(InferCall *call); /* joins, gathers, scatters, tasks */
bool infer_convolution(InferCall *call); /* its part in op/shape_convolution.c */
bool infer_attention(InferCall *call);   /* in op/shape_attention.c */
bool infer_custom(InferCall *call);      /* in op/custom.c */

/* Records "op: text: f32[2, 3], f32[4]" and returns false. */
bool infer_fail(const InferCall *call, cb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Counts a negative dimension from the end; refuses what lies outside of [-rank, rank). */
bool infer_dim(const InferCall *call, int64_t *dim, int rank);
/* The same for a list, without duplicates; of rank 0, 0 and -1 may be listed, and none is left;
 * sorted when asked. CB_ALL becomes every dimension. */
bool infer_dims(const InferCall *call, cb_dim_list *dims, int rank, bool sorted);
/* Python's slice on one size: start and end are clamped; the count of elements, or -1 with an
 * error. */
int64_t infer_slice(const InferCall *call, int64_t size, int64_t *start, int64_t *end,
                    int64_t step);
/* Refuses a number that overflows in the result's dtype. */
bool infer_number(const InferCall *call, int word);
/* Merges one operand's trailing dimensions into result by broadcasting. */
bool infer_broadcast(const InferCall *call, Meta *result, const int64_t *size, int rank);

#endif
