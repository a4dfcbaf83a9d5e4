/* Random kernels, generated as C, against the reference: random axes, forms, splits, index maps,
 * guards, reductions over several passes, scans, dtypes. CARBIDE_TEST_ROUNDS sets how many files of
 * kernels are tried, CARBIDE_TEST_SEED where to begin; a failure names its seed and prints its
 * kernel. */
#include "test_support.h"

#include "kernel_run.h"
#include "lower/index.h"
#include "plain_target.h"

enum { PER_FILE = 16, MAX_VALUES = 24 };

typedef struct Maker {
    Kernel *kernel;
    Expr *value[MAX_VALUES];
    int count;
    bool strips; /* what guards cut off is whole strips: all of a kernel cut at the same place */
} Maker;

static int pick(int count) { return (int)(next_random() % (uint32_t)count); }

static void make_axes(Kernel *kernel) {
    static const int64_t sizes[] = {1,  2,  3,  4,  5,  8,
                                    17, 32, 33, 70, 96, 150}; /* 64, 128: sums in blocks */
    int outer = pick(4), inner = pick(3);
    if (outer + inner == 0) outer = 1;
    for (int i = 0; i < outer; i++)
        kernel_axis(kernel, sizes[pick(i == outer - 1 ? 12 : 5)], false);
    for (int i = 0; i < inner; i++) kernel_axis(kernel, sizes[pick(i == inner - 1 ? 12 : 5)], true);
}

/* A position made of some axes, one behind the other or in another order; *numel: how far it
 * reaches. All axes that the position needs when it must name each point once. */
static Expr *make_index(Kernel *kernel, uint32_t must, bool may_skip, int64_t *numel) {
    Expr *index = expr_int(kernel, 0);
    int axes = length(kernel->axis), first = axes ? pick(axes) : 0;
    bool dense = pick(2);
    int64_t stride = 1;
    for (int i = 0; i < axes; i++) {
        int axis = dense ? axes - 1 - i : (first + i) % axes;
        bool wanted = must >> axis & 1;
        if (!wanted || (may_skip && pick(4) == 0)) continue;
        Expr *position = expr_axis(kernel, axis);
        int64_t size = kernel->axis[axis].size;
        if (pick(6) == 0) { /* flipped */
            position = index_offset(kernel, index_scale(kernel, position, -1), size - 1);
        } else if (may_skip && pick(6) == 0) { /* rolled */
            position = index_remainder(kernel, index_offset(kernel, position, 1 + pick(5)), size);
        } else if (may_skip && pick(8) == 0) {
            position = index_divide(kernel, position, 2);
        }
        index = index_add(kernel, index, index_scale(kernel, position, stride));
        stride *= size;
    }
    *numel = stride;
    return index;
}

static uint32_t all_axes(const Kernel *kernel) { return (1u << length(kernel->axis)) - 1; }
static uint32_t outer_axes(const Kernel *kernel) { return (1u << kernel->outer_count) - 1; }

static void add(Maker *m, Expr *e) {
    if (m->count < MAX_VALUES) m->value[m->count++] = e;
}

static Expr *as(Maker *m, Expr *e, cb_dtype dtype) { return expr_to(m->kernel, e, dtype); }

static Expr *any_value(Maker *m, cb_dtype dtype) { return as(m, m->value[pick(m->count)], dtype); }

static Expr *binary(Maker *m, Op op, cb_dtype dtype, cb_dtype result) {
    Expr *input[2] = {any_value(m, dtype), any_value(m, dtype)};
    return expr_op(m->kernel, op, result, input, 2);
}

static Expr *make_guard(Maker *m, int axis) {
    Kernel *kernel = m->kernel;
    int64_t size = kernel->axis[axis].size;
    int64_t cut = m->strips && size > 64 ? (size - 1) / 64 * 64 : size / 2;
    Expr *input[2] = {expr_axis(kernel, axis), expr_int(kernel, cut)};
    return expr_op(kernel, pick(2) ? OP_lt : OP_ge, CB_BOOL, input, 2);
}

static void make_load(Maker *m) {
    static const cb_dtype dtypes[] = {CB_F32,  CB_F32, CB_F32, CB_F64, CB_F16,
                                      CB_BF16, CB_I32, CB_U8,  CB_BOOL};
    cb_dtype dtype = dtypes[pick(9)];
    int64_t numel;
    int axes = length(m->kernel->axis);
    Expr *index = make_index(m->kernel, all_axes(m->kernel), true, &numel);
    Expr *guard = pick(5) ? NULL : make_guard(m, pick(axes));
    if (guard && guard->op == OP_constant) guard = NULL;
    int buffer = kernel_buffer(m->kernel, dtype, BUFFER_IN, numel ? numel : 1, 0);
    add(m, expr_load(m->kernel, buffer, compute_dtype(dtype), index, guard));
}

