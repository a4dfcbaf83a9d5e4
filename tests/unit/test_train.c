/* Optimizers, schedules and clipping beside PyTorch's numbers (tests/reference/training.py); their
 * state in files; what is refused. */
#include "fixture.h"
#include "training_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static char folder[] = "/tmp/carbide_train_XXXXXX";

static const char *file(const char *name) {
    static char path[2][64];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void fine(void) {
    if (cb_error()) fail_msg("%s", cb_error());
}

/* ---- the network of training.py -------------------------------------------------------------- */

static double input(int i) { return sin(i + 1.0); }
static double target(int i) { return cos(2.0 * i); }
static double weight(int i) { return sin(3.0 * i) / 2; }
static double zero(int i) { return (void)i, 0; }

static cb_tensor *numbers(double (*f)(int), int rows, int columns) {
    double value[32];
    for (int i = 0; i < rows * columns; i++) value[i] = f(i);
    cb_tensor *x = cb_to(cb_from_data(value, CB_F64, cb_dims(rows, columns)), CB_F32);
    return rows == 1 ? cb_reshape(x, columns) : x;
}

typedef struct Network {
    cb_tensor *x, *y, *w, *b;
} Network;

static Network network(void) {
    return (Network){numbers(input, 6, 4), numbers(target, 6, 3),
                     cb_requires_grad_(numbers(weight, 3, 4), true),
                     cb_requires_grad_(numbers(zero, 1, 3), true)};
}

static cb_tensor *loss_of(const Network *n) {
    return cb_mse_loss(cb_add(cb_tanh(cb_matmul(n->x, cb_t(n->w))), n->b), n->y);
}

static double train(const Network *n, cb_optimizer *optimizer, int steps) {
    double loss = 0;
    for (int i = 0; i < steps; i++) {
        cb_scope_open();
        cb_optimizer_zero_grad(optimizer);
        cb_tensor *y = loss_of(n);
        loss = cb_item(y);
        assert_int_equal(cb_backward(y, NULL), CB_OK);
        assert_int_equal(cb_optimizer_step(optimizer), CB_OK);
        cb_scope_close();
    }
    return loss;
}

static void expect_near(const char *what, double found, double expected, double tolerance) {
    if (!(fabs(found - expected) <= tolerance * (1 + fabs(expected))))
        fail_msg("%s: %.9g, PyTorch has %.9g", what, found, expected);
}

/* ---- beside PyTorch -------------------------------------------------------------------------- */

static void expect_case(const struct OptimizerCase *c) {
    char what[160];
    double value[15], norm = 0, loss = 0;
    snprintf(what, sizeof what, "%s(%s), (%s)", c->name, c->arguments, c->second ? c->second : "");
    cb_scope_open();
    Network n = network();
    cb_optimizer *optimizer = cb_optimizer_new(c->name, c->arguments);
    fine();
    assert_int_equal(cb_optimizer_add(optimizer, &n.w, 1, NULL), CB_OK);
    if (c->second) assert_int_equal(cb_optimizer_add(optimizer, &n.b, 1, c->second), CB_OK);
    cb_tensor *both[] = {n.w, n.b};
    for (int i = 0; i < 20; i++) {
        cb_scope_open();
        cb_optimizer_zero_grad(optimizer);
        cb_tensor *y = loss_of(&n);
        loss = cb_item(y);
        cb_backward(y, NULL);
        if (c->clip > 0) norm = cb_item(cb_clip_grad_norm_(both, 2, c->clip, 2));
        if (c->value > 0) cb_clip_grad_value_(both, 2, c->value);
        cb_optimizer_step(optimizer);
        cb_scope_close();
    }
    fine();
    cb_read(n.w, value, CB_F64);
    cb_read(n.b, value + 12, CB_F64);
    /* Muon rounds to bf16, where a last bit of a product is 2^-8 of it */
    double tolerance = strcmp(c->name, "Muon") ? 3e-6 : 2e-3;
    expect_near(what, loss, c->expected[0], tolerance);
    if (c->clip > 0) expect_near(what, norm, c->expected[1], tolerance);
    for (int i = 0; i < 15; i++) expect_near(what, value[i], c->expected[2 + i], tolerance);
    cb_optimizer_free(optimizer);
    cb_scope_close();
}

static void optimizers_as_pytorch(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(optimizer_cases); i++) expect_case(&optimizer_cases[i]);
}

