/* What a file of a training run gives back: what optimizers and schedules compute with, whatever
 * they were made with; what does not fit is refused, and changes nothing. */
#include "fixture.h"
#include "training_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static char folder[] = "/tmp/carbide_train_state_XXXXXX", path[64];

static void fine(void) {
    if (cb_error()) fail_msg("%s", cb_error());
}

/* A matrix and a vector, each in a group of its own. */
typedef struct Run {
    cb_module *net;
    cb_optimizer *optimizer;
    cb_function *step;
    cb_tensor *target;
} Run;

static int step_run(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Run *run = user;
    (void)count;
    cb_optimizer_zero_grad(run->optimizer);
    out[0] = cb_mse_loss(cb_tanh(cb_forward(run->net, in[0])), run->target);
    cb_backward(out[0], NULL);
    cb_optimizer_step(run->optimizer);
    return 1;
}

/* options NULL: op by op. */
static void run_open(Run *run, const char *name, const char *arguments, const char *second,
                     const char *options) {
    run->net = cb_nn_linear(4, 3, strcmp(name, "Muon") != 0);
    cb_tensor *weight = cb_module_get(run->net, "weight");
    run->optimizer = cb_optimizer_new(name, arguments);
    fine();
    assert_int_equal(cb_optimizer_add(run->optimizer, &weight, 1, NULL), CB_OK);
    if (strcmp(name, "Muon")) {
        cb_tensor *bias = cb_module_get(run->net, "bias");
        assert_int_equal(cb_optimizer_add(run->optimizer, &bias, 1, second), CB_OK);
    }
    run->step = options ? cb_compile_n(step_run, run, options) : NULL;
    run->target = cb_sin(cb_reshape(cb_arange(0, 18), cb_dims(6, 3)));
}

static void run_close(Run *run) {
    if (run->step) cb_function_free(run->step);
    cb_optimizer_free(run->optimizer);
    cb_module_free(run->net);
}

static void run_train(Run *run, int steps) {
    for (int i = 0; i < steps; i++) {
        cb_scope_open();
        cb_tensor *x = cb_cos(cb_reshape(cb_arange(0, 24), cb_dims(6, 4))), *loss;
        int count = run->step ? cb_call_n(run->step, &x, 1, &loss, 1) : step_run(&x, 1, &loss, run);
        fine();
        assert_int_equal(count, 1);
        cb_scope_close();
    }
}

static void expect_equal(const Run *a, const Run *b, const char *what) {
    float value[2][15] = {{0}};
    for (int i = 0; i < 2; i++) {
        const Run *run = i ? b : a;
        cb_tensor *bias = cb_module_get(run->net, "bias");
        cb_clear_error(); /* Muon's has none */
        cb_read(cb_module_get(run->net, "weight"), value[i], CB_F32);
        if (bias) cb_read(bias, value[i] + 12, CB_F32);
    }
    fine();
    if (memcmp(value[0], value[1], sizeof value[0])) fail_msg("%s goes on otherwise", what);
}

/* Those of the file, those that the other one was made with. */
static const char *const made[][4] = {
    {"AdamW", "lr=0.1, betas=(0.5, 0.9), weight_decay=0.5, eps=0.1", NULL, ""},
    {"AdamW", "weight_decay=0", "maximize=True, betas=(0.1, 0.2)", "weight_decay=0.1"},
    {"AdamW", "amsgrad=True, lr=0.1", NULL, "amsgrad=True, eps=1"},
    {"Adam", "lr=0.05, eps=0.5, weight_decay=0.3, maximize=True", "eps=0", "lr=1"},
    {"SGD", "lr=0.1, momentum=0.9, dampening=0.3", "weight_decay=0.5",
     "momentum=0.1, dampening=0.1"},
    {"SGD", "lr=0.1, momentum=0.9, nesterov=True", "maximize=True", "momentum=0.1"},
    {"SGD", "lr=0.1, weight_decay=0.2", "maximize=True", "lr=0.1"},
    {"Adagrad", "lr=0.1, lr_decay=0.5, eps=0.1, weight_decay=0.1", NULL, ""},
    {"RMSprop", "alpha=0.5, momentum=0.5, centered=True, eps=0.1", "weight_decay=1",
     "momentum=0.9, centered=True"},
    {"Lion", "betas=(0.2, 0.3), weight_decay=0.5, lr=0.1", "maximize=True", "lr=0.2"},
    {"Muon", "lr=0.1, momentum=0.5, nesterov=False, ns_steps=2, weight_decay=0", NULL, ""},
};

