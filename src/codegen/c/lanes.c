/* Where coordinates, elements and kept values are in the loops of a C kernel (kernel.h). The lane
 * axis runs in the vector loop `for (int l = 0; l < n; l++)`: its coordinate is origin + l. What is
 * linear in it is read through a pointer that is set up outside of the loop: p12[l], p12[l * 4]. */
#include "codegen/c/kernel.h"
#include "lower/index.h"

enum {
    CHEAP_POINT = 3, /* two loads and a product */
    DEAR_ROW = 100   /* arithmetic of eight points */
};

static const CKernel *kernel_of(const Emit *e) { return (const CKernel *)e; }

/* Strips begin with a row. */
static Phrase slab_coordinate(const CKernel *c, bool column) {
    Arena *arena = c->e.arena;
    long long columns = (long long)c->slab;
    if (column) return text_of(TEXT_MULTIPLY, arena_format(arena, "j %% %lld", columns));
    const char *strip = c->in_tail ? "whole" : "k";
    return text_of(TEXT_ADD, arena_format(arena, "(int)((%s + %s) / %lld) + j / %lld", c->origin,
                                          strip, columns, columns));
}

Phrase c_axis(Emit *e, int axis, bool narrow) {
    const CKernel *c = kernel_of(e);
    if (c->axis_value[axis] >= 0)
        return text_name(arena_format(e->arena, "%lld", (long long)c->axis_value[axis]));
    bool lane = axis == e->lane_axis;
    if (c->slab && c->flat && (lane || axis >= e->kernel->outer_count))
        return slab_coordinate(c, lane);
    if (lane && !c->origin) return text_name("l");
    if (!lane && !narrow) return text_name(arena_format(e->arena, "a%d", axis));
    if (!lane) return text_of(TEXT_CAST, arena_format(e->arena, "(int)a%d", axis));
    const char *sum = arena_format(e->arena, narrow ? "(int)(%s + l)" : "%s + l", c->origin);
    return text_of(narrow ? TEXT_CAST : TEXT_ADD, sum);
}

static const char *lane_times(CKernel *c, int64_t stride) {
    if (c->narrow) return arena_format(c->e.arena, "l * %lld", (long long)stride);
    if (!c->flat && c->hidden & stride && !(stride & (stride - 1)))
        return arena_format(c->e.arena, "l * by%lld", (long long)stride);
    return arena_format(c->e.arena, "l * %s", emit_long(&c->e, stride));
}

Phrase c_lane(const CKernel *c, const char *array) {
    char lane = c->in_strip || c->in_tail ? 'j' : 'l';
    return text_atom(arena_format(c->e.arena, "%s[%c]", array, lane));
}

Phrase c_element(Emit *e, int buffer, const Access *access, const Expr *index, bool guarded) {
    bool narrow = e->lane_axis != NO_LANE && !access->linear; /* int wraps, which hides strides */
    const char *at = access->name;
    if (access->wide) return c_lane(kernel_of(e), access->wide);
    if (access->tile) return text_atom(access->tile);
    if (!at)
        return text_atom(
            arena_format(e->arena, "b%d[%s]", buffer, text_index(e, index, narrow).text));
    const char *step = access->stride == 1 ? "l" : lane_times((CKernel *)e, access->stride);
    if (!guarded) return text_atom(arena_format(e->arena, "%s[%s]", at, step));
    return text_atom(arena_format(e->arena, "b%d[%s + %s]", buffer, at, step));
}

/* Of the first lane. */
static Phrase start_text(Emit *e, const Access *access) {
    const char *origin = kernel_of(e)->origin;
    Phrase rest = text_index(e, access->rest, false);
    if (!origin) return rest;
    Phrase step = text_name(origin);
    if (access->stride != 1)
        step = text_of(TEXT_MULTIPLY,
                       arena_format(e->arena, "%s * %s", origin, emit_long(e, access->stride)));
    if (access->rest->op == OP_constant && access->rest->imm.i == 0) return step;
    const char *sum =
        arena_format(e->arena, "%s + %s", text_in(e->arena, rest, TEXT_ADD), step.text);
    return text_of(TEXT_ADD, sum);
}

void c_address(Emit *e, const Access *access, int buffer, bool guarded, bool constant) {
    Phrase start = start_text(e, access);
    const char *type = e->target->storage[e->kernel->buffer[buffer].dtype];
    if (guarded && access->when)
        emit_line(e, "const int64_t %s = %s ? %s : 0;", access->name, access->when, start.text);
    else if (guarded)
        emit_line(e, "const int64_t %s = %s;", access->name, start.text);
    else
        emit_line(e, "%s%s *%s = b%d + %s;", constant ? "const " : "", type, access->name, buffer,
                  text_operand(e->arena, start));
}

