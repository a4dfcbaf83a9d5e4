/* Segments that a call has left: what stays alive of them, and the values that wait.
 *
 * In: the call where a segment ends. Out: a LeftSegment with all that computing what lives needs,
 * until nobody can ask for it any more. */
#include "capture/functional.h"
#include "capture/joint.h"
#include "capture/segment.h"

#include "base/memory.h"
#include "eager/tape.h"
#include <string.h>

/* ---- what is read ---------------------------------------------------------------------------- */

static LeftRead **chain_of(const Call *call, const Storage *storage) {
    uint64_t hash = storage->serial * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    return &call->reads[hash & (uint64_t)(call->read_room - 1)];
}

static void join_chain(Call *call, LeftRead *read) {
    LeftRead **chain = chain_of(call, read->storage);
    read->next = *chain;
    read->link = chain;
    if (*chain) (*chain)->link = &read->next;
    *chain = read;
}

/* Without memory, chains grow long. */
static __attribute__((noinline, cold)) void grow_reads(Call *call) {
    int was_room = call->read_room, room = was_room ? 4 * was_room : FEW_READS;
    LeftRead **was = call->reads, **grown = call->few_reads;
    if (was_room) grown = memory_alloc(sizeof *grown * (size_t)room);
    if (!grown) return;
    memset(grown, 0, sizeof *grown * (size_t)room);
    call->reads = grown;
    call->read_room = room;
    for (int i = 0; i < was_room; i++)
        for (LeftRead *read = was[i], *next; read; read = next) {
            next = read->next;
            join_chain(call, read);
        }
    if (was_room > FEW_READS) memory_free(was);
}

static void note_reads(Call *call, LeftSegment *left) {
    for (int v = 0, k = 0; v < left->values; v++) {
        if (!left->value[v]) continue;
        if (call->read_count == call->read_room) grow_reads(call);
        left->read[k] = (LeftRead){.left = left, .storage = left->value[v]->storage};
        join_chain(call, &left->read[k++]);
        call->read_count++;
    }
}

/* Nothing of it waits. */
static void forget_reads(Call *call, LeftSegment *left) {
    for (int k = 0; k < left->reads; k++) {
        LeftRead *read = &left->read[k];
        if (!read->link) continue;
        *read->link = read->next;
        if (read->next) read->next->link = read->link;
        read->link = NULL;
        call->read_count--;
    }
}

/* ---- what was left --------------------------------------------------------------------------- */

static void link_left(Call *call, LeftSegment *left) {
    left->next = call->left;
    if (call->left) call->left->previous = left;
    call->left = left;
}

static void free_left(Call *call, LeftSegment *left) {
    if (left->previous)
        left->previous->next = left->next;
    else
        call->left = left->next;
    if (left->next) left->next->previous = left->previous;
    forget_reads(call, left);
    for (int k = 0; k < left->shells; k++) {
        Tensor *x = left->shell[k].x;
        promise_forget(&left->shell[k], call->mode != CALL_IS_EAGER);
        if (!x) continue;
        x->trace = 0, x->value = NULL;
        if (!x->storage) leaf_forget(x);
    }
    for (int v = 0; v < left->values; v++) tensor_destroy(left->value[v]);
    if (left->recording) call_drops_number(call, &left->number);
    record_free(left->recording);
    if (left->together) history_release(left->together);
    memory_free(left->version);
    memory_free(left->value);
    memory_free(left);
}

void left_free_all(Call *call) {
    while (call->left) free_left(call, call->left);
    if (call->read_room > FEW_READS) memory_free(call->reads);
    call->read_room = 0;
}

/* The end of the call has nothing to do with it any more. */
static bool is_over(const LeftSegment *left) {
    return !left->alive && !left->recording && !left->missed && !left->leads;
}

static bool is_shell(const Call *call, int v) {
    return call->value[v] && call->trace->value[v].kind == VALUE_IS_RESULT;
}

bool left_keeps(const Call *call, int v) {
    return is_shell(call, v) && (call->recording || !call->value[v]->storage ||
                                 (call->trace->value[v].tracked && !call->value[v]->history));
}

static void take_shells(Call *call, LeftSegment *left) {
    for (int v = 0; v < left->values; v++) {
        if (!left_keeps(call, v)) continue;
        LeftShell *shell = &left->shell[left->shells++];
        *shell = (LeftShell){left, call->value[v], v, NULL};
        shell->x->trace = call->left_serial;
        shell->x->value = shell;
        call->value[v] = NULL;
    }
    left->alive = left->shells;
}

