/* Winograd convolutions against plain loops in f64: kernels of 3 and 5, sizes that end in the
 * middle of a tile, paddings, batches, channels that are no whole vector, epilogues, threads; and
 * their rounding beside that of the direct method. */
#include "cpu/conv.h"
#include "epilogue.h"
#include "method/table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct Case {
    int64_t batch, channels, out_channels, height, width, kernel, padding[2];
} Case;

static const Case cases[] = {
    {1, 1, 1, 3, 3, 3, {0, 0}},     {1, 1, 1, 5, 5, 5, {0, 0}},     {2, 3, 5, 1, 1, 3, {1, 1}},
    {1, 16, 32, 8, 8, 3, {1, 1}},   {3, 19, 33, 7, 9, 3, {1, 1}},   {2, 24, 70, 13, 5, 3, {0, 2}},
    {1, 8, 40, 6, 17, 3, {3, 0}},   {2, 40, 17, 9, 11, 5, {2, 2}},  {1, 33, 65, 6, 12, 5, {0, 1}},
    {5, 7, 96, 4, 4, 5, {4, 3}},    {1, 520, 9, 5, 6, 3, {1, 1}},   {1, 1030, 33, 3, 4, 3, {1, 0}},
    {1, 530, 40, 7, 7, 5, {2, 2}},  {9, 20, 24, 13, 13, 3, {1, 1}}, {1, 12, 200, 14, 14, 3, {1, 1}},
    {2, 32, 64, 30, 31, 3, {1, 1}}, {1, 64, 96, 27, 27, 5, {2, 2}}, {0, 4, 4, 5, 5, 3, {1, 1}},
    {7, 18, 34, 14, 7, 3, {1, 1}},  {4, 16, 48, 15, 13, 3, {1, 1}}, {3, 9, 20, 26, 10, 5, {2, 2}},
};
enum { CASES = sizeof cases / sizeof *cases };

/* One convolution, its inputs, and the result in f64 with the sum of the magnitudes of its
 * terms. */
typedef struct Problem {
    ConvolutionTask step;
    float *x, *weight, *out;
    double *exact;
    int64_t count; /* elements of the result */
} Problem;

static void set_step(ConvolutionTask *s, const Case *c) {
    *s = (ConvolutionTask){.dtype = CB_F32, .channels_last = true, .rank = 2};
    s->batch = c->batch, s->channels = c->channels, s->out_channels = c->out_channels;
    s->groups = 1;
    int64_t size[3] = {1, c->height, c->width}, x_step = c->channels, w_step = c->channels;
    for (int d = 2; d >= 0; d--) {
        s->in_size[d] = size[d], s->kernel[d] = d ? c->kernel : 1;
        s->stride[d] = s->dilation[d] = 1, s->padding[d] = d ? c->padding[d - 1] : 0;
        s->out_size[d] = size[d] + 2 * s->padding[d] - s->kernel[d] + 1;
        s->x_spatial[d] = x_step, s->weight_spatial[d] = w_step;
        x_step *= size[d], w_step *= s->kernel[d];
    }
    s->x_channel = s->weight_in = 1, s->x_batch = x_step, s->weight_out = w_step;
    s->x_offset = 3, s->weight_offset = 1;
}

