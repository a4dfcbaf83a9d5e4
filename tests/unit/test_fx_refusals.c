/* FX graphs that make no sense: each is refused where it is bound, run, printed as C, matched or
 * edited, with a message that names the node; and the forms of arguments that do make sense. */
#include "fx_support.h"

#define INPUTS                                                                                     \
    "graph():\n    %x : [num_users=1] = placeholder[target=x]\n"                                   \
    "    %y : [num_users=1] = placeholder[target=y]\n"
#define NUMBER INPUTS "    %k : [num_users=1] = placeholder[target=k](default=2.0)\n"
#define OUT(kind, target, args, kwargs)                                                            \
    "    %out : [num_users=1] = " kind "[target=" target "](args = (" args "), kwargs = {" kwargs  \
    "})\n    return out"
#define CALL(kind, target, args, kwargs) INPUTS OUT(kind, target, args, kwargs)
#define FUNCTION(target, args, kwargs) CALL("call_function", target, args, kwargs)
#define METHOD(target, args, kwargs) CALL("call_method", target, args, kwargs)

static const struct {
    const char *text, *error; /* NULL: runs */
} calls[] = {
    {METHOD("sum", "%x, 'a'", ""), "dim must be an integer or a list of integers"},
    {METHOD("sum", "%x, (0, 0.5)", ""), "dim must be an integer or a list of integers"},
    {METHOD("sum", "%x, 0.5", ""), "dim must be an integer or a list of integers"},
    {METHOD("sum", "%x, 1, 0.5", ""), "keepdim must be True or False"},
    {METHOD("sum", "%x, 1, some", ""), "keepdim must be a mode that Carbide has"},
    {METHOD("roll", "%x", ""), "shifts must be given"},
    {FUNCTION("torch.nn.functional.layer_norm", "%x", ""),
     "normalized_shape must be a list of integers"},
    {FUNCTION("torch.permute", "%x, 1, 0", ""), "3 arguments are too many"},
    {METHOD("clamp", "%x", "low: 0"), NULL},
    {METHOD("clamp", "%x", "max: 2"), NULL},
    {METHOD("clamp", "%x", "min: some"), "min must be a number"},
    {FUNCTION("torch.nn.functional.conv2d", "%x, %y", "padding: valid"), "conv2d: "},
    {FUNCTION("torch.nn.functional.conv2d", "%x, %y", "padding: sideways"),
     "padding must be an integer or a list of integers"},
    {METHOD("view", "%x, -1, 0.5", ""), "3 arguments are too many"},
    {METHOD("view", "%x", ""), "view: the sizes [] hold 1 elements, not 6: f32[2, 3]"},
    {METHOD("view", "%x, 1, 1, 1, 1, 1, 1, 1, 1, 6", ""), "10 arguments are too many"},
    {METHOD("permute", "%x, (0, 1, 2, 3, 4, 5, 6, 7, 8)", ""),
     "dims must be an integer or a list of integers"},
    {METHOD("permute", "%x, [1, 0]", ""), NULL},
    {METHOD("permute", "%x, None", ""), "dims must be a list of integers"},
    {METHOD("to", "%x, 3", ""), "dtype must be a dtype"},
    {METHOD("to", "%x, None", ""), NULL},
    {METHOD("softmax", "%x, 0.5", ""), "dim must be an integer"},
    {METHOD("softmax", "%x, None", ""), "dim must be an integer"},
    {METHOD("softmax_", "%x, 7", ""), "dim 7 is outside of -2..1"},
    {METHOD("softmax", "%x, True", ""), NULL},
    {METHOD("add_", "1, %x", ""), "an in-place method needs a tensor to write to"},
    {METHOD("add_", "", ""), "an in-place method needs a tensor to write to"},
    {METHOD("add_", "%x, 1", ""), NULL},
    {METHOD("copy_", "%x", ""), "takes the target and a value"},
    {METHOD("copy_", "%x, None", ""), "takes the target and a value"},
    {METHOD("copy_", "%x, True", ""), NULL},
    {FUNCTION("torch.nn.functional.threshold", "%x", ""), "threshold must be given"},
    {FUNCTION("torch.nn.functional.threshold", "%x, 'a', 1", ""), "threshold must be a number"},
    {FUNCTION("torch.nn.functional.threshold", "%x, [1], 1", ""), "threshold must be a number"},
    {FUNCTION("torch.nn.functional.interpolate", "%x", "scale_factor: big"),
     "scale_factor must be a number or a list of numbers"},
    {FUNCTION("torch.nn.functional.interpolate", "%x", "scale_factor: (1.0, None)"),
     "scale_factor must be a number or a list of numbers"},
    {FUNCTION("torch.nn.functional.interpolate", "%x",
              "scale_factor: (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)"),
     "scale_factor must be a number or a list of numbers"},
    {FUNCTION("torch.nn.functional.interpolate", "%x", "scale_factor: [1.0, 2]"), "interpolate: "},
    {FUNCTION("torch.nn.functional.interpolate", "%x", "mode: sideways"),
     "mode must be a mode that Carbide has"},
    {FUNCTION("torch.nn.functional.pad", "%x, (1, 1)", "mode: sideways"),
     "there is no mode sideways"},
    {FUNCTION("torch.nn.functional.pad", "%x, (1, 1)", "mode: 3"), "no parameter is named mode"},
    {FUNCTION("torch.nn.functional.pad", "%x, (1, 1)", "value: 2.0"), NULL},
    {FUNCTION("torch.cat", "%x", ""), "tensors must be a list of tensors"},
    {FUNCTION("torch.cat", "", ""), "tensors must be a list of tensors"},
    {FUNCTION("torch.cat", "[]", ""), "tensors must be a list of tensors"},
    {FUNCTION("torch.cat", "[%x, 1]", ""), "tensors must be a list of tensors"},
    {FUNCTION("torch.cat", "(%x, %y)", "dim: 1"), NULL},
    {FUNCTION("operator.add", "%x, [1]", ""), "b must be a tensor or a number"},
    {FUNCTION("operator.add", "%x", ""), "b must be a tensor or a number"},
    {FUNCTION("operator.add", "%x, %y, %x", ""), "3 arguments are too many"},
    {FUNCTION("operator.add", "%x, True", ""), NULL},
    {FUNCTION("torch.relu", "%x", "inplace: True"), "no parameter is named inplace"},
    {FUNCTION("torch.relu", "%x", "inplace: False, other: None"), NULL},
    {FUNCTION("operator.getitem", "%x, (Ellipsis, Ellipsis)", ""),
     "an index holds integers, slices, None and one Ellipsis"},
    {FUNCTION("operator.getitem", "%x, 0.5", ""),
     "an index holds integers, slices, None and one Ellipsis"},
    {FUNCTION("operator.getitem", "%x, slice(0.5, None, None)", ""),
     "an index holds integers, slices, None and one Ellipsis"},
    {FUNCTION("operator.getitem", "%x, (Ellipsis, 0.5)", ""),
     "an index holds integers, slices, None and one Ellipsis"},
    {FUNCTION("operator.getitem", "1, 2", ""),
     "an index holds integers, slices, None and one Ellipsis"},
    {FUNCTION("operator.getitem", "%x", ""),
     "an index holds integers, slices, None and one Ellipsis"},
    {FUNCTION("operator.getitem", "%x, 7", ""),
     "select: index 7 is outside of dim 0 of size 2: f32[2, 3]"},
    {FUNCTION("operator.getitem", "%x, (slice(None, None, None), 7)", ""),
     "select: index 7 is outside of dim 1 of size 3: f32[2, 3]"},
    {FUNCTION("operator.getitem", "%x, (7, 0)", ""), "select: index 7 is outside of dim 0"},
    {FUNCTION("operator.getitem",
              "%x, (None, None, None, None, None, None, None, None, None, None, None, None, None, "
              "None, None, None, None)",
              ""),
     "an index holds integers, slices, None and one Ellipsis"},
    {FUNCTION("operator.getitem", "%x, (None, Ellipsis, 1, None)", ""), NULL},
    {FUNCTION("operator.getitem", "%x, slice(None, 1, None)", ""), NULL},
    {FUNCTION("operator.getitem", "%x, slice(None, None, 2)", ""), NULL},
    {FUNCTION("operator.getitem", "%x, slice(None, None, None)", ""), NULL},
    {FUNCTION("operator.nothing", "%x", ""), "no op has this name"},
    {FUNCTION("torch.ops.aten.relu.default", "%x", ""), NULL},
    {FUNCTION("torch.ops.aten.nothing.default", "%x", ""), "no op has this name"},
    {METHOD("nothing", "%x", ""), "no op has this name"},
    {METHOD("philox", "%x", ""), "no op has this name"},
    {METHOD("constant", "%x", ""), "no op has this name"},
    {METHOD("a_method_whose_name_is_longer_than_that_of_any_op", "%x", ""), "no op has this name"},
    {FUNCTION("torch.nn.functional.dropout", "%x, some", ""), "p must be a number"},
    {CALL("call_module", "layer", "%x", ""), "no such module"},
    {INPUTS "    %w : [num_users=1] = get_attr[target=w]\n    return w",
     "no parameter, buffer or constant of this name"},
    {NUMBER "    return k", "a tensor is needed here"},
    {INPUTS "    %k : [num_users=1] = placeholder[target=k](default=None)\n    return k",
     "a tensor is needed here"},
    {NUMBER OUT("call_function", "operator.getitem", "%k, 0", ""), "a tensor is needed here"},
    {NUMBER OUT("call_function", "torch.cat", "[%x, %k]", ""), "a tensor is needed here"},
    {NUMBER OUT("call_method", "add_", "%k, 1", ""), "a tensor is needed here"},
    {NUMBER OUT("call_function", "operator.add", "%x, %k", ""), NULL},
    {INPUTS "    return 1", "a tensor is needed here"},
    {INPUTS "    return (x, 1)", "a tensor is needed here"},
    {INPUTS "    return None", NULL},
};

