/* A table of options and the words of the command line -> a filled struct.
 *
 * In: {"threads", ARGUMENT_COUNT, offsetof(Options, threads), ...} and "--threads", "2".
 * Out: options.threads == 2. Whatever is not understood is refused by name. */
#include "arguments.h"
#include "screen.h"

#include <stdlib.h>
#include <string.h>

static const cb_dtype floats[] = {CB_F32, CB_F64, CB_BF16, CB_F16};
enum { FLOATS = sizeof floats / sizeof *floats, LOWER = 2 /* where those of 16 bits begin */ };

typedef struct Given { /* one option as it was written */
    const char *command, *name, *value;
} Given;

static bool refuse(const Given *given, const char *wanted) {
    fprintf(stderr, "carbide %s: --%s cannot be '%s'; it can be %s\n", given->command, given->name,
            given->value, wanted);
    return false;
}

static bool set_count(const Given *given, int64_t *out) {
    char *end;
    *out = strtoll(given->value, &end, 10);
    if (end != given->value && !*end && *out >= 1 && *out <= INT64_C(1) << 40) return true;
    return refuse(given, "a whole number from 1");
}

static bool set_time(const Given *given, double *out) {
    char *end;
    *out = strtod(given->value, &end);
    if (end != given->value && !*end && *out > 0 && *out <= 3600) return true;
    return refuse(given, "a number of seconds above 0");
}

static bool set_dtype(const Given *given, int first, cb_dtype *out) {
    char wanted[64] = "";
    for (int i = first; i < FLOATS; i++) {
        size_t used = strlen(wanted);
        *out = floats[i];
        if (!strcmp(given->value, cb_dtype_name(*out))) return true;
        snprintf(wanted + used, sizeof wanted - used, "%s%s", i > first ? ", " : "",
                 cb_dtype_name(*out));
    }
    return refuse(given, wanted);
}

static bool set(const ArgumentRow *row, const Given *given, void *out) {
    void *field = (char *)out + row->field;
    switch (row->type) {
    case ARGUMENT_FLAG:
        *(bool *)field = true;
        return true;
    case ARGUMENT_TEXT:
        *(const char **)field = given->value;
        return true;
    case ARGUMENT_COUNT:
        return set_count(given, field);
    case ARGUMENT_TIME:
        return set_time(given, field);
    case ARGUMENT_DTYPE:
        return set_dtype(given, 0, field);
    case ARGUMENT_LOWER:
        return set_dtype(given, LOWER, field);
    }
    return false;
}

static const ArgumentRow *find(const ArgumentRow *row, const char *name, size_t length) {
    for (; row->name; row++)
        if (strlen(row->name) == length && !memcmp(row->name, name, length)) return row;
    return NULL;
}

/* Takes argv[0], and argv[1] when it is the value; how many, or -1 after a message. */
static int take(const char *command, const ArgumentRow *rows, int argc, char **argv, void *out) {
    const char *name = argv[0] + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const ArgumentRow *row = find(rows, name, length);
    if (!row) {
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)length, name);
        Guess guess = guess_begin(word);
        for (row = rows; row->name; row++) guess_try(&guess, row->name);
        fprintf(stderr, "carbide %s: there is no option --%s", command, word);
        guess_print(&guess, stderr);
        fputs("\nthere are ", stderr);
        char names[512] = "--help";
        size_t used = strlen(names);
        for (row = rows; row->name; row++)
            used += (size_t)snprintf(names + used, sizeof names - used, " --%s", row->name);
        screen_wrap(stderr, (int)strlen("there are "), 2, names);
        return -1;
    }
    bool flag = row->type == ARGUMENT_FLAG;
    if (flag && equals) {
        fprintf(stderr, "carbide %s: --%s takes no value\n", command, row->name);
        return -1;
    }
    if (!flag && !equals && argc < 2) {
        fprintf(stderr, "carbide %s: --%s needs %s\n", command, row->name, row->value);
        return -1;
    }
    const char *value = flag ? "" : equals ? equals + 1 : argv[1];
    Given given = {command, row->name, value};
    if (!set(row, &given, out)) return -1;
    return flag || equals ? 1 : 2;
}

int arguments_parse(const char *command, const ArgumentRow *row, int argc, char **argv, void *out,
                    const char *word[MAX_WORDS]) {
    int words = 0;
    for (int i = 0; i < argc;) {
        if (strncmp(argv[i], "--", 2) != 0) {
            if (argv[i][0] == '-' || words == MAX_WORDS) {
                fprintf(stderr, "carbide %s: '%s' is not understood\n", command, argv[i]);
                return -1;
            }
            word[words++] = argv[i++];
            continue;
        }
        int taken = take(command, row, argc - i, argv + i, out);
        if (taken < 0) return -1;
        i += taken;
    }
    return words;
}

void arguments_help(const ArgumentRow *row, FILE *out) {
    for (; row->name; row++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", row->name, *row->value ? " " : "", row->value);
        screen_row(out, 2, 25, left, row->help);
    }
}
