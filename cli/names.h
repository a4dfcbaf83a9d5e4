/* Names that are asked for and are no rows of the op table. */
#ifndef CARBIDE_CLI_NAMES_H
#define CARBIDE_CLI_NAMES_H

#include "base/guess.h"

#include <stdbool.h>

/* The op that PyTorch has under this name; NULL: none. */
const char *name_here(const char *name);
/* How what PyTorch has under this name is written here, or what else is near; NULL: not known. */
const char *name_advice(const char *name);
/* Tells of a function of the public headers, or of a layer, which may be named without nn_; false:
 * there is none. */
bool print_function(const char *name, Guess *guess);

#endif