static void graphs_run_or_say_why(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        cb_graph *graph = parse(calls[i].text);
        cb_tensor *in[] = {cb_ones(cb_dims(2, 3)), cb_ones(cb_dims(2, 3))}, *out[4];
        int count = cb_graph_run(graph, in, 2, out, 4);
        if ((count >= 0) != !calls[i].error) print_error("%s\n", calls[i].text);
        assert_int_equal(count >= 0, !calls[i].error);
        if (calls[i].error) expect_error(calls[i].error);
        expect_no_error();
        char *code = cb_graph_code(graph, "f");
        if (!calls[i].error) assert_non_null(code); /* some errors only a run can know */
        cb_clear_error();
        cb_free_text(code);
        cb_graph_free(graph);
    }
}

static void nothing_is_answered_with_nothing(void **state) {
    (void)state;
    const char *key = "a";
    cb_dtype dtype = CB_F32;
    assert_null(cb_graph_module(NULL));
    assert_null(cb_graph_placeholder(NULL, "x"));
    expect_error("a new node needs a graph");
    assert_null(cb_graph_output(NULL, cb_arg_none()));
    expect_error("a new node needs a graph");
    assert_null(cb_graph_first(NULL));
    assert_null(cb_graph_last(NULL));
    assert_int_equal(cb_graph_node_count(NULL), 0);
    assert_null(cb_graph_find(NULL, "x"));
    assert_null(cb_node_next(NULL));
    assert_null(cb_node_previous(NULL));
    assert_int_equal(cb_node_opcode(NULL), CB_OPCODE_COUNT);
    assert_null(cb_node_name(NULL));
    assert_null(cb_node_target(NULL));
    assert_int_equal(cb_node_arg_count(NULL) + cb_node_kwarg_count(NULL), 0);
    assert_int_equal(cb_node_input_count(NULL) + cb_node_user_count(NULL), 0);
    assert_int_equal(cb_node_arg(NULL, 0).kind, CB_ARG_NONE);
    assert_int_equal(cb_node_kwarg_at(NULL, 0, &key).kind, CB_ARG_NONE);
    assert_null(key);
    assert_int_equal(cb_node_kwarg(NULL, "dim").kind, CB_ARG_NONE);
    assert_null(cb_node_input(NULL, 0));
    assert_null(cb_node_user(NULL, 0));
    assert_false(cb_node_meta(NULL, &dtype, NULL));
    assert_int_equal(cb_graph_dead_code(NULL), 0);
    assert_null(cb_graph_copy(NULL));
    cb_graph_free(NULL);
    expect_no_error();
    assert_int_equal(cb_graph_run(NULL, NULL, 0, NULL, 0), CB_ERR_ARGUMENT);
    expect_error("the graph or the inputs are NULL");
    assert_null(cb_graph_text(NULL));
    cb_clear_error();
}

