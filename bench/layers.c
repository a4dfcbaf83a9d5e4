/* Times the products and convolutions of AlexNet and ResNet-50 one by one.
 *
 *   build/bench_layers alexnet --batch 32 --threads 2
 *   build/bench_layers resnet50 --batch 1 --methods        every method that fits, side by side
 *   build/bench_layers vgg                                 its larger 3x3 layers
 *   build/bench_layers depthwise                           layers of MobileNetV2 and its like
 *
 * In: f32, channels last, constant weights, no epilogue. Every layer has memory of its own and the
 * layers run in the order of the network, round after round, so that weights come from where they
 * come from in the network. Out: the median over rounds, summed over equal layers; GFLOP/s count
 * the multiplications and additions of the definition, whatever the method does; 100 % is a matrix
 * product of 1024 x 1024 x 1024 in the same run. */
#include "base/clock.h"
#include "cpu/conv.h"
#include "cpu/gemm.h"
#include "method/table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Layer {
    const char *name;
    int count; /* equal layers in the network, each with its own weights */
    int64_t channels, size, outputs, kernel, stride, padding, groups; /* size 0: linear */
} Layer;

static const Layer alexnet[] = {
    {"conv1", 1, 3, 224, 64, 11, 4, 2, 1},
    {"conv2", 1, 64, 27, 192, 5, 1, 2, 1},
    {"conv3", 1, 192, 13, 384, 3, 1, 1, 1},
    {"conv4", 1, 384, 13, 256, 3, 1, 1, 1},
    {"conv5", 1, 256, 13, 256, 3, 1, 1, 1},
    {"linear1", 1, 9216, 0, 4096, 0, 0, 0, 0},
    {"linear2", 1, 4096, 0, 4096, 0, 0, 0, 0},
    {"linear3", 1, 4096, 0, 1000, 0, 0, 0, 0},
    {0},
};

static const Layer resnet50[] = {
    {"stem", 1, 3, 224, 64, 7, 2, 3, 1},
    {"1a", 1, 64, 56, 64, 1, 1, 0, 1},
    {"1b", 3, 64, 56, 64, 3, 1, 1, 1},
    {"1c", 4, 64, 56, 256, 1, 1, 0, 1},
    {"1d", 2, 256, 56, 64, 1, 1, 0, 1},
    {"2a", 1, 256, 56, 128, 1, 1, 0, 1},
    {"2b first", 1, 128, 56, 128, 3, 2, 1, 1},
    {"2b", 3, 128, 28, 128, 3, 1, 1, 1},
    {"2c", 4, 128, 28, 512, 1, 1, 0, 1},
    {"2 down", 1, 256, 56, 512, 1, 2, 0, 1},
    {"2d", 3, 512, 28, 128, 1, 1, 0, 1},
    {"3a", 1, 512, 28, 256, 1, 1, 0, 1},
    {"3b first", 1, 256, 28, 256, 3, 2, 1, 1},
    {"3b", 5, 256, 14, 256, 3, 1, 1, 1},
    {"3c", 6, 256, 14, 1024, 1, 1, 0, 1},
    {"3 down", 1, 512, 28, 1024, 1, 2, 0, 1},
    {"3d", 5, 1024, 14, 256, 1, 1, 0, 1},
    {"4a", 1, 1024, 14, 512, 1, 1, 0, 1},
    {"4b first", 1, 512, 14, 512, 3, 2, 1, 1},
    {"4b", 2, 512, 7, 512, 3, 1, 1, 1},
    {"4c", 3, 512, 7, 2048, 1, 1, 0, 1},
    {"4 down", 1, 1024, 14, 2048, 1, 2, 0, 1},
    {"4d", 2, 2048, 7, 512, 1, 1, 0, 1},
    {"fc", 1, 2048, 0, 1000, 0, 0, 0, 0},
    {0},
};

static const Layer vgg[] = {
    {"2", 1, 64, 224, 64, 3, 1, 1, 1},   {"4", 1, 128, 112, 128, 3, 1, 1, 1},
    {"6", 3, 256, 56, 256, 3, 1, 1, 1},  {"9", 3, 512, 28, 512, 3, 1, 1, 1},
    {"12", 4, 512, 14, 512, 3, 1, 1, 1}, {0},
};

static const Layer depthwise[] = {
    /* of MobileNetV2 and its like */
    {"first", 1, 32, 112, 32, 3, 1, 1, 32},
    {"stride 2", 1, 96, 112, 96, 3, 2, 1, 96},
    {"144", 1, 144, 56, 144, 3, 1, 1, 144},
    {"192", 1, 192, 28, 192, 3, 1, 1, 192},
    {"384", 1, 384, 14, 384, 3, 1, 1, 384},
    {"576", 1, 576, 14, 576, 3, 2, 1, 576},
    {"960", 1, 960, 7, 960, 3, 1, 1, 960},
    {"5x5", 1, 240, 14, 240, 5, 1, 2, 240},
    {0},
};

