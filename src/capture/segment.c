/* Segments: a call is cut where somebody asks for a value, and goes on behind it.
 *
 *     y = mul(x, x)               segment 0 ends at the event, and runs:
 *     s = sum(y)                    s crosses, since it is asked for; y does too, since it is
 *     if (cb_item(s) > 1)           used behind the event
 *         return sqrt(y)          segment 1, one of those that may follow
 *
 * What stays alive without having crossed *waits*: its shell has no value, and the segment that was
 * left (LeftSegment) knows how to compute it, op by op, should anybody use it after all. That is
 * remembered in the trace (crosses), and at the end of the call the segment is compiled once more,
 * wider.
 *
 * The first time, a segment runs op by op at its event, and is compiled when the call has ended, or
 * when it has come by MANY_ROUNDS times: by then it is known what crosses.
 *
 * Nothing waits for what a later write would change: before a segment writes to memory that a left
 * one reads, that one's waiting values are computed; and of a segment that itself writes, has
 * effects, or ends where the ambient state is set to something else, everything that lives crosses.
 * Random numbers wait with the state that they were first drawn from. */
#include "capture/segment.h"
#include "capture/functional.h"

#include "base/clock.h"
#include "base/memory.h"
#include "eager/tape.h"
#include "graph/node.h"
#include <string.h>

enum { MANY_ROUNDS = 3 };

/* ---- what crosses ---------------------------------------------------------------------------- */

static int root_of(const Trace *trace, int v) { return trace->value[v].root; }

static bool is_computed(const Trace *trace, int v) {
    return trace->value[root_of(trace, v)].kind == VALUE_IS_RESULT;
}

/* Views of real tensors take no computing, so they always cross. */
static bool crosses(const Trace *trace, int v) {
    return !is_computed(trace, v) || atomic_load(&trace->crosses[root_of(trace, v)]);
}

/* All values on a storage cross, or none. */
static void list_crossing(Trace *trace) {
    trace->escaped = NULL;
    for (int v = 0; v < length(trace->value); v++)
        if (trace->value[v].kind == VALUE_IS_RESULT && crosses(trace, v))
            push(trace->arena, trace->escaped, v);
}

/* The storage of its own tensors that an op writes, NO_VALUE: none, or what the trace made
 * itself. */
static int written_by(const Trace *trace, int op) {
    if (trace->op[op].op != OP_assign) return NO_VALUE;
    int root = root_of(trace, trace->op[op].input[0].value);
    return trace->value[root].kind == VALUE_IS_RESULT ? NO_VALUE : root;
}

/* What it does besides its values would be done again by what waits. */
static bool acts(const Trace *trace) {
    for (int i = 0; i < length(trace->op); i++)
        if (written_by(trace, i) != NO_VALUE || trace_has_effects(&trace->op[i])) return true;
    return false;
}

static int64_t *arguments_of(const LeftSegment *left) {
    return (int64_t *)(void *)(left->value + left->values);
}

static size_t value_bytes(int values, int arguments) {
    return sizeof(Tensor *) * (size_t)(values + 1) + sizeof(int64_t) * (size_t)arguments;
}

/* The recording ends at an event. False: no memory. */
static bool mark_end(Recording *recording) {
    Trace *trace = recording->trace;
    if (arena_guard(trace->arena)) return false;
    trace->goes_on = true;
    trace->crosses = arena_new_array(trace->arena, atomic_bool, length(trace->value) + 1);
    return true;
}

/* False where what lives here would have to wait and may not. */
static bool may_wait(const Call *call, const Trace *trace) {
    for (int v = 0; trace->whole && v < call->bound; v++)
        if (call->value[v] && trace->value[v].kind == VALUE_IS_RESULT && !crosses(trace, v))
            return false;
    return true;
}

bool segment_ends_here(const Call *call) {
    const Trace *trace = call->trace;
    return trace->goes_on && length(trace->op) == call->at && may_wait(call, trace);
}

