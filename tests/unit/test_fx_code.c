/* FX: every op of the table there and back, generated C code. */
#include "fx_support.h"

#include <libgen.h>
#include <unistd.h>

/* ---- every op of the table ------------------------------------------------------------------ */

/* Attributes that are not the defaults, but plausible. */
static Attrs unusual_attrs(const OpInfo *info, Op op) {
    Attrs attrs = attrs_default(op);
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        if (param->type == PARAM_INT) attrs.word[param->word] = 3 + i;
        if (param->type == PARAM_BOOL) attrs.word[param->word] = !param->default_int;
        if (param->type == PARAM_DTYPE) attrs.word[param->word] = CB_F16;
        if (param->type == PARAM_REDUCTION) attrs.word[param->word] = CB_REDUCE_SUM;
        if (param->type == PARAM_FLOAT) attr_set_float(&attrs, param->word, 0.1 + i);
        if (param->type == PARAM_NUMBER)
            attr_set_number(&attrs, param->word,
                            i % 2 ? cb_operand_int(3 + i) : cb_operand_float(0.1 + i));
        if (param->type == PARAM_FLOATS) attr_set_floats(&attrs, param->word, cb_floats(1.5, 2));
        if (param->type == PARAM_DIMS) attr_set_dims(&attrs, param->word, cb_dims(2, 1));
    }
    if (op == OP_interpolate) { /* one mode at a time */
        attrs.word[ATTR_interpolate_exact] = 0;
        attrs.word[ATTR_interpolate_cubic] = attrs.word[ATTR_interpolate_area] = 0;
    }
    return attrs;
}

/* The defaults, and a number where one is needed. */
static Attrs usual_attrs(const OpInfo *info, Op op) {
    Attrs attrs = attrs_default(op);
    for (int i = 0; i < info->param_count; i++)
        if (info->param[i].type == PARAM_NUMBER && !info->param[i].has_default)
            attr_set_number(&attrs, info->param[i].word, cb_operand_bool(true));
    return attrs;
}

static void expect_same_call(const FxNode *node, Op op, const Attrs *attrs, int arity) {
    FxCall call;
    if (!fx_bind(node, &call)) print_error("%s: %s\n", op_info(op)->name, cb_error());
    expect_no_error();
    if (call.op != op)
        print_error("%s came back as %s\n", op_info(op)->name, op_info(call.op)->name);
    assert_int_equal(call.op, op);
    if (call.indexing) {
        assert_int_equal(call.step_count, 1);
        assert_int_equal(call.step[0].dim, attrs->word[ATTR_slice_dim]);
        assert_int_equal(call.step[0].start, attrs->word[ATTR_slice_start]);
        assert_int_equal(call.step[0].end, attrs->word[ATTR_slice_end]);
        assert_int_equal(call.step[0].step, attrs->word[ATTR_slice_step]);
        return;
    }
    if (memcmp(&call.attrs, attrs, sizeof(int64_t) * op_info(op)->word_count) != 0)
        print_error("%s: other attributes came back\n", op_info(op)->name);
    assert_memory_equal(&call.attrs, attrs, sizeof(int64_t) * op_info(op)->word_count);
    assert_int_equal(call.list ? call.list->count : call.operand_count, arity);
}

static void every_op_comes_back(void **state) {
    (void)state;
    for (Op op = OP_constant + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (info->flags & LOWERED) continue;
        cb_graph *graph = cb_graph_new(NULL);
        cb_arg operand[OP_MAX_PARAMS];
        for (int i = 0; i < info->arity; i++)
            operand[i] = cb_arg_node(cb_graph_placeholder(graph, "x"));
        for (int unusual = 0; unusual < 2; unusual++) {
            Attrs attrs = unusual ? unusual_attrs(info, op) : usual_attrs(info, op);
            FxNode *node = fx_record(graph, op, operand, info->arity, &attrs);
            if (!unusual && op == OP_slice) continue; /* all of x: no step at all */
            expect_same_call(node, op, &attrs, info->arity);
        }
        char *text = cb_graph_text(graph);
        cb_graph *back = parse(text);
        expect_text(cb_graph_text(back), text);
        FxNode *node = back->last;
        Attrs attrs = unusual_attrs(info, op);
        expect_same_call(node, op, &attrs, info->arity);
        cb_free_text(text);
        cb_graph_free(back);
        cb_graph_free(graph);
    }
}

