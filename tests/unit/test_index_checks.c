/* Indices out of range are errors of compiled functions as they are of eager, whether or not
 * anybody needs what is looked up; and the errors are the same, to the line. */
#include "capture_support.h"
#include "fixture.h"

#include <stdio.h>
#include <string.h>

static char said[512];

/* What has gone wrong since the last time, "" for nothing. */
static const char *errors(char *out, size_t bytes) {
    snprintf(out, bytes, "%s", cb_error() ? cb_error() : "");
    cb_clear_error();
    return out;
}

static cb_tensor *places(int64_t first, int64_t second) {
    return cb_from_data((int64_t[]){first, second}, CB_I64, cb_dims(2));
}

/* ---- every op that looks at an index --------------------------------------------------------- */

enum { OPS = 9, ROWS_OF_X = 3 };

/* Looks it up in x[3, 4], whose rows, elements of a column or classes are in question. */
static cb_tensor *look_up(int op, cb_tensor *x, cb_tensor *index) {
    cb_tensor *column = cb_select(x, 1, 0), *source = cb_ones(cb_dims(2));
    switch (op) {
    case 0:
        return cb_gather(column, 0, index);
    case 1:
        return cb_index_select(x, 0, index);
    case 2:
        return cb_scatter(column, 0, index, source);
    case 3:
        return cb_scatter_add(column, 0, index, source);
    case 4:
        return cb_one_hot(index, ROWS_OF_X);
    case 5:
        return cb_embedding(cb_to(index, CB_I32), x);
    case 6:
        return cb_cross_entropy(cb_transpose(cb_slice(x, 1, 0, 2, 1), 0, 1), index);
    case 7: /* false, whatever was scattered */
        return cb_isnan(cb_scatter(cb_zeros(cb_dims(3), CB_I64), 0, index, index));
    default: /* not the index that was given, and in a dead composite */
        return cb_softmax(cb_gather(cb_exp(column), 0, cb_neg(cb_neg(index))), 0);
    }
}

static int chosen;

static cb_tensor *in_vain(cb_tensor *x, cb_tensor *index) {
    cb_add_(x, 1.0);
    cb_tensor *unread = look_up(chosen, x, index);
    if (chosen == 7) return cb_where(cb_select(unread, 0, 0), cb_neg(x), x);
    return cb_mul(x, 2.0);
}

static void nobody_reads_it(void **state) {
    (void)state;
    static const char *const options[] = {VM, "backend=c", "fullgraph=1, " VM, "fuse=0, " VM};
    for (int o = 0; o < 4; o++)
        for (chosen = 0; chosen < OPS; chosen++) {
            cb_function *fast = cb_compile(in_vain, options[o]);
            for (int call = 0; call < 4; call++) {
                char now[512];
                cb_tensor *index = places(2, call == 2 ? 3 : call == 3 ? -1 : 0);
                cb_tensor *x = ramp(3, 4), *u = ramp(3, 4), *expected = in_vain(x, index);
                errors(said, sizeof said);
                cb_tensor *got = cb_call(fast, u, index);
                errors(now, sizeof now);
                if (strcmp(now, said) || !*said != (call < 2))
                    fail_msg("op %d, %s, call %d: '%s', eager '%s'", chosen, options[o], call, now,
                             said);
                assert_int_equal(got == NULL, call >= 2);
                if (got) expect_equal(got, expected);
                expect_equal(u, x); /* what was done before stays done */
            }
            assert_int_equal(cb_stats(fast).graphs, 1);
            cb_function_free(fast);
        }
}

static void far_outside(void **state) {
    (void)state;
    static const int64_t far[] = {INT64_MIN, INT64_MIN + 2, INT64_MAX};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "index %lld", (long long)far[i]);
        assert_null(cb_index_select(ramp(3, 4), 0, places(1, far[i])));
        assert_non_null(strstr(errors(said, sizeof said), wanted));
    }
}

