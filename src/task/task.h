/* Tasks: what a library computes between two kernels, told by sizes, strides and dtypes alone.
 * Whose values they are, and which kernel runs on the result, is the plan's (sched/plan.h); who
 * computes them is chosen later (method/method.h). */
#ifndef CARBIDE_TASK_TASK_H
#define CARBIDE_TASK_TASK_H

#include "base/buffer.h"
#include "op/op.h"

/* C[b][m][n] = sum over k of A[b][m][k] * B[b][k][n], strides in elements. The result is contiguous
 * [batch, m, n]; then, while a block of it is in cache, the epilogue kernel runs on it: a TILE
 * kernel over outer axes (batch*m, n), which reads it and writes where it likes (often there). */
typedef struct MatmulTask {
    cb_dtype dtype; /* of a, b and, unless it is wide, of the result */
    bool wide;      /* a and b are f16 or bf16, the result is their sums in f32 */
    bool reduced;   /* f32 a and b may be rounded to bf16, where that is faster */
    bool rounds_b;  /* b lies in f32, and is rounded to the task's dtype as it is read */
    int64_t batch, m, n, k;
    int batch_rank; /* batch dims, broadcast by stride 0 */
    int64_t batch_size[CB_MAX_RANK], a_batch[CB_MAX_RANK], b_batch[CB_MAX_RANK];
    int64_t a_m, a_k, b_k, b_n; /* strides */
    int64_t a_offset, b_offset;
} MatmulTask;

/* out[n][o][p] = sum over the channels i of o's group and the kernel positions q of
 * x[n][i][p * stride + q * dilation - padding] * weight[o][i][q], where x outside of its sizes is
 * 0. Spatial positions p and q have three dims; a convolution of fewer has sizes of 1 in front.
 * Strides (x_batch...) are in elements. The result is contiguous: [batch, out_channels, spatial],
 * or with channels_last [batch, spatial, out_channels]; the epilogue runs over its elements in that
 * order, as for a product. */
