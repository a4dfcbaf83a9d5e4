/* Generated C of rows of a few elements, with operands that have one value for each row or each
 * column: one run of lanes over all rows of a block, where everything lies one behind the other. */
#include "test_support.h"

#include "kernel_run.h"

static const char *source(Arena *arena, const char *text) {
    Buffer code = buffer_new(arena);
    c_render_kernel(kernel_parse(arena, text), NULL, &code);
    return buffer_text(&code);
}

static int occurrences(const char *text, const char *word) {
    int count = 0;
    for (; (text = strstr(text, word)); text++) count++;
    return count;
}

/* Every $ stands for the number of columns, @ for that of rows and # for that of their elements, %
 * for a third of the rows and ~ for that of its elements. */
static const char *with_columns(Arena *arena, const char *text, int rows, int columns) {
    Buffer out = buffer_new(arena);
    for (; *text; text++)
        if (*text == '$')
            putf(&out, "%d", columns);
        else if (*text == '#')
            putf(&out, "%d", columns * rows);
        else if (*text == '@')
            putf(&out, "%d", rows);
        else if (*text == '%')
            putf(&out, "%d", rows / 3);
        else if (*text == '~')
            putf(&out, "%d", columns * (rows / 3));
        else
            putf(&out, "%c", *text);
    return buffer_text(&out);
}

#define ROWS "(outer a0:@, inner a1:$) tile split 1 {"
#define AT "[((a0*$)+a1)]"

static void check_rows(const char *const *text, int count, int rows, int columns, int runs) {
    Arena *arena = arena_new();
    const char *made[16];
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < count; i++) made[i] = with_columns(arena, text[i], rows, columns);
    check_all(made, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(occurrences(source(arena, made[i]), "const int m = n *"), runs);
    arena_free(arena);
}

static void check_columns(const char *const *text, int count, int columns, int runs) {
    check_rows(text, count, 300, columns, runs);
}

static const char *const dense[] = {
    "kernel row_$" ROWS " b0: in f32[#] b1: in f32[@] b2: out f32[#] t0 = f32 load b0" AT
    " t1 = f32 load b1[a0] t2 = f32 mul t0, t1 store b2" AT " = t2 }",
    "kernel column_$" ROWS " b0: in f32[#] b1: in f32[$] b2: out f32[#] t0 = f32 load b0" AT
    " t1 = f32 load b1[a1] t2 = f32 exp t1 t3 = f32 sub t0, t2 store b2" AT " = t3 }",
    "kernel both_$" ROWS " b0: in f64[#] b1: in f64[@] b2: in f64[$] b3: in f64[1] b4: out f64[#]"
    " t0 = f64 load b0" AT " t1 = f64 load b1[a0] t2 = f64 load b2[a1] t3 = f64 load b3[0]"
    " t4 = f64 mul t0, t1 t5 = f64 mul t2, t3 t6 = f64 add t4, t5 t7 = f64 add t6, t3"
    " store b4" AT " = t7 }",
    "kernel bytes_$" ROWS " b0: in u8[#] b1: in u8[@] b2: in u8[$] b3: out u8[#]"
    " t0 = u8 load b0" AT " t1 = u8 load b1[a0] t2 = u8 load b2[a1] t3 = u8 mul t0, t1"
    " t4 = u8 add t3, t2 store b3" AT " = t4 }",
    "kernel brain_$" ROWS " b0: in bf16[#] b1: in bf16[@] b2: out bf16[#] t0 = f32 load b0" AT
    " t1 = f32 load b1[a0] t2 = f32 mul t0, t1 store b2" AT " = t2 }",
    "kernel half_$" ROWS " b0: in f16[#] b1: in f16[$] b2: out f16[#] t0 = f32 load b0" AT
    " t1 = f32 load b1[a1] t2 = f32 mul t0, t1 store b2" AT " = t2 }",
    "kernel choice_$" ROWS " b0: in i64[#] b1: in i64[@] b2: in bool[$] b3: out i64[#]"
    " b4: out bool[#] t0 = i64 load b0" AT " t1 = i64 load b1[a0] t2 = bool load b2[a1]"
    " t3 = i64 where t2, t0, t1 t4 = bool lt t0, t1 store b3" AT " = t3 store b4" AT " = t4 }",
    "kernel steps_$(outer a0:3, outer a1:%, inner a2:$) tile split 1 { b0: in f32[#]"
    " b1: in f32[@] b2: in f32[3] b3: in f32[~] b4: out f32[#] t0 = f32 load "
    "b0[(((a0*~)+(a1*$))+a2)]"
    " t1 = f32 load b1[((a0*%)+a1)] t2 = f32 load b2[a0] t3 = f32 load b3[((a0*$)+a2)]"
    " t4 = f32 mul t0, t1 t5 = f32 add t4, t2 t6 = f32 mul t5, t3"
    " store b4[(((a0*~)+(a1*$))+a2)] = t6 }",
};

