/* One call of a compiled function: what it replays or records, and the parts of the tracer that see
 * to it. */
#ifndef CARBIDE_CAPTURE_CALL_H
#define CARBIDE_CAPTURE_CALL_H

#include "capture/function.h"

typedef enum CallMode {
    CALL_REPLAYS, /* ops match entry->trace */
    CALL_RECORDS, /* ops extend recording */
    CALL_IS_EAGER /* a break: what came before has been run, the rest runs eagerly */
} CallMode;

enum { LOCAL_VALUES = 128, LOCAL_ARGUMENTS = 16, FEW_READS = 8 };

struct Call {
    Frame frame; /* first: around the user's function */
    Tracer tracer;
    Function *function;
    Ambient ambient;      /* when the segment began */
    bool stale;           /* it has been set to something else since */
    RandomState random;   /* that the segment, which has run, began to draw from */
    Tensor *const *input; /* the caller's array; it is gone when the function has jumped out */
    int own_inputs;       /* that the function freed: value has views of our own of them */
    uint64_t own_input[CB_MAX_ARGS / 64]; /* which, by bit, when there are some */
    int input_count;
    bool moved[CB_MAX_ARGS]; /* results, out of the function's scope into the caller's */
    CallMode mode;
    Entry *entry;       /* replaying */
    const Trace *trace; /* the entry's, or the recording's */
    int at;             /* ops done */
    const TraceLine *next; /* that an op is compared with first (line.c); no_line where more than
                            * the trace decides, and behind whatever may change that */
    Recording *recording;
    bool failed;           /* an op failed: the trace is not all that happened */
    unsigned errors;       /* error_count as it began */
    char *failure;         /* owned: what the first of them said, with its line; NULL: not known */
    int outside;           /* the value from whose history the last op goes on, or it wrote to */
    bool grad;             /* gradients are wanted where it began */
    const GoingBack *back; /* during cb_backward or cb_grad */
    Reason refused; /* fullgraph: the function cannot be one graph, so nothing of it happens */
    bool lost;      /* after a break, what had been traced could not be computed */
    Tensor **value; /* by value number: input, bound captured tensor (kept), or live shell */
    int value_capacity, bound; /* bound: numbers above hold nothing */
    int64_t *argument;         /* of the trace, as bits */
    int argument_capacity;     /* there is as much room again behind it */
    Seats *seats;              /* of the trace, NULL: none, or the call has left it */
    bool resumed;              /* after an event: the segment has no inputs of its own */
    Entry *before;             /* the segment before it, when that has an entry */
    LeftSegment *left;         /* segments that are needed still, newest first */
    LeftSegment *reserved;     /* for the one that is about to be left; or NULL */
    LeftSegment *due;          /* one of them, to be compiled or made wider soon */
    uint64_t left_serial;      /* trace of their shells */
    struct LeftRead **reads;   /* by storage, what they read (left.c): few_reads, or owned */
    int read_count, read_room;
    struct LeftRead *few_reads[FEW_READS];
    Set exposed; /* serials of storages that the function has pointers into (expose.c) */
    Set leaf;    /* histories of leaves that the segment has met, once there are many (match.c) */
    int number;              /* of its recording: Entry.number */
    double start_ms, end_ms; /* of recording */
    Tensor *local[LOCAL_VALUES];
    uintptr_t local_handle[LOCAL_VALUES];
    int64_t local_argument[2 * LOCAL_ARGUMENTS];
    Tensor *output[]; /* of the function: output_room places */
};

static inline Call *call_of(Tracer *tracer) {
    return (Call *)(void *)((char *)tracer - offsetof(Call, tracer));
}
extern const TraceLine no_line;
/* For what the tracer is told besides ops: the next op is looked up anew. */
static inline Call *call_interrupted(Tracer *tracer) {
    Call *call = call_of(tracer);
    call->next = &no_line;
    return call;
}
void call_expect_next(Call *call); /* the op of its trace that it has come to */
static inline bool call_owns_input(const Call *call, int i) {
    return call->own_inputs && call->own_input[i / 64] >> i % 64 & 1;
}
/* Where the caller of a call wants its results: the first `room` of them. */
typedef struct CallResults {
    Tensor **at;
    int room;
} CallResults;
static inline void call_hand_over(Tensor *const *output, int count, CallResults out) {
    for (int k = 0; k < count && k < out.room; k++) out.at[k] = output[k];
}
/* call.c: the ways of a call. Give the count of all results, or a negative status. Plainly: as the
 * thread's tracer is, without statistics. What grows with what a function may take and give is in
 * its frame, or as long as what it does take: functions call themselves on stacks of 8 MB. */
