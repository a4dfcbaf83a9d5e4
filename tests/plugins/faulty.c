/* Providers that fail in one way each: FAULT is a bit of the list below. The rest of each works: it
 * keeps the weight as a copy. */
#include "run/provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTHING, WRONG_INTERFACE, NO_LIBRARY, CREATE_FAILS, PACK_FAILS, RUN_FAILS };

typedef struct Work {
    size_t bytes;
} Work;

static size_t span(const ProviderTask *task) {
    int64_t last = 0;
    for (int d = 0; d < task->weight.rank; d++)
        last += (task->weight.size[d] - 1) * task->weight.stride[d];
    return (size_t)(last + 1) * (task->dtype == CB_F32 ? 4 : 2);
}

static void *create(const ProviderTask *task, ProviderSizes *sizes, char *why, size_t why_bytes) {
    snprintf(why, why_bytes, "it is not in the mood");
    if (FAULT == CREATE_FAILS) return NULL;
    Work *work = malloc(sizeof *work);
    if (!work) return NULL;
    work->bytes = span(task);
    *sizes = (ProviderSizes){.packed = work->bytes, .scratch = 100, .method = "faulty"};
    return work;
}

static bool pack(const void *work, const void *weight, void *packed) {
    memcpy(packed, weight, ((const Work *)work)->bytes);
    return FAULT != PACK_FAILS;
}

static bool unpack(const void *work, const void *packed, void *weight) {
    memcpy(weight, packed, ((const Work *)work)->bytes);
    return true;
}

static bool run(const void *work, const ProviderOperands *operands) {
    (void)work;
    memset(operands->scratch, 1, 100);
    return false;
}

static const Provider provider = {.interface = PROVIDER_INTERFACE + (FAULT == WRONG_INTERFACE),
                                  .task_bytes = sizeof(ProviderTask),
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
    *why = "its library has other plans";
    return FAULT == NO_LIBRARY ? NULL : &provider;
}