static void make_value(Maker *m, bool scans) {
    static const Op floats[] = {OP_add,     OP_sub,      OP_mul, OP_maximum,
                                OP_minimum, OP_copysign, OP_fmod};
    static const Op tests[] = {OP_lt, OP_ge, OP_ne};
    static const Op bits[] = {OP_bitwise_and, OP_bitwise_xor, OP_add, OP_maximum};
    static const Op folds[] = {OP_sum, OP_amax, OP_amin};
    Expr *one;
    switch (pick(scans ? 9 : 8)) {
    case 0:
    case 1:
        add(m, binary(m, floats[pick(7)], pick(4) ? CB_F32 : CB_F64, CB_F32));
        break;
    case 2:
        one = any_value(m, CB_F32);
        add(m, expr_op(m->kernel, pick(2) ? OP_floor : OP_relu, CB_F32, &one, 1));
        break;
    case 3:
        add(m, binary(m, tests[pick(3)], CB_F32, CB_BOOL));
        break;
    case 4:
        add(m, binary(m, bits[pick(4)], CB_I32, CB_I32));
        break;
    case 5: {
        Expr *input[3] = {any_value(m, CB_BOOL), any_value(m, CB_F32), any_value(m, CB_F32)};
        add(m, expr_op(m->kernel, OP_where, CB_F32, input, 3));
        break;
    }
    case 6:
    case 7:
        one = any_value(m, CB_F32);
        if (length(m->kernel->axis) == m->kernel->outer_count) break;
        add(m, expr_reduce(m->kernel, folds[pick(3)], one));
        break;
    default:
        one = any_value(m, CB_F32);
        if (pick(6) == 0) one = expr_constant(m->kernel, CB_F32, (Scalar){.f = 1.25});
        if (length(m->kernel->axis) > m->kernel->outer_count)
            add(m, expr_scan(m->kernel, pick(2) ? OP_sum : OP_amax, one));
    }
}

static void make_store(Maker *m, Expr *value) {
    static const cb_dtype dtypes[] = {CB_F32, CB_F64, CB_BF16, CB_F16, CB_I32, CB_BOOL};
    cb_dtype dtype = dtypes[pick(6)];
    Kernel *kernel = m->kernel;
    int64_t numel;
    bool inner = value->axes >> kernel->outer_count || pick(3) == 0;
    Expr *index = make_index(kernel, inner ? all_axes(kernel) : outer_axes(kernel), false, &numel);
    Expr *guard = pick(6) ? NULL : make_guard(m, 0);
    if (guard && (guard->op == OP_constant || guard->axes & ~index->axes)) guard = NULL;
    int buffer = kernel_buffer(kernel, dtype, BUFFER_OUT, numel ? numel : 1, 0);
    kernel_store(kernel, buffer, index, as(m, value, dtype), guard, STORE_SET);
}

static Kernel *make_kernel(Arena *arena, int number) {
    Maker m = {.kernel = kernel_new(arena)};
    Kernel *kernel = m.kernel;
    kernel->name = arena_format(arena, "k%d", number);
    make_axes(kernel);
    m.strips = pick(2);
    int inner = length(kernel->axis) - kernel->outer_count;
    kernel->form = inner && pick(2) ? FORM_ROW : FORM_TILE;
    bool splits = inner && pick(3) == 0, scans = inner && !splits && pick(4) == 0;
    if (splits) kernel->split = 2 + pick(5);
    int loads = 1 + pick(3), values = 2 + pick(10);
    for (int i = 0; i < loads; i++) make_load(&m);
    for (int i = 0; i < values; i++) make_value(&m, scans);
    make_store(&m, m.value[m.count - 1]);
    if (pick(2)) make_store(&m, m.value[pick(m.count)]);
    return kernel;
}

static void print_kernel(const Kernel *kernel, uint32_t seed) {
    Buffer text = buffer_new(kernel->arena);
    kernel_print(kernel, &text);
    c_render_kernel(kernel, NULL, &text);
    print_error("CARBIDE_TEST_SEED=%u\n%s\n", seed, buffer_text(&text));
}

static void round_of(uint32_t seed) {
    Arena *arena = arena_new();
    const Kernel *kernel[PER_FILE];
    random_state = seed * 2654435761u;
    for (int i = 0; i < PER_FILE; i++) kernel[i] = make_kernel(arena, i);
    const Target *const targets[] = {NULL, &plain_target};
    for (int t = 0; t < 2; t++) {
        written_for = targets[t];
        Code *code = compile(kernel, PER_FILE, arena);
        for (int i = 0; i < PER_FILE; i++)
            if (!check_kernel(kernel[i], code)) {
                print_kernel(kernel[i], seed);
                FAIL("seed %u, target %d", seed, t);
            }
        code_release(code);
    }
    arena_free(arena);
}

static void test_random_kernels(void **state) {
    (void)state;
    const char *rounds = getenv("CARBIDE_TEST_ROUNDS"), *seed = getenv("CARBIDE_TEST_SEED");
    uint32_t first = seed ? (uint32_t)strtoul(seed, NULL, 10) : 1;
    int count = rounds ? atoi(rounds) : 3;
    for (int i = 0; i < count; i++) round_of(first + (uint32_t)i);
}

int main(void) {
    quarters = true;
    cb_set_option("cache", "0");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_kernels)};
    int failed = cmocka_run_group_tests_name("codegen_random", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
