/* Seats: the slots that a thread keeps for the shells of what it replays. None is lost, whichever
 * way a shell dies, and none is somebody else's; what a call finds on them is what its trace
 * says. */
#include "capture/function.h"
#include "capture_support.h"

#include "tensor/thread.h"

/* Free slots of the thread, with those on seats. */
static int spare(void) {
    int count = thread_state.slot_count;
    for (int i = 0; thread_state.seats && i < 1 << SEATS_BITS; i++)
        for (int k = 0; k < thread_state.seats[i].count; k++)
            count += thread_state.seats[i].slot[k] != NULL;
    return count;
}

static int seats(void) {
    int count = 0;
    for (int i = 0; thread_state.seats && i < 1 << SEATS_BITS; i++)
        count += thread_state.seats[i].count;
    return count;
}

static void need_seats(void) {
    if (POISONS) skip_because("AddressSanitizer keeps freed handles poisoned: there are no seats");
}

static cb_tensor *weight; /* found outside: the call has a double of it */

static cb_tensor *chain(cb_tensor *x) {
    cb_tensor *y = cb_mul(cb_add(x, weight), 0.5), *z = cb_exp(y);
    for (int i = 0; i < 6; i++) z = cb_sub(cb_mul(z, 0.25), y);
    cb_free(y);
    return cb_add(z, weight);
}

static void each_slot_comes_back(void **state) {
    (void)state;
    need_seats();
    weight = cb_keep(cb_full(cb_dims(3, 4), 0.5));
    cb_function *f = cb_compile(chain, VM);
    cb_tensor *x = ramp(3, 4), *expected = chain(x);
    int before = 0;
    for (int round = 0; round < 40; round++) {
        cb_scope_open();
        expect_equal(cb_call(f, x), expected);
        cb_scope_close();
        if (round < 3) before = spare();
        assert_int_equal(spare(), before);
    }
    assert_true(seats() > 16);
    assert_int_equal(cb_stats(f).graphs, 1);
    cb_function_free(f);
    cb_free(weight);
}

static bool frees;

static cb_tensor *doubles(cb_tensor *x) {
    cb_tensor *y = cb_mul(cb_add(x, weight), cb_exp(weight));
    if (frees) cb_free(weight);
    return cb_sub(cb_sin(y), x);
}

/* Nobody else but the call had it: a reference of the test's, and the tensor's own. */
static void expect_held(cb_function *f, cb_tensor *x, cb_tensor *expected) {
    const Tensor *w = tensor_in(weight, "weight");
    Storage *storage = storage_retain(w->storage);
    History *history = history_retain(w->history);
    expect_equal(cb_call(f, x), expected);
    assert_int_equal(atomic_load(&storage->references), frees ? 1 : 2);
    assert_int_equal(atomic_load(&history->references), frees ? 1 : 2);
    storage_release(storage);
    history_release(history);
}

/* What the call has of a tensor from outside sits, too, and holds it no longer than the call runs;
 * so long it does, whatever becomes of that. */
static void doubles_hold_for_a_call(void **state) {
    (void)state;
    need_seats();
    cb_function *f = cb_compile(doubles, VM);
    cb_tensor *x = ramp(3, 4);
    int before = 0;
    int64_t alive = 0;
    cb_no_grad_open();
    for (int round = 0; round < 24; round++) {
        cb_scope_open();
        if (!round || round >= 20)
            weight = cb_keep(cb_requires_grad_(cb_full(cb_dims(3, 4), round * 0.1), true));
        frees = false;
        cb_tensor *expected = doubles(x);
        frees = round >= 20;
        expect_held(f, x, expected);
        cb_scope_close();
        if (round < 3) before = spare(), alive = thread_live_tensors();
        if (round < 20) assert_int_equal(spare(), before);
        if (round < 20) assert_int_equal(thread_live_tensors(), alive);
        if (round == 19) cb_free(weight);
    }
    cb_no_grad_close();
    assert_int_equal(cb_stats(f).graphs, 1);
    cb_function_free(f);
}

