/* Where the first NaN comes from (anomaly.h).
 *
 *     y = log(x)         x has a -1: "anomaly: log(f32[4]) gives the first NaN, at [2]"
 *     y = x * 2          x has a NaN: "anomaly: operand 0 of mul(f32[4], 2.0) has a NaN, at [2],
 *                        that no op gave"
 *
 * In: results of ops. Out: an error. Compiled functions run op by op meanwhile (stance.c), so the
 * line is that of the op. */
#include "eager/anomaly.h"

#include "base/buffer.h"
#include "tensor/place.h"
#include "tensor/read.h"
#include <math.h>

enum { BLOCK = 256 };

/* In row-major order; -1: there is none. */
static int64_t find_nan(const Tensor *x) {
    double value[BLOCK];
    const Tensor *local = dtype_is_float(x->dtype) ? tensor_local(x) : NULL;
    int64_t found = -1, total = cb_numel(x);
    for (int64_t i = 0; local && i < total && found < 0; i += BLOCK) {
        int64_t count = total - i < BLOCK ? total - i : BLOCK;
        tensor_read_range(local, i, count, value, CB_F64);
        for (int64_t k = 0; k < count && found < 0; k++)
            if (isnan(value[k])) found = i + k;
    }
    if (local) tensor_local_end(local, x);
    return found;
}

static bool is_nan(const cb_operand *operand, int64_t *at) {
    *at = -1;
    if (operand->kind == CB_OPERAND_TENSOR) {
        if (operand->tensor) *at = find_nan(operand->tensor);
        return *at >= 0;
    }
    return isnan(number_as_double(operand));
}

/* "[1, 3]" */
static void put_position(Buffer *out, const Tensor *x, int64_t at) {
    int64_t index[CB_MAX_RANK];
    for (int d = x->rank - 1; d >= 0; d--) {
        index[d] = at % x->size[d];
        at /= x->size[d];
    }
    put_sizes(out, x->rank, index);
}

/* "log(f32[4])" */
static void put_call(Buffer *out, Op op, const cb_operand *input, int count) {
    char text[128];
    putf(out, "%s(", op_info(op)->name);
    for (int i = 0; i < count; i++) {
        bool tensor = input[i].kind == CB_OPERAND_TENSOR;
        if (i) put(out, ", ");
        if (tensor && input[i].tensor) {
            Meta meta = tensor_meta(input[i].tensor);
            meta_format(&meta, text, sizeof text);
            put(out, text);
        } else if (tensor) {
            put(out, "none");
        } else {
            put_double(out, number_as_double(&input[i]));
        }
    }
    put(out, ")");
}

static bool takes_tensors(const cb_operand *input, int count) {
    for (int i = 0; i < count; i++)
        if (input[i].kind == CB_OPERAND_TENSOR && input[i].tensor) return true;
    return false;
}

static void say(Buffer *out, const Tensor *y, int64_t at, Op op, const cb_operand *input,
                int count) {
    put(out, "anomaly: ");
    for (int i = 0; i < count; i++) {
        int64_t held;
        if (!is_nan(&input[i], &held)) continue;
        putf(out, "operand %d of ", i);
        put_call(out, op, input, count);
        put(out, held < 0 ? " is NaN" : " has a NaN, at ");
        if (held >= 0) put_position(out, input[i].tensor, held);
        put(out, ", that no op gave");
        return;
    }
    put_call(out, op, input, count);
    put(out, " gives the first NaN, at ");
    put_position(out, y, at);
}

static void refuse(const Tensor *y, int64_t at, Op op, const cb_operand *input, int count) {
    Arena *arena = arena_new();
    if (!arena || arena_guard(arena)) {
        fail_memory(0);
    } else {
        Buffer text = buffer_new(arena);
        say(&text, y, at, op, input, count);
        fail(CB_ERR_ARGUMENT, "%s", buffer_text(&text));
    }
    arena_free(arena);
}

Tensor *anomaly_pass(Tensor *y, Op op, const cb_operand *input, int count) {
    int64_t at = y && takes_tensors(input, count) ? find_nan(y) : -1;
    if (at < 0) return y;
    refuse(y, at, op, input, count);
    tensor_destroy(y);
    return NULL;
}

bool anomaly_pass_gradient(const Tensor *gradient, const Tensor *given, Op op, Site site, int k) {
    int64_t at = find_nan(gradient);
    if (at < 0) return true;
    char where[128], what[128];
    Meta meta = tensor_meta(gradient);
    site_format(site, where, sizeof where);
    meta_format(&meta, what, sizeof what);
    const char *name = op_info(op)->name;
    if (find_nan(given) >= 0)
        fail(CB_ERR_ARGUMENT,
             "anomaly: the gradient that came to %s (%s) has a NaN, that no op gave", name, where);
    else
        fail(
            CB_ERR_ARGUMENT,
            "anomaly: the gradient of %s (%s) by its operand %d has the first NaN, at element %lld "
            "of %s: what came to it has none",
            name, where, k, (long long)at, what);
    return false;
}
