/* The flat trace of one run of a function: what it called, in order, with what.
 *
 *     values   0, 1: the inputs x, w    2: a captured tensor b    3, 4: results
 *     ops      3 = matmul(0, 1)         4 = add(3, 2)
 *     outputs  4
 *
 * Values are numbered in order of appearance: inputs first, then captured tensors (real ones that
 * are no inputs, at their first use) and results as they come. A trace knows nothing of the graph
 * that was built beside it; it is enough to check a later run against, and to run the ops one by
 * one.
 *
 * A number is part of the trace or, once it was found to change, an *argument* of it: any number of
 * its kind fits there, and each run has its own. Arguments are counted in order of appearance,
 * apart from values, so that traces of the same ops number their values alike. */
#ifndef CARBIDE_TRACE_TRACE_H
#define CARBIDE_TRACE_TRACE_H

#include "base/buffer.h"
#include "base/reason.h"
#include "base/vec.h"
#include "eager/apply.h"
#include "nn/module.h"

#include <stdatomic.h>

enum { TRACE_OPERANDS = OP_MAX_INPUTS };

typedef enum __attribute__((packed)) OperandKind { /* the first four as in cb_operand */
                                                   OPERAND_VALUE = CB_OPERAND_TENSOR,
                                                   OPERAND_FLOAT = CB_OPERAND_FLOAT,
                                                   OPERAND_INT = CB_OPERAND_INT,
                                                   OPERAND_BOOL = CB_OPERAND_BOOL,
                                                   OPERAND_ABSENT
} OperandKind;

enum { NO_ARGUMENT = -1 };

typedef struct TraceOperand {
    OperandKind kind;
    int value;    /* of a number: which argument it is, or NO_ARGUMENT */
    int64_t bits; /* of a number that is no argument */
} TraceOperand;

static inline bool operand_is_number(const TraceOperand *operand) {
    return operand->kind != OPERAND_VALUE && operand->kind != OPERAND_ABSENT;
}
static inline bool operand_is_argument(const TraceOperand *operand) {
    return operand_is_number(operand) && operand->value != NO_ARGUMENT;
}

/* A number of an op that is an argument, as a replay meets it: where it stands, and that any of its
 * kind from least to most may be one. Of others trace_may_vary is asked. */
typedef struct TraceNumber {
    uint8_t operand; /* which it is */
    uint8_t kind;
    uint8_t word;      /* of an attribute: where its value is */
    bool is_attribute;
    bool says_kind; /* an attribute, whose kind is in the word before */
    int argument;
    double least, most; /* most below least: none */
} TraceNumber;

typedef struct TraceBack { /* what OP_backward takes gradients by */
    bool leaves;           /* all leaves that there are: cb_backward; else a list of the caller's */
    bool graph;            /* the results may be gone back over: cb_grad_graph */
    bool apart; /* of wrt, those that are results are nodes of their own (Recording.apart) */
    int count;
    const int *wrt; /* values, each with a result; ~value: it has no gradient */
} TraceBack;

typedef struct TraceOp {
    Op op;
    uint8_t input_count, word_count;
    uint8_t operand_count; /* inputs, then attributes that are numbers (op_varying) */
    bool varies;           /* an attribute is an argument */
    bool makes;            /* of no tensor: where it lies was said by the option device */
    bool quiet;            /* between cb_no_grad_open and _close of the function's own */
    int result;            /* value; of an assignment: -1. OP_backward: the first of them, or -1 */
    int first_value;       /* values that existed before this op */
    ModuleMode mode;       /* ModuleMode as the op was recorded */
    Site site;             /* its path, if any, lives in the trace's arena */
    const int64_t *word;   /* attributes as the call gave them, or normal (view_normalize); 0: of an
                            * argument */
    const int64_t *called; /* as the call gave them, where they are normal; else NULL */
    const TraceBack *back; /* of OP_backward alone */
    TraceNumber *number;   /* vec, of a complete trace: those that are arguments */
    uint64_t number_words; /* attributes that they are in, by bit */
    TraceOperand input[TRACE_OPERANDS];
} TraceOp;