/* ---- what was left --------------------------------------------------------------------------- */

static void link_left(Call *call, LeftSegment *left) {
    left->next = call->left;
    if (call->left) call->left->previous = left;
    call->left = left;
}

static void free_left(Call *call, LeftSegment *left) {
    if (left->previous)
        left->previous->next = left->next;
    else
        call->left = left->next;
    if (left->next) left->next->previous = left->previous;
    for (int k = 0; k < left->shells; k++) {
        Tensor *x = left->shell[k].x;
        promise_forget(&left->shell[k], call->mode != CALL_IS_EAGER);
        if (!x) continue;
        x->trace = 0, x->value = NULL;
        if (!x->storage) leaf_forget(x);
    }
    for (int v = 0; v < left->values; v++) tensor_destroy(left->value[v]);
    record_free(left->recording);
    memory_free(left->version);
    memory_free(left->value);
    memory_free(left);
}

/* The end of the call has nothing to do with it any more. */
static bool is_over(const LeftSegment *left) {
    return !left->alive && !left->recording && !left->missed && !left->leads;
}

static bool is_shell(const Call *call, int v) {
    return call->value[v] && call->trace->value[v].kind == VALUE_IS_RESULT;
}

/* Shells without a value wait; those of a recording are all watched, to learn what crosses; those
 * with a history are promised it. */
static bool stays(const Call *call, int v) {
    return is_shell(call, v) &&
           (call->recording || !call->value[v]->storage || call->trace->value[v].tracked);
}

static void take_shells(Call *call, LeftSegment *left) {
    for (int v = 0; v < left->values; v++) {
        if (!stays(call, v)) continue;
        LeftShell *shell = &left->shell[left->shells++];
        *shell = (LeftShell){left, call->value[v], v, NULL};
        shell->x->trace = call->left_serial;
        shell->x->value = shell;
        call->value[v] = NULL;
    }
    left->alive = left->shells;
}

/* The caller's tensors as views of our own. False: no memory. */
static bool view_inputs(const Call *call, LeftSegment *left) {
    for (int i = 0; i < call->input_count; i++) {
        if (call_owns_input(call, i)) continue;
        left->value[i] = cb_keep(tensor_double(call->value[i]));
        if (!left->value[i]) return false;
    }
    return true;
}

/* What the call has views of already. */
static void take_operands(Call *call, LeftSegment *left) {
    for (int v = 0; v < left->values; v++) {
        if (left->value[v] || call->trace->value[v].kind == VALUE_IS_RESULT) continue;
        left->value[v] = call->value[v];
        call->value[v] = NULL;
    }
    call->own_inputs = 0;
}

static void free_reserved(LeftSegment *left) {
    for (int v = 0; v < left->values; v++) tensor_destroy(left->value[v]);
    memory_free(left->value);
    memory_free(left);
}

/* All that a segment of so many shells asks memory for. NULL: there is none. */
static LeftSegment *reserve_left(const Call *call, int shells) {
    int values = length(call->trace->value), arguments = call->trace->argument_count;
    LeftSegment *left = memory_zalloc(sizeof *left + sizeof *left->shell * (size_t)shells);
    Tensor **value = memory_zalloc(value_bytes(values, arguments));
    if (!left || !value) {
        memory_free(left), memory_free(value);
        return NULL;
    }
    *left = (LeftSegment){.trace = call->trace,
                          .entry = call->entry,
                          .ambient = call->ambient,
                          .value = value,
                          .values = values,
                          .input_count = call->input_count,
                          .resumes = call->resumed};
    if (view_inputs(call, left)) return left;
    free_reserved(left);
    return NULL;
}

