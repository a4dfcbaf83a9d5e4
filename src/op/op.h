/* The op table as data: what every layer knows of an op.
 * ops.def (rows) and tools/opgen.c (parsed schemas, API) -> op_info(OP_exp)->name, ->param[0],
 * ... */
#ifndef CARBIDE_OP_OP_H
#define CARBIDE_OP_OP_H

#include "base/error.h"

typedef enum __attribute__((packed))
Op { OP_none,
     OP_input,    /* graph only: the k-th argument */
     OP_constant, /* graph only: a zero-dimensional literal; attributes dtype, bits */
#define UNARY(name, ...) OP_##name,
#define BINARY(name, ...) OP_##name,
#define TERNARY(name, ...) OP_##name,
#define INTERNAL(name, ...) OP_##name,
#define REDUCE(name, ...) OP_##name,
#define SCAN(name, ...) OP_##name,
#define VIEW(name, ...) OP_##name,
#define STRUCTURED(name, ...) OP_##name,
#define COMPOSITE(name, ...) OP_##name,
#define HIDDEN(name, ...) OP_##name,
#define CUSTOM(name, ...) OP_##name,
#include "op/op_rows.h"
     OP_COUNT, /* of rows and graph nodes; from here on expressions of loops (lower/loop.h) */
     EX_axis = OP_COUNT,
     EX_load,
     EX_reduce,
     EX_scan,
     OP_assign = OP_none,   /* traces only: operand 0 takes operand 1's elements */
     OP_backward = OP_input /* traces only: gradients of operand 0, which begin with operand 1 */
} Op;

typedef enum OpKind {
    KIND_SPECIAL,
    KIND_POINTWISE,
    KIND_REDUCE,
    KIND_SCAN,
    KIND_VIEW,
    KIND_SOURCE,
    KIND_RANDOM,
    KIND_JOIN,
    KIND_GATHER,
    KIND_SCATTER,
    KIND_CONTRACT,
    KIND_OPAQUE,
    KIND_CUSTOM,
    KIND_COMPOSITE
} OpKind;

/* How compute and result dtype follow from the inputs. Numbers are weak: they take part only when
 * their kind (bool < int < float) is above that of every tensor, zero-dimensional tensors
 * likewise. */
typedef enum DtypeRule {
    DTYPE_SAME,     /* promoted */
    DTYPE_NUMERIC,  /* promoted; bool is refused */
    DTYPE_FLOAT,    /* promoted; integers and bool become f32 */
    DTYPE_FLOATING, /* promoted; integers and bool are refused */
    DTYPE_BOOL,     /* computed in the promoted dtype, result bool */
    DTYPE_LOGICAL,  /* inputs become bool (x != 0), result bool */
    DTYPE_INT,      /* promoted; floating point is refused */
    DTYPE_SHIFT,    /* promoted; bool and floating point are refused */
    DTYPE_WHERE,    /* input 0 bool, the others promoted */
    DTYPE_SUM,      /* integers and bool become i64 */
    DTYPE_KEEP,     /* the first input's; index inputs must be integers */
    DTYPE_INDEX,    /* result i64 */
    DTYPE_ATTR,     /* the attribute named dtype */
    DTYPE_I64
} DtypeRule;

/* What autocast converts the floating point inputs of an op to, f64 excepted. */
typedef enum Autocast {
    AUTOCAST_NONE,
    AUTOCAST_LOWER, /* the dtype of the autocast scope */
    AUTOCAST_F32
} Autocast;

enum {
    COMMUTES = 1,
    ASSOCIATES = 2,
    IDEMPOTENT = 4,
    LOWERED = 8,      /* not in the API */
    WIDE_NUMBER = 16, /* a number beside f16 or bf16 counts as f32; for other ops it is rounded */
    FITS_NUMBER = 32  /* a number that overflows the dtype it is converted to is refused */
};

typedef enum ParamType {
    PARAM_TENSOR,
    PARAM_OPTIONAL_TENSOR,
    PARAM_INT,
    PARAM_FLOAT,
    PARAM_BOOL,
    PARAM_DTYPE,
    PARAM_DIMS,
    PARAM_FLOATS,
    PARAM_NUMBER,
    PARAM_REDUCTION
} ParamType;

/* Numbers that an attribute may have in turn, while the op builds the same nodes but for them: what
 * the row decides by its value comes out the same for all of them. */
typedef enum __attribute__((packed)) Varies {
    VARIES_NOT,
    VARIES_FREELY,
    VARIES_ABOVE_0,
    VARIES_WITHIN_1, /* 0 < number < 1 */
    VARIES_START     /* of a view, in elements along its dim: an argument of traces, not of nodes */
} Varies;

