/* What leads back from the results of an entry: compiled when it is first asked for, and what each
 * call keeps for it.
 *
 * In: a graph of gradients (graph/partition.c), and by call the tensors that it reads, with the
 * versions that they had. Out: the gradients by the entry's sources, for the tape. */
#include "capture/kept.h"

#include "base/memory.h"
#include "eager/tape_node.h"
#include "report/report.h"
#include "tensor/thread.h"
#include <string.h>

/* ---- what calls share ------------------------------------------------------------------------ */

static void list_roots(Backward *backward, const Entry *entry, const Joint *joint) {
    const int *root = joint->root;
    backward->roots = length(root);
    backward->root = arena_new_array(backward->arena, BackwardRoot, length(root) + 1);
    for (int i = 0; i < length(root); i++) {
        const TraceOp *op = trace_maker(entry->trace, root[i]);
        Site site = op ? op->site : (Site){0};
        site.path = NULL; /* which is the trace's */
        backward->root[i] = (BackwardRoot){root[i], op ? op->op : OP_backward, site,
                                           entry->trace->value[root[i]].meta, joint->behind[i]};
    }
}

static void list_inputs(Backward *backward, const Entry *entry) {
    int count = entry->input_count + entry->captured_count;
    backward->inputs = count;
    backward->input = arena_new_array(backward->arena, int, count + 1);
    backward->dtype = arena_new_array(backward->arena, cb_dtype, count + 1);
    for (int k = 0; k < count; k++) {
        backward->input[k] = k < entry->input_count ? k : entry->captured[k - entry->input_count];
        backward->dtype[k] = entry->graph->input[k]->dtype;
    }
}

static int find_kept(const Backward *backward, int value) {
    for (int i = 0; i < length(backward->kept); i++)
        if (backward->kept[i].value == value) return i;
    return NO_VALUE;
}

static int keep(Backward *backward, int value, const bool *written) {
    int at = find_kept(backward, value);
    bool copied = written[backward->trace->value[value].root];
    if (at == NO_VALUE)
        push(backward->arena, backward->kept, ((BackwardKept){.value = value, .copied = copied}));
    return at == NO_VALUE ? length(backward->kept) - 1 : at;
}

static void keep_operands(Backward *backward, const TraceOp *op, const bool *written) {
    const TraceValue *value = backward->trace->value;
    for (int k = 0; k < op->input_count; k++) {
        int v = op->input[k].value;
        if (!trace_reads(op, k) || value[v].kind == VALUE_IS_RESULT) continue;
        keep(backward, v, written);
    }
    for (int k = 0; op->back && k < op->back->count; k++) {
        int v = op->back->wrt[k];
        if (v >= 0 && value[v].kind != VALUE_IS_RESULT) keep(backward, v, written);
    }
}

/* What the graph reads, and what the ops read that lead to the results: these run once more where
 * gradients are to have some themselves. */
static void list_kept(Backward *backward) {
    const Trace *trace = backward->trace;
    size_t values = (size_t)length(trace->value) + 1;
    int ops = length(trace->op), reads = length(backward->read);
    bool *counts = arena_new_array(backward->arena, bool, values);
    bool *written = arena_new_array(backward->arena, bool, values);
    backward->followed = arena_new_array(backward->arena, bool, ops + 1);
    for (int i = 0; i < backward->roots; i++)
        counts[trace->value[backward->root[i].value].root] = true;
    trace_mark_followed(trace, backward->followed, counts);
    for (int i = 0; i < ops; i++)
        if (trace_written_by(trace, i) != NO_VALUE) written[trace_written_by(trace, i)] = true;
    for (int i = 0; i < ops; i++)
        if (backward->followed[i]) keep_operands(backward, &trace->op[i], written);
    backward->place = arena_new_array(backward->arena, int, reads + 1);
    for (int i = 0; i < reads; i++) {
        const BackwardRead *read = &backward->read[i];
        int v = read->kind == READS_INPUT ? backward->input[read->number] : NO_VALUE;
        backward->place[i] = v == NO_VALUE ? NO_VALUE : keep(backward, v, written);
        if (v != NO_VALUE) backward->kept[backward->place[i]].read = true;
    }
    for (int i = 0; i < reads; i++)
        if (backward->read[i].kind == READS_SAVED)
            backward->place[i] = length(backward->kept) + backward->read[i].number;
}

