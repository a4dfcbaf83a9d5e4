/* Segments that a call has left, and what they promise to the tensors that live of them: left.c,
 * promise.c. */
#ifndef CARBIDE_CAPTURE_SEGMENT_H
#define CARBIDE_CAPTURE_SEGMENT_H

#include "capture/call.h"

typedef struct LeftShell {
    LeftSegment *left;
    Tensor *x; /* NULL: it died */
    int value;
    History *history; /* owned: what x was promised, once its ops have run one by one */
} LeftShell;

typedef struct LeftRead { /* a storage that a left segment, of which something waits, reads */
    struct LeftRead *next, **link; /* of its chain in Call.reads; link NULL: it is in none */
    LeftSegment *left;
    const Storage *storage;
} LeftRead;

struct LeftSegment {
    LeftSegment *next, *previous; /* newest first */
    LeftSegment *like;    /* an equal one that is still to be compiled, and remembers for this
                                * one */
    const Trace *trace;   /* of the entry, the recording, or the one that it is like */
    Entry *entry;         /* NULL: not compiled yet */
    Ambient ambient;      /* when it began */
    RandomState random;   /* that its first draw took */
    Recording *recording; /* owned: to be compiled */
    Tensor **value;       /* owned, by value: inputs and captured tensors as views of our own;
                           * behind them the trace's arguments */
    int values, input_count;
    int rounds; /* of this one and those like it, until it is compiled; 0: it is like another */
    uint64_t *version; /* owned, by value: of what it reads, when it was left; NULL: no promises */
    History *together; /* held, where there are promises: of the results that have theirs of the
                        * joint graph; NULL: none of them lives */
    LeftRead *read; /* behind its shells */
    int reads;
    int shells, alive;
    bool leads; /* others are like it */
    bool resumes;
    bool missed;             /* somebody used what the executable does not compute */
    int number;
    double start_ms, end_ms; /* of recording */
    LeftShell shell[];
};

/* Its trace's arguments stand behind its values. */
static inline int64_t *left_arguments(const LeftSegment *left) {
    return (int64_t *)(void *)(left->value + left->values);
}
static inline size_t left_value_bytes(int values, int arguments) {
    return sizeof(Tensor *) * (size_t)(values + 1) + sizeof(int64_t) * (size_t)arguments;
}

/* left.c. Whether a value of the segment that the call leaves stays with it: shells without a value
 * wait; those of a recording are all watched, to learn what crosses; those with a history are
 * promised it. */
bool left_keeps(const Call *call, int v);
/* What is needed still of the segment that the call is in moves out of it; shells: how many stay at
 * most. NULL: no memory. */
LeftSegment *left_new(Call *call, int shells);
void left_free_all(Call *call);
/* Its ops, or those of a part of its trace, one by one, which draw from there. False with an error:
 * some shells have no value. */
bool left_compute(LeftSegment *left, const Trace *part, RandomState *random);
/* All of them for the first time: it takes what it draws from the process's state. */
bool left_compute_first(LeftSegment *left);

/* Before the entry of a segment runs: memory for leaving it, or none is needed. False: there is
 * none. */
bool segment_reserve(Call *call);
void segment_drop_reserved(Call *call);
/* slot.c. Whether the op that is to be recorded reads what a slot was written to; and the cut
 * before it: false, when the rest of the call runs eagerly, or failed. */
bool slot_is_read(const Call *call, Op op, const cb_operand *input, int input_count);
bool slot_cut(Call *call);

/* promise.c: of a segment that has just been left. False with an error: no memory. */
bool promises_make(LeftSegment *left);
/* The ops have run, with the tape: this is the shell's tensor. All histories of a segment are of
 * one run, so that one leads to the other. */
void promise_take(LeftShell *shell, Tensor *made);
/* The shell, which has a value, is used: it gets the history that nothing went back over. */
void promise_met(LeftShell *shell);
/* It is kept no more; the tensor is freed of it, too, unless somebody may still go back from it. */
void promise_forget(LeftShell *shell, bool frees);

#endif
