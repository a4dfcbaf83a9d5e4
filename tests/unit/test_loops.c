/* Algorithms that loop until a value says so: compiled they give what eager gives, from a number of
 * graphs that neither the rounds nor the calls change. bench/breaks.c has their times. */
#include "elements.h"

#include "carbide.h"

/* Until no centre moves. */
static cb_tensor *k_means(cb_tensor *x) {
    cb_tensor *centre = cb_narrow(x, 0, 0, 4), *number = cb_arange(0, 4);
    for (int i = 0; i < 30; i++) {
        cb_tensor *squares = cb_sum(cb_square(centre), 1);
        cb_tensor *far = cb_sub(squares, cb_mul(cb_matmul(x, cb_transpose(centre, 0, 1)), 2.0));
        cb_tensor *nearest = cb_unsqueeze(cb_argmin(far, 1), 0);
        cb_tensor *mine = cb_to(cb_eq(cb_unsqueeze(number, 1), nearest), CB_F32);
        cb_tensor *count = cb_maximum(cb_sum(mine, 1), 1.0);
        cb_tensor *next = cb_div(cb_matmul(mine, x), cb_unsqueeze(count, 1));
        bool still = cb_item(cb_max(cb_abs(cb_sub(next, centre)))) < 1e-4;
        centre = next;
        if (still) break;
    }
    return centre;
}

static cb_tensor *loss(cb_tensor *w, cb_tensor *x) {
    cb_tensor *far = cb_sqrt(cb_add(cb_square(cb_sub(w, x)), 0.01));
    return cb_sum(cb_add(far, cb_mul(cb_square(w), 0.05)));
}

/* Newton's method, each step halved until it helps enough. */
static cb_tensor *line_search(cb_tensor *x) {
    cb_tensor *w = cb_mul(x, 0.0);
    double now = cb_item(loss(w, x));
    for (int i = 0; i < 30; i++) {
        cb_tensor *off = cb_sub(w, x), *root = cb_sqrt(cb_add(cb_square(off), 0.01));
        cb_tensor *slope = cb_add(cb_div(off, root), cb_mul(w, 0.1));
        cb_tensor *bend = cb_add(cb_div(0.01, cb_mul(root, cb_square(root))), 0.1);
        cb_tensor *step = cb_div(slope, bend);
        double gain = cb_item(cb_sum(cb_mul(slope, step))), rate = 1, next = now;
        for (int halved = 0; halved < 12; halved++, rate *= 0.5) {
            next = cb_item(loss(cb_sub(w, cb_mul(step, rate)), x));
            if (next <= now - 1e-4 * rate * gain) break;
        }
        w = cb_sub(w, cb_mul(step, rate));
        if (now - next < 1e-4 * now) break;
        now = next;
    }
    return w;
}

/* Conjugate gradients, whose numbers come from values. Two of their segments begin alike, with a
 * product by a number. */
static cb_tensor *conjugate_gradients(cb_tensor *x) {
    int64_t n = cb_size(x, 0);
    cb_tensor *a = cb_add(cb_matmul(x, cb_transpose(x, 0, 1)), cb_mul(cb_eye(n), (double)n));
    cb_tensor *b = cb_select(x, 1, 0), *y = cb_zeros(n), *rest = b, *along = b;
    double size = cb_item(cb_sum(cb_square(rest)));
    for (int i = 0; i < 40 && size > 1e-9; i++) {
        cb_tensor *turned = cb_matmul(a, along);
        double far = size / cb_item(cb_sum(cb_mul(along, turned)));
        y = cb_add(y, cb_mul(along, far));
        rest = cb_sub(rest, cb_mul(turned, far));
        double now = cb_item(cb_sum(cb_square(rest)));
        along = cb_add(rest, cb_mul(along, now / size));
        size = now;
    }
    return y;
}

static void run(cb_function_1 *function, int graphs) {
    cb_manual_seed(3);
    cb_function *fast = cb_compile(function, "backend=vm");
    for (int call = 0; call < 12; call++) {
        cb_scope_open();
        cb_tensor *x = cb_randn(cb_dims(40, 8));
        expect_tensor(cb_call(fast, x), function(x), 1e-3, 1e-3);
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).graphs, graphs);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    assert_null(cb_error());
}

static void k_means_until_it_stands(void **state) {
    (void)state;
    run(k_means, 2);
}

static void newton_with_a_line_search(void **state) {
    (void)state;
    run(line_search, 5);
}

static void conjugate_gradients_with_numbers(void **state) {
    (void)state;
    run(conjugate_gradients, 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k_means_until_it_stands),
        cmocka_unit_test(newton_with_a_line_search),
        cmocka_unit_test(conjugate_gradients_with_numbers),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