bool segment_reserve(Call *call) {
    const Trace *trace = call->trace;
    int shells = 0, waiting;
    for (int v = 0; v < length(trace->value); v++) shells += is_shell(call, v);
    waiting = shells;
    for (int k = 0; k < length(trace->escaped); k++)
        waiting -= is_shell(call, trace->escaped[k]) && !trace->value[trace->escaped[k]].tracked;
    if (waiting) call->reserved = reserve_left(call, shells);
    return !waiting || call->reserved;
}

void segment_drop_reserved(Call *call) {
    if (call->reserved) free_reserved(call->reserved);
    call->reserved = NULL;
}

/* What is needed still of the segment that the call is in moves out of it. NULL: no memory. */
static LeftSegment *new_left(Call *call, int shells) {
    int arguments = call->trace->argument_count;
    LeftSegment *left = call->reserved ? call->reserved : reserve_left(call, shells);
    call->reserved = NULL;
    if (!left) return NULL;
    left->random = call->random; /* known when the entry has run */
    link_left(call, left);
    if (arguments) memcpy(arguments_of(left), call->argument, sizeof(int64_t) * (size_t)arguments);
    take_operands(call, left);
    take_shells(call, left);
    if (!promises_make(left)) call->lost = true;
    return left;
}

/* ---- what waits ------------------------------------------------------------------------------ */

void shell_adopt(Tensor *shell, Tensor *made) {
    shell->storage = storage_retain(made->storage);
    shell->offset = made->offset;
    memcpy(shell->stride, made->stride, sizeof(int64_t) * made->rank);
}

static bool waits(const LeftSegment *left) {
    for (int k = 0; k < left->shells; k++)
        if (left->shell[k].x && !left->shell[k].x->storage) return true;
    return false;
}

bool left_compute(LeftSegment *left, const Trace *part, RandomState *random) {
    Tensor **real = memory_alloc(sizeof *real * (size_t)(left->values + 1));
    if (!real) {
        fail_memory(sizeof *real * (size_t)(left->values + 1));
        return false;
    }
    memcpy(real, left->value, sizeof *real * (size_t)left->values);
    Tracer *tracer = tracer_set(NULL);
    RandomState *before = random_lend(random);
    bool done = trace_run(part, length(part->op), arguments_of(left), real);
    random_lend(before);
    for (int k = 0; k < left->shells; k++) {
        LeftShell *shell = &left->shell[k];
        Tensor *made = real[shell->value];
        if (!shell->x || !made) continue;
        if (!shell->x->storage) shell_adopt(shell->x, made);
        promise_take(shell, made);
    }
    for (int v = 0; v < left->values; v++)
        if (left->trace->value[v].kind == VALUE_IS_RESULT) tensor_destroy(real[v]);
    tracer_set(tracer);
    memory_free(real);
    return done;
}

/* What an op that failed was to give will not come: nobody waits for it, to fail again. */
static bool compute_whole(LeftSegment *left, RandomState *random) {
    if (left_compute(left, left->trace, random)) return true;
    for (int k = 0; k < left->shells; k++) {
        Tensor *x = left->shell[k].x;
        if (!x || x->storage) continue;
        promise_forget(&left->shell[k], false);
        left->shell[k].x = NULL;
        left->alive--;
        x->trace = 0, x->value = NULL;
        leaf_forget(x);
    }
    return false;
}

/* The same for the first time: it takes what it draws from the process's state. */
static bool compute_first(LeftSegment *left) {
    int draws = left->trace->draws;
    RandomState own = left->random = random_take(draws);
    bool done = compute_whole(left, &own);
    random_return(own, left->random.offset + draws - own.offset); /* not taken by what failed */
    return done;
}

static void compute_waiting(Call *call, LeftSegment *left) {
    RandomState own = left->random;
    if (waits(left) && !compute_whole(left, &own)) call->lost = true;
}