static void test_rows_are_one_run(void **state) {
    (void)state;
    static const int columns[] = {5, 16, 63};
    for (int i = 0; i < 3; i++) check_columns(dense, 8, columns[i], true);
    static const int whole[] = {9, 17}; /* a thread's part ends at a whole vector of rows */
    for (int i = 0; i < 2; i++) check_rows(dense, 8, 288, whole[i], true);
    static const int few[] = {3, 8}; /* taken apart in registers */
    for (int i = 0; i < 2; i++) check_columns(dense, 8, few[i], false);
}

/* Rows of a few points are folded point by point; what each point is made into then is one run,
 * unless it needs a value that was kept of the point. Longer ones, and halves, are folded along the
 * run, too: one more for each sweep, in which kept values lie along it. */
static void test_folds(void **state) {
    (void)state;
    static const char *const folds[] = {
        "kernel below_$" ROWS " b0: in f32[#] b1: in f32[$] b2: out f32[#] b3: out f32[@]"
        " t0 = f32 load b0" AT " t1 = f32 load b1[a1] t2 = f32 mul t0, t1 t3 = f32 reduce amax t2"
        " t4 = f32 sub t0, t3 store b2" AT " = t4 t5 = f32 neg t3 store b3[a0] = t5 }",
        "kernel first_$" ROWS " b0: in i32[#] b1: out bool[#] t0 = i32 load b0" AT
        " t1 = i32 reduce amin t0 t2 = bool eq t0, t1 store b1" AT " = t2 }",
    };
    static const char *const kept[] = {
        "kernel kept_$" ROWS " b0: in f32[#] b1: out f32[#] t0 = f32 load b0" AT
        " t1 = f32 exp t0 t2 = f32 reduce sum t1 t3 = f32 div t1, t2 store b1" AT " = t3 }",
    };
    static const char *const halves[] = {
        "kernel center_$" ROWS " b0: in bf16[#] b1: out bf16[#] t0 = f32 load b0" AT
        " t1 = f32 reduce sum t0 t2 = f32 mul t1, 0.125:f32 t3 = f32 sub t0, t2"
        " store b1" AT " = t3 }",
        "kernel kept_halves_$" ROWS " b0: in f16[#] b1: out f16[#] t0 = f32 load b0" AT
        " t1 = f32 exp t0 t2 = f32 reduce sum t1 t3 = f32 div t1, t2 store b1" AT " = t3 }",
        "kernel twice_$" ROWS " b0: in f16[#] b1: out f16[#] b2: out f16[#] t0 = f32 load b0" AT
        " t1 = f32 neg t0 t2 = f32 reduce amax t1 store b1" AT
        " = t1 t3 = f32 sub t0, t2 store b2" AT " = t3 }",
    };
    static const int columns[] = {5, 9, 15};
    for (int i = 0; i < 3; i++) {
        bool folds_flat = columns[i] > 8;
        check_columns(folds, 2, columns[i], 1 + folds_flat);
        check_columns(kept, 1, columns[i], 2 * folds_flat);
        check_columns(halves, 3, columns[i], 2);
    }
    check_columns(folds, 2, 4, false);
}

/* What a row has is expanded for the first sweep that reads it, and read by the next one. */
static void test_expanded_once(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const char *text =
        "kernel once_$" ROWS " b0: in f32[#] b1: out f32[#] t0 = f32 load b0" AT
        " t1 = f32 reduce amax t0 t2 = f32 sub t0, t1 t3 = f32 mul t2, t2 t4 = f32 reduce sum t3"
        " t5 = f32 mul t2, t4 store b1" AT " = t5 }";
    check_columns(&text, 1, 9, 3);
    assert_int_equal(occurrences(source(arena, with_columns(arena, text, 300, 9)), "float u"), 2);
    arena_free(arena);
}

