/* Packed weights and folded constants: one for all entries that read it, until the weight changes.
 * Derived values by themselves, then through compiled networks. */
#include "children.h"
#include "elements.h"
#include "failing_once.h"

#include "capture/function.h"
#include "run/derived.h"
#include "run/executable.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- values --------------------------------------------------------------------------------- */

static atomic_int made, dropped;
static atomic_bool waits;
static sem_t begun, goes_on;

/* The user itself; NULL: memory runs out. */
static void *make(void *user) {
    atomic_fetch_add(&made, 1);
    if (waits) {
        sem_post(&begun);
        sem_wait(&goes_on);
    }
    return user;
}

static void drop(void *value) {
    (void)value;
    atomic_fetch_add(&dropped, 1);
}

static const DerivedWay way = {make, drop};
static const DerivedKey key_a = {"a", 1}, key_b = {"bb", 2};
static int value_a = 1, value_b = 2;

static void reset(void) { made = dropped = 0; }

static void one_for_equal_keys(void **state) {
    (void)state;
    reset();
    Derived *first = derived_take(&key_a, &way, &value_a);
    Derived *second = derived_take(&key_a, &way, &value_b);
    Derived *other = derived_take(&key_b, &way, &value_b);
    assert_ptr_equal(first, second);
    assert_ptr_equal(derived_value(first), &value_a);
    assert_ptr_equal(derived_value(other), &value_b);
    assert_int_equal(derived_users(first), 2);
    assert_int_equal(made, 2);
    derived_give(first);
    derived_give(NULL);
    assert_int_equal(dropped, 0);
    derived_give(second);
    derived_give(other);
    assert_int_equal(dropped, 2);
    Derived *again = derived_take(&key_a, &way, &value_b);
    assert_ptr_equal(derived_value(again), &value_b);
    derived_give(again);
}

static void what_cannot_be_made_is_not_there(void **state) {
    (void)state;
    reset();
    assert_null(derived_take(&key_a, &way, NULL));
    Derived *derived = derived_take(&key_a, &way, &value_a);
    assert_non_null(derived);
    countdown = 0;
    assert_null(derived_take(&key_b, &way, &value_b));
    countdown = -1;
    assert_non_null(cb_error());
    cb_clear_error();
    derived_give(derived);
    assert_int_equal(dropped, 1);
}

static void *take_a(void *user) { return derived_take(&key_a, &way, user); }

/* The first one makes it, slowly, and all others wait; when it fails, the next one makes it. */
static void threads_make_it_once(void **state) {
    (void)state;
    enum { THREADS = 8 };
    pthread_t thread[THREADS];
    void *taken[THREADS];
    for (int fails = 0; fails < 2; fails++) {
        reset();
        waits = true;
        pthread_create(&thread[0], NULL, take_a, fails ? NULL : &value_a);
        sem_wait(&begun);
        waits = false;
        for (int i = 1; i < THREADS; i++) pthread_create(&thread[i], NULL, take_a, &value_a);
        usleep(20000); /* most of them wait by now */
        assert_int_equal(made, 1);
        sem_post(&goes_on);
        for (int i = 0; i < THREADS; i++) pthread_join(thread[i], &taken[i]);
        assert_int_equal(made, 1 + fails);
        assert_int_equal(taken[0] == NULL, fails);
        assert_int_equal(derived_users(taken[1]), THREADS - fails);
        for (int i = 0; i < THREADS; i++) derived_give(taken[i]);
        assert_int_equal(dropped, 1);
    }
}

/* What a thread of the parent was making is nobody's to the child, which makes it. */
static void a_child_makes_it_anew(void **state) {
    (void)state;
    if (SANITIZED) skip_because("the child of a program of threads");
    pthread_t thread;
    void *taken;
    int status = 1;
    reset();
    waits = true;
    pthread_create(&thread, NULL, take_a, &value_a);
    sem_wait(&begun);
    waits = false;
    pid_t child = fork();
    if (child == 0) {
        Derived *first = derived_take(&key_a, &way, &value_b);
        Derived *second = derived_take(&key_a, &way, &value_a);
        bool right = first == second && derived_value(first) == &value_b;
        right &= derived_users(first) == 2;
        derived_give(first);
        derived_give(second);
        leave_child(right && dropped == 1 ? 0 : 1);
    }
    bool ended = ends(child, &status);
    sem_post(&goes_on);
    pthread_join(thread, &taken);
    derived_give(taken);
    assert_true(ended && status == 0);
}

/* ---- networks ------------------------------------------------------------------------------- */

enum { WIDE = 512, WEIGHT_BYTES = WIDE * WIDE * 4, ROWS = 8, MANY = 100 };

static sem_t inside, outside;
static _Thread_local bool pauses; /* after the last op, before they run */

/* Products of a weight as it is and of one that is folded; both lie as panels want them. Of many
 * rows, one more constant. */
