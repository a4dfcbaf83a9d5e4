/* cb_multihead_attention with padding, masks and weights against PyTorch's values. */
#include "expression.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { NO_PADDING, PADDING, PADDING_NUMBERS };
enum { NO_MASK, FORBIDDEN, NUMBERS, HEADS };
enum { BATCH = 2, QUERIES = 3, KEYS = 5, EMBED = 8 };

#include "multihead_cases.h"

/* The first elements of vector number seed. */
static cb_tensor *part(int64_t seed, cb_dim_list sizes) {
    int64_t count = 1;
    for (int i = 0; i < sizes.count; i++) count *= sizes.at[i];
    return cb_reshape(cb_narrow(input(seed, CB_F32), 0, 0, count), sizes);
}

static cb_module *module_new(void) {
    cb_module *module = cb_nn_multihead_attention(EMBED, 2, 0.5, true);
    cb_assign(cb_module_get(module, "in_proj_weight"),
              cb_div(part(0, cb_dims(3 * EMBED, EMBED)), 4.0));
    cb_assign(cb_module_get(module, "in_proj_bias"), cb_div(part(1, cb_dims(3 * EMBED)), 4.0));
    cb_assign(cb_module_get(module, "out_proj.weight"),
              cb_div(part(2, cb_dims(EMBED, EMBED)), 4.0));
    cb_assign(cb_module_get(module, "out_proj.bias"), cb_div(part(3, cb_dims(EMBED)), 4.0));
    cb_module_train(module, false);
    return module;
}

static cb_tensor *padding_of(int kind) {
    static const bool hidden[BATCH * KEYS] = {0, 0, 0, 0, 1, 1, 0, 0, 1, 0};
    cb_tensor *mask = cb_from_data(hidden, CB_BOOL, cb_dims(BATCH, KEYS));
    if (kind == NO_PADDING) return NULL;
    return kind == PADDING ? mask : cb_mul(cb_to(mask, CB_F32), -3.0);
}

static cb_tensor *mask_of(int kind) {
    cb_tensor *row = cb_reshape(cb_arange(0, QUERIES), cb_dims(QUERIES, 1));
    switch (kind) {
    case FORBIDDEN:
        return cb_eq(cb_remainder(cb_add(cb_mul(row, 3), cb_arange(0, KEYS)), 4), 1);
    case NUMBERS:
        return part(7, cb_dims(QUERIES, KEYS));
    case HEADS:
        return part(8, cb_dims(BATCH * 2, QUERIES, KEYS));
    default:
        return NULL;
    }
}

static void expect(const char *what, size_t k, cb_tensor *row, const double *expected) {
    double value[EMBED];
    assert_int_equal(cb_read(row, value, CB_F64), CB_OK);
    for (int64_t i = 0; i < cb_numel(row); i++)
        if (!(fabs(value[i] - expected[i]) <= 2e-6 * (1 + fabs(expected[i]))))
            fail_msg("case %d, %s [%d] is %.9g, not %.9g", (int)k, what, (int)i, value[i],
                     expected[i]);
}

static void values_are_pytorchs(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = module_new();
    cb_tensor *q = part(4, cb_dims(BATCH, QUERIES, EMBED)), *weights, *each;
    cb_tensor *k = part(5, cb_dims(BATCH, KEYS, EMBED)), *v = part(6, cb_dims(BATCH, KEYS, EMBED));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_tensor *padding = padding_of(cases[i].padding), *mask = mask_of(cases[i].mask);
        cb_tensor *y = cb_multihead_attention(module, q, k, v, padding, mask, true, &weights);
        if (!y) fail_msg("%s", cb_error());
        expect("output", i, cb_select(cb_select(y, 0, 0), 0, 0), cases[i].output);
        expect("weights", i, cb_select(cb_select(weights, 0, 1), 0, 2), cases[i].average);
        cb_multihead_attention(module, q, k, v, padding, mask, false, &each);
        expect("head", i, cb_select(cb_select(cb_select(each, 0, 1), 0, 1), 0, 2), cases[i].second);
        y = cb_multihead_attention(module, q, k, v, padding, mask, true, NULL);
        expect("output alone", i, cb_select(cb_select(y, 0, 0), 0, 0), cases[i].output);
    }
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

static void without_a_batch(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = module_new();
    cb_tensor *q = part(4, cb_dims(BATCH, QUERIES, EMBED)), *weights;
    cb_tensor *k = part(5, cb_dims(BATCH, KEYS, EMBED)), *v = part(6, cb_dims(BATCH, KEYS, EMBED));
    cb_tensor *padding = cb_select(padding_of(PADDING), 0, 0);
    cb_tensor *y = cb_multihead_attention(module, cb_select(q, 0, 0), cb_select(k, 0, 0),
                                          cb_select(v, 0, 0), padding, NULL, true, &weights);
    assert_int_equal(cb_rank(y), 2);
    assert_int_equal(cb_rank(weights), 2);
    expect("output", 1, cb_select(y, 0, 0), cases[1].output);
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

static void mistakes(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = module_new(), *other = cb_nn_relu();
    cb_tensor *q = part(4, cb_dims(BATCH, QUERIES, EMBED)), *weights;
    assert_null(cb_multihead_attention(other, q, q, q, NULL, NULL, true, &weights));
    assert_non_null(strstr(cb_error(), "ReLU is no MultiheadAttention"));
    cb_clear_error();
    assert_null(cb_multihead_attention(module, q, q, q, padding_of(PADDING), NULL, true, NULL));
    assert_non_null(strstr(cb_error(), "key_padding_mask is [2, 3]"));
    cb_clear_error();
    cb_module_free(module);
    cb_module_free(other);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_pytorchs),
        cmocka_unit_test(without_a_batch),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
