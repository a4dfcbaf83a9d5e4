/* The updates of torch.optim, with Lion: a parameter, its state and its gradient -> both written.
 *
 *     SGD   g += weight_decay * p;  b = momentum * b + (1 - dampening) * g;  p -= lr * b
 *
 * Ordinary ops, in the order of PyTorch's single tensor code, so that the numbers round alike; what
 * depends on the step alone is computed once for a group, in f64 as PyTorch's Python does. A
 * failure gives NULL, which every op hands on. */
#include "base/guess.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

#define ARG(name) argument(arguments, name)

/* x takes the value, unless the step is skipped. */
static cb_tensor *to(const Rates *rates, cb_tensor *x, cb_tensor *value) {
    return cb_assign(x, rates->skip ? cb_where(rates->skip, x, value) : value);
}

/* x + y * factor */
static cb_tensor *plus(cb_tensor *x, cb_tensor *y, double factor) {
    return cb_add(x, cb_mul(y, factor));
}

static cb_tensor *decayed(const TrainArguments *arguments, cb_tensor *parameter,
                          cb_tensor *gradient) {
    double decay = ARG("weight_decay");
    if (argument_or_zero(arguments, "maximize") != 0) gradient = cb_neg(gradient);
    return decay != 0 ? plus(gradient, parameter, decay) : gradient;
}

static cb_tensor *descend(const Rates *rates, const ParameterState *slot, cb_tensor *direction,
                          cb_tensor *size) {
    cb_tensor *change = cb_mul(direction, size);
    return cb_sub_(slot->parameter, rates->skip ? cb_where(rates->skip, 0.0, change) : change);
}

/* m + (g - m) * weight */
static cb_tensor *towards(const Rates *rates, cb_tensor *mean, cb_tensor *gradient, double weight) {
    return to(rates, mean, cb_lerp(mean, gradient, weight));
}

/* v * keep + g * g * (1 - keep): as one op, since a square of 300 is no f16 */
static cb_tensor *squares(const Rates *rates, cb_tensor *sum, cb_tensor *gradient, double keep) {
    return to(rates, sum, cb_addcmul(cb_mul(sum, keep), gradient, gradient, 1 - keep));
}

/* ---- SGD ------------------------------------------------------------------------------------- */

static bool sgd_uses(const TrainArguments *arguments, int state) {
    return ARG("momentum") != 0 && (state == 0 || (state == 1 && ARG("dampening") != 0));
}

/* A parameter's first gradient is not dampened, whichever step it comes in. */
static cb_tensor *dampened(const TrainArguments *arguments, const Rates *rates,
                           const ParameterState *slot, cb_tensor *gradient) {
    double dampening = ARG("dampening");
    if (dampening == 0) return gradient;
    cb_tensor *size = cb_sub(1.0, cb_mul(cb_to(slot->state[1], CB_F64), dampening));
    gradient = cb_mul(gradient, size);
    return to(rates, slot->state[1], cb_ones(CB_NO_DIMS, CB_BOOL)) ? gradient : NULL;
}

static cb_tensor *sgd(const TrainArguments *arguments, const Rates *rates,
                      const ParameterState *slot, cb_tensor *gradient) {
    double momentum = ARG("momentum");
    gradient = decayed(arguments, slot->parameter, gradient);
    if (momentum == 0) return descend(rates, slot, gradient, rates->lr);
    cb_tensor *kept = cb_mul(slot->state[0], momentum);
    cb_tensor *buffer =
        to(rates, slot->state[0], cb_add(kept, dampened(arguments, rates, slot, gradient)));
    if (ARG("nesterov") != 0) buffer = plus(gradient, buffer, momentum);
    return descend(rates, slot, buffer, rates->lr);
}

/* ---- Adam, AdamW ----------------------------------------------------------------------------- */

static bool adam_uses(const TrainArguments *arguments, int state) {
    return state < 2 || ARG("amsgrad") != 0;
}

static void shrinking_rates(const TrainArguments *arguments, Rates *rates) {
    rates->shrink = cb_sub(1.0, cb_mul(rates->lr, ARG("weight_decay")));
    if (rates->skip) rates->shrink = cb_where(rates->skip, 1.0, rates->shrink);
}

