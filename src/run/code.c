/* Generated C -> functions in this process: memory table, disk cache, compiler (engine.h).
 *
 * In: a C file as text. Out: a loaded shared object. The key is a hash of everything that the
 * object depends on (code_describe); one object is loaded once per process, however many plans use
 * it. Two threads that want the same new object may both compile it; the second one to finish takes
 * the first one's.
 *
 * The table is a process singleton: a shared object is loaded into a process, not into a context.
 * It holds no references, so the last release unloads. A fork while another thread holds the lock
 * leaves the child with a free one (pthread_atfork). */
#include "base/clock.h"
#include "base/fork.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/option.h"
#include "codegen/c.h"
#include "run/cache.h"
#include "run/compiler.h"
#include "run/engine.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Code {
    Code *next;
    void *object;
    int references;
    char key[CACHE_KEY];
};

static struct {
    pthread_mutex_t mutex;
    pthread_once_t once;
    Code *loaded;
    uint64_t work; /* names of work files */
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static void lock(void) { pthread_mutex_lock(&table.mutex); }
static void unlock(void) { pthread_mutex_unlock(&table.mutex); }
WATCH_FORKS(table.mutex)

/* ---- the key ----------------------------------------------------------------------------- */

static bool describe(const Compiler *compiler, const char *source, size_t length, char *out,
                     size_t bytes) {
    int used = snprintf(out, bytes,
                        "carbide %s\nsource %016" PRIx64 "%016" PRIx64 " %zu\n"
                        "compiler %s %" PRId64 " %" PRId64 "\nflags %s\ncpu %s\n",
                        CB_VERSION, hash_bytes(source, length, 1), hash_bytes(source, length, 2),
                        length, compiler->real, compiler->bytes, compiler->changed,
                        compiler_flags(), compiler_cpu());
    return used > 0 && (size_t)used < bytes;
}

bool code_describe(const char *source, size_t length, char *description, size_t bytes) {
    Compiler compiler;
    return compiler_find(&compiler) && describe(&compiler, source, length, description, bytes);
}

/* ---- loaded code ------------------------------------------------------------------------- */

/* The caller holds the lock. */
static Code *find_loaded(const char *key) {
    for (Code *code = table.loaded; code; code = code->next)
        if (!strcmp(code->key, key)) {
            code->references++;
            return code;
        }
    return NULL;
}

static Code *take_loaded(const char *key) {
    lock();
    Code *code = find_loaded(key);
    unlock();
    return code;
}

/* The caller holds the lock. NULL: out of memory or not loadable (then *why says more). */
static Code *load_new(const char *path, const char *key, const char **why) {
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    Code *code = object ? memory_zalloc(sizeof *code) : NULL;
    if (code) {
        *code = (Code){.next = table.loaded, .object = object, .references = 1};
        memcpy(code->key, key, CACHE_KEY);
        table.loaded = code;
    } else if (object) {
        dlclose(object);
    } else {
        *why = dlerror();
    }
    return code;
}

/* Loads the object at path under its key, unless another thread did meanwhile. Under the lock: a
 * child forked while the dynamic linker works could never use it. */
static Code *load(const char *path, const char *key, const char **why) {
    *why = NULL;
    lock();
    Code *code = find_loaded(key);
    if (!code) code = load_new(path, key, why);
    unlock();
    return code;
}

KernelFunction *code_function(const Code *code, const char *name) {
    union {
        void *object;
        KernelFunction *function;
    } symbol = {dlsym(code->object, name)};
    return symbol.function;
}

void code_release(Code *code) {
    if (!code) return;
    lock();
    bool last = --code->references == 0;
    Code **at = &table.loaded;
    while (last && *at != code) at = &(*at)->next;
    if (last) *at = code->next, dlclose(code->object);
    unlock();
    if (last) memory_free(code);
}

void code_cleanup(void) { compiler_forget(); }

/* ---- compiling --------------------------------------------------------------------------- */

/* One attempt to get code, step by step. */
typedef struct Attempt {
    const char *source;
    size_t length;
    Compiler compiler;
    char description[CACHE_TEXT], key[CACHE_KEY];
    char directory[CACHE_PATH]; /* of the cache; "" when there is none */
    CodeResult result;
} Attempt;

static void give_up(Attempt *a, Reason reason, const char *words) {
    a->result.reason = reason;
    if (words && !a->result.message) a->result.message = memory_copy_text(words);
}

static void work_path(const char *directory, char path[CACHE_PATH]) {
    lock();
    uint64_t number = table.work++;
    unlock();
    snprintf(path, CACHE_PATH, "%.4000s/work-%ld-%" PRIu64 ".so", directory, (long)getpid(),
             number);
}

/* Whether the directory takes a file of the size of an object: a full disk is no fault of the
 * compiler. */
static bool has_room(const char *directory) {
    static const char block[64 << 10];
    char path[CACHE_PATH];
    work_path(directory, path);
    FILE *file = fopen(path, "wbxe");
    if (!file) return false;
    bool room = fwrite(block, sizeof block, 1, file) == 1;
    room &= fclose(file) == 0;
    unlink(path);
    return room;
}

/* Compiles to a file in the directory and loads it. keep: it becomes a cache entry. */
static bool compile_in(Attempt *a, const char *directory, bool keep) {
    char path[CACHE_PATH];
    const char *why = NULL;
    work_path(directory, path);
    memory_free(a->result.message);
    a->result.message = NULL;
    bool heavy = a->length >= strlen(C_HEAVY) && !memcmp(a->source, C_HEAVY, strlen(C_HEAVY));
    Reason reason =
        compiler_run(&a->compiler, a->source, a->length, heavy, path, &a->result.message);
    if (reason == REASON_NONE) {
        a->result.code = load(path, a->key, &why);
        if (!a->result.code) reason = why ? REASON_compiler_failed : REASON_out_of_memory;
    }
    if (a->result.code && keep && cache_put(directory, a->key, a->description, path)) {
        cache_trim(directory);
    } else {
        if (a->result.code && keep) a->result.cache = REASON_cache_unusable;
        unlink(path);
    }
    a->result.reason = REASON_NONE;
    if (!a->result.code) give_up(a, reason, why);
    return a->result.code != NULL;
}

static void compile_aside(Attempt *a) {
    char directory[CACHE_PATH];
    const char *root = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%.3900s/carbide-XXXXXX",
             root && root[0] ? root : "/tmp");
    if (!mkdtemp(directory)) {
        give_up(a, REASON_compiler_failed, "no directory for temporary files");
        return;
    }
    compile_in(a, directory, false);
    rmdir(directory);
}

