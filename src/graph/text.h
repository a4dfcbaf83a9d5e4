/* Names of nodes in text, for the printer and the verifier's messages. */
#ifndef CARBIDE_GRAPH_TEXT_H
#define CARBIDE_GRAPH_TEXT_H

#include "graph/graph.h"

/* Names by id, for the nodes of order: arg0, exp, exp_1... */
const char **text_names(const Graph *graph, Node *const *order, Arena *arena);
/* "add = add(arg0, 1.0)" */
void text_node(const char *const *names, const Node *node, Buffer *out);

#endif
