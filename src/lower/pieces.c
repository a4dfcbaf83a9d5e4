/* A kernel in pieces: ranges of one coordinate in which conditions on it do not change.
 *
 *     where(a0 < 1000003, b0[a0], b1[a0 - 1000003])     ->     b0[a0], and b1[a0 - 1000003] above
 *
 * A piece has no condition left that its range decides, and no load that is never done. */
#include "lower/index.h"

/* The coordinate at which e = comparison(a, b) turns over; -1: it does not, or elsewhere too. */
static int64_t edge_of(Kernel *kernel, const Expr *e, int axis) {
    int64_t stride;
    Expr *rest;
    bool compares = e->op == OP_lt || e->op == OP_ge;
    if (!compares || e->input[0]->dtype != CB_I64 || e->input[1]->op != OP_constant) return -1;
    if (!index_linear(kernel, e->input[0], axis, &stride, &rest)) return -1;
    if (rest->op != OP_constant) return -1;
    int64_t distance = e->input[1]->imm.i - rest->imm.i;
    return stride == 1 ? distance : stride == -1 ? 1 - distance : -1;
}

static void insert(Arena *arena, int64_t **edge, int64_t at) {
    int place = 0;
    while (place < length(*edge) && (*edge)[place] < at) place++;
    if (place < length(*edge) && (*edge)[place] == at) return;
    push(arena, *edge, at);
    for (int i = length(*edge) - 1; i > place; i--) (*edge)[i] = (*edge)[i - 1];
    (*edge)[place] = at;
}

/* Of a kernel that has no stores yet everything counts. */
int64_t *kernel_edges(Kernel *kernel, int axis, Arena *arena) {
    int64_t *edge = NULL;
    const bool *live = length(kernel->store) ? kernel_live(kernel, arena) : NULL;
    for (int id = 0, count = length(kernel->expr); id < count; id++) {
        int64_t at = !live || live[id] ? edge_of(kernel, kernel->expr[id], axis) : -1;
        if (at > 0 && at < kernel->axis[axis].size) insert(arena, &edge, at);
    }
    return edge;
}

bool kernel_in_short_pieces(Kernel *kernel, int axis) {
    if (kernel->axis[axis].varies) return false; /* what varies chooses no loops */
    int64_t pieces = length(kernel_edges(kernel, axis, kernel->arena)) + 1;
    return pieces >= PIECES_MANY && pieces <= PIECES_MAX &&
           kernel->axis[axis].size < pieces * PIECE_SHORT;
}

static Expr *rebuild(Kernel *piece, const Expr *e, Expr *const *made) {
    Expr *input[3] = {NULL};
    for (int i = 0; i < e->input_count; i++) input[i] = made[e->input[i]->id];
    cb_dtype dtype = e->dtype;
    switch (e->op) {
    case OP_constant:
        return expr_constant(piece, dtype, e->imm);
    case EX_axis: { /* a piece of a piece keeps to the ranges of both */
        Expr *axis = expr_axis(piece, (int)e->imm.i);
        axis->low = e->low, axis->high = e->high;
        return axis;
    }
    case EX_load:
        return expr_load(piece, (int)e->imm.i, dtype, input[0], input[1]);
    case EX_reduce:
        return expr_reduce(piece, e->imm.i, input[0]);
    case EX_scan:
        return expr_scan(piece, e->imm.i, input[0]);
    case OP_to:
        return expr_to(piece, input[0], e->imm.i);
    default:
        return expr_op(piece, e->op, dtype, input, e->input_count);
    }
}

/* Loaded wherever it is, and 0 where nothing was to be loaded. */
static Expr *unguarded(Kernel *piece, const Expr *load, Expr *const *made) {
    Expr *all = expr_load(piece, (int)load->imm.i, load->dtype, made[load->input[0]->id], NULL);
    Expr *choice[3] = {made[load->input[1]->id], all,
                       expr_constant(piece, load->dtype, (Scalar){0})};
    return expr_op(piece, OP_where, load->dtype, choice, 3);
}

/* The coordinate along axis, in a piece, of a kernel's points low .. high - 1; NULL: what is made
 * is no piece, but all of it without guards. */
typedef Expr *Coordinate(Kernel *piece, int axis, int64_t low, int64_t high);

