/* What cb_explain says, line by line, of functions that have everything it can speak of. */
#include "capture_support.h"
#include "fixture.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect_line(const char *text, const char *words) {
    if (!strstr(text, words)) fprintf(stderr, "no '%s' in\n%s\n", words, text);
    assert_non_null(strstr(text, words));
}

/* ---- operands and attributes of captured ops ------------------------------------------------- */

static int all_kinds(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_float_list scale = {2, {2.0, 1.5}};
    out[0] = cb_where(cb_gt(x[0], 0.5), x[0], cb_operand_bool(true));
    out[1] = cb_add(cb_to(cb_to(x[0], CB_SAME), CB_I64), 7);
    out[2] = cb_interpolate(cb_reshape(x[0], cb_dims(1, 1, 2, 3)), CB_NO_DIMS, scale, true);
    out[3] = cb_sum(x[0]);
    out[4] = cb_clamp(x[0], 0.0, 1.0);
    out[5] = cb_linear(x[0], x[0], NULL);
    out[6] = cb_arange(0, 5);
    cb_site(NULL, 0);
    out[7] = (cb_neg)(cb_operand_tensor(x[0]));
    return 8;
}

static void captured_ops(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(all_kinds, NULL, VM);
    cb_tensor *x = ramp(2, 3), *out[8];
    assert_int_equal(cb_call_n(fast, &x, 1, out, 8), 8);
    char *text = cb_explain(fast);
    expect_line(text, ", %0, true)");
    expect_line(text, ", 7)");
    expect_line(text, "scale_factor=[2.0, 1.5]");
    expect_line(text, "linear=true");
    expect_line(text, "align_corners=false");
    expect_line(text, "dtype=i64");
    expect_line(text, "dtype=same");
    expect_line(text, "linear(%0, %0, none)");
    expect_line(text, "arange(start=0, end=5, step=1, dtype=i64)");
    expect_line(text, "neg(%0)\n");
    cb_free_text(text);
    cb_function_free(fast);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int every_step(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *picture = in[0], *weight = in[1], *rows = in[2], *index = in[3];
    out[0] = cb_relu(cb_conv2d(picture, weight, NULL, 2, 1, 1, 2));
    cb_tensor *square = cb_matmul(rows, cb_t(rows));
    out[1] = cb_argsort(square, 1);
    out[2] = cb_index_select(square, 0, index);
    out[3] = cb_sum(cb_exp(in[4]));
    return 4;
}

static void steps(void **state) {
    (void)state;
    const int64_t places[] = {1, 3};
    cb_tensor *in[] = {cb_ones(cb_dims(1, 4, 8, 8)), cb_ones(cb_dims(6, 2, 3, 3)),
                       cb_ones(cb_dims(128, 64)), cb_from_data(places, CB_I64, cb_dims(2)),
                       cb_ones(cb_dims(1 << 20))};
    cb_tensor *out[4];
    cb_set_threads(4);
    for (int profile = 0; profile < 2; profile++) {
        cb_set_option("profile", profile ? "1" : "0");
        cb_function *fast = cb_compile_n(every_step, NULL, VM);
        for (int i = 0; i < 2; i++) assert_int_equal(cb_call_n(fast, in, 5, out, 4), 4);
        char *text = cb_explain(fast);
        expect_line(text, "    convolution f32: 1 x 4 channels into 6, kernel 3 x 3, 2 groups");
        expect_line(text, "    matmul f32: 1 x [128, 64] x [64, 128]");
        expect_line(text, "    argsort: 128 rows of 128");
        expect_line(text, "    check of the indices of index_select: below 128");
        expect_line(text, "points, 64 chunks, 4194.3 KB");
        assert_int_equal(strstr(text, "shortest times, in all: ") != NULL, profile);
        assert_int_equal(strstr(text, " GFLOP/s") != NULL, profile);
        cb_free_text(text);
        cb_function_free(fast);
    }
    cb_set_option("profile", "0");
    cb_set_threads(0);
}

static cb_tensor *writes(cb_tensor *x) { /* what is read lies elsewhere in x */
    return cb_assign(cb_slice(x, 0, 1, 64), cb_exp(cb_slice(x, 0, 0, 63)));
}

static cb_tensor *scales(cb_tensor *x, cb_tensor *y) {
    cb_mul_(x, 2.0);
    return cb_sum(y);
}

/* What a call takes behind its steps, in the text, and as a row. */
static void copies(void **state) {
    (void)state;
    cb_set_option("profile", "1");
    cb_function *fast = cb_compile(writes, VM);
    cb_tensor *x = cb_ones(cb_dims(64, 64));
    for (int i = 0; i < 2; i++) cb_call(fast, x);
    char *text = cb_explain(fast), *summary = cb_explain_summary(fast);
    char *copy = strstr(text, "    copy into 1 input, behind all steps: 32.3 KB\n      0");
    if (!copy || !strstr(copy, "%), ")) FAIL("no copy in\n%s", text);
    if (!strstr(summary, "32.3 KB copy into 1 input, behind all steps")) FAIL("%s", summary);
    cb_free_text(text);
    cb_free_text(summary);
    cb_function_free(fast);
    fast = cb_compile(scales, VM);
    cb_call(fast, x, cb_ones(cb_dims(64)));
    text = cb_explain(fast);
    if (strstr(text, "copy into")) FAIL("%s", text);
    cb_free_text(text);
    cb_function_free(fast);
    cb_set_option("profile", "0");
}

/* ---- the compiler ---------------------------------------------------------------------------- */

/* A compiler that fails is quoted; one that is not there is told of once. */
static cb_tensor *product(cb_tensor *x) { return cb_matmul(x, x); }

/* Nothing was generated, and nothing runs on the VM. */
static void no_kernels(void **state) {
    (void)state;
    cb_function *fast = cb_compile(product, "backend=c");
    assert_non_null(cb_call(fast, ramp(3, 3)));
    char *text = cb_explain(fast);
    expect_line(text, "engine: none, there are no kernels\n");
    cb_free_text(text);
    cb_function_free(fast);
}

static cb_tensor *asks(cb_tensor *x) { return cb_mul(x, cb_item(cb_sum(x)) > 0 ? 2.0 : 3.0); }

/* Both texts say what helps, the short one in lines of the screen. */
static void hints(void **state) {
    (void)state;
    cb_function *fast = cb_compile(asks, VM);
    assert_non_null(cb_call(fast, ramp(2, 3)));
    char *text = cb_explain(fast), *summary = cb_explain_summary(fast);
    expect_line(
        text, "    hint: return the tensor and read it after the call, or keep the choice on the");
    expect_line(summary,
                "    hint: return the tensor and read it after the call, or keep the choice on\n");
    cb_free_text(text);
    cb_free_text(summary);
    cb_function_free(fast);
}

static void compilers(void **state) {
    (void)state;
    char path[64], before[256];
    cb_tensor *x = ramp(2, 3);
    snprintf(before, sizeof before, "%s", cb_get_option("cc"));
    snprintf(path, sizeof path, "/tmp/carbide-explain-cc-%d", (int)getpid());
    FILE *script = fopen(path, "w");
    assert_non_null(script);
    fprintf(script, "#!/bin/sh\necho first complaint >&2\necho second complaint >&2\nexit 1\n");
    fclose(script);
    chmod(path, 0755);
    cb_set_option("cache", "0");
    for (int i = 0; i < 3; i++) {
        cb_set_option("cc", i ? "/nonexistent/cc" : path);
        cb_function *fast = cb_compile(gelu, "backend=c");
        expect_equal(cb_call(fast, x), gelu(x));
        char *text = cb_explain(fast);
        expect_line(text, "engine: vector VM");
        if (i == 0) {
            expect_line(text,
                        "fallback: the C compiler failed: fused kernels run on the vector VM");
            expect_line(text, "\n    first complaint\n    second complaint\n");
        } else {
            expect_line(text, "fallback: no C compiler was found");
            expect_line(text, "(cc is '/nonexistent/cc', no program)");
        }
        cb_free_text(text);
        cb_function_free(fast);
    }
    cb_set_option("cc", before);
    cb_set_option("cache", "1");
    unlink(path);
}

/* ---- several graphs ------------------------------------------------------------------------- */

static cb_tensor *asks_twice(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, x);
    if (cb_item(cb_sum(y)) < 0) return y;
    cb_tensor *z = cb_exp(y);
    if (cb_item(cb_sum(z)) < 0) return z;
    return cb_tanh(z);
}

