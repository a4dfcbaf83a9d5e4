/* Walks over a module tree: modes, parameters in the state dict's order, conversion, PyTorch's
 * repr.
 *
 *     M(
 *       (linear): Linear(in_features=4, out_features=4, bias=True)
 *       (blocks): ModuleList(
 *         (0-1): 2 x ReLU()
 *       )
 *     ) */
#include "base/memory.h"
#include "nn/module.h"
#include "op_calls.h"
#include "tensor/frame.h"
#include <string.h>

typedef struct TensorVisit {
    Frame frame; /* first: around the visitor */
    Arena *arena;
    cb_tensor_visitor *visitor;
    void *user;
    Buffer path;
} TensorVisit;

static void visit_tensors(const Module *module, TensorVisit *visit) {
    size_t here = visit->path.length;
    for (int i = 0; i < module->tensor_count; i++) {
        const ModuleTensor *slot = &module->tensor[i];
        if (!slot->tensor) continue;
        putf(&visit->path, "%s%s", here ? "." : "", slot->name);
        visit->visitor(visit->path.text, tensor_out(slot->tensor), slot->buffer, visit->user);
        visit->path.length = here;
    }
    for (int i = 0; i < module->child_count; i++) {
        putf(&visit->path, "%s%s", here ? "." : "", module->child[i].name);
        visit_tensors(module->child[i].module, visit);
        visit->path.length = here;
    }
}

static void end(Frame *frame) { arena_free(((TensorVisit *)frame)->arena); }

static void visit_all(const Module *module, TensorVisit *visit) {
    if (!visit->arena || arena_guard(visit->arena)) {
        fail_memory(0);
        return;
    }
    visit->path = buffer_new(visit->arena);
    visit_tensors(module, visit);
}

static OPENS_FRAME void visit_in_frame(const Module *module, cb_tensor_visitor *visitor,
                                       void *user) {
    FRAME_MARK(mark);
    frames_check();
    TensorVisit *visit = (TensorVisit *)frame_open(sizeof *visit, end, FRAME_OF_FORWARD, mark);
    if (!visit) return;
    Frame *left UNWINDS_FRAME = &visit->frame;
    visit->arena = arena_new();
    visit->visitor = visitor;
    visit->user = user;
    visit_all(module, visit);
    left = NULL;
    if (!frame_is_open(&visit->frame, mark)) return;
    frame_close(&visit->frame);
    end(&visit->frame);
    frame_free(&visit->frame);
}

void cb_module_visit(cb_module *module, cb_tensor_visitor *visitor, void *user) {
    if (!visitor || !module_lives(module, "cb_module_visit: the module")) return;
    module_met(module);
    visit_in_frame(module, visitor, user);
}

/* Is it among the first *left slots? */
static bool is_before(const Module *module, const Tensor *x, int *left) {
    for (int i = 0; i < module->tensor_count && *left; i++) {
        --*left;
        if (module->tensor[i].tensor == x) return true;
    }
    for (int i = 0; i < module->child_count && *left; i++)
        if (is_before(module->child[i].module, x, left)) return true;
    return false;
}

typedef struct ParameterList {
    const Module *root;
    Tensor **out;
    int capacity, found;
    int slots; /* that were passed */
} ParameterList;

static void collect(ParameterList *list, const Module *module) {
    for (int i = 0; i < module->tensor_count; i++) {
        const ModuleTensor *slot = &module->tensor[i];
        int before = list->slots++;
        if (!slot->tensor || slot->buffer) continue;
        if (is_before(list->root, slot->tensor, &before)) continue; /* another name of it */
        if (list->found < list->capacity) list->out[list->found] = tensor_out(slot->tensor);
        list->found++;
    }
    for (int i = 0; i < module->child_count; i++) collect(list, module->child[i].module);
}

int cb_module_parameters(cb_module *module, cb_tensor **out, int capacity) {
    if (!module_lives(module, "cb_module_parameters: the module")) return 0;
    module_met(module);
    ParameterList list = {.root = module, .out = out, .capacity = out ? capacity : 0};
    collect(&list, module);
    return list.found;
}

void cb_module_train(cb_module *module, bool training) {
    if (!module_lives(module, "cb_module_train: the module")) return;
    module->training = training;
    for (int i = 0; i < module->child_count; i++)
        cb_module_train(module->child[i].module, training);
}

/* All names of the old tensor become names of the new one. */
static void replace(Module *module, const Tensor *old, Tensor *now) {
    for (int i = 0; i < module->tensor_count; i++)
        if (module->tensor[i].tensor == old) module_hold(&module->tensor[i], now);
    for (int i = 0; i < module->child_count; i++) replace(module->child[i].module, old, now);
}