typedef struct ConvolutionTask {
    cb_dtype dtype;     /* of x, weight and, unless it is wide, of out */
    bool wide;          /* x and weight are f16 or bf16, out is their sums in f32 */
    bool reduced;       /* f32 x and weight may be rounded to bf16, where that is faster */
    bool channels_last; /* of out */
    int rank;           /* spatial dims that the op has, 1 to 3 */
    int64_t batch, channels, out_channels, groups;
    int64_t in_size[3], out_size[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t x_offset, x_batch, x_channel, x_spatial[3];
    int64_t weight_offset, weight_out, weight_in, weight_spatial[3];
} ConvolutionTask;

/* out[b][r] = sum over the columns c of w[c] * value[b][c], where w = softmax over c of
 * scale * query[b][r] . key[b][c] + mask[b][r][c]. A bool mask keeps the columns where it is true;
 * a causal one keeps c <= r; where nothing is kept the result is 0. Strides are in elements, and 0
 * where an operand broadcasts. */
typedef struct AttentionOperand {
    int64_t offset, batch[CB_MAX_RANK], row, column;
} AttentionOperand;

typedef struct AttentionTask {
    AttentionOperand query, key, values, mask, out;
    cb_dtype dtype, mask_dtype; /* mask: bool, or what is computed in: f32, f64 */
    bool masked, causal;
    double scale;
    int64_t rows, columns, depth, width; /* depth: of a query and a key; width: of a value */
    int batch_rank;
    int64_t batch, batch_size[CB_MAX_RANK];
} AttentionTask;

/* The gradients of query, key and values, each contiguous over all batch dims, one behind the
 * other: [batch][r][depth], [batch][c][depth], [batch][c][width]. Where key or value broadcast,
 * nothing is summed over that. */
typedef struct AttentionGradientTask {
    AttentionTask attention; /* its out is where the gradient of the result lies */
} AttentionGradientTask;

/* argsort, argtopk along the last axis: row r of out, contiguous, takes the first `keep` positions
 * of row r of in, in order. Where in lies is told by strides in elements: row_size and row_stride
 * are the dims of its rows, element the step along one. */
typedef struct SortTask {
    cb_dtype dtype; /* of in */
    int64_t rows, length, keep;
    bool descending;
    int64_t offset, element;
    int row_rank;
    int64_t row_size[CB_MAX_RANK], row_stride[CB_MAX_RANK];
} SortTask;

/* The places in ascending order where a row of bools is true, of which there are `count`: the
 * element i of the row lies at offset + i * element. */
typedef struct PositionsTask {
    int64_t length, count, offset, element;
} PositionsTask;

/* TASK(ID, name, description): a row for each kind of task; src/task/name.c says what the rest of
 * the library has to know of it (TaskInfo). */
#define TASKS(TASK)                                                                                \
    TASK(MATMUL, matmul, MatmulTask)                                                               \
    TASK(CONVOLUTION, convolution, ConvolutionTask)                                                \
    TASK(ATTENTION, attention, AttentionTask)                                                      \
    TASK(ATTENTION_GRADIENT, attention_gradient, AttentionGradientTask)                            \
    TASK(SORT, sort, SortTask)                                                                     \
    TASK(POSITIONS, positions, PositionsTask)

#define TASK_ID(id, name, description) TASK_##id,
typedef enum TaskKind { TASKS(TASK_ID) TASK_KINDS } TaskKind;
#undef TASK_ID

/* Operands in the order that run functions take them: a, b; x, weight; query, key, values, mask;
 * query, key, values, the gradient of the result, mask; what is sorted; the mask. */
enum { TASK_OPERANDS = 5, TASK_WEIGHT = 1 /* where a method packs one: method/table.h */ };

#define TASK_MEMBER(id, name, description) description name;
typedef struct Task {
    TaskKind kind;
    union {
        TASKS(TASK_MEMBER)
    };
} Task;
#undef TASK_MEMBER

/* What a task is made from: a call of one of its kind's ops, and where the operands lie. */
typedef struct TaskOperand {
    Meta meta;
    cb_dtype stored; /* of the value that it is read from */
    int64_t stride[CB_MAX_RANK], offset; /* in elements */
} TaskOperand;

typedef struct TaskCall {
    Op op;
    const Attrs *attrs;
    Meta result;
    TaskOperand operand[TASK_OPERANDS];
    int count;          /* of those that are there; of a literal behind them the meta counts */
    bool wide, reduced; /* as in MatmulTask */
} TaskCall;

typedef struct TaskInfo {
    Op op[2];              /* that such tasks compute, of kind CONTRACT or OPAQUE; or OP_none */
    const char *between;   /* operands, in the text of a plan: v0 @ v1 */
    const char *optional;  /* the name of the last operand, where a literal stands for none; or
                           * NULL */
    int64_t wide_elements; /* halves: up to so many sums are handed on in f32 (sched/wide.c) */
    void (*make)(const TaskCall *call, Task *task);
    /* Whether the task reads a weight of halves where it lies in f32, if it does: it rounds it on
     * the way. NULL: no. */
    bool (*rounds)(const Meta *x, const Meta *weight);
    int64_t (*flops)(const Task *task);             /* NULL: it multiplies nothing */
    void (*print)(const Task *task, Buffer *out);   /* sizes, in the text of a plan */
    void (*explain)(const Task *task, Buffer *out); /* the same for people, behind the op's name */
    /* Of kinds that several methods compute, for those who measure them (method/tune.c): all that
     * times depend on, as a line of text; elements from element 0 of an operand to its last. */
    void (*describe)(const Task *task, Buffer *out);
    int64_t (*span)(const Task *task, int operand);
    /* Of kinds with an epilogue: the dim of the result that biases lie along. */
    void (*channels)(const Task *task, int64_t *count, int64_t *stride);
} TaskInfo;

const TaskInfo *task_info(TaskKind kind);
/* Whether an op is a task, and of which kind. */
bool task_of_op(Op op, TaskKind *kind);
int64_t task_flops(const Task *task); /* of products, convolutions and attention; else 0 */

/* For src/task: strides along the batch dims of a result whose last two dims are none; 0 where the
 * operand broadcasts. */
void task_batch_strides(const TaskCall *call, const TaskOperand *operand, int64_t *out);
int64_t task_span(int64_t offset, int rank, const int64_t *size, const int64_t *stride);
void put_numbers(Buffer *out, const char *name, const int64_t *number, int count); /* " name 2x3" */

#endif
