/* Compiled functions: the public API, and which way a call goes (call.c).
 *
 *     cb_call -> the guards of an entry hold?
 *         yes:                the function runs, its ops are matched, the entry is launched
 *         no:                 the function runs, its ops are recorded, an entry is made
 *         yes, and fullgraph: the entry is launched, the function does not run */
#include "capture/find.h"
#include "capture/functional.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/option.h"
#include "eager/eager.h"
#include "eager/tape.h"
#include "fx/fx.h"
#include "jit/code.h"
#include "jit/family.h"
#include "nn/module.h"
#include "tensor/thread.h"
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

const char *function_title(const Function *function) {
    return *function->name ? function->name : "the function";
}

int function_limit(void) { return (int)option_int(OPTION_recompile_limit); }

void call_begins_recording(Call *call) {
    call->start_ms = clock_ms();
    call->number = atomic_fetch_add(&call->function->begun, 1);
}

void call_drops_number(const Call *call, int *number) {
    int last = *number + 1;
    if (*number >= 0) atomic_compare_exchange_strong(&call->function->begun, &last, *number);
    *number = -1;
}

void call_drops_recording(Call *call) {
    if (call->recording && call->recording->trace) call_drops_number(call, &call->number);
}

/* The last one is of all for which there is no room. */
static Note *note_of(Function *function, Reason reason, Site site) {
    for (int i = 0; i < function->note_count; i++)
        if (function->note[i].reason == reason && site_same(function->note[i].site, site))
            return &function->note[i];
    if (function->note_count >= MAX_NOTES - 1) reason = REASON_notes_full, site = (Site){0};
    if (function->note_count < MAX_NOTES)
        function->note[function->note_count++] = (Note){.reason = reason, .site = site};
    return &function->note[function->note_count - 1];
}

void function_note(Function *function, Reason reason, Site site, const char *format, ...) {
    char detail[sizeof function->note->detail];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    lock_take(function_lock(function));
    Note *note = note_of(function, reason, site);
    if (!note->count++ && note->reason == reason)
        snprintf(note->detail, sizeof note->detail, "%s", detail);
    bool first = note->count == 1;
    bool tells = stance_tells(reason) && (note->reason == reason ? first : !function->told);
    function->told |= tells;
    lock_give(function_lock(function));
    if (tells) stance_notice(function, reason, site, detail);
    if (first && strchr(option_text(OPTION_dump), 'c'))
        fprintf(stderr, "capture: %s%s%s\n", reason_info(reason)->text, *detail ? ": " : "",
                detail);
}

int function_notes(Function *function, Note note[MAX_NOTES]) {
    lock_take(function_lock(function));
    int count = function->note_count;
    memcpy(note, function->note, sizeof *note * (size_t)count);
    lock_give(function_lock(function));
    return count;
}

/* ---- choosing an entry ---------------------------------------------------------------------- */

static int takes(const Function *function) {
    return function->callee <= CALLEE_4 ? (int)function->callee + 1 : -1;
}

/* fullgraph: what the function would find, and be told, is what it was. */
static bool holds_without_function(const Entry *entry, Tensor *const *input) {
    return frozen_all_hold(entry, NULL) && leaves_hold(entry, input) && answers_hold(entry, input);
}

static bool begins_call(const Entry *entry, Ambient now, Tensor *const *input, int input_count) {
    return !entry->resumes && entry_holds(entry, now, grad_mode(), input, input_count) &&
           (!entry->function->options.fullgraph || holds_without_function(entry, input));
}

/* What followed the entry of the last call when that was met before, or that one itself: calls go
 * around in a circle, as positions of a ring do, or mostly have the sizes of one shortly before. */
static Entry *find_guessed(const Function *function, Ambient now, Tensor *const *input,
                           int input_count) {
    Entry *last = atomic_load_explicit(&function->last, memory_order_acquire);
    Entry *after = last ? atomic_load_explicit(&last->after, memory_order_acquire) : NULL;
    if (atomic_load_explicit(&function->joins, memory_order_relaxed)) return NULL;
    if (after && begins_call(after, now, input, input_count)) return entry_widest(after);
    if (last && last != after && begins_call(last, now, input, input_count))
        return entry_widest(last);
    return NULL;
}

