/* The vector VM against the definition of kernels (kernel_reference.h), every row of the op table
 * against the constant folder, the instruction sets against each other, the oracle, and memory that
 * runs out. */
#include "test_support.h"

#include "base/cpu.h"
#include "kernel_vm.h"

/* ---- kernels as text ------------------------------------------------------------------------- */

static void test_pointwise(void **state) {
    (void)state;
    CHECK(
        "kernel chain(outer a0:3000) tile split 1 { b0: in f32[3000] b1: in f32[1] b2: out "
        "f32[3000]"
        " t0 = f32 load b0[a0] t1 = f32 load b1[0] t2 = f32 mul t0, t1 t3 = f32 exp t2 t4 = f32 "
        "sub 1:f32, t3"
        " t5 = f32 maximum t4, t0 t6 = bool gt t5, 0.5:f32 t7 = f32 where t6, t1, t5 t8 = f32 div "
        "t7, t3"
        " store b2[a0] = t8 }",
        "kernel two_results(outer a0:90, outer a1:11) tile split 1 { b0: in f64[990] b1: out "
        "f64[990]"
        " b2: out i32[990] t0 = f64 load b0[((a1*90)+a0)] t1 = f64 neg t0 t2 = i32 to i32 t1"
        " store b1[((a0*11)+a1)] = t1 store b2[((a0*11)+a1)] = t2 }",
        "kernel plain_copy(outer a0:513) tile split 1 { b0: in i16[513] b1: out i16[513] t0 = i16 "
        "load b0[a0]"
        " store b1[a0] = t0 }",
        "kernel constant(outer a0:7, outer a1:300) tile split 1 { b0: out f32[2100] b1: out "
        "i64[2100]"
        " t0 = f32 to f32 [a0] t1 = f32 mul t0, 0.5:f32 store b0[((a0*300)+a1)] = t1"
        " store b1[((a0*300)+a1)] = 4:i64 }",
        "kernel no_axis(outer a0:1) tile split 1 { b0: in f32[1] b1: out f32[1] t0 = f32 load b0[0]"
        " t1 = f32 exp t0 store b1[0] = t1 }",
        "kernel no_points(outer a0:4, outer a1:0) tile split 1 { b0: in f32[1] b1: out f32[1]"
        " t0 = f32 load b0[0] store b1[a1] = t0 }");
}

static void test_views(void **state) {
    (void)state;
    CHECK(
        "kernel transpose(outer a0:150, outer a1:290) tile split 1 { b0: in f32[43500] b1: out "
        "f32[43500]"
        " t0 = f32 load b0[((a1*150)+a0)] store b1[((a0*290)+a1)] = t0 }",
        "kernel permute(outer a0:37, outer a1:3, outer a2:140) tile split 1 { b0: in u8[15540]"
        " b1: in f64[15540] b2: out f64[15540] t0 = u8 load b0[(((a2*111)+(a1*37))+a0)]"
        " t1 = f64 load b1[(((a1*5180)+(a2*37))+a0)] t2 = f64 to f64 t0 t3 = f64 add t1, t2"
        " store b2[(((a0*420)+(a1*140))+a2)] = t3 }",
        "kernel turned_rows(outer a0:20, outer a1:200, inner a2:3) tile split 1 { b0: in f16[12000]"
        " b1: out f32[4000] t0 = f32 load b0[((a1*60)+((a2*20)+a0))] t1 = f32 reduce sum t0"
        " store b1[((a0*200)+a1)] = t1 }",
        "kernel turned_sums(outer a0:200, outer a1:40, inner a2:3) tile split 1 { b0: in f32[24000]"
        " b1: out f32[8000] t0 = f32 load b0[((a1*600)+((a2*200)+a0))] t1 = f32 reduce sum t0"
        " store b1[((a0*40)+a1)] = t1 }",
        "kernel reshape(outer a0:9, outer a1:140) tile split 1 { b0: in i8[1260] b1: out i8[1260]"
        " t0 = i8 load b0[((((((a0*140)+a1)/7)%12)*105)+((((a0*140)+a1)/84)*7))] t1 = i8 add t0, "
        "100:i8"
        " store b1[((a0*140)+a1)] = t1 }",
        "kernel flip(outer a0:70) tile split 1 { b0: in f32[210] b1: out f32[70]"
        " t0 = f32 load b0[((a0*-3)+207)] store b1[a0] = t0 }",
        "kernel pad(outer a0:5, outer a1:200) tile split 1 { b0: in bf16[600] b1: out bf16[1000]"
        " t0 = bool ge [a1], 40:i64 t1 = bool lt [a1], 160:i64 t2 = bool logical_and t0, t1"
        " t3 = f32 load b0[((a0*120)+(a1+-40))] if t2 store b1[((a0*200)+a1)] = t3 }",
        "kernel skip_rows(outer a0:6, outer a1:70) tile split 1 { b0: in f32[210] b1: out f32[420]"
        " t0 = bool lt [a0], 3:i64 t1 = f32 load b0[((a0*70)+a1)] if t0 store b1[((a0*70)+a1)] = "
        "t1 if t0 }",
        "kernel gather(outer a0:40, outer a1:11) tile split 1 { b0: in i64[40] b1: in f32[77] b2: "
        "in i64[11]"
        " b3: out f32[440] t0 = i64 load b0[a0] t1 = f32 load b1[((t0*11)+a1)] t2 = i64 load b2[a1]"
        " t3 = f32 load b1[(t2+(t0*3))] t4 = f32 mul t1, t3 store b3[((a0*11)+a1)] = t4 }",
        "kernel scatter(outer a0:90, inner a1:40) tile split 1 { b0: in f32[3600] b1: in i64[40]"
        " b2: inout f32[630] t0 = f32 load b0[((a1*90)+a0)] t1 = i64 load b1[a1]"
        " add b2[((t1*90)+a0)] = t0 }",
        "kernel count(outer a0:3, inner a1:100) row split 1 { b0: in i64[300] b1: inout i32[21]"
        " t0 = i64 load b0[((a0*100)+a1)] add b1[((a0*7)+t0)] = 1:i32 }",
        "kernel swap(outer a0:77) tile split 1 { b0: inout f32[77] b1: inout f32[77] t0 = f32 load "
        "b0[a0]"
        " t1 = f32 load b1[a0] store b0[a0] = t1 store b1[a0] = t0 }");
}

