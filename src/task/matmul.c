/* Products as a kind of task (task.h). */
#include "task/task.h"

enum {
    ROUNDING_ROWS = 64 /* of a: for fewer, reading b, which may be read by others too, is the
                        * work */
};

static void make(const TaskCall *call, Task *task) {
    const TaskOperand *a = &call->operand[0], *b = &call->operand[1];
    int rank = call->result.rank, last_a = a->meta.rank - 1, last_b = b->meta.rank - 1;
    MatmulTask m = {.dtype = call->result.dtype, .batch = 1, .batch_rank = rank - 2};
    m.wide = call->wide, m.reduced = call->reduced;
    m.rounds_b = b->stored != b->meta.dtype;
    m.m = call->result.size[rank - 2];
    m.n = call->result.size[rank - 1];
    m.k = a->meta.size[last_a];
    for (int i = 0; i < m.batch_rank; i++) m.batch *= m.batch_size[i] = call->result.size[i];
    task_batch_strides(call, a, m.a_batch);
    task_batch_strides(call, b, m.b_batch);
    m.a_m = a->stride[last_a - 1], m.a_k = a->stride[last_a];
    m.b_k = b->stride[last_b - 1], m.b_n = b->stride[last_b];
    m.a_offset = a->offset, m.b_offset = b->offset;
    task->matmul = m;
}

/* One matrix for all rows: it is packed once. */
static bool rounds(const Meta *x, const Meta *weight) {
    int64_t rows = 1;
    for (int i = 0; i < x->rank - 1; i++) rows *= x->size[i];
    return weight->rank == 2 && rows >= ROUNDING_ROWS;
}

static int64_t flops(const Task *task) {
    const MatmulTask *m = &task->matmul;
    return 2 * m->batch * m->m * m->n * m->k;
}

static void print(const Task *task, Buffer *out) {
    const MatmulTask *m = &task->matmul;
    putf(out, "%lld x %lld x %lld x %lld%s", (long long)m->batch, (long long)m->m, (long long)m->n,
         (long long)m->k,
         m->reduced ? ", may round to bf16"
         : m->wide  ? ", sums in f32"
                    : "");
    if (m->rounds_b) put(out, ", rounds b");
}

static void explain(const Task *task, Buffer *out) {
    const MatmulTask *m = &task->matmul;
    putf(out, " %s: %lld x [%lld, %lld] x [%lld, %lld]", cb_dtype_name(m->dtype),
         (long long)m->batch, (long long)m->m, (long long)m->k, (long long)m->k, (long long)m->n);
}

static void describe(const Task *task, Buffer *out) {
    const MatmulTask *m = &task->matmul;
    put_numbers(out, "of", (int64_t[]){m->m, m->n, m->k}, 3);
    put_numbers(out, "strides", (int64_t[]){m->a_m, m->a_k, m->b_k, m->b_n}, 4);
    put_numbers(out, "batch", m->batch_size, m->batch_rank);
    put_numbers(out, "by", m->a_batch, m->batch_rank);
    put_numbers(out, "and", m->b_batch, m->batch_rank);
    if (m->reduced) put(out, " reduced");
    if (m->rounds_b) put(out, " rounds");
}

static int64_t span(const Task *task, int operand) {
    const MatmulTask *m = &task->matmul;
    if (operand == 0)
        return task_span(m->a_offset, m->batch_rank, m->batch_size, m->a_batch) +
               task_span(0, 2, (int64_t[]){m->m, m->k}, (int64_t[]){m->a_m, m->a_k});
    return task_span(m->b_offset, m->batch_rank, m->batch_size, m->b_batch) +
           task_span(0, 2, (int64_t[]){m->k, m->n}, (int64_t[]){m->b_k, m->b_n});
}

static void channels(const Task *task, int64_t *count, int64_t *stride) {
    *count = task->matmul.n, *stride = 1;
}

const TaskInfo task_matmul = {
    .op = {OP_matmul},
    .between = " @ ",
    .wide_elements = 1 << 16, /* their f32 stays in L2 */
    .make = make,
    .rounds = rounds,
    .flops = flops,
    .print = print,
    .explain = explain,
    .describe = describe,
    .span = span,
    .channels = channels,
};
