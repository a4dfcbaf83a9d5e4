/* Which nodes get a value of their own. Everything else is expanded into whoever uses it.
 *
 * Real are: what has a loop or a library of its own (reductions, scans, scatters, matmuls, sorts),
 * outputs, the operands of library steps, what can be an epilogue, and what would be computed too
 * often. Being real costs nothing by itself: a real node whose users all join its kernel never
 * reaches memory. */
#include "sched/schedule.h"

#include <string.h>

enum {
    SHARED_COST = 4,   /* a node with several users may cost this much to compute again */
    SHARED_LOADS = 2,  /* ... and read this much */
    AGAIN_COST = 32,   /* the same where all it reads of its size is a product, which may stay: one
                       * value in memory in place of several, until a step backward has read it */
    SPREAD_COST = 8,   /* the same for a node that is read many times over, through a broadcast */
    JOIN_READS = 4,    /* what chooses pays for its own memory by so many reads of an element */
    CHOSEN_SHARE = 16, /* who reads one of so many elements of an epilogue may compute them again */
    TREE_NODES = 64    /* longest expansion: keeps lowering linear in the size of the graph */
};

typedef struct Tree { /* of an expanded node, down to real ones */
    int cost, loads, nodes, joins;
    const Node *large; /* the only one that no broadcast spreads, ... */
    bool several;      /* ... unless there are more */
} Tree;

static const Node *strip_reshapes(const Node *node) {
    while (node->op == OP_reshape) node = node->input[0];
    return node;
}

const Node *output_base(const Node *output) {
    const Node *base = strip_reshapes(output);
    return base->op == OP_input ? output : base;
}

static bool is_buffer(const Schedule *s, const Node *node) {
    return node->op == OP_input || s->real[node->id];
}

static void make_real(Schedule *s, const Node *node) {
    if (node->op != OP_input) s->real[node->id] = true;
}

/* What stands below the views. Every so many views one becomes real, whoever reads it: then all
 * that walks down to a base takes few steps. */
static void find_bases(Schedule *s) {
    int *views = arena_new_array(s->arena, int, length(s->graph->node) + 1);
    s->below = arena_new_array(s->arena, const Node *, length(s->graph->node) + 1);
    s->operand = arena_new_array(s->arena, OperandStrides *, length(s->graph->node) + 1);
    for (int i = 0; i < length(s->order); i++) {
        const Node *node = s->order[i];
        s->below[node->id] = node;
        if (!graph_views(s->graph, node)) continue;
        views[node->id] = views[node->input[0]->id] + 1;
        if (views[node->id] < TREE_NODES) {
            s->below[node->id] = s->below[node->input[0]->id];
        } else {
            make_real(s, node);
            views[node->id] = 0;
        }
    }
}

/* The dear part below views, or the view itself when a plain buffer is below, or all of an input
 * with a part that was written. */
static void make_base_real(Schedule *s, const Node *node) {
    const Node *base = s->below[node->id];
    bool plain = base->op == OP_constant || base->op == OP_input || s->scatters[base->id];
    make_real(s, plain ? node : base);
}

/* ---- operands of library steps -------------------------------------------------------------- */

typedef struct Probe {
    const Node *base;
    const int64_t *stride;
    Expr *index;
} Probe;

static bool probe_is_leaf(Lowering *l, const Node *node) {
    return node == ((const Probe *)l->user)->base || node->op == OP_input;
}

static Expr *probe_leaf(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    Probe *probe = l->user;
    check(!guard, "a view has no guard");
    if (node != probe->base) /* a start: the number of its input stands for a buffer */
        return expr_load(l->kernel, (int)node->attrs->word[0], CB_I64, expr_int(l->kernel, 0),
                         NULL);
    probe->index = index_dot(l->kernel, node->rank, probe->stride, position);
    return probe->index;
}

const Node *buffer_below(const Schedule *s, const Node *operand) {
    while (!is_buffer(s, operand)) operand = operand->input[0];
    return operand;
}

/* How an operand lies in a buffer: asked while nodes become real, when all have, and for the
 * step. */
