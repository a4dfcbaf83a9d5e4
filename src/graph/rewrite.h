/* What the passes over nodes share: folding, structure, rules. */
#ifndef CARBIDE_GRAPH_REWRITE_H
#define CARBIDE_GRAPH_REWRITE_H

#include "graph/graph.h"

/* Rewrites that may still be made; negative: any number. CARBIDE_PASSES bisects with it. */
typedef struct Budget {
    int64_t left;
} Budget;
bool budget_spend(Budget *budget); /* false: there is none left, so leave the node */

/* The constant that every element of node is, or NULL. */
Node *node_uniform(Node *node);
/* An equal node without arithmetic on constants, or node itself (fold.c). */
Node *fold_node(Graph *graph, Node *node);
/* An equal node with fewer views, conversions or trivial reductions, or node itself
 * (simplify.c). */
Node *simplify_node(Graph *graph, Node *node);

/* A scatter_add of halves over these inputs, whose sums are rounded once (sum_halves.c). */
Node *sum_halves(Graph *graph, const Node *node, Node *const *input);
/* An equal node that computes each element where it is read, of a scatter_add of few rows to many
 * zeros; or node itself. */
Node *read_row_sums(Graph *graph, Node *node);
/* Whether of a scatter_add to zeros it is that. */
bool adds_few_rows(const Node *scatter_add);

/* The rules (rules.def). */
enum { DOMAIN_BOOL = 1, DOMAIN_INT = 2, DOMAIN_FLOAT = 4, DOMAIN_ROUNDS = 8, DOMAIN_CANCELS = 16 };
typedef struct Rule {
    const char *text;
    int domain;                   /* dtypes of x; DOMAIN_ROUNDS: equal up to the last bits */
    bool (*guard)(const Node *k); /* of the constant k; NULL: none */
} Rule;
int rule_count(void);
const Rule *rule_at(int number);

/* Whether scaled_dot_product_attention is worth a step of its own: REASON_NONE, or why not
 * (claim.c). */
Reason attention_pays(const Node *node);

/* Passes. */
void pass_attention(Graph *graph, Budget *budget);
void pass_claim(Graph *graph, Budget *budget);
void pass_decompose(Graph *graph, Budget *budget);
void pass_fold(Graph *graph, Budget *budget);
void pass_rewrite(Graph *graph, Budget *budget);
void pass_narrow(Graph *graph, Budget *budget);
void pass_absorb(Graph *graph, Budget *budget);
void pass_layout(Graph *graph, Budget *budget);
void pass_exact(Graph *graph, Budget *budget);
void pass_freeze(Graph *graph, Budget *budget);
void pass_normalize(Graph *graph, Budget *budget);
void pass_recompute(Graph *graph, Budget *budget);
void pass_pieces(Graph *graph, Budget *budget);
bool node_is_normal(Graph *graph, Node *node); /* normalize leaves it as it is */

#endif
