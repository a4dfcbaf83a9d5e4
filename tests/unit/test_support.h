/* cmocka with the headers that it needs; clang-format must not sort these. */
#ifndef CARBIDE_TEST_SUPPORT_H
#define CARBIDE_TEST_SUPPORT_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

/* Leaves the test, which has nothing to test here, and says why: a format with its arguments. */
#define skip_because(...) (print_message("skipped: " __VA_ARGS__), print_message("\n"), skip())

/* cmocka's fail_msg, whose macro our fail() hides: a format with its arguments. */
#define FAIL(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#endif
