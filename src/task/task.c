/* The table of kinds (task.h), and what their rows share. */
#include "task/task.h"

#define TASK_ROW(id, name, description) extern const TaskInfo task_##name;
TASKS(TASK_ROW)
#undef TASK_ROW

const TaskInfo *task_info(TaskKind kind) {
#define TASK_ROW(id, name, description) &task_##name,
    static const TaskInfo *const rows[] = {TASKS(TASK_ROW)};
#undef TASK_ROW
    return rows[kind];
}

bool task_of_op(Op op, TaskKind *kind) {
    OpKind of = op_info(op)->kind;
    if (of != KIND_CONTRACT && of != KIND_OPAQUE) return false;
    for (*kind = 0; *kind < TASK_KINDS; ++*kind) {
        const TaskInfo *info = task_info(*kind);
        if (info->op[0] == op || info->op[1] == op) return true;
    }
    check(false, "%s is of no kind of task", op_info(op)->name);
    return false;
}

int64_t task_flops(const Task *task) {
    const TaskInfo *info = task_info(task->kind);
    return info->flops ? info->flops(task) : 0;
}

void task_batch_strides(const TaskCall *call, const TaskOperand *operand, int64_t *out) {
    int shift = call->result.rank - operand->meta.rank;
    for (int i = 0; i < call->result.rank - 2; i++) {
        bool spread = i < shift || operand->meta.size[i - shift] == 1;
        out[i] = spread ? 0 : operand->stride[i - shift];
    }
}

int64_t task_span(int64_t offset, int rank, const int64_t *size, const int64_t *stride) {
    int64_t last = offset;
    for (int d = 0; d < rank; d++) last += (size[d] - 1) * stride[d];
    return last + 1;
}

void put_numbers(Buffer *out, const char *name, const int64_t *number, int count) {
    putf(out, " %s", name);
    for (int i = 0; i < count; i++) putf(out, "%s%lld", i ? "x" : " ", (long long)number[i]);
}
