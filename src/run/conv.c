/* ConvolutionStep -> the result: what is common to the methods, and the choice between them.
 *
 * f16 and bf16 are widened to f32 as a whole before, and narrowed piece by piece. Whatever the
 * method and the number of threads, an element is one sum in one order. */
#include "run/conv.h"
#include "base/parallel.h"
#include "run/conv_internal.h"
#include <string.h>

/* ---- half precision ----------------------------------------------------------------------- */

typedef struct Widen {
    const Convolution *c;
    const uint16_t *from;
    float *to;
    int64_t inner, inner_stride, size[4], stride[4]; /* inner is the dim of the smallest stride */
} Widen;

static void widen_rows(void *user, int64_t low, int64_t high) {
    const Widen *w = user;
    void (*widen)(const uint16_t *, float *, int64_t) =
        w->c->step.dtype == CB_F16 ? w->c->kernels->widen_f16 : w->c->kernels->widen_bf16;
    for (int64_t row = low; row < high; row++) {
        int64_t from = 0, rest = row;
        for (int d = 3; d >= 0; d--) {
            from += rest % w->size[d] * w->stride[d];
            rest /= w->size[d];
        }
        float *to = w->to + row * w->inner;
        if (w->inner_stride == 1)
            widen(w->from + from, to, w->inner);
        else
            for (int64_t i = 0; i < w->inner; i++)
                widen(w->from + from + i * w->inner_stride, to + i, 1);
    }
}

/* A tensor of five dims: image or out channel, channel, three spatial ones. The copy's innermost
 * dim is the channel where that is contiguous, else the last spatial one. */
typedef struct Five {
    int64_t size[5], *stride[5];
} Five;

static const int *dim_order(const Five *five) {
    static const int channel_last[] = {0, 2, 3, 4, 1}, spatial_last[] = {0, 1, 2, 3, 4};
    return *five->stride[1] == 1 ? channel_last : spatial_last;
}

static void set_contiguous(Five five, const int *order) {
    int64_t step = 1;
    for (int d = 4; d >= 0; d--) {
        *five.stride[order[d]] = step;
        step *= five.size[order[d]];
    }
}

/* The tensor as contiguous f32; its strides are those of the copy afterwards. */
static Storage *widen_all(const Convolution *c, const void *from, int64_t offset, Five five) {
    const int *order = dim_order(&five);
    Widen w = {.c = c, .from = (const uint16_t *)from + offset};
    int64_t rows = 1;
    for (int d = 0; d < 4; d++) {
        w.size[d] = five.size[order[d]], w.stride[d] = *five.stride[order[d]];
        rows *= w.size[d];
    }
    w.inner = five.size[order[4]], w.inner_stride = *five.stride[order[4]];
    Storage *storage = storage_new((size_t)(rows * w.inner) * sizeof(float));
    if (!storage) return NULL;
    w.to = storage->data;
    parallel_for(rows, divide_up(16 * 1024, w.inner + 1), widen_rows, &w);
    set_contiguous(five, order);
    return storage;
}

static Five five_of_x(ConvolutionStep *s) {
    return (Five){
        {s->batch, s->channels, s->in_size[0], s->in_size[1], s->in_size[2]},
        {&s->x_batch, &s->x_channel, &s->x_spatial[0], &s->x_spatial[1], &s->x_spatial[2]}};
}

static Storage *widen_x(Convolution *c) {
    Storage *storage = widen_all(c, c->x, c->step.x_offset, five_of_x(&c->step));
    if (storage) c->x = storage->data, c->step.x_offset = 0;
    return storage;
}

static Storage *widen_weight(Convolution *c) {
    ConvolutionStep *s = &c->step;
    Five five = {
        {s->out_channels, s->channels / s->groups, s->kernel[0], s->kernel[1], s->kernel[2]},
        {&s->weight_out, &s->weight_in, &s->weight_spatial[0], &s->weight_spatial[1],
         &s->weight_spatial[2]}};
    Storage *storage = widen_all(c, c->weight, s->weight_offset, five);
    if (storage) c->weight = storage->data, s->weight_offset = 0;
    return storage;
}

