/* For tests of entries that run without their function. */
#ifndef CARBIDE_TEST_FULLGRAPH_SUPPORT_H
#define CARBIDE_TEST_FULLGRAPH_SUPPORT_H

#include "capture_support.h"

#define FULL "fullgraph=1," VM

static inline double first_of(cb_tensor *x) {
    return cb_item(cb_select(cb_detach(cb_reshape(x, cb_dims(-1))), 0, 0));
}

static inline void expect_call(cb_function *fast, cb_function_1 *function, cb_tensor *x,
                               int graphs) {
    cb_tensor *got = cb_call(fast, x);
    if (!got) fail_msg("%s", cb_error());
    assert_float_equal(first_of(got), first_of(function(x)), 1e-6);
    assert_int_equal(cb_stats(fast).graphs, graphs);
}

static inline void expect_told(cb_function *fast, const char *words) {
    char *text = cb_explain(fast);
    if (!strstr(text, words)) fail_msg("'%s' is not in\n%s", words, text);
    cb_free_text(text);
}

#endif
