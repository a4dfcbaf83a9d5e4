/* Matrix products of real numbers: the same bits whoever computes them, by any number of threads;
 * what is rounded; NaN and infinity. */
#include "fixture.h"

#include "products.h"
#include <math.h>

static float *random_floats(int64_t count) {
    float *data = malloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++) data[i] = (float)small() + (float)small() / 77.0f;
    return data;
}

/* B in rows of its sums: the same bits as from panels, by any number of threads; whole tiles of
 * A's rows, half ones and both, blocks of columns that a tile does not divide, and an epilogue. */
static void turned(void **state) {
    (void)state;
    static const int64_t size[][3] = {{1, 64, 64},    {16, 65, 64},   {17, 100, 257},
                                      {48, 230, 300}, {33, 461, 512}, {65, 231, 513},
                                      {9, 1000, 70}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        Case c = {.dtype = CB_F64, .batch = 1, .spread = 1, .b_turned = true};
        c.m = size[i][0], c.n = size[i][1], c.k = size[i][2];
        run_case(&c);
        c.dtype = CB_F32;
        run_case(&c);
        MatmulTask task = task_of(&c);
        assert_true(gemm_fits(&task, GEMM_TURNED));
        size_t bytes = (size_t)(c.m * c.n) * sizeof(float);
        float *a = random_floats(c.m * c.k + 8), *b = random_floats(c.n * c.k + 8);
        float *panels = malloc(bytes), *out = malloc(bytes);
        assert_true(gemm_run(&task, GEMM_PANELS, &(Operands){.in = {a, b}, .out = panels}));
        for (int threads = 1; threads < 4; threads++) {
            cb_set_threads(threads);
            memset(out, 1, bytes);
            assert_true(gemm_run(&task, GEMM_TURNED, &(Operands){.in = {a, b}, .out = out}));
            assert_memory_equal(out, panels, bytes);
        }
        cb_set_threads(0);
        free(a), free(b), free(panels), free(out);
    }
    MatmulTask task = {.dtype = CB_F32, .batch = 1, .m = 40, .n = 640, .k = 640, .b_k = 1};
    task.a_k = 1, task.a_m = task.b_n = 640;
    assert_true(gemm_fits(&task, GEMM_TURNED));
    assert_int_equal(method_of(&task, false), GEMM_TURNED);
    assert_int_not_equal(method_of(&task, true), GEMM_TURNED); /* from panels */
    MatmulTask head = {.dtype = CB_F32, .batch = 1, .m = 128, .n = 50257, .k = 768, .b_k = 1};
    head.b_n = 768; /* is not copied */
    assert_int_equal(method_of(&head, true), GEMM_TURNED);
    task.m = 256, task.n = 256, task.k = 1535;
    assert_int_equal(method_of(&task, false), GEMM_TURNED);
    task.k = 1536; /* panels of A leave L2 */
    assert_int_equal(method_of(&task, false), GEMM_PANELS);
    task.m = 513, task.k = 64;
    assert_false(gemm_fits(&task, GEMM_TURNED));
    task.m = 40, task.b_k = 2;
    assert_false(gemm_fits(&task, GEMM_TURNED));
}

static void threads_do_not_change_a_bit(void **state) {
    static const int64_t size[][3] = {{150, 170, 1100}, {1, 3000, 300}, {40, 700, 600},
                                      {700, 40, 600},   {20000, 5, 3},  {900, 70, 17},
                                      {3, 3, 30000},    {31, 32, 2051}, {6, 900, 300},
                                      {120, 90, 2000},  {70, 300, 100}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        Case c = {CB_F32, 1, size[s][0], size[s][1], size[s][2], false, false, 1, false, false};
        MatmulTask task = task_of(&c);
        task.reduced = *state != NULL;
        float *a = random_floats(c.m * c.k + 8), *b = random_floats(c.k * c.n + 8);
        size_t bytes = (size_t)(c.m * c.n) * sizeof(float);
        float *one = malloc(bytes), *three = malloc(bytes);
        cb_set_threads(1);
        assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = one}));
        cb_set_threads(3);
        assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = three}));
        cb_set_threads(0);
        assert_memory_equal(one, three, bytes);
        free(a), free(b), free(one), free(three);
    }
}

