/* Loading generated code: the disk cache with every kind of damage, and compilers that are missing,
 * fail, hang or write garbage. Each must end in working code or in a reason. */
#define _GNU_SOURCE
#include "adder.h"
#include "children.h"

#include "base/memory.h"
#include "jit/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the cache --------------------------------------------------------------------------- */

static void test_second_load_comes_from_disk(void **state) {
    (void)state;
    struct stat info;
    CodeResult first = load_adder(1), same = load_adder(1);
    assert_ptr_equal(first.code, same.code); /* one object per process */
    assert_int_equal(same.origin, CODE_IN_PROCESS);
    assert_int_equal(first.origin, CODE_COMPILED);
    assert_int_equal(first.cache, REASON_NONE);
    code_release(same.code);
    assert_adds(first, 1);
    assert_int_equal(entries(NULL), 1);
    assert_int_equal(stat(cache, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    CodeResult warm = load_adder(1);
    assert_int_equal(warm.origin, CODE_FROM_DISK);
    print_message("cold %.1f ms, warm %.2f ms\n", first.milliseconds, warm.milliseconds);
    assert_adds(warm, 1);
    Code *code = load_adder(1).code;
    assert_null(code_function(code, "no_such_kernel"));
    code_release(code);
}

static void entry_path(char path[CACHE_PATH]) {
    char key[CACHE_KEY];
    assert_int_equal(entries(key), 1);
    cache_path(cache, key, path);
}

/* After each damage: compiled anew, replaced, and found again. */
static void assert_replaced(int number) {
    CodeResult again = load_adder(number);
    assert_int_equal(again.origin, CODE_COMPILED);
    assert_int_equal(again.cache, REASON_cache_damaged);
    assert_adds(again, number);
    CodeResult warm = load_adder(number);
    assert_int_equal(warm.origin, CODE_FROM_DISK);
    assert_adds(warm, number);
}

static void test_flipped_bytes(void **state) {
    (void)state;
    char path[CACHE_PATH];
    struct stat info;
    assert_adds(load_adder(2), 2);
    entry_path(path);
    stat(path, &info);
    for (int i = 0; i < 6; i++) {
        int file = open(path, O_RDWR);
        off_t at = i == 0 ? 0 : i == 5 ? info.st_size - 1 : info.st_size * i / 5;
        char byte;
        assert_int_equal(pread(file, &byte, 1, at), 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(file, &byte, 1, at), 1);
        close(file);
        assert_replaced(2);
    }
}

static void test_truncated_and_foreign_entries(void **state) {
    (void)state;
    char path[CACHE_PATH], other[CACHE_PATH + 8], command[3 * CACHE_PATH];
    struct stat info;
    assert_adds(load_adder(3), 3);
    entry_path(path);
    stat(path, &info);
    off_t sizes[] = {0, 10, info.st_size / 2, info.st_size - 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(truncate(path, sizes[i]), 0);
        assert_replaced(3);
    }
    unlink(path);
    assert_int_equal(symlink("/bin/sh", path), 0);
    assert_replaced(3);
    chmod(path, 0666); /* others could have written it */
    assert_replaced(3);
    snprintf(other, sizeof other, "%s.keep", path); /* a sound entry of another source */
    rename(path, other);
    cache_clear(cache);
    assert_adds(load_adder(4), 4);
    char of_four[CACHE_PATH];
    entry_path(of_four);
    snprintf(command, sizeof command, "cp %s %s", other, of_four);
    assert_int_equal(system(command), 0);
    assert_replaced(4);
    unlink(other);
}

/* Sealed under the adder's key with a checksum that fits. */
static void forge_adder(int number, const char *making) {
    char path[CACHE_PATH], command[2 * CACHE_PATH], source[256], description[CACHE_TEXT];
    char key[CACHE_KEY];
    mkdir(cache, 0700);
    snprintf(path, sizeof path, "%s/forged", cache);
    snprintf(command, sizeof command, "out=%s; %s", path, making);
    assert_int_equal(system(command), 0);
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    write_adder(number, source);
    assert_true(code_describe(source, strlen(source), description, sizeof description));
    cache_key(description, key);
    assert_true(cache_put(cache, key, description, file, path));
    close(file);
}

static void test_sound_entries_of_something_else(void **state) {
    (void)state;
    forge_adder(6, "echo 'int other;' | cc -shared -fPIC -x c - -o $out");
    assert_replaced(6);
    forge_adder(6, "echo no object >$out");
    assert_replaced(6);
}

static void test_unsafe_directories(void **state) {
    (void)state;
    assert_adds(load_adder(5), 5);
    chmod(cache, 0777);
    CodeResult open_to_all = load_adder(5);
    assert_int_equal(open_to_all.cache, REASON_cache_unsafe);
    assert_int_equal(open_to_all.origin, CODE_COMPILED);
    assert_adds(open_to_all, 5);
    chmod(cache, 0700);
    if (geteuid() == 0) {
        assert_int_equal(chown(cache, 12345, 12345), 0);
        CodeResult foreign = load_adder(5);
        assert_int_equal(foreign.cache, REASON_cache_unsafe);
        assert_adds(foreign, 5);
        assert_int_equal(chown(cache, 0, 0), 0);
    } else {
        print_message("not root: no directory of another user was tried\n");
    }
    CodeResult warm = load_adder(5);
    assert_int_equal(warm.origin, CODE_FROM_DISK);
    assert_adds(warm, 5);
}

static void test_unusable_directories(void **state) {
    (void)state;
    char path[400];
    path_in(path, "file");
    write_file(path, "not a directory", 0700);
    const char *bad[] = {path, "/proc/carbide", "/dev/null/carbide"};
    for (int i = 0; i < 3; i++) {
        cb_set_option("cache_dir", bad[i]);
        CodeResult result = load_adder(6);
        assert_int_equal(result.cache, REASON_cache_unusable);
        assert_adds(result, 6);
    }
    cb_set_option("cache", "0");
    cb_set_option("cache_dir", cache);
    assert_adds(load_adder(6), 6);
    assert_int_equal(entries(NULL), -1);
}

static void test_default_directory(void **state) {
    (void)state;
    char path[400], directory[CACHE_PATH];
    path_in(path, "xdg");
    cb_set_option("cache_dir", "");
    setenv("XDG_CACHE_HOME", path, 1);
    assert_int_equal(cache_directory(directory), REASON_NONE);
    assert_string_equal(directory + strlen(path), "/carbide");
    char *home = strdup(getenv("HOME") ? getenv("HOME") : "/");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", root, 1);
    assert_int_equal(cache_directory(directory), REASON_NONE);
    assert_string_equal(directory + strlen(root), "/.cache/carbide");
    unsetenv("HOME");
    assert_int_equal(cache_directory(directory), REASON_cache_unusable);
    setenv("HOME", home, 1);
    free(home);
}

/* In a child with a file system of its own: a page of disk. */
static void test_full_disk(void **state) {
    (void)state;
    enum { NO_MOUNTS = 77 };
    mkdir(cache, 0700);
    pid_t child = fork();
    if (child == 0) {
        bool mounted = !unshare(CLONE_NEWNS) &&
                       !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
                       !mount("none", cache, "tmpfs", 0, "size=4k,mode=0700");
        if (!mounted) _exit(NO_MOUNTS);
        CodeResult result = load_adder(7);
        leave_child(result.code && result.origin == CODE_COMPILED &&
                            result.cache == REASON_cache_unusable
                        ? 0
                        : 1);
    }
    int status;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) == NO_MOUNTS)
        skip_because("a small disk needs the right to mount, in a namespace of its own");
    assert_int_equal(status, 0);
}

