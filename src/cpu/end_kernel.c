/* The end of sums of one instruction set (base/level.h). */
#include "cpu/end_kernel.h"
#include "base/level.h"

#include "cpu/half.h" /* behind level.h */
#include <math.h>
#include <string.h>

/* One vector of sums. */
static inline void end_lanes(const float *sum, const float *scale, const float *bias,
                             const uint16_t *residual, Vector least, uint16_t *to) {
    Vector v = load_f32(sum) * load_f32(scale) + load_f32(bias);
    if (residual) v += load_bf16(residual);
    store_bf16(to, (Vector)pick((Bits)(v < least), (Bits)least, (Bits)v)); /* NaN stays */
}

void LEVEL_TABLE(end_row_)(const End *end, const float *sum, int64_t channel, int64_t at,
                           int64_t count) {
    const float *scale = end->scale + channel, *bias = end->bias + channel;
    const uint16_t *residual = end->residual ? (const uint16_t *)end->residual + at : NULL;
    uint16_t *out = (uint16_t *)end->out + at;
    Vector least = (Vector){0} + (end->relu ? 0 : -INFINITY);
    int64_t c = 0;
    for (; c + LANES <= count && residual; c += LANES)
        end_lanes(sum + c, scale + c, bias + c, residual + c, least, out + c);
    for (; c + LANES <= count; c += LANES)
        end_lanes(sum + c, scale + c, bias + c, NULL, least, out + c);
    if (c == count) return;
    size_t rest = (size_t)(count - c);
    float sums[LANES] = {0};
    uint16_t more[LANES] = {0}, last[LANES];
    memcpy(sums, sum + c, rest * sizeof *sums);
    if (residual) memcpy(more, residual + c, rest * sizeof *more);
    end_lanes(sums, scale + c, bias + c, more, least, last);
    memcpy(out + c, last, rest * sizeof *last);
}
