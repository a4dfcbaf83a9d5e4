/* The option async: calls do not wait for the compiler, which works in the background; then they
 * run what it made. Compilers that wait for a word, fail, hang; functions that are freed, programs
 * that fork, clean up or end meanwhile; allocations that fail on the worker's thread. */
#define _GNU_SOURCE
#include "adder.h"
#include "children.h"
#include "failing_once.h"
#include "poisoning.h"

#include "base/lock.h"
#include "carbide.h"

#include <pthread.h>
#include <stdatomic.h>

enum { OPS = 200, SIZE = 64 };

static cb_tensor *ops(cb_tensor *x) {
    for (int i = 0; i < OPS; i += 2) x = cb_tanh(cb_add(cb_mul(x, 1.01), 0.01 * i));
    return cb_add(x, cb_sum(x, cb_dims(1), true));
}

static cb_tensor *input(void) {
    return cb_sub(cb_div(cb_reshape(cb_to(cb_arange(0, SIZE * 3), CB_F32), cb_dims(3, SIZE)), 96),
                  1);
}

static bool agrees(cb_function *fast) {
    cb_scope_open();
    cb_tensor *x = input(), *y = cb_call(fast, x), *wanted = ops(x);
    bool same = y && cb_item(cb_amax(cb_abs(cb_sub(y, wanted)))) < 1e-4;
    cb_scope_close();
    return same;
}

static bool says(cb_function *fast, const char *words) {
    char *text = cb_explain(fast), *summary = cb_explain_summary(fast);
    bool found = strstr(text, words) || strstr(summary, words);
    cb_free_text(text);
    cb_free_text(summary);
    return found;
}

/* A compiler that notes its number and waits until let_compile. */
static void use_waiting_compiler(void) {
    char body[1500];
    cb_set_option("cache", "0");
    snprintf(body, sizeof body,
             "echo $$ >%s/note && mv %s/note %s/compiler\n"
             "while [ ! -e %s/go ]; do sleep 0.01; done\nexec cc \"$@\"",
             root, root, root, root);
    use_script("waits", body);
}

static void let_compile(void) {
    char path[400];
    path_in(path, "go");
    write_file(path, "", 0600);
}

/* The compiler that was started, once it was. */
static pid_t compiler_number(void) {
    char path[400];
    long number = 0;
    path_in(path, "compiler");
    for (FILE *file = NULL; !number; usleep(1000)) {
        if (!(file = fopen(path, "r"))) continue;
        assert_int_equal(fscanf(file, "%ld", &number), 1);
        fclose(file);
    }
    return (pid_t)number;
}

#define COMPILING "vector VM, while C is compiled in the background, since "
#define COMPILED "engine: C, compiled now"

static void test_calls_do_not_wait(void **state) {
    (void)state;
    use_waiting_compiler();
    cb_function *fast = cb_compile(ops, "async=1");
    for (int i = 0; i < 3; i++) assert_true(agrees(fast));
    assert_true(says(fast, COMPILING));
    assert_int_equal(cb_stats(fast).graphs, 1);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    let_compile();
    assert_int_equal(cb_function_wait(fast), CB_OK);
    assert_true(says(fast, COMPILED));
    assert_false(says(fast, COMPILING));
    assert_true(agrees(fast));
    assert_true(cb_stats(fast).compiler_ms > 0);
    assert_true(cb_stats(fast).compile_ms >= cb_stats(fast).compiler_ms);
    cb_function_free(fast);
    assert_int_equal(cb_function_wait(NULL), CB_ERR_ARGUMENT);
    assert_int_equal(cb_function_wait(fast), CB_ERR_ARGUMENT);
    cb_clear_error();
}

static void test_what_needs_no_compiler_is_done_at_once(void **state) {
    (void)state;
    use_waiting_compiler();
    cb_function *vm = cb_compile(ops, "async=1, backend=vm");
    assert_true(agrees(vm));
    assert_int_equal(cb_function_wait(vm), CB_OK);
    assert_false(says(vm, COMPILING));
    cb_function_free(vm);
}

static void test_failures_are_notes(void **state) {
    (void)state;
    cb_function *fast = cb_compile(ops, "async=1");
    cb_set_option("cache", "0");
    use_script("fails", "echo out of luck >&2; exit 3");
    assert_true(agrees(fast));
    cb_function_wait(fast);
    assert_true(says(fast, "the C compiler failed: fused kernels run on the vector VM"));
    assert_true(says(fast, "out of luck"));
    assert_true(says(fast, "engine: vector VM"));
    assert_true(agrees(fast));
    assert_null(cb_error());
    cb_function_free(fast);
}

