/* What of a call no entry fits, for explain; and the states of a callee's modules that entries are
 * compiled for.
 *
 *     entry 0 was compiled for f32[2, 8]; a call with f32[4, 8]
 *         ->  input_changed, "input 0 is f32[4, 8], entry 0 has f32[2, 8]" */
#include "capture/function.h"

#include "base/precision.h"
#include "nn/module.h"
#include <string.h>

static uint64_t module_modes(const cb_module *module) {
    uint64_t hash = module->training;
    for (int i = 0; i < module->child_count; i++)
        hash = hash_mix(hash, module_modes(module->child[i].module));
    return hash;
}

uint64_t function_modes(const Function *function) {
    return function->callee == CALL_MODULE ? module_modes(function->target.module) : 0;
}

static uint64_t module_state(const cb_module *module) {
    uint64_t hash = module->training;
    for (int i = 0; i < module->tensor_count; i++) {
        const Tensor *x = module->tensor[i].tensor;
        hash = hash_mix(hash, x && x->storage ? x->storage->serial + (uint64_t)x->offset : 0);
    }
    for (int i = 0; i < module->child_count; i++)
        hash = hash_mix(hash, module_state(module->child[i].module));
    return hash;
}

uint64_t function_state(const Function *function) {
    bool guarded = function->options.fullgraph && function->callee == CALL_MODULE;
    return guarded ? module_state(function->target.module) : 0;
}

static const char *autocast_name(cb_dtype dtype) {
    return dtype == CB_SAME ? "off" : cb_dtype_name(dtype);
}

Reason miss_describe(const Function *function, Tensor *const *input, int input_count, char *out,
                     size_t bytes) {
    const Entry *last = NULL;
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next)) last = e;
    snprintf(out, bytes, "another number of inputs");
    for (int i = 0; last && i < input_count && input_count == last->input_count; i++) {
        if (guard_holds(&last->guard[i], input[i])) continue;
        char now[64], then[64];
        Meta meta = tensor_meta(input[i]), known = last->trace->value[i].meta;
        meta_format(&meta, now, sizeof now);
        meta_format(&known, then, sizeof then);
        bool strides = !strcmp(now, then);
        snprintf(out, bytes, "input %d is %s%s, entry %d has %s", i, now,
                 strides ? " of other strides" : "", last->number, then);
        return REASON_input_changed;
    }
    if (last && input_count == last->input_count && entry_describe_aliases(last, input, out, bytes))
        return REASON_input_changed;
    cb_dtype autocast = function_autocast(function);
    if (last && last->autocast != autocast) {
        snprintf(out, bytes, "autocast is %s, for entry %d it was %s", autocast_name(autocast),
                 last->number, autocast_name(last->autocast));
        return REASON_input_changed;
    }
    if (last && last->reduced != precision_reduced()) {
        snprintf(out, bytes, "float32 matmul precision is %s, for entry %d it was %smedium",
                 cb_get_float32_matmul_precision(), last->number, last->reduced ? "" : "not ");
        return REASON_input_changed;
    }
    if (last && last->modes != function_modes(function)) {
        snprintf(out, bytes, "entry %d was compiled before", last->number);
        return REASON_mode_changed;
    }
    if (last && last->state != function_state(function))
        snprintf(out, bytes, "a module holds other parameters");
    if (last && function->options.fullgraph && !frozen_all_hold(last, NULL))
        snprintf(out, bytes, "a parameter that was compiled as a constant has changed");
    return REASON_input_changed;
}