/* That, or the first of the list. */
static Entry *find_entry(Function *function, Ambient now, Tensor *const *input, int input_count) {
    Entry *e = find_guessed(function, now, input, input_count);
    if (e) return e;
    e = atomic_load(&function->first);
    for (int i = 0; e && i < FEW_ENTRIES; e = atomic_load(&e->next), i++)
        if (begins_call(e, now, input, input_count)) return entry_widest(e);
    if (!e) return NULL;
    uint64_t key = find_key_of_inputs(input, input_count);
    for (e = NULL; (e = find_by(function, FIND_BY_INPUTS, key, e));)
        if (begins_call(e, now, input, input_count)) return entry_widest(e);
    return NULL;
}

/* One that begins with the function. */
static bool has_entry(const Function *function) {
    const Entry *e = atomic_load(&function->first);
    while (e && e->resumes) e = atomic_load(&e->next);
    return e;
}

/* Without an entry: what speaks against one more, or REASON_NONE; miss: why there is none; again:
 * the same for one beside others. */
static Reason find_obstacle(Function *function, Ambient now, Tensor *const *input, int input_count,
                            char *miss, size_t bytes, TraceAgain *again) {
    bool resized = function_find_resized(function, input, input_count);
    int count = function_alternatives(function, false, resized);
    Reason obstacle = stance_find(count, function_limit()), why = obstacle;
    bool passes = obstacle == REASON_NONE && resized;
    if (passes && function_lets_pass(function, input, input_count)) obstacle = REASON_sizes_pass;
    snprintf(miss, bytes, "it is not compiled yet");
    bool known = has_entry(function);
    if (known) why = miss_describe(function, now, input, input_count, miss, bytes);
    if (obstacle == REASON_recompile_limit) miss_advise(function, miss, bytes);
    if (obstacle != REASON_NONE) function_note(function, obstacle, site_current(), "%s", miss);
    *again = (TraceAgain){why, site_current(), known ? miss : NULL};
    return obstacle;
}

static bool input_count_valid(const Function *function, int count) {
    int wanted = takes(function);
    if (count >= 0 && count <= CB_MAX_ARGS && (wanted < 0 || count == wanted)) return true;
    if (wanted < 0) wanted = CB_MAX_ARGS;
    fail(CB_ERR_ARGUMENT, "call: %s takes %d tensor%s, not %d", function_title(function), wanted,
         plural(wanted), count);
    return false;
}

#define STANDS_LIKE(id, device)                                                                    \
    _Static_assert((int)INPUTS_ON_##id - INPUTS_ANYWHERE - 1 == (int)DEVICE_##id,                  \
                   "the option device counts them in the order of DEVICES");
DEVICES(STANDS_LIKE)
#undef STANDS_LIKE

/* As the option device wants it. Tensors without dimensions may lie on the host. */
static bool input_placed(const Function *function, const Tensor *x, int i) {
    if (function->options.device == INPUTS_ANYWHERE) return true;
    int device = function->options.device - INPUTS_ANYWHERE - 1;
    if (x->device == device || (x->rank == 0 && device_is_host(x->device))) return true;
    fail(CB_ERR_ARGUMENT, "call: input %d lies on %s, and %s was compiled for %s", i,
         devices[x->device]->name, function_title(function), devices[device]->name);
    return false;
}

static bool inputs_valid(const Function *function, Tensor *const *input, int input_count) {
    for (int i = 0; i < input_count; i++) {
        if (input[i] && !input_placed(function, input[i], i)) return false;
        if (input[i] && (input[i]->storage || tracer_current())) continue;
        fail(CB_ERR_ARGUMENT, "call: input %d %s", i, input[i] ? "has no value" : "is NULL");
        return false;
    }
    return true;
}

/* ---- forgetting ----------------------------------------------------------------------------- */

