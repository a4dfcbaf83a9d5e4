/* Generated code that adds a number, loaded by way of a disk cache that each test has for
 * itself. */
#ifndef CARBIDE_TEST_ADDER_H
#define CARBIDE_TEST_ADDER_H

#include "test_support.h"

#include "jit/cache.h"
#include "jit/code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[256], cache[300]; /* folders: of the test, of the cache in it */

/* A function that adds number to *(long *)buffer[0]. */
static inline void write_adder(int number, char source[256]) {
    snprintf(source, 256,
             "void add(void *const *buffer, long low, long high, int pass, void *slot) {\n"
             "    *(long *)buffer[0] += %d;\n}\n",
             number);
}

static inline CodeResult load_adder(int number) {
    char source[256];
    write_adder(number, source);
    return code_load(source, strlen(source), (const char *[]){"add"}, 1, NULL);
}

static inline void assert_adds(CodeResult result, int number) {
    long value = 100;
    assert_non_null(result.code);
    assert_null(result.message);
    assert_int_equal(result.reason, REASON_NONE);
    code_function(result.code, "add")((void *[]){&value}, 0, 1, 0, NULL);
    assert_int_equal(value, 100 + number);
    code_release(result.code);
}
static inline void count_entry(void *user, const CacheEntry *entry) {
    char(*key)[CACHE_KEY] = user;
    memcpy(*key, entry->key, CACHE_KEY);
}

static inline int entries(char key[CACHE_KEY]) {
    char unused[CACHE_KEY];
    return cache_visit(cache, count_entry, key ? key : unused);
}

static inline void path_in(char *out, const char *name) { snprintf(out, 400, "%s/%s", root, name); }

static inline void write_file(const char *path, const char *text, mode_t mode) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    chmod(path, mode);
}

/* A fake compiler. "$out" is the file after -o. */
static inline void use_script(const char *name, const char *body) {
    char path[400], text[2000];
    path_in(path, name);
    snprintf(text, sizeof text,
             "#!/bin/sh\nfor a in \"$@\"; do [ \"$before\" = -o ] && out=$a; before=$a; done\n%s\n",
             body);
    write_file(path, text, 0755);
    cb_set_option("cc", path);
}

static int set_up(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/carbide-test-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(cache, sizeof cache, "%s/cache", root);
    cb_set_option("cache_dir", cache);
    cb_set_option("cache", "1");
    cb_set_option("cc", "cc");
    cb_set_option("cc_timeout_ms", "30000");
    cb_set_option("cache_limit_mb", "512");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s", root, root);
    return system(command);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
