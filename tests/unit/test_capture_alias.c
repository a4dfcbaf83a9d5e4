/* Compiled functions whose arguments are one tensor, overlap, or are found by the function as well,
 * against the same calls run eagerly in a world of its own. */
#include "capture_support.h"

/* ---- two worlds with the same tensors ------------------------------------------------------- */

enum { PLACES = 6 };

typedef struct World {
    cb_tensor *memory, *other, *place[PLACES];
} World;

static World *now; /* in which the function finds tensors */

/* Two that overlap, one beside them, one in another storage, two that the function finds. */
static World make_world(void) {
    World w = {.memory = ramp(4, 4), .other = ramp(2, 4)};
    w.place[0] = cb_narrow(w.memory, 0, 0, 2);
    w.place[1] = cb_narrow(w.memory, 0, 1, 2);
    w.place[2] = cb_narrow(w.memory, 0, 2, 2);
    w.place[3] = ramp(2, 4);
    w.place[4] = w.other;
    w.place[5] = cb_narrow(w.other, 0, 0, 2); /* the same elements by another name */
    return w;
}

static void expect_same_world(const World *a, const World *b) {
    expect_equal(a->memory, b->memory);
    expect_equal(a->other, b->other);
    expect_equal(a->place[3], b->place[3]);
}

/* ---- functions ------------------------------------------------------------------------------ */

static cb_tensor *reads(cb_tensor *x, cb_tensor *y) { return cb_add(cb_mul(x, 2.0), y); }

static cb_tensor *reads_global(cb_tensor *x, cb_tensor *y) {
    return cb_add(cb_mul(x, now->other), cb_exp(y));
}

static cb_tensor *writes_first(cb_tensor *x, cb_tensor *y) {
    cb_add_(x, 1.0);
    cb_tensor *z = cb_mul(y, 0.5);
    cb_add_(x, y);
    return cb_sub(z, x);
}

static cb_tensor *writes_both(cb_tensor *x, cb_tensor *y) {
    cb_assign(x, cb_mul(y, 0.5));
    cb_assign(y, cb_add(x, 3.0));
    return cb_add(x, y);
}

static cb_tensor *writes_global(cb_tensor *x, cb_tensor *y) {
    cb_mul_(now->other, 0.5);
    cb_tensor *z = cb_add(x, y);
    cb_assign(cb_select(now->other, 0, 1), cb_select(y, 0, 0));
    return cb_add(z, x);
}

static cb_tensor *writes_and_finds(cb_tensor *x, cb_tensor *y) {
    cb_sub_(x, 0.25);
    return cb_add(cb_mul(now->other, 2.0), y);
}

static cb_tensor *writes_a_row(cb_tensor *x, cb_tensor *y) {
    cb_assign(cb_select(x, 0, 0), cb_select(y, 0, 1));
    return cb_add(cb_select(x, 0, 1), cb_select(y, 0, 0));
}

static cb_tensor *gives_first(cb_tensor *x, cb_tensor *y) {
    cb_assign(x, cb_add(x, y));
    return x;
}

static cb_tensor *gives_second(cb_tensor *x, cb_tensor *y) {
    (void)x;
    return y;
}

static cb_tensor *gives_global(cb_tensor *x, cb_tensor *y) {
    cb_tensor *z = cb_add(x, y);
    cb_assign(x, z);
    return now->other;
}

static cb_tensor *gives_view(cb_tensor *x, cb_tensor *y) {
    cb_add_(y, 1.0);
    return cb_transpose(x, 0, 1);
}

/* ---- the comparison ------------------------------------------------------------------------- */

/* The call in both worlds: results, all memory afterwards, and which tensor came back. */
static void expect_same_call(cb_function_2 *function, cb_function *fast, World *lazy, World *eager,
                             int i, int k) {
    now = eager;
    cb_tensor *expected = function(eager->place[i], eager->place[k]);
    now = lazy;
    cb_tensor *got = cb_call(fast, lazy->place[i], lazy->place[k]);
    expect_equal(got, expected);
    expect_same_world(lazy, eager);
    for (int p = 0; p < PLACES; p++) {
        assert_int_equal(cb_shares_storage(got, lazy->place[p]),
                         cb_shares_storage(expected, eager->place[p]));
        if (expected == eager->place[p] && (p == i || p == k) && function != gives_global)
            assert_ptr_equal(got, lazy->place[p]); /* fullgraph holds a view of a global */
    }
}

