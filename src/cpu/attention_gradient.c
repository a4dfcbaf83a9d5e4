/* AttentionGradientTask -> the gradients of query, key and values, by panels of queries; after
 * FlashAttention-2 (Dao, 2023), but for what makes the row's log-sum-exp needless: a panel of
 * queries (attention.c) looks at all of its keys before the next one begins, so that its weights
 * are final. Neither the result nor anything else of the forward pass is read, and memory is that
 * of a few panels over all keys per thread.
 *
 *     w = 2^(score - most), t = 1 / sum of w           [keys][lanes], [lanes]
 *     g = gradient of the result * t                   so that weights need no division
 *     s = values @ transpose(g)                        [keys][lanes]
 *     s = w * (s - t * (sum over keys of w * s)) * scale
 *     d query [depth][lanes]  = transpose(key) @ s     written as soon as it is there
 *     d key    [keys][depth] += s @ query              panels of a group together: gemm's rows_tile
 *     d values [keys][width] += w @ g
 *
 * A task is a run of groups of one batch item, the whole item where there are enough of them. Where
 * not, each run has sums of its own, which are added in order. How items are cut depends on sizes
 * alone, so results do not depend on threads.
 *
 * f16 and bf16 are widened on the way in; sums are f32. */
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/attention_internal.h"
#include "cpu/own.h"
#include <string.h>

enum {
    MOST_QUERIES = 128,        /* of a group */
    SCORE_BYTES = 512 * 1024,  /* of weights and slopes of a group; beyond L2 it is one panel */
    LEAST_TASKS = 8,           /* so many items are not cut */
    THREAD_PRODUCTS = 1 << 18, /* multiplications that are worth waking a thread for */
    LEAST_LANES = 4            /* of a panel, at any level */
};

typedef struct GradientJob {
    AttentionJob base; /* its out takes all gradients: of query, key, values, one after the other */
    const char *given; /* the gradient of the result, which lies where base.task.out says */
    int64_t panels, groups;          /* panels of a group, groups of an item */
    int64_t run, runs;               /* groups of a task, tasks of an item */
    int64_t key_numel, values_numel; /* of an item */
    char *partial;                   /* [item][run]: sums of key, of values; NULL: in out */
} GradientJob;

typedef struct GradientSpace {     /* of one thread */
    AttentionSpace base;           /* key, values: packed as a whole; query: a panel */
    char *given;                   /* a panel */
    char *key_turned;              /* by blocks: columns of keys as rows */
    char *query_rows, *given_rows; /* [block of columns][panel][query][column] */
    char *weights, *slopes;        /* [panel][key][lane] */
    char *turned;                  /* d query of a panel */
    Storage *storage;
} GradientSpace;

typedef struct GradientPart { /* a task */
    AttentionPart at;
    int64_t item;
    int64_t low, high;  /* groups */
    char *key, *values; /* sums */
} GradientPart;

/* ---- space ---------------------------------------------------------------------------------- */

static int64_t lay_out(const GradientJob *job, GradientSpace *own, char *base) {
    const AttentionJob *a = &job->base;
    const AttentionTask *s = &a->task;
    char *at = base;
    int64_t e = a->element, lanes = a->type->columns, rows = a->type->rows;
    int64_t keys = round_up(s->columns, rows), panel = lanes * e, group = job->panels * panel;
    int64_t longest = s->depth > s->width ? s->depth : s->width;
    int64_t most = a->block > lanes ? a->block : lanes;
    own->base = (AttentionSpace){0};
    own->base.query = attention_carve(&at, s->depth * panel);
    own->given = attention_carve(&at, s->width * panel);
    own->base.most = attention_carve(&at, panel);
    own->base.total = attention_carve(&at, panel);
    own->base.shrink = attention_carve(&at, panel);
    own->base.key = attention_carve(&at, keys * s->depth * e);
    own->base.values = attention_carve(&at, keys * s->width * e);
    own->key_turned = attention_carve(&at, s->columns * round_up(s->depth, rows) * e);
    own->query_rows = attention_carve(&at, round_up(s->depth, lanes) * group);
    own->given_rows = attention_carve(&at, round_up(s->width, lanes) * group);
    own->weights = attention_carve(&at, s->columns * group);
    own->slopes = attention_carve(&at, s->columns * group);
    own->turned = attention_carve(&at, round_up(s->depth, rows) * panel);
    own->base.mask = attention_carve(&at, s->masked ? a->block * panel : 0);
    own->base.wide = attention_carve(&at, (longest > a->block ? longest : a->block) * most * e);
    return at - base;
}

