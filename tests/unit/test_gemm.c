/* Matrix products in every shape, layout and dtype against plain loops. The elements are small
 * integers, so the comparison is for equality; test_gemm_numbers.c has real numbers. */
#include "each_fails.h"

#include "epilogue.h"
#include "products.h"
#include <math.h>

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

/* Sums of one block of k, in several blocks of rows and strips of columns: what a thread has packed
 * serves the next piece only where that has the same rows, or columns, of the same item. */
static void pieces_of_halves_share_what_is_packed(void **state) {
    (void)state;
    static const int64_t size[][4] = {{1, 530, 800, 40},
                                      {1, 800, 530, 40},
                                      {2, 400, 300, 40},
                                      {2, 300, 400, 40},
                                      {3, 70, 90, 33}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (int i = 0; i < 4; i++) {
            Case c = {.dtype = CB_BF16, .batch = size[s][0], .spread = 1};
            c.m = size[s][1], c.n = size[s][2], c.k = size[s][3];
            c.a_turned = (i & 1) != 0, c.b_turned = (i & 2) != 0;
            cb_set_threads(s % 2 ? 3 : 1);
            run_case(&c);
        }
    cb_set_threads(0);
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
        {CB_I8, 1, 40, 70, 30, false, true, 1, false, false},
        {CB_F16, 1, 70, 50, 20, false, false, 1, false, false},
        {CB_F32, 1, 7, 9, 2000, true, false, 1, false, false},
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

/* A vector and a matrix of halves, in pieces of k and of columns whose last ones are short; sums
 * that stay f32, too. */
static void vectors_of_halves(void **state) {
    (void)state;
    static const int64_t size[][3] = {{1, 1, 5003}, {1, 7, 2051}, {9, 1, 2051}, {1, 517, 37}};
    for (int i = 0; i < 64; i++) {
        const int64_t *s = size[i % 4];
        Case c = {.dtype = i & 4 ? CB_F16 : CB_BF16, .batch = i & 8 ? 3 : 1, .spread = 1};
        c.m = s[0], c.n = s[1], c.k = s[2];
        c.a_turned = (i & 16) != 0, c.b_turned = s[2] > s[1];
        MatmulTask task = task_of(&c);
        bool apart = c.dtype == CB_BF16 && gemm_bf16() && c.n > 8;
        assert_int_equal(gemm_fits(&task, GEMM_VECTOR), !apart);
        run_case(&c);
        task.wide = true;
        if (i & 32) task.a_k *= 2, task.a_m *= 2, task.a_batch[0] *= 2; /* vectors are gathered */
        void *a = random_matrix(c.dtype, 2 * c.batch * c.m * c.k + 8);
        void *b = random_matrix(c.dtype, c.batch * c.k * c.n + 8);
        int64_t count = c.m * c.n;
        float *out = malloc((size_t)(c.batch * count) * sizeof *out);
        assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = out}));
        for (int64_t at = 0; at < c.batch * count; at++) {
            double exact = expected_at(&task, a, b, at / count, at % count / c.n, at % c.n);
            float got = out[at];
            got = i & 4 ? f16_to_f32(f16_from_f32(got)) : bf16_to_f32(bf16_from_f32(got));
            assert_true((double)got == exact);
        }
        free(a), free(b), free(out);
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
            c.a_turned = c.b_turned = (i & 4) != 0, c.spread = i & 8 ? 2 : 1;
            MatmulTask task = task_of(&c);
            assert_true(gemm_fits(&task, GEMM_SMALL));
            run_case(&c);
        }
}

/* One item is work for one thread; of many each may be more. Columns that are apart are packed, and
 * few ones are for items of a few products alone. */
static void what_is_small(void **state) {
    (void)state;
    static const struct {
        int64_t batch, m, n, k;
        bool b_turned, fits;
    } size[] = {{1, 16, 32, 16, true, true},   {1, 60, 60, 60, false, true},
                {1, 65, 62, 63, false, false}, {8, 100, 100, 100, false, true},
                {7, 64, 64, 64, false, false}, {8, 110, 110, 110, false, false},
                {2, 30, 30, 256, true, true},  {2, 30, 30, 257, true, false},
                {2, 30, 30, 257, false, true}, {2, 2, 129, 128, false, false},
                {2, 60, 3, 22, false, true},   {2, 60, 3, 23, false, false},
                {1, 9, 3, 9, false, false}};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
        Case c = {.dtype = CB_F32, .batch = size[s].batch, .m = size[s].m, .n = size[s].n};
        c.k = size[s].k, c.b_turned = size[s].b_turned, c.spread = 1;
        MatmulTask task = task_of(&c);
        assert_int_equal(gemm_fits(&task, GEMM_SMALL), size[s].fits);
        if (c.batch < 8) run_case(&c);
    }
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

