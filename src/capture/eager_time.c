/* What the ops of an entry take one by one, beside what the entry takes: for explain.
 *
 * In: the tensors of a call. Before each of its first runs an entry that is timed (options explain
 * and profile) has its trace run op by op on them, in place where there are such ops; of what they
 * write to on copies. Their results are dropped, the entry draws the random numbers that they drew,
 * and what has effects is not done twice: a program does the same with and without.
 *
 *     entry_times_begin -> entry->times      a call: entry_time_eager, the run, entry_ran
 *     entry_print_speed -> "0.004 ms at its best, eager 0.031 ms (7.8x); graph 0.003 ms: 1.8 GB/s"
 *
 * Beside eager stands the whole call, which the function runs in and is compared with its trace;
 * where that is not known, as of a part of a call, or of a program that calls four times, the
 * run. */
#include "capture/function.h"

#include "base/clock.h"
#include "base/memory.h"
#include "eager/tape.h"
#include "report/report.h"
#include "tensor/random.h"
#include <string.h>

enum { MOST_RUNS = 3, TRIES = 2 /* before each of them: the first meets ops that are new */ };
enum { MOST_MS = 1000 /* in all: beyond that no more begin */ };

struct EntryTimes {
    const bool *updates;   /* by op, before the clock starts: trace_find_updates */
    _Atomic int runs, ran; /* of the ops, up to MOST_RUNS; of the entry */
    _Atomic int64_t compiled, call, eager, spent; /* in nanoseconds; 0: not known */
};

static void keep_least(_Atomic int64_t *least, int64_t ns) {
    int64_t known = atomic_load(least);
    while ((!known || ns < known) && !atomic_compare_exchange_weak(least, &known, ns)) {
    }
}

void entry_times_begin(Entry *entry) {
    bool runs = entry->executable && !executable_plan(entry->executable)->device;
    if (!runs || entry->oracle || entry_has_effects(entry) || !explain_wants_times()) return;
    Arena *arena = entry->trace->arena;
    if (arena_guard(arena)) return; /* no memory: nobody hears of times */
    EntryTimes *times = arena_new_array(arena, EntryTimes, 1);
    times->updates = trace_find_updates(entry->trace, arena);
    entry->times = times;
    atomic_store(&entry->function->timed, true);
}

void entry_ran(const Entry *entry, int64_t start) {
    keep_least(&entry->times->compiled, clock_ns() - start);
    atomic_fetch_add(&entry->times->ran, 1);
}

static bool is_due(const EntryTimes *times) {
    return atomic_load(&times->spent) < (int64_t)MOST_MS * 1000000 &&
           atomic_load(&times->runs) < MOST_RUNS;
}

bool entry_times_calls(const Entry *entry) { return entry->times && !is_due(entry->times); }

void entry_called(const Entry *entry, int64_t start) {
    keep_least(&entry->times->call, clock_ns() - start);
}

/* ---- the ops --------------------------------------------------------------------------------- */

/* How many of the values that it writes to are copies now; leaves stay leaves. */
static int copy_written(const Entry *entry, Tensor **real) {
    for (int i = 0; i < entry->mutated_count; i++) {
        int v = entry->mutated[i];
        bool leaf = tape_gradient(real[v]);
        if (!(real[v] = tensor_shadow(real[v]))) return i;
        if (leaf && !(cb_requires_grad_)(tensor_out(real[v]), true)) return i + 1;
    }
    return entry->mutated_count;
}

static bool run_once(const Entry *entry, const int64_t *argument, Tensor **real) {
    const Trace *trace = entry->trace;
    EntryTimes *times = entry->times;
    RandomState own = random_take(0), *before = random_lend(&own);
    int64_t start = clock_ns();
    bool done = trace_run_in_place(trace, times->updates, argument, real);
    int64_t ns = clock_ns() - start;
    random_lend(before);
    if (!done) return false;
    keep_least(&times->eager, ns);
    atomic_fetch_add(&times->spent, ns);
    return true;
}

/* In a list of values of its own. */
static bool run_apart(const Entry *entry, Tensor *const *value, const int64_t *argument,
                      Tensor **real) {
    const Trace *trace = entry->trace;
    for (int v = 0; v < length(trace->value); v++)
        real[v] = trace->value[v].kind == VALUE_IS_RESULT ? NULL : value[v];
    int copies = copy_written(entry, real);
    bool done = copies == entry->mutated_count && run_once(entry, argument, real);
    for (int v = 0; v < length(trace->value); v++)
        if (trace->value[v].kind == VALUE_IS_RESULT) tensor_destroy(real[v]);
    for (int i = 0; i < copies; i++) tensor_destroy(real[entry->mutated[i]]);
    return done;
}

void entry_time_eager(const Entry *entry, Tensor *const *value, const int64_t *argument) {
    EntryTimes *times = entry->times;
    bool due = is_due(times) && cb_error_status() == CB_OK;
    if (!due || atomic_fetch_add(&times->runs, 1) >= MOST_RUNS) return;
    Tensor **real = memory_alloc(sizeof *real * (size_t)(length(entry->trace->value) + 1));
    if (!real) return;
    Tracer *tracer = tracer_set(NULL);
    cb_scope_open();
    bool done = true;
    for (int i = 0; i < TRIES && done; i++) done = run_apart(entry, value, argument, real);
    cb_scope_close();
    tracer_set(tracer);
    memory_free(real);
    if (done) return;
    cb_clear_error(); /* the entry meets the same, and says it */
    atomic_store(&times->runs, MOST_RUNS);
}

/* ---- for people ------------------------------------------------------------------------------ */

double entry_ms(const Entry *entry, double *eager) {
    *eager = entry->times ? (double)atomic_load(&entry->times->eager) * 1e-6 : 0;
    return entry->times ? (double)atomic_load(&entry->times->compiled) * 1e-6 : 0;
}

bool entry_print_speed(const Entry *entry, const char *between, Buffer *out) {
    double eager, ms = entry_ms(entry, &eager);
    if (ms <= 0) return false;
    const Plan *plan = executable_plan(entry->executable);
    RoofTimes roof = report_roof(entry->executable);
    double call = (double)atomic_load(&entry->times->call) * 1e-6, whole = call > 0 ? call : ms;
    put_ms(out, whole);
    /* Code and memory of the first run are new, as the ops' are not, which ran before. */
    put(out, atomic_load(&entry->times->ran) > 1 ? " ms at its best" : " ms in its only run, cold");
    if (eager > 0) {
        put(out, ", eager ");
        put_ms(out, eager);
        putf(out, " ms (%.1fx%s)", eager / whole, call > eager ? ": slower" : "");
    }
    put(out, between);
    if (call > 0) put(out, "graph "), put_ms(out, ms), put(out, " ms: ");
    putf(out, "%.1f GB/s", (double)executable_moves(entry->executable) / ms * 1e-6);
    if (plan->flops) putf(out, ", %.0f GFLOP/s", (double)plan->flops / ms * 1e-6);
    double share = roof.compared > 0 ? 100 * roof.least / roof.compared : 0; /* no step has more */
    if (roof.compared > 0)
        putf(out, ", %.0f%%%s of the roofline", share, share < 99.5 ? "" : " or more");
    if (roof.cached > 0)
        putf(out, ", %.0f%% in cache", 100 * roof.cached / report_ms(entry->executable));
    return true;
}
