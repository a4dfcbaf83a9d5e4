/* What fusion may join and what it must keep apart. Every graph is planned with and without fusion
 * and run on the VM: the elements are small integers, so the results agree to the bit whatever was
 * joined. The number of steps and the refusals, in order, are pinned: what is lost by a refusal
 * too many no result shows. */
#include "graph/graph.h"
#include "inside.h"
#include "run/execute.h"

#include <stdlib.h>
#include <string.h>

#include "fixture.h" /* last: its fail() is cmocka's */

typedef struct Case {
    const char *graph;
    int steps;
    const char *refused; /* names of reasons, each with a space behind it */
} Case;

enum { MOST = 1 << 14, KEPT = 2000 /* bytes of a plan for each expression */ };

static cb_tensor *input_of(Meta meta, int number) {
    static double value[MOST];
    cb_dim_list sizes = {meta.rank, {0}};
    memcpy(sizes.at, meta.size, sizeof sizes.at);
    int64_t count = meta_numel(&meta);
    assert_true(count <= MOST);
    bool index = meta.dtype == CB_I64;
    for (int64_t i = 0; i < count; i++)
        value[i] = (double)((i * 7 + i / 5 + number) % (index ? 3 : 11)) - (index ? 0 : 5);
    cb_tensor *x = cb_from_data(value, CB_F64, cb_dims(count));
    return cb_reshape(cb_to(x, meta.dtype), sizes);
}

static Executable *executable_of(const char *text, PlanOptions options) {
    Arena *arena = arena_new();
    Graph *graph = graph_parse(arena, text);
    if (!graph) fail_msg("%s\n%s", cb_error(), text);
    graph->device = device_default();
    graph_optimize(graph, NULL);
    Executable *executable =
        executable_new(plan_build(graph, arena, NULL, options), (ExecutableOptions){0});
    assert_non_null(executable);
    return executable;
}

static void expect_same(cb_tensor *a, cb_tensor *b, const char *text) {
    static double x[MOST], y[MOST];
    assert_int_equal(cb_numel(a), cb_numel(b));
    assert_int_equal(cb_read(a, x, CB_F64), CB_OK);
    assert_int_equal(cb_read(b, y, CB_F64), CB_OK);
    for (int64_t i = 0; i < cb_numel(a); i++)
        if (x[i] != y[i])
            fail_msg("element %d: %g, without fusion %g\n%s", (int)i, x[i], y[i], text);
}

static void expect_plan(const Plan *plan, const Case *c) {
    char refused[1024] = "";
    size_t at = 0;
    for (int i = 0; i < length(plan->refusal) && at < sizeof refused - 64; i++)
        at += (size_t)snprintf(refused + at, sizeof refused - at, "%s ",
                               reason_info(plan->refusal[i].rule->reason)->id);
    if (length(plan->step) != c->steps || strcmp(refused, c->refused) != 0)
        fail_msg("%d steps, not %d; refused '%s', not '%s'\n%s", length(plan->step), c->steps,
                 refused, c->refused, c->graph);
}

/* generate: planned for generated code, which the VM runs, too, until that is there. */
static void run(const Case *c, bool generate) {
    PlanOptions options = {.fuse = true, .generate = generate};
    Executable *fused = executable_of(c->graph, options);
    Executable *plain = executable_of(c->graph, (PlanOptions){0});
    const Plan *plan = executable_plan(fused);
    cb_tensor *in[8], *a[8], *b[8];
    int inputs = length(plan->input);
    for (int i = 0; i < inputs; i++) in[i] = input_of(plan->input[i], i);
    if (!run_executable(fused, in, a) || !run_executable(plain, in, b))
        fail_msg("%s\n%s", cb_error(), c->graph);
    for (int i = 0; i < plan->output_count; i++) expect_same(a[i], b[i], c->graph);
    expect_plan(plan, c);
    executable_free(fused);
    executable_free(plain);
}