/* Of what the graph reads: inputs lie as they did, the others are contiguous. */
static void list_strides(Backward *backward, const Trace *trace) {
    int count = length(backward->read);
    const int64_t **list = arena_new_array(backward->arena, const int64_t *, count + 1);
    for (int i = 0; i < count; i++) {
        const BackwardRead *read = &backward->read[i];
        int v = read->kind == READS_INPUT ? backward->input[read->number] : NO_VALUE;
        if (v == NO_VALUE || trace->value[v].contiguous) continue;
        size_t bytes = sizeof trace->value[v].stride;
        list[i] = memcpy(arena_alloc(backward->arena, bytes), trace->value[v].stride, bytes);
    }
    backward->stride = (const int64_t *const *)list;
}

static void describe(Backward *backward, const Entry *entry, const Joint *joint) {
    Arena *arena = backward->arena;
    for (int i = 0; i < length(joint->backward.read); i++) {
        push(arena, backward->read, joint->backward.read[i]);
        backward->saved += joint->backward.read[i].kind == READS_SAVED;
    }
    backward->sources = length(joint->source);
    backward->source = arena_new_array(arena, int, backward->sources + 1);
    backward->from = arena_new_array(arena, const bool *, backward->sources + 1);
    for (int i = 0; i < backward->sources; i++) {
        backward->source[i] = joint->source[i];
        backward->from[i] = joint->from[i];
    }
    list_roots(backward, entry, joint);
    list_inputs(backward, entry);
    list_kept(backward);
    list_strides(backward, entry->trace);
}

static Backward *make(Arena *arena, const Entry *entry, const Joint *joint) {
    if (arena_guard(arena)) return NULL;
    Backward *backward = arena_new_array(arena, Backward, 1);
    backward->arena = arena;
    backward->trace = entry->trace;
    describe(backward, entry, joint);
    trace_retain(backward->trace);
    return backward;
}

Backward *backward_new(const Entry *entry, Joint *joint, CompileOptions how) {
    Arena *arena = arena_new();
    Backward *backward = arena ? make(arena, entry, joint) : NULL;
    if (!backward) {
        arena_free(arena);
        return NULL;
    }
    atomic_init(&backward->references, 1);
    atomic_init(&backward->executable, NULL);
    backward->graph = joint->backward.graph;
    backward->saved_bytes = joint->backward.saved_bytes;
    backward->function = entry->function;
    tomb_hold(&backward->function->tomb);
    backward->site = entry->function->made;
    backward->how = (CompileOptions){.generate = how.generate,
                                     .choose = how.choose,
                                     .tune = how.tune,
                                     .report = how.report,
                                     .fuse = how.fuse};
    joint->backward.graph = NULL;
    return backward;
}

void backward_release(Backward *backward) {
    if (!backward || atomic_fetch_sub(&backward->references, 1) > 1) return;
    executable_free(atomic_load(&backward->executable));
    if (backward->graph) arena_free(backward->graph->arena);
    trace_release(backward->trace);
    tomb_drop(&backward->function->tomb);
    arena_free(backward->arena);
}

void backward_print(const Backward *backward, Buffer *out) {
    const Executable *executable = atomic_load(&backward->executable);
    int64_t unrolled = atomic_load(&backward->unrolled);
    putf(out, "gradients: %d value%s saved, ", backward->saved, backward->saved == 1 ? "" : "s");
    put_byte_count(out, backward->saved_bytes);
    if (executable)
        putf(out, "; %d steps", length(executable_plan(executable)->step));
    else if (!unrolled)
        put(out, "; not asked for yet");
    if (unrolled)
        putf(out, "; gone over op by op: %lld time%s", (long long)unrolled, plural(unrolled));
}

/* ---- compiling ------------------------------------------------------------------------------- */

static int lock_of(const Backward *backward) {
    return LOCK_function + (int)(((uintptr_t)backward >> 6) % LOCKS_function);
}

/* A compiler runs too long for a lock. True: the caller is to compile it. */
static bool begin_making(Backward *backward) {
    int lock = lock_of(backward);
    lock_take(lock);
    while (backward->making == process_number()) lock_wait(lock);
    bool missing = !atomic_load(&backward->executable);
    if (missing) backward->making = process_number();
    lock_give(lock);
    return missing;
}

static void end_making(Backward *backward, Executable *made) {
    int lock = lock_of(backward);
    lock_take(lock);
    atomic_store(&backward->executable, made);
    backward->making = 0;
    lock_wake(lock);
    lock_give(lock);
}

static Graph *copy_of(const Graph *graph) {
    Arena *arena = arena_new();
    if (!arena || arena_guard(arena) || arena_guard(graph->arena)) {
        arena_free(arena);
        return NULL;
    }
    return graph_copy(graph, arena);
}

