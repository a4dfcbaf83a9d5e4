/* FX graphs where order matters: writes between the nodes of a place, draws, uses before their
 * definition; and graphs that were freed. */
#include "fx_support.h"

/* ---- writes and draws ----------------------------------------------------------------------- */

static int writes_between_cats(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *half = cb_cat((cb_tensor *[]){in[0], in[1]}, 2, 0);
    cb_add_(in[0], 100);
    out[0] = cb_cat((cb_tensor *[]){half, in[1]}, 2, 0);
    cb_free(half);
    return 1;
}

static int cats_twice(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *half = cb_cat((cb_tensor *[]){in[0], in[1]}, 2, 0);
    out[0] = cb_cat((cb_tensor *[]){half, in[1], half}, 3, 0);
    cb_free(half);
    return 1;
}

static int cats_both_ways(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *half = cb_cat((cb_tensor *[]){in[0], in[1]}, 2, 0);
    out[0] = cb_cat((cb_tensor *[]){half, half}, 2, 1);
    cb_free(half);
    return 1;
}

/* A cat is spliced into the next one only where both read the same. */
static void spliced_cats_read_what_was_written(void **state) {
    (void)state;
    static const struct {
        cb_function_n *function;
        int cats;
    } cases[] = {{writes_between_cats, 2}, {cats_twice, 2}, {cats_both_ways, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_graph *graph = cb_symbolic_trace_function(cases[i].function, NULL, 2, NULL);
        expect_no_error();
        int cats = 0;
        for (cb_node *node = cb_graph_first(graph); node; node = cb_node_next(node))
            cats += strcmp(cb_node_target(node), "torch.cat") == 0;
        assert_int_equal(cats, cases[i].cats);
        cb_tensor *in[] = {cb_ones(cb_dims(2, 3)), cb_full(cb_dims(2, 3), 2)}, *out, *expected;
        assert_int_equal(cb_graph_run(graph, in, 2, &out, 1), 1);
        cb_tensor *again[] = {cb_ones(cb_dims(2, 3)), cb_full(cb_dims(2, 3), 2)};
        cases[i].function(again, 2, &expected, NULL);
        expect_close(out, expected);
        cb_graph_free(graph);
    }
}

#define X "graph():\n    %x : [num_users=1] = placeholder[target=x]\n"
#define RELU(name, of)                                                                             \
    "    %" name " : [num_users=1] = call_method[target=relu](args = (%" of ",), kwargs = {})\n"
#define EXP "    %exp : [num_users=1] = call_method[target=exp](args = (%relu,), kwargs = {})\n"
#define FILL "    %fill : [num_users=0] = call_method[target=mul_](args = (%x, 0), kwargs = {})\n"
#define OTHER "    %other : [num_users=0] = call_module[target=other](args = (%x,), kwargs = {})\n"

/* The replacement reads at the result's place: a write before that keeps the place as it is. */
static void places_with_a_write_stay(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int places;
    } cases[] = {
        {X RELU("relu", "x") EXP "    return exp", 1},
        {X RELU("relu", "x") FILL EXP "    return exp", 0},
        {X FILL RELU("relu", "x") EXP "    return exp", 1},
        {X RELU("relu", "x") OTHER EXP "    return exp", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_graph *graph = parse(cases[i].text), *pattern = parse(cases[0].text);
        cb_graph *replacement = parse(X "    return x");
        assert_int_equal(cb_graph_replace_pattern(graph, pattern, replacement), cases[i].places);
        expect_no_error();
        cb_graph_free(graph), cb_graph_free(pattern), cb_graph_free(replacement);
    }
}

static int attends(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    cb_scaled_dot_product_attention(in[0], in[0], in[0], NULL, *(double *)user);
    cb_dropout(in[0], 0.5);
    cb_rand_like(in[0]);
    cb_randn(cb_dims(2));
    out[0] = in[0];
    return 1;
}

/* What draws keeps the draws of the others where they are. */
static void draws_are_never_dead(void **state) {
    (void)state;
    static const struct {
        double p;
        int dead;
    } cases[] = {{0.0, 1}, {0.5, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double p = cases[i].p;
        cb_graph *graph = cb_symbolic_trace_function(attends, &p, 1, NULL);
        int before = cb_graph_node_count(graph);
        assert_int_equal(cb_graph_dead_code(graph), cases[i].dead);
        assert_int_equal(cb_graph_node_count(graph), before - cases[i].dead);
        cb_graph_free(graph);
    }
}

/* ---- order ---------------------------------------------------------------------------------- */

/* An edit may let a node use a later one: such a graph is copied and printed as it is, and refused
 * by what goes from inputs to results. */
static void uses_before_the_definition(void **state) {
    (void)state;
    cb_graph *graph = parse(X RELU("relu", "x") EXP "    return exp");
    cb_graph *pattern = parse(X RELU("r", "x") "    return r"), *by = parse(X "    return x");
    cb_node *relu = cb_graph_find(graph, "relu"), *exp = cb_graph_find(graph, "exp");
    cb_node *const inputs[] = {exp, relu};
    for (int i = 0; i < 2; i++) {
        char words[100];
        snprintf(words, sizeof words, "%%relu (call_method relu): uses %%%s before its definition",
                 cb_node_name(inputs[i]));
        assert_int_equal(cb_node_set_arg(relu, 0, cb_arg_node(inputs[i])), CB_OK);
        cb_graph *copy = cb_graph_copy(graph);
        char *text = cb_graph_text(graph);
        expect_text(cb_graph_text(copy), text);
        cb_free_text(text);
        assert_int_equal(cb_graph_lint(copy), CB_ERR_GRAPH);
        expect_error(words);
        assert_int_equal(cb_graph_replace_pattern(copy, pattern, by), CB_ERR_GRAPH);
        expect_error(words);
        assert_int_equal(cb_graph_replace_pattern(by, copy, pattern), CB_ERR_GRAPH);
        expect_error(words);
        cb_tensor *x = cb_ones(cb_dims(2)), *out;
        assert_int_equal(cb_graph_run(copy, &x, 1, &out, 1), CB_ERR_ARGUMENT);
        expect_error("relu: input 0 (x) is NULL");
        cb_graph_free(copy);
    }
    cb_graph_free(graph), cb_graph_free(pattern), cb_graph_free(by);
}

/* ---- freed graphs --------------------------------------------------------------------------- */

static void freed_graphs_are_refused(void **state) {
    (void)state;
    cb_graph *freed = parse(X "    return x"), *graph = parse(X "    return x");
    cb_node *node = cb_graph_first(graph);
    cb_tensor *out;
    cb_graph_free(freed);
    REFUSED(cb_graph_text(freed), "the graph was freed at ");
    REFUSED(cb_graph_copy(freed), "the graph was freed at ");
    REFUSED(cb_graph_placeholder(freed, "y"), "the graph of a new node was freed at ");
    REFUSED(cb_graph_get_attr(freed, "w"), "the graph of a new node was freed at ");
    REFUSED(cb_graph_output(freed, cb_arg_none()), "the graph of a new node was freed at ");
    REFUSED(cb_graph_insert_after(freed, node, CB_CALL_METHOD, "exp", NULL, 0),
            "the graph of a node was freed at ");
    REFUSES(cb_graph_erase(freed, node), CB_ERR_GRAPH, "the graph of a node was freed at ");
    REFUSES(cb_graph_dead_code(freed), CB_ERR_ARGUMENT, "the graph was freed at ");
    REFUSES(cb_graph_lint(freed), CB_ERR_ARGUMENT, "the graph was freed at ");
    REFUSES(cb_graph_replace_pattern(graph, freed, graph), CB_ERR_ARGUMENT, "the graph itself");
    REFUSES(cb_graph_replace_pattern(freed, graph, graph), CB_ERR_ARGUMENT, "was freed at ");
    REFUSES(cb_graph_run(freed, NULL, 0, &out, 1), CB_ERR_ARGUMENT, "the graph was freed at ");
    REFUSES(cb_graph_propagate_shapes(freed, NULL, 0), CB_ERR_ARGUMENT, "was freed at ");
    cb_graph_free(freed);
    expect_error("cb_graph_free: the graph was freed at ");
    cb_graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(spliced_cats_read_what_was_written),
        ONE(places_with_a_write_stay),
        ONE(draws_are_never_dead),
        ONE(uses_before_the_definition),
        ONE(freed_graphs_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
