/* Where plugins are looked for, and what keeps one from being used: each time its reason and words
 * that say what was wrong. The folder of the program is one of the test's own here. */
#define _GNU_SOURCE
#include "adder.h"
#include "failing_calls.h"

#include "carbide.h"
#include "method/plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

enum { OTHER_USER = 12345 };

static const char *loaded_from; /* the library's own path, as the dynamic linker tells it; NULL: it
                                 * is part of the program */
static uid_t user;              /* of the process; 0: as it is */

WRAP(int, stat, (const char *path, struct stat *info), (path, info), -1)
WRAP(char *, realpath, (const char *path, char *out), (path, out), NULL)

ssize_t __wrap_readlink(const char *path, char *out, size_t bytes);
ssize_t __wrap_readlink(const char *path, char *out, size_t bytes) {
    (void)path;
    return fails("readlink") ? -1 : snprintf(out, bytes, "%s/bin/program", root);
}

int __wrap_dladdr1(const void *address, Dl_info *info, void **map, int flags);
int __wrap_dladdr1(const void *address, Dl_info *info, void **map, int flags) {
    static struct link_map own;
    (void)address, (void)info, (void)flags;
    if (fails("dladdr1")) return 0;
    own.l_name = (char *)(uintptr_t)(loaded_from ? loaded_from : "");
    *map = fails("link_map") ? NULL : &own;
    return 1;
}

uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void) { return user ? user : __real_geteuid(); }

/* ---- finding ----------------------------------------------------------------------------- */

static const char *in_root(const char *name) {
    static char path[400];
    path_in(path, name);
    return path;
}

static void install(const char *plugin, const char *name) {
    char command[1500];
    snprintf(command, sizeof command, "cp %s/libcarbide_%s.so %s/bin/libcarbide_%s.so",
             CARBIDE_TEST_PLUGINS, plugin, root, name);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s/bin/libcarbide_%s.so", root, name);
    assert_int_equal(chmod(command, 0755), 0);
}

static void expect(const char *name, Reason reason, const char *detail) {
    const Plugin *plugin = plugin_find(name);
    fault.call = NULL;
    if (plugin->reason != reason || !strstr(plugin->detail, detail))
        FAIL("%s: %s: %s", name, reason_info(plugin->reason)->id, plugin->detail);
    assert_int_equal(plugin->provider != NULL, reason == REASON_NONE);
    assert_ptr_equal(plugin, plugin_find(name)); /* it is remembered */
}

static void fail_at(const char *call, int before) { fault = (typeof(fault)){call, before, 1, EIO}; }

static void test_own_folder(void **state) {
    (void)state;
    char library[400];
    install("run_fails", "beside");
    expect("beside", REASON_NONE, "");
    install("run_fails", "near");
    snprintf(library, sizeof library, "%s/bin/libcarbide.so", root);
    loaded_from = library;
    fail_at("readlink", 0); /* not asked for */
    expect("near", REASON_NONE, "");
    loaded_from = NULL;
    install("run_fails", "nowhere");
    const char *const unknown[] = {"readlink", "dladdr1", "link_map"};
    fail_at(unknown[0], 0);
    expect("nowhere", REASON_provider_missing, "no libcarbide_nowhere.so");
    loaded_from = "nameless";
    install("run_fails", "bare");
    expect("bare", REASON_provider_missing, "no libcarbide_bare.so");
    loaded_from = library;
    install("run_fails", "exe");
    fail_at(unknown[1], 0); /* then the program's folder it is */
    expect("exe", REASON_NONE, "");
    loaded_from = NULL;
}

static void test_what_cannot_be_trusted(void **state) {
    (void)state;
    static const char *const names[] = {"file", "folder", "program"};
    for (int i = 0; i < 3; i++) { /* nobody knows whose it is */
        install("run_fails", names[i]);
        fail_at("stat", i);
        expect(names[i], REASON_provider_unusable, "CARBIDE_PLUGIN_DIR to trust it");
    }
    install("run_fails", "gone");
    fail_at("realpath", 0);
    expect("gone", REASON_provider_missing, "no libcarbide_gone.so");
    assert_int_equal(mkdir(in_root("bin/libcarbide_directory.so"), 0755), 0);
    expect("directory", REASON_provider_unusable, "CARBIDE_PLUGIN_DIR to trust it");
    write_file(in_root("bin/libcarbide_text.so"), "no object", 0755);
    expect("text", REASON_provider_unusable, "libcarbide_text.so: file too short");
}

static void test_owners(void **state) {
    (void)state;
    if (geteuid() != 0) skip_because("files of other users need root");
    install("run_fails", "mine");
    assert_int_equal(chown(in_root("bin/libcarbide_mine.so"), OTHER_USER, 0), 0);
    user = OTHER_USER;
    expect("mine", REASON_NONE, "");
    user = 0;
}

/* As it lies in a folder that the user named. */
static void test_what_is_no_plugin_of_ours(void **state) {
    (void)state;
    cb_set_option("plugin_dir", CARBIDE_TEST_PLUGINS);
    expect("silent", REASON_provider_unusable, "it does not say why");
    expect("wrong_task", REASON_provider_unusable, "its tasks are not Carbide's");
    cb_set_option("plugin_dir", in_root("bin"));
    write_file(in_root("bin/libcarbide_text.so"), "no object", 0755);
    expect("text", REASON_provider_unusable, "file too short");
    cb_set_option("plugin_dir", "");
}

/* ---- names and places -------------------------------------------------------------------- */

static void test_names(void **state) {
    (void)state;
    char name[600];
    memset(name, 'a', sizeof name);
    name[64] = '\0';
    const char *const bad[] = {"", "UPPER", "a/b", "..", "a b", name};
    for (int i = 0; i < 6; i++) expect(bad[i], REASON_provider_missing, "no such name can be");
    memset(name, 'a', sizeof name);
    name[599] = '\0';
    cb_set_option("plugin_dir", name);
    expect("a", REASON_provider_missing, "no such name can be");
    cb_set_option("plugin_dir", "");
}

/* The table of plugins is full at last; those in it are found as before. */
static void test_too_many(void **state) {
    (void)state;
    char name[16] = "x0";
    const Plugin *first = plugin_find(name), *last = first;
    for (int i = 1; i < 100 && !strstr(last->detail, "too many"); i++) {
        snprintf(name, sizeof name, "x%d", i);
        last = plugin_find(name);
    }
    assert_string_equal(last->detail, "too many have been asked for");
    assert_int_equal(last->reason, REASON_provider_missing);
    assert_ptr_equal(plugin_find("x0"), first);
}

static int set_up_program(void **state) {
    if (set_up(state)) return -1;
    cb_set_option("plugin_dir", "");
    chmod(root, 0755);
    return mkdir(in_root("bin"), 0755);
}

#define PROGRAM(test) cmocka_unit_test_setup_teardown(test, set_up_program, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        PROGRAM(test_own_folder), PROGRAM(test_what_cannot_be_trusted),
        PROGRAM(test_owners),     PROGRAM(test_what_is_no_plugin_of_ours),
        PROGRAM(test_names),      PROGRAM(test_too_many),
    };
    return cmocka_run_group_tests_name("plugins", tests, NULL, NULL);
}