static void accessors_know_their_ends(void **state) {
    (void)state;
    cb_graph *graph = parse(METHOD("sum", "%x, 1", "keepdim: True"));
    cb_node *out = cb_graph_find(graph, "out"), *x = cb_graph_first(graph);
    const char *key = NULL;
    assert_null(cb_graph_find(graph, NULL));
    assert_null(cb_graph_find(graph, "nobody"));
    assert_int_equal(cb_node_arg(out, 2).kind, CB_ARG_NONE);
    assert_int_equal(cb_node_arg(out, -1).kind, CB_ARG_NONE);
    assert_int_equal(cb_node_kwarg_at(out, 0, &key).kind, CB_ARG_BOOL);
    assert_string_equal(key, "keepdim");
    assert_int_equal(cb_node_kwarg_at(out, 0, NULL).kind, CB_ARG_BOOL);
    assert_int_equal(cb_node_kwarg_at(out, 1, &key).kind, CB_ARG_NONE);
    assert_int_equal(cb_node_kwarg_at(out, -1, &key).kind, CB_ARG_NONE);
    assert_int_equal(cb_node_kwarg(out, "dim").kind, CB_ARG_NONE);
    assert_int_equal(cb_node_kwarg(out, NULL).kind, CB_ARG_NONE);
    assert_ptr_equal(cb_node_input(out, 0), x);
    assert_null(cb_node_input(out, 1));
    assert_null(cb_node_input(out, -1));
    assert_ptr_equal(cb_node_user(x, 0), out);
    assert_null(cb_node_user(x, 1));
    assert_null(cb_node_user(x, -1));
    assert_false(cb_node_meta(out, NULL, NULL));
    cb_tensor *in[] = {cb_ones(cb_dims(2, 3)), cb_ones(cb_dims(2, 3))};
    assert_int_equal(cb_graph_propagate_shapes(graph, in, 2), CB_OK);
    assert_true(cb_node_meta(out, NULL, NULL));
    assert_int_equal(cb_graph_propagate_shapes(graph, in, 3), CB_ERR_ARGUMENT);
    expect_error("takes 2 inputs, not 3");
    assert_int_equal(cb_graph_run(graph, NULL, 2, NULL, 0), CB_ERR_ARGUMENT);
    expect_error("the graph or the inputs are NULL");
    assert_int_equal(cb_graph_run(graph, in, -1, NULL, 0), CB_ERR_ARGUMENT);
    expect_error("the graph or the inputs are NULL");
    assert_true(cb_graph_run(graph, in, 1, in, 2) < 0);
    expect_error("input 1 is missing");
    in[1] = NULL;
    assert_true(cb_graph_run(graph, in, 2, in, 2) < 0);
    expect_error("input 1 is NULL");
    in[1] = in[0];
    assert_true(cb_graph_run(graph, in, 2, NULL, 2) < 0);
    expect_error("more than the 0 outputs");
    cb_graph_free(graph);
}

