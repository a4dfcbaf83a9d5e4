/* Loop texts: each that makes no sense is refused by its place and what was expected there, each
 * form prints and reads back, and the verifier finds what kernels must not do. */
#include "lower/index.h"
#include <string.h>

#include "test_support.h" /* last: its fail() is cmocka's */

static Arena *arena;

static int open_arena(void **state) {
    (void)state;
    arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    cb_clear_error();
    return 0;
}

static int close_arena(void **state) {
    (void)state;
    arena_free(arena);
    return cb_error() ? -1 : 0;
}

static const char *print(const Kernel *kernel) {
    Buffer out = buffer_new(arena);
    kernel_print(kernel, &out);
    return buffer_text(&out);
}

/* ---- texts that are refused ----------------------------------------------------------------- */

#define HEAD "kernel k(outer a0:4, inner a1:3) tile split 1 {\n b0: in f32[12]\n b1: out f32[4]\n"

static const struct {
    const char *text, *error;
} refused[] = {
    {"", "line 1: expected kernel at ''"},
    {"kernels k() tile split 1 {\n}", "expected kernel"},
    {"kernel_k() tile split 1 {\n}", "expected kernel"},
    {"kernel (", "expected a name"},
    {"kernel k", "expected ("},
    {"kernel k(", "expected outer"},
    {"kernel k(around a0:4) tile split 1 {\n}", "expected outer at 'around"},
    {"kernel k(outer b0:4) tile split 1 {\n}", "expected a at"},
    {"kernel k(outer a:4) tile split 1 {\n}", "expected a number"},
    {"kernel k(outer a0 4) tile split 1 {\n}", "expected :"},
    {"kernel k(inner a0:4, outer a1:4) tile split 1 {\n}", "expected an inner axis"},
    {"kernel k(outer a0:-4) tile split 1 {\n}", "expected a size"},
    {"kernel k(outer a0:1125899906842625) tile split 1 {\n}", "expected a number"},
    {"kernel k(outer a0:-1125899906842625) tile split 1 {\n}", "expected a number"},
    {"kernel k(outer a0:4) tile split {\n}", "expected a number"},
    {"kernel k(outer a0:4) tile split 1", "expected {"},
    {"kernel k(outer a0:4) tile split 1 {\n", "line 2: expected t at ''"},
    {HEAD " b2 in f32[4]\n}", "expected :"},
    {HEAD " b2: over f32[4]\n}", "expected out"},
    {HEAD " b2: in f31[4]\n}", "expected a dtype"},
    {HEAD " b2: in [4]\n}", "expected a name"},
    {HEAD " b2: in f32 4\n}", "expected ["},
    {HEAD " b2: in f32[four]\n}", "expected a number"},
    {HEAD " b2: in f32[4\n}", "expected ]"},
    {HEAD " y = f32 exp 1:f32\n}", "line 4: expected t at 'y = f32"},
    {HEAD " t0 f32 exp 1:f32\n}", "expected ="},
    {HEAD " t0 = f33 exp 1:f32\n}", "expected a dtype"},
    {HEAD " t0 = f32 expp 1:f32\n}", "expected an op"},
    {HEAD " t0 = f32\n}", "expected a name"},
    {HEAD " t0 = f32 exp\n}", "expected an operand"},
    {HEAD " t0 = f32 exp t9\n}", "expected an earlier expression"},
    {HEAD " t0 = f32 exp t0\n}", "expected an earlier expression"},
    {HEAD " t0 = f32 exp 1\n}", "expected :"},
    {HEAD " t0 = f32 exp true\n}", "expected :"},
    {HEAD " t0 = f32 exp 1:f\n}", "expected a dtype"},
    {HEAD " t0 = f32 exp 1:f32, 2:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 add 1:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 where true:bool, 1:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 sum 1:f32\n}", "another op, or other operands"},
    {HEAD " t0 = i64 log 0:i64\n}", "another op, or other operands"},
    {HEAD " t0 = f32 bitwise_and 1:f32, 2:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 reduce exp 1:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 reduce sum 1:f32, 2:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 scan exp 1:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 scan sum 1:f32, 2:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 clone 1:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 contiguous 1:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 to f32 1:f32, 2:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 matmul 1:f32, 2:f32\n}", "another op, or other operands"},
    {HEAD " t0 = f32 to 1:f32\n}", "expected a dtype"},
    {HEAD " t0 = f32 load 0[a0]\n}", "expected b"},
    {HEAD " t0 = f32 load b2[a0]\n}", "expected the number of a buffer"},
    {HEAD " t0 = f32 load b-1[a0]\n}", "expected the number of a buffer"},
    {HEAD " t0 = f32 load b0 a0\n}", "expected ["},
    {HEAD " t0 = f32 load b0[a0\n}", "expected ]"},
    {HEAD " t0 = f32 load b0[a2]\n}", "expected the number of an axis"},
    {HEAD " t0 = f32 load b0[a0] if\n}", "expected an operand"},
    {HEAD " t0 = f32 load b0[x]\n}", "expected ("},
    {HEAD " t0 = f32 load b0[t3]\n}", "expected an earlier expression"},
    {HEAD " t0 = f32 load b0[a0]\n t1 = f32 load b0[t0]\n}", "expected an expression of i64"},
    {HEAD " t0 = f32 load b0[(a0+a1]\n}", "expected )"},
    {HEAD " t0 = f32 load b0[(a0", "expected )"},
    {HEAD " t0 = f32 load b0[(", "expected ("},
    {HEAD " t0 = f32 load b0[(a0+)]\n}", "expected ("},
    {HEAD " t0 = f32 load b0[(a0-1)]\n}", "one of + * / %"},
    {HEAD " t0 = f32 load b0[(a0*a1)]\n}", "expected a constant factor or divisor"},
    {HEAD " t0 = f32 load b0[(a0/0)]\n}", "expected a positive divisor"},
    {HEAD " t0 = f32 load b0[(a0%-3)]\n}", "expected a positive divisor"},
    {HEAD " t0 = f32 load b0[99999999999999999999]\n}", "expected a number"},
    {HEAD " store 1[a0] = 1:f32\n}", "expected b"},
    {HEAD " store b2[a0] = 1:f32\n}", "expected the number of a buffer"},
    {HEAD " store b1 a0 = 1:f32\n}", "expected ["},
    {HEAD " store b1[a0 = 1:f32\n}", "expected ]"},
    {HEAD " store b1[a0] 1:f32\n}", "expected ="},
    {HEAD " store b1[a0] = x\n}", "expected an operand"},
    {HEAD " store b1[a0] = [a0\n}", "expected ]"},
    {HEAD " store b1[a0] = 1:f32 if\n}", "expected an operand"},
    {HEAD " add1 b1[a0] = 1:f32\n}", "expected t"},
};

