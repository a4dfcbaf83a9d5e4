/* Frames: what the thread's state was before the library called the user's code, so that it is put
 * back however that code ends.
 *
 * A compiled function or a module's forward returns, throws a C++ exception, or leaves by longjmp.
 * Whoever calls one opens a frame before, and closes it after:
 *
 *     FRAME_MARK(mark);                       in a function that is OPENS_FRAME
 *     Frame *frame = frame_open(sizeof *frame, NULL, FRAME_OF_FUNCTION, mark);
 *     if (!frame) return out of memory;
 *     Frame *left UNWINDS_FRAME = frame;      an exception runs frame_unwind on it
 *     ... the user's code ...
 *     left = NULL;
 *     if (!frame_is_open(frame, mark)) return an error;
 *     frame_close(frame);
 *     frame_free(frame);
 *
 * What longjmp leaves behind is found by the next call of the library in this thread: the stack of
 * the function that opened the frame is gone. Then the frame is abandoned, with an error. Frames
 * live on the heap, since the stack may belong to others by then. */
#ifndef CARBIDE_TENSOR_FRAME_H
#define CARBIDE_TENSOR_FRAME_H

#include "base/inside.h"
#include "tensor/tracer.h"

struct Scope {
    Scope *parent; /* NULL: the implicit outermost scope of the thread */
    Tensor *first; /* newest tensor */
    bool in_frame; /* which has its memory, and closes it */
};

typedef enum FrameKind {
    FRAME_OF_FUNCTION, /* scopes and autocast are its own, and closed at the end */
    FRAME_OF_FORWARD   /* part of what its caller does: only put back when it is abandoned */
} FrameKind;

typedef struct Frame Frame;
/* Frees what the opener of an abandoned frame holds. The frame is the thread's no more, but its
 * scopes are still open and its tracer is not yet replaced. */
typedef void FrameAbandon(Frame *frame);

struct Frame {
    Frame *outer;                  /* the frame around it in this thread */
    int depth;                     /* that one's and 1 */
    const volatile uint64_t *mark; /* in the opener's stack frame: holds serial while that lives */
    uint64_t serial;
    size_t bytes; /* of the whole block */
    FrameAbandon *abandon;
    Inside *inside;                /* of what it stands on, which a forked child enters anew */
    const void *runs;              /* the compiled function whose code it is around, or NULL */
    Tracer *tracer; /* as it was before; so are the next six */
    Scope *scope;
    int unopened, disabled, no_grad;
    AutocastFrame autocast;
    const Place *place;
    FrameKind kind;
    Scope own; /* of a function */
};

/* The mark of a function that opens a frame lies on the stack above whatever it calls, and below
 * the first calls of whoever comes after it, whose own frames are smaller than this. */
enum { FRAME_REACH = 4096 / sizeof(uint64_t) };
#define OPENS_FRAME __attribute__((noinline, no_sanitize("address")))
#define FRAME_MARK(name)                                                                           \
    volatile uint64_t name[FRAME_REACH];                                                           \
    name[0] = 0
/* For public functions that have larger ones, or open frames, before anything else. */
#define frames_check() frames_check_from(__builtin_frame_address(0))
void frames_check_from(const char *here);
/* bytes: of a struct that begins with its Frame; what is behind it is uninitialized. NULL: no
 * memory, or the stack ends soon, with an error. */
Frame *frame_open(size_t bytes, FrameAbandon *abandon, FrameKind kind, volatile uint64_t *mark);
/* False: it was abandoned while the user's code ran, and must not be touched; there is an error. */
bool frame_is_open(const Frame *frame, const volatile uint64_t *mark);
/* x is in a scope of the frame's, or in one that the user's code has opened since. */
bool frame_holds(const Frame *frame, const Tensor *x);
/* x leaves the scopes that the user's code opened: true when it was in one, and is kept now. */
bool frame_take(const Frame *frame, Tensor *x);
/* The thread's state is what it was before; the frame's memory stays the opener's. False: autocast
 * scopes were left open, which are closed now. */
bool frame_close(Frame *frame);
void frame_free(Frame *frame);
/* The thread is within code of this compiled function. */
bool frames_run(const void *function);
/* The thread goes on without this tracer: frames that are open inside of it do not put it back. */
void frames_drop_tracer(const Tracer *tracer);
void frame_unwind(Frame **frame); /* NULL: it has been closed */

#define UNWINDS_FRAME __attribute__((cleanup(frame_unwind)))
/* The code of such cleanups names two functions of libgcc_s, which every process that throws has,
 * and which the library does not need otherwise. */
__asm__(".weak _Unwind_Resume\n.weak __gcc_personality_v0");

/* Calls a function of the user's with handles; its results, as many as come back, are tensors. It
 * may fill CB_MAX_ARGS of them. It is given room for OUTPUT_ROOM, so that one which fills more, and
 * says so, is an error and not a write to somebody else's memory. */
enum { OUTPUT_ROOM = 4 * CB_MAX_ARGS };
/* The results that a caller's array of that capacity may be given. */
static inline int output_room_of(int capacity) {
    return capacity < 0 ? 0 : capacity < CB_MAX_ARGS ? capacity : CB_MAX_ARGS;
}
static inline int tensors_call(cb_function_n *function, Tensor *const *inputs, int count,
                               Tensor **outputs, void *user) {
    cb_tensor *handle[count + 1];
    tensors_out(inputs, count, handle);
    for (int i = 0; i < CB_MAX_ARGS; i++) outputs[i] = NULL;
    int given = function(handle, count, outputs, user);
    if (given > CB_MAX_ARGS)
        return fail(CB_ERR_ARGUMENT, "the function returned %d tensors, more than %d", given,
                    CB_MAX_ARGS);
    if (given <= 0 || tensors_in(outputs, given, "a result of the function", outputs)) return given;
    return cb_error_status();
}

#endif