static void test_the_disk_serves(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        cb_function *fast = cb_compile(ops, "async=1");
        assert_true(agrees(fast));
        cb_function_wait(fast);
        assert_true(says(fast, i ? "engine: C, from the disk cache" : COMPILED));
        assert_int_equal(cb_stats(fast).cache_hits > 0, i);
        assert_true(agrees(fast));
        cb_function_free(fast);
    }
}

static void test_freed_while_compiling(void **state) {
    (void)state;
    use_waiting_compiler();
    cb_function *runs = cb_compile(ops, "async=1"), *waits = cb_compile(ops, "async=1, fuse=0");
    assert_true(agrees(runs));
    assert_true(agrees(waits));
    pid_t compiler = compiler_number();
    cb_function_free(waits);
    cb_function_free(runs);
    assert_int_equal(kill(compiler, 0), -1);
}

static void test_cleanup_while_compiling(void **state) {
    (void)state;
    use_waiting_compiler();
    cb_function *fast = cb_compile(ops, "async=1"), *next = cb_compile(ops, "async=1");
    assert_true(agrees(fast));
    pid_t compiler = compiler_number();
    cb_cleanup();
    assert_int_equal(kill(compiler, 0), -1);
    assert_true(says(fast, "while it compiled in the background: the vector VM ran"));
    cb_set_option("cc", "cc");
    assert_true(agrees(fast));
    assert_true(agrees(next)); /* on a thread of its own again */
    cb_function_wait(next);
    assert_true(says(next, COMPILED) || says(next, "from the disk"));
    cb_function_free(fast);
    cb_function_free(next);
}

/* 0, or what went wrong. */
static int go_on_in_child(cb_function *fast) {
    if (!agrees(fast) || !says(fast, COMPILING)) return 1;
    let_compile();
    cb_function_wait(fast);
    if (!says(fast, COMPILED)) return 2;
    if (!agrees(fast)) return 3;
    cb_function_free(fast);
    cb_cleanup();
    return 0;
}

static void test_forked_while_compiling(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip_because("ThreadSanitizer lets no child of a process with threads start its own");
#endif
    int status;
    use_waiting_compiler();
    cb_set_threads(1); /* or OpenMP's do not come along, and the child is told so */
    cb_function *fast = cb_compile(ops, "async=1");
    assert_true(agrees(fast));
    compiler_number();
    pid_t child = fork();
    if (child == 0) leave_child(go_on_in_child(fast));
    assert_true(ends(child, &status));
    assert_int_equal(status, 0);
    cb_function_wait(fast);
    assert_true(agrees(fast));
    assert_true(says(fast, COMPILED));
    cb_function_free(fast);
    cb_set_threads(0);
}

static void test_a_child_that_calls_compiles(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip_because("ThreadSanitizer lets no child of a process with threads start its own");
#endif
    int status;
    use_waiting_compiler();
    cb_set_threads(1);
    cb_function *fast = cb_compile(ops, "async=1");
    assert_true(agrees(fast));
    compiler_number();
    pid_t child = fork();
    if (child == 0) {
        let_compile();
        while (!says(fast, COMPILED))
            if (!agrees(fast)) leave_child(1);
        leave_child(0);
    }
    assert_true(ends(child, &status));
    assert_int_equal(status, 0);
    cb_function_free(fast);
    cb_set_threads(0);
}

static void test_the_end_of_a_program_does_not_wait(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip_because("ThreadSanitizer lets no child of a process with threads start its own");
#endif
    int status;
    use_waiting_compiler();
    cb_set_threads(1);
    pid_t child = fork();
    if (child == 0) {
        agrees(cb_compile(ops, "async=1"));
        compiler_number();
        exit(0);
    }
    assert_true(ends(child, &status));
    assert_int_equal(kill(compiler_number(), 0), -1);
    cb_set_threads(0);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, FUNCTIONS = 3 };

typedef struct Callers {
    cb_function *fast[FUNCTIONS];
    atomic_bool ended, differs;
} Callers;

static void *call_again(void *user) {
    Callers *callers = user;
    for (int i = 0; !atomic_load(&callers->ended); i++)
        if (!agrees(callers->fast[i % FUNCTIONS])) atomic_store(&callers->differs, true);
    return NULL;
}

