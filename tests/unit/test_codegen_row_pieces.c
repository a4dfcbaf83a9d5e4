/* Generated C of rows that are folded and whose conditions turn over along them (rolls, paddings
 * and concatenations below a sum): they go in pieces without conditions. */
#include "test_support.h"

#include "kernel_run.h"

#include <stdlib.h>

enum { TEXT = 1200 };

static int occurrences(const char *text, const char *word) {
    int count = 0;
    for (; (text = strstr(text, word)); text++) count++;
    return count;
}

/* Of rows of n: what the left neighbour and the right one around the ring add up to, and a value
 * behind the row's first half, folded and stored. */
static char *ring(const char *dtype, const char *op, int rows, int n, int split, bool varies) {
    char *text = malloc(TEXT);
    snprintf(
        text, TEXT,
        "kernel ring_%s_%s_%d(%s a0:%d, inner a1:%d%s) row split %d { b0: in %s[%d] b1: out %s[%d]"
        " b2: out %s[%d] t0 = bool lt [a1], 1:i64 t1 = bool logical_not t0"
        " t2 = %s load b0[(((a0*%d)+a1)+%d)] if t0 t3 = %s load b0[(((a0*%d)+a1)+-1)] if t1"
        " t4 = %s where t0, t2, t3 t5 = bool lt [a1], %d:i64 t6 = bool logical_not t5"
        " t7 = %s load b0[(((a0*%d)+a1)+1)] if t5 t8 = %s load b0[(((a0*%d)+a1)+%d)] if t6"
        " t9 = %s where t5, t7, t8 t10 = %s sub t4, t9 t11 = bool ge [(a1+-%d)], 0:i64"
        " t12 = %s where t11, t10, t9 t13 = %s reduce %s t12"
        " store b1[((a0*%d)+a1)] = t12 store b2[%s] = t13 }",
        dtype, op, n, split > 1 ? "inner" : "outer", rows, n, varies ? "+" : "", split, dtype,
        rows * n, dtype, rows * n, dtype, split > 1 ? 1 : rows, dtype, n, n - 1, dtype, n, dtype,
        n - 1, dtype, n, dtype, n, 1 - n, dtype, dtype, n / 2, dtype, dtype, op, n,
        split > 1 ? "0" : "a0");
    return text;
}

static void expect_pieces(const char *text, bool cut) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Buffer code = buffer_new(arena);
    c_render_kernel(kernel_parse(arena, text), NULL, &code);
    const char *source = buffer_text(&code);
    assert_int_equal(occurrences(source, "const int64_t from = "), cut ? 4 : 0);
    if (cut) assert_int_equal(occurrences(source, " ? b0["), 0);
    arena_free(arena);
}

/* Cut are rows of 32 lanes or more for each piece: strips and their tails, chunks. */
static void test_rings(void **state) {
    (void)state;
    static const int sizes[] = {4, 97, 127, 128, 129, 131, 160, 257, 400, 512, 513, 1000};
    static const char *const folds[][2] = {{"u8", "amax"}, {"f32", "sum"}, {"f32", "amin"},
                                           {"f64", "sum"}, {"i64", "sum"}, {"i32", "amax"}};
    enum { SIZES = sizeof sizes / sizeof *sizes, FOLDS = sizeof folds / sizeof *folds };
    for (int s = 0; s < SIZES; s += 3) { /* a file for each three, so that compilers are quick */
        char *text[3];
        for (int i = 0; i < 3; i++) {
            int f = (s + s / 3 + i) % FOLDS, n = sizes[s + i];
            text[i] = ring(folds[f][0], folds[f][1], 5, n, i ? 1 : 2, f % 2);
            expect_pieces(text[i], n >= 128 || (f % 2 && n <= TYPICAL_MOST));
        }
        check_all((const char *const *)text, 3);
        for (int i = 0; i < 3; i++) free(text[i]);
    }
}

/* A column and the zeros that a padding puts before or behind it: one of the two pieces is whole
 * strips, what threads take of it is not. Above 4096 in blocks, whose pointers begin anew. */
