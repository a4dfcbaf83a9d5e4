/* Generated C against the definition of kernels (kernel_reference.h): every shape of loop nest,
 * every dtype, odd ranges, splits, guards, scans, streaming stores, special values. */
#include "test_support.h"

#include "kernel_run.h"

#define CHECK(...)                                                                                 \
    do {                                                                                           \
        static const char *const text[] = {__VA_ARGS__};                                           \
        check_all(text, (int)(sizeof text / sizeof *text));                                        \
    } while (0)

/* ---- kernels ----------------------------------------------------------------------------- */

static void test_pointwise(void **state) {
    (void)state;
    CHECK(
        "kernel gelu(outer a0:1000) tile split 1 { b0: in f32[1000] b1: out f32[1000]"
        " t0 = f32 load b0[a0] t1 = f32 mul t0, t0 t2 = f32 mul t1, t0 t3 = f32 mul t2, "
        "0.044715:f32"
        " t4 = f32 add t0, t3 t5 = f32 mul t4, 0.7978845608:f32 t6 = f32 tanh t5 t7 = f32 add t6, "
        "1:f32"
        " t8 = f32 mul t0, 0.5:f32 t9 = f32 mul t8, t7 store b1[a0] = t9 }",
        "kernel transpose(outer a0:33, outer a1:47) tile split 1 { b0: in f64[1551] b1: out "
        "f64[1551]"
        " t0 = f64 load b0[((a1*33)+a0)] t1 = f64 neg t0 store b1[((a0*47)+a1)] = t1 }",
        "kernel broadcast(outer a0:9, outer a1:70) tile split 1 { b0: in f32[630] b1: in f32[9] "
        "b2: in f32[70]"
        " b3: in f32[1] b4: out f32[630] t0 = f32 load b0[((a0*70)+a1)] t1 = f32 load b1[a0]"
        " t2 = f32 load b2[a1] t3 = f32 load b3[0] t4 = f32 mul t0, t1 t5 = f32 add t4, t2"
        " t6 = f32 sub t5, t3 t7 = f32 maximum t6, t1 store b4[((a0*70)+a1)] = t7 }",
        "kernel flip(outer a0:5, outer a1:21) tile split 1 { b0: in i32[105] b1: out i32[105]"
        " t0 = i32 load b0[((a0*21)+((a1*-1)+20))] store b1[((a0*21)+a1)] = t0 }",
        "kernel pad(outer a0:6, outer a1:40) tile split 1 { b0: in f32[30] b1: out f32[240]"
        " t0 = bool ge [a1], 3:i64 t1 = bool lt [a1], 33:i64 t2 = bool logical_and t0, t1"
        " t3 = f32 load b0[(a1+-3)] if t2 t4 = f32 add t3, 1:f32 store b1[((a0*40)+a1)] = t4 }",
        "kernel concat(outer a0:4, outer a1:30) tile split 1 { b0: in f32[40] b1: in f32[80] b2: "
        "out f32[120]"
        " t0 = bool lt [a1], 10:i64 t1 = bool ge [a1], 10:i64 t2 = f32 load b0[((a0*10)+a1)] if t0"
        " t3 = f32 load b1[((a0*20)+(a1+-10))] if t1 t4 = f32 where t0, t2, t3"
        " store b2[((a0*30)+a1)] = t4 }",
        "kernel guarded_stores(outer a0:50) tile split 1 { b0: in f32[50] b1: out f32[20] b2: out "
        "f32[30]"
        " t0 = f32 load b0[a0] t1 = bool lt [a0], 20:i64 t2 = bool ge [a0], 20:i64"
        " store b1[a0] = t0 if t1 store b2[(a0+-20)] = t0 if t2 }",
        "kernel reshape(outer a0:12, outer a1:35) tile split 1 { b0: in f32[420] b1: out f32[420]"
        " t0 = f32 load b0[((((((a0*35)+a1)/7)%4)*105)+((((a0*35)+a1)/28)*7))]"
        " t1 = f32 load b0[(((a1+17)%35)*12)] t2 = f32 add t0, t1 store b1[((a0*35)+a1)] = t2 }",
        "kernel gather(outer a0:40, outer a1:11) tile split 1 { b0: in i64[40] b1: in f32[77] b2: "
        "in i64[11]"
        " b3: out f32[440] t0 = i64 load b0[a0] t1 = f32 load b1[((t0*11)+a1)] t2 = i64 load b2[a1]"
        " t3 = f32 load b1[(t2+(t0*3))] t4 = f32 mul t1, t3 store b3[((a0*11)+a1)] = t4 }",
        "kernel arange(outer a0:300) tile split 1 { b0: out f32[300] b1: out i64[300] t0 = f32 to "
        "f32 [a0]"
        " t1 = f32 mul t0, 0.5:f32 t2 = i64 mul [a0], [a0] t3 = i64 sub t2, [(a0*3)] store b0[a0] "
        "= t1"
        " store b1[a0] = t3 }",
        "kernel in_place(outer a0:77) tile split 1 { b0: inout f32[77] b1: inout f32[77]"
        " t0 = f32 load b0[a0] t1 = f32 load b1[a0] store b0[a0] = t1 store b1[a0] = t0 }",
        "kernel none(outer a0:0) tile split 1 { b0: in f32[0] b1: out f32[0] t0 = f32 load b0[a0]"
        " store b1[a0] = t0 }");
}