static float *random_floats(int64_t count) {
    float *data = malloc(sizeof *data * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++) data[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
    return data;
}

static double exact_at(const Problem *p, int64_t n, int64_t y, int64_t x, int64_t o) {
    const ConvolutionTask *s = &p->step;
    double sum = 0;
    for (int64_t i = 0; i < s->kernel[1]; i++)
        for (int64_t j = 0; j < s->kernel[2]; j++) {
            int64_t v = y + i - s->padding[1], u = x + j - s->padding[2];
            if (v < 0 || v >= s->in_size[1] || u < 0 || u >= s->in_size[2]) continue;
            const float *a =
                p->x + s->x_offset + n * s->x_batch + v * s->x_spatial[1] + u * s->x_spatial[2];
            const float *w = p->weight + s->weight_offset + o * s->weight_out +
                             i * s->weight_spatial[1] + j * s->weight_spatial[2];
            for (int64_t c = 0; c < s->channels; c++)
                sum += (double)a[c * s->x_channel] * (double)w[c * s->weight_in];
        }
    return sum;
}

static Problem problem_of(const ConvolutionTask *step) {
    Problem p = {.step = *step};
    const ConvolutionTask *s = &p.step;
    int64_t taps = s->kernel[1] * s->kernel[2], positions = s->in_size[1] * s->in_size[2];
    p.x = random_floats(s->x_offset + s->batch * s->channels * positions);
    p.weight = random_floats(s->weight_offset + s->out_channels * s->channels * taps);
    p.count = s->batch * s->out_size[1] * s->out_size[2] * s->out_channels;
    p.out = random_floats(p.count);
    p.exact = malloc(sizeof *p.exact * (size_t)(p.count + 1));
    double *to = p.exact;
    for (int64_t n = 0; n < s->batch; n++)
        for (int64_t y = 0; y < s->out_size[1]; y++)
            for (int64_t x = 0; x < s->out_size[2]; x++)
                for (int64_t o = 0; o < s->out_channels; o++) *to++ = exact_at(&p, n, y, x, o);
    return p;
}

static Problem problem_new(const Case *c) {
    ConvolutionTask step;
    set_step(&step, c);
    return problem_of(&step);
}

/* The gradient of a 3x3 weight: lanes of x and of the weight are summed over pictures, which lie
 * with their channels last or first. */
static void set_sums(ConvolutionTask *s, int64_t x_lanes, int64_t pictures, int64_t lanes,
                     int64_t height, int64_t width, int64_t padding, bool last) {
    set_step(s, &(Case){x_lanes, pictures, lanes, height, width, 1, {padding, padding}});
    for (int d = 1; d < 3; d++) s->kernel[d] = s->in_size[d] + 2 * padding - 2, s->out_size[d] = 3;
    s->x_batch = last ? 1 : height * width, s->weight_out = last ? 1 : s->kernel[1] * s->kernel[2];
    s->x_spatial[2] = last ? x_lanes : 1, s->weight_spatial[2] = last ? lanes : 1;
    s->x_spatial[1] = width * s->x_spatial[2];
    s->weight_spatial[1] = s->kernel[2] * s->weight_spatial[2];
    s->x_channel = x_lanes * height * width, s->weight_in = lanes * s->kernel[1] * s->kernel[2];
}

static void problem_free(Problem *p) { free(p->x), free(p->weight), free(p->out), free(p->exact); }

/* Root mean square of the error, in units of the typical size of a sum: x and weight are uniform in
 * [-1, 1], so a term has variance 1/9. */
static double error_of(const Problem *p) {
    double sum = 0, terms = (double)(p->step.channels * p->step.kernel[1] * p->step.kernel[2]);
    for (int64_t i = 0; i < p->count; i++) {
        double e = (double)p->out[i] - p->exact[i];
        sum += e * e;
    }
    return p->count ? sqrt(sum / (double)p->count / terms * 9) : 0;
}

/* Tiles of 9 take f32 where it may be reduced alone; they compute in f32 there, too. */
static ConvolutionTask with_method(const Problem *p, int method) {
    ConvolutionTask s = p->step;
    s.reduced = method == CONV_WINOGRAD_9;
    return s;
}

static void run(Problem *p, int method, bool pack, const Launch *launch, void *const *buffer) {
    ConvolutionTask s = with_method(p, method);
    Storage *packed = NULL;
    assert_true(convolution_fits(&s, method));
    Operands operands = {.in = {p->x, p->weight}, .out = p->out};
    operands.epilogue = launch, operands.epilogue_buffer = buffer;
    if (pack) assert_true(convolution_pack(&s, method, p->weight, &packed));
    if (packed) operands.in[TASK_WEIGHT] = NULL, operands.packed = packed->data;
    assert_true(convolution_run(&s, method, &operands));
    if (packed) storage_release(packed);
}

static bool fits(const Problem *p, int method) {
    ConvolutionTask s = with_method(p, method);
    return convolution_fits(&s, method);
}

static void results_are_right(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Problem p = problem_new(&cases[i]);
        for (int method = CONV_WINOGRAD_4; method <= CONV_WINOGRAD_9; method++) {
            if (!fits(&p, method)) continue;
            run(&p, method, false, NULL, NULL);
            double error = error_of(&p);
            if (!(error < (method == CONV_WINOGRAD_9 ? 2e-5 : 4e-6)))
                fail_msg("case %d, method %d: error %g", i, method, error);
            float *first = malloc(sizeof *first * (size_t)(p.count + 1));
            memcpy(first, p.out, sizeof *first * (size_t)p.count);
            run(&p, method, true, NULL, NULL);
            assert_memory_equal(first, p.out, sizeof *first * (size_t)p.count);
            free(first);
        }
        problem_free(&p);
    }
}

