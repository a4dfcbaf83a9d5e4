/* Dtype rules: what each input is converted to, and the dtype of the result.
 *
 * In: input metas and the op's DtypeRule. Out: Inferred.input_dtype and Inferred.result.dtype.
 *     add(i32[3], 1.5)  -> inputs f32, f32; result f32
 *     add(f16[3], f32[]) -> f16: a zero-dimensional tensor is weak within its category
 *
 * The promotion is PyTorch's: dimensioned tensors, zero-dimensional tensors and numbers are
 * promoted apart; a lower group takes part only when its category (bool < integer < float) is
 * above. */
#include "op/infer.h"

static cb_dtype join(cb_dtype a, cb_dtype b) {
    if (a == CB_SAME) return b;
    return b == CB_SAME ? a : cb_promote(a, b);
}

/* strong, unless weak is of a higher category, and so what both promote to. CB_SAME: the group is
 * empty. */
static cb_dtype combine(cb_dtype strong, cb_dtype weak) {
    if (strong == CB_SAME || weak == CB_SAME) return join(strong, weak);
    return dtype_kind(weak) > dtype_kind(strong) ? weak : strong;
}

static cb_dtype promote_inputs(const Meta *input, int first, int count) {
    cb_dtype dimensioned = CB_SAME, zero_dimensional = CB_SAME, number = CB_SAME;
    for (int i = first; i < count; i++) {
        cb_dtype dtype = input[i].dtype;
        if (input[i].number)
            number = join(number, dtype_is_float(dtype) ? CB_F32 : dtype);
        else if (input[i].rank == 0)
            zero_dimensional = join(zero_dimensional, dtype);
        else
            dimensioned = join(dimensioned, dtype);
    }
    return combine(dimensioned, combine(zero_dimensional, number));
}

/* What the op chooses by itself; full goes by its value. */
static cb_dtype own_dtype(const InferCall *call, const Param *param) {
    if (call->op != OP_full) return param->has_default ? param->default_int : call->input[0].dtype;
    cb_operand value = attr_number(call->attrs, ATTR_full_value);
    return value.kind == CB_OPERAND_FLOAT ? CB_F32 : number_dtype(&value);
}

/* The dtype attribute, CB_SAME replaced by its default; CB_DTYPE_COUNT with an error. */
static cb_dtype attribute_dtype(InferCall *call) {
    for (int i = 0; i < call->info->param_count; i++) {
        const Param *param = &call->info->param[i];
        if (param->type != PARAM_DTYPE) continue;
        int64_t *word = &call->attrs->word[param->word];
        if (*word == CB_SAME) *word = own_dtype(call, param);
        if (*word >= 0 && *word < CB_DTYPE_COUNT) return *word;
        infer_fail(call, CB_ERR_DTYPE, "%lld is not a dtype", (long long)*word);
        return CB_DTYPE_COUNT;
    }
    check(false, "%s: its dtype rule needs a dtype attribute", call->info->name);
    return CB_DTYPE_COUNT;
}

static bool refuse(const InferCall *call, cb_dtype dtype, const char *wanted) {
    return infer_fail(call, CB_ERR_DTYPE, "%s is not %s dtype", cb_dtype_name(dtype), wanted);
}

static void convert(InferCall *call, cb_dtype dtype) {
    for (int i = 0; i < call->input_count; i++) call->out->input_dtype[i] = dtype;
    call->out->result.dtype = dtype;
}

/* Without elements an index of gather and scatter may have any dtype, as in PyTorch. */
static bool is_index(const InferCall *call, const Meta *index) {
    bool free = call->op != OP_index_select && meta_numel(index) == 0;
    return free || dtype_is_int(index->dtype);
}

/* x keeps its dtype; index inputs are read as i64; a source is converted to x's dtype. */
static bool keep_rule(InferCall *call) {
    cb_dtype dtype = call->input[0].dtype;
    convert(call, dtype);
    bool attends = call->op == OP_attention || call->op == OP_attention_gradient;
    int mask = call->input_count - 1;
    if (attends) /* the mask: a bool, or in what scores are computed in */
        call->out->input_dtype[mask] = call->input[mask].dtype == CB_BOOL ? CB_BOOL
                                       : dtype == CB_F64                  ? CB_F64
                                                                          : CB_F32;
    if (call->op == OP_dynamic_slice || call->op == OP_dynamic_slice_scatter)
        call->out->input_dtype[call->input_count - 1] = CB_I64;
    if (!op_has_index(call->op)) return true;
    const Meta *index = &call->input[1];
    if (!is_index(call, index)) return refuse(call, index->dtype, "an index");
    if (call->input_count > 2 && call->input[2].dtype != call->input[0].dtype)
        return infer_fail(call, CB_ERR_DTYPE, "the source must have the dtype of the target");
    call->out->input_dtype[1] = CB_I64;
    return true;
}