/* ---- generated code ------------------------------------------------------------------------- */

static void code_of_the_design_page(void **state) {
    (void)state;
    cb_module *block = block_new();
    cb_graph *graph = cb_symbolic_trace(block);
    expect_text(
        cb_graph_code(graph, "block"),
        "#include <carbide.h>\n\n"
        "int block(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user);\n"
        "int block(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user) {\n"
        "    cb_module *self = (cb_module *)user;\n"
        "    if (input_count != 1) return CB_ERR_ARGUMENT;\n"
        "    cb_tensor *x = inputs[0];\n"
        "    cb_tensor *linear = cb_module_forward(cb_module_child(self, \"linear\"), (cb_tensor "
        "*[]){x}, 1);\n"
        "    cb_tensor *add = cb_add(linear, x);\n"
        "    cb_free(linear);\n"
        "    cb_tensor *relu = cb_relu(add);\n"
        "    cb_free(add);\n"
        "    outputs[0] = relu;\n"
        "    return cb_error() ? (int)cb_error_status() : 1;\n"
        "}\n");
    assert_null(cb_graph_code(graph, "a block"));
    expect_error("no name of a C function");
    cb_graph_free(graph);
    cb_module_free(block);
}

/* What is awkward in C: a variable named int, constants, in-place ops, lists, infinities. */
static int awkward(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    cb_tensor *parts[] = {in[0], in[1], cb_slice(in[1], 1, 1, 3)};
    cb_tensor *all = cb_cat(parts, 3, 1);
    cb_tensor *big = cb_where(cb_gt(all, 0.5), all, -__builtin_inf());
    cb_assign(in[1], cb_mul(in[1], (cb_tensor *)user));
    out[0] = cb_amax(big, 1, true);
    out[1] = cb_layer_norm(in[1], cb_dims(4), NULL, NULL, 1e-3);
    out[2] = cb_select(cb_to(cb_add(cb_square(in[0]), true), CB_F64), 0, -1);
    return 3;
}

static cb_tensor *awkward_input(int k) {
    cb_tensor *x = cb_to(cb_arange(0, 8), CB_F32);
    return cb_reshape(cb_sin(cb_mul(x, k + 1)), cb_dims(2, 4));
}

static const char *const main_text = "\nint main(void) {\n"
                                     "    cb_tensor *in[2], *out[3];\n"
                                     "    for (int k = 0; k < 2; k++)\n"
                                     "        in[k] = cb_reshape(cb_sin(cb_mul(cb_to(cb_arange(0, "
                                     "8), CB_F32), k + 1)), cb_dims(2, 4));\n"
                                     "    int count = traced(in, 2, out, NULL);\n"
                                     "    if (count != 3) return puts(cb_error()), 1;\n"
                                     "    for (int i = 0; i < 3; i++) cb_print(out[i]);\n"
                                     "    cb_print(in[1]);\n"
                                     "    return 0;\n"
                                     "}\n";

