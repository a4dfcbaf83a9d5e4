/* Guards: what an entry was compiled for, and whether a call's inputs are that.
 *
 * dtype, device, rank and sizes must be equal; so must strides, unless both are contiguous. Inputs
 * that were one tensor, and have one name in the trace, must be one again. Inputs that were two may
 * be one, unless the entry writes to it, or it requires a gradient; they have as many handles as
 * before where the function, which may compare those, does not run again (fullgraph). Tensors that
 * overlap without being one are like any others until one of them is written to: which of them
 * eager would have written first, no graph of values can say, so such a call runs eagerly
 * (entry_values_apart).
 *
 *     f(x, x) recorded as add(%0, %0): holds for f(y, y), not for f(x, y) */
#include "capture/function.h"

#include <string.h>

void guard_make(Guard *guard, const Tensor *x, bool grad) {
    memset(guard, 0, sizeof *guard);
    guard->dtype = x->dtype;
    guard->rank = x->rank;
    guard->device = x->device;
    guard->history = tape_kind(x, grad);
    guard->contiguous = tensor_contiguous(x);
    memcpy(guard->size, x->size, sizeof(int64_t) * x->rank);
    if (guard->contiguous)
        contiguous_strides(guard->rank, guard->size, guard->stride);
    else
        memcpy(guard->stride, x->stride, sizeof(int64_t) * x->rank);
}

/* A contiguous tensor mostly has the strides that follow from its sizes, but need not have those of
 * dimensions with one element. */
bool guard_holds(const Guard *guard, const Tensor *x, bool grad) {
    bool same = true;
    if (guard->dtype != x->dtype || guard->rank != x->rank || guard->device != x->device ||
        guard->history != tape_kind(x, grad))
        return false;
    for (int i = 0; i < guard->rank; i++) {
        if (guard->size[i] != x->size[i]) return false;
        same &= guard->stride[i] == x->stride[i];
    }
    return same || (guard->contiguous && tensor_contiguous(x));
}

bool guard_holds_resized(const Guard *guard, const Tensor *x, bool grad) {
    return guard->dtype == x->dtype && guard->rank == x->rank && guard->device == x->device &&
           guard->history == tape_kind(x, grad) && guard->contiguous == tensor_contiguous(x);
}

void guard_print(const Guard *guard, Buffer *out) {
    put(out, cb_dtype_name(guard->dtype));
    put_sizes(out, guard->rank, guard->size);
    if (!device_is_host(guard->device)) putf(out, " on %s", devices[guard->device]->name);
    if (guard->history == HISTORY_OF_LEAF) put(out, " requiring a gradient");
    bool foreign = guard->history == HISTORY_FOREIGN;
    if (foreign) put(out, " with a history");
    if (guard->contiguous) return;
    put(out, foreign ? " and strides " : " strides ");
    put_sizes(out, guard->rank, guard->stride);
}

/* ---- which tensors are one ------------------------------------------------------------------- */

int input_first(Tensor *const *input, int i) {
    for (int k = 0; k < i; k++)
        if (same_tensor(input[k], input[i])) return k;
    return i;
}

int input_handle(Tensor *const *input, int i) {
    int k = 0;
    while (input[k] != input[i]) k++;
    return k;
}

/* No two of them lie in one storage. Asked first where each that is written is compared with all
 * others. False, too, where that takes no longer. */
static bool are_apart(const Entry *entry, Tensor *const *value, int captured) {
    Tensor *x[MOST_APART];
    int count = 0;
    if (!entry->mutated_count || entry->input_count + captured > MOST_APART) return false;
    for (int i = 0; i < entry->input_count; i++) x[count++] = value[i];
    for (int k = 0; k < captured; k++)
        if (entry->captured[k] != NO_VALUE) x[count++] = value[entry->captured[k]];
    return tensors_apart(x, count, entry->mutated_count);
}

