/* AttentionTask -> the result, by blocks of keys with an online softmax, after FlashAttention-2
 * (Dao, 2023): for each query the largest score so far, the sum of the weights and the weighted sum
 * of the values are kept, and scaled down when a block brings a larger score. Memory is that of a
 * few blocks per thread; keys behind a causal query are never looked at.
 *
 * A panel is as many queries as the register tile of gemm has columns, a query in each lane:
 *
 *     scores [keys][lanes] = key @ transpose(query)     gemm's tile: rows are keys
 *     weights              = softmax of lanes, online   attention_kernel.c, nothing across lanes
 *     sum [width][lanes]  += transpose(value) @ weights gemm's tile: the weights are its panel
 *
 * A task is a few panels of one batch item, so that a packed block of keys and values serves all of
 * them from L2. Every query goes through the blocks of keys in the same order, whatever its task:
 * results do not depend on threads.
 *
 * f16, and bf16 where the processor does not multiply it, are widened on the way in. Where it does,
 * the tiles are those of bf16 and the weights are rounded to it, two keys side by side; scores,
 * softmax and sums are f32 all the same. */
#include "base/cpu.h"
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/attention_internal.h"
#include "cpu/own.h"
#include <math.h>
#include <string.h>

enum {
    TASK_PANELS = 8,           /* of a task, at the most */
    THREAD_PRODUCTS = 1 << 18, /* multiplications that are worth waking a thread for */
    ALIGNMENT = 64,
    LINE = 64 /* of the cache */
};

static const AttentionKernels *attention_kernels(void) {
    static const AttentionKernels *const of_level[] = CPU_LEVELS(&attention_kernels_);
    return of_level[cpu_level()];
}

/* ---- space ---------------------------------------------------------------------------------- */

char *attention_carve(char **at, int64_t bytes) {
    char *start = *at;
    *at += round_up(bytes, ALIGNMENT);
    return start;
}

/* The parts of a thread's space from base on; their bytes together. */
static int64_t lay_out(const AttentionJob *job, AttentionSpace *own, char *base) {
    const AttentionTask *s = &job->task;
    char *at = base;
    int64_t e = job->element, lanes = job->type->columns, panels = job->task_panels;
    int64_t rows = job->type->rows;
    int64_t longest = s->depth > s->width ? s->depth : s->width;
    int64_t most = job->block > lanes ? job->block : lanes;
    own->query = attention_carve(&at, panels * lanes * attention_lane_bytes(job, s->depth));
    own->sum = attention_carve(&at, panels * s->width * lanes * e);
    own->most = attention_carve(&at, panels * lanes * e);
    own->total = attention_carve(&at, panels * lanes * e);
    own->shrink = attention_carve(&at, lanes * e);
    own->key =
        attention_carve(&at, round_up(job->block, rows) * attention_lane_bytes(job, s->depth));
    own->values =
        attention_carve(&at, round_up(s->width, rows) * attention_lane_bytes(job, job->block));
    own->score = attention_carve(&at, job->block * lanes * e);
    own->weights =
        attention_carve(&at, job->half ? lanes * attention_lane_bytes(job, job->block) : 0);
    own->mask = attention_carve(&at, s->masked ? job->block * lanes * e : 0);
    own->wide = attention_carve(&at, (longest > job->block ? longest : job->block) * most * e);
    return at - base;
}

static bool open_space(const AttentionJob *job, AttentionSpace *own) {
    int64_t bytes = lay_out(job, own, NULL);
    own->storage = storage_new((size_t)bytes);
    if (!own->storage) return false;
    lay_out(job, own, own->storage->data);
    return true;
}

/* ---- packing -------------------------------------------------------------------------------- */

Matrix attention_rows(const AttentionJob *job, const AttentionSpace *own, const char *base,
                      int64_t offset, const AttentionOperand *operand, int64_t rows,
                      int64_t columns) {
    const char *at = base + offset * job->input_bytes;
    if (!job->widen) return (Matrix){at, operand->row, operand->column};
    for (int64_t r = 0; r < rows; r++) {
        const uint16_t *from = (const uint16_t *)at + r * operand->row;
        float *to = (float *)own->wide + r * columns;
        if (operand->column == 1)
            job->widen(from, to, columns);
        else
            for (int64_t i = 0; i < columns; i++) job->widen(from + i * operand->column, to + i, 1);
    }
    return (Matrix){own->wide, columns, 1};
}

