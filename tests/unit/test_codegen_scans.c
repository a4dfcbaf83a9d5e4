/* Generated C and VM programs of scans along rows that lie in memory one after the other: rows that
 * are woven, rows in strips, rows that are short. */
#include "test_support.h"

#include "kernel_run.h"

#include <stdlib.h>

enum { TEXT = 1200 };

static const char *const dtypes[] = {"f32", "i64", "f64", "i32", "u8", "bool", "f16", "bf16"};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static const char *computed(const char *dtype) {
    return strcmp(dtype, "f16") && strcmp(dtype, "bf16") ? dtype : "f32";
}

/* cumsum(x, 1) * x, or a running maximum */
static char *light(const char *dtype, const char *op, int rows, int n, bool varies) {
    char *text = malloc(TEXT);
    const char *c = computed(dtype);
    snprintf(text, TEXT,
             "kernel light_%s_%s_%d_%d(outer a0:%d, inner a1:%d%s) row split 1 { b0: in %s[%d]"
             " b1: out %s[%d] t0 = %s load b0[((a0*%d)+a1)] t1 = %s scan %s t0"
             " t2 = %s %s t1, t0 store b1[((a0*%d)+a1)] = t2 }",
             dtype, op, rows, n, rows, n, varies ? "+" : "", dtype, rows * n, dtype, rows * n, c, n,
             c, op, c, strcmp(dtype, "bool") ? "mul" : "logical_and", n);
    return text;
}

/* Sums of exp(x), as shares of the row's, and a running maximum. */
static char *heavy(const char *dtype, int rows, int n, bool varies) {
    char *text = malloc(TEXT);
    const char *c = computed(dtype);
    snprintf(text, TEXT,
             "kernel heavy_%s_%d_%d(outer a0:%d, inner a1:%d%s) row split 1 { b0: in %s[%d]"
             " b1: out %s[%d] b2: out %s[%d] t0 = %s load b0[((a0*%d)+a1)] t1 = %s exp t0"
             " t2 = %s scan sum t1 t3 = %s scan amax t0 t4 = %s reduce sum t1 t5 = %s div t2, t4"
             " t7 = %s add t5, t3"
             " store b1[((a0*%d)+a1)] = t7 store b2[((a0*%d)+a1)] = t5 }",
             dtype, rows, n, rows, n, varies ? "+" : "", dtype, rows * n, dtype, rows * n, dtype,
             rows * n, c, n, c, c, c, c, c, c, n, n);
    return text;
}

static bool source_has(const char *text, const char *word) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Buffer code = buffer_new(arena);
    c_render_kernel(kernel_parse(arena, text), NULL, &code);
    bool has = strstr(buffer_text(&code), word) != NULL;
    arena_free(arena);
    return has;
}

static void check_and_free(char **text, int count) {
    check_all((const char *const *)text, count);
    for (int i = 0; i < count; i++) free(text[i]);
}

/* Four rows at a time and what is left one by one; of up to eight elements, lanes go across. */
static void test_woven(void **state) {
    (void)state;
    static const int lengths[] = {1, 2, 8, 9, 64, 255, 1000, 16};
    static const int rows[] = {1, 3, 4, 5, 70, 4, 6, 130};
    enum { SIZES = sizeof lengths / sizeof *lengths };
    for (int d = 0; d < DTYPES; d++) {
        char *text[SIZES];
        bool half = strcmp(computed(dtypes[d]), dtypes[d]) != 0;
        for (int i = 0; i < SIZES; i++) {
            const char *op = i % 3 == 2 ? "amax" : "sum";
            text[i] = light(dtypes[d], op, rows[i], lengths[i], (i + d) % 4 == 3);
            bool varies = (i + d) % 4 == 3, woven = rows[i] >= 4 && !half;
            if (!varies && lengths[i] != 1)
                assert_int_equal(source_has(text[i], "#pragma GCC unroll 4\n"),
                                 woven && lengths[i] > 8);
        }
        check_and_free(text, SIZES);
    }
}

