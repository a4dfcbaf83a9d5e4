/* The ambient state: taken, printed, and two settings that are part of it: the precision of
 * products, and whether subnormal numbers are 0. */
#include "tensor/ambient.h"

#include "base/error.h"
#include "base/subnormal.h"
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

/* ---- subnormal numbers: one setting of each thread ------------------------------------------- */

bool cb_set_flush_denormal(bool on) {
    if (on != subnormals_are_zero() && !tracer_may_change("flush denormal", CHANGES_OPS))
        return false;
    subnormals_set(on ? SUBNORMALS_ZERO : 0);
    return SUBNORMALS_ZERO != 0;
}

/* ---- taking ---------------------------------------------------------------------------------- */

Ambient ambient_of_op(void) {
    bool precise = option_int(OPTION_precise); /* from then on options are read */
    return (Ambient){.autocast = CB_SAME,
                     .reduced = atomic_load_explicit(&level, memory_order_relaxed) == MEDIUM,
                     .precise = precise,
                     .flushes = subnormals_are_zero(),
                     .checked = option_now(OPTION_check),
                     .device = (uint8_t)option_now(OPTION_device)};
}

static bool may_change(Option option) {
    return (option != OPTION_precise && option != OPTION_device && option != OPTION_check) ||
           tracer_may_change(option_info(option)->name, CHANGES_OPS);
}

void ambient_watch(void) { option_ask(may_change); }

/* ---- printing -------------------------------------------------------------------------------- */

static int autocast_of(Ambient a) { return a.autocast; }
static int reduced_of(Ambient a) { return a.reduced; }
static int precise_of(Ambient a) { return a.precise; }
static int flushes_of(Ambient a) { return a.flushes; }
static int device_of(Ambient a) { return a.device; }
static int checked_of(Ambient a) { return a.checked; }

static const char *dtype_word(int dtype) { return dtype == CB_SAME ? "off" : cb_dtype_name(dtype); }
static const char *precision_word(int reduced) { return reduced ? "medium" : "not medium"; }
static const char *device_word(int device) { return devices[device]->name; }
static const char *flag_word(int flag) { return flag ? "1" : "0"; }

static const struct {
    const char *name;
    int (*of)(Ambient a);
    const char *(*word)(int value);
} fields[] = {{"autocast", autocast_of, dtype_word},
              {"float32 matmul precision", reduced_of, precision_word},
              {"option precise", precise_of, flag_word},
              {"flush denormal", flushes_of, flag_word},
              {"option device", device_of, device_word},
              {"option check", checked_of, flag_word}};
enum { FIELDS = sizeof fields / sizeof *fields };

static const char *word_of(int field, Ambient a) { return fields[field].word(fields[field].of(a)); }

static bool differs(int field, Ambient a, Ambient b) {
    return fields[field].of(a) != fields[field].of(b);
}

void ambient_print(Ambient a, Buffer *out) {
    for (int i = 0; i < FIELDS; i++)
        if (differs(i, a, (Ambient){.autocast = CB_SAME}))
            putf(out, "  %s: %s\n", fields[i].name, word_of(i, a));
}

void ambient_print_change(Ambient now, Ambient then, const char *whose, char *out, size_t bytes) {
    size_t used = 0;
    for (int i = 0; i < FIELDS && used < bytes; i++) {
        if (!differs(i, now, then)) continue;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s is %s, for %s it was %s",
                                 used ? "; " : "", fields[i].name, word_of(i, now), whose,
                                 word_of(i, then));
    }
}