void entry_note_handles(Entry *entry, Tensor *const *input) {
    entry->handle = arena_new_array(entry->trace->arena, int, entry->input_count + 1);
    for (int i = 0; i < entry->input_count; i++) entry->handle[i] = input_handle(input, i);
}

/* fullgraph: without the function, which may compare its handles. An input whose handle is now that
 * of another one, or not any more; NO_VALUE: none. */
static int find_other_handle(const Entry *entry, Tensor *const *input) {
    int inputs = entry->handle ? entry->input_count : 0, known = 0;
    Tensor *first[CB_MAX_ARGS];
    for (int i = 0; i < inputs; i++) {
        int k = entry->handle[i];
        if (input[i] != input[k]) return i;
        if (k == i) first[known++] = input[i];
    }
    if (inputs < 2 || tensors_differ(first, known)) return NO_VALUE;
    int joined = 0; /* there is one */
    while (entry->handle[joined] == input_handle(input, joined)) joined++;
    return joined;
}

/* An input that was the same tensor as another one and is not any more; NO_VALUE: none. */
static int find_parted(const Entry *entry, Tensor *const *input) {
    for (int i = 0; i < entry->input_count; i++)
        if (entry->first[i] != i && !same_tensor(input[entry->first[i]], input[i])) return i;
    return NO_VALUE;
}

/* An input that is now the tensor of another leaf, each of which is given its own gradient. */
static int find_joined_leaf(const Entry *entry, Tensor *const *input, int *leaf) {
    Tensor *x[CB_MAX_ARGS];
    int count = 0, leaves = 0;
    for (int i = 0; i < entry->input_count; i++) {
        if (entry->first[i] != i) continue;
        leaves += entry->guard[i].history == HISTORY_OF_LEAF;
        x[count++] = input[i];
    }
    if (!leaves || tensors_apart(x, count, leaves)) return NO_VALUE;
    for (int i = 0; i < entry->input_count; i++) {
        if (entry->guard[i].history != HISTORY_OF_LEAF || entry->first[i] != i) continue;
        *leaf = input_first(input, i);
        if (*leaf != i) return i;
    }
    return NO_VALUE;
}

/* An input that is now the tensor of a written one, or of a leaf; NO_VALUE: none. */
static int find_joined(const Entry *entry, Tensor *const *input, int *written) {
    int joined = find_joined_leaf(entry, input, written);
    if (joined != NO_VALUE) return joined;
    if (!entry->mutated_count || are_apart(entry, input, 0)) return NO_VALUE;
    bool overlaps[CB_MAX_ARGS];
    tensors_mark_overlaps(input, entry->input_count, overlaps);
    for (int k = 0; k < entry->mutated_count; k++) {
        int m = *written = entry->mutated[k];
        if (m >= entry->input_count || !overlaps[m]) continue;
        for (int i = 0; i < entry->input_count; i++)
            if (entry->first[i] != m && same_tensor(input[m], input[i])) return i;
    }
    return NO_VALUE;
}

bool entry_holds(const Entry *entry, Ambient now, bool grad, Tensor *const *input,
                 int input_count) {
    int written;
    if (entry->input_count != input_count || !ambient_equal(entry->ambient, now) ||
        !objects_hold(entry->trace))
        return false;
    for (int i = 0; i < input_count; i++)
        if (!guard_holds(&entry->guard[i], input[i], grad)) return false;
    return input_count < 2 || (find_parted(entry, input) == NO_VALUE &&
                               find_joined(entry, input, &written) == NO_VALUE &&
                               find_other_handle(entry, input) == NO_VALUE);
}

