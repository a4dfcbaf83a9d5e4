/* `carbide cache`: what the disk cache of compiled kernels holds, why a case is not served from it,
 * and how to empty it.
 *
 *     carbide cache list          key, size, last use, and the kernels in it
 *     carbide cache why CASE      the entry that the case would use, or how the nearest one differs
 *     carbide cache clear
 *     carbide cache export FILE   everything that other machines like this one can use, as one file
 *     carbide cache import FILE   what another machine has exported */
#include "jit/cache.h"
#include "capture/function.h"
#include "cases.h"
#include "commands.h"
#include "jit/artifact.h"
#include "jit/code.h"
#include "screen.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

const ArgumentRow cache_rows[] = {
    SUBJECT_ROWS(0),
    {NULL, ARGUMENT_FLAG, 0, NULL, NULL},
};

static bool find_directory(char directory[CACHE_PATH]) {
    Reason reason = cache_directory(directory);
    if (reason == REASON_NONE) return true;
    fprintf(stderr, "carbide cache: %s; %s\n", reason_info(reason)->text,
            reason_info(reason)->hint);
    return false;
}

/* ---- list ---------------------------------------------------------------------------------- */

typedef struct List {
    const char *directory;
    int64_t bytes;
} List;

enum { MOST_NAME = 36 }; /* a row has 80 columns */