/* Where it has one row, the stride of that is another one each time. */
static void doubles_lie_as_they_do(void **state) {
    (void)state;
    cb_function *f = cb_compile(doubles, VM);
    cb_tensor *x = ramp(3, 4), *row[] = {cb_slice(ramp(3, 4), 0, 0, 1),
                                         cb_slice(cb_slice(ramp(3, 8), 0, 0, 1), 1, 0, 4)};
    frees = false;
    for (int round = 0; round < 8; round++) {
        cb_scope_open();
        weight = row[round % 2];
        expect_equal(cb_call(f, x), doubles(x));
        cb_scope_close();
    }
    assert_int_equal(cb_stats(f).graphs, 1);
    cb_function_free(f);
}

/* ---- dead handles ---------------------------------------------------------------------------- */

static cb_tensor *stolen;
static int stolen_at;

static cb_tensor *steals(cb_tensor *x) {
    cb_tensor *y = cb_exp(cb_mul(x, 2.0));
    stolen = cb_neg(y), stolen_at = __LINE__;
    return cb_add(cb_sin(stolen), y);
}

static void shells_are_gone(void **state) {
    (void)state;
    cb_function *f = cb_compile(steals, VM);
    cb_tensor *x = ramp(3, 4), *older[4];
    for (int round = 0; round < 4; round++) {
        cb_call(f, x);
        older[round] = stolen;
        for (int k = 0; k <= round; k++) {
            char made[64];
            assert_int_equal(cb_rank(older[k]), -1);
            snprintf(made, sizeof made, "made at test_seats.c:%d and freed at %s", stolen_at,
                     POISONS || k == round || k < 2 ? "test_seats.c:"
                                                    : "the end of an earlier call");
            assert_non_null(strstr(cb_error(), made));
            assert_true(strstr(cb_error(), ", where the call that made it ended: cb_keep") ||
                        strstr(cb_error(), "the end of"));
            cb_clear_error();
            assert_true(k == round || older[k] != older[round]);
        }
    }
    seats_give_back(&thread_state);
    assert_int_equal(cb_rank(older[2]), -1);
    assert_true(POISONS || strstr(cb_error(), "freed long ago")); /* and the slot tells no more */
    cb_clear_error();
    cb_function_free(f);
}

/* ---- whose seats they are -------------------------------------------------------------------- */

static cb_function *again;
static int depth;

static cb_tensor *recursive(cb_tensor *x) {
    cb_tensor *y = cb_mul(cb_add(x, 1.0), 0.5), *z = cb_sin(cb_mul(y, 3.0));
    cb_disable_open();
    cb_tensor *inner = depth-- > 0 ? again ? cb_call(again, x) : recursive(x) : x;
    cb_disable_close();
    return cb_add(cb_sub(cb_mul(z, 2.0), cb_exp(y)), inner);
}

/* A call within a call of the same trace leaves the outer one its shells. */
static void calls_inside_of_calls(void **state) {
    (void)state;
    cb_tensor *x = ramp(3, 4);
    depth = 3;
    cb_tensor *expected = recursive(x);
    again = cb_compile(recursive, VM);
    for (int round = 0; round < 6; round++) {
        cb_scope_open();
        depth = 3;
        expect_equal(cb_call(again, x), expected);
        cb_scope_close();
    }
    cb_function_free(again);
    again = NULL;
}

static bool turned;

static cb_tensor *turns(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 0.5);
    y = turned ? cb_sum(cb_exp(y), 1) : cb_transpose(cb_exp(y), 0, 1);
    y = cb_mul(cb_add(y, 1.0), (double)cb_size(y, 0));
    return cb_neg(y);
}

/* A call that leaves the trace has values of other sizes under the same numbers. */
static void calls_that_leave_the_trace(void **state) {
    (void)state;
    need_seats();
    cb_tensor *x = ramp(3, 4);
    cb_function *f = cb_compile(turns, VM);
    seats_give_back(&thread_state); /* nobody's are in the way */
    int before = 0;
    for (int round = 0; round < 24; round++) {
        turned = round % 3 == 1;
        cb_scope_open();
        expect_equal(cb_call(f, x), turns(x));
        cb_scope_close();
        if (round < 6) before = spare();
        assert_int_equal(spare(), before);
    }
    cb_function_free(f);
}

