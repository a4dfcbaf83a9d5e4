/* The tracer while something new happens: every op extends the trace and the graph.
 *
 * In: op calls of the user's function. Out: shells for their results, and call->recording.
 * Memory that runs out here ends the recording, not the program: what was traced so far is run
 * eagerly and so is the rest (call_break). */
#include "capture/joint.h"

#include "base/memory.h"
#include "eager/tape.h"
#include "nn/module.h"
#include "op/custom.h"
#include "tensor/place.h"
#include <string.h>

enum { OUT_OF_MEMORY = -2, WRITES_REPEATED = -3, LIES_ELSEWHERE = -4 };
enum { FOLLOWS_FOREIGN = -5, WRITES_RESULT = -6 }; /* call->outside says which value */

void record_free(Recording *recording) {
    if (!recording) return;
    trace_release(recording->trace);
    if (recording->graph) arena_free(recording->graph->arena);
    memory_free(recording);
}

Recording *recording_new(const Call *call) {
    Recording *recording = memory_zalloc(sizeof *recording);
    Arena *arena = recording ? arena_new() : NULL;
    if (arena) {
        recording->graph = graph_new(arena); /* the first chunk has room for it */
        recording->graph->ambient = call->ambient;
        recording->place = PLACE_NOWHERE;
        recording->tracks = call->grad;
        recording->joins = joint_wanted(call->function);
        recording->trace = trace_new();
        if (recording->trace && functional_reserve(recording, sizes_find_known(call)))
            return recording;
    }
    record_free(recording);
    return NULL;
}

/* ---- operands ------------------------------------------------------------------------------ */

/* In the module that was compiled, in the trace's arena. */
static const char *path_of(const Call *call, const Tensor *x) {
    const Function *function = call->function;
    if (function->callee != CALLEE_MODULE) return NULL;
    Buffer path = buffer_new(call->recording->trace->arena);
    bool found = module_path_of_tensor(function->target.module, x, &path);
    return found ? buffer_text(&path) : NULL;
}

/* The number of a real tensor: an input, a captured tensor that was met before, or a new one. */
static int real_value(Call *call, Tensor *x) {
    Recording *recording = call->recording;
    for (int i = 0; i < call->input_count && !call->function->options.fullgraph; i++)
        if (same_tensor(call->value[i], x)) return i;
    for (int k = 0; k < length(recording->captured); k++) {
        int known = recording->captured[k];
        if (known != NO_VALUE && same_tensor(call->value[known], x)) return known;
    }
    int v = length(recording->trace->value);
    if (!call_bind(call, v, x)) return OUT_OF_MEMORY;
    functional_add(recording, VALUE_IS_CAPTURED, x);
    recording->trace->value[v].path = path_of(call, x);
    recording->trace->value[v].handle = tensor_out(x);
    recording->trace->value[v].own = !call->resumed && frame_holds(&call->frame, x);
    return v;
}

int record_value(Call *call, Tensor *x) {
    int v = call_traced(call, x);
    if (v != NO_VALUE) return v < call->input_count ? input_first(call->value, v) : v;
    if (x->storage) {
        if (RECORD_GUARD(call->recording)) return OUT_OF_MEMORY;
        return real_value(call, x);
    }
    fail(CB_ERR_GRAPH, "a tensor that another trace left behind has no value");
    return NO_VALUE;
}

/* False with *why telling it: NO_VALUE (an error is recorded), or what goes_eager takes. */
static bool resolve(Call *call, const cb_operand *given, TraceOperand *out, int *why) {
    if (given->kind != CB_OPERAND_TENSOR) {
        *out = trace_number(given);
        return true;
    }
    *out = (TraceOperand){.kind = OPERAND_ABSENT};
    if (!given->tensor) return true;
    int v = record_value(call, given->tensor);
    if (v < 0) *why = v;
    *out = (TraceOperand){.kind = OPERAND_VALUE, .value = v};
    return v >= 0;
}

/* ---- ops ----------------------------------------------------------------------------------- */

typedef struct Where { /* an op is recorded */
    Site site;
    ModuleMode mode;
    char path[PLACE_BYTES]; /* of site, when the thread knows it by its place */
} Where;

static void find_where(Where *where) {
    where->site = site_current();
    where->site.checkpoint = checkpoint_traced();
    where->mode = module_mode();
    where->path[0] = '\0';
    const Place *place = place_current();
    if (where->site.path || !place) return;
    place->write(place, where->path, sizeof where->path);
    where->site.path = where->path;
}