/* Compiles text against the library that this test is linked with. */
static bool compile_text(const char *text, const char *program) {
    char exe[4096], source[4200], command[16384];
    ssize_t size = readlink("/proc/self/exe", exe, sizeof exe - 1);
    assert_true(size > 0);
    exe[size] = 0;
    const char *build = dirname(dirname(exe));
    snprintf(source, sizeof source, "%s.c", program);
    FILE *file = fopen(source, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    snprintf(command, sizeof command,
             "cc -std=gnu11 -Wall -Wextra -Werror -Iinclude -I%s/gen %s %s/libcarbide.a -lm -ldl "
             "-fopenmp -lpthread " CARBIDE_TEST_LINK " -o %s",
             build, source, build, program);
    int status = system(command);
    unlink(source);
    return status == 0;
}

static void generated_code_compiles_and_agrees(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("the library needs the sanitizer's runtime, which plain cc does not link");
#endif
    const float factor[] = {1, -2, 0.1f, 3};
    cb_tensor *table = cb_from_data(factor, CB_F32, cb_dims(4));
    cb_graph *graph = cb_symbolic_trace_function(awkward, table, 2, "int, outputs");
    expect_no_error();
    char *code = cb_graph_code(graph, "traced");
    expect_no_error();
    char text[16384], program[] = "/tmp/carbide-fx-XXXXXX";
    snprintf(text, sizeof text, "%s%s", code, main_text);
    cb_free_text(code);
    int handle = mkstemp(program);
    assert_true(handle >= 0);
    close(handle);
    assert_true(compile_text(text, program));
    char got[8192] = "", expected[8192] = "";
    FILE *pipe = popen(program, "r");
    assert_non_null(pipe);
    got[fread(got, 1, sizeof got - 1, pipe)] = 0;
    assert_int_equal(pclose(pipe), 0);
    unlink(program);
    cb_tensor *in[] = {awkward_input(0), awkward_input(1)}, *out[3];
    assert_int_equal(cb_graph_run(graph, in, 2, out, 3), 3);
    cb_tensor *shown[] = {out[0], out[1], out[2], in[1]};
    for (int i = 0; i < 4; i++) {
        char one[2048];
        cb_format(shown[i], one, sizeof one);
        strcat(strcat(expected, one), "\n");
    }
    assert_string_equal(got, expected);
    cb_graph_free(graph);
}

#define IN "graph():\n    %x : [num_users=1] = placeholder[target=x]\n"
#define CALL(name, target, args, kwargs)                                                           \
    "    %" name " : [num_users=1] = " target "](args = (" args "), kwargs = {" kwargs "})\n"
#define FULL(value) IN CALL("a", "call_function[target=torch.full", "(2,), " value, "") "return a"
#define EXP(name) CALL(name, "call_method[target=exp", "%x", "")

static const struct {
    const char *text, *words, *error; /* one of them */
} codes[] = {
    {FULL("inf"), "cb_full(cb_dims(2), __builtin_inf())", NULL},
    {FULL("-inf"), "cb_full(cb_dims(2), -__builtin_inf())", NULL},
    {FULL("nan"), "cb_full(cb_dims(2), __builtin_nan(\"\"))", NULL},
    {FULL("-7"), "cb_full(cb_dims(2), -7)", NULL},
    {FULL("3000000000"), "cb_full(cb_dims(2), 3000000000LL)", NULL},
    {FULL("-3000000000"), "cb_full(cb_dims(2), -3000000000LL)", NULL},
    {FULL("-9223372036854775808"), "cb_full(cb_dims(2), INT64_MIN)", NULL},
    {FULL("True"), "cb_full(cb_dims(2), cb_operand_bool(true))", NULL},
    {FULL("False"), "cb_full(cb_dims(2), cb_operand_bool(false))", NULL},
    {IN CALL("a", "call_method[target=clamp", "%x", "max: 1") "return a", "cb_clamp(x, NULL, 1)",
     NULL},
    {IN CALL("a", "call_method[target=sum", "%x", "keepdim: True") "return a",
     "cb_sum(x, CB_ALL, true)", NULL},
    {IN CALL("a", "call_function[target=torch.nn.functional.mse_loss", "%x, %x",
             "reduction: sum") "return a",
     "cb_mse_loss(x, x, CB_REDUCE_SUM)", NULL},
    {IN CALL("a", "call_function[target=torch.nn.functional.mse_loss", "%x, %x",
             "reduction: 7") "return a",
     "cb_mse_loss(x, x, 7)", NULL},
    {IN CALL("a", "call_method[target=sum", "%x, ()", "") "return a", "cb_sum(x, CB_NO_DIMS)",
     NULL},
    {IN CALL("a", "call_function[target=operator.getitem", "%x, slice(1, 3, None)", "") "return a",
     "cb_slice(x, 0, 1, 3, 1)", NULL},
    {IN CALL("a", "call_function[target=operator.getitem", "%x, (None, 0, slice(None, None, 2))",
             "") "return a",
     "cb_slice(cb_select(cb_unsqueeze(x, 0), 1, 0), 1, 0, INT64_MAX, 2)", NULL},
    {IN CALL("a", "call_module[target=layer", "%x, %x", "") "return a",
     "cb_module_forward(cb_module_child(self, \"layer\"), (cb_tensor *[]){x, x}, 2)", NULL},
    {IN "%w : [num_users=1] = get_attr[target=a\"b\\c]\nreturn w",
     "cb_tensor *w = cb_module_get(self, \"a\\\"b\\\\c\");", NULL},
    {IN "%w : [num_users=0] = get_attr[target=layer.weight]\nreturn x",
     "user) {\n    (void)user;\n    if (input_count != 1) return CB_ERR_ARGUMENT;\n"
     "    cb_tensor *x = inputs[0];\n    outputs[0] = x;",
     NULL},
    {IN EXP("a") "return x", "    cb_free(cb_exp(x));\n", NULL},
    {IN CALL("a", "call_module[target=layer", "%x", "") "return x",
     "\n    cb_module_forward(cb_module_child(self, \"layer\"), (cb_tensor *[]){x}, 1);", NULL},
    {IN EXP("a") "return [x, a]", "    outputs[1] = a;\n    return cb_error()", NULL},
    {IN "return None", "    return cb_error() ? (int)cb_error_status() : 0;\n}\n", NULL},
    {IN "return ()", "    return cb_error() ? (int)cb_error_status() : 0;\n}\n", NULL},
    {IN EXP("a"),
     "    (void)outputs;\n    if (input_count != 1) return CB_ERR_ARGUMENT;\n"
     "    cb_tensor *x = inputs[0];\n    cb_free(cb_exp(x));\n    return 0;\n}\n",
     NULL},
    {IN EXP("int") EXP("v_int") EXP("cb_exp") EXP("f")
         EXP("data_tensor_constant0") "return (int, v_int, cb_exp, f, data_tensor_constant0)",
     "    cb_tensor *v_v_int = cb_exp(x);\n"
     "    cb_tensor *v_int = cb_exp(x);\n"
     "    cb_tensor *v_cb_exp = cb_exp(x);\n"
     "    cb_tensor *v_f = cb_exp(x);\n"
     "    cb_tensor *v_data_tensor_constant0 = cb_exp(x);\n",
     NULL},
    {IN "return 1", NULL, "node %output (output output): returns something else than tensors"},
    {IN CALL("a", "call_function[target=torch.matmul", "2, %x", "") "return a", NULL,
     "node %a (call_function torch.matmul): cb_matmul takes a tensor where this node has a number"},
    {IN CALL("a", "call_module[target=layer", "%x", "b: %x") "return a", NULL,
     "node %a (call_module layer): modules take positional tensors"},
    {IN CALL("a", "call_module[target=layer", "", "") "return a", NULL,
     "node %a (call_module layer): modules take positional tensors"},
};

static void code_of_every_form(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        cb_graph *graph = parse(codes[i].text);
        char *code = cb_graph_code(graph, "f");
        if (codes[i].error) {
            assert_null(code);
            expect_error(codes[i].error);
        } else {
            expect_no_error();
            if (!strstr(code, codes[i].words))
                print_error("no '%s' in:\n%s\n", codes[i].words, code);
            assert_non_null(strstr(code, codes[i].words));
        }
        cb_free_text(code);
        cb_graph_free(graph);
    }
}