/* A view begins as far behind its parent's first element as an argument says. */
typedef struct TraceShift {
    int argument;
    int64_t stride; /* in elements, for each */
    const struct TraceShift *next; /* of its parent */
} TraceShift;

typedef enum __attribute__((packed)) ValueKind {
    VALUE_IS_INPUT,
    VALUE_IS_CAPTURED,
    VALUE_IS_RESULT
} ValueKind;

/* The first op that reads or writes the memory of a tensor from outside. */
typedef struct TraceMeeting {
    int op, root;
} TraceMeeting;

enum { NO_VALUE = -1 }; /* in place of the number of one */

typedef struct TraceValue {
    ValueKind kind;
    bool contiguous;
    bool tracked;   /* it requires a gradient: a leaf from outside, or computed from one */
    bool foreign;   /* from outside, with a history that is not the trace's: of ops before the call,
                     * or of a segment that was left. So no op follows it */
    int gone_back;  /* after so many ops cb_backward has gone over it; 0: never */
    bool met;       /* a root: there is a TraceMeeting of it */
    int root;       /* the value whose storage it views; itself when it owns one */
    int same;       /* the first value that is the same result, to gradients: of a gradient that was
                     * handed on as it was; itself where there is no other one */
    int64_t offset; /* relative to the root's, without shifts */
    const TraceShift *shift;
    Meta meta;
    int64_t stride[CB_MAX_RANK];
    const char *path; /* of a captured tensor of the module that was compiled, NULL: of none */
    const cb_tensor *handle; /* of a captured tensor, that the function found */
    bool own; /* captured, and made by the call itself, of no op: the next call makes another one */
    /* fullgraph: whether an input or captured tensor requires a gradient, or did so where none was
     * wanted, and the function asked. */
    bool asked, required;
} TraceValue;

/* Along the dim all elements are one in memory. */
static inline bool value_is_expanded(const TraceValue *value, int dim) {
    return !value->stride[dim] && value->meta.size[dim] > 1;
}

/* A module whose forward ran, or of which the function asked something; or an FX graph that ran. */
typedef struct TraceObject {
    union {
        Tomb *tomb; /* held; NULL: forgotten */
        const cb_module *module;
        const cb_graph *graph;
    };
    bool is_graph;
    uint64_t modes; /* of a module: which of it and its descendants train */
    uint64_t parts; /* and which tensors they hold; of a graph: how often it was edited */
} TraceObject;

enum { LEAF_ANY = -3, LEAF_SAME, LEAF_NONE }; /* or a value */
typedef struct TraceLeaf { /* fullgraph: whose gradient the function looks at, or changes */
    int value;
    int before; /* LEAF_ANY, LEAF_NONE: its gradient when the function was called */
    int after;  /* LEAF_SAME, LEAF_NONE: and when it returned */
} TraceLeaf;

typedef struct TraceAnswer { /* fullgraph: what the function was told of how its tensors lie */
    int value, other; /* roots; whether they share a storage. other -1: the stride along dim */
    int64_t dim, answer;
} TraceAnswer;

/* What most ops of a replay are compared with (line.c): one line of the cache for an op and its
 * result. */
enum { LINE_OPERANDS = 3 };
typedef struct TraceLine {
    uint32_t what; /* line_key; LINE_IS_OTHER: such an op is compared as a TraceOp alone */
    uint8_t kind[LINE_OPERANDS]; /* of the operands */
    uint8_t word_count;
    int root;        /* whose storage the result is a view of, where that is no result; or -1 */
    int result;
    uint64_t traits; /* Tensor.traits of the result */
    int64_t offset;
    const int64_t *word;
    int64_t operand[LINE_OPERANDS]; /* a value, or the number's bits */
} TraceLine;
_Static_assert(sizeof(TraceLine) == 64, "a line of the cache");
/* quiet: 0 or -1. The bits above are those of no key; LINE_IS_SHARED and LINE_VARIES turn one
 * over. */
#define LINE_IS_OTHER UINT32_C(0x55000000)
#define LINE_IS_SHARED UINT32_C(0x01000000) /* its result is a view of what root is a view of */
#define LINE_VARIES UINT32_C(0x02000000)    /* some of its operands are: */
enum { LINE_CAPTURED = 0xFE, LINE_ARGUMENT = 0xFF }; /* as kinds, which no operand has */
static inline uint32_t line_key(int op, int input_count, int quiet) {
    return ((uint32_t)op | (uint32_t)input_count << 16) ^ (uint32_t)quiet;
}

