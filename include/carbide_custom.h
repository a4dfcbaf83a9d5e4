/* Operations of your own: a shape rule and a kernel in C, called, captured and scheduled like the
 * ops of Carbide. Included by carbide.h; include that.
 *
 *     cb_register_op(&(cb_custom_op){.name = "signal.running_max", .inputs = 1, .outputs = 1,
 *                                    .kernel = running_max});
 *     cb_tensor *y = cb_call_op("signal.running_max", &x, 1, CB_NO_DIMS, CB_NO_FLOATS);
 *
 * To a compiled function it is one op, without a break: what it reads is computed before, and
 * nothing is fused into it. As torch.library.custom_op, whose fake kernel is the shape rule. */
#ifndef CARBIDE_CUSTOM_H
#define CARBIDE_CUSTOM_H

enum { CB_MAX_OP_INPUTS = 8, CB_MAX_OP_OUTPUTS = 8, CB_MAX_OP_NAME = 63 };

/* A tensor as a kernel sees it: contiguous, in row-major order, on the host, aligned to its
 * elements. data is NULL in a shape rule, and may be where there are no elements. */
typedef struct cb_array {
    cb_dtype dtype;
    int rank;
    int64_t size[CB_MAX_RANK];
    void *data;
} cb_array;

typedef struct cb_op_call {
    const cb_array *input; /* their elements are read; of those that `mutates` names also written */
    int input_count;
    cb_array *output; /* a shape rule sets dtype, rank and sizes, or is refused; a kernel writes
                       * all elements */
    int output_count;
    const int64_t *integers; /* as many as were registered */
    const double *floats;
    int threads;        /* that the kernel may use: cb_threads() */
    int64_t seed, draw; /* with effects: the state of the random numbers, one draw for each call */
    void *user;
} cb_op_call;

/* CB_OK, or what went wrong, after cb_fail with a message; the error names the op, what it was
 * called with and the line of the call. Callbacks return: they throw no exception and do not leave
 * by longjmp. Any thread may call them, several at once; they call nothing of Carbide but cb_fail
 * and the functions of dtypes. */
typedef cb_status cb_op_callback(const cb_op_call *call);

typedef struct cb_custom_op {
    const char *name;     /* "library.operation"; copied. Letters, digits, _ and dots */
    int inputs;           /* tensors: 1 to CB_MAX_OP_INPUTS */
    int outputs;          /* 0 to CB_MAX_OP_OUTPUTS */
    int integers, floats; /* attributes, at most CB_MAX_RANK each */
    uint64_t mutates;     /* bit i: the kernel writes to input i */
    /* What it does besides (a log, a file, random numbers): it runs once for each call, in the
     * order of the calls, also where nobody uses what it gives. Without, calls with equal inputs
     * may be one, and a call without a use is left out. */
    bool effects;
    /* Metas of the outputs from those of the inputs: a pure function, called whenever somebody asks
     * for sizes. NULL: every output is as input 0. */
    cb_op_callback *shape;
    cb_op_callback *kernel; /* runs on the calling thread, between other kernels */
    void *user;             /* lives as long as the process */
    /* The op that computes its gradient, registered before. It takes the inputs of this one, then
     * the gradient of its output, and as many integers and floats; it gives the gradients of the
     * inputs of a floating point dtype, in their order, in their sizes and dtypes. For an op of one
     * output that writes to no input. NULL: it has none, and is refused where an input requires
     * one, unless it has no outputs. The name must live as long as this call. */
    const char *gradient;
} cb_custom_op;

/* For the rest of the process, in which at most 128 are registered: compiled functions keep what
 * they call, so there is no way back. The same again is no error; another one of that name is
 * CB_ERR_ARGUMENT. */
CB_API cb_status cb_register_op(const cb_custom_op *op);

/* Calls it with as many inputs, integers and floats as it was registered with. Inputs may have any
 * strides, dtypes and sizes that its shape rule takes, and lie on the host: on another device they
 * are refused (cb_to_device). An input that is written to takes the new elements, as with
 * cb_assign. Gives the first output; of an op without any, input 0. NULL with an error. */
CB_API cb_tensor *cb_call_op(const char *name, cb_tensor *const *inputs, int count,
                             cb_dim_list integers, cb_float_list floats);
/* All outputs; how many, or a negative status, also where they are more than capacity. */
CB_API int cb_call_op_n(const char *name, cb_tensor *const *inputs, int count, cb_dim_list integers,
                        cb_float_list floats, cb_tensor **outputs, int capacity);

#endif