static void wrong_edits_change_nothing(void **state) {
    (void)state;
    cb_graph *graph = parse(METHOD("sum", "%x, 1", "keepdim: True")),
             *other = parse(METHOD("neg", "%y", ""));
    cb_node *out = cb_graph_find(graph, "out"), *foreign = cb_graph_first(other);
    char *before = cb_graph_text(graph);
    cb_arg args[] = {cb_arg_node(foreign)}, deep[] = {cb_arg_list(args, 1)};
    assert_null(cb_graph_call_function(NULL, "operator.add", NULL, 0));
    expect_error("a new node needs a graph");
    assert_null(cb_graph_call_function(graph, NULL, NULL, 0));
    expect_error("a new node needs a graph");
    assert_null(cb_graph_call_function(graph, "", NULL, 0));
    expect_error("a new node needs a graph");
    assert_null(cb_graph_call_function(graph, "operator.neg", NULL, -1));
    expect_error("a new node needs a graph");
    assert_null(cb_graph_call_function(graph, "operator.neg", NULL, 1));
    expect_error("a new node needs a graph");
    assert_null(cb_graph_call_function(graph, "operator.neg", args, 1));
    expect_error("operator.neg: argument 0 (%x) is no node of this graph");
    assert_null(cb_graph_call_function(graph, "torch.cat", deep, 1));
    expect_error("torch.cat: argument 0 (%?) is no node of this graph");
    assert_null(cb_graph_insert_after(graph, out, 17, "neg", NULL, 0));
    expect_error("unknown opcode 17");
    assert_null(cb_graph_insert_after(graph, out, CB_OUTPUT, "output", NULL, 0));
    expect_error("there is an output node already");
    assert_null(cb_graph_insert_after(graph, foreign, CB_CALL_METHOD, "neg", NULL, 0));
    expect_error("node %x is not in this graph");
    assert_null(cb_graph_insert_before(graph, NULL, CB_CALL_METHOD, "neg", NULL, 0));
    expect_error("node %? is not in this graph");
    assert_null(cb_graph_insert_before(NULL, out, CB_CALL_METHOD, "neg", NULL, 0));
    expect_error("node %out is not in this graph");
    assert_null(cb_graph_output(graph, args[0]));
    expect_error("is no node of this graph");
    assert_int_equal(cb_node_set_arg(NULL, 0, cb_arg_int(1)), CB_ERR_GRAPH);
    expect_error("node %? is in no graph");
    assert_int_equal(cb_node_set_arg(out, 3, cb_arg_int(1)), CB_ERR_INDEX);
    expect_error("there is no argument 3");
    assert_int_equal(cb_node_set_arg(out, -1, cb_arg_int(1)), CB_ERR_INDEX);
    expect_error("there is no argument -1");
    assert_int_equal(cb_node_set_kwarg(out, NULL, cb_arg_int(1)), CB_ERR_ARGUMENT);
    expect_error("a keyword needs a name");
    assert_int_equal(cb_node_set_kwarg(out, "", cb_arg_int(1)), CB_ERR_ARGUMENT);
    expect_error("a keyword needs a name");
    assert_int_equal(cb_node_set_kwarg(NULL, "dim", cb_arg_int(1)), CB_ERR_GRAPH);
    expect_error("is in no graph");
    assert_int_equal(cb_node_set_kwarg(out, "dim", args[0]), CB_ERR_GRAPH);
    expect_error("is no node of this graph");
    assert_int_equal(cb_node_set_target(out, NULL), CB_ERR_ARGUMENT);
    expect_error("a node needs a target");
    assert_int_equal(cb_node_set_target(out, ""), CB_ERR_ARGUMENT);
    expect_error("a node needs a target");
    assert_int_equal(cb_node_set_target(NULL, "neg"), CB_ERR_GRAPH);
    expect_error("is in no graph");
    assert_int_equal(cb_node_replace_all_uses(out, foreign), CB_ERR_GRAPH);
    expect_error("node %x is not in this graph");
    assert_int_equal(cb_node_replace_all_uses(NULL, out), CB_ERR_GRAPH);
    expect_error("is in no graph");
    assert_int_equal(cb_node_replace_all_uses(out, out), 0);
    assert_int_equal(cb_graph_erase(graph, foreign), CB_ERR_GRAPH);
    expect_error("node %x is not in this graph");
    assert_int_equal(cb_graph_erase(graph, out), CB_ERR_GRAPH);
    expect_error("it still has 1 users, the first is %output");
    expect_text(cb_graph_text(graph), before);
    cb_free_text(before);
    cb_graph_free(graph);
    cb_graph_free(other);
}

