/* The VM's program builder: what build.c (order of the work), place.c (accesses, needs) and those
 * that write instructions share: emit.c (registers, loads), emit_op.c (rows of the op table) and
 * emit_sweep.c (reductions, scans, stores).
 *
 * Values are virtual registers; instructions go to the lists of sections. At the end the lists are
 * joined, lifetimes follow from positions, and vectors whose lives do not meet share a block. */
#ifndef CARBIDE_VM_BUILD_H
#define CARBIDE_VM_BUILD_H

#include "vm/instruction.h"

/* Sections in program order: entry, then point, step, block, after of each pass, then the last
 * point. */
enum { SECTION_ENTRY, SECTION_POINT = 1, SECTION_STEP, SECTION_BLOCK, SECTION_AFTER };
enum { SECTIONS_PER_PASS = 4 };

typedef enum __attribute__((packed)) VmValueKind {
    VM_VALUE_VECTOR,
    VM_VALUE_UNIFORM,
    VM_VALUE_CONSTANT,
    VM_VALUE_POINTER
} VmValueKind;

typedef struct VmValue { /* a virtual register */
    VmType type;
    VmValueKind kind;
    int section;     /* of its first instruction; -1: none yet */
    int first, last; /* positions in the joined program */
    int offset;      /* vectors: bytes per lane before it; uniforms: number; constants: position */
} VmValue;

typedef struct VmIndex { /* an index expression, taken apart */
    bool linear;       /* levels and terms hold; else `index` is evaluated as a vector */
    bool apart;        /* linear, but each row of a block begins where its own rest says */
    VmLevels levels;   /* of the lanes */
    VmLevels rows;     /* of what there is of each row, or of each lane, of several */
    int64_t constant;
    int64_t *axis_stride; /* by kernel axis, the lane axis included */
    Expr *rest, *index;   /* rest: NULL when it is the constant */
} VmIndex;

typedef struct VmNode {   /* what the builder knows of an expression, by id */
    VmMode mode;          /* has a value per lane, per row, or one */
    int value, made;      /* virtual register, -1: not computed; the pass that computed it */
    int splat[VM_FULL], splat_made[VM_FULL]; /* the same of copies for another mode */
    int needed;           /* last pass that asked for it, -1: none */
    int uses;             /* in the pass at hand */
    int row;              /* kept row, -1: none */
    int slot;             /* reduces: accumulator */
    bool moves;           /* a load straight into an output of its dtype, whatever its register */
} VmNode;

typedef struct Builder {
    Kernel *kernel;
    Arena *arena;
    KernelInfo info;
    const VmOps *ops;
    bool oracle, row;
    bool together; /* several rows in a block */
    bool points;   /* TILE: several inner points in a block, each with all lanes of a row */
    bool apart;    /* found meanwhile: some load's rows are apart */
    int first_lane_axis, lane_axis;
    int pass; /* at hand; info.pass_count for the last point */
    VmNode *node;
    VmIndex *load, *store; /* by expression id, by store */
    VmValue *value;        /* vec */
    VmInstr **list;        /* by section, each a vec */
    int section_count;
    VmAccess *access; /* vec */
    VmTerm *term;     /* vec */
    Scalar *constant; /* vec */
    int *row_size;    /* vec: bytes of an element of each kept row */
    Expr **queue;     /* vec */
    int uniform_count;
    bool streams;       /* some store goes past the caches */
    int64_t lane_bytes; /* of all vectors, per lane */
} Builder;

/* place.c */
Expr *vm_real(const Builder *b, Expr *x); /* without conversions that change nothing */
int vm_lane_axes(const Builder *b);
int vm_lane_axis(const Builder *b, int level); /* the fastest first */
void vm_place_all(Builder *b);            /* places, analysis, nodes */
void vm_need_all(Builder *b); /* what the pass at hand computes: node.needed, node.uses */
bool vm_is_narrow(cb_dtype dtype);
const VmLevels *vm_levels(const VmIndex *place, VmMode mode);
bool vm_is_dense(const VmIndex *place, VmMode mode); /* lane follows lane */
bool vm_is_inner(const Builder *b, const Expr *x);
bool vm_is_ready(const Builder *b, const Expr *x); /* computed, and still valid in this pass */
VmMode vm_store_mode(const Builder *b, int store);
bool vm_store_is_inner(const Builder *b, int store);
bool vm_is_kept(const Builder *b, const Expr *x);
VmType vm_type_of(const Builder *b, const Expr *x);

/* emit.c */
VmInstr *vm_add(Builder *b, int section, VmInstr instr);
int vm_new_value(Builder *b, VmType type, VmValueKind kind);
int vm_fresh(Builder *b, VmType type, VmMode mode, int target); /* target, or a new one */
int vm_number(Builder *b, VmType type, Scalar value); /* a constant */
int vm_section_of(const Builder *b, const Expr *x);
int vm_get(Builder *b, Expr *x); /* its register */
/* The same for a mode, which is no lower than its own: splatted, or spread over the lanes. */
int vm_operand(Builder *b, Expr *x, VmMode mode);
/* lane_size: bytes of a lane in the register that is loaded or stored. */
int vm_access(Builder *b, int buffer, const VmIndex *place, VmMode mode, int lane_size,
              Expr *guard);
void vm_emit(Builder *b, Expr *x, int target); /* target: register to write, -1: a new one */

/* emit_op.c */
void vm_emit_op(Builder *b, Expr *x, int target);
int vm_wrap(Builder *b, int section, VmMode mode, cb_dtype dtype, int value, int target);
int vm_convert(Builder *b, int section, VmMode mode, VmType to, int value, int target);

/* emit_sweep.c: reductions, scans, stores */
void vm_emit_scan(Builder *b, Expr *x, int target);
void vm_accumulate(Builder *b, Expr *reduce);
void vm_finish(Builder *b, Expr *reduce);
void vm_read_slot(Builder *b, Expr *reduce);
bool vm_store_is_direct(const Builder *b, int store); /* its value writes into the output itself */
void vm_emit_store(Builder *b, int store);

#endif
