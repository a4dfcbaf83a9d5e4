/* The thread's state of the tensor layer: its scopes, its tracer, its spare tensor shells.
 *
 * A thread that makes its first tensor is registered (thread_start); when it ends, its open scopes
 * are closed and its shells are freed. Only this folder includes this header. */
#ifndef CARBIDE_TENSOR_THREAD_H
#define CARBIDE_TENSOR_THREAD_H

#include "tensor/apply.h"

struct Scope {
    Scope *parent; /* NULL: the implicit outermost scope of the thread */
    Tensor *first; /* newest tensor */
};

enum { AUTOCAST_DEPTH = 32, AUTOCAST_OFF = 0 /* no dtype that anybody computes in: bool */ };

typedef struct CachedCast CachedCast; /* a parameter and what it was converted to */

typedef struct AutocastState {
    int8_t lower; /* dtype to compute in */
    int8_t outer[AUTOCAST_DEPTH]; /* lower as it was before each open scope */
    int depth, base; /* scopes; below base they belong to a caller of this compiled function */
    CachedCast *cached;
    int cached_count, cached_capacity;
} AutocastState;

typedef struct ThreadState ThreadState;
struct ThreadState {
    Scope *scope; /* innermost; NULL until thread_start */
    Tracer *tracer;
    Tensor *shells; /* spare Tensor structs, chained by next */
    int shell_count;
    AutocastState autocast;
    int unopened;               /* scopes that cb_scope_open had no memory for */
    uint64_t serial, serial_end; /* numbers that this thread may hand out */
    _Atomic int64_t live;       /* tensors made minus tensors freed by this thread */
    Scope outermost;
    ThreadState *previous, *next; /* all registered threads */
};

/* One load from the thread pointer instead of a call per access. */
extern _Thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

void thread_start(void);
Tensor *tensor_alloc(void); /* in the current scope, only the scope and trace fields set; or NULL */
int64_t thread_live_tensors(void); /* of all threads */

/* autocast.c: the op on converted operands; the conversions of parameters are let go. */
Tensor *autocast_apply(Op op, const cb_operand *input, int input_count, const Attrs *attrs);
void autocast_forget(AutocastState *state);

cb_memory_stats storage_stats(void); /* all but live_tensors */

#endif