static cb_tensor *forward(cb_module *self, cb_tensor *const *inputs, int count) {
    (void)count;
    cb_tensor *x = cb_matmul(inputs[0], cb_module_get(self, "plain"));
    x = cb_relu(cb_matmul(x, cb_mul(cb_module_get(self, "scaled"), 0.5)));
    x = cb_add(x, cb_square(cb_module_get(self, "shift")));
    if (cb_size(inputs[0], 0) == MANY) x = cb_add(x, cb_exp(cb_module_get(self, "shift")));
    if (!pauses) return x;
    sem_post(&inside);
    sem_wait(&outside);
    return x;
}

static cb_module *network(void) {
    cb_manual_seed(5);
    cb_module *module = cb_module_new("Net", forward, NULL);
    cb_scope_open();
    cb_module_parameter(module, "plain", cb_mul(cb_randn(cb_dims(WIDE, WIDE)), 0.06));
    cb_module_parameter(module, "scaled", cb_mul(cb_randn(cb_dims(WIDE, WIDE)), 0.06));
    cb_module_parameter(module, "shift", cb_randn(cb_dims(WIDE)));
    cb_scope_close();
    cb_module_train(module, false);
    return module;
}

static void expect_forward(cb_function *fast, cb_module *module, int rows) {
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(rows, WIDE));
    expect_tensor(cb_call(fast, x), cb_forward(module, x), 1e-4, 1e-4);
    cb_scope_close();
}

static int64_t live(void) { return cb_memory().live_bytes; }

/* The two packed weights, and little else. */
static void expect_held(int64_t bytes, int copies) {
    int64_t least = copies * 2 * (int64_t)WEIGHT_BYTES;
    if (bytes < least || bytes > least + WEIGHT_BYTES / 2)
        FAIL("%lld bytes held, not %lld", (long long)bytes, (long long)least);
}

static bool explains(cb_function *fast, const char *words) {
    char *text = cb_explain(fast);
    bool found = strstr(text, words) != NULL;
    cb_free_text(text);
    return found;
}

static void entries_share(void **state) {
    (void)state;
    cb_module *module = network();
    int64_t before = live();
    cb_function *fast = cb_compile(module, "backend=vm"), *other;
    expect_forward(fast, module, ROWS);
    expect_held(live() - before, 1);
    assert_true(explains(fast, "  packed weights: 2097.2 KB\n"));
    for (int i = 1; i < 4; i++) expect_forward(fast, module, ROWS + i);
    assert_int_equal(cb_stats(fast).graphs, 4);
    expect_held(live() - before, 1);
    assert_true(explains(fast, "  packed weights: 2097.2 KB, shared by 4 entries\n"));
    other = cb_compile(module, "backend=vm, fullgraph=1");
    expect_forward(other, module, ROWS);
    expect_held(live() - before, 1);
    cb_function_free(fast);
    expect_forward(other, module, ROWS);
    expect_held(live() - before, 1);
    assert_true(explains(other, "  packed weights: 2097.2 KB\n"));
    cb_function_free(other);
    assert_int_equal(live(), before);
    cb_module_free(module);
}

/* Constants are computed together. One that another entry has packed is computed once more, for the
 * sake of those that no entry has, and goes. */
static void what_is_computed_for_nobody_goes(void **state) {
    (void)state;
    cb_module *module = network();
    int64_t before = live();
    cb_function *fast = cb_compile(module, "backend=vm");
    expect_forward(fast, module, ROWS);
    expect_forward(fast, module, MANY);
    expect_held(live() - before, 1);
    assert_int_equal(cb_stats(fast).graphs, 2);
    cb_function_free(fast);
    assert_int_equal(live(), before);
    cb_module_free(module);
}

/* One that is written to is packed anew, and what was packed before goes; the other one stays. */
static void changes(void **state) {
    (void)state;
    cb_module *module = network();
    int64_t before = live();
    cb_function *fast = cb_compile(module, "backend=vm");
    for (int i = 0; i < 2; i++) expect_forward(fast, module, ROWS + i);
    cb_scope_open();
    cb_tensor *noise = cb_randn(cb_dims(WIDE, WIDE));
    cb_assign(cb_module_get(module, "scaled"), cb_mul(noise, 0.1));
    cb_scope_close();
    for (int i = 0; i < 2; i++) expect_forward(fast, module, ROWS + i);
    expect_held(live() - before, 1);
    assert_true(explains(fast, "2097.2 KB, shared by 2 entries"));
    ((float *)cb_data(cb_module_get(module, "plain")))[5] = 3;
    cb_changed(cb_module_get(module, "plain"));
    for (int i = 0; i < 2; i++) expect_forward(fast, module, ROWS + i);
    expect_held(live() - before, 1);
    assert_int_equal(cb_stats(fast).graphs, 6);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    assert_int_equal(live(), before);
    cb_module_free(module);
}

