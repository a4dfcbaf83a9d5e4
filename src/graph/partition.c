/* What a joint graph computes at once, what it saves, and what the gradients compute again.
 *
 *     h = matmul(x, w), y = gelu(h)        the results
 *     dh = dy * gelu'(h)                   late: it follows from the gradient of y, given
 *     dw = matmul(t(x), dh)                reads x, an input, and h or what follows from it
 *
 * Everything that is not late can be had in the gradients in two ways: saved by the results' graph,
 * which costs its bytes, or computed again from what is saved. What takes long (a product, a
 * convolution, a scan, a sort, a reduction to much less) is never computed again, so it, or all
 * that is read of it, has to be saved: a minimum cut between those and the gradients, as in the
 * min-cut partitioner of PyTorch's functorch (He and Yu, "Transcending Runtime-Memory Tradeoffs in
 * Checkpointing by being Fusion Aware", MLSys 2023). Of cuts of the same weight the one nearest to
 * the gradients is taken, which computes least again. Inputs are there anyway, but for those that
 * are written to: of them there is a copy.
 *
 * What a greatest element is compared with, to find where it is (the gradient of amax), has the
 * same bits as it had: it is not computed again either, since sums may be added in another order
 * there.
 *
 * A budget below 1 lets the cheapest of those be computed again, too, by operations for each byte:
 * at 0 nothing is saved but what may not be done twice. The flow is Dinic's. */
#include "graph/partition.h"

#include "graph/node.h"
#include <string.h>

enum { MUCH_LESS = 4 };                       /* a reduction to so much less is saved */
static const int64_t endless = INT64_MAX / 8; /* a capacity */

typedef struct FlowEdge {
    int to;
    int64_t left; /* of its capacity; its other direction is the edge with the last bit turned */
} FlowEdge;

/* Two vertices for a node, in and out, of which the edge between is cut when it is saved. */
typedef struct Flow {
    Arena *arena;
    FlowEdge *edge; /* vec */
    int **edges;    /* by vertex, a vec: of its edges */
    int vertices, source, sink;
    int *level, *next; /* by vertex: distance from the source; edge to look at */
    int *path;         /* vec: of edges */
} Flow;

typedef struct Partition {
    Graph *graph;
    const JointGraph *joint;
    Node **order;
    int results;   /* outputs that are no gradients */
    bool *late;    /* by id: it follows from what is given */
    bool *early;   /* by id: a result needs it */
    bool *read;    /* by id: not late, and read by what is, or a gradient itself */
    bool *written; /* by id: an input, which is another one behind the run */
    bool *heavy;   /* by id: it is not computed again */
    bool *exact;   /* by id: never computed again */
    bool *inside;  /* by id: of a checkpoint, which is to compute it again */
    bool *given;   /* by id: a checkpoint's result, by which it ends */
    bool *stored;  /* by id: it is in memory for another reason */
    bool *saved;   /* by id */
    Flow flow;
} Partition;

/* ---- what is what -------------------------------------------------------------------------- */

static void mark_late(Partition *p) {
    const Graph *graph = p->graph;
    for (int k = length(graph->input) - p->joint->given; k < length(graph->input); k++)
        p->late[graph->input[k]->id] = true;
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        for (int k = 0; k < node->input_count; k++)
            if (node->input[k]) p->late[node->id] |= p->late[node->input[k]->id];
    }
}

static void mark_early(Partition *p) {
    const Graph *graph = p->graph;
    for (int i = 0; i < p->results; i++) p->early[graph->output[i]->id] = true;
    for (int i = 0; i < length(graph->effect); i++) p->early[graph->effect[i]->id] = true;
    for (int i = 0; i < length(graph->mutation); i++) p->early[graph->mutation[i].value->id] = true;
    for (int i = 0; i < length(graph->check); i++) p->early[graph->check[i].index->id] = true;
    graph_need_inputs(graph, p->early);
}

