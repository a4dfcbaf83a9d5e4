/* Lines of a trace: what a replay compares most ops with.
 *
 * An op of the trace is some 200 bytes and its result as many, so a function of a thousand ops is
 * compared with more memory than the first cache has. A line is what an op is mostly told by, in
 * the order of the calls: the op, three operands, where its attributes are, and its result.
 *
 *     %3 = mul(%1, 0.5)      {mul, 2 operands} {value 1} {0.5} -> value 3, like value 1
 *
 * A line that differs says nothing: the op of the trace is asked then (replay.c). */
#include "capture/function.h"

uint64_t trace_traits(const TraceValue *value, int number) {
    Tensor x = {.dtype = value->meta.dtype, .rank = value->meta.rank, .number = number};
    x.device = value->meta.device;
    return x.traits;
}

static bool operand_fits(const TraceOperand *operand, TraceLine *line, int k) {
    if (operand->kind == OPERAND_ABSENT || operand_is_argument(operand)) return false;
    line->kind[k] = operand->kind;
    line->operand[k] = operand->kind == OPERAND_VALUE ? operand->value : operand->bits;
    return true;
}

static bool line_fits(const Trace *trace, const TraceOp *op, TraceLine *line) {
    bool fits = op->input_count <= LINE_OPERANDS && op->result >= 0 && !op->makes && !op->varies &&
                !op->back;
    for (int k = 0; fits && k < op->input_count; k++) fits = operand_fits(&op->input[k], line, k);
    if (!fits) return false;
    const TraceValue *value = &trace->value[op->result];
    line->what = line_key(op->op, op->input_count, op->quiet);
    line->word_count = op->word_count;
    line->word = op->word;
    line->traits = trace_traits(value, op->result);
    line->root = trace->value[value->root].kind == VALUE_IS_RESULT ? NO_VALUE : value->root;
    line->offset = value->offset;
    return true;
}

void trace_make_lines(Trace *trace) {
    int count = length(trace->op);
    TraceLine *line = arena_zalloc(trace->arena, sizeof *line * (size_t)(count + 1));
    for (int i = 0; i <= count; i++)
        if (i == count || !line_fits(trace, &trace->op[i], &line[i])) line[i].what = LINE_IS_OTHER;
    trace->line = line;
    trace->serial = serial_next();
}

/* The line that the call stands at, when it is of this op: on tensors that the call has met, and
 * numbers of the trace. */
static inline const TraceLine *find_line(const Call *call, int op, const cb_operand *input,
                                         int input_count, const Attrs *attrs, bool handles) {
    const TraceLine *line = &call->trace->line[call->at];
    if (line->what != line_key(op, input_count, call_is_quiet(call))) return NULL;
    for (int i = 0; i < input_count; i++) {
        if (line->kind[i] != input[i].kind) return NULL;
        if (input[i].kind == CB_OPERAND_TENSOR) {
            const Tensor *x = call->value[line->operand[i]];
            if (!x || (handles ? tensor_out(x) : x) != input[i].tensor) return NULL;
        } else if (line->operand[i] != input[i].i) {
            return NULL;
        }
    }
    for (int i = 0; i < line->word_count; i++)
        if (line->word[i] != attrs->word[i]) return NULL;
    return line;
}

static inline int result_of(const TraceLine *line) { return (int)(line->traits >> 32); }

static inline Tensor *take_line(Call *call, const TraceLine *line) {
    int v = result_of(line);
    Tensor *x = call->tracer.seat ? call->tracer.seat[v] : NULL;
    if (!x) {
        x = call_shell(call, v);
        if (x) call->at++;
        return x;
    }
    call->tracer.seat[v] = NULL;
    seat_begin(&thread_state, x, line->traits, call->tracer.serial);
    if (line->root != NO_VALUE) x->offset = line->offset + call->value[line->root]->offset;
    call->value[v] = x;
    call->tracer.alive++;
    call->at++;
    return x;
}

/* Nothing but the trace decides what an op is. */
static inline bool only_matches(const Call *call) {
    return call->mode == CALL_REPLAYS && !call->left && !call->exposed_count && !call->refused &&
           !call->tracer.disabled && !call->stale;
}

Tensor *call_meets_line(Call *call, Op op, const cb_operand *input, int input_count,
                        const Attrs *attrs) {
    if (!only_matches(call)) return NULL;
    const TraceLine *line = find_line(call, op, input, input_count, attrs, false);
    return line ? take_line(call, line) : NULL;
}

cb_tensor *call_expects(Tracer *tracer, Op op, const cb_operand *input, int input_count,
                        const Attrs *attrs) {
    Call *call = call_of(tracer);
    const Frame *frame = thread_state.frame;
    if (!frame || !frame_lives(frame, stack_here())) return NULL; /* a jump has left it */
    if (thread_state.autocast.lower != AUTOCAST_OFF || !only_matches(call)) return NULL;
    const TraceLine *line = find_line(call, op, input, input_count, attrs, true);
    return line ? tensor_out(take_line(call, line)) : NULL;
}
