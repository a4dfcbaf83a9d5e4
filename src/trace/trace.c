/* The flat trace of a run: building and comparing it; run.c runs it op by op.
 *
 * Invariant: operands name values that exist before their op, so a walk in order finds all of
 * them. */
#include "trace/trace.h"

#include "graph/node.h"
#include "op/custom.h"
#include <string.h>

Trace *trace_new(void) {
    Arena *arena = arena_new();
    if (!arena) return NULL;
    Trace *trace = arena_zalloc(arena, sizeof *trace); /* the first chunk has room for it */
    trace->arena = arena;
    atomic_init(&trace->references, 1);
    return trace;
}

Trace *trace_retain(Trace *trace) {
    atomic_fetch_add(&trace->references, 1);
    return trace;
}

void trace_release(Trace *trace) {
    if (!trace || atomic_fetch_sub(&trace->references, 1) > 1) return;
    for (int i = 0; i < length(trace->object); i++)
        if (trace->object[i].tomb) tomb_drop(trace->object[i].tomb);
    arena_free(trace->arena);
}

int trace_result_count(const Trace *trace) {
    return length(trace->output) + length(trace->escaped);
}

int trace_result(const Trace *trace, int k) {
    int outputs = length(trace->output);
    return k < outputs ? trace->output[k] : trace->escaped[k - outputs];
}

TraceOperand trace_number(const cb_operand *operand) {
    return (TraceOperand){operand->kind, NO_ARGUMENT, operand->i};
}

static int64_t bits_of(const TraceOperand *number, const int64_t *argument) {
    return operand_is_argument(number) ? argument[number->value] : number->bits;
}

cb_operand trace_operand_number(const TraceOperand *operand, const int64_t *argument) {
    return (cb_operand){.kind = operand->kind, .i = bits_of(operand, argument)};
}

/* ---- attributes ---------------------------------------------------------------------------- */

void trace_attrs(const TraceOp *op, const int64_t *argument, Attrs *attrs) {
    if (op->word_count) memcpy(attrs->word, op->word, sizeof(int64_t) * op->word_count);
    for (int k = op->input_count; op->varies && k < op->operand_count; k++) {
        const Param *param = op_varying(op->op, k - op->input_count);
        if (!operand_is_argument(&op->input[k])) continue;
        if (!argument && param->varies == VARIES_START) attrs->word[param->word] = 0;
        if (!argument) continue;
        cb_operand number = trace_operand_number(&op->input[k], argument);
        if (param->type == PARAM_NUMBER)
            attr_set_number(attrs, param->word, number);
        else
            attrs->word[param->word] = number.i; /* or the bits of a float */
    }
    view_from_normal(op->op, attrs);
}

int64_t trace_offset(const TraceValue *value, const int64_t *argument) {
    int64_t offset = value->offset;
    for (const TraceShift *shift = value->shift; shift; shift = shift->next)
        offset += argument[shift->argument] * shift->stride;
    return offset;
}

/* The operand that has it, or NULL. */
static const TraceOperand *operand_of_word(const TraceOp *op, int word) {
    for (int k = op->input_count; k < op->operand_count; k++) {
        const Param *param = op_varying(op->op, k - op->input_count);
        if (word >= param->word && word < param->word + param_words(param)) return &op->input[k];
    }
    return NULL;
}

bool trace_word_varies(const TraceOp *op, int word) { return operand_of_word(op, word); }

bool trace_word_is_argument(const TraceOp *op, int word) {
    const TraceOperand *operand = operand_of_word(op, word);
    return operand && operand_is_argument(operand);
}

/* What conversion on the way to the target's dtype does is the same at run time. */
static bool may_be_assigned(const Trace *trace, const TraceOp *op, const cb_operand *number) {
    cb_dtype target = trace->value[op->input[0].value].meta.dtype;
    if (dtype_is_half(target)) return false;
    return dtype_is_float(target) || !dtype_is_float(number_dtype(number));
}

