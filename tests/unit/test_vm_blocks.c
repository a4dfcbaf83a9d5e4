/* The block functions of the VM, called one by one: conversions, loads, stores, additions and
 * stores past the caches, in each form of their arguments, for each instruction set that this
 * processor has, against the scalar definitions. */
#include "test_support.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "op/op.h"
#include "vm/instruction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

enum { LANES = 37, STRIDE = 3, SPAN = LANES * STRIDE };

static const VmOps *const levels[] = CPU_LEVELS(&vm_ops_);

/* What holds the values of a register. */
static const cb_dtype dtype_of[VM_TYPES] = {CB_BOOL, CB_I32, CB_I64, CB_F32, CB_F64};

static uint32_t random_state = 1;
static int64_t next_random(int64_t count) {
    random_state = random_state * 1664525u + 1013904223u;
    return (int64_t)(random_state >> 8) % count;
}

/* Of each kind that a conversion tells apart: out of range, no number, a fraction. */
static Scalar value_of(cb_dtype dtype, int i) {
    static const double special[] = {0.0,    -0.0, 1.0 / 3, -2.75, 300,
                                     -70000, 6e9,  1e30,    65519, 1e-6};
    enum { SPECIALS = sizeof special / sizeof *special };
    if (dtype == CB_BOOL) return (Scalar){.i = next_random(2)};
    if (!dtype_is_float(dtype)) return (Scalar){.i = next_random(200000) - 100000};
    if (i == SPECIALS) return (Scalar){.f = NAN};
    if (i == SPECIALS + 1) return (Scalar){.f = -INFINITY};
    return (Scalar){.f = i < SPECIALS ? special[i] : (double)next_random(4001) / 8 - 250};
}

static bool is_same(cb_dtype dtype, Scalar a, Scalar b) {
    if (!dtype_is_float(dtype)) return a.i == b.i;
    return a.f == b.f || (isnan(a.f) && isnan(b.f));
}

static void fill(void *at, cb_dtype dtype, int count) {
    for (int i = 0; i < count; i++)
        scalar_store((char *)at + (size_t)i * cb_dtype_size(dtype), dtype, value_of(dtype, i));
}

static Scalar get(const void *at, cb_dtype dtype, int64_t i) {
    return scalar_load((const char *)at + i * (int64_t)cb_dtype_size(dtype), dtype);
}

/* ---- conversions ----------------------------------------------------------------------------- */

static void check_conversion(const VmOps *ops, VmType from, VmType to) {
    _Alignas(64) char x[LANES * 8], y[LANES * 8];
    fill(x, dtype_of[from], LANES);
    ops->convert[from][to](LANES, y, x, NULL, NULL);
    for (int i = 0; i < LANES; i++) {
        Scalar a = get(x, dtype_of[from], i), got = get(y, dtype_of[to], i);
        Scalar wanted = scalar_convert(a, dtype_of[from], dtype_of[to]);
        if (!is_same(dtype_of[to], got, wanted))
            FAIL("%s to %s: %g (%lld): %g (%lld), wanted %g (%lld)", cb_dtype_name(dtype_of[from]),
                 cb_dtype_name(dtype_of[to]), a.f, (long long)a.i, got.f, (long long)got.i,
                 wanted.f, (long long)wanted.i);
    }
}

static void test_conversions(void **state) {
    (void)state;
    for (int level = 0; level <= cpu_level(); level++)
        for (VmType from = 0; from < VM_TYPES; from++)
            for (VmType to = 0; to < VM_TYPES; to++)
                if (levels[level]->convert[from][to]) check_conversion(levels[level], from, to);
}

