/* A provider that computes every task by its definition, one element after the other. What it was
 * asked for last stands in CARBIDE_TEST_TASK: "matmul f32 scale bias f32 residual relu"; it refuses
 * what CARBIDE_TEST_REFUSED names: "create", "pack", "open" (unpack), "run". */
#define _GNU_SOURCE
#include "method/provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH = 100 };

typedef struct PlainWork {
    ProviderTask task;
    size_t bytes; /* that the weight lies in */
} PlainWork;

static bool refuses(const char *what) {
    const char *text = getenv("CARBIDE_TEST_REFUSED");
    return text && strstr(text, what);
}

/* ---- elements ---------------------------------------------------------------------------- */

static float load(const void *from, cb_dtype dtype, int64_t at) {
    uint32_t bits;
    float value;
    if (dtype == CB_F32) return ((const float *)from)[at];
    bits = (uint32_t)((const uint16_t *)from)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(void *to, cb_dtype dtype, int64_t at, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == CB_F32)
        ((float *)to)[at] = value;
    else /* to the nearest, the even one of two */
        ((uint16_t *)to)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- one element of the result ----------------------------------------------------------- */

static float product(const ProviderTask *t, const void *x, const void *weight, const int64_t *at) {
    int64_t of_x = 0, of_weight = 0;
    int rank = t->out.rank;
    float sum = 0;
    for (int d = 0; d < rank - 2; d++) {
        if (t->x.size[d] > 1) of_x += at[d] * t->x.stride[d];
        if (t->weight.size[d] > 1) of_weight += at[d] * t->weight.stride[d];
    }
    of_x += at[rank - 2] * t->x.stride[rank - 2];
    of_weight += at[rank - 1] * t->weight.stride[rank - 1];
    for (int64_t k = 0; k < t->x.size[rank - 1]; k++)
        sum += load(x, t->dtype, of_x + k * t->x.stride[rank - 1]) *
               load(weight, t->dtype, of_weight + k * t->weight.stride[rank - 2]);
    return sum;
}

static float window(const ProviderTask *t, const void *x, const void *weight, const int64_t *at) {
    const ProviderTensor *w = &t->weight;
    int64_t inner = w->size[1], group = at[1] / (t->out.size[1] / t->groups), count = inner;
    float sum = 0;
    for (int d = 2; d < w->rank; d++) count *= w->size[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t left = i, of_x = at[0] * t->x.stride[0], of_weight = at[1] * w->stride[0];
        bool inside = true;
        for (int d = w->rank - 1; d >= 2; d--) {
            int64_t k = left % w->size[d];
            int64_t place = at[d] * t->stride[d - 2] + k * t->dilation[d - 2] - t->padding[d - 2];
            left /= w->size[d];
            inside = inside && place >= 0 && place < t->x.size[d];
            of_x += place * t->x.stride[d], of_weight += k * w->stride[d];
        }
        of_x += (group * inner + left) * t->x.stride[1], of_weight += left * w->stride[1];
        if (inside) sum += load(x, t->dtype, of_x) * load(weight, t->dtype, of_weight);
    }
    return sum;
}

static float end(const ProviderTask *t, const ProviderOperands *o, int64_t channel, int64_t to,
                 float value) {
    if (t->scale) value *= load(o->scale, CB_F32, channel);
    if (t->bias) value += load(o->bias, t->bias_dtype, channel);
    if (t->residual) value += load(o->residual, t->dtype, to);
    return t->relu && value < 0 ? 0 : value;
}

/* ---- the provider ------------------------------------------------------------------------ */

static bool run(const void *work, const ProviderOperands *o) {
    if (refuses("run")) return false;
    const ProviderTask *t = &((const PlainWork *)work)->task;
    const void *weight = t->pack ? o->packed : o->weight;
    bool matmul = t->kind == PROVIDER_MATMUL;
    int64_t count = 1;
    for (int d = 0; d < t->out.rank; d++) count *= t->out.size[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t at[PROVIDER_RANK], left = i, to = 0;
        for (int d = t->out.rank - 1; d >= 0; d--) {
            at[d] = left % t->out.size[d];
            left /= t->out.size[d];
            to += at[d] * t->out.stride[d];
        }
        float sum = (matmul ? product : window)(t, o->x, weight, at);
        int64_t channel = at[matmul ? t->out.rank - 1 : 1];
        store(o->out, t->dtype, to, end(t, o, channel, to, sum));
    }
    memset(o->scratch, 1, SCRATCH);
    return true;
}

static const char *name_of(cb_dtype dtype) { return dtype == CB_F32 ? "f32" : "bf16"; }

static void tell(const ProviderTask *t) {
    char text[128];
    snprintf(text, sizeof text, "%s %s%s%s%s%s%s%s", t->kind == PROVIDER_MATMUL ? "matmul" : "conv",
             name_of(t->dtype), t->reduced ? " reduced" : "", t->scale ? " scale" : "",
             t->bias ? " bias " : "", t->bias ? name_of(t->bias_dtype) : "",
             t->residual ? " residual" : "", t->relu ? " relu" : "");
    setenv("CARBIDE_TEST_TASK", text, 1);
}

static void *create(const ProviderTask *task, ProviderSizes *sizes, char *why, size_t why_bytes) {
    PlainWork *work = refuses("create") ? NULL : malloc(sizeof *work);
    snprintf(why, why_bytes, "it is told to refuse");
    if (!work) return NULL;
    int64_t last = 0;
    for (int d = 0; d < task->weight.rank; d++)
        last += (task->weight.size[d] - 1) * task->weight.stride[d];
    *work = (PlainWork){*task, (size_t)(last + 1) * (task->dtype == CB_F32 ? 4 : 2)};
    *sizes = (ProviderSizes){
        .packed = task->pack ? work->bytes : 0, .scratch = SCRATCH, .method = "by definition"};
    tell(task);
    return work;
}

static bool pack(const void *work, const void *weight, void *packed) {
    memcpy(packed, weight, ((const PlainWork *)work)->bytes);
    return !refuses("pack");
}

static bool unpack(const void *work, const void *packed, void *weight) {
    memcpy(weight, packed, ((const PlainWork *)work)->bytes);
    return !refuses("open");
}

static const Provider provider = {.interface = PROVIDER_INTERFACE,
                                  .task_bytes = sizeof(ProviderTask),
                                  .name = "Plain",
                                  .version = "1",
                                  .library = "none",
                                  .create = create,
                                  .pack = pack,
                                  .unpack = unpack,
                                  .run = run,
                                  .free = free};

__attribute__((visibility("default"))) const Provider *carbide_provider(const char **why);
const Provider *carbide_provider(const char **why) {
    (void)why;
    return &provider;
}
