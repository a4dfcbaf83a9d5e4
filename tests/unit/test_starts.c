/* Where views begin is a number like any other: what changes becomes an argument, so a position of
 * a text or a batch of many costs one compilation more, then none. */
#include "capture/function.h"
#include "capture_support.h"
#include "fixture.h"

enum { ROWS = 40, WIDTH = 12 };

static int64_t at;

static cb_tensor *table(double scale) {
    cb_tensor *x = cb_to(cb_arange(0, ROWS * WIDTH), CB_F32);
    return cb_reshape(cb_sin(cb_mul(x, scale)), cb_dims(ROWS, WIDTH));
}

/* Views of views, from the end, with steps, of what is computed and of what is given. */
static cb_tensor *reads(cb_tensor *x, cb_tensor *w) {
    cb_tensor *part = cb_slice(x, 0, at, at + 4), *row = cb_select(x, 0, at + 3);
    cb_tensor *wide = cb_slice(cb_mul(x, 2.0), 0, at, at + 8, 3);
    cb_tensor *inner = cb_narrow(cb_narrow(x, 0, at, 5), 0, at % 2, 3);
    cb_tensor *turned = cb_select(cb_t(x), 1, -1 - at);
    cb_tensor *sum = cb_add(cb_sum(part, 0), cb_mul(row, cb_sum(wide, 0)));
    return cb_add(cb_add(sum, cb_sum(inner, 0)), cb_add(turned, cb_matmul(row, w)));
}

static cb_tensor *multiplies(cb_tensor *x, cb_tensor *w) {
    cb_tensor *part = cb_slice(cb_slice(x, 0, at, at + 8), 1, 3, 9);
    return cb_add(cb_matmul(cb_slice(x, 0, at, at + 8), cb_mul(w, 1.0)),
                  cb_matmul(part, cb_mul(cb_narrow(w, 0, 0, 6), 0.5)));
}

static cb_tensor *writes(cb_tensor *x, cb_tensor *y) {
    cb_tensor *part = cb_slice(x, 0, at, at + 2), *row = cb_select(x, 0, at + 1);
    cb_assign(part, cb_slice(y, 0, 0, 2));
    cb_add_(row, 1.0); /* a view of what was written */
    cb_mul_(cb_slice(cb_slice(x, 0, at, at + 6), 1, 1, 12, 2), 2.0);
    return cb_add(row, cb_sum(part, 0));
}

/* The caller sees the same memory. */
static cb_tensor *shows(cb_tensor *x, cb_tensor *y) {
    cb_add_(x, cb_select(y, 0, at));
    return cb_slice(cb_slice(x, 0, at, at + 3), 1, 2, 10); /* a view that does not move itself */
}

static cb_tensor *shows_deep(cb_tensor *x, cb_tensor *y) {
    cb_add_(x, cb_select(y, 0, at));
    return cb_select(cb_narrow(x, 0, at, 6), 0, at % 3);
}

static cb_tensor *shows_own(cb_tensor *x, cb_tensor *y) {
    return cb_select(cb_narrow(cb_mul(x, y), 0, at, 4), 1, at % 3);
}

static cb_tensor *loops(cb_tensor *x, cb_tensor *y) {
    cb_tensor *h = cb_select(y, 0, 0);
    for (int i = 0; i < 3; i++) h = cb_tanh(cb_add(h, cb_select(x, 0, at + i)));
    return h;
}

static cb_tensor *asks(cb_tensor *x, cb_tensor *y) {
    cb_tensor *h = cb_select(y, 0, 0);
    for (int64_t i = 0; i < 2 + at % 5 && cb_item(cb_amax(h)) < 100; i++)
        h = cb_add(cb_mul(h, 0.5), cb_select(x, 0, i));
    return h;
}

static cb_tensor *asks_an_element(cb_tensor *x, cb_tensor *y) {
    cb_tensor *element = cb_select(cb_select(x, 0, at), 0, 2);
    return cb_mul(cb_select(y, 0, 0), 2 + cb_item(element));
}

static cb_tensor *multiplies_views(cb_tensor *x, cb_tensor *y) {
    cb_tensor *part = cb_slice(cb_narrow(x, 0, at, 5), 1, 3, 9);
    return cb_matmul(part, cb_t(cb_slice(y, 1, 0, 6)));
}

typedef struct Case {
    cb_function_2 *function;
    const char *options;
    int graphs; /* that all positions take */
} Case;

