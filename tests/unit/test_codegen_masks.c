/* Generated C of rows whose last vector is not full: where the compiler does not see how many lanes
 * it has, the others are left out by a mask. They load nothing, store nothing and add nothing. */
#include "test_support.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "kernel_run.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { TEXT = 900, ROWS = 7 };

/* Shares of exp(x) beside the row's greatest one, and the row's sum: three sweeps. Back: of the row
 * read backwards. */
static char *shares(const char *dtype, int n, bool varies, bool back) {
    char *text = malloc(TEXT);
    const char *computed = strcmp(dtype, "f64") != 0 ? "f32" : dtype;
    snprintf(text, TEXT,
             "kernel shares_%s_%d_%d(outer a0:%d, inner a1:%d%s) row split 1 { b0: in %s[%d]"
             " b1: out %s[%d] b2: out %s[%d] t0 = %s load b0[(((a0*%d)+(a1*%d))+%d)]"
             " t1 = %s reduce amax t0"
             " t2 = %s sub t0, t1 t3 = %s exp t2 t4 = %s reduce sum t3 t5 = %s div t3, t4"
             " store b1[((a0*%d)+a1)] = t5 store b2[a0] = t4 }",
             dtype, n, varies, ROWS, n, varies ? "+" : "", dtype, ROWS * n, dtype, ROWS * n, dtype,
             ROWS, computed, n, back ? -1 : 1, back ? n - 1 : 0, computed, computed, computed,
             computed, computed, n);
    return text;
}

/* Integers, where a lane that is left out divides by 0; a product and a minimum of quotients. */
static char *quotients(int n, bool varies) {
    char *text = malloc(TEXT);
    snprintf(text, TEXT,
             "kernel quotients_%d_%d(outer a0:%d, inner a1:%d%s) row split 1 { b0: in i32[%d]"
             " b1: in i32[%d] b2: out i32[%d] b3: out i32[%d] t0 = i32 load b0[((a0*%d)+a1)]"
             " t1 = i32 load b1[((a0*%d)+a1)] t2 = i32 floor_divide t0, t1"
             " t3 = i32 reduce prod t2 t4 = i32 reduce amin t2"
             " store b2[a0] = t3 store b3[a0] = t4 }",
             n, varies, ROWS, n, varies ? "+" : "", ROWS * n, ROWS * n, ROWS, ROWS, n, n);
    return text;
}

/* Elements of eight bytes that are one for each row are in no lane; those of columns are. */
static char *picks(int n, bool by_column) {
    char *text = malloc(TEXT);
    const char *at = by_column ? "a1" : "a0";
    snprintf(text, TEXT,
             "kernel picks_%d_%d(outer a0:%d, inner a1:%d+) row split 1 { b0: in f32[%d]"
             " b1: in i64[%d] b2: out f32[%d] b3: out f64[%d] t0 = f32 load b0[((a0*%d)+a1)]"
             " t1 = i64 load b1[%s] t2 = bool eq [a1], t1 t3 = f32 where t2, 0:f32, t0"
             " t4 = f32 reduce amax t3 t5 = f64 to f64 t4 store b2[((a0*%d)+a1)] = t3"
             " store b3[a0] = t5 }",
             n, by_column, ROWS, n, ROWS * n, by_column ? n : ROWS, ROWS * n, ROWS, n, at, n);
    return text;
}

/* What does not lie side by side: a row backwards, every second element, by an index; and a number
 * of another width, which is one for all lanes. */
static char *apart(int n, bool varies) {
    char *text = malloc(TEXT);
    snprintf(text, TEXT,
             "kernel apart_%d_%d(outer a0:%d, inner a1:%d%s) row split 1 { b0: in f32[%d]"
             " b1: in f32[%d] b2: in i64[%d] b3: in f64[1] b4: out f32[%d]"
             " t0 = f32 load b0[(((a0*%d)+(a1*-1))+%d)] t1 = f32 load b1[((a0*%d)+(a1*2))]"
             " t2 = i64 load b2[a1] t3 = f32 load b0[((a0*%d)+t2)] t4 = f32 mul t0, t1"
             " t5 = f32 add t4, t3 t6 = f64 load b3[0] t7 = f32 to f32 t6 t8 = f32 mul t5, t7"
             " t9 = f32 reduce sum t8 t10 = f32 sub t8, t9 store b4[((a0*%d)+a1)] = t10 }",
             n, varies, ROWS, n, varies ? "+" : "", ROWS * n, 2 * ROWS * n, n, ROWS * n, n, n - 1,
             2 * n, n, n);
    return text;
}