/* All pairs of places, in an order in which neighbours have little in common. */
static void expect_same_calls(cb_function_2 *function, const char *options) {
    cb_function *fast = cb_compile(function, options);
    cb_scope_open();
    World lazy = make_world(), eager = make_world();
    for (int step = 0; step < 3 * PLACES * PLACES; step++) {
        int pair = step * 17 % (PLACES * PLACES);
        cb_scope_open();
        expect_same_call(function, fast, &lazy, &eager, pair / PLACES, pair % PLACES);
        for (int p = 0; p < 2; p++) { /* numbers stay small */
            World *world = p ? &lazy : &eager;
            cb_assign(world->memory, cb_sin(world->memory));
            cb_assign(world->other, cb_sin(world->other));
            cb_assign(world->place[3], cb_sin(world->place[3]));
        }
        cb_scope_close();
    }
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

static void test_all_pairs(void **state) {
    (void)state;
    cb_function_2 *functions[] = {reads,         reads_global,     writes_first, writes_both,
                                  writes_global, writes_and_finds, writes_a_row, gives_first,
                                  gives_second,  gives_global,     gives_view};
    cb_set_option("recompile_limit", "64");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        expect_same_calls(functions[i], VM);
        expect_same_calls(functions[i], "fullgraph=1, " VM);
        expect_same_calls(functions[i], "freeze=1, " VM);
        expect_same_calls(functions[i], "freeze=1, fullgraph=1, " VM);
    }
    cb_set_option("recompile_limit", "8");
}

/* ---- inputs beside what is found ----------------------------------------------------------- */

enum { BESIDE = 12 };

static int writes_beside(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)user;
    for (int i = 0; i < count; i++) cb_add_(x[i], now->place[1]);
    out[0] = cb_mul(now->place[1], 2.0);
    return 1;
}

/* So many that they are told apart by a table of storages: what the function finds is in it. */
static void test_many_beside_a_found_one(void **state) {
    (void)state;
    static const char *const options[] = {VM, "fullgraph=1, " VM};
    for (int o = 0; o < 2; o++) {
        cb_scope_open();
        cb_function *fast = cb_compile_n(writes_beside, NULL, options[o]);
        World worlds[2] = {make_world(), make_world()};
        for (int call = 0; call < 4; call++) {
            cb_tensor *got[2];
            for (int w = 0; w < 2; w++) {
                now = &worlds[w];
                cb_tensor *x[BESIDE];
                for (int i = 0; i < BESIDE; i++) x[i] = ramp(2, 4);
                if (call % 2) x[5] = now->place[0]; /* a row of it is found */
                if (w)
                    assert_int_equal(cb_call_n(fast, x, BESIDE, &got[w], 1), 1);
                else
                    writes_beside(x, BESIDE, &got[w], NULL);
            }
            expect_equal(got[1], got[0]);
            expect_same_world(&worlds[1], &worlds[0]);
        }
        cb_function_free(fast);
        cb_scope_close();
    }
    assert_null(cb_error());
}

/* ---- guards and reasons --------------------------------------------------------------------- */

static void expect_said(cb_function *fast, const char *text) {
    char *said = cb_explain(fast);
    if (!strstr(said, text)) fail_msg("'%s' is not in:\n%s", text, said);
    cb_free_text(said);
}

/* One tensor passed twice is a guard that is printed, and named when it fails. */
static void expect_guarded(const char *options) {
    cb_function *fast = cb_compile(reads, options);
    cb_scope_open();
    cb_tensor *x = ramp(2, 4), *y = cb_exp(x);
    expect_equal(cb_call(fast, x, x), reads(x, x));
    expect_said(fast, "input 1: f32[2, 4], the same tensor as input 0");
    expect_equal(cb_call(fast, x, y), reads(x, y));
    expect_said(fast, "input 1 is another tensor than input 0, for entry 0 it was the same");
    expect_equal(cb_call(fast, y, y), reads(y, y));
    expect_equal(cb_call(fast, y, x), reads(y, x));
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_scope_close();
    cb_function_free(fast);
}