static void test_reductions(void **state) {
    (void)state;
    CHECK(
        "kernel softmax(outer a0:5, inner a1:2500) row split 1 { b0: in f32[12500] b1: out "
        "f32[12500]"
        " t0 = f32 load b0[((a0*2500)+a1)] t1 = f32 reduce amax t0 t2 = f32 sub t0, t1 t3 = f32 "
        "exp t2"
        " t4 = f32 reduce sum t3 t5 = f32 div t3, t4 store b1[((a0*2500)+a1)] = t5 }",
        "kernel norm(outer a0:3, inner a1:4, inner a2:60) row split 1 { b0: in f16[720] b1: in "
        "f32[240]"
        " b2: out f16[720] b3: out f32[3] t0 = f32 load b0[(((a0*240)+(a1*60))+a2)] t1 = f32 "
        "reduce sum t0"
        " t2 = f32 div t1, 240:f32 t3 = f32 sub t0, t2 t4 = f32 square t3 t5 = f32 reduce sum t4"
        " t6 = f32 sqrt t5 t7 = f32 div t3, t6 t8 = f32 load b1[((a1*60)+a2)] t9 = f32 mul t7, t8"
        " t10 = f32 tanh t9 store b2[(((a0*240)+(a1*60))+a2)] = t10 store b3[a0] = t6 }",
        "kernel late_row(outer a0:4, inner a1:30) row split 1 { b0: in f32[120] b1: out f32[120]"
        " t0 = f32 load b0[((a0*30)+a1)] t1 = f32 reduce amax t0 t2 = f32 exp t0 t3 = f32 sub t2, "
        "t1"
        " t4 = f32 reduce sum t3 t5 = f32 add t2, t4 store b1[((a0*30)+a1)] = t5 }",
        "kernel columns(outer a0:2, outer a1:1500, inner a2:20) tile split 1 { b0: in f32[60000]"
        " b1: out f32[3000] b2: out f32[3000] t0 = f32 load b0[(((a0*30000)+(a2*1500))+a1)]"
        " t1 = f32 reduce sum t0 t2 = f32 reduce amin t0 store b1[((a0*1500)+a1)] = t1"
        " store b2[((a0*1500)+a1)] = t2 }",
        "kernel column_softmax(outer a0:70, inner a1:300) tile split 1 { b0: in f32[21000] b1: out "
        "f32[21000]"
        " t0 = f32 load b0[((a1*70)+a0)] t1 = f32 reduce amax t0 t2 = f32 sub t0, t1 t3 = f32 exp "
        "t2"
        " t4 = f32 reduce sum t3 t5 = f32 div t3, t4 store b1[((a1*70)+a0)] = t5 }",
        "kernel uniform(outer a0:40, inner a1:9) tile split 1 { b0: in f32[9] b1: out f32[40]"
        " t0 = f32 load b0[a1] t1 = f32 reduce sum t0 t2 = f32 to f32 [a0] t3 = f32 mul t1, t2"
        " store b1[a0] = t3 }",
        "kernel dtypes(outer a0:3, inner a1:200) row split 1 { b0: in u8[600] b1: in i16[600] b2: "
        "in bool[600]"
        " b3: out u8[3] b4: out i16[3] b5: out bool[3] b6: out bool[3] b7: out i64[3] b8: out "
        "i32[3]"
        " t0 = u8 load b0[((a0*200)+a1)] t1 = i16 load b1[((a0*200)+a1)] t2 = bool load "
        "b2[((a0*200)+a1)]"
        " t3 = u8 reduce amin t0 t4 = i16 reduce amax t1 t5 = bool reduce any t2 t6 = bool reduce "
        "amin t2"
        " t7 = i64 to i64 t2 t8 = i64 reduce sum t7 t9 = i32 to i32 t1 t10 = i32 reduce prod t9"
        " store b3[a0] = t3 store b4[a0] = t4 store b5[a0] = t5 store b6[a0] = t6 store b7[a0] = t8"
        " store b8[a0] = t10 }",
        "kernel empty(outer a0:3, inner a1:0) row split 1 { b0: in f32[0] b1: out f32[3] b2: out "
        "f32[3]"
        " t0 = f32 load b0[a1] t1 = f32 reduce sum t0 t2 = f32 reduce amax t0 store b1[a0] = t1"
        " store b2[a0] = t2 }",
        "kernel everything(inner a0:9) tile split 1 { b0: in i32[9] b1: out i32[1] t0 = i32 load "
        "b0[a0]"
        " t1 = i32 reduce sum t0 store b1[0] = t1 }");
}

