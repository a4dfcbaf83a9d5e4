/* Fusion: merges groups, driven by the bytes that stay in registers.
 *
 * Nodes come in graph order. Each real node starts as a group of its own and tries to join the
 * groups that it reads, the largest saving first, then the groups that read the same values
 * (siblings). A merge is legal when
 *   both run over one domain (domain_join), with the same inner dimensions where they have any;
 *   whatever one computes and the other reads is read at the very position of its computation;
 *   nothing outside lies between the two (no cycle);
 *   the kernel stays small enough to compile in linear time.
 * Every refusal is kept with its reason for explain. */
#include "sched/schedule.h"

enum { SEARCH_LIMIT = 256, SIBLINGS = 3, REFUSALS = 256, CANDIDATES = 8, SIBLING_BYTES = 1 << 12 };

static const Node *head(const Group *group) {
    return group->anchor ? group->anchor : group->member[0];
}

static void refuse(Schedule *s, Reason reason, const Group *producer, const Group *consumer) {
    if (length(s->plan->refusal) >= REFUSALS) return;
    push(s->arena, s->plan->refusal, (Refusal){reason, head(producer), head(consumer)});
}

/* ---- cycles ---------------------------------------------------------------------------------- */

/* Does group need goal through a third group? Groups that end before goal begins cannot. Gives up,
 * with true, after SEARCH_LIMIT groups. */
static bool needs(Schedule *s, Group *group, const Group *goal, bool direct, int *budget) {
    group->mark = s->search;
    if (--*budget < 0) return true;
    for (int i = 0; i < length(group->read); i++) {
        Group *producer = group_find(s->group[group->read[i]->id]);
        if (!producer || producer == group || (producer == goal && direct)) continue;
        if (producer == goal) return true;
        if (producer->mark == s->search || producer->last < goal->first) continue;
        if (needs(s, producer, goal, false, budget)) return true;
    }
    return false;
}

static bool makes_cycle(Schedule *s, Group *a, Group *b) {
    int budget = SEARCH_LIMIT;
    s->search++;
    if (needs(s, b, a, true, &budget)) return true;
    s->search++;
    return needs(s, a, b, true, &budget);
}

/* ---- merging --------------------------------------------------------------------------------- */

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

static int size_of(const Group *group) { return group->trial ? length(group->trial->expr) : 0; }

static bool fits(const Group *a, const Group *b) {
    return length(a->member) + length(b->member) <= GROUP_MEMBERS &&
           size_of(a) + size_of(b) <= GROUP_NODES;
}

/* Does loop compute what the library step of the other group reads? That must be complete
 * before. */
static bool feeds_step(Schedule *s, const Group *loop, const Group *step) {
    for (int i = 0; i < length(step->operand); i++)
        if (group_find(s->group[step->operand[i]->id]) == loop) return true;
    return false;
}

