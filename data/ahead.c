/* Batches made ahead: a ring of slots, filled by threads, emptied in order.
 *
 *     slot     0    1    2    3        4 slots, 2 threads
 *     batch    8    9    6    7        6 is given out, 7 is there, 8 and 9 are being made
 *
 * A slot is of batch n as long as given <= n < given + slots, and who has taken n writes to it
 * alone until it is done. Another seed, or a jump, waits for what is being made and starts anew. */
#include "ahead.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct BatchSlot {
    void *batch;
    int64_t done; /* the number of the batch that it has, -1: none */
    BatchError error;
} BatchSlot;

struct Ahead {
    BatchMaker *make;
    void *user;
    pthread_mutex_t lock; /* of all that follows but the bytes of batches */
    pthread_cond_t moved; /* something of it has changed */
    uint64_t seed;
    int64_t given,
        taken; /* the batch that was asked for last, and the next one to make; -1: none */
    int busy;  /* threads that make a batch */
    bool stop;
    pid_t process; /* in a forked child there are no threads */
    int slots, threads;
    BatchSlot *slot;
    pthread_t thread[];
};

void batch_refuse(BatchError *error, cb_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    error->status = status;
}

/* ---- the threads ---------------------------------------------------------------------------- */

static bool may_take(const Ahead *ahead) {
    return ahead->given >= 0 && ahead->taken < ahead->given + ahead->slots;
}

/* Makes the next batch; the lock is held before and behind. */
static void make_next(Ahead *ahead) {
    int64_t n = ahead->taken++;
    uint64_t seed = ahead->seed;
    BatchSlot *slot = &ahead->slot[n % ahead->slots];
    slot->done = -1;
    ahead->busy++;
    pthread_mutex_unlock(&ahead->lock);
    slot->error = (BatchError){CB_OK, ""};
    ahead->make(ahead->user, seed, n, slot->batch, &slot->error);
    pthread_mutex_lock(&ahead->lock);
    slot->done = n;
    ahead->busy--;
    pthread_cond_broadcast(&ahead->moved);
}

static void *work(void *user) {
    Ahead *ahead = user;
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->stop)
        if (may_take(ahead))
            make_next(ahead);
        else
            pthread_cond_wait(&ahead->moved, &ahead->lock);
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

/* Signals stay with the program's own threads: Ctrl-C wakes who waits for a read of its. */
static bool start(Ahead *ahead, int threads) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (ahead->threads < threads &&
           pthread_create(&ahead->thread[ahead->threads], NULL, work, ahead) == 0)
        ahead->threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ahead->threads == threads;
}

Ahead *ahead_new(BatchMaker *make, void *user, size_t bytes, int threads) {
    Ahead *ahead = calloc(1, sizeof *ahead + (size_t)threads * sizeof *ahead->thread);
    if (!ahead) return data_refuse(CB_ERR_MEMORY, "out of memory for batches"), NULL;
    ahead->make = make, ahead->user = user;
    ahead->given = ahead->taken = -1;
    ahead->process = getpid();
    ahead->slots = threads ? 2 * threads + 1 : 1; /* one is the reader's */
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->moved, NULL);
    ahead->slot = calloc((size_t)ahead->slots, sizeof *ahead->slot);
    bool made = ahead->slot != NULL;
    for (int i = 0; made && i < ahead->slots; i++) {
        ahead->slot[i].done = -1;
        made = (ahead->slot[i].batch = malloc(bytes + 1)) != NULL;
    }
    if (made && start(ahead, threads)) return ahead;
    data_refuse(CB_ERR_MEMORY,
                made ? "no %d threads can be started" : "out of memory for batches of %d threads",
                threads);
    ahead_free(ahead);
    return NULL;
}

void ahead_free(Ahead *ahead) {
    if (!ahead) return;
    if (ahead->process == getpid()) {
        pthread_mutex_lock(&ahead->lock);
        ahead->stop = true;
        pthread_cond_broadcast(&ahead->moved);
        pthread_mutex_unlock(&ahead->lock);
        for (int i = 0; i < ahead->threads; i++) pthread_join(ahead->thread[i], NULL);
        pthread_cond_destroy(&ahead->moved);
        pthread_mutex_destroy(&ahead->lock);
    }
    for (int i = 0; ahead->slot && i < ahead->slots; i++) free(ahead->slot[i].batch);
    free(ahead->slot);
    free(ahead);
}

/* ---- the reader ----------------------------------------------------------------------------- */

/* From now on batches n, n + 1, ... of this seed. */
static void begin(Ahead *ahead, uint64_t seed, int64_t n) {
    ahead->given = -1; /* nobody takes another one */
    while (ahead->busy) pthread_cond_wait(&ahead->moved, &ahead->lock);
    for (int i = 0; i < ahead->slots; i++) ahead->slot[i].done = -1;
    ahead->seed = seed;
    ahead->given = ahead->taken = n;
}

const void *ahead_get(Ahead *ahead, uint64_t seed, int64_t n) {
    if (ahead->process != getpid())
        return data_refuse(CB_ERR_ARGUMENT,
                           "the threads of this reader are in the process that forked"),
               NULL;
    pthread_mutex_lock(&ahead->lock);
    bool follows =
        ahead->given >= 0 && seed == ahead->seed && n >= ahead->given && n <= ahead->given + 1;
    if (follows)
        ahead->given = n;
    else
        begin(ahead, seed, n);
    pthread_cond_broadcast(&ahead->moved);
    BatchSlot *slot = &ahead->slot[n % ahead->slots];
    while (slot->done != n)
        if (ahead->threads == 0)
            make_next(ahead);
        else
            pthread_cond_wait(&ahead->moved, &ahead->lock);
    bool made = slot->error.status == CB_OK;
    if (!made) ahead->given = -1; /* whoever asks again has it made again */
    pthread_mutex_unlock(&ahead->lock);
    if (made) return slot->batch;
    return data_refuse(slot->error.status, "%s", slot->error.text), NULL;
}