/* Rows that lanes would go along, of any number: shorter than what a strip has of their elements,
 * and of 64 where they are halves. */
static void test_short_rows(void **state) {
    (void)state;
    static const struct {
        const char *dtype;
        int rows, columns;
        bool flat;
    } list[] = {
        {"f32", 16, 16, true},   {"f32", 15, 16, false}, {"f32", 37, 31, true},
        {"f32", 37, 32, false},  {"f64", 37, 17, false}, {"bf16", 67, 63, true},
        {"bf16", 67, 65, false},
    };
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < (int)(sizeof list / sizeof *list); i++) {
        const char *own = list[i].dtype, *half = strstr(own, "f16") ? "f32" : own;
        const char *text = arena_format(
            arena,
            "kernel short_%s_$(outer a0:@, inner a1:$) row split 1 { b0: in %s[#] b1: out %s[@]"
            " b2: out %s[@] b3: out %s[#] t0 = %s load b0" AT " t1 = %s mul t0, t0"
            " t2 = %s reduce sum t1 t3 = %s reduce amax t0 t4 = %s sub t0, t3 store b1[a0] = t2"
            " store b2[a0] = t3 store b3" AT " = t4 }",
            own, own, own, own, own, half, half, half, half, half);
        if (list[i].flat) check_rows(&text, 1, list[i].rows, list[i].columns, 2);
        text = with_columns(arena, text, list[i].rows, list[i].columns);
        assert_int_equal(occurrences(source(arena, text), "const int m = n *"), 2 * list[i].flat);
    }
    arena_free(arena);
}

/* Results that go past the caches, 34 MB: rows that are one run do, rows that are kept point by
 * point do not. */
static void test_large_results(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const char *const run =
        "kernel large_rows(outer a0:470001, inner a1:9) tile split 1 { b0: in f64[4230009]"
        " b1: in f64[470001] b2: out f64[4230009] t0 = f64 load b0[((a0*9)+a1)]"
        " t1 = f64 load b1[a0] t2 = f64 mul t0, t1 store b2[((a0*9)+a1)] = t2 }";
    const char *const kept =
        "kernel large_kept(outer a0:846001, inner a1:5) tile split 1 { b0: in f64[4230005]"
        " b1: out f64[4230005] t0 = f64 load b0[((a0*5)+a1)] t1 = f64 fmod t0, 7:f64"
        " t2 = f64 reduce amax t1 t3 = f64 sub t1, t2 store b1[((a0*5)+a1)] = t3 }";
    check_all(&kept, 1);
    assert_non_null(strstr(source(arena, run), "stream("));
    assert_null(strstr(source(arena, kept), "stream("));
    arena_free(arena);
}

/* What is not one run: rows that lie apart or are turned, conditions on points, values that are
 * coordinates, positions that were loaded, products that begin anew in every row (of a number of
 * no column, too). */
static const char *const apart[] = {
    "kernel pitch_$" ROWS " b0: in f32[30000] b1: in f32[300] b2: out f32[#]"
    " t0 = f32 load b0[((a0*100)+a1)] t1 = f32 load b1[a0] t2 = f32 mul t0, t1"
    " store b2" AT " = t2 }",
    "kernel turned_$" ROWS " b0: in f32[#] b1: in f32[300] b2: out f32[#]"
    " t0 = f32 load b0[((a1*300)+a0)] t1 = f32 load b1[a0] t2 = f32 mul t0, t1"
    " store b2" AT " = t2 }",
    "kernel guarded_$" ROWS " b0: in f32[#] b1: in f32[300] b2: out f32[#] t0 = f32 load b1[a0]"
    " t1 = bool lt t0, 0.5:f32 t2 = f32 load b0" AT " if t1 t3 = f32 mul t2, t0"
    " store b2" AT " = t3 }",
    "kernel some_$" ROWS " b0: in f32[#] b1: in f32[300] b2: out f32[#] t0 = f32 load b1[a0]"
    " t1 = bool lt t0, 0.5:f32 t2 = f32 load b0" AT " t3 = f32 mul t2, t0"
    " store b2" AT " = t3 if t1 }",
    "kernel numbered_$" ROWS " b0: in i64[#] b1: in i64[300] b2: out i64[#] t0 = i64 load b0" AT
    " t1 = i64 load b1[a0] t2 = i64 mul t0, t1 t3 = i64 minimum t2, [a1] store b2" AT " = t3 }",
    "kernel places_$" ROWS " b0: in f32[#] b1: in f32[300] b2: out f32[#] b3: out i64[#]"
    " t0 = f32 load b0" AT " t1 = f32 load b1[a0] t2 = f32 mul t0, t1 store b2" AT " = t2"
    " store b3" AT " = [a0] }",
    "kernel picked_$" ROWS " b0: in f32[500] b1: in i64[300] b2: out f32[#]"
    " t0 = i64 load b1[a0] t1 = f32 load b0[((t0*$)+a1)] store b2" AT " = t1 }",
    "kernel powers_$" ROWS " b0: out f32[#] b1: out f32[#] t0 = f32 scan prod 1.0078125:f32"
    " store b0" AT " = 2.0:f32 store b1" AT " = t0 }",
};

