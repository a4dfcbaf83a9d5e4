/* Every system call of loading code, keeping texts and finding plugins fails, the n-th for each n:
 * the code works or there is a reason; no descriptor, child, memory or file stays behind, and the
 * same work succeeds afterwards. */
#define _GNU_SOURCE
#include "adder.h"
#include "children.h"
#include "failing_calls.h"

#include "base/memory.h"
#include "carbide.h"
#include "method/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- calls that fail --------------------------------------------------------------------- */

static bool without_proc, foreign; /* no /proc; another user's program */

WRAP(int, access, (const char *path, int mode), (path, mode), -1)
WRAP(int, stat, (const char *path, struct stat *info), (path, info), -1)
WRAP(int, lstat, (const char *path, struct stat *info), (path, info), -1)
WRAP(int, fstat, (int file, struct stat *info), (file, info), -1)
WRAP(int, fstatat, (int folder, const char *path, struct stat *info, int flags),
     (folder, path, info, flags), -1)
WRAP(int, fchmod, (int file, mode_t mode), (file, mode), -1)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1)
WRAP(off_t, lseek, (int file, off_t at, int from), (file, at, from), -1)
/* The error 0 is the end of the file. */
WRAP(ssize_t, pread, (int file, void *out, size_t bytes, off_t at), (file, out, bytes, at),
     fault.error ? -1 : 0)
WRAP(ssize_t, read, (int file, void *out, size_t bytes), (file, out, bytes), -1)
WRAP(ssize_t, write, (int file, const void *from, size_t bytes), (file, from, bytes), -1)
WRAP(int, mkostemp, (char *path, int flags), (path, flags), -1)
WRAP(char *, mkdtemp, (char *path), (path), NULL)
WRAP(char *, realpath, (const char *path, char *out), (path, out), NULL)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1)
WRAP(int, pipe2, (int *ends, int flags), (ends, flags), -1)
WRAP(int, posix_spawn,
     (pid_t * child, const char *path, const posix_spawn_file_actions_t *actions,
      const posix_spawnattr_t *attributes, char *const *words, char *const *variables),
     (child, path, actions, attributes, words, variables), fault.error)
WRAP(int, poll, (struct pollfd * events, nfds_t count, int wait), (events, count, wait), -1)
WRAP(int, waitid, (idtype_t kind, id_t id, siginfo_t *info, int flags), (kind, id, info, flags), -1)
WRAP(DIR *, opendir, (const char *path), (path), NULL)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails("open") ? -1 : __real_open(path, flags, mode);
}

int __real_close(int file);
int __wrap_close(int file);
int __wrap_close(int file) { /* it is closed in any case */
    int result = __real_close(file);
    return fails("close") ? -1 : result;
}

pid_t __real_waitpid(pid_t child, int *status, int flags);
pid_t __wrap_waitpid(pid_t child, int *status, int flags);
pid_t __wrap_waitpid(pid_t child, int *status, int flags) {
    if (!fails("waitpid")) return __real_waitpid(child, status, flags);
    int error = errno;
    if (error == ECHILD) __real_waitpid(child, NULL, flags); /* the host was faster */
    errno = error;
    return -1;
}

void *__real_dlopen(const char *path, int flags);
void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlopen(const char *path, int flags) {
    if (without_proc && strncmp(path, "/proc/", 6) == 0) return NULL;
    return fails("dlopen") ? NULL : __real_dlopen(path, flags);
}

unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type) {
    return foreign && type == AT_SECURE ? 1 : __real_getauxval(type);
}

static int64_t live; /* blocks of memory */

static void *allocate(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        if (pointer) live--;
        free(pointer);
        return NULL;
    }
    if (fails("memory")) return NULL;
    void *out = realloc(pointer, bytes);
    if (out && !pointer) live++;
    return out;
}

/* ---- what may be left behind ------------------------------------------------------------- */

static char temporary[400];

