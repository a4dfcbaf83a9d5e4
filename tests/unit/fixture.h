/* What tests of the public API share: a scope around each test, errors by their words, allocations
 * that fail. */
#ifndef CARBIDE_TEST_FIXTURE_H
#define CARBIDE_TEST_FIXTURE_H

#include "test_support.h"

#include "carbide.h"
#include <stdlib.h>
#include <string.h>

static inline int open_scope(void **state) {
    (void)state;
    cb_clear_error();
    cb_manual_seed(7);
    cb_scope_open();
    return 0;
}

static inline int close_scope(void **state) {
    (void)state;
    cb_scope_close();
    cb_clear_error();
    return 0;
}

/* The same for tests that leave no error behind. */
static inline int close_scope_without_error(void **state) {
    if (cb_error()) print_error("%s\n", cb_error());
    bool failed = cb_error() != NULL;
    close_scope(state);
    return failed ? -1 : 0;
}

/* The same for tests after which no tensor may be left. */
static inline int close_scope_without_tensors(void **state) {
    close_scope(state);
    return cb_memory().live_tensors != 0 || cb_memory().live_bytes != 0;
}

/* Of a group of tests: nothing stays in the caches. */
static inline int clean_up(void **state) {
    (void)state;
    cb_cleanup();
    return cb_memory().cached_bytes != 0;
}

/* Words that the error has; it is cleared. */
static inline void expect_error(const char *text) {
    assert_non_null(cb_error());
    if (!strstr(cb_error(), text)) print_error("expected '%s' in '%s'\n", text, cb_error());
    assert_non_null(strstr(cb_error(), text));
    cb_clear_error();
}

static inline void expect_status(cb_status status, const char *text) {
    assert_int_equal(cb_error_status(), status);
    expect_error(text);
}

/* Neither a module nor a tensor comes back, and the error has these words. */
#define REFUSED(expression, words)                                                                 \
    do {                                                                                           \
        cb_clear_error();                                                                          \
        if (expression) {                                                                          \
            print_error("taken: %s\n", #expression);                                               \
            _fail(__FILE__, __LINE__); /* a macro of that name is lost to base/error.h */          \
        }                                                                                          \
        expect_error(words);                                                                       \
    } while (0)

/* The same of what answers with a status. */
#define REFUSES(expression, status, words)                                                         \
    do {                                                                                           \
        cb_clear_error();                                                                          \
        assert_int_equal(expression, status);                                                      \
        expect_error(words);                                                                       \
    } while (0)

/* For cb_set_allocator: the allocation after the next allocations_left ones fails, and all behind
 * it; negative: none. */
static int allocations_left __attribute__((unused)) = -1;

static inline void *failing_resize(void *user, void *pointer, size_t bytes) {
    (void)user;
    if (bytes == 0) {
        free(pointer);
        return NULL;
    }
    if (allocations_left == 0) return NULL;
    if (allocations_left > 0) allocations_left--;
    return realloc(pointer, bytes);
}

#endif
