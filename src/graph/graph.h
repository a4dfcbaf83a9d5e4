/* The compiler's graph: interned, typed, immutable nodes.
 *
 *     graph(x: f32[128, 512], w: f32[512]) {
 *       add = add(x, w)
 *       softmax = softmax(add, dim=1)
 *       return softmax
 *     }
 *
 * Same op, inputs and attributes = same pointer, so common subexpressions, rule matching and cache
 * keys come free. Passes never change a node: they build new ones and redirect the outputs.
 * Types are explicit: a pointwise node's inputs have the compute dtype (`to` nodes convert); shapes
 * broadcast implicitly. A composite node carries its expansion, made when it is created, so its
 * meta is that of the expansion; the name stays until decompose, for whoever can claim it whole.
 * Random nodes carry a draw number (graph_op numbers them), so they never merge. */
#ifndef CARBIDE_GRAPH_GRAPH_H
#define CARBIDE_GRAPH_GRAPH_H

#include "base/buffer.h"
#include "base/map.h"
#include "base/reason.h"
#include "base/vec.h"
#include "op/op.h"
#include "tensor/ambient.h"

typedef struct Node Node;

/* A composite as it was called, for the errors of what it expands to. */
typedef struct CompositeCall {
    Op op;
    int count;
    Node *const *input; /* as given: a composite's own node has them converted */
} CompositeCall;

/* Whose work a node does. Nodes are interned: of several calls, the first. */
typedef struct Origin {
    Site site;
    const CompositeCall *call; /* the outermost one; NULL: the op itself was called */
} Origin;

/* Of what a checkpoint computes again for gradients, and what follows from such alone
 * (recompute.c): the number of that; 0: it is nothing of the kind. */
static inline int origin_again(Origin origin) {
    int checkpoint = origin.site.checkpoint;
    return checkpoint < 0 && checkpoint != OF_GRADIENTS ? checkpoint : 0;
}

struct Node {
    Op op;
    cb_dtype dtype;
    uint8_t rank, input_count;
    bool found;  /* interning came to it again: it may be several values of who built the graph */
    uint32_t id; /* dense in its graph: index of side arrays */
    uint64_t hash;
    const int64_t *size;
    const Attrs *attrs; /* NULL: the op has none. OP_input: word[0] number; OP_constant: its bits;
                         * random ops: one word more than their parameters, the draw number */
    Node *expansion;    /* composites: the same value from other ops */
    Origin origin;
    Node *input[]; /* an absent optional input is NULL */
};

typedef struct Mutation { /* after the run, input number `input` holds value */
    int input;
    Node *value;
} Mutation;

/* Every element of an index lies in [0, bound), or it is an error of the op. */
typedef struct IndexBound {
    int64_t bound;
    Op op; /* a gather, index_select or scatter */
    Origin origin;
    int dim;    /* of x, for messages, if it is known */
    Meta of[2]; /* x and the index; rank 0: not known, as of one that a text says */
} IndexBound;

typedef struct IndexCheck {
    Node *index; /* i64 */
    IndexBound in;
} IndexCheck;

typedef struct Declined { /* a composite that no template takes */
    Op op;
    Reason reason;
} Declined;

typedef struct Graph {
    Arena *arena;
    Map table;          /* nodes */
    Map attrs;          /* theirs, which nodes share */
    Node **node;        /* vec: every node, by id */
    Node **input;       /* vec: OP_input nodes, by number */
    Node **output;      /* vec */
    Mutation *mutation; /* vec */
    IndexCheck *check;  /* vec: of the calls, whether or not the results need them */
    IndexCheck *fixed;  /* vec: of frozen indices, which are checked with the constants */
    bool optimizing;    /* passes build nodes, which are no calls */
    Node **effect;      /* vec: custom ops with effects, in the order of their calls: needed */
    int random_count;   /* draws taken */
    bool expanding;     /* a composite is being built */
    bool single;        /* one op in eager: its kernels run on the vector VM */
    Declined *declined; /* vec, filled by the passes */
    const bool *frozen; /* by input: its elements never change; NULL: none is known to */
    Ambient ambient;    /* of the calls that it is made of */
    int device;         /* DeviceId: where it runs */
    Node **constant;    /* vec: what the last inputs are, which are no arguments (freeze.c) */
    Origin origin;      /* given to new nodes */
} Graph;

Graph *graph_new(Arena *arena);
Node *graph_input(Graph *graph, const Meta *meta);
/* Whether the node is an input that each call gives: no constant. */
bool graph_is_argument(const Graph *graph, const Node *node);
/* Whether it is a dynamic slice, or writes one, and an argument says where that begins. */
bool graph_shifts(const Graph *graph, const Node *node);
/* Whether it has no elements of its own: a view, or a dynamic slice that an argument begins. */
bool graph_views(const Graph *graph, const Node *node);
/* What count elements along dim of x are of, from first on and step apart: below the slice_scatters
 * that write none of them (simplify.c). */