static void compile(Attempt *a) {
    if (!a->directory[0]) {
        compile_aside(a);
        return;
    }
    if (compile_in(a, a->directory, true) || a->result.reason != REASON_compiler_failed) return;
    if (has_room(a->directory)) return;
    a->result.cache = REASON_cache_unusable;
    compile_aside(a);
}

static bool load_from_disk(Attempt *a) {
    char path[CACHE_PATH];
    const char *why;
    CacheLookup found = cache_find(a->directory, a->key, a->description);
    if (found == CACHE_HIT) {
        cache_path(a->directory, a->key, path);
        a->result.code = load(path, a->key, &why);
        if (!a->result.code) found = CACHE_DAMAGED;
    }
    if (found == CACHE_DAMAGED) a->result.cache = REASON_cache_damaged;
    a->result.from_disk = a->result.code != NULL;
    return a->result.from_disk;
}

static void attempt(Attempt *a) {
    if (!compiler_find(&a->compiler)) {
        give_up(a, REASON_no_compiler, NULL);
        return;
    }
    if (!describe(&a->compiler, a->source, a->length, a->description, sizeof a->description)) {
        give_up(a, REASON_compiler_failed, "the compiler's path is too long");
        return;
    }
    cache_key(a->description, a->key);
    a->result.code = take_loaded(a->key);
    if (a->result.code) return;
    if (option_int(OPTION_cache)) {
        a->result.cache = cache_directory(a->directory);
        if (a->result.cache != REASON_NONE)
            a->directory[0] = '\0';
        else if (load_from_disk(a))
            return;
    }
    compile(a);
}

CodeResult code_load(const char *source, size_t length) {
    double start = clock_ms();
    pthread_once(&table.once, watch_forks);
    Attempt *a = memory_zalloc(sizeof *a); /* too large for a small stack */
    if (!a) return (CodeResult){.reason = REASON_out_of_memory};
    a->source = source;
    a->length = length;
    attempt(a);
    CodeResult result = a->result;
    memory_free(a);
    if (result.code && result.message) {
        memory_free(result.message);
        result.message = NULL;
    }
    result.milliseconds = clock_ms() - start;
    return result;
}