static uint64_t bits_at(const void *data, int64_t i, size_t width) {
    uint64_t bits = 0;
    memcpy(&bits, (const char *)data + (size_t)i * width, width);
    return bits;
}

static void gather_bits(const void *data, int64_t at, int64_t step, int64_t count, size_t width,
                        uint64_t *to) {
    for (int64_t k = 0; k < count; k++) to[k] = bits_at(data, at + k * step, width);
}

static void *random_bits(int64_t count, size_t width) {
    uint8_t *data = malloc((size_t)count * width);
    for (size_t i = 0; i < (size_t)count * width; i++) data[i] = (uint8_t)(small() * 31 + small());
    return data;
}

/* buffer: out, a copy of it, the width of an element */
static void keep_a_copy(void *const *buffer, int64_t low, int64_t high, int pass, void *slot) {
    (void)pass, (void)slot;
    size_t width = *(const size_t *)buffer[2], at = (size_t)low * width;
    memcpy((char *)buffer[1] + at, (char *)buffer[0] + at, (size_t)(high - low) * width);
}

/* Elements of all bits; what the epilogue finds is the result. */
static void expect_wrapped(const Case *c) {
    MatmulTask t = task_of(c);
    size_t width = cb_dtype_size(c->dtype);
    int64_t count = c->batch * c->m * c->n;
    void *a = random_bits(c->spread * c->batch * c->m * c->k + 8, width);
    void *b = random_bits(c->spread * c->batch * c->k * c->n + 8, width);
    void *out = random_bits(count, width);
    void *found = random_bits(count, width), *buffer[] = {out, found, &width};
    Launch launch = {.function = keep_a_copy, .form = FORM_TILE, .outer_size = count, .split = 1};
    Operands operands = {.in = {a, b}, .out = out, .epilogue = &launch, .epilogue_buffer = buffer};
    assert_true(run_own(&t, &operands));
    uint64_t *row = malloc((size_t)(c->n + 1) * (size_t)c->k * sizeof *row), *column = row + c->k;
    for (int64_t i = 0; i < c->batch * c->m; i++) {
        int64_t batch = i / c->m, at = t.a_offset + batch * t.a_batch[0] + i % c->m * t.a_m;
        gather_bits(a, at, t.a_k, c->k, width, row);
        for (int64_t j = 0; j < c->n; j++) {
            uint64_t sum = 0, *bits = column + j * c->k;
            int64_t bt = t.b_offset + batch * t.b_batch[0] + j * t.b_n;
            if (i % c->m == 0) gather_bits(b, bt, t.b_k, c->k, width, bits);
            for (int64_t k = 0; k < c->k; k++) sum += row[k] * bits[k];
            char *to = (char *)out + (size_t)(i * c->n + j) * width;
            assert_memory_equal(to, &sum, width); /* little endian */
        }
    }
    free(row);
    assert_memory_equal(out, found, (size_t)count * width);
    free(a), free(b), free(out), free(found);
}

/* Whole blocks of rows, columns and k and one more, rows and columns too few for sweeps, a turned A
 * beside few columns; in every layout, by one thread and by three. */
static void integers_wrap_to_their_bits(void **state) {
    (void)state;
    static const int64_t size[][3] = {{17, 513, 65}, {257, 130, 17}, {7, 9, 517},  {8, 7, 129},
                                      {300, 1, 70},  {1, 300, 129},  {3, 3, 1025}, {9, 257, 4}};
    static const cb_dtype integers[] = {CB_U8, CB_I8, CB_I16, CB_I32, CB_I64};
    for (size_t s = 0; s < sizeof size / sizeof *size; s++)
        for (int i = 0; i < 5 * 8; i++) {
            Case c = {.dtype = integers[i / 8], .batch = i & 4 ? 3 : 1, .spread = i & 4 ? 2 : 1};
            c.m = size[s][0], c.n = size[s][1], c.k = size[s][2];
            c.a_turned = (i & 1) != 0, c.b_turned = (i & 2) != 0;
            if (i & 4) c.m = c.m / 4 + 1, c.k = c.k / 2 + 1;
            cb_set_threads(i & 1 ? 3 : 1);
            expect_wrapped(&c);
        }
    cb_set_threads(0);
}

/* Of sums of bools that 16 bits do not hold: 65536 pairs of true are true, which is 1, as few
 * are. */
