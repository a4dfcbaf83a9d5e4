/* Public functions over several tensors: split, chunk, sort, topk, cat, stack.
 *
 * Each is a few op calls, so a tracer sees rows of the op table and nothing else. Tensors on the
 * way die before the function returns; on failure none is left over.
 *
 *     traced, cb_cat({a, b, c, d}, 4, 0) -> concat(concat(a, b), concat(c, d)) */
#include "eager/apply.h"
#include "eager/tape.h"

#include "base/memory.h"
#include "tensor/place.h"
#include <string.h>

/* dim counted from the front, for a tensor of this rank; -1 with an error. */
static int position(const char *op, int rank, int dim) {
    int i = dim < 0 ? dim + rank : dim;
    if (i >= 0 && i < rank) return i;
    fail(CB_ERR_INDEX, "%s: dimension %d is out of range [%d, %d]", op, dim, -rank, rank - 1);
    return -1;
}

/* The same for *dim; where the rank is unknown (tensor_known) it stays as given. */
static bool place(const char *op, const Tensor *x, int rank, int *dim) {
    if (x->dtype < 0) return true;
    *dim = position(op, rank, *dim);
    return *dim >= 0;
}

static Tensor *slice(Tensor *x, int dim, int64_t start, int64_t end) {
    Attrs attrs = attrs_default(OP_slice);
    attrs.word[ATTR_slice_dim] = dim;
    attrs.word[ATTR_slice_start] = start;
    attrs.word[ATTR_slice_end] = end;
    cb_operand input = cb_operand_tensor(x);
    return apply(OP_slice, &input, 1, &attrs);
}

static Tensor *concat(Tensor *a, Tensor *b, int dim) {
    Attrs attrs = attrs_default(OP_concat);
    attrs.word[ATTR_concat_dim] = dim;
    const cb_operand input[] = {cb_operand_tensor(a), cb_operand_tensor(b)};
    return apply(OP_concat, input, 2, &attrs);
}

static Tensor *gather(Tensor *x, int dim, Tensor *index) {
    Attrs attrs = attrs_default(OP_gather);
    attrs.word[ATTR_gather_dim] = dim;
    const cb_operand input[] = {cb_operand_tensor(x), cb_operand_tensor(index)};
    return apply(OP_gather, input, 2, &attrs);
}

/* ---- split ----------------------------------------------------------------------------------- */

/* Pieces of size elements along dim, the last one shorter; count of them, or a status. */
static int pieces(const char *op, Tensor *x, int64_t size, int64_t count, int dim, Tensor **out,
                  int capacity) {
    if (count > capacity || !out)
        return fail(CB_ERR_ARGUMENT, "%s: %lld pieces do not fit into an array of %d", op,
                    (long long)count, out ? capacity : 0);
    for (int64_t i = 0; i < count; i++) {
        int64_t start = i * size, left = x->size[dim] - start;
        out[i] = slice(x, dim, start, start + (left < size ? left : size));
        if (out[i]) continue;
        while (i-- > 0) {
            tensor_destroy(out[i]);
            out[i] = NULL;
        }
        return cb_error_status();
    }
    return (int)count;
}

static int pieces_out(int count, Tensor **out) {
    for (int i = 0; i < count; i++) out[i] = tensor_out(out[i]);
    return count;
}

int cb_split(cb_tensor *handle, int64_t size, int dim, cb_tensor **out, int capacity) {
    Tensor *x = tensor_in(handle, "split");
    if (!x) return fail(CB_ERR_ARGUMENT, "split: input 0 (x) is NULL");
    if (!tensor_known(x, "split")) return cb_error_status();
    int d = position("split", x->rank, dim);
    if (d < 0) return cb_error_status();
    int64_t total = x->size[d];
    if (size < 0 || (size == 0 && total != 0))
        return fail(CB_ERR_ARGUMENT, "split: pieces of size %lld do not cover a dimension of %lld",
                    (long long)size, (long long)total);
    int64_t count = total == 0 ? 1 : (total - 1) / size + 1;
    return pieces_out(pieces("split", x, size, count, d, out, capacity), out);
}

int cb_chunk(cb_tensor *handle, int64_t chunks, int dim, cb_tensor **out, int capacity) {
    Tensor *x = tensor_in(handle, "chunk");
    if (!x) return fail(CB_ERR_ARGUMENT, "chunk: input 0 (x) is NULL");
    if (!tensor_known(x, "chunk")) return cb_error_status();
    int d = position("chunk", x->rank, dim);
    if (d < 0) return cb_error_status();
    if (chunks <= 0) return fail(CB_ERR_ARGUMENT, "chunk: %lld chunks", (long long)chunks);
    int64_t total = x->size[d];
    int64_t size = total ? (total - 1) / chunks + 1 : 0;
    int64_t count = total ? (total - 1) / size + 1 : chunks;
    return pieces_out(pieces("chunk", x, size, count, d, out, capacity), out);
}