static void expect_refused(const char *text, const char *error) {
    if (kernel_parse(arena, text)) fail_msg("taken: %s", text);
    if (!cb_error() || !strstr(cb_error(), error))
        fail_msg("'%s' lacks '%s': %s", cb_error() ? cb_error() : "", error, text);
    cb_clear_error();
}

static void texts_are_refused_by_place(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refused(refused[i].text, refused[i].error);
}

static void axes_beyond_the_bits_are_refused(void **state) {
    (void)state;
    char text[600] = "kernel k(";
    for (int i = 0; i < 31; i++) sprintf(text + strlen(text), "outer a%d:1, ", i);
    size_t fine = strlen(text);
    strcpy(text + fine, ") tile split 1 {\n}");
    assert_non_null(kernel_parse(arena, text));
    strcpy(text + fine, "outer a31:1) tile split 1 {\n}");
    expect_refused(text, "expected fewer axes");
}

/* A + stands behind the size of an axis that varies. */
static void varying_axes_print_and_read_back(void **state) {
    (void)state;
    const char *text = "kernel k(outer a0:4+, inner a1:3, inner a2:600+) row split 1 {\n}\n";
    const Kernel *kernel = kernel_parse(arena, text);
    assert_non_null(kernel);
    assert_string_equal(print(kernel), text);
    assert_int_equal(axis_typical(kernel, 0), TYPICAL);
    assert_int_equal(axis_typical(kernel, 1), 3);
    assert_int_equal(axis_typical(kernel, 2), 600);
    assert_int_equal(kernel_typical_row(kernel), 1800);
    assert_true(stride_varies(kernel, 8) && !stride_varies(kernel, 3) && !stride_varies(kernel, 0));
}

/* ---- keys ----------------------------------------------------------------------------------- */

#define KEYED(name, axes, split, buffers, first, body)                                             \
    "kernel " name "(" axes ") row split " split " {\n" buffers first body "}\n"