/* A name as kernels have them, k0_exp_sum, at this place; its length, 0: none. */
static size_t kernel_name(const char *at, const char *end) {
    const char *p = at;
    if (end - p < 4 || *p++ != 'k' || *p < '0' || *p > '9') return 0;
    while (p < end && *p >= '0' && *p <= '9') p++;
    if (p == end || *p++ != '_') return 0;
    while (p < end && ((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '_')) p++;
    return p < end && !*p ? (size_t)(p - at) : 0;
}

/* The functions of an object are in its table of names, each behind a zero; the first one, and how
 * many more. */
static void print_kernels(const char *directory, const char *key) {
    static char bytes[1 << 16];
    char path[CACHE_PATH], first[MOST_NAME + 1] = "";
    cache_path(directory, key, path);
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    int kernels = 0;
    for (size_t i = 1; i < count; i++) {
        size_t length = bytes[i - 1] ? 0 : kernel_name(bytes + i, bytes + count);
        if (length && !kernels++) snprintf(first, sizeof first, "%.*s", (int)length, bytes + i);
        i += length;
    }
    if (file) fclose(file);
    if (kernels) printf("  %s", first);
    if (kernels > 1) printf(" +%d", kernels - 1);
    if (!kernels) printf("  measurements");
}

static void print_entry(void *user, const CacheEntry *entry) {
    List *list = user;
    static char description[CACHE_TEXT];
    char used[32] = "";
    time_t when = (time_t)entry->used;
    struct tm local;
    if (localtime_r(&when, &local)) strftime(used, sizeof used, "%m-%d %H:%M", &local);
    printf("%.12s %7.1f kB  %s", entry->key, (double)entry->bytes / 1e3, used);
    if (cache_describe(list->directory, entry->key, description))
        print_kernels(list->directory, entry->key);
    else
        printf("  damaged");
    fputc('\n', stdout);
    list->bytes += entry->bytes;
}

static int run_list(const char *directory) {
    List list = {directory, 0};
    cache_sweep(directory);
    int count = cache_visit(directory, print_entry, &list);
    printf("%d %s, %.1f kB, in %s\n", count, count == 1 ? "entry" : "entries",
           (double)list.bytes / 1e3, directory);
    return count < 0 ? STATUS_FAILED : STATUS_OK;
}

/* ---- why ----------------------------------------------------------------------------------- */

/* The generated files of the case, which belong to the function. Compiles without the cache: the
 * question does not change the answer. */
static ExecutableInfo case_code(const Subject *subject, cb_function **fast) {
    cb_set_option("cache", "0");
    *fast = subject_compile(subject, NULL);
    if (!*fast || !subject_call(subject, *fast)) {
        screen_error("cache", "the case failed");
        return (ExecutableInfo){.source = NULL};
    }
    const Entry *entry = atomic_load(&(*fast)->first);
    ExecutableInfo info = {.source = NULL};
    if (entry) info = executable_info(entry->executable);
    if (!info.source) fputs("carbide cache: the case has no generated kernel\n", stderr);
    return info;
}

static bool explain_file(const char *directory, const char *source, size_t bytes) {
    static char description[CACHE_TEXT];
    if (!code_describe(source, bytes, description, sizeof description)) {
        fprintf(stderr, "carbide cache: cc is '%s', no program, so nothing is looked up\n",
                option_text(OPTION_cc));
        return false;
    }
    Arena *arena = arena_new();
    if (!arena || arena_guard(arena)) {
        arena_free(arena);
        return false;
    }
    Buffer text = buffer_new(arena);
    cache_why(directory, description, &text);
    fputs(buffer_text(&text), stdout);
    printf("the key is the hash of\n%s", description);
    arena_free(arena);
    return true;
}

static int run_why(const char *directory, const char *name, SubjectOptions options) {
    const BenchCase *row = case_find(name);
    Subject subject;
    cb_function *fast = NULL;
    if (!row) return STATUS_USAGE;
    if (!subject_open(&subject, row, options)) return STATUS_FAILED;
    ExecutableInfo info = case_code(&subject, &fast);
    bool done = info.source;
    for (int i = 0; i < info.files && done; info.source += info.file_bytes[i++])
        done = explain_file(directory, info.source, info.file_bytes[i]);
    cb_function_free(fast);
    subject_close(&subject);
    return done ? STATUS_OK : STATUS_FAILED;
}

static int run_clear(const char *directory) {
    int count = cache_clear(directory);
    cache_sweep(directory);
    printf("%d %s removed from %s\n", count, count == 1 ? "entry" : "entries", directory);
    return STATUS_OK;
}

static int run_file(const char *verb, const char *path) {
    int count = 0;
    bool saves = !strcmp(verb, "export");
    cb_status status =
        saves ? artifacts_save(path, ARTIFACT_ALL, &count) : artifacts_load(path, &count);
    if (status != CB_OK) {
        screen_error("cache", "failed");
        return STATUS_FAILED;
    }
    printf("%d %s %s %s\n", count, count == 1 ? "entry" : "entries",
           saves ? "saved to" : "taken from", path);
    return STATUS_OK;
}

static void guess_verb(const char *word) {
    static const char *const verbs[] = {"list", "why", "clear", "export", "import"};
    Guess guess = guess_begin(word);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (!strcmp(verbs[i], word)) {
            const char *const takes[] = {"nothing", "one CASE", "nothing", "one FILE", "one FILE"};
            fprintf(stderr, "carbide cache: %s takes %s\n", word, takes[i]);
            return;
        }
        guess_try(&guess, verbs[i]);
    }
    fprintf(stderr, "carbide cache: there is no '%s'", word);
    guess_print(&guess, stderr);
    fputc('\n', stderr);
}

int command_cache(int argc, char **argv) {
    SubjectOptions options = SUBJECT_OPTIONS_DEFAULT;
    const char *word[MAX_WORDS];
    char directory[CACHE_PATH];
    int words = arguments_parse("cache", cache_rows, argc, argv, &options, word);
    if (words < 0) return STATUS_USAGE;
    bool list = words == 1 && !strcmp(word[0], "list");
    bool clear = words == 1 && !strcmp(word[0], "clear");
    bool why = words == 2 && !strcmp(word[0], "why");
    bool file = words == 2 && (!strcmp(word[0], "export") || !strcmp(word[0], "import"));
    if (!list && !clear && !why && !file) {
        if (words) guess_verb(word[0]);
        fputs("usage: carbide cache list | why CASE | clear | export FILE | import FILE\n", stderr);
        return STATUS_USAGE;
    }
    if (file) return run_file(word[0], word[1]);
    if (!find_directory(directory)) return STATUS_FAILED;
    if (list) return run_list(directory);
    return clear ? run_clear(directory) : run_why(directory, word[1], options);
}