static bool open_space(const GradientJob *job, GradientSpace *own) {
    int64_t bytes = lay_out(job, own, NULL);
    Storage *storage = storage_new((size_t)bytes);
    if (!storage) return false;
    lay_out(job, own, storage->data);
    own->storage = storage;
    return true;
}

/* ---- packing -------------------------------------------------------------------------------- */

/* Keys that some query of a panel sees, which begins at this row. */
static int64_t keys_seen(const AttentionJob *a, int64_t row) {
    int64_t keys = a->task.columns;
    return a->task.causal ? least(keys, row + a->type->columns) : keys;
}

static void pack_keys(const GradientJob *job, const GradientSpace *own, const AttentionPart *at,
                      int64_t count) {
    const AttentionJob *a = &job->base;
    const AttentionTask *s = &a->task;
    int64_t e = a->element, tall = round_up(s->depth, a->type->rows);
    for (int64_t first = 0; first < count; first += a->block) {
        int64_t keys = least(a->block, count - first);
        int64_t from = at->values + first * s->values.row;
        Matrix m = attention_rows(a, &own->base, a->values, from, &s->values, keys, s->width);
        attention_pack_keys(a, m, s->width, keys, own->base.values + first * s->width * e);
        from = at->key + first * s->key.row;
        m = attention_rows(a, &own->base, a->key, from, &s->key, keys, s->depth);
        attention_pack_keys(a, m, s->depth, keys, own->base.key + first * s->depth * e);
        attention_pack_turned(a, m, s->depth, keys, own->key_turned + first * tall * e);
    }
}

/* Panel p of what stands as [queries][columns]: zeros behind its last query. */
static void pack_rows(const GradientJob *job, char *to, int64_t p, Matrix from, int64_t queries,
                      int64_t columns) {
    const AttentionJob *a = &job->base;
    int64_t lanes = a->type->columns, e = a->element, panel = lanes * lanes * e;
    for (int64_t c = 0; c < columns; c += lanes) {
        char *block = to + (c / lanes * job->panels + p) * panel;
        a->type->pack(block, from.at + c * from.column * e, from.column, from.row,
                      (int)least(lanes, columns - c), (int)lanes, queries);
        memset(block + queries * lanes * e, 0, (size_t)((lanes - queries) * lanes * e));
    }
}

static Matrix open_query(const GradientJob *job, const GradientSpace *own, const GradientPart *t,
                         int64_t p, int64_t row, int64_t queries) {
    const AttentionJob *a = &job->base;
    const AttentionTask *s = &a->task;
    int64_t lanes = a->type->columns, from = t->at.query + row * s->query.row;
    Matrix m = attention_rows(a, &own->base, a->query, from, &s->query, queries, s->depth);
    a->type->pack(own->base.query, m.at, m.row, m.column, (int)queries, (int)lanes, s->depth);
    a->attention->scale(s->depth * lanes, own->base.query, s->scale * LOG2_E);
    pack_rows(job, own->query_rows, p, m, queries, s->depth);
    from = t->at.out + row * s->out.row;
    return attention_rows(a, &own->base, job->given, from, &s->out, queries, s->width);
}

/* ---- one panel of queries -------------------------------------------------------------------- */

/* Sums over `depth` of packed keys (or values) and a panel. */
static void multiply_keys(const AttentionJob *a, int64_t depth, const char *keys, const char *panel,
                          int64_t count, char *to) {
    int64_t lanes = a->type->columns, e = a->element;
    for (int64_t k = 0; k < count; k += a->type->rows)
        a->type->tile(depth, keys + k * depth * e, panel, to + k * lanes * e, lanes,
                      (int)least(a->type->rows, count - k), (int)lanes, false);
}