static int negates(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)in, (void)count;
    out[0] = cb_neg((cb_tensor *)user);
    return 1;
}

/* An output node by hand, without a value. */
static void code_without_a_result(void **state) {
    (void)state;
    cb_graph *graph = cb_graph_new(NULL);
    cb_node *x = cb_graph_placeholder(graph, "x");
    assert_non_null(cb_graph_insert_after(graph, x, CB_OUTPUT, "output", NULL, 0));
    char *code = cb_graph_code(graph, "f");
    assert_non_null(strstr(code, "(void)outputs;\n"));
    assert_non_null(strstr(code, "cb_error_status() : 0;\n}\n"));
    cb_free_text(code);
    expect_text(cb_graph_text(graph), "graph():\n"
                                      "    %x : [num_users=0] = placeholder[target=x]\n"
                                      "    return None");
    expect_text(cb_graph_readable(graph, 0), "class GraphModule(torch.nn.Module):\n"
                                             "    def forward(self, x):\n"
                                             "        return None\n");
    cb_tensor *in = cb_ones(cb_dims(2)), *out;
    assert_int_equal(cb_graph_run(graph, &in, 1, &out, 1), 0);
    expect_no_error();
    cb_graph_free(graph);
}

static void constants_are_written_out(void **state) {
    (void)state;
    static const double number[] = {-1, 0.5, 2, 3, 4, 5, 6, 7, __builtin_inf(), -__builtin_nan("")};
    static const struct {
        cb_dtype dtype;
        int count;
        const char *words;
    } cases[] = {
        {CB_F64, 2, "static const double data_tensor_constant0[] = {-0x1p+0, 0x1p-1};"},
        {CB_F32, 10, "0x1.cp+2,\n    __builtin_inf(), __builtin_nan(\"\")};"},
        {CB_F16, 2, "static const uint16_t data_tensor_constant0[] = {0xbc00, 0x3800};"},
        {CB_BF16, 2, "static const uint16_t data_tensor_constant0[] = {0xbf80, 0x3f00};"},
        {CB_I8, 3, "static const int8_t data_tensor_constant0[] = {-1, 0, 2};"},
        {CB_I64, 3, "static const int64_t data_tensor_constant0[] = {-1, 0, 2};"},
        {CB_BOOL, 3, "static const bool data_tensor_constant0[] = {1, 1, 1};"},
        {CB_F32, 0, "static const float data_tensor_constant0[] = {0};"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cb_tensor *table = cb_from_data(number, CB_F64, cb_dims(cases[i].count));
        table = cb_to(table, cases[i].dtype);
        cb_graph *graph = cb_symbolic_trace_function(negates, table, 0, NULL);
        expect_no_error();
        char *code = cb_graph_code(graph, "f");
        expect_no_error();
        if (!strstr(code, cases[i].words)) print_error("no '%s' in:\n%s\n", cases[i].words, code);
        assert_non_null(strstr(code, cases[i].words));
        cb_free_text(code);
        cb_graph_free(graph);
    }
}

static void code_refuses_what_c_cannot_say(void **state) {
    (void)state;
    cb_tensor *large = cb_zeros(cb_dims(5000));
    cb_graph *graph = cb_symbolic_trace_function(with_outside, large, 2, NULL);
    assert_null(cb_graph_code(graph, "f"));
    expect_error(
        "node %_tensor_constant0 (get_attr _tensor_constant0): a constant of 5000 elements");
    cb_graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(every_op_comes_back),
        ONE(code_of_the_design_page),
        ONE(generated_code_compiles_and_agrees),
        ONE(code_of_every_form),
        ONE(code_without_a_result),
        ONE(constants_are_written_out),
        ONE(code_refuses_what_c_cannot_say),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
