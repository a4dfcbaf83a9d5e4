/* Attention written by hand: what is recognised, what is not, and that the values stay. */
#include "graph/graph.h"
#include "graph/rewrite.h"
#include "inside.h"
#include "run/execute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char header[] =
    "graph(q: f32[2, 3, 8, 4], k: f32[2, 3, 8, 4], v: f32[2, 3, 8, 5], m: bool[8, 8]) {\n"
    "  s = matmul(q, transpose(k, 2, 3))\n"
    "  row = reshape(arange(0, 8), [8, 1])\n"
    "  column = arange(0, 8)\n";

static const struct {
    const char *body, *found; /* NULL: nothing is recognised */
} cases[] = {
    {"return matmul(softmax(s, -1), v)", "(arg0, arg1, arg2, none, scale=1.0)"},
    {"return matmul(softmax(s / 2, 3), v)", "(arg0, arg1, arg2, none, scale=0.5)"},
    {"return matmul(dropout(softmax(s * 0.5, 3), 0.1, false), v)", "scale=0.5)"},
    {"return matmul(softmax(where(column <= row, s * 0.5, -inf), 3), v)",
     "(arg0, arg1, arg2, none, is_causal=true, scale=0.5)"},
    {"return matmul(softmax(masked_fill(s, column > row, -inf), 3), v)", "is_causal=true"},
    {"return matmul(softmax(masked_fill(s, tril(ones([8, 8])) == 0, -inf), 3), v)",
     "is_causal=true"},
    {"return matmul(softmax(where(logical_not(triu(ones([8, 8], bool), 1)), s, -inf), 3), v)",
     "is_causal=true"},
    {"return matmul(softmax(where(triu(ones([8, 8]), 1) > 0, -inf, s), 3), v)", "is_causal=true"},
    {"return matmul(softmax(where(column <= row + 1, s, -inf), 3), v)", "(arg0, arg1, arg2, "},
    {"return matmul(softmax(masked_fill(s, column == row, -inf), 3), v)", "logical_not"},
    {"return matmul(softmax(where(slice(arange(0, 16), 0, 0, 16, 2) <= row * 2, s, -inf), 3), v)",
     "is_causal=true"},
    {"return matmul(softmax(where(slice(arange(0, 16), 0, 0, 16, 2) <= row, s, -inf), 3), v)",
     "(arg0, arg1, arg2, le"},
    {"return matmul(softmax(where(permute(reshape(column <= row, [8, 8, 1]), [2, 0, 1]), s, -inf), "
     "3), v)",
     "is_causal=true"},
    {"return scaled_dot_product_attention(q, k, v, column <= row)", "is_causal=true)"},
    {"return scaled_dot_product_attention(q, k, v, tril(ones([8, 8])) != 0, scale=0.5)",
     "none, is_causal=true, scale=0.5)"},
    {"return scaled_dot_product_attention(q, k, v, column < row + 2)", "(arg0, arg1, arg2, "},
    {"return scaled_dot_product_attention(q, k, v, m)", "(arg0, arg1, arg2, arg3"},
    {"return matmul(softmax(where(column < row, s, -inf), 3), v)", NULL}, /* a row of nothing */
    {"return matmul(softmax(where(m, s, -inf), 3), v)", NULL},            /* nobody knows */
    {"return matmul(softmax(where(column <= row, s, -1e9), 3), v)", NULL},
    {"return matmul(softmax(s, 2), v)", NULL},
    {"w = softmax(s, 3)\n return matmul(w, v), w", NULL},
    {"return matmul(softmax(s + 1, 3), v)", NULL},
    {"return matmul(softmax(where(expand(column, [8, 8]) <= row, s, -inf), 3), v)",
     "is_causal=true"},
    {"return matmul(softmax(where(contiguous(column <= row), contiguous(s), -inf), 3), v)",
     "is_causal=true"},
    {"return matmul(softmax(where(to(to(column, f32) <= to(row, f32), bool), s, -inf), 3), v)",
     "is_causal=true"},
    {"return matmul(contiguous(softmax(clone(s), 3)), v)", "scale=1.0)"},
    {"return scaled_dot_product_attention(q, k, v, column <= row, 0.5)", "(arg0, arg1, arg2, le"},
    {"y = scaled_dot_product_attention(q, k, v, column <= row)\n  z = "
     "scaled_dot_product_attention(q * 2, k, v, column <= row)\n  u = "
     "scaled_dot_product_attention(slice(q, 0, 0, 1), k, v, column <= row)\n  w = "
     "scaled_dot_product_attention(q, slice(k, 0, 0, 1), slice(v, 0, 0, 1), column <= row)\n  "
     "return z, y, u, w",
     "is_causal=true"},
    {"q1 = slice(q, 3, 0, 1)\n  k1 = slice(slice(k, 2, 0, 1), 3, 0, 1)\n  return "
     "matmul(softmax(matmul(q1, k1), 3), slice(v, 2, 0, 1))",
     "scale=1.0)"},
    {"return matmul(softmax(where(flip(column, [0]) >= row, s, -inf), 3), v)", NULL},
    {"return matmul(softmax(where(column <= 3, s, -inf), 3), v)", NULL},
    {"return matmul(softmax(where(reshape(column <= 3, [1, 8]), s, -inf), 3), v)", NULL},
    {"return matmul(softmax(where(row <= 3, s, -inf), 3), v)", NULL},
    {"return matmul(softmax(where(expand(column <= row, [2, 3, 8, 8]), s, -inf), 3), v)", NULL},
    {"return matmul(softmax(where(reshape(slice(q, 3, 0, 1) > 0, [2, 3, 8, 1]), s, -inf), 3), v)",
     NULL},
    {"f = full([1024, 4], 1.0)\n  i = arange(0, 1024)\n  return matmul(softmax(where(i <= "
     "reshape(i, [1024, 1]), matmul(f, transpose(f, 0, 1)), -inf), 1), f)",
     NULL},
    {"c1 = column * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1\n  c2 = c1 * 1 * 1 * 1 * 1 * 1 * 1 * "
     "1 * 1 * 1 * 1 * 1\n  c3 = c2 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1 * 1\n  return "
     "matmul(softmax(where(c3 <= row, s, -inf), 3), v)",
     NULL},
    {"return matmul(dropout(softmax(s, 3), 0.1), v)", NULL},
    {"return matmul(dropout(softmax(s, 3), 1.0), v)", NULL},
    {"return matmul(softmax(masked_fill(s, column > row, -1e9), 3), v)", NULL},
    {"return matmul(softmax(masked_fill(s, column > row, 0), 3), v)", NULL},
    {"return matmul(softmax(s * s, 3), v)", NULL},
    {"return matmul(softmax(s * 0, 3), v)", NULL},
    {"y = s * 0.5\n  return matmul(softmax(y, 3), v), y", NULL},
    {"return matmul(softmax(s * 0.5, 3), v), s", NULL},
    {"return matmul(softmax(exp(s), 3), v)", NULL},
    {"q1 = reshape(slice(slice(slice(q, 0, 0, 1), 1, 0, 1), 2, 0, 1), [4])\n  return "
     "matmul(softmax(matmul(q1, transpose(k, 2, 3)), 2), reshape(slice(slice(v, 0, 0, 1), 1, 0, "
     "1), [8, 5]))",
     NULL},
    {"q2 = reshape(slice(slice(q, 0, 0, 1), 1, 0, 1), [8, 4])\n  return matmul(softmax(matmul(q2, "
     "transpose(k, 2, 3)), 3), v)",
     NULL},
    {"return matmul(softmax(s, 3), reshape(slice(v, 0, 0, 1), [3, 8, 5]))", NULL},
    {"return matmul(q, transpose(k, 2, 3)), matmul(to(q, i64), transpose(to(k, i64), 2, 3)), "
     "softmax(s, 3)",
     NULL},
};

