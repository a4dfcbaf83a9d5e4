/* Matrix products in every shape, layout and dtype against plain loops. The elements are small
 * integers, so the comparison is for equality; thread counts are compared bit for bit on real
 * numbers. */
#include "each_fails.h"

#include "cpu/gemm_internal.h"
#include "epilogue.h"
#include "method/table.h"
#include "small_integers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Case {
    cb_dtype dtype;
    int64_t batch, m, n, k;
    bool a_turned, b_turned; /* stored transposed */
    int64_t spread;          /* elements between neighbours */
    bool a_shared, b_shared; /* one matrix for the whole batch */
} Case;

static MatmulTask task_of(const Case *c) {
    MatmulTask task = {.dtype = c->dtype,
                       .batch = c->batch,
                       .m = c->m,
                       .n = c->n,
                       .k = c->k,
                       .batch_rank = 1,
                       .batch_size = {c->batch}};
    task.a_m = c->spread * (c->a_turned ? 1 : c->k),
    task.a_k = c->spread * (c->a_turned ? c->m : 1);
    task.b_k = c->spread * (c->b_turned ? 1 : c->n),
    task.b_n = c->spread * (c->b_turned ? c->k : 1);
    task.a_batch[0] = c->a_shared ? 0 : c->spread * c->m * c->k;
    task.b_batch[0] = c->b_shared ? 0 : c->spread * c->k * c->n;
    task.a_offset = 3, task.b_offset = 5;
    return task;
}

/* k numbers, a step apart. */
static void gather(const MatmulTask *task, const void *data, int64_t at, int64_t step, double *to) {
    for (int64_t k = 0; k < task->k; k++) to[k] = value_at(data, task->dtype, at + k * step);
}

static void gather_row(const MatmulTask *task, const void *a, int64_t batch, int64_t row,
                       double *to) {
    gather(task, a, task->a_offset + batch * task->a_batch[0] + row * task->a_m, task->a_k, to);
}

static void gather_column(const MatmulTask *task, const void *b, int64_t batch, int64_t column,
                          double *to) {
    gather(task, b, task->b_offset + batch * task->b_batch[0] + column * task->b_n, task->b_k, to);
}

/* The element by definition, wrapped or rounded to the dtype. */
static double expected_of(const MatmulTask *task, const double *row, const double *column) {
    double sum = 0;
    for (int64_t k = 0; k < task->k; k++) sum += row[k] * column[k];
    if (task->dtype == CB_BOOL) return sum != 0;
    if (task->dtype == CB_I8) return (int8_t)(int64_t)sum;
    if (task->dtype == CB_U8) return (uint8_t)(int64_t)sum;
    if (task->dtype == CB_F16) return f16_to_f32(f16_from_f32((float)sum));
    if (task->dtype == CB_BF16) return bf16_to_f32(bf16_from_f32((float)sum));
    return sum;
}

static double expected_at(const MatmulTask *task, const void *a, const void *b, int64_t batch,
                          int64_t row, int64_t column) {
    double *of_a = malloc((size_t)(2 * task->k + 1) * sizeof *of_a), *of_b = of_a + task->k;
    gather_row(task, a, batch, row, of_a);
    gather_column(task, b, batch, column, of_b);
    double expected = expected_of(task, of_a, of_b);
    free(of_a);
    return expected;
}

static void expect_element(const MatmulTask *task, int64_t at, double got, double expected) {
    if (got == expected) return;
    int64_t row = at / task->n;
    print_error("%s [%ld, %ld, %ld, %ld]: [%ld][%ld][%ld] is %g, not %g\n",
                cb_dtype_name(task->dtype), (long)task->batch, (long)task->m, (long)task->n,
                (long)task->k, (long)(row / task->m), (long)(row % task->m), (long)(at % task->n),
                got, expected);
    assert_true(got == expected);
}

