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

#define STANCES(_)                                                                                 \
    _(DEFAULT, "default")                                                                          \
    _(FORCE_EAGER, "force_eager")                                                                  \
    _(EAGER_ON_RECOMPILE, "eager_on_recompile")                                                    \
    _(FAIL_ON_RECOMPILE, "fail_on_recompile")                                                      \
    _(EAGER_THEN_COMPILE, "eager_then_compile")

#define STANCE(id, word) STANCE_##id,
typedef enum Stance { STANCES(STANCE) STANCE_COUNT } Stance;
#undef STANCE

#define WORD(id, word) "|" word
#define OPTION(id, type, value, help)                                                              \
    _Static_assert(OPTION_##id != OPTION_stance || !__builtin_strcmp("|" #type, STANCES(WORD)),    \
                   "the option stance has these words, in this order");
#include "base/options.def"
#undef OPTION
#undef WORD

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