void attention_clear(const AttentionJob *job, const AttentionSpace *own, int64_t lanes) {
    double low = -(double)INFINITY;
    memset(own->total, 0, (size_t)(lanes * job->element));
    for (int64_t i = 0; i < lanes; i++) {
        if (job->element == sizeof(float))
            ((float *)own->most)[i] = (float)low;
        else
            ((double *)own->most)[i] = low;
    }
}

/* The task's queries, scaled unless that would round them, as panels; their softmax begins. */
static void open_task(const AttentionJob *job, const AttentionSpace *own,
                      const AttentionPart *task) {
    const AttentionTask *s = &job->task;
    int64_t lanes = job->type->columns, e = job->element, row = task->panel * lanes;
    for (int64_t p = 0; p < task->panels; p++, row += lanes) {
        char *panel = own->query + p * lanes * attention_lane_bytes(job, s->depth);
        int64_t first = task->query + row * s->query.row, rows = least(lanes, s->rows - row);
        Matrix from = attention_rows(job, own, job->query, first, &s->query, rows, s->depth);
        job->type->pack(panel, from.at, from.row, from.column, (int)rows, (int)lanes, s->depth);
        if (!job->half) job->attention->scale(s->depth * lanes, panel, s->scale * LOG2_E);
    }
    memset(own->sum, 0, (size_t)(task->panels * s->width * lanes * e));
    attention_clear(job, own, task->panels * lanes);
}

void attention_pack_keys(const AttentionJob *job, Matrix from, int64_t depth, int64_t keys,
                         char *to) {
    int rows = job->type->rows;
    for (int64_t k = 0; k < keys; k += rows)
        job->type->pack_rows(to + k * attention_lane_bytes(job, depth),
                             from.at + k * from.row * job->factor_bytes, from.row, from.column,
                             (int)least(rows, keys - k), rows, depth);
}

void attention_pack_turned(const AttentionJob *job, Matrix from, int64_t width, int64_t keys,
                           char *to) {
    Matrix turned = from;
    turned.row = from.column, turned.column = from.row;
    attention_pack_keys(job, turned, keys, width, to);
}

/* Keys [first, first + keys) and their values. */
static void pack_block(const AttentionJob *job, const AttentionSpace *own,
                       const AttentionPart *task, int64_t first, int64_t keys) {
    const AttentionTask *s = &job->task;
    int64_t at = task->key + first * s->key.row;
    Matrix from = attention_rows(job, own, job->key, at, &s->key, keys, s->depth);
    attention_pack_keys(job, from, s->depth, keys, own->key);
    at = task->values + first * s->values.row;
    from = attention_rows(job, own, job->values, at, &s->values, keys, s->width);
    attention_pack_turned(job, from, s->width, keys, own->values);
}

/* ---- one panel of queries against one block of keys ------------------------------------------ */

/* The mask as numbers, laid like the scores; one lane where all queries share it. */
void attention_add_mask(const AttentionJob *job, const AttentionSpace *own,
                        const AttentionPart *task, int64_t row, int64_t first, int64_t keys) {
    const AttentionTask *s = &job->task;
    int lanes = job->type->columns, rows = (int)least(lanes, s->rows - row);
    int64_t at = task->mask + row * s->mask.row + first * s->mask.column;
    Matrix from = {job->mask + at * job->element, s->mask.row, s->mask.column};
    if (s->mask_dtype == CB_BOOL) {
        const uint8_t *in = (const uint8_t *)job->mask + at;
        int distinct = s->mask.row ? rows : 1;
        for (int q = 0; q < distinct; q++)
            job->attention->widen_bool(in + q * s->mask.row, s->mask.column,
                                       own->wide + q * keys * job->element, keys);
        from = (Matrix){own->wide, s->mask.row ? keys : 0, 1};
    }
    job->plain->pack(own->mask, from.at, from.row, from.column, rows, lanes, keys);
    job->attention->add(keys * lanes, own->score, own->mask, LOG2_E);
}

/* The panel of weights that the second product takes: `keys` of it, zeros up to a whole step. */
static const char *weights_of(const AttentionJob *job, const AttentionSpace *own, int64_t keys) {
    int64_t lanes = job->type->columns, pairs = round_up(keys, 2) / 2;
    int64_t all = round_up(keys, job->type->k_unit) / 2, pair_row = lanes * 2 * job->factor_bytes;
    if (!job->half) return own->score;
    job->attention->pair(keys, own->score, own->weights);
    memset(own->weights + pairs * pair_row, 0, (size_t)((all - pairs) * pair_row));
    return own->weights;
}

