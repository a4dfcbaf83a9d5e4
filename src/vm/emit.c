/* Expression -> instructions: registers, splats, loads, coordinates, kept rows. */
#include "vm/build.h"

VmInstr *vm_add(Builder *b, int section, VmInstr instr) {
    push(b->arena, b->list[section], instr);
    if (instr.y >= 0 && b->value[instr.y].section < 0) b->value[instr.y].section = section;
    return &b->list[section][length(b->list[section]) - 1];
}

int vm_new_value(Builder *b, VmType type, VmValueKind kind) {
    VmValue value = {.type = type, .kind = kind, .section = -1, .first = -1, .last = -1};
    if (kind == VM_VALUE_UNIFORM) value.offset = b->uniform_count++;
    push(b->arena, b->value, value);
    return length(b->value) - 1;
}

static void put_number(Scalar *at, VmType type, Scalar value) {
    switch (type) {
    case VM_BOOL:
        *(uint8_t *)at = value.i != 0;
        break;
    case VM_I32:
        *(int32_t *)at = (int32_t)(uint32_t)(uint64_t)value.i;
        break;
    case VM_F32:
        *(float *)at = (float)value.f;
        break;
    default:
        *at = value;
    }
}

int vm_fresh(Builder *b, VmType type, VmMode mode, int target) {
    VmValueKind kind = mode == VM_ONE ? VM_VALUE_UNIFORM : VM_VALUE_VECTOR;
    return target >= 0 ? target : vm_new_value(b, type, kind);
}

int vm_number(Builder *b, VmType type, Scalar value) {
    int register_ = vm_new_value(b, type, VM_VALUE_CONSTANT);
    Scalar element = {.i = 0};
    put_number(&element, type, value);
    b->value[register_].offset = length(b->constant);
    push(b->arena, b->constant, element);
    return register_;
}

/* ---- sections -------------------------------------------------------------------------------- */

static int section(const Builder *b, int which) {
    return which == SECTION_ENTRY ? 0 : SECTIONS_PER_PASS * b->pass + which;
}

int vm_section_of(const Builder *b, const Expr *x) {
    if (x->op == OP_constant) return section(b, SECTION_ENTRY);
    if (!vm_is_inner(b, x)) return section(b, SECTION_POINT);
    bool block = b->row && b->node[x->id].mode == VM_LANES;
    return section(b, block ? SECTION_BLOCK : SECTION_STEP);
}

/* ---- operands -------------------------------------------------------------------------------- */

int vm_get(Builder *b, Expr *x) {
    x = vm_real(b, x);
    if (!vm_is_ready(b, x)) vm_emit(b, x, -1);
    return b->node[x->id].value;
}

/* In a ROW kernel the block is filled once, outside the loop over blocks. */
static int emit_splat(Builder *b, Expr *x, VmMode mode, int value) {
    VmType type = b->value[value].type;
    VmInstr in = {.kind = VM_OP, .mode = mode, .a = value, .b = -1, .c = -1, .name = "splat"};
    in.y = vm_new_value(b, type, VM_VALUE_VECTOR), in.function = b->ops->splat[type];
    if (x->op == OP_constant || (mode == VM_LANES && (b->row || b->points))) in.mode = VM_FULL;
    if (b->node[x->id].mode == VM_BY_ROW)
        in.kind = VM_SPREAD, in.mode = VM_LANES, in.spread = b->ops->spread[type],
        in.number = vm_type_size(type), in.name = "spread";
    return vm_add(b, vm_section_of(b, x), in)->y;
}

int vm_operand(Builder *b, Expr *x, VmMode mode) {
    x = vm_real(b, x);
    int value = vm_get(b, x);
    VmNode *node = &b->node[x->id];
    if (node->mode >= mode) return value;
    bool lasting = x->op == OP_constant || (!vm_is_inner(b, x) && b->kernel->split == 1);
    if (node->splat[mode] < 0 || (!lasting && node->splat_made[mode] != b->pass)) {
        int copy = emit_splat(b, x, mode, value);
        node = &b->node[x->id];
        node->splat[mode] = copy, node->splat_made[mode] = b->pass;
    }
    return node->splat[mode];
}

/* ---- memory ---------------------------------------------------------------------------------- */

int vm_access(Builder *b, int buffer, const VmIndex *place, VmMode mode, int lane_size,
              Expr *guard) {
    VmAccess access = {.buffer = buffer,
                       .size = (int)cb_dtype_size(b->kernel->buffer[buffer].dtype),
                       .lane_size = lane_size,
                       .constant = place->constant,
                       .levels = *vm_levels(place, mode),
                       .rest = -1,
                       .index = -1,
                       .guard = -1,
                       .apart = place->apart && mode == VM_LANES,
                       .first_term = length(b->term)};
    if (place->linear && place->rest) access.rest = vm_get(b, place->rest);
    if (!place->linear) access.index = vm_operand(b, place->index, mode);
    if (guard) access.guard = vm_operand(b, guard, mode);
    for (int axis = 0; axis < length(b->kernel->axis); axis++)
        if (place->axis_stride[axis])
            push(b->arena, b->term, (VmTerm){axis, place->axis_stride[axis]});
    access.term_count = length(b->term) - access.first_term;
    push(b->arena, b->access, access);
    return length(b->access) - 1;
}

/* Whether a register can point at elements of the buffer. */
static bool is_same_type(const Builder *b, int buffer) {
    cb_dtype dtype = b->kernel->buffer[buffer].dtype;
    return vm_type_size(vm_type(dtype, b->oracle)) == (int)cb_dtype_size(dtype);
}

