/* A recording: the trace of a run and the graph beside it, with in-place writes made functional.
 *
 * The graph knows values, not memory. A root value (input, captured tensor, fresh result) holds the
 * node that its storage has now; a view remembers its parent and its op, and its node is the op
 * applied to what the parent is now. A write through a view becomes a new value of the root:
 *
 *     row = select(x, 0, 1)      view of x
 *     assign(row, v)             x := slice_scatter(x, unsqueeze(v, 0), 0, 1, 2)
 *     return x * 2               reads the new x
 *
 * Nodes are interned, so several values may be one node. Where that shows, in gradients, a value is
 * an `apart` node: leaves after a write, and results that gradients are asked by (repeat.c).
 *
 * Memory runs out through the guards of both arenas; record.c sets them. */
#ifndef CARBIDE_CAPTURE_FUNCTIONAL_H
#define CARBIDE_CAPTURE_FUNCTIONAL_H

#include "capture/call.h"

typedef struct FunctionalValue {
    int parent;  /* the value that it views, NO_VALUE for a root */
    Op view;     /* OP_none: the same elements as the parent */
    Attrs attrs; /* of the view, canonical */
    Node *start; /* where it begins, if an argument says so: attrs are of one at 0 behind it */
    Node *node;  /* of a root: its value now. Of a view: its value when the root's version was */
    int version; /* of a root: writes so far. Of a view: that of its node */
    int below;   /* of a view, while nodes are made: its view that one is to be made of next */
    int wrote;   /* of a root: the view that the last write came through, which shows what that
                  * wrote; NO_VALUE: a history, or the root itself */
    int input;   /* graph input number, or -1 */
    int leaf;    /* the first value that is the same leaf; itself where there is no other one */
    const History *history; /* of a leaf */
    bool cut;               /* a view through which no gradient comes */
    bool promised;          /* from outside, with a history that nobody can go back over yet */
} FunctionalValue;

/* One of the nodes that a leaf has been, or a value that stands apart. Under fullgraph a leaf is
 * several values where it is an input and found outside, too: its gradient comes by all of them. */
typedef struct LeafNode {
    int value; /* FunctionalValue.leaf */
    Node *node;
} LeafNode;

/* The traces that say which numbers of a recording are arguments (number.c). */
typedef struct Models {
    const Trace *like;    /* what it repeats so far, but for numbers; NULL: nothing */
    const Trace *resized; /* what it repeats over other sizes; NULL: nothing */
    bool new_path;        /* there is nothing that it repeats */
    bool new_sizes;       /* nor over other sizes */
} Models;

typedef struct Joint Joint; /* joint.h */

struct Recording {
    Trace *trace;           /* owned, until an entry takes it */
    Graph *graph;           /* its arena is owned, until it is compiled */
    FunctionalValue *value; /* vec, by value number, in the graph's arena */
    int place;              /* of its ops so far (tensor/place.h) */
    LeafNode *leaf;         /* vec, in the graph's arena */
    LeafNode *foreign;      /* the same of what has a history of ops outside */
    bool *followed;         /* vec, by node id, of nodes so far: functional_follows */
    bool *apart; /* by value, of apart_count: its nodes are no other value's, as leaves' */
    int apart_count;
    bool joins;        /* its results may lead back to what has a history outside (joint.h) */
    bool tracks;       /* the call began where gradients are wanted */
    bool quiet;        /* the op that is being recorded has none: TraceOp.quiet */
    int *captured;     /* vec, in the graph's arena: as an entry's */
    Models models;
    Joint *joint; /* in the graph's arena: what leads back from its results; NULL: nothing does */
};

/* Room for as many ops and values as are known, since what vectors outgrow stays with the entry;
 * NULL: nothing is known. False: no memory. */
bool functional_reserve(Recording *recording, const Trace *known);
/* A real tensor becomes the next value and the next graph input. */
int functional_add(Recording *recording, ValueKind kind, const Tensor *x);
Node *functional_node(Recording *recording, int value);
/* The op's result as the next value; NO_VALUE with an error. */
int functional_apply(Recording *recording, const TraceOp *op, Attrs *attrs);
/* The gradients of a tracked root, which begin with seed (NULL: 1), by values: nodes, or NULL where
 * there is none; tracked: a gradient comes through them. same[k]: the first one that is the same
 * tensor as gradient[k], which ops have handed on. False with an error. */