static _Atomic uint64_t resets;

static __attribute__((noinline, cold)) void forget(Function *function, uint64_t reset) {
    lock_take(function_lock(function));
    if (atomic_load(&function->reset) != reset) {
        function_retire_all(function);
        atomic_store(&function->entry_count, 0);
        atomic_store(&function->begun, 0);
        atomic_store(&function->recompiles, 0);
        atomic_store(&function->compiled, 0);
        atomic_store(&function->loaded, 0);
        atomic_store(&function->breaks, 0);
        atomic_store(&function->lost_calls, 0);
        atomic_store(&function->eager, REASON_NONE);
        atomic_store(&function->keeps_history, false);
        atomic_store(&function->follows_inputs, false);
        atomic_store(&function->breaks_again, false);
        atomic_store(&function->joins, false);
        for (int i = 0; i < PASSED_PLACES; i++) atomic_store(&function->passed[i], 0);
        atomic_store(&function->reset, reset);
    }
    lock_give(function_lock(function));
}

cb_status cb_reset(void) {
    if (!tensor_may_cleanup("reset")) return cb_error_status();
    atomic_fetch_add(&resets, 1);
    return CB_OK;
}

/* ---- calling -------------------------------------------------------------------------------- */

/* fullgraph: the function does not run. */
static __attribute__((noinline)) int call_whole(Entry *entry, Tensor *const *input, CallResults out,
                                                int64_t ns) {
    Tensor *output[CB_MAX_ARGS];
    entry_use(entry);
    entry_begins(entry);
    int count = entry_call(entry, input, output);
    if (ns && count >= 0) entry_called(entry, ns);
    call_hand_over(output, count, out);
    return count;
}

/* By an entry, or a new one. ns: when the call began, where that is asked for. *eager: it is for
 * the ops to run. */
static int call_compiled(Function *function, Tensor *const *input, int input_count, CallResults out,
                         int64_t ns, bool *eager) {
    Ambient now = function_ambient(function);
    function_enter(function);
    Entry *entry = find_entry(function, now, input, input_count);
    char miss[256];
    Reason obstacle = REASON_NONE;
    CallStart start = {.ns = entry && entry_times_calls(entry) ? ns : 0};
    if (!entry)
        obstacle =
            find_obstacle(function, now, input, input_count, miss, sizeof miss, &start.again);
    bool whole = entry && function->options.fullgraph;
    if (obstacle == REASON_NONE && !whole) /* which leaves the function */
        return call_traced_function(function, now, input, input_count, entry, &start, out);
    int count = 0;
    if (whole) {
        count = call_whole(entry, input, out, start.ns);
    } else if (stance_refuses(function, obstacle)) {
        const ReasonInfo *info = reason_info(obstacle);
        count = fail(CB_ERR_COMPILE, "call: %s%s: %s (%s)", info->text,
                     function->options.fullgraph ? ", which fullgraph=1 refuses" : "", miss,
                     info->hint);
    } else {
        *eager = true;
    }
    function_leave(function);
    return count;
}

/* An input that is no leaf and has a history, or NO_VALUE. */
static int find_history(Tensor *const *input, int input_count) {
    for (int i = 0; i < input_count; i++)
        if (tape_kind(input[i], true) == HISTORY_FOREIGN) return i;
    return NO_VALUE;
}

/* A call before ended with a result to go back from, or went on from such an input, which this one
 * has, too. */
static bool needs_tape(const Function *function, Tensor *const *input, int input_count) {
    return atomic_load_explicit(&function->keeps_history, memory_order_relaxed) ||
           (atomic_load_explicit(&function->follows_inputs, memory_order_relaxed) &&
            find_history(input, input_count) != NO_VALUE);
}

void function_keep_history(Function *function, const char *why) {
    lock_take(function_lock(function));
    snprintf(function->kept_history, sizeof function->kept_history, "%s", why);
    lock_give(function_lock(function));
    atomic_store(&function->keeps_history, true);
}

