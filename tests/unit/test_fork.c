/* fork() in one thread while others are anywhere in the library: the child can use all of it. */
#define _GNU_SOURCE
#include "capture/function.h"
#include "children.h"
#include "fixture.h"

#include "base/lock.h"
#include "base/option.h"
#include "base/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- what a process does with the library ------------------------------------------------ */

static char folder[64];
static cb_function *shared;        /* called by all */
static _Atomic int sizes = 1;      /* of the next input: each makes the shared function an entry */
static _Thread_local int constant; /* of the next function that is compiled */

static cb_tensor *scaled(cb_tensor *x) { return cb_exp(cb_mul(x, 2.0)); }

static cb_tensor *own(cb_tensor *x) { return cb_add(x, (double)constant); }

static bool call_shared(void) {
    int size = 1 + atomic_fetch_add(&sizes, 1) % 40;
    cb_scope_open();
    cb_tensor *y = cb_call(shared, cb_zeros(cb_dims(size), CB_F32));
    bool right = y && cb_item(cb_min(y)) == 1;
    cb_scope_close();
    return right;
}

static bool explain(void) {
    char *text = cb_explain(shared);
    bool right = text && strstr(text, "compiled function");
    cb_free_text(text);
    return right;
}

static bool compile_new(const char *options) {
    constant++;
    cb_function *fast = cb_compile(own, options);
    cb_scope_open();
    cb_tensor *y = fast ? cb_call(fast, cb_zeros(cb_dims(8), CB_F32)) : NULL;
    bool right = y && cb_item(cb_max(y)) == constant;
    cb_scope_close();
    cb_function_free(fast);
    return right;
}

static bool compile_on_the_vm(void) { return compile_new("backend=vm"); }
static bool compile_c(void) { return compile_new(NULL); }

static bool allocate(void) {
    cb_scope_open();
    for (int i = 1; i < 40; i++)
        if (!cb_neg(cb_zeros(cb_dims(i * 50), CB_F32))) return false;
    cb_scope_close();
    return true;
}

static bool set_options(void) {
    const char *limit = constant % 2 ? "99" : "98";
    return cb_set_option("recompile_limit", limit) == CB_OK && cb_get_option("recompile_limit");
}

static bool save_and_load(void) {
    static atomic_int files;
    char path[128];
    snprintf(path, sizeof path, "%s/%d-%d.safetensors", folder, (int)getpid(),
             atomic_fetch_add(&files, 1));
    cb_scope_open();
    cb_tensor *x = cb_zeros(cb_dims(3), CB_F32);
    bool right = cb_safetensors_save(path, (const char *[]){"x"}, &x, 1) == CB_OK;
    cb_safetensors *file = right ? cb_safetensors_open(path) : NULL;
    cb_safetensors_close(file);
    unlink(path);
    cb_scope_close();
    return right && file;
}

static bool (*const uses[])(void) = {call_shared, explain,     compile_on_the_vm, compile_c,
                                     allocate,    set_options, save_and_load};
enum { USES = sizeof uses / sizeof *uses };

/* ---- forks ------------------------------------------------------------------------------- */

static atomic_bool done;

typedef struct Worker {
    pthread_t thread;
    int use;
    bool right;
} Worker;

static void *work(void *user) {
    Worker *worker = user;
    constant = 1000 * (1 + worker->use);
    for (worker->right = true; worker->right && !atomic_load(&done);)
        worker->right = uses[worker->use]();
    return NULL;
}

/* Everything, beginning elsewhere each time; 0, or the number of what went wrong. */
static int use_all(int first) {
    constant = 100000;
    for (int i = 0; i < USES; i++)
        if (!uses[(first + i) % USES]()) return 1 + (first + i) % USES;
    cb_function_free(shared);
    cb_cleanup();
    return 0;
}

static void test_a_child_can_use_everything(void **state) {
    (void)state;
    if (SANITIZED) skip_because("sanitizers keep locks of their own over fork, or allow no thread");
    Worker worker[USES];
    bool ended = true;
    int status = 0, forks = 0;
    cb_set_option("recompile_limit", "99");
    shared = cb_compile(scaled, "backend=vm");
    atomic_store(&done, false);
    for (int i = 0; i < USES; i++) {
        worker[i].use = i;
        pthread_create(&worker[i].thread, NULL, work, &worker[i]);
    }
    for (; ended && status == 0 && forks < 30; forks++) {
        pid_t child = fork();
        if (child == 0) leave_child(use_all(forks % USES));
        ended = ends(child, &status);
    }
    atomic_store(&done, true);
    for (int i = 0; i < USES; i++) {
        pthread_join(worker[i].thread, NULL);
        assert_true(worker[i].right);
    }
    cb_function_free(shared);
    if (!ended) print_error("child %d hung\n", forks);
    assert_true(ended);
    assert_int_equal(status, 0);
}

