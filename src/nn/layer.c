/* What the layers' files share.
 *
 *     layer_new("Linear", OP_linear, &attrs, "in_features=%d", 4): prints Linear(in_features=4),
 *     forward is linear(x, weight, bias)
 *     layer_tuple(cb_dims(3, 3)).at: "(3, 3)" */
#include "nn/layer.h"
#include "op_calls.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- making --------------------------------------------------------------------------------- */

Tensor *layer_apply(const Module *module, Tensor *x) {
    cb_operand operand[OP_MAX_INPUTS] = {cb_operand_tensor(x)};
    for (int i = 1; i < OP_MAX_INPUTS; i++)
        operand[i] = cb_operand_tensor(layer_own(module, i - 1));
    return apply(module->op, operand, op_info(module->op)->arity, &module->attrs);
}

static Tensor *forward(Module *self, Tensor *const *inputs, int count) {
    return layer_one_input(self, count) ? layer_apply(self, inputs[0]) : NULL;
}

static Module *layer_with(const char *type, Op op, const Attrs *attrs, const char *extra) {
    Module *module = module_layer(type, forward, extra);
    if (!module) return NULL;
    module->fresh = true;
    module->op = op;
    if (attrs) module->attrs = *attrs;
    return module;
}

Module *layer_new(const char *type, Op op, const Attrs *attrs, const char *format, ...) {
    char extra[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(extra, sizeof extra, format, arguments);
    va_end(arguments);
    return layer_with(type, op, attrs, extra);
}

static LayerText shown_value(const LayerShown *shown, const Attrs *attrs) {
    LayerText text;
    int64_t word = attrs->word[shown->word];
    if (shown->type == PARAM_DIMS && shown->tuple)
        return layer_tuple(attr_dims(attrs, shown->word));
    if (shown->type == PARAM_DIMS) return layer_given(attr_dims(attrs, shown->word));
    if (shown->type == PARAM_FLOATS) return layer_numbers(attr_floats(attrs, shown->word));
    if (shown->type == PARAM_NUMBER) return layer_operand(attr_number(attrs, shown->word));
    if (shown->type == PARAM_FLOAT) return layer_number(attr_float(attrs, shown->word));
    if (shown->type == PARAM_BOOL)
        snprintf(text.at, sizeof text.at, "%s", layer_bool(word));
    else
        snprintf(text.at, sizeof text.at, "%" PRId64, word);
    return text;
}

Module *layer_of_op(const char *type, Op op, const LayerShown *shown, const Attrs *attrs) {
    char extra[512] = "";
    size_t used = 0;
    for (int i = 0; shown[i].name && used < sizeof extra; i++)
        used += (size_t)snprintf(extra + used, sizeof extra - used, "%s%s%s%s", i ? ", " : "",
                                 shown[i].name, *shown[i].name ? "=" : "",
                                 shown_value(&shown[i], attrs).at);
    return layer_with(type, op, attrs, extra);
}

bool layer_one_input(const Module *module, int count) {
    if (count == 1) return true;
    fail(CB_ERR_ARGUMENT, "%s takes one input, not %d", module->type, count);
    return false;
}

/* ---- initial values ------------------------------------------------------------------------- */

void layer_value(Module **module, const char *name, Tensor *value) {
    module_init(module, name, value, false);
}

void layer_buffer(Module **module, const char *name, Tensor *value) {
    module_init(module, name, value, true);
}

/* Its place must be taken: the tensors behind it are found by theirs. */
void layer_absent(Module **module, const char *name) {
    int before = *module ? (*module)->tensor_count : 0;
    if (!*module) return;
    cb_module_parameter(*module, name, NULL);
    if ((*module)->tensor_count > before) return;
    cb_module_free(*module);
    *module = NULL;
}

/* Layers may be made inside a traced function: their initial values are not part of its graph. */
Tensor *layer_uniform(cb_dim_list sizes, double bound) {
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    Tensor *result = op_rand(sizes, CB_F32);
    cb_operand scaled[] = {cb_operand_tensor(result), cb_operand_float(2 * bound)};
    cb_operand shifted[] = {cb_operand_tensor(result), cb_operand_float(bound)};
    bool done =
        result && apply_into(result, OP_mul, scaled, 2) && apply_into(result, OP_sub, shifted, 2);
    if (done) cb_keep(result);
    cb_scope_close();
    tracer_set(tracer);
    return done ? result : NULL;
}

Tensor *layer_normal(cb_dim_list sizes) {
    Tracer *tracer = tracer_set(NULL);
    Tensor *result = op_randn(sizes, CB_F32);
    tracer_set(tracer);
    return result;
}

Tensor *layer_filled(cb_dim_list sizes, double value, cb_dtype dtype) {
    Tracer *tracer = tracer_set(NULL);
    Tensor *result = op_full(sizes, cb_operand_float(value), dtype);
    tracer_set(tracer);
    return result;
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* The shortest digits that read back, as Python's repr for the numbers that layers are made of. */
LayerText layer_number(double value) {
    LayerText text;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text.at, sizeof text.at, "%.*g", digits, value);
        if (strtod(text.at, NULL) == value) break;
    }
    if (fabs(value) >= 1 && fabs(value) < 1e15 && strchr(text.at, 'e'))
        snprintf(text.at, sizeof text.at, "%.0f", value);
    if (!strpbrk(text.at, ".en")) strcat(text.at, ".0");
    return text;
}

LayerText layer_operand(cb_operand number) {
    LayerText text = {"None"};
    if (number.kind == CB_OPERAND_FLOAT) return layer_number(number.f);
    if (number.kind == CB_OPERAND_INT)
        snprintf(text.at, sizeof text.at, "%" PRId64, number.i);
    else if (number.kind == CB_OPERAND_BOOL)
        snprintf(text.at, sizeof text.at, "%s", layer_bool(number.i));
    return text;
}

LayerText layer_numbers(cb_float_list list) {
    LayerText text = {"("};
    size_t used = 1;
    if (list.count == 1) return layer_number(list.at[0]);
    for (int i = 0; i < list.count && used < sizeof text.at; i++)
        used += (size_t)snprintf(text.at + used, sizeof text.at - used, "%s%s", i ? ", " : "",
                                 layer_number(list.at[i]).at);
    if (used < sizeof text.at) snprintf(text.at + used, sizeof text.at - used, ")");
    return text;
}

LayerText layer_tuple(cb_dim_list list) {
    LayerText text = {"("};
    size_t used = 1;
    for (int i = 0; i < list.count; i++)
        used += (size_t)snprintf(text.at + used, sizeof text.at - used, "%s%" PRId64, i ? ", " : "",
                                 list.at[i]);
    snprintf(text.at + used, sizeof text.at - used, list.count == 1 ? ",)" : ")");
    return text;
}

LayerText layer_given(cb_dim_list list) {
    LayerText text = layer_tuple(list);
    if (list.count == 1) snprintf(text.at, sizeof text.at, "%" PRId64, list.at[0]);
    return text;
}

bool layer_spread(const char *type, const char *name, cb_dim_list *list, int rank, int64_t least) {
    if (list->count == 1)
        for (int i = 1; i < rank; i++) list->at[i] = list->at[0];
    bool fine = list->count == 1 || list->count == rank;
    list->count = rank;
    for (int i = 0; i < rank && fine; i++) fine = list->at[i] >= least;
    if (!fine)
        fail(CB_ERR_ARGUMENT, "%s: %s has one or %d numbers, each at least %lld", type, name, rank,
             (long long)least);
    return fine;
}