struct OperandStrides {
    const Node *buffer;
    bool affine;
    int64_t offset, stride[CB_MAX_RANK];
    Shift shift;
};

/* What is left of an index without its axes: a number, and a start between two others at most
 * (lower_dynamic_slice). False: more. */
static bool read_rest(const Expr *rest, OperandStrides *out) {
    out->offset = 0;
    out->shift = (Shift){.input = NO_INPUT, .element = 1};
    if (rest->op == OP_constant) return out->offset = rest->imm.i, true;
    if (rest->op == OP_add && rest->input[1]->op == OP_constant)
        out->offset = rest->input[1]->imm.i, rest = rest->input[0];
    if (rest->op == OP_mul && rest->input[1]->op == OP_constant)
        out->shift.element = rest->input[1]->imm.i, rest = rest->input[0];
    const Expr *below = rest->op == OP_maximum ? rest->input[0] : NULL;
    if (!below || below->op != OP_minimum || below->input[0]->op != EX_load) return false;
    out->shift.input = (int)below->input[0]->imm.i;
    out->shift.most = rest->high;
    return true;
}

/* Constants are packed as they lie. */
static bool may_shift(const Schedule *s, const Node *buffer) {
    return buffer->op != OP_input || graph_is_argument(s->graph, buffer);
}

static void find_strides(const Schedule *s, const Node *operand, const Node *buffer,
                         OperandStrides *out) {
    Kernel *kernel = kernel_new(s->arena);
    int64_t base_stride[CB_MAX_RANK];
    buffer_strides(s, buffer, base_stride);
    Probe probe = {.base = buffer, .stride = base_stride};
    Lowering lowering = lowering_new(kernel, &probe);
    lowering.is_leaf = probe_is_leaf;
    lowering.leaf = probe_leaf;
    Expr *position[CB_MAX_RANK], *rest;
    for (int i = 0; i < operand->rank; i++) {
        int axis = kernel_axis(kernel, operand->size[i], false);
        position[i] = operand->size[i] == 1 ? expr_int(kernel, 0) : expr_axis(kernel, axis);
    }
    lower_at(&lowering, operand, position, NULL);
    bool affine = index_affine(kernel, probe.index, out->stride, &rest);
    out->buffer = buffer;
    out->affine = affine && read_rest(rest, out);
    out->affine &= out->shift.input == NO_INPUT || may_shift(s, buffer);
}

bool operand_affine(const Schedule *s, const Node *operand, const Node *buffer, int64_t *stride,
                    int64_t *offset, Shift *shift) {
    OperandStrides *found = s->operand[operand->id];
    if (!found) found = s->operand[operand->id] = arena_new_array(s->arena, OperandStrides, 1);
    if (found->buffer != buffer) find_strides(s, operand, buffer, found);
    memcpy(stride, found->stride, sizeof *stride * operand->rank);
    *offset = found->offset;
    *shift = found->shift;
    return found->affine;
}

/* Of an argument, or of a constant that is one; NULL: contiguous. */
static const int64_t *given_strides(const Schedule *s, const Node *node) {
    int arguments = length(s->graph->input) - length(s->graph->constant);
    if (node->op != OP_input || !s->input_stride) return NULL;
    int number = (int)node->attrs->word[0];
    if (number < arguments) return s->input_stride[number];
    return given_strides(s, s->graph->constant[number - arguments]);
}

void buffer_strides(const Schedule *s, const Node *node, int64_t *stride) {
    const int64_t *given = given_strides(s, node);
    if (given)
        memcpy(stride, given, sizeof *stride * node->rank);
    else
        contiguous_strides(node->rank, node->size, stride);
}

/* What an operand is read from: what its views are of, or an f32 argument that is rounded to the
 * operand's dtype in between, if the task does that on the way: a weight under autocast is neither
 * written nor read once more. What is computed is rounded by whoever computes it. */
static const Node *below_operand(const Schedule *s, const Node *node, int number) {
    const Node *below = s->below[node->input[number]->id];
    TaskKind kind;
    if (number != TASK_WEIGHT || below->op != OP_to || !task_of_op(node->op, &kind)) return below;
    const Node *source = s->below[below->input[0]->id];
    bool wide = source->dtype == CB_F32 && dtype_is_half(below->dtype);
    if (!wide || !graph_is_argument(s->graph, source) || !task_info(kind)->rounds) return below;
    Meta x = node_meta(node->input[0]), weight = node_meta(node->input[number]);
    return task_info(kind)->rounds(&x, &weight) ? source : below;
}

