/* Slots: parts of a tensor from outside that a function writes and an op reads, as the cache of
 * keys of a text that grows.
 *
 *     assign(slice(cache, 1, pos, pos + 1), k)      cache := slice_scatter(cache, k, ..)
 *     matmul(q, cache)                              reads all of it: as one graph, from a copy
 *
 * A library reads memory, and in a graph the cache is in memory with its slot only when the graph
 * has run. A kernel asks for each element by which write it came, and its text holds all of them.
 * So the call is cut before such an op, where that costs more than another run: the first segment
 * writes the slots alone, and the next one reads the tensor where it lies. Replays cut at the end
 * of a trace that was (Trace.cut). A gradient does not go over a cut, and fullgraph has none: there
 * it stays one graph. */
#include "capture/functional.h"
#include "capture/segment.h"

#include <string.h>

enum {
    COPY_LEAST = 1 << 14, /* bytes of what a library would read a copy of */
    LOOP_LEAST = 1 << 16, /* bytes that a kernel reads, and asks for each element who wrote it */
    SHARE = 4,            /* ... where so many times what is written is the tensor */
    MOST_CONDITIONS = 8   /* whose conditions one kernel has */
};

/* Of a shell, or of a tensor from outside that the call has met. */
static int find_met(const Call *call, const Tensor *x) {
    int v = call_traced(call, x);
    if (v != NO_VALUE) return v;
    for (v = 0; v < length(call->trace->value); v++)
        if (call->trace->value[v].kind != VALUE_IS_RESULT && call->value[v] &&
            same_tensor(call->value[v], x))
            return v;
    return NO_VALUE;
}

static bool is_part(const Node *node) {
    return node->op == OP_slice_scatter || node->op == OP_dynamic_slice_scatter;
}

/* What has been written of a tensor from outside. */
typedef struct SlotWrites {
    int parts;
    int64_t bytes; /* of all of them: where they overlap, more than is written, and a call is not
                    * cut for what a kernel of no more than MOST_CONDITIONS asks */
} SlotWrites;

/* Of a part of a part, the innermost one. */
static const Node *written_by(const Node *scatter) {
    const Node *part = scatter->input[1];
    while (is_part(part)) part = part->input[1];
    return part;
}

/* Of what a value is a view of. */
static SlotWrites find_written(const Call *call, int v) {
    SlotWrites found = {0};
    if (v == NO_VALUE) return found;
    int root = call->trace->value[v].root;
    const FunctionalValue *written = &call->recording->value[root];
    if (call->trace->value[root].kind == VALUE_IS_RESULT || !written->version) return found;
    for (const Node *node = written->node; node->op != OP_input; node = node->input[0]) {
        bool part = is_part(node);
        if (!part && op_info(node->op)->kind != KIND_VIEW) break;
        if (part) found.bytes += node_bytes(written_by(node));
        found.parts += part;
    }
    return found;
}

/* What a kernel computes where most is written, a stencil in place, it has at hand, and behind a
 * cut it would come from memory. */
static bool costs_more(const Call *call, Op op, const Tensor *x) {
    int v = find_met(call, x);
    SlotWrites written = find_written(call, v);
    if (!written.parts || functional_wrote(call->recording, v)) return false;
    const FunctionalValue *root = &call->recording->value[call->trace->value[v].root];
    if (op_info(op)->autocast == AUTOCAST_LOWER) return node_bytes(root->node) >= COPY_LEAST;
    Meta meta = tensor_meta(x);
    int64_t bytes = meta_numel(&meta) * (int64_t)cb_dtype_size(x->dtype);
    bool little = written.bytes * SHARE <= node_bytes(root->node);
    return written.parts >= MOST_CONDITIONS || (little && bytes >= LOOP_LEAST);
}

