/* Kernel -> vector program.
 *
 *     kernel(outer a0:8): store b2[a0] = add(exp(load b0[a0]), load b1[a0])
 *
 *     point v0 = b0[a0]
 *     point v1 = b1[a0]
 *     exp   v2 = v0
 *     point v3 = b2[a0]
 *     add   v3 = v2 v1
 *
 * Pass by pass: what the sweep needs is found (place.c), emitted in the order of the
 * expressions into the sections point, step, block, after (emit.c, emit_op.c, emit_sweep.c), and
 * the whole is packed into one allocation. */
#include "vm/build.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "base/round.h"

#include <string.h>

enum {
    BLOCK_BYTES =
        24 * 1024, /* vectors of a block together: most of L1, which tensors pass through as well */
    L1_BYTES = 32 * 1024,
    LEAST_LANES = 64,
    MOST_LANES = 1024,
    LONG_LANES = 64,        /* of the last axis, from which blocks run along it alone */
    POINTS_LANES = 512,     /* of an inner point of several: more fill a block by themselves */
    POINTS_LEAST = 8,       /* inner points */
    POINTS_ELEMENTS = 1024, /* of them for all lanes, where there are several rows of these */
    CHOSEN_LEAST = 8,       /* of rows that lie where an index says */
    TOGETHER_LEAST = 24,    /* rows of this length and up ... */
    TOGETHER_MOST = 512,    /* ... to that share a block */
    SHORT_ROW = 48, /* inner extents below this are walked across, where there are many rows */
    STREAM_LANES = 16384, /* when no vector is needed: memory to memory */
    SUM_LANES = 2048      /* the same in rows: what is added up in f32 before f64 takes over */
};

static const VmOps *ops_of_cpu(void) {
    static const VmOps *const of_level[] = CPU_LEVELS(&vm_ops_);
    return of_level[cpu_level()];
}

/* ---- passes ---------------------------------------------------------------------------------- */

static Expr *deferred_value(const Builder *b) {
    for (int s = 0; s < length(b->kernel->store); s++)
        if (b->info.store_pass[s] == b->pass && vm_store_is_direct(b, s))
            return vm_real(b, b->kernel->store[s].value);
    return NULL;
}

static void build_pass(Builder *b, const bool *live_reduce) {
    vm_need_all(b);
    const Expr *deferred = deferred_value(b);
    for (int id = 0; id < length(b->kernel->expr); id++) {
        Expr *x = b->kernel->expr[id];
        bool completes = live_reduce[id] && b->info.expr[id].pass == b->pass;
        if (completes) vm_accumulate(b, x);
        if (b->node[id].needed == b->pass && x != deferred && !vm_is_ready(b, x)) vm_emit(b, x, -1);
    }
    for (int s = 0; s < length(b->kernel->store); s++)
        if (b->info.store_pass[s] == b->pass) vm_emit_store(b, s);
    for (int r = 0; r < length(b->info.reduce); r++)
        if (b->info.expr[b->info.reduce[r]->id].pass == b->pass) vm_finish(b, b->info.reduce[r]);
}

static void build_passes(Builder *b) {
    b->section_count = SECTIONS_PER_PASS * b->info.pass_count + 2;
    b->list = arena_new_array(b->arena, VmInstr *, b->section_count + SECTIONS_PER_PASS);
    bool *live_reduce = arena_new_array(b->arena, bool, length(b->kernel->expr) + 1);
    for (int r = 0; r < length(b->info.reduce); r++) live_reduce[b->info.reduce[r]->id] = true;
    for (b->pass = 0; b->pass <= b->info.pass_count; b->pass++) build_pass(b, live_reduce);
}

/* ---- lifetimes and blocks -------------------------------------------------------------------- */

typedef struct BlockPlaces {
    Builder *b;
    VmInstr *instr; /* joined */
    int *section;   /* of each instruction */
    int *first;     /* of each section, and the end of the last */
    int count;
    int *dying, *next; /* lists of vectors by the position of their last use */
    int *free[3];      /* vecs of freed blocks by element size: 1, 4, 8 */
} BlockPlaces;