static void adam_rates(const TrainArguments *arguments, Rates *rates) {
    double beta = argument(arguments, "betas"), second = argument_second(arguments, "betas");
    rates->size = cb_div(rates->lr, cb_sub(1.0, cb_pow(beta, rates->step)));
    rates->root = cb_sqrt(cb_sub(1.0, cb_pow(second, rates->step)));
    shrinking_rates(arguments, rates);
}

static cb_tensor *adam_moments(const TrainArguments *arguments, const Rates *rates,
                               const ParameterState *slot, cb_tensor *gradient) {
    cb_tensor *mean = towards(rates, slot->state[0], gradient, 1 - argument(arguments, "betas"));
    cb_tensor *square =
        squares(rates, slot->state[1], gradient, argument_second(arguments, "betas"));
    if (ARG("amsgrad") != 0) square = to(rates, slot->state[2], cb_maximum(slot->state[2], square));
    cb_tensor *root = cb_add(cb_div(cb_sqrt(square), rates->root), ARG("eps"));
    return descend(rates, slot, cb_div(mean, root), rates->size);
}

static cb_tensor *adam(const TrainArguments *arguments, const Rates *rates,
                       const ParameterState *slot, cb_tensor *gradient) {
    return adam_moments(arguments, rates, slot, decayed(arguments, slot->parameter, gradient));
}

static bool shrink(const TrainArguments *arguments, const Rates *rates,
                   const ParameterState *slot) {
    return ARG("weight_decay") == 0 || cb_mul_(slot->parameter, rates->shrink);
}

static cb_tensor *adamw(const TrainArguments *arguments, const Rates *rates,
                        const ParameterState *slot, cb_tensor *gradient) {
    if (ARG("maximize") != 0) gradient = cb_neg(gradient);
    if (!shrink(arguments, rates, slot)) return NULL;
    return adam_moments(arguments, rates, slot, gradient);
}

/* ---- Adagrad, RMSprop ------------------------------------------------------------------------ */

static bool first_alone(const TrainArguments *arguments, int state) {
    return (void)arguments, state == 0;
}

static void adagrad_rates(const TrainArguments *arguments, Rates *rates) {
    cb_tensor *before = cb_mul(cb_sub(rates->step, 1.0), ARG("lr_decay"));
    rates->size = cb_div(rates->lr, cb_add(before, 1.0));
}

static cb_tensor *adagrad(const TrainArguments *arguments, const Rates *rates,
                          const ParameterState *slot, cb_tensor *gradient) {
    gradient = decayed(arguments, slot->parameter, gradient);
    cb_tensor *sum = to(rates, slot->state[0], cb_addcmul(slot->state[0], gradient, gradient));
    return descend(rates, slot, cb_div(gradient, cb_add(cb_sqrt(sum), ARG("eps"))), rates->size);
}

static bool rmsprop_uses(const TrainArguments *arguments, int state) {
    return state == 0 || (state == 1 ? ARG("momentum") : ARG("centered")) != 0;
}

static cb_tensor *rmsprop(const TrainArguments *arguments, const Rates *rates,
                          const ParameterState *slot, cb_tensor *gradient) {
    double keep = ARG("alpha"), momentum = ARG("momentum");
    gradient = decayed(arguments, slot->parameter, gradient);
    cb_tensor *square = squares(rates, slot->state[0], gradient, keep);
    if (ARG("centered") != 0) {
        cb_tensor *mean = towards(rates, slot->state[2], gradient, 1 - keep);
        square = cb_addcmul(square, mean, mean, -1);
    }
    cb_tensor *direction = cb_div(gradient, cb_add(cb_sqrt(square), ARG("eps")));
    if (momentum > 0)
        direction = to(rates, slot->state[1], cb_add(cb_mul(slot->state[1], momentum), direction));
    return descend(rates, slot, direction, rates->lr);
}

/* ---- Lion, Muon ------------------------------------------------------------------------------ */

