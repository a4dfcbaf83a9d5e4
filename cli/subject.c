/* A case with inputs: made the same for the same seed, called eagerly or compiled. */
#include "cases.h"
#include "screen.h"

static cb_tensor *make_input(const Subject *subject, const CaseInput *input) {
    cb_dim_list sizes = CB_NO_DIMS;
    for (int i = 0; i < 4 && input->size[i]; i++)
        sizes.at[sizes.count++] = input->size[i] == BATCH ? subject->batch : input->size[i];
    if (input->scale == 0) return cb_randint(0, subject->row->below, sizes);
    cb_tensor *x = cb_randn(sizes, subject->dtype);
    return input->scale == 1 ? x : cb_mul(x, input->scale);
}

static bool make_inputs(Subject *subject) {
    const BenchCase *row = subject->row;
    if (row->make) {
        subject->input_count = row->make(subject->dtype, subject->input);
    } else {
        for (int i = 0; i < CASE_INPUTS && row->input[i].size[0]; i++)
            subject->input[subject->input_count++] = make_input(subject, &row->input[i]);
    }
    for (int i = 0; i < subject->input_count; i++)
        if (!subject->input[i]) return false;
    return true;
}

static bool make_module(Subject *subject) {
    if (!subject->row->network) return true;
    subject->module = subject->row->network();
    if (!subject->module) return false;
    cb_module_train(subject->module, subject->row->optimizer != NULL);
    if (cb_module_to(subject->module, subject->dtype) != CB_OK) return false;
    return !subject->row->optimizer || training_open(subject);
}

static bool can_autocast(cb_dtype dtype) {
    if (dtype == CB_SAME) return true;
    cb_autocast_open(dtype);
    cb_autocast_close();
    return !cb_error();
}

bool subject_open(Subject *subject, const BenchCase *row, SubjectOptions options) {
    *subject = (Subject){.row = row,
                         .dtype = options.dtype == CB_SAME ? row->dtype : options.dtype,
                         .autocast = options.autocast,
                         .batch = options.batch ? options.batch : row->batch};
    cb_scope_open();
    cb_manual_seed(0);
    if (can_autocast(subject->autocast) && make_module(subject) && make_inputs(subject))
        return true;
    screen_error(row->name, "no inputs");
    subject_close(subject);
    return false;
}

const char *subject_autocast(const Subject *subject) {
    return subject->autocast == CB_SAME ? "" : cb_dtype_name(subject->autocast);
}

void subject_close(Subject *subject) {
    cb_optimizer_free(subject->optimizer);
    cb_module_free(subject->module);
    cb_scope_close();
}

cb_function *subject_compile(const Subject *subject, const char *options) {
    cb_site(NULL, 0); /* a line of this file tells nobody anything */
    if (!subject->row->body) return (cb_compile_module)(subject->module, options);
    cb_function *fast = (cb_compile_n)(subject->row->body, (void *)subject, options);
    return cb_compiled_as(fast, subject->row->name);
}

static cb_tensor *eager(const Subject *subject, cb_tensor *const *input) {
    cb_tensor *output = NULL;
    if (!subject->row->body) return cb_module_forward(subject->module, input, subject->input_count);
    int made = subject->row->body(input, subject->input_count, &output, (void *)subject);
    return made == 1 ? output : NULL;
}

cb_tensor *subject_result(const Subject *subject, cb_function *fast, cb_tensor *const *input) {
    bool casts = subject->autocast != CB_SAME && !subject->optimizer; /* a step does it itself */
    if (casts) cb_autocast_open(subject->autocast);
    cb_site(NULL, 0);
    cb_tensor *output =
        fast ? (cb_call_1)(fast, input, subject->input_count) : eager(subject, input);
    if (casts) cb_autocast_close();
    return output;
}

bool subject_call(const Subject *subject, cb_function *fast) {
    cb_scope_open();
    cb_tensor *output = subject_result(subject, fast, subject->input);
    cb_scope_close();
    return output != NULL;
}
