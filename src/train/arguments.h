/* TrainArguments of optimizers and schedules, written as in a call of PyTorch's.
 *
 *     "lr=3e-4, betas=(0.9, 0.95), nesterov=True"
 *
 * The text of the defaults says which there are; one without a value ("T_max") has to be given. */
#ifndef CARBIDE_TRAIN_ARGUMENTS_H
#define CARBIDE_TRAIN_ARGUMENTS_H

#include "nn/module.h"

#include <stdbool.h>

enum { MOST_ARGUMENTS = 10, NAME_BYTES = 32 };

typedef struct Argument {
    char name[NAME_BYTES];
    int count;       /* of its numbers: a pair has two; 0: not given yet */
    double value[2]; /* True is 1 */
} Argument;

typedef struct TrainArguments {
    const char *owner; /* "SGD", for errors */
    int count;
    Argument argument[MOST_ARGUMENTS];
} TrainArguments;

/* What a text of the library's own says. */
TrainArguments arguments_of(const char *owner, const char *defaults);
/* Takes those of the user's; NULL has none. False with an error. */
bool arguments_take(TrainArguments *arguments, const char *text);
/* False with an error that names one that was not given. */
bool arguments_complete(const TrainArguments *arguments);
/* The number of one that exists, and the second one of a pair. */
double argument(const TrainArguments *arguments, const char *name);
double argument_second(const TrainArguments *arguments, const char *name);
/* The same, 0 where there is none of this name. */
double argument_or_zero(const TrainArguments *arguments, const char *name);
/* cb_module_buffer of one that no file gives a number that arguments_within refuses. */
cb_tensor *buffer_ranged(cb_module *module, const char *name, cb_tensor *value);
/* Makes them buffers of the module, in a scope that the caller opened. False with an error. */
bool arguments_keep(const TrainArguments *arguments, cb_module *module);
/* Takes from its buffers those that decide what is computed, all but lr: a file that was loaded, or
 * a write, may have changed them. False with an error. */
bool arguments_recall(TrainArguments *arguments, const cb_module *module);
/* What a number of this name may be; NULL: everything. */
const ValueRange *range_of(const char *name);
/* False with an error that names one outside of its range. */
bool arguments_within(const TrainArguments *arguments);

#endif
