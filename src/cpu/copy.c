/* Copies between strided places, for mutated inputs and in-place ops.
 *
 * Dimensions are put in the order of the target's memory, neighbours that both sides walk evenly
 * become one, and what is left is a run along the last dimension inside an odometer over the
 * others.
 *
 *     to f32[2, 3] contiguous, from f32[2, 3] contiguous -> one run of 6
 *     to f32[2, 3] transposed, from a number             -> 3 x 2, runs of 2 */
#include "cpu/copy.h"
#include "base/parallel.h"
#include <string.h>

enum {
    GRAIN_BYTES = 128 * 1024,
    BLOCK = 32 /* a transposition goes by squares, so that both sides use whole cache lines */
};

typedef struct Dim {
    int64_t size, to, from;
} Dim;

typedef struct Copy {
    char *to;
    const char *from;
    size_t width;
    int rank; /* of dim, at least 1; the last one is the run */
    Dim dim[CB_MAX_RANK];
    int64_t pieces; /* a single run is cut into this many */
    bool turned;    /* the source runs along the last dimension but one: by squares of these two */
} Copy;

/* ---- runs ---- */

#define RUN_OF(type)                                                                               \
    static void run_##type(type##_t *restrict to, int64_t to_stride,                               \
                           const type##_t *restrict from, int64_t from_stride, int64_t count) {    \
        if (to_stride == 1 && from_stride == 0) {                                                  \
            type##_t value = *from;                                                                \
            _Pragma("omp simd") for (int64_t i = 0; i < count; i++) to[i] = value;                 \
        } else {                                                                                   \
            for (int64_t i = 0; i < count; i++) to[i * to_stride] = from[i * from_stride];         \
        }                                                                                          \
    }
RUN_OF(uint8)
RUN_OF(uint16)
RUN_OF(uint32)
RUN_OF(uint64)

static void copy_run(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                     int64_t count, size_t width) {
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)count * width);
        return;
    }
    switch (width) {
    case 1:
        run_uint8((void *)to, to_stride, (const void *)from, from_stride, count);
        break;
    case 2:
        run_uint16((void *)to, to_stride, (const void *)from, from_stride, count);
        break;
    case 4:
        run_uint32((void *)to, to_stride, (const void *)from, from_stride, count);
        break;
    default:
        run_uint64((void *)to, to_stride, (const void *)from, from_stride, count);
        break;
    }
}

/* rows x columns elements: rows lie side by side in from, columns in to. */
#define SQUARE_OF(type)                                                                            \
    static void square_##type(type##_t *restrict to, int64_t to_stride,                            \
                              const type##_t *restrict from, int64_t from_stride, int64_t rows,    \
                              int64_t columns) {                                                   \
        for (int64_t i = 0; i < rows; i++)                                                         \
            for (int64_t j = 0; j < columns; j++)                                                  \
                to[i * to_stride + j] = from[i + j * from_stride];                                 \
    }
SQUARE_OF(uint8)
SQUARE_OF(uint16)
SQUARE_OF(uint32)
SQUARE_OF(uint64)

static void copy_square(char *to, int64_t to_stride, const char *from, int64_t from_stride,
                        int64_t rows, int64_t columns, size_t width) {
    switch (width) {
    case 1:
        square_uint8((void *)to, to_stride, (const void *)from, from_stride, rows, columns);
        break;
    case 2:
        square_uint16((void *)to, to_stride, (const void *)from, from_stride, rows, columns);
        break;
    case 4:
        square_uint32((void *)to, to_stride, (const void *)from, from_stride, rows, columns);
        break;
    default:
        square_uint64((void *)to, to_stride, (const void *)from, from_stride, rows, columns);
        break;
    }
}

/* ---- shape ---- */

static bool inside(Dim outer, Dim inner) {
    return outer.to > inner.to || (outer.to == inner.to && outer.from >= inner.from);
}

/* A dimension along which the source is contiguous goes next to the run, along which the target
 * is. */
static void find_turn(Copy *copy) {
    int last = copy->rank - 1;
    if (copy->dim[last].to != 1 || copy->dim[last].from < 2) return;
    for (int d = 0; d < last; d++) {
        if (copy->dim[d].from != 1) continue;
        Dim source = copy->dim[d];
        for (; d + 1 < last; d++) copy->dim[d] = copy->dim[d + 1];
        copy->dim[last - 1] = source;
        copy->turned = true;
        return;
    }
}