bool entry_describe_aliases(const Entry *entry, Tensor *const *input, char *out, size_t bytes) {
    int written, i = find_parted(entry, input);
    if (i != NO_VALUE) {
        snprintf(out, bytes,
                 "input %d is another tensor than input %d, for entry %d it was the same", i,
                 entry->first[i], entry->number);
        return true;
    }
    i = find_joined(entry, input, &written);
    if (i != NO_VALUE) {
        snprintf(out, bytes, "input %d is the same tensor as input %d, which %s: not in entry %d",
                 i, written,
                 entry->guard[i].history == HISTORY_OF_LEAF ? "requires a gradient" : "is written",
                 entry->number);
        return true;
    }
    i = find_other_handle(entry, input);
    if (i == NO_VALUE) return false;
    int now = input_handle(input, i), then = entry->handle[i];
    snprintf(out, bytes, "input %d is the handle of input %d%s: not in entry %d", i,
             now < then ? now : then, now < then ? "" : " no more", entry->number);
    return true;
}

/* ---- which tensors overlap ------------------------------------------------------------------- */

void entry_name_value(const Entry *entry, int v, char *out, size_t bytes) {
    const char *path = entry->trace->value[v].path;
    if (v < entry->input_count)
        snprintf(out, bytes, "input %d", v);
    else if (path)
        snprintf(out, bytes, "%s", path);
    else
        snprintf(out, bytes, "captured %%%d", v);
}

/* Value v shares memory with the written m, and is not called by its name. */
static bool clashes(const Entry *entry, Tensor *const *value, int m, int v) {
    if (v == m || (v < entry->input_count && entry->first[v] == m)) return false;
    return tensors_overlap(value[v], value[m]);
}

static int find_clash(const Entry *entry, Tensor *const *value, int m) {
    for (int v = 0; v < entry->input_count; v++)
        if (clashes(entry, value, m, v)) return v;
    for (int k = 0; k < entry->captured_count; k++) {
        int v = entry->captured[k];
        if (v != NO_VALUE && clashes(entry, value, m, v)) return v;
    }
    return NO_VALUE;
}

static bool is_mutated(const Entry *entry, int v) {
    for (int i = 0; i < entry->mutated_count; i++)
        if (entry->mutated[i] == v) return true;
    return false;
}

/* A written value that shares memory with another one, which goes to *other; NO_VALUE: none. */
static int find_written_clash(const Entry *entry, Tensor *const *value, int *other) {
    int inputs = entry->input_count, all = inputs + entry->captured_count;
    Tensor *x[all + 1];
    int number[all + 1], count = 0;
    bool overlaps[all + 1];
    memset(x, 0, sizeof x);
    for (int k = 0; k < all; k++) {
        int v = k < inputs ? k : entry->captured[k - inputs];
        if (v != NO_VALUE) x[count] = value[v], number[count++] = v;
    }
    tensors_mark_overlaps(x, count, overlaps);
    for (int k = 0; k < count; k++) {
        if (!overlaps[k] || !is_mutated(entry, number[k])) continue;
        *other = find_clash(entry, value, number[k]);
        if (*other != NO_VALUE) return number[k];
    }
    return NO_VALUE;
}

/* The same of more tensors than are sorted. */
static int find_any_clash(const Entry *entry, Tensor *const *value, int *other) {
    for (int i = 0; i < entry->mutated_count; i++) {
        *other = find_clash(entry, value, entry->mutated[i]);
        if (*other != NO_VALUE) return entry->mutated[i];
    }
    return NO_VALUE;
}

bool entry_values_apart(const Entry *entry, Tensor *const *value, char *out, size_t bytes) {
    if (!entry->mutated_count || are_apart(entry, value, entry->captured_count)) return true;
    bool few = entry->input_count + entry->captured_count <= MOST_APART;
    int other = NO_VALUE, m = (few ? find_written_clash : find_any_clash)(entry, value, &other);
    if (m == NO_VALUE) return true;
    char written[64], second[64];
    entry_name_value(entry, m, written, sizeof written);
    entry_name_value(entry, other, second, sizeof second);
    snprintf(out, bytes, "%s, which is written, and %s", written, second);
    return false;
}
