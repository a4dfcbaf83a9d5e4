/* Running the C compiler (compiler.h).
 *
 * No shell: posix_spawn of the program itself, in a process group of its own, with the source on
 * its standard input and a pipe for what it prints. When the time limit passes, or the compiler
 * exits and leaves children behind, the whole group is killed; the group leader is reaped last, so
 * its number cannot have been reused. The limit is one of processor time: on a busy machine a group
 * that goes on computing has more time by the clock, one that does nothing has not.
 *
 * -ffp-contract=fast: a * b + c may round once instead of twice, which only brings results nearer
 * to the exact ones; -fwrapv: integers wrap; no -ffast-math: NaN, infinities and signed zeros
 * behave. -mno-red-zone: gcc 12 and 13 lay out the frame of a function without calls again when
 * they find late that it needs no alignment; what is reached from the stack pointer in the red zone
 * then lies beside where it was, and an aligned store faults (test_codegen_compilers.c). */
#define _GNU_SOURCE /* memfd_create, pipe2 */
#include "jit/compiler.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/option.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#else
#include <sys/auxv.h>
#endif

enum { MESSAGE_BYTES = 8192, REMEMBER_MS = 1000, POLL_MS = 20 };
enum {
    LONGEST = 20,    /* times the limit, by the clock */
    WORKING = 50,    /* a group that has a 50th of a processor computes */
    HUNG_WAIT = 4,   /* times the limit, until a compiler that hung is tried again */
    HUNG_RETRIES = 3 /* so often, until one of them finishes */
};

extern char **environ;

/* ---- flags and CPU ----------------------------------------------------------------------- */

/* The levels' instructions by name: "-march=native" would be those of this processor, which
 * valgrind and older hypervisors do not run, and -march=x86-64-v3 is news to older compilers. */
typedef struct Flag {
    int level; /* from this one on */
    const char *text;
} Flag;

static const Flag flags[] = {
    {CPU_BASE, "-std=gnu11"},
    {CPU_BASE, "-O2"},
    {CPU_BASE, "-w"},
#ifdef __x86_64__
    {CPU_BASE, "-march=x86-64"},
    {CPU_BASE, "-mtune=native"},
    {CPU_BASE, "-mno-red-zone"},
    {CPU_V3, "-mavx2"},
    {CPU_V3, "-mfma"},
    {CPU_V3, "-mf16c"},
    {CPU_V3, "-mbmi"},
    {CPU_V3, "-mbmi2"},
    {CPU_V3, "-mlzcnt"},
    {CPU_V3, "-mmovbe"},
    {CPU_V3, "-mpopcnt"},
    {CPU_V4, "-mavx512f"},
    {CPU_V4, "-mavx512bw"},
    {CPU_V4, "-mavx512cd"},
    {CPU_V4, "-mavx512dq"},
    {CPU_V4, "-mavx512vl"},
    {CPU_V4, "-mprefer-vector-width=512"},
#else
    {CPU_BASE, "-mcpu=native"},
#endif
    {CPU_BASE, "-fopenmp-simd"},
    {CPU_BASE, "-fpeel-loops"}, /* strips of a row become straight code, sums registers */
    {CPU_BASE, "-fno-math-errno"},
    {CPU_BASE, "-fno-trapping-math"},
    {CPU_BASE, "-fwrapv"},
    {CPU_BASE, "-ffp-contract=fast"},
    {CPU_BASE, "-fno-stack-protector"},
    {CPU_BASE, "-fPIC"},
    {CPU_BASE, "-shared"},
    {CPU_BASE, "-nostdlib"},
};
enum { MOST_FLAGS = sizeof flags / sizeof flags[0] + 1 };

/* Heavy files: vector code for the last few elements of a loop doubles their compile time. clang
 * takes the parameter without minding it. */
#define NO_EPILOGUES "--param=vect-epilogues-nomask=0"

