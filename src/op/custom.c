/* Operations of the user's: the registry, and the shape rule of every call.
 *
 * In: cb_register_op. Out: a number for each name, which is an attribute of OP_custom; metas of
 * what a call gives. Invariant: a number that was handed out stands for the same callbacks until
 * the process ends, so graphs and compiled code may hold on to it.
 *
 *     "signal.split" of f32[5] with outputs f32[2], f32[3]
 *         -> custom: u8[76], its parts f32[2] at byte 0, f32[3] at byte 64 */
#include "op/custom.h"
#include "base/lock.h"
#include "base/parallel.h"
#include "base/round.h"
#include "op/infer.h"

#include <stdatomic.h>
#include <string.h>

enum { MOST_OPS = 128, PART_ALIGNMENT = 64 };

typedef struct Registered {
    cb_custom_op op; /* its name is the one below */
    char name[CB_MAX_OP_NAME + 1];
    int gradient; /* its number, or CUSTOM_NONE */
} Registered;

static Registered registered[MOST_OPS]; /* added to under the lock `custom`, never changed */
static _Atomic int registered_count;

/* ---- the registry ---------------------------------------------------------------------------- */

int custom_find(const char *name, size_t length) {
    int count = atomic_load_explicit(&registered_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (strlen(registered[i].name) == length && !memcmp(registered[i].name, name, length))
            return i;
    return CUSTOM_NONE;
}

const cb_custom_op *custom_given(int64_t number) {
    int count = atomic_load_explicit(&registered_count, memory_order_acquire);
    check(number >= 0 && number < count, "there is no custom op %lld", (long long)number);
    return &registered[number].op;
}

int custom_gradient(const Attrs *attrs) {
    int64_t number = attrs->word[ATTR_custom_operation];
    custom_given(number);
    return registered[number].gradient;
}

bool op_has_gradient(Op op, const Attrs *attrs) {
    if (op == OP_custom) return custom_gradient(attrs) != CUSTOM_NONE;
    return *op_gradient(op) != '!';
}

const char *op_call_name(Op op, const int64_t *word) {
    if (op != OP_custom) return op_info(op)->name;
    return custom_given(word[ATTR_custom_operation])->name;
}

/* "library.operation": words of letters, digits and _, joined by dots, none of which begins with a
 * digit. */
static bool name_good(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    int dots = 0;
    if (strlen(name) > CB_MAX_OP_NAME) return false;
    for (;; name++, dots++) {
        size_t begins = strspn(name, letters);
        if (!begins) return false;
        while (*name && (strchr(letters, *name) || (*name >= '0' && *name <= '9'))) name++;
        if (*name != '.') return *name == '\0' && dots > 0;
    }
}

static bool begins_with(const char *name, const char *library) {
    size_t length = strlen(library);
    return !strncmp(name, library, length) && name[length] == '.';
}

static cb_status look_at(const cb_custom_op *op) {
    if (!op || !op->name) return fail(CB_ERR_ARGUMENT, "register_op: the name is NULL");
    const char *name = op->name;
    if (!name_good(name))
        return fail(CB_ERR_ARGUMENT,
                    "register_op: '%s' is no \"library.operation\" of letters, "
                    "digits and _, at most %d",
                    name, CB_MAX_OP_NAME);
    if (begins_with(name, "torch") || begins_with(name, "operator") || begins_with(name, "carbide"))
        return fail(CB_ERR_ARGUMENT, "register_op: %s: the names of that library are taken", name);
    if (!op->kernel) return fail(CB_ERR_ARGUMENT, "register_op: %s has no kernel", name);
    if (op->inputs < 1 || op->inputs > CB_MAX_OP_INPUTS)
        return fail(CB_ERR_ARGUMENT, "register_op: %s: %d inputs; 1 to %d are possible", name,
                    op->inputs, CB_MAX_OP_INPUTS);
    if (op->outputs < 0 || op->outputs > CB_MAX_OP_OUTPUTS)
        return fail(CB_ERR_ARGUMENT, "register_op: %s: %d outputs; 0 to %d are possible", name,
                    op->outputs, CB_MAX_OP_OUTPUTS);
    if (op->integers < 0 || op->integers > CB_MAX_RANK || op->floats < 0 ||
        op->floats > CB_MAX_RANK)
        return fail(CB_ERR_ARGUMENT,
                    "register_op: %s: %d integers and %d floats; 0 to %d are "
                    "possible",
                    name, op->integers, op->floats, CB_MAX_RANK);
    if (op->mutates >> op->inputs)
        return fail(CB_ERR_ARGUMENT, "register_op: %s writes to an input that it has not", name);
    if (!op->outputs && !op->mutates && !op->effects)
        return fail(CB_ERR_ARGUMENT,
                    "register_op: %s gives nothing, writes to nothing and has no "
                    "effects",
                    name);
    return CB_OK;
}

/* The number of its gradient; false with an error where that does not fit. */
static bool find_gradient(const cb_custom_op *op, int *number) {
    *number = CUSTOM_NONE;
    if (!op->gradient) return true;
    *number = custom_find(op->gradient, strlen(op->gradient));
    if (*number == CUSTOM_NONE) {
        fail(CB_ERR_ARGUMENT, "register_op: %s: no operation '%s' is registered, its gradient",
             op->name, op->gradient);
        return false;
    }
    const cb_custom_op *other = &registered[*number].op;
    if (op->outputs == 1 && !op->mutates && !other->mutates && !other->effects &&
        other->inputs == op->inputs + 1 && other->outputs >= 1 && other->outputs <= op->inputs &&
        other->integers == op->integers && other->floats == op->floats)
        return true;
    fail(CB_ERR_ARGUMENT,
         "register_op: %s cannot be the gradient of %s: that has one output and writes to no "
         "input, and its gradient takes %d inputs, %d integers and %d floats",
         op->gradient, op->name, op->inputs + 1, op->integers, op->floats);
    return false;
}

static bool same(const cb_custom_op *a, const Registered *known, int gradient) {
    const cb_custom_op *b = &known->op;
    return gradient == known->gradient && a->inputs == b->inputs && a->outputs == b->outputs &&
           a->integers == b->integers && a->floats == b->floats && a->mutates == b->mutates &&
           a->effects == b->effects && a->shape == b->shape && a->kernel == b->kernel &&
           a->user == b->user;
}

static cb_status add(const cb_custom_op *op) {
    int known = custom_find(op->name, strlen(op->name)), gradient;
    if (!find_gradient(op, &gradient)) return cb_error_status();
    if (known != CUSTOM_NONE) {
        if (same(op, &registered[known], gradient)) return CB_OK;
        return fail(CB_ERR_ARGUMENT, "register_op: %s is another op already", op->name);
    }
    int count = atomic_load_explicit(&registered_count, memory_order_relaxed);
    if (count == MOST_OPS)
        return fail(CB_ERR_MEMORY, "register_op: %s: there are %d already", op->name, MOST_OPS);
    Registered *added = &registered[count];
    memcpy(added->name, op->name, strlen(op->name) + 1);
    added->op = *op;
    added->op.name = added->name;
    added->op.gradient = NULL; /* the caller's memory */
    added->gradient = gradient;
    atomic_store_explicit(&registered_count, count + 1, memory_order_release);
    return CB_OK;
}

cb_status cb_register_op(const cb_custom_op *op) {
    cb_status status = look_at(op);
    if (status != CB_OK) return status;
    lock_take(LOCK_custom);
    status = add(op);
    lock_give(LOCK_custom);
    return status;
}

/* ---- calling back ---------------------------------------------------------------------------- */

static cb_array array_of(const Meta *meta) {
    cb_array array = {.dtype = meta->dtype, .rank = meta->rank};
    memcpy(array.size, meta->size, sizeof array.size);
    return array;
}

void custom_prepare(CustomCall *call, const Meta *input, int input_count, const Attrs *attrs) {
    const cb_custom_op *op = custom_of(attrs);
    *call = (CustomCall){0};
    for (int i = 0; i < input_count; i++) call->input[i] = array_of(&input[i]);
    call->integers = attr_dims(attrs, ATTR_custom_integers);
    call->floats = attr_floats(attrs, ATTR_custom_floats);
    call->call = (cb_op_call){.input = call->input,
                              .input_count = input_count,
                              .output = call->output,
                              .output_count = op->outputs,
                              .integers = call->integers.at,
                              .floats = call->floats.at,
                              .threads = parallel_threads(),
                              .user = op->user};
}

static void name_call(const CustomCall *call, const char *name, Site site) {
    fail_also(", in %s(", name);
    for (int i = 0; i < call->call.input_count; i++) {
        char text[128];
        const cb_array *array = &call->input[i];
        Meta meta = {.dtype = array->dtype, .rank = (uint8_t)array->rank};
        memcpy(meta.size, array->size, sizeof meta.size);
        meta_format(&meta, text, sizeof text);
        fail_also(i ? ", %s" : "%s", text);
    }
    char line[128];
    site_format(site, line, sizeof line);
    fail_also(site.file ? ") at %s" : ")", line);
}

bool custom_invoke(cb_op_callback *callback, const CustomCall *call, const Attrs *attrs,
                   Site site) {
    bool failed_before = error_text() != NULL;
    Site caller = site_current();
    site_set(site);
    cb_status status = callback(&call->call);
    site_set(site);
    if (status != CB_OK && !failed_before) {
        bool said = error_text() != NULL;
        const char *name = custom_of(attrs)->name;
        if (!said) fail(status < 0 ? status : CB_ERR_ARGUMENT, "%s failed", name);
        name_call(call, name, said ? site : (Site){0});
    }
    site_set(caller);
    return status == CB_OK;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool take_output(const cb_custom_op *op, int number, const cb_array *array, Meta *meta) {
    bool good = array->dtype >= 0 && array->dtype < CB_DTYPE_COUNT && array->rank >= 0 &&
                array->rank <= CB_MAX_RANK;
    for (int i = 0; good && i < array->rank; i++) good = array->size[i] >= 0;
    if (!good) {
        fail(CB_ERR_SHAPE, "%s: its shape rule gives output %d no possible dtype and sizes",
             op->name, number);
        return false;
    }
    *meta = (Meta){.dtype = array->dtype, .rank = (uint8_t)array->rank};
    for (int i = 0; i < array->rank; i++) meta->size[i] = array->size[i];
    return true;
}

static bool find_outputs(const cb_custom_op *op, const Meta *input, int input_count,
                         const Attrs *attrs, CustomResults *out) {
    CustomCall call;
    custom_prepare(&call, input, input_count, attrs);
    for (int k = 0; k < op->outputs; k++) {
        if (!op->shape) call.output[k] = call.input[0];
        if (op->shape) call.output[k].dtype = CB_SAME; /* a rule sets it, or is refused */
    }
    if (op->shape && !custom_invoke(op->shape, &call, attrs, site_current())) return false;
    for (int k = 0; k < op->outputs; k++) {
        if (!take_output(op, k, &call.output[k], &out->meta[k])) return false;
        out->input[k] = -1;
    }
    out->count = op->outputs;
    return true;
}

/* Of its elements; false: more than there can be. */
static bool bytes_of(const Meta *meta, int64_t *bytes) {
    *bytes = (int64_t)cb_dtype_size(meta->dtype);
    for (int i = 0; i < meta->rank; i++)
        if (__builtin_mul_overflow(*bytes, meta->size[i] ? meta->size[i] : 1, bytes)) return false;
    if (meta_numel(meta) == 0) *bytes = 0;
    return *bytes < INT64_MAX / (2 * CUSTOM_RESULTS);
}

/* Where each of them lies in the value of bytes. */
static bool place_results(const cb_custom_op *op, CustomResults *out) {
    int64_t bytes = 0;
    for (int k = 0; k < out->count; k++) {
        int64_t own;
        out->offset[k] = round_up(bytes, PART_ALIGNMENT);
        if (!bytes_of(&out->meta[k], &own)) {
            fail(CB_ERR_SHAPE, "%s: its results have too many elements", op->name);
            return false;
        }
        bytes = out->offset[k] + own;
    }
    out->value = (Meta){.dtype = CB_U8, .rank = 1, .size = {bytes}};
    if (out->count == 1) out->value = out->meta[0];
    return true;
}

bool custom_results(const Meta *input, int input_count, const Attrs *attrs, CustomResults *out) {
    const cb_custom_op *op = custom_of(attrs);
    if (!find_outputs(op, input, input_count, attrs, out)) return false;
    for (int i = 0; i < input_count; i++) {
        if (!(op->mutates >> i & 1)) continue;
        out->meta[out->count] = input[i];
        out->meta[out->count].number = false;
        out->meta[out->count].device = 0;
        out->input[out->count++] = i;
    }
    return place_results(op, out);
}

Attrs custom_part_attrs(const CustomResults *results, int k) {
    const Meta *meta = &results->meta[k];
    Attrs attrs = attrs_default(OP_custom_part);
    attrs.word[ATTR_custom_part_offset] = results->offset[k];
    attr_set_dims(&attrs, ATTR_custom_part_sizes, size_list(meta->rank, meta->size));
    attrs.word[ATTR_custom_part_dtype] = meta->dtype;
    return attrs;
}

static bool infer_part(InferCall *call) {
    const Attrs *attrs = call->attrs;
    Meta *result = &call->out->result;
    cb_dim_list sizes = attr_dims(attrs, ATTR_custom_part_sizes);
    int64_t offset = attrs->word[ATTR_custom_part_offset];
    result->dtype = attrs->word[ATTR_custom_part_dtype];
    if (sizes.count < 0 || result->dtype < 0 || result->dtype >= CB_DTYPE_COUNT)
        return infer_fail(call, CB_ERR_ARGUMENT, "no sizes and dtype");
    result->rank = (uint8_t)sizes.count;
    memcpy(result->size, sizes.at, sizeof result->size);
    int64_t bytes = call->input[0].dtype == CB_U8 ? meta_numel(&call->input[0]) : 0;
    for (int i = 0; i < sizes.count; i++)
        if (sizes.at[i] < 0) return infer_fail(call, CB_ERR_SHAPE, "a size is negative");
    int64_t own;
    if (offset < 0 || offset > bytes || offset % PART_ALIGNMENT || !bytes_of(result, &own) ||
        own > bytes - offset)
        return infer_fail(call, CB_ERR_SHAPE, "that part lies outside");
    return true;
}

bool custom_miscounted(const cb_custom_op *op, int inputs, int integers, int floats) {
    const char *hint =
        floats || !op->floats ? "" : "; a plain number that is 0 is none: write cb_floats(x)";
    fail(CB_ERR_ARGUMENT, "%s takes %d tensors, %d integers and %d floats, not %d, %d and %d%s",
         op->name, op->inputs, op->integers, op->floats, inputs, integers, floats, hint);
    return false;
}

bool infer_custom(InferCall *call) {
    for (int i = 0; i < call->input_count; i++) call->out->input_dtype[i] = call->input[i].dtype;
    if (call->op == OP_custom_part) return infer_part(call);
    const cb_custom_op *op = custom_of(call->attrs);
    cb_dim_list integers = attr_dims(call->attrs, ATTR_custom_integers);
    cb_float_list floats = attr_floats(call->attrs, ATTR_custom_floats);
    if (call->input_count != op->inputs || integers.count != op->integers ||
        floats.count != op->floats) {
        return custom_miscounted(op, call->input_count, integers.count, floats.count);
    }
    CustomResults results;
    if (!custom_results(call->input, call->input_count, call->attrs, &results)) return false;
    call->out->result = results.value;
    return true;
}
