/* Carbide: torch.compile as a C library.
 *
 *     static cb_tensor *f(cb_tensor *x) { return cb_relu(cb_add(cb_mul(x, 2.0), 1.0)); }
 *
 *     cb_function *fast = cb_compile(f);      the one line
 *     cb_tensor *y = cb_call(fast, x);        one fused kernel
 *
 * Three conventions hold everywhere.
 *   Scopes own tensors: a tensor belongs to the innermost open scope of its thread, closing the
 *     scope frees it, cb_keep() moves it out of every scope until cb_free(). A loop wants a scope
 *     inside, or all of its temporaries stay.
 *   Errors are sticky: a failing call returns NULL (or a negative status), NULL passes through
 *     every op untouched, and cb_error() returns the first message: source line, path of the layer,
 *     op, shapes, dtypes.
 *   Sizes and strides are in elements, byte counts in bytes, times in milliseconds.
 */
#ifndef CARBIDE_H
#define CARBIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CB_API __attribute__((visibility("default")))
/* What the headers themselves give for no pointer, and for a dtype: without a warning in C and in
 * C++. */
#ifdef __cplusplus
#define CB_NULL nullptr
#define CB_AS_DTYPE(i) static_cast<cb_dtype>(i)
#else
#define CB_NULL NULL
#define CB_AS_DTYPE(i) ((cb_dtype)(i))
#endif
#define CB_VERSION "0.1.0"
#define CB_MAX_RANK 8  /* dimensions of a tensor */
#define CB_MAX_ARGS 1024 /* tensors that one compiled call takes, and returns, at the most */

/* A strided view of a storage, which it may share with others. The pointer is a handle: it may be
 * compared, copied and handed to other threads, and is no address. Every function that takes one
 * knows whether its tensor still lives: a handle whose tensor was freed, or whose scope was closed,
 * is an error, for good, that names where it was made and freed if that was among the last 4,096
 * deaths of the thread; no handle is given out twice before cb_cleanup. */
typedef struct cb_tensor cb_tensor;
typedef struct cb_function cb_function; /* a compiled function */
typedef struct cb_module cb_module;     /* a network layer: parameters, children, forward */
typedef struct cb_graph cb_graph;       /* an FX graph: nodes that print, change and run */
typedef struct cb_node cb_node;         /* one node of an FX graph */

/* A function of yours over tensors, in its general form: reads inputs[0 .. input_count-1], fills
 * outputs, CB_MAX_ARGS at the most, and returns how many, or < 0 with an error. An output of it may
 * be NULL. */
typedef int cb_function_n(cb_tensor *const *inputs, int input_count, cb_tensor **outputs,
                          void *user);

/* ---- dtypes ------------------------------------------------------------------------------- */

typedef enum __attribute__((packed)) cb_dtype {
    CB_BOOL, CB_U8, CB_I8, CB_I16, CB_I32, CB_I64, CB_F16, CB_BF16, CB_F32, CB_F64,
    CB_DTYPE_COUNT,
    CB_SAME = -1 /* as an argument: the dtype that the op would choose by itself */
} cb_dtype;

/* Where a dtype belongs an integer does not compile: cb_zeros(2, 3) is a mistake for
 * cb_zeros(cb_dims(2, 3)). C gives its enum constants the type int; these have their own, which a
 * choice loses again: cb_dtype d = half ? CB_F16 : CB_F32; and d as the argument. */
#ifndef __cplusplus
#define CB_BOOL ((cb_dtype)CB_BOOL)
#define CB_U8 ((cb_dtype)CB_U8)
#define CB_I8 ((cb_dtype)CB_I8)
#define CB_I16 ((cb_dtype)CB_I16)
#define CB_I32 ((cb_dtype)CB_I32)
#define CB_I64 ((cb_dtype)CB_I64)
#define CB_F16 ((cb_dtype)CB_F16)
#define CB_BF16 ((cb_dtype)CB_BF16)
#define CB_F32 ((cb_dtype)CB_F32)
#define CB_F64 ((cb_dtype)CB_F64)
#define CB_SAME ((cb_dtype)CB_SAME)
#endif

CB_API const char *cb_dtype_name(cb_dtype dtype); /* "f32"; the FX abbreviations */
CB_API size_t cb_dtype_size(cb_dtype dtype);      /* bytes of one element */
CB_API cb_dtype cb_promote(cb_dtype a, cb_dtype b); /* PyTorch's promotion of two tensors */

/* ---- errors ------------------------------------------------------------------------------- */

typedef enum cb_status {
    CB_OK = 0, CB_ERR_ARGUMENT = -1, CB_ERR_SHAPE = -2, CB_ERR_DTYPE = -3, CB_ERR_INDEX = -4,
    CB_ERR_MEMORY = -5, CB_ERR_IO = -6, CB_ERR_OPTION = -7, CB_ERR_GRAPH = -8, CB_ERR_COMPILE = -9
} cb_status;

CB_API const char *cb_error(void);        /* the thread's first error since cb_clear_error, or
                                           * NULL */
CB_API cb_status cb_error_status(void);   /* its kind, CB_OK when there is none */
CB_API void cb_clear_error(void);
/* Records an error of your own, as a module does before it returns NULL; `message` is copied. Gives
 * status back, CB_ERR_ARGUMENT for one that is no error. */
CB_API cb_status cb_fail(cb_status status, const char *message);

/* Called by the macros of ops and calls (carbide_calls.h): remembers the source line for errors,
 * graph breaks and explain. file is kept as a pointer, and not only until the next call: graphs and
 * compiled functions hold on to it. Give it a string that lives and stays as long as they, as
 * __FILE__ does. */
CB_API void cb_site(const char *file, int line);

/* How those macros do it. The arguments of a call may be functions of yours that call ops, too, so
 * the line is set behind them, right before the function runs: CB_AT(cb_matmul, a, b) calls an
 * inline function that takes the line and the same arguments. CB_AT_GIVES defines that one,
 * or CB_AT_VOID where nothing is given back. CB_HERE sets the line before: for functions that take
 * no tensor and no other handle, as each inline function costs those who include this some time. */
#ifdef CARBIDE_BUILD /* the library's own calls keep the line of the user's call */
#define CB_HERE ((void)0)
#define CB_AT_NAME(name) name
#define CB_AT(name, ...) (name)(__VA_ARGS__)
#define CB_AT_CHOSEN(function, ...) (function)(__VA_ARGS__)
#define CB_AT_GIVES(result, name, parameters, arguments)
#define CB_AT_VOID(name, parameters, arguments)
#else
#define CB_HERE cb_site(__FILE__, __LINE__)
#define CB_SITE const char *cb_file, int cb_line
#define CB_SITE_AND(...) (CB_SITE, __VA_ARGS__)
#define CB_AT_NAME(name) name##_at_line
#define CB_AT(name, ...) name##_at_line(__FILE__, __LINE__, __VA_ARGS__)
#define CB_AT_CHOSEN(function, ...) (function)(__FILE__, __LINE__, __VA_ARGS__)
#define CB_AT_GIVES(result, name, parameters, arguments)                                           \
    static inline result name##_at_line CB_SITE_AND parameters {                                   \
        cb_site(cb_file, cb_line);                                                                 \
        return (name)arguments;                                                                    \
    }