/* The sign of a mean that leans to the gradient; the mean itself follows more slowly. */
static cb_tensor *lion(const TrainArguments *arguments, const Rates *rates,
                       const ParameterState *slot, cb_tensor *gradient) {
    double lean = argument(arguments, "betas"), keep = argument_second(arguments, "betas");
    cb_tensor *mean = slot->state[0];
    if (ARG("maximize") != 0) gradient = cb_neg(gradient);
    if (!shrink(arguments, rates, slot)) return NULL;
    cb_tensor *direction = cb_sign(plus(cb_mul(mean, lean), gradient, 1 - lean));
    if (!descend(rates, slot, direction, rates->lr)) return NULL;
    return to(rates, mean, plus(cb_mul(mean, keep), gradient, 1 - keep));
}

/* To bf16 and back: products add up in f32 then, and round where PyTorch's do. */
static cb_tensor *rounded(cb_tensor *x) { return cb_to(cb_to(x, CB_BF16), CB_F32); }

/* The matrix of the same singular vectors with singular values near 1, by Newton and Schulz, in the
 * coefficients of Keller Jordan's Muon. */
static cb_tensor *orthogonalized(cb_tensor *x, int steps, double eps) {
    bool tall = cb_size(x, 0) > cb_size(x, 1);
    x = rounded(tall ? cb_t(x) : x);
    x = rounded(cb_div(x, cb_clamp(rounded(cb_norm(x)), eps)));
    for (int i = 0; i < steps; i++) {
        cb_tensor *gram = rounded(cb_matmul(x, cb_t(x)));
        cb_tensor *square = cb_mul(cb_matmul(gram, gram), 2.0315);
        cb_tensor *change = rounded(cb_add(cb_mul(gram, -4.7750), square));
        x = rounded(cb_add(cb_mul(x, 3.4445), cb_matmul(change, x)));
    }
    return tall ? cb_t(x) : x;
}

static cb_tensor *muon(const TrainArguments *arguments, const Rates *rates,
                       const ParameterState *slot, cb_tensor *gradient) {
    double momentum = ARG("momentum");
    double rows = (double)cb_size(gradient, 0), columns = (double)cb_size(gradient, 1);
    cb_tensor *buffer = towards(rates, slot->state[0], gradient, 1 - momentum);
    if (ARG("nesterov") != 0) buffer = cb_lerp(gradient, buffer, momentum);
    cb_tensor *direction = orthogonalized(buffer, (int)ARG("ns_steps"), ARG("eps"));
    if (!shrink(arguments, rates, slot)) return NULL;
    return descend(rates, slot, direction, cb_mul(rates->lr, sqrt(fmax(1, rows / columns))));
}

/* ---- the table ------------------------------------------------------------------------------- */

#define ADAM_STATES                                                                                \
    { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" }

static const Kind kinds[] = {
    {"SGD",
     "lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False",
     {"momentum_buffer", "momentum_begun"},
     false,
     1,
     sgd_uses,
     NULL,
     sgd},
    {"Adam", "lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, maximize=False",
     ADAM_STATES, false, 0, adam_uses, adam_rates, adam},
    {"AdamW",
     "lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, amsgrad=False, maximize=False",
     ADAM_STATES, false, 0, adam_uses, adam_rates, adamw},
    {"Adagrad",
     "lr=0.01, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, maximize=False",
     {"sum"},
     false,
     0,
     first_alone,
     adagrad_rates,
     adagrad},
    {"RMSprop",
     "lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, maximize=False",
     {"square_avg", "momentum_buffer", "grad_avg"},
     false,
     0,
     rmsprop_uses,
     NULL,
     rmsprop},
    {"Lion",
     "lr=1e-4, betas=(0.9, 0.99), weight_decay=0, maximize=False",
     {"exp_avg"},
     false,
     0,
     first_alone,
     shrinking_rates,
     lion},
    {"Muon",
     "lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, eps=1e-7, ns_steps=5",
     {"momentum_buffer"},
     true,
     0,
     first_alone,
     shrinking_rates,
     muon},
};

const Kind *kind_find(const char *name) {
    Guess guess = guess_begin(name ? name : "");
    char meant[GUESS_BYTES];
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++) {
        guess_try(&guess, kinds[i].name);
        if (!strcmp(kinds[i].name, name)) return &kinds[i];
    }
    fail(CB_ERR_ARGUMENT,
         "there is no optimizer '%s': SGD, Adam, AdamW, Adagrad, RMSprop, Lion, Muon%s",
         name ? name : "NULL", guess_text(&guess, meant));
    return NULL;
}