/* Slight files: they take a quarter of the time. */
static const char *const slight[] = {"-O1", "-fno-openmp-simd", "-fno-peel-loops"};

static struct {
    pthread_once_t once;
    char flags[1024], cpu[256];
} text = {.once = PTHREAD_ONCE_INIT};

/* Into list; their number. */
static int flags_of_level(const char *list[MOST_FLAGS]) {
    int count = 0;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (flags[i].level <= cpu_level()) list[count++] = flags[i].text;
    if (cpu_divides_slowly()) list[count++] = "-DSLOW_DIVISION";
    return count;
}

static void describe_cpu(char *out, size_t bytes) {
#ifdef __x86_64__
    static const unsigned leaf[][2] = {{1, 0}, {7, 0}, {7, 1}, {0x80000001, 0}};
    size_t used = (size_t)snprintf(out, bytes, "%s x86", cpu_level_name());
    for (int i = 0; i < 4; i++) {
        unsigned a = 0, b = 0, c = 0, d = 0;
        __get_cpuid_count(leaf[i][0], leaf[i][1], &a, &b, &c, &d);
        if (leaf[i][0] == 1) b = 0;            /* the core that runs */
        if (leaf[i][0] == 1) c &= ~(1u << 27); /* the system's choice, not the processor's */
        used += (size_t)snprintf(out + used, bytes - used, " %x.%x.%x.%x", a, b, c, d);
    }
#else
    snprintf(out, bytes, "hwcap %lx %lx", getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
#endif
}

static void write_texts(void) {
    const char *list[MOST_FLAGS];
    size_t used = 0;
    int count = flags_of_level(list);
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text.flags + used, sizeof text.flags - used, i ? " %s" : "%s",
                                 list[i]);
    snprintf(text.flags + used, sizeof text.flags - used,
             " heavy: " NO_EPILOGUES " slight: %s %s %s", slight[0], slight[1], slight[2]);
    describe_cpu(text.cpu, sizeof text.cpu);
}

const char *compiler_flags(void) {
    pthread_once(&text.once, write_texts);
    return text.flags;
}

const char *compiler_cpu(void) {
    pthread_once(&text.once, write_texts);
    return text.cpu;
}

/* ---- finding ----------------------------------------------------------------------------- */

/* A compiler that hangs costs its time a few times, not for every kernel. */
static struct {
    char real[COMPILER_PATH];
    int64_t changed, limit_ms; /* 0: none has hung */
    double until;              /* when it may be tried again */
    int tried;                 /* so often */
} hung;                        /* under the lock */

static struct {
    bool known, found;
    double until;
    char name[COMPILER_PATH], search[COMPILER_PATH]; /* option cc and PATH that it was found by */
    Compiler compiler;
} memory; /* under the lock */

static bool resolve(const char *path, Compiler *out) {
    struct stat info;
    char resolved[PATH_MAX];
    if (access(path, X_OK) || stat(path, &info) || !S_ISREG(info.st_mode)) return false;
    if (!realpath(path, resolved)) return false;
    snprintf(out->path, sizeof out->path, "%s", path); /* ccache goes by the name it is called by */
    snprintf(out->real, sizeof out->real, "%s", resolved);
    out->bytes = info.st_size;
    out->changed = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return true;
}

static bool search(const char *name, const char *path, Compiler *out) {
    char candidate[COMPILER_PATH];
    if (strchr(name, '/')) return resolve(name, out);
    if (!name[0]) return false;
    for (const char *at = path; *at;) {
        int bytes = (int)strcspn(at, ":");
        int written = snprintf(candidate, sizeof candidate, "%.*s/%s", bytes, at, name);
        if (bytes && written < (int)sizeof candidate && resolve(candidate, out)) return true;
        at += bytes + (at[bytes] == ':');
    }
    return false;
}

