/* Files that the tests of carbide_data make, in a folder that goes with the test. */
#ifndef CARBIDE_FILES_OF_TESTS_H
#define CARBIDE_FILES_OF_TESTS_H

#include "fixture.h"

#include <unistd.h>

static char folder[] = "/tmp/carbide_data_XXXXXX";

/* The path of a file, until four others are asked for. */
static inline const char *file(const char *name) {
    static char path[4][64];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static inline const char *written(const char *name, const void *bytes, size_t count) {
    const char *path = file(name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
    return path;
}

/* Runs a group of tests; what main returns. */
static inline int in_folder(const struct CMUnitTest *tests, size_t count) {
    if (!mkdtemp(folder)) return 1;
    int failed = _cmocka_run_group_tests("tests", tests, count, NULL, clean_up);
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return failed | system(command);
}

#endif
