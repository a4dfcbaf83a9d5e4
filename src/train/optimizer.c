/* Optimizers: groups of parameters with their state, and a step over all of them.
 *
 * In:  cb_optimizer_new("SGD", "momentum=0.9"), cb_optimizer_add(optimizer, parameters, 2, NULL).
 * Out: cb_optimizer_step has written to every parameter that has a gradient.
 * Invariant: the state has a place in the tree of modules from the moment a parameter is added, so
 *      that a step makes nothing that outlives it, and may be captured. */
#include "base/memory.h"
#include "eager/tape.h"
#include "tensor/read.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

bool optimizer_lives(const cb_optimizer *optimizer, const char *what) {
    return tomb_lives(optimizer ? &optimizer->tomb : NULL, what);
}

/* ---- making ---------------------------------------------------------------------------------- */

static bool arguments_fit(const TrainArguments *arguments) {
    if (!arguments_within(arguments)) return false;
    bool nesterov = argument_or_zero(arguments, "nesterov") != 0;
    if (!nesterov ||
        (argument(arguments, "momentum") > 0 && argument_or_zero(arguments, "dampening") == 0))
        return true;
    fail(CB_ERR_ARGUMENT, "%s: nesterov needs a momentum, and no dampening", arguments->owner);
    return false;
}

static Module *tree(const char *kind) {
    Module *root = cb_module_new("Optimizer", NULL, NULL);
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    bool made = root && buffer_number(root, kind, 1, CB_BOOL) &&
                cb_module_add(root, "state", cb_module_new("State", NULL, NULL)) &&
                cb_module_add(root, "param_groups", cb_module_new("Groups", NULL, NULL));
    cb_scope_close();
    tracer_set(tracer);
    if (made) return root;
    cb_module_free(root);
    return NULL;
}

cb_optimizer *cb_optimizer_new(const char *name, const char *arguments) {
    const Kind *kind = kind_find(name);
    if (!kind) return NULL;
    TrainArguments taken = arguments_of(kind->name, kind->defaults);
    if (!arguments_take(&taken, arguments) || !arguments_fit(&taken)) return NULL;
    cb_optimizer *optimizer = memory_zalloc(sizeof *optimizer);
    Module *root = optimizer ? tree(kind->name) : NULL;
    if (!root) {
        if (!optimizer) fail_memory(sizeof *optimizer);
        memory_free(optimizer);
        return NULL;
    }
    optimizer->kind = kind;
    optimizer->arguments = taken;
    optimizer->root = root;
    return optimizer;
}