#define AXES "outer a0:4, inner a1:3"
#define BUFFERS "  b0: in f32[12]\n  b1: in f32[12]\n  b2: out f32[12]\n"
#define BODY                                                                                       \
    "  t2 = f32 load b0[((a0*3) + a1)]\n  t3 = f32 add t2, 1.0:f32\n"                              \
    "  store b2[((a0*3) + a1)] = t3\n"
#define PLAIN KEYED("k", AXES, "1", BUFFERS, "", BODY)

static void expect_key(const char *text, bool same) {
    uint64_t key[2], plain[2];
    const Kernel *kernel = kernel_parse(arena, text);
    if (!kernel) fail_msg("%s: %s", cb_error(), text);
    kernel_key(kernel, arena, key);
    kernel_key(kernel_parse(arena, PLAIN), arena, plain);
    if ((key[0] == plain[0]) != same || (key[1] == plain[1]) != same)
        fail_msg("%s key as\n%s\n%s", same ? "another" : "the same", PLAIN, text);
}

/* Names and dead expressions are no part of a kernel; all else is. */
static void keys_tell_kernels_apart(void **state) {
    (void)state;
    expect_key(KEYED("other", AXES, "1", BUFFERS, "", BODY), true);
    expect_key(KEYED("k", AXES, "1", BUFFERS, "  t9 = f32 load b1[a0]\n", BODY), true);
    expect_key(KEYED("k", "outer a0:5, inner a1:3", "1", BUFFERS, "", BODY), false);
    expect_key(KEYED("k", "outer a0:4+, inner a1:3", "1", BUFFERS, "", BODY), false);
    expect_key(KEYED("k", "outer a0:4, outer a1:3", "1", BUFFERS, "", BODY), false);
    expect_key(KEYED("k", AXES, "2", BUFFERS, "", BODY), false);
    static const char *const other[][2] = {{"row", "tile"},
                                           {"b0: in f32[12]", "b0: in f32[13]"},
                                           {"b0: in f32[12]", "b0: in f16[12]"},
                                           {"b2: out", "b2: inout"},
                                           {"b2: out", "b2: shared out"},
                                           {"load b0[", "load b1["},
                                           {"1.0:f32", "2.0:f32"},
                                           {"add t2", "sub t2"},
                                           {"t2, 1.0:f32", "1.0:f32, t2"},
                                           {"+ a1)] = t3", "+ a1)] = t2"},
                                           {"store b2[((a0*3) + a1)]", "store b2[a1]"},
                                           {"store", "last"},
                                           {"= t3", "= t3 if true:bool"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        const char *at = strstr(PLAIN, other[i][0]);
        assert_non_null(at);
        Buffer text = buffer_new(arena);
        put_bytes(&text, PLAIN, (size_t)(at - PLAIN));
        putf(&text, "%s%s", other[i][1], at + strlen(other[i][0]));
        expect_key(buffer_text(&text), false);
    }
}

static void deep_parentheses_are_refused(void **state) {
    (void)state;
    char text[600] = HEAD " t0 = f32 load b0[";
    memset(text + strlen(text), '(', 201);
    expect_refused(text, "expected fewer parentheses");
}

/* ---- forms ---------------------------------------------------------------------------------- */

#define LISTS                                                                                      \
    "kernel k(outer a0:4, inner a1:3) row split 1 {\n  b0: in i64[12]\n  b1: in f32[12]\n"         \
    "  b2: inout i64[4]\n  b3: out bool[4]\n"

/* Reads as this text, whatever its lines began with. */
static void expect_printed(const char *body, const char *line) {
    const char *text = arena_format(arena, LISTS "%s\n}", body);
    Kernel *kernel = kernel_parse(arena, text);
    if (!kernel) fail_msg("%s: %s", cb_error(), text);
    const char *printed = print(kernel);
    if (!strstr(printed, line)) fail_msg("no '%s' in\n%s", line, printed);
    Kernel *again = kernel_parse(arena, printed); /* without what nothing reads: other numbers */
    if (!again) fail_msg("%s:\n%s", cb_error(), printed);
    printed = print(again);
    assert_non_null(strstr(printed, line));
    assert_string_equal(print(kernel_parse(arena, printed)), printed);
}

static void every_form_prints_and_reads_back(void **state) {
    (void)state;
    expect_printed("store b2[a0] = 7:i64", "store b2[a0] = 7:i64");
    expect_printed("store b2[a0] = true:i64", "store b2[a0] = 1:i64");
    expect_printed("store b3[a0] = true:bool", "= true:bool");
    expect_printed("store b3[a0] = false:bool", "= false:bool");
    expect_printed("store b3[a0] = 3:bool", "= true:bool");
    expect_printed("store b2[a0] = [(a0+2)]", "= [(a0 + 2)]");
    expect_printed("t0 = i64 load b0[((a0*3)+a1)] t1 = i64 reduce sum t0 add b2[a0] = t1",
                   "add b2");
    expect_printed("t0 = i64 load b0[((a0*3)+a1)] last b2[a0] = t0", "last b2");
    expect_printed("t0 = i64 load b0[a1] t1 = i64 scan sum t0 store b2[a0] = t1", "scan sum");
    expect_printed("t0 = f32 load b1[a0] t1 = bool gt t0, 0.5:f32 store b2[a0] = 1:i64 if t1",
                   "store b2[a0] = 1:i64 if t");
    expect_printed("t0 = f32 load b1[a0] t1 = bool gt t0, 0.5:f32 t2 = i64 load b0[a0] if t1"
                   " store b2[a0] = t2",
                   "load b0[a0] if t");
    expect_printed("t0 = f32 load b1[a0] t1 = bool lt t0, inf:f32 store b3[a0] = t1", "inf:f32");
    expect_printed("t0 = i64 load b0[a0] t1 = i32 to i32 t0 t2 = i64 to i64 t1 store b2[a0] = t2",
                   "i32 to i32 t");
    expect_printed("t0 = i64 load b0[a0] t1 = i64 amax t0, 3:i64 store b2[a0] = t1", "amax t");
    expect_printed("t0 = i64 load b0[((a0/2)%2)] store b2[a0] = t0", "load b0[(a0/2)]");
}

/* Values of i64 are not all positions: a product of two, a division by what is negative. */
static void integers_that_are_no_positions_print_by_name(void **state) {
    (void)state;
#define TWO "t0 = i64 load b0[a0] t1 = i64 load b0[a1] "
    expect_printed(TWO "t2 = i64 mul t0, t1 store b2[a0] = t2", "i64 mul t");
    expect_printed(TWO "t2 = i64 mul 3:i64, t1 store b2[a0] = t2", "i64 mul 3:i64, t");
    expect_printed(TWO "t2 = i64 floor_divide t0, t1 store b2[a0] = t2", "i64 floor_divide t");
    expect_printed(TWO "t2 = i64 remainder t0, t1 store b2[a0] = t2", "i64 remainder t");
    expect_printed(TWO "t2 = i64 remainder t0, -3:i64 store b2[a0] = t2", "remainder t");
    expect_printed(TWO "t2 = i64 floor_divide t0, 0:i64 store b2[a0] = t2", ", 0:i64\n");
    expect_printed(TWO "t2 = i64 add t0, 2000000000000000:i64 store b2[a0] = t2",
                   ", 2000000000000000:i64\n");
    expect_printed(TWO "t2 = i64 mul t0, -2000000000000000:i64 store b2[a0] = t2",
                   ", -2000000000000000:i64\n");
    expect_printed(TWO "t2 = i64 mul t0, 5:i64 store b2[a0] = t2", "*5)]");
}

/* Such a value within a position is a value like any other to the normal form. */
static void positions_hold_what_negative_numbers_divide(void **state) {
    (void)state;
    static const char *const number[] = {"-3", "0"}, *const op[] = {"remainder", "floor_divide"};
    for (int i = 0; i < 4; i++)
        for (const char *index = "+*/%"; *index; index++) {
            const char *body = arena_format(
                arena,
                "t0 = i64 load b0[a0] t1 = i64 %s t0, %s:i64 t2 = i64 load b0[((t1%c2)+a1)]"
                " t3 = i64 load b0[((t1+a1)%c3)] t4 = i64 add t2, t3 t5 = i64 reduce sum t4"
                " store b2[a0] = t5",
                op[i / 2], number[i % 2], *index, *index);
            expect_printed(body, arena_format(arena, ", %s:i64\n", number[i % 2]));
        }
}

static void divisors_stay_within_64_bits(void **state) {
    (void)state;
    expect_printed("t0 = i64 load b0[a0] t1 = i64 floor_divide t0, 2305843009213693952:i64"
                   " t2 = i64 load b0[(t1/8)] store b2[a0] = t2",
                   "/8)]");
    expect_printed("t0 = i64 load b0[a0] t1 = i64 floor_divide t0, 16:i64"
                   " t2 = i64 load b0[(t1/8)] store b2[a0] = t2",
                   "/128)]");
}

/* ---- what the verifier finds ---------------------------------------------------------------- */

static void expect_finding(const Kernel *kernel, const char *words) {
    Buffer why = buffer_new(arena);
    assert_non_null(kernel);
    if (kernel_verify(kernel, &why)) fail_msg("well-formed: %s", print(kernel));
    if (!strstr(buffer_text(&why), words)) fail_msg("'%s' lacks '%s'", buffer_text(&why), words);
}

static void findings_of_the_verifier(void **state) {
    (void)state;
    static const struct {
        const char *body, *words;
    } findings[] = {
        {"t0 = i64 load b0[((a0*4)+a1)] store b2[a0] = t0", "loads b0[0..14] of 12"},
        {"t0 = i64 load b0[-1] store b2[a0] = t0", "loads b0[-1..-1] of 12"},
        {"t0 = f32 load b0[a0] store b3[a0] = t0", "loads f32 from a buffer of i64"},
        {"store b0[a0] = 1:i64", "store 0 writes to b0, which is not an output"},
        {"store b2[(a0+1)] = 1:i64", "store 0 writes b2[1..4] of 4"},
        {"store b2[(a0*-1)] = 1:i64", "store 0 writes b2[-3..0] of 4"},
        {"store b2[a0] = 1:f32", "store 0 puts f32 into a buffer of i64"},
        {"t0 = bool load b3[a0] store b3[a0] = t0", "loads from b3, which is only written"},
        {"t0 = i64 add 9223372036854775806:i64, 1:i64 t1 = i64 load b0[t0] store b2[a0] = t1",
         "loads b0[9223372036854775807..9223372036854775807] of 12"},
        {"t0 = i64 add -9223372036854775807:i64, -1:i64 store b2[t0] = 1:i64",
         "store 0 writes b2[-9223372036854775808..-9223372036854775808] of 4"},
    };
    for (size_t i = 0; i < sizeof findings / sizeof *findings; i++)
        expect_finding(kernel_parse(arena, arena_format(arena, LISTS "%s\n}", findings[i].body)),
                       findings[i].words);
    expect_finding(kernel_parse(arena, "kernel k(inner a0:4) tile split 2 {\n b0: out f32[4]\n"
                                       " last b0[a0] = 1:f32\n}"),
                   "k is split, and its inner points go in order");
    expect_finding(kernel_parse(arena, "kernel k(outer a0:4) tile split 1 {\n b0: in i64[4]\n"
                                       " b1: out i64[4]\n t0 = i64 load b0[a0]\n"
                                       " t1 = i64 scan sum t0\n store b1[a0] = t1\n}"),
                   "t2 scans, and there is no inner axis");
}

/* No text makes these: the parser knows the buffers and takes only earlier names. */
static void findings_in_kernels_made_by_hand(void **state) {
    (void)state;
    static const char text[] =
        LISTS "t0 = i64 load b0[a0]\nt1 = i64 mul t0, t0\nstore b2[a0] = t1\n}";
    for (int buffer = -1; buffer < 5; buffer += 5) {
        Kernel *kernel = kernel_parse(arena, text);
        kernel->store[0].buffer = buffer;
        expect_finding(kernel, "which is not an output");
        kernel = kernel_parse(arena, text);
        Expr *load = expr_load(kernel, buffer, CB_I64, expr_axis(kernel, 0), NULL);
        kernel_store(kernel, 2, expr_axis(kernel, 0), load, NULL, STORE_SET);
        expect_finding(kernel, "which is not there");
    }
    Kernel *kernel = kernel_parse(arena, text);
    Expr *product = kernel->store[0].value;
    product->input[1] = product;
    expect_finding(kernel, "which comes later");
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_arena, close_arena)

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(texts_are_refused_by_place),
        ONE(axes_beyond_the_bits_are_refused),
        ONE(deep_parentheses_are_refused),
        ONE(varying_axes_print_and_read_back),
        ONE(keys_tell_kernels_apart),
        ONE(every_form_prints_and_reads_back),
        ONE(integers_that_are_no_positions_print_by_name),
        ONE(positions_hold_what_negative_numbers_divide),
        ONE(divisors_stay_within_64_bits),
        ONE(findings_of_the_verifier),
        ONE(findings_in_kernels_made_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
