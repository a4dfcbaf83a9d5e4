/* Handwritten digits: a small convolutional network learns to read 8x8 pictures, in eager.
 *
 *     train_digits [--compile]
 *
 * data/digits.npy has 1797 pictures by 13 writers (data/README.md): a row is 64 pixels of 0..16 and
 * the digit. Every fifth is kept for the test. Each epoch shifts every picture by up to one pixel.
 * --compile hands the step to cb_compile, which is the one line that compiling it takes. */
#include <carbide.h>
#include <carbide_data.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, BATCH = 64, EPOCHS = 20, MOST = 1797 };

typedef struct Pictures {
    float pixel[MOST][PIXELS]; /* 0..1 */
    int64_t digit[MOST];
    int count;
} Pictures;

static Pictures train, test;

/* Pictures 4, 9, 14, ... are the test. */
static bool load(const char *path) {
    cb_tensor *rows = cb_npy_load(path);
    if (!rows || cb_size(rows, 0) != MOST || cb_size(rows, 1) != PIXELS + 1) return false;
    const uint8_t *row = cb_data_const(rows);
    for (int i = 0; i < MOST; i++, row += PIXELS + 1) {
        Pictures *to = i % 5 == 4 ? &test : &train;
        for (int k = 0; k < PIXELS; k++) to->pixel[to->count][k] = (float)row[k] / 16;
        to->digit[to->count++] = row[PIXELS];
    }
    return true;
}

/* ---- the step ------------------------------------------------------------------------------- */

typedef struct Run {
    cb_module *net;
    cb_optimizer *optimizer;
} Run;

/* Forward, loss, backward and update: in[0] is a batch of pictures, in[1] its digits. */
static int step(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Run *run = user;
    (void)count;
    cb_optimizer_zero_grad(run->optimizer);
    out[0] = cb_cross_entropy(cb_forward(run->net, in[0]), in[1], NULL, -100, CB_REDUCE_MEAN, 0.05);
    cb_backward(out[0], NULL);
    cb_optimizer_step(run->optimizer);
    return 1;
}

static cb_module *network(void) {
    cb_module *layers[] = {cb_nn_conv2d(1, 16, 3, 1, 1),
                           cb_nn_relu(),
                           cb_nn_conv2d(16, 32, 3, 1, 1),
                           cb_nn_relu(),
                           cb_nn_max_pool2d(2),
                           cb_nn_flatten(),
                           cb_nn_linear(32 * PIXELS / 4, 64, true),
                           cb_nn_relu(),
                           cb_nn_linear(64, 10, true)};
    return cb_nn_sequential_n(layers, sizeof layers / sizeof *layers);
}

/* ---- batches -------------------------------------------------------------------------------- */

static void shuffle(int *order, int count) {
    for (int i = 0; i < count; i++) order[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int k = rand() % (i + 1), swapped = order[i];
        order[i] = order[k], order[k] = swapped;
    }
}

/* A picture, moved by -1..1 in both directions; what comes in is 0. */
static void moved(const float *from, float *to) {
    int down = rand() % 3 - 1, right = rand() % 3 - 1;
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int fy = y - down, fx = x - right;
            bool inside = fy >= 0 && fy < SIDE && fx >= 0 && fx < SIDE;
            to[y * SIDE + x] = inside ? from[fy * SIDE + fx] : 0;
        }
}

static void batch(const int *order, cb_tensor **in) {
    static float pixel[BATCH][PIXELS];
    static int64_t digit[BATCH];
    for (int i = 0; i < BATCH; i++) {
        moved(train.pixel[order[i]], pixel[i]);
        digit[i] = train.digit[order[i]];
    }
    in[0] = cb_from_data(pixel, CB_F32, cb_dims(BATCH, 1, SIDE, SIDE));
    in[1] = cb_from_data(digit, CB_I64, cb_dims(BATCH));
}

/* The share of test pictures that are read rightly. */
static double accuracy(cb_module *net) {
    cb_no_grad_open();
    cb_tensor *x = cb_from_data(test.pixel, CB_F32, cb_dims(test.count, 1, SIDE, SIDE));
    cb_tensor *digit = cb_from_data(test.digit, CB_I64, cb_dims(test.count));
    double right = cb_item(cb_sum(cb_eq(cb_argmax(cb_forward(net, x), 1), digit)));
    cb_no_grad_close();
    return right / test.count;
}

int main(int argc, char **argv) {
    cb_manual_seed(1), srand(1);
    cb_set_threads(1); /* what ops of this size gain by a second one, they lose by waiting for it */
    if (!load(CARBIDE_EXAMPLE_DATA "/digits.npy")) return fprintf(stderr, "%s\n", cb_error()), 1;
    Run run = {network(), cb_optimizer_new("AdamW", NULL)};
    cb_optimizer_add_module(run.optimizer, run.net, NULL);
    int each = train.count / BATCH, steps = EPOCHS * each, order[MOST];
    char rates[80];
    snprintf(rates, sizeof rates, "max_lr=0.005, total_steps=%d", steps + 1);
    cb_schedule *schedule = cb_schedule_new(run.optimizer, "OneCycleLR", rates);
    bool compile = argc > 1 && !strcmp(argv[1], "--compile");
    cb_function *compiled = compile ? cb_compile_n(step, &run, NULL) : NULL;

    cb_progress *progress = cb_progress_new(0, steps, BATCH, "samples", NULL);
    double loss = 0;
    for (int n = 0; n < steps && !cb_error(); n++) {
        if (n % each == 0) shuffle(order, train.count);
        cb_scope_open();
        cb_tensor *in[2], *out[1];
        batch(order + n % each * BATCH, in);
        int given = compiled ? cb_call_n(compiled, in, 2, out, 1) : step(in, 2, out, &run);
        cb_schedule_step(schedule, 0);
        bool due = cb_progress_due(progress);
        if (given == 1 && (due || n == steps - 1)) loss = cb_item(out[0]);
        if (due) cb_progress_step(progress, n + 1, loss, cb_optimizer_lr(run.optimizer, 0));
        cb_scope_close();
    }
    double seconds = cb_progress_seconds(progress);
    cb_progress_free(progress);
    cb_scope_open();
    double right = accuracy(run.net);
    cb_scope_close();
    printf("%d pictures learned %d times in %.1f s: loss %.4f, %.1f %% of %d others are right\n",
           train.count, EPOCHS, seconds, loss, 100 * right, test.count);
    if (compiled) cb_function_free(compiled);
    cb_schedule_free(schedule);
    cb_optimizer_free(run.optimizer);
    cb_module_free(run.net);
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return cb_error() || !(right > 0.97);
}
