/* Checkpointed functions on the tape: what their ops save is not kept, and computed again by the
 * function when gradients come (checkpoint.c has what was recorded, again.c the runs). */
#ifndef CARBIDE_EAGER_CHECKPOINT_H
#define CARBIDE_EAGER_CHECKPOINT_H

#include "base/set.h"
#include "eager/tape_node.h"
#include "tensor/random.h"
#include "tensor/tracer.h"

/* What the first run recorded, in order: an op, results that were computed together or one of them,
 * or a checkpoint of its own. Its node, or that one, is not held, and NULL once nobody needs it. */
typedef struct CheckpointRecord {
    TapeNode *node;
    Checkpoint *inner;
    Op op; /* OP_none: a checkpoint */
    Meta meta;
    Site site;
} CheckpointRecord;

typedef struct CheckpointInput {
    TapeNode *node; /* its history, held, or NULL */
    Saved saved;
} CheckpointInput;

/* Who reads it: ops that gradients go through; others, of which nobody may need what they give: a
 * count; and the host, which may do anything with it. */
typedef enum ReadBy { READS_FOR_GRADIENTS, READS_ELSE, READS_BY_HOST, READERS } ReadBy;
typedef struct CheckpointReads {
    bool any;
    bool changed; /* with several versions, or the run of one around has written to it since */
    uint64_t version;
    Site site;
} CheckpointReads;

/* What its ops read of what was there before. */
typedef struct CheckpointRead {
    Storage *storage; /* held; NULL: it was made in the run of one around */
    uint64_t serial;
    CheckpointReads by[READERS];
} CheckpointRead;

/* Held by the nodes that were recorded in it, and by the checkpoints within. */
struct Checkpoint {
    CheckpointHead head; /* first */
    _Atomic int references;
    Checkpoint *outer; /* held: that it is a record of, or NULL */
    int place;         /* there */
    cb_function_n *function;
    void *user;
    Site site;
    cb_dtype lower;     /* of autocast */
    RandomState random; /* that its first draw took */
    uint64_t born;      /* storages of this or a higher serial are of the run that goes on */
    bool again;         /* its function runs once more */
    bool filling;       /* so that what was saved of its storages is there again */
    bool filled;        /* it is, for a walk back */
    bool graphs;        /* compiled functions ran in it: the next time the last bits may differ */
    int at;             /* records that have been met */
    int record_count, record_capacity, read_count, read_capacity;
    CheckpointRecord *record;
    CheckpointRead *read;
    int *read_seat; /* a table by serial, twice as large as read: 1 + the number of one, or 0 */
    Set doubtful;     /* serials: made in the run that goes on of what has changed since the
                       * first */
    int doubted;      /* the first read of such */
    int *answer;      /* what its function's calls were told besides, in order: checkpoint_tell */
    int answer_count, answer_capacity, answers_met;
    Checkpoint *next; /* among those that a walk has filled */
    int input_count;
    CheckpointInput input[];
};

/* ---- checkpoint.c ---- */

/* NULL with an error: no memory. */
Checkpoint *checkpoint_new(int inputs);
Checkpoint *checkpoint_retain(Checkpoint *checkpoint);
void checkpoint_release(Checkpoint *checkpoint);
/* A line of the outer one's records; false with an error. */
bool checkpoint_nest(Checkpoint *outer, Checkpoint *inner);
/* The next record is a checkpoint of that function. *inner: it, NULL where it is gone. False with
 * an error. */
bool checkpoint_meet_inner(Checkpoint *outer, cb_function_n *function, Tensor *const *x, int count,
                           Checkpoint **inner);
/* All records have been met; false with an error. */
bool checkpoint_is_over(const Checkpoint *checkpoint);
/* What was saved of the storages of its runs is let go. */
void checkpoint_forget(Checkpoint *checkpoint);
/* It has run again: what it took of the insides of others is let go. */
void checkpoint_pass_inputs(Checkpoint *checkpoint);
/* What the checkpoint's ops read of the run of one around is as it was; false with an error. What
 * there was before that is asked for as it is read (checkpoint_reads). */
bool checkpoint_reads_hold(const Checkpoint *checkpoint);
/* The checkpoint in whose run the storage was made, of the one that runs and those around it, or
 * NULL. */
Checkpoint *checkpoint_of(const Storage *storage);
void checkpoint_save(Saved *saved, const Tensor *x);

/* ---- again.c ---- */

/* What the node reads is there: functions run again for it. They are listed in *filled. False with
 * an error. */
bool checkpoint_restore(const TapeNode *node, Checkpoint **filled);
/* The node was gone over. */
void checkpoint_pass(TapeNode *node);
/* The walk is over. */
void checkpoint_leave(Checkpoint *filled);

#endif
