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
 * The first time, a segment is compiled at its event if it is known what crosses (all that lives
 * does, the same ops over other sizes or numbers tell, or gradients do) and nothing that lives has
 * a history. So that run has the bits of those behind it. Else it runs op by op, and is compiled
 * when the call has ended, or when it has come by MANY_ROUNDS times: by then it is known.
 *
 * Nothing waits for what a later write would change: before a segment writes to memory that a left
 * one reads, that one's waiting values are computed; and of a segment that itself writes, has
 * effects, or ends where the ambient state is set to something else, everything that lives crosses.
 * Random numbers wait with the state that they were first drawn from. */
#include "capture/segment.h"
#include "capture/joint.h"

#include "base/clock.h"
#include "base/memory.h"
#include "eager/tape.h"
#include "graph/node.h"
#include <string.h>

enum { MANY_ROUNDS = 3 };

/* ---- what crosses ---------------------------------------------------------------------------- */

/* Views of real tensors take no computing, so they always cross. */
static bool crosses(const Trace *trace, int v) {
    return !trace_computes(trace, v) || atomic_load(&trace->crosses[trace->value[v].root]);
}

/* All values on a storage cross, or none. */
static void list_crossing(Trace *trace) {
    trace->escaped = trace->leads = NULL;
    for (int v = 0; v < length(trace->value); v++) {
        if (trace->value[v].kind != VALUE_IS_RESULT || !crosses(trace, v)) continue;
        push(trace->arena, trace->escaped, v);
        if (atomic_load(&trace->crosses[v]) && trace_has_history(trace, v, length(trace->op)))
            push(trace->arena, trace->leads, v);
    }
}

/* What it does besides its values would be done again by what waits. */
static bool acts(const Trace *trace) {
    for (int i = 0; i < length(trace->op); i++)
        if (trace_written_by(trace, i) != NO_VALUE || trace_has_effects(&trace->op[i])) return true;
    return false;
}

/* The recording ends at an event. False: no memory. */
static bool mark_end(Recording *recording) {
    Trace *trace = recording->trace;
    if (arena_guard(trace->arena)) return false;
    trace->goes_on = true;
    trace->whole = acts(trace);
    trace->crosses = arena_new_array(trace->arena, atomic_bool, length(trace->value) + 1);
    return true;
}

/* False where what lives here would have to wait and may not: the state around it changes, or what
 * the segment did would be done again. */
static bool may_wait(const Call *call, const Trace *trace) {
    for (int v = 0; (trace->whole || call->stale) && v < call->bound; v++)
        if (call->value[v] && trace->value[v].kind == VALUE_IS_RESULT && !crosses(trace, v))
            return false;
    return true;
}

bool segment_ends_here(const Call *call) {
    const Trace *trace = call->trace;
    return trace->goes_on && length(trace->op) == call->at && may_wait(call, trace);
}

/* ---- compiling ------------------------------------------------------------------------------- */

/* The call stands where the segment ended, for what makes entries of calls. */
static void stand_at(Call *call, const LeftSegment *left) {
    call->ambient = left->ambient;
    call->value = left->value;
    call->bound = call->value_capacity = left->values;
    call->argument = left_arguments(left);
    call->argument_capacity = left->trace->argument_count;
    call->input_count = left->input_count;
    call->resumed = left->resumes;
    call->start_ms = left->start_ms;
    call->number = left->number;
    call->end_ms = left->end_ms;
}

static void stand_nowhere(Call *call) {
    call_stand_nowhere(call);
    call->input_count = 0;
    call->recording = NULL;
}

/* What crossed before, where it differs in numbers or sizes alone, does so again. False: nothing is
 * known. */
