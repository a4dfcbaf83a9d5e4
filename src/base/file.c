/* Writing files. Two processes and any number of threads may save to one path at a time: each
 * writes a file of its own name, the last rename wins. */
#include "base/file.h"

#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What a write may send to the thread that makes it: beyond the limit on the size of a file, or to
 * a pipe that nobody reads. Either would end a program that has not heard of it. */
static const int signals[] = {SIGXFSZ, SIGPIPE};
enum { SIGNAL_COUNT = sizeof signals / sizeof *signals };

Quiet signals_hold(void) {
    Quiet quiet;
    sigset_t held;
    sigemptyset(&held);
    for (int i = 0; i < SIGNAL_COUNT; i++) sigaddset(&held, signals[i]);
    pthread_sigmask(SIG_BLOCK, &held, &quiet.before);
    sigpending(&quiet.earlier);
    return quiet;
}

void signals_release(const Quiet *quiet) {
    const struct timespec at_once = {0};
    for (int i = 0; i < SIGNAL_COUNT; i++) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signals[i]);
        if (!sigismember(&quiet->earlier, signals[i])) (void)sigtimedwait(&one, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
}

static bool write_all(int file, const char *from, size_t count) {
    while (count) {
        ssize_t put = write(file, from, count);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        from += put;
        count -= (size_t)put;
    }
    return true;
}

bool file_write(int file, const void *bytes, size_t count) {
    Quiet quiet = signals_hold();
    bool written = write_all(file, bytes, count);
    int error = errno;
    signals_release(&quiet);
    errno = error;
    return written;
}

/* Closes in any case; errno is that of the first failure. */
static bool finish(int file, bool written) {
    int error = errno;
    bool closed = close(file) == 0;
    if (!written) errno = error;
    return written && closed;
}

static bool is_special(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

/* A file that others may not read or write stays so; where they may, the mode is a new file's. */
static bool replace(const char *path, const char *temporary, bool (*write)(int, void *),
                    void *user) {
    struct stat before, now;
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) return false;
    if (stat(path, &before) == 0 && fstat(file, &now) == 0)
        (void)fchmod(file, before.st_mode & now.st_mode & 0777); /* some systems have no modes */
    /* Without the sync, a crash after the rename could leave an empty file. */
    if (finish(file, write(file, user) && fsync(file) == 0) && rename(temporary, path) == 0)
        return true;
    int error = errno;
    unlink(temporary);
    errno = error;
    return false;
}

bool file_save(const char *path, bool (*write)(int file, void *user), void *user) {
    static atomic_ulong saves;
    if (is_special(path)) {
        /* A pipe's reader is not awaited, but one that is there may take its time. */
        int file = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
        if (file < 0) return false;
        (void)fcntl(file, F_SETFL, 0);
        return finish(file, write(file, user));
    }
    size_t bytes = strlen(path) + 64;
    char *temporary = memory_alloc(bytes);
    if (!temporary) {
        errno = ENOMEM;
        return false;
    }
    unsigned long serial = atomic_fetch_add(&saves, 1);
    snprintf(temporary, bytes, "%s.%ld-%lu.part", path, (long)getpid(), serial);
    bool done = replace(path, temporary, write, user);
    int error = errno;
    memory_free(temporary);
    errno = error;
    return done;
}
