/* Attention and its gradient as kinds of task (task.h). */
#include "task/task.h"

static AttentionOperand operand_of(const TaskCall *call, int number) {
    const TaskOperand *operand = &call->operand[number];
    AttentionOperand out = {.offset = operand->offset};
    int last = operand->meta.rank - 1;
    task_batch_strides(call, operand, out.batch);
    if (last >= 1 && operand->meta.size[last - 1] > 1) out.row = operand->stride[last - 1];
    if (last >= 0 && operand->meta.size[last] > 1) out.column = operand->stride[last];
    return out;
}

/* Strides of the result, whose last `behind` batch dims stand behind the rows. */
static void set_result(const TaskCall *call, AttentionTask *a) {
    const Meta *result = &call->result;
    int64_t at[CB_MAX_RANK] = {0}, behind = call->attrs->word[ATTR_attention_behind];
    int row = result->rank - 2 - (int)behind;
    contiguous_strides(result->rank, result->size, at);
    a->out.row = at[row];
    a->out.column = 1;
    a->batch = 1;
    a->batch_rank = result->rank - 2;
    for (int i = 0; i < a->batch_rank; i++) {
        int dim = i < row ? i : i + 1;
        a->batch *= a->batch_size[i] = result->size[dim];
        a->out.batch[i] = at[dim];
    }
}

/* All but the result; the mask is the last operand. */
static AttentionTask task_of(const TaskCall *call, int mask, bool causal, double scale) {
    const Meta *query = &call->operand[0].meta, *key = &call->operand[1].meta;
    AttentionTask a = {.dtype = call->result.dtype, .causal = causal, .scale = scale};
    a.mask_dtype = call->operand[mask].meta.dtype;
    a.rows = query->size[query->rank - 2];
    a.columns = key->size[key->rank - 2];
    a.depth = query->size[query->rank - 1];
    a.width = call->result.size[call->result.rank - 1];
    a.masked = call->count == mask + 1;
    a.query = operand_of(call, 0), a.key = operand_of(call, 1), a.values = operand_of(call, 2);
    if (a.masked) a.mask = operand_of(call, mask);
    return a;
}

static void make(const TaskCall *call, Task *task) {
    task->attention = task_of(call, 3, call->attrs->word[ATTR_attention_is_causal],
                              attr_float(call->attrs, ATTR_attention_scale));
    set_result(call, &task->attention);
}

/* The gradient of the result has its sizes. */
static void make_gradient(const TaskCall *call, Task *task) {
    TaskCall own = *call;
    own.result = call->operand[3].meta;
    AttentionTask a = task_of(&own, 4, call->attrs->word[ATTR_attention_gradient_is_causal],
                              attr_float(call->attrs, ATTR_attention_gradient_scale));
    a.out = operand_of(&own, 3);
    a.batch = 1;
    a.batch_rank = own.result.rank - 2;
    for (int i = 0; i < a.batch_rank; i++) a.batch *= a.batch_size[i] = own.result.size[i];
    task->attention_gradient.attention = a;
}

/* A causal one looks at every key that some query sees: half of them where there are as many. */
static int64_t scores(const AttentionTask *a) {
    int64_t seen = a->rows * a->columns, edge = a->rows < a->columns ? a->rows : a->columns;
    if (a->causal) seen = edge * (edge + 1) / 2 + (a->rows - edge) * a->columns;
    return a->batch * seen;
}

static int64_t flops(const Task *task) {
    const AttentionTask *a = &task->attention;
    return 2 * scores(a) * (a->depth + a->width);
}

/* Scores again, slopes, and three sums of them. */
static int64_t gradient_flops(const Task *task) {
    const AttentionTask *a = &task->attention_gradient.attention;
    return 2 * scores(a) * (3 * a->depth + 2 * a->width);
}

/* 12 x 128 rows of 64 over 128, causal */
static void put_attention(const AttentionTask *a, Buffer *out) {
    putf(out, "%lld x %lld rows of %lld over %lld", (long long)a->batch, (long long)a->rows,
         (long long)a->depth, (long long)a->columns);
    if (a->width != a->depth) putf(out, " of %lld", (long long)a->width);
    if (a->causal) put(out, ", causal");
}

static void print(const Task *task, Buffer *out) { put_attention(&task->attention, out); }

static void print_gradient(const Task *task, Buffer *out) {
    put_attention(&task->attention_gradient.attention, out);
}

/* Bytes of scores and weights that the same attention in single ops writes and reads again: the
 * first product writes the scores, softmax reads them and writes weights, which the second one
 * reads. */
static int64_t saved_bytes(const AttentionTask *a) {
    return 4 * a->batch * a->rows * a->columns * (int64_t)cb_dtype_size(a->dtype);
}

static void describe(const AttentionTask *a, int64_t saved, Buffer *out) {
    putf(out, " %s: %lld heads, %lld queries over %lld keys of %lld%s, keeps ",
         cb_dtype_name(a->dtype), (long long)a->batch, (long long)a->rows, (long long)a->columns,
         (long long)a->depth, a->causal ? ", causal" : "");
    put_byte_count(out, saved);
    put(out, " of scores out of memory");
}

static void explain(const Task *task, Buffer *out) {
    describe(&task->attention, saved_bytes(&task->attention), out);
}

/* Scores and weights as above; the slopes likewise, from the weights' gradients; and both are read
 * once more each. */
static void explain_gradient(const Task *task, Buffer *out) {
    const AttentionTask *a = &task->attention_gradient.attention;
    describe(a, 2 * saved_bytes(a), out);
}

const TaskInfo task_attention = {
    .op = {OP_attention},
    .between = ", ",
    .optional = "mask",
    .make = make,
    .flops = flops,
    .print = print,
    .explain = explain,
};

const TaskInfo task_attention_gradient = {
    .op = {OP_attention_gradient},
    .between = ", ",
    .optional = "mask",
    .make = make_gradient,
    .flops = gradient_flops,
    .print = print_gradient,
    .explain = explain_gradient,
};