/* Sums and products of f32 in f64. */
static void test_wide(void **state) {
    (void)state;
    for (int level = 0; level <= cpu_level(); level++) {
        double a[LANES], y[LANES];
        float b[LANES];
        fill(a, CB_F64, LANES), fill(b, CB_F32, LANES);
        a[10] = a[11] = 2; /* NaN and inf in b alone */
        for (int which = 0; which < 2; which++) {
            levels[level]->wide[which](LANES, y, a, b, NULL);
            for (int i = 0; i < LANES; i++) {
                double wanted = which ? a[i] * (double)b[i] : a[i] + (double)b[i];
                assert_true(is_same(CB_F64, (Scalar){.f = y[i]}, (Scalar){.f = wanted}));
            }
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* One form of the arguments, what lies in memory and in the lanes. */
typedef struct Case {
    cb_dtype dtype, lane; /* in memory, in a lane */
    int64_t stride, at[LANES];
    const int64_t *index;
    const uint8_t *guard;
    char memory[SPAN * 8], lanes[LANES * 8];
} Case;

static void fill_case(Case *c, cb_dtype dtype, bool wide, int form) {
    static int64_t index[LANES];
    static uint8_t guard[LANES];
    c->dtype = dtype;
    c->lane = dtype_of[vm_type(dtype, wide)];
    c->stride = form & 1 ? STRIDE : 1;
    c->index = form & 2 ? index : NULL;
    c->guard = form & 4 ? guard : NULL;
    for (int i = 0; i < LANES; i++) {
        index[i] = next_random(LANES / 2); /* some meet */
        guard[i] = (uint8_t)next_random(2);
        c->at[i] = c->index ? index[i] : i * c->stride;
    }
    fill(c->memory, dtype, SPAN);
    fill(c->lanes, c->lane, LANES);
}

static void check_load(VmLoad *load, const Case *c) {
    char y[LANES * 8];
    load(LANES, y, c->memory, c->stride, c->index, c->guard);
    for (int i = 0; i < LANES; i++) {
        Scalar wanted = {0};
        if (!c->guard || c->guard[i]) wanted = get(c->memory, c->dtype, c->at[i]);
        if (!is_same(c->lane, get(y, c->lane, i), wanted))
            FAIL("load %s as %s, lane %d", cb_dtype_name(c->dtype), cb_dtype_name(c->lane), i);
    }
}

/* Stores in order, or adds to what is there; the rest of memory stays. */
static void check_store(VmStore *store, const Case *c, bool adds) {
    char got[SPAN * 8], wanted[SPAN * 8];
    int64_t size = (int64_t)cb_dtype_size(c->dtype);
    memcpy(got, c->memory, sizeof got), memcpy(wanted, c->memory, sizeof wanted);
    for (int i = 0; i < LANES; i++) {
        Scalar a = get(c->lanes, c->lane, i), old = get(wanted, c->dtype, c->at[i]);
        if (c->guard && !c->guard[i]) continue;
        if (adds && dtype_is_float(c->dtype))
            a.f += old.f;
        else if (adds)
            a.i = c->dtype == CB_BOOL ? a.i | old.i : a.i + old.i;
        scalar_store(wanted + c->at[i] * size, c->dtype, a);
    }
    store(LANES, got, c->stride, c->index, c->guard, c->lanes);
    for (int i = 0; i < SPAN; i++) {
        Scalar a = get(got, c->dtype, i), b = get(wanted, c->dtype, i);
        if (!is_same(c->dtype, a, b))
            FAIL("%s %s from %s, element %d: %g (%lld), wanted %g (%lld)", adds ? "add" : "store",
                 cb_dtype_name(c->dtype), cb_dtype_name(c->lane), i, a.f, (long long)a.i, b.f,
                 (long long)b.i);
    }
}

static void test_memory(void **state) {
    (void)state;
    for (int level = 0; level <= cpu_level(); level++)
        for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++)
            for (int wide = 0; wide < 2; wide++)
                for (int form = 0; form < 8; form++) {
                    const VmOps *ops = levels[level];
                    Case c;
                    fill_case(&c, dtype, wide, form);
                    check_load(ops->element[dtype][wide].load, &c);
                    check_store(ops->element[dtype][wide].store, &c, false);
                    check_store(ops->element[dtype][wide].add, &c, true);
                }
}

/* From and to every place in a line of the cache, shorter and longer than one. */
static void test_streams(void **state) {
    (void)state;
    enum { LINE = 64, MOST = 200 };
    static const VmType types[] = {VM_F32, VM_F64};
    for (int k = 0; k < 2 * (cpu_level() + 1); k++) {
        VmStore *stream = levels[k / 2]->stream[types[k % 2]];
        int64_t size = vm_type_size(types[k % 2]);
        if (!stream) continue;
        for (int64_t start = 0; start < LINE; start += size)
            for (int64_t bytes = 0; bytes <= MOST; bytes += size) {
                _Alignas(LINE) char x[MOST + LINE], y[MOST + 2 * LINE], wanted[MOST + 2 * LINE];
                for (int i = 0; i < MOST + LINE; i++) x[i] = (char)(i * 7 + 1);
                memset(y, 0, sizeof y), memset(wanted, 0, sizeof wanted);
                memcpy(wanted + start, x + LINE - start, (size_t)bytes);
                stream(bytes / size, y + start, 1, NULL, NULL, x + LINE - start);
                assert_memory_equal(y, wanted, sizeof y);
            }
    }
}

/* ---- quotients ------------------------------------------------------------------------------- */

static double least_time(VmFunction *function, float *y, const float *a, const float *b, int n) {
    double least = INFINITY;
    for (int i = 0; i < 20; i++) {
        double start = clock_ms();
        function(n, y, a, b, NULL);
        least = fmin(least, clock_ms() - start);
    }
    return least;
}

/* Vectors, as of fmod, which is all but a little of them: one by one they take ten times as
 * long. */
static void test_remainders_are_vectors(void **state) {
    (void)state;
    enum { MANY = 1000 };
    static float a[MANY], b[MANY], y[MANY];
    for (int i = 0; i < MANY; i++) a[i] = (float)(i - 400) * 1.25f, b[i] = (float)(i % 7) - 2.5f;
    for (int k = 1; k <= cpu_level(); k++) {
        VmFunction *const(*rows)[VM_SHAPES] = levels[k]->rows[VM_F32];
        double whole = least_time(rows[OP_fmod][0], y, a, b, MANY);
        assert_true(least_time(rows[OP_remainder][0], y, a, b, MANY) < 4 * whole);
        assert_true(least_time(rows[OP_floor_divide][0], y, a, b, MANY) < 4 * whole);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remainders_are_vectors),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests_name("vm_blocks", tests, NULL, NULL);
}
