/* One call of a compiled function: the user's function runs, under the tracer or eagerly, and what
 * was traced is computed.
 *
 * It runs in a frame with a scope of its own, so what it computes on the way dies with the call,
 * compiled or not; its results move to the caller's scope. When it throws, or jumps out, what it
 * did before stays done, as it would be without a tracer, and the thread is as it was. */
#include "capture/joint.h"
#include "capture/segment.h"

#include "base/clock.h"
#include "base/memory.h"
#include "eager/tape.h"
#include "fx/fx.h"
#include <string.h>

/* ---- breaks -------------------------------------------------------------------------------- */

/* Results that live take the storages of the tensors that eager computed for them; without those
 * (real NULL, or some of them) they are left without a value. */
static void fill_results(Call *call, Tensor **real, int count) {
    for (int v = call->input_count; v < count; v++) {
        if (call->trace->value[v].kind != VALUE_IS_RESULT) continue;
        Tensor *shell = call->value[v], *made = real ? real[v] : NULL;
        call->value[v] = NULL;
        if (shell) shell->trace = 0;
        if (shell && !shell->storage && made) {
            shell_adopt(shell, made);
            shell->history = made->history; /* whatever was gone back over: it may be again */
            made->history = NULL;
        }
        if (shell && !shell->storage) leaf_forget(shell);
        tensor_destroy(made);
    }
}

static void run_trace(Call *call, bool effects) {
    if (!call->at) return;
    int count = trace_values_after(call->trace, call->at);
    Tensor **real = memory_zalloc(sizeof *real * (size_t)(count + 1));
    if (!real) fail_memory(sizeof *real * (size_t)(count + 1));
    for (int v = 0; real && v < count; v++)
        if (call->trace->value[v].kind != VALUE_IS_RESULT) real[v] = call->value[v];
    call->lost = !real || !effects;
    if (real && effects)
        call->lost = !trace_run(call->trace, call->at, call->argument, real);
    else if (real)
        trace_run_without_effects(call->trace, call->at, call->argument, real);
    fill_results(call, real, count);
    memory_free(real);
}

static void give_up_trace(Call *call, bool effects) {
    call_stand_up(call);
    segment_compute_all(call);
    segment_keep_promises(call);
    frames_drop_tracer(&call->tracer);
    call->mode = CALL_IS_EAGER;
    run_trace(call, effects);
    call_drops_recording(call);
    segment_finish(call, false);
    expose_end(call);
}

static void go_eager(Call *call) { give_up_trace(call, true); }

static void refuse(Reason reason, const char *what) {
    fail(reason == REASON_out_of_memory ? CB_ERR_MEMORY : CB_ERR_COMPILE, "%s: %s%s%s",
         reason == REASON_stance ? "call" : "fullgraph", reason_info(reason)->text,
         *what ? ": " : "", what);
}

/* A call more that went on op by op for what each call may do again. Events do not count: the call
 * goes on behind them. */
static void count_lost(Function *function, Reason reason) {
    int64_t lost = atomic_fetch_add(&function->lost_calls, 1) + 1;
    if (lost < function_limit() || atomic_exchange(&function->eager, (int)reason)) return;
    function_note(function, REASON_gave_up, site_current(), "%s", reason_info(reason)->text);
}

bool call_break(Call *call, Reason reason, const char *what) {
    Function *function = call->function;
    if (call->mode == CALL_IS_EAGER) return true;
    if (stance_refuses(function, reason)) {
        function_note(function, reason, site_current(), "%s", what);
        refuse(reason, what);
        call->failed = true;
        call->refused = reason;
        return false;
    }
    function_note(function, reason, site_current(), "%s", what);
    atomic_fetch_add(&function->breaks, 1);
    if (reason == REASON_unsupported_call || reason == REASON_written_repeat)
        count_lost(function, reason);
    go_eager(call);
    return true;
}

/* ---- running the user's function ------------------------------------------------------------ */

