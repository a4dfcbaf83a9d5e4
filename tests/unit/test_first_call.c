/* A call that is recorded gives the bits of those that replay it, also where it asks for values:
 * halves are rounded once by a kernel, and by each op of eager, so the two are told apart. */
#include "capture_support.h"
#include "fixture.h"

enum { CALLS = 5, ROWS = 6, COLUMNS = 8 };

static cb_tensor *w, *total;

/* Rounded to f16 by each op, in eager. */
static cb_tensor *chain(cb_tensor *x) {
    cb_tensor *h = cb_to(x, CB_F16);
    return cb_to(cb_mul(cb_add(cb_mul(h, 1.1), cb_mul(cb_sub(h, 0.3), 0.7)), cb_add(h, 0.1)),
                 CB_F32);
}

static void update(void) {
    cb_no_grad_open();
    cb_sub_(w, cb_mul(chain(cb_tensor_grad(w)), 0.01));
    cb_no_grad_close();
    cb_zero_grad(w);
}

static cb_tensor *asks_behind_an_update(cb_tensor *x) {
    cb_tensor *loss = cb_mean(cb_square(chain(cb_mul(w, x))));
    cb_backward(loss, NULL);
    update();
    return cb_item(loss) < 0 ? NULL : loss;
}

static cb_tensor *asks_for_a_gradient(cb_tensor *x) {
    cb_tensor *loss = cb_mean(cb_square(chain(cb_mul(w, x))));
    cb_backward(loss, NULL);
    if (cb_item(cb_sum(cb_square(chain(cb_tensor_grad(w))))) < 0) return NULL;
    update();
    return loss;
}

/* Without a loss. */
static cb_tensor *goes_back_from_many(cb_tensor *x) {
    cb_tensor *y = chain(cb_mul(w, x));
    cb_backward(y, x);
    if (cb_item(cb_sum(chain(cb_tensor_grad(w)))) > 1e6) return NULL;
    update();
    return x;
}

/* What the caller finds in the leaf. */
static cb_tensor *leaves_its_gradient(cb_tensor *x) {
    cb_tensor *loss = cb_mean(cb_square(chain(cb_mul(w, x))));
    cb_zero_grad(w);
    cb_backward(loss, NULL);
    return cb_item(loss) < 0 ? NULL : loss;
}

static cb_tensor *writes_and_asks(cb_tensor *x) {
    cb_tensor *y = chain(cb_mul(cb_detach(w), x));
    cb_add_(total, cb_sum(y));
    return cb_mul(y, cb_item(total) > 0 ? 2.0 : 3.0);
}

static cb_tensor *sets_an_option(cb_tensor *x) {
    cb_tensor *y = chain(cb_mul(cb_detach(w), x));
    cb_set_option("precise", "1");
    y = cb_add(cb_matmul(y, cb_t(y)), 1.0);
    cb_set_option("precise", "0");
    return y;
}

typedef struct Course {
    float result[CALLS][ROWS * ROWS + ROWS * COLUMNS], w[CALLS][COLUMNS], gradient[CALLS][COLUMNS];
} Course;

/* resets: each call is the first one. */
static void run(cb_function_1 *program, bool resets, int graphs, Course *course) {
    cb_function *fast = cb_compile(program, "backend=vm");
    memset(course, 0, sizeof *course);
    cb_manual_seed(3);
    w = cb_requires_grad_(cb_rand(cb_dims(COLUMNS)), true);
    total = cb_zeros(cb_dims(1));
    for (int i = 0; i < CALLS; i++) {
        if (resets) cb_reset();
        cb_tensor *y = cb_call(fast, cb_rand(cb_dims(ROWS, COLUMNS)));
        assert_non_null(y);
        cb_read(y, course->result[i], CB_F32);
        cb_read(w, course->w[i], CB_F32);
        if (cb_tensor_grad(w)) cb_read(cb_tensor_grad(w), course->gradient[i], CB_F32);
    }
    assert_int_equal(cb_stats(fast).graphs, graphs);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    assert_null(cb_error());
}

