/* Random numbers in functions that ask for values in their middle: eager, on the VM and in C they
 * are the same, whether what was drawn crosses an event or waits behind it, and whatever is drawn
 * and seeded meanwhile. */
#include "capture_support.h"
#include "custom_ops.h"

#include <pthread.h>

static const char *const engines[] = {VM, "backend=c"};

static bool rarely, first_alone;
static double chance = 0.5;

static int begin(void **state) {
    (void)state;
    cb_scope_open();
    rarely = first_alone = false;
    chance = 0.5;
    return register_test_ops();
}

static int end(void **state) {
    (void)state;
    cb_scope_close();
    return cb_error() != NULL;
}

static char *explained(cb_function *fast) {
    char *text = cb_explain(fast);
    assert_non_null(text);
    return text;
}

/* The same numbers, and as many of them. */
static void expect_draws(cb_function *fast, cb_function_1 *function) {
    cb_scope_open();
    cb_tensor *x = ramp(3, 4), *y = ramp(3, 4);
    cb_manual_seed(7);
    cb_tensor *wanted = function(y), *wanted_next = cb_rand(cb_dims(3));
    cb_manual_seed(7);
    cb_tensor *got = cb_call(fast, x);
    expect_equal(got, wanted);
    expect_equal(x, y);
    expect_tensor(cb_rand(cb_dims(3)), wanted_next, 0, 0);
    cb_scope_close();
}

/* ---- what waits ------------------------------------------------------------------------------ */

static cb_tensor *drops(cb_tensor *x) {
    cb_tensor *noise = cb_randn_like(x), *kept = cb_dropout(x, 0.5, true);
    cb_tensor *shown = cb_mul(cb_rand_like(x), 2.0);
    double sum = cb_item(cb_sum(shown));
    cb_tensor *later = cb_rand_like(x);
    if (cb_item(cb_sum(later)) < 0) return NULL;
    if (first_alone) return cb_mul(noise, later);
    if (rarely) return cb_add(cb_mul(noise, kept), cb_add(shown, cb_rand_like(x)));
    return cb_add(later, sum);
}

/* Only the sum crosses: the noise, the mask and what was kept wait, and are what they were when
 * somebody uses them. */
