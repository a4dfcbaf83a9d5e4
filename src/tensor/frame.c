/* Frames of the thread: opened, closed, and abandoned by exceptions and jumps; frame.h says when.
 *
 * Invariant: frames of a thread form a chain, innermost first, each deeper on the stack than the
 * one around it. */
#define _GNU_SOURCE /* pthread_getattr_np */
#include "tensor/thread.h"

#include "base/memory.h"
#include <pthread.h>
#include <string.h>

/* ---- the stack ------------------------------------------------------------------------------ */

/* A function that calls itself through its compiled form takes some 5 KB of it for each time, with
 * what is the user's own; what ops and compiling take behind the last one is less than the
 * reserve. */
enum { FEW_FRAMES = 16, STACK_RESERVE = 256 << 10 };

/* Where the thread's stack begins, from below; 0: not known. */
static uintptr_t find_stack(void) {
    pthread_attr_t attributes;
    void *low = NULL;
    size_t bytes;
    if (pthread_getattr_np(pthread_self(), &attributes)) return 0;
    if (pthread_attr_getstack(&attributes, &low, &bytes)) low = NULL;
    pthread_attr_destroy(&attributes);
    return (uintptr_t)low;
}

/* It does not end soon. A mark on a stack that is not the thread's own, as coroutines have, is not
 * judged. */
static bool stack_suffices(ThreadState *t, const volatile uint64_t *mark, int depth) {
    if (depth < FEW_FRAMES) return true;
    if (!t->stack) t->stack = find_stack();
    return !t->stack || (uintptr_t)mark - t->stack >= STACK_RESERVE;
}

/* ---- opening ------------------------------------------------------------------------------- */

static Frame *take_spare(ThreadState *t, size_t bytes) {
    for (Frame **at = &t->spare_frames; *at; at = &(*at)->outer) {
        Frame *frame = *at;
        if (frame->bytes < bytes) continue;
        *at = frame->outer;
        return frame;
    }
    Frame *frame = memory_alloc(bytes);
    if (frame) frame->bytes = bytes;
    return frame;
}

Frame *frame_open(size_t bytes, FrameAbandon *abandon, FrameKind kind, volatile uint64_t *mark) {
    ThreadState *t = thread_now();
    int depth = t->frame ? t->frame->depth + 1 : 1;
    if (!stack_suffices(t, mark, depth)) {
        fail(CB_ERR_MEMORY,
             "%d calls of compiled functions and forwards are within one another, and the stack "
             "ends soon (ulimit -s, or pthread_attr_setstacksize for a thread's, makes it larger)",
             depth);
        return NULL;
    }
    Frame *frame = take_spare(t, bytes);
    if (!frame) {
        fail_memory(bytes);
        return NULL;
    }
    frame->outer = t->frame;
    frame->depth = depth;
    frame->mark = mark;
    frame->serial = *mark = serial_next();
    frame->abandon = abandon;
    frame->inside = NULL;
    frame->runs = NULL;
    frame->tracer = t->tracer;
    frame->scope = t->scope;
    frame->unopened = t->unopened;
    frame->disabled = t->disabled;
    frame->no_grad = t->no_grad;
    frame->place = place_current();
    frame->kind = kind;
    frame->autocast = kind == FRAME_OF_FUNCTION ? autocast_enter() : autocast_frame();
    frame->own = (Scope){.parent = t->scope, .in_frame = true};
    if (kind == FRAME_OF_FUNCTION) {
        t->scope = &frame->own;
        t->unopened = 0;
    }
    t->frame = frame;
    return frame;
}

void frame_free(Frame *frame) {
    ThreadState *t = &thread_state;
    frame->outer = t->spare_frames;
    t->spare_frames = frame;
}

void frames_cleanup(ThreadState *t) {
    while (t->spare_frames) {
        Frame *frame = t->spare_frames;
        t->spare_frames = frame->outer;
        memory_free(frame);
    }
}

/* ---- closing ------------------------------------------------------------------------------- */

static bool is_open(const ThreadState *t, const Scope *scope) {
    for (const Scope *s = t->scope; s; s = s->parent)
        if (s == scope) return true;
    return false;
}

bool frame_holds(const Frame *frame, const Tensor *x) {
    const Tracer *tracer = thread_state.tracer;
    const Scope *home = tracer ? tracer->home : NULL;
    const Scope *scope = home && is_resident(x, tracer) ? home : x->scope;
    if (!scope) return false;
    for (const Scope *s = thread_state.scope; s != frame->scope; s = s->parent)
        if (s == scope) return true;
    return false;
}

bool frame_take(const Frame *frame, Tensor *x) {
    bool taken = frame_holds(frame, x);
    if (taken) tensor_keep(x);
    return taken;
}

static bool restore(ThreadState *t, const Frame *frame) {
    if (is_open(t, frame->scope)) {
        while (t->scope != frame->scope) scope_close_innermost(t);
        t->unopened = frame->unopened;
    }
    t->tracer = frame->tracer;
    t->disabled = frame->disabled;
    t->no_grad = frame->no_grad;
    if (t->tracer) t->tracer->disabled = t->disabled;
    place_set(frame->place);
    return autocast_leave(frame->autocast);
}

bool frame_is_open(const Frame *frame, const volatile uint64_t *mark) {
    return thread_state.frame == frame && frame->serial == *mark;
}

bool frame_close(Frame *frame) {
    ThreadState *t = &thread_state;
    t->frame = frame->outer;
    return frame->kind == FRAME_OF_FORWARD || restore(t, frame);
}

void frames_begin_child(ThreadState *t) {
    for (Frame *frame = t->frame; frame; frame = frame->outer)
        if (frame->inside) inside_enter(frame->inside);
}

bool frames_run(const void *function) {
    const Frame *frame = thread_state.frame;
    while (frame && frame->runs != function) frame = frame->outer;
    return frame;
}

void frames_drop_tracer(const Tracer *tracer) {
    ThreadState *t = &thread_state;
    if (t->tracer == tracer) t->tracer = NULL;
    for (Frame *frame = t->frame; frame; frame = frame->outer)
        if (frame->tracer == tracer) frame->tracer = NULL;
}

/* ---- abandoning ---------------------------------------------------------------------------- */

/* Frames from the innermost to last, which are no more the thread's; so that what abandon does
 * finds none of them. */
static void abandon_through(ThreadState *t, const Frame *last) {
    Frame *frame = t->frame, *end = last->outer;
    t->frame = end;
    while (frame != end) {
        Frame *outer = frame->outer;
        if (frame->abandon) frame->abandon(frame);
        restore(t, frame);
        frame_free(frame);
        frame = outer;
    }
}

void frame_unwind(Frame **frame) {
    if (*frame) abandon_through(&thread_state, *frame);
}

void frames_recover(ThreadState *t, const char *caller) {
    const Frame *last = t->frame;
    for (const Frame *frame = last->outer; frame; frame = frame->outer)
        if (!frame_lives(frame, caller)) last = frame;
    abandon_through(t, last);
    fail(CB_ERR_ARGUMENT, "a jump left a compiled function or a forward before it returned; what "
                          "it had open is closed");
}

void frames_check_from(const char *here) {
    ThreadState *t = &thread_state;
    if (t->frame && !frame_lives(t->frame, here)) frames_recover(t, here);
}

void frames_end(ThreadState *t) {
    const Frame *last = t->frame;
    while (last && last->outer) last = last->outer;
    if (last) abandon_through(t, last);
}