/* ---- sort and topk --------------------------------------------------------------------------- */

/* In the order of an op that gives the places; handles, as the others. */
static cb_tensor *ordered(const char *name, cb_tensor *handle, int dim, Op op, const Attrs *attrs,
                          cb_tensor **indices) {
    bool failed_before = cb_error() != NULL;
    Tensor *x = tensor_in(handle, name);
    cb_operand input = cb_operand_tensor(x);
    Tensor *index = handle && !x ? NULL : apply(op, &input, 1, attrs);
    Tensor *values = index ? gather(x, dim, index) : NULL;
    if (!values && !failed_before) op_rename_error(name);
    bool wanted = indices && values;
    if (!wanted) tensor_destroy(index);
    if (indices) *indices = wanted ? tensor_out(index) : NULL;
    return tensor_out(values);
}

cb_tensor *cb_sort(cb_tensor *x, int dim, bool descending, cb_tensor **indices) {
    Attrs attrs = attrs_default(OP_argsort);
    attrs.word[ATTR_argsort_dim] = dim;
    attrs.word[ATTR_argsort_descending] = descending;
    return ordered("sort", x, dim, OP_argsort, &attrs, indices);
}

cb_tensor *cb_topk(cb_tensor *x, int64_t k, int dim, bool largest, cb_tensor **indices) {
    Attrs attrs = attrs_default(OP_argtopk);
    attrs.word[ATTR_argtopk_k] = k;
    attrs.word[ATTR_argtopk_dim] = dim;
    attrs.word[ATTR_argtopk_largest] = largest;
    return ordered("topk", x, dim, OP_argtopk, &attrs, indices);
}

/* ---- cat and stack --------------------------------------------------------------------------- */

/* What all of x promote to together; CB_SAME where a trace does not know. */
static cb_dtype dtype_of_all(Tensor *const *x, int count) {
    cb_dtype dtype = x[0]->dtype;
    for (int i = 1; i < count && dtype >= 0; i++)
        dtype = x[i]->dtype < 0 ? CB_SAME : cb_promote(dtype, x[i]->dtype);
    return dtype;
}

/* For a tracer and the tape: a balanced tree, as deep as the logarithm of count, in the dtype of
 * all: the pairs of i64, f16, f32 would go through f16. */
static Tensor *join_tree(Tensor *const *x, int count, int dim, cb_dtype dtype) {
    if (count == 1) return dtype < 0 || x[0]->dtype == dtype ? x[0] : apply_to(x[0], dtype);
    int half = count / 2;
    Tensor *a = join_tree(x, half, dim, dtype);
    Tensor *b = a ? join_tree(x + half, count - half, dim, dtype) : NULL;
    Tensor *y = b ? concat(a, b, dim) : NULL;
    if (a != x[0]) tensor_destroy(a);
    if (b != x[half]) tensor_destroy(b);
    return y;
}

/* The meta of the joined tensor, by concat's own rule. */
static bool joined_meta(Tensor *const *x, int count, int dim, Meta *joined) {
    int place = PLACE_NOWHERE;
    *joined = tensor_meta(x[0]);
    for (int i = 0; i < count; i++) {
        Meta meta = tensor_meta(x[i]);
        if (!place_operand(&place, "cat", &meta)) return false;
    }
    for (int i = 1; i < count; i++) {
        const Meta input[] = {*joined, tensor_meta(x[i])};
        Attrs attrs = attrs_default(OP_concat);
        attrs.word[ATTR_concat_dim] = dim;
        Inferred inferred;
        if (!op_infer(OP_concat, input, 2, &attrs, &inferred)) return false;
        *joined = inferred.result;
    }
    joined->device = (uint8_t)place_device(place, DEVICE_cpu);
    return true;
}

/* Eagerly: every tensor is assigned to its part of the result, so each element moves once. */
static Tensor *join_parts(Tensor *const *x, int count, int dim) {
    Meta meta;
    if (!joined_meta(x, count, dim, &meta)) return NULL;
    Tensor *y = tensor_new(&meta);
    if (!y) return NULL;
    int64_t offset = 0;
    for (int i = 0; i < count; i++) {
        meta.size[dim] = x[i]->size[dim];
        Tensor *part = tensor_view_of(y, &meta, y->stride, offset);
        cb_operand value = cb_operand_tensor(x[i]);
        bool written = part && apply_assign(part, &value);
        tensor_destroy(part);
        if (!written) {
            tensor_destroy(y);
            return NULL;
        }
        offset += x[i]->size[dim] * y->stride[dim];
    }
    return y;
}

static Tensor *clone(Tensor *x) {
    Attrs attrs = attrs_default(OP_clone);
    cb_operand input = cb_operand_tensor(x);
    return apply(OP_clone, &input, 1, &attrs);
}