static cb_tensor *writes_first_alone(cb_tensor *x, cb_tensor *y) {
    (void)y;
    return cb_exp(cb_add_(x, 1.0));
}

/* Two tensors that become one are as good as two, until one is written to; without the function,
 * which may compare its handles, they are another call. */
static void expect_joined(const char *options, int graphs) {
    cb_function *pure = cb_compile(reads, options), *fast = cb_compile(writes_first, options);
    cb_scope_open();
    cb_tensor *x = ramp(2, 4), *y = cb_exp(x), *u = ramp(2, 4);
    expect_equal(cb_call(pure, x, y), reads(x, y));
    expect_equal(cb_call(pure, x, x), reads(x, x));
    assert_int_equal(cb_stats(pure).graphs, graphs);
    assert_int_equal(cb_stats(pure).eager_calls, 0);
    expect_equal(cb_call(fast, x, y), writes_first(u, y));
    expect_equal(cb_call(fast, x, x), writes_first(u, u));
    expect_said(fast, "writes to %0 in place");
    expect_said(fast, "input 1 is the same tensor as input 0, which is written: not in entry 0");
    expect_equal(cb_call(fast, x, y), writes_first(u, y));
    expect_equal(cb_call(fast, x, x), writes_first(u, u));
    expect_equal(x, u);
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function *alone = cb_compile(writes_first_alone, options);
    for (int i = 0; i < 4; i++) {
        cb_tensor *z = i % 2 ? x : y, *v = i % 2 ? u : y;
        expect_equal(cb_call(alone, x, z), writes_first_alone(u, v));
    }
    expect_equal(x, u);
    assert_int_equal(cb_stats(alone).graphs, 2); /* the same ops, but the write is to both */
    assert_int_equal(cb_stats(alone).eager_calls, 0);
    cb_function_free(alone);
    cb_scope_close();
    cb_function_free(pure);
    cb_function_free(fast);
}

/* What the function finds by itself may be an argument as well. */
static void test_found_argument(void **state) {
    (void)state;
    cb_function *pure = cb_compile(reads_global, VM), *fast = cb_compile(writes_global, VM);
    cb_scope_open();
    World lazy = make_world(), eager = make_world();
    for (int i = 0; i < 2; i++) {
        expect_same_call(reads_global, pure, &lazy, &eager, 4, 3);
        expect_same_call(reads_global, pure, &lazy, &eager, 3, 3);
        expect_same_call(writes_global, fast, &lazy, &eager, 0, 3);
        expect_same_call(writes_global, fast, &lazy, &eager, 4, 3);
        expect_same_call(writes_global, fast, &lazy, &eager, 3, 4);
    }
    assert_true(cb_stats(fast).trace_ms < 1000); /* also of one that began as a replay */
    expect_said(pure, "it used another tensor than before (after 1 op: ");
    expect_said(fast, "it used another tensor than before (after 0 ops: ");
    assert_int_equal(cb_stats(pure).graphs, 2);
    assert_int_equal(cb_stats(fast).graphs, 3);
    assert_int_equal(cb_stats(pure).eager_calls + cb_stats(fast).eager_calls, 0);
    cb_scope_close();
    cb_function_free(pure);
    cb_function_free(fast);
}

static bool writes_late;

static cb_tensor *writes_behind_a_view(cb_tensor *x, cb_tensor *y) {
    cb_tensor *row = cb_select(y, 0, 1), *z = cb_exp(row);
    if (writes_late) cb_mul_(x, 3.0);
    return cb_add(z, row);
}

