/* Loading generated code from many processes and threads at once, and in children forked
 * meanwhile. */
#define _GNU_SOURCE
#include "adder.h"
#include "children.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_sixteen_processes(void **state) {
    (void)state;
    pid_t child[16];
    char command[400];
    for (int i = 0; i < 16; i++)
        if (!(child[i] = fork())) {
            for (int k = 0; k < 2; k++) {
                long value = 0;
                CodeResult result = load_adder(20 + k);
                if (!result.code) _exit(1);
                code_function(result.code, "add")((void *[]){&value}, 0, 1, 0, NULL);
                if (value != 20 + k) _exit(2);
                code_release(result.code);
            }
            leave_child(0);
        }
    for (int i = 0; i < 16; i++) {
        int status;
        waitpid(child[i], &status, 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(entries(NULL), 2);
    snprintf(command, sizeof command, "! ls %s | grep work", cache);
    assert_int_equal(system(command), 0);
}

static void *load_same(void *user) {
    *(Code **)user = load_adder(30).code;
    return NULL;
}

static void test_threads_share(void **state) {
    (void)state;
    pthread_t thread[4];
    Code *code[4];
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, load_same, &code[i]);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) {
        assert_non_null(code[0]);
        assert_ptr_equal(code[i], code[0]);
    }
    for (int i = 0; i < 4; i++) code_release(code[i]);
}

static void *load_many(void *user) {
    for (int i = 40; i < 46; i++) code_release(load_adder(i).code);
    atomic_store((atomic_bool *)user, true);
    return NULL;
}

#define SKIP_FORKS                                                                                 \
    "AddressSanitizer's allocator keeps its locks over fork, so its children may hang"

/* Takes the lock of the table of loaded code again and again. */
static void *load_again(void *user) {
    while (!atomic_load((atomic_bool *)user)) code_release(load_adder(51).code);
    return NULL;
}

static void test_fork_while_compiling(void **state) {
    (void)state;
    atomic_bool done = false;
    pthread_t thread;
    pthread_create(&thread, NULL, load_many, &done);
    for (int i = 0; !done && i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            Code *code = load_adder(50).code;
            code_release(code);
            leave_child(code ? 0 : 1);
        }
        int status;
        assert_true(ends(child, &status));
        assert_int_equal(status, 0);
        usleep(5000);
    }
    pthread_join(thread, NULL);
}

static void test_fork_while_loading(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip_because(SKIP_FORKS);
#endif
    atomic_bool done = false;
    pthread_t thread[2];
    Code *code = load_adder(51).code;
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, load_again, &done);
    bool ended = true;
    for (int i = 0; ended && i < 100; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            code_release(load_adder(51).code);
            leave_child(0);
        }
        ended = ends(child, &status);
    }
    atomic_store(&done, true);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    code_release(code);
    assert_true(ended);
}

/* Takes the locks of the dynamic linker again and again. */
static void *link_again(void *user) {
    while (!atomic_load((atomic_bool *)user)) code_release(load_adder(52).code);
    return NULL;
}

static void test_fork_while_linking(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip_because(SKIP_FORKS);
#endif
    atomic_bool done = false;
    pthread_t thread;
    for (int i = 52; i < 54; i++) code_release(load_adder(i).code);
    pthread_create(&thread, NULL, link_again, &done);
    bool linked = true;
    for (int i = 0; linked && i < 100; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            Code *code = load_adder(53).code;
            code_release(code);
            leave_child(code ? 0 : 1);
        }
        linked = ends(child, &status) && status == 0;
    }
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    assert_true(linked);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_sixteen_processes),    CASE(test_threads_share),
        CASE(test_fork_while_compiling), CASE(test_fork_while_loading),
        CASE(test_fork_while_linking),
    };
    return cmocka_run_group_tests_name("sharing", tests, NULL, NULL);
}
