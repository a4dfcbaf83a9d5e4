/* Work in the background: one thread of the process takes one job after the other.
 *
 *     worker_add(&entry->job)    job.run(&job) is called on that thread, soon
 *     worker_drop(&entry->job)   and is not, or has returned
 *
 * A job lies in what it works for, and is dropped before that goes. */
#ifndef CARBIDE_BASE_WORKER_H
#define CARBIDE_BASE_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef const _Atomic bool Stop; /* set: whoever works has it end soon; NULL: nobody asks */
static inline bool is_stopped(Stop *stop) {
    return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

typedef enum JobState { JOB_IDLE, JOB_WAITS, JOB_RUNS } JobState;
typedef struct WorkerJob WorkerJob;
struct WorkerJob { /* zeroed but for run */
    WorkerJob *next;
    void (*run)(WorkerJob *); /* ends early when stop is set; a forked child runs it again */
    const void *owner;        /* for whom it is, besides others */
    int64_t number;           /* of those that were added */
    _Atomic JobState state;
    _Atomic bool stop;
};

/* False: there is no memory for a thread, and nothing has happened. */
bool worker_add(WorkerJob *job);
void worker_wait(const void *owner); /* until its jobs of now are idle, or gone; NULL: all jobs */
void worker_drop(WorkerJob *job);    /* until it is idle, and it does no more than it must */
/* The thread ends. What waits or runs is stopped. Also when the process exits. */
void worker_close(void);
/* For a job that is not idle: a forked child has no thread that does it, and starts its own. */
void worker_continue(void);
static inline bool job_is_idle(const WorkerJob *job) {
    return atomic_load_explicit(&job->state, memory_order_relaxed) == JOB_IDLE;
}

/* A thread that the program's signals are not for; 0, or an error number. */
int worker_thread(pthread_t *thread, void *(*serve)(void *));

#endif