/* ---- a function that is being made ------------------------------------------------------- */

static void use_script(const char *name, const char *body) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *script = fopen(path, "w");
    assert_non_null(script);
    fprintf(script, "#!/bin/sh\n%s\n", body);
    fclose(script);
    chmod(path, 0755);
    cb_set_option("cc", path);
    cb_set_option("cache", "0");
}

static void remove_script(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void *call_once(void *user) {
    *(bool *)user = call_shared();
    return NULL;
}

/* A compiler that takes its time: fork does not wait for it, and the child does not wait for the
 * thread that it has not got. */
static void test_a_function_that_is_being_made(void **state) {
    (void)state;
    if (SANITIZED) skip_because("sanitizers keep locks of their own over fork, or allow no thread");
    char started[128], before[512], body[400];
    int status = -1;
    bool called = false;
    pthread_t thread;
    snprintf(before, sizeof before, "%s", cb_get_option("cc"));
    snprintf(started, sizeof started, "%s/started", folder);
    snprintf(body, sizeof body, "touch %s; while [ -e %s ]; do sleep 0.01; done; exec cc \"$@\"",
             started, started);
    use_script("slow", body);
    shared = cb_compile(scaled);
    pthread_create(&thread, NULL, call_once, &called);
    while (access(started, F_OK)) usleep(1000);
    cb_set_option("cc", "cc");
    pid_t child = fork(); /* the compiler goes on when this has returned */
    if (child == 0) leave_child(call_shared() && explain() ? 0 : 1);
    bool ended = ends(child, &status);
    unlink(started);
    pthread_join(thread, NULL);
    cb_set_option("cc", before);
    cb_set_option("cache", "1");
    cb_function_free(shared);
    remove_script("slow");
    assert_true(ended);
    assert_int_equal(status, 0);
    assert_true(called);
}

static void *call_with_five(void *user) {
    cb_scope_open();
    cb_tensor *y = cb_call(shared, cb_zeros(cb_dims(5), CB_F32));
    *(bool *)user = y && cb_item(cb_min(y)) == 1;
    cb_scope_close();
    return NULL;
}

/* Threads that want one entry: one compiles, the others wait for it. */
static void test_one_thread_makes_an_entry(void **state) {
    (void)state;
    char before[512], count[128], body[300];
    struct stat info;
    pthread_t thread[4];
    bool called[4];
    snprintf(before, sizeof before, "%s", cb_get_option("cc"));
    snprintf(count, sizeof count, "%s/count", folder);
    snprintf(body, sizeof body, "printf x >>%s; sleep 0.2; exec cc \"$@\"", count);
    use_script("counts", body);
    shared = cb_compile(scaled);
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, call_with_five, &called[i]);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) assert_true(called[i]);
    assert_int_equal(stat(count, &info), 0);
    assert_int_equal(info.st_size, 1);
    cb_set_option("cc", before);
    cb_set_option("cache", "1");
    cb_function_free(shared);
    unlink(count);
    remove_script("counts");
}

/* ---- the locks --------------------------------------------------------------------------- */

/* ---- who is inside of a function --------------------------------------------------------- */

static cb_function *entered;
static atomic_int stage; /* 1: a thread is inside; 2: it may leave */
static pid_t forked = -1;
static bool forks;

static void *call_sizes(void *user) {
    bool *right = user;
    for (int n = 2; n < 102; n++) {
        cb_scope_open();
        cb_tensor *x = cb_ones(cb_dims(n, 4), CB_F32), *y = cb_call(entered, x);
        *right &= y && cb_item(cb_sum(y)) == 8 * n;
        cb_scope_close();
    }
    return NULL;
}

static cb_tensor *lingers(cb_tensor *x) {
    cb_tensor *y = cb_mul(x, 2.0);
    if (cb_size(x, 0) > 1) return y;
    if (forks && forked < 0 && (forked = fork()) == 0) {
        pthread_t thread; /* all that it calls leaves, and stays for whoever is inside */
        bool right = true;
        if (pthread_create(&thread, NULL, call_sizes, &right)) leave_child(1);
        pthread_join(thread, NULL);
        if (!right || !atomic_load(&entered->left)) leave_child(2);
    }
    if (forks) return y;
    atomic_store(&stage, 1);
    while (atomic_load(&stage) < 2) usleep(1000);
    return y;
}

static void *call_one_row(void *user) {
    cb_scope_open();
    cb_tensor *y = cb_call(entered, cb_ones(cb_dims(1, 4), CB_F32));
    *(bool *)user = y && cb_item(cb_sum(y)) == 8;
    cb_scope_close();
    return NULL;
}

static bool nobody_is_inside(void) {
    return !atomic_load(&entered->left) && !(uint32_t)atomic_load(&entered->inside);
}

