/* Scaling of gradients beside PyTorch's GradScaler (tests/reference/training.py), op by op and as
 * one graph that reads no value; its state in files; what is refused. */
#include "fixture.h"
#include "training_cases.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { STEPS = 8 };

static char folder[] = "/tmp/carbide_scaler_XXXXXX", path[64];

static void fine(void) {
    if (cb_error()) fail_msg("%s", cb_error());
}

static bool same(cb_tensor *x, cb_tensor *y) { return cb_item(cb_all(cb_eq(x, y))) == 1; }

typedef struct Run {
    cb_tensor *w;
    cb_optimizer *optimizer;
    cb_scaler *scaler;
    cb_function *step;
    bool clips;
} Run;

/* The loss is sum(w * g), so that g is its gradient. */
static int scaled_step(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Run *run = user;
    (void)count;
    cb_optimizer_zero_grad(run->optimizer);
    out[0] = cb_sum(cb_mul(run->w, in[0]));
    cb_backward(cb_scaler_scale(run->scaler, out[0]), NULL);
    if (run->clips) {
        cb_scaler_unscale_(run->scaler, run->optimizer);
        cb_clip_grad_norm_(&run->w, 1, 0.5, 2);
    }
    cb_scaler_step(run->scaler, run->optimizer);
    cb_scaler_update(run->scaler);
    return 1;
}

static void run_open(Run *run, const struct ScaledCase *c, const char *scaling,
                     const char *options) {
    double value[4];
    for (int i = 0; i < 4; i++) value[i] = sin(3.0 * i) / 2;
    run->w = cb_to(cb_from_data(value, CB_F64, cb_dims(2, 2)), CB_F32);
    run->optimizer = cb_optimizer_new(c->name, c->arguments);
    assert_int_equal(cb_optimizer_add(run->optimizer, &run->w, 1, NULL), CB_OK);
    run->scaler = cb_scaler_new(scaling);
    run->step = options ? cb_compile_n(scaled_step, run, options) : NULL;
    fine();
}

static void run_close(Run *run) {
    if (run->step) cb_function_free(run->step);
    cb_scaler_free(run->scaler);
    cb_optimizer_free(run->optimizer);
}

static void run_step(Run *run, int step) {
    double value[4];
    cb_scope_open();
    for (int i = 0; i < 4; i++) value[i] = sin(i + 1.0 + step);
    if (step == 0) value[3] = NAN;
    if (step == 4) value[3] = INFINITY;
    cb_tensor *g = cb_to(cb_from_data(value, CB_F64, cb_dims(2, 2)), CB_F32), *loss;
    run->clips = step % 2;
    if (run->step)
        cb_call_n(run->step, &g, 1, &loss, 1);
    else
        scaled_step(&g, 1, &loss, run);
    fine();
    cb_scope_close();
}

static void expect_near(const struct ScaledCase *c, const char *what, double got, double wanted,
                        double tolerance) {
    if (isnan(got) && isnan(wanted)) return;
    if (!(fabs(got - wanted) <= tolerance * (1 + fabs(wanted))))
        fail_msg("%s(%s), GradScaler(%s): %s is %.9g, PyTorch's %.9g", c->name, c->arguments,
                 c->scaling, what, got, wanted);
}

static void expect_case(const struct ScaledCase *c, const char *options) {
    Run run;
    double value[4];
    cb_scope_open();
    run_open(&run, c, c->scaling, options);
    for (int i = 0; i < STEPS; i++) {
        run_step(&run, i);
        expect_near(c, "the scale", cb_scaler_scale_now(run.scaler), c->expected[i], 1e-8);
    }
    cb_read(run.w, value, CB_F64);
    /* Muon rounds to bf16, where a last bit of a product is 2^-8 of it */
    double tolerance = strcmp(c->name, "Muon") ? 3e-6 : 2e-3;
    for (int i = 0; i < 4; i++)
        expect_near(c, "a parameter", value[i], c->expected[STEPS + i], tolerance);
    if (run.step) { /* with clipping and without, and each once with a gradient that is there */
        cb_function_stats stats = cb_stats(run.step);
        assert_int_equal(stats.breaks, 0);
        assert_int_equal(stats.eager_calls, 0);
        assert_true(stats.compiled <= 4);
    }
    run_close(&run);
    cb_scope_close();
}

