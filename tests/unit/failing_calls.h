/* Calls of the system that fail, one after the other. The linker hands those of the library to the
 * functions __wrap_... that a test makes of them (--wrap, in CMakeLists.txt). */
#ifndef CARBIDE_TEST_FAILING_CALLS_H
#define CARBIDE_TEST_FAILING_CALLS_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

/* The call that fails: its name, how many go well before, how many fail then, and with what. */
static struct {
    const char *call;
    int before, times, error;
} fault;
static bool reached; /* it was made */
static int dies_in;  /* the process is killed before so many more calls; 0: it is not */

static inline bool fails(const char *call) {
    if (dies_in && strcmp(call, "memory") != 0 && --dies_in == 0) raise(SIGKILL);
    if (!fault.call || strcmp(fault.call, call) != 0) return false;
    if (fault.before > 0) {
        fault.before--;
        return false;
    }
    if (fault.times == 0) return false;
    fault.times--;
    reached = true;
    errno = fault.error;
    return true;
}

/* failed: what the call gives then, beside errno. */
#define WRAP(type, name, parameters, arguments, failed)                                            \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters { return fails(#name) ? (failed) : __real_##name arguments; }

#endif
