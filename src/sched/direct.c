/* Writes to parts of inputs: by the kernel that computes what is written, where it may.
 *
 * What an input takes is known to be its own when all has run (plan.h), so it is computed aside and
 * copied at the end. Where the kernel can go last of all, with nothing behind it that may fail or
 * that reads the input, and reads it itself at the very element that it stores, it stores it there.
 * Into a whole input that is contiguous kernels store as into memory of their own, where the plan
 * may (sched/in_place.c) and the inputs of a run let it (run/execute.c): they go last where that
 * keeps less than they give, as the update of an optimizer does, which gives weights and moments
 * and keeps a gradient. Direct are only those that are alone, as an op of eager is, which then has
 * no memory at all.
 *
 *     p[1:-1, 1:-1] *= 2, f32[1024, 1024]:  store p[1024 * a0 + a1 + 1025] = load of it * 2 */
#include "sched/schedule.h"

/* Nothing of its kernel can fail, and its elements are stored one by one. */
static bool is_plain(const Schedule *s, const Group *group, const Node *node) {
    if (!group || group->kind != GROUP_LOOP || group->anchor) return false;
    if (domain_has_inner(&group->domain) || node_numel(node) != domain_total(&group->domain))
        return false;
    for (int i = 0; i < length(group->sink); i++)
        if (group->sink[i]) return false;
    for (int i = 0; i < length(s->check.check); i++)
        if (group_find(s->group[s->check.check[i].index->id]) == group) return false;
    return true;
}

static bool same_layout(const Region *a, const Region *b) {
    if (a->rank != b->rank || a->offset != b->offset) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->size[i] != b->size[i] || (a->size[i] > 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

static bool is_alone(const Schedule *s) { return length(s->all) == 1; }

/* What mutation `number` writes; false: several parts, one that a number shifts, or all of an input
 * that is contiguous. */
static bool written_region(const Schedule *s, int number, const Node *input, Region *region) {
    int64_t stride[CB_MAX_RANK];
    buffer_strides(s, input, stride);
    *region = region_whole(input, stride);
    const Region contiguous = region_whole(input, NULL);
    if (!s->write[number]) return is_alone(s) || !same_layout(region, &contiguous);
    *region = s->write[number][0].region;
    return length(s->write[number]) == 1 && !region->shift_count;
}

/* All that its kernel stores is taken by inputs, as wholes, and is more than it keeps by going
 * last: its own results would be there until then, and now they lie in the inputs. */
static bool updates_inputs(const Schedule *s, const Group *group, const int *uses) {
    int64_t stored = 0, kept = 0;
    if (group->kind != GROUP_LOOP || group->anchor) return false;
    for (int i = 0; i < length(group->member); i++) {
        const Node *member = group->member[i];
        if (uses[member->id] > 1 || (uses[member->id] && !s->taken[member->id])) return false;
        if (uses[member->id]) stored += node_bytes(member);
    }
    for (int i = 0; i < length(group->read); i++)
        if (s->group[group->read[i]->id]) kept += node_bytes(group->read[i]);
    return kept <= stored;
}

static void wait_for_all(Schedule *s, Group *group) {
    if (!group->late) push(s->arena, s->late, group);
    group->late = true;
}

void find_direct(Schedule *s, const int *uses) {
    s->direct = arena_new_array(s->arena, DirectWrite *, length(s->graph->node) + 1);
    if (!device_is_host(s->graph->device)) return;
    for (int i = 0; i < length(s->graph->mutation); i++) {
        DirectWrite direct = {.input = s->graph->input[s->graph->mutation[i].input]};
        if (!written_region(s, i, direct.input, &direct.region)) continue;
        const Node *node = output_base(mutation_value(s, i, 0));
        Group *group = group_find(s->group[node->id]);
        if (uses[node->id] != 1 || !is_plain(s, group, node)) continue;
        s->direct[node->id] = arena_alloc(s->arena, sizeof direct);
        *s->direct[node->id] = direct;
        wait_for_all(s, group);
    }
    for (int g = 0; g < length(s->all); g++)
        if (!s->all[g]->forward && updates_inputs(s, s->all[g], uses)) wait_for_all(s, s->all[g]);
}

Expr *direct_index(const Schedule *s, const Group *group, const Node *member) {
    const DirectWrite *direct = s->direct[member->id];
    Expr *position[CB_MAX_RANK];
    if (!direct || !s->closing) return NULL;
    const Region *region = &direct->region;
    index_unflatten(group->trial, region->rank, region->size, group->element, position);
    Expr *index = index_dot(group->trial, region->rank, region->stride, position);
    return index_offset(group->trial, index, region->offset);
}

const Node *updated_input(const Schedule *s, const Node *node) {
    for (int i = 0; i < length(s->graph->mutation); i++)
        if (!s->write[i] && output_base(mutation_value(s, i, 0)) == node)
            return s->graph->input[s->graph->mutation[i].input];
    return NULL;
}

/* Rows of lanes, side by side. */
static bool has_rows(const Schedule *s, Kernel *kernel, Expr *index) {
    int64_t stride[EXPR_AXES];
    Expr *rest;
    int last = length(kernel->axis) - 1;
    return last >= 0 && last == kernel->outer_count - 1 &&
           index_affine(kernel, index, stride, &rest) && rest->op == OP_constant &&
           stride[last] == 1 && axis_typical(kernel, last) >= s->machine->short_row;
}

static bool is_read_later(const Schedule *s, const Group *group, const Node *input) {
    for (int i = 0; i < length(s->late); i++) {
        const Group *other = s->late[i];
        if (other == group || other->emitted) continue;
        for (int r = 0; r < length(other->read); r++)
            if (other->read[r] == input) return true;
    }
    return false;
}

bool store_direct(Schedule *s, const Group *group, const Node *member, Store *store) {
    Expr *index = direct_index(s, group, member), *own = store->index;
    if (!index || !has_rows(s, group->trial, index)) return false;
    DirectWrite *direct = s->direct[member->id];
    int input = node_value(s, direct->input);
    store->index = index;
    if (is_read_later(s, group, direct->input) || !kernel_updates(group->trial, store, input)) {
        store->index = own;
        return false;
    }
    kernel_share(group->trial, store, input);
    KernelBuffer *buffer = &group->trial->buffer[store->buffer];
    buffer->value = s->value[member->id] = input;
    buffer->numel = node_numel(direct->input);
    return direct->done = true;
}