/* By a copy of the graph, which stays for another time when memory runs out. */
static const Executable *executable_of(Backward *backward) {
    Executable *made = atomic_load_explicit(&backward->executable, memory_order_acquire);
    if (made || !begin_making(backward)) return atomic_load(&backward->executable);
    Graph *graph = copy_of(backward->graph);
    made = graph ? compile_graph(graph, backward->stride, backward->how) : NULL;
    if (!made) fail_memory(0);
    end_making(backward, made);
    return made;
}

/* ---- what a call keeps ----------------------------------------------------------------------- */

static int count_kept(const Backward *backward) { return length(backward->kept) + backward->saved; }

static void kept_forget(void *state) {
    Kept *kept = state;
    for (int i = 0; i < count_kept(kept->backward); i++) {
        tensor_destroy(kept->x[i]);
        kept->x[i] = NULL;
    }
}

static void kept_free(void *state) {
    Kept *kept = state;
    kept_forget(kept);
    backward_release(kept->backward);
    memory_free(kept);
}

static Kept *kept_new(Backward *backward, const int64_t *argument) {
    size_t count = (size_t)count_kept(backward);
    size_t arguments = sizeof(int64_t) * (size_t)backward->trace->argument_count;
    size_t before = (size_t)length(backward->kept);
    size_t bytes = sizeof(Kept) + sizeof(History *) * (size_t)backward->roots +
                   (sizeof(Tensor *) + sizeof(uint64_t)) * count + sizeof(KeptBefore) * before +
                   arguments;
    Kept *kept = memory_zalloc(bytes);
    if (!kept) {
        fail_memory(bytes);
        return NULL;
    }
    kept->backward = backward;
    kept->version = (uint64_t *)(void *)(kept + 1);
    kept->argument = (int64_t *)(void *)(kept->version + count);
    kept->x = (Tensor **)(void *)(kept->argument + backward->trace->argument_count);
    kept->before = (KeptBefore *)(void *)(kept->x + count);
    kept->part = (History **)(void *)(kept->before + before);
    if (arguments) memcpy(kept->argument, argument, arguments);
    atomic_fetch_add(&backward->references, 1);
    return kept;
}

/* What the graph reads is held. Of what else the ops would, a call knows where it lies: as long as
 * nobody has gone over them, a training loop holds no more than its gradients take. What the call
 * writes to will not lie there as it was: of that the first one holds copies, so that who wants
 * gradients of gradients from the start has them. */
static bool keep_inputs(Kept *kept, Tensor *const *value) {
    const Backward *backward = kept->backward;
    kept->thread = &thread_state;
    kept->all = atomic_load_explicit(&backward->function->orders, memory_order_relaxed);
    kept->copies = kept->all || !atomic_exchange(&kept->backward->called, true);
    for (int i = 0; i < length(backward->kept); i++) {
        const BackwardKept *of = &backward->kept[i];
        Tensor *x = value[of->value];
        bool doubles = x->trace == TRACE_OF_DOUBLES;
        kept->before[i] = (KeptBefore){doubles ? x->value : tensor_out(x), x->history};
        kept->version[i] = storage_version(x->storage);
        bool copy = kept->copies && of->copied;
        if (!kept->all && !of->read && !copy) continue;
        kept->x[i] = cb_keep(copy ? kept_copy(x) : tensor_alias(x));
        if (!kept->x[i]) return false;
        kept->version[i] = storage_version(kept->x[i]->storage);
    }
    return true;
}

static bool go_back(void *state, const char *what, Tensor *const *given, Tensor **out);

static bool is_behind(const void *state, int k, int before) {
    const Kept *kept = state;
    return kept->backward->root[before].behind[k];
}

static bool is_same(const void *state, const void *other) {
    return ((const Kept *)state)->digest == ((const Kept *)other)->digest;
}

static const TogetherSteps steps = {go_back, kept_unroll, is_behind,
                                    is_same, kept_forget, kept_free};

static History *follow(Kept *kept, Tensor *const *value) {
    const Backward *backward = kept->backward;
    size_t bytes = sizeof(Tensor *) * (size_t)(backward->sources + 1);
    Tensor **source = memory_alloc(bytes);
    if (!source) fail_memory(bytes);
    for (int i = 0; source && i < backward->sources; i++) source[i] = value[backward->source[i]];
    History *whole = source ? tape_together(&steps, kept, source, backward->sources) : NULL;
    memory_free(source);
    return whole;
}

static void drop_parts(const Kept *kept) {
    for (int i = 0; i < kept->backward->roots; i++)
        if (kept->part[i]) history_release(kept->part[i]);
}