/* By the position among the inner axes; in an ARRAY the lanes of a point are neighbours. */
Phrase c_row(Emit *e, const Expr *x) {
    const CKernel *c = kernel_of(e);
    bool array = c->shape == SHAPE_ARRAY;
    if (c->slab) return text_atom(arena_format(e->arena, "row%u[done + l]", emit_number(e, x->id)));
    if (c->folds_flat) return c_lane(c, arena_format(e->arena, "row%u", emit_number(e, x->id)));
    const char *text = array ? "l" : NULL;
    int64_t stride = array ? c->row_stride : 1;
    for (int axis = length(e->kernel->axis) - 1; axis >= e->kernel->outer_count; axis--) {
        Phrase coordinate = c_axis(e, axis, false);
        const char *at = coordinate.text;
        if (stride > 1)
            at = arena_format(e->arena, "%s * %s", text_operand(e->arena, coordinate),
                              emit_long(e, stride));
        text = text ? arena_format(e->arena, "%s + %s", at, text) : at;
        stride *= e->kernel->axis[axis].size;
    }
    return text_atom(arena_format(e->arena, "row%u[%s]", emit_number(e, x->id), text ? text : "0"));
}

Phrase c_array_element(const CKernel *c, char letter, uint32_t id) {
    uint32_t number = emit_number(&c->e, id);
    if (c->shape == SHAPE_ARRAY)
        return text_atom(arena_format(c->e.arena, "%c%u[l]", letter, number));
    return text_name(arena_format(c->e.arena, "%c%u", letter, number));
}

Phrase c_scan(Emit *e, const Expr *x) { return c_array_element(kernel_of(e), 'c', x->id); }

Phrase c_slot(Emit *e, const Expr *x) {
    const CKernel *c = kernel_of(e);
    int position = 0;
    while (e->info.reduce[position] != x) position++;
    const char *slot = dtype_is_float(x->dtype) ? "slot_f" : "slot_i";
    const char *lane = c->shape == SHAPE_ARRAY ? " + l" : "";
    int64_t first = position * e->kernel->outer_size * e->kernel->split;
    const char *text = arena_format(e->arena, "(%s)%s[%s + %s%s]", e->target->type[x->dtype], slot,
                                    emit_long(e, first), c->slot_item, lane);
    return text_of(TEXT_CAST, text);
}

/* Rows of five and more elements, of which each lane has one: gcc takes none of them apart for
 * vectors but those of eight, for whose elements it needs most registers, and leaves the others'
 * written-out points one by one. Point by point they are gathered, unless their points cost next to
 * nothing, each by itself; of eight where rows are folded at much cost. */
bool c_gathers_rows(Kernel *kernel, bool folds, int64_t point_cost) {
    int64_t lane, inner;
    Expr *rest;
    int last = length(kernel->axis) - 1;
    bool dear = folds && 8 * point_cost > DEAR_ROW;
    if (!folds && point_cost <= CHEAP_POINT) return false;
    bool by_lane = kernel->outer_count > 0 && last >= kernel->outer_count;
    if (!by_lane || kernel_has_scan(kernel)) return false;
    const Axis *points = &kernel->axis[last];
    if (points->few && !points->varies) return false; /* of lengths that are taken apart */
    for (int id = 0, count = length(kernel->expr); id < count; id++) {
        const Expr *x = kernel->expr[id];
        if (x->op != EX_load) continue;
        Expr *index = x->input[0];
        if (!index_linear(kernel, index, kernel->outer_count - 1, &lane, &rest)) continue;
        bool apart = lane < 5 || (lane == 8 && !dear);
        if (apart || !index_linear(kernel, index, last, &inner, &rest)) continue;
        if (inner > 0 && inner < lane) return true;
    }
    return false;
}

/* gcc reads several loads whose lanes lie the same power of two apart as all that lies between, of
 * which it picks the elements: of columns of 1,024 thousands of instructions; and for one of them
 * it makes no vectors of the loop at all, which scans do without. Where a group is a few vectors it
 * pays, unless an ARRAY's loads are of one point each. Of a number that it does not know it
 * gathers. */
static bool hides_stride(const CKernel *c, int64_t stride, int together) {
    if (!together || stride_varies(c->e.kernel, stride)) return false;
    if (stride <= 16) return c->shape == SHAPE_ARRAY;
    return together > 1 || !kernel_has_scan(c->e.kernel);
}

/* Most loads, or stores, with this stride of one buffer. */
static int count_together(const CKernel *c, int64_t stride) {
    const Emit *e = &c->e;
    const Kernel *kernel = e->kernel;
    int most = 0, buffers = length(kernel->buffer);
    int *count = arena_new_array(e->arena, int, 2 * buffers + 1);
    for (int id = 0; id < e->count; id++) {
        bool loads = kernel->expr[id]->op == EX_load && e->info.expr[id].users;
        if (loads && e->load[id].linear && e->load[id].stride == stride)
            count[kernel->expr[id]->imm.i]++;
    }
    for (int s = 0; s < c->store_count; s++)
        if (e->store[s].linear && e->store[s].stride == stride)
            count[buffers + kernel->store[s].buffer]++;
    for (int b = 0; b < 2 * buffers; b++)
        if (count[b] > most) most = count[b];
    return most;
}

void c_declare_strides(CKernel *c) {
    for (int64_t stride = 4; stride <= INT64_C(1) << 40; stride *= 2) {
        if (!hides_stride(c, stride, count_together(c, stride))) continue;
        c->hidden |= stride;
        emit_line(&c->e, "int64_t by%lld = %lld;", (long long)stride, (long long)stride);
        emit_line(&c->e, "__asm__(\"\" : \"+r\"(by%lld));", (long long)stride);
    }
}
