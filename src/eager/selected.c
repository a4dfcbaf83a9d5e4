/* Public functions whose result is as large as a value says: nonzero, masked_select.
 *
 *     masked_select([5, 6, 7], [1, 0, 1])
 *         mask -> sum: 2, asked for as cb_item asks     a compiled function is cut here
 *         positions(mask, 2): [0, 2]                    the op that has the rest of the work
 *         index_select([5, 6, 7], 0, [0, 2]): [5, 7]
 *
 * Each is a few op calls, so a tracer sees rows of the op table and nothing else. Tensors on the
 * way die before the function returns. */
#include "eager/apply.h"

#include "tensor/read.h"

static Tensor *call_one(Op op, Tensor *x, const Attrs *attrs) {
    cb_operand input = cb_operand_tensor(x);
    Attrs plain = attrs_default(op);
    return x ? apply(op, &input, 1, attrs ? attrs : &plain) : NULL;
}

static Tensor *call_two(Op op, Tensor *x, cb_operand y, const Attrs *attrs) {
    const cb_operand input[] = {cb_operand_tensor(x), y};
    Attrs plain = attrs_default(op);
    return x ? apply(op, input, 2, attrs ? attrs : &plain) : NULL;
}

/* The op takes the place of *x, which dies. */
static void become(Tensor **x, Tensor *y) {
    tensor_destroy(*x);
    *x = y;
}

static Tensor *reshaped(Tensor *x, cb_dim_list sizes) {
    Attrs attrs = attrs_default(OP_reshape);
    attr_set_dims(&attrs, ATTR_reshape_sizes, sizes);
    return call_one(OP_reshape, x, &attrs);
}

/* x of these sizes, in one dim. */
static Tensor *flat(Tensor *x, const Meta *meta) {
    Attrs attrs = attrs_default(OP_expand);
    attr_set_dims(&attrs, ATTR_expand_sizes, size_list(meta->rank, meta->size));
    Tensor *whole = call_one(OP_expand, x, &attrs);
    Tensor *row = reshaped(whole, (cb_dim_list){1, {meta_numel(meta)}});
    tensor_destroy(whole);
    return row;
}

/* Where a flat mask is true. */
static Tensor *positions(Tensor *mask, const char *what) {
    Tensor *sum = call_one(OP_sum, mask, NULL);
    Scalar count;
    bool known = sum && tensor_item(sum, what, &count);
    tensor_destroy(sum);
    if (!known) return NULL;
    Attrs attrs = attrs_default(OP_positions);
    attrs.word[ATTR_positions_count] = count.i;
    return call_one(OP_positions, mask, &attrs);
}

/* What both x and mask are broadcast to. */
static bool broadcast(Tensor *x, Tensor *mask, Meta *meta) {
    const Meta input[] = {tensor_meta(x), tensor_meta(mask)};
    Attrs attrs = attrs_default(OP_ne);
    Inferred inferred;
    if (!op_infer(OP_ne, input, 2, &attrs, &inferred)) return false;
    *meta = inferred.result;
    return true;
}

static Tensor *masked_select(Tensor *x, Tensor *mask) {
    static const char name[] = "masked_select";
    Meta meta;
    if (!tensor_known(x, name) || !tensor_known(mask, name)) return NULL;
    if (mask->dtype != CB_BOOL) {
        char given[2][128];
        const Meta meta_of_x = tensor_meta(x), meta_of_mask = tensor_meta(mask);
        meta_format(&meta_of_x, given[0], sizeof given[0]);
        meta_format(&meta_of_mask, given[1], sizeof given[1]);
        fail(CB_ERR_DTYPE, "%s: the mask is %s, not bool: %s, %s", name, cb_dtype_name(mask->dtype),
             given[0], given[1]);
        return NULL;
    }
    if (!broadcast(x, mask, &meta)) return NULL;
    Tensor *row = flat(mask, &meta), *place = row ? positions(row, name) : NULL;
    become(&row, place ? flat(x, &meta) : NULL);
    become(&row, call_two(OP_index_select, row, cb_operand_tensor(place), NULL));
    tensor_destroy(place);
    return row;
}

/* For a divisor: among no elements there are no places to divide. */
static int64_t size_of(const Tensor *x, int dim) { return x->size[dim] ? x->size[dim] : 1; }

/* The place along dim of flat places, as a column. */
static Tensor *column(Tensor *place, const Tensor *x, int dim) {
    int64_t inner = 1;
    for (int i = dim + 1; i < x->rank; i++) inner *= size_of(x, i);
    Tensor *y = call_two(OP_floor_divide, place, cb_operand_int(inner), NULL);
    if (dim > 0) become(&y, call_two(OP_remainder, y, cb_operand_int(size_of(x, dim)), NULL));
    become(&y, reshaped(y, (cb_dim_list){2, {place->size[0], 1}}));
    return y;
}

/* A tensor without dims has places, but they have no parts. */
static Tensor *places_of_nothing(const Tensor *place) {
    Attrs attrs = attrs_default(OP_full);
    attr_set_dims(&attrs, ATTR_full_sizes, (cb_dim_list){2, {place->size[0], 0}});
    attr_set_number(&attrs, ATTR_full_value, cb_operand_int(0));
    attrs.word[ATTR_full_dtype] = CB_I64;
    return apply(OP_full, NULL, 0, &attrs);
}

static Tensor *by_dim(Tensor *place, const Tensor *x) {
    Tensor *part[CB_MAX_RANK], *y = NULL;
    int made = 0;
    if (!x->rank) return places_of_nothing(place);
    while (made < x->rank && (part[made] = column(place, x, made))) made++;
    if (made == x->rank) y = tensors_cat(part, made, 1);
    while (made) tensor_destroy(part[--made]);
    return y;
}

static Tensor *nonzero(Tensor *x) {
    static const char name[] = "nonzero";
    if (!tensor_known(x, name)) return NULL;
    Meta meta = tensor_meta(x);
    Tensor *row = call_two(OP_ne, x, cb_operand_int(0), NULL);
    become(&row, row ? flat(row, &meta) : NULL);
    become(&row, row ? positions(row, name) : NULL);
    become(&row, row ? by_dim(row, x) : NULL);
    return row;
}

cb_tensor *cb_nonzero(cb_tensor *handle) {
    bool failed_before = cb_error() != NULL;
    Tensor *x = tensor_in(handle, "nonzero"), *y = x ? nonzero(x) : NULL;
    if (!y && !failed_before) op_rename_error("nonzero");
    return tensor_out(y);
}

cb_tensor *cb_masked_select(cb_tensor *handle, cb_tensor *mask_handle) {
    bool failed_before = cb_error() != NULL;
    Tensor *x = tensor_in(handle, "masked_select"), *mask = tensor_in(mask_handle, "masked_select");
    Tensor *y = x && mask ? masked_select(x, mask) : NULL;
    if (!y && !failed_before) op_rename_error("masked_select");
    return tensor_out(y);
}
