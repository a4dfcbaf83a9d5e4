/* Traces as text, for explain and for what is said of a miss:
 *
 *     %3: f32[1, 64] = slice(%2, dim=1, start=argument 0, end=1, step=1)    # decode.c:8 */
#include "trace/trace.h"

#include "op/custom.h"

#include <string.h>

void trace_print_operand(const TraceOperand *operand, Buffer *out) {
    double number;
    if (operand_is_argument(operand)) {
        putf(out, "argument %d", operand->value);
        return;
    }
    switch (operand->kind) {
    case OPERAND_VALUE:
        putf(out, "%%%d", operand->value);
        break;
    case OPERAND_FLOAT:
        memcpy(&number, &operand->bits, sizeof number);
        put_double(out, number);
        break;
    case OPERAND_BOOL:
        put(out, operand->bits ? "true" : "false");
        break;
    case OPERAND_INT:
        putf(out, "%lld", (long long)operand->bits);
        break;
    case OPERAND_ABSENT:
        put(out, "none");
        break;
    }
}

void trace_print_attribute(const Param *param, const int64_t *word, Buffer *out) {
    double number;
    word += param->word;
    switch (param->type) {
    case PARAM_FLOAT:
        memcpy(&number, word, sizeof number);
        put_double(out, number);
        break;
    case PARAM_NUMBER: {
        TraceOperand given = {*word == CB_OPERAND_TENSOR ? OPERAND_ABSENT : *word, NO_ARGUMENT,
                              word[1]};
        trace_print_operand(&given, out);
        break;
    }
    case PARAM_FLOATS:
        put(out, "[");
        for (int i = 0; i < *word; i++) {
            memcpy(&number, &word[1 + i], sizeof number);
            put(out, i ? ", " : "");
            put_double(out, number);
        }
        put(out, "]");
        break;
    case PARAM_BOOL:
        put(out, *word ? "true" : "false");
        break;
    case PARAM_DTYPE:
        put(out, *word < 0 ? "same" : cb_dtype_name(*word));
        break;
    case PARAM_DIMS:
        if (*word < 0)
            put(out, "all");
        else
            put_sizes(out, (int)*word, &word[1]);
        break;
    default:
        putf(out, "%lld", (long long)*word);
    }
}

/* %5 of %0, %6 of %2 = */
static void put_results(const TraceOp *op, Buffer *out) {
    for (int k = 0, result = op->result; k < op->back->count; k++)
        if (op->back->wrt[k] >= 0)
            putf(out, "%s%%%d of %%%d", result > op->result ? ", " : "", result, op->back->wrt[k]),
                result++;
    put(out, op->result < 0 ? "" : " = ");
}

static void print_op(const Trace *trace, const TraceOp *op, Buffer *out) {
    char meta[128];
    const OpInfo *info = op->op == OP_assign || op->back ? NULL : op_info(op->op);
    if (op->back) put_results(op, out);
    if (op->result >= 0 && !op->back) {
        meta_format(&trace->value[op->result].meta, meta, sizeof meta);
        putf(out, "%%%d: %s = ", op->result, meta);
    }
    putf(out, "%s(", info ? op_call_name(op->op, op->word) : op->back ? "backward" : "assign");
    bool first = true;
    Attrs attrs;
    trace_attrs(op, NULL, &attrs);
    for (int i = 0; i < op->input_count; i++, first = false) {
        if (i) put(out, ", ");
        trace_print_operand(&op->input[i], out);
    }
    for (int i = 0, k = op->input_count; info && i < info->param_count; i++) {
        if (info->param[i].word < 0) continue;
        const TraceOperand *number = info->param[i].varies ? &op->input[k++] : NULL;
        if (op->op == OP_custom && info->param[i].word == ATTR_custom_operation) continue;
        putf(out, "%s%s=", first ? "" : ", ", info->param[i].name);
        if (number)
            trace_print_operand(number, out);
        else
            trace_print_attribute(&info->param[i], attrs.word, out);
        first = false;
    }
    put(out, ")");
    if (op->site.file) putf(out, "    # %s:%d", op->site.file, op->site.line);
    put(out, "\n");
}

void trace_print(const Trace *trace, Buffer *out) {
    char meta[128];
    for (int v = 0; v < length(trace->value); v++) {
        const TraceValue *value = &trace->value[v];
        if (value->kind == VALUE_IS_RESULT) continue;
        meta_format(&value->meta, meta, sizeof meta);
        putf(out, "%%%d: %s = %s%s\n", v, meta,
             value->kind == VALUE_IS_INPUT ? "input" : "captured",
             value->contiguous ? "" : ", strided");
    }
    for (int i = 0; i < length(trace->op); i++) print_op(trace, &trace->op[i], out);
    put(out, trace->goes_on ? "goes on" : "return");
    for (int i = 0; i < length(trace->output); i++) {
        put(out, i ? ", " : " ");
        if (trace->output[i] < 0)
            put(out, "NULL");
        else
            putf(out, "%%%d", trace->output[i]);
    }
    for (int i = 0; i < length(trace->escaped); i++)
        putf(out, "%s%%%d",
             i                ? ", "
             : trace->goes_on ? "; crosses "
                              : "; keeps ",
             trace->escaped[i]);
    put(out, "\n");
}
