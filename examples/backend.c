/* A backend of one's own: it prints each graph that a function is cut into, replaces a pattern,
 * and hands the rest to Carbide's compiler, whose calls it counts.
 *
 *     backend */
#include <carbide.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Counter {
    cb_backend_code inner;
    int calls; /* one thread calls in this program; threads would want an atomic one */
} Counter;

static int calls;

static cb_status run(void *state, cb_tensor *const *inputs, int input_count, cb_tensor **outputs,
                     int output_count) {
    Counter *counter = state;
    counter->calls++;
    return counter->inner.run(counter->inner.state, inputs, input_count, outputs, output_count);
}

static void stop(void *state) {
    Counter *counter = state;
    calls += counter->calls;
    counter->inner.free(counter->inner.state);
    free(counter);
}

/* exp(x) - 1 loses what is small; expm1 does not. */
static int sharpen(cb_graph *graph) {
    cb_graph *pattern = cb_graph_parse("graph():\n"
                                       "    %x : [num_users=1] = placeholder[target=x]\n"
                                       "    %exp : [num_users=1] = call_method[target=exp](args = "
                                       "(%x,), kwargs = {})\n"
                                       "    %sub : [num_users=1] = "
                                       "call_function[target=operator.sub](args = (%exp, 1.0), "
                                       "kwargs = {})\n"
                                       "    return sub",
                                       NULL);
    cb_graph *better = cb_graph_parse("graph():\n"
                                      "    %x : [num_users=1] = placeholder[target=x]\n"
                                      "    %expm1 : [num_users=1] = call_method[target=expm1](args "
                                      "= (%x,), kwargs = {})\n"
                                      "    return expm1",
                                      NULL);
    int places = cb_graph_replace_pattern(graph, pattern, better);
    cb_graph_free(pattern);
    cb_graph_free(better);
    return places;
}

static cb_status compile(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    Counter *counter = calloc(1, sizeof *counter);
    if (!counter) return cb_fail(CB_ERR_MEMORY, "no memory for a counter");
    cb_graph_print(graph);
    int places = sharpen(graph);
    printf("replaced at %d places\n\n", places);
    cb_status status =
        places < 0 ? (cb_status)places : cb_backend_inner(graph, NULL, &counter->inner);
    *code = (cb_backend_code){run, stop, counter};
    if (status != CB_OK) free(counter);
    return status;
}

/* Cut in two by the value that it asks for. */
static cb_tensor *growth(cb_tensor *x) {
    cb_tensor *y = cb_sub(cb_exp(x), 1.0);
    if (cb_item(cb_amax(y)) > 1) y = cb_mul(y, 0.5);
    return cb_relu(y);
}

int main(void) {
    cb_scope_open();
    cb_register_backend("sharpening", compile, NULL);
    cb_function *fast = cb_compile(growth, "backend=sharpening");
    cb_tensor *x = cb_full(cb_dims(2, 3), 1e-6), *y = NULL;
    for (int i = 0; i < 3; i++) y = cb_call(fast, x);
    double off = y ? fabs(cb_item(cb_amax(y)) / expm1(1e-6) - 1) : 1;
    double eager = fabs(cb_item(cb_amax(growth(x))) / expm1(1e-6) - 1);
    cb_function_free(fast);
    /* Two for each call, but for the first one: nobody knows yet what is behind the value, so what
     * is before it runs op by op. */
    printf("%d calls of compiled graphs; relative error %.0e, eager %.0e\n", calls, off, eager);
    cb_scope_close();
    bool good = !cb_error() && calls == 5 && off < 1e-6 && eager > 1e-3;
    if (cb_error()) fprintf(stderr, "%s\n", cb_error());
    return !good;
}
