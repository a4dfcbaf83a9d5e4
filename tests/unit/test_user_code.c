/* What a compiled function does besides its ops: it prints, logs, counts and decides on every call,
 * as in eager, while all ops run compiled. */
#define _GNU_SOURCE
#include "capture_support.h"

#include "capture/function.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---- what was written ------------------------------------------------------------------------ */

typedef struct Written {
    int file;     /* of the system: it stands in for stdout */
    int standard; /* stdout itself */
    char text[8192];
} Written;

static FILE *logbook;
static int counter;

static void write_into(Written *written) {
    fflush(stdout);
    written->standard = dup(STDOUT_FILENO);
    written->file = memfd_create("written", MFD_CLOEXEC);
    assert_true(written->standard >= 0 && written->file >= 0);
    dup2(written->file, STDOUT_FILENO);
}

/* stdout is itself again, and what went there is the text, the log behind it. */
static void read_back(Written *written) {
    fflush(stdout), fflush(logbook);
    dup2(written->standard, STDOUT_FILENO);
    size_t room = sizeof written->text - 1;
    ssize_t out = pread(written->file, written->text, room, 0);
    assert_true(out >= 0 && (size_t)out < room);
    rewind(logbook);
    size_t log = fread(written->text + out, 1, room - (size_t)out, logbook);
    written->text[(size_t)out + log] = 0;
    assert_int_equal(ftruncate(fileno(logbook), 0), 0);
    rewind(logbook);
    close(written->file), close(written->standard);
}

/* ---- how it was compiled --------------------------------------------------------------------- */

/* Steps of all graphs together. */
static int steps(cb_function *fast) {
    int count = 0;
    for (Entry *e = atomic_load(&fast->first); e; e = atomic_load(&e->next))
        count += length(executable_plan(e->executable)->step);
    return count;
}

static void expect_compiled(cb_function *fast, int graphs, int kernels) {
    cb_function_stats stats = cb_stats(fast);
    if (stats.graphs != graphs || stats.eager_calls || steps(fast) != kernels) {
        char *text = cb_explain(fast);
        print_error("%s", text);
        cb_free_text(text);
    }
    assert_int_equal(stats.graphs, graphs);
    assert_int_equal(stats.eager_calls, 0);
    assert_int_equal(steps(fast), kernels);
}

/* ---- everything at once ---------------------------------------------------------------------- */

/* What is printed rounds as in eager: a sum, whose order C chooses, may differ in its last bit, and
 * of 3,000 sums one showed that in four digits. */
static cb_tensor *does_it_all(cb_tensor *x) {
    cb_tensor *y = cb_tanh(cb_mul(x, 0.5));
    printf("%lld x %lld\n", (long long)cb_size(y, 0), (long long)cb_size(y, 1)); /* known */
    cb_print(cb_amax(y, 1));
    counter++;
    if (cb_item(cb_sum(x)) > 0) y = cb_sub(y, cb_mean(y));
    cb_tensor *goal = cb_add(cb_abs(x), 1.0), *root = cb_add(cb_abs(y), 1.0);
    for (int i = 0; i < 50; i++) {
        cb_tensor *next = cb_mul(cb_add(root, cb_div(goal, root)), 0.5);
        double change = cb_item(cb_amax(cb_abs(cb_sub(next, root))));
        root = next;
        fprintf(logbook, "round %d of call %d: %.3f\n", i, counter, change);
        if (change < 1e-3) break;
    }
    return cb_mul(root, y);
}

static void expect_same_doings(cb_function *fast, int call) {
    static Written eager, compiled;
    cb_tensor *x = cb_randn(cb_dims(3, 4), CB_F32);
    counter = call;
    write_into(&eager);
    cb_tensor *wanted = does_it_all(x);
    read_back(&eager);
    assert_int_equal(counter, call + 1);
    counter = call;
    write_into(&compiled);
    cb_tensor *got = cb_call(fast, x);
    read_back(&compiled);
    assert_int_equal(counter, call + 1);
    assert_true(strstr(eager.text, "3 x 4\ntensor(") == eager.text);
    assert_string_equal(compiled.text, eager.text);
    expect_equal(got, wanted);
}

/* The shape is no event. The printed values, the branch, the change of a round are: what lies
 * between them is a graph each, whichever way the values send it. */
static void everything_at_once(const char *options, int graphs, int kernels) {
    logbook = tmpfile();
    assert_non_null(logbook);
    cb_function *fast = cb_compile(does_it_all, options);
    cb_manual_seed(11);
    for (int call = 0; call < 1000; call++) {
        cb_scope_open();
        expect_same_doings(fast, call);
        cb_scope_close();
    }
    expect_compiled(fast, graphs, kernels);
    cb_function_free(fast);
    fclose(logbook);
}

static void everything_on_the_vm(void **state) {
    (void)state;
    everything_at_once(VM, 6, 6);
}

static void everything_in_c(void **state) {
    (void)state;
    everything_at_once("backend=c", 6, 6);
}

/* ---- a print in the middle ------------------------------------------------------------------- */

static bool prints_value;
enum { LINE_OF_PRINT = __LINE__ + 5 };

static cb_tensor *forward(cb_tensor *x) {
    cb_tensor *y = cb_relu(cb_add(cb_mul(x, 2.0), 1.0));
    if (!prints_value) printf("%lld x %lld\n", (long long)cb_size(y, 0), (long long)cb_size(y, 1));
    if (prints_value) cb_print(y);
    return cb_sum(cb_mul(cb_tanh(y), y), 1);
}

/* Eager prints it, too. */
static cb_function *call_forward(const char *once) {
    static Written written;
    char wanted[1000] = "";
    cb_function *fast = cb_compile(forward, VM);
    cb_tensor *x = ramp(2, 2), *y[3];
    logbook = tmpfile();
    write_into(&written);
    for (int i = 0; i < 3; i++) y[i] = cb_call(fast, x);
    cb_tensor *eager = forward(x);
    read_back(&written);
    fclose(logbook);
    for (int i = 0; i < 3; i++) expect_equal(y[i], eager);
    for (int i = 0; i < 4; i++) strcat(wanted, once);
    assert_string_equal(written.text, wanted);
    return fast;
}

static bool explains(cb_function *fast, const char *what) {
    char *text = cb_explain(fast);
    bool found = strstr(text, what);
    cb_free_text(text);
    return found;
}

static void a_value_printed_makes_two_graphs(void **state) {
    (void)state;
    char line[200];
    prints_value = true;
    cb_function *fast = call_forward("tensor([[0.0000, 0.0000],\n        [0.0000, 0.5000]])\n");
    expect_compiled(fast, 2, 2);
    snprintf(line, sizeof line, "another one behind (cb_print) at %s:%d\n", __FILE__,
             LINE_OF_PRINT);
    assert_true(explains(fast, line));
    cb_function_free(fast);
}

static void a_shape_printed_is_no_break(void **state) {
    (void)state;
    prints_value = false;
    cb_function *fast = call_forward("2 x 2\n");
    expect_compiled(fast, 1, 1);
    assert_false(explains(fast, "break:"));
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_on_the_vm),
        cmocka_unit_test(everything_in_c),
        cmocka_unit_test(a_value_printed_makes_two_graphs),
        cmocka_unit_test(a_shape_printed_is_no_break),
    };
    return run_counted(tests);
}
