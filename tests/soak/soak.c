/* A long-running host: calls and compilations leave the process as it was.
 *
 *     soak CALLS COMPILATIONS [BACKEND]      BACKEND: c (the default) or vm
 *
 * After a warm-up, these must not grow: blocks and bytes that Carbide holds, bytes of malloc (the
 * loader's and the C library's too), resident memory, mappings, open files, children, live tensors.
 * Each compilation is of a graph that was not there before, and goes past the disk cache, which
 * would otherwise grow by it. */
#define _GNU_SOURCE
#include "../settle.h"

#include <carbide.h>

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Sanitizers keep what was freed for a while, and shadow what was touched. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RESIDENT_SLACK = 400 << 20 };
#else
enum { RESIDENT_SLACK = 3 << 20 };
#endif
/* ThreadSanitizer maps more for the first threads: 8, after which 200 threads add none. */
#if defined(__SANITIZE_THREAD__)
enum { THREAD_MAPPINGS = 12 };
#else
enum { THREAD_MAPPINGS = 0 };
#endif
enum { HEAP_SLACK = 32 << 10, WARM_UP = 16, REMEMBERED = 64 /* freed functions: base/tomb.h */ };

/* ---- counting ------------------------------------------------------------------------------ */

static int64_t blocks, bytes;

static void *counting_resize(void *user, void *pointer, size_t size) {
    (void)user;
    int64_t before = pointer ? (int64_t)malloc_usable_size(pointer) : 0;
    void *grown = size ? realloc(pointer, size) : (free(pointer), NULL);
    if (size && !grown) return NULL;
    int64_t after = grown ? (int64_t)malloc_usable_size(grown) : 0;
    __atomic_add_fetch(&bytes, after - before, __ATOMIC_RELAXED);
    __atomic_add_fetch(&blocks, (grown != NULL) - (pointer != NULL), __ATOMIC_RELAXED);
    return grown;
}

typedef struct State {
    int64_t blocks, bytes, heap, resident, mappings, files, tensors;
} State;

static int64_t lines_of(const char *path) {
    FILE *file = fopen(path, "r");
    int64_t count = 0;
    for (int c; file && (c = getc(file)) != EOF;) count += c == '\n';
    if (file) fclose(file);
    return count;
}