/* Rounding the factors to bf16 is all that reduced adds to the error; sums stay in f32. */
static void reduced_products_round_their_factors_alone(void **state) {
    (void)state;
    Case c = {CB_F32, 1, 37, 45, 300, false, true, 1, false, false};
    MatmulTask task = task_of(&c);
    task.reduced = true;
    float *a = random_floats(c.m * c.k + 8), *b = random_floats(c.k * c.n + 8);
    float *out = malloc((size_t)(c.m * c.n) * sizeof *out);
    assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = out}));
    for (int64_t i = 0; i < c.m * c.k + 8 && gemm_bf16(); i++)
        a[i] = bf16_to_f32(bf16_from_f32(a[i]));
    for (int64_t i = 0; i < c.k * c.n + 8 && gemm_bf16(); i++)
        b[i] = bf16_to_f32(bf16_from_f32(b[i]));
    for (int64_t i = 0; i < c.m * c.n; i++) {
        double sum = expected_at(&task, a, b, 0, i / c.n, i % c.n);
        assert_true(fabs(out[i] - sum) <= 2e-4 * (1 + fabs(sum)));
    }
    free(a), free(b), free(out);
}

/* The bits of a product with a B that was rounded before, in both layouts, packed by each task and
 * for several. */
static void a_weight_is_rounded_on_the_way(void **state) {
    (void)state;
    static const int64_t size[][3] = {{64, 70, 90}, {300, 33, 601}, {1100, 96, 530}, {100, 9, 30}};
    for (int i = 0; i < 16; i++) {
        const int64_t *s = size[i / 4];
        Case c = {
            i & 1 ? CB_F16 : CB_BF16, 1, s[0], s[1], s[2], false, (i & 2) != 0, 1, false, false};
        MatmulTask plain = task_of(&c), rounds = plain;
        rounds.rounds_b = true;
        int64_t count = c.k * c.n + 8;
        void *a = random_matrix(c.dtype, c.m * c.k + 8);
        float *wide = random_floats(count);
        uint16_t *b = malloc((size_t)count * sizeof *b);
        for (int64_t j = 0; j < count; j++)
            b[j] = c.dtype == CB_F16 ? f16_from_f32(wide[j]) : bf16_from_f32(wide[j]);
        size_t bytes = (size_t)(c.m * c.n) * sizeof *b;
        void *out = malloc(bytes), *expected = malloc(bytes);
        assert_true(c.k > 30 || gemm_fits(&plain, GEMM_TALL));
        assert_false(gemm_fits(&rounds, GEMM_TALL));
        for (GemmMethod method = 0; method <= GEMM_PANELS; method++) {
            if (!gemm_fits(&rounds, method)) continue;
            assert_true(gemm_run(&plain, method, &(Operands){.in = {a, b}, .out = expected}));
            assert_true(gemm_run(&rounds, method, &(Operands){.in = {a, wide}, .out = out}));
            assert_memory_equal(out, expected, bytes);
        }
        free(a), free(wide), free(b), free(out), free(expected);
    }
}

static void nan_and_infinity_pass(void **state) {
    float a[8 + 3] = {[3] = INFINITY, 1, 0, 0, NAN, 1, 0, 0};
    float b[4 * 20 + 5], out[2 * 20];
    for (int i = 0; i < 85; i++) b[i] = 1;
    Case c = {CB_F32, 1, 2, 20, 4, false, false, 1, false, false};
    MatmulTask task = task_of(&c);
    task.reduced = *state != NULL;
    assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = out}));
    for (int j = 0; j < 20; j++) {
        assert_true(isinf(out[j]));
        assert_true(isnan(out[20 + j]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turned),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(nan_and_infinity_pass),
        cmocka_unit_test_prestate(threads_do_not_change_a_bit, "reduced"),
        cmocka_unit_test_prestate(nan_and_infinity_pass, "reduced"),
        cmocka_unit_test(reduced_products_round_their_factors_alone),
        cmocka_unit_test(a_weight_is_rounded_on_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
