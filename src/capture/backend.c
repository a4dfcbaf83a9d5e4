/* Backends of the user's: the registry, compiling with one, running what it made.
 *
 * In: a recording's graph, and at each run the tensors that its inputs are. Out: what an executable
 * would have given: outputs with storages of their own, inputs written to. The user's code gets
 * aliases of the inputs in a scope of its own, under no tracer, so it cannot take anything away.
 *
 * Invariant: a number that was handed out stands for the same backend until the process ends. */
#include "capture/backend.h"
#include "capture/functional.h"

#include "base/memory.h"
#include "eager/eager.h"
#include "run/enqueue.h"
#include "tensor/random.h"
#include <string.h>

enum { MOST_BACKENDS = 64 };

/* ---- the registry ---------------------------------------------------------------------------- */

static cb_status compile_eager(cb_graph *graph, cb_backend_code *code, void *user) {
    (void)user;
    return cb_backend_eager(graph, code);
}

static const Backend eager = {"eager", compile_eager, NULL}; /* the last value of the option */
static Backend registered[MOST_BACKENDS]; /* added to under the lock `custom`, never changed */
static _Atomic int registered_count;

static const Backend *given(int number) { return number ? &registered[number - 1] : &eager; }

int backend_find(const char *name, size_t length) {
    int count = atomic_load_explicit(&registered_count, memory_order_acquire);
    for (int i = 0; i <= count; i++)
        if (strlen(given(i)->name) == length && !memcmp(given(i)->name, name, length)) return i;
    return NO_BACKEND;
}

const Backend *backend_of(const FunctionOptions *options) {
    int number = (int)options->backend - BACKEND_EAGER;
    return number < 0 ? NULL : given(number);
}

static cb_status add(const char *name, cb_backend_compile *compile, void *user) {
    int known = backend_find(name, strlen(name));
    int count = atomic_load_explicit(&registered_count, memory_order_relaxed);
    const Backend *other = known == NO_BACKEND ? NULL : given(known);
    if (other && other->compile == compile && other->user == user) return CB_OK;
    if (other || !strcmp(name, "c") || !strcmp(name, "vm"))
        return fail(CB_ERR_ARGUMENT, "register_backend: %s is another backend already", name);
    if (count == MOST_BACKENDS)
        return fail(CB_ERR_MEMORY, "register_backend: %s: there are %d already", name,
                    MOST_BACKENDS);
    Backend *added = &registered[count];
    memcpy(added->name, name, strlen(name) + 1);
    added->compile = compile;
    added->user = user;
    atomic_store_explicit(&registered_count, count + 1, memory_order_release);
    return CB_OK;
}

static bool name_good(const char *name) {
    size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    return size && size <= CB_MAX_OP_NAME && !name[size];
}

cb_status cb_register_backend(const char *name, cb_backend_compile *compile, void *user) {
    if (!name || !compile)
        return fail(CB_ERR_ARGUMENT, "register_backend: the name or the function is NULL");
    if (!name_good(name))
        return fail(CB_ERR_ARGUMENT,
                    "register_backend: '%s' is no name of letters, digits and _, at most %d", name,
                    CB_MAX_OP_NAME);
    lock_take(LOCK_custom);
    cb_status status = add(name, compile, user);
    lock_give(LOCK_custom);
    return status;
}

/* ---- compiling ------------------------------------------------------------------------------- */

struct BackendCode {
    const Backend *backend;
    FxGraph *graph;       /* owned */
    Arena *arena;         /* owned: of the entry's graph */
    cb_backend_code made; /* run NULL: nothing was made */
};

void backend_free(BackendCode *code) {
    if (!code) return;
    if (code->made.run && code->made.free) code->made.free(code->made.state);
    cb_graph_free(code->graph);
    arena_free(code->arena);
    memory_free(code);
}

const char *entry_backend(const Entry *entry) {
    return entry->code ? entry->code->backend->name : NULL;
}

bool entry_runs_ops(const Entry *entry) { return entry->code && entry->code->backend == &eager; }

