/* Thin products (cpu/gemm_thin.c): many rows of few elements, and few sums of many products, in
 * every dtype and layout, by one thread and by three; a few rows times rows as they lie
 * (cpu/gemm_swept.c); and which sizes are whose. The elements are small integers. */
#include "fixture.h"

#include "products.h"
#include <sys/mman.h>
#include <unistd.h>

static const cb_dtype dtypes[] = {CB_F32, CB_F64, CB_F16, CB_BF16};

static void run_layouts(Case c, GemmMethod method) {
    for (int i = 0; i < 8; i++) {
        c.a_turned = (i & 1) != 0, c.b_turned = (i & 2) != 0, c.spread = i & 4 ? 2 : 1;
        MatmulTask task = task_of(&c);
        bool gathers = dtype_is_half(c.dtype) && task.a_k != 1;
        bool tiles = gemm_may_be_bf16(&task) && c.n * c.k > 512;
        bool halves = method == GEMM_LONG && dtype_is_half(c.dtype);
        bool fits = method == GEMM_TALL ? !gathers && !tiles : !halves;
        assert_int_equal(gemm_fits(&task, method), fits);
        cb_set_threads(i % 3 ? 3 : 1);
        if (fits) run_case(&c);
    }
    cb_set_threads(0);
}

/* Narrower than each vector and as wide, in several panels; rows that do not fill their last
 * block. */
static void tall(void **state) {
    (void)state;
    static const int64_t size[][3] = {{64, 1, 1},    {100, 2, 3},  {2101, 5, 3},  {301, 3, 31},
                                      {100, 17, 17}, {70, 33, 32}, {200, 70, 9},  {65, 100, 1},
                                      {301, 8, 16},  {90, 32, 5},  {129, 16, 16}, {200, 9, 7}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
            const int64_t *z = size[s];
            run_layouts((Case){.dtype = dtypes[d], .batch = 1, .m = z[0], .n = z[1], .k = z[2]},
                        GEMM_TALL);
        }
}

/* Rows of halves that are parts of longer ones are widened row by row. */
static void parts_of_rows(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        Case c = {.dtype = dtypes[d], .batch = 1, .m = 3001, .n = 5, .k = 3, .spread = 1};
        MatmulTask task = task_of(&c);
        task.a_m = 7;
        void *a = random_matrix(c.dtype, c.m * task.a_m + 8);
        void *b = random_matrix(c.dtype, c.k * c.n + 8), *out = random_matrix(c.dtype, c.m * c.n);
        assert_true(gemm_run(&task, GEMM_TALL, &(Operands){.in = {a, b}, .out = out}));
        expect_product(&task, a, b, out);
        free(a), free(b), free(out);
    }
}

static void long_and_few(void **state) {
    (void)state;
    static const int64_t size[][3] = {{3, 3, 1500},  {2, 1, 1024}, {9, 17, 1031},
                                      {7, 32, 1025}, {8, 8, 2050}, {32, 5, 1536}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
            const int64_t *z = size[s];
            run_layouts((Case){.dtype = dtypes[d], .batch = 1, .m = z[0], .n = z[1], .k = z[2]},
                        GEMM_LONG);
        }
}

/* What is read where it lies, and what is worth packing. */
static void methods_of_sizes(void **state) {
    (void)state;
    static const struct {
        int64_t batch, m, n, k;
        bool b_turned, constant;
        GemmMethod method;
    } size[] = {{1, 2000, 5, 33, false, false, GEMM_TALL},
                {1, 2000, 5, 33, false, true, GEMM_TALL},
                {1, 63, 24, 2000, false, false, GEMM_LONG},
                {1, 16, 16, 1001, true, false, GEMM_LONG},
                {1, 2, 1003, 1001, false, false, GEMM_SWEPT},
                {1, 8, 1003, 1001, false, false, GEMM_SWEPT},
                {1, 8, 1003, 1001, false, true, GEMM_PANELS},
                {1, 8, 1003, 1001, true, true, GEMM_PANELS},
                {1, 8, 1003, 1001, true, false, GEMM_TURNED},
                {1, 300, 300, 300, false, false, GEMM_PANELS},
                {1, 2000, 200, 64, false, false, GEMM_PANELS},
                {65, 16, 16, 32, false, false, GEMM_SMALL},
                {1, 16, 16, 32, false, false, GEMM_SMALL}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        Case c = {.dtype = CB_F32, .batch = size[s].batch, .m = size[s].m, .n = size[s].n};
        c.k = size[s].k, c.b_turned = size[s].b_turned, c.spread = 1;
        MatmulTask task = task_of(&c);
        assert_int_equal(method_of(&task, size[s].constant), size[s].method);
    }
}