/* A recording that goes on from a trace in which the two had two names gives them one. */
static void test_joined_on_the_way(void **state) {
    (void)state;
    cb_function *fast = cb_compile(writes_behind_a_view, VM);
    cb_scope_open();
    cb_tensor *x = ramp(2, 4), *u = ramp(2, 4);
    for (int step = 0; step < 6; step++) {
        writes_late = step % 3 == 1;
        cb_tensor *y = step % 3 ? x : ramp(2, 4), *v = step % 3 ? u : ramp(2, 4);
        expect_equal(cb_call(fast, x, y), writes_behind_a_view(u, v));
        expect_equal(x, u);
    }
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_scope_close();
    cb_function_free(fast);
}

static void expect_overlap_said(const char *options) {
    cb_function *fast = cb_compile(writes_first, options);
    cb_scope_open();
    World w = make_world();
    for (int i = 0; i < 12; i++) assert_non_null(cb_call(fast, w.place[0], w.place[1]));
    expect_said(fast, "it writes to memory that two of its tensors share (input 0, which is "
                      "written, and input 1)");
    assert_int_equal(cb_stats(fast).eager_calls, 12);
    assert_non_null(cb_call(fast, w.place[0], w.place[2])); /* and is not given up for that */
    assert_non_null(cb_call(fast, w.place[2], w.place[0]));
    assert_int_equal(cb_stats(fast).eager_calls, 12);
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_scope_close();
    cb_function_free(fast);
}

static void test_guards(void **state) {
    (void)state;
    expect_guarded(VM);
    expect_guarded("fullgraph=1, " VM);
    expect_joined(VM, 1);
    expect_joined("fullgraph=1, " VM, 2);
    expect_overlap_said(VM);
    expect_overlap_said("fullgraph=1, " VM);
    assert_null(cb_error());
}

/* ---- asked inside of the function ------------------------------------------------------------ */

static int answers[64], answer_count;

static void ask(cb_tensor *x, cb_tensor *y) {
    answers[answer_count++] = cb_shares_storage(x, y) | cb_shares_storage(y, x) << 1;
}

static cb_tensor *asks(cb_tensor *x, cb_tensor *y) {
    cb_tensor *turned = cb_transpose(x, 0, 1), *same = cb_contiguous(x), *sum = cb_add(x, y);
    cb_tensor *row = cb_select(sum, 0, 1), *other = cb_mul(sum, 2.0);
    cb_tensor *idle = cb_sub(x, 1.0), *part = cb_select(idle, 0, 1); /* no op uses them */
    ask(turned, turned), ask(turned, x), ask(turned, y), ask(same, x), ask(turned, same);
    ask(sum, sum), ask(sum, x), ask(sum, row), ask(other, row);
    double value = cb_item(cb_sum(other)); /* what lives now waits, until an op uses it */
    ask(turned, x), ask(sum, row), ask(other, row);
    cb_tensor *behind = cb_select(row, 0, 0), *late = cb_mul(row, value);
    ask(behind, row), ask(behind, sum);
    ask(late, late), ask(late, row), ask(same, turned), ask(idle, part), ask(idle, other);
    return cb_add(late, behind);
}

