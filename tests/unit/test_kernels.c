/* Kernels as text that schedules make seldom, on every engine of the processor: the VM, the oracle
 * and generated C against the definition (kernel_reference.h). */
#include "test_support.h"

#include "kernel_vm.h"

static void check_engines(const char *const *text, int count) {
    for (int i = 0; i < count; i++) check_text(text[i]);
    check_all(text, count);
}

#define ENGINES(...)                                                                               \
    do {                                                                                           \
        static const char *const text[] = {__VA_ARGS__};                                           \
        check_engines(text, (int)(sizeof text / sizeof *text));                                    \
    } while (0)

/* Copies, conversions that change nothing, results that are bool, rows of one. */
static void test_values(void **state) {
    (void)state;
    ENGINES("kernel copies(outer a0:300) tile split 1 { b0: in f32[300] b1: in u8[300]"
            " b2: out f32[300] b3: out i16[300] b4: out i32[300] t0 = f32 load b0[a0]"
            " t1 = f32 abs t0 t3 = u8 load b1[a0] t4 = i16 to i16 t3"
            " t5 = i32 to i32 t4 store b2[a0] = t1 store b3[a0] = t4 store b4[a0] = t5 }",
            "kernel copy(outer a0:200) tile split 1 { b0: in f32[200] b1: out f32[200]"
            " t0 = f32 load b0[a0] store b1[a0] = t0 }",
            "kernel narrows(outer a0:300) tile split 1 { b0: in i32[300] b1: out i8[300]"
            " b2: out u8[300] t0 = i32 load b0[a0] t1 = i16 to i16 t0 t2 = i8 to i8 t1"
            " t3 = u8 to u8 t2 store b1[a0] = t2 store b2[a0] = t3 }",
            "kernel truths(outer a0:90) tile split 1 { b0: in bool[90] b1: in bool[90]"
            " b2: out bool[90] b3: out bool[90] t0 = bool load b0[a0] t1 = bool load b1[a0]"
            " t2 = bool maximum t0, t1 t3 = bool mul t0, t1 store b2[a0] = t2 store b3[a0] = t3 }",
            "kernel one(outer a0:5) row split 1 { b0: in f32[5] b1: in i64[5] b2: in f32[30]"
            " b3: out f32[5] t0 = f32 load b0[a0] t1 = f32 reduce sum t0 t2 = i64 load b1[a0]"
            " t3 = f32 load b2[(t2*3)] t4 = f32 add t1, t3 store b3[a0] = t4 }",
            "kernel one_inner(outer a0:5, inner a1:1) row split 1 { b0: in f32[5] b1: out f32[5]"
            " t0 = f32 load b0[(a0+a1)] t1 = f32 reduce sum t0 store b1[a0] = t1 }");
}

/* Divisions of what may be negative or large; sums and products beyond i64, which wrap, and what
 * is known of them. */
static void test_integers(void **state) {
    (void)state;
    ENGINES("kernel signs(outer a0:300) tile split 1 { b0: in i32[300] b1: out i64[300]"
            " b2: out i64[300] t0 = i32 load b0[a0] t1 = i64 to i64 t0"
            " t2 = i64 floor_divide t1, 7:i64 t3 = i64 remainder t1, 7:i64"
            " store b1[a0] = t2 store b2[a0] = t3 }",
            "kernel large(outer a0:300) tile split 1 { b0: out i64[300] b1: out i64[300]"
            " t0 = i64 mul [a0], 4503599627370499:i64 t1 = i64 floor_divide t0, 7:i64"
            " t2 = i64 remainder t0, 7:i64 store b0[a0] = t1 store b1[a0] = t2 }",
            "kernel by_itself(outer a0:300) tile split 1 { b0: out i64[300] b1: out i64[300]"
            " t0 = i64 add [a0], 1:i64 t1 = i64 floor_divide 1000:i64, t0"
            " t2 = i64 remainder t0, -7:i64 store b0[a0] = t1 store b1[a0] = t2 }",
            "kernel beyond(outer a0:90) tile split 1 { b0: out bool[90] b1: out bool[90]"
            " b2: out bool[90] b3: out bool[90] b4: out bool[90]"
            " t0 = i64 add [a0], 9223372036854775807:i64 t1 = bool lt t0, 0:i64"
            " t2 = i64 add [(a0*-1)], -9223372036854775807:i64 t3 = bool ge t2, 0:i64"
            " t4 = i64 mul [a0], 900000000000000000:i64 t5 = bool ge t4, 0:i64"
            " t6 = i64 mul [(a0+20)], 900000000000000000:i64 t7 = bool ge t6, 0:i64"
            " t8 = bool lt [a0], 9223372036854775807:i64 store b0[a0] = t1 store b1[a0] = t3"
            " store b2[a0] = t5 store b3[a0] = t7 store b4[a0] = t8 }",
            "kernel folds_bools(outer a0:40, inner a1:9) tile split 1 { b0: in bool[360]"
            " b1: out bool[40] b2: out bool[40] t0 = bool load b0[((a1*40)+a0)]"
            " t1 = bool reduce amax t0 t2 = bool reduce amin t0 store b1[a0] = t1"
            " store b2[a0] = t2 }");
}

