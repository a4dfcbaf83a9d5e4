/* Runs plans. An executable is a plan with its kernels made runnable; it owns the plan's arena. */
#ifndef CARBIDE_RUN_EXECUTE_H
#define CARBIDE_RUN_EXECUTE_H

#include "base/worker.h"
#include "jit/generate.h"
#include "method/method.h"
#include "run/constant.h"
#include "sched/plan.h"
#include "tensor/tensor.h"
#include "vm/launch.h"

typedef struct ExecutableOptions {
    bool generate; /* C code through the compiler; false: the VM */
    PlanSizes sizes;
    bool later;          /* with generate: the VM runs until executable_generate */
    bool oracle;         /* VM in f64: for checks */
    bool choose;         /* providers and methods by option provider; false: our own engine alone */
    bool tune;           /* and by measurement */
    Constants constants; /* of the plan: taken over */
} ExecutableOptions;

typedef struct ExecutableInfo {
    Reason reason;       /* why the VM runs although code was asked for, or REASON_NONE */
    const char *message; /* the compiler's words, or NULL */
    Reason cache;        /* why the disk cache did not serve, or REASON_NONE */
    const char *source;  /* generated C, or NULL */
    int functions;       /* for kernels that may be many more */
    int files;           /* that the compiler made, or that came from disk */
    const size_t *file_bytes; /* by file: of the source, one behind the other */
    CodeOrigin origin;
    double pending_ms; /* since when the VM runs in place of code to come; < 0: it does not */
    double source_ms, compiler_ms;
    const Work *work;      /* by step: who computes it */
    MethodRefusal refusal; /* why a provider that was wanted does not */
} ExecutableInfo;

/* Takes the arena over, also on failure (NULL with an error: out of memory). A compiler that fails
 * is no failure: the VM runs, and info says why. */
Executable *executable_new(const Plan *plan, ExecutableOptions options);
void executable_free(Executable *executable);
/* What its constants follow from has changed for good: it will never be right again. Gives back
 * what it shares with others, unless somebody runs it: then the next call does. One thread at a
 * time. */
void executable_retire(Executable *executable);
const Plan *executable_plan(const Executable *executable);
size_t executable_bytes(const Executable *executable); /* of the heap, without generated code */
ExecutableInfo executable_info(const Executable *executable);
/* Bytes of weights in the form that their methods read, and how many executables read the one that
 * most do, this one among them; 0: there are none. */
int executable_packed(const Executable *executable, int64_t *bytes);
/* What it was made without (later): makes the C code, which runs then use, also those in progress.
 * Once, on any thread. A compiler that fails, or is stopped, is no failure: see the info. False:
 * out of memory, and nothing has changed. */
bool executable_generate(Executable *executable, Stop *stop);
/* Times of what is compiled now are for people to read: options profile and explain. */
bool explain_wants_times(void);
/* The shortest time of a step of the plan in milliseconds; negative without the option profile. */
double executable_step_ms(const Executable *executable, int step);
/* How many parts of inputs are copied from memory aside when all steps have run, where inputs do
 * not overlap, and the bytes that this moves. Its time is that of the step behind the last one;
 * 0: unknown. */
int executable_copies(const Executable *executable, int64_t *bytes);
/* Bytes that a run moves, with these copies. */
int64_t executable_moves(const Executable *executable);

/* Any number of threads may run one executable. inputs: tensors with the metas (and strides) of the
 * plan, on its device or, without dimensions, on the host. outputs[0 .. plan->output_count-1] get
 * new tensors in the caller's scope; mutated inputs are written in place. false with an error when
 * memory runs out, and without one when it is retired; nothing is half-written then. On a device
 * with a queue all of it is launched, and what fails then is a fault (device/device.h). */
bool executable_run(const Executable *executable, Tensor *const *inputs, Tensor **outputs);
/* The same, where the caller has tensors without a storage, of offset 0, for some outputs:
 * shell[i], which output i is then where it has memory of its own, and gets that; or NULL. */
bool executable_run_for(const Executable *executable, Tensor *const *inputs, Tensor **outputs,
                        Tensor *const *shell);
/* The same for an only output, which no input is: its elements go into a contiguous tensor of its
 * meta. That may be an input where each element is read before the one at its place is written. */
bool executable_run_into(const Executable *executable, Tensor *const *inputs, Tensor *given);

#endif
