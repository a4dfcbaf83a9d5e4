/* Options of the process: defaults, the environment, cb_set_option; what is refused, and how. */
#include "counting_heap.h"

#include "base/error.h"
#include "device/device.h"
#include <string.h>

static void options_come_from_the_environment(void **state) {
    (void)state;
    setenv("CARBIDE_RECOMPILE_LIMIT", "3", 1);
    setenv("CARBIDE_SKIP", "fuse,fold", 1);
    option_reset();
    assert_int_equal(option_int(OPTION_recompile_limit), 3);
    assert_string_equal(cb_get_option("skip"), "fuse,fold");
    assert_true(option_lists(OPTION_skip, "fold"));
    assert_false(option_lists(OPTION_skip, "fol"));
    assert_false(option_lists(OPTION_skip, ""));
    unsetenv("CARBIDE_RECOMPILE_LIMIT");
    unsetenv("CARBIDE_SKIP");
    option_reset();
    assert_int_equal(option_int(OPTION_recompile_limit), 8);
    assert_string_equal(option_text(OPTION_skip), "");
}

static void choices_are_numbers_of_words(void **state) {
    (void)state;
    setenv("CARBIDE_LEVEL", "v4", 1);
    option_reset();
    assert_int_equal(option_int(OPTION_level), 3); /* auto, base, v3, v4 */
    unsetenv("CARBIDE_LEVEL");
    option_reset();
    assert_int_equal(option_int(OPTION_level), 0);
    const char *wrong[] = {"", "v", "v33", "auto|base", "x"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(cb_set_option("level", wrong[i]), CB_ERR_OPTION);
        assert_non_null(strstr(cb_error(), "expected auto|base|v3|v4|bf16|amx"));
        cb_clear_error();
    }
}