static void arguments_come_from_the_file(void **state) {
    (void)state;
    static const char *const options[] = {NULL, "backend=vm", "backend=vm,fullgraph=1"};
    for (size_t k = 0; k < COUNT(made) * COUNT(options); k++) {
        const char *const *row = made[k / COUNT(options)];
        const char *how = options[k % COUNT(options)];
        Run whole, other;
        cb_scope_open();
        run_open(&whole, row[0], row[1], row[2], how);
        run_open(&other, row[0], row[3], NULL, how);
        run_train(&other, 3); /* compiled with its own */
        run_train(&whole, 3);
        assert_int_equal(cb_training_save(path, whole.net, whole.optimizer, NULL), CB_OK);
        assert_int_equal(cb_training_load(path, other.net, other.optimizer, NULL), CB_OK);
        run_train(&whole, 3);
        run_train(&other, 3);
        expect_equal(&whole, &other, row[1]);
        run_close(&whole);
        run_close(&other);
        cb_scope_close();
    }
}

/* As a schedule of momentum would do it. */
static void arguments_that_are_written(void **state) {
    (void)state;
    Run a, b;
    run_open(&a, "SGD", "lr=0.1, momentum=0.9", NULL, "backend=vm");
    run_open(&b, "SGD", "lr=0.1, momentum=0.5", NULL, NULL);
    cb_no_grad_open();
    cb_assign(cb_module_get(b.net, "weight"), cb_module_get(a.net, "weight"));
    cb_assign(cb_module_get(b.net, "bias"), cb_module_get(a.net, "bias"));
    cb_no_grad_close();
    for (int i = 0; i < 2; i++) {
        cb_module *groups = cb_module_child(cb_optimizer_state(a.optimizer), "param_groups");
        cb_module *group = cb_module_child(groups, i ? "1" : "0");
        cb_fill_(cb_module_get(group, "momentum"), 0.5);
    }
    run_train(&a, 3);
    run_train(&b, 3);
    expect_equal(&a, &b, "momentum");
    cb_module *group = cb_optimizer_state(a.optimizer);
    cb_fill_(cb_module_get(group, "param_groups.1.momentum"), -1);
    assert_true(cb_optimizer_step(a.optimizer) != CB_OK);
    expect_error("SGD: momentum is -1, and has to be finite and at least 0");
    cb_fill_(cb_module_get(group, "param_groups.1.momentum"), 0.5);
    expect_equal(&a, &b, "a step that is refused"); /* and has counted nothing: */
    assert_true(cb_item(cb_module_get(group, "state.0.step")) == 3);
    run_close(&a);
    run_close(&b);
    run_open(&a, "Adam", NULL, NULL, NULL);
    cb_fill_(cb_module_get(cb_optimizer_state(a.optimizer), "param_groups.0.amsgrad"), 1);
    assert_true(cb_optimizer_step(a.optimizer) != CB_OK);
    expect_error("Adam: its arguments were changed to some that need max_exp_avg_sq");
    cb_module *first = cb_module_child(cb_optimizer_state(a.optimizer), "param_groups");
    cb_module_buffer(cb_module_child(first, "0"), "betas", cb_zeros(3));
    assert_true(cb_optimizer_step(a.optimizer) != CB_OK);
    expect_error("Adam: its buffer betas was replaced");
    run_close(&a);
}

/* ---- schedules ------------------------------------------------------------------------------- */

typedef struct Course {
    const char *name, *arguments, *then, *rest;
    int milestone;
} Course;

static cb_schedule *schedule_of(cb_optimizer *optimizer, const Course *course) {
    cb_schedule *schedule = cb_schedule_new(optimizer, course->name, course->arguments);
    if (course->then) cb_schedule_then(schedule, course->milestone, course->then, course->rest);
    fine();
    return schedule;
}