static void emit_load(Builder *b, Expr *x, int target) {
    int buffer = (int)x->imm.i;
    bool guarded = x->input_count == 2;
    VmMode mode = b->node[x->id].mode;
    const VmIndex *place = &b->load[x->id];
    cb_dtype dtype = b->kernel->buffer[buffer].dtype;
    VmType type = vm_type(dtype, b->oracle);
    int home = vm_section_of(b, x);
    int size = b->node[x->id].moves ? (int)cb_dtype_size(dtype) : vm_type_size(type);
    int access = vm_access(b, buffer, place, mode, size, guarded ? x->input[1] : NULL);
    bool plain = mode != VM_ONE && !guarded && vm_is_dense(place, mode);
    const KernelBuffer *from = &b->kernel->buffer[buffer];
    bool untouched = from->role == BUFFER_IN && !from->shared;
    if (plain && untouched && is_same_type(b, buffer) && target < 0) {
        b->node[x->id].value = vm_new_value(b, type, VM_VALUE_POINTER);
        vm_add(b, home,
               (VmInstr){.kind = VM_POINT,
                         .mode = mode,
                         .y = b->node[x->id].value,
                         .a = -1,
                         .b = -1,
                         .c = -1,
                         .number = access,
                         .name = "point"});
        return;
    }
    int y = vm_fresh(b, type, mode, target);
    bool wide = type == VM_F64 && dtype != CB_F64, moves = b->node[x->id].moves;
    VmLoad *function = b->ops->element[dtype][wide].load;
    vm_add(b, home,
           (VmInstr){.kind = VM_LOAD,
                     .mode = mode,
                     .y = y,
                     .a = -1,
                     .b = -1,
                     .c = -1,
                     .number = access,
                     .load = moves ? b->ops->move[cb_dtype_size(dtype)] : function,
                     .name = cb_dtype_name(dtype)});
    b->node[x->id].value = y;
}

/* The lanes' y = function(a, number). */
static int emit_count(Builder *b, int home, VmMode mode, VmFunction *function, const char *name,
                      int a, int64_t number) {
    VmInstr in = {.kind = VM_OP,
                  .mode = mode,
                  .y = vm_new_value(b, VM_I64, VM_VALUE_VECTOR),
                  .a = a,
                  .b = vm_number(b, VM_I64, (Scalar){.i = number}),
                  .c = -1,
                  .function = function,
                  .name = name};
    return vm_add(b, home, in)->y;
}

/* The coordinate itself, or the lanes counted up from the block's first; where they run along
 * several axes, what that makes along this one. */
static void emit_axis(Builder *b, Expr *x) {
    int home = vm_section_of(b, x), axis = (int)x->imm.i;
    VmMode mode = b->node[x->id].mode;
    bool several = mode == VM_LANES && vm_lane_axes(b) > 1;
    int start = vm_new_value(b, VM_I64, VM_VALUE_UNIFORM);
    vm_add(b, home,
           (VmInstr){.kind = VM_COORDINATE,
                     .mode = VM_ONE,
                     .y = start,
                     .a = -1,
                     .b = -1,
                     .c = -1,
                     .number = several ? -1 : axis,
                     .name = "coordinate"});
    b->node[x->id].value = start;
    if (mode == VM_ONE) return;
    int value = emit_count(b, home, mode, b->ops->count, "count", start, 0);
    b->node[x->id].value = value;
    if (!several) return;
    int64_t below = 1;
    int level = 0;
    for (; vm_lane_axis(b, level) != axis; level++)
        below *= b->kernel->axis[vm_lane_axis(b, level)].size;
    if (below > 1) value = emit_count(b, home, mode, b->ops->divide, "divide", value, below);
    if (level + 1 < vm_lane_axes(b))
        value = emit_count(b, home, mode, b->ops->remainder, "remainder", value,
                           b->kernel->axis[axis].size);
    b->node[x->id].value = value;
}

/* ---- kept rows ------------------------------------------------------------------------------- */

static int point_at_row(Builder *b, Expr *x) {
    VmNode *node = &b->node[x->id];
    int y = vm_new_value(b, vm_type_of(b, x), VM_VALUE_POINTER);
    vm_add(b, vm_section_of(b, x),
           (VmInstr){.kind = VM_ROW,
                     .mode = VM_LANES,
                     .y = y,
                     .a = -1,
                     .b = -1,
                     .c = -1,
                     .number = node->row,
                     .name = "row"});
    return y;
}

/* ---- entry ----------------------------------------------------------------------------------- */

void vm_emit(Builder *b, Expr *x, int target) {
    VmNode *node = &b->node[x->id];
    node->made = b->pass;
    bool kept = vm_is_kept(b, x);
    if (kept) { /* the first sweep that needs the row computes it */
        bool there = node->row >= 0;
        if (!there) {
            node->row = length(b->row_size);
            push(b->arena, b->row_size, vm_type_size(vm_type_of(b, x)));
        }
        target = point_at_row(b, x);
        if (there) {
            node->value = target;
            return;
        }
    }
    if (x->op == OP_constant)
        node->value = vm_number(b, vm_type_of(b, x), x->imm);
    else if (x->op == EX_axis)
        emit_axis(b, x);
    else if (x->op == EX_load)
        emit_load(b, x, target);
    else if (x->op == EX_scan)
        vm_emit_scan(b, x, target);
    else if (x->op == EX_reduce)
        vm_read_slot(b, x);
    else
        vm_emit_op(b, x, target);
    check(!kept || node->value == target, "%s: a kept row is computed elsewhere", b->kernel->name);
}
