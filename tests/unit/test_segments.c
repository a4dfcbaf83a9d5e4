/* Functions that ask for values in their middle: what they do is what eager does, in order, and
 * what lies between two events runs compiled. */
#include "capture_support.h"

#include <pthread.h>

static int64_t graphs(cb_function *fast) { return cb_stats(fast).graphs; }

static void expect_compiled(cb_function *fast, int64_t count) {
    cb_function_stats stats = cb_stats(fast);
    if (stats.graphs != count || stats.eager_calls) {
        char *text = cb_explain(fast);
        print_error("%s", text);
        cb_free_text(text);
    }
    assert_int_equal(stats.graphs, count);
    assert_int_equal(stats.eager_calls, 0);
}

/* ---- what waits ------------------------------------------------------------------------------ */

static bool rarely;

static cb_tensor *rarely_uses(cb_tensor *x) {
    cb_tensor *y = cb_exp(x), *z = cb_mul(y, 3.0), *s = cb_sum(z);
    double sum = cb_item(s);
    return rarely ? cb_add(cb_add(y, z), sum) : cb_add(x, 1.0);
}

/* y and z wait; the first call that uses them has them computed, those after it find them. */
static void values_wait(void **state) {
    (void)state;
    cb_function *fast = cb_compile(rarely_uses, VM);
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < 3; i++) expect_equal(cb_call(fast, x), rarely_uses(x));
    expect_compiled(fast, 2);
    rarely = true;
    for (int i = 0; i < 3; i++) {
        expect_equal(cb_call(fast, x), rarely_uses(x));
        expect_compiled(fast, 4); /* the first part once more, wider, and another way behind it */
    }
    rarely = false;
    expect_equal(cb_call(fast, x), rarely_uses(x));
    expect_compiled(fast, 4);
    cb_function_free(fast);
}

static cb_tensor *writes_before_use(cb_tensor *x) {
    cb_tensor *y = cb_exp(x), *part = cb_select(x, 0, 1);
    cb_tensor *twice = cb_mul(x, 2.0), *s = cb_sum(x);
    double sum = cb_item(s);
    cb_add_(x, 1.0); /* y and twice are of x as it was */
    double after = cb_item(cb_sum(x));
    cb_mul_(part, 3.0);
    if (rarely) return cb_add(cb_add(cb_mul(y, x), twice), sum + after);
    return cb_mul(x, sum);
}

static cb_tensor *writes_in_the_middle(cb_tensor *x) {
    cb_tensor *y = cb_exp(x);
    double sum = cb_item(cb_sum(x));
    cb_add_(x, 1.0);
    double after = cb_item(cb_sum(x));
    return rarely ? cb_mul(y, 2.0) : cb_mul(x, sum + after);
}

static void values_wait_for_no_write(void **state) {
    (void)state;
    cb_function_1 *function[] = {writes_before_use, writes_in_the_middle};
    for (int i = 0; i < 6; i++) {
        cb_function *fast = cb_compile(function[i / 3], VM);
        for (int call = 0; call < 6; call++) {
            rarely = call >= i % 3 + 1;
            cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
            expect_equal(cb_call(fast, x), function[i / 3](y));
            expect_equal(x, y);
        }
        rarely = false;
        cb_function_free(fast);
    }
}

static cb_tensor *draws(cb_tensor *x) {
    cb_tensor *noise = cb_rand_like(x), *y = cb_add(x, noise);
    double sum = cb_item(cb_sum(y));
    return rarely && sum < 1e9 ? cb_sub(cb_mul(noise, y), cb_rand_like(x)) : cb_add(x, 1.0);
}

static void random_numbers_are_drawn_once(void **state) {
    (void)state;
    cb_function *fast = cb_compile(draws, VM);
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < 4; i++) {
        rarely = i > 1;
        cb_manual_seed(5);
        cb_tensor *got = cb_call(fast, x);
        cb_manual_seed(5);
        expect_equal(got, draws(x));
    }
    rarely = false;
    expect_compiled(fast, 4); /* the first part once more, wider */
    cb_function_free(fast);
}

static bool frees;

