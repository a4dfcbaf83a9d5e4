/* Option explain: what a program says of its compiled functions as it ends, and cb_explain_summary.
 * Each program is a child of the test that ends by exit(). */
#include "capture_support.h"

#include "base/option.h"
#include "children.h"
#include "poisoning.h"
#include <pthread.h>
#include <sys/stat.h>

enum { TEXT = 1 << 20 };
static char said[TEXT], path[128];

static void read_all(const char *from) {
    FILE *file = fopen(from, "r");
    said[0] = '\0';
    if (!file) return;
    said[fread(said, 1, TEXT - 1, file)] = '\0';
    fclose(file);
    unlink(from);
}

/* What the program writes to stderr, or (name a file) there. */
static void run_program(void (*program)(void), const char *name) {
    char errors[sizeof path + 8];
    snprintf(errors, sizeof errors, "%s.err", path);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(errors, "w", stderr)) leave_child(9);
        cb_set_option("explain", name);
        cb_scope_open();
        program();
        cb_scope_close();
        exit(0); /* leave_child would not tell */
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    bool file = strchr(name, '/');
    read_all(errors);
    if (!file) return;
    assert_string_equal(said, "");
    read_all(name);
}

static int counted(const char *words) {
    int count = 0;
    for (const char *at = said; (at = strstr(at, words)); at++) count++;
    return count;
}

static cb_tensor *normalized(cb_tensor *x) { return cb_softmax(cb_mul(x, 2.0), -1); }
static cb_tensor *product(cb_tensor *x) { return cb_relu(cb_matmul(cb_softmax(x, -1), x)); }

/* ---- programs -------------------------------------------------------------------------------- */

static cb_function *volatile held[2]; /* to the end: a leak would be LeakSanitizer's exit status */

static void two_functions(void) { /* one is freed, one is not, one is never called */
    cb_function *first = cb_compile(normalized, VM), *second = cb_compile(product, VM);
    held[0] = second, held[1] = cb_compile(normalized, VM);
    cb_call(first, ramp(4, 8));
    cb_call(first, ramp(2, 8));
    cb_call(second, ramp(3, 3));
    cb_function_free(first);
}

/* LeakSanitizer asks as a process ends. In a child it looks for its parent's threads, and says that
 * it found none. */
int __lsan_is_turned_off(void);
static bool in_child;
int __lsan_is_turned_off(void) { return in_child; }

