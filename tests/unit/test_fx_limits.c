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

/* ---- patterns ------------------------------------------------------------------------------- */

#define IN X "    %y : [num_users=1] = placeholder[target=y]\n"
#define NODE(name, target, args, kwargs)                                                           \
    "    %" name " : [num_users=1] = " target "](args = (" args "), kwargs = {" kwargs "})\n"
#define CAT(items) IN NODE("out", "call_function[target=torch.cat", "[" items "]", "") "return out"
#define ADD(args) IN NODE("out", "call_function[target=operator.add", args, "") "return out"
#define LAYER(args, kwargs) IN NODE("out", "call_module[target=layer", args, kwargs) "return out"
#define EXPS(second, result)                                                                       \
    IN NODE("a", "call_method[target=exp", "%x", "")                                               \
        NODE("b", "call_method[target=exp", second, "")                                            \
            NODE("out", "call_function[target=operator.add", result, "") "return out"
#define OF(inner) IN inner NODE("out", "call_method[target=neg", "%a", "") "return out"
#define SLICE NODE("a", "call_function[target=operator.getitem", "%x, slice(1, 2, None)", "")
#define CALLED NODE("a", "call_method[target=slice", "%x, 0, 1, 2", "")
#define NEGATED X NODE("out", "call_method[target=neg", "%x", "") "return out"

static const struct {
    const char *text, *pattern, *by;
    int places;
} places[] = {
    {CAT("%x, %y"), CAT("%x, %y"), NEGATED, 1},
    {CAT("%x, %y, %x"), CAT("%x, %y"), NEGATED, 0},
    {CAT("%x, %y, %x"), CAT("%x, %y, %y"), NEGATED, 0},
    {ADD("2, %x"), ADD("%x, %x"), NEGATED, 0},
    {ADD("%x, 2"), ADD("%x, %x"), NEGATED, 0},
    {ADD("%x, 2"), ADD("%x, %y"), IN "return y", 0}, /* a number has nowhere to go */
    {ADD("%x, 2"), ADD("%x, %y"), IN "return x", 1},
    {LAYER("some", ""), LAYER("%x", ""), NEGATED, 0},
    {LAYER("some", ""), LAYER("some", ""), IN "return x", 0}, /* nothing is known of x */
    {LAYER("%x, None", ""), LAYER("%x, None", ""), NEGATED, 1},
    {LAYER("%x, None", ""), LAYER("%x, 1", ""), NEGATED, 0},
    {LAYER("%x, 1", ""), LAYER("%x, None", ""), NEGATED, 0},
    {LAYER("%x, torch.int8", ""), LAYER("%x, torch.int8", ""), NEGATED, 1},
    {LAYER("%x, torch.int8", ""), LAYER("%x, torch.bool", ""), NEGATED, 0},
    {LAYER("{a: %x}", ""), LAYER("{a: %x}", ""), NEGATED, 1},
    {LAYER("{a: %x}", ""), LAYER("{b: %x}", ""), NEGATED, 0},
    {LAYER("%x", "a: %y"), LAYER("%x", "a: %y"), NEGATED, 1},
    {LAYER("%x", "a: %y"), LAYER("%x", "b: %y"), NEGATED, 0},
    {EXPS("%x", "%a, %a"), EXPS("%x", "%a, %a"), NEGATED, 1},
    {EXPS("%x", "%a, %b"), EXPS("%x", "%a, %a"), NEGATED, 0},
    {OF(NODE("a", "call_method[target=exp", "%x", "")),
     OF(NODE("a", "call_method[target=exp", "%x", "")), NEGATED, 1},
    {IN NODE("out", "call_method[target=neg", "2", "") "return out",
     OF(NODE("a", "call_method[target=exp", "%x", "")), NEGATED, 0},
    {OF(SLICE), OF(SLICE), NEGATED, 1},
    {OF(SLICE), OF(CALLED), NEGATED, 0},
    {OF(CALLED), OF(SLICE), NEGATED, 0},
    {OF(NODE("a", "call_function[target=torch.nn.functional.dropout", "%x", "")),
     OF(NODE("a", "call_function[target=torch.nn.functional.dropout", "%x", "")), NEGATED, 0},
    {OF(NODE("a", "call_method[target=mul_", "%x, 2", "")),
     OF(NODE("a", "call_method[target=mul_", "%x, 2", "")), NEGATED, 0},
    {OF(NODE("a", "call_method[target=mul", "%x, 2", "")),
     OF(NODE("a", "call_method[target=mul_", "%x, 2", "")), NEGATED, 0},
    {IN
     "%a : [num_users=1] = get_attr[target=w]\n" NODE("b", "call_method[target=mul_", "%y, 2", "")
         NODE("out", "call_function[target=operator.add", "%a, %x", "") "return out",
     IN "%a : [num_users=1] = get_attr[target=w]\n" NODE("out", "call_function[target=operator.add",
                                                         "%a, %x", "") "return out",
     NEGATED, 1},
};

