/* What the epilogue of a step amounts to. */
#ifndef CARBIDE_METHOD_EPILOGUE_H
#define CARBIDE_METHOD_EPILOGUE_H

#include "cpu/operands.h"
#include "sched/plan.h"

/* step: a task. Not fused: it has none, or one that is only a kernel. */
KnownEnd known_end(const Plan *plan, const Step *step);

#endif
