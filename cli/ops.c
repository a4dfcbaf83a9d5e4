/* `carbide ops`: the op table as text, or as the page docs/ops.md.
 *
 * A signature is written as in C, without types: sum(x, dim=all, keepdim=false). The meaning is the
 * value or formula column, or what the kind says. */
#include "commands.h"
#include "names.h"
#include "op/op.h"
#include "screen.h"

#include <string.h>

typedef struct OpsOptions {
    bool markdown;
} OpsOptions;

const ArgumentRow ops_rows[] = {
    {"markdown", ARGUMENT_FLAG, offsetof(OpsOptions, markdown), "", "as the page docs/ops.md"},
    {NULL, ARGUMENT_FLAG, 0, NULL, NULL},
};

/* Kinds in the order of the page, with what is common to their ops. */
static const struct {
    OpKind kind;
    const char *title, *text;
} kinds[] = {
    {KIND_POINTWISE, "Pointwise",
     "Element by element; shapes broadcast. The meaning is the C text of one element."},
    {KIND_REDUCE, "Reductions",
     "Over the dimensions `dim`; the meaning is how an element `b` joins the accumulator `a`."},
    {KIND_SCAN, "Scans", "Running reductions along one dimension."},
    {KIND_VIEW, "Views",
     "A new shape over the same storage; nothing moves, but for flip, a copy as in PyTorch, "
     "and a reshape that strides cannot express."},
    {KIND_SOURCE, "Sources", "Tensors made from numbers."},
    {KIND_RANDOM, "Random numbers", "Philox, numbered by draw: eager and compiled draw the same."},
    {KIND_JOIN, "Joining", "Tensors side by side, padded, or one in a part of another."},
    {KIND_GATHER, "Gathering", "Elements picked by an index, whose values are checked."},
    {KIND_SCATTER, "Scattering", "Elements placed by an index, whose values are checked."},
    {KIND_CONTRACT, "Matrix products", "With batching and broadcasting."},
    {KIND_OPAQUE, "Sorting and attention", "Library steps."},
    {KIND_COMPOSITE, "Composites",
     "Written in terms of the others, and fused with their neighbours; the meaning is the "
     "formula, or stands in src/graph/expand/."},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *const dtype_rules[] = {
    [DTYPE_SAME] = "promoted",
    [DTYPE_NUMERIC] = "promoted; no bool",
    [DTYPE_FLOAT] = "promoted; integers become f32",
    [DTYPE_FLOATING] = "promoted; floating point",
    [DTYPE_BOOL] = "bool",
    [DTYPE_LOGICAL] = "bool of x != 0",
    [DTYPE_INT] = "promoted; integers and bool",
    [DTYPE_SHIFT] = "promoted; integers",
    [DTYPE_WHERE] = "promoted from the last two",
    [DTYPE_SUM] = "promoted; integers become i64",
    [DTYPE_KEEP] = "the first input's",
    [DTYPE_INDEX] = "i64",
    [DTYPE_ATTR] = "the argument dtype",
    [DTYPE_I64] = "i64",
};

/* Functions of the API that are no rows of the table: several results, or lists. */
static const struct {
    const char *name, *arguments, *meaning;
} others[] = {
    {"cat", "(x, count, dim)", "joins tensors along a dimension"},
    {"stack", "(x, count, dim)", "joins tensors along a new dimension"},
    {"split", "(x, size, dim, out, capacity)", "views of `size` along a dimension"},
    {"chunk", "(x, chunks, dim, out, capacity)", "that many views along a dimension"},
    {"sort", "(x, dim, descending, indices)", "sorted values, and where they were"},
    {"topk", "(x, k, dim, largest, indices)", "the k largest or smallest, and where they were"},
    {"nonzero", "(x)", "where x is not 0, by dim; asks for a value"},
    {"masked_select", "(x, mask)", "the elements of x where mask is true; asks for a value"},
    {"assign", "(x, value)",
     "in place: x takes the value; add_, sub_, mul_, div_, relu_ are built on it"},
    {"fill_", "(x, value)", "in place: every element takes the value"},
};

/* Composites without a formula whose name is not PyTorch's. */
static const struct {
    Op op;
    const char *meaning;
} coded[] = {
    {OP_max_pool1d_indices, "where max_pool1d found its elements: PyTorch's return_indices"},
    {OP_max_pool2d_indices, "where max_pool2d found its elements, counted through both dims"},
    {OP_max_pool3d_indices, "where max_pool3d found its elements, counted through all three"},
    {OP_reflection_pad, "as pad, mirrored without the edge: mode='reflect'"},
    {OP_replication_pad, "as pad, with the edge: mode='replicate'"},
    {OP_circular_pad, "as pad, with x over again: mode='circular'"},
};

/* Only lowering makes these. */
static bool is_internal(Op op) { return op_info(op)->flags & LOWERED; }

static void put_text(FILE *out, const char *text, bool escape) {
    for (; *text; text++) {
        if (escape && *text == '|') fputc('\\', out);
        fputc(*text, out);
    }
}

static size_t put_default(char *out, size_t bytes, const Param *param) {
    switch (param->type) {
    case PARAM_FLOAT:
        return (size_t)snprintf(out, bytes, "=%g", param->default_float);
    case PARAM_NUMBER:
        if (!number_given(&param->default_number)) return (size_t)snprintf(out, bytes, "=none");
        if (param->default_number.kind == CB_OPERAND_INT)
            return (size_t)snprintf(out, bytes, "=%lld", (long long)param->default_number.i);
        return (size_t)snprintf(out, bytes, "=%.1f", param->default_number.f);
    case PARAM_BOOL:
        return (size_t)snprintf(out, bytes, "=%s", param->default_int ? "true" : "false");
    case PARAM_DTYPE: {
        const char *name =
            param->default_int < 0 ? "same" : cb_dtype_name((cb_dtype)param->default_int);
        return (size_t)snprintf(out, bytes, "=%s", name);
    }
    case PARAM_REDUCTION:
        return (size_t)snprintf(out, bytes, "=%s", text_of_reduction(param->default_int));
    case PARAM_DIMS:
        if (param->default_int == 1)
            return (size_t)snprintf(out, bytes, "=%lld", (long long)param->default_at);
        return (size_t)snprintf(out, bytes, param->default_int < 0 ? "=all" : "=none");
    default:
        if (param->default_int == INT64_MAX) return (size_t)snprintf(out, bytes, "=end");
        return (size_t)snprintf(out, bytes, "=%lld", (long long)param->default_int);
    }
}

static void format_signature(const OpInfo *info, char *out, size_t bytes) {
    size_t used = (size_t)snprintf(out, bytes, "%s(", info->name);
    for (int i = 0; i < info->param_count && used < bytes; i++) {
        const Param *param = &info->param[i];
        used += (size_t)snprintf(out + used, bytes - used, "%s%s%s", i ? ", " : "", param->name,
                                 param->type == PARAM_OPTIONAL_TENSOR ? "?" : "");
        if (param->has_default && param->type != PARAM_OPTIONAL_TENSOR && used < bytes)
            used += put_default(out + used, bytes - used, param);
    }
    if (used < bytes) snprintf(out + used, bytes - used, ")");
}

static const char *meaning(const OpInfo *info) {
    if (info->formula) return info->formula;
    return info->value ? info->value : "";
}

static const char *words(Op op) {
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++)
        if (coded[i].op == op) return coded[i].meaning;
    return "";
}