/* Scores of the panel at row to weights, up to their sum, whose inverse is own->base.total. */
static void weigh(const GradientJob *job, GradientSpace *own, const GradientPart *t, char *weights,
                  int64_t row, int64_t seen) {
    const AttentionJob *a = &job->base;
    int64_t lanes = a->type->columns, e = a->element;
    multiply_keys(a, a->task.depth, own->base.key, own->base.query, seen, weights);
    if (a->task.causal && seen > row)
        a->attention->causal(seen - row, weights + row * lanes * e, 0);
    for (int64_t first = 0; first < seen && a->task.masked; first += a->block) {
        own->base.score = weights + first * lanes * e;
        attention_add_mask(a, &own->base, &t->at, row, first, least(a->block, seen - first));
    }
    attention_clear(a, &own->base, lanes);
    a->attention->softmax(seen, weights, own->base.most, own->base.total, own->base.shrink);
    a->attention->invert(own->base.total);
}

/* Lanes behind the last query may hold anything, such as 0 times infinity. */
static void clear_lanes(const AttentionJob *a, char *x, int64_t queries, int64_t keys) {
    int64_t lanes = a->type->columns, e = a->element;
    for (int64_t k = 0; k < keys && queries < lanes; k++)
        memset(x + (k * lanes + queries) * e, 0, (size_t)((lanes - queries) * e));
}

static void put_query(const GradientJob *job, const GradientSpace *own, const GradientPart *t,
                      const char *slopes, int64_t row, int64_t queries, int64_t seen) {
    const AttentionJob *a = &job->base;
    int64_t lanes = a->type->columns, rows = a->type->rows, e = a->element;
    int64_t depth = a->task.depth, tall = round_up(depth, rows);
    for (int64_t first = 0; first < seen; first += a->block) {
        int64_t keys = least(a->block, seen - first);
        const char *block = own->key_turned + first * tall * e;
        /* The block was packed with all of its keys, of which some may not be seen. */
        int64_t packed = least(a->block, keys_seen(a, (t->high * job->panels - 1) * lanes) - first);
        for (int64_t d = 0; d < depth; d += rows)
            a->type->tile(keys, block + d * packed * e, slopes + first * lanes * e,
                          own->turned + d * lanes * e, lanes, (int)least(rows, depth - d),
                          (int)lanes, first > 0);
    }
    char *to = a->out + (t->item * a->task.rows + row) * depth * a->input_bytes;
    char *wide = a->narrow ? own->base.wide : to;
    a->plain->pack(wide, own->turned, lanes, 1, (int)depth, (int)depth, queries);
    if (a->narrow) a->narrow(wide, to, queries * depth);
}

static void run_panel(const GradientJob *job, GradientSpace *own, const GradientPart *t, int64_t p,
                      int64_t row, int64_t end) {
    const AttentionJob *a = &job->base;
    const AttentionTask *s = &a->task;
    int64_t lanes = a->type->columns, panel = s->columns * lanes * a->element;
    int64_t queries = least(lanes, s->rows - row), seen = keys_seen(a, row);
    char *weights = own->weights + p * panel, *slopes = own->slopes + p * panel;
    Matrix given = open_query(job, own, t, p, row, queries);
    a->type->pack(own->given, given.at, given.row, given.column, (int)queries, (int)lanes,
                  s->width);
    weigh(job, own, t, weights, row, seen);
    a->attention->multiply(s->width, own->given, own->base.total);
    pack_rows(job, own->given_rows, p, (Matrix){own->given, 1, lanes}, queries, s->width);
    multiply_keys(a, s->width, own->base.values, own->given, seen, slopes);
    a->attention->slope(seen, weights, slopes, own->base.total, s->scale);
    clear_lanes(a, weights, queries, seen);
    clear_lanes(a, slopes, queries, seen);
    put_query(job, own, t, slopes, row, queries, seen);
    size_t unseen = (size_t)((end - seen) * lanes * a->element);
    memset(weights + seen * lanes * a->element, 0, unseen);
    memset(slopes + seen * lanes * a->element, 0, unseen);
}