static bool rule_takes(const InferCall *call, cb_dtype dtype) {
    bool is_float = dtype_is_float(dtype), is_bool = dtype == CB_BOOL;
    DtypeRule rule = call->info->dtype;
    if (rule == DTYPE_NUMERIC && is_bool) return refuse(call, dtype, "a number");
    if (call->op == OP_matmul && is_bool) return refuse(call, dtype, "a number");
    if (rule == DTYPE_FLOATING && !is_float) return refuse(call, dtype, "a floating point");
    if (rule == DTYPE_INT && is_float) return refuse(call, dtype, "an integer or bool");
    if (rule == DTYPE_SHIFT && (is_float || is_bool)) return refuse(call, dtype, "an integer");
    for (int i = 0; i < call->input_count && call->op == OP_sub; i++)
        if (call->input[i].dtype == CB_BOOL) return refuse(call, CB_BOOL, "a number");
    return true;
}

cb_dtype metas_promoted(const Meta *input, int count) { return promote_inputs(input, 0, count); }

bool op_takes(Op op, const Meta *input, int input_count, cb_dtype *promoted) {
    InferCall call = {op, op_info(op), input, input_count, NULL, NULL};
    *promoted = promote_inputs(input, 0, input_count);
    if (op == OP_addcdiv && !dtype_is_float(promote_inputs(input, 1, input_count)))
        return infer_fail(&call, CB_ERR_DTYPE, "integers are not divided");
    return input_count == 0 || rule_takes(&call, *promoted);
}

static bool promoting_rule(InferCall *call) {
    cb_dtype dtype = promote_inputs(call->input, 0, call->input_count);
    DtypeRule rule = call->info->dtype;
    if (!rule_takes(call, dtype)) return false;
    if (rule == DTYPE_FLOAT && !dtype_is_float(dtype)) dtype = CB_F32;
    if (rule == DTYPE_SUM && !dtype_is_float(dtype)) dtype = CB_I64;
    if (call->op == OP_square && dtype == CB_BOOL) dtype = CB_I64; /* as x ** 2 */
    convert(call, dtype);
    if (rule == DTYPE_BOOL) call->out->result.dtype = CB_BOOL;
    return true;
}

static bool where_rule(InferCall *call) {
    if (call->input[0].dtype != CB_BOOL && call->input[0].dtype != CB_U8)
        return infer_fail(call, CB_ERR_DTYPE,
                          "the condition or mask is %s and must be bool, as cb_ne(mask, 0) is",
                          cb_dtype_name(call->input[0].dtype));
    convert(call, promote_inputs(call->input, 1, call->input_count));
    call->out->input_dtype[0] = CB_BOOL;
    return true;
}

static bool attribute_rule(InferCall *call) {
    cb_dtype dtype = attribute_dtype(call);
    if (dtype == CB_DTYPE_COUNT) return false;
    if ((call->op == OP_rand || call->op == OP_randn) && !dtype_is_float(dtype))
        return refuse(call, dtype, "a floating point");
    if ((call->op == OP_arange || call->op == OP_randint) && dtype == CB_BOOL)
        return refuse(call, dtype, "a number");
    for (int i = 0; i < call->input_count; i++) call->out->input_dtype[i] = call->input[i].dtype;
    call->out->result.dtype = dtype;
    return true;
}

bool infer_dtypes(InferCall *call) {
    switch (call->info->dtype) {
    case DTYPE_LOGICAL:
        convert(call, CB_BOOL);
        return true;
    case DTYPE_I64:
        convert(call, CB_I64);
        return true;
    case DTYPE_INDEX:
        convert(call, call->input[0].dtype);
        call->out->result.dtype = CB_I64;
        return true;
    case DTYPE_WHERE:
        return where_rule(call);
    case DTYPE_KEEP:
        return keep_rule(call);
    case DTYPE_ATTR:
        return attribute_rule(call);
    default:
        return promoting_rule(call);
    }
}
