/* Engines: who executes a kernel. Both take the same Kernel and offer the same function.
 *
 * vm.c    a program of vector instructions over blocks that stay in L1; needs no compiler. Eager,
 *         the oracle (floats computed in f64) and the fallback.
 * code.c  C text (codegen/c.c) through the C compiler, or the shared object from the disk cache. */
#ifndef CARBIDE_RUN_ENGINE_H
#define CARBIDE_RUN_ENGINE_H

#include "base/reason.h"
#include "lower/loop.h"

/* Runs work items [low, high) of a kernel; buffer[i] is the pointer bound to kernel buffer i.
 *
 * Not split: one call does every pass; items are outer points in row-major order (in TILE form as
 * in ROW form: a
 *   TILE engine cuts the range itself into runs along the last outer axis). pass is 0, partial
 *   NULL.
 * Split: item = chunk * outer_size + outer point. The caller (run/launch.c) calls pass 0, 1, ...:
 *   pass p sweeps its chunk of the inner range and writes, for every reduce r that pass p completes
 *   (r is its position in KernelInfo.reduce), the accumulator of its chunk into slot[r * outer_size
 *   * split + item]; the caller then combines the chunks of each outer point in order, into the
 *   slot of chunk 0, from where later passes read it. pass == pass_count does the row-level stores;
 *   its items are outer points.
 * A slot is 8 bytes: double for floats, int64_t for the others (any value of a compute dtype
 * converts there and back). */
typedef void KernelFunction(void *const *buffer, int64_t low, int64_t high, int pass, void *slot);

/* ---- the vector VM (run/vm.c) ---- */
typedef struct Program Program; /* heap-allocated, immutable, shared by threads */
/* oracle: every float expression is computed in f64. NULL: out of memory. */
Program *program_build(const Kernel *kernel, bool oracle);
void program_free(Program *program);
void program_run(const Program *program, void *const *buffer, int64_t low, int64_t high, int pass,
                 void *slot);
void program_print(const Program *program, Buffer *out);

/* ---- generated code (run/code.c, run/cache.c) ---- */
typedef struct Code Code; /* one loaded shared object, reference-counted; dlclose'd with the last */
typedef struct CodeResult {
    Code *code;       /* NULL: reason and message say why */
    Reason reason;
    char *message;    /* the compiler's own words, heap text, or NULL */
    Reason cache;     /* why the disk cache was not used, or replaced an entry; REASON_NONE: all
                       * well */
    bool from_disk;
    double milliseconds;
} CodeResult;
/* source: a whole C file (codegen/c.h) with the named functions; an object that lacks one is not
 * taken, be it the compiler's or the cache's. Same source, compiler, flags and CPU: same key. */
CodeResult code_load(const char *source, size_t length, const char *const *name, int names);
KernelFunction *code_function(const Code *code, const char *name);
void code_release(Code *code);
/* All that the object of a source depends on, as lines (run/cache.h); false: there is no
 * compiler. */
bool code_describe(const char *source, size_t length, char *description, size_t bytes);
void code_cleanup(void); /* forgets what is known of the compiler; loaded code stays with its
                          * owners */

/* ---- what the executor calls (run/launch.c) ---- */
typedef struct Launch {
    KernelFunction *function; /* generated code, or NULL: program on the VM */
    Program *program;         /* owned; NULL when function is set */
    Form form;
    int64_t outer_size, split, grain; /* grain: items that are worth waking a thread for */
    int pass_count, reduce_count, buffer_count;
    /* Of a split kernel that adds to elements (STORE_ADD): these; buffer -1: it does not. */
    struct { int buffer; int8_t dtype; int64_t numel; } bins;
    /* owned, by slot: how chunks combine */
    struct { int8_t dtype; uint16_t op; int pass; } *reduce;
} Launch;
/* function NULL: the VM, in f64 when oracle is set. false: out of memory, nothing to free. */
bool launch_init(Launch *launch, const Kernel *kernel, KernelFunction *function, bool oracle);
void launch_free(Launch *launch);
/* spreads over threads; false: no memory */
bool launch_run(const Launch *launch, void *const *buffer);
/* A part of the work on this thread, with the arguments of a KernelFunction. */
void launch_part(const Launch *launch, void *const *buffer, int64_t low, int64_t high, int pass,
                 void *slot);

#endif
