/* Constants of a compilation: what depends on frozen inputs alone is computed now
 * (run/freeze.c). */
#ifndef CARBIDE_RUN_FREEZE_H
#define CARBIDE_RUN_FREEZE_H

#include "graph/graph.h"
#include "run/constant.h"

/* graph->frozen says which inputs are frozen; value[k] is input k's tensor. Every maximal part of
 * the graph that needs frozen inputs alone becomes an input of its own behind the others
 * (graph->constant_count): *out has its value or, where that is large, the recipe, which reads the
 * frozen tensors. Frozen inputs that are still read become such inputs too, without a copy.
 * *stride, an array by input as for plan_build, is extended. false: memory ran out; the graph is as
 * it was. */
bool freeze_graph(Graph *graph, Tensor *const *value, const int64_t *const **stride,
                  Constants *out);

#endif
