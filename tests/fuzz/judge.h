/* Do two engines agree on a recipe? The rule of PyTorch's suites, and what rounding may decide. */
#ifndef CARBIDE_FUZZ_JUDGE_H
#define CARBIDE_FUZZ_JUDGE_H

#include "recipe.h"

enum { MAX_OUTPUTS = 2, MAX_ELEMENTS = 4096, JITTERS = 8 };

typedef struct Result {
    int count;
    bool failed;
    Meta meta[MAX_OUTPUTS];
    double value[MAX_OUTPUTS][MAX_ELEMENTS];
} Result;

void result_collect(Result *result, cb_tensor *const *output, int count);
/* The recipe itself, eagerly. */
void run_eager(const Recipe *recipe, Result *result);

typedef enum Verdict { AGREE, AGREE_BY_JITTER, DIFFER } Verdict;

/* *why: what differs. AGREE_BY_JITTER: only where the result depends on how a rounding falls. */
Verdict judge(const Recipe *recipe, const Result *eager, const Result *other, const char **why);

#endif