static void attend(const AttentionJob *job, const AttentionSpace *own, const AttentionPart *task,
                   int64_t p, int64_t first, int64_t keys) {
    const AttentionTask *s = &job->task;
    const GemmType *type = job->type;
    int64_t lanes = type->columns, e = job->element, row = (task->panel + p) * lanes;
    int64_t behind = first - row; /* of key 0 against query 0 */
    if (s->causal && keys > lanes - behind) keys = lanes - behind;
    if (keys <= 0) return;
    const char *query = own->query + p * lanes * attention_lane_bytes(job, s->depth);
    char *sum = own->sum + p * s->width * lanes * e;
    for (int64_t k = 0; k < keys; k += type->rows)
        type->tile(s->depth, own->key + k * attention_lane_bytes(job, s->depth), query,
                   own->score + k * lanes * e, lanes, (int)least(type->rows, keys - k), (int)lanes,
                   false);
    if (job->half && s->depth > 0) /* else 0 * infinity, the scale of no depth */
        job->attention->scale(keys * lanes, own->score, s->scale * LOG2_E);
    if (s->causal && behind + keys > 1) job->attention->causal(keys, own->score, -behind);
    if (s->masked) attention_add_mask(job, own, task, row, first, keys);
    char *most = own->most + p * lanes * e, *total = own->total + p * lanes * e;
    if (job->attention->softmax(keys, own->score, most, total, own->shrink))
        job->attention->multiply(s->width, sum, own->shrink);
    const char *weights = weights_of(job, own, keys);
    int64_t packed = least(job->block, s->columns - first); /* keys in a panel of values */
    for (int64_t d = 0; d < s->width; d += type->rows)
        type->tile(keys, own->values + d * attention_lane_bytes(job, packed), weights,
                   sum + d * lanes * e, lanes, (int)least(type->rows, s->width - d), (int)lanes,
                   true);
}

/* The result's lines of panel p, which were another core's or in memory, are asked for before they
 * are written. */
static void ask_for_result(const AttentionJob *job, const AttentionPart *task, int64_t p) {
    const AttentionTask *s = &job->task;
    int64_t lanes = job->type->columns, row = (task->panel + p) * lanes;
    for (int64_t q = row; q < least(row + lanes, s->rows); q++) {
        const char *to = job->out + (task->out + q * s->out.row) * job->input_bytes;
        for (int64_t i = 0; i < s->width * job->input_bytes; i += LINE)
            __builtin_prefetch(to + i, 1);
    }
}

/* sum / total, a query a row, into the result. */
static void close_panel(const AttentionJob *job, const AttentionSpace *own,
                        const AttentionPart *task, int64_t p) {
    const AttentionTask *s = &job->task;
    int64_t lanes = job->type->columns, e = job->element, row = (task->panel + p) * lanes;
    char *sum = own->sum + p * s->width * lanes * e, *total = own->total + p * lanes * e;
    job->attention->invert(total);
    job->attention->multiply(s->width, sum, total);
    int64_t rows = least(lanes, s->rows - row), width = s->width;
    job->plain->pack(own->wide, sum, lanes, 1, (int)width, (int)width, rows);
    for (int64_t q = 0; q < rows; q++) {
        char *to = job->out + (task->out + (row + q) * s->out.row) * job->input_bytes;
        const char *from = own->wide + q * width * e;
        if (job->narrow)
            job->narrow(from, to, width);
        else
            memcpy(to, from, (size_t)(width * e));
    }
}

/* ---- tasks ---------------------------------------------------------------------------------- */

AttentionPart attention_part(const AttentionTask *s, int64_t item) {
    AttentionPart task = {
        s->query.offset, s->key.offset, s->values.offset, s->mask.offset, s->out.offset, 0, 0};
    for (int d = s->batch_rank - 1; d >= 0; d--) {
        int64_t at = item % s->batch_size[d];
        item /= s->batch_size[d];
        task.query += at * s->query.batch[d], task.key += at * s->key.batch[d];
        task.values += at * s->values.batch[d], task.mask += at * s->mask.batch[d];
        task.out += at * s->out.batch[d];
    }
    return task;
}

