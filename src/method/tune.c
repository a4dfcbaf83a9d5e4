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
#include "jit/artifact.h"
#include "jit/cache.h"
#include "jit/compiler.h"
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 40 };
static const double enough_ms = 4; /* of runs of the fastest candidate */

/* ---- scratch memory ----------------------------------------------------------------------- */

enum { MOST_BUFFERS = 32, MOST_STORAGES = MOST_BUFFERS + TASK_OPERANDS + 1 + MOST_CANDIDATES };

typedef struct Bench {
    const Launch *epilogue;
    const void *in[TASK_OPERANDS];
    cb_dtype weight_dtype;
    void *out, *buffer[MOST_BUFFERS + 1];
    Storage *storage[MOST_STORAGES]; /* all that is to be released */
    int storages;
    bool failed;
} Bench;

static void *take(Bench *b, int64_t elements, cb_dtype dtype) {
    size_t bytes = (size_t)elements * cb_dtype_size(dtype) + 64;
    Storage *storage = storage_new(bytes);
    if (!storage) {
        b->failed = true;
        return NULL;
    }
    b->storage[b->storages++] = storage;
    memset(storage->data, 0, bytes);
    return storage->data;
}

static void take_buffers(Bench *b, const Plan *plan, int epilogue, int out) {
    const KernelBuffer *buffer = plan->kernel[epilogue]->buffer;
    if (length(buffer) > MOST_BUFFERS) b->failed = true;
    for (int i = 0; !b->failed && i < length(buffer); i++) {
        bool result = buffer[i].value == out;
        b->buffer[i] = result ? b->out : take(b, buffer[i].numel, buffer[i].dtype);
    }
    if (!b->failed) b->buffer[length(buffer)] = b->epilogue->argument;
}

static void open_bench(Bench *b, const Plan *plan, const Step *step, const void *weight,
                       const Launch *epilogue) {
    const TaskInfo *info = task_info(step->task.kind);
    *b = (Bench){.epilogue = epilogue};
    for (int i = 0; i < step->in_count; i++) {
        b->in[i] = i == TASK_WEIGHT ? weight : NULL;
        if (!b->in[i])
            b->in[i] = take(b, info->span(&step->task, i), plan->value[step->in[i]].dtype);
    }
    b->weight_dtype = plan->value[step->in[TASK_WEIGHT]].dtype;
    const PlanValue *out = &plan->value[step->out];
    b->out = take(b, out->numel, out->dtype);
    if (epilogue) take_buffers(b, plan, step->kernel, step->out);
}

static void close_bench(Bench *b) {
    for (int i = 0; i < b->storages; i++) storage_release(b->storage[i]);
}

/* ---- timing ------------------------------------------------------------------------------- */

/* The work with its weight, which is released with the bench's storages. */
static bool prepare(Bench *b, const Work *given, bool constant, Work *work) {
    *work = *given;
    if (!constant) return true;
    if (!work_pack(work, b->in[TASK_WEIGHT], b->weight_dtype)) return false;
    if (work->packed) b->storage[b->storages++] = work->packed;
    return true;
}

static bool run_once(const Bench *b, const Work *work) {
    Operands operands = {.out = b->out, .epilogue = b->epilogue, .epilogue_buffer = b->buffer};
    memcpy(operands.in, b->in, sizeof b->in);
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
                    Candidate *candidate, int count) {
    Bench b;
    Work work[MOST_CANDIDATES];
    open_bench(&b, plan, step, weight, epilogue);
    for (int i = 0; !b.failed && i < count; i++)
        b.failed = !prepare(&b, &candidate[i].work, weight != NULL, &work[i]);
    bool ok = !b.failed && run_rounds(&b, candidate, work, count);
    close_bench(&b);
    return ok;
}

/* ---- the disk cache ----------------------------------------------------------------------- */

/* All that the times depend on. Of the epilogue its arithmetic and traffic, and whose code it is,
 * stand for the rest. */
static void describe(const Plan *plan, const Step *step, bool constant, const Launch *epilogue,
                     const Candidate *candidate, int count, Buffer *out) {
    const TaskInfo *info = task_info(step->task.kind);
    putf(out, TUNED_TEXT, CB_VERSION, compiler_cpu());
    putf(out, "%s %s to %s", op_info(info->op[0])->name,
         cb_dtype_name(plan->value[step->in[0]].dtype),
         cb_dtype_name(plan->value[step->out].dtype));
    info->describe(&step->task, out);
    if (epilogue) {
        const Kernel *kernel = plan->kernel[step->kernel];
        putf(out, " then %s %lld %lld%s", kernel->origin ? kernel->origin : "",
             (long long)kernel->operations, (long long)kernel->bytes,
             epilogue->function ? "" : " on the vm");
    }
    putf(out, "%s%s\ncandidates", constant ? " constant" : "",
         plan->ambient.precise ? " precise" : "");
    for (int i = 0; i < count; i++) {
        const Work *work = &candidate[i].work;
        putf(out, " %s", work->method->name);
        if (work->version) putf(out, " %s", work->version);
    }
    putf(out, "\nthreads %d\nskip %s\n", parallel_threads(), option_text(OPTION_skip));
}

/* Every candidate must have a time. */
static bool parse(const char *text, Candidate *candidate, int count) {
    for (int i = 0; i < count; i++) {
        const char *line = text;
        size_t name = strlen(candidate[i].work.method->name);
        while (*line &&
               (strncmp(line, candidate[i].work.method->name, name) != 0 || line[name] != ' ')) {
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
        snprintf(text + used, sizeof text - used, "%s %.6f\n", candidate[i].work.method->name,
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
                Candidate *candidate, int count, bool *from_disk, Arena *arena) {
    char directory[CACHE_PATH];
    if (arena_guard(arena)) return -1;
    Buffer description = buffer_new(arena);
    describe(plan, step, weight != NULL, epilogue, candidate, count, &description);
    bool cached = option_int(OPTION_cache) && cache_directory(directory) == REASON_NONE;
    *from_disk = cached && load(directory, buffer_text(&description), candidate, count);
    if (*from_disk) return fastest_of(candidate, count);
    if (!measure(plan, step, weight, epilogue, candidate, count)) return -1;
    if (cached) save(directory, buffer_text(&description), candidate, count);
    return fastest_of(candidate, count);
}

int tune(const Plan *plan, const Step *step, const void *weight, const Launch *epilogue,
         Candidate *candidate, int count, bool *from_disk) {
    Arena *arena = arena_new();
    int best = !arena ? -1 : find(plan, step, weight, epilogue, candidate, count, from_disk, arena);
    arena_free(arena);
    return best;
}