void cb_optimizer_free(cb_optimizer *optimizer) {
    if (!optimizer || !optimizer_lives(optimizer, "cb_optimizer_free: the optimizer")) return;
    cb_module_free(optimizer->root);
    memory_free(optimizer->group);
    memory_free(optimizer->slot);
    tomb_bury(&optimizer->tomb);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Gives the module a tensor; NULL, and the tensor is gone, on an error. Never part of a trace. */
static cb_tensor *own(Module *module, const char *name, cb_tensor *value) {
    cb_tensor *owned = module && value ? buffer_ranged(module, name, value) : NULL;
    if (!owned && value) cb_free(value);
    return owned;
}

cb_tensor *buffer_number(cb_module *module, const char *name, double value, cb_dtype dtype) {
    return own(module, name, cb_full(CB_NO_DIMS, value, dtype));
}

static cb_tensor *zeros_like(cb_tensor *parameter, double value) {
    return cb_mul(cb_ones_like(parameter), value);
}

static bool takes(const Kind *kind, cb_tensor *parameter) {
    if (cb_dtype_of(parameter) == CB_SAME) return false; /* no tensor: the error is there */
    const Tensor *x = tensor_in(parameter, kind->name);
    if (x->history && !tape_gradient(x)) {
        fail(CB_ERR_ARGUMENT,
             "%s: a parameter is a result that gradients go back from, and no leaf: steps would "
             "change it, and not what it comes of",
             kind->name);
        return false;
    }
    if (kind->matrices && cb_rank(parameter) != 2) {
        fail(CB_ERR_SHAPE,
             "%s: a parameter has %d dimensions; it takes matrices, the others are "
             "AdamW's",
             kind->name, cb_rank(parameter));
        return false;
    }
    return true;
}

/* The parameters require gradients from now on: all of them, or, with an error, those that did. */
static bool want_gradients(cb_tensor *const *parameters, ParameterState *slot, int count) {
    for (int i = 0; i < count; i++) {
        slot[i].asked = !cb_requires_grad(parameters[i]);
        if (cb_requires_grad_(parameters[i], true)) continue;
        while (--i >= 0)
            if (slot[i].asked) cb_requires_grad_(parameters[i], false);
        return false;
    }
    return true;
}

/* The state of one parameter, as child number of `state`. */
static bool slot_make(cb_optimizer *optimizer, const TrainArguments *arguments, int number,
                      ParameterState *slot) {
    const Kind *kind = optimizer->kind;
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    Module *states = cb_module_child(optimizer->root, "state");
    Module *module = cb_module_add(states, name, cb_module_new("State", NULL, NULL));
    if (!module) return false;
    if (!optimizer->step)
        optimizer->step = buffer_number(module, "step", 0, CB_F64);
    else if (cb_module_share(module, "step", optimizer->step))
        module_find_tensor(module, "step")->range = range_of("step");
    double first = argument_or_zero(arguments, "initial_accumulator_value");
    for (int i = 0; i < MOST_STATES && kind->states[i]; i++) {
        if (!kind->uses(arguments, i)) continue;
        cb_tensor *zeros = i && i == kind->flag ? cb_zeros(CB_NO_DIMS, CB_BOOL)
                                                : zeros_like(slot->parameter, first);
        slot->state[i] = own(module, kind->states[i], zeros);
        if (!slot->state[i]) return false;
    }
    return optimizer->step != NULL;
}

/* Its arguments, as tensors of a child of `param_groups`. */
static bool group_make(cb_optimizer *optimizer, ParameterGroup *group) {
    char name[16];
    snprintf(name, sizeof name, "%d", optimizer->groups);
    Module *groups = cb_module_child(optimizer->root, "param_groups");
    group->module = cb_module_add(groups, name, cb_module_new("Group", NULL, NULL));
    if (!group->module || !arguments_keep(&group->arguments, group->module)) return false;
    group->lr = cb_module_get(group->module, "lr");
    return group->lr != NULL;
}

static bool grow(cb_optimizer *optimizer, int count) {
    size_t slots = sizeof(ParameterState) * (size_t)(optimizer->slots + count);
    size_t groups = sizeof(ParameterGroup) * (size_t)(optimizer->groups + 1);
    ParameterState *slot = memory_resize(optimizer->slot, slots);
    if (slot) optimizer->slot = slot;
    ParameterGroup *group = slot ? memory_resize(optimizer->group, groups) : NULL;
    if (group) optimizer->group = group;
    if (!group) fail_memory(slots);
    return group != NULL;
}

/* What a group that failed left in the tree. */
static void drop_behind(Module *module, int count) {
    while (module->child_count > count) {
        ModuleChild *last = &module->child[--module->child_count];
        last->module->parents = 0;
        cb_module_free(last->module);
        memory_free(last->name);
    }
}

static bool add(cb_optimizer *optimizer, cb_tensor *const *parameters, int count,
                const char *text) {
    ParameterGroup group = {.arguments = optimizer->arguments,
                            .initial_lr = NAN,
                            .first = optimizer->slots,
                            .count = count};
    if (!arguments_take(&group.arguments, text) || !arguments_fit(&group.arguments)) return false;
    if (!grow(optimizer, count)) return false;
    for (int i = 0; i < count; i++) {
        ParameterState *slot = &optimizer->slot[optimizer->slots + i];
        *slot = (ParameterState){.parameter = parameters[i]};
        for (int k = 0; k < optimizer->slots + i; k++)
            if (optimizer->slot[k].parameter == parameters[i]) {
                fail(CB_ERR_ARGUMENT, "cb_optimizer_add: parameter %d is there already", i);
                return false;
            }
        if (!takes(optimizer->kind, parameters[i])) return false;
        if (!slot_make(optimizer, &group.arguments, optimizer->slots + i, slot)) return false;
    }
    if (!group_make(optimizer, &group) ||
        !want_gradients(parameters, &optimizer->slot[optimizer->slots], count))
        return false;
    optimizer->group[optimizer->groups++] = group;
    optimizer->slots += count;
    return true;
}

cb_status cb_optimizer_add(cb_optimizer *optimizer, cb_tensor *const *parameters, int count,
                           const char *arguments) {
    if (!optimizer_lives(optimizer, "cb_optimizer_add: the optimizer")) return CB_ERR_ARGUMENT;
    if (count < 1 || !parameters) return fail(CB_ERR_ARGUMENT, "cb_optimizer_add: no parameters");
    bool first = !optimizer->step;
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    cb_no_grad_open();
    bool added = add(optimizer, parameters, count, arguments);
    cb_no_grad_close();
    cb_scope_close();
    tracer_set(tracer);
    if (added) return CB_OK;
    drop_behind(cb_module_child(optimizer->root, "state"), optimizer->slots);
    drop_behind(cb_module_child(optimizer->root, "param_groups"), optimizer->groups);
    if (first) optimizer->step = NULL;
    return cb_error_status();
}

cb_status cb_optimizer_add_module(cb_optimizer *optimizer, cb_module *module,
                                  const char *arguments) {
    int count = cb_module_parameters(module, NULL, 0);
    cb_tensor **all = memory_alloc(sizeof *all * (size_t)(count > 0 ? count : 1));
    if (!all) return fail_memory(sizeof *all * (size_t)count);
    cb_module_parameters(module, all, count);
    cb_status status = cb_optimizer_add(optimizer, all, count, arguments);
    memory_free(all);
    return status;
}

/* ---- stepping -------------------------------------------------------------------------------- */

/* What needs a state that was not made when the parameter was added. */
static bool states_suffice(const cb_optimizer *optimizer, const ParameterGroup *group,
                           const TrainArguments *arguments) {
    const Kind *kind = optimizer->kind;
    const ParameterState *slot = &optimizer->slot[group->first];
    for (int i = 0; i < MOST_STATES && kind->states[i]; i++) {
        if (slot->state[i] || !kind->uses(arguments, i)) continue;
        fail(CB_ERR_ARGUMENT, "%s: its arguments were changed to some that need %s", kind->name,
             kind->states[i]);
        return false;
    }
    return true;
}

/* The buffers say what the arguments are: a file may have been loaded since the last step. */
static bool group_recall(const cb_optimizer *optimizer, ParameterGroup *group) {
    TrainArguments now = group->arguments;
    if (!arguments_recall(&now, group->module)) return false;
    if (!memcmp(&now, &group->arguments, sizeof now)) return true;
    if (!arguments_fit(&now) || !states_suffice(optimizer, group, &now)) return false;
    group->arguments = now;
    return true;
}

static bool step_group(const cb_optimizer *optimizer, const ParameterGroup *group,
                       cb_tensor *skip) {
    Rates rates = {.lr = group->lr, .step = optimizer->step, .skip = skip};
    if (optimizer->kind->rates) optimizer->kind->rates(&group->arguments, &rates);
    for (int i = group->first; i < group->first + group->count; i++) {
        const ParameterState *slot = &optimizer->slot[i];
        cb_tensor *gradient;
        if (!gradient_of(slot->parameter, "cb_optimizer_step: a parameter", &gradient))
            return false;
        if (!gradient) continue;
        if (!optimizer->kind->update(&group->arguments, &rates, slot, gradient)) return false;
    }
    return true;
}

cb_status optimizer_step_unless(cb_optimizer *optimizer, cb_tensor *skip) {
    if (!optimizer_lives(optimizer, "cb_optimizer_step: the optimizer")) return CB_ERR_ARGUMENT;
    if (!optimizer->groups) return fail(CB_ERR_ARGUMENT, "cb_optimizer_step: no parameters yet");
    cb_scope_open();
    cb_no_grad_open();
    bool fine = true;
    for (int i = 0; i < optimizer->groups && fine; i++)
        fine = group_recall(optimizer, &optimizer->group[i]);
    cb_tensor *step = optimizer->step;
    fine = fine && (skip ? cb_add_(step, cb_logical_not(skip)) : cb_add_(step, 1.0));
    for (int i = 0; i < optimizer->groups && fine; i++)
        fine = step_group(optimizer, &optimizer->group[i], skip);
    cb_no_grad_close();
    cb_scope_close();
    return fine ? CB_OK : cb_error_status();
}

cb_status cb_optimizer_step(cb_optimizer *optimizer) {
    return optimizer_step_unless(optimizer, NULL);
}

void cb_optimizer_zero_grad(cb_optimizer *optimizer) {
    if (!optimizer_lives(optimizer, "cb_optimizer_zero_grad: the optimizer")) return;
    for (int i = 0; i < optimizer->slots; i++) cb_zero_grad(optimizer->slot[i].parameter);
}

static const ParameterGroup *group_of(const cb_optimizer *optimizer, int number, const char *what) {
    if (!optimizer_lives(optimizer, what)) return NULL;
    if (number >= 0 && number < optimizer->groups) return &optimizer->group[number];
    fail(CB_ERR_ARGUMENT, "%s: there is no group %d of %d", what, number, optimizer->groups);
    return NULL;
}

double cb_optimizer_lr(cb_optimizer *optimizer, int number) {
    const ParameterGroup *group = group_of(optimizer, number, "cb_optimizer_lr: the optimizer");
    const char *before = asking_begin("optimizer_lr");
    double lr = group ? cb_item(group->lr) : NAN;
    asking_end(before);
    return lr;
}

cb_status cb_optimizer_set_lr(cb_optimizer *optimizer, int number, double lr) {
    const ParameterGroup *group = group_of(optimizer, number, "cb_optimizer_set_lr: the optimizer");
    if (!group) return CB_ERR_ARGUMENT;
    if (!(lr >= 0 && isfinite(lr)))
        return fail(CB_ERR_ARGUMENT, "cb_optimizer_set_lr: a rate of %g", lr);
    return cb_fill_(group->lr, cb_operand_float(lr)) ? CB_OK : cb_error_status();
}

cb_module *cb_optimizer_state(cb_optimizer *optimizer) {
    return optimizer_lives(optimizer, "cb_optimizer_state: the optimizer") ? optimizer->root : NULL;
}