/* The site with its path in the trace's arena, once for all ops of a layer. */
static Site keep_site(Trace *trace, Site site) {
    if (!site.path || !*site.path) {
        site.path = NULL;
        return site;
    }
    const char *last = length(trace->op) ? trace->op[length(trace->op) - 1].site.path : NULL;
    site.path = last && !strcmp(last, site.path) ? last : arena_text(trace->arena, site.path);
    return site;
}

static void note_meetings(Trace *trace, const TraceOp *op) {
    for (int i = 0; i < op->input_count; i++) {
        if (op->input[i].kind != OPERAND_VALUE) continue;
        int root = trace->value[op->input[i].value].root;
        TraceValue *value = &trace->value[root];
        if (value->kind == VALUE_IS_RESULT || value->met) continue;
        value->met = true;
        push(trace->arena, trace->meeting, ((TraceMeeting){length(trace->op), root}));
    }
}

static void append(Recording *recording, TraceOp op) {
    Arena *arena = recording->trace->arena;
    note_meetings(recording->trace, &op);
    if (op.word_count) {
        int64_t *word = arena_new_array(arena, int64_t, op.word_count);
        for (int i = 0; i < op.word_count; i++)
            word[i] = op.varies && trace_word_is_argument(&op, i) ? 0 : op.word[i];
        op.word = word;
    }
    if (op.called) {
        int64_t *called = arena_new_array(arena, int64_t, op.word_count);
        op.called = memcpy(called, op.called, sizeof *called * op.word_count);
    }
    push(arena, recording->trace->op, op);
}

/* Is it made of no tensor? */
static bool is_made(const TraceOperand *input, int input_count) {
    for (int i = 0; i < input_count; i++)
        if (input[i].kind == OPERAND_VALUE) return false;
    return true;
}

/* The option device was set after the call began. */
static bool is_made_elsewhere(const Recording *recording, const TraceOperand *input, int count) {
    return is_made(input, count) && device_default() != recording->graph->ambient.device;
}

/* A graph runs on one device, that of its first op. NO_VALUE with an error: an op of several. */
static int find_place(Recording *recording, const char *name, const TraceOperand *input,
                      int input_count) {
    int place = PLACE_NOWHERE;
    for (int i = 0; i < input_count; i++)
        if (input[i].kind == OPERAND_VALUE &&
            !place_operand(&place, name, &recording->trace->value[input[i].value].meta))
            return NO_VALUE;
    place = place_device(place, recording->graph->ambient.device);
    if (recording->place == PLACE_NOWHERE) recording->place = recording->graph->device = place;
    return recording->place == place ? place : LIES_ELSEWHERE;
}

static bool is_foreign(const Recording *recording, const TraceOperand *operand) {
    return operand->kind == OPERAND_VALUE && recording->trace->value[operand->value].foreign;
}

/* The first operand with a history that is not the trace's, or NO_VALUE. */
static int find_foreign(const Recording *recording, const TraceOperand *input, int count) {
    for (int i = 0; i < count; i++)
        if (is_foreign(recording, &input[i])) return input[i].value;
    return NO_VALUE;
}

/* Its result has a history that goes on from such a one, which no graph has. */
static bool follows_foreign(const Recording *recording, const TraceOp *op) {
    bool follows = false;
    for (int i = 0; i < op->input_count; i++)
        if (is_foreign(recording, &op->input[i]))
            follows |= !recording->joins || recording->value[op->input[i].value].promised;
    return follows && recording->trace->value[op->result].tracked;
}

int record_op(Recording *recording, TraceOp op) {
    if (RECORD_GUARD(recording)) return OUT_OF_MEMORY;
    int place = find_place(recording, op_info(op.op)->name, op.input, op.input_count);
    if (place < 0) return place;
    Attrs attrs = {{0}};
    trace_attrs(&op, NULL, &attrs);
    recording->quiet = op.quiet;
    op.site = recording->graph->origin.site = keep_site(recording->trace, op.site);
    op.result = functional_apply(recording, &op, &attrs);
    if (op.result == NO_VALUE) return NO_VALUE;
    if (follows_foreign(recording, &op)) return FOLLOWS_FOREIGN;
    append(recording, op);
    return op.result;
}

