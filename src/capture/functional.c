/* In-place writes and views of a trace as pure graph nodes; functional.h has the model. */
#include "capture/functional.h"

#include "eager/tape.h"
#include "graph/call.h"
#include "graph/grad/grad.h"
#include "op/custom.h"
#include <string.h>

static int add_value(Recording *recording, const TraceValue *made,
                     const FunctionalValue *functional) {
    Trace *trace = recording->trace;
    TraceValue value = *made;
    int number = length(trace->value);
    if (functional->parent == NO_VALUE) value.root = number;
    value.same = number;
    const Meta *meta = &value.meta;
    value.contiguous = strides_contiguous(meta->rank, meta->size, value.stride);
    push(trace->arena, trace->value, value);
    push(recording->graph->arena, recording->value, *functional);
    recording->value[number].leaf = number;
    return number;
}

bool functional_reserve(Recording *recording, const Trace *known) {
    Trace *trace = recording->trace;
    Arena *arena = recording->graph->arena;
    if (!known) return true;
    if (arena_guard(trace->arena) || arena_guard(arena)) return false;
    int values = length(known->value);
    trace->op = vec_grow(trace->arena, NULL, length(known->op), sizeof *trace->op);
    trace->value = vec_grow(trace->arena, NULL, values, sizeof *trace->value);
    recording->value = vec_grow(arena, NULL, values, sizeof *recording->value);
    return true;
}

bool functional_follows(Recording *recording, const Node *node) {
    const Graph *graph = recording->graph;
    int first = length(recording->followed), end = length(graph->node);
    for (int id = first; id < end; id++) push(graph->arena, recording->followed, false);
    grad_reach(graph, first, end, recording->followed);
    return recording->followed[node->id];
}

int functional_outside(Recording *recording, const Node *node, int but) {
    const Graph *graph = recording->graph;
    int nodes = length(graph->node);
    bool *reached = arena_new_array(graph->arena, bool, nodes + 1);
    for (int i = 0; i < length(recording->foreign); i++) {
        int value = recording->foreign[i].value;
        if (value == but) continue;
        reached[recording->foreign[i].node->id] = true;
        grad_reach(graph, 0, nodes, reached);
        if (reached[node->id]) return value;
    }
    return NO_VALUE;
}

/* Before anything is made of it: gradients go back to it. */
static void follow_from(Recording *recording, const Node *node) {
    if (!functional_follows(recording, node)) recording->followed[node->id] = true;
}

/* Its node now has a history of ops outside. */
static void add_foreign(Recording *recording, int value, Node *node) {
    push(recording->graph->arena, recording->foreign, ((LeafNode){value, node}));
    follow_from(recording, node);
}

/* Its node now is one that gradients come to. */
static void add_leaf(Recording *recording, int value) {
    LeafNode leaf = {recording->value[value].leaf, recording->value[value].node};
    push(recording->graph->arena, recording->leaf, leaf);
    follow_from(recording, leaf.node);
}

/* The value that met this leaf first. */
static int find_leaf(const Recording *recording, int value) {
    const History *history = recording->value[value].history;
    for (int i = 0; i < length(recording->leaf); i++) {
        int v = recording->leaf[i].value;
        if (recording->value[v].history == history) return v;
    }
    return value;
}

/* No other value's, and none that it was before. */
static Node *set_apart(Recording *recording, Node *node, bool own) {
    return call_apart(recording->graph, node, length(recording->leaf), own);
}

static bool stands_apart(const Recording *recording, int value) {
    int same = recording->trace->value[value].same;
    return same < recording->apart_count && recording->apart[same];
}

/* own: the node is of the op that has just given the value, and was not at hand before. */
static void become_apart(Recording *recording, int value, bool own) {
    if (!stands_apart(recording, value)) return;
    recording->value[value].node = set_apart(recording, recording->value[value].node, own);
    add_leaf(recording, value);
}

