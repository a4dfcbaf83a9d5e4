/* Compiled functions: the public API, and the way of one call.
 *
 *     cb_call -> an entry whose guards hold?  yes: the function runs, its ops are matched, the
 *     entry is launched
 *                                             no:  the function runs, its ops are recorded, an
 *                                                  entry is made
 *                fullgraph, guards hold:      the entry is launched, the function does not run
 *
 * The function runs in a scope of its own, so what it computes on the way dies with the call,
 * compiled or not; its results move to the caller's scope. */
#include "capture/functional.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/precision.h"
#include "nn/module.h"
#include "run/eager.h"
#include <stdarg.h>
#include <string.h>

int function_limit(void) { return (int)option_int(OPTION_recompile_limit); }

void function_note(Function *function, Reason reason, Site site, const char *format, ...) {
    char detail[sizeof function->note->detail];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    lock_take(function_lock(function));
    Note *note = NULL;
    for (int i = 0; i < function->note_count && !note; i++) {
        Note *known = &function->note[i];
        if (known->reason == reason && known->site.file == site.file &&
            known->site.line == site.line)
            note = known;
    }
    if (!note && function->note_count < MAX_NOTES) {
        note = &function->note[function->note_count++];
        *note = (Note){.reason = reason, .site = site};
        memcpy(note->detail, detail, sizeof detail);
    }
    if (note) note->count++;
    bool first = note && note->count == 1;
    lock_give(function_lock(function));
    if (first && reason == REASON_recompile_limit)
        fprintf(stderr, "carbide: %s\n", reason_info(reason)->text);
    if (first && strchr(option_text(OPTION_dump), 'c'))
        fprintf(stderr, "capture: %s%s%s\n", reason_info(reason)->text, *detail ? ": " : "",
                detail);
}

cb_dtype function_autocast(const Function *function) {
    /* as option.c lists them */
    static const cb_dtype named[] = {CB_SAME, CB_BF16, CB_F16, CB_SAME};
    return function->options.autocast ? named[function->options.autocast] : cb_autocast_dtype();
}

/* ---- breaks -------------------------------------------------------------------------------- */

/* Results that live take the storages of the tensors that eager computed for them; without those
 * (real NULL, or some of them) they are left without a value. */
static void adopt(Call *call, Tensor **real, int count) {
    for (int v = call->input_count; v < count; v++) {
        if (call->trace->value[v].kind != VALUE_IS_RESULT) continue;
        Tensor *shell = call->value[v], *made = real ? real[v] : NULL;
        call->value[v] = NULL;
        if (shell) {
            shell->trace = 0;
            shell->value = NULL;
        }
        if (shell && made) {
            shell->storage = storage_retain(made->storage);
            shell->offset = made->offset;
            memcpy(shell->stride, made->stride, sizeof(int64_t) * made->rank);
        }
        tensor_destroy(made);
    }
}

static void run_trace(Call *call) {
    int count = trace_values_after(call->trace, call->at);
    Tensor **real = memory_zalloc(sizeof *real * (size_t)(count + 1));
    if (!real) fail_memory(sizeof *real * (size_t)(count + 1));
    for (int v = 0; real && v < count; v++)
        if (call->trace->value[v].kind != VALUE_IS_RESULT) real[v] = call->value[v];
    call->lost = !real || !trace_run(call->trace, call->at, real);
    adopt(call, real, count);
    memory_free(real);
}

static void go_eager(Call *call) {
    tracer_set(NULL);
    call->mode = CALL_IS_EAGER;
    run_trace(call);
}

bool call_break(Call *call, Reason reason, const char *what) {
    Function *function = call->function;
    if (call->mode == CALL_IS_EAGER) return true;
    if (function->options.fullgraph) {
        fail(reason == REASON_out_of_memory ? CB_ERR_MEMORY : CB_ERR_COMPILE, "fullgraph: %s%s%s",
             reason_info(reason)->text, *what ? ": " : "", what);
        call->failed = call->refused = true;
        return false;
    }
    function_note(function, reason, site_current(), "%s", what);
    int64_t breaks = atomic_fetch_add(&function->breaks, 1) + 1;
    bool again = reason == REASON_unsupported_call || reason == REASON_written_repeat;
    bool hopeless = again && breaks >= function_limit();
    bool lasting = reason == REASON_value_requested || reason == REASON_pointer_write;
    if (lasting || hopeless) atomic_store(&function->eager, (int)reason);
    go_eager(call);
    return true;
}

/* ---- running the user's function ------------------------------------------------------------ */

static int takes(const Function *function) {
    return function->callee <= CALL_4 ? (int)function->callee + 1 : -1;
}

