/* Op calls as PyTorch writes them, and back.
 *
 * In:  apply's view: OP_sum, {%x}, dim=[1], keepdim=true
 * Out: call_method sum, args (%x,), kwargs {dim: 1, keepdim: True}; fx_bind goes the other way, and
 *      also understands what PyTorch allows beside it: x.sum(1, keepdim=True), torch.sum(x, 1).
 * Required attributes are positional, those with a default are keywords and left out when they have
 * it. The fx column of ops.def names the target; a method whose first argument is a number is the
 * function of the torch module (torch.atan2(1.0, x)). */
#include "fx/fx.h"
#include "op/custom.h"
#include <string.h>

/* Attributes that PyTorch knows by another name. */
static const struct {
    Op op;
    const char *param, *keyword;
} renamed[] = {{OP_clamp, "low", "min"},
               {OP_clamp, "high", "max"},
               {OP_hardtanh, "low", "min_val"},
               {OP_hardtanh, "high", "max_val"},
               {OP_leaky_relu, "slope", "negative_slope"},
               {OP_layer_norm, "normalized", "normalized_shape"},
               {OP_rms_norm, "normalized", "normalized_shape"},
               {OP_one_hot, "classes", "num_classes"},
               {OP_full, "value", "fill_value"},
               {OP_full_like, "value", "fill_value"},
               {OP_roll, "shift", "shifts"},
               {OP_roll, "dim", "dims"},
               {OP_pad, "padding", "pad"},
               {OP_reflection_pad, "padding", "pad"},
               {OP_replication_pad, "padding", "pad"},
               {OP_circular_pad, "padding", "pad"},
               {OP_interpolate, "linear", "mode"},
               {OP_interpolate, "exact", "mode"},
               {OP_interpolate, "cubic", "mode"},
               {OP_interpolate, "area", "mode"},
               {OP_gelu, "tanh", "approximate"}};

bool fx_flag(Op op, const Param *param, const char *text, int64_t *value) {
    int word;
    if (!flag_of_text(op, text, &word)) return false;
    *value = word == param->word;
    return text_of_flag(op, param->word) != NULL;
}

const char *fx_keyword(Op op, const Param *param) {
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (renamed[i].op == op && strcmp(renamed[i].param, param->name) == 0)
            return renamed[i].keyword;
    return param->name;
}

static void add_pad_mode(FxNode *node) {
    const char *mode = pad_mode(node->op);
    if (mode && node->op != OP_pad) fx_add_kwarg(node, "mode", cb_arg_string(mode));
}

static bool is_tensor(const Param *param) {
    return param->type == PARAM_TENSOR || param->type == PARAM_OPTIONAL_TENSOR;
}

/* The only attribute of a method, a list of sizes or dims: PyTorch takes it spread out, x.view(-1,
 * 2). */
static bool spreads(const OpInfo *info, const Param *param) {
    if (param->type != PARAM_DIMS || param->has_default || info->fx[0] != '.') return false;
    for (int i = 0; i < info->param_count; i++)
        if (!is_tensor(&info->param[i]) && &info->param[i] != param) return false;
    return true;
}

/* ---- targets -------------------------------------------------------------------------------- */

static Op find_fx(const char *fx) {
    for (Op op = OP_constant + 1; op < OP_COUNT; op++) {
        const char *known = op_info(op)->fx;
        if (known && op != OP_custom && strcmp(known, fx) == 0) return op;
    }
    return OP_none;
}

static Op find_name(const char *name, size_t size) {
    char method[48];
    if (size + 2 > sizeof method) return OP_none;
    snprintf(method, sizeof method, ".%.*s", (int)size, name);
    Op op = find_fx(method);
    if (!op) op = op_find(name, size);
    return op > OP_constant && !(op_info(op)->flags & LOWERED) ? op : OP_none;
}

static Op find_function(const char *target) {
    Op op = find_fx(target);
    if (op) return op;
    if (custom_find(target, strlen(target)) != CUSTOM_NONE) return OP_custom;
    if (strncmp(target, "torch.ops.aten.", 15) == 0)
        return find_name(target + 15, strcspn(target + 15, "."));
    const char *dot = strrchr(target, '.');
    if (!dot || strncmp(target, "torch.", 6) != 0) return OP_none;
    return find_name(dot + 1, strlen(dot + 1));
}

void fx_resolve(FxNode *node) {
    node->graph->edits++;
    node->op = OP_none;
    node->inplace = false;
    if (node->opcode == CB_CALL_FUNCTION) node->op = find_function(node->target);
    if (node->opcode != CB_CALL_METHOD) return;
    size_t size = strlen(node->target);
    node->op = find_name(node->target, size);
    if (node->op || size < 2 || node->target[size - 1] != '_') return;
    node->inplace = true;
    /* copy_ is the assignment itself: as an op it takes its second argument's value */
    node->op = strcmp(node->target, "copy_") == 0 ? OP_clone : find_name(node->target, size - 1);
}

