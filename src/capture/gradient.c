/* Gradients inside of a call: cb_backward and cb_grad are one op of the trace, with a value per
 * gradient, and the graph is the tape.
 *
 *     l = sum(mul(x, w))             w requires a gradient: so do the two results
 *     cb_backward(l, NULL)           %5 of %1 = backward(%4)
 *     sub_(w, mul(lr, w's gradient)) an op like any other: mul(lr, %5)
 *     cb_zero_grad(w)                the shell of %5 dies
 *
 * A leaf's gradient is a shell that the leaf keeps: one that lives when the function returns is
 * kept as any other tensor that outlives its call, and one that does not is never stored. Where
 * there is a gradient already, the new one is added to it in place, by two more ops.
 *
 * What has a history when the call ends, and was not gone back over, comes from a joint graph
 * (joint.h), or, where there can be none, from ops that run one by one, with the tape. */
#include "capture/joint.h"

#include "base/memory.h"
#include "eager/tape.h"
#include "op/custom.h"
#include <string.h>

bool call_requires_grad(Tracer *tracer, const Tensor *x) {
    const Call *call = call_of(tracer);
    int v = call_traced(call, x);
    return v != NO_VALUE && call->trace->value[v].tracked;
}

/* ---- what leaves are given ------------------------------------------------------------------- */

static bool is_met(const Call *call, int v) {
    const TraceLeaf *leaf = call->trace->leaf;
    for (int i = 0; i < length(leaf); i++)
        if (call->value[leaf[i].value]->history == call->value[v]->history) return true;
    return false;
}

static void push_leaf(Call *call, TraceLeaf leaf) {
    Arena *arena = call->recording->trace->arena;
    if (arena_guard(arena)) {
        call->failed = true;
        return;
    }
    push(arena, call->recording->trace->leaf, leaf);
}

/* Under fullgraph the function does not run again, so an entry has what it does to leaves'
 * gradients. */
static void meet_gradient(Call *call, int v, bool frees) {
    if (is_met(call, v)) return;
    Tensor *gradient = frees ? NULL : *tape_gradient(call->value[v]);
    int before = gradient ? record_value(call, gradient) : LEAF_NONE;
    if (gradient && before < 0)
        call->failed = true;
    else
        push_leaf(call, (TraceLeaf){v, frees ? LEAF_ANY : before, LEAF_SAME});
}

/* The shell becomes the leaf's gradient, or is added to the one that it has. */
static bool add_to_leaf(Tensor **gradient, Tensor *shell) {
    if (!*gradient) {
        leaf_take(gradient, shell);
        return true;
    }
    cb_operand pair[] = {cb_operand_tensor(*gradient), cb_operand_tensor(shell)};
    Tensor *sum = apply(OP_add, pair, 2, NULL);
    cb_operand value = cb_operand_tensor(sum);
    bool added = sum && apply_assign(*gradient, &value);
    tensor_destroy(sum);
    tensor_destroy(shell);
    return added;
}

static bool give_to_leaf(Call *call, int leaf, Tensor *shell) {
    if (call->function->options.fullgraph) meet_gradient(call, leaf, false);
    return add_to_leaf(tape_gradient(call->value[leaf]), shell);
}

/* The op that the call has just done hands out its results. */
static bool hand_out(Call *call, const TraceOp *op, Tensor **out) {
    const TraceBack *back = op->back;
    int results = trace_back_results(back), next = 0;
    size_t bytes = sizeof(Tensor *) * (size_t)(results + 1);
    Tensor **shell = memory_zalloc(bytes);
    if (!shell) {
        fail_memory(bytes);
        return false;
    }
    bool done = true;
    for (int k = 0; k < results && done; k++) {
        shell[k] = call_shell(call, op->result + k);
        done = shell[k];
    }
    for (int k = 0; k < back->count && done && !back->leaves; k++)
        out[k] = back->wrt[k] >= 0 ? shell[next++] : NULL;
    for (int k = 0; k < results && done && back->leaves; k++)
        done = give_to_leaf(call, back->wrt[k], shell[k]);
    memory_free(shell);
    return done;
}

/* Somebody's tape is needed: what was recorded runs op by op, and so does the rest. */
static bool leave_to_tape(Call *call) {
    call_break(call, REASON_gradients,
               call->tracer.disabled ? "they are asked for behind cb_disable_open"
                                     : "they are asked for by memory that a pointer shows");
    return false;
}