static void with_a_child(void) {
    two_functions();
    pid_t child = fork();
    if (child == 0) {
        in_child = true;
        exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (access(path, F_OK) == 0) fprintf(stderr, "the child has told\n");
}

static void cleaned_up(void) {
    two_functions();
    cb_cleanup();
}

static cb_function *called;

static void *call_and_forget(void *user) {
    for (int n = 0;; n++) {
        cb_scope_open();
        if (n % 8 == 0) cb_reset();
        if (!cb_call(called, cb_ones(cb_dims(n % 8 + 1, 16)))) abort();
        cb_scope_close();
    }
    return user;
}

/* A function is freed, and the program ends, while a thread calls another one, whose entries
 * leave. */
static void called_meanwhile(void) {
    pthread_t thread;
    cb_set_allocator((cb_allocator){poison_freed, NULL});
    cb_set_threads(1);
    called = cb_compile(normalized, VM);
    pthread_create(&thread, NULL, call_and_forget, NULL);
    while (cb_stats(called).calls < 100) usleep(1000);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void summaries(void **state) {
    (void)state;
    run_program(two_functions, "1");
    assert_int_equal(counted(", compiled at "), 2);
    assert_int_equal(counted("test_watch.c"), 5);
    assert_non_null(
        strstr(said, "\n  2 calls, 2 graphs, 0 breaks, 1 recorded again, 0 compiled, 0 eager\n"));
    assert_non_null(strstr(said, "\n    input 0 is f32[2, 8], entry 0 has f32[4, 8]\n"));
    assert_non_null(strstr(said, "graph 0: 1 input f32[3, 3]\n"));
    assert_non_null(strstr(said, "; engine: vector VM"));
    assert_non_null(strstr(said, "  not fused, 1 x: a library step reads"));
    assert_non_null(strstr(said, " a call takes "));
    assert_null(strstr(said, "captured:"));
    for (const char *line = said; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") < 80);
}

/* After a summary of its own for each: one is called once more. */
static void asks_itself(void) {
    two_functions();
    cb_function *first = cb_compile(normalized, VM);
    cb_call(first, ramp(4, 8));
    cb_free_text(cb_explain_summary(held[0]));
    cb_free_text(cb_explain_summary(first));
    cb_call(first, ramp(4, 8));
    cb_function_free(held[1]);
    held[1] = first;
}

static void not_twice(void **state) {
    (void)state;
    run_program(asks_itself, "1");
    assert_int_equal(counted(", compiled at "), 3);
    assert_int_equal(counted("  it was not called since the program asked for its report\n"), 1);
    assert_int_equal(counted("graph 0: "), 2);
    run_program(asks_itself, path);
    assert_int_equal(counted("graph 0: "), 3);
    run_program(asks_itself, "full");
    assert_int_equal(counted("compiled function "), 3);
}

static void everything(void **state) {
    (void)state;
    run_program(two_functions, "full");
    assert_int_equal(counted("compiled function "), 2);
    assert_int_equal(counted("  captured:\n"), 3);
}

static void into_a_file(void **state) {
    (void)state;
    run_program(with_a_child, path);
    assert_int_equal(counted(", compiled at "), 2);
    run_program(cleaned_up, path);
    assert_int_equal(counted(", compiled at "), 2);
}

static void off(void **state) {
    (void)state;
    run_program(two_functions, "0");
    assert_string_equal(said, "");
    run_program(two_functions, "");
    assert_string_equal(said, "");
}

static void numbered(void) {
    char name[200];
    snprintf(name, sizeof name, "%s-%%p.txt", path);
    cb_set_option("explain", name);
    two_functions();
    fprintf(stderr, "%d", (int)getpid());
}

static void file_of_the_process(void **state) {
    (void)state;
    char name[200];
    run_program(numbered, "");
    snprintf(name, sizeof name, "%s-%d.txt", path, atoi(said));
    read_all(name);
    assert_int_equal(counted(", compiled at "), 2);
}

static void no_such_folder(void **state) {
    (void)state;
    run_program(two_functions, "0");
    char name[] = "/nonexistent/report.txt";
    pid_t child = fork();
    if (child == 0) {
        if (!freopen(path, "w", stderr)) leave_child(9);
        cb_set_option("explain", name);
        cb_scope_open();
        two_functions();
        exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    read_all(path);
    assert_non_null(strstr(said, "cannot be written to /nonexistent/report.txt: No such file"));
}

static void goes_elsewhere(void) {
    char name[200];
    if (chdir("/tmp")) leave_child(8);
    snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    cb_set_option("explain", name);
    two_functions();
    if (chdir("/")) leave_child(8);
}

static void relative_file(void **state) {
    (void)state;
    run_program(goes_elsewhere, "");
    assert_string_equal(said, "");
    read_all(path);
    assert_int_equal(counted(", compiled at "), 2);
}

static void calls_go_on_at_the_end(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip_because("ThreadSanitizer lets no child of a process with threads start its own");
#endif
    char page[sizeof path + 8];
    snprintf(page, sizeof page, "%s.html", path);
    for (int i = 0; i < 6; i++) {
        run_program(called_meanwhile, i % 2 ? page : path);
        assert_non_null(strstr(said, "compiled at "));
    }
}

/* Many graphs, long lines: the rest is counted. */
static void many_graphs(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile(normalized, VM);
    for (int i = 1; i <= 6; i++) cb_call(fast, cb_ones(cb_dims(i, 300)));
    char *text = cb_explain_summary(fast);
    assert_non_null(strstr(text, "graph 3: "));
    assert_null(strstr(text, "graph 4: "));
    assert_non_null(strstr(text, "and 2 more graphs\n"));
    cb_free_text(text);
    assert_null(cb_explain_summary(NULL));
    cb_clear_error();
    cb_function_free(fast);
    assert_null(cb_explain_summary(fast));
    cb_clear_error();
    cb_scope_close();
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/carbide-watch-%d.txt", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summaries),
        cmocka_unit_test(everything),
        cmocka_unit_test(not_twice),
        cmocka_unit_test(into_a_file),
        cmocka_unit_test(off),
        cmocka_unit_test(file_of_the_process),
        cmocka_unit_test(no_such_folder),
        cmocka_unit_test(many_graphs),
        cmocka_unit_test(relative_file),
        cmocka_unit_test(calls_go_on_at_the_end),
    };
    return run_counted(tests);
}
