/* May two groups be one? The rules of fusion.def, in order.
 *
 *     a = sum(x, dim=1), b = sum(x, dim=0)   same_split does not hold: they fold other dimensions
 *
 * The last rule is tried by doing it: when it holds, the first group computes both. */
#include "sched/legal.h"
#include "base/round.h"

enum { SEARCH_LIMIT = 256 };

/* ---- of one group ---------------------------------------------------------------------------- */

static bool holds_fusion_is_on(Merge *m) { return m->schedule->options.fuse; }

static bool holds_is_a_loop(Merge *m) { return m->a->kind == GROUP_LOOP; }

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* The checkpoint that computes a node of the group again, or, if all is asked for, all of them; 0:
 * none does. */
static int again_of(const Group *group, bool all) {
    int own = group->anchor ? node_again(group->anchor) : 0;
    for (int i = 0; i < length(group->member); i++) {
        int number = node_again(group->member[i]);
        if (all && !number) return 0;
        if (number) own = number;
    }
    return own;
}

/* a is there first. */
static bool holds_when_it_is_needed(Merge *m) {
    int again = again_of(m->b, true);
    return !again || again_of(m->a, false) == again;
}

/* ---- domains --------------------------------------------------------------------------------- */

static const Group *step_of(const Merge *m) { return m->a->anchor ? m->a : m->b; }
static const Group *loop_of(const Merge *m) { return m->a->anchor ? m->b : m->a; }
static bool has_step(const Merge *m) { return m->a->anchor || m->b->anchor; }

static bool holds_epilogue(Merge *m) {
    const Group *step = step_of(m), *loop = loop_of(m);
    if (!has_step(m)) return true;
    return step->kind == GROUP_PRODUCT && !loop->anchor && !domain_has_inner(&loop->domain);
}

/* A kernel stores where the input lies that takes its result, if no task is to come that may fail.
 * A product's epilogue does not: its result would be copied. */
static bool holds_stored_at_once(Merge *m) {
    const Group *loop = loop_of(m);
    for (int i = 0; i < length(loop->member) && has_step(m); i++)
        if (m->schedule->taken[loop->member[i]->id]) return false;
    return true;
}

static bool has_scan(const Group *group) {
    for (int i = 0; i < length(group->member); i++)
        if (op_info(group->member[i]->op)->kind == KIND_SCAN) return true;
    return false;
}

/* All that it folds are sums, for others to read. */
static bool only_sums(const Group *group) {
    for (int i = 0; i < length(group->member); i++) {
        const Node *node = group->member[i];
        if (op_info(node->op)->kind == KIND_REDUCE && node->op != OP_sum) return false;
    }
    return !group->reads_folds && !has_scan(group);
}

/* Where two fold over different dimensions the rows of one may stay, and the sums of the other
 * become sinks of these: rows that are long enough for lanes along them. */
static bool takes_sinks(Merge *m, const Group *rows, const Group *sums) {
    const Domain *domain = &rows->domain;
    int last = domain->count - 1;
    m->sinks = only_sums(sums) && !has_scan(rows) && domain->inner[last] &&
               !(rows->trial && has_short_rows(rows->trial, m->schedule->machine)) &&
               domain_take(domain, &sums->domain, &m->domain);
    return m->sinks;
}

static bool holds_same_split(Merge *m) {
    return has_step(m) || domain_same_split(&m->a->domain, &m->b->domain) ||
           takes_sinks(m, m->a, m->b) || takes_sinks(m, m->b, m->a);
}

static bool holds_same_size(Merge *m) {
    if (m->sinks) return true;
    if (!has_step(m)) return domain_join(&m->a->domain, &m->b->domain, &m->domain);
    Domain flat = {.count = 1, .size = {node_numel(step_of(m)->anchor)}};
    return domain_join(&loop_of(m)->domain, &flat, &m->domain);
}

/* What has one value for each row or column of a kernel is not read along both. */
static bool goes_by_rows(Kernel *kernel, int last) {
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (e->op == EX_load && !index_continues(kernel, e->input[0], last - 1, last)) return true;
    }
    return false;
}