static void scales_as_pytorch(void **state) {
    (void)state;
    static const char *const options[] = {NULL, "backend=vm", "backend=c"};
    for (size_t i = 0; i < COUNT(scaled_cases) * COUNT(options); i++)
        expect_case(&scaled_cases[i / COUNT(options)], options[i % COUNT(options)]);
}

/* The function does not run again, so that the first run's choice would stay. */
static void graphs_without_their_function(void **state) {
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        Run run[2];
        cb_scope_open();
        for (int i = 0; i < 2; i++)
            run_open(&run[i], &scaled_cases[k], "growth_interval=1",
                     i ? "backend=vm,fullgraph=1" : NULL);
        for (int step = 0; step < STEPS; step += 2) {
            for (int i = 0; i < 2; i++) run_step(&run[i], step);
            assert_true(cb_scaler_scale_now(run[0].scaler) == cb_scaler_scale_now(run[1].scaler));
        }
        cb_tensor *off = cb_sub(cb_detach(run[0].w), cb_detach(run[1].w));
        expect_near(&scaled_cases[k], "op by op less one graph", cb_item(cb_amax(cb_abs(off))), 0,
                    1e-6);
        for (int i = 0; i < 2; i++) run_close(&run[i]);
        cb_scope_close();
    }
}

/* Neither parameters, states nor the number of steps. */
static void skipped_steps_change_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(scaled_cases); k++) {
        const struct ScaledCase *c = &scaled_cases[k];
        if (strstr(c->scaling, "False")) continue;
        for (int late = 0; late < 2; late++) {
            Run run;
            char before[80];
            snprintf(before, sizeof before, "%s.before", path);
            cb_scope_open();
            run_open(&run, c, NULL, late ? "backend=vm" : NULL);
            if (late) run_step(&run, 1);
            cb_module *states = cb_optimizer_state(run.optimizer);
            cb_tensor *w = cb_clone(cb_detach(run.w));
            assert_int_equal(cb_module_save_state(states, before), CB_OK);
            run_step(&run, late ? 4 : 0);
            assert_int_equal(cb_module_save_state(states, path), CB_OK);
            cb_safetensors *a = cb_safetensors_open(before), *b = cb_safetensors_open(path);
            for (int i = 0; i < cb_safetensors_count(a); i++) {
                const char *name = cb_safetensors_name(a, i);
                cb_tensor *x = cb_safetensors_get(a, name), *y = cb_safetensors_get(b, name);
                if (!same(x, y)) fail_msg("%s(%s): %s", c->name, c->arguments, name);
            }
            assert_true(same(w, cb_detach(run.w)));
            cb_safetensors_close(a);
            cb_safetensors_close(b);
            run_close(&run);
            cb_scope_close();
        }
    }
}

/* One gradient of an optimizer's decides for it, not for another; the scale is one for both. */
static void each_optimizer_for_itself(void **state) {
    (void)state;
    cb_tensor *p[] = {cb_ones(1), cb_ones(1), cb_ones(1)};
    cb_optimizer *two = cb_optimizer_new("SGD", "lr=1"), *one = cb_optimizer_new("SGD", "lr=1");
    cb_scaler *scaler = cb_scaler_new("init_scale=8");
    cb_optimizer_add(two, p, 2, NULL);
    cb_optimizer_add(one, p + 2, 1, NULL);
    cb_tensor *loss = cb_add(cb_mul(p[0], INFINITY), cb_add(cb_mul(p[1], 0.5), cb_mul(p[2], 0.25)));
    cb_backward(cb_scaler_scale(scaler, loss), NULL);
    assert_int_equal(cb_scaler_step(scaler, two), CB_OK);
    assert_int_equal(cb_scaler_step(scaler, one), CB_OK);
    assert_int_equal(cb_scaler_update(scaler), CB_OK);
    assert_true(cb_item(p[0]) == 1 && cb_item(p[1]) == 1 && cb_item(p[2]) == 0.75);
    assert_true(cb_scaler_scale_now(scaler) == 4);
    cb_scaler_free(scaler);
    cb_optimizer_free(two);
    cb_optimizer_free(one);
}