static void schedules_as_pytorch(void **state) {
    (void)state;
    cb_tensor *p = cb_zeros(1);
    for (size_t i = 0; i < COUNT(schedule_cases); i++) {
        const struct ScheduleCase *c = &schedule_cases[i];
        cb_optimizer *optimizer = cb_optimizer_new("SGD", "lr=0.5");
        cb_optimizer_add(optimizer, &p, 1, NULL);
        cb_schedule *schedule = cb_schedule_new(optimizer, c->name, c->arguments);
        fine();
        if (c->then) cb_schedule_then(schedule, c->milestone, c->then, c->rest);
        for (int n = 0; n < 24; n++) {
            fine();
            expect_near(c->arguments, cb_optimizer_lr(optimizer, 0), c->expected[n], 1e-9);
            if (n < 23) cb_schedule_step(schedule, schedule_metrics[c->metric][n]);
        }
        cb_schedule_free(schedule);
        cb_optimizer_free(optimizer);
    }
}

static void expect_chain(const struct ChainCase *c) {
    cb_tensor *p[] = {cb_zeros(1), cb_zeros(1)};
    cb_optimizer *optimizer = cb_optimizer_new("SGD", "lr=0.5");
    cb_optimizer_add(optimizer, p, 1, NULL);
    cb_schedule *schedule[2] = {cb_schedule_new(optimizer, c->made[0][0], c->made[0][1]), NULL};
    const char *const *second = c->made[1];
    if (c->milestone)
        cb_schedule_then(schedule[0], c->milestone, second[0], second[1]);
    else if (second[0])
        schedule[1] = cb_schedule_new(optimizer, second[0], second[1]);
    for (int n = 0; n < 24; n++) {
        if (n == c->written) cb_optimizer_set_lr(optimizer, 0, 0.2);
        if (n == c->added) cb_optimizer_add(optimizer, p + 1, 1, "lr=1");
        for (int g = 0; g < (c->added < 0 || n < c->added ? 1 : 2); g++)
            expect_near(c->made[0][0], cb_optimizer_lr(optimizer, g), c->expected[24 * g + n],
                        1e-14);
        for (int i = 0; i < 2; i++)
            if (schedule[i]) assert_int_equal(cb_schedule_step(schedule[i], 1), CB_OK);
    }
    for (int i = 0; i < 2; i++) cb_schedule_free(schedule[i]);
    cb_optimizer_free(optimizer);
}

/* Rates that the user or a second schedule moves, and those of groups that come late. */
static void schedules_go_on_from_the_rate(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(chain_cases); i++) expect_chain(&chain_cases[i]);
}

enum { MANY = 1000 };

/* Gives x the gradient g: that of sum(x * g). */
static void backward_of(cb_tensor *x, cb_tensor *g) {
    cb_zero_grad(x);
    cb_backward(cb_sum(cb_mul(x, g)), NULL);
}

static void expect_half(const struct HalfCase *c) {
    char what[160];
    double value[8], norm = 0;
    snprintf(what, sizeof what, "%s(%s) of %s", c->name, c->arguments, cb_dtype_name(c->dtype));
    cb_scope_open();
    cb_tensor *p[1 + MANY], *one = cb_ones(1, c->dtype);
    int count = c->clip > 0 ? 1 + MANY : 1;
    for (int i = 1; i < count; i++) p[i] = cb_requires_grad_(cb_zeros(1, c->dtype), true);
    for (int i = 0; i < 8; i++) value[i] = sin(3.0 * i) / 2;
    p[0] = cb_to(cb_to(cb_from_data(value, CB_F64, 8), CB_F32), c->dtype);
    cb_optimizer *optimizer = cb_optimizer_new(c->name, c->arguments);
    assert_int_equal(cb_optimizer_add(optimizer, p, 1, NULL), CB_OK);
    for (int t = 0; t < 6; t++) {
        cb_scope_open();
        for (int i = 0; i < 8; i++) value[i] = 300 * sin(i + 1.0 + t);
        backward_of(p[0], cb_to(cb_to(cb_from_data(value, CB_F64, 8), CB_F32), c->dtype));
        for (int i = 1; i < count; i++) backward_of(p[i], one);
        if (c->clip > 0) norm = cb_item(cb_clip_grad_norm_(p, count, 1, c->clip));
        cb_optimizer_step(optimizer);
        cb_scope_close();
    }
    fine();
    cb_read(p[0], value, CB_F64);
    double last = c->dtype == CB_F16 ? 0x1p-11 : 0x1p-8; /* half of a last bit of 1, of 6 steps */
    expect_near(what, norm, c->expected[0], last);
    for (int i = 0; i < 8; i++) expect_near(what, value[i], c->expected[1 + i], 6 * last);
    cb_optimizer_free(optimizer);
    cb_scope_close();
}