/* A value from another device is moved: in eager. */
static int assign_place(Recording *recording, const TraceOperand input[2]) {
    const TraceValue *value = recording->trace->value;
    const Meta *target = &value[input[0].value].meta;
    bool tensor = input[1].kind == OPERAND_VALUE;
    if (tensor && value[input[1].value].meta.device != target->device) return LIES_ELSEWHERE;
    if (recording->place == PLACE_NOWHERE)
        recording->place = recording->graph->device = target->device;
    return recording->place == target->device ? target->device : LIES_ELSEWHERE;
}

int record_write(Recording *recording, TraceOp op) {
    if (RECORD_GUARD(recording)) return OUT_OF_MEMORY;
    int place = assign_place(recording, op.input);
    if (place < 0) return place;
    recording->quiet = op.quiet;
    op.site = recording->graph->origin.site = keep_site(recording->trace, op.site);
    functional_assign(recording, op.input[0].value, &op.input[1]);
    append(recording, op);
    return op.input[0].value;
}

/* Where the op stands, and what it has besides operands. */
static TraceOp op_here(const Call *call, int op, int input_count, Where *where) {
    find_where(where);
    return (TraceOp){.op = op,
                     .input_count = (uint8_t)input_count,
                     .operand_count = (uint8_t)input_count,
                     .quiet = call_is_quiet(call),
                     .first_value = length(call->recording->trace->value),
                     .mode = where->mode,
                     .site = where->site};
}

/* What comes back when an op could not be recorded: NULL with its error, or eager after a break. */
static bool goes_eager(Call *call, int why) {
    if (why == NO_VALUE) {
        call_op_failed(call);
        return false;
    }
    if (why == LIES_ELSEWHERE) return call_break(call, REASON_other_device, "");
    if (why == WRITES_RESULT) return call_writes_result(call, call->outside);
    if (why == FOLLOWS_FOREIGN) return call_follows_history(call, call->outside);
    if (why == WRITES_REPEATED) return call_break(call, REASON_written_repeat, "");
    return call_break(call, REASON_out_of_memory, "while recording");
}

int record_output(Call *call, Tensor *x, bool own) {
    int v = record_value(call, x);
    if (v < 0) return NO_VALUE;
    if (own && !call->resumed) call->recording->trace->value[v].own = true;
    return v;
}

/* A segment that begins with this op, and that no entry is known for, may be compiled. False: it
 * has been refused, or the call is eager. */
static bool may_begin(Call *call) {
    if (call->at || !call->resumed || stance_compiles()) return true;
    call_break(call, REASON_stance, "another path");
    return false;
}

/* It would be recorded by the tape. */
static bool is_followed(const Recording *recording, const TraceOp *op) {
    for (int i = 0; i < op->input_count && !op->quiet; i++)
        if (op->input[i].kind == OPERAND_VALUE &&
            (recording->trace->value[op->input[i].value].tracked ||
             is_foreign(recording, &op->input[i])))
            return true;
    return false;
}

/* What has a history that is the trace's, or of a segment that was left, and is no leaf is written
 * to, where nothing is followed. */
static bool writes_result(const Call *call, int target) {
    const TraceValue *value = call->recording->trace->value, *root = &value[value[target].root];
    bool promised = root->foreign && tape_is_promised(call->value[value[target].root]);
    return promised || (root->tracked && root->kind == VALUE_IS_RESULT);
}

/* The op with its numbers. One that is refused leaves no arguments behind: those of the ops that
 * there are count from 0. */
static int choose_and_apply(Call *call, TraceOp *op) {
    Recording *recording = call->recording;
    int arguments = recording->trace->argument_count, inputs = length(recording->graph->input);
    int captured = length(recording->captured);
    int result = number_choose(call, op) ? record_op(recording, *op) : OUT_OF_MEMORY;
    if (result != NO_VALUE) return result;
    recording->trace->argument_count = arguments;
    truncate_to(recording->graph->input, inputs);
    truncate_to(recording->captured, captured);
    return NO_VALUE;
}

/* Where a view begins is a number of its own. False with an error. */
static bool take_start(const Recording *recording, TraceOp *op, Attrs *normal) {
    if (op->input[0].kind != OPERAND_VALUE) return true; /* which is refused */
    memcpy(normal->word, op->word, sizeof *op->word * op->word_count);
    op->called = op->word;
    op->word = normal->word;
    return view_normalize(op->op, &recording->trace->value[op->input[0].value].meta, normal);
}