/* What the op's tensors promote to. */
static cb_dtype promoted(const Trace *trace, const TraceOp *op) {
    Meta input[OP_MAX_INPUTS];
    int count = 0;
    for (int i = 0; i < op->input_count; i++)
        if (op->input[i].kind == OPERAND_VALUE)
            input[count++] = trace->value[op->input[i].value].meta;
    return metas_promoted(input, count);
}

bool trace_may_vary(const Trace *trace, const TraceOp *op, int k, const cb_operand *number,
                    const Attrs *attrs) {
    if (op->op == OP_assign) return may_be_assigned(trace, op, number);
    if (op->op == OP_pow) return pow_may_vary(k, number);
    if (k < op->input_count) return number_may_vary(op->op, number, false);
    const Param *param = op_varying(op->op, k - op->input_count);
    if (param->varies == VARIES_START) return view_reach(op->op, op->word).count > 0;
    return attr_may_vary(op->op, param, attrs, promoted(trace, op));
}

/* ---- comparison ---------------------------------------------------------------------------- */

static bool same_back(const TraceBack *a, const TraceBack *b) {
    if (!a || !b) return a == b;
    return a->leaves == b->leaves && a->graph == b->graph && a->count == b->count &&
           !memcmp(a->wrt, b->wrt, sizeof *a->wrt * (size_t)a->count);
}

bool trace_alike_op(const TraceOp *a, const TraceOp *b) {
    if (a->op != b->op || a->input_count != b->input_count || a->result != b->result) return false;
    for (int i = 0; i < a->operand_count; i++) {
        const TraceOperand *p = &a->input[i], *q = &b->input[i];
        if (p->kind != q->kind || (!operand_is_number(p) && p->value != q->value)) return false;
    }
    if (a->quiet != b->quiet || !same_back(a->back, b->back)) return false;
    for (int i = 0; i < a->word_count; i++)
        if (a->word[i] != b->word[i] && !trace_word_varies(a, i)) return false;
    return true;
}

/* Two ops that are alike, in their k-th operand. */
typedef struct NumberPair {
    const Trace *trace; /* of the first one */
    const TraceOp *op, *other;
    int k;
} NumberPair;

typedef bool SameNumber(const NumberPair *pair, const int64_t *argument);

static bool is_same(const NumberPair *pair, const int64_t *argument) {
    (void)argument;
    const TraceOperand *a = &pair->op->input[pair->k], *b = &pair->other->input[pair->k];
    return a->value == b->value && a->bits == b->bits;
}

/* a with its argument may stand where b is. */
static bool fits(const NumberPair *pair, const int64_t *argument) {
    const TraceOperand *a = &pair->op->input[pair->k], *b = &pair->other->input[pair->k];
    if (!operand_is_argument(b)) return bits_of(a, argument) == b->bits;
    if (operand_is_argument(a)) return true;
    Attrs attrs;
    cb_operand number = trace_operand_number(a, argument);
    trace_attrs(pair->op, argument, &attrs);
    return trace_may_vary(pair->trace, pair->op, pair->k, &number, &attrs);
}

/* Whatever a's argument is, it may stand where b is. */
static bool is_covered(const NumberPair *pair, const int64_t *argument) {
    const TraceOperand *a = &pair->op->input[pair->k], *b = &pair->other->input[pair->k];
    return operand_is_argument(a) ? operand_is_argument(b) : fits(pair, argument);
}

static bool numbers_hold(const Trace *a, const Trace *b, int count, SameNumber *holds,
                         const int64_t *argument) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < a->op[i].operand_count; k++) {
            NumberPair pair = {a, &a->op[i], &b->op[i], k};
            if (operand_is_number(&a->op[i].input[k]) && !holds(&pair, argument)) return false;
        }
    return true;
}