/* Names in a folder that begin so. */
static int count_names(const char *folder, const char *beginning) {
    DIR *listing = opendir(folder);
    int count = 0;
    for (struct dirent *item; listing && (item = readdir(listing));)
        count += item->d_name[0] != '.' && !strncmp(item->d_name, beginning, strlen(beginning));
    if (listing) closedir(listing);
    return count;
}

typedef struct Left {
    int descriptors, files;
    int64_t blocks;
} Left;

static Left look(void) {
    return (Left){.descriptors = count_names("/proc/self/fd", ""),
                  .files = count_names(cache, "work-") + count_names(temporary, ""),
                  .blocks = live};
}

static void assert_nothing_left(Left before, const char *call, int n) {
    Left after = look();
    if (after.descriptors != before.descriptors || after.files > before.files ||
        after.blocks != before.blocks)
        FAIL("%s %d: %d descriptors, %d files, %d blocks stay", call, n,
             after.descriptors - before.descriptors, after.files - before.files,
             (int)(after.blocks - before.blocks));
    if (waitpid(-1, NULL, WNOHANG) != -1) FAIL("%s %d: a child stays", call, n);
}

/* ---- the work ---------------------------------------------------------------------------- */

enum { NUMBER = 7 };
static const char kept[] = "fast 1.5\n", of[] = "carbide\ntuned for a test\n";

/* How it may end, from good to bad. */
typedef enum CallOutcome { WORKS, NOT_KEPT, REFUSED } CallOutcome;
static const char letters[] = "wnr";
static char said[400]; /* of the last that was refused */

static CallOutcome load(void) {
    long value = 1;
    code_cleanup(); /* the compiler is looked for again */
    CodeResult result = load_adder(NUMBER);
    if (!result.code) {
        snprintf(said, sizeof said, "%s: %.300s", reason_info(result.reason)->id,
                 result.message ? result.message : "");
        memory_free(result.message);
        assert_int_not_equal(result.reason, REASON_NONE);
        return REFUSED;
    }
    fault.call = NULL;
    assert_null(result.message);
    assert_int_equal(result.reason, REASON_NONE);
    code_function(result.code, "add")((void *[]){&value}, 0, 1, 0, NULL);
    assert_int_equal(value, 1 + NUMBER);
    code_release(result.code);
    return result.cache == REASON_NONE ? WORKS : NOT_KEPT;
}

static void empty_cache(void) { cache_clear(cache); }
static void fill_cache(void) { assert_int_equal(load(), WORKS); }

/* Kept under its description, and found again; or not kept, and not found. */
static CallOutcome keep_text(void) {
    char key[CACHE_KEY], text[64] = "";
    cache_key(of, key);
    bool set = cache_set(cache, key, of, kept);
    CacheLookup found = cache_get(cache, key, of, text, sizeof text);
    if (!set) assert_int_not_equal(found, CACHE_HIT);
    if (found == CACHE_HIT) assert_string_equal(text, kept);
    return found == CACHE_HIT ? WORKS : NOT_KEPT;
}

/* What is left by a crash long ago goes, sooner or later. */
static void leave_work(void) {
    char path[400];
    const struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    snprintf(path, sizeof path, "%s/work-old", cache);
    write_file(path, "", 0600);
    utimensat(AT_FDCWD, path, past, 0);
    assert_int_equal(load(), WORKS);
}

static CallOutcome trim(void) {
    char path[400];
    snprintf(path, sizeof path, "%s/work-old", cache);
    cache_trim(cache);
    fault.call = NULL;
    bool there = access(path, F_OK) == 0;
    unlink(path);
    return there ? NOT_KEPT : WORKS;
}

typedef struct ThreadWork {
    const char *name;
    void (*prepare)(void);
    CallOutcome (*run)(void);
    bool without_proc;
} ThreadWork;

