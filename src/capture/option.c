/* The options of a compiled function, as text: "mode=max-autotune, fullgraph=1".
 *
 * One table: a name, the field, and the words of the values that it may have. */
#include "capture/function.h"

#include "base/option.h"
#include "device/device.h"

#include <stddef.h>
#include <string.h>

enum { MAX_VALUES = 4 };

static const struct {
    const char *name;
    size_t field;
    const char *value[MAX_VALUES];
} table[] = {
    {"mode",
     offsetof(FunctionOptions, mode),
     {[MODE_DEFAULT] = "default",
      [MODE_REDUCE_OVERHEAD] = "reduce-overhead",
      [MODE_MAX_AUTOTUNE] = "max-autotune",
      [MODE_MAX_AUTOTUNE_NO_GRAPHS] = "max-autotune-no-cudagraphs"}},
    {"fullgraph", offsetof(FunctionOptions, fullgraph), {"0", "1"}},
    {"dynamic",
     offsetof(FunctionOptions, dynamic),
     {[DYNAMIC_AUTO] = "auto", [DYNAMIC_OFF] = "0", [DYNAMIC_ASKED] = "1"}},
    {"device",
     offsetof(FunctionOptions, device),
     {[DEVICE_OF_INPUTS] = "auto",
#define DEVICE_WORD(id, device) [DEVICE_OF_INPUTS + 1 + DEVICE_##id] = #id,
      DEVICES(DEVICE_WORD)
#undef DEVICE_WORD
     }},
    {"backend", offsetof(FunctionOptions, backend), {[BACKEND_C] = "c", [BACKEND_VM] = "vm"}},
    {"fuse", offsetof(FunctionOptions, fuse), {[FUSE_ON] = "1", [FUSE_OFF] = "0"}},
    {"autocast",
     offsetof(FunctionOptions, autocast),
     {[CAST_AS_THREAD] = "auto", [CAST_BF16] = "bf16", [CAST_F16] = "f16", [CAST_OFF] = "0"}},
    {"freeze",
     offsetof(FunctionOptions, freeze),
     {[FREEZE_AUTO] = "auto", [FREEZE_ALL] = "1", [FREEZE_NONE] = "0"}},
};
enum { OPTIONS = sizeof table / sizeof *table };

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
    char known[256] = "";
    for (int i = 0; i < OPTIONS; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table[i].name);
    }
    fail(CB_ERR_OPTION, "compile: there is no option '%.*s'; there are %s", name.length, name.text,
         known);
    return false;
}

static bool refuse_value(int option, OptionWord value) {
    char known[256] = "";
    for (int i = 0; i < MAX_VALUES && table[option].value[i]; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table[option].value[i]);
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
    for (int i = 0; i < OPTIONS; i++) {
        if (!is(name, table[i].name)) continue;
        for (int k = 0; k < MAX_VALUES && table[i].value[k]; k++) {
            if (!is(value, table[i].value[k])) continue;
            *(int *)((char *)out + table[i].field) = k;
            return true;
        }
        return refuse_value(i, given);
    }
    return refuse_name(name);
}

bool options_parse(const char *text, FunctionOptions *out) {
    memset(out, 0, sizeof *out);
    for (const char *at = text ? text : ""; *at;) {
        const char *end = at + strcspn(at, ",");
        const char *equals = memchr(at, '=', (size_t)(end - at));
        OptionWord item = trim(at, end);
        if (item.length && !equals) {
            fail(CB_ERR_OPTION, "compile: '%.*s' is no 'name=value'", item.length, item.text);
            return false;
        }
        if (item.length && !set(out, trim(at, equals), trim(equals + 1, end))) return false;
        at = *end ? end + 1 : end;
    }
    return true;
}

void options_print(const FunctionOptions *options, Buffer *out) {
    for (int i = 0; i < OPTIONS; i++) {
        int value = *(const int *)((const char *)options + table[i].field);
        putf(out, "%s%s=%s", i ? ", " : "", table[i].name, table[i].value[value]);
    }
}