static void join(BlockPlaces *l) {
    Builder *b = l->b;
    for (int s = 0; s < b->section_count; s++) l->count += length(b->list[s]);
    l->instr = arena_new_array(b->arena, VmInstr, l->count + 1);
    l->section = arena_new_array(b->arena, int, l->count + 1);
    l->first = arena_new_array(b->arena, int, b->section_count + 1);
    int at = 0;
    for (int s = 0; s < b->section_count; s++) {
        l->first[s] = at;
        for (int i = 0; i < length(b->list[s]); i++) {
            l->section[at] = s;
            l->instr[at++] = b->list[s][i];
        }
    }
    l->first[b->section_count] = at;
}

static int part_of(int section) {
    return section == 0 ? SECTION_ENTRY : 1 + (section - 1) % SECTIONS_PER_PASS;
}

/* A value from outside a sweep is needed until the sweep's last round; one of the entry for ever.
 * */
static void touch(BlockPlaces *l, int value, int at) {
    if (value < 0) return;
    VmValue *v = &l->b->value[value];
    int section = l->section[at], part = part_of(section), end = at;
    if ((part == SECTION_STEP || part == SECTION_BLOCK) && v->section != section)
        end = l->first[section + (part == SECTION_STEP ? 2 : 1)] - 1;
    if (v->section == SECTION_ENTRY) end = l->count - 1;
    if (v->first < 0) v->first = at;
    if (end > v->last) v->last = end;
}

static void find_lifetimes(BlockPlaces *l) {
    for (int at = 0; at < l->count; at++) {
        const VmInstr *in = &l->instr[at];
        touch(l, in->y, at);
        touch(l, in->a, at);
        touch(l, in->b, at);
        touch(l, in->c, at);
        if (in->kind != VM_LOAD && in->kind != VM_STORE && in->kind != VM_POINT) continue;
        const VmAccess *access = &l->b->access[in->number];
        touch(l, access->rest, at);
        touch(l, access->index, at);
        touch(l, access->guard, at);
    }
    l->dying = arena_new_array(l->b->arena, int, l->count + 1);
    l->next = arena_new_array(l->b->arena, int, length(l->b->value) + 1);
    for (int at = 0; at < l->count; at++) l->dying[at] = -1;
    for (int v = 0; v < length(l->b->value); v++) {
        const VmValue *value = &l->b->value[v];
        if (value->kind != VM_VALUE_VECTOR) continue;
        check(value->last >= 0, "%s: v%d is in no instruction", l->b->kernel->name, v);
        l->next[v] = l->dying[value->last];
        l->dying[value->last] = v;
    }
}

static int size_class(const VmValue *v) {
    int size = vm_type_size(v->type);
    return size == 1 ? 0 : size == 4 ? 1 : 2;
}

static void take_block(BlockPlaces *l, VmValue *v) {
    int **list = &l->free[size_class(v)];
    if (length(*list)) {
        v->offset = pop(*list);
        return;
    }
    v->offset = (int)l->b->lane_bytes;
    l->b->lane_bytes += vm_type_size(v->type);
}

/* Frees what dies at this position: of one type, or of all the others. */
static void free_blocks(BlockPlaces *l, int at, int type, bool others) {
    for (int v = l->dying[at]; v >= 0; v = l->next[v]) {
        VmValue *value = &l->b->value[v];
        bool same = value->type == type && value->first != at;
        if (same != others) push(l->b->arena, l->free[size_class(value)], value->offset);
    }
}