/* ---- the end of a piece ------------------------------------------------------------------- */

static void run_epilogue(const Convolution *c, int64_t low, int64_t count) {
    const Launch *launch = c->epilogue;
    if (launch->function)
        launch->function(c->epilogue_buffer, low, low + count, 0, NULL);
    else
        program_run(launch->program, c->epilogue_buffer, low, low + count, 0, NULL);
}

void conv_finish(const Convolution *c, int64_t first, int64_t step, int64_t rows, int64_t columns,
                 const float *sum, int64_t sum_stride) {
    if (c->half) {
        void (*narrow)(const float *, uint16_t *, int64_t) =
            c->step.dtype == CB_F16 ? c->kernels->narrow_f16 : c->kernels->narrow_bf16;
        for (int64_t r = 0; r < rows; r++)
            narrow(sum + r * sum_stride, (uint16_t *)c->out + first + r * step, columns);
    }
    if (!c->epilogue) return;
    if (step == columns) {
        run_epilogue(c, first, rows * columns);
        return;
    }
    for (int64_t r = 0; r < rows; r++) run_epilogue(c, first + r * step, columns);
}

/* ---- methods ------------------------------------------------------------------------------ */

static bool always(const ConvolutionStep *step) {
    (void)step;
    return true;
}

static const ConvMethod methods[CONV_METHODS] = {
    [CONV_AUTO] = {.name = "auto"},
    [CONV_DIRECT] = {"direct", conv_is_direct, conv_direct_pack, conv_direct_run},
    [CONV_GATHER] = {"gather", always, conv_gather_pack, conv_gather_run},
    [CONV_WINOGRAD_4] = {"winograd 4", conv_fits_winograd_4, conv_winograd_4_pack,
                         conv_winograd_4_run},
    [CONV_WINOGRAD_6] = {"winograd 6", conv_fits_winograd_6, conv_winograd_6_pack,
                         conv_winograd_6_run},
};

const char *convolution_method_name(int method) { return methods[method].name; }

bool convolution_fits(const ConvolutionStep *step, int method) {
    return methods[method].fits && methods[method].fits(step);
}

/* ---- the recorded model ------------------------------------------------------------------- */

/* Nanoseconds, of two cores of an AMD EPYC 9005 (Zen 5, AVX-512) together; bench/layers.c measures
 * them. What counts is how they compare. Accuracy has no say: tests/unit/test_winograd.c holds the
 * rounding of Winograd to that of the direct method. */
static const double product_ns = 0.0042; /* a multiplication in a register tile */
static const double gather_ns = 0.0055;  /* the same, where windows are gathered first */
static const double weight_ns = 0.07;    /* a packed weight: read from memory once a call */
static const double pack_ns = 0.3;       /* a weight to pack */
static const double transform_ns = 0.12; /* a point read or written by Winograd's transforms */

static double weights_ns(double weights, bool constant) {
    return weights * (constant ? weight_ns : weight_ns + pack_ns);
}

static double plain_ns(const ConvolutionStep *s, bool constant, double each) {
    double weights = (double)(s->out_channels * (s->channels / s->groups));
    double positions = (double)s->batch;
    for (int d = 0; d < 3; d++) {
        weights *= (double)s->kernel[d];
        positions *= (double)s->out_size[d];
    }
    return weights * positions * each + weights_ns(weights, constant);
}

static double winograd_ns(const ConvolutionStep *s, bool constant, int64_t tile) {
    enum { LANES = 16 }; /* channels are transformed by whole vectors */
    int64_t side = tile - s->kernel[1] + 1;
    double tiles = (double)(s->batch * divide_up(s->out_size[1], side)) *
                   (double)divide_up(s->out_size[2], side);
    double weights = (double)(tile * tile * s->channels * s->out_channels);
    double points =
        (double)(tile * tile * (round_up(s->channels, LANES) + round_up(s->out_channels, LANES)));
    return tiles * (weights * product_ns + points * transform_ns) + weights_ns(weights, constant);
}

