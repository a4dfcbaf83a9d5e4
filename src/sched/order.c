/* The order that nodes are looked at in: what reads a tensor comes before a write to a part of it,
 * so that this may be made in place (write.c).
 *
 *     softmax(slice_scatter(y, ..)) + sum(y)    the walk from the results comes to the write,
 *                                               and to the sum behind it
 *
 * Needs nodes in any order in which inputs come first, and leaves it as it is but for writes that
 * wait. A write waits for no reader that needs it itself, and not where two would wait for each
 * other. */
#include "sched/schedule.h"

enum { FAR = 64 }; /* nodes behind a write that a reader may need: of more it may be one of them */

typedef struct Ordering {
    const Graph *graph;
    Arena *arena;
    Node **order;       /* vec, as given */
    Node ***reader;     /* by node id: vec, each once */
    int *position;      /* by node id, in the given order */
    int *missing;       /* by position: inputs that are to come */
    int *awaited;       /* by position: readers that a write waits for */
    const Node ***wait; /* by node id: vec of the writes that wait for it */
    int *ready;         /* vec: heap of positions, the least first */
    bool *held, *done;  /* by position: a write that could come, but waits; it has come */
} Ordering;

/* ---- which wait ------------------------------------------------------------------------------ */

bool is_write(const Node *node) {
    return node->op == OP_slice_scatter || node->op == OP_dynamic_slice_scatter;
}

const Node *written_over(const Node *write) {
    const Node *node = write->input[0];
    while (node->op == OP_reshape || node->op == OP_permute) node = node->input[0];
    return node;
}

/* Whether the node needs the write, or may, for all that is looked at. */
static bool may_need(const Ordering *o, const Node *node, const Node *write, int *budget) {
    if (node == write || --*budget < 0) return true;
    if (o->position[node->id] < o->position[write->id]) return false;
    for (int k = 0; k < node->input_count; k++)
        if (node->input[k] && may_need(o, node->input[k], write, budget)) return true;
    return false;
}

/* For whatever reads `over`, also through views, and comes behind the write. */
static void wait_for_readers(Ordering *o, const Node *over, const Node *write) {
    Node **reader = o->reader[over->id];
    for (int i = 0; i < length(reader); i++) {
        int budget = FAR;
        bool before = o->position[reader[i]->id] <= o->position[write->id];
        bool writes = is_write(reader[i]) && reader[i]->input[0] == over;
        if (graph_views(o->graph, reader[i])) {
            wait_for_readers(o, reader[i], write);
        } else if (!before && !writes && !may_need(o, reader[i], write, &budget)) {
            push(o->arena, o->wait[reader[i]->id], write);
            o->awaited[o->position[write->id]]++;
        }
    }
}

/* ---- the heap -------------------------------------------------------------------------------- */

static void swap(int *a, int *b) {
    int kept = *a;
    *a = *b, *b = kept;
}

static void make_ready(Ordering *o, int position) {
    push(o->arena, o->ready, position);
    for (int i = length(o->ready) - 1; i > 0 && o->ready[i] < o->ready[(i - 1) / 2];
         i = (i - 1) / 2)
        swap(&o->ready[i], &o->ready[(i - 1) / 2]);
}

static int take_ready(Ordering *o) {
    int least = o->ready[0], last = pop(o->ready), count = length(o->ready);
    if (count) o->ready[0] = last;
    for (int i = 0, next; (next = 2 * i + 1) < count; i = next) {
        if (next + 1 < count && o->ready[next + 1] < o->ready[next]) next++;
        if (o->ready[i] <= o->ready[next]) break;
        swap(&o->ready[i], &o->ready[next]);
    }
    return least;
}

/* ---- the order ------------------------------------------------------------------------------- */

static void come(Ordering *o, int position, Node ***out) {
    const Node *node = o->order[position];
    push(o->arena, *out, o->order[position]);
    o->done[position] = true;
    for (int i = 0; i < length(o->reader[node->id]); i++) {
        int at = o->position[o->reader[node->id][i]->id];
        if (--o->missing[at] == 0) make_ready(o, at);
    }
    for (int i = 0; i < length(o->wait[node->id]); i++) {
        int at = o->position[o->wait[node->id][i]->id];
        if (--o->awaited[at] == 0 && o->held[at]) make_ready(o, at);
    }
}

/* Nothing else can come: the first that is held does. */
static void give_up_waiting(Ordering *o) {
    for (int i = 0; i < length(o->order); i++) {
        if (!o->held[i] || o->done[i]) continue;
        o->awaited[i] = 0;
        make_ready(o, i);
        return;
    }
}

Node ***order_readers(const Graph *graph, Arena *arena, Node **order) {
    Node ***reader = arena_new_array(arena, Node **, length(graph->node) + 1);
    for (int i = 0; i < length(order); i++)
        for (int k = 0; k < order[i]->input_count; k++) {
            if (!order[i]->input[k]) continue;
            Node ***of = &reader[order[i]->input[k]->id];
            bool again = length(*of) && (*of)[length(*of) - 1] == order[i];
            if (!again) push(arena, *of, order[i]);
        }
    return reader;
}

static void find_missing(Ordering *o) {
    for (int i = 0; i < length(o->order); i++) o->position[o->order[i]->id] = i;
    for (int i = 0; i < length(o->order); i++) {
        Node **reader = o->reader[o->order[i]->id];
        for (int k = 0; k < length(reader); k++) o->missing[o->position[reader[k]->id]]++;
    }
}

Node **order_readers_first(const Graph *graph, Arena *arena, Node **order) {
    int count = length(graph->node) + 1, total = length(order);
    bool any = false;
    for (int i = 0; i < total; i++) any |= is_write(order[i]);
    if (!any || length(graph->effect)) return order;
    Ordering o = {.graph = graph, .arena = arena, .order = order};
    o.reader = order_readers(graph, arena, order);
    o.position = arena_new_array(arena, int, count);
    o.missing = arena_new_array(arena, int, total);
    o.awaited = arena_new_array(arena, int, total);
    o.wait = arena_new_array(arena, const Node **, count);
    o.held = arena_new_array(arena, bool, total);
    o.done = arena_new_array(arena, bool, total);
    find_missing(&o);
    for (int i = 0; i < total; i++) {
        if (is_write(order[i])) wait_for_readers(&o, written_over(order[i]), order[i]);
        if (!o.missing[i]) make_ready(&o, i);
    }
    Node **out = NULL;
    while (length(out) < total) {
        if (!length(o.ready)) give_up_waiting(&o);
        int position = take_ready(&o);
        o.held[position] = o.awaited[position] > 0;
        if (!o.held[position]) come(&o, position, &out);
    }
    return out;
}
