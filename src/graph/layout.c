/* Pass layout: networks of convolutions run channels-last.
 * needs primitive ops; keeps them; breaks nothing.
 *
 *     convolution(x, w)      ->  permute(convolution(permute(x), permute(w), channels_last=true))
 *     relu(permute(y)), max over windows of it, ...  ->  permute(relu(y)) ...
 *
 * Channels side by side suit the vectors of convolutions, pools and norms alike. Each node has up
 * to two spellings: plain, as the user wrote it, and last, whose dims are the same in another
 * order; plain dim i is dim perm[i] of last. Convolutions give a last spelling, pointwise ops,
 * pools, pads and reductions keep it, and whatever else wants its input plain makes the transpose
 * appear right there. So a whole network has transposes at its edges, most of which are views of
 * its inputs.
 *
 * A graph with fewer than LEAST convolutions is left alone: the edges would cost more. So is a
 * convolution of fewer channels than make a vector, a filter of a picture: positions are the lanes
 * of those, channels first (cpu/conv_planes.c). */
#include "graph/call.h"
#include "graph/rewrite.h"

#include <string.h>

enum { LEAST = 3, LANES = 8 };

typedef struct Spelling { /* the last spelling; node NULL: there is none */
    Node *node;
    int perm[CB_MAX_RANK];
} Spelling;

typedef struct Layout {
    Graph *graph;
    Node **plain;   /* by id of the old node; NULL: not needed so far */
    Spelling *form; /* the same */
} Layout;

/* ---- permutations ------------------------------------------------------------------------- */

static Node *permuted(Layout *l, Node *x, const int *dims) {
    cb_dim_list list = {x->rank, {0}};
    for (int i = 0; i < x->rank; i++) list.at[i] = dims[i];
    Node *node = call_permute(l->graph, x, list);
    if (node->op == OP_permute) node = simplify_node(l->graph, node);
    return node->op == OP_reshape ? simplify_node(l->graph, node) : node;
}

static void invert(const int *perm, int rank, int *inverse) {
    for (int i = 0; i < rank; i++) inverse[perm[i]] = i;
}

static Node *plain(Layout *l, const Node *old) {
    Node **node = &l->plain[old->id];
    if (!*node) *node = permuted(l, l->form[old->id].node, l->form[old->id].perm);
    return *node;
}

/* The node's last spelling under perm, made from the plain one when it has another. */
static Node *last(Layout *l, const Node *old, const int *perm) {
    const Spelling *form = &l->form[old->id];
    int inverse[CB_MAX_RANK];
    if (form->node && !memcmp(form->perm, perm, sizeof *perm * old->rank)) return form->node;
    invert(perm, old->rank, inverse);
    return permuted(l, plain(l, old), inverse);
}

static void set_form(Layout *l, const Node *old, Node *node, const int *perm) {
    bool moved = false;
    for (int i = 0; i < old->rank; i++) moved |= perm[i] != i;
    if (!moved) {
        l->plain[old->id] = node;
        return;
    }
    l->form[old->id].node = node;
    memcpy(l->form[old->id].perm, perm, sizeof *perm * old->rank);
}

static void reorder(const int64_t *size, const int *perm, int rank, int64_t *out) {
    for (int i = 0; i < rank; i++) out[perm[i]] = size[i];
}

/* ---- convolutions ------------------------------------------------------------------------- */

/* Whether it may be spelled last, and wins by it. */
static bool has_lanes(const Node *node) {
    if (node->op != OP_convolution || node->attrs->word[ATTR_convolution_channels_last])
        return false;
    return node->input[0]->size[1] >= LANES || node->size[1] >= LANES;
}

static bool convolution(Layout *l, const Node *old) {
    int perm[CB_MAX_RANK] = {0, old->rank - 1};
    if (!has_lanes(old)) return false;
    for (int i = 2; i < old->rank; i++) perm[i] = i - 1;
    Attrs attrs = *old->attrs;
    attrs.word[ATTR_convolution_channels_last] = true;
    Node *input[] = {last(l, old->input[0], perm), last(l, old->input[1], perm)};
    set_form(l, old, graph_op(l->graph, OP_convolution, input, 2, &attrs, NULL), perm);
    return true;
}

