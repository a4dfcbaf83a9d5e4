/* scatter_add and sinks over chunks, of the inner range or of the rows: every chunk adds to bins of
 * its own, which start as zeros; the bins of all chunks are then added to the result, in chunk
 * order. The number of chunks is the kernel's, so results do not depend on the number of threads.
 *
 *     2^22 elements into 1024 bins, split 64: 64 x 1024 private bins, then 64 additions each
 *     the columns of 3072 rows of 384, parts 64: 64 x 384 sums of 48 rows, then 64 additions
 *     each */
#include "vm/bins.h"
#include "base/parallel.h"
#include "base/round.h"
#include "tensor/tensor.h"

#include <string.h>

enum { GRAIN_ADDITIONS = 16 * 1024, LINE_BYTES = 64 };

typedef struct Bins {
    const Launch *launch;
    void *const *buffer;
    int64_t chunks, items; /* work items of one chunk */
    char *own;             /* of all chunks */
    int64_t bytes;         /* of one chunk's, whole cache lines: no two chunks share one */
    const LaunchBins *at;  /* that are added up */
    int64_t offset;        /* of these in each chunk's */
} Bins;

static int64_t bytes_of(const LaunchBins *bins) {
    return round_up(bins->numel * (int64_t)cb_dtype_size(bins->dtype), LINE_BYTES);
}

static void fill_chunks(void *user, int64_t low, int64_t high) {
    const Bins *bins = user;
    const Launch *launch = bins->launch;
    void *buffer[launch->buffer_count];
    memcpy(buffer, bins->buffer, sizeof buffer);
    for (int64_t chunk = low; chunk < high; chunk++) {
        char *own = bins->own + chunk * bins->bytes;
        memset(own, 0, (size_t)bins->bytes);
        for (int i = 0; i < launch->bins_count; i++) {
            buffer[launch->bins[i].buffer] = own;
            own += bytes_of(&launch->bins[i]);
        }
        int64_t end = least((chunk + 1) * bins->items, launch->outer_size * launch->split);
        launch_part(launch, buffer, chunk * bins->items, end, 0, NULL);
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* A few elements of every chunk at a time, so that sums stay in L1. */
enum { BLOCK = 512 };

#define EACH _Pragma("omp simd") for (int i = 0; i < count; i++)
#define ADD_OF(name, type, sum_type, from, to)                                                     \
    static void add_##name(const Bins *bins, int64_t low, int64_t high) {                          \
        type *out = bins->buffer[bins->at->buffer];                                                \
        sum_type sum[BLOCK];                                                                       \
        for (int64_t at = low; at < high; at += BLOCK) {                                           \
            int count = (int)(high - at < BLOCK ? high - at : BLOCK);                              \
            EACH sum[i] = from(out[at + i]);                                                       \
            for (int64_t chunk = 0; chunk < bins->chunks; chunk++) {                               \
                const char *first = bins->own + chunk * bins->bytes + bins->offset;                \
                const type *own = (const type *)(const void *)first;                               \
                EACH sum[i] = (sum_type)(sum[i] + from(own[at + i]));                              \
            }                                                                                      \
            EACH out[at + i] = (type)to(sum[i]);                                                   \
        }                                                                                          \
    }
#define SAME(value) (value)
#define TRUTH(value) ((value) != 0)

ADD_OF(bool, uint8_t, uint32_t, SAME, TRUTH)
ADD_OF(u8, uint8_t, uint8_t, SAME, SAME)
ADD_OF(u16, uint16_t, uint16_t, SAME, SAME)
ADD_OF(u32, uint32_t, uint32_t, SAME, SAME)
ADD_OF(u64, uint64_t, uint64_t, SAME, SAME)
#define HALF_ROW(id, name, storage, ...)                                                           \
    ADD_OF(name, storage, float, name##_to_f32, name##_from_f32)
#define FLOAT_ROW(id, name, storage, ...) ADD_OF(name, storage, storage, SAME, SAME)
#include "op/dtype_rows.h"

typedef void Add(const Bins *bins, int64_t low, int64_t high);

static Add *add_of(cb_dtype dtype) {
    static Add *const floats[CB_DTYPE_COUNT] = {
#define HALF_ROW(id, name, ...) [CB_##id] = add_##name,
#define FLOAT_ROW HALF_ROW
#include "op/dtype_rows.h"
    };
    if (dtype == CB_BOOL) return add_bool;
    if (floats[dtype]) return floats[dtype];
    switch (cb_dtype_size(dtype)) { /* integers: sums that wrap are those without sign */
    case 1:
        return add_u8;
    case 2:
        return add_u16;
    case 4:
        return add_u32;
    default:
        return add_u64;
    }
}

static void add_range(void *user, int64_t low, int64_t high) {
    const Bins *bins = user;
    size_t size = cb_dtype_size(bins->at->dtype);
    char *out = bins->buffer[bins->at->buffer];
    if (bins->at->sink) memset(out + (size_t)low * size, 0, (size_t)(high - low) * size);
    add_of(bins->at->dtype)(bins, low, high);
}

/* ---- entry ----------------------------------------------------------------------------------- */

bool bins_run(const Launch *launch, void *const *buffer) {
    Bins bins = {.launch = launch, .buffer = buffer, .chunks = launch->parts};
    if (launch->split > 1) bins.chunks = launch->split;
    bins.items = divide_up(launch->outer_size * launch->split, bins.chunks);
    for (int i = 0; i < launch->bins_count; i++) bins.bytes += bytes_of(&launch->bins[i]);
    Storage *storage = storage_new((size_t)(bins.chunks * bins.bytes));
    if (!storage) return false;
    bins.own = storage->data;
    parallel_for(bins.chunks, launch->grain / bins.items + 1, fill_chunks, &bins);
    for (int i = 0; i < launch->bins_count; i++) {
        bins.at = &launch->bins[i];
        parallel_for(bins.at->numel, GRAIN_ADDITIONS / bins.chunks + 1, add_range, &bins);
        bins.offset += bytes_of(bins.at);
    }
    storage_release(storage);
    return true;
}