static void expect_product(const MatmulTask *task, const void *a, const void *b, const void *out) {
    double *row = malloc((size_t)((task->n + 1) * task->k + 1) * sizeof *row);
    double *column = row + task->k;
    for (int64_t batch = 0; batch < task->batch; batch++) {
        for (int64_t j = 0; j < task->n; j++)
            gather_column(task, b, batch, j, column + j * task->k);
        for (int64_t r = 0; r < task->m; r++) {
            gather_row(task, a, batch, r, row);
            for (int64_t j = 0; j < task->n; j++) {
                int64_t at = (batch * task->m + r) * task->n + j;
                expect_element(task, at, value_at(out, task->dtype, at),
                               expected_of(task, row, column + j * task->k));
            }
        }
    }
    free(row);
}

/* By the method that the table chooses. */
static GemmMethod method_of(const MatmulTask *task, bool constant) {
    return method_own(&(Task){.kind = TASK_MATMUL, .matmul = *task}, constant)->variant;
}

static bool run_own(const MatmulTask *task, const Operands *operands) {
    return gemm_run(task, method_of(task, operands->packed != NULL), operands);
}

static bool pack_own(const MatmulTask *task, const void *b, cb_dtype dtype, Storage **packed) {
    return gemm_pack(task, method_of(task, true), b, dtype, packed);
}

/* reduced: f32 as bf16 */
static void run_product(const Case *c, bool reduced) {
    MatmulTask task = task_of(c);
    task.reduced = reduced;
    void *a = random_matrix(c->dtype, c->spread * c->batch * c->m * c->k + 8);
    void *b = random_matrix(c->dtype, c->spread * c->batch * c->k * c->n + 8);
    void *out = random_matrix(c->dtype, c->batch * c->m * c->n);
    size_t bytes = (size_t)(c->batch * c->m * c->n) * cb_dtype_size(c->dtype);
    int fitting = 0;
    for (GemmMethod method = 0; method <= GEMM_PANELS; method++) {
        if (!gemm_fits(&task, method)) continue;
        fitting++;
        memset(out, 1, bytes);
        assert_true(gemm_run(&task, method, &(Operands){.in = {a, b}, .out = out}));
        expect_product(&task, a, b, out);
        Storage *packed;
        assert_true(gemm_pack(&task, method, b, c->dtype, &packed));
        if (!packed) continue;
        memset(out, 1, bytes);
        Operands operands = {.in = {a}, .packed = packed->data, .out = out};
        assert_true(gemm_run(&task, method, &operands));
        expect_product(&task, a, b, out);
        storage_release(packed);
    }
    assert_true(fitting > 0);
    free(a), free(b), free(out);
}

static void run_case(const Case *c) { run_product(c, false); }

/* The same b, packed for products of few rows and of more, is one form; another k, n or place of b
 * is another. */
static void layouts_without_the_rows(void **state) {
    (void)state;
    const Case c = {CB_F32, 1, 8, 50, 70, false, true, 1, false, false};
    Arena *arena = arena_new();
    for (int i = 0; i < 6; i++) {
        MatmulTask task = task_of(&c), other = task;
        Buffer text = buffer_new(arena), others = buffer_new(arena);
        int64_t *word[] = {&other.m, &other.n, &other.k, &other.b_n, &other.b_k, &other.b_offset};
        *word[i] += 40;
        assert_true(gemm_layout(&task, GEMM_PANELS, &text));
        assert_true(gemm_layout(&other, GEMM_PANELS, &others));
        assert_int_equal(strcmp(buffer_text(&text), buffer_text(&others)) == 0, i == 0);
        assert_false(gemm_layout(&task, GEMM_VECTOR, &others)); /* reads b where it lies */
    }
    arena_free(arena);
}

static const cb_dtype dtypes[] = {CB_F32, CB_F64, CB_F16, CB_BF16, CB_I64,
                                  CB_I32, CB_I16, CB_I8,  CB_U8,   CB_BOOL};

