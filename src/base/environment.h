/* The environment of the process: the one place that reads it (tools/lint.py environment).
 *
 * Whoever starts a program writes its environment. That is fine as long as the two are the same
 * user; a set-user-id or set-group-id program, or one with capabilities of its file, has more
 * rights than its caller, and must not run or read what the caller names. */
#ifndef CARBIDE_BASE_ENVIRONMENT_H
#define CARBIDE_BASE_ENVIRONMENT_H

#include <stdbool.h>

/* NULL: not set, or the caller is not to be trusted. */
const char *environment(const char *name);
/* "NAME=value" of those that begin like that, from number *at on, which is the next one's then;
 * NULL: there is none. */
const char *environment_next(const char *prefix, int *at);
/* The process has more rights than its caller. */
bool environment_is_foreign(void);

#endif