static int64_t resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long long pages = 0;
    if (!file || fscanf(file, "%*s %lld", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static int64_t open_files(void) {
    DIR *listing = opendir("/proc/self/fd");
    int64_t count = 0;
    while (listing && readdir(listing)) count++;
    if (listing) closedir(listing);
    return count;
}

static State measure(void) {
    State s = {.mappings = lines_of("/proc/self/maps"), .files = open_files()};
    s.resident = resident_bytes();
    s.heap = (int64_t)mallinfo2().uordblks + (int64_t)mallinfo2().hblkhd;
    s.blocks = blocks;
    s.bytes = bytes;
    s.tensors = cb_memory().live_tensors;
    return s;
}

static int grew(const char *what, const char *name, int64_t before, int64_t after, int64_t slack) {
    if (after <= before + slack) return 0;
    printf("%s: %s grew from %lld to %lld\n", what, name, (long long)before, (long long)after);
    return 1;
}

/* spare: blocks that the cache of storages may keep, since more threads met in it than before. */
static int judge(const char *what, State a, State b, int spare) {
    int mappings = 4 + (spare ? THREAD_MAPPINGS : 0);
    int bad = grew(what, "blocks held", a.blocks, b.blocks, spare);
    bad += grew(what, "bytes held", a.bytes, b.bytes, spare << 10);
    bad += grew(what, "malloc", a.heap, b.heap, HEAP_SLACK);
    bad += grew(what, "resident memory", a.resident, b.resident, RESIDENT_SLACK);
    bad += grew(what, "mappings", a.mappings, b.mappings, mappings);
    bad += grew(what, "open files", a.files, b.files, 0);
    bad += grew(what, "live tensors", a.tensors, b.tensors, 0);
    printf("%-24s %6lld blocks, %7.1f KB held, %7.2f MB resident (%+.2f)\n", what,
           (long long)b.blocks, (double)b.bytes / 1e3, (double)b.resident / 1e6,
           (double)(b.resident - a.resident) / 1e6);
    return bad;
}

/* ---- programs ------------------------------------------------------------------------------ */

static double factor = 1.0;
static cb_tensor *weight, *state;

static cb_tensor *pointwise(cb_tensor *x) {
    return cb_mul(cb_tanh(cb_mul(x, factor)), cb_add(x, 1.0));
}

static cb_tensor *layer(cb_tensor *x) {
    return cb_softmax(cb_relu(cb_add(cb_matmul(x, weight), factor)), 1);
}

static cb_tensor *with_writes(cb_tensor *x) {
    cb_assign(state, cb_add(cb_mul(state, 0.9), cb_mean(x, 0)));
    cb_tensor *noise = cb_randn(cb_dims(8));
    return cb_add(cb_sum(cb_mul(x, state), 1), cb_mul(noise, factor));
}

static cb_tensor *with_break(cb_tensor *x) {
    cb_tensor *y = cb_sub(x, cb_mean(x));
    return cb_item(cb_sum(y)) > 1e9 ? y : cb_abs(cb_mul(y, factor));
}

static cb_tensor *failing(cb_tensor *x) { return cb_add(cb_mul(x, factor), cb_ones(cb_dims(3))); }

static cb_function_1 *const program[] = {pointwise, layer, with_writes, with_break, failing};
enum { PROGRAMS = sizeof program / sizeof *program };

static void call(cb_function *const *f, cb_tensor *x) {
    cb_scope_open();
    for (int i = 0; i < PROGRAMS; i++) {
        cb_tensor *y = cb_call(f[i], x);
        if (!y && program[i] != failing) {
            printf("call of program %d failed: %s\n", i, cb_error());
            exit(1);
        }
        cb_clear_error();
    }
    cb_scope_close();
}

static int run_calls(int64_t count, const char *options, cb_tensor *x) {
    cb_function *f[PROGRAMS];
    for (int i = 0; i < PROGRAMS; i++) f[i] = cb_compile(program[i], options);
    for (int i = 0; i < WARM_UP; i++) call(f, x);
    State before = measure();
    for (int64_t i = 0; i < count; i += PROGRAMS) call(f, x);
    int bad = judge("calls", before, measure(), 0);
    for (int i = 0; i < PROGRAMS; i++) cb_function_free(f[i]);
    return bad;
}

static void compile_once(int number, const char *options, cb_tensor *x) {
    factor = 1.0 + number / 65536.0; /* another constant: another kernel */
    cb_function *f = cb_compile(program[number % PROGRAMS], options);
    cb_scope_open();
    if (!cb_call(f, x) && program[number % PROGRAMS] != failing) {
        printf("compilation %d failed: %s\n", number, cb_error());
        exit(1);
    }
    char *text = cb_explain(f);
    bool fell = text && strstr(text, "fallback: ") && program[number % PROGRAMS] != failing;
    if (!text || fell) {
        printf("compilation %d fell back:\n%s\n", number, text ? text : "");
        exit(1);
    }
    cb_free_text(text);
    cb_clear_error();
    cb_scope_close();
    cb_function_free(f);
}

static int run_compilations(int count, const char *options, cb_tensor *x) {
    for (int i = 0; i < WARM_UP; i++) compile_once(i, options, x);
    State before = measure();
    for (int i = 0; i < count; i++) compile_once(WARM_UP + i, options, x);
    return judge("compilations", before, measure(), 0);
}

/* Threads come and go: what they keep to themselves goes with them. They meet while they hold the
 * most, so that the cache of storages is as full after the warm-up as it ever gets: left to the
 * scheduler, the first pair to overlap would look like growth. */
static pthread_barrier_t both_are_full;

static void *thread_main(void *argument) {
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(8, 16));
    for (int i = 0; i < 20; i++) cb_call((cb_function *)argument, x);
    pthread_barrier_wait(&both_are_full);
    cb_scope_close();
    return NULL;
}

static int run_threads(int count, const char *options) {
    cb_function *f = cb_compile(pointwise, options);
    State before = {0};
    pthread_barrier_init(&both_are_full, NULL, 2);
    for (int i = 0; i < WARM_UP + count; i++) {
        pthread_t thread[2];
        if (i == WARM_UP) before = measure();
        for (int t = 0; t < 2; t++) pthread_create(&thread[t], NULL, thread_main, f);
        for (int t = 0; t < 2; t++) pthread_join(thread[t], NULL);
    }
    int bad = judge("threads", before, measure(), 8);
    pthread_barrier_destroy(&both_are_full);
    cb_function_free(f);
    return bad;
}

int main(int argc, char **argv) {
    int64_t calls = argc > 1 ? atoll(argv[1]) : 1000;
    int compilations = argc > 2 ? atoi(argv[2]) : 10, bad = 0;
    char options[64];
    snprintf(options, sizeof options, "backend=%s", argc > 3 ? argv[3] : "c");
    cb_set_allocator((cb_allocator){counting_resize, NULL});
    cb_set_option("cache", "0");
    cb_scope_open();
    cb_tensor *x = cb_randn(cb_dims(8, 16));
    weight = cb_randn(cb_dims(16, 24));
    state = cb_keep(cb_zeros(cb_dims(16)));
    settle_slots();
    for (int i = 0; i < REMEMBERED; i++) cb_function_free(cb_compile(pointwise));
    bad += run_calls(calls, options, x);
    bad += run_compilations(compilations, options, x);
    bad += run_threads(compilations, options);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) bad++, puts("a child is left");
    cb_free(state);
    cb_scope_close();
    cb_cleanup();
    if (blocks) bad++, printf("%lld blocks are left at the end\n", (long long)blocks);
    return bad != 0;
}
