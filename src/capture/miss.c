/* What of a call no entry fits, for explain: the guard, or op, with what was found and expected.
 *
 *     entry 0 was compiled for f32[2, 8]; a call with f32[4, 8]
 *         ->  input_changed, "input 0 is f32[4, 8], entry 0 has f32[2, 8]"
 *     its third op was exp(y); now it is sin(y)
 *         ->  path_changed, "after 2 ops: sin in place of exp" */
#include "capture/match.h"
#include "op/custom.h"

#include <string.h>

/* ---- guards ---------------------------------------------------------------------------------- */

typedef struct GuardText {
    char text[160];
} GuardText;

static const char *const history_text[] = {
    [HISTORY_NONE] = "that requires no gradient",
    [HISTORY_OF_LEAF] = "that requires a gradient",
    [HISTORY_FOREIGN] =
        "that ops outside computed from what requires a gradient, or that has a hook"};

/* Dtype and sizes; device and strides where those are what differs. */
static GuardText describe_guard(const Guard *guard, const Guard *other) {
    GuardText out;
    Meta meta = {.dtype = guard->dtype, .rank = guard->rank};
    memcpy(meta.size, guard->size, sizeof meta.size);
    meta_format(&meta, out.text, sizeof out.text);
    size_t used = strlen(out.text), room = sizeof out.text - used;
    if (guard->device != other->device) {
        snprintf(out.text + used, room, " on %s", devices[guard->device]->name);
    } else if (guard->history != other->history) {
        snprintf(out.text + used, room, " %s", history_text[guard->history]);
    } else if (guard->contiguous != other->contiguous ||
               (!guard->contiguous && memcmp(guard->stride, other->stride, sizeof guard->stride))) {
        used += (size_t)snprintf(out.text + used, room, " of strides [");
        for (int i = 0; i < guard->rank && used < sizeof out.text; i++)
            used += (size_t)snprintf(out.text + used, sizeof out.text - used, "%s%lld",
                                     i ? ", " : "", (long long)guard->stride[i]);
        if (used < sizeof out.text) snprintf(out.text + used, sizeof out.text - used, "]");
    }
    return out;
}

Reason miss_describe(const Function *function, Ambient now, Tensor *const *input, int input_count,
                     char *out, size_t bytes) {
    const Entry *last = function_find_resized(function, input, input_count);
    bool near = last;
    for (Entry *e = atomic_load(&function->first); e && !near; e = atomic_load(&e->next))
        if (!e->resumes) last = e;
    if (!last) return REASON_input_changed; /* they have left meanwhile: another thread's reset */
    snprintf(out, bytes, "another number of inputs, %d: entry %d has %d", input_count, last->number,
             last->input_count);
    if (input_count != last->input_count) return REASON_input_changed;
    for (int i = 0; i < input_count; i++) {
        if (guard_holds(&last->guard[i], input[i], grad_mode())) continue;
        Guard found;
        guard_make(&found, input[i], grad_mode());
        Guard but_for_history = last->guard[i];
        but_for_history.history = found.history;
        snprintf(out, bytes, "input %d is %s, entry %d has %s", i,
                 describe_guard(&found, &last->guard[i]).text, last->number,
                 describe_guard(&last->guard[i], &found).text);
        return guard_holds(&but_for_history, input[i], grad_mode()) ? REASON_history_changed
                                                                    : REASON_input_changed;
    }
    if (entry_describe_aliases(last, input, out, bytes)) return REASON_aliases_changed;
    Reason why = conditions_differ(last, now, out, bytes);
    if (why != REASON_NONE) return why;
    if (function->options.fullgraph) {
        if (frozen_describe(last, out, bytes)) return REASON_constant_written;
        why = leaves_describe(last, input, out, bytes);
        if (why == REASON_NONE) answers_describe(last, input, out, bytes);
    }
    return why == REASON_NONE ? REASON_input_changed : why;
}

