/* Process options: the table of options.def, the environment over it, cb_set_option over both.
 *
 * In: CARBIDE_THREADS=4 at first use, or cb_set_option("threads", "4"). Out:
 * option_int(OPTION_threads). Any thread may read and set. Readers take no lock: a value is an
 * atomic number and an atomic pointer to a text that lives until option_reset. Equal texts are
 * stored once, so setting in a loop does not grow. */
#include "base/option.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/guess.h"
#include "base/lock.h"
#include "base/memory.h"
#include <ctype.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const OptionInfo infos[OPTION_COUNT] = {
#define OPTION(id, type, value, help) [OPTION_##id] = {#id, #type, value, help},
#include "base/options.def"
#undef OPTION
};

typedef struct Text {
    struct Text *next;
    char text[];
} Text;

static struct {
    atomic_bool ready; /* defaults and environment are in */
    Text *texts;
    _Atomic(const char *) text[OPTION_COUNT];
    char fixed[OPTION_COUNT][8]; /* the text of an option that is in use for good; "" */
} options;                       /* written under the lock */

_Atomic int64_t option_numbers[OPTION_COUNT];

const OptionInfo *option_info(Option option) {
    check((unsigned)option < OPTION_COUNT, "option %d", (int)option);
    return &infos[option];
}

int option_switch(const char *word, size_t length) {
    static const char *const words[] = {"0", "1", "off", "on", "false", "true"};
    for (int i = 0; i < 6; i++)
        if (strlen(words[i]) == length && !strncasecmp(words[i], word, length)) return i & 1;
    return -1;
}

/* The number of the word among those of the type "auto|base|v3"; -1: it is none of them. */
static int64_t choice_of(const char *type, const char *word) {
    size_t length = strlen(word);
    int64_t number = 0;
    for (const char *at = type;; at++, number++) {
        size_t bytes = strcspn(at, "|");
        if (bytes == length && !memcmp(at, word, length)) return number;
        at += bytes;
        if (!*at) return -1;
    }
}

/* What stands in parentheses behind the word that the type begins with; NULL: another type. */
static const char *inside(const char *type, const char *word) {
    size_t length = strlen(word);
    return !strncmp(type, word, length) && type[length] == '(' ? type + length + 1 : NULL;
}

static bool has_letters(const char *known, const char *text) {
    for (; *text; text++)
        if (!memchr(known, *text, strcspn(known, ")"))) return false;
    return true;
}

/* Whether every name of the list stands in known, "one other)". */
static bool has_names(const char *known, const char *text) {
    while (*(text += strspn(text, ", "))) {
        size_t length = strcspn(text, ", ");
        const char *at = known;
        while (strcspn(at, " )") != length || memcmp(at, text, length) != 0) {
            at += strcspn(at, " )");
            if (*at++ == ')') return false;
        }
        text += length;
    }
    return true;
}

/* NULL: fits the option's type, *number is its value; else what was expected. */
static const char *parse(Option option, const char *text, int64_t *number) {
    const char *type = infos[option].type;
    *number = 0;
    if (!strcmp(type, "text")) return NULL;
    if (!strcmp(type, "file")) return option_switch(text, strlen(text)) > 0 ? "a file" : NULL;
    const char *letters = inside(type, "letters"), *names = inside(type, "names");
    if (letters) return has_letters(letters, text) ? NULL : type;
    if (names) return has_names(names, text) ? NULL : type;
    if (strchr(type, '|')) {
        *number = choice_of(type, text);
        return *number >= 0 ? NULL : type;
    }
    if (!strcmp(type, "bool")) {
        int on = option_switch(text, strlen(text));
        *number = on > 0;
        return on >= 0 ? NULL : "0 or 1, off or on, false or true";
    }
    char *end;
    *number = strtoll(text, &end, 10);
    bool below = *infos[option].value == '-'; /* the default is -1: no limit */
    bool percent = !strcmp(type, "percent");
    bool fits = end != text && !*end && *number >= -below;
    if (fits && *number <= (percent ? 100 : INT32_MAX)) return NULL;
    if (percent) return "an integer from 0 to 100";
    return below ? "an integer from -1 to 2147483647" : "an integer from 0 to 2147483647";
}

/* The stored copy of text; NULL when out of memory. The caller holds the lock. */
static const char *keep(const char *text) {
    for (Text *t = options.texts; t; t = t->next)
        if (!strcmp(t->text, text)) return t->text;
    size_t bytes = strlen(text) + 1;
    Text *t = memory_alloc(sizeof(Text) + bytes);
    if (!t) return NULL;
    memcpy(t->text, text, bytes);
    t->next = options.texts;
    options.texts = t;
    return t->text;
}

static void store(Option option, const char *text, int64_t number) {
    atomic_store(&options.text[option], text);
    atomic_store(&option_numbers[option], number);
}

enum { VARIABLE_BYTES = 64 };

/* "CARBIDE_LEVEL" */
static void variable_of(Option option, char name[VARIABLE_BYTES]) {
    size_t length = (size_t)snprintf(name, VARIABLE_BYTES, "CARBIDE_%s", infos[option].name);
    for (size_t i = 0; i < length; i++) name[i] = (char)toupper((unsigned char)name[i]);
}

/* A bad variable is reported once and left out: there is no call that could fail with it. */
static void read_environment(Option option) {
    char name[VARIABLE_BYTES];
    variable_of(option, name);
    const char *text = environment(name);
    if (!text) return;
    int64_t number;
    const char *expected = parse(option, text, &number);
    const char *kept = expected ? NULL : keep(text);
    if (kept)
        store(option, kept, number);
    else
        fprintf(stderr, "carbide: %s=%s is ignored: %s%s\n", name, text,
                expected ? "expected " : "out of memory", expected ? expected : "");
}