#define CB_AT_VOID(name, parameters, arguments)                                                    \
    static inline void name##_at_line CB_SITE_AND parameters {                                     \
        cb_site(cb_file, cb_line);                                                                 \
        (name)arguments;                                                                           \
    }
#endif

/* ---- memory and scopes -------------------------------------------------------------------- */

/* The allocator behind everything that Carbide allocates; set it before any other call.
 * resize(user, NULL, n) allocates, resize(user, p, 0) frees and returns NULL. */
typedef struct cb_allocator {
    void *(*resize)(void *user, void *pointer, size_t bytes);
    void *user;
} cb_allocator;
CB_API void cb_set_allocator(cb_allocator allocator);

/* Scopes are the thread's own. What is made while none is open lives until the thread ends. */
CB_API void cb_scope_open(void);
CB_API void cb_scope_close(void); /* an error when none is open */
CB_API cb_tensor *cb_keep(cb_tensor *x);      /* out of every scope; the same pointer comes back */
CB_API cb_tensor *cb_scope_add(cb_tensor *x); /* the opposite: into the innermost open scope */
/* Now, whether a scope has it or it was kept; NULL is nothing. Parameters of modules are
 * refused. */
CB_API void cb_free(cb_tensor *x);
CB_API void cb_cleanup(void); /* frees caches and everything else of the process; for leak
                               * checkers. Inside of a compiled function or a forward: an
                               * error, and nothing is freed */

typedef struct cb_memory_stats {
    int64_t live_bytes;    /* tensors hold these */
    int64_t cached_bytes;  /* freed storage kept for reuse */
    int64_t peak_bytes;    /* the most that live_bytes has been */
    int64_t live_tensors;
} cb_memory_stats;
CB_API cb_memory_stats cb_memory(void);

/* ---- tensors ------------------------------------------------------------------------------ */

/* A list of sizes or dimensions, passed by value. cb_dims(2, 3) makes one; a plain integer is taken
 * where one is expected; CB_ALL means every dimension; cb_dims() of nothing is CB_NO_DIMS. */
typedef struct cb_dim_list {
    int count; /* -1: every dimension */
    int64_t at[CB_MAX_RANK];
} cb_dim_list;

/* A list of numbers, one for each dimension: cb_floats(2, 1.5). A plain number is taken where one
 * is expected, and stands for as many as the op has dimensions; 0 is none, as CB_NO_FLOATS is. */
typedef struct cb_float_list {
    int count;
    double at[CB_MAX_RANK];
} cb_float_list;

/* Copies data: the elements in row-major order, in dtype (f16 and bf16 as their 16 bits, bool as
 * bytes of 0 and 1). CB_ERR_DTYPE: data points to float, double, int, long or long long, and dtype
 * is another one; a void pointer is believed. A literal of several elements stands in parentheses,
 * ((float[]){1, 2}), or its sizes are cb_dims(2). cb_empty's elements are whatever the memory held;
 * without a dtype, f32. */
CB_API cb_tensor *cb_from_data(const void *data, cb_dtype dtype, cb_dim_list sizes);
CB_API cb_tensor *cb_empty(cb_dim_list sizes, cb_dtype dtype);
/* With an error when x is NULL or has no such dim: -1, CB_SAME, false. */
CB_API int cb_rank(const cb_tensor *x);
CB_API int64_t cb_size(const cb_tensor *x, int dim);   /* dim may be negative: -1 is the last */
/* In elements. A view that a compiled function makes of one in row-major order has the strides of
 * such, also along dims of one element, where x may have any. */
CB_API int64_t cb_stride(const cb_tensor *x, int dim);
CB_API int64_t cb_numel(const cb_tensor *x);
CB_API cb_dtype cb_dtype_of(const cb_tensor *x);
CB_API bool cb_is_contiguous(const cb_tensor *x); /* in row-major order, without gaps */
CB_API bool cb_shares_storage(const cb_tensor *x, const cb_tensor *y);

/* The value of a one-element tensor; NAN, or 0, with an error when it has more or none. Inside a
 * compiled function this is a value request: what was recorded so far runs, and the rest of the
 * call is recorded as a graph of its own (with fullgraph it is an error). */
CB_API double cb_item(cb_tensor *x);
CB_API int64_t cb_item_int(cb_tensor *x); /* floats are truncated; NaN or 2^63 is an error */
/* Pointer to the first element, strides as cb_stride says. Valid while x lives. Inside a compiled
 * function this is a value request whatever x is, and for the rest of the call ops on x, and on
 * what shares memory with it, run at once, one by one: so what is read and written through the
 * pointer comes in the order of the source. An error, and NULL, for what does not lie on the host
 * (cb_device). */
CB_API void *cb_data(cb_tensor *x);
/* The same to read alone, and now: a value request after which ops on x are compiled as before, so
 * what they write may show through the pointer before the function returns, or not. */
CB_API const void *cb_data_const(cb_tensor *x);
/* Where x lies: "cpu", or a device whose memory the host cannot touch, and whose kernels run later:
 * ops return when they are launched. Who asks for a value waits, and gets the error of what failed
 * meanwhile (an index out of range). An op runs where its operands lie, all on one device but for
 * tensors of the host without dimensions, which any device takes as numbers. What comes from no
 * other tensor (cb_from_data, cb_zeros, files, parameters) lies where the option device says when
 * it is made. "guarded" is a device for tests inside of the process: to touch its memory ends the
 * program. */
CB_API const char *cb_device(const cb_tensor *x);
/* A copy on the device, or, when x is there already, a view of it. NULL with an error. */
CB_API cb_tensor *cb_to_device(cb_tensor *x, const char *device);
/* Waits until all devices have done what was launched; the error of what failed since the last
 * time. */
CB_API cb_status cb_synchronize(void);

/* Tells that x was, or is about to be, written to through such a pointer. A module that is compiled
 * in eval mode computes what follows from its parameters alone once; without this call it would
 * not see that they changed. Ops and cb_assign tell by themselves.
 *
 * Inside a compiled function ops run when it returns. A pointer that was taken before the call sees
 * that: what it reads are the elements before the ops, and ops that come before a write through it
 * would read what was written. cb_changed(x) before the write runs those that read x first, and
 * from then on ops on x at once; to read, take the pointer anew. */
CB_API void cb_changed(cb_tensor *x);
/* As torch._dynamo.mark_dynamic: a compiled function that gets x as an input will get others with
 * another size along dim, which counts from the end where it is negative. Its first call with x
 * then compiles code for all sizes from 2 on, as option dynamic=1 does for all dims of all inputs;
 * else the second size shows that they change. A hint: no result depends on it. CB_ERR_SHAPE: x has
 * no such dim. */