typedef struct OtherCall {
    cb_function *fast;
    cb_module *module;
    int rows;
    bool pauses;
} OtherCall;

static void *call_it(void *user) {
    const OtherCall *caller = user;
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(caller->rows, WIDE));
    pauses = caller->pauses;
    cb_tensor *y = cb_call(caller->fast, x);
    pauses = false;
    expect_tensor(y, cb_forward(caller->module, x), 1e-4, 1e-4);
    cb_scope_close();
    return NULL;
}

/* A call that replays an entry whose weights another thread replaces before it runs goes op by
 * op. */
static void a_call_in_progress(void **state) {
    (void)state;
    cb_module *module = network();
    int64_t before = live();
    OtherCall caller = {cb_compile(module, "backend=vm"), module, ROWS, true};
    pthread_t thread;
    expect_forward(caller.fast, module, ROWS);
    pthread_create(&thread, NULL, call_it, &caller);
    sem_wait(&inside);
    cb_fill_(cb_module_get(module, "plain"), 0.01);
    expect_forward(caller.fast, module, ROWS);
    expect_held(live() - before, 1);
    sem_post(&outside);
    pthread_join(thread, NULL);
    assert_int_equal(cb_stats(caller.fast).eager_calls, 1);
    cb_function_free(caller.fast);
    cb_module_free(module);
}

/* While somebody runs the old one, its weights stay; the next change takes them along. */
static void a_run_in_progress(void **state) {
    (void)state;
    cb_module *module = network();
    int64_t before = live();
    cb_function *fast = cb_compile(module, "backend=vm");
    expect_forward(fast, module, ROWS);
    const Executable *executable = atomic_load(&fast->first)->executable;
    assert_true(executable_enter(executable));
    cb_fill_(cb_module_get(module, "plain"), 0.01);
    cb_fill_(cb_module_get(module, "scaled"), 0.01);
    expect_forward(fast, module, ROWS);
    expect_held(live() - before, 2);
    assert_false(executable_enter(executable));
    executable_leave(executable);
    cb_fill_(cb_module_get(module, "shift"), 0.01);
    expect_forward(fast, module, ROWS);
    expect_held(live() - before, 1);
    cb_function_free(fast);
    cb_module_free(module);
}

static void threads_pack_once(void **state) {
    (void)state;
    enum { THREADS = 4 };
    cb_module *module = network();
    int64_t before = live();
    pthread_t thread[THREADS];
    OtherCall caller[THREADS];
    for (int i = 0; i < THREADS; i++) {
        caller[i] = (OtherCall){cb_compile(module, "backend=vm"), module, ROWS + i, false};
        pthread_create(&thread[i], NULL, call_it, &caller[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    expect_held(live() - before, 1);
    assert_true(explains(caller[0].fast, "2097.2 KB, shared by 4 entries"));
    for (int i = 0; i < THREADS; i++) cb_function_free(caller[i].fast);
    assert_int_equal(live(), before);
    cb_module_free(module);
}

/* Entries that find some of it made, and some not. */
static void every_allocation_may_fail(void **state) {
    (void)state;
    cb_module *module = network();
    cb_function *first = cb_compile(module, "backend=vm");
    expect_forward(first, module, ROWS);
    cb_fill_(cb_module_get(module, "scaled"), 0.01);
    for (int64_t n = 0, done = 0; !done; n++) {
        cb_scope_open();
        cb_tensor *x = cb_randn(cb_dims(ROWS + 1, WIDE)), *expected = cb_forward(module, x);
        cb_function *fast = cb_compile(module, "backend=vm");
        countdown = n;
        cb_tensor *y = cb_call(fast, x);
        done = countdown >= 0;
        countdown = -1;
        assert_true(y || cb_error());
        cb_clear_error();
        if (y) expect_tensor(y, expected, 1e-4, 1e-4);
        cb_function_free(fast);
        cb_scope_close();
    }
    cb_function_free(first);
    cb_module_free(module);
}

int main(void) {
    cb_set_allocator((cb_allocator){fail_once, NULL});
    cb_set_option("provider", "own");
    for (int i = 0; i < 4; i++) sem_init((sem_t *[]){&begun, &goes_on, &inside, &outside}[i], 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_for_equal_keys),
        cmocka_unit_test(what_cannot_be_made_is_not_there),
        cmocka_unit_test(threads_make_it_once),
        cmocka_unit_test(a_child_makes_it_anew),
        cmocka_unit_test(entries_share),
        cmocka_unit_test(changes),
        cmocka_unit_test(a_call_in_progress),
        cmocka_unit_test(a_run_in_progress),
        cmocka_unit_test(what_is_computed_for_nobody_goes),
        cmocka_unit_test(threads_pack_once),
        cmocka_unit_test(every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
