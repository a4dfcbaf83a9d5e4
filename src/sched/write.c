/* Writes to parts of what is computed: in place, where nobody needs what was there before.
 *
 *     y = x * 2
 *     y[3, 4] = 0; s = sum(y)         y1 = slice_scatter(y, ..), s = sum(y1)
 *
 * One kernel computes y, then its element is written where it lies, and sum reads that. Written so
 * are those scatters that somebody reads as a whole, and those that would be asked by many who
 * wrote an element; those between them and what they are written to, the base, are never in
 * memory, as with inputs (region.c). What reads the base or one of those in between as it was comes
 * before the write, or reads a part that no write touches. Where something else does, and of an
 * input or a result, the base is copied first, if a kernel would ask too much. */
#include "sched/schedule.h"

enum {
    LEAST_BYTES = 1 << 10, /* of less all is computed sooner than a copy is called */
    PART_LEAST = 4,        /* so many times as large as what is written of it, at the least */
    MOST_ASKED = 8,        /* writes that a loop asks for each element, whether it is theirs */
    MOST_FOLDED = 4,       /* the same of one that folds, or reads anywhere */
    MOST_CUT = 32,         /* writes along one axis, at which a loop is cut into others */
    LONG_CHAIN = 64,       /* of which parts are read: it is ended, by a copy if need be */
    LONG_STEP = 1024       /* so is any */
};

typedef struct PartRead {
    const Node *view;
    RegionBox box;
} PartRead;

/* What a base and all that is written to it in place lie in, one after the other. */
typedef struct Memory {
    const Node *first; /* the base, whose shape boxes are told in */
    PartRead *beside;  /* vec: of what it held, to be read behind the next write, too */
} Memory;

typedef struct WriteSearch {
    Schedule *s;
    Node ***reader;  /* by node id: vec, each once */
    bool *whole;     /* by node id: somebody reads it as that, below views */
    bool *asked;     /* by node id: somebody reads a part of it */
    bool *folded;    /* by node id: it is read where no loop is cut */
    bool *leads;     /* by node id: it, or what is written behind it, is read as a whole */
    bool *taken;     /* by node id: it is an output, or an input takes it */
    int *depth;      /* by node id: writes since what is in memory */
    int *seen;       /* by node id: number of the last search that came to it */
    int *source;     /* by node id: number of the last search in which it is written */
    Memory **memory; /* by node id: that it lies in, of bases and what is written to them */
    int number;
} WriteSearch;

/* ---- who reads ------------------------------------------------------------------------------- */

static void read_below(const WriteSearch *f, const Node *node, const Node *read) {
    const Node *below = f->s->below[read->id];
    if (is_write(node) && is_write(below)) return; /* mostly to a part of that part */
    f->asked[below->id] |= node_numel(read) < node_numel(below);
    f->whole[below->id] |= node_numel(read) * PART_LEAST > node_numel(below);
}

/* From the last to the first: what reads a node is known when that is. */
static void find_reads(const WriteSearch *f) {
    const Schedule *s = f->s;
    for (int i = length(s->order); i-- > 0;) {
        const Node *node = s->order[i];
        bool folds = !lower_expands(node) || op_has_index(node->op) ||
                     (f->folded[node->id] && !is_write(node));
        bool views = graph_views(s->graph, node);
        for (int k = 0; k < node->input_count; k++) {
            if (!node->input[k]) continue;
            f->folded[node->input[k]->id] |= folds;
            if (!views && (k || !is_write(node))) read_below(f, node, node->input[k]);
        }
        if (!is_write(node)) continue;
        f->leads[node->id] |= f->whole[node->id] || s->real[node->id];
        f->leads[written_over(node)->id] |= f->leads[node->id];
    }
}

static void find_taken(const WriteSearch *f) {
    const Schedule *s = f->s;
    for (int i = 0; i < length(s->graph->output); i++)
        f->taken[output_base(s->graph->output[i])->id] = true;
    for (int i = 0; i < length(s->graph->mutation); i++)
        for (int k = 0; k < mutation_count(s, i); k++)
            f->taken[output_base(mutation_value(s, i, k))->id] = true;
}

/* ---- what a kernel does as well -------------------------------------------------------------- */

