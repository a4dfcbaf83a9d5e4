/* Names of nodes, as torch.fx forms them.
 *
 * In:  a target ("seq.0", "operator.add", "max").
 * Out: a name that is a Python identifier, shadows no keyword or builtin, and was never given
 * before in
 *      this graph: seq_0, add, max_1; the second add is add_1.
 * The number goes on from the last one given to the same base, so erased names do not come back. */
#include "fx/fx.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct FxNameCount {
    const char *base;
    long number;
} FxNameCount;

/* Python's keywords and builtins, and what generated Python imports; sorted for bsearch. */
static const char *const illegal[] = {"Ellipsis",
                                      "False",
                                      "None",
                                      "NoneType",
                                      "NotImplemented",
                                      "True",
                                      "__build_class__",
                                      "__debug__",
                                      "__doc__",
                                      "__import__",
                                      "__loader__",
                                      "__name__",
                                      "__package__",
                                      "__spec__",
                                      "abs",
                                      "aiter",
                                      "all",
                                      "and",
                                      "anext",
                                      "any",
                                      "as",
                                      "ascii",
                                      "assert",
                                      "async",
                                      "await",
                                      "bin",
                                      "bool",
                                      "break",
                                      "breakpoint",
                                      "bytearray",
                                      "bytes",
                                      "callable",
                                      "chr",
                                      "class",
                                      "classmethod",
                                      "compile",
                                      "complex",
                                      "continue",
                                      "copyright",
                                      "credits",
                                      "def",
                                      "del",
                                      "delattr",
                                      "device",
                                      "dict",
                                      "dir",
                                      "divmod",
                                      "elif",
                                      "else",
                                      "enumerate",
                                      "eval",
                                      "except",
                                      "exec",
                                      "exit",
                                      "filter",
                                      "finally",
                                      "float",
                                      "for",
                                      "format",
                                      "from",
                                      "frozenset",
                                      "fx_pytree",
                                      "getattr",
                                      "global",
                                      "globals",
                                      "hasattr",
                                      "hash",
                                      "help",
                                      "hex",
                                      "id",
                                      "if",
                                      "import",
                                      "in",
                                      "inf",
                                      "input",
                                      "int",
                                      "is",
                                      "isinstance",
                                      "issubclass",
                                      "iter",
                                      "lambda",
                                      "len",
                                      "license",
                                      "list",
                                      "locals",
                                      "map",
                                      "max",
                                      "memoryview",
                                      "min",
                                      "nan",
                                      "next",
                                      "nonlocal",
                                      "not",
                                      "object",
                                      "oct",
                                      "open",
                                      "or",
                                      "ord",
                                      "pass",
                                      "pow",
                                      "print",
                                      "property",
                                      "pytree",
                                      "quit",
                                      "raise",
                                      "range",
                                      "repr",
                                      "return",
                                      "reversed",
                                      "round",
                                      "set",
                                      "setattr",
                                      "slice",
                                      "sorted",
                                      "staticmethod",
                                      "str",
                                      "sum",
                                      "super",
                                      "torch",
                                      "try",
                                      "tuple",
                                      "type",
                                      "vars",
                                      "while",
                                      "with",
                                      "yield",
                                      "zip"};

static int compare_names(const void *a, const void *b) {
    return strcmp(a, *(const char *const *)b);
}

static bool is_illegal(const char *name) {
    return bsearch(name, illegal, sizeof illegal / sizeof *illegal, sizeof *illegal,
                   compare_names) != NULL;
}

bool fx_name_taken(const FxGraph *graph, const char *name) {
    MapEntry *entry = map_first(&graph->names, hash_text(name));
    for (; entry; entry = map_next(entry))
        if (strcmp(entry->value, name) == 0) return true;
    return false;
}

static bool same_base(const MapEntry *entry, const char *base) {
    return strcmp(((const FxNameCount *)entry->value)->base, base) == 0;
}

