/* A group lowered over its domain: the trial kernel that tells what the group reads, and whether
 * every value that stays inside is read at the very position where it is computed.
 *
 * Positions are compared as normal-form index expressions: the flat position of the consumer's read
 * against the flat position of the domain, so reshapes and broadcasts between two nodes disappear
 * by themselves. */
#include "sched/schedule.h"

enum { SINK_ROWS = 64 }; /* for each element */

static int member_number(const Group *group, const Node *node) {
    for (int i = length(group->member) - 1; i >= 0; i--)
        if (group->member[i] == node) return i;
    return -1;
}

typedef struct Trial {
    Schedule *schedule;
    Group *group;
} Trial;

static bool trial_is_leaf(Lowering *l, const Node *node) {
    const Trial *trial = l->user;
    return node->op == OP_input || trial->schedule->real[node->id];
}

static bool is_row_level(const Group *group, const Node *node) {
    return node_numel(node) != domain_total(&group->domain);
}

static int read_buffer(Trial *trial, const Node *node) {
    Group *group = trial->group;
    for (int i = 0; i < length(group->trial->buffer); i++)
        if (group->trial->buffer[i].value == (int)node->id) return i;
    push(trial->schedule->arena, group->read, node);
    return kernel_buffer(group->trial, node->dtype, BUFFER_IN, node_numel(node), (int)node->id);
}

/* Where a guard asks for other coordinates than the index has, the element is there, and whoever
 * reads it chooses: it stays out of the loops that the guard is asked in. */
static Expr *needed_guard(const Node *node, const Expr *index, Expr *guard) {
    bool there = expr_bounded(index) && index->low >= 0 && index->high < node_numel(node);
    return guard && there && !(guard->axes & index->axes) ? NULL : guard;
}

static Expr *trial_leaf(Lowering *l, const Node *node, Expr *const *position, Expr *guard) {
    Trial *trial = l->user;
    Group *group = trial->group;
    int64_t stride[CB_MAX_RANK];
    int member = member_number(group, node);
    bool inside = member >= 0 && member < length(group->value);
    if (inside || node == group->anchor) {
        Expr *flat = index_flatten(l->kernel, node->rank, node->size, position);
        Expr *home = inside && is_row_level(group, node) ? group->row : group->element;
        if (flat != home) return NULL;
        if (inside && group->sink[member]) return NULL;
        group->reads_folds |= inside && op_info(node->op)->kind == KIND_REDUCE;
        if (inside) return group->value[member];
    }
    buffer_strides(trial->schedule, node, stride);
    Expr *index = index_dot(l->kernel, node->rank, stride, position);
    guard = needed_guard(node, index, guard);
    return expr_load(l->kernel, read_buffer(trial, node), compute_dtype(node->dtype), index, guard);
}

static Expr *trial_random_state(Lowering *l, int word) {
    Trial *trial = l->user;
    Kernel *kernel = trial->group->trial;
    int buffer = 0;
    while (buffer < length(kernel->buffer) && kernel->buffer[buffer].value != -1) buffer++;
    if (buffer == length(kernel->buffer)) kernel_buffer(kernel, CB_I64, BUFFER_IN, 2, -1);
    return expr_load(l->kernel, buffer, CB_I64, expr_int(l->kernel, word), NULL);
}

/* ---- members --------------------------------------------------------------------------------- */

/* The kept dimensions of a reduction's input, flat: must be the row position. */
static Expr *kept_position(Kernel *kernel, const Node *node, Expr *const *position) {
    const Node *input = node->input[0];
    bool scan = op_info(node->op)->kind == KIND_SCAN;
    cb_dim_list dims = scan ? (cb_dim_list){1, {node->attrs->word[ATTR_along_dim]}}
                            : attr_dims(node->attrs, ATTR_sum_dim);
    int64_t size[CB_MAX_RANK];
    Expr *kept[CB_MAX_RANK];
    int count = 0;
    for (int i = 0; i < input->rank; i++) {
        bool folded = false;
        for (int d = 0; d < dims.count; d++) folded |= dims.at[d] == i;
        if (folded) continue;
        size[count] = input->size[i];
        kept[count++] = position[i];
    }
    return index_flatten(kernel, count, size, kept);
}

