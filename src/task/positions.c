/* The op positions as a kind of task (task.h). */
#include "task/task.h"

static void make(const TaskCall *call, Task *task) {
    const TaskOperand *mask = &call->operand[0];
    task->positions = (PositionsTask){.length = mask->meta.size[0],
                                      .count = call->result.size[0],
                                      .offset = mask->offset,
                                      .element = mask->stride[0]};
}

static void print(const Task *task, Buffer *out) {
    putf(out, "%lld of %lld", (long long)task->positions.count, (long long)task->positions.length);
}

static void explain(const Task *task, Buffer *out) {
    put(out, ": ");
    print(task, out);
}

const TaskInfo task_positions = {
    .op = {OP_positions, OP_none},
    .between = "",
    .make = make,
    .print = print,
    .explain = explain,
};