int functional_add(Recording *recording, ValueKind kind, const Tensor *x) {
    TraceValue value = {.kind = kind, .meta = tensor_meta(x)};
    HistoryKind history = tape_kind(x, recording->tracks);
    value.foreign = history == HISTORY_FOREIGN;
    value.tracked = history == HISTORY_OF_LEAF;
    memcpy(value.stride, x->stride, sizeof(int64_t) * x->rank);
    /* Dims of size 1, or of nothing, may have any strides, which no guard asks for. */
    if (tensor_contiguous(x)) contiguous_strides(x->rank, x->size, value.stride);
    FunctionalValue functional = {.parent = NO_VALUE, .input = length(recording->graph->input)};
    functional.node = graph_input(recording->graph, &value.meta);
    int number = add_value(recording, &value, &functional);
    if (kind == VALUE_IS_CAPTURED) push(recording->graph->arena, recording->captured, number);
    if (value.foreign) add_foreign(recording, number, functional.node);
    recording->value[number].promised = tape_is_promised(x);
    if (!value.tracked) return number;
    recording->value[number].history = x->history;
    recording->value[number].leaf = find_leaf(recording, number);
    add_leaf(recording, number);
    return number;
}

static int add_result(Recording *recording, Node *node, bool own) {
    TraceValue value = {.kind = VALUE_IS_RESULT, .meta = node_meta(node)};
    value.meta.device = (uint8_t)recording->graph->device;
    contiguous_strides(value.meta.rank, value.meta.size, value.stride);
    FunctionalValue functional = {.parent = NO_VALUE, .node = node, .input = -1};
    int number = add_value(recording, &value, &functional);
    become_apart(recording, number, own);
    return number;
}

int functional_result(Recording *recording, Node *node) {
    return add_result(recording, node, false);
}

int functional_again(Recording *recording, int same) {
    int number = add_result(recording, functional_node(recording, same), false);
    recording->trace->value[number].same = recording->trace->value[same].same;
    recording->value[number].leaf = recording->value[same].leaf;
    return number;
}

/* ---- views whose start is an argument ------------------------------------------------------ */

/* The part of a node that a view shows, from its first element to its last. */
static Node *shifted(Graph *graph, const FunctionalValue *view, Node *node) {
    if (!view->start) return node;
    ViewReach reach = view_reach(view->view, view->attrs.word);
    Attrs attrs = {{0}};
    attrs.word[ATTR_dynamic_slice_dim] = reach.dim;
    attrs.word[ATTR_dynamic_slice_size] = reach.count;
    return graph_op(graph, OP_dynamic_slice, (Node *[]){node, view->start}, 2, &attrs, NULL);
}

/* base with another part in its place. */
static Node *shifted_back(Graph *graph, const FunctionalValue *view, Node *base, Node *part) {
    if (!view->start) return part;
    Attrs attrs = {{0}};
    attrs.word[ATTR_dynamic_slice_scatter_dim] = view_reach(view->view, view->attrs.word).dim;
    return graph_op(graph, OP_dynamic_slice_scatter, (Node *[]){base, part, view->start}, 3, &attrs,
                    NULL);
}

/* The same views of one value, one after the other. */
static bool same_views(const Recording *recording, int a, int b) {
    while (a != b) {
        const FunctionalValue *x = &recording->value[a], *y = &recording->value[b];
        if (x->parent == NO_VALUE || y->parent == NO_VALUE || x->view != y->view) return false;
        size_t words = x->view == OP_none ? 0 : (size_t)op_info(x->view)->word_count;
        if (x->start != y->start || x->cut || y->cut) return false;
        if (memcmp(x->attrs.word, y->attrs.word, sizeof *x->attrs.word * words)) return false;
        a = x->parent, b = y->parent;
    }
    return true;
}

bool functional_wrote(const Recording *recording, int value) {
    const FunctionalValue *root = &recording->value[recording->trace->value[value].root];
    return root->version && root->wrote != NO_VALUE && same_views(recording, value, root->wrote);
}

/* NULL: it is to be made of its parent's. */
static Node *find_node(const Recording *recording, int value) {
    const FunctionalValue *functional = &recording->value[value];
    if (functional->parent == NO_VALUE) return functional->node;
    const FunctionalValue *root = &recording->value[recording->trace->value[value].root];
    if (functional->node && functional->version == root->version) return functional->node;
    if (functional_wrote(recording, value) && !stands_apart(recording, value))
        return recording->value[root->wrote].node;
    return NULL;
}