/* Whole rows that nobody reads in between, of what a loop computes: it is cut at them. */
static bool are_rows(const WriteSearch *f, const Node *base, const RegionWrite *write) {
    if (base->op != OP_input && (!lower_expands(base) || f->s->real[base->id])) return false;
    for (int k = 0; k < length(write); k++) {
        int64_t stride[CB_MAX_RANK];
        const Region *region = &write[k].region;
        const Node *scatter = write[k].scatter;
        contiguous_strides(region->rank, region->size, stride);
        for (int d = 0; d < region->rank; d++)
            if (region->size[d] > 1 && region->stride[d] != stride[d]) return false;
        if (node_numel(scatter->input[1]) != node_numel(write[k].source)) return false;
        if (length(f->reader[scatter->id]) > 1) return false;
    }
    return true;
}

static bool are_small(const Node *node, const RegionWrite *write) {
    int64_t elements = 0;
    for (int k = 0; k < length(write); k++) elements += node_numel(write[k].source);
    return elements * PART_LEAST <= node_numel(node);
}

/* Each is a range of it, and all there is along the others. */
static bool along_one_axis(const RegionWrite *write) {
    int64_t first = 0;
    for (int k = 0; k < length(write); k++) {
        const Node *scatter = write[k].scatter;
        if (scatter->op != OP_slice_scatter) return false;
        if (node_numel(scatter->input[1]) != node_numel(write[k].source)) return false;
        const int64_t *word = scatter->attrs->word;
        int64_t axis = write[k].region.stride[word[ATTR_slice_scatter_dim]];
        if (word[ATTR_slice_scatter_step] != 1 || (k && axis != first)) return false;
        first = axis;
    }
    return true;
}

static bool are_many(const WriteSearch *f, const Node *node, const RegionWrite *write) {
    int count = length(write);
    if (f->folded[node->id]) return count > MOST_FOLDED;
    return count > (along_one_axis(write) ? MOST_CUT : MOST_ASKED);
}

/* ---- who reads what was there before --------------------------------------------------------- */

typedef struct Overwriting {
    const Node *node;
    WrittenParts *written;
    Memory *memory;
    const Node **depends; /* vec: of what was there, and expanded into others */
    PartRead *beside;     /* vec: of the base */
    RegionBox *box;       /* vec: by write */
} Overwriting;

static bool is_alone(const WriteSearch *f, const Node *node) {
    return f->s->real[node->id] || f->taken[node->id] || f->source[node->id] == f->number ||
           !lower_expands(node);
}

static bool is_beside(const Overwriting *o, const PartRead *part) {
    for (int k = 0; k < length(o->box); k++)
        if (region_boxes_meet(&part->box, &o->box[k])) return false;
    return true;
}

/* A view of what the memory held. */
static bool reads_part(const WriteSearch *f, const Overwriting *o, PartRead *part) {
    Region region;
    const Node *below = region_below(f->s->graph, part->view, &region);
    if (part->view == below || !below || f->memory[below->id] != o->memory) return false;
    region_box(&region, o->memory->first, &part->box);
    return true;
}

/* False: the node reads what is there no more, then or whenever those run that it expands into. */
static bool comes_before(const WriteSearch *f, Overwriting *o, const Node *node) {
    const Schedule *s = f->s;
    if (s->position[node->id] > s->position[o->node->id]) return false;
    if (is_alone(f, node))
        push(s->arena, o->written->before, node);
    else
        push(s->arena, o->depends, node);
    return true;
}

static bool see_reader(const WriteSearch *f, Overwriting *o, const Node *node) {
    PartRead part = {.view = node};
    if (node == o->node || f->seen[node->id] == f->number) return true;
    f->seen[node->id] = f->number;
    if (!reads_part(f, o, &part) || !is_beside(o, &part)) return comes_before(f, o, node);
    push(f->s->arena, o->beside, part);
    return true;
}

static bool see_readers(const WriteSearch *f, Overwriting *o) {
    for (int i = 0; i < length(o->memory->beside); i++) {
        const PartRead *part = &o->memory->beside[i];
        if (!is_beside(o, part) && !comes_before(f, o, part->view)) return false;
    }
    push(f->s->arena, o->depends, o->written->base);
    for (int i = 0; i < length(o->depends); i++) {
        Node **reader = f->reader[o->depends[i]->id];
        for (int k = 0; k < length(reader); k++)
            if (!see_reader(f, o, reader[k])) return false;
    }
    return true;
}

/* Whether all that reads the base as it was, down to what is computed by itself, may come before
 * the node: it does not need it then. */
