/* What the tests of FX graphs share: graphs, comparisons, expected errors. */
#ifndef CARBIDE_TEST_FX_SUPPORT_H
#define CARBIDE_TEST_FX_SUPPORT_H

#include "elements.h"
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
    expect_no_error();
    expect_tensor(a, b, 1e-5, 1e-5);
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

/* The program whose torch.fx text is known; see the expected text. */
static inline cb_tensor *long_forward(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    cb_tensor *x = inputs[0];
    cb_tensor *a = cb_relu(cb_add(cb_forward(cb_module_child(self, "linear"), x), x));
    cb_tensor *b = cb_mul(cb_softmax(a, -1), cb_module_get(self, "w"));
    cb_tensor *c = cb_sum(cb_softmax(b, 1), 1, true);
    c = cb_add(c, cb_sum(b, cb_dims(0, 1)));
    c = cb_add(c, cb_module_get(self, "w"));
    cb_tensor *d = cb_slice(cb_forward(cb_module_child(self, "seq"), c), 1, 1, 3);
    cb_tensor *both[] = {d, d, d, d}; /* cb_cat joins pairs; the graph shows one cat */
    cb_tensor *e = cb_sub(1, cb_cat(both, 4, 1));
    cb_tensor *f = cb_view(cb_to(e, CB_F64), cb_dims(-1, 2));
    f = cb_add(cb_mul(cb_add(cb_div(f, 2.5e-7), 1e5), 1e+20), 1e-5);
    cb_tensor *g = cb_unsqueeze(cb_sum(f, cb_dims(0, 1), true), 0);
    cb_tensor *i = cb_gelu(g, true);
    cb_tensor *j = cb_where(cb_gt(i, 0), i, 0.0);
    cb_tensor *k = cb_cat((cb_tensor *[]){j, i, j, i}, 4, -1);
    return cb_neg(cb_mul(cb_clamp(k, -1, 1), cb_module_get(self, "w")));
}

static inline cb_module *long_new(void) {
    cb_module *m = cb_module_new("M", long_forward, NULL);
    cb_module_add(m, "linear", cb_nn_linear(4, 4, true));
    cb_module_parameter(m, "w", cb_randn(cb_dims(4)));
    cb_module *inner = cb_nn_sequential(cb_nn_linear(8, 4, true), cb_nn_dropout(0.1));
    cb_module_add(m, "seq", cb_nn_sequential(cb_nn_linear(4, 8, true), cb_nn_relu(), inner));
    return m;
}