static Node *view_node(Recording *recording, int value, Node *parent) {
    FunctionalValue *functional = &recording->value[value];
    int root = recording->trace->value[value].root;
    parent = shifted(recording->graph, functional, parent);
    functional->node = parent;
    if (functional->view != OP_none)
        functional->node =
            graph_op(recording->graph, functional->view, &parent, 1, &functional->attrs, NULL);
    check(functional->node, "a recorded view of a value of the same meta was refused");
    if (functional->cut) functional->node = call1(recording->graph, OP_detach, functional->node);
    functional->version = recording->value[root].version;
    become_apart(recording, value, false);
    return functional->node;
}

/* A chain of views may be as long as a loop of the user's: up to what has a node, and down again
 * by the links that were left on the way. */
Node *functional_node(Recording *recording, int value) {
    int at = value, below = NO_VALUE;
    Node *node;
    while (!(node = find_node(recording, at))) {
        recording->value[at].below = below;
        below = at;
        at = recording->value[at].parent;
    }
    for (at = below; at != NO_VALUE; at = recording->value[at].below)
        node = view_node(recording, at, node);
    return node;
}

/* ---- ops ----------------------------------------------------------------------------------- */

static void track_view(const Recording *recording, const TraceValue *base, TraceValue *view,
                       FunctionalValue *functional) {
    bool followed = base->tracked || base->foreign;
    view->tracked = followed && !recording->quiet;
    functional->cut = followed && recording->quiet;
}

static Node *argument_node(Recording *recording, const TraceOperand *operand) {
    cb_operand number = {.kind = operand->kind};
    Meta meta = {.dtype = number_dtype(&number)};
    push(recording->graph->arena, recording->captured, NO_VALUE);
    return graph_input(recording->graph, &meta);
}

/* An argument says where the view begins: behind the first element of its parent, which attrs say
 * it begins at. */
static void shift_view(Recording *recording, Op op, const TraceOperand *start,
                       const TraceValue *base, TraceValue *view, FunctionalValue *functional) {
    TraceShift *shift = arena_new_array(recording->trace->arena, TraceShift, 1);
    ViewReach reach = view_reach(op, functional->attrs.word);
    *shift = (TraceShift){start->value, base->stride[reach.dim], base->shift};
    view->shift = shift;
    functional->start = argument_node(recording, start);
}

/* The value as a view of parent. *result is NO_VALUE when a copy is needed; false with an error. */
static bool add_view(Recording *recording, const TraceOp *called, const Attrs *attrs, int *result) {
    int parent = called->input[0].value;
    Op op = called->op;
    const TraceValue *base = &recording->trace->value[parent];
    TraceValue value = {.kind = VALUE_IS_RESULT, .root = base->root, .shift = base->shift};
    FunctionalValue functional = {.parent = parent, .view = op, .attrs = *attrs, .input = -1};
    Inferred inferred;
    *result = NO_VALUE;
    if (!op_infer(op, &base->meta, 1, &functional.attrs, &inferred)) return false;
    value.meta = inferred.result;
    value.meta.device = base->meta.device;
    track_view(recording, base, &value, &functional);
    if (called->varies) shift_view(recording, op, &called->input[1], base, &value, &functional);
    if (view_strides(op, &functional.attrs, &base->meta, &value.meta, base->stride, base->offset,
                     value.stride, &value.offset)) {
        *result = add_value(recording, &value, &functional);
        return true;
    }
    if (op != OP_view) return true;
    return view_refuse(&base->meta, &value.meta);
}

static bool is_identity(const TraceValue *x, Op op, const Attrs *attrs) {
    return op_is_identity(op, attrs, x->meta.dtype, x->meta.rank, x->meta.size, x->stride);
}

static int add_identity(Recording *recording, int parent, bool detaches) {
    const TraceValue *base = &recording->trace->value[parent];
    TraceValue value = *base;
    value.kind = VALUE_IS_RESULT;
    value.gone_back = 0;
    value.foreign = false; /* where it is followed, the call goes on with the tape */
    FunctionalValue same = {.parent = parent, .view = OP_none, .input = -1};
    track_view(recording, base, &value, &same);
    same.cut |= detaches && (base->tracked || base->foreign);
    value.tracked &= !detaches;
    return add_value(recording, &value, &same);
}