static int64_t place;
static cb_tensor *views(cb_tensor *x) {
    cb_tensor *row = cb_select(x, 0, place), *y = cb_mul(cb_add(row, 1.0), 2.0);
    return turned ? row : cb_neg(y);
}

/* The same shell, of a view that lies elsewhere, and outlives some of the calls. */
static void views_of_other_places(void **state) {
    (void)state;
    cb_function *f = cb_compile(views, VM);
    seats_give_back(&thread_state);
    cb_tensor *x = ramp(16, 4), *y = ramp(16, 4);
    for (int round = 0; round < 60; round++) {
        cb_scope_open();
        int64_t from = round % 14;
        cb_tensor *a = cb_slice(x, 0, from, from + 2), *b = cb_slice(y, 0, from, from + 2);
        turned = round % 2;
        place = round < 6 ? 1 : round / 2 % 2;       /* an argument, soon */
        if (round >= 12) turned = round * 7 % 5 < 2; /* which nobody guesses */
        expect_equal(cb_call(f, a), views(b));
        cb_scope_close();
    }
    cb_function_free(f);
}

static cb_tensor *other_chain(cb_tensor *x) { /* more than fits into a call itself */
    cb_tensor *y = cb_add(x, weight);
    for (int i = 0; i < 150; i++) y = cb_mul(y, 1.5);
    return y;
}

static cb_tensor *early(cb_tensor *x) { /* what it returns has the number that weight has there */
    cb_tensor *y = cb_add(x, 1.0), *z = y;
    for (int i = 0; i < 150; i++) z = cb_mul(z, 1.5);
    return y;
}

/* A tensor from outside is told by itself, not by whose handle the last call had at its number. */
static void found_tensors_change(void **state) {
    (void)state;
    cb_function *f = cb_compile(other_chain, VM), *g = cb_compile(early, VM);
    cb_tensor *x = ramp(3, 4), *first = weight = ramp(3, 4);
    for (int round = 0; round < 4; round++) {
        weight = first;
        expect_equal(cb_call(f, x), other_chain(x));
        weight = cb_call(g, x);
        expect_equal(cb_call(f, x), other_chain(x));
    }
    cb_function_free(f);
    cb_function_free(g);
}

static cb_tensor *found_at_last(cb_tensor *x) {
    early(x);
    return weight;
}

/* A call has its own view of what the function returns from outside, and frees it. */
static void found_tensors_are_returned(void **state) {
    (void)state;
    cb_function *f = cb_compile(found_at_last, VM), *g = cb_compile(early, VM);
    cb_tensor *x = ramp(3, 4);
    weight = ramp(3, 4);
    int64_t live = cb_memory().live_tensors;
    for (int round = 0; round < 6; round++) {
        cb_scope_open();
        expect_equal(cb_call(f, x), weight);
        expect_equal(cb_call(g, x), early(x)); /* with the room that the other one had */
        cb_scope_close();
        assert_true(cb_memory().live_tensors == live);
    }
    cb_tensor *two[] = {weight, ramp(2, 2)};
    for (const char *which = "0010110100"; *which; which++) { /* not as the last time */
        live = cb_memory().live_tensors;
        cb_scope_open();
        weight = two[*which - '0'];
        expect_equal(cb_call(f, x), weight);
        cb_scope_close();
        assert_true(cb_memory().live_tensors == live);
    }
    assert_int_equal(cb_stats(f).graphs, 2);
    cb_function_free(f);
    cb_function_free(g);
}

static cb_tensor *uses_what_is_gone(cb_tensor *x) {
    cb_tensor *y = cb_add(x, 1.0), *z = cb_mul(y, 2.0);
    if (turned) cb_free(y);
    return cb_add(cb_neg(z), y);
}

static cb_tensor *uses_a_freed_input(cb_tensor *x) {
    cb_tensor *y = cb_add(x, 1.0);
    if (turned) cb_free(x);
    return cb_add(cb_neg(cb_mul(y, 2.0)), x);
}

