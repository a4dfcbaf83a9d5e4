/* The table of cases: one row each, with the function that is measured.
 *
 * A body is ordinary user code over the public API. gelu is written with eight operations, as on
 * the design page and as the PyTorch case does: the op cb_gelu would be one kernel in eager,
 * too. */
#include "cases.h"
#include "screen.h"

#include <carbide_models.h>
#include <string.h>

enum { SMALL = 1 << 10, MEDIUM = 1 << 22, LARGE = 1 << 24, ROW = 1024, ROWS = MEDIUM / ROW };
enum { PIXELS = 784, HIDDEN = 512, CLASSES = 10 };
enum { COLORS = 3, SIDE = 224, OBJECTS = 1000, TOKENS = 128, VOCABULARY = 50257 };
enum { DIGIT_PIXELS = 64, LEARNT_TOKENS = 256 };
enum { FEW_BINS = 1 << 10, SOME_BINS = 1 << 16, MANY_BINS = 1 << 22, WORDS = 1000, COLUMNS = 64 };
enum { SHORT_ROW = 5, SHORT_ROWS = 200000 };

/* A body of one expression over its inputs x[0], x[1], ... */
#define BODY(name, expression)                                                                     \
    static int name(cb_tensor *const *x, int count, cb_tensor **output, void *user) {              \
        (void)count, (void)user;                                                                   \
        *output = expression;                                                                      \
        return 1;                                                                                  \
    }

static cb_tensor *gelu_of(cb_tensor *x) {
    cb_tensor *u = cb_mul(cb_add(x, cb_mul(cb_pow(x, 3.0), 0.044715)), 0.7978845608);
    return cb_mul(cb_mul(x, 0.5), cb_add(cb_tanh(u), 1.0));
}

static cb_tensor *mlp_of(cb_tensor *const *x) { /* x, then weight and bias of three layers */
    cb_tensor *first = cb_relu(cb_linear(x[0], x[1], x[2]));
    cb_tensor *second = cb_relu(cb_linear(first, x[3], x[4]));
    return cb_linear(second, x[5], x[6]);
}

BODY(copy, cb_neg(x[0])) /* a sign is free; a clone would compile to no kernel at all */
BODY(gelu, gelu_of(x[0]))
BODY(muladd_relu_sum, cb_sum(cb_relu(cb_add(cb_mul(x[0], x[1]), x[2]))))
BODY(softmax, cb_softmax(x[0], -1))
BODY(layernorm_gelu, gelu_of(cb_layer_norm(x[0], cb_dims(cb_size(x[0], -1)), x[1], x[2])))
BODY(mlp, mlp_of(x))
BODY(add, cb_add(x[0], x[0]))
BODY(exponential, cb_exp(x[0]))
BODY(sum, cb_sum(x[0]))
BODY(scale_rows, cb_mul(x[0], x[1]))
BODY(scatter_add, cb_scatter_add(x[0], 0, x[1], x[2]))
BODY(scatter_rows, cb_scatter_add(x[0], 0, cb_expand(x[1], cb_dims(-1, COLUMNS)), x[2]))

static cb_module *alexnet(void) { return cb_model_alexnet(cb_alexnet_config_default()); }
static cb_module *resnet18(void) { return cb_model_resnet(cb_resnet18_config()); }
static cb_module *resnet50(void) { return cb_model_resnet(cb_resnet50_config()); }
static cb_module *gpt2(void) { return cb_model_gpt2(cb_gpt2_124m_config()); }
static cb_module *digits(void) {
    return cb_model_mlp((int64_t[]){DIGIT_PIXELS, 128, 64, CLASSES}, 4);
}

/* A network that learns stays about where it began, however long it is timed. */
#define SLOWLY "lr=1e-7"

