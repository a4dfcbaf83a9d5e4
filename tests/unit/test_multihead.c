/* MultiheadAttentions of all options, with padding, masks and weights, against PyTorch's values. */
#include "expression.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { NO_PADDING, PADDING, PADDING_NUMBERS };
enum { NO_MASK, FORBIDDEN, NUMBERS, HEADS, HEADS_FORBIDDEN, CAUSAL };
enum { BATCH = 2, QUERIES = 3, KEYS = 5, EMBED = 8, SPLIT = 2 };

#include "multihead_cases.h"

enum { CASES = sizeof cases / sizeof *cases };

/* The first elements of vector number seed. */
static cb_tensor *part(int64_t seed, cb_dim_list sizes) {
    int64_t count = 1;
    for (int i = 0; i < sizes.count; i++) count *= sizes.at[i];
    return cb_reshape(cb_narrow(input(seed, CB_F32), 0, 0, count), sizes);
}

static bool has(int k, char option) { return strchr(cases[k].options, option) != NULL; }

/* Parameter i of the module, when it has it, is a quarter of vector i. */
static cb_module *module_new(int k) {
    static const char *const names[] = {"in_proj_weight", "q_proj_weight",   "k_proj_weight",
                                        "v_proj_weight",  "in_proj_bias",    "bias_k",
                                        "bias_v",         "out_proj.weight", "out_proj.bias"};
    cb_module *module =
        cb_nn_multihead_attention(EMBED, SPLIT, 0.5, has(k, 'b'), has(k, 'k'), has(k, 'z'),
                                  cases[k].kdim, cases[k].vdim, !has(k, 'l'));
    for (int i = 0; i < 9; i++) {
        cb_tensor *own = cb_module_get(module, names[i]);
        cb_dim_list sizes = {0};
        if (!own) continue;
        for (; sizes.count < cb_rank(own); sizes.count++)
            sizes.at[sizes.count] = cb_size(own, sizes.count);
        cb_assign(own, cb_div(part(i, sizes), 4.0));
    }
    cb_module_train(module, false);
    return module;
}

static cb_tensor *padding_of(int kind) {
    static const bool hidden[BATCH * KEYS] = {0, 0, 0, 0, 1, 0, 1, 0, 1, 0};
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
        return part(8, cb_dims(BATCH * SPLIT, QUERIES, KEYS));
    case HEADS_FORBIDDEN:
        return cb_gt(part(8, cb_dims(BATCH * SPLIT, QUERIES, KEYS)), 1);
    case CAUSAL:
        return cb_gt(cb_arange(0, KEYS), row);
    default:
        return NULL;
    }
}

static void expect(const char *what, int k, cb_tensor *x, const double *expected) {
    static double value[COUNT];
    double sum = 0;
    if (!x) fail_msg("case %d, %s: %s", k, what, cb_error());
    assert_int_equal(cb_read(x, value, CB_F64), CB_OK);
    for (int64_t i = 0; i < cb_numel(x); i++) sum += value[i] * (double)(i * 7 % 13 + 1);
    if (!(fabs(sum - expected[0]) <= 2e-6 * (1 + expected[1])))
        fail_msg("case %d, %s: the sum is %.9g, not %.9g", k, what, sum, expected[0]);
}

typedef struct Multihead {
    cb_module *module;
    cb_tensor *query, *key, *value, *padding, *mask;
} Multihead;

