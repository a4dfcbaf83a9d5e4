/* One live line of a training run, on a terminal alone:
 *
 *     step 210/480  loss 0.0831  lr 3.6e-03  41200 samples/s  0:07 left */
#ifndef CARBIDE_EXAMPLES_PROGRESS_H
#define CARBIDE_EXAMPLES_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

typedef struct Progress {
    struct timespec begin;
    double shown; /* seconds since then */
    bool live;
} Progress;

static inline double progress_seconds(const Progress *progress) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - progress->begin.tv_sec) +
           1e-9 * (double)(now.tv_nsec - progress->begin.tv_nsec);
}

static inline Progress progress_begin(void) {
    Progress progress = {.shown = -1, .live = isatty(STDERR_FILENO)};
    clock_gettime(CLOCK_MONOTONIC, &progress.begin);
    return progress;
}

/* Is the line due? Ten times a second; asked before the loss is read, which waits for it. */
static inline bool progress_due(const Progress *progress) {
    return progress->live && progress_seconds(progress) >= progress->shown + 0.1;
}

/* After `step` of `steps`, with `samples` in each. */
static inline void progress_show(Progress *progress, int step, int steps, int samples, double loss,
                                 double lr) {
    double seconds = progress->shown = progress_seconds(progress);
    double left = seconds * (steps - step) / step;
    fprintf(stderr, "\r\033[Kstep %d/%d  loss %.4f  lr %.1e  %.0f samples/s  %d:%02d left", step,
            steps, loss, lr, (double)samples * step / seconds, (int)left / 60, (int)left % 60);
}

static inline void progress_end(const Progress *progress) {
    if (progress->live) fprintf(stderr, "\r\033[K");
}
#endif
