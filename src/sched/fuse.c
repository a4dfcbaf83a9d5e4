/* Fusion: merges groups, driven by the bytes that stay in registers.
 *
 * Nodes come in graph order. Each real node starts as a group of its own and tries to join the
 * groups that it reads, the largest saving first, then the groups that read the same values
 * (siblings). What is legal say the rules of fusion.def; every refusal is kept with its rule for
 * explain. */
#include "sched/legal.h"

enum { SIBLINGS = 3, REFUSALS = 256, CANDIDATES = 8, SIBLING_BYTES = 1 << 12 };

static const Node *head(const Group *group) {
    return group->anchor ? group->anchor : group->member[0];
}

static void refuse(Schedule *s, const FusionRule *rule, const Group *producer,
                   const Group *consumer) {
    if (length(s->plan->refusal) >= REFUSALS) return;
    push(s->plan->arena, s->plan->refusal, (Refusal){rule, head(producer), head(consumer)});
}

/* What reads the group needs all that it needs. */
static void raise_readers(Schedule *s, const Group *group, Group ***raised) {
    for (int i = 0; i < length(group->member) + (group->anchor != NULL); i++) {
        const Node *node = i < length(group->member) ? group->member[i] : group->anchor;
        Group **readers = s->reader[node->id];
        for (int j = 0; j < length(readers); j++) {
            Group *reader = group_find(readers[j]);
            if (reader == group || reader->reach >= group->reach) continue;
            reader->reach = group->reach;
            push(s->arena, *raised, reader);
        }
    }
}

/* A group that has grown reaches as far as its parts, and so does what reads it. */
static void raise_reach(Schedule *s, Group *group, int reach) {
    Group **raised = NULL;
    group->reach = reach;
    push(s->arena, raised, group);
    while (length(raised)) raise_readers(s, pop(raised), &raised);
}

static bool try_merge(Schedule *s, Group *a, Group *b) {
    Merge merge = {.schedule = s, .a = a, .b = b};
    const FusionRule *rule = merge_refused(&merge, FUSION_PAIR);
    if (rule) {
        refuse(s, rule, a, b);
        return false;
    }
    a->first = a->first < b->first ? a->first : b->first;
    a->last = a->last > b->last ? a->last : b->last;
    b->forward = a;
    raise_reach(s, a, a->reach > b->reach ? a->reach : b->reach);
    return true;
}

/* ---- candidates ------------------------------------------------------------------------------ */

typedef struct MergeCandidate {
    Group *group;
    int64_t bytes;
} MergeCandidate;

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
            add_candidate(candidate, &count, producer, node_bytes(group->read[i]));
    }
    return count;
}

static int siblings(Schedule *s, const Group *group, MergeCandidate *candidate) {
    int count = 0;
    for (int i = 0; i < length(group->read); i++) {
        Group **reader = s->reader[group->read[i]->id];
        int64_t bytes = node_bytes(group->read[i]);
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
static void keep_apart(Schedule *s, const Group *group, const FusionRule *rule) {
    MergeCandidate candidate[CANDIDATES];
    int count = producers(s, group, candidate);
    for (int i = 0; i < count; i++) refuse(s, rule, candidate[i].group, group);
}

static void find_reach(const Schedule *s, Group *group) {
    group->reach = group->last;
    for (int i = 0; i < length(group->read); i++) {
        const Group *producer = group_find(s->group[group->read[i]->id]);
        if (producer && producer->reach > group->reach) group->reach = producer->reach;
    }
}

static GroupKind kind_of(const Schedule *s, const Node *node) {
    if (s->written[node->id]) return GROUP_WRITE;
    switch (op_info(node->op)->kind) {
    case KIND_SCATTER:
        return GROUP_SCATTER;
    case KIND_CONTRACT:
        return GROUP_PRODUCT;
    case KIND_OPAQUE:
    case KIND_CUSTOM:
        return GROUP_OPAQUE;
    default:
        return GROUP_LOOP;
    }
}

void fuse_groups(Schedule *s) {
    for (int i = 0; i < length(s->order); i++) {
        const Node *node = s->order[i];
        if (node->op == OP_input || !s->real[node->id]) continue;
        Group *group = group_new(s, kind_of(s, node), node);
        find_reach(s, group);
        const FusionRule *rule = merge_refused(&(Merge){.schedule = s, .a = group}, FUSION_ONE);
        if (rule)
            keep_apart(s, group, rule);
        else
            fuse_node(s, node);
        group = group_find(group);
        for (int r = 0; r < length(group->read); r++) {
            Group ***reader = &s->reader[group->read[r]->id];
            if (!length(*reader) || (*reader)[length(*reader) - 1] != group)
                push(s->arena, *reader, group);
        }
    }
}