static const struct {
    int64_t x_lanes, pictures, lanes, height, width, padding;
    bool last;
} sums[] = {{16, 1, 16, 3, 3, 1, true},   {19, 3, 33, 7, 10, 1, true}, {70, 2, 40, 9, 6, 0, true},
            {33, 2, 66, 5, 8, 2, false},  {8, 9, 24, 21, 18, 1, true}, {130, 1, 17, 4, 7, 1, false},
            {20, 33, 16, 14, 14, 1, true}};

static void weight_gradients_are_right(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        ConvolutionTask s;
        set_sums(&s, sums[i].x_lanes, sums[i].pictures, sums[i].lanes, sums[i].height,
                 sums[i].width, sums[i].padding, sums[i].last);
        Problem p = problem_of(&s);
        float *one = malloc(sizeof *one * (size_t)p.count);
        uint8_t *visits = calloc((size_t)p.count, 1);
        Launch launch = {
            .function = twice_plus_one, .form = FORM_TILE, .outer_size = p.count, .split = 1};
        run(&p, CONV_WINOGRAD_SUMS, true, NULL, NULL);
        double error = error_of(&p);
        if (!(error < 2e-6)) fail_msg("case %zu: error %g", i, error);
        memcpy(one, p.out, sizeof *one * (size_t)p.count);
        cb_set_threads(7);
        run(&p, CONV_WINOGRAD_SUMS, false, &launch, (void *[]){p.out, visits});
        cb_set_threads(0);
        for (int64_t k = 0; k < p.count; k++)
            assert_true(visits[k] == 1 && p.out[k] == one[k] * 2 + 1);
        free(one), free(visits);
        problem_free(&p);
    }
}

static void what_is_no_weight_gradient_is_refused(void **state) {
    (void)state;
    ConvolutionTask good, s;
    set_sums(&good, 16, 2, 16, 8, 8, 1, true);
    assert_int_equal(
        method_own(&(Task){.kind = TASK_CONVOLUTION, .convolution = good}, false)->variant,
        CONV_WINOGRAD_SUMS);
    s = good, s.stride[1] = 2;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s = good, s.dilation[2] = 2;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s = good, s.out_size[2] = 4;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s = good, s.groups = 2;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s = good, s.channels_last = false;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s = good, s.dtype = CB_F64;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s = good, s.kernel[0] = 2;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s = good, s.x_batch = s.x_channel + 1; /* pictures lie inside the lanes */
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s = good, s.weight_out = s.weight_in + 1;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_SUMS));
    s.channels = 1;
    assert_true(convolution_fits(&s, CONV_WINOGRAD_SUMS));
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    ConvolutionTask good, s;
    set_step(&good, &cases[3]);
    assert_true(convolution_fits(&good, CONV_WINOGRAD_4));
    assert_true(convolution_fits(&good, CONV_WINOGRAD_6));
    s = good, s.stride[2] = 2;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_6));
    s = good, s.dilation[1] = 2;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_6));
    s = good, s.groups = 2;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_6));
    s = good, s.channels_last = false;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_6));
    s = good, s.kernel[2] = 1;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_6));
    s = good, s.in_size[0] = 2;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_6));
    s = good, s.dtype = CB_F64;
    assert_false(convolution_fits(&s, CONV_WINOGRAD_6));
    assert_false(convolution_fits(&good, CONV_WINOGRAD_9)); /* f32 stays nearer to the definition */
    s = good, s.dtype = CB_BF16;
    assert_true(convolution_fits(&s, CONV_WINOGRAD_9));
    set_step(&s, &cases[1]);
    assert_false(convolution_fits(&s, CONV_WINOGRAD_4));
    assert_true(convolution_fits(&s, CONV_WINOGRAD_6));
}