static void test_rows(void **state) {
    (void)state;
    CHECK(
        "kernel softmax(outer a0:7, inner a1:333) row split 1 { b0: in f32[2331] b1: out f32[2331]"
        " t0 = f32 load b0[((a0*333)+a1)] t1 = f32 reduce amax t0 t2 = f32 sub t0, t1 t3 = f32 exp "
        "t2"
        " t4 = f32 reduce sum t3 t5 = f32 div t3, t4 store b1[((a0*333)+a1)] = t5 }",
        "kernel layer_norm(outer a0:3, outer a1:2, inner a2:100) row split 1 { b0: in f32[600] b1: "
        "in f32[100]"
        " b2: out f32[600] b3: out f32[6] t0 = f32 load b0[(((a0*200)+(a1*100))+a2)] t1 = f32 "
        "reduce sum t0"
        " t2 = f32 div t1, 100:f32 t3 = f32 sub t0, t2 t4 = f32 square t3 t5 = f32 reduce sum t4"
        " t6 = f32 div t5, 100:f32 t7 = f32 add t6, 0.00001:f32 t8 = f32 rsqrt t7 t9 = f32 mul t3, "
        "t8"
        " t10 = f32 load b1[a2] t11 = f32 mul t9, t10 t12 = f32 erf t11 store "
        "b2[(((a0*200)+(a1*100))+a2)] = t12"
        " store b3[((a0*2)+a1)] = t8 }",
        "kernel long_row(inner a0:20001) row split 1 { b0: in f32[20001] b1: out f32[4]"
        " t0 = f32 load b0[a0] t1 = f32 reduce sum t0 t2 = f32 reduce amax t0 t3 = f32 reduce amin "
        "t0"
        " t4 = f32 square t0 t5 = f32 reduce sum t4 store b1[0] = t1 store b1[1] = t2 store b1[2] "
        "= t3"
        " store b1[3] = t5 }",
        "kernel plane(outer a0:5, inner a1:6, inner a2:50) row split 1 { b0: in f64[1500] b1: out "
        "f64[5]"
        " b2: out f64[1500] t0 = f64 load b0[(((a1*250)+(a0*50))+a2)] t1 = f64 reduce sum t0"
        " t2 = f64 exp t0 t3 = f64 reduce amax t2 t4 = f64 sub t2, t1 store b1[a0] = t3"
        " store b2[(((a0*300)+(a1*50))+a2)] = t4 }",
        "kernel logic(outer a0:20, inner a1:30) row split 1 { b0: in bool[600] b1: out bool[20] "
        "b2: out bool[20]"
        " b3: out i64[20] t0 = bool load b0[((a0*30)+a1)] t1 = bool reduce any t0 t2 = bool reduce "
        "all t0"
        " t3 = i64 to i64 t0 t4 = i64 reduce sum t3 store b1[a0] = t1 store b2[a0] = t2 store "
        "b3[a0] = t4 }",
        "kernel integers(outer a0:4, inner a1:99) row split 1 { b0: in i32[396] b1: in u8[396] b2: "
        "in i8[396]"
        " b3: out i32[4] b4: out u8[4] b5: out i8[4] b6: out i64[4] t0 = i32 load b0[((a0*99)+a1)]"
        " t1 = u8 load b1[((a0*99)+a1)] t2 = i8 load b2[((a0*99)+a1)] t3 = i32 reduce amax t0"
        " t4 = u8 reduce amin t1 t5 = i8 reduce amax t2 t6 = i64 to i64 t0 t7 = i64 reduce prod t6"
        " store b3[a0] = t3 store b4[a0] = t4 store b5[a0] = t5 store b6[a0] = t7 }",
        "kernel cross(outer a0:6, inner a1:17) row split 1 { b0: in f32[102] b1: in i64[6] b2: out "
        "f32[6]"
        " t0 = f32 load b0[((a0*17)+a1)] t1 = f32 exp t0 t2 = f32 reduce sum t1 t3 = f32 log t2"
        " t4 = i64 load b1[a0] t5 = f32 load b0[((a0*17)+t4)] t6 = f32 sub t3, t5 store b2[a0] = "
        "t6 }",
        "kernel empty_row(outer a0:3, inner a1:0) row split 1 { b0: in f32[0] b1: out f32[3] b2: "
        "out f32[3]"
        " t0 = f32 load b0[a1] t1 = f32 reduce sum t0 t2 = f32 reduce prod t0 store b1[a0] = t1"
        " store b2[a0] = t2 }");
}

