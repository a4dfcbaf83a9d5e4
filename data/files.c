/* Files that are mapped or replaced, errors, and numbers drawn by their place. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

cb_status data_refuse(cb_status status, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return cb_fail(status, message);
}

cb_status data_refuse_file(const char *call, const char *path) {
    cb_status status = errno == ENOMEM ? CB_ERR_MEMORY : CB_ERR_IO;
    return data_refuse(status, "%s: %s: %s", call, path, strerror(errno));
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool map_open(const char *call, const char *path, int descriptor, MappedFile *file) {
    struct stat status;
    if (fstat(descriptor, &status) != 0) return data_refuse_file(call, path), false;
    if (!S_ISREG(status.st_mode))
        return data_refuse(CB_ERR_IO, "%s: %s: not a regular file", call, path), false;
    *file = (MappedFile){NULL, (size_t)status.st_size};
    if (file->count == 0) return true;
    void *at = mmap(NULL, file->count, PROT_READ, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED) return data_refuse_file(call, path), false;
    file->at = at;
    return true;
}

bool data_map(const char *call, const char *path, MappedFile *file) {
    if (!path) return data_refuse(CB_ERR_ARGUMENT, "%s: the path is NULL", call), false;
    /* A pipe would wait for its writer. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return data_refuse_file(call, path), false;
    bool mapped = map_open(call, path, descriptor, file);
    close(descriptor);
    return mapped;
}

void data_unmap(MappedFile *file) {
    if (file->at) munmap((void *)(uintptr_t)file->at, file->count);
    *file = (MappedFile){0};
}

/* ---- writing -------------------------------------------------------------------------------- */

bool data_write(int file, const void *bytes, size_t count) {
    for (const char *from = bytes; count;) {
        ssize_t put = write(file, from, count);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        from += put;
        count -= (size_t)put;
    }
    return true;
}

/* Closes in any case; errno is that of the first failure. */
static bool write_and_close(int file, const void *bytes, size_t count, bool sync) {
    bool written = data_write(file, bytes, count) && (!sync || fsync(file) == 0);
    int error = errno;
    bool closed = close(file) == 0;
    if (!written) errno = error;
    return written && closed;
}

static bool replace(const char *path, const void *bytes, size_t count) {
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        int file = open(path, O_WRONLY | O_CLOEXEC);
        return file >= 0 && write_and_close(file, bytes, count, false);
    }
    char *temporary = NULL;
    if (asprintf(&temporary, "%s.%ld.part", path, (long)getpid()) < 0) {
        errno = ENOMEM;
        return false;
    }
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool done = file >= 0 && write_and_close(file, bytes, count, true);
    done = done && rename(temporary, path) == 0;
    int error = errno;
    if (!done && file >= 0) unlink(temporary);
    free(temporary);
    errno = error;
    return done;
}

bool data_save(const char *call, const char *path, const void *bytes, size_t count) {
    if (!path) return data_refuse(CB_ERR_ARGUMENT, "%s: the path is NULL", call), false;
    return replace(path, bytes, count) || (data_refuse_file(call, path), false);
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit of the result depends on every
 * bit of x. */
static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t data_draw(uint64_t seed, uint64_t place, uint64_t limit) {
    uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t bits = mix(mix(seed + golden) + place * golden);
    /* The high half of the product: even to 1 in 2^64 / limit. */
    return (uint64_t)((unsigned __int128)bits * limit >> 64);
}

/* A Feistel network of six rounds is an order of the numbers of its bits (Luby, Rackoff 1988); what
 * falls behind count goes around again, which ends, as i itself is of that circle. */
uint64_t data_shuffle(uint64_t seed, uint64_t i, uint64_t count) {
    int half = 1;
    while (half < 32 && (UINT64_C(1) << 2 * half) < count) half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ data_draw(seed + round, right, mask + 1);
            left = right, right = next;
        }
        i = left << half | right;
    } while (i >= count);
    return i;
}
