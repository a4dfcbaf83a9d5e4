/* Frozen tensors: captured ones whose elements the compiler may compute with, and bake in.
 *
 * With freeze=auto these are the parameters and buffers of a compiled module that is in eval mode;
 * with freeze=1 every captured tensor that the function does not write to; with freeze=0 none.
 * Behind an event a captured tensor may be an input of the function, or made by it: none is frozen
 * there but parameters of modules. The entry remembers the storage of each and its version, which
 * every in-place write raises; a call that finds another one there does not match, and records
 * anew. After MOST_CHANGES entries for the same ops and inputs, the tensors are taken to change all
 * the time, and are frozen no more.
 *
 * Small tensors that the call itself has made of no op (cb_from_data) are constants but with
 * freeze=0, wherever they lie in memory: the entry remembers their bytes. When those change once,
 * the tensor is an input from then on. Nothing is frozen where somebody may go back from the
 * results: gradients are wanted of what trains. */
#include "capture/functional.h"

#include "nn/module.h"
#include <string.h>

enum { MOST_CHANGES = 3, MOST_BYTES = 4096 };

typedef struct Storages { /* of a module's tensors */
    Arena *arena;
    const Storage **at; /* vec */
} Storages;

static void add_storage(const char *name, cb_tensor *handle, bool buffer, void *user) {
    Storages *list = user;
    const Tensor *tensor = tensor_in(handle, name);
    (void)name, (void)buffer;
    if (tensor->storage) push(list->arena, list->at, tensor->storage);
}

static bool has_storage(const Storages *list, const Storage *storage) {
    for (int i = 0; i < length(list->at); i++)
        if (list->at[i] == storage) return true;
    return false;
}

/* Entries that differ from this one in nothing but what their frozen tensors were: those of a
 * storage, not those of bytes. */
static int stale_entries(const Function *function, const Entry *made) {
    int count = 0;
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) {
        bool of_storage = false;
        for (int v = 0; e->frozen && v < length(e->trace->value); v++)
            of_storage |= e->frozen[v].serial && !e->frozen[v].bytes;
        count += of_storage && entry_same(e, made);
    }
    return count;
}

/* ---- by their bytes -------------------------------------------------------------------------- */

static size_t bytes_of(const Tensor *x) {
    Meta meta = tensor_meta(x);
    return (size_t)meta_numel(&meta) * cb_dtype_size(x->dtype);
}

static bool has_bytes(const Frozen *frozen, const Tensor *x) {
    return !memcmp(frozen->bytes, tensor_data(x), bytes_of(x));
}

static bool counts_by_bytes(const Entry *entry, int v, const Tensor *x) {
    size_t bytes = bytes_of(x);
    return entry->trace->value[v].own && bytes && device_is_host(x->device) &&
           tensor_contiguous(x) && bytes <= MOST_BYTES;
}

/* The same value had other bytes before. */
static bool has_changed(const Entry *made, int v, const Tensor *x) {
    const Function *function = made->function;
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next))
        if (entry_same(e, made) &&
            (!e->frozen || !e->frozen[v].bytes || !has_bytes(&e->frozen[v], x)))
            return true;
    return false;
}

static bool freezes(const Function *function) {
    if (function->options.freeze != FREEZE_AUTO) return function->options.freeze == FREEZE_ALL;
    return function->callee == CALLEE_MODULE && !cb_module_training(function->target.module);
}

/* Whether one of its frozen tensors, named by their storages, has been written to: versions only
 * rise, so no call will find them again as they were. */
static bool is_stale(const Entry *entry, const Map *now) {
    for (int v = 0; entry->frozen && v < length(entry->trace->value); v++) {
        const Frozen *frozen = &entry->frozen[v];
        const Tensor *x = frozen->serial ? map_get(now, frozen->serial) : NULL;
        if (x && storage_version(x->storage) != frozen->version) return true;
    }
    return false;
}

/* Entries for what the tensors of this call were before give back what follows from it. */
static void retire_stale(const Entry *entry, const Call *call) {
    Map now = map_new(entry->trace->arena);
    for (int k = 0; k < entry->captured_count; k++) {
        if (entry->captured[k] == NO_VALUE) continue;
        Tensor *x = call->value[entry->captured[k]];
        map_put(&now, x->storage->serial, x);
    }
    for (Entry *e = atomic_load(&call->function->first); e; e = atomic_load(&e->next)) {
        if (!is_stale(e, &now)) continue;
        executable_retire(e->executable);
        executable_retire(e->oracle);
    }
}

/* Writes to x, or to other tensors that share memory with it: a constant would be stale after every
 * call. */
static bool overlaps_written(const Entry *entry, const Call *call, const Tensor *x) {
    for (int i = 0; i < entry->mutated_count; i++)
        if (tensors_overlap(call->value[entry->mutated[i]], x)) return true;
    return false;
}

typedef struct Choice { /* of what is frozen */
    Entry *entry;
    const Call *call;
    bool by_storage;
    bool automatic;
    Storages module;
} Choice;

/* By its bytes, from what the entry holds on to, since the call's tensor is the user's to write to.
 * False: no memory. */
static bool freeze_bytes(const Choice *c, int k, bool *frozen) {
    int v = c->entry->captured[k];
    Tensor *x = c->call->value[v];
    if (has_changed(c->entry, v, x)) return true;
    if (!entry_hold_own(c->entry, k, x)) return false;
    Tensor *held = c->entry->held[k];
    c->entry->frozen[v] =
        (Frozen){held->storage->serial, storage_version(held->storage), 0, tensor_data(held)};
    *frozen = true;
    return true;
}

