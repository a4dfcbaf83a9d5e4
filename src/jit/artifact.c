/* Saving and loading artifacts: kernels that were compiled here, for machines like this one.
 *
 * A file holds entries of the kernel cache: objects, each under a description that leaves out the
 * compiler and the processor that happened to make it (code_describe_for_others), and times of
 * the tuner, which are those of one processor and keep their description. What all have in common
 * is the fit: a machine that has another one takes nothing.
 *
 *     header | carbide 0.1.0, level v4, flags -O2 ... | description, object | description, object
 *
 * The whole file is checked before any of it is taken. A checksum finds damage; it is no signature,
 * so a file must be root's or this user's, and nobody else's to write. */
#include "jit/artifact.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/reason.h"
#include "base/worker.h"
#include "jit/cache.h"
#include "jit/code.h"
#include "jit/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIT_BYTES = 2048, SMALL_BYTES = 16 << 10 /* of an entry of the tuner, at the most */ };
static const int64_t most_bytes = 1 << 30; /* of a file */

static void write_fit(char fit[FIT_BYTES]) {
    snprintf(fit, FIT_BYTES, "carbide %s\nlevel %s\nflags %s\n", CB_VERSION, cpu_level_name(),
             compiler_flags());
}

/* The directory of the cache; an error when there is none. */
static cb_status find_directory(const char *what, char directory[CACHE_PATH]) {
    if (!option_int(OPTION_cache))
        return fail(CB_ERR_IO, "%s: the option cache is off, and kernels are not kept", what);
    Reason reason = cache_directory(directory);
    if (reason == REASON_NONE) return CB_OK;
    return fail(CB_ERR_IO, "%s: %s", what, reason_info(reason)->text);
}

/* ---- saving ---------------------------------------------------------------------------------- */

typedef struct Saving {
    const char *directory;
    int which;
    char (*loaded)[CACHE_KEY]; /* of the code that was loaded when it began */
    int loaded_count;
    Buffer items;
    int count, kernels;
    bool failed; /* out of memory */
} Saving;

static bool is_loaded(const Saving *s, const char *key) {
    for (int i = 0; i < s->loaded_count; i++)
        if (!strcmp(s->loaded[i], key)) return true;
    return false;
}

/* What the tuner measured here. */
static bool is_tuned_here(const char *description, char out[CACHE_TEXT]) {
    char tuned[FIT_BYTES];
    int used = snprintf(tuned, sizeof tuned, TUNED_TEXT, CB_VERSION, compiler_cpu());
    bool here = !strncmp(description, tuned, (size_t)used);
    if (here) snprintf(out, CACHE_TEXT, "%s", description);
    return here;
}

static void put_item(Saving *s, const char *description, const CacheContent *content) {
    size_t text_bytes = strlen(description);
    ArtifactItem item = {.text_bytes = (uint32_t)text_bytes, .object_bytes = content->object_bytes};
    if (arena_guard(s->items.arena)) { /* whoever calls has more to free */
        s->failed = true;
        return;
    }
    put_bytes(&s->items, (const char *)&item, sizeof item);
    put_bytes(&s->items, description, text_bytes);
    put_bytes(&s->items, content->content, content->object_bytes);
    s->count++;
}

static void save_entry(void *user, const CacheEntry *entry) {
    Saving *s = user;
    char description[CACHE_TEXT], out[CACHE_TEXT];
    CacheContent content;
    bool loaded = is_loaded(s, entry->key), wanted = loaded || s->which == ARTIFACT_ALL;
    if (s->failed || (!wanted && entry->bytes > SMALL_BYTES)) return;
    errno = 0;
    if (!cache_read(s->directory, entry->key, &content)) {
        s->failed = errno == ENOMEM;
        return;
    }
    snprintf(description, sizeof description, "%.*s", (int)content.text_bytes,
             content.content + content.object_bytes);
    bool kernel = wanted && code_describe_for_others(description, out, sizeof out);
    if (kernel || is_tuned_here(description, out)) put_item(s, out, &content);
    s->kernels += loaded && kernel;
    memory_free(content.content);
}

typedef struct ArtifactFile {
    ArtifactHeader header;
    const Buffer *rest;
} ArtifactFile;

