/* A range of work over OpenMP threads.
 *
 * In: a count of items, a grain, a body. Out: the body ran once for every item.
 * Every thread takes one run of whole grains, the same one each time, so that what it touched in
 * the last kernel may still be in its cache. After fork the child stays on one thread: the OpenMP
 * library's threads did not come along, and waiting for them would hang. */
#include "base/parallel.h"
#include "base/error.h"
#include "base/option.h"
#include <pthread.h>
#include <stdatomic.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { MOST_THREADS = 1024 };

#ifdef _OPENMP
static atomic_bool forked;

static void after_fork(void) { atomic_store(&forked, true); }

static void watch_fork(void) { pthread_atfork(NULL, NULL, after_fork); }

int parallel_threads(void) {
    if (omp_in_parallel() || atomic_load_explicit(&forked, memory_order_relaxed)) return 1;
    int64_t wanted = option_int(OPTION_threads);
    if (wanted <= 0) wanted = omp_get_max_threads();
    return (int)(wanted < MOST_THREADS ? wanted : MOST_THREADS);
}

void parallel_for(int64_t count, int64_t grain, ParallelBody *body, void *user) {
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    int64_t grains = (count - 1) / grain + 1;
    int64_t threads = grains > 1 ? parallel_threads() : 1;
    if (threads > grains) threads = grains;
    if (threads <= 1) {
        body(user, 0, count);
        return;
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_fork);
#pragma omp parallel num_threads((int)threads)
    {
        int64_t team = omp_get_num_threads(), member = omp_get_thread_num();
        int64_t share = grains / team, rest = grains % team;
        int64_t low = member * share + (member < rest ? member : rest);
        int64_t high = low + share + (member < rest);
        low *= grain;
        high = high >= grains ? count : high * grain;
        if (low < high) body(user, low, high);
    }
}
#else
int parallel_threads(void) { return 1; }

void parallel_for(int64_t count, int64_t grain, ParallelBody *body, void *user) {
    (void)grain;
    if (count > 0) body(user, 0, count);
}
#endif

void cb_set_threads(int threads) {
    char text[16];
    snprintf(text, sizeof text, "%d", threads > 0 ? threads : 0);
    cb_set_option("threads", text);
}

int cb_threads(void) { return parallel_threads(); }
