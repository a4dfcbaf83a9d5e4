/* An executable and its graph -> a drawing: a box for each step, with the nodes that it computes,
 * above the boxes that need it.
 *
 *     x -> exp -> sum -> div       ->      ( x )
 *     one kernel                          +----------------+
 *                                         | exp  sum  div  |
 *                                         +----------------+
 *                                          ( output 0 )
 *
 * A node without a step of its own (a view, cheap arithmetic) is part of whatever reads it, and is
 * drawn in each of them; views have a broken line. Constants and parameters are not drawn: a
 * node's title names them. */
#include "graph/node.h"
#include "graph/text.h"
#include "report/layout.h"
#include "report/page.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 6000, NODE_WIDTH = 128, NODE_HEIGHT = 34, NODE_GAP = 10, PADDING = 10 };
enum { TITLE_HEIGHT = 34, TITLE_WIDTH = 240, PILL_HEIGHT = 24, IN_A_LINE = 4 };

typedef struct Part {             /* a node in a box */
    const Node *node;             /* NULL: the output `number` */
    int box, number, depth, x, y; /* x, y: within the box */
    int next;                     /* another part of the same node; -1 */
    int *in;                      /* vec: parts that it reads */
    int *lane; /* vec: items that carry it down, from its own box on, a layer each */
} Part;

typedef struct Box {
    int step;  /* -1: an input or an output */
    int *part; /* vec */
    int item, layer, width, height;
} Box;

typedef struct Drawing {
    Arena *arena;
    const Executable *executable;
    const Plan *plan;
    Node **order;
    const char **names;
    int inputs;
    int *first;    /* by node id: its first part; -1: none */
    int *position; /* by node id: in order */
    Part *part;    /* vec */
    Box *box;      /* vec */
    LayoutSheet layout;
    Buffer *out;
} Drawing;

/* ---- nodes into boxes ------------------------------------------------------------------------ */

static int add_box(Drawing *d, int step) {
    push(d->arena, d->box, (Box){.step = step});
    return length(d->box) - 1;
}

static int add_part(Drawing *d, const Node *node, int box) {
    int number = length(d->part);
    Part part = {.node = node, .box = box, .number = -1};
    part.next = node ? d->first[node->id] : -1;
    push(d->arena, d->part, part);
    push(d->arena, d->box[box].part, number);
    if (node) d->first[node->id] = number;
    return number;
}

static bool is_drawn(const Drawing *d, const Node *node) {
    if (!node || node->op == OP_constant) return false;
    return node->op != OP_input || node->attrs->word[0] < d->inputs;
}

/* Inputs, and what steps compute: each in one box. Boxes are in the order of steps then. */
static void add_homes(Drawing *d) {
    int *box = arena_new_array(d->arena, int, length(d->plan->step) + 1);
    for (int i = 0; i < length(d->order); i++)
        if (d->order[i]->op == OP_input && is_drawn(d, d->order[i]))
            add_part(d, d->order[i], add_box(d, -1));
    for (int s = 0; s < length(d->plan->step); s++) box[s] = -1;
    for (int i = 0; i < length(d->order); i++) {
        int step = d->plan->node_step[d->order[i]->id];
        if (step >= 0) box[step] = 0;
    }
    for (int s = 0; s < length(d->plan->step); s++)
        if (box[s] == 0) box[s] = add_box(d, s);
    for (int i = 0; i < length(d->order); i++) {
        int step = d->plan->node_step[d->order[i]->id];
        if (step >= 0) add_part(d, d->order[i], box[step]);
    }
}

static bool has_home(const Drawing *d, const Node *node) {
    return node->op == OP_input || d->plan->node_step[node->id] >= 0;
}

/* The part that a reader in this box reads: the node's own, or one of the box. */
static int part_for(Drawing *d, const Node *node, int box) {
    int part = d->first[node->id];
    if (has_home(d, node)) return part;
    while (part >= 0 && d->part[part].box != box) part = d->part[part].next;
    return part >= 0 ? part : add_part(d, node, box);
}

