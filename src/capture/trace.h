/* The flat trace of one run of a function: what it called, in order, with what.
 *
 *     values   0, 1: the inputs x, w    2: a captured tensor b    3, 4: results
 *     ops      3 = matmul(0, 1)         4 = add(3, 2)
 *     outputs  4
 *
 * Values are numbered in order of appearance: inputs first, then captured tensors (real ones that
 * are no inputs, at their first use) and results as they come. A trace knows nothing of the graph
 * that was built beside it; it is enough to check a later run against, and to run the ops one by
 * one. */
#ifndef CARBIDE_CAPTURE_TRACE_H
#define CARBIDE_CAPTURE_TRACE_H

#include "base/buffer.h"
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

typedef struct TraceOperand {
    OperandKind kind;
    int value;
    int64_t bits; /* of the number */
} TraceOperand;

typedef struct TraceOp {
    Op op;
    uint8_t input_count, word_count;
    bool makes;      /* of no tensor: where it lies was said by the option device */
    int result;      /* value; of an assignment: -1 */
    int first_value; /* values that existed before this op */
    ModuleMode mode; /* ModuleMode as the op was recorded */
    Site site;    /* its path, if any, lives in the trace's arena */
    const int64_t *word; /* attributes as the call gave them */
    TraceOperand input[TRACE_OPERANDS];
} TraceOp;

typedef enum ValueKind { VALUE_IS_INPUT, VALUE_IS_CAPTURED, VALUE_IS_RESULT } ValueKind;

typedef struct TraceValue {
    ValueKind kind;
    bool contiguous;
    Meta meta;
    int64_t stride[CB_MAX_RANK], offset; /* offset: relative to the root's */
    int root; /* the value whose storage it views; itself when it owns one */
} TraceValue;

typedef struct Trace {
    Arena *arena;      /* owned */
    TraceOp *op;       /* vec */
    TraceValue *value; /* vec */
    int *output;       /* vec: values; -1 is NULL */
    int *escaped;      /* vec: results that outlive the call without being returned; of a segment
                        * that goes on: those that cross */
    bool goes_on;      /* it ends at an event, not with the function (segment.c) */
    bool whole;        /* it goes on, and nothing of it may wait: it writes, or draws */
    atomic_bool *crosses; /* it goes on: by root, whether somebody used it after the event */
} Trace;

Trace *trace_new(void); /* NULL: out of memory */
void trace_free(Trace *trace);
/* True when the first count ops, and the values that they use, are equal. */
bool trace_same_prefix(const Trace *a, const Trace *b, int count);
bool trace_same(const Trace *a, const Trace *b);
/* Values that exist after the first count ops. */
int trace_values_after(const Trace *trace, int count);
/* Everything that outlives the call: outputs, then escaped values. */
int trace_result_count(const Trace *trace);
int trace_result(const Trace *trace, int k);
TraceOperand trace_number(const cb_operand *operand);
void trace_print(const Trace *trace, Buffer *out);

/* Runs ops [0, count) one by one, eagerly: exactly what the function would have done without a
 * tracer. real has an entry per value: inputs and captured tensors are given, results are filled
 * with kept tensors. An op that fails gives NULL, which those after it meet as they would have in
 * eager; false, with an error, when one did. */
bool trace_run(const Trace *trace, int count, Tensor **real);

#endif
