/* Reading the environment (environment.h). */
#define _GNU_SOURCE /* secure_getenv */
#include "base/environment.h"

#include <stdlib.h>
#include <sys/auxv.h>

const char *environment(const char *name) { return secure_getenv(name); }

bool environment_is_foreign(void) { return getauxval(AT_SECURE) != 0; }
