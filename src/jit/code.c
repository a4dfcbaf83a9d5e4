/* Generated C -> functions in this process: memory table, disk cache, compiler (code.h).
 *
 * In: a C file as text. Out: a loaded shared object. The key is a hash of everything that the
 * object depends on (code_describe); one object is compiled and loaded once per process, however
 * many plans use it: a thread that wants what another one is at waits for what comes of it.
 *
 * The table is a process singleton: a shared object is loaded into a process, not into a context.
 * It holds no references (those of jit/family.c are its own), so the last release unloads. */
#include "jit/code.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/lock.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/option.h"
#include "codegen/c/c.h"
#include "jit/cache.h"
#include "jit/compiler.h"
#include "jit/object.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In place of the compiler, of objects that artifacts brought (artifact.c): whichever compiler of
 * its own another machine had, and whichever processor that has the instructions. */
#define ANY_COMPILER "compiler any\n"

enum { STOP_MS = 20 /* between two looks at whether it is stopped */ };

struct Code {
    Code *next;
    void *object;
    int references;
    char key[CACHE_KEY];
    char stored[CACHE_KEY]; /* of its entry on the disk, if it has one */
};

static Code *all_loaded; /* under the lock */

/* ---- the key ----------------------------------------------------------------------------- */

/* What no machine changes comes first, as lines: artifacts keep that (code_describe_for_others). */
static bool describe(const Compiler *compiler, const char *source, size_t length, char *out,
                     size_t bytes) {
    int used = snprintf(
        out, bytes, "carbide %s\nflags %s\nsource %016" PRIx64 "%016" PRIx64 " %zu\n", CB_VERSION,
        compiler_flags(), hash_bytes(source, length, 1), hash_bytes(source, length, 2), length);
    if (used < 0 || (size_t)used >= bytes) return false;
    out += used, bytes -= (size_t)used;
    used = !compiler ? snprintf(out, bytes, ANY_COMPILER)
                     : snprintf(out, bytes, "compiler %s %" PRId64 " %" PRId64 "\ncpu %s\n",
                                compiler->real, compiler->bytes, compiler->changed, compiler_cpu());
    return used > 0 && (size_t)used < bytes;
}

bool code_describe_for_others(const char *description, char *out, size_t bytes) {
    char same[CACHE_TEXT];
    int used =
        snprintf(same, sizeof same, "carbide %s\nflags %s\nsource ", CB_VERSION, compiler_flags());
    if (used < 0 || strncmp(description, same, (size_t)used) != 0) return false;
    used += (int)strcspn(description + used, "\n");
    if (!description[used]) return false; /* cut short */
    return snprintf(out, bytes, "%.*s\n" ANY_COMPILER, used, description) < (int)bytes;
}

bool code_describe(const char *source, size_t length, char *description, size_t bytes) {
    Compiler compiler;
    return compiler_find(&compiler) && describe(&compiler, source, length, description, bytes);
}

/* ---- loaded code ------------------------------------------------------------------------- */

/* The caller holds the lock. */
static Code *find_loaded(const char *key) {
    for (Code *code = all_loaded; code; code = code->next)
        if (!strcmp(code->key, key)) {
            code->references++;
            return code;
        }
    return NULL;
}

/* One attempt to get code, step by step. */
typedef struct Attempt {
    struct Attempt *next; /* in attempts */
    uint32_t process;     /* that makes it: in a forked child it is nobody's */
    int users;            /* who makes it, and who waits for it */
    bool done;
    Stop *stop;
    const char *source;
    size_t length;
    const char *const *name; /* of the functions that the object must have */
    int names;
    Compiler compiler;
    char description[CACHE_TEXT], key[CACHE_KEY];
    char directory[CACHE_PATH]; /* of the cache; "" when there is none */
    CodeResult result;
    char *said; /* once it is done: the result's message, for those who waited */
} Attempt;

static Attempt *attempts; /* of all threads, that come to compiling; under the lock */

static void *load_whole(const Attempt *a, int file, char why[OBJECT_WHY]) {
    void *object = object_load(file, why);
    for (int i = 0; object && i < a->names; i++) {
        if (dlsym(object, a->name[i])) continue;
        snprintf(why, OBJECT_WHY, "it lacks %.200s", a->name[i]);
        dlclose(object);
        object = NULL;
    }
    return object;
}

/* The caller holds the lock. NULL: out of memory or not usable (then why says more). */
static Code *load_new(const Attempt *a, const char *stored, int file, char why[OBJECT_WHY]) {
    void *object = load_whole(a, file, why);
    Code *code = object ? memory_zalloc(sizeof *code) : NULL;
    if (code) {
        *code = (Code){.next = all_loaded, .object = object, .references = 1};
        memcpy(code->key, a->key, CACHE_KEY);
        memcpy(code->stored, stored, CACHE_KEY);
        all_loaded = code;
    } else if (object) {
        dlclose(object);
    }
    return code;
}

