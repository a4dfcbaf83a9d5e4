/* Index checks of a graph (graph/index_check.c). */
#ifndef CARBIDE_GRAPH_INDEX_CHECK_H
#define CARBIDE_GRAPH_INDEX_CHECK_H

#include "graph/graph.h"

/* What an op with an index asks of it. */
IndexBound index_bound(const Node *node);
/* The values that an index consists of: those that views only repeat and rearrange. */
Node *index_base(Node *index);
/* Nothing of it can be out of range: there is nothing, or it is so by construction. */
bool index_in_range(const Node *base, int64_t bound);
/* Of an op that has just been called: adds its check to the graph's. */
void index_check_called(Graph *graph, const Node *node);
/* For the option check, since it is a pass over them, the same of values that an op refuses
 * (op_refuses): where there is one there is an index 1, within a bound of 1. */
void value_check_called(Graph *graph, const Node *node);
/* Those of the nodes that now take the places of their indices, if any can fail there. */
void index_checks_replace(Graph *graph, Node *const *now);
/* The graph's checks that no op makes which the results need, each once. */
IndexCheck *index_checks_left(const Graph *graph, Arena *arena);

/* A set of checks: of one index within one bound, the first. */
typedef struct CheckSet {
    Arena *arena;
    IndexCheck *check; /* vec */
    int *before;       /* vec, by check: one more than the number of the one before on its index */
    int *last;         /* by node id: one more than the number of the last one on it */
} CheckSet;

CheckSet check_set_new(const Graph *graph, Arena *arena);
void check_set_add(CheckSet *set, Node *index, const IndexBound *bound);

#endif