static cb_tensor *call_one(const Function *function, Tensor *const *x) {
    switch (function->callee) {
    case CALLEE_1:
        return function->target.one(tensor_out(x[0]));
    case CALLEE_2:
        return function->target.two(tensor_out(x[0]), tensor_out(x[1]));
    case CALLEE_3:
        return function->target.three(tensor_out(x[0]), tensor_out(x[1]), tensor_out(x[2]));
    default:
        return function->target.four(tensor_out(x[0]), tensor_out(x[1]), tensor_out(x[2]),
                                     tensor_out(x[3]));
    }
}

/* The places that it may write results to. */
static int output_room(const Function *function) {
    if (function->callee == CALLEE_N) return OUTPUT_ROOM;
    return function->callee == CALLEE_GRAPH ? CB_MAX_ARGS : 1;
}

/* Fills output; the count, or a negative status. A function of one result may return NULL. */
static int invoke_target(const Function *function, Tensor *const *x, int input_count,
                         Tensor **output) {
    switch (function->callee) {
    case CALLEE_N:
        return tensors_call(function->target.any, x, input_count, output, function->user);
    case CALLEE_MODULE:
        output[0] = module_forward(function->target.module, x, input_count);
        return 1;
    case CALLEE_GRAPH:
        return fx_run(function->target.graph, x, input_count, output, CB_MAX_ARGS);
    default:
        output[0] = tensor_in(call_one(function, x), "the result of the function");
        return 1;
    }
}

/* A NULL where the function gives one tensor is a failure, as is a count below 0, and has an
 * error. */
static int check_result(const Function *function, Tensor **output, int count) {
    bool any = function->callee == CALLEE_N || function->callee == CALLEE_GRAPH;
    if (any ? count >= 0 : output[0] != NULL) return count;
    if (cb_error_status() != CB_OK) return any ? count : cb_error_status();
    const char *name = function_title(function);
    if (!any) return fail(CB_ERR_ARGUMENT, "call: %s gave NULL and recorded no error", name);
    return fail(CB_ERR_ARGUMENT, "call: %s gave %d and recorded no error", name, count);
}

/* The thread's line is the call's again when the function is done. */
static int invoke(const Function *function, Tensor *const *x, int input_count, Tensor **output) {
    Site site = site_current();
    if (function->options.autocast != CAST_AS_THREAD) autocast_set(function_autocast(function));
    int count = invoke_target(function, x, input_count, output);
    site_set(site);
    return count;
}

/* Closes the function's scope, from which its results move into the caller's. Tensors that it kept,
 * or that live in other scopes, stay where they are. The count, or a negative status. */
static int leave(Frame *frame, Tensor **output, int count, bool *moved) {
    for (int k = 0; k < count; k++) moved[k] = output[k] && frame_take(frame, output[k]);
    bool balanced = frame_close(frame);
    for (int k = 0; k < count; k++)
        if (moved[k]) tensor_scope_add(output[k]);
    if (balanced) return count;
    return fail(CB_ERR_ARGUMENT, "call: the function opened an autocast and did not close it");
}

/* An error that the function leaves fails the call, also behind an older one of the caller's. */
static bool leaves_error(unsigned errors) {
    return cb_error_status() != CB_OK && error_count() != errors;
}

typedef struct PlainCall {
    Frame frame; /* first */
    bool moved[CB_MAX_ARGS];
    Tensor *output[]; /* output_room places */
} PlainCall;

OPENS_FRAME int call_plainly(const Function *function, Tensor *const *input, int input_count,
                             CallResults out) {
    FRAME_MARK(mark);
    size_t bytes = sizeof(PlainCall) + sizeof(Tensor *) * (size_t)output_room(function);
    PlainCall *call = (PlainCall *)frame_open(bytes, NULL, FRAME_OF_FUNCTION, mark);
    if (!call) return CB_ERR_MEMORY;
    Frame *left UNWINDS_FRAME = &call->frame;
    call->frame.runs = function;
    const unsigned errors = error_count();
    Tensor **output = call->output;
    int count = check_result(function, output, invoke(function, input, input_count, output));
    left = NULL;
    if (!frame_is_open(&call->frame, mark)) return CB_ERR_ARGUMENT;
    count = leave(&call->frame, output, count, call->moved);
    if (count >= 0 && leaves_error(errors)) count = cb_error_status();
    call_hand_over(output, count, out);
    frame_free(&call->frame);
    return count;
}

