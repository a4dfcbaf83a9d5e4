#include "base/precision.h"
#include "base/error.h"
#include <stdatomic.h>
#include <string.h>

static const char *const names[] = {"highest", "high", "medium"};
enum { LEVELS = sizeof names / sizeof *names, MEDIUM = 2 };

static _Atomic int level;

cb_status cb_set_float32_matmul_precision(const char *precision) {
    for (int i = 0; precision && i < LEVELS; i++) {
        if (strcmp(precision, names[i]) != 0) continue;
        atomic_store_explicit(&level, i, memory_order_relaxed);
        return CB_OK;
    }
    return fail(CB_ERR_ARGUMENT,
                "set_float32_matmul_precision: there is no precision '%s'; there are highest, high "
                "and medium",
                precision ? precision : "NULL");
}

const char *cb_get_float32_matmul_precision(void) {
    return names[atomic_load_explicit(&level, memory_order_relaxed)];
}

bool precision_reduced(void) {
    return atomic_load_explicit(&level, memory_order_relaxed) == MEDIUM;
}
