/* Loop IR -> text, for every target: which expressions a stretch of code needs, where in the loop
 * nest each is declared, under which name, and the text of one expression.
 *
 * A target opens and closes loops itself, outer to inner, and asks at each one for what belongs
 * there:
 *
 *     emit_begin(e);  emit_root(e, value, body level) ...;  emit_collect(e);
 *     emit_declare(e, 0);   outer loop {   emit_declare(e, 1);   inner loop {   emit_declare(e, 2);
 *                           ...
 *
 * Level of an expression: the deepest loop whose axis it varies with. What is used once, in the
 * level where it is computed, is inlined into its user; everything else becomes a local named t12
 * after its id.
 *
 * Lanes: one axis, the lane axis, runs in the vector loop `for (int l = 0; l < n; l++)`; its
 * coordinate is origin + l. A load or store that is linear in it goes through a pointer that is set
 * up outside of the vector loop: p12[l], p12[l * 4]. */
#ifndef CARBIDE_CODEGEN_EMIT_H
#define CARBIDE_CODEGEN_EMIT_H

#include "lower/loop.h"

enum { NO_LANE = -1, NO_LEVEL = -1 };

/* What differs between targets in the text of expressions. */
typedef struct Target {
    const char *type[CB_DTYPE_COUNT];    /* of a value */
    const char *storage[CB_DTYPE_COUNT]; /* of an element in memory */
} Target;

/* Scalar functions that the text calls: a file defines these and no others. */
typedef enum Helper {
    HELPER_order_f32,
    HELPER_order_f64,
    HELPER_to_i32_f32,
    HELPER_to_i64_f32,
    HELPER_to_i64_f64,
    HELPER_floor,
    HELPER_stream,
    HELPER_COUNT
} Helper;

typedef struct Usage {
    bool helper[HELPER_COUNT];
    bool widens[CB_DTYPE_COUNT], narrows[CB_DTYPE_COUNT]; /* halves: from memory, and to it */
    bool function[OP_COUNT][CB_DTYPE_COUNT]; /* op_exp_f32: the op as a function */
    bool math[OP_COUNT][CB_DTYPE_COUNT];     /* the op's text itself, with the m_ functions in it */
    bool apart[OP_COUNT][CB_DTYPE_COUNT];    /* apart_exp_f32: the op as a function never inlined */
} Usage;

/* How a load or store walks along the lane axis: index = rest + stride * lane coordinate. */
typedef struct Access {
    bool linear;
    int64_t stride;
    Expr *rest;
    int level;        /* where its pointer is declared; NO_LEVEL: it has none */
    const char *name; /* the pointer (or, under a guard, the number) once declared */
} Access;

typedef struct Local {
    const char *name; /* what it is called here; NULL: not declared */
    int level;        /* loop that it varies with */
    int uses, size;   /* in the region: textual uses; nodes of the text when inlined */
    int user_level;
    int last_use; /* the last sweep that computes something from it */
    bool inner, needed, plain;
    bool per_point; /* inner, but the same for all lanes: declared before them (written_out) */
    bool cached;    /* its row is worth keeping for later sweeps (ExprInfo.cached) */
    bool kept;      /* and has been computed */
    bool started;   /* scans: the running value is declared */
} Local;

