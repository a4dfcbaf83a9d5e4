/* Finding and loading plugins (plugin.h).
 *
 * The table is a process singleton, as loaded libraries are. It remembers failures, too: a missing
 * plugin costs its search once per name and directory. */
#define _GNU_SOURCE
#include "method/plugin.h"

#include "base/environment.h"
#include "base/lock.h"
#include "base/option.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PLUGINS = 16, PATH_BYTES = 512 };

#ifndef CARBIDE_LIBRARY_FOLDER
#define CARBIDE_LIBRARY_FOLDER "../lib" /* as seen from the folder of programs */
#endif

typedef struct PluginRow {
    char name[64], directory[PATH_BYTES];
    Plugin plugin;
} PluginRow;

static struct {
    PluginRow row[MOST_PLUGINS];
    int count;
} table; /* under the lock */

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

/* ---- trust -------------------------------------------------------------------------------- */

/* Nobody can write a file or folder who could not replace this library or program anyhow, which
 * lies in the folder own: it belongs to root, to this user or to whoever own belongs to, and the
 * others that may write are those that may write there. */
static bool is_as_safe(const struct stat *info, const struct stat *own) {
    bool owner = info->st_uid == 0 || info->st_uid == geteuid() || info->st_uid == own->st_uid;
    bool group =
        !(info->st_mode & S_IWGRP) || (own->st_mode & S_IWGRP && own->st_gid == info->st_gid);
    bool all = !(info->st_mode & S_IWOTH) || (own->st_mode & S_IWOTH && !(own->st_mode & S_ISVTX));
    return owner && group && all;
}

/* The plugin and the folder that it is really in. */
static bool is_trusted(const char *path, const char *own) {
    char folder[PATH_MAX];
    struct stat file, around, program;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path + 1), path);
    return !stat(path, &file) && S_ISREG(file.st_mode) && !stat(folder, &around) &&
           !stat(own, &program) && is_as_safe(&file, &program) && is_as_safe(&around, &program);
}

/* ---- searching ---------------------------------------------------------------------------- */

/* False: the linker did not find the file. */
static bool open_object(Plugin *plugin, const char *path, void **object) {
    *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*object) {
        const char *why = dlerror();
        bool missing = !strchr(path, '/') && why && strstr(why, path);
        if (missing) return false;
        plugin->reason = REASON_provider_unusable;
        snprintf(plugin->detail, sizeof plugin->detail, "%s", why ? why : path);
    }
    snprintf(plugin->path, sizeof plugin->path, "%s", path);
    return true;
}

/* Looks in a folder; own is NULL for one that the user named, and trusts with that. False: there is
 * no such file, or none to be trusted, for which plugin gets a reason. */
static bool open_in(Plugin *plugin, const char *folder, const char *file, const char *own,
                    void **object) {
    char path[3 * PATH_BYTES], real[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!own) return !access(path, F_OK) && open_object(plugin, path, object);
    if (!*own || !realpath(path, real)) return false;
    /* What was looked at is what is opened: no link in between. */
    if (is_trusted(real, own)) return open_object(plugin, real, object);
    plugin->reason = REASON_provider_unusable;
    snprintf(plugin->detail, sizeof plugin->detail,
             "%.300s: others than root, this user and the owner of the program may write it; name "
             "its folder in CARBIDE_PLUGIN_DIR to trust it",
             real);
    return false;
}

static void *search(Plugin *plugin, const char *name, const char *directory) {
    char file[PATH_BYTES], own[PATH_BYTES], beside[2 * PATH_BYTES];
    void *object = NULL;
    snprintf(file, sizeof file, "libcarbide_%s.so", name);
    bool found;
    if (*directory) {
        found = open_in(plugin, directory, file, NULL, &object);
    } else {
        own_folder(own);
        snprintf(beside, sizeof beside, "%s" CARBIDE_LIBRARY_FOLDER, own);
        found = open_in(plugin, own, file, own, &object) ||
                open_in(plugin, beside, file, own, &object) || open_object(plugin, file, &object);
    }
    if (object) plugin->reason = REASON_NONE; /* another one may have been left alone */
    if (found || plugin->reason != REASON_NONE) return object;
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
    } else if (provider->interface == PROVIDER_INTERFACE &&
               provider->task_bytes != sizeof(ProviderTask)) {
        refuse(plugin, "its tasks are not Carbide's: it was built for another machine");
    } else if (provider->interface != PROVIDER_INTERFACE) {
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
    static const Plugin foreign = {.reason = REASON_foreign_caller,
                                   .detail = "nothing is searched for"};
    if (environment_is_foreign()) return &foreign;
    const char *directory = option_text(OPTION_plugin_dir);
    if (!is_name(name) || strlen(directory) >= PATH_BYTES) return &no_name;
    const Plugin *found = NULL;
    lock_take(LOCK_plugin);
    for (int i = 0; !found && i < table.count; i++)
        if (!strcmp(table.row[i].name, name) && !strcmp(table.row[i].directory, directory))
            found = &table.row[i].plugin;
    if (!found && table.count < MOST_PLUGINS) {
        PluginRow *row = &table.row[table.count++];
        memcpy(row->name, name, strlen(name) + 1);
        memcpy(row->directory, directory, strlen(directory) + 1);
        load(&row->plugin, name, directory);
        found = &row->plugin;
    }
    lock_give(LOCK_plugin);
    return found ? found : &too_many;
}