static cb_tensor *frees_and_writes(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *z = cb_exp(x);
    cb_add_(x, 1.0);
    if (frees) cb_free(z);
    double sum = cb_item(cb_sum(y));
    return frees ? cb_add(y, sum) : cb_mul(z, y);
}

/* What lived nowhere when a segment that writes was compiled cannot wait when it does. */
static void values_of_writers_never_wait(void **state) {
    (void)state;
    cb_function *fast = cb_compile(frees_and_writes, VM);
    for (int i = 0; i < 6; i++) {
        frees = i < 2 || i == 4;
        cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
        expect_equal(cb_call(fast, x), frees_and_writes(y));
        expect_equal(x, y);
    }
    cb_function_free(fast);
}

static cb_tensor *hidden;

static cb_tensor *keeps_one(cb_tensor *x) {
    cb_tensor *y = cb_exp(x), *z = cb_mul(y, 3.0);
    double sum = cb_item(cb_sum(y));
    hidden = cb_keep(z);
    return cb_add(x, sum);
}

static void what_is_kept_has_a_value(void **state) {
    (void)state;
    cb_function *fast = cb_compile(keeps_one, VM);
    cb_tensor *x = ramp(3, 4), *wanted = keeps_one(x), *expected = hidden;
    for (int i = 0; i < 4; i++) {
        expect_equal(cb_call(fast, x), wanted);
        expect_equal(hidden, expected);
        cb_free(hidden);
    }
    cb_free(expected);
    expect_compiled(fast, 2);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "crosses %2, %3")); /* no op runs for it behind the call */
    cb_free_text(text);
    cb_function_free(fast);
}

/* Views that meet what they show only behind the event, and write through it. */
static cb_tensor *writes_through_views(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *row = cb_select(y, 0, 1), *turned = cb_t(y);
    double sum = cb_item(cb_sum(y));
    cb_add_(row, sum);
    double more = cb_item(cb_sum(turned));
    cb_mul_(cb_select(turned, 0, 0), more);
    return cb_add(y, cb_view(cb_select(x, 0, 0), cb_dims(1, 4)));
}

static void views_show_one_memory(void **state) {
    (void)state;
    cb_function *fast = cb_compile(writes_through_views, VM);
    for (int i = 0; i < 4; i++) {
        cb_tensor *x = cb_add(ramp(3, 4), (double)i);
        expect_equal(cb_call(fast, x), writes_through_views(x));
    }
    cb_function_free(fast);
}

/* ---- loops ----------------------------------------------------------------------------------- */

static int rounds;

static cb_tensor *walks(cb_tensor *x) {
    cb_tensor *at = cb_keep(cb_mul(x, 1.0));
    for (int i = 0; i < rounds; i++) {
        cb_scope_open();
        cb_tensor *next = cb_keep(cb_add(cb_mul(at, 0.999), 0.001)), *unused = cb_exp(next);
        bool far = cb_item(cb_amax(cb_abs(next))) > 1e6;
        cb_free(at);
        at = next;
        cb_scope_close();
        if (far) return unused;
    }
    return cb_scope_add(at);
}

static void loops_find_their_segment(void **state) {
    (void)state;
    cb_function *fast = cb_compile(walks, VM);
    cb_tensor *x = ramp(3, 4);
    rounds = 2000;
    cb_tensor *wanted = walks(x);
    int64_t tensors = cb_memory().live_tensors;
    for (int i = 0; i < 3; i++) {
        cb_scope_open();
        expect_equal(cb_call(fast, x), wanted);
        cb_scope_close();
    }
    assert_int_equal(cb_memory().live_tensors, tensors);
    expect_compiled(fast, 2); /* the first round reads an input, others what the last one made */
    assert_true(cb_stats(fast).breaks < 10); /* rounds op by op, before there was an entry */
    cb_function_free(fast);
}

/* ---- failures -------------------------------------------------------------------------------- */

static cb_tensor *index_of_rows;

static cb_tensor *fails_behind(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    double sum = cb_item(cb_sum(y));
    cb_add_(x, sum);
    return cb_index_select(y, 0, index_of_rows);
}

