/* Measuring candidates, and remembering it in the disk cache.
 *
 * An entry is keyed by all that the times depend on - the step with sizes, strides and epilogue,
 * the candidates, the threads, the processor - and holds a line per candidate:
 *
 *     milliseconds of the best run
 *     direct 0.412330
 *     onednn 0.353100
 *
 * A damaged entry, or one that lacks a candidate, is measured again and replaced. Candidates take
 * turns, so that what else the machine does falls on all of them; the best time counts. */
#include "method/tune.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/parallel.h"
#include "jit/cache.h"
#include "jit/compiler.h"
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 40 };
static const double enough_ms = 4; /* of runs of the fastest candidate */

/* ---- scratch memory ----------------------------------------------------------------------- */

enum { MOST_BUFFERS = 32, MOST_STORAGES = MOST_BUFFERS + 3 + MOST_CANDIDATES };

typedef struct Bench {
    const Launch *epilogue;
    const void *x, *weight;
    void *out, *buffer[MOST_BUFFERS];
    Storage *storage[MOST_STORAGES]; /* all that is to be released */
    int storages;
    bool failed;
} Bench;

static void *take(Bench *b, int64_t elements, int64_t element) {
    size_t bytes = (size_t)(elements * element) + 64;
    Storage *storage = storage_new(bytes);
    if (!storage) {
        b->failed = true;
        return NULL;
    }
    b->storage[b->storages++] = storage;
    memset(storage->data, 0, bytes);
    return storage->data;
}

static int64_t span(int64_t offset, int rank, const int64_t *size, const int64_t *stride) {
    int64_t last = offset;
    for (int d = 0; d < rank; d++) last += (size[d] - 1) * stride[d];
    return last + 1;
}

static int64_t span_of_x(const Task *task) {
    const MatmulTask *m = &task->matmul;
    const ConvolutionTask *c = &task->convolution;
    if (task->kind == TASK_MATMUL)
        return span(m->a_offset, m->batch_rank, m->batch_size, m->a_batch) +
               span(0, 2, (int64_t[]){m->m, m->k}, (int64_t[]){m->a_m, m->a_k});
    return span(c->x_offset, 3, c->in_size, c->x_spatial) +
           span(0, 2, (int64_t[]){c->batch, c->channels}, (int64_t[]){c->x_batch, c->x_channel});
}

static int64_t span_of_weight(const Task *task) {
    const MatmulTask *m = &task->matmul;
    const ConvolutionTask *c = &task->convolution;
    if (task->kind == TASK_MATMUL)
        return span(m->b_offset, m->batch_rank, m->batch_size, m->b_batch) +
               span(0, 2, (int64_t[]){m->k, m->n}, (int64_t[]){m->b_k, m->b_n});
    return span(c->weight_offset, 3, c->kernel, c->weight_spatial) +
           span(0, 2, (int64_t[]){c->out_channels, c->channels / c->groups},
                (int64_t[]){c->weight_out, c->weight_in});
}

static void take_buffers(Bench *b, const Plan *plan, int epilogue, int out) {
    const KernelBuffer *buffer = plan->kernel[epilogue]->buffer;
    if (length(buffer) > MOST_BUFFERS) b->failed = true;
    for (int i = 0; !b->failed && i < length(buffer); i++) {
        int64_t element = (int64_t)cb_dtype_size((cb_dtype)buffer[i].dtype);
        b->buffer[i] = buffer[i].value == out ? b->out : take(b, buffer[i].numel, element);
    }
}

static void open_bench(Bench *b, const Plan *plan, const Step *step, const void *weight,
                       const Launch *epilogue) {
    int64_t element = (int64_t)cb_dtype_size((cb_dtype)plan->value[step->out].dtype);
    *b = (Bench){.epilogue = epilogue, .weight = weight};
    b->x = take(b, span_of_x(&step->task), element);
    if (!weight) b->weight = take(b, span_of_weight(&step->task), element);
    b->out = take(b, plan->value[step->out].numel, element);
    if (epilogue) take_buffers(b, plan, step->kernel, step->out);
}

static void close_bench(Bench *b) {
    for (int i = 0; i < b->storages; i++) storage_release(b->storage[i]);
}

/* ---- timing ------------------------------------------------------------------------------- */

