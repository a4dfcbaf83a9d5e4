/* Capture: a function's op calls become a graph. What TorchDynamo does, without bytecode: ops are
 * calls, so running the function is the analysis.
 *
 * A call of a compiled function goes through these files:
 *
 *   function.c   the public API: guards choose entries, notes
 *   call.c       one call: the function runs under a tracer, and what it recorded is computed
 *   guard.c      what an entry expects of its inputs
 *   conditions.c what it expects around them: autocast, precision, under fullgraph the module
 *   miss.c       why no entry takes a call's inputs
 *   replay.c     the tracer while a recorded trace repeats: match the op, hand out a shell
 *   record.c     the tracer while something new happens: trace and graph grow together
 *   functional.c in-place writes and views of the trace as pure graph nodes
 *   trace.c      the flat trace: storage, comparison, running it op by op (the fallback of
 *                everything)
 *   entry.c      a finished recording becomes an executable
 *   launch.c     running an entry and handing out its results
 *   frozen.c     parameters that count as constants, until they are written to
 *   check.c      CARBIDE_CHECK: the same call on the float64 VM, compared
 *   option.c     options text
 *   explain.c    what cb_explain prints
 *
 * Above it stands compile.c, which this layer declares: graph in, executable out. */
#ifndef CARBIDE_CAPTURE_CAPTURE_H
#define CARBIDE_CAPTURE_CAPTURE_H

#include "graph/graph.h"
#include "run/execute.h"
#include "tensor/apply.h"

typedef struct CompileOptions {
    bool generate; /* C code; false: the vector VM */
    bool tune;     /* measures who computes products and convolutions */
    bool fuse;     /* false: one kernel per op */
    bool oracle;   /* the vector VM in f64, whatever generate says; leaves no dumps */
    const bool *frozen;   /* by input: its elements never change, now or later; NULL: none is known
                           * to */
    Tensor *const *value; /* with frozen: the inputs */
} CompileOptions;

/* src/compile.c: the whole pipeline. Takes over the graph's arena, also on failure, which is NULL
 * and means that memory ran out. input_stride[k]: strides of input k, NULL when it is
 * contiguous. */
Executable *compile_graph(Graph *graph, const int64_t *const *input_stride, CompileOptions options);

#endif
