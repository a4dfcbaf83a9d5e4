/* Convolution on AMX tiles: rows of x (conv_tiles.h).
 *
 * A tile is loaded from 16 rows at one stride from each other. In a copy, padding included, rows
 * stand in the order of the positions, 64 bytes each, so that a kernel position is an offset:
 *
 *     [z of the kernel][remainder of y][remainder of x][chunk][line][position]    planes
 *     [row of the tail][line][position]                                           tail
 *
 * Tiles load rows that follow each other from L2 in half the time that rows further apart take, and
 * rows that cross a cache line take six times as long. */
#include "cpu/conv_tiles.h"
#include <string.h>

static int64_t reach(const ConvolutionTask *s, int d) {
    return (s->kernel[d] - 1) * s->dilation[d];
}

int64_t tile_plane_lines(const Tiles *t, int64_t band) {
    return t->form == IN_PLACE ? 0 : band + reach(&t->task, 1) / t->phase[0];
}

static int64_t plane_bytes(const Tiles *t) { return t->plane_lines * t->pitch * TILE_ROW_BYTES; }

int64_t tile_copy_bytes(const Tiles *t, int64_t band) {
    int64_t lines = t->planes * t->chunks * tile_plane_lines(t, band) + t->tail * band;
    return t->form == IN_PLACE ? 0 : lines * t->pitch * TILE_ROW_BYTES;
}

static int64_t padded_pixels(const Tiles *t) { /* of a line of x, for LINES */
    return (t->task.out_size[2] - 1) * t->task.stride[2] + t->task.kernel[2];
}

int64_t tile_scratch_bytes(const Tiles *t) {
    if (t->form == LINES) return t->phases[0] * padded_pixels(t) * t->inner * 2;
    return t->form == PLANES && t->task.x_channel != 1 ? t->task.in_size[2] * t->inner * 2 : 0;
}

static int64_t tail_start(const Tiles *t) { return t->planes * t->chunks * plane_bytes(t); }

static int64_t tail_bytes(const Tiles *t) { return t->band * t->pitch * TILE_ROW_BYTES; }

void tile_offsets(const Tiles *t, int64_t *offset) {
    const ConvolutionTask *s = &t->task;
    int64_t columns = t->form == LINES ? 1 : s->kernel[2], q[3];
    for (int64_t chunk = 0; chunk < t->chunks; chunk++)
        for (q[0] = 0; q[0] < s->kernel[0]; q[0]++)
            for (q[1] = 0; q[1] < s->kernel[1]; q[1]++)
                for (q[2] = 0; q[2] < columns; q[2]++) {
                    int64_t y = q[1] * s->dilation[1], x = q[2] * s->dilation[2];
                    int64_t plane =
                        (q[0] * t->phases[0] + y % t->phase[0]) * t->phases[1] + x % t->phase[1];
                    *offset++ = (plane * t->chunks + chunk) * plane_bytes(t) +
                                (y / t->phase[0] * t->pitch + x / t->phase[1]) * TILE_ROW_BYTES;
                    if (t->form == IN_PLACE) offset[-1] = chunk * TILE_ROW_BYTES;
                }
    for (int64_t i = 0; i < t->tail; i++) *offset++ = tail_start(t) + i * tail_bytes(t);
}

/* ---- lines of x --------------------------------------------------------------------------- */

typedef struct TileLine { /* of a plane */
    const TileSlab *slab;
    const char *x;            /* the line of x that it comes from; NULL: outside */
    int64_t z, remainder, at; /* of the kernel; of y; number in the plane */
} TileLine;

/* Pixels that follow each other, with their channels side by side. */
static void gather_pixels(const Tiles *t, const char *x, int64_t count, char *to) {
    const ConvolutionTask *s = &t->task;
    int64_t step = s->x_spatial[2], bytes = t->inner * 2;
    if (t->inner == 3 && step == 1 && s->x_channel != 1) {
        const char *plane[3] = {x, x + 2 * s->x_channel, x + 4 * s->x_channel};
        t->kernel->interleave(plane, count, to);
    } else if (s->x_channel == 1 && step == t->inner) {
        memcpy(to, x, (size_t)(count * bytes));
    } else {
        for (int64_t p = 0; p < count; p++, x += 2 * step, to += bytes)
            for (int64_t i = 0; i < t->inner; i++) memcpy(to + 2 * i, x + 2 * i * s->x_channel, 2);
    }
}

/* PLANES: the pixels remainder, remainder + phase ... of the padded line. */
static void copy_pixels(const Tiles *t, const TileLine *l, int64_t remainder, char *to,
                        char *scratch) {
    const ConvolutionTask *s = &t->task;
    int64_t phase = t->phase[1], before = s->padding[2] - remainder;
    int64_t low = least(t->pitch, before > 0 ? divide_up(before, phase) : 0), high = low;
    int64_t first = low * phase - before, step = phase * s->x_spatial[2] * 2;
    const char *x = l->x;
    if (x && first < s->in_size[2])
        high = least(t->pitch, low + divide_up(s->in_size[2] - first, phase));
    if (high > low && s->x_channel != 1) {
        gather_pixels(t, x, s->in_size[2], scratch);
        x = scratch + first * t->inner * 2, step = phase * t->inner * 2;
    } else if (high > low) {
        x += first * s->x_spatial[2] * 2;
    }
    for (int64_t c = 0; c < t->chunks; c++, to += plane_bytes(t)) {
        int64_t elements = least(TILE_STEP, t->inner - c * TILE_STEP);
        memset(to, 0, (size_t)(low * TILE_ROW_BYTES));
        if (high > low)
            t->kernel->rows(x + c * TILE_ROW_BYTES, step, high - low, elements,
                            to + low * TILE_ROW_BYTES);
        memset(to + high * TILE_ROW_BYTES, 0, (size_t)((t->pitch - high) * TILE_ROW_BYTES));
    }
}

