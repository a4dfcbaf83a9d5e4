/* Memory that runs out while a function is recorded, repeated, compiled, checked and launched: at
 * every place of each (faults.h). */
#include "backends.h"
#include "faults.h"

/* ---- a function of everything that a recording holds ----------------------------------------- */

enum { INPUTS = 24, MOST_OUTSIDE = 140, MOST_KEPT = 140, RETURNED = 16 };

static cb_tensor *outside[MOST_OUTSIDE], *kept[MOST_KEPT];
static int outside_count, kept_count, steps;
static int shift;      /* moves what happens to other places of the arenas */
static bool departs;   /* the last op is another one */
static bool in_window; /* faults are for what it does */

/* A write, a view, an op on a tensor from outside, and one on inputs, in turn. */
static cb_tensor *do_step(cb_tensor *y, cb_tensor *const *x, int step) {
    cb_tensor *row = cb_select(y, 0, step % 2), *other = outside[step % outside_count];
    switch ((step + shift) % 4) {
    case 0:
        cb_assign(row, cb_select(other, 0, 1));
        return y;
    case 1:
        cb_mul_(row, 0.5);
        return y;
    case 2:
        return cb_add(y, other);
    default:
        return cb_sub(y, cb_mul(x[step % INPUTS], 0.25));
    }
}

static int everything(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    if (in_window) begin_faults();
    for (int i = 0; i < shift; i++) cb_neg(x[i % INPUTS]);
    cb_tensor *y = cb_add(x[0], 1.0);
    cb_mul_(x[1], 1.0);
    cb_mul_(outside[1], 1.0);
    for (int i = 0; i < steps && y; i++) y = do_step(y, x, i);
    for (int i = steps; i < outside_count && y; i++) y = cb_add(y, outside[i]);
    for (int i = 0; i < kept_count; i++) {
        kept[i] = cb_add(y, (double)i);
        if (kept[i]) cb_keep(kept[i]);
    }
    for (int i = 0; i < RETURNED; i++) out[i] = cb_mul(y, (double)i);
    out[RETURNED] = departs ? cb_exp(y) : cb_abs(y);
    out[RETURNED + 1] = outside[outside_count - 1];
    if (in_window && departs) end_faults();
    return RETURNED + 2;
}

static void call_everything(cb_function *fast, cb_tensor *const *x) {
    cb_tensor *out[RETURNED + 2];
    memset(kept, 0, sizeof kept);
    int count = cb_call_n(fast, x, INPUTS, out, RETURNED + 2);
    for (int i = 0; i < count; i++) take(out[i]);
    for (int i = 0; i < kept_count; i++) {
        take(count < 0 ? NULL : kept[i]);
        cb_free(kept[i]);
    }
}

static bool make_inputs(cb_tensor **x) {
    cb_tensor *all = ramp(2, 3);
    bool made = all != NULL;
    for (int i = 0; i < INPUTS && made; i++) made = (x[i] = cb_view(all, cb_dims(2, 3))) != NULL;
    x[1] = made ? cb_full(cb_dims(2, 3), 0.5) : NULL; /* which is written to */
    made = made && x[1];
    for (int i = 0; i < outside_count && made; i++)
        made = (outside[i] = cb_full(cb_dims(2, 3), 0.125 * i)) != NULL;
    return made;
}

static void call_twice(const char *options) {
    cb_tensor *x[INPUTS];
    cb_function *fast = make_inputs(x) ? cb_compile_n(everything, NULL, options) : NULL;
    departs = in_window = false;
    for (int i = 0; i < 2 && fast; i++) call_everything(fast, x);
    if (fast) free_text(cb_explain(fast));
    cb_function_free(fast);
}

static void set_sizes(int from_outside, int to_keep, int of_steps) {
    outside_count = from_outside, kept_count = to_keep, steps = of_steps;
}

static void recorded(void) {
    set_sizes(12, 16, 44);
    call_twice("backend=vm");
}

/* More values, captured tensors and results than a call has room for. */
static void wide(void) {
    set_sizes(MOST_OUTSIDE, MOST_KEPT, 20);
    call_twice("backend=vm");
}

