/* Capture: a function's op calls become a graph. What TorchDynamo does, without bytecode: ops are
 * calls, so running the function is the analysis.
 *
 * A call of a compiled function goes through these files, all over traces (src/trace): storage,
 * comparison, running op by op, which is the fallback of everything.
 *
 *   function.c   the public API: guards choose entries, notes
 *   call.c       one call: the function runs under a tracer, and what it recorded is computed
 *   guard.c      what an entry expects of its inputs
 *   conditions.c what it expects around them: autocast, precision, under fullgraph the module
 *   stance.c     what may be compiled: the option stance, the limit of entries
 *   passing.c    sizes that do not come back are not compiled at once
 *   retire.c     entries of other sizes: which of them stay
 *   find.c       one of hundreds, by a hash of its inputs or of the op that told it from others
 *   sizes.c      which sizes of an entry others will have
 *   miss.c       why no entry takes a call's inputs
 *   line.c       what most ops of a replay are compared with, and that comparison
 *   match.c      whether an op is the next one of the trace, or of another one
 *   replay.c     the tracer while a recorded trace repeats: match the op, hand out a shell
 *   segment.c    events: values are asked for in the middle, and the call goes on behind them
 *   left.c       segments that are left: what of them lives, and values that wait to be asked for
 *   promise.c    histories of what lives behind events
 *   slot.c       cuts before what reads a slot that was written
 *   expose.c     ops on memory that the function has a pointer into run at once
 *   values.c     the values of a call: who outlives whom
 *   gradient.c   cb_backward inside of a call: one op of the trace
 *   joint.c      cb_backward outside, of its results: what leads back is recorded with them
 *   backward.c   that as a graph of its own, and what calls keep for it
 *   unroll.c     gradients of gradients: the ops of a compiled call once more, on the tape
 *   record.c     the tracer while something new happens: trace and graph grow together
 *   repeat.c     ops of a trace recorded once more
 *   number.c     numbers that change become arguments of the graph
 *   functional.c in-place writes and views of the trace as pure graph nodes
 *   entry.c      a finished recording becomes an executable
 *   later.c      where its C code comes from, at once or in the background
 *   launch.c     running an entry and handing out its results
 *   eager_time.c what the ops of an entry take one by one, for explain
 *   backend.c    backends of the user's in the compiler's place; backend_graph.c: what they are
 *                given; backend_inner.c: what they hand on to
 *   frozen.c     parameters that count as constants, until they are written to
 *   check.c      CARBIDE_CHECK: the same call on the float64 VM, compared
 *   option.c     options text
 *   explain.c    what cb_explain prints
 *   summary.c    the same on one screen
 *   page.c       the same as a page, and counts of all functions
 *   watch.c      option explain: all of them at the end of the program */
#ifndef CARBIDE_CAPTURE_CAPTURE_H
#define CARBIDE_CAPTURE_CAPTURE_H

#include "eager/apply.h"
#include "graph/graph.h"
#include "run/compile.h"

#endif
