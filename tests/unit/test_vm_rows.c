/* Blocks of the vector VM that have several rows or points, and rows that an index chose, against
 * the definition of kernels (kernel_reference.h). */
#include "test_support.h"

#include "kernel_vm.h"

/* Rows that share a block, of several outer axes, the last block with fewer; values by row, by lane
 * and by both; rows with a place of their own, which do not. */
static void test_rows_together(void **state) {
    (void)state;
    CHECK("kernel softmax(outer a0:3, outer a1:37, inner a2:117) row split 1 { b0: in f32[12987]"
          " b1: out f32[12987] t0 = f32 load b0[((a0*4329)+((a1*117)+a2))] t1 = f32 reduce amax t0"
          " t2 = f32 sub t0, t1 t3 = f32 exp t2 t4 = f32 reduce sum t3 t5 = f32 div t3, t4"
          " store b1[((a0*4329)+((a1*117)+a2))] = t5 }",
          "kernel norm(outer a0:90, inner a1:60) row split 1 { b0: in bf16[5400] b1: in f32[60]"
          " b2: in f32[90] b3: out bf16[5400] b4: out f32[90] t0 = f32 load b0[((a0*60)+a1)]"
          " t1 = f32 reduce sum t0 t2 = f32 div t1, 60:f32 t3 = f32 sub t0, t2 t4 = f32 square t3"
          " t5 = f32 reduce sum t4 t6 = f32 sqrt t5 t7 = f32 div t3, t6 t8 = f32 load b1[a1]"
          " t9 = f32 mul t7, t8 t10 = f32 load b2[a0] t11 = f32 add t9, t10 t12 = f32 to f32 [a0]"
          " t13 = f32 mul t6, t12 t14 = bool lt [a1], [a0] t15 = f32 where t14, t11, t13"
          " store b3[((a0*60)+a1)] = t15 store b4[a0] = t13 }",
          "kernel turned(outer a0:70, inner a1:80) row split 1 { b0: in f64[5600] b1: in f64[2]"
          " b2: out f64[70] b3: out f64[5600] t0 = f64 load b0[((a1*70)+a0)] t1 = f64 load b1[1]"
          " t2 = f64 mul t0, t1 t3 = f64 reduce amin t2 store b2[((a0*-1)+69)] = t3"
          " store b3[((a1*70)+a0)] = t2 }",
          "kernel scans(outer a0:65, inner a1:49) row split 1 { b0: in f32[3185] b1: out f32[3185]"
          " t0 = f32 load b0[((a0*49)+a1)] t1 = f32 scan sum t0 t2 = f32 reduce amax t1"
          " t3 = f32 sub t1, t2 store b1[((a0*49)+a1)] = t3 }",
          "kernel chosen(outer a0:67, inner a1:50) row split 1 { b0: in i64[67] b1: in f32[4000]"
          " b2: out f32[67] t0 = i64 load b0[a0] t1 = f32 load b1[((t0*50)+a1)]"
          " t2 = f32 reduce sum t1 store b2[a0] = t2 }",
          "kernel gathered(outer a0:66, inner a1:50) row split 1 { b0: in i64[3300] b1: in f32[77]"
          " b2: out f32[66] t0 = i64 load b0[((a0*50)+a1)] t1 = f32 load b1[t0]"
          " t2 = f32 reduce sum t1 store b2[a0] = t2 }",
          "kernel padded(outer a0:70, inner a1:64) row split 1 { b0: in u8[2240] b1: in bool[4480]"
          " b2: out u8[70] b3: out bool[70] b4: out i64[70] t0 = bool lt [a1], 32:i64"
          " t1 = u8 load b0[((a0*32)+a1)] if t0 t2 = u8 reduce amax t1 t3 = bool load "
          "b1[((a0*64)+a1)]"
          " t4 = bool reduce any t3 t5 = i64 to i64 t3 t6 = i64 reduce sum t5 store b2[a0] = t2"
          " store b3[a0] = t4 store b4[a0] = t6 }",
          "kernel longest(outer a0:64, inner a1:512) row split 1 { b0: in f16[32768] b1: out "
          "f16[32768]"
          " t0 = f32 load b0[((a0*512)+a1)] t1 = f32 reduce amax t0 t2 = f32 sub t0, t1"
          " store b1[((a0*512)+a1)] = t2 }");
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Program *program = program_build(
        parse(arena, "kernel sums(outer a0:90, inner a1:100) row split 1 { b0: in f32[9000] b1: "
                     "out f32[90] t0 = f32 load b0[((a0*100)+a1)] t1 = f32 reduce sum t0"
                     " store b1[a0] = t1 }"),
        false);
    assert_non_null(program);
    assert_true(program->rows > 4);
    program_free(program);
    arena_free(arena);
}

