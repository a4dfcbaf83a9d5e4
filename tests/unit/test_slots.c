/* Slots of a cache: a part of a tensor from outside is written, then a library op reads the tensor.
 * The call is cut between the two, and nothing of the cache is copied. */
#include "capture/function.h"
#include "capture_support.h"
#include "fixture.h"

enum { HEADS = 4, ROWS = 96, WIDTH = 64 }; /* 98304 bytes */

static int64_t position;
static int reader;

enum { PRODUCT, WHOLE, ATTENTION, LINEAR, LOOP, NOTHING, READERS };

static cb_tensor *read_cache(cb_tensor *q, cb_tensor *cache) {
    cb_tensor *seen = cb_slice(cache, 1, 0, position + 1);
    switch (reader) {
    case PRODUCT:
        return cb_matmul(q, cb_transpose(cache, 1, 2));
    case WHOLE: /* no view of it */
        return cb_scaled_dot_product_attention(q, cache, cache);
    case ATTENTION:
        return cb_scaled_dot_product_attention(q, seen, seen);
    case LINEAR:
        return cb_linear(cb_select(seen, 0, 1), cb_select(q, 0, 0), NULL);
    case LOOP:
        return cb_sum(cb_mul(seen, 2.0), 1);
    default:
        return cb_add(q, 1.0);
    }
}

static cb_tensor *step(cb_tensor *x, cb_tensor *cache) {
    cb_tensor *key = cb_mul(x, 0.5);
    cb_assign(cb_slice(cache, 1, position, position + 1), key);
    return cb_mul(read_cache(cb_add(x, key), cache), 3.0);
}

static cb_tensor *filled(int64_t rows, double scale) {
    cb_tensor *x = cb_to(cb_arange(0, HEADS * rows * WIDTH), CB_F32);
    return cb_reshape(cb_sin(cb_mul(x, scale)), cb_dims(HEADS, rows, WIDTH));
}

/* The same results and the same cache, for one position after the other, twice over. */
static void compare(cb_function *fast, int64_t rows) {
    cb_tensor *cache = filled(rows, 0.1), *own = cb_clone(cache);
    for (int i = 0; i < 12; i++) {
        cb_scope_open();
        position = 3 + i % 6;
        cb_tensor *x = filled(1, 0.01 * (i + 1));
        cb_tensor *expected = step(x, own);
        expect_tensor(cb_call(fast, x, cache), expected, 2e-5, 2e-5);
        expect_tensor(cache, own, 0, 0);
        cb_scope_close();
    }
}

static void reads_are_cut_off(void **state) {
    (void)state;
    for (reader = 0; reader < READERS; reader++) {
        cb_function *fast = cb_compile(step);
        compare(fast, ROWS);
        cb_function_stats stats = cb_stats(fast);
        assert_int_equal(stats.breaks > 0, reader <= LINEAR);
        assert_int_equal(stats.eager_calls, 0);
        int64_t graphs = stats.graphs;
        compare(fast, ROWS);
        assert_int_equal(cb_stats(fast).graphs, graphs); /* they are found again */
        cb_function_free(fast);
    }
}

/* At one position nothing is recorded again: the trace knows that it was cut. */
static void replays_are_cut_there(void **state) {
    (void)state;
    reader = ATTENTION;
    position = 7;
    cb_function *fast = cb_compile(step);
    cb_tensor *cache = filled(ROWS, 0.1);
    for (int i = 0; i < 5; i++) assert_non_null(cb_call(fast, filled(1, 0.2), cache));
    char *text = cb_explain(fast);
    assert_null(strstr(text, "took another path"));
    assert_non_null(strstr(text, "it reads a tensor of which it wrote a part"));
    cb_free_text(text);
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
}

/* What the copy costs less than another run, and what has to be one graph. */
static void small_ones_and_fullgraph_are_not(void **state) {
    (void)state;
    reader = PRODUCT;
    static const struct {
        const char *options;
        int64_t rows; /* of 1 KB */
        bool cut;
    } cases[] = {{"", 15, false}, {"fullgraph=1", ROWS, false}, {VM, 16, true}};
    for (int k = 0; k < 3; k++) {
        cb_function *fast = cb_compile(step, cases[k].options);
        position = 2;
        cb_tensor *cache = filled(cases[k].rows, 0.1), *own = cb_clone(cache);
        for (int i = 0; i < 3; i++) {
            cb_tensor *x = filled(1, 0.01 * (i + 1)), *expected = step(x, own);
            expect_tensor(cb_call(fast, x, cache), expected, 2e-5, 2e-5);
            expect_tensor(cache, own, 0, 0);
        }
        assert_int_equal(cb_stats(fast).breaks, cases[k].cut);
        assert_int_equal(cb_stats(fast).graphs, 1 + cases[k].cut);
        cb_function_free(fast);
    }
}