/* Loads the object that is open under its key, unless another thread did meanwhile. Under the lock:
 * a child forked while the dynamic linker works could never use it. */
static Code *load(const Attempt *a, const char *stored, int file, char why[OBJECT_WHY]) {
    *why = '\0';
    lock_take(LOCK_code);
    Code *code = find_loaded(a->key);
    if (!code) code = load_new(a, stored, file, why);
    lock_give(LOCK_code);
    return code;
}

KernelFunction *code_function(const Code *code, const char *name) {
    union {
        void *object;
        KernelFunction *function;
    } symbol = {dlsym(code->object, name)};
    return symbol.function;
}

Code *code_retain(Code *code) {
    lock_take(LOCK_code);
    code->references++;
    lock_give(LOCK_code);
    return code;
}

void code_release(Code *code) {
    if (!code) return;
    lock_take(LOCK_code);
    bool last = --code->references == 0;
    Code **at = &all_loaded;
    while (last && *at != code) at = &(*at)->next;
    if (last) *at = code->next, dlclose(code->object);
    lock_give(LOCK_code);
    if (last) memory_free(code);
}

char (*code_keys(int *count))[CACHE_KEY] {
    int found = 0;
    lock_take(LOCK_code);
    for (const Code *code = all_loaded; code; code = code->next) found++;
    char(*keys)[CACHE_KEY] = memory_alloc(sizeof *keys * (size_t)(found + 1));
    found = 0;
    for (const Code *code = all_loaded; keys && code; code = code->next)
        memcpy(keys[found++], code->stored, CACHE_KEY);
    lock_give(LOCK_code);
    *count = found;
    return keys;
}

void code_cleanup(void) { compiler_forget(); }

/* ---- compiling --------------------------------------------------------------------------- */

static void give_up(Attempt *a, Reason reason, const char *words) {
    a->result.reason = reason;
    if (words && !a->result.message) a->result.message = memory_copy_text(words);
}

/* What the compiler left at path is loaded and, if it is to be kept, becomes an entry. */
static Reason take_object(Attempt *a, const char *path, bool keep, char why[OBJECT_WHY]) {
    int file = object_take(path);
    if (file < 0) {
        snprintf(why, OBJECT_WHY, "the compiler left no object: %.300s: %s", path, strerror(errno));
        return REASON_compiler_failed;
    }
    a->result.code = load(a, a->key, file, why);
    bool loaded = a->result.code != NULL;
    if (loaded && keep && !cache_put(a->directory, a->key, a->description, file, path))
        a->result.cache = REASON_cache_unusable;
    close(file);
    if (loaded) return REASON_NONE;
    if (!*why) return REASON_out_of_memory;
    char said[OBJECT_WHY];
    memcpy(said, why, sizeof said);
    snprintf(why, OBJECT_WHY, "%.200s: %.300s", path, said);
    return REASON_compiler_failed;
}

static bool opens_with(const Attempt *a, const char *line) {
    return a->length >= strlen(line) && !memcmp(a->source, line, strlen(line));
}

/* Compiles in a folder that is there for this alone. */
static void compile_in(Attempt *a, const char *folder, bool keep) {
    char path[OBJECT_PATH], why[OBJECT_WHY] = "";
    snprintf(path, sizeof path, "%.4000s/kernel.so", folder);
    CompilerEffort effort = opens_with(a, C_SLIGHT)  ? EFFORT_SLIGHT
                            : opens_with(a, C_HEAVY) ? EFFORT_NO_EPILOGUES
                                                     : EFFORT_FULL;
    Reason reason =
        compiler_run(&a->compiler, a->source, a->length, effort, path, a->stop, &a->result.message);
    if (reason == REASON_NONE) reason = take_object(a, path, keep, why);
    if (reason != REASON_NONE) give_up(a, reason, *why ? why : NULL);
    if (a->result.code && keep) cache_added(a->directory, a->key);
}

static void compile(Attempt *a) {
    char folder[OBJECT_PATH];
    bool more = true, found = false;
    for (int place = 0; more && !found; place++) {
        found = object_folder(place, a->directory, folder, &more);
        if (!found && place == 0 && a->directory[0]) a->result.cache = REASON_cache_unusable;
        if (!found) continue;
        int held = object_hold(folder);
        compile_in(a, folder, place == 0);
        object_remove_folder(folder);
        if (held >= 0) close(held);
    }
    if (!found) give_up(a, REASON_compiler_failed, "no folder takes temporary files");
}

static bool load_from_disk(Attempt *a, const char *key, const char *description) {
    char why[OBJECT_WHY];
    int file = -1;
    CacheLookup found = cache_open(a->directory, key, description, &file);
    if (found == CACHE_HIT) {
        a->result.code = load(a, key, file, why);
        if (!a->result.code) found = CACHE_DAMAGED;
        close(file);
    }
    if (found == CACHE_DAMAGED) a->result.cache = REASON_cache_damaged;
    if (a->result.code) a->result.origin = CODE_FROM_DISK;
    return a->result.code;
}

