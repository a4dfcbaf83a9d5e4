/* Rows of A, or columns of B, of one k block -> panels.
 *
 * Lanes that lie side by side are rows of the matrix along k, of which a panel wants few bytes: all
 * panels take their part of some rows before any goes on to the next, so that memory is read in
 * long runs. */
#include "base/round.h"
#include "cpu/gemm_internal.h"

enum {
    RUN = 32 /* of k, which a panel takes at a time: a step of the widest tile, and so a multiple
              * of every k_unit */
};

int gemm_width(const Gemm *gemm, bool of_a) {
    return of_a ? gemm->type->rows : gemm->type->columns;
}

int64_t gemm_bytes(const Gemm *gemm, bool of_a) { return of_a ? gemm->input_bytes : gemm->b_bytes; }

/* While they are packed, not before. */
static bool rounds(const Gemm *gemm, const GemmLanes *l) {
    return gemm->convert_b && !l->of_a && gemm->type->pack_f32;
}

/* One panel; lanes that are converted pass through `converted` in their memory order. */
static void pack_panel(const Gemm *gemm, void *out, const GemmLanes *l, char *converted) {
    const GemmType *type = gemm->type;
    GemmPack *pack = l->of_a ? type->pack_rows : rounds(gemm, l) ? type->pack_f32 : type->pack;
    GemmConvert *convert = l->of_a ? gemm->convert : gemm->convert_b;
    int64_t from = gemm_bytes(gemm, l->of_a), to = (int64_t)gemm->element / type->together;
    int width = gemm_width(gemm, l->of_a), lanes = (int)l->lanes;
    if (!convert || rounds(gemm, l)) {
        pack(out, l->in, l->lane_stride, l->k_stride, lanes, width, l->k);
        return;
    }
    if (l->lane_stride == 1) {
        for (int64_t i = 0; i < l->k; i++)
            convert(l->in + i * l->k_stride * from, converted + i * lanes * to, lanes);
        pack(out, converted, 1, lanes, lanes, width, l->k);
        return;
    }
    for (int j = 0; j < lanes; j++) {
        const char *lane = l->in + j * l->lane_stride * from;
        int64_t run = l->k_stride == 1 ? l->k : 1;
        for (int64_t i = 0; i < l->k; i += run)
            convert(lane + i * l->k_stride * from, converted + (j * l->k + i) * to, run);
    }
    pack(out, converted, l->k, 1, lanes, width, l->k);
}

void gemm_pack_lanes(const Gemm *gemm, char *out, int64_t panel_bytes, const GemmLanes *l,
                     char *converted) {
    int64_t k_bytes = gemm_width(gemm, l->of_a) * (int64_t)gemm->element / gemm->type->together;
    int64_t run = l->lane_stride == 1 && l->lanes > l->each ? RUN : l->k;
    for (int64_t k = 0; k < l->k; k += run) {
        char *to = out + k * k_bytes;
        for (int64_t lane = 0; lane < l->lanes; lane += l->each, to += panel_bytes) {
            GemmLanes part = *l;
            part.in += (lane * l->lane_stride + k * l->k_stride) * gemm_bytes(gemm, l->of_a);
            part.lanes = least(l->each, l->lanes - lane);
            part.k = least(run, l->k - k);
            pack_panel(gemm, to, &part, converted);
        }
    }
}