static bool inherit_crossing(const Call *call, Trace *trace) {
    bool known = false;
    for (Entry *e = atomic_load(&call->function->first); e; e = atomic_load(&e->next)) {
        bool alike = e->resumes == call->resumed && e->trace->goes_on;
        if (!alike || !(trace_covers(trace, e->trace) || trace_resembles(e->trace, trace)))
            continue;
        known = true;
        for (int v = 0; v < length(trace->value); v++)
            if (atomic_load(&e->trace->crosses[v])) atomic_store(&trace->crosses[v], true);
    }
    return known;
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
    bool done = choose_crossing(call, recording->trace);
    if (done && recording->trace->leads) done = joint_record(call);
    Entry *entry = done ? entry_make(call) : NULL;
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
    call_begins_recording(call);
    Recording *again = record_again(call, trace);
    const TraceAgain why = {REASON_crosses_more, site_current(),
                            reason_info(REASON_crosses_more)->text};
    call->end_ms = clock_ms();
    Entry *wider = NULL;
    if (again && mark_end(again)) {
        again->trace->draws = trace->draws;
        trace_say_again(again->trace, &why);
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
    left_free_all(call);
}

/* ---- at the event ---------------------------------------------------------------------------- */

/* It is asked for; or lives on whatever the function does, as the gradient of a leaf does; or is a
 * loss, which is mostly used behind its gradients, too. */
static bool is_wanted(const Call *call, const Tensor *asked, int v) {
    const TraceValue *value = &call->recording->trace->value[v];
    return call->value[v] == asked || !frame_holds(&call->frame, call->value[v]) ||
           (value->tracked && meta_numel(&value->meta) == 1);
}

static void choose_here(const Call *call, const Tensor *asked, bool all) {
    Trace *trace = call->recording->trace;
    for (int v = 0; v < length(trace->value); v++) {
        bool lives = call->value[v] && trace->value[v].kind == VALUE_IS_RESULT;
        if (!lives || !(all || is_wanted(call, asked, v))) continue;
        atomic_store(&trace->crosses[trace->value[v].root], true);
        atomic_store(&trace->crosses[v], true);
    }
}

/* All that lives crosses, or it is known from what differs in numbers or sizes, or gradients tell,
 * which live on. Not where something that lives has a history: gradients may go back from it to
 * what else lives, and the histories of ops that ran lead there, that of a graph does not. */
static bool knows_crossing(const Call *call, const Tensor *asked) {
    char why[DETAIL_BYTES];
    Trace *trace = call->recording->trace;
    bool all = trace->whole || call->stale;
    if (arena_guard(trace->arena)) return false;
    if (all) choose_here(call, asked, true);
    if (call_keeps_history(call, NULL, 0, why)) return false;
    if (all) return true;
    trace_make_likeness(trace);
    bool known = inherit_crossing(call, trace);
    known |= trace_has_backward(trace, call->at);
    choose_here(call, asked, false);
    return known;
}

/* The call goes over to the entry of what it has recorded. False: there is none. */
static bool compile_here(Call *call) {
    Recording *recording = call->recording;
    call->end_ms = clock_ms();
    Entry *entry = make(call, recording);
    if (!entry) {
        if (recording->graph) arena_free(recording->graph->arena);
        recording->graph = NULL; /* it has become a part of one */
        return false;
    }
    call_drops_recording(call);
    record_free(recording);
    call->recording = NULL;
    call->entry = entry;
    call->trace = entry->trace;
    call->mode = CALL_REPLAYS;
    return true;
}

bool segment_end(Call *call, const Tensor *asked) {
    if (!mark_end(call->recording)) return false;
    Trace *trace = call->recording->trace;
    trace->draws = trace_draws(trace, call->at, call->argument);
    if (knows_crossing(call, asked)) compile_here(call);
    return true;
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

static void follow(const Call *call, LeftSegment *left, LeftSegment *leader) {
    call_drops_number(call, &left->number);
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
    Tensor **value =
        memory_resize(left->value, left_value_bytes(left->values, trace->argument_count));
    int64_t *was = memory_alloc(bytes + 1);
    if (value) left->value = value;
    bool room = value && was;
    if (room) {
        memcpy(was, left_arguments(left), bytes);
        trace_arguments(left->trace, was, length(trace->op), trace, left_arguments(left));
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
    if (!all || !fit_arguments(older, trace)) return;
    older->leads = false;
    made->rounds += older->rounds;
    older->rounds = 0;
    int number = made->number; /* it takes the place of one that began before */
    made->number = older->number, older->number = number;
    made->start_ms = older->start_ms;
    follow(call, older, made);
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
    left->number = call->number;
    left->end_ms = clock_ms();
    bool done = left_compute_first(left);
    LeftSegment *like = find_like(left), *leader = like ? like : left;
    if (like)
        follow(call, left, like);
    else
        absorb_covered(call, left);
    if (++leader->rounds == MANY_ROUNDS) call->due = leader;
    return done;
}

static bool leave_recorded(Call *call) {
    LeftSegment *left = left_new(call, call->tracer.alive);
    if (!left) return false;
    left->recording = call->recording;
    call->recording = NULL;
    if (!run_recorded(call, left)) call->lost = true;
    return true;
}

static bool leave_replayed(Call *call, bool has_run) {
    int waiting = 0;
    for (int v = 0; v < length(call->trace->value); v++) waiting += left_keeps(call, v);
    LeftSegment *left = waiting || !has_run ? left_new(call, waiting) : NULL;
    if (left && !has_run && !left_compute_first(left)) call->lost = true;
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
        call_begins_recording(call);
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