static void places_are_what_the_pattern_says(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        cb_graph *graph = parse(places[i].text), *pattern = parse(places[i].pattern);
        cb_graph *by = parse(places[i].by);
        int count = cb_graph_replace_pattern(graph, pattern, by);
        if (count != places[i].places) print_error("row %d\n", (int)i);
        expect_no_error();
        assert_int_equal(count, places[i].places);
        assert_int_equal(cb_graph_lint(graph), CB_OK);
        cb_graph_free(graph), cb_graph_free(pattern), cb_graph_free(by);
    }
}

/* A replacement may have keywords, and no inputs. */
static void replacements_of_every_form(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {X NODE("b", "call_method[target=sum", "%x", "dim: 0, keepdim: True") "return b",
         "    %sum_1 : [num_users=1] = call_method[target=sum](args = (%x,), kwargs = {dim: 0, "
         "keepdim: True})\n    return sum_1"},
        {"graph():\n" NODE("b", "call_function[target=torch.ones", "(2, 3)", "") "return b",
         "    %ones : [num_users=1] = call_function[target=torch.ones](args = ((2, 3),), kwargs = "
         "{})\n    return ones"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_graph *graph = parse(NEGATED), *pattern = parse(NEGATED), *by = parse(cases[i][0]);
        assert_int_equal(cb_graph_replace_pattern(graph, pattern, by), 1);
        char *text = cb_graph_text(graph);
        assert_non_null(strstr(text, cases[i][1]));
        cb_free_text(text);
        cb_graph_free(graph), cb_graph_free(pattern), cb_graph_free(by);
    }
}

/* ---- nodes by hand -------------------------------------------------------------------------- */

static void nodes_at_both_ends(void **state) {
    (void)state;
    cb_module *block = block_new();
    cb_graph *graph = cb_graph_new(block);
    assert_ptr_equal(cb_graph_module(graph), block);
    cb_node *unused = cb_graph_placeholder(graph, "unused"), *x = cb_graph_placeholder(graph, "x");
    cb_arg args[] = {cb_arg_node(x)};
    cb_node *local = cb_graph_call_function(graph, "local", args, 1);
    cb_node *exp = cb_graph_call_method(graph, "exp", args, 1);
    assert_string_equal(cb_node_name(local), "local");
    assert_int_equal(cb_node_set_kwarg(local, "other", args[0]), CB_OK);
    assert_int_equal(cb_node_replace_all_uses(x, exp), 1); /* the keyword's, too; not exp's own */
    assert_ptr_equal(cb_node_kwarg(local, "other").node, exp);
    assert_int_equal(cb_graph_erase(graph, local), CB_OK);
    assert_int_equal(cb_graph_erase(graph, unused), CB_OK);
    assert_ptr_equal(cb_graph_first(graph), x);
    assert_int_equal(cb_graph_erase(graph, exp), CB_OK);
    assert_ptr_equal(cb_graph_last(graph), x);
    assert_int_equal(cb_graph_dead_code(graph), 0); /* inputs stay */
    assert_int_equal(cb_graph_erase(graph, x), CB_OK);
    assert_null(cb_graph_first(graph));
    assert_null(cb_graph_last(graph));
    assert_null(cb_graph_get_attr(graph, NULL));
    expect_error("a new node needs a graph");
    args[0] = cb_arg_node(NULL);
    assert_null(cb_graph_call_method(graph, "exp", args, 1));
    expect_error("exp: argument 0 (%?) is no node of this graph");
    cb_graph_free(graph);
    cb_module_free(block);
}

static void lint_knows_the_module(void **state) {
    (void)state;
    static const struct {
        const char *line, *error;
    } cases[] = {
        {NODE("a", "call_module[target=linear", "%x", ""), NULL},
        {NODE("a", "call_module[target=conv", "%x", ""), "names no attribute of the module"},
        {"    %a : [num_users=1] = get_attr[target=linear.bias]\n", NULL},
        {"    %a : [num_users=1] = get_attr[target=bias]\n", "names no attribute of the module"},
        {NODE("a", "call_method[target=nothing", "%x", ""), "names no op"},
    };
    cb_module *block = block_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, "%s%s    return a", X, cases[i].line);
        cb_graph *graph = cb_graph_parse(text, block), *loose = parse(text);
        assert_int_equal(cb_graph_lint(graph), cases[i].error ? CB_ERR_GRAPH : CB_OK);
        if (cases[i].error) expect_error(cases[i].error);
        bool op = strstr(text, "nothing") != NULL;
        assert_int_equal(cb_graph_lint(loose), op ? CB_ERR_GRAPH : CB_OK);
        cb_clear_error();
        cb_node *a = cb_graph_find(graph, "a");
        cb_arg late[] = {cb_arg_node(a), cb_arg_node(a)};
        assert_int_equal(cb_node_set_kwarg(a, "late", cb_arg_list(late, 2)), CB_OK);
        assert_int_equal(cb_node_set_kwarg(a, "x", cb_arg_node(cb_graph_first(graph))), CB_OK);
        assert_int_equal(cb_graph_lint(graph), CB_ERR_GRAPH);
        expect_error("uses %a before its definition");
        cb_graph_free(graph), cb_graph_free(loose);
    }
    cb_module_free(block);
}

