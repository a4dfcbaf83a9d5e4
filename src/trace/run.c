/* The ops of a trace, one by one, eagerly (trace.h).
 *
 * In: a trace, the numbers that are its arguments, tensors for what it has from outside. Out: its
 * results. What everything falls back to, and what explain takes the time of. */
#include "base/memory.h"
#include "base/set.h"
#include "eager/eager.h"
#include "eager/tape.h"
#include "graph/node.h"
#include "tensor/place.h"
#include "tensor/random.h"
#include "trace/trace.h"

static cb_operand operand_of(const TraceOperand *operand, const int64_t *argument,
                             Tensor *const *real) {
    if (operand_is_number(operand)) return trace_operand_number(operand, argument);
    return cb_operand_tensor(operand->kind == OPERAND_VALUE ? real[operand->value] : NULL);
}

/* x where the trace has it: the option device may have been set since. x dies if it moves. */
static Tensor *on_device(Tensor *x, int device) {
    if (!x || x->device == device) return x;
    Tensor *there = tensor_to(x, device);
    tensor_destroy(x);
    return there;
}

/* The gradients by what the graph has them by; one that has none after all is 0. */
static bool run_back(const TraceOp *op, Tensor *y, Tensor *given, Tensor **real) {
    int count = trace_back_results(op->back), next = 0;
    Tensor **wrt = memory_zalloc(sizeof *wrt * 2 * (size_t)(count + 1));
    if (!wrt) {
        fail_memory(sizeof *wrt * 2 * (size_t)(count + 1));
        return false;
    }
    Tensor **got = wrt + count;
    for (int k = 0; k < op->back->count; k++)
        if (op->back->wrt[k] >= 0) wrt[next++] = real[op->back->wrt[k]];
    const GoingBack back = {"backward", y, given, wrt, count, op->back->graph};
    bool done = tape_go_back(&back, got);
    for (int k = 0; k < count; k++) { /* all are kept, also where one fails */
        cb_operand like = cb_operand_tensor(wrt[k]);
        if (done && !got[k]) got[k] = cb_keep(apply(OP_zeros_like, &like, 1, &attrs_none));
        real[op->result + k] = got[k];
    }
    for (int k = 0; k < count; k++) done = done && got[k];
    memory_free(wrt);
    return done;
}

/* False where an op before it failed. */
static bool back_is_possible(const TraceOp *op, const cb_operand *input, Tensor **real) {
    bool seeded = op->input[1].kind == OPERAND_VALUE;
    bool possible = input[0].tensor && (!seeded || input[1].tensor);
    for (int k = 0; k < op->back->count; k++)
        possible = possible && (op->back->wrt[k] < 0 || real[op->back->wrt[k]]);
    return possible;
}

/* The tape has to know of it: one of its results requires a gradient. */
static bool is_followed(const Trace *trace, const TraceOp *op) {
    for (int k = 0; k < trace_op_results(op); k++)
        if (trace->value[op->result + k].tracked) return true;
    return false;
}

/* Before the last op that goes back. */
typedef struct Writes {
    int *last; /* by root, the last one; behind them, that to any tensor from outside. NULL: none */
    Set outside; /* storages of those that are written */
} Writes;

static __attribute__((cold)) bool add_write(const Trace *trace, int i, Tensor *const *real,
                                            Writes *writes) {
    int values = length(trace->value), root = trace->value[trace->op[i].input[0].value].root;
    bool own = trace_computes(trace, root);
    if (!writes->last) writes->last = memory_zalloc(sizeof *writes->last * (size_t)(values + 1));
    if (!writes->last) return false;
    writes->last[own ? root : values] = i;
    return own || set_add(&writes->outside, real[root]->storage->serial);
}

typedef struct RunMode {
    bool without_effects;
    const bool *updates; /* by op: it is one with the write behind it. NULL: none is */
    const bool *only;    /* by op: it is run, to be gone back over behind the last one. NULL: all */
} RunMode;

