/* Executables as people look at them. Knows graphs, plans and executables, nothing of functions
 * that were captured (capture/summary.c, capture/page.c).
 *
 *   rows.c   an executable -> rows, equal steps in one, the dearest first
 *   page.h   and the pieces of a page about it */
#ifndef CARBIDE_REPORT_REPORT_H
#define CARBIDE_REPORT_REPORT_H

#include "run/execute.h"

/* ---- rows ---------------------------------------------------------------------------------- */

typedef struct StepRow { /* steps of the same text */
    const char *text;    /* "matmul f32: 1 x [4, 784] x [784, 512]; vector, then add, relu" */
    int count, first;    /* first: the number of the first of them; of copies one more than all */
    int64_t bytes, flops;
    double ms; /* the shortest times, together; negative: not all of them are known */
} StepRow;

/* A vec, by time, or by bytes where times are not known. */
StepRow *report_rows(const Executable *executable, Arena *arena);
/* What one run takes at its best, in milliseconds; negative: unknown (option profile). */
double report_ms(const Executable *executable);

/* The roofline. Measured at the first call, and raised by steps that came to more, out of cache. */
typedef struct RoofTimes { /* in milliseconds */
    double compared, least; /* of steps that can be compared with what the machine does; the
                             * shortest that they could take */
    double cached; /* of steps whose data fits the caches, which no copy tells the speed of */
} RoofTimes;

RoofTimes report_roof(const Executable *executable);

/* "copy into 1 input, behind all steps"; false: there is none. */
bool report_copies(const Executable *executable, Buffer *out, int64_t *bytes);
void report_step(const Executable *executable, int step, Buffer *out); /* a row's text */

typedef struct RefusalRow { /* pairs of nodes that one rule kept apart */
    const Refusal *first;
    int count;
} RefusalRow;

RefusalRow *report_refusals(const Plan *plan, Arena *arena); /* a vec, the most frequent first */
/* "matmul (net.c:7) -> softmax (net.c:8)", in a module "matmul (encoder.linear) -> ..." */
void report_refusal(const Refusal *refusal, Buffer *out);
/* "vector VM", "C, compiled now"... */
const char *report_engine(const Executable *executable);
/* The rest of a line, "8.8 MB, eager 17.6 MB (2.0x); temporaries: 0 bytes", and, where something
 * is packed, another: "  packed weights: 510.7 MB, shared by 3 entries". */
void report_memory(const Executable *executable, Buffer *out);
/* The function of a kernel in the source; NULL, when an equal kernel stands for it. */
const char *report_source(const char *source, const Kernel *kernel, Arena *arena);

#endif
