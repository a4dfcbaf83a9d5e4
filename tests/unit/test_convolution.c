/* The convolution engine against plain loops: layouts of x and weight, groups, depthwise, strides,
 * padding and dilation, ranks 1 to 3, sizes that end in the middle of a tile, packed weights,
 * epilogues, threads. Elements are small integers, so that every sum is exact; test_winograd.c has
 * the methods that round in between. */
#include "cpu/conv.h"
#include "epilogue.h"
#include "method/table.h"

#include "each_fails.h"

typedef struct Case {
    int64_t batch, channels, out_channels, groups;
    int64_t size[3], kernel[3], stride[3], padding[3], dilation[3];
} Case;

static const Case cases[] = {
    {2, 3, 5, 1, {1, 7, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {1, 16, 33, 1, {1, 7, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {3, 24, 70, 1, {1, 5, 8}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {2, 20, 40, 2, {1, 11, 10}, {1, 3, 2}, {1, 2, 3}, {0, 2, 1}, {1, 2, 1}},
    {2, 19, 19, 19, {1, 6, 9}, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 40, 40, 40, {3, 5, 23}, {2, 3, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 2}},
    {1, 35, 35, 35, {1, 2, 3}, {1, 5, 7}, {1, 1, 2}, {0, 2, 4}, {1, 1, 1}},
    {1, 6, 12, 6, {1, 9, 9}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}},
    {2, 700, 9, 1, {1, 3, 4}, {1, 2, 2}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
    {1, 1300, 40, 1, {1, 4, 4}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
    {1, 64, 600, 1, {1, 6, 6}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 9, 10, 1, {1, 1, 40}, {1, 1, 5}, {1, 1, 2}, {0, 0, 4}, {1, 1, 3}},
    {1, 8, 11, 1, {4, 5, 6}, {2, 3, 1}, {2, 1, 2}, {1, 1, 0}, {1, 2, 1}},
    {1, 1, 1, 1, {1, 5, 5}, {1, 5, 5}, {1, 1, 1}, {0, 4, 4}, {1, 1, 1}},
    {2, 3, 64, 1, {1, 40, 40}, {1, 11, 11}, {1, 4, 4}, {0, 2, 2}, {1, 1, 1}},
    {3, 64, 70, 1, {1, 9, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {2, 96, 64, 1, {1, 5, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {1, 64, 40, 2, {3, 9, 8}, {2, 3, 3}, {2, 2, 3}, {1, 1, 2}, {1, 2, 1}},
    {1, 40, 33, 1, {1, 70, 50}, {1, 2, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 2}},
    {1, 3, 34, 1, {1, 60, 50}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {1, 1, 1}},
    {1, 16, 20, 1, {2, 12, 12}, {2, 3, 5}, {1, 1, 1}, {0, 1, 2}, {1, 1, 1}},
    {2, 6, 6, 6, {1, 1, 300}, {1, 1, 4}, {1, 1, 1}, {0, 0, 3}, {1, 1, 1}},
    {1, 8, 12, 4, {1, 300, 90}, {1, 3, 2}, {1, 1, 1}, {0, 2, 1}, {1, 2, 3}},
    {1, 7, 8, 1, {1, 20, 31}, {1, 3, 5}, {1, 1, 1}, {0, 1, 2}, {1, 2, 1}},
    {2, 14, 2, 2, {1, 5, 4}, {1, 5, 4}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {0, 3, 4, 1, {1, 5, 5}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
    {2, 0, 5, 1, {1, 5, 5}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Layouts: of x and weight, and of the result; turned: channels first by way of channels last. */
enum { X_LAST = 1, TURNED = 2, OUT_LAST = 4, LAYOUTS = 6 };

static ConvolutionTask task_of(const Case *c, int layout, cb_dtype dtype, bool reduced) {
    ConvolutionTask s = {.dtype = dtype, .channels_last = layout & OUT_LAST, .rank = 3};
    s.reduced = reduced;
    s.batch = c->batch, s.channels = c->channels, s.out_channels = c->out_channels;
    s.groups = c->groups;
    int64_t inner = c->channels / c->groups, x_step = layout & X_LAST ? c->channels : 1;
    int64_t w_step = layout & X_LAST ? inner : 1, x_all = 1, w_all = 1;
    for (int d = 2; d >= 0; d--) {
        s.in_size[d] = c->size[d], s.kernel[d] = c->kernel[d], s.stride[d] = c->stride[d];
        s.padding[d] = c->padding[d], s.dilation[d] = c->dilation[d];
        s.out_size[d] = (c->size[d] + 2 * c->padding[d] - (c->kernel[d] - 1) * c->dilation[d] - 1) /
                            c->stride[d] +
                        1;
        s.x_spatial[d] = x_step, s.weight_spatial[d] = w_step;
        x_step *= c->size[d], w_step *= c->kernel[d];
        x_all *= c->size[d], w_all *= c->kernel[d];
    }
    s.x_channel = layout & X_LAST ? 1 : x_all;
    s.weight_in = layout & X_LAST ? 1 : w_all;
    s.x_batch = x_all * c->channels, s.weight_out = w_all * inner;
    s.x_offset = 2, s.weight_offset = 1;
    return s;
}

static int method_of(const ConvolutionTask *s, int layout) {
    int method = CONV_DIRECT;
    while (!convolution_fits(s, method)) method++;
    if (convolution_fits(s, CONV_TILES)) method = CONV_TILES;
    if (!(layout & TURNED) && convolution_fits(s, CONV_PLANES)) method = CONV_PLANES;
    if (layout & TURNED && convolution_fits(s, CONV_TURNED)) method = CONV_TURNED;
    if (!(layout & TURNED) && convolution_fits(s, CONV_MATRIX)) method = CONV_MATRIX;
    return method;
}

static int64_t positions(const ConvolutionTask *s) {
    return s->out_size[0] * s->out_size[1] * s->out_size[2];
}

/* A case's elements and sums, which are the same in every layout: computed once. Channels come
 * last. */
typedef struct Reference {
    int *x, *weight, *sums; /* [batch][position][channel], [out][position][in],
                             * [batch][position][out] */
} Reference;

static int small_integer(void) {
    static uint32_t seed = 5;
    seed = seed * 1664525 + 1013904223;
    return (int)(seed >> 24) % 5 - 2;
}

static int *small_ints(int64_t count) {
    int *data = malloc(sizeof *data * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) data[i] = small_integer();
    return data;
}

static double *small_integers(int64_t count) {
    double *data = malloc(sizeof *data * (size_t)count);
    for (int64_t i = 0; i < count; i++) data[i] = small_integer();
    return data;
}

static int64_t volume(const int64_t size[3]) { return size[0] * size[1] * size[2]; }

/* Which position of x lies under position q of the kernel for p of the result; false: the
 * padding. */
static bool under(const ConvolutionTask *s, const int64_t p[3], const int64_t q[3], int64_t *x) {
    *x = 0;
    for (int d = 0; d < 3; d++) {
        int64_t k = p[d] * s->stride[d] + q[d] * s->dilation[d] - s->padding[d];
        if (k < 0 || k >= s->in_size[d]) return false;
        *x = *x * s->in_size[d] + k;
    }
    return true;
}

/* Position number p of a box. */
static void position(const int64_t size[3], int64_t p, int64_t at[3]) {
    at[0] = p / size[2] / size[1], at[1] = p / size[2] % size[1], at[2] = p % size[2];
}

/* Adds to the sums of one position what lies under number q of the kernel. */
static void add_products(const ConvolutionTask *s, const int *x, const int *weight, int64_t q,
                         int *sums) {
    int64_t inner = s->channels / s->groups, outer = s->out_channels / s->groups;
    for (int64_t o = 0; o < s->out_channels; o++) {
        const int *w = weight + (o * volume(s->kernel) + q) * inner, *from = x + o / outer * inner;
        int sum = 0;
        for (int64_t i = 0; i < inner; i++) sum += from[i] * w[i];
        sums[o] += sum;
    }
}

static const Reference *reference_of(const Case *c) {
    static Reference references[CASES];
    Reference *r = &references[c - cases];
    if (r->sums) return r;
    ConvolutionTask s = task_of(c, 0, CB_F32, false);
    int64_t in = volume(s.in_size), count = positions(&s), kernel = volume(s.kernel);
    r->x = small_ints(s.batch * in * s.channels);
    r->weight = small_ints(s.out_channels * kernel * (s.channels / s.groups));
    r->sums = calloc((size_t)(s.batch * count * s.out_channels + 1), sizeof(int));
    for (int64_t k = 0; k < s.batch * count; k++)
        for (int64_t j = 0; j < kernel; j++) {
            int64_t p[3], q[3], at;
            position(s.out_size, k % count, p), position(s.kernel, j, q);
            if (!under(&s, p, q, &at)) continue;
            const int *x = r->x + (k / count * in + at) * s.channels;
            add_products(&s, x, r->weight, j, r->sums + k * s.out_channels);
        }
    return r;
}

static void *in_dtype(const double *from, int64_t count, cb_dtype dtype) {
    char *data = malloc(cb_dtype_size(dtype) * (size_t)count);
    for (int64_t i = 0; i < count; i++)
        scalar_store(data + i * (int64_t)cb_dtype_size(dtype), dtype, (Scalar){.f = from[i]});
    return data;
}

/* from, of items, positions and channels, where a task looks for it; one more element in front, at
 * least. */
static void *placed(const int *from, int64_t items, const int64_t size[3], int64_t channels,
                    int64_t offset, int64_t item_step, int64_t channel_step, const int64_t steps[3],
                    cb_dtype dtype) {
    int64_t count = offset + items * volume(size) * channels;
    double *data = small_integers(count + 1);
    for (int64_t n = 0; n < items; n++)
        for (int64_t k = 0; k < volume(size); k++) {
            int64_t at[3];
            position(size, k, at);
            double *to = data + offset + n * item_step;
            to += at[0] * steps[0] + at[1] * steps[1] + at[2] * steps[2];
            for (int64_t i = 0; i < channels; i++) to[i * channel_step] = *from++;
        }
    void *result = in_dtype(data, count, dtype);
    free(data);
    return result;
}

static void *placed_x(const ConvolutionTask *s, const Reference *r) {
    return placed(r->x, s->batch, s->in_size, s->channels, s->x_offset, s->x_batch, s->x_channel,
                  s->x_spatial, s->dtype);
}

static void *placed_weight(const ConvolutionTask *s, const Reference *r) {
    return placed(r->weight, s->out_channels, s->kernel, s->channels / s->groups, s->weight_offset,
                  s->weight_out, s->weight_in, s->weight_spatial, s->dtype);
}

static void expect_result(const ConvolutionTask *s, const Reference *r, const char *out,
                          const Case *c, int layout) {
    for (int64_t n = 0; n < s->batch; n++)
        for (int64_t o = 0; o < s->out_channels; o++)
            for (int64_t p = 0; p < positions(s); p++) {
                int64_t last = (n * positions(s) + p) * s->out_channels + o;
                int64_t at = s->channels_last ? last : (n * s->out_channels + o) * positions(s) + p;
                double found = scalar_load(out + at * (int64_t)cb_dtype_size(s->dtype), s->dtype).f;
                Scalar rounded = scalar_convert((Scalar){.f = r->sums[last]}, CB_F64, s->dtype);
                if (found != rounded.f)
                    fail_msg("case %d, layout %d, %s [%d, %d, %d] is %g, not %g", (int)(c - cases),
                             layout, cb_dtype_name(s->dtype), (int)n, (int)o, (int)p, found,
                             rounded.f);
            }
}

static void expect_case(const Case *c, int layout, cb_dtype dtype, bool reduced) {
    ConvolutionTask s = task_of(c, layout, dtype, reduced);
    int method = method_of(&s, layout);
    size_t bytes = (size_t)(s.batch * s.out_channels * positions(&s)) * cb_dtype_size(dtype);
    const Reference *r = reference_of(c);
    void *own_x = placed_x(&s, r), *own_weight = placed_weight(&s, r);
    char *out = malloc(bytes + 1), *again = malloc(bytes + 1);
    Operands operands = {.in = {own_x, own_weight}, .out = out};
    assert_true(convolution_run(&s, method, &operands));
    expect_result(&s, r, out, c, layout);
    Storage *packed;
    assert_true(convolution_pack(&s, method, own_weight, &packed));
    operands.out = again;
    if (packed) operands.in[TASK_WEIGHT] = NULL, operands.packed = packed->data;
    assert_true(convolution_run(&s, method, &operands));
    assert_memory_equal(out, again, bytes);
    if (packed) storage_release(packed);
    free(own_x), free(own_weight), free(out), free(again);
}

static void every_layout(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            expect_case(&cases[i], layout, CB_F32, false);
}

static void every_dtype(void **state) {
    (void)state;
    static const cb_dtype dtypes[] = {CB_F64, CB_BF16, CB_F16};
    for (size_t i = 0; i < 9; i++)
        for (int d = 0; d < 3; d++) {
            expect_case(&cases[i], 0, dtypes[d], false);
            expect_case(&cases[i], TURNED, dtypes[d], false);
            expect_case(&cases[i], X_LAST | OUT_LAST, dtypes[d], false);
        }
}

static void every_layout_in_bf16(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            expect_case(&cases[i], layout, CB_BF16, false);
            expect_case(&cases[i], layout, CB_F32, true);
        }
}

static void epilogue_visits_each_element_once(void **state) {
    for (size_t i = 0; i < CASES; i++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            ConvolutionTask s = task_of(&cases[i], layout, CB_F32, *state != NULL);
            int64_t count = s.batch * s.out_channels * positions(&s);
            double *x = small_integers(s.x_offset + s.batch * s.x_batch + 1);
            double *weight = small_integers(s.weight_offset + s.out_channels * s.weight_out + 1);
            void *own_x = in_dtype(x, s.x_offset + s.batch * s.x_batch, CB_F32);
            void *own_w = in_dtype(weight, s.weight_offset + s.out_channels * s.weight_out, CB_F32);
            float *out = malloc(sizeof *out * (size_t)(count + 1));
            float *plain = malloc(sizeof *plain * (size_t)(count + 1));
            uint8_t *visits = calloc((size_t)count + 1, 1);
            Launch launch = {
                .function = twice_plus_one, .form = FORM_TILE, .outer_size = count, .split = 1};
            int method = method_of(&s, layout);
            Operands operands = {.in = {own_x, own_w}, .out = plain};
            assert_true(convolution_run(&s, method, &operands));
            operands.out = out;
            operands.epilogue = &launch, operands.epilogue_buffer = (void *[]){out, visits};
            assert_true(convolution_run(&s, method, &operands));
            for (int64_t k = 0; k < count; k++) {
                assert_int_equal(visits[k], 1);
                assert_true(out[k] == plain[k] * 2 + 1);
            }
            free(x), free(weight), free(own_x), free(own_w), free(out), free(plain), free(visits);
        }
}

enum { SCALE = 1, BIAS = 2, RESIDUAL = 4, RELU = 8, PARTS = 16 }; /* of an epilogue */

typedef struct Ending {
    int parts;
    cb_dtype dtype, bias_dtype;
    int result; /* its buffer, 0 or 3; the residual is the other one */
    int64_t channels;
} Ending;

static double element(const void *data, int64_t i, cb_dtype dtype) {
    return scalar_load((const char *)data + i * (int64_t)cb_dtype_size(dtype), dtype).f;
}

/* max(result * scale + bias + residual, 0), or parts of that, as the step tells of it or left to
 * the launch. */
static void scale_bias_residual_relu(void *const *buffer, int64_t low, int64_t high, int pass,
                                     void *slot) {
    (void)pass, (void)slot;
    const Ending *e = buffer[4];
    char *result = buffer[e->result];
    for (int64_t i = low; i < high; i++) {
        double sum = element(result, i, e->dtype);
        if (e->parts & SCALE) sum *= element(buffer[1], i % e->channels, CB_F32);
        if (e->parts & BIAS) sum += element(buffer[2], i % e->channels, e->bias_dtype);
        if (e->parts & RESIDUAL) sum += element(buffer[3 - e->result], i, e->dtype);
        if (e->parts & RELU && sum < 0) sum = 0;
        scalar_store(result + i * (int64_t)cb_dtype_size(e->dtype), e->dtype, (Scalar){.f = sum});
    }
}

static void known_epilogue(const Case *c, Ending ending) {
    cb_dtype dtype = ending.dtype;
    ConvolutionTask s = task_of(c, X_LAST | OUT_LAST, dtype, dtype == CB_F32);
    int64_t count = s.batch * s.out_channels * positions(&s);
    int64_t xs = s.x_offset + s.batch * s.x_batch;
    int64_t ws = s.weight_offset + s.out_channels * s.weight_out;
    double *x = small_integers(xs + 1), *w = small_integers(ws + 1);
    double *factor = small_integers(s.out_channels), *b = small_integers(s.out_channels);
    double *more = small_integers(count + 1);
    void *own_x = in_dtype(x, xs, dtype), *own_w = in_dtype(w, ws, dtype);
    void *scale = in_dtype(factor, s.out_channels, CB_F32);
    void *bias = in_dtype(b, s.out_channels, ending.bias_dtype);
    void *residual = in_dtype(more, count, dtype);
    size_t bytes = (size_t)count * cb_dtype_size(dtype);
    char *out = malloc(bytes + 1), *again = malloc(bytes + 1);
    Launch launch = {.function = scale_bias_residual_relu, .form = FORM_TILE};
    launch.outer_size = count, launch.split = 1;
    ending.channels = s.out_channels;
    void *buffer[] = {residual, scale, bias, residual, &ending};
    buffer[ending.result] = out;
    int method = method_of(&s, X_LAST | OUT_LAST);
    Operands operands = {.in = {own_x, own_w}, .out = out};
    operands.epilogue = &launch, operands.epilogue_buffer = buffer;
    assert_true(convolution_run(&s, method, &operands));
    KnownEnd end = {.fused = true, .bias_dtype = (int8_t)ending.bias_dtype};
    end.relu = ending.parts & RELU;
    end.scale = ending.parts & SCALE ? 1 : -1;
    end.bias = ending.parts & BIAS ? 2 : -1;
    end.residual = ending.parts & RESIDUAL ? 3 - ending.result : -1;
    operands.out = buffer[ending.result] = again;
    operands.end = &end;
    assert_true(convolution_run(&s, method, &operands));
    for (int64_t i = 0; i < count; i++) /* a zero may have either sign */
        assert_true(element(out, i, dtype) == element(again, i, dtype));
    free(x), free(w), free(factor), free(b), free(more), free(own_x), free(own_w);
    free(scale), free(bias), free(residual), free(out), free(again);
}

/* Of few products, so that bf16 holds every sum exactly. */
static void known_epilogues(void **state) {
    (void)state;
    int parts = 0;
    for (size_t i = 0; i < CASES; i++) {
        if (cases[i].channels * cases[i].kernel[1] * cases[i].kernel[2] > 600) continue;
        known_epilogue(&cases[i], (Ending){PARTS - 1, CB_BF16, CB_BF16, i % 2 ? 3 : 0, 0});
        known_epilogue(&cases[i], (Ending){PARTS - 1, CB_F32, CB_F32, 3, 0});
        known_epilogue(&cases[i], (Ending){parts++ % PARTS, CB_BF16, CB_F32, 0, 0});
    }
}

static void threads_do_not_change_a_bit(void **state) {
    for (size_t i = 1; i < 12; i++)
        for (int layout = 0; layout < LAYOUTS; layout += LAYOUTS - 1) {
            ConvolutionTask s = task_of(&cases[i], layout, CB_F32, *state != NULL);
            int64_t xs = s.x_offset + s.batch * s.x_batch;
            int64_t ws = s.weight_offset + s.out_channels * s.weight_out;
            size_t bytes = (size_t)(s.batch * s.out_channels * positions(&s)) * sizeof(float);
            float *x = malloc((size_t)xs * sizeof *x), *w = malloc((size_t)ws * sizeof *w);
            float *one = malloc(bytes), *many = malloc(bytes);
            for (int64_t k = 0; k < xs; k++) x[k] = (float)rand() / 1e9f - 1;
            for (int64_t k = 0; k < ws; k++) w[k] = (float)rand() / 1e9f - 1;
            int threads = cb_threads();
            cb_set_threads(1);
            int method = method_of(&s, layout);
            assert_true(convolution_run(&s, method, &(Operands){.in = {x, w}, .out = one}));
            cb_set_threads(5);
            assert_true(convolution_run(&s, method, &(Operands){.in = {x, w}, .out = many}));
            cb_set_threads(threads);
            assert_memory_equal(one, many, bytes);
            free(x), free(w), free(one), free(many);
        }
}

static int chosen_for(const ConvolutionTask *s) {
    return method_own(&(Task){.kind = TASK_CONVOLUTION, .convolution = *s}, false)->variant;
}

/* The result of a kernel of 1 with few out channels is a product over x where it lies. */
static void small_kernels_are_products(void **state) {
    (void)state;
    static const struct {
        Case c;
        bool product;
    } chosen[] = {
        {{1, 64, 1, 1, {1, 57, 55}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}}, true},
        {{4, 64, 33, 1, {1, 7, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}}, true},
        {{1, 64, 64, 1, {1, 7, 7}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}}, false},
        {{1, 64, 16, 1, {1, 15, 15}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}}, false},
    };
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        ConvolutionTask s = task_of(&chosen[i].c, 0, CB_F32, false);
        assert_int_equal(chosen_for(&s) == CONV_MATRIX, chosen[i].product);
        s.reduced = true;
        assert_int_not_equal(chosen_for(&s), CONV_MATRIX);
        s = task_of(&chosen[i].c, OUT_LAST, CB_F32, false);
        assert_int_not_equal(chosen_for(&s), CONV_MATRIX);
    }
    ConvolutionTask apart = task_of(&chosen[0].c, 0, CB_F32, false); /* lines that do not follow */
    apart.x_spatial[1]++;
    assert_false(convolution_fits(&apart, CONV_MATRIX));
}

/* Beside few out channels windows cost more to gather than x to turn; few channels in gain nothing
 * by that. */
static void few_out_channels_are_turned(void **state) {
    (void)state;
    Case c = {8, 64, 3, 1, {1, 17, 17}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}};
    ConvolutionTask s = task_of(&c, 0, CB_F32, false);
    assert_int_equal(chosen_for(&s), CONV_TURNED);
    Case stem = {1, 3, 64, 1, {1, 224, 224}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {1, 1, 1}};
    s = task_of(&stem, 0, CB_F32, false);
    assert_int_equal(chosen_for(&s), CONV_GATHER);
}

/* Few channels to a group are not turned; a stride takes the lanes apart. */
static void few_channels_to_a_group_stay(void **state) {
    (void)state;
    Case c = {2, 96, 96, 96, {1, 56, 56}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}};
    ConvolutionTask s = task_of(&c, 0, CB_F32, false);
    assert_int_equal(chosen_for(&s), CONV_PLANES);
    s.groups = 32;
    assert_int_equal(chosen_for(&s), CONV_PLANES);
    s.groups = 8;
    assert_int_not_equal(chosen_for(&s), CONV_PLANES);
    c.stride[2] = 2;
    s = task_of(&c, 0, CB_F32, false);
    assert_int_not_equal(chosen_for(&s), CONV_PLANES);
    Case picture = {1, 3, 8, 1, {1, 90, 120}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}};
    s = task_of(&picture, 0, CB_F32, false);
    assert_int_equal(chosen_for(&s), CONV_PLANES);
    picture.out_channels++;
    s = task_of(&picture, 0, CB_F32, false);
    assert_int_not_equal(chosen_for(&s), CONV_PLANES);
}

/* What one convolution packs serves every other one of its layout, whatever the batch and the
 * sizes of x; the batch is in no layout. */
static void packed_for_another(const Case *c, const Case *other, int layout, int method) {
    ConvolutionTask s = task_of(c, layout, CB_F32, false);
    ConvolutionTask o = task_of(other, layout, CB_F32, false);
    if (!convolution_fits(&s, method) || !convolution_fits(&o, method)) return;
    Arena *arena = arena_new();
    Buffer text = buffer_new(arena), others = buffer_new(arena);
    bool packs = convolution_layout(&s, method, &text); /* not of an empty batch */
    packs &= convolution_layout(&o, method, &others);
    bool same = !strcmp(buffer_text(&text), buffer_text(&others));
    bool sizes = memcmp(c->size, other->size, sizeof c->size) != 0;
    assert_true(same || !packs || (sizes && method == CONV_GATHER) || method == CONV_TURNED);
    arena_free(arena);
    if (!packs || !same) return;
    const Reference *r = reference_of(c);
    void *own_x = placed_x(&s, r), *own_weight = placed_weight(&s, r);
    char *out = malloc((size_t)(s.batch * s.out_channels * positions(&s)) * sizeof(float) + 1);
    Storage *packed;
    assert_true(convolution_pack(&o, method, own_weight, &packed));
    Operands operands = {.in = {own_x}, .packed = packed->data, .out = out};
    assert_true(convolution_run(&s, method, &operands));
    if (!strstr(convolution_method_name(method), "winograd")) /* which rounds */
        expect_result(&s, r, out, c, layout);
    storage_release(packed);
    free(own_x), free(own_weight), free(out);
}

static void layouts_without_the_batch(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            for (int method = CONV_DIRECT; method < CONV_METHODS; method++) {
                Case other = cases[i];
                other.batch += 2;
                packed_for_another(&cases[i], &other, layout, method);
                other.size[2] += 5;
                packed_for_another(&cases[i], &other, layout, method);
            }
}

/* ---- memory that runs out ------------------------------------------------------------------- */

typedef struct Run {
    ConvolutionTask task;
    int method;
    Operands operands;
} Run;

static bool run_task(void *user) {
    const Run *r = user;
    return convolution_run(&r->task, r->method, &r->operands);
}

static bool pack_task(void *user) {
    const Run *r = user;
    Storage *packed;
    bool done = convolution_pack(&r->task, r->method, r->operands.in[TASK_WEIGHT], &packed);
    assert_true(done || !packed);
    if (packed) storage_release(packed);
    return done;
}

/* By each method that can, in f32 and converted; with an epilogue that the method ends with. */
static void every_method_without_memory(const Case *c, int layout, cb_dtype dtype) {
    ConvolutionTask s = task_of(c, layout, dtype, false);
    int64_t xs = s.x_offset + s.batch * s.x_batch;
    int64_t ws = s.weight_offset + s.out_channels * s.weight_out;
    int64_t count = s.batch * s.out_channels * positions(&s);
    double *x = small_integers(xs), *weight = small_integers(ws);
    void *own_x = in_dtype(x, xs, dtype), *own_w = in_dtype(weight, ws, dtype);
    Ending ending = {RELU, dtype, dtype, 0, s.out_channels};
    for (int method = CONV_DIRECT; method < CONV_METHODS; method++) {
        if (!convolution_fits(&s, method)) continue;
        for (int ends = 0; ends < 2; ends++) {
            char *out = calloc((size_t)count, cb_dtype_size(dtype));
            char *wanted = calloc((size_t)count, cb_dtype_size(dtype));
            Launch launch = {.function = scale_bias_residual_relu, .form = FORM_TILE};
            launch.outer_size = count, launch.split = 1;
            void *buffer[] = {out, NULL, NULL, NULL, &ending};
            KnownEnd end = {.fused = ends, .relu = true, .scale = -1, .bias = -1, .residual = -1};
            Run r = {s, method, {.in = {own_x, own_w}, .out = wanted}};
            r.operands.epilogue = ends ? &launch : NULL, r.operands.epilogue_buffer = buffer;
            r.operands.end = &end;
            buffer[0] = wanted;
            assert_true(run_task(&r));
            r.operands.out = buffer[0] = out;
            each_allocation_fails(run_task, &r);
            assert_memory_equal(out, wanted, (size_t)count * cb_dtype_size(dtype));
            each_allocation_fails(pack_task, &r);
            free(out), free(wanted);
        }
    }
    free(x), free(weight), free(own_x), free(own_w);
}

static void each_allocation_of_each_method_fails(void **state) {
    (void)state;
    static const int number[] = {0, 1, 4, 12, 14};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            if (layout & TURNED) continue;
            every_method_without_memory(&cases[number[i]], layout, CB_F32);
            every_method_without_memory(&cases[number[i]], layout, CB_BF16);
        }
}

int main(void) {
    srand(5);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_kernels_are_products),
        cmocka_unit_test(every_layout),
        cmocka_unit_test(layouts_without_the_batch),
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(every_layout_in_bf16),
        cmocka_unit_test(epilogue_visits_each_element_once),
        cmocka_unit_test_prestate(epilogue_visits_each_element_once, "reduced"),
        cmocka_unit_test(known_epilogues),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test_prestate(threads_do_not_change_a_bit, "reduced"),
        cmocka_unit_test(few_channels_to_a_group_stay),
        cmocka_unit_test(few_out_channels_are_turned),
        cmocka_unit_test(each_allocation_of_each_method_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
