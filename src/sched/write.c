/* Writes to parts of what is computed: in place, where nobody needs what was there before.
 *
 *     y = x * 2
 *     y[3, 4] = 0; s = sum(y)         y1 = slice_scatter(y, ..), s = sum(y1)
 *
 * One kernel computes y, then its element is written where it lies, and sum reads that. Written so
 * are those scatters that somebody reads as a whole; those between them and what they are written
 * to, the base, are never in memory, as with inputs (region.c). An input is copied first. What
 * reads the base or one of those in between has to be something that the scatter needs: so it comes
 * before it, however groups are merged, and reads what was there before. */
#include "sched/schedule.h"

enum {
    LEAST_BYTES = 1 << 12, /* of less all is computed sooner than a copy is called */
    PART_LEAST = 4         /* so many times as large as what is written of it, at the least */
};

typedef struct WriteSearch {
    Schedule *s;
    const int *users;   /* by node id */
    bool *whole;        /* by node id: somebody reads it as that, below views */
    bool *taken;        /* by node id: it is an output, or an input takes it */
    int *mark, *depend; /* by node id: number of the last search in which the scatter needs it; in
                         * which it needs the base itself */
    int *reader;        /* by node id: nodes that read it among those */
    int *source;        /* by node id: number of the last search in which it is written */
    int number;
} WriteSearch;

/* ---- which ---------------------------------------------------------------------------------- */

static bool is_write(const Node *node) {
    return node->op == OP_slice_scatter || node->op == OP_dynamic_slice_scatter;
}

static void find_whole(const WriteSearch *f) {
    Schedule *s = f->s;
    for (int i = 0; i < length(s->order); i++) {
        const Node *node = s->order[i];
        for (int k = is_write(node); k < node->input_count && !graph_views(s->graph, node); k++) {
            const Node *read = node->input[k], *below = s->below[read->id];
            if (is_write(node) && is_write(below)) continue; /* mostly to a part of that part */
            f->whole[below->id] |= node_numel(read) * PART_LEAST > node_numel(below);
        }
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
        if (f->users[scatter->id] > 1) return false;
    }
    return true;
}

static bool are_small(const Node *node, const RegionWrite *write) {
    int64_t elements = 0;
    for (int k = 0; k < length(write); k++) elements += node_numel(write[k].source);
    return elements * PART_LEAST <= node_numel(node) && node_bytes(node) >= LEAST_BYTES;
}

/* ---- who reads what was there before --------------------------------------------------------- */

static void need(WriteSearch *f, const Node *node) {
    if (f->mark[node->id] != f->number) f->reader[node->id] = 0;
    f->mark[node->id] = f->number;
    f->reader[node->id]++;
}

/* Marks what the scatter needs of all that comes behind its base. */
static void mark_needed(WriteSearch *f, const Node *node, int first) {
    const Schedule *s = f->s;
    f->number++;
    f->mark[node->id] = f->number;
    for (int i = s->position[node->id]; i > first; i--) {
        const Node *reader = s->order[i];
        for (int k = 0; k < reader->input_count && f->mark[reader->id] == f->number; k++) {
            bool again = !reader->input[k];
            for (int j = 0; j < k; j++) again |= reader->input[j] == reader->input[k];
            if (!again) need(f, reader->input[k]);
        }
    }
}

static bool is_alone(const WriteSearch *f, const Node *node) {
    return f->s->real[node->id] || f->taken[node->id] || f->source[node->id] == f->number ||
           !lower_expands(node);
}

/* Whether the scatter needs all that reads the base, down to what is computed by itself, which
 * comes before it. */
static bool needs_readers(WriteSearch *f, const Node *node, WrittenParts *written) {
    const Schedule *s = f->s;
    int first = s->position[written->base->id];
    mark_needed(f, node, first);
    for (int k = 0; k < length(written->write); k++)
        f->source[output_base(written->write[k].source)->id] = f->number;
    f->depend[written->base->id] = f->number;
    for (int i = first; i < s->position[node->id]; i++) {
        const Node *reader = s->order[i];
        bool depends = reader == written->base;
        if (f->mark[reader->id] != f->number) continue;
        for (int k = 0; k < reader->input_count && !depends; k++)
            depends = reader->input[k] && f->depend[reader->input[k]->id] == f->number;
        if (!depends) continue;
        if (i > first && is_alone(f, reader)) {
            push(s->arena, written->before, reader);
            continue;
        }
        f->depend[reader->id] = f->number;
        if (f->reader[reader->id] != f->users[reader->id]) return false;
    }
    return true;
}

/* ---- the scatters ---------------------------------------------------------------------------- */

static void write_in_place(WriteSearch *f, const Node *node) {
    Schedule *s = f->s;
    WrittenParts *written = arena_zalloc(s->arena, sizeof *written);
    RegionWrite *write = NULL;
    const Node *base = region_base(s->graph, s->arena, node, s->real, &write);
    if (!base || !write || !are_small(node, write) || are_rows(f, base, write)) return;
    written->base = base;
    written->write = write;
    bool input = base->op == OP_input;
    if (input ? !graph_is_argument(s->graph, base) : f->taken[base->id]) return;
    if (!input && !needs_readers(f, node, written)) return;
    s->written[node->id] = written;
    s->real[node->id] = true;
    if (!input) s->real[base->id] = true;
    for (int k = 0; k < length(write); k++) {
        const Node *source = output_base(write[k].source);
        s->real[source->id] |= source->op != OP_input;
        s->scatters[write[k].scatter->id] |= write[k].scatter != node;
    }
}

void find_written(Schedule *s, const int *users) {
    int count = length(s->graph->node) + 1;
    WriteSearch f = {.s = s, .users = users};
    f.whole = arena_new_array(s->arena, bool, count);
    f.taken = arena_new_array(s->arena, bool, count);
    f.mark = arena_new_array(s->arena, int, count);
    f.depend = arena_new_array(s->arena, int, count);
    f.reader = arena_new_array(s->arena, int, count);
    f.source = arena_new_array(s->arena, int, count);
    find_whole(&f);
    find_taken(&f);
    for (int i = 0; i < length(s->order); i++) {
        const Node *node = s->order[i];
        bool whole = f.whole[node->id] || s->real[node->id];
        if (is_write(node) && whole && !s->scatters[node->id]) write_in_place(&f, node);
    }
}