/* An epilogue goes row by row unless all rows are one run, and takes what is no whole vector of a
 * row one by one. Where that is much, and the rows are walked flat apart, they are. */
static bool holds_whole_vectors(Merge *m) {
    Kernel *kernel = loop_of(m)->trial;
    int last = kernel ? length(kernel->axis) - 1 : 0;
    if (!has_step(m) || last < 1 || step_of(m)->anchor->op != OP_matmul) return true;
    int64_t lanes = m->schedule->machine->short_row, row = axis_typical(kernel, last);
    int64_t vectors = divide_up(row, lanes), cost = 0;
    if (row / lanes + row % lanes < 2 * vectors || !may_run_flat(m->schedule, kernel, last))
        return true;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (e->op < OP_COUNT && e->op != OP_constant) cost += op_info(e->op)->cost;
    }
    return cost < DEAR_POINT || !goes_by_rows(kernel, last);
}

/* Whether b reads what a computes for each element, or the other way round. */
static bool elements_pass(const Merge *m, const Group *a, const Group *b) {
    for (int i = 0; i < length(b->read); i++) {
        const Node *node = b->read[i];
        bool whole = node_numel(node) == domain_total(&m->domain);
        if (whole && group_find(m->schedule->group[node->id]) == a) return true;
    }
    return false;
}

/* Of sum(x, 1) + sum(transpose(x, 0, 1), 1) each alone reads x as it lies. Short rows are gathered
 * by whoever does more with them than another. */
static bool folds_agree(const Merge *m) {
    const Group *a = m->a, *b = m->b;
    const DeviceMachine *machine = m->schedule->machine;
    if (elements_pass(m, a, b) || elements_pass(m, b, a)) return true;
    if (has_short_rows(a->trial, machine) || has_short_rows(b->trial, machine)) return true;
    return form_of(a->trial, machine) == form_of(b->trial, machine);
}

/* Lines of memory that a row lies across, of which the next row reads more while they are near. */
enum { NEAR_LINES = 48 };

static bool lies_along(Kernel *kernel, const Expr *load, int axis) {
    int64_t stride;
    Expr *rest, *index = load->input[0];
    return axis >= 0 && expr_uses_axis(index, axis) &&
           index_linear(kernel, index, axis, &stride, &rest) && (stride == 1 || stride == -1);
}

/* How many elements the group reads that lie along the axis, of what other does not compute. */
static int64_t elements_along(const Merge *m, Group *group, const Group *other, int axis) {
    Kernel *kernel = group->trial;
    int64_t elements = 0;
    for (int b = 0; b < length(kernel->buffer); b++) {
        const KernelBuffer *buffer = &kernel->buffer[b];
        bool along = false;
        for (int i = 0; i < length(kernel->expr) && !along; i++) {
            const Expr *e = kernel->expr[i];
            along = e->op == EX_load && e->imm.i == b && lies_along(kernel, e, axis);
        }
        bool outside = buffer->value < 0 || group_find(m->schedule->group[buffer->value]) != other;
        elements += along && outside ? buffer->numel : 0;
    }
    return elements;
}

/* Where one folds long rows and the other is pointwise, both read along them, or both across: where
 * half of the elements lie along rows and half across, lanes are gathered either way. A kernel that
 * folds nothing goes by blocks instead, in which both sides are near. */
static bool reads_agree(Merge *m) {
    Group *folds = domain_has_inner(&m->a->domain) ? m->a : m->b;
    Group *loop = folds == m->a ? m->b : m->a, joint = *loop;
    int64_t points = domain_total(&m->domain);
    if (points <= NEAR_LINES * domain_outer(&m->domain)) return true;
    if (!group_lower(m->schedule, &joint, &m->domain)) return true;
    int last = length(joint.trial->axis) - 1, outer = joint.trial->outer_count - 1;
    int fold_last = length(folds->trial->axis) - 1, fold_outer = folds->trial->outer_count - 1;
    int64_t along =
        elements_along(m, &joint, folds, last) + elements_along(m, folds, loop, fold_last);
    int64_t across =
        elements_along(m, &joint, folds, outer) + elements_along(m, folds, loop, fold_outer);
    return 2 * along < points || 2 * across < points;
}