static void mark_strided(Schedule *s, const Node *node, int number) {
    int64_t stride[DOMAIN_AXES], offset;
    Shift shift;
    const Node *operand = node->input[number], *below = below_operand(s, node, number);
    bool affine =
        below->op != OP_constant && operand_affine(s, operand, below, stride, &offset, &shift);
    make_real(s, affine ? below : operand);
}

int strided_operands(const Node *node) {
    TaskKind kind;
    if (!task_of_op(node->op, &kind)) return 0;
    const Node *last = node->input[node->input_count - 1];
    return node->input_count - (task_info(kind)->optional && last->op == OP_constant);
}

/* A view between an operand and what it is a view of may have become real, as an output does: then
 * the operand is read from there, if that can be told by strides, too. */
static void settle_strided(Schedule *s) {
    for (bool settled = false; !settled;) {
        settled = true;
        for (int i = 0; i < length(s->order); i++)
            for (int k = 0; k < strided_operands(s->order[i]); k++) {
                int64_t stride[DOMAIN_AXES], offset;
                Shift shift;
                const Node *operand = s->order[i]->input[k], *buffer = buffer_below(s, operand);
                if (buffer == operand ||
                    operand_affine(s, operand, buffer, stride, &offset, &shift))
                    continue;
                make_real(s, operand);
                settled = false;
            }
    }
}

/* Index values are checked as a whole before they are used, so they stand in memory; views that
 * leave elements out are copied first. False: they are in range by construction. */
static bool mark_index(Schedule *s, Node *index, const IndexBound *bound) {
    Node *base = index_base(index);
    if (index_in_range(base, bound->bound)) return false;
    make_real(s, base);
    check_set_add(&s->check, base, bound);
    return true;
}

static void mark_operands(Schedule *s, const Node *node) {
    for (int i = 0; i < strided_operands(node); i++) mark_strided(s, node, i);
    bool custom = op_info(node->op)->kind == KIND_CUSTOM; /* takes no views */
    for (int i = 0; i < node->input_count && custom; i++) make_real(s, node->input[i]);
    if (!op_has_index(node->op)) return;
    IndexBound bound = index_bound(node);
    if (mark_index(s, node->input[1], &bound)) s->checked[index_base(node->input[1])->id] = true;
}

/* What ops check of which nothing else is left. */
static void mark_checks(Schedule *s) {
    for (int i = 0; i < length(s->graph->check); i++)
        mark_index(s, s->graph->check[i].index, &s->graph->check[i].in);
}

/* ---- what would be computed too often ------------------------------------------------------- */

static bool spreads(const Node *node, const Node *input) {
    return node_numel(input) * 2 <= node_numel(node);
}

static void add_large(Tree *tree, const Node *large) {
    tree->several |= tree->large && large && tree->large != large;
    if (large) tree->large = large;
}

/* Which piece an element is of, or whether it is padding, is asked for every element: of a padding
 * of other dims than the last for whole runs of them. */
static bool chooses(const Node *node) {
    if (node->op != OP_pad) return node->op == OP_concat;
    cb_dim_list padding = attr_dims(node->attrs, ATTR_pad_padding); /* of the last dim first */
    return padding.count >= 2 && (padding.at[0] != 0 || padding.at[1] != 0);
}

/* What the input brings of the node's size; NULL: nothing, or it is spread. */
static const Node *large_of(const Schedule *s, const Tree *tree, const Node *node,
                            const Node *input) {
    if (!input || spreads(node, input)) return NULL;
    return is_buffer(s, input) ? input : tree[input->id].large;
}