/* The second call does what the first has recorded: memory for it alone fails. */
static void repeated(void) {
    cb_tensor *x[INPUTS];
    set_sizes(MOST_OUTSIDE, MOST_KEPT, 20);
    departs = false;
    cb_function *fast = make_inputs(x) ? cb_compile_n(everything, NULL, "backend=vm") : NULL;
    for (int i = 0; i < 2 && fast; i++) {
        in_window = i == 1;
        call_everything(fast, x);
    }
    end_faults();
    cb_function_free(fast);
}

static void fullgraph(void) {
    set_sizes(MOST_OUTSIDE, 0, 44);
    call_twice("backend=vm,fullgraph=1");
}

static void small_fullgraph(void) {
    set_sizes(6, 0, 20);
    call_twice("backend=vm,fullgraph=1");
}

static void checked(void) {
    set_sizes(12, 16, 44);
    cb_set_option("check", "1");
    call_twice("backend=vm");
    cb_set_option("check", "0");
}

/* The second call is another one from its last op on, so all before it is recorded again. */
static void departing(void) {
    cb_tensor *x[INPUTS];
    set_sizes(12, 16, 44);
    cb_function *fast = make_inputs(x) ? cb_compile_n(everything, NULL, "backend=vm") : NULL;
    for (int i = 0; i < 2 && fast; i++) {
        departs = in_window = i == 1;
        call_everything(fast, x);
    }
    cb_function_free(fast);
}

static void at_all_places_of_the_arenas(void **state) {
    (void)state;
    for (shift = 0; shift < 8; shift++) fail_each_allocation(departing);
    shift = 0;
}

/* ---- others --------------------------------------------------------------------------------- */

static bool freed;

static int frees_inputs(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    out[0] = cb_add(x[0], x[1]);
    cb_free(x[0]);
    freed = true;
    return 1;
}

/* Both inputs are the one tensor that the function frees. */
static void input_freed_by_the_function(void) {
    cb_function *fast = cb_compile_n(frees_inputs, NULL, "backend=vm");
    for (int i = 0; i < 2 && fast; i++) {
        cb_tensor *x = cb_keep(ramp(2, 3)), *inputs[] = {x, x}, *out;
        freed = false;
        if (x && cb_call_n(fast, inputs, 2, &out, 1) == 1) take(out);
        if (!freed) cb_free(x);
    }
    cb_function_free(fast);
}

static cb_function *inner;

static cb_tensor *calls_another(cb_tensor *x) {
    return cb_mul(cb_call(inner, cb_add(x, 1.0)), 2.0);
}
static cb_tensor *squares(cb_tensor *x) { return cb_mul(x, x); }

static void one_within_another(void) {
    cb_tensor *x = ramp(2, 3);
    inner = cb_compile(squares, "backend=vm");
    cb_function *fast = inner ? cb_compile(calls_another, "backend=vm") : NULL;
    for (int i = 0; i < 2 && fast && x; i++) take(cb_call(fast, x));
    cb_function_free(fast);
    cb_function_free(inner);
}

/* Results that are the input, a view of it, copies of it, one tensor twice, a part of another. */
static int shares(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_tensor *y = cb_mul(x[0], 2.0);
    cb_tensor *const results[] = {x[0], cb_t(x[0]), cb_clone(x[0]), cb_clone(x[0]),
                                  y,    y,          cb_t(y),        cb_select(cb_exp(y), 0, 1)};
    memcpy(out, results, sizeof results);
    return 8;
}

static void call_sharing(const char *options) {
    cb_tensor *x = ramp(2, 3), *out[8];
    cb_function *fast = x ? cb_compile_n(shares, NULL, options) : NULL;
    for (int i = 0; i < 2 && fast; i++) {
        int made = cb_call_n(fast, &x, 1, out, 8);
        for (int k = 0; k < made; k++) take(out[k]);
    }
    cb_function_free(fast);
}

/* More tensors are held by what was compiled than the function had at a time. */
static cb_tensor *sums_outside(cb_tensor *x) {
    cb_tensor *y = cb_add(x, 1.0);
    for (int i = 0; i < 12; i++) {
        cb_tensor *sum = cb_add(y, outside[i]);
        cb_free(y);
        y = sum;
    }
    return y;
}

