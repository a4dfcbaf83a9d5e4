/* Graph -> plan: the pipeline of scheduling on one screen is plan_build. Groups become steps, each
 * after those that it reads from; values get their places. */
#include "sched/memory.h"
#include "sched/schedule.h"

#include <string.h>

/* ---- steps ----------------------------------------------------------------------------------- */

/* Real nodes that somebody outside of their kernel needs in memory. */
static bool *needed_nodes(Schedule *s) {
    bool *needed = arena_new_array(s->arena, bool, length(s->graph->node) + 1);
    for (int g = 0; g < length(s->all); g++) {
        Group *group = s->all[g];
        if (group->forward) continue;
        for (int r = 0; r < length(group->read); r++)
            if (group_find(s->group[group->read[r]->id]) != group)
                needed[group->read[r]->id] = true;
    }
    for (int i = 0; i < length(s->graph->output); i++)
        needed[output_base(s->graph->output[i])->id] = true;
    for (int i = 0; i < length(s->graph->mutation); i++)
        needed[output_base(s->graph->mutation[i].value)->id] = true;
    return needed;
}

static void add_step(Schedule *s, Step step) { push(s->arena, s->plan->step, step); }

static void add_checks(Schedule *s, const Group *group) {
    for (int i = 0; i < length(s->check); i++) {
        const IndexCheck *check = &s->check[i];
        if (group_find(s->group[check->base->id]) != group) continue;
        add_step(s, (Step){.kind = STEP_CHECK,
                           .in = {node_value(s, check->base)},
                           .in_count = 1,
                           .out = -1,
                           .kernel = -1,
                           .check = {check->bound, check->node},
                           .origin = op_info(check->node->op)->name});
    }
}

/* Element strides of an operand of a task, whose value the step reads next. */
static void strided_operand(Schedule *s, const Node *operand, Step *step, int64_t *stride,
                            int64_t *offset) {
    const Node *buffer = buffer_below(s, operand);
    *offset = 0;
    if (buffer == operand) {
        buffer_strides(s, buffer, stride);
    } else {
        bool affine = operand_affine(s, operand, buffer, stride, offset);
        check(affine, "settle_strided left an operand without strides");
    }
    step->in[step->in_count++] = node_value(s, buffer);
}

static void batch_strides(const Node *node, const Node *operand, const int64_t *stride,
                          int64_t *out) {
    int shift = node->rank - operand->rank;
    for (int i = 0; i < node->rank - 2; i++) {
        bool spread = i < shift || operand->size[i - shift] == 1;
        out[i] = spread ? 0 : stride[i - shift];
    }
}

static void matmul_task(Schedule *s, const Node *node, Step *step) {
    const Node *a = node->input[0], *b = node->input[1];
    int64_t sa[DOMAIN_AXES] = {0}, sb[DOMAIN_AXES] = {0};
    MatmulTask task = {.dtype = node->dtype, .batch = 1};
    task.reduced = node->dtype == CB_F32 && s->graph->ambient.reduced;
    task.wide = s->wide[node->id];
    strided_operand(s, a, step, sa, &task.a_offset);
    strided_operand(s, b, step, sb, &task.b_offset);
    task.m = node->size[node->rank - 2];
    task.n = node->size[node->rank - 1];
    task.k = a->size[a->rank - 1];
    task.batch_rank = node->rank - 2;
    for (int i = 0; i < task.batch_rank; i++) task.batch *= task.batch_size[i] = node->size[i];
    batch_strides(node, a, sa, task.a_batch);
    batch_strides(node, b, sb, task.b_batch);
    task.a_m = sa[a->rank - 2], task.a_k = sa[a->rank - 1];
    task.b_k = sb[b->rank - 2], task.b_n = sb[b->rank - 1];
    step->task = (Task){.kind = TASK_MATMUL, .matmul = task};
}

/* Spatial dims of the op, written behind sizes of 1 so that there are three. */
static void spatial_sizes(int rank, const int64_t *from, int64_t *out, int64_t none) {
    for (int i = 0; i < 3; i++) out[i] = i < 3 - rank ? none : from[i - (3 - rank)];
}

static void convolution_task(Schedule *s, const Node *node, Step *step) {
    const Node *x = node->input[0], *weight = node->input[1];
    const int64_t *word = node->attrs->word;
    int64_t sx[DOMAIN_AXES] = {0}, sw[DOMAIN_AXES] = {0};
    bool last = word[ATTR_convolution_channels_last];
    int rank = node->rank - 2, spatial = last ? 1 : 2, channel = last ? rank + 1 : 1;
    ConvolutionTask task = {.dtype = node->dtype, .channels_last = last, .rank = rank};
    task.reduced = node->dtype == CB_F32 && s->graph->ambient.reduced;
    task.wide = s->wide[node->id];
    strided_operand(s, x, step, sx, &task.x_offset);
    strided_operand(s, weight, step, sw, &task.weight_offset);
    task.batch = node->size[0];
    task.channels = x->size[channel];
    task.out_channels = weight->size[0];
    task.groups = word[ATTR_convolution_groups];
    task.x_batch = sx[0], task.x_channel = sx[channel];
    task.weight_out = sw[0], task.weight_in = sw[channel];
    spatial_sizes(rank, x->size + spatial, task.in_size, 1);
    spatial_sizes(rank, node->size + spatial, task.out_size, 1);
    spatial_sizes(rank, weight->size + spatial, task.kernel, 1);
    spatial_sizes(rank, sx + spatial, task.x_spatial, 0);
    spatial_sizes(rank, sw + spatial, task.weight_spatial, 0);
    spatial_sizes(rank, word + ATTR_convolution_stride + 1, task.stride, 1);
    spatial_sizes(rank, word + ATTR_convolution_padding + 1, task.padding, 0);
    spatial_sizes(rank, word + ATTR_convolution_dilation + 1, task.dilation, 1);
    step->task = (Task){.kind = TASK_CONVOLUTION, .convolution = task};
}

