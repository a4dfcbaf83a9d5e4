/* Tiles of a transposition: what a block of a kernel that turns (TURN_LANES) loads across its runs
 * is copied by vectors, so many rows of it at a time, and read from there.
 *
 *     if (n == 16 && rows - row >= 16) {
 *         for (int j = 0; j < 16; j++)
 *             for (int r = 0; r < 16; r++) tile9[j * 17 + r] = p9[j * n1 + r];
 *         const int64_t first = a0;
 *         for (int64_t at = 0; at < 16; at++) {
 *             const int64_t a0 = first + at;
 *             for (int l = 0; l < n; l++) s0[l] = tile9[l * 17 + at];
 *         }
 *         row += 15;
 *     }
 *     else ...
 *
 * Lanes that lie apart by a multiple of 4096 bytes are in one set of an L1, which has fewer ways
 * than there are lanes: each would come from L2 again for every row. And the lines of a tile come
 * from memory all at once. */
#include "codegen/c/kernel.h"
#include "lower/index.h"

enum {
    TILE_PITCH = TURN_LANES + 1,
    SET_BYTES = 4096 /* an L1's sets times its lines */
};

static int64_t size_of(const CKernel *c, const Expr *load) {
    return (int64_t)cb_dtype_size(c->e.kernel->buffer[load->imm.i].dtype);
}

/* Lanes lie apart in one set, or in a text of many sizes perhaps, and their rows side by side. */
static bool is_tiled(const CKernel *c, const Expr *x) {
    Kernel *kernel = c->e.kernel;
    int64_t stride[EXPR_AXES];
    int lane = c->e.lane_axis;
    Expr *rest;
    if (x->op != EX_load || x->input_count > 1 || !c->e.info.expr[x->id].users) return false;
    const Access *access = &c->e.load[x->id];
    if (!access->linear || access->level == NO_LEVEL) return false;
    if (!index_affine(kernel, x->input[0], stride, &rest) || stride[lane - 1] != 1) return false;
    if (c->e.usage->holes) return stride[lane] >= TURN_LANES || stride_varies(kernel, stride[lane]);
    return stride[lane] > 0 && stride[lane] * size_of(c, x) % SET_BYTES == 0;
}

void c_choose_tiles(CKernel *c) {
    Emit *e = &c->e;
    if (!c->turns || c->inner_count || c->edge || e->has_inout || c_has_halves(e->kernel)) return;
    for (int id = 0; id < e->count; id++)
        if (is_tiled(c, e->kernel->expr[id])) push(e->arena, c->tiled, (uint32_t)id);
}

static void fill_tile(CKernel *c, uint32_t id, const char *tile) {
    Emit *e = &c->e;
    const Access *access = &e->load[id];
    const char *type = c_target.storage[e->kernel->buffer[e->kernel->expr[id]->imm.i].dtype];
    emit_line(e, "%s %s[%d] __attribute__((aligned(64)));", type, tile, TURN_LANES * TILE_PITCH);
    emit_open(e, "for (int j = 0; j < %d; j++)", TURN_LANES);
    emit_directive(e, "#pragma omp simd");
    emit_line(e, "for (int r = 0; r < %d; r++) %s[j * %d + r] = %s[j * %s + r];", TURN_LANES, tile,
              TILE_PITCH, access->name, emit_long(e, access->stride));
    emit_close(e);
}

void c_item_of_tiles(CKernel *c) {
    Emit *e = &c->e;
    int before = e->lane_axis - 1;
    const char *run = before ? arena_format(e->arena, " && a%d + %d <= %s", before, TURN_LANES,
                                            emit_size(e, e->kernel->axis[before].size))
                             : "";
    emit_open(e, "if (n == %d && rows - row >= %d%s)", TURN_LANES, TURN_LANES, run);
    CKernel *rows = c_prepare(e->kernel, NULL, TURNS_CHOSEN, e->usage, e->out);
    for (int i = 0; i < length(c->tiled); i++) {
        uint32_t id = c->tiled[i];
        const char *tile = arena_format(e->arena, "tile%u", emit_number(e, id));
        fill_tile(c, id, tile);
        rows->e.load[id].tile = arena_format(e->arena, "%s[l * %d + at]", tile, TILE_PITCH);
    }
    emit_line(e, "const int64_t first = a%d;", before);
    emit_open(e, "for (int64_t at = 0; at < %d; at++)", TURN_LANES);
    emit_line(e, "const int64_t a%d = first + at;", before);
    emit_line(e, "enum { n = %d };", TURN_LANES);
    rows->e.indent = e->indent;
    rows->hidden = c->hidden;
    c_before_lanes(rows);
    c_lanes_of_item(rows);
    emit_close(e);
    emit_line(e, "row += %d;", TURN_LANES - 1);
    emit_close(e);
    c->scalar = true; /* what is left: less than a tile of many */
}

/* Where the stride varies, a function of its own has tiles, so that the walk without has the
 * registers. */
void c_function_of_tiles(CKernel *c) {
    c_open_function(c, "static __attribute__((noinline)) void", "_tiled");
    c_declare_strides(c);
    CKernel *tiles = c_prepare(c->e.kernel, NULL, TURNS_CHOSEN, c->e.usage, c->e.out);
    tiles->e.indent = c->e.indent;
    tiles->hidden = c->hidden;
    tiles->tiled = c->tiled;
    tiles->turns_few = false;
    c_all_items(tiles);
    emit_close(&c->e);
}

/* Of several strides the first one is asked, as which others mostly are. */
void c_call_tiles(CKernel *c) {
    Emit *e = &c->e;
    const Expr *load = e->kernel->expr[c->tiled[0]];
    long long elements = SET_BYTES / size_of(c, load);
    c->tiled = NULL;
    emit_open(e, "if (%s %% %lld == 0)", emit_long(e, e->load[load->id].stride), elements);
    emit_line(e, "%s_tiled(buffer, low, high, pass, slot);", e->kernel->name);
    emit_line(e, "return;");
    emit_close(e);
}