bool compiler_find(Compiler *compiler) {
    const char *name = option_text(OPTION_cc), *path = environment("PATH");
    if (!path) path = "/usr/local/bin:/usr/bin:/bin";
    lock_take(LOCK_compiler);
    bool same = memory.known && clock_ms() < memory.until && !strcmp(name, memory.name) &&
                !strncmp(path, memory.search, sizeof memory.search - 1);
    if (!same) {
        memory.found = search(name, path, &memory.compiler);
        snprintf(memory.name, sizeof memory.name, "%s", name);
        snprintf(memory.search, sizeof memory.search, "%s", path);
        memory.until = clock_ms() + REMEMBER_MS;
        memory.known = true;
    }
    bool found = memory.found;
    if (found) *compiler = memory.compiler;
    lock_give(LOCK_compiler);
    return found;
}

void compiler_forget(void) {
    lock_take(LOCK_compiler);
    memory.known = false;
    hung.limit_ms = 0;
    lock_give(LOCK_compiler);
}

/* ---- running ----------------------------------------------------------------------------- */

typedef struct CompilerRun {
    pid_t child;
    int pipe;                 /* what it prints */
    double deadline, longest; /* by the clock; for the former there may be more time */
    double checked, computed; /* when the deadline was last asked for more; processor time then */
    char words[MESSAGE_BYTES];
    size_t count;
    int status;
    bool exited, timed_out, stopped;
} CompilerRun;

typedef struct CommandLine {
    const char *const *arguments, *const *environment;
} CommandLine;

static int source_file(const char *source, size_t length) {
    int file = memfd_create("kernel.c", MFD_CLOEXEC);
    if (file < 0) return -1;
    if (!file_write(file, source, length)) {
        int error = errno;
        close(file);
        errno = error;
        return -1;
    }
    lseek(file, 0, SEEK_SET);
    return file;
}

/* This process's environment, with another folder for temporary files. The entries are those of
 * environ; NULL: out of memory. */
static const char **environment_with(const char *temporary) {
    size_t count = 0, kept = 0;
    while (environ[count]) count++;
    const char **out = memory_alloc((count + 2) * sizeof *out);
    for (size_t i = 0; out && i < count; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0) out[kept++] = environ[i];
    if (!out) return NULL;
    out[kept++] = temporary;
    out[kept] = NULL;
    return out;
}

/* posix_spawn reads the words, whatever its type says. */
static char *const *words_for_spawn(const char *const *words) {
    return (char *const *)(uintptr_t)words;
}