/* Its inputs have other sizes, and it does more ops, or fewer: a loop over a size, say. */
static bool is_longer(const Entry *a, const Entry *b) {
    bool resized = false, alike = a->input_count == b->input_count;
    for (int i = 0; alike && i < a->input_count; i++) {
        const Guard *p = &a->guard[i], *q = &b->guard[i];
        alike = p->dtype == q->dtype && p->rank == q->rank && p->device == q->device;
        resized |= alike && memcmp(p->size, q->size, sizeof *p->size * p->rank) != 0;
    }
    return alike && resized && length(a->trace->op) != length(b->trace->op);
}

/* Each kernel of the one computes what one of the other does: a loop over a size that became one
 * kernel does not, and would be compiled for each size, whatever the options. */
static bool has_kernels_of(const Entry *a, const Entry *b) {
    const Plan *p = executable_plan(a->executable), *q = executable_plan(b->executable);
    bool has = true;
    for (int i = 0, k = 0; i < length(p->kernel) && has; i++) {
        for (k = 0; k < length(q->kernel); k++)
            if (p->kernel[i]->kind == q->kernel[k]->kind) break;
        has = k < length(q->kernel);
    }
    return has;
}

void miss_advise(const Function *function, char *out, size_t bytes) {
    const Entry *first = atomic_load(&function->first);
    bool found = false, coded = function->options.dynamic == DYNAMIC_AUTO;
    for (const Entry *e = first; e && coded; e = atomic_load(&e->next)) {
        coded = e->executable && executable_info(e->executable).source;
        found |= coded && !e->resumes && is_longer(e, first) && has_kernels_of(e, first);
    }
    size_t used = strlen(out);
    if (found && coded)
        snprintf(out + used, bytes - used, "; the number of ops differs with it: dynamic=1 may do");
}

/* ---- ops ------------------------------------------------------------------------------------- */

static const char *name_of(int op, const int64_t *word) {
    return op == OP_assign ? "assign" : op_call_name(op, word);
}

/* x may be value v of the trace, as far as this call has met that. */
static bool is_known(const Call *call, int v, const Tensor *x) {
    const Tensor *met = call->value[v];
    if (met) return met == x || same_tensor(met, x);
    const Meta *known = &call->trace->value[v].meta;
    return x->dtype == known->dtype && x->rank == known->rank &&
           !memcmp(x->size, known->size, sizeof *x->size * x->rank);
}

static OperandKind kind_given(const cb_operand *given) {
    if (given->kind != CB_OPERAND_TENSOR) return (OperandKind)given->kind;
    return given->tensor ? OPERAND_VALUE : OPERAND_ABSENT;
}

static bool is_as_before(const Call *call, const TraceOperand *known, const cb_operand *given) {
    OperandKind now = kind_given(given);
    if (now != known->kind || match_is_written(call, known, given)) return false;
    if (now == OPERAND_VALUE) return is_known(call, known->value, given->tensor);
    return now == OPERAND_ABSENT || operand_is_argument(known) ||
           trace_number(given).bits == known->bits;
}

static void say_operand(const Call *call, const TraceOperand *known, const cb_operand *given,
                        int position, Buffer *out) {
    char now[128] = "", before[128] = "";
    OperandKind kind = kind_given(given);
    const TraceValue *value =
        known->kind == OPERAND_VALUE ? &call->trace->value[known->value] : NULL;
    if (value && match_is_written(call, known, given)) {
        putf(out, " of operand %d%s%s%s, a constant of entry %d that was written to", position,
             value->path ? " (" : "", value->path ? value->path : "", value->path ? ")" : "",
             call->entry->number);
        return;
    }
    if (value) meta_format(&value->meta, before, sizeof before);
    put(out, " of ");
    if (kind == OPERAND_VALUE) {
        Meta meta = tensor_meta(given->tensor);
        meta_format(&meta, now, sizeof now);
        put(out, value && !strcmp(now, before) ? "another " : "");
        put(out, now);
    } else {
        TraceOperand number = trace_number(given);
        number.kind = kind;
        trace_print_operand(&number, out);
    }
    if (!value || strcmp(now, before)) put(out, " in place of ");
    if (!value)
        trace_print_operand(known, out);
    else if (strcmp(now, before))
        put(out, before);
    if (value || kind == OPERAND_VALUE) putf(out, " as operand %d", position);
    if (value && value->path) putf(out, " (%s)", value->path);
}

