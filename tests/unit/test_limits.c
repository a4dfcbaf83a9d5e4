/* The base layer at its limits: sizes that overflow, addresses that run out, too many threads,
 * options and errors of nothing. */
#include "test_support.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/option.h"
#include "base/pages.h"
#include "base/parallel.h"
#include "base/vec.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- sizes ---- */

static void *grow(Arena *arena, int extra, size_t element) {
    return arena_guard(arena) ? NULL : vec_grow(arena, NULL, extra, element);
}

static void *take(Arena *arena, size_t bytes) {
    return arena_guard(arena) ? NULL : arena_alloc(arena, bytes);
}

static void sizes_that_overflow(void **state) {
    (void)state;
    Arena *arena = arena_new();
    const size_t too_large[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 40, SIZE_MAX - 63,
                                SIZE_MAX / 2};
    for (int i = 0; i < 5; i++) {
        assert_null(take(arena, too_large[i]));
        assert_null(grow(arena, 1, too_large[i]));
    }
    assert_non_null(take(arena, 16)); /* it goes on */
    char *none = grow(arena, 0, 4);
    assert_non_null(none);
    assert_int_equal(length(none), 0);
    arena_free(arena);
}

/* ---- addresses ---- */

enum { MOST_PAGES = 200, PAGES = 1 << 20 };

static void addresses_run_out(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("sanitizers need addresses of their own");
#endif
    struct rlimit before, limit;
    void *block[MOST_PAGES];
    int count = 0;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    while (count < MOST_PAGES && (block[count] = pages_alloc(PAGES))) count++;
    setrlimit(RLIMIT_AS, &before);
    assert_in_range(count, 0, 64); /* what was left of the region */
    for (int i = 0; i < count; i++) pages_free(block[i], PAGES);
    void *now = pages_alloc(PAGES);
    assert_non_null(now);
    memset(now, 1, PAGES);
    pages_free(now, PAGES);
}

static void advice_about_less_than_a_page(void **state) {
    (void)state;
    char small[100];
    memset(small, 7, sizeof small);
    pages_advise(small, sizeof small);
    pages_advise(small, 0);
    for (size_t i = 0; i < sizeof small; i++) assert_int_equal(small[i], 7);
}

/* ---- threads ---- */

static void count_up(void *user, int64_t low, int64_t high) {
    for (int64_t i = low; i < high; i++) ++((int64_t *)user)[i];
}

/* A grain of nothing is one of one; more threads than there may be are as many as may be. */
static void grains_and_threads(void **state) {
    (void)state;
    int64_t times[100] = {0};
    cb_set_threads(1);
    assert_int_equal(cb_threads(), 1);
    parallel_for(100, 0, count_up, times);
    parallel_for(0, 4, count_up, times);
    cb_set_threads(3);
    parallel_for(100, -5, count_up, times);
    for (int i = 0; i < 100; i++) assert_int_equal(times[i], 2);
    cb_set_threads(100000);
    assert_in_range(cb_threads(), 1, 1024);
    cb_set_threads(0);
}

/* ---- options and errors ---- */

static void options_of_nothing(void **state) {
    (void)state;
    assert_int_equal(cb_set_option(NULL, "1"), CB_ERR_OPTION);
    assert_string_equal(error_text(), "cb_set_option: name or value is NULL");
    cb_clear_error();
    assert_int_equal(cb_set_option("check", NULL), CB_ERR_OPTION);
    assert_string_equal(error_text(), "cb_set_option: name or value is NULL");
    cb_clear_error();
    assert_null(cb_get_option(NULL));
    assert_string_equal(error_text(), "cb_get_option: name is NULL");
    cb_clear_error();
    assert_null(cb_get_option("nothing"));
    cb_clear_error();
    assert_int_equal(cb_set_option("skip", "fuse, fold"), CB_OK);
    assert_true(option_lists(OPTION_skip, "fuse") && option_lists(OPTION_skip, "fold"));
    assert_false(option_lists(OPTION_skip, "fus") || option_lists(OPTION_skip, "fuses"));
    assert_int_equal(cb_set_option("skip", ""), CB_OK);
}

static void names_and_letters_are_checked(void **state) {
    (void)state;
    static const char *const wrong[] = {"simplify", "fold,simplify",   "fol", "folds", "fold)", ")",
                                        "names",    "attention claim)"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(cb_set_option("skip", wrong[i]), CB_ERR_OPTION);
        assert_non_null(strstr(error_text(), "expected names(attention claim fold"));
        cb_clear_error();
    }
    static const char *const right[] = {"amx", "attention", "fold,,fuse ,", " ", "amx,bf16", ""};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        assert_int_equal(cb_set_option("skip", right[i]), CB_OK);
#define PASS(name, letter, needs, gives, breaks, skippable)                                        \
    assert_int_equal(cb_set_option("skip", #name), skippable ? CB_OK : CB_ERR_OPTION);
#include "graph/pass.def"
#undef PASS
    cb_clear_error();
    assert_int_equal(cb_set_option("skip", ""), CB_OK);
    assert_int_equal(cb_set_option("dump", "gz"), CB_ERR_OPTION);
    assert_string_equal(error_text(), "option dump: expected letters(cglskr), got 'gz'");
    cb_clear_error();
    assert_int_equal(cb_set_option("dump", ")"), CB_ERR_OPTION);
    cb_clear_error();
    assert_int_equal(cb_set_option("dump", ""), CB_OK);
}

static void errors_of_nothing(void **state) {
    (void)state;
    char text[64];
    cb_clear_error();
    assert_null(error_text());
    fail_also(" and more"); /* there is nothing that it could be added to */
    assert_null(cb_error());
    site_format((Site){0}, text, sizeof text);
    assert_string_equal(text, "an unknown line");
    cb_site(NULL, 0);
    fail(CB_ERR_IO, "nowhere");
    assert_string_equal(cb_error(), "nowhere");
    cb_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_overflow),
        cmocka_unit_test(addresses_run_out),
        cmocka_unit_test(advice_about_less_than_a_page),
        cmocka_unit_test(grains_and_threads),
        cmocka_unit_test(options_of_nothing),
        cmocka_unit_test(names_and_letters_are_checked),
        cmocka_unit_test(errors_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