static void test_asked_inside(void **state) {
    (void)state;
    cb_function *fast = cb_compile(asks, VM);
    cb_scope_open();
    int expected[64];
    for (int call = 0; call < 6; call++) {
        cb_tensor *x = ramp(4, 4), *y = call % 2 ? x : ramp(4, 4);
        answer_count = 0;
        expect_equal(asks(x, y), cb_call(fast, x, y));
        int count = answer_count / 2;
        memcpy(expected, answers, sizeof expected);
        for (int i = 0; i < count; i++)
            if (answers[count + i] != expected[i]) fail_msg("call %d: answer %d", call, i);
        assert_int_equal(expected[0] + expected[1] + expected[3] + expected[5] + expected[7], 15);
        assert_int_equal(expected[6] + expected[8] + expected[15], 0);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_scope_close();
    cb_function_free(fast);
    assert_null(cb_error());
}

/* ---- results that are one ------------------------------------------------------------------- */

static int same_results(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = out[3] = cb_mul(x[0], 2.0);
    out[1] = out[4] = x[1];
    out[2] = cb_transpose(x[1], 0, 1);
    out[5] = NULL;
    return 6;
}

static void test_same_results(void **state) {
    (void)state;
    const char *options[] = {VM, "fullgraph=1, " VM};
    for (int o = 0; o < 2; o++) {
        cb_function *fast = cb_compile_n(same_results, NULL, options[o]);
        cb_scope_open();
        for (int i = 0; i < 3; i++) {
            cb_tensor *x[2] = {ramp(2, 4), ramp(2, 4)}, *got[6];
            if (i == 2) x[1] = x[0];
            assert_int_equal(cb_call_n(fast, x, 2, got, 6), 6);
            assert_ptr_equal(got[3], got[0]);
            assert_ptr_equal(got[1], x[1]);
            assert_ptr_equal(got[4], x[1]);
            assert_true(cb_shares_storage(got[2], x[1]));
            assert_null(got[5]);
            if (i < 2) assert_int_equal(cb_stats(fast).graphs, 1);
            char *text = cb_explain(fast);
            if (i < 2) assert_null(strstr(text, "recorded again:")); /* it matches, twice or not */
            cb_free_text(text);
        }
        cb_scope_close();
        cb_function_free(fast);
    }
    assert_null(cb_error());
}

/* ---- many inputs ----------------------------------------------------------------------------- */

enum { MANY = 300, WRITTEN = 90, FREED = 200 };

/* Adds to each of the first what the one behind it is, gives the sum of all. */
static int writes_many(cb_tensor *const *x, int count, cb_tensor **out, void *frees) {
    for (int i = 0; i < WRITTEN; i++) cb_add_(x[i], x[i + 1]);
    out[0] = x[0];
    for (int i = 1; i < count; i++) out[0] = cb_add(out[0], x[i]);
    if (frees) cb_free(x[FREED]);
    return 1;
}

static void make_many(cb_tensor **x) {
    for (int i = 0; i < MANY; i++) x[i] = cb_full(cb_dims(2, 2), 0.01 * i);
}

/* Input `at` is another one, or a part of one, in both worlds. */
static void join(cb_tensor **x, int at, int other, bool part) {
    cb_tensor *whole = cb_full(cb_dims(3, 2), 0.5);
    x[other] = part ? cb_narrow(whole, 0, 0, 2) : x[other];
    x[at] = part ? cb_narrow(whole, 0, 1, 2) : x[other];
}

static void expect_same_many(cb_function *fast, int at, int other, bool part) {
    cb_tensor *x[MANY], *y[MANY], *expected, *got;
    cb_scope_open();
    make_many(x), make_many(y);
    if (at) join(x, at, other, part), join(y, at, other, part);
    writes_many(x, MANY, &expected, NULL);
    assert_int_equal(cb_call_n(fast, y, MANY, &got, 1), 1);
    expect_equal(got, expected);
    for (int i = 0; i < MANY; i++) expect_equal(y[i], x[i]);
    cb_scope_close();
}

/* Which of hundreds are one, or overlap, is known as of two. */
static void test_many_inputs(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(writes_many, NULL, VM);
    for (int round = 0; round < 2; round++) expect_same_many(fast, 0, 0, false);
    assert_int_equal(cb_stats(fast).graphs, 1);
    expect_same_many(fast, 250, 280, false); /* none of them is written */
    assert_int_equal(cb_stats(fast).graphs, 1);
    expect_same_many(fast, 250, 3, false);
    assert_int_equal(cb_stats(fast).graphs, 2);
    assert_int_equal(cb_stats(fast).breaks, 0);
    expect_same_many(fast, 280, 5, true);
    assert_int_equal(cb_stats(fast).breaks, 1);
    cb_function_free(fast);
    assert_null(cb_error());
}

/* The function frees one that is none of the first 64, which its ops read. */
static void test_many_inputs_one_freed(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(writes_many, &fast, VM);
    for (int round = 0; round < 3; round++) {
        cb_tensor *x[MANY], *y[MANY], *expected, *got;
        cb_scope_open();
        make_many(x), make_many(y);
        writes_many(x, MANY, &expected, NULL);
        assert_int_equal(cb_call_n(fast, y, MANY, &got, 1), 1);
        expect_equal(got, expected);
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).graphs, 1);
    cb_function_free(fast);
    assert_null(cb_error());
}

