/* Names that are asked for and are no rows of the op table: those of PyTorch for what is another
 * op here, or several; and the functions of the headers (gen/api_functions.h).
 *
 *     carbide ops bmm        cb_matmul
 *     carbide ops einsum     no op: how else it is written
 *     carbide ops backward   a function of carbide_grad.h */
#include "names.h"
#include "screen.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *ours;
} names_there[] = {{"bmm", "matmul"},
                   {"mm", "matmul"},
                   {"mv", "matmul"},
                   {"dot", "matmul"},
                   {"copy_", "assign"},
                   {"zero_", "fill_"},
                   {"scatter_reduce", "scatter_add"},
                   {"median", "sort"},
                   {"concat", "cat"},
                   {"index_add", "scatter_add"},
                   {"take_along_dim", "gather"},
                   {"clip", "clamp"},
                   {"true_divide", "div"},
                   {"tile", "repeat"},
                   {"movedim", "permute"},
                   {"swapaxes", "transpose"},
                   {"unbind", "chunk"},
                   {"hstack", "cat"},
                   {"vstack", "cat"}};

#define OF_A_BAG "cb_sum or cb_mean of cb_embedding along the bag"
#define NO_LINEAR_ALGEBRA                                                                          \
    "no linear algebra beyond cb_matmul: no inverse, solve, det, cholesky or svd"

static const struct {
    const char *name, *advice;
} advices[] = {
    {"max", "cb_amax(x, dim) along dims, cb_maximum(a, b) of two tensors, cb_argmax(x, dim) for "
            "positions"},
    {"min", "cb_amin(x, dim) along dims, cb_minimum(a, b) of two tensors, cb_argmin(x, dim) for "
            "positions"},
    {"outer", "cb_mul(cb_unsqueeze(a, 1), b) of two vectors"},
    {"einsum", "cb_permute and cb_reshape before and behind cb_matmul; of few dims cb_mul with "
               "cb_unsqueeze, and cb_sum"},
    {"multinomial", "one draw of each row of logarithms p: cb_argmax(cb_sub(p, "
                    "cb_log(cb_neg(cb_log(cb_rand_like(p))))), -1)"},
    {"bincount", "cb_scatter_add(cb_zeros(n, CB_I64), 0, index, cb_ones_like(index)) of i64"},
    {"allclose", "cb_all(cb_le(cb_abs(cb_sub(a, b)), cb_add(cb_mul(cb_abs(b), 1e-5), 1e-8)))"},
    {"isclose", "cb_le(cb_abs(cb_sub(a, b)), cb_add(cb_mul(cb_abs(b), 1e-5), 1e-8))"},
    {"equal", "cb_item(cb_all(cb_eq(a, b)))"},
    {"cdist", "cb_norm of a difference of cb_unsqueeze(a, 1) and b, along the last dim"},
    {"kthvalue", "cb_sort, then cb_select"},
    {"histc", "cb_scatter_add of ones"},
    {"bernoulli", "cb_lt(cb_rand_like(p), p)"},
    {"index_put", "cb_masked_fill, cb_where or cb_scatter"},
    {"baddbmm", "cb_add(x, cb_matmul(a, b))"},
    {"logit", "cb_sub(cb_log(x), cb_log1p(cb_neg(x)))"},
    {"unique", "cb_sort, and cb_ne of neighbours"},
    {"meshgrid", "cb_expand of cb_unsqueeze"},
    {"adam", "cb_optimizer_new(\"Adam\", NULL) of carbide_train.h"},
    {"adamw", "cb_optimizer_new(\"AdamW\", NULL) of carbide_train.h"},
    {"sgd", "cb_optimizer_new(\"SGD\", NULL) of carbide_train.h"},
    {"lstm", "a loop over cb_linear, cb_sigmoid and cb_tanh in a compiled function, which unrolls "
             "it: there are no recurrent layers"},
    {"gru", "a loop over cb_linear, cb_sigmoid and cb_tanh in a compiled function, which unrolls "
            "it: there are no recurrent layers"},
    {"rnn", "a loop over cb_linear and cb_tanh in a compiled function, which unrolls it: there "
            "are no recurrent layers"},
    {"embeddingbag", OF_A_BAG},
    {"embedding_bag", OF_A_BAG},
    {"inverse", NO_LINEAR_ALGEBRA},
    {"linalg", NO_LINEAR_ALGEBRA},
    {"svd", NO_LINEAR_ALGEBRA},
    {"trace", "cb_sum of a product with cb_eye"},
};

static const struct {
    const char *name, *header, *declaration;
} functions[] = {
#include "api_functions.h"
};

const char *name_here(const char *name) {
    for (size_t i = 0; i < sizeof names_there / sizeof *names_there; i++)
        if (!strcmp(names_there[i].name, name)) return names_there[i].ours;
    return NULL;
}

/* Of a class of torch.nn, too: GRU. */
const char *name_advice(const char *name) {
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
        if (!strcasecmp(advices[i].name, name)) return advices[i].advice;
    return NULL;
}

bool print_function(const char *name, Guess *guess) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const char *own = functions[i].name;
        bool layer = !strncmp(own, "nn_", 3);
        guess_try(guess, own);
        if (strcmp(own, name) != 0 && !(layer && !strcmp(own + 3, name))) continue;
        printf("%scb_%s%s, %sof %s\n", screen_bold(), own, screen_plain(), layer ? "a layer " : "",
               functions[i].header);
        screen_wrap(stdout, printf("  "), 6, functions[i].declaration);
        return true;
    }
    return false;
}
