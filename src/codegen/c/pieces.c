/* A kernel in pieces (lower/pieces.c), each a loop of lanes without the conditions that its range
 * decides: one after the other along the lanes or an axis before them, or, for the short last axis
 * of a stack, all of them for each block of lanes. Rows that are folded go piece by piece into the
 * accumulators of the whole row:
 *
 *     any(roll(x, 1, 1) != x)     uint8_t r9 = 0;
 *                                 { from = 0, to = 1:     ... r9 = r9 | q7[0]; }
 *                                 { from = 1, to = 131:   ... r9 = r9 | q6[0]; }
 */
#include "codegen/c/kernel.h"

enum {
    PIECES_MAX = 128,      /* loops of their own for ranges with other conditions */
    PIECES_TWICE_MAX = 32, /* the same of two coordinates */
    POINTS_MAX = 16,       /* loops of their own for the points of a stack */
    ROW_PIECES_MAX = 8,    /* of a row that is folded */
    PIECE_LANES = 32       /* of a range along the lanes, on average */
};

/* A condition on the lane's coordinate is a mask over every vector, and a masked load far outside
 * of its buffer traps in the processor; one on another coordinate is asked for every block of
 * lanes, and all that it chooses from is loaded. Pieces become loops of their own: those of a
 * concatenation are copies then. */
static void choose_pieces(CKernel *c, int axis, int64_t most) {
    if (c->shape != SHAPE_NESTED || c->inner_count || c->turns) return;
    for (; axis >= 0 && !c->edge; axis--) {
        int64_t *edge = kernel_edges(c->e.kernel, axis, c->e.arena);
        int64_t pieces = length(edge) + 1, lanes = axis == c->e.lane_axis ? PIECE_LANES : 1;
        bool long_enough = axis_typical(c->e.kernel, axis) >= pieces * lanes;
        if (pieces > 1 && pieces <= most && long_enough) c->edge = edge, c->piece_axis = axis;
    }
}

/* Under a condition on another coordinate, too, a load far outside of its buffer traps for each
 * vector, AVX2 has no masks for loads of less than four bytes, and gcc leaves a condition that asks
 * for an argument in the loop. */
static bool masks(const Emit *e) {
    for (int id = 0; id < e->count; id++) {
        const Expr *x = e->kernel->expr[id];
        if (x->op == EX_load && x->input_count > 1 && e->info.expr[id].users) return true;
    }
    return false;
}

static void item_in_pieces(CKernel *c, int first, int last);

static void one_piece(CKernel *c, int64_t low, int64_t high) {
    Emit *e = &c->e;
    CKernel *piece =
        c_prepare(kernel_piece(e->kernel, c->piece_axis, low, high), NULL, e->usage, e->out);
    int64_t most = PIECES_TWICE_MAX / (length(c->edge) + 1);
    if (masks(&piece->e)) choose_pieces(piece, c->piece_axis - 1, most);
    piece->e.indent = e->indent;
    if (c->piece_axis == e->lane_axis) {
        const char *end = emit_size(e, high);
        emit_line(e, "if (run > %s - a%d) run = %s - a%d;", end, e->lane_axis, end, e->lane_axis);
        emit_line(e, "n = run < %lld ? (int)run : %lld;", (long long)c->lanes, (long long)c->lanes);
    }
    item_in_pieces(piece, 0, length(piece->edge));
}

/* Pieces first .. last, found by halving. */
static void item_in_pieces(CKernel *c, int first, int last) {
    Emit *e = &c->e;
    if (!c->edge) {
        c_item(c);
        return;
    }
    if (first == last) {
        int64_t size = e->kernel->axis[c->piece_axis].size;
        one_piece(c, first ? c->edge[first - 1] : 0, last < length(c->edge) ? c->edge[last] : size);
        return;
    }
    int middle = first + (last - first) / 2;
    emit_open(e, "if (a%d < %s)", c->piece_axis, emit_size(e, c->edge[middle]));
    item_in_pieces(c, first, middle);
    emit_close(e);
    emit_open(e, "else");
    item_in_pieces(c, middle + 1, last);
    emit_close(e);
}

/* The points of a stack along a short last axis, whose conditions ask for that alone. */
static bool is_stack(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    bool plain = c->inner_count == 1 && !c->reduce_count && !c->split && !c->any_stream;
    if (c->shape != SHAPE_ARRAY || !plain || kernel_has_scan(kernel)) return false;
    if (axis_typical(kernel, kernel->outer_count) > POINTS_MAX) return false; /* each is compiled */
    return length(kernel_edges(c->e.kernel, kernel->outer_count, c->e.arena)) > 0;
}

static void item_by_points(CKernel *c) {
    Emit *e = &c->e;
    int axis = e->kernel->outer_count;
    for (int64_t at = 0; at < e->kernel->axis[axis].size; at++) {
        Kernel *point = kernel_point(e->kernel, axis, at);
        CKernel *piece = c_prepare(point, NULL, e->usage, e->out);
        piece->e.indent = e->indent;
        emit_block(&piece->e);
        c_item(piece);
        emit_close(&piece->e);
    }
}

/* ---- rows that are folded ---- */

/* What the piece folds goes into the accumulators of the whole row. False: they are others, since
 * two of them are the same within the piece. */
static bool folds_alike(const CKernel *c, CKernel *piece) {
    int count = length(c->e.info.reduce);
    if (piece->shape != SHAPE_ROW || piece->reduce_count != count) return false;
    piece->accumulator = arena_new_array(c->e.arena, uint32_t, piece->e.count + 1);
    for (int r = 0; r < count; r++)
        piece->accumulator[piece->e.info.reduce[r]->id] = c->e.info.reduce[r]->id;
    return true;
}

static bool folds_rows(const CKernel *c) {
    bool folds = c->shape == SHAPE_ROW && c->reduce_count > 0;
    return folds && c->e.info.pass_count == 1 && !c->any_stream && !kernel_has_scan(c->e.kernel);
}

static void choose_row_pieces(CKernel *c) {
    if (!folds_rows(c)) return;
    Emit *e = &c->e;
    CKernel **made = NULL;
    int axis = e->lane_axis;
    int64_t *edge = kernel_edges(e->kernel, axis, e->arena), size = e->kernel->axis[axis].size;
    int pieces = length(edge) + 1;
    if (pieces < 2 || pieces > ROW_PIECES_MAX ||
        axis_typical(e->kernel, axis) < pieces * PIECE_LANES)
        return;
    for (int i = 0; i < pieces; i++) {
        RowRange *range = arena_alloc(e->arena, sizeof *range);
        *range = (RowRange){i ? edge[i - 1] : 0, i < pieces - 1 ? edge[i] : size};
        Kernel *kernel = kernel_piece(e->kernel, axis, range->low, range->high);
        CKernel *piece = c_prepare(kernel, range, e->usage, e->out);
        if (!folds_alike(c, piece)) return;
        push(e->arena, made, piece);
    }
    c->row_piece = made;
}

void c_row_in_pieces(CKernel *c, int pass) {
    for (int i = 0; i < length(c->row_piece); i++) {
        CKernel *piece = c->row_piece[i];
        Emit *e = &piece->e;
        e->indent = c->e.indent;
        c_collect(piece, pass);
        emit_block(e);
        c_row_of_piece(piece, pass);
        emit_close(e);
    }
}

void c_choose_pieces(CKernel *c) {
    choose_pieces(c, c->e.lane_axis, PIECES_MAX);
    choose_row_pieces(c);
}

void c_item_in_pieces(CKernel *c) {
    if (is_stack(c))
        item_by_points(c);
    else
        item_in_pieces(c, 0, length(c->edge));
}
