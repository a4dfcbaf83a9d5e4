/* A node's args and kwargs, bound to the schema of its op: the other half of target.c.
 *
 * In:  call_method sum, args (%x, 1), kwargs {keepdim: True}
 * Out: OP_sum, operands {%x}, dim=[1], keepdim=true
 * Keywords may be PyTorch's names or ours; unknown ones pass when they are None or False, which is
 * what PyTorch's options mean when they are off (dtype=None, inplace=False). Errors name node and
 * parameter. */
#include "fx/fx.h"
#include <string.h>

typedef struct Binder {
    const FxNode *node;
    FxCall *call;
    const OpInfo *info;
    int next;      /* the next positional argument */
    uint64_t used; /* bit per kwarg */
} Binder;

enum { MOST_KWARGS = 64 };

bool fx_is_number(const cb_arg *arg) {
    return arg->kind == CB_ARG_INT || arg->kind == CB_ARG_FLOAT || arg->kind == CB_ARG_BOOL;
}

double fx_number(const cb_arg *arg) { return arg->kind == CB_ARG_FLOAT ? arg->f : (double)arg->i; }

cb_operand fx_operand(const cb_arg *arg) {
    if (arg->kind == CB_ARG_FLOAT) return cb_operand_float(arg->f);
    return arg->kind == CB_ARG_INT ? cb_operand_int(arg->i) : cb_operand_bool(arg->i != 0);
}

static bool need(bool good, const Binder *binder, const Param *param, const char *wanted) {
    if (!good)
        fx_fail(CB_ERR_GRAPH, binder->node, "%s must be %s", fx_keyword(binder->call->op, param),
                wanted);
    return good;
}

/* The next positional argument or the keyword of that name; NULL when there is neither. */
static const cb_arg *take(Binder *binder, const Param *param) {
    const FxNode *node = binder->node;
    if (binder->next < length(node->args)) return &node->args[binder->next++];
    const char *keyword = fx_keyword(binder->call->op, param);
    for (int i = 0; i < length(node->kwargs); i++) {
        const char *key = node->kwargs[i].key;
        if (strcmp(key, keyword) != 0 && strcmp(key, param->name) != 0) continue;
        binder->used |= (uint64_t)1 << i;
        return &node->kwargs[i].value;
    }
    return NULL;
}

static bool is_list(const cb_arg *arg) {
    return arg->kind == CB_ARG_TUPLE || arg->kind == CB_ARG_LIST;
}

static bool dims_of(const cb_arg *arg, cb_dim_list *dims) {
    *dims = (cb_dim_list){.count = 1};
    if (arg->kind == CB_ARG_INT) {
        dims->at[0] = arg->i;
        return true;
    }
    if (arg->kind == CB_ARG_STRING) { /* a padding */
        bool same = strcmp(arg->text, "same") == 0;
        if (same) dims->at[0] = PADDING_SAME;
        return same || strcmp(arg->text, "valid") == 0;
    }
    if (!is_list(arg) || arg->count > CB_MAX_RANK) return false;
    dims->count = arg->count;
    for (int i = 0; i < arg->count; i++) {
        if (arg->items[i].kind != CB_ARG_INT) return false;
        dims->at[i] = arg->items[i].i;
    }
    return true;
}

/* x.view(-1, 2): the sizes are all the positional arguments that are left, integers each. */
static bool take_spread(Binder *binder, cb_dim_list *dims) {
    const FxNode *node = binder->node;
    int from = binder->next, count = length(node->args) - from;
    if (count < 2 || count > CB_MAX_RANK || node->opcode != CB_CALL_METHOD) return false;
    for (int i = 0; i < count; i++) {
        if (node->args[from + i].kind != CB_ARG_INT) return false;
        dims->at[i] = node->args[from + i].i;
    }
    dims->count = count;
    binder->next += count;
    return true;
}

static bool only_attribute(const OpInfo *info, const Param *param) {
    for (int i = 0; i < info->param_count; i++)
        if (&info->param[i] != param && info->param[i].word >= 0) return false;
    return true;
}

static bool bind_dims(Binder *binder, const Param *param) {
    Attrs *attrs = &binder->call->attrs;
    cb_dim_list dims = {0, {0}};
    if (only_attribute(binder->info, param) && take_spread(binder, &dims)) {
        attr_set_dims(attrs, param->word, dims);
        return true;
    }
    const cb_arg *arg = take(binder, param);
    if (!arg || arg->kind == CB_ARG_NONE) {
        if (param->has_default) return true;
        bool spread_nothing = !arg && only_attribute(binder->info, param);
        if (!need(spread_nothing, binder, param, "a list of integers")) return false;
    } else if (!need(dims_of(arg, &dims), binder, param, "an integer or a list of integers")) {
        return false;
    }
    attr_set_dims(attrs, param->word, dims);
    return true;
}