static const char *const long_text =
    "graph():\n"
    "    %x : [num_users=2] = placeholder[target=x]\n"
    "    %linear : [num_users=1] = call_module[target=linear](args = (%x,), kwargs = {})\n"
    "    %add : [num_users=1] = call_function[target=operator.add](args = (%linear, %x), kwargs = "
    "{})\n"
    "    %relu : [num_users=1] = call_method[target=relu](args = (%add,), kwargs = {})\n"
    "    %softmax : [num_users=1] = call_method[target=softmax](args = (%relu, -1), kwargs = {})\n"
    "    %w : [num_users=3] = get_attr[target=w]\n"
    "    %mul : [num_users=2] = call_function[target=operator.mul](args = (%softmax, %w), kwargs = "
    "{})\n"
    "    %softmax_1 : [num_users=1] = call_method[target=softmax](args = (%mul, 1), kwargs = {})\n"
    "    %sum_1 : [num_users=1] = call_method[target=sum](args = (%softmax_1,), kwargs = {dim: 1, "
    "keepdim: True})\n"
    "    %sum_2 : [num_users=1] = call_method[target=sum](args = (%mul,), kwargs = {dim: (0, 1)})\n"
    "    %add_1 : [num_users=1] = call_function[target=operator.add](args = (%sum_1, %sum_2), "
    "kwargs = {})\n"
    "    %add_2 : [num_users=1] = call_function[target=operator.add](args = (%add_1, %w), kwargs = "
    "{})\n"
    "    %seq_0 : [num_users=1] = call_module[target=seq.0](args = (%add_2,), kwargs = {})\n"
    "    %seq_1 : [num_users=1] = call_module[target=seq.1](args = (%seq_0,), kwargs = {})\n"
    "    %seq_2_0 : [num_users=1] = call_module[target=seq.2.0](args = (%seq_1,), kwargs = {})\n"
    "    %seq_2_1 : [num_users=1] = call_module[target=seq.2.1](args = (%seq_2_0,), kwargs = {})\n"
    "    %getitem : [num_users=1] = call_function[target=operator.getitem](args = (%seq_2_1, "
    "(slice(None, None, None), slice(1, 3, None))), kwargs = {})\n"
    "    %cat : [num_users=1] = call_function[target=torch.cat](args = ([%getitem, %getitem, "
    "%getitem, %getitem],), kwargs = {dim: 1})\n"
    "    %sub : [num_users=1] = call_function[target=operator.sub](args = (1, %cat), kwargs = {})\n"
    "    %to : [num_users=1] = call_method[target=to](args = (%sub, torch.float64), kwargs = {})\n"
    "    %view : [num_users=1] = call_method[target=view](args = (%to, -1, 2), kwargs = {})\n"
    "    %truediv : [num_users=1] = call_function[target=operator.truediv](args = (%view, "
    "2.5e-07), kwargs = {})\n"
    "    %add_3 : [num_users=1] = call_function[target=operator.add](args = (%truediv, 100000.0), "
    "kwargs = {})\n"
    "    %mul_1 : [num_users=1] = call_function[target=operator.mul](args = (%add_3, 1e+20), "
    "kwargs = {})\n"
    "    %add_4 : [num_users=1] = call_function[target=operator.add](args = (%mul_1, 1e-05), "
    "kwargs = {})\n"
    "    %sum_3 : [num_users=1] = call_method[target=sum](args = (%add_4,), kwargs = {dim: (0, 1), "
    "keepdim: True})\n"
    "    %unsqueeze : [num_users=1] = call_method[target=unsqueeze](args = (%sum_3, 0), kwargs = "
    "{})\n"
    "    %gelu : [num_users=3] = call_function[target=torch.nn.functional.gelu](args = "
    "(%unsqueeze,), kwargs = {approximate: tanh})\n"
    "    %gt : [num_users=1] = call_function[target=operator.gt](args = (%gelu, 0), kwargs = {})\n"
    "    %where : [num_users=1] = call_function[target=torch.where](args = (%gt, %gelu, 0.0), "
    "kwargs = {})\n"
    "    %cat_1 : [num_users=1] = call_function[target=torch.cat](args = ([%where, %gelu, %where, "
    "%gelu],), kwargs = {dim: -1})\n"
    "    %clamp : [num_users=1] = call_method[target=clamp](args = (%cat_1,), kwargs = {min: -1, "
    "max: 1})\n"
    "    %mul_2 : [num_users=1] = call_function[target=operator.mul](args = (%clamp, %w), kwargs = "
    "{})\n"
    "    %neg : [num_users=1] = call_function[target=operator.neg](args = (%mul_2,), kwargs = {})\n"
    "    return neg";

static inline int three_ways(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    (void)count;
    out[0] = cb_maximum(in[0], in[1]);
    out[1] = cb_max(out[0]);
    cb_abs(out[0]); /* nobody uses it */
    out[2] = in[0];
    return 3;
}

static inline int with_outside(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    cb_tensor *table = user;
    out[0] = cb_add(cb_mul(in[0], table), table);
    cb_assign(in[1], out[0]);
    cb_add_(in[1], 1);
    out[1] = cb_exp(in[1]);
    return 2;
}

static inline cb_graph *parse(const char *text) {
    cb_graph *graph = cb_graph_parse(text, NULL);
    if (!graph) print_error("%s\n", cb_error());
    assert_non_null(graph);
    return graph;
}

#endif
