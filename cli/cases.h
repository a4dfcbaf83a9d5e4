/* The cases of `carbide bench` and `carbide explain`: a function, and the inputs to give it.
 * bench/compare_cpu.py holds the same ones on torch; sizes must agree. */
#ifndef CARBIDE_CLI_CASES_H
#define CARBIDE_CLI_CASES_H

#include "arguments.h"
#include "carbide.h"

enum {
    CASE_INPUTS = 8,
    CASE_PARAMETERS = 256, /* of a network that is trained */
    BATCH = -1 /* as a size: the subject's batch */
};

typedef struct CaseInput {
    int64_t size[4]; /* ends with 0 */
    double scale;    /* of normal random numbers; 0: whole ones, i64, below the case's `below` */
} CaseInput;

typedef struct BenchCase {
    const char *name, *help;
    cb_function_n *body; /* one result; a direct call is eager, cb_compile_n compiles it */
    /* Instead of body: a module with one input, compiled by cb_compile_module. */
    cb_module *(*network)(void);
    /* Of a network that learns, with its arguments. Then the body is a step of it (training.c), and
     * input[1] what the network should make of input[0]. */
    const char *optimizer, *rates;
    cb_dtype dtype; /* unless --dtype says another */
    int64_t batch;  /* unless --batch says another: what BATCH stands for; 0: it has none */
    bool whole;     /* the result is a sum over the batch, so it cannot be checked in parts */
    bool demo;      /* stands in the table of `make demo` */
    CaseInput input[CASE_INPUTS];
    int64_t below; /* inputs of scale 0 are from 0 to below - 1 */
    /* Instead of random inputs: fills input, returns how many. */
    int (*make)(cb_dtype dtype, cb_tensor **input);
} BenchCase;

/* A case with its inputs, which live until subject_close. */
typedef struct Subject {
    const BenchCase *row;
    cb_dtype dtype;
    cb_dtype autocast; /* in force around every call; CB_SAME: none */
    int64_t batch;
    int input_count;
    cb_tensor *input[CASE_INPUTS];
    cb_module *module;       /* of a network, in eval mode unless it learns; or NULL */
    cb_optimizer *optimizer; /* of one that learns; or NULL */
    cb_tensor *parameter[CASE_PARAMETERS];
    int parameters;
} Subject;

extern const BenchCase cases[];
extern const int case_count;

/* Options text of cb_compile; more may be NULL. False after a message: something in it is
 * unknown. */
bool case_options(char *out, size_t bytes, const char *device, const char *mode, const char *more);
const BenchCase *case_find(const char *name); /* NULL after a message that lists the cases */
/* What the command line says of a case; a zero, CB_SAME: as the case itself says. */
typedef struct SubjectOptions {
    cb_dtype dtype;    /* of weights and inputs */
    cb_dtype autocast; /* of cb_autocast_open around every call; CB_SAME: none */
    int64_t batch;
} SubjectOptions;

#define SUBJECT_OPTIONS_DEFAULT                                                                    \
    { CB_SAME, CB_SAME, 0 }
/* Their rows of a command's table; at: where the SubjectOptions are in its struct. */
#define SUBJECT_ROWS(at)                                                                           \
    {"dtype", ARGUMENT_DTYPE, (at) + offsetof(SubjectOptions, dtype), "NAME",                      \
     "of weights and inputs: f32, f64, bf16, f16; the default is the case's own"},                 \
        {"autocast", ARGUMENT_LOWER, (at) + offsetof(SubjectOptions, autocast), "NAME",            \
         "bf16 or f16: every call runs inside cb_autocast_open"},                                  \
    {                                                                                              \
        "batch", ARGUMENT_COUNT, (at) + offsetof(SubjectOptions, batch), "N",                      \
            "elements, rows or samples instead of the case's own"                                  \
    }

/* Opens a scope and makes the inputs in it, the same ones for the same seed. False, after a
 * message, with nothing open. */
bool subject_open(Subject *subject, const BenchCase *row, SubjectOptions options);
void subject_close(Subject *subject);
const char *subject_autocast(const Subject *subject); /* the dtype's name; "": none */
cb_function *subject_compile(const Subject *subject, const char *options);
/* The result for any inputs, of a compiled function or (fast NULL) op by op; NULL with an error. */
cb_tensor *subject_result(const Subject *subject, cb_function *fast, cb_tensor *const *input);
/* Runs the case once in a scope of its own; fast NULL: eager. */
bool subject_call(const Subject *subject, cb_function *fast);

/* training.c: a step as a body, whose user is the subject, and its result, the loss; the optimizer
 * of a subject's module; the losses of a few steps from the weights as they are, which stay; the
 * same when the module has been converted to float64, and so has other tensors. */
int training_step(cb_tensor *const *input, int input_count, cb_tensor **output, void *user);
bool training_open(Subject *subject);
cb_tensor *training_losses(const Subject *subject, cb_function *fast, cb_tensor *const *input);
cb_tensor *training_exact(const Subject *subject, cb_tensor *const *input);

/* The inputs of the case photo (photo.c): picture and gains. */
int photo_make(cb_dtype dtype, cb_tensor **input);
int photo_body(cb_tensor *const *input, int input_count, cb_tensor **output, void *user);

#endif