/* Whether rows may add to elements at this place: each point of a row to another one, or all of it
 * to one, and so many rows to each that the elements of all parts together are few beside them.
 * What there is one of for each row costs the VM as much as a block of lanes, so it takes no sums
 * of it. */
static bool may_sink(const Trial *trial, const Node *node, const Expr *place) {
    const Kernel *kernel = trial->group->trial;
    bool by_point = expr_uses_inner(kernel, place);
    int64_t elements = 1, rows = 1;
    for (int a = 0; a < length(kernel->axis); a++) {
        bool inner = kernel->axis[a].inner;
        if (expr_uses_axis(place, a))
            elements *= kernel->axis[a].size;
        else if (inner && by_point)
            return false;
        else if (!inner)
            rows *= axis_typical(kernel, a);
    }
    if (!by_point && !trial->schedule->options.generate) return false;
    return node->dtype == compute_dtype(node->dtype) && rows >= SINK_ROWS &&
           elements == node_numel(node);
}

/* A fold over the dims that are inner, or a sink: a sum over others, which no member reads. */
static Expr *lower_fold(Group *group, const Node *node) {
    Lowering *l = &group->lowering;
    const Node *input = node->input[0];
    const OpInfo *info = op_info(node->op);
    Expr *position[CB_MAX_RANK];
    bool of_rows = is_row_level(group, input);
    if (of_rows && node_numel(input) != domain_outer(&group->domain)) return NULL;
    Expr *flat = of_rows ? group->row : group->element;
    index_unflatten(l->kernel, input->rank, input->size, flat, position);
    Expr *kept = kept_position(l->kernel, node, position);
    bool sinks = of_rows || kept != group->row;
    if (sinks && !may_sink(l->user, node, kept)) return NULL;
    Expr *operand = lower_at(l, input, position, NULL);
    if (!operand) return NULL;
    operand = expr_to(l->kernel, operand, compute_dtype(node->dtype));
    if (sinks) group->sink[length(group->value)] = kept;
    if (of_rows || (sinks && expr_uses_inner(l->kernel, kept))) return operand;
    Expr *value = info->kind == KIND_SCAN ? expr_scan(l->kernel, info->scan_of, operand)
                                          : expr_reduce(l->kernel, node->op, operand);
    return l->precise ? expr_to(l->kernel, value, node->dtype) : value;
}

static Expr *lower_member(Group *group, const Node *node) {
    OpKind kind = op_info(node->op)->kind;
    if (kind == KIND_REDUCE || kind == KIND_SCAN) return lower_fold(group, node);
    Expr *position[CB_MAX_RANK];
    bool row = is_row_level(group, node);
    if (row && node_numel(node) != domain_outer(&group->domain)) return NULL;
    Expr *flat = row ? group->row : group->element;
    index_unflatten(group->trial, node->rank, node->size, flat, position);
    /* A real node is a leaf to others; here its own expansion is wanted. */
    return lower_expand(&group->lowering, node, position);
}

static bool any_sink(const Group *group) {
    for (int i = 0; i < length(group->sink); i++)
        if (group->sink[i]) return true;
    return false;
}

/* Lanes of scans go across rows, which would meet. */
bool group_extend(Schedule *s, Group *group, const Node *const *member, int count) {
    for (int i = 0; i < count; i++) {
        push(s->arena, group->sink, NULL);
        Expr *value = lower_member(group, member[i]);
        if (!value) return false;
        push(s->arena, group->member, member[i]);
        push(s->arena, group->value, value);
    }
    return !any_sink(group) || !kernel_has_scan(group->trial);
}

/* What an expanded operand reads, down to buffers. The expansion is short (TREE_NODES). */
static void collect_reads(Schedule *s, Group *group, const Node *node, const Node ***seen) {
    for (int i = 0; i < length(*seen); i++)
        if ((*seen)[i] == node) return;
    push(s->arena, *seen, node);
    if (node->op == OP_input || s->real[node->id]) {
        push(s->arena, group->operand, node);
        push(s->arena, group->read, node);
        return;
    }
    for (int i = 0; i < node->input_count; i++) collect_reads(s, group, node->input[i], seen);
}