static void halves_as_pytorch(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(half_cases); i++) expect_half(&half_cases[i]);
}

static void norms_of_gradients(void **state) {
    (void)state;
    float values[] = {3, -4, 12};
    cb_tensor *x[] = {cb_requires_grad_(cb_zeros(2), true), cb_requires_grad_(cb_zeros(1), true),
                      cb_requires_grad_(cb_zeros(1), true)};
    cb_backward(cb_sum(cb_mul(x[0], cb_from_data(values, CB_F32, 2))), NULL);
    cb_backward(cb_mul(x[1], 12.0), NULL);
    expect_near("norm", cb_item(cb_clip_grad_norm_(x, 3, 100, 2)), 13, 1e-5);
    expect_near("greatest", cb_item(cb_clip_grad_norm_(x, 3, 100, INFINITY)), 12, 1e-5);
    expect_near("sum", cb_item(cb_clip_grad_norm_(x, 3, 1.9, 1)), 19, 1e-5);
    double value[2];
    cb_read(cb_tensor_grad(x[0]), value, CB_F64);
    expect_near("clipped", value[1], -0.4, 1e-6);
    assert_int_equal(cb_clip_grad_value_(x, 3, 0.35), CB_OK);
    cb_read(cb_tensor_grad(x[0]), value, CB_F64);
    expect_near("limited", value[1], -0.35, 1e-7);
    expect_near("not limited", value[0], 0.3, 1e-6);
    assert_null(cb_tensor_grad(x[2]));
    expect_near("of nothing", cb_item(cb_clip_grad_norm_(x + 2, 1, 1, 2)), 0, 0);
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct Run {
    cb_module *net;
    cb_optimizer *optimizer;
    cb_schedule *schedule;
} Run;

static Run run_new(const char *name, const char *arguments) {
    Run run = {.net = cb_nn_sequential(cb_nn_linear(4, 8, true), cb_nn_tanh(), cb_nn_dropout(0.3),
                                       cb_nn_linear(8, 3, true))};
    run.optimizer = cb_optimizer_new(name, arguments);
    assert_int_equal(cb_optimizer_add_module(run.optimizer, run.net, NULL), CB_OK);
    run.schedule = cb_schedule_new(run.optimizer, "OneCycleLR", "max_lr=0.05, total_steps=20");
    fine();
    return run;
}

static void run_free(Run *run) {
    cb_schedule_free(run->schedule);
    cb_optimizer_free(run->optimizer);
    cb_module_free(run->net);
}

static void run_train(Run *run, int steps, double *losses) {
    for (int i = 0; i < steps; i++) {
        cb_scope_open();
        cb_optimizer_zero_grad(run->optimizer);
        cb_tensor *y = cb_mse_loss(cb_forward(run->net, numbers(input, 6, 4)),
                                   cb_add(numbers(target, 6, 3), cb_mul(cb_rand(3), 0.1)));
        losses[i] = cb_item(y);
        cb_backward(y, NULL);
        cb_optimizer_step(run->optimizer);
        cb_schedule_step(run->schedule, 0);
        cb_scope_close();
    }
    fine();
}

static cb_schedule *stepped;

static cb_tensor *steps_a_schedule(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2);
    cb_schedule_step(stepped, 0);
    return y;
}

/* Who is told that a function asks for a value is told by which call of the user's. */
static void fullgraph_names_the_schedule(void **state) {
    (void)state;
    Run run = run_new("SGD", NULL);
    stepped = run.schedule;
    cb_function *fast = cb_compile(steps_a_schedule, "fullgraph=1, backend=vm");
    assert_null(cb_call(fast, cb_ones(3)));
    expect_error("asked for a value: its ops are one graph before, and another one behind: "
                 "cb_schedule_step");
    cb_function_free(fast);
    run_free(&run);
}