static cb_tensor *trains(cb_tensor *weight, cb_tensor *cache) {
    cb_tensor *key = cb_mul(weight, 0.5);
    cb_assign(cb_slice(cache, 1, position, position + 1), cb_detach(key));
    cb_tensor *loss = cb_sum(cb_square(cb_matmul(cb_add(weight, key), cb_transpose(cache, 1, 2))));
    cb_backward(loss, NULL);
    return cb_detach(loss);
}

/* A graph of gradients is one: nothing is cut where something was computed from a leaf. */
static void gradients_go_over_it(void **state) {
    (void)state;
    position = 4;
    cb_function *fast = cb_compile(trains);
    cb_tensor *weight = filled(1, 0.3), *expected = NULL;
    cb_requires_grad_(weight, true);
    for (int call = 0; call < 3; call++) {
        cb_tensor *cache = filled(ROWS, 0.1);
        cb_zero_grad(weight);
        assert_non_null(call ? cb_call(fast, weight, cache) : trains(weight, cache));
        cb_tensor *gradient = cb_clone(cb_detach(cb_tensor_grad(weight)));
        if (call) expect_tensor(gradient, expected, 1e-3, 1e-4);
        if (!call) expected = gradient;
    }
    assert_int_equal(cb_stats(fast).breaks, 0);
    cb_function_free(fast);
}

static cb_tensor *writes_unseen(cb_tensor *weight, cb_tensor *cache) {
    cb_tensor *key = cb_mul(weight, 0.5), *part = cb_slice(cache, 1, position, position + 1);
    cb_no_grad_open();
    cb_assign(part, key);
    cb_no_grad_close();
    return cb_sum(cb_mul(cb_slice(cache, 1, position, position + 1), cb_add(weight, 1.0)));
}

/* What is read where that was written has no history, whatever was written had. */
static void written_without_gradients(void **state) {
    (void)state;
    position = 4;
    cb_function *fast = cb_compile(writes_unseen, "backend=vm");
    cb_tensor *weight = filled(1, 0.3);
    cb_requires_grad_(weight, true);
    for (int call = 0; call < 3; call++) {
        cb_tensor *cache = filled(ROWS, 0.1);
        cb_zero_grad(weight);
        cb_tensor *loss = call ? cb_call(fast, weight, cache) : writes_unseen(weight, cache);
        assert_int_equal(cb_backward(loss, NULL), CB_OK);
        expect_tensor(cb_tensor_grad(weight), cb_mul(cb_detach(weight), 0.5), 1e-6, 1e-6);
    }
    cb_function_free(fast);
}

