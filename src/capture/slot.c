/* Slots: parts of a tensor from outside that a function writes and a library op reads, as the cache
 * of keys of a text that grows.
 *
 *     assign(slice(cache, 1, pos, pos + 1), k)      cache := slice_scatter(cache, k, ..)
 *     matmul(q, cache)                              reads all of it: as one graph, from a copy
 *
 * A library reads memory, and in a graph the cache is in memory with its slot only when the graph
 * has run. So the call is cut before such an op, where the copy would cost more than another run:
 * the first segment writes the slot alone, and the next one reads the cache where it lies. Replays
 * cut at the end of a trace that was (Trace.cut). A gradient does not go over a cut, and fullgraph
 * has none: there it stays one graph. */
#include "capture/functional.h"
#include "capture/segment.h"

enum { SLOT_LEAST = 1 << 16 }; /* bytes of what would be copied */

/* Of a shell, or of a tensor from outside that the call has met. */
static int find_value(const Call *call, const Tensor *x) {
    int v = call_traced(call, x);
    if (v != NO_VALUE) return v;
    for (v = 0; v < length(call->trace->value); v++)
        if (call->trace->value[v].kind != VALUE_IS_RESULT && call->value[v] &&
            same_tensor(call->value[v], x))
            return v;
    return NO_VALUE;
}

static bool is_written_part(const Call *call, const Tensor *x) {
    int v = find_value(call, x);
    if (v == NO_VALUE) return false;
    const Trace *trace = call->trace;
    int root = trace->value[v].root;
    const FunctionalValue *written = &call->recording->value[root];
    if (trace->value[root].kind == VALUE_IS_RESULT || !written->version) return false;
    bool part =
        written->node->op == OP_slice_scatter || written->node->op == OP_dynamic_slice_scatter;
    return part && node_bytes(written->node) >= SLOT_LEAST;
}

bool slot_is_read(const Call *call, Op op, const cb_operand *input, int input_count) {
    char why[DETAIL_BYTES];
    if (op_info(op)->autocast != AUTOCAST_LOWER || call->function->options.fullgraph) return false;
    bool reads = false;
    for (int i = 0; i < input_count && !reads; i++)
        reads = input[i].kind == CB_OPERAND_TENSOR && input[i].tensor &&
                is_written_part(call, input[i].tensor);
    return reads && !length(call->recording->leaf) && !call_keeps_history(call, NULL, 0, why);
}

bool slot_cut(Call *call) {
    if (call->mode == CALL_RECORDS) call->recording->trace->cut = true;
    return call_event(call, REASON_slot_read) && call->mode != CALL_IS_EAGER;
}