static Node *operand_node(Recording *recording, const TraceOperand *operand) {
    Scalar number = {.i = operand->bits};
    if (operand_is_argument(operand)) return argument_node(recording, operand);
    switch (operand->kind) {
    case OPERAND_VALUE:
        return functional_node(recording, operand->value);
    case OPERAND_FLOAT:
        return graph_constant(recording->graph, CB_F64, number); /* the same bits */
    case OPERAND_INT:
        return graph_constant(recording->graph, CB_I64, number);
    case OPERAND_BOOL:
        return graph_constant(recording->graph, CB_BOOL, number);
    default:
        return NULL;
    }
}

/* Attributes that are arguments are inputs of the graph. */
static void attribute_nodes(Recording *recording, const TraceOp *op, Attrs *attrs) {
    attrs_settle(attrs, op->op);
    for (int k = op->input_count; k < op->operand_count; k++) {
        const TraceOperand *operand = &op->input[k];
        if (!operand_is_argument(operand)) continue;
        const Node *node = argument_node(recording, operand);
        attr_set_argument(attrs, op_varying(op->op, k - op->input_count),
                          (int)node->attrs->word[0]);
    }
}

int functional_apply(Recording *recording, const TraceOp *called, Attrs *attrs) {
    Op op = called->op;
    const TraceOperand *input = called->input;
    int input_count = called->input_count;
    Node *node[TRACE_OPERANDS] = {NULL};
    bool number[TRACE_OPERANDS] = {false};
    if (input_count == 1 && input->kind == OPERAND_VALUE) {
        int result;
        if (op_info(op)->kind == KIND_VIEW) {
            if (!add_view(recording, called, attrs, &result)) return NO_VALUE;
            if (result != NO_VALUE) return result;
        } else if (is_identity(&recording->trace->value[input->value], op, attrs)) {
            return add_identity(recording, input->value, op == OP_detach);
        }
    }
    for (int i = 0; i < input_count; i++) {
        node[i] = operand_node(recording, &input[i]);
        number[i] = input[i].kind != OPERAND_VALUE && input[i].kind != OPERAND_ABSENT;
    }
    attribute_nodes(recording, called, attrs);
    Node *result = graph_op(recording->graph, op, node, input_count, attrs, number);
    if (!result) return NO_VALUE;
    bool tracked = functional_follows(recording, result);
    if (tracked && recording->quiet) result = call1(recording->graph, OP_detach, result);
    bool own = true;
    for (int i = 0; i < input_count; i++) own &= result != node[i]; /* which it may hand on */
    int value = add_result(recording, result, own);
    recording->trace->value[value].tracked = tracked && !recording->quiet;
    return value;
}

/* ---- gradients ----------------------------------------------------------------------------- */

/* 1 for one element, or the seed. */
static Node *cotangent(Recording *recording, const Node *root, const TraceOperand *seed) {
    if (seed) return functional_node(recording, seed->value);
    return call_full(recording->graph, root->rank, root->size, cb_operand_int(1), root->dtype);
}

bool functional_shares(Recording *recording, int value) {
    if (stands_apart(recording, value)) return false;
    const Node *node = functional_node(recording, value);
    const TraceValue *traced = recording->trace->value;
    bool written = recording->value[traced[value].root].version;
    bool shares = node->found || written; /* another op's, or another one before */
    for (int v = 0; v < length(recording->value) && !shares; v++)
        shares = traced[v].same != traced[value].same && recording->value[v].node == node;
    return shares;
}

bool functional_gradients(Recording *recording, Node *const *y, Node *const *g, int outputs,
                          const int *value, int count, Node **gradient, Node **from) {
    Graph *graph = recording->graph;
    Node **by = NULL;
    LeafNode *wrt = NULL;
    for (int k = 0; k < count; k++) {
        const TraceValue *traced = &recording->trace->value[value[k]];
        Node *now = functional_node(recording, value[k]);
        if (traced->kind == VALUE_IS_RESULT && traced->tracked &&
            !stands_apart(recording, value[k]))
            push(graph->arena, wrt, ((LeafNode){k, now}));
        if (traced->foreign) push(graph->arena, wrt, ((LeafNode){k, now}));
        for (int i = 0; i < length(recording->leaf); i++)
            if (recording->leaf[i].value == recording->value[value[k]].leaf)
                push(graph->arena, wrt, ((LeafNode){k, recording->leaf[i].node}));
        gradient[k] = NULL;
    }
    Node **got = arena_new_array(graph->arena, Node *, length(wrt) + 1);
    Node **of = arena_new_array(graph->arena, Node *, length(wrt) + 1);
    for (int i = 0; i < length(wrt); i++) push(graph->arena, by, wrt[i].node);
    if (!graph_grad(graph, y, g, outputs, by, length(wrt), got, of)) return false;
    for (int i = 0; i < length(wrt); i++) {
        Node **sum = &gradient[wrt[i].value];
        if (from && got[i]) from[wrt[i].value] = *sum ? NULL : of[i];
        if (got[i]) *sum = *sum ? call2(graph, OP_add, *sum, got[i]) : got[i];
    }
    return true;
}