typedef struct Param {
    const char *name;
    ParamType type;
    bool has_default;
    Varies varies;             /* PARAM_FLOAT, PARAM_NUMBER; a start: PARAM_INT */
    double default_float;      /* PARAM_FLOAT */
    cb_operand default_number; /* PARAM_NUMBER */
    int64_t default_int;       /* the others; dims: how many, -1 is CB_ALL; floats: 0 */
    int64_t default_at;        /* dims: the one element, repeated for every dimension of the op */
    int word;                  /* attributes: offset into Attrs.word; tensors: -1 */
} Param;

enum { OP_MAX_PARAMS = 11, OP_MAX_INPUTS = 8, ATTR_WORDS = 48 };
enum { LIST_WORDS = 1 + CB_MAX_RANK, NUMBER_WORDS = 2 };

/* Whether a graph's input may stand for it (attr_set_argument). */
static inline bool param_may_be_input(const Param *param) {
    return param->varies != VARIES_NOT && param->varies != VARIES_START;
}

/* How many words of Attrs an attribute takes. */
static inline int param_words(const Param *param) {
    if (param->type == PARAM_NUMBER) return NUMBER_WORDS;
    return param->type == PARAM_DIMS || param->type == PARAM_FLOATS ? LIST_WORDS : 1;
}

typedef struct OpInfo {
    const char *name, *fx;
    const char *value;    /* pointwise and reductions: C tokens (combine step) */
    const char *identity; /* reductions: C tokens */
    const char *formula;  /* composites; NULL: graph/expand */
    OpKind kind;
    DtypeRule dtype;
    Autocast autocast;
    uint16_t flags, cost;
    uint8_t arity; /* tensor inputs, optional ones included */
    uint8_t param_count, word_count;
    const Param *param; /* schema order; ops of one schema share them */
    Op scan_of;         /* scans: the reduction */
} OpInfo;

const OpInfo *op_info(Op op) __attribute__((const));
/* The gradient column: a text without spaces; "" for a composite whose expansion has it, "@" for
 * one that is code, "!why" where there is none, "?why" where there is none either, but the result
 * requires one: who goes back to it is told. */
const char *op_gradient(Op op);
static inline bool op_refuses_gradient(Op op) { return *op_gradient(op) == '?'; }
/* Norms whose calls move their running statistics, inputs 1 and 2, when they train. */
static inline bool op_moves(Op op) { return op == OP_batch_norm || op == OP_instance_norm; }
/* Gathers and scatters: input 1 holds positions along a dim (ATTR_along_dim) of input 0. */
static inline bool op_has_index(Op op) {
    OpKind kind = op_info(op)->kind;
    return kind == KIND_GATHER || kind == KIND_SCATTER;
}
/* Of integers, whose divisor is input 1 and not 0. */
static inline bool op_divides(Op op) {
    return op == OP_floor_divide || op == OP_remainder || op == OP_fmod;
}
/* Values that the op refuses under the option check, as the end of an error; NULL: none. */
static inline const char *op_refuses(Op op) {
    if (op == OP_binary_cross_entropy) return "x has to be between 0 and 1";
    return op_divides(op) ? "integers are not divided by 0" : NULL;
}
Op op_find(const char *name, size_t length); /* OP_none when there is none */
/* An error that opens with the name of another op opens with this one. */
void op_rename_error(const char *name);

/* One element in the compute type of its dtype: f64 for floats here, i64 for integers and bool. */
typedef union Scalar {
    double f;
    int64_t i;
} Scalar;

/* Attributes, packed: an int, bool, dtype or float (its bits) is one word, dims and
 * floats are LIST_WORDS words (count, values, zeros), a number is NUMBER_WORDS (op/number.c). Equal
 * attributes are equal bytes. Offsets are the generated ATTR_op_param. Words that the op does not
 * have may hold anything: nobody reads them. */
typedef struct Attrs {
    int64_t word[ATTR_WORDS];
} Attrs;

#include "op_attrs.h" /* generated: enum { ATTR_sum_dim = 0, ATTR_sum_keepdim = 9, ... } */

/* The attribute dim of scans, gathers and scatters: tools/opgen.c refuses a row that has it
 * elsewhere. */
enum { ATTR_along_dim = ATTR_cumsum_dim };

extern const Attrs attrs_none; /* of ops that have none */
Attrs attrs_default(Op op);
void attrs_copy(Attrs *to, const Attrs *from, Op op); /* the words that op has */
double attr_float(const Attrs *attrs, int word);
void attr_set_float(Attrs *attrs, int word, double value);
cb_dim_list attr_dims(const Attrs *attrs, int word);
void attr_set_dims(Attrs *attrs, int word, cb_dim_list dims);
cb_dim_list size_list(int rank, const int64_t *size); /* as sizes are given to reshape and expand */
cb_float_list attr_floats(const Attrs *attrs, int word);
void attr_set_floats(Attrs *attrs, int word, cb_float_list floats);