static void run_all(const Case *cases, size_t count, bool generate) {
    for (size_t i = 0; i < count; i++) run(&cases[i], generate);
}
#define RUN(cases) run_all(cases, sizeof cases / sizeof *cases, false)
#define RUN_GENERATED(cases) run_all(cases, sizeof cases / sizeof *cases, true)

/* ---- domains --------------------------------------------------------------------------------- */

static void reductions_share_a_kernel_by_their_split(void **state) {
    (void)state;
    static const Case cases[] = {
        {"graph(x: f32[64, 96]) { a = sum(x, dim=[1])\n b = amax(x, dim=[1])\n return a, b }", 1,
         ""},
        {"graph(x: f32[64, 96]) { a = amax(x, dim=[1])\n b = amax(x, dim=[0])\n return a, b }", 2,
         "other_split "},
        {"graph(x: f32[64, 96]) { a = sum(x, dim=[1])\n y = reshape(x, sizes=[96, 64])\n"
         " b = sum(y, dim=[1])\n return a, b }",
         2, "other_position "},
        {"graph(x: f32[8, 12, 64]) { a = sum(x, dim=[2])\n y = reshape(x, sizes=[96, 64])\n"
         " b = sum(y, dim=[1])\n return a, b }",
         1, ""},
        {"graph(x: f32[8, 12, 64]) { a = sum(x, dim=[1, 2])\n y = reshape(x, sizes=[8, 768])\n"
         " b = amax(y, dim=[1])\n return a, b }",
         1, ""},
        {"graph(x: f32[64, 96]) { a = sum(x, dim=[1])\n b = amax(a, dim=[0])\n return b }", 2,
         "other_split "},
        {"graph(x: f32[64, 96]) { a = cumsum(x, dim=1)\n b = sum(x, dim=[0])\n return a, b }", 2,
         "other_split "},
        /* Sweeps of long rows begin anew, those of short ones are kept. */
        {"graph(x: f32[16384]) { a = x - amax(x, dim=[0])\n b = a - amax(a, dim=[0])\n"
         " c = b - amax(b, dim=[0])\n return c - amax(c, dim=[0]) }",
         2, "many_sweeps cycle "},
        {"graph(x: f16[16384]) { a = x - amax(x, dim=[0])\n b = a - amax(a, dim=[0])\n"
         " c = b - amax(b, dim=[0])\n return c - amax(c, dim=[0]) }",
         1, ""},
        {"graph(x: f32[9, 512]) { a = x - amax(x, dim=[1], keepdim=true)\n"
         " b = a - amax(a, dim=[1], keepdim=true)\n c = b - amax(b, dim=[1], keepdim=true)\n"
         " return c - amax(c, dim=[1], keepdim=true) }",
         1, ""},
        /* In order and by vectors, unless rows are few or lanes go across them. */
        {"graph(x: f32[64, 96]) { a = cumsum(x, dim=1)\n b = sum(x, dim=[1])\n return a, b }", 2,
         "other_order "},
        {"graph(x: f32[64, 96]) { a = amax(x, dim=[1], keepdim=true)\n"
         " return cumsum(div(x, a), dim=1) }",
         2, "other_order other_order "},
        {"graph(x: f32[2, 96]) { a = amax(x, dim=[1], keepdim=true)\n"
         " return cumsum(div(x, a), dim=1) }",
         1, ""},
        {"graph(x: f32[64, 96]) { a = cumsum(x, dim=0)\n b = sum(x, dim=[0])\n return a, b }", 1,
         ""},
        {"graph(x: f32[64, 96], y: f32[32, 96]) { a = sum(x, dim=[1])\n b = sum(y, dim=[1])\n"
         " c = slice(a, dim=0, end=32)\n d = add(c, b)\n return a, d }",
         2, "other_size "},
        /* Across columns and along rows, unless these are few, or one makes what the other
         * folds. */
        {"graph(x: f32[96, 96]) { a = sum(x, dim=[1])\n b = sum(permute(x, [1, 0]), dim=[1])\n"
         " return add(a, b) }",
         2, "other_lanes other_lanes other_lanes "},
        {"graph(x: f32[16, 16]) { a = sum(x, dim=[1])\n b = sum(permute(x, [1, 0]), dim=[1])\n"
         " return add(a, b) }",
         1, ""},
        {"graph(x: f32[96, 96]) { a = softmax(permute(x, [1, 0]), dim=1)\n"
         " b = amax(add(a, x), dim=[1])\n return a, b }",
         1, ""},
        /* Short rows, the dear ones of which alone have lanes across them. */
        {"graph(x: f32[96, 20]) { a = amax(x, dim=[1])\n b = sum(exp(x), dim=[1])\n"
         " return a, b }",
         1, ""},
        /* A long row is folded along memory, and what lies across it is turned before; not where
         * all lies across it, the row is short, or there is one element for all of it. */
        {"graph(x: f32[96, 96], y: f32[96, 96]) { p = add(sigmoid(x), sigmoid(permute(y, [1, "
         "0])))\n"
         " return p, amax(p, dim=[1]) }",
         2, "other_lanes "},
        {"graph(x: f32[96, 96], y: f32[96, 96]) { p = sigmoid(permute(y, [1, 0]))\n"
         " return p, amax(mul(p, x), dim=[1]) }",
         2, "other_lanes "},
        {"graph(x: f32[96, 96], y: f32[96, 96]) { p = sigmoid(permute(y, [1, 0]))\n"
         " return p, amax(mul(p, x), dim=[0]) }",
         2, "other_lanes "},
        {"graph(x: f32[96, 48], y: f32[48, 96]) { p = add(sigmoid(x), sigmoid(permute(y, [1, "
         "0])))\n"
         " return p, amax(p, dim=[1]) }",
         1, ""},
        {"graph(y: f32[96, 96]) { p = sigmoid(permute(y, [1, 0]))\n"
         " return p, amax(p, dim=[1]) }",
         1, ""},
        {"graph(x: f32[96, 96], y: f32[96, 1]) { p = mul(sigmoid(x), y)\n"
         " return p, amax(p, dim=[1]) }",
         1, ""},
        /* [2, 2, 3] and [3, 4] have no common refinement: the axes of the first stay. */
        {"graph(x: f32[2, 2, 3, 512]) { r = reshape(x, sizes=[3, 4, 512])\n a = mul(x, 2.0)\n"
         " b = add(r, 1.0)\n return a, b }",
         1, ""},
    };
    RUN(cases);
}