/* What each of them takes at the most, or at the least. */
static void others_are_not_thin(void **state) {
    (void)state;
    static const struct {
        int64_t m, n, k;
        GemmMethod method;
        bool fits;
    } size[] = {{64, 24, 512, GEMM_TALL, true},   {64, 24, 513, GEMM_TALL, false},
                {63, 24, 512, GEMM_TALL, false},  {64, 4000, 32, GEMM_TALL, false},
                {128, 128, 513, GEMM_LONG, true}, {128, 128, 512, GEMM_LONG, false},
                {257, 24, 513, GEMM_LONG, false}, {24, 257, 513, GEMM_LONG, false},
                {256, 68, 513, GEMM_LONG, true},  {256, 69, 513, GEMM_LONG, false},
                {64, 32, 40, GEMM_SWEPT, true},   {65, 32, 40, GEMM_SWEPT, false},
                {1, 32, 40, GEMM_SWEPT, false},   {2, 31, 40, GEMM_SWEPT, false}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        Case c = {.dtype = CB_F32, .batch = 1, .m = size[s].m, .n = size[s].n, .k = size[s].k};
        c.spread = 1;
        MatmulTask task = task_of(&c);
        assert_int_equal(gemm_fits(&task, size[s].method), size[s].fits);
        task.b_n = 2;
        if (size[s].method == GEMM_SWEPT) assert_false(gemm_fits(&task, GEMM_SWEPT));
    }
}

/* Few rows of several items; columns cut for one thread and for many, which changes no bit. */
static void swept(void **state) {
    (void)state;
    static const int64_t size[][4] = {
        {1, 2, 1003, 65}, {3, 5, 33, 40}, {1, 64, 257, 31}, {1, 17, 300, 100}, {2, 9, 160, 64}};
    for (size_t s = 0; s < 2 * sizeof size / sizeof *size; s++) {
        const int64_t *z = size[s / 2];
        Case c = {.dtype = s % 2 ? CB_F32 : CB_F64, .batch = z[0], .spread = 1};
        c.m = z[1], c.n = z[2], c.k = z[3], c.a_turned = s % 3 == 0;
        for (int threads = 1; threads <= 8; threads += 7) {
            cb_set_threads(threads);
            run_case(&c);
        }
    }
    cb_set_threads(0);
}

/* The elements end where the memory does: lanes behind the last column of B are not read there, nor
 * are those of the result written. A step of 0 is one row of B for every k. */
static void nothing_behind_the_end_is_touched(void **state) {
    (void)state;
    enum { ROOM = 1 << 16 };
    static const int64_t size[][4] = {{3, 3, 1500, 3},  {7, 5, 1025, 5}, {3, 3, 1030, 0},
                                      {3, 17, 1024, 2}, {999, 5, 3, 5},  {900, 17, 2, 17}};
    char *pages = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    float *b = (float *)(void *)pages, *out = malloc(ROOM * sizeof *out);
    assert_int_equal(mprotect(pages + ROOM, ROOM, PROT_NONE), 0);
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        Case c = {.dtype = CB_F32, .batch = 1, .m = size[s][0], .n = size[s][1], .k = size[s][2]};
        c.spread = 1;
        MatmulTask task = task_of(&c);
        task.b_k = size[s][3];
        int64_t last = (c.k - 1) * task.b_k + c.n;
        task.b_offset = ROOM / (int64_t)sizeof *b - last;
        float *a = random_matrix(CB_F32, c.m * c.k + 8);
        float *elements = random_matrix(CB_F32, last);
        memcpy(b + task.b_offset, elements, (size_t)last * sizeof *b);
        assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = out}));
        expect_product(&task, a, b, out);
        float *end = b + ROOM / (int64_t)sizeof *b - c.m * c.n;
        task.b_offset = 0;
        assert_true(run_own(&task, &(Operands){.in = {a, elements}, .out = end}));
        expect_product(&task, a, elements, end);
        free(a), free(elements);
    }
    free(out);
    assert_int_equal(munmap(pages, 2 * ROOM), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tall),
        cmocka_unit_test(parts_of_rows),
        cmocka_unit_test(long_and_few),
        cmocka_unit_test(methods_of_sizes),
        cmocka_unit_test(others_are_not_thin),
        cmocka_unit_test(swept),
        cmocka_unit_test(nothing_behind_the_end_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