static void test_scans(void **state) {
    (void)state;
    CHECK("kernel cumsum(outer a0:3, outer a1:130, inner a2:25) tile split 1 { b0: in f32[9750]"
          " b1: out f32[9750] t0 = f32 load b0[(((a0*3250)+(a2*130))+a1)] t1 = f32 scan sum t0"
          " store b1[(((a0*3250)+(a2*130))+a1)] = t1 }",
          "kernel rows(outer a0:4, inner a1:1500) row split 1 { b0: in f64[6000] b1: out f64[6000]"
          " t0 = f64 load b0[((a0*1500)+a1)] t1 = f64 scan sum t0 t2 = f64 reduce amax t1"
          " t3 = f64 sub t1, t2 store b1[((a0*1500)+a1)] = t3 }",
          "kernel largest(outer a0:80, inner a1:12) tile split 1 { b0: in i8[960] b1: out i8[960]"
          " t0 = i8 load b0[((a1*80)+a0)] t1 = i8 scan amax t0 store b1[((a1*80)+a0)] = t1 }");
    /* many rows that lie one after the other: long ones along them, short ones across a few */
    CHECK("kernel many(outer a0:130, inner a1:1100) row split 1 { b0: in i64[143000]"
          " b1: out i64[143000] t0 = i64 load b0[((a0*1100)+a1)] t1 = i64 scan sum t0"
          " store b1[((a0*1100)+a1)] = t1 }",
          "kernel many_short(outer a0:1300, inner a1:47) row split 1 { b0: in f32[61100]"
          " b1: out f32[61100] t0 = f32 load b0[((a0*47)+a1)] t1 = f32 scan sum t0"
          " store b1[((a0*47)+a1)] = t1 }",
          "kernel turned(outer a0:70, inner a1:300) row split 1 { b0: in f64[21000]"
          " b1: out f64[21000] t0 = f64 load b0[((a1*70)+a0)] t1 = f64 scan prod t0"
          " store b1[((a0*300)+a1)] = t1 }");
}

static void test_splits(void **state) {
    (void)state;
    CHECK(
        "kernel total(inner a0:10007) row split 8 { b0: in f64[10007] b1: in f64[1] b2: out f64[1]"
        " t0 = f64 load b0[a0] t1 = f64 load b1[0] t2 = f64 mul t0, t1 t3 = f64 relu t2"
        " t4 = f64 reduce sum t3 store b2[0] = t4 }",
        "kernel softmax(outer a0:2, inner a1:900) row split 7 { b0: in f32[1800] b1: out f32[1800]"
        " b2: out f32[2] t0 = f32 load b0[((a0*900)+a1)] t1 = f32 reduce amax t0 t2 = f32 sub t0, "
        "t1"
        " t3 = f32 exp t2 t4 = f32 reduce sum t3 t5 = f32 div t3, t4 store b1[((a0*900)+a1)] = t5"
        " t6 = f32 log t4 store b2[a0] = t6 }",
        "kernel columns(outer a0:3, outer a1:50, inner a2:41) tile split 4 { b0: in f32[6150] b1: "
        "out f32[150]"
        " b2: out i16[150] t0 = f32 load b0[(((a0*2050)+(a2*50))+a1)] t1 = f32 reduce sum t0"
        " t2 = f32 sub t0, t1 t3 = i16 to i16 t2 t4 = i16 reduce amin t3 store b1[((a0*50)+a1)] = "
        "t1"
        " store b2[((a0*50)+a1)] = t4 }",
        "kernel plane(outer a0:3, inner a1:11, inner a2:20) row split 5 { b0: in f32[660] b1: out "
        "bool[3]"
        " t0 = f32 load b0[(((a1*60)+(a0*20))+a2)] t1 = bool gt t0, 1.9:f32 t2 = bool reduce any t1"
        " store b1[a0] = t2 }",
        "kernel thin(inner a0:9) row split 4 { b0: in f32[9] b1: out f32[1] t0 = f32 load b0[a0]"
        " t1 = f32 reduce prod t0 store b1[0] = t1 }");
}