/* Behind the write another op may come: that is another trace. */
static void paths_part_behind_it(void **state) {
    (void)state;
    cb_function *fast = cb_compile(step);
    for (int round = 0; round < 3; round++)
        for (reader = 0; reader < READERS; reader++) compare(fast, ROWS);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* Each row from the one before: forty regions, and nothing else of 2.5 MB. */
static cb_tensor *writes_rows(cb_tensor *x) {
    for (int i = 1; i <= 40; i++)
        cb_assign(cb_slice(x, 0, i, i + 1), cb_add(cb_mul(cb_slice(x, 0, i - 1, i), 0.5), 1.0));
    return cb_sum(cb_slice(x, 0, 0, 3));
}

/* Of 10,000 rows: whatever they compute and write is some of them. */
static void expect_regions(cb_function_1 *function, double nearness) {
    cb_function *fast = cb_compile(function, VM);
    cb_tensor *x = cb_rand(cb_dims(10000, WIDTH)), *own = cb_clone(x);
    cb_tensor *expected = function(own);
    expect_tensor(cb_call(fast, x), expected, 1e-4, 1e-4);
    expect_tensor(x, own, nearness, nearness);
    assert_true(cb_stats(fast).bytes < 1 << 20);
    cb_function_free(fast);
}

static void many_slots_are_regions(void **state) {
    (void)state;
    expect_regions(writes_rows, 1e-6);
}

static cb_tensor *scatters_rows(cb_tensor *x) {
    for (int i = 0; i < 300; i++) cb_assign(cb_select(x, 0, 7 * i), cb_select(x, 0, 9000 + i));
    return cb_sum(cb_select(x, 0, 9000));
}

/* Writes in a row are never computed, however long the row is. */
static void hundreds_of_slots_are_regions(void **state) {
    (void)state;
    expect_regions(scatters_rows, 0);
}

static cb_tensor *weight; /* f32[HEADS, WIDTH, 8] */

static cb_tensor *views_its_weight(cb_tensor *x, cb_tensor *cache) {
    cb_assign(cb_slice(cache, 1, position, position + 1), cb_mul(x, 0.5));
    cb_tensor *turned = cb_transpose(weight, 1, 2);
    return cb_matmul(turned, cb_transpose(cache, 1, 2));
}

/* A view right before the cut is made behind it, also of what no op has met so far: there, the
 * product takes the weight as it is found. */
static void weights_are_viewed_behind_it(void **state) {
    (void)state;
    weight = cb_reshape(filled(8, 0.3), cb_dims(HEADS, WIDTH, 8));
    cb_function *fast = cb_compile(views_its_weight, VM);
    cb_tensor *cache = filled(ROWS, 0.1), *own = cb_clone(cache);
    for (position = 3; position < 7; position++) {
        cb_tensor *x = filled(1, 0.01 * position), *expected = views_its_weight(x, own);
        expect_tensor(cb_call(fast, x, cache), expected, 2e-5, 2e-5);
        expect_tensor(cache, own, 0, 0);
    }
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "transpose(%0, dim0=1, dim1=2)"));
    assert_null(strstr(text, "strided"));
    cb_free_text(text);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

static cb_tensor *writes_turned(cb_tensor *x, cb_tensor *y) {
    cb_assign(cb_slice(x, 0, 1, 4), y);
    return cb_ones(3);
}

static cb_tensor *writes_all_turned(cb_tensor *x, cb_tensor *y) {
    cb_assign(x, y);
    return cb_ones(3);
}

/* What is written is an input, of any strides. */
static void inputs_are_written_as_they_lie(void **state) {
    (void)state;
    cb_function_2 *const functions[] = {writes_turned, writes_all_turned};
    for (int i = 0; i < 4; i++) {
        cb_function *fast = cb_compile(functions[i / 2], i % 2 ? VM : "");
        for (int call = 0; call < 3; call++) {
            cb_tensor *x = cb_rand(cb_dims(i / 2 ? 3 : 5, 4)), *own = cb_clone(x);
            cb_tensor *y = cb_t(cb_rand(cb_dims(4, 3)));
            functions[i / 2](own, y);
            assert_non_null(cb_call(fast, x, y));
            expect_tensor(x, own, 0, 0);
        }
        cb_function_free(fast);
    }
}

static cb_tensor *writes_constants(cb_tensor *x) {
    const float value[] = {1, 2, 3, 4};
    cb_assign(cb_slice(cb_slice(x, 0, 0, 2), 1, 1, 3), cb_from_data(value, CB_F32, cb_dims(2, 2)));
    cb_fill_(cb_select(x, 0, 2), 7);
    return cb_ones(3);
}

/* Nothing but the write reads them. */
static void constants_are_written(void **state) {
    (void)state;
    const char *const options[] = {"backend=vm", "backend=vm,fullgraph=1", ""};
    for (int i = 0; i < 3; i++) {
        cb_function *fast = cb_compile(writes_constants, options[i]);
        for (int call = 0; call < 2; call++) {
            cb_tensor *x = cb_rand(cb_dims(3, 4)), *own = cb_clone(x);
            writes_constants(own);
            assert_non_null(cb_call(fast, x));
            expect_tensor(x, own, 0, 0);
        }
        cb_function_free(fast);
    }
}

static cb_tensor *reads_all(cb_tensor *x) {
    for (int i = 0; i < 150; i++) cb_fill_(cb_select(x, 0, 3 * i), 0.25 * i);
    return cb_mul(x, 2.0);
}

