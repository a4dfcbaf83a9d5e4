/* Adding children with one check at the end: a builder whose constructors fail gives NULL. */
#ifndef CARBIDE_MODELS_BUILD_H
#define CARBIDE_MODELS_BUILD_H

#include "carbide_models.h"
#include <stdarg.h>
#include <stdio.h>

typedef struct Build {
    cb_module *module; /* NULL once anything failed */
} Build;

static inline Build build_open(const char *type, cb_forward_function *forward, void *user) {
    Build build = {cb_module_new(type, forward, user)};
    return build;
}

/* Takes child over in any case. */
static inline void build_add(Build *build, const char *name, cb_module *child) {
    if (cb_module_add(build->module, name, child)) return;
    cb_module_free(build->module);
    build->module = NULL;
}

/* For a configuration that makes no network: NULL, with an error. */
__attribute__((format(printf, 1, 2))) static inline cb_module *build_refuse(const char *format,
                                                                            ...) {
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    cb_fail(CB_ERR_ARGUMENT, message);
    return NULL;
}

/* cb_model_gpt2's network with its layers' initial values, for who has others: nothing is drawn
 * again. */
cb_module *build_gpt2(const cb_gpt2_config *config);

#endif
