/* The pipeline: graph in, executable out (compile.c). Whoever has a graph to run comes here: a
 * recorded function, the oracle that checks it, one op of eager, the constants of a plan. */
#ifndef CARBIDE_RUN_COMPILE_H
#define CARBIDE_RUN_COMPILE_H

#include "graph/partition.h"
#include "run/execute.h"

typedef struct CompileOptions {
    bool optimize; /* false: a part of an optimized graph: only the passes that scheduling needs */
    bool fuse;     /* false: one kernel per op */
    bool generate; /* C code; false: the vector VM */
    PlanSizes sizes; /* with generate */
    bool later;    /* with generate: the code comes from compile_later; the VM runs until then */
    bool oracle;   /* the vector VM in f64 */
    bool choose;   /* providers and methods by option provider; false: our own engine alone */
    bool tune;     /* and by measurement */
    bool lean;     /* keeps what runs need alone: the graph goes at once */
    bool report;   /* writes the dumps that are asked for, and finds out what eager would take */
    const bool *frozen;   /* by argument: its elements never change, now or later; NULL: none is
                           * known to */
    Tensor *const *value; /* with frozen: the arguments */
    const JointGraph *joint; /* or NULL: the gradients of the graph's outputs go, behind the passes,
                              * to a graph of their own, in an arena of its own that is the
                              * caller's, also on failure, where it is not NULL: */
    BackwardGraph *backward;
} CompileOptions;

/* Takes over the graph's arena, also on failure, which is NULL and means that memory ran out.
 * input_stride[k]: strides of argument k, NULL when it is contiguous; NULL: all are. */
Executable *compile_graph(Graph *graph, const int64_t *const *input_stride, CompileOptions options);
/* The C code that was left for later (executable_generate), on any thread. False: out of memory. */
bool compile_later(Executable *executable, Stop *stop);

#endif