static bool floats_of(const cb_arg *arg, cb_float_list *floats) {
    bool single = fx_is_number(arg);
    if (!single && (!is_list(arg) || arg->count > CB_MAX_RANK)) return false;
    *floats = (cb_float_list){.count = single ? 1 : arg->count};
    for (int i = 0; i < floats->count; i++) {
        const cb_arg *item = single ? arg : &arg->items[i];
        if (!fx_is_number(item)) return false;
        floats->at[i] = fx_number(item);
    }
    return true;
}

static bool is_dtype(const cb_arg *arg) {
    return arg->kind == CB_ARG_DTYPE && arg->i >= 0 && arg->i < CB_DTYPE_COUNT;
}

static bool bind_attribute(Binder *binder, const Param *param) {
    if (param->type == PARAM_DIMS) return bind_dims(binder, param);
    int64_t *word = &binder->call->attrs.word[param->word];
    const cb_arg *arg = take(binder, param);
    if (!arg || (arg->kind == CB_ARG_NONE && param->has_default))
        return need(param->has_default, binder, param, "given");
    bool whole = arg->kind == CB_ARG_INT || arg->kind == CB_ARG_BOOL;
    if (arg->kind == CB_ARG_STRING && param->type == PARAM_BOOL)
        return need(fx_flag(binder->call->op, param, arg->text, word), binder, param,
                    "a mode that Carbide has");
    if (arg->kind == CB_ARG_STRING && param->type == PARAM_REDUCTION)
        return need(reduction_of_text(arg->text, word), binder, param, "a reduction");
    cb_float_list floats;
    switch (param->type) {
    case PARAM_FLOATS:
        if (!need(floats_of(arg, &floats), binder, param, "a number or a list of numbers"))
            return false;
        attr_set_floats(&binder->call->attrs, param->word, floats);
        return true;
    case PARAM_NUMBER:
        if (!need(fx_is_number(arg), binder, param, "a number")) return false;
        attr_set_number(&binder->call->attrs, param->word, fx_operand(arg));
        return true;
    case PARAM_FLOAT:
        if (!need(fx_is_number(arg), binder, param, "a number")) return false;
        attr_set_float(&binder->call->attrs, param->word, fx_number(arg));
        return true;
    case PARAM_DTYPE:
        *word = arg->kind == CB_ARG_NONE ? CB_SAME : arg->i;
        return need(arg->kind == CB_ARG_NONE || is_dtype(arg), binder, param, "a dtype");
    case PARAM_BOOL:
        *word = arg->i != 0;
        return need(whole, binder, param, "True or False");
    default:
        *word = arg->i;
        return need(whole, binder, param, "an integer");
    }
}

static bool bind_tensor(Binder *binder, const Param *param) {
    const cb_arg *arg = take(binder, param);
    FxCall *call = binder->call;
    cb_arg none = cb_arg_none();
    if (!arg) arg = &none;
    bool optional = param->type == PARAM_OPTIONAL_TENSOR && arg->kind == CB_ARG_NONE;
    bool good = arg->kind == CB_ARG_NODE || fx_is_number(arg) || optional;
    if (!need(good, binder, param, "a tensor or a number")) return false;
    call->operand[call->operand_count++] = *arg;
    return true;
}

/* torch.cat([a, b], dim): the list stands for concat's two tensors. */
static bool bind_list(Binder *binder) {
    const Param *tensors = &(const Param){.name = "tensors", .word = -1};
    const cb_arg *list = take(binder, tensors);
    bool good = list && is_list(list) && list->count;
    for (int i = 0; good && i < list->count; i++) good = list->items[i].kind == CB_ARG_NODE;
    binder->call->list = list;
    return need(good, binder, tensors, "a list of tensors");
}

static bool bind_rest(const Binder *binder) {
    const FxNode *node = binder->node;
    if (binder->next < length(node->args)) {
        fx_fail(CB_ERR_GRAPH, node, "%d arguments are too many", length(node->args));
        return false;
    }
    for (int i = 0; i < length(node->kwargs); i++) {
        const cb_arg *value = &node->kwargs[i].value;
        bool off = value->kind == CB_ARG_NONE || (value->kind == CB_ARG_BOOL && !value->i);
        if (off || binder->used >> i & 1) continue;
        fx_fail(CB_ERR_GRAPH, node, "no parameter is named %s", node->kwargs[i].key);
        return false;
    }
    return true;
}

/* ---- operator.getitem ----------------------------------------------------------------------- */

static bool slice_bounds(const cb_arg *slice, FxIndex *step) {
    static const int64_t absent[] = {0, INT64_MAX, 1};
    int64_t *bound[] = {&step->start, &step->end, &step->step};
    for (int i = 0; i < 3; i++) {
        const cb_arg *part = &slice->items[i];
        if (part->kind != CB_ARG_NONE && part->kind != CB_ARG_INT) return false;
        *bound[i] = part->kind == CB_ARG_INT ? part->i : absent[i];
    }
    return true;
}