static bool masks_columns(const char *text) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Buffer code = buffer_new(arena);
    c_render_kernel(kernel_parse(arena, text), NULL, &code);
    bool has = strstr(buffer_text(&code), " on = MASKED(") != NULL;
    arena_free(arena);
    return has;
}

/* Also what the text must have, or NULL. */
static bool masks(const char *text, const char *part) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Buffer code = buffer_new(arena);
    c_render_kernel(kernel_parse(arena, text), NULL, &code);
    bool has = strstr(buffer_text(&code), " on = MASKED(") != NULL;
    assert_int_equal(strstr(buffer_text(&code), "(run))") != NULL,
                     has && !strstr(text, "+)")); /* hidden, where it does not vary */
    if (has && part) assert_non_null(strstr(buffer_text(&code), part));
    arena_free(arena);
    return has;
}

static void values_are_those_of_the_row(void **state) {
    (void)state;
    static const int lengths[] = {3, 9, 16, 17, 24, 31, 33, 48, 100, 257};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    for (int varies = 0; varies < 2; varies++) {
        char *text[4 * LENGTHS];
        for (int i = 0; i < LENGTHS; i++) {
            int n = lengths[i];
            text[3 * i] = shares("f32", n, varies, false);
            text[3 * i + 1] = shares("f64", n, varies, false);
            text[3 * i + 2] = quotients(n, varies);
            text[3 * LENGTHS + i] = shares("f16", n, varies, false);
            bool hidden = cpu_level() >= CPU_V4 && n > 16 && n % 16;
            assert_int_equal(masks(text[3 * i], NULL), varies || hidden);
            hidden = cpu_level() >= CPU_V4 && n > 8 && n % 8;
            assert_int_equal(masks(text[3 * i + 1], NULL), varies || hidden);
        }
        check_all((const char *const *)text, 4 * LENGTHS);
        for (int i = 0; i < 4 * LENGTHS; i++) free(text[i]);
    }
}

/* Elements of two bytes are left out by no mask: rows of less than a strip of them are no strips,
 * whose lanes would wait in memory for each row. */
static void short_rows_without_masks_are_no_strips(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int n = 17; n < 48; n += 7) {
        char *text = shares("bf16", n, false, false);
        Buffer code = buffer_new(arena);
        c_render_kernel(kernel_parse(arena, text), NULL, &code);
        assert_int_equal(strstr(buffer_text(&code), "const int whole") != NULL, n > 32);
        free(text);
    }
    arena_free(arena);
}

/* Rows that have no masks, and are in the text: the last strip ends with them, and what of it was
 * folded before is not again. */
static void the_last_strip_ends_with_the_row(void **state) {
    (void)state;
    static const int lengths[] = {33, 117, 64}; /* the last is whole strips */
    char text[3][TEXT];
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < 3; i++) {
        int n = lengths[i];
        snprintf(text[i], TEXT,
                 "kernel mixed_%d(outer a0:%d, inner a1:%d) row split 1 { b0: in bf16[%d]"
                 " b1: in u8[%d] b2: out f32[%d] b3: out i32[%d] b4: out bool[%d]"
                 " t0 = f32 load b0[((a0*%d)+a1)] t1 = u8 load b1[((a0*%d)+a1)]"
                 " t2 = f32 to f32 t1 t3 = f32 mul t0, t2 t4 = f32 reduce sum t3"
                 " t5 = bool lt t0, t2 t6 = i32 to i32 [a1] t7 = i32 where t5, t6, 999:i32"
                 " t8 = i32 reduce amin t7 t9 = bool reduce all t5"
                 " store b2[a0] = t4 store b3[a0] = t8 store b4[a0] = t9 }",
                 n, ROWS, n, ROWS * n, ROWS * n, ROWS, ROWS, ROWS, n, n);
        Buffer code = buffer_new(arena);
        c_render_kernel(kernel_parse(arena, text[i]), NULL, &code);
        bool ends = strstr(buffer_text(&code), "const int kept = j >= done;") != NULL;
        assert_int_equal(ends, n % 32 != 0);
    }
    check_all((const char *const[]){text[0], text[1]}, 2);
    arena_free(arena);
}

