/* A range of work over OpenMP threads.
 *
 * In: a count of items, a grain, a body. Out: the body ran once for every item.
 * Every thread takes one run of whole grains, the same one each time, so that what it touched in
 * the last kernel may still be in its cache, and takes subnormal numbers as the caller does. After
 * fork the child stays on one thread: the OpenMP library's threads did not come along, and waiting
 * for them would hang.
 *
 * Where other programs have the processors, a thread of the team begins when the system lets it,
 * milliseconds late, and those that are done wait for it. A caller whose team was late works alone
 * for a time that is some times as long, so that waiting is a small part of the whole. */
#include "base/parallel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/option.h"
#include "base/subnormal.h"
#include <pthread.h>
#include <stdatomic.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { MOST_THREADS = 1024 };
enum { ALONE_TIMES = 10 };        /* as long as it has waited */
static const double late_ms = .3; /* who begins later than this has waited for a processor */

static _Thread_local double alone_until; /* clock_ms */
static _Thread_local bool inside; /* of a share that is not OpenMP's: loops in it are not split */

/* ---- a team ---------------------------------------------------------------------------------- */

typedef struct ParallelWork {
    ParallelBody *body;
    void *user;
    int64_t count, grain, grains;
    unsigned subnormals;   /* the caller's bits */
    double begun;          /* clock_ms */
    _Atomic double latest; /* how much later a member began, when that was late; or 0 */
} ParallelWork;

static void note_late(ParallelWork *work) {
    double late = clock_ms() - work->begun, latest = atomic_load(&work->latest);
    while (late > late_ms && late > latest)
        if (atomic_compare_exchange_weak(&work->latest, &latest, late)) return;
}

/* The run of whole grains of one member of a team. */
static void run_share(ParallelWork *work, int64_t member, int64_t team) {
    note_late(work);
    int64_t share = work->grains / team, rest = work->grains % team;
    int64_t low = member * share + (member < rest ? member : rest);
    int64_t high = low + share + (member < rest);
    low *= work->grain;
    high = high >= work->grains ? work->count : high * work->grain;
    unsigned before = subnormals_bits(); /* other programs' teams have the same threads */
    subnormals_set(work->subnormals);
    work->body(work->user, low, high); /* no team has more members than there are grains */
    subnormals_set(before);
}

#if defined(__SANITIZE_THREAD__)

/* ThreadSanitizer does not see how OpenMP's threads wait for each other; it knows pthreads. */
typedef struct Member {
    ParallelWork *work;
    int64_t number, team;
    pthread_t thread;
} Member;

static bool may_split(void) { return true; }

static int default_threads(void) { return 4; }

static void *run_member(void *user) {
    Member *member = user;
    inside = true;
    run_share(member->work, member->number, member->team);
    return NULL;
}

static void run_team(ParallelWork *work, int threads) {
    Member member[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        member[i] = (Member){.work = work, .number = i, .team = threads};
        int status = pthread_create(&member[i].thread, NULL, run_member, &member[i]);
        check(status == 0, "pthread_create: %d", status);
    }
    for (int i = 0; i < threads; i++) pthread_join(member[i].thread, NULL);
}

#elif defined(_OPENMP)

static _Atomic uint32_t threads_of; /* the process that OpenMP has threads in; 0: none yet */

static bool may_split(void) {
    uint32_t process = atomic_load_explicit(&threads_of, memory_order_relaxed);
    return !omp_in_parallel() && (!process || process == process_number());
}

static int default_threads(void) { return omp_get_max_threads(); }

static void run_team(ParallelWork *work, int threads) {
    if (!atomic_load_explicit(&threads_of, memory_order_relaxed))
        atomic_store(&threads_of, process_number());
#pragma omp parallel num_threads(threads)
    run_share(work, omp_get_thread_num(), omp_get_num_threads());
}

#else

static bool may_split(void) { return false; }

static int default_threads(void) { return 1; }

static void run_team(ParallelWork *work, int threads) {
    for (int i = 0; i < threads; i++) run_share(work, i, threads);
}

#endif

int parallel_threads(void) {
    if (inside || !may_split()) return 1;
    int64_t wanted = option_int(OPTION_threads);
    if (wanted <= 0) wanted = default_threads();
    return (int)(wanted < MOST_THREADS ? wanted : MOST_THREADS);
}

void parallel_for(int64_t count, int64_t grain, ParallelBody *body, void *user) {
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    ParallelWork work = {body, user, count, grain, (count - 1) / grain + 1, 0, 0, 0};
    int64_t threads = work.grains > 1 ? parallel_threads() : 1;
    if (threads > work.grains) threads = work.grains;
    if (threads > 1) work.begun = clock_ms();
    if (threads <= 1) {
        body(user, 0, count);
    } else if (work.begun < alone_until) {
        inside = true;
        body(user, 0, count);
        inside = false;
    } else {
        work.subnormals = subnormals_bits();
        run_team(&work, (int)threads);
        if (work.latest > 0) alone_until = clock_ms() + ALONE_TIMES * work.latest;
    }
}

void cb_set_threads(int threads) {
    char text[16];
    if (threads < 0) {
        fail(CB_ERR_ARGUMENT, "set_threads: %d is no number of threads (0: every core)", threads);
        return;
    }
    snprintf(text, sizeof text, "%d", threads);
    cb_set_option("threads", text);
}

int cb_threads(void) { return parallel_threads(); }