enum { MEANING_COLUMN = 35 };

static void print_text(OpKind kind) {
    char signature[256];
    for (Op op = OP_none; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (info->kind != kind || is_internal(op)) continue;
        format_signature(info, signature, sizeof signature);
        screen_row(stdout, 0, MEANING_COLUMN, signature,
                   *meaning(info) ? meaning(info) : words(op));
    }
}

/* Of a composite the rule says what it takes: the op that comes last gives the result. */
static const char *result_rule(const OpInfo *info) {
    bool parts = info->kind == KIND_COMPOSITE;
    if (parts && info->dtype == DTYPE_SAME) return "of its parts";
    return parts && info->dtype == DTYPE_NUMERIC ? "of its parts; no bool"
                                                 : dtype_rules[info->dtype];
}

static void print_markdown(OpKind kind) {
    char signature[256];
    bool means = kind == KIND_POINTWISE || kind == KIND_REDUCE || kind == KIND_COMPOSITE;
    printf("| op | in PyTorch | result dtype |%s\n| --- | --- | --- |%s\n",
           means ? " meaning |" : "", means ? " --- |" : "");
    for (Op op = OP_none; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (info->kind != kind || is_internal(op)) continue;
        format_signature(info, signature, sizeof signature);
        printf("| `cb_");
        put_text(stdout, signature, true);
        printf("` | `%s` | %s |", info->fx, result_rule(info));
        if (means && *meaning(info)) {
            fputs(" `", stdout);
            put_text(stdout, meaning(info), true);
            fputs("` |", stdout);
        } else if (means) {
            printf("%s%s |", *words(op) ? " " : "", words(op));
        }
        fputc('\n', stdout);
    }
}

