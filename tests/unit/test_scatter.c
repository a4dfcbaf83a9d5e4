/* scatter and scatter_add beside plain loops: duplicates along every dim, near each other and far
 * apart, operands as they lie, eager, on the VM and as generated C, for any number of threads the
 * same bits. Sizes stand on both sides of every threshold of form.c. */
#include "op/op.h"
#include <math.h>

#include "fixture.h"

enum { ENGINES = 3, THREADS = 4, CASES = 18, SPLIT = 0, SMALL = 1, SPLIT_BINS = 5 };

static const int thread_count[THREADS] = {1, 2, 3, 16};

typedef struct Case {
    int dim;
    cb_dim_list x, index, src;
    bool compiled; /* as generated C, too: a compiler runs for it */
} Case;

static const Case cases[CASES] = {
    {0, {1, {16}}, {1, {100000}}, {1, {100000}}, true},
    {0, {1, {16}}, {1, {100}}, {1, {101}}, false},
    {0, {1, {40000}}, {1, {100000}}, {1, {100000}}, true},
    {0, {1, {100000}}, {1, {40000}}, {1, {40000}}, false},
    {0, {1, {1}}, {1, {50000}}, {1, {50000}}, false},
    {0, {1, {4095}}, {1, {32768}}, {1, {32768}}, false}, /* split: just, */
    {0, {1, {4096}}, {1, {32768}}, {1, {32768}}, false}, /* and just not */
    {0, {2, {100, 64}}, {2, {2048, 64}}, {2, {2048, 64}}, true},
    {0, {2, {7, 5}}, {2, {20000, 5}}, {2, {20000, 5}}, true},
    {0, {2, {50, 20}}, {2, {3000, 17}}, {2, {3001, 18}}, false},
    {0, {2, {9, 5000}}, {2, {20, 5000}}, {2, {20, 5000}}, false},
    {1, {2, {64, 100}}, {2, {64, 1500}}, {2, {64, 1500}}, true},
    {1, {2, {3, 100}}, {2, {3, 40000}}, {2, {3, 40000}}, false},
    {1, {2, {5000, 8}}, {2, {5000, 8}}, {2, {5000, 8}}, false},
    {0, {3, {30, 4, 6}}, {3, {5000, 4, 6}}, {3, {5000, 4, 6}}, false},
    {1, {3, {4, 30, 6}}, {3, {3, 5000, 5}}, {3, {4, 6000, 6}}, true},
    {2, {3, {4, 6, 30}}, {3, {4, 6, 5000}}, {3, {4, 6, 5000}}, false},
    {-1, {4, {2, 3, 4, 50}}, {4, {2, 3, 4, 1000}}, {4, {2, 3, 4, 1000}}, false},
};

/* ---- operands as they lie -------------------------------------------------------------------- */

typedef enum IndexLayout { PLAIN, TURNED, SPARSE, CONSTANT, LAYOUTS } IndexLayout;

/* The same elements in memory that is turned around or has gaps. */
static cb_tensor *laid(cb_tensor *x, IndexLayout layout) {
    cb_dim_list turn = {cb_rank(x), {0}};
    for (int i = 0; i < turn.count; i++) turn.at[i] = turn.count - 1 - i;
    if (layout == TURNED) return cb_permute(cb_contiguous(cb_permute(x, turn)), turn);
    if (layout != SPARSE) return x;
    cb_tensor *pair[2] = {cb_unsqueeze(x, -1), cb_unsqueeze(cb_zeros_like(x), -1)};
    return cb_select(cb_cat(pair, 2, -1), -1, 0);
}

/* Along dim alone: every other position of the others takes the same. */
static cb_tensor *spread(const Case *c, cb_tensor *line, cb_dim_list sizes) {
    int dim = c->dim < 0 ? c->dim + sizes.count : c->dim;
    cb_dim_list narrow = {sizes.count, {0}};
    for (int i = 0; i < sizes.count; i++) narrow.at[i] = i == dim ? sizes.at[i] : 1;
    return cb_expand(cb_reshape(line, narrow), sizes);
}

static int64_t size_along(const Case *c, cb_dim_list sizes) {
    return sizes.at[c->dim < 0 ? c->dim + sizes.count : c->dim];
}

