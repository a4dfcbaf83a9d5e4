/* Generated C of pools: windows in loops or written out, with and without padding; of what differs
 * from range to range: concatenations, padding of long rows; of folds over bools. */
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

#define WINDOW(lanes, in, out, step0, step1, step3, line)                                          \
    "kernel window_" lanes "(outer a0:4, outer a1:4, outer a2:" lanes                              \
    ", inner a3:3, inner a4:3) tile split 1 { b0: in bf16[" in "] b1: out bf16[" out "]"           \
    " t0 = f32 load b0[(((((a0*" step0 ")+(a1*" step1 "))+(a3*" step3 "))+(a4*" lanes "))+a2)]"    \
    " t1 = f32 reduce amax t0 store b1[(((a0*" line ")+(a1*" lanes "))+a2)] = t1 }"

/* Windows of a pool: written out where the lanes are few, in loops around them where they are
 * many. */
static void test_windows(void **state) {
    (void)state;
    static const char *const text[] = {
        WINDOW("64", "5184", "1024", "1152", "128", "576", "256"),
        WINDOW("192", "15552", "3072", "3456", "384", "1728", "768")};
    check_all(text, 2);
    for (int i = 0; i < 2; i++) {
        Arena *arena = arena_new();
        assert_int_equal(arena_guard(arena), 0);
        assert_int_equal(occurrences(source(arena, text[i]), "m_maximum_f32("), i ? 1 : 9);
        arena_free(arena);
    }
}

/* Lanes whose loads cross lines, by blocks whose full ones are text of their own: each of the two
 * declares what its points share. */
static void test_windows_that_turn(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel turned(outer a0:300, outer a1:500, inner a2:3) tile split 1 { b0: in f32[450000]"
        " b1: out f32[150000] t0 = f32 load b0[((a0+(a1*300))+(a2*150000))]"
        " t1 = f32 add t0, 1:f32 t2 = f32 abs t1 t3 = f32 mul t1, t2 t4 = f32 reduce sum t3"
        " store b1[((a0*500)+a1)] = t4 }"};
    check_all(text, 1);
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    assert_int_equal(occurrences(source(arena, text[0]), "m_abs_f32("), 6);
    arena_free(arena);
}

/* Windows of 3 x 3 over a0, a1 with a line of padding before them; what is outside
 * counts as `other`. */
#define PADDED(name, other, op)                                                                    \
    "kernel " name "(outer a0:5, outer a1:5, outer a2:96, inner a3:3, inner a4:3) tile split 1 {"  \
    " b0: in f32[9600] b1: out f32[2400]"                                                          \
    " t0 = bool ge [(((a0*2)+a3)+-1)], 0:i64 t1 = bool ge [(((a1*2)+a4)+-1)], 0:i64"               \
    " t2 = bool logical_and t0, t1"                                                                \
    " t3 = f32 load b0[((((((a0*1920)+(a1*192))+(a3*960))+(a4*96))+a2)+-1056)] if t2"              \
    " t4 = f32 where t2, t3, " other " t9 = f32 reduce " op " t4"                                  \
    " store b1[(((a0*480)+(a1*96))+a2)] = t9 }"

/* Where all lanes are in the padding, and it is what the reduction starts from, nothing is done. */
static void test_padding_is_left_out(void **state) {
    (void)state;
    static const char *const text[] = {
        PADDED("highest", "-inf:f32", "amax"),  PADDED("lowest", "inf:f32", "amin"),
        PADDED("total", "0:f32", "sum"),        PADDED("product", "1:f32", "prod"),
        PADDED("not_identity", "1:f32", "sum"),
    };
    int count = (int)(sizeof text / sizeof *text);
    check_all(text, count);
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(occurrences(source(arena, text[i]), "                if (t"), i < 4);
    arena_free(arena);
}

/* Long pieces along the lanes are loops of their own, without conditions and masks, and those along
 * another axis; short ones are not, nor is what depends on two axes. */