static void edits_reach_every_argument(void **state) {
    (void)state;
    cb_graph *graph = parse(METHOD("sum", "%x", "keepdim: False"));
    cb_node *out = cb_graph_find(graph, "out"), *y = cb_graph_find(graph, "y");
    assert_int_equal(cb_node_set_arg(out, 1, cb_arg_int(1)), CB_OK);
    assert_int_equal(cb_node_set_kwarg(out, "keepdim", cb_arg_bool(true)), CB_OK);
    assert_int_equal(cb_node_set_kwarg(out, "dtype", cb_arg_none()), CB_OK);
    assert_int_equal(cb_node_set_arg(out, 0, cb_arg_node(y)), CB_OK);
    cb_tensor *in[] = {cb_ones(cb_dims(2, 3)), cb_full(cb_dims(2, 3), 2)}, *result;
    assert_int_equal(cb_graph_run(graph, in, 2, &result, 1), 1);
    assert_int_equal(cb_size(result, 1), 1);
    assert_true(cb_item(cb_select(cb_select(result, 0, 0), 0, 0)) == 6);
    assert_int_equal(cb_graph_lint(graph), CB_OK);
    cb_graph_free(graph);
}

static void dicts_run_and_have_no_c(void **state) {
    (void)state;
    cb_graph *graph = parse(INPUTS "    return {'a': x, 'b': (y, x)}");
    cb_tensor *in[] = {cb_ones(cb_dims(2, 3)), cb_ones(cb_dims(2, 3))}, *out[4];
    assert_int_equal(cb_graph_run(graph, in, 2, out, 4), 3);
    assert_ptr_equal(out[1], in[1]);
    assert_ptr_equal(out[2], in[0]);
    assert_null(cb_graph_code(graph, "f"));
    expect_error("returns something else than tensors");
    cb_graph_free(graph);
}