/* What the recorded model may rest on: rms errors of tiles of 4, 6, 7 within 1.5, 4 and 12 times
 * those of the direct method; of tiles of 9 a fiftieth of the rounding to bf16, a tenth of that to
 * f16. */
static void rounding_is_near_that_of_the_direct_method(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Problem p = problem_new(&cases[i]);
        if (!fits(&p, CONV_DIRECT) || p.step.channels < 16 || p.count == 0) {
            problem_free(&p);
            continue;
        }
        double error[CONV_METHODS] = {0};
        for (int method = CONV_DIRECT; method < CONV_METHODS; method++)
            if (fits(&p, method)) run(&p, method, true, NULL, NULL), error[method] = error_of(&p);
        if (getenv("CARBIDE_TEST_VERBOSE"))
            print_message("case %d: direct %.2e, winograd 4 %.2e, 6 %.2e, 7 %.2e, 9 %.2e\n", i,
                          error[CONV_DIRECT], error[CONV_WINOGRAD_4], error[CONV_WINOGRAD_6],
                          error[CONV_WINOGRAD_7], error[CONV_WINOGRAD_9]);
        assert_true(error[CONV_WINOGRAD_4] < 1.5 * error[CONV_DIRECT]);
        assert_true(error[CONV_WINOGRAD_6] < 4 * error[CONV_DIRECT]);
        assert_true(error[CONV_WINOGRAD_7] < 12 * error[CONV_DIRECT]);
        assert_true(error[CONV_WINOGRAD_9] < 1.4e-5);
        problem_free(&p);
    }
}

static int chosen_of(cb_dtype dtype, int64_t batch, int64_t channels, int64_t size, int64_t kernel,
                     int64_t stride) {
    Case c = {batch, channels, channels, size, size, kernel, {kernel / 2, kernel / 2}};
    ConvolutionTask s;
    set_step(&s, &c);
    s.dtype = dtype;
    for (int d = 1; d < 3; d++) {
        s.stride[d] = stride;
        s.out_size[d] = (size - 1) / stride + 1;
    }
    return method_own(&(Task){.kind = TASK_CONVOLUTION, .convolution = s}, true)->variant;
}

static int chosen(int64_t batch, int64_t channels, int64_t size, int64_t kernel, int64_t stride) {
    return chosen_of(CB_F32, batch, channels, size, kernel, stride);
}

/* Where it was measured (bench/layers.c). */
static void the_model_chooses_what_was_fastest(void **state) {
    (void)state;
    assert_int_equal(chosen(32, 256, 13, 3, 1), CONV_WINOGRAD_7);
    assert_int_equal(chosen(32, 64, 27, 5, 1), CONV_WINOGRAD_7);
    assert_int_equal(chosen(1, 64, 56, 3, 1), CONV_WINOGRAD_6);
    assert_int_equal(chosen(8, 512, 7, 3, 1), CONV_WINOGRAD_6);
    assert_int_equal(chosen(1, 512, 14, 3, 1), CONV_WINOGRAD_4); /* 36 points: too many weights */
    assert_int_equal(chosen(1, 256, 56, 1, 1), CONV_DIRECT);
    assert_int_equal(chosen(1, 256, 28, 3, 2), CONV_DIRECT);
    assert_int_equal(chosen_of(CB_F16, 32, 256, 13, 3, 1), CONV_WINOGRAD_9);
    assert_int_equal(chosen_of(CB_F16, 32, 64, 27, 5, 1), CONV_WINOGRAD_9);
}