/* Sums over other dimensions than the rows fold are sinks of these: of their points, or of what
 * each row has folded. */
static void sums_that_nobody_reads_are_sinks_of_rows(void **state) {
    (void)state;
    static const Case cases[] = {
        {"graph(x: f32[64, 96]) { a = sum(x, dim=[1])\n b = sum(x, dim=[0])\n return a, b }", 1,
         ""},
        {"graph(x: f32[64, 96]) { b = sum(x, dim=[0])\n m = amax(x, dim=[1], keepdim=true)\n"
         " y = sub(x, m)\n z = mul(y, x)\n c = sum(z, dim=[0])\n return y, b, c }",
         1, ""},
        {"graph(x: i64[96, 32]) { m = amax(x, dim=[1])\n b = sum(x, dim=[0])\n return m, b }", 1,
         ""},
        /* Of what each row has folded, where that costs the VM more than lanes do. */
        {"graph(x: f32[64, 96]) { m = amax(x, dim=[1])\n b = sum(m, dim=[0])\n return m, b }", 2,
         "other_position "},
        /* Of many rows a part each. */
        {"graph(x: f32[600, 24]) { m = amax(x, dim=[1])\n b = sum(x, dim=[0])\n return m, b }", 1,
         ""},
        {"graph(x: f32[64, 96]) { m = amax(x, dim=[1])\n b = sum(x, dim=[0])\n c = mul(b, 2.0)\n"
         " d = sub(x, b)\n return m, c, d }",
         3, "other_size other_position other_position "},
        {"graph(x: f32[64, 64]) { m = amax(x, dim=[1])\n b = sum(x, dim=[0])\n d = add(m, b)\n"
         " return d }",
         2, "other_position "},
        /* A point of each row would meet the others of it. */
        {"graph(x: f32[64, 8, 16]) { m = amax(x, dim=[1, 2])\n b = sum(x, dim=[0, 1])\n return m, "
         "b }",
         2, "other_position "},
        /* Too few rows, rows too short, lanes across the rows. */
        {"graph(x: f32[63, 96]) { m = amax(x, dim=[1])\n b = sum(x, dim=[0])\n return m, b }", 2,
         "other_position "},
        {"graph(x: f32[96, 15]) { m = amax(x, dim=[1])\n b = sum(x, dim=[0])\n return m, b }", 2,
         "other_split "},
        {"graph(x: f32[96, 24]) { y = sub(x, amax(x, dim=[1], keepdim=true))\n"
         " b = sum(y, dim=[0])\n return y, b }",
         1, ""},
        {"graph(x: f32[96, 23]) { y = softmax(x, dim=1)\n b = sum(y, dim=[0])\n return y, b }", 2,
         "other_split "},
        {"graph(x: f32[96, 96]) { m = amax(x, dim=[0])\n b = sum(x, dim=[1])\n return m, b }", 2,
         "other_split "},
        {"graph(x: f32[64, 96]) { m = amax(x, dim=[1])\n b = prod(x, dim=[0])\n return m, b }", 2,
         "other_split "},
        {"graph(x: f16[64, 96]) { m = amax(x, dim=[1])\n b = sum(x, dim=[0])\n return m, b }", 2,
         "other_position "},
        {"graph(x: f32[64, 12, 16]) { m = amax(x, dim=[2])\n y = reshape(x, sizes=[64, 8, 24])\n"
         " b = sum(y, dim=[0, 1])\n return m, b }",
         2, "other_position "},
        {"graph(x: f32[128, 48]) { m = amax(x, dim=[1])\n y = reshape(x, sizes=[64, 96])\n"
         " b = sum(y, dim=[0])\n return m, b }",
         1, ""},
        /* A scan goes across rows, whichever comes first. */
        {"graph(x: f32[64, 96], y: f32[64, 96]) { m = amax(x, dim=[1], keepdim=true)\n"
         " c = cumsum(y, dim=1)\n b = sum(x, dim=[0])\n d = add(c, m)\n return m, b, d }",
         2, "other_order "},
        {"graph(x: f32[64, 96]) { c = cumsum(x, dim=1)\n b = sum(x, dim=[0])\n return c, b }", 2,
         "other_split "},
        {"graph(x: f32[96, 64], y: f32[96, 64]) { p = permute(x, [1, 0])\n m = amax(p, dim=[1])\n"
         " b = sum(p, dim=[0])\n c = cumsum(p * permute(y, [1, 0]), dim=1)\n return m, b, c }",
         2, "other_position "},
    };
    static const Case of_folds[] = {
        {"graph(x: f32[64, 96]) { m = amax(x, dim=[1])\n b = sum(m, dim=[0])\n return m, b }", 1,
         ""},
        {"graph(x: f32[64, 96]) { m = amax(x, dim=[1])\n b = sum(x)\n return m, b }", 1, ""},
        {"graph(x: f32[8, 64, 32]) { m = amax(x, dim=[2])\n a = sum(x, dim=[0, 1])\n"
         " b = sum(x, dim=[1])\n c = sum(m, dim=[0, 1])\n d = sum(m, dim=[1])\n"
         " return m, a, b, c, d }",
         1, ""},
    };
    RUN(cases);
    RUN_GENERATED(of_folds);
}