static void held(void) {
    cb_tensor *x[INPUTS];
    set_sizes(12, 0, 0);
    bool made = make_inputs(x);
    cb_function *fast = made ? cb_compile(sums_outside, "backend=vm,fullgraph=1") : NULL;
    for (int i = 0; i < 2 && fast; i++) take(cb_call(fast, x[0]));
    cb_function_free(fast);
}

static cb_tensor *joins(cb_tensor *x) {
    cb_tensor *list[] = {x, cb_exp(x), cb_neg(x), cb_abs(x), x};
    cb_tensor *y = cb_cat(list, 5, 0), *z = cb_stack(list, 5, 1);
    return cb_add(cb_sum(y), cb_sum(z));
}

static void joined(void) {
    cb_tensor *x = ramp(2, 3);
    cb_function *fast = x ? cb_compile(joins, "backend=vm") : NULL;
    for (int i = 0; i < 2 && fast; i++) take(cb_call(fast, x));
    cb_function_free(fast);
}

/* Values in the middle: what crosses, waits, is used after all, and is written to. */
static bool uses_more;

static cb_tensor *asks_and_goes_on(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0), *z = cb_exp(y), *row = cb_select(y, 0, 0);
    double least = cb_item(cb_amin(y));
    if (!(least < 1e3)) return NULL;
    cb_mul_(x, 0.5);
    for (int i = 0; i < 4; i++) {
        cb_tensor *next = cb_add(y, 0.25);
        if (!(cb_item(cb_amax(next)) < 1e3)) return NULL;
        y = next;
    }
    float *p = cb_data(x);
    if (!p) return NULL;
    cb_add_(row, 1.0);
    cb_tensor *at_once = cb_mul_(x, 1.0);
    if (!at_once) return NULL;
    p[0] += 1;
    return uses_more ? cb_add(cb_add(y, z), row) : cb_mul(y, x);
}

static void asked(void) {
    cb_function *fast = cb_compile(asks_and_goes_on, "backend=vm");
    for (int i = 0; i < 4 && fast; i++) {
        uses_more = i > 1;
        cb_tensor *x = ramp(2, 3);
        if (x) take(cb_call(fast, x));
        take(x);
    }
    cb_function_free(fast);
}

/* Numbers that become arguments: more than there is room for at first, before an event and in a
 * loop behind it. */
static double rate;

static cb_tensor *with_numbers(cb_tensor *x) {
    cb_tensor *y = x;
    for (int i = 0; i < 20; i++) y = cb_mul(y, rate + i);
    for (int i = 0; i < 4; i++) {
        double size = cb_item(cb_amax(y));
        cb_tensor *next = cb_mul(cb_add(y, size), rate);
        if (!next) return NULL;
        y = next;
    }
    return y;
}

static void numbers(void) {
    cb_function *fast = cb_compile(with_numbers, "backend=vm");
    for (int i = 0; i < 3 && fast; i++) {
        rate = 0.5 + i;
        cb_tensor *x = ramp(2, 3);
        if (x) take(cb_call(fast, x));
        take(x);
    }
    cb_function_free(fast);
}

/* Rows that are written at another place in every call, more than one graph has: the view before
 * the cut is made again behind it. */
static int64_t place;

static cb_tensor *writes_many(cb_tensor *x) {
    for (int i = 0; i < 10; i++)
        if (!cb_add_(cb_select(x, 0, (place + i) % 4), 1.0)) return NULL;
    return cb_mul(x, 2.0);
}

static void written_slots(void) {
    cb_function *fast = cb_compile(writes_many, "backend=vm");
    for (int i = 0; i < 4 && fast; i++) {
        place = i;
        cb_tensor *x = ramp(4, 3);
        if (x) take(cb_call(fast, x));
    }
    cb_function_free(fast);
}

