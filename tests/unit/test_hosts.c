/* Hosts as they are: a limit on the size of files, pipes, disks that do not execute, no /proc,
 * compilers that leave something else than an object. What needs root is skipped without. */
#define _GNU_SOURCE
#include "adder.h"
#include "children.h"

#include "base/memory.h"
#include "carbide.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_MOUNTS = 77 };

static const char *in_root(const char *name) {
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

/* Runs body in a child, which has file systems of its own to mount; its exit status. */
static int in_child(int (*body)(void)) {
    pid_t child = fork();
    if (child == 0) leave_child(body());
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) print_error("signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool mount_own(const char *path, unsigned long flags, const char *options) {
    return !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
           !mount("none", path, "tmpfs", flags, options);
}

#define assert_child(body)                                                                         \
    do {                                                                                           \
        int status = in_child(body);                                                               \
        if (status == NO_MOUNTS) skip_because("this needs the right to mount");                    \
        assert_int_equal(status, 0);                                                               \
    } while (0)

static bool adds(CodeResult result, int number) {
    long value = 1;
    if (!result.code) {
        fprintf(stderr, "%s: %s\n", reason_info(result.reason)->id,
                result.message ? result.message : "");
        return false;
    }
    code_function(result.code, "add")((void *[]){&value}, 0, 1, 0, NULL);
    return value == 1 + number;
}

/* ---- limits and pipes -------------------------------------------------------------------- */

static bool signals_are_as_before(void) {
    sigset_t blocked, pending;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    sigpending(&pending);
    return !sigismember(&blocked, SIGXFSZ) && !sigismember(&pending, SIGXFSZ) &&
           !sigismember(&blocked, SIGPIPE) && !sigismember(&pending, SIGPIPE);
}

static bool is_too_large(cb_status status) {
    bool refused = status == CB_ERR_IO && strstr(cb_error(), "File too large");
    cb_clear_error();
    return refused && signals_are_as_before();
}

/* The soft limit, which is what counts: leave_child takes it away again. */
static bool limit_files(rlim_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit)) return false;
    limit.rlim_cur = bytes;
    return !setrlimit(RLIMIT_FSIZE, &limit);
}

static int save_beyond_the_limit(void) {
    cb_scope_open();
    cb_tensor *large = cb_zeros(cb_dims(100000), CB_F32), *small = cb_zeros(cb_dims(100), CB_F32);
    if (!limit_files(100000)) return 1;
    if (!is_too_large(cb_npy_save(in_root("large.npy"), large))) return 2;
    if (!is_too_large(
            cb_safetensors_save(in_root("large.safetensors"), (const char *[]){"x"}, &large, 1)))
        return 3;
    if (!access(in_root("large.npy"), F_OK)) return 4;
    if (cb_npy_save(in_root("small.npy"), small) != CB_OK) return 5;
    /* A host that holds the signal back, and has one pending, finds both as they were. */
    sigset_t held, pending;
    sigemptyset(&held);
    sigaddset(&held, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &held, NULL);
    pthread_kill(pthread_self(), SIGXFSZ);
    if (cb_npy_save(in_root("large.npy"), large) != CB_ERR_IO) return 6;
    sigpending(&pending);
    return sigismember(&pending, SIGXFSZ) ? 0 : 7;
}

static int compile_beyond_the_limit(void) {
    if (!limit_files(1000)) return 1;
    CodeResult result = load_adder(101);
    if (result.code || result.reason != REASON_compiler_failed) return 2;
    return signals_are_as_before() && result.message ? 0 : 3;
}

static void test_limit_on_files(void **state) {
    (void)state;
    assert_child(save_beyond_the_limit);
    assert_child(compile_beyond_the_limit);
}

enum { PIPED = 300000 };

