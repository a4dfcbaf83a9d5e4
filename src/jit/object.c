/* Files of generated code (object.h).
 *
 * What was checked is a descriptor; a path may name another file a moment later. The dynamic linker
 * knows paths alone, so it gets the one that /proc has for the descriptor. It would take a second
 * file of the same path for the first one, and numbers of descriptors are used again: therefore
 * each path is spelled in a way of its own, with "/" and "/./", which mean the same. */
#define _GNU_SOURCE /* memfd_create */
#include "jit/object.h"

#include "base/environment.h"
#include "base/file.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BYTES = 64 << 10 };

/* ---- whose file it is -------------------------------------------------------------------- */

bool object_is_ours(int file, size_t *bytes) {
    struct stat info;
    if (fstat(file, &info) || !S_ISREG(info.st_mode)) return false;
    if (info.st_uid != geteuid() || info.st_mode & (S_IWGRP | S_IWOTH)) return false;
    *bytes = (size_t)info.st_size;
    return true;
}

/* Without O_NONBLOCK, a pipe would be waited for. */
static int open_itself(const char *path) {
    return open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

int object_open(const char *path) {
    size_t bytes;
    int file = open_itself(path);
    if (file < 0 || object_is_ours(file, &bytes)) return file;
    close(file);
    return -1;
}

int object_take(const char *path) {
    struct stat info;
    int file = open_itself(path);
    bool own =
        file >= 0 && !fstat(file, &info) && S_ISREG(info.st_mode) && info.st_uid == geteuid();
    if (own || file < 0) return file;
    close(file);
    errno = EINVAL;
    return -1;
}

/* ---- loading ----------------------------------------------------------------------------- */

static bool read_at(int file, void *out, size_t bytes, off_t at) {
    ssize_t got;
    do got = pread(file, out, bytes, at);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)bytes;
}

/* Everything that the dynamic linker maps lies in the file: of one that is cut short, by a disk
 * that filled up, it would touch pages that are not there, and the program would end. */
static bool is_whole(int file) {
    struct stat info;
    ElfW(Ehdr) header;
    if (fstat(file, &info) || !read_at(file, &header, sizeof header, 0)) return false;
    if (memcmp(header.e_ident, ELFMAG, SELFMAG)) return false;
    for (int i = 0; i < header.e_phnum; i++) {
        ElfW(Phdr) part;
        off_t at = (off_t)header.e_phoff + (off_t)i * header.e_phentsize;
        if (!read_at(file, &part, sizeof part, at)) return false;
        uint64_t bytes = (uint64_t)info.st_size;
        if (part.p_type != PT_LOAD || part.p_filesz == 0) continue;
        if (part.p_offset > bytes || part.p_filesz > bytes - part.p_offset) return false;
    }
    return true;
}

static void spell(int file, char path[OBJECT_PATH]) {
    static atomic_ulong spellings;
    size_t used = (size_t)snprintf(path, OBJECT_PATH, "/proc/self/fd/");
    for (unsigned long n = atomic_fetch_add(&spellings, 1); n; n >>= 1)
        used += (size_t)snprintf(path + used, OBJECT_PATH - used, "%s", n & 1 ? "./" : "/");
    snprintf(path + used, OBJECT_PATH - used, "%d", file);
}

static void *load_descriptor(int file) {
    char path[OBJECT_PATH];
    spell(file, path);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static bool copy(int from, int to) {
    char block[COPY_BYTES];
    for (off_t at = 0;;) {
        ssize_t got = pread(from, block, sizeof block, at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got == 0;
        if (!file_write(to, block, (size_t)got)) return false;
        at += got;
    }
}

static void *load_from_memory(int file) {
    int memory = memfd_create("carbide", MFD_CLOEXEC);
    if (memory < 0) return NULL;
    void *object = copy(file, memory) ? load_descriptor(memory) : NULL;
    close(memory);
    return object;
}

/* Without /proc, or where no file in memory may be executed. */
static void *load_from_folder(int file, const char *folder) {
    char path[OBJECT_PATH];
    snprintf(path, sizeof path, "%.4000s/copy.so", folder);
    int copied = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (copied < 0) return NULL;
    bool written = copy(file, copied);
    close(copied);
    void *object = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    return object;
}

void *object_load(int file, char why[OBJECT_WHY]) {
    char folder[OBJECT_PATH];
    if (!is_whole(file)) {
        snprintf(why, OBJECT_WHY, "no shared object, or one that is cut short");
        return NULL;
    }
    void *object = load_descriptor(file);
    if (object) return object;
    const char *words = dlerror(), *behind = words ? strstr(words, ": ") : NULL;
    snprintf(why, OBJECT_WHY, "%.300s", behind ? behind + 2 : "dlopen failed"); /* its own path */
    object = load_from_memory(file);
    bool more = true;
    for (int place = 1; !object && more; place++) {
        if (!object_folder(place, "", folder, &more)) continue;
        object = load_from_folder(file, folder);
        object_remove_folder(folder);
    }
    return object;
}

/* ---- folders ----------------------------------------------------------------------------- */

enum { LOOK = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

static bool lock(int file) { return flock(file, LOCK_EX | LOCK_NB) == 0; }

int object_hold(const char *path) {
    int file = open(path, LOOK);
    if (file < 0 || lock(file)) return file;
    close(file);
    return -1;
}

bool object_is_held(int folder, const char *name) {
    int file = openat(folder, name, LOOK);
    if (file < 0) return true;
    bool held = !lock(file);
    close(file);
    return held;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    (void)remove(path); /* on with the others, whatever becomes of it */
    return 0;
}

void object_remove_folder(const char *path) { nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

/* Whether a file of some size can be made in the folder, and is then ours: not on a full disk, nor
 * where every file belongs to somebody else. */
static bool has_room(const char *folder) {
    char block[COPY_BYTES] = {0};
    char path[OBJECT_PATH];
    size_t bytes;
    snprintf(path, sizeof path, "%.4000s/room", folder);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return false;
    bool room = object_is_ours(file, &bytes) && file_write(file, block, sizeof block);
    room &= close(file) == 0;
    unlink(path);
    return room;
}

bool object_folder(int place, const char *first, char path[OBJECT_PATH], bool *more) {
    const char *places[] = {first, environment("TMPDIR"), "/tmp", "/dev/shm", "/var/tmp"};
    const int count = sizeof places / sizeof *places;
    *more = place + 1 < count;
    if (!places[place] || !places[place][0]) return false;
    snprintf(path, OBJECT_PATH, "%.3900s/%s-XXXXXX", places[place], place ? "carbide" : "work");
    if (!mkdtemp(path)) return false;
    if (has_room(path)) return true;
    rmdir(path);
    return false;
}
