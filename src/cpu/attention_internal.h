/* What attention (attention.c) and its gradient (attention_gradient.c) share: a call, the space of
 * a thread, and how operands and masks are read. */
#ifndef CARBIDE_CPU_ATTENTION_INTERNAL_H
#define CARBIDE_CPU_ATTENTION_INTERNAL_H

#include "base/round.h"
#include "cpu/attention_kernel.h"
#include "cpu/gemm_internal.h"

#define LOG2_E 1.4426950408889634
enum { BLOCK_KEYS = 128 /* of a block, rounded down to whole tiles */ };

typedef struct AttentionJob {
    AttentionTask task;
    const char *query, *key, *values, *mask;
    char *out;
    const GemmType *type, *plain; /* of the products; of sums, to turn them about */
    const AttentionType *attention;
    bool half;                          /* bf16 is multiplied as it is */
    GemmConvert *widen, *narrow;        /* of f16 and bf16; or NULL */
    int64_t element;                    /* of scores and sums */
    int64_t factor_bytes, input_bytes;  /* of what is packed; of query, key, values, out */
    int64_t block, panels, task_panels; /* keys of a block; panels of a batch item, of a task */
    int64_t batch_tasks, tasks;         /* of a batch item, of all */
    _Atomic int64_t next;               /* task that nobody has taken */
    _Atomic bool failed;
} AttentionJob;

typedef struct AttentionSpace {                /* space of one thread */
    char *query, *sum, *most, *total, *shrink; /* of each panel of the task */
    char *key, *values;                        /* a packed block */
    char *score, *weights, *mask, *wide;       /* weights: of bf16, else they lie in score */
    Storage *storage;
} AttentionSpace;

typedef struct AttentionPart {
    int64_t query, key, values, mask, out; /* elements to the batch item's first one */
    int64_t panel, panels;                 /* first one, how many */
} AttentionPart;

typedef struct Matrix { /* of what is computed with */
    const char *at;
    int64_t row, column; /* strides in elements */
} Matrix;

/* A job of this task, but for its operands. half: bf16 may be multiplied as it is. */
void attention_open(AttentionJob *job, const AttentionTask *task, bool half);
/* The next `bytes` of a thread's space, aligned. */
char *attention_carve(char **at, int64_t bytes);
/* The maximum is -infinity, the total 0. */
void attention_clear(const AttentionJob *job, const AttentionSpace *own, int64_t lanes);
/* Where the items of a batch begin; the panels are the caller's. */
AttentionPart attention_part(const AttentionTask *task, int64_t item);
/* Rows of an operand: where they lie, or widened to f32, in own->wide. */
Matrix attention_rows(const AttentionJob *job, const AttentionSpace *own, const char *base,
                      int64_t offset, const AttentionOperand *operand, int64_t rows,
                      int64_t columns);
/* Keys [first, first + keys) as rows of tiles. */
void attention_pack_keys(const AttentionJob *job, Matrix from, int64_t depth, int64_t keys,
                         char *to);
/* The same keys (or values) with their columns as rows of tiles, which are summed over keys. */
void attention_pack_turned(const AttentionJob *job, Matrix from, int64_t width, int64_t keys,
                           char *to);
/* Adds the mask to a block of scores: queries from row on, keys [first, first + keys). */
void attention_add_mask(const AttentionJob *job, const AttentionSpace *own,
                        const AttentionPart *task, int64_t row, int64_t first, int64_t keys);
/* Bytes of one lane of a panel of k. */
static inline int64_t attention_lane_bytes(const AttentionJob *job, int64_t k) {
    return round_up(k, job->type->k_unit) * job->factor_bytes;
}

#endif