/* The last elements of a line, as the lines of positions below and above it see them. */
static void copy_tail(const Tiles *t, const TileLine *l, const char *scratch) {
    const ConvolutionTask *s = &t->task;
    int64_t step = s->stride[2] * t->inner * 2;
    char *tail = l->slab->copy + tail_start(t);
    for (int64_t q = 0; q < s->kernel[1]; q++) {
        int64_t y = q * s->dilation[1], line = l->at - y / t->phase[0];
        if (y % t->phase[0] != l->remainder || line < 0 || line >= l->slab->lines) continue;
        for (int64_t e = 0; e < t->rest; e++) {
            int64_t k = (l->z * s->kernel[1] + q) * t->rest + e;
            const char *from = scratch + (t->chunks * TILE_STEP + e) * 2;
            char *to = tail + k / TILE_STEP * tail_bytes(t) + line * t->pitch * TILE_ROW_BYTES +
                       k % TILE_STEP * 2;
            for (int64_t p = 0; p < t->pitch; p++, from += step, to += TILE_ROW_BYTES)
                memcpy(to, from, 2);
        }
    }
}

static void pad_line(const Tiles *t, const TileLine *l, char *scratch) {
    const ConvolutionTask *s = &t->task;
    int64_t bytes = t->inner * 2, all = padded_pixels(t);
    int64_t low = least(all, s->padding[2]), high = least(all, low + s->in_size[2]);
    if (!l->x) low = high = 0;
    memset(scratch, 0, (size_t)(low * bytes));
    if (high > low) gather_pixels(t, l->x, high - low, scratch + low * bytes);
    memset(scratch + high * bytes, 0, (size_t)((all - high) * bytes));
}

/* LINES: for each position the run of elements that a line of the kernel reads. */
static void copy_runs(const Tiles *t, const TileLine *l, char *to, const char *scratch) {
    const ConvolutionTask *s = &t->task;
    int64_t bytes = t->inner * 2, run = t->inner * s->kernel[2];
    for (int64_t c = 0; c < t->chunks; c++)
        t->kernel->rows(scratch + c * TILE_ROW_BYTES, s->stride[2] * bytes, t->pitch,
                        least(TILE_STEP, run - c * TILE_STEP), to + c * plane_bytes(t));
    if (t->rest) copy_tail(t, l, scratch);
}

/* ---- slabs -------------------------------------------------------------------------------- */

static void find_line(const Tiles *t, TileLine *l, int64_t group, int64_t at) {
    const ConvolutionTask *s = &t->task;
    int64_t z = l->slab->z * s->stride[0] - s->padding[0] + l->z * s->dilation[0];
    int64_t y = l->slab->first * s->stride[1] + at * t->phase[0] + l->remainder - s->padding[1];
    int64_t from = s->x_offset + l->slab->image * s->x_batch + group * t->inner * s->x_channel;
    from += z * s->x_spatial[0] + y * s->x_spatial[1];
    bool inside = (uint64_t)y < (uint64_t)s->in_size[1] && (uint64_t)z < (uint64_t)s->in_size[0];
    l->x = inside ? t->common->x + 2 * from : NULL;
    l->at = at;
}

/* A line of y of each remainder. They are all padded before they are read: what was just stored
 * cannot be loaded at other offsets without waiting. */
static void copy_lines(const Tiles *t, const TileSlab *slab, int64_t group, int64_t z, int64_t at,
                       char *scratch) {
    TileLine line = {.slab = slab, .z = z};
    int64_t padded = padded_pixels(t) * t->inner * 2;
    for (line.remainder = 0; line.remainder < t->phases[0] && t->form == LINES; line.remainder++) {
        find_line(t, &line, group, at);
        pad_line(t, &line, scratch + line.remainder * padded);
    }
    for (line.remainder = 0; line.remainder < t->phases[0]; line.remainder++) {
        find_line(t, &line, group, at);
        int64_t plane = (z * t->phases[0] + line.remainder) * t->phases[1];
        for (int64_t px = 0; px < t->phases[1]; px++, plane++) {
            char *to =
                slab->copy + plane * t->chunks * plane_bytes(t) + at * t->pitch * TILE_ROW_BYTES;
            if (t->form == LINES)
                copy_runs(t, &line, to, scratch + line.remainder * padded);
            else
                copy_pixels(t, &line, px, to, scratch);
        }
    }
}

void tile_clear(const Tiles *t, char *copy) {
    memset(copy + tail_start(t), 0, (size_t)(t->tail * tail_bytes(t)));
}

/* Lines in order, so that the rows of the tail that they belong to stay in L1. */
void tile_copy(const Tiles *t, const TileSlab *slab, int64_t group, char *scratch) {
    if (t->form == IN_PLACE) return;
    int64_t lines = tile_plane_lines(t, slab->lines);
    for (int64_t z = 0; z < t->task.kernel[0]; z++)
        for (int64_t at = 0; at < lines; at++) copy_lines(t, slab, group, z, at, scratch);
    char *after = slab->copy + lines * t->pitch * TILE_ROW_BYTES;
    for (int64_t i = 0; i < t->planes * t->chunks && t->shares; i++) /* ends the last line */
        memset(after + i * plane_bytes(t), 0, (size_t)(t->task.padding[2] * TILE_ROW_BYTES));
}
