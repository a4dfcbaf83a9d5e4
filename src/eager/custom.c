/* Calls of the user's operations: ops of the table (OP_custom) to whoever sees them.
 *
 * In: a name, handles, attributes. Out: its outputs. One result is the op's value; of several, each
 * is a part of it. Inputs that the kernel writes to are assigned their new elements, so tracers see
 * a write like any other.
 *
 *     two outputs, input 1 written to:  v = custom(x, y); a, b, c = parts of v; assign(y, c) */
#include "op/custom.h"
#include "eager/apply.h"

#include <string.h>

typedef struct CustomTry { /* a call in progress */
    const cb_custom_op *op;
    Tensor *input[CB_MAX_OP_INPUTS];
    Attrs attrs;
    CustomResults results;
    Tensor *result[CUSTOM_RESULTS]; /* owned until they are given out */
} CustomTry;

/* ---- the call -------------------------------------------------------------------------------- */

static bool find(CustomTry *try, const char *name) {
    int number = name ? custom_find(name, strlen(name)) : CUSTOM_NONE;
    if (number == CUSTOM_NONE) {
        fail(CB_ERR_ARGUMENT, "call_op: no operation '%s' is registered", name ? name : "NULL");
        return false;
    }
    try->op = custom_given(number);
    try->attrs = attrs_default(OP_custom);
    try->attrs.word[ATTR_custom_operation] = number;
    return true;
}

static bool take(CustomTry *try, cb_tensor *const *inputs, int count, cb_dim_list integers,
                 cb_float_list floats) {
    const cb_custom_op *op = try->op;
    if (count != op->inputs || integers.count != op->integers || floats.count != op->floats) {
        return custom_miscounted(op, count, integers.count, floats.count);
    }
    attr_set_dims(&try->attrs, ATTR_custom_integers, integers);
    attr_set_floats(&try->attrs, ATTR_custom_floats, floats);
    if (!tensors_in(inputs, count, op->name, try->input)) return false;
    for (int i = 0; i < count; i++) {
        if (try->input[i]) continue;
        fail(CB_ERR_ARGUMENT, "%s: input %d is NULL", op->name, i);
        return false;
    }
    return true;
}

static Tensor *call(CustomTry *try) {
    cb_operand operand[CB_MAX_OP_INPUTS];
    for (int i = 0; i < try->op->inputs; i++) operand[i] = cb_operand_tensor(try->input[i]);
    return apply(OP_custom, operand, try->op->inputs, &try->attrs);
}

static Tensor *part(Tensor *value, const CustomResults *results, int k) {
    Attrs attrs = custom_part_attrs(results, k);
    cb_operand operand = cb_operand_tensor(value);
    return apply(OP_custom_part, &operand, 1, &attrs);
}

/* ---- results --------------------------------------------------------------------------------- */

/* A symbolic trace knows nothing of its values; one result needs no more than the call. */
static bool find_results(CustomTry *try) {
    CustomResults *results = &try->results;
    Meta meta[CB_MAX_OP_INPUTS];
    bool known = true;
    for (int i = 0; i < try->op->inputs; i++) {
        known &= try->input[i]->dtype >= 0;
        meta[i] = tensor_meta(try->input[i]);
    }
    if (known) return custom_results(meta, try->op->inputs, &try->attrs, results);
    results->count = try->op->outputs + __builtin_popcountll(try->op->mutates);
    results->input[0] = try->op->mutates ? __builtin_ctzll(try->op->mutates) : -1;
    if (results->count <= 1) return true;
    fail(CB_ERR_GRAPH, "%s: several results are traced with examples alone", try->op->name);
    return false;
}

static bool divide(CustomTry *try, Tensor *value) {
    const CustomResults *results = &try->results;
    if (results->count <= 1) {
        try->result[0] = value;
        return true;
    }
    bool done = true;
    for (int k = 0; k < results->count && done; k++)
        done = (try->result[k] = part(value, results, k)) != NULL;
    tensor_destroy(value);
    return done;
}

/* What is no output dies here. */
static bool write_back(CustomTry *try) {
    bool done = true;
    for (int k = 0; k < try->results.count; k++) {
        int input = try->results.input[k];
        if (input < 0) continue;
        cb_operand value = cb_operand_tensor(try->result[k]);
        done = done && apply_assign(try->input[input], &value);
        tensor_destroy(try->result[k]);
        try->result[k] = NULL;
    }
    return done;
}

static bool run(CustomTry *try) {
    memset(try->result, 0, sizeof try->result);
    if (!find_results(try)) return false;
    Tensor *value = call(try);
    bool done = value && divide(try, value) && write_back(try);
    if (!try->op->outputs && !try->op->mutates) {
        tensor_destroy(try->result[0]); /* of no elements */
        try->result[0] = NULL;
    }
    for (int k = 0; k < try->results.count && !done; k++) tensor_destroy(try->result[k]);
    return done;
}

/* ---- the public API -------------------------------------------------------------------------- */

int cb_call_op_n(const char *name, cb_tensor *const *inputs, int count, cb_dim_list integers,
                 cb_float_list floats, cb_tensor **outputs, int capacity) {
    CustomTry try;
    if (!find(&try, name)) return cb_error_status();
    if (try.op->outputs > capacity || (try.op->outputs && !outputs))
        return fail(CB_ERR_ARGUMENT, "%s: %d outputs do not fit into an array of %d", name,
                    try.op->outputs, outputs ? capacity : 0);
    if (!take(&try, inputs, count, integers, floats) || !run(&try)) return cb_error_status();
    for (int k = 0; k < try.op->outputs; k++) outputs[k] = tensor_out(try.result[k]);
    return try.op->outputs;
}

cb_tensor *cb_call_op(const char *name, cb_tensor *const *inputs, int count, cb_dim_list integers,
                      cb_float_list floats) {
    CustomTry try;
    if (!find(&try, name) || !take(&try, inputs, count, integers, floats) || !run(&try))
        return NULL;
    for (int k = 1; k < try.op->outputs; k++) tensor_destroy(try.result[k]);
    return try.op->outputs ? tensor_out(try.result[0]) : inputs[0];
}