static void arguments_that_only_code_can_give(void **state) {
    (void)state;
    cb_graph *graph = parse(X NODE("a", "call_method[target=to", "%x, torch.int8", "") "return a");
    cb_tensor *x = cb_ones(cb_dims(2)), *out;
    cb_node *a = cb_graph_find(graph, "a");
    for (int dtype = -1; dtype <= 99; dtype += 100) {
        assert_int_equal(cb_node_set_arg(a, 1, cb_arg_dtype(dtype)), CB_OK);
        assert_int_equal(cb_graph_run(graph, &x, 1, &out, 1), CB_ERR_GRAPH);
        expect_error("node %a (call_method to): dtype must be a dtype");
    }
    cb_node_set_arg(a, 1, cb_arg_dtype(CB_F64));
    for (int i = 0; i < 65; i++) {
        char key[8];
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(cb_graph_run(graph, &x, 1, &out, 1), 1);
        assert_int_equal(cb_node_set_kwarg(a, key, cb_arg_none()), CB_OK);
    }
    assert_int_equal(cb_graph_run(graph, &x, 1, &out, 1), CB_ERR_GRAPH);
    expect_error("node %a (call_method to): 65 keywords are too many");
    cb_graph_free(graph);
}

/* ---- modules -------------------------------------------------------------------------------- */

static cb_tensor *gives_nothing(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)inputs, (void)count;
    return NULL;
}

static cb_tensor *gives_its_input(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)count;
    return inputs[0];
}

static cb_tensor *leaves_autocast(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)count;
    cb_autocast_open(CB_BF16);
    return cb_neg(inputs[0]);
}

static cb_tensor *calls_child(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    return cb_forward(cb_module_child(self, "child"), inputs[0]);
}

static cb_tensor *calls_child_with_null(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)inputs, (void)count;
    return cb_forward(cb_module_child(self, "child"), (cb_tensor *)NULL);
}

static cb_module *parent_of(cb_forward_function *forward, cb_forward_function *child) {
    cb_module *parent = cb_module_new("Parent", forward, NULL);
    cb_module *leaf = cb_module_new("Child", child, NULL);
    cb_module_set_leaf(leaf, true);
    cb_module_add(parent, "child", leaf);
    cb_module_add(parent, "plain", cb_nn_linear(2, 2, false));
    return parent;
}

static void modules_in_graphs(void **state) {
    (void)state;
    static const struct {
        const char *line, *error;
        cb_forward_function *child;
    } cases[] = {
        {NODE("a", "call_module[target=child", "%x", ""), NULL, gives_its_input},
        {NODE("a", "call_module[target=child", "%x", ""),
         "Child: forward gave NULL and recorded no error", gives_nothing},
        {NODE("a", "call_module[target=child", "%x", "b: 1"), "modules take positional tensors",
         gives_its_input},
        {NODE("a", "call_module[target=child", "1", ""), "a tensor is needed here",
         gives_its_input},
        {NODE("a", "call_module[target=missing", "%x", ""), "no such module", gives_its_input},
        {"    %a : [num_users=1] = get_attr[target=plain.bias]\n", "no parameter, buffer or",
         gives_its_input},
        {"    %a : [num_users=1] = get_attr[target=plain.weight]\n", NULL, gives_its_input},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_module *parent = parent_of(calls_child, cases[i].child);
        char text[400];
        snprintf(text, sizeof text, "%s%s    return a", X, cases[i].line);
        cb_graph *graph = cb_graph_parse(text, parent);
        cb_tensor *x = cb_ones(cb_dims(2)), *out;
        int count = cb_graph_run(graph, &x, 1, &out, 1);
        assert_int_equal(count >= 0, !cases[i].error);
        if (cases[i].error) expect_error(cases[i].error);
        expect_no_error();
        cb_graph_free(graph);
        cb_module_free(parent);
    }
    cb_arg many[CB_MAX_ARGS + 1];
    cb_module *parent = parent_of(calls_child, gives_its_input);
    cb_graph *graph = cb_graph_new(parent);
    for (int i = 0; i <= CB_MAX_ARGS; i++) many[i] = cb_arg_int(i);
    cb_graph_call_module(graph, "child", many, CB_MAX_ARGS + 1);
    REFUSES(cb_graph_run(graph, NULL, 0, NULL, 0), CB_ERR_GRAPH, "modules take positional tensors");
    cb_graph_free(graph);
    cb_module_free(parent);
}