static int save_to_a_pipe(bool patient) {
    if (mkfifo(in_root("pipe"), 0600)) return 1;
    pid_t reader = fork();
    if (reader == 0) {
        static char bytes[PIPED];
        int file = open(in_root("pipe"), O_RDONLY);
        ssize_t count = 0, got = patient ? 1 : 0;
        if (read(file, bytes, 10) != 10) _exit(1);
        usleep(20 * 1000); /* longer than the pipe takes to be full */
        for (; got > 0; count += got) got = read(file, bytes, sizeof bytes);
        _exit(patient && count < PIPED ? 2 : 0);
    }
    cb_scope_open();
    cb_tensor *x = cb_zeros(cb_dims(PIPED), CB_U8);
    cb_status status = CB_ERR_IO;
    for (int i = 0; i < 5000; i++) { /* until the reader has opened it */
        cb_clear_error();
        status = cb_npy_save(in_root("pipe"), x);
        if (status == CB_OK || !strstr(cb_error(), "No such device")) break;
        usleep(1000);
    }
    int ended;
    waitpid(reader, &ended, 0);
    if (ended || !signals_are_as_before()) return 2;
    return patient ? status != CB_OK : status != CB_ERR_IO || !strstr(cb_error(), "Broken pipe");
}

static int save_to_a_patient_reader(void) { return save_to_a_pipe(true); }
static int save_to_a_reader_that_leaves(void) { return save_to_a_pipe(false); }

static void test_pipes(void **state) {
    (void)state;
    assert_child(save_to_a_patient_reader);
    unlink(in_root("pipe"));
    assert_child(save_to_a_reader_that_leaves);
}

/* ---- file systems ------------------------------------------------------------------------ */

/* No folder executes: what is loaded lies in memory. */
static int load_from_a_disk_that_does_not_execute(void) {
    if (!mount_own("/tmp", MS_NOEXEC, "size=4m,mode=0700")) return NO_MOUNTS;
    (void)mount("none", "/dev/shm", "tmpfs", MS_NOEXEC, "size=4m,mode=0700");
    (void)mount("none", "/var/tmp", "tmpfs", MS_NOEXEC, "size=4m,mode=0700");
    if (mkdir(root, 0700) || mkdir(cache, 0700)) return 3;
    CodeResult fresh = load_adder(102);
    if (!adds(fresh, 102) || fresh.cache != REASON_NONE) return 1;
    code_release(fresh.code);
    CodeResult stored = load_adder(102);
    return adds(stored, 102) && stored.origin == CODE_FROM_DISK ? 0 : 2;
}

static int load_without_proc(void) {
    if (!mount_own("/proc", 0, "size=4k")) return NO_MOUNTS;
    CodeResult fresh = load_adder(103);
    if (!adds(fresh, 103)) return 1;
    code_release(fresh.code);
    CodeResult stored = load_adder(103);
    return adds(stored, 103) && stored.origin == CODE_FROM_DISK ? 0 : 2;
}

/* The cache and the folder of temporary files are full: there are others. */
static int compile_beside_a_full_disk(void) {
    if (!mount_own(cache, 0, "size=4k,mode=0700")) return NO_MOUNTS;
    setenv("TMPDIR", cache, 1);
    CodeResult result = load_adder(104);
    return adds(result, 104) && result.cache == REASON_cache_unusable &&
                   result.origin == CODE_COMPILED
               ? 0
               : 1;
}

static void test_file_systems(void **state) {
    (void)state;
    mkdir(cache, 0700);
    assert_child(load_from_a_disk_that_does_not_execute);
    assert_child(load_without_proc);
    assert_child(compile_beside_a_full_disk);
}

static int work_files(const char *folder, const char *name) {
    char command[700];
    snprintf(command, sizeof command, "ls %s | grep -c '^%s' > %s/count", folder, name, root);
    int count = system(command) < 0 ? -1 : 0;
    FILE *file = fopen(in_root("count"), "r");
    if (!file || fscanf(file, "%d", &count) != 1) count = -1;
    if (file) fclose(file);
    return count;
}

/* What it would leave in the folder of temporary files goes with the folder that it gets. */
static void test_killed_compilers_leave_nothing(void **state) {
    (void)state;
    setenv("TMPDIR", root, 1);
    use_script("killed", "touch $TMPDIR/cc1234.o; kill -9 $$");
    CodeResult result = load_adder(105);
    assert_null(result.code);
    memory_free(result.message);
    assert_int_equal(work_files(root, "cc1234"), 0);
    assert_int_equal(work_files(cache, "work"), 0);
    cb_set_option("cache", "0");
    result = load_adder(105);
    memory_free(result.message);
    assert_int_equal(work_files(root, "carbide-"), 0);
    unsetenv("TMPDIR");
}

