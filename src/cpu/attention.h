/* Attention on the CPU as one step: no matrix of scores in memory. */
#ifndef CARBIDE_CPU_ATTENTION_H
#define CARBIDE_CPU_ATTENTION_H

#include "cpu/operands.h"

/* Operands query, key, values and, in a masked task, mask. Results do not depend on the number of
 * threads. There is at least one. false: no memory. */
bool attention_run(const AttentionTask *task, const Operands *operands);

#endif
