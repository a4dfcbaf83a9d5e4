/* Running a step on a provider, and what happens when that cannot be.
 *
 * A provider makes its work for a number of threads. The first Version is made at compile time; a
 * call that may use another number of threads (cb_set_threads, a call inside of a parallel region,
 * a forked child) makes one more, from the weight as the first one packed it. Versions are never
 * removed, so readers take no lock.
 *
 * A provider that fails loses the step: our own engine computes it, now and later, from the weight
 * unpacked once more. */
#include "method/provided.h"

#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "method/table.h"
#include <string.h>

typedef struct Version Version;
struct Version {
    Version *_Atomic next;
    int threads;
    void *work;
    ProviderSizes sizes;
    Storage *packed; /* NULL: runs read the weight itself */
};

struct Provided {
    const Provider *provider;
    StepTask task;
    Task own; /* for our own engine: the weight at offset 0 */
    int64_t element;
    Version first;
    _Atomic bool failed;
    Storage *_Atomic plain; /* the weight, for our own engine */
};

static const void *at(const Provided *p, const void *base, int64_t offset) {
    return (const char *)base + offset * p->element;
}

/* ---- versions ----------------------------------------------------------------------------- */

static bool create(Provided *p, Version *version, char *why, size_t why_bytes) {
    ProviderTask task = p->task.task;
    task.threads = version->threads;
    version->work = p->provider->create(&task, &version->sizes, why, why_bytes);
    return version->work != NULL;
}

/* weight: its first element. */
static bool pack(const Provided *p, Version *version, const void *weight) {
    if (version->sizes.packed == 0) return true;
    version->packed = storage_new(version->sizes.packed);
    return version->packed && p->provider->pack(version->work, weight, version->packed->data);
}

static void clear(const Provided *p, Version *version) {
    if (version->work) p->provider->free(version->work);
    if (version->packed) storage_release(version->packed);
    version->work = NULL;
    version->packed = NULL;
}

/* The weight as the task describes it, or NULL. */
static Storage *unpack(const Provided *p) {
    const Version *first = &p->first;
    Storage *plain = storage_new((size_t)(p->task.weight_span * p->element));
    if (plain && p->provider->unpack(first->work, first->packed->data, plain->data)) return plain;
    if (plain) storage_release(plain);
    return NULL;
}

/* The caller holds the lock. */
static Version *add_version(Provided *p, int threads, const void *weight) {
    Version *version = memory_zalloc(sizeof *version), *last = &p->first;
    char why[8];
    if (!version) return NULL;
    version->threads = threads;
    Storage *plain = p->first.packed ? unpack(p) : NULL;
    bool has_weight = plain || !p->first.packed;
    bool created = has_weight && create(p, version, why, sizeof why);
    bool ready = created && pack(p, version, plain ? plain->data : weight);
    if (has_weight && !created) p->failed = true; /* for good: memory that lacks may come back */
    if (plain) storage_release(plain);
    if (!ready) {
        clear(p, version);
        memory_free(version);
        return NULL;
    }
    while (last->next) last = last->next;
    last->next = version;
    return version;
}

static Version *find(Provided *p, int threads) {
    Version *version = &p->first;
    while (version && version->threads != threads) version = version->next;
    return version;
}

static Version *version_for(Provided *p, int threads, const void *weight) {
    Version *version = find(p, threads);
    if (version) return version;
    lock_take(LOCK_provided);
    version = find(p, threads);
    if (!version) version = add_version(p, threads, weight);
    lock_give(LOCK_provided);
    return version;
}

/* ---- our own engine instead --------------------------------------------------------------- */

static const void *plain_weight(Provided *p, const void *weight) {
    if (!p->first.packed) return weight;
    Storage *plain = p->plain;
    if (plain) return plain->data;
    lock_take(LOCK_provided);
    if (!p->plain) p->plain = unpack(p);
    plain = p->plain;
    lock_give(LOCK_provided);
    return plain ? plain->data : NULL;
}

static bool run_own(Provided *p, const void *weight, Operands operands) {
    operands.in[TASK_WEIGHT] = plain_weight(p, weight);
    if (!operands.in[TASK_WEIGHT]) {
        fail(CB_ERR_COMPILE, "%s failed, and its packed weight cannot be unpacked",
             p->provider->name);
        return false;
    }
    const Method *own = method_own(&p->own, false);
    return own->run(&p->own, own->variant, &operands);
}