static void every_dtype_in_odd_sizes(void **state) {
    (void)state;
    static const int64_t size[][3] = {{1, 1, 1},    {2, 3, 4},    {7, 5, 3},   {14, 32, 8},
                                      {15, 33, 9},  {29, 65, 31}, {3, 70, 17}, {70, 3, 17},
                                      {33, 32, 32}, {16, 64, 97}, {40, 20, 64}};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
            Case c = {.dtype = dtypes[d], .batch = 1, .spread = 1};
            c.m = size[s][0], c.n = size[s][1], c.k = size[s][2];
            run_case(&c);
            if (c.dtype == CB_F32) run_product(&c, true);
        }
}

typedef struct Run {
    MatmulTask task;
    const void *a, *b;
    void *out;
} Run;

static bool run_task(void *user) {
    const Run *r = user;
    return run_own(&r->task, &(Operands){.in = {r->a, r->b}, .out = r->out});
}

static bool pack_task(void *user) {
    const Run *r = user;
    Storage *packed;
    bool done = pack_own(&r->task, r->b, r->task.dtype, &packed);
    assert_true(done || !packed);
    if (packed) storage_release(packed);
    return done;
}

/* Of tasks, of what they share, of gathered vectors, of packed weights. */
static void each_allocation_of_a_product_fails(void **state) {
    (void)state;
    static const Case cases[] = {
        {CB_F32, 1, 40, 70, 30, false, false, 1, false, false},
        {CB_F32, 1, 600, 200, 300, false, false, 1, false, false},
        {CB_F32, 1, 30, 2000, 300, true, true, 1, false, false},
        {CB_F32, 2, 1, 70, 50, false, false, 2, false, false},
        {CB_F64, 1, 70, 1, 50, true, false, 1, false, false},
        {CB_F32, 1, 1, 2, 70000, false, true, 1, false, false},
        {CB_BF16, 1, 40, 70, 30, false, true, 1, false, false},
        {CB_F16, 1, 1, 70, 50, false, false, 1, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        void *a = random_matrix(c->dtype, c->spread * c->batch * c->m * c->k + 8);
        void *b = random_matrix(c->dtype, c->spread * c->batch * c->k * c->n + 8);
        void *out = random_matrix(c->dtype, c->batch * c->m * c->n);
        Run r = {task_of(c), a, b, out};
        each_allocation_fails(run_task, &r);
        expect_product(&r.task, a, b, out);
        each_allocation_fails(pack_task, &r);
        free(a), free(b), free(out);
    }
}

/* Narrowed sums of many rows: strips of panels, of which equal ones are looked for. */
static void many_rows_of_halves(void **state) {
    (void)state;
    static const int64_t size[][3] = {{5000, 20, 2}, {2000, 176, 2}, {2000, 352, 1}};
    int threads = cb_threads();
    cb_set_threads(1);
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        Case c = {.dtype = CB_F16, .batch = 1, .spread = 1};
        c.m = size[i][0], c.n = size[i][1], c.k = size[i][2];
        run_case(&c);
    }
    cb_set_threads(threads);
}

/* A weight in f32 that a task in bf16 packs is what its conversion would have been. */
static void run_packing_from_f32(Case c) {
    MatmulTask task = task_of(&c);
    assert_true(gemm_packs_from(&task, method_of(&task, true), CB_F32));
    assert_false(gemm_packs_from(&task, method_of(&task, true), CB_F64));
    int64_t count = c.spread * c.k * c.n + 8;
    float *wide = malloc((size_t)count * sizeof *wide);
    uint16_t *narrow = malloc((size_t)count * sizeof *narrow);
    void *a = random_matrix(CB_BF16, c.spread * c.m * c.k + 8);
    void *out[2] = {random_matrix(CB_BF16, c.m * c.n), random_matrix(CB_BF16, c.m * c.n)};
    assert_true(wide && narrow);
    for (int64_t i = 0; i < count; i++) {
        wide[i] = (float)small() + (float)small() / 1021;
        if (i % 97 == 0) wide[i] = i % 2 ? INFINITY : NAN;
        narrow[i] = bf16_from_f32(wide[i]);
    }
    for (int i = 0; i < 2; i++) {
        Storage *packed;
        assert_true(pack_own(&task, i ? (void *)wide : narrow, i ? CB_F32 : CB_BF16, &packed));
        Operands operands = {.in = {a}, .packed = packed->data, .out = out[i]};
        assert_true(run_own(&task, &operands));
        storage_release(packed);
    }
    assert_memory_equal(out[0], out[1], (size_t)(c.m * c.n) * sizeof(uint16_t));
    free(a), free(out[0]), free(out[1]), free(wide), free(narrow);
}