static bool may_overwrite(WriteSearch *f, const Node *node, WrittenParts *written) {
    Arena *arena = f->s->arena;
    const Node *base = written->base;
    Overwriting o = {.node = node, .written = written, .memory = f->memory[base->id]};
    if (base->op == OP_input || f->taken[base->id]) return false;
    if (!o.memory) {
        o.memory = f->memory[base->id] = arena_zalloc(arena, sizeof *o.memory);
        o.memory->first = base;
    }
    f->number++;
    for (int k = 0; k < length(written->write); k++) {
        RegionBox box;
        region_box(&written->write[k].region, o.memory->first, &box);
        push(arena, o.box, box);
        f->source[output_base(written->write[k].source)->id] = f->number;
    }
    if (!see_readers(f, &o)) return false;
    f->memory[node->id] = o.memory;
    for (int i = 0; i < length(o.beside); i++) push(arena, o.memory->beside, o.beside[i]);
    return true;
}

/* ---- the scatters ---------------------------------------------------------------------------- */

static void write_to(WriteSearch *f, const Node *node, WrittenParts *written) {
    Schedule *s = f->s;
    s->written[node->id] = written;
    s->real[node->id] = true;
    s->real[written->base->id] |= written->base->op != OP_input;
    f->depth[node->id] = 0;
    for (int k = 0; k < length(written->write); k++) {
        const RegionWrite *write = &written->write[k];
        const Node *source = output_base(write->source);
        s->real[source->id] |= source->op != OP_input;
        mark_scatters(s, write);
    }
    s->scatters[node->id] = false;
}

static void write_in_place(WriteSearch *f, const Node *node) {
    Schedule *s = f->s;
    int depth = f->depth[node->id];
    bool whole = f->whole[node->id] || s->real[node->id];
    int most = f->folded[node->id] ? MOST_FOLDED : MOST_ASKED;
    int part = f->folded[node->id] ? 1 : MOST_ASKED;
    bool asked = f->asked[node->id] && f->leads[node->id] && depth > part;
    bool ends = f->leads[node->id] && depth >= (f->asked[node->id] ? LONG_CHAIN : LONG_STEP);
    if (!whole && !asked && !ends) return;
    if (!asked && depth <= most && node_bytes(node) < LEAST_BYTES) return;
    WrittenParts *written = arena_zalloc(s->arena, sizeof *written);
    RegionWrite *write = NULL;
    const Node *base = region_base(s->graph, s->arena, node, s->real, &write);
    bool input = base && base->op == OP_input;
    bool told = base && write && (!input || graph_is_argument(s->graph, base));
    f->depth[node->id] = told ? depth : 0; /* those behind it ask again after some more */
    if (!told) return;
    bool many = asked || ends || are_many(f, node, write);
    if (!many && (!are_small(node, write) || are_rows(f, base, write))) return;
    written->base = base;
    written->write = write;
    written->copies = !may_overwrite(f, node, written);
    if (written->copies) written->before = NULL;
    if (!written->copies || input || (many && (whole || ends))) write_to(f, node, written);
}

static WriteSearch search_new(Schedule *s) {
    int count = length(s->graph->node) + 1;
    return (WriteSearch){
        .s = s,
        .reader = order_readers(s->graph, s->arena, s->order),
        .whole = arena_new_array(s->arena, bool, count),
        .asked = arena_new_array(s->arena, bool, count),
        .folded = arena_new_array(s->arena, bool, count),
        .leads = arena_new_array(s->arena, bool, count),
        .taken = arena_new_array(s->arena, bool, count),
        .depth = arena_new_array(s->arena, int, count),
        .seen = arena_new_array(s->arena, int, count),
        .source = arena_new_array(s->arena, int, count),
        .memory = arena_new_array(s->arena, Memory *, count),
    };
}

void find_written(Schedule *s) {
    bool any = false;
    for (int i = 0; i < length(s->order); i++) any |= is_write(s->order[i]);
    if (!any) return;
    WriteSearch f = search_new(s);
    find_reads(&f);
    find_taken(&f);
    for (int i = 0; i < length(s->order); i++) {
        const Node *node = s->order[i];
        if (!is_write(node) || s->scatters[node->id]) continue;
        f.depth[node->id] = f.depth[written_over(node)->id] + 1;
        write_in_place(&f, node);
    }
}
