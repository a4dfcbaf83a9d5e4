/* Kinds of task that one method of our own computes (own_methods.def). */
#ifndef CARBIDE_CPU_OWN_H
#define CARBIDE_CPU_OWN_H

#include "cpu/operands.h"

#define OWN_METHOD(id, name, description)                                                          \
    bool name##_run(const description *task, const Operands *operands);
#include "cpu/own_methods.def"
#undef OWN_METHOD

#endif