static void positions_are_arguments(void **state) {
    (void)state;
    static const Case cases[] = {
        {reads, "", 2},      {writes, "", 2},
        {asks, "", 4},       {loops, VM, 2},
        {reads, VM, 2},      {multiplies, VM, 2},
        {writes, VM, 2},     {shows, VM, 2},
        {shows_own, VM, 2},  {multiplies_views, "", 2},
        {shows_deep, VM, 2}, {asks_an_element, VM, 4},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cb_function *fast = cb_compile(cases[k].function, cases[k].options);
        cb_tensor *x = table(0.1), *own = cb_clone(x);
        cb_tensor *y = cases[k].function == reads || cases[k].function == multiplies
                           ? cb_narrow(table(0.3), 0, 0, WIDTH)
                           : table(0.3);
        for (int i = 0; i < 60; i++) {
            cb_scope_open();
            at = i * 7 % 31;
            cb_tensor *expected = cases[k].function(own, y), *got = cb_call(fast, x, y);
            expect_tensor(got, expected, 1e-4, 1e-4);
            expect_tensor(x, own, 1e-4, 1e-4);
            assert_int_equal(cb_shares_storage(got, x), cb_shares_storage(expected, own));
            if (cb_shares_storage(got, x)) cb_fill_(got, 0.5), cb_fill_(expected, 0.5);
            expect_tensor(x, own, 1e-4, 1e-4);
            cb_scope_close();
        }
        assert_int_equal(cb_stats(fast).graphs, cases[k].graphs);
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
    assert_null(cb_error());
}

static cb_tensor *refused(cb_tensor *x) { return cb_sum(cb_select(x, 0, at)); }

/* A batch that ends early has other sizes; what lies outside is the error that it is in eager. */
static void ends_are_kept(void **state) {
    (void)state;
    cb_function *fast = cb_compile(refused);
    cb_tensor *x = table(0.2);
    for (at = 0; at < 5; at++) expect_equal(cb_call(fast, x), refused(x));
    at = ROWS;
    assert_null(cb_call(fast, x));
    assert_non_null(strstr(cb_error(), "index 40 is outside of dim 0 of size 40"));
    cb_clear_error();
    at = -1;
    expect_equal(cb_call(fast, x), refused(x));
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
}

static cb_tensor *batch(cb_tensor *x) { return cb_sum(cb_slice(x, 0, at, at + 16), 1); }

static void a_short_batch_is_another_size(void **state) {
    (void)state;
    cb_function *fast = cb_compile(batch);
    cb_tensor *x = table(0.2);
    for (int epoch = 0; epoch < 3; epoch++)
        for (at = 0; at < ROWS; at += 16) expect_equal(cb_call(fast, x), batch(x));
    assert_int_equal(cb_stats(fast).graphs, 3); /* at 0, anywhere, and the last one */
    cb_function_free(fast);
}

static cb_tensor *trains(cb_tensor *w, cb_tensor *x) {
    cb_tensor *rows = cb_slice(w, 0, at, at + 3);
    cb_tensor *loss = cb_sum(cb_square(cb_mul(rows, cb_slice(x, 0, at, at + 3))));
    cb_backward(loss, NULL);
    return cb_detach(loss);
}

static cb_tensor *narrows(cb_tensor *x, cb_tensor *y) {
    return cb_mul(cb_narrow(x, 0, at, 4), cb_select(y, 0, 1));
}

/* As in eager, also where it begins within. */
static void parts_beyond_the_end_are_refused(void **state) {
    (void)state;
    cb_function *fast = cb_compile(narrows, "backend=vm");
    cb_tensor *x = table(0.3), *y = table(0.7);
    for (at = 0; at < 3; at++) assert_non_null(cb_call(fast, x, y));
    at = ROWS - 3;
    assert_null(cb_call(fast, x, y));
    assert_non_null(cb_error());
    cb_clear_error();
    cb_function_free(fast);
}

static void gradients_come_to_the_part(void **state) {
    (void)state;
    cb_function *fast = cb_compile(trains);
    cb_tensor *x = table(0.3);
    for (int i = 0; i < 8; i++) {
        cb_scope_open();
        at = i * 5 % 30;
        cb_tensor *w = table(0.1), *v = table(0.1);
        cb_requires_grad_(w, true), cb_requires_grad_(v, true);
        expect_tensor(cb_call(fast, w, x), trains(v, x), 1e-5, 1e-5);
        expect_tensor(cb_tensor_grad(w), cb_tensor_grad(v), 1e-5, 1e-5);
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* A layer of many is no copy: the product reads it where it lies. */
static cb_tensor *layer(cb_tensor *all, cb_tensor *x) {
    return cb_matmul(x, cb_select(all, 0, at));
}

static void products_read_in_place(void **state) {
    (void)state;
    cb_function *fast = cb_compile(layer);
    cb_tensor *all = cb_randn(cb_dims(6, 32, 24)), *x = cb_randn(cb_dims(3, 32));
    for (int i = 0; i < 12; i++) {
        at = i * 5 % 6;
        expect_tensor(cb_call(fast, all, x), layer(all, x), 1e-4, 1e-4);
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).kernels, 1);
    cb_function_free(fast);
}

/* Layers of one parameter that is a constant of the code: not packed as the first one lies. */
static cb_tensor *one_of_many(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    return cb_matmul(inputs[0], cb_select(cb_module_get(self, "layers"), 0, at));
}

static void layers_of_a_frozen_parameter(void **state) {
    (void)state;
    cb_module *module = cb_module_new("Layers", one_of_many, NULL);
    cb_module_parameter(module, "layers", cb_randn(cb_dims(6, 32, 24)));
    cb_module_train(module, false);
    cb_function *fast = cb_compile(module);
    cb_tensor *x = cb_randn(cb_dims(3, 32)), *all = cb_module_get(module, "layers");
    for (int i = 0; i < 12; i++) {
        at = i * 5 % 6;
        expect_tensor(cb_call(fast, x), cb_matmul(x, cb_select(all, 0, at)), 1e-4, 1e-4);
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
    cb_module_free(module);
}

static double factor;
static cb_tensor *sized(cb_tensor *x) { return cb_mul(cb_add(x, cb_select(x, 0, at)), factor); }

static cb_tensor *last_row(cb_tensor *x) { return cb_exp(cb_select(cb_mul(x, 2.0), 0, -1)); }

/* A number, or a start, that changed over one size is an argument of the others at once. */
static void sizes_learn_nothing_again(void **state) {
    (void)state;
    cb_function *fast = cb_compile(sized, VM);
    for (int64_t rows = 6; rows < 18; rows++)
        for (at = 0; at < 4; at++) {
            cb_scope_open();
            factor = 0.5 + (double)at;
            cb_tensor *x = cb_clone(cb_narrow(table(0.2), 0, 0, rows));
            expect_tensor(cb_call(fast, x), sized(x), 1e-5, 1e-5);
            cb_scope_close();
        }
    assert_int_equal(cb_stats(fast).graphs, 12 + 1);
    cb_function_free(fast);
    fast = cb_compile(sized, VM); /* the number changes in every call */
    for (int i = 0; i < 36; i++) {
        cb_scope_open();
        at = 2, factor = 0.5 + i;
        cb_tensor *x = cb_clone(cb_narrow(table(0.2), 0, 0, 6 + i % 12));
        expect_tensor(cb_call(fast, x), sized(x), 1e-5, 1e-5);
        cb_scope_close();
    }
    assert_in_range(cb_stats(fast).graphs, 12, 13);
    cb_function_free(fast);
    fast = cb_compile(last_row); /* which follows the size: it is none */
    for (int64_t rows = 6; rows < 12; rows++) {
        cb_scope_open();
        cb_tensor *x = cb_clone(cb_narrow(table(0.2), 0, 0, rows));
        expect_tensor(cb_call(fast, x), last_row(x), 1e-5, 1e-5);
        cb_scope_close();
    }
    const Entry *entry = atomic_load(&fast->first);
    for (; entry; entry = atomic_load(&entry->next))
        assert_int_equal(entry->trace->argument_count, 0);
    cb_function_free(fast);
}

static void reasons_name_the_start(void **state) {
    (void)state;
    cb_function *fast = cb_compile(layer);
    cb_tensor *all = cb_randn(cb_dims(6, 32, 24)), *x = cb_randn(cb_dims(3, 32));
    for (at = 2; at < 5; at++) assert_non_null(cb_call(fast, all, x));
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "2, then 3"));
    cb_free_text(text);
    cb_function_free(fast);
    fast = cb_compile(layer, "dynamic=0");
    for (at = 2; at < 5; at++) assert_non_null(cb_call(fast, all, x));
    assert_int_equal(cb_stats(fast).graphs, 3);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(positions_are_arguments, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(ends_are_kept, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(a_short_batch_is_another_size, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(parts_beyond_the_end_are_refused, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(gradients_come_to_the_part, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(products_read_in_place, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(layers_of_a_frozen_parameter, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(sizes_learn_nothing_again, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(reasons_name_the_start, open_scope, close_scope),
    };
    return run_counted(tests);
}