const BenchCase cases[] = {
    {.name = "copy",
     .help = "-x, one read and one write: the rate of memory",
     .body = copy,
     .dtype = CB_F32,
     .batch = LARGE,
     .demo = true,
     .input = {{{BATCH}, 1}}},
    {.name = "gelu",
     .help = "eight pointwise ops",
     .body = gelu,
     .dtype = CB_F32,
     .batch = LARGE,
     .demo = true,
     .input = {{{BATCH}, 1}}},
    {.name = "muladd_relu_sum",
     .help = "(w * x + b).relu().sum()",
     .body = muladd_relu_sum,
     .dtype = CB_F64,
     .batch = LARGE / 8,
     .whole = true,
     .demo = true,
     .input = {{{BATCH}, 1}, {{BATCH}, 1}, {{BATCH}, 1}}},
    {.name = "softmax",
     .help = "softmax over rows of 1024",
     .body = softmax,
     .dtype = CB_F32,
     .batch = ROWS,
     .demo = true,
     .input = {{{BATCH, ROW}, 1}}},
    {.name = "layernorm_gelu",
     .help = "layer norm over rows of 1024, then gelu",
     .body = layernorm_gelu,
     .dtype = CB_F32,
     .batch = ROWS,
     .demo = true,
     .input = {{{BATCH, ROW}, 1}, {{ROW}, 1}, {{ROW}, 1}}},
    {.name = "mlp",
     .help = "784 -> 512 -> 512 -> 10 with relu",
     .body = mlp,
     .dtype = CB_F32,
     .batch = 64,
     .demo = true,
     .input = {{{BATCH, PIXELS}, 1},
               {{HIDDEN, PIXELS}, 0.036}, /* 1 / sqrt(784), so that values stay near 1 */
               {{HIDDEN}, 1},
               {{HIDDEN, HIDDEN}, 0.044},
               {{HIDDEN}, 1},
               {{CLASSES, HIDDEN}, 0.044},
               {{CLASSES}, 1}}},
    {.name = "photo",
     .help = "develops a photograph: more than thirty ops",
     .body = photo_body,
     .dtype = CB_F32,
     .whole = true,
     .demo = true,
     .make = photo_make},
    {.name = "overhead",
     .help = "gelu on 1024 elements: the cost of a call",
     .body = gelu,
     .dtype = CB_F32,
     .batch = SMALL,
     .demo = true,
     .input = {{{BATCH}, 1}}},
    {.name = "eager_add",
     .help = "x + x, one op",
     .body = add,
     .dtype = CB_F32,
     .batch = MEDIUM,
     .input = {{{BATCH}, 1}}},
    {.name = "eager_exp",
     .help = "exp(x), one op",
     .body = exponential,
     .dtype = CB_F32,
     .batch = MEDIUM,
     .input = {{{BATCH}, 1}}},
    {.name = "eager_sum",
     .help = "x.sum(), one op",
     .body = sum,
     .dtype = CB_F32,
     .batch = MEDIUM,
     .whole = true,
     .input = {{{BATCH}, 1}}},
    {.name = "eager_softmax",
     .help = "softmax over rows of 1024, one op",
     .body = softmax,
     .dtype = CB_F32,
     .batch = ROWS,
     .input = {{{BATCH, ROW}, 1}}},
    {.name = "eager_short_rows",
     .help = "rows of 5 times a column, one op",
     .body = scale_rows,
     .dtype = CB_F32,
     .batch = SHORT_ROWS,
     .input = {{{BATCH, SHORT_ROW}, 1}, {{BATCH, 1}, 1}}},
    {.name = "scatter_2_10",
     .help = "scatter_add into 2^10 bins: a histogram",
     .body = scatter_add,
     .dtype = CB_F32,
     .batch = MEDIUM,
     .whole = true,
     .input = {{{FEW_BINS}, 1}, {{BATCH}, 0}, {{BATCH}, 1}},
     .below = FEW_BINS},
    {.name = "scatter_2_16",
     .help = "scatter_add into 2^16 bins",
     .body = scatter_add,
     .dtype = CB_F32,
     .batch = MEDIUM,
     .whole = true,
     .input = {{{SOME_BINS}, 1}, {{BATCH}, 0}, {{BATCH}, 1}},
     .below = SOME_BINS},
    {.name = "scatter_2_22",
     .help = "scatter_add into 2^22 bins",
     .body = scatter_add,
     .dtype = CB_F32,
     .batch = MEDIUM,
     .whole = true,
     .input = {{{MANY_BINS}, 1}, {{BATCH}, 0}, {{BATCH}, 1}},
     .below = MANY_BINS},
    {.name = "scatter_rows",
     .help = "scatter_add of rows of 64 into 1000: an embedding's gradient",
     .body = scatter_rows,
     .dtype = CB_F32,
     .batch = ROWS * 2,
     .whole = true,
     .input = {{{WORDS, COLUMNS}, 1}, {{BATCH, 1}, 0}, {{BATCH, COLUMNS}, 1}},
     .below = WORDS},
    {.name = "alexnet",
     .help = "images of 224 x 224 through AlexNet",
     .network = alexnet,
     .dtype = CB_F32,
     .batch = 32,
     .demo = true,
     .input = {{{BATCH, COLORS, SIDE, SIDE}, 1}}},
    {.name = "resnet50",
     .help = "images of 224 x 224 through ResNet-50",
     .network = resnet50,
     .dtype = CB_F32,
     .batch = 1,
     .input = {{{BATCH, COLORS, SIDE, SIDE}, 1}}},
    {.name = "gpt2",
     .help = "texts of 128 tokens through GPT-2, 124M parameters",
     .network = gpt2,
     .dtype = CB_F32,
     .batch = 1,
     .input = {{{BATCH, TOKENS}, 0}},
     .below = VOCABULARY},
    {.name = "digits-train",
     .help = "a training step of 64 -> 128 -> 64 -> 10, with AdamW: the cost of a call",
     .network = digits,
     .body = training_step,
     .optimizer = "AdamW",
     .rates = SLOWLY,
     .whole = true,
     .dtype = CB_F32,
     .batch = 64,
     .input = {{{BATCH, DIGIT_PIXELS}, 1}, {{BATCH}, 0}},
     .below = CLASSES},
    {.name = "resnet18-train",
     .help = "a training step of ResNet-18, images of 224 x 224, SGD with momentum",
     .network = resnet18,
     .body = training_step,
     .optimizer = "SGD",
     .rates = SLOWLY ", momentum=0.9, weight_decay=1e-4",
     .whole = true,
     .dtype = CB_F32,
     .batch = 8,
     .input = {{{BATCH, COLORS, SIDE, SIDE}, 1}, {{BATCH}, 0}},
     .below = OBJECTS},
    {.name = "gpt2-train",
     .help = "a training step of GPT-2, 124M parameters, texts of 256 tokens, AdamW",
     .network = gpt2,
     .body = training_step,
     .optimizer = "AdamW",
     .rates = SLOWLY,
     .whole = true,
     .dtype = CB_F32,
     .batch = 1,
     .input = {{{BATCH, LEARNT_TOKENS}, 0}, {{BATCH, LEARNT_TOKENS}, 0}},
     .below = VOCABULARY},
};
const int case_count = sizeof cases / sizeof *cases;

const BenchCase *case_find(const char *name) {
    for (int i = 0; i < case_count; i++)
        if (!strcmp(cases[i].name, name)) return &cases[i];
    Guess guess = guess_begin(name);
    for (int i = 0; i < case_count; i++) guess_try(&guess, cases[i].name);
    fprintf(stderr, "carbide: there is no case '%s'", name);
    guess_print(&guess, stderr);
    fputs("\nthere are ", stderr);
    char names[1024] = "";
    for (int i = 0, used = 0; i < case_count; i++)
        used += snprintf(names + used, sizeof names - (size_t)used, "%s%s", i ? " " : "",
                         cases[i].name);
    screen_wrap(stderr, (int)strlen("there are "), 2, names);
    return NULL;
}

/* Compiles any function, which runs nothing yet, to have the options looked at. */
bool case_options(char *out, size_t bytes, const char *device, const char *mode, const char *more) {
    snprintf(out, bytes, "device=%s,mode=%s,%s", device, mode, more ? more : "");
    cb_function *probe = cb_compile_n(copy, NULL, out);
    if (!probe) screen_error("", "failed");
    cb_function_free(probe);
    return probe != NULL;
}
