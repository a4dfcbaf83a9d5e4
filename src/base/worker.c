/* The thread that works in the background (worker.h).
 *
 * In: jobs, in the order of worker_add. Out: calls of their run. The first job starts the thread,
 * and so does the next one after worker_close. A forked child has the list and not the thread: what
 * the parent's thread was at is put back in front, and is done by a thread of the child's own, once
 * somebody in the child adds a job, waits for one, or calls what one is for.
 *
 *     add a, add b:  a runs | b waits  --fork-->  the child: a waits, b waits, and no thread */
#include "base/worker.h"

#include "base/error.h"
#include "base/lock.h"

#include <signal.h>
#include <stdlib.h>

/* Under LOCK_worker, but for reading process. */
static struct {
    WorkerJob *first, *running;
    int64_t added;
    pthread_t thread;
    _Atomic uint32_t process; /* that the thread is of; 0: there is none */
    bool ends;                /* somebody has it end, and waits for that */
} worker;

int worker_thread(pthread_t *thread, void *(*serve)(void *)) {
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void finish(WorkerJob *job) {
    worker.running = NULL;
    atomic_store(&job->state, JOB_IDLE);
    lock_wake(LOCK_worker);
}

static void run(WorkerJob *job) {
    worker.running = job;
    atomic_store(&job->state, JOB_RUNS);
    lock_give(LOCK_worker);
    job->run(job);
    lock_take(LOCK_worker);
    finish(job);
}

static void *serve(void *user) {
    (void)user;
    lock_take(LOCK_worker);
    while (worker.first || !worker.ends) {
        WorkerJob *job = worker.first;
        if (job) {
            worker.first = job->next;
            run(job);
        } else {
            lock_wait(LOCK_worker);
        }
    }
    lock_give(LOCK_worker);
    cb_clear_error();
    return NULL;
}

/* In a forked child: the parent's thread is not here. */
static void leave_parent(void) {
    uint32_t process = atomic_load(&worker.process);
    if (!process || process == process_number()) return;
    WorkerJob *job = worker.running;
    if (job) {
        atomic_store(&job->state, JOB_WAITS);
        job->next = worker.first;
        worker.first = job;
    }
    worker.running = NULL;
    worker.ends = false;
    atomic_store(&worker.process, 0);
}

static bool start(void) {
    static bool registered;
    leave_parent();
    while (worker.ends) lock_wait(LOCK_worker);
    if (atomic_load(&worker.process)) return true;
    if (!registered) registered = atexit(worker_close) == 0;
    if (worker_thread(&worker.thread, serve)) return false;
    atomic_store(&worker.process, process_number());
    return true;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static void unlink_job(WorkerJob *job) {
    WorkerJob **at = &worker.first;
    while (*at && *at != job) at = &(*at)->next;
    if (*at) *at = job->next;
}

bool worker_add(WorkerJob *job) {
    lock_take(LOCK_worker);
    bool started = start();
    if (started) {
        WorkerJob **end = &worker.first;
        while (*end) end = &(*end)->next;
        *end = job;
        job->next = NULL;
        job->number = ++worker.added;
        atomic_store(&job->state, JOB_WAITS);
        lock_wake(LOCK_worker);
    }
    lock_give(LOCK_worker);
    return started;
}

static bool is_of(const WorkerJob *job, const void *owner, int64_t last) {
    return job && (!owner || job->owner == owner) && job->number <= last;
}

/* The first one that waits, or runs. */
static WorkerJob *find_job(const void *owner, int64_t last) {
    if (is_of(worker.running, owner, last)) return worker.running;
    WorkerJob *job = worker.first;
    while (job && !is_of(job, owner, last)) job = job->next;
    return job;
}

/* It looks at jobs under the lock alone: what they lie in may be freed as soon as they are idle. */
void worker_wait(const void *owner) {
    lock_take(LOCK_worker);
    leave_parent();
    int64_t last = worker.added;
    bool started = find_job(owner, last) && start();
    for (WorkerJob *job; (job = find_job(owner, last));)
        if (started || worker.running) {
            lock_wait(LOCK_worker);
        } else { /* a child without memory for a thread */
            unlink_job(job);
            run(job);
        }
    lock_give(LOCK_worker);
}

void worker_drop(WorkerJob *job) {
    lock_take(LOCK_worker);
    leave_parent();
    if (atomic_load(&job->state) == JOB_WAITS) {
        unlink_job(job);
        atomic_store(&job->state, JOB_IDLE);
    }
    atomic_store(&job->stop, true);
    while (!job_is_idle(job)) lock_wait(LOCK_worker);
    lock_give(LOCK_worker);
}

void worker_continue(void) {
    if (atomic_load_explicit(&worker.process, memory_order_relaxed) == process_number()) return;
    lock_take(LOCK_worker);
    (void)start(); /* or at the next call */
    lock_give(LOCK_worker);
}

/* What waits runs, and sees that it is stopped. */
void worker_close(void) {
    lock_take(LOCK_worker);
    leave_parent();
    while (worker.ends) lock_wait(LOCK_worker);
    if (atomic_load(&worker.process)) {
        worker.ends = true;
        for (WorkerJob *job = worker.first; job; job = job->next) atomic_store(&job->stop, true);
        if (worker.running) atomic_store(&worker.running->stop, true);
        lock_wake(LOCK_worker);
        lock_give(LOCK_worker);
        pthread_join(worker.thread, NULL);
        lock_take(LOCK_worker);
        worker.ends = false;
        atomic_store(&worker.process, 0);
        lock_wake(LOCK_worker);
    }
    lock_give(LOCK_worker);
}