static void test_pieces(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel concat(outer a0:500) tile split 1 { b0: in f32[300] b1: in f32[7] b2: in f32[193]"
        " b3: out f32[500] t0 = bool lt [a0], 300:i64 t1 = bool ge [a0], 300:i64"
        " t2 = bool lt [a0], 307:i64 t3 = bool logical_and t1, t2 t4 = bool ge [a0], 307:i64"
        " t5 = f32 load b0[a0] if t0 t6 = f32 load b1[(a0+-300)] if t3"
        " t7 = f32 load b2[(a0+-307)] if t4 t8 = f32 where t3, t6, t7 t9 = f32 where t0, t5, t8"
        " store b3[a0] = t9 }",
        "kernel pad(outer a0:3, outer a1:200) tile split 1 { b0: in f32[591] b1: out f32[600]"
        " t0 = bool ge [(a1+-2)], 0:i64 t1 = bool lt [(a1+-2)], 197:i64"
        " t2 = bool logical_and t0, t1 t3 = f32 load b0[(((a0*197)+a1)+-2)] if t2"
        " t4 = f32 where t2, t3, 5:f32 store b1[((a0*200)+a1)] = t4 }",
        "kernel turned(outer a0:150) tile split 1 { b0: in i32[90] b1: out i32[150]"
        " t0 = bool lt [((a0*-1)+149)], 90:i64 t1 = i32 load b0[((a0*-1)+149)] if t0"
        " store b1[a0] = t1 }",
        "kernel stores(outer a0:300) tile split 1 { b0: in f64[300] b1: out f64[120]"
        " b2: out f64[180] t0 = f64 load b0[a0] t1 = bool lt [a0], 120:i64"
        " t2 = bool ge [a0], 120:i64 t3 = f64 neg t0 store b1[a0] = t0 if t1"
        " store b2[(a0+-120)] = t3 if t2 }",
        "kernel rows(outer a0:8, outer a1:20) tile split 1 { b0: in f32[100] b1: in f32[60]"
        " b2: out f32[160] t0 = bool lt [a0], 5:i64 t1 = bool ge [a0], 5:i64"
        " t2 = f32 load b0[((a0*20)+a1)] if t0 t3 = f32 load b1[(((a0*20)+a1)+-100)] if t1"
        " t4 = f32 where t0, t2, t3 store b2[((a0*20)+a1)] = t4 }",
        "kernel short_pieces(outer a0:40, outer a1:30) tile split 1 { b0: in f32[400] b1: in "
        "f32[800] b2: out f32[1200] t0 = bool lt [a1], 10:i64 t1 = bool ge [a1], 10:i64"
        " t2 = f32 load b0[((a0*10)+a1)] if t0 t3 = f32 load b1[(((a0*20)+a1)+-10)] if t1"
        " t4 = f32 where t0, t2, t3 store b2[((a0*30)+a1)] = t4 }",
        "kernel triangle(outer a0:70, outer a1:70) tile split 1 { b0: in f32[4900]"
        " b1: out f32[4900] t0 = bool ge [(a0+(a1*-1))], 0:i64"
        " t1 = f32 load b0[((a0*70)+a1)] if t0 store b1[((a0*70)+a1)] = t1 }",
    };
    static const int loops[] = {3, 3, 2, 2, 2, 1, 1};
    int count = (int)(sizeof text / sizeof *text);
    check_all(text, count);
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < count; i++) {
        const char *code = source(arena, text[i]);
        assert_int_equal(occurrences(code, "#pragma omp simd"), loops[i]);
        assert_int_equal(occurrences(code, " ? b") > 0, loops[i] == 1);
    }
    arena_free(arena);
}

/* A transposition by blocks has its pieces within them, along the lanes or the rows: no block has
 * lanes of two. */
static void test_pieces_that_turn(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel beside(outer a0:300, outer a1:520) tile split 1 { b0: in f32[66000]"
        " b1: in f32[90000] b2: out f32[156000] t0 = bool lt [a1], 220:i64"
        " t1 = bool ge [a1], 220:i64 t2 = f32 load b0[((a0*220)+a1)] if t0"
        " t3 = f32 load b1[((a0+(a1*300))+-66000)] if t1 t4 = f32 where t0, t2, t3"
        " store b2[((a0*520)+a1)] = t4 }",
        "kernel below(outer a0:500, outer a1:300) tile split 1 { b0: in f32[60000]"
        " b1: in f32[90000] b2: out f32[150000] t0 = bool lt [a0], 200:i64"
        " t1 = bool ge [a0], 200:i64 t2 = f32 load b0[((a0*300)+a1)] if t0"
        " t3 = f32 load b1[((a0+(a1*300))+-200)] if t1 t4 = f32 where t0, t2, t3"
        " store b2[((a0*300)+a1)] = t4 }",
    };
    check_all(text, 2);
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < 2; i++) {
        const char *code = source(arena, text[i]);
        assert_non_null(strstr(code, "rows"));
        assert_null(strstr(code, " ? b"));
        assert_int_equal(occurrences(code, "left = 220 - column - block;"), i == 0);
    }
    arena_free(arena);
}