static int spawn(CompilerRun *run, const char *path, int input, int output,
                 const CommandLine *command) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_adddup2(&actions, output, 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                              POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int error =
        posix_spawn(&run->child, path, &actions, &attributes, words_for_spawn(command->arguments),
                    words_for_spawn(command->environment));
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* False at the end of what there is to read. */
static bool listen(CompilerRun *run, int wait_ms) {
    struct pollfd event = {.fd = run->pipe, .events = POLLIN};
    char beyond[512];
    int ready = poll(&event, 1, wait_ms);
    if (ready < 0) return errno == EINTR;
    if (ready == 0) return true;
    size_t room = sizeof run->words - 1 - run->count;
    ssize_t got = room ? read(run->pipe, run->words + run->count, room)
                       : read(run->pipe, beyond, sizeof beyond);
    if (got < 0) return errno == EINTR;
    if (room) run->count += (size_t)got;
    return got > 0;
}

/* Notes that the child is done, without reaping it. A host that ignores SIGCHLD leaves nothing to
 * wait for: then its output must speak. */
static void look(CompilerRun *run) {
    siginfo_t info = {0};
    int result = waitid(P_PID, (id_t)run->child, &info, WEXITED | WNOHANG | WNOWAIT);
    if (result < 0 && errno == ECHILD) run->exited = true;
    if (result == 0 && info.si_pid == run->child) run->exited = true;
}

/* Milliseconds of processor time that the process, if it is one of the group, had with all those of
 * its children that are gone. */
static double process_ms(const char *number, pid_t group) {
    char path[64], line[512];
    int process_group = 0;
    unsigned long ticks[4] = {0};
    snprintf(path, sizeof path, "/proc/%.20s/stat", number);
    FILE *file = fopen(path, "re");
    const char *after = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (after)
        sscanf(after, ") %*c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu",
               &process_group, &ticks[0], &ticks[1], &ticks[2], &ticks[3]);
    if (file) fclose(file);
    if (process_group != group) return 0;
    double sum = (double)ticks[0] + (double)ticks[1] + (double)ticks[2] + (double)ticks[3];
    return sum * 1000 / (double)sysconf(_SC_CLK_TCK);
}

/* 0 where the system does not tell. */
static double group_ms(pid_t group) {
    DIR *all = opendir("/proc");
    double sum = 0;
    for (struct dirent *entry; all && (entry = readdir(all));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            sum += process_ms(entry->d_name, group);
    if (all) closedir(all);
    return sum;
}

/* At the deadline: whether there is a later one, since others kept the processors from a group that
 * has not had the time of the limit, and had some of it since it was last looked at. */
static bool goes_on(CompilerRun *run) {
    double now = clock_ms(), limit = (double)option_int(OPTION_cc_timeout_ms);
    double computed = group_ms(run->child), left = limit - computed;
    bool works = (computed - run->computed) * WORKING >= now - run->checked;
    if (!works || left <= 0 || now >= run->longest) return false;
    run->checked = now, run->computed = computed;
    run->deadline = now + (left > limit / 8 ? left : limit / 8);
    return true;
}

static void wait_for(CompilerRun *run, Stop *stop) {
    bool open = true;
    while (!run->exited && !run->timed_out && !run->stopped) {
        double left = run->deadline - clock_ms();
        if (left < 0) left = 0;
        if (open)
            open = listen(run, left < POLL_MS ? (int)left : POLL_MS);
        else
            usleep(200);
        look(run);
        run->timed_out = !run->exited && clock_ms() >= run->deadline && !goes_on(run);
        run->stopped = !run->exited && is_stopped(stop);
    }
    kill(-run->child, SIGKILL);
    if (run->exited)
        for (double end = clock_ms() + POLL_MS; open && clock_ms() < end;) open = listen(run, 1);
    int status = 0;
    pid_t reaped;
    do reaped = waitpid(run->child, &status, 0);
    while (reaped < 0 && errno == EINTR);
    run->status = reaped == run->child ? status : 0;
}

static char *words_of(const CompilerRun *run, const char *path) {
    char note[256] = "";
    if (run->timed_out)
        snprintf(note, sizeof note, "%.160s did not finish within %lld ms\n", path,
                 (long long)option_int(OPTION_cc_timeout_ms));
    else if (WIFSIGNALED(run->status))
        snprintf(note, sizeof note, "%.160s was killed by signal %d\n", path,
                 WTERMSIG(run->status));
    else if (run->status)
        snprintf(note, sizeof note, "%.160s exited with status %d\n", path,
                 WEXITSTATUS(run->status));
    size_t bytes = strlen(note);
    char *message = memory_alloc(bytes + run->count + 1);
    if (!message) return NULL;
    memcpy(message, note, bytes);
    memcpy(message + bytes, run->words, run->count);
    message[bytes + run->count] = '\0';
    return message;
}

/* It could not even be started. */
static Reason refuse(const char *path, int error, char **message) {
    char words[COMPILER_PATH + 128];
    snprintf(words, sizeof words, "%s: %s\n", path, strerror(error));
    *message = memory_copy_text(words);
    return REASON_compiler_failed;
}

static Reason run_compiler(const char *path, int input, const CommandLine *command, Stop *stop,
                           char **message) {
    int ends[2];
    double now = clock_ms(), limit = (double)option_int(OPTION_cc_timeout_ms);
    CompilerRun run = {.deadline = now + limit, .longest = now + LONGEST * limit, .checked = now};
    if (pipe2(ends, O_CLOEXEC)) return refuse(path, errno, message);
    run.pipe = ends[0];
    int error = spawn(&run, path, input, ends[1], command);
    close(ends[1]);
    if (!error) wait_for(&run, stop);
    close(ends[0]);
    if (error) return refuse(path, error, message);
    if (run.stopped) return REASON_compile_stopped;
    if (!run.timed_out && run.status == 0) return REASON_NONE;
    *message = words_of(&run, path);
    return run.timed_out ? REASON_compiler_timeout : REASON_compiler_failed;
}

static bool is_hung(const Compiler *compiler) {
    return hung.limit_ms && hung.changed == compiler->changed && !strcmp(hung.real, compiler->real);
}

/* The time that it did not finish in, until it is another file or has more time, or is tried again
 * by one thread; 0: it may run. */
static int64_t hung_for(const Compiler *compiler) {
    int64_t limit = option_int(OPTION_cc_timeout_ms);
    lock_take(LOCK_compiler);
    int64_t before = is_hung(compiler) && limit <= hung.limit_ms ? hung.limit_ms : 0;
    if (before && hung.tried < HUNG_RETRIES && clock_ms() >= hung.until) {
        hung.tried++;
        hung.until = clock_ms() + (double)(HUNG_WAIT * before);
        before = 0;
    }
    lock_give(LOCK_compiler);
    return before;
}

static void note_end(const Compiler *compiler, bool timed_out) {
    lock_take(LOCK_compiler);
    bool same = is_hung(compiler);
    if (!timed_out && same) hung.limit_ms = 0;
    if (timed_out) {
        memcpy(hung.real, compiler->real, sizeof hung.real);
        hung.changed = compiler->changed;
        hung.limit_ms = option_int(OPTION_cc_timeout_ms);
        hung.until = clock_ms() + (double)(HUNG_WAIT * hung.limit_ms);
        if (!same) hung.tried = 0;
    }
    lock_give(LOCK_compiler);
}

static Reason give_up_on(const Compiler *compiler, int64_t limit_ms, char **message) {
    char words[COMPILER_PATH + 128];
    snprintf(words, sizeof words,
             "%s did not finish within %lld ms before, and is not run again for a while\n",
             compiler->path, (long long)limit_ms);
    *message = memory_copy_text(words);
    return REASON_compiler_timeout;
}

Reason compiler_run(const Compiler *compiler, const char *source, size_t length,
                    CompilerEffort effort, const char *output, Stop *stop, char **message) {
    static const char *const end[] = {"-x", "c", "-", "-o"};
    const char *words[MOST_FLAGS + 10];
    int64_t hung_ms = hung_for(compiler);
    if (hung_ms) return give_up_on(compiler, hung_ms, message);
    words[0] = compiler->path;
    int count = 1 + flags_of_level(words + 1);
    if (effort == EFFORT_NO_EPILOGUES) words[count++] = NO_EPILOGUES;
    for (size_t i = 0; effort == EFFORT_SLIGHT && i < sizeof slight / sizeof *slight; i++)
        words[count++] = slight[i];
    for (int i = 0; i < 4; i++) words[count++] = end[i];
    words[count++] = output;
    words[count] = NULL;
    char temporary[COMPILER_PATH];
    int folder = (int)(strrchr(output, '/') - output);
    snprintf(temporary, sizeof temporary, "TMPDIR=%.*s", folder, output);
    const char **variables = environment_with(temporary);
    if (!variables) return REASON_out_of_memory;
    CommandLine command = {words, variables};
    int input = source_file(source, length);
    Reason reason = input < 0 ? refuse(compiler->path, errno, message)
                              : run_compiler(compiler->path, input, &command, stop, message);
    if (input >= 0) close(input);
    memory_free(variables);
    if (reason != REASON_compile_stopped) note_end(compiler, reason == REASON_compiler_timeout);
    return reason;
}
