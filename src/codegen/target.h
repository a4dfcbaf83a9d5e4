/* What code is written for: a language with its loops. codegen/c writes C for CPUs; whatever
 * differs for another target is a field here, and what all targets share asks for nothing else.
 * tests/unit/plain_target.h is the least that a target is. */
#ifndef CARBIDE_CODEGEN_TARGET_H
#define CARBIDE_CODEGEN_TARGET_H

#include "codegen/hole.h"
#include "lower/loop.h"

/* Functions that the text of values calls and no row of the op table has: a file defines these and
 * no others. */
typedef enum Helper {
    HELPER_to_i32_f32, /* int32_t to_i32_f32(float): truncates; NaN gives 0 */
    HELPER_to_i64_f32,
    HELPER_to_i64_f64,
    HELPER_from_i64,  /* from_i64_f64, from_i64_f32: what a cast does, in vectors */
    HELPER_floor,     /* floor_quotient, floor_remainder of int64_t */
    HELPER_order_f32, /* order_f32, unorder_f32: integers in the order of floats */
    HELPER_order_f64,
    HELPER_stream, /* stores past the caches */
    HELPER_halves, /* widen_f16, narrow_f16: several at once */
    HELPER_half,   /* widen_one_f16, narrow_one_f16: by the instruction, which ends a vector loop */
    HELPER_masks,  /* MASKED(yes, no): whether lanes of four bytes can be left out */
    HELPER_COUNT
} Helper;

/* What the kernels of a file use. */
typedef struct Usage {
    Holes *holes; /* of the kernel that is written, or NULL: its text is for its own sizes alone */
    bool helper[HELPER_COUNT];
    bool widens[CB_DTYPE_COUNT], narrows[CB_DTYPE_COUNT]; /* halves: from memory, and to it */
    bool function[OP_COUNT][CB_DTYPE_COUNT];              /* op_exp_f32: the op as a function */
    bool math[OP_COUNT][CB_DTYPE_COUNT];  /* the op's text itself, with the m_ functions in it */
    bool apart[OP_COUNT][CB_DTYPE_COUNT]; /* apart_exp_f32: the op as a function never inlined */
    bool lanes[OP_COUNT][CB_DTYPE_COUNT]; /* lanes_exp_f32: the op over arrays, before a kernel */
    int lane_loops;                       /* vector loops whose length is not known */
    bool strips;                          /* there are loops over a strip, to be unrolled */
    bool guards;                          /* there are loads or stores with a condition */
} Usage;

typedef struct Emit Emit;
typedef struct Access Access;

typedef struct Target {
    /* the language */
    const char *type[CB_DTYPE_COUNT];    /* of a value */
    const char *storage[CB_DTYPE_COUNT]; /* of an element in memory */
    const char *infinity[2], *nan[2];    /* of f32, of f64 */
    const char *opening;                 /* of a file: types, MATH when it is not math_int.h's */
    const char *helper[HELPER_COUNT];    /* the texts of the functions; NULL: never asked for */
    const char *function, *apart;        /* how functions are declared: "static inline" */
    const char *apart_opening;           /* what a file with functions apart opens with, too */
    const char *many_loops_opening;      /* the same of a file with MANY_LANE_LOOPS and no strips */
    const char *guards_opening;          /* the same of a file with guards */
    const char *hide; /* a line after which the compiler does not know what an int holds; or NULL */
    bool hides_sums; /* the compiler drops the sign of a zero (value.c): such sums are calls */
    /* the loops: one function, put at the end of out. The kernel is the target's own (kernel_over).
     * True: it takes its compiler long */
    bool (*kernel)(Kernel *kernel, Usage *usage, Buffer *out);
    /* what the loops have made of things, for the text of values (emit.h) */
    Phrase (*axis)(Emit *e, int axis, bool narrow); /* its coordinate */
    Phrase (*element)(Emit *e, int buffer, const Access *access, const Expr *index, bool guarded);
    Phrase (*scan)(Emit *e, const Expr *scan); /* its running value */
    /* only of targets that ask for such things */
    Phrase (*slot)(Emit *e, const Expr *reduce); /* reduce_leaves: of a split kernel */
    Phrase (*row)(Emit *e, const Expr *value);   /* cached: a value of a kept row */
    void (*address)(Emit *e, const Access *access, int buffer, bool guarded, bool constant);
} Target;

/* The whole file: what opens it, the scalar functions that the kernels use, then the kernels. True
 * when one of them takes its compiler long. No #include. holes: by kernel; NULL: numbers are
 * literal. */
bool target_render(const Target *target, const Kernel *const *kernel, Holes *holes, int count,
                   Buffer *out);

#endif