/* Numbers as they were given (op/number.c). attr_number: CB_OPERAND_TENSOR without a tensor is
 * none, which number_given tells. attr_take_number: false with an error for a tensor. number_fits:
 * PyTorch converts the value without an error; number_converts: the same, and why it does not;
 * number_dtype: f64, i64 or bool. */
enum { NUMBER_TEXT = 64 };
cb_operand attr_number(const Attrs *attrs, int word);
void attr_set_number(Attrs *attrs, int word, cb_operand number);
bool attr_take_number(Attrs *attrs, int word, cb_operand given, const char *op, const char *name);
bool number_given(const cb_operand *operand);
cb_dtype number_dtype(const cb_operand *number);
Scalar number_scalar(const cb_operand *number);
double number_as_double(const cb_operand *number);
cb_operand number_from(cb_dtype dtype, Scalar value);
bool number_fits(cb_dtype from, Scalar value, cb_dtype to);
bool number_converts(const cb_operand *number, cb_dtype dtype, char why[NUMBER_TEXT]);
/* True when the op computes the same with the number as an input without dimensions, whatever its
 * value; beside_half: one of its tensors is f16 or bf16. */
bool number_may_vary(Op op, const cb_operand *number, bool beside_half);

/* The same of pow's base (0) or exponent (1) beside a tensor of any dtype: unlike eager, a graph
 * that has it as an argument is worth being slower. */
bool pow_may_vary(int operand, const cb_operand *number);
/* A whole exponent that f32 does not hold: rounded to f32, odd ones would be even. */
bool pow_needs_f64(double exponent);

/* Attributes that are numbers and may vary, by position; NULL: there are no more. attr_varying: one
 * as words of attributes have it. attr_may_vary: the op builds the same nodes with an argument in
 * its place; beside: what its tensors promote to, CB_SAME: there is none. */
const Param *op_varying(Op op, int position);
cb_operand attr_varying(const Param *param, const int64_t *word);
bool attr_may_vary(Op op, const Param *param, const Attrs *attrs, cb_dtype beside);
/* In graphs: such an attribute that is an input of the graph, as a NaN that has its number. -1: it
 * is a number. attrs_settle: no NaN of the user's looks like one. */
void attr_set_argument(Attrs *attrs, const Param *param, int input);
int attr_argument(double value);
void attrs_settle(Attrs *attrs, Op op);

/* A padding by name, cb_padding("same"): as much as keeps the sizes at stride 1. */
#define PADDING_SAME INT64_MIN
static inline bool dims_are_same(cb_dim_list dims) {
    return dims.count == 1 && dims.at[0] == PADDING_SAME;
}

/* torch.nn.functional.pad: each mode is an op of its own. OP_none, NULL: there is none such. */
Op pad_op(const char *mode);
const char *pad_mode(Op op);
/* Flags that PyTorch has as texts, mode="bilinear": the attribute that a text of the op sets, or
 * NO_FLAG; false: there is no such text. The first text that sets a flag; NULL when PyTorch has it
 * as a flag, too. */
enum { NO_FLAG = -1 };
bool flag_of_text(Op op, const char *text, int *word);
const char *text_of_flag(Op op, int word);
/* A reduction of losses: "mean". Of another number: NULL. */
bool reduction_of_text(const char *text, int64_t *reduction);
const char *text_of_reduction(int64_t reduction);

/* What is known of a value before it is computed. */
typedef struct Meta {
    cb_dtype dtype;
    uint8_t rank;
    bool number;    /* a plain number in the call: weak in promotion */
    uint8_t device; /* of a tensor: DeviceId, of a layer above this one */
    int64_t size[CB_MAX_RANK];
} Meta;

int64_t meta_numel(const Meta *meta);
void meta_format(const Meta *meta, char *out, size_t bytes); /* "f32[2, 3]" */

/* The rules of op/promote.c and op/shape.c together. attrs are made canonical (negative dims
 * counted from the end, CB_ALL spelled out, slices clamped). On failure records the error and
 * returns false. Not for composites: their meta is that of their expansion. */
typedef struct Inferred {
    Meta result;
    cb_dtype input_dtype[OP_MAX_INPUTS]; /* what each input is converted to first */
} Inferred;
bool op_infer(Op op, const Meta *input, int input_count, Attrs *attrs, Inferred *out);
/* Whether a composite takes these inputs, by its dtype rule; false with an error. *promoted: their
 * common dtype. */
bool op_takes(Op op, const Meta *input, int input_count, cb_dtype *promoted);
cb_dtype metas_promoted(const Meta *input, int count); /* CB_SAME: there are none */

