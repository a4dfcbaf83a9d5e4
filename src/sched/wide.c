/* Products of half precision whose sums stay f32 until a kernel has read them.
 *
 *     y = relu(matmul(a, b) + bias)     of bf16: sums, bias and relu in f32, rounded to bf16 once
 *
 * Kernels compute in f32 anyway, so all that it takes is a value in f32 between the product and its
 * readers: its own epilogue, or kernels behind it (the softmax over the scores of attention). What
 * is an output, or an operand of another library step, has its dtype in memory. A large value costs
 * time in f32, and is rounded. So is every value where each op rounds (option precise), or is a
 * step of its own. */
#include "sched/schedule.h"

static bool is_small_half(const Node *product) {
    TaskKind kind;
    return dtype_is_half(product->dtype) && task_of_op(product->op, &kind) &&
           node_numel(product) <= task_info(kind)->wide_elements;
}

void mark_wide(Schedule *s) {
    s->wide = arena_new_array(s->arena, bool, length(s->graph->node) + 1);
    if (!s->options.fuse || s->graph->ambient.precise) return;
    for (int g = 0; g < length(s->all); g++) {
        const Group *group = s->all[g];
        if (group->forward || group->kind != GROUP_PRODUCT) continue;
        s->wide[group->anchor->id] = is_small_half(group->anchor);
    }
    for (int g = 0; g < length(s->all); g++) {
        const Group *group = s->all[g];
        for (int i = 0; i < length(group->operand) && !group->forward; i++)
            s->wide[group->operand[i]->id] = false;
    }
    for (int i = 0; i < length(s->graph->output); i++)
        s->wide[output_base(s->graph->output[i])->id] = false;
    for (int i = 0; i < length(s->graph->mutation); i++)
        for (int k = 0; k < mutation_count(s, i); k++)
            s->wide[output_base(mutation_value(s, i, k))->id] = false;
}
