/* Writes to parts of what a call computes: where it lies, and nothing else of it is moved. */
#include "capture_support.h"
#include "fixture.h"

enum { SIDE = 48 }; /* 9,216 bytes */

static int64_t position;

static cb_tensor *row(cb_tensor *x, int64_t i) { return cb_select(x, 0, i); }
static cb_tensor *column(cb_tensor *x, int64_t i) { return cb_select(x, 1, i); }

static cb_tensor *crosses(cb_tensor *x) {
    cb_tensor *y = cb_clone(x);
    for (int i = 0; i < 8; i++) cb_add_(row(y, i), column(y, i));
    return y;
}

static cb_tensor *crosses_then_sums(cb_tensor *x) { return cb_sum(crosses(x), 1); }

static cb_tensor *squares(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    for (int i = 0; i < 4; i++) {
        int64_t at = (position + 3 * i) % 40;
        cb_tensor *part = cb_slice(cb_slice(y, 0, at, at + 4), 1, i, i + 4);
        cb_mul_(part, cb_sum(part));
    }
    return cb_softmax(y, 1);
}

static cb_tensor *product(cb_tensor *x) {
    cb_tensor *y = cb_matmul(x, x);
    for (int i = 0; i < 8; i++) cb_fill_(row(row(y, i), i), 0.0);
    return cb_add(cb_matmul(y, x), y);
}

/* Reads y as it was, behind the write. */
static cb_tensor *reads_old(cb_tensor *x) {
    cb_tensor *y = cb_tanh(x), *folded = cb_cumsum(y, 0), *twice = cb_mul(y, 2.0);
    cb_fill_(column(y, 3), 1.0);
    return cb_add(cb_sub(cb_matmul(y, x), folded), twice);
}

/* What the write needs reads y as it was, and so does a result. */
static cb_tensor *reads_between(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 0.5), *folded = cb_cumsum(y, 1);
    cb_assign(column(y, 3), column(folded, 7));
    cb_tensor *z = cb_clone(y);
    cb_assign(row(z, position), cb_sum(y, 0));
    cb_assign(column(z, 5), column(y, 3));
    return cb_add(cb_add(z, cb_matmul(y, x)), folded);
}

/* A column that is a result, and of which a part is written behind that. */
static cb_tensor *writes_a_source(cb_tensor *x) {
    cb_tensor *y = cb_clone(x), *line = cb_cumsum(cb_flatten(cb_matmul(x, x), 0, 1), 0);
    cb_assign(column(y, 2), cb_slice(line, 0, 0, SIDE));
    cb_fill_(cb_slice(line, 0, 5, 9), 3.0);
    return cb_add(cb_matmul(y, x), cb_view(line, cb_dims(SIDE, SIDE)));
}

static cb_tensor *stamps(cb_tensor *x) {
    const float value[] = {1, 2, 3, 4};
    cb_tensor *y = cb_mul(x, 2.0);
    cb_assign(cb_slice(cb_slice(y, 0, 0, 2), 1, 1, 3), cb_from_data(value, CB_F32, cb_dims(2, 2)));
    return y;
}

/* Every 49th element of the matrix, seen flat. */
static cb_tensor *diagonal(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 0.5), *flat = cb_view(y, cb_dims(SIDE * SIDE));
    cb_add_(cb_slice(flat, 0, 0, SIDE * SIDE, SIDE + 1), 1.0);
    return cb_add(cb_softmax(y, 1), y);
}

/* The input is copied as it lies, whatever shape the write sees. */
static cb_tensor *diagonal_of_input(cb_tensor *x) {
    cb_tensor *y = cb_clone(x), *flat = cb_view(y, cb_dims(SIDE * SIDE));
    cb_fill_(cb_slice(flat, 0, 0, SIDE * SIDE, SIDE + 1), 0.0);
    return cb_matmul(y, x);
}

/* Half of the columns, each from one that no write touches. */
static cb_tensor *columns_from_others(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    for (int i = 0; i < SIDE; i += 2)
        cb_assign(column(y, i), cb_mul(column(y, (i + 17) % SIDE), 0.5));
    return cb_sum(y, 1);
}

/* All is read between two writes, and of what was there before what they leave alone. */
static cb_tensor *columns_and_means(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    for (int i = 0; i < 6; i++) cb_add_(column(y, i), cb_mean(y));
    return y;
}

