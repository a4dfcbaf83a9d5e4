/* State dicts: a module's parameters and buffers to and from a safetensors file.
 *
 * In:  cb_module_load_state(net, "net.safetensors", true).
 * Out: every tensor of the module holds the file's values, converted to its dtype; or an error as
 *      PyTorch words it, and nothing has changed: what can fail comes before the first copy.
 *
 *     Error(s) in loading state_dict for Block:
 *         Missing key(s) in state_dict: "linear.bias".
 *         Unexpected key(s) in state_dict: "linear.offset". */
#include "base/memory.h"
#include "base/vec.h"
#include "io/safetensors.h"
#include "nn/module.h"
#include "tensor/place.h"
#include <string.h>

typedef struct Slot {
    const char *name;
    Tensor *tensor;
    const ValueRange *range;
    const SafeEntry *entry; /* NULL: the file has none */
} Slot;

typedef struct StateSlots {
    Arena *arena;
    const char *type; /* of the module */
    Slot *slot;       /* vec */
} StateSlots;

static const char *join(Arena *arena, const char *path, const char *name) {
    return arena_format(arena, "%s%s%s", path, *path ? "." : "", name);
}

/* In the order of the state dict: a module's own tensors, then its children's. */
static void collect_slots(StateSlots *state, const Module *module, const char *path) {
    for (int i = 0; i < module->tensor_count; i++) {
        const ModuleTensor *own = &module->tensor[i];
        if (!own->tensor) continue;
        Slot slot = {join(state->arena, path, own->name), own->tensor, own->range, NULL};
        push(state->arena, state->slot, slot);
    }
    for (int i = 0; i < module->child_count; i++)
        collect_slots(state, module->child[i].module,
                      join(state->arena, path, module->child[i].name));
}

/* ---- load ----------------------------------------------------------------------------------- */

static bool same_shape(const Tensor *x, const Meta *meta) {
    return x->rank == meta->rank && memcmp(x->size, meta->size, sizeof *x->size * x->rank) == 0;
}