/* Of several that fail, the first that was called is named, whichever is needed. */
static cb_tensor *several(cb_tensor *x, cb_tensor *index) {
    cb_gather(cb_select(x, 1, 0), 0, index);
    cb_tensor *row = cb_index_select(x, 0, cb_add(index, 1));
    cb_one_hot(index, 2);
    return cb_add(row, cb_sum(cb_index_select(x, 0, index)));
}

static void the_first_call_is_named(void **state) {
    (void)state;
    static const char *const options[] = {VM, "fullgraph=1, " VM};
    for (int o = 0; o < 2; o++) {
        cb_function *fast = cb_compile(several, options[o]);
        for (int64_t at = 0; at < 5; at++) {
            char now[512];
            cb_tensor *x = ramp(3, 4);
            several(x, places(at, 0));
            errors(said, sizeof said);
            cb_call(fast, x, places(at, 0));
            assert_string_equal(errors(now, sizeof now), said);
            assert_non_null(strstr(said, at < 2    ? ""
                                         : at == 2 ? "index_select: index 3"
                                                   : "gather"));
        }
        cb_function_free(fast);
    }
}

/* ---- random functions ------------------------------------------------------------------------ */

enum { STEPS = 6 };

typedef struct LookUps {
    int op[STEPS], index[STEPS], then[STEPS];
    bool events;
} LookUps;

enum { DROP, ADD, WRITE, ASK, THENS };

static unsigned pick(unsigned *state, unsigned count) {
    *state = *state * 1103515245u + 12345u;
    return (*state >> 16) % count;
}

static int run_program(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    const LookUps *p = user;
    cb_tensor *x = in[0], *sum = cb_sum(x);
    for (int i = 0; i < STEPS; i++) {
        cb_tensor *index = in[1 + p->index[i] % 2];
        if (p->index[i] >= 2) index = cb_sub(cb_mul(index, 2), index); /* one of its own */
        cb_tensor *found = look_up(p->op[i], x, index);
        if (p->then[i] == ADD) sum = cb_add(sum, cb_sum(cb_to(found, CB_F32)));
        if (p->then[i] == WRITE) cb_mul_(x, 1.5);
        if (p->then[i] == ASK && p->events && cb_item(sum) > 1e30) sum = cb_neg(sum);
    }
    out[0] = sum;
    return 1;
}

static void compare(cb_function *fast, LookUps *p, unsigned *state, unsigned seed) {
    for (int call = 0; call < 5; call++) {
        char now[512];
        int64_t bad = call == 0 || pick(state, 2) ? 0 : pick(state, 2) ? 3 : -1;
        int first = (int)pick(state, 2);
        cb_tensor *x = ramp(3, 4), *u = ramp(3, 4), *expected[1], *got[1];
        cb_tensor *index[] = {places(1, first ? bad : 2), places(first ? 0 : bad, 2)};
        cb_tensor *in[] = {x, index[0], index[1]}, *to[] = {u, index[0], index[1]};
        run_program(in, 3, expected, p);
        errors(said, sizeof said);
        int count = cb_call_n(fast, to, 3, got, 1);
        errors(now, sizeof now);
        if (strcmp(now, said))
            fail_msg("seed %u, call %d: '%s', eager '%s'", seed, call, now, said);
        assert_int_equal(count, *said ? CB_ERR_INDEX : 1);
        expect_equal(u, x);
        if (!*said) expect_equal(got[0], expected[0]);
    }
}

static void random_functions(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 80; seed++) {
        unsigned random = seed * 2654435761u;
        LookUps p = {.events = seed % 3 != 0};
        for (int i = 0; i < STEPS; i++) {
            p.op[i] = (int)pick(&random, OPS);
            p.index[i] = (int)pick(&random, 4);
            p.then[i] = (int)pick(&random, THENS);
        }
        cb_function *fast = cb_compile_n(run_program, &p, p.events ? VM : "fullgraph=1, " VM);
        compare(fast, &p, &random, seed);
        cb_function_free(fast);
    }
}

