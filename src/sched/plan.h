/* The plan: a flat list of steps over values with fixed places.
 * A value is an input of the call, an output (or mutated input), a constant, or a temporary at a
 * fixed offset of one arena block; temporaries whose lives do not overlap share bytes
 * (sched/memory.c). */
#ifndef CARBIDE_SCHED_PLAN_H
#define CARBIDE_SCHED_PLAN_H

#include "base/reason.h"
#include "graph/graph.h"
#include "lower/loop.h"

typedef enum ValuePlace {
    VALUE_INPUT, VALUE_OUTPUT, VALUE_TEMPORARY, VALUE_CONSTANT, VALUE_RANDOM
} ValuePlace;

typedef struct PlanValue {
    int8_t dtype;
    uint8_t place;
    int number; /* VALUE_INPUT, VALUE_OUTPUT, VALUE_CONSTANT: which. VALUE_RANDOM: the RandomState
                 * as i64[2] */
    int64_t numel, offset; /* offset: bytes into the arena block, 64-byte aligned */
} PlanValue;

/* C[b][m][n] = sum over k of A[b][m][k] * B[b][k][n], strides in elements. The result goes to value
 * `out`, contiguous [batch, m, n]; then, while a block of it is in cache, the epilogue kernel runs
 * on it: a TILE kernel over outer axes (batch*m, n), which reads `out` and writes where it likes
 * (often `out` itself). */
typedef struct MatmulStep {
    int a, b, out; /* plan values */
    int8_t dtype;  /* of a, b and, unless it is wide, of out */
    bool wide;     /* a and b are f16 or bf16, out is their sums in f32 */
    bool reduced;  /* f32 a and b may be rounded to bf16, where that is faster */
    int64_t batch, m, n, k;
    int batch_rank; /* batch dims, broadcast by stride 0 */
    int64_t batch_size[CB_MAX_RANK], a_batch[CB_MAX_RANK], b_batch[CB_MAX_RANK];
    int64_t a_m, a_k, b_k, b_n; /* strides */
    int64_t a_offset, b_offset;
    int epilogue;       /* kernel number, or -1 */
    const void *packed; /* b as gemm_pack left it, when b is constant; NULL: b is packed as it is
                         * needed */
} MatmulStep;

/* An epilogue that is max(result * scale + bias + residual, 0), or less than that. */
typedef struct ConvolutionEnd {
    bool fused, relu;
    int8_t bias_dtype;         /* f32 or the step's; of the scale f32 */
    int scale, bias, residual; /* buffers of the epilogue kernel, or -1 */
} ConvolutionEnd;

/* out[n][o][p] = sum over the channels i of o's group and the kernel positions q of
 * x[n][i][p * stride + q * dilation - padding] * weight[o][i][q], where x outside of its sizes is
 * 0. Spatial positions p and q have three dims; a convolution of fewer has sizes of 1 in front.
 * Strides (x_batch...) are in elements. The result is contiguous: [batch, out_channels, spatial],
 * or with channels_last [batch, spatial, out_channels]; the epilogue runs over its elements in that
 * order, as for a product. */
