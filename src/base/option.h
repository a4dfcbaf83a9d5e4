/* Process options (options.def): read by the API, the environment (CARBIDE_NAME) and the
 * command. */
#ifndef CARBIDE_BASE_OPTION_H
#define CARBIDE_BASE_OPTION_H

#include "carbide.h"
#include <stdatomic.h>

typedef enum Option {
#define OPTION(id, type, value, help) OPTION_##id,
#include "base/options.def"
#undef OPTION
    OPTION_COUNT
} Option;

typedef struct OptionInfo {
    const char *name;
    const char *type; /* "int", "percent", "bool", "text"; the words to choose from: "auto|base|v3";
                       * any letters of "letters(abc)"; any of "names(one other)",
                       * comma-separated */
    const char *value /* default */, *help;
} OptionInfo;

/* 1 or 0 for the words of a switch: 1, on, true; 0, off, false, whatever their case; else -1. */
int option_switch(const char *word, size_t length);
const OptionInfo *option_info(Option option);
/* As set so far; before the first use of any option, 0. For paths of few nanoseconds. */
extern _Atomic int64_t option_numbers[OPTION_COUNT];
static inline int64_t option_now(Option option) {
    return atomic_load_explicit(&option_numbers[option], memory_order_relaxed);
}
int64_t option_int(Option option); /* of a choice: the word's number */
const char *option_text(Option option); /* never NULL; stays valid until the option is set again */
/* The same, for good: from now on the option cannot be set to anything else, not even by
 * option_reset. For what lasts as long as the process. */
int64_t option_fix(Option option);
/* Whom cb_set_option asks when an option is about to get another value; false with an error: it
 * stays. For tensor/ambient.c, which knows on which of them ops depend. */
typedef bool OptionAsk(Option option);
void option_ask(OptionAsk *may_change);
/* Back to defaults and environment, which are read again at the next use; frees the texts. No other
 * thread may use options meanwhile. For cb_cleanup. */
void option_reset(void);
/* A text that may be a switch: what it names; "" when it is off, NULL for a mere "on". */
const char *option_name(Option option);
/* True when name stands in a comma-separated list option, such as skip. */
bool option_lists(Option option, const char *name);

#endif