/* Places that depend on data, on a reduction, on no lane. */
static void test_places(void **state) {
    (void)state;
    ENGINES("kernel pick(inner a0:9) tile split 1 { b0: in i64[9] b1: in f32[30] b2: out f32[1]"
            " t0 = i64 load b0[a0] t1 = f32 load b1[(t0*3)] t2 = f32 reduce sum t1"
            " store b2[0] = t2 }",
            "kernel chosen(outer a0:60, inner a1:4) tile split 1 { b0: in i64[4] b1: in f32[70]"
            " b2: out f32[60] t0 = i64 load b0[a1] t1 = i64 reduce amax t0"
            " t2 = f32 load b1[(t1+a0)] store b2[a0] = t2 }",
            "kernel two_guarded(outer a0:6) tile split 1 { b0: in i64[6] b1: in f32[13]"
            " b2: out f32[6] t0 = bool lt [a0], 3:i64 t1 = i64 load b0[a0] if t0"
            " t2 = i64 load b0[((a0*-1)+5)] if t0 t3 = f32 load b1[(t1+t2)] store b2[a0] = t3 }",
            "kernel flags(outer a0:5, inner a1:70) row split 1 { b0: in bool[350] b1: inout i32[5]"
            " t0 = bool load b0[((a0*70)+a1)] last b1[a0] = 7:i32 if t0 }",
            "kernel row_flags(outer a0:5, inner a1:70) row split 1 { b0: in bool[350]"
            " b1: in bool[5] b2: inout i32[5] b3: out i32[350] t0 = bool load b1[a0]"
            " t1 = bool load b0[((a0*70)+a1)] t2 = i32 to i32 t1 last b2[a0] = 8:i32 if t0"
            " store b3[((a0*70)+a1)] = t2 }",
            "kernel by_column(outer a0:5, inner a1:4, inner a2:60) row split 1 { b0: in f32[20]"
            " b1: in f32[1200] b2: out f32[20] b3: out f32[1200] t0 = f32 load b0[((a0*4)+a1)]"
            " t1 = f32 exp t0 t2 = f32 load b1[((a0*240)+((a1*60)+a2))] t3 = f32 add t1, t2"
            " t4 = f32 reduce amax t3 t5 = f32 sub t3, t4 store b2[((a0*4)+a1)] = t1"
            " store b3[(a0+((a1*300)+(a2*5)))] = t5 }",
            "kernel turned_one(outer a0:1, outer a1:200) tile split 1 { b0: in f32[12000]"
            " b1: out f32[200] t0 = f32 load b0[((a1*60)+a0)] store b1[((a0*200)+a1)] = t0 }");
}