/* The caller's tensors as views of our own. False: no memory. */
static bool view_inputs(const Call *call, LeftSegment *left) {
    for (int i = 0; i < call->input_count; i++) {
        if (call_owns_input(call, i)) continue;
        left->value[i] = cb_keep(tensor_double(call->value[i]));
        if (!left->value[i]) return false;
    }
    return true;
}

/* What the call has views of already. */
static void take_operands(Call *call, LeftSegment *left) {
    for (int v = 0; v < left->values; v++) {
        if (left->value[v] || call->trace->value[v].kind == VALUE_IS_RESULT) continue;
        left->value[v] = call->value[v];
        call->value[v] = NULL;
    }
    call->own_inputs = 0;
}

/* Its values that are inputs or captured. */
static int count_real(const Call *call) {
    int count = 0;
    for (int v = 0; v < length(call->trace->value); v++)
        count += call->trace->value[v].kind != VALUE_IS_RESULT;
    return count;
}

static void free_reserved(LeftSegment *left) {
    for (int v = 0; v < left->values; v++) tensor_destroy(left->value[v]);
    memory_free(left->value);
    memory_free(left);
}

static bool waits(const LeftSegment *left) {
    for (int k = 0; k < left->shells; k++)
        if (left->shell[k].x && !left->shell[k].x->storage) return true;
    return false;
}

/* All that a segment of so many shells asks memory for. NULL: there is none. */
static LeftSegment *reserve_left(const Call *call, int shells) {
    int values = length(call->trace->value), arguments = call->trace->argument_count;
    int reads = count_real(call);
    LeftSegment *left = memory_zalloc(sizeof *left + sizeof *left->shell * (size_t)shells +
                                      sizeof *left->read * (size_t)reads);
    Tensor **value = memory_zalloc(left_value_bytes(values, arguments));
    if (!left || !value) {
        memory_free(left), memory_free(value);
        return NULL;
    }
    *left = (LeftSegment){.trace = call->trace,
                          .entry = call->entry,
                          .ambient = call->ambient,
                          .value = value,
                          .values = values,
                          .read = (LeftRead *)(void *)(left->shell + shells),
                          .reads = reads,
                          .input_count = call->input_count,
                          .resumes = call->resumed};
    if (view_inputs(call, left)) return left;
    free_reserved(left);
    return NULL;
}

bool segment_reserve(Call *call) {
    const Trace *trace = call->trace;
    int shells = 0, waiting;
    for (int v = 0; v < length(trace->value); v++) shells += is_shell(call, v);
    waiting = shells;
    for (int k = 0; k < length(trace->escaped); k++)
        waiting -= is_shell(call, trace->escaped[k]) && !trace->value[trace->escaped[k]].tracked;
    if (waiting) call->reserved = reserve_left(call, shells);
    return !waiting || call->reserved;
}

void segment_drop_reserved(Call *call) {
    if (call->reserved) free_reserved(call->reserved);
    call->reserved = NULL;
}

/* What the segment's results that have a history of its joint graph, and live, are parts of. */
static History *find_together(const Call *call) {
    const Backward *backward = call->mode == CALL_REPLAYS ? call->entry->backward : NULL;
    for (int i = 0; backward && i < backward->roots; i++) {
        const Tensor *x = call->value[backward->root[i].value];
        History *together = x ? tape_whole(x) : NULL;
        if (together) return history_retain(together);
    }
    return NULL;
}

LeftSegment *left_new(Call *call, int shells) {
    int arguments = call->trace->argument_count;
    LeftSegment *left = call->reserved ? call->reserved : reserve_left(call, shells);
    call->reserved = NULL;
    if (!left) return NULL;
    left->random = call->random; /* known when the entry has run */
    link_left(call, left);
    if (arguments)
        memcpy(left_arguments(left), call->argument, sizeof(int64_t) * (size_t)arguments);
    take_operands(call, left);
    take_shells(call, left);
    if (waits(left)) note_reads(call, left);
    if (!promises_make(left)) call->lost = true;
    if (left->version) left->together = find_together(call);
    return left;
}

/* ---- what waits ------------------------------------------------------------------------------ */

void shell_adopt(Tensor *shell, Tensor *made) {
    shell->storage = storage_retain(made->storage);
    shell->offset = made->offset;
    memcpy(shell->stride, made->stride, sizeof(int64_t) * made->rank);
}