static void test_dtypes(void **state) {
    (void)state;
    CHECK(
        "kernel wraps(outer a0:500) tile split 1 { b0: in u8[500] b1: in i8[500] b2: in i16[500]"
        " b3: out u8[500] b4: out i8[500] b5: out i16[500] b6: out bool[500] t0 = u8 load b0[a0]"
        " t1 = i8 load b1[a0] t2 = i16 load b2[a0] t3 = u8 mul t0, 7:u8 t4 = u8 sub t3, t0"
        " t5 = i8 mul t1, t1 t6 = i8 neg t5 t7 = i16 mul t2, 999:i16 t8 = i16 bitwise_not t7"
        " t9 = i16 floor_divide t8, 7:i16 t10 = bool lt t6, t1 t11 = bool bitwise_not t10"
        " t12 = bool add t11, t10 t13 = bool logical_xor t12, t11 store b3[a0] = t4 store b4[a0] = "
        "t6"
        " store b5[a0] = t9 store b6[a0] = t13 }",
        "kernel converts(outer a0:400) tile split 1 { b0: in f64[400] b1: out u8[400] b2: out "
        "i32[400]"
        " b3: out i64[400] b4: out bool[400] b5: out i16[400] t0 = f64 load b0[a0]"
        " t1 = f64 mul t0, 1000000:f64 t2 = u8 to u8 t1 t3 = i32 to i32 t1 t4 = f64 mul t1, "
        "1000000:f64"
        " t5 = i64 to i64 t4 t6 = bool to bool t0 t7 = i16 to i16 t3 store b1[a0] = t2 store "
        "b2[a0] = t3"
        " store b3[a0] = t5 store b4[a0] = t6 store b5[a0] = t7 }",
        "kernel widens(outer a0:100) tile split 1 { b0: in i64[100] b1: in bool[100] b2: in u8[100]"
        " b3: out f32[100] b4: out i32[100] t0 = i64 load b0[a0] t1 = bool load b1[a0] t2 = u8 "
        "load b2[a0]"
        " t3 = i64 to i64 t1 t4 = i64 add t0, t3 t5 = f32 to f32 t4 t6 = i32 to i32 t2"
        " t7 = i32 left_shift t6, 3:i32 store b3[a0] = t5 store b4[a0] = t7 }",
        "kernel random(outer a0:100) tile split 1 { b0: in i64[2] b1: out i64[100] t0 = i64 load "
        "b0[0]"
        " t1 = i64 load b0[1] t2 = i64 philox t0, t1, [a0] store b1[a0] = t2 }");
}

/* A value rounded to f16 or bf16 in between, which the oracle does not do. */
static void test_rounding(void **state) {
    (void)state;
    enum { COUNT = 300 };
    float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = (float)next_random() / 3e5f;
    Arena *arena = arena_new();
    Kernel *kernel =
        parse(arena, "kernel halves(outer a0:300) tile split 1 { b0: in f32[300] b1: out f32[300]"
                     " t0 = f32 load b0[a0] t1 = f32 to f16 t0 t2 = f32 to bf16 t0"
                     " t3 = f32 sub t1, t2 store b1[a0] = t3 }");
    for (int oracle = 0; oracle < 2; oracle++) {
        current = program_build(kernel, oracle);
        program_run(current, (void *[]){x, y}, 0, COUNT, 0, NULL);
        program_free(current);
        for (int i = 0; i < COUNT; i++) {
            float wanted = f16_to_f32(f16_from_f32(x[i])) - bf16_to_f32(bf16_from_f32(x[i]));
            assert_true(y[i] == (oracle ? 0 : wanted));
        }
    }
    arena_free(arena);
}

/* ---- precision ------------------------------------------------------------------------------- */

static float run_sum(const char *text, const float *x, bool oracle) {
    Arena *arena = arena_new();
    Kernel *kernel = parse(arena, text);
    current = program_build(kernel, oracle);
    float y[1];
    program_run(current, (void *[]){(void *)(uintptr_t)x, y}, 0, 1, 0, NULL);
    program_free(current);
    arena_free(arena);
    return y[0];
}

