/* Shared by the files of the C target: prepare.c (how a kernel is written), c.c (frames: items,
 * passes, splits), pieces.c, whole.c (rows as whole vectors), sweep.c (one sweep over the inner
 * axes), flat.c (the same over whole rows as one run), steps.c (long chains), accumulate.c, scan.c
 * (scans along rows), outs.c (what goes through arrays), lanes.c (where things are in the loops),
 * few.c (texts for numbers that are few), tiles.c (of a transposition), prelude.c (the rest of a
 * file). */
#ifndef CARBIDE_CODEGEN_C_KERNEL_H
#define CARBIDE_CODEGEN_C_KERNEL_H

#include "codegen/emit.h"

/* How the loops of a kernel stand.
 * SERIAL  items | inner loops, one element at a time (scans, adding stores, nothing to vectorize)
 * ROW     items | outer inner loops | blocks | lanes along the last inner axis
 * NESTED  blocks of items | lanes along the last outer axis | inner loops, if any, all short
 * ARRAY   blocks of items | inner loops | lanes along the last outer axis; what a lane keeps is in
 *         arrays. Flat sweeps: blocks of items | lanes along rows and from row to row */
typedef enum Shape { SHAPE_SERIAL, SHAPE_ROW, SHAPE_NESTED, SHAPE_ARRAY } Shape;

/* Of the lane axis of a ROW kernel that is a piece of another one. */
typedef struct RowRange {
    int64_t low, high;
} RowRange;

/* Of a kernel in steps: the step that computes a value, and the last one that reads it from which
 * array (last 0: none does). */
typedef struct StepValue {
    int step, last, array;
} StepValue;

typedef struct CKernel CKernel;
struct CKernel {
    Emit e; /* first: the target's functions get it */
    Shape shape;
    const char *origin;    /* lane coordinate of l = 0; NULL: 0 */
    int64_t *axis_value;   /* by axis: a fixed coordinate, or -1: the variable a0, a1 ... */
    int64_t row_stride;    /* ARRAY: lanes between two inner points of a kept row */
    const char *slot_item; /* of a split kernel: outer point of l = 0 */
    int inner_count, reduce_count, store_count;
    int64_t hidden;    /* powers of two that strides of lanes are, and the compiler does not see */
    int64_t lanes;     /* of a block; ROW: of a block of the row, 0 when it is not cut */
    int64_t out_lanes; /* size of the arrays that streams go through */
    int64_t strip;     /* ROW, slabs: runs of lanes go by so many at a time; 0: they are shorter */
    bool tail;         /* runs need not be a multiple of strip */
    bool in_strip;     /* lane l of the run is lane j of its strip */
    bool in_tail;      /* the same, behind the last strip */
    bool narrow;       /* l is an int: c_gather */
    bool masked;       /* which has whole vectors there, and Emit.mask */
    bool masks_wide;   /* of eight bytes, as its elements are */
    bool hides_run;    /* its length is not in the text: c_hide_run */
    bool scalar;       /* its lanes are no vectors */
    int line;          /* lanes of a vector, of which the last one is masked (c_lines_loop); or 0 */
    bool split;
    int64_t weave;   /* of an ARRAY kernel: rows that lie apart and are walked side by side; or 0 */
    int64_t columns; /* of an ARRAY kernel with flat sweeps: elements of its rows; else 0 */
    bool columns_vary; /* they are up to so many */
    bool folds_flat;   /* rows are folded in such sweeps, too, and what is kept lies along the
                        * run */
    int64_t slab; /* of an ARRAY kernel that folds rows of so few columns, flat throughout; or 0 */
    bool flat;       /* in such a sweep: lane l is element l of all rows */
    Access *flat_load, *flat_store; /* along the run, by expression and by store */
    bool *repeated;                 /* by expression: its array holds for all blocks */
    bool turns; /* NESTED: walks blocks of several runs, because a load or store crosses the runs */
    uint32_t *tiled; /* vec: loads that go through tiles then (tiles.c) */
    bool turns_few; /* such runs may be of a few points, which the text does not know */
    int64_t *edge;  /* vec: coordinates along piece_axis where another piece begins (pieces.c) */
    int piece_axis; /* the lanes' or another outer one */
    bool *streams;  /* by store: goes past the caches */
    bool any_stream;
    bool *narrows;         /* by store: f16 that are converted several at once, from an array */
    int wide_count;        /* arrays of f16 that were converted several at once */
    bool written_out;      /* NESTED: the inner range is text, point by point */
    Phrase *point_name;    /* written-out inner points: names by point and expression */
    CKernel *few;          /* an ARRAY kernel as it is for few inner points; or NULL */
    int64_t few_points;    /* of such a one: for up to so many; else 0 */
    CKernel *few_columns;  /* the same for few lanes, in whose place it is if they do not vary */
    CKernel **flat_rows;   /* vec, of a NESTED one: flat ones for rows of few lanes; or NULL */
    int flat_most;         /* so many lanes */
    int short_most;        /* of such rows that go by vectors under masks; 0: by one */
    CKernel *across;       /* of rows whose length varies: the one for few points; or NULL */
    int longest;           /* of the lengths of rows that have texts of their own; or 0 */
    int64_t *row_edge;     /* vec: where one of these ends and the next one begins */
    bool several;          /* it is such a one: lanes are the columns of several rows, */
    const char *count;     /* so many where it is not n */
    CKernel **row_piece;   /* vec, of a ROW kernel: by range of its rows (pieces.c); or NULL */
    const RowRange *range; /* of such a piece; else NULL */
    uint32_t *accumulator; /* of such a piece: by reduction, the whole row's */
    int step_count;        /* NESTED: lane loops of a block, one after the other; 0: there is one */
    StepValue *step_value; /* by expression */
    cb_dtype *step_array;  /* vec: what the arrays between them hold */
    bool calls;            /* costly ops are calls of functions over them */
    bool whole;            /* in a loop over such arrays alone */
    CKernel *whole_row;    /* of rows that are walked as if they had whole_points lanes; or NULL */
    int64_t whole_points;
    int64_t *row_low, *row_high; /* kernel_bounds_rows */
};

