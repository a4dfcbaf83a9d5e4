/* The plan: a flat list of steps over values with fixed places.
 * A value is an input of the call, an output (or mutated input), a constant, or a temporary at a
 * fixed offset of one arena block; temporaries whose lives do not overlap share bytes
 * (sched/memory.c). */
#ifndef CARBIDE_SCHED_PLAN_H
#define CARBIDE_SCHED_PLAN_H

#include "base/reason.h"
#include "graph/graph.h"
#include "lower/loop.h"
#include "sched/region.h"
#include "task/task.h"

typedef enum __attribute__((packed)) ValuePlace {
    VALUE_INPUT,
    VALUE_OUTPUT,
    VALUE_TEMPORARY,
    VALUE_CONSTANT,
    VALUE_RANDOM
} ValuePlace;

typedef struct PlanValue {
    cb_dtype dtype;
    ValuePlace place;
    int number; /* VALUE_INPUT, VALUE_OUTPUT, VALUE_CONSTANT: which. VALUE_RANDOM: the RandomState
                 * as i64[2] */
    int64_t numel, offset; /* offset: bytes into the arena block, 64-byte aligned; of what may be
                            * computed in place, into what there is for that */
} PlanValue;

/* STEP_CHECK: all elements of an index value lie within its bound. It comes before the kernel that
 * reads through them, so that kernels need no checks of their own. STEP_WRITE: parts of a value
 * are written, and it is another one from there on. */
typedef enum StepKind { STEP_KERNEL, STEP_TASK, STEP_CHECK, STEP_CUSTOM, STEP_WRITE } StepKind;

typedef struct StepPart {
    int value;
    Region region; /* of what the step writes to */
} StepPart;

/* A step reads and writes plan values. Those of kernels are told by their buffers. */
typedef struct Step {
    StepKind kind;
    int in[OP_MAX_INPUTS], in_count;
    int out;    /* -1: none */
    Shift *shift; /* of STEP_TASK, by operand; NULL: of none */
    StepPart *part; /* vec; of STEP_WRITE: what is copied where, one after the other */
    int kernel; /* of STEP_KERNEL itself; of a task its epilogue, or -1 */
    int *list;  /* vec: kernels that run at the same time, kernel the first; NULL: it is alone */
    union {
        Task task;
        IndexBound check;
        const Node *custom; /* an operation of the user's, or a part of what one gives */
    };
    const char *origin;
} Step;

typedef struct PlanOutput {
    int value;
    Meta meta;
    int mutated_input;    /* -1, or the input that takes the value after the run */
    const Region *region; /* of a mutated input: the part of it that does; NULL: all */
    bool direct;          /* a kernel has written it there: its value is the input's */
    bool in_place;        /* it may be computed there: its value is bound to the input, by runs
                           * whose input is contiguous and overlaps no other one */
    int alias_input;      /* -1, or the input that this output simply is */
} PlanOutput;

typedef struct FusionRule { /* a row of fusion.def */
    const char *name;
    Reason reason; /* of kind fusion */
} FusionRule;

typedef struct Refusal { /* why two nodes stayed apart */
    const FusionRule *rule;
    const Node *producer, *consumer;
} Refusal;

typedef struct PlanTime { /* of making it */
    double passes_ms, schedule_ms;
} PlanTime;

typedef struct Plan {
    Arena *arena;
    const Graph *graph;    /* that it is made of, in its arena */
    Ambient ambient;       /* the graph's */
    int device;            /* the graph's */
    PlanValue *value;      /* vec */
    const Kernel **kernel; /* vec */
    Step *step;            /* vec, in order */
    PlanOutput *output;    /* vec: outputs, then mutations */
    Refusal *refusal;      /* vec */
    int *node_step;   /* by id of the graph's nodes: the step that computes it; -1: an input, or
                         * part of whatever reads it */
    Meta *input;      /* vec: metas of the graph's inputs; inputs are contiguous unless strided */
    int output_count; /* without the mutations */
    int64_t arena_bytes;
    int64_t aside_bytes; /* of what may be computed in place, for runs in which it is not */
    int draws;                  /* random draws of one run */
    bool effects;               /* a run does what is not undone: it is not run again */
    int64_t bytes, bytes_eager; /* memory traffic of one run; of eager, op by op */
    int64_t flops;              /* of its tasks, as task_flops counts them */
    int kernels_eager;
    int copies; /* outputs and mutated inputs that take an input as it is: no step makes them */
    PlanTime time;
} Plan;

/* What is known of the sizes of other calls. It lives as long as the plan. */
typedef struct PlanSizes {
    bool vary;              /* kernels are to serve other sizes, too */
    const Plan *like;       /* with vary: of the same ops over others; or NULL */
    const int64_t *varying; /* vec: sizes of tensors that were others there, or are said to be */
} PlanSizes;

typedef struct PlanOptions {
    bool fuse;       /* false: one kernel per node */
    bool generate;   /* C code walks the kernels, not the VM */
    PlanSizes sizes; /* with generate */
} PlanOptions;

/* Kernels of a step, its epilogue included. */
static inline int step_kernels(const Step *step) {
    return step->list ? length(step->list) : step->kernel >= 0;
}
static inline int step_kernel(const Step *step, int i) {
    return step->list ? step->list[i] : step->kernel;
}

/* Whether it has a buffer of the value. One that writes to where an input lies has decided for
 * itself that it may (PlanOutput.direct). */
bool kernel_reads(const Kernel *kernel, int value);
int64_t step_flops(const Step *step);                   /* of its task; else 0 */
int64_t step_bytes(const Plan *plan, const Step *step); /* that it moves, with its epilogue */

/* What eager does for a graph as the user wrote it: launches (views cost nothing) and bytes. */
void graph_eager_cost(Graph *graph, int *kernels, int64_t *bytes);

/* The whole middle of the pipeline: a graph that has been through the passes -> plan.
 * input_stride[k], NULL for contiguous: strides of argument k in elements, baked into the kernels.
 * A constant that is an argument lies as that does. */
Plan *plan_build(Graph *graph, Arena *arena, const int64_t *const *input_stride,
                 PlanOptions options);
void plan_print(const Plan *plan, Buffer *out);
void plan_print_steps(const Plan *plan, Buffer *out); /* steps, outputs and mutations alone */

#endif