void segment_met(Call *call, Tensor *x) {
    LeftShell *shell = x->value;
    LeftSegment *left = shell->left, *leader = left->like ? left->like : left;
    const Trace *trace = leader->trace;
    bool known = !is_computed(trace, shell->value) ||
                 atomic_exchange(&trace->crosses[root_of(trace, shell->value)], true);
    if (!known && leader->entry) {
        leader->missed = true;
        call->due = leader;
    }
    if (!x->storage) compute_waiting(call, left);
}

void segment_lost(Call *call, Tensor *x) {
    LeftShell *shell = x->value;
    LeftSegment *left = shell->left;
    promise_forget(shell, false);
    shell->x = NULL;
    left->alive--;
    if (is_over(left)) free_left(call, left);
}

const void *segment_storage_of(const Tensor *x) {
    const LeftShell *shell = x->value;
    return value_storage(shell->left->trace, shell->left->value, shell->value);
}

void segment_compute_all(Call *call) {
    for (LeftSegment *left = call->left; left; left = left->next) compute_waiting(call, left);
}

static bool reads(const LeftSegment *left, const Storage *storage) {
    for (int v = 0; v < left->values; v++)
        if (left->value[v] && left->value[v]->storage == storage) return true;
    return false;
}

static void before_write(Call *call, const Storage *storage) {
    for (LeftSegment *left = call->left; left; left = left->next)
        if (reads(left, storage)) compute_waiting(call, left);
}

void segment_before_writes(Call *call, const Tensor *written) {
    const Trace *trace = call->trace;
    if (written && written->storage) before_write(call, written->storage);
    for (int i = 0; call->left && !written && i < call->at; i++) {
        int root = written_by(trace, i);
        if (root != NO_VALUE) before_write(call, call->value[root]->storage);
    }
}

/* ---- compiling ------------------------------------------------------------------------------- */

/* The call stands where the segment ended, for what makes entries of calls. */
static void stand_at(Call *call, const LeftSegment *left) {
    call->ambient = left->ambient;
    call->value = left->value;
    call->bound = call->value_capacity = left->values;
    call->argument = arguments_of(left);
    call->argument_capacity = left->trace->argument_count;
    call->input_count = left->input_count;
    call->resumed = left->resumes;
    call->start_ms = left->start_ms;
    call->end_ms = left->end_ms;
}

static void stand_nowhere(Call *call) {
    call->value = call->local;
    call->bound = 0;
    call->value_capacity = LOCAL_VALUES;
    call->argument = call->local_argument;
    call->argument_capacity = LOCAL_ARGUMENTS;
    call->input_count = 0;
    call->recording = NULL;
}

/* What crossed before, where it differs in numbers alone, does so again. */
static void inherit_crossing(const Call *call, Trace *trace) {
    for (Entry *e = atomic_load(&call->function->first); e; e = atomic_load(&e->next))
        if (trace_covers(trace, e->trace))
            for (int v = 0; v < length(trace->value); v++)
                if (atomic_load(&e->trace->crosses[v])) atomic_store(&trace->crosses[v], true);
}

static bool choose_crossing(const Call *call, Trace *trace) {
    if (arena_guard(trace->arena)) return false;
    inherit_crossing(call, trace);
    list_crossing(trace);
    return true;
}

static Entry *make(Call *call, Recording *recording) {
    cb_status before = cb_error_status();
    call->recording = recording;
    call->trace = recording->trace;
    Entry *entry = choose_crossing(call, recording->trace) ? entry_make(call) : NULL;
    if (entry) return entry;
    if (before == CB_OK) cb_clear_error(); /* the call has its results without it */
    function_note(call->function, REASON_out_of_memory, site_current(), "while compiling");
    return NULL;
}

/* A segment that is still a recording becomes an entry, once. */
static void compile(Call *call, LeftSegment *left) {
    stand_at(call, left);
    left->entry = make(call, left->recording);
    stand_nowhere(call);
    left->rounds = 0;
    if (!left->entry) return;
    left->trace = left->entry->trace;
    record_free(left->recording);
    left->recording = NULL;
}

