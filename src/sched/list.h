/* Kernels that run as one step (sched/list.c). */
#ifndef CARBIDE_SCHED_LIST_H
#define CARBIDE_SCHED_LIST_H

#include "sched/plan.h"

/* Joins steps of one kernel each, in their final order, into lists. nodes: entries of node_step. */
void join_lists(Plan *plan, Arena *arena, int nodes);

#endif