static Kernel *piece_of(const Kernel *kernel, int axis, int64_t size, Coordinate *coordinate_of,
                        int64_t low, int64_t high) {
    Arena *arena = kernel->arena;
    Kernel *piece = kernel_new(arena);
    Expr **made = arena_new_array(arena, Expr *, length(kernel->expr) + 1);
    const bool *live = kernel_live(kernel, arena);
    for (int a = 0; a < length(kernel->axis); a++) {
        kernel_axis(piece, a == axis ? size : kernel->axis[a].size, kernel->axis[a].inner);
        piece->axis[a].varies = kernel->axis[a].varies, piece->axis[a].few = kernel->axis[a].few;
    }
    for (int b = 0; b < length(kernel->buffer); b++) push(arena, piece->buffer, kernel->buffer[b]);
    Expr *coordinate = coordinate_of ? coordinate_of(piece, axis, low, high) : NULL;
    for (int id = 0; id < length(kernel->expr); id++) {
        const Expr *e = kernel->expr[id];
        bool along = e->op == EX_axis && e->imm.i == axis;
        bool asks = !coordinate && e->op == EX_load && e->input_count > 1;
        if (!live[id]) continue;
        made[id] = along && coordinate ? coordinate
                   : asks              ? unguarded(piece, e, made)
                                       : rebuild(piece, e, made);
    }
    for (int s = 0; s < length(kernel->store); s++) {
        const Store *store = &kernel->store[s];
        Expr *guard = store->guard ? made[store->guard->id] : NULL;
        if (guard && guard->op == OP_constant && !guard->imm.i) continue;
        if (guard && guard->op == OP_constant) guard = NULL;
        kernel_store(piece, store->buffer, made[store->index->id], made[store->value->id], guard,
                     store->mode);
    }
    piece->name = kernel->name, piece->origin = kernel->origin;
    piece->form = kernel->form, piece->split = kernel->split;
    return piece;
}

/* The bounds of what follows come from the coordinate's own. */
static Expr *within(Kernel *piece, int axis, int64_t low, int64_t high) {
    Expr *coordinate = expr_axis(piece, axis);
    coordinate->low = low, coordinate->high = high - 1;
    return coordinate;
}

static Expr *fixed(Kernel *piece, int axis, int64_t low, int64_t high) {
    (void)axis, (void)high;
    return expr_int(piece, low);
}

static Expr *moved(Kernel *piece, int axis, int64_t low, int64_t high) {
    (void)high;
    return index_add(piece, expr_axis(piece, axis), expr_int(piece, low));
}

Kernel *kernel_piece(const Kernel *kernel, int axis, int64_t low, int64_t high) {
    return piece_of(kernel, axis, kernel->axis[axis].size, within, low, high);
}

Kernel *kernel_point(const Kernel *kernel, int axis, int64_t at) {
    return piece_of(kernel, axis, 1, fixed, at, at + 1);
}

Kernel *kernel_range(const Kernel *kernel, int axis, int64_t low, int64_t high) {
    return piece_of(kernel, axis, high - low, moved, low, high);
}

Kernel *kernel_unguarded(const Kernel *kernel) { return piece_of(kernel, -1, 0, NULL, 0, 0); }

/* The same expressions over axes of its own. */
static Kernel *over_other_axes(const Kernel *kernel) {
    Kernel *over = kernel_over(kernel, kernel->arena);
    over->axis = NULL;
    for (int a = 0; a < length(kernel->axis); a++) push(over->arena, over->axis, kernel->axis[a]);
    return over;
}

Kernel *kernel_of_few(const Kernel *kernel, int axis) {
    Kernel *over = over_other_axes(kernel);
    over->axis[axis].few = over->axis[axis].varies = true;
    return over;
}

Kernel *kernel_of_points(const Kernel *kernel, int axis, int64_t points) {
    Kernel *over = over_other_axes(kernel);
    over->inner_size = over->inner_size / over->axis[axis].size * points;
    over->axis[axis] = (Axis){.size = points, .inner = true, .few = true};
    return over;
}

Kernel *kernel_by_rows(const Kernel *kernel, int64_t points, bool few) {
    Kernel *rows = over_other_axes(kernel);
    int last = length(rows->axis) - 1;
    /* its text is one for many sizes, as that of all is */
    for (int a = 0; a < last; a++) rows->axis[a].varies = true;
    rows->outer_count = last, rows->outer_size /= rows->axis[last].size;
    rows->axis[last] = (Axis){.size = points, .inner = true, .varies = few, .few = few};
    rows->inner_size = points;
    return rows;
}