/* Rows that an index chose, whole and in parts; elements that go as they are, turned about too. */
static void test_moves(void **state) {
    (void)state;
    CHECK(
        "kernel turned(outer a0:28, outer a1:64) tile split 1 { b0: in i64[28]"
        " b1: in f32[1792] b2: out f32[1792] t0 = i64 load b0[(((a0%7)*4)+(a0/7))]"
        " t1 = f32 load b1[((t0*64)+a1)] store b2[((a0*64)+a1)] = t1 }",
        "kernel chosen(outer a0:3, outer a1:40, outer a2:31) tile split 1 { b0: in i64[40]"
        " b1: in i16[6000] b2: out i16[3720] t0 = i64 load b0[a1]"
        " t1 = i16 load b1[(((t0*31)+(a0*1000))+a2)]"
        " store b2[((a0*1240)+((a1*31)+a2))] = t1 }",
        "kernel scaled(outer a0:70, outer a1:9) tile split 1 { b0: in i64[70] b1: in f32[1800]"
        " b2: in f32[70] b3: out f32[630] b4: out i32[630] t0 = i64 load b0[a0]"
        " t1 = f32 load b1[((t0+(a0*10))+(a1*3))] t2 = f32 load b2[a0] t3 = f32 mul t1, t2"
        " t4 = i32 to i32 [a0] t5 = i32 to i32 [a1] t6 = i32 mul t4, t5 store b3[((a0*9)+a1)] = t3"
        " store b4[((a0*9)+a1)] = t6 }",
        "kernel masked(outer a0:50, outer a1:64) tile split 1 { b0: in i64[50] b1: in u8[4000]"
        " b2: out u8[3200] t0 = i64 load b0[a0] t1 = bool lt [a1], 40:i64"
        " t2 = u8 load b1[((t0*40)+a1)] if t1 store b2[((a0*64)+a1)] = t2 }",
        "kernel flipped(outer a0:7, outer a1:133) tile split 1 { b0: in u8[931] b1: in i16[931]"
        " b2: out u8[931] b3: out i16[931] t0 = u8 load b0[(((a0*133)+(a1*-1))+132)]"
        " t1 = i16 load b1[(((a0*133)+(a1*-1))+132)] store b2[((a0*133)+a1)] = t0"
        " store b3[((a0*133)+a1)] = t1 }",
        "kernel backwards(outer a0:1003) tile split 1 { b0: in u8[1003] b1: out u8[1003]"
        " t0 = u8 load b0[((a0*-1)+1002)] store b1[a0] = t0 }",
        "kernel halves(outer a0:1003) tile split 1 { b0: in f16[2006] b1: out f16[1003]"
        " t0 = f32 load b0[(a0*2)] store b1[a0] = t0 }");
}