/* A tensor of the same dtype and sizes, with another history, or other strides. */
static void say_traits(const Call *call, int v, Reason why, Buffer *out) {
    char name[128];
    entry_name_value(call->entry, v, name, sizeof name);
    const TraceValue *value = &call->trace->value[v];
    bool had = value->tracked || value->foreign;
    putf(out, " of %s, which %s", name,
         why != REASON_history_changed ? "lies otherwise now"
         : had                         ? "required a gradient"
                                       : "required no gradient");
}

static void say_attribute(const TraceOp *known, const Attrs *attrs, Buffer *out) {
    const OpInfo *info = op_info(known->op);
    const int64_t *before = known->called ? known->called : known->word;
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        if (param->word < 0 || trace_word_is_argument(known, param->word) ||
            !memcmp(&before[param->word], &attrs->word[param->word],
                    sizeof *known->word * (size_t)param_words(param)))
            continue;
        putf(out, " with %s=", param->name);
        trace_print_attribute(param, attrs->word, out);
        put(out, " in place of ");
        trace_print_attribute(param, before, out);
        return;
    }
}

/* A number that may not be the argument which the entry has there: floor_divide of i8 by 256. True
 * when there is one. */
static bool say_argument(const Call *call, const TraceOp *next, const cb_operand *input,
                         const Attrs *attrs, Buffer *out) {
    for (int k = 0; k < next->operand_count; k++) {
        const TraceOperand *known = &next->input[k];
        if (!operand_is_argument(known)) continue;
        const Param *param =
            k < next->input_count ? NULL : op_varying(next->op, k - next->input_count);
        cb_operand given = param ? attr_varying(param, attrs->word) : input[k];
        if ((int)known->kind != given.kind || trace_may_vary(call->trace, next, k, &given, attrs))
            continue;
        TraceOperand number = trace_number(&given);
        put(out, param ? " with " : " of ");
        if (param) putf(out, "%s=", param->name);
        trace_print_operand(&number, out);
        putf(out, ", which is no argument there: entry %d has one", call->entry->number);
        return true;
    }
    return false;
}

bool miss_describe_gradient(const Call *call, char *out, size_t bytes) {
    bool has;
    int leaf = leaves_find_departed(call, &has);
    if (leaf != NO_VALUE) leaf_describe(call->entry, leaf, has, out, bytes);
    return leaf != NO_VALUE;
}

static void say_op(const Call *call, int op, const cb_operand *input, int input_count,
                   const Attrs *attrs, Buffer *out) {
    if (call->at >= length(call->trace->op)) {
        putf(out, ", where entry %d ends", call->entry->number);
        return;
    }
    const TraceOp *next = &call->trace->op[call->at];
    if ((int)next->op != op) {
        putf(out, " in place of %s", name_of(next->op, next->word));
        return;
    }
    for (int i = 0; i < input_count && i < next->input_count; i++) {
        if (!is_as_before(call, &next->input[i], &input[i])) {
            say_operand(call, &next->input[i], &input[i], i, out);
            return;
        }
        Reason why = match_other_tensor(call, &next->input[i], &input[i]);
        if (why == REASON_NONE || why == REASON_tensor_changed) continue;
        say_traits(call, next->input[i].value, why, out);
        return;
    }
    if (say_argument(call, next, input, attrs, out)) return;
    if (attrs && next->word_count) say_attribute(next, attrs, out);
}

void miss_describe_op(const Call *call, int op, const cb_operand *input, int input_count,
                      const Attrs *attrs, char *out, size_t bytes) {
    if (miss_describe_gradient(call, out, bytes)) return;
    const char *name = name_of(op, attrs ? attrs->word : NULL);
    int used = snprintf(out, bytes, "after %d op%s: %s", call->at, plural(call->at), name);
    Arena *arena = arena_new();
    if (arena && !arena_guard(arena)) {
        Buffer text = buffer_new(arena);
        say_op(call, op, input, input_count, attrs, &text);
        snprintf(out + used, bytes - (size_t)used, "%s", buffer_text(&text));
    }
    arena_free(arena);
}