static bool ends_with(const char *text, const char *end) {
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* A tied tensor comes under its other name; the counter of a batch norm is older files' gap. */
static bool may_lack(const StateSlots *state, const Slot *slot) {
    for (int i = 0; i < length(state->slot); i++)
        if (state->slot[i].entry && same_tensor(state->slot[i].tensor, slot->tensor)) return true;
    return ends_with(slot->name, "num_batches_tracked");
}

/* Names of the file's tensors that no slot takes. */
typedef struct Names {
    const char **missing, **unexpected;
} Names;

static Names compare_names(const StateSlots *state, const cb_safetensors *file) {
    Arena *arena = state->arena;
    Names names = {NULL, NULL};
    Map known = map_new(arena);
    for (int i = 0; i < length(state->slot); i++) {
        const Slot *slot = &state->slot[i];
        if (slot->entry)
            map_put(&known, (uint64_t)(slot->entry - file->entry), (void *)slot);
        else if (!may_lack(state, slot))
            push(arena, names.missing, slot->name);
    }
    for (int i = 0; i < file->count; i++)
        if (!map_get(&known, (uint64_t)i)) push(arena, names.unexpected, file->entry[i].name);
    return names;
}

static void put_keys(Buffer *out, const char *heading, const char **names) {
    enum { NAMED = 8 }; /* an error message is short */
    int count = length(names);
    if (!count) return;
    putf(out, "\n\t%s \"%s\"", heading, names[0]);
    for (int i = 1; i < count && i < NAMED; i++) putf(out, ", \"%s\"", names[i]);
    put(out, count > NAMED ? ", ...." : ".");
}

static void put_list(Buffer *out, const char **names) {
    put(out, "[");
    for (int i = 0; i < length(names); i++) putf(out, "%s'%s'", i ? ", " : "", names[i]);
    put(out, "]");
}

/* What PyTorch's load_state_dict prints as its result. */
static const char *incompatible_keys(Arena *arena, Names names) {
    if (!names.missing && !names.unexpected) return "<All keys matched successfully>";
    Buffer out = buffer_new(arena);
    put(&out, "_IncompatibleKeys(missing_keys=");
    put_list(&out, names.missing);
    put(&out, ", unexpected_keys=");
    put_list(&out, names.unexpected);
    put(&out, ")");
    return buffer_text(&out);
}

/* Numbers that their makers refuse: a negative learning rate, a count of -5 steps. */
static void put_refused(Buffer *out, const Slot *slot) {
    for (int64_t i = 0; i < cb_numel(slot->tensor); i++) {
        double value;
        safetensors_read(slot->entry, i, 1, &value, CB_F64);
        if (value_within(slot->range, value)) continue;
        putf(out, "\n\t%s is %g, and has to be %s.", slot->name, value, slot->range->text);
    }
}

static void put_misfits(Buffer *out, const StateSlots *state) {
    for (int i = 0; i < length(state->slot); i++) {
        const Slot *slot = &state->slot[i];
        if (!slot->entry) continue;
        if (same_shape(slot->tensor, &slot->entry->meta)) {
            if (slot->range) put_refused(out, slot);
            continue;
        }
        putf(out, "\n\tsize mismatch for %s: copying a param with shape torch.Size(", slot->name);
        put_sizes(out, slot->entry->meta.rank, slot->entry->meta.size);
        put(out, ") from checkpoint, the shape in current model is torch.Size(");
        put_sizes(out, slot->tensor->rank, slot->tensor->size);
        put(out, ").");
    }
}

static cb_status compare(StateSlots *state, const cb_safetensors *file, bool strict, char **keys) {
    Arena *arena = state->arena;
    for (int i = 0; i < length(state->slot); i++) {
        Slot *slot = &state->slot[i];
        slot->entry = safetensors_find(file, slot->name);
        if (!tensor_overwritten(slot->tensor)) return cb_error_status();
    }
    Buffer report = buffer_new(arena);
    Names names = compare_names(state, file);
    if (keys && !(*keys = memory_copy_text(incompatible_keys(arena, names)))) return fail_memory(0);
    if (strict) {
        put_keys(&report, "Missing key(s) in state_dict:", names.missing);
        put_keys(&report, "Unexpected key(s) in state_dict:", names.unexpected);
    }
    put_misfits(&report, state);
    if (!report.length) return CB_OK;
    return fail(CB_ERR_ARGUMENT, "Error(s) in loading state_dict for %s:%s", state->type,
                report.text);
}

/* Element n of the row-major order, wherever the strides put it. */
static int64_t place(const Tensor *x, int64_t n) {
    int64_t at = 0;
    for (int d = x->rank - 1; d >= 0; d--) {
        at += n % x->size[d] * x->stride[d];
        n /= x->size[d];
    }
    return at;
}

static bool copy(const SafeEntry *entry, Tensor *x) {
    const Tensor *local = tensor_local(x);
    if (!local) return false;
    int64_t total = cb_numel(x);
    cb_dtype dtype = x->dtype;
    size_t width = cb_dtype_size(dtype);
    uint8_t *data = tensor_data(local);
    bool contiguous = tensor_contiguous(x);
    if (contiguous) safetensors_read(entry, 0, total, data, dtype);
    for (int64_t n = 0; n < total && !contiguous; n++)
        safetensors_read(entry, n, 1, data + place(x, n) * (int64_t)width, dtype);
    bool written = tensor_write_back(local, x);
    tensor_local_end(local, x);
    storage_written(x->storage); /* what was compiled with the old values frozen is stale */
    return written;
}

static cb_status load(StateSlots *state, const Module *module, const cb_safetensors *file,
                      bool strict, char **keys) {
    if (!state->arena || arena_guard(state->arena)) return fail_memory(0);
    collect_slots(state, module, "");
    cb_status status = compare(state, file, strict, keys);
    for (int i = 0; i < length(state->slot) && !status; i++)
        if (state->slot[i].entry && !copy(state->slot[i].entry, state->slot[i].tensor))
            status = cb_error_status();
    return status;
}

cb_status cb_module_load_state_keys(cb_module *module, const char *path, bool strict, char **keys) {
    if (keys) *keys = NULL;
    if (!module || !path) return fail(CB_ERR_ARGUMENT, "cb_module_load_state: NULL");
    if (!module_lives(module, "cb_module_load_state: the module")) return CB_ERR_ARGUMENT;
    cb_safetensors *file = cb_safetensors_open(path);
    if (!file) return cb_error_status();
    StateSlots state = {.arena = arena_new(), .type = module->type};
    cb_status status = load(&state, module, file, strict, keys);
    arena_free(state.arena);
    cb_safetensors_close(file);
    return status;
}

cb_status cb_module_load_state(cb_module *module, const char *path, bool strict) {
    return cb_module_load_state_keys(module, path, strict, NULL);
}

/* ---- save ----------------------------------------------------------------------------------- */

/* Tied tensors are written once, under their first name. */
static cb_status save(StateSlots *state, const Module *module, const char *path) {
    Arena *arena = state->arena;
    if (!arena || arena_guard(arena)) return fail_memory(0);
    collect_slots(state, module, "");
    int slots = length(state->slot), count = 0;
    const char **name = arena_new_array(arena, const char *, slots);
    Tensor **tensor = arena_new_array(arena, Tensor *, slots);
    for (int i = 0; i < slots; i++) {
        Slot *slot = &state->slot[i];
        bool written = false;
        if (!tensor_materialize(slot->tensor)) return cb_error_status();
        for (int j = 0; j < count; j++) written = written || same_tensor(tensor[j], slot->tensor);
        if (written) continue;
        name[count] = slot->name;
        tensor[count++] = slot->tensor;
    }
    return cb_safetensors_save(path, name, tensor, count);
}

cb_status cb_module_save_state(cb_module *module, const char *path) {
    if (!module || !path) return fail(CB_ERR_ARGUMENT, "cb_module_save_state: NULL");
    if (!module_lives(module, "cb_module_save_state: the module")) return CB_ERR_ARGUMENT;
    StateSlots state = {.arena = arena_new(), .type = module->type};
    cb_status status = save(&state, module, path);
    arena_free(state.arena);
    return status;
}
