/* Bad arguments to every op, generated from the op table: NULL, all dtypes, shapes that do not fit,
 * too many dimensions, numbers at the ends of their ranges. A call works or returns NULL with an
 * error that opens with the caller's line and the op's name; eager and compiled calls agree on
 * which. Nothing crashes, hangs or asks for absurd memory. */
#include "test_support.h"

#include "eager/apply.h"
#include "inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* All of them are wanted, not the first alone. */
#define COMPLAIN(...) (print_error(__VA_ARGS__), print_error("\n"), complaints++)

static int complaints;

enum { ROUNDS = 180, SHAPES = 11 };
static const rlim_t MEMORY_LIMIT = (rlim_t)4 << 30; /* bytes */

static uint64_t state = 1;

static int pick(int count) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((state >> 33) % (uint64_t)count);
}

/* ---- arguments ----------------------------------------------------------------------------- */

static cb_tensor *menu[SHAPES][CB_DTYPE_COUNT];

static void make_menu(void) {
    static const cb_dim_list shape[SHAPES] = {
        {0, {0}},    {1, {0}},       {1, {3}},          {2, {2, 3}},
        {2, {4, 5}}, {3, {2, 1, 3}}, {4, {2, 3, 4, 4}}, {8, {1, 2, 1, 2, 1, 2, 1, 2}},
        {2, {3, 3}}, {2, {0, 3}},    {3, {2, 3, 0}},
    };
    for (int s = 0; s < SHAPES; s++)
        for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++)
            menu[s][d] = cb_to(cb_remainder(cb_arange(0, 1000), 3.0), d);
    for (int s = 0; s < SHAPES; s++)
        for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++) {
            int64_t count = 1;
            for (int i = 0; i < shape[s].count; i++) count *= shape[s].at[i];
            menu[s][d] = cb_reshape(cb_narrow(menu[s][d], 0, 0, count), shape[s]);
            assert_non_null(menu[s][d]);
        }
}

static int64_t odd_integer(void) {
    static const int64_t odd[] = {
        0, 1, 2, 3, -1, -2, 7, 9, -9, 1 << 20, INT64_MAX, INT64_MIN, INT64_MAX / 2, -4, 5, 64};
    return odd[pick(pick(3) ? 5 : (int)(sizeof odd / sizeof *odd))];
}

static double odd_float(void) {
    static const double odd[] = {0, 1, -1, 0.5, 3, 1e300, -1e300, INFINITY, -INFINITY, NAN, 1e-300};
    return odd[pick(pick(3) ? 5 : (int)(sizeof odd / sizeof *odd))];
}

static cb_operand odd_number(void) {
    switch (pick(8)) {
    case 0:
        return cb_operand_tensor(NULL);
    case 1:
        return cb_operand_bool(true);
    case 2:
    case 3:
        return cb_operand_int(odd_integer());
    default:
        return cb_operand_float(odd_float());
    }
}

static cb_operand odd_operand(bool optional) {
    int kind = pick(20);
    if (kind == 0 || (optional && kind < 8)) return cb_operand_tensor(NULL);
    if (kind == 1) return cb_operand_float(odd_float());
    if (kind == 2) return cb_operand_int(odd_integer());
    if (kind == 3) return cb_operand_bool(true);
    cb_dtype dtype = pick(3) ? CB_F32 : pick(CB_DTYPE_COUNT);
    return cb_operand_tensor(menu[pick(2) ? 3 : pick(SHAPES)][dtype]);
}

typedef struct Arguments {
    Op op;
    int count;
    cb_operand operand[OP_MAX_INPUTS];
    Attrs attrs;
    bool null; /* an operand that must be there is not */
} Arguments;

static void odd_attribute(Arguments *a, const Param *param) {
    cb_dim_list dims = {pick(4), {0}};
    switch (param->type) {
    case PARAM_NUMBER:
        attr_set_number(&a->attrs, param->word, odd_number());
        return;
    case PARAM_FLOAT:
        attr_set_float(&a->attrs, param->word, odd_float());
        return;
    case PARAM_DIMS:
        if (pick(6) == 0) dims.count = pick(2) ? CB_MAX_RANK : -1;
        for (int i = 0; i < dims.count; i++) dims.at[i] = odd_integer();
        attr_set_dims(&a->attrs, param->word, dims);
        return;
    case PARAM_DTYPE:
        a->attrs.word[param->word] = pick(8) ? pick(CB_DTYPE_COUNT) : pick(2) ? CB_SAME : 77;
        return;
    case PARAM_BOOL:
        a->attrs.word[param->word] = pick(2);
        return;
    default:
        a->attrs.word[param->word] = odd_integer();
    }
}

