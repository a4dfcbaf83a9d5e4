/* Entries that leave and entries that count for the limit: sizes that no compiler ran for are
 * neither lost to eager nor kept for good, whatever else their entries are. */
#include "capture/find.h"
#include "capture_support.h"
#include "fixture.h"
#include "poisoning.h"

#include <pthread.h>

static cb_tensor *wave(int64_t rows, int64_t columns) {
    cb_tensor *x = cb_to(cb_arange(0, rows * columns), CB_F32);
    return cb_reshape(cb_sin(cb_mul(x, 0.37)), cb_dims(rows, columns));
}

static void expect_near(cb_tensor *x, cb_tensor *y) { expect_tensor(x, y, 2e-5, 2e-5); }

static int entries_of(const cb_function *fast) {
    int count = 0;
    for (Entry *e = atomic_load(&fast->first); e; e = atomic_load(&e->next)) count++;
    return count;
}

/* In the chains is what is in the list, once each. */
static void expect_chains(const cb_function *fast) {
    int found = 0, begin = 0;
    for (int c = 0; c < FIND_CHAINS; c++)
        for (Entry *e = atomic_load(&fast->chain[FIND_BY_INPUTS][c]); e;
             e = atomic_load(&e->same[FIND_BY_INPUTS]), found++)
            assert_false(atomic_load(&e->gone));
    for (int c = 0; c < FIND_CHAINS; c++)
        for (Entry *e = atomic_load(&fast->chain[FIND_BY_OP][c]); e;
             e = atomic_load(&e->same[FIND_BY_OP]))
            assert_false(atomic_load(&e->gone));
    for (Entry *e = atomic_load(&fast->first); e; e = atomic_load(&e->next)) begin += !e->resumes;
    assert_int_equal(found, begin);
}

/* What the function, or an entry of the list, points at is in the list. */
static void expect_pointers(const cb_function *fast) {
    expect_chains(fast);
    const Entry *last = atomic_load(&fast->last);
    assert_false(last && atomic_load(&last->gone));
    for (Entry *e = atomic_load(&fast->first); e; e = atomic_load(&e->next)) {
        const Entry *then = atomic_load(&e->then), *after = atomic_load(&e->after);
        const Entry *wider = atomic_load(&e->wider);
        assert_false(atomic_load(&e->gone));
        assert_false(then && atomic_load(&then->gone));
        assert_false(after && atomic_load(&after->gone));
        assert_false(wider && atomic_load(&wider->gone));
    }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static cb_tensor *softmax(cb_tensor *x) { return cb_softmax(x, -1); }
static cb_tensor *scaled(cb_tensor *x) { return cb_softmax(cb_mul(x, 2.0), -1); }

static cb_tensor *asks(cb_tensor *x) {
    cb_tensor *y = cb_softmax(cb_mul(x, 3.0), -1);
    return cb_item(cb_sum(cb_select(y, 0, 0))) > 0.5 ? cb_add(y, 1.0) : cb_mul(y, 2.0);
}

static double rate;
static cb_tensor *rated(cb_tensor *x) { return cb_softmax(cb_mul(cb_sin(x), rate), -1); }

static const struct {
    const char *name, *options;
    cb_function_1 *function;
    bool by_row; /* f32[4, n], not f32[n, 64] */
    int most;    /* compilations */
} sweeps[] = {
    {"a short axis", "", softmax, true, 3},
    {"a short axis, dynamic", "dynamic=1", softmax, true, 2},
    {"a number, dynamic", "dynamic=1", scaled, false, 2},
    {"a number and a short axis, dynamic", "dynamic=1", scaled, true, 3},
    {"a value in the middle", "", asks, false, 4},
    {"a value in the middle, dynamic", "dynamic=1", asks, false, 4},
    {"without a compiler", VM, softmax, false, 0},
    {"without a compiler, by row", VM, scaled, true, 0},
    {"without a compiler, dynamic", "dynamic=1, " VM, scaled, true, 0},
    {"without a compiler, a value in the middle", VM, asks, false, 0},
    {"a rate that changes", "", rated, false, 4},
    {"without a compiler, a rate that changes", VM, rated, false, 0},
};

/* Three times over 30 sizes: none is eager, and no more is compiled than that. */
static void sizes_count_for_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof sweeps / sizeof *sweeps; k++) {
        assert_int_equal(clean_up(NULL), 0); /* no code of the last one */
        cb_function *fast = cb_compile(sweeps[k].function, sweeps[k].options);
        for (int i = 0; i < 90; i++) {
            int n = i % 30 + 1;
            cb_scope_open();
            rate = 1.0 / (i + 3);
            cb_tensor *x = sweeps[k].by_row ? wave(4, n) : wave(n, 64);
            expect_near(cb_call(fast, x), sweeps[k].function(x));
            cb_scope_close();
        }
        cb_function_stats stats = cb_stats(fast);
        if (stats.eager_calls || stats.compiled > sweeps[k].most)
            FAIL("%s: %d compiled, %d eager", sweeps[k].name, (int)stats.compiled,
                 (int)stats.eager_calls);
        expect_pointers(fast);
        cb_function_free(fast);
    }
}

