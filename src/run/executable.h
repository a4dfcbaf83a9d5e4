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

/* What a kernel's function takes behind its buffers. */
typedef struct Bound {
    int slot;
    void *argument;
} Bound;

struct Executable {
    const Plan *plan; /* owns the arena that all of this lives in */
    int device;
    Launch *launch; /* by kernel */
    int launch_count;
    Generated generated;
    int *slot_value; /* plan values of all kernels' buffers, kernel after kernel */
    int *first_slot; /* by kernel: where its buffers begin */
    int slot_count;
    Bound *bound; /* vec: slots that hold the same in every run */
    Stage *stage;        /* vec */
    int64_t block_bytes; /* of one run: the plan's arena, then the stages */
    Constants constants; /* dropped where packed copies have taken over */
    Work *work;          /* by step: who computes it, and what was made for that */
    int work_count;
    SharedUse *use;   /* NULL: it shares nothing */
    Derived **packed; /* vec: packed weights, each once, however many steps read it */
    MethodRefusal refusal;
    _Atomic int64_t *step_ns; /* by step: its shortest time so far; NULL: nobody asked */
    bool *in_place; /* by plan output: a mutation that may be computed right in its input */
};

/* Around whatever reads constants and packed weights; false: they are gone. */
bool executable_enter(const Executable *executable);
void executable_leave(const Executable *executable);
const Stage *stage_of(const Executable *executable, int input); /* NULL: not staged */

#endif