/* ---- pointwise ---------------------------------------------------------------------------- */

static Node *reshaped(Layout *l, Node *x, int rank, const int64_t *size) {
    Node *node = node_reshape(l->graph, x, rank, size);
    return node->op == OP_reshape ? simplify_node(l->graph, node) : node;
}

/* An operand that broadcasts, or has no last spelling: single numbers as they are. */
static Node *operand(Layout *l, const Node *old, int rank, const int *perm) {
    int64_t size[CB_MAX_RANK];
    int inverse[CB_MAX_RANK], shift = rank - old->rank;
    if (old->rank == rank && l->form[old->id].node) return last(l, old, perm);
    Node *x = plain(l, old), *uniform = node_uniform(x);
    if (uniform) return uniform;
    if (node_numel(x) == 1) return node_reshape(l->graph, x, 0, NULL);
    for (int i = 0; i < rank; i++) size[i] = i < shift ? 1 : old->size[i - shift];
    invert(perm, rank, inverse);
    return permuted(l, reshaped(l, x, rank, size), inverse);
}

static bool pointwise(Layout *l, const Node *old) {
    const int *perm = NULL;
    for (int k = 0; k < old->input_count && !perm; k++) {
        const Node *input = old->input[k];
        bool full = input->rank == old->rank && node_numel(input) == node_numel(old);
        if (full && l->form[input->id].node) perm = l->form[input->id].perm;
    }
    if (!perm) return false;
    Node *input[NODE_MAX_INPUTS];
    for (int k = 0; k < old->input_count; k++)
        input[k] = operand(l, old->input[k], old->rank, perm);
    Meta meta = {.dtype = old->dtype, .rank = old->rank};
    reorder(old->size, perm, old->rank, meta.size);
    set_form(l, old, graph_intern(l->graph, old->op, &meta, input, old->input_count, old->attrs),
             perm);
    return true;
}

/* ---- what runs along dims ----------------------------------------------------------------- */

static bool reduce(Layout *l, const Node *old) {
    const Node *x = old->input[0];
    const Spelling *form = &l->form[x->id];
    cb_dim_list dims = attr_dims(old->attrs, ATTR_sum_dim);
    bool keep = old->attrs->word[ATTR_sum_keepdim], gone[CB_MAX_RANK] = {false};
    int perm[CB_MAX_RANK], rank = 0;
    for (int i = 0; i < dims.count; i++) gone[dims.at[i] = form->perm[dims.at[i]]] = true;
    for (int i = 0; i < x->rank; i++) { /* plain dim i of the result, if it stays */
        if (gone[form->perm[i]] && !keep) continue;
        perm[rank] = form->perm[i];
        for (int j = 0; j < form->perm[i]; j++) perm[rank] -= gone[j] && !keep;
        rank++;
    }
    Attrs attrs = *old->attrs;
    attr_set_dims(&attrs, ATTR_sum_dim, dims);
    Node *input = form->node;
    set_form(l, old, graph_op(l->graph, old->op, &input, 1, &attrs, NULL), perm);
    return true;
}

static bool pad(Layout *l, const Node *old) {
    const Spelling *form = &l->form[old->input[0]->id];
    cb_dim_list given = attr_dims(old->attrs, ATTR_pad_padding), padding = {0, {0}};
    for (int i = 0; i < given.count; i += 2) {
        int from_last = 2 * (old->rank - 1 - form->perm[old->rank - 1 - i / 2]);
        if (from_last + 2 > CB_MAX_RANK) return false;
        padding.at[from_last] = given.at[i];
        padding.at[from_last + 1] = given.at[i + 1];
        if (padding.count < from_last + 2) padding.count = from_last + 2;
    }
    Attrs attrs = *old->attrs;
    attr_set_dims(&attrs, ATTR_pad_padding, padding);
    Node *input = form->node;
    set_form(l, old, graph_op(l->graph, OP_pad, &input, 1, &attrs, NULL), form->perm);
    return true;
}