/* Those whose name is nearly an option's: others may be another program's own. */
static void tell_unknown(void) {
    const char *variable;
    if (!atomic_load(&option_numbers[OPTION_notices])) return;
    for (int at = 0; (variable = environment_next("CARBIDE_", &at));) {
        char meant[VARIABLE_BYTES] = "";
        size_t length = strcspn(variable, "="), prefix = sizeof "CARBIDE_" - 1;
        Guess guess = guess_part(variable + prefix, length - prefix);
        for (Option option = 0; option < OPTION_COUNT; option++)
            guess_try(&guess, infos[option].name);
        for (Option option = 0; option < OPTION_COUNT; option++)
            if (infos[option].name == guess_word(&guess)) variable_of(option, meant);
        if (!*meant || (strlen(meant) == length && !memcmp(meant, variable, length))) continue;
        fprintf(stderr, "carbide: %.*s is no option; did you mean %s?\n", (int)length, variable,
                meant);
    }
}

static void prepare(void) {
    if (atomic_load_explicit(&options.ready, memory_order_acquire)) return;
    lock_take(LOCK_option);
    if (!atomic_load(&options.ready)) { /* untested: another thread has been here meanwhile */
        for (Option option = 0; option < OPTION_COUNT; option++) {
            int64_t number;
            const char *expected = parse(option, infos[option].value, &number);
            check(!expected, "options.def: %s has a bad default", infos[option].name);
            if (options.fixed[option][0]) continue;
            store(option, infos[option].value, number);
            read_environment(option);
        }
        tell_unknown();
        atomic_store_explicit(&options.ready, true, memory_order_release);
    }
    lock_give(LOCK_option);
}

void option_reset(void) {
    lock_take(LOCK_option);
    atomic_store(&options.ready, false);
    while (options.texts) {
        Text *next = options.texts->next;
        memory_free(options.texts);
        options.texts = next;
    }
    lock_give(LOCK_option);
}

int64_t option_int(Option option) {
    prepare();
    return atomic_load_explicit(&option_numbers[option], memory_order_relaxed);
}

int64_t option_fix(Option option) {
    prepare();
    lock_take(LOCK_option);
    const char *text = atomic_load(&options.text[option]);
    int64_t number = atomic_load(&option_numbers[option]);
    check(strlen(text) < sizeof options.fixed[0], "option_fix: '%s' is too long", text);
    memmove(options.fixed[option], text, strlen(text) + 1);
    store(option, options.fixed[option], number);
    lock_give(LOCK_option);
    return number;
}

const char *option_text(Option option) {
    prepare();
    return atomic_load(&options.text[option]);
}

const char *option_name(Option option) {
    const char *text = option_text(option);
    int on = option_switch(text, strlen(text));
    return on < 0 ? text : on ? NULL : "";
}

bool option_lists(Option option, const char *name) {
    size_t length = strlen(name);
    for (const char *at = option_text(option); *at;) {
        at += strspn(at, ", ");
        size_t item = strcspn(at, ", ");
        if (item == length && !memcmp(at, name, length)) return true;
        at += item;
    }
    return false;
}

static Option find(const char *name) {
    Option option = 0;
    while (option < OPTION_COUNT && strcmp(name, infos[option].name) != 0) option++;
    if (option == OPTION_COUNT) {
        char known[512] = "", meant[GUESS_BYTES];
        Guess guess = guess_begin(name);
        for (Option k = 0; k < OPTION_COUNT; k++) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", k ? ", " : "", infos[k].name);
            guess_try(&guess, infos[k].name);
        }
        fail(CB_ERR_OPTION, "unknown option '%s'; there are %s%s", name, known,
             guess_text(&guess, meant));
    }
    return option;
}

static OptionAsk *_Atomic asked;

void option_ask(OptionAsk *may_change) { atomic_store(&asked, may_change); }

cb_status cb_set_option(const char *name, const char *value) {
    if (!name || !value) return fail(CB_ERR_OPTION, "cb_set_option: name or value is NULL");
    Option option = find(name);
    if (option == OPTION_COUNT) return CB_ERR_OPTION;
    int64_t number;
    const char *expected = parse(option, value, &number);
    if (expected)
        return fail(CB_ERR_OPTION, "option %s: expected %s, got '%s'", name, expected, value);
    OptionAsk *ask = atomic_load(&asked);
    if (number != option_int(option) && ask && !ask(option)) return cb_error_status();
    lock_take(LOCK_option);
    bool fixed = options.fixed[option][0];
    bool same = fixed && number == atomic_load(&option_numbers[option]);
    const char *kept = fixed ? NULL : keep(value);
    if (kept) store(option, kept, number);
    lock_give(LOCK_option);
    if (fixed && !same) {
        char variable[VARIABLE_BYTES];
        variable_of(option, variable);
        return fail(CB_ERR_OPTION,
                    "option %s is in use and stays %s: set it before the first op, or %s", name,
                    option_text(option), variable);
    }
    if (fixed) return CB_OK;
    return kept ? CB_OK : fail_memory(strlen(value) + 1);
}

const char *cb_get_option(const char *name) {
    if (!name) {
        fail(CB_ERR_OPTION, "cb_get_option: name is NULL");
        return NULL;
    }
    Option option = find(name);
    return option == OPTION_COUNT ? NULL : option_text(option);
}