/* Words that stand in a table besides options.def. */
static void words_are_those_of_their_tables(void **state) {
    (void)state;
    int count = 0;
    for (const char *at = option_info(OPTION_device)->type; at; at = strchr(at + 1, '|')) count++;
    assert_int_equal(count, DEVICE_COUNT);
    for (int id = 0; id < DEVICE_COUNT; id++) {
        assert_int_equal(cb_set_option("device", devices[id]->name), CB_OK);
        assert_int_equal(option_int(OPTION_device), id);
    }
#define PASS(name, letter, needs, gives, breaks, skippable)                                        \
    assert_int_equal(cb_set_option("skip", #name), (skippable) ? CB_OK : CB_ERR_OPTION);           \
    cb_clear_error();
#include "graph/pass.def"
#undef PASS
    option_reset();
}

static void numbers_are_whole_texts(void **state) {
    (void)state;
    const char *wrong[] = {"", "x", "8x", "8 ", "8.5", "99999999999999999999"};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(cb_set_option("recompile_limit", wrong[i]), CB_ERR_OPTION);
        assert_non_null(strstr(cb_error(), "expected an integer"));
        cb_clear_error();
        assert_int_equal(option_int(OPTION_recompile_limit), 8);
    }
}

/* What packed weights rest on cannot change under them. */
static void a_fixed_option_stays(void **state) {
    (void)state;
    assert_int_equal(cb_set_option("level", "base"), CB_OK);
    assert_int_equal(cb_set_option("level", "v3"), CB_OK);
    assert_int_equal(option_fix(OPTION_level), 2);
    assert_int_equal(cb_set_option("level", "base"), CB_ERR_OPTION);
    assert_non_null(strstr(cb_error(), "option level is in use and stays v3: set it before the "
                                       "first op, or CARBIDE_LEVEL"));
    cb_clear_error();
    assert_int_equal(cb_set_option("level", "v3"), CB_OK);
    option_reset();
    option_reset();
    assert_int_equal(option_int(OPTION_level), 2);
    assert_string_equal(cb_get_option("level"), "v3");
}

static void options_are_set_and_checked(void **state) {
    (void)state;
    assert_int_equal(cb_set_option("check", "true"), CB_OK);
    assert_int_equal(option_int(OPTION_check), 1);
    const char *const words[] = {"off", "on", "False", "True", "false", "1", "0"};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(cb_set_option("check", words[i]), CB_OK);
        assert_int_equal(option_int(OPTION_check), i % 2);
    }
    assert_int_equal(cb_set_option("check", "of"), CB_ERR_OPTION);
    assert_string_equal(error_text(),
                        "option check: expected 0 or 1, off or on, false or true, got 'of'");
    cb_clear_error();
    assert_int_equal(cb_set_option("passes", "-1"), CB_OK);
    assert_int_equal(option_int(OPTION_passes), -1);
    assert_int_equal(cb_set_option("chek", "1"), CB_ERR_OPTION);
    assert_non_null(strstr(cb_error(), "unknown option 'chek'"));
    assert_non_null(strstr(cb_error(), "cache_dir"));
    assert_non_null(strstr(cb_error(), "; did you mean 'check'?"));
    cb_clear_error();
    assert_int_equal(cb_set_option("threads", "four"), CB_ERR_OPTION);
    assert_string_equal(error_text(),
                        "option threads: expected an integer from 0 to 2147483647, got 'four'");
    cb_clear_error();
    assert_int_equal(cb_set_option("threads", ""), CB_ERR_OPTION);
    assert_int_equal(cb_set_option("threads", "99999999999999999999"), CB_ERR_OPTION);
    assert_int_equal(cb_set_option("threads", "-3"), CB_ERR_OPTION);
    assert_int_equal(cb_set_option("recompile_limit", "2147483648"), CB_ERR_OPTION);
    cb_clear_error();
    assert_int_equal(cb_set_option("memory_budget", "101"), CB_ERR_OPTION);
    assert_string_equal(error_text(),
                        "option memory_budget: expected an integer from 0 to 100, got '101'");
    assert_int_equal(cb_set_option("memory_budget", "-1"), CB_ERR_OPTION);
    assert_int_equal(cb_set_option("storage_limit_mb", "2147483647"), CB_OK);
    assert_int_equal(cb_set_option("storage_limit_mb", "4096"), CB_OK);
    assert_int_equal(cb_set_option("passes", "-2"), CB_ERR_OPTION);
    cb_clear_error();
    assert_int_equal(cb_set_option("trace", "off"), CB_OK);
    assert_int_equal(cb_set_option("trace", "1"), CB_ERR_OPTION);
    assert_string_equal(error_text(), "option trace: expected a file, got '1'");
    assert_int_equal(cb_set_option("cache", "maybe"), CB_ERR_OPTION);
    assert_int_equal(cb_set_option(NULL, "1"), CB_ERR_OPTION);
    assert_null(cb_get_option("nothing"));
    for (Option option = 0; option < OPTION_COUNT; option++)
        assert_non_null(cb_get_option(option_info(option)->name));
}

static void options_report_missing_memory(void **state) {
    (void)state;
    assert_string_equal(cb_get_option("cc"), "cc");
    budget = 0;
    assert_int_equal(cb_set_option("cc", "gcc"), CB_ERR_MEMORY);
    assert_string_equal(cb_get_option("cc"), "cc");
    budget = -1;
    int before = live; /* the environment's texts */
    for (int i = 0; i < 100; i++)
        assert_int_equal(cb_set_option("cc", i % 2 ? "gcc" : "clang"), CB_OK);
    assert_string_equal(cb_get_option("cc"), "gcc");
    assert_int_equal(live, before + 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(options_come_from_the_environment, use_counting_heap),
        cmocka_unit_test_setup(choices_are_numbers_of_words, use_counting_heap),
        cmocka_unit_test_setup(words_are_those_of_their_tables, use_counting_heap),
        cmocka_unit_test_setup(numbers_are_whole_texts, use_counting_heap),
        cmocka_unit_test_setup(a_fixed_option_stays, use_counting_heap),
        cmocka_unit_test_setup(options_are_set_and_checked, use_counting_heap),
        cmocka_unit_test_setup_teardown(options_report_missing_memory, use_counting_heap, use_heap),
    };
    return cmocka_run_group_tests(tests, use_counting_heap, use_heap);
}
