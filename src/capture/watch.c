/* Option explain (CARBIDE_EXPLAIN): what became of every compiled function, at the end of the
 * program.
 *
 *     1, on     the summary of each, to stderr
 *     full      all that cb_explain says of each, to stderr
 *     FILE      the summaries; %p in its name is the number of the process
 *
 * Functions enter a list when they are compiled. One that is freed leaves its text behind, so that
 * it is told of, too. Without the option there is neither list nor text. A forked child tells of
 * nothing that its parent has watched: that would write over it.
 *
 * Invariant: the list holds functions that live, under the lock watch. */
#include "capture/function.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Told { /* of a function that was freed */
    struct Told *next;
    char *text;
} Told;

enum { TARGET_BYTES = 4096 };

static struct {
    uint32_t process;    /* whose functions they are; 0: nothing is watched */
    Function *newest;    /* by watched: the one before */
    Told *first, **last; /* in the order of their end */
    FunctionPrint *print;
    char target[TARGET_BYTES]; /* a path; "": stderr */
} watch;

/* ---- the end --------------------------------------------------------------------------------- */

static bool write_all(int file, void *user) {
    const Buffer *out = user;
    return file_write(file, buffer_text(out), out->length);
}

static void deliver(Buffer *out) {
    if (!*watch.target)
        write_all(STDERR_FILENO, out);
    else if (!file_save(watch.target, write_all, out))
        fprintf(stderr, "carbide: the report cannot be written to %s\n", watch.target);
}

static void put_living(Buffer *out) { /* oldest first */
    Function **all = NULL;
    for (Function *f = watch.newest; f; f = f->watched) push(out->arena, all, f);
    for (int i = length(all) - 1; i >= 0; i--) {
        if (!atomic_load(&all[i]->calls)) continue;
        watch.print(all[i], out);
        put(out, "\n");
    }
}

static void tell(Arena *arena) {
    if (arena_guard(arena)) {
        fprintf(stderr, "carbide: no memory for the report\n");
        return;
    }
    Buffer out = buffer_new(arena);
    for (const Told *told = watch.first; told; told = told->next) putf(&out, "%s\n", told->text);
    put_living(&out);
    deliver(&out);
}

static void tell_at_exit(void) {
    lock_take(LOCK_watch);
    if (watch.process == process_number()) {
        Arena *arena = arena_new();
        if (arena) tell(arena);
        arena_free(arena);
    }
    while (watch.first) {
        Told *next = watch.first->next;
        memory_free(watch.first->text);
        memory_free(watch.first);
        watch.first = next;
    }
    watch.process = 0;
    lock_give(LOCK_watch);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* "report-%p.html" -> "report-1234.html" */
static void set_target(const char *name) {
    const char *number = strstr(name, "%p");
    if (number)
        snprintf(watch.target, sizeof watch.target, "%.*s%d%s", (int)(number - name), name,
                 (int)getpid(), number + 2);
    else
        snprintf(watch.target, sizeof watch.target, "%s", name);
}

/* The first function of the process. What the option says then is so until the end. */
static void start(const char *name) {
    static bool registered;
    if (!registered) registered = atexit(tell_at_exit) == 0;
    bool full = name && !strcmp(name, "full");
    watch.print = full ? explain_print : summary_print;
    watch.process = process_number();
    watch.newest = NULL; /* those of a parent are not ours to tell of */
    watch.first = NULL;
    watch.last = &watch.first;
    set_target(name && !full ? name : "");
}

void watch_begin(Function *function) {
    const char *name = option_name(OPTION_explain);
    if (name && !*name) return;
    lock_take(LOCK_watch);
    if (watch.process != process_number()) start(name);
    function->watched = watch.newest;
    watch.newest = function;
    function->is_watched = true;
    lock_give(LOCK_watch);
}

/* What is told of it when it is gone; nothing, when memory ran out. */
static void keep_text(Function *function) {
    char *text = function_text(function, watch.print);
    Told *told = text ? memory_zalloc(sizeof *told) : NULL;
    if (!told) {
        memory_free(text);
        return;
    }
    told->text = text;
    *watch.last = told;
    watch.last = &told->next;
}

void watch_end(Function *function) {
    if (!function->is_watched) return;
    bool called = atomic_load(&function->calls) > 0;
    lock_take(LOCK_watch);
    Function **at = &watch.newest;
    while (*at && *at != function) at = &(*at)->watched;
    if (*at) {
        *at = function->watched;
        if (called) keep_text(function);
    }
    lock_give(LOCK_watch);
}
