/* The recorded model of convolutions: what each method takes (MethodCost), by sizes alone, so that
 * the number of threads changes no result. */
#include "cpu/conv_internal.h"
#include <math.h>

/* Nanoseconds, of two cores of an AMD EPYC 9005 (Zen 5, AVX-512) together; bench/layers.c measures
 * them. What counts is how they compare. */
static const double product_ns = 0.0042; /* a multiplication in a register tile */
static const double gather_ns = 0.0055;  /* the same, where windows are gathered first */
static const double window_ns = 0.17;    /* an element to gather: few out channels make up for it */
enum { FEW_IN = 16 };                    /* channels in: a vector of AVX-512 */
static const double dot_share = 0.5;     /* of those two, in bf16 where it is multiplied as such */
static const double amx_share = 0.2;     /* the same on AMX tiles */
static const double weight_ns = 0.07;    /* a packed weight: read from memory once a call */
static const double pack_ns = 0.3;       /* a weight to pack */
static const double transform_ns = 0.12; /* a point read or written by Winograd's transforms */
static const double turn_ns = 0.25;      /* an element of x or the result, in another order */
/* Larger tiles round more: they have to need no more than this share of the next smaller's time;
 * rough: F(5x5, 3x3) in f32. Next to the rounding of f16 or bf16 all are small. */
static const double large_share = 0.93, rough_share = 0.85;

static double weights_ns(double weights, bool constant) {
    return weights * (constant ? weight_ns : weight_ns + pack_ns);
}

static double plain_ns(const ConvolutionTask *s, bool constant, double each) {
    double weights = (double)(s->out_channels * (s->channels / s->groups));
    double positions = (double)s->batch;
    for (int d = 0; d < 3; d++) {
        weights *= (double)s->kernel[d];
        positions *= (double)s->out_size[d];
    }
    return weights * positions * each + weights_ns(weights, constant);
}

static double winograd_ns(const ConvolutionTask *s, bool constant, int64_t tile) {
    enum { LANES = 16 }; /* channels are transformed by whole vectors */
    double weights = (double)(s->channels * s->out_channels), each = weights * product_ns;
    each +=
        (double)(round_up(s->channels, LANES) + round_up(s->out_channels, LANES)) * transform_ns;
    return (double)conv_winograd_points(s, tile) * each +
           weights_ns((double)(tile * tile) * weights, constant);
}

/* Elements of x and the result. */
static double elements(const ConvolutionTask *s) {
    double x = (double)(s->channels * s->in_size[0] * s->in_size[1] * s->in_size[2]);
    double out = (double)(s->out_channels * s->out_size[0] * s->out_size[1] * s->out_size[2]);
    return (double)s->batch * (x + out);
}

/* Of a multiplication in the dtype of the step, which takes `each` in f32. */
static double product_of(const ConvolutionTask *task, double each) {
    if ((!task->reduced && task->dtype != CB_BF16) || !gemm_bf16()) return each;
    return each * (gemm_bf16()->k_unit == 2 ? dot_share : amx_share);
}

MethodCost conv_direct_cost(const ConvolutionTask *task, int tile, bool constant) {
    (void)tile;
    return (MethodCost){plain_ns(task, constant, product_of(task, product_ns)), 1};
}

MethodCost conv_gather_cost(const ConvolutionTask *task, int tile, bool constant) {
    (void)tile;
    double many = plain_ns(task, constant, product_of(task, gather_ns));
    double each = product_of(task, product_ns) + window_ns / (double)task->out_channels;
    bool few = task->channels / task->groups >= FEW_IN; /* below, other ways lose as much */
    return (MethodCost){few ? fmax(many, plain_ns(task, constant, each)) : many, 1};
}

MethodCost conv_winograd_cost(const ConvolutionTask *task, int tile, bool constant) {
    bool half = dtype_is_half(task->dtype);
    double share = tile == 7 && task->kernel[1] == 3 && !half ? rough_share : large_share;
    return (MethodCost){winograd_ns(task, constant, tile), tile == 4 ? 1 : share};
}

/* The product packs both factors; with more out channels than positions that costs more than
 * turning x and the result. */
MethodCost conv_matrix_cost(const ConvolutionTask *task, int tile, bool constant) {
    (void)tile, (void)constant;
    int64_t positions = task->out_size[0] * task->out_size[1] * task->out_size[2];
    return (MethodCost){positions >= task->out_channels ? 0 : INFINITY, 1};
}

MethodCost conv_turned_cost(const ConvolutionTask *task, int tile, bool constant) {
    ConvolutionTask last = conv_turned(task);
    if (conv_fits_depthwise(&last)) return (MethodCost){0, 1};
    double direct = conv_direct_cost(task, tile, constant).ns;
    return (MethodCost){direct + elements(task) * turn_ns, 1};
}
