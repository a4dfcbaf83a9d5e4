/* What the tape is made of: a node for an op that was recorded, and for a leaf. */
#ifndef CARBIDE_EAGER_TAPE_NODE_H
#define CARBIDE_EAGER_TAPE_NODE_H

#include "eager/eager.h"
#include "eager/tape.h"

typedef struct Checkpoint Checkpoint;
typedef struct Saved { /* an operand that the gradient reads */
    Storage *storage;  /* NULL: it does not, or it is to be computed again */
    Checkpoint *owner; /* NULL: it is kept; by what it is computed again. Held by the node's */
    uint64_t version;
    Meta meta;
    int64_t offset, stride[CB_MAX_RANK];
    cb_operand number;
    /* In a checkpoint, of what no gradient goes through: of the storage, where it was there before,
     * or of the elements, where it was made there. 0: they do not count. */
    uint64_t serial, digest;
} Saved;

/* How a node hands gradients on: by the gradient of its op; or it is one of several results that
 * were computed together, or what computed them (together.c). */
typedef enum __attribute__((packed)) TapeKind { TAPE_OP, TAPE_PART, TAPE_TOGETHER } TapeKind;

typedef struct TapeHook TapeHook;
typedef struct TapeNode TapeNode;
struct TapeNode {
    History history; /* first */
    TapeKind kind;
    Op op; /* OP_none: a leaf. Of a part: that gave the result */
    Site site;
    EagerEntry *entry;
    GradientNeeds needs;
    Tensor *gradient; /* leaves: what was added up, or NULL */
    TapeHook *hook;   /* owned, a list: who sees its gradient; of a part, it has them */
    int hooks;        /* so many there were */
    Meta meta;        /* of the result, or the leaf */
    bool ended;       /* a leaf that is none any more */
    bool forgotten;   /* of several results: what their gradients read is to be computed again */
    bool promised;    /* no leaf: what it was computed from is not known (tape_promise) */
    bool unrolls;     /* of several results: their ops are being run again */
    int count;
    TapeNode **producer; /* by operand: NULL: it needs no gradient. Behind saved */
    TapeNode *next;      /* among those that are being freed */
    int64_t *word;       /* attributes, behind producer */
    Checkpoint *checkpoint; /* held: it was recorded in its first run; NULL: in none */
    int place;              /* there */
    int part;            /* of a part: which result it is */
    TapeNode *shows;     /* held: the part that this op's result is, where those ran again */
    TapeNode **ops;      /* owned, of several results: by result, what gave it once more, held, or
                          * NULL; ops NULL: they did not (tape_takes_ops) */
    uint64_t since;      /* it has ops (serial_next) */
    const TogetherSteps *steps; /* of what computed several, for which `state` is theirs */
    void *state;
    int saves;     /* of TAPE_OP: count */
    Saved saved[]; /* by operand */
};

static inline TapeNode *tape_node(const Tensor *x) { return (TapeNode *)(void *)x->history; }

/* What a node stands for: where the ops of several results are gone over for good, the one that
 * gave it. */
static inline TapeNode *tape_meant(TapeNode *node) {
    TapeNode **ops = node->kind == TAPE_PART ? node->producer[0]->ops : NULL;
    return ops && ops[node->part] ? ops[node->part] : node;
}

static inline TapeNode *tape_retain(TapeNode *node) {
    history_retain(&node->history);
    return node;
}

/* hook.c. Of a node; those of a result of several are held by what computed them. */
bool hooks_wait(TapeNode *node); /* there are some */
/* Another result has some, from which this one was computed. */
bool hooks_before(const TapeNode *whole, int part);
/* What goes on in place of g, which is complete; graph: with a history. NULL with an error. */
Tensor *hooks_call(TapeNode *node, Tensor *g, bool graph);
/* To the op that is gone over from now on in place of that part. */
void hooks_move(TapeNode *whole, int part, TapeNode *to);
void hooks_free(TapeNode *node);

/* checkpoint.c. The thread's checkpoint, if it has one, hears of what is recorded: in its first run
 * of a node that was made, and in another one of what would be, where *known is what the first run
 * has made for it; NULL: make one. False with an error. */
bool checkpoint_meet(Op op, const Meta *meta, TapeNode **known);
bool checkpoint_add(TapeNode *node);
/* What it reads by x, which is not saved, or besides: for checkpoint_take. */
void checkpoint_note(Saved *saved, const Tensor *x);
/* Of an op that was met: it does the same as before, and what it reads is saved, where that is
 * asked for. False with an error. */
bool checkpoint_take(TapeNode *known, const cb_operand *input, const Attrs *attrs);
/* The error that another one was met, which is the same but for how. */
void checkpoint_differs(const TapeNode *known, const char *how);
/* A node is freed: it is no record any more. What it held its own by is no more held; nodes that
 * nobody holds then come before `first`. */
TapeNode *checkpoint_drop_node(TapeNode *node, TapeNode *first);

/* tape.c. Frees such a list. */
void tape_free(TapeNode *first);
/* The node before `first` where nobody else holds it. */
TapeNode *tape_drop(TapeNode *node, TapeNode *first);

/* Of op's result, or of a leaf (OP_none, no operands). NULL with an error: no memory. */
TapeNode *tape_node_new(TapeKind kind, Op op, int count, const Meta *meta);

#endif
