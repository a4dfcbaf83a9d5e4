/* A step of the user's: arrays for the kernel, and the call.
 *
 * In: a node of KIND_CUSTOM, its operands in memory, room for its value. Out: that value. Operands
 * that are not contiguous are copied; what the kernel writes to is a copy in the value, which
 * whoever recorded the call assigns to the input.
 *
 *     "signal.scale_" writes to x: f32[4], no outputs  ->  out = x, kernel(input 0 at out) */
#include "run/custom.h"
#include "base/memory.h"
#include "op/custom.h"
#include "run/enqueue.h"
#include "tensor/tracer.h"

#include <string.h>

static bool copy_to(const CustomOperand *operand, const Meta *meta, void *to) {
    int64_t stride[CB_MAX_RANK];
    contiguous_strides(meta->rank, meta->size, stride);
    const int64_t *from = operand->tensor ? operand->tensor->stride : stride;
    return elements_copy(DEVICE_cpu, to, stride, operand->data, from, meta->rank, meta->size,
                         cb_dtype_size(meta->dtype));
}

static bool run_part(const Node *node, const CustomOperand *operand, void *out) {
    const char *from = operand->data;
    memcpy(out, from + node->attrs->word[ATTR_custom_part_offset], (size_t)node_bytes(node));
    return true;
}

/* ---- a call ---------------------------------------------------------------------------------- */

typedef struct CustomRun {
    const Node *node;
    const CustomOperand *operand;
    Meta meta[OP_MAX_INPUTS];
    Storage *copy[OP_MAX_INPUTS];
    CustomResults results;
    CustomCall call;
} CustomRun;

/* Where results lie, and in them the inputs that are written to. */
static bool bind_results(CustomRun *run, char *out) {
    const CustomResults *results = &run->results;
    int outputs = run->call.call.output_count;
    for (int k = 0; k < results->count; k++) {
        char *at = out + (results->count > 1 ? results->offset[k] : 0);
        int input = results->input[k];
        if (input < 0) {
            check(k < outputs, "a result that is neither an output nor an input");
            CustomCall *call = &run->call;
            call->output[k].dtype = results->meta[k].dtype;
            call->output[k].rank = results->meta[k].rank;
            memcpy(call->output[k].size, results->meta[k].size, sizeof call->output[k].size);
            call->output[k].data = at;
            continue;
        }
        if (!copy_to(&run->operand[input], &run->meta[input], at)) return false;
        run->call.input[input].data = at;
    }
    return true;
}

static bool bind_inputs(CustomRun *run) {
    for (int i = 0; i < run->node->input_count; i++) {
        const CustomOperand *operand = &run->operand[i];
        if (run->call.input[i].data) continue; /* it is written to */
        run->call.input[i].data = (void *)(uintptr_t)operand->data;
        if (!operand->tensor || tensor_contiguous(operand->tensor)) continue;
        run->copy[i] = storage_new_on(DEVICE_cpu, (size_t)node_bytes(run->node->input[i]));
        if (!run->copy[i] || !copy_to(operand, &run->meta[i], run->copy[i]->data)) return false;
        run->call.input[i].data = run->copy[i]->data;
    }
    return true;
}

/* A rule that gives other sizes than when the call was recorded would write elsewhere. */
static bool find_results(CustomRun *run) {
    const Node *node = run->node;
    if (!custom_results(run->meta, node->input_count, node->attrs, &run->results)) return false;
    const Meta *value = &run->results.value;
    if (value->dtype == node->dtype && value->rank == node->rank &&
        !memcmp(value->size, node->size, sizeof *node->size * node->rank))
        return true;
    fail(CB_ERR_SHAPE, "%s: its shape rule changed its mind", custom_of(node->attrs)->name);
    return false;
}

static bool call_kernel(CustomRun *run, char *out, const RandomState *random) {
    const Node *node = run->node;
    const cb_custom_op *op = custom_of(node->attrs);
    custom_prepare(&run->call, run->meta, node->input_count, node->attrs);
    if (!bind_results(run, out) || !bind_inputs(run)) return false;
    if (op->effects) {
        run->call.call.seed = random->seed;
        run->call.call.draw = random->offset + node_draw(node);
    }
    Tracer *tracer = tracer_set(NULL); /* its work is not recorded */
    Site site = node->origin.site.file ? node->origin.site : site_current();
    bool done = custom_invoke(op->kernel, &run->call, node->attrs, site);
    tracer_set(tracer);
    return done;
}

bool run_custom(const Node *node, const CustomOperand *operand, void *out,
                const RandomState *random) {
    if (node->op == OP_custom_part) return run_part(node, operand, out);
    CustomRun run = {.node = node, .operand = operand};
    for (int i = 0; i < node->input_count; i++) run.meta[i] = node_meta(node->input[i]);
    bool done = find_results(&run) && call_kernel(&run, out, random);
    for (int i = 0; i < node->input_count; i++)
        if (run.copy[i]) storage_release(run.copy[i]);
    return done;
}