bool slot_is_read(const Call *call, Op op, const cb_operand *input, int input_count) {
    char why[DETAIL_BYTES];
    if (op_info(op)->kind == KIND_VIEW || call->function->options.fullgraph) return false;
    bool reads = false;
    for (int i = 0; i < input_count && !reads; i++)
        reads = input[i].kind == CB_OPERAND_TENSOR && input[i].tensor &&
                costs_more(call, op, input[i].tensor);
    return reads && !length(call->recording->leaf) && !call_keeps_history(call, NULL, 0, why);
}

/* ---- the cut ------------------------------------------------------------------------------- */

enum { MOST_VIEWS = 8 };

/* A view that was recorded last, of which the op behind the cut is: it is one of what follows. */
typedef struct LateView {
    Op op;
    Attrs attrs;
    Tensor *input, *own; /* own: what input is, if nobody else may have it behind the cut */
    Tensor *shell;       /* NULL: it is gone */
    Site site;
} LateView;

/* How many views end the recording. */
static int count_late(const Call *call) {
    const Trace *trace = call->trace;
    int count = 0;
    while (count < MOST_VIEWS && count + 1 < call->at) {
        const TraceOp *op = &trace->op[call->at - count - 1];
        bool view = !op->back && op->op != OP_assign && op_info(op->op)->kind == KIND_VIEW;
        if (!view || trace->value[op->result].root == op->result) break;
        count++;
    }
    return count;
}

static bool drop_own(LateView *late, int count) {
    for (int i = 0; i < count; i++)
        if (late[i].own) tensor_destroy(late[i].own);
    return false;
}

/* They leave the recording. False: no memory. */
static bool take_late(Call *call, LateView *late, int count) {
    int first = trace_values_after(call->trace, call->at - count);
    for (int i = 0; i < count; i++) {
        const TraceOp *op = &call->trace->op[call->at - count + i];
        int input = op->input[0].value;
        late[i] = (LateView){.op = op->op, .input = call->value[input], .site = op->site};
        trace_attrs(op, call->argument, &late[i].attrs);
        late[i].shell = call->value[op->result];
        if (call->trace->value[input].kind != VALUE_IS_CAPTURED) continue;
        late[i].input = late[i].own = cb_keep(tensor_double(call->value[input]));
        if (!late[i].own) return drop_own(late, i);
    }
    if (!record_shorten(call, call->at - count)) return drop_own(late, count);
    for (int i = 0; i < count; i++) {
        if (!late[i].shell) continue;
        call->value[late[i].shell->number] = NULL;
        call->tracer.alive--;
        late[i].shell->trace = 0;
    }
    call_unbind_from(call, first);
    return true;
}

/* The function's shell is what the view is now. */
static void become(Call *call, Tensor *shell, Tensor *view) {
    memcpy(shell->stride, view->stride, sizeof shell->stride);
    shell->offset = view->offset;
    if (call_traced(call, view) == NO_VALUE) {
        if (view->storage) shell->storage = storage_retain(view->storage);
        return;
    }
    shell->trace = view->trace;
    shell->number = view->number;
    call->value[view->number] = shell;
    view->trace = 0;
}

static void make_late(Call *call, LateView *late, int count) {
    Site site = site_current();
    for (int i = 0; i < count; i++) {
        cb_operand input = cb_operand_tensor(late[i].input);
        site_set(late[i].site);
        Tensor *view = late[i].shell ? apply(late[i].op, &input, 1, &late[i].attrs) : NULL;
        if (view) become(call, late[i].shell, view);
        if (view) tensor_destroy(view);
    }
    drop_own(late, count);
    site_set(site);
}

bool slot_cut(Call *call) {
    LateView late[MOST_VIEWS] = {{0}};
    int count = call->mode == CALL_RECORDS ? count_late(call) : 0;
    if (count && !take_late(call, late, count))
        return call_break(call, REASON_out_of_memory, "while recording") && false;
    if (call->mode == CALL_RECORDS) call->recording->trace->cut = true;
    bool done = call_event(call, REASON_slot_read, NULL);
    make_late(call, late, count);
    return done && call->mode != CALL_IS_EAGER;
}