/* One after the other any number may be scaled, and one that sits a step out does not count. */
static void optimizers_come_and_go(void **state) {
    (void)state;
    enum { MANY = 20, AT_ONCE = 9 };
    cb_scaler *scaler = cb_scaler_new("init_scale=8");
    cb_optimizer *optimizer[MANY];
    cb_tensor *p[MANY];
    for (int i = 0; i < MANY; i++) {
        p[i] = cb_ones(1);
        optimizer[i] = cb_optimizer_new("SGD", "lr=1");
        cb_optimizer_add(optimizer[i], &p[i], 1, NULL);
        cb_backward(cb_scaler_scale(scaler, cb_sum(cb_mul(p[i], i ? 0.5 : INFINITY))), NULL);
        assert_int_equal(cb_scaler_step(scaler, optimizer[i]), CB_OK);
        assert_int_equal(cb_scaler_update(scaler), CB_OK);
        assert_true(cb_item(p[i]) == (i ? 0.5 : 1));
        assert_true(cb_scaler_scale_now(scaler) == 4); /* the first one's infinity counts once */
    }
    for (int i = 0; i < AT_ONCE; i++)
        assert_int_equal(cb_scaler_step(scaler, optimizer[i]),
                         i < AT_ONCE - 1 ? CB_OK : CB_ERR_ARGUMENT);
    expect_error("GradScaler: more than 8 optimizers since the last update");
    for (int i = 0; i < MANY; i++) cb_optimizer_free(optimizer[i]);
    cb_scaler_free(scaler);
}

/* A step that fails, since an argument was changed to one that needs a state, may be made again. */
static void failed_steps_are_made_again(void **state) {
    (void)state;
    cb_tensor *p = cb_ones(1), *momentum;
    cb_optimizer *sgd = cb_optimizer_new("SGD", "lr=1");
    cb_scaler *scaler = cb_scaler_new("init_scale=8");
    cb_optimizer_add(sgd, &p, 1, NULL);
    momentum = cb_module_get(cb_optimizer_state(sgd), "param_groups.0.momentum");
    cb_backward(cb_scaler_scale(scaler, cb_mul(cb_sum(p), 0.5)), NULL);
    cb_fill_(momentum, 0.9);
    assert_int_equal(cb_scaler_step(scaler, sgd), CB_ERR_ARGUMENT);
    expect_error("that need momentum_buffer");
    cb_fill_(momentum, 0);
    assert_int_equal(cb_scaler_step(scaler, sgd), CB_OK);
    assert_true(cb_item(p) == 0.5);
    assert_int_equal(cb_scaler_update(scaler), CB_OK);
    cb_scaler_free(scaler);
    cb_optimizer_free(sgd);
}

static void resumes_bit_for_bit(void **state) {
    (void)state;
    const struct ScaledCase *c = &scaled_cases[2];
    static const char *const made[] = {"init_scale=300, growth_interval=3, growth_factor=4",
                                       "backoff_factor=0.1", NULL};
    for (int k = 0; k < 3; k++) {
        Run whole, other;
        cb_scope_open();
        run_open(&whole, c, made[0], k ? "backend=vm" : NULL);
        run_open(&other, c, made[k], k ? "backend=vm" : NULL);
        for (int i = 0; i < 3; i++) run_step(&whole, i);
        run_step(&other, 0);
        assert_int_equal(cb_training_save(path, NULL, whole.optimizer, NULL, NULL, whole.scaler),
                         CB_OK);
        assert_int_equal(cb_training_load(path, NULL, other.optimizer, NULL, NULL, other.scaler),
                         CB_OK);
        cb_no_grad_open();
        cb_assign(other.w, whole.w);
        cb_no_grad_close();
        for (int i = 3; i < STEPS; i++) {
            run_step(&whole, i);
            run_step(&other, i);
            assert_true(cb_scaler_scale_now(whole.scaler) == cb_scaler_scale_now(other.scaler));
        }
        assert_true(same(cb_detach(whole.w), cb_detach(other.w)));
        run_close(&whole);
        run_close(&other);
        cb_scope_close();
    }
    static const char *const names[] = {"scaler.scale", "scaler.growth_factor",
                                        "scaler.backoff_factor", "scaler.growth_interval",
                                        "scaler._growth_tracker"};
    cb_safetensors *file = cb_safetensors_open(path);
    for (size_t i = 0; i < COUNT(names); i++) assert_non_null(cb_safetensors_get(file, names[i]));
    cb_safetensors_close(file);
    assert_true(cb_training_load(path, NULL, NULL, NULL) != CB_OK);
    expect_error("scaler.backoff_factor");
}