static void test_threads_call_while_it_switches(void **state) {
    (void)state;
    static const char *const options[] = {"async=1", "async=1, fuse=0", "async=1, fullgraph=1"};
    pthread_t thread[THREADS];
    Callers callers = {.ended = false};
    for (int i = 0; i < FUNCTIONS; i++) callers.fast[i] = cb_compile(ops, options[i]);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, call_again, &callers);
    for (int i = 0; i < FUNCTIONS; i++) {
        while (cb_stats(callers.fast[i]).graphs == 0) usleep(1000);
        cb_function_wait(callers.fast[i]);
    }
    usleep(20000);
    atomic_store(&callers.ended, true);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_false(atomic_load(&callers.differs));
    for (int i = 0; i < FUNCTIONS; i++) {
        assert_true(says(callers.fast[i], "engine: C"));
        cb_function_free(callers.fast[i]);
    }
}

static void *wait_again(void *user) {
    Callers *callers = user;
    while (!atomic_load(&callers->ended))
        if (cb_function_wait(callers->fast[0])) atomic_store(&callers->differs, true);
    return NULL;
}

/* Entries leave while others wait for what is made of them. */
static void test_waits_while_entries_leave(void **state) {
    (void)state;
    pthread_t thread[2];
    cb_set_allocator((cb_allocator){poison_freed, NULL});
    Callers callers = {.ended = false};
    callers.fast[0] = cb_compile(ops, "async=1, backend=vm");
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, wait_again, &callers);
    for (int i = 0; i < 300; i++) {
        if (i % 3 == 0) cb_reset();
        cb_scope_open();
        assert_non_null(cb_call(callers.fast[0], cb_ones(cb_dims(i % 3 + 1, 4))));
        cb_scope_close();
    }
    atomic_store(&callers.ended, true);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    assert_false(atomic_load(&callers.differs));
    cb_function_free(callers.fast[0]);
    cb_set_allocator((cb_allocator){fail_once, NULL});
}

static void *call_once(void *user) { return agrees(user) ? user : NULL; }

/* Who sees an entry, and then waits, waits for its code: the job is the worker's before. */
static void test_an_entry_comes_with_its_job(void **state) {
    (void)state;
    pthread_t thread;
    void *done;
    cb_function *fast = cb_compile(ops, "async=1");
    lock_take(LOCK_worker);
    pthread_create(&thread, NULL, call_once, fast);
    for (int i = 0; i < 300; i++, usleep(1000)) assert_int_equal(cb_stats(fast).graphs, 0);
    lock_give(LOCK_worker);
    pthread_join(thread, &done);
    assert_ptr_equal(done, fast);
    cb_function_wait(fast);
    assert_true(says(fast, COMPILED));
    cb_function_free(fast);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static cb_tensor *few(cb_tensor *x) { return cb_sum(cb_tanh(cb_mul(x, 2.0))); }

/* Whatever fails, on whichever thread: the answer is right or an error, and nothing stays. */
static void test_allocations_fail(void **state) {
    (void)state;
    cb_cleanup();
    int noted = 0;
    int64_t live = live_blocks;
    for (int n = 0; n < 300; n += 2) {
        stays_failed = n % 4 > 0;
        cb_scope_open();
        cb_tensor *x = cb_ones(cb_dims(SIZE), CB_F32);
        cb_function *fast = cb_compile(few, "async=1");
        cb_tensor *y[2];
        countdown = n;
        for (int i = 0; i < 2; i++) {
            y[i] = cb_call(fast, x);
            cb_function_wait(fast);
        }
        countdown = -1;
        for (int i = 0; i < 2; i++)
            if (y[i])
                assert_true(cb_item(y[i]) > 61 && cb_item(y[i]) < 62);
            else
                assert_int_equal(cb_error_status(), CB_ERR_MEMORY);
        noted += says(fast, "memory ran out while it compiled in the background");
        cb_function_free(fast);
        cb_scope_close();
        cb_clear_error();
        cb_cleanup();
        assert_int_equal(live_blocks, live);
    }
    assert_true(noted > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_calls_do_not_wait),
        CASE(test_what_needs_no_compiler_is_done_at_once),
        CASE(test_failures_are_notes),
        CASE(test_the_disk_serves),
        CASE(test_freed_while_compiling),
        CASE(test_cleanup_while_compiling),
        CASE(test_forked_while_compiling),
        CASE(test_a_child_that_calls_compiles),
        CASE(test_the_end_of_a_program_does_not_wait),
        CASE(test_threads_call_while_it_switches),
        CASE(test_waits_while_entries_leave),
        CASE(test_an_entry_comes_with_its_job),
        CASE(test_allocations_fail),
    };
    cb_set_allocator((cb_allocator){fail_once, NULL});
    return cmocka_run_group_tests_name("async", tests, NULL, NULL);
}