typedef struct Emit {
    const Target *target;
    Kernel *kernel;
    KernelInfo info;
    Arena *arena;
    Buffer *out;
    Usage *usage;
    int indent, count; /* count: expressions */
    Local *local;      /* by expression */
    Access *load;      /* by expression */
    Access *store;     /* by store */
    int *axis_level;   /* by axis */
    int lane_axis, lane_level, row_level, body_level, origin_level;
    int64_t *axis_value; /* by axis: a fixed coordinate, or -1: the variable a0, a1 ... */
    int64_t row_stride;  /* ARRAY: lanes between two inner points of a kept row */
    const char *suffix;  /* of locals, where one expression has several: t4_0, t4_1 */
    int pass;            /* of the sweep that is written; values that a later one uses get names, */
    bool names_last;     /* when names outlive their sweep */
    bool written_out;    /* inner points are text: values that no lane changes are per_point */
    bool at_point;       /* emit_declare is to declare those */
    const char *origin;  /* lane coordinate of l = 0; NULL: 0 */
    bool arrays;         /* row-level values that vary with the lane live in arrays */
    bool reduce_leaves;  /* completed reduces have no name: they are read from the caller's slots */
    const char *slot_item; /* outer point of l = 0, for them */
    bool boundary;     /* in this region such a value must be an array already, or joins queue */
    Expr **queue;      /* vec: values that must become arrays before this region */
    Expr **declared;   /* vec: named expressions, for emit_scope */
    Access **pointers; /* vec: named accesses */
    int *rooted;       /* vec: stores of this region */
    bool has_inout;
    bool apart; /* costly ops are calls (emit_calls_apart) */
} Emit;

/* Levels, accesses and flags, after the caller has set target, kernel, arena, axis_level, lane_axis
 * and the level fields. */
void emit_prepare(Emit *e);

/* One region. */
void emit_begin(Emit *e);
void emit_root(Emit *e, Expr *value, int user_level);
void emit_root_store(Emit *e, int store, int user_level);
void emit_collect(Emit *e);
void emit_declare(Emit *e, int level); /* locals and pointers that belong to the level */

/* Whether the op is a call of a function that stays one: a kernel with many costly ops would take
 * the compiler seconds. The call is a statement of its own, so no condition hangs over it. */
bool emit_calls_apart(const Emit *e, const Expr *x);

/* Names declared since a mark are forgotten when their block closes. */
typedef struct Mark {
    int declared, pointers;
} Mark;
Mark emit_mark(const Emit *e);
void emit_forget(Emit *e, Mark mark);
void emit_name(Emit *e, const Expr *expr, const char *name); /* until the enclosing mark */

/* Lines: indentation, text, newline. Braces are the caller's. */
void emit_line(Emit *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emit_open(Emit *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emit_block(Emit *e); /* a bare { */
void emit_close(Emit *e);

/* ---- text of expressions (expr_text.c); all results live in the arena -------------------- */
const char *text_value(Emit *e, const Expr *expr); /* usable as an operand */
const char *text_bare(Emit *e, const char *text);  /* without its outer parentheses */
/* A number. narrow: of type int where all of it fits, which vectorizes better; else int64_t. */
const char *text_index(Emit *e, const Expr *index, bool narrow);
const char *text_literal(Emit *e, cb_dtype dtype, Scalar value);
const char *text_op(Emit *e, Op op, cb_dtype compute, cb_dtype result, const char *const *argument,
                    int count);
/* What memory has of a dtype as a value, and a value as memory has it: halves are converted. */
const char *text_widen(Emit *e, cb_dtype stored, const char *text);
const char *text_narrow(Emit *e, cb_dtype stored, const char *text);
const char *text_element(Emit *e, int buffer, const Access *access, const Expr *index,
                         bool guarded); /* b0[...], p3[l] */
const char *text_row_position(Emit *e); /* flat inner position, for cached rows */

/* ---- op rows as text (op_text.c) --------------------------------------------------------- */
void op_text_expand(Buffer *out, const char *tokens, cb_dtype dtype, const char *const *argument);
/* Whether the row's text can stand in an expression; otherwise the op is called as op_name_dtype.
 * clean: every argument is a name or a literal. */
bool op_text_inlines(Op op, cb_dtype compute, bool clean);
const char *op_text_tokens(Op op, cb_dtype compute);
/* What the usage needs: scalar math functions, then op functions. qualifier: "static inline";
 * apart: that of functions which are called. */
void op_text_functions(const Usage *usage, const Target *target, const char *qualifier,
                       const char *apart, Buffer *out);

#endif
