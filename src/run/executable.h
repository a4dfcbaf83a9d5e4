/* What building (run/executable.c) leaves for running (run/execute.c). */
#ifndef CARBIDE_RUN_EXECUTABLE_H
#define CARBIDE_RUN_EXECUTABLE_H

#include "jit/generate.h"
#include "run/execute.h"

#include <stdatomic.h>

/* An input whose old elements are still wanted after the run wrote to it: copied to the block
 * before. */
typedef struct Stage {
    int input;
    int64_t offset; /* into the block */
} Stage;

/* Who reads what an executable shares with others, and whether that is still there. */
typedef struct SharedUse {
    _Atomic int readers;
    _Atomic bool retired; /* for good: whoever comes now reads nothing */
} SharedUse;

/* The kernels made runnable. */
typedef struct Engine {
    Launch *launch;   /* by kernel */
    int launch_count; /* that are its own */
    Generated generated;
    Arena *arena; /* where it is not the plan's */
} Engine;

struct Executable {
    const Plan *plan; /* owns the arena that all of this lives in */
    int device;
    PlanSizes sizes;
    Engine first;
    _Atomic(Engine *) engine; /* the first, until generated code takes over that was made later */
    _Atomic bool pends;       /* that has not happened yet */
    double pends_since;
    int *slot_value; /* plan values of all kernels' buffers, kernel after kernel */
    int *first_slot; /* by kernel: where its buffers begin */
    int slot_count;
    Stage *stage;        /* vec */
    int64_t block_bytes; /* of one run: the plan's arena, then the stages */
    Constants constants; /* dropped where packed copies have taken over */
    Work *work;          /* by step: who computes it, and what was made for that */
    int work_count;
    SharedUse *use;   /* NULL: it shares nothing */
    Derived **packed; /* vec: packed weights, each once, however many steps read it */
    MethodRefusal refusal;
    _Atomic int64_t *step_ns; /* by step, and of the copies behind: its shortest time so far; NULL:
                               * nobody asked */
    bool direct; /* a kernel writes to an input (PlanOutput.direct) */
    bool *in_place; /* by plan output: a mutation that may be computed right in its input */
};

/* Around whatever reads constants and packed weights; false: they are gone. */
bool executable_enter(const Executable *executable);
void executable_leave(const Executable *executable);
/* At this moment: a run may begin on the VM and end in generated code. */
static inline const Launch *executable_launch(const Executable *executable, int kernel) {
    return &atomic_load_explicit(&executable->engine, memory_order_acquire)->launch[kernel];
}

/* engine.c: the first one, in the plan's arena; false: out of memory. */
bool engine_prepare(Executable *executable, ExecutableOptions options);
void engine_free(Executable *executable); /* all of them; what was prepared in part, too */

const Stage *stage_of(const Executable *executable, int input); /* NULL: not staged */

#endif