static void mark_read(Partition *p) {
    const Graph *graph = p->graph;
    for (int i = p->results; i < length(graph->output); i++) {
        const Node *gradient = graph->output[i];
        p->read[gradient->id] |= !p->late[gradient->id];
    }
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        for (int k = 0; k < node->input_count && p->late[node->id]; k++)
            if (node->input[k]) p->read[node->input[k]->id] |= !p->late[node->input[k]->id];
    }
}

static bool takes_long(const Node *node) {
    switch (op_info(node->op)->kind) {
    case KIND_CONTRACT:
    case KIND_OPAQUE:
    case KIND_CUSTOM:
    case KIND_SCAN:
    case KIND_SCATTER:
        return true;
    case KIND_REDUCE:
        return node_numel(node) <= node_numel(node->input[0]) / MUCH_LESS;
    default:
        return false;
    }
}

static bool reads_memory(const Node *node) {
    return takes_long(node) && op_info(node->op)->kind != KIND_REDUCE;
}

/* What a step of a library reads, and what one gives to several, or to a reduction. */
static void mark_stored(Partition *p) {
    const int *users = graph_users(p->graph, p->order);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        bool reduces = op_info(node->op)->kind == KIND_REDUCE;
        for (int k = 0; k < node->input_count; k++) {
            const Node *x = node->input[k];
            if (!x || p->late[node->id]) continue;
            p->stored[x->id] |=
                reads_memory(node) || (reads_memory(x) && (reduces || users[x->id] > 1));
        }
    }
}

static void mark_exact(Partition *p) {
    for (int i = 0; i < length(p->order); i++)
        for (int k = 0; k < 2; k++) {
            const Node *node = p->order[i], *extreme = node_own_extreme(node, k);
            if (!extreme || p->late[node->id]) continue;
            p->exact[extreme->id] = true;
            p->exact[node_below_views(extreme->input[0])->id] = true;
        }
}

/* What acts, or was drawn by what is no op of the table, is done once. */
static bool may_be_repeated(const Partition *p, const Node *node) {
    return !p->exact[node->id] && op_info(node->op)->kind != KIND_CUSTOM && node->op != OP_input;
}

/* What a checkpoint computes for itself, and, for the gradients, again (recompute.c). */
static void mark_inside(Partition *p) {
    graph_find_inside(p->graph, p->order, p->inside, p->given);
    for (int i = 0; i < length(p->order); i++)
        p->inside[p->order[i]->id] |= node_again(p->order[i]) != 0;
}

/* Else the gradients are the first to compute it; a checkpoint begins with what the one before it
 * gives. */
static void mark_heavy(Partition *p) {
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        int id = (int)node->id;
        bool once = p->given[id] || (takes_long(node) && !p->inside[id]) || p->exact[id];
        p->heavy[id] = (p->early[id] && once) || p->written[id];
    }
}

/* Operations of an op that takes long, by its operands' sizes. */
static double work_of(const Node *node) {
    const Node *x = node->input[0], *w = node->input_count > 1 ? node->input[1] : NULL;
    double each = op_info(node->op)->cost + 1, count = (double)node_numel(node);
    if (op_info(node->op)->kind != KIND_CONTRACT || !w)
        return each * (x ? (double)node_numel(x) : count);
    if (x->rank && w->rank <= 2) return 2 * count * (double)x->size[x->rank - 1];
    return 2 * count * (double)node_numel(w) / (double)(w->size[0] ? w->size[0] : 1);
}

/* ---- the flow ------------------------------------------------------------------------------ */

static void connect(Flow *flow, int from, int to, int64_t capacity) {
    push(flow->arena, flow->edges[from], length(flow->edge));
    push(flow->arena, flow->edge, ((FlowEdge){to, capacity}));
    push(flow->arena, flow->edges[to], length(flow->edge));
    push(flow->arena, flow->edge, ((FlowEdge){from, 0}));
}