/* Inner points that share a block, with the lanes of a row each. */
static void test_points_together(void **state) {
    (void)state;
    CHECK(
        "kernel sums(outer a0:17, inner a1:1001) tile split 3 { b0: in f32[17017] b1: out f32[17]"
        " b2: out f32[17] t0 = f32 load b0[((a1*17)+a0)] t1 = f32 reduce sum t0 t2 = f32 reduce "
        "amin t0"
        " store b1[a0] = t1 store b2[a0] = t2 }",
        "kernel positions(outer a0:17, inner a1:301) tile split 1 { b0: in f32[5117] b1: out "
        "i64[17]"
        " t0 = f32 load b0[((a1*17)+a0)] t1 = f32 reduce amax t0 t2 = bool eq t0, t1"
        " t3 = i32 to i32 [a1] t4 = i32 to i32 [a0] t5 = i32 add t3, t4 t6 = i32 where t2, t5, "
        "900:i32"
        " t7 = i32 reduce amin t6 t8 = i64 to i64 t7 store b1[a0] = t8 }",
        "kernel columns(outer a0:3, outer a1:40, inner a2:50) tile split 1 { b0: in bf16[6000]"
        " b1: in f32[50] b2: in f32[40] b3: out bf16[6000] b4: out f32[120]"
        " t0 = f32 load b0[((a0*2000)+((a2*40)+a1))] t1 = f32 load b1[a2] t2 = f32 load b2[a1]"
        " t3 = f32 mul t0, t1 t4 = f32 add t3, t2 t5 = f32 reduce sum t4 t6 = f32 div t5, 50:f32"
        " t7 = f32 sub t4, t6 store b3[((a0*2000)+((a2*40)+a1))] = t7 store b4[((a0*40)+a1)] = t5 "
        "}",
        "kernel narrow(outer a0:9, inner a1:200) tile split 1 { b0: in u8[1800] b1: in bool[1800]"
        " b2: out u8[9] b3: out bool[9] b4: out i64[9] t0 = u8 load b0[((a1*9)+a0)]"
        " t1 = u8 reduce sum t0 t2 = bool load b1[((a1*9)+a0)] t3 = bool reduce any t2"
        " t4 = i64 to i64 t2 t5 = i64 reduce sum t4 store b2[a0] = t1 store b3[a0] = t3"
        " store b4[a0] = t5 }",
        "kernel chosen(outer a0:30, inner a1:70) tile split 2 { b0: in i64[70] b1: in f64[2400]"
        " b2: out f64[30] t0 = i64 load b0[a1] t1 = bool lt [a1], 40:i64"
        " t2 = f64 load b1[((t0*30)+a0)] if t1 t3 = f64 reduce sum t2 store b2[a0] = t3 }");
    /* a thread has whole rows of lanes: parts take longer */
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Kernel *kernel =
        parse(arena, "kernel sums(outer a0:169, inner a1:1150) tile split 1 { b0: in f32[194350]"
                     " b1: out f32[169] t0 = f32 load b0[((a1*169)+a0)] t1 = f32 reduce sum t0"
                     " store b1[a0] = t1 }");
    kernel->bytes = 1 << 20;
    Launch launch;
    assert_true(launch_init(&launch, kernel, NULL, false));
    assert_true(launch.program->points > 1);
    assert_true(launch.grain % 169 == 0);
    launch_free(&launch);
    arena_free(arena);
}

/* How many points a block has is by what else the kernel computes; a sum is not. */
static void test_sums_beside_others(void **state) {
    (void)state;
    enum { LANES = 17, POINTS = 300 };
    static const char *const text[] = {
        "kernel alone(outer a0:17, inner a1:300) tile split 1 { b0: in f64[5100] b1: out f64[17]"
        " b2: out f64[17] t0 = f64 load b0[((a1*17)+a0)] t1 = f64 reduce sum t0"
        " store b1[a0] = t1 }",
        "kernel beside(outer a0:17, inner a1:300) tile split 1 { b0: in f64[5100] b1: out f64[17]"
        " b2: out f64[17] t0 = f64 load b0[((a1*17)+a0)] t1 = f64 reduce sum t0 t2 = f64 exp t0"
        " t3 = f64 sin t0 t4 = f64 cos t0 t5 = f64 tanh t0 t6 = f64 mul t2, t3 t7 = f64 mul t4, t5"
        " t8 = f64 add t6, t7 t9 = f64 mul t8, t2 t10 = f64 mul t9, t3 t11 = f64 mul t10, t4"
        " t12 = f64 mul t11, t5 t13 = f64 reduce sum t12 store b1[a0] = t1 store b2[a0] = t13 }"};
    double x[POINTS * LANES], sum[2][LANES], other[LANES];
    int64_t points[2];
    for (int i = 0; i < POINTS * LANES; i++) x[i] = sin(i);
    for (int k = 0; k < 2; k++) {
        Arena *arena = arena_new();
        assert_int_equal(arena_guard(arena), 0);
        Program *program = program_build(parse(arena, text[k]), false);
        assert_non_null(program);
        points[k] = program->points;
        program_run(program, (void *[]){x, sum[k], other}, 0, LANES, 0, NULL);
        program_free(program);
        arena_free(arena);
    }
    assert_true(points[0] > points[1] && points[1] > 1);
    assert_memory_equal(sum[0], sum[1], sizeof sum[0]);
}

int main(void) {
    (void)compile, (void)check_kernel; /* of kernel_run.h, for generated code */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_together),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_points_together),
        cmocka_unit_test(test_sums_beside_others),
    };
    return cmocka_run_group_tests_name("vm_rows", tests, NULL, NULL);
}