/* Rows are read by the elements of the same row alone. */
static void rows_and_elements(void **state) {
    (void)state;
    static const Case cases[] = {
        {"graph(x: f32[64, 96]) { m = amax(x, dim=[1], keepdim=true)\n y = sub(x, m)\n"
         " s = sum(y, dim=[1])\n return s }",
         1, ""},
        {"graph(x: f32[64, 64]) { s = sum(x, dim=[1])\n y = add(x, s)\n return y }", 2,
         "other_position other_position "},
        {"graph(x: f32[64, 96]) { s = sum(x, dim=[1])\n t = flip(s, dims=[0])\n y = add(s, t)\n"
         " return y }",
         2, "other_position "},
        {"graph(x: f32[64, 96], y: f32[64]) { s = sum(x, dim=[1])\n z = mul(s, y)\n return z }", 1,
         ""},
        {"graph(x: f32[64, 96]) { s = sum(x, dim=[1])\n r = reshape(s, sizes=[8, 8])\n"
         " y = mul(r, 2.0)\n return y }",
         1, ""},
        {"graph(x: f32[64, 96]) { s = sum(x, dim=[1])\n c = cumsum(s, dim=0)\n return c }", 2,
         "other_split "},
    };
    RUN(cases);
}

/* ---- cycles ---------------------------------------------------------------------------------- */

