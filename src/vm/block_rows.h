/* Block functions of the op table's rows for one register type, and their table. Included by
 * blocks.c with T (the element), TYPE (f32, i64, ...), MATH_TYPE (whose scalar functions it uses),
 * WIDE and FIELD (how an accumulator holds it), and RULE_x(...), REDUCE_x(...) for each DtypeRule
 * x, which keep or drop the rows of that rule. Forgets what it was given but the rules. */

#define M(name) JOIN3(m_, name##_, MATH_TYPE)
#define K(literal) ((T)(literal))
#define FUNCTION(name) JOIN3(block_##name, _, TYPE)
#define FUNCTION_B(name) JOIN3(block_b_##name, _, TYPE)
#define FUNCTION_A(name) JOIN3(block_a_##name, _, TYPE)
#define REDUCTION(name) JOIN3(reduce_##name, _, TYPE)
#define SCANNING(name) JOIN3(scan_##name, _, TYPE)

#define BLOCK_UNARY(name, R, value)                                                                \
    static void FUNCTION(name)(int64_t n, void *py, const void *pa, const void *pb,                \
                               const void *pc) {                                                   \
        R *y = py;                                                                                 \
        const T *ra = pa;                                                                          \
        (void)pb, (void)pc;                                                                        \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            const T a = ra[i];                                                                     \
            y[i] = (R)(value);                                                                     \
        }                                                                                          \
    }

#define BLOCK_PAIR(function, R, at_a, at_b, value)                                                 \
    static void function(int64_t n, void *py, const void *pa, const void *pb, const void *pc) {    \
        R *y = py;                                                                                 \
        const T *ra = pa, *rb = pb;                                                                \
        (void)pc;                                                                                  \
        const T a0 = *ra, b0 = *rb;                                                                \
        (void)a0, (void)b0;                                                                        \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            const T a = at_a, b = at_b;                                                            \
            y[i] = (R)(value);                                                                     \
        }                                                                                          \
    }

#define BLOCK_BINARY(name, R, value)                                                               \
    BLOCK_PAIR(FUNCTION(name), R, ra[i], rb[i], value)                                             \
    BLOCK_PAIR(FUNCTION_B(name), R, ra[i], b0, value)                                              \
    BLOCK_PAIR(FUNCTION_A(name), R, a0, rb[i], value)

#define ALL_SHAPES(name)                                                                           \
    { FUNCTION(name), FUNCTION_B(name), FUNCTION_A(name) }
#define ONE_SHAPE(name)                                                                            \
    { FUNCTION(name) }
/* The compiler leaves out functions that no table names. */
#define SHAPES_BY_COST(name, cost)                                                                 \
    { FUNCTION(name), (cost) > CHEAP ? NULL : FUNCTION_B(name),                                    \
      (cost) > CHEAP ? NULL : FUNCTION_A(name) }

#define BLOCK_TERNARY(name, C, value)                                                              \
    static void FUNCTION(name)(int64_t n, void *py, const void *pa, const void *pb,                \
                               const void *pc) {                                                   \
        T *y = py;                                                                                 \
        const C *ra = pa;                                                                          \
        const T *rb = pb, *rc = pc;                                                                \
        SIMD for (int64_t i = 0; i < n; i++) {                                                     \
            const C a = ra[i];                                                                     \
            const T b = rb[i], c = rc[i];                                                          \
            y[i] = (T)(value);                                                                     \
        }                                                                                          \
    }

#define HALVE(count, combine)                                                                      \
    SIMD for (int i = 0; i < count; i++) {                                                         \
        const T a = part[i], b = part[i + count];                                                  \
        part[i] = (T)(combine);                                                                    \
    }

/* Lanes of a group: x[0 .. GROUP), but for the first `skip`. */
#define FOLD_GROUP(from, skip, identity, combine)                                                  \
    {                                                                                              \
        const T *group = from;                                                                     \
        const int least = (int)(skip);                                                             \
        SIMD for (int i = 0; i < GROUP; i++) {                                                     \
            const T a = to[i], lane = group[i], b = i < least ? (T)(identity) : lane;              \
            to[i] = (T)(combine);                                                                  \
        }                                                                                          \
    }

/* 64 partial results, whatever the width of the vectors: all levels give the same sum. What is left
 * of a row goes by vectors, too, the last of which begins before it: elements stored one by one
 * would be waited for. */
