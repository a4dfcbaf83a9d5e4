/* Views as index maps: where an element of a view stands in what it views. */
#include "lower/lower.h"

#include <string.h>

void broadcast_position(Kernel *kernel, const Node *node, const Node *input, Expr *const *position,
                        Expr **input_position) {
    int shift = node->rank - input->rank;
    for (int i = 0; i < input->rank; i++) {
        bool spread = input->size[i] == 1 && node->size[i + shift] != 1;
        input_position[i] = spread ? expr_int(kernel, 0) : position[i + shift];
    }
}

static void permute_position(const Node *node, Expr *const *position, Expr **input_position) {
    cb_dim_list dims = attr_dims(node->attrs, ATTR_permute_dims);
    for (int i = 0; i < node->rank; i++) input_position[dims.at[i]] = position[i];
}

static void slice_position(Kernel *kernel, const Node *node, Expr *const *position,
                           Expr **input_position) {
    const int64_t *word = node->attrs->word;
    int dim = (int)word[ATTR_slice_dim];
    memcpy(input_position, position, sizeof *position * node->rank);
    Expr *scaled = index_scale(kernel, position[dim], word[ATTR_slice_step]);
    input_position[dim] = index_offset(kernel, scaled, word[ATTR_slice_start]);
}

static void flip_position(Kernel *kernel, const Node *node, Expr *const *position,
                          Expr **input_position) {
    cb_dim_list dims = attr_dims(node->attrs, ATTR_flip_dims);
    memcpy(input_position, position, sizeof *position * node->rank);
    for (int i = 0; i < dims.count; i++) {
        int dim = (int)dims.at[i];
        Expr *back = index_scale(kernel, position[dim], -1);
        input_position[dim] = index_offset(kernel, back, node->size[dim] - 1);
    }
}

/* Position p of the windows and w inside of a window are element p * step + w * dilation. */
static void window_position(Kernel *kernel, const Node *node, Expr *const *position,
                            Expr **input_position) {
    const int64_t *word = node->attrs->word;
    int dim = (int)word[ATTR_window_dim], last = node->rank - 1;
    memcpy(input_position, position, sizeof *position * (size_t)last);
    Expr *start = index_scale(kernel, position[dim], word[ATTR_window_step]);
    Expr *inside = index_scale(kernel, position[last], word[ATTR_window_dilation]);
    input_position[dim] = index_add(kernel, start, inside);
}

static int skip_ones(const Node *node, int dim) {
    while (dim < node->rank && node->size[dim] == 1) dim++;
    return dim;
}

/* Dims that hold the same elements on both sides, a few at a time: most often one, which keeps its
 * position as it is. A division would bring a position back into its size, where it lies whenever
 * the element is read. */
static void reshape_position(Kernel *kernel, const Node *node, Expr *const *position,
                             Expr **input_position) {
    const Node *x = node->input[0];
    int from = skip_ones(node, 0), to = skip_ones(x, 0);
    for (int i = 0; i < x->rank; i++) input_position[i] = expr_int(kernel, 0);
    while (node_numel(x) && from < node->rank && to < x->rank) {
        int from_end = from + 1, to_end = to + 1;
        int64_t have = node->size[from], want = x->size[to];
        while (have != want)
            if (have < want)
                have *= node->size[from_end++];
            else
                want *= x->size[to_end++];
        Expr *flat = index_flatten(kernel, from_end - from, node->size + from, position + from);
        index_unflatten(kernel, to_end - to, x->size + to, flat, input_position + to);
        from = skip_ones(node, from_end), to = skip_ones(x, to_end);
    }
}

void view_position(Kernel *kernel, const Node *node, Expr *const *position, Expr **input_position) {
    const Node *input = node->input[0];
    switch (node->op) {
    case OP_reshape:
        reshape_position(kernel, node, position, input_position);
        return;
    case OP_permute:
        permute_position(node, position, input_position);
        return;
    case OP_expand:
        broadcast_position(kernel, node, input, position, input_position);
        return;
    case OP_slice:
        slice_position(kernel, node, position, input_position);
        return;
    case OP_flip:
        flip_position(kernel, node, position, input_position);
        return;
    case OP_window:
        window_position(kernel, node, position, input_position);
        return;
    default:
        check(false, "%s is not a canonical view", op_info(node->op)->name);
    }
}