Tensor *record_apply(Call *call, Op op, const cb_operand *input, int input_count,
                     const Attrs *attrs) {
    if (!may_begin(call)) return call->refused ? NULL : apply(op, input, input_count, attrs);
    Recording *recording = call->recording;
    check(input_count <= TRACE_OPERANDS, "%s: %d operands", op_info(op)->name, input_count);
    int result = NO_VALUE;
    bool resolved = true;
    Where where;
    TraceOp next = op_here(call, op, input_count, &where);
    next.word_count = op_info(op)->word_count;
    next.word = attrs ? attrs->word : NULL;
    for (int i = 0; i < input_count && resolved; i++)
        resolved = resolve(call, &input[i], &next.input[i], &result);
    next.makes = resolved && is_made(next.input, input_count);
    if (resolved) call->outside = find_foreign(recording, next.input, input_count);
    if (resolved && is_followed(recording, &next)) resolved = tape_takes(op, attrs);
    Attrs normal;
    if (resolved && view_has_start(op)) resolved = take_start(recording, &next, &normal);
    next.result = length(recording->trace->value);
    if (resolved && is_made_elsewhere(recording, next.input, input_count))
        result = LIES_ELSEWHERE;
    else if (resolved)
        result = choose_and_apply(call, &next);
    if (result >= 0 && resolved && !call_reserve(call, result + 1)) result = OUT_OF_MEMORY;
    if (result < 0 || !resolved)
        return goes_eager(call, result) ? apply(op, input, input_count, attrs) : NULL;
    call->at++;
    return call_shell(call, result);
}

Tensor *record_assign(Call *call, Tensor *target, const cb_operand *value) {
    if (!may_begin(call)) return call->refused ? NULL : apply_assign(target, value);
    Recording *recording = call->recording;
    cb_operand given = cb_operand_tensor(target);
    int result = NO_VALUE;
    Where where;
    TraceOp next = op_here(call, OP_assign, 2, &where);
    next.result = NO_VALUE;
    bool resolved = resolve(call, &given, &next.input[0], &result) &&
                    resolve(call, value, &next.input[1], &result);
    if (resolved && is_followed(recording, &next))
        resolved = tape_refuses_write(recording->trace->value[next.input[0].value].tracked ||
                                      is_foreign(recording, &next.input[0]));
    else if (resolved && writes_result(call, next.input[0].value))
        result = WRITES_RESULT, call->outside = next.input[0].value;
    else if (resolved && !functional_writable(recording, next.input[0].value))
        result = WRITES_REPEATED;
    else if (resolved)
        result = number_choose(call, &next) ? record_write(recording, next) : OUT_OF_MEMORY;
    if (result < 0 || !resolved)
        return goes_eager(call, result) ? apply_assign(target, value) : NULL;
    call->at++;
    return target;
}

/* ---- gradients ----------------------------------------------------------------------------- */

int *record_leaves(const Recording *recording) {
    const Trace *trace = recording->trace;
    int *list = NULL;
    for (int v = 0; v < length(trace->value); v++)
        if (trace->value[v].kind != VALUE_IS_RESULT && trace->value[v].tracked &&
            recording->value[v].leaf == v)
            push(trace->arena, list, v);
    return list;
}

bool record_gradients(Recording *recording, TraceOp op, TraceBack how, const int *list, int count) {
    Trace *trace = recording->trace;
    bool leaves = how.leaves;
    Node **gradient = arena_new_array(recording->graph->arena, Node *, count + 1);
    TraceBack *back = arena_new_array(trace->arena, TraceBack, 1);
    int *wrt = arena_new_array(trace->arena, int, count + 1);
    int *same = arena_new_array(recording->graph->arena, int, count + 1);
    int *value = arena_new_array(recording->graph->arena, int, count + 1);
    const TraceOperand *seed = op.input[1].kind == OPERAND_VALUE ? &op.input[1] : NULL;
    recording->graph->origin.site = op.site = keep_site(trace, op.site);
    how.count = 0;
    how.wrt = wrt;
    *back = how;
    op.back = back;
    op.result = -1;
    bool tracked = how.graph && !op.quiet;
    if (!functional_backward(recording, op.input[0].value, seed, tracked, list, count, gradient,
                             same))
        return false;
    for (int k = 0; k < count; k++) {
        bool follows = gradient[k] && tracked && functional_follows(recording, gradient[k]);
        if (!gradient[k])
            value[k] = NO_VALUE;
        else if (!follows || same[k] == k)
            value[k] = functional_result(recording, gradient[k]);
        else
            value[k] =
                functional_again(recording, same[k] == SAME_AS_SEED ? seed->value : value[same[k]]);
        if (value[k] >= 0) trace->value[value[k]].tracked = follows;
        if (value[k] >= 0 && op.result < 0) op.result = value[k];
        if (value[k] >= 0 || !leaves) wrt[back->count++] = value[k] >= 0 ? list[k] : ~list[k];
    }
    if (!how.graph) trace_goes_back(trace, op.input[0].value);
    append(recording, op);
    return true;
}