static void names_of_c_functions(void **state) {
    (void)state;
    cb_graph *graph = parse(METHOD("neg", "%x", ""));
    const char *const wrong[] = {NULL, "", "1st", "a-b", "a b", "-a", "int", "inputs", "cb_add"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_null(cb_graph_code(graph, wrong[i]));
        expect_error("is no name of a C function");
    }
    cb_graph_free(graph);
}

/* ---- patterns ------------------------------------------------------------------------------- */

static int replace(const char *text, const char *pattern_text, const char *replacement_text) {
    cb_graph *graph = parse(text), *pattern = parse(pattern_text);
    cb_graph *replacement = parse(replacement_text);
    int count = cb_graph_replace_pattern(graph, pattern, replacement);
    if (count > 0) assert_int_equal(cb_graph_lint(graph), CB_OK);
    cb_graph_free(graph), cb_graph_free(pattern), cb_graph_free(replacement);
    return count;
}

static void patterns_match_what_they_say(void **state) {
    (void)state;
    const char *by =
        "graph():\n    %x : [num_users=1] = placeholder[target=x]\n"
        "    %out : [num_users=1] = call_method[target=neg](args = (%x,), kwargs = {})\n"
        "    return out";
    assert_int_equal(replace(METHOD("sum", "%x, 1", ""), METHOD("sum", "%x", "dim: 1"), by), 1);
    assert_int_equal(replace(METHOD("sum", "%x, 1", ""), METHOD("sum", "%x, 0", ""), by), 0);
    assert_int_equal(replace(METHOD("sum", "%x, 1", ""), METHOD("prod", "%x, 1", ""), by), 0);
    assert_int_equal(
        replace(FUNCTION("operator.add", "%x, 1", ""), FUNCTION("operator.add", "%x, 1.0", ""), by),
        1);
    assert_int_equal(
        replace(FUNCTION("operator.add", "%x, 2", ""), FUNCTION("operator.add", "%x, 1", ""), by),
        0);
    assert_int_equal(
        replace(FUNCTION("operator.add", "%x, %y", ""), FUNCTION("operator.add", "%x, %x", ""), by),
        0);
    assert_int_equal(
        replace(FUNCTION("operator.add", "%x, 2", ""), FUNCTION("operator.add", "%x, %x", ""), by),
        0);
    assert_int_equal(replace(FUNCTION("operator.add", "2, 2", ""),
                             FUNCTION("operator.add", "%x, %x", ""),
                             FUNCTION("operator.mul", "%x, %y", "")),
                     0);
    assert_int_equal(
        replace(METHOD("to", "%x, torch.float64", ""), METHOD("to", "%x, torch.float32", ""), by),
        0);
    assert_int_equal(
        replace(METHOD("to", "%x, torch.float64", ""), METHOD("to", "%x, torch.float64", ""), by),
        1);
    assert_int_equal(replace(FUNCTION("operator.getitem", "%x, (slice(1, 2, None), 0)", ""),
                             FUNCTION("operator.getitem", "%x, (slice(1, 2, None), 0)", ""), by),
                     1);
    assert_int_equal(replace(FUNCTION("operator.getitem", "%x, (slice(1, 2, None), 0)", ""),
                             FUNCTION("operator.getitem", "%x, (slice(1, 3, None), 0)", ""), by),
                     0);
    assert_int_equal(replace(FUNCTION("operator.getitem", "%x, (slice(1, 2, None), 0)", ""),
                             FUNCTION("operator.getitem", "%x, 0", ""), by),
                     0);
    assert_int_equal(
        replace(CALL("call_module", "layer", "%x", ""), CALL("call_module", "layer", "%x", ""), by),
        1);
    assert_int_equal(
        replace(CALL("call_module", "layer", "%x", ""), CALL("call_module", "other", "%x", ""), by),
        0);
    assert_int_equal(replace(CALL("call_module", "layer", "%x", "a: b"),
                             CALL("call_module", "layer", "%x", "a: c"), by),
                     0);
    assert_int_equal(replace(CALL("call_module", "layer", "%x", "a: b"),
                             CALL("call_module", "layer", "%x", ""), by),
                     0);
    assert_int_equal(
        replace(FUNCTION("torch.cat", "[%x, %y]", ""), FUNCTION("torch.cat", "[%x, %y]", ""), by),
        1);
    expect_no_error();
}