static void add_readers(Drawing *d) {
    for (int k = 0; k < length(d->part) && k < MOST_PARTS; k++) {
        const Node *node = d->part[k].node;
        for (int i = 0; node && i < node->input_count; i++) {
            if (!is_drawn(d, node->input[i])) continue;
            int in = part_for(d, node->input[i], d->part[k].box);
            push(d->arena, d->part[k].in, in);
        }
    }
}

/* An output is a view of something that has a box. */
static void add_outputs(Drawing *d, const Graph *graph) {
    int outputs = length(graph->output), all = outputs + length(graph->mutation);
    for (int i = 0; i < all; i++) {
        const Node *node = i < outputs ? graph->output[i] : graph->mutation[i - outputs].value;
        while (!has_home(d, node) && node->input_count) node = node->input[0];
        if (!is_drawn(d, node) || d->first[node->id] < 0) continue;
        int part = add_part(d, NULL, add_box(d, -1));
        d->part[part].number = i < outputs ? i : -1 - graph->mutation[i - outputs].input;
        push(d->arena, d->part[part].in, d->first[node->id]);
    }
}

/* ---- within a box ---------------------------------------------------------------------------- */

static bool is_pill(const Box *box) { return box->step < 0; }

typedef struct Sorted {
    int position, part;
} Sorted;

static int by_position(const void *a, const void *b) {
    const Sorted *x = a, *y = b;
    return x->position - y->position;
}

/* Depth among the parts of the same box; in order, so that what is read has its own. */
static int set_depths(Drawing *d, const Box *box) {
    int count = length(box->part), deepest = 0;
    Sorted *sorted = arena_new_array(d->arena, Sorted, count);
    for (int i = 0; i < count; i++) {
        const Node *node = d->part[box->part[i]].node;
        sorted[i] = (Sorted){node ? d->position[node->id] : 0, box->part[i]};
    }
    qsort(sorted, (size_t)count, sizeof *sorted, by_position);
    for (int i = 0; i < count; i++) {
        Part *part = &d->part[sorted[i].part];
        box->part[i] = sorted[i].part;
        for (int k = 0; k < length(part->in); k++) {
            const Part *in = &d->part[part->in[k]];
            if (in->box == part->box && in->depth >= part->depth) part->depth = in->depth + 1;
        }
        if (part->depth > deepest) deepest = part->depth;
    }
    return deepest;
}

/* Parts of one depth stand in lines of a few; returns where the next line begins. */
static int place_depth(Drawing *d, const Box *box, int depth, int y) {
    int count = 0, placed = 0;
    for (int i = 0; i < length(box->part); i++) count += d->part[box->part[i]].depth == depth;
    for (int i = 0; i < length(box->part); i++) {
        Part *part = &d->part[box->part[i]];
        if (part->depth != depth) continue;
        int begun = placed / IN_A_LINE * IN_A_LINE;
        int line = count - begun < IN_A_LINE ? count - begun : IN_A_LINE;
        int width = line * (NODE_WIDTH + NODE_GAP) - NODE_GAP;
        part->x = (box->width - width) / 2 + (placed - begun) * (NODE_WIDTH + NODE_GAP);
        part->y = y + placed / IN_A_LINE * (NODE_HEIGHT + NODE_GAP);
        placed++;
    }
    return y + (count + IN_A_LINE - 1) / IN_A_LINE * (NODE_HEIGHT + NODE_GAP);
}

static void place_parts(Drawing *d, Box *box) {
    if (is_pill(box)) {
        box->width = NODE_WIDTH + 2 * PADDING;
        box->height = PILL_HEIGHT;
        return;
    }
    int deepest = set_depths(d, box), widest = 1, y = TITLE_HEIGHT + PADDING / 2;
    int *count = arena_new_array(d->arena, int, deepest + 1);
    for (int i = 0; i < length(box->part); i++) {
        int here = ++count[d->part[box->part[i]].depth];
        if (here > widest) widest = here;
    }
    if (widest > IN_A_LINE) widest = IN_A_LINE;
    box->width = widest * (NODE_WIDTH + NODE_GAP) - NODE_GAP + 2 * PADDING;
    if (box->width < TITLE_WIDTH) box->width = TITLE_WIDTH;
    for (int k = 0; k <= deepest; k++) y = place_depth(d, box, k, y);
    box->height = y;
}