static void print_others(bool markdown) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (markdown)
            printf("| `cb_%s%s` | %s |\n", others[i].name, others[i].arguments, others[i].meaning);
        else {
            char left[64];
            snprintf(left, sizeof left, "%s%s", others[i].name, others[i].arguments);
            screen_row(stdout, 0, MEANING_COLUMN, left, others[i].meaning);
        }
}

static void print_autocast(Autocast autocast, const char *title) {
    printf("\n%s:", title);
    const char *separator = " ";
    for (Op op = OP_none; op < OP_COUNT; op++) {
        if (op_info(op)->autocast != autocast) continue;
        printf("%s`%s`", separator, op_info(op)->name);
        separator = ", ";
    }
    printf("\n");
}

static int count_ops(void) {
    int count = 0;
    for (Op op = OP_none; op < OP_COUNT; op++)
        count += op_info(op)->kind != KIND_SPECIAL && !is_internal(op);
    return count;
}

/* By the reason; the table has each reason once. */
static void print_without_gradient(void) {
    printf("\n## Gradients\n\nEvery op has a gradient by its tensors of floating point, but for "
           "these:\n");
    for (Op first = OP_none + 1; first < OP_COUNT; first++) {
        const char *why = op_gradient(first);
        bool refused = op_refuses_gradient(first), none = *why == '!' || refused;
        bool listed = !none || !op_info(first)->arity || op_info(first)->kind == KIND_VIEW;
        for (Op op = OP_none + 1; op < first && !listed; op++)
            listed = op_gradient(op) == why && !is_internal(op);
        if (listed || is_internal(first)) continue;
        printf("\n%s%s:", why + 1,
               refused ? " (the result requires a gradient; to go back to it is an error)" : "");
        for (Op op = first; op < OP_COUNT; op++)
            if (op_gradient(op) == why) printf(" `%s`", op_info(op)->name);
        printf("\n");
    }
}

static void print_page(void) {
    printf("# Ops\n\nWritten by `carbide ops --markdown` from `src/op/ops.def`: %d ops, with "
           "PyTorch's names, argument "
           "order and defaults.\nAn argument with `?` may be NULL; where PyTorch takes a number in "
           "place of a tensor, pointwise ops "
           "of Carbide do.\n`M(exp)` is exp in the compute type, `K(1)` a literal of it.\n",
           count_ops());
    for (int i = 0; i < KINDS; i++) {
        printf("\n## %s\n\n%s\n\n", kinds[i].title, kinds[i].text);
        print_markdown(kinds[i].kind);
    }
    printf("\n## More than one result, lists, in place\n\n| function | meaning |\n| --- | --- |\n");
    print_others(true);
    printf("\n## Autocast\n\nBetween `cb_autocast_open(dtype)` and `cb_autocast_close()` floating "
           "point tensors, "
           "f64 excepted,\nare converted before these ops, as PyTorch does on the CPU. Every other "
           "op takes its "
           "operands as they are.\n");
    print_autocast(AUTOCAST_LOWER, "To the dtype of the scope");
    print_autocast(AUTOCAST_F32, "To f32");
    print_without_gradient();
}

static const char *type_name(const Param *param) {
    static const char *const names[] = {[PARAM_TENSOR] = "a tensor",
                                        [PARAM_OPTIONAL_TENSOR] = "a tensor, or NULL",
                                        [PARAM_INT] = "an integer",
                                        [PARAM_BOOL] = "true or false",
                                        [PARAM_FLOAT] = "a number",
                                        [PARAM_NUMBER] = "a number of either kind",
                                        [PARAM_DTYPE] = "a dtype",
                                        [PARAM_DIMS] = "dimensions, cb_dims(...) or a number",
                                        [PARAM_REDUCTION] =
                                            "CB_REDUCE_NONE, CB_REDUCE_MEAN or CB_REDUCE_SUM"};
    bool known = (size_t)param->type < sizeof names / sizeof *names && names[param->type];
    return known ? names[param->type] : "a list of numbers";
}