/* Whole numbers, so that every order of the sums gives the same, and small ones, so that halves
 * hold the sums. */
static cb_tensor *numbers(cb_dim_list sizes, cb_dtype dtype) {
    int64_t most = dtype == CB_BOOL ? 1 : cb_dtype_size(dtype) < 4 ? 1 : 4;
    return cb_to(cb_randint(dtype_info(dtype)->is_signed ? -most : 0, most + 1, sizes), dtype);
}

static void make_operands(const Case *c, IndexLayout layout, cb_dtype dtype, cb_tensor **in) {
    int64_t bins = size_along(c, c->x), count = size_along(c, c->index);
    in[0] = laid(numbers(c->x, dtype), layout);
    in[1] = laid(cb_randint(0, bins, c->index), layout);
    in[2] = laid(numbers(c->src, dtype), layout);
    if (layout != CONSTANT) return;
    in[0] = cb_expand(cb_zeros(cb_dims(1), dtype), c->x);
    in[1] = spread(c, cb_randint(0, bins, cb_dims(count)), c->index);
    in[2] = cb_expand(cb_ones(cb_dims(1), dtype), c->src);
}

/* ---- the plain loop -------------------------------------------------------------------------- */

static int64_t numel_of(cb_dim_list sizes) {
    int64_t numel = 1;
    for (int i = 0; i < sizes.count; i++) numel *= sizes.at[i];
    return numel;
}

static void *read_all(cb_tensor *x, cb_dtype dtype) {
    void *data = malloc((size_t)cb_numel(x) * 8 + 8);
    if (cb_read(x, data, dtype) != CB_OK) fail_msg("%s", cb_error());
    return data;
}

static int64_t place(cb_dim_list sizes, const int64_t *at) {
    int64_t flat = 0;
    for (int i = 0; i < sizes.count; i++) flat = flat * sizes.at[i] + at[i];
    return flat;
}

/* In the bits that the integers of the dtype have. */
static double wrapped(double value, const DtypeInfo *info) {
    int spare = 64 - 8 * info->size;
    int64_t high = (int64_t)((uint64_t)(int64_t)value << spare);
    return (double)(info->is_signed ? high >> spare : (int64_t)((uint64_t)high >> spare));
}

static double *expected(const Case *c, cb_tensor *const *in, bool add, cb_dtype dtype) {
    double *out = read_all(in[0], CB_F64), *src = read_all(in[2], CB_F64);
    int64_t *index = read_all(in[1], CB_I64), at[CB_MAX_RANK] = {0};
    int dim = c->dim < 0 ? c->dim + c->x.count : c->dim;
    for (int64_t i = 0, count = numel_of(c->index); i < count; i++) {
        int64_t to[CB_MAX_RANK];
        memcpy(to, at, sizeof to);
        to[dim] = index[i];
        double *bin = &out[place(c->x, to)], value = src[place(c->src, at)];
        *bin = add ? *bin + value : value;
        if (dtype == CB_BOOL) *bin = *bin != 0;
        if (dtype_is_int(dtype)) *bin = wrapped(*bin, dtype_info(dtype));
        for (int d = c->index.count - 1; d >= 0 && ++at[d] == c->index.at[d]; d--) at[d] = 0;
    }
    free(src), free(index);
    return out;
}

/* ---- engines --------------------------------------------------------------------------------- */

typedef struct Job {
    int dim;
    bool add;
} Job;

static int body(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    const Job *job = user;
    out[0] = job->add ? cb_scatter_add(in[0], job->dim, in[1], in[2])
                      : cb_scatter(in[0], job->dim, in[1], in[2]);
    return out[0] ? 1 : -1;
}

static void expect_elements(cb_tensor *got, const double *wanted, const char *what, int number,
                            IndexLayout layout, int threads) {
    if (!got) fail_msg("case %d: %s", number, cb_error());
    double *data = read_all(got, CB_F64);
    for (int64_t i = 0, count = cb_numel(got); i < count; i++)
        if (data[i] != wanted[i])
            fail_msg("%s, case %d, layout %d, %d threads: element %lld is %.9g, not %.9g", what,
                     number, (int)layout, threads, (long long)i, data[i], wanted[i]);
    free(data);
}