/* ---- histories from outside ------------------------------------------------------------------ */

void history_describe(const char *name, const Tensor *x, char *out, size_t bytes) {
    Site site;
    char line[64];
    Op op = tape_origin(x, &site);
    site_format(site, line, sizeof line);
    if (tape_gradient(x))
        snprintf(out, bytes, "%s is a leaf with a hook: take cb_remove_hook, or go back outside",
                 name);
    else
        snprintf(
            out, bytes,
            "%s is the result of %s at %s: take cb_detach of it, and cb_requires_grad_ where its "
            "gradient is wanted",
            name, op == OP_none ? "an op" : op_info(op)->name, line);
}

bool call_follows_history(Call *call, int v) {
    Function *function = call->function;
    const char *path = call->trace->value[v].path;
    bool given = v < call->input_count;
    char name[128], what[400];
    if (tape_is_promised(call->value[v])) return call_needs_tape(call, promise_followed);
    snprintf(name, sizeof name, "%s", path ? path : "a tensor that the function finds");
    if (given) snprintf(name, sizeof name, "input %d", v);
    history_describe(name, call->value[v], what, sizeof what);
    if (given && !function->options.fullgraph) atomic_store(&function->follows_inputs, true);
    if (call->resumed) return call_needs_tape(call, what); /* it may be of a segment before */
    return call_break(call, REASON_gradients, what);
}

static bool has_history(const Call *call, const Tensor *x) {
    int v = x ? call_traced(call, x) : NO_VALUE;
    return call->grad && v >= call->input_count && trace_has_history(call->trace, v, call->at);
}

bool call_keeps_history(const Call *call, Tensor *const *output, int count, char *why) {
    int k = 0, v = call->bound - 1; /* the last one: what the others led to */
    while (k < count && !has_history(call, output[k])) k++;
    while (v >= call->input_count && !has_history(call, call->value[v])) v--;
    if (v < call->input_count) return false;
    const TraceOp *op = trace_maker(call->trace, k < count ? call_traced(call, output[k]) : v);
    char line[64] = "?", name[32] = "the result of";
    if (op) site_format(op->site, line, sizeof line);
    if (k < count) snprintf(name, sizeof name, "result %d, of", k);
    bool tape = call->function->options.backward == BACKWARD_TAPE;
    snprintf(why, DETAIL_BYTES, "%s %s at %s%s has a history %s: cb_detach it, or %s", name,
             op ? op_info(op->op)->name : "cb_grad_graph", line, k < count ? "," : "",
             output ? "that nothing went back over" : "where a value is asked for",
             !output ? "ask before that op, or behind cb_backward"
             : tape  ? "leave backward=tape out"
                     : "call cb_backward inside");
    return true;
}

bool call_writes_result(Call *call, int target) {
    const Trace *trace = call->recording->trace;
    const TraceOp *op = trace_maker(trace, trace->value[target].root);
    char line[64] = "", what[400];
    if (op) site_format(op->site, line, sizeof line);
    snprintf(what, sizeof what,
             "it writes to the result of %s%s%s, whose history does not follow the write: write "
             "to a clone of it",
             op ? op_info(op->op)->name : "an op", op ? " at " : "", line);
    return call_break(call, REASON_gradients, what);
}

/* ---- going back ------------------------------------------------------------------------------ */

static void meet_all(Call *call, const GoingBack *back) {
    call_meet(call, back->y);
    call_meet(call, back->given);
    for (int k = 0; k < back->count; k++) call_meet(call, back->wrt[k]);
}

/* The tape may go over what was compiled: to leaves, and to other tensors from outside. What the
 * call computed on the way was left behind there. */
static bool tape_may_go(const Call *call, const GoingBack *back) {
    bool may = joint_wanted(call->function) && !call->function->options.fullgraph && !back->graph;
    for (int k = 0; k < back->count; k++)
        may &=
            call_traced(call, back->wrt[k]) == NO_VALUE && back->wrt[k]->trace != call->left_serial;
    return may;
}

/* y comes from before, with a history. */
static bool begins_outside(const Call *call, const Tensor *y) {
    return call_traced(call, y) == NO_VALUE && tape_kind(y, call->grad) == HISTORY_FOREIGN &&
           !tape_is_promised(y);
}

/* Over several graphs goes the tape: what was recorded ends here, and is compiled with its way
 * back; another graph begins behind. */
