/* Loop IR: what one kernel computes, for every engine (VM, C, CUDA).
 *
 * A kernel runs over outer axes (parallel, every combination is independent) and, for each outer
 * point, over inner axes. Its body is one interned DAG of scalar expressions whose roots are
 * stores:
 *
 *     kernel softmax(outer a0:4096, inner a1:1024) {
 *       b0: in  f32[4194304]
 *       b1: out f32[4194304]
 *       t0 = load f32 b0[a0*1024 + a1]
 *       t1 = reduce amax t0
 *       t2 = exp(sub(t0, t1))
 *       t3 = reduce sum t2
 *       store b1[a0*1024 + a1] = div(t2, t3)
 *     }
 *
 * An expression is *inner* when it depends on an inner axis, otherwise it is *row-level* (one value
 * per outer point). EX_reduce folds its inner operand over all inner axes and is row-level; EX_scan
 * folds up to and including the current inner point, in order, and is inner.
 *
 * Passes: a reduce is complete after one sweep over the inner axes, so what uses it belongs to the
 * next sweep. kernel_analyze gives each expression its pass: inner leaves 0; an expression the
 * maximum of its operands, where a reduce of pass p counts as p + 1 for whoever uses it. softmax
 * has 3.
 *
 * Index expressions are i64 expressions over EX_axis and constants in the normal form of index.h.
 * dtypes of expressions are compute dtypes: f16 and bf16 are loaded to f32 and stored from f32; a
 * value that must be rounded to them in between is OP_to with imm = the dtype, itself typed f32.
 * bool, u8, i8, i16, i32, i64 are exact: a result wraps to its dtype. */
#ifndef CARBIDE_LOWER_LOOP_H
#define CARBIDE_LOWER_LOOP_H

#include "base/buffer.h"
#include "base/map.h"
#include "base/vec.h"
#include "op/op.h"

/* Expr.op is an Op of the table (pointwise, OP_to, OP_constant, LOWERED rows) or one of the
 * last: EX_axis, EX_load, EX_reduce, EX_scan.
 * Index arithmetic uses OP_add, OP_mul, OP_floor_divide, OP_remainder on i64 with non-negative
 * operands. */

enum { EXPR_AXES = 32 }; /* bits of Expr.axes */

typedef struct Expr Expr;
struct Expr {
    Op op;
    cb_dtype dtype;
    uint8_t input_count;
    uint32_t id;       /* dense in its kernel, inputs before users */
    uint32_t axes;     /* bit per kernel axis that the value varies with */
    int64_t low, high; /* bounds of an i64 expression (INT64_MIN, INT64_MAX when unknown) */
    Scalar imm;        /* OP_constant: value. EX_axis: axis. EX_load: buffer. OP_to: target dtype.
                        * EX_reduce, EX_scan: OP_sum, prod, amax, amin, any or all */
    Expr *input[3];    /* EX_load: index, and a guard (bool) or none: where it is false the load
                        * gives 0 and does not touch memory. EX_reduce, EX_scan: operand */
};

typedef struct Axis {
    int64_t size;
    bool inner;
    bool varies; /* other kernels that differ in sizes alone have another one (axis_typical) */
    bool few;    /* the same, of up to FEW_POINTS points; where it does not vary, of so many */
} Axis;

typedef enum __attribute__((packed)) BufferRole { BUFFER_IN, BUFFER_OUT, BUFFER_INOUT } BufferRole;

typedef struct KernelBuffer {
    cb_dtype dtype;
    BufferRole role;
    int64_t numel; /* elements that the kernel may touch, from the pointer on */
    int value;     /* plan value that it is bound to (sched/plan.h) */
    bool shared;   /* may lie where another one of the kernel does (kernel_updates) */
} KernelBuffer;

/* STORE_SET writes each element at one point alone. STORE_LAST and STORE_ADD take their index from
 * data: inner points of one outer point may meet, and follow each other in inner order. Points of
 * different outer points never meet. STORE_SUM is a sink: rows meet, as where the columns of what
 * a kernel makes row by row are summed, and the points of one row do not. */