typedef struct ConvolutionStep {
    int x, weight, out; /* plan values */
    int8_t dtype;       /* of x, weight and, unless it is wide, of out */
    bool wide;          /* x and weight are f16 or bf16, out is their sums in f32 */
    bool reduced;       /* f32 x and weight may be rounded to bf16, where that is faster */
    bool channels_last; /* of out */
    int rank;           /* spatial dims that the op has, 1 to 3 */
    int64_t batch, channels, out_channels, groups;
    int64_t in_size[3], out_size[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t x_offset, x_batch, x_channel, x_spatial[3];
    int64_t weight_offset, weight_out, weight_in, weight_spatial[3];
    int epilogue;       /* kernel number, or -1 */
    ConvolutionEnd end; /* what the epilogue amounts to, where run/method.c knows it */
    int8_t method;      /* of run/conv.h; 0: the one that its model chooses */
    const void *packed; /* the weight as convolution_pack left it, when it is constant; or NULL */
} ConvolutionStep;

/* out[b][r] = sum over the columns c of w[c] * value[b][c], where w = softmax over c of
 * scale * query[b][r] . key[b][c] + mask[b][r][c]. A bool mask keeps the columns where it is true;
 * a causal step keeps c <= r; where nothing is kept the result is 0. Strides are in elements, and 0
 * where an operand broadcasts. */
typedef struct AttentionOperand {
    int value; /* plan value; of the mask -1: none */
    int64_t offset, batch[CB_MAX_RANK], row, column;
} AttentionOperand;

typedef struct AttentionStep {
    AttentionOperand query, key, values, mask, out;
    int8_t dtype, mask_dtype; /* mask: bool, or what is computed in: f32, f64 */
    bool causal;
    double scale;
    int64_t rows, columns, depth, width; /* depth: of a query and a key; width: of a value */
    int batch_rank;
    int64_t batch, batch_size[CB_MAX_RANK];
} AttentionStep;

/* argsort, argtopk along the last axis: row r of out, contiguous, takes the first `keep` positions
 * of row r of in, in order. Where in lies is told by strides in elements: row_size and row_stride
 * are the dims of its rows, element the step along one. */
typedef struct OpaqueStep {
    Op op;
    int in, out;
    int64_t rows, length, keep;
    bool descending;
    int64_t offset, element;
    int row_rank;
    int64_t row_size[CB_MAX_RANK], row_stride[CB_MAX_RANK];
} OpaqueStep;

/* Every element of an index value lies in [0, bound): checked before the kernel that reads through
 * it, so that kernels need no checks of their own. The first one outside is an error that names the
 * op. */
typedef struct CheckStep {
    int value; /* plan value, an integer dtype, all of its elements */
    int64_t bound;
    const Node *node; /* the gather, index_select or scatter */
} CheckStep;

typedef enum StepKind {
    STEP_KERNEL, STEP_MATMUL, STEP_CONVOLUTION, STEP_ATTENTION, STEP_OPAQUE, STEP_CHECK
} StepKind;

typedef struct Step {
    StepKind kind;
    int kernel; /* STEP_KERNEL */
    union {
        MatmulStep matmul;
        ConvolutionStep convolution;
        AttentionStep attention;
        OpaqueStep opaque;
        CheckStep check;
    };
    const char *origin;
} Step;

/* What a step that is no kernel reads and writes, for whoever does not care what it computes. */
typedef struct StepUse {
    int in[4], in_count;
    int out;      /* -1: none */
    int epilogue; /* kernel, or -1; of STEP_KERNEL the kernel itself */
} StepUse;
StepUse step_use(const Step *step);
int64_t step_flops(const Step *step); /* of products, convolutions and attention; else 0 */
/* Bytes of scores and weights that the same attention in single ops writes and reads again. */
int64_t attention_saved_bytes(const AttentionStep *step);

typedef struct PlanOutput {
    int value;
    Meta meta;
    int mutated_input; /* -1, or the input that takes the value after the run */
    int alias_input;   /* -1, or the input that this output simply is */
} PlanOutput;

typedef struct Refusal { /* why two nodes stayed apart */
    Reason reason;       /* a row of reasons.def of kind fusion */
    const Node *producer, *consumer;
} Refusal;

typedef struct PlanTime { /* of making it, and its engine */
    double passes_ms, schedule_ms, source_ms, compiler_ms;
} PlanTime;

typedef struct Plan {
    Arena *arena;
    PlanValue *value;   /* vec */
    Kernel **kernel;    /* vec */
    Step *step;         /* vec, in order */
    PlanOutput *output; /* vec: outputs, then mutations */
    Refusal *refusal;   /* vec */
    Meta *input;        /* vec: metas of the graph's inputs; inputs are contiguous unless strided */
    int output_count;   /* without the mutations */
    int64_t arena_bytes;
    int draws;                  /* random draws of one run */
    int64_t bytes, bytes_eager; /* memory traffic of one run; of eager, op by op */
    int64_t flops; /* multiplications and additions of products and convolutions in one run */
    int kernels_eager;
    int copies; /* outputs and mutated inputs that take an input as it is: no step makes them */
    PlanTime time;
} Plan;

int64_t step_bytes(const Plan *plan, const Step *step); /* that it moves, with its epilogue */

/* What eager does for a graph as the user wrote it: launches (views cost nothing) and bytes. */
void graph_eager_cost(Graph *graph, int *kernels, int64_t *bytes);

/* The whole middle of the pipeline: decomposed, optimized graph -> plan.
 * input_stride[k], NULL for contiguous: strides of input k (constants included) in elements, baked
 * into the kernels. fuse false: one kernel per node. */
Plan *plan_build(Graph *graph, Arena *arena, const int64_t *const *input_stride, bool fuse);
void plan_print(const Plan *plan, Buffer *out);
void plan_print_steps(const Plan *plan, Buffer *out); /* steps, outputs and mutations alone */

#endif