/* One item of the index at dim: a slice, an integer, or None for a new dimension. */
static bool index_step(FxCall *call, const cb_arg *item, int64_t dim) {
    if (call->step_count == (int)(sizeof call->step / sizeof *call->step)) return false;
    FxIndex step = {OP_slice, dim, 0, INT64_MAX, 1};
    if (item->kind == CB_ARG_SLICE) {
        if (!slice_bounds(item, &step)) return false;
        if (step.start == 0 && step.end == INT64_MAX && step.step == 1) return true;
    } else if (item->kind == CB_ARG_INT) {
        step.op = OP_select;
        step.start = item->i;
    } else if (item->kind == CB_ARG_NONE) {
        step.op = OP_unsqueeze;
    } else {
        return false;
    }
    call->step[call->step_count++] = step;
    return true;
}

/* Items before an Ellipsis count dimensions from the front, items after it from the end, last one
 * first: so no step needs to know the rank. */
static bool bind_index(const FxNode *node, FxCall *call) {
    call->indexing = true;
    if (length(node->args) != 2 || node->args[0].kind != CB_ARG_NODE) return false;
    call->operand[call->operand_count++] = node->args[0];
    const cb_arg *index = &node->args[1], *items = index;
    int count = 1, ellipsis = -1;
    if (index->kind == CB_ARG_TUPLE) {
        items = index->items;
        count = index->count;
    }
    for (int i = 0; i < count; i++) {
        if (items[i].kind != CB_ARG_ELLIPSIS) continue;
        if (ellipsis >= 0) return false;
        ellipsis = i;
    }
    int64_t dim = -1;
    for (int i = count - 1; ellipsis >= 0 && i > ellipsis; i--) {
        if (!index_step(call, &items[i], dim)) return false;
        dim -= items[i].kind != CB_ARG_INT;
    }
    dim = 0;
    for (int i = 0; i < (ellipsis < 0 ? count : ellipsis); i++) {
        if (!index_step(call, &items[i], dim)) return false;
        dim += items[i].kind != CB_ARG_INT;
    }
    return true;
}

/* ---- entry ---------------------------------------------------------------------------------- */

/* target.copy_(value) */
static bool bind_copy(const FxNode *node, FxCall *call) {
    if (length(node->args) == 2 &&
        (node->args[1].kind == CB_ARG_NODE || fx_is_number(&node->args[1]))) {
        call->operand[call->operand_count++] = node->args[1];
        return true;
    }
    fx_fail(CB_ERR_GRAPH, node, "takes the target and a value");
    return false;
}

/* torch.nn.functional.pad(x, pad, mode='reflect'): each mode is an op of its own. */
static bool bind_pad_mode(Binder *binder) {
    const FxNode *node = binder->node;
    for (int i = 0; i < length(node->kwargs); i++) {
        const cb_arg *mode = &node->kwargs[i].value;
        if (strcmp(node->kwargs[i].key, "mode") != 0 || mode->kind != CB_ARG_STRING) continue;
        Op op = pad_op(mode->text);
        if (!op) {
            fx_fail(CB_ERR_GRAPH, node, "there is no mode %s", mode->text);
            return false;
        }
        binder->used |= (uint64_t)1 << i;
        binder->call->op = op;
        binder->call->attrs = attrs_default(op);
        binder->info = op_info(op);
        return true;
    }
    return true;
}

bool fx_bind(const FxNode *node, FxCall *call) {
    memset(call, 0, sizeof *call);
    call->op = node->op;
    call->inplace = node->inplace;
    if (node->op == OP_none) {
        fx_fail(CB_ERR_GRAPH, node, "no op has this name");
        return false;
    }
    call->attrs = attrs_default(call->op);
    if (call->op == OP_custom) call->attrs.word[ATTR_custom_operation] = fx_custom(node);
    if (length(node->kwargs) > MOST_KWARGS) {
        fx_fail(CB_ERR_GRAPH, node, "%d keywords are too many", length(node->kwargs));
        return false;
    }
    if (node->inplace && (!length(node->args) || node->args[0].kind != CB_ARG_NODE)) {
        fx_fail(CB_ERR_GRAPH, node, "an in-place method needs a tensor to write to");
        return false;
    }
    if (node->inplace && strcmp(node->target, "copy_") == 0) return bind_copy(node, call);
    if (strcmp(node->target, "operator.getitem") == 0) {
        if (bind_index(node, call)) return true;
        fx_fail(CB_ERR_GRAPH, node, "an index holds integers, slices, None and one Ellipsis");
        return false;
    }
    Binder binder = {node, call, op_info(call->op), 0, 0};
    if (call->op == OP_concat && !bind_list(&binder)) return false;
    if (strcmp(node->target, "torch.nn.functional.pad") == 0 && !bind_pad_mode(&binder))
        return false;
    for (int i = 0; i < binder.info->param_count; i++) {
        const Param *param = &binder.info->param[i];
        bool named = call->op == OP_custom && param->word == ATTR_custom_operation;
        if (named) continue; /* by its target */
        if (param->word >= 0) {
            if (!bind_attribute(&binder, param)) return false;
        } else if (call->op != OP_concat && !bind_tensor(&binder, param)) {
            return false;
        }
    }
    return bind_rest(&binder);
}
