/* Disk cache of compiled kernels (cache.h): finding, checking, publishing, trimming. */
#define _GNU_SOURCE /* mkostemp */
#include "jit/cache.h"

#include "base/environment.h"
#include "base/file.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/option.h"
#include "jit/object.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char magic[8] = "CARBIDE1";

typedef struct Footer {
    char magic[8];
    uint64_t object_bytes, text_bytes, hash;
} Footer;

/* What is fresh may be about to be held. */
enum { ENTRY_LIMIT = 256 << 20, FRESH_SECONDS = 60, STALE_SECONDS = 3600 };

/* ---- the directory ----------------------------------------------------------------------- */

static bool choose_directory(char directory[CACHE_PATH]) {
    const char *set = option_text(OPTION_cache_dir), *xdg = environment("XDG_CACHE_HOME");
    const char *home = environment("HOME");
    int bytes = -1;
    if (set[0])
        bytes = snprintf(directory, CACHE_PATH, "%s", set);
    else if (xdg && xdg[0] == '/')
        bytes = snprintf(directory, CACHE_PATH, "%s/carbide", xdg);
    else if (home && home[0] == '/')
        bytes = snprintf(directory, CACHE_PATH, "%s/.cache/carbide", home);
    return bytes > 0 && bytes < CACHE_PATH - 64; /* room for names in it */
}

/* The folder of path that is there, the nearest one, is this user's. */
static bool below_own(const char *path) {
    char folder[CACHE_PATH];
    struct stat info;
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash; stat(folder, &info); *slash = '\0') {
        slash = strrchr(folder, '/');
        if (!slash || slash == folder) return false;
    }
    return info.st_uid == geteuid();
}

static void make_directories(const char *directory) {
    char path[CACHE_PATH];
    snprintf(path, sizeof path, "%s", directory);
    for (char *slash = path + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0700); /* fails when it is there, which stat will find */
    }
    mkdir(path, 0700);
}

Reason cache_directory(char directory[CACHE_PATH]) {
    struct stat info;
    if (environment_is_foreign()) return REASON_foreign_caller;
    if (!choose_directory(directory)) return REASON_cache_unusable;
    if (stat(directory, &info)) {
        if (!*option_text(OPTION_cache_dir) && !below_own(directory)) return REASON_cache_unsafe;
        make_directories(directory);
        if (stat(directory, &info)) return REASON_cache_unusable;
    }
    if (!S_ISDIR(info.st_mode)) return REASON_cache_unusable;
    bool ours = info.st_uid == geteuid() && !(info.st_mode & (S_IWGRP | S_IWOTH));
    if (!ours) return REASON_cache_unsafe;
    return access(directory, W_OK | X_OK) ? REASON_cache_unusable : REASON_NONE;
}

void cache_key(const char *description, char key[CACHE_KEY]) {
    size_t bytes = strlen(description);
    snprintf(key, CACHE_KEY, "%016llx%016llx",
             (unsigned long long)hash_bytes(description, bytes, 0x6361726269646530),
             (unsigned long long)hash_bytes(description, bytes, 0x6361726269646531));
}

void cache_path(const char *directory, const char *key, char path[CACHE_PATH]) {
    int length = (int)strnlen(directory, CACHE_PATH - 64);
    snprintf(path, CACHE_PATH, "%.*s/%.32s.so", length, directory, key);
}

/* ---- entries ----------------------------------------------------------------------------- */

/* The whole of a file of ours; NULL: it is none, or too large for an entry. */
static char *read_file(int file, size_t *bytes) {
    if (!object_is_ours(file, bytes)) return NULL;
    if (*bytes > ENTRY_LIMIT) return NULL;
    char *content = memory_alloc(*bytes);
    if (!content) errno = ENOMEM;
    for (size_t at = 0; content && at < *bytes;) {
        ssize_t got = pread(file, content + at, *bytes - at, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            memory_free(content);
            return NULL;
        }
        at += (size_t)got;
    }
    return content;
}