enum { SAME_AS_SEED = -1 };
bool functional_backward(Recording *recording, int root, const TraceOperand *seed, bool tracked,
                         const int *value, int count, Node **gradient, int *same);
/* The same of several nodes, each with its gradient; from, or NULL: as graph_grad says. */
bool functional_gradients(Recording *recording, Node *const *y, Node *const *g, int outputs,
                          const int *value, int count, Node **gradient, Node **from);
/* Do gradients go back from the node to a leaf, or to what is foreign? */
bool functional_follows(Recording *recording, const Node *node);
/* The first value with a history of ops outside, but this one, that the node's gradient leads to,
 * or NO_VALUE. */
int functional_outside(Recording *recording, const Node *node, int but);
/* Does a gradient by the node of this tracked result miss some of its uses, or have others'? */
bool functional_shares(Recording *recording, int value);
/* A gradient as the next value. */
int functional_result(Recording *recording, Node *node);
/* The next value is a tensor that is there: to gradients they are one. */
int functional_again(Recording *recording, int same);
/* False where it shows an element of what it is a view of at several places: a write to one of them
 * is one to all of them, which the views between cannot say. */
bool functional_writable(const Recording *recording, int target);
/* Does the value show exactly what the last write to its root has written? */
bool functional_wrote(const Recording *recording, int value);
/* Of what apply_assign has found to fit. */
void functional_assign(Recording *recording, int target, const TraceOperand *value);

/* number.c: which numbers of an op that is about to be recorded are arguments. False: no memory. */
bool number_choose(Call *call, TraceOp *op);
/* Whether this one may be an argument there, as operand k. */
bool number_may_be_argument(const Call *call, const Trace *trace, const TraceOp *op, int k,
                            const cb_operand *number, const Attrs *attrs);

/* record.c */
/* Both arenas escape to the caller of this, which must be the frame that does the work. */
#define RECORD_GUARD(recording)                                                                    \
    (arena_guard((recording)->graph->arena) || arena_guard((recording)->trace->arena))
/* Without ops and values; NULL: no memory. */
Recording *recording_new(const Call *call);
/* An op of a trace, whose operands are values of the recording: the number of its result, or of
 * what it writes to; < 0: an error, no memory, or what goes_eager takes. */
int record_op(Recording *recording, TraceOp op);
int record_write(Recording *recording, TraceOp op);
/* The op with a result for each of the listed values that has a gradient. cb_backward lists no
 * other ones. False with an error. */
bool record_gradients(Recording *recording, TraceOp op, TraceBack how, const int *list, int count);
Tensor *record_apply(Call *call, Op op, const cb_operand *input, int input_count,
                     const Attrs *attrs);
Tensor *record_assign(Call *call, Tensor *target, const cb_operand *value);
/* OP_backward of {y, its gradient or NULL}. False: an error, or the call is eager. */
bool record_backward(Call *call, const GoingBack *back, const cb_operand *input);
/* Gradients of y, which the recording computes, are to go on to what was computed before it, and
 * may. */
bool record_leads_outside(Call *call, const GoingBack *back);
/* The tensors from outside that require a gradient, each by one name: a vec. */
int *record_leaves(const Recording *recording);
int record_value(Call *call, Tensor *x); /* its number; < 0: error or no memory */
/* Of an output; NO_VALUE: no memory. */
int record_output(Call *call, Tensor *x, bool own);
/* The outputs and escaped values are written into the trace; false: no memory. */
bool record_end(Call *call, const int *output, int output_count);
void record_free(Recording *recording);

/* repeat.c */
/* Results that gradients are asked by are nodes of their own: where one shares its node with other
 * values, what was recorded is recorded again, with all of them apart. The trace stays. False: no
 * memory. */
bool record_apart(Call *call, const GoingBack *back, TraceBack *how);
/* A run that leaves the replayed trace after its first count ops goes on as a recording. */
bool record_from(Call *call, const Trace *trace, int count);
/* The recording without what follows its first count ops. False: no memory, and it is as it was. */
bool record_shorten(Call *call, int count);
/* The whole trace once more, with its results: for a second graph. NULL: no memory. */
Recording *record_again(Call *call, const Trace *trace);

#endif