/* scaled_dot_product_attention(query, key, value, attn_mask, dropout_p) */
static bool drops_out(const FxNode *attention) {
    cb_arg p =
        length(attention->args) > 4 ? attention->args[4] : cb_node_kwarg(attention, "dropout_p");
    return fx_number(&p) > 0; /* what is no number does not run */
}

int fx_custom(const FxNode *node) { return custom_find(node->target, strlen(node->target)); }

bool fx_random(const FxNode *node) {
    if (node->op == OP_none) return false;
    if (node->op == OP_scaled_dot_product_attention) return drops_out(node);
    if (node->op == OP_custom) return custom_given(fx_custom(node))->effects;
    return op_info(node->op)->kind == KIND_RANDOM || node->op == OP_rand_like ||
           node->op == OP_randn_like || node->op == OP_dropout;
}

bool fx_opaque(const FxNode *node) {
    if (node->opcode != CB_CALL_MODULE) return false;
    const Module *root = node->graph->root;
    const Module *module = root ? module_find_child(root, node->target) : NULL;
    return !module || !module->fresh;
}

bool fx_written_between(const FxNode *first, const FxNode *last) {
    for (const FxNode *node = first; node != last; node = node->next)
        if (node->inplace || fx_opaque(node)) return true;
    return false;
}

/* ---- recording ------------------------------------------------------------------------------ */

static bool at_default(Op op, const Param *param, const Attrs *attrs) {
    Attrs usual = attrs_default(op);
    int words = param_words(param);
    return param->has_default && memcmp(&usual.word[param->word], &attrs->word[param->word],
                                        sizeof(int64_t) * (size_t)words) == 0;
}

static cb_arg dims_arg(FxGraph *graph, cb_dim_list dims, bool single) {
    if (dims.count < 0) return cb_arg_none();
    if (single && dims.count == 1) return cb_arg_int(dims.at[0]);
    cb_arg *items = arena_new_array(graph->arena, cb_arg, dims.count + 1);
    for (int i = 0; i < dims.count; i++) items[i] = cb_arg_int(dims.at[i]);
    return cb_arg_tuple(items, dims.count);
}

static cb_arg floats_arg(FxGraph *graph, cb_float_list floats) {
    if (floats.count == 1) return cb_arg_float(floats.at[0]);
    cb_arg *items = arena_new_array(graph->arena, cb_arg, floats.count + 1);
    for (int i = 0; i < floats.count; i++) items[i] = cb_arg_float(floats.at[i]);
    return cb_arg_tuple(items, floats.count);
}

static cb_arg number_arg(cb_operand number) {
    switch (number.kind) {
    case CB_OPERAND_FLOAT:
        return cb_arg_float(number.f);
    case CB_OPERAND_INT:
        return cb_arg_int(number.i);
    case CB_OPERAND_BOOL:
        return cb_arg_bool(number.i != 0);
    default:
        return cb_arg_none();
    }
}

static cb_arg attribute_arg(FxGraph *graph, const OpInfo *info, const Param *param,
                            const Attrs *attrs) {
    int64_t word = attrs->word[param->word];
    switch (param->type) {
    case PARAM_INT:
    case PARAM_REDUCTION:
        return cb_arg_int(word);
    case PARAM_BOOL:
        return cb_arg_bool(word != 0);
    case PARAM_FLOAT:
        return cb_arg_float(attr_float(attrs, param->word));
    case PARAM_NUMBER:
        return number_arg(attr_number(attrs, param->word));
    case PARAM_FLOATS:
        return floats_arg(graph, attr_floats(attrs, param->word));
    case PARAM_DTYPE:
        return word < 0 ? cb_arg_none() : cb_arg_dtype(word);
    default:
        break;
    }
    bool dimension = strcmp(param->name, "dim") == 0;
    return dims_arg(graph, attr_dims(attrs, param->word), dimension && info->fx[0] == '.');
}

/* x[1:3] along dim: (slice(None, None, None), slice(1, 3, None)); from the end after an
 * Ellipsis. */