/* The description inside of a sound entry; *text_bytes is its length. NULL: damaged. */
static const char *check_entry(const char *content, size_t bytes, size_t *text_bytes) {
    Footer footer;
    if (bytes < sizeof footer) return NULL;
    size_t body = bytes - sizeof footer;
    memcpy(&footer, content + body, sizeof footer);
    if (memcmp(footer.magic, magic, sizeof magic)) return NULL;
    if (footer.object_bytes > body || footer.text_bytes != body - footer.object_bytes) return NULL;
    if (footer.hash != hash_bytes(content, body, 0)) return NULL;
    *text_bytes = (size_t)footer.text_bytes;
    return content + footer.object_bytes;
}

/* One entry, open and checked as a whole. */
typedef struct OpenEntry {
    CacheLookup found;
    int file; /* with a hit */
    char *content;
    const char *text; /* its description, in the content */
    size_t text_bytes;
} OpenEntry;

static OpenEntry open_entry(const char *directory, const char *key) {
    char path[CACHE_PATH];
    size_t bytes = 0;
    cache_path(directory, key, path);
    OpenEntry e = {.found = CACHE_DAMAGED, .file = object_open(path)};
    if (e.file < 0) {
        struct stat info;
        if (lstat(path, &info) && errno == ENOENT) e.found = CACHE_MISS;
        return e;
    }
    e.content = read_file(e.file, &bytes);
    e.text = e.content ? check_entry(e.content, bytes, &e.text_bytes) : NULL;
    if (e.text) e.found = CACHE_HIT;
    return e;
}

static void close_entry(OpenEntry *e) {
    memory_free(e->content);
    if (e->file >= 0) close(e->file);
}

/* The entry that has this description, marked as just used. */
static OpenEntry find_entry(const char *directory, const char *key, const char *description) {
    OpenEntry e = open_entry(directory, key);
    if (e.found != CACHE_HIT) return e;
    if (e.text_bytes != strlen(description) || memcmp(e.text, description, e.text_bytes) != 0)
        e.found = CACHE_DAMAGED;
    else
        (void)futimens(e.file, NULL); /* its modification time is its last use */
    return e;
}

CacheLookup cache_open(const char *directory, const char *key, const char *description, int *file) {
    OpenEntry e = find_entry(directory, key, description);
    if (e.found == CACHE_HIT) {
        *file = e.file;
        e.file = -1;
    }
    close_entry(&e);
    return e.found;
}

/* Appends description and footer to the object. */
static bool seal(int file, const char *description) {
    size_t object_bytes = 0, text_bytes = strlen(description);
    if (fchmod(file, 0600)) return false;
    char *object = read_file(file, &object_bytes);
    if (!object) return false;
    char *body = memory_resize(object, object_bytes + text_bytes);
    if (!body) {
        memory_free(object);
        return false;
    }
    memcpy(body + object_bytes, description, text_bytes);
    Footer footer = {.object_bytes = object_bytes, .text_bytes = text_bytes};
    memcpy(footer.magic, magic, sizeof magic);
    footer.hash = hash_bytes(body, object_bytes + text_bytes, 0);
    memory_free(body);
    return lseek(file, 0, SEEK_END) == (off_t)object_bytes &&
           file_write(file, description, text_bytes) && file_write(file, &footer, sizeof footer);
}

bool cache_put(const char *directory, const char *key, const char *description, int file,
               const char *path) {
    char entry[CACHE_PATH];
    cache_path(directory, key, entry);
    return seal(file, description) && rename(path, entry) == 0;
}

CacheLookup cache_get(const char *directory, const char *key, const char *description, char *out,
                      size_t bytes) {
    OpenEntry e = find_entry(directory, key, description);
    size_t object_bytes = e.found == CACHE_HIT ? (size_t)(e.text - e.content) : 0;
    if (object_bytes >= bytes) e.found = CACHE_DAMAGED;
    if (e.found == CACHE_HIT) {
        memcpy(out, e.content, object_bytes);
        out[object_bytes] = '\0';
    }
    close_entry(&e);
    return e.found;
}

bool cache_read(const char *directory, const char *key, CacheContent *out) {
    OpenEntry e = open_entry(directory, key);
    bool found = e.found == CACHE_HIT;
    if (found) {
        *out = (CacheContent){e.content, (size_t)(e.text - e.content), e.text_bytes};
        e.content = NULL;
    }
    close_entry(&e);
    return found;
}