/* It may be a leaf, which is never what is given back: it has a gradient of its own, and can
 * end. */
static bool is_from_outside(const Recording *recording, int value) {
    return recording->trace->value[value].kind != VALUE_IS_RESULT;
}

bool functional_backward(Recording *recording, int root, const TraceOperand *seed, bool tracked,
                         const int *value, int count, Node **gradient, int *same) {
    Node *y = functional_node(recording, root), *g = cotangent(recording, y, seed);
    Node **from = arena_new_array(recording->graph->arena, Node *, count + 1);
    bool parts = tracked && seed && is_from_outside(recording, seed->value);
    if (parts) g = call1(recording->graph, OP_clone, g);
    if (!functional_gradients(recording, &y, &g, 1, value, count, gradient, from)) return false;
    for (int k = 0; k < count; k++) {
        same[k] = k;
        for (int i = k - 1; i >= 0; i--)
            if (from[k] && from[i] == from[k]) same[k] = i;
        if (from[k] == y && seed && !parts) same[k] = SAME_AS_SEED;
    }
    for (int k = 0; k < count && !tracked; k++)
        gradient[k] = call1(recording->graph, OP_detach, gradient[k]);
    return true;
}

/* ---- writes -------------------------------------------------------------------------------- */

static Node *reshape_to(Graph *graph, Node *node, const Node *like) {
    Attrs attrs = {{0}};
    attr_set_dims(&attrs, ATTR_reshape_sizes, size_list(like->rank, like->size));
    return graph_op(graph, OP_reshape, &node, 1, &attrs, NULL);
}

static Node *scatter_slice(Graph *graph, Node *base, Node *value, const int64_t range[4]) {
    Attrs attrs = {{0}};
    attrs.word[ATTR_slice_scatter_dim] = range[0];
    attrs.word[ATTR_slice_scatter_start] = range[1];
    attrs.word[ATTR_slice_scatter_end] = range[2];
    attrs.word[ATTR_slice_scatter_step] = range[3];
    return graph_op(graph, OP_slice_scatter, (Node *[]){base, value}, 2, &attrs, NULL);
}

static Node *scatter_select(Graph *graph, Node *base, Node *value, const int64_t *word) {
    int64_t dim = word[ATTR_select_dim], index = word[ATTR_select_index];
    Attrs attrs = {{0}};
    attrs.word[ATTR_unsqueeze_dim] = dim;
    value = graph_op(graph, OP_unsqueeze, &value, 1, &attrs, NULL);
    return scatter_slice(graph, base, value, (int64_t[]){dim, index, index + 1, 1});
}

static Node *permute_back(Graph *graph, Node *value, const cb_dim_list *dims) {
    Attrs attrs = {{0}};
    cb_dim_list inverse = {dims->count, {0}};
    for (int i = 0; i < dims->count; i++) inverse.at[dims->at[i]] = i;
    attr_set_dims(&attrs, ATTR_permute_dims, inverse);
    return graph_op(graph, OP_permute, &value, 1, &attrs, NULL);
}

/* Element by element of the windows, each of which is a slice of base. */
static Node *scatter_windows(Graph *graph, Node *base, Node *value, const int64_t *word) {
    if (base->rank == 0) return reshape_to(graph, value, base); /* one window of one element */
    int64_t dim = word[ATTR_window_dim], step = word[ATTR_window_step];
    int64_t last = value->rank - 1, reach = (value->size[dim] - 1) * step + 1;
    for (int64_t w = 0; w < word[ATTR_window_size]; w++) {
        int64_t start = w * word[ATTR_window_dilation];
        Attrs attrs = {{0}};
        attrs.word[ATTR_select_dim] = last;
        attrs.word[ATTR_select_index] = w;
        Node *part = graph_op(graph, OP_select, &value, 1, &attrs, NULL);
        base = scatter_slice(graph, base, part, (int64_t[]){dim, start, start + reach, step});
    }
    return base;
}