/* As in eager: what was written before the failing op stays written. */
static void failures_are_those_of_eager(void **state) {
    (void)state;
    cb_function *fast = cb_compile(fails_behind, VM);
    const int64_t good[2] = {0, 2}, bad[2] = {0, 7};
    for (int i = 0; i < 6; i++) {
        index_of_rows = cb_from_data(i % 2 ? bad : good, CB_I64, cb_dims(2));
        cb_tensor *x = ramp(3, 4), *y = ramp(3, 4), *wanted = fails_behind(y);
        char error[512];
        snprintf(error, sizeof error, "%s", cb_error() ? cb_error() : "");
        cb_clear_error();
        cb_tensor *got = cb_call(fast, x);
        assert_string_equal(cb_error() ? cb_error() : "", error);
        cb_clear_error();
        assert_int_equal(got == NULL, wanted == NULL);
        if (got) expect_equal(got, wanted);
        expect_equal(x, y);
    }
    cb_function_free(fast);
}

/* ---- random functions ------------------------------------------------------------------------ */

enum { MOST_STEPS = 24, POOL = 6, ANSWERS = 64 };

static struct {
    uint32_t seed;
    int steps, answers;
    double answer[ANSWERS];
} program;

static uint32_t pick(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void say(double value) {
    if (program.answers < ANSWERS) program.answer[program.answers++] = value;
}

/* The last one, as a small number. */
static double said_last(void) {
    return program.answers ? cos(program.answer[program.answers - 1]) : 0.75;
}

static float *pointer; /* to an element of one of its tensors, perhaps of an earlier step */

/* One step on a pool of tensors of [4, 4]; what it asks for decides over the next, and comes back
 * as a number. */
static void do_step(cb_tensor **pool, uint32_t *seed) {
    uint32_t what = pick(seed, 17), a = pick(seed, POOL), b = pick(seed, POOL),
             to = pick(seed, POOL);
    cb_tensor *x = pool[a], *y = pool[b], *row = cb_select(x, 0, (int64_t)pick(seed, 4));
    if (what < 2) pool[to] = cb_add(cb_mul(x, 0.5), y);
    if (what == 2) pool[to] = cb_tanh(x);
    if (what == 3) pool[to] = cb_sub(x, cb_mean(y, cb_dims(0), true));
    if (what == 4) pool[to] = cb_t(x);
    if (what == 5) cb_add_(x, 0.25);
    if (what == 6) cb_mul_(row, 0.5);
    if (what == 7) cb_assign(row, cb_select(y, 1, 2));
    if (what == 8) say(cb_item(cb_sum(cb_mul(x, y))));
    if (what == 9 && cb_item(cb_sum(row)) > 0) pool[to] = cb_neg(y);
    if (what == 10) say(cb_item(cb_select(row, 0, 3)));
    if (what == 11) pool[to] = cb_clone(cb_t(x));
    if (what == 12) pool[to] = cb_sub(y, cb_mul(x, said_last()));
    if (what == 13) cb_mul_(x, said_last());
    if (what == 14) cb_fill_(row, said_last());
    if (what == 15) pointer = cb_data(row);
    if (what == 16 && pointer) say(*pointer), *pointer = (float)said_last();
}

static cb_tensor *runs_program(cb_tensor *x, cb_tensor *w) {
    uint32_t seed = program.seed;
    cb_tensor *pool[POOL] = {x, w, cb_mul(x, 2.0), cb_t(w), cb_sub(x, w), w};
    program.answers = 0;
    pointer = NULL;
    for (int i = 0; i < program.steps; i++) do_step(pool, &seed);
    return cb_add(cb_add(pool[2], pool[3]), cb_mul(pool[4], pool[5]));
}

static void expect_program(cb_function *fast, int input) {
    double answer[ANSWERS];
    cb_tensor *in[2][2];
    for (int k = 0; k < 2; k++) {
        cb_tensor *base = cb_sub(cb_mul(ramp(4, 4), 0.2), 0.1 * input);
        in[k][0] = base, in[k][1] = cb_cos(cb_mul(base, 1.0 + input));
    }
    cb_tensor *wanted = runs_program(in[0][0], in[0][1]);
    int answers = program.answers;
    memcpy(answer, program.answer, sizeof answer);
    cb_tensor *got = cb_call(fast, in[1][0], in[1][1]);
    if (cb_error()) print_error("program %u: %s\n", program.seed, cb_error());
    assert_int_equal(program.answers, answers);
    for (int k = 0; k < answers; k++)
        if (!(fabs(answer[k] - program.answer[k]) <= 1e-4 * (1 + fabs(answer[k])))) {
            print_error("program %u, input %d: answer %d\n", program.seed, input, k);
            assert_true(false);
        }
    expect_tensor(got, wanted, 1e-4, 1e-4);
    for (int k = 0; k < 2; k++) expect_tensor(in[1][k], in[0][k], 1e-4, 1e-4);
}

static void random_functions(void **state) {
    (void)state;
    int64_t eager = 0, calls = 0;
    for (uint32_t seed = 1; seed <= 150; seed++) {
        cb_scope_open();
        program.seed = seed * 77u;
        program.steps = 4 + (int)(seed % (MOST_STEPS - 4));
        cb_function *fast = cb_compile(runs_program, VM);
        for (int input = 0; input < 8; input++) expect_program(fast, input % 4);
        eager += cb_stats(fast).eager_calls, calls += cb_stats(fast).calls;
        cb_function_free(fast);
        cb_scope_close();
        assert_null(cb_error());
    }
    assert_true(eager * 4 < calls); /* overlapping writes are eager */
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *calls_many_times(void *function) {
    for (int i = 0; i < 40; i++) {
        cb_scope_open();
        cb_tensor *x = cb_add(ramp(3, 4), (double)(i % 3));
        cb_tensor *got = cb_call((cb_function *)function, x);
        double sum = cb_item(cb_sum(cb_mul(x, 2.0)));
        cb_tensor *wanted = sum > 20 ? cb_neg(cb_mul(x, 2.0)) : cb_exp(cb_mul(x, 2.0));
        if (!got || cb_item(cb_amax(cb_abs(cb_sub(got, wanted)))) > 1e-4) return function;
        cb_scope_close();
    }
    return NULL;
}

static cb_tensor *branches(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    return cb_item(cb_sum(y)) > 20 ? cb_neg(y) : cb_exp(y);
}

static void threads_share_segments(void **state) {
    (void)state;
    cb_function *fast = cb_compile(branches, VM);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, calls_many_times, fast), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    assert_true(graphs(fast) <= 4); /* threads that met at once may have seen less cross */
    cb_function_free(fast);
}

/* ---- the ambient state, set inside of the function ------------------------------------------- */

/* 1 + 2^-11, which is no f16, minus 1: what precise rounds away. Before, between and behind ops;
 * s is asked for behind the change, and of what came before it. */
static const char *set_first, *set_then;
static bool asks_late;

static int sets_precise(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    if (set_first) cb_set_option("precise", set_first);
    cb_tensor *y = cb_sub(cb_add(x[0], 1), 1), *waits = cb_sub(cb_add(x[0], 1), 1);
    if (set_then) cb_set_option("precise", set_then);
    out[0] = cb_sub(cb_add(y, 1), 1);
    out[1] = asks_late ? cb_mul(waits, 2.0) : cb_neg(x[0]);
    out[2] = y;
    cb_set_option("precise", "0");
    return 3;
}

static void the_precision_is_that_of_each_op(void **state) {
    (void)state;
    static const char *const sets[][2] = {{"1", NULL}, {NULL, "1"}, {"1", "0"}, {"0", "1"}};
    for (int i = 0; i < 4; i++) {
        set_first = sets[i][0], set_then = sets[i][1];
        cb_function *fast = cb_compile_n(sets_precise, NULL, VM);
        for (int call = 0; call < 8; call++) {
            cb_tensor *x = cb_to(cb_full(cb_dims(3), 0x1p-11), CB_F16), *got[3], *expected[3];
            asks_late = call >= 4;
            sets_precise(&x, 1, expected, NULL);
            assert_int_equal(cb_call_n(fast, &x, 1, got, 3), 3);
            for (int k = 0; k < 3; k++) /* compiled, y keeps f32 within a graph, and no further */
                if (k < 2 || set_first)
                    expect_tensor(got[k], expected[k], k || i == 3 ? 1e-3 : 0, 0);
        }
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
    cb_function *whole = cb_compile_n(sets_precise, NULL, "fullgraph=1," VM);
    cb_tensor *x = cb_to(ramp(2, 2), CB_F16), *got[3];
    assert_true(cb_call_n(whole, &x, 1, got, 3) < 0);
    assert_non_null(strstr(cb_error(), "precise"));
    cb_clear_error();
    cb_function_free(whole);
}

/* What waits since an earlier event is of the precision that it was recorded under. */
static cb_tensor *waits_and_sets_precise(cb_tensor *x) {
    cb_tensor *waits = cb_softmax(x, -1);
    double sum = cb_item(cb_sum(x));
    cb_set_option("precise", "1");
    cb_tensor *y = asks_late ? cb_mul(waits, 2.0) : cb_neg(x);
    cb_set_option("precise", "0");
    return sum > 1e9 ? x : y;
}

static void what_waits_keeps_its_precision(void **state) {
    (void)state;
    cb_tensor *x = cb_to(cb_randn(cb_dims(16, 61)), CB_BF16), *loose = cb_softmax(x, -1);
    cb_set_option("precise", "1");
    assert_true(cb_item(cb_sum(cb_to(cb_ne(loose, cb_softmax(x, -1)), CB_F32))) > 0);
    cb_set_option("precise", "0");
    cb_function *fast = cb_compile(waits_and_sets_precise, VM);
    for (int call = 0; call < 5; call++) {
        asks_late = call >= 3;
        cb_tensor *expected = waits_and_sets_precise(x);
        expect_tensor(cb_call(fast, x), expected, 0, 0);
    }
    cb_function_free(fast);
}

/* What was drawn before the seed is set is of the seed before. */
static cb_tensor *seeds_in_the_middle(cb_tensor *x) {
    cb_tensor *before = cb_rand_like(x);
    cb_manual_seed(5);
    return cb_add(before, cb_mul(cb_rand_like(x), 2.0));
}

static void the_seed_is_that_of_each_draw(void **state) {
    (void)state;
    cb_function *fast = cb_compile(seeds_in_the_middle, VM);
    cb_tensor *x = ramp(3, 4);
    for (int call = 0; call < 4; call++) {
        cb_manual_seed(9);
        cb_tensor *expected = seeds_in_the_middle(x);
        cb_manual_seed(9);
        expect_equal(cb_call(fast, x), expected);
    }
    expect_compiled(fast, 2);
    cb_function_free(fast);
}

/* Draws of another thread say nothing of this function: it draws none, so what nobody uses behind
 * the event does not cross. */
static _Atomic bool drawn_enough;

static void *draws_always(void *unused) {
    while (!drawn_enough) {
        cb_scope_open();
        cb_rand(cb_dims(4));
        cb_scope_close();
    }
    return unused;
}

static cb_tensor *leaves_values(cb_tensor *x) {
    cb_tensor *used = cb_mul(x, 2.0), *left = cb_exp(x);
    (void)left;
    return cb_add(used, cb_item(cb_sum(used)));
}

static void other_threads_draw(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, draws_always, NULL), 0);
    cb_function *fast = cb_compile(leaves_values, VM);
    cb_tensor *x = cb_ones(cb_dims(200000));
    for (int i = 0; i < 3; i++) cb_call(fast, x);
    drawn_enough = true;
    pthread_join(thread, NULL);
    char *text = cb_explain(fast);
    if (!strstr(text, "crosses %1, %3\n")) print_error("%s", text);
    assert_non_null(strstr(text, "crosses %1, %3\n"));
    cb_free_text(text);
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_wait),
        cmocka_unit_test(values_wait_for_no_write),
        cmocka_unit_test(random_numbers_are_drawn_once),
        cmocka_unit_test(values_of_writers_never_wait),
        cmocka_unit_test(what_is_kept_has_a_value),
        cmocka_unit_test(views_show_one_memory),
        cmocka_unit_test(loops_find_their_segment),
        cmocka_unit_test(failures_are_those_of_eager),
        cmocka_unit_test(random_functions),
        cmocka_unit_test(threads_share_segments),
        cmocka_unit_test(the_precision_is_that_of_each_op),
        cmocka_unit_test(what_waits_keeps_its_precision),
        cmocka_unit_test(the_seed_is_that_of_each_draw),
        cmocka_unit_test(other_threads_draw),
    };
    return run_counted(tests);
}