/* The one of the last call is asked first, until it leaves. */
static void the_last_size_is_found_first(void **state) {
    (void)state;
    cb_function *fast = cb_compile(softmax, VM);
    for (int round = 0; round < 2; round++) {
        cb_set_option("entries_mb", round ? "0" : "48");
        for (int n = 1; n <= 40; n++)
            for (int again = 0; again < 2; again++) {
                cb_scope_open();
                bool one_more = round && again; /* so that the oldest leaves */
                cb_tensor *x = wave(4, one_more ? n + 100 : n);
                expect_near(cb_call(fast, x), softmax(x));
                const Entry *last = atomic_load(&fast->last);
                if (!round && again) assert_int_equal(last->guard[0].size[1], n);
                cb_scope_close();
            }
        expect_pointers(fast);
        for (Entry *e = atomic_load(&fast->first); e; e = atomic_load(&e->next))
            assert_null(find_by(fast, FIND_BY_INPUTS, e->key[FIND_BY_INPUTS], e));
    }
    cb_set_option("entries_mb", "48");
    cb_reset();
    expect_near(cb_call(fast, wave(4, 140)), softmax(wave(4, 140)));
    assert_int_equal(cb_stats(fast).graphs, 1);
    expect_pointers(fast);
    cb_function_free(fast);
}

static int position;
static cb_tensor *rolls(cb_tensor *x) { return cb_exp(cb_roll(x, position, 0)); }

/* Sizes and positions that go around in a circle: what the next call does is known. */
static void what_comes_in_turn_is_known(void **state) {
    (void)state;
    cb_function *fast = cb_compile(rolls, VM);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 6; i++) {
            cb_scope_open();
            position = i % 3;
            cb_tensor *x = wave(i < 3 ? 4 : 5, 8);
            const Entry *last = atomic_load(&fast->last);
            const Entry *after = last ? atomic_load(&last->after) : NULL;
            expect_equal(cb_call(fast, x), rolls(x));
            assert_true(round < 2 || after == atomic_load(&fast->last));
            cb_scope_close();
        }
    cb_tensor *x = wave(4, 8); /* and what comes otherwise is done all the same */
    for (position = 2; position >= 0; position--) expect_equal(cb_call(fast, x), rolls(x));
    assert_int_equal(cb_stats(fast).graphs, 6);
    expect_pointers(fast);
    cb_function_free(fast);
}

