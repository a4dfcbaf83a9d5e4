/* What may be compiled: the option stance, and the limit of entries.
 *
 *     a call that no entry takes
 *         default              it is recorded, below the limit
 *         eager_on_recompile   it runs eagerly; what is compiled already runs
 *         fail_on_recompile    it is an error, which says what the newest entry does not hold for
 *
 * Whoever runs eagerly for the limit is told once for each line, on stderr (option notices). */
#include "capture/function.h"

#include "base/option.h"
#include "eager/anomaly.h"

typedef enum Stance { /* the words of the option, in order */
                      STANCE_DEFAULT,
                      STANCE_FORCE_EAGER,
                      STANCE_EAGER_ON_RECOMPILE,
                      STANCE_FAIL_ON_RECOMPILE,
                      STANCE_EAGER_THEN_COMPILE
} Stance;

static Stance stance(void) { return (Stance)option_int(OPTION_stance); }

bool stance_runs(const Function *function, int64_t calls_before) {
    if (atomic_load_explicit(&function->eager, memory_order_relaxed) || tracer_disabled())
        return false;
    Stance now = stance();
    if (anomaly_wanted()) return false;
    return now != STANCE_FORCE_EAGER && (now != STANCE_EAGER_THEN_COMPILE || calls_before);
}

bool stance_compiles(void) {
    Stance now = stance();
    return now != STANCE_EAGER_ON_RECOMPILE && now != STANCE_FAIL_ON_RECOMPILE;
}

bool stance_refuses(const Function *function, Reason reason) {
    return function->options.fullgraph ||
           (reason == REASON_stance && stance() == STANCE_FAIL_ON_RECOMPILE);
}

Reason stance_find(int alternatives, int limit) {
    if (!stance_compiles()) return REASON_stance;
    return alternatives >= limit && alternatives ? REASON_recompile_limit : REASON_NONE;
}

bool stance_tells(Reason reason) {
    return reason == REASON_recompile_limit || reason == REASON_gave_up ||
           reason == REASON_backend_refused || reason == REASON_backend_failed;
}

void stance_notice(const Function *function, Reason reason, Site site, const char *detail) {
    if (!option_int(OPTION_notices)) return;
    const char *made = function->made.file ? function->made.file : "?";
    fprintf(stderr, "carbide: %s:%d: %s%s%s (%s, compiled at %s:%d)\n", site.file ? site.file : "?",
            site.line, reason_info(reason)->text, *detail ? ": " : "", detail,
            function_title(function), made, function->made.line);
}