#define PICTURE(dtype)                                                                             \
    "kernel picture_" dtype "(outer a0:40, outer a1:200) tile split 1 { b0: in " dtype "[7600]"    \
    " b1: out " dtype "[8000] t0 = bool ge [(a0+-1)], 0:i64 t1 = bool lt [(a0+-1)], 38:i64"        \
    " t2 = bool logical_and t0, t1 t3 = " dtype " load b0[(((a0*200)+a1)+-200)] if t2"             \
    " t4 = bool lt [a1], 100:i64 t5 = " dtype " where t2, t3, 7:" dtype " t6 = " dtype             \
    " where t4, t5, 9:" dtype " store b1[((a0*200)+a1)] = t6 }"

/* Nothing is loaded under a mask: pieces are cut along another axis, too. */
static void test_pieces_of_two_axes(void **state) {
    (void)state;
    static const char *const text[] = {PICTURE("u8"), PICTURE("i32")};
    check_all(text, 2);
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(occurrences(source(arena, text[i]), "#pragma omp simd"), 4);
        assert_int_equal(occurrences(source(arena, text[i]), " ? b"), 0);
    }
    arena_free(arena);
}

#define SHORT_ROWS(columns, numel, op)                                                             \
    "kernel rows_" columns op "(outer a0:100, inner a1:" columns ") tile split 1 {"                \
    " b0: in f32[" numel "] b1: out f32[100] t0 = f32 load b0[((a0*" columns ")+a1)]"              \
    " t1 = f32 " op " t0 t2 = f32 reduce amax t1 store b1[a0] = t2 }"

/* Folded to bytes, which are no terms of whole rows. */
#define DEAR_CONDITIONS                                                                            \
    "kernel conditions(outer a0:100, inner a1:8) tile split 1 { b0: in f32[800] b1: out bool[100]" \
    " t0 = f32 load b0[((a0*8)+a1)] t1 = f32 tanh t0 t2 = bool gt t1, 0.5:f32"                     \
    " t3 = bool reduce any t2 store b1[a0] = t3 }"

/* Four elements of each row of some more. */
#define PARTS(pitch, numel, op)                                                                    \
    "kernel parts_" pitch op "(outer a0:100, inner a1:4) tile split 1 {"                           \
    " b0: in f32[" numel "] b1: in f32[100] b2: out f32[400]"                                      \
    " t0 = f32 load b0[((a0*" pitch ")+a1)] t1 = f32 load b1[a0]"                                  \
    " t2 = f32 " op " t0, t1 store b2[((a0*4)+a1)] = t2 }"

/* Rows as lanes: short ones are written out, the others a loop over points, which are gathered. */
static void test_rows_as_lanes(void **state) {
    (void)state;
    static const char *const text[] = {SHORT_ROWS("4", "400", "tanh"),
                                       SHORT_ROWS("5", "500", "neg"),
                                       SHORT_ROWS("7", "700", "neg"),
                                       SHORT_ROWS("8", "800", "neg"),
                                       DEAR_CONDITIONS,
                                       PARTS("5", "500", "mul"),
                                       PARTS("5", "500", "pow"),
                                       PARTS("8", "800", "pow")};
    static const bool by_point[] = {false, true, true, false, true, false, true, false};
    check_all(text, 8);
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(occurrences(source(arena, text[i]), "; a1++)"), by_point[i]);
        assert_int_equal(occurrences(source(arena, text[i]), "[l * by8]"), i == 4);
    }
    arena_free(arena);
}

#define COLUMNS(name, load)                                                                        \
    "kernel " name "(outer a0:100) tile split 1 { b0: in f32[102400] b1: out f32[100]"             \
    " t0 = f32 load b0[(a0*1024)] t1 = f32 load b0[" load "] t2 = f32 mul t0, t1"                  \
    " store b1[a0] = t2 }"

