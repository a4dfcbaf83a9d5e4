/* What a call finds around its inputs, and an entry holds for alone: the ambient state
 * (tensor/ambient.h), and under fullgraph the module as it is, whose forward does not run again.
 *
 *     an entry compiled under "medium", a call under "highest"
 *         ->  input_changed, "float32 matmul precision is not medium, for entry 0 it was medium" */
#include "capture/function.h"

#include "nn/module.h"

static uint64_t modes_of(const cb_module *module) {
    uint64_t hash = module->training;
    for (int i = 0; i < module->child_count; i++)
        hash = hash_mix(hash, modes_of(module->child[i].module));
    return hash;
}

/* A handle names one tensor, with its sizes, strides and place, and no other one after it. */
static uint64_t tensors_of(const cb_module *module) {
    uint64_t hash = (uint64_t)module->tensor_count;
    for (int i = 0; i < module->tensor_count; i++)
        hash = hash_mix(hash, (uintptr_t)tensor_out(module->tensor[i].tensor));
    for (int i = 0; i < module->child_count; i++)
        hash = hash_mix(hash, tensors_of(module->child[i].module));
    return hash;
}

Ambient function_ambient(const Function *function) {
    static const cb_dtype named[] = {
        [CAST_BF16] = CB_BF16, [CAST_F16] = CB_F16, [CAST_OFF] = CB_SAME};
    Ambient now = ambient_now();
    CastMode autocast = function->options.autocast;
    if (autocast != CAST_AS_THREAD) now.autocast = named[autocast];
    return now;
}

Conditions conditions_now(const Function *function) {
    Conditions now = {.ambient = function_ambient(function)};
    if (function->options.fullgraph && function->callee == CALLEE_MODULE) {
        now.modes = modes_of(function->target.module);
        now.tensors = tensors_of(function->target.module);
    }
    return now;
}

bool conditions_equal(const Conditions *a, const Conditions *b) {
    return ambient_equal(a->ambient, b->ambient) && a->modes == b->modes &&
           a->tensors == b->tensors;
}

Reason conditions_differ(const Entry *entry, const Conditions *now, char *out, size_t bytes) {
    const Conditions *then = &entry->conditions;
    if (conditions_equal(then, now)) return REASON_NONE;
    if (!ambient_equal(then->ambient, now->ambient)) {
        char whose[32];
        snprintf(whose, sizeof whose, "entry %d", entry->number);
        ambient_print_change(now->ambient, then->ambient, whose, out, bytes);
    } else if (then->modes != now->modes) {
        snprintf(out, bytes, "entry %d was compiled before", entry->number);
        return REASON_mode_changed;
    } else {
        snprintf(out, bytes, "a module holds other parameters");
    }
    return REASON_input_changed;
}
