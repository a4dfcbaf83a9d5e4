/* Backends that tests register: what they were given, and what their code did. */
#ifndef CARBIDE_TEST_BACKENDS_H
#define CARBIDE_TEST_BACKENDS_H

#include "carbide.h"
#include <stdlib.h>
#include <string.h>

static struct {
    int compiled;
    _Atomic int runs, freed;
    char *text; /* of the newest graph */
} seen __attribute__((unused));

/* Counts around another one's code. */
static inline cb_status run_counted_code(void *state, cb_tensor *const *inputs, int input_count,
                                         cb_tensor **outputs, int output_count) {
    const cb_backend_code *code = state;
    seen.runs++;
    return code->run(code->state, inputs, input_count, outputs, output_count);
}

static inline void free_counted_code(void *state) {
    cb_backend_code *code = state;
    if (code->free) code->free(code->state);
    seen.freed++;
    free(code);
}

/* code in a box that counts. */
static inline cb_status count_code(cb_backend_code *code) {
    cb_backend_code *box = malloc(sizeof *box);
    if (!box) return CB_ERR_MEMORY;
    *box = *code;
    *code = (cb_backend_code){run_counted_code, free_counted_code, box};
    seen.compiled++;
    return CB_OK;
}

static inline cb_status compile_counting(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    cb_free_text(seen.text);
    seen.text = cb_graph_text(graph);
    cb_status status = cb_graph_lint(graph);
    if (status == CB_OK) status = cb_backend_eager(graph, code);
    return status == CB_OK ? count_code(code) : status;
}

/* Carbide's own compiler, on the VM. */
static inline cb_status compile_inner(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    cb_status status = cb_backend_inner(graph, "backend=vm", code);
    return status == CB_OK ? count_code(code) : status;
}

static inline cb_status register_test_backends(void) {
    cb_status status = cb_register_backend("counting", compile_counting, NULL);
    return status == CB_OK ? cb_register_backend("inner", compile_inner, NULL) : status;
}

#endif