/* ---- divisors, with the option check --------------------------------------------------------- */

static cb_tensor *divides(cb_tensor *a, cb_tensor *b) { return cb_floor_divide(a, b); }
static cb_tensor *takes_remainders(cb_tensor *a, cb_tensor *b) { return cb_remainder(a, b); }
static cb_tensor *divides_for_nobody(cb_tensor *a, cb_tensor *b) {
    cb_fmod(a, cb_expand(b, cb_dims(3, 2)));
    return cb_neg(a);
}

static void integers_divided_by_0_are_found(void **state) {
    (void)state;
    cb_tensor *(*const function[])(cb_tensor *, cb_tensor *) = {divides, takes_remainders,
                                                                divides_for_nobody};
    cb_tensor *a = places(7, -8), *fine = places(2, 3), *broken = places(2, 0);
    for (int i = 0; i < 3; i++) {
        cb_function *fast = cb_compile(function[i], VM);
        for (int checked = 0; checked < 4; checked++) {
            cb_set_option("check", checked % 2 ? "1" : "0");
            assert_non_null(cb_call(fast, a, fine));
            assert_non_null(function[i](a, fine));
            assert_int_equal(!cb_call(fast, a, broken), checked % 2);
            assert_int_equal(strcmp(errors(said, sizeof said), "") != 0, checked % 2);
            assert_true(!(checked % 2) || strstr(said, "integers are not divided by 0"));
            function[i](a, broken);
            assert_int_equal(strcmp(errors(said, sizeof said), "") != 0, checked % 2);
        }
        assert_non_null(function[i](cb_to(a, CB_F32), broken));
        cb_function_free(fast);
    }
    cb_set_option("check", "1");
    cb_tensor *wraps = cb_full(CB_NO_DIMS, 256, CB_I64);
    assert_null(divides(cb_to(a, CB_I8), wraps));
    assert_non_null(strstr(errors(said, sizeof said), "integers are not divided by 0"));
    assert_non_null(divides(a, wraps));
    cb_set_option("check", "0");
}

static cb_tensor *loses(cb_tensor *x, cb_tensor *target) {
    return cb_binary_cross_entropy(cb_mul(x, 0.5), target, NULL, CB_REDUCE_NONE);
}

static void probabilities_are_looked_at(void **state) {
    (void)state;
    static const float wrong[] = {-1e-6f, 2.0001f, NAN, INFINITY};
    cb_function *fast = cb_compile(loses, VM);
    float values[2] = {0, 2};
    cb_tensor *target = cb_zeros(cb_dims(2));
    for (int checked = 0; checked < 4; checked++) {
        cb_set_option("check", checked % 2 ? "1" : "0");
        cb_tensor *fine = cb_from_data(values, CB_F32, cb_dims(2));
        assert_non_null(cb_call(fast, fine, target));
        assert_non_null(loses(fine, target));
        for (int i = 0; i < 4; i++) {
            cb_tensor *x = cb_from_data((float[]){1, wrong[i]}, CB_F32, cb_dims(2));
            assert_int_equal(!cb_call(fast, x, target), checked % 2);
            assert_int_equal(strcmp(errors(said, sizeof said), "") != 0, checked % 2);
            assert_true(!(checked % 2) ||
                        strstr(said, "binary_cross_entropy: x has to be between"));
            loses(x, target);
            assert_int_equal(strcmp(errors(said, sizeof said), "") != 0, checked % 2);
        }
    }
    cb_function_free(fast);
    cb_set_option("check", "0");
}

int main(void) {
#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope_without_error)
    const struct CMUnitTest tests[] = {
        ONE(nobody_reads_it),
        ONE(far_outside),
        ONE(the_first_call_is_named),
        ONE(random_functions),
        ONE(integers_divided_by_0_are_found),
        ONE(probabilities_are_looked_at),
    };
    return run_counted(tests);
}