bool cache_write(const char *directory, const char *key, const char *description,
                 const void *content, size_t bytes) {
    char path[CACHE_PATH];
    snprintf(path, sizeof path, "%.4000s/work-XXXXXX", directory);
    int file = mkostemp(path, O_CLOEXEC);
    if (file < 0) return false;
    bool ok =
        file_write(file, content, bytes) && cache_put(directory, key, description, file, path);
    close(file); /* what it fails to write is a damaged entry */
    if (!ok) unlink(path);
    return ok;
}

bool cache_set(const char *directory, const char *key, const char *description, const char *text) {
    return cache_write(directory, key, description, text, strlen(text));
}

/* ---- walking the directory ---------------------------------------------------------------- */

static bool is_key(const char *name) {
    return strspn(name, "0123456789abcdef") == CACHE_KEY - 1 &&
           !strcmp(name + CACHE_KEY - 1, ".so");
}

int cache_visit(const char *directory, CacheVisit *visit, void *user) {
    DIR *listing = opendir(directory);
    int count = 0;
    if (!listing) return -1;
    for (struct dirent *item; (item = readdir(listing));) {
        struct stat info;
        if (!is_key(item->d_name)) continue;
        if (fstatat(dirfd(listing), item->d_name, &info, AT_SYMLINK_NOFOLLOW)) continue;
        CacheEntry entry = {.bytes = info.st_size, .used = info.st_mtime};
        memcpy(entry.key, item->d_name, CACHE_KEY - 1);
        visit(user, &entry);
        count++;
    }
    closedir(listing);
    return count;
}

static bool is_left(int folder, const char *name, const struct stat *info) {
    time_t age = time(NULL) - info->st_mtime;
    return age > STALE_SECONDS || (age > FRESH_SECONDS && !object_is_held(folder, name));
}

/* Work files and folders of compilers (jit/object.h). */
void cache_sweep(const char *directory) {
    DIR *listing = opendir(directory);
    if (!listing) return;
    for (struct dirent *item; (item = readdir(listing));) {
        struct stat info;
        char path[CACHE_PATH + sizeof item->d_name];
        if (strncmp(item->d_name, "work-", 5)) continue;
        if (fstatat(dirfd(listing), item->d_name, &info, AT_SYMLINK_NOFOLLOW)) continue;
        if (!is_left(dirfd(listing), item->d_name, &info)) continue;
        snprintf(path, sizeof path, "%s/%s", directory, item->d_name);
        if (S_ISDIR(info.st_mode))
            object_remove_folder(path);
        else
            unlinkat(dirfd(listing), item->d_name, 0);
    }
    closedir(listing);
}

void cache_sweep_once(const char *directory) {
    static atomic_bool swept;
    if (!atomic_exchange(&swept, true)) cache_sweep(directory);
}

typedef struct Listing {
    CacheEntry *entry;
    int count, capacity;
    int64_t bytes;
} Listing;

static void add_entry(void *user, const CacheEntry *entry) {
    Listing *list = user;
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 64;
        CacheEntry *larger = memory_resize(list->entry, sizeof *entry * (size_t)capacity);
        if (!larger) return; /* the next trim sees it */
        list->entry = larger;
        list->capacity = capacity;
    }
    list->entry[list->count++] = *entry;
    list->bytes += entry->bytes;
}

static int older_first(const void *a, const void *b) {
    const CacheEntry *x = a, *y = b;
    if (x->used != y->used) return x->used < y->used ? -1 : 1;
    return strcmp(x->key, y->key);
}

static bool remove_entry(const char *directory, const char *key) {
    char path[CACHE_PATH];
    cache_path(directory, key, path);
    return unlink(path) == 0;
}

void cache_trim(const char *directory) {
    Listing list = {0};
    int64_t limit = option_int(OPTION_cache_limit_mb) << 20;
    cache_sweep(directory);
    cache_visit(directory, add_entry, &list);
    if (list.bytes > limit) {
        qsort(list.entry, (size_t)list.count, sizeof *list.entry, older_first);
        for (int i = 0; i < list.count && list.bytes > limit - limit / 8; i++) {
            remove_entry(directory, list.entry[i].key);
            list.bytes -= list.entry[i].bytes;
        }
    }
    memory_free(list.entry);
}