/* Why it was recorded beside what was known. REASON_NONE: that was told already. */
typedef struct TraceAgain {
    Reason reason;
    Site site;
    const char *text; /* NULL: nothing was known */
} TraceAgain;

typedef struct Trace {
    Arena *arena;          /* owned */
    _Atomic int references;
    uint64_t serial;       /* unique; 0: it is not complete */
    const TraceLine *line; /* per op, and one more that is none; NULL: it is not complete */
    TraceObject *object; /* vec; under fullgraph, and without modules that are below another one */
    TraceOp *op;         /* vec */
    TraceValue *value;   /* vec */
    TraceLeaf *leaf;     /* vec */
    TraceMeeting *meeting; /* vec, in the order of the ops */
    TraceAnswer *answer; /* vec */
    int argument_count;
    TraceAgain again;
    int parted;           /* ops before the one with which its recording left what was known */
    int *output;          /* vec: values; -1 is NULL */
    int *escaped;         /* vec: results that outlive the call without being returned; of a segment
                        * that goes on: those that cross */
    int *leads;           /* vec: of what crosses, what somebody goes on from with its history */
    bool goes_on;         /* it ends at an event, not with the function (segment.c) */
    bool cut;             /* it goes on behind a written slot (slot.c) */
    bool whole;           /* it goes on, and nothing of it may wait: it writes, or has effects */
    int draws;            /* it goes on, and takes so many random states */
    uint64_t likeness[2]; /* trace_make_likeness */
    uint64_t floats[2];   /* and float attributes, and ranks */
    uint64_t sizes[2];
    atomic_bool *crosses; /* it goes on: by root, whether somebody used it after the event; by any
                           * value with a history, whether somebody went on from that */
} Trace;

Trace *trace_new(void); /* NULL: out of memory */
Trace *trace_retain(Trace *trace);
void trace_release(Trace *trace); /* NULL is allowed */
void trace_say_again(Trace *trace, const TraceAgain *again); /* copied, if there is memory */
bool trace_same(const Trace *a, const Trace *b);
/* True when the first count ops, and the values that they use, are equal but for numbers. */
bool trace_alike(const Trace *a, const Trace *b, int count);
bool trace_alike_op(const TraceOp *a, const TraceOp *b);
/* True when a run that did the first count ops of `done`, with these arguments (as bits), did those
 * of `as`, too. trace_arguments: the arguments that they are of `as`. */
bool trace_repeats(const Trace *done, const int64_t *argument, int count, const Trace *as);
void trace_arguments(const Trace *done, const int64_t *argument, int count, const Trace *as,
                     int64_t *out);
/* True when every run that is one of `other` is one of `trace`, too. */
bool trace_covers(const Trace *trace, const Trace *other);
/* Hashes of what trace_resembles and trace_resized compare, once the trace is complete: every two
 * sizes of a function are compared. */
void trace_make_likeness(Trace *trace);
/* True when the ops are, and are called with the same values, whatever their sizes and numbers. */
bool trace_resembles(const Trace *a, const Trace *b);
/* True when they are besides of the same ranks and float attributes, and not of the same sizes, or
 * called with other integers: the shift of a roll. */
bool trace_resized(const Trace *a, const Trace *b);
/* The op that gave the value, which is no gradient, or NULL. */
const TraceOp *trace_maker(const Trace *trace, int value);
/* Values that exist after the first count ops. */
int trace_values_after(const Trace *trace, int count);
/* The next op goes back from root, over those that it was computed from. Escapes through the
 * trace's arena. */
void trace_goes_back(Trace *trace, int root);
/* After the first count ops it has a history that nobody has gone back over. */
bool trace_has_history(const Trace *trace, int value, int count);
/* Marks, by value, what the first count ops compute, with a gradient, from those that are
 * marked. */
