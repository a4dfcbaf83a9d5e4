/* What a call finds around its inputs, and an entry holds for alone: autocast, the precision of
 * products, and under fullgraph the module as it is, since its forward does not run again.
 *
 *     an entry compiled under "medium", a call under "highest"
 *         ->  input_changed, "float32 matmul precision is highest, for entry 0 it was medium" */
#include "capture/function.h"

#include "base/precision.h"
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

cb_dtype function_autocast(const Function *function) {
    static const cb_dtype named[] = {
        [CAST_BF16] = CB_BF16, [CAST_F16] = CB_F16, [CAST_OFF] = CB_SAME};
    int autocast = function->options.autocast;
    return autocast == CAST_AS_THREAD ? cb_autocast_dtype() : named[autocast];
}

Conditions conditions_now(const Function *function) {
    Conditions now = {.autocast = function_autocast(function), .reduced = precision_reduced()};
    if (function->options.fullgraph && function->callee == CALL_MODULE) {
        now.modes = modes_of(function->target.module);
        now.tensors = tensors_of(function->target.module);
    }
    return now;
}

bool conditions_equal(const Conditions *a, const Conditions *b) {
    return a->autocast == b->autocast && a->reduced == b->reduced && a->modes == b->modes &&
           a->tensors == b->tensors;
}

static const char *autocast_name(cb_dtype dtype) {
    return dtype == CB_SAME ? "off" : cb_dtype_name(dtype);
}

Reason conditions_differ(const Entry *entry, const Conditions *now, char *out, size_t bytes) {
    const Conditions *then = &entry->conditions;
    if (conditions_equal(then, now)) return REASON_NONE;
    if (then->autocast != now->autocast) {
        snprintf(out, bytes, "autocast is %s, for entry %d it was %s", autocast_name(now->autocast),
                 entry->number, autocast_name(then->autocast));
    } else if (then->reduced != now->reduced) {
        snprintf(out, bytes, "float32 matmul precision is %s, for entry %d it was %smedium",
                 cb_get_float32_matmul_precision(), entry->number, then->reduced ? "" : "not ");
    } else if (then->modes != now->modes) {
        snprintf(out, bytes, "entry %d was compiled before", entry->number);
        return REASON_mode_changed;
    } else {
        snprintf(out, bytes, "a module holds other parameters");
    }
    return REASON_input_changed;
}