static Graph *parse(Arena *arena, const char *body) {
    Graph *graph = graph_parse(arena, arena_format(arena, "%s  %s\n}\n", header, body));
    if (!graph) fail_msg("%s: %s", body, cb_error());
    return graph;
}

static void recognised_by_value(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        Graph *graph = parse(arena, cases[i].body);
        Buffer text = buffer_new(arena), why = buffer_new(arena);
        pass_attention(graph, &(Budget){-1});
        if (!graph_verify(graph, &why)) fail_msg("%s", buffer_text(&why));
        graph_print(graph, &text);
        const char *call = strstr(buffer_text(&text), "scaled_dot_product_attention(");
        if (!cases[i].found != !call) fail_msg("%s\n%s", cases[i].body, buffer_text(&text));
        if (call && !strstr(buffer_text(&text), cases[i].found))
            fail_msg("%s lacks %s\n%s", cases[i].body, cases[i].found, buffer_text(&text));
        arena_free(arena);
    }
}

/* Without budget nothing changes. */
static void nothing_is_recognised_without_budget(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena *arena = arena_new();
        Graph *graph = parse(arena, cases[i].body);
        pass_attention(graph, &(Budget){0});
        if (!graph_equal(graph, parse(arena, cases[i].body))) fail_msg("%s", cases[i].body);
        arena_free(arena);
    }
}

static cb_tensor *evaluate(const char *body, bool recognise) {
    Arena *arena = arena_new();
    cb_tensor *output[4];
    cb_set_option("skip", recognise ? "" : "attention");
    Graph *graph = parse(arena, body);
    graph->device = device_default();
    graph_optimize(graph, NULL);
    Executable *executable = executable_new(
        plan_build(graph, arena, NULL, (PlanOptions){.fuse = true}), (ExecutableOptions){0});
    cb_manual_seed(3);
    cb_tensor *input[] = {cb_randn(cb_dims(2, 3, 8, 4)), cb_randn(cb_dims(2, 3, 8, 4)),
                          cb_randn(cb_dims(2, 3, 8, 5)), cb_ones(cb_dims(8, 8), CB_BOOL)};
    assert_true(run_executable(executable, input, output));
    executable_free(executable);
    cb_set_option("skip", "");
    return output[0];
}

static void values_stay(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!cases[i].found) continue;
        cb_scope_open();
        cb_tensor *found = evaluate(cases[i].body, true);
        cb_tensor *expected = evaluate(cases[i].body, false);
        double off = cb_item(cb_max(cb_abs(cb_sub(found, expected))));
        if (!(off < 1e-6)) fail_msg("%s is off by %g", cases[i].body, off);
        cb_scope_close();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(recognised_by_value),
                                       cmocka_unit_test(nothing_is_recognised_without_budget),
                                       cmocka_unit_test(values_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