/* ---- expanded parts -------------------------------------------------------------------------- */

static cb_tensor *last_row_for_each(cb_tensor *x) {
    return cb_expand(cb_unsqueeze(cb_select(cb_mul(x, 2.0), 0, 2), 1), cb_dims(4, 5));
}

static cb_tensor *one_of_expanded(cb_tensor *x) {
    return cb_select(cb_expand(cb_unsqueeze(cb_mul(x, 2.0), 0), cb_dims(2, 3, 4)), 2, 1);
}

static cb_tensor *rows_of_expanded(cb_tensor *x) {
    return cb_slice(cb_expand(cb_unsqueeze(cb_mul(x, 2.0), 1), cb_dims(3, 2, 4)), 0, 1, 3);
}

/* A lone part is computed by itself and keeps the strides of 0, so it takes no write, as in
 * eager. */
static void test_expanded_parts(void **state) {
    (void)state;
    cb_function_1 *const functions[] = {last_row_for_each, one_of_expanded, rows_of_expanded};
    const char *const options[] = {VM, VM ",fullgraph=1", "backend=eager", ""};
    for (int i = 0; i < 12; i++) {
        cb_function *fast = cb_compile(functions[i / 4], options[i % 4]);
        for (int call = 0; call < 3; call++) {
            cb_scope_open();
            cb_tensor *x = ramp(3, 4), *got = cb_call(fast, x), *wanted = functions[i / 4](x);
            expect_tensor(got, wanted, 0, 0);
            for (int d = 0; d < cb_rank(got); d++)
                assert_int_equal(!cb_stride(got, d), !cb_stride(wanted, d));
            assert_null(cb_fill_(got, 7));
            cb_clear_error();
            cb_scope_close();
        }
        char *text = cb_explain(fast);
        assert_null(strstr(text, "return mul\n"));
        cb_free_text(text);
        cb_function_free(fast);
    }
}

/* ---- views in front of what they view -------------------------------------------------------- */

static int views(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)count, (void)user;
    cb_tensor *y = cb_mul(inputs[0], 2.0);
    outputs[0] = cb_slice(y, 0, 1, 3);
    outputs[1] = cb_t(y);
    outputs[2] = cb_select(y, 1, 3);
    outputs[3] = y;
    outputs[4] = cb_select(cb_exp(inputs[0]), 1, 0);
    return 5;
}

static void test_views_in_front(void **state) {
    (void)state;
    const char *const options[] = {VM, VM ",fullgraph=1", "backend=eager", ""};
    for (int i = 0; i < 4; i++) {
        cb_function *fast = cb_compile_n(views, NULL, options[i]);
        for (int call = 0; call < 4; call++) {
            cb_scope_open();
            cb_tensor *x = ramp(3, 4), *got[5], *wanted[5];
            assert_int_equal(cb_call_n(fast, &x, 1, got, 5), 5);
            views(&x, 1, wanted, NULL);
            for (int k = 0; k < 5; k++) expect_tensor(got[k], wanted[k], 1e-6, 1e-6);
            cb_fill_(got[0], 7.0), cb_fill_(wanted[0], 7.0);
            for (int k = 0; k < 5; k++) expect_tensor(got[k], wanted[k], 1e-6, 1e-6);
            cb_scope_close();
        }
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views_in_front),
        cmocka_unit_test(test_all_pairs),
        cmocka_unit_test(test_guards),
        cmocka_unit_test(test_found_argument),
        cmocka_unit_test(test_joined_on_the_way),
        cmocka_unit_test(test_asked_inside),
        cmocka_unit_test(test_same_results),
        cmocka_unit_test(test_expanded_parts),
        cmocka_unit_test(test_many_inputs),
        cmocka_unit_test(test_many_inputs_one_freed),
        cmocka_unit_test(test_many_beside_a_found_one),
    };
    return run_counted(tests);
}
