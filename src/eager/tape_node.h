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

typedef struct TapeNode TapeNode;
struct TapeNode {
    History history; /* first */
    Op op;           /* OP_none: a leaf */
    Site site;
    EagerEntry *entry;
    GradientNeeds needs;
    Tensor *gradient; /* leaves: what was added up, or NULL */
    Meta meta;        /* of the result, or the leaf */
    bool ended;       /* a leaf that is none any more */
    bool promised;    /* no leaf: what it was computed from is not known (tape_promise) */
    int count;
    TapeNode *producer[OP_MAX_INPUTS]; /* by operand: NULL: it needs no gradient */
    TapeNode *next;                    /* among those that are being freed */
    int64_t *word;                     /* attributes, behind saved */
    Saved saved[];                     /* by operand */
};

static inline TapeNode *tape_node(const Tensor *x) { return (TapeNode *)(void *)x->history; }

/* Of op's result x, or of x as a leaf (OP_none, no operands). NULL with an error: no memory. */
TapeNode *tape_node_new(Op op, int count, const Tensor *x);

#endif