/* Dtype, sizes, strides and device. Where a view begins follows from its op. */
static bool same_layout(const TraceValue *a, const TraceValue *b) {
    size_t bytes = sizeof(int64_t) * a->meta.rank;
    return a->meta.dtype == b->meta.dtype && a->meta.rank == b->meta.rank &&
           a->meta.device == b->meta.device && !memcmp(a->meta.size, b->meta.size, bytes) &&
           !memcmp(a->stride, b->stride, bytes);
}

static bool same_value(const TraceValue *a, const TraceValue *b) {
    return a->kind == b->kind && a->root == b->root && a->tracked == b->tracked &&
           a->foreign == b->foreign && a->asked == b->asked && a->required == b->required &&
           same_layout(a, b);
}

int trace_back_results(const TraceBack *back) {
    int count = 0;
    for (int k = 0; k < back->count; k++) count += back->wrt[k] >= 0;
    return count;
}

int trace_op_results(const TraceOp *op) {
    return op->back ? trace_back_results(op->back) : op->result >= 0;
}

const TraceOp *trace_maker(const Trace *trace, int value) {
    for (int i = length(trace->op) - 1; i >= 0; i--)
        if (!trace->op[i].back && trace->op[i].result == value) return &trace->op[i];
    return NULL;
}

bool trace_is_gradient(const Trace *trace, int v) {
    for (int i = 0; i < length(trace->leaf); i++)
        if (trace->leaf[i].before == v) return true;
    return false;
}

bool trace_has_history(const Trace *trace, int v, int count) {
    const TraceValue *value = &trace->value[v];
    bool gone = value->gone_back && value->gone_back <= count;
    return value->kind == VALUE_IS_RESULT && value->tracked && !gone;
}

void trace_mark_tracked(const Trace *trace, int count, bool *from) {
    for (int i = 0; i < count; i++) {
        const TraceOp *op = &trace->op[i];
        bool any = false;
        for (int k = 0; k < op->input_count; k++)
            any |= op->input[k].kind == OPERAND_VALUE && from[op->input[k].value];
        for (int k = 0; k < trace_op_results(op) && any; k++)
            from[op->result + k] |= trace->value[op->result + k].tracked;
    }
}

bool trace_reads(const TraceOp *op, int k) {
    Attrs attrs = {{0}};
    if (op->input[k].kind != OPERAND_VALUE) return false;
    trace_attrs(op, NULL, &attrs);
    return !norm_moves(op->op, &attrs, k);
}

void trace_mark_followed(const Trace *trace, bool *followed, bool *counts) {
    for (int i = length(trace->op) - 1; i >= 0; i--) {
        const TraceOp *op = &trace->op[i];
        followed[i] = op->op == OP_assign && counts[trace->value[op->input[0].value].root];
        for (int k = 0; k < trace_op_results(op); k++)
            followed[i] |= counts[trace->value[op->result + k].root];
        for (int k = 0; k < op->input_count && followed[i]; k++)
            if (trace_reads(op, k)) counts[trace->value[op->input[k].value].root] = true;
    }
}

static bool *find_reached(const Trace *trace, int root) {
    bool *reached = arena_new_array(trace->arena, bool, length(trace->value) + 1);
    reached[root] = true;
    for (int i = length(trace->op) - 1; i >= 0; i--) {
        const TraceOp *op = &trace->op[i];
        bool any = false;
        if (op->back && !op->back->graph) continue;
        for (int k = 0; k < trace_op_results(op); k++) any |= reached[op->result + k];
        if (!any) continue;
        for (int k = 0; k < op->input_count; k++)
            if (op->input[k].kind == OPERAND_VALUE) reached[op->input[k].value] = true;
    }
    return reached;
}

void trace_goes_back(Trace *trace, int root) {
    const bool *reached = find_reached(trace, root);
    int count = length(trace->op) + 1; /* this one is one of them */
    for (int v = 0; v < length(trace->value); v++)
        if (reached[v] && trace->value[v].tracked && !trace->value[v].gone_back)
            trace->value[v].gone_back = count;
}

