/* The C compiler as a program: found in PATH, run with a time limit, its words captured. */
#ifndef CARBIDE_JIT_COMPILER_H
#define CARBIDE_JIT_COMPILER_H

#include "base/reason.h"
#include "base/worker.h"

enum { COMPILER_PATH = 4096 };

typedef struct Compiler {
    char path[COMPILER_PATH];
    char real[COMPILER_PATH]; /* with every symbolic link resolved: it tends to name the version */
    int64_t bytes, changed;   /* of the file: an upgrade changes them */
} Compiler;

/* Option cc. False: there is none; the answer is remembered for a second. */
bool compiler_find(Compiler *compiler);
void compiler_forget(void);

typedef enum CompilerEffort {
    EFFORT_FULL,
    EFFORT_NO_EPILOGUES, /* C_HEAVY */
    EFFORT_SLIGHT        /* C_SLIGHT */
} CompilerEffort;

/* Compiles C source to a shared object at output, whose folder takes its temporary files,
 * too. REASON_NONE, compiler_failed, compiler_timeout or compile_stopped; *message is then the
 * compiler's words (heap text, or NULL). The compiler and all that it started are gone on return.
 * The limit is of processor time; by the clock it is as long for one that does nothing, and 20
 * times as long for one that others keep from computing. One that did not finish in time is run
 * again when its file changes or the limit is raised, and otherwise three times, four limits apart,
 * unless it finishes then.
 * effort: short compile times are preferred to some of the speed (codegen/c/c.h). */
Reason compiler_run(const Compiler *compiler, const char *source, size_t length,
                    CompilerEffort effort, const char *output, Stop *stop, char **message);

const char *compiler_flags(void); /* all that may be used on this level, as one line */
/* The level in use and the processor, as one line: what -mtune=native and measured times depend
 * on. */
const char *compiler_cpu(void);

#endif