typedef enum StoreMode {
    STORE_SET,
    STORE_LAST, /* the last point stays (scatter) */
    STORE_ADD,  /* adds to what is there (scatter_add), at every inner point, varying or not */
    STORE_SUM   /* adds to a sum that starts as 0 */
} StoreMode;

static inline bool store_adds(StoreMode mode) { return mode >= STORE_ADD; }

typedef struct Store {
    int buffer;
    StoreMode mode;
    Expr *index, *value;
    Expr *guard; /* or NULL */
} Store;

/* How the engines walk the kernel.
 * TILE  vector lanes along the last outer axis; inner axes are plain sequential loops with vector
 *       accumulators. Every pointwise kernel; column reductions and scans; short inner extents.
 * ROW   one outer point at a time; vector lanes along the last inner axis, or, of a scan, rows that
 *       lie in memory one after the other.
 * split > 1: too few outer points to feed the threads. The first inner axis, of size n, is cut into
 * split chunks of
 *       ceil(n / split), a number that does not depend on the threads; pass p runs over (chunk,
 *       outer), the partial accumulators are then combined in chunk order, and pass p + 1 begins.
 *       Row-level stores happen after the last pass.
 * parts > 1: of a kernel with sinks. The outer points are cut into so many ranges, each of which
 *       adds to zeros of its own, which are then added up in order: that number, too, is one of
 *       sizes alone. */
typedef enum Form { FORM_TILE, FORM_ROW } Form;

typedef struct Kernel Kernel;
struct Kernel {
    Arena *arena;
    const char *name;     /* k0_exp_sum: unique in its plan */
    Axis *axis;           /* vec: outer axes first, then inner ones */
    int outer_count;      /* number of outer axes */
    KernelBuffer *buffer; /* vec */
    Store *store;         /* vec, in program order */
    Expr **expr;          /* vec: every expression, by id */
    Map table;            /* of those that below does not have */
    const Kernel *below;  /* kernel_over: that it began as; else NULL */
    Form form;
    int64_t split;                  /* chunks of the inner range; 1: not split */
    int64_t parts;                  /* of the outer points, with sinks; else 1 */
    int64_t outer_size, inner_size; /* products of the axes */
    int64_t bytes, operations;      /* of one run: traffic at the least, arithmetic in additions */
    uint64_t key[2];                /* of a complete one: kernel_key */
    int like;                       /* the same one's number in the plan over other sizes, or -1 */
    int node_count;                 /* graph nodes that it computes: what eager would launch */
    const char *origin;             /* their names: "exp, sum, div" */
    uint64_t kind;                  /* hash of all of them: what it computes, over any sizes */
};

Kernel *kernel_new(Arena *arena);
/* The same kernel, for an engine: index arithmetic takes expressions that the kernel has not. They
 * are added here, in the engine's own arena, and the kernel, which must outlive this, stays as it
 * is. */
Kernel *kernel_over(const Kernel *kernel, Arena *arena);
/* The same kernel with what it needs in another arena, so that the one that it was made in may go.
 * Expressions keep their numbers. */
Kernel *kernel_copy(const Kernel *kernel, Arena *arena);
/* A kernel with the key of first, which is in the arena: its body is that one's. */
Kernel *kernel_again(const Kernel *first, const Kernel *kernel, Arena *arena);
int kernel_axis(Kernel *kernel, int64_t size, bool inner);
/* What choices of loops and forms go by: the size, and where it varies, up to TYPICAL_MOST, one for
 * all of them, so that kernels over other sizes are chosen alike. */
enum { TYPICAL = 256, TYPICAL_MOST = 512, FEW_POINTS = 16 };
/* So many less than a size that varies are taken to vary with it: n - 1 of x[1:], of a variance. */
enum { FEW_LESS = 4 };
int64_t axis_typical(const Kernel *kernel, int axis);
int64_t kernel_typical_row(const Kernel *kernel); /* the inner axes' product */
bool kernel_varies(const Kernel *kernel);         /* any axis does */
/* Whether a stride or the like is a multiple of a size that varies. */
bool stride_varies(const Kernel *kernel, int64_t stride);
int kernel_buffer(Kernel *kernel, cb_dtype dtype, BufferRole role, int64_t numel, int value);
void kernel_store(Kernel *kernel, int buffer, Expr *index, Expr *value, Expr *guard,
                  StoreMode mode);