/* Of the same elements in another dtype; a leaf is one still, without its gradient. */
static Tensor *converted(Tensor *x, cb_dtype dtype) {
    cb_no_grad_open();
    Tensor *y = op_to(x, dtype);
    cb_no_grad_close();
    if (y) y->is_buffer = x->is_buffer;
    if (y && x->history && !cb_requires_grad_(y, true)) return NULL;
    return y;
}

static cb_status convert(Module *root, Module *module, cb_dtype dtype) {
    for (int i = 0; i < module->tensor_count; i++) {
        ModuleTensor *slot = &module->tensor[i];
        if (!slot->tensor || slot->tensor->dtype == dtype) continue;
        if (!dtype_is_float(slot->tensor->dtype)) continue;
        Tensor *now = converted(slot->tensor, dtype);
        if (!now) return cb_error_status();
        replace(root, slot->tensor, now);
    }
    for (int i = 0; i < module->child_count; i++) {
        cb_status status = convert(root, module->child[i].module, dtype);
        if (status) return status;
    }
    return CB_OK;
}

cb_status cb_module_to(cb_module *module, cb_dtype dtype) {
    if (!module) return fail(CB_ERR_ARGUMENT, "cb_module_to: NULL");
    if (!module_lives(module, "cb_module_to: the module")) return cb_error_status();
    if (dtype < 0 || dtype >= CB_DTYPE_COUNT || !dtype_is_float(dtype))
        return fail(CB_ERR_DTYPE, "cb_module_to: a module's parameters are floating point");
    return convert(module, module, dtype);
}

void *cb_module_user(const cb_module *module) {
    return module_lives(module, "cb_module_user: the module") ? module->user : NULL;
}

const char *cb_module_type(const cb_module *module) {
    return module_lives(module, "cb_module_type: the module") ? module->type : NULL;
}

bool cb_module_training(const cb_module *module) {
    if (!module_lives(module, "cb_module_training: the module")) return false;
    module_met(module);
    return module->training;
}

bool cb_module_is_leaf(const cb_module *module) {
    if (!module_lives(module, "cb_module_is_leaf: the module")) return false;
    module_met(module);
    return module->leaf;
}

int cb_module_child_count(const cb_module *module) {
    if (!module_lives(module, "cb_module_child_count: the module")) return 0;
    module_met(module);
    return module->child_count;
}

void cb_module_set_leaf(cb_module *module, bool leaf) {
    if (module_lives(module, "cb_module_set_leaf: the module")) module->leaf = leaf;
}

cb_module *cb_module_child_at(const cb_module *module, int index, const char **name) {
    if (!module_lives(module, "cb_module_child_at: the module")) return NULL;
    module_met(module);
    if (index < 0 || index >= module->child_count) return NULL;
    if (name) *name = module->child[index].name;
    return module->child[index].module;
}

/* ---- repr ----------------------------------------------------------------------------------- */

static void write_at(const Module *module, Buffer *out, int indent);

static const char *text_of(const Module *module, Arena *arena, int indent) {
    Buffer text = buffer_new(arena);
    write_at(module, &text, indent);
    return buffer_text(&text);
}

static void write_children(const Module *module, Buffer *out, int indent) {
    for (int i = 0; i < module->child_count;) {
        const char *text = text_of(module->child[i].module, out->arena, indent);
        int end = i + 1;
        while (module->grouped && end < module->child_count &&
               strcmp(text, text_of(module->child[end].module, out->arena, indent)) == 0)
            end++;
        putf(out, "\n%*s(%s", indent, "", module->child[i].name);
        if (end > i + 1)
            putf(out, "-%s): %d x ", module->child[end - 1].name, end - i);
        else
            put(out, "): ");
        put(out, text);
        i = end;
    }
}

static void write_at(const Module *module, Buffer *out, int indent) {
    putf(out, "%s(", module->type);
    if (module->child_count == 0) {
        putf(out, "%s)", module->extra);
        return;
    }
    if (*module->extra) putf(out, "\n%*s%s", indent + 2, "", module->extra);
    write_children(module, out, indent + 2);
    putf(out, "\n%*s)", indent, "");
}

char *cb_module_text(const cb_module *module) {
    if (!module_lives(module, "cb_module_text: the module")) return NULL;
    Arena *arena = arena_new();
    if (!arena || arena_guard(arena)) {
        arena_free(arena);
        fail_memory(0);
        return NULL;
    }
    Buffer out = buffer_new(arena);
    write_at(module, &out, 0);
    char *text = memory_copy_text(buffer_text(&out));
    if (!text) fail_memory(out.length + 1);
    arena_free(arena);
    return text;
}

void cb_module_print(const cb_module *module) {
    char *text = cb_module_text(module);
    if (text) puts(text);
    memory_free(text);
}