static bool go_back_over(Call *call, const GoingBack *back, Tensor **out) {
    if (!call_event(call, REASON_goes_back_over, NULL)) return false;
    if (call->mode == CALL_IS_EAGER) return false; /* it does it */
    meet_all(call, back);
    if (!tape_is_promised(back->y)) return tape_go_back(back, out);
    call_needs_tape(call, promise_followed);
    return false;
}

bool call_goes_back(Tracer *tracer, const GoingBack *back, Tensor **out) {
    Call *call = call_interrupted(tracer);
    meet_all(call, back);
    if (call->stale && !tracer->disabled && !segment_renew(call)) return false;
    if (call->refused) return false;
    const cb_operand input[] = {cb_operand_tensor(back->y), cb_operand_tensor(back->given)};
    bool may = tape_may_go(call, back), ends = may;
    if (may && begins_outside(call, back->y)) return go_back_over(call, back, out);
    if (tracer->disabled || (call->exposed.count && expose_meets(call, input, 2)))
        return leave_to_tape(call);
    call->back = back;
    if (call->mode == CALL_REPLAYS) {
        if (call_replays_backward(call, input, &ends))
            return hand_out(call, &call->trace->op[call->at - 1], out);
        if (ends) return go_back_over(call, back, out);
    }
    if (call->mode != CALL_RECORDS) return false;
    if (may && record_leads_outside(call, back)) return go_back_over(call, back, out);
    if (!record_backward(call, back, input)) return false;
    return hand_out(call, &call->trace->op[call->at - 1], out);
}

/* ---- fullgraph: without the function -------------------------------------------------------- */

void call_meets_leaf(Tracer *tracer, Tensor *x, LeafMeeting how) {
    Call *call = call_interrupted(tracer);
    if (call->mode != CALL_RECORDS || call->refused) return;
    int v = record_value(call, x); /* also where it is a leaf that was met by another name */
    if (v < 0) {
        call->failed = true;
    } else if (how == ASKS_WHETHER) {
        call->trace->value[v].asked = true;
        call->trace->value[v].required = x->history;
    } else {
        meet_gradient(call, v, how == FREES_GRADIENT);
    }
}

/* What was recorded has a leaf there and what follows none, or the other way: no graph, and no
 * guard, has both. */
bool call_changes_leaf(Tracer *tracer) {
    return call_break(call_interrupted(tracer), REASON_leaf_changed, "");
}

/* Something that lives was computed from v: its gradient would come by v's hook, and out of a joint
 * graph it does not. */
static bool feeds_others(const Call *call, int v) {
    const Trace *trace = call->trace;
    bool *fed = memory_zalloc((size_t)length(trace->value) + 1), feeds = !fed;
    if (fed) fed[v] = true;
    if (fed) trace_mark_tracked(trace, call->at, fed);
    for (int k = v + 1; k < length(trace->value) && fed; k++) feeds |= fed[k] && call->value[k];
    memory_free(fed);
    return feeds;
}

/* A hook may use values of segments that were left, and write to what they read. */
void call_meets_code(Tracer *tracer) { segment_compute_all(call_interrupted(tracer)); }

bool call_takes_hook(Tracer *tracer, Tensor *x) {
    Call *call = call_interrupted(tracer);
    call_meet(call, x);
    int v = call_traced(call, x);
    if (tape_is_promised(x)) return call_needs_tape(call, promise_followed);
    if (v == NO_VALUE && tape_gradient(x)) return call_break(call, REASON_leaf_changed, "");
    if (call->function->options.fullgraph) return call_break(call, REASON_hook_registered, "");
    if (v != NO_VALUE && feeds_others(call, v))
        return call_needs_tape(call, "a result has a hook from which another one was computed: "
                                     "register it behind the op that gives the result");
    /* Gradients by what is from outside are computed before it has a hook, or they would see it. */
    bool cuts = v != NO_VALUE || trace_has_backward(call->trace, call->at);
    bool done = !cuts || call_event(call, REASON_hook_registered, x);
    if (v == NO_VALUE) segment_before_hook(call);
    call_meet(call, x);
    return tape_is_promised(x) ? call_needs_tape(call, promise_followed) : done;
}

/* A value that outlives the call and is the gradient of no leaf, or NO_VALUE. */
static int find_kept(const Trace *trace) {
    for (int k = 0; k < length(trace->escaped); k++) {
        bool given = false;
        for (int i = 0; i < length(trace->leaf); i++)
            given |= trace->leaf[i].after == trace->escaped[k];
        if (!given) return trace->escaped[k];
    }
    return NO_VALUE;
}