static void schedules_come_from_the_file(void **state) {
    (void)state;
    static const Course courses[][2] = {
        {{"StepLR", "step_size=2, gamma=0.5", NULL, NULL, 0},
         {"StepLR", "step_size=7", NULL, NULL, 0}},
        {{"CosineAnnealingLR", "T_max=9, eta_min=0.01", NULL, NULL, 0},
         {"CosineAnnealingLR", "T_max=30", NULL, NULL, 0}},
        {{"OneCycleLR", "max_lr=1, total_steps=20, three_phase=True", NULL, NULL, 0},
         {"OneCycleLR", "max_lr=2, total_steps=6", NULL, NULL, 0}},
        {{"ReduceLROnPlateau", "patience=1, factor=0.5", NULL, NULL, 0},
         {"ReduceLROnPlateau", "patience=9", NULL, NULL, 0}},
        {{"LinearLR", "start_factor=0.5, total_iters=3", "StepLR", "step_size=2", 8},
         {"LinearLR", "start_factor=0.1, total_iters=9", "StepLR", "step_size=9", 5}},
    };
    for (size_t k = 0; k < COUNT(courses); k++) {
        cb_scope_open();
        cb_tensor *p[] = {cb_zeros(1), cb_zeros(1)};
        cb_optimizer *optimizer[2];
        cb_schedule *schedule[2];
        for (int i = 0; i < 2; i++) {
            optimizer[i] = cb_optimizer_new("SGD", i ? "lr=0.25" : "lr=0.5");
            cb_optimizer_add(optimizer[i], p + i, 1, NULL);
            schedule[i] = schedule_of(optimizer[i], &courses[k][i]);
        }
        for (int i = 0; i < 4; i++) cb_schedule_step(schedule[0], 1);
        assert_int_equal(cb_training_save(path, NULL, optimizer[0], schedule[0]), CB_OK);
        assert_int_equal(cb_training_load(path, NULL, optimizer[1], schedule[1]), CB_OK);
        for (int n = 0; n < 10; n++) {
            double a = cb_optimizer_lr(optimizer[0], 0), b = cb_optimizer_lr(optimizer[1], 0);
            if (a != b) fail_msg("%s, step %d: %g, not %g", courses[k][0].name, n, b, a);
            for (int i = 0; i < 2; i++) cb_schedule_step(schedule[i], 1);
            fine();
        }
        for (int i = 0; i < 2; i++) {
            cb_schedule_free(schedule[i]);
            cb_optimizer_free(optimizer[i]);
        }
        cb_scope_close();
    }
}

/* ---- a first gradient in a later step -------------------------------------------------------- */

typedef struct Late {
    cb_tensor *p[2];
    cb_optimizer *optimizer;
    bool both;
} Late;

static int step_late(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Late *late = user;
    (void)in, (void)count;
    cb_optimizer_zero_grad(late->optimizer);
    out[0] = cb_sin(late->p[0]);
    if (late->both) out[0] = cb_add(out[0], cb_cos(late->p[1]));
    cb_backward(cb_sum(out[0]), NULL);
    out[0] = cb_detach(out[0]);
    cb_optimizer_step(late->optimizer);
    return 1;
}

static cb_optimizer *late_optimizer(Late *late, const char *arguments) {
    cb_optimizer *optimizer = cb_optimizer_new("SGD", arguments);
    assert_int_equal(cb_optimizer_add(optimizer, late->p, 2, NULL), CB_OK);
    return optimizer;
}

/* options NULL: op by op. renewed: before each step, by an optimizer that goes on from a file. */
static void expect_late(const struct LateCase *c, const char *options, bool renewed) {
    Late late = {{cb_full(1, 0.5, CB_F64), cb_full(1, 1.5, CB_F64)}, NULL, false};
    late.optimizer = late_optimizer(&late, c->arguments);
    cb_function *step = options ? cb_compile_n(step_late, &late, options) : NULL;
    for (int i = 0; i < 6; i++) {
        cb_scope_open();
        if (renewed) {
            assert_int_equal(cb_training_save(path, NULL, late.optimizer, NULL), CB_OK);
            cb_optimizer_free(late.optimizer);
            late.optimizer = late_optimizer(&late, c->arguments);
            assert_int_equal(cb_training_load(path, NULL, late.optimizer, NULL), CB_OK);
        }
        cb_tensor *in = late.p[0], *out;
        late.both = i == 1 || i == 2 || i == 5;
        if (step)
            cb_call_n(step, &in, 0, &out, 1);
        else
            step_late(&in, 0, &out, &late);
        fine();
        for (int k = 0; k < 2; k++) {
            double got = cb_item(late.p[k]), wanted = c->expected[2 * i + k];
            if (!(fabs(got - wanted) <= 1e-14))
                fail_msg("SGD(%s) %s: %d behind step %d is %.17g, PyTorch's %.17g", c->arguments,
                         options ? options : "op by op", k, i, got, wanted);
        }
        cb_scope_close();
    }
    if (step) cb_function_free(step);
    cb_optimizer_free(late.optimizer);
}