static int back_of(Call *call, const TraceOp *op, const GoingBack *back, const int *list,
                   TraceBack how) {
    Recording *recording = call->recording;
    const TraceValue *value = recording->trace->value, *y = &value[op->input[0].value];
    bool given = op->input[1].kind == OPERAND_VALUE;
    const Meta *seed = given ? &value[op->input[1].value].meta : NULL;
    if (!y->tracked && !tape_refuses_untracked(back->what)) return NO_VALUE;
    if (!tape_fits(back->what, &y->meta, seed)) return NO_VALUE;
    if (RECORD_GUARD(recording)) return OUT_OF_MEMORY;
    const int *leaves = how.leaves ? record_leaves(recording) : NULL;
    if (!record_gradients(recording, *op, how, leaves ? leaves : list,
                          how.leaves ? length(leaves) : back->count))
        return NO_VALUE;
    return call_reserve(call, length(recording->trace->value)) ? 0 : OUT_OF_MEMORY;
}

/* No gradient comes to it over the history of `outside`, to which y leads: it was computed behind
 * that, or is that, and y leads to no other one. */
static bool is_before(Call *call, const Tensor *x, const Node *y, int outside) {
    int v = call_traced(call, x);
    if (v != NO_VALUE) return call->trace->value[v].kind == VALUE_IS_RESULT;
    return same_tensor(call->value[outside], x) && !tape_is_hooked(x) &&
           functional_outside(call->recording, y, outside) == NO_VALUE;
}

/* The value with a history of ops outside that gradients of y are to go on to, or that was written
 * to meanwhile; NO_VALUE: there is none. */
static int find_outside(Call *call, const GoingBack *back, int y) {
    Recording *recording = call->recording;
    if (RECORD_GUARD(recording)) return NO_VALUE; /* which ends the recording soon */
    const Node *node = functional_node(recording, y);
    int v = functional_outside(recording, node, NO_VALUE);
    bool before = back->wrt && v != NO_VALUE && !recording->value[v].version;
    for (int k = 0; k < back->count && before; k++) before = is_before(call, back->wrt[k], node, v);
    return before && !recording->value[v].promised ? NO_VALUE : v;
}

bool record_leads_outside(Call *call, const GoingBack *back) {
    int y = call_traced(call, back->y);
    int v = y == NO_VALUE ? NO_VALUE : find_outside(call, back, y);
    return v != NO_VALUE && joint_may_follow(call->recording) &&
           !call->recording->value[v].promised;
}

static int record_back(Call *call, const GoingBack *back, const cb_operand *input) {
    int why = NO_VALUE, list[CB_MAX_ARGS];
    TraceBack how = {.leaves = !back->wrt, .graph = back->graph};
    Where where;
    if (!record_apart(call, back, &how)) return OUT_OF_MEMORY;
    TraceOp next = op_here(call, OP_backward, 2, &where);
    for (int i = 0; i < 2; i++)
        if (!resolve(call, &input[i], &next.input[i], &why)) return why;
    /* The seed's history is the gradients', where they have one. */
    call->outside = find_foreign(call->recording, next.input, back->graph ? 2 : 1);
    if (call->outside == NO_VALUE) call->outside = find_outside(call, back, next.input[0].value);
    if (call->outside != NO_VALUE) return FOLLOWS_FOREIGN;
    for (int k = 0; k < back->count; k++) {
        list[k] = record_value(call, back->wrt[k]);
        if (list[k] < 0) return list[k];
    }
    return back_of(call, &next, back, list, how);
}

bool record_backward(Call *call, const GoingBack *back, const cb_operand *input) {
    if (!may_begin(call)) return false;
    int why = record_back(call, back, input);
    if (why < 0) {
        goes_eager(call, why);
        return false;
    }
    call->at++;
    return true;
}

bool record_end(Call *call, const int *output, int output_count) {
    Trace *trace = call->recording->trace;
    if (RECORD_GUARD(call->recording)) return false;
    for (int i = 0; i < output_count; i++) push(trace->arena, trace->output, output[i]);
    for (int v = 0; v < length(trace->value); v++)
        if (call_escapes(call, v, output, output_count)) push(trace->arena, trace->escaped, v);
    return true;
}
