/* The options of a compiled function (options.def), as text: "mode=max-autotune, fullgraph=1". */
#include "capture/backend.h"

#include "base/guess.h"
#include "base/option.h"

#include <string.h>

enum { MAX_VALUES = 4 };

static const struct {
    const char *name;
    const char *word[MAX_VALUES]; /* by value */
} table[FUNCTION_OPTIONS] = {
#define OPTION(id, Type, help, ...) [FUNCTION_OPTION_##id] = {#id, {__VA_ARGS__}},
#define VALUE(enumerator, text) [enumerator] = text,
#include "capture/options.def"
#undef OPTION
#undef VALUE
};

typedef struct OptionWord {
    const char *text;
    int length;
} OptionWord;

static bool is(OptionWord word, const char *text) {
    return (int)strlen(text) == word.length && !memcmp(text, word.text, (size_t)word.length);
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }

static OptionWord trim(const char *start, const char *end) {
    while (start < end && is_space(*start)) start++;
    while (end > start && is_space(end[-1])) end--;
    return (OptionWord){start, (int)(end - start)};
}

static bool refuse_name(OptionWord name) {
    char known[256] = "", meant[GUESS_BYTES];
    Guess guess = guess_part(name.text, (size_t)name.length);
    for (FunctionOption option = 0; option < FUNCTION_OPTIONS; option++) {
        size_t used = strlen(known);
        guess_try(&guess, table[option].name);
        snprintf(known + used, sizeof known - used, "%s%s", option ? ", " : "", table[option].name);
    }
    fail(CB_ERR_OPTION, "compile: there is no option '%.*s'; there are %s%s", name.length,
         name.text, known, guess_text(&guess, meant));
    return false;
}

static bool refuse_value(FunctionOption option, OptionWord value) {
    char known[256] = "";
    for (int i = 0; i < MAX_VALUES && table[option].word[i]; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table[option].word[i]);
    }
    fail(CB_ERR_OPTION, "compile: option %s cannot be '%.*s'; it can be %s", table[option].name,
         value.length, value.text, known);
    return false;
}

/* A word of a switch is the digit that the table has. */
static OptionWord digit(OptionWord value) {
    int on = option_switch(value.text, (size_t)value.length);
    return on < 0 ? value : (OptionWord){on ? "1" : "0", 1};
}

static bool set(FunctionOptions *out, OptionWord name, OptionWord given) {
    OptionWord value = digit(given);
    for (FunctionOption option = 0; option < FUNCTION_OPTIONS; option++) {
        if (!is(name, table[option].name)) continue;
        for (uint8_t k = 0; k < MAX_VALUES && table[option].word[k]; k++) {
            if (!is(value, table[option].word[k])) continue;
            out->value[option] = k;
            return true;
        }
        int backend = NO_BACKEND;
        if (option == FUNCTION_OPTION_backend) /* one may be called "on" */
            backend = backend_find(given.text, (size_t)given.length);
        if (backend == NO_BACKEND) return refuse_value(option, given);
        out->value[option] = (uint8_t)(BACKEND_EAGER + backend);
        return true;
    }
    return refuse_name(name);
}

bool options_parse(const char *text, FunctionOptions *out) {
    memset(out, 0, sizeof *out);
    for (const char *at = text ? text : ""; *at;) {
        const char *end = at + strcspn(at, ",");
        const char *equals = memchr(at, '=', (size_t)(end - at));
        OptionWord item = trim(at, end);
        if (!item.length && !*end) break; /* nothing, or blanks behind the last comma */
        if (!equals) {
            fail(CB_ERR_OPTION, "compile: '%.*s' is no 'name=value', as 'fullgraph=1' is",
                 item.length, item.text);
            return false;
        }
        if (!set(out, trim(at, equals), trim(equals + 1, end))) return false;
        at = *end ? end + 1 : end;
    }
    return true;
}

void options_print(const FunctionOptions *options, Buffer *out) {
    for (FunctionOption option = 0; option < FUNCTION_OPTIONS; option++)
        putf(out, "%s%s=%s", option ? ", " : "", table[option].name,
             option == FUNCTION_OPTION_backend && backend_of(options)
                 ? backend_of(options)->name
                 : table[option].word[options->value[option]]);
}