static void first_gradients_are_not_dampened(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(late_cases); k++)
        for (int renewed = 0; renewed < 2; renewed++) {
            expect_late(&late_cases[k], NULL, renewed);
            expect_late(&late_cases[k], "backend=vm", renewed);
            expect_late(&late_cases[k], "backend=c", renewed);
        }
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* The file with one tensor less, or one that is a vector of 3. */
static void write_damaged(const char *to, const char *name, bool drop) {
    cb_safetensors *file = cb_safetensors_open(path);
    const char *names[64];
    cb_tensor *tensors[64];
    int count = 0;
    for (int i = 0; i < cb_safetensors_count(file); i++) {
        bool hit = strcmp(cb_safetensors_name(file, i), name) == 0;
        if (hit && drop) continue;
        names[count] = cb_safetensors_name(file, i);
        tensors[count] = hit ? cb_zeros(3) : cb_safetensors_get(file, names[count]);
        count++;
    }
    assert_int_equal(cb_safetensors_save(to, names, tensors, count), CB_OK);
    cb_safetensors_close(file);
}

static void expect_refused(Run *run, cb_schedule *schedule, const char *from, const char *part) {
    cb_module *group = cb_module_child(cb_optimizer_state(run->optimizer), "param_groups");
    double lr = cb_item(cb_module_get(cb_module_child(group, "0"), "lr"));
    double sum = cb_item(cb_sum(cb_module_get(run->net, "weight")));
    assert_true(cb_training_load(from, run->net, run->optimizer, schedule) != CB_OK);
    expect_error(part);
    assert_true(lr == cb_item(cb_module_get(cb_module_child(group, "0"), "lr")));
    assert_true(sum == cb_item(cb_sum(cb_module_get(run->net, "weight"))));
}

static void files_that_do_not_fit(void **state) {
    (void)state;
    Run adam, adamw, other;
    run_open(&adamw, "AdamW", "lr=0.1", NULL, NULL);
    run_open(&adam, "Adam", NULL, NULL, NULL);
    run_open(&other, "AdamW", NULL, NULL, NULL);
    cb_schedule *steps = cb_schedule_new(adamw.optimizer, "StepLR", "step_size=2");
    cb_schedule *cosine = cb_schedule_new(other.optimizer, "CosineAnnealingLR", "T_max=2");
    run_train(&adamw, 2);
    assert_int_equal(cb_training_save(path, adamw.net, adamw.optimizer, NULL), CB_OK);
    expect_refused(&adam, NULL, path, "Missing key(s) in state_dict: \"optimizer.Adam\".");
    expect_refused(&adam, NULL, path, "Unexpected key(s) in state_dict: \"optimizer.AdamW\".");
    char damaged[80];
    snprintf(damaged, sizeof damaged, "%s.damaged", path);
    write_damaged(damaged, "optimizer.param_groups.1.eps", true);
    expect_refused(&other, NULL, damaged,
                   "Missing key(s) in state_dict: \"optimizer.param_groups.1.eps\".");
    write_damaged(damaged, "optimizer.param_groups.0.betas", false);
    expect_refused(&other, NULL, damaged, "size mismatch for optimizer.param_groups.0.betas");
    assert_int_equal(cb_training_save(path, adamw.net, adamw.optimizer, steps), CB_OK);
    expect_refused(&other, cosine, path, "\"scheduler.CosineAnnealingLR\"");
    expect_refused(&other, cosine, path, "\"scheduler.StepLR\"");
    cb_schedule_free(cosine);
    cosine = cb_schedule_new(other.optimizer, "StepLR", "step_size=2");
    write_damaged(damaged, "scheduler.gamma", true);
    expect_refused(&other, cosine, damaged, "Missing key(s) in state_dict: \"scheduler.gamma\".");
    cb_schedule_free(cosine);
    cb_schedule_free(steps);
    run_close(&adam);
    run_close(&adamw);
    run_close(&other);
}