static void test_what_is_not_one_run(void **state) {
    (void)state;
    check_columns(apart, 8, 6, false);
    check_columns(apart, 8, 17, false);
    check_columns(dense, 8, 65, false); /* rows that are runs themselves */
}

/* Rows whose length varies and that lie one behind the other stay in L1 a block at a time: every
 * column comes back to them. Columns of which a row is one run need no small ones. */
static void test_blocks_of_rows(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel rows(outer a0:300, inner a1:9+) tile split 1 { b0: in f32[2700] b1: out f32[300]"
        " t0 = f32 load b0[((a0*9)+a1)] t1 = f32 reduce sum t0 store b1[a0] = t1 }",
        "kernel columns(outer a0:300, inner a1:9+) tile split 1 { b0: in f32[2700] b1: out f32[300]"
        " t0 = f32 load b0[((a1*300)+a0)] t1 = f32 reduce sum t0 store b1[a0] = t1 }"};
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(strstr(source(arena, text[i]), "run < 128 ?") != NULL, i == 0);
    check_all(text, 2);
    arena_free(arena);
}

#define SOFTMAX(name, slabs, columns, rows, slab, in)                                              \
    "kernel " name "(outer a0:" slabs ", outer a1:" columns ", inner a2:" rows ") row split 1 {"   \
    " b0: in f32[" in "] b1: in f32[" columns "] b2: in f32[" rows "] b3: out f32[" in "]"         \
    " t0 = f32 load b0[(((a0*" slab ")+(a2*" columns "))+a1)] t1 = f32 load b1[a1]"                \
    " t2 = f32 load b2[a2] t3 = f32 mul t0, t1 t4 = f32 add t3, t2 t5 = f32 reduce amax t4"        \
    " t6 = f32 sub t4, t5 t7 = f32 exp t6 t8 = f32 reduce sum t7 t9 = f32 div t7, t8"              \
    " store b3[(((a0*" slab ")+(a2*" columns "))+a1)] = t9 }"

#define FOLD(name, dtype, value, fold, slabs, columns, rows, slab, in, out, split)                 \
    "kernel " name "(outer a0:" slabs ", outer a1:" columns ", inner a2:" rows                     \
    ") row split " split " { b0: in " dtype "[" in "] b1: out " dtype "[" out "]"                  \
    " t0 = " value " load b0[(((a0*" slab ")+(a2*" columns "))+a1)]"                               \
    " t1 = " value " reduce " fold " t0 store b1[((a0*" columns ")+a1)] = t1 }"