static void attention_operand(Schedule *s, const Node *node, const Node *operand, Step *step,
                              AttentionOperand *out) {
    int64_t stride[DOMAIN_AXES] = {0};
    int last = operand->rank - 1;
    strided_operand(s, operand, step, stride, &out->offset);
    batch_strides(node, operand, stride, out->batch);
    if (last >= 1 && operand->size[last - 1] > 1) out->row = stride[last - 1];
    if (last >= 0 && operand->size[last] > 1) out->column = stride[last];
}

/* Strides of the result, whose last `behind` batch dims stand behind the rows. */
static void attention_result(const Node *node, AttentionTask *task) {
    int64_t at[CB_MAX_RANK] = {0}, behind = node->attrs->word[ATTR_attention_behind];
    int row = node->rank - 2 - (int)behind;
    contiguous_strides(node->rank, node->size, at);
    task->out.row = at[row];
    task->out.column = 1;
    for (int i = 0; i < task->batch_rank; i++) {
        int dim = i < row ? i : i + 1;
        task->batch *= task->batch_size[i] = node->size[dim];
        task->out.batch[i] = at[dim];
    }
}

static void attention_task(Schedule *s, const Node *node, Step *step) {
    const Node *query = node->input[0], *key = node->input[1], *mask = node->input[3];
    AttentionTask task = {.dtype = node->dtype, .mask_dtype = mask->dtype, .batch = 1};
    task.causal = node->attrs->word[ATTR_attention_is_causal];
    task.scale = attr_float(node->attrs, ATTR_attention_scale);
    task.rows = query->size[query->rank - 2];
    task.columns = key->size[key->rank - 2];
    task.depth = query->size[query->rank - 1];
    task.width = node->size[node->rank - 1];
    task.batch_rank = node->rank - 2;
    task.masked = mask->op != OP_constant;
    attention_operand(s, node, query, step, &task.query);
    attention_operand(s, node, key, step, &task.key);
    attention_operand(s, node, node->input[2], step, &task.values);
    if (task.masked) attention_operand(s, node, mask, step, &task.mask);
    attention_result(node, &task);
    step->task = (Task){.kind = TASK_ATTENTION, .attention = task};
}

static void sort_task(Schedule *s, const Node *node, Step *step) {
    const Node *in = node->input[0];
    bool topk = node->op == OP_argtopk;
    int64_t stride[DOMAIN_AXES] = {0};
    SortTask task = {.dtype = in->dtype};
    strided_operand(s, in, step, stride, &task.offset);
    task.row_rank = in->rank ? in->rank - 1 : 0;
    memcpy(task.row_size, in->size, sizeof *in->size * (size_t)task.row_rank);
    memcpy(task.row_stride, stride, sizeof *stride * (size_t)task.row_rank);
    task.element = stride[task.row_rank];
    task.length = in->rank ? in->size[in->rank - 1] : 1;
    task.keep = node->rank ? node->size[node->rank - 1] : 1;
    task.rows = task.length ? node_numel(in) / task.length : 0;
    task.descending = node->attrs->word[topk ? ATTR_argtopk_largest : ATTR_argsort_descending] != 0;
    step->task = (Task){.kind = TASK_SORT, .sort = task};
}

/* An epilogue whose only result replaces the product itself writes over it. */
static void reuse_product(Schedule *s, Group *group, const bool *needed) {
    const Node *only = NULL;
    int count = 0;
    for (int i = 0; i < length(group->member); i++)
        if (needed[group->member[i]->id]) only = group->member[i], count++;
    int product = node_value(s, group->anchor);
    bool same = count == 1 && only->dtype == s->plan->value[product].dtype &&
                node_numel(only) == node_numel(group->anchor);
    if (same && !needed[group->anchor->id]) s->value[only->id] = product;
}

static int kernel_of(Schedule *s, Group *group, const bool *needed) {
    bool *stored = arena_new_array(s->arena, bool, length(group->member) + 1);
    for (int i = 0; i < length(group->member); i++) stored[i] = needed[group->member[i]->id];
    return finish_group(s, group, stored);
}