static void check_case(int number, IndexLayout layout, bool add, cb_dtype dtype) {
    static const char *const engine[ENGINES] = {"eager", "backend=vm", ""};
    const Case *c = &cases[number];
    Job job = {c->dim, add};
    cb_tensor *in[3], *out[1];
    cb_scope_open();
    make_operands(c, layout, dtype, in);
    double *wanted = expected(c, in, add, dtype);
    for (int e = 0; e < ENGINES; e++) {
        if (e == 2 && (!c->compiled || (layout != PLAIN && layout != CONSTANT))) continue;
        cb_function *fast = e ? cb_compile_n(body, &job, engine[e]) : NULL;
        for (int t = layout == PLAIN ? 0 : THREADS - 1; t < THREADS; t++) {
            cb_set_threads(thread_count[t]);
            out[0] = NULL;
            if (fast)
                (void)cb_call_n(fast, in, 3, out, 1);
            else
                (void)body(in, 3, out, &job);
            expect_elements(out[0], wanted, e ? engine[e] : "eager", number, layout,
                            thread_count[t]);
            cb_free(out[0]);
        }
        cb_function_free(fast);
    }
    cb_set_threads(0);
    free(wanted);
    cb_scope_close();
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void additions_meet(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++)
        for (IndexLayout layout = 0; layout < LAYOUTS; layout++)
            check_case(i, layout, true, CB_F32);
}

static void the_last_write_wins(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++)
        for (IndexLayout layout = 0; layout < LAYOUTS; layout++)
            check_case(i, layout, false, CB_F32);
}

static void every_dtype(void **state) {
    (void)state;
    for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++)
        for (int add = 0; add < 2; add++) {
            check_case(SMALL, PLAIN, add, dtype);
            check_case(SPLIT, PLAIN, add, dtype);
            if (add) check_case(SPLIT_BINS, PLAIN, add, dtype);
        }
}

/* Sums of numbers that round: the same bits however many threads there are, and whoever runs it. */
static void the_same_bits(void **state) {
    (void)state;
    static const char *const engine[ENGINES] = {"eager", "backend=vm", ""};
    Job job = {0, true};
    cb_tensor *in[3] = {cb_randn(cb_dims(100)), cb_randint(0, 100, cb_dims(300000)),
                        cb_randn(cb_dims(300000))};
    float first[100], got[100];
    for (int e = 0; e < ENGINES; e++) {
        cb_function *fast = e ? cb_compile_n(body, &job, engine[e]) : NULL;
        for (int t = 0; t < THREADS; t++) {
            cb_tensor *out[1];
            cb_set_threads(thread_count[t]);
            int count = fast ? cb_call_n(fast, in, 3, out, 1) : body(in, 3, out, &job);
            assert_int_equal(count, 1);
            assert_int_equal(cb_read(out[0], e + t ? got : first, CB_F32), CB_OK);
            if (e + t && memcmp(got, first, sizeof got))
                fail_msg("%s, %d threads", engine[e], thread_count[t]);
        }
        cb_function_free(fast);
    }
    cb_set_threads(0);
}

/* What is computed with sums of few rows among many zeros, or ones, whose rows go anywhere, several
 * to one place, and may be shorter: the bits that the sums in memory give. */
static int with_sums(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    const int *number = user;
    (void)count;
    cb_tensor *x = cb_add(cb_zeros_like(in[0]), *number / 6);
    cb_tensor *rows = cb_expand(in[1], *number % 2 ? cb_dims(cb_size(in[2], 0), 50)
                                                   : cb_dims(50, cb_size(in[2], 1)));
    cb_tensor *sums = cb_scatter_add(x, *number % 2, rows, in[2]);
    out[0] = cb_add(in[0], sums);
    out[1] = cb_sqrt(cb_sum(cb_square(sums)));
    return 2;
}