/* A million times 0.1: a running f32 sum would be off by 1 %. */
static void test_long_sums(void **state) {
    (void)state;
    enum { COUNT = 1000000 };
    float *x = malloc(COUNT * sizeof *x);
    double wanted = 0;
    for (int i = 0; i < COUNT; i++) x[i] = 0.1f + (float)(i % 3), wanted += x[i];
    float row =
        run_sum("kernel s(inner a0:1000000) row split 1 { b0: in f32[1000000] b1: out f32[1]"
                " t0 = f32 load b0[a0] t1 = f32 reduce sum t0 store b1[0] = t1 }",
                x, false);
    float tile =
        run_sum("kernel s(outer a0:1, inner a1:1000000) tile split 1 { b0: in f32[1000000]"
                " b1: out f32[1] t0 = f32 load b0[a1] t1 = f32 reduce sum t0 store b1[a0] = t1 }",
                x, false);
    float oracle = run_sum(
        "kernel s(inner a0:1000000) row split 1 { b0: in f32[1000000] b1: out f32[1]"
        " t0 = f32 load b0[a0] t1 = f32 mul t0, 1:f32 t2 = f32 reduce sum t1 store b1[0] = t2 }",
        x, true);
    assert_true(fabs(row - wanted) < 2e-6 * wanted);
    assert_true(fabs(tile - wanted) < 2e-7 * wanted);
    assert_true(oracle == (float)wanted);
    free(x);
}

/* The output may share its memory with an input of the same places. */
static void test_in_place(void **state) {
    (void)state;
    enum { ROWS = 3, COLUMNS = 1300, COUNT = ROWS * COLUMNS };
    static const char *const text[] = {
        "kernel p(outer a0:3900) tile split 1 { b0: in f32[3900] b1: out f32[3900] t0 = f32 load "
        "b0[a0]"
        " t1 = f32 exp t0 t2 = f32 mul t1, t0 t3 = f32 sub t2, t1 store b1[a0] = t3 }",
        "kernel two(outer a0:3900) tile split 1 { b0: in f32[3900] b1: out f32[3900] b2: out "
        "f32[3900]"
        " t0 = f32 load b0[a0] t1 = f32 exp t0 t2 = f32 mul t0, 3:f32 store b1[a0] = t1 store "
        "b2[a0] = t2 }",
        "kernel s(outer a0:3, inner a1:1300) row split 1 { b0: in f32[3900] b1: out f32[3900]"
        " t0 = f32 load b0[((a0*1300)+a1)] t1 = f32 reduce amax t0 t2 = f32 sub t0, t1 t3 = f32 "
        "reduce sum t2"
        " t4 = f32 div t2, t3 store b1[((a0*1300)+a1)] = t4 }"};
    for (int k = 0; k < 3; k++) {
        float x[COUNT], y[COUNT], z[2][COUNT];
        Arena *arena = arena_new();
        for (int i = 0; i < COUNT; i++) x[i] = y[i] = (float)(next_random() % 1000) / 500 - 1;
        current = program_build(parse(arena, text[k]), false);
        int64_t points = k == 2 ? ROWS : COUNT;
        program_run(current, (void *[]){x, z[0], z[1]}, 0, points, 0, NULL);
        memcpy(x, z[1], sizeof x);
        program_run(current, (void *[]){y, y, z[1]}, 0, points, 0, NULL);
        assert_memory_equal(z[0], y, sizeof y);
        if (k == 1) assert_memory_equal(x, z[1], sizeof x);
        program_free(current);
        arena_free(arena);
    }
}

/* ---- rows of the op table -------------------------------------------------------------------- */

static const double special[] = {0.0,  -0.0, 1.0,   -1.0, 0.5,      2.0,       3.25,
                                 -7.5, 1e30, 1e-40, 100,  INFINITY, -INFINITY, NAN};
enum { SPECIALS = sizeof special / sizeof *special, GRID = SPECIALS * SPECIALS };

/* With b a tensor (shape 0), a number on the right (1), on the left (2). */
static Kernel *op_kernel(Arena *arena, Op op, cb_dtype dtype, int arity, cb_dtype result,
                         int shape) {
    Kernel *kernel = kernel_new(arena);
    Expr *axis = expr_axis(kernel, kernel_axis(kernel, GRID, false)), *input[3];
    for (int i = 0; i < arity; i++) {
        int buffer = kernel_buffer(kernel, dtype, BUFFER_IN, GRID, i);
        bool number = (shape == 1 && i == 1) || (shape == 2 && i == 0);
        input[i] = expr_load(kernel, buffer, dtype, number ? expr_int(kernel, 0) : axis, NULL);
    }
    int out = kernel_buffer(kernel, result, BUFFER_OUT, GRID, arity);
    kernel_store(kernel, out, axis, expr_op(kernel, op, result, input, arity), NULL, STORE_SET);
    return kernel;
}