static void nothing_lies_between_what_is_joined(void **state) {
    (void)state;
    static const Case cases[] = {
        /* The reader of a reads c, which reads a. */
        {"graph(x: f32[64, 96]) { a = sum(x, dim=[1])\n c = amax(a, dim=[0])\n b = sub(a, c)\n"
         " return b }",
         2, "other_split cycle "},
        /* n joins p; its sibling q reads v, too, and what r made of p. */
        {"graph(v: f32[64, 64]) { p = cumsum(v, dim=1)\n r = cumsum(p, dim=0)\n"
         " t = sub(v, r)\n q = cumsum(t, dim=1)\n n = mul(p, v)\n return q, n }",
         3, "other_split other_split cycle cycle "},
        /* t2 joins t1, and so lies between a and n although t1 is before both. */
        {"graph(v: f32[64, 64]) { t1 = cumsum(v, dim=0)\n a = cumsum(v, dim=1)\n"
         " s = sub(t1, a)\n t2 = cumsum(s, dim=0)\n u = sub(t2, a)\n n = cumsum(u, dim=1)\n"
         " return n }",
         3, "other_split other_split other_split other_split cycle other_split "},
        /* t reads the first half of the group of a1 and a2, whose second half comes behind it. */
        {"graph(v: f32[64, 64]) { a1 = cumsum(v, dim=1)\n t = cumsum(a1, dim=0)\n"
         " m = mul(a1, 2.0)\n a2 = cumsum(m, dim=1)\n u = sub(t, a2)\n n = cumsum(u, dim=1)\n"
         " return n }",
         3, "other_split other_split cycle "},
        /* Siblings: b2 reads v as b1 does, and what c made of b1. */
        {"graph(v: f32[64, 64]) { b1 = cumsum(v, dim=1)\n c = cumsum(b1, dim=0)\n"
         " u = add(v, c)\n b2 = cumsum(u, dim=1)\n return b2 }",
         3, "other_split other_split cycle "},
    };
    RUN(cases);
}

