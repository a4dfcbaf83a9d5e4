/* Partition: a joint graph, of results and of the gradients that lead back from them, in two. */
#ifndef CARBIDE_GRAPH_PARTITION_H
#define CARBIDE_GRAPH_PARTITION_H

#include "graph/graph.h"

/* In: what there is beside the results. The last `given` inputs of the graph are the gradients of
 * results, which are not there when those are computed. */
typedef struct JointGraph {
    int given;
    Node **gradient; /* vec: that lead back; they follow the passes as outputs */
    double budget;   /* 0 to 1: how much of what would be recomputed at most may be kept instead */
} JointGraph;

/* Out: what the graph of the gradients reads, by its input. */
typedef enum ReadKind { READS_INPUT, READS_SAVED, READS_GIVEN } ReadKind;
typedef struct BackwardRead {
    ReadKind kind;
    int number; /* of an input, of what is saved, of what is given */
} BackwardRead;

typedef struct BackwardGraph {
    Graph *graph; /* in an arena of its own, which goes over to whoever takes it */
    BackwardRead *read; /* vec, in its arena */
    int64_t saved_bytes;
} BackwardGraph;

/* The graph, which has been through the passes with the gradients as its last outputs, becomes that
 * of the results, and behind them of what is saved for the gradients: no input `given` is left.
 * Memory runs out through the guards of both arenas. */
void graph_partition(Graph *graph, const JointGraph *joint, Arena *arena, BackwardGraph *backward);

#endif