/* Values of a row that a later sweep needs again are kept: scans, narrow ones, dear loads. */
static void test_kept(void **state) {
    (void)state;
    ENGINES("kernel scans(outer a0:3, inner a1:700) row split 1 { b0: in f32[2100]"
            " b1: out f32[2100] t0 = f32 load b0[((a0*700)+a1)] t1 = f32 exp t0"
            " t2 = f32 scan sum t1 t3 = f32 reduce amax t2 t4 = f32 add t2, t3"
            " store b1[((a0*700)+a1)] = t4 }",
            "kernel narrow_scan(outer a0:3, inner a1:700) row split 1 { b0: in i8[2100]"
            " b1: out i8[2100] t0 = i8 load b0[((a0*700)+a1)] t1 = i8 floor_divide t0, 3:i8"
            " t2 = i8 floor_divide 99:i8, t1 t3 = i8 scan sum t2 t4 = i8 reduce amax t3"
            " t5 = i8 sub t3, t4 store b1[((a0*700)+a1)] = t5 }",
            "kernel plain_scan(outer a0:3, inner a1:90) row split 1 { b0: in i16[270]"
            " b1: out i16[270] t0 = i16 load b0[((a0*90)+a1)] t1 = i16 scan sum t0"
            " store b1[((a0*90)+a1)] = t1 }",
            "kernel dear_load(outer a0:3, inner a1:500) row split 1 { b0: in i64[1500]"
            " b1: in f32[70] b2: out f32[1500] t0 = i64 load b0[((a0*500)+a1)]"
            " t1 = i64 mul t0, t0 t2 = i64 remainder t1, 7:i64 t3 = f32 load b1[(t2*10)]"
            " t4 = f32 reduce amax t3 t5 = f32 sub t3, t4 store b2[((a0*500)+a1)] = t5 }",
            "kernel kept_column(outer a0:3, inner a1:4, inner a2:60) row split 1 { b0: in f32[12]"
            " b1: in f32[720] b2: out f32[720] t0 = f32 load b0[((a0*4)+a1)] t1 = f32 exp t0"
            " t2 = f32 load b1[((a0*240)+((a1*60)+a2))] t3 = f32 mul t1, t2"
            " t4 = f32 reduce sum t3 t5 = f32 add t1, t4 t6 = f32 mul t5, t2"
            " store b2[((a0*240)+((a1*60)+a2))] = t6 }",
            "kernel no_row(outer a0:3, inner a1:0) row split 1 { b0: in f32[1] b1: out f32[3]"
            " b2: out f32[1] t0 = f32 load b0[a1] t1 = f32 exp t0 t2 = f32 tanh t1"
            " t3 = f32 reduce sum t2 t4 = f32 add t2, t3 store b1[a0] = t3 store b2[a1] = t4 }");
}

/* Rows of large outputs go past the caches: in long runs, of elements as they are computed. Large
 * inputs are fetched a row ahead. (The kernels touch the beginnings of their buffers.) */
static void test_large(void **state) {
    (void)state;
    ENGINES("kernel rows(outer a0:3, inner a1:1601) row split 1 { b0: in f64[1601]"
            " b1: out f64[524808] b2: out i64[524808] t0 = f64 load b0[a1]"
            " t1 = f64 reduce amax t0 t2 = f64 sub t0, t1 t3 = f64 to f64 [a0]"
            " t4 = f64 add t2, t3 t5 = i64 to i64 t4 store b1[((a0*1601)+a1)] = t4"
            " store b2[((a0*1601)+a1)] = t5 }",
            "kernel two_sweeps(outer a0:3, inner a1:1600) row split 1 { b0: in f32[1600]"
            " b1: out f32[1048576] b2: out f32[1048576] t0 = f32 load b0[a1] t1 = f32 exp t0"
            " t2 = f32 reduce sum t1 t3 = f32 div t1, t2 store b1[((a0*1600)+a1)] = t1"
            " store b2[((a0*1600)+a1)] = t3 }",
            "kernel singles(outer a0:3, inner a1:1600) row split 1 { b0: in f32[1600]"
            " b1: out f32[1048576] t0 = f32 load b0[a1]"
            " t1 = f32 reduce amax t0 t2 = f32 sub t0, t1 store b1[((a0*1600)+a1)] = t2 }",
            "kernel short_rows(outer a0:9, inner a1:60) row split 1 { b0: in f64[60]"
            " b1: out f64[524400] t0 = f64 load b0[a1] t1 = f64 reduce amax t0 t2 = f64 sub t0, t1"
            " store b1[((a0*60)+a1)] = t2 }",
            "kernel apart(outer a0:3, inner a1:600) row split 1 { b0: in f64[600]"
            " b1: out f64[524400] b2: inout f64[524400] b3: out f64[524400] t0 = f64 load b0[a1]"
            " t1 = f64 reduce amax t0 t2 = f64 sub t0, t1 t3 = bool lt [a1], 599:i64"
            " store b1[((a1*3)+a0)] = t2 store b2[((a0*600)+a1)] = t2"
            " store b3[((a0*600)+a1)] = t2 if t3 }",
            "kernel ahead(outer a0:4, inner a1:1024) row split 1 { b0: in f64[131072]"
            " b1: in f64[131072] b2: in f64[131072] b3: out f64[4096]"
            " t0 = f64 load b0[((a0*1024)+a1)] t1 = f64 load b1[a1]"
            " t2 = f64 load b2[(((a0/2)*1024)+a1)] t3 = f64 reduce amax t0"
            " t4 = f64 sub t0, t3 t5 = f64 mul t4, t1 t6 = f64 add t5, t2"
            " store b3[((a0*1024)+a1)] = t6 }");
}