#define BLOCK_REDUCE(name, identity, combine)                                                      \
    static void REDUCTION(name)(int64_t n, Scalar * accumulator, const void *px) {                 \
        const T *x = px;                                                                           \
        T part[PARTS];                                                                             \
        int64_t done = 0;                                                                          \
        SIMD for (int i = 0; i < PARTS; i++) part[i] = (T)(identity);                              \
        for (; done + PARTS <= n; done += PARTS) {                                                 \
            SIMD for (int i = 0; i < PARTS; i++) {                                                 \
                const T a = part[i], b = x[done + i];                                              \
                part[i] = (T)(combine);                                                            \
            }                                                                                      \
        }                                                                                          \
        for (int64_t i = 0; n < GROUP && i < n; i++) {                                             \
            const T a = part[i], b = x[i];                                                         \
            part[i] = (T)(combine);                                                                \
        }                                                                                          \
        for (T *to = part; n >= GROUP && done < n; to += GROUP, done += GROUP) {                   \
            int64_t behind = done + GROUP - n;                                                     \
            if (behind <= 0)                                                                       \
                FOLD_GROUP(x + done, 0, identity, combine)                                         \
            else                                                                                   \
                FOLD_GROUP(x + n - GROUP, behind, identity, combine)                               \
        }                                                                                          \
        HALVE(32, combine)                                                                         \
        HALVE(16, combine)                                                                         \
        HALVE(8, combine)                                                                          \
        HALVE(4, combine)                                                                          \
        HALVE(2, combine)                                                                          \
        HALVE(1, combine)                                                                          \
        const WIDE a = accumulator->FIELD, b = part[0];                                            \
        accumulator->FIELD = (WIDE)(combine);                                                      \
    }                                                                                              \
    static void SCANNING(name)(int64_t n, void *py, const void *px, Scalar *accumulator) {         \
        T *y = py;                                                                                 \
        const T *x = px;                                                                           \
        WIDE a = accumulator->FIELD;                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const WIDE b = x[i];                                                                   \
            a = (WIDE)(combine);                                                                   \
            y[i] = (T)a;                                                                           \
        }                                                                                          \
        accumulator->FIELD = a;                                                                    \
    }

#define ARITY_1 BLOCK_UNARY
#define ARITY_2 BLOCK_BINARY
#define ARITY_3 BLOCK_TERNARY
#define SHAPES_1 ONE_SHAPE
#define SHAPES_2 ALL_SHAPES
#define SHAPES_3 ONE_SHAPE
#define UNARY(name, fx, rule, cost, gradient, value)                                               \
    RULE_##rule(BLOCK_UNARY(name, RESULT_##rule, value))
#define BINARY(name, fx, flags, rule, cost, gradient, value)                                       \
    RULE_##rule(BLOCK_BINARY(name, RESULT_##rule, value))
#define TERNARY(name, fx, flags, rule, cost, gradient, value) BLOCK_TERNARY(name, uint8_t, value)
#define INTERNAL(name, arity, rule, cost, value) RULE_##rule(ARITY_##arity(name, T, value))
#define REDUCE(name, fx, rule, cast, identity, gradient, combine)                                  \
    REDUCE_##rule(BLOCK_BINARY(name, T, combine) BLOCK_REDUCE(name, identity, combine))
#include "op/op_rows.h"

static VmFunction *const JOIN3(row, _, TYPE)[VM_ROWS][VM_SHAPES] = {
#define UNARY(name, fx, rule, cost, gradient, value) RULE_##rule([OP_##name] = {FUNCTION(name)}, )
#define BINARY(name, fx, flags, rule, cost, gradient, value)                                       \
    RULE_##rule([OP_##name] = SHAPES_BY_COST(name, cost), )
#define TERNARY(name, fx, flags, rule, cost, gradient, value) [OP_##name] = {FUNCTION(name)},
#define INTERNAL(name, arity, rule, cost, value) RULE_##rule([OP_##name] = SHAPES_##arity(name), )
#define REDUCE(name, fx, rule, cast, identity, gradient, combine)                                  \
    REDUCE_##rule([OP_##name] = {FUNCTION(name), FUNCTION_B(name), FUNCTION_A(name)}, )
#include "op/op_rows.h"
};

static VmReduce *const JOIN3(reduction, _, TYPE)[VM_REDUCES] = {
#define REDUCE(name, fx, rule, cast, identity, gradient, combine)                                  \
    REDUCE_##rule([OP_##name - OP_sum] = REDUCTION(name), )
#include "op/op_rows.h"
};

static VmScan *const JOIN3(scanning, _, TYPE)[VM_REDUCES] = {
#define REDUCE(name, fx, rule, cast, identity, gradient, combine)                                  \
    REDUCE_##rule([OP_##name - OP_sum] = SCANNING(name), )
#include "op/op_rows.h"
};

#undef M
#undef K
#undef FUNCTION
#undef FUNCTION_B
#undef FUNCTION_A
#undef REDUCTION
#undef SCANNING
#undef BLOCK_UNARY
#undef BLOCK_PAIR
#undef BLOCK_BINARY
#undef SHAPES_BY_COST
#undef ALL_SHAPES
#undef ONE_SHAPE
#undef BLOCK_TERNARY
#undef ARITY_1
#undef ARITY_2
#undef ARITY_3
#undef SHAPES_1
#undef SHAPES_2
#undef SHAPES_3
#undef BLOCK_REDUCE
#undef HALVE
#undef FOLD_GROUP
#undef TYPE
#undef MATH_TYPE
#undef T
#undef WIDE
#undef FIELD
