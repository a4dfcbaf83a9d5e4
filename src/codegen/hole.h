/* The numbers in a kernel's text, which may be left open.
 *
 * Kernels over other sizes mostly differ in numbers alone: their text with every number a hole is
 * one text, and they are a *family* (jit/family.h). Which holes are arguments of the function, and
 * which stay literal, is decided by whoever has several of them before it.
 *
 *     all open      for (int64_t a1 = 0; a1 < n4; a1++) ... b0[a0 * n5 + a1] ... t3 * f6
 *     16: argument  for (int64_t a1 = 0; a1 < n0; a1++) ... b0[a0 * 768 + a1] ... t3 * 0.5f
 *
 * Text with a hole says which one, by its place in the order of writing, so kernels with the same
 * open text have the same number of them at the same places. A text of holes is chosen for other
 * sizes, too (Usage.holes is asked in codegen/c): no loop is left out since one size allows it. */
#ifndef CARBIDE_CODEGEN_HOLE_H
#define CARBIDE_CODEGEN_HOLE_H

#include "codegen/text.h"
#include "op/op.h"

typedef struct TextNumber {
    Scalar value;
    cb_dtype dtype; /* CB_F32, CB_F64, or CB_I64: of any integer */
    bool size;      /* of coordinates; false: a constant of the function */
} TextNumber;

typedef struct Holes {
    Arena *arena;
    TextNumber *hole;          /* vec: in the order of writing */
    const int *argument; /* by hole: which argument it is, or -1: literal; NULL: all are open */
    int argument_count;
    int written;     /* so far */
    uint32_t *local; /* vec, of open text: by an expression's id its number, from 1 on; or 0 */
    uint32_t locals; /* so many have one */
} Holes;

/* Strides and the like; 0 and 1 make other text anyway. */
static inline bool hole_is_open(int64_t value) { return value > 8 || value < -8; }

/* A size of the kernel, an int64_t; suffix: of the literal, "" or "L". holes NULL: a literal. */
const char *hole_size(Holes *holes, Arena *arena, int64_t value, const char *suffix);
/* A number whose literal text is given. is_int: as an int, not an int64_t. */
Phrase hole_value(Holes *holes, TextNumber hole, bool is_int, Phrase literal);
/* Of open text: what the names of an expression end in. Ids change where sizes are equal by chance:
 * 12 heads beside 12 tokens are one constant. So locals are numbered as they appear. */
uint32_t hole_local(Holes *holes, uint32_t id);
/* The declarations of the arguments, which are number[0] ... in memory: 8 bytes each, int64_t or
 * double. */
void hole_declare(const Holes *holes, int buffer, Buffer *out);

#endif
