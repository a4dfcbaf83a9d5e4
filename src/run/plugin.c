/* Finding and loading plugins (plugin.h).
 *
 * The table is a process singleton, as loaded libraries are. It remembers failures, too: a missing
 * plugin costs its search once per name and directory. */
#define _GNU_SOURCE
#include "run/plugin.h"

#include "base/fork.h"
#include "base/option.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PLUGINS = 16, PATH_BYTES = 512 };

#ifndef CARBIDE_LIBRARY_FOLDER
#define CARBIDE_LIBRARY_FOLDER "../lib" /* as seen from the folder of programs */
#endif

typedef struct Row {
    char name[64], directory[PATH_BYTES];
    Plugin plugin;
} Row;

static struct {
    pthread_mutex_t mutex;
    pthread_once_t once;
    Row row[MOST_PLUGINS];
    int count;
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

WATCH_FORKS(table.mutex)

/* ---- searching ---------------------------------------------------------------------------- */

/* The folder of the library or program that holds this code, with its slash; "" when unknown. */
static void own_folder(char *out) {
    Dl_info info;
    struct link_map *map = NULL;
    char path[PATH_BYTES];
    *out = '\0';
    ssize_t bytes = -1;
    bool known = dladdr1((void *)(size_t)own_folder, &info, (void **)&map, RTLD_DL_LINKMAP) != 0;
    if (known && map && map->l_name[0])
        bytes = snprintf(path, sizeof path, "%s", map->l_name);
    else
        bytes = readlink("/proc/self/exe", path, sizeof path - 1);
    if (bytes <= 0 || bytes >= (ssize_t)sizeof path) return;
    path[bytes] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash) return;
    slash[1] = '\0';
    memcpy(out, path, strlen(path) + 1);
}

/* False: there is no such file. */
static bool open_at(Plugin *plugin, const char *path, void **object) {
    if (strchr(path, '/') && access(path, F_OK)) return false;
    *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*object) {
        const char *why = dlerror();
        bool missing = !strchr(path, '/') && why && strstr(why, path);
        if (missing) return false; /* the linker did not find the plugin itself */
        plugin->reason = REASON_provider_unusable;
        snprintf(plugin->detail, sizeof plugin->detail, "%s", why ? why : path);
    }
    snprintf(plugin->path, sizeof plugin->path, "%s", path);
    return true;
}

static void *search(Plugin *plugin, const char *name, const char *directory) {
    char file[PATH_BYTES], own[PATH_BYTES], path[3 * PATH_BYTES];
    void *object = NULL;
    snprintf(file, sizeof file, "libcarbide_%s.so", name);
    bool found;
    if (*directory) {
        snprintf(path, sizeof path, "%s/%s", directory, file);
        found = open_at(plugin, path, &object);
    } else {
        own_folder(own);
        snprintf(path, sizeof path, "%s%s", own, file);
        found = *own && open_at(plugin, path, &object);
        snprintf(path, sizeof path, "%s" CARBIDE_LIBRARY_FOLDER "/%s", own, file);
        found = found || (*own && open_at(plugin, path, &object)) || open_at(plugin, file, &object);
    }
    if (found) return object;
    plugin->reason = REASON_provider_missing;
    snprintf(plugin->detail, sizeof plugin->detail, "no %s", file);
    return NULL;
}

/* ---- loading ------------------------------------------------------------------------------ */

static void refuse(Plugin *plugin, const char *why) {
    char path[sizeof plugin->path];
    memcpy(path, plugin->path, sizeof path);
    plugin->reason = REASON_provider_unusable;
    snprintf(plugin->detail, sizeof plugin->detail, "%s: %s", path, why);
}

static void load(Plugin *plugin, const char *name, const char *directory) {
    void *object = search(plugin, name, directory);
    if (!object) return;
    union {
        void *object;
        ProviderEntry *function;
    } entry = {dlsym(object, PROVIDER_SYMBOL)};
    const char *why = NULL;
    const Provider *provider = entry.function ? entry.function(&why) : NULL;
    char text[96];
    if (!entry.function) {
        refuse(plugin, "it is no plugin of Carbide");
    } else if (!provider) {
        refuse(plugin, why ? why : "it does not say why");
    } else if (provider->interface != PROVIDER_INTERFACE ||
               provider->task_bytes != sizeof(ProviderTask)) {
        snprintf(text, sizeof text, "it has interface %d, Carbide has %d", provider->interface,
                 PROVIDER_INTERFACE);
        refuse(plugin, text);
    } else {
        plugin->provider = provider;
    }
}

/* A name goes into a path. */
static bool is_name(const char *name) {
    size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return bytes > 0 && bytes < sizeof table.row[0].name && !name[bytes];
}

const Plugin *plugin_find(const char *name) {
    static const Plugin no_name = {.reason = REASON_provider_missing,
                                   .detail = "no such name can be"};
    static const Plugin too_many = {.reason = REASON_provider_missing,
                                    .detail = "too many have been asked for"};
    const char *directory = option_text(OPTION_plugin_dir);
    if (!is_name(name) || strlen(directory) >= PATH_BYTES) return &no_name;
    const Plugin *found = NULL;
    pthread_once(&table.once, watch_forks);
    pthread_mutex_lock(&table.mutex);
    for (int i = 0; !found && i < table.count; i++)
        if (!strcmp(table.row[i].name, name) && !strcmp(table.row[i].directory, directory))
            found = &table.row[i].plugin;
    if (!found && table.count < MOST_PLUGINS) {
        Row *row = &table.row[table.count++];
        memcpy(row->name, name, strlen(name) + 1);
        memcpy(row->directory, directory, strlen(directory) + 1);
        load(&row->plugin, name, directory);
        found = &row->plugin;
    }
    pthread_mutex_unlock(&table.mutex);
    return found ? found : &too_many;
}