static void test_trimming(void **state) {
    (void)state;
    char path[CACHE_PATH], work[400];
    assert_adds(load_adder(8), 8);
    for (int i = 0; i < 4; i++) { /* four strangers of 400 KiB, last used i + 1 days ago */
        char key[CACHE_KEY];
        snprintf(key, sizeof key, "%032d", i);
        cache_path(cache, key, path);
        write_file(path, "old", 0600);
        assert_int_equal(truncate(path, 400 << 10), 0);
        struct timespec times[2] = {{.tv_sec = time(NULL) - 86400 * (i + 1)}, {0}};
        times[1] = times[0];
        utimensat(AT_FDCWD, path, times, 0);
    }
    snprintf(work, sizeof work, "%s/work-1-1.so", cache); /* left by a crash, long ago */
    write_file(work, "", 0600);
    struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    utimensat(AT_FDCWD, work, past, 0);
    cb_set_option("cache_limit_mb", "1");
    assert_adds(load_adder(9), 9);
    assert_int_equal(entries(NULL), 4); /* 8, 9 and the two youngest strangers */
    cache_path(cache, "00000000000000000000000000000000", path);
    assert_int_equal(access(path, F_OK), 0);
    cache_path(cache, "00000000000000000000000000000002", path);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(work, F_OK), -1);
    cb_set_option("cache_limit_mb", "0");
    assert_adds(load_adder(10), 10); /* not kept, but running */
    assert_int_equal(entries(NULL), 0);
}