static Scalar element(const OpInfo *info, cb_dtype dtype, int which, int i) {
    double x = special[which ? i % SPECIALS : i / SPECIALS];
    bool shifts = info->dtype == DTYPE_SHIFT || !strcmp(info->name, "pow");
    bool turns =
        !strcmp(info->name, "sin") || !strcmp(info->name, "cos") || !strcmp(info->name, "tan");
    if (turns && isfinite(x) && fabs(x) > 1e6) x = 1000;
    if (shifts && which && !dtype_is_float(dtype)) x = fabs(x) < 60 ? fabs(x) : 2;
    return scalar_convert((Scalar){.f = x}, CB_F64, dtype);
}

static void check_op(Op op, cb_dtype dtype, int shape, int first) {
    const OpInfo *info = op_info(op);
    bool truth = info->dtype == DTYPE_BOOL || info->dtype == DTYPE_LOGICAL;
    cb_dtype result = truth ? CB_BOOL : dtype;
    size_t size = cb_dtype_size(dtype), out_size = cb_dtype_size(result);
    char a[GRID * 8], b[GRID * 8], y[GRID * 8];
    Arena *arena = arena_new();
    Scalar input[2], at[GRID][2];
    for (int i = 0; i < GRID; i++)
        for (int k = 0; k < 2; k++) {
            bool number = shape == 2 - k;
            at[i][k] = element(info, dtype, k, number ? first : i);
            scalar_store((k ? b : a) + (size_t)i * size, dtype, at[i][k]);
        }
    current = program_build(op_kernel(arena, op, dtype, info->arity, result, shape), false);
    program_run(current, info->arity == 1 ? (void *[]){a, y} : (void *[]){a, b, y}, 0, GRID, 0,
                NULL);
    for (int i = 0; i < GRID; i++) {
        input[0] = at[i][0], input[1] = at[i][1];
        Scalar got = scalar_load(y + (size_t)i * out_size, result),
               wanted = scalar_eval(op, dtype, input);
        if (!close_to(result, got, wanted))
            FAIL("%s on %s, shape %d: (%g, %g): %g %lld, wanted %g %lld", info->name,
                 cb_dtype_name(dtype), shape, input[0].f, input[1].f, got.f, (long long)got.i,
                 wanted.f, (long long)wanted.i);
    }
    program_free(current);
    arena_free(arena);
}

static void test_every_op(void **state) {
    static const cb_dtype dtypes[] = {CB_F32, CB_F64, CB_I64, CB_I32, CB_U8, CB_BOOL};
    (void)state;
    for (Op op = OP_neg; op <= OP_right_shift; op++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            if (op_info(op)->kind != KIND_POINTWISE || !takes(op_info(op), dtypes[d])) continue;
            check_op(op, dtypes[d], 0, 0);
            if (op_info(op)->arity == 1) continue;
            for (int first = 0; first < GRID; first += 31) {
                check_op(op, dtypes[d], 1, first);
                check_op(op, dtypes[d], 2, first);
            }
        }
}

/* ---- instruction sets ------------------------------------------------------------------------ */

enum { LANES = 333 };

static void fill_lanes(VmType type, void *lanes) {
    for (int i = 0; i < LANES; i++) {
        uint32_t bits = next_random();
        double x =
            special[bits % SPECIALS] + (double)(bits >> 8) / 4096.0 - 2048.0 * (double)(bits & 1);
        if (type == VM_BOOL) ((uint8_t *)lanes)[i] = bits & 1;
        if (type == VM_I32) ((int32_t *)lanes)[i] = (int32_t)(bits % 2000) - 1000;
        if (type == VM_I64) ((int64_t *)lanes)[i] = (int64_t)(bits % 2000) - 1000;
        if (type == VM_F32) ((float *)lanes)[i] = (float)x;
        if (type == VM_F64) ((double *)lanes)[i] = x;
    }
}

static void compare_lanes(Op op, VmType type, bool truth, const void *one, const void *two) {
    cb_dtype dtype = truth || type == VM_BOOL ? CB_BOOL
                     : type == VM_I32         ? CB_I32
                     : type == VM_I64         ? CB_I64
                     : type == VM_F32         ? CB_F32
                                              : CB_F64;
    for (int i = 0; i < LANES; i++) {
        size_t at = (size_t)i * cb_dtype_size(dtype);
        Scalar a = scalar_load((const char *)one + at, dtype),
               b = scalar_load((const char *)two + at, dtype);
        if (!close_to(dtype, a, b))
            FAIL("%s on type %d: levels differ at %d: %g %lld, %g %lld", op_info(op)->name, type, i,
                 a.f, (long long)a.i, b.f, (long long)b.i);
    }
}