/* A slab is one run, in strips of as many rows as are whole vectors. */
static void test_slabs(void **state) {
    (void)state;
    static const char *const text[] = {
        FOLD("sums", "f32", "f32", "sum", "7", "3", "100", "300", "2100", "21", "1"),
        FOLD("long_sums", "f32", "f32", "sum", "2", "5", "2000", "10000", "20000", "10", "1"),
        FOLD("chunks", "f32", "f32", "sum", "2", "6", "1000", "6000", "12000", "12", "7"),
        FOLD("greatest", "f64", "f64", "amax", "5", "2", "50", "100", "500", "10", "1"),
        FOLD("least", "bf16", "f32", "amin", "3", "15", "70", "1050", "3150", "45", "1"),
        FOLD("halves", "f16", "f32", "sum", "3", "4", "90", "360", "1080", "12", "1"),
        FOLD("bytes", "u8", "u8", "sum", "3", "7", "64", "448", "1344", "21", "1"),
        FOLD("wide", "i64", "i64", "prod", "3", "9", "65", "585", "1755", "27", "1"),
        FOLD("vary", "f32", "f32", "sum", "7", "3", "100+", "300", "2100", "21", "1"),
        FOLD("any", "bool", "bool", "any", "4", "3", "80", "240", "960", "12", "1"),
        SOFTMAX("softmax", "3", "3", "100", "300", "900"),
        SOFTMAX("kept", "2", "8", "700", "5600", "11200"),
        "kernel place(outer a0:4, outer a1:3, inner a2:50) row split 1 { b0: in f32[600]"
        " b1: out i64[12] t0 = f32 load b0[(((a0*150)+(a2*3))+a1)] t1 = f32 reduce amax t0"
        " t2 = bool eq t0, t1 t3 = i64 where t2, [a2], 50:i64 t4 = i64 reduce amin t3"
        " store b1[((a0*3)+a1)] = t4 }",
    };
    enum { COUNT = sizeof text / sizeof *text };
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < COUNT; i++)
        if (!strstr(source(arena, text[i]), "low = (low + ")) FAIL("%s", text[i]);
    check_all(text, COUNT);
    arena_free(arena);
}

/* Few rows; gaps behind them; columns apart; other rows for each column. */
static void test_what_is_no_slab(void **state) {
    (void)state;
    static const char *const text[] = {
        FOLD("few", "f32", "f32", "sum", "9", "3", "20", "60", "540", "27", "1"),
        FOLD("gaps", "f32", "f32", "sum", "7", "3", "100", "301", "2200", "21", "1"),
        "kernel turned(outer a0:3, inner a1:100) row split 1 { b0: in f32[300] b1: out f32[3]"
        " t0 = f32 load b0[((a0*100)+a1)] t1 = f32 reduce sum t0 store b1[a0] = t1 }",
        "kernel wider(outer a0:3, inner a1:100) row split 1 { b0: in f32[400] b1: out f32[3]"
        " t0 = f32 load b0[((a1*4)+a0)] t1 = f32 reduce sum t0 store b1[a0] = t1 }",
        "kernel scattered(outer a0:3, inner a1:100) row split 1 { b0: in f32[300] b1: out f32[300]"
        " t0 = f32 load b0[((a1*3)+a0)] t1 = f32 reduce sum t0 t2 = f32 sub t0, t1"
        " store b1[((a0*100)+a1)] = t2 }",
    };
    enum { COUNT = sizeof text / sizeof *text };
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(strstr(source(arena, text[i]), "low = (low + ") != NULL, i == 1);
    check_all(text, COUNT);
    arena_free(arena);
}

/* Columns that are no whole vectors, of many rows: lanes are those of several rows. */
static void test_several_rows(void **state) {
    (void)state;
    static const int size[][2] = {{300, 17}, {257, 31}, {301, 47}, {256, 63},
                                  {300, 32}, {300, 65}, {255, 31}};
    enum { SIZES = sizeof size / sizeof *size, SEVERAL = 4 };
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const char *text[SIZES];
    for (int i = 0; i < SIZES; i++) {
        int rows = size[i][0], n = size[i][1];
        text[i] = arena_format(
            arena,
            "kernel shares_%d_%d(outer a0:2, outer a1:%d, inner a2:%d) tile split 1 { b0: in"
            " f32[%d] b1: out f32[%d] t0 = f32 load b0[(((a0*%d)+(a2*%d))+a1)] t1 = f32 exp t0"
            " t2 = f32 reduce sum t1 t3 = f32 div t1, t2 store b1[(((a0*%d)+(a2*%d))+a1)] = t3 }",
            rows, n, n, rows, 2 * rows * n, 2 * rows * n, rows * n, n, rows * n, n);
        assert_int_equal(strstr(source(arena, text[i]), "several") != NULL, i < SEVERAL);
    }
    check_all(text, SIZES);
    arena_free(arena);
}