/* Where there is no memory for them: without them. */
static Writes find_writes(const Trace *trace, int count, Tensor *const *real, RunMode mode) {
    Writes writes = {.last = NULL};
    int back = count;
    bool done = true;
    while (back > 0 && !trace->op[back - 1].back && !mode.only) back--;
    for (int i = 0; i < back && done; i++)
        if (trace->op[i].op == OP_assign && (!mode.only || mode.only[i]))
            done = add_write(trace, i, real, &writes);
    return writes;
}

/* After op i. */
static bool is_written(const Trace *trace, int i, const Writes *writes, int v, const Tensor *x) {
    if (trace_computes(trace, v)) return writes->last[trace->value[v].root] > i;
    return writes->last[length(trace->value)] > i && set_has(&writes->outside, x->storage->serial);
}

/* What the op's gradient may read is written to before that runs: the op takes copies, whose
 * elements stay, as those of a graph do. False with an error. */
static __attribute__((cold)) bool copy_written(const Trace *trace, int i, const Writes *writes,
                                               cb_operand *input, Tensor **copy) {
    const TraceOp *op = &trace->op[i];
    bool done = true, views = trace->value[op->result].root != op->result;
    for (int k = 0; k < op->input_count && !views && op->op != OP_custom; k++) {
        if (op->input[k].kind != OPERAND_VALUE || !input[k].tensor) continue;
        if (!is_written(trace, i, writes, op->input[k].value, input[k].tensor)) continue;
        copy[k] = apply(OP_clone, &input[k], 1, &attrs_none);
        done = done && copy[k];
        input[k].tensor = copy[k];
    }
    return done;
}

/* By root: behind the last op that writes to it, if it is from outside; 0: none does. NULL: no
 * memory. */
static int *find_changed(const Trace *trace, int count) {
    size_t bytes = sizeof(int) * (size_t)(length(trace->value) + 1);
    int *changed = memory_zalloc(bytes);
    if (!changed) fail_memory(bytes);
    for (int i = 0; i < count && changed; i++) {
        int root = trace_written_by(trace, i);
        if (root != NO_VALUE) changed[root] = i + 1;
    }
    return changed;
}

/* It computes what an op after it sets something from outside to, from what that was: a count, a
 * running mean. */
static bool is_change(const Trace *trace, int i, const int *changed) {
    const TraceOp *op = &trace->op[i];
    bool is = false;
    if (op->op == OP_assign || is_followed(trace, op)) return false;
    for (int k = 0; k < op->input_count; k++)
        is |= op->input[k].kind == OPERAND_VALUE &&
              changed[trace->value[op->input[k].value].root] > i;
    return is;
}

/* x = op(x, ..), by ops that a program may have in place: cb_add_(x, y). */
static bool is_update(const Trace *trace, const TraceOp *op) {
    const TraceOp *write = op + 1;
    bool known = op->op == OP_add || op->op == OP_sub || op->op == OP_mul || op->op == OP_div;
    if (!(known || op->op == OP_relu) || write->op != OP_assign) return false;
    bool own = op->input[0].kind == OPERAND_VALUE && !is_followed(trace, op);
    return own && write->input[0].value == op->input[0].value &&
           write->input[1].kind == OPERAND_VALUE && write->input[1].value == op->result;
}

static void find_reads(const TraceOp *op, bool *read) {
    for (int k = 0; k < op->input_count; k++)
        if (op->input[k].kind == OPERAND_VALUE) read[op->input[k].value] = true;
}

bool *trace_find_updates(const Trace *trace, Arena *arena) {
    int count = length(trace->op);
    bool *updates = arena_new_array(arena, bool, count + 1);
    bool *read = arena_new_array(arena, bool, length(trace->value) + 1); /* behind the write */
    for (int i = count - 2; i >= 0; i--) {
        const TraceOp *op = &trace->op[i];
        updates[i] = is_update(trace, op) && !read[op->result];
        find_reads(op + 1, read);
    }
    return updates;
}