CB_API cb_status cb_mark_dynamic(cb_tensor *x, int dim);
/* Copies the elements in row-major order, converted to dtype, into out[0 .. numel-1]. CB_ERR_DTYPE
 * as in cb_from_data. */
CB_API cb_status cb_read(cb_tensor *x, void *out, cb_dtype dtype);

CB_API void cb_print(cb_tensor *x);                 /* to stdout, as PyTorch prints */
CB_API size_t cb_format(cb_tensor *x, char *out, size_t bytes); /* as snprintf */
CB_API void cb_manual_seed(uint64_t seed); /* of the process's one generator, which begins anew */

/* numpy's files: every dtype but bf16, which the format lacks. */
CB_API cb_tensor *cb_npy_load(const char *path);
CB_API cb_status cb_npy_save(const char *path, cb_tensor *x);

/* ---- operands: a tensor or a number where PyTorch takes either ------------------------------ */

/* A number stays what it is in the call, exactly: cb_full(cb_dims(2), 3) is i64, with 3.0 f32, and
 * cb_clamp(x, 0, 5) of an i64 tensor stays i64; an unsigned one that no int64_t holds is a float.
 * Arguments that are numbers alone (the value of cb_full, the limits of cb_clamp) are operands
 * without a tensor; NULL is none of those that may be left out: cb_clamp(x, NULL, 5), in C++
 * nullptr, whose NULL is an integer. cb_floor_divide, cb_remainder and cb_fmod of integers by the
 * number 0 are refused; by a tensor, what 0 divides is 0, where PyTorch raises: looking for it
 * would cost a pass over memory. cb_div, whose result is floating, gives inf or NaN. C's true and
 * false are integers: cb_operand_bool(true). */

enum { CB_OPERAND_TENSOR, CB_OPERAND_FLOAT, CB_OPERAND_INT, CB_OPERAND_BOOL };

typedef struct cb_operand { /* two words: calls pass it in registers */
    int kind;
    union {
        cb_tensor *tensor; /* CB_OPERAND_TENSOR */
        double f;          /* CB_OPERAND_FLOAT */
        int64_t i;         /* CB_OPERAND_INT, CB_OPERAND_BOOL */
    };
} cb_operand;

static inline cb_operand cb_operand_tensor(cb_tensor *x) {
    cb_operand o = {CB_OPERAND_TENSOR, {x}};
    return o;
}
static inline cb_operand cb_operand_int(int64_t i) {
    cb_operand o = {CB_OPERAND_INT, {CB_NULL}};
    o.i = i;
    return o;
}
static inline cb_operand cb_operand_float(double f) {
    cb_operand o = {CB_OPERAND_FLOAT, {CB_NULL}};
    o.f = f;
    return o;
}
static inline cb_operand cb_operand_bool(bool b) {
    cb_operand o = {CB_OPERAND_BOOL, {CB_NULL}};
    o.i = b;
    return o;
}
static inline cb_operand cb_operand_same(cb_operand o) { return o; }
static inline cb_dim_list cb_dims_one(int64_t d) {
    cb_dim_list l = {1, {d}};
    return l;
}
static inline cb_dim_list cb_dims_same(cb_dim_list l) { return l; }
static inline cb_float_list cb_floats_one(double d) {
    cb_float_list l = {!(d >= 0 && d <= 0), {d}}; /* d != 0, without -Wfloat-equal */
    return l;
}
static inline cb_float_list cb_floats_same(cb_float_list l) { return l; }
/* Where an integer belongs a float does not compile, which C would truncate: cb_slice(x, 0, 1.5).
 * cb_arange(0, 1, 0.25) neither: it counts in integers, cb_linspace and cb_mul give the rest. */
static inline int64_t cb_integer_same(int64_t i) { return i; }
/* Nor does a dtype where a number or a bool belongs: cb_sum(x, 1, CB_F64), cb_full(3, CB_F32); or
 * a text, a tensor or a float where a bool does: cb_gelu(x, "tanh"). In C an int8_t is of its type,
 * and is to be converted. */
static inline bool cb_flag_same(bool b) { return b; }
static inline cb_dtype cb_dtype_same(cb_dtype dtype) { return dtype; }
/* The dtype of elements behind a pointer; where that points to another one, which the call refuses,
 * both: 16 times the other one, less 3, and it. element is 2 + the other one, from CB_I32 on; or 1
 * of void, characters, unsigned and 16 bits, which are taken for anything. */
static inline cb_dtype cb_data_dtype(cb_dtype dtype, int element) {
    int named = dtype, pointed = element - 2;
    bool fits = element == 1 || pointed == named || named < 0 || named >= CB_DTYPE_COUNT;
    return fits ? dtype : CB_AS_DTYPE(named + 16 * (pointed - 3));
}
static inline double cb_float_same(double d) { return d; }
#ifndef __cplusplus
/* What else is given is an argument of these, which are nowhere defined and take nothing, so that
 * the error has a name. */
#define CB_BELONGS(result, what)                                                                   \
    typedef struct cb_only_##what {                                                                \
        char unused;                                                                               \
    } cb_only_##what;                                                                              \
    result cb_here_belongs_##what(cb_only_##what);
CB_BELONGS(cb_dtype, a_dtype)
CB_BELONGS(int64_t, an_integer)
CB_BELONGS(int64_t, a_reduction)
CB_BELONGS(bool, a_bool)
CB_BELONGS(double, a_number)
CB_BELONGS(cb_operand, a_tensor_or_number)
CB_BELONGS(cb_dim_list, a_number_or_cb_dims)
CB_BELONGS(cb_dim_list, a_number_or_cb_dims_or_a_name)
CB_BELONGS(cb_float_list, a_number_or_cb_floats)
#undef CB_BELONGS
#endif
/* How losses reduce what they compute for every element: PyTorch's reduction="none", "mean" and
 * "sum", and "batchmean", which kl_div has alone: the sum, divided by the first size. These have a
 * type of their own, as dtypes do, so that one in the place of another number does not compile:
 * cb_cross_entropy(x, y, NULL, CB_REDUCE_SUM), where the fourth argument is the class to ignore.
 * Where a reduction belongs, any integer is taken, as a choice of two of them is. */
typedef enum __attribute__((packed)) cb_reduction {
    CB_REDUCE_NONE, CB_REDUCE_MEAN, CB_REDUCE_SUM, CB_REDUCE_BATCHMEAN,
    CB_REDUCE_REFUSED = -1 /* by every loss; without it the type would be that of a small number */
} cb_reduction;
#ifndef __cplusplus
#define CB_REDUCE_NONE ((cb_reduction)CB_REDUCE_NONE)
#define CB_REDUCE_MEAN ((cb_reduction)CB_REDUCE_MEAN)
#define CB_REDUCE_SUM ((cb_reduction)CB_REDUCE_SUM)
#define CB_REDUCE_BATCHMEAN ((cb_reduction)CB_REDUCE_BATCHMEAN)
#endif

