/* Initial values of parameters, after torch.nn.init.
 *
 *     kaiming_uniform_(w: [out, in, ...], a)   uniform in (-bound, bound), where
 *                                              bound = gain * sqrt(3 / fan), fan = in * ...
 *
 * Values are drawn by ops; what has no op (the inverse of erf, a QR decomposition) is computed here
 * in f64 from such a draw, and assigned. */
#include "carbide.h"

#include "eager/apply.h"
#include "nn/module.h"

#include <math.h>
#include <string.h>

/* x takes the value, which is a trace's no more than x is; temporaries end here. */
static cb_tensor *initialized(cb_tensor *x, cb_tensor *value) {
    cb_no_grad_open();
    cb_tensor *written = cb_assign(x, value);
    cb_no_grad_close();
    cb_scope_close();
    return written;
}

cb_tensor *cb_init_constant_(cb_tensor *x, double value) {
    cb_no_grad_open();
    cb_tensor *filled = (cb_fill_)(x, cb_operand_float(value));
    cb_no_grad_close();
    return filled;
}

/* A draw times a scale, plus a shift, step by step in x itself: a table of half a gigabyte needs no
 * second one. */
static cb_tensor *drawn(cb_tensor *x, Op draw, double scale, double shift) {
    Tensor *to = tensor_in(x, "initial values");
    if (x && !to) return NULL;
    cb_operand scaled[] = {cb_operand_tensor(to), cb_operand_float(scale)};
    cb_operand shifted[] = {cb_operand_tensor(to), cb_operand_float(shift)};
    cb_no_grad_open();
    cb_scope_open();
    bool done = apply_into(to, draw, scaled, 1) && apply_into(to, OP_mul, scaled, 2) &&
                apply_into(to, OP_add, shifted, 2);
    cb_scope_close();
    cb_no_grad_close();
    return done ? x : NULL;
}

cb_tensor *cb_init_uniform_(cb_tensor *x, double a, double b) {
    if (!(a <= b && isfinite(b - a)))
        return fail(CB_ERR_ARGUMENT, "init_uniform_: from %g to %g", a, b), NULL;
    return drawn(x, OP_rand_like, b - a, a);
}

cb_tensor *cb_init_normal_(cb_tensor *x, double mean, double std) {
    if (!(std >= 0)) return fail(CB_ERR_ARGUMENT, "init_normal_: a std of %g", std), NULL;
    return drawn(x, OP_randn_like, std, mean);
}

/* ---- by the sizes ---------------------------------------------------------------------------- */

static bool fans(cb_tensor *x, const char *what, double *in, double *out) {
    int rank = cb_rank(x);
    if (rank < 2) {
        if (rank >= 0) fail(CB_ERR_SHAPE, "%s: needs two dimensions at least, not %d", what, rank);
        return false;
    }
    double field = 1;
    for (int d = 2; d < rank; d++) field *= (double)cb_size(x, d);
    *in = (double)cb_size(x, 1) * field;
    *out = (double)cb_size(x, 0) * field;
    return true;
}

/* Of nothing, nothing: no division by a fan of 0. */
static cb_tensor *spread(cb_tensor *x, bool uniform, double std) {
    if (!isfinite(std)) return x;
    double bound = sqrt(3.0) * std;
    return uniform ? cb_init_uniform_(x, -bound, bound) : cb_init_normal_(x, 0.0, std);
}

static cb_tensor *xavier(cb_tensor *x, const char *what, bool uniform, double gain) {
    double in, out;
    return fans(x, what, &in, &out) ? spread(x, uniform, gain * sqrt(2 / (in + out))) : NULL;
}

cb_tensor *cb_init_xavier_uniform_(cb_tensor *x, double gain) {
    return xavier(x, "init_xavier_uniform_", true, gain);
}

cb_tensor *cb_init_xavier_normal_(cb_tensor *x, double gain) {
    return xavier(x, "init_xavier_normal_", false, gain);
}

double cb_calculate_gain(const char *nonlinearity, double param) {
    const char *name = nonlinearity ? nonlinearity : "NULL";
    if (!strcmp(name, "leaky_relu")) return sqrt(2 / (1 + param * param));
    if (!strcmp(name, "relu")) return sqrt(2.0);
    if (!strcmp(name, "tanh")) return 5.0 / 3;
    if (!strcmp(name, "selu")) return 3.0 / 4;
    if (!strcmp(name, "linear") || !strcmp(name, "sigmoid") || !strncmp(name, "conv", 4)) return 1;
    fail(CB_ERR_ARGUMENT, "calculate_gain: unknown nonlinearity '%s'", name);
    return NAN;
}