/* ---- the target (prelude.c), and its texts (lanes.c) ---- */
extern const Target c_target;
bool c_kernel(Kernel *kernel, Usage *usage, Buffer *out); /* true: heavy */
Phrase c_axis(Emit *e, int axis, bool narrow);
Phrase c_lane(const CKernel *c, const char *array); /* its element of the lane */
Phrase c_element(Emit *e, int buffer, const Access *access, const Expr *index, bool guarded);
void c_address(Emit *e, const Access *access, int buffer, bool guarded, bool constant);
Phrase c_row(Emit *e, const Expr *value);
Phrase c_scan(Emit *e, const Expr *scan);
Phrase c_slot(Emit *e, const Expr *reduce);
/* Lanes are rows of five or more elements, which are folded or not. */
bool c_gathers_rows(Kernel *kernel, bool folds, int64_t point_cost);
void c_declare_strides(CKernel *c); /* by8 ... that element texts name */
Phrase c_array_element(const CKernel *c, char letter, uint32_t id); /* r4, or r4[l] in an ARRAY */

enum {
    STREAM_LANES = 1024,   /* block that is computed before it is copied out */
    WIDE_LANES = 4096,     /* most f16 that are converted at a time */
    ARRAY_SUM_BLOCK = 64,  /* terms that one lane of an ARRAY kernel adds up in a row */
    STRIP_TERMS = 16,      /* the same of a ROW kernel in strips */
    TURN_LANES = 16,       /* a transposition goes by blocks of so many columns */
    TURN_FEW = 8,          /* of up to so many a run is text */
    LENGTH_MOST = 8,       /* of rows that are taken apart: of 2, 3, 4 and 8 */
    ACROSS_POINTS = 23,    /* most of dear rows that have lanes across them */
    SEVERAL_COLUMNS = 63,  /* of rows several of which are lanes, */
    SEVERAL_LANES = 256,   /* most lanes of several rows of few columns */
    HEAVY_ARITHMETIC = 200, /* additions in a kernel's text */
    APART_ARITHMETIC = 500  /* in its functions: more become calls */
};

