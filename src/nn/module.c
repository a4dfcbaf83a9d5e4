/* The module tree: construction, ownership, lookup by path, and the call door.
 *
 * In:  cb_module_new("Block", forward, user), cb_module_add, cb_module_parameter.
 * Out: cb_module_forward(block, inputs, n) runs forward, or records the call in a symbolic trace.
 * Invariants: a module owns its tensors (they are kept, in no scope); children are counted by the
 * modules that hold them and die with the last one; the tree has no cycles.
 *
 *     "layer1.0.weight": child "layer1", child "0", parameter "weight" */
#include "nn/module.h"
#include "base/guess.h"
#include "base/memory.h"
#include "tensor/frame.h"
#include <string.h>

static _Thread_local ModuleTracer *current_tracer;
static _Thread_local ModuleMode last_mode; /* of the module that was left last */

ModuleTracer *module_tracer_set(ModuleTracer *tracer) {
    ModuleTracer *before = current_tracer;
    current_tracer = tracer;
    return before;
}

/* Room for one more element; the array doubles. */
static bool grow(void *array, int count, int *capacity, size_t element) {
    if (count < *capacity) return true;
    int wanted = *capacity ? *capacity * 2 : 4;
    void *old, *bigger;
    memcpy(&old, array, sizeof old);
    bigger = memory_resize(old, element * (size_t)wanted);
    if (!bigger) {
        fail_memory(element * (size_t)wanted);
        return false;
    }
    memcpy(array, &bigger, sizeof bigger);
    *capacity = wanted;
    return true;
}

static bool set_text(char **field, const char *text) {
    char *copy = memory_copy_text(text);
    if (!copy) {
        fail_memory(strlen(text) + 1);
        return false;
    }
    memory_free(*field);
    *field = copy;
    return true;
}

bool module_set_type(Module *module, const char *type) { return set_text(&module->type, type); }

static bool valid_name(const Module *module, const char *name) {
    if (!name || !*name || strchr(name, '.')) {
        fail(CB_ERR_ARGUMENT,
             "%s: a name of a child or parameter must not be empty or hold a dot: '%s'",
             module->type, name ? name : "");
        return false;
    }
    return true;
}

static ModuleChild *own_child(const Module *module, const char *name, size_t length) {
    for (int i = 0; i < module->child_count; i++) {
        const char *known = module->child[i].name;
        if (strncmp(known, name, length) == 0 && !known[length]) return &module->child[i];
    }
    return NULL;
}

static ModuleTensor *own_tensor(const Module *module, const char *name) {
    for (int i = 0; i < module->tensor_count; i++)
        if (strcmp(module->tensor[i].name, name) == 0) return &module->tensor[i];
    return NULL;
}

bool module_contains(const Module *module, const Module *wanted) {
    if (module == wanted) return true;
    for (int i = 0; i < module->child_count; i++)
        if (module_contains(module->child[i].module, wanted)) return true;
    return false;
}

/* ---- construction --------------------------------------------------------------------------- */

cb_module *cb_module_new(const char *type, cb_forward_function *forward, void *user) {
    if (!type || !*type) {
        fail(CB_ERR_ARGUMENT, "cb_module_new: a module needs a type name");
        return NULL;
    }
    Module *module = memory_zalloc(sizeof *module);
    if (!module) {
        fail_memory(sizeof *module);
        return NULL;
    }
    module->forward = forward;
    module->user = user;
    module->training = true;
    if (!set_text(&module->type, type) || !set_text(&module->inputs, "x") ||
        !set_text(&module->extra, "")) {
        cb_module_free(module);
        return NULL;
    }
    return module;
}

Module *module_layer(const char *type, cb_forward_function *forward, const char *extra) {
    Module *module = cb_module_new(type, forward, NULL);
    if (!module) return NULL;
    module->leaf = module->ours = true;
    if (!set_text(&module->extra, extra)) {
        cb_module_free(module);
        return NULL;
    }
    return module;
}

void cb_module_free(cb_module *module) {
    if (!module_lives(module, "cb_module_free: the module")) return;
    if (module->parents > 0) {
        fail(CB_ERR_ARGUMENT, "cb_module_free: this %s has a parent, which frees it", module->type);
        return;
    }
    for (int i = 0; i < module->tensor_count; i++) {
        module_hold(&module->tensor[i], NULL);
        memory_free(module->tensor[i].name);
    }
    for (int i = 0; i < module->child_count; i++) {
        memory_free(module->child[i].name);
        if (--module->child[i].module->parents == 0) cb_module_free(module->child[i].module);
    }
    void (*destroy)(void *user) = module->destroy;
    void *user = module->user;
    memory_free(module->tensor);
    memory_free(module->child);
    memory_free(module->type);
    memory_free(module->inputs);
    memory_free(module->extra);
    *module = (Module){.tomb = module->tomb};
    tomb_bury(&module->tomb);
    if (destroy) destroy(user);
}

