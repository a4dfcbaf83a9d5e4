/* argsort and argtopk as a kind of task (task.h). */
#include "task/task.h"

#include <string.h>

static void make(const TaskCall *call, Task *task) {
    const TaskOperand *in = &call->operand[0];
    const Meta *meta = &in->meta;
    int word = call->op == OP_argtopk ? ATTR_argtopk_largest : ATTR_argsort_descending;
    SortTask s = {.dtype = meta->dtype, .offset = in->offset};
    s.row_rank = meta->rank ? meta->rank - 1 : 0;
    memcpy(s.row_size, meta->size, sizeof *meta->size * (size_t)s.row_rank);
    memcpy(s.row_stride, in->stride, sizeof *in->stride * (size_t)s.row_rank);
    s.element = in->stride[s.row_rank];
    s.length = meta->rank ? meta->size[s.row_rank] : 1;
    s.keep = call->result.rank ? call->result.size[call->result.rank - 1] : 1;
    s.rows = s.length ? meta_numel(meta) / s.length : 0;
    s.descending = call->attrs->word[word] != 0;
    task->sort = s;
}

static void print(const Task *task, Buffer *out) {
    putf(out, "%lld rows of %lld", (long long)task->sort.rows, (long long)task->sort.length);
}

static void explain(const Task *task, Buffer *out) {
    put(out, ": ");
    print(task, out);
}

const TaskInfo task_sort = {
    .op = {OP_argsort, OP_argtopk},
    .between = "",
    .make = make,
    .print = print,
    .explain = explain,
};