/* The file with another number of every element of a tensor. */
static void write_number(const char *to, const char *name, double value) {
    cb_safetensors *file = cb_safetensors_open(path);
    const char *names[64];
    cb_tensor *tensors[64];
    bool hit = false;
    int count = 0;
    for (; count < cb_safetensors_count(file); count++) {
        names[count] = cb_safetensors_name(file, count);
        tensors[count] = cb_safetensors_get(file, names[count]);
        if (strcmp(names[count], name)) continue;
        tensors[count] = cb_full_like(cb_to(tensors[count], CB_F64), value);
        hit = true;
    }
    if (!hit) { /* a name that is tied to another */
        names[count] = name;
        tensors[count++] = cb_full(CB_NO_DIMS, value, CB_F64);
    }
    assert_int_equal(cb_safetensors_save(to, names, tensors, count), CB_OK);
    cb_safetensors_close(file);
}

/* What constructors refuse, and counts that nobody counted. */
static void numbers_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double value;
        const char *error;
    } cases[] = {
        {"optimizer.param_groups.0.lr", -1, "lr is -1, and has to be finite and at least 0"},
        {"optimizer.param_groups.1.lr", NAN, "lr is "},
        {"optimizer.param_groups.0.eps", -1, "eps is -1"},
        {"optimizer.param_groups.1.betas", 1, "betas is 1, and has to be at least 0 and below 1"},
        {"optimizer.state.0.step", -1, "step is -1"},
        {"optimizer.state.1.step", -1, "state.1.step is -1"},
        {"optimizer.state.0.step", 2.5, "step is 2.5, and has to be a whole number"},
        {"scheduler.last_epoch", -5, "scheduler.last_epoch is -5"},
        {"scheduler.base_lrs", -1, "base_lrs is -1"},
        {"scheduler.step_size", 0, "step_size is 0, and has to be finite and above 0"},
        {"scheduler._schedulers.1.milestone", -3, "milestone is -3"},
        {"scheduler._schedulers.1.T_max", 0, "T_max is 0"},
        {"scaler.scale", 0, "scale is 0, and has to be above 0"},
        {"scaler.scale", -1, "scale is -1"},
        {"scaler.scale", INFINITY, "scale is inf"},
        {"scaler.growth_factor", 0, "growth_factor is 0, and has to be finite and above 1"},
        {"scaler.backoff_factor", 5, "backoff_factor is 5"},
        {"scaler.growth_interval", -1, "growth_interval is -1"},
        {"scaler._growth_tracker", -1, "_growth_tracker is -1"},
    };
    char damaged[80];
    snprintf(damaged, sizeof damaged, "%s.damaged", path);
    Run run;
    run_open(&run, "Adam", "lr=0.1", NULL, NULL);
    cb_schedule *schedule = cb_schedule_new(run.optimizer, "StepLR", "step_size=2");
    cb_schedule_then(schedule, 5, "CosineAnnealingLR", "T_max=3");
    cb_scaler *scaler = cb_scaler_new(NULL);
    run_train(&run, 2);
    assert_int_equal(cb_training_save(path, run.net, run.optimizer, schedule, NULL, scaler), CB_OK);
    run_train(&run, 1);
    cb_tensor *weight = cb_module_get(run.net, "weight");
    cb_tensor *step = cb_module_get(cb_optimizer_state(run.optimizer), "state.0.step");
    double before = cb_item(cb_sum(weight));
    for (size_t i = 0; i < COUNT(cases); i++) {
        write_number(damaged, cases[i].name, cases[i].value);
        assert_true(cb_training_load(damaged, run.net, run.optimizer, schedule, NULL, scaler) !=
                    CB_OK);
        expect_error(cases[i].error);
        assert_true(cb_item(cb_sum(weight)) == before && cb_item(step) == 3);
        assert_true(cb_optimizer_lr(run.optimizer, 0) == 0.1);
        assert_true(cb_scaler_scale_now(scaler) == 65536);
    }
    assert_int_equal(cb_training_load(path, run.net, run.optimizer, schedule, NULL, scaler), CB_OK);
    assert_true(cb_item(step) == 2);
    cb_scaler_free(scaler);
    cb_schedule_free(schedule);
    run_close(&run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(arguments_come_from_the_file), TEST(arguments_that_are_written),
        TEST(schedules_come_from_the_file), TEST(first_gradients_are_not_dampened),
        TEST(files_that_do_not_fit),        TEST(numbers_that_are_refused),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/run", folder);
    int failed = cmocka_run_group_tests_name("train_state", tests, NULL, NULL);
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return failed || system(command);
}