static void say_before(Function *function, char *out, size_t bytes) {
    lock_take(function_lock(function));
    snprintf(out, bytes, "as in a call before: %s", function->kept_history);
    lock_give(function_lock(function));
}

/* While gradients are recorded, op by op. */
static void note_gradients(Function *function, Tensor *const *input, int input_count) {
    char name[32], what[400];
    int i = find_history(input, input_count);
    snprintf(name, sizeof name, "input %d", i);
    if (i != NO_VALUE)
        history_describe(name, input[i], what, sizeof what);
    else
        say_before(function, what, sizeof what);
    function_note(function, REASON_gradients, site_current(), "%s", what);
}

/* A call runs op by op, whatever is compiled. */
static bool runs_plainly(Function *function, Tensor *const *input, int input_count,
                         int64_t calls_before) {
    bool gradients = tape_in_use() && needs_tape(function, input, input_count);
    bool breaks = !gradients && checkpoint_current() &&
                  atomic_load_explicit(&function->breaks_again, memory_order_relaxed);
    if (gradients) note_gradients(function, input, input_count);
    if (breaks)
        function_note(function, REASON_checkpoint_breaks, site_current(), "as in a call before");
    if (gradients || breaks) return true;
    /* Its own backend calls it, which compiles for it. */
    bool compiles = atomic_load_explicit(&function->maker, memory_order_relaxed) == &thread_state;
    bool plain = compiles || !stance_runs(function, calls_before);
    if (plain && !compiles && !atomic_load_explicit(&function->eager, memory_order_relaxed))
        function_note(function, REASON_asked_eager, site_current(), "%s", "");
    return plain;
}

static int call_into(Function *function, Tensor *const *input, int input_count, CallResults out,
                     int64_t ns) {
    if (tracer_current()) return call_plainly(function, input, input_count, out); /* inlined */
    int64_t before = atomic_fetch_add_explicit(&function->calls, 1, memory_order_relaxed);
    uint64_t reset = atomic_load_explicit(&resets, memory_order_relaxed);
    if (atomic_load_explicit(&function->reset, memory_order_acquire) != reset)
        forget(function, reset);
    int plain; /* in a checkpoint's function that runs again: as it was in the first run */
    bool inside = checkpoint_current();
    if (!inside || !checkpoint_told(&plain)) {
        plain = runs_plainly(function, input, input_count, before);
        if (inside && !checkpoint_tell(plain)) return cb_error_status();
    }
    bool eager = plain;
    int count = plain ? 0 : call_compiled(function, input, input_count, out, ns, &eager);
    return eager ? call_eagerly(function, input, input_count, out) : count;
}

/* ---- the public API ------------------------------------------------------------------------ */

/* The count of all results, or a negative status. */
static int call(Function *function, cb_tensor *const *inputs, int input_count, CallResults out) {
    if (!function || (!inputs && input_count) || !out.at)
        return fail(CB_ERR_ARGUMENT, "call: the function or an array is NULL");
    if (!tomb_lives(&function->tomb, "call: the compiled function")) return cb_error_status();
    bool timed = atomic_load_explicit(&function->timed, memory_order_relaxed);
    int64_t ns = timed ? clock_ns() : 0;
    if (!input_count_valid(function, input_count)) return cb_error_status();
    Tensor *input[input_count + 1];
    bool good = tensors_in(inputs, input_count, "call", input) &&
                inputs_valid(function, input, input_count);
    return good ? call_into(function, input, input_count, out, ns) : cb_error_status();
}

int cb_call_n(cb_function *function, cb_tensor *const *inputs, int input_count, cb_tensor **outputs,
              int capacity) {
    frames_check();
    int room = output_room_of(capacity);
    Tensor *output[room + 1];
    CallResults out = {outputs || !capacity ? output : NULL, room};
    int count = call(function, inputs, input_count, out);
    if (count > capacity)
        return fail(CB_ERR_ARGUMENT, "call: %d results do not fit into an array of %d", count,
                    capacity);
    tensors_out(output, count, outputs);
    return count;
}