int call_plainly(const Function *function, Tensor *const *input, int input_count, CallResults out);
int call_eagerly(Function *function, Tensor *const *input, int input_count, CallResults out);
typedef struct CallStart {
    int64_t ns;       /* of the clock; 0: nobody asks what the call takes */
    TraceAgain again; /* why no entry does */
} CallStart;
/* The caller has entered the function (retire.c), which this leaves, however the call ends. */
int call_traced_function(Function *function, Ambient now, Tensor *const *input, int input_count,
                         Entry *entry, const CallStart *start, CallResults out);
/* Makes room for value numbers below count. */
bool call_reserve(Call *call, int count);
void call_drop_values(Call *call);   /* the room for them, which are NULL */
void call_stand_nowhere(Call *call); /* it has no values, and no arguments */
bool call_reserve_arguments(Call *call, int count);
bool call_reserve_trace(Call *call, const Trace *trace); /* for both, whatever it is entered by */
/* The call replays its trace from the first op on, false: there is no room; it does something
 * else. */
bool call_sit(Call *call);
void call_stand_up(Call *call);
/* The value's shell, for a result that has just been matched or recorded. */
Tensor *call_shell(Call *call, int value);
/* Under fullgraph the function is recorded on views of its inputs: what it does with an argument is
 * told from what it does with the same tensor found elsewhere. False: no memory. */
bool call_stand_ins(Call *call, Tensor **stand_in);
/* The number of a tensor that this call traces, or that stands for an input, NO_VALUE for any other
 * one. */
static inline int call_traced(const Call *call, const Tensor *x) {
    return x->trace == call->tracer.serial ? x->number : NO_VALUE;
}
/* A captured tensor becomes value number v. */
bool call_bind(Call *call, int v, Tensor *x);
/* Somebody asks for a value, that of `asked` or, NULL, what the reason tells: what was traced so
 * far is computed, and the call goes on behind it. False: an error. */
bool call_event(Call *call, Reason reason, const Tensor *asked);
/* A history is needed later, which no graph has: the ops run with the tape, now and the next time.
 * As call_break. */
bool call_needs_tape(Call *call, const char *why);
extern const char promise_followed[]; /* why, where an op goes on from what was promised one */
void call_op_failed(Call *call);      /* with an error, which is told if the function clears it */
/* gradient.c: x, by that name, is the result of ops outside; breaks for it, and for a write. */
void history_describe(const char *name, const Tensor *x, char *out, size_t bytes);
bool call_follows_history(Call *call, int value);
bool call_writes_result(Call *call, int target);
/* Runs what was traced so far eagerly, gives live shells their values and leaves the rest of the
 * call to eager. Under fullgraph: an error, and false, instead. */
bool call_break(Call *call, Reason reason, const char *what);

/* Between cb_no_grad_open and _close of its own: -1, else 0. */
static inline int call_quiet(const Call *call) {
    return (call->frame.no_grad - thread_state.no_grad) >> 31;
}
static inline bool call_is_quiet(const Call *call) { return call_quiet(call); }

/* gradient.c: of the tracer (tensor/tracer.h). */
bool call_goes_back(Tracer *tracer, const GoingBack *back, Tensor **out);
bool call_requires_grad(Tracer *tracer, const Tensor *x);
void call_meets_leaf(Tracer *tracer, Tensor *x, LeafMeeting how);
bool call_changes_leaf(Tracer *tracer);
bool call_takes_hook(Tracer *tracer, Tensor *x);
void call_meets_code(Tracer *tracer);
/* fullgraph: the function has returned, and left these gradients. False with an error: it keeps
 * something else. */
bool call_ends_leaves(const Call *call);
void leaves_find_joined(Entry *entry, const Call *call);
/* Something with a history that nobody has gone back over lives, among the results (output NULL: a
 * value is asked for) or elsewhere: why says what, DETAIL_BYTES. */
bool call_keeps_history(const Call *call, Tensor *const *output, int count, char *why);

/* values.c */
void call_unbind(Call *call, int v);          /* a tensor from outside */
void call_unbind_from(Call *call, int first); /* those from this number on */
void call_loses_tensor(Tracer *tracer, Tensor *x);
const void *call_storage_of(Tracer *tracer, const Tensor *x);
/* line.c: what the op gives where the trace's line is met; NULL: another op, or no memory. The
 * others are the tracer's (tensor/tracer.h), with handles. */