static void test_tiles(void **state) {
    (void)state;
    CHECK(
        "kernel columns(outer a0:2, outer a1:1500, inner a2:20) tile split 1 { b0: in f32[60000] "
        "b1: out f32[3000]"
        " t0 = f32 load b0[(((a0*30000)+(a2*1500))+a1)] t1 = f32 reduce sum t0 store "
        "b1[((a0*1500)+a1)] = t1 }",
        "kernel variance(outer a0:90, inner a1:5, inner a2:30) tile split 1 { b0: in f32[13500] "
        "b1: out f32[90]"
        " b2: in f32[150] b3: in f32[90] b4: out f32[13500] t0 = f32 load "
        "b0[(((a1*2700)+(a2*90))+a0)]"
        " t1 = f32 load b2[((a1*30)+a2)] t2 = f32 load b3[a0] t3 = f32 mul t0, t1 t4 = f32 exp t2"
        " t5 = f32 mul t3, t4 t6 = f32 reduce sum t5 t7 = f32 div t6, 150:f32 t8 = f32 sub t5, t7"
        " t9 = f32 square t8 t10 = f32 reduce sum t9 t11 = f32 reduce amax t1 t12 = f32 add t10, "
        "t11"
        " store b1[a0] = t12 store b4[(((a1*2700)+(a2*90))+a0)] = t8 }",
        "kernel long_columns(outer a0:70, inner a1:6000) tile split 1 { b0: in f32[420000] b1: out "
        "f32[70]"
        " b2: out f32[70] t0 = f32 load b0[((a1*70)+a0)] t1 = f32 reduce sum t0 t2 = f32 reduce "
        "amin t0"
        " store b1[a0] = t1 store b2[a0] = t2 }",
        "kernel short_softmax(outer a0:100, inner a1:4) tile split 1 { b0: in f32[400] b1: out "
        "f32[400]"
        " t0 = f32 load b0[((a0*4)+a1)] t1 = f32 reduce amax t0 t2 = f32 sub t0, t1 t3 = f32 exp t2"
        " t4 = f32 reduce sum t3 t5 = f32 div t3, t4 store b1[((a0*4)+a1)] = t5 }",
        "kernel short_sum(outer a0:3, outer a1:200, inner a2:3, inner a3:2) tile split 1 { b0: in "
        "f32[3600]"
        " b1: in f32[3] b2: out f32[600] t0 = f32 load b0[((((a0*1200)+(a1*6))+(a2*2))+a3)]"
        " t1 = f32 load b1[a0] t2 = f32 load b1[a2] t3 = f32 mul t0, t1 t4 = f32 add t3, t2"
        " t5 = f32 reduce sum t4 store b2[((a0*200)+a1)] = t5 }",
        "kernel one(outer a0:1, inner a1:40) tile split 1 { b0: in f32[40] b1: out f32[1]"
        " t0 = f32 load b0[a1] t1 = f32 reduce sum t0 store b1[a0] = t1 }",
        "kernel scalar(inner a0:9) tile split 1 { b0: in i32[9] b1: out i32[1] t0 = i32 load b0[a0]"
        " t1 = i32 reduce sum t0 store b1[0] = t1 }");
}

static void test_order(void **state) {
    (void)state;
    CHECK(
        "kernel cumsum(outer a0:3, outer a1:130, inner a2:25) tile split 1 { b0: in f32[9750] b1: "
        "out f32[9750]"
        " t0 = f32 load b0[(((a0*3250)+(a2*130))+a1)] t1 = f32 scan sum t0"
        " store b1[(((a0*3250)+(a2*130))+a1)] = t1 }",
        "kernel cumprod(inner a0:60) tile split 1 { b0: in f64[60] b1: out f64[60] t0 = f64 load "
        "b0[a0]"
        " t1 = f64 scan prod t0 store b1[a0] = t1 }",
        "kernel scan_norm(outer a0:4, inner a1:50) row split 1 { b0: in f32[200] b1: out f32[200]"
        " t0 = f32 load b0[((a0*50)+a1)] t1 = f32 scan sum t0 t2 = f32 reduce amax t1 t3 = f32 sub "
        "t1, t2"
        " store b1[((a0*50)+a1)] = t3 }",
        "kernel scan_tile(outer a0:80, inner a1:12) tile split 1 { b0: in i64[960] b1: out i64[960]"
        " t0 = i64 load b0[((a1*80)+a0)] t1 = i64 scan amax t0 t2 = i64 reduce sum t1 t3 = i64 sub "
        "t1, t2"
        " store b1[((a1*80)+a0)] = t3 }",
        "kernel short_scan(outer a0:30, inner a1:5) tile split 1 { b0: in f32[150] b1: out f32[150]"
        " t0 = f32 load b0[((a0*5)+a1)] t1 = f32 scan sum t0 store b1[((a0*5)+a1)] = t1 }",
        "kernel scatter(outer a0:90, inner a1:40) tile split 1 { b0: in f32[3600] b1: in i64[40]"
        " b2: inout f32[630] t0 = f32 load b0[((a1*90)+a0)] t1 = i64 load b1[a1] add "
        "b2[((t1*90)+a0)] = t0 }",
        "kernel scatter_row(outer a0:6, inner a1:40) row split 1 { b0: in f16[240] b1: in i64[240]"
        " b2: inout f16[42] t0 = f32 load b0[((a0*40)+a1)] t1 = i64 load b1[((a0*40)+a1)]"
        " add b2[((a0*7)+t1)] = t0 }");
}

