/* The rules of fusion (fusion.def, legal.c). Internal to sched/. */
#ifndef CARBIDE_SCHED_LEGAL_H
#define CARBIDE_SCHED_LEGAL_H

#include "sched/schedule.h"

typedef enum FusionAsked { FUSION_ONE, FUSION_PAIR } FusionAsked;

typedef struct Merge {
    Schedule *schedule;
    Group *a, *b;  /* FUSION_ONE: a alone */
    Domain domain; /* of both, found on the way */
    bool sinks;    /* the one's sums are sinks of the other's rows */
} Merge;

/* The first rule that does not hold; NULL: all do, and of a pair, a now computes what b did. */
const FusionRule *merge_refused(Merge *merge, FusionAsked asked);

#endif