static bool freezes_storage(const Choice *c, const Tensor *x) {
    return c->by_storage && (!c->automatic || has_storage(&c->module, x->storage)) &&
           (!c->entry->resumes || x->storage->parameter);
}

static bool freeze(const Choice *c, int k, bool *frozen) {
    Entry *entry = c->entry;
    int v = entry->captured[k];
    if (v == NO_VALUE || entry->trace->value[v].tracked || trace_is_gradient(entry->trace, v))
        return true;
    Tensor *x = c->call->value[v];
    if (overlaps_written(entry, c->call, x)) return true;
    if (counts_by_bytes(entry, v, x)) return freeze_bytes(c, k, frozen);
    if (!freezes_storage(c, x)) return true;
    if (entry->held[k]) x = entry->held[k];
    entry->frozen[v] = (Frozen){x->storage->serial, storage_version(x->storage), x->offset, NULL};
    *frozen = true;
    return true;
}

bool frozen_choose(Entry *entry, const Call *call, CompileOptions *options) {
    const Function *function = call->function;
    Arena *arena = entry->trace->arena;
    retire_stale(entry, call);
    if (function->options.freeze == FREEZE_NONE || call->recording->joint) return true;
    Choice choice = {.entry = entry,
                     .call = call,
                     .by_storage =
                         freezes(function) && stale_entries(function, entry) < MOST_CHANGES,
                     .automatic = function->options.freeze == FREEZE_AUTO,
                     .module.arena = arena};
    if (choice.automatic && choice.by_storage)
        cb_module_visit(function->target.module, add_storage, &choice.module);
    int inputs = entry->input_count + entry->captured_count;
    bool *frozen = arena_new_array(arena, bool, inputs + 1), any = false;
    Tensor **value = arena_new_array(arena, Tensor *, inputs + 1);
    entry->frozen = arena_new_array(arena, Frozen, length(entry->trace->value) + 1);
    for (int i = 0; i < entry->input_count; i++) value[i] = call->value[i];
    for (int k = 0; k < entry->captured_count; k++) {
        int i = entry->input_count + k, v = entry->captured[k];
        if (!freeze(&choice, k, &frozen[i])) return false;
        any |= frozen[i];
        if (v != NO_VALUE) value[i] = entry->held[k] ? entry->held[k] : call->value[v];
    }
    if (!any) entry->frozen = NULL;
    options->frozen = any ? frozen : NULL;
    options->value = any ? value : NULL;
    return true;
}

/* Of dtype and sizes, which the trace has, too. */
static bool holds_bytes(const Entry *entry, int v, const Tensor *x) {
    const Meta *meta = &entry->trace->value[v].meta, now = tensor_meta(x);
    return device_is_host(x->device) && tensor_contiguous(x) && now.dtype == meta->dtype &&
           now.rank == meta->rank && !memcmp(now.size, meta->size, sizeof *now.size * now.rank) &&
           has_bytes(&entry->frozen[v], x);
}

static bool same_frozen(const Frozen *a, const Frozen *b, const Meta *meta) {
    if (!a->bytes || !b->bytes)
        return a->serial == b->serial && a->version == b->version && a->offset == b->offset &&
               a->bytes == b->bytes;
    return !memcmp(a->bytes, b->bytes, (size_t)meta_numel(meta) * cb_dtype_size(meta->dtype));
}

bool frozen_alike(const Entry *a, const Entry *b) {
    if (!a->frozen || !b->frozen) return a->frozen == b->frozen;
    for (int v = 0; v < length(a->trace->value); v++)
        if (!same_frozen(&a->frozen[v], &b->frozen[v], &a->trace->value[v].meta)) return false;
    return true;
}

bool frozen_holds(const Entry *entry, int v, const Tensor *x) {
    if (!entry->frozen || !entry->frozen[v].serial) return true;
    const Frozen *frozen = &entry->frozen[v];
    if (frozen->bytes) return holds_bytes(entry, v, x);
    return frozen->serial == x->storage->serial && frozen->offset == x->offset &&
           frozen->version == storage_version(x->storage);
}

/* The position among what is captured; NO_VALUE: all hold. */
static int find_changed(const Entry *entry, const Call *call) {
    for (int k = 0; entry->frozen && k < entry->captured_count; k++) {
        int v = entry->captured[k];
        if (v == NO_VALUE || (!call && entry->frozen[v].bytes)) continue; /* its own, unwritten */
        if (!frozen_holds(entry, v, call ? call->value[v] : entry->held[k])) return k;
    }
    return NO_VALUE;
}

bool frozen_all_hold(const Entry *entry, const Call *call) {
    return find_changed(entry, call) == NO_VALUE;
}

bool frozen_describe(const Entry *entry, char *out, size_t bytes) {
    int k = find_changed(entry, NULL);
    if (k == NO_VALUE) return false;
    int v = entry->captured[k];
    char name[128];
    entry_name_value(entry, v, name, sizeof name);
    snprintf(out, bytes, "%s is of version %llu, entry %d was compiled for version %llu", name,
             (unsigned long long)storage_version(entry->held[k]->storage), entry->number,
             (unsigned long long)entry->frozen[v].version);
    return true;
}