/* Two arrays one behind the other, and their sum: rows of the second begin far before it while the
 * first one is read, where no memory may be. */
static void what_no_lane_loads_has_a_place(void **state) {
    (void)state;
    const char *text =
        "kernel behind(inner a0:2048, inner a1:4) row split 1 { b0: in f32[8192] b1: in f32[4]"
        " b2: out f32[8192] b3: out f32[1] t0 = bool lt [a0], 2047:i64"
        " t1 = f32 load b0[(((a0*4)+a1)+4)] if t0 t2 = bool logical_not t0"
        " t3 = f32 load b1[(((a0*4)+a1)+-8188)] if t2 t4 = f32 where t0, t1, t3"
        " t5 = f32 reduce sum t4 store b2[((a0*4)+a1)] = t4 store b3[0] = t5 }";
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    Buffer code = buffer_new(arena);
    c_render_kernel(kernel_parse(arena, text), NULL, &code);
    assert_non_null(strstr(buffer_text(&code), " ? a0 * 4 + 4 : 0;"));
    assert_non_null(strstr(buffer_text(&code), " ? a0 * 4 + -8188 : 0;"));
    check_all(&text, 1);
    arena_free(arena);
}

/* Columns that are folded, side by side. */
static void the_last_columns_are_a_vector(void **state) {
    (void)state;
    static const int columns[] = {5, 16, 17, 18, 31, 47};
    char *text[6];
    for (int i = 0; i < 6; i++) {
        int n = columns[i];
        text[i] = malloc(TEXT);
        snprintf(text[i], TEXT,
                 "kernel folds_%d(outer a0:%d, inner a1:40) tile split 1 { b0: in f32[%d]"
                 " b1: out f32[%d] t0 = f32 load b0[((a1*%d)+a0)] t1 = f32 exp t0"
                 " t2 = f32 reduce sum t1 t3 = f32 div t1, t2 store b1[((a1*%d)+a0)] = t3 }",
                 n, n, 40 * n, 40 * n, n, n);
    }
    assert_true(masks_columns(text[4]) && !masks_columns(text[1]) && !masks_columns(text[2]));
    check_all((const char *const *)text, 6);
    for (int i = 0; i < 6; i++) free(text[i]);
}

/* They come through arrays, the last ones without what lies beside the row; vectors of them where
 * an int says where. */
static void what_lies_apart_is_gathered(void **state) {
    (void)state;
    static const int lengths[] = {9, 16, 17, 25, 32, 33, 48, 63, 257};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    char *text[2 * LENGTHS];
    for (int i = 0; i < 2 * LENGTHS; i++) {
        int n = lengths[i / 2];
        text[i] = apart(n, i % 2);
        bool hidden = cpu_level() >= CPU_V4 && n > 16 && n % 16;
        assert_int_equal(masks(text[i], "[l * -1];"), i % 2 || hidden);
    }
    check_all((const char *const *)text, 2 * LENGTHS);
    for (int i = 0; i < 2 * LENGTHS; i++) free(text[i]);
}

static void one_element_for_each_row_is_in_no_lane(void **state) {
    (void)state;
    char *text[] = {picks(65, false), picks(65, true), picks(40, false), picks(40, true)};
    for (int i = 0; i < 4; i++) assert_int_equal(masks(text[i], NULL), i % 2 == 0);
    check_all((const char *const *)text, 4);
    for (int i = 0; i < 4; i++) free(text[i]);
}

/* Pages that have none before and behind them; begin: where they begin, else at their end. */
static float *edge_of_memory(size_t floats, bool begin) {
    enum { PAGE = 1 << 12, PAGES = 8 * PAGE };
    char *pages =
        mmap(NULL, PAGES + 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages, PAGE, PROT_NONE), 0);
    assert_int_equal(mprotect(pages + PAGE + PAGES, PAGE, PROT_NONE), 0);
    return begin ? (float *)(void *)(pages + PAGE)
                 : (float *)(void *)(pages + PAGE + PAGES) - floats;
}