static void epilogue_visits_each_element_once(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Problem p = problem_new(&cases[i]);
        float *plain = malloc(sizeof *plain * (size_t)(p.count + 1));
        uint8_t *visits = malloc((size_t)p.count + 1);
        Launch launch = {
            .function = twice_plus_one, .form = FORM_TILE, .outer_size = p.count, .split = 1};
        run(&p, CONV_WINOGRAD_6, true, NULL, NULL);
        memcpy(plain, p.out, sizeof *plain * (size_t)p.count);
        for (int threads = 1; threads < 40; threads *= 6) {
            cb_set_threads(threads);
            memset(visits, 0, (size_t)p.count);
            run(&p, CONV_WINOGRAD_6, true, &launch, (void *[]){p.out, visits});
            for (int64_t k = 0; k < p.count; k++) {
                assert_int_equal(visits[k], 1);
                assert_true(p.out[k] == plain[k] * 2 + 1);
            }
        }
        cb_set_threads(0);
        free(plain), free(visits);
        problem_free(&p);
    }
}

static void threads_do_not_change_a_bit(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        Problem p = problem_new(&cases[i]);
        float *one = malloc(sizeof *one * (size_t)(p.count + 1));
        for (int method = CONV_WINOGRAD_4; method <= CONV_WINOGRAD_9; method++) {
            if (!fits(&p, method)) continue;
            cb_set_threads(1);
            run(&p, method, true, NULL, NULL);
            memcpy(one, p.out, sizeof *one * (size_t)p.count);
            for (int threads = 2; threads < 40; threads *= 3) {
                cb_set_threads(threads);
                run(&p, method, threads & 2, NULL, NULL);
                assert_memory_equal(one, p.out, sizeof *one * (size_t)p.count);
            }
            cb_set_threads(0);
        }
        free(one);
        problem_free(&p);
    }
}

/* f16 and bf16 are widened, and rounded once at the end; results of f16 overflow, and are denormal,
 * too. */
static void half_precision_rounds_once(void **state) {
    (void)state;
    static const cb_dtype dtypes[] = {CB_BF16, CB_F16};
    for (int i = 0; i < 2 * CASES; i++) {
        cb_dtype dtype = dtypes[i % 2];
        static const float scales[] = {1, 3e4f, 1e-6f};
        Problem p = problem_new(&cases[i / 2]);
        ConvolutionTask s = p.step;
        s.dtype = dtype;
        int64_t xs = s.x_offset + s.batch * s.x_batch;
        int64_t ws = s.weight_offset + s.out_channels * s.weight_out;
        uint16_t *x = malloc(2 * (size_t)(xs + 1)), *w = malloc(2 * (size_t)(ws + 1));
        uint16_t *out = malloc(2 * (size_t)(p.count + 1));
        for (int64_t k = 0; k < xs; k++) {
            scalar_store(&x[k], dtype, (Scalar){.f = p.x[k] * scales[i / 2 % 3]});
            p.x[k] = (float)scalar_load(&x[k], dtype).f;
        }
        for (int64_t k = 0; k < ws; k++) {
            scalar_store(&w[k], dtype, (Scalar){.f = p.weight[k]});
            p.weight[k] = (float)scalar_load(&w[k], dtype).f;
        }
        for (int method = CONV_WINOGRAD_4; method <= CONV_WINOGRAD_9; method++) {
            if (!convolution_fits(&s, method)) continue;
            run(&p, method, false, NULL, NULL);
            assert_true(convolution_run(&s, method, &(Operands){.in = {x, w}, .out = out}));
            for (int64_t k = 0; k < p.count; k++) {
                Scalar rounded = scalar_convert((Scalar){.f = p.out[k]}, CB_F64, dtype);
                assert_true(scalar_load(&out[k], dtype).f == rounded.f);
            }
        }
        free(x), free(w), free(out);
        problem_free(&p);
    }
}

int main(void) {
    srand(7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_right),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(weight_gradients_are_right),
        cmocka_unit_test(what_is_no_weight_gradient_is_refused),
        cmocka_unit_test(rounding_is_near_that_of_the_direct_method),
        cmocka_unit_test(the_model_chooses_what_was_fastest),
        cmocka_unit_test(half_precision_rounds_once),
        cmocka_unit_test(epilogue_visits_each_element_once),
        cmocka_unit_test(threads_do_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