static void test_split(void **state) {
    (void)state;
    CHECK("kernel total(inner a0:10007) row split 8 { b0: in f64[10007] b1: in f64[10007] b2: in "
          "f64[1]"
          " b3: out f64[1] t0 = f64 load b0[a0] t1 = f64 load b1[a0] t2 = f64 load b2[0] t3 = f64 "
          "mul t0, t1"
          " t4 = f64 add t3, t2 t5 = f64 relu t4 t6 = f64 reduce sum t5 store b3[0] = t6 }",
          "kernel whole_softmax(outer a0:2, inner a1:900) row split 7 { b0: in f32[1800] b1: out "
          "f32[1800]"
          " b2: out f32[2] t0 = f32 load b0[((a0*900)+a1)] t1 = f32 reduce amax t0 t2 = f32 sub "
          "t0, t1"
          " t3 = f32 exp t2 t4 = f32 reduce sum t3 t5 = f32 div t3, t4 store b1[((a0*900)+a1)] = t5"
          " t6 = f32 log t4 store b2[a0] = t6 }",
          "kernel split_columns(outer a0:3, outer a1:50, inner a2:41) tile split 4 { b0: in "
          "f32[6150] b1: out f32[150]"
          " b2: out i32[150] t0 = f32 load b0[(((a0*2050)+(a2*50))+a1)] t1 = f32 reduce sum t0"
          " t2 = f32 sub t0, t1 t3 = i32 to i32 t2 t4 = i32 reduce amin t3 store b1[((a0*50)+a1)] "
          "= t1"
          " store b2[((a0*50)+a1)] = t4 }",
          "kernel split_plane(outer a0:3, inner a1:11, inner a2:20) row split 5 { b0: in f32[660] "
          "b1: out bool[3]"
          " b2: out f32[3] t0 = f32 load b0[(((a1*60)+(a0*20))+a2)] t1 = bool gt t0, 1.999:f32"
          " t2 = bool reduce any t1 t3 = f32 reduce amin t0 store b1[a0] = t2 store b2[a0] = t3 }",
          "kernel thin(inner a0:5) row split 4 { b0: in f32[5] b1: out f32[1] t0 = f32 load b0[a0]"
          " t1 = f32 reduce sum t0 store b1[0] = t1 }");
}

static void test_dtypes(void **state) {
    (void)state;
    CHECK(
        "kernel halves(outer a0:300) tile split 1 { b0: in f16[300] b1: in bf16[300] b2: out "
        "f16[300]"
        " b3: out bf16[300] b4: out f32[300] t0 = f32 load b0[a0] t1 = f32 load b1[a0] t2 = f32 "
        "mul t0, t1"
        " t3 = f32 to f16 t2 t4 = f32 to bf16 t2 t5 = f32 add t3, t4 store b2[a0] = t2 store "
        "b3[a0] = t2"
        " store b4[a0] = t5 }",
        "kernel wraps(outer a0:500) tile split 1 { b0: in u8[500] b1: in i8[500] b2: in i16[500] "
        "b3: out u8[500]"
        " b4: out i8[500] b5: out i16[500] b6: out bool[500] t0 = u8 load b0[a0] t1 = i8 load "
        "b1[a0]"
        " t2 = i16 load b2[a0] t3 = u8 mul t0, 7:u8 t4 = u8 add t3, t0 t5 = i8 mul t1, t1 t6 = i8 "
        "neg t5"
        " t7 = i16 mul t2, 999:i16 t8 = i16 bitwise_not t7 t9 = i16 floor_divide t8, 7:i16"
        " t10 = bool lt t6, t1 t11 = bool bitwise_not t10 t12 = bool add t11, t10 t13 = bool "
        "logical_and t12, t11"
        " store b3[a0] = t4 store b4[a0] = t6 store b5[a0] = t9 store b6[a0] = t13 }",
        "kernel converts(outer a0:400) tile split 1 { b0: in f32[400] b1: out u8[400] b2: out "
        "i32[400]"
        " b3: out i64[400] b4: out bool[400] b5: out f64[400] b6: out i16[400] t0 = f32 load b0[a0]"
        " t1 = f32 mul t0, 1000000:f32 t2 = u8 to u8 t1 t3 = i32 to i32 t1 t4 = f32 mul t1, "
        "1000000:f32"
        " t5 = i64 to i64 t4 t6 = bool to bool t0 t7 = f64 to f64 t0 t8 = f64 exp t7 t9 = i16 to "
        "i16 t8"
        " store b1[a0] = t2 store b2[a0] = t3 store b3[a0] = t5 store b4[a0] = t6 store b5[a0] = t8"
        " store b6[a0] = t9 }",
        "kernel widens(outer a0:100) tile split 1 { b0: in i64[100] b1: in bool[100] b2: in "
        "u8[100] b3: out f32[100]"
        " b4: out f64[100] t0 = i64 load b0[a0] t1 = bool load b1[a0] t2 = u8 load b2[a0] t3 = i64 "
        "to i64 t1"
        " t4 = i64 add t0, t3 t5 = f32 to f32 t4 t6 = f64 to f64 t2 t7 = i64 left_shift t4, 3:i64"
        " t8 = f64 to f64 t7 t9 = f64 add t6, t8 store b3[a0] = t5 store b4[a0] = t9 }",
        "kernel random(outer a0:100) tile split 1 { b0: in i64[2] b1: out i64[100] t0 = i64 load "
        "b0[0]"
        " t1 = i64 load b0[1] t2 = i64 philox t0, t1, [a0] store b1[a0] = t2 }");
}

