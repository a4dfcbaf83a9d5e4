/* Optimizers inside: groups of parameters, their state, and the table of updates.
 *
 * State, rates and arguments live in a tree of modules, so that the files of state dicts are
 * nn/state.c's:
 *
 *     root  AdamW                                      a file of another kind does not fit
 *           state         0 exp_avg, exp_avg_sq, step    by parameter, through all groups
 *           param_groups  0 lr, betas, ...               by group; what a step computes with */
#ifndef CARBIDE_TRAIN_TRAIN_H
#define CARBIDE_TRAIN_TRAIN_H

#include "nn/module.h"
#include "train/arguments.h"

/* *gradient: of a parameter; NULL: it has none. False with an error for NULL and what is gone. */
static inline bool gradient_of(const cb_tensor *parameter, const char *what, cb_tensor **gradient) {
    bool lives = tensor_in(parameter, what) != NULL;
    if (!parameter) fail(CB_ERR_ARGUMENT, "%s is NULL", what);
    *gradient = lives ? cb_tensor_grad(parameter) : NULL;
    return lives;
}

enum { MOST_STATES = 3 };

typedef struct ParameterState {
    cb_tensor *parameter;
    cb_tensor *state[MOST_STATES]; /* in the order of the kind's names; NULL: not used */
    bool asked;                    /* it did not require a gradient before it was added */
} ParameterState;

/* What a step computes once for a group: tensors without dims, f64. */
typedef struct Rates {
    cb_tensor *lr, *step;
    cb_tensor *skip;   /* bool: nothing changes; NULL: no */
    cb_tensor *shrink; /* 1 - lr * weight_decay */
    cb_tensor *size;   /* what the update is multiplied by */
    cb_tensor *root;   /* square root of the second moment's correction */
} Rates;

typedef struct ParameterGroup {
    TrainArguments arguments; /* as the last step found them in the module */
    cb_module *module;        /* root owns it, and lr */
    cb_tensor *lr;
    double initial_lr; /* that its first schedule found; NAN: there was none */
    int first, count;  /* slots */
} ParameterGroup;

typedef struct Kind {
    const char *name, *defaults, *states[MOST_STATES];
    bool matrices; /* takes no other parameters */
    int flag;      /* the state that is a bool without dims, false at first; 0: none */
    bool (*uses)(const TrainArguments *arguments, int state);
    void (*rates)(const TrainArguments *arguments, Rates *rates); /* NULL: lr is all */
    /* Writes to the parameter and its state; NULL with an error. */
    cb_tensor *(*update)(const TrainArguments *arguments, const Rates *rates,
                         const ParameterState *slot, cb_tensor *gradient);
} Kind;
const Kind *kind_find(const char *name); /* NULL with an error that lists them */

struct cb_optimizer {
    Tomb tomb; /* first */
    const Kind *kind;
    TrainArguments arguments;
    cb_module *root;
    cb_tensor *step; /* of all parameters; root owns it. NULL before the first group */
    ParameterGroup *group;
    ParameterState *slot;
    int groups, slots;
};
/* False for NULL, and with an error for one that was freed. */
bool optimizer_lives(const cb_optimizer *optimizer, const char *what);

/* cb_optimizer_step that changes nothing if skip, a bool tensor without dims, says so. */
cb_status optimizer_step_unless(cb_optimizer *optimizer, cb_tensor *skip);

/* A tensor without dims that the module owns as a buffer; NULL with an error. */
cb_tensor *buffer_number(cb_module *module, const char *name, double value, cb_dtype dtype);

#endif
