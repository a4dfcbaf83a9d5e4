/* Are all index elements in range? Asked before each kernel that reads or writes through them.
 *
 * The answer is nearly always yes, so blocks are tested without branches, by all threads; only a
 * block that fails is searched for its first offender, which the error names. */
#include "run/check_indices.h"
#include "base/parallel.h"
#include "tensor/read.h"
#include <stdatomic.h>

enum { BLOCK = 1024, GRAIN_BLOCKS = 16 };

typedef struct Search {
    int64_t bound, count;
    const int64_t *data;
    const Tensor *strided;
    _Atomic int64_t failed; /* the first block that fails */
} Search;

/* A number below 0 has its sign, one from the bound on gives it to what is left up to there: no
 * comparison, of which 64-bit ones have no instruction in the oldest set. */
static bool all_inside(const int64_t *index, int count, int64_t bound) {
    int64_t outside = 0;
    _Pragma("omp simd reduction(| : outside)") for (int i = 0; i < count; i++) outside |=
        index[i] | (int64_t)((uint64_t)bound - 1 - (uint64_t)index[i]);
    return outside >= 0;
}

static int block_count(const Search *search, int64_t block) {
    int64_t rest = search->count - block * BLOCK;
    return (int)(rest < BLOCK ? rest : BLOCK);
}

/* The indices of a block: where they lie, or read into room. */
static const int64_t *block_of(const Search *search, int64_t block, int64_t room[BLOCK]) {
    if (!search->strided) return search->data + block * BLOCK;
    tensor_read_range(search->strided, block * BLOCK, block_count(search, block), room, CB_I64);
    return room;
}

static bool block_inside(const Search *search, int64_t block) {
    int64_t room[BLOCK];
    return all_inside(block_of(search, block, room), block_count(search, block), search->bound);
}

static void check_range(void *user, int64_t low, int64_t high) {
    Search *search = user;
    for (int64_t block = low; block < high; block++) {
        if (block_inside(search, block)) continue;
        int64_t first = atomic_load(&search->failed);
        while (block < first && !atomic_compare_exchange_weak(&search->failed, &first, block)) {
        }
        return;
    }
}

/* What an expanded dim repeats is looked at once. */
static Tensor without_repeats(const Tensor *x) {
    Tensor once = *x;
    for (int i = 0; i < once.rank; i++)
        if (once.stride[i] == 0 && once.size[i] > 1) once.size[i] = 1;
    return once;
}

/* Of the op that was called itself; a composite's call is named by graph_name_error. */
static void name_operands(const IndexBound *check) {
    char text[2][128];
    if (check->origin.call || !check->of[0].rank) return;
    for (int i = 0; i < 2; i++) meta_format(&check->of[i], text[i], sizeof text[i]);
    fail_also(" of dim %d: %s, %s", check->dim, text[0], text[1]);
}

bool check_indices(const IndexBound *check, int64_t count, const int64_t *data,
                   const Tensor *strided) {
    Tensor once;
    if (strided) {
        once = without_repeats(strided);
        strided = tensor_contiguous(&once) ? NULL : &once;
        count = sizes_numel(once.rank, once.size);
    }
    Search search = {.bound = check->bound,
                     .count = count,
                     .data = data,
                     .strided = strided,
                     .failed = INT64_MAX};
    parallel_for((count + BLOCK - 1) / BLOCK, GRAIN_BLOCKS, check_range, &search);
    int64_t block = atomic_load(&search.failed), room[BLOCK], i = 0;
    if (block == INT64_MAX) return true;
    const int64_t *index = block_of(&search, block, room);
    while (index[i] >= 0 && index[i] < check->bound) i++;
    /* In a compiled function the caller's line is that of the call, and far from the op's own. */
    Site caller = site_current(), own = check->origin.site;
    bool failed_before = cb_error() != NULL;
    if (own.file) site_set(own);
    const char *name = op_info(check->op)->name;
    const char *refuses = op_refuses(check->op);
    if (refuses)
        fail(CB_ERR_ARGUMENT, "%s: %s", name, refuses);
    else
        fail(CB_ERR_INDEX, "%s: index %lld is out of range for size %lld", name,
             (long long)index[i], (long long)check->bound);
    if (!refuses && !failed_before) name_operands(check);
    if (!failed_before) graph_name_error(check->origin.call);
    site_set(caller);
    return false;
}