static bool write_file(int file, void *user) {
    const ArtifactFile *a = user;
    return file_write(file, &a->header, sizeof a->header) &&
           file_write(file, buffer_text(a->rest), a->rest->length);
}

/* Of the header from bytes on, and of the rest. */
static uint64_t hash_of(const ArtifactHeader *header, const char *rest) {
    const char *from = (const char *)&header->bytes;
    uint64_t first = hash_bytes(from, (size_t)((const char *)(header + 1) - from), 0);
    return hash_bytes(rest, header->bytes, first);
}

static bool put_fit(Saving *s) {
    char fit[FIT_BYTES];
    write_fit(fit);
    if (arena_guard(s->items.arena)) return false;
    put(&s->items, fit);
    return true;
}

static cb_status save(const char *path, Saving *s) {
    if (!s->loaded || !put_fit(s)) return fail_memory(0);
    size_t fit_bytes = s->items.length;
    cache_visit(s->directory, save_entry, s);
    if (s->failed) return fail_memory(0);
    if (s->which == ARTIFACT_LOADED && s->kernels < s->loaded_count)
        return fail(CB_ERR_IO, "save_artifacts: of %d loaded files of kernels %d are in the cache",
                    s->loaded_count, s->kernels);
    ArtifactHeader header = {
        .bytes = s->items.length, .fit_bytes = (uint32_t)fit_bytes, .items = (uint32_t)s->count};
    memcpy(header.magic, ARTIFACT_MAGIC, sizeof header.magic);
    header.hash = hash_of(&header, buffer_text(&s->items));
    ArtifactFile file = {header, &s->items};
    if (file_save(path, write_file, &file)) return CB_OK;
    return fail_file("save_artifacts", path);
}

cb_status artifacts_save(const char *path, int which, int *count) {
    char directory[CACHE_PATH];
    cb_status status = find_directory("save_artifacts", directory);
    if (status != CB_OK) return status;
    Arena *arena = arena_new();
    if (!arena) return fail_memory(0);
    worker_wait(NULL);
    Saving s = {.directory = directory, .which = which, .items = buffer_new(arena)};
    s.loaded = code_keys(&s.loaded_count);
    status = save(path, &s);
    *count = s.count;
    memory_free(s.loaded);
    arena_free(arena);
    return status;
}

/* ---- loading --------------------------------------------------------------------------------- */

static cb_status refuse(const char *path, const char *why) {
    return fail(CB_ERR_IO, "load_artifacts: %s: %s", path, why);
}

static bool is_trusted(const struct stat *info) {
    bool owner = info->st_uid == 0 || info->st_uid == geteuid();
    return S_ISREG(info->st_mode) && owner && !(info->st_mode & (S_IWGRP | S_IWOTH));
}

/* The whole file, as what was looked at; NULL with an error. */
static char *read_open(const char *path, int file, size_t *bytes) {
    struct stat info;
    if (fstat(file, &info) || !is_trusted(&info)) {
        refuse(path, "it is no file, or not one that root or this user alone may write");
        return NULL;
    }
    if (info.st_size > most_bytes || info.st_size < (off_t)sizeof(ArtifactHeader)) {
        refuse(path, "no artifacts, by its size");
        return NULL;
    }
    *bytes = (size_t)info.st_size;
    char *content = memory_alloc(*bytes);
    if (!content) {
        fail_memory(*bytes);
        return NULL;
    }
    size_t at = 0;
    for (ssize_t got = 1; at < *bytes && got > 0; at += got > 0 ? (size_t)got : 0) do
            got = read(file, content + at, *bytes - at);
        while (got < 0 && errno == EINTR);
    if (at == *bytes) return content;
    memory_free(content);
    refuse(path, "it cannot be read");
    return NULL;
}

/* The next item of what is left; NULL: none that is sound. */
static const char *next_item(const char *at, const char *end, ArtifactItem *item,
                             char description[CACHE_TEXT]) {
    if ((size_t)(end - at) < sizeof *item) return NULL;
    memcpy(item, at, sizeof *item);
    at += sizeof *item;
    uint64_t left = (uint64_t)(end - at);
    if (item->text_bytes >= CACHE_TEXT || item->text_bytes > left) return NULL;
    if (item->object_bytes > left - item->text_bytes) return NULL;
    snprintf(description, CACHE_TEXT, "%.*s", (int)item->text_bytes, at);
    return strlen(description) == item->text_bytes ? at + item->text_bytes : NULL;
}