/* Whether the inner points must be walked in order, one after the other: a scan continues from the
 * point before, and a store may write where that did. No lanes along inner axes. */
bool kernel_in_order(const Kernel *kernel);
/* Whether chunks of the inner range may be walked at the same time: not those of a scan, nor where
 * the last point stays or rows meet. Where points add, every chunk adds to zeros of its own
 * (vm/bins.c). */
bool kernel_may_split(const Kernel *kernel);
bool kernel_has_scan(const Kernel *kernel);
bool kernel_has_sink(const Kernel *kernel);
/* Of a scan's running value: f64 for sums and products of f32, which would round at every point. */
cb_dtype expr_running(const Expr *scan);

/* Whether the store may go where the buffers of plan value `input` lie: each element is loaded at
 * the very point that stores it, and in no sweep behind it. A kernel that folds, or whose other
 * stores use what is loaded, must know of it: its code is another one, with all loads before the
 * stores whatever a compiler does. */
bool kernel_updates(const Kernel *kernel, const Store *store, int input);
bool kernel_shares(const Kernel *kernel, const Store *store, int input); /* if it must, it knows */
void kernel_share(Kernel *kernel, const Store *store, int input);
/* By id: whether a store needs the expression. What simplification left behind is needed by
 * none. */
const bool *kernel_live(const Kernel *kernel, Arena *arena);
/* Equal where kernels differ in names and in what their buffers are bound to alone. key.c. */
void kernel_key(const Kernel *kernel, Arena *arena, uint64_t key[2]);

/* Interning constructors; expr_op folds constants. */
Expr *expr_constant(Kernel *kernel, cb_dtype dtype, Scalar value);
Expr *expr_int(Kernel *kernel, int64_t value); /* i64 */
Expr *expr_axis(Kernel *kernel, int axis);
Expr *expr_load(Kernel *kernel, int buffer, cb_dtype compute, Expr *index, Expr *guard);
Expr *expr_op(Kernel *kernel, Op op, cb_dtype dtype, Expr *const *input, int input_count);
/* The op that stands for the whole tree with this root, over as many of joined[3] as it takes;
 * OP_none: none does. join.c. */
Op expr_join(Op op, cb_dtype dtype, Expr *const *input, int input_count, Expr **joined);
Expr *expr_to(Kernel *kernel, Expr *input, cb_dtype dtype); /* f16, bf16: rounds, stays f32 */
Expr *expr_reduce(Kernel *kernel, Op reduce, Expr *input);
Expr *expr_scan(Kernel *kernel, Op reduce, Expr *input);

/* What the engines need to know of each expression, by id. Dead expressions have users == 0. */
typedef struct ExprInfo {
    bool inner;      /* depends on an inner axis */
    bool index_only; /* used in index arithmetic alone: evaluated as a number, not as a value */
    int pass;        /* inner: the first sweep that evaluates it. Row-level: it can be evaluated
                      * before that sweep, or after the last one (pass_count). EX_reduce: the sweep
                      * that completes it */
    bool cached;     /* inner, dear, and needed by a later sweep again: the engine keeps the row of
                      * its values (ROW form, not split, ROW_CACHE_BYTES at the most) */
    int users;       /* value uses by live expressions and stores */
} ExprInfo;

enum {
    ROW_CACHE_BYTES = 128 * 1024,
    KEEP_COST = 8 /* arithmetic (in additions) from which on keeping beats computing again */
};

typedef struct KernelInfo {
    ExprInfo *expr;
    Expr **reduce;   /* vec: live EX_reduce expressions by id; positions name partial slots */
    int pass_count;  /* sweeps over the inner axes; 1 for a pointwise kernel */
    int *store_pass; /* by store: the sweep that does it; pass_count: row-level, at the end */
} KernelInfo;