static void test_explaining(void **state) {
    (void)state;
    char description[CACHE_TEXT], stored[CACHE_TEXT], key[CACHE_KEY];
    const char *source = "void f(void) {}\n";
    Arena *arena = arena_new();
    Buffer why = buffer_new(arena);
    CodeResult result = code_load(source, strlen(source), (const char *[]){"f"}, 1, NULL);
    assert_true(code_describe(source, strlen(source), description, sizeof description));
    assert_int_equal(entries(key), 1);
    assert_true(cache_describe(cache, key, stored));
    assert_string_equal(stored, description);
    cache_why(cache, description, &why);
    assert_non_null(strstr(buffer_text(&why), "is there"));
    char *cpu = strstr(description, "\ncpu ");
    cpu[5] = '?';
    why = buffer_new(arena);
    cache_why(cache, description, &why);
    assert_non_null(strstr(buffer_text(&why), "wanted  cpu ?"));
    assert_null(strstr(buffer_text(&why), "flags"));
    /* Other code of the same compiler and processor is not near. */
    strstr(description, "\ncompiler ")[10] = '?';
    strcpy(stored, description);
    *strstr(stored, "source ") = 'S';
    cache_key(stored, key);
    assert_true(cache_set(cache, key, stored, "text"));
    why = buffer_new(arena);
    cache_why(cache, description, &why);
    assert_non_null(strstr(buffer_text(&why), "wanted  compiler ?"));
    assert_null(strstr(buffer_text(&why), "wanted  source"));
    assert_int_equal(cache_clear(cache), 2);
    why = buffer_new(arena);
    cache_why(cache, description, &why);
    assert_non_null(strstr(buffer_text(&why), "holds 0 entries, none of the same source"));
    code_release(result.code);
    arena_free(arena);
}

/* ---- compilers --------------------------------------------------------------------------- */

static void assert_refused(CodeResult result, Reason reason, const char *words) {
    assert_null(result.code);
    assert_int_equal(result.reason, reason);
    if (words) {
        assert_non_null(result.message);
        if (!strstr(result.message, words)) print_error("%s\n", result.message);
        assert_non_null(strstr(result.message, words));
    }
    memory_free(result.message);
    assert_true(entries(NULL) <= 0);
}

static void test_missing_compiler(void **state) {
    (void)state;
    static const struct {
        const char *name, *words;
    } wrong[] = {{"no-such-compiler", "cc is 'no-such-compiler', no program of PATH"},
                 {"/no/such/compiler", "cc is '/no/such/compiler', no program"},
                 {"", "cc is '', no program of PATH"},
                 {"/tmp", "cc is '/tmp', no program"},
                 {"/etc/passwd", "cc is '/etc/passwd', no program"}};
    for (int i = 0; i < 5; i++) {
        cb_set_option("cc", wrong[i].name);
        assert_refused(load_adder(60), REASON_no_compiler, wrong[i].words);
        assert_refused(load_adder(60), REASON_no_compiler, wrong[i].words);
    }
    cb_set_option("cc", "cc"); /* the answer was remembered for the name, not for good */
    assert_adds(load_adder(60), 60);
}

static void test_failing_compilers(void **state) {
    (void)state;
    use_script("fails", "echo 'cannot: out of luck' >&2; exit 3");
    assert_refused(load_adder(61), REASON_compiler_failed, "cannot: out of luck");
    assert_refused(load_adder(61), REASON_compiler_failed, "status 3");
    use_script("dies", "kill -9 $$");
    assert_refused(load_adder(61), REASON_compiler_failed, "signal 9");
    use_script("silent", "exit 0");
    assert_refused(load_adder(61), REASON_compiler_failed, "work-");
    use_script("garbage", "echo garbage > \"$out\"");
    assert_refused(load_adder(61), REASON_compiler_failed, "work-");
    use_script(
        "chatty",
        "i=0; while [ $i -lt 20000 ]; do echo a long line of words; i=$((i+1)); done; exit 1");
    assert_refused(load_adder(61), REASON_compiler_failed, "a long line");
    cb_set_option("cc", "cc");
    CodeResult wrong = code_load("int f(", 6, NULL, 0, NULL);
    assert_refused(wrong, REASON_compiler_failed, "error");
    assert_adds(load_adder(61), 61);
}