/* A library step takes pointwise work over its own result. */
static Reason join_domains(const Group *a, const Group *b, Domain *out) {
    if (!a->anchor && !b->anchor) return domain_join(&a->domain, &b->domain, out);
    const Group *step = a->anchor ? a : b, *loop = a->anchor ? b : a;
    if (step->kind != GROUP_PRODUCT || loop->anchor || domain_has_inner(&loop->domain))
        return REASON_library_step;
    Domain flat = {.count = 1, .size = {node_numel(step->anchor)}};
    return domain_join(&loop->domain, &flat, out);
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

static bool try_merge(Schedule *s, Group *a, Group *b) {
    Domain domain;
    Reason reason = join_domains(a, b, &domain);
    if (!reason && !fits(a, b)) reason = REASON_too_large;
    bool feeds = feeds_step(s, a, b) || feeds_step(s, b, a);
    if (!reason && (feeds || makes_cycle(s, a, b))) reason = REASON_cycle;
    if (!reason && !lower_joined(s, a, b, &domain)) reason = REASON_other_position;
    if (reason) {
        refuse(s, reason, a, b);
        return false;
    }
    a->first = a->first < b->first ? a->first : b->first;
    a->last = a->last > b->last ? a->last : b->last;
    b->forward = a;
    return true;
}

/* ---- candidates ------------------------------------------------------------------------------ */

typedef struct MergeCandidate {
    Group *group;
    int64_t bytes;
} MergeCandidate;

static int64_t bytes_of(const Node *node) {
    return node_numel(node) * (int64_t)cb_dtype_size(node->dtype);
}

/* Keeps the largest ones, sorted; the same group once. */
static void add_candidate(MergeCandidate *candidate, int *count, Group *group, int64_t bytes) {
    for (int i = 0; i < *count; i++)
        if (candidate[i].group == group) return;
    int at = *count < CANDIDATES ? (*count)++ : CANDIDATES;
    while (at > 0 && candidate[at - 1].bytes < bytes) {
        if (at < CANDIDATES) candidate[at] = candidate[at - 1];
        at--;
    }
    if (at < CANDIDATES) candidate[at] = (MergeCandidate){group, bytes};
}

static int producers(Schedule *s, const Group *group, MergeCandidate *candidate) {
    int count = 0;
    for (int i = 0; i < length(group->read); i++) {
        Group *producer = group_find(s->group[group->read[i]->id]);
        if (producer && producer != group)
            add_candidate(candidate, &count, producer, bytes_of(group->read[i]));
    }
    return count;
}

static int siblings(Schedule *s, const Group *group, MergeCandidate *candidate) {
    int count = 0;
    for (int i = 0; i < length(group->read); i++) {
        Group **reader = s->reader[group->read[i]->id];
        int64_t bytes = bytes_of(group->read[i]);
        for (int j = length(reader) - 1, n = 0; j >= 0 && n < SIBLINGS; j--, n++) {
            Group *other = group_find(reader[j]);
            if (other != group && !other->anchor && bytes >= SIBLING_BYTES)
                add_candidate(candidate, &count, other, bytes);
        }
    }
    return count;
}

static void fuse_node(Schedule *s, const Node *node) {
    MergeCandidate candidate[CANDIDATES];
    Group *group = group_find(s->group[node->id]);
    int count = producers(s, group, candidate);
    for (int i = 0; i < count; i++) {
        Group *other = group_find(candidate[i].group);
        if (other != group && try_merge(s, other, group)) group = other;
    }
    count = group->anchor ? 0 : siblings(s, group, candidate);
    for (int i = 0; i < count; i++) {
        Group *other = group_find(candidate[i].group);
        if (other != group && try_merge(s, other, group)) group = other;
    }
}

/* The node stays alone: says so for each group that it reads. */
static void keep_apart(Schedule *s, const Group *group, Reason reason) {
    MergeCandidate candidate[CANDIDATES];
    int count = producers(s, group, candidate);
    for (int i = 0; i < count; i++) refuse(s, reason, candidate[i].group, group);
}

static GroupKind kind_of(const Node *node) {
    if (node->op == OP_scatter || node->op == OP_scatter_add) return GROUP_SCATTER;
    OpKind kind = op_info(node->op)->kind;
    return kind == KIND_CONTRACT ? GROUP_PRODUCT : kind == KIND_OPAQUE ? GROUP_OPAQUE : GROUP_LOOP;
}

void fuse_groups(Schedule *s) {
    for (int i = 0; i < length(s->order); i++) {
        const Node *node = s->order[i];
        if (node->op == OP_input || !s->real[node->id]) continue;
        Group *group = group_new(s, kind_of(node), node);
        if (s->options.fuse && group->kind == GROUP_LOOP)
            fuse_node(s, node);
        else
            keep_apart(s, group, s->options.fuse ? REASON_library_step : REASON_fusion_off);
        group = group_find(group);
        for (int r = 0; r < length(group->read); r++) {
            Group ***reader = &s->reader[group->read[r]->id];
            if (!length(*reader) || (*reader)[length(*reader) - 1] != group)
                push(s->arena, *reader, group);
        }
    }
}