static void any_of_many_bools(void **state) {
    (void)state;
    enum { K = 65536, COLUMNS = 9 };
    bool *a = malloc(K + 3), *b = malloc(K * COLUMNS + 5), out[COLUMNS];
    memset(a, 1, K + 3), memset(b, 1, K * COLUMNS + 5);
    for (int i = 0; i < 4; i++) {
        Case c = {CB_BOOL, 1, 1, COLUMNS, i < 2 ? K : 5, false, i % 2, 1, false, false};
        MatmulTask task = task_of(&c);
        memset(out, 0, sizeof out);
        assert_true(run_own(&task, &(Operands){.in = {a, b}, .out = out}));
        assert_memory_equal(out, a, COLUMNS);
    }
    free(a), free(b);
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
        {1, 5, 7, 3},   {1, 1, 2000, 9},    {1, 2000, 1, 9}, {3, 20, 50, 700}, {1, 300, 500, 64},
        {1, 4, 4, 0},   {1, 16, 3000, 520}, {2, 300, 3, 64}, {2, 3, 300, 64},  {1, 33, 500, 300},
        {1, 999, 5, 3}, {1, 70, 70, 17},    {1, 7, 9, 2000}};
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
        Operands operands = {.in = {a, b}, .out = out};
        operands.epilogue = &launch, operands.epilogue_buffer = buffer;
        for (GemmMethod method = 0; method <= GEMM_PANELS; method++) {
            if (!gemm_fits(&task, method)) continue;
            memset(visits, 0, (size_t)count);
            assert_true(gemm_run(&task, method, &(Operands){.in = {a, b}, .out = plain}));
            assert_true(gemm_run(&task, method, &operands));
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(visits[i], 1);
                assert_true(out[i] == plain[i] * 2 + 1);
            }
        }
        free(a), free(b), free(out), free(plain), free(visits);
    }
}

static void count_calls(void *const *buffer, int64_t low, int64_t high, int pass, void *slot) {
    (void)low, (void)high, (void)pass, (void)slot;
    atomic_fetch_add((_Atomic int *)buffer[0], 1);
}

/* Of whole rows many are one call; of long ones each is few. */
static void epilogue_is_called_for_long_runs(void **state) {
    (void)state;
    static const struct {
        int64_t m, n, k;
        int most;
    } size[] = {{17920, 33, 3, 200}, {4480, 700, 9, 9000}};
    static const GemmMethod methods[] = {GEMM_TALL, GEMM_PANELS};
    for (size_t s = 0; s < 2 * sizeof size / sizeof *size; s++) {
        Case c = {.dtype = CB_F32, .batch = 1};
        c.m = size[s / 2].m, c.n = size[s / 2].n, c.k = size[s / 2].k;
        MatmulTask task = task_of(&c);
        float *a = random_matrix(CB_F32, c.m * c.k + 8), *b = random_matrix(CB_F32, c.k * c.n + 8);
        float *out = random_matrix(CB_F32, c.m * c.n);
        _Atomic int calls = 0;
        void *buffer[] = {&calls};
        Launch launch = {.function = count_calls, .outer_size = c.m * c.n, .split = 1};
        Operands operands = {.in = {a, b}, .out = out};
        operands.epilogue = &launch, operands.epilogue_buffer = buffer;
        assert_true(gemm_run(&task, methods[s % 2], &operands));
        assert_in_range(calls, 1, size[s / 2].most);
        free(a), free(b), free(out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epilogue_is_called_for_long_runs),
        cmocka_unit_test(layouts_without_the_rows),
        cmocka_unit_test(each_allocation_of_a_product_fails),
        cmocka_unit_test(many_rows_of_halves),
        cmocka_unit_test(every_dtype_in_odd_sizes),
        cmocka_unit_test(pieces_of_halves_share_what_is_packed),
        cmocka_unit_test(bf16_is_packed_from_f32),
        cmocka_unit_test(every_layout),
        cmocka_unit_test(vectors),
        cmocka_unit_test(vectors_of_halves),
        cmocka_unit_test(long_sums),
        cmocka_unit_test(small_items),
        cmocka_unit_test(what_is_small),
        cmocka_unit_test(a_few_vectors_take_no_memory),
        cmocka_unit_test(a_few_vectors),
        cmocka_unit_test(integers_wrap_to_their_bits),
        cmocka_unit_test(any_of_many_bools),
        cmocka_unit_test(several_blocks_of_k),
        cmocka_unit_test(tall_wide_and_batched),
        cmocka_unit_test(columns_in_rounds),
        cmocka_unit_test(nothing_to_sum),
        cmocka_unit_test(epilogue_visits_each_element_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