/* ---- accumulators of a sweep (accumulate.c) ---- */
bool c_reduces_in(const CKernel *c, int reduce, int pass);  /* whether the pass completes it */
bool c_sums_in_blocks(const CKernel *c, int pass);          /* ARRAY: float sums of a long range */
const char *c_array_type(const CKernel *c, cb_dtype dtype); /* of what arrays keep of a dtype */
void c_declare_array(CKernel *c, const char *type, const char *name, uint32_t id);
void c_begin_accumulators(CKernel *c, int pass);
void c_begin_partials(CKernel *c, int pass);
/* Of a flat sweep: what terms and results are in, and its rows folded. */
bool c_folds_rows(const CKernel *c);
void c_declare_folds(CKernel *c, int pass);
bool c_declare_terms(CKernel *c, int pass); /* false: there is nothing to compute them into */
void c_fold_rows(CKernel *c, int pass);
const char *c_reductions(CKernel *c, int pass); /* clauses of the vector loop */
void c_accumulate(CKernel *c, const Expr *reduce, int pass);
void c_end_partials(CKernel *c, int pass);
bool c_sums_in_strips(const CKernel *c, int pass);       /* ROW: partial sums by lane, too */
void c_strip_sums(CKernel *c, int pass, bool begin);     /* both ends of such */
void c_array_partials(CKernel *c, int pass, bool begin); /* both ends of a block */
/* Lanes behind the last one: of several rows the first row's, of whole vectors 0. */
void c_repeat_lanes(CKernel *c, const char *array);
void c_end_accumulators(CKernel *c, int pass);

/* ---- frames (c.c), pieces (pieces.c) ---- */
/* TURNS_IN: it stands in the loops of one that turns. */
typedef enum Turning { TURNS_CHOSEN, TURNS_IN, TURNS_NEVER } Turning;
/* range: of a piece of a row, or NULL. */
CKernel *c_prepare(Kernel *kernel, const RowRange *range, Turning turns, Usage *usage, Buffer *out);
int c_own_cost(const Expr *x); /* in additions */
int64_t c_whole_cost(const CKernel *c); /* of a point */
int c_longest_text(const CKernel *c);
bool c_has_halves(const Kernel *kernel);
int64_t c_room_of_rows(const CKernel *c); /* inner points that its arrays have room for */
void c_item(CKernel *c);                  /* one item, or block of lanes */
void c_all_items(CKernel *c);
void c_store_points(CKernel *c, int pass); /* LaneBody of pointwise kernels */
void c_open_function(CKernel *c, const char *kind, const char *suffix);
void c_choose_pieces(CKernel *c);
void c_item_in_pieces(CKernel *c);
void c_choose_whole(CKernel *c); /* of a kernel without pieces, or of a piece (whole.c) */
void c_item_of_whole_rows(CKernel *c);
void c_keep_rows(CKernel *c); /* room for rows that several loops read */
void c_row_in_pieces(CKernel *c, int pass); /* what row_piece has */

static inline const char *c_count(const CKernel *c) { /* of lanes */
    return c->count ? c->count : c->flat ? "m" : c->whole ? "whole" : "n";
}

/* Whether its rows are so few that each has registers of its own. */
static inline bool c_weaves(const CKernel *c) { return c->weave && c->scalar; }

static inline bool c_stores_in(const CKernel *c, int store, int pass) {
    return c->e.info.store_pass[store] == pass;
}

/* ---- texts for numbers that are few (few.c) ---- */
bool c_has_turned_few(const CKernel *c);
void c_function_of_turned_few(CKernel *c);
bool c_may_be_near(CKernel *c);
void c_function_of_near(CKernel *c);
void c_call_near(CKernel *c);
/* Over rows of few points, each a lane, whose number is the last axis. */
void c_rows_by_length(CKernel *c, Kernel *over_rows);
void c_kernel_of_flat_rows(CKernel *c);
void c_short_rows(CKernel *c); /* where there are any */

/* ---- tiles of a transposition (tiles.c) ---- */
void c_choose_tiles(CKernel *c); /* of a kernel whose pieces are chosen */
void c_item_of_tiles(CKernel *c);
void c_function_of_tiles(CKernel *c);
void c_call_tiles(CKernel *c); /* in the function of the others */
void c_lanes_of_item(CKernel *c); /* c.c; n lanes, whose addresses are declared */

