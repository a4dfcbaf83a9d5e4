/* Networks that learn, beside PyTorch: twenty steps from the same weights give the same losses,
 * norms of gradients and parameters, in eager and as one graph. tests/models/reference.py wrote
 * training.safetensors; the test runs in the root of the tree. */
#include "fixture.h"

#include "carbide_models.h"
#include <math.h>
#include <string.h>

#define DATA "tests/models/data/"
enum { STEPS = 20, MOST_PARAMETERS = 128 };

typedef struct Lesson {
    const char *name; /* of the file with its weights, and of what is expected */
    const char *optimizer, *arguments;
    const char *kept[3]; /* parameters and buffers that are compared at the end */
    double tolerance;    /* of f32, relative: errors grow with each step */
} Lesson;

static const Lesson gpt2 = {
    "gpt2", "AdamW", "lr=1e-3", {"wte.weight", "h.0.ln1.weight", "h.1.fc.weight"}, 1e-4};
/* Seen: 1.1e-5 off, in the norms; PyTorch's own are 6.2e-6 off what it computes in f64. */
static const Lesson resnet18 = {"resnet18",
                                "SGD",
                                "lr=0.01, momentum=0.9",
                                {"conv1.weight", "bn1.running_var", "fc.weight"},
                                1e-4};

typedef struct Pupil {
    cb_module *net;
    cb_optimizer *optimizer;
    cb_tensor *parameter[MOST_PARAMETERS];
    int count;
} Pupil;

static int step(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Pupil *pupil = user;
    (void)count;
    cb_optimizer_zero_grad(pupil->optimizer);
    cb_tensor *logits = cb_forward(pupil->net, in[0]);
    logits = cb_reshape(logits, cb_dims(-1, cb_size(logits, cb_rank(logits) - 1)));
    out[0] = cb_cross_entropy(logits, in[1]);
    cb_backward(out[0], NULL);
    out[1] = cb_clip_grad_norm_(pupil->parameter, pupil->count, 1.0, 2);
    cb_optimizer_step(pupil->optimizer);
    return 2;
}

static void expect_close(const Lesson *lesson, const char *what, cb_tensor *got,
                         cb_tensor *wanted) {
    double scale = cb_item(cb_amax(cb_abs(wanted)));
    double worst = cb_item(cb_amax(cb_abs(cb_sub(got, wanted))));
    if (cb_error() || !(worst <= lesson->tolerance * scale))
        fail_msg("%s %s: off by %g of %g %s", lesson->name, what, worst, scale,
                 cb_error() ? cb_error() : "");
}

static cb_tensor *of_file(cb_safetensors *file, const Lesson *lesson, const char *what) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", lesson->name, what);
    cb_tensor *x = cb_safetensors_get(file, name);
    assert_non_null(x);
    return x;
}

static void expect_expected(const Lesson *lesson, cb_module *net, const float *loss,
                            const float *norm) {
    cb_safetensors *file = cb_safetensors_open(DATA "training.safetensors");
    assert_non_null(file);
    cb_no_grad_open();
    expect_close(lesson, "losses", cb_from_data(loss, CB_F32, cb_dims(STEPS)),
                 of_file(file, lesson, "loss"));
    expect_close(lesson, "norms", cb_from_data(norm, CB_F32, cb_dims(STEPS)),
                 of_file(file, lesson, "norm"));
    for (int i = 0; i < 3; i++)
        expect_close(lesson, lesson->kept[i], cb_module_get(net, lesson->kept[i]),
                     of_file(file, lesson, lesson->kept[i]));
    cb_no_grad_close();
    cb_safetensors_close(file);
}

/* options NULL: in eager. */
static void learn(const Lesson *lesson, cb_module *net, cb_tensor *x, cb_tensor *target,
                  const char *options) {
    char path[96];
    snprintf(path, sizeof path, DATA "%s.safetensors", lesson->name);
    assert_int_equal(cb_module_load_state(net, path, true), CB_OK);
    Pupil pupil = {net, cb_optimizer_new(lesson->optimizer, lesson->arguments), {NULL}, 0};
    assert_int_equal(cb_optimizer_add_module(pupil.optimizer, net, NULL), CB_OK);
    pupil.count = cb_module_parameters(net, pupil.parameter, MOST_PARAMETERS);
    cb_function *fast = options ? cb_compile_n(step, &pupil, options) : NULL;
    float loss[STEPS], norm[STEPS];
    for (int i = 0; i < STEPS; i++) {
        cb_tensor *in[2] = {x, target}, *out[2];
        cb_scope_open();
        assert_int_equal(fast ? cb_call_n(fast, in, 2, out, 2) : step(in, 2, out, &pupil), 2);
        loss[i] = (float)cb_item(out[0]);
        norm[i] = (float)cb_item(out[1]);
        cb_scope_close();
    }
    expect_expected(lesson, net, loss, norm);
    if (fast) { /* one graph: gradients are freed by the step, so the second call finds one */
        cb_function_stats stats = cb_stats(fast);
        assert_int_equal(stats.eager_calls, 0);
        assert_int_equal(stats.breaks, 0);
        cb_function_free(fast);
    }
    cb_optimizer_free(pupil.optimizer);
    cb_module_free(net);
}

static cb_tensor *io(const char *path, const char *name) {
    cb_safetensors *file = cb_safetensors_open(path);
    cb_tensor *x = file ? cb_safetensors_get(file, name) : NULL;
    assert_non_null(x);
    cb_safetensors_close(file);
    return x;
}

/* The head's weight is the embedding's: it learns from both, and is clipped and stepped once. */
static void teach_gpt2(const char *options) {
    cb_tensor *text = io(DATA "gpt2_io.safetensors", "x");
    int64_t length = cb_size(text, 1) - 1;
    cb_tensor *target = cb_reshape(cb_narrow(text, 1, 1, length), -1);
    learn(&gpt2, cb_model_gpt2(cb_gpt2_tiny_config()), cb_narrow(text, 1, 0, length), target,
          options);
}

static void teach_resnet18(const char *options) {
    cb_resnet_config tiny = cb_resnet18_config();
    const int64_t classes[] = {3, 7};
    tiny.width = 2;
    tiny.classes = 10;
    learn(&resnet18, cb_model_resnet(tiny), io(DATA "resnet18_io.safetensors", "x"),
          cb_from_data(classes, CB_I64, 2), options);
}

static void gpt2_learns_as_pytorchs(void **state) {
    (void)state;
    teach_gpt2(NULL);
    teach_gpt2("backend=vm");
}

static void resnet18_learns_as_pytorchs(void **state) {
    (void)state;
    teach_resnet18(NULL);
    teach_resnet18("backend=vm");
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope)

int main(void) {
    const struct CMUnitTest tests[] = {ONE(gpt2_learns_as_pytorchs),
                                       ONE(resnet18_learns_as_pytorchs)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
