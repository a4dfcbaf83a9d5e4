/* Kernels as C text through the C compiler, or as the shared object that the disk cache has of it
 * (code.c). */
#ifndef CARBIDE_JIT_CODE_H
#define CARBIDE_JIT_CODE_H

#include "base/reason.h"
#include "base/worker.h"
#include "jit/cache.h"
#include "lower/function.h"

#include <stddef.h>

typedef struct Code Code; /* one loaded shared object, reference-counted; dlclose'd with the last */
typedef enum CodeOrigin { CODE_COMPILED, CODE_FROM_DISK, CODE_IN_PROCESS } CodeOrigin;
typedef struct CodeResult {
    Code *code; /* NULL: reason and message say why */
    Reason reason;
    char *message; /* the compiler's own words, heap text, or NULL */
    Reason cache;  /* why the disk cache was not used, or replaced an entry; REASON_NONE: all
                       * well */
    CodeOrigin origin; /* in the process: it had the same code */
    double milliseconds;
} CodeResult;
/* source: a whole C file (codegen/c/c.h) with the named functions; an object that lacks one is not
 * taken, be it the compiler's or the cache's. Same source, compiler, flags and CPU: same key. When
 * it is stopped, the compiler is killed: compile_stopped. */
CodeResult code_load(const char *source, size_t length, const char *const *name, int names,
                     Stop *stop);
KernelFunction *code_function(const Code *code, const char *name);
Code *code_retain(Code *code);
void code_release(Code *code);
/* All that the object of a source depends on, as lines (jit/cache.h); false: there is no
 * compiler. */
bool code_describe(const char *source, size_t length, char *description, size_t bytes);
/* The description under which other machines find the object of such a description
 * (jit/artifact.c); false: it is of another version, of other flags, or cut short. */
bool code_describe_for_others(const char *description, char *out, size_t bytes);
/* The keys of the disk cache that the loaded code has now, "" for what is not kept there; for
 * memory_free. NULL: out of memory. */
char (*code_keys(int *count))[CACHE_KEY];
void code_cleanup(void); /* forgets what is known of the compiler; loaded code stays with its
                          * owners */

#endif
