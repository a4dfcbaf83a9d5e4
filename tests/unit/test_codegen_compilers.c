/* Kernels whose C is right and that a compiler got wrong, with the flags or pragmas that keep it
 * right. The compiler and the processor of this machine need not be among those concerned. */
#include "test_support.h"

#include "jit/compiler.h"
#include "kernel_run.h"

/* Two sums of a short row, one wider than the other: the arrays of lanes that gcc 13, tuning for
 * Sapphire Rapids with AVX2 or AVX-512, leaves on the stack were set to 0 beside a boundary of 16
 * (-mno-red-zone). From cross_entropy of 4 rows. */
#define TWO_SUMS(rows, most)                                                                       \
    "kernel two_sums_" rows "(inner a0:" rows ") row split 1 { b0: in i64[" rows                   \
    "] b1: in f32[" rows "] b2: in i64[" rows "] b3: in f32[" most "] b4: in f32[" rows            \
    "] b5: out f32[1] t2 = i64 load b0[a0] t4 = bool ne t2, 1:i64 t5 = f32 load b1[a0]"            \
    " t6 = f32 exp t5 t7 = i64 load b2[a0] t13 = f32 load b3[((a0*2)+(t7*18))]"                    \
    " t14 = f32 load b4[a0] t15 = f32 sub t13, t14 t16 = f32 sub t6, t15"                          \
    " t18 = f32 where t4, t16, 0.0:f32 t19 = f32 reduce sum t18 t20 = i64 to i64 t4"               \
    " t21 = i64 reduce sum t20 t22 = f32 to f32 t21 t23 = f32 add t19, t22 store b5[0] = t23 }"

static void test_two_sums_of_a_short_row(void **state) {
    (void)state;
    static const char *const text[] = {
        TWO_SUMS("2", "120"), TWO_SUMS("3", "120"), TWO_SUMS("4", "120"), TWO_SUMS("5", "120"),
        TWO_SUMS("7", "130"), TWO_SUMS("8", "130"), TWO_SUMS("9", "130"), TWO_SUMS("16", "150"),
    };
    check_all(text, (int)(sizeof text / sizeof *text));
#if defined __x86_64__
    assert_non_null(strstr(compiler_flags(), "-mno-red-zone"));
    /* instructions by name, so that a virtual machine or valgrind knows what it meets */
    assert_non_null(strstr(compiler_flags(), "-march=x86-64 "));
    assert_null(strstr(compiler_flags(), "-march=native"));
#endif
}

/* A select between elements of another width, by a condition that is used again: gcc 12 and 13 made
 * branches of it with the loads inside, then masked loads; three neighbours, each with a condition
 * of its own, were loaded by the first one's (no-thread-jumps, no-tree-sink). From where beside
 * cumprod over a last dim of 3. */
#define SELECT(dtype, small, points, count)                                                        \
    "kernel select_" dtype "_" small "_" points "(outer a0:300, inner a1:" points                  \
    ") tile split 1 { b0: in " dtype "[" count "] b1: in " small "[" count "] b2: out " dtype      \
    "[" count "] b3: out bool[" count "] b4: out " dtype "[" count "]"                             \
    " t19 = " dtype " load b0[((a0*" points ")+a1)] t20 = bool to bool t19"                        \
    " t22 = bool logical_xor t20, true:bool t23 = " small " load b1[((a0*" points ")+a1)]"         \
    " t24 = " dtype " to " dtype " t23 t25 = " dtype " where t22, t24, t19"                        \
    " t28 = " dtype " scan prod t19 t29 = " dtype " to " dtype " t22 t30 = bool ge t28, t29"       \
    " t32 = " dtype " maximum t19, 1:" dtype " store b2[((a0*" points ")+a1)] = t25"               \
    " store b3[((a0*" points ")+a1)] = t30 store b4[((a0*" points ")+a1)] = t32 }"

static void test_select_of_neighbours(void **state) {
    (void)state;
    static const char *const text[] = {
        SELECT("i64", "u8", "3", "900"),  SELECT("i64", "u8", "2", "600"),
        SELECT("i64", "u8", "4", "1200"), SELECT("i64", "f32", "3", "900"),
        SELECT("i64", "i32", "2", "600"), SELECT("i64", "f64", "3", "900"),
    };
    check_all(text, (int)(sizeof text / sizeof *text));
}

/* Of rows of rows, one is twice what it was, the others stay: gcc 12 loaded the twice of the row
 * behind it (no-ivopts). From x.select(1, 1).mul_(2); x.sum(). */
#define ONE_OF_ROWS(dtype, outer, points, count)                                                   \
    "kernel one_of_rows_" dtype "_" outer "_" points "(inner a0:" outer ", inner a1:3, inner "     \
    "a2:" points ") row split 1 { b0: in " dtype "[" count "] b1: out " dtype "[" count            \
    "] b2: out " dtype "[1] t16 = bool ge [(a1 + -1)], 0:i64 t18 = bool lt [(a1 + -1)], 1:i64 "    \
    "t19 = bool logical_and t16, t18 t23 = " dtype " load b0[(((a0*(3*" points                     \
    ")) + a2) + " points ")] if t19 t25 = " dtype " mul t23, 2.0:" dtype " t26 = " dtype           \
    " load b0[(((a0*(3*" points ")) + (a1*" points ")) + a2)] t27 = " dtype " where t19, t25, t26" \
    " t28 = " dtype " reduce sum t27 store b1[(((a0*(3*" points ")) + (a1*" points ")) + a2)] = "  \
    "t27 store b2[0] = t28 }"

static void test_one_of_rows(void **state) {
    (void)state;
    static const char *const text[] = {
        ONE_OF_ROWS("f64", "2", "2", "12"), ONE_OF_ROWS("f64", "2", "4", "24"),
        ONE_OF_ROWS("f32", "2", "4", "24"), ONE_OF_ROWS("f32", "2", "8", "48"),
        ONE_OF_ROWS("f64", "2", "8", "48"), ONE_OF_ROWS("f32", "2", "16", "96"),
        ONE_OF_ROWS("f64", "4", "2", "24"), ONE_OF_ROWS("f32", "3", "4", "36"),
    };
    Arena *arena = arena_new();
    Buffer code = buffer_new(arena), plain = buffer_new(arena);
    const Kernel *guarded = kernel_parse(arena, text[0]);
    const Kernel *unguarded = kernel_parse(arena, TWO_SUMS("2", "120"));
    c_render(&guarded, NULL, 1, &code);
    assert_non_null(strstr(buffer_text(&code), "no-ivopts"));
    c_render(&unguarded, NULL, 1, &plain);
    assert_null(strstr(buffer_text(&plain), "no-ivopts"));
    arena_free(arena);
    check_all(text, (int)(sizeof text / sizeof *text));
}

int main(void) {
    cb_set_option("cache", "0");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_sums_of_a_short_row),
        cmocka_unit_test(test_select_of_neighbours),
        cmocka_unit_test(test_one_of_rows),
    };
    int failed = cmocka_run_group_tests_name("compilers", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