/* ---- ways of a call -------------------------------------------------------------------------- */

int call_eagerly(Function *function, Tensor *const *input, int input_count, CallResults out) {
    atomic_fetch_add_explicit(&function->eager_calls, 1, memory_order_relaxed);
    return call_plainly(function, input, input_count, out);
}

/* The entry is known and its results are shells: launches it. False: nothing has happened. What a
 * segment draws is drawn again, perhaps, by what waits: from the same state. */
static bool launch(Call *call) {
    Entry *entry = call->entry;
    History *kept;
    entry_use(entry);
    if (!call->resumed) entry_begins(entry);
    Tensor *local[LOCAL_VALUES], **graph_output = local;
    if (entry->graph_output_count > LOCAL_VALUES)
        graph_output = memory_alloc(sizeof *graph_output * (size_t)entry->graph_output_count);
    bool done = graph_output && entry_run_kept(entry, call->value, call->argument, graph_output,
                                               &call->random, &kept);
    if (done) {
        entry_settle(entry, call->value, graph_output);
        entry_hand_histories(entry, kept, call->value);
        entry_drop_outputs(entry, call->value, graph_output, true);
    }
    if (graph_output != local) memory_free(graph_output);
    return done;
}

/* False where the order of writes matters: the ops run one by one then. */
static bool may_launch(const Call *call) {
    char detail[160];
    if (entry_values_apart(call->entry, call->value, detail, sizeof detail)) return true;
    function_note(call->function, REASON_written_overlap, site_current(), "%s", detail);
    atomic_fetch_add(&call->function->breaks, 1);
    return false;
}

/* So they do after a step that failed, before which ops may have written to inputs. What has
 * effects is not done twice; and what a checkpoint's first run did as a graph is not done op by op
 * in another one. */
static void launch_or_run(Call *call, cb_status before) {
    if (launch(call)) return;
    if (entry_has_effects(call->entry) || checkpoint_is_again()) {
        give_up_trace(call, false);
        return;
    }
    if (!entry_backend(call->entry)) /* which has said it (backend.c) */
        function_note(call->function, REASON_step_failed, site_current(), "%s",
                      cb_error() ? cb_error() : "");
    if (before == CB_OK) cb_clear_error(); /* the op that fails says it, at its own line */
    go_eager(call);
}

bool call_needs_tape(Call *call, const char *why) {
    Function *function = call->function;
    if (!function->options.fullgraph) function_keep_history(function, why);
    return call_break(call, REASON_gradients, why);
}

void call_op_failed(Call *call) {
    call->failed = true;
    if (!call->failure && cb_error()) call->failure = memory_copy_text(cb_error());
}

bool call_event(Call *call, Reason reason, const Tensor *asked) {
    if (!call->at) return true;
    if (checkpoint_current()) { /* whose other runs do the same, whatever is compiled by then */
        atomic_store(&call->function->breaks_again, true);
        return call_break(call, REASON_checkpoint_breaks, reason_info(reason)->text);
    }
    if (call->mode == CALL_REPLAYS && !call_at_event(call)) return !call->failed;
    char why[DETAIL_BYTES];
    if (call->mode == CALL_RECORDS && !joint_may_follow(call->recording) &&
        call_keeps_history(call, NULL, 0, why))
        return call_needs_tape(call, why);
    if (call->mode == CALL_RECORDS) {
        const char *asks = thread_state.asks;
        function_note(call->function, reason, site_current(), "%s%s", asks ? "cb_" : "",
                      asks ? asks : "");
        atomic_fetch_add(&call->function->breaks, 1);
        if (!segment_end(call, asked))
            return call_break(call, REASON_out_of_memory, "while recording");
    }
    if (call->mode == CALL_REPLAYS && joint_is_promised(call->entry, call->value))
        return call_needs_tape(call, promise_followed);
    segment_before_writes(call, NULL);
    call_stand_up(call);
    cb_status before = cb_error_status();
    bool launches = call->mode == CALL_REPLAYS && may_launch(call);
    if (launches) { /* what it takes to leave comes first: what has run is not done twice */
        if (!segment_reserve(call))
            return call_break(call, REASON_out_of_memory, "while recording");
        launch_or_run(call, before);
        if (call->mode == CALL_IS_EAGER) return true;
    }
    if (segment_leave(call, launches)) return true;
    if (before == CB_OK && !call->lost) cb_clear_error(); /* the ops do without what it lacked */
    return call_break(call, REASON_out_of_memory, "while recording");
}