/* Fills output; the count, or a negative status. A function of one result may return NULL. */
static int invoke_target(const Function *function, Tensor *const *x, int input_count,
                         Tensor **output) {
    switch (function->callee) {
    case CALL_1:
        output[0] = function->target.one(x[0]);
        return 1;
    case CALL_2:
        output[0] = function->target.two(x[0], x[1]);
        return 1;
    case CALL_3:
        output[0] = function->target.three(x[0], x[1], x[2]);
        return 1;
    case CALL_4:
        output[0] = function->target.four(x[0], x[1], x[2], x[3]);
        return 1;
    case CALL_N:
        return function->target.any(x, input_count, output, function->user);
    case CALL_MODULE:
        output[0] = cb_module_forward(function->target.module, x, input_count);
        return 1;
    default:
        return cb_graph_run(function->target.graph, x, input_count, output, CB_MAX_ARGS);
    }
}

/* A NULL where the function gives one tensor is a failure, and has an error. */
static int check_result(const Function *function, Tensor **output, int count) {
    if (function->callee == CALL_N || function->callee == CALL_GRAPH || output[0]) return count;
    if (cb_error_status() != CB_OK) return cb_error_status();
    return fail(CB_ERR_ARGUMENT, "call: the function gave NULL and recorded no error");
}

/* output has OUTPUT_ROOM places. The thread's line is the call's again when the function is
 * done. */
static int invoke(const Function *function, Tensor *const *x, int input_count, Tensor **output) {
    Site site = site_current();
    AutocastFrame frame = autocast_enter();
    autocast_set(function_autocast(function));
    if (function->callee == CALL_N) memset(output, 0, sizeof *output * CB_MAX_ARGS);
    int count = invoke_target(function, x, input_count, output);
    site_set(site);
    if (!autocast_leave(frame))
        return fail(CB_ERR_ARGUMENT, "call: the function opened an autocast and did not close it");
    return check_result(function, output, count);
}

static bool real_result(const Tensor *x, Tensor *const *input, int input_count) {
    if (!x || x->kept) return false;
    for (int i = 0; i < input_count; i++)
        if (x == input[i]) return false;
    return true;
}

/* Closes the function's scope, from which its results are saved into the caller's. Tensors that it
 * kept, or that live in other scopes, stay where they are. */
static void close_scope(Tensor *const *input, int input_count, Tensor **output, int count) {
    bool moved[CB_MAX_ARGS];
    const Meta scalar = {.dtype = CB_BOOL};
    Tensor *marker =
        tensor_shell(&scalar); /* lies in the function's scope, which has no other name */
    for (int k = 0; k < count; k++) {
        Tensor *x = output[k];
        moved[k] = real_result(x, input, input_count) && (!marker || x->scope == marker->scope);
        if (moved[k]) cb_keep(x);
    }
    cb_scope_close();
    for (int k = 0; k < count; k++)
        if (moved[k]) cb_release(output[k]);
}

/* call NULL: eagerly. */
static int run_function(const Function *function, Call *call, Tensor *const *input, int input_count,
                        Tensor **output) {
    Tensor *stand_in[CB_MAX_ARGS];
    cb_scope_open();
    int count;
    if (!call || !function->options.fullgraph)
        count = invoke(function, input, input_count, output);
    else if (call_stand_ins(call, stand_in))
        count = invoke(function, stand_in, input_count, output);
    else
        count = CB_ERR_MEMORY;
    if (count > CB_MAX_ARGS)
        count = fail(CB_ERR_ARGUMENT, "call: the function returned %d tensors, more than %d", count,
                     CB_MAX_ARGS);
    close_scope(input, input_count, output, count > 0 ? count : 0);
    return count;
}

/* ---- ways of a call -------------------------------------------------------------------------- */

static int call_eagerly(Function *function, Tensor *const *input, int input_count,
                        Tensor **output) {
    atomic_fetch_add_explicit(&function->eager_calls, 1, memory_order_relaxed);
    return run_function(function, NULL, input, input_count, output);
}

/* The entry is known and its results are shells: launches it. False: nothing has happened. */
static bool launch(const Call *call) {
    const Entry *entry = call->entry;
    Tensor *local[LOCAL_VALUES], **graph_output = local;
    if (entry->graph_output_count > LOCAL_VALUES)
        graph_output = memory_alloc(sizeof *graph_output * (size_t)entry->graph_output_count);
    bool done = graph_output && entry_run(entry, call->value, graph_output);
    if (done) {
        entry_settle(entry, call->value, graph_output);
        for (int k = 0; k < entry->graph_output_count; k++) tensor_destroy(graph_output[k]);
    }
    if (graph_output != local) memory_free(graph_output);
    return done;
}

