/* The vector VM from inside: instructions over blocks of lanes, and the block functions that they
 * call.
 *
 * A register is a pointer. It points at a block of lanes in the frame of the run (a vector), at
 * one value (a uniform: the same for all lanes), at a constant of the program, or straight into a
 * tensor (a contiguous load costs nothing; the last operation may write into the output itself).
 *
 * Registers have five element types: bool is a byte 0 or 1; u8, i8, i16 and i32 live in i32 lanes,
 * wrapped after each operation that may leave their range; f16 and bf16 live in f32. In the oracle
 * every float is f64. */
#ifndef CARBIDE_VM_INSTRUCTION_H
#define CARBIDE_VM_INSTRUCTION_H

#include "vm/program.h"

typedef enum __attribute__((packed)) VmType {
    VM_BOOL, VM_I32, VM_I64, VM_F32, VM_F64, VM_TYPES
} VmType;

/* Operands of a binary block function: both vectors, the second or the first uniform. */
typedef enum VmShape { VM_VECTORS, VM_SCALAR_B, VM_SCALAR_A, VM_SHAPES } VmShape;

/* The table lists the rows that have block functions first, and the reductions, from OP_sum on,
 * last among them. */
enum {
    VM_REDUCES = 0
#define REDUCE(...) +1
#include "op/op_rows.h"
    ,
    VM_ROWS = OP_sum + VM_REDUCES
};

/* y[i] = f(a[i], b[i], c[i]); y may be one of the operands. */
typedef void VmFunction(int64_t n, void *y, const void *a, const void *b, const void *c);
/* y[i] = base[i * stride], or base[index[i]]; where guard[i] is 0: 0, without reading. */
typedef void VmLoad(int64_t n, void *y, const void *base, int64_t stride, const int64_t *index,
                    const uint8_t *guard);
typedef void VmStore(int64_t n, void *base, int64_t stride, const int64_t *index,
                     const uint8_t *guard, const void *x);
/* Folds n lanes into the accumulator: f for floats, i for the others. */
typedef void VmReduce(int64_t n, Scalar *accumulator, const void *x);
/* y[i] = the fold up to and including x[i], going on from the accumulator. */
typedef void VmScan(int64_t n, void *y, const void *x, Scalar *accumulator);

/* y[r * n + i] = a[r]; r < rows, i < n. Writes up to VM_SLACK lanes more. */
typedef void VmSpread(int64_t rows, int64_t n, void *y, const void *a);

typedef struct VmElement {
    VmLoad *load;
    VmStore *store;
    VmStore *add; /* base[...] += x[i], in order */
} VmElement;

/* The block functions of one instruction set (blocks.c, compiled once for each). */
typedef struct VmOps {
    /* rows[type][op < VM_ROWS][shape], by the type of the operands; NULL: no such function */
    VmFunction *const (*rows[VM_TYPES])[VM_SHAPES];
    VmFunction *convert[VM_TYPES][VM_TYPES]; /* [from][to]; to itself: of i64 and f64 alone */
    VmFunction
        *wrap[CB_DTYPE_COUNT];       /* i32 wrapped to narrow integers, f32 rounded to halves */
    VmFunction *splat[VM_TYPES];     /* y[i] = a[0] */
    VmSpread *spread[VM_TYPES];
    VmFunction *count;               /* i64: y[i] = a[0] + i */
    VmFunction *divide, *remainder;  /* i64 by b[0] > 0, 0 <= a[i] < 2^50 */
    VmFunction *wide[VM_REDUCES];    /* that add: f64 y[i] = a[i] + f32 b[i]; or NULL */
    VmElement element[CB_DTYPE_COUNT][2]; /* [1]: floats as f64 */
    VmLoad *move[9];                   /* by size: elements as they lie, to others like them */
    VmStore *stream[VM_TYPES];         /* base[i] = x[i] past the caches; NULL: no such function */
    VmReduce *const *reduce[VM_TYPES]; /* [type][op - OP_sum] */
    VmScan *const *scan[VM_TYPES];
} VmOps;

extern const VmOps vm_ops_base, vm_ops_v3, vm_ops_v4;

typedef enum __attribute__((packed)) VmKind {
    VM_OP,         /* function(n, y, a, b, c) */
    VM_LOAD,       /* y = load(access) */
    VM_POINT,      /* y points at access */
    VM_STORE,      /* store(access) = a */
    VM_REDUCE,     /* accumulator y, operand a */
    VM_FOLD,       /* y = y and, by function, what each of the block's points has in b */
    VM_SCAN,       /* y = scan of a, accumulator b */
    VM_SPREAD,     /* y = each of a's rows for all of its lanes */
    VM_COORDINATE, /* y = coordinate of axis `number`; -1: place of the block among all lanes */
    VM_ROW,        /* y points into kept row `number` */
    VM_SLOT_READ,  /* y = slot of reduce `number`, by function */
    VM_SLOT_WRITE  /* slot of reduce `number` = a, by function */
} VmKind;