static void draws_wait(void **state) {
    (void)state;
    for (int e = 0; e < 2; e++) {
        cb_function *fast = cb_compile(drops, engines[e]);
        rarely = false;
        for (int call = 0; call < 3; call++) expect_draws(fast, drops);
        char *text = explained(fast);
        if (!strstr(text, "; crosses %5\n")) print_error("%s", text);
        assert_non_null(strstr(text, "; crosses %5\n"));
        cb_free_text(text);
        assert_int_equal(cb_stats(fast).graphs, 3);
        for (int call = 0; call < 9; call++) {
            first_alone = call < 3;
            rarely = call < 6;
            expect_draws(fast, drops);
        }
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

static cb_tensor *drops_by_chance(cb_tensor *x) {
    cb_tensor *kept = cb_dropout(x, chance, true), *twice = cb_mul(kept, 2.0);
    double sum = cb_item(cb_sum(twice));
    return rarely ? cb_add(kept, cb_rand_like(x)) : cb_add(x, sum);
}

/* A p that changes is an argument of the segment, which draws all the same. */
static void draws_with_arguments_wait(void **state) {
    (void)state;
    for (int e = 0; e < 2; e++) {
        cb_function *fast = cb_compile(drops_by_chance, engines[e]);
        for (int call = 0; call < 10; call++) {
            chance = 0.1 + 0.08 * call;
            rarely = call == 5 || call > 7;
            expect_draws(fast, drops_by_chance);
        }
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

/* ---- loops ----------------------------------------------------------------------------------- */

static int rounds;

static cb_tensor *walks(cb_tensor *x) {
    cb_tensor *at = cb_mul(x, 0.0), *first = NULL, *last = NULL;
    for (int round = 0; round < rounds; round++) {
        cb_tensor *step = cb_randn_like(x), *kept = cb_dropout(step, 0.25, true);
        cb_tensor *next = cb_add(cb_mul(at, 0.5), kept);
        double sum = cb_item(cb_sum(cb_abs(next)));
        if (sum < 2) next = cb_add(next, cb_rand_like(x));
        if (round == 0) first = step;
        if (round % 3 == 1) last = cb_sub(step, kept);
        at = next;
    }
    return rarely ? cb_add(at, cb_add(first, last)) : at;
}

/* Rounds op by op, rounds compiled in the middle of the call, and values of early rounds that are
 * used behind the last one. */
static void loops_draw_in_order(void **state) {
    (void)state;
    for (int e = 0; e < 2; e++) {
        cb_function *fast = cb_compile(walks, engines[e]);
        for (int call = 0; call < 8; call++) {
            rounds = 2 + 3 * (call % 4);
            rarely = call == 2 || call == 5;
            expect_draws(fast, walks);
        }
        cb_function_free(fast);
    }
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static cb_tensor *seeds_between(cb_tensor *x) {
    cb_tensor *early = cb_rand_like(x);
    double sum = cb_item(cb_sum(x));
    cb_manual_seed(5);
    cb_tensor *late = cb_rand_like(x), *same = cb_mul(late, sum);
    cb_manual_seed(11);
    cb_tensor *other = cb_rand_like(x);
    return rarely ? cb_add(cb_sub(early, late), other) : cb_add(same, other);
}

static cb_tensor *seeds_first(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    cb_manual_seed(5);
    return cb_add(y, cb_rand_like(x));
}

static void seeds_are_those_of_each_draw(void **state) {
    (void)state;
    for (int e = 0; e < 2; e++) {
        cb_function *fast = cb_compile(seeds_between, engines[e]);
        for (int call = 0; call < 8; call++) {
            rarely = call == 3 || call > 5;
            expect_draws(fast, seeds_between);
        }
        cb_function_free(fast);
        fast = cb_compile(seeds_first, engines[e]);
        for (int call = 0; call < 3; call++) expect_draws(fast, seeds_first);
        assert_int_equal(cb_stats(fast).graphs, 1); /* nothing was drawn before */
        assert_int_equal(cb_stats(fast).breaks, 0);
        cb_function_free(fast);
    }
}

/* ---- other threads --------------------------------------------------------------------------- */

static _Atomic bool drawn_enough;

static void *draws_always(void *unused) {
    while (!drawn_enough) {
        cb_scope_open();
        cb_rand(cb_dims(2));
        cb_scope_close();
    }
    return unused;
}

static cb_tensor *differs(cb_tensor *x) {
    cb_tensor *first = cb_rand_like(x), *noise = cb_rand_like(x), *shown = cb_add(x, noise);
    cb_item(cb_sum(x));
    if (!rarely) return cb_mul(shown, 2.0);
    return cb_sub(cb_add(first, shown), cb_add(x, cb_add(first, noise)));
}

/* What waits is drawn as what has crossed was, whatever others drew at the same time. */
static void waits_while_others_draw(void **state) {
    (void)state;
    pthread_t thread;
    drawn_enough = false;
    assert_int_equal(pthread_create(&thread, NULL, draws_always, NULL), 0);
    cb_tensor *x = ramp(3, 4);
    for (int i = 0; i < 200; i++) {
        cb_scope_open();
        cb_function *fast = cb_compile(differs, VM);
        rarely = false;
        cb_call(fast, x);
        if (i % 2) cb_call(fast, x);
        rarely = true;
        expect_tensor(cb_call(fast, x), cb_zeros(cb_dims(3, 4)), 1e-6, 1e-6);
        cb_function_free(fast);
        cb_scope_close();
    }
    drawn_enough = true;
    pthread_join(thread, NULL);
}

/* ---- what does not happen twice, or fails ---------------------------------------------------- */

static cb_tensor *notes_and_waits(cb_tensor *x) {
    cb_tensor *noise = cb_call_op("test.noise", &x, 1, CB_NO_DIMS, CB_NO_FLOATS);
    cb_tensor *drawn = cb_rand_like(x), *twice = cb_mul(noise, 2.0);
    call_note(cb_sum(twice), 1);
    double sum = cb_item(cb_sum(x));
    return rarely ? cb_add(cb_add(noise, twice), drawn) : cb_add(x, sum);
}

static void effects_happen_once(void **state) {
    (void)state;
    cb_function *fast = cb_compile(notes_and_waits, VM);
    for (int call = 0; call < 8; call++) {
        rarely = call == 2 || call > 4;
        *custom_log = 0;
        expect_draws(fast, notes_and_waits);
        size_t length = strlen(custom_log);
        assert_int_equal(length % 2, 0);
        assert_memory_equal(custom_log, custom_log + length / 2, length / 2); /* eager, compiled */
        assert_ptr_equal(strstr(custom_log + 1, "1:"), custom_log + length / 2);
    }
    cb_function_free(fast);
}

static cb_tensor *rows_wanted;

static cb_tensor *fails_to_draw(cb_tensor *x) {
    cb_tensor *drawn = cb_rand_like(x);
    cb_tensor *lost = cb_dropout(cb_index_select(x, 0, rows_wanted), 0.5, true);
    double sum = cb_item(cb_sum(cb_add(drawn, cb_rand_like(x))));
    cb_clear_error();
    return cb_add(cb_mul(x, sum), rarely ? cb_sum(lost) : cb_rand_like(x));
}

/* An op that fails takes no numbers. */
static void failures_draw_nothing(void **state) {
    (void)state;
    const int64_t good[2] = {0, 2}, bad[2] = {0, 7};
    for (int first = 0; first < 2; first++) {
        cb_function *fast = cb_compile(fails_to_draw, VM);
        for (int call = 0; call < 8; call++) {
            rows_wanted = cb_from_data((call + first) % 2 ? bad : good, CB_I64, cb_dims(2));
            expect_draws(fast, fails_to_draw);
        }
        cb_function_free(fast);
    }
}

/* ---- random programs ------------------------------------------------------------------------- */

enum { POOL = 5, PROGRAMS = 120, OF_C = 1 };

static struct {
    uint32_t seed, input;
    int steps;
} program;

static uint32_t pick(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

/* Values decide over what comes next, so ways differ from input to input. */
static void do_step(cb_tensor **pool, uint32_t *seed) {
    uint32_t what = pick(seed, 14), a = pick(seed, POOL), b = pick(seed, POOL),
             to = pick(seed, POOL);
    cb_tensor *x = pool[a], *y = pool[b];
    if (what == 0) pool[to] = cb_rand_like(x);
    if (what == 1) pool[to] = cb_randn_like(y);
    if (what == 2) pool[to] = cb_dropout(x, 0.25, true);
    if (what == 3) pool[to] = cb_mul(cb_dropout(x, 0.1 + 0.2 * program.input, true), y);
    if (what == 4) cb_manual_seed(pick(seed, 4));
    if (what == 5) pool[to] = cb_add(cb_mul(x, 0.5), y);
    if (what == 6) pool[to] = cb_tanh(x);
    if (what == 7 && a > 1) cb_add_(x, 0.25);
    if (what == 8 && cb_item(cb_sum(x)) > 1) pool[to] = cb_rand_like(y);
    if (what == 9 && cb_item(cb_select(cb_select(y, 0, 1), 0, 1)) > 0.3) pool[to] = cb_neg(x);
    if (what == 10) pool[to] = cb_mul(y, cb_item(cb_mean(x)));
    if (what == 11) pool[to] = cb_t(cb_rand_like(cb_t(x)));
    if (what == 12) cb_item(cb_amax(x));
    if (what == 13 && pick(seed, 2)) cb_rand(cb_dims(3));
}

static cb_tensor *runs_program(cb_tensor *x) {
    uint32_t seed = program.seed;
    cb_tensor *pool[POOL] = {x, cb_mul(x, 0.5), cb_rand_like(x), cb_tanh(x), cb_randn_like(x)};
    for (int i = 0; i < program.steps; i++) do_step(pool, &seed);
    return cb_add(cb_add(pool[1], pool[2]), cb_mul(pool[3], pool[4]));
}

static void random_functions(void **state) {
    (void)state;
    int64_t eager = 0, calls = 0;
    for (uint32_t number = 1; number <= PROGRAMS; number++) {
        program.seed = number * 131u;
        program.steps = 4 + (int)(number % 18);
        cb_function *fast = cb_compile(runs_program, engines[number <= OF_C]);
        for (int call = 0; call < 8; call++) {
            cb_scope_open();
            program.input = (uint32_t)call % 4;
            cb_tensor *x = cb_sin(cb_mul(ramp(3, 3), 1.0 + program.input)), *y = cb_clone(x);
            cb_manual_seed(call);
            cb_tensor *wanted = runs_program(y), *wanted_next = cb_rand(cb_dims(3));
            cb_manual_seed(call);
            cb_tensor *got = cb_call(fast, x);
            if (cb_error()) print_error("program %u: %s\n", number, cb_error());
            expect_tensor(got, wanted, 1e-4, 1e-4);
            expect_tensor(x, y, 1e-5, 1e-5);
            expect_tensor(cb_rand(cb_dims(3)), wanted_next, 0, 0);
            cb_scope_close();
        }
        eager += cb_stats(fast).eager_calls, calls += cb_stats(fast).calls;
        cb_function_free(fast);
    }
    assert_true(eager * 10 < calls);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(draws_wait),
        TEST(draws_with_arguments_wait),
        TEST(loops_draw_in_order),
        TEST(seeds_are_those_of_each_draw),
        TEST(waits_while_others_draw),
        TEST(effects_happen_once),
        TEST(failures_draw_nothing),
        TEST(random_functions),
    };
    return run_counted(tests);
}
