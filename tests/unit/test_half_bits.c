/* f16 and bf16 are one pair of functions each (op/math_f32.h): whatever converts, by hand, by
 * vectors, by instructions for it, or in generated code, gives their bits, also where subnormal
 * floats are 0. For every half and for
 * floats of every sign, exponent and end of the mantissa, NaN and its payload included. */
#include "kernel_vm.h"

#include "base/cpu.h"
#include "base/level.h"
#include "cpu/gemm_kernel.h"
#include "cpu/half.h"
#include "op/math.h"

enum { HALVES = 1 << 16 };

typedef void Convert(cb_dtype half, const void *from, void *to, int64_t count);

static uint16_t halves[HALVES];

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- who converts --------------------------------------------------------------------------- */

static void widen_one(cb_dtype half, const void *from, void *to, int64_t count) {
    const uint16_t *x = from;
    float *y = to;
    for (int64_t i = 0; i < count; i++)
        y[i] = half == CB_F16 ? f16_to_f32(x[i]) : bf16_to_f32(x[i]);
}

static void narrow_one(cb_dtype half, const void *from, void *to, int64_t count) {
    const float *x = from;
    uint16_t *y = to;
    for (int64_t i = 0; i < count; i++)
        y[i] = half == CB_F16 ? f16_from_f32(x[i]) : bf16_from_f32(x[i]);
}

static void widen_vector(cb_dtype half, const void *from, void *to, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        const uint16_t *x = (const uint16_t *)from + i;
        store_f32((float *)to + i, half == CB_F16 ? load_f16(x) : load_bf16(x));
    }
}

static void narrow_vector(cb_dtype half, const void *from, void *to, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        Vector x = load_f32((const float *)from + i);
        (half == CB_F16 ? store_f16 : store_bf16)((uint16_t *)to + i, x);
    }
}

static const GemmKernels *gemm; /* of one level */

static void widen_gemm(cb_dtype half, const void *from, void *to, int64_t count) {
    gemm->widen[half](from, to, count);
}

static void narrow_gemm(cb_dtype half, const void *from, void *to, int64_t count) {
    gemm->narrow[half](from, to, count);
}

/* Kernels: of neighbours, and in steps of two, which no instruction for eight at a time takes. */
static bool steps, generated;

static const char *kernel_text(Arena *arena, cb_dtype from, cb_dtype to, int count) {
    const char *a = cb_dtype_name(from), *b = cb_dtype_name(to);
    if (!steps)
        return arena_format(arena,
                            "kernel halves(outer a0:%d) tile split 1 { b0: in %s[%d]"
                            " b1: out %s[%d] t0 = f32 load b0[a0] store b1[a0] = t0 }",
                            count, a, count, b, count);
    return arena_format(arena,
                        "kernel halves(outer a0:2, outer a1:%d) tile split 1 { b0: in %s[%d]"
                        " b1: out %s[%d] t0 = f32 load b0[(a0+(a1*2))]"
                        " store b1[(a0+(a1*2))] = t0 }",
                        count / 2, a, count, b, count);
}

static void run_kernel(cb_dtype from_dtype, cb_dtype to_dtype, const void *from, void *to,
                       int64_t count) {
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const Kernel *kernel = parse(arena, kernel_text(arena, from_dtype, to_dtype, (int)count));
    void *buffer[] = {(void *)(uintptr_t)from, to};
    if (generated) {
        Code *code = compile(&kernel, 1, arena);
        code_function(code, kernel->name)(buffer, 0, kernel->outer_size, 0, NULL);
        code_release(code);
    } else {
        Program *program = program_build(kernel, false);
        assert_non_null(program);
        program_run(program, buffer, 0, kernel->outer_size, 0, NULL);
        program_free(program);
    }
    arena_free(arena);
}

static void widen_kernel(cb_dtype half, const void *from, void *to, int64_t count) {
    run_kernel(half, CB_F32, from, to, count);
}

static void narrow_kernel(cb_dtype half, const void *from, void *to, int64_t count) {
    run_kernel(CB_F32, half, from, to, count);
}

/* ---- what they give ---- */

static const struct {
    cb_dtype half;
    uint32_t wide;
    uint16_t narrow;
    bool both_ways;
} known[] = {
    {CB_F16, 0x3f800000, 0x3c00, true},   {CB_F16, 0xc77fe000, 0xfbff, true},
    {CB_F16, 0x477ff000, 0x7c00, false}, /* 65520 */
    {CB_F16, 0x33800000, 0x0001, true},   {CB_F16, 0x33000000, 0x0000, false},
    {CB_F16, 0x33000001, 0x0001, false},  {CB_F16, 0xb87fc000, 0x83ff, true},
    {CB_F16, 0x7f800000, 0x7c00, true},   {CB_F16, 0x7fc00000, 0x7e00, true},
    {CB_F16, 0x7f800001, 0x7e00, false}, /* signalling, and what does not fit */
    {CB_F16, 0xffabc000, 0xff5e, false},  {CB_F16, 0xffebc000, 0xff5e, true},
    {CB_BF16, 0x3f808000, 0x3f80, false}, {CB_BF16, 0x3f818000, 0x3f82, false},
    {CB_BF16, 0x7f7fffff, 0x7f80, false}, {CB_BF16, 0x7f800001, 0x7fc0, false},
    {CB_BF16, 0xffab0000, 0xffeb, false}, {CB_BF16, 0xffeb0000, 0xffeb, true},
    {CB_BF16, 0x00010000, 0x0001, true},  {CB_BF16, 0x00008000, 0x0000, false},
};