static void patterns_that_make_no_sense(void **state) {
    (void)state;
    const char *good = METHOD("neg", "%x", ""), *unknown = METHOD("nothing", "%x", "");
    cb_graph *graph = parse(good), *other = parse(good);
    assert_int_equal(cb_graph_replace_pattern(NULL, graph, graph), CB_ERR_ARGUMENT);
    expect_error("replace_pattern: NULL");
    assert_int_equal(cb_graph_replace_pattern(graph, NULL, graph), CB_ERR_ARGUMENT);
    expect_error("replace_pattern: NULL");
    assert_int_equal(cb_graph_replace_pattern(graph, other, NULL), CB_ERR_ARGUMENT);
    expect_error("replace_pattern: NULL");
    assert_true(cb_graph_replace_pattern(graph, graph, other) < 0);
    cb_clear_error();
    assert_true(cb_graph_replace_pattern(graph, other, graph) < 0);
    cb_clear_error();
    cb_graph_free(graph), cb_graph_free(other);
    assert_true(replace(good, unknown, good) < 0);
    expect_error("no op has this name");
    assert_int_equal(replace(unknown, good, good), 0);
    assert_true(replace(good, good, METHOD("sum", "%x, some", "")) < 0);
    expect_error("node %out (call_method sum): dim must be");
    assert_true(replace(METHOD("sum", "%x, some", ""), good, good) < 0);
    expect_error("node %out (call_method sum): dim must be");
    assert_true(replace(good, INPUTS, good) < 0);
    expect_error("the pattern must return one computed value");
    assert_true(replace(good, INPUTS "    return (x, y)", good) < 0);
    expect_error("must return one");
    assert_true(replace(good, INPUTS "    return 1", good) < 0);
    expect_error("must return one");
    assert_true(replace(good, good, INPUTS "    return (x, y)") < 0);
    expect_error("must return one");
    assert_true(replace(good, METHOD("sum", "%x, 'a'", ""), good) < 0);
    expect_error("dim must be");
}

/* ---- tracing -------------------------------------------------------------------------------- */

static cb_tensor *leaked; /* of a trace that is over */

static int keeps_its_input(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    leaked = cb_keep(in[0]);
    out[0] = cb_neg(in[0]);
    return 1;
}

static int takes_from_another_trace(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_add(in[0], leaked);
    return 1;
}

static int assigns_from_another_trace(cb_tensor *const *in, int count, cb_tensor **out,
                                      void *user) {
    (void)count;
    out[0] = *(bool *)user ? cb_assign(leaked, in[0]) : cb_assign(in[0], leaked);
    return 1;
}

static int returns_another_trace(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)in, (void)count, (void)user;
    out[0] = leaked;
    return 1;
}

static cb_tensor *gives_another_trace(cb_module *self, cb_tensor *const *in, int count) {
    (void)in, (void)count;
    return cb_forward(cb_module_child(self, "leaf"), leaked);
}

/* Cats that are freed, of which one is used by no cat, one by another op and one by nobody. */
static int frees_cats(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *pair[] = {in[0], in[0]};
    cb_tensor *a = cb_cat(pair, 2, 0), *b = cb_cat(pair, 2, 1);
    out[0] = cb_neg(a);
    cb_free(a), cb_free(b);
    cb_tensor *sum = cb_add(in[0], 1);
    pair[1] = sum;
    out[1] = cb_cat(pair, 2, 0);
    cb_free(sum);
    return 2;
}

static int returns_null(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)in, (void)count, (void)user;
    out[0] = NULL;
    return 1;
}

static int returns(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    for (int i = 0; i < count; i++) out[i] = in[i];
    return *(int *)user;
}

static int assigns_numbers(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_assign(in[0], cb_where(cb_gt(in[0], 0), true, in[0]));
    cb_fill_(in[0], 2);
    out[0] = in[0];
    return 1;
}

