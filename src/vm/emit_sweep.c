/* What goes across the lanes or the inner points: reductions, scans, slots, stores.
 *
 * ROW: an accumulator is one number, f64 or i64; each block of lanes is folded into it.
 * TILE: it is a vector of the lanes; sums and products of f32 over long ranges are held in f64. */
#include "vm/build.h"

enum {
    SHORT_SWEEP = 32,           /* additions in f32 that lose nothing worth having */
    STREAM_BYTES_MIN = 4 << 20, /* outputs of ROW programs above this go past the caches */
    STREAM_RUN_MIN = 512        /* in runs of at least so many lanes */
};

static int section(const Builder *b, int which) { return SECTIONS_PER_PASS * b->pass + which; }

static VmInstr instr_of(VmKind kind, VmMode mode, int y, int a, const char *name) {
    return (VmInstr){.kind = kind, .mode = mode, .y = y, .a = a, .b = -1, .c = -1, .name = name};
}

/* On bool, any and all stand for sums, products and extremes. */
static Op reduce_op(const Expr *x) {
    Op op = x->imm.i;
    if (x->dtype != CB_BOOL || !(reduce_adds(op) || reduce_chooses(op))) return op;
    return scalar_identity(op, CB_BOOL).i ? OP_all : OP_any;
}

static bool is_float_type(VmType type) { return type == VM_F32 || type == VM_F64; }

static VmType scalar_type(VmType type) { return is_float_type(type) ? VM_F64 : VM_I64; }

static int64_t sweep_length(const Builder *b) {
    const Kernel *kernel = b->kernel;
    return kernel->split > 1 ? (kernel->inner_size + kernel->split - 1) / kernel->split
                             : kernel->inner_size;
}

static bool is_wide(const Builder *b, const Expr *x, bool scan) {
    bool adds = reduce_adds(reduce_op(x));
    return adds && vm_type_of(b, x) == VM_F32 && (scan || sweep_length(b) > SHORT_SWEEP);
}

/* The accumulator, set to the identity before the sweep. */
static int start(Builder *b, const Expr *x, VmType type, VmMode mode) {
    int y = vm_fresh(b, type, mode, -1);
    int identity = vm_number(b, type, scalar_identity(reduce_op(x), x->dtype));
    VmInstr fill = instr_of(VM_OP, mode, y, identity, "start");
    fill.function = b->ops->splat[type];
    vm_add(b, section(b, SECTION_POINT), fill);
    return y;
}

/* TILE: accumulator = accumulator op operand, lane by lane; of several points, of each. */
static void fold_lanes(Builder *b, const Expr *x, int accumulator, int operand, VmMode mode) {
    Op op = reduce_op(x);
    VmType type = vm_type_of(b, x);
    bool wide = b->value[accumulator].type != type;
    VmInstr fold = instr_of(VM_OP, mode, accumulator, accumulator, op_info(op)->name);
    fold.b = operand;
    if (b->points) fold.kind = VM_FOLD, fold.mode = VM_LANES, fold.number = vm_type_size(type);
    fold.function = wide ? b->ops->wide[op - OP_sum] : b->ops->rows[type][op][0];
    check(fold.function, "%s: the VM cannot reduce %s", b->kernel->name, cb_dtype_name(x->dtype));
    vm_add(b, section(b, SECTION_STEP), fold);
}

void vm_accumulate(Builder *b, Expr *x) {
    VmNode *node = &b->node[x->id];
    VmType type = vm_type_of(b, x);
    Op op = reduce_op(x);
    if (!b->row) {
        node->slot = start(b, x, is_wide(b, x, false) ? VM_F64 : type, node->mode);
        int a = vm_operand(b, x->input[0], b->points ? VM_LANES : node->mode);
        fold_lanes(b, x, node->slot, a, node->mode);
        return;
    }
    node->slot = start(b, x, scalar_type(type), node->mode);
    int a = vm_operand(b, x->input[0], VM_LANES);
    VmInstr fold = instr_of(VM_REDUCE, VM_LANES, node->slot, a, op_info(op)->name);
    fold.reduce = b->ops->reduce[type][op - OP_sum];
    fold.number = vm_type_size(type);
    check(fold.reduce, "%s: the VM cannot reduce %s", b->kernel->name, cb_dtype_name(x->dtype));
    vm_add(b, section(b, SECTION_BLOCK), fold);
}