/* What leaves in a child is freed, although a thread of the parent was inside as it was forked. */
static void test_a_thread_that_stays_inside(void **state) {
    (void)state;
    if (SANITIZED) skip_because("sanitizers keep locks of their own over fork, or allow no thread");
    pthread_t thread;
    bool right = false, good = true;
    int status;
    forks = false;
    cb_set_option("entries_mb", "0"), cb_set_option("passing_sizes", "0");
    entered = cb_compile(lingers, "backend=vm");
    pthread_create(&thread, NULL, call_one_row, &right);
    while (atomic_load(&stage) < 1) usleep(1000);
    pid_t child = fork();
    if (child == 0) {
        call_sizes(&good);
        leave_child(!good ? 1 : !nobody_is_inside() ? 2 : 0);
    }
    assert_true(ends(child, &status));
    assert_int_equal(status, 0);
    call_sizes(&good);
    assert_true(good && atomic_load(&entered->left)); /* here it may stand on any of them */
    atomic_store(&stage, 2);
    pthread_join(thread, NULL);
    assert_true(right && nobody_is_inside());
    cb_set_option("entries_mb", "48"), cb_set_option("passing_sizes", "8");
    cb_function_free(entered);
}

/* The thread that forks is inside in the child, too. */
static void test_forked_inside(void **state) {
    (void)state;
    if (SANITIZED) skip_because("sanitizers keep locks of their own over fork, or allow no thread");
    int status;
    bool right = true;
    forks = true;
    cb_set_option("entries_mb", "0"), cb_set_option("passing_sizes", "0");
    entered = cb_compile(lingers, "backend=vm");
    call_one_row(&right);
    if (forked == 0) leave_child(!right ? 3 : !nobody_is_inside() ? 4 : 0);
    assert_true(right && nobody_is_inside());
    assert_true(ends(forked, &status));
    assert_int_equal(status, 0);
    cb_set_option("entries_mb", "48"), cb_set_option("passing_sizes", "8");
    cb_function_free(entered);
}

static void test_numbers_of_processes(void **state) {
    (void)state;
    uint32_t here = process_number();
    int status;
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = process_number() == here + 1 ? fork() : -1;
        if (grandchild == 0) leave_child(process_number() == here + 2 ? 0 : 1);
        if (grandchild < 0 || !ends(grandchild, &status)) _exit(2);
        for (int i = 0; i < LOCK_COUNT; i++) lock_take(i); /* all are free, in their order */
        leave_child(status);
    }
    assert_true(ends(child, &status));
    assert_int_equal(status, 0);
    assert_int_equal(process_number(), here);
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/carbide-fork-XXXXXX");
    return !mkdtemp(folder);
}

static int remove_folder(void **state) {
    cb_cleanup();
    (void)state;
    return rmdir(folder);
}

/* ---- a child that gets no thread for what waits ------------------------------------------- */

static _Atomic int jobs_run;
static _Atomic bool may_end, no_threads;

/* The linker hands the calls of the library to it (--wrap, CMakeLists.txt). */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *user) {
    return no_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, user);
}

static void count_job(WorkerJob *job) {
    (void)job;
    atomic_fetch_add(&jobs_run, 1);
    while (!may_end) usleep(1000);
}

static WorkerJob begun = {.run = count_job, .owner = &jobs_run};
static WorkerJob waiting = {.run = count_job, .owner = &jobs_run};

static void *wait_for_both(void *user) {
    while (!no_threads) usleep(1000);
    worker_wait(user);
    return NULL;
}

/* Several threads wait: each job runs once, in one of them. */
static int wait_in_child(void) {
    pthread_t thread[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&thread[i], NULL, wait_for_both, i ? &jobs_run : NULL);
    jobs_run = 0;
    no_threads = true;
    usleep(50 * 1000); /* for all of them to wait */
    may_end = true;
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    return jobs_run == 2 && job_is_idle(&begun) && job_is_idle(&waiting) ? 0 : 1;
}

static void test_jobs_in_a_child_without_threads(void **state) {
    (void)state;
    if (SANITIZED) skip_because("sanitizers keep locks of their own over fork, or allow no thread");
    assert_true(worker_add(&begun) && worker_add(&waiting));
    while (!jobs_run) usleep(1000);
    pid_t child = fork();
    if (child == 0) leave_child(wait_in_child());
    int status;
    waitpid(child, &status, 0);
    may_end = true;
    worker_wait(NULL);
    assert_int_equal(status, 0);
    assert_int_equal(jobs_run, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_can_use_everything),
        cmocka_unit_test(test_a_function_that_is_being_made),
        cmocka_unit_test(test_one_thread_makes_an_entry),
        cmocka_unit_test(test_a_thread_that_stays_inside),
        cmocka_unit_test(test_forked_inside),
        cmocka_unit_test(test_numbers_of_processes),
        cmocka_unit_test(test_jobs_in_a_child_without_threads),
    };
    return cmocka_run_group_tests_name("fork", tests, make_folder, remove_folder);
}