static void traces_that_fail(void **state) {
    (void)state;
    int zero = 0, minus = -1, many = CB_MAX_ARGS + 1;
    cb_graph *graph = cb_symbolic_trace_function(keeps_its_input, NULL, 1, NULL);
    assert_non_null(graph);
    assert_null(cb_symbolic_trace_function(takes_from_another_trace, NULL, 1, NULL));
    expect_error("a tensor of another trace is used");
    bool to = true, from = false;
    assert_null(cb_symbolic_trace_function(assigns_from_another_trace, &to, 1, NULL));
    expect_error("a tensor of another trace is used");
    assert_null(cb_symbolic_trace_function(assigns_from_another_trace, &from, 1, NULL));
    expect_error("a tensor of another trace is used");
    assert_null(cb_symbolic_trace_function(returns_another_trace, NULL, 1, NULL));
    expect_error("a tensor of another trace is used");
    cb_module *net = cb_module_new("Net", gives_another_trace, NULL);
    cb_module_add(net, "leaf", cb_nn_relu());
    assert_null(cb_symbolic_trace(net));
    expect_error("a tensor of another trace is used");
    cb_module_free(net);
    cb_tensor *examples[] = {leaked};
    assert_null(cb_symbolic_trace_function_with(returns, &zero, "x", examples, 1));
    expect_error("example 0");
    cb_free(leaked);
    cb_graph_free(graph);
    assert_null(cb_symbolic_trace_function(returns_null, NULL, 1, NULL));
    expect_error("result 0 is NULL");
    assert_null(cb_symbolic_trace_function(returns, &minus, 1, NULL));
    expect_error("the function failed");
    assert_null(cb_symbolic_trace_function(returns, &many, 1, NULL));
    expect_error("returned 1025 tensors, more than 1024");
    assert_null(cb_symbolic_trace_function(returns, &zero, -1, NULL));
    expect_error("-1 inputs; 0 to");
    assert_null(cb_symbolic_trace_function(returns, &zero, CB_MAX_ARGS + 1, NULL));
    expect_error("inputs; 0 to");
    assert_null(cb_symbolic_trace_function(NULL, NULL, 1, NULL));
    cb_clear_error();
    assert_null(cb_symbolic_trace(NULL));
    assert_null(cb_symbolic_trace_with(NULL, NULL, 0));
    assert_null(cb_symbolic_trace_function_with(NULL, NULL, NULL, NULL, 0));
    expect_no_error();
    cb_tensor *none[] = {NULL};
    assert_null(cb_symbolic_trace_function_with(returns, &zero, "x", none, 1));
    expect_error("example 0 is NULL");
    cb_module *empty = cb_nn_module_list_n(NULL, 0);
    assert_null(cb_symbolic_trace(empty));
    expect_error("has no forward");
    cb_module_free(empty);
    expect_no_error();
}

static void traces_of_every_form(void **state) {
    (void)state;
    int zero = 0, two = 2;
    cb_graph *cats = cb_symbolic_trace_function(frees_cats, NULL, 1, NULL);
    assert_int_equal(cb_graph_node_count(cats), 7);
    assert_int_equal(cb_graph_dead_code(cats), 1);
    cb_graph_free(cats);
    cb_graph *graph = cb_symbolic_trace_function(returns, &zero, 2, "a, b");
    expect_text(cb_graph_text(graph), "graph():\n"
                                      "    %a : [num_users=0] = placeholder[target=a]\n"
                                      "    %b : [num_users=0] = placeholder[target=b]\n"
                                      "    return None");
    cb_graph_free(graph);
    graph = cb_symbolic_trace_function(returns, &two, 5, "a");
    expect_text(cb_graph_text(graph), "graph():\n"
                                      "    %a : [num_users=1] = placeholder[target=a]\n"
                                      "    %input_1 : [num_users=1] = placeholder[target=input_1]\n"
                                      "    %input_2 : [num_users=0] = placeholder[target=input_2]\n"
                                      "    %input_3 : [num_users=0] = placeholder[target=input_3]\n"
                                      "    %input_4 : [num_users=0] = placeholder[target=input_4]\n"
                                      "    return (a, input_1)");
    cb_graph_free(graph);
    cb_tensor *example[] = {cb_ones(cb_dims(2, 3))};
    graph = cb_symbolic_trace_function_with(assigns_numbers, NULL, "x", example, 1);
    expect_no_error();
    assert_true(cb_item(cb_sum(example[0])) == 6); /* the example stays as it was */
    cb_tensor *result;
    assert_int_equal(cb_graph_run(graph, example, 1, &result, 1), 1);
    assert_true(cb_item(cb_sum(result)) == 12);
    cb_graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(graphs_run_or_say_why),       ONE(nothing_is_answered_with_nothing),
        ONE(accessors_know_their_ends),   ONE(wrong_edits_change_nothing),
        ONE(edits_reach_every_argument),  ONE(dicts_run_and_have_no_c),
        ONE(names_of_c_functions),        ONE(patterns_match_what_they_say),
        ONE(patterns_that_make_no_sense), ONE(traces_that_fail),
        ONE(traces_of_every_form),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