static bool holds_same_lanes(Merge *m) {
    const Group *a = m->a, *b = m->b;
    bool folds = domain_has_inner(&a->domain), other_folds = domain_has_inner(&b->domain);
    if (m->sinks || has_step(m) || !a->trial || !b->trial) return true;
    if ((!folds && !other_folds) || domain_total(&m->domain) <= m->schedule->machine->small)
        return true;
    return folds && other_folds ? folds_agree(m) : reads_agree(m);
}

static bool has_fold(const Group *group) {
    for (int i = 0; i < length(group->member); i++)
        if (op_info(group->member[i]->op)->kind == KIND_REDUCE) return true;
    return false;
}

/* A scan goes along its row in order, and what is folded beside it would go with it, one element
 * after the other. Where its lanes go across rows, a fold's do, too. */
static bool holds_same_order(Merge *m) {
    const Group *scan = has_scan(m->a) ? m->a : m->b;
    bool fold = has_fold(m->a) || has_fold(m->b);
    const DeviceMachine *machine = m->schedule->machine;
    if (!fold || !has_scan(scan) || !scan->trial) return true;
    return domain_total(&m->domain) <= machine->small || form_of(scan->trial, machine) == FORM_TILE;
}

enum { MOST_SWEEPS = 3 }; /* of what is not kept: a deviation's mean, its remainder, the squares */

/* How many folds of the kernel read one another, in a chain. */
static int sweeps_of(const Schedule *s, const Kernel *kernel) {
    int most = 0, *sweep = arena_zalloc(s->arena, sizeof *sweep * (size_t)length(kernel->expr));
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        for (int k = 0; k < e->input_count; k++)
            if (sweep[e->input[k]->id] > sweep[i]) sweep[i] = sweep[e->input[k]->id];
        sweep[i] += e->op == EX_reduce;
        if (sweep[i] > most) most = sweep[i];
    }
    return most;
}

/* What is stored between two kernels is rounded, and a sum of f16 may be out of its range. */
static bool folds_half(const Group *group) {
    for (int i = 0; i < length(group->member); i++)
        if (op_info(group->member[i]->op)->kind == KIND_REDUCE &&
            cb_dtype_size(group->member[i]->dtype) < sizeof(float))
            return true;
    return false;
}

/* A row is kept from one sweep to the next where it is short and nobody shares it; else each sweep
 * begins at what is in memory. */
static bool holds_few_sweeps(Merge *m) {
    const Group *a = m->a, *b = m->b;
    const DeviceMachine *machine = m->schedule->machine;
    bool folds = has_fold(a) && has_fold(b) && a->trial && b->trial && !m->sinks;
    if (!folds || !(elements_pass(m, a, b) || elements_pass(m, b, a))) return true;
    if (folds_half(a) || folds_half(b)) return true;
    int64_t rows = domain_outer(&m->domain), row = domain_total(&m->domain) / rows;
    int sweeps = sweeps_of(m->schedule, a->trial) + sweeps_of(m->schedule, b->trial);
    bool split = rows < machine->rows_busy && row >= machine->chunk;
    bool kept = !split && sweeps * row * (int64_t)sizeof(float) <= ROW_CACHE_BYTES / 2;
    return kept || sweeps <= MOST_SWEEPS;
}

static int size_of(const Group *group) { return group->trial ? length(group->trial->expr) : 0; }

static bool holds_small_enough(Merge *m) {
    return length(m->a->member) + length(m->b->member) <= GROUP_MEMBERS &&
           size_of(m->a) + size_of(m->b) <= GROUP_NODES;
}

/* ---- cycles ---------------------------------------------------------------------------------- */

static bool computes(const Schedule *s, const Group *group, const Node *node) {
    return group_find(s->group[node->id]) == group;
}