static void goes_on_with_what_is_gone(cb_function_1 *function) {
    cb_function *f = cb_compile(function, VM);
    cb_tensor *x = ramp(3, 4);
    for (int round = 0; round < 6; round++) {
        turned = round == 5;
        cb_tensor *y = cb_call(f, x);
        if (!turned) expect_equal(y, function(x));
        if (turned) assert_null(y);
    }
    assert_non_null(strstr(cb_error(), "the tensor is gone"));
    cb_clear_error();
    turned = false;
    cb_function_free(f);
}

static void what_is_freed_is_no_operand(void **state) {
    (void)state;
    goes_on_with_what_is_gone(uses_what_is_gone);
    goes_on_with_what_is_gone(uses_a_freed_input);
}

/* ---- how many there are ---------------------------------------------------------------------- */

/* Those that a call has are no other one's: the calls of a kernel come while it runs. */
static void seats_have_one_call(void **state) {
    (void)state;
    need_seats();
    uint64_t trace = serial_next();
    seats_give_back(&thread_state);
    Seats *seats = seats_take(&thread_state, trace, 8);
    assert_non_null(seats);
    assert_null(seats_take(&thread_state, trace, 8));
    Tensor *value[8] = {NULL};
    Tracer tracer = {.value = value};
    seats_leave(seats, &tracer);
    assert_ptr_equal(seats_take(&thread_state, trace, 8), seats);
    Tensor *x = cb_ones(cb_dims(3), CB_F32), *y = cb_ones(cb_dims(3), CB_F32);
    seats->slot[0] = value[0] = x; /* the first and the last one live */
    seats->slot[7] = value[7] = y;
    seats_leave(seats, &tracer);
    assert_null(seats->slot[0]);
    assert_null(seats->slot[7]);
}

/* Room for the values of calls: the largest is kept, all of it NULL. */
static void rooms_are_kept(void **state) {
    (void)state;
    ValueList few = values_take(&thread_state, 300), many = values_take(&thread_state, 700);
    assert_true(few.capacity >= 300 && many.capacity >= 700);
    values_give(&thread_state, few);
    values_give(&thread_state, many);
    ValueList room = values_take(&thread_state, 500);
    Tracer tracer = {.value = room.value};
    assert_ptr_equal(room.value, few.capacity > many.capacity ? few.value : many.value);
    assert_int_equal(values_next(&tracer, 0, 700), 700);
    for (int v = 699; v > 640; v--) {
        room.value[v] = (Tensor *)room.value; /* any pointer */
        assert_int_equal(values_next(&tracer, 0, 700), v);
        room.value[v] = NULL;
    }
    assert_int_equal(values_next(&tracer, 0, 13), 13);
    values_give(&thread_state, room);
    int kept = thread_state.values.capacity;
    values_give(&thread_state, values_take(&thread_state, 1 << 15)); /* but for one so large */
    assert_int_equal(thread_state.values.capacity, kept);
}

static cb_tensor *long_chain(cb_tensor *x) {
    for (int i = 0; i < 500; i++) x = cb_add(cb_mul(x, 0.5), 1.0);
    return x;
}

/* Where the function's trace has seats, or might. */
static const Seats *place_of(const cb_function *fast) {
    uint64_t trace = atomic_load(&fast->first)->trace->serial;
    return &thread_state.seats[trace * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SEATS_BITS)];
}