/* The work made ready for the candidate, whose weight is released with the bench's storages. */
static bool prepare(Bench *b, const Work *given, const Candidate *candidate, bool constant,
                    Work *work) {
    const Task *task = given->task;
    *work = *given;
    work->provided = candidate->provided;
    if (!work->provided) work->method = candidate->method;
    if (work->provided || !constant) return true;
    cb_dtype dtype =
        (cb_dtype)(task->kind == TASK_MATMUL ? task->matmul.dtype : task->convolution.dtype);
    if (!work_pack(work, b->weight, dtype)) return false;
    if (work->packed) b->storage[b->storages++] = work->packed;
    return true;
}

static bool run_once(const Bench *b, const Work *work) {
    Operands operands = {.in = {b->x, b->weight},
                         .out = b->out,
                         .epilogue = b->epilogue,
                         .epilogue_buffer = b->buffer};
    return work_run(work, operands);
}

static bool run_rounds(Bench *b, Candidate *candidate, const Work *work, int count) {
    double spent = 0;
    for (int round = -1; round < MOST_ROUNDS; round++) { /* the first one warms up */
        double fastest = 1e30, best = 1e30;
        for (int i = 0; i < count && round >= 0; i++)
            if (candidate[i].ms < best) best = candidate[i].ms;
        for (int i = 0; i < count; i++) {
            if (round > 0 && candidate[i].ms > 1.5 * best) continue; /* it has lost */
            double start = clock_ms();
            if (!run_once(b, &work[i])) return false;
            double ms = clock_ms() - start;
            if (round < 0 || ms < candidate[i].ms) candidate[i].ms = ms;
            if (ms < fastest) fastest = ms;
        }
        spent += fastest;
        if (round == -1) /* the first runs find cold memory: they only sort out what is slow */
            for (int i = 0; i < count; i++) candidate[i].ms *= 2;
        if (round + 1 >= LEAST_ROUNDS && spent > enough_ms) return true;
    }
    return true;
}

static bool measure(const Plan *plan, const Step *step, const void *weight, const Launch *epilogue,
                    const Work *given, Candidate *candidate, int count) {
    Bench b;
    Work work[MOST_CANDIDATES];
    open_bench(&b, plan, step, weight, epilogue);
    for (int i = 0; !b.failed && i < count; i++)
        b.failed = !prepare(&b, given, &candidate[i], weight != NULL, &work[i]);
    bool ok = !b.failed && run_rounds(&b, candidate, work, count);
    close_bench(&b);
    return ok;
}

/* ---- the disk cache ----------------------------------------------------------------------- */

static void put_numbers(Buffer *out, const char *name, const int64_t *size, int count) {
    putf(out, " %s", name);
    for (int i = 0; i < count; i++) putf(out, "%s%lld", i ? "x" : " ", (long long)size[i]);
}

static void put_matmul(Buffer *out, const MatmulTask *m) {
    put_numbers(out, "of", (int64_t[]){m->m, m->n, m->k}, 3);
    put_numbers(out, "strides", (int64_t[]){m->a_m, m->a_k, m->b_k, m->b_n}, 4);
    put_numbers(out, "batch", m->batch_size, m->batch_rank);
    put_numbers(out, "by", m->a_batch, m->batch_rank);
    put_numbers(out, "and", m->b_batch, m->batch_rank);
}

static void put_convolution(Buffer *out, const ConvolutionTask *c) {
    put_numbers(out, "of", (int64_t[]){c->batch, c->channels, c->out_channels, c->groups}, 4);
    put_numbers(out, "in", c->in_size, 3), put_numbers(out, "kernel", c->kernel, 3);
    put_numbers(out, "stride", c->stride, 3), put_numbers(out, "padding", c->padding, 3);
    put_numbers(out, "dilation", c->dilation, 3);
    put_numbers(out, "x", (int64_t[]){c->x_batch, c->x_channel}, 2);
    put_numbers(out, "and", c->x_spatial, 3);
    put_numbers(out, "weight", (int64_t[]){c->weight_out, c->weight_in}, 2);
    put_numbers(out, "and", c->weight_spatial, 3);
    put(out, c->channels_last ? " channels last" : " channels first");
}