/* A user's function, as if it were called from outside of any compiled function. */
static OPENS_FRAME cb_status compile(BackendCode *code) {
    FRAME_MARK(mark);
    Frame *frame = frame_open(sizeof *frame, NULL, FRAME_OF_FUNCTION, mark);
    if (!frame) return CB_ERR_MEMORY;
    cb_status before = cb_error_status();
    Site site = site_current();
    tracer_set(NULL);
    autocast_set(CB_SAME);
    cb_status status = code->backend->compile(code->graph, &code->made, code->backend->user);
    if (status != CB_OK) code->made = (cb_backend_code){NULL, NULL, NULL};
    if (status == CB_OK && before == CB_OK) status = cb_error_status();
    if (status == CB_OK && !code->made.run) status = fail(CB_ERR_COMPILE, "it gave nothing to run");
    if (!frame_close(frame))
        status = fail(CB_ERR_ARGUMENT, "it opened an autocast and did not close it");
    frame_free(frame);
    site_set(site);
    return status;
}

/* Whether all that Carbide does behind the backend's code is sure to work: copying on a device may
 * fail, when one of several inputs has been written to. */
static bool may_take(const Graph *graph) {
    if (device_is_host(graph->device) || !length(graph->mutation)) return true;
    fail(CB_ERR_COMPILE, "it writes to inputs that do not lie on the host");
    return false;
}

