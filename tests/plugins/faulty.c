/* Providers that fail in one way each: FAULT is a number of the list below. The rest of each works:
 * it keeps the weight as a copy. SLOW does not fail: it multiplies matrices, takes its time to be
 * made while the environment has CARBIDE_TEST_SLOW, and counts its runs where CARBIDE_TEST_RUNS
 * points. */
#define _GNU_SOURCE
#include "method/provider.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    NOTHING,
    WRONG_INTERFACE,
    NO_LIBRARY,
    CREATE_FAILS,
    PACK_FAILS,
    RUN_FAILS,
    SLOW,
    SILENT,
    WRONG_TASK
};

typedef struct FaultyWork {
    size_t bytes;
    ProviderTask task;
} FaultyWork;

static size_t span(const ProviderTask *task) {
    int64_t last = 0;
    for (int d = 0; d < task->weight.rank; d++)
        last += (task->weight.size[d] - 1) * task->weight.stride[d];
    return (size_t)(last + 1) * (task->dtype == CB_F32 ? 4 : 2);
}

static void *create(const ProviderTask *task, ProviderSizes *sizes, char *why, size_t why_bytes) {
    snprintf(why, why_bytes, "it is not in the mood");
    if (FAULT == CREATE_FAILS || (FAULT == SLOW && task->kind != PROVIDER_MATMUL)) return NULL;
    if (FAULT == SLOW && getenv("CARBIDE_TEST_SLOW")) usleep(500 * 1000);
    FaultyWork *work = malloc(sizeof *work);
    if (!work) return NULL;
    work->bytes = span(task);
    work->task = *task;
    *sizes = (ProviderSizes){.packed = work->bytes, .scratch = 100, .method = "faulty"};
    return work;
}

static bool pack(const void *work, const void *weight, void *packed) {
    memcpy(packed, weight, ((const FaultyWork *)work)->bytes);
    return FAULT != PACK_FAILS;
}

static bool unpack(const void *work, const void *packed, void *weight) {
    memcpy(weight, packed, ((const FaultyWork *)work)->bytes);
    return true;
}

/* f32, a product of matrices, no epilogue. */
static void multiply(const ProviderTask *task, const ProviderOperands *operands) {
    const float *x = operands->x, *weight = operands->packed;
    const int64_t *xs = task->x.stride, *ws = task->weight.stride;
    float *out = operands->out;
    for (int64_t i = 0; i < task->x.size[0]; i++)
        for (int64_t j = 0; j < task->weight.size[1]; j++) {
            float sum = 0;
            for (int64_t k = 0; k < task->x.size[1]; k++)
                sum += x[i * xs[0] + k * xs[1]] * weight[k * ws[0] + j * ws[1]];
            *out++ = sum;
        }
}

/* Not in the environment: setenv has a lock of its own, and a child that is forked while another
 * thread holds it waits for it forever. */
static void count_run(void) {
    const char *place = getenv("CARBIDE_TEST_RUNS");
    if (place) atomic_fetch_add((_Atomic int *)(uintptr_t)strtoull(place, NULL, 16), 1);
}

static bool run(const void *work, const ProviderOperands *operands) {
    if (FAULT == SLOW) {
        multiply(&((const FaultyWork *)work)->task, operands);
        count_run();
        return true;
    }
    memset(operands->scratch, 1, 100);
    return false;
}

static const Provider provider = {.interface = PROVIDER_INTERFACE + (FAULT == WRONG_INTERFACE),
                                  .task_bytes = sizeof(ProviderTask) + (FAULT == WRONG_TASK),
                                  .name = "Faulty",
                                  .version = "0",
                                  .library = "none",
                                  .create = create,
                                  .pack = pack,
                                  .unpack = unpack,
                                  .run = run,
                                  .free = free};

/* A plugin of nothing lacks the symbol. */
#if FAULT == 0
#define carbide_provider carbide_nothing
#endif
__attribute__((visibility("default"))) const Provider *carbide_provider(const char **why);
const Provider *carbide_provider(const char **why) {
    if (FAULT != SILENT) *why = "its library has other plans";
    return FAULT == NO_LIBRARY || FAULT == SILENT ? NULL : &provider;
}