/* Over 4 MiB: the results go past the caches. */
static void test_streams(void **state) {
    (void)state;
    CHECK(
        "kernel large(outer a0:1100003) tile split 1 { b0: in f32[1100003] b1: out f32[1100003]"
        " t0 = f32 load b0[a0] t1 = f32 mul t0, 3:f32 store b1[a0] = t1 }",
        "kernel large_rows(outer a0:700, inner a1:777) row split 1 { b0: in f64[543900] b1: out "
        "f64[543900]"
        " t0 = f64 load b0[((a0*777)+a1)] t1 = f64 mul t0, 3:f64 store b1[((a0*777)+a1)] = t1 }",
        "kernel long_rows(outer a0:2, inner a1:550001) row split 1 { b0: in f32[1100002] b1: out "
        "f32[1100002]"
        " t0 = f32 load b0[((a0*550001)+a1)] t1 = f32 square t0 store b1[((a0*550001)+a1)] = t1 }",
        "kernel large_columns(outer a0:30001, inner a1:40) tile split 1 { b0: in f32[1200040]"
        " b1: out f32[1200040] t0 = f32 load b0[((a1*30001)+a0)] t1 = f32 reduce amax t0"
        " t2 = f32 sub t0, t1 store b1[((a1*30001)+a0)] = t2 }",
        "kernel turn(outer a0:3, outer a1:301, outer a2:200) tile split 1 { b0: in f32[180600]"
        " b1: out f32[180600] t0 = f32 load b0[(((a0*60200)+(a2*301))+a1)] t1 = f32 add t0, 1:f32"
        " store b1[(((a0*60200)+(a1*200))+a2)] = t1 }",
        "kernel large_shorts(outer a0:3, outer a1:700001) tile split 1 { b0: in bool[700001]"
        " b1: out i16[2100003] t0 = bool load b0[a1] t1 = i16 to i16 t0 store b1[((a0*700001)+a1)] "
        "= t1 }");
}

/* ---- values ------------------------------------------------------------------------------ */

static const double special[] = {0.0,   -0.0,  1.0,   -1.0,  0.5,  3.25,     -7.5,      1e30,
                                 -1e30, 1e-40, 65504, 65520, 1e-7, INFINITY, -INFINITY, NAN};
enum { SPECIALS = sizeof special / sizeof *special };

/* One pointwise op of the table on a dtype, as a kernel of its own. */
static Kernel *op_kernel(Arena *arena, Op op, cb_dtype dtype, int arity, cb_dtype result) {
    Kernel *kernel = kernel_new(arena);
    kernel->name = arena_format(arena, "k_%s_%s", op_info(op)->name, cb_dtype_name(dtype));
    Expr *axis = expr_axis(kernel, kernel_axis(kernel, SPECIALS * SPECIALS, false)), *input[3];
    for (int i = 0; i < arity; i++) {
        int buffer = kernel_buffer(kernel, dtype, BUFFER_IN, SPECIALS * SPECIALS, i);
        input[i] = expr_load(kernel, buffer, dtype, axis, NULL);
    }
    int out = kernel_buffer(kernel, result, BUFFER_OUT, SPECIALS * SPECIALS, arity);
    kernel_store(kernel, out, axis, expr_op(kernel, op, result, input, arity), NULL, STORE_SET);
    return kernel;
}

/* Pairs of special values; integers get theirs by conversion. Shifts and powers take small ones. */
static void fill_specials(Op op, cb_dtype dtype, int arity, Data *data) {
    size_t bytes = cb_dtype_size(dtype);
    for (int i = 0; i < SPECIALS * SPECIALS; i++)
        for (int k = 0; k < arity; k++) {
            double x = special[k ? i % SPECIALS : i / SPECIALS];
            bool small = op == OP_pow || op == OP_left_shift || op == OP_right_shift;
            bool turns = op == OP_sin || op == OP_cos || op == OP_tan; /* good to 2^20 */
            if (turns && isfinite(x) && fabs(x) > 1e6) x = 1000;
            if (small && k && !dtype_is_float(dtype)) x = fabs(x) < 60 ? fabs(x) : 2;
            Scalar value = scalar_convert((Scalar){.f = x}, CB_F64, dtype);
            scalar_store((char *)data->before[k] + (size_t)i * bytes, dtype, value);
        }
}

static void check_op(Op op, const Kernel *kernel, cb_dtype dtype, int arity, const Code *code) {
    Data data;
    KernelFunction *function = code_function(code, kernel->name);
    fill(kernel, &data);
    fill_specials(op, dtype, arity, &data);
    reference_run(kernel, data.before, data.wanted);
    function(data.bound, 0, kernel->outer_size, 0, NULL);
    for (int k = 0; k < arity; k++)
        memcpy(data.wanted[k], data.got[k], bytes_of(&kernel->buffer[k]));
    assert_true(compare(kernel, &data));
    release(kernel, &data);
}

