/* What one run of a task gets: where its operands lie, and what runs on the result. */
#ifndef CARBIDE_CPU_OPERANDS_H
#define CARBIDE_CPU_OPERANDS_H

#include "task/task.h"
#include "vm/launch.h"

/* An epilogue that is max(result * scale + bias + residual, 0), or less than that. */
typedef struct KnownEnd {
    bool fused, relu;
    cb_dtype bias_dtype;         /* f32 or the task's; of the scale f32 */
    int scale, bias, residual; /* buffers of the epilogue kernel, or -1 */
} KnownEnd;

typedef struct Operands {
    const void *in[TASK_OPERANDS]; /* element 0 of the values; of an optional one, or where packed
                                    * stands for it: NULL */
    const void *packed;            /* the weight as the same method packed it, or NULL */
    void *out;
    const Launch *epilogue; /* over the elements of the result, in order; or NULL */
    void *const *epilogue_buffer;
    const KnownEnd *end; /* what the epilogue amounts to; NULL or not fused: that is not known */
} Operands;

/* What a method takes by the recorded model, of which the least is chosen: nanoseconds, of which
 * only counts how they compare; 0: no other was measured to be faster; INFINITY: others were. */
typedef struct MethodCost {
    double ns;
    double share; /* it has to need less than this share of the best method above it: less than 1
                   * for one that rounds more */
} MethodCost;

#endif