/* Views, joins and picks along one dim, whose number stands in the given word. */
static bool along_dim(Layout *l, const Node *old, int word) {
    const Spelling *form = &l->form[old->input[0]->id];
    int perm[CB_MAX_RANK];
    Attrs attrs = *old->attrs;
    memcpy(perm, form->perm, sizeof perm);
    if (old->op == OP_window) perm[old->rank - 1] = old->rank - 1;
    attrs.word[word] = form->perm[attrs.word[word]];
    Node *input[] = {form->node, NULL};
    if (old->op == OP_concat) input[1] = last(l, old->input[1], form->perm);
    if (old->op == OP_index_select) input[1] = plain(l, old->input[1]);
    set_form(l, old, graph_op(l->graph, old->op, input, old->input_count, &attrs, NULL), perm);
    return true;
}

static bool flip(Layout *l, const Node *old) {
    const Spelling *form = &l->form[old->input[0]->id];
    cb_dim_list dims = attr_dims(old->attrs, ATTR_flip_dims);
    for (int i = 0; i < dims.count; i++) dims.at[i] = form->perm[dims.at[i]];
    Attrs attrs = {{0}};
    attr_set_dims(&attrs, ATTR_flip_dims, dims);
    Node *input = form->node;
    set_form(l, old, graph_op(l->graph, OP_flip, &input, 1, &attrs, NULL), form->perm);
    return true;
}

/* Its index and what it adds lie in the same order. */
static bool scatter(Layout *l, const Node *old) {
    const Spelling *form = &l->form[old->input[2]->id], *index = &l->form[old->input[1]->id];
    bool same = form->node && index->node && old->rank == old->input[2]->rank &&
                !memcmp(form->perm, index->perm, sizeof *form->perm * old->rank);
    if (!same) return false;
    Attrs attrs = *old->attrs;
    attrs.word[ATTR_scatter_add_dim] = form->perm[attrs.word[ATTR_scatter_add_dim]];
    Node *input[] = {last(l, old->input[0], form->perm), index->node, form->node};
    set_form(l, old, graph_op(l->graph, old->op, input, 3, &attrs, NULL), form->perm);
    return true;
}

/* The next dim from i on that has more than one element, or rank. */
static int next_dim(const Node *x, int i) {
    while (i < x->rank && x->size[i] == 1) i++;
    return i;
}

/* Dim j of x comes right behind dim i in the last spelling, but for dims of one element. */
static bool is_behind(const Node *x, const int *perm, int i, int j) {
    for (int k = 0; k < x->rank; k++)
        if (x->size[k] != 1 && perm[k] > perm[i] && perm[k] < perm[j]) return false;
    return perm[i] < perm[j];
}

/* Dims of x from i on and of y from j on that have as many elements, as few as can be: where they
 * end. False: those of x are no neighbours in the last spelling. */
static bool find_group(const Node *x, const int *perm, const Node *y, int *i, int *j) {
    int last_dim = *i;
    int64_t of_x = x->size[(*i)++], of_y = y->size[(*j)++];
    while (of_x != of_y) {
        int k = of_x < of_y ? next_dim(x, *i) : next_dim(y, *j);
        if (of_x > of_y) {
            of_y *= y->size[k], *j = k + 1;
            continue;
        }
        if (!is_behind(x, perm, last_dim, k)) return false;
        of_x *= x->size[k], *i = k + 1, last_dim = k;
    }
    return true;
}

/* Dims that are merged are neighbours in the last spelling, too: (n, h w, c) of (n, c, h w). Those
 * of one element stay where they are. */