/* base, whose view (view, attrs) has taken value. An expanded view that may be written to repeats
 * nothing (apply_assign sees to that), so it is a reshape. */
static Node *write_view(Graph *graph, Op view, const Attrs *attrs, Node *base, Node *value) {
    const int64_t *word = attrs->word;
    switch (view) {
    case OP_none:
        return value;
    case OP_permute: {
        cb_dim_list dims = attr_dims(attrs, ATTR_permute_dims);
        return permute_back(graph, value, &dims);
    }
    case OP_transpose:
    case OP_t:
        return graph_op(graph, view, &value, 1, attrs, NULL);
    case OP_slice:
        return scatter_slice(graph, base, value,
                             (int64_t[]){word[ATTR_slice_dim], word[ATTR_slice_start],
                                         word[ATTR_slice_end], word[ATTR_slice_step]});
    case OP_narrow: {
        int64_t start = word[ATTR_narrow_start];
        return scatter_slice(
            graph, base, value,
            (int64_t[]){word[ATTR_narrow_dim], start, start + word[ATTR_narrow_length], 1});
    }
    case OP_select:
        return scatter_select(graph, base, value, word);
    case OP_window:
        return scatter_windows(graph, base, value, word);
    case OP_reshape:
    case OP_view:
    case OP_flatten:
    case OP_unflatten:
    case OP_squeeze:
    case OP_unsqueeze:
    case OP_expand:
    case OP_broadcast_to:
        return reshape_to(graph, value, base);
    default:
        check(false, "%s: a view that cannot be written through", op_info(view)->name);
        return NULL;
    }
}

/* value in the target's dtype and shape. */
static Node *fit(Recording *recording, int target, const TraceOperand *operand) {
    const Meta *meta = &recording->trace->value[target].meta;
    Graph *graph = recording->graph;
    Node *value = operand_node(recording, operand);
    Attrs attrs = {{0}};
    attrs.word[ATTR_to_dtype] = meta->dtype;
    value = graph_op(graph, OP_to, &value, 1, &attrs, NULL);
    if (value->rank == meta->rank &&
        (!meta->rank || !memcmp(value->size, meta->size, sizeof(int64_t) * meta->rank)))
        return value;
    attrs = (Attrs){{0}};
    attr_set_dims(&attrs, ATTR_expand_sizes, size_list(meta->rank, meta->size));
    return graph_op(graph, OP_expand, &value, 1, &attrs, NULL);
}

bool functional_writable(const Recording *recording, int target) {
    for (int at = target; at != NO_VALUE; at = recording->value[at].parent) {
        const TraceValue *value = &recording->trace->value[at];
        if (view_repeats(&value->meta, value->stride)) return false;
    }
    return true;
}

void functional_assign(Recording *recording, int target, const TraceOperand *operand) {
    Node *part = fit(recording, target, operand), *value = part;
    int at = target;
    if (node_numel(value) == 0) return; /* perhaps of a base that has elements */
    while (recording->value[at].parent != NO_VALUE) {
        const FunctionalValue *view = &recording->value[at];
        Node *base = functional_node(recording, view->parent);
        Node *now = shifted(recording->graph, view, base);
        now = write_view(recording->graph, view->view, &view->attrs, now, value);
        value = shifted_back(recording->graph, view, base, now);
        at = view->parent;
        check(value, "a write to a recorded view was refused");
    }
    const TraceValue *written = &recording->trace->value[at];
    bool followed = written->tracked || written->foreign; /* and goes on being so */
    /* Where nothing is followed: no gradient comes through what is written. */
    if (followed) value = set_apart(recording, value, false);
    bool history = followed || functional_follows(recording, value);
    if (history) value = call1(recording->graph, OP_detach, value);
    recording->value[at].node = value;
    recording->value[at].version++;
    bool shown = !history && at != target && !stands_apart(recording, target);
    recording->value[at].wrote = shown ? target : NO_VALUE;
    if (shown) {
        recording->value[target].node = part;
        recording->value[target].version = recording->value[at].version;
    }
    if (written->tracked) add_leaf(recording, at);
    if (written->foreign) add_foreign(recording, at, value);
}
