/* Lines of a trace: what a replay compares most ops with.
 *
 * An op of the trace is some 200 bytes and its result as many, so a function of a thousand ops is
 * compared with more memory than the first cache has. A line is what an op is mostly told by, in
 * the order of the calls: the op, three operands, where its attributes are, and its result.
 *
 *     %3 = mul(%1, 0.5)      {mul, 2 operands} {value 1} {0.5} -> value 3, like value 1
 *
 * A line that differs says nothing: the op of the trace is asked then (replay.c). Of one with
 * numbers that are arguments, with captured tensors, or whose result begins where an argument says
 * (LINE_VARIES), it says the rest. */
#include "capture/match.h"

#include <stdlib.h>

uint64_t trace_traits(const TraceValue *value, int number) {
    Tensor x = {.dtype = value->meta.dtype, .rank = value->meta.rank, .number = number};
    x.device = value->meta.device;
    return x.traits;
}

/* A captured tensor is not told by its handle: the call has a view of its own of it. */
static void note_operand(const Trace *trace, const TraceOperand *operand, TraceLine *line, int k) {
    bool is_value = operand->kind == OPERAND_VALUE;
    line->kind[k] = operand->kind;
    line->operand[k] = is_value ? operand->value : operand->bits;
    if (operand_is_argument(operand)) line->kind[k] = LINE_ARGUMENT;
    if (is_value && trace->value[operand->value].kind == VALUE_IS_CAPTURED)
        line->kind[k] = LINE_CAPTURED;
}