/* A search that gives up after 256 groups must not take them for none. */
static void a_long_way_round_is_a_cycle(void **state) {
    (void)state;
    Arena *arena = arena_new();
    Buffer text = buffer_new(arena);
    put(&text, "graph(x: f32[4, 4]) { a = cumsum(x, dim=0)\n c0 = cumsum(a, dim=1)\n");
    for (int i = 1; i <= 300; i++) /* mod 3 keeps the numbers small */
        putf(&text, "r%d = remainder(c%d, 3.0)\n c%d = cumsum(r%d, dim=%d)\n", i, i - 1, i, i,
             i % 2 ? 0 : 1);
    put(&text, "y = add(a, c300)\n return y }");
    Executable *executable = executable_of(buffer_text(&text), (PlanOptions){.fuse = true});
    const Plan *plan = executable_plan(executable);
    assert_int_equal(length(plan->step), 302);
    executable_free(executable);
    arena_free(arena);
}

/* ---- positions ------------------------------------------------------------------------------- */

static void values_inside_are_read_where_they_are_computed(void **state) {
    (void)state;
    static const Case cases[] = {
        {"graph(x: f32[64, 64]) { y = cumsum(x, dim=1)\n t = permute(y, dims=[1, 0])\n"
         " z = add(y, t)\n return z }",
         2, "other_position "},
        {"graph(x: f32[64, 64]) { y = cumsum(x, dim=1)\n t = flip(y, dims=[1])\n"
         " z = add(x, t)\n return z }",
         2, "other_position other_position "},
        {"graph(x: f32[64, 64]) { y = cumsum(x, dim=1)\n t = reshape(y, sizes=[32, 128])\n"
         " z = add(t, 1.0)\n return z }",
         1, ""},
        {"graph(x: f32[64, 64]) { y = cumsum(x, dim=1)\n t = slice(y, dim=0, start=32)\n"
         " z = concat(t, t, dim=0)\n u = add(z, y)\n return u }",
         2, "other_position "},
        /* An index that a kernel makes is complete, and checked, before it is read through. */
        {"graph(x: f32[64], i: i64[32]) { j = add(i, 1)\n g = index_select(x, dim=0, index=j)\n"
         " k = to(j, dtype=f32)\n y = add(g, k)\n return y }",
         3, "index_unchecked "},
        {"graph(x: f32[64, 8], i: i64[64, 8]) { j = mul(i, i)\n g = gather(x, dim=0, index=j)\n"
         " return g, j }",
         3, "index_unchecked "},
    };
    RUN(cases);
}

/* A value is read behind a condition in one place and without it in another. */
static void conditions_belong_to_their_reads(void **state) {
    (void)state;
    static const Case cases[] = {
        {"graph(x: f32[64, 64]) { r = mul(x, x)\n h = slice(r, dim=0, end=32)\n"
         " y = slice_scatter(r, h, dim=0, start=0, end=32)\n return y }",
         1, ""},
        {"graph(x: f32[64, 64]) { r = mul(x, x)\n h = slice(r, dim=1, end=32)\n"
         " z = slice_scatter(r, h, dim=1, start=1, end=64, step=2)\n return z }",
         1, ""},
        {"graph(x: f32[8, 16], y: f32[4, 16]) { a = neg(x)\n c = concat(a, y, dim=0)\n"
         " p = pad(c, padding=[1, 2, 0, 3], value=7.0)\n return p }",
         1, ""},
        {"graph(x: f32[8, 16], y: f32[4, 16], i: i64[2, 16]) { c = concat(x, y, dim=0)\n"
         " g = gather(c, dim=0, index=i)\n p = pad(g, padding=[0, 0, 1, 0])\n return p }",
         2, ""},
        {"graph(x: f32[8, 16]) { p = pad(x, padding=[-2, -3, 1, -4], value=2.0)\n"
         " c = concat(p, p, dim=1)\n return c }",
         1, ""},
    };
    RUN(cases);
}

/* ---- library steps --------------------------------------------------------------------------- */