void cache_added(const char *directory, const char *key) {
    char path[CACHE_PATH];
    struct stat info;
    cache_path(directory, key, path);
    bool large = stat(path, &info) || info.st_size > option_int(OPTION_cache_limit_mb) << 10;
    if (large || key[0] == '0') cache_trim(directory);
}

int cache_clear(const char *directory) {
    Listing list = {0};
    int removed = 0;
    cache_visit(directory, add_entry, &list);
    for (int i = 0; i < list.count; i++) removed += remove_entry(directory, list.entry[i].key);
    memory_free(list.entry);
    return removed;
}

/* ---- explaining -------------------------------------------------------------------------- */

bool cache_describe(const char *directory, const char *key, char description[CACHE_TEXT]) {
    OpenEntry e = open_entry(directory, key);
    bool found = e.found == CACHE_HIT && e.text_bytes < CACHE_TEXT;
    if (found) {
        memcpy(description, e.text, e.text_bytes);
        description[e.text_bytes] = '\0';
    }
    close_entry(&e);
    return found;
}

static size_t line_bytes(const char *text) { return strcspn(text, "\n"); }
static const char *next_line(const char *text) {
    text += line_bytes(text);
    return *text ? text + 1 : text;
}

static bool same_line(const char *a, const char *b) {
    return line_bytes(a) == line_bytes(b) && !memcmp(a, b, line_bytes(a));
}

enum { SAME_SOURCE = 100 };

/* Equal lines of two descriptions; an equal source outweighs all others. */
static int likeness(const char *a, const char *b) {
    int like = 0;
    for (; *a && *b; a = next_line(a), b = next_line(b))
        if (same_line(a, b)) like += strncmp(a, "source ", strlen("source ")) ? 1 : SAME_SOURCE;
    return like;
}

static void put_differences(const char *want, const char *have, Buffer *out) {
    for (; *want && *have; want = next_line(want), have = next_line(have))
        if (!same_line(want, have))
            putf(out, "  wanted  %.*s\n  has     %.*s\n", (int)line_bytes(want), want,
                 (int)line_bytes(have), have);
}

/* The entry of the same source that is most like it, another one; false: there is none. */
static bool find_nearest(const char *directory, const char *description, char nearest[CACHE_KEY],
                         char nearest_text[CACHE_TEXT]) {
    char text[CACHE_TEXT], key[CACHE_KEY];
    Listing list = {0};
    int most = SAME_SOURCE - 1;
    cache_key(description, key);
    cache_visit(directory, add_entry, &list);
    for (int i = 0; i < list.count; i++) {
        if (!strcmp(list.entry[i].key, key)) continue;
        if (!cache_describe(directory, list.entry[i].key, text)) continue;
        int like = likeness(description, text);
        if (like <= most) continue;
        most = like;
        memcpy(nearest, list.entry[i].key, CACHE_KEY);
        memcpy(nearest_text, text, sizeof text);
    }
    memory_free(list.entry);
    return most >= SAME_SOURCE;
}

static void count_entry(void *user, const CacheEntry *entry) {
    (void)entry;
    ++*(int *)user;
}

void cache_why(const char *directory, const char *description, Buffer *out) {
    char key[CACHE_KEY], nearest[CACHE_KEY], text[CACHE_TEXT];
    cache_key(description, key);
    if (cache_describe(directory, key, text)) {
        putf(out, "%s is there\n", key);
    } else if (find_nearest(directory, description, nearest, text)) {
        putf(out, "%s is not there; of the same source the nearest entry is %s:\n", key, nearest);
        put_differences(description, text, out);
    } else {
        int count = 0;
        cache_visit(directory, count_entry, &count);
        putf(out, "%s is not there; the cache holds %d entr%s, none of the same source\n", key,
             count, count == 1 ? "y" : "ies");
    }
}

bool cache_other_key(const char *directory, const char *description, Buffer *out) {
    char nearest[CACHE_KEY], text[CACHE_TEXT];
    if (!find_nearest(directory, description, nearest, text)) return false;
    put_differences(description, text, out);
    return true;
}