static const char *find_fault(const ArtifactHeader *header, const char *rest, size_t bytes) {
    char description[CACHE_TEXT];
    ArtifactItem item;
    if (memcmp(header->magic, ARTIFACT_MAGIC, sizeof header->magic - 1)) return "no artifacts";
    if (memcmp(header->magic, ARTIFACT_MAGIC, sizeof header->magic)) return "of another format";
    if (header->bytes != bytes) return "it is cut short, or longer than it was";
    if (header->hash != hash_of(header, rest)) return "it is damaged";
    if (header->fit_bytes > bytes) return "it is damaged";
    const char *at = rest + header->fit_bytes, *end = rest + bytes;
    for (uint32_t i = 0; i < header->items; i++) {
        const char *object = next_item(at, end, &item, description);
        if (!object) return "it is damaged";
        at = object + item.object_bytes;
    }
    return at == end ? NULL : "it is damaged";
}

static const char *next_line(const char *text) {
    text += strcspn(text, "\n");
    return *text ? text + 1 : text;
}

/* Which line of the fit differs: CB_OK when none does. */
static cb_status check_fit(const char *path, const char *theirs, size_t bytes) {
    char ours[FIT_BYTES], fit[FIT_BYTES];
    write_fit(ours);
    snprintf(fit, sizeof fit, "%.*s", (int)(bytes < FIT_BYTES ? bytes : FIT_BYTES - 1), theirs);
    if (!strcmp(fit, ours)) return CB_OK;
    const char *a = fit, *b = ours;
    while (*a && strcspn(a, "\n") == strcspn(b, "\n") && !strncmp(a, b, strcspn(a, "\n")))
        a = next_line(a), b = next_line(b);
    return fail(CB_ERR_IO, "load_artifacts: %s: made for %.*s, and this is %.*s", path,
                (int)strcspn(a, "\n"), a, (int)strcspn(b, "\n"), b);
}

static cb_status take_items(const char *path, const char *directory, const ArtifactHeader *header,
                            const char *rest) {
    char description[CACHE_TEXT], key[CACHE_KEY];
    const char *at = rest + header->fit_bytes, *end = rest + header->bytes;
    for (uint32_t i = 0; i < header->items; i++) {
        ArtifactItem item;
        const char *object = next_item(at, end, &item, description);
        cache_key(description, key);
        if (!cache_write(directory, key, description, object, item.object_bytes))
            return refuse(path, "the kernel cache takes no more");
        at = object + item.object_bytes;
    }
    cache_trim(directory);
    return CB_OK;
}

static cb_status load(const char *path, const char *directory, const char *content, size_t bytes,
                      int *count) {
    ArtifactHeader header;
    memcpy(&header, content, sizeof header);
    const char *rest = content + sizeof header;
    const char *fault = find_fault(&header, rest, bytes - sizeof header);
    if (fault) return refuse(path, fault);
    cb_status status = check_fit(path, rest, header.fit_bytes);
    *count = (int)header.items;
    return status == CB_OK ? take_items(path, directory, &header, rest) : status;
}

cb_status artifacts_load(const char *path, int *count) {
    char directory[CACHE_PATH];
    size_t bytes;
    cb_status status = find_directory("load_artifacts", directory);
    if (status != CB_OK) return status;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return refuse(path, strerror(errno));
    char *content = read_open(path, file, &bytes);
    close(file);
    if (!content) return cb_error_status();
    status = load(path, directory, content, bytes, count);
    memory_free(content);
    return status;
}

/* ---- the public API -------------------------------------------------------------------------- */

cb_status cb_save_artifacts(const char *path) {
    int count;
    if (!path) return fail(CB_ERR_ARGUMENT, "save_artifacts: the path is NULL");
    return artifacts_save(path, ARTIFACT_LOADED, &count);
}

cb_status cb_load_artifacts(const char *path) {
    int count;
    if (!path) return fail(CB_ERR_ARGUMENT, "load_artifacts: the path is NULL");
    return artifacts_load(path, &count);
}