static void library_steps_take_pointwise_work_on_their_result(void **state) {
    (void)state;
    static const Case cases[] = {
        /* What an input takes is stored there by a kernel. */
        {"graph(x: f32[32, 32], w: f32[32, 32], p: f32[32, 32]) { m = matmul(x, w)\n"
         " y = add(p, m)\n mutate p = y\n return }",
         2, "taken_by_input "},
        {"graph(x: f32[32, 32], w: f32[32, 32], p: f32[48, 32]) { m = matmul(x, w)\n"
         " y = add(m, 1.0)\n mutate p = slice_scatter(p, y, dim=0, start=0, end=32)\n return }",
         1, ""},
        {"graph(x: f32[32, 32], w: f32[32, 32]) { m = matmul(x, w)\n y = add(m, 1.0)\n"
         " return y }",
         1, ""},
        {"graph(x: f32[32, 32], w: f32[32, 32]) { m = matmul(x, w)\n t = permute(m, dims=[1, 0])\n"
         " y = add(m, t)\n return y }",
         2, "other_position "},
        {"graph(x: f32[32, 32], w: f32[32, 32]) { m = matmul(x, w)\n s = sum(m, dim=[1])\n"
         " return s }",
         2, "library_step "},
        {"graph(x: f32[32, 32], w: f32[32, 32]) { y = mul(x, x)\n m = matmul(y, w)\n"
         " z = sub(y, m)\n return z }",
         2, "library_step cycle "},
        {"graph(x: f32[32, 32], w: f32[32, 32]) { y = mul(x, x)\n m = matmul(y, w)\n"
         " z = sub(m, y)\n return z }",
         2, "library_step cycle "},
        {"graph(x: f32[32, 32], w: f32[32, 32]) { m = matmul(x, w)\n n = matmul(w, x)\n"
         " z = add(m, n)\n return z }",
         2, "library_step "},
        {"graph(x: f32[32, 32]) { i = argsort(x)\n y = add(i, 1)\n return y }", 2, "library_step "},
    };
    RUN(cases);
}

#define ROWS_OF(columns, value)                                                                    \
    "graph(x: f32[64, 3], w: f32[3, " columns "], b: f32[" columns "]) { m = matmul(x, w)\n"       \
    " return " value " }"

/* Dear work on rows that are no whole vectors is done on all rows at once. */
static void epilogues_take_whole_vectors(void **state) {
    (void)state;
    static const Case cases[] = {{ROWS_OF("7", "tanh(add(m, b))"), 2, "ragged_rows "},
                                 {ROWS_OF("31", "tanh(add(m, b))"), 2, "ragged_rows "},
                                 {ROWS_OF("32", "tanh(add(m, b))"), 1, ""},
                                 {ROWS_OF("33", "tanh(add(m, b))"), 1, ""},
                                 {ROWS_OF("7", "relu(add(m, b))"), 1, ""},
                                 {ROWS_OF("7", "tanh(mul(m, m))"), 1, ""},
                                 {ROWS_OF("79", "tanh(add(m, b))"), 1, ""}};
    static const Case interpreted[] = {{ROWS_OF("7", "tanh(add(m, b))"), 1, ""}};
    RUN_GENERATED(cases);
    RUN(interpreted);
}

/* ---- index values ---------------------------------------------------------------------------- */

static int checks_of(const Executable *executable) {
    const Plan *plan = executable_plan(executable);
    int checks = 0;
    for (int i = 0; i < length(plan->step); i++) checks += plan->step[i].kind == STEP_CHECK;
    return checks;
}

/* x has 8 rows. Positions that are in range by construction are not looked at, all others are. */
static void expect_index(const char *index, bool checked, bool works) {
    Arena *arena = arena_new();
    const char *text = arena_format(arena,
                                    "graph(x: f32[8, 4], y: f32[12, 4], j: i64[9]) { %s\n"
                                    " g = index_select(x, dim=0, index=i)\n return g }",
                                    index);
    Executable *executable = executable_of(text, (PlanOptions){.fuse = true});
    double rows[9] = {0, 7, 0, 7, 0, 7, 0, 7, 8}; /* the last one is out of range */
    cb_tensor *j = cb_to(cb_from_data(rows, CB_F64, cb_dims(9)), CB_I64), *out[1] = {NULL};
    cb_tensor *in[] = {cb_ones(cb_dims(8, 4), CB_F32), cb_ones(cb_dims(12, 4), CB_F32), j};
    if (checks_of(executable) != checked) fail_msg("%s: %d checks", text, checks_of(executable));
    if (run_executable(executable, in, out) != works) fail_msg("%s: %s", text, cb_error());
    cb_clear_error();
    executable_free(executable);
    arena_free(arena);
}