static void resumes_bit_for_bit(void **state) {
    (void)state;
    static const char *const made[][2] = {{"AdamW", "amsgrad=True"},
                                          {"SGD", "momentum=0.9, dampening=0.1"},
                                          {"RMSprop", "momentum=0.5, centered=True"},
                                          {"Lion", NULL},
                                          {"Adagrad", "lr_decay=0.1"}};
    for (size_t k = 0; k < COUNT(made); k++) {
        double whole[12], resumed[6];
        cb_manual_seed(7);
        Run run = run_new(made[k][0], made[k][1]);
        run_train(&run, 6, whole);
        assert_int_equal(
            cb_training_save(file("run.safetensors"), run.net, run.optimizer, run.schedule), CB_OK);
        assert_int_equal(cb_training_save(file("model.safetensors"), run.net), CB_OK);
        assert_int_equal(cb_training_save(file("two.safetensors"), run.net, run.optimizer), CB_OK);
        run_train(&run, 6, whole + 6);
        run_free(&run);
        cb_manual_seed(99);
        Run other = run_new(made[k][0], made[k][1]);
        assert_int_equal(cb_training_load(file("model.safetensors"), other.net), CB_OK);
        assert_int_equal(cb_training_load(file("two.safetensors"), other.net, other.optimizer),
                         CB_OK);
        assert_int_equal(
            cb_training_load(file("run.safetensors"), other.net, other.optimizer, other.schedule),
            CB_OK);
        run_train(&other, 6, resumed);
        assert_memory_equal(whole + 6, resumed, sizeof resumed);
        run_free(&other);
    }
}

static void state_has_names_of_pytorch(void **state) {
    (void)state;
    static const char *const expected[] = {
        "state.0.exp_avg",    "state.0.exp_avg_sq", "state.0.step",
        "state.1.exp_avg",    "param_groups.0.lr",  "param_groups.0.betas",
        "param_groups.0.eps", "param_groups.1.lr",  "param_groups.0.weight_decay"};
    Network n = network();
    cb_optimizer *optimizer = cb_optimizer_new("Adam", NULL);
    cb_optimizer_add(optimizer, &n.w, 1, NULL);
    cb_optimizer_add(optimizer, &n.b, 1, "lr=0.5");
    train(&n, optimizer, 3);
    assert_int_equal(cb_module_save_state(cb_optimizer_state(optimizer), file("adam")), CB_OK);
    cb_safetensors *saved = cb_safetensors_open(file("adam"));
    for (size_t i = 0; i < COUNT(expected); i++)
        if (!cb_safetensors_get(saved, expected[i])) fail_msg("%s", cb_error());
    expect_near("step", cb_item(cb_safetensors_get(saved, "state.0.step")), 3, 0);
    expect_near("lr", cb_item(cb_safetensors_get(saved, "param_groups.1.lr")), 0.5, 0);
    assert_int_equal(cb_numel(cb_safetensors_get(saved, "param_groups.0.betas")), 2);
    cb_safetensors_close(saved);
    cb_optimizer_free(optimizer);
}

/* Another optimizer's file changes nothing; the file of a failed save stays what it was. */
static void files_that_do_not_fit(void **state) {
    (void)state;
    double losses[2];
    Run run = run_new("AdamW", NULL), other = run_new("SGD", "momentum=0.9");
    run_train(&run, 2, losses);
    assert_int_equal(cb_training_save(file("a"), run.net, run.optimizer, run.schedule), CB_OK);
    double before = cb_item(cb_sum(cb_module_get(other.net, "0.weight")));
    assert_true(cb_training_load(file("a"), other.net, other.optimizer, other.schedule) != CB_OK);
    assert_non_null(strstr(cb_error(), "optimizer.state.0.momentum_buffer"));
    cb_clear_error();
    assert_true(before == cb_item(cb_sum(cb_module_get(other.net, "0.weight"))));
    assert_true(cb_training_save(file("none/a"), run.net, NULL, NULL) != CB_OK);
    cb_clear_error();
    run_train(&other, 2, losses);
    run_free(&other);
    run_free(&run);
}

/* ---- groups, refusals ------------------------------------------------------------------------ */