/* ---- one attempt for all ------------------------------------------------------------------ */

/* Both with the lock. */
static Attempt *find_attempt(const char *key) {
    for (Attempt *a = attempts; a; a = a->next)
        if (a->process == process_number() && !strcmp(a->key, key)) return a;
    return NULL;
}

static void drop_attempt(Attempt *a) {
    if (--a->users) return;
    memory_free(a->said);
    memory_free(a);
}

/* What another thread's attempt has come to is this one's result, too. Neither is one that was
 * stopped, nor one whose code is gone already: true, it is to be made. With the lock. */
static bool wait_for_other(Attempt *a, Attempt *other) {
    other->users++;
    while (!other->done && !is_stopped(a->stop))
        if (a->stop)
            lock_wait_ms(LOCK_code, STOP_MS);
        else
            lock_wait(LOCK_code);
    bool failed = other->done && other->result.reason != REASON_NONE;
    bool again = other->done && (!failed || other->result.reason == REASON_compile_stopped);
    if (!other->done)
        give_up(a, REASON_compile_stopped, NULL);
    else if (!again)
        give_up(a, other->result.reason, other->said);
    drop_attempt(other);
    return again;
}

/* True when it is for this thread to make the code, which end_attempt must then be told of. */
static bool begin_attempt(Attempt *a) {
    Attempt *other = NULL;
    bool mine = false;
    lock_take(LOCK_code);
    do {
        a->result.code = find_loaded(a->key);
        other = a->result.code ? NULL : find_attempt(a->key);
        mine = !a->result.code && !other;
    } while (other && wait_for_other(a, other));
    if (a->result.code) a->result.origin = CODE_IN_PROCESS;
    if (mine) {
        a->process = process_number();
        a->next = attempts;
        attempts = a;
    }
    lock_give(LOCK_code);
    return mine;
}

static void end_attempt(Attempt *a) {
    lock_take(LOCK_code);
    Attempt **at = &attempts;
    while (*at != a) at = &(*at)->next;
    *at = a->next;
    a->done = true;
    if (a->users > 1 && a->result.message) a->said = memory_copy_text(a->result.message);
    lock_wake(LOCK_code);
    lock_give(LOCK_code);
}

/* What an artifact brought from another machine. */
static bool load_artifact(Attempt *a) {
    char key[CACHE_KEY], description[CACHE_TEXT];
    if (!describe(NULL, a->source, a->length, description, sizeof description))
        return false; /* untested: the flags are some hundred bytes */
    cache_key(description, key);
    return load_from_disk(a, key, description);
}

static void give_up_without_compiler(Attempt *a) {
    char words[320];
    const char *name = option_text(OPTION_cc);
    snprintf(words, sizeof words, "cc is '%.250s', no program%s", name,
             strchr(name, '/') ? "" : " of PATH");
    give_up(a, REASON_no_compiler, words);
}

static void make(Attempt *a, bool compiles) {
    if (option_int(OPTION_cache)) {
        a->result.cache = cache_directory(a->directory);
        if (a->result.cache != REASON_NONE)
            a->directory[0] = '\0';
        else
            cache_sweep_once(a->directory);
        if (a->directory[0] && (load_from_disk(a, a->key, a->description) || load_artifact(a)))
            return;
    }
    if (compiles)
        compile(a);
    else
        give_up_without_compiler(a);
}

static void attempt(Attempt *a) {
    if (environment_is_foreign()) {
        give_up(a, REASON_foreign_caller, NULL);
        return;
    }
    bool compiles = compiler_find(&a->compiler);
    /* Without a compiler, an object is known as what an artifact would bring. */
    const Compiler *compiler = compiles ? &a->compiler : NULL;
    if (!describe(compiler, a->source, a->length, a->description, sizeof a->description)) {
        give_up(a, REASON_compiler_failed, "the compiler's path is too long");
        return;
    }
    cache_key(a->description, a->key);
    if (!begin_attempt(a)) return;
    make(a, compiles);
    end_attempt(a);
}

CodeResult code_load(const char *source, size_t length, const char *const *name, int names,
                     Stop *stop) {
    double start = clock_ms();
    Attempt *a = memory_zalloc(sizeof *a); /* too large for a small stack */
    if (!a) return (CodeResult){.reason = REASON_out_of_memory};
    a->source = source;
    a->length = length;
    a->name = name;
    a->names = names;
    a->stop = stop;
    a->users = 1;
    attempt(a);
    CodeResult result = a->result;
    lock_take(LOCK_code);
    drop_attempt(a);
    lock_give(LOCK_code);
    if (result.code && result.message) {
        memory_free(result.message);
        result.message = NULL;
    }
    result.milliseconds = clock_ms() - start;
    return result;
}