/* For want of memory, which the ops do without; or a frozen index is out of range, and the op says
 * it. */
static bool not_compiled(Call *call, cb_status before) {
    bool out_of_range = before == CB_OK && cb_error_status() == CB_ERR_INDEX;
    if (before == CB_OK) cb_clear_error();
    if (!out_of_range) return call_break(call, REASON_out_of_memory, "while compiling");
    go_eager(call);
    return true;
}

/* The function has returned: its trace is completed, compiled if it is new, and launched. */
static bool complete(Call *call, Tensor **output, int count, cb_status before) {
    int value[CB_MAX_ARGS];
    if (call->resumed && !call->at) return true;
    if (!call_end(call, output, count, value)) return call->mode == CALL_IS_EAGER;
    if (call->mode == CALL_RECORDS) {
        char why[DETAIL_BYTES];
        if (call_keeps_history(call, output, count, why) && !joint_record(call))
            return call->outside == NO_VALUE ? call_needs_tape(call, why)
                                             : call_follows_history(call, call->outside);
        if (call->function->options.fullgraph && !call_ends_leaves(call)) return false;
        call->end_ms = clock_ms();
        call->entry = entry_make(call);
        if (!call->entry) return not_compiled(call, before);
        call->trace = call->entry->trace;
    }
    if (joint_is_promised(call->entry, call->value)) return call_needs_tape(call, promise_followed);
    segment_note_next(call);
    segment_before_writes(call, NULL);
    if (may_launch(call))
        launch_or_run(call, before);
    else
        go_eager(call);
    return true;
}

/* The first result that is no real tensor and of no trace that could compute it; NO_VALUE: none. */
static int find_without_value(const Call *call, Tensor *const *output, int count) {
    for (int k = 0; k < count; k++)
        if (output[k] && !output[k]->storage && call_traced(call, output[k]) == NO_VALUE) return k;
    return NO_VALUE;
}

/* The function has cleared the error of an op, and goes on. */
static bool breaks_after_failure(Call *call) {
    char what[512];
    snprintf(what, sizeof what, "an op failed%s%s", call->failure ? ": " : "",
             call->failure ? call->failure : "");
    return call_break(call, REASON_unsupported_call, what);
}

/* An error is left: the ops run one by one, and nothing is known of such a call. */
static void leave_failed(Call *call) {
    if (call->mode == CALL_RECORDS)
        function_note(call->function, REASON_op_failed, site_current(), "%s",
                      call->failure ? call->failure
                      : cb_error()  ? cb_error()
                                    : "");
    go_eager(call);
}

/* The function has returned. What it did stays done when it failed, as in eager; where it dealt
 * with the failure itself, it goes on, and what fullgraph refused stays refused. False: an
 * error. */
static bool settle(Call *call, Tensor **output, int count, cb_status before) {
    bool good = count >= 0 && !leaves_error(call->errors);
    if (call->refused) {
        segment_compute_all(call);
        refuse(call->refused, "");
        return false;
    }
    for (int k = 0; k < count; k++) call_meet(call, output[k]);
    segment_outlived(call); /* for whom the function kept it */
    if (cb_error_status() == CB_OK) call->lost = false;
    if (call->mode == CALL_IS_EAGER) return good && !call->lost;
    if (!good)
        leave_failed(call);
    else if (segment_keeps_history(call))
        good = call_needs_tape(call, "something from before a value was asked for has a history "
                                     "that nothing went back over: cb_detach it");
    else if (call->failed)
        good = breaks_after_failure(call);
    else if (find_without_value(call, output, count) != NO_VALUE)
        good = call_break(call, REASON_unsupported_call, "a result has no value");
    else
        good = complete(call, output, count, before);
    return good && !call->lost;
}

