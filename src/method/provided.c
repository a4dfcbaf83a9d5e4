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
#include "method/offer.h"
#include "method/plugin.h"
#include "method/work.h"
#include <string.h>

typedef struct Version Version;
struct Version {
    Version *_Atomic next;
    int threads;
    void *work;
    ProviderSizes sizes;
    Storage *packed; /* NULL: runs read the weight itself */
};

typedef struct Provided {
    const Provider *provider;
    Offer offer;
    KnownEnd end; /* that the provider computes; not fused: none */
    int64_t element;
    Version first;
    _Atomic bool failed;
    Storage *_Atomic plain; /* the weight, for our own engine */
} Provided;

static const void *at(const Provided *p, const void *base, int64_t offset) {
    return (const char *)base + offset * p->element;
}

/* ---- versions ----------------------------------------------------------------------------- */

static bool create(Provided *p, Version *version, char *why, size_t why_bytes) {
    ProviderTask task = p->offer.task;
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

/* The weight where the task has it, or NULL. */
static Storage *unpack(const Provided *p) {
    const Version *first = &p->first;
    int64_t offset = p->offer.weight_offset, count = offset + p->offer.weight_span;
    Storage *plain = storage_new((size_t)(count * p->element));
    void *to = plain ? (char *)plain->data + offset * p->element : NULL;
    if (plain && p->provider->unpack(first->work, first->packed->data, to)) return plain;
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
    if (plain) weight = at(p, plain->data, p->offer.weight_offset);
    bool ready = created && pack(p, version, weight);
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

/* Element 0 of the weight's value, or NULL. */
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

static bool run_own(const Work *work, Operands operands) {
    Provided *p = work->state;
    operands.in[TASK_WEIGHT] = plain_weight(p, operands.in[TASK_WEIGHT]);
    if (!operands.in[TASK_WEIGHT]) {
        fail(CB_ERR_COMPILE, "%s failed, and its packed weight cannot be unpacked",
             p->provider->name);
        return false;
    }
    Work own = {.task = work->task, .method = method_own(work->task, false), .end = work->end};
    return work_run(&own, operands);
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

bool provided_run(const Work *work, const Operands *given) {
    Provided *p = work->state;
    const Offer *offer = &p->offer;
    const KnownEnd *end = &p->end;
    const void *weight = given->in[TASK_WEIGHT];
    void *const *buffer = given->epilogue_buffer;
    const void *first = weight ? at(p, weight, offer->weight_offset) : NULL;
    ProviderOperands operands = {
        .x = at(p, given->in[0], offer->x_offset), .weight = first, .out = given->out};
    if (end->scale >= 0) operands.scale = buffer[end->scale];
    if (end->bias >= 0) operands.bias = buffer[end->bias];
    if (end->residual >= 0) operands.residual = buffer[end->residual];
    Version *version = p->failed ? NULL : version_for(p, parallel_threads(), first);
    Outcome outcome = version ? run_version(p, version, operands) : FAILED;
    if (outcome == FAILED) {
        if (version) p->failed = true;
        return run_own(work, *given);
    }
    if (outcome == DONE && given->epilogue && !end->fused)
        return launch_run(given->epilogue, buffer);
    return outcome == DONE;
}

/* ---- entry -------------------------------------------------------------------------------- */

static void set_end(Provided *p, KnownEnd end) {
    ProviderTask *task = &p->offer.task;
    p->end = end;
    task->scale = end.scale >= 0, task->bias = end.bias >= 0, task->residual = end.residual >= 0;
    task->relu = end.relu;
    task->bias_dtype = task->bias ? end.bias_dtype : task->dtype;
}

/* The version that all others are made from. The caller holds the lock: a provider may have locks
 * of its own, which a fork meanwhile would leave taken. */
static bool create_first(Provided *p, const void *weight, char *why, size_t why_bytes) {
    bool created = create(p, &p->first, why, why_bytes);
    if (!created && p->end.fused) {
        set_end(p, (KnownEnd){.scale = -1, .bias = -1, .residual = -1});
        created = create(p, &p->first, why, why_bytes);
    }
    if (created && weight && !pack(p, &p->first, at(p, weight, p->offer.weight_offset))) {
        snprintf(why, why_bytes, "the weight cannot be packed");
        created = false;
    }
    return created;
}

static bool refuse(MethodRefusal *refusal, Reason reason, const char *detail) {
    if (refusal->reason != REASON_NONE) return false;
    refusal->reason = reason;
    snprintf(refusal->detail, sizeof refusal->detail, "%s", detail);
    return false;
}

/* For explain: "onednn (brgemm:avx512_core, fused)" */
static void describe(Work *work, const char *name, bool epilogue) {
    const Provided *p = work->state;
    const char *fused = !epilogue ? "" : p->end.fused ? ", fused" : ", epilogue after";
    work->epilogue = p->end.fused ? EPILOGUE_FUSED : EPILOGUE_AFTER;
    work->packs = p->first.packed != NULL;
    work->version = p->provider->version;
    snprintf(work->text, sizeof work->text, "%s (%s%s)", name, p->first.sizes.method, fused);
}

bool provided_create(Work *work, const MethodCall *call, MethodRefusal *refusal) {
    char why[128] = "out of memory", text[256];
    Offer offer;
    if (!offer_of(work->task, work->method->variant, call->weight != NULL, &offer))
        return refuse(refusal, REASON_provider_refused, "only f32 and bf16 steps are offered");
    const Plugin *plugin = plugin_find(call->name);
    const Provider *provider = plugin->provider;
    if (!provider) return refuse(refusal, plugin->reason, plugin->detail);
    Provided *p = work->state = memory_zalloc(sizeof *p);
    bool created = p != NULL;
    if (created) {
        *p = (Provided){.provider = provider, .offer = offer};
        p->element = (int64_t)cb_dtype_size(offer.task.dtype);
        p->first.threads = parallel_threads();
        set_end(p, work->end);
        lock_take(LOCK_provided);
        created = create_first(p, call->weight, why, sizeof why);
        lock_give(LOCK_provided);
    }
    if (created) {
        describe(work, call->name, call->step->kernel >= 0);
        return true;
    }
    provided_free(work);
    snprintf(text, sizeof text, "%s %s: %s", provider->name, provider->version, why);
    return refuse(refusal, REASON_provider_refused, text);
}

void provided_free(Work *work) {
    Provided *p = work->state;
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
    work->state = NULL;
}