static void print_arguments(const OpInfo *info) {
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        char otherwise[64] = "", text[160];
        if (param->has_default && param->type != PARAM_OPTIONAL_TENSOR)
            put_default(otherwise, sizeof otherwise, param);
        snprintf(text, sizeof text, *otherwise ? "%s; %s when left out" : "%s", type_name(param),
                 otherwise + 1);
        screen_row(stdout, 2, 17, param->name, text);
    }
}

/* The required arguments by their names. */
static void print_example(const OpInfo *info) {
    printf("  cb_tensor *y = cb_%s(", info->name);
    for (int i = 0; i < info->param_count; i++)
        if (!info->param[i].has_default) printf("%s%s", i ? ", " : "", info->param[i].name);
    printf(");\n");
}

/* One that is no row of the table. */
static bool print_other(const char *name, Guess *guess) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        guess_try(guess, others[i].name);
        if (strcmp(others[i].name, name) != 0) continue;
        printf("%scb_%s%s%s\n", screen_bold(), others[i].name, others[i].arguments, screen_plain());
        screen_wrap(stdout, printf("  "), 2, others[i].meaning);
        printf("\nin carbide.h, with its arguments\n");
        return true;
    }
    return false;
}

static int print_op(const char *name) {
    char signature[256];
    if (!strncmp(name, "cb_", 3)) name += 3;
    const char *here = name_here(name), *advice = name_advice(name);
    if (here) printf("%s of PyTorch is cb_%s here\n\n", name, here);
    if (here) name = here;
    Guess guess = guess_begin(name);
    if (print_other(name, &guess)) return STATUS_OK;
    for (Op op = OP_none; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (info->kind == KIND_SPECIAL || is_internal(op)) continue;
        guess_try(&guess, info->name);
        if (strcmp(info->name, name) != 0) continue;
        format_signature(info, signature, sizeof signature);
        printf("%scb_%s%s\n", screen_bold(), signature, screen_plain());
        for (int k = 0; k < KINDS; k++)
            if (kinds[k].kind == info->kind)
                screen_wrap(stdout, printf("  %s. ", kinds[k].title), 2, kinds[k].text);
        printf("\nin PyTorch  %s\nresult      %s\n", info->fx, result_rule(info));
        if (*meaning(info) || *words(op))
            screen_wrap(stdout, printf("meaning     "), 12,
                        *meaning(info) ? meaning(info) : words(op));
        if (info->autocast == AUTOCAST_LOWER) printf("autocast    to the dtype of the scope\n");
        if (info->autocast == AUTOCAST_F32) printf("autocast    to f32\n");
        printf("\narguments\n");
        print_arguments(info);
        printf("\nexample\n");
        print_example(info);
        if (advice) screen_wrap(stdout, printf("\nbeside it   "), 12, advice);
        return STATUS_OK;
    }
    if (print_function(name, &guess)) return STATUS_OK;
    if (advice) {
        screen_wrap(stdout, printf("%s of PyTorch is no op here: ", name), 2, advice);
        return STATUS_OK;
    }
    fprintf(stderr, "carbide ops: there is no op '%s'", name);
    guess_print(&guess, stderr);
    fputc('\n', stderr);
    return STATUS_USAGE;
}

int command_ops(int argc, char **argv) {
    OpsOptions options = {false};
    const char *word[MAX_WORDS];
    int words = arguments_parse("ops", ops_rows, argc, argv, &options, word);
    if (words > 1) fprintf(stderr, "carbide ops: '%s' is not understood\n", word[1]);
    if (words < 0 || words > 1) return STATUS_USAGE;
    if (words == 1) return print_op(word[0]);
    if (options.markdown) {
        print_page();
        return STATUS_OK;
    }
    for (int i = 0; i < KINDS; i++) {
        printf("%s%s%s%s\n\n", i ? "\n" : "", screen_bold(), kinds[i].title, screen_plain());
        print_text(kinds[i].kind);
    }
    printf("\nMore than one result, lists, in place\n\n");
    print_others(false);
    return STATUS_OK;
}