static bool reshape(Layout *l, const Node *old) {
    const Node *x = old->input[0];
    const int *from = l->form[x->id].perm;
    int key[CB_MAX_RANK], perm[CB_MAX_RANK], place = 0;
    if (node_numel(x) == 0) return false;
    for (int j = next_dim(old, 0), i = next_dim(x, 0); j < old->rank;) {
        int first = i, begin = j;
        if (!find_group(x, from, old, &i, &j)) return false;
        for (int k = begin; k < j; k++) key[k] = from[first];
        i = next_dim(x, i), j = next_dim(old, j);
    }
    int64_t size[CB_MAX_RANK];
    for (int at = 0; at < CB_MAX_RANK; at++) /* groups in the order of the last spelling */
        for (int j = next_dim(old, 0); j < old->rank; j = next_dim(old, j + 1)) {
            if (key[j] != at) continue;
            while (old->size[place] == 1) place++;
            perm[j] = place++;
        }
    for (int j = 0; j < old->rank; j++)
        if (old->size[j] == 1) perm[j] = j;
    reorder(old->size, perm, old->rank, size);
    set_form(l, old, reshaped(l, l->form[x->id].node, old->rank, size), perm);
    return true;
}

/* The user's own transpose costs nothing: only the order of plain changes. */
static bool permute(Layout *l, const Node *old) {
    const Spelling *form = &l->form[old->input[0]->id];
    cb_dim_list dims = attr_dims(old->attrs, ATTR_permute_dims);
    int perm[CB_MAX_RANK];
    for (int i = 0; i < old->rank; i++) perm[i] = form->perm[dims.at[i]];
    set_form(l, old, form->node, perm);
    return true;
}

/* ---- the walk ----------------------------------------------------------------------------- */

static bool keeps_form(Layout *l, const Node *old) {
    OpKind kind = op_info(old->op)->kind;
    if (old->op == OP_convolution) return convolution(l, old);
    if (kind == KIND_POINTWISE) return pointwise(l, old);
    if (old->op == OP_scatter_add) return scatter(l, old);
    if (!old->input_count || !l->form[old->input[0]->id].node) return false;
    if (kind == KIND_REDUCE) return reduce(l, old);
    switch (old->op) {
    case OP_pad:
        return pad(l, old);
    case OP_window:
        return along_dim(l, old, ATTR_window_dim);
    case OP_slice:
        return along_dim(l, old, ATTR_slice_dim);
    case OP_concat:
        return along_dim(l, old, ATTR_concat_dim);
    case OP_index_select:
        return along_dim(l, old, ATTR_index_select_dim);
    case OP_flip:
        return flip(l, old);
    case OP_reshape:
        return reshape(l, old);
    case OP_permute:
        return permute(l, old);
    default:
        return false;
    }
}

static void rebuild(Layout *l, Node *old) {
    Node *input[NODE_MAX_INPUTS];
    if (keeps_form(l, old)) return;
    for (int k = 0; k < old->input_count; k++) input[k] = plain(l, old->input[k]);
    l->plain[old->id] = graph_with_inputs(l->graph, old, input);
}

void pass_layout(Graph *graph, Budget *budget) {
    Node **order = graph_order(graph);
    int convolutions = 0;
    for (int i = 0; i < length(order); i++) convolutions += has_lanes(order[i]);
    if (convolutions < LEAST || !budget_spend(budget)) return;
    Origin origin = graph->origin;
    Layout l = {.graph = graph};
    l.plain = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    l.form = arena_new_array(graph->arena, Spelling, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++) {
        graph->origin = order[i]->origin;
        rebuild(&l, order[i]);
    }
    for (int i = 0; i < length(graph->effect); i++) graph->effect[i] = plain(&l, graph->effect[i]);
    for (int i = 0; i < length(graph->output); i++) graph->output[i] = plain(&l, graph->output[i]);
    for (int i = 0; i < length(graph->mutation); i++)
        graph->mutation[i].value = plain(&l, graph->mutation[i].value);
    for (int i = 0; i < length(graph->check); i++)
        graph->check[i].index = plain(&l, graph->check[i].index);
    graph->origin = origin;
}