/* All that the times depend on. Of the epilogue its arithmetic and traffic stand for the rest. */
static void describe(const Plan *plan, const Step *step, bool constant, const Candidate *candidate,
                     int count, Buffer *out) {
    const MatmulTask *matmul = &step->task.matmul;
    const ConvolutionTask *convolution = &step->task.convolution;
    bool product = step->task.kind == TASK_MATMUL;
    int8_t dtype = product ? matmul->dtype : convolution->dtype;
    putf(out, "carbide %s\ntuned %s %s to %s", CB_VERSION, product ? "matmul" : "convolution",
         cb_dtype_name((cb_dtype)dtype), cb_dtype_name((cb_dtype)plan->value[step->out].dtype));
    if (product)
        put_matmul(out, matmul);
    else
        put_convolution(out, convolution);
    if (step->kernel >= 0) {
        const Kernel *kernel = plan->kernel[step->kernel];
        putf(out, " then %s %lld %lld", kernel->origin ? kernel->origin : "",
             (long long)kernel->operations, (long long)kernel->bytes);
    }
    bool reduced = product ? matmul->reduced : convolution->reduced;
    putf(out, "%s%s%s\ncandidates", constant ? " constant" : "", reduced ? " reduced" : "",
         plan->ambient.precise ? " precise" : "");
    for (int i = 0; i < count; i++) {
        putf(out, " %s", candidate[i].method->name);
        if (candidate[i].provided) putf(out, " %s", provided_version(candidate[i].provided));
    }
    putf(out, "\nthreads %d\ncpu %s\nskip %s\n", parallel_threads(), compiler_cpu(),
         option_text(OPTION_skip));
}

/* Every candidate must have a time. */
static bool parse(const char *text, Candidate *candidate, int count) {
    for (int i = 0; i < count; i++) {
        const char *line = text;
        size_t name = strlen(candidate[i].method->name);
        while (*line &&
               (strncmp(line, candidate[i].method->name, name) != 0 || line[name] != ' ')) {
            line += strcspn(line, "\n");
            line += *line == '\n';
        }
        candidate[i].ms = *line ? strtod(line + name, NULL) : 0;
        if (!(candidate[i].ms > 0 && candidate[i].ms < 1e9)) return false;
    }
    return true;
}

static bool load(const char *directory, const char *description, Candidate *candidate, int count) {
    char key[CACHE_KEY], text[64 * MOST_CANDIDATES];
    cache_key(description, key);
    return cache_get(directory, key, description, text, sizeof text) == CACHE_HIT &&
           parse(text, candidate, count);
}

static void save(const char *directory, const char *description, const Candidate *candidate,
                 int count) {
    char key[CACHE_KEY], text[64 * MOST_CANDIDATES];
    snprintf(text, sizeof text, "milliseconds of the best run\n");
    for (int i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s %.6f\n", candidate[i].method->name,
                 candidate[i].ms);
    }
    cache_key(description, key);
    (void)cache_set(directory, key, description, text); /* else it is measured again next time */
}

/* ---- entry -------------------------------------------------------------------------------- */

static int fastest_of(const Candidate *candidate, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (candidate[i].ms < candidate[best].ms) best = i;
    return best;
}

static int find(const Plan *plan, const Step *step, const void *weight, const Launch *epilogue,
                const Work *given, Candidate *candidate, int count, bool *from_disk, Arena *arena) {
    char directory[CACHE_PATH];
    if (arena_guard(arena)) return -1;
    Buffer description = buffer_new(arena);
    describe(plan, step, weight != NULL, candidate, count, &description);
    bool cached = option_int(OPTION_cache) && cache_directory(directory) == REASON_NONE;
    *from_disk = cached && load(directory, buffer_text(&description), candidate, count);
    if (*from_disk) return fastest_of(candidate, count);
    if (!measure(plan, step, weight, epilogue, given, candidate, count)) return -1;
    if (cached) save(directory, buffer_text(&description), candidate, count);
    return fastest_of(candidate, count);
}

int tune(const Plan *plan, const Step *step, const void *weight, const Launch *epilogue,
         const Work *given, Candidate *candidate, int count, bool *from_disk) {
    Arena *arena = arena_new();
    int best =
        !arena ? -1 : find(plan, step, weight, epilogue, given, candidate, count, from_disk, arena);
    arena_free(arena);
    return best;
}
