/* Graph -> plan: the pipeline of scheduling on one screen is plan_build. Groups become steps, each
 * after those that it reads from; values get their places. */
#include "graph/node.h"
#include "op/custom.h"
#include "sched/list.h"
#include "sched/memory.h"
#include "sched/schedule.h"

#include <string.h>

/* ---- steps ----------------------------------------------------------------------------------- */

/* How many groups, checks and results need a real node in memory, from outside of its kernel. */
static int *count_uses(Schedule *s) {
    int *uses = arena_new_array(s->arena, int, length(s->graph->node) + 1);
    for (int g = 0; g < length(s->all); g++) {
        Group *group = s->all[g];
        if (group->forward) continue;
        for (int r = 0; r < length(group->read); r++)
            if (group_find(s->group[group->read[r]->id]) != group) uses[group->read[r]->id]++;
    }
    for (int i = 0; i < length(s->check.check); i++) uses[s->check.check[i].index->id]++;
    for (int i = 0; i < length(s->graph->output); i++) uses[output_base(s->graph->output[i])->id]++;
    for (int i = 0; i < length(s->graph->mutation); i++)
        for (int k = 0; k < mutation_count(s, i); k++)
            uses[output_base(mutation_value(s, i, k))->id]++;
    return uses;
}

static void add_step(Schedule *s, Step step) { push(s->plan->arena, s->plan->step, step); }

/* The step that comes next computes all of the group. */
static void note_nodes(Schedule *s, const Group *group) {
    int number = length(s->plan->step);
    if (group->anchor) s->plan->node_step[group->anchor->id] = number;
    for (int i = 0; i < length(group->member); i++)
        s->plan->node_step[group->member[i]->id] = number;
}

static void add_checks(Schedule *s, const Group *group) {
    for (int i = 0; i < length(s->check.check); i++) {
        const IndexCheck *check = &s->check.check[i];
        if (group_find(s->group[check->index->id]) != group) continue;
        add_step(s, (Step){.kind = STEP_CHECK,
                           .in = {node_value(s, check->index)},
                           .in_count = 1,
                           .out = -1,
                           .kernel = -1,
                           .check = check->in,
                           .origin = op_info(check->in.op)->name});
    }
}

static void shift_operand(Schedule *s, Step *step, Shift shift) {
    if (!step->shift) {
        step->shift = arena_new_array(s->plan->arena, Shift, OP_MAX_INPUTS);
        for (int i = 0; i < OP_MAX_INPUTS; i++) step->shift[i].input = NO_INPUT;
    }
    step->shift[step->in_count] = shift;
}

/* Where an operand of a task lies in the value that the step reads next. */
static void strided_operand(Schedule *s, const Node *operand, Step *step, int64_t *stride,
                            TaskOperand *out) {
    const Node *buffer = buffer_below(s, operand);
    Shift shift = {.input = NO_INPUT};
    out->offset = 0, out->stored = buffer->dtype;
    if (buffer == operand) {
        buffer_strides(s, buffer, stride);
    } else {
        bool affine = operand_affine(s, operand, buffer, stride, &out->offset, &shift);
        check(affine, "settle_strided left an operand without strides");
    }
    if (shift.input != NO_INPUT) shift_operand(s, step, shift);
    step->in[step->in_count++] = node_value(s, buffer);
}

static void fill_task(Schedule *s, const Node *node, Step *step) {
    TaskCall call = {.op = node->op, .attrs = node->attrs, .result = node_meta(node)};
    call.wide = s->wide[node->id];
    call.reduced = node->dtype == CB_F32 && s->graph->ambient.reduced;
    call.count = strided_operands(node);
    for (int i = 0; i < node->input_count; i++) {
        TaskOperand *operand = &call.operand[i];
        int64_t stride[DOMAIN_AXES] = {0};
        operand->meta = node_meta(node->input[i]);
        if (i < call.count) strided_operand(s, node->input[i], step, stride, operand);
        memcpy(operand->stride, stride, sizeof operand->stride);
    }
    task_of_op(node->op, &step->task.kind);
    task_info(step->task.kind)->make(&call, &step->task);
}

/* An epilogue whose only result replaces the product itself writes over it. */
static void reuse_product(Schedule *s, Group *group, const int *uses) {
    const Node *only = NULL;
    int count = 0;
    for (int i = 0; i < length(group->member); i++)
        if (uses[group->member[i]->id]) only = group->member[i], count++;
    int product = node_value(s, group->anchor);
    bool same = count == 1 && only->dtype == s->plan->value[product].dtype &&
                node_numel(only) == node_numel(group->anchor);
    if (same && !uses[group->anchor->id]) s->value[only->id] = product;
}

static int kernel_of(Schedule *s, Group *group, const int *uses) {
    bool *stored = arena_new_array(s->arena, bool, length(group->member) + 1);
    for (int i = 0; i < length(group->member); i++) stored[i] = uses[group->member[i]->id];
    return finish_group(s, group, stored);
}