static Tensor *join(Tensor *const *x, int count, int dim) {
    if (count == 1) return clone(x[0]);
    bool recorded = tracer_current();
    for (int i = 0; i < count && !recorded; i++) {
        cb_operand operand = cb_operand_tensor(x[i]);
        recorded = tape_follows(&operand, 1);
    }
    return recorded ? join_tree(x, count, dim, dtype_of_all(x, count)) : join_parts(x, count, dim);
}

static bool check_list(const char *op, Tensor *const *x, int count) {
    if (!x || count <= 0) {
        fail(CB_ERR_ARGUMENT, "%s: expects at least one tensor", op);
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (x[i]) continue;
        fail(CB_ERR_ARGUMENT, "%s: input %d is NULL", op, i);
        return false;
    }
    return true;
}

enum { FEW_TENSORS = 8 }; /* for which the caller has room */

static Tensor **take_list(Tensor **few, int count) {
    if (count <= FEW_TENSORS) return few;
    Tensor **list = memory_alloc(sizeof *list * (size_t)count);
    if (!list) fail_memory(sizeof *list * (size_t)count);
    return list;
}

static void give_list(Tensor **few, Tensor **list) {
    if (list != few) memory_free(list);
}

/* y in the dtype of all of x: those of shape [0] are promoted with the others. y dies. */
static Tensor *in_dtype_of_all(Tensor *y, Tensor *const *x, int count) {
    cb_dtype dtype = dtype_of_all(x, count);
    if (!y || dtype < 0 || y->dtype == dtype) return y;
    Tensor *converted = apply_to(y, dtype);
    tensor_destroy(y);
    return converted;
}

Tensor *tensors_cat(Tensor *const *x, int count, int dim) {
    if (!check_list("cat", x, count)) return NULL;
    Tensor *few[FEW_TENSORS], **used = take_list(few, count);
    if (!used) return NULL;
    /* As in PyTorch, tensors of shape [0] are left out, whatever the shape of the others. */
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (x[i]->rank != 1 || x[i]->size[0] != 0) used[kept++] = x[i];
    if (!kept) used[kept++] = x[0];
    bool placed = place("cat", used[0], used[0]->rank, &dim);
    Tensor *y = placed ? join(used, kept, dim) : NULL;
    give_list(few, used);
    return kept < count ? in_dtype_of_all(y, x, count) : y;
}

static bool same_sizes(Tensor *const *x, int count) {
    for (int i = 1; i < count; i++) {
        if (x[i]->dtype < 0 || x[0]->dtype < 0) continue;
        if (x[i]->rank == x[0]->rank &&
            !memcmp(x[i]->size, x[0]->size, sizeof(int64_t) * x[0]->rank))
            continue;
        char first[128], other[128];
        Meta a = tensor_meta(x[0]), b = tensor_meta(x[i]);
        meta_format(&a, first, sizeof first);
        meta_format(&b, other, sizeof other);
        fail(CB_ERR_SHAPE, "stack: input %d is %s, input 0 is %s: sizes must be equal", i, other,
             first);
        return false;
    }
    return true;
}

static Tensor *stack(Tensor *const *x, int count, int dim) {
    if (!same_sizes(x, count)) return NULL;
    bool placed = place("stack", x[0], x[0]->rank + 1, &dim);
    Tensor *few[FEW_TENSORS], **row = placed ? take_list(few, count) : NULL;
    if (!row) return NULL;
    Attrs attrs = attrs_default(OP_unsqueeze);
    attrs.word[ATTR_unsqueeze_dim] = dim;
    int made = 0;
    for (; made < count; made++) {
        cb_operand input = cb_operand_tensor(x[made]);
        row[made] = apply(OP_unsqueeze, &input, 1, &attrs);
        if (!row[made]) break;
    }
    Tensor *y = made == count ? join(row, count, dim) : NULL;
    for (int i = 0; i < made; i++) tensor_destroy(row[i]);
    give_list(few, row);
    return y;
}

typedef Tensor *Joining(Tensor *const *x, int count, int dim);

static cb_tensor *joined(const char *op, Joining *how, cb_tensor *const *handle, int count,
                         int dim) {
    if (!check_list(op, handle, count)) return NULL;
    Tensor *few[FEW_TENSORS], **x = take_list(few, count);
    bool failed_before = cb_error() != NULL;
    Tensor *y = x && tensors_in(handle, count, op, x) ? how(x, count, dim) : NULL;
    if (!y && !failed_before) op_rename_error(op);
    give_list(few, x);
    return tensor_out(y);
}

cb_tensor *cb_cat(cb_tensor *const *x, int count, int dim) {
    return joined("cat", tensors_cat, x, count, dim);
}

cb_tensor *cb_stack(cb_tensor *const *x, int count, int dim) {
    return joined("stack", stack, x, count, dim);
}
