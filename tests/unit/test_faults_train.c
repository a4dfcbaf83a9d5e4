/* Every allocation of a training step fails (faults.h): of the tape, the optimizers, the schedules
 * and their checkpoint. What a step has written before it fails is not looked at. */
#include "faults.h"
#include "nn/module.h"

#include <unistd.h>

typedef struct Net {
    cb_tensor *weight[2];
    cb_optimizer *optimizer;
} Net;

static cb_tensor *leaf(int rows, int columns) {
    return cb_requires_grad_(cb_clone(ramp(rows, columns)), true);
}

/* Two parameters with gradients of sum(relu(x a) b); false with an error. */
static bool go_back(cb_tensor *const *weight) {
    cb_tensor *y = cb_matmul(cb_relu(cb_matmul(ramp(3, 4), weight[0])), weight[1]);
    return y && cb_backward(cb_sum(cb_mul(y, y)), NULL) == CB_OK;
}

static void tape(void) {
    cb_tensor *weight[] = {leaf(4, 4), leaf(4, 2)}, *gradient[2];
    if (!weight[0] || !weight[1] || !go_back(weight)) return;
    take(cb_tensor_grad(weight[0]));
    cb_tensor *index = cb_from_data((int64_t[]){1, 1}, CB_I64, cb_dims(2));
    cb_tensor *rows = index ? cb_index_select(weight[0], 0, index) : NULL;
    cb_tensor *loss = rows ? cb_sum(cb_mul(cb_softmax(rows, 1), cb_log_softmax(rows, 1))) : NULL;
    if (!loss || cb_backward(loss, NULL) != CB_OK) return;
    take(cb_tensor_grad(weight[0]));
    loss = cb_sum(cb_exp(cb_matmul(weight[0], weight[1])));
    if (loss && cb_grad(loss, NULL, weight, 2, gradient) == CB_OK) take(gradient[1]);
}

/* The Hessian of sum(softmax(x a) b) times a. */
static void second_order(void) {
    cb_tensor *a = leaf(4, 4), *g, *product;
    cb_tensor *y = a ? cb_softmax(cb_matmul(ramp(3, 4), a), 1) : NULL;
    cb_tensor *loss = y ? cb_sum(cb_mul(y, y)) : NULL;
    if (!loss || cb_grad_graph(loss, NULL, &a, 1, &g) != CB_OK) return;
    take(g);
    loss = cb_sum(cb_mul(g, cb_detach(a)));
    if (loss && cb_grad(loss, NULL, &a, 1, &product) == CB_OK) take(product);
}

/* Two functions within one, which run again for the gradients; `user` is the weight. */
static int part(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    cb_tensor *h = cb_softmax(cb_matmul(x[0], (cb_tensor *)user), 1);
    y[0] = cb_mul(cb_dropout(h, 0.25, true), cb_exp(h));
    return y[0] ? 1 : -1;
}
static int both_parts(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    cb_tensor *h = cb_checkpoint(part, user, x, count);
    h = h ? cb_exp(h) : NULL;
    y[0] = h ? cb_checkpoint(part, user, &h, 1) : NULL;
    return y[0] ? 1 : -1;
}
static void recomputed(void) {
    cb_manual_seed(5);
    cb_tensor *a = leaf(4, 4), *x = ramp(3, 4);
    cb_tensor *y = a && x ? cb_checkpoint(both_parts, a, &x, 1) : NULL;
    for (int i = 0; y && i < 2; i++)
        if (cb_backward(cb_sum(cb_mul(y, y)), NULL) == CB_OK) take(cb_tensor_grad(a));
}

static cb_tensor *compiled_weight;
static cb_tensor *forward(cb_tensor *x) {
    return cb_dropout(cb_softmax(cb_matmul(x, compiled_weight), 1), 0.5, true);
}

/* A forward pass that is compiled alone, gone back from outside, twice. */
static void joint(void) {
    cb_manual_seed(5);
    compiled_weight = leaf(4, 4);
    cb_function *fast = compiled_weight ? cb_compile(forward, "backend=vm") : NULL;
    for (int i = 0; fast && i < 2; i++) {
        cb_tensor *y = cb_call(fast, ramp(3, 4));
        if (!y || cb_backward(cb_sum(cb_mul(y, y)), NULL) != CB_OK) break;
        take(y);
        take(cb_tensor_grad(compiled_weight));
    }
    cb_function_free(fast);
}