static void index_values_are_checked_unless_they_fit(void **state) {
    (void)state;
    expect_index("i = arange(start=0, end=8)", false, true);
    expect_index("i = arange(start=0, end=9)", true, false);
    expect_index("i = arange(start=7, end=-1, step=-1)", false, true);
    expect_index("i = arange(start=7, end=-2, step=-1)", true, false);
    expect_index("i = arange(start=8, end=0, step=-2)", true, false);
    expect_index("i = arange(start=-1, end=8)", true, false);
    expect_index("i = arange(start=0, end=16, step=5)", true, false);
    expect_index("s = slice(x, dim=1, end=1)\n r = reshape(s, sizes=[8])\n i = argsort(r)", false,
                 true);
    expect_index("s = slice(y, dim=1, end=1)\n r = reshape(s, sizes=[12])\n i = argsort(r)", true,
                 false);
    expect_index("i = j", true, false);
    expect_index("i = slice(j, dim=0, end=8)", true, true); /* what is left out does not count */
    expect_index("s = slice(j, dim=0, end=8)\n r = reshape(s, sizes=[4, 2])\n"
                 " t = permute(r, dims=[1, 0])\n i = reshape(t, sizes=[8])",
                 true, true);
}

/* What fusion tries and drops is many times what a plan keeps: each pair that was asked for was
 * lowered. */
static void only_the_plan_stays(void **state) {
    (void)state;
    enum { LAYERS = 60, LINE = 160 };
    static char text[LAYERS * LINE + 100];
    int at = snprintf(text, sizeof text, "graph(v0: f32[8, 32]) {\n");
    for (int i = 0; i < LAYERS; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  s%d = softmax(v%d, dim=1)\n  t%d = tanh(s%d)\n  v%d = add(t%d, v%d)\n", i,
                       i, i, i, i + 1, i, i);
    snprintf(text + at, sizeof text - (size_t)at, "  return v%d\n}\n", LAYERS);
    Arena *arena = arena_new();
    Graph *graph = graph_parse(arena, text);
    assert_non_null(graph);
    graph->device = device_default();
    graph_optimize(graph, NULL);
    size_t before = arena_bytes(arena), expressions = 0;
    Plan *plan = plan_build(graph, arena, NULL, (PlanOptions){.fuse = true});
    for (int k = 0; k < length(plan->kernel); k++) expressions += length(plan->kernel[k]->expr);
    size_t grown = arena_bytes(arena) - before;
    if (grown / expressions > KEPT) fail_msg("%zu bytes for %zu expressions", grown, expressions);
    arena_free(arena);
}

int main(void) {
#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope_without_error)
    const struct CMUnitTest tests[] = {
        ONE(reductions_share_a_kernel_by_their_split),
        ONE(sums_that_nobody_reads_are_sinks_of_rows),
        ONE(rows_and_elements),
        ONE(nothing_lies_between_what_is_joined),
        ONE(a_long_way_round_is_a_cycle),
        ONE(values_inside_are_read_where_they_are_computed),
        ONE(conditions_belong_to_their_reads),
        ONE(index_values_are_checked_unless_they_fit),
        ONE(library_steps_take_pointwise_work_on_their_result),
        ONE(epilogues_take_whole_vectors),
        ONE(only_the_plan_stays),
    };
    return cmocka_run_group_tests_name("fusion", tests, NULL, clean_up);
}