/* So many vectors at once that blocks are as short as they may be, and as many arrays. */
static void test_many(void **state) {
    (void)state;
    enum { COUNT = 110, SUMS = 64 };
    Arena *arena = arena_new();
    Buffer values = buffer_new(arena), sums = buffer_new(arena);
    put(&values, "kernel values(outer a0:300) tile split 1 { b0: in f32[300] b1: out f32[300]"
                 " t0 = f32 load b0[a0]");
    for (int i = 1; i <= COUNT; i++) putf(&values, " t%d = f32 add t0, %d:f32", i, i);
    putf(&values, " t%d = f32 mul t1, 0.5:f32", COUNT + 1);
    for (int i = 1; i < COUNT; i++)
        putf(&values, " t%d = f32 maximum t%d, t%d", COUNT + 1 + i, COUNT + i, 1 + i);
    putf(&values, " store b1[a0] = t%d }", 2 * COUNT);
    putf(&sums,
         "kernel sums(outer a0:70, inner a1:40) tile split 1 { b0: in f32[2800]"
         " b1: out f32[%d] t0 = f32 load b0[((a1*70)+a0)]",
         70 * SUMS);
    for (int i = 1; i <= SUMS; i++)
        putf(&sums, " t%d = f32 add t0, %d:f32 t%d = f32 reduce amax t%d", 2 * i, i, 2 * i + 1,
             2 * i);
    for (int i = 1; i <= SUMS; i++)
        putf(&sums, " store b1[(a0+%d)] = t%d", 70 * (i - 1), 2 * i + 1);
    put(&sums, " }");
    const char *text[] = {buffer_text(&values), buffer_text(&sums)};
    check_engines(text, 2);
    arena_free(arena);
}

/* No points, nothing written. */
static void test_no_points(void **state) {
    (void)state;
    Arena *arena = arena_new();
    float x[8] = {1}, y[8] = {7};
    Kernel *kernel = parse(arena, "kernel copy(outer a0:8) tile split 1 { b0: in f32[8]"
                                  " b1: out f32[8] t0 = f32 load b0[a0] store b1[a0] = t0 }");
    current = program_build(kernel, false);
    program_run(current, (void *[]){x, y}, 0, 0, 0, NULL);
    assert_true(y[0] == 7);
    program_run(current, (void *[]){x, y}, 0, 1, 0, NULL);
    assert_true(y[0] == 1);
    program_free(current);
    arena_free(arena);
}

