/* A step as a task for a provider. */
#ifndef CARBIDE_METHOD_TASK_H
#define CARBIDE_METHOD_TASK_H

#include "method/provider.h"
#include "sched/plan.h"

typedef struct StepTask {
    ProviderTask task;         /* as the step runs without its epilogue, or with it */
    bool fused;                /* the task does the epilogue, too */
    int scale, bias, residual; /* buffers of the epilogue kernel that hold them, or -1 */
    int64_t x_offset, weight_offset, weight_span; /* elements; span: that the weight lies in */
} StepTask;

/* False: no provider has such steps (integers, f64, f16, nothing to sum). step: a product or a
 * convolution. packs: its weight never changes. */
bool task_of(const Plan *plan, const Step *step, bool packs, StepTask *out);
void task_unfuse(StepTask *task); /* the epilogue stays with us */

#endif