static void parameters_without_gradient_stay(void **state) {
    (void)state;
    cb_tensor *p[] = {cb_ones(2), cb_ones(2)};
    cb_optimizer *optimizer = cb_optimizer_new("AdamW", "lr=0.1");
    cb_optimizer_add(optimizer, p, 2, NULL);
    cb_backward(cb_sum(p[0]), NULL);
    assert_int_equal(cb_optimizer_step(optimizer), CB_OK);
    assert_true(cb_item(cb_sum(p[1])) == 2);
    assert_true(cb_item(cb_sum(p[0])) < 1.9);
    cb_optimizer_set_lr(optimizer, 0, 0);
    double before = cb_item(cb_sum(p[0]));
    cb_optimizer_step(optimizer);
    assert_true(cb_item(cb_sum(p[0])) == before);
    cb_optimizer_zero_grad(optimizer);
    assert_null(cb_tensor_grad(p[0]));
    cb_optimizer_free(optimizer);
}

static void a_shared_buffer_stays_one(void **state) {
    (void)state;
    cb_module *a = cb_module_new("A", NULL, NULL), *b = cb_module_new("B", NULL, NULL);
    cb_tensor *mask = cb_module_buffer(a, "mask", cb_ones(2));
    cb_tensor *weight = cb_module_parameter(a, "weight", cb_ones(3));
    cb_module_share(b, "tied", mask);
    cb_module_share(b, "weight", weight);
    assert_int_equal(cb_module_parameters(b, NULL, 0), 1);
    cb_optimizer *optimizer = cb_optimizer_new("SGD", NULL);
    assert_int_equal(cb_optimizer_add_module(optimizer, b, NULL), CB_OK);
    assert_true(cb_requires_grad(weight) && !cb_requires_grad(mask));
    cb_optimizer_free(optimizer);
    cb_module_free(a);
    cb_module_free(b);
}

static void tied_parameters_count_once(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_linear(3, 3, false), cb_nn_linear(3, 3, false));
    cb_module_share(cb_module_child(net, "1"), "weight", cb_module_get(net, "0.weight"));
    cb_optimizer *optimizer = cb_optimizer_new("SGD", "momentum=0.9");
    assert_int_equal(cb_optimizer_add_module(optimizer, net, NULL), CB_OK);
    assert_int_equal(cb_module_child_count(cb_module_child(cb_optimizer_state(optimizer), "state")),
                     1);
    cb_optimizer_free(optimizer);
    cb_module_free(net);
}