static FxNameCount *count_of(const FxGraph *graph, const char *base) {
    MapEntry *entry = map_first(&graph->name_counts, hash_text(base));
    for (; entry; entry = map_next(entry))
        if (same_base(entry, base)) return entry->value; /* untested: equal hashes */
    return NULL;
}

static void set_count(FxGraph *graph, const char *base, long number) {
    FxNameCount *count = count_of(graph, base);
    if (!count) {
        count = arena_zalloc(graph->arena, sizeof *count);
        count->base = arena_text(graph->arena, base);
        map_put(&graph->name_counts, hash_text(base), count);
    }
    count->number = number;
}

/* Length of the base of "add_12" (3), with its number; a name without one is its own base. */
static size_t split_number(const char *name, long *number) {
    size_t end = strlen(name), digits = end;
    while (isdigit((unsigned char)name[digits - 1])) digits--; /* no name begins with a digit */
    *number = -1;
    if (digits == end || digits < 2 || name[digits - 1] != '_' || end - digits > 9) return end;
    *number = strtol(name + digits, NULL, 10);
    return digits - 1;
}

/* Runs of other characters become one underscore; a leading digit gets one. */
static char *identifier(FxGraph *graph, const char *text) {
    size_t size = strlen(text);
    char *out = arena_alloc(graph->arena, size + 10);
    size_t n = 0;
    if (isdigit((unsigned char)*text)) out[n++] = '_';
    for (const char *c = text; *c;) {
        bool good = isalnum((unsigned char)*c) || *c == '_';
        out[n++] = good ? *c++ : '_';
        while (!good && *c && !isalnum((unsigned char)*c) && *c != '_') c++;
    }
    out[n] = 0;
    if (n == 0) strcpy(out, "_unnamed");
    return out;
}

const char *fx_unique_name(FxGraph *graph, const char *candidate) {
    const char *name = identifier(graph, candidate);
    long number;
    size_t base_length = split_number(name, &number);
    const char *base = arena_format(graph->arena, "%.*s", (int)base_length, name);
    if (number < 0 || fx_name_taken(graph, name)) {
        const FxNameCount *count = count_of(graph, name);
        number = count ? count->number : 0;
        if (is_illegal(name)) name = arena_format(graph->arena, "%s_%ld", base, ++number);
    }
    while (fx_name_taken(graph, name)) name = arena_format(graph->arena, "%s_%ld", base, ++number);
    fx_name_take(graph, name);
    set_count(graph, base, number);
    return name;
}

void fx_name_take(FxGraph *graph, const char *name) {
    map_put(&graph->names, hash_text(name), (void *)name);
}

void fx_name_give_back(FxGraph *graph, const char *name) {
    MapEntry *entry = map_first(&graph->names, hash_text(name));
    for (; entry; entry = map_next(entry))
        if (strcmp(entry->value, name) == 0) entry->value = (void *)"";
    long number;
    size_t size = split_number(name, &number);
    set_count(graph, arena_format(graph->arena, "%.*s", (int)size, name), 0);
}

/* The last part of a function's name, any other target whole, in snake case: fcProj -> fc_proj. */
const char *fx_name_hint(FxGraph *graph, cb_opcode opcode, const char *target) {
    const char *dot = strrchr(target, '.');
    if (opcode == CB_CALL_FUNCTION && dot) target = dot + 1;
    size_t size = strlen(target);
    if (size > 4 && strncmp(target, "__", 2) == 0 && strcmp(target + size - 2, "__") == 0) {
        target += 2;
        size -= 4;
    }
    char *out = arena_alloc(graph->arena, 2 * size + 1);
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        bool upper = isupper((unsigned char)target[i]);
        if (upper && i > 0 && islower((unsigned char)target[i - 1])) out[n++] = '_';
        out[n++] = (char)tolower((unsigned char)target[i]);
    }
    out[n] = 0;
    return out;
}