static Step task_step(Schedule *s, const Node *node) {
    Step step = {.kind = STEP_TASK, .kernel = -1};
    fill_task(s, node, &step);
    step.out = node_value(s, node);
    return step;
}

/* Its operands are contiguous, or inputs of the call. */
static Step custom_step(Schedule *s, const Node *node) {
    Step step = {.kind = STEP_CUSTOM, .kernel = -1, .custom = node};
    for (int i = 0; i < node->input_count; i++)
        step.in[step.in_count++] = node_value(s, node->input[i]);
    step.out = node_value(s, node);
    return step;
}

/* In place, or in a copy. */
static Step write_step(Schedule *s, const Node *node) {
    const WrittenParts *written = s->written[node->id];
    Step step = {.kind = STEP_WRITE, .kernel = -1, .out = node_value(s, written->base)};
    if (written->copies) {
        StepPart all = {step.out, region_whole(written->base, NULL)};
        step.out = node_value(s, node);
        push(s->plan->arena, step.part, all);
    }
    s->value[node->id] = step.out;
    for (int i = 0; i < length(written->write); i++) {
        const RegionWrite *write = &written->write[i];
        StepPart part = {node_value(s, output_base(write->source)), write->region};
        push(s->plan->arena, step.part, part);
    }
    return step;
}

/* What has no elements needs no step. */
static bool is_empty(const Schedule *s, const Group *group) {
    for (int i = 0; i < length(s->graph->effect); i++)
        if (s->graph->effect[i] == group->anchor) return false;
    bool empty = !group->anchor || node_numel(group->anchor) == 0;
    for (int i = 0; i < length(group->member); i++) empty &= node_numel(group->member[i]) == 0;
    return empty;
}

static const int64_t *words_of(const Node *node) { return node->attrs ? node->attrs->word : NULL; }

static void add_group(Schedule *s, Group *group, const int *uses) {
    if (is_empty(s, group)) return;
    Step step = {.kind = STEP_KERNEL, .out = -1, .kernel = -1};
    int scatter[2];
    switch (group->kind) {
    case GROUP_LOOP:
        step.kernel = kernel_of(s, group, uses);
        break;
    case GROUP_OPAQUE:
        step = op_info(group->anchor->op)->kind == KIND_CUSTOM ? custom_step(s, group->anchor)
                                                               : task_step(s, group->anchor);
        break;
    case GROUP_PRODUCT:
        step = task_step(s, group->anchor);
        if (!length(group->member)) break;
        reuse_product(s, group, uses);
        step.kernel = kernel_of(s, group, uses);
        break;
    case GROUP_WRITE:
        step = write_step(s, group->anchor);
        break;
    case GROUP_SCATTER:
        finish_scatter(s, group, uses, scatter);
        if (scatter[0] >= 0)
            add_step(
                s, (Step){.kind = STEP_KERNEL, .out = -1, .kernel = scatter[0], .origin = "copy"});
        step.kernel = scatter[1];
        break;
    }
    step.origin = group->anchor ? op_call_name(group->anchor->op, words_of(group->anchor))
                                : s->plan->kernel[step.kernel]->origin;
    note_nodes(s, group);
    add_step(s, step);
    add_checks(s, group);
}

/* Depth first over what is read, with its own stack: chains are long. */
static void emit(Schedule *s, Group *root, const int *uses) {
    Group **stack = NULL;
    push(s->arena, stack, root);
    while (length(stack)) {
        Group *group = stack[length(stack) - 1];
        int before = length(stack);
        for (int i = 0; i < length(group->read) && !group->emitted; i++) {
            Group *producer = group_find(s->group[group->read[i]->id]);
            if (producer && producer != group && !producer->emitted)
                push(s->arena, stack, producer);
        }
        check(length(stack) == before || !group->opened, "groups that wait for each other");
        group->opened = true;
        if (length(stack) > before) continue;
        (void)pop(stack);
        if (!group->emitted) add_group(s, group, uses);
        group->emitted = true;
    }
}

static int count_groups(const Schedule *s) {
    int count = 0;
    for (int g = 0; g < length(s->all); g++) count += !s->all[g]->forward;
    return count;
}

/* First what is computed for its check alone: an error comes before work that it makes vain, and
 * before inputs are written. */