static void refusals(void **state) {
    (void)state;
    static const char *const made[][2] = {
        {"scale=2", "GradScaler has no argument 'scale'"},
        {"init_scale=0", "GradScaler: init_scale is 0, and has to be above 0"},
        {"growth_factor=1", "growth_factor is 1, and has to be finite and above 1"},
        {"backoff_factor=1", "backoff_factor is 1, and has to be above 0 and below 1"},
        {"growth_interval=0", "growth_interval is 0, and has to be a whole number above 0"},
    };
    for (size_t i = 0; i < COUNT(made); i++) {
        assert_null(cb_scaler_new(made[i][0]));
        expect_error(made[i][1]);
    }
    Run run;
    run_open(&run, &scaled_cases[0], NULL, NULL);
    assert_true(cb_scaler_update(run.scaler) != CB_OK);
    expect_error("nothing was unscaled since the last one");
    assert_true(cb_scaler_step(run.scaler, run.optimizer) != CB_OK);
    expect_error("no parameter of the optimizer has a gradient");
    cb_backward(cb_scaler_scale(run.scaler, cb_sum(run.w)), NULL);
    assert_int_equal(cb_scaler_unscale_(run.scaler, run.optimizer), CB_OK);
    assert_true(cb_scaler_unscale_(run.scaler, run.optimizer) != CB_OK);
    expect_error("cb_scaler_unscale_: the optimizer was unscaled already");
    assert_int_equal(cb_scaler_step(run.scaler, run.optimizer), CB_OK);
    assert_true(cb_scaler_step(run.scaler, run.optimizer) != CB_OK);
    expect_error("cb_scaler_step: the optimizer was stepped already");
    assert_int_equal(cb_scaler_update(run.scaler), CB_OK);
    cb_tensor *half = cb_ones(2, CB_F16);
    cb_optimizer *halves = cb_optimizer_new("SGD", NULL);
    cb_optimizer_add(halves, &half, 1, NULL);
    cb_backward(cb_sum(half), NULL);
    assert_int_equal(cb_scaler_step(run.scaler, halves), CB_ERR_DTYPE);
    expect_error("gradients of f16 cannot be unscaled");
    cb_optimizer_free(halves);
    run_close(&run);
    cb_scaler_free(run.scaler);
    expect_error("cb_scaler_free: the scaler was freed at test_scaler.c");
    cb_scaler_free(NULL);
    cb_scaler *gone[] = {NULL, run.scaler};
    for (int i = 0; i < 2; i++) {
        const char *part = i ? "was freed at test_scaler.c" : "NULL";
        assert_null(cb_scaler_scale(gone[i], half));
        expect_error(part);
        assert_true(cb_scaler_unscale_(gone[i], run.optimizer) != CB_OK);
        expect_error(part);
        assert_true(cb_scaler_step(gone[i], run.optimizer) != CB_OK);
        expect_error(part);
        assert_true(cb_scaler_update(gone[i]) != CB_OK);
        expect_error(part);
        assert_true(isnan(cb_scaler_scale_now(gone[i])));
        expect_error(part);
        assert_null(cb_scaler_state(gone[i]));
        expect_error(part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(scales_as_pytorch),
        TEST(graphs_without_their_function),
        TEST(skipped_steps_change_nothing),
        TEST(each_optimizer_for_itself),
        TEST(optimizers_come_and_go),
        TEST(failed_steps_are_made_again),
        TEST(resumes_bit_for_bit),
        TEST(refusals),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/run", folder);
    int failed = cmocka_run_group_tests_name("scaler", tests, NULL, NULL);
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return failed || system(command);
}
