/* What the tape is made of: a node for an op that was recorded, and for a leaf. */
#ifndef CARBIDE_EAGER_TAPE_NODE_H
#define CARBIDE_EAGER_TAPE_NODE_H

#include "eager/eager.h"
#include "eager/tape.h"

typedef struct Saved { /* an operand that the gradient reads */
    Storage *storage;  /* NULL: it does not */
    uint64_t version;
    Meta meta;
    int64_t offset, stride[CB_MAX_RANK];
    cb_operand number;
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
    TapeHook *hook;   /* owned, a list: who sees its gradient */
    int hooks;        /* so many there were */
    Meta meta;        /* of the result, or the leaf */
    bool ended;       /* a leaf that is none any more */
    bool promised;    /* no leaf: what it was computed from is not known (tape_promise) */
    int count;
    TapeNode **producer; /* by operand: NULL: it needs no gradient. Behind saved */
    TapeNode *next;      /* among those that are being freed */
    int64_t *word;       /* attributes, behind producer */
    int part;            /* of a part: which result it is */
    uint64_t hooked;     /* of what computed several: which have had hooks (tape_part_bit) */
    const TogetherSteps *steps; /* of what computed several, for which `state` is theirs */
    void *state;
    int saves;     /* of TAPE_OP: count */
    Saved saved[]; /* by operand */
};

static inline TapeNode *tape_node(const Tensor *x) { return (TapeNode *)(void *)x->history; }

static inline TapeNode *tape_retain(TapeNode *node) {
    history_retain(&node->history);
    return node;
}

/* hook.c. What goes on from the node in place of g, which is complete; graph: with a history. NULL
 * with an error. */
Tensor *hooks_call(const TapeNode *node, Tensor *g, bool graph);
void hooks_free(TapeNode *node);

/* Of op's result, or of a leaf (OP_none, no operands). NULL with an error: no memory. */
TapeNode *tape_node_new(TapeKind kind, Op op, int count, const Meta *meta);

#endif