/* What was missed crosses from now on. */
static void widen(Call *call, LeftSegment *left) {
    const Trace *trace = left->entry->trace;
    stand_at(call, left);
    Recording *again = record_again(call, trace);
    Entry *wider = NULL;
    if (again && mark_end(again)) {
        again->trace->whole = trace->whole;
        again->trace->draws = trace->draws;
        for (int v = 0; v < length(trace->value); v++)
            atomic_store(&again->trace->crosses[v], atomic_load(&trace->crosses[v]));
        wider = make(call, again);
    }
    record_free(again);
    stand_nowhere(call);
    if (!wider || wider == left->entry) return;
    lock_take(function_lock(call->function));
    entry_set_wider(left->entry, wider);
    lock_give(function_lock(call->function));
}

/* Now that it is known what crosses. */
static void catch_up(Call *call, LeftSegment *left) {
    if (left->recording && left->recording->graph)
        compile(call, left);
    else if (left->missed && entry_widest(left->entry) == left->entry)
        widen(call, left);
    left->missed = false;
}

void segment_finish(Call *call, bool compiles) {
    for (LeftSegment *left = call->left; left && compiles; left = left->next) catch_up(call, left);
    while (call->left) free_left(call, call->left);
}

/* ---- events ---------------------------------------------------------------------------------- */

static LeftSegment *find_like(const LeftSegment *made) {
    for (LeftSegment *left = made->next; left; left = left->next)
        if (left->recording && left->resumes == made->resumes &&
            ambient_equal(left->ambient, made->ambient) && trace_same(left->trace, made->trace))
            return left;
    return NULL;
}

const Trace *segment_recorded(const Call *call, LeftSegment **behind) {
    LeftSegment *left = *behind ? (*behind)->next : call->left;
    while (left && (!left->recording || left->resumes != call->resumed ||
                    !ambient_equal(left->ambient, call->ambient)))
        left = left->next;
    *behind = left;
    return left ? left->trace : NULL;
}

/* Everything that lives crosses. */
static void cross_whole(const LeftSegment *left, Trace *trace) {
    trace->whole = true;
    for (int k = 0; k < left->shells; k++)
        atomic_store(&trace->crosses[root_of(trace, left->shell[k].value)], true);
}

static void follow(LeftSegment *left, LeftSegment *leader) {
    left->like = leader;
    left->trace = leader->trace;
    record_free(left->recording);
    left->recording = NULL;
    leader->leads = true;
}

/* The segment has its arguments as the trace, which covers its own, has them. False: no memory; it
 * is as it was. */
static bool fit_arguments(LeftSegment *left, const Trace *trace) {
    size_t bytes = sizeof(int64_t) * (size_t)left->trace->argument_count;
    Tensor **value = memory_resize(left->value, value_bytes(left->values, trace->argument_count));
    int64_t *was = memory_alloc(bytes + 1);
    if (value) left->value = value;
    bool room = value && was;
    if (room) {
        memcpy(was, arguments_of(left), bytes);
        trace_arguments(left->trace, was, length(trace->op), trace, arguments_of(left));
        left->trace = trace;
    }
    memory_free(was);
    return room;
}

/* One that was to be compiled, and those like it, are like this one, of which more numbers are
 * arguments. */
static void absorb(Call *call, LeftSegment *made, LeftSegment *older) {
    Trace *trace = made->recording->trace;
    bool all = true;
    for (LeftSegment *left = call->left; left; left = left->next) {
        if (left->like != older) continue;
        if (fit_arguments(left, trace))
            left->like = made;
        else
            all = false;
    }
    made->leads = true;
    const Trace *was = older->recording->trace;
    for (int v = 0; v < length(was->value); v++)
        if (atomic_load(&was->crosses[v])) atomic_store(&trace->crosses[v], true);
    trace->whole |= was->whole;
    if (!all || !fit_arguments(older, trace)) return;
    older->leads = false;
    made->rounds += older->rounds;
    older->rounds = 0;
    follow(older, made);
}