/* Whose segments are known to be what they are when they end: the first time, too. */
static void is_as_the_second_one(void **state) {
    (void)state;
    static const struct {
        cb_function_1 *run;
        int graphs;
    } programs[] = {{asks_behind_an_update, 1}, {asks_for_a_gradient, 2}, {goes_back_from_many, 2},
                    {leaves_its_gradient, 1},   {writes_and_asks, 2},     {sets_an_option, 2}};
    static Course replayed, recorded;
    for (size_t k = 0; k < sizeof programs / sizeof *programs; k++) {
        run(programs[k].run, false, programs[k].graphs, &replayed);
        run(programs[k].run, true, programs[k].graphs, &recorded);
        if (memcmp(&replayed, &recorded, sizeof replayed)) fail_msg("program %zu", k);
    }
}

/* Gradients go from what lives to what it was computed from, over the event. */
static cb_tensor *goes_back_within(cb_tensor *x) {
    cb_tensor *h = cb_mul(w, x), *loss = cb_sum(cb_tanh(h)), *of_h = NULL;
    if (cb_item(loss) > 1e6) return NULL;
    cb_grad(loss, NULL, &h, 1, &of_h);
    return of_h;
}

static cb_tensor *goes_back_to_one_that_waits(cb_tensor *x) {
    cb_tensor *h = cb_mul(w, x), *g = NULL, *of_h = NULL;
    cb_grad_graph(cb_sum(cb_sigmoid(h)), NULL, &w, 1, &g);
    cb_tensor *y = cb_tanh(g);
    float value[ROWS * COLUMNS];
    cb_read(cb_detach(h), value, CB_F32);
    cb_grad(cb_sum(y), NULL, &h, 1, &of_h);
    return of_h;
}

static void histories_lead_to_all_that_lives(void **state) {
    (void)state;
    cb_function_1 *const programs[] = {goes_back_within, goes_back_to_one_that_waits};
    for (int k = 0; k < 2; k++) {
        w = cb_requires_grad_(cb_rand(cb_dims(COLUMNS)), true);
        cb_function *fast = cb_compile(programs[k], "backend=vm");
        cb_tensor *x = cb_rand(cb_dims(ROWS, COLUMNS)), *eager = programs[k](x);
        for (int call = 0; call < 3; call++) {
            cb_tensor *y = cb_call(fast, x);
            assert_non_null(y);
            assert_true(cb_item(cb_amax(cb_abs(cb_sub(y, eager)))) < 1e-5);
        }
        cb_function_free(fast);
    }
}

/* Of what gradients went back over, the loss alone. */
static void one_loss_crosses(void **state) {
    (void)state;
    w = cb_requires_grad_(cb_ones(cb_dims(COLUMNS)), true);
    cb_function *fast = cb_compile(asks_for_a_gradient, "backend=vm");
    assert_non_null(cb_call(fast, cb_rand(cb_dims(ROWS, COLUMNS))));
    char *text = cb_explain(fast), *crosses = strstr(text, "goes on; crosses %");
    assert_non_null(crosses);
    int count = 0;
    for (const char *at = crosses; *at && *at != '\n'; at++) count += *at == '%';
    assert_int_equal(count, 3); /* with the gradient, and what is asked for */
    cb_free_text(text);
    cb_function_free(fast);
}

static double factor;

static cb_tensor *asks(cb_tensor *x) {
    cb_tensor *y = chain(cb_mul(x, factor));
    return cb_mul(y, cb_item(cb_amax(y)));
}

/* What crosses is known from before. */
static void over_other_sizes_and_numbers(void **state) {
    (void)state;
    cb_function *fast = cb_compile(asks, "backend=vm");
    for (int kind = 0; kind < 4; kind++) {
        cb_tensor *x = cb_rand(cb_dims(kind < 2 ? ROWS : 3 * kind, COLUMNS));
        factor = kind == 1 ? 1.25 : 0.75;
        cb_tensor *first = cb_call(fast, x), *second = cb_call(fast, x);
        assert_int_equal(cb_item(cb_sum(cb_ne(first, second))) > 0, kind == 0);
    }
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_as_the_second_one, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(one_loss_crosses, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(histories_lead_to_all_that_lives, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(over_other_sizes_and_numbers, open_scope, close_scope),
    };
    return run_counted(tests);
}