/* Columns of rows that lie a power of two apart are gathered: gcc would
 * read the rows. */
static void test_columns(void **state) {
    (void)state;
    static const char *const text[] = {
        COLUMNS("two", "((a0*1024)+7)"), COLUMNS("one", "a0"),
        "kernel pieces(outer a0:100) tile split 1 { b0: in f32[102400] b1: in f32[100]"
        " b2: out f32[100] t0 = bool lt [a0], 60:i64 t1 = f32 load b0[(a0*1024)]"
        " t2 = f32 load b0[((a0*1024)+7)] t3 = f32 mul t1, t2 t4 = f32 load b1[a0] if t0"
        " t5 = f32 where t0, t4, t3 store b2[a0] = t5 }",
        "kernel close(outer a0:100) tile split 1 { b0: in f32[1600] b1: out f32[100]"
        " t0 = f32 load b0[(a0*16)] t1 = f32 load b0[((a0*16)+7)] t2 = f32 mul t0, t1"
        " store b1[a0] = t2 }"};
    check_all(text, 4);
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(occurrences(source(arena, text[i]), "[l * by1024]"), i == 1 ? 1 : 2);
    assert_int_equal(occurrences(source(arena, text[3]), "by16"), 0); /* a group of few vectors */
    arena_free(arena);
}

/* cb_stack of what a loop made: where(a0 < 32, x[a0], where(a0 < 64, ...)), or the same by rows. */
static const char *many_pieces(Arena *arena, const char *name, const char *axes, int step) {
    Buffer text = buffer_new(arena);
    putf(&text, "kernel %s(%s) tile split 1 { b0: in f32[640] b1: out f32[640]", name, axes);
    bool rows = step == 1;
    const char *at = rows ? "((a0*32)+a1)" : "a0";
    putf(&text, " t0 = f32 load b0[%s]", at);
    for (int i = 1; i < 20; i++)
        putf(&text, " t%d = bool lt [a0], %d:i64 t%d = f32 where t%d, t%d, %d:f32", 2 * i - 1,
             step * i, 2 * i, 2 * i - 1, 2 * i - 2, i);
    putf(&text, " store b1[%s] = t38 }", at);
    return buffer_text(&text);
}

static void test_many_pieces(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const char *const text[] = {many_pieces(arena, "flat", "outer a0:640", 32),
                                many_pieces(arena, "rows", "outer a0:20, outer a1:32", 1),
                                many_pieces(arena, "narrow", "outer a0:200", 10)};
    check_all(text, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(occurrences(source(arena, text[i]), "#pragma omp simd"), 20);
        assert_int_equal(occurrences(source(arena, text[i]), "op_where"), 0);
    }
    arena_free(arena);
}

/* cb_stack of nine along a new last dim, which lanes do not run along: a loop of lanes for each. */
static void test_stack_of_points(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Buffer text = buffer_new(arena);
    put(&text, "kernel stack(outer a0:700, inner a1:9) tile split 1 { b0: in f32[1400]"
               " b1: out f32[6300] t0 = f32 load b0[((a0*2)+1)] t1 = f32 neg t0");
    for (int i = 0; i < 8; i++)
        putf(&text,
             " t%d = bool lt [a1], %d:i64 t%d = f32 load b0[((a0*2)+%d)] if t%d"
             " t%d = f32 mul t%d, %d:f32 t%d = f32 where t%d, t%d, t%d",
             4 * i + 2, 8 - i, 4 * i + 3, i % 2, 4 * i + 2, 4 * i + 4, 4 * i + 3, i + 2, 4 * i + 5,
             4 * i + 2, 4 * i + 4, 4 * i + 1);
    put(&text, " store b1[((a0*9)+a1)] = t33 }");
    const char *const kernel = buffer_text(&text);
    check_all(&kernel, 1);
    assert_int_equal(occurrences(source(arena, kernel), "#pragma omp simd"), 9);
    assert_int_equal(occurrences(source(arena, kernel), " ? b"), 0);
    static const char *const many = /* each loop is compiled: seventy take ten seconds */
        "kernel many(outer a0:700, inner a1:70) tile split 1 { b0: in f32[1400] b1: out f32[49000]"
        " t0 = bool lt [a1], 69:i64 t1 = f32 load b0[((a0*2)+1)] if t0"
        " t2 = f32 where t0, t1, 0:f32 store b1[((a0*70)+a1)] = t2 }";
    check_all(&many, 1);
    assert_true(occurrences(source(arena, many), "#pragma omp simd") < 9);
    arena_free(arena);
}