static Multihead call_of(int k) {
    int64_t kdim = cases[k].kdim ? cases[k].kdim : EMBED;
    int64_t vdim = cases[k].vdim ? cases[k].vdim : EMBED;
    Multihead call = {module_new(k),
                      part(10, cb_dims(BATCH, QUERIES, EMBED)),
                      part(11, cb_dims(BATCH, KEYS, kdim)),
                      part(12, cb_dims(BATCH, KEYS, vdim)),
                      padding_of(cases[k].padding),
                      mask_of(cases[k].mask)};
    cb_tensor **x[] = {&call.query, &call.key, &call.value};
    for (int i = 0; i < 3; i++) {
        if (has(k, 'f'))
            *x[i] = cb_select(*x[i], 0, 0);
        else if (has(k, 'l'))
            *x[i] = cb_transpose(*x[i], 0, 1);
    }
    if (has(k, 's')) call.value = call.key;
    if (has(k, 'f') && call.padding) call.padding = cb_select(call.padding, 0, 0);
    if (has(k, 'f') && call.mask && cb_rank(call.mask) == 3)
        call.mask = cb_narrow(call.mask, 0, 0, SPLIT);
    return call;
}

static cb_tensor *attend(const Multihead *c, bool average, cb_tensor **weights) {
    return cb_multihead_attention(c->module, c->query, c->key, c->value, c->padding, c->mask,
                                  average, weights);
}

static void values_are_pytorchs(void **state) {
    (void)state;
    for (int k = 0; k < CASES; k++) {
        cb_scope_open();
        Multihead call = call_of(k);
        cb_tensor *weights, *each;
        expect("output", k, attend(&call, true, &weights), cases[k].sum);
        expect("weights", k, weights, cases[k].sum + 2);
        attend(&call, false, &each);
        expect("weights of each head", k, each, cases[k].sum + 4);
        expect("output alone", k, attend(&call, true, NULL), cases[k].sum);
        if (cases[k].padding == NO_PADDING && cases[k].mask != NO_MASK)
            expect("forward", k,
                   cb_forward(call.module, call.query, call.key, call.value, call.mask),
                   cases[k].sum);
        cb_module_free(call.module);
        cb_scope_close();
        assert_null(cb_error());
    }
}

static void causal_needs_no_mask(void **state) {
    (void)state;
    for (int k = 0; k < CASES; k++) {
        if (cases[k].mask != CAUSAL) continue;
        cb_scope_open();
        Multihead c = call_of(k);
        cb_tensor *weights;
        expect("output", k,
               cb_multihead_attention(c.module, c.query, c.key, c.value, c.padding, NULL, true,
                                      NULL, true),
               cases[k].sum);
        cb_multihead_attention(c.module, c.query, c.key, c.value, c.padding, NULL, true, &weights,
                               true);
        expect("weights", k, weights, cases[k].sum + 2);
        expect("with its mask", k,
               cb_multihead_attention(c.module, c.query, c.key, c.value, c.padding, c.mask, true,
                                      NULL, true),
               cases[k].sum);
        cb_module_free(c.module);
        cb_scope_close();
        assert_null(cb_error());
    }
}

static int forward_padded(cb_tensor *const *x, int count, cb_tensor **y, void *user) {
    (void)count;
    *y = cb_multihead_attention(user, x[0], x[1], x[2], x[3], NULL, true, NULL, true);
    return *y ? 1 : -1;
}

static void compiled_is_eager(void **state) {
    (void)state;
    for (int k = 0; k < CASES; k++) {
        if (cases[k].padding != PADDING || cases[k].mask != CAUSAL) continue;
        cb_scope_open();
        Multihead c = call_of(k);
        cb_function *compiled = cb_compile_n(forward_padded, c.module, "backend=vm");
        cb_tensor *x[] = {c.query, c.key, c.value, c.padding}, *y;
        for (int round = 0; round < 2; round++) {
            assert_int_equal(cb_call_n(compiled, x, 4, &y, 1), 1);
            expect("compiled", k, y, cases[k].sum);
        }
        cb_function_free(compiled);
        cb_module_free(c.module);
        cb_scope_close();
        assert_null(cb_error());
    }
}

static void append_name(const char *name, cb_tensor *tensor, bool buffer, void *user) {
    (void)tensor, (void)buffer;
    strcat(strcat(user, name), " ");
}

