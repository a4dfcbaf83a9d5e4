/* Where the VM computes what: index expressions taken apart, expressions with and without lanes,
 * and the expressions that each pass needs. */
#include "vm/build.h"

VmType vm_type(cb_dtype dtype, bool oracle) {
    if (dtype_is_float(dtype)) return dtype == CB_F64 || oracle ? VM_F64 : VM_F32;
    if (dtype == CB_BOOL) return VM_BOOL;
    return dtype_info(dtype)->kind == KIND_INTEGER && cb_dtype_size(dtype) == 8 ? VM_I64 : VM_I32;
}

int vm_type_size(VmType type) {
    static const int size[VM_TYPES] = {1, 4, 8, 4, 8};
    return size[type];
}

VmType vm_type_of(const Builder *b, const Expr *x) { return vm_type(x->dtype, b->oracle); }

bool vm_is_narrow(cb_dtype dtype) { return dtype_info(dtype)->kind == KIND_NARROW; }

bool vm_is_inner(const Builder *b, const Expr *x) { return b->info.expr[x->id].inner; }

/* ---- conversions that change nothing --------------------------------------------------------- */

static bool is_copy(const Builder *b, const Expr *x) {
    if (x->op != OP_to) return false;
    cb_dtype from = x->input[0]->dtype, to = x->imm.i;
    VmType type = vm_type(from, b->oracle);
    if (type != vm_type(to, b->oracle)) return false;
    return type == VM_I32 ? dtype_holds(to, from) : b->oracle; /* else a rounding to halves */
}

Expr *vm_real(const Builder *b, Expr *x) {
    while (is_copy(b, x)) x = x->input[0];
    return x;
}

/* ---- places ---------------------------------------------------------------------------------- */

const VmLevels *vm_levels(const VmIndex *place, VmMode mode) {
    static const VmLevels one = {1, {1}, {0}};
    return mode == VM_LANES ? &place->levels : mode == VM_BY_ROW ? &place->rows : &one;
}

bool vm_is_dense(const VmIndex *place, VmMode mode) {
    const VmLevels *levels = vm_levels(place, mode);
    return place->linear && !place->apart && levels->count == 1 && levels->stride[0] == 1;
}

int vm_lane_axes(const Builder *b) {
    if (b->points) return 2;
    return b->lane_axis < 0 ? 0 : b->lane_axis - b->first_lane_axis + 1;
}

int vm_lane_axis(const Builder *b, int level) {
    return b->points && level > 0 ? b->kernel->outer_count : b->lane_axis - level;
}

/* Neighbouring axes along which the elements go on as within the inner one are one level. */
static VmLevels lane_levels(const Builder *b, const VmIndex *place) {
    VmLevels levels = {.count = 0};
    for (int i = 0; i < vm_lane_axes(b); i++) {
        int axis = vm_lane_axis(b, i);
        int64_t size = b->kernel->axis[axis].size, stride = place->axis_stride[axis];
        int last = levels.count - 1;
        if (last >= 0 && stride == levels.size[last] * levels.stride[last]) {
            levels.size[last] *= size;
        } else {
            levels.size[levels.count] = size;
            levels.stride[levels.count++] = stride;
        }
    }
    if (levels.count == 0) levels = (VmLevels){1, {1}, {0}};
    return levels;
}

static VmIndex take_apart(Builder *b, Expr *index) {
    VmIndex place = {.index = index};
    place.axis_stride = arena_new_array(b->arena, int64_t, length(b->kernel->axis) + 1);
    place.linear = index_affine(b->kernel, index, place.axis_stride, &place.rest);
    if (!place.linear) {
        for (int i = 0; i < length(b->kernel->axis); i++) place.axis_stride[i] = 0;
        place.rest = index;
        place.linear = b->lane_axis < 0;
        if (b->lane_axis >= 0)
            place.linear = index_linear(b->kernel, index, b->lane_axis,
                                        &place.axis_stride[b->lane_axis], &place.rest);
    }
    if (place.rest->op == OP_constant) {
        place.constant = place.rest->imm.i;
        place.rest = NULL;
    }
    return place;
}

/* A rest with lanes (by way of a reduction in a TILE kernel) is no block's start; that of a row of
 * several is where the row starts. */
static void settle(Builder *b, VmIndex *place, bool loads_lanes) {
    VmMode rest = place->linear && place->rest ? b->node[place->rest->id].mode : VM_ONE;
    place->apart = rest == VM_BY_ROW && b->together && loads_lanes;
    if (place->apart) b->apart = true;
    if (rest != VM_ONE && !place->apart) place->linear = false;
    if (!place->linear) {
        place->constant = 0;
        place->rest = NULL;
        for (int i = 0; i < length(b->kernel->axis); i++) place->axis_stride[i] = 0;
    }
    place->levels = lane_levels(b, place);
    int row = b->points ? b->lane_axis : b->first_lane_axis;
    if (b->together || b->points)
        place->rows = (VmLevels){1, {b->kernel->axis[row].size}, {place->axis_stride[row]}};
}

static VmMode mode_along(const Builder *b, int axis) {
    if (b->points)
        return axis == b->lane_axis ? VM_BY_ROW : axis > b->lane_axis ? VM_LANES : VM_ONE;
    if (axis < b->first_lane_axis || axis > b->lane_axis) return VM_ONE;
    return b->together && axis == b->first_lane_axis ? VM_BY_ROW : VM_LANES;
}