int trace_values_after(const Trace *trace, int count) {
    int values = 0;
    if (count) {
        const TraceOp *last = &trace->op[count - 1];
        int results = trace_op_results(last);
        if (results) return last->result + results;
        values = last->first_value;
        for (int i = 0; i < last->input_count; i++)
            if (last->input[i].kind == OPERAND_VALUE && last->input[i].value >= values)
                values = last->input[i].value + 1;
        for (int k = 0; last->back && k < last->back->count; k++)
            if (trace_back_value(last->back, k) >= values)
                values = trace_back_value(last->back, k) + 1;
        return values;
    }
    while (values < length(trace->value) && trace->value[values].kind == VALUE_IS_INPUT) values++;
    return values;
}

void trace_say_again(Trace *trace, const TraceAgain *again) {
    if (!again->text || arena_guard(trace->arena)) return;
    const char *text = arena_text(trace->arena, again->text);
    trace->again = (TraceAgain){again->reason, again->site, text};
}

bool trace_alike(const Trace *a, const Trace *b, int count) {
    if (length(a->op) < count || length(b->op) < count) return false;
    int values = trace_values_after(a, count); /* first: of hundreds of lengths, inputs differ */
    if (values > length(b->value)) return false;
    for (int v = 0; v < values; v++)
        if (!same_value(&a->value[v], &b->value[v])) return false;
    for (int i = 0; i < count; i++)
        if (!trace_alike_op(&a->op[i], &b->op[i])) return false;
    return true;
}

static bool same_list(const int *a, const int *b) {
    if (length(a) != length(b)) return false;
    return !length(a) || !memcmp(a, b, sizeof *a * (size_t)length(a));
}

bool trace_repeats(const Trace *done, const int64_t *argument, int count, const Trace *as) {
    return trace_alike(done, as, count) && numbers_hold(done, as, count, fits, argument);
}

void trace_arguments(const Trace *done, const int64_t *argument, int count, const Trace *as,
                     int64_t *out) {
    for (int i = 0; as->argument_count && i < count; i++)
        for (int k = 0; k < as->op[i].operand_count; k++)
            if (operand_is_argument(&as->op[i].input[k]))
                out[as->op[i].input[k].value] = bits_of(&done->op[i].input[k], argument);
}

/* From the first op to the end, with what is only returned. */
static bool alike_whole(const Trace *a, const Trace *b) {
    bool alike = a->goes_on == b->goes_on && a->cut == b->cut && length(a->op) == length(b->op) &&
                 length(a->value) == length(b->value) && same_list(a->output, b->output) &&
                 trace_alike(a, b, length(a->op));
    for (int v = 0; alike && v < length(a->value); v++)
        alike = same_value(&a->value[v], &b->value[v]);
    return alike;
}

static bool same_leaves(const TraceLeaf *a, const TraceLeaf *b) {
    size_t bytes = sizeof *a * (size_t)length(a);
    return length(a) == length(b) && (!bytes || !memcmp(a, b, bytes));
}

static bool same_answers(const TraceAnswer *a, const TraceAnswer *b) {
    size_t bytes = sizeof *a * (size_t)length(a);
    return length(a) == length(b) && (!bytes || !memcmp(a, b, bytes));
}

bool trace_same(const Trace *a, const Trace *b) {
    return alike_whole(a, b) && same_list(a->escaped, b->escaped) &&
           same_list(a->leads, b->leads) && same_leaves(a->leaf, b->leaf) &&
           same_answers(a->answer, b->answer) && numbers_hold(a, b, length(a->op), is_same, NULL);
}

bool trace_covers(const Trace *trace, const Trace *other) {
    return alike_whole(other, trace) &&
           (trace->goes_on || same_list(trace->escaped, other->escaped)) &&
           numbers_hold(other, trace, length(trace->op), is_covered, NULL);
}

