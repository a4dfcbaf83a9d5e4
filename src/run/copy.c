/* Copies between strided places, for mutated inputs and in-place ops.
 *
 * Dimensions are put in the order of the target's memory, neighbours that both sides walk evenly
 * become one, and what is left is a run along the last dimension inside an odometer over the
 * others.
 *
 *     to f32[2, 3] contiguous, from f32[2, 3] contiguous -> one run of 6
 *     to f32[2, 3] transposed, from a number             -> 3 x 2, runs of 2 */
#include "run/copy.h"
#include "base/parallel.h"
#include <string.h>

enum { GRAIN_BYTES = 128 * 1024 };

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
} Copy;

void contiguous_strides(int rank, const int64_t *size, int64_t *stride) {
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) stride[i] = step, step *= size[i];
}

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

/* ---- shape ---- */

static bool inside(Dim outer, Dim inner) {
    return outer.to > inner.to || (outer.to == inner.to && outer.from >= inner.from);
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
}

/* Items: pieces of the run when there is nothing else, else the points of the outer dimensions. */
static void copy_items(void *user, int64_t low, int64_t high) {
    const Copy *copy = user;
    Dim run = copy->dim[copy->rank - 1];
    int64_t width = (int64_t)copy->width;
    if (copy->rank == 1) {
        int64_t begin = run.size * low / copy->pieces, end = run.size * high / copy->pieces;
        copy_run(copy->to + begin * run.to * width, run.to, copy->from + begin * run.from * width,
                 run.from, end - begin, copy->width);
        return;
    }
    for (int64_t item = low; item < high; item++) {
        int64_t rest = item, to = 0, from = 0;
        for (int d = copy->rank - 2; d >= 0; d--) {
            int64_t at = rest % copy->dim[d].size;
            rest /= copy->dim[d].size;
            to += at * copy->dim[d].to, from += at * copy->dim[d].from;
        }
        copy_run(copy->to + to * width, run.to, copy->from + from * width, run.from, run.size,
                 copy->width);
    }
}

void copy_strided(void *to, const int64_t *to_stride, const void *from, const int64_t *from_stride,
                  int rank, const int64_t *size, size_t width) {
    int64_t numel = 1, items = 1;
    for (int i = 0; i < rank; i++) numel *= size[i];
    if (numel == 0) return;
    Copy copy = {.to = to, .from = from, .width = width};
    set_dims(&copy, rank, size, to_stride, from_stride);
    int64_t bytes = numel * (int64_t)width;
    if (copy.rank == 1) {
        copy.pieces = bytes / GRAIN_BYTES + 1;
        parallel_for(copy.pieces, 1, copy_items, &copy);
        return;
    }
    for (int d = 0; d < copy.rank - 1; d++) items *= copy.dim[d].size;
    parallel_for(items, GRAIN_BYTES * items / bytes + 1, copy_items, &copy);
}