/* Strides of a contiguous value of these sizes; a size of 0 counts as 1, as in PyTorch. */
void contiguous_strides(int rank, const int64_t *size, int64_t *stride);
/* Do elements follow each other in memory? Where a dim has one element, or the value has none, its
 * strides do not matter. */
bool strides_contiguous(int rank, const int64_t *size, const int64_t *stride);
int64_t sizes_numel(int rank, const int64_t *size);
/* Views (op/view.c): the view of a strided tensor. Returns false, without an error, when the
 * result cannot be expressed by strides (reshape of a transposed tensor, flip): a copy is
 * needed. */
bool view_strides(Op op, const Attrs *attrs, const Meta *input, const Meta *result,
                  const int64_t *stride, int64_t offset, int64_t *out_stride, int64_t *out_offset);
/* Views that begin somewhere along a dim (VARIES_START): slice, select and narrow. */
bool view_has_start(Op op);
/* Attributes of such a call of x in one way for all that show as many elements: canonical, and the
 * end of a slice counted from its start. False with an error. view_from_normal: as op_infer has
 * them. */
bool view_normalize(Op op, const Meta *x, Attrs *attrs);
void view_from_normal(Op op, Attrs *attrs);
/* Of such ones: along which dim, and how many elements it is there from the first to the last. */
typedef struct ViewReach {
    int64_t dim, count;
} ViewReach;
ViewReach view_reach(Op op, const int64_t *word);
/* Do several elements of a view stand at one place? */
bool view_repeats(const Meta *meta, const int64_t *stride);
/* The error that there is no view `to` of a value that lies as it does: false. */
bool view_refuse(const Meta *from, const Meta *to);
/* Does the op give back its operand's elements as they are? Which lies so. */
bool op_is_identity(Op op, const Attrs *attrs, cb_dtype dtype, int rank, const int64_t *size,
                    const int64_t *stride);
/* A shorthand view (transpose, squeeze...) as one of reshape, permute, expand, slice: not for one
 * of those that lowering knows, nor for select, which is a slice and a reshape (graph/build.c). */
Op view_canonical(Op op, const Attrs *attrs, const Meta *input, const Meta *result, Attrs *out);

/* Scalar functions, natively compiled from the value column (op/scalar.c), for folding. */
/* The result of op on elements of dtype; the value wraps and rounds to the result's dtype. */
Scalar scalar_eval(Op op, cb_dtype dtype, const Scalar *input);
Scalar scalar_convert(Scalar value, cb_dtype from, cb_dtype to);
Scalar scalar_load(const void *element, cb_dtype dtype);
void scalar_store(void *element, cb_dtype dtype, Scalar value);
/* Reductions: their identity; total[i] = total[i] combined with part[i], in f64 or i64. */
Scalar scalar_identity(Op reduce, cb_dtype dtype);
void scalar_fold(Op reduce, cb_dtype dtype, Scalar *restrict total, const Scalar *restrict part,
                 int64_t count);
/* By their dtype rule reductions add up (or multiply: floats round), choose an operand, or are
 * truths. */
static inline bool reduce_adds(Op reduce) { return op_info(reduce)->dtype == DTYPE_SUM; }
static inline bool reduce_chooses(Op reduce) { return op_info(reduce)->dtype == DTYPE_SAME; }

/* dtypes (op/dtype.c) */
typedef enum DtypeKind { KIND_BOOL, KIND_NARROW, KIND_INTEGER, KIND_HALF, KIND_FLOAT } DtypeKind;

/* A row of dtype.def, which says what the columns are. */
typedef struct DtypeInfo {
    DtypeKind kind;
    uint8_t size; /* bytes of an element */
    int16_t digits, exponent;
    bool is_signed;
    const char *name, *symbol;             /* "f32", "CB_F32" */
    const char *storage;                   /* "float" */
    const char *npy, *safetensors, *torch; /* "<f4" or NULL, "F32", "torch.float32" */
} DtypeInfo;

const DtypeInfo *dtype_info(cb_dtype dtype);
bool dtype_holds(cb_dtype to, cb_dtype from); /* every value of from is a value of to */
bool dtype_is_half(cb_dtype dtype);           /* computed in f32 and rounded */
bool dtype_is_float(cb_dtype dtype);
bool dtype_is_int(cb_dtype dtype); /* not bool */
int dtype_kind(cb_dtype dtype);    /* 0 bool, 1 integer, 2 floating point: PyTorch's categories */
cb_dtype compute_dtype(cb_dtype dtype); /* f16, bf16 -> f32; the others themselves */
/* f16_to_f32(bits) and f16_from_f32(value), to nearest even; so for each dtype of that kind. */
#define HALF_ROW(id, name, storage, ...)                                                           \
    float name##_to_f32(storage bits);                                                             \
    storage name##_from_f32(float value);
#include "op/dtype_rows.h"

#endif