/* Who reads all of them asks few at once. */
static void what_many_slots_give_is_read(void **state) {
    (void)state;
    cb_function *fast = cb_compile(reads_all, "fullgraph=1,backend=vm");
    for (int call = 0; call < 2; call++) {
        cb_tensor *x = cb_rand(cb_dims(500, 8)), *own = cb_clone(x);
        cb_tensor *expected = reads_all(own), *y = cb_call(fast, x);
        expect_tensor(y, expected, 0, 0);
        expect_tensor(x, own, 0, 0);
    }
    assert_in_range(cb_stats(fast).kernels, 5, 153);
    cb_function_free(fast);
}

static cb_tensor *fills(cb_tensor *x) {
    cb_fill_(cb_select(x, 0, 3), 1.5);
    return cb_sum(x);
}

static cb_tensor *fills_of_columns(cb_tensor *x) { /* most rows of a few */
    cb_fill_(cb_slice(cb_slice(x, 0, 0, 60), 1, 0, 4), 1.5);
    return cb_sum(x);
}

static cb_tensor *fills_most(cb_tensor *x) {
    cb_fill_(cb_slice(x, 0, 0, 17), 1.5); /* more than a quarter of it */
    return cb_sum(x);
}

static cb_tensor *reads_what_it_wrote(cb_tensor *x) {
    cb_tensor *rows = cb_slice(x, 0, 3, 19);
    cb_fill_(rows, 1.5);
    return cb_sum(rows);
}

static cb_tensor *adds(cb_tensor *x) {
    for (int i = 0; i < 40; i++) cb_add_(cb_select(x, 0, (position + 3 * i) % 64), 1.0);
    return cb_sum(x);
}

static cb_tensor *adds_few(cb_tensor *x) {
    for (int i = 0; i < 3; i++) cb_add_(cb_select(x, 0, (position + i) % 64), 1.0);
    return cb_select(x, 0, position % 64);
}

/* A kernel that would ask for each element who wrote it reads behind a cut, too: where it reads
 * much, of which little was written elsewhere, or many have written. */