static VmMode mode_of(const Builder *b, const Expr *x) {
    VmMode mode = VM_ONE, lanes = b->lane_axis >= 0 ? VM_LANES : VM_ONE;
    if (x->op == EX_axis) return mode_along(b, (int)x->imm.i);
    if (x->op == EX_reduce && (b->together || b->points)) return VM_BY_ROW;
    if (x->op == EX_reduce) return b->row ? VM_ONE : lanes;
    if (x->op == EX_scan) return lanes;
    for (int i = 0; i < x->input_count; i++)
        if (b->node[x->input[i]->id].mode > mode) mode = b->node[x->input[i]->id].mode;
    return mode;
}

void vm_place_all(Builder *b) {
    Kernel *kernel = b->kernel;
    int loads = length(kernel->expr), stores = length(kernel->store);
    b->load = arena_new_array(b->arena, VmIndex, loads + 1);
    b->store = arena_new_array(b->arena, VmIndex, stores + 1);
    for (int id = 0; id < loads; id++)
        if (kernel->expr[id]->op == EX_load)
            b->load[id] = take_apart(b, kernel->expr[id]->input[0]);
    for (int s = 0; s < stores; s++) b->store[s] = take_apart(b, kernel->store[s].index);
    b->info = kernel_analyze(kernel, b->arena);
    b->node = arena_new_array(b->arena, VmNode, length(kernel->expr) + 1);
    for (int id = 0; id < length(kernel->expr); id++) {
        VmNode none = {.value = -1, .made = -1, .needed = -1, .row = -1, .slot = -1};
        for (int mode = 0; mode < VM_FULL; mode++) none.splat[mode] = none.splat_made[mode] = -1;
        b->node[id] = none;
        b->node[id].mode = mode_of(b, kernel->expr[id]);
    }
    for (int id = 0; id < loads; id++)
        if (kernel->expr[id]->op == EX_load) settle(b, &b->load[id], b->node[id].mode == VM_LANES);
    for (int s = 0; s < stores; s++) settle(b, &b->store[s], false);
}

/* ---- needs ----------------------------------------------------------------------------------- */

bool vm_is_kept(const Builder *b, const Expr *x) {
    return b->info.expr[x->id].cached && b->row && b->node[x->id].mode == VM_LANES;
}

static bool lasts(const Builder *b, const Expr *x) {
    return !vm_is_inner(b, x) && b->kernel->split == 1;
}

bool vm_is_ready(const Builder *b, const Expr *x) {
    const VmNode *node = &b->node[x->id];
    return node->value >= 0 && (lasts(b, x) || node->made == b->pass || x->op == OP_constant);
}

bool vm_store_is_inner(const Builder *b, int store) {
    return b->info.store_pass[store] < b->info.pass_count;
}

/* An addition happens at every point, even where nothing varies with the lane: a sink's at every
 * row, where the lanes go across rows. */
VmMode vm_store_mode(const Builder *b, int s) {
    const Store *store = &b->kernel->store[s];
    const Expr *part[3] = {store->index, store->value, store->guard};
    if (b->lane_axis < 0) return VM_ONE;
    if (store->mode == STORE_ADD || (store->mode == STORE_SUM && !b->row)) return VM_LANES;
    VmMode mode = VM_ONE;
    for (int i = 0; i < 3 && part[i]; i++)
        if (b->node[part[i]->id].mode > mode) mode = b->node[part[i]->id].mode;
    return mode;
}

static void need(Builder *b, Expr *x) {
    x = vm_real(b, x);
    VmNode *node = &b->node[x->id];
    if (x->op == OP_constant) return;
    if (node->needed == b->pass) {
        node->uses++;
        return;
    }
    node->needed = b->pass;
    node->uses = 1;
    push(b->arena, b->queue, x);
}

static void need_place(Builder *b, const VmIndex *place) {
    if (!place->linear)
        need(b, place->index);
    else if (place->rest)
        need(b, place->rest);
}

static void need_inputs(Builder *b, Expr *x) {
    if (vm_is_ready(b, x) || x->op == EX_reduce) return;
    if (vm_is_kept(b, x) && b->node[x->id].row >= 0) return;
    if (x->op == EX_load) {
        need_place(b, &b->load[x->id]);
        if (x->input_count == 2) need(b, x->input[1]);
        return;
    }
    for (int i = 0; i < x->input_count; i++) need(b, x->input[i]);
}

void vm_need_all(Builder *b) {
    truncate_to(b->queue, 0);
    for (int r = 0; r < length(b->info.reduce); r++) {
        Expr *reduce = b->info.reduce[r];
        if (b->info.expr[reduce->id].pass == b->pass) need(b, reduce->input[0]);
    }
    for (int s = 0; s < length(b->kernel->store); s++) {
        const Store *store = &b->kernel->store[s];
        if (b->info.store_pass[s] != b->pass) continue;
        need(b, store->value);
        need_place(b, &b->store[s]);
        if (store->guard) need(b, store->guard);
    }
    while (length(b->queue)) need_inputs(b, pop(b->queue));
}