/* ---- boxes into layers ----------------------------------------------------------------------- */

/* Boxes come in the order of steps, outputs last. */
static void set_layer(Drawing *d, int number) {
    Box *box = &d->box[number];
    box->layer = is_pill(box) ? 0 : 1;
    for (int i = 0; i < length(box->part); i++) {
        const Part *part = &d->part[box->part[i]];
        for (int k = 0; k < length(part->in); k++) {
            int from = d->part[part->in[k]].box;
            if (from != number && d->box[from].layer >= box->layer)
                box->layer = d->box[from].layer + 1;
        }
    }
}

/* Inputs stand right above the first who reads them. */
static void lower_inputs(Drawing *d) {
    for (int k = 0; k < length(d->part); k++)
        for (int i = 0; i < length(d->part[k].in); i++) {
            Part *in = &d->part[d->part[k].in[i]];
            int above = d->box[d->part[k].box].layer - 1;
            bool lowers = is_pill(&d->box[in->box]) && (in->number < 0 || above < in->number);
            if (lowers) in->number = above;
        }
    for (int b = 0; b < length(d->box); b++) {
        const Part *part = &d->part[d->box[b].part[0]];
        if (is_pill(&d->box[b]) && part->node && part->number > 0) d->box[b].layer = part->number;
    }
}

/* A path from the part down to the box: it passes every layer between them, and others that go the
 * same way take it, too. */
static void link_down(Drawing *d, Part *from, int to) {
    int above = d->box[from->box].layer, below = d->box[to].layer;
    if (!from->lane) push(d->arena, from->lane, d->box[from->box].item);
    while (length(from->lane) < below - above) {
        int last = from->lane[length(from->lane) - 1];
        int next = layout_add(&d->layout, 0, 0, above + length(from->lane));
        layout_link(&d->layout, last, next);
        push(d->arena, from->lane, next);
    }
    layout_link(&d->layout, from->lane[below - above - 1], d->box[to].item);
}

static bool goes_down(const Drawing *d, const Part *from, const Part *to) {
    return d->box[from->box].layer < d->box[to->box].layer;
}

static void lay_out(Drawing *d) {
    for (int b = 0; b < length(d->box); b++) {
        place_parts(d, &d->box[b]);
        set_layer(d, b);
    }
    lower_inputs(d);
    for (int b = 0; b < length(d->box); b++) {
        Box *box = &d->box[b];
        box->item = layout_add(&d->layout, box->width, box->height, box->layer);
    }
    for (int k = 0; k < length(d->part); k++)
        for (int i = 0; i < length(d->part[k].in); i++) {
            Part *from = &d->part[d->part[k].in[i]];
            if (goes_down(d, from, &d->part[k])) link_down(d, from, d->part[k].box);
        }
    layout_place(&d->layout);
}

/* ---- as SVG ---------------------------------------------------------------------------------- */

typedef struct Point {
    int x, y;
} Point;

static Point corner(const Drawing *d, const Part *part) {
    const Box *box = &d->box[part->box];
    const LayoutItem *item = &d->layout.item[box->item];
    return (Point){item->x + (is_pill(box) ? 0 : part->x), item->y + (is_pill(box) ? 0 : part->y)};
}

static Point below(const Drawing *d, const Part *part) {
    const Box *box = &d->box[part->box];
    Point at = corner(d, part);
    if (is_pill(box)) return (Point){at.x + box->width / 2, at.y + box->height};
    return (Point){at.x + NODE_WIDTH / 2, at.y + NODE_HEIGHT};
}

static Point above(const Drawing *d, const Part *part) {
    const Box *box = &d->box[part->box];
    Point at = corner(d, part);
    return (Point){at.x + (is_pill(box) ? box->width : NODE_WIDTH) / 2, at.y};
}