static void odd_arguments(Op op, Arguments *a) {
    const OpInfo *info = op_info(op);
    *a = (Arguments){.op = op, .count = 0, .attrs = attrs_default(op)};
    for (int p = 0; p < info->param_count; p++) {
        const Param *param = &info->param[p];
        bool optional = param->type == PARAM_OPTIONAL_TENSOR;
        if (param->type == PARAM_TENSOR || optional) {
            cb_operand *o = &a->operand[a->count++];
            *o = odd_operand(optional);
            a->null |= !optional && o->kind == CB_OPERAND_TENSOR && !o->tensor;
        } else if (!param->has_default || pick(2)) {
            odd_attribute(a, param);
        }
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

static cb_tensor *call(const Arguments *a) {
    cb_site("caller.c", 42);
    return apply_op(a->op, a->operand, a->count, &a->attrs);
}

static int traced(cb_tensor *const *inputs, int count, cb_tensor **outputs, void *user) {
    (void)inputs, (void)count;
    outputs[0] = call(user);
    return 1;
}

static void describe(const Arguments *a, char *out, size_t bytes) {
    size_t used = (size_t)snprintf(out, bytes, "%s(", op_info(a->op)->name);
    for (int i = 0; i < a->count && used < bytes; i++) {
        char text[128] = "a number";
        if (a->operand[i].kind == CB_OPERAND_TENSOR) snprintf(text, sizeof text, "NULL");
        if (a->operand[i].kind == CB_OPERAND_TENSOR && a->operand[i].tensor) {
            Meta meta = meta_of(a->operand[i].tensor);
            meta_format(&meta, text, sizeof text);
        }
        used += (size_t)snprintf(out + used, bytes - used, "%s, ", text);
    }
    for (int w = 0; w < op_info(a->op)->word_count && used < bytes; w++)
        used += (size_t)snprintf(out + used, bytes - used, " %lld", (long long)a->attrs.word[w]);
    if (used < bytes) snprintf(out + used, bytes - used, ")");
}

/* The op's name follows the line; composites may fail in an op of their expansion. */
static void check_message(const Arguments *a, const char *what) {
    char text[1024];
    const char *said = cb_error();
    describe(a, text, sizeof text);
    if (!said) {
        COMPLAIN("%s, %s: NULL without an error", text, what);
        return;
    }
    const char *name = !strncmp(said, "caller.c:42: ", 13) ? said + 13 : NULL;
    bool names = name && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") > 0 &&
                 strchr(name, ':') && strlen(name) > 8;
    const OpInfo *info = op_info(a->op);
    if (info->kind != KIND_COMPOSITE && names)
        names =
            !strncmp(name, info->name, strlen(info->name)) || cb_error_status() == CB_ERR_MEMORY;
    if (!names && cb_error_status() != CB_ERR_MEMORY)
        COMPLAIN("%s, %s: said '%s'", text, what, said);
    if (a->null && !strstr(said, "is NULL")) COMPLAIN("%s, %s: said '%s'", text, what, said);
}

static void check_call(const Arguments *a) {
    char text[1024];
    cb_tensor *out[1] = {NULL};
    cb_scope_open();
    cb_clear_error();
    cb_tensor *y = call(a);
    if (!y) check_message(a, "eager");
    if (y && a->null) {
        describe(a, text, sizeof text);
        COMPLAIN("%s: takes NULL", text);
    }
    cb_status status = cb_error_status();
    cb_clear_error();
    cb_function *f = cb_compile_n(traced, (void *)a, "backend=vm");
    int count = cb_call_n(f, NULL, 0, out, 1);
    if (count < 0) check_message(a, "compiled");
    bool agree = (count == 1 && out[0]) == (y != NULL);
    if (!agree && status != CB_ERR_MEMORY && cb_error_status() != CB_ERR_MEMORY) {
        describe(a, text, sizeof text);
        COMPLAIN("%s: eager %s, compiled %s", text, y ? "works" : "fails", cb_error());
    }
    cb_function_free(f);
    cb_clear_error();
    cb_scope_close();
}

static void test_every_op(void **unused) {
    const char *set = getenv("ROUNDS"); /* for a long run */
    int rounds = set ? atoi(set) : ROUNDS;
    (void)unused;
    cb_scope_open();
    make_menu();
    for (Op op = OP_none + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (!info->name || info->kind == KIND_SPECIAL || info->flags & LOWERED) continue;
        for (int round = 0; round < rounds; round++) {
            Arguments a;
            odd_arguments(op, &a);
            check_call(&a);
        }
    }
    cb_scope_close();
    assert_int_equal(complaints, 0);
}

/* The odd shapes reach 34 GB, which a large machine would hand out and have filled with zeros. A
 * sanitizer maps terabytes for itself and has a limit of its own (CMakeLists.txt). */
static void limit_memory(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = MEMORY_LIMIT;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
#endif
}

int main(void) {
    limit_memory();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_op)};
    return cmocka_run_group_tests_name("arguments", tests, NULL, NULL);
}