static void refusals(void **state) {
    (void)state;
    static const char *const made[][3] = {
        {"Adma", NULL, "Lion, Muon; did you mean 'Adam'?"},
        {"SGD", "lr=", "SGD: 'lr' needs a value"},
        {"SGD", "lr=1e-3x", "needs a value"},
        {"SGD", "lr=0.1 momentum=0.9", "SGD: a comma is missing behind the value of 'lr'"},
        {"SGD", "betas=(0.9, 0.99)", "SGD has no argument 'betas'; there are lr, "},
        {"SGD", "momemtum=0.9", "; did you mean 'momentum'?"},
        {"SGD", "lr=-1", "SGD: lr is -1"},
        {"SGD", "nesterov=True", "nesterov needs a momentum"},
        {"SGD", "momentum=0.9, nesterov=True, dampening=0.1", "and no dampening"},
        {"Adam", "betas=0.9", "'betas' needs a pair of numbers: betas=(0.9, 0.999)"},
        {"Adam", "betas=(0.9, 1)", "betas is 1"},
        {"Adam", "lr=(0.1, 0.2)", "'lr' needs a value: a number, True or False, and no pair"},
        {"Muon", "ns_steps=100", "ns_steps is 100"},
    };
    for (size_t i = 0; i < COUNT(made); i++) {
        assert_null(cb_optimizer_new(made[i][0], made[i][1]));
        expect_error(made[i][2]);
    }
    cb_tensor *p[] = {cb_zeros(cb_dims(2, 2)), cb_zeros(2), cb_zeros(2, CB_I64)};
    cb_optimizer *muon = cb_optimizer_new("Muon", NULL);
    assert_true(cb_optimizer_step(muon) != CB_OK);
    expect_error("no parameters yet");
    assert_null(cb_schedule_new(muon, "StepLR", "step_size=1"));
    expect_error("no parameters yet");
    assert_true(cb_optimizer_add(muon, p, 2, NULL) != CB_OK); /* the matrix is not left in it */
    expect_error("it takes matrices");
    assert_int_equal(cb_optimizer_add(muon, p, 1, NULL), CB_OK);
    assert_true(cb_optimizer_add(muon, p, 1, NULL) != CB_OK);
    expect_error("parameter 0 is there already");
    assert_true(isnan(cb_optimizer_lr(muon, 1)));
    expect_error("there is no group 1 of 1");
    static const char *const schedules[][3] = {
        {"StepLR", NULL, "StepLR needs step_size"},
        {"Cosine", NULL,
         "there is no schedule 'Cosine': LinearLR, StepLR, ExponentialLR, CosineAnnealingLR, "
         "OneCycleLR, ReduceLROnPlateau; others are"},
        {"StepsLR", "step_size=1", "in each step; did you mean 'StepLR'?"},
        {"CosineAnnealingLR", "T_max=0", "T_max is 0, and has to be finite and above 0"},
        {"StepLR", "step_size=0", "step_size is 0"},
        {"LinearLR", "start_factor=0", "start_factor is 0, and has to be above 0 and at most 1"},
        {"LinearLR", "start_factor=1.5", "start_factor is 1.5"},
        {"LinearLR", "end_factor=1.5", "end_factor is 1.5, and has to be between 0 and 1"},
        {"LinearLR", "end_factor=-0.5", "end_factor is -0.5"},
        {"LinearLR", "total_iters=0", "total_iters is 0"},
        {"OneCycleLR", "max_lr=1, total_steps=2.5", "total_steps is 2.5, and has to be a whole"},
        {"OneCycleLR", "max_lr=1, total_steps=0", "total_steps is 0"},
        {"OneCycleLR", "max_lr=1, total_steps=9, pct_start=1.1", "pct_start is 1.1"},
        {"OneCycleLR", "max_lr=1, total_steps=9, pct_start=-0.1", "pct_start is -0.1"},
        {"OneCycleLR", "max_lr=-1, total_steps=9", "max_lr is -1"},
        {"OneCycleLR", "max_lr=1, total_steps=9, div_factor=0", "div_factor is 0"},
        {"OneCycleLR", "max_lr=1, total_steps=9, final_div_factor=0", "final_div_factor is 0"},
        {"StepLR", "step_size=2, gamma=-1", "gamma is -1, and has to be finite and at least 0"},
        {"CosineAnnealingLR", "T_max=2, eta_min=-0.1", "eta_min is -0.1"},
        {"ReduceLROnPlateau", "min_lr=-1", "min_lr is -1"},
        {"ReduceLROnPlateau", "patience=-1", "patience is -1"},
        {"ReduceLROnPlateau", "cooldown=1e19", "cooldown is 1e+19, and has to be a whole number"},
        {"ReduceLROnPlateau", "cooldown=1.5", "cooldown is 1.5"},
        {"ReduceLROnPlateau", "factor=1", "factor is 1, and has to be at least 0 and below 1"},
    };
    for (size_t i = 0; i < COUNT(schedules); i++) {
        assert_null(cb_schedule_new(muon, schedules[i][0], schedules[i][1]));
        expect_error(schedules[i][2]);
    }
    cb_schedule *schedule = cb_schedule_new(muon, "StepLR", "step_size=2");
    assert_true(cb_schedule_then(schedule, 0, "StepLR", "step_size=2") != CB_OK);
    expect_error("StepLR at step 0, after one at 0");
    for (int i = 0; i < 2; i++) cb_schedule_step(schedule, 0);
    assert_true(cb_schedule_then(schedule, 2, "StepLR", "step_size=2") != CB_OK);
    expect_error("cb_schedule_then: StepLR at step 2, where 2 steps were made already");
    cb_schedule_free(schedule);
    cb_optimizer_free(muon);
    cb_optimizer *sgd = cb_optimizer_new("SGD", NULL);
    assert_true(cb_optimizer_add(sgd, p + 1, 2, NULL) != CB_OK);
    expect_error("i64");
    assert_false(cb_requires_grad(p[1])); /* as it was */
    cb_optimizer_free(sgd);
    cb_optimizer_free(sgd);
    expect_error("was freed at test_train.c");
    assert_null(cb_clip_grad_norm_(p, 1, -1, 2));
    expect_error("cb_clip_grad_norm_");
    assert_null(cb_clip_grad_norm_(p, 1, 1, 0));
    expect_error("cb_clip_grad_norm_");
    assert_true(cb_clip_grad_value_(p, 1, NAN) != CB_OK);
    expect_error("cb_clip_grad_value_: at most nan");
}