static void end(Call *call, bool done) {
    call_finish(call);
    segment_finish(call, done);
    expose_end(call);
    memory_free(call->failure); /* which is of all of its segments */
}

/* The user's code has left without returning: what it did so far stays done. */
static void abandon(Frame *frame) {
    Call *call = (Call *)frame;
    if (call->mode != CALL_IS_EAGER && !call->refused) go_eager(call);
    end(call, false);
    function_leave(call->function);
}

/* On views that stand for its inputs. */
static __attribute__((noinline)) int invoke_on_stand_ins(Call *call) {
    Tensor *stand_in[call->input_count + 1];
    call->output[0] = NULL; /* no result yet */
    if (!call_stand_ins(call, stand_in)) return CB_ERR_MEMORY;
    return invoke(call->function, stand_in, call->input_count, call->output);
}

/* The function under the tracer. */
static int trace_function(Call *call) {
    const Function *function = call->function;
    tracer_set(&call->tracer);
    int count = function->options.fullgraph
                    ? invoke_on_stand_ins(call)
                    : invoke(function, call->input, call->input_count, call->output);
    if (call->refused) return count; /* settle says why */
    return check_result(function, call->output, count);
}

/* After the function: the trace is computed. The count, or a negative status. */
static int finish(Call *call, int count, cb_status before) {
    Tensor **output = call->output;
    bool done = settle(call, output, count, before);
    int without = done ? find_without_value(call, output, count) : NO_VALUE;
    if (without != NO_VALUE) {
        fail(CB_ERR_GRAPH, "call: result %d %s", without, never_computed);
        done = false;
    }
    if (call->mode == CALL_IS_EAGER && done)
        atomic_fetch_add_explicit(&call->function->eager_calls, 1, memory_order_relaxed);
    for (int k = 0; k < count; k++) {
        int v = done && output[k] ? call_traced(call, output[k]) : NO_VALUE;
        if (!done) output[k] = NULL;
        if (v >= 0 && v < call->input_count) output[k] = call->input[v]; /* for which it stood */
    }
    end(call, done);
    if (done || count < 0) return count;
    return cb_error_status(); /* whatever was not done has said so, or what failed before it */
}

OPENS_FRAME int call_traced_function(Function *function, Ambient now, Tensor *const *input,
                                     int input_count, Entry *entry, const CallStart *start,
                                     CallResults out) {
    FRAME_MARK(mark);
    cb_status before = cb_error_status();
    size_t bytes = sizeof(Call) + sizeof(Tensor *) * (size_t)output_room(function);
    Call *call = (Call *)frame_open(bytes, abandon, FRAME_OF_FUNCTION, mark);
    if (!call) {
        function_leave(function);
        return CB_ERR_MEMORY;
    }
    call->frame.inside = &function->inside;
    call->frame.runs = function;
    call->errors = error_count();
    Frame *left UNWINDS_FRAME = &call->frame;
    bool started = call_start(call, function, now, input, input_count, entry);
    if (started && !entry) trace_say_again(call->recording->trace, &start->again);
    int count = started ? trace_function(call) : 0;
    left = NULL;
    if (!frame_is_open(&call->frame, mark)) return CB_ERR_ARGUMENT;
    count = leave(&call->frame, call->output, count, call->moved);
    if (started)
        count = finish(call, count, before);
    else
        call_finish(call);
    call_hand_over(call->output, count, out);
    bool replayed = started && call->mode == CALL_REPLAYS && call->entry == entry;
    frame_free(&call->frame);
    if (start->ns && replayed && count >= 0) entry_called(entry, start->ns);
    function_leave(function);
    if (started) return count;
    function_note(function, REASON_out_of_memory, site_current(), "before recording");
    return call_eagerly(function, input, input_count, out);
}
