/* One run of an executable: memory, pointers, steps, then what the run leaves in its inputs.
 *
 * Everything that can fail for want of memory, and every index check, comes before anything is
 * written to an input. The heap is touched for outputs, the arena block and large packings only;
 * all three come from the storage cache. */
#include "base/clock.h"
#include "cpu/copy.h"
#include "run/check_indices.h"
#include "run/executable.h"
#include "tensor/apply.h"
#include <stdatomic.h>
#include <string.h>

enum { STACK_POINTERS = 128 };

typedef struct PlanRun {
    const Executable *executable;
    const Plan *plan;
    Tensor *const *inputs;
    Tensor **outputs;
    char *block; /* temporaries and stages; NULL where all of them are empty */
    void **base; /* by plan value */
    void **slot; /* by slot: the buffers of all kernels */
    RandomState random;
} PlanRun;

static size_t element_bytes(const PlanValue *value) {
    return cb_dtype_size((cb_dtype)value->dtype);
}

/* ---- outputs ---- */

static Tensor *contiguous_view(Tensor *base, const Meta *meta) {
    int64_t stride[CB_MAX_RANK];
    contiguous_strides(meta->rank, meta->size, stride);
    return tensor_view_of(base, meta, stride, base->offset);
}

static void copy_out(const Tensor *from, void *to) {
    int64_t stride[CB_MAX_RANK];
    contiguous_strides(from->rank, from->size, stride);
    copy_strided(to, stride, tensor_data(from), from->stride, from->rank, from->size,
                 cb_dtype_size((cb_dtype)from->dtype));
}

/* An output is an input, what an earlier output is, or new. */
static Tensor *make_output(const PlanRun *run, int number) {
    const PlanOutput *output = &run->plan->output[number];
    const PlanValue *value = &run->plan->value[output->value];
    if (value->place == VALUE_OUTPUT && value->number < number)
        return contiguous_view(run->outputs[value->number], &output->meta);
    if (value->place != VALUE_INPUT) return tensor_new(&output->meta);
    Tensor *input = run->inputs[value->number];
    if (!stage_of(run->executable, value->number))
        return tensor_view_of(input, &output->meta, input->stride, input->offset);
    Tensor *copy = tensor_new(&output->meta);
    if (copy) copy_out(input, tensor_data(copy));
    return copy;
}

static bool make_outputs(const PlanRun *run) {
    int count = run->plan->output_count;
    for (int i = 0; i < count; i++) {
        run->outputs[i] = make_output(run, i);
        if (run->outputs[i]) continue;
        while (i > 0) tensor_destroy(run->outputs[--i]);
        memset(run->outputs, 0, sizeof *run->outputs * (size_t)count);
        return false;
    }
    return true;
}

/* ---- pointers ---- */

static bool shares_storage(const PlanRun *run, int input) {
    const Storage *storage = run->inputs[input]->storage;
    for (int i = 0; i < length(run->plan->input); i++)
        if (i != input && run->inputs[i]->storage == storage) return true;
    return false;
}

static void bind_mutations(const PlanRun *run) {
    const Plan *plan = run->plan;
    for (int i = plan->output_count; i < length(plan->output); i++) {
        if (!run->executable->in_place[i]) continue;
        int input = plan->output[i].mutated_input;
        if (tensor_contiguous(run->inputs[input]) && !shares_storage(run, input))
            run->base[plan->output[i].value] = tensor_data(run->inputs[input]);
    }
}

static void bind(PlanRun *run) {
    const Plan *plan = run->plan;
    const Tensor *constant;
    for (int v = 0; v < length(plan->value); v++) {
        const PlanValue *value = &plan->value[v];
        switch ((ValuePlace)value->place) {
        case VALUE_INPUT:
            run->base[v] = tensor_data(run->inputs[value->number]);
            break;
        case VALUE_OUTPUT:
            run->base[v] = tensor_data(run->outputs[value->number]);
            break;
        case VALUE_CONSTANT:
            constant = run->executable->constants.tensor[value->number];
            run->base[v] = constant ? tensor_data(constant) : NULL; /* read in packed form alone */
            break;
        case VALUE_TEMPORARY:
            run->base[v] = run->block + value->offset;
            break;
        case VALUE_RANDOM:
            run->base[v] = &run->random;
            break;
        }
    }
    bind_mutations(run);
    const int *slot_value = run->executable->slot_value;
    for (int i = 0; i < run->executable->slot_count; i++) run->slot[i] = run->base[slot_value[i]];
}

/* ---- steps ---- */