static void compare_levels(const VmOps *one, const VmOps *two) {
    static double a[LANES], b[LANES], c[LANES], y[LANES], z[LANES];
    for (int op = 0; op < VM_ROWS; op++)
        for (VmType type = 0; type < VM_TYPES; type++)
            for (int shape = 0; shape < VM_SHAPES; shape++) {
                VmFunction *f = one->rows[type][op][shape], *g = two->rows[type][op][shape];
                assert_true(!f == !g);
                if (!f) continue;
                DtypeRule rule = op_info(op)->dtype;
                fill_lanes(op == OP_where ? VM_BOOL : type, a);
                fill_lanes(type, b);
                fill_lanes(type, c);
                f(LANES, y, a, b, c);
                g(LANES, z, a, b, c);
                compare_lanes(op, type, rule == DTYPE_BOOL || rule == DTYPE_LOGICAL, y, z);
            }
}

static void test_levels(void **state) {
    (void)state;
    if (cpu_level() >= CPU_V3) compare_levels(&vm_ops_base, &vm_ops_v3);
    if (cpu_level() >= CPU_V4) compare_levels(&vm_ops_base, &vm_ops_v4);
}

/* ---- text and memory ------------------------------------------------------------------------- */

static void expect_printed(const char *kernel, const char *wanted) {
    Arena *arena = arena_new();
    Buffer text = buffer_new(arena);
    current = program_build(parse(arena, kernel), false);
    program_print(current, &text);
    assert_string_equal(buffer_text(&text), wanted);
    program_free(current);
    arena_free(arena);
}

static void test_print(void **state) {
    (void)state;
    expect_printed("kernel sum(outer a0:8) tile split 1 { b0: in f32[8] b1: in f32[8]"
                   " b2: out f32[8] t0 = f32 load b0[a0] t1 = f32 exp t0 t2 = f32 load b1[a0]"
                   " t3 = f32 add t1, t2 store b2[a0] = t3 }",
                   "program TILE, blocks of 64 lanes, 1 pass, frame of 256 bytes\n"
                   "last point\n"
                   "  v0 = point b0[0 + a0*1] (lanes)\n"
                   "  v1 = exp v0 (lanes)\n"
                   "  v2 = point b1[0 + a0*1] (lanes)\n"
                   "  v3 = point b2[0 + a0*1] (lanes)\n"
                   "  v3 = add v1 v2 (lanes)\n");
    expect_printed("kernel kept(outer a0:3, inner a1:70) row split 1 { b0: in f32[300]"
                   " b1: in i64[210] b2: in i64[3] b3: out f32[210]"
                   " t0 = i64 load b1[((a0*70)+a1)] t1 = i64 load b2[a0] t2 = bool lt [a1], 9:i64"
                   " t3 = f32 load b0[(t0+t1)] if t2 t4 = f32 exp t3 t5 = f32 reduce sum t4"
                   " t6 = f32 load b0[(t1+a1)] t7 = f32 where t2, t4, t6 t8 = f32 div t7, t5"
                   " store b3[((a0*70)+a1)] = t8 }",
                   "program ROW, blocks of 3 rows, 2 passes, frame of 13376 bytes\n"
                   "point 0\n"
                   "  v6 = point b2[0 + a0*1] (rows)\n"
                   "  v9 = spread v6 (lanes)\n"
                   "  v13 = start v14 (rows)\n"
                   "block 0\n"
                   "  v0 = coordinate of lanes (one)\n"
                   "  v1 = count v0 v2 (lanes)\n"
                   "  v3 = remainder v1 v4 (lanes)\n"
                   "  v5 = point b1[0 + a0*70 + a1*1] (lanes)\n"
                   "  v8 = lt v3 v7 (lanes)\n"
                   "  v10 = add v5 v9 (lanes)\n"
                   "  v11 = f32 b0[0][v10] if v8 (lanes)\n"
                   "  v12 = row 0 (lanes)\n"
                   "  v12 = exp v11 (lanes)\n"
                   "  v13 = sum v12 (lanes)\n"
                   "after 0\n"
                   "  v15 = convert v13 (rows)\n"
                   "point 1\n"
                   "  v26 = spread v15 (lanes)\n"
                   "block 1\n"
                   "  v16 = coordinate of lanes (one)\n"
                   "  v17 = count v16 v18 (lanes)\n"
                   "  v19 = remainder v17 v20 (lanes)\n"
                   "  v21 = lt v19 v7 (lanes)\n"
                   "  v22 = row 0 (lanes)\n"
                   "  v23 = f32 b0[0 + v6 by row + a1*1] (lanes)\n"
                   "  v24 = where v21 v22 v23 (lanes)\n"
                   "  v25 = point b3[0 + a0*70 + a1*1] (lanes)\n"
                   "  v25 = div v24 v26 (lanes)\n");
    expect_printed("kernel slots(outer a0:2, inner a1:64) row split 2 { b0: in f32[128]"
                   " b1: out f32[2] t0 = f32 load b0[((a0*64)+a1)] t1 = f32 reduce sum t0"
                   " store b1[a0] = t1 }",
                   "program ROW, blocks of 64 lanes, 1 pass, frame of 64 bytes\n"
                   "point 0\n"
                   "  v1 = start v2 (one)\n"
                   "block 0\n"
                   "  v0 = point b0[0 + a0*64 + a1*1] (lanes)\n"
                   "  v1 = sum v0 (lanes)\n"
                   "after 0\n"
                   "  write slot v1 0 (one)\n"
                   "last point\n"
                   "  v3 = read slot 0 (one)\n"
                   "  store v3 b1[0 + a0*1] (one)\n");
}