/* Its ops run once more, for gradients of gradients. */
static void joint_orders(void) {
    cb_manual_seed(5);
    compiled_weight = leaf(4, 4);
    cb_function *fast = compiled_weight ? cb_compile(forward, "backend=vm") : NULL;
    cb_tensor *y = fast ? cb_call(fast, ramp(3, 4)) : NULL, *g = NULL, *of_g = NULL;
    y = y ? cb_sum(cb_mul(y, y)) : NULL;
    begin_faults();
    if (y && cb_grad_graph(y, NULL, &compiled_weight, 1, &g) == CB_OK) take(g);
    if (g && cb_grad(cb_sum(cb_mul(g, g)), NULL, &compiled_weight, 1, &of_g) == CB_OK) take(of_g);
    end_faults();
    cb_function_free(fast);
}

static cb_tensor *forward_with_a_value(cb_tensor *x) {
    cb_tensor *y = cb_dropout(cb_softmax(cb_matmul(x, compiled_weight), 1), 0.5, true);
    double size = y ? cb_item(cb_sum(y)) : 0;
    cb_tensor *flat = y ? cb_reshape(cb_mul(y, size), -1) : NULL;
    if (flat && cb_backward(cb_sum(cb_exp(flat)), NULL) != CB_OK) return NULL;
    return flat ? cb_mul(flat, 2.0) : NULL;
}

/* The same behind a value, gone back from inside, and then from outside. */
static void joint_of_segments(void) {
    cb_manual_seed(5);
    compiled_weight = leaf(4, 4);
    cb_function *fast = compiled_weight ? cb_compile(forward_with_a_value, "backend=vm") : NULL;
    for (int i = 0; fast && i < 3; i++) {
        cb_tensor *y = cb_call(fast, ramp(3, 4));
        if (!y || cb_backward(cb_sum(cb_mul(y, y)), NULL) != CB_OK) break;
        take(y);
        take(cb_tensor_grad(compiled_weight));
    }
    cb_function_free(fast);
}

static bool net_new(Net *net, const char *name, const char *arguments) {
    *net = (Net){{leaf(4, 4), leaf(4, 2)}, cb_optimizer_new(name, arguments)};
    return net->optimizer && net->weight[0] && net->weight[1] &&
           cb_optimizer_add(net->optimizer, net->weight, 1, NULL) == CB_OK &&
           cb_optimizer_add(net->optimizer, net->weight + 1, 1, "lr=0.02") == CB_OK;
}

static bool net_step(Net *net) {
    cb_optimizer_zero_grad(net->optimizer);
    return go_back(net->weight) && cb_clip_grad_norm_(net->weight, 2, 1, 2) &&
           cb_clip_grad_value_(net->weight, 2, 0.5) == CB_OK &&
           cb_optimizer_step(net->optimizer) == CB_OK;
}

static void train(const char *name, const char *arguments) {
    Net net;
    if (net_new(&net, name, arguments) && net_step(&net) && net_step(&net)) {
        take(net.weight[0]);
        take(net.weight[1]);
    }
    cb_optimizer_free(net.optimizer);
}

static void scaled(void) {
    Net net;
    cb_scaler *scaler = cb_scaler_new(NULL);
    bool fine = net_new(&net, "SGD", "momentum=0.9, dampening=0.5") && scaler;
    for (int i = 0; i < 2 && fine; i++) {
        cb_optimizer_zero_grad(net.optimizer);
        cb_tensor *loss = cb_sum(cb_matmul(ramp(3, 4), net.weight[0]));
        fine = loss && cb_backward(cb_scaler_scale(scaler, loss), NULL) == CB_OK &&
               cb_scaler_step(scaler, net.optimizer) == CB_OK && cb_scaler_update(scaler) == CB_OK;
    }
    if (fine) take(net.weight[0]);
    cb_scaler_free(scaler);
    cb_optimizer_free(net.optimizer);
}

static void sgd(void) { train("SGD", "lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01"); }
static void rising_sgd(void) { train("SGD", "lr=0.1, maximize=True"); }
static void adam(void) { train("Adam", "amsgrad=True, weight_decay=0.1, maximize=True"); }
static void adamw(void) { train("AdamW", "betas=(0.8, 0.9)"); }
static void adagrad(void) { train("Adagrad", "lr_decay=0.1, maximize=True"); }
static void rmsprop(void) { train("RMSprop", "momentum=0.9, centered=True, maximize=True"); }
static void muon(void) { train("Muon", "lr=0.01"); }
static void lion(void) { train("Lion", "weight_decay=0.1, maximize=True"); }