/* An operation may write over an operand of its own type that dies with it. */
static void assign_blocks(BlockPlaces *l) {
    for (int at = 0; at < l->count; at++) {
        const VmInstr *in = &l->instr[at];
        VmValue *y = in->y >= 0 ? &l->b->value[in->y] : NULL;
        bool defines = y && y->first == at && y->kind == VM_VALUE_VECTOR;
        int type = defines && in->kind == VM_OP ? y->type : -1;
        if (type >= 0) free_blocks(l, at, type, false);
        if (defines) take_block(l, y);
        free_blocks(l, at, type, true);
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Lanes across rows that lie one after the other come back for the next element of each: all of
 * their lines are to be in L1 still. */
static int64_t lanes_of_rows(const Kernel *kernel) {
    int64_t row = 1;
    for (int i = 0; i < length(kernel->buffer); i++)
        row += kernel->inner_size * (int64_t)cb_dtype_size(kernel->buffer[i].dtype);
    return L1_BYTES / row;
}

/* Room for whole rows, and for what is written past them. */
static void put_rows(Program *p, int64_t lanes) {
    int64_t row = p->size[p->lane_axis];
    p->rows = least(lanes > row ? lanes / row : 1, p->size[p->first_lane_axis]);
    p->full = p->rows * row;
    p->capacity = round_up(p->full + VM_SLACK, LEAST_LANES);
}

/* The same for inner points. */
static void put_points(const Kernel *kernel, Program *p, int64_t lanes) {
    int64_t row = p->size[p->lane_axis], inner = p->size[p->lane_axis + 1];
    p->points = least(lanes > row ? lanes / row : 1, divide_up(inner, kernel->split));
    p->full = p->points * row;
    p->capacity = round_up(p->full, LEAST_LANES);
}

static void choose_capacity(const Builder *b, Program *p) {
    int64_t stream = b->row ? SUM_LANES : STREAM_LANES;
    int64_t lanes = b->lane_bytes ? BLOCK_BYTES / b->lane_bytes : stream;
    int64_t most = b->lane_bytes ? MOST_LANES : stream;
    int64_t extent = p->lane_count;
    if (lanes > most) lanes = most;
    if (!b->row && b->kernel->form == FORM_ROW) lanes = least(lanes, lanes_of_rows(b->kernel));
    if (lanes < LEAST_LANES) lanes = LEAST_LANES;
    lanes = lanes / LEAST_LANES * LEAST_LANES;
    if (b->together) put_rows(p, lanes);
    if (b->points) put_points(b->kernel, p, lanes);
    if (b->together || b->points) return;
    int64_t needed = round_up(extent > 0 ? extent : 1, LEAST_LANES);
    p->capacity = lanes < needed ? lanes : needed;
    p->full = extent < p->capacity ? extent : p->capacity;
}

/* Vectors, kept rows, uniforms. Rows begin at whole pages, as tensors do and the frame itself: a
 * loop that reads one and writes another at the same distance from a page never reads what looks
 * like its last write, since processors compare only the low 12 bits of addresses at first. */
static void put_registers(const Builder *b, Program *p) {
    int64_t end = b->lane_bytes * p->capacity;
    for (int i = 0; i < length(b->row_size); i++) {
        end = round_up(end, VM_PAGE);
        p->row_cache[i] = (VmRow){end, b->row_size[i]};
        end += (p->rows ? p->capacity : b->kernel->inner_size) * b->row_size[i];
    }
    int64_t uniforms = round_up(end, 64);
    p->frame_bytes = uniforms + round_up(8 * (int64_t)b->uniform_count, 64);
    for (int v = 0; v < length(b->value); v++) {
        const VmValue *value = &b->value[v];
        VmRegister *r = &p->registers[v];
        r->place = VM_FRAME;
        switch (value->kind) {
        case VM_VALUE_VECTOR:
            r->offset = (int)(value->offset * p->capacity);
            break;
        case VM_VALUE_UNIFORM:
            r->offset = (int)(uniforms + 8 * (int64_t)value->offset);
            break;
        case VM_VALUE_CONSTANT:
            *r = (VmRegister){VM_CONSTANT, value->offset * (int)sizeof(Scalar)};
            break;
        case VM_VALUE_POINTER:
            *r = (VmRegister){VM_DYNAMIC, 0};
            break;
        }
    }
}

static bool is_near(int64_t stride) { return stride < VM_TURN_LINE && stride > -VM_TURN_LINE; }

/* What is staged at one point along the turn axis serves the next ones, so nothing else may move
 * the access: no inner axis (they run once per point), nothing computed. */
static bool passes_staging(const Program *p, const VmAccess *access) {
    int64_t stride = access->levels.stride[0];
    bool far = !is_near(stride), along = false;
    bool computed = access->index >= 0 || access->guard >= 0 || access->rest >= 0;
    if (p->turn_axis < 0 || !far || computed) return false;
    for (int i = 0; i < access->term_count; i++) {
        const VmTerm *term = &p->term[access->first_term + i];
        if (term->axis >= p->outer_count) return false;
        if (term->axis == p->turn_axis) along = term->stride == 1;
    }
    return along;
}

static void put_staging(const Builder *b, Program *p) {
    for (int i = 0; i < length(b->access); i++) {
        VmAccess *access = &p->access[i];
        bool packs = access->levels.count > 1 && access->lane_size != access->size;
        int64_t lanes = passes_staging(p, access) ? VM_TURN_LANES * VM_TURN_LINE
                        : packs                   ? p->capacity
                                                  : 0;
        access->staging = lanes ? p->frame_bytes : -1;
        p->frame_bytes += lanes * access->size;
    }
}

/* An empty vec is NULL, which memcpy does not take. */
static void put_array(void *to, const void *from, size_t size, int count) {
    if (count) memcpy(to, from, size * (size_t)count);
}

static void put_sections(const Builder *b, const BlockPlaces *l, Program *p) {
    p->streams = b->streams;
    const int *first = l->first;
    p->entry = (VmSection){first[0], first[1]};
    for (int pass = 0; pass < p->pass_count; pass++) {
        int s = SECTIONS_PER_PASS * pass;
        p->pass[pass] = (VmPass){.point = {first[s + 1], first[s + 2]},
                                 .step = {first[s + 2], first[s + 3]},
                                 .block = {first[s + 3], first[s + 4]},
                                 .after = {first[s + 4], first[s + 5]}};
    }
    int last = SECTIONS_PER_PASS * p->pass_count;
    p->pass[p->pass_count].point = (VmSection){first[last + 1], first[last + 2]};
    put_array(p->instr, l->instr, sizeof *p->instr, l->count);
    put_array(p->access, b->access, sizeof *p->access, length(b->access));
    put_array(p->term, b->term, sizeof *p->term, length(b->term));
    put_array(p->constant, b->constant, sizeof *p->constant, length(b->constant));
}

/* A transposed input: neighbours along some other outer axis share its cache lines. */
static int turn_axis(const Builder *b) {
    const Kernel *kernel = b->kernel;
    bool one = b->first_lane_axis == b->lane_axis;
    if (b->row || b->points || b->lane_axis < 1 || kernel->split > 1 || !one) return -1;
    for (int id = 0; id < length(kernel->expr); id++) {
        if (kernel->expr[id]->op != EX_load || b->node[id].value < 0) continue;
        const int64_t *stride = b->load[id].axis_stride;
        if (is_near(stride[b->lane_axis])) continue;
        for (int axis = 0; axis < b->lane_axis; axis++)
            if (stride[axis] == 1 && kernel->axis[axis].size > 1) return axis;
    }
    return -1;
}

static void put_axes(const Builder *b, Program *p) {
    const Kernel *kernel = b->kernel;
    p->row = b->row;
    p->first_lane_axis = b->first_lane_axis;
    p->lane_axis = b->lane_axis;
    p->lane_count = 1;
    for (int axis = b->first_lane_axis; axis >= 0 && axis <= b->lane_axis; axis++)
        p->lane_count *= kernel->axis[axis].size;
    p->turn_axis = turn_axis(b);
    p->axis_count = length(kernel->axis);
    p->outer_count = kernel->outer_count;
    p->outer_size = kernel->outer_size;
    p->split = kernel->split;
    int64_t stride = 1;
    for (int axis = p->axis_count - 1; axis >= 0; axis--) {
        p->size[axis] = kernel->axis[axis].size;
        p->inner_stride[axis] = kernel->axis[axis].inner ? stride : 0;
        if (kernel->axis[axis].inner) stride *= kernel->axis[axis].size;
    }
}

/* One allocation: the program, then its arrays. Without a base only the bytes are counted. */
static void *carve(void *base, size_t *at, size_t bytes) {
    size_t start = *at;
    *at += (bytes + 15) / 16 * 16;
    return base ? (char *)base + start : NULL;
}

static size_t carve_arrays(const Builder *b, const BlockPlaces *l, void *base, Program *p) {
    size_t at = 0;
    carve(base, &at, sizeof *p);
    p->pass = carve(base, &at, sizeof *p->pass * (size_t)(b->info.pass_count + 1));
    p->instr = carve(base, &at, sizeof *p->instr * (size_t)l->count);
    p->registers = carve(base, &at, sizeof *p->registers * (size_t)length(b->value));
    p->access = carve(base, &at, sizeof *p->access * (size_t)length(b->access));
    p->term = carve(base, &at, sizeof *p->term * (size_t)length(b->term));
    p->row_cache = carve(base, &at, sizeof *p->row_cache * (size_t)length(b->row_size));
    p->constant = carve(base, &at, sizeof *p->constant * (size_t)length(b->constant));
    return at;
}

static Program *pack(Builder *b, const BlockPlaces *l) {
    Program count;
    size_t bytes = carve_arrays(b, l, NULL, &count);
    Program *p = memory_zalloc(bytes);
    if (!p) return NULL;
    carve_arrays(b, l, p, p);
    p->bytes = bytes;
    p->pass_count = b->info.pass_count;
    p->register_count = length(b->value);
    p->instr_count = l->count;
    put_axes(b, p);
    choose_capacity(b, p);
    put_registers(b, p);
    put_sections(b, l, p);
    put_staging(b, p);
    return p;
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* Whether lanes across the rows read what lies side by side, as of a transposed operand. */
static bool reads_across(Kernel *kernel) {
    for (int id = 0, count = length(kernel->expr); id < count; id++) {
        const Expr *x = kernel->expr[id];
        int64_t stride;
        Expr *rest;
        if (x->op == EX_load && kernel->outer_count > 0 &&
            index_linear(kernel, x->input[0], kernel->outer_count - 1, &stride, &rest) &&
            stride == 1)
            return true;
    }
    return false;
}

/* The form is chosen for generated code. A block of few lanes costs the VM as much as one of many:
 * it walks scans of few, long rows along them, and short rows across them. */
static bool runs_by_row(Kernel *kernel, int64_t least_row) {
    int axes = length(kernel->axis), outer = kernel->outer_count;
    int64_t row = axes > outer ? kernel->axis[axes - 1].size : 1;
    bool many = kernel->outer_size >= LONG_LANES;
    if (kernel->form == FORM_ROW && many && kernel_has_scan(kernel) && reads_across(kernel))
        return false;
    if (kernel->form == FORM_ROW)
        return kernel->split > 1 || !many || kernel->inner_size >= least_row;
    for (int s = 0; s < length(kernel->store); s++)
        if (kernel->store[s].mode != STORE_SET) return false;
    return kernel_has_scan(kernel) && !many && row >= LONG_LANES;
}

static bool indexes(const Kernel *kernel) {
    for (int i = 0; i < length(kernel->buffer); i++)
        if (kernel->buffer[i].dtype == CB_I64 && kernel->buffer[i].role == BUFFER_IN) return true;
    return false;
}

/* A row that leaves most of a block empty costs as much as a full one; so does one of a TILE that
 * an index chose. */
static bool takes_rows_together(const Builder *b) {
    const Kernel *kernel = b->kernel;
    int row = b->row ? kernel->outer_count - 1 : kernel->outer_count - 2;
    bool chosen = !b->row && length(kernel->axis) == kernel->outer_count && indexes(kernel);
    if ((!b->row && !chosen) || kernel->split > 1 || row < 0 || b->lane_axis != row + 1)
        return false;
    for (int s = 0; s < length(kernel->store); s++)
        if (kernel->store[s].mode != STORE_SET) return false;
    int64_t lanes = kernel->axis[b->lane_axis].size;
    int64_t least_lanes = b->row ? TOGETHER_LEAST : CHOSEN_LEAST;
    return kernel->axis[row].size > 1 && lanes >= least_lanes && lanes <= TOGETHER_MOST;
}

/* Short rows of a TILE are taken together: a block of few lanes costs as much as one of many. */
static int first_lane_axis(const Builder *b) {
    int first = b->lane_axis;
    if (b->together) return first - 1;
    if (b->points) return first;
    if (b->row || first < 0 || b->kernel->axis[first].size >= LONG_LANES) return first;
    int64_t lanes = b->kernel->axis[first].size;
    for (; first > 0 && lanes < MOST_LANES && b->lane_axis - first + 1 < VM_LANE_AXES; first--)
        lanes *= b->kernel->axis[first - 1].size;
    return first;
}

/* The same of an inner point of few lanes. */
static bool takes_points_together(const Builder *b) {
    const Kernel *kernel = b->kernel;
    int lane = kernel->outer_count - 1;
    if (b->row || lane < 0 || length(kernel->axis) != lane + 2 || kernel_has_scan(kernel))
        return false;
    for (int s = 0; s < length(kernel->store); s++)
        if (kernel->store[s].mode != STORE_SET) return false;
    int64_t lanes = kernel->axis[lane].size, points = kernel->axis[lane + 1].size;
    bool few = lanes > 1 && lanes <= POINTS_LANES && points >= POINTS_LEAST;
    return few && (kernel->outer_size == lanes || points * lanes >= POINTS_ELEMENTS);
}

/* Lanes that lie apart, as of a transposed input. */
static bool reads_far(const Builder *b) {
    for (int id = 0; id < length(b->kernel->expr); id++)
        if (b->kernel->expr[id]->op == EX_load && !is_near(b->load[id].axis_stride[b->lane_axis]))
            return true;
    return false;
}

/* Along which axes lanes run, and what lies where. together: several rows share a block; false:
 * they cannot. */
static bool place_lanes(Builder *b, bool together) {
    Kernel *kernel = b->kernel;
    int axes = length(kernel->axis);
    b->row = runs_by_row(kernel, together ? TOGETHER_LEAST : SHORT_ROW);
    b->lane_axis = b->row ? axes - 1 : kernel->outer_count - 1;
    if (b->row && axes == kernel->outer_count) b->lane_axis = -1; /* a row of one */
    b->together = together && takes_rows_together(b);
    b->points = together && takes_points_together(b);
    if (together && !b->together && !b->points) return false;
    b->first_lane_axis = first_lane_axis(b);
    vm_place_all(b);
    if (b->points) return !reads_far(b);
    return !b->together || b->row || b->apart;
}

static Program *build(Builder *b) {
    Kernel *kernel = b->kernel;
    check(length(kernel->axis) <= VM_MAX_AXES, "kernel %s has %d axes", kernel->name,
          length(kernel->axis));
    b->ops = ops_of_cpu();
    if (!place_lanes(b, true)) place_lanes(b, false);
    build_passes(b);
    BlockPlaces layout = {.b = b};
    join(&layout);
    find_lifetimes(&layout);
    assign_blocks(&layout);
    return pack(b, &layout);
}

static Program *build_in(Arena *arena, const Kernel *kernel, bool oracle) {
    if (arena_guard(arena)) return NULL;
    Builder *b = arena_zalloc(arena, sizeof *b);
    b->kernel = kernel_over(kernel, arena);
    b->arena = arena;
    b->oracle = oracle;
    return build(b);
}

Program *program_build(const Kernel *kernel, bool oracle) {
    Arena *arena = arena_new();
    Program *program = arena ? build_in(arena, kernel, oracle) : NULL;
    arena_free(arena);
    return program;
}

size_t program_bytes(const Program *program) { return program ? program->bytes : 0; }

int64_t program_unit(const Program *program) {
    return program->points ? program->size[program->lane_axis] : 1;
}

void program_free(Program *program) { memory_free(program); }