/* The text of all lengths. */
static const char *open_source(Arena *arena, const char *text) {
    Buffer code = buffer_new(arena);
    Holes holes = {.arena = arena};
    c_render_kernel(kernel_parse(arena, text), &holes, &code);
    return buffer_text(&code);
}

/* Whether it has one for few points, with lanes across the rows. */
static bool goes_across(Arena *arena, const char *text) {
    return strstr(open_source(arena, text), " <= 23)") != NULL;
}

/* Dear rows whose length varies do; not what has one fold, keeps exponentials, is converted one by
 * one, goes on from point to point, or adds to sums. */
static void test_few_points(void **state) {
    (void)state;
    static const struct {
        const char *dtype, *made;
        bool across;
    } rows[] = {
        {"f32", "t3 = f32 sub t0, t1 store b1[((a0*40)+a1)] = t3", true},
        {"f32", "store b1[a0] = t1", false},
        {"f32",
         "t2 = f32 sub t0, t1 t3 = f32 exp t2 t4 = f32 reduce sum t3 t5 = f32 div t3, t4"
         " store b1[((a0*40)+a1)] = t5",
         false},
        {"f16", "t3 = f32 sub t0, t1 store b1[((a0*40)+a1)] = t3", false},
        {"f32",
         "t2 = f32 exp t0 t3 = f32 scan sum t2 t4 = f32 sub t3, t1 store b1[((a0*40)+a1)] = t4",
         false},
        {"f32", "t3 = f32 sub t0, t1 sum b1[a1] = t3", false},
    };
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = arena_format(
            arena,
            "kernel few(outer a0:300+, inner a1:40+) row split 1 { b0: in %s[12000] b1: out"
            " %s[12000] t0 = f32 load b0[((a0*40)+a1)] t1 = f32 reduce amax t0 %s }",
            rows[i].dtype, rows[i].dtype, rows[i].made);
        assert_int_equal(goes_across(arena, text), rows[i].across);
    }
    arena_free(arena);
}

/* Both loads of a choice by a column ask for one pattern; not a load that has another user, or
 * another condition. */
static void test_chosen_loads(void **state) {
    (void)state;
    static const struct {
        const char *other, *value;
        int patterns;
    } choice[] = {
        {"logical_not t1", "store b1[((a0*40)+a1)] = t5", 1},
        {"logical_not t1", "t6 = f32 mul t5, t4 store b1[((a0*40)+a1)] = t6", 2},
        {"logical_not t1", "t6 = f32 mul t5, t3 store b1[((a0*40)+a1)] = t6", 1},
        {"logical_not t0", "store b1[((a0*40)+a1)] = t5", 2},
    };
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (size_t i = 0; i < sizeof choice / sizeof *choice; i++) {
        const char *text = open_source(
            arena, arena_format(arena,
                                "kernel rolled(outer a0:300+, outer a1:40+) tile split 1 { b0: in"
                                " f32[12000] b1: out f32[12000] t0 = bool lt [a1], 2:i64 t1 = bool"
                                " lt [a1], 1:i64 t2 = bool %s"
                                " t3 = f32 load b0[((a0*40)+(a1+39))] if t1"
                                " t4 = f32 load b0[((a0*40)+(a1+-1))] if t2"
                                " t5 = f32 where t1, t3, t4 %s }",
                                choice[i].other, choice[i].value));
        int patterns = 0;
        for (const char *at = text; (at = strstr(at, "uint8_t u")); at++) patterns++;
        assert_int_equal(patterns, choice[i].patterns);
    }
    arena_free(arena);
}

int main(void) {
    cb_set_option("cache", "0");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_one_run), cmocka_unit_test(test_folds),
        cmocka_unit_test(test_expanded_once),    cmocka_unit_test(test_short_rows),
        cmocka_unit_test(test_large_results),    cmocka_unit_test(test_what_is_not_one_run),
        cmocka_unit_test(test_blocks_of_rows),   cmocka_unit_test(test_slabs),
        cmocka_unit_test(test_what_is_no_slab),  cmocka_unit_test(test_several_rows),
        cmocka_unit_test(test_few_points),       cmocka_unit_test(test_chosen_loads),
    };
    int failed = cmocka_run_group_tests_name("codegen of flat rows", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