static cb_tensor *kaiming(cb_tensor *x, const char *what, bool uniform, double a, const char *mode,
                          const char *nonlinearity) {
    double in, out, gain = cb_calculate_gain(nonlinearity, a);
    bool forward = mode && !strcmp(mode, "fan_in");
    if (isnan(gain) || !fans(x, what, &in, &out)) return NULL;
    if (!forward && (!mode || strcmp(mode, "fan_out"))) {
        fail(CB_ERR_ARGUMENT, "%s: mode is \"fan_in\" or \"fan_out\", not \"%s\"", what,
             mode ? mode : "NULL");
        return NULL;
    }
    return spread(x, uniform, gain / sqrt(forward ? in : out));
}

cb_tensor *cb_init_kaiming_uniform_(cb_tensor *x, double a, const char *mode,
                                    const char *nonlinearity) {
    return kaiming(x, "init_kaiming_uniform_", true, a, mode, nonlinearity);
}

cb_tensor *cb_init_kaiming_normal_(cb_tensor *x, double a, const char *mode,
                                   const char *nonlinearity) {
    return kaiming(x, "init_kaiming_normal_", false, a, mode, nonlinearity);
}

/* ---- computed here --------------------------------------------------------------------------- */

/* The inverse of erf for -1 < y < 1: Winitzki's approximation, then Newton's method. */
static double inverse_erf(double y) {
    double log_rest = log1p(-y * y), p = 2 / (M_PI * 0.147) + log_rest / 2;
    double x = copysign(sqrt(sqrt(p * p - log_rest / 0.147) - p), y);
    for (int i = 0; i < 3; i++) x -= (erf(x) - y) / (2 / sqrt(M_PI) * exp(-x * x));
    return x;
}

/* What f makes of a draw, in f64 and the sizes of x. */
static cb_tensor *by_hand(cb_tensor *x, bool normal, void (*f)(double *, int64_t, const double *),
                          const double *arguments) {
    cb_scope_open();
    cb_tensor *like = cb_to(cb_detach(x), CB_F64);
    cb_tensor *draw = normal ? cb_randn_like(like) : cb_rand_like(like);
    double *value = draw ? cb_data(draw) : NULL;
    if (value) f(value, cb_numel(draw), arguments);
    return initialized(x, value ? draw : NULL);
}

static double below(double x) { return erfc(-x / sqrt(2.0)) / 2; } /* of a normal distribution */

static void truncate_normal(double *value, int64_t count, const double *arguments) {
    double mean = arguments[0], std = arguments[1], a = arguments[2], b = arguments[3];
    double low = below((a - mean) / std), high = below((b - mean) / std);
    for (int64_t i = 0; i < count; i++) {
        double share = 2 * (low + value[i] * (high - low)) - 1, most = 1 - 1e-16;
        double drawn = inverse_erf(fmax(-most, fmin(most, share)));
        value[i] = fmax(a, fmin(b, mean + std * sqrt(2.0) * drawn));
    }
}

cb_tensor *cb_init_trunc_normal_(cb_tensor *x, double mean, double std, double a, double b) {
    if (std > 0 && a < b) return by_hand(x, false, truncate_normal, (double[]){mean, std, a, b});
    fail(CB_ERR_ARGUMENT, "init_trunc_normal_: a std of %g in %g..%g", std, a, b);
    return NULL;
}

static double dot(const double *a, const double *b, int64_t count, int64_t step) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i * step] * b[i * step];
    return sum;
}

/* Gram and Schmidt, each direction freed of the earlier ones twice, which makes it as exact as
 * Householder's method. The sign is that of a QR decomposition with a positive diagonal, so the
 * distribution is uniform. arguments: rows, gain. */
static void orthogonalize(double *value, int64_t count, const double *arguments) {
    int64_t rows = (int64_t)arguments[0], columns = count / rows;
    bool tall = rows > columns;
    int64_t few = tall ? columns : rows, many = tall ? rows : columns;
    int64_t step = tall ? columns : 1, next = tall ? 1 : columns;
    for (int64_t i = 0; i < few; i++) {
        double *own = value + i * next;
        for (int64_t pass = 0; pass < 2 * i; pass++) {
            const double *other = value + pass % i * next;
            double along = dot(own, other, many, step);
            for (int64_t k = 0; k < many; k++) own[k * step] -= along * other[k * step];
        }
        double length = sqrt(dot(own, own, many, step));
        for (int64_t k = 0; k < many; k++) own[k * step] /= length;
    }
    for (int64_t i = 0; i < count; i++) value[i] *= arguments[1];
}

cb_tensor *cb_init_orthogonal_(cb_tensor *x, double gain) {
    double in, out;
    if (!fans(x, "init_orthogonal_", &in, &out)) return NULL;
    if (!cb_numel(x)) return x;
    return by_hand(x, true, orthogonalize, (double[]){(double)cb_size(x, 0), gain});
}