/* With the line of the op that gave it, beside that of the call. */
static void refuse_kept(const Trace *trace, int v) {
    const TraceOp *maker = trace->op;
    while (v < maker->result || v >= maker->result + trace_op_results(maker)) maker++;
    char line[64];
    site_format(maker->site, line, sizeof line);
    fail(CB_ERR_COMPILE,
         "fullgraph: the function keeps a tensor that it does not return: what %s gave at %s",
         maker->back ? "backward" : op_call_name(maker->op, maker->word), line);
}

bool call_ends_leaves(const Call *call) {
    Trace *trace = call->recording->trace;
    for (int i = 0; i < length(trace->leaf); i++) {
        TraceLeaf *leaf = &trace->leaf[i];
        const Tensor *gradient = *tape_gradient(call->value[leaf->value]);
        int v = gradient ? call_traced(call, gradient) : LEAF_NONE;
        leaf->after = gradient && v == NO_VALUE ? LEAF_SAME : v;
    }
    int kept = find_kept(trace);
    if (kept != NO_VALUE) refuse_kept(trace, kept);
    return kept == NO_VALUE;
}

Tensor *entry_real(const Entry *entry, Tensor *const *input, int v) {
    if (v < entry->input_count) return input[v];
    for (int k = 0; k < entry->captured_count; k++)
        if (entry->captured[k] == v) return entry_captured(entry, k);
    return NULL; /* unreachable: all of them are captured */
}

/* The function's own tensor, while it lives: what the entry holds on to is another one, that does
 * not know when it becomes a leaf. */
Tensor *entry_captured(const Entry *entry, int k) {
    Tensor *held = entry->held[k], *x;
    if (!held) return NULL; /* a gradient: leaves_find */
    const TraceValue *value = &entry->trace->value[entry->captured[k]];
    return !value->own && handle_lives(value->handle, &x) ? x : held;
}

static bool requires_as_before(const TraceValue *value, const Tensor *x, bool grad) {
    HistoryKind history = tape_kind(x, grad);
    if (value->asked && value->required != (x->history != NULL)) return false;
    return value->tracked == (history == HISTORY_OF_LEAF) &&
           value->foreign == (history == HISTORY_FOREIGN);
}

/* The value that requires a gradient and did not, or the other way round; NO_VALUE: none. */
static int find_other_leaf(const Entry *entry, Tensor *const *input) {
    const TraceValue *value = entry->trace->value;
    bool grad = grad_mode();
    for (int i = 0; i < entry->input_count; i++)
        if (!requires_as_before(&value[i], input[i], grad)) return i;
    for (int k = 0; k < entry->captured_count; k++) {
        const Tensor *x = entry_captured(entry, k);
        if (x && !requires_as_before(&value[entry->captured[k]], x, grad))
            return entry->captured[k];
    }
    return NO_VALUE;
}

/* Under fullgraph an input and what the function finds are two values of the trace, which may be
 * one leaf. */
static int find_captured_leaf(const Entry *entry, Tensor *const *value, const Tensor *input) {
    for (int k = 0; input->history && k < entry->captured_count; k++) {
        int v = entry->captured[k];
        const Tensor *x = value ? value[v] : entry_captured(entry, k);
        if (x && x->history == input->history) return v;
    }
    return NO_VALUE;
}

void leaves_find_joined(Entry *entry, const Call *call) {
    if (!call->function->options.fullgraph) return;
    entry->joined = arena_new_array(entry->trace->arena, int, entry->input_count + 1);
    for (int i = 0; i < entry->input_count; i++)
        entry->joined[i] = find_captured_leaf(entry, call->value, call->value[i]);
}

/* An input that is a leaf which the function finds, and was none, or the other way round. */
static int find_otherwise_joined(const Entry *entry, Tensor *const *input) {
    for (int i = 0; i < entry->input_count; i++)
        if (find_captured_leaf(entry, NULL, input[i]) != entry->joined[i]) return i;
    return NO_VALUE;
}