Module *module_add(Module *module, const char *name, Module *child) {
    if (!module_lives(module, "cb_module_add: the module")) return NULL;
    if (!module_lives(child, "cb_module_add: the child") || !valid_name(module, name)) return NULL;
    if (own_child(module, name, strlen(name)) || own_tensor(module, name)) {
        fail(CB_ERR_ARGUMENT, "%s: '%s' exists already", module->type, name);
        return NULL;
    }
    if (module_contains(child, module)) {
        fail(CB_ERR_ARGUMENT, "%s: '%s' would make the module its own descendant", module->type,
             name);
        return NULL;
    }
    if (!grow(&module->child, module->child_count, &module->child_capacity, sizeof *module->child))
        return NULL;
    ModuleChild added = {NULL, child};
    if (!set_text(&added.name, name)) return NULL;
    module->child[module->child_count++] = added;
    child->parents++;
    return child;
}

/* A child made inside of the call has no other owner: it is freed when it finds no place. */
cb_module *cb_module_add(cb_module *module, const char *name, cb_module *child) {
    Module *added = module_add(module, name, child);
    if (added || !module_lives(child, "cb_module_add: the child")) return added;
    if (child->parents == 0 && !module_contains(child, module)) cb_module_free(child);
    return NULL;
}

void module_hold(ModuleTensor *slot, Tensor *tensor) {
    Tensor *before = slot->tensor;
    if (before == tensor) return;
    slot->tensor = tensor;
    if (before && --before->owners == 0) tensor_destroy(before);
    if (!tensor) return;
    cb_keep(tensor);
    tensor->owners++;
    if (tensor->storage) tensor->storage->parameter = true;
}

static Tensor *register_tensor(Module *module, const char *name, Tensor *tensor, bool buffer,
                               bool shared) {
    if (!module_lives(module, "cb_module_parameter: the module") || !valid_name(module, name))
        return NULL;
    if (own_child(module, name, strlen(name))) {
        fail(CB_ERR_ARGUMENT, "%s: '%s' is the name of a child", module->type, name);
        return NULL;
    }
    ModuleTensor *slot = own_tensor(module, name);
    if (tensor && tensor->owners && !shared && !(slot && slot->tensor == tensor)) {
        fail(CB_ERR_ARGUMENT, "%s: '%s' is a module's already: cb_module_share ties it",
             module->type, name);
        return NULL;
    }
    if (tensor && tensor->is_gradient) {
        fail(CB_ERR_ARGUMENT,
             "%s: '%s' is the gradient of a tensor, which frees it: cb_module_share or cb_clone",
             module->type, name);
        return NULL;
    }
    if (!slot) {
        if (!grow(&module->tensor, module->tensor_count, &module->tensor_capacity,
                  sizeof *module->tensor))
            return NULL;
        slot = &module->tensor[module->tensor_count];
        *slot = (ModuleTensor){0};
        if (!set_text(&slot->name, name)) return NULL;
        module->tensor_count++;
    }
    slot->buffer = buffer;
    if (tensor) tensor->is_buffer = buffer;
    module_hold(slot, tensor);
    return slot->tensor;
}

static cb_tensor *register_handle(Module *module, const char *name, cb_tensor *handle,
                                  bool buffer) {
    Tensor *tensor = tensor_in(handle, "cb_module_parameter");
    if (handle && !tensor) return NULL;
    return tensor_out(register_tensor(module, name, tensor, buffer, false));
}

cb_tensor *cb_module_parameter(cb_module *module, const char *name, cb_tensor *tensor) {
    return register_handle(module, name, tensor, false);
}

cb_tensor *cb_module_buffer(cb_module *module, const char *name, cb_tensor *tensor) {
    return register_handle(module, name, tensor, true);
}

cb_tensor *cb_module_share(cb_module *module, const char *name, cb_tensor *handle) {
    Tensor *named = tensor_in(handle, "cb_module_share");
    if (!module || !named || !tensor_materialize(named)) return NULL;
    /* One tensor with two names: one gradient, and one that a compiled function meets. */
    Tensor *tied = named->owners ? named : tensor_double(named);
    bool buffer = named->owners && named->is_buffer;
    return tied ? tensor_out(register_tensor(module, name, tied, buffer, true)) : NULL;
}

void module_init(Module **module, const char *name, Tensor *value, bool buffer) {
    if (*module && value && register_tensor(*module, name, value, buffer, false)) return;
    tensor_destroy(value); /* an initial value may be kept: then no scope frees it */
    cb_module_free(*module);
    *module = NULL;
}

