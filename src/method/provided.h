/* A task that a provider runs. */
#ifndef CARBIDE_METHOD_PROVIDED_H
#define CARBIDE_METHOD_PROVIDED_H

#include "cpu/operands.h"
#include "method/task.h"
#include "tensor/tensor.h"

typedef struct Provided Provided;

/* own: the task for our own engine. weight: element 0 of its value when it never changes, else
 * NULL. It is read now, and need not outlive this call if provided_packs. why gets a text when the
 * result is NULL. */
Provided *provided_new(const Provider *provider, const StepTask *task, const Task *own,
                       const void *weight, char *why, size_t why_bytes);
void provided_free(Provided *provided);
bool provided_packs(const Provided *provided);
bool provided_fuses(const Provided *provided);          /* the epilogue is part of the task */
const char *provided_method(const Provided *provided);  /* "brgemm:avx512_core" */
const char *provided_version(const Provided *provided); /* of the provider: "2.6.3" */

/* As gemm_run and convolution_run. Where the provider fails, our own engine runs, from then on.
 * Results may depend on the number of threads. */
bool provided_run(Provided *provided, const Operands *operands);

#endif