bool left_compute(LeftSegment *left, const Trace *part, RandomState *random) {
    Tensor **real = memory_alloc(sizeof *real * (size_t)(left->values + 1));
    if (!real) {
        fail_memory(sizeof *real * (size_t)(left->values + 1));
        return false;
    }
    memcpy(real, left->value, sizeof *real * (size_t)left->values);
    Tracer *tracer = tracer_set(NULL);
    RandomState *before = random_lend(random);
    bool done = trace_run(part, length(part->op), left_arguments(left), real);
    random_lend(before);
    for (int k = 0; k < left->shells; k++) {
        LeftShell *shell = &left->shell[k];
        Tensor *made = real[shell->value];
        if (!shell->x || !made) continue;
        if (!shell->x->storage) shell_adopt(shell->x, made);
        promise_take(shell, made);
    }
    if (left->together) done &= backward_takes_ops(left->together, real);
    for (int v = 0; v < left->values; v++)
        if (left->trace->value[v].kind == VALUE_IS_RESULT) tensor_destroy(real[v]);
    tracer_set(tracer);
    memory_free(real);
    return done;
}

/* What an op that failed was to give will not come: nobody waits for it, to fail again. */
static bool compute_whole(LeftSegment *left, RandomState *random) {
    if (left_compute(left, left->trace, random)) return true;
    for (int k = 0; k < left->shells; k++) {
        Tensor *x = left->shell[k].x;
        if (!x || x->storage) continue;
        promise_forget(&left->shell[k], false);
        left->shell[k].x = NULL;
        left->alive--;
        x->trace = 0, x->value = NULL;
        leaf_forget(x);
    }
    return false;
}

bool left_compute_first(LeftSegment *left) {
    int draws = left->trace->draws;
    RandomState own = left->random = random_take(draws);
    bool done = compute_whole(left, &own);
    random_return(own, left->random.offset + draws - own.offset); /* not taken by what failed */
    return done;
}

static void compute_waiting(Call *call, LeftSegment *left) {
    RandomState own = left->random;
    if (waits(left) && !compute_whole(left, &own)) call->lost = true;
    forget_reads(call, left);
}

/* It crosses the next time, and so does what leads back from it. True: it did already. */
static bool cross(const Trace *trace, int v) {
    bool follows = trace_has_history(trace, v, length(trace->op));
    if (!trace_computes(trace, v) && !follows) return true;
    bool known = atomic_exchange(&trace->crosses[trace->value[v].root], true);
    return (!follows || atomic_exchange(&trace->crosses[v], true)) && known;
}

void segment_met(Call *call, Tensor *x) {
    LeftShell *shell = x->value;
    LeftSegment *left = shell->left, *leader = left->like ? left->like : left;
    if (!cross(leader->trace, shell->value) && leader->entry) {
        leader->missed = true;
        call->due = leader;
    }
    if (!x->storage)
        compute_waiting(call, left);
    else
        promise_met(shell);
}

void segment_lost(Call *call, Tensor *x) {
    LeftShell *shell = x->value;
    LeftSegment *left = shell->left;
    promise_forget(shell, false);
    shell->x = NULL;
    left->alive--;
    if (is_over(left)) free_left(call, left);
}

const void *segment_storage_of(const Tensor *x) {
    const LeftShell *shell = x->value;
    return value_storage(shell->left->trace, shell->left->value, shell->value);
}

void segment_compute_all(Call *call) {
    for (LeftSegment *left = call->left; left; left = left->next) compute_waiting(call, left);
}

void segment_outlived(Call *call) {
    for (LeftSegment *left = call->left; left; left = left->next)
        for (int k = 0; k < left->shells; k++)
            if (left->shell[k].x) segment_met(call, left->shell[k].x);
}

void segment_before_hook(Call *call) {
    for (LeftSegment *left = call->left; left; left = left->next)
        if (trace_has_backward(left->trace, length(left->trace->op))) compute_waiting(call, left);
}

static LeftSegment *find_reader(const Call *call, const Storage *storage) {
    LeftRead *read = *chain_of(call, storage);
    while (read && read->storage != storage) read = read->next;
    return read ? read->left : NULL;
}

static void before_write(Call *call, const Storage *storage) {
    LeftSegment *left;
    while (call->read_count && (left = find_reader(call, storage))) compute_waiting(call, left);
}

void segment_before_writes(Call *call, const Tensor *written) {
    const Trace *trace = call->trace;
    if (written && written->storage) before_write(call, written->storage);
    for (int i = 0; call->read_count && !written && i < call->at; i++) {
        int root = trace_written_by(trace, i);
        if (root != NO_VALUE) before_write(call, call->value[root]->storage);
    }
}