/* What is still to be compiled has not been, and then few of them were. */
static void async_sizes(void **state) {
    (void)state;
    cb_function *fast = cb_compile(scaled, "async=1, fuse=0");
    for (int round = 0; round < 2; round++) {
        for (int n = 2; n < 40; n++) {
            cb_scope_open();
            expect_near(cb_call(fast, wave(n, 67)), scaled(wave(n, 67)));
            cb_scope_close();
        }
        cb_function_wait(fast);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_in_range(cb_stats(fast).compiled, 1, 2);
    cb_function_free(fast);
}

/* ---- what counts ----------------------------------------------------------------------------- */

static int kind;

/* label_smoothing is an attribute that is no argument. */
static cb_tensor *smoothed(cb_tensor *x) {
    return cb_cross_entropy(x, cb_softmax(x, -1), NULL, -100, 1, (kind + 2) / 100.0);
}

/* Nor are such exponents, which are numbers as operands are. */
static cb_tensor *raised(cb_tensor *x) {
    cb_tensor *y = cb_softmax(x, -1);
    return cb_add(cb_pow(y, kind % 4 + 1.0), cb_pow(y, kind / 4 + 1.0));
}

/* A number that is no argument counts where it changes, however many sizes there are; sizes that
 * come to the same ones again do not. */
static void numbers_count(void **state) {
    (void)state;
    cb_set_option("notices", "0");
    for (int way = 0; way < 2; way++) {
        cb_function_1 *function = way ? raised : smoothed;
        cb_function *fast = cb_compile(function, VM);
        for (kind = 0; kind < 12; kind++)
            for (int n = 2; n < 5; n++)
                expect_near(cb_call(fast, wave(n, 3)), function(wave(n, 3)));
        /* at the limit all that is new is eager */
        assert_int_equal(cb_stats(fast).graphs, 7 * 3 + 1);
        assert_int_equal(cb_stats(fast).eager_calls, 12 * 3 - 22);
        cb_function_free(fast);
    }
    cb_set_option("notices", "1");
}

static cb_tensor *flattened(cb_tensor *x) { return cb_sin(cb_exp(x)); }

/* Ranks are kinds of calls, and so are sizes where they are said to be. */
static void ranks_count(void **state) {
    (void)state;
    cb_set_option("notices", "0");
    cb_set_option("recompile_limit", "3");
    cb_function *fast = cb_compile(flattened, VM), *fixed = cb_compile(flattened, "dynamic=0, " VM);
    for (int rank = 1; rank <= 5; rank++) {
        const cb_dim_list size = {rank, {rank + 1, 1, 2, 1, 2}};
        assert_non_null(cb_call(fast, cb_ones(size, CB_F32)));
    }
    assert_int_equal(cb_stats(fast).eager_calls, 2);
    for (int n = 2; n < 7; n++) assert_non_null(cb_call(fixed, cb_ones(cb_dims(n), CB_F32)));
    assert_int_equal(cb_stats(fixed).eager_calls, 2);
    cb_set_option("recompile_limit", "8");
    cb_set_option("notices", "1");
    cb_function_free(fast), cb_function_free(fixed);
}

static cb_tensor *chosen_op(cb_tensor *x) {
    cb_tensor *(*const ops[])(cb_operand) = {cb_sin, cb_cos, cb_tan, cb_exp, cb_tanh};
    return ops[kind](cb_operand_tensor(x));
}

static cb_tensor *rolled(cb_tensor *x) { return cb_roll(x, kind + 1, 0); }

/* Other ops are no other sizes; other integers are, at the same size, too. */
static void ops_count(void **state) {
    (void)state;
    cb_set_option("notices", "0");
    cb_set_option("recompile_limit", "3");
    for (int way = 0; way < 2; way++) {
        cb_function_1 *function = way ? rolled : chosen_op;
        cb_function *fast = cb_compile(function, VM);
        for (kind = 0; kind < 5; kind++) {
            cb_tensor *x = wave(way ? 9 : kind + 2, 3);
            expect_near(cb_call(fast, x), function(x));
        }
        assert_int_equal(cb_stats(fast).eager_calls, way ? 0 : 2);
        cb_function_free(fast);
    }
    cb_set_option("recompile_limit", "8");
    cb_set_option("notices", "1");
}

/* A slice that begins at 0, 1, 2 ...: numbers that small are text, and together one kind. */
static cb_tensor *windowed(cb_tensor *x) { return cb_mul(cb_slice(x, 0, kind, kind + 20), 3.0); }

static void small_integers_are_one_kind(void **state) {
    (void)state;
    cb_tensor *x = wave(100, 1);
    cb_function *fast = cb_compile(windowed, "");
    for (kind = 0; kind < 40; kind++) expect_near(cb_call(fast, x), windowed(x));
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_in_range(cb_stats(fast).compiled, 2, 11);
    cb_function_free(fast);
}

/* ---- sizes that pass ------------------------------------------------------------------------- */

static int64_t graphs_after(cb_function *fast, int64_t n) {
    cb_scope_open();
    cb_tensor *x = wave(4, n);
    expect_near(cb_call(fast, x), scaled(x));
    cb_scope_close();
    return cb_stats(fast).graphs;
}

static bool lets_pass(cb_function *fast, Tensor *x, int64_t rows, int64_t columns) {
    x->size[0] = rows, x->size[1] = x->stride[0] = columns;
    return function_lets_pass(fast, &x, 1);
}

/* However many have passed; the last of them have not been forgotten. */
static void expect_many_pass(cb_function *fast) {
    Tensor *x = tensor_in(cb_ones(cb_dims(2, 2), CB_F32), "test");
    for (int64_t rows = 5; rows < 100; rows++)
        for (int64_t n = 2; n < 102; n++) assert_true(lets_pass(fast, x, rows, n));
    int again = 0;
    for (int64_t n = 2; n < 102; n++) again += !lets_pass(fast, x, 99, n);
    assert_in_range(again, 80, 100);
    x->size[0] = x->size[1] = x->stride[0] = 2;
}

/* Eight sizes that no call came back to: new ones run op by op until they come again. */
static void sizes_pass(void **state) {
    (void)state;
    cb_set_option("passing_sizes", "8");
    cb_function *fast = cb_compile(scaled, VM);
    for (int64_t n = 2; n < 10; n++) assert_int_equal(graphs_after(fast, n), n - 1);
    for (int64_t n = 10; n < 30; n++) assert_int_equal(graphs_after(fast, n), 8);
    assert_int_equal(cb_stats(fast).eager_calls, 20);
    char *text = cb_explain(fast);
    assert_non_null(strstr(text, "have not come back"));
    cb_free_text(text);
    text = cb_explain_summary(fast); /* which says the reason and its hint as wholes */
    assert_non_null(strstr(text, "come again\n"));
    assert_non_null(strstr(text, "CARBIDE_PASSING_SIZES=0"));
    cb_free_text(text);
    assert_int_equal(graphs_after(fast, 29), 9);
    assert_int_equal(graphs_after(fast, 29), 9); /* one that comes back: the next are compiled */
    for (int64_t n = 30; n < 38; n++) assert_int_equal(graphs_after(fast, n), n - 20);
    assert_int_equal(graphs_after(fast, 38), 17);
    assert_int_equal(graphs_after(fast, 1 << 17), 18); /* pays in its first run */
    cb_reset();
    for (int64_t n = 2; n < 10; n++) graphs_after(fast, n);
    assert_int_equal(graphs_after(fast, 28), 8); /* nor does it remember that it ran */
    expect_many_pass(fast);
    cb_function_free(fast);

    fast = cb_compile(scaled, VM ",fullgraph=1"); /* which runs no ops */
    for (int64_t n = 2; n < 14; n++) assert_int_equal(graphs_after(fast, n), n - 1);
    cb_function_free(fast);
    cb_set_option("passing_sizes", "0");
}

/* Where the user said that they change, the code of one serves all. */
static void none_passes_that_was_said_to_vary(void **state) {
    (void)state;
    cb_set_option("passing_sizes", "2");
    cb_function *all = cb_compile(scaled, VM ",dynamic=1"), *one = cb_compile(scaled, VM);
    for (int64_t n = 2; n < 12; n++) {
        assert_int_equal(graphs_after(all, n), n - 1);
        cb_tensor *x = wave(4, n);
        cb_mark_dynamic(x, 1);
        cb_call(one, x);
    }
    assert_int_equal(cb_stats(all).eager_calls + cb_stats(one).eager_calls, 0);
    cb_tensor *other = wave(5, 12); /* of the other one it was not said */
    cb_mark_dynamic(other, 1);
    cb_call(one, other);
    assert_int_equal(cb_stats(one).eager_calls, 1);
    cb_function_free(all);
    cb_function_free(one);
    cb_set_option("passing_sizes", "0");
}

static int calls_compiled(cb_tensor *const *input, int count, cb_tensor **output, void *fast) {
    (void)count;
    output[0] = cb_call(fast, input[0]);
    return 1;
}

/* In a checkpoint, whose other run does what the first one did. */
static void none_passes_in_checkpoints(void **state) {
    (void)state;
    cb_set_option("passing_sizes", "2");
    cb_function *fast = cb_compile(scaled, VM);
    for (int64_t n = 2; n < 5; n++) cb_call(fast, cb_requires_grad_(wave(4, n), true));
    assert_int_equal(cb_stats(fast).eager_calls, 1);
    cb_tensor *x = cb_requires_grad_(wave(4, 5), true), *y = NULL;
    y = cb_checkpoint(calls_compiled, fast, &x, 1);
    assert_int_equal(cb_backward(cb_sum(cb_mul(y, y)), NULL), CB_OK);
    assert_int_equal(cb_stats(fast).eager_calls, 1);
    cb_function_free(fast);
    cb_set_option("passing_sizes", "0");
}

/* ---- what leaves ----------------------------------------------------------------------------- */

static int steps;
static cb_tensor *stepped(cb_tensor *x) {
    for (int i = 0; i < steps; i++) x = cb_sin(x);
    return x;
}

/* However little they may hold, 8 of the same ops, and 256 in all; what was used last stays. */
static void so_many_stay(void **state) {
    (void)state;
    cb_set_option("recompile_limit", "64");
    cb_set_option("entries_mb", "0");
    cb_function *fast = cb_compile(stepped, VM);
    for (steps = 1; steps <= 36; steps++) {
        for (int n = 1; n <= 40; n++) {
            cb_scope_open();
            cb_call(fast, cb_ones(cb_dims(n), CB_F32));
            if (n > 2) cb_call(fast, cb_ones(cb_dims(2), CB_F32));
            cb_scope_close();
        }
        assert_int_equal(entries_of(fast), steps < 32 ? 9 * steps : 256 + steps);
        expect_pointers(fast);
    }
    steps = 36;
    int64_t graphs = cb_stats(fast).graphs;
    assert_int_equal(graphs, 36 * 40);
    for (int n = 40; n > 34; n--) cb_call(fast, cb_ones(cb_dims(n), CB_F32));
    cb_call(fast, cb_ones(cb_dims(2), CB_F32));
    assert_int_equal(cb_stats(fast).graphs, graphs);
    cb_call(fast, cb_ones(cb_dims(3), CB_F32));
    assert_int_equal(cb_stats(fast).graphs, graphs + 1);
    cb_set_option("recompile_limit", "8");
    cb_set_option("entries_mb", "48");
    cb_function_free(fast);
}

static int64_t bytes_held(const cb_function *fast) {
    int64_t bytes = 0;
    for (Entry *e = atomic_load(&fast->first); e; e = atomic_load(&e->next))
        bytes += (int64_t)(arena_bytes(e->graph->arena) + arena_bytes(e->trace->arena));
    return bytes;
}

/* Sizes of a small function all come back to their entries; those of one with many ops leave once
 * they hold too much. */
static void small_ones_stay(void **state) {
    (void)state;
    steps = 3;
    cb_function *fast = cb_compile(stepped, VM);
    for (int i = 0; i < 240; i++) cb_call(fast, cb_ones(cb_dims(1 + i % 120), CB_F32));
    assert_int_equal(cb_stats(fast).graphs, 120);
    assert_int_equal(entries_of(fast), 120);
    cb_function_free(fast);

    steps = 100;
    fast = cb_compile(stepped, VM);
    for (int n = 1; n <= 40; n++) cb_call(fast, cb_ones(cb_dims(n), CB_F32));
    assert_int_equal(entries_of(fast), 40);
    int64_t megabytes = bytes_held(fast) >> 20; /* of 40; then 80 are over that */
    char text[24];
    snprintf(text, sizeof text, "%d", (int)megabytes);
    cb_set_option("entries_mb", text);
    for (int n = 41; n <= 80; n++) cb_call(fast, cb_ones(cb_dims(n), CB_F32));
    assert_in_range(entries_of(fast), 37, 41); /* the newest is none that may leave */
    assert_in_range(bytes_held(fast), (megabytes - 1) << 20, (megabytes + 1) << 20);
    cb_set_option("entries_mb", "48");
    cb_function_free(fast);
}

/* Of what recording and the passes make, an entry keeps what its graph needs. */
static void recording_goes(void **state) {
    (void)state;
    enum { OPS = 400 };
    steps = OPS;
    cb_function *fast = cb_compile(stepped, VM);
    cb_call(fast, cb_ones(cb_dims(5), CB_F32));
    const Graph *graph = atomic_load(&fast->first)->graph;
    assert_ptr_equal(graph, executable_plan(atomic_load(&fast->first)->executable)->graph);
    assert_int_equal(length(graph->node), OPS + 1);
    assert_in_range(arena_bytes(graph->arena), 1, OPS * 700);
    cb_function_free(fast);
}

static bool wide;
static cb_tensor *sometimes_wide(cb_tensor *x) {
    cb_tensor *y = cb_exp(x), *z = cb_mul(y, 3.0);
    double sum = cb_item(cb_sum(z));
    return wide ? cb_add(cb_add(y, z), sum) : cb_add(x, sum > 0 ? 1.0 : 2.0);
}

/* Chains of segments, some compiled twice: what follows a segment leaves, and so does what has
 * taken its place. */
static void chains_leave(void **state) {
    (void)state;
    cb_set_allocator((cb_allocator){poison_freed, NULL});
    cb_set_option("entries_mb", "0");
    cb_function *fast = cb_compile(sometimes_wide, VM);
    for (int i = 0; i < 600; i++) {
        cb_scope_open();
        int n = i < 300 && i % 2 ? 1 + i % 7 : 1 + i * 7 % 120;
        if (i > 300 && n < 8) n += 8; /* the first ones stay, what has taken their place does not */
        wide = i / 5 % 2;
        expect_near(cb_call(fast, wave(n, 5)), sometimes_wide(wave(n, 5)));
        expect_pointers(fast);
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_true(cb_stats(fast).graphs > entries_of(fast) + 100);
    cb_set_option("entries_mb", "48");
    cb_function_free(fast);
}

typedef struct ChainCaller {
    cb_function *fast;
    int first;
} ChainCaller;

static void *call_chains(void *user) {
    const ChainCaller *caller = user;
    for (int i = 0; i < 300; i++) {
        cb_scope_open();
        int n = 1 + (caller->first + 7 * i) % 61;
        cb_tensor *x = wave(n, 5), *y = cb_call(caller->fast, x);
        expect_near(y, asks(x));
        cb_scope_close();
    }
    return NULL;
}

static void chains_leave_beside_calls(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    ChainCaller caller[THREADS];
    cb_set_option("entries_mb", "0");
    cb_function *fast = cb_compile(asks, VM);
    for (int t = 0; t < THREADS; t++) {
        caller[t] = (ChainCaller){fast, 11 * t};
        assert_int_equal(pthread_create(&thread[t], NULL, call_chains, &caller[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], NULL);
    cb_set_option("entries_mb", "48");
    expect_pointers(fast);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

static int64_t length_of_text;
static cb_tensor *prefix(cb_tensor *x) {
    return cb_sum(cb_mul(cb_slice(x, 1, 0, length_of_text), 2.0), 1);
}

/* Each length but the first one is found by the op that told it from those before. */
static void lengths_are_found_by_op(void **state) {
    (void)state;
    cb_function *fast = cb_compile(prefix, VM);
    cb_tensor *x = wave(4, 64);
    for (int round = 0; round < 2; round++)
        for (length_of_text = 2; length_of_text < 60; length_of_text++)
            expect_near(cb_call(fast, x), prefix(x));
    assert_int_equal(cb_stats(fast).graphs, 58);
    for (Entry *e = atomic_load(&fast->first); e; e = atomic_load(&e->next)) {
        int alike = 0;
        uint64_t key = e->key[FIND_BY_OP];
        for (Entry *k = NULL; (k = find_by(fast, FIND_BY_OP, key, k));) alike++;
        assert_int_equal(alike, 1);
        assert_int_equal(e->trace->parted, 0);
        int64_t reach = e->trace->value[e->trace->op[0].result].meta.size[1];
        Attrs attrs = attrs_default(OP_slice);
        attrs.word[ATTR_slice_dim] = 1, attrs.word[ATTR_slice_end] = reach;
        cb_operand operand = cb_operand_tensor(tensor_in(x, "x"));
        assert_true(find_key_of_op(0, OP_slice, &operand, 1, attrs.word,
                                   op_info(OP_slice)->word_count) == key);
    }
    expect_chains(fast);
    cb_function_free(fast);
}

/* A compiler that is not there compiles nothing, so none of its entries counts. */
static void sizes_without_a_compiler(void **state) {
    (void)state;
    char before[256];
    snprintf(before, sizeof before, "%s", cb_get_option("cc"));
    cb_set_option("cc", "/nowhere/cc");
    cb_function *fast = cb_compile(asks);
    for (int64_t n = 2; n < 80; n++) {
        cb_scope_open();
        expect_near(cb_call(fast, wave(4, n)), asks(wave(4, n)));
        cb_scope_close();
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    assert_int_equal(cb_stats(fast).compiled, 0);
    cb_function_free(fast);
    cb_set_option("cc", before);
}

#define IN_SCOPE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope_without_error)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SCOPE(sizes_count_for_nothing),
        IN_SCOPE(lengths_are_found_by_op),
        IN_SCOPE(sizes_without_a_compiler),
        IN_SCOPE(the_last_size_is_found_first),
        IN_SCOPE(what_comes_in_turn_is_known),
        IN_SCOPE(async_sizes),
        IN_SCOPE(numbers_count),
        IN_SCOPE(ranks_count),
        IN_SCOPE(ops_count),
        IN_SCOPE(small_integers_are_one_kind),
        IN_SCOPE(sizes_pass),
        IN_SCOPE(none_passes_that_was_said_to_vary),
        IN_SCOPE(none_passes_in_checkpoints),
        IN_SCOPE(so_many_stay),
        IN_SCOPE(small_ones_stay),
        IN_SCOPE(recording_goes),
        IN_SCOPE(chains_leave),
        IN_SCOPE(chains_leave_beside_calls),
    };
    setenv("CARBIDE_PASSING_SIZES", "0", 1); /* all of them are compiled */
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