/* More traces than there are seats for: those that are called have them, after a while. */
static void seats_are_limited(void **state) {
    (void)state;
    need_seats();
    enum { FUNCTIONS = 40 };
    seats_give_back(&thread_state); /* nobody's are in the way */
    cb_tensor *x = ramp(3, 4), *expected = long_chain(x);
    cb_function *f[FUNCTIONS];
    int count = 0; /* until there are no more, and one has a place and none on it */
    while (seats() < MOST_SEATS - 1000 || place_of(f[count - 1])->count) {
        assert_true(count < FUNCTIONS);
        f[count++] = cb_compile(long_chain, VM);
        for (int round = 0; round < 3; round++) {
            cb_scope_open();
            expect_equal(cb_call(f[count - 1], x), expected);
            cb_scope_close();
            assert_true(seats() <= MOST_SEATS);
        }
    }
    int before = spare(), had = seats();
    for (int round = 0; round < 40; round++) {
        cb_scope_open();
        expect_equal(cb_call(f[count - 1], x), expected);
        cb_scope_close();
        assert_true(seats() <= MOST_SEATS);
    }
    assert_true(place_of(f[count - 1])->count > 1000);
    assert_int_equal(spare(), before);
    assert_true(had > 3 * seats()); /* the others have given theirs */
    int on_seats = spare() - thread_state.slot_count;
    assert_true(on_seats > 900);
    assert_true(seats_give_back(&thread_state)); /* as when there is no memory for slots */
    assert_int_equal(thread_state.slot_count, before);
    assert_int_equal(seats(), 0);
    while (count) cb_function_free(f[--count]);
}

static int many_small(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count;
    out[0] = cb_add(cb_mul(cb_exp(x[0]), 0.5), (double)*(int *)user);
    return 1;
}

/* Traces that take turns keep what they have: one of those with one place in the table. */
static void traces_that_take_turns(void **state) {
    (void)state;
    need_seats();
    enum { FUNCTIONS = 1 + (1 << SEATS_BITS) };
    static int number[FUNCTIONS];
    cb_function *f[FUNCTIONS];
    cb_tensor *x = ramp(3, 4), *y;
    seats_give_back(&thread_state);
    for (int i = 0; i < FUNCTIONS; i++) {
        number[i] = i;
        f[i] = cb_compile_n(many_small, &number[i], VM);
    }
    uint64_t had[1 << SEATS_BITS];
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < FUNCTIONS; i++) {
            cb_scope_open();
            assert_int_equal(cb_call_n(f[i], &x, 1, &y, 1), 1);
            cb_scope_close();
        }
        for (int i = 0; i < 1 << SEATS_BITS; i++) {
            if (round == 2) had[i] = thread_state.seats[i].trace;
            if (round > 2) assert_true(thread_state.seats[i].trace == had[i]);
        }
    }
    for (int i = 0; i < FUNCTIONS; i++) { /* but one that is called alone gets some */
        cb_scope_open();
        for (int round = 0; round < 20; round++) assert_int_equal(cb_call_n(f[i], &x, 1, &y, 1), 1);
        cb_scope_close();
    }
    bool changed = false;
    for (int i = 0; i < 1 << SEATS_BITS; i++) changed |= thread_state.seats[i].trace != had[i];
    assert_true(changed);
    for (int i = 0; i < FUNCTIONS; i++) cb_function_free(f[i]);
}

/* ---- residents ------------------------------------------------------------------------------- */

enum Way { RETURNS, KEEPS, GIVES_ON, FREES, NESTS, LEAVES_OPEN, ASKS, JUMPS, DEPARTS, WAYS };
static int way;
static bool frees; /* so that there is a seat for it the next time, when it is not */
static cb_tensor *kept;
static jmp_buf outside;

static cb_tensor *ends_somehow(cb_tensor *x) {
    cb_tensor *y = cb_mul(cb_add(x, 1.0), 0.5), *z = cb_exp(y);
    if (way == NESTS || way == LEAVES_OPEN) cb_scope_open();
    cb_tensor *inner = cb_neg(cb_sin(z));
    if (way == GIVES_ON) cb_scope_add(inner);
    if (way == NESTS) {
        cb_tensor *gone = cb_neg(inner);
        cb_keep(inner), cb_scope_close(), cb_scope_add(inner);
        assert_true(cb_rank(gone) == -1);
        cb_clear_error();
    }
    if (way == KEEPS) kept = cb_keep(z);
    if (way == FREES || (way == ASKS && (frees = !frees))) cb_free(z);
    if (way == ASKS && cb_item(cb_sum(inner)) > 1e9) return NULL;
    if (way == JUMPS) longjmp(outside, 1);
    return cb_sub(cb_abs(cb_mul(cb_add(way == DEPARTS ? cb_cos(inner) : inner, y), 2.0)), 1.0);
}

