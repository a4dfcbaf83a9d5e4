/* A run's values as progress.c collects and curve.c draws them. */
#ifndef CARBIDE_DATA_PROGRESS_H
#define CARBIDE_DATA_PROGRESS_H

#include "files.h"

enum { MOST_SERIES = 4 }; /* the loss, and what cb_progress_value names */

typedef struct ProgressPoint {
    int64_t step;
    double value; /* may be no number */
    int series;
} ProgressPoint;

struct cb_progress {
    int64_t first, steps, samples;
    char unit[32], name[MOST_SERIES][32];
    int names;
    bool live;            /* stderr is a terminal */
    int log;              /* -1: none */
    double begin, shown;  /* shown: seconds since begin, -1: never */
    int64_t timed;        /* the first step that was told, ... */
    double timed_at;      /* ... and when */
    ProgressPoint *point;
    size_t count, capacity;
    char path[]; /* of the log */
};

#endif