static void bf16_is_packed_from_f32(void **state) {
    (void)state;
    if (!gemm_bf16()) skip_because("this processor does not multiply bf16");
    static const int64_t size[][3] = {{2, 3, 4}, {15, 33, 9}, {40, 64, 70}, {20, 100, 1500}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (int turned = 0; turned < 2; turned++)
            for (int spread = 1; spread < 3; spread++)
                run_packing_from_f32((Case){.dtype = CB_BF16,
                                            .batch = 1,
                                            .m = size[s][0],
                                            .n = size[s][1],
                                            .k = size[s][2],
                                            .b_turned = turned,
                                            .spread = spread});
    Case f16 = {.dtype = CB_F16, .batch = 1, .m = 20, .n = 20, .k = 20, .spread = 1};
    MatmulTask task = task_of(&f16);
    assert_false(gemm_packs_from(&task, method_of(&task, true), CB_F32));
}

static void every_layout(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        Case c = {i & 8 ? CB_BF16 : CB_F32,
                  2,
                  37,
                  41,
                  19,
                  (i & 1) != 0,
                  (i & 2) != 0,
                  i & 4 ? 2 : 1,
                  false,
                  false};
        run_case(&c);
        run_product(&c, true);
        c.dtype = i & 8 ? CB_F16 : CB_F64;
        run_case(&c);
    }
}

static void vectors(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        Case row = {i & 1 ? CB_F32 : CB_F64, 3,     1,    1100, 77, (i & 2) != 0, (i & 4) != 0,
                    i & 8 ? 3 : 1,           false, false};
        Case column = row;
        column.m = 1100, column.n = 1;
        run_case(&row);
        run_case(&column);
    }
}

/* Up to six vectors, at every place in a block of columns, in every layout; packed, too. */
static void a_few_vectors(void **state) {
    (void)state;
    static const int64_t size[][2] = {{2, 2}, {3, 3}, {2, 5}, {6, 67}, {7, 65}, {4, 131}, {5, 64}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (int i = 0; i < 32; i++) {
            Case c = {.dtype = i & 1 ? CB_F32 : CB_F64, .batch = i & 2 ? 3 : 1};
            c.m = size[s][i & 4 ? 1 : 0], c.n = size[s][i & 4 ? 0 : 1], c.k = i & 8 ? 64 : 77;
            c.a_turned = (i & 16) != 0, c.b_turned = (i & 8) != 0, c.spread = i & 16 ? 2 : 1;
            run_case(&c);
            c.spread = 1, c.b_turned = true;
            run_case(&c);
            if (c.dtype == CB_F32) run_product(&c, true);
        }
}

/* A few sums of several pieces, the last one short. */
static void long_sums(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        int64_t columns = i & 1 ? 1 : 5;
        Case c = {.dtype = i & 2 ? CB_F32 : CB_F64, .batch = 1, .k = 100003, .spread = 1};
        c.m = i & 4 ? columns : 1, c.n = i & 4 ? 1 : columns, c.b_turned = !(i & 4);
        run_case(&c);
        c.k = i & 8 ? 65536 : 65535;
        run_case(&c);
    }
}

