/* The ambient state: taken, printed, and the precision of products, which is part of it. */
#include "tensor/ambient.h"

#include "base/error.h"
#include "device/device.h"
#include "tensor/tracer.h"

#include <stdatomic.h>
#include <stdio.h>

/* ---- the precision of f32 products: one setting of the process ------------------------------- */

static const char *const levels[] = {"highest", "high", "medium"};
enum { LEVELS = sizeof levels / sizeof *levels, MEDIUM = 2 };

static _Atomic int level;

cb_status cb_set_float32_matmul_precision(const char *precision) {
    for (int i = 0; precision && i < LEVELS; i++) {
        if (strcmp(precision, levels[i]) != 0) continue;
        bool was = atomic_load_explicit(&level, memory_order_relaxed) == MEDIUM;
        if (was != (i == MEDIUM) && !tracer_may_change("float32 matmul precision", CHANGES_OPS))
            return cb_error_status();
        atomic_store_explicit(&level, i, memory_order_relaxed);
        return CB_OK;
    }
    return fail(CB_ERR_ARGUMENT,
                "set_float32_matmul_precision: there is no precision '%s'; there are highest, high "
                "and medium",
                precision ? precision : "NULL");
}

const char *cb_get_float32_matmul_precision(void) {
    return levels[atomic_load_explicit(&level, memory_order_relaxed)];
}

/* ---- taking ---------------------------------------------------------------------------------- */

Ambient ambient_of_op(void) {
    bool precise = option_int(OPTION_precise); /* from then on options are read */
    return (Ambient){.autocast = CB_SAME,
                     .reduced = atomic_load_explicit(&level, memory_order_relaxed) == MEDIUM,
                     .precise = precise,
                     .checked = option_now(OPTION_check),
                     .device = (uint8_t)option_now(OPTION_device)};
}

static bool may_change(Option option) {
    return (option != OPTION_precise && option != OPTION_device && option != OPTION_check) ||
           tracer_may_change(option_info(option)->name, CHANGES_OPS);
}

void ambient_watch(void) { option_ask(may_change); }

/* ---- printing -------------------------------------------------------------------------------- */

static const char *print_autocast(Ambient a) {
    return a.autocast == CB_SAME ? "off" : cb_dtype_name(a.autocast);
}
static const char *print_reduced(Ambient a) { return a.reduced ? "medium" : "not medium"; }
static const char *print_precise(Ambient a) { return a.precise ? "1" : "0"; }
static const char *print_checked(Ambient a) { return a.checked ? "1" : "0"; }
static const char *print_device(Ambient a) { return devices[a.device]->name; }

static const struct {
    const char *name;
    const char *(*print)(Ambient a);
} fields[] = {{"autocast", print_autocast},
              {"float32 matmul precision", print_reduced},
              {"option precise", print_precise},
              {"option device", print_device},
              {"option check", print_checked}};
enum { FIELDS = sizeof fields / sizeof *fields };

static bool differs(int field, Ambient a, Ambient b) {
    return strcmp(fields[field].print(a), fields[field].print(b)) != 0;
}

void ambient_print(Ambient a, Buffer *out) {
    for (int i = 0; i < FIELDS; i++)
        if (differs(i, a, (Ambient){.autocast = CB_SAME}))
            putf(out, "  %s: %s\n", fields[i].name, fields[i].print(a));
}

void ambient_print_change(Ambient now, Ambient then, const char *whose, char *out, size_t bytes) {
    size_t used = 0;
    for (int i = 0; i < FIELDS && used < bytes; i++) {
        if (!differs(i, now, then)) continue;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s is %s, for %s it was %s",
                                 used ? "; " : "", fields[i].name, fields[i].print(now), whose,
                                 fields[i].print(then));
    }
}