Tensor *call_meets_line(Call *call, Op op, const cb_operand *input, int input_count,
                        const Attrs *attrs);
cb_tensor *call_expects(Tracer *tracer, Op op, cb_operand *input, int input_count,
                        const Attrs *attrs);
cb_tensor *call_expects_two(cb_operand a, cb_operand b, int op, Tracer *tracer);
bool call_expects_assign(Tracer *tracer, cb_operand target, cb_operand value);
/* replay.c: OP_backward of {y, its gradient or NULL} is what the trace goes on with, or another
 * one does. False: the call records now, or is eager; or, with *ends, the trace, or another one,
 * ends before it. */
bool call_replays_backward(Call *call, const cb_operand *input, bool *ends);
/* A call begins with an entry to replay, or NULL to record; false: no memory to
 * record. */
bool call_start(Call *call, Function *function, Ambient now, Tensor *const *input, int input_count,
                Entry *entry);
/* After the last op: finds the entry that ends here with these outputs, or turns the run into a
 * recording that does. value[k] is output k's number, NO_VALUE for NULL. False: the call has
 * failed, or has become eager. */
bool call_end(Call *call, Tensor *const *output, int output_count, int *value);
/* Values that live on without being returned. */
bool call_escapes(const Call *call, int value, const int *output, int output_count);
void call_finish(Call *call); /* releases what the segment holds; its shells become ordinary */
/* At an event: finds the entry that goes on here, or turns the run into a recording that does.
 * False: the call has become eager. */
bool call_at_event(Call *call);

/* Recorded ops read or write memory that x shows: its elements may be stale, and what is about to
 * be written to them would come too early. */
bool call_touches(const Call *call, const Tensor *x);

/* expose.c: a pointer to x leaves. What was recorded is computed, and ops on its storage are
 * recorded no more: they run at once. False with an error. */
bool expose(Call *call, Tensor *x, Reason reason);
bool expose_meets(const Call *call, const cb_operand *input, int input_count);
Tensor *expose_apply(Call *call, Op op, const cb_operand *input, int input_count,
                     const Attrs *attrs);
Tensor *expose_assign(Call *call, Tensor *target, const cb_operand *value);
void expose_end(Call *call);

/* segment.c */
bool segment_ends_here(const Call *call); /* the replayed trace goes on from here */
/* The recording ends at an event: it is compiled, where it is known what crosses, and the call goes
 * over to its entry. False: no memory. */
bool segment_end(Call *call, const Tensor *asked);
/* At an event the call goes over to what follows. A segment that has not run does so now, op by op.
 * False: no memory; the call still stands where it stood, or at nothing. */
bool segment_leave(Call *call, bool has_run);
/* The ambient state was set to something else: what comes is of a segment that begins with it.
 * False: the call is eager. */
bool segment_renew(Call *call);
void segment_note_next(Call *call); /* the segment is known to have followed the one before */
/* After the call: what was recorded is compiled, if it compiles; the rest is forgotten. */
void segment_finish(Call *call, bool compiles);
/* What was recorded in this call and has no entry yet, newest first, and may be what the call
 * begins to do again; behind NULL: the first one. */
const Trace *segment_recorded(const Call *call, LeftSegment **behind);

/* left.c. Before the trace, or (written not NULL) somebody outside, writes to memory that left
 * segments read: what waits for it is computed. */
void segment_before_writes(Call *call, const Tensor *written);
/* A tensor from outside is about to get a hook, which gradients of left segments do not see. */
void segment_before_hook(Call *call);
void segment_compute_all(Call *call);     /* nothing waits any more */
void segment_outlived(Call *call);        /* nor when the function has returned: what lives is
                                           * used */
void segment_met(Call *call, Tensor *x);  /* a shell of a left segment is used: it gets a value */
void segment_lost(Call *call, Tensor *x); /* it dies */
const void *segment_storage_of(const Tensor *x); /* of a shell of a left segment */
static inline void call_meet(Call *call, Tensor *x) {
    if (x && x->trace == call->left_serial) segment_met(call, x);
}
void shell_adopt(Tensor *shell, Tensor *made); /* takes its storage, strides and offset */

/* promise.c. Nothing is recorded any more: what lives of left segments gets the history that it had
 * in eager, where it can be computed. */
void segment_keep_promises(Call *call);
/* Something of a left segment lives that was not gone back over, and whose history cannot be had
 * any more. */
bool segment_keeps_history(Call *call);

#endif
