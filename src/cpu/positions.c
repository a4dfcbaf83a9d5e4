/* Where a row of bools is true: bool[n] -> i64[count], ascending; zeros where count is too large.
 *
 *     [1, 0, 0, 1, 1] -> [0, 3, 4]
 *
 * The row is cut into chunks: how many are true in each is counted, which says where each one's
 * positions begin, and then they are written. Both are done by all threads. */
#include "base/memory.h"
#include "base/parallel.h"
#include "cpu/own.h"

enum { CHUNK = 16384 };

typedef struct MaskRow {
    const PositionsTask *task;
    const bool *mask; /* its element 0 */
    int64_t *begin;   /* by chunk: how many are true in those before it; one more for all */
    int64_t *out;
} MaskRow;

static int64_t chunk_end(const MaskRow *row, int64_t chunk) {
    int64_t end = (chunk + 1) * CHUNK;
    return end < row->task->length ? end : row->task->length;
}

static void count_chunks(void *user, int64_t low, int64_t high) {
    const MaskRow *row = user;
    const bool *mask = row->mask;
    int64_t step = row->task->element;
    for (int64_t chunk = low; chunk < high; chunk++) {
        int64_t first = chunk * CHUNK, end = chunk_end(row, chunk);
        int count = 0;
        if (step == 1)
            for (int64_t i = first; i < end; i++) count += mask[i];
        else
            for (int64_t i = first; i < end; i++) count += mask[i * step];
        row->begin[chunk + 1] = count;
    }
}

/* A position is written whether it is one or not, and stays if it is: no branch to guess wrong. */
static void write_chunks(void *user, int64_t low, int64_t high) {
    const MaskRow *row = user;
    const PositionsTask *task = row->task;
    for (int64_t chunk = low; chunk < high; chunk++) {
        int64_t at = row->begin[chunk], end = chunk_end(row, chunk);
        int64_t last = row->begin[chunk + 1];
        if (last > task->count) last = task->count;
        for (int64_t i = chunk * CHUNK; i < end && at < last; i++) {
            row->out[at] = i;
            at += row->mask[i * task->element];
        }
    }
}

bool positions_run(const PositionsTask *task, const Operands *operands) {
    int64_t chunks = (task->length - 1) / CHUNK + 1;
    MaskRow row = {.task = task,
                   .mask = (const bool *)operands->in[0] + task->offset,
                   .begin = memory_alloc(sizeof *row.begin * (size_t)(chunks + 1)),
                   .out = operands->out};
    if (!row.begin) return false;
    parallel_for(chunks, 2, count_chunks, &row);
    row.begin[0] = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++) row.begin[chunk + 1] += row.begin[chunk];
    parallel_for(chunks, 2, write_chunks, &row);
    for (int64_t i = row.begin[chunks]; i < task->count; i++) row.out[i] = 0;
    memory_free(row.begin);
    return true;
}