static bool feeds_step(const Schedule *s, const Group *loop, const Group *step) {
    for (int i = 0; i < length(step->operand); i++)
        if (computes(s, loop, step->operand[i])) return true;
    return false;
}

/* A step that is a is read by b, which therefore feeds it nothing: groups have no cycles. */
static bool holds_operands_complete(Merge *m) { return !feeds_step(m->schedule, m->a, m->b); }

/* Does group need goal through a third group? Groups that need nothing as late as goal begins
 * cannot. Gives up, with true, after SEARCH_LIMIT groups. */
static bool needs(Schedule *s, Group *group, const Group *goal, bool direct, int *budget) {
    group->mark = s->search;
    if (--*budget < 0) return true;
    for (int i = 0; i < length(group->read); i++) {
        Group *producer = group_find(s->group[group->read[i]->id]);
        if (!producer || producer == group || (producer == goal && direct)) continue;
        if (producer == goal) return true;
        if (producer->mark == s->search || producer->reach < goal->first) continue;
        if (needs(s, producer, goal, false, budget)) return true;
    }
    return false;
}

static bool holds_nothing_between(Merge *m) {
    Schedule *s = m->schedule;
    int budget = SEARCH_LIMIT;
    s->search++;
    if (needs(s, m->b, m->a, true, &budget)) return false;
    s->search++;
    return !needs(s, m->a, m->b, true, &budget);
}

/* ---- positions ------------------------------------------------------------------------------- */

static bool reads_index(const Schedule *s, const Group *reader, const Group *of) {
    for (int i = 0; i < length(reader->read); i++)
        if (s->checked[reader->read[i]->id] && computes(s, of, reader->read[i])) return true;
    return false;
}

static bool holds_index_complete(Merge *m) {
    const Schedule *s = m->schedule;
    if (!length(s->check.check)) return true;
    return !reads_index(s, m->a, m->b) && !reads_index(s, m->b, m->a);
}

static const Node **joined_members(Schedule *s, const Group *a, const Group *b) {
    const Node **joined = NULL;
    int i = 0, j = 0, in_a = length(a->member), in_b = length(b->member);
    while (i < in_a || j < in_b) {
        bool from_a = j == in_b ||
                      (i < in_a && s->position[a->member[i]->id] < s->position[b->member[j]->id]);
        push(s->arena, joined, from_a ? a->member[i++] : b->member[j++]);
    }
    return joined;
}

/* The quick way, when the domain stays and b comes after a: b is lowered into a's trial. */
static bool extend(Schedule *s, Group *a, Group *b) {
    Domain domain = a->domain;
    int members = length(a->member);
    if (group_extend(s, a, b->member, length(b->member))) return true;
    truncate_to(a->member, members);
    check(group_lower(s, a, &domain), "a group that was lowered before");
    return false;
}

static bool lower_joined(Schedule *s, Group *a, Group *b, const Domain *domain) {
    bool after = !b->anchor && length(a->member) && a->last < b->first;
    if (after && domain_equal(domain, &a->domain)) return extend(s, a, b);
    Group saved = *a;
    a->member = joined_members(s, a, b);
    a->anchor = saved.anchor ? saved.anchor : b->anchor;
    a->operand = saved.anchor ? saved.operand : b->operand;
    a->kind = saved.anchor ? saved.kind : b->kind;
    if (group_lower(s, a, domain)) return true;
    *a = saved;
    return false;
}

static bool holds_same_position(Merge *m) {
    return lower_joined(m->schedule, m->a, m->b, &m->domain);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static const struct {
    FusionRule rule;
    FusionAsked asked;
    bool (*holds)(Merge *merge);
} rules[] = {
#define FUSION(rule, asked, reason) {{#rule, reason}, FUSION_##asked, holds_##rule},
#include "sched/fusion.def"
#undef FUSION
};

const FusionRule *merge_refused(Merge *merge, FusionAsked asked) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].asked == asked && !rules[i].holds(merge)) return &rules[i].rule;
    return NULL;
}
