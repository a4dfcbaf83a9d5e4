/* Who sees a thread's op calls besides eager: tracers, and the scopes of autocast. */
#ifndef CARBIDE_TENSOR_TRACER_H
#define CARBIDE_TENSOR_TRACER_H

#include "tensor/tensor.h"

typedef enum TensorAccess {
    ACCESS_NOW,     /* its elements are read before the call returns */
    ACCESS_WRITE,   /* they are written before the call returns */
    ACCESS_POINTER, /* a pointer to them leaves: nobody sees when they are read or written */
    ACCESS_CHANGE   /* the caller says that it writes them through such a pointer */
} TensorAccess;

typedef enum AmbientChange {
    CHANGES_OPS,  /* what an op computes: tensor/ambient.h */
    CHANGES_DRAWS /* what a random op draws */
} AmbientChange;

typedef enum LeafMeeting {
    ASKS_WHETHER, /* it is asked whether the tensor requires a gradient */
    READS_GRADIENT,
    FREES_GRADIENT
} LeafMeeting;

typedef struct GoingBack { /* cb_backward, cb_grad or cb_grad_graph */
    const char *what;      /* for messages */
    Tensor *y, *given;     /* its gradient, or NULL */
    Tensor *const *wrt;    /* NULL: by all leaves */
    int count;             /* of wrt */
    bool graph;            /* what comes out has a history */
} GoingBack;

/* Which of a tracer's values lived on when its residents died (tensor/thread.h). */
enum { MOST_SURVIVORS = 10 };
typedef struct Survivors {
    int of; /* so many values; 0: nobody knows, or they are too many */
    int count, at[MOST_SURVIVORS]; /* in their order */
} Survivors;

