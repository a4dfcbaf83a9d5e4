/* Loop IR -> text, in the form that parse.c reads back (loop.h shows it). Live expressions only;
 * index arithmetic is written in line. */
#include "lower/index.h"

static const char *name_of(const Expr *e) {
    if (e->op == EX_reduce) return "reduce";
    if (e->op == EX_scan) return "scan";
    return op_info(e->op)->name;
}

/* What the parser reads as a position. A user's integers may be more: a product of two of them, or
 * what a negative number divides. */
static bool is_index(const Expr *e) {
    if (e->dtype != CB_I64) return false;
    if (e->op == EX_axis || e->op == OP_constant) return true;
    bool divided = index_divides(e, OP_floor_divide) || index_divides(e, OP_remainder);
    bool scaled = e->op == OP_mul && e->input[1]->op == OP_constant;
    if (e->op != OP_add && !scaled && !divided) return false;
    for (int i = 0; i < 2; i++)
        if (e->input[i]->op == OP_constant && !index_writes(e->input[i]->imm.i)) return false;
    return true;
}

static void put_constant(const Expr *e, Buffer *out) {
    if (e->dtype == CB_BOOL)
        put(out, e->imm.i ? "true" : "false");
    else if (dtype_is_float(e->dtype))
        put_double(out, e->imm.f);
    else
        putf(out, "%lld", (long long)e->imm.i);
}

/* In line: positions; anything else by its name. */
static void put_index(const Expr *e, Buffer *out) {
    if (!is_index(e)) {
        putf(out, "t%u", e->id);
        return;
    }
    if (e->op == OP_constant) {
        putf(out, "%lld", (long long)e->imm.i);
        return;
    }
    if (e->op == EX_axis) {
        putf(out, "a%lld", (long long)e->imm.i);
        return;
    }
    const char *sign = e->op == OP_add         ? " + "
                       : e->op == OP_mul       ? "*"
                       : e->op == OP_remainder ? "%"
                                               : "/";
    put(out, "(");
    put_index(e->input[0], out);
    put(out, sign);
    put_index(e->input[1], out);
    put(out, ")");
}

static void put_operand(const Expr *e, Buffer *out) {
    if (e->op == OP_constant) {
        put_constant(e, out);
        putf(out, ":%s", cb_dtype_name(e->dtype));
    } else if (is_index(e)) {
        put(out, "[");
        put_index(e, out);
        put(out, "]");
    } else {
        putf(out, "t%u", e->id);
    }
}

static void put_expr(const Expr *e, Buffer *out) {
    putf(out, "  t%u = %s", e->id, cb_dtype_name(e->dtype));
    if (e->op == EX_load) {
        putf(out, " load b%lld[", (long long)e->imm.i);
        put_index(e->input[0], out);
        put(out, "]");
        if (e->input_count == 2) put(out, " if "), put_operand(e->input[1], out);
    } else {
        putf(out, " %s", name_of(e));
        if (e->op == EX_reduce || e->op == EX_scan) putf(out, " %s", op_info(e->imm.i)->name);
        if (e->op == OP_to) putf(out, " %s", cb_dtype_name(e->imm.i));
        for (int i = 0; i < e->input_count; i++)
            put(out, i ? ", " : " "), put_operand(e->input[i], out);
    }
    put(out, "\n");
}

static void put_store(const Store *store, Buffer *out) {
    static const char *const mode[] = {"store", "last", "add", "sum"};
    putf(out, "  %s b%d[", mode[store->mode], store->buffer);
    put_index(store->index, out);
    put(out, "] = ");
    put_operand(store->value, out);
    if (store->guard) put(out, " if "), put_operand(store->guard, out);
    put(out, "\n");
}

void kernel_print(const Kernel *kernel, Buffer *out) {
    static const char *const role[] = {"in", "out", "inout"};
    const bool *live = kernel_live(kernel, out->arena);
    putf(out, "kernel %s(", kernel->name);
    for (int i = 0; i < length(kernel->axis); i++)
        putf(out, "%s%s a%d:%lld%s", i ? ", " : "", kernel->axis[i].inner ? "inner" : "outer", i,
             (long long)kernel->axis[i].size, kernel->axis[i].varies ? "+" : "");
    putf(out, ") %s split %lld", kernel->form == FORM_TILE ? "tile" : "row",
         (long long)kernel->split);
    if (kernel->parts > 1) putf(out, " parts %lld", (long long)kernel->parts);
    put(out, " {\n");
    for (int i = 0; i < length(kernel->buffer); i++) {
        const KernelBuffer *b = &kernel->buffer[i];
        putf(out, "  b%d: %s%s %s[%lld]\n", i, b->shared ? "shared " : "", role[b->role],
             cb_dtype_name(b->dtype), (long long)b->numel);
    }
    for (int i = 0; i < length(kernel->expr); i++)
        if (live[i] && !is_index(kernel->expr[i]) && kernel->expr[i]->op != OP_constant)
            put_expr(kernel->expr[i], out);
    for (int i = 0; i < length(kernel->store); i++) put_store(&kernel->store[i], out);
    put(out, "}\n");
}