bool backend_take(Entry *entry, const Call *call) {
    Recording *recording = call->recording;
    const Backend *backend = backend_of(&call->function->options);
    cb_status before = cb_error_status();
    BackendCode *code = memory_zalloc(sizeof *code);
    if (code) code->backend = backend;
    if (code && may_take(recording->graph)) code->graph = backend_graph(entry, recording->graph);
    if (code && code->graph && compile(code) == CB_OK) {
        entry->code = code;
        code->arena = recording->graph->arena;
        recording->graph = NULL;
        return true;
    }
    const char *why = before == CB_OK && cb_error_status() != CB_OK ? cb_error() : "it failed";
    function_note(call->function, REASON_backend_refused, site_current(), "%s: %s", backend->name,
                  why);
    if (before == CB_OK) cb_clear_error();
    backend_free(code);
    return false;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct BackendRun { /* a run in progress */
    Frame frame;            /* first */
    const Entry *entry;
    int input_count, output_count; /* as the user's code sees them: with writes */
    cb_tensor *handle[];           /* of the inputs, then of the outputs; in the end, tensors */
} BackendRun;

/* An input as the user's code may do with it what it likes. */
static Tensor *lend(const Tensor *x) {
    if (atomic_load_explicit(&x->handle, memory_order_relaxed)) return tensor_alias(x);
    Meta meta = tensor_meta(x); /* a number: a tensor of the stack */
    Tensor *own = tensor_new(&meta);
    bool copied = own && elements_copy(own->device, tensor_data(own), own->stride, tensor_data(x),
                                       x->stride, 0, x->size, cb_dtype_size(x->dtype));
    return copied ? own : NULL;
}

static bool lend_inputs(BackendRun *run, Tensor *const *input) {
    for (int i = 0; i < run->input_count; i++) {
        const Tensor *lent = lend(input[i]);
        if (!lent) return false;
        run->handle[i] = tensor_out(lent);
    }
    for (int k = 0; k < run->output_count; k++) run->handle[run->input_count + k] = NULL;
    return true;
}

static const Node *output_node(const Entry *entry, int k) {
    int outputs = length(entry->graph->output);
    return k < outputs ? entry->graph->output[k] : entry->graph->mutation[k - outputs].value;
}

static bool is_as_expected(const BackendRun *run, const Tensor *x, int k) {
    Meta wanted = node_meta(output_node(run->entry, k)), given = {0};
    if (x) given = tensor_meta(x);
    wanted.device = (uint8_t)run->entry->graph->device;
    bool same = x && given.dtype == wanted.dtype && given.rank == wanted.rank &&
                given.device == wanted.device &&
                !memcmp(given.size, wanted.size, sizeof *given.size * given.rank);
    if (same) return true;
    char is[128] = "NULL", should[128];
    if (x) meta_format(&given, is, sizeof is);
    meta_format(&wanted, should, sizeof should);
    fail(CB_ERR_GRAPH, "output %d is %s, where the graph gives %s", k, is, should);
    return false;
}

/* x, kept, when nobody else can see its storage; otherwise a copy. NULL with an error. */
static Tensor *take_output(const BackendRun *run, Tensor *x) {
    bool own = x->storage && x->storage->references == 1 && x->offset == 0 && tensor_contiguous(x);
    if (own && frame_take(&run->frame, x)) return x;
    Tensor *copy = eager_clone(x);
    return copy && frame_take(&run->frame, copy) ? copy : NULL;
}

static void drop_outputs(Tensor **output, int count) {
    for (int k = 0; k < count; k++) tensor_destroy(output[k]);
}

/* As tensors in place of the handles; false with an error. */
static bool take_outputs(BackendRun *run) {
    Tensor **output = run->handle + run->input_count;
    if (!tensors_in(run->handle + run->input_count, run->output_count, "an output", output))
        return false;
    for (int k = 0; k < run->output_count; k++)
        if (!is_as_expected(run, output[k], k)) return false;
    for (int k = 0; k < run->output_count; k++) {
        output[k] = take_output(run, output[k]);
        if (output[k]) continue;
        drop_outputs(output, k);
        return false;
    }
    return true;
}

static void write_inputs(BackendRun *run, Tensor *const *input) {
    const Graph *graph = run->entry->graph;
    int outputs = length(graph->output);
    Tensor **value = run->handle + run->input_count + outputs;
    for (int i = 0; i < length(graph->mutation); i++) {
        Tensor *to = input[graph->mutation[i].input];
        storage_written(to->storage);
        elements_copy(to->device, tensor_data(to), to->stride, tensor_data(value[i]),
                      value[i]->stride, to->rank, to->size, cb_dtype_size(to->dtype));
    }
    drop_outputs(value, length(graph->mutation));
}

static bool call(BackendRun *run, Tensor *const *input) {
    const BackendCode *code = run->entry->code;
    cb_status before = cb_error_status();
    tracer_set(NULL);
    autocast_set(CB_SAME);
    if (!lend_inputs(run, input)) return false;
    Site site = site_current();
    cb_status status = code->made.run(code->made.state, run->handle, run->input_count,
                                      run->handle + run->input_count, run->output_count);
    site_set(site);
    if (status == CB_OK && before == CB_OK) status = cb_error_status();
    if (status == CB_OK) return take_outputs(run);
    fail(status, "it failed and recorded no error");
    return false;
}

/* Before anything that is seen outside has happened: done, if the user's code was. */
static bool close_scopes(BackendRun *run, bool done) {
    bool balanced = frame_close(&run->frame);
    if (done && !balanced) {
        drop_outputs(run->handle + run->input_count, run->output_count);
        fail(CB_ERR_ARGUMENT, "it opened an autocast and did not close it");
    }
    return done && balanced;
}

static BackendRun *begin(const Entry *entry, volatile uint64_t *mark) {
    int inputs = length(entry->graph->input);
    int outputs = length(entry->graph->output) + length(entry->graph->mutation);
    size_t bytes = sizeof(BackendRun) + sizeof(cb_tensor *) * (size_t)(inputs + outputs);
    BackendRun *run = (BackendRun *)frame_open(bytes, NULL, FRAME_OF_FUNCTION, mark);
    if (!run) return NULL;
    run->entry = entry;
    run->input_count = inputs;
    run->output_count = outputs;
    return run;
}

/* What failed, in the name of the backend. */
static void tell(const Entry *entry, bool first) {
    if (!first) return;
    fail_also(", in backend %s", entry_backend(entry));
    function_note(entry->function, REASON_backend_failed, site_current(), "%s", cb_error());
}

OPENS_FRAME bool backend_run(const Entry *entry, Tensor *const *input, Tensor **output) {
    FRAME_MARK(mark);
    bool first = cb_error_status() == CB_OK;
    RandomState random = random_take(0);
    int64_t drawn = random_drawn();
    BackendRun *run = begin(entry, mark);
    if (!run) return false;
    bool done = close_scopes(run, call(run, input));
    int outputs = length(entry->graph->output);
    if (done) write_inputs(run, input);
    for (int k = 0; k < outputs && done; k++)
        cb_scope_add(output[k] = run->handle[run->input_count + k]);
    frame_free(&run->frame);
    if (done) return true;
    random_return(random, random_drawn() - drawn);
    tell(entry, first);
    return false;
}
