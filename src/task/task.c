/* What tasks cost (task.h). */
#include "task/task.h"

/* A causal one looks at every key that some query sees: half of them where there are as many. */
static int64_t attention_flops(const AttentionTask *a) {
    int64_t seen = a->rows * a->columns, edge = a->rows < a->columns ? a->rows : a->columns;
    if (a->causal) seen = edge * (edge + 1) / 2 + (a->rows - edge) * a->columns;
    return 2 * a->batch * seen * (a->depth + a->width);
}

int64_t task_flops(const Task *task) {
    const MatmulTask *m = &task->matmul;
    const ConvolutionTask *c = &task->convolution;
    int64_t window = 1, positions = 1;
    if (task->kind == TASK_MATMUL) return 2 * m->batch * m->m * m->n * m->k;
    if (task->kind == TASK_ATTENTION) return attention_flops(&task->attention);
    if (task->kind != TASK_CONVOLUTION) return 0;
    for (int d = 0; d < 3; d++) window *= c->kernel[d], positions *= c->out_size[d];
    return 2 * c->batch * positions * c->out_channels * (c->channels / c->groups) * window;
}

/* The first product writes the scores, softmax reads them and writes weights, which the second one
 * reads. */
int64_t attention_saved_bytes(const AttentionTask *task) {
    int64_t bytes = (int64_t)cb_dtype_size((cb_dtype)task->dtype);
    return 4 * task->batch * task->rows * task->columns * bytes;
}