/* ---- a group of panels ----------------------------------------------------------------------- */

/* sum[keys][columns] += transpose(factor of all panels) @ their rows */
static void add_to_keys(const GradientJob *job, const char *factor, const char *rows,
                        int64_t panels, int64_t keys, int64_t columns, char *sum) {
    const AttentionJob *a = &job->base;
    const GemmType *type = a->type;
    int64_t lanes = type->columns, e = a->element, all = a->task.columns;
    const void *row[MOST_QUERIES / LEAST_LANES * GEMM_MAX_WIDTH];
    for (int64_t k = 0; k < keys; k += type->rows) {
        int64_t count = least(type->rows, keys - k);
        for (int64_t p = 0; p < panels; p++)
            for (int64_t r = 0; r < count; r++)
                row[p * type->rows + r] = factor + ((p * all + k + r) * lanes) * e;
        for (int64_t c = 0; c < columns; c += lanes)
            type->rows_tile(panels, lanes, row, rows + c * job->panels * lanes * e,
                            sum + (k * columns + c) * e, columns, (int)count,
                            (int)least(lanes, columns - c), true);
    }
}

static void run_group(const GradientJob *job, GradientSpace *own, const GradientPart *t,
                      int64_t group) {
    const AttentionJob *a = &job->base;
    const AttentionTask *s = &a->task;
    int64_t lanes = a->type->columns, first = group * job->panels * lanes;
    int64_t panels = least(job->panels, divide_up(s->rows - first, lanes));
    int64_t end = keys_seen(a, first + (panels - 1) * lanes);
    for (int64_t p = 0; p < panels; p++) run_panel(job, own, t, p, first + p * lanes, end);
    add_to_keys(job, own->weights, own->given_rows, panels, end, s->width, t->values);
    add_to_keys(job, own->slopes, own->query_rows, panels, end, s->depth, t->key);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

/* The sums of a run: of the item's keys, and behind them of its values. */
static char *partial_at(const GradientJob *job, int64_t item, int64_t run) {
    int64_t numel = job->key_numel + job->values_numel;
    return job->partial + (item * job->runs + run) * numel * job->base.element;
}

static char *key_result(const GradientJob *job, int64_t item) {
    const AttentionTask *s = &job->base.task;
    int64_t at = s->batch * s->rows * s->depth + item * job->key_numel;
    return job->base.out + at * job->base.input_bytes;
}

static char *values_result(const GradientJob *job, int64_t item) {
    int64_t items = job->base.task.batch - item; /* their keys come first */
    int64_t at = items * job->key_numel + item * job->values_numel;
    return key_result(job, item) + at * job->base.input_bytes;
}

static GradientPart part_at(const GradientJob *job, int64_t number) {
    const AttentionTask *s = &job->base.task;
    /* The last queries first: under a causal mask they take longest. */
    int64_t item = number % s->batch, run = job->runs - 1 - number / s->batch;
    GradientPart t = {.at = attention_part(s, item), .item = item, .low = run * job->run};
    t.high = least(t.low + job->run, job->groups);
    if (job->partial) {
        t.key = partial_at(job, item, run);
        t.values = t.key + job->key_numel * job->base.element;
    } else {
        t.key = key_result(job, item);
        t.values = values_result(job, item);
    }
    return t;
}

static void run_part(const GradientJob *job, GradientSpace *own, int64_t number) {
    const AttentionJob *a = &job->base;
    GradientPart t = part_at(job, number);
    memset(t.key, 0, (size_t)(job->key_numel * a->element));
    memset(t.values, 0, (size_t)(job->values_numel * a->element));
    pack_keys(job, own, &t.at, keys_seen(a, (t.high * job->panels - 1) * a->type->columns));
    for (int64_t group = t.low; group < t.high; group++) run_group(job, own, &t, group);
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    GradientJob *job = user;
    GradientSpace own;
    (void)low, (void)high; /* tasks are taken one by one */
    if (!open_space(job, &own)) {
        atomic_store_explicit(&job->base.failed, true, memory_order_relaxed);
        return;
    }
    for (;;) {
        int64_t number = atomic_fetch_add_explicit(&job->base.next, 1, memory_order_relaxed);
        if (number >= job->base.tasks) break;
        run_part(job, &own, number);
    }
    storage_release(own.storage);
}

/* The sums of all runs of an item, from element `at` on, in order; then into the result. */
static void add_runs(const GradientJob *job, int64_t item, int64_t at, int64_t count, char *to) {
    const AttentionJob *a = &job->base;
    char *sum = partial_at(job, item, 0) + at * a->element;
    for (int64_t run = 1; run < job->runs; run++) {
        const char *more = partial_at(job, item, run) + at * a->element;
        for (int64_t i = 0; i < count; i++) {
            if (a->element == sizeof(float))
                ((float *)sum)[i] += ((const float *)more)[i];
            else
                ((double *)sum)[i] += ((const double *)more)[i];
        }
    }
    if (a->narrow)
        a->narrow(sum, to, count);
    else
        memcpy(to, sum, (size_t)(count * a->element));
}

/* Keys of all items. */
static void join_runs(void *user, int64_t low, int64_t high) {
    const GradientJob *job = user;
    const AttentionTask *s = &job->base.task;
    int64_t bytes = job->base.input_bytes;
    for (int64_t i = low; i < high; i++) {
        int64_t item = i / s->columns, key = i % s->columns;
        add_runs(job, item, key * s->depth, s->depth,
                 key_result(job, item) + key * s->depth * bytes);
        add_runs(job, item, job->key_numel + key * s->width, s->width,
                 values_result(job, item) + key * s->width * bytes);
    }
}

/* ---- entry ---------------------------------------------------------------------------------- */

/* By sizes alone. */
static void cut(GradientJob *job) {
    AttentionJob *a = &job->base;
    const AttentionTask *s = &a->task;
    int64_t lanes = a->type->columns, panels = divide_up(s->rows, lanes);
    int64_t panel = 2 * s->columns * lanes * a->element;
    job->panels = least(least(MOST_QUERIES / lanes, SCORE_BYTES / panel), panels);
    if (job->panels < 1) job->panels = 1;
    job->groups = divide_up(panels, job->panels);
    int64_t runs = s->batch < LEAST_TASKS ? divide_up(LEAST_TASKS, s->batch) : 1;
    job->run = divide_up(job->groups, least(runs, job->groups));
    job->runs = divide_up(job->groups, job->run);
    a->tasks = s->batch * job->runs;
    job->key_numel = s->columns * s->depth;
    job->values_numel = s->columns * s->width;
}

static int64_t threads_for(const GradientJob *job) {
    const AttentionTask *s = &job->base.task;
    double products = (double)s->batch * (double)s->rows * (double)s->columns *
                      (double)(3 * s->depth + 2 * s->width);
    int64_t threads = least(parallel_threads(), job->base.tasks);
    bool few = products < THREAD_PRODUCTS * (double)threads;
    return few ? (int64_t)(products / THREAD_PRODUCTS) + 1 : threads;
}

bool attention_gradient_run(const AttentionGradientTask *task, const Operands *operands) {
    const void *const *in = operands->in;
    GradientJob job = {0};
    attention_open(&job.base, &task->attention, false);
    job.base.query = in[0], job.base.key = in[1], job.base.values = in[2], job.given = in[3];
    job.base.out = operands->out;
    if (task->attention.masked) job.base.mask = in[4];
    check(job.base.type->columns >= LEAST_LANES, "panels of %d lanes", job.base.type->columns);
    cut(&job);
    Storage *partial = NULL;
    if (job.runs > 1 || job.base.narrow) {
        int64_t numel = job.base.tasks * (job.key_numel + job.values_numel);
        partial = storage_new((size_t)(numel * job.base.element));
        if (!partial) return false;
        job.partial = partial->data;
    }
    parallel_for(threads_for(&job), 1, run_tasks, &job);
    bool done = !atomic_load_explicit(&job.base.failed, memory_order_relaxed);
    if (partial && done)
        parallel_for(task->attention.batch * task->attention.columns, 256, join_runs, &job);
    if (partial) storage_release(partial);
    return done;
}
