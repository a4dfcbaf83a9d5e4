/* A network that learns as a case: forward, loss, backward, clipping and update are one function.
 *
 * Autocast is in force where users of PyTorch have it, around the forward pass and the loss, and
 * gradients are freed before the step returns, so that as one graph it stores none. */
#include "cases.h"

#include <string.h>

enum { CHECKED_STEPS = 3, MOST_WEIGHTS = 2 * CASE_PARAMETERS };
static const double CHECKED_RATE = 1e-3; /* enough that three steps are seen in the loss */

int training_step(cb_tensor *const *input, int input_count, cb_tensor **output, void *user) {
    const Subject *subject = user;
    bool casts = subject->autocast != CB_SAME;
    (void)input_count;
    if (casts) cb_autocast_open(subject->autocast);
    cb_tensor *scores = cb_forward(subject->module, input[0]);
    cb_tensor *rows = cb_reshape(scores, cb_dims(-1, cb_size(scores, -1)));
    output[0] = cb_cross_entropy(rows, cb_flatten(input[1]));
    if (casts) cb_autocast_close();
    cb_backward(output[0], NULL);
    cb_clip_grad_norm_(subject->parameter, subject->parameters, 1.0, 2);
    cb_optimizer_step(subject->optimizer);
    cb_optimizer_zero_grad(subject->optimizer);
    return 1;
}

bool training_open(Subject *subject) {
    subject->optimizer = cb_optimizer_new(subject->row->optimizer, subject->row->rates);
    if (cb_optimizer_add_module(subject->optimizer, subject->module, NULL) != CB_OK) return false;
    subject->parameters =
        cb_module_parameters(subject->module, subject->parameter, CASE_PARAMETERS);
    return subject->parameters > 0;
}

/* ---- losses of some steps ------------------------------------------------------------------- */

typedef struct Weights { /* what a step of the module writes to, as it was */
    cb_tensor *value[MOST_WEIGHTS];
    int count;
} Weights;

static void keep(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    Weights *kept = user;
    (void)name, (void)buffer;
    if (kept->count < MOST_WEIGHTS) kept->value[kept->count++] = cb_clone(cb_detach(tensor));
}

static void put_back(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    Weights *kept = user;
    (void)name, (void)buffer;
    cb_assign(tensor, kept->value[kept->count++]);
}

/* Moments and the count of steps begin at 0. */
static void clear(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)buffer, (void)user;
    if (!strncmp(name, "state.", strlen("state."))) cb_fill_(tensor, 0);
}

cb_tensor *training_losses(const Subject *subject, cb_function *fast, cb_tensor *const *input) {
    Weights kept = {.count = 0};
    cb_tensor *loss[CHECKED_STEPS];
    double rate = cb_optimizer_lr(subject->optimizer, 0);
    cb_module_visit(subject->module, keep, &kept);
    cb_module_visit(cb_optimizer_state(subject->optimizer), clear, NULL);
    cb_optimizer_set_lr(subject->optimizer, 0, CHECKED_RATE);
    for (int i = 0; i < CHECKED_STEPS; i++) loss[i] = subject_result(subject, fast, input);
    cb_optimizer_set_lr(subject->optimizer, 0, rate);
    kept.count = 0;
    cb_no_grad_open();
    cb_module_visit(subject->module, put_back, &kept);
    cb_no_grad_close();
    return cb_stack(loss, CHECKED_STEPS, 0);
}

cb_tensor *training_exact(const Subject *subject, cb_tensor *const *input) {
    Subject exact = *subject;
    bool open = training_open(&exact);
    cb_tensor *losses = open ? training_losses(&exact, NULL, input) : NULL;
    cb_optimizer_free(exact.optimizer);
    return losses;
}