static const struct {
    const char *name;
    const Layer *layer;
} networks[] = {
    {"alexnet", alexnet}, {"resnet50", resnet50}, {"vgg", vgg}, {"depthwise", depthwise}};

typedef struct Instance {
    const Layer *layer;
    ConvolutionTask convolution;
    MatmulTask matmul;
    int method;
    float *x, *weight, *out; /* weight: NULL once it is packed */
    Storage *packed;
    double flops, *sample; /* milliseconds, by round */
} Instance;

static struct {
    const Layer *network;
    int64_t batch;
    int rounds;
    bool methods;
    Instance *instance;
    int count;
    double peak; /* FLOP per millisecond */
} bench = {alexnet, 1, 15, false, NULL, 0, 0};

static float *random_floats(int64_t count) {
    float *data = aligned_alloc(64, (size_t)(count * 4 + 63) / 64 * 64);
    if (!data) exit(1);
    for (int64_t i = 0; i < count; i++) data[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    return data;
}

static void set_convolution(Instance *it, const Layer *l) {
    ConvolutionTask *s = &it->convolution;
    int64_t out = (l->size + 2 * l->padding - l->kernel) / l->stride + 1;
    int64_t inner = l->channels / l->groups;
    *s = (ConvolutionTask){.dtype = CB_F32, .channels_last = true, .rank = 2};
    s->batch = bench.batch, s->channels = l->channels, s->out_channels = l->outputs;
    s->groups = l->groups;
    int64_t x_step = l->channels, w_step = inner;
    for (int d = 2; d >= 0; d--) {
        s->in_size[d] = d ? l->size : 1, s->out_size[d] = d ? out : 1;
        s->kernel[d] = d ? l->kernel : 1, s->stride[d] = d ? l->stride : 1;
        s->padding[d] = d ? l->padding : 0, s->dilation[d] = 1;
        s->x_spatial[d] = x_step, s->weight_spatial[d] = w_step;
        x_step *= s->in_size[d], w_step *= s->kernel[d];
    }
    s->x_channel = s->weight_in = 1, s->x_batch = x_step, s->weight_out = w_step;
    it->x = random_floats(s->batch * s->x_batch);
    it->out = random_floats(s->batch * out * out * l->outputs);
    it->flops = 2. * (double)(s->batch * out * out * l->outputs) * (double)w_step;
}

static void set_linear(Instance *it, const Layer *l) {
    MatmulTask *s = &it->matmul;
    *s = (MatmulTask){.dtype = CB_F32, .batch = 1};
    s->m = bench.batch, s->k = l->channels, s->n = l->outputs;
    s->a_m = s->k, s->a_k = 1, s->b_n = s->k, s->b_k = 1;
    it->x = random_floats(s->m * s->k);
    it->out = random_floats(s->m * s->n);
    it->flops = 2. * (double)(s->m * s->k) * (double)s->n;
}

static void make_instances(void) {
    for (const Layer *l = bench.network; l->name; l++) bench.count += l->count;
    bench.instance = calloc((size_t)bench.count, sizeof *bench.instance);
    if (!bench.instance) exit(1);
    Instance *it = bench.instance;
    for (const Layer *l = bench.network; l->name; l++)
        for (int i = 0; i < l->count; i++, it++) {
            it->layer = l;
            it->sample = calloc((size_t)bench.rounds, sizeof *it->sample);
            if (!it->sample) exit(1);
            if (l->size)
                set_convolution(it, l);
            else
                set_linear(it, l);
        }
}

enum { OWN = -1 }; /* what the recorded model chooses */

static int chosen_for(const Instance *it) {
    Task task = {.kind = TASK_MATMUL, .matmul = it->matmul};
    if (it->layer->size) task = (Task){.kind = TASK_CONVOLUTION, .convolution = it->convolution};
    return method_own(&task, true)->variant;
}

static bool fits(const Instance *it, int method) {
    return method != OWN && it->layer->size && convolution_fits(&it->convolution, method);
}

/* Weights packed for the method; a method that does not fit leaves the layer to its own choice. */
static void pack(Instance *it, int method) {
    if (it->packed) storage_release(it->packed);
    free(it->weight);
    it->packed = NULL;
    ConvolutionTask *c = &it->convolution;
    MatmulTask *m = &it->matmul;
    bool ok;
    it->method = fits(it, method) ? method : chosen_for(it);
    if (it->layer->size) {
        it->weight = random_floats(c->out_channels * c->weight_out);
        ok = convolution_pack(c, it->method, it->weight, &it->packed);
    } else {
        it->weight = random_floats(m->k * m->n);
        ok = gemm_pack(m, it->method, it->weight, m->dtype, &it->packed);
    }
    if (!ok) exit(1);
    if (it->packed) free(it->weight), it->weight = NULL;
}

static double run_once(const Instance *it) {
    Operands operands = {.in = {it->x, it->weight}, .out = it->out};
    if (it->packed) operands.packed = it->packed->data;
    double start = clock_ms();
    bool ok = it->layer->size ? convolution_run(&it->convolution, it->method, &operands)
                              : gemm_run(&it->matmul, it->method, &operands);
    if (!ok) exit(1);
    return clock_ms() - start;
}

static int by_size(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, by_size);
    return count % 2 ? value[count / 2] : (value[count / 2 - 1] + value[count / 2]) / 2;
}