static cb_arg slice_arg(FxGraph *graph, const Attrs *attrs) {
    int64_t dim = attrs->word[ATTR_slice_dim];
    cb_arg *part = arena_new_array(graph->arena, cb_arg, 3), slice = cb_arg_none();
    int64_t start = attrs->word[ATTR_slice_start], end = attrs->word[ATTR_slice_end];
    int64_t step = attrs->word[ATTR_slice_step];
    if (start != 0) part[0] = cb_arg_int(start);
    if (end != INT64_MAX) part[1] = cb_arg_int(end);
    if (step != 1) part[2] = cb_arg_int(step);
    slice.kind = CB_ARG_SLICE;
    slice.count = 3;
    slice.items = part;
    if (dim == 0) return slice;
    /* No tensor has the dims behind these: running the node says so. */
    if (dim > CB_MAX_RANK) dim = CB_MAX_RANK;
    if (dim < -CB_MAX_RANK - 1) dim = -CB_MAX_RANK - 1;
    cb_arg *whole_part = arena_new_array(graph->arena, cb_arg, 3), whole = slice;
    whole.items = whole_part;
    cb_arg *items = arena_new_array(graph->arena, cb_arg, CB_MAX_RANK + 2);
    int count = 0;
    if (dim < 0) {
        items[count] = cb_arg_none();
        items[count++].kind = CB_ARG_ELLIPSIS;
        items[count++] = slice;
        for (int64_t d = dim + 1; d < 0; d++) items[count++] = whole;
    } else {
        for (int64_t d = 0; d < dim; d++) items[count++] = whole;
        items[count++] = slice;
    }
    return cb_arg_tuple(items, count);
}

static void add_attribute(FxNode *node, const OpInfo *info, const Param *param,
                          const Attrs *attrs) {
    FxGraph *graph = node->graph;
    if (node->op == OP_custom && param->word == ATTR_custom_operation) return; /* its target */
    if (at_default(node->op, param, attrs)) return;
    if (spreads(info, param) && node->opcode == CB_CALL_METHOD) {
        cb_dim_list dims = attr_dims(attrs, param->word);
        for (int i = 0; i < dims.count; i++) push(graph->arena, node->args, cb_arg_int(dims.at[i]));
        return;
    }
    cb_arg value = attribute_arg(graph, info, param, attrs);
    const char *text = text_of_flag(node->op, param->word);
    if (param->type == PARAM_REDUCTION) text = text_of_reduction(attrs->word[param->word]);
    if (text) value = cb_arg_string(text);
    if (param->type == PARAM_DIMS && dims_are_same(attr_dims(attrs, param->word)))
        value = cb_arg_string("same");
    if (param->has_default)
        fx_add_kwarg(node, fx_keyword(node->op, param), value);
    else
        push(graph->arena, node->args, value);
}

static void add_arguments(FxNode *node, const cb_arg *operand, int count, const Attrs *attrs) {
    const OpInfo *info = op_info(node->op);
    FxGraph *graph = node->graph;
    int next = 0, needed = 0;
    bool keywords = false; /* behind an attribute that may be left out */
    if (node->op == OP_concat) {
        cb_arg list = cb_arg_list(operand, count);
        push(graph->arena, node->args, fx_copy_arg(graph, &list, NULL, NULL));
    }
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        if (!is_tensor(param)) {
            add_attribute(node, info, param, attrs);
            if (!param->has_default) needed = length(node->args); /* to(x, None) */
            keywords |= param->has_default;
        } else if (keywords) {
            if (next < count && operand[next].kind != CB_ARG_NONE)
                fx_add_kwarg(node, param->name, operand[next]);
        } else if (node->op != OP_concat)
            push(graph->arena, node->args, next < count ? operand[next] : cb_arg_none());
        next += is_tensor(param);
    }
    add_pad_mode(node);
    while (length(node->args) > needed && node->args[length(node->args) - 1].kind == CB_ARG_NONE)
        (void)pop(node->args);
}

FxNode *fx_record(FxGraph *graph, Op op, const cb_arg *operand, int count, const Attrs *attrs) {
    const OpInfo *info = op_info(op);
    cb_opcode opcode = info->fx[0] == '.' ? CB_CALL_METHOD : CB_CALL_FUNCTION;
    const char *target = opcode == CB_CALL_METHOD ? info->fx + 1 : info->fx;
    if (opcode == CB_CALL_METHOD && operand[0].kind != CB_ARG_NODE) {
        opcode = CB_CALL_FUNCTION;
        target = arena_format(graph->arena, "torch%s", info->fx);
    }
    if (op == OP_custom) target = op_call_name(op, attrs->word);
    FxNode *node = fx_node_new(graph, opcode, target, NULL);
    node->op = op;
    if (op == OP_slice) {
        push(graph->arena, node->args, operand[0]);
        push(graph->arena, node->args, slice_arg(graph, attrs));
    } else {
        add_arguments(node, operand, count, attrs);
    }
    node->site = site_current();
    fx_link_before(graph, node, fx_output_node(graph));
    fx_refresh(node);
    return node;
}

bool fx_is_temporary(const FxNode *node) {
    bool call = node->opcode == CB_CALL_MODULE || (node->op != OP_none && !node->inplace);
    if (!call || fx_opaque(node)) return false;
    for (int i = 0; i < length(node->users); i++) {
        const FxNode *user = node->users[i];
        if (user->opcode == CB_OUTPUT || user->inplace || fx_opaque(user)) return false;
    }
    return true;
}