static bool is_result_bool(const OpInfo *info) {
    return info->dtype == DTYPE_BOOL || info->dtype == DTYPE_LOGICAL;
}

static void test_every_op(void **state) {
    static const cb_dtype dtypes[] = {CB_F32, CB_I64, CB_I8, CB_BOOL};
    (void)state;
    for (int d = 0; d < 4; d++) {
        Arena *arena = arena_new();
        const Kernel *kernel[OP_COUNT];
        Op ops[OP_COUNT];
        int count = 0;
        for (Op op = OP_neg; op <= OP_right_shift; op++) {
            const OpInfo *info = op_info(op);
            if (info->kind != KIND_POINTWISE || !takes(info, dtypes[d])) continue;
            cb_dtype result = is_result_bool(info) ? CB_BOOL : dtypes[d];
            ops[count] = op;
            kernel[count++] = op_kernel(arena, op, dtypes[d], info->arity, result);
        }
        Code *code = compile(kernel, count, arena);
        for (int i = 0; i < count; i++)
            check_op(ops[i], kernel[i], dtypes[d], op_info(ops[i])->arity, code);
        code_release(code);
        arena_free(arena);
    }
}

static Code *compile_text(Arena *arena, const char *text, KernelFunction **function) {
    const Kernel *kernel = kernel_parse(arena, text);
    Code *code = compile(&kernel, 1, arena);
    *function = code_function(code, kernel->name);
    return code;
}

/* NaN wins over everything, wherever it stands, of whichever sign; infinities are ordinary. */
static void test_extremes(void **state) {
    (void)state;
    enum { COUNT = 100 };
    Arena *arena = arena_new();
    KernelFunction *function;
    Code *code = compile_text(
        arena,
        "kernel extremes(inner a0:100) row split 1 { b0: in f32[100] b1: in f64[100] b2: out "
        "f32[2] b3: out f64[2]"
        " t0 = f32 load b0[a0] t1 = f64 load b1[a0] t2 = f32 reduce amax t0 t3 = f32 reduce amin t0"
        " t4 = f64 reduce amax t1 t5 = f64 reduce amin t1 store b2[0] = t2 store b2[1] = t3 store "
        "b3[0] = t4"
        " store b3[1] = t5 }",
        &function);
    for (int where = -1; where < COUNT; where += 7) {
        for (int sign = -1; sign <= 1; sign += 2) {
            float x[COUNT], got[2];
            double y[COUNT], got_wide[2];
            for (int i = 0; i < COUNT; i++) x[i] = i == 3 ? -INFINITY : i == 4 ? 1e30f : (float)i;
            if (where >= 0) x[where] = copysignf(NAN, (float)sign);
            for (int i = 0; i < COUNT; i++) y[i] = x[i];
            function((void *[]){x, y, got, got_wide}, 0, 1, 0, NULL);
            if (where >= 0) {
                assert_true(isnan(got[0]) && isnan(got[1]) && isnan(got_wide[0]) &&
                            isnan(got_wide[1]));
            } else {
                assert_true(got[0] == 1e30f && got[1] == -INFINITY);
                assert_true(got_wide[0] == (double)1e30f && got_wide[1] == -(double)INFINITY);
            }
        }
    }
    code_release(code);
    arena_free(arena);
}

/* A false guard keeps away from memory: the pages around the buffer are not there. */
static void test_guards_do_not_touch(void **state) {
    (void)state;
    Arena *arena = arena_new();
    KernelFunction *function;
    Code *code = compile_text(
        arena,
        "kernel far(outer a0:4096) tile split 1 { b0: in f32[4096] b1: out f32[4096] b2: out "
        "f32[4096]"
        " t0 = bool lt [a0], 0:i64 t1 = bool eq [(a0%5)], 9:i64 t2 = f32 load b0[(a0+1)] if t1"
        " t3 = f32 add t2, 2:f32 store b1[a0] = t3 store b2[a0] = t3 if t1 }",
        &function);
    float out[4096];
    function((void *[]){(void *)64, out, (void *)64}, 0, 4096, 0, NULL);
    for (int i = 0; i < 4096; i++) assert_true(out[i] == 2);
    code_release(code);
    arena_free(arena);
}

/* head, a chain of tanh and sigmoid over t0 to t1 .. t80, tail */
static Kernel *costly(Arena *arena, const char *head, const char *dtype, const char *tail) {
    Buffer text = buffer_new(arena);
    put(&text, head);
    for (int i = 1; i <= 80; i++)
        putf(&text, " t%d = %s %s t%d", i, dtype, i % 2 ? "tanh" : "sigmoid", i - 1);
    put(&text, tail);
    Kernel *kernel = kernel_parse(arena, buffer_text(&text));
    if (!kernel) FAIL("%s", cb_error());
    return kernel;
}

