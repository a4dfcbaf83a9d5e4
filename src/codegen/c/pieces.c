/* A kernel in pieces (lower/pieces.c), each a loop of lanes without the conditions that its range
 * decides: one after the other along the lanes or an axis before them, or, where they are the short
 * ones of a stack's last axis, all of them for each block of lanes, which go across the rows. Rows
 * that are folded go piece by piece into the accumulators of the whole row:
 *
 *     any(roll(x, 1, 1) != x)     uint8_t r9 = 0;
 *                                 { from = 0, to = 1:     ... r9 = r9 | q7[0]; }
 *                                 { from = 1, to = 131:   ... r9 = r9 | q6[0]; }
 */
#include "base/round.h"
#include "codegen/c/kernel.h"

enum {
    PIECES_TWICE_MAX = 32,  /* loops for ranges of two coordinates */
    POINTS_MAX = 16,        /* longest row whose lanes go across the rows, whatever its pieces */
    STACK_BYTES = 16 << 10, /* of its rows are written at a time, */
    STACK_LANES = 64,       /* and so many at the least */
    ROW_PIECES_MAX = 8,     /* of a row that is folded */
    PIECE_LANES = 32        /* of a range along the lanes, on average */
};

/* So many elements pay for a loop of their own; of many pieces each asks many conditions. */
static int64_t piece_lanes(int64_t pieces) {
    return pieces < PIECES_MANY ? PIECE_LANES : PIECE_SHORT;
}

/* A condition on the lane's coordinate is a mask over every vector, and a masked load far outside
 * of its buffer traps in the processor; one on another coordinate is asked for every block of
 * lanes, and all that it chooses from is loaded. Pieces become loops of their own: those of a
 * concatenation are copies then. */
static void choose_pieces(CKernel *c, int axis, int64_t most) {
    if (c->shape != SHAPE_NESTED || c->inner_count) return;
    for (; axis >= 0 && !c->edge; axis--) {
        int64_t *edge = kernel_edges(c->e.kernel, axis, c->e.arena);
        int64_t pieces = length(edge) + 1, lanes = axis == c->e.lane_axis ? piece_lanes(pieces) : 1;
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
    CKernel *piece = c_prepare(kernel_piece(e->kernel, c->piece_axis, low, high), NULL,
                               c->turns ? TURNS_IN : TURNS_CHOSEN, e->usage, e->out);
    int64_t most = PIECES_TWICE_MAX / (length(c->edge) + 1);
    if (masks(&piece->e)) choose_pieces(piece, c->piece_axis - 1, most);
    piece->e.indent = e->indent;
    piece->hidden = c->hidden;
    if (c->piece_axis == e->lane_axis && !c->turns) {
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
        c_choose_whole(c);
        if (c->whole_row)
            c_item_of_whole_rows(c);
        else
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

/* Pieces of a short last axis, as of a stack along a new last dim, whose conditions ask for that
 * alone. */
static bool is_stack(CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int axis = kernel->outer_count;
    bool plain = c->inner_count == 1 && !c->reduce_count && !c->split && !c->any_stream;
    plain &= !c->columns_vary;
    if (c->shape != SHAPE_ARRAY || !plain || kernel_has_scan(kernel)) return false;
    bool is_short = axis_typical(kernel, axis) <= POINTS_MAX; /* each is compiled */
    return (is_short || kernel_in_short_pieces(c->e.kernel, axis)) &&
           length(kernel_edges(c->e.kernel, axis, c->e.arena)) > 0;
}

/* Each lane stores the points of a row of its own, as where columns become rows of 9 to 15. */
static bool stores_rows(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int64_t stride;
    Expr *rest;
    if (c->shape != SHAPE_ARRAY || c->inner_count != 1 || c->reduce_count || c->weave) return false;
    if (c->columns || c->any_stream) return false;
    for (int s = 0; s < c->store_count; s++)
        if (index_linear(c->e.kernel, kernel->store[s].index, c->e.lane_axis, &stride, &rest) &&
            stride > 1)
            return true;
    return false;
}

/* Each piece, or point, writes a few elements of every row of a block, and the next one those
 * beside them: what the block writes stays in L1 until its lines are full. */
static int64_t stack_lanes(const CKernel *c) {
    const Kernel *kernel = c->e.kernel;
    int64_t row = 1; /* never 0 */
    for (int s = 0; s < c->store_count; s++)
        row += kernel->axis[kernel->outer_count].size *
               (int64_t)cb_dtype_size(kernel->buffer[kernel->store[s].buffer].dtype);
    int64_t lanes = STACK_BYTES / row / STACK_LANES * STACK_LANES;
    return lanes < STACK_LANES ? STACK_LANES : lanes;
}

/* Stores far apart are one by one, whatever the loop: vectors make a copy a fifth faster, and cost
 * the compiler three times as much. */
static bool copies(const CKernel *piece) {
    const Emit *e = &piece->e;
    for (int b = 0; b < length(e->kernel->buffer); b++)
        if (dtype_is_half(e->kernel->buffer[b].dtype)) return false; /* converted several at once */
    for (int id = 0; id < e->count; id++) {
        int op = e->kernel->expr[id]->op;
        if (e->info.expr[id].users && op < OP_COUNT && op != OP_constant) return false;
    }
    return true;
}

static void item_across_pieces(CKernel *c) {
    Emit *e = &c->e;
    int axis = e->kernel->outer_count;
    int64_t *edge = kernel_edges(e->kernel, axis, e->arena), low = 0;
    for (int i = 0; i <= length(edge); i++) {
        int64_t high = i < length(edge) ? edge[i] : e->kernel->axis[axis].size;
        Kernel *range = high - low == 1 ? kernel_point(e->kernel, axis, low)
                                        : kernel_range(e->kernel, axis, low, high);
        CKernel *piece = c_prepare(range, NULL, TURNS_CHOSEN, e->usage, e->out);
        piece->e.indent = e->indent;
        piece->hidden = c->hidden;
        piece->scalar = length(edge) >= POINTS_MAX && copies(piece);
        emit_block(&piece->e);
        c_item(piece);
        emit_close(&piece->e);
        low = high;
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
        CKernel *piece = c_prepare(kernel, range, TURNS_CHOSEN, e->usage, e->out);
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
        piece->hidden = c->hidden;
        c_collect(piece, pass);
        emit_block(e);
        c_row_of_piece(piece, pass);
        emit_close(e);
    }
}

void c_choose_pieces(CKernel *c) {
    choose_pieces(c, c->e.lane_axis, PIECES_MAX);
    choose_row_pieces(c);
    if (is_stack(c) || stores_rows(c)) c->lanes = least(c->lanes, stack_lanes(c));
}

void c_item_in_pieces(CKernel *c) {
    if (is_stack(c))
        item_across_pieces(c);
    else
        item_in_pieces(c, 0, length(c->edge));
}