static bool line_fits(const Trace *trace, const TraceOp *op, TraceLine *line) {
    bool fits = op->input_count <= LINE_OPERANDS && op->result >= 0 && !op->makes && !op->back;
    for (int k = 0; fits && k < op->input_count; k++) fits = op->input[k].kind != OPERAND_ABSENT;
    if (!fits) return false;
    const TraceValue *value = &trace->value[op->result];
    bool varies = op->varies || value->shift;
    for (int k = 0; k < op->input_count; k++) {
        note_operand(trace, &op->input[k], line, k);
        varies |= line->kind[k] >= LINE_CAPTURED;
    }
    line->what = line_key(op->op, op->input_count, op->quiet ? -1 : 0);
    line->word_count = op->word_count;
    line->word = op->called && !op->varies ? op->called : op->word;
    line->traits = trace_traits(value, op->result);
    line->result = op->result;
    line->root = trace->value[value->root].kind == VALUE_IS_RESULT ? NO_VALUE : value->root;
    if (line->root != NO_VALUE) line->what ^= LINE_IS_SHARED;
    if (varies) line->what ^= LINE_VARIES;
    line->offset = value->offset;
    return true;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* As the op's k-th operand. */
static bool takes(const Trace *trace, const TraceOp *op, int k, double value) {
    cb_operand number = {.kind = (int)op->input[k].kind};
    const Param *param = k < op->input_count ? NULL : op_varying(op->op, k - op->input_count);
    Attrs attrs = {{0}};
    if (number.kind == CB_OPERAND_FLOAT)
        number.f = value;
    else
        number.i = (int64_t)value;
    trace_attrs(op, NULL, &attrs);
    if (param && param->type == PARAM_NUMBER)
        attr_set_number(&attrs, param->word, number);
    else if (param)
        attrs.word[param->word] = number.i;
    return trace_may_vary(trace, op, k, &number, &attrs);
}

/* What is between two that an op takes it takes, too, but for 0 and special powers; as integers
 * wrap around, those that are no divisors end early. */
static void find_limits(const Trace *trace, const TraceOp *op, TraceNumber *number) {
    static const double limit[][2] = {{-65504, 65504}, {1e-6, 65504}, {1e-6, 0.75}},
                        whole[][2] = {{-0x1p52, 0x1p52}, {1, 127}};
    bool is_float = number->kind == CB_OPERAND_FLOAT;
    int k = number->operand, choices = is_float ? 3 : 2;
    number->least = 1;
    for (int i = 0; i < choices && op->op != OP_pow; i++) {
        const double *range = is_float ? limit[i] : whole[i];
        if (range[0] < 0 && !takes(trace, op, k, 0)) continue;
        if (!takes(trace, op, k, range[0]) || !takes(trace, op, k, range[1])) continue;
        number->least = range[0], number->most = range[1];
        return;
    }
}

static void note_numbers(Trace *trace, TraceOp *op) {
    op->number = NULL; /* those of the trace that it was repeated from */
    op->number_words = 0;
    for (int k = 0; k < op->operand_count; k++) {
        const TraceOperand *operand = &op->input[k];
        if (!operand_is_argument(operand)) continue;
        TraceNumber number = {(uint8_t)k, (uint8_t)operand->kind, .argument = operand->value};
        if (k >= op->input_count) {
            const Param *param = op_varying(op->op, k - op->input_count);
            number.is_attribute = true;
            number.says_kind = param->type == PARAM_NUMBER;
            number.word = (uint8_t)(param->word + number.says_kind);
            op->number_words |= UINT64_C(1) << number.word;
            if (number.says_kind) op->number_words |= UINT64_C(1) << param->word;
        }
        find_limits(trace, op, &number);
        push(trace->arena, op->number, number);
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

void trace_make_lines(Trace *trace) {
    int count = length(trace->op);
    TraceLine *line = arena_zalloc(trace->arena, sizeof *line * (size_t)(count + 1));
    for (int i = 0; i <= count; i++) {
        bool fits = i < count && line_fits(trace, &trace->op[i], &line[i]);
        if (!fits) line[i].what = LINE_IS_OTHER;
        if (i < count) note_numbers(trace, &trace->op[i]);
    }
    trace->line = line;
    trace->serial = serial_next();
}

/* ---- comparing ------------------------------------------------------------------------------ */

#define LIKELY(condition) __builtin_expect(!!(condition), 1)

const TraceLine no_line = {.what = LINE_IS_OTHER};

/* Behind an op that was met, or as a call begins: nothing but the trace decides what comes, but for
 * pointers. Where those have gone out, each op is asked whether it meets what they lead to. */
void call_expect_next(Call *call) {
    call->next = call->exposed.count ? &no_line : &call->trace->line[call->at];
}

/* What is left of segments decides nothing: none of it is among the values of this one. */
static bool only_matches(const Call *call) {
    return call->mode == CALL_REPLAYS && !call->refused && !call->exposed.count &&
           !call->tracer.disabled && !call->stale && call->next == &call->trace->line[call->at];
}

/* 0 where the line is of such an op, besides its numbers. */
static inline uint32_t differences(const Call *call, const TraceLine *line, int op,
                                   int input_count) {
    return line->what ^ line_key(op, input_count, call_quiet(call));
}

/* The line that the call stands at. */
static inline const TraceLine *next_line(const Call *call) {
    const TraceLine *line = call->next;
    if (POISONS && line != &no_line && !only_matches(call))
        abort(); /* somebody changed what decides, and did not say so */
    return line;
}

/* The line is of this op; plain: and its result no view of what the call was given. */
static inline bool is_of(const Call *call, const TraceLine *line, int op, int input_count,
                         bool plain) {
    uint32_t differs = differences(call, line, op, input_count);
    return LIKELY(!(plain ? differs : differs & ~LINE_IS_SHARED));
}

/* A tensor that the call has met, or a number of the trace. handles: tensors come as such. */
static inline bool is_operand(const Call *call, const TraceLine *line, int i, cb_operand given,
                              bool handles) {
    if (line->kind[i] != given.kind) return false;
    int64_t known = line->operand[i];
    if (given.kind == CB_OPERAND_TENSOR && !handles)
        return given.tensor && call->value[known] == given.tensor;
    if (given.kind == CB_OPERAND_TENSOR) known = (int64_t)call->tracer.handle[known];
    return known == given.i;
}

static inline bool are_operands(const Call *call, const TraceLine *line, const cb_operand *input,
                                int input_count, const Attrs *attrs, bool handles) {
    for (int i = 0; i < input_count; i++)
        if (!is_operand(call, line, i, input[i], handles)) return false;
    for (int i = 0; i < line->word_count; i++)
        if (line->word[i] != attrs->word[i]) return false;
    return true;
}

static inline void step_on(Call *call, const TraceLine *line) {
    call->next = line + 1;
    call->at++;
}

/* Apart, so that no register is saved for it by those that have their seats. */
static __attribute__((noinline)) cb_tensor *take_new(Call *call, const TraceLine *line) {
    Tensor *x = call_shell(call, line->result);
    if (x) step_on(call, line);
    return tensor_out(x);
}

/* The handle of the line's result; NULL: no memory. */
static inline cb_tensor *take_line(Call *call, const TraceLine *line, bool plain) {
    int v = line->result;
    Tensor *x = call->tracer.seat[v];
    if (!x) return take_new(call, line);
    seat_begin(&thread_state, x, line->traits, &call->tracer);
    if (!plain && line->root != NO_VALUE)
        x->offset = line->offset + call->value[line->root]->offset;
    cb_tensor *handle = tensor_out(x);
    call->value[v] = x;
    call->tracer.handle[v] = (uintptr_t)handle;
    call->tracer.alive++;
    step_on(call, line);
    return handle;
}

Tensor *call_meets_line(Call *call, Op op, const cb_operand *input, int input_count,
                        const Attrs *attrs) {
    const TraceLine *line = next_line(call);
    if (!is_of(call, line, op, input_count, false) ||
        !are_operands(call, line, input, input_count, attrs, false))
        return NULL;
    int v = line->result;
    return take_line(call, line, false) ? call->value[v] : NULL;
}

/* The tensor of a handle that is no shell of an earlier segment; NULL: it is something else. */
static inline Tensor *find_plain(const Call *call, cb_operand given) {
    Tensor *x;
    bool lives = given.kind == CB_OPERAND_TENSOR && handle_lives(given.tensor, &x);
    return lives && x->trace != call->left_serial ? x : NULL;
}

static bool is_captured(Call *call, const TraceLine *line, int k, cb_operand given) {
    Tensor *x = find_plain(call, given);
    return x && call_traced(call, x) == NO_VALUE && match_real(call, (int)line->operand[k], x);
}

/* Attributes and numbers are those of the trace, or such as may be there. */
static inline bool meets_numbers(Call *call, const TraceLine *line, const TraceOp *op,
                                 const cb_operand *input, const Attrs *attrs) {
    for (int i = 0; i < line->word_count; i++)
        if (line->word[i] != attrs->word[i] && !(op->number_words >> i & 1)) return false;
    return match_numbers(call, op, input, attrs);
}

/* The same for a view that begins where an argument says, of what the trace has there. */
static __attribute__((noinline)) bool meets_start(Call *call, const TraceLine *line,
                                                  const TraceOp *op, const cb_operand *input,
                                                  const Attrs *attrs) {
    const Meta *meta = &call->trace->value[op->input[0].value].meta;
    Attrs normal;
    attrs_copy(&normal, attrs, op->op);
    return view_normalize(op->op, meta, &normal) && meets_numbers(call, line, op, input, &normal);
}

/* What varies is as it may be. */
static inline bool meets_varying(Call *call, const TraceLine *line, const cb_operand *input,
                                 int input_count, const Attrs *attrs) {
    const TraceOp *op = &call->trace->op[call->at];
    for (int k = 0; k < input_count; k++) {
        if (line->kind[k] == LINE_ARGUMENT) continue;
        if (!(line->kind[k] == LINE_CAPTURED ? is_captured(call, line, k, input[k])
                                             : is_operand(call, line, k, input[k], true)))
            return false;
    }
    return op->called && op->varies ? meets_start(call, line, op, input, attrs)
                                    : meets_numbers(call, line, op, input, attrs);
}

/* The handle of the line's result, which may begin where arguments say; NULL: no memory. */
static cb_tensor *take_varying(Call *call, const TraceLine *line) {
    int v = line->result;
    const TraceValue *value = &call->trace->value[v];
    cb_tensor *handle = take_line(call, line, false);
    if (!handle || !value->shift) return handle;
    int64_t from = line->root == NO_VALUE ? 0 : call->value[line->root]->offset;
    call->value[v]->offset = from + trace_offset(value, call->argument);
    return handle;
}

/* The call is where the tracer's function called it: no jump has left that, and no autocast has
 * operands converted. */
static inline bool is_inside(void) {
    const ThreadState *t = &thread_state;
    return LIKELY(frame_lives(t->frame, stack_here()) && t->autocast.lower == AUTOCAST_OFF);
}

/* An op that has no line is the next one, and nothing but the trace decides. */
static bool meets_other(Call *call, Op op, const cb_operand *input, int input_count,
                        const Attrs *attrs) {
    cb_operand known[TRACE_OPERANDS];
    for (int i = 0; i < input_count; i++) {
        known[i] = input[i];
        if (input[i].kind != CB_OPERAND_TENSOR) continue;
        known[i].tensor = find_plain(call, input[i]);
        if (!known[i].tensor) return false;
    }
    if (!match_here(call, op, known, input_count, attrs)) return false;
    call_expect_next(call);
    return true;
}

/* What the trace's target and value fit in their sizes, these do. */
bool call_expects_assign(Tracer *tracer, cb_operand target, cb_operand value) {
    Call *call = call_of(tracer);
    const cb_operand input[] = {target, value};
    return is_inside() && call->next != &no_line && value.kind == CB_OPERAND_TENSOR &&
           meets_other(call, OP_assign, input, 2, NULL);
}

/* The line that the call stands at, where it is inside. */
static inline const TraceLine *line_inside(const Call *call) {
    return is_inside() ? next_line(call) : &no_line;
}

/* Not what the line says as it stands. */
static __attribute__((noinline)) cb_tensor *expects_varying(Call *call, const TraceLine *line,
                                                            Op op, cb_operand *input,
                                                            int input_count, const Attrs *attrs) {
    uint32_t differs = differences(call, line, op, input_count);
    if ((differs & ~LINE_IS_SHARED) == LINE_VARIES &&
        meets_varying(call, line, input, input_count, attrs))
        return take_varying(call, line);
    if (line->what == LINE_IS_OTHER && line != &no_line &&
        meets_other(call, op, input, input_count, attrs))
        return tensor_out(call_shell(call, call->trace->op[call->at - 1].result));
    return apply_unexpected(op, input, input_count, attrs);
}

cb_tensor *call_expects(Tracer *tracer, Op op, cb_operand *input, int input_count,
                        const Attrs *attrs) {
    Call *call = call_of(tracer);
    const TraceLine *line = line_inside(call);
    if (is_of(call, line, op, input_count, false) &&
        are_operands(call, line, input, input_count, attrs, true))
        return take_line(call, line, false);
    return expects_varying(call, line, op, input, input_count, attrs);
}

/* Apart, so that the operands of others stay in registers. */
static __attribute__((noinline)) cb_tensor *two_varying(cb_operand a, cb_operand b, int op,
                                                        Call *call) {
    cb_operand input[] = {a, b};
    return expects_varying(call, line_inside(call), (Op)op, input, 2, &attrs_none);
}

cb_tensor *call_expects_two(cb_operand a, cb_operand b, int op, Tracer *tracer) {
    Call *call = call_of(tracer);
    const TraceLine *line = line_inside(call);
    if (is_of(call, line, op, 2, true) && is_operand(call, line, 0, a, true) &&
        is_operand(call, line, 1, b, true))
        return take_line(call, line, true);
    return two_varying(a, b, op, call);
}
