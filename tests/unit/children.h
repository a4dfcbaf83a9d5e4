/* Waiting for a forked child that may hang: no clock, which a busy machine would fail. A process of
 * one thread that waits for a lock, without a time limit, waits forever. */
#ifndef CARBIDE_TEST_CHILDREN_H
#define CARBIDE_TEST_CHILDREN_H

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef CARBIDE_COVERAGE
void __gcov_dump(void);
#endif

/* _exit, which would forget what the child has reached; that goes to files, which a test may have
 * limited. */
static inline void leave_child(int status) {
#ifdef CARBIDE_COVERAGE
    struct rlimit limit;
    if (!getrlimit(RLIMIT_FSIZE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    __gcov_dump();
#endif
    _exit(status);
}

static inline int threads_of(pid_t process) {
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *listing = opendir(path);
    for (struct dirent *item; listing && (item = readdir(listing));)
        count += item->d_name[0] != '.';
    if (listing) closedir(listing);
    return count;
}

static inline bool waits_for_a_lock(pid_t process) {
    char path[64];
    long number = -1;
    unsigned long lock, operation, value, timeout = 1;
    if (threads_of(process) != 1) return false;
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)process);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    int read = fscanf(file, "%ld %lx %lx %lx %lx", &number, &lock, &operation, &value, &timeout);
    fclose(file);
    return read == 5 && number == SYS_futex && timeout == 0;
}

/* False: it hung, and was killed. */
static inline bool ends(pid_t child, int *status) {
    for (int locked = 0; locked < 50;) {
        if (waitpid(child, status, WNOHANG) == child) return true;
        usleep(1000);
        locked = waits_for_a_lock(child) ? locked + 1 : 0;
    }
    kill(child, SIGKILL);
    waitpid(child, status, 0);
    return false;
}

#endif