/* Both are what one was, and each is written for itself. */
static cb_tensor *two_of_one(cb_tensor *x) {
    cb_tensor *y = cb_tanh(x), *z = cb_clone(y);
    cb_fill_(column(y, 3), 1.0);
    cb_assign(column(z, 5), cb_sum(y, 1));
    return cb_sub(cb_matmul(y, x), cb_matmul(z, x));
}

/* Parts as they were, behind the writes to them. */
static cb_tensor *reads_old_part(cb_tensor *x) {
    cb_tensor *y = cb_tanh(x), *old = cb_clone(column(y, 3));
    cb_fill_(column(y, 3), 1.0);
    return cb_add(cb_matmul(y, x), old);
}

static cb_tensor *reads_older_part(cb_tensor *x) {
    cb_tensor *y = cb_cumsum(x, 0), *old = cb_clone(column(y, 7));
    cb_fill_(cb_select(cb_view(y, cb_dims(SIDE * SIDE)), 0, 5), 1.0);
    cb_tensor *product = cb_matmul(y, x);
    cb_fill_(column(y, 7), 2.0);
    return cb_add(product, cb_add(cb_matmul(y, x), old));
}

/* More writes than a kernel is to ask for, to what is read behind them. */
static cb_tensor *copies_what_is_read(cb_tensor *x) {
    cb_tensor *y = cb_tanh(x), *z = cb_clone(y);
    for (int i = 0; i < 12; i++) cb_fill_(row(column(z, 3 * i), 2 * i), i);
    return cb_add(cb_matmul(z, x), cb_sum(y, 1));
}

/* Twelve pieces of a product, four of which others read joined, and one of zeros. */
static cb_tensor *joins_pieces(cb_tensor *x) {
    cb_tensor *piece[8], *h = x, *four, *all[6], *weight = cb_slice(x, 1, 0, 12);
    for (int i = 0; i < 8; i++) piece[i] = h = cb_tanh(cb_mul(h, 1 + i));
    four = cb_cat(piece, 4, 1);
    cb_tensor *half[] = {cb_slice(piece[5], 0, 0, 24), cb_slice(piece[5], 0, 24, SIDE)};
    all[0] = piece[7], all[1] = cb_zeros_like(x), all[2] = four, all[3] = piece[6];
    all[4] = cb_cat(piece + 2, 4, 1), all[5] = cb_cat(half, 2, 0);
    cb_tensor *y = cb_matmul(cb_cat(all, 6, 1),
                             cb_cat((cb_tensor *[]){x, x, x, x, x, x, x, x, x, x, x, x}, 12, 0));
    return cb_add(cb_matmul(y, weight), cb_sum(four));
}

/* Of which one is of zeros, but not of those that all begins with. */
static cb_tensor *joins_negative_zeros(cb_tensor *x) {
    cb_tensor *piece[12], *all;
    for (int i = 0; i < 12; i++)
        piece[i] = i == 5 ? cb_full_like(x, -0.0) : cb_tanh(cb_mul(x, 1 + i));
    all = cb_cat(piece, 12, 0);
    return cb_add(cb_matmul(all, x), cb_clamp(cb_div(1.0, all), -1.0, 1.0));
}

static void parts_are_written(void **state) {
    (void)state;
    static const struct {
        cb_function_1 *function;
        int most; /* times the bytes of x that a call moves, rounded up */
    } cases[] = {{crosses, 4},
                 {crosses_then_sums, 5},
                 {squares, 6},
                 {product, 7},
                 {reads_old, 9},
                 {reads_between, 12},
                 {writes_a_source, 11},
                 {stamps, 3},
                 {diagonal, 6},
                 {diagonal_of_input, 6},
                 {columns_from_others, 6},
                 {columns_and_means, 11},
                 {two_of_one, 12},
                 {reads_old_part, 9},
                 {reads_older_part, 14},
                 {copies_what_is_read, 9},
                 {joins_pieces, 106},
                 {joins_negative_zeros, 90}};
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        cb_function *fast = cb_compile(cases[k / 2].function, k % 2 ? VM : "");
        for (int call = 0; call < 4; call++) {
            position = 5 * call;
            cb_tensor *x = cb_mul(cb_randn(cb_dims(SIDE, SIDE)), 0.2);
            expect_tensor(cb_call(fast, x), cases[k / 2].function(x), 1e-4, 1e-4);
        }
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        assert_true(cb_stats(fast).bytes <= cases[k / 2].most * SIDE * SIDE * 4);
        cb_function_free(fast);
    }
}