KernelInfo kernel_analyze(const Kernel *kernel, Arena *arena);

/* index = base + sum of stride[axis] * axis, when it is affine. base may hold any expression
 * without the axes in question: stride gets an entry per kernel axis, rest what is not affine
 * (never NULL; constant 0 when all is). Returns false when an axis appears inside the rest. */
bool index_affine(Kernel *kernel, Expr *index, int64_t *stride, Expr **rest);
/* The same for one axis only: stride along it; rest is free of the axis. False when it is not
 * linear in it. */
bool index_linear(Kernel *kernel, Expr *index, int axis, int64_t *stride, Expr **rest);
bool expr_bounded(const Expr *expr); /* low and high say something */
bool expr_uses_axis(const Expr *expr, int axis);
bool expr_uses_inner(const Kernel *kernel, const Expr *expr);

/* Where conditions on the coordinate along axis change, ascending; and the kernel for points
 * low <= coordinate < high alone, or for one point, whose coordinate is a constant. pieces.c. */
int64_t *kernel_edges(Kernel *kernel, int axis, Arena *arena);
enum {
    PIECES_MANY = 8,  /* an element that asks for so many conditions costs as much as a store */
    PIECES_MAX = 128, /* loops of their own for ranges with other conditions */
    PIECE_SHORT = 8   /* along fewer lanes on average a loop costs more than its elements */
};
/* Whether a row along axis is made of many pieces of a few elements, as of a stack along the last
 * dim: each is walked across the rows then. */
bool kernel_in_short_pieces(Kernel *kernel, int axis);
Kernel *kernel_piece(const Kernel *kernel, int axis, int64_t low, int64_t high);
Kernel *kernel_point(const Kernel *kernel, int axis, int64_t at);
/* The piece as a kernel that has no other points: its coordinate counts from 0. */
Kernel *kernel_range(const Kernel *kernel, int axis, int64_t low, int64_t high);
/* The kernel for so many points along its last axis, an outer one, which becomes an inner one: rows
 * are the outer points. few: for few points, whose number varies. */
Kernel *kernel_by_rows(const Kernel *kernel, int64_t points, bool few);

/* The kernel for few points along an axis; or for so many. */
Kernel *kernel_of_few(const Kernel *kernel, int axis);
Kernel *kernel_of_points(const Kernel *kernel, int axis, int64_t points);

/* What a kernel does to its rows; row.c. */
typedef struct RowWork {
    bool stores;      /* every point */
    int reduces;      /* folds of a row */
    int points, rows; /* additions for each point, and for each row */
} RowWork;
enum { DEAR_POINT = 10 }; /* additions: an exponential */
RowWork kernel_row_work(const Kernel *kernel);
/* Whether rows are walked several times, or at much cost for each point: folded and made into
 * something for each, folded twice, or through an exponential. */
bool row_is_dear(const RowWork *work);

/* Whether axis and the one before it can be walked as one run: every access that varies with both
 * goes on at the end of a row, and nothing else asks for coordinates of both. guarded: loads may
 * have conditions. flat.c. */
bool kernel_runs_flat(Kernel *kernel, int axis, bool guarded);

/* Points of whole vectors that hold a row along an outer axis. whole.c. */
int64_t kernel_whole_row(Kernel *kernel, int row);
/* Whether nearly all rows find their loads in memory if they have so many points, with or without
 * guards: those whose coordinate along any axis before is low or more, and along any is high or
 * less. */
bool kernel_bounds_rows(Kernel *kernel, int row, int64_t points, int64_t *low, int64_t *high);
bool kernel_stores_in_order(Kernel *kernel); /* outer points lie one behind the other, as they go */
Kernel *kernel_unguarded(const Kernel *kernel); /* every load is done, and left out behind that */

void kernel_print(const Kernel *kernel, Buffer *out);
Kernel *kernel_parse(Arena *arena, const char *text); /* NULL with an error; for tests */
bool kernel_verify(const Kernel *kernel, Buffer *why);

#endif
