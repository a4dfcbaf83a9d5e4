/* What the machine can do, and how near a step comes: the roofline.
 *
 *     a copy of 64 MB: 25 GB/s; a product of 1024 x 1024: 300 GFLOP/s
 *     a step that moves 160 MB and took 8 ms: it needs 6.4 ms at least -> 80 %
 *     a step that moves 1 MB: the caches may hold it, which are faster by who knows how much */
#include "report/page.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "cpu/gemm.h"
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum {
    COPY_BYTES = 1 << 26,
    GRAIN = 1 << 16,
    SIZE = 1024,
    TRIES = 4,
    CORE_CACHE = 1 << 20 /* of a core whose system does not tell */
};

static struct { _Atomic double bytes, flops; /* 0: not measured yet */ } known;

typedef struct Copied {
    char *to;
    const char *from;
} Copied;

static void copy_part(void *user, int64_t low, int64_t high) {
    const Copied *copy = user;
    memcpy(copy->to + low, copy->from + low, (size_t)(high - low));
}

/* The shortest of some tries; the first one meets memory that nobody has touched. */
static double copy_ms(char *block) {
    Copied copy = {block, block + COPY_BYTES};
    double least = 0;
    for (int i = 0; i < TRIES; i++) {
        double start = clock_ms();
        parallel_for(COPY_BYTES, GRAIN, copy_part, &copy);
        double ms = clock_ms() - start;
        if (i == 1 || (i > 1 && ms < least)) least = ms;
    }
    return least;
}

/* In the same block: three matrices of zeros. */
static double product_ms(char *block) {
    MatmulTask task = {.dtype = CB_F32, .batch = 1, .m = SIZE, .n = SIZE, .k = SIZE};
    task.a_m = task.b_k = SIZE;
    task.a_k = task.b_n = 1;
    size_t bytes = sizeof(float) * SIZE * SIZE;
    Operands operands = {.in = {block, block + bytes}, .out = block + 2 * bytes};
    double least = 0;
    for (int i = 0; i < TRIES; i++) {
        double start = clock_ms();
        if (!gemm_run(&task, GEMM_PANELS, &operands)) return 0;
        double ms = clock_ms() - start;
        if (i == 1 || (i > 1 && ms < least)) least = ms;
    }
    return least;
}

static void measure(void) {
    char *block = memory_zalloc(2 * (size_t)COPY_BYTES);
    if (!block) return;
    double copy = copy_ms(block), product = product_ms(block);
    memory_free(block);
    if (copy > 0) atomic_store(&known.bytes, 2.0 * COPY_BYTES / copy);
    if (product > 0) atomic_store(&known.flops, 2.0 * SIZE * SIZE * SIZE / product);
}

/* Of the level that all cores share, if the copy does not fit there: else it shows what that does,
 * and what is faster are the caches of the cores. */
static double cache_bytes(void) {
    int64_t shared = 0, own = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    shared = sysconf(_SC_LEVEL3_CACHE_SIZE), own = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    double cores = (double)(own > 0 ? own : CORE_CACHE) * parallel_threads();
    return shared > cores && shared < 2 * COPY_BYTES ? (double)shared : cores;
}

Roof roof_now(void) {
    if (atomic_load(&known.bytes) == 0) measure();
    return (Roof){atomic_load(&known.bytes), atomic_load(&known.flops), cache_bytes()};
}

/* Whether a step reads and writes an element of each buffer at each point, and more than caches
 * hold: then what it moves is known. */
static bool streams(const Plan *plan, const Step *step) {
    if (step->kind != STEP_KERNEL || step_kernels(step) > 1) return false;
    const Kernel *kernel = plan->kernel[step->kernel];
    bool all = kernel->bytes >= 2 * COPY_BYTES;
    for (int i = 0; i < length(kernel->buffer); i++)
        all &= kernel->buffer[i].numel == kernel->outer_size * kernel->inner_size;
    for (int i = 0; i < length(kernel->expr); i++)
        all &= kernel->expr[i]->op != EX_load || kernel->expr[i]->input_count == 1;
    return all;
}

/* The copy may have met a busy machine: what a step came to, the machine can do. */
static void raise_roof(const Executable *executable) {
    const Plan *plan = executable_plan(executable);
    for (int i = 0; i < length(plan->step); i++) {
        double ms = executable_step_ms(executable, i);
        if (ms <= 0 || plan->device || !streams(plan, &plan->step[i])) continue;
        double rate = (double)step_bytes(plan, &plan->step[i]) / ms;
        if (rate > atomic_load(&known.bytes)) atomic_store(&known.bytes, rate);
    }
}

static bool fits(Roof roof, const Plan *plan, const Step *step) {
    return (double)step_bytes(plan, step) <= roof.cache;
}

double roof_share(Roof roof, const Executable *executable, int number) {
    const Plan *plan = executable_plan(executable);
    const Step *step = &plan->step[number];
    double ms = executable_step_ms(executable, number), flops = (double)step_flops(step);
    bool other = flops > 0 && (plan->value[step->in[0]].dtype != CB_F32 || plan->ambient.reduced);
    if (ms <= 0 || roof.bytes <= 0 || roof.flops <= 0 || other || plan->device) return 0;
    double moving = fits(roof, plan, step) ? 0 : (double)step_bytes(plan, step) / roof.bytes;
    double computing = flops / roof.flops;
    return 100 * (moving > computing ? moving : computing) / ms;
}

bool roof_is_cached(Roof roof, const Executable *executable, int number) {
    const Plan *plan = executable_plan(executable);
    const Step *step = &plan->step[number];
    bool timed = executable_step_ms(executable, number) > 0 && roof.bytes > 0 && !plan->device;
    return timed && !step_flops(step) && fits(roof, plan, step);
}

RoofTimes report_roof(const Executable *executable) {
    RoofTimes times = {0};
    if (report_ms(executable) <= 0) return times;
    (void)roof_now();
    raise_roof(executable);
    Roof roof = roof_now();
    for (int i = 0; i < length(executable_plan(executable)->step); i++) {
        double share = roof_share(roof, executable, i), ms = executable_step_ms(executable, i);
        if (roof_is_cached(roof, executable, i)) times.cached += ms;
        if (share <= 0) continue;
        times.compared += ms;
        times.least += ms * (share < 100 ? share / 100 : 1); /* more: its data lies in cache */
    }
    return times;
}