/* Kernels with many costly ops call them, where calls vectorize. */
static void test_many_costly_ops(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const Kernel *kernel[] = {
        costly(arena,
               "kernel chain(outer a0:1000) tile split 1 { b0: in f32[1000] b1: out f32[1000]"
               " t0 = f32 load b0[a0]",
               "f32", " store b1[a0] = t80 }"),
        costly(arena,
               "kernel guarded(outer a0:90) tile split 1 { b0: in f64[50] b1: out f64[90]"
               " t100 = bool lt [a0], 50:i64 t0 = f64 load b0[a0] if t100",
               "f64", " t81 = f64 where t100, t80, t3 store b1[a0] = t81 }"),
        costly(arena,
               "kernel rows(outer a0:20, inner a1:70) row split 1 { b0: in f32[1400] b1: out "
               "f32[20] t0 = f32 load b0[((a0*70)+a1)]",
               "f32", " t81 = f32 reduce sum t80 store b1[a0] = t81 }"),
        costly(arena,
               "kernel columns(outer a0:70, inner a1:20) tile split 1 { b0: in f32[1400] b1: out "
               "f32[70] t0 = f32 load b0[((a1*70)+a0)]",
               "f32", " t81 = f32 reduce sum t80 store b1[a0] = t81 }"),
        costly(arena,
               "kernel few(outer a0:70, inner a1:3) tile split 1 { b0: in f32[210] b1: out "
               "f32[70] t0 = f32 load b0[((a0*3)+a1)]",
               "f32", " t81 = f32 reduce sum t80 store b1[a0] = t81 }"),
    };
    int count = (int)(sizeof kernel / sizeof *kernel);
    Code *code = compile(kernel, count, arena);
    for (int i = 0; i < count; i++) {
        assert_true(check_kernel(kernel[i], code));
        Buffer text = buffer_new(arena);
        c_render_kernel(kernel[i], NULL, &text);
        const char *call = i ? "apart_tanh_" : "lanes_tanh_f32(whole";
        if (!strstr(buffer_text(&text), call)) FAIL("%s calls nothing", kernel[i]->name);
    }
    code_release(code);
    arena_free(arena);
}

/* f16 side by side, in each shape of loops: read and written at once where there is an instruction
 * for that. One that is also written stays where it is. */
static void test_f16_at_once(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const Kernel *kernel[] = {
        kernel_parse(arena,
                     "kernel blocks(outer a0:2500) tile split 1 { b0: in f16[2500] b1: in f16[1]"
                     " b2: out f16[2500] t0 = f32 load b0[a0] t1 = f32 load b1[0]"
                     " t2 = f32 add t0, t1 store b2[a0] = t2 }"),
        kernel_parse(arena,
                     "kernel rows(outer a0:5, inner a1:77) row split 1 { b0: in f16[385]"
                     " b1: out f16[385] t0 = f32 load b0[((a0*77)+a1)] t1 = f32 reduce sum t0"
                     " t2 = f32 sub t0, t1 store b1[((a0*77)+a1)] = t2 }"),
        kernel_parse(arena, "kernel short_rows(outer a0:5, inner a1:7) row split 1 { b0: in f16[35]"
                            " b1: out f16[35] t0 = f32 load b0[((a0*7)+a1)] t1 = f32 reduce amax t0"
                            " t2 = f32 sub t0, t1 store b1[((a0*7)+a1)] = t2 }"),
        kernel_parse(arena,
                     "kernel columns(outer a0:1100, inner a1:20) tile split 1 { b0: in f16[22000]"
                     " b1: out f16[1100] t0 = f32 load b0[((a1*1100)+a0)]"
                     " t1 = f32 reduce sum t0 store b1[a0] = t1 }"),
        kernel_parse(
            arena, "kernel long_columns(outer a0:70, inner a1:130) tile split 1 { b0: in f16[9100]"
                   " b1: out f16[70] t0 = f32 load b0[((a1*70)+a0)]"
                   " t1 = f32 reduce sum t0 store b1[a0] = t1 }"),
        kernel_parse(arena, "kernel in_place(outer a0:70) tile split 1 { b0: inout f16[70]"
                            " b1: in f16[70] t0 = f32 load b0[a0] t1 = f32 load b1[a0]"
                            " t2 = f32 mul t0, t1 store b0[a0] = t2 }"),
    };
    enum { KERNELS = sizeof kernel / sizeof *kernel };
    Code *code = compile(kernel, KERNELS, arena);
    for (int i = 0; i < KERNELS; i++) {
        assert_true(check_kernel(kernel[i], code));
        Buffer text = buffer_new(arena);
        c_render_kernel(kernel[i], NULL, &text);
        assert_non_null(strstr(buffer_text(&text), "widen_f16("));
        assert_true(i == KERNELS - 1 || strstr(buffer_text(&text), "narrow_f16("));
    }
    code_release(code);
    arena_free(arena);
}

/* A condition of two comparisons becomes a number by a choice, which every compiler vectorizes: gcc
 * 12 does no conversion of one. */