/* Items of a few elements, by way of their own method; the last block of items is not full. */
static void small_items(void **state) {
    (void)state;
    static const int64_t size[][3] = {{3, 3, 3},   {4, 1, 4},   {1, 4, 4},  {12, 12, 12},
                                      {2, 5, 7},   {5, 17, 9},  {3, 33, 4}, {4, 2, 5},
                                      {40, 4, 16}, {1, 1, 300}, {7, 3, 1}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (int i = 0; i < 16; i++) {
            Case c = {.dtype = i & 1 ? CB_F32 : CB_F64, .batch = i & 2 ? 2 : 301};
            c.m = size[s][0], c.n = size[s][1], c.k = size[s][2];
            c.a_turned = (i & 4) != 0, c.b_turned = c.n < 4 && (i & 4),
            c.spread = c.n < 4 && (i & 8) ? 2 : 1;
            MatmulTask task = task_of(&c);
            assert_int_equal(method_of(&task, false), GEMM_SMALL);
            run_case(&c);
        }
    Case large = {.dtype = CB_F32, .batch = 9, .m = 17, .n = 16, .k = 16, .spread = 1};
    MatmulTask task = task_of(&large);
    assert_int_not_equal(method_of(&task, false), GEMM_SMALL);
}

/* Three rows times W as it lies: nothing is packed, nor is memory taken for it. */
static void a_few_vectors_take_no_memory(void **state) {
    (void)state;
    Case c = {CB_F32, 1, 3, 500, 1000, false, true, 1, false, false};
    for (int turned = 0; turned < 2; turned++) {
        MatmulTask task = task_of(&c);
        float *a = random_matrix(CB_F32, c.m * c.k + 8), *b = random_matrix(CB_F32, c.k * c.n + 8);
        float *out = random_matrix(CB_F32, c.m * c.n);
        cb_memory_stats before = cb_memory();
        assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = out}));
        assert_int_equal(cb_memory().cached_bytes, before.cached_bytes);
        expect_product(&task, a, b, out);
        free(a), free(b), free(out);
        c.m = 500, c.n = 3;
    }
}

static void several_blocks_of_k(void **state) {
    (void)state;
    Case c = {CB_F32, 1, 20, 40, 1300, false, true, 1, false, false};
    run_case(&c);
    c.dtype = CB_F64, c.k = 777;
    run_case(&c);
    c.dtype = CB_BF16;
    run_case(&c);
    c.k = 2051;
    run_case(&c);
    c.dtype = CB_F32;
    run_product(&c, true);
}

static void tall_wide_and_batched(void **state) {
    (void)state;
    static const Case cases[] = {
        {CB_F32, 1, 600, 45, 64, false, false, 1, false, false},
        {CB_F32, 1, 45, 600, 64, false, true, 1, false, false},
        {CB_F64, 1, 333, 222, 40, true, false, 1, false, false},
        {CB_F32, 12, 33, 34, 16, false, true, 1, false, false},
        {CB_F32, 5, 9, 40, 16, false, false, 1, false, true}, /* folds into rows */
        {CB_F32, 5, 1, 40, 16, false, false, 1, false, true}, /* ... of one row each */
        {CB_F32, 5, 9, 40, 16, true, false, 1, false, true},  /* does not fold */
        {CB_F32, 5, 9, 40, 16, false, false, 1, true, false},
        {CB_F32, 2, 170, 190, 130, false, false, 1, false, false}, /* each item by all threads */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case c = cases[i];
        run_case(&c);
        run_product(&c, true);
        c.dtype = CB_BF16;
        run_case(&c);
    }
}

/* A packed B is shared 32 MB at a time: the columns behind 1024 are packed in a second round. */
static void columns_in_rounds(void **state) {
    (void)state;
    Case c = {CB_F64, 1, 280, 1100, 4200, false, false, 1, false, false};
    MatmulTask task = task_of(&c);
    void *a = random_matrix(c.dtype, c.m * c.k + 8), *b = random_matrix(c.dtype, c.k * c.n + 8);
    double *out = random_matrix(c.dtype, c.m * c.n);
    assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = out}));
    for (int64_t at = 0; at < c.m * c.n; at += 997)
        assert_true(out[at] == expected_at(&task, a, b, 0, at / c.n, at % c.n));
    free(a), free(b), free(out);
}

static void nothing_to_sum(void **state) {
    (void)state;
    Case c = {CB_F32, 1, 3, 4, 0, false, false, 1, false, false};
    run_case(&c);
    c.k = 5, c.m = 0;
    run_case(&c);
}

