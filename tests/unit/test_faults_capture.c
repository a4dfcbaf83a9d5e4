/* Memory that runs out while a function is recorded, repeated, compiled, checked and launched: at
 * every place of each (faults.h). */
#include "faults.h"

/* ---- a function of everything that a recording holds ------------------------------------------ */

enum { INPUTS = 24, OUTSIDE = 12, KEPT = 16, STEPS = 44 };

static cb_tensor *outside[OUTSIDE], *kept[KEPT];
static int shift;      /* moves what happens to other places of the arenas */
static bool departs;   /* the last op is another one */
static bool in_window; /* faults are for what it does */

/* A write, a view, an op on a tensor from outside, and one on inputs, in turn. */
static cb_tensor *do_step(cb_tensor *y, cb_tensor *const *x, int step) {
    cb_tensor *row = cb_select(y, 0, step % 2), *other = outside[step % OUTSIDE];
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
    for (int i = 0; i < shift; i++) cb_neg(x[i]);
    cb_tensor *y = cb_add(x[0], 1.0);
    for (int i = 0; i < STEPS && y; i++) y = do_step(y, x, i);
    for (int i = 0; i < KEPT; i++) {
        kept[i] = cb_add(y, (double)i);
        if (kept[i]) cb_keep(kept[i]);
        out[i] = cb_mul(y, (double)i);
    }
    out[KEPT] = departs ? cb_exp(y) : cb_abs(y);
    out[KEPT + 1] = outside[OUTSIDE - 1];
    if (in_window && departs) end_faults();
    return KEPT + 2;
}

static void call_everything(cb_function *fast, cb_tensor *const *x) {
    cb_tensor *out[KEPT + 2];
    memset(kept, 0, sizeof kept);
    int count = cb_call_n(fast, x, INPUTS, out, KEPT + 2);
    for (int i = 0; i < count; i++) take(out[i]);
    for (int i = 0; i < KEPT; i++) {
        take(count < 0 ? NULL : kept[i]);
        cb_free(kept[i]);
    }
}

static bool make_inputs(cb_tensor **x) {
    bool made = true;
    for (int i = 0; i < INPUTS; i++) made &= (x[i] = ramp(2, 3)) != NULL;
    for (int i = 0; i < OUTSIDE; i++) made &= (outside[i] = cb_mul(ramp(2, 3), (double)i)) != NULL;
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

static void recorded(void) { call_twice("backend=vm"); }

static void recorded_and_checked(void) {
    cb_set_option("check", "1");
    call_twice("backend=vm");
    cb_set_option("check", "0");
}

/* The second call is another one from its last op on, so all before it is recorded again. */
static void departing(void) {
    cb_tensor *x[INPUTS];
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

int main(void) {
    cb_set_allocator((cb_allocator){faulty, NULL});
    const struct CMUnitTest tests[] = {
        SCENARIO(recorded),
        SCENARIO(recorded_and_checked),
        SCENARIO(departing),
        FEW_TENSORS(recorded),
        FEW_TENSORS(recorded_and_checked),
        FEW_TENSORS(departing),
        cmocka_unit_test(at_all_places_of_the_arenas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