const Node *node_past_writes(const Node *x, int64_t dim, int64_t first, int64_t count,
                             int64_t step);
/* .f for floats, else .i. A constant of f16 or bf16 has the precision of f32, as whatever is
 * between two ops of one kernel. */
Node *graph_constant(Graph *graph, cb_dtype dtype, Scalar value);
Scalar node_constant(const Node *node);
bool node_is_number(const Node *node, double value); /* a constant; 0 and -0 differ */
bool node_is_power_of_two(const Node *node); /* a constant that has an inverse of its dtype */
Meta node_meta(const Node *node);
static inline int node_again(const Node *node) { return origin_again(node->origin); }
/* Of a walk back that is not in the same checkpoint. */
static inline bool node_of_gradients(const Node *node) {
    return node->origin.site.checkpoint == OF_GRADIENTS;
}
/* The draw number of a call that draws, of a node that is one. */
static inline int64_t op_draw(Op op, const int64_t *word) { return word[op_info(op)->word_count]; }
static inline int64_t node_draw(const Node *node) { return op_draw(node->op, node->attrs->word); }
int64_t node_numel(const Node *node);
int64_t node_bytes(const Node *node); /* of its elements */

/* The builder of everything: promotes, infers, converts inputs, expands composites, interns.
 * numbers[i] true marks input i as a plain number of the call (a weak constant); NULL: none are.
 * Returns NULL with an error. attrs may be NULL. */
Node *graph_op(Graph *graph, Op op, Node *const *input, int input_count, const Attrs *attrs,
               const bool *numbers);
/* The error that the inside of a call has raised, in terms of the op that was called; NULL: it is
 * in those. */
void graph_name_error(const CompositeCall *call);
/* Interns as it is: inputs converted, attributes canonical, meta known. */
Node *graph_intern(Graph *graph, Op op, const Meta *meta, Node *const *input, int input_count,
                   const Attrs *attrs);
/* The same node over other inputs (same metas). */
Node *graph_with_inputs(Graph *graph, const Node *node, Node *const *input);

/* Nodes that effects, outputs, mutations and checks need, inputs before users. All OP_input nodes
 * come first; effects are in order. */
Node **graph_order(Graph *graph);
/* Distinct users of each node by id, outputs and mutations not counted, over graph_order. */
int *graph_users(Graph *graph, Node *const *order);
int *graph_uses(Graph *graph, Node *const *order); /* outputs and mutations counted */

/* What the inputs of a call cannot change: a literal needs no input at all, a frozen node frozen
 * ones. Extends known, a vec of Fixed by node id (or NULL), to all nodes. */
typedef enum __attribute__((packed)) Fixed { FIXED_NOT, FIXED_LITERAL, FIXED_FROZEN } Fixed;
Fixed *graph_fixed(Graph *graph, Fixed *known);

/* Text (graph/print.c, graph/parse.c): prints, parses back, and is equal. Printing takes memory
 * from out alone: threads may print a finished graph at once. */
void graph_print(const Graph *graph, Buffer *out);
Graph *graph_parse(Arena *arena, const char *text); /* NULL, error with line and column */
bool graph_equal(Graph *a, Graph *b);
/* The same graph in another arena, of the nodes that it needs (copy.c). What it takes to find them
 * is of the graph's own arena. */
Graph *graph_copy(const Graph *graph, Arena *arena);

/* Passes (graph/pass.def lists them in order; graph/pass.c runs them): each maps the graph to an
 * equal one. A pass is skipped by name with CARBIDE_SKIP. */
void graph_optimize(Graph *graph, Buffer *dump /* text after each pass, or NULL */);
/* Only those that scheduling needs: for parts of an optimized graph. */
void graph_prepare(Graph *graph);
bool graph_verify(Graph *graph, Buffer *why); /* false: why names the broken node */

/* Applies replace to every node bottom-up, once; replace sees a node whose inputs are already new
 * and returns it or an equal one. Outputs, mutations and checks follow. */
typedef Node *NodeReplace(Graph *graph, Node *node, void *user);
void graph_rewrite(Graph *graph, NodeReplace *replace, void *user);
/* For passes that go over the nodes themselves. now[id]: what the node with that id has become. */
void node_inputs_now(const Node *node, Node *const *now, Node **input);
void graph_replace_results(Graph *graph, Node *const *now); /* outputs, mutations, checks */

#endif