static void kernels_are_cut_off(void **state) {
    (void)state;
    static const struct {
        cb_function_1 *function;
        int64_t columns;
        int graphs, breaks; /* the most */
    } cases[] = {{fills, 256, 2, 1},
                 {fills, 255, 1, 0},
                 {fills_of_columns, 256, 2, 1},
                 {fills_most, 1024, 1, 0},
                 {reads_what_it_wrote, 1024, 1, 0},
                 {adds, 64, 5, 4},
                 {adds_few, 64, 2, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cb_function *fast = cb_compile(cases[k].function);
        cb_tensor *x = cb_to(cb_arange(0, 64 * cases[k].columns), CB_F32);
        x = cb_clone(cb_reshape(cb_remainder(x, 7.0), cb_dims(64, cases[k].columns)));
        cb_tensor *own = cb_clone(x);
        for (int i = 0; i < 6; i++) {
            cb_scope_open();
            position = i * 11 % 60;
            cb_tensor *expected = cases[k].function(own);
            expect_tensor(cb_call(fast, x), expected, 1e-5, 1e-5);
            expect_tensor(x, own, 0, 0);
            cb_scope_close();
        }
        cb_function_stats stats = cb_stats(fast);
        assert_true(stats.graphs <= cases[k].graphs && stats.breaks <= cases[k].breaks);
        assert_int_equal(stats.breaks > 0, cases[k].breaks > 0);
        assert_int_equal(stats.eager_calls, 0);
        cb_function_free(fast);
    }
}

/* A row of a cache, by whatever views one comes to it. */
static int form;

enum { FORMS = 9 };

static cb_tensor *row_of(cb_tensor *cache) { /* f32[HEADS, ROWS, WIDTH] */
    int64_t head = position % HEADS;
    switch (form) {
    case 0:
        return cb_select(cb_select(cache, 0, head), 0, position);
    case 1:
        return cb_select(cb_select(cache, 1, position), 0, 2);
    case 2:
        return cb_select(cb_slice(cb_transpose(cache, 0, 1), 0, position, position + 1), 1, head);
    case 3:
        return cb_select(cb_view(cache, cb_dims(HEADS * ROWS, WIDTH)), 0, head * ROWS + position);
    case 4:
        return cb_select(cb_select(cb_unsqueeze(cache, 0), 0, 0), 1, position);
    case 5:
        return cb_slice(cb_slice(cache, 0, 1, 3), 1, position, position + 2);
    case 6: /* every other element of two rows of two heads */
        return cb_slice(cb_slice(cb_slice(cache, 2, 1, WIDTH, 2), 1, position, position + 4, 3), 0,
                        0, HEADS, 2);
    case 7:
        return cb_slice(cb_flatten(cb_select(cache, 0, head), 0, 1), 0, position * WIDTH + 3,
                        position * WIDTH + 9);
    default:
        return cb_select(cb_permute(cb_unflatten(cache, 2, cb_dims(8, 8)), cb_dims(3, 1, 0, 2)), 1,
                         position);
    }
}

static cb_tensor *writes_by_views(cb_tensor *x, cb_tensor *cache) {
    cb_tensor *row = row_of(cache);
    cb_assign(row, cb_amax(x));
    cb_add_(row, 0.5);
    return cb_add(cb_sum(row), cb_sum(cb_select(cache, 2, 5)));
}

/* Whatever the form, what lies in the cache is right (golden/write_by_views.t has the regions),
 * also where the cache is no contiguous tensor. */
static void parts_are_regions_by_any_views(void **state) {
    (void)state;
    for (form = 0; form < FORMS; form++)
        for (int strided = 0; strided < 2; strided++) {
            if (strided && (form == 3 || form == 7)) continue; /* no view then */
            cb_function *fast = cb_compile(writes_by_views, strided || form % 4 ? VM : "");
            cb_tensor *cache = filled(ROWS, 0.1);
            if (strided) cache = cb_slice(cb_stack((cb_tensor *[]){cache, cache}, 2, 2), 2, 1, 2);
            if (strided) cache = cb_select(cache, 2, 0);
            cb_tensor *own = cb_clone(cache);
            for (int i = 0; i < 12; i++) {
                cb_scope_open();
                position = 3 + i * 5 % 80;
                cb_tensor *x = filled(1, 0.01 * (i + 1)), *expected = writes_by_views(x, own);
                expect_tensor(cb_call(fast, x, cache), expected, 2e-4, 2e-4);
                expect_tensor(cache, own, 0, 0);
                cb_scope_close();
            }
            assert_int_equal(cb_stats(fast).graphs, 2);
            assert_int_equal(cb_stats(fast).eager_calls, 0);
            cb_function_free(fast);
        }
}

/* ---- what was written is read again ---------------------------------------------------------- */

enum { SIDE = 300 };

static int again;

static cb_tensor *inside(cb_tensor *x, int row) {
    return cb_slice(cb_slice(x, 0, row, row + SIDE - 2), 1, 1, SIDE - 1);
}

static cb_tensor *updates_twice(cb_tensor *x) {
    cb_tensor *view = cb_mul_(inside(x, 1), 0.9);
    if (again == 3) cb_assign(cb_slice(x, 0, 0, 4), cb_mul(cb_slice(x, 0, 2, 6), 2.0));
    cb_add_(view, cb_sin(again ? inside(x, again == 2 ? 0 : 1) : view));
    return x;
}

/* By the same view, by one that is made again, by another one, and behind another write. */
static void what_was_written_is_read(void **state) {
    (void)state;
    for (again = 0; again < 4; again++) {
        cb_function *fast = cb_compile(updates_twice);
        cb_tensor *x = cb_sin(cb_reshape(cb_arange(0, SIDE * SIDE), cb_dims(SIDE, SIDE)));
        cb_tensor *own = cb_clone(x);
        for (int i = 0; i < 2; i++) {
            assert_ptr_equal(cb_call(fast, x), x);
            expect_tensor(x, updates_twice(own), 1e-5, 1e-5);
        }
        assert_int_equal(cb_stats(fast).breaks, 0); /* most is written, and at hand */
        if (again < 2) assert_int_equal(cb_stats(fast).kernels, 1);
        cb_function_free(fast);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_are_cut_off, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(replays_are_cut_there, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(small_ones_and_fullgraph_are_not, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(gradients_go_over_it, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(written_without_gradients, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(many_slots_are_regions, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(hundreds_of_slots_are_regions, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(what_many_slots_give_is_read, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(constants_are_written, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(inputs_are_written_as_they_lie, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(weights_are_viewed_behind_it, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(what_was_written_is_read, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(kernels_are_cut_off, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(parts_are_regions_by_any_views, open_scope, close_scope),
        cmocka_unit_test_setup_teardown(paths_part_behind_it, open_scope, close_scope),
    };
    return run_counted(tests);
}