/* The accumulator as a value of x. */
static int narrow(Builder *b, const Expr *x, int home, VmMode mode, int value) {
    value = vm_convert(b, home, mode, vm_type_of(b, x), value, -1);
    cb_dtype dtype = x->dtype;
    return vm_is_narrow(dtype) ? vm_wrap(b, home, mode, dtype, value, -1) : value;
}

static int position_of(const Builder *b, const Expr *x) {
    int position = 0;
    while (b->info.reduce[position] != x) position++;
    return position;
}

void vm_finish(Builder *b, Expr *x) {
    VmNode *node = &b->node[x->id];
    int home = section(b, SECTION_AFTER);
    if (b->kernel->split == 1) {
        node->value = narrow(b, x, home, node->mode, node->slot);
        node->made = b->pass;
        return;
    }
    VmType type = b->value[node->slot].type;
    VmInstr write = instr_of(VM_SLOT_WRITE, node->mode, -1, node->slot, "write slot");
    write.number = position_of(b, x);
    write.function = b->ops->convert[type][scalar_type(type)];
    vm_add(b, home, write);
}

void vm_read_slot(Builder *b, Expr *x) {
    VmNode *node = &b->node[x->id];
    check(b->kernel->split > 1, "%s: a reduce is used before its sweep", b->kernel->name);
    VmType type = vm_type_of(b, x);
    int home = section(b, SECTION_POINT);
    int y = vm_fresh(b, type, node->mode, -1);
    VmInstr read = instr_of(VM_SLOT_READ, node->mode, y, -1, "read slot");
    read.number = position_of(b, x);
    read.function = b->ops->convert[scalar_type(type)][type];
    vm_add(b, home, read);
    node->value = vm_is_narrow(x->dtype) ? vm_wrap(b, home, node->mode, x->dtype, y, -1) : y;
}

/* ---- scans ----------------------------------------------------------------------------------- */

void vm_emit_scan(Builder *b, Expr *x, int target) {
    VmNode *node = &b->node[x->id];
    Op op = reduce_op(x);
    VmType type = vm_type_of(b, x);
    int home = vm_section_of(b, x);
    if (!b->row) {
        int sum = start(b, x, is_wide(b, x, true) ? VM_F64 : type, node->mode);
        fold_lanes(b, x, sum, vm_operand(b, x->input[0], node->mode), node->mode);
        node->value = vm_convert(b, home, node->mode, type, sum, target);
    } else {
        int sum = start(b, x, scalar_type(type), b->together ? VM_BY_ROW : VM_ONE);
        bool direct = target >= 0 && !vm_is_narrow(x->dtype);
        node->value = direct ? target : vm_new_value(b, type, VM_VALUE_VECTOR);
        int a = vm_operand(b, x->input[0], VM_LANES);
        VmInstr scan = instr_of(VM_SCAN, VM_LANES, node->value, a, op_info(op)->name);
        scan.b = sum;
        scan.scan = b->ops->scan[type][op - OP_sum];
        scan.number = vm_type_size(type);
        check(scan.scan, "%s: the VM cannot scan %s", b->kernel->name, cb_dtype_name(x->dtype));
        vm_add(b, home, scan);
    }
    if (vm_is_narrow(x->dtype))
        node->value = vm_wrap(b, home, node->mode, x->dtype, node->value, target);
}

/* ---- stores ---------------------------------------------------------------------------------- */

static int store_section(const Builder *b, int s) {
    if (!vm_store_is_inner(b, s)) return section(b, SECTION_POINT);
    bool block = b->row && vm_store_mode(b, s) == VM_LANES;
    return section(b, block ? SECTION_BLOCK : SECTION_STEP);
}

/* The rows of a ROW program are written in bursts, which would wait for the lines of a large output
 * to come in first. */
