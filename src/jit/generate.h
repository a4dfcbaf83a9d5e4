/* The kernels of a plan as loaded functions (jit/generate.c). */
#ifndef CARBIDE_JIT_GENERATE_H
#define CARBIDE_JIT_GENERATE_H

#include "jit/code.h"
#include "sched/plan.h"

/* In plans of fewer kernels none takes arguments, unless sizes vary. */
enum { SHARING_KERNELS = 8 };

typedef struct Generated {
    KernelFunction **function; /* by kernel, in the arena; NULL: nothing was loaded */
    void **argument;           /* by kernel: what its function takes behind the buffers; or NULL */
    int functions;             /* different ones: kernels with the same text share one */
    int files;                 /* that were compiled, or loaded from disk */
    size_t *file_bytes;        /* by file: of its source; in the arena */
    Code **code;               /* to release; in the arena */
    int code_count;
    const char *source;            /* every file, one after the other; "": there is none */
    char *message;                 /* the compiler's own words, heap text to free, or NULL */
    Reason reason;                 /* REASON_NONE, or why nothing was loaded */
    Reason cache;                  /* why the disk cache did not serve, or REASON_NONE */
    CodeOrigin origin;             /* of the file that took most: compiled, where one was */
    double source_ms, compiler_ms; /* of writing it; of compiling and loading */
} Generated;

/* Writes, compiles and loads the C of all kernels; where sizes vary, what differs between kernels
 * of a family are arguments. Works in the arena, whose escape leaves nothing
 * behind that is not in *out. */
void generate(const Plan *plan, PlanSizes sizes, Arena *arena, Stop *stop, Generated *out);
void generated_release(Generated *generated); /* the code; message stays the caller's */

#endif
