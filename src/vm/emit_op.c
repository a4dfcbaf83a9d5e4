/* Rows of the op table -> instructions: which block function on which registers, what is converted
 * and wrapped. */
#include "vm/build.h"

static VmInstr call(VmMode mode, VmFunction *function, const char *name, int y, int a) {
    return (VmInstr){.kind = VM_OP,
                     .mode = mode,
                     .y = y,
                     .a = a,
                     .b = -1,
                     .c = -1,
                     .function = function,
                     .name = name};
}

int vm_convert(Builder *b, int section, VmMode mode, VmType to, int value, int target) {
    VmType from = b->value[value].type;
    if (from == to) return value;
    int y = vm_fresh(b, to, mode, target);
    vm_add(b, section, call(mode, b->ops->convert[from][to], "convert", y, value));
    return y;
}

int vm_wrap(Builder *b, int section, VmMode mode, cb_dtype dtype, int value, int target) {
    int y = vm_fresh(b, b->value[value].type, mode, target);
    vm_add(b, section, call(mode, b->ops->wrap[dtype], "wrap", y, value));
    return y;
}

static bool wraps(const Builder *b, cb_dtype dtype) {
    if (dtype_is_half(dtype)) return !b->oracle;
    return vm_is_narrow(dtype);
}

/* Converts to the type of dtype and into its range. */
static void emit_to(Builder *b, Expr *x, int target) {
    cb_dtype dtype = x->imm.i;
    VmType to = vm_type(dtype, b->oracle);
    bool wrap = wraps(b, dtype);
    VmMode mode = b->node[x->id].mode;
    int section = vm_section_of(b, x), value = vm_get(b, x->input[0]);
    if (b->value[value].type != to)
        value = vm_convert(b, section, mode, to, value, wrap ? -1 : target);
    if (wrap) value = vm_wrap(b, section, mode, dtype, value, target);
    b->node[x->id].value = value;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct OpCall {
    Op op;
    VmType compute, result;
    VmMode mode;
    int section, operand[3];
} OpCall;

static Op row_of(const Expr *x) {
    bool truth = x->input[0]->dtype == CB_BOOL;
    return x->op == OP_bitwise_not && truth ? OP_logical_not : x->op;
}

static bool gives_bool(Op op) {
    DtypeRule rule = op_info(op)->dtype;
    return rule == DTYPE_BOOL || rule == DTYPE_LOGICAL;
}

/* bool operands of a row without bool lanes count as i32. */
static VmType compute_type(const Builder *b, Op op, const Expr *x) {
    if (op == OP_where) return vm_type_of(b, x);
    VmType type = vm_type_of(b, x->input[0]);
    return type == VM_BOOL && !b->ops->rows[VM_BOOL][op][0] ? VM_I32 : type;
}

static bool small_divisor(const Expr *x) {
    const Expr *a = x->input[0], *d = x->input[1];
    if (x->op != OP_floor_divide && x->op != OP_remainder) return false;
    return x->dtype == CB_I64 && d->op == OP_constant && d->imm.i > 0 && a->low >= 0 &&
           a->high < (int64_t)1 << 50;
}

static VmFunction *choose(Builder *b, Expr *x, OpCall *c) {
    VmFunction *const *shape = b->ops->rows[c->compute][c->op];
    check(shape[0], "%s: the VM has no %s on %s", b->kernel->name, op_info(c->op)->name,
          cb_dtype_name(x->input[0]->dtype));
    VmMode a = b->node[vm_real(b, x->input[0])->id].mode;
    if (a != VM_ONE && small_divisor(x))
        return c->op == OP_floor_divide ? b->ops->divide : b->ops->remainder;
    if (c->mode == VM_ONE || x->input_count != 2) return shape[0];
    VmMode second = b->node[vm_real(b, x->input[1])->id].mode;
    if (second == VM_ONE && shape[VM_SCALAR_B]) return shape[VM_SCALAR_B];
    if (a == VM_ONE && shape[VM_SCALAR_A]) return shape[VM_SCALAR_A];
    return shape[0];
}

/* Uniform operands of a binary row that has shapes for them stay uniform. */
static void fetch_operands(Builder *b, Expr *x, OpCall *c, VmFunction *function) {
    bool plain = function == b->ops->rows[c->compute][c->op][0];
    for (int i = 0; i < x->input_count; i++) {
        bool is_condition = c->op == OP_where && i == 0;
        bool one = !plain && b->node[vm_real(b, x->input[i])->id].mode == VM_ONE;
        VmMode mode = one ? VM_ONE : c->mode;
        c->operand[i] = vm_operand(b, x->input[i], mode);
        VmType wanted = is_condition ? VM_BOOL : c->compute;
        c->operand[i] = vm_convert(b, c->section, mode, wanted, c->operand[i], -1);
    }
}

static bool stays_in_range(Op op) {
    switch (op) {
    case OP_where:
    case OP_maximum:
    case OP_minimum:
    case OP_bitwise_and:
    case OP_bitwise_or:
    case OP_bitwise_xor:
    case OP_relu:
    case OP_right_shift:
        return true;
    default:
        return gives_bool(op);
    }
}

void vm_emit_op(Builder *b, Expr *x, int target) {
    if (x->op == OP_to) {
        emit_to(b, x, target);
        return;
    }
    OpCall c = {.op = row_of(x), .mode = b->node[x->id].mode, .operand = {-1, -1, -1}};
    c.compute = compute_type(b, c.op, x);
    c.result = gives_bool(c.op) ? VM_BOOL : c.compute;
    c.section = vm_section_of(b, x);
    VmFunction *function = choose(b, x, &c);
    fetch_operands(b, x, &c, function);
    VmType wanted = vm_type_of(b, x);
    bool wrap = vm_is_narrow(x->dtype) && !stays_in_range(c.op);
    bool direct = c.result == wanted && !wrap;
    int y = vm_fresh(b, c.result, c.mode, direct ? target : -1);
    VmInstr instr = call(c.mode, function, op_info(c.op)->name, y, c.operand[0]);
    instr.b = c.operand[1];
    instr.c = c.operand[2];
    vm_add(b, c.section, instr);
    if (c.result != wanted) y = vm_convert(b, c.section, c.mode, wanted, y, target);
    if (wrap) y = vm_wrap(b, c.section, c.mode, x->dtype, y, target);
    b->node[x->id].value = y;
}