static bool update(const TraceOp *op, const cb_operand *input) {
    Tensor *target = input->tensor;
    for (int k = 0; k < op->input_count; k++)
        if (input[k].kind == CB_OPERAND_TENSOR && !input[k].tensor) return false;
    Tensor *now = eager_in_place(op->op, input, op->input_count);
    bool done = now == target || (now && apply_result(target, now));
    if (now != target) tensor_destroy(now);
    return done;
}

static bool run_op(const Trace *trace, int i, const Writes *writes, const int64_t *argument,
                   bool updates, Tensor **real) {
    const TraceOp *op = &trace->op[i];
    cb_operand input[TRACE_OPERANDS];
    Tensor *copy[TRACE_OPERANDS] = {NULL};
    bool followed = is_followed(trace, op);
    for (int k = 0; k < op->input_count; k++) input[k] = operand_of(&op->input[k], argument, real);
    site_set(op->site);
    if (op->back && !back_is_possible(op, input, real)) return false;
    no_grad_set(followed ? 0 : 1);
    if (op->back) return run_back(op, input[0].tensor, input[1].tensor, real);
    if (op->op == OP_assign) return apply_assign(input[0].tensor, &input[1]) != NULL;
    if (updates) return update(op, input);
    Attrs attrs = {{0}};
    trace_attrs(op, argument, &attrs);
    bool done = !writes->last || !followed || copy_written(trace, i, writes, input, copy);
    Tensor *result = done ? apply(op->op, input, op->input_count, &attrs) : NULL;
    for (int k = 0; k < op->input_count; k++) tensor_destroy(copy[k]);
    real[op->result] = cb_keep(on_device(result, trace->value[op->result].meta.device));
    return real[op->result] != NULL;
}

static bool run_ops(const Trace *trace, int count, const int64_t *argument, Tensor **real,
                    RunMode mode) {
    Site site = site_current();
    int no_grad = no_grad_set(1);
    Writes writes = find_writes(trace, count, real, mode);
    cb_dtype autocast = autocast_set(CB_SAME); /* its conversions are ops of the trace */
    struct Checkpoint *checkpoint = checkpoint_current();
    int *changed = checkpoint ? find_changed(trace, count) : NULL;
    bool done = changed || !checkpoint;
    for (int i = 0; i < count; i++) {
        bool updates = mode.updates && mode.updates[i];
        if (mode.without_effects && trace_has_effects(&trace->op[i])) continue;
        if (mode.only && !mode.only[i]) {
            random_take(trace_op_draws(&trace->op[i], argument));
            continue;
        }
        bool change = changed && is_change(trace, i, changed);
        if (change) checkpoint_set(NULL); /* it is no read: that is written to once */
        done &= run_op(trace, i, &writes, argument, updates, real);
        if (change) checkpoint_set(checkpoint);
        i += updates;
    }
    memory_free(changed);
    memory_free(writes.last);
    set_free(&writes.outside);
    autocast_set(autocast);
    no_grad_set(no_grad);
    site_set(site);
    return done;
}

bool trace_run(const Trace *trace, int count, const int64_t *argument, Tensor **real) {
    return run_ops(trace, count, argument, real, (RunMode){.without_effects = false});
}

bool trace_run_in_place(const Trace *trace, const bool *updates, const int64_t *argument,
                        Tensor **real) {
    return run_ops(trace, length(trace->op), argument, real, (RunMode){.updates = updates});
}

void trace_run_without_effects(const Trace *trace, int count, const int64_t *argument,
                               Tensor **real) {
    run_ops(trace, count, argument, real, (RunMode){.without_effects = true});
}

bool trace_run_followed(const Trace *trace, const bool *followed, const int64_t *argument,
                        Tensor **real) {
    return run_ops(trace, length(trace->op), argument, real, (RunMode){.only = followed});
}