static bool is_running(const char *file) {
    char path[400];
    long process = 0;
    path_in(path, file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld", &process), 1);
    fclose(f);
    for (int i = 0; i < 100 && kill((pid_t)process, 0) == 0;
         i++) { /* an orphan is reaped by init, soon */
        char stat_path[64], line[256] = "";
        snprintf(stat_path, sizeof stat_path, "/proc/%ld/stat", process);
        FILE *s = fopen(stat_path, "r");
        if (!s) return false;
        bool zombie = fgets(line, sizeof line, s) && strstr(line, ") Z");
        fclose(s);
        if (zombie) return false;
        usleep(2000);
    }
    return kill((pid_t)process, 0) == 0;
}

static void test_hanging_compilers(void **state) {
    (void)state;
    char body[1000];
    cb_set_option("cc_timeout_ms", "300");
    snprintf(body, sizeof body,
             "echo waiting; echo $$ > %s/parent; sleep 1000 & echo $! > %s/child; wait", root,
             root);
    use_script("hangs", body);
    CodeResult result = load_adder(62);
    assert_true(result.milliseconds < 5000);
    assert_refused(result, REASON_compiler_timeout, "waiting");
    assert_false(is_running("parent"));
    assert_false(is_running("child"));
    result = load_adder(65); /* it is not waited for again, unless for longer */
    assert_true(result.milliseconds < 200);
    assert_refused(result, REASON_compiler_timeout, "before, and is not run again");
    cb_set_option("cc_timeout_ms", "400");
    assert_refused(load_adder(65), REASON_compiler_timeout, "waiting");
    cb_set_option("cc_timeout_ms", "20000"); /* done, but a child of it holds on to the pipe */
    snprintf(body, sizeof body, "sleep 1000 & echo $! > %s/child; exec cc \"$@\"", root);
    use_script("leaves", body);
    result = load_adder(62);
    assert_true(result.milliseconds < 10000);
    assert_adds(result, 62);
    assert_false(is_running("child"));
    cache_clear(cache);
    cb_set_option("cc_timeout_ms", "300"); /* closes its output and stays */
    use_script("quiet", "exec >/dev/null 2>&1 </dev/null; sleep 1000");
    assert_refused(load_adder(63), REASON_compiler_timeout, "did not finish");
}

/* What others have of the processors is not the compiler's time; what it spins away is. */
static void test_slow_machines(void **state) {
    (void)state;
    cb_set_option("cc_timeout_ms", "2000");
    use_script("waits", "for round in 1 2 3 4 5 6 7 8; do i=0; sleep 0.3;"
                        " while [ $i -lt 40000 ]; do i=$((i+1)); done; done; exec cc \"$@\"");
    CodeResult result = load_adder(66);
    assert_true(result.milliseconds > 2000);
    assert_adds(result, 66);
    cache_clear(cache);
    cb_set_option("cc_timeout_ms", "300");
    use_script("spins", "while :; do :; done");
    result = load_adder(67);
    assert_true(result.milliseconds < 5000);
    assert_refused(result, REASON_compiler_timeout, "did not finish");
}

static void test_hung_compilers_are_tried_again(void **state) {
    (void)state;
    char body[1000];
    cb_set_option("cc_timeout_ms", "300");
    snprintf(body, sizeof body, "[ -e %s/ran ] && exec cc \"$@\"; : > %s/ran; sleep 1000", root,
             root);
    use_script("once", body);
    assert_refused(load_adder(68), REASON_compiler_timeout, "did not finish");
    assert_refused(load_adder(68), REASON_compiler_timeout, "before, and is not run again");
    usleep(1300 * 1000);
    assert_adds(load_adder(68), 68);
    assert_adds(load_adder(69), 69);
    cache_clear(cache);
    cb_set_option("cc_timeout_ms", "50");
    use_script("never", "echo waiting; sleep 1000");
    assert_refused(load_adder(70), REASON_compiler_timeout, "waiting");
    for (int i = 0; i < 3; i++) {
        usleep(250 * 1000);
        assert_refused(load_adder(70), REASON_compiler_timeout, "waiting");
        assert_refused(load_adder(70), REASON_compiler_timeout, "before, and is not run again");
    }
    usleep(250 * 1000);
    assert_refused(load_adder(70), REASON_compiler_timeout, "before, and is not run again");
}

/* A host that ignores SIGCHLD leaves no exit status to wait for. */
static void test_ignored_children(void **state) {
    (void)state;
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    CodeResult good = load_adder(64);
    CodeResult bad = code_load("int f(", 6, NULL, 0, NULL);
    signal(SIGCHLD, before);
    assert_adds(good, 64);
    assert_null(bad.code);
    assert_int_equal(bad.reason, REASON_compiler_failed);
    memory_free(bad.message);
}

static void test_compilers_have_keys_of_their_own(void **state) {
    (void)state;
    assert_adds(load_adder(65), 65);
    use_script("wrapper", "exec cc \"$@\"");
    CodeResult other = load_adder(65);
    assert_int_equal(other.origin, CODE_COMPILED);
    assert_adds(other, 65);
    assert_int_equal(entries(NULL), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_second_load_comes_from_disk),
        CASE(test_flipped_bytes),
        CASE(test_truncated_and_foreign_entries),
        CASE(test_sound_entries_of_something_else),
        CASE(test_unsafe_directories),
        CASE(test_unusable_directories),
        CASE(test_default_directory),
        CASE(test_full_disk),
        CASE(test_trimming),
        CASE(test_explaining),
        CASE(test_missing_compiler),
        CASE(test_failing_compilers),
        CASE(test_hanging_compilers),
        CASE(test_slow_machines),
        CASE(test_hung_compilers_are_tried_again),
        CASE(test_ignored_children),
        CASE(test_compilers_have_keys_of_their_own),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
