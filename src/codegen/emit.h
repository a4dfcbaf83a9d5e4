/* Loop IR -> text, for every target: which expressions a stretch of code needs and where in the
 * loop nest each is declared (place.c), their declarations (emit.c) and their text (value.c).
 *
 * A target opens and closes loops itself, outer to inner, and asks at each one for what belongs
 * there:
 *
 *     emit_begin(e);  emit_root(e, value, body level) ...;  emit_collect(e);
 *     emit_declare(e, 0);
 *     outer loop {
 *         emit_declare(e, 1);
 *         inner loop {
 *             emit_declare(e, 2);
 *             ...
 *
 * Level of an expression: the deepest loop whose axis it varies with. What is used once, in the
 * level where it is computed, is inlined into its user; everything else becomes a local named t12
 * after its id.
 *
 * A target may walk one axis, the lane axis, by a vector loop: codegen/c. A load or store that is
 * linear in it then has an address that is declared outside of that loop. */
#ifndef CARBIDE_CODEGEN_EMIT_H
#define CARBIDE_CODEGEN_EMIT_H

#include "codegen/target.h"

enum { NO_LANE = -1, NO_LEVEL = -1 };

/* How a load or store walks along the lane axis: index = rest + stride * lane coordinate. */
struct Access {
    bool linear;
    int64_t stride;
    Expr *rest;
    int level;        /* where its address is declared; NO_LEVEL: it has none */
    const char *name; /* the pointer (or, under a guard, the number) once declared */
    const char *when; /* the guard, where it is the same for all lanes of an address; or NULL */
    const char *wide; /* an array that has the elements converted, in place of them; or NULL */
    const char *tile; /* the lane's element of a copy; or NULL */
};

typedef struct Local {
    Phrase name;    /* what it is called here; none: not declared */
    int level;      /* loop that it varies with */
    int uses, size; /* in the region: textual uses; nodes of the text when inlined */
    int user_level;
    int last_use; /* the last sweep that computes something from it */
    bool inner, needed, plain;
    bool per_point; /* inner, but the same for all lanes: declared before them (written_out) */
    bool cached;    /* its row is worth keeping for later sweeps (ExprInfo.cached) */
    bool kept;      /* and has been computed */
    bool started;   /* scans: the running value is declared; values of rows: their expansion is */
    bool chosen;    /* a load whose guard is what its only user in the region chooses by */
} Local;

struct Emit {
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

    /* the loops, as the target has chosen them */
    int *axis_level; /* by axis */
    int lane_axis, lane_level, row_level, body_level;
    int origin_level; /* where the lane coordinate of the first lane is known */
    bool keeps_rows;  /* values of a row are kept for later sweeps where that pays */
    bool written_out; /* inner points are text: values that no lane changes are per_point */
    bool one_by_one;  /* lanes are no vectors: f16 are converted one at a time */
    bool apart;       /* costly ops are calls (emit_calls_apart) */

    /* the region */
    const char *suffix; /* of locals, where one expression has several: t4_0, t4_1 */
    int pass;           /* of the sweep that is written; values that a later one uses get names, */
    bool names_last;    /* when names outlive their sweep */
    bool at_point;      /* emit_declare is to declare what is per_point */
    bool reduce_leaves; /* completed reduces have no name: they are read from the caller's slots */
    const char *mask;   /* lanes are left out where it is 0: their loads are 0 */
    const char *kept;   /* the same lanes, for stores and terms of sums; see tail_loop */
    bool boundary;      /* in this region row-level values must be arrays already, or join queue */
    bool flat;          /* the same of values that no lane changes: rows are one run of lanes */
    Expr **queue;       /* vec: values that must become arrays before this region */
    Expr **declared;    /* vec: named expressions, for emit_forget */
    Access **addresses; /* vec: named accesses */
    int *rooted;        /* vec: stores of this region */
    bool has_inout;
};

/* ---- where values are declared (place.c) ---- */

/* Levels, accesses and flags, after the caller has set what it knows and chosen the loops. */
void emit_prepare(Emit *e);

/* One region. */
void emit_begin(Emit *e);
void emit_root(Emit *e, Expr *value, int user_level);
void emit_root_store(Emit *e, int store, int user_level);
void emit_collect(Emit *e);
/* Of a region: whether the value has no name and is written where it is used. */
bool emit_inlines(Emit *e, const Expr *x);
bool emit_may_call(const Expr *x); /* a costly op of values of one type */
/* Whether the op is a call of a function that stays one: a kernel with many costly ops would take
 * the compiler seconds. The call is a statement of its own, so no condition hangs over it. */
bool emit_calls_apart(const Emit *e, const Expr *x);

/* ---- declarations and lines (emit.c) ---- */

void emit_declare(Emit *e, int level); /* locals and addresses that belong to the level */

/* Names declared since a mark are forgotten when their block closes. */
typedef struct Mark {
    int declared, addresses;
} Mark;
Mark emit_mark(const Emit *e);
void emit_forget(Emit *e, Mark mark);
void emit_name(Emit *e, const Expr *expr, Phrase name); /* until the enclosing mark */

/* a0, a1 ... of the first `count` outer axes, from a point of these in row-major order; name: what
 * they are declared as, "const int64_t a". */
void emit_coordinates(Emit *e, int count, const char *point, const char *name);
/* The store into its element. */
void emit_store(Emit *e, int store, Phrase element);

/* Lines: indentation, text, newline. Braces are the caller's. */
void emit_line(Emit *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emit_open(Emit *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emit_directive(Emit *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emit_block(Emit *e); /* a bare { */
void emit_close(Emit *e);

enum { APART_COST = 10 }; /* from which on an op is costly */

/* ---- text of expressions (value.c); all results live in the arena ---- */

Phrase text_value(Emit *e, const Expr *expr);
/* What the names of an expression end in: its id, and in open text what hole_local has. */
uint32_t emit_number(const Emit *e, uint32_t id);
/* A size, as text: literal, or a hole. */
const char *emit_size(Emit *e, int64_t value);
const char *emit_long(Emit *e, int64_t value); /* of type int64_t wherever it stands */
/* A number. narrow: of type int where all of it fits, which vectorizes better; else int64_t. */
Phrase text_index(Emit *e, const Expr *index, bool narrow);
Phrase text_op(Emit *e, Op op, cb_dtype compute, cb_dtype result, const Phrase *argument,
               int count);
/* The combine step of a reduction or scan. */
Phrase text_combine(Emit *e, const Expr *fold, Phrase total, Phrase term);
Phrase text_identity(Emit *e, const Expr *fold);
/* What memory has of a dtype as a value, and a value as memory has it: halves are converted. */
Phrase text_widen(Emit *e, cb_dtype stored, Phrase text);
Phrase text_narrow(Emit *e, cb_dtype stored, Phrase text);

/* ---- op rows as text (op_text.c) ---- */

/* The row's text with arguments in place of a, b, c. */
Phrase op_text_expand(Arena *arena, const char *tokens, cb_dtype dtype, const Phrase *argument);
/* Whether the row's text can stand in an expression; otherwise the op is called as op_name_dtype.
 * simple: every argument is. */
bool op_text_inlines(Op op, cb_dtype compute, bool simple);
const char *op_text_tokens(Op op, cb_dtype compute);
/* What the usage needs: scalar math functions, then op functions. */
void op_text_functions(const Usage *usage, const Target *target, Buffer *out);

#endif