History *backward_keep(Backward *backward, Tensor *const *value, const int64_t *argument,
                       uint64_t digest) {
    Kept *kept = kept_new(backward, argument);
    if (!kept) return NULL;
    kept->digest = digest;
    History *whole = keep_inputs(kept, value) ? follow(kept, value) : NULL;
    if (!whole) {
        kept_free(kept);
        return NULL;
    }
    bool done = true;
    for (int i = 0; i < backward->roots && done; i++) {
        const BackwardRoot *root = &backward->root[i];
        kept->part[i] = tape_part(whole, i, &root->meta, root->op, root->site);
        done = kept->part[i];
    }
    if (done) return whole;
    drop_parts(kept);
    history_release(whole);
    return NULL;
}

static Kept *kept_of(History *history) { return ((TapeNode *)(void *)history)->state; }

void backward_ran(History *history, RandomState random, Tensor **saved) {
    Kept *kept = kept_of(history);
    int before = length(kept->backward->kept);
    kept->random = random;
    for (int i = 0; i < kept->backward->saved; i++) {
        kept->x[before + i] = cb_keep(saved[i]);
        kept->version[before + i] = storage_version(saved[i]->storage);
        saved[i] = NULL;
    }
}

int backward_root(const Backward *backward, int value) {
    for (int i = 0; i < backward->roots; i++)
        if (backward->root[i].value == value) return i;
    return -1;
}

History *backward_history(History *history, int root) {
    Kept *kept = kept_of(history);
    History *part = kept->part[root];
    kept->part[root] = NULL;
    return part;
}

bool backward_takes_ops(History *history, Tensor *const *value) {
    const Backward *backward = kept_of(history)->backward;
    size_t bytes = sizeof(Tensor *) * (size_t)(backward->roots + 1);
    Tensor **result = memory_alloc(bytes);
    if (!result) fail_memory(bytes);
    for (int i = 0; result && i < backward->roots; i++) result[i] = value[backward->root[i].value];
    bool done = result && tape_takes_ops(history, result);
    memory_free(result);
    return done;
}

void backward_mark_roots(const Backward *backward, bool *values) {
    for (int i = 0; i < backward->roots; i++) values[backward->root[i].value] = true;
}

void backward_drop(History *history) {
    drop_parts(kept_of(history));
    history_release(history);
}

/* ---- going back ------------------------------------------------------------------------------ */

/* Arguments are counted in order of the inputs. */
static Tensor *number_of(const Kept *kept, int input, Number *number) {
    const Backward *backward = kept->backward;
    int count = 0;
    for (int k = 0; k < input; k++) count += backward->input[k] == NO_VALUE;
    return number_hold(number, backward->dtype[input], (Scalar){.i = kept->argument[count]});
}

static bool list_read(const Kept *kept, const char *what, Tensor *const *given, Number *number,
                      Tensor **input) {
    const Backward *backward = kept->backward;
    for (int i = 0; i < length(backward->read); i++) {
        const BackwardRead *read = &backward->read[i];
        int place = backward->place[i];
        if (place != NO_VALUE && !kept_is_as_it_was(kept, place, kept->x[place], what))
            return false;
        if (place != NO_VALUE)
            input[i] = kept->x[place];
        else if (read->kind == READS_INPUT)
            input[i] = number_of(kept, read->number, &number[i]);
        else
            input[i] = given[read->number]
                           ? given[read->number]
                           : eager_full(&backward->root[read->number].meta, cb_operand_int(0));
        if (!input[i]) return false;
    }
    return true;
}

static bool run(const Kept *kept, const Executable *executable, const char *what,
                Tensor *const *given, Tensor **out) {
    size_t reads = (size_t)length(kept->backward->read);
    size_t bytes = (sizeof(Tensor *) + sizeof(Number)) * (reads + 1);
    Number *number = memory_alloc(bytes);
    if (!number) {
        fail_memory(bytes);
        return false;
    }
    RandomState own = kept->random, *before = random_lend(&own);
    Tensor **input = (Tensor **)(void *)(number + reads + 1);
    bool done =
        list_read(kept, what, given, number, input) && executable_run(executable, input, out);
    random_lend(before);
    memory_free(number);
    return done;
}

/* What depends on no result that was gone back from has no gradient, and none of zeros. */
static void leave_out(const Backward *backward, Tensor *const *given, Tensor **out) {
    for (int i = 0; i < backward->sources; i++) {
        bool came = false;
        for (int k = 0; k < backward->roots && !came; k++) came = given[k] && backward->from[i][k];
        if (!came) out[i] = NULL;
    }
}

static bool go_back(void *state, const char *what, Tensor *const *given, Tensor **out) {
    const Kept *kept = state;
    const Executable *executable = executable_of(kept->backward);
    if (!executable || !run(kept, executable, what, given, out)) return false;
    leave_out(kept->backward, given, out);
    return true;
}