/* Rows of fewer than 64 elements: lanes run along up to four axes. */
static void test_short_rows(void **state) {
    (void)state;
    ENGINES(
        "kernel rows(outer a0:700, outer a1:5, outer a2:4) tile split 1 { b0: in f32[700] b1: in "
        "f32[20] b2: in f16[3500] b3: in u8[14000] b4: in f64[70001] b5: out f64[14000]"
        " t0 = f32 load b0[a0] t1 = f32 load b1[((a1*4)+a2)] t2 = f32 load b2[((a0*5)+a1)]"
        " t3 = u8 load b3[((a2*3500)+((a1*700)+a0))] t4 = f64 load b4[((a0*100)+((a1*20)+(a2*5)))]"
        " t5 = f64 to f64 t0 t6 = f64 to f64 t1 t7 = f64 mul t5, t6 t8 = f64 to f64 t2 t9 = f64 sub"
        " t7, t8 t10 = f64 to f64 t3 t11 = f64 add t9, t10 t12 = f64 sub t11, t4"
        " store b5[((a0*20)+((a1*4)+a2))] = t12 }",
        "kernel single(outer a0:300, outer a1:1, outer a2:2) tile split 1 { b0: in i16[600] b1: in "
        "i16[300] b2: out i16[600] t0 = i16 load b0[((a0*2)+a2)] t1 = i16 load b1[a0] t2 = i16 add "
        "t0, t1 store b2[((a0*2)+a2)] = t2 }",
        "kernel five(outer a0:3, outer a1:2, outer a2:7, outer a3:5, outer a4:11) tile split 1 { "
        "b0: in f32[210] b1: in f32[66] b2: out f32[2310] t0 = f32 load "
        "b0[((a0*70)+((a1*35)+((a2*5)+a3)))] t1 = f32 load b1[((a0*22)+((a1*11)+a4))] t2 = f32 mul "
        "t0, t1 store b2[((a0*770)+((a1*385)+((a2*55)+((a3*11)+a4))))] = t2 }",
        "kernel places(outer a0:90, outer a1:5, outer a2:7) tile split 1 { b0: in f32[1] b1: out "
        "i64[3150] t0 = f32 load b0[0] t1 = i64 mul [a0], 100:i64 t2 = i64 mul [a1], 10:i64 t3 = "
        "i64 add t1, t2 t4 = i64 add t3, [a2] t5 = i64 to i64 t0 t6 = i64 add t4, t5 store "
        "b1[((a0*35)+((a1*7)+a2))] = t6 }",
        "kernel pad(outer a0:80, outer a1:9, outer a2:13) tile split 1 { b0: in bf16[4480] b1: out "
        "bf16[9360] t0 = bool ge [a1], 1:i64 t1 = bool lt [a1], 8:i64 t2 = bool logical_and t0, t1"
        " t3 = bool ge [a2], 3:i64 t4 = bool lt [a2], 11:i64 t5 = bool logical_and t3, t4 t6 = "
        "bool "
        "logical_and t2, t5 t7 = f32 load b0[((a0*56)+((a1*8)+(a2+-11)))] if t6"
        " store b1[((a0*117)+((a1*13)+a2))] = t7 }",
        "kernel gaps(outer a0:200, outer a1:3, outer a2:6) tile split 1 { b0: in f32[3600] b1: "
        "inout f32[9000] b2: inout i8[7200] t0 = f32 load b0[((a0*18)+((a1*6)+a2))] t1 = bool gt "
        "t0, 0:f32 t2 = i8 to i8 t0 store b1[((a0*45)+((a1*15)+(a2*2)))] = t0"
        " store b2[((a0*36)+((a1*12)+a2))] = t2 if t1 }",
        "kernel sums(outer a0:64, outer a1:17, inner a2:50) tile split 1 { b0: in f32[54400] b1: "
        "in "
        "f32[64] b2: out f32[1088] t0 = f32 load b0[((a0*850)+((a2*17)+a1))] t1 = f32 load b1[a0]"
        " t2 = f32 add t0, t1 t3 = f32 reduce sum t2 store b2[((a0*17)+a1)] = t3 }",
        "kernel chunks(outer a0:8, outer a1:17, inner a2:60) tile split 4 { b0: in f32[8160] b1: "
        "out f32[136] t0 = f32 load b0[((a0*1020)+((a2*17)+a1))] t1 = f32 reduce amax t0"
        " store b1[((a0*17)+a1)] = t1 }",
        "kernel scans(outer a0:30, outer a1:9, inner a2:20) tile split 1 { b0: in i32[5400] b1: "
        "out "
        "i64[5400] t0 = i32 load b0[((a0*180)+((a2*9)+a1))] t1 = i64 to i64 t0 t2 = i64 scan sum t1"
        " store b1[((a0*180)+((a2*9)+a1))] = t2 }",
        "kernel long_scans(outer a0:3, outer a1:2, inner a2:5, inner a3:150) tile split 1 { b0: in "
        "i16[4500] b1: out i64[4500] t0 = i16 load b0[((a0*1500)+((a1*750)+((a2*150)+a3)))] t1 = "
        "i64 "
        "to i64 t0 t2 = i64 scan sum t1 store b1[((a0*1500)+((a1*750)+((a2*150)+a3)))] = t2 }",
        "kernel softmax(outer a0:8, outer a1:20, inner a2:17) row split 1 { b0: in f32[2720] b1: "
        "out "
        "f32[2720] t0 = f32 load b0[((a0*340)+((a1*17)+a2))] t1 = f32 reduce amax t0 t2 = f32 sub "
        "t0, t1 t3 = f32 exp t2 t4 = f32 reduce sum t3 t5 = f32 div t3, t4 store "
        "b1[((a0*340)+((a1*17)+a2))] = t5 }",
        "kernel rows_of_rows(outer a0:60, outer a1:6) tile split 1 { b0: in i64[60] b1: in f32[60] "
        "b2: out f32[360] t0 = i64 load b0[a0] t1 = f32 load b1[((t0*6)+a1)] store "
        "b2[((a0*6)+a1)] = t1 }");
}

