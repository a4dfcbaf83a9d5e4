/* Many threads that want the same kernels, and processes that are killed while they compile: each
 * kernel is compiled once, and whatever a killed process leaves behind, the cache goes on. */
#define _GNU_SOURCE
#include "adder.h"
#include "children.h"

#include "base/memory.h"
#include "carbide.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* A quick compiler that notes each run. */
static void use_counting_compiler(const char *body) {
    char text[1000];
    snprintf(text, sizeof text, "echo run >>%s/runs\n%s", root, body);
    use_script("counts", text);
}

static int compiler_runs(void) {
    char path[400], line[64];
    int count = 0;
    path_in(path, "runs");
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) count++;
    if (file) fclose(file);
    return count;
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 32, FUNCTIONS = 20 };

static _Thread_local int number; /* of the function that is called */

static cb_tensor *power(cb_tensor *x) {
    for (int i = 0; i < number; i++) x = cb_mul(x, 1.5);
    return cb_add(x, 1);
}

static bool call(cb_function *fast, int which) {
    double wanted = 1;
    number = which;
    for (int i = 0; i < which; i++) wanted *= 1.5;
    cb_scope_open();
    cb_tensor *y = cb_call(fast, cb_ones(cb_dims(16), CB_F64));
    bool right = y && cb_item(cb_amax(cb_abs(cb_sub(y, wanted + 1)))) < 1e-9;
    cb_scope_close();
    return right;
}

typedef struct Compiling {
    pthread_t thread;
    int first; /* which function it begins with */
    bool right;
    cb_function *shared[FUNCTIONS]; /* of all threads */
} Compiling;

/* All of them: functions of its own, and those of all threads. */
static void *call_all(void *user) {
    Compiling *caller = user;
    caller->right = true;
    for (int k = 0; k < FUNCTIONS; k++) {
        int which = (caller->first + k) % FUNCTIONS;
        cb_function *own = cb_compile(power, "backend=c");
        caller->right &= call(own, which) && call(caller->shared[which], which);
        cb_function_free(own);
    }
    return NULL;
}

static void test_each_kernel_is_compiled_once(void **state) {
    (void)state;
    static Compiling caller[THREADS];
    cb_function *shared[FUNCTIONS];
    use_counting_compiler("exec cc \"$@\" -O0");
    for (int i = 0; i < FUNCTIONS; i++) shared[i] = cb_compile(power, "backend=c");
    for (int i = 0; i < THREADS; i++) {
        caller[i].first = i % 3;
        memcpy(caller[i].shared, shared, sizeof shared);
        pthread_create(&caller[i].thread, NULL, call_all, &caller[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(caller[i].thread, NULL);
        assert_true(caller[i].right);
    }
    for (int i = 0; i < FUNCTIONS; i++) cb_function_free(shared[i]);
    assert_int_equal(compiler_runs(), FUNCTIONS);
    assert_int_equal(entries(NULL), FUNCTIONS);
}

static void *load_one(void *user) {
    *(CodeResult *)user = load_adder(1);
    return NULL;
}

/* Who has waited for a compiler that failed has its words, too, and starts none. */
static void test_a_failure_is_that_of_all_who_wait(void **state) {
    (void)state;
    pthread_t thread[THREADS];
    CodeResult result[THREADS];
    use_counting_compiler("sleep 1; echo out of luck >&2; exit 3");
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, load_one, &result[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_null(result[i].code);
        assert_int_equal(result[i].reason, REASON_compiler_failed);
        assert_non_null(strstr(result[i].message, "out of luck"));
        memory_free(result[i].message);
    }
    assert_true(compiler_runs() < THREADS);
}

/* ---- killed processes ------------------------------------------------------------------------ */

enum { KILLS = 50, ADDERS = 6 };

static void compile_until_killed(void) {
    for (int i = 0;; i = (i + 1) % ADDERS) {
        code_release(load_adder(i).code);
        if (i == ADDERS - 1) cache_clear(cache);
    }
}

/* At any moment: while the compiler runs, while its object is sealed, renamed, loaded. What is in
 * the cache then is whole. */
static void test_killed_at_any_moment(void **state) {
    (void)state;
    use_script("quick", "exec cc \"$@\" -O0");
    unsigned random = 12345;
    int warm = 0;
    for (int i = 0; i < KILLS; i++) {
        pid_t child = fork();
        if (child == 0) compile_until_killed();
        random = random * 1103515245 + 12345;
        usleep(2000 + random / 65536 % 150000);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        CodeResult result = load_adder((int)(random / 65536 % ADDERS));
        assert_int_equal(result.cache, REASON_NONE);
        warm += result.origin == CODE_FROM_DISK;
        assert_adds(result, (int)(random / 65536 % ADDERS));
    }
    for (int i = 0; i < 2 * ADDERS; i++) {
        CodeResult result = load_adder(i % ADDERS);
        assert_int_equal(result.cache, REASON_NONE);
        assert_int_equal(i < ADDERS || result.origin, CODE_FROM_DISK);
        assert_adds(result, i % ADDERS);
    }
    print_message("%d of %d came from the disk\n", warm, KILLS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_each_kernel_is_compiled_once),
        CASE(test_a_failure_is_that_of_all_who_wait),
        CASE(test_killed_at_any_moment),
    };
    return cmocka_run_group_tests_name("compile_once", tests, NULL, NULL);
}