/* cb_cat of twenty of three columns, the first of one: too many for points, and none long enough
 * for lanes along it. Blocks of rows are as large as what they write may be. */
static void test_stack_of_pieces(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Buffer text = buffer_new(arena);
    put(&text, "kernel pieces(outer a0:700, inner a1:58) tile split 1 { b0: in f32[2200]"
               " b1: out f32[40600] t0 = f32 load b0[((a0*3)+2)]");
    for (int i = 0; i < 19; i++)
        putf(&text,
             " t%d = bool ge [a1], %d:i64 t%d = f32 load b0[(((a0*3)+a1)+%d)] if t%d"
             " t%d = f32 mul t%d, %d:f32 t%d = f32 where t%d, t%d, t%d",
             4 * i + 1, 3 * i + 1, 4 * i + 2, i, 4 * i + 1, 4 * i + 3, 4 * i + 2, i + 2, 4 * i + 4,
             4 * i + 1, 4 * i + 3, 4 * i);
    put(&text, " store b1[((a0*58)+a1)] = t76 }");
    const char *const kernel = buffer_text(&text);
    check_all(&kernel, 1);
    const char *code = source(arena, kernel); /* its first piece is a copy */
    assert_int_equal(occurrences(code, "for (int l = 0;"), 20);
    assert_int_equal(occurrences(code, "#pragma omp simd"), 19);
    assert_int_equal(occurrences(code, " ? b"), 0);
    assert_int_equal(occurrences(code, "run < 64 ?"), 1);
    arena_free(arena);
}

/* Arrays of bools are bytes, since gcc does not vectorize what stores a _Bool, but of bools that
 * come from wider elements. */
static void test_folds_of_bools(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel columns(outer a0:100, inner a1:50) tile split 1 { b0: in bool[5000] b1: out "
        "bool[100] t0 = bool load b0[((a1*100)+a0)] t1 = bool reduce any t0 store b1[a0] = t1 }",
        "kernel rows(outer a0:20, inner a1:300) row split 1 { b0: in bool[6000] b1: out bool[20]"
        " b2: out bool[20] t0 = bool load b0[((a0*300)+a1)] t1 = bool reduce any t0"
        " t2 = bool reduce all t0 store b1[a0] = t1 store b2[a0] = t2 }",
        "kernel compared(outer a0:20, inner a1:37) row split 1 { b0: in f32[740] b1: out bool[20]"
        " b2: out bool[20] t0 = f32 load b0[((a0*37)+a1)] t1 = bool gt t0, 1.5:f32"
        " t2 = bool lt t0, 1.5:f32 t3 = bool reduce any t1 t4 = bool reduce all t2"
        " store b1[a0] = t3 store b2[a0] = t4 }",
    };
    check_all(text, 3);
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    assert_int_equal(occurrences(source(arena, text[2]), "    int32_t q"), 2);
    for (int i = 0; i < 2; i++) {
        const char *code = source(arena, text[i]);
        assert_int_equal(occurrences(code, i ? "    uint8_t q" : "    uint8_t r"), i ? 2 : 1);
        assert_int_equal(occurrences(code, "_Bool r") + occurrences(code, "int32_t q"), 0);
    }
    arena_free(arena);
}

int main(void) {
    cb_set_option("cache", "0");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),           cmocka_unit_test(test_padding_is_left_out),
        cmocka_unit_test(test_windows_that_turn), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_many_pieces),       cmocka_unit_test(test_folds_of_bools),
        cmocka_unit_test(test_pieces_that_turn),  cmocka_unit_test(test_pieces_of_two_axes),
        cmocka_unit_test(test_columns),           cmocka_unit_test(test_rows_as_lanes),
        cmocka_unit_test(test_stack_of_points),   cmocka_unit_test(test_stack_of_pieces),
    };
    int failed = cmocka_run_group_tests_name("codegen of windows", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
