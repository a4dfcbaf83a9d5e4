/* What the tests of FX graphs share: graphs, comparisons, expected errors. */
#ifndef CARBIDE_TEST_FX_SUPPORT_H
#define CARBIDE_TEST_FX_SUPPORT_H

#include "fixture.h"

#include "fx/fx.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope)

static inline void expect_no_error(void) {
    if (cb_error()) print_error("%s\n", cb_error());
    assert_null(cb_error());
}

/* Frees text. */
static inline void expect_text(char *text, const char *expected) {
    if (!text) print_error("%s\n", cb_error() ? cb_error() : "no text");
    assert_non_null(text);
    size_t same = 0; /* cmocka cuts long texts: show where they part */
    while (text[same] && text[same] == expected[same]) same++;
    if (text[same] != expected[same])
        print_error("got:      '%.150s'\nexpected: '%.150s'\n", text + same, expected + same);
    assert_int_equal(text[same], expected[same]);
    cb_free_text(text);
}

static inline void expect_close(cb_tensor *a, cb_tensor *b) {
    double x[512], y[512];
    expect_no_error();
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(cb_dtype_of(a), cb_dtype_of(b));
    assert_int_equal(cb_rank(a), cb_rank(b));
    for (int i = 0; i < cb_rank(a); i++) assert_int_equal(cb_size(a, i), cb_size(b, i));
    assert_true(cb_numel(a) <= 512);
    assert_int_equal(cb_read(a, x, CB_F64), CB_OK);
    assert_int_equal(cb_read(b, y, CB_F64), CB_OK);
    for (int i = 0; i < cb_numel(a); i++)
        assert_true(fabs(x[i] - y[i]) <= 1e-5 * (1 + fabs(y[i])) || (isnan(x[i]) && isnan(y[i])));
}

/* relu(linear(x) + x), the module of the design page */
static inline cb_tensor *block_forward(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    cb_tensor *x = inputs[0];
    return cb_relu(cb_add(cb_forward(cb_module_child(self, "linear"), x), x));
}

static inline cb_module *block_new(void) {
    cb_module *block = cb_module_new("Block", block_forward, NULL);
    cb_module_add(block, "linear", cb_nn_linear(4, 4, true));
    return block;
}

static inline cb_graph *parse(const char *text) {
    cb_graph *graph = cb_graph_parse(text, NULL);
    if (!graph) print_error("%s\n", cb_error());
    assert_non_null(graph);
    return graph;
}

#endif