static void measure_peak(void) {
    enum { SIZE = 1024, TIMES = 15 };
    MatmulTask s = {.dtype = CB_F32, .batch = 1, .m = SIZE, .n = SIZE, .k = SIZE};
    s.a_m = s.b_k = SIZE, s.a_k = s.b_n = 1;
    float *a = random_floats(SIZE * SIZE), *b = random_floats(SIZE * SIZE);
    float *out = random_floats(SIZE * SIZE);
    double sample[TIMES];
    for (int i = 0; i < TIMES; i++) {
        double start = clock_ms();
        if (!gemm_run(&s, GEMM_PANELS, &(Operands){.in = {a, b}, .out = out})) exit(1);
        sample[i] = clock_ms() - start;
    }
    bench.peak = 2. * SIZE * SIZE * SIZE / median(sample, TIMES);
    printf("product of 1024^3: %.0f GFLOP/s, %d threads\n\n", bench.peak * 1e-6, cb_threads());
    free(a), free(b), free(out);
}

/* ---- output ---- */

static void put_row(const char *name, const char *shape, const char *method, double flops,
                    double ms) {
    printf("%-14s %-38s %-10s %8.3f %9.3f %8.0f %5.0f\n", name, shape, method, flops * 1e-9, ms,
           flops / ms * 1e-6, 100 * flops / ms / bench.peak);
}

static void report(int method) {
    double total_ms = 0, total_flops = 0;
    for (int i = 0; i < bench.count; i += bench.instance[i].layer->count) {
        Instance *it = &bench.instance[i];
        const Layer *l = it->layer;
        double ms = 0, flops = it->flops * l->count;
        for (int k = 0; k < l->count; k++) ms += median(it[k].sample, bench.rounds);
        total_ms += ms, total_flops += flops;
        if (method != OWN && !fits(it, method)) continue;
        char shape[64];
        if (l->size)
            snprintf(shape, sizeof shape, "%d x %d x %dx%d -> %d, %dx%d/%d%s", l->count,
                     (int)l->channels, (int)l->size, (int)l->size, (int)l->outputs, (int)l->kernel,
                     (int)l->kernel, (int)l->stride, l->groups > 1 ? " groups" : "");
        else
            snprintf(shape, sizeof shape, "%d x %d -> %d", l->count, (int)l->channels,
                     (int)l->outputs);
        put_row(l->name, shape, l->size ? convolution_method_name(it->method) : "product", flops,
                ms);
    }
    if (method == OWN) put_row("total", "", "", total_flops, total_ms);
    printf("\n");
}

static void run_method(int method) {
    for (int i = 0; i < bench.count; i++) pack(&bench.instance[i], method);
    for (int i = 0; i < bench.count; i++) run_once(&bench.instance[i]);
    for (int round = 0; round < bench.rounds; round++)
        for (int i = 0; i < bench.count; i++)
            bench.instance[i].sample[round] = run_once(&bench.instance[i]);
    report(method);
}

static bool choose_network(const char *name) {
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (!strcmp(name, networks[i].name)) {
            bench.network = networks[i].layer;
            return true;
        }
    return false;
}

static void read_arguments(int count, char **word) {
    for (int i = 1; i < count; i++) {
        const char *next = i + 1 < count ? word[i + 1] : "";
        if (!strcmp(word[i], "--batch")) {
            bench.batch = atoi(next), i++;
        } else if (!strcmp(word[i], "--threads")) {
            cb_set_threads(atoi(next)), i++;
        } else if (!strcmp(word[i], "--rounds")) {
            bench.rounds = atoi(next), i++;
        } else if (!strcmp(word[i], "--methods")) {
            bench.methods = true;
        } else if (!choose_network(word[i])) {
            fprintf(stderr, "bench_layers [alexnet | resnet50 | vgg | depthwise] [--batch N] "
                            "[--threads N] [--rounds N] [--methods]\n");
            exit(2);
        }
    }
    if (bench.batch < 1 || bench.rounds < 1) exit(2);
}

int main(int count, char **word) {
    read_arguments(count, word);
    measure_peak();
    make_instances();
    printf("%-14s %-38s %-10s %8s %9s %8s %5s\n", "layer", "shape", "method", "GFLOP", "ms",
           "GFLOP/s", "%");
    run_method(OWN);
    for (int method = 0; bench.methods && method < CONV_METHODS; method++) run_method(method);
    return 0;
}
