/* A task as providers are told of it. */
#ifndef CARBIDE_METHOD_OFFER_H
#define CARBIDE_METHOD_OFFER_H

#include "method/provider.h"
#include "task/task.h"

typedef struct Offer {
    ProviderTask task;
    int64_t x_offset, weight_offset, weight_span; /* elements; span: that the weight lies in */
} Offer;

/* Without the epilogue. False: no provider has such tasks (integers, f64, f16, sums in f32 of
 * halves, nothing to sum). packs: its weight never changes. */
bool offer_of(const Task *task, ProviderKind kind, bool packs, Offer *out);

#endif
