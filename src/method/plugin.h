/* Plugins: providers in shared objects of their own. */
#ifndef CARBIDE_METHOD_PLUGIN_H
#define CARBIDE_METHOD_PLUGIN_H

#include "base/reason.h"
#include "method/provider.h"

typedef struct Plugin {
    const Provider *provider; /* NULL: reason and detail say why */
    Reason reason;            /* provider_missing, provider_unusable */
    char path[512];           /* of the plugin; "" when there is none */
    char detail[768];
} Plugin;

/* Loads libcarbide_NAME.so, once: from option plugin_dir, or, when that is empty, from where this
 * code lies, from the library folder of an installation, or from where the dynamic linker looks.
 * The result stays valid: a plugin is never unloaded, since its threads and memory would stay. */
const Plugin *plugin_find(const char *name);

#endif