/* Strips of 1024 bytes, as they are computed, and their tails; shorter rows are lanes. */
static void test_strips(void **state) {
    (void)state;
    static const int lengths[] = {20, 127, 128, 255, 256, 257, 700};
    static const int rows[] = {70, 5, 7, 2, 4, 1, 2};
    static const char *const floats[] = {"f32", "f64", "f16", "bf16"};
    enum { SIZES = sizeof lengths / sizeof *lengths };
    for (int d = 0; d < 4; d++) {
        char *text[SIZES];
        for (int i = 0; i < SIZES; i++) {
            bool varies = (i + d) % 4 == 3;
            text[i] = heavy(floats[d], rows[i], lengths[i], varies);
            if (!varies)
                assert_int_equal(source_has(text[i], "l = k + j;"),
                                 lengths[i] >= (d == 1 ? 128 : 256));
        }
        check_and_free(text, SIZES);
    }
}

/* What is stored in order, and what goes over several inner axes or reads across the rows. */
static void test_others(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel planes(outer a0:9, inner a1:11, inner a2:40) row split 1 { b0: in f32[3960]"
        " b1: out f32[3960] t0 = f32 load b0[(((a0*440)+(a1*40))+a2)] t1 = f32 scan sum t0"
        " store b1[(((a0*440)+(a1*40))+a2)] = t1 }",
        "kernel heavy_planes(outer a0:3, inner a1:3, inner a2:300) row split 1 { b0: in f32[2700]"
        " b1: out f32[2700] t0 = f32 load b0[(((a0*900)+(a1*300))+a2)] t1 = f32 tanh t0"
        " t2 = f32 exp t1 t3 = f32 scan prod t2 store b1[(((a0*900)+(a1*300))+a2)] = t3 }",
        "kernel turned(outer a0:70, inner a1:300) row split 1 { b0: in i64[21000]"
        " b1: out i64[21000] t0 = i64 load b0[((a1*70)+a0)] t1 = i64 scan sum t0"
        " store b1[((a0*300)+a1)] = t1 }",
        "kernel counted(outer a0:6, inner a1:300) row split 1 { b0: in f32[6] b1: out i64[1800]"
        " b2: out f32[1800] t0 = i64 scan sum 1:i64 t1 = i64 scan sum [a1] t2 = i64 add t0, t1"
        " t3 = f32 load b0[a0] t4 = f32 exp t3 t5 = f32 scan sum t4"
        " store b1[((a0*300)+a1)] = t2 store b2[((a0*300)+a1)] = t5 }",
        "kernel of_scans(outer a0:2, inner a1:130) row split 1 { b0: in f64[260] b1: out f64[260]"
        " t0 = f64 load b0[((a0*130)+a1)] t1 = f64 exp t0 t2 = f64 scan sum t1 t3 = f64 exp t0"
        " t4 = f64 sub t2, t3 t5 = f64 scan amax t4 store b1[((a0*130)+a1)] = t5 }",
        "kernel chosen(outer a0:7, inner a1:22) row split 1 { b0: in i64[1] b1: in i64[154]"
        " b2: out i64[154] t0 = i64 load b0[0] t1 = i64 load b1[(a1+(t0*22))] t2 = i64 scan sum t1"
        " store b2[((a0*22)+a1)] = t2 }",
        "kernel bins(outer a0:6, inner a1:300) row split 1 { b0: in f32[1800] b1: in i64[1800]"
        " b2: inout f32[42] t0 = f32 load b0[((a0*300)+a1)] t1 = i64 load b1[((a0*300)+a1)]"
        " t2 = f32 exp t0 t3 = f32 scan amax t2 add b2[((a0*7)+t1)] = t3 }",
        "kernel crossing(outer a0:64, outer a1:32, inner a2:4) tile split 1 { b0: in f64[262144]"
        " b1: out f64[8192] t0 = f64 load b0[(((a1*256)+(a0*4))+a2)] t1 = f64 scan sum t0"
        " store b1[(((a0*128)+(a1*4))+a2)] = t1 }",
    };
    check_all(text, sizeof text / sizeof *text);
}

int main(void) {
    cb_set_option("cache", "0");
    quarters = false;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_woven),
        cmocka_unit_test(test_strips),
        cmocka_unit_test(test_others),
    };
    int failed = cmocka_run_group_tests_name("codegen of scans along rows", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
