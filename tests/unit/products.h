/* Products for tests: tasks in every layout, and their results by definition. */
#ifndef CARBIDE_TEST_PRODUCTS_H
#define CARBIDE_TEST_PRODUCTS_H

#include "cpu/gemm_internal.h"
#include "method/table.h"
#include "small_integers.h"
#include <stdlib.h>
#include <string.h>

typedef struct Case {
    cb_dtype dtype;
    int64_t batch, m, n, k;
    bool a_turned, b_turned; /* stored transposed */
    int64_t spread;          /* elements between neighbours */
    bool a_shared, b_shared; /* one matrix for the whole batch */
} Case;

static inline MatmulTask task_of(const Case *c) {
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
static inline void gather(const MatmulTask *task, const void *data, int64_t at, int64_t step,
                          double *to) {
    for (int64_t k = 0; k < task->k; k++) to[k] = value_at(data, task->dtype, at + k * step);
}

static inline void gather_row(const MatmulTask *task, const void *a, int64_t batch, int64_t row,
                              double *to) {
    gather(task, a, task->a_offset + batch * task->a_batch[0] + row * task->a_m, task->a_k, to);
}

static inline void gather_column(const MatmulTask *task, const void *b, int64_t batch,
                                 int64_t column, double *to) {
    gather(task, b, task->b_offset + batch * task->b_batch[0] + column * task->b_n, task->b_k, to);
}

/* Of small integers, in any order: four sums, of which none waits for another. */
static inline double dot(const double *row, const double *column, int64_t count) {
    double sum[4] = {0};
    int64_t k = 0;
    for (; k + 4 <= count; k += 4)
        for (int i = 0; i < 4; i++) sum[i] += row[k + i] * column[k + i];
    for (; k < count; k++) sum[0] += row[k] * column[k];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* The element by definition, wrapped or rounded to the dtype. */
static inline double expected_of(const MatmulTask *task, const double *row, const double *column) {
    double sum = dot(row, column, task->k);
    if (task->dtype == CB_BOOL) return sum != 0;
    if (task->dtype == CB_I8) return (int8_t)(int64_t)sum;
    if (task->dtype == CB_U8) return (uint8_t)(int64_t)sum;
    if (task->dtype == CB_F16) return f16_to_f32(f16_from_f32((float)sum));
    if (task->dtype == CB_BF16) return bf16_to_f32(bf16_from_f32((float)sum));
    return sum;
}

static inline double expected_at(const MatmulTask *task, const void *a, const void *b,
                                 int64_t batch, int64_t row, int64_t column) {
    double *of_a = malloc((size_t)(2 * task->k + 1) * sizeof *of_a), *of_b = of_a + task->k;
    gather_row(task, a, batch, row, of_a);
    gather_column(task, b, batch, column, of_b);
    double expected = expected_of(task, of_a, of_b);
    free(of_a);
    return expected;
}

static inline void expect_element(const MatmulTask *task, int64_t at, double got, double expected) {
    if (got == expected) return;
    int64_t row = at / task->n;
    print_error("%s [%ld, %ld, %ld, %ld]: [%ld][%ld][%ld] is %g, not %g\n",
                cb_dtype_name(task->dtype), (long)task->batch, (long)task->m, (long)task->n,
                (long)task->k, (long)(row / task->m), (long)(row % task->m), (long)(at % task->n),
                got, expected);
    assert_true(got == expected);
}

/* The whole result by definition; free() frees it. */
static inline double *product_of(const MatmulTask *task, const void *a, const void *b) {
    double *row = malloc((size_t)((task->n + 1) * task->k + 1) * sizeof *row);
    double *column = row + task->k;
    double *result = malloc((size_t)(task->batch * task->m * task->n + 1) * sizeof *result);
    for (int64_t batch = 0; batch < task->batch; batch++) {
        for (int64_t j = 0; j < task->n; j++)
            gather_column(task, b, batch, j, column + j * task->k);
        for (int64_t r = 0; r < task->m; r++) {
            gather_row(task, a, batch, r, row);
            double *to = result + (batch * task->m + r) * task->n;
            for (int64_t j = 0; j < task->n; j++)
                to[j] = expected_of(task, row, column + j * task->k);
        }
    }
    free(row);
    return result;
}

static inline void expect_elements(const MatmulTask *task, const double *expected,
                                   const void *out) {
    for (int64_t at = 0; at < task->batch * task->m * task->n; at++)
        expect_element(task, at, value_at(out, task->dtype, at), expected[at]);
}

static inline void expect_product(const MatmulTask *task, const void *a, const void *b,
                                  const void *out) {
    double *expected = product_of(task, a, b);
    expect_elements(task, expected, out);
    free(expected);
}

/* By the method that the table chooses. */
static inline GemmMethod method_of(const MatmulTask *task, bool constant) {
    return method_own(&(Task){.kind = TASK_MATMUL, .matmul = *task}, constant)->variant;
}

static inline bool run_own(const MatmulTask *task, const Operands *operands) {
    return gemm_run(task, method_of(task, operands->packed != NULL), operands);
}

static inline bool pack_own(const MatmulTask *task, const void *b, cb_dtype dtype,
                            Storage **packed) {
    return gemm_pack(task, method_of(task, true), b, dtype, packed);
}

/* reduced: f32 as bf16 */
static inline void run_product(const Case *c, bool reduced) {
    MatmulTask task = task_of(c);
    task.reduced = reduced;
    void *a = random_matrix(c->dtype, c->spread * c->batch * c->m * c->k + 8);
    void *b = random_matrix(c->dtype, c->spread * c->batch * c->k * c->n + 8);
    void *out = random_matrix(c->dtype, c->batch * c->m * c->n);
    size_t bytes = (size_t)(c->batch * c->m * c->n) * cb_dtype_size(c->dtype);
    double *expected = product_of(&task, a, b);
    int fitting = 0;
    for (GemmMethod method = 0; method <= GEMM_PANELS; method++) {
        if (!gemm_fits(&task, method)) continue;
        fitting++;
        memset(out, 1, bytes);
        assert_true(gemm_run(&task, method, &(Operands){.in = {a, b}, .out = out}));
        expect_elements(&task, expected, out);
        Storage *packed;
        assert_true(gemm_pack(&task, method, b, c->dtype, &packed));
        if (!packed) continue;
        memset(out, 1, bytes);
        Operands operands = {.in = {a}, .packed = packed->data, .out = out};
        assert_true(gemm_run(&task, method, &operands));
        expect_elements(&task, expected, out);
        storage_release(packed);
    }
    assert_true(fitting > 0);
    free(a), free(b), free(out), free(expected);
}

static inline void run_case(const Case *c) { run_product(c, false); }

#endif