static void mix(uint64_t key[2], uint64_t word) {
    for (int i = 0; i < 2; i++) key[i] = hash_mix(key[i] + (uint64_t)i, word);
}

static void liken(Trace *trace, uint64_t word) { mix(trace->likeness, word); }

static void liken_op(Trace *trace, const TraceOp *op) {
    liken(trace, (uint64_t)op->op << 32 | op->input_count);
    liken(trace, (uint64_t)op->result);
    for (int i = 0; i < op->input_count; i++) {
        const TraceOperand *operand = &op->input[i];
        liken(trace, (uint64_t)operand->kind);
        liken(trace, operand_is_number(operand) ? 0 : (uint64_t)operand->value);
    }
    const TraceBack *back = op->back;
    liken(trace, back ? (uint64_t)back->count << 2 | (uint64_t)back->leaves << 1 | back->graph : 0);
    for (int i = 0; back && i < back->count; i++) liken(trace, (uint64_t)back->wrt[i]);
    const OpInfo *info = op_info(op->op);
    for (int i = 0; i < info->param_count && op->word_count; i++)
        if (info->param[i].type == PARAM_FLOAT && info->param[i].word >= 0)
            mix(trace->floats, (uint64_t)op->word[info->param[i].word]);
    for (int w = 0; w < op->word_count; w++) mix(trace->sizes, (uint64_t)op->word[w]);
}

void trace_make_likeness(Trace *trace) {
    memset(trace->likeness, 0, sizeof trace->likeness);
    memset(trace->floats, 0, sizeof trace->floats);
    memset(trace->sizes, 0, sizeof trace->sizes);
    liken(trace, (uint64_t)length(trace->op));
    for (int i = 0; i < length(trace->op); i++) liken_op(trace, &trace->op[i]);
    for (int v = 0; v < length(trace->value); v++) {
        const Meta *meta = &trace->value[v].meta;
        liken(trace, meta->dtype);
        mix(trace->floats, meta->rank);
        for (int d = 0; d < meta->rank; d++) mix(trace->sizes, (uint64_t)meta->size[d]);
    }
}

static bool same_key(const uint64_t a[2], const uint64_t b[2]) {
    return a[0] == b[0] && a[1] == b[1];
}

bool trace_resembles(const Trace *a, const Trace *b) { return same_key(a->likeness, b->likeness); }

bool trace_resized(const Trace *a, const Trace *b) {
    return trace_resembles(a, b) && same_key(a->floats, b->floats) && !same_key(a->sizes, b->sizes);
}

/* ---- what an op does besides ----------------------------------------------------------------- */

bool trace_has_effects(const TraceOp *op) {
    Attrs attrs = {{0}};
    if (op->op != OP_custom) return false;
    trace_attrs(op, NULL, &attrs);
    return custom_of(&attrs)->effects;
}

bool trace_has_backward(const Trace *trace, int count) {
    bool has = false;
    for (int i = 0; i < count && !has; i++) has = trace->op[i].back;
    return has;
}

bool trace_computes(const Trace *trace, int v) {
    return trace->value[trace->value[v].root].kind == VALUE_IS_RESULT;
}

int trace_written_by(const Trace *trace, int op) {
    if (trace->op[op].op != OP_assign) return NO_VALUE;
    int root = trace->value[trace->op[op].input[0].value].root;
    return trace->value[root].kind == VALUE_IS_RESULT ? NO_VALUE : root;
}

int trace_op_draws(const TraceOp *op, const int64_t *argument) {
    Attrs attrs = {{0}};
    if (op->op == OP_assign || op->back || !op_may_draw(op->op)) return 0;
    trace_attrs(op, argument, &attrs);
    return op_draws(op->op, &attrs);
}

int trace_draws(const Trace *trace, int count, const int64_t *argument) {
    int draws = 0;
    for (int i = 0; i < count; i++) draws += trace_op_draws(&trace->op[i], argument);
    return draws;
}