/* What stands in for eager while a thread records: capture (graph) or symbolic trace (FX). */
typedef struct Tracer Tracer;
struct Tracer {
    Tensor *(*apply)(Tracer *tracer, Op op, const cb_operand *input, int input_count,
                     const Attrs *attrs);
    /* A call of the user's, with handles, where the op may be what the tracer expects next: what
     * the call gives. An op that is not goes on to the door (apply_unexpected). May be NULL, and is
     * not asked for norms that move statistics. expect_two: of two operands and no attributes,
     * which stay in registers; apply_two_unexpected where none is expected. */
    cb_tensor *(*expect)(Tracer *tracer, Op op, cb_operand *input, int input_count,
                         const Attrs *attrs);
    cb_tensor *(*expect_two)(cb_operand a, cb_operand b, int op, Tracer *tracer);
    Tensor *(*assign)(Tracer *tracer, Tensor *target, const cb_operand *value);
    /* A call of the user's that writes a tensor to another one, with handles: true where that is
     * what comes next, and done. May be NULL. */
    bool (*expect_assign)(Tracer *tracer, cb_operand target, cb_operand value);
    /* A value request; false with an error. Also asked for a tensor that has storage, since what
     * was recorded may be due to write it, or to read what the caller is about to change: true
     * when nothing is. */
    bool (*materialize)(Tracer *tracer, Tensor *x, TensorAccess access);
    /* Any tensor of the thread is about to die, traced or not. May be NULL. */
    void (*destroy_tensor)(Tracer *tracer, Tensor *x);
    /* What stands for the storage that x, which has none yet, will have: equal for tensors that
     * will share it. NULL: it is not this tracer's. May be NULL. */
    const void *(*storage_of)(Tracer *tracer, const Tensor *x);
    /* What was recorded is computed, since the ops that follow run at once (cb_disable_open); false
     * with an error. May be NULL. */
    bool (*pause)(Tracer *tracer);
    /* What surrounds ops (tensor/ambient.h), or the seed of random numbers, is about to be set to
     * something else: what was recorded is computed first. False with an error: it stays. May be
     * NULL. */
    bool (*change_ambient)(Tracer *tracer, const char *what, AmbientChange change);
    /* Does x, which the tracer has made, require a gradient? NULL: none does. */
    bool (*requires_grad)(Tracer *tracer, const Tensor *x);
    /* False with an error, or when the thread is traced no more and goes back itself. NULL:
     * refused. */
    bool (*go_back)(Tracer *tracer, const GoingBack *back, Tensor **out);
    /* It is asked whether x, which has a storage, requires a gradient; or the gradient of the leaf
     * x is about to be looked at, or freed. May be NULL. */
    void (*meet_leaf)(Tracer *tracer, Tensor *x, LeafMeeting how);
    /* It is asked how x lies: its strides or, where y is one, whether both share a storage. May be
     * NULL. */
    void (*meet_layout)(Tracer *tracer, Tensor *x, Tensor *y);
    /* A leaf, or what stands for one, is about to be none any more, or another tensor to be one:
     * what was recorded is computed first. False with an error: it stays. NULL: leaves may end, and
     * none begins. */
    bool (*change_leaf)(Tracer *tracer);
    /* The user's code is to see the gradient of x, which has its history then. False with an error.
     * NULL: x has none, unless it is no tensor of the tracer's. */
    bool (*take_hook)(Tracer *tracer, Tensor *x);
    /* Code of the user's is about to run untraced: nothing that was recorded waits any more. May be
     * NULL. */
    void (*meet_code)(Tracer *tracer);
    /* The module's forward runs, or something of it is asked for. May be NULL. */
    void (*meet_module)(Tracer *tracer, const cb_module *module);
    /* The FX graph runs. May be NULL. */
    void (*meet_graph)(Tracer *tracer, const cb_graph *graph);
    /* Slots for its shells, by their number, and their places in a list of those that live
     * (tensor/thread.h): such a one dies without destroy_tensor. seats 0: it asks for that, and
     * seat, where it is asked, has no slots. */
    Tensor **seat, **value;
    uintptr_t *handle; /* of those that live, or NO_HANDLE; not set for others */
    int seats;
    int first; /* seat; values below have none: the inputs of a call */
    Survivors survivors;
    Scope *home;      /* that its residents die with, NULL: there are none (tensor/thread.h) */
    int alive;        /* shells */
    int disabled;     /* scopes of cb_disable_open that are open */
    bool whole_calls; /* records calls, with all that they write to */
    uint64_t serial;
};
Tracer *tracer_current(void);
Tracer *tracer_set(Tracer *tracer); /* returns the one before */
/* Asks the thread's tracer, change_ambient. */
bool tracer_may_change(const char *what, AmbientChange change);
bool tracer_disabled(void);  /* in a scope of cb_disable_open */
bool grad_mode(void);        /* outside of every cb_no_grad_open */
int no_grad_set(int scopes); /* so many are open; returns how many were */
uint64_t serial_next(void);  /* unique numbers for traces and storages */
uint64_t serial_above(void); /* one that is higher than any number that a thread was given so far */

/* The checkpoint whose function the thread runs (eager/checkpoint.h), or NULL. It begins with who
 * hears that the host takes x's elements, to do with them what no op tells of; false with an
 * error. */
typedef struct CheckpointHead {
    bool (*host_reads)(const Tensor *x);
} CheckpointHead;
struct Checkpoint *checkpoint_current(void);
struct Checkpoint *checkpoint_set(struct Checkpoint *checkpoint); /* returns the one before */
/* The outermost one whose function is traced: a number of its own, 0: none is. */
int checkpoint_traced(void);
void checkpoint_set_traced(int number);

/* The dtype that autocast computes in, CB_SAME: off. Sets it without a scope; returns the one
 * before. For what works on op calls that are converted already. */
cb_dtype autocast_set(cb_dtype dtype);
/* Around a function of the user's: its autocast scopes are its own. False when it left some open,
 * which are closed then. */
typedef struct AutocastFrame {
    int depth, base;
    cb_dtype lower;
} AutocastFrame;
AutocastFrame autocast_enter(void);
AutocastFrame autocast_frame(void); /* as it is now, to leave to it from further inside */
bool autocast_leave(AutocastFrame frame);

#endif
