/* An op of a run beside those of traces (match.c). Attributes are as the call has them, NULL for an
 * op without. */
#ifndef CARBIDE_CAPTURE_MATCH_H
#define CARBIDE_CAPTURE_MATCH_H

#include "capture/functional.h"

/* It is the next op of the trace, and the call is behind it now. */
bool match_here(Call *call, int op, const cb_operand *input, int input_count, const Attrs *attrs);
/* Goes over to another entry that did the same so far and left what was known with this op. */
bool match_by_op(Call *call, int op, const cb_operand *input, int input_count, const Attrs *attrs);
/* The same, to any that continues with it. */
bool match_any(Call *call, int op, const cb_operand *input, int input_count, const Attrs *attrs);
/* Goes over to the next entry behind `behind` (NULL: the first one) that did the same as `left` so
 * far; key (find.c): of those that have it. NULL: there is none, and the call is back at `left`. */
Entry *match_next_entry(Call *call, Entry *left, Entry *behind, const uint64_t *key);
/* The same for the first of the list, be it this one: as if none had been guessed (function.c),
 * what the call does otherwise is told from that. */
void match_first_entry(Call *call);
/* x is a real tensor where the trace has value v: the same input, or a captured tensor that
 * fits. */
bool match_real(Call *call, int v, Tensor *x);
/* The modules that have run so far were set otherwise as the trace was recorded. */
bool match_mode_changed(const Call *call);
/* The operand is a constant of the entry, which was written to since. */
bool match_is_written(const Call *call, const TraceOperand *known, const cb_operand *given);
/* Where the trace has a tensor from outside, the run has one that it does not take: why not.
 * REASON_NONE: it takes it, or has none from outside. */
Reason match_other_tensor(const Call *call, const TraceOperand *known, const cb_operand *given);
/* Why the run leaves the trace: the same op with another number or tensor, or another op. */
Reason match_departure(const Call *call, int op, const cb_operand *input, int input_count,
                       const Attrs *attrs);

/* The number as the call has it. */
static inline cb_operand match_given(const TraceNumber *number, const cb_operand *input,
                                      const Attrs *attrs) {
    if (!number->is_attribute) return input[number->operand];
    const int64_t *word = &attrs->word[number->word];
    return (cb_operand){.kind = number->says_kind ? (int)word[-1] : number->kind, .i = *word};
}

/* Numbers that are arguments are given those that they may be, any of their kind that change
 * nothing but themselves; these are theirs in this call. */
static inline bool match_numbers(Call *call, const TraceOp *op, const cb_operand *input,
                                 const Attrs *attrs) {
    for (int i = 0; i < length(op->number); i++) {
        const TraceNumber *number = &op->number[i];
        cb_operand given = match_given(number, input, attrs);
        if (given.kind != number->kind) return false;
        double value = given.kind == CB_OPERAND_FLOAT ? given.f : (double)given.i;
        bool sure = value >= number->least && value <= number->most;
        if (!sure && !trace_may_vary(call->trace, op, number->operand, &given, attrs)) return false;
        call->argument[number->argument] = given.i;
    }
    return true;
}

#endif