static void put_curve(Drawing *d, Point from, Point to) {
    int middle = (from.y + to.y) / 2;
    putf(d->out, "C%d %d %d %d %d %d", from.x, middle, to.x, middle, to.x, to.y);
}

/* Down the lane, layer by layer. */
static void put_edge(Drawing *d, const Part *from, const Part *to) {
    Point at = below(d, from), end = above(d, to);
    int layers = d->box[to->box].layer - d->box[from->box].layer;
    putf(d->out, "<path d=\"M%d %d", at.x, at.y);
    for (int k = 1; k < layers; k++) {
        const LayoutItem *item = &d->layout.item[from->lane[k]];
        put_curve(d, at, (Point){item->x, item->y});
        at = (Point){item->x, item->y + item->height};
        putf(d->out, "V%d", at.y);
    }
    put_curve(d, at, end);
    put(d->out, "\"/>\n");
}

static void put_edges(Drawing *d) {
    put(d->out, "<g class=\"edges\">\n");
    for (int k = 0; k < length(d->part); k++)
        for (int i = 0; i < length(d->part[k].in); i++) {
            const Part *from = &d->part[d->part[k].in[i]], *to = &d->part[k];
            if (from->box == to->box || goes_down(d, from, to)) put_edge(d, from, to);
        }
    put(d->out, "</g>\n");
}

/* Constants have no names: one stands here where only a check reads it. */
static const char *name_of(const Drawing *d, const Node *node) {
    return node->op == OP_constant ? "constant" : d->names[node->id];
}

/* What does not fit is in the title. */
static void put_short(Buffer *out, const char *text, int most) {
    Buffer part = buffer_new(out->arena);
    int bytes = (int)strlen(text);
    putf(&part, "%.*s%s", bytes > most ? most - 1 : bytes, text, bytes > most ? "\u2026" : "");
    page_text(out, buffer_text(&part));
}

static void put_title(Drawing *d, const Node *node) {
    Buffer line = buffer_new(d->arena);
    if (node->op == OP_input || node->op == OP_constant)
        put(&line, name_of(d, node));
    else
        text_node(d->names, node, &line);
    put(d->out, "<title>");
    page_text(d->out, buffer_text(&line));
    Site site = node->origin.site;
    if (site.path) page_text(d->out, "\nin "), page_text(d->out, site.path);
    if (site.file) page_text(d->out, "\nat "), page_text(d->out, site.file);
    if (site.file) putf(d->out, ":%d", site.line);
    put(d->out, "</title>");
}

static void put_node(Drawing *d, const Part *part) {
    Point at = corner(d, part);
    char meta[128];
    Meta of = node_meta(part->node);
    meta_format(&of, meta, sizeof meta);
    putf(d->out,
         "<g class=\"node%s\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\"/>"
         "<text x=\"%d\" y=\"%d\">",
         op_info(part->node->op)->kind == KIND_VIEW ? " view" : "", at.x, at.y, NODE_WIDTH,
         NODE_HEIGHT, at.x + NODE_WIDTH / 2, at.y + 14);
    put_short(d->out, name_of(d, part->node), 18);
    putf(d->out, "</text><text class=\"meta\" x=\"%d\" y=\"%d\">", at.x + NODE_WIDTH / 2,
         at.y + 28);
    put_short(d->out, meta, 22);
    put(d->out, "</text>");
    put_title(d, part->node);
    put(d->out, "</g>\n");
}

static void put_pill(Drawing *d, const Box *box) {
    const Part *part = &d->part[box->part[0]];
    const LayoutItem *item = &d->layout.item[box->item];
    char meta[128], name[160];
    Meta of = node_meta(part->node ? part->node : d->part[part->in[0]].node);
    meta_format(&of, meta, sizeof meta);
    if (part->node)
        snprintf(name, sizeof name, "%s %s", name_of(d, part->node), meta);
    else if (part->number >= 0)
        snprintf(name, sizeof name, "output %d", part->number);
    else
        snprintf(name, sizeof name, "written to input %d", -1 - part->number);
    putf(d->out,
         "<g class=\"pill\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"12\"/>"
         "<text x=\"%d\" y=\"%d\">",
         item->x, item->y, box->width, box->height, item->x + box->width / 2, item->y + 16);
    put_short(d->out, name, 22);
    put(d->out, "</text><title>");
    page_text(d->out, name);
    put(d->out, "</title></g>\n");
}