enum { COLD, WARM, BARE, TEXT, TRIM, WORK_COUNT };
static const ThreadWork works[WORK_COUNT] = {
    [COLD] = {"compiling", empty_cache, load},
    [WARM] = {"loading from disk", fill_cache, load},
    [BARE] = {"loading without /proc", fill_cache, load, .without_proc = true},
    [TEXT] = {"keeping a text", empty_cache, keep_text},
    [TRIM] = {"trimming", leave_work, trim},
};

/* The worst that a call's failing may lead to, in the order of the works: w(orks), n(ot kept),
 * r(efused); -: the work does not make the call; *: it depends on who is faster, or on the key. And
 * what compiling then says, once at least. */
typedef struct Row {
    const char *call;
    int error;
    const char worst[WORK_COUNT + 1];
    const char *words;
} Row;

static const Row rows[] = {
    {"memory", ENOMEM, "rrrnw", "out_of_memory"},
    {"access", EACCES, "rrr--", "no_compiler"},
    {"stat", EACCES, "rrr--", "no_compiler"},
    {"lstat", EACCES, "n----", ""},
    {"fstat", EIO, "rrrn-", "left no object"},
    {"fstatat", ENOENT, "*---n", ""},
    {"fchmod", EPERM, "n--n-", ""},
    {"rename", EXDEV, "n--n-", ""},
    {"lseek", EIO, "n--n-", ""},
    {"pread", EIO, "rrrn-", "cut short"},
    {"pread", 0, "rrrn-", "cut short"},
    {"pread", EINTR, "wwww-", ""},
    {"read", EIO, "w----", ""},
    {"read", EINTR, "w----", ""},
    {"write", ENOSPC, "r-rn-", "No space left"},
    {"write", EINTR, "w-ww-", ""},
    {"mkostemp", EMFILE, "---n-", ""},
    {"mkdtemp", EACCES, "r-r--", "no folder takes temporary files"},
    {"realpath", ELOOP, "rrr--", "no_compiler"},
    {"memfd_create", EMFILE, "r-w--", "Too many open files"},
    {"pipe2", EMFILE, "r----", "Too many open files"},
    {"posix_spawn", EAGAIN, "r----", "temporarily unavailable"},
    {"poll", EIO, "w----", ""},
    {"poll", EINTR, "w----", ""},
    {"waitid", ECHILD, "*----", "killed by signal"},
    {"waitpid", ECHILD, "w----", ""},
    {"waitpid", EINTR, "w----", ""},
    {"open", EMFILE, "rrrn-", "Too many open files"},
    {"close", EIO, "rwrw-", "no folder takes temporary files"},
    {"opendir", EMFILE, "*---n", ""},
    {"dlopen", EMFILE, "rrr--", "dlopen failed"},
};

/* ---- one call after the other ------------------------------------------------------------ */

enum { ALL = 1000 };

/* The n-th call, and with ALL those behind it; what came of it, or -1: it is not made so often. */
static int fail_at(const Row *row, const ThreadWork *work, int n, int times) {
    fault.call = NULL;
    without_proc = false;
    work->prepare();
    without_proc = work->without_proc;
    Left before = look();
    fault = (typeof(fault)){row->call, n, times, row->error};
    reached = false;
    CallOutcome outcome = work->run();
    fault.call = NULL;
    assert_nothing_left(before, row->call, n);
    return reached ? (int)outcome : -1;
}

static void fail_each(const Row *row, int number) {
    const ThreadWork *work = &works[number];
    int found = -1;
    bool told = false;
    for (int times = 1; times <= ALL; times += ALL - 1) {
        if (row->error == EINTR && times == ALL) break; /* for ever is no interruption */
        for (int n = 0, outcome; (outcome = fail_at(row, work, n, times)) >= 0; n++) {
            if (outcome > found) found = outcome;
            if (outcome == REFUSED && strstr(said, row->words)) told = true;
        }
    }
    without_proc = false;
    char letter = found < 0 ? '-' : letters[found];
    if (letter != row->worst[number] && row->worst[number] != '*')
        FAIL("%s fails with %d: %s %c", row->call, row->error, work->name, letter);
    if (number == COLD && found == REFUSED && !told)
        FAIL("%s fails with %d: no '%s' in %s", row->call, row->error, row->words, said);
}

