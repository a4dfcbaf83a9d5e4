/* What of a call no entry fits, for explain: the guard, or op, with what was found and expected.
 *
 *     entry 0 was compiled for f32[2, 8]; a call with f32[4, 8]
 *         ->  input_changed, "input 0 is f32[4, 8], entry 0 has f32[2, 8]"
 *     its third op was exp(y); now it is sin(y)
 *         ->  path_changed, "after 2 ops: sin in place of exp" */
#include "capture/function.h"

#include <stdarg.h>
#include <string.h>

/* ---- guards ---------------------------------------------------------------------------------- */

typedef struct GuardText {
    char text[160];
} GuardText;

/* Dtype and sizes; device and strides where those are what differs. */
static GuardText describe_guard(const Guard *guard, const Guard *other) {
    GuardText out;
    Meta meta = {.dtype = guard->dtype, .rank = guard->rank};
    memcpy(meta.size, guard->size, sizeof meta.size);
    meta_format(&meta, out.text, sizeof out.text);
    size_t used = strlen(out.text), room = sizeof out.text - used;
    if (guard->device != other->device) {
        snprintf(out.text + used, room, " on %s", devices[guard->device]->name);
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
    const Entry *last = NULL;
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next))
        if (!e->resumes) last = e;
    if (!last) return REASON_input_changed; /* they have left meanwhile: another thread's reset */
    snprintf(out, bytes, "another number of inputs, %d: entry %d has %d", input_count, last->number,
             last->input_count);
    for (int i = 0; i < input_count && input_count == last->input_count; i++) {
        if (guard_holds(&last->guard[i], input[i])) continue;
        Guard found;
        guard_make(&found, input[i]);
        snprintf(out, bytes, "input %d is %s, entry %d has %s", i,
                 describe_guard(&found, &last->guard[i]).text, last->number,
                 describe_guard(&last->guard[i], &found).text);
        return REASON_input_changed;
    }
    if (input_count == last->input_count && entry_describe_aliases(last, input, out, bytes))
        return REASON_input_changed;
    Reason why = conditions_differ(last, now, out, bytes);
    if (why != REASON_NONE) return why;
    if (function->options.fullgraph) frozen_describe(last, out, bytes);
    return REASON_input_changed;
}

/* ---- ops ------------------------------------------------------------------------------------- */

typedef struct Line {
    char *out;
    size_t bytes, used;
} Line;

static __attribute__((format(printf, 2, 3))) void say(Line *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (text->used < text->bytes) {
        int put = vsnprintf(text->out + text->used, text->bytes - text->used, format, arguments);
        text->used += put > 0 ? (size_t)put : 0;
    }
    va_end(arguments);
}

static void say_number(Line *text, const TraceOperand *number) {
    cb_operand given = trace_operand_number(number, NULL);
    if (given.kind == CB_OPERAND_FLOAT)
        say(text, "%.15g", given.f);
    else
        say(text, "%lld", (long long)given.i);
}

static const char *name_of(int op) { return op == OP_assign ? "assign" : op_info(op)->name; }

static void say_tensor(Line *text, const Meta *found, const Meta *known) {
    char now[128], before[128];
    meta_format(found, now, sizeof now);
    meta_format(known, before, sizeof before);
    bool same = !strcmp(now, before);
    if (same)
        say(text, "another %s", now);
    else
        say(text, "%s in place of %s", now, before);
}

/* x may be value v of the trace, as far as this call has met that. */
static bool is_known(const Call *call, int v, const Tensor *x) {
    const Tensor *met = call->value[v];
    if (met) return met == x || same_tensor(met, x);
    const Meta *known = &call->trace->value[v].meta;
    return x->dtype == known->dtype && x->rank == known->rank &&
           !memcmp(x->size, known->size, sizeof *x->size * x->rank);
}

/* An operand that is not what it was. False: it is, or is no tensor that is from outside. */
static bool say_operand(const Call *call, Line *text, const TraceOperand *known,
                        const cb_operand *given, int position) {
    bool tensor = given->kind == CB_OPERAND_TENSOR;
    if (operand_is_number(known) && !operand_is_argument(known) &&
        given->kind == (int)known->kind) {
        TraceOperand number = trace_number(given);
        if (number.bits == known->bits) return false;
        say(text, " of ");
        say_number(text, &number);
        say(text, " in place of ");
        say_number(text, known);
        return true;
    }
    if (!tensor || !given->tensor || known->kind != OPERAND_VALUE) return false;
    if (is_known(call, known->value, given->tensor)) return false;
    Meta now = tensor_meta(given->tensor);
    const char *path = call->trace->value[known->value].path;
    say(text, " of ");
    say_tensor(text, &now, &call->trace->value[known->value].meta);
    say(text, " as operand %d", position);
    if (path) say(text, " (%s)", path);
    return true;
}

static void say_attribute(Line *text, const TraceOp *known, const Attrs *attrs) {
    const OpInfo *info = op_info(known->op);
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        if (param->word < 0 || known->word[param->word] == attrs->word[param->word]) continue;
        say(text, " with %s=", param->name);
        if (param->type == PARAM_FLOAT) {
            Attrs before = {{known->word[param->word]}}, now = {{attrs->word[param->word]}};
            say(text, "%.15g in place of %.15g", attr_float(&now, 0), attr_float(&before, 0));
        } else {
            say(text, "%lld in place of %lld", (long long)attrs->word[param->word],
                (long long)known->word[param->word]);
        }
        return;
    }
}

void miss_describe_op(const Call *call, int op, const cb_operand *input, int input_count,
                      const Attrs *attrs, char *out, size_t bytes) {
    Line text = {out, bytes, 0};
    say(&text, "after %d ops: %s", call->at, name_of(op));
    if (call->at >= length(call->trace->op)) {
        say(&text, ", where entry %d ends", call->entry->number);
        return;
    }
    const TraceOp *next = &call->trace->op[call->at];
    if ((int)next->op != op) {
        say(&text, " in place of %s", name_of(next->op));
        return;
    }
    for (int i = 0; i < input_count && i < next->input_count; i++)
        if (say_operand(call, &text, &next->input[i], &input[i], i)) return;
    if (attrs && next->word_count) say_attribute(&text, next, attrs);
}