/* The padding of a convolution by name: "same" or "valid". A name is taken where a convolution's
 * padding is. */
CB_API cb_dim_list cb_padding(const char *name);

#ifdef __cplusplus
}
static inline cb_operand cb_operand_of(cb_tensor *x) { return cb_operand_tensor(x); }
static inline cb_operand cb_operand_of(cb_operand o) { return o; }
static inline cb_operand cb_operand_of(double f) { return cb_operand_float(f); }
static inline cb_operand cb_operand_of(float f) { return cb_operand_float(f); }
static inline cb_operand cb_operand_of(bool b) { return cb_operand_bool(b); }
cb_operand cb_operand_of(cb_dtype) = delete;
cb_operand cb_operand_of(cb_reduction) = delete;
template <typename T> cb_operand cb_operand_of(T *) = delete; /* which would be a bool */
static inline bool cb_flag_of(bool b) { return b; }
bool cb_flag_of(cb_dtype) = delete;
bool cb_flag_of(cb_reduction) = delete;
static inline double cb_float_of(double d) { return d; }
double cb_float_of(cb_dtype) = delete;
double cb_float_of(cb_reduction) = delete;
cb_float_list cb_floats_of(cb_dtype) = delete;
cb_float_list cb_floats_of(cb_reduction) = delete;
template <typename T> bool cb_flag_of(T *) = delete;
template <typename T> int64_t cb_integer_of(T *) = delete; /* here and below for short errors */
template <typename T> int64_t cb_size_of(T *) = delete;
template <typename T> int64_t cb_reduction_of(T *) = delete;
template <typename T> double cb_float_of(T *) = delete;
template <typename T> cb_dim_list cb_dims_of(T *) = delete;
template <typename T> cb_dim_list cb_padding_of(T *) = delete;
template <typename T> cb_float_list cb_floats_of(T *) = delete;
bool cb_flag_of(double) = delete;
bool cb_flag_of(float) = delete;
int64_t cb_integer_of(cb_dtype) = delete;
int64_t cb_integer_of(cb_reduction) = delete;
static inline int64_t cb_reduction_of(cb_reduction r) { return r; }
int64_t cb_reduction_of(cb_dtype) = delete;
int64_t cb_reduction_of(double) = delete;
int64_t cb_reduction_of(float) = delete;
static inline cb_dim_list cb_dims_of(cb_dim_list l) { return l; }
cb_dim_list cb_dims_of(cb_dtype) = delete;
cb_dim_list cb_dims_of(cb_reduction) = delete;
cb_dim_list cb_dims_of(bool) = delete;
static inline cb_dim_list cb_padding_of(cb_dim_list l) { return l; }
cb_dim_list cb_padding_of(cb_dtype) = delete;
cb_dim_list cb_padding_of(cb_reduction) = delete;
cb_dim_list cb_padding_of(bool) = delete;
int64_t cb_size_of(cb_dtype) = delete;
int64_t cb_size_of(cb_reduction) = delete;
int64_t cb_size_of(bool) = delete;
int64_t cb_size_of(double) = delete;
int64_t cb_size_of(float) = delete;
int64_t cb_integer_of(double) = delete;
int64_t cb_integer_of(float) = delete;
static inline cb_operand cb_operand_unsigned(unsigned long long i) {
    return i > INT64_MAX ? cb_operand_float(static_cast<double>(i))
                         : cb_operand_int(static_cast<int64_t>(i));
}
#define CB_OF_INTEGER(type, as_int64, operand)                                                     \
    static inline int64_t cb_integer_of(type i) { return as_int64; }                               \
    static inline int64_t cb_size_of(type i) { return as_int64; }                                  \
    static inline int64_t cb_reduction_of(type i) { return as_int64; }                             \
    static inline cb_operand cb_operand_of(type i) { return operand(i); }                          \
    static inline cb_dim_list cb_dims_of(type i) { return cb_dims_one(as_int64); }                 \
    static inline cb_dim_list cb_padding_of(type i) { return cb_dims_one(as_int64); }