/* ---- what goes through arrays (outs.c) ---- */
void c_choose_outs(CKernel *c);
/* Of the loop over so many lanes that is about to open; start: of its first one, behind a pointer's
 * name. */
void c_widen(CKernel *c, int64_t lanes, const char *start, const char *count);
/* The same of elements of a strip that lie apart, or in a tail are loaded under its mask; NULL:
 * there is none. The sweep's region is collected anew. */
void c_gather(CKernel *c, int pass, const char *start, const char *count, const char *mask);
void c_declare_outs(CKernel *c, int pass, int64_t lanes);
void c_narrow_outs(CKernel *c, int pass, const char *start, const char *count);
void c_flush_strip(CKernel *c, int pass);
void c_flush_outs(CKernel *c, int pass); /* after the lanes */

/* ---- chains in steps (steps.c) ---- */
void c_choose_steps(CKernel *c); /* of a kernel without pieces */
void c_lane_functions(CKernel *c); /* that no kernel of the file had before: before the kernel */
void c_lanes_in_steps(CKernel *c);

/* ---- flat sweeps (flat.c) ---- */
/* by_point: all points of a row at once would cost too much. strip: lanes of one, which rows fill
 * that lanes go along. */
void c_choose_columns(CKernel *c, bool by_point, int64_t strip);
void c_choose_lengths(CKernel *c);
void c_choose_across(CKernel *c);
static inline int c_next_length(int length) { return length < 4 ? length + 1 : 2 * length; }
bool c_keeps_any(const CKernel *c); /* rows for a later sweep */
void c_choose_flat_rows(CKernel *c); /* of a kernel, whose pieces and steps are chosen */
int64_t c_flat_lanes(const CKernel *c);
bool c_choose_slab(CKernel *c); /* or lanes along the columns; false: neither */
bool c_may_go_by_several(const CKernel *c); /* rows, which are folded */
void c_slab_sweep(CKernel *c, int pass); /* between both ends of its accumulators */
void c_flat_accesses(CKernel *c);
bool c_is_flat(const CKernel *c, int pass);
bool c_is_any_flat(const CKernel *c); /* of its sweeps */
void c_repeat_columns(CKernel *c);       /* before the items */
void c_flat_sweep(CKernel *c, int pass); /* row-level values are in arrays */

/* ---- sweeps (sweep.c) ---- */
bool c_collect(CKernel *c, int pass); /* the region of one sweep; false: it has nothing to do */
void c_lane_loop(CKernel *c, int pass);
void c_lane_body(CKernel *c, int pass); /* folds and stores of a lane */
void c_tail_loop(CKernel *c, int pass);
/* Lanes by whole vectors, the last one under a mask. Arrays have room for it, so that only loads
 * and stores ask (tail_loop says why by two counts). */
typedef void LaneBody(CKernel *c, int pass);
void c_lines_loop(CKernel *c, int pass, LaneBody *write);
void c_masked_line(CKernel *c, int pass, LaneBody *write); /* the last one: whole, left */
/* Before the lanes of a strip: its scans become arrays (scan.c). start: of the strip in the run. */
void c_scan_strip(CKernel *c, int pass, const char *start, const char *count);
void c_hide_run(CKernel *c); /* declares the length of the run for all sweeps, where it is hidden */
void c_row_of_piece(CKernel *piece, int pass); /* its region is collected */
/* Sweep of one pass over the inner axes, with everything that has to be computed before it. */
void c_sweep(CKernel *c, int pass);
/* Row-level stores, after the last sweep. */
void c_finish(CKernel *c);
/* Declares what does not vary with the lane, before the lane loop of a NESTED kernel opens. */
void c_before_lanes(CKernel *c);
void c_store(CKernel *c, int store);
void c_open_lanes(CKernel *c, const char *clauses); /* for (int l = 0; l < n; l++) */
/* The same of a body that loads: f16 side by side come through arrays before. Not around
 * accumulators alone, where addresses of the inner loops are known no more. */
void c_open_reading_lanes(CKernel *c, const char *clauses);
void c_flush_outs(CKernel *c, int pass); /* after the lanes: what goes through arrays */

#endif
