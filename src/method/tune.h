/* Measuring who is fastest (option mode=max-autotune). */
#ifndef CARBIDE_METHOD_TUNE_H
#define CARBIDE_METHOD_TUNE_H

#include "method/work.h"

enum { MOST_CANDIDATES = 16 };

typedef struct Candidate {
    Work work; /* but for the packed weight */
    double ms; /* out: its best run */
} Candidate;

/* Times the step with each candidate, on memory of the real sizes, or finds what was measured
 * before in the disk cache. The fastest one; -1: memory ran out. weight, epilogue: as for
 * method_choose. */
int tune(const Plan *plan, const Step *step, const void *weight, const Launch *epilogue,
         Candidate *candidate, int count, bool *from_disk);

#endif