cb_status cb_module_inputs(cb_module *module, const char *names) {
    if (!module || !names) return fail(CB_ERR_ARGUMENT, "cb_module_inputs: NULL");
    if (!module_lives(module, "cb_module_inputs: the module")) return CB_ERR_ARGUMENT;
    return set_text(&module->inputs, names) ? CB_OK : CB_ERR_MEMORY;
}

cb_status cb_module_extra(cb_module *module, const char *text) {
    if (!module || !text) return fail(CB_ERR_ARGUMENT, "cb_module_extra: NULL");
    if (!module_lives(module, "cb_module_extra: the module")) return CB_ERR_ARGUMENT;
    return set_text(&module->extra, text) ? CB_OK : CB_ERR_MEMORY;
}

void cb_module_on_free(cb_module *module, void (*destroy)(void *user)) {
    if (module_lives(module, "cb_module_on_free: the module")) module->destroy = destroy;
}

/* ---- lookup --------------------------------------------------------------------------------- */

Module *module_find_child(const Module *module, const char *path) {
    while (*path) {
        size_t length = strcspn(path, ".");
        ModuleChild *child = own_child(module, path, length);
        if (!child) return NULL;
        module = child->module;
        path += length;
        if (*path == '.' && !*++path) return NULL; /* a trailing dot names nothing */
    }
    return (Module *)module;
}

ModuleTensor *module_find_tensor(const Module *module, const char *path) {
    const char *dot;
    while ((dot = strchr(path, '.'))) {
        ModuleChild *child = own_child(module, path, (size_t)(dot - path));
        if (!child) return NULL;
        module = child->module;
        path = dot + 1;
    }
    return own_tensor(module, path);
}

/* What was meant is looked for where the path leaves the tree. */
static void fail_path(const Module *root, const char *what, bool child, const char *path) {
    const Module *module = root;
    const char *at = path;
    size_t length = strcspn(at, ".");
    for (ModuleChild *next; at[length] && (next = own_child(module, at, length));) {
        module = next->module;
        at += length + 1;
        length = strcspn(at, ".");
    }
    char meant[GUESS_BYTES], within[128];
    Guess guess = guess_part(at, length);
    if (at > path)
        snprintf(within, sizeof within, " (%.*s is a %s)", (int)(at - path) - 1, path,
                 module->type);
    child |= at[length] == '.';
    for (int i = 0; i < (child ? module->child_count : module->tensor_count); i++)
        guess_try(&guess, child ? module->child[i].name : module->tensor[i].name);
    fail(CB_ERR_ARGUMENT, "%s has no %s '%s'%s%s", root->type, what, path, at > path ? within : "",
         guess_text(&guess, meant));
}

cb_module *cb_module_child(cb_module *module, const char *path) {
    if (!path || !module_lives(module, "cb_module_child: the module")) return NULL;
    module_met(module);
    Module *child = module_find_child(module, path);
    if (!child) fail_path(module, "child", true, path);
    return child;
}

cb_tensor *cb_module_get(cb_module *module, const char *path) {
    if (!path || !module_lives(module, "cb_module_get: the module")) return NULL;
    module_met(module);
    ModuleTensor *slot = module_find_tensor(module, path);
    if (slot) return tensor_out(slot->tensor);
    fail_path(module, "parameter or buffer", false, path);
    return NULL;
}

static void append_name(Buffer *out, size_t start, const char *name) {
    if (out->length > start) put(out, ".");
    put(out, name);
}

static void cut(Buffer *out, size_t length) {
    out->length = length;
    out->text[length] = 0;
}

static bool find_child_path(const Module *at, const Module *wanted, Buffer *out, size_t start) {
    if (at == wanted) return true;
    size_t here = out->length;
    for (int i = 0; i < at->child_count; i++) {
        append_name(out, start, at->child[i].name);
        if (find_child_path(at->child[i].module, wanted, out, start)) return true;
        cut(out, here);
    }
    return false;
}

static bool find_tensor_path(const Module *at, const Tensor *wanted, Buffer *out, size_t start) {
    for (int i = 0; i < at->tensor_count; i++) {
        if (at->tensor[i].tensor != wanted) continue;
        append_name(out, start, at->tensor[i].name);
        return true;
    }
    size_t here = out->length;
    for (int i = 0; i < at->child_count; i++) {
        append_name(out, start, at->child[i].name);
        if (find_tensor_path(at->child[i].module, wanted, out, start)) return true;
        cut(out, here);
    }
    return false;
}

bool module_path_of_child(const Module *root, const Module *module, Buffer *out) {
    return find_child_path(root, module, out, out->length);
}

bool module_path_of_tensor(const Module *root, const Tensor *tensor, Buffer *out) {
    return find_tensor_path(root, tensor, out, out->length);
}

/* ---- where a forward runs ------------------------------------------------------------------- */

/* The way down to a module, from its end. */
typedef struct Descent {
    const struct Descent *up;
    const char *name;
} Descent;