static void call_once(cb_function *f, cb_tensor *x) {
    cb_scope_open();
    if (!setjmp(outside)) {
        cb_tensor *y = cb_call(f, x);
        if (way != DEPARTS) way = RETURNS;
        expect_equal(y, ends_somehow(x));
        cb_free(kept);
        kept = NULL;
    } else {
        cb_free(cb_t(x)); /* the first call behind the jump says so */
        assert_int_equal(cb_error_status(), CB_ERR_ARGUMENT);
        cb_clear_error();
    }
    cb_scope_close();
}

/* Whatever becomes of them, those that die leave their slots where others find them, and those that
 * live are tensors. */
static void residents_end_in_many_ways(void **state) {
    (void)state;
    cb_function *f[WAYS]; /* which go each its own way from the first op on */
    for (int i = 0; i < WAYS; i++) f[i] = cb_compile(ends_somehow, VM);
    cb_tensor *x = cb_zeros(cb_dims(3, 4));
    int before = 0;
    int64_t live = cb_memory().live_tensors;
    for (int round = 0; round < 8 * WAYS; round++) {
        int asked = round * 7 / 4 % WAYS;
        seats_give_back(&thread_state); /* nobody's are in the way */
        for (int call = 0; call < 5; call++) {
            bool two = asked == DEPARTS || asked == JUMPS; /* ways of one function, in turn */
            way = two && call % 2 == 0 ? RETURNS : asked;
            call_once(f[asked], x);
            assert_true(cb_memory().live_tensors == live);
        }
        if (round < 2 * WAYS) before = spare();
        assert_true(POISONS || spare() == before);
    }
    for (int i = 0; i < WAYS; i++) cb_function_free(f[i]);
}

enum { MANY = 2 * MOST_SURVIVORS };
static cb_tensor *outlives[MANY];
static int outlive;

static cb_tensor *keeps_some(cb_tensor *x) {
    for (int i = 0; i < MANY; i++) {
        x = cb_mul(cb_add(x, 1.0), 0.5);
        if (i < outlive) outlives[i] = cb_keep(x);
    }
    return x;
}

/* As many as are noted, and more: those that live are computed, and the seats that they came from
 * are theirs no more. They live in every second call, so that there are seats for them. */
static void many_live_on(void **state) {
    (void)state;
    cb_tensor *x = ramp(3, 4), *first = cb_mul(cb_add(x, 1.0), 0.5);
    for (int some = MOST_SURVIVORS - 2; some < MOST_SURVIVORS + 3; some++) {
        cb_function *f = cb_compile(keeps_some, VM);
        seats_give_back(&thread_state); /* nobody's are in the way */
        int before = 0;
        for (int round = 0; round < 10; round++) {
            outlive = round % 2 ? some : 0;
            int64_t live = cb_memory().live_tensors;
            cb_scope_open();
            assert_non_null(cb_call(f, x));
            assert_true(cb_memory().live_tensors == live + outlive + 1);
            for (int i = 0; i < outlive; i++) {
                if (i == 0) expect_equal(outlives[0], first);
                cb_free(outlives[i]);
            }
            cb_scope_close();
            if (round == 5) before = spare();
            assert_true(round < 6 || POISONS || spare() == before);
        }
        cb_function_free(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_slot_comes_back),
        cmocka_unit_test(shells_are_gone),
        cmocka_unit_test(calls_inside_of_calls),
        cmocka_unit_test(calls_that_leave_the_trace),
        cmocka_unit_test(views_of_other_places),
        cmocka_unit_test(seats_are_limited),
        cmocka_unit_test(traces_that_take_turns),
        cmocka_unit_test(seats_have_one_call),
        cmocka_unit_test(rooms_are_kept),
        cmocka_unit_test(found_tensors_change),
        cmocka_unit_test(found_tensors_are_returned),
        cmocka_unit_test(what_is_freed_is_no_operand),
        cmocka_unit_test(residents_end_in_many_ways),
        cmocka_unit_test(many_live_on),
        cmocka_unit_test(doubles_hold_for_a_call),
        cmocka_unit_test(doubles_lie_as_they_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