int convolution_choose(const ConvolutionStep *step, bool constant) {
    bool direct = conv_is_direct(step);
    int method = direct ? CONV_DIRECT : CONV_GATHER;
    double least_ns = plain_ns(step, constant, direct ? product_ns : gather_ns);
    for (int other = CONV_WINOGRAD_4; other <= CONV_WINOGRAD_6; other++) {
        if (!convolution_fits(step, other)) continue;
        double ns = winograd_ns(step, constant, other == CONV_WINOGRAD_4 ? 4 : 6);
        if (ns < least_ns) method = other, least_ns = ns;
    }
    return method;
}

static const ConvMethod *method_of(const ConvolutionStep *step, bool constant) {
    return &methods[step->method ? step->method : convolution_choose(step, constant)];
}

/* ---- entry -------------------------------------------------------------------------------- */

static Storage *pack(Convolution *c, const ConvMethod *method) {
    Storage *widened = c->half ? widen_weight(c) : NULL;
    if (c->half && !widened) return NULL;
    Storage *packed = method->pack(c);
    if (widened) storage_release(widened);
    return packed;
}

static bool run(Convolution *c) {
    const ConvMethod *method = method_of(&c->step, c->step.packed != NULL);
    Storage *x = c->half ? widen_x(c) : NULL, *packed = NULL;
    if (c->half && !x) return false;
    c->packed = c->step.packed;
    if (!c->packed && (packed = pack(c, method))) c->packed = packed->data;
    if (c->packed) method->run(c);
    if (packed) storage_release(packed);
    if (x) storage_release(x);
    return c->packed && !atomic_load_explicit(c->failed, memory_order_relaxed);
}

static bool run_empty_sum(const Convolution *c) {
    int64_t numel = c->step.batch * c->step.out_channels * c->positions;
    memset(c->out, 0, (size_t)(numel * c->input_bytes));
    if (c->epilogue) run_epilogue(c, 0, numel);
    return true;
}

static Convolution convolution_of(const ConvolutionStep *step, const void *x, const void *weight,
                                  void *out) {
    Convolution c = {.step = *step, .x = x, .weight = weight, .out = out};
    c.kernels = gemm_kernels();
    c.half = step->dtype == CB_F16 || step->dtype == CB_BF16;
    c.type = step->dtype == CB_F64 ? &c.kernels->f64 : &c.kernels->f32;
    c.element = step->dtype == CB_F64 ? sizeof(double) : sizeof(float);
    c.input_bytes = (int64_t)cb_dtype_size(step->dtype);
    c.positions = step->out_size[0] * step->out_size[1] * step->out_size[2];
    c.outputs = step->out_channels / step->groups;
    return c;
}

static bool is_empty(const Convolution *c) {
    return c->step.batch == 0 || c->outputs == 0 || c->positions == 0;
}

bool convolution_pack(const ConvolutionStep *step, const void *weight, Storage **packed) {
    Convolution c = convolution_of(step, NULL, weight, NULL);
    Five x = five_of_x(&c.step);
    *packed = NULL;
    if (is_empty(&c) || step->channels == 0) return true;
    if (c.half) set_contiguous(x, dim_order(&x)); /* as widen_x will leave it */
    *packed = pack(&c, method_of(step, true));
    return *packed != NULL;
}

bool convolution_run(const ConvolutionStep *step, const void *x, const void *weight, void *out,
                     const Launch *epilogue, void *const *epilogue_buffer) {
    _Atomic bool failed = false;
    Convolution c = convolution_of(step, x, weight, out);
    c.epilogue = epilogue;
    c.epilogue_buffer = epilogue_buffer;
    c.failed = &failed;
    if (is_empty(&c)) return true;
    return step->channels == 0 ? run_empty_sum(&c) : run(&c);
}