/* What no step could change, or is gone. */
static void tensors_that_are_no_parameters(void **state) {
    (void)state;
    cb_tensor *w = cb_requires_grad_(cb_ones(2), true), *result = cb_mul(w, 2), *gone = cb_ones(1);
    cb_optimizer *sgd = cb_optimizer_new("SGD", NULL);
    assert_int_equal(cb_optimizer_add(sgd, &result, 1, NULL), CB_ERR_ARGUMENT);
    expect_error("SGD: a parameter is a result that gradients go back from, and no leaf");
    assert_int_equal(cb_optimizer_add(sgd, &w, 1, NULL), CB_OK);
    cb_free(gone);
    cb_tensor *with[][2] = {{w, gone}, {w, NULL}};
    for (int i = 0; i < 2; i++) {
        cb_backward(cb_sum(w), NULL);
        assert_null(cb_clip_grad_norm_(with[i], 2, 1, 2));
        expect_error(i ? "cb_clip_grad_norm_: a tensor is NULL"
                       : "cb_clip_grad_norm_: a tensor: the tensor is gone: it was made");
        assert_int_equal(cb_clip_grad_value_(with[i], 2, 0.5), CB_ERR_ARGUMENT);
        expect_error(i ? "cb_clip_grad_value_: a tensor is NULL"
                       : "cb_clip_grad_value_: a tensor: the tensor is gone: it was made");
    }
    cb_free(result);
    cb_optimizer_free(sgd);
}

/* As PyTorch's, which takes total_steps steps and raises at every one behind. */
static void one_cycle_ends(void **state) {
    (void)state;
    cb_tensor *p = cb_zeros(1);
    cb_optimizer *optimizer = cb_optimizer_new("SGD", NULL);
    cb_optimizer_add(optimizer, &p, 1, NULL);
    cb_schedule *schedule = cb_schedule_new(optimizer, "OneCycleLR", "max_lr=1, total_steps=10");
    for (int i = 0; i < 10; i++) assert_int_equal(cb_schedule_step(schedule, 0), CB_OK);
    double last = cb_optimizer_lr(optimizer, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cb_schedule_step(schedule, 0), CB_ERR_ARGUMENT);
        expect_error(i ? "step 12 of 10" : "cb_schedule_step: OneCycleLR has no rate for step 11");
    }
    assert_true(cb_optimizer_lr(optimizer, 0) == last);
    cb_schedule_free(schedule);
    /* PyTorch's line in three phases ends below 0, where no optimizer begins */
    schedule = cb_schedule_new(optimizer, "OneCycleLR",
                               "max_lr=1, total_steps=10, three_phase=True, anneal_linear=True");
    for (int i = 0; i < 10; i++) assert_int_equal(cb_schedule_step(schedule, 0), CB_OK);
    assert_true(cb_optimizer_lr(optimizer, 0) == 0);
    cb_schedule_free(schedule);
    cb_optimizer_free(optimizer);
}

