/* Syntax trees -> nodes and attribute values.
 *
 * A term is a node, a plain number (weak in promotion), a dtype, a list of dims, or nothing (an
 * absent optional input). Arithmetic among numbers gives a number, exactly as in the language that
 * calls us. Where one of them is an argument of the graph, the same is computed when that runs, and
 * what a comparison of it decides is the same for all that it may be. */
#ifndef CARBIDE_GRAPH_EVALUATE_H
#define CARBIDE_GRAPH_EVALUATE_H

#include "graph/graph.h"
#include "graph/syntax.h"

typedef enum TermKind {
    TERM_NONE,
    TERM_NODE,
    TERM_INT,
    TERM_FLOAT,
    TERM_BOOL,
    TERM_DTYPE,
    TERM_DIMS,
    TERM_FLOATS
} TermKind;

typedef struct Term {
    TermKind kind;
    bool weak;   /* TERM_NODE: a number that varies (Param.varies) */
    bool freely; /* weak: and what it compares to is known when the graph runs */
    Node *node;
    Scalar number; /* TERM_INT, TERM_FLOAT, TERM_BOOL; TERM_DTYPE in .i; weak: one that it may be */
    union {
        cb_dim_list dims;
        cb_float_list floats;
    };
} Term;

typedef struct Evaluator Evaluator;
struct Evaluator {
    Graph *graph;
    bool (*lookup)(const Evaluator *evaluator, Word name, Term *out);
    void *user;
    const char *formula; /* the op whose formula it is, or NULL */
    const char *text;    /* for positions in errors; NULL: none are given */
};

/* False with an error. */
bool evaluate(const Evaluator *evaluator, const Syntax *syntax, Term *out);
/* The node of a term; a number becomes a constant of its own kind: i64, f64 or bool. NULL for
 * others. */
Node *term_node(Graph *graph, const Term *term);

#endif