static void read_written(Schedule *s, Group *group, const WrittenParts *written) {
    push(s->arena, group->operand, written->base);
    for (int i = 0; i < length(written->write); i++)
        push(s->arena, group->operand, output_base(written->write[i].source));
    for (int i = 0; i < length(group->operand); i++) push(s->arena, group->read, group->operand[i]);
    for (int i = 0; i < length(written->before); i++)
        push(s->arena, group->read, written->before[i]);
}

static void read_operands(Schedule *s, Group *group) {
    const Node **seen = NULL;
    group->operand = NULL;
    const WrittenParts *written = s->written[group->anchor->id];
    if (written) {
        read_written(s, group, written);
        return;
    }
    for (int i = 0; i < group->anchor->input_count; i++)
        collect_reads(s, group, group->anchor->input[i], &seen);
    const Node *before = s->effect[group->anchor->id];
    if (before) push(s->arena, group->read, before);
}

/* Whether tensors of other calls have another size there. */
static bool size_varies(const Schedule *s, int64_t size) {
    const int64_t *varying = s->options.sizes.varying;
    for (int i = 0; i < length(varying); i++)
        if (varying[i] == size) return true;
    return false;
}

/* Axes: the outer ones first. Flat positions at element level (every axis) and at row level (outer
 * ones). */
static void make_axes(const Schedule *s, Group *group) {
    Kernel *kernel = group->trial;
    Domain *domain = &group->domain;
    int axis[DOMAIN_AXES];
    for (int inner = 0; inner < 2; inner++)
        for (int i = 0; i < domain->count; i++) {
            if (domain->inner[i] != inner) continue;
            axis[i] = kernel_axis(kernel, domain->size[i], inner);
            domain->varies[i] |= size_varies(s, domain->size[i]);
            kernel->axis[axis[i]].varies = domain->varies[i];
        }
    Expr *along[DOMAIN_AXES], *across[DOMAIN_AXES];
    int64_t rows[DOMAIN_AXES];
    int outer = 0;
    for (int i = 0; i < domain->count; i++) {
        along[i] = expr_axis(kernel, axis[i]);
        if (domain->inner[i]) continue;
        across[outer] = along[i];
        rows[outer++] = domain->size[i];
    }
    group->element = index_flatten(kernel, domain->count, domain->size, along);
    group->row = index_flatten(kernel, outer, rows, across);
}

void group_open(Schedule *s, Group *group, const Domain *domain) {
    Trial *trial = arena_alloc(s->arena, sizeof *trial);
    *trial = (Trial){s, group};
    group->domain = *domain;
    group->trial = kernel_new(s->arena);
    group->lowering = lowering_new(group->trial, trial);
    group->lowering.is_leaf = trial_is_leaf;
    group->lowering.leaf = trial_leaf;
    group->lowering.random_state = trial_random_state;
    group->lowering.precise = s->graph->ambient.precise;
    group->member = NULL;
    group->value = group->sink = NULL;
    group->reads_folds = false;
    group->read = NULL;
    if (group->anchor) read_operands(s, group);
    make_axes(s, group);
}

bool group_lower(Schedule *s, Group *group, const Domain *domain) {
    const Node **member = group->member;
    group_open(s, group, domain);
    return group_extend(s, group, member, length(member));
}

Group *group_find(Group *group) {
    while (group && group->forward) group = group->forward;
    return group;
}

Group *group_new(Schedule *s, GroupKind kind, const Node *node) {
    Group *group = arena_zalloc(s->arena, sizeof *group);
    group->kind = kind;
    group->first = group->last = s->position[node->id];
    s->group[node->id] = group;
    push(s->arena, s->all, group);
    if (kind != GROUP_LOOP) {
        group->anchor = node;
        read_operands(s, group);
        return group;
    }
    push(s->arena, group->member, node);
    Domain domain = domain_of(node);
    check(group_lower(s, group, &domain), "%s cannot be lowered by itself",
          op_info(node->op)->name);
    return group;
}