/* A condition of a store is needed by the sweep of the store: what is dear and was computed before
 * is kept for it. */
static void test_conditions(void **state) {
    (void)state;
    static const char *const text[] = {
        "kernel most(outer a0:7, inner a1:50) row split 1 { b0: in f32[350] b1: inout f32[350]"
        " t0 = f32 load b0[((a0*50)+a1)] t1 = f32 exp t0 t2 = f32 reduce sum t1 t3 = f32 sqrt t1"
        " t4 = f32 mul t2, 0.125:f32 t5 = bool gt t3, t4"
        " store b1[((a0*50)+a1)] = t0 if t5 }"};
    check_engines(text, 1);
    Arena *arena = arena_new();
    const Kernel *kernel = kernel_parse(arena, text[0]);
    KernelInfo info = kernel_analyze(kernel, arena);
    bool kept = false;
    for (int id = 0; id < length(kernel->expr); id++)
        if (kernel->expr[id]->op == OP_exp) kept = info.expr[id].cached;
    assert_true(kept);
    arena_free(arena);
}

/* Two tensors take each other's elements: all loads of an element come before its stores. */
static void test_shared(void **state) {
    (void)state;
    enum { POINTS = 300 };
    Arena *arena = arena_new();
    const Kernel *kernel = kernel_parse(
        arena, "kernel exchange(outer a0:300) tile split 1 { b0: shared in f32[300]"
               " b1: shared in f32[300] b2: shared out f32[300] b3: shared out f32[300]"
               " t0 = f32 load b0[a0] t1 = f32 load b1[a0] store b2[a0] = t1 store b3[a0] = t0 }");
    assert_non_null(kernel);
    Code *code = compile(&kernel, 1, arena);
    for (int generated = 0; generated < 2; generated++) {
        Launch launch;
        float x[POINTS], y[POINTS];
        for (int i = 0; i < POINTS; i++) x[i] = (float)i, y[i] = (float)-i;
        KernelFunction *function = generated ? code_function(code, "exchange") : NULL;
        assert_true(launch_init(&launch, kernel, function, false));
        assert_true(launch_run(&launch, (void *[]){x, y, x, y}));
        for (int i = 0; i < POINTS; i++) assert_true(x[i] == (float)-i && y[i] == (float)i);
        launch_free(&launch);
    }
    code_release(code);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_integers),
        cmocka_unit_test(test_places),     cmocka_unit_test(test_kept),
        cmocka_unit_test(test_large),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_no_points),  cmocka_unit_test(test_short_rows),
        cmocka_unit_test(test_conditions), cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