static bool find_levels(Flow *flow) {
    int *queue = NULL;
    for (int v = 0; v < flow->vertices; v++) flow->level[v] = -1, flow->next[v] = 0;
    flow->level[flow->source] = 0;
    push(flow->arena, queue, flow->source);
    for (int i = 0; i < length(queue); i++) {
        int v = queue[i];
        for (int k = 0; k < length(flow->edges[v]); k++) {
            const FlowEdge *edge = &flow->edge[flow->edges[v][k]];
            if (!edge->left || flow->level[edge->to] >= 0) continue;
            flow->level[edge->to] = flow->level[v] + 1;
            push(flow->arena, queue, edge->to);
        }
    }
    return flow->level[flow->sink] >= 0;
}

/* The next edge from v that leads further; -1: there is none. */
static int find_edge(Flow *flow, int v) {
    for (; flow->next[v] < length(flow->edges[v]); flow->next[v]++) {
        int number = flow->edges[v][flow->next[v]];
        const FlowEdge *edge = &flow->edge[number];
        if (edge->left && flow->level[edge->to] == flow->level[v] + 1) return number;
    }
    return -1;
}

static void send(Flow *flow) {
    int64_t least = endless;
    for (int i = 0; i < length(flow->path); i++) {
        int64_t left = flow->edge[flow->path[i]].left;
        if (left < least) least = left;
    }
    for (int i = 0; i < length(flow->path); i++) {
        flow->edge[flow->path[i]].left -= least;
        flow->edge[flow->path[i] ^ 1].left += least;
    }
}

/* All ways of the shortest length, with a path in place of recursion. */
static void send_all(Flow *flow) {
    int v = flow->source;
    truncate_to(flow->path, 0);
    for (;;) {
        int edge = v == flow->sink ? -1 : find_edge(flow, v);
        if (v == flow->sink) {
            send(flow);
            truncate_to(flow->path, 0);
            v = flow->source;
        } else if (edge >= 0) {
            push(flow->arena, flow->path, edge);
            v = flow->edge[edge].to;
        } else if (length(flow->path)) {
            edge = pop(flow->path);
            v = flow->edge[edge ^ 1].to;
            flow->next[v]++;
        } else {
            return;
        }
    }
}

/* By vertex: the sink can still be reached. */
static bool *reaches_sink(const Flow *flow) {
    bool *reaches = arena_new_array(flow->arena, bool, flow->vertices);
    int *queue = NULL;
    reaches[flow->sink] = true;
    push(flow->arena, queue, flow->sink);
    for (int i = 0; i < length(queue); i++) {
        int v = queue[i];
        for (int k = 0; k < length(flow->edges[v]); k++) {
            int number = flow->edges[v][k], from = flow->edge[number].to;
            if (!flow->edge[number ^ 1].left || reaches[from]) continue;
            reaches[from] = true;
            push(flow->arena, queue, from);
        }
    }
    return reaches;
}

/* ---- the cut ------------------------------------------------------------------------------- */

/* In passes over its bytes: one to read it there, and one to write it here, if nobody does anyway.
 * A view is no memory: what it is of is saved, unless it is much smaller. Results are the caller's,
 * who may write to them: of one that is saved there is a copy. */
static int64_t cost_of_saving(const Partition *p, const Node *node) {
    bool view = op_info(node->op)->kind == KIND_VIEW, copies = view || p->written[node->id];
    if (view && node_numel(node) >= node_numel(node->input[0])) return endless;
    if (p->inside[node->id]) return endless;
    for (int i = 0; i < p->results; i++) copies |= p->graph->output[i] == node;
    return (copies ? 3 : p->stored[node->id] ? 1 : 2) * (node_bytes(node) + 1);
}

static bool is_at_hand(const Partition *p, const Node *node) {
    return node->op == OP_constant || (node->op == OP_input && !p->written[node->id]);
}