static void test_each_call_fails(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < WORK_COUNT; k++) fail_each(&rows[i], k);
}

/* ---- a process that is killed -------------------------------------------------------------- */

static void compile_and_die(int calls) {
    dies_in = calls;
    (void)load();
    leave_child(0);
}

/* What killed processes left, as if it were two hours old. */
static void age_work(void) {
    char path[700];
    const struct timespec past[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    DIR *listing = opendir(cache);
    for (struct dirent *item; (item = readdir(listing));) {
        snprintf(path, sizeof path, "%s/%s", cache, item->d_name);
        if (!strncmp(item->d_name, "work-", 5)) utimensat(AT_FDCWD, path, past, 0);
    }
    closedir(listing);
}

/* Before each system call of compiling, in turn: the cache that it leaves works, and what it has
 * begun goes later. */
static void test_killed_before_each_call(void **state) {
    (void)state;
    int kills = 0, status = 1, begun = 0;
    code_cleanup(); /* the compiler is another one than the first */
    for (; status != 0; kills++) {
        empty_cache();
        pid_t child = fork();
        if (child == 0) compile_and_die(kills + 1);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        begun += count_names(cache, "work-") > 0;
        for (int i = 0; i < 2; i++) {
            CodeResult result = load_adder(NUMBER);
            assert_int_equal(result.cache, REASON_NONE);
            assert_int_equal(i == 0 || result.origin, CODE_FROM_DISK);
            assert_adds(result, NUMBER);
        }
        age_work(); /* or the next one would look at one folder more */
        cache_sweep(cache);
        assert_int_equal(count_names(cache, "work-"), 0);
    }
    assert_true(kills > 20 && begun > 5);
    print_message("killed before each of %d calls, %d of them with work begun\n", kills - 1, begun);
}

/* ---- setting up -------------------------------------------------------------------------- */

/* A compiler that costs nothing: it copies what the real one made once. */
static int set_up_compiler(void **state) {
    char body[1000];
    if (set_up(state)) return -1;
    path_in(temporary, "temporary");
    mkdir(temporary, 0700);
    setenv("TMPDIR", temporary, 1);
    snprintf(body, sizeof body, "cc \"$@\" && cp \"$out\" %s/adder.so", root);
    use_script("compiler", body);
    if (load() != WORKS) return -1;
    snprintf(body, sizeof body, "cat >/dev/null; cp %s/adder.so \"$out\"; echo compiled", root);
    use_script("compiler", body);
    return 0;
}

/* ---- programs of another user ------------------------------------------------------------ */

static void test_foreign_programs_load_nothing(void **state) {
    (void)state;
    char directory[CACHE_PATH];
    assert_int_equal(load(), WORKS);
    foreign = true;
    CodeResult result = load_adder(NUMBER);
    Reason reason = cache_directory(directory);
    const Plugin *plugin = plugin_find("onednn");
    foreign = false;
    assert_null(result.code);
    assert_int_equal(result.reason, REASON_foreign_caller);
    assert_int_equal(reason, REASON_foreign_caller);
    assert_int_equal(plugin->reason, REASON_foreign_caller);
    assert_null(plugin->provider);
    assert_int_equal(load(), WORKS);
}

int main(void) {
    cb_set_allocator((cb_allocator){allocate, NULL});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_call_fails, set_up_compiler, tear_down),
        cmocka_unit_test_setup_teardown(test_killed_before_each_call, set_up_compiler, tear_down),
        cmocka_unit_test_setup_teardown(test_foreign_programs_load_nothing, set_up_compiler,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("system calls", tests, NULL, NULL);
}