/* ---- the epilogue ---- */

static void epilogue_visits_each_element_once(void **state) {
    (void)state;
    static const int64_t size[][4] = {
        {1, 5, 7, 3}, {1, 1, 2000, 9},    {1, 2000, 1, 9}, {3, 20, 50, 700}, {1, 300, 500, 64},
        {1, 4, 4, 0}, {1, 16, 3000, 520}, {2, 300, 3, 64}, {2, 3, 300, 64},  {1, 33, 500, 300}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        Case c = {CB_F32, size[s][0],           size[s][1], size[s][2], size[s][3],
                  false,  size[s][1] % 10 == 3, 1,          false,      false};
        MatmulTask task = task_of(&c);
        int64_t count = c.batch * c.m * c.n;
        float *a = random_matrix(CB_F32, c.batch * c.m * c.k + 8);
        float *b = random_matrix(CB_F32, c.batch * c.k * c.n + 8);
        float *out = random_matrix(CB_F32, count), *plain = random_matrix(CB_F32, count);
        uint8_t *visits = calloc((size_t)count, 1);
        void *buffer[] = {out, visits};
        Launch launch = {
            .function = twice_plus_one, .form = FORM_TILE, .outer_size = count, .split = 1};
        assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = plain}));
        Operands operands = {.in = {a, b}, .out = out};
        operands.epilogue = &launch, operands.epilogue_buffer = buffer;
        assert_true(run_own(&task, &operands));
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(visits[i], 1);
            assert_true(out[i] == plain[i] * 2 + 1);
        }
        free(a), free(b), free(out), free(plain), free(visits);
    }
}

/* ---- numbers ---- */

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
    MatmulTask task = {.dtype = CB_F32, .batch = 1, .m = 40, .n = 64, .k = 64, .b_k = 1};
    assert_true(gemm_fits(&task, GEMM_TURNED));
    assert_int_equal(method_of(&task, false), GEMM_TURNED);
    assert_int_not_equal(method_of(&task, true), GEMM_TURNED); /* from panels */
    MatmulTask head = {.dtype = CB_F32, .batch = 1, .m = 128, .n = 50257, .k = 768, .b_k = 1};
    head.b_n = 768; /* is not copied */
    assert_int_equal(method_of(&head, true), GEMM_TURNED);
    task.m = 513;
    assert_false(gemm_fits(&task, GEMM_TURNED));
    task.m = 40, task.b_k = 2;
    assert_false(gemm_fits(&task, GEMM_TURNED));
}

static void threads_do_not_change_a_bit(void **state) {
    static const int64_t size[][3] = {
        {150, 170, 1100}, {1, 3000, 300}, {40, 700, 600}, {700, 40, 600}};
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
        cmocka_unit_test(layouts_without_the_rows),
        cmocka_unit_test(each_allocation_of_a_product_fails),
        cmocka_unit_test(many_rows_of_halves),
        cmocka_unit_test(every_dtype_in_odd_sizes),
        cmocka_unit_test(bf16_is_packed_from_f32),
        cmocka_unit_test(every_layout),
        cmocka_unit_test(vectors),
        cmocka_unit_test(long_sums),
        cmocka_unit_test(small_items),
        cmocka_unit_test(a_few_vectors_take_no_memory),
        cmocka_unit_test(turned),
        cmocka_unit_test(a_few_vectors),
        cmocka_unit_test(several_blocks_of_k),
        cmocka_unit_test(tall_wide_and_batched),
        cmocka_unit_test(columns_in_rounds),
        cmocka_unit_test(nothing_to_sum),
        cmocka_unit_test(epilogue_visits_each_element_once),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(nan_and_infinity_pass),
        cmocka_unit_test_prestate(threads_do_not_change_a_bit, "reduced"),
        cmocka_unit_test_prestate(nan_and_infinity_pass, "reduced"),
        cmocka_unit_test(reduced_products_round_their_factors_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