static Tree tree_of(const Schedule *s, const Tree *tree, const Node *node) {
    Tree t = {op_info(node->op)->cost, 0, 1, chooses(node), NULL, false};
    for (int i = 0; i < node->input_count; i++) {
        const Node *input = node->input[i];
        if (!input) continue;
        bool leaf = is_buffer(s, input);
        t.cost += leaf ? 0 : tree[input->id].cost;
        t.loads += leaf ? 1 : tree[input->id].loads;
        t.nodes += leaf ? 0 : tree[input->id].nodes;
        t.joins += leaf ? 0 : tree[input->id].joins;
        t.several |= !leaf && tree[input->id].several;
        add_large(&t, large_of(s, tree, node, input));
    }
    return t;
}

static bool is_product(const Node *node) {
    return node && op_info(node->op)->kind == KIND_CONTRACT;
}

/* Several users, and it is not computed again for each. */
static bool is_kept(const Tree *t) {
    bool again = !t->several && is_product(t->large);
    return again ? t->cost > AGAIN_COST : t->cost > SHARED_COST || t->loads > SHARED_LOADS;
}

/* A concatenation below windows or a broadcast, as a circular padding is, or a padding: whoever
 * reads it there asks for every element of each window again which piece that is of, and loads of
 * all. */
static bool chooses_often(const Schedule *s, const Tree *tree, const Node *node,
                          const Node *input) {
    const Node *base = s->below[input->id];
    return tree[base->id].joins && node_numel(base) * JOIN_READS <= node_numel(node);
}

static void mark_dear_inputs(Schedule *s, const Tree *tree, const Node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const Node *input = node->input[i];
        if (!input || is_buffer(s, input)) continue;
        bool dear = spreads(node, input) && tree[input->id].cost >= SPREAD_COST;
        if (dear || chooses_often(s, tree, node, input)) make_base_real(s, input);
    }
}

/* Pointwise work of the size of a product below it, through nothing but more of its kind: the
 * product's step can do it as its epilogue. */
static bool is_epilogue(const bool *after_product, const Node *node) {
    if (op_info(node->op)->kind != KIND_POINTWISE) return false;
    for (int i = 0; i < node->input_count; i++) {
        const Node *input = strip_reshapes(node->input[i]);
        if (after_product[input->id] && node_numel(input) == node_numel(node)) return true;
    }
    return false;
}

/* Whoever rearranges such work would do it again for every element that it reads, and at other
 * positions: it becomes real, joins the epilogue and is read from memory. Not for a few elements,
 * as those of a loss are that a label chooses. */
static void mark_epilogues(Schedule *s, bool *after_product, const Node *node) {
    OpKind kind = op_info(node->op)->kind;
    after_product[node->id] = kind == KIND_CONTRACT || is_epilogue(after_product, node);
    if (kind != KIND_VIEW && kind != KIND_JOIN && !op_has_index(node->op)) return;
    for (int i = 0; i < node->input_count; i++) {
        const Node *input = node->input[i];
        bool few = node_numel(node) * CHOSEN_SHARE <= node_numel(input);
        if (after_product[input->id] && !few) make_real(s, input);
    }
}

/* ---- what a product gives to another one ----------------------------------------------------- */

/* Of a product: what is read of it where other values of its size are. */
typedef struct Crossing {
    const Node *value; /* the first one */
    bool several;      /* there are more, or the product is read as it is */
    bool dear;
} Crossing;

static void note_crossing(const Schedule *s, const Tree *tree, const Node *input, Crossing *of) {
    const Node *value = s->below[input->id];
    of->several |= of->value && of->value != value;
    of->dear |= tree[input->id].cost > SHARED_COST;
    of->value = value;
}

/* By product, each operand by which it alone comes to a node: beside other values, or to what is no
 * pointwise work. */
static void find_crossings(const Schedule *s, const Tree *tree, const Node *node, Crossing *of) {
    bool pointwise = op_info(node->op)->kind == KIND_POINTWISE, views = graph_views(s->graph, node);
    for (int i = 0; i < node->input_count && !views; i++) {
        const Node *input = node->input[i], *large = large_of(s, tree, node, input);
        if (!is_product(large) || (!is_buffer(s, input) && tree[input->id].several)) continue;
        Crossing *c = &of[large->id];
        c->several |= !pointwise;
        for (int k = 0; k < node->input_count && pointwise; k++) {
            const Node *other = large_of(s, tree, node, node->input[k]);
            if (other && other != large) note_crossing(s, tree, input, c);
        }
    }
}