CB_OF_INTEGER(int, i, cb_operand_int)
CB_OF_INTEGER(unsigned, i, cb_operand_int)
CB_OF_INTEGER(long, i, cb_operand_int)
CB_OF_INTEGER(unsigned long, static_cast<int64_t>(i), cb_operand_unsigned)
CB_OF_INTEGER(long long, i, cb_operand_int)
CB_OF_INTEGER(unsigned long long, static_cast<int64_t>(i), cb_operand_unsigned)
#undef CB_OF_INTEGER
static inline cb_dim_list cb_padding_of(const char *padding) { return cb_padding(padding); }
static inline cb_float_list cb_floats_of(double d) { return cb_floats_one(d); }
static inline cb_float_list cb_floats_of(cb_float_list l) { return l; }
template <typename... D> static inline cb_float_list cb_floats(D... d) {
    cb_float_list l = {static_cast<int>(sizeof...(D)), {static_cast<double>(d)...}};
    return l;
}
template <typename... D> static inline cb_dim_list cb_dims(D... d) {
    cb_dim_list l = {static_cast<int>(sizeof...(D)), {cb_size_of(d)...}};
    return l;
}
static inline cb_dim_list cb_all_dims() {
    cb_dim_list l = {-1, {0}};
    return l;
}
#define cb_only_dtype(d) (d)
/* Nobody defines these: sizeof tells which of them it would be. */
char (&cb_element_of(const volatile void *))[1];
char (&cb_element_of(const float *))[2 + CB_F32];
char (&cb_element_of(const double *))[2 + CB_F64];
char (&cb_element_of(const int *))[2 + CB_I32];
char (&cb_element_of(const long *))[2 + (sizeof(long) == 8 ? CB_I64 : CB_I32)];
char (&cb_element_of(const long long *))[2 + CB_I64];
#define CB_ELEMENT(data) static_cast<int>(sizeof(cb_element_of(data)))
#define CB_ELEMENT_INSIDE(x) 1 /* its type tells (cb_from_pointer) */
#define CB_ALL cb_all_dims()
#define CB_NO_DIMS (cb_dim_list())
#define CB_NO_FLOATS (cb_float_list())
extern "C" {
#else
static inline cb_operand cb_operand_unsigned(unsigned long long i) {
    return i > INT64_MAX ? cb_operand_float((double)i) : cb_operand_int((int64_t)i);
}
/* A size_t becomes an int64_t by a conversion that is written: without it -Wsign-conversion warns,
 * in the caller's line. */
static inline int64_t cb_integer_unsigned(unsigned long long i) { return (int64_t)i; }
static inline cb_dim_list cb_dims_unsigned(unsigned long long d) { return cb_dims_one((int64_t)d); }
/* x is written once: in a _Generic alone it stands twice, and nested calls double it at every
 * level. */
#define cb_operand_of(x) CB_OPERAND_OF(x, CB_PASTE(cb_given_, __COUNTER__))
#define CB_OPERAND_OF(x, given) CB_OPERAND_OF_(x, given)
#define CB_OPERAND_OF_(x, given)                                                                   \
    __extension__({                                                                                \
        __auto_type given = (x);                                                                   \
        CB_OPERAND_OF_TYPE(given);                                                                 \
    })
#define CB_OPERAND_OF_TYPE(x)                                                                      \
    _Generic((x),                                                                                  \
        cb_operand: cb_operand_same,                                                               \
        float: cb_operand_float,                                                                   \
        double: cb_operand_float,                                                                  \
        bool: cb_operand_bool,                                                                     \
        char: cb_operand_int,                                                                      \
        cb_dtype: cb_here_belongs_a_tensor_or_number,                                              \
        cb_reduction: cb_here_belongs_a_tensor_or_number,                                          \
        unsigned char: cb_operand_int,                                                             \
        short: cb_operand_int,                                                                     \
        unsigned short: cb_operand_int,                                                            \
        int: cb_operand_int,                                                                       \
        unsigned: cb_operand_int,                                                                  \
        long: cb_operand_int,                                                                      \
        unsigned long: cb_operand_unsigned,                                                        \
        long long: cb_operand_int,                                                                 \
        unsigned long long: cb_operand_unsigned,                                                   \
        default: cb_operand_tensor)(x)
#define CB_DIMS                                                                                    \
    cb_dim_list: cb_dims_same, unsigned char: cb_dims_one, short: cb_dims_one,                     \
    unsigned short: cb_dims_one, int: cb_dims_one, unsigned: cb_dims_one, long: cb_dims_one,       \
    unsigned long: cb_dims_unsigned, long long: cb_dims_one, unsigned long long: cb_dims_unsigned
#define cb_dims_of(d) _Generic((d), CB_DIMS, default: cb_here_belongs_a_number_or_cb_dims)(d)
/* Of a convolution: "same" or "valid" may stand there, too. */
#define cb_padding_of(d)                                                                           \
    (CB_HERE, _Generic((d),                                                                        \
         CB_DIMS,                                                                                  \
         char *: cb_padding,                                                                       \
         const char *: cb_padding,                                                                 \
         default: cb_here_belongs_a_number_or_cb_dims_or_a_name)(d))
/* One function of every integer type, and of bool; one of those that int64_t does not hold. */
#define CB_INTEGERS(f, of_unsigned)                                                                \
    bool: f, char: f, unsigned char: f, short: f, unsigned short: f, int: f, unsigned: f, long: f, \
    unsigned long: of_unsigned, long long: f, unsigned long long: of_unsigned
#define cb_integer_of(i)                                                                           \
    _Generic((i),                                                                                  \
        CB_INTEGERS(cb_integer_same, cb_integer_unsigned),                                         \
        default: cb_here_belongs_an_integer)(i)
#define cb_reduction_of(r)                                                                         \
    _Generic((r),                                                                                  \
        cb_reduction: cb_integer_same,                                                             \
        CB_INTEGERS(cb_integer_same, cb_integer_unsigned),                                         \
        default: cb_here_belongs_a_reduction)(r)
#define cb_flag_of(b)                                                                              \
    _Generic((b), CB_INTEGERS(cb_flag_same, cb_flag_same), default: cb_here_belongs_a_bool)(b)
/* Anything that C converts to a number, and neither a dtype nor a reduction. */
#define cb_float_of(d)                                                                             \
    _Generic((d),                                                                                  \
        cb_dtype: cb_here_belongs_a_number,                                                        \
        cb_reduction: cb_here_belongs_a_number,                                                    \
        default: cb_float_same)(d)
#define cb_floats_of(d)                                                                            \
    _Generic((d),                                                                                  \
        cb_float_list: cb_floats_same,                                                             \
        cb_dtype: cb_here_belongs_a_number_or_cb_floats,                                           \
        cb_reduction: cb_here_belongs_a_number_or_cb_floats,                                       \
        default: cb_floats_one)(d)
#define CB_ELEMENT_OF(type, element) type *: 2 + (element), const type *: 2 + (element)
#define CB_ELEMENT(data)                                                                           \
    _Generic((data),                                                                               \
        CB_ELEMENT_OF(float, CB_F32),                                                              \
        CB_ELEMENT_OF(double, CB_F64),                                                             \
        CB_ELEMENT_OF(int, CB_I32),                                                                \
        CB_ELEMENT_OF(long, sizeof(long) == 8 ? CB_I64 : CB_I32),                                  \
        CB_ELEMENT_OF(long long, CB_I64),                                                          \
        default: 1)
/* Of what stands in parentheses: the type of a literal or a cast, or an array or a pointer. */
#define CB_INSIDE_OF(type, element)                                                                \
    type(*)[]: 2 + (element), const type(*)[]: 2 + (element), type **: 2 + (element),              \
                                               const type **: 2 + (element)
#define CB_ELEMENT_INSIDE(x)                                                                       \
    _Generic((__typeof__(x) *)0,                                                                   \
        CB_INSIDE_OF(float, CB_F32),                                                               \
        CB_INSIDE_OF(double, CB_F64),                                                              \
        CB_INSIDE_OF(int, CB_I32),                                                                 \
        CB_INSIDE_OF(long, sizeof(long) == 8 ? CB_I64 : CB_I32),                                   \
        CB_INSIDE_OF(long long, CB_I64),                                                           \
        default: 1)
#define cb_only_dtype(d)                                                                           \
    _Generic((d), cb_dtype: cb_dtype_same, default: cb_here_belongs_a_dtype)(d)
/* Each is an integer, and neither a bool nor a dtype: 0 is added to it, or nothing compiles. The
 * conversion is written for size_t, as in cb_dims_unsigned. A list of nine sizes is an error. */
#define CB_SIZE(d)                                                                                 \
    ((int64_t)(d) +                                                                                \
     _Generic((d),                                                                                 \
          short: 0,                                                                                \
          unsigned char: 0,                                                                        \
          unsigned short: 0,                                                                       \
          int: 0,                                                                                  \
          unsigned: 0,                                                                             \
          long: 0,                                                                                 \
          unsigned long: 0,                                                                        \
          long long: 0,                                                                            \
          unsigned long long: 0))
#define CB_SIZES_1(d) CB_SIZE(d)
#define CB_SIZES_2(d, ...) CB_SIZE(d), CB_SIZES_1(__VA_ARGS__)
#define CB_SIZES_3(d, ...) CB_SIZE(d), CB_SIZES_2(__VA_ARGS__)
#define CB_SIZES_4(d, ...) CB_SIZE(d), CB_SIZES_3(__VA_ARGS__)
#define CB_SIZES_5(d, ...) CB_SIZE(d), CB_SIZES_4(__VA_ARGS__)
#define CB_SIZES_6(d, ...) CB_SIZE(d), CB_SIZES_5(__VA_ARGS__)
#define CB_SIZES_7(d, ...) CB_SIZE(d), CB_SIZES_6(__VA_ARGS__)
#define CB_SIZES_8(d, ...) CB_SIZE(d), CB_SIZES_7(__VA_ARGS__)
#define CB_SIZES_9(...) _Generic("nine sizes", int: 0)
#define CB_SIZES(...)                                                                              \
    CB_PICK_9(__VA_ARGS__, CB_SIZES_9, CB_SIZES_8, CB_SIZES_7, CB_SIZES_6, CB_SIZES_5, CB_SIZES_4, \
              CB_SIZES_3, CB_SIZES_2, CB_SIZES_1, )                                                \
    (__VA_ARGS__)
#define CB_COUNT(...) CB_PICK_9(__VA_ARGS__, 9, 8, 7, 6, 5, 4, 3, 2, 1, )
#define CB_DIMS_0(...) ((cb_dim_list){CB_COUNT(__VA_ARGS__), {CB_SIZES(__VA_ARGS__)}})
#define CB_DIMS_1(...) CB_NO_DIMS
#define cb_dims(...) CB_PASTE(CB_DIMS_, CB_IS_EMPTY(__VA_ARGS__))(__VA_ARGS__)
#define cb_floats(...)                                                                             \
    ((cb_float_list){(int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), {__VA_ARGS__}})
#define CB_NO_FLOATS ((cb_float_list){0, {0}})
#define CB_ALL ((cb_dim_list){-1, {0}})
#define CB_NO_DIMS ((cb_dim_list){0, {0}})
#endif

#define CB_TOO_FEW_ARGUMENTS(...) sizeof(struct cb_too_few_arguments) /* which nobody defines */

/* ---- ops ----------------------------------------------------------------------------------
 * One function per row of the op table, with PyTorch's names, argument order and defaults:
 * cb_add(a, b), cb_sum(x, dims, keepdim), cb_softmax(x, dim)... Trailing arguments that have a
 * default may be left out. `carbide ops` lists them. */
#include <carbide_ops.h>

/* Views of x cut along dim: pieces of `size`, the last one perhaps smaller, or at most `chunks`
 * equal ones. Returns how many; a negative status when they are more than capacity. */
CB_API int cb_split(cb_tensor *x, int64_t size, int dim, cb_tensor **out, int capacity);
CB_API int cb_chunk(cb_tensor *x, int64_t chunks, int dim, cb_tensor **out, int capacity);
/* In order along dim, equal elements as they stood, NaN as the greatest; the first k of it. indices
 * may be NULL; else *indices are where they stood, i64. */
CB_API cb_tensor *cb_sort(cb_tensor *x, int dim, bool descending, cb_tensor **indices);
CB_API cb_tensor *cb_topk(cb_tensor *x, int64_t k, int dim, bool largest, cb_tensor **indices);
/* Which elements there are is a value, so both ask for their number, as cb_item does: a compiled
 * function is cut there. cb_nonzero: where x is not 0, i64 [number, rank of x], in row-major
 * order. cb_masked_select: the elements of x where mask, of bools, is true, in one dim; both are
 * broadcast, and a gradient flows to x. */
CB_API cb_tensor *cb_nonzero(cb_tensor *x);
CB_API cb_tensor *cb_masked_select(cb_tensor *x, cb_tensor *mask);
/* Joins x[0 .. count-1] along dim, or along a new one; dtypes are promoted, other sizes equal. */
CB_API cb_tensor *cb_cat(cb_tensor *const *x, int count, int dim);
CB_API cb_tensor *cb_stack(cb_tensor *const *x, int count, int dim);

/* In-place ops: x takes the value (broadcast and converted to x's shape and dtype); x comes back.
 * cb_add_(x, y) and its like are cb_assign_result(x, cb_add(x, y)) in one pass over memory, without
 * a tensor for the result, which cb_assign_result itself copies eagerly. They are refused where the
 * result is of a higher kind than x, as a float is for integers. cb_fill_ refuses a number beyond
 * the range of x's dtype, and cuts its fraction off for integers. cb_batch_norm and
 * cb_instance_norm, where they train, move running_mean and running_var in place, too. */
CB_API cb_tensor *cb_assign(cb_tensor *x, cb_tensor *value);
CB_API cb_tensor *cb_assign_result(cb_tensor *x, cb_tensor *result);
CB_API cb_tensor *cb_fill_(cb_tensor *x, cb_operand value);
CB_API cb_tensor *cb_add_(cb_tensor *x, cb_operand y);
CB_API cb_tensor *cb_sub_(cb_tensor *x, cb_operand y);
CB_API cb_tensor *cb_mul_(cb_tensor *x, cb_operand y);
CB_API cb_tensor *cb_div_(cb_tensor *x, cb_operand y);
CB_API cb_tensor *cb_relu_(cb_tensor *x);
CB_AT_GIVES(cb_tensor *, cb_add_, (cb_tensor *x, cb_operand y), (x, y))
#define cb_add_(x, y) CB_AT(cb_add_, x, cb_operand_of(y))
CB_AT_GIVES(cb_tensor *, cb_sub_, (cb_tensor *x, cb_operand y), (x, y))
#define cb_sub_(x, y) CB_AT(cb_sub_, x, cb_operand_of(y))
CB_AT_GIVES(cb_tensor *, cb_mul_, (cb_tensor *x, cb_operand y), (x, y))
#define cb_mul_(x, y) CB_AT(cb_mul_, x, cb_operand_of(y))
CB_AT_GIVES(cb_tensor *, cb_div_, (cb_tensor *x, cb_operand y), (x, y))
#define cb_div_(x, y) CB_AT(cb_div_, x, cb_operand_of(y))
CB_AT_GIVES(cb_tensor *, cb_relu_, (cb_tensor *x), (x))
#define cb_relu_(x) CB_AT(cb_relu_, x)

/* ---- gradients ---- */
#include <carbide_grad.h>

/* ---- operations of your own ---- */
#include <carbide_custom.h>

/* ---- autocast -----------------------------------------------------------------------------
 * As torch.autocast("cpu", dtype): between open and close, in this thread, products, convolutions
 * and attention convert their floating point tensors (f64 excepted) to dtype, CB_BF16 or CB_F16;
 * most losses, prod, 3d pools and padding by an edge convert them to f32; others take them as they
 * are. The column autocast of the op table says which (docs/ops.md). Scopes nest; CB_SAME switches
 * autocast off inside. A parameter of a module is converted once until the outermost scope closes
 * or cb_changed or an op tells that it was written to. A compiled function guards on the dtype in
 * force. */
CB_API void cb_autocast_open(cb_dtype dtype);
CB_API void cb_autocast_close(void);
CB_API cb_dtype cb_autocast_dtype(void); /* in force here; CB_SAME: none */

/* As torch.compiler.disable: between open and close, in this thread, ops run at once, one by one,
 * and compiled functions that are called run eagerly. Inside a compiled function what comes before
 * is compiled, and what comes behind, too; under fullgraph that is an error. Scopes nest, and end
 * with the function that opened them at the latest. Symbolic traces take no notice. */
CB_API void cb_disable_open(void);
CB_API void cb_disable_close(void); /* an error when none is open */

/* As torch.compiler.reset: every compiled function forgets, in its next call, what it has compiled,
 * and how often (cb_stats); kernels stay in the cache on disk. No other thread may be in a call of
 * one meanwhile; inside of one it is an error. */
CB_API cb_status cb_reset(void);

/* ---- compiling ---------------------------------------------------------------------------- */

/* Options as text, "name=value" separated by commas; NULL or "" for the defaults, which stand
 * first. 1 may be written as on or true, 0 as off or false.
 *
 *   mode       default | reduce-overhead | max-autotune | max-autotune-no-cudagraphs
 *              the last two measure who computes each product and convolution fastest, and
 *              remember it on disk; reduce-overhead is default
 *   fullgraph  0 | 1
 *              1: one graph, or an error that names the line which broke it. The function itself
 *              runs only when guards miss: on inputs, on a module's mode and tensors; tensors that
 *              the function finds elsewhere are held as they were
 *   dynamic    auto | 0 | 1
 *              sizes and numbers of the first call are constants of its graph and kernels; those
 *              that are others in the next one become arguments of its kernels, so that further
 *              ones compile nothing. 1: all numbers but where views begin, and all sizes of inputs,
 *              in the first call (cb_mark_dynamic); 0: none. Under fullgraph numbers stay constants
 *   device     auto | cpu | guarded
 *              where the inputs must lie (cb_device); auto: on any device, and for each one it is
 *              compiled anew
 *   backend    c | vm | eager
 *              c: the system's C compiler makes the kernels; vm: an interpreter of vectors, which
 *              also stands in where there is no compiler; eager: the graph runs op by op; any other
 *              name: one of cb_register_backend
 *   autocast   auto | bf16 | f16 | 0
 *              auto: as in force where the function is called; bf16, f16: it runs inside
 *              cb_autocast_open; 0: without autocast
 *   fuse       1 | 0
 *              0: one kernel per op, for measurements
 *   async      0 | 1
 *              1: the C compiler works in the background: calls run on the vector VM, and in C
 *              code once it is there (cb_function_wait)
 *   freeze     auto | 1 | 0
 *              auto: parameters and buffers of a module in eval mode count as constants, until
 *              written to, and small tensors of cb_from_data within; 1: all found outside, too
 *   backward   compiled | orders | tape
 *              compiled: cb_backward of a result, outside, runs compiled, too; orders: and each
 *              call keeps what gradients of its gradients take, from the first on, as all do once
 *              somebody has asked for some; tape: a function that gives one with a history runs
 *              op by op
 *
 * An unknown name or value is refused by name: NULL with an error. Compiling happens in the first
 * call with inputs of their kind (dtypes, sizes, strides), which runs the function to see its ops;
 * later calls run it too, but its ops only answer what was recorded. What is compiled, and its
 * user pointer, must outlive the compiled function; threads may call one at the same time, and none
 * may while cb_function_free takes it away.
 *
 * The function may throw a C++ exception or leave by longjmp, as may the forward of a module, a
 * function that is traced, and a visitor. What it did before stays done, scopes and autocast are as
 * they were before the call, and ops are recorded no more. An exception does that on its way; a
 * jump is noticed by the thread's next call, which records an error. */
typedef cb_tensor *cb_function_1(cb_tensor *);
typedef cb_tensor *cb_function_2(cb_tensor *, cb_tensor *);
typedef cb_tensor *cb_function_3(cb_tensor *, cb_tensor *, cb_tensor *);
typedef cb_tensor *cb_function_4(cb_tensor *, cb_tensor *, cb_tensor *, cb_tensor *);
/* Or a cb_function_n. Where a function gives one tensor, NULL is a failure, with an error of its
 * own if none is recorded. */

CB_API cb_function *cb_compile_1(cb_function_1 *function, const char *options);
CB_API cb_function *cb_compile_2(cb_function_2 *function, const char *options);
CB_API cb_function *cb_compile_3(cb_function_3 *function, const char *options);
CB_API cb_function *cb_compile_4(cb_function_4 *function, const char *options);
CB_API cb_function *cb_compile_n(cb_function_n *function, void *user, const char *options);
CB_API cb_function *cb_compile_module(cb_module *module, const char *options);
CB_API cb_function *cb_compile_graph(cb_graph *graph, const char *options);
/* Called by the macros that compile, behind it: text is that of their arguments. Where the first is
 * a name, reports and errors call the function so. Gives the function back; NULL is allowed. */
CB_API cb_function *cb_compiled_as(cb_function *function, const char *text);
/* Within its own call it is an error, and nothing is freed.
 * What was freed last, of functions, modules and graphs together 64, is known: to use it, or to
 * free it again, is an error. */
CB_API void cb_function_free(cb_function *function);
/* Waits until nothing is compiled for the function in the background (option async). Neither
 * cb_function_free, which has the compiler end, nor the end of the program waits for that. */
CB_API cb_status cb_function_wait(cb_function *function);

#ifdef __cplusplus
}
static inline cb_function *cb_compile(cb_function_1 *f, const char *o = CB_NULL) {
    return cb_compile_1(f, o);
}
static inline cb_function *cb_compile(cb_function_2 *f, const char *o = CB_NULL) {
    return cb_compile_2(f, o);
}
static inline cb_function *cb_compile(cb_function_3 *f, const char *o = CB_NULL) {
    return cb_compile_3(f, o);
}
static inline cb_function *cb_compile(cb_function_4 *f, const char *o = CB_NULL) {
    return cb_compile_4(f, o);
}
static inline cb_function *cb_compile(cb_module *m, const char *o = CB_NULL) {
    return cb_compile_module(m, o);
}
static inline cb_function *cb_compile(cb_graph *g, const char *o = CB_NULL) {
    return cb_compile_graph(g, o);
}
extern "C" {
#else
/* What else is given is an argument of these, as with CB_BELONGS. */
#define CB_REFUSES(name)                                                                           \
    typedef struct name##_only {                                                                   \
        char unused;                                                                               \
    } name##_only;                                                                                 \
    cb_function *name(name##_only, const char *options);                                           \
    CB_AT_GIVES(cb_function *, name, (name##_only f, const char *options), (f, options))
CB_REFUSES(cb_compile_takes_a_function_of_1_to_4_tensors_or_a_module_or_a_graph)
CB_REFUSES(cb_compile_n_takes_such_a_function)
#undef CB_REFUSES
#define CB_COMPILE(f, options)                                                                     \
    CB_AT_CHOSEN(_Generic((f),                                                                     \
                     cb_function_1 *: CB_AT_NAME(cb_compile_1),                                    \
                     cb_function_2 *: CB_AT_NAME(cb_compile_2),                                    \
                     cb_function_3 *: CB_AT_NAME(cb_compile_3),                                    \
                     cb_function_4 *: CB_AT_NAME(cb_compile_4),                                    \
                     cb_module *: CB_AT_NAME(cb_compile_module),                                   \
                     cb_graph *: CB_AT_NAME(cb_compile_graph),                                     \
                     cb_function_n *: CB_AT_NAME(cb_compile_n_takes_such_a_function),              \
                     default: CB_AT_NAME(                                                          \
                         cb_compile_takes_a_function_of_1_to_4_tensors_or_a_module_or_a_graph)),   \
                 f, options)
#define CB_COMPILE_1(f) CB_COMPILE(f, CB_NULL)
#define cb_compile(...)                                                                            \
    cb_compiled_as(CB_PICK_2(__VA_ARGS__, CB_COMPILE, CB_COMPILE_1, )(__VA_ARGS__), #__VA_ARGS__)
#endif

/* Calls a compiled function. cb_call(f, x, y) returns the first result, or NULL; cb_call_n fills
 * outputs and returns their number, or a negative status (also when they are more than capacity).
 * A function that leaves an error has failed, whatever it returns: what it did is done, and the
 * call gives NULL. Results belong to the caller's scope.
 *
 * The function runs in a scope of its own, which closes when it returns: of its tensors only the
 * results outlive the call, and what it hands to cb_keep(). A tensor that was kept is computed like
 * a result, so keep what is needed afterwards and nothing else. */
CB_API int cb_call_n(cb_function *function, cb_tensor *const *inputs, int input_count,
                     cb_tensor **outputs, int capacity);
CB_API cb_tensor *cb_call_1(cb_function *function, cb_tensor *const *inputs, int input_count);
#ifdef __cplusplus
}
template <typename... T> static inline cb_tensor *cb_call(cb_function *f, T... x) {
    cb_tensor *inputs[] = {x...};
    return cb_call_1(f, inputs, static_cast<int>(sizeof...(T)));
}
extern "C" {
#else
#define cb_call(function, ...)                                                                     \
    CB_AT(cb_call_1, (function), (cb_tensor *[]){__VA_ARGS__},                                     \
          (int)(sizeof((cb_tensor *[]){__VA_ARGS__}) / sizeof(cb_tensor *)))
#endif

/* Kernels for other machines: the compiled kernels of all functions that live now, and what
 * max-autotune has measured for this processor, in one file. Loaded where the library is of the
 * same version and the processor has the same level of instructions, they lie in that machine's
 * kernel cache: functions that need them run no compiler, and none need be installed. Both need the
 * option cache and a directory for it; what compiles in the background is waited for first
 * (cb_function_wait). A file that does not fit, or is damaged, is an error that says why, and
 * nothing of it is taken. It holds code, which runs: load no file that somebody else may write
 * (docs/security.md). */
CB_API cb_status cb_save_artifacts(const char *path);
CB_API cb_status cb_load_artifacts(const char *path);

/* What a compiled function has done so far: graphs, breaks with reasons, guards, kernels with their
 * source, bytes moved. Free the text with cb_free_text. */
CB_API char *cb_explain(cb_function *function);
/* The same on one screen: counts, reasons, and the dearest steps of each graph. */
CB_API char *cb_explain_summary(cb_function *function);
/* Everything as a page for a browser, in one file: each graph drawn with what is fused, steps with
 * their share of what the machine can do, kernels with their source, reasons. */
CB_API cb_status cb_explain_html(cb_function *function, const char *path);
CB_API void cb_free_text(char *text);

typedef struct cb_function_stats {
    int64_t calls, graphs, breaks, recompiles, eager_calls;
    int64_t kernels;         /* of the newest entry: kernels, library calls, plain copies */
    int64_t kernels_eager;   /* what eager would launch for the same graph */
    int64_t bytes, bytes_eager; /* memory traffic of the newest entry, and of eager */
    int64_t flops;              /* of its matrix products, convolutions and attention */
    int64_t cache_hits;      /* kernels that came from the disk */
    double trace_ms, compile_ms; /* of the newest entry; compile_ms holds the next four */
    double passes_ms, schedule_ms, source_ms; /* graph passes, fusion, writing the C */
    double compiler_ms; /* running the C compiler, or loading from the disk */
    int64_t compiled;   /* graphs that had to be compiled or loaded: the others run kernels that
                         * the process has, of other sizes, or on the vector VM */
} cb_function_stats;
CB_API cb_function_stats cb_stats(cb_function *function);

/* Process-wide options, by the names that CARBIDE_* environment variables use in lower case:
 * cache, cache_dir, cc, cc_timeout_ms, dump, skip, passes, check, threads, precise, provider, level
 * (only before the first op), recompile_limit... `carbide info` lists them. Switches are 1, on,
 * true or 0, off, false. */
CB_API cb_status cb_set_option(const char *name, const char *value);
CB_API const char *cb_get_option(const char *name);
CB_API void cb_set_threads(int threads); /* of each call of the process; 0: every core */
CB_API int cb_threads(void);             /* that a call here would use */

/* torch.set_flush_denormal, off at first: subnormal numbers, in f32 those below 1.2e-38, are 0 in
 * what this thread computes, and the threads that work for it. Processors take many times as long
 * for them; gradients and moments that fade away are full of them. f16 keeps its own, down to 6e-8.
 * Ops of a compiled function have what was set when it called them. False: this processor cannot,
 * or, with an error, a function of one graph may not (fullgraph). */
CB_API bool cb_set_flush_denormal(bool on);

/* As torch.set_float32_matmul_precision, for the whole process: "highest", with which it begins,
 * "high" or "medium". medium lets products and convolutions of f32 round their factors to bf16,
 * where the processor multiplies those faster (AVX512-BF16 of AMD, AMX); they still sum in f32 and
 * give f32. highest and high are f32 throughout. Products of one row or one column stay in f32,
 * too: they wait for memory. Compiled functions guard on it. Any other name is an error. */
CB_API cb_status cb_set_float32_matmul_precision(const char *precision);
CB_API const char *cb_get_float32_matmul_precision(void);

/* ---- modules and FX graphs ------------------------------------------------------------------ */
#include <carbide_nn.h>

/* ---- optimizers, schedules, checkpoints ---- */
#include <carbide_train.h>
#include <carbide_io.h>
#include <carbide_fx.h>
#include <carbide_backend.h>

#include <carbide_calls.h>

#ifdef __cplusplus
}
#endif
#endif
