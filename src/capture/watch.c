/* Option explain (CARBIDE_EXPLAIN): what became of every compiled function, at the end of the
 * program.
 *
 *     1, on     the summary of each, to stderr
 *     full      all that cb_explain says of each, to stderr
 *     FILE      the summaries, there; as a page where its name ends with .html (page.c).
 *               %p in it is the number of the process; a relative one is of the folder in
 *               which the first function is compiled
 *
 * Functions enter a list when they are compiled. One that is freed leaves its text behind, so that
 * it is told of, too. Without the option there is neither list nor text. A forked child tells of
 * nothing that its parent has watched: that would write over it.
 *
 * Invariant: the list holds functions that live, under the lock watch. */
#define _GNU_SOURCE /* program_invocation_short_name */
#include "capture/function.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "report/page.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Told { /* of a function that was freed */
    struct Told *next;
    char *text, *row; /* row: of the summary of a page, or NULL */
} Told;

enum { TARGET_BYTES = 4096 };

static struct {
    uint32_t process;    /* whose functions they are; 0: nothing is watched */
    Function *newest;    /* by watched: the one before */
    Told *first, **last; /* in the order of their end */
    FunctionPrint *print, *row;
    Totals totals;
    int count;
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
        fprintf(stderr, "carbide: the report cannot be written to %s: %s\n", watch.target,
                strerror(errno));
}

static void put_page(Buffer *out) {
    page_head(out, program_invocation_short_name);
    totals_print(&watch.totals, out);
    for (const Told *told = watch.first; told; told = told->next) put(out, told->row);
    put(out, "</table></div>\n");
    for (const Told *told = watch.first; told; told = told->next) put(out, told->text);
    page_foot(out);
}

static bool tell(Arena *arena) {
    if (!arena || arena_guard(arena)) return false;
    Buffer out = buffer_new(arena);
    if (watch.row) put_page(&out);
    for (const Told *told = watch.first; told && !watch.row; told = told->next)
        putf(&out, "%s\n", told->text);
    deliver(&out);
    return true;
}

static void free_told(Told *told) {
    memory_free(told->text);
    memory_free(told->row);
    memory_free(told);
}

static void put_asked(Function *function, Buffer *out) {
    function_name(function, out);
    put(out, "\n  it was not called since the program asked for its report\n");
}

/* What goes to a screen, and went to the program after the last call, is not told twice. */
static FunctionPrint *choose_print(Function *function) {
    bool asked = !*watch.target && atomic_load(&function->asked) == watch.print &&
                 atomic_load(&function->asked_calls) == atomic_load(&function->calls);
    return asked ? put_asked : watch.print;
}

/* What is told of it; false: memory ran out. Other threads may be calling it. */
static bool keep_text(Function *function) {
    if (!atomic_load(&function->calls)) return true;
    Told *told = memory_zalloc(sizeof *told);
    if (!told) return false;
    told->text = function_text(function, choose_print(function));
    if (told->text && watch.row) told->row = function_text(function, watch.row);
    if (!told->text || (watch.row && !told->row)) {
        free_told(told);
        return false;
    }
    totals_add(&watch.totals, function);
    *watch.last = told;
    watch.last = &told->next;
    return true;
}

/* Those that live, the oldest first. */
static bool keep_all(void) {
    Function *oldest = NULL;
    bool kept = true;
    for (Function *f = watch.newest, *before; f; f = before) {
        before = f->watched;
        f->watched = oldest;
        oldest = f;
    }
    watch.newest = NULL;
    for (Function *f = oldest; f; f = f->watched) kept &= keep_text(f);
    return kept;
}

static void tell_at_exit(void) {
    lock_take(LOCK_watch);
    if (watch.process == process_number()) {
        bool kept = keep_all();
        Arena *arena = arena_new();
        if (!tell(arena) || !kept) fprintf(stderr, "carbide: no memory for the report\n");
        arena_free(arena);
    }
    while (watch.first) {
        Told *next = watch.first->next;
        free_told(watch.first);
        watch.first = next;
    }
    watch.process = 0;
    lock_give(LOCK_watch);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* "report-%p.html" -> "/where/it/starts/report-1234.html": a daemon goes elsewhere later. */
static void set_target(const char *name) {
    const char *number = strstr(name, "%p");
    size_t folder = 0;
    *watch.target = '\0';
    if (*name && *name != '/' && getcwd(watch.target, sizeof watch.target - 1)) {
        folder = strlen(watch.target);
        watch.target[folder++] = '/';
    }
    if (number)
        snprintf(watch.target + folder, sizeof watch.target - folder, "%.*s%d%s",
                 (int)(number - name), name, (int)getpid(), number + 2);
    else
        snprintf(watch.target + folder, sizeof watch.target - folder, "%s", name);
}

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), ending = strlen(end);
    return length >= ending && !strcmp(name + length - ending, end);
}

/* A word like 2 or yes, or FULL, is a mistake sooner than a file of that name. */
static bool is_target(const char *name) {
    if (strpbrk(name, "./")) return true;
    fprintf(stderr,
            "carbide: the option explain is '%s', which is not 1, full, or a file as report.txt or "
            "report.html; it is taken as 1\n",
            name);
    return false;
}

/* The first function of the process. What the option says then is so until the end. */
static void start(const char *name) {
    static bool registered;
    if (!registered) registered = atexit(tell_at_exit) == 0;
    bool full = name && !strcmp(name, "full"), page = name && ends_with(name, ".html");
    watch.print = full ? explain_print : page ? function_section : summary_print;
    watch.row = page ? function_row : NULL;
    watch.totals = (Totals){0};
    watch.count = 0;
    watch.process = process_number();
    watch.newest = NULL; /* those of a parent are not ours to tell of */
    watch.first = NULL;
    watch.last = &watch.first;
    set_target(name && !full && is_target(name) ? name : "");
}

void watch_begin(Function *function) {
    const char *name = option_name(OPTION_explain);
    if (name && !*name) return;
    lock_take(LOCK_watch);
    if (watch.process != process_number()) start(name);
    function->watched = watch.newest;
    watch.newest = function;
    function->is_watched = true;
    function->number = ++watch.count;
    lock_give(LOCK_watch);
}

void watch_name(Function *function, const char *name, size_t length) {
    lock_take(LOCK_watch);
    snprintf(function->name, sizeof function->name, "%.*s", (int)length, name);
    lock_give(LOCK_watch);
}

void watch_end(Function *function) {
    if (!function->is_watched) return;
    lock_take(LOCK_watch);
    Function **at = &watch.newest;
    while (*at && *at != function) at = &(*at)->watched;
    if (*at) {
        *at = function->watched;
        keep_text(function);
    }
    lock_give(LOCK_watch);
}
