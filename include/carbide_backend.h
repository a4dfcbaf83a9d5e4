/* Backends of your own: graph in, callable out, as torch.compile(backend=...) takes them. Included
 * by carbide.h; include that.
 *
 *     static cb_status compile(cb_graph *graph, cb_backend_code *code, void *user) {
 *         cb_graph_print(graph);
 *         return cb_backend_inner(graph, NULL, code);      Carbide's own compiler goes on
 *     }
 *     cb_register_backend("printing", compile, NULL);
 *     cb_function *fast = cb_compile(f, "backend=printing");
 *
 * Carbide records, guards, cuts at values and replays as ever; the backend takes the place of the
 * compiler behind that. backend=eager runs each graph op by op: what is right there and wrong
 * without went wrong in compiling, what is wrong there, too, in recording. */
#ifndef CARBIDE_BACKEND_H
#define CARBIDE_BACKEND_H

/* Computes the graph: fills outputs with a tensor for each value that the graph's output node
 * names, of its dtype and sizes. They may be views of inputs or of each other, or tensors that the
 * state keeps; those are copied. Neither the inputs nor what they are views of may be written to.
 * Anything else but CB_OK is a failure, after cb_fail with a message: the ops run one by one in
 * its place, with a reason that names the backend. It runs in a scope of its own, on the thread of
 * the call, several threads at once; ops and compiled functions that it calls run as they would
 * outside of any. */
typedef cb_status cb_backend_run(void *state, cb_tensor *const *inputs, int input_count,
                                 cb_tensor **outputs, int output_count);
typedef void cb_backend_free(void *state);

typedef struct cb_backend_code {
    cb_backend_run *run;
    cb_backend_free *free; /* when the code goes; NULL: there is nothing to free */
    void *state;
} cb_backend_code;

/* Makes code from a graph, of each segment between two values that the function asks for, of each
 * kind of inputs, dtypes, sizes and strides. Its placeholders have metas (cb_node_meta,
 * cb_node_strides); they stand for the inputs of the call (arg0, arg1...), then for what it finds
 * outside, parameters by their path in the module (layer1_0_weight), others as captured0..., then
 * for numbers that change, as tensors without dimensions (number0...). The ops are those that were
 * called, without writes: writes to inputs are values of the output node, behind the results, which
 * Carbide copies to where they belong; on devices, graphs with writes are its own compiler's.
 * Conversions of autocast are ops. An op whose value nothing
 * needs is left out, but for random draws and effects.
 *
 * The graph may be changed and kept: it lives until the code has been freed. Anything else but
 * CB_OK with a run, after cb_fail with a message, refuses the graph: Carbide's own compiler takes
 * it, with a reason that names the backend, and code is not looked at. A backend that calls the
 * function which it compiles for runs it eagerly. Callbacks return: they throw no exception and do
 * not leave by longjmp. */
typedef cb_status cb_backend_compile(cb_graph *graph, cb_backend_code *code, void *user);

/* For the rest of the process, in which at most 64 are registered; name: letters, digits and _, 1
 * to CB_MAX_OP_NAME. user lives as long. The same again is no error; another one of that name, or
 * of a value of option backend, is CB_ERR_ARGUMENT. */
CB_API cb_status cb_register_backend(const char *name, cb_backend_compile *compile, void *user);

/* For backends that change graphs, and hand them on. What they make belongs to the caller; it needs
 * the graph for as long as it lives. Of a graph that a backend was given, or of any other one
 * without modules, attributes and writes whose placeholders have metas
 * (cb_graph_propagate_shapes).
 *
 * Carbide's own compiler. options: as of cb_compile, of which mode, fuse and backend (c, vm) count.
 * Inputs must have the dtypes, sizes and strides of the placeholders. */
CB_API cb_status cb_backend_inner(const cb_graph *graph, const char *options,
                                  cb_backend_code *code);
/* Op by op, as cb_graph_run. Any graph. */
CB_API cb_status cb_backend_eager(const cb_graph *graph, cb_backend_code *code);

#endif