static void known_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        float wide, back;
        uint16_t narrow;
        memcpy(&wide, &known[i].wide, sizeof wide);
        narrow_one(known[i].half, &wide, &narrow, 1);
        assert_int_equal(narrow, known[i].narrow);
        widen_one(known[i].half, &narrow, &back, 1);
        if (known[i].both_ways) assert_int_equal(bits_of(back), known[i].wide);
    }
    float wide = f16_to_f32(0x7c01); /* signalling: quiet, with its payload */
    assert_int_equal(bits_of(wide), 0x7fc02000);
}

static void expect_widened(Convert *widen, cb_dtype half) {
    static float wanted[HALVES], got[HALVES];
    widen_one(half, halves, wanted, HALVES);
    for (int flushes = 0; flushes < 2; flushes++) {
        cb_set_flush_denormal(flushes);
        widen(half, halves, got, HALVES);
        cb_set_flush_denormal(false);
        for (int i = 0; i < HALVES; i++) assert_int_equal(bits_of(got[i]), bits_of(wanted[i]));
    }
}

/* low: below each sign, exponent and upper mantissa. */
static void expect_narrowed(Convert *narrow, cb_dtype half, uint32_t low) {
    static float wide[HALVES];
    static uint16_t wanted[HALVES], got[HALVES];
    for (uint32_t i = 0; i < HALVES; i++) memcpy(&wide[i], &(uint32_t){i << 16 | low}, 4);
    narrow_one(half, wide, wanted, HALVES);
    narrow(half, wide, got, HALVES);
    for (int i = 0; i < HALVES; i++) {
        if (got[i] == wanted[i]) continue;
        FAIL("%s of %08x: %04x, not %04x", cb_dtype_name(half), bits_of(wide[i]), got[i],
             wanted[i]);
    }
}

static void expect_same(Convert *widen, Convert *narrow) {
    static const uint32_t low[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000,
                                   0x3001, 0x7fff, 0x8000, 0x8001, 0xe001, 0xffff};
    for (cb_dtype half = CB_F16; half <= CB_BF16; half++) {
        expect_widened(widen, half);
        for (size_t i = 0; i < sizeof low / sizeof *low; i++) expect_narrowed(narrow, half, low[i]);
    }
}

static void vectors(void **state) {
    (void)state;
    expect_same(widen_vector, narrow_vector);
}

static void rows_of_products(void **state) {
    gemm = *state;
    expect_same(widen_gemm, narrow_gemm);
}

static void vm(void **state) {
    steps = *state != NULL, generated = false;
    expect_same(widen_kernel, narrow_kernel);
}

static void generated_code(void **state) {
    steps = *state != NULL, generated = true;
    expect_same(widen_kernel, narrow_kernel);
}

/* Arrays that conversions go through have room for whole vectors of sixteen. */
static int expect_whole_arrays(const char *text) {
    int arrays = 0;
    for (const char *at = text; (at = strstr(at, "float ")); at++) {
        char name[8];
        int room;
        if (sscanf(at, "float %7[a-z0-9][%d] __attribute__", name, &room) != 2) continue;
        if (strncmp(name, "out", 3) && name[0] != 'h') continue;
        assert_int_equal(room % 16, 0);
        arrays++;
    }
    return arrays;
}

/* Rows that vectors of eight and sixteen do not fill: nothing is written beyond them. */
static void ends_of_rows(void **state) {
    (void)state;
    static const int count[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 100};
    enum { KERNELS = sizeof count / sizeof *count };
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    const Kernel *kernel[KERNELS];
    int arrays = 0;
    for (int i = 0; i < KERNELS; i++) {
        int n = count[i], all = 5 * n;
        const char *at = arena_format(arena, "[((a0*%d)+a1)]", n);
        kernel[i] = parse(
            arena, arena_format(arena,
                                "kernel row_%d(outer a0:5, inner a1:%d) row split 1"
                                " { b0: in f16[%d] b1: out f16[%d] t0 = f32 load b0%s"
                                " t1 = f32 reduce amax t0 t2 = f32 sub t0, t1 store b1%s = t2 }",
                                n, n, all, all, at, at));
        Buffer text = buffer_new(arena);
        c_render_kernel(kernel[i], NULL, &text);
        arrays += expect_whole_arrays(buffer_text(&text));
    }
    assert_in_range(arrays, 2 * KERNELS - 2, 6 * KERNELS);
    Code *code = compile(kernel, KERNELS, arena);
    for (int i = 0; i < KERNELS; i++) assert_true(check_kernel(kernel[i], code));
    code_release(code);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_bits),
        cmocka_unit_test(ends_of_rows),
        cmocka_unit_test(vectors),
        cmocka_unit_test_prestate(rows_of_products, (void *)(uintptr_t)&gemm_kernels_base),
        cmocka_unit_test(vm),
        cmocka_unit_test_prestate(vm, "steps"),
        cmocka_unit_test(generated_code),
        cmocka_unit_test_prestate(generated_code, "steps"),
    };
    for (int i = 0; i < HALVES; i++) halves[i] = (uint16_t)i;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
#if defined(__x86_64__)
    const struct CMUnitTest levels[] = {
        cmocka_unit_test_prestate(rows_of_products, (void *)(uintptr_t)&gemm_kernels_v3),
        cmocka_unit_test_prestate(rows_of_products, (void *)(uintptr_t)&gemm_kernels_v4),
    };
    int known_levels = cpu_level() >= CPU_V4 ? 2 : cpu_level() >= CPU_V3;
    for (int i = 0; i < known_levels; i++)
        failed += _cmocka_run_group_tests("level", &levels[i], 1, NULL, NULL);
#endif
    return failed;
}