/* Whose gradient is there (*has) and was not, or the other way round; NO_VALUE: none. */
static int find_other_gradient(const Entry *entry, Tensor *const *input, bool *has) {
    for (int i = 0; i < length(entry->trace->leaf); i++) {
        const TraceLeaf *leaf = &entry->trace->leaf[i];
        Tensor **gradient = tape_gradient(entry_real(entry, input, leaf->value));
        *has = gradient && *gradient;
        if (!gradient) return leaf->value; /* it is a leaf no more */
        if (leaf->before != LEAF_ANY && (leaf->before == LEAF_NONE) == *has) return leaf->value;
    }
    return NO_VALUE;
}

bool leaves_hold(const Entry *entry, Tensor *const *input) {
    bool has;
    return find_other_leaf(entry, input) == NO_VALUE &&
           find_otherwise_joined(entry, input) == NO_VALUE &&
           find_other_gradient(entry, input, &has) == NO_VALUE;
}

void leaf_describe(const Entry *entry, int v, bool has, char *out, size_t bytes) {
    char name[128];
    entry_name_value(entry, v, name, sizeof name);
    snprintf(out, bytes, "%s has %s gradient now, and entry %d was recorded %s one", name,
             has ? "a" : "no", entry->number, has ? "without" : "with");
}

Reason leaves_describe(const Entry *entry, Tensor *const *input, char *out, size_t bytes) {
    bool has;
    int v = find_other_leaf(entry, input);
    Reason why = REASON_history_changed;
    const char *what = "requires a gradient now, or does not any more";
    if (v == NO_VALUE) {
        v = find_otherwise_joined(entry, input);
        why = REASON_aliases_changed;
        what = "is a tensor that the function finds outside, too, or is none any more";
    }
    if (v == NO_VALUE) {
        v = find_other_gradient(entry, input, &has);
        if (v == NO_VALUE) return REASON_NONE;
        leaf_describe(entry, v, has, out, bytes);
        return REASON_gradient_changed;
    }
    char name[128];
    entry_name_value(entry, v, name, sizeof name);
    snprintf(out, bytes, "%s %s, and entry %d was recorded before", name, what, entry->number);
    return why;
}

/* The op at `at` adds a gradient to something, and what follows writes the sum: to the gradient
 * that was there, or to a tensor of the function's. */
static bool adds_gradient(const Trace *trace, int at, int gradient) {
    const TraceOp *op = &trace->op[at];
    return at + 1 < length(trace->op) && op->op == OP_add && op->input[1].value == gradient &&
           op->input[1].kind == OPERAND_VALUE && op[1].op == OP_assign;
}

/* What cb_backward adds itself has its line. A run that has come by such an op has done it, too, so
 * only the next one can be what a leaf's gradient makes other. */
int leaves_find_departed(const Call *call, bool *has) {
    const Trace *trace = call->trace;
    int last = call->at - 1;
    while (last > 0 && trace->op[last].op == OP_assign && trace->op[last - 1].op == OP_add)
        last -= 2;
    if (last < 0 || trace->op[last].op != OP_backward || !trace->op[last].back->leaves)
        return NO_VALUE;
    const TraceOp *backward = &trace->op[last++];
    for (int k = 0; k < trace_back_results(backward->back); k++) {
        int gradient = backward->result + k, leaf = backward->back->wrt[k];
        const Tensor *now = *tape_gradient(call->value[leaf]);
        bool adds = adds_gradient(trace, last, gradient);
        bool had = adds && site_same(trace->op[last].site, backward->site);
        *has = now && call_traced(call, now) != gradient;
        if (last == call->at && *has != had) return leaf;
        if (adds) last += 2;
    }
    return NO_VALUE;
}

void leaves_find(const Entry *entry, Tensor **value) {
    for (int i = 0; i < length(entry->trace->leaf); i++) {
        const TraceLeaf *leaf = &entry->trace->leaf[i];
        if (leaf->before >= 0) value[leaf->before] = *tape_gradient(value[leaf->value]);
    }
}

bool leaves_take(const Entry *entry, Tensor *const *value, LeafResult *result, void *made) {
    bool done = true;
    for (int i = 0; i < length(entry->trace->leaf); i++) {
        const TraceLeaf *leaf = &entry->trace->leaf[i];
        if (leaf->after == LEAF_SAME) continue;
        Tensor **gradient = tape_gradient(value[leaf->value]), *now = NULL;
        if (leaf->after >= 0 && !(now = result(entry, leaf->after, made))) done = false;
        tensor_destroy(*gradient);
        leaf_take(gradient, now);
    }
    return done;
}
