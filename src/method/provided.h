/* A task that a provider computes: the functions of its rows (table.h). */
#ifndef CARBIDE_METHOD_PROVIDED_H
#define CARBIDE_METHOD_PROVIDED_H

#include "method/table.h"

bool provided_create(Work *work, const MethodCall *call, MethodRefusal *refusal);
/* Where the provider fails, our own engine runs, from then on. Results may depend on the number of
 * threads. */
bool provided_run(const Work *work, const Operands *operands);
void provided_free(Work *work);

#endif
