/* Reading the environment (environment.h). */
#define _GNU_SOURCE /* secure_getenv, environ */
#include "base/environment.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

const char *environment(const char *name) { return secure_getenv(name); }

const char *environment_next(const char *prefix, int *at) {
    while (environ[*at] && !environment_is_foreign()) {
        const char *variable = environ[(*at)++];
        if (!strncmp(variable, prefix, strlen(prefix))) return variable;
    }
    return NULL;
}

bool environment_is_foreign(void) { return getauxval(AT_SECURE) != 0; }