static void keys_are_pytorchs(void **state) {
    (void)state;
    char names[256] = "";
    cb_module *module = cb_nn_multihead_attention(8, 2, 0, true, true, true, 6);
    cb_module_visit(module, append_name, names);
    assert_string_equal(names, "q_proj_weight k_proj_weight v_proj_weight in_proj_bias bias_k "
                               "bias_v out_proj.weight out_proj.bias ");
    assert_int_equal(cb_size(cb_module_get(module, "k_proj_weight"), 1), 6);
    assert_int_equal(cb_size(cb_module_get(module, "v_proj_weight"), 1), 8);
    assert_null(cb_module_get(module, "in_proj_weight"));
    assert_null(cb_error());
    cb_module_free(module);
}

/* Queries that see nothing: 0 / 0 in the weights, and zeros before the projection without them. */
static void nothing_to_see(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = cb_nn_multihead_attention(EMBED, SPLIT, 0, false, false, false, 0, 0, true);
    cb_tensor *q = part(4, cb_dims(BATCH, QUERIES, EMBED)), *weights;
    cb_tensor *none = cb_full(cb_dims(QUERIES, QUERIES), 1, CB_BOOL);
    cb_tensor *y = cb_multihead_attention(module, q, q, q, NULL, none, true, NULL);
    assert_true(cb_item(cb_amax(cb_abs(y))) == 0);
    cb_multihead_attention(module, q, q, q, NULL, none, true, &weights);
    assert_true(isnan(cb_item(cb_sum(weights))));
    cb_module_free(module);
    cb_scope_close();
    assert_null(cb_error());
}

static void expect_error(cb_tensor *y, const char *part_of_it) {
    assert_null(y);
    if (!strstr(cb_error(), part_of_it)) fail_msg("%s lacks '%s'", cb_error(), part_of_it);
    cb_clear_error();
}

static void mistakes(void **state) {
    (void)state;
    cb_scope_open();
    cb_module *module = cb_nn_multihead_attention(EMBED, SPLIT, 0, true, false, false, 6, 0, true);
    cb_module *other = cb_nn_relu();
    cb_tensor *q = part(4, cb_dims(BATCH, QUERIES, EMBED)), *weights;
    cb_tensor *k = part(5, cb_dims(BATCH, KEYS, 6)), *v = part(5, cb_dims(BATCH, KEYS, EMBED));
    cb_tensor *ones = cb_ones(cb_dims(2, 3, 5)), *whole = cb_full(cb_dims(3, 5), 1, CB_I64);
    expect_error(cb_multihead_attention(other, q, q, q, NULL, NULL, true, &weights),
                 "ReLU is no MultiheadAttention");
    expect_error(cb_multihead_attention(module, q, q, v, NULL, NULL, true, NULL),
                 "key is [batch, length, 6] or [length, 6], not [2, 3, 8]");
    expect_error(cb_multihead_attention(module, q, k, q, NULL, NULL, true, NULL),
                 "key and value one length: not [2, 3, 8], [2, 5, 6] and [2, 3, 8]");
    expect_error(cb_multihead_attention(module, q, k, v, ones, NULL, true, NULL),
                 "key_padding_mask is [2, 5], bool or floating point, not f32[2, 3, 5]");
    expect_error(cb_multihead_attention(module, q, k, v, NULL, ones, true, NULL),
                 "attn_mask is [3, 5] or [4, 3, 5], bool or floating point, not f32[2, 3, 5]");
    expect_error(cb_multihead_attention(module, q, k, v, NULL, whole, true, NULL),
                 "bool or floating point, not i64[3, 5]");
    assert_null(cb_nn_multihead_attention(8, 2, 0, true, false, false, -1));
    expect_error(NULL, "kdim -1");
    cb_module_free(module);
    cb_module_free(other);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_pytorchs), cmocka_unit_test(causal_needs_no_mask),
        cmocka_unit_test(compiled_is_eager),   cmocka_unit_test(keys_are_pytorchs),
        cmocka_unit_test(nothing_to_see),      cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