/* ---- beside kernels of one kind, and inputs -------------------------------------------------- */

/* Each returns what would be wrong if a kernel waited for a later one of its kind behind a write:
 * what is written to, what is written, and what reads what was there before. */
static int waits_for_no_write(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    assert_int_equal(count, 2);
    cb_tensor *y = cb_tanh(in[0]);
    cb_fill_(row(y, 3), 1.0);
    out[0] = cb_matmul(y, cb_tanh(in[1]));
    cb_tensor *z = cb_matmul(in[0], in[1]);
    cb_assign(row(z, 3), cb_exp(row(in[0], 0)));
    out[1] = cb_exp(row(cb_matmul(z, in[1]), 0));
    return 2;
}

static int reads_before_the_write(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    assert_int_equal(count, 2);
    cb_tensor *y = cb_cumsum(in[0], 0);
    out[0] = cb_tanh(cb_slice(y, 0, 0, 2));
    cb_fill_(cb_slice(y, 0, 0, 2), 1.0);
    out[1] = cb_matmul(y, cb_transpose(cb_tanh(cb_slice(in[1], 0, 0, 2)), 0, 1));
    return 2;
}

/* An input takes what was there before the write. */
static int gives_what_was_there(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    assert_int_equal(count, 2);
    cb_tensor *y = cb_tanh(in[0]);
    cb_assign(in[1], y);
    cb_fill_(column(y, 3), 1.0);
    out[0] = cb_exp(in[0]);
    out[1] = cb_matmul(y, in[0]);
    return 2;
}

/* Inputs lie as they like: what is copied, and what is written. */
static int takes_inputs(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    assert_int_equal(count, 2);
    cb_tensor *y = cb_clone(in[0]), *z = cb_cumsum(in[0], 1);
    cb_assign(column(y, 2), column(in[0], 3));
    cb_assign(cb_slice(z, 0, 1, 4), cb_slice(in[1], 0, 1, 4));
    cb_assign(cb_slice(cb_slice(z, 0, 10, 14), 1, 3, 6),
              cb_slice(cb_slice(in[1], 0, 0, 4), 1, 1, 4));
    out[0] = cb_matmul(y, in[1]);
    out[1] = cb_matmul(z, in[1]);
    return 2;
}

static void writes_keep_their_order(void **state) {
    (void)state;
    cb_function_n *const functions[] = {waits_for_no_write, reads_before_the_write,
                                        gives_what_was_there, takes_inputs};
    for (size_t k = 0; k < 4 * sizeof functions / sizeof *functions; k++) {
        cb_function *fast = cb_compile_n(functions[k / 4], NULL, k % 2 ? VM : "");
        cb_tensor *x = cb_mul(cb_randn(cb_dims(SIDE, SIDE)), 0.2);
        if (k & 2) x = cb_transpose(x, 0, 1);
        cb_tensor *const given[] = {x, cb_mul(cb_randn(cb_dims(SIDE, SIDE)), 0.2)};
        cb_tensor *const again[] = {x, cb_clone(given[1])};
        cb_tensor *is[2], *expected[2];
        assert_int_equal(cb_call_n(fast, given, 2, is, 2), 2);
        assert_int_equal(functions[k / 4](again, 2, expected, NULL), 2);
        for (int i = 0; i < 2; i++) expect_tensor(is[i], expected[i], 1e-4, 1e-4);
        expect_tensor(given[1], again[1], 1e-6, 1e-6);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

static cb_tensor *sums_rows(cb_tensor *x) {
    cb_tensor *y = cb_clone(x);
    for (int i = 0; i < 8; i++) cb_add_(row(y, i), row(y, i + 1));
    cb_fill_(row(row(y, 1), 2), 0.0);
    return y;
}

/* Op by op a write moves what is written, or nothing where an op did it in place. */
static void eager_moves_parts(void **state) {
    (void)state;
    cb_function *fast = cb_compile(sums_rows, VM);
    assert_non_null(cb_call(fast, cb_rand(cb_dims(SIDE, SIDE))));
    cb_function_stats stats = cb_stats(fast);
    assert_int_equal(stats.kernels_eager, 1 + 8 + 1);
    assert_int_equal(stats.bytes_eager, (2 * SIDE * SIDE + 8 * 3 * SIDE + 2) * 4);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_are_written, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(writes_keep_their_order, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(eager_moves_parts, open_scope, close_scope_without_error),
    };
    return run_counted(tests);
}
