/* Gradients of gradients over a call that was compiled: its ops run once more, on the tape.
 *
 *     y = f(x)                       compiled: y = w * x, whose gradients read x and w
 *     cb_grad_graph(y, .., &w, &g)   mul(w, x), from the x of the call: g has its history
 *
 * In: what the call has kept or, as long as nobody has asked for such gradients, where the tensors
 * were that it read: those that live, and are as they were, are taken for it. Out: the results with
 * the history of their ops. From then on the function's calls keep all that this takes. */
#include "capture/kept.h"

#include "base/memory.h"
#include "eager/eager.h"
#include "tensor/thread.h"

bool kept_is_as_it_was(const Kept *kept, int place, const Tensor *x, const char *what) {
    if (storage_version(x->storage) == kept->version[place]) return true;
    char line[64], of[160];
    Meta meta = tensor_meta(x);
    site_format(kept->backward->site, line, sizeof line);
    meta_format(&meta, of, sizeof of);
    fail(CB_ERR_ARGUMENT,
         "%s: %s that the function compiled at %s read was modified in place since, and its "
         "gradients need the elements as they were",
         what, of, line);
    return false;
}

/* With what lies between its elements. */
Tensor *kept_copy(const Tensor *x) {
    Meta meta = tensor_meta(x), flat = meta;
    flat.rank = 1;
    flat.size[0] = (int64_t)(tensor_span_bytes(x) / cb_dtype_size(x->dtype));
    Tensor *all = tensor_view_of(x, &flat, (int64_t[]){1}, x->offset);
    Tensor *copy = all ? eager_clone(all) : NULL;
    Tensor *same = copy ? tensor_view_of(copy, &meta, x->stride, 0) : NULL;
    tensor_destroy(all);
    tensor_destroy(copy);
    return same;
}

/* ---- what there was before ------------------------------------------------------------------- */

/* Nobody holds it for the call: on another thread it could be freed meanwhile. */
static Tensor *find_alive(const Kept *kept, int place) {
    Tensor *x;
    bool lives = handle_lives(kept->before[place].handle, &x);
    return lives && kept->thread == &thread_state ? x : NULL;
}

static void fail_missing(const Kept *kept, int place, const char *what) {
    const Backward *backward = kept->backward;
    const BackwardKept *of = &backward->kept[place];
    char line[64], text[160];
    site_format(backward->site, line, sizeof line);
    meta_format(&backward->trace->value[of->value].meta, text, sizeof text);
    fail(CB_ERR_ARGUMENT,
         "%s: the ops of the function compiled at %s have to run once more, and %s that they read "
         "%s: from its next call on it keeps such tensors, and with \"backward=orders\" from the "
         "first",
         what, line, text, of->copied ? "was written to by the call" : "is not there any more");
}

/* NULL with an error. */
static Tensor *find_before(const Kept *kept, int place, const char *what) {
    bool written = kept->backward->kept[place].copied && !kept->copies;
    Tensor *x = kept->x[place];
    if (!x && !written) x = find_alive(kept, place);
    if (x && !written) return kept_is_as_it_was(kept, place, x, what) ? x : NULL;
    fail_missing(kept, place, what);
    return NULL;
}

/* A second run would have its effects again. */
static bool may_run_again(const Backward *backward, const char *what) {
    char line[64];
    for (int i = 0; i < length(backward->trace->op); i++) {
        if (!backward->followed[i] || !trace_has_effects(&backward->trace->op[i])) continue;
        site_format(backward->site, line, sizeof line);
        fail(CB_ERR_ARGUMENT,
             "%s: it comes to the function compiled at %s, whose ops have to run once more "
             "for that, and one of them has effects: compile it with \"backward=tape\"",
             what, line);
        return false;
    }
    return true;
}

/* One tensor may be two values, of which one is the source. NULL: it is none. */
static History *source_of(const Kept *kept, int i, History *const *source) {
    for (int k = 0; k < kept->backward->sources; k++)
        if (source[k] == kept->before[i].history) return source[k];
    return NULL;
}

/* What the results do not follow by gradients, but other ones that the function has asked for, is a
 * leaf of its own. */
static bool is_other_leaf(const Backward *backward, int v) {
    return backward->trace->value[v].tracked || backward->trace->value[v].foreign;
}

/* The tensors that were there before, with their histories; false with an error. */
static bool list_before(const Kept *kept, const char *what, History *const *source, Tensor **real) {
    const Backward *backward = kept->backward;
    bool done = true;
    for (int i = 0; i < length(backward->kept) && done; i++) {
        int v = backward->kept[i].value;
        const Tensor *x = find_before(kept, i, what);
        if (!x) return false;
        History *history = source_of(kept, i, source);
        real[v] = cb_keep(backward->kept[i].copied ? kept_copy(x) : tensor_alias(x));
        done = real[v];
        if (done && history)
            real[v]->history = history_retain(history);
        else if (done && is_other_leaf(backward, v))
            done = (cb_requires_grad_)(tensor_out(real[v]), true);
    }
    return done;
}

/* The tape goes over the ops then, instead of the graph. */
bool kept_unroll(void *state, const char *what, History *const *source, Tensor **out) {
    const Kept *kept = state;
    Backward *backward = kept->backward;
    const Trace *trace = backward->trace;
    size_t bytes = sizeof(Tensor *) * ((size_t)length(trace->value) + 1);
    if (!may_run_again(backward, what)) return false;
    atomic_store_explicit(&backward->function->orders, true, memory_order_relaxed);
    Tensor **real = memory_zalloc(bytes);
    if (!real) {
        fail_memory(bytes);
        return false;
    }
    RandomState own = kept->random, *before = random_lend(&own);
    Tracer *tracer = tracer_set(NULL);
    bool done = list_before(kept, what, source, real) &&
                trace_run_followed(trace, backward->followed, kept->argument, real);
    tracer_set(tracer);
    random_lend(before);
    for (int k = 0; k < backward->roots && done; k++) {
        Tensor **root = &real[backward->root[k].value];
        out[k] = tensor_double(*root);
        done = out[k];
    }
    for (int v = 0; v < length(trace->value); v++) tensor_destroy(real[v]);
    memory_free(real);
    if (done) atomic_fetch_add_explicit(&backward->unrolled, 1, memory_order_relaxed);
    return done;
}