/* Where one value of a product is all that others are computed with, as gelu's derivative is, the
 * product need not stay for them: the value is computed behind it, once. */
static void mark_crossings(Schedule *s, const Crossing *of) {
    for (int i = 0; i < length(s->order); i++) {
        const Crossing *c = &of[s->order[i]->id];
        if (c->dear && !c->several) make_real(s, c->value);
    }
}

/* ---- writes to parts ------------------------------------------------------------------------- */

/* Which of those is read as a whole, below views, by anything but the next write. The others are
 * never computed, however many there are in a row: only what is written is. */
static bool *find_read(const Schedule *s) {
    const Graph *graph = s->graph;
    bool *read = arena_new_array(s->arena, bool, length(graph->node) + 1);
    for (int i = 0; i < length(s->order); i++) {
        const Node *node = s->order[i];
        bool writes = s->scatters[node->id] || s->written[node->id];
        bool views = graph_views(graph, node);
        for (int k = writes; k < node->input_count && !views; k++)
            if (node->input[k]) read[s->below[node->input[k]->id]->id] = true;
    }
    for (int i = 0; i < length(graph->output); i++) read[s->below[graph->output[i]->id]->id] = true;
    return read;
}

/* So many writes below one that is read would all be asked who wrote each element: some of them
 * become real. */
static void cut_writes(Schedule *s, const Node *node) {
    for (int count = 0; s->scatters[node->id]; node = s->below[node->input[0]->id])
        if (++count % TREE_NODES == 0) make_real(s, node);
}

/* Without fusion every node but views, literals and what they stand for is a step. In memory a
 * number that is not to be rounded would be. */
static bool is_step(const Node *node) {
    OpKind kind = op_info(node->op)->kind;
    return kind != KIND_VIEW && kind != KIND_SPECIAL && node->op != OP_unrounded;
}

static void mark_mutations(Schedule *s) {
    for (int i = 0; i < length(s->graph->mutation); i++)
        for (int k = 0; k < mutation_count(s, i); k++) {
            const Node *value = output_base(mutation_value(s, i, k));
            make_real(s, value);
            s->taken[value->id] |= !s->write[i];
        }
}

void mark_real(Schedule *s) {
    Graph *graph = s->graph;
    int *users = graph_users(graph, s->order);
    Tree *tree = arena_new_array(s->arena, Tree, length(graph->node) + 1);
    bool *after_product = arena_new_array(s->arena, bool, length(graph->node) + 1);
    Crossing *crossing = arena_new_array(s->arena, Crossing, length(graph->node) + 1);
    find_bases(s);
    for (int i = 0; i < length(s->order); i++) mark_operands(s, s->order[i]);
    mark_checks(s);
    for (int i = 0; i < length(graph->output); i++) make_real(s, output_base(graph->output[i]));
    find_regions(s);
    find_written(s);
    const bool *read = find_read(s);
    mark_mutations(s);
    for (int i = 0; i < length(s->order); i++) {
        const Node *node = s->order[i];
        if (node->op == OP_input) continue;
        if (!lower_expands(node) || (!s->options.fuse && is_step(node))) make_real(s, node);
        mark_dear_inputs(s, tree, node);
        mark_epilogues(s, after_product, node);
        find_crossings(s, tree, node, crossing);
        Tree t = tree[node->id] = tree_of(s, tree, node);
        bool shared = users[node->id] > 1 && is_kept(&t);
        shared &= !s->scatters[node->id]; /* which is as large as all of the input */
        bool writes = s->scatters[node->id], large = t.nodes > TREE_NODES;
        if (large && writes && read[node->id]) cut_writes(s, node);
        if (shared || (large && (!writes || read[node->id]))) make_base_real(s, node);
        const Node *below = s->below[node->id];
        if (s->real[below->id]) tree[node->id] = (Tree){.loads = 1, .nodes = 1, .large = below};
    }
    if (s->options.fuse) mark_crossings(s, crossing);
    settle_strided(s);
}