static bool run_check(const PlanRun *run, const Step *step) {
    const PlanValue *value = &run->plan->value[step->in[0]];
    const Tensor *input = NULL;
    if (value->place == VALUE_INPUT) input = run->inputs[value->number];
    if (value->place == VALUE_CONSTANT) input = run->executable->constants.tensor[value->number];
    check(value->dtype == CB_I64, "indices of %s", cb_dtype_name((cb_dtype)value->dtype));
    return check_indices(&step->check, value->numel, run->base[step->in[0]], input);
}

static bool run_step(const PlanRun *run, const Step *step) {
    const Executable *executable = run->executable;
    if (step->kind == STEP_CHECK) return run_check(run, step);
    Operands operands = {0};
    if (step->kernel >= 0) {
        operands.epilogue = &executable->launch[step->kernel];
        operands.epilogue_buffer = run->slot + executable->first_slot[step->kernel];
    }
    if (step->kind == STEP_KERNEL) return launch_run(operands.epilogue, operands.epilogue_buffer);
    for (int i = 0; i < step->in_count; i++) operands.in[i] = run->base[step->in[i]];
    operands.out = run->base[step->out];
    return work_run(&executable->work[step - run->plan->step], operands);
}

static bool run_timed(const PlanRun *run, const Step *step, _Atomic int64_t *least) {
    int64_t start = clock_ns();
    bool done = run_step(run, step);
    int64_t taken = clock_ns() - start, known = atomic_load_explicit(least, memory_order_relaxed);
    while ((known == 0 || taken < known) &&
           !atomic_compare_exchange_weak_explicit(least, &known, taken, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
    return done;
}

/* Mutated inputs take their values, unless they were computed there. */
static void write_mutations(const PlanRun *run) {
    const Plan *plan = run->plan;
    for (int i = plan->output_count; i < length(plan->output); i++) {
        const PlanOutput *output = &plan->output[i];
        const PlanValue *value = &plan->value[output->value];
        const Tensor *to = run->inputs[output->mutated_input];
        storage_written(to->storage);
        const void *from = run->base[output->value];
        const Stage *stage =
            value->place == VALUE_INPUT ? stage_of(run->executable, value->number) : NULL;
        if (stage) from = run->block + stage->offset;
        if (from == tensor_data(to)) continue;
        int64_t stride[CB_MAX_RANK];
        contiguous_strides(to->rank, to->size, stride);
        if (value->place == VALUE_INPUT && !stage)
            memcpy(stride, run->inputs[value->number]->stride, sizeof stride);
        copy_strided(tensor_data(to), to->stride, from, stride, to->rank, to->size,
                     element_bytes(value));
    }
}

static bool run_all(PlanRun *run) {
    const Executable *executable = run->executable;
    if (!make_outputs(run)) return false;
    bind(run);
    for (int i = 0; i < length(executable->stage); i++) {
        const Stage *stage = &executable->stage[i];
        copy_out(run->inputs[stage->input], run->block + stage->offset);
    }
    const Step *step = run->plan->step;
    _Atomic int64_t *timed = executable->step_ns;
    for (int i = 0, count = length(step); i < count; i++) {
        if (timed ? run_timed(run, &step[i], &timed[i]) : run_step(run, &step[i])) continue;
        if (!error_text()) fail_memory(0); /* what failed on another thread was said there */
        for (int k = 0; k < run->plan->output_count; k++) {
            tensor_destroy(run->outputs[k]);
            run->outputs[k] = NULL;
        }
        return false;
    }
    write_mutations(run);
    return true;
}

bool executable_run(const Executable *executable, Tensor *const *inputs, Tensor **outputs) {
    const Plan *plan = executable->plan;
    PlanRun run = {.executable = executable, .plan = plan, .inputs = inputs, .outputs = outputs};
    void *stack[STACK_POINTERS];
    int64_t values = length(plan->value), pointers = values + executable->slot_count;
    int64_t bytes = executable->block_bytes;
    bool on_stack = pointers <= STACK_POINTERS;
    if (!on_stack) bytes += pointers * (int64_t)sizeof(void *);
    Storage *block = NULL;
    if (bytes > 0) {
        block = storage_new((size_t)bytes);
        if (!block) return false;
        run.block = block->data;
    }
    run.base = on_stack ? stack : (void **)(void *)(run.block + executable->block_bytes);
    run.slot = run.base + values;
    if (plan->draws > 0) run.random = random_take(plan->draws);
    bool ok = run_all(&run);
    if (!ok) random_take(-plan->draws); /* as if it had not been called */
    if (block) storage_release(block);
    return ok;
}