static void schedule(const char *name, const char *arguments, bool then) {
    Net net;
    if (!net_new(&net, "SGD", "lr=0.5")) {
        cb_optimizer_free(net.optimizer);
        return;
    }
    cb_schedule *rates = cb_schedule_new(net.optimizer, name, arguments);
    bool fine = rates && (!then || cb_schedule_then(rates, 2, "StepLR", "step_size=1") == CB_OK);
    for (int i = 0; i < 5 && fine; i++) {
        fine = cb_schedule_step(rates, 1) == CB_OK;
        if (fine) take(cb_full(cb_dims(1), cb_optimizer_lr(net.optimizer, i % 2)));
    }
    cb_schedule_free(rates);
    cb_optimizer_free(net.optimizer);
}

static void schedules(void) {
    schedule("LinearLR", NULL, true);
    schedule("CosineAnnealingLR", "T_max=4", true);
    schedule("OneCycleLR", "max_lr=1, total_steps=6, three_phase=True", false);
    schedule("ReduceLROnPlateau", "patience=1, cooldown=1", false);
}

static char path[64];

static void checkpoints(void) {
    Net net, other;
    bool made = net_new(&net, "AdamW", NULL), both = net_new(&other, "AdamW", NULL);
    cb_module *model = cb_module_new("Model", NULL, NULL);
    cb_module *data = cb_module_new("Data", NULL, NULL);
    bool whole = made && both && model && data && cb_module_share(model, "a", net.weight[0]) &&
                 cb_module_buffer(data, "at", cb_full(cb_dims(1), 3));
    cb_schedule *rates = whole ? cb_schedule_new(net.optimizer, "StepLR", "step_size=2") : NULL;
    if (rates && net_step(&net) && cb_schedule_step(rates, 0) == CB_OK &&
        cb_training_save(path, model, net.optimizer, rates, data) == CB_OK && net_step(&net) &&
        cb_training_load(path, model, net.optimizer, rates, data) == CB_OK)
        take(net.weight[0]);
    cb_schedule_free(rates);
    cb_module_free(data);
    cb_module_free(model);
    cb_optimizer_free(net.optimizer);
    cb_optimizer_free(other.optimizer);
}

/* Each allocation of saving alone: what fails frees nothing of the user's. */
static void checkpoint_alone(void) {
    Net net;
    bool made = net_new(&net, "SGD", NULL);
    cb_module *model = cb_module_new("Model", NULL, NULL);
    if (made && model && cb_module_share(model, "a", net.weight[0])) {
        begin_faults();
        if (cb_training_save(path, model, net.optimizer, NULL, NULL) == CB_OK) take(net.weight[0]);
        end_faults();
    }
    if (model) assert_false(tomb_is_dead(&model->tomb));
    cb_module_free(model);
    cb_optimizer_free(net.optimizer);
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/carbide-faults-train-%d.safetensors", (int)getpid());
    cb_set_allocator((cb_allocator){faulty, NULL});
    const struct CMUnitTest tests[] = {
        SCENARIO(tape),
        SCENARIO(second_order),
        FEW_TENSORS(second_order),
        SCENARIO(recomputed),
        FEW_TENSORS(recomputed),
        SCENARIO(joint),
        FEW_TENSORS(joint),
        SCENARIO(joint_orders),
        FEW_TENSORS(joint_orders),
        SCENARIO(joint_of_segments),
        FEW_TENSORS(joint_of_segments),
        SCENARIO(sgd),
        SCENARIO(rising_sgd),
        SCENARIO(adam),
        SCENARIO(adamw),
        SCENARIO(adagrad),
        SCENARIO(rmsprop),
        SCENARIO(muon),
        SCENARIO(lion),
        SCENARIO(schedules),
        SCENARIO(checkpoints),
        SCENARIO(checkpoint_alone),
        SCENARIO(scaled),
        FEW_TENSORS(tape),
        FEW_TENSORS(sgd),
        FEW_TENSORS(adam),
        FEW_TENSORS(rmsprop),
        FEW_TENSORS(muon),
        FEW_TENSORS(schedules),
        FEW_TENSORS(checkpoints),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