/* Steps that write to inputs as they go, and others behind them. */
static int writes_and_goes_on(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)count, (void)user;
    cb_add_(x[0], 1.0);
    cb_mul_(x[1], cb_sum(x[0], 0));
    out[0] = cb_matmul(cb_cumsum(x[1], 1), x[0]);
    return out[0] ? 1 : -1;
}

/* Every launch asks for memory of the host. It is waited for: one allocation after the other. */
static void call_on_a_device(const char *options) {
    cb_set_option("device", "guarded");
    cb_set_option("blocking", "1");
    cb_tensor *x[] = {ramp(8, 8), ramp(8, 8)}, *out;
    cb_function *fast = x[0] && x[1] ? cb_compile_n(writes_and_goes_on, NULL, options) : NULL;
    for (int i = 0; i < 2 && fast; i++) {
        if (cb_call_n(fast, x, 2, &out, 1) != 1) break;
        take(out), take(x[0]), take(x[1]);
    }
    cb_function_free(fast);
}
static void on_a_device(void) { call_on_a_device("backend=vm"); }
static void on_a_device_at_once(void) { call_on_a_device("backend=vm,fullgraph=1"); }

/* Backends of the user's: the graph for them, their code, its outputs. */
static void op_by_op(void) {
    set_sizes(12, 16, 44);
    call_twice("backend=eager");
}
static void handed_on(void) {
    set_sizes(12, 16, 44);
    call_twice("backend=inner");
}
static void handed_on_whole(void) {
    set_sizes(6, 0, 20);
    call_twice("backend=inner,fullgraph=1");
}
static void handed_on_on_a_device(void) { call_on_a_device("backend=inner"); }

static void shared_results(void) { call_sharing("backend=vm"); }
static void shared_results_of_one_graph(void) { call_sharing("backend=vm,fullgraph=1"); }

static cb_tensor *scaled_row_sums(cb_tensor *x) { return cb_sum(cb_mul(x, 0.5), 1); }

/* A call that lacks memory to compile goes another way: what it gives has no error beside it. */
static void results_have_no_error(void **state) {
    (void)state;
    int given = 0;
    after_it = false;
    for (int64_t n = 0, left = -1; left < 0; n++) {
        cb_cleanup();
        cb_scope_open();
        cb_tensor *x = ramp(2, 3);
        cb_function *fast = cb_compile(scaled_row_sums, "backend=vm");
        countdown = n;
        cb_tensor *y = cb_call(fast, x);
        left = countdown;
        countdown = -1;
        assert_true((y == NULL) == (cb_error() != NULL));
        given += y != NULL;
        cb_clear_error();
        cb_function_free(fast);
        cb_scope_close();
    }
    assert_true(given > 1);
}

int main(void) {
    cb_set_allocator((cb_allocator){faulty, NULL});
    register_test_backends();
    const struct CMUnitTest tests[] = {
        SCENARIO(recorded),
        SCENARIO(wide),
        SCENARIO(repeated),
        SCENARIO(fullgraph),
        SCENARIO(checked),
        SCENARIO(departing),
        SCENARIO(input_freed_by_the_function),
        SCENARIO(one_within_another),
        SCENARIO(asked),
        SCENARIO(numbers),
        SCENARIO(written_slots),
        cmocka_unit_test(results_have_no_error),
        SCENARIO(on_a_device),
        SCENARIO(on_a_device_at_once),
        SCENARIO(op_by_op),
        SCENARIO(handed_on),
        SCENARIO(handed_on_whole),
        SCENARIO(handed_on_on_a_device),
        SCENARIO(shared_results),
        SCENARIO(shared_results_of_one_graph),
        FEW_TENSORS(recorded),
        FEW_TENSORS(small_fullgraph),
        FEW_TENSORS(checked),
        FEW_TENSORS(departing),
        FEW_TENSORS(input_freed_by_the_function),
        FEW_TENSORS(one_within_another),
        FEW_TENSORS(joined),
        FEW_TENSORS(held),
        FEW_TENSORS(op_by_op),
        FEW_TENSORS(handed_on),
        FEW_TENSORS(shared_results),
        FEW_TENSORS(shared_results_of_one_graph),
        cmocka_unit_test(at_all_places_of_the_arenas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