static void shapes_of_what_is_no_tensor(void **state) {
    (void)state;
    cb_graph *graph = parse(X "    %k : [num_users=1] = placeholder[target=k](default=2.0)\n" NODE(
        "a", "call_function[target=operator.add", "%x, %k", "")
                                NODE("b", "call_method[target=exp", "%a", "") "return a");
    cb_tensor *x = cb_ones(cb_dims(2));
    assert_int_equal(cb_graph_propagate_shapes(graph, &x, 1), CB_OK);
    assert_true(cb_node_meta(cb_graph_find(graph, "a"), NULL, NULL));
    assert_false(cb_node_meta(cb_graph_find(graph, "k"), NULL, NULL));
    assert_false(cb_node_meta(cb_graph_find(graph, "b"), NULL, NULL)); /* freed at once */
    cb_graph_print(NULL);
    expect_no_error();
    cb_graph_free(graph);
}

static int calls_a_module(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    out[0] = cb_forward((cb_module *)user, in[0]);
    return 1;
}

/* What a leaf's forward does wrong in a trace with examples, which runs it. */
static void modules_that_fail_in_a_trace(void **state) {
    (void)state;
    static const struct {
        cb_forward_function *forward, *child;
        const char *error;
    } cases[] = {
        {calls_child, gives_nothing, "Child: forward gave NULL and recorded no error"},
        {calls_child, leaves_autocast, "a forward opened an autocast and did not close it"},
        {calls_child_with_null, gives_its_input, "input 0 of Child is NULL"},
        {leaves_autocast, gives_its_input, "opened an autocast"},
    };
    cb_tensor *x = cb_ones(cb_dims(2));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_module *parent = parent_of(cases[i].forward, cases[i].child);
        assert_null(cb_symbolic_trace_with(parent, &x, 1));
        expect_error(cases[i].error);
        assert_int_equal(cb_autocast_dtype(), CB_SAME);
        cb_module_free(parent);
    }
    cb_module *parent = parent_of(calls_child, gives_its_input);
    cb_graph *graph = cb_symbolic_trace_with(parent, &x, 1);
    expect_no_error();
    assert_int_equal(cb_graph_node_count(graph), 3);
    cb_graph_free(graph);
    REFUSED(cb_symbolic_trace_function(calls_a_module, cb_module_child(parent, "child"), 1, NULL),
            "this Child is no descendant of the traced module");
    cb_module_inputs(parent, " ");
    REFUSED(cb_symbolic_trace_with(parent, NULL, -1), "-1 inputs");
    cb_module_free(parent);
    REFUSED(cb_symbolic_trace(parent), "symbolic trace: the module was freed at ");
    REFUSED(cb_symbolic_trace_with(parent, &x, 1), "symbolic trace: the module was freed at ");
}

static cb_tensor *makes_its_own(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)self, (void)inputs;
    assert_int_equal(count, 0);
    return cb_ones(cb_dims(2));
}

static int fails(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)in, (void)count, (void)out, (void)user;
    return -1;
}

static void names_of_inputs(void **state) {
    (void)state;
    cb_module *module = cb_module_new("Own", makes_its_own, NULL);
    cb_module_inputs(module, " ");
    cb_graph *graph = cb_symbolic_trace(module);
    expect_text(cb_graph_text(graph),
                "graph():\n    %ones : [num_users=1] = call_function[target=torch.ones](args = "
                "((2,),), kwargs = {})\n    return ones");
    cb_graph_free(graph);
    cb_module_free(module);
    graph = cb_symbolic_trace_function(three_ways, NULL, 4, "");
    const char *const names[] = {"x", "y", "z", "input_3"};
    cb_node *node = cb_graph_first(graph);
    for (int i = 0; i < 4; i++, node = cb_node_next(node))
        assert_string_equal(cb_node_name(node), names[i]);
    cb_graph_free(graph);
    cb_neg(NULL);
    assert_null(cb_symbolic_trace_function(fails, NULL, 1, NULL));
    expect_error("neg: "); /* the first error stays */
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
        ONE(places_are_what_the_pattern_says),
        ONE(replacements_of_every_form),
        ONE(nodes_at_both_ends),
        ONE(lint_knows_the_module),
        ONE(arguments_that_only_code_can_give),
        ONE(modules_in_graphs),
        ONE(shapes_of_what_is_no_tensor),
        ONE(modules_that_fail_in_a_trace),
        ONE(names_of_inputs),
        ONE(freed_graphs_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