static void few_rows_are_read_where_they_go(void **state) {
    (void)state;
    for (int i = 0; i < 7; i++) {
        int dim = i % 2, whole = i == 4 || i == 5 ? 69 : 70;
        cb_dim_list all = dim ? cb_dims(70, 900) : cb_dims(900, 70), one = cb_dims(1, 1);
        cb_dim_list rows = dim ? cb_dims(whole, 50) : cb_dims(50, whole);
        one.at[dim] = 50;
        cb_tensor *place = cb_reshape(cb_randint(0, i & 2 ? 900 : 20, cb_dims(50)), one);
        cb_tensor *in[3] = {cb_randn(all), place, cb_randn(rows)};
        cb_tensor *wanted[2], *got[2];
        with_sums(in, 3, wanted, &i);
        cb_function *fast = cb_compile_n(with_sums, &i, i < 2 ? "" : "backend=vm");
        assert_int_equal(cb_call_n(fast, in, 3, got, 2), 2);
        assert_true(cb_item(cb_all(cb_eq(wanted[0], got[0]))) == 1);
        assert_true(fabs(cb_item(wanted[1]) / cb_item(got[1]) - 1) < 1e-6);
        cb_function_free(fast);
    }
}

/* The first index out of range is named, wherever it lies. */
static void bad_indices(void **state) {
    (void)state;
    int64_t index[5000];
    for (int i = 0; i < 5000; i++) index[i] = i % 7;
    index[4000] = 7, index[4999] = -3;
    cb_tensor *line = cb_from_data(index, CB_I64, cb_dims(5000)), *x = cb_zeros(cb_dims(7, 3));
    cb_tensor *rows = cb_expand(cb_unsqueeze(line, 1), cb_dims(5000, 3));
    cb_tensor *halves = cb_slice(line, 0, 0, 5000, 2), *ones = cb_ones(cb_dims(5000, 3));
    assert_null(cb_scatter_add(x, 0, rows, ones));
    expect_status(
        CB_ERR_INDEX,
        "scatter_add: index 7 is out of range for size 7 of dim 0: f32[7, 3], i64[5000, 3]");
    assert_null(cb_scatter(x, 0, cb_expand(cb_unsqueeze(halves, 1), cb_dims(2500, 3)), ones));
    expect_status(CB_ERR_INDEX, "scatter: index 7 is out of range for size 7");
    assert_null(cb_scatter(x, 0, cb_narrow(rows, 0, 4001, 999), ones));
    expect_status(CB_ERR_INDEX, "scatter: index -3 is out of range for size 7");
    assert_non_null(cb_scatter(x, 0, cb_narrow(rows, 0, 0, 4000), ones));
    const int64_t ends[] = {INT64_MIN, INT64_MAX};
    for (int i = 0; i < 2; i++)
        assert_null(cb_index_select(x, 0, cb_from_data(&ends[i], CB_I64, cb_dims(1))));
    cb_clear_error();
}

/* A bin that is written twice must not be read in between: out of place, whatever is loaded at the
 * place that is stored to. */
static int doubled_in_place(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *twice = cb_mul(cb_gather(in[0], 0, in[1]), 2.0);
    out[0] = cb_assign(in[0], cb_scatter(in[0], 0, in[1], twice));
    return 1;
}

static void duplicates_read_old_elements(void **state) {
    (void)state;
    static const char *const engine[] = {"backend=vm", ""};
    for (int e = 0; e < 2; e++) {
        const float start[] = {1, 2, 3, 4}, wanted[] = {1, 4, 6, 4};
        const int64_t index[] = {1, 1, 1, 2};
        cb_tensor *in[2] = {cb_from_data(start, CB_F32, cb_dims(4)),
                            cb_from_data(index, CB_I64, cb_dims(4))};
        cb_tensor *out[1];
        float got[4];
        cb_function *fast = cb_compile_n(doubled_in_place, NULL, engine[e]);
        assert_int_equal(cb_call_n(fast, in, 2, out, 1), 1);
        assert_int_equal(cb_read(in[0], got, CB_F32), CB_OK);
        assert_memory_equal(got, wanted, sizeof wanted);
        cb_function_free(fast);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(additions_meet, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(the_last_write_wins, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(every_dtype, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(the_same_bits, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(few_rows_are_read_where_they_go, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(bad_indices, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(duplicates_read_old_elements, open_scope,
                                        close_scope_without_error),
    };
    return cmocka_run_group_tests_name("scatter", tests, NULL, clean_up);
}