static void test_conditions_as_numbers(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const Kernel *kernel = kernel_parse(
        arena, "kernel conditions(outer a0:70) tile split 1 { b0: in f32[70] b1: out f32[70]"
               " b2: out f64[70] t0 = f32 load b0[a0] t1 = bool lt t0, 1:f32"
               " t2 = bool gt t0, 0.5:f32 t3 = bool logical_and t1, t2 t4 = f32 to f32 t3"
               " t5 = f64 to f64 t3 store b1[a0] = t4 store b2[a0] = t5 }");
    if (!kernel) FAIL("%s", cb_error());
    Code *code = compile(&kernel, 1, arena);
    assert_true(check_kernel(kernel, code));
    Buffer text = buffer_new(arena);
    c_render_kernel(kernel, NULL, &text);
    assert_non_null(strstr(buffer_text(&text), " ? 1.0f : 0.0f"));
    assert_non_null(strstr(buffer_text(&text), " ? 1.0 : 0.0"));
    assert_null(strstr(buffer_text(&text), "(float)"));
    assert_null(strstr(buffer_text(&text), "(double)"));
    code_release(code);
    arena_free(arena);
}

/* What a row chooses by is an int that compilers know nothing of, but beside elements that are
 * narrower: then a vector of the choice would be wider than theirs. */
static void choose_by_rows(const char *of, bool hidden) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const Kernel *kernel = kernel_parse(
        arena, arena_format(arena,
                            "kernel choices(outer a0:9, inner a1:70) row split 1 {"
                            " b0: in %s[560] b1: out %s[630]"
                            " t1 = bool ge [a0], 1:i64 t2 = %s load b0[(((a0*70)+a1)+-70)] if t1"
                            " t3 = %s where t1, t2, 7:%s store b1[((a0*70)+a1)] = t3 }",
                            of, of, of, of, of));
    if (!kernel) FAIL("%s", cb_error());
    Code *code = compile(&kernel, 1, arena);
    assert_true(check_kernel(kernel, code));
    Buffer text = buffer_new(arena);
    c_render_kernel(kernel, NULL, &text);
    assert_int_equal(strstr(buffer_text(&text), "__asm__(\"\" : \"+r\"(t") != NULL, hidden);
    code_release(code);
    arena_free(arena);
}

static void test_choices_of_rows(void **state) {
    (void)state;
    choose_by_rows("f32", true);
    choose_by_rows("f64", true);
    choose_by_rows("i8", false);
}

static bool parses(const char *text) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Buffer why = buffer_new(arena);
    Kernel *kernel = kernel_parse(arena, text);
    if (kernel) (void)kernel_verify(kernel, &why);
    if (!kernel && !cb_error()) FAIL("no error for %s", text);
    cb_clear_error();
    arena_free(arena);
    return kernel != NULL;
}

/* Text with a few bytes changed: a kernel that can be judged, or NULL and an error. */
static void test_malformed_text(void **state) {
    (void)state;
    static const char good[] =
        "kernel k(outer a0:9, outer a1:70, inner a2:4) tile split 1 { b0: in f32[2520]"
        " b1: in i64[70] b2: inout f32[630] t0 = f32 load b0[((((a0*70)+a1)*4)+(a2%3))]"
        " t1 = i64 load b1[a1] t2 = bool lt [(a0+t1)], 3:i64 t3 = f32 load b0[(t1*4)] if t2"
        " t4 = f32 mul t0, 0.5:f32 t5 = f32 add t4, t3 t6 = f32 reduce sum t5 t7 = i32 to i32 t6"
        " t8 = f32 to f32 t7 t9 = f32 where t2, t8, t6 store b2[((a0*70)+a1)] = t9 if t2 }";
    static const char bytes[] = "abt0123456789 :()[]{}+*/%-=,.kfi";
    int refused = 0;
    assert_true(parses(good));
    for (unsigned seed = 0; seed < 6000; seed++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        for (unsigned k = 0; k <= seed % 3; k++)
            text[next_random() % (sizeof good - 1)] = bytes[next_random() % (sizeof bytes - 1)];
        if (seed % 5 == 0) text[next_random() % (sizeof good - 1)] = '\0';
        refused += !parses(text);
    }
    assert_true(refused > 3000);
}

static void test_text_is_deterministic(void **state) {
    (void)state;
    const char *text =
        "kernel same(outer a0:64, inner a1:500) row split 1 { b0: in f32[32000] b1: out f32[64]"
        " t0 = f32 load b0[((a0*500)+a1)] t1 = f32 exp t0 t2 = f32 reduce sum t1 store b1[a0] = t2 "
        "}";
    Arena *arena = arena_new();
    Buffer a = buffer_new(arena), b = buffer_new(arena);
    const Kernel *kernel = kernel_parse(arena, text), *again = kernel_parse(arena, text);
    c_render(&kernel, NULL, 1, &a);
    c_render(&kernel, NULL, 1, &a); /* rendering changes nothing that rendering sees */
    c_render(&again, NULL, 1, &b);
    c_render(&again, NULL, 1, &b);
    assert_string_equal(buffer_text(&a), buffer_text(&b));
    assert_null(strstr(buffer_text(&a), "#include"));
    arena_free(arena);
}

int main(void) {
    cb_set_option("cache", "0");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointwise),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_guards_do_not_touch),
        cmocka_unit_test(test_many_costly_ops),
        cmocka_unit_test(test_f16_at_once),
        cmocka_unit_test(test_conditions_as_numbers),
        cmocka_unit_test(test_choices_of_rows),
        cmocka_unit_test(test_malformed_text),
        cmocka_unit_test(test_text_is_deterministic),
    };
    int failed = cmocka_run_group_tests_name("codegen", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