static void absorb_covered(Call *call, LeftSegment *made) {
    for (LeftSegment *left = made->next; left; left = left->next)
        if (left->recording && left->resumes == made->resumes &&
            ambient_equal(left->ambient, made->ambient) && trace_covers(made->trace, left->trace))
            absorb(call, made, left);
}

/* It runs, op by op; compiled it is when more is known of it. False: an op failed. */
static bool run_recorded(Call *call, LeftSegment *left) {
    left->start_ms = call->start_ms;
    left->end_ms = clock_ms();
    bool done = compute_first(left), whole = call->stale || acts(left->trace);
    LeftSegment *like = find_like(left), *leader = like ? like : left;
    if (whole) cross_whole(left, leader->recording->trace);
    if (like)
        follow(left, like);
    else
        absorb_covered(call, left);
    if (++leader->rounds == MANY_ROUNDS) call->due = leader;
    return done;
}

static bool leave_recorded(Call *call) {
    if (!mark_end(call->recording)) return false;
    Trace *trace = call->recording->trace;
    trace->draws = trace_draws(trace, call->at, call->argument);
    LeftSegment *left = new_left(call, call->tracer.alive);
    if (!left) return false;
    left->recording = call->recording;
    call->recording = NULL;
    if (!run_recorded(call, left)) call->lost = true;
    return true;
}

static bool leave_replayed(Call *call, bool has_run) {
    int waiting = 0;
    for (int v = 0; v < length(call->trace->value); v++) waiting += stays(call, v);
    LeftSegment *left = waiting || !has_run ? new_left(call, waiting) : NULL;
    if (left && !has_run && !compute_first(left)) call->lost = true;
    return left || (!waiting && has_run);
}

static Entry *find_next(const Call *call) {
    Entry *guess = call->before ? entry_widest(atomic_load(&call->before->then)) : NULL;
    if (guess && entry_holds(guess, call->ambient, call->grad, NULL, 0)) return guess;
    for (Entry *e = atomic_load(&call->function->first); e; e = atomic_load(&e->next))
        if (e->resumes && entry_widest(e) == e &&
            entry_holds(e, call->ambient, call->grad, NULL, 0))
            return e;
    return NULL;
}

void segment_note_next(Call *call) {
    if (call->before && atomic_load(&call->before->then) != call->entry)
        entry_guess(&call->before->then, call->entry);
}

/* The call goes on with a segment that nothing is known of yet. False: no memory. */
static bool begin_next(Call *call, Entry *left) {
    Ambient now = ambient_of_op();
    now.autocast = call->ambient.autocast; /* ops come converted */
    call->ambient = now;
    call->resumed = true;
    call->before = left;
    call->input_count = call->at = call->tracer.alive = 0;
    call->tracer.serial = serial_next();
    call->mode = CALL_REPLAYS;
    call->entry = find_next(call);
    call->trace = NULL;
    if (!call->entry) {
        call->start_ms = clock_ms();
        return record_from(call, NULL, 0);
    }
    call->trace = call->entry->trace;
    return call_sit(call);
}

bool segment_renew(Call *call) {
    call->stale = false;
    if (call->mode == CALL_IS_EAGER) return false;
    call_finish(call);
    if (begin_next(call, call->before)) return true;
    call_break(call, REASON_out_of_memory, "while recording");
    return false;
}

bool segment_leave(Call *call, bool has_run) {
    Entry *entry = call->mode == CALL_REPLAYS ? call->entry : NULL;
    if (entry) segment_note_next(call);
    bool left = entry ? leave_replayed(call, has_run) : leave_recorded(call);
    if (!left) return false;
    call_finish(call);
    LeftSegment *due = call->due;
    call->due = NULL;
    if (due) catch_up(call, due);
    return begin_next(call, entry);
}