/* How many lanes an instruction runs over, the fewer first. */
typedef enum __attribute__((packed)) VmMode {
    VM_ONE,
    VM_BY_ROW, /* one for each row of a block of several; of several points, for each lane */
    VM_LANES,
    VM_FULL /* a whole block, whatever comes */
} VmMode;

typedef struct VmInstr {
    VmKind kind;
    VmMode mode;
    int y, a, b, c; /* registers, -1: none */
    int number;     /* access, axis, row or reduce */
    union {
        VmFunction *function;
        VmLoad *load;
        VmStore *store;
        VmReduce *reduce;
        VmScan *scan;
        VmSpread *spread;
    };
    const char *name;
} VmInstr;

typedef struct VmTerm {
    int axis;
    int64_t stride;
} VmTerm;

/* How the lanes lie in memory: count elements with a stride, these again and again with the next
 * level's, as axes do, but the innermost comes first. One level: a plain stride. */
enum { VM_LANE_AXES = 4 };
typedef struct VmLevels {
    int count;
    int64_t size[VM_LANE_AXES], stride[VM_LANE_AXES]; /* elements */
} VmLevels;

/* The element where a block starts: constant + rest + sum of the terms. */
typedef struct VmAccess {
    int buffer, size;       /* size: bytes of an element */
    int lane_size;          /* bytes of a lane in the register */
    int64_t constant;
    VmLevels levels;
    int rest, index, guard; /* registers, -1: none */
    bool apart;             /* the rest is a vector of the rows, each of which begins elsewhere */
    int first_term, term_count;
    int64_t staging;        /* bytes into the frame, where an input passes through that is
                             * transposed, or packed before it is converted; -1: none */
} VmAccess;

typedef enum __attribute__((packed)) VmPlace { VM_FRAME, VM_CONSTANT, VM_DYNAMIC } VmPlace;

typedef struct VmRegister {
    VmPlace place;
    int offset; /* bytes into the frame or the constants */
} VmRegister;

typedef struct VmRow { /* values of one row: bytes into the frame, bytes of an element */
    int64_t offset;
    int size;
} VmRow;

typedef struct VmSection { /* instructions [first, end) */
    int first, end;
} VmSection;

/* One sweep over the inner axes. TILE: step runs at every inner point. ROW: step runs at every
 * combination of the inner axes but the last, then block over the lanes of the last. Several rows
 * together: point and after run for these, block for all of their lanes. */
typedef struct VmPass {
    VmSection point; /* before the sweep, once per outer point (ROW) or tile */
    VmSection step, block;
    VmSection after; /* after it: accumulators become values, or slots */
} VmPass;

enum {
    VM_MAX_AXES = 32,
    VM_SLACK = 16,
    VM_PAGE = 4096,
    VM_TURN_LANES = 128, /* lanes at a time beside a transposed input */
    VM_TURN_LINE = 16    /* its elements that are fetched together */
};

struct Program {
    bool row;                               /* FORM_ROW */
    int axis_count, outer_count;
    int first_lane_axis, lane_axis; /* lanes run along these and what is between: one axis in ROW,
                                     * and where the last one is long. lane_axis -1: none */
    int64_t lane_count;             /* product of their sizes */
    int turn_axis; /* TILE: outer axis along which some input is contiguous that is not so along
                    * the lanes; -1: none */
    int64_t size[VM_MAX_AXES], inner_stride[VM_MAX_AXES];
    int64_t outer_size, split;
    int64_t rows; /* ROW: whole ones in a block, along the last outer axis; 0: parts of one */
    int64_t points; /* TILE: inner ones in a block, of all lanes each; 0: one, of some lanes */
    int pass_count, register_count, instr_count;
    int64_t capacity; /* lanes of a block */
    int64_t full; /* lanes that VM_FULL fills: capacity, or the lane axis when that is shorter */
    int64_t frame_bytes;
    size_t bytes;    /* of the program itself */
    bool streams;    /* some store goes past the caches */
    VmSection entry; /* once per run */
    VmPass *pass;    /* pass_count + 1; of the last only point: row-level stores */
    VmInstr *instr;
    VmRegister *registers;
    VmAccess *access;
    VmTerm *term;
    VmRow *row_cache; /* kept rows */
    Scalar *constant;
};

/* walk.c: what VM_LOAD and VM_STORE do where lanes have levels, from the lane at `place` on. */
void vm_walk_load(const VmInstr *in, const VmAccess *access, int64_t n, int64_t place, char *y,
                  const char *from, char *staging, const uint8_t *guard);
void vm_walk_store(const VmInstr *in, const VmAccess *access, int64_t n, int64_t place, char *to,
                   const char *x, const uint8_t *guard);

VmType vm_type(cb_dtype dtype, bool oracle);
int vm_type_size(VmType type);

#endif