static void put_box(Drawing *d, const Box *box) {
    const LayoutItem *item = &d->layout.item[box->item];
    const Step *step = &d->plan->step[box->step];
    double ms = executable_step_ms(d->executable, box->step), all = report_ms(d->executable);
    putf(d->out,
         "<g class=\"box %s\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\"/>",
         step->kind == STEP_KERNEL ? "kernel" : "task", item->x, item->y, box->width, box->height);
    if (ms > 0 && all > 0)
        putf(d->out, "<rect class=\"heat\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"4\"/>",
             item->x + 8, item->y, (int)((box->width - 16) * ms / all + 0.5));
    put(d->out, "</g>\n");
}

/* Above the edges: the name, which leads to the step's row, and what it takes. */
static void put_name(Drawing *d, const Box *box, const char *id) {
    const LayoutItem *item = &d->layout.item[box->item];
    const Step *step = &d->plan->step[box->step];
    double ms = executable_step_ms(d->executable, box->step);
    Buffer text = buffer_new(d->arena), numbers = buffer_new(d->arena);
    report_step(d->executable, box->step, &text);
    if (ms > 0) put_ms(&numbers, ms), put(&numbers, " ms, ");
    put_byte_count(&numbers, step_bytes(d->plan, step));
    putf(d->out, "<a href=\"#%ss%d\"><g class=\"title %s\"><text class=\"name\" x=\"%d\" y=\"%d\">",
         id, box->step, step->kind == STEP_KERNEL ? "kernel" : "task", item->x + PADDING,
         item->y + 17);
    put_short(d->out, buffer_text(&text), box->width / 7 - 2);
    putf(d->out, "</text><text class=\"meta\" x=\"%d\" y=\"%d\">%s</text><title>",
         item->x + PADDING, item->y + 30, buffer_text(&numbers));
    page_text(d->out, buffer_text(&text));
    put(d->out, "</title></g></a>\n");
}

static void put_drawing(Drawing *d, const char *id) {
    const LayoutSheet *l = &d->layout;
    putf(d->out,
         "<div class=\"stage\"><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
         "height=\"%d\" viewBox=\"0 0 %d %d\">\n",
         l->width, l->height, l->width, l->height);
    for (int b = 0; b < length(d->box); b++)
        if (!is_pill(&d->box[b])) put_box(d, &d->box[b]);
    put_edges(d);
    for (int b = 0; b < length(d->box); b++)
        if (is_pill(&d->box[b]))
            put_pill(d, &d->box[b]);
        else
            put_name(d, &d->box[b], id);
    for (int k = 0; k < length(d->part); k++)
        if (!is_pill(&d->box[d->part[k].box])) put_node(d, &d->part[k]);
    put(d->out, "</svg></div>\n");
}

void page_drawing(const Executable *executable, const Graph *graph, int inputs, const char *id,
                  Buffer *out) {
    Arena *arena = out->arena;
    Drawing d = {.arena = arena, .executable = executable, .inputs = inputs, .out = out};
    d.plan = executable_plan(executable);
    d.layout.arena = arena;
    d.order = graph_walk(graph, arena, graph->check, false);
    d.names = text_names(graph, d.order, arena);
    d.first = arena_new_array(arena, int, length(graph->node) + 1);
    d.position = arena_new_array(arena, int, length(graph->node) + 1);
    for (int i = 0; i <= length(graph->node); i++) d.first[i] = -1;
    for (int i = 0; i < length(d.order); i++) d.position[d.order[i]->id] = i;
    add_homes(&d);
    add_readers(&d);
    add_outputs(&d, graph);
    if (!length(d.box)) return;
    if (length(d.part) > MOST_PARTS) {
        putf(out, "<p>%d nodes are too many to draw.</p>\n", length(d.order));
        return;
    }
    lay_out(&d);
    put_drawing(&d, id);
}