cb_tensor *cb_call_1(cb_function *function, cb_tensor *const *inputs, int input_count) {
    frames_check();
    Tensor *first = NULL;
    int count = call(function, inputs, input_count, (CallResults){&first, 1});
    if (count == 0) fail(CB_ERR_ARGUMENT, "call: the function gave no result");
    return count > 0 ? tensor_out(first) : NULL;
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
    atomic_init(&function->orders, parsed.backward == BACKWARD_ORDERS);
    atomic_init(&function->reset, atomic_load(&resets));
    function->made = site_current();
    if (parsed.mode == MODE_REDUCE_OVERHEAD || parsed.mode == MODE_MAX_AUTOTUNE)
        function_note(function, REASON_mode_cuda_graphs, (Site){0}, "%s", "");
    ambient_watch();
    return function;
}

/* It is complete: from here on the end of the program, in any thread, may tell of it. */
static cb_function *watched(Function *function) {
    watch_begin(function);
    return function;
}

/* "ns::step" of "ns::step, \"fullgraph=1\""; no name of any other expression. */
cb_function *cb_compiled_as(cb_function *function, const char *text) {
    if (!function || function->callee > CALLEE_N) return function;
    const char *name = text + (*text == '&');
    size_t length = 0;
    while (isalnum((unsigned char)name[length]) || name[length] == '_' || name[length] == ':')
        length++;
    size_t blank = strspn(name + length, " ");
    bool ends = !name[length + blank] || name[length + blank] == ',';
    if (ends && length < sizeof function->name) watch_name(function, name, length);
    return function;
}

cb_function *cb_compile_1(cb_function_1 *target, const char *options) {
    Function *function = make(CALLEE_1, options, target);
    if (!function) return NULL;
    function->target.one = target;
    return watched(function);
}

cb_function *cb_compile_2(cb_function_2 *target, const char *options) {
    Function *function = make(CALLEE_2, options, target);
    if (!function) return NULL;
    function->target.two = target;
    return watched(function);
}

cb_function *cb_compile_3(cb_function_3 *target, const char *options) {
    Function *function = make(CALLEE_3, options, target);
    if (!function) return NULL;
    function->target.three = target;
    return watched(function);
}

cb_function *cb_compile_4(cb_function_4 *target, const char *options) {
    Function *function = make(CALLEE_4, options, target);
    if (!function) return NULL;
    function->target.four = target;
    return watched(function);
}

cb_function *cb_compile_n(cb_function_n *target, void *user, const char *options) {
    Function *function = make(CALLEE_N, options, target);
    if (!function) return NULL;
    function->target.any = target;
    function->user = user;
    return watched(function);
}

cb_function *cb_compile_module(cb_module *target, const char *options) {
    if (target && !module_lives(target, "compile: the module")) return NULL;
    Function *function = make(CALLEE_MODULE, options, target);
    if (!function) return NULL;
    function->target.module = target;
    snprintf(function->name, sizeof function->name, "%s", target->type);
    return watched(function);
}

cb_function *cb_compile_graph(cb_graph *target, const char *options) {
    if (target && !fx_lives(target, "compile: the graph")) return NULL;
    Function *function = make(CALLEE_GRAPH, options, target);
    if (!function) return NULL;
    function->target.graph = target;
    return watched(function);
}

void cb_function_free(cb_function *function) {
    frames_check(); /* a call of it that was left by a jump stands on its entries */
    if (!function || !tomb_lives(&function->tomb, "free: the compiled function")) return;
    if (frames_run(function)) {
        fail(CB_ERR_ARGUMENT, "free: the compiled function runs: free it when its call has ended");
        return;
    }
    watch_end(function);
    function_retire_all(function);
    entries_free(atomic_load(&function->left));
    tomb_bury(&function->tomb);
}

void cb_cleanup(void) {
    if (!tensor_may_cleanup("cleanup")) return;
    worker_close();
    eager_cleanup();
    families_cleanup();
    code_cleanup();
    tensor_cleanup();
    tombs_cleanup();
    devices_close();
    option_reset();
    arenas_cleanup();
}