/* Drops sizes of 1, sorts by the target's strides, joins. */
static void set_dims(Copy *copy, int rank, const int64_t *size, const int64_t *to,
                     const int64_t *from) {
    Dim dim[CB_MAX_RANK];
    int count = 0;
    for (int i = 0; i < rank; i++) {
        if (size[i] == 1) continue;
        Dim new = {size[i], to[i], from[i]};
        int at = count++;
        for (; at > 0 && !inside(dim[at - 1], new); at--) dim[at] = dim[at - 1];
        dim[at] = new;
    }
    copy->rank = 0;
    for (int i = 0; i < count; i++) {
        Dim *last = copy->rank ? &copy->dim[copy->rank - 1] : NULL;
        bool joins =
            last && last->to == dim[i].to * dim[i].size && last->from == dim[i].from * dim[i].size;
        if (joins)
            *last = (Dim){last->size * dim[i].size, dim[i].to, dim[i].from};
        else
            copy->dim[copy->rank++] = dim[i];
    }
    if (copy->rank == 0) copy->dim[copy->rank++] = (Dim){1, 1, 1};
    find_turn(copy);
}

/* Where point `item` of dimensions [0, count) begins, in elements. */
static void locate(const Copy *copy, int count, int64_t item, int64_t *to, int64_t *from) {
    *to = *from = 0;
    for (int d = count - 1; d >= 0; d--) {
        int64_t at = item % copy->dim[d].size;
        item /= copy->dim[d].size;
        *to += at * copy->dim[d].to, *from += at * copy->dim[d].from;
    }
}

/* A single run in pieces. */
static void copy_pieces(void *user, int64_t low, int64_t high) {
    const Copy *copy = user;
    Dim run = copy->dim[0];
    int64_t width = (int64_t)copy->width;
    int64_t begin = run.size * low / copy->pieces, end = run.size * high / copy->pieces;
    copy_run(copy->to + begin * run.to * width, run.to, copy->from + begin * run.from * width,
             run.from, end - begin, copy->width);
}

/* Items: the points of all dimensions but the run. */
static void copy_runs(void *user, int64_t low, int64_t high) {
    const Copy *copy = user;
    Dim run = copy->dim[copy->rank - 1];
    int64_t to, from, width = (int64_t)copy->width;
    for (int64_t item = low; item < high; item++) {
        locate(copy, copy->rank - 1, item, &to, &from);
        copy_run(copy->to + to * width, run.to, copy->from + from * width, run.from, run.size,
                 copy->width);
    }
}

/* Items: BLOCK rows of the last two dimensions, at each point of the others. */
static void copy_squares(void *user, int64_t low, int64_t high) {
    const Copy *copy = user;
    Dim run = copy->dim[copy->rank - 1], row = copy->dim[copy->rank - 2];
    int64_t to, from, width = (int64_t)copy->width, blocks = (row.size + BLOCK - 1) / BLOCK;
    for (int64_t item = low; item < high; item++) {
        locate(copy, copy->rank - 2, item / blocks, &to, &from);
        int64_t i = item % blocks * BLOCK, rows = row.size - i < BLOCK ? row.size - i : BLOCK;
        to += i * row.to, from += i;
        for (int64_t j = 0; j < run.size; j += BLOCK)
            copy_square(copy->to + (to + j) * width, row.to,
                        copy->from + (from + j * run.from) * width, run.from, rows,
                        run.size - j < BLOCK ? run.size - j : BLOCK, copy->width);
    }
}

void copy_strided(void *to, const int64_t *to_stride, const void *from, const int64_t *from_stride,
                  int rank, const int64_t *size, size_t width) {
    int64_t numel = sizes_numel(rank, size);
    if (numel == 0) return;
    int64_t bytes = numel * (int64_t)width;
    if (bytes <= GRAIN_BYTES && strides_contiguous(rank, size, to_stride) &&
        strides_contiguous(rank, size, from_stride)) { /* as most are: one piece of one run */
        memcpy(to, from, (size_t)bytes);
        return;
    }
    Copy copy = {.to = to, .from = from, .width = width};
    set_dims(&copy, rank, size, to_stride, from_stride);
    int64_t items = numel / copy.dim[copy.rank - 1].size;
    if (copy.rank == 1) {
        copy.pieces = bytes / GRAIN_BYTES + 1;
        parallel_for(copy.pieces, 1, copy_pieces, &copy);
        return;
    }
    if (copy.turned) {
        int64_t rows = copy.dim[copy.rank - 2].size;
        items = items / rows * ((rows + BLOCK - 1) / BLOCK);
    }
    int64_t grain = (int64_t)((double)GRAIN_BYTES * (double)items / (double)bytes) + 1;
    parallel_for(items, grain, copy.turned ? copy_squares : copy_runs, &copy);
}