typedef struct Meter {
    int left, live;
} Meter;

static void *resize(void *user, void *pointer, size_t bytes) {
    Meter *meter = user;
    if (bytes == 0) {
        meter->live -= pointer != NULL;
        free(pointer);
        return NULL;
    }
    if (meter->left == 0) return NULL;
    meter->left--;
    meter->live += pointer == NULL;
    return realloc(pointer, bytes);
}

/* Every allocation of a build fails once: NULL, and nothing is left behind. */
static void test_memory(void **state) {
    (void)state;
    Meter meter = {.left = -1};
    cb_set_allocator((cb_allocator){resize, &meter});
    Arena *arena = arena_new();
    Kernel *kernel = parse(
        arena,
        "kernel s(outer a0:5, inner a1:2500) row split 1 { b0: in f32[12500] b1: out f32[12500]"
        " t0 = f32 load b0[((a0*2500)+a1)] t1 = f32 reduce amax t0 t2 = f32 sub t0, t1"
        " store b1[((a0*2500)+a1)] = t2 }");
    meter.left = 0; /* the kernel's own arena has no room for one more expression */
    if (arena_guard(arena) == 0)
        for (;;) arena_alloc(arena, 8);
    int failures = 0;
    for (current = NULL; !current && failures < 1000; failures++) {
        int live = meter.live;
        meter.left = failures;
        current = program_build(kernel, false);
        meter.left = -1;
        if (!current && meter.live > live + 1) FAIL("%d blocks left behind", meter.live - live);
    }
    assert_non_null(current);
    assert_true(failures > 2);
    program_free(current);
    arena_free(arena);
    assert_int_equal(meter.live, 0);
    cb_set_allocator((cb_allocator){NULL, NULL});
}

/* A padding of both dimensions, 3 x 3 pieces, and the program that is not cut. */
static void test_pieces(void **state) {
    (void)state;
    enum { ROWS = 30, COLUMNS = 70, FROM = 26 * 66 };
    Arena *arena = arena_new();
    const Kernel *kernel = kernel_parse(
        arena, "kernel padded(outer a0:30, outer a1:70) tile split 1 { b0: in f32[1716]"
               " b1: out f32[2100] t0 = bool lt [a0], 2:i64 t1 = bool ge [a0], 28:i64"
               " t2 = bool lt [a1], 3:i64 t3 = bool ge [a1], 69:i64 t4 = bool logical_or t0, t1"
               " t5 = bool logical_or t2, t3 t6 = bool logical_or t4, t5 t7 = bool logical_not t6"
               " t8 = f32 load b0[((a0*66)+(a1+-135))] if t7 t9 = f32 where t6, 2.5:f32, t8"
               " store b1[((a0*70)+a1)] = t9 }");
    assert_non_null(kernel);
    float from[FROM], whole[ROWS * COLUMNS], pieces[ROWS * COLUMNS] = {0};
    for (int i = 0; i < FROM; i++) from[i] = (float)i;
    Launch launch;
    assert_true(launch_init(&launch, kernel, NULL, false));
    assert_int_equal(launch.piece_count, 9);
    launch_part(&launch, (void *[]){from, whole}, 0, kernel->outer_size, 0, NULL);
    assert_true(launch_run(&launch, (void *[]){from, pieces}));
    assert_memory_equal(whole, pieces, sizeof whole);
    launch_free(&launch);
    arena_free(arena);
}

int main(void) {
    (void)compile, (void)check_kernel; /* of kernel_run.h, for generated code */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise),  cmocka_unit_test(test_views),
        cmocka_unit_test(test_reductions), cmocka_unit_test(test_scans),
        cmocka_unit_test(test_splits),     cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_rounding),   cmocka_unit_test(test_long_sums),
        cmocka_unit_test(test_in_place),   cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_levels),     cmocka_unit_test(test_print),
        cmocka_unit_test(test_memory),     cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests_name("vm", tests, NULL, NULL);
}