/* What an entry cannot do, its ops can, one by one: where the order of writes matters, and after a
 * step that failed, before which ops may have written to inputs. */
static void launch_or_run(Call *call, cb_status before) {
    char detail[160];
    if (!entry_writes_apart(call->entry, call->value, detail, sizeof detail)) {
        function_note(call->function, REASON_written_overlap, site_current(), "%s", detail);
        atomic_fetch_add(&call->function->breaks, 1);
        go_eager(call);
    } else if (!launch(call)) {
        if (before == CB_OK) cb_clear_error(); /* the op that fails says it, at its own line */
        go_eager(call);
    }
}

/* The function has returned: its trace is completed, compiled if it is new, and launched. */
static bool complete(Call *call, Tensor **output, int count, cb_status before) {
    int value[CB_MAX_ARGS];
    if (!call_end(call, output, count, value)) return call->mode == CALL_IS_EAGER;
    if (call->mode == CALL_RECORDS) {
        if (call->function->options.fullgraph && length(call->trace->escaped)) {
            fail(CB_ERR_COMPILE, "fullgraph: the function keeps a tensor that it does not return");
            return false;
        }
        call->entry = entry_make(call);
        if (!call->entry) return call_break(call, REASON_out_of_memory, "while compiling");
        call->trace = call->entry->trace;
    }
    launch_or_run(call, before);
    return true;
}

/* The function has returned. What it did stays done when it failed, as in eager; where it dealt
 * with the failure itself, it goes on. False: an error. */
static bool settle(Call *call, Tensor **output, int count, cb_status before) {
    bool good = count >= 0 && (before != CB_OK || cb_error_status() == CB_OK);
    if (call->mode == CALL_IS_EAGER || call->refused) return good && !call->lost;
    if (!good)
        go_eager(call);
    else if (call->failed)
        good = call_break(call, REASON_unsupported_call, "an op failed");
    else
        good = complete(call, output, count, before);
    return good && !call->lost;
}

static int call_traced_function(Function *function, Tensor *const *input, int input_count,
                                Entry *entry, Tensor **output) {
    Call call;
    call.start_ms = entry ? 0 : clock_ms();
    cb_status before = cb_error_status();
    if (!call_start(&call, function, input, input_count, entry)) {
        call_finish(&call);
        function_note(function, REASON_out_of_memory, site_current(), "before recording");
        return call_eagerly(function, input, input_count, output);
    }
    tracer_set(&call.tracer);
    int count = run_function(function, &call, input, input_count, output);
    tracer_set(NULL);
    bool done = settle(&call, output, count, before);
    if (call.mode == CALL_IS_EAGER)
        atomic_fetch_add_explicit(&function->eager_calls, 1, memory_order_relaxed);
    call_finish(&call);
    for (int k = 0; done && k < count; k++) {
        int v = output[k] ? call_traced(&call, output[k]) : NO_VALUE;
        if (v != NO_VALUE) output[k] = input[v]; /* for which it stood */
    }
    if (done) return count;
    for (int k = 0; k < count; k++) output[k] = NULL;
    if (count < 0) return count;
    return cb_error_status() != CB_OK ? cb_error_status() : CB_ERR_COMPILE;
}

static Entry *find_entry(Function *function, Tensor *const *input, int input_count) {
    uint64_t state = function_state(function);
    cb_dtype autocast = function_autocast(function);
    bool reduced = precision_reduced();
    for (Entry *e = atomic_load(&function->first); e; e = atomic_load(&e->next))
        if (e->state == state && e->autocast == autocast && e->reduced == reduced &&
            entry_guards_hold(e, input, input_count) &&
            (!function->options.fullgraph || frozen_all_hold(e, NULL)))
            return e;
    return NULL;
}

/* Without an entry: true when one more may be recorded. */
static bool may_record(Function *function, Tensor *const *input, int input_count) {
    int count = atomic_load(&function->entry_count);
    if (count == 0) return true;
    char miss[256];
    Reason why = miss_describe(function, input, input_count, miss, sizeof miss);
    bool more = count < function_limit();
    function_note(function, more ? why : REASON_recompile_limit, site_current(), "%s", miss);
    return more;
}