static bool store_streams(const Builder *b, int s) {
    const Kernel *kernel = b->kernel;
    const Store *store = &kernel->store[s];
    const KernelBuffer *buffer = &kernel->buffer[store->buffer];
    const VmIndex *place = &b->store[s];
    VmType type = vm_type(buffer->dtype, b->oracle);
    int64_t size = (int64_t)cb_dtype_size(buffer->dtype);
    if (!b->row || store->mode != STORE_SET || store->guard || buffer->role != BUFFER_OUT)
        return false;
    if (buffer->shared) return false;
    if (vm_store_mode(b, s) != VM_LANES || !vm_is_dense(place, VM_LANES)) return false;
    if (buffer->numel * size < STREAM_BYTES_MIN || kernel->axis[b->lane_axis].size < STREAM_RUN_MIN)
        return false;
    return b->ops->stream[type] && vm_type_size(type) == size;
}

/* Elements that go from one buffer to another as they are. */
static bool moves(const Builder *b, const Store *store, const Expr *value) {
    const KernelBuffer *buffer = b->kernel->buffer;
    return value->op == EX_load && buffer[value->imm.i].dtype == buffer[store->buffer].dtype;
}

/* The operation that gives the value may write into the output itself: then it comes last of all,
 * so that no other instruction reads what it overwrites when the output shares its memory with an
 * input. */
bool vm_store_is_direct(const Builder *b, int s) {
    const Store *store = &b->kernel->store[s];
    const KernelBuffer *buffer = &b->kernel->buffer[store->buffer];
    const VmIndex *place = &b->store[s];
    Expr *value = vm_real(b, store->value);
    for (int other = 0; other < length(b->kernel->store); other++)
        if (other != s && b->info.store_pass[other] == b->pass) return false;
    if (store_adds(store->mode) || store->guard || buffer->role == BUFFER_INOUT) return false;
    if (store_streams(b, s)) return false;
    VmMode mode = b->node[value->id].mode;
    if (mode == VM_ONE || mode != vm_store_mode(b, s) || !vm_is_dense(place, mode)) return false;
    if (vm_is_ready(b, value) || b->node[value->id].uses != 1 || vm_is_kept(b, value)) return false;
    if (value->op >= EX_axis && value->op != EX_load) return false;
    if (vm_section_of(b, value) != store_section(b, s)) return false;
    VmType type = vm_type(buffer->dtype, b->oracle);
    return vm_type_size(type) == (int)cb_dtype_size(buffer->dtype) || moves(b, store, value);
}

static VmStore *store_function(const Builder *b, const Store *store, VmType type) {
    cb_dtype dtype = b->kernel->buffer[store->buffer].dtype;
    bool wide = type == VM_F64 && dtype != CB_F64;
    const VmElement *element = &b->ops->element[dtype][wide];
    return store_adds(store->mode) ? element->add : element->store;
}

void vm_emit_store(Builder *b, int s) {
    const Store *store = &b->kernel->store[s];
    const VmIndex *place = &b->store[s];
    VmMode mode = vm_store_mode(b, s);
    int home = store_section(b, s);
    Expr *value = vm_real(b, store->value);
    if (vm_store_is_direct(b, s)) {
        VmInstr point = instr_of(
            VM_POINT, mode, vm_new_value(b, vm_type_of(b, value), VM_VALUE_POINTER), -1, "point");
        cb_dtype dtype = b->kernel->buffer[store->buffer].dtype;
        int size = (int)cb_dtype_size(dtype);
        b->node[value->id].moves = moves(b, store, value);
        point.number = vm_access(b, store->buffer, place, mode, size, NULL);
        vm_add(b, home, point);
        vm_emit(b, value, point.y);
        return;
    }
    VmType type = vm_type(b->kernel->buffer[store->buffer].dtype, b->oracle);
    int a = vm_operand(b, value, mode);
    VmInstr instr = instr_of(VM_STORE, mode, -1, a, store_adds(store->mode) ? "add" : "store");
    instr.number = vm_access(b, store->buffer, place, mode, vm_type_size(type), store->guard);
    instr.store = store_function(b, store, type);
    if (store_streams(b, s)) {
        instr.store = b->ops->stream[type];
        b->streams = true;
    }
    vm_add(b, home, instr);
}