/* ---- what compilers leave ---------------------------------------------------------------- */

static cb_tensor *twice(cb_tensor *x) { return cb_mul(x, 2.0); }

static void test_strange_objects(void **state) {
    (void)state;
    char body[700];
    struct stat info;
    FILE *victim = fopen(in_root("victim"), "w");
    fputs("mine", victim);
    fclose(victim);
    const char *left[] = {"mkfifo \"$out\"",          "mkdir \"$out\"",
                          "ln -s /dev/zero \"$out\"", "mknod \"$out\" p",
                          "ln -s %s/victim \"$out\"", "cat /dev/null >\"$out\""};
    for (int i = 0; i < 6; i++) {
        snprintf(body, sizeof body, left[i], root);
        use_script("strange", body);
        CodeResult result = load_adder(106);
        assert_null(result.code);
        assert_int_equal(result.reason, REASON_compiler_failed);
        assert_true(result.milliseconds < 10000);
        assert_non_null(strstr(result.message, "work-"));
        memory_free(result.message);
    }
    assert_int_equal(stat(in_root("victim"), &info), 0);
    assert_int_equal(info.st_size, 4);
    assert_int_equal(info.st_mode & 0777, 0644);
    assert_int_equal(work_files(cache, "work"), 0);
}

/* Half an object, or one of something else, from a compiler that says that all is well. */
static void test_objects_that_lack_something(void **state) {
    (void)state;
    char body[200];
    for (int bytes = 1; bytes < 20000; bytes += bytes < 1000 ? 333 : 2048) {
        snprintf(body, sizeof body,
                 "cc \"$@\" && [ $(stat -c %%s \"$out\") -gt %d ] && truncate -s %d \"$out\"",
                 bytes, bytes);
        use_script("short", body);
        CodeResult result = load_adder(108);
        if (result.code) break; /* all that is mapped is there: names for debuggers lack */
        assert_int_equal(result.reason, REASON_compiler_failed);
        if (!strstr(result.message, "status 1")) assert_non_null(strstr(result.message, "short"));
        memory_free(result.message);
    }
    cache_clear(cache);
    use_script("other", "echo 'int other;' | cc -shared -fPIC -x c - -o \"$out\"");
    cb_scope_open();
    cb_function *f = cb_compile(twice);
    cb_tensor *y = cb_call(f, cb_ones(cb_dims(3)));
    assert_true(cb_item(cb_sum(y)) == 6);
    char *text = cb_explain(f);
    assert_non_null(strstr(text, "kernel.so: it lacks k0_mul"));
    assert_int_equal(entries(NULL), 0); /* such an object is not kept */
    cb_free_text(text);
    cb_function_free(f);
    cb_scope_close();
}

/* The compiler's file, mode 0777, lies where nobody else can reach it. */
static int compile_with_no_mask(void) {
    umask(0);
    CodeResult result = load_adder(107);
    if (!adds(result, 107) || result.cache != REASON_NONE) return 1;
    code_release(result.code);
    return load_adder(107).origin == CODE_FROM_DISK ? 0 : 2;
}

static void test_no_mask(void **state) {
    (void)state;
    assert_child(compile_with_no_mask);
}

/* Many objects pass through one number of a descriptor, each must be loaded for itself. */
static void test_each_object_is_its_own(void **state) {
    (void)state;
    Code *code[12];
    for (int again = 0; again < 2; again++) { /* compiled, then from the disk */
        for (int i = 0; i < 12; i++) {
            CodeResult result = load_adder(110 + i);
            assert_int_equal(result.origin == CODE_FROM_DISK, again);
            assert_true(adds(result, 110 + i));
            code[i] = result.code;
        }
        for (int i = 0; i < 12; i++) code_release(code[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_limit_on_files),  CASE(test_pipes),
        CASE(test_file_systems),    CASE(test_killed_compilers_leave_nothing),
        CASE(test_strange_objects), CASE(test_objects_that_lack_something),
        CASE(test_no_mask),         CASE(test_each_object_is_its_own),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