static void build_flow(Partition *p) {
    int nodes = length(p->graph->node), vertices = 2 * nodes + 2;
    Flow *flow = &p->flow;
    *flow = (Flow){
        .arena = p->graph->arena, .vertices = vertices, .source = 2 * nodes, .sink = 2 * nodes + 1};
    flow->edges = arena_new_array(flow->arena, int *, vertices);
    flow->level = arena_new_array(flow->arena, int, vertices);
    flow->next = arena_new_array(flow->arena, int, vertices);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        int in = 2 * (int)node->id, out = in + 1;
        if (p->late[node->id] || is_at_hand(p, node)) continue;
        connect(flow, in, out, cost_of_saving(p, node));
        if (p->heavy[node->id]) connect(flow, flow->source, in, endless);
        if (p->read[node->id]) connect(flow, out, flow->sink, endless);
        for (int k = 0; k < node->input_count; k++)
            if (node->input[k] && !is_at_hand(p, node->input[k]))
                connect(flow, 2 * (int)node->input[k]->id + 1, in, endless);
    }
}

/* What is saved with what is heavy now; its bytes. */
static int64_t cut(Partition *p) {
    int64_t bytes = 0;
    build_flow(p);
    while (find_levels(&p->flow)) send_all(&p->flow);
    const bool *reaches = reaches_sink(&p->flow);
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        int in = 2 * (int)node->id;
        p->saved[node->id] =
            !p->late[node->id] && !is_at_hand(p, node) && !reaches[in] && reaches[in + 1];
        if (p->saved[node->id]) bytes += node_bytes(node);
    }
    return bytes;
}

/* ---- the budget ---------------------------------------------------------------------------- */

static double work_per_byte(const Node *node) {
    return work_of(node) / (double)(node_bytes(node) + 1);
}

/* The heavy nodes that may be repeated, the cheapest for its bytes first. */
static const Node **list_heavy(const Partition *p) {
    const Node **list = NULL;
    for (int i = 0; i < length(p->order); i++) {
        const Node *node = p->order[i];
        if (!p->heavy[node->id] || !may_be_repeated(p, node)) continue;
        push(p->graph->arena, list, node);
        int at = length(list) - 1;
        for (; at > 0 && work_per_byte(list[at - 1]) > work_per_byte(node); at--)
            list[at] = list[at - 1];
        list[at] = node;
    }
    return list;
}

static int64_t cut_without(Partition *p, const Node *const *list, int count) {
    for (int i = 0; i < length(list); i++) p->heavy[list[i]->id] = i >= count;
    return cut(p);
}

/* As few as the budget takes are computed again. */
static int64_t cut_within(Partition *p, double budget) {
    int64_t most = cut(p);
    if (budget >= 1) return most;
    const Node *const *list = list_heavy(p);
    int64_t least = cut_without(p, list, length(list));
    double allowed = (double)least + budget * (double)(most - least);
    int few = 0, many = length(list); /* `many` keeps within it */
    while (few < many) {
        int middle = (few + many) / 2;
        if ((double)cut_without(p, list, middle) <= allowed)
            many = middle;
        else
            few = middle + 1;
    }
    return cut_without(p, list, many);
}

/* ---- the two graphs ------------------------------------------------------------------------ */

/* Nodes of the gradients' graph by id, from what is at hand there. */
typedef struct Copying {
    const Partition *p;
    BackwardGraph *backward;
    Node **now;
} Copying;

static void add_read(Copying *c, const Node *node, ReadKind kind, int number) {
    Graph *copy = c->backward->graph;
    Meta meta = node_meta(node);
    meta.device = (uint8_t)copy->device;
    c->now[node->id] = graph_input(copy, &meta);
    push(copy->arena, c->backward->read, ((BackwardRead){kind, number}));
}

/* By id: what the gradients compute or read. Ids rise from inputs to users. */
static bool *find_needed(const Partition *p) {
    const Graph *graph = p->graph;
    bool *needed = arena_new_array(graph->arena, bool, length(graph->node) + 1);
    for (int i = p->results; i < length(graph->output); i++) needed[graph->output[i]->id] = true;
    for (int id = length(graph->node) - 1; id >= 0; id--) {
        const Node *node = graph->node[id];
        for (int k = 0; k < node->input_count && needed[id] && !p->saved[id]; k++)
            if (node->input[k]) needed[node->input[k]->id] = true;
    }
    return needed;
}

