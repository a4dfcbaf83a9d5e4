/* CARBIDE_CHECK=1: every compiled call runs on the float64 VM as well, and the results are
 * compared.
 *
 * The oracle gets the same inputs (copies of those that are written to) and the same random
 * numbers. An output that is further from it than its dtype allows is reported on stderr, once, and
 * in explain, with the op that made it; the call goes on. Integers are equal. Tolerances of floats:
 * f64 1e-9, f32 1e-4, f16 2e-3, bf16 1.6e-2, whichever is the coarsest dtype that the graph has a
 * value in (the oracle rounds to none), relative to the largest magnitude of the output, but not to
 * less than 1: what cancels out of numbers around 1 leaves as much. So small outputs are judged
 * less. */
#include "capture/joint.h"

#include "base/memory.h"
#include "tensor/random.h"
#include <math.h>
#include <string.h>

static double tolerance(cb_dtype dtype) {
    switch (dtype) {
    case CB_F16:
        return 2e-3;
    case CB_BF16:
        return 1.6e-2;
    case CB_F32:
        return 1e-4;
    case CB_F64:
        return 1e-9;
    default:
        return 0;
    }
}

bool check_build(Entry *entry, Call *call) {
    if (entry_has_effects(entry)) return true; /* they happen once */
    Recording *again = record_again(call, entry->trace);
    Entry *scratch = again ? entry_prepare(call, again) : NULL;
    const int64_t *const *stride = scratch ? entry_strides(again, scratch) : NULL;
    if (stride) {
        Graph *graph = again->graph;
        again->graph = NULL;
        for (int i = 0; i < length(graph->node); i++)
            entry->oracle_tolerance =
                fmax(entry->oracle_tolerance, tolerance(graph->node[i]->dtype));
        CompileOptions how = {.optimize = true, .fuse = true, .oracle = true};
        entry->oracle = compile_graph(graph, stride, how);
    }
    record_free(again);
    return entry->oracle != NULL;
}

/* ---- comparing ----------------------------------------------------------------------------- */

/* The first element that is off, or -1. */
static int64_t compare(const Scalar *got, const Scalar *expected, int64_t count, bool whole,
                       double tolerance) {
    double largest = 1;
    for (int64_t i = 0; i < count && !whole; i++)
        if (isfinite(expected[i].f)) largest = fmax(largest, fabs(expected[i].f));
    double allowed = tolerance * largest;
    for (int64_t i = 0; i < count; i++) {
        double a = got[i].f, b = expected[i].f;
        bool same = whole ? got[i].i == expected[i].i : a == b || (isnan(a) && isnan(b));
        if (!same && (whole || !(fabs(a - b) <= allowed))) return i;
    }
    return -1;
}

static void print_element(Scalar value, cb_dtype dtype, char *out, size_t bytes) {
    if (dtype_is_float(dtype))
        snprintf(out, bytes, "%.9g", value.f);
    else
        snprintf(out, bytes, "%lld", (long long)value.i);
}

typedef struct Compared { /* of an entry: an output of the graph, or an input that it writes to */
    int place;            /* among outputs, then mutated inputs */
    char name[112];       /* "output 0" */
    const TraceOp *op;    /* that made it last, NULL: not known */
} Compared;

static bool makes(const Trace *trace, const TraceOp *op, int value) {
    if (op->op == OP_assign) return trace->value[op->input[0].value].root == value;
    return op->result >= 0 && value >= op->result && value < op->result + trace_op_results(op);
}

static const TraceOp *find_maker(const Trace *trace, int value) {
    for (int i = length(trace->op) - 1; i >= 0; i--)
        if (makes(trace, &trace->op[i], value)) return &trace->op[i];
    return NULL;
}

static Compared output_of(const Entry *entry, int k) {
    Compared it = {.place = k};
    snprintf(it.name, sizeof it.name, "output %d", k);
    for (int r = 0; r < trace_result_count(entry->trace); r++) {
        const EntryResult *result = &entry->result[r];
        bool is = result->source == RESULT_GRAPH || result->source == RESULT_VALUE;
        if (!is || result->output != k) continue;
        it.op = find_maker(entry->trace, result->value);
        if (!it.op) it.op = find_maker(entry->trace, entry->trace->value[result->value].root);
    }
    return it;
}

static Compared mutated_of(const Entry *entry, int i, int number) {
    int v = entry->mutated[i];
    const char *path = entry->trace->value[v].path;
    Compared it = {.place = entry_results(entry) + i, .op = find_maker(entry->trace, v)};
    snprintf(it.name, sizeof it.name, "mutated input %d%s%s%s", number, path ? " (" : "",
             path ? path : "", path ? ")" : "");
    return it;
}

/* "add at net.c:7 in encoder.linear" */
static void print_maker(const TraceOp *op, char *out, size_t bytes) {
    char line[64];
    site_format(op->site, line, sizeof line);
    const char *name = op->op == OP_assign ? "a write" : op_info(op->op)->name;
    snprintf(out, bytes, "%s at %s%s%s", name, line, op->site.path ? " in " : "",
             op->site.path ? op->site.path : "");
}