static AttentionPart task_at(const AttentionJob *job, int64_t number) {
    const AttentionTask *s = &job->task;
    /* The last queries first: under a causal mask they take longest. */
    int64_t chunk = job->batch_tasks - 1 - number / s->batch;
    AttentionPart task = attention_part(s, number % s->batch);
    task.panel = chunk * job->task_panels;
    task.panels = least(job->task_panels, job->panels - task.panel);
    return task;
}

static void run_task(const AttentionJob *job, const AttentionSpace *own, int64_t number) {
    const AttentionTask *s = &job->task;
    AttentionPart task = task_at(job, number);
    int64_t end = s->columns;
    if (s->causal) end = least(end, (task.panel + task.panels) * job->type->columns);
    open_task(job, own, &task);
    for (int64_t first = 0; first < end; first += job->block) {
        int64_t keys = least(job->block, s->columns - first);
        pack_block(job, own, &task, first, keys);
        for (int64_t p = 0; p < task.panels; p++) {
            if (first + keys >= end) ask_for_result(job, &task, p);
            attend(job, own, &task, p, first, keys);
        }
    }
    for (int64_t p = 0; p < task.panels; p++) close_panel(job, own, &task, p);
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    AttentionJob *job = user;
    AttentionSpace own;
    (void)low, (void)high; /* tasks are taken one by one */
    if (!open_space(job, &own)) {
        atomic_store_explicit(&job->failed, true, memory_order_relaxed);
        return;
    }
    if (job->type->begin) job->type->begin();
    for (;;) {
        int64_t number = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (number >= job->tasks) break;
        run_task(job, &own, number);
    }
    if (job->type->end) job->type->end();
    storage_release(own.storage);
}

/* Large tasks share what they pack; smaller ones are cut where threads would be idle. */
static int64_t cut(AttentionJob *job) {
    const AttentionTask *s = &job->task;
    double products =
        (double)s->batch * (double)s->rows * (double)s->columns * (double)(s->depth + s->width);
    int64_t threads = parallel_threads();
    if (products < THREAD_PRODUCTS * (double)threads)
        threads = (int64_t)(products / THREAD_PRODUCTS) + 1;
    job->panels = divide_up(s->rows, job->type->columns);
    int64_t size = least(TASK_PANELS, job->panels);
    while (size > 1 && s->batch * divide_up(job->panels, size) < 2 * threads) size = size / 2;
    job->task_panels = size;
    job->batch_tasks = divide_up(job->panels, size);
    job->tasks = s->batch * job->batch_tasks;
    return least(threads, job->tasks);
}

void attention_open(AttentionJob *job, const AttentionTask *task, bool half) {
    cb_dtype dtype = task->dtype, wide = dtype == CB_F64 ? CB_F64 : CB_F32;
    GemmChoice choice = gemm_choose(dtype, false, half);
    *job = (AttentionJob){.task = *task};
    job->type = choice.type, job->widen = choice.convert, job->narrow = choice.narrow;
    job->plain = gemm_choose(wide, false, false).type;
    job->attention = wide == CB_F64 ? &attention_kernels()->f64 : &attention_kernels()->f32;
    job->element = (int64_t)cb_dtype_size(wide);
    job->input_bytes = (int64_t)cb_dtype_size(dtype);
    job->half = choice.type->together == 2;
    job->factor_bytes = job->half ? job->input_bytes : job->element;
    job->block = BLOCK_KEYS / job->type->rows * job->type->rows;
    check(job->type->columns == job->attention->lanes,
          "a panel of %d lanes and a tile of %d columns", job->attention->lanes,
          job->type->columns);
    check(job->block % job->type->k_unit == 0 && job->attention->lanes % job->type->k_unit == 0,
          "blocks of %d keys end within a step of %d", (int)job->block, job->type->k_unit);
}

bool attention_run(const AttentionTask *task, const Operands *operands) {
    const void *const *in = operands->in;
    AttentionJob job;
    attention_open(&job, task, true);
    job.query = in[0], job.key = in[1], job.values = in[2], job.out = operands->out;
    if (task->masked) job.mask = in[3];
    int64_t threads = cut(&job);
    parallel_for(threads, 1, run_tasks, &job);
    return !atomic_load_explicit(&job.failed, memory_order_relaxed);
}