static bool inputs_valid(const Function *function, Tensor *const *input, int input_count) {
    int wanted = takes(function);
    if (input_count < 0 || input_count > CB_MAX_ARGS || (wanted >= 0 && input_count != wanted)) {
        fail(CB_ERR_ARGUMENT, "call: the function takes %d tensors, not %d",
             wanted >= 0 ? wanted : CB_MAX_ARGS, input_count);
        return false;
    }
    for (int i = 0; i < input_count; i++) {
        if (input[i] && (input[i]->storage || tracer_current())) continue;
        fail(CB_ERR_ARGUMENT, "call: input %d %s", i, input[i] ? "has no value" : "is NULL");
        return false;
    }
    return true;
}

static int call_into(Function *function, Tensor *const *input, int input_count, Tensor **output) {
    if (!inputs_valid(function, input, input_count)) return cb_error_status();
    if (tracer_current()) return invoke(function, input, input_count, output); /* inlined */
    atomic_fetch_add_explicit(&function->calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&function->eager, memory_order_relaxed))
        return call_eagerly(function, input, input_count, output);
    Entry *entry = find_entry(function, input, input_count);
    if (!entry && !may_record(function, input, input_count))
        return call_eagerly(function, input, input_count, output);
    if (entry && function->options.fullgraph) return entry_call(entry, input, output);
    return call_traced_function(function, input, input_count, entry, output);
}

/* ---- the public API ------------------------------------------------------------------------ */

int cb_call_n(cb_function *function, cb_tensor *const *inputs, int input_count, cb_tensor **outputs,
              int capacity) {
    Tensor *output[OUTPUT_ROOM];
    if (!function || (!inputs && input_count) || (!outputs && capacity))
        return fail(CB_ERR_ARGUMENT, "call: the function or an array is NULL");
    int count = call_into(function, inputs, input_count, output);
    if (count > capacity)
        return fail(CB_ERR_ARGUMENT, "call: %d results do not fit into an array of %d", count,
                    capacity);
    if (count > 0) memcpy(outputs, output, sizeof *output * (size_t)count);
    return count;
}

cb_tensor *cb_call_1(cb_function *function, cb_tensor *const *inputs, int input_count) {
    Tensor *output[CB_MAX_ARGS];
    int count = cb_call_n(function, inputs, input_count, output, CB_MAX_ARGS);
    if (count == 0) fail(CB_ERR_ARGUMENT, "call: the function gave no result");
    return count > 0 ? output[0] : NULL;
}

static cb_function *make(Callee callee, const char *options, bool present) {
    FunctionOptions parsed;
    if (!present) {
        fail(CB_ERR_ARGUMENT, "compile: there is nothing to compile: NULL");
        return NULL;
    }
    if (!options_parse(options, &parsed)) return NULL;
    Function *function = memory_zalloc(sizeof *function);
    if (!function) {
        fail_memory(sizeof *function);
        return NULL;
    }
    function->callee = callee;
    function->options = parsed;
    if (parsed.mode == 1 || parsed.mode == 2)
        function_note(function, REASON_mode_cuda_graphs, (Site){0}, "%s", "");
    if (parsed.dynamic == DYNAMIC_ASKED)
        function_note(function, REASON_static_sizes, (Site){0}, "%s", "");
    return function;
}

cb_function *cb_compile_1(cb_function_1 *target, const char *options) {
    Function *function = make(CALL_1, options, target);
    if (function) function->target.one = target;
    return function;
}

cb_function *cb_compile_2(cb_function_2 *target, const char *options) {
    Function *function = make(CALL_2, options, target);
    if (function) function->target.two = target;
    return function;
}

cb_function *cb_compile_3(cb_function_3 *target, const char *options) {
    Function *function = make(CALL_3, options, target);
    if (function) function->target.three = target;
    return function;
}

cb_function *cb_compile_4(cb_function_4 *target, const char *options) {
    Function *function = make(CALL_4, options, target);
    if (function) function->target.four = target;
    return function;
}

cb_function *cb_compile_n(cb_function_n *target, void *user, const char *options) {
    Function *function = make(CALL_N, options, target);
    if (!function) return NULL;
    function->target.any = target;
    function->user = user;
    return function;
}

cb_function *cb_compile_module(cb_module *target, const char *options) {
    Function *function = make(CALL_MODULE, options, target);
    if (function) function->target.module = target;
    return function;
}

cb_function *cb_compile_graph(cb_graph *target, const char *options) {
    Function *function = make(CALL_GRAPH, options, target);
    if (function) function->target.graph = target;
    return function;
}

void cb_function_free(cb_function *function) {
    if (!function) return;
    for (Entry *e = atomic_load(&function->first), *next; e; e = next) {
        next = atomic_load(&e->next);
        entry_free(e);
    }
    memory_free(function);
}

void cb_cleanup(void) {
    eager_cleanup();
    code_cleanup();
    tensor_cleanup();
    option_reset();
}