void trace_mark_tracked(const Trace *trace, int count, bool *from);
bool trace_is_gradient(const Trace *trace, int value); /* fullgraph: that a leaf had before */
bool trace_has_backward(const Trace *trace, int count); /* among the first count ops */
/* The elements of back->wrt that have a gradient. */
int trace_back_results(const TraceBack *back);
int trace_op_results(const TraceOp *op); /* values that it gives, op->result and behind */
static inline int trace_back_value(const TraceBack *back, int k) {
    return back->wrt[k] < 0 ? ~back->wrt[k] : back->wrt[k];
}
/* Everything that outlives the call: outputs, then escaped values. */
int trace_result_count(const Trace *trace);
int trace_result(const Trace *trace, int k);
TraceOperand trace_number(const cb_operand *operand);
cb_operand trace_operand_number(const TraceOperand *operand, const int64_t *argument);
/* The op does something besides its result, which a second run would do again. */
bool trace_has_effects(const TraceOp *op);
/* The value owns, or views, a storage that the trace made. */
bool trace_computes(const Trace *trace, int v);
/* The storage of a trace's value v, or, before it is computed, what stands for it in value[]. */
static inline const void *value_storage(const Trace *trace, Tensor *const *value, int v) {
    int root = trace->value[v].root;
    return trace_computes(trace, v) ? (const void *)&value[root]
                                    : (const void *)value[root]->storage;
}
/* The root of its own tensors that an op writes; NO_VALUE: none, or what the trace made itself. */
int trace_written_by(const Trace *trace, int op);
/* Operand k is a value, and no statistics that the op moves and does not read. */
bool trace_reads(const TraceOp *op, int k);
/* By op: what counts is computed by it. counts: by root, of results before, then also what they are
 * computed from. */
void trace_mark_followed(const Trace *trace, bool *followed, bool *counts);
/* Random states that the first count ops of a run with these arguments take. */
int trace_draws(const Trace *trace, int count, const int64_t *argument);
int trace_op_draws(const TraceOp *op, const int64_t *argument);
/* Where a value begins in a run with these arguments, relative to its root. */
int64_t trace_offset(const TraceValue *value, const int64_t *argument);
/* Canonical attributes with the arguments of a run; NULL: without. */
void trace_attrs(const TraceOp *op, const int64_t *argument, Attrs *attrs);
bool trace_word_varies(const TraceOp *op, int word); /* of an attribute among the operands */
bool trace_word_is_argument(const TraceOp *op, int word);
/* The k-th operand, a number, is an argument or may be one with this value. attrs: of the call. */
bool trace_may_vary(const Trace *trace, const TraceOp *op, int k, const cb_operand *number,
                    const Attrs *attrs);
/* As text (trace_text.c). */
void trace_print(const Trace *trace, Buffer *out);
void trace_print_operand(const TraceOperand *operand, Buffer *out);
/* The value of one of the attributes that begin at word. */
void trace_print_attribute(const Param *param, const int64_t *word, Buffer *out);

/* Runs ops [0, count) one by one, eagerly: exactly what the function would have done without a
 * tracer. real has an entry per value: inputs and captured tensors are given, results are filled
 * with kept tensors. An op that fails gives NULL, which those after it meet as they would have in
 * eager; false, with an error, when one did. */
bool trace_run(const Trace *trace, int count, const int64_t *argument, Tensor **real);
/* By op: it is x = op(x, ..) with the write behind it, and what it gives is nothing else's:
 * cb_add_(x, y). */
bool *trace_find_updates(const Trace *trace, Arena *arena);
/* All ops as a program takes them that has these in place: where x lies, and the op's result is
 * NULL. */
bool trace_run_in_place(const Trace *trace, const bool *updates, const int64_t *argument,
                        Tensor **real);
/* The same after a run that failed, when it may have had effects (cb_custom_op): ops that have some
 * are not run again and give NULL, which those after them meet as if they had failed. */
void trace_run_without_effects(const Trace *trace, int count, const int64_t *argument,
                               Tensor **real);

/* The ops that are marked (trace_mark_followed) once more, for their histories: the others are not
 * there, but for what they draw. real has what is read from outside, and writes are done to it. */
bool trace_run_followed(const Trace *trace, const bool *followed, const int64_t *argument,
                        Tensor **real);

#endif