static void run_at_the_edge(const char *text, int n, bool begin) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const Kernel *kernel = kernel_parse(arena, text);
    Code *code = compile(&kernel, 1, arena);
    float *x = edge_of_memory((size_t)(ROWS * n), begin);
    float *y = edge_of_memory((size_t)(ROWS * n), begin), *sums = edge_of_memory(ROWS, begin);
    float sum = 0;
    for (int k = 0; k < ROWS * n; k++) x[k] = (float)(k % 7);
    code_function(code, kernel->name)((void *[]){x, y, sums}, 0, ROWS, 0, NULL);
    for (int k = 0; k < n; k++) sum += y[(ROWS - 1) * n + k];
    assert_true(fabsf(sum - 1) < 1e-5F);
    code_release(code);
    arena_free(arena);
}

static void nothing_is_met_beside_the_rows(void **state) {
    (void)state;
    static const int lengths[] = {5, 17, 30, 32, 33, 47, 100};
    for (int i = 0; i < 28; i++) {
        int n = lengths[i / 4];
        char *text = shares("f32", n, i % 2, i & 2);
        run_at_the_edge(text, n, i & 2);
        free(text);
    }
}

/* What the lanes that are left out compute with, nobody sees; the clock would, were it denormals
 * that a register held. */
#if defined __x86_64__ && defined __GNUC__
#define EIGHT(DO, t) DO(t##0) DO(t##1) DO(t##2) DO(t##3) DO(t##4) DO(t##5) DO(t##6) DO(t##7)
#define EACH(DO) EIGHT(DO, ) DO(8) DO(9) EIGHT(DO, 1) DO(18) DO(19) EIGHT(DO, 2) DO(28) DO(29)
#define FILL(k) "vmovdqa64 %%zmm31, %%zmm" #k "\n"
#define NAME(k) , "xmm" #k
static __attribute__((noinline, target("avx512f"))) void fill_registers(int bits) {
    __asm__ volatile("vpbroadcastd %0, %%zmm31\n" EACH(FILL)::"r"(bits) : "xmm31" EACH(NAME));
}

static double least_time(cb_function *fast, cb_tensor *x, int bits) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < 300; i++) {
        cb_scope_open();
        fill_registers(bits);
        int64_t start = clock_ns();
        assert_non_null(cb_call(fast, x));
        int64_t taken = clock_ns() - start;
        if (taken < least) least = taken;
        cb_scope_close();
    }
    return (double)least;
}

static cb_tensor *sums(cb_tensor *x) { return cb_sum(cb_exp(x), 1); }
static cb_tensor *divides(cb_tensor *x) { return cb_softmax(cb_mul(x, 2.0), 1); }
static cb_tensor *stores(cb_tensor *x) { return cb_sub(cb_tanh(x), cb_amax(x, 1, true)); }
static cb_tensor *columns(cb_tensor *x) {
    return cb_softmax(cb_mul(cb_reshape(x, cb_dims(-1, 31)), 2.0), 0);
}

static void registers_decide_no_times(void **state) {
    (void)state;
    if (!__builtin_cpu_supports("avx512f")) skip_because("no AVX-512 here");
    cb_function_1 *const all[] = {sums, stores, divides, columns};
    cb_set_option("threads", "1");
    for (int i = 0; i < 4; i++) {
        cb_scope_open();
        cb_function *fast = cb_compile(all[i]);
        cb_tensor *x = cb_rand(cb_dims(248, 40));
        assert_non_null(cb_call(fast, x));
        assert_true(least_time(fast, x, 0x1234) < 2 * least_time(fast, x, 0) + 1000);
        cb_function_free(fast);
        cb_scope_close();
    }
}
#else
static void registers_decide_no_times(void **state) {
    (void)state;
    skip_because("x86-64 only");
}
#endif

int main(void) {
    cb_set_option("cache", "0");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_row),
        cmocka_unit_test(the_last_strip_ends_with_the_row),
        cmocka_unit_test(short_rows_without_masks_are_no_strips),
        cmocka_unit_test(what_no_lane_loads_has_a_place),
        cmocka_unit_test(the_last_columns_are_a_vector),
        cmocka_unit_test(what_lies_apart_is_gathered),
        cmocka_unit_test(one_element_for_each_row_is_in_no_lane),
        cmocka_unit_test(nothing_is_met_beside_the_rows),
        cmocka_unit_test(registers_decide_no_times),
    };
    int failed = cmocka_run_group_tests_name("codegen of masks", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