static void emit_all(Schedule *s) {
    const int *uses = count_uses(s);
    find_direct(s, uses);
    s->plan->step = vec_grow(s->plan->arena, NULL, count_groups(s), sizeof *s->plan->step);
    add_checks(s, NULL); /* of inputs */
    for (int i = 0; i < length(s->check.check); i++) {
        const Node *index = s->check.check[i].index;
        if (s->group[index->id] && !s->checked[index->id])
            emit(s, group_find(s->group[index->id]), uses);
    }
    for (int g = 0; g < length(s->all); g++)
        if (!s->all[g]->forward && !s->all[g]->late) emit(s, s->all[g], uses);
    s->closing = true;
    for (int g = 0; g < length(s->late); g++) emit(s, s->late[g], uses);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Where in its input a part of a mutation lands; NULL: everywhere. */
static const Region *region_of(const Schedule *s, int number, int part) {
    if (!s->write[number]) return NULL;
    Region *region = arena_alloc(s->plan->arena, sizeof *region);
    *region = s->write[number][part].region;
    return region;
}

static void add_output(Schedule *s, const Node *node, int mutated_input, const Region *region) {
    const Node *base = output_base(node);
    PlanOutput output = {.meta = node_meta(node),
                         .mutated_input = mutated_input,
                         .region = region,
                         .alias_input = -1};
    const DirectWrite *direct = s->direct[base->id];
    output.direct = direct && direct->done;
    output.meta.device = (uint8_t)s->graph->device;
    output.value = node_value(s, base);
    PlanValue *value = &s->plan->value[output.value];
    if (node->op == OP_input && mutated_input < 0) output.alias_input = value->number;
    if (value->place == VALUE_TEMPORARY && mutated_input < 0) {
        value->place = VALUE_OUTPUT;
        value->number = length(s->plan->output);
    }
    if (!output.direct && (value->place == VALUE_INPUT || region)) {
        s->plan->copies += value->place == VALUE_INPUT;
        s->plan->bytes += 2 * value->numel * (int64_t)cb_dtype_size(value->dtype);
    }
    push(s->plan->arena, s->plan->output, output);
}

static void add_outputs(Schedule *s) {
    for (int i = 0; i < length(s->graph->output); i++) add_output(s, s->graph->output[i], -1, NULL);
    s->plan->output_count = length(s->plan->output);
    for (int i = 0; i < length(s->graph->mutation); i++)
        for (int k = 0; k < mutation_count(s, i); k++)
            add_output(s, mutation_value(s, i, k), s->graph->mutation[i].input, region_of(s, i, k));
}

static Schedule schedule_new(Graph *graph, Plan *plan, const int64_t *const *input_stride,
                             PlanOptions options) {
    int count = length(graph->node) + 1;
    Schedule s = {
        .graph = graph, .arena = arena_inner(plan->arena), .plan = plan, .options = options};
    s.machine = devices[graph->device]->machine;
    s.order = graph_walk_late(graph, s.arena, graph->check);
    s.order = order_readers_first(graph, s.arena, s.order);
    s.kernel = map_new(s.arena);
    s.input_stride = input_stride;
    s.position = arena_new_array(s.arena, int, count);
    s.written = arena_new_array(s.arena, WrittenParts *, count);
    s.real = arena_new_array(s.arena, bool, count);
    s.taken = arena_new_array(s.arena, bool, count);
    s.checked = arena_new_array(s.arena, bool, count);
    s.check = check_set_new(graph, s.arena);
    s.group = arena_new_array(s.arena, Group *, count);
    s.reader = arena_new_array(s.arena, Group **, count);
    s.value = arena_new_array(s.arena, int, count);
    s.effect = arena_new_array(s.arena, const Node *, count);
    for (int i = 1; i < length(graph->effect); i++)
        s.effect[graph->effect[i]->id] = graph->effect[i - 1];
    for (int i = 0; i < length(s.order); i++) s.position[s.order[i]->id] = i;
    plan->node_step = arena_new_array(plan->arena, int, count);
    for (int i = 0; i < count; i++) s.value[i] = plan->node_step[i] = -1;
    return s;
}

Plan *plan_build(Graph *graph, Arena *arena, const int64_t *const *input_stride,
                 PlanOptions options) {
    Plan *plan = arena_zalloc(arena, sizeof *plan);
    plan->arena = arena;
    plan->graph = graph;
    plan->ambient = graph->ambient;
    plan->device = graph->device;
    plan->draws = graph->random_count;
    plan->effects = length(graph->effect) > 0;
    int inputs = length(graph->input) - length(graph->constant);
    plan->input = vec_grow(arena, NULL, inputs, sizeof *plan->input);
    for (int i = 0; i < inputs; i++) push(arena, plan->input, node_meta(graph->input[i]));
    Schedule schedule = schedule_new(graph, plan, input_stride, options);
    mark_real(&schedule);
    fuse_groups(&schedule);
    mark_wide(&schedule);
    emit_all(&schedule);
    add_outputs(&schedule);
    join_lists(plan, schedule.arena, length(graph->node) + 1);
    arena_free(schedule.arena);
    for (int i = 0; i < length(plan->step); i++) {
        plan->bytes += step_bytes(plan, &plan->step[i]);
        plan->flops += step_flops(&plan->step[i]);
    }
    plan_in_place(plan);
    plan_memory(plan);
    return plan;
}