/* Inputs, what is saved, which becomes outputs of the graph, and what is given. */
static void copy_reads(Copying *c, const bool *needed) {
    const Partition *p = c->p;
    Graph *graph = p->graph;
    int arguments = length(graph->input) - p->joint->given, saved = 0;
    for (int k = 0; k < arguments; k++)
        if (needed[graph->input[k]->id] && !p->saved[graph->input[k]->id])
            add_read(c, graph->input[k], READS_INPUT, k);
    for (int id = 0; id < length(graph->node); id++)
        if (needed[id] && p->saved[id]) add_read(c, graph->node[id], READS_SAVED, saved++);
    for (int k = arguments; k < length(graph->input); k++)
        if (needed[graph->input[k]->id]) add_read(c, graph->input[k], READS_GIVEN, k - arguments);
}

static void copy_backward(const Partition *p, BackwardGraph *backward) {
    const Graph *graph = p->graph;
    Graph *copy = backward->graph;
    Node **now = arena_new_array(graph->arena, Node *, length(graph->node) + 1);
    Copying c = {p, backward, now};
    const bool *needed = find_needed(p);
    copy_reads(&c, needed);
    for (int id = 0; id < length(graph->node); id++) {
        const Node *node = graph->node[id];
        if (!needed[id] || now[id]) continue;
        copy->origin = (Origin){.site = node->origin.site};
        now[id] = graph_copy_node(copy, node, now);
    }
    copy->origin = (Origin){.call = NULL};
    for (int i = p->results; i < length(graph->output); i++)
        push(copy->arena, copy->output, now[graph->output[i]->id]);
}

static void save_outputs(Partition *p) {
    Graph *graph = p->graph;
    const bool *needed = find_needed(p);
    truncate_to(graph->output, p->results);
    for (int id = 0; id < length(graph->node); id++)
        if (needed[id] && p->saved[id]) push(graph->arena, graph->output, graph->node[id]);
    truncate_to(graph->input, length(graph->input) - p->joint->given);
}

void graph_partition(Graph *graph, const JointGraph *joint, Arena *arena, BackwardGraph *backward) {
    int nodes = length(graph->node) + 1;
    Partition p = {.graph = graph, .joint = joint, .order = graph_order(graph)};
    p.results = length(graph->output) - length(joint->gradient);
    p.late = arena_new_array(graph->arena, bool, nodes);
    p.early = arena_new_array(graph->arena, bool, nodes);
    p.read = arena_new_array(graph->arena, bool, nodes);
    p.written = arena_new_array(graph->arena, bool, nodes);
    p.heavy = arena_new_array(graph->arena, bool, nodes);
    p.given = arena_new_array(graph->arena, bool, nodes);
    p.inside = arena_new_array(graph->arena, bool, nodes);
    p.exact = arena_new_array(graph->arena, bool, nodes);
    p.stored = arena_new_array(graph->arena, bool, nodes);
    p.saved = arena_new_array(graph->arena, bool, nodes);
    mark_late(&p);
    mark_early(&p);
    mark_read(&p);
    mark_stored(&p);
    mark_exact(&p);
    mark_inside(&p);
    for (int i = 0; i < length(graph->mutation); i++)
        p.written[graph->input[graph->mutation[i].input]->id] = true;
    mark_heavy(&p);
    backward->saved_bytes = cut_within(&p, joint->budget);
    backward->graph = graph_new(arena);
    backward->graph->ambient = graph->ambient;
    backward->graph->device = graph->device;
    backward->graph->random_count = graph->random_count;
    backward->read = NULL;
    copy_backward(&p, backward);
    save_outputs(&p);
}
