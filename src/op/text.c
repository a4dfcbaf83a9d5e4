/* What PyTorch says with a text and the op table with an op, a flag or a number: paddings and
 * modes.
 *
 *     pad(x, p, mode="reflect")            is  reflection_pad(x, p)
 *     interpolate(x, mode="bicubic")       is  interpolate(x, cubic=true)
 *     conv2d(x, w, padding="same")         is  conv2d(x, w, padding=[PADDING_SAME])
 *     mse_loss(x, y, reduction="sum")      is  mse_loss(x, y, reduction=2) */
#include "op/op.h"

#include <string.h>

/* ---- paddings ----------------------------------------------------------------------------- */

/* An unknown name gives a padding that every convolution refuses, too. */
cb_dim_list cb_padding(const char *name) {
    if (name && strcmp(name, "same") == 0) return cb_dims_one(PADDING_SAME);
    if (name && strcmp(name, "valid") == 0) return cb_dims_one(0);
    fail(CB_ERR_ARGUMENT, "padding is \"same\" or \"valid\" or numbers, not \"%s\"",
         name ? name : "NULL");
    return cb_dims_one(-1);
}

static const struct {
    const char *mode;
    Op op;
} pad_modes[] = {{"constant", OP_pad},
                 {"reflect", OP_reflection_pad},
                 {"replicate", OP_replication_pad},
                 {"circular", OP_circular_pad}};

Op pad_op(const char *mode) {
    for (size_t i = 0; i < sizeof pad_modes / sizeof *pad_modes; i++)
        if (strcmp(pad_modes[i].mode, mode) == 0) return pad_modes[i].op;
    return OP_none;
}

const char *pad_mode(Op op) {
    for (size_t i = 0; i < sizeof pad_modes / sizeof *pad_modes; i++)
        if (pad_modes[i].op == op) return pad_modes[i].mode;
    return NULL;
}

/* ---- flags -------------------------------------------------------------------------------- */

static const struct {
    Op op;
    int word;
    const char *text;
} flags[] = {{OP_gelu, ATTR_gelu_tanh, "tanh"},
             {OP_gelu, NO_FLAG, "none"},
             {OP_interpolate, ATTR_interpolate_linear, "bilinear"},
             {OP_interpolate, ATTR_interpolate_linear, "linear"},
             {OP_interpolate, ATTR_interpolate_linear, "trilinear"},
             {OP_interpolate, ATTR_interpolate_exact, "nearest-exact"},
             {OP_interpolate, ATTR_interpolate_cubic, "bicubic"},
             {OP_interpolate, ATTR_interpolate_area, "area"},
             {OP_interpolate, NO_FLAG, "nearest"}};
enum { FLAG_COUNT = sizeof flags / sizeof *flags };

bool flag_of_text(Op op, const char *text, int *word) {
    for (int i = 0; i < FLAG_COUNT; i++) {
        if (flags[i].op != op || strcmp(flags[i].text, text) != 0) continue;
        *word = flags[i].word;
        return true;
    }
    return false;
}

const char *text_of_flag(Op op, int word) {
    for (int i = 0; i < FLAG_COUNT && word != NO_FLAG; i++)
        if (flags[i].op == op && flags[i].word == word) return flags[i].text;
    return NULL;
}

/* ---- reductions --------------------------------------------------------------------------- */

static const char *const reductions[] = {"none", "mean", "sum", "batchmean"};
enum { REDUCTION_COUNT = sizeof reductions / sizeof *reductions };

bool reduction_of_text(const char *text, int64_t *reduction) {
    for (int i = 0; i < REDUCTION_COUNT; i++)
        if (strcmp(reductions[i], text) == 0) return *reduction = i, true;
    return false;
}

const char *text_of_reduction(int64_t reduction) {
    bool known = reduction >= 0 && reduction < REDUCTION_COUNT;
    return known ? reductions[reduction] : NULL;
}