static void write_descent(const Descent *at, char *out, size_t bytes) {
    if (!at) return;
    write_descent(at->up, out, bytes);
    size_t used = strlen(out);
    snprintf(out + used, bytes - used, "%s%s", used ? "." : "", at->name);
}

/* The path from a module to a descendant, behind what out holds; false: it is none. Nothing is
 * allocated: an error may be about memory. Ops are recorded with it, so only what is found is
 * written. */
static bool append_path(const Module *at, const Descent *way, const Module *wanted, char *out,
                        size_t bytes) {
    if (at == wanted) {
        write_descent(way, out, bytes);
        return true;
    }
    for (int i = 0; i < at->child_count; i++) {
        Descent down = {way, at->child[i].name};
        if (append_path(at->child[i].module, &down, wanted, out, bytes)) return true;
    }
    return false;
}

/* A module that is called without being a descendant stands there by its type. */
static void write_place(const Place *place, char *out, size_t bytes) {
    const ModuleFrame *frame = (const ModuleFrame *)place;
    if (!place->outer) return;
    place->outer->write(place->outer, out, bytes);
    const Module *outer = ((const ModuleFrame *)place->outer)->module;
    if (append_path(outer, NULL, frame->module, out, bytes)) return;
    size_t used = strlen(out);
    snprintf(out + used, bytes - used, "%s(%s)", used ? "." : "", frame->module->type);
}

void module_enter(ModuleFrame *frame, const Module *module) {
    *frame = (ModuleFrame){{place_current(), write_place}, module, site_current()};
    place_set(&frame->place);
    module_met(module);
}

void module_met(const Module *module) {
    Tracer *tracer = tracer_current();
    if (tracer && tracer->meet_module) tracer->meet_module(tracer, module);
}

static ModuleMode mode_of(const Module *module) {
    return module->training ? MODULE_TRAINS : MODULE_EVALUATES;
}

void module_leave(const ModuleFrame *frame) {
    last_mode = mode_of(frame->module);
    place_set(frame->place.outer);
    site_set(frame->site);
}

ModuleMode module_mode(void) {
    const ModuleFrame *frame = (const ModuleFrame *)place_current();
    return frame ? mode_of(frame->module) : last_mode;
}

void module_mode_forget(void) { last_mode = MODULE_UNKNOWN; }

typedef struct ForwardRun {
    Frame frame; /* first */
    ModuleFrame around;
} ForwardRun;

static Tensor *run_forward(Module *module, Tensor *const *inputs, int count) {
    if (module->ours) return module->forward(module, inputs, count);
    cb_tensor *handle[count + 1];
    tensors_out(inputs, count, handle);
    return tensor_in(module->forward(module, handle, count), "the result of forward");
}

OPENS_FRAME Tensor *module_run(Module *module, Tensor *const *inputs, int count) {
    FRAME_MARK(mark);
    frames_check();
    ForwardRun *run = (ForwardRun *)frame_open(sizeof *run, NULL, FRAME_OF_FORWARD, mark);
    if (!run) return NULL;
    Frame *left UNWINDS_FRAME = &run->frame;
    module_enter(&run->around, module);
    Tensor *y = run_forward(module, inputs, count);
    left = NULL;
    if (!frame_is_open(&run->frame, mark)) return NULL;
    if (!y && cb_error_status() == CB_OK)
        fail(CB_ERR_ARGUMENT, "%s: forward gave NULL and recorded no error", module->type);
    frame_close(&run->frame);
    module_leave(&run->around);
    frame_free(&run->frame);
    return y;
}

/* ---- the call door -------------------------------------------------------------------------- */

Tensor *module_forward(Module *module, Tensor *const *inputs, int count) {
    if (!module_lives(module, "forward: the module")) return NULL;
    if (!module->forward) {
        fail(CB_ERR_ARGUMENT, "%s has no forward: call its children", module->type);
        return NULL;
    }
    ModuleTracer *tracer = current_tracer;
    if (tracer && module->leaf && tracer_current() == tracer->tracer)
        return tracer->call(tracer, module, inputs, count);
    return module_run(module, inputs, count);
}

cb_tensor *cb_module_forward(cb_module *module, cb_tensor *const *inputs, int count) {
    frames_check();
    if (!module_lives(module, "forward: the module")) return NULL;
    if (count < 0 || count > CB_MAX_ARGS || (count > 0 && !inputs)) {
        fail(CB_ERR_ARGUMENT, "%s: %s", module->type,
             count > CB_MAX_ARGS ? "more inputs than CB_MAX_ARGS" : "no inputs");
        return NULL;
    }
    Tensor *x[count + 1];
    if (!tensors_in(inputs, count, module->type, x)) return NULL;
    return tensor_out(module_forward(module, x, count));
}