static void expect_in_order(const char *text, const char *const *words, int count) {
    const char *at = text;
    for (int i = 0; i < count; i++) {
        at = strstr(at, words[i]);
        if (!at) fail_msg("%s is not behind the others in\n%s", words[i], text);
    }
}

/* As they were recorded, although the last one is compiled first; and none is one more way from
 * where another one begins. */
static void graphs_stand_in_order(void **state) {
    (void)state;
    static const char *const words[] = {"\nentry 0 ", "input 0: ",  "= mul(%0", "\nentry 1 ",
                                        "= exp(%0",   "\nentry 2 ", "= tanh(%0"};
    cb_function *fast = cb_compile(asks_twice, VM);
    cb_call(fast, ramp(2, 3));
    char *text = cb_explain(fast);
    expect_in_order(text, words, 7);
    assert_null(strstr(text, "recorded again:"));
    assert_int_equal(cb_stats(fast).recompiles, 0);
    cb_free_text(text);
    cb_function_free(fast);
}

static int64_t rounds;
static bool varies, fails;

static cb_tensor *halves(cb_tensor *x) {
    cb_tensor *y = cb_exp(x);
    cb_item(cb_sum(y));
    for (int i = 0; i < rounds; i++) {
        y = cb_mul(y, varies ? 0.5 + i : 0.5);
        if (i == rounds - 1) return y;
        if (i == 1 && fails) return cb_add(y, cb_ones(cb_dims(7)));
        y = cb_sin(y);
        cb_item(cb_sum(y));
    }
    return y;
}

/* Rounds that are like another one, or that another one takes the place of, are no entries, nor are
 * those of a call that fails. What a reason calls an entry is that one, whenever it joined the
 * others. */