/* Without a base rate: where one is asked for, nothing changes, as where PyTorch raises. */
static void groups_behind_the_schedule(void **state) {
    (void)state;
    static const struct {
        const char *name, *arguments, *then, *rest, *error;
        int steps;
    } cases[] = {
        {"CosineAnnealingLR", "T_max=2", NULL, NULL, "CosineAnnealingLR has no base rate", 2},
        {"OneCycleLR", "max_lr=1, total_steps=9", NULL, NULL, "OneCycleLR has no base rate", 0},
        {"LinearLR", NULL, "StepLR", "step_size=1", "StepLR has no base rate for its step 0", 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        cb_tensor *p[] = {cb_zeros(1), cb_zeros(1)};
        cb_optimizer *optimizer = cb_optimizer_new("SGD", "lr=0.5");
        cb_optimizer_add(optimizer, p, 1, NULL);
        cb_schedule *schedule = cb_schedule_new(optimizer, cases[i].name, cases[i].arguments);
        if (cases[i].then) cb_schedule_then(schedule, 3, cases[i].then, cases[i].rest);
        cb_optimizer_add(optimizer, p + 1, 1, "lr=1");
        for (int n = 0; n < cases[i].steps; n++)
            assert_int_equal(cb_schedule_step(schedule, 0), CB_OK);
        double before[] = {cb_optimizer_lr(optimizer, 0), cb_optimizer_lr(optimizer, 1)};
        assert_int_equal(cb_schedule_step(schedule, 0), CB_ERR_ARGUMENT);
        expect_error(cases[i].error);
        for (int g = 0; g < 2; g++) assert_true(cb_optimizer_lr(optimizer, g) == before[g]);
        cb_schedule_free(schedule);
        cb_optimizer_free(optimizer);
    }
}

/* Of nothing, and of what is freed. */
static void without_an_optimizer(void **state) {
    (void)state;
    cb_tensor *p[] = {cb_zeros(cb_dims(2, 2))};
    cb_optimizer *sgd = cb_optimizer_new("SGD", NULL);
    assert_int_equal(cb_optimizer_add(sgd, p, 1, NULL), CB_OK);
    assert_true(cb_optimizer_set_lr(sgd, 0, -1) != CB_OK);
    expect_error("a rate of -1");
    assert_true(cb_optimizer_set_lr(sgd, 0, INFINITY) != CB_OK);
    expect_error("a rate of inf");
    assert_true(cb_optimizer_set_lr(sgd, 1, 1) != CB_OK);
    expect_error("there is no group 1 of 1");
    cb_schedule *rates = cb_schedule_new(sgd, "StepLR", "step_size=2");
    cb_optimizer_free(sgd);
    assert_true(cb_schedule_step(rates, 0) != CB_OK);
    expect_error("cb_schedule_step: the optimizer was freed at test_train.c");
    cb_schedule_free(rates);
    cb_schedule_free(rates);
    expect_error("cb_schedule_free: the schedule was freed at test_train.c");
    cb_schedule_free(NULL);
    cb_optimizer_free(NULL);
    cb_optimizer *optimizers[] = {NULL, sgd};
    cb_schedule *schedules[] = {NULL, rates};
    for (int i = 0; i < 2; i++) {
        const char *part = i ? "was freed at test_train.c" : "NULL";
        assert_true(cb_optimizer_add(optimizers[i], p, 1, NULL) != CB_OK);
        expect_error(part);
        assert_true(cb_optimizer_step(optimizers[i]) != CB_OK);
        expect_error(part);
        cb_optimizer_zero_grad(optimizers[i]);
        expect_error(part);
        assert_true(isnan(cb_optimizer_lr(optimizers[i], 0)));
        expect_error(part);
        assert_null(cb_optimizer_state(optimizers[i]));
        expect_error(part);
        assert_null(cb_schedule_new(optimizers[i], "StepLR", "step_size=2"));
        expect_error(part);
        assert_true(cb_schedule_step(schedules[i], 0) != CB_OK);
        expect_error(part);
        assert_true(cb_schedule_then(schedules[i], 2, "StepLR", "step_size=2") != CB_OK);
        expect_error(part);
        assert_null(cb_schedule_state(schedules[i]));
        expect_error(part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(optimizers_as_pytorch),
        TEST(schedules_as_pytorch),
        TEST(halves_as_pytorch),
        TEST(norms_of_gradients),
        TEST(resumes_bit_for_bit),
        TEST(state_has_names_of_pytorch),
        TEST(files_that_do_not_fit),
        TEST(parameters_without_gradient_stay),
        TEST(a_shared_buffer_stays_one),
        TEST(tied_parameters_count_once),
        TEST(refusals),
        TEST(tensors_that_are_no_parameters),
        TEST(one_cycle_ends),
        TEST(schedules_go_on_from_the_rate),
        TEST(groups_behind_the_schedule),
        TEST(without_an_optimizer),
        TEST(fullgraph_names_the_schedule),
    };
    if (!mkdtemp(folder)) return 1;
    int failed = cmocka_run_group_tests_name("train", tests, NULL, NULL);
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return failed || system(command);
}