/* ---- running ------------------------------------------------------------------------------ */

typedef enum Outcome { DONE, NO_MEMORY, FAILED } Outcome;

static Outcome run_version(const Provided *p, const Version *version, ProviderOperands operands) {
    Storage *scratch = NULL;
    if (version->sizes.scratch) {
        scratch = storage_new(version->sizes.scratch);
        if (!scratch) return NO_MEMORY;
        operands.scratch = scratch->data;
    }
    if (version->packed) operands.packed = version->packed->data;
    bool ok = p->provider->run(version->work, &operands);
    if (scratch) storage_release(scratch);
    return ok ? DONE : FAILED;
}

bool provided_run(Provided *p, const Operands *given) {
    const StepTask *task = &p->task;
    const void *weight = given->in[TASK_WEIGHT];
    void *const *epilogue_buffer = given->epilogue_buffer;
    const void *first = weight ? at(p, weight, task->weight_offset) : NULL;
    ProviderOperands operands = {
        .x = at(p, given->in[0], task->x_offset), .weight = first, .out = given->out};
    if (task->scale >= 0) operands.scale = epilogue_buffer[task->scale];
    if (task->bias >= 0) operands.bias = epilogue_buffer[task->bias];
    if (task->residual >= 0) operands.residual = epilogue_buffer[task->residual];
    Version *version = p->failed ? NULL : version_for(p, parallel_threads(), first);
    Outcome outcome = version ? run_version(p, version, operands) : FAILED;
    if (outcome == FAILED) {
        if (version) p->failed = true;
        return run_own(p, first, *given);
    }
    if (outcome == DONE && given->epilogue && !task->fused)
        return launch_run(given->epilogue, epilogue_buffer);
    return outcome == DONE;
}

/* ---- entry -------------------------------------------------------------------------------- */

static void set_own(Provided *p, const Task *own) {
    p->own = *own;
    if (own->kind == TASK_MATMUL)
        p->own.matmul.b_offset = 0;
    else
        p->own.convolution.weight_offset = 0;
}

/* The version that all others are made from. The caller holds the lock: a provider may have locks
 * of its own, which a fork meanwhile would leave taken. */
static bool create_first(Provided *p, const void *weight, char *why, size_t why_bytes) {
    const ProviderTask *task = &p->task.task;
    bool created = create(p, &p->first, why, why_bytes);
    bool with_epilogue = task->scale || task->bias || task->residual || task->relu;
    if (!created && with_epilogue) {
        task_unfuse(&p->task);
        created = create(p, &p->first, why, why_bytes);
    }
    if (created && weight && !pack(p, &p->first, at(p, weight, p->task.weight_offset))) {
        snprintf(why, why_bytes, "the weight cannot be packed");
        created = false;
    }
    return created;
}

Provided *provided_new(const Provider *provider, const StepTask *task, const Task *own,
                       const void *weight, char *why, size_t why_bytes) {
    Provided *p = memory_zalloc(sizeof *p);
    snprintf(why, why_bytes, "out of memory");
    if (!p) return NULL;
    p->provider = provider;
    p->task = *task;
    p->element = (int64_t)cb_dtype_size(task->task.dtype);
    p->first.threads = parallel_threads();
    set_own(p, own);
    lock_take(LOCK_provided);
    bool created = create_first(p, weight, why, why_bytes);
    lock_give(LOCK_provided);
    if (created) return p;
    provided_free(p);
    return NULL;
}

void provided_free(Provided *p) {
    if (!p) return;
    lock_take(LOCK_provided);
    for (Version *v = p->first.next, *next; v; v = next) {
        next = v->next;
        clear(p, v);
        memory_free(v);
    }
    clear(p, &p->first);
    lock_give(LOCK_provided);
    if (p->plain) storage_release(p->plain);
    memory_free(p);
}

bool provided_packs(const Provided *p) { return p->first.packed != NULL; }

bool provided_fuses(const Provided *p) { return p->task.fused; }

const char *provided_method(const Provided *p) { return p->first.sizes.method; }

const char *provided_version(const Provided *p) { return p->provider->version; }