static void test_chunks_of_padded_columns(void **state) {
    (void)state;
    static const struct {
        const char *dtype;
        int first, second, split;
        bool before; /* the first piece is the padding */
    } row[] = {{"f32", 192, 1, 2, false},   {"f32", 63, 192, 2, true},  {"i64", 1, 320, 3, true},
               {"f32", 20000, 1, 2, false}, {"i32", 1, 14016, 3, true}, {"f64", 160, 1, 2, false}};
    enum { ROWS = sizeof row / sizeof *row };
    char *text[ROWS];
    for (int i = 0; i < ROWS; i++) {
        const char *c = row[i].dtype;
        int n = row[i].before ? row[i].second : row[i].first;
        text[i] = malloc(TEXT);
        snprintf(text[i], TEXT,
                 "kernel padded%d(inner a0:%d) row split %d { b0: in %s[%d] b1: out %s[1]"
                 " t0 = bool %s [a0], %d:i64 t1 = %s load b0[((a0*3)+%d)] if t0"
                 " t2 = %s where t0, t1, 0:%s t3 = %s reduce sum t2 store b1[0] = t3 }",
                 i, row[i].first + row[i].second, row[i].split, c, 3 * n, c,
                 row[i].before ? "ge" : "lt", row[i].first, c,
                 row[i].before ? -3 * row[i].first : 0, c, c, c);
    }
    check_all((const char *const *)text, ROWS);
    for (int i = 0; i < ROWS; i++) free(text[i]);
}

/* Chunks of a row begin and end within pieces. */
static void test_chunks_of_rings(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel chunks(inner a0:1000) row split 7 { b0: in f32[1001] b1: out f32[1]"
        " b2: out f32[1] t0 = bool lt [a0], 300:i64 t1 = f32 load b0[a0] if t0"
        " t2 = f32 where t0, t1, 2:f32 t3 = bool lt [a0], 720:i64 t4 = f32 load b0[(a0+1)] if t3"
        " t5 = f32 where t3, t4, -1:f32 t6 = f32 mul t2, t5 t7 = f32 reduce sum t6"
        " t8 = f32 reduce amax t5 store b1[0] = t7 store b2[0] = t8 }",
        "kernel bools(inner a0:700) row split 3 { b0: in bool[700] b1: out bool[1]"
        " t0 = bool lt [a0], 13:i64 t1 = bool load b0[(a0+687)] if t0 t2 = bool logical_not t0"
        " t3 = bool load b0[(a0+-13)] if t2 t4 = bool where t0, t1, t3 t5 = bool load b0[a0]"
        " t6 = bool ne t4, t5 t7 = bool reduce all t6 store b1[0] = t7 }",
        /* two sums that are one in the second piece: it has other accumulators, so none is cut */
        "kernel twins(outer a0:3, inner a1:400) row split 1 { b0: in f32[1200] b1: out f32[3]"
        " b2: out f32[3] t0 = bool lt [a1], 200:i64 t1 = f32 load b0[((a0*400)+a1)]"
        " t2 = f32 where t0, 1:f32, t1 t3 = f32 where t0, 3:f32, t1 t4 = f32 reduce sum t2"
        " t5 = f32 reduce sum t3 store b1[a0] = t4 store b2[a0] = t5 }",
    };
    check_all(text, 3);
}

/* What a second sweep reads again is computed for the whole row. */
static void test_two_sweeps(void **state) {
    (void)state;
    static const char *const text =
        "kernel sweeps(outer a0:3, inner a1:400) row split 1 { b0: in f32[1200] b1: out f32[3]"
        " b2: out f32[1200] t0 = bool lt [a1], 200:i64 t1 = f32 load b0[((a0*400)+a1)]"
        " t2 = f32 where t0, 1:f32, t1 t3 = f32 reduce amax t2 t4 = f32 sub t2, t3"
        " t5 = f32 reduce sum t4 store b1[a0] = t5 store b2[((a0*400)+a1)] = t4 }";
    check_all(&text, 1);
    expect_pieces(text, false);
}

int main(void) {
    cb_set_option("cache", "0");
    quarters = true;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_chunks_of_padded_columns),
        cmocka_unit_test(test_chunks_of_rings),
        cmocka_unit_test(test_two_sweeps),
    };
    int failed = cmocka_run_group_tests_name("codegen of rows in pieces", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