static Step task_step(Schedule *s, const Node *node) {
    Step step = {.kind = STEP_TASK, .kernel = -1};
    if (node->op == OP_matmul)
        matmul_task(s, node, &step);
    else if (node->op == OP_convolution)
        convolution_task(s, node, &step);
    else if (node->op == OP_attention)
        attention_task(s, node, &step);
    else
        sort_task(s, node, &step);
    step.out = node_value(s, node);
    return step;
}

/* What has no elements needs no step. */
static bool is_empty(const Group *group) {
    bool empty = !group->anchor || node_numel(group->anchor) == 0;
    for (int i = 0; i < length(group->member); i++) empty &= node_numel(group->member[i]) == 0;
    return empty;
}

static void add_group(Schedule *s, Group *group, const bool *needed) {
    if (is_empty(group)) return;
    Step step = {.kind = STEP_KERNEL, .out = -1, .kernel = -1};
    int scatter[2];
    switch (group->kind) {
    case GROUP_LOOP:
        step.kernel = kernel_of(s, group, needed);
        break;
    case GROUP_OPAQUE:
        step = task_step(s, group->anchor);
        break;
    case GROUP_PRODUCT:
        step = task_step(s, group->anchor);
        if (!length(group->member)) break;
        reuse_product(s, group, needed);
        step.kernel = kernel_of(s, group, needed);
        break;
    case GROUP_SCATTER:
        finish_scatter(s, group, scatter);
        add_step(s, (Step){.kind = STEP_KERNEL, .out = -1, .kernel = scatter[0], .origin = "copy"});
        step.kernel = scatter[1];
        break;
    }
    step.origin =
        group->anchor ? op_info(group->anchor->op)->name : s->plan->kernel[step.kernel]->origin;
    add_step(s, step);
    add_checks(s, group);
}

/* Depth first over what is read, with its own stack: chains are long. */
static void emit(Schedule *s, Group *root, const bool *needed) {
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
        if (length(stack) > before) continue;
        (void)pop(stack);
        if (!group->emitted) add_group(s, group, needed);
        group->emitted = true;
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static void add_output(Schedule *s, const Node *node, int mutated_input) {
    const Node *base = output_base(node);
    PlanOutput output = {
        .meta = node_meta(node), .mutated_input = mutated_input, .alias_input = -1};
    output.value = node_value(s, base);
    PlanValue *value = &s->plan->value[output.value];
    if (node->op == OP_input && mutated_input < 0) output.alias_input = value->number;
    if (value->place == VALUE_TEMPORARY && mutated_input < 0) {
        value->place = VALUE_OUTPUT;
        value->number = length(s->plan->output);
    }
    if (value->place == VALUE_INPUT) {
        s->plan->copies++;
        s->plan->bytes += 2 * value->numel * (int64_t)cb_dtype_size(value->dtype);
    }
    push(s->arena, s->plan->output, output);
}

static void add_outputs(Schedule *s) {
    for (int i = 0; i < length(s->graph->output); i++) add_output(s, s->graph->output[i], -1);
    s->plan->output_count = length(s->plan->output);
    for (int i = 0; i < length(s->graph->mutation); i++)
        add_output(s, s->graph->mutation[i].value, s->graph->mutation[i].input);
}

static Schedule schedule_new(Graph *graph, Plan *plan, const int64_t *const *input_stride,
                             PlanOptions options) {
    int count = length(graph->node) + 1;
    Schedule s = {.graph = graph, .arena = plan->arena, .plan = plan, .options = options};
    s.order = graph_order(graph);
    s.input_stride = input_stride;
    s.position = arena_new_array(s.arena, int, count);
    s.real = arena_new_array(s.arena, bool, count);
    s.checked = arena_new_array(s.arena, bool, count);
    s.group = arena_new_array(s.arena, Group *, count);
    s.reader = arena_new_array(s.arena, Group **, count);
    s.value = arena_new_array(s.arena, int, count);
    for (int i = 0; i < length(s.order); i++) s.position[s.order[i]->id] = i;
    for (int i = 0; i < count; i++) s.value[i] = -1;
    return s;
}

Plan *plan_build(Graph *graph, Arena *arena, const int64_t *const *input_stride,
                 PlanOptions options) {
    Plan *plan = arena_zalloc(arena, sizeof *plan);
    plan->arena = arena;
    plan->ambient = graph->ambient;
    plan->draws = graph->random_count;
    for (int i = 0; i < length(graph->input) - graph->constant_count; i++)
        push(arena, plan->input, node_meta(graph->input[i]));
    Schedule schedule = schedule_new(graph, plan, input_stride, options);
    mark_real(&schedule);
    fuse_groups(&schedule);
    mark_wide(&schedule);
    bool *needed = needed_nodes(&schedule);
    add_checks(&schedule, NULL); /* of inputs */
    for (int g = 0; g < length(schedule.all); g++)
        if (!schedule.all[g]->forward) emit(&schedule, schedule.all[g], needed);
    add_outputs(&schedule);
    for (int i = 0; i < length(plan->step); i++) {
        plan->bytes += step_bytes(plan, &plan->step[i]);
        plan->flops += step_flops(&plan->step[i]);
    }
    plan_memory(plan);
    return plan;
}