/* Explain counts each time, stderr has the first one of each output. */
static void report(const Entry *entry, const Compared *it, int64_t element, const char *got,
                   const char *expected) {
    char text[400], maker[160] = "";
    if (it->op) print_maker(it->op, maker, sizeof maker);
    snprintf(text, sizeof text, "entry %d, %s, element %lld: %s, the float64 VM says %s%s%s",
             entry->number, it->name, (long long)element, got, expected, *maker ? ", " : "", maker);
    function_note(entry->function, REASON_check_differs, it->op ? it->op->site : (Site){0}, "%s",
                  text);
    if (atomic_exchange(&entry->told[it->place], true)) return;
    Arena *arena = arena_new();
    if (arena && !arena_guard(arena)) {
        Buffer name = buffer_new(arena);
        function_name(entry->function, &name);
        fprintf(stderr, "carbide: check: %s: %s\n", buffer_text(&name), text);
    }
    arena_free(arena);
}

static void check_tensor(const Entry *entry, const Compared *it, Tensor *x, Tensor *oracle) {
    int64_t count = cb_numel(x);
    bool whole = !dtype_is_float(x->dtype);
    cb_dtype as = whole ? CB_I64 : CB_F64; /* as a Scalar holds them */
    Scalar *got = memory_alloc(sizeof *got * 2 * (size_t)(count + 1)), *expected;
    if (!got) return;
    expected = got + count + 1;
    bool read = cb_read(x, got, as) == CB_OK && cb_read(oracle, expected, as) == CB_OK;
    int64_t i = read ? compare(got, expected, count, whole, entry->oracle_tolerance) : -1;
    if (i >= 0) {
        char is[40], should[40];
        print_element(got[i], x->dtype, is, sizeof is);
        print_element(expected[i], x->dtype, should, sizeof should);
        report(entry, it, i, is, should);
    }
    memory_free(got);
}

/* ---- running both -------------------------------------------------------------------------- */

Tensor *tensor_shadow(const Tensor *x) {
    Meta meta = tensor_meta(x);
    Tensor *copy = tensor_shell(&meta);
    const Storage *from = x->storage;
    Storage *storage = copy ? storage_new_on(x->device, from->bytes) : NULL;
    if (storage) copy->storage = storage;
    if (!storage || !devices[x->device]->copy(storage->data, from->data, from->bytes)) {
        tensor_destroy(copy);
        return NULL;
    }
    copy->offset = x->offset;
    memcpy(copy->stride, x->stride, sizeof x->stride);
    return copy;
}

static int input_number(const Entry *entry, int value) {
    if (value < entry->input_count) return value;
    for (int k = 0; k < entry->captured_count; k++)
        if (entry->captured[k] == value) return entry->input_count + k;
    return -1;
}

static bool run_both(const Entry *entry, Tensor *const *input, Tensor **shadow, Tensor **output,
                     Tensor **expected) {
    for (int i = 0; i < entry->mutated_count; i++) {
        int k = input_number(entry, entry->mutated[i]);
        if (!(shadow[k] = tensor_shadow(input[k]))) return false;
    }
    int draws = executable_plan(entry->oracle)->draws;
    RandomState first = random_take(draws), own = first, again = first, *before = random_lend(&own);
    bool done = executable_run(entry->oracle, shadow, expected);
    random_lend(&again);
    done = done && entry_compute(entry, input, output);
    random_lend(before);
    if (!done) random_return(first, draws);
    return done;
}

bool check_run(const Entry *entry, Tensor *const *input, Tensor **output) {
    int inputs = entry->input_count + entry->captured_count;
    Tensor **shadow = memory_alloc(sizeof *shadow * (size_t)(inputs + entry_results(entry) + 1));
    if (!shadow) {
        fail_memory(0);
        return false;
    }
    Tensor **expected = shadow + inputs;
    memcpy(shadow, input, sizeof *shadow * (size_t)inputs);
    cb_scope_open(); /* of the oracle's tensors */
    bool done = run_both(entry, input, shadow, output, expected);
    Tracer *tracer = tracer_set(NULL); /* reading what the call has written to is no event of it */
    for (int k = 0; done && k < entry_results(entry); k++) {
        Compared it = output_of(entry, k);
        check_tensor(entry, &it, output[k], expected[k]);
    }
    for (int k = 0; done && k < entry->graph_output_count; k++) cb_keep(output[k]);
    for (int i = 0; done && i < entry->mutated_count; i++) {
        int k = input_number(entry, entry->mutated[i]);
        Compared it = mutated_of(entry, i, k);
        check_tensor(entry, &it, input[k], shadow[k]);
    }
    tracer_set(tracer);
    cb_scope_close();
    for (int k = 0; done && k < entry->graph_output_count; k++) cb_scope_add(output[k]);
    memory_free(shadow);
    return done;
}