static void reasons_name_their_entry(void **state) {
    (void)state;
    static const char *const words[] = {"(after 1 op, entry 1 has 3)",
                                        "\nentry 0 ",
                                        "= exp(%0",
                                        "\nentry 1 ",
                                        "= mul(%0",
                                        "\nentry 2 ",
                                        "recorded again: after 1 op, entry 1 has 3",
                                        "return %1"};
    for (int way = 0; way < 6; way++) {
        varies = way > 2;
        rounds = 7 - way % 3;
        cb_function *fast = cb_compile(halves, VM);
        fails = true;
        REFUSED(cb_call(fast, ramp(2, 3)), "add: ");
        fails = false;
        cb_call(fast, ramp(2, 3));
        if (way % 3 == 2) cb_reset(), cb_call(fast, ramp(2, 3));
        char *text = cb_explain(fast);
        expect_in_order(text, words, 8);
        assert_null(strstr(text, "\nentry 3 "));
        cb_free_text(text);
        cb_function_free(fast);
    }
}

static cb_tensor *positive(cb_tensor *x) { return cb_exp(cb_masked_select(x, cb_gt(x, 0.0))); }

static void sizes_behind_a_value(void **state) {
    (void)state;
    cb_function *fast = cb_compile(positive, VM);
    for (int i = 0; i < 5; i++) cb_call(fast, cb_sub(cb_to(cb_arange(0, 8), CB_F32), 3.0 + i % 3));
    char *text = cb_explain(fast), *summary = cb_explain_summary(fast);
    expect_line(text, "2 recorded again");
    expect_line(text,
                "  recorded again: behind a value, it goes on over other sizes, or with other "
                "attributes (after 0 ops: positions with count=");
    expect_line(text, ", 2 times\n");
    expect_line(text, ")\n  recorded again: after 0 ops: positions with count=");
    expect_line(summary, "0 inputs\n  recorded again: after 0 ops: positions with count=");
    cb_free_text(text);
    cb_free_text(summary);
    cb_function_free(fast);
}

static int shift;
static cb_tensor *rolled(cb_tensor *x) { return cb_roll(cb_exp(x), shift, 0); }

/* An integer that is no argument. */
static void attributes_that_change(void **state) {
    (void)state;
    cb_function *fast = cb_compile(rolled, VM);
    for (shift = 1; shift < 3; shift++) cb_call(fast, cb_ones(cb_dims(4), CB_F32));
    char *text = cb_explain(fast);
    expect_line(text,
                "recorded again: an attribute of an op changed that is a constant of the graph"
                " (after 1 op: roll with ");
    assert_null(strstr(text, "another path"));
    cb_free_text(text);
    cb_function_free(fast);
}

static cb_tensor *cooled(cb_tensor *x) {
    double heat = 5;
    for (int i = 0; i < 3; i++, heat *= 0.5)
        if (cb_item(cb_sum(x = cb_tanh(cb_mul(x, heat)))) > 1e9) break;
    return x;
}

/* Segments of one call that differ in a number: none was recorded again. */
static void numbers_of_one_call(void **state) {
    (void)state;
    cb_function *fast = cb_compile(cooled, VM);
    cb_call(fast, cb_ones(cb_dims(4), CB_F32));
    char *text = cb_explain(fast);
    expect_line(text, " 0 recorded again");
    expect_line(text, "  note: a number changed and became an argument of the graph (2.5, then");
    assert_null(strstr(text, "  recorded again"));
    cb_free_text(text);
    cb_function_free(fast);
}

static double most;

static cb_tensor *uses_later(cb_tensor *x) {
    cb_tensor *y = cb_exp(x);
    return cb_item(cb_sum(y)) > most ? cb_neg(x) : cb_mul(y, 2.0);
}

/* A segment that is compiled once more is told of, as is what was recorded for other inputs. */
static void reasons_are_as_many_as_graphs(void **state) {
    (void)state;
    cb_function *fast = cb_compile(uses_later, VM);
    for (int i = 0; i < 4; i++) {
        most = i ? 1e9 : 0;
        cb_call(fast, ramp(2, 3));
    }
    char *text = cb_explain(fast);
    expect_line(text, "4 graphs, 1 break, 1 recorded again");
    expect_line(text,
                "  recorded again: more of what was computed before a value is used behind it");
    cb_free_text(text);
    cb_call(fast, ramp(2, 4));
    text = cb_explain(fast);
    expect_line(text, "3 recorded again"); /* and what is behind the value */
    expect_line(text, ")\n  recorded again: input 0 is f32[2, 4], entry ");
    expect_line(text, "(after 0 ops: mul of f32[2, 4] in place of f32[2, 3] as operand 0)");
    cb_free_text(text);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(captured_ops, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(steps, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(copies, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(compilers, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(no_kernels, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(hints, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(graphs_stand_in_order, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(reasons_name_their_entry, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(sizes_behind_a_value, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(attributes_that_change, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(numbers_of_one_call, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(reasons_are_as_many_as_graphs, open_scope, close_scope),
    };
    return run_counted(tests);
}
