/* One run of an executable: memory, pointers, steps, then what the run leaves in its inputs.
 *
 * On the host steps run here, one by one; on another device they are launched (enqueue.h).
 * Everything that can fail for want of memory, and every index check, comes before anything is
 * written to an input. The heap is touched for outputs, the arena block and large packings only; on
 * the host all three come from the storage cache. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/round.h"
#include "base/timeline.h"
#include "run/check_indices.h"
#include "run/custom.h"
#include "run/enqueue.h"
#include <stdatomic.h>
#include <string.h>

enum { STACK_POINTERS = 128, STACK_BYTES = 2048, APART_ALIGNMENT = 64 };

typedef struct PlanRun {
    const Executable *executable;
    const Plan *plan;
    Tensor *const *inputs;
    Tensor **outputs;
    const bool *overlaps; /* by input, of MOST_APART at the most: it lies where another one does */
    Tensor *given;        /* NULL, or what the first output's elements go into */
    Tensor *const *shell; /* NULL, or by output: see executable_run_for */
    char *block;          /* temporaries, stages, and inputs that are apart; of another device NULL:
                           * all are empty */
    int64_t apart;        /* bytes of these: kernels write to inputs that others overlap; or 0 */
    int64_t aside;        /* behind these: of what would be in place, and an input does not take; or
                           * 0 */
    void **base;          /* by plan value */
    void **slot;          /* by slot: the buffers of all kernels */
    Storage *memory;      /* that the block lies in; NULL: on the stack */
    void *heap;           /* NULL, or that base lies in */
    RunArgument *argument;
    DeviceRun *device; /* on the host nobody reads it */
} PlanRun;

static bool writes_inputs(const Plan *plan) { return length(plan->output) > plan->output_count; }

static size_t element_bytes(const PlanValue *value) { return cb_dtype_size(value->dtype); }

/* ---- outputs ---- */

static Tensor *contiguous_view(Tensor *base, const Meta *meta) {
    int64_t stride[CB_MAX_RANK];
    contiguous_strides(meta->rank, meta->size, stride);
    return tensor_view_of(base, meta, stride, base->offset);
}

static bool copy_out(const PlanRun *run, const Tensor *from, void *to) {
    int64_t stride[CB_MAX_RANK];
    contiguous_strides(from->rank, from->size, stride);
    return enqueue_copy(run->device, to, stride, tensor_data(from), from->stride, from->rank,
                        from->size, cb_dtype_size(from->dtype));
}

static Tensor *fill_shell(Tensor *shell, const Meta *meta) {
    int64_t bytes = meta_numel(meta) * (int64_t)cb_dtype_size(meta->dtype);
    shell->storage = storage_new_on(meta->device, (size_t)bytes);
    return shell->storage ? shell : NULL;
}

static void drop_output(const PlanRun *run, int number) {
    Tensor *x = run->outputs[number];
    run->outputs[number] = NULL;
    if (!run->shell || !x || run->shell[number] != x) {
        tensor_destroy(x);
        return;
    }
    storage_release(x->storage);
    x->storage = NULL;
}

/* An output is an input, what an earlier output is, or new. */
static Tensor *make_output(const PlanRun *run, int number) {
    if (run->given && number == 0) return tensor_alias(run->given);
    const PlanOutput *output = &run->plan->output[number];
    const PlanValue *value = &run->plan->value[output->value];
    if (value->place == VALUE_OUTPUT && value->number < number)
        return contiguous_view(run->outputs[value->number], &output->meta);
    if (value->place != VALUE_INPUT && run->shell && run->shell[number])
        return fill_shell(run->shell[number], &output->meta);
    if (value->place != VALUE_INPUT) return tensor_new(&output->meta);
    Tensor *input = run->inputs[value->number];
    if (!stage_of(run->executable, value->number))
        return tensor_view_of(input, &output->meta, input->stride, input->offset);
    Tensor *copy = tensor_new(&output->meta);
    return copy && copy_out(run, input, tensor_data(copy)) ? copy : NULL;
}

static bool make_outputs(const PlanRun *run) {
    int count = run->plan->output_count;
    for (int i = 0; i < count; i++) {
        run->outputs[i] = make_output(run, i);
        if (run->outputs[i]) continue;
        while (i > 0) drop_output(run, --i);
        memset(run->outputs, 0, sizeof *run->outputs * (size_t)count);
        return false;
    }
    return true;
}

/* ---- pointers ---- */

/* Which inputs lie where another one lies: kernels that write to these write elsewhere. Asked once,
 * of all of them; of more than are sorted, each that is asked for is compared with all others. */
static void find_overlaps(const PlanRun *run, bool *overlaps) {
    const Plan *plan = run->plan;
    int inputs = length(plan->input), mutations = length(plan->output) - plan->output_count;
    if (!mutations || inputs > MOST_APART) return;
    if (tensors_apart(run->inputs, inputs, mutations))
        memset(overlaps, false, sizeof *overlaps * (size_t)inputs);
    else
        tensors_mark_overlaps(run->inputs, inputs, overlaps);
}

static bool overlaps_another(const PlanRun *run, int input) {
    int inputs = length(run->plan->input);
    if (inputs <= MOST_APART) return run->overlaps[input];
    for (int i = 0; i < inputs; i++)
        if (i != input && tensors_overlap(run->inputs[i], run->inputs[input])) return true;
    return false;
}

static bool takes_in_place(const PlanRun *run, int number) {
    int input = run->plan->output[number].mutated_input;
    return run->executable->in_place[number] && tensor_contiguous(run->inputs[input]) &&
           !overlaps_another(run, input);
}

static int64_t bytes_aside(const PlanRun *run) {
    const Plan *plan = run->plan;
    for (int i = plan->output_count; i < length(plan->output); i++)
        if (plan->output[i].in_place && !takes_in_place(run, i)) return plan->aside_bytes;
    return 0;
}

static void bind_mutations(const PlanRun *run) {
    const Plan *plan = run->plan;
    char *aside = run->block + run->executable->block_bytes + run->apart;
    for (int i = plan->output_count; i < length(plan->output); i++) {
        if (!plan->output[i].in_place) continue;
        int value = plan->output[i].value;
        bool there = !run->aside || takes_in_place(run, i);
        run->base[value] = there ? tensor_data(run->inputs[plan->output[i].mutated_input])
                                 : aside + plan->value[value].offset;
    }
}

static int64_t apart_bytes(const Tensor *x) {
    return round_up((int64_t)tensor_span_bytes(x), APART_ALIGNMENT);
}

/* Where an input that kernels write to overlaps another one, they find copies of all such. */
static int64_t bytes_apart(const PlanRun *run) {
    const Plan *plan = run->plan;
    int64_t bytes = 0;
    bool overlaps = false;
    for (int i = plan->output_count; i < length(plan->output) && run->executable->direct; i++) {
        if (!plan->output[i].direct) continue;
        overlaps |= overlaps_another(run, plan->output[i].mutated_input);
        bytes += apart_bytes(run->inputs[plan->output[i].mutated_input]);
    }
    return overlaps ? bytes : 0;
}

static void bind_apart(const PlanRun *run) {
    const Plan *plan = run->plan;
    char *at = run->block + run->executable->block_bytes;
    for (int i = plan->output_count; i < length(plan->output) && run->apart; i++) {
        const PlanOutput *output = &plan->output[i];
        const Tensor *x = run->inputs[output->mutated_input];
        if (!output->direct) continue;
        run->base[output->value] = memcpy(at, tensor_data(x), tensor_span_bytes(x));
        at += apart_bytes(x);
    }
}

/* A tensor of the host is a number, for kernels of another device. */
static __attribute__((noinline, cold)) void *number_of(const PlanRun *run, const Tensor *x) {
    check(x->rank == 0, "an input of the host has %d dimensions", x->rank);
    Scalar *number = &run->argument->number[run->argument->count++];
    memcpy(number, tensor_data(x), cb_dtype_size(x->dtype));
    return number;
}

/* Where kernels find x. */
static inline void *place_of(const PlanRun *run, const Tensor *x) {
    return x->device == run->executable->device ? tensor_data(x) : number_of(run, x);
}

static void bind(const PlanRun *run) {
    const Plan *plan = run->plan;
    const Tensor *constant;
    for (int v = 0; v < length(plan->value); v++) {
        const PlanValue *value = &plan->value[v];
        switch (value->place) {
        case VALUE_INPUT:
            run->base[v] = place_of(run, run->inputs[value->number]);
            break;
        case VALUE_OUTPUT:
            run->base[v] = tensor_data(run->outputs[value->number]);
            break;
        case VALUE_CONSTANT:
            constant = run->executable->constants.at[value->number].tensor;
            run->base[v] =
                constant ? place_of(run, constant) : NULL; /* read in packed form alone */
            break;
        case VALUE_TEMPORARY:
            run->base[v] = run->block + value->offset;
            break;
        case VALUE_RANDOM:
            run->base[v] = &run->argument->random;
            break;
        }
    }
    if (writes_inputs(run->plan)) {
        bind_mutations(run);
        bind_apart(run);
    }
    const int *slot_value = run->executable->slot_value;
    for (int i = 0; i < run->executable->slot_count; i++) run->slot[i] = run->base[slot_value[i]];
}

/* A number is on the host, whatever the device (place_of). */
static int64_t shift_of(const PlanRun *run, Shift shift) {
    if (shift.input == NO_INPUT) return 0;
    const int64_t *given = tensor_data(run->inputs[shift.input]);
    return *given < 0 ? 0 : *given > shift.most ? shift.most : *given;
}

/* ---- steps ---- */

static bool run_check(const PlanRun *run, const Step *step) {
    const PlanValue *value = &run->plan->value[step->in[0]];
    const Tensor *input = NULL;
    const void *data = run->base[step->in[0]];
    if (value->place == VALUE_INPUT) input = run->inputs[value->number];
    if (value->place == VALUE_CONSTANT) input = run->executable->constants.at[value->number].tensor;
    check(value->dtype == CB_I64, "indices of %s", cb_dtype_name(value->dtype));
    if (device_is_host(run->executable->device))
        return check_indices(&step->check, value->numel, data, input);
    return enqueue_check(run->device, (int)(step - run->plan->step), value->numel, data, input);
}

/* A kernel, with what that reads and writes; -1: nothing. */
static Operands kernel_operands(const PlanRun *run, int kernel) {
    const Executable *executable = run->executable;
    if (kernel < 0) return (Operands){.epilogue = NULL};
    const Launch *launch = executable_launch(executable, kernel);
    void **buffer = run->slot + executable->first_slot[kernel];
    if (launch->argument) buffer[launch->buffer_count - 1] = launch->argument;
    return (Operands){.epilogue = launch, .epilogue_buffer = buffer};
}

static bool run_list(const PlanRun *run, const Step *step) {
    int count = length(step->list);
    ListPart part[count];
    for (int i = 0; i < count; i++) {
        Operands operands = kernel_operands(run, step->list[i]);
        part[i] = (ListPart){.launch = operands.epilogue, .buffer = operands.epilogue_buffer};
    }
    return list_run(part, count);
}

static bool run_kernels(const PlanRun *run, const Step *step) {
    bool host = device_is_host(run->executable->device);
    if (host && step->list) return run_list(run, step);
    for (int i = 0; i < step_kernels(step); i++) {
        Operands operands = kernel_operands(run, step_kernel(step, i));
        int number = (int)(step - run->plan->step);
        if (!(host ? launch_run(operands.epilogue, operands.epilogue_buffer)
                   : enqueue_step(run->device, number, &operands)))
            return false;
    }
    return true;
}

/* Operand i of a task, where it begins in this call. */
static char *task_operand(const PlanRun *run, const Step *step, int i) {
    char *base = run->base[step->in[i]];
    if (!step->shift) return base;
    int64_t element = (int64_t)element_bytes(&run->plan->value[step->in[i]]);
    return base + shift_of(run, step->shift[i]) * step->shift[i].element * element;
}

static bool run_task(const PlanRun *run, const Step *step) {
    int number = (int)(step - run->plan->step);
    const Work *work = &run->executable->work[number];
    Operands operands = kernel_operands(run, step->kernel);
    for (int i = 0; i < step->in_count; i++) operands.in[i] = task_operand(run, step, i);
    operands.out = run->base[step->out];
    operands.packed = work_packed(work);
    if (device_is_host(run->executable->device)) return work_run(work, operands);
    return enqueue_step(run->device, number, &operands);
}

/* A value as it lies in memory: for a tensor of the call, its strides count. */
static CustomOperand custom_operand(const PlanRun *run, int number) {
    const PlanValue *value = &run->plan->value[number];
    CustomOperand operand = {.data = run->base[number]};
    if (value->place == VALUE_INPUT) operand.tensor = run->inputs[value->number];
    if (value->place == VALUE_CONSTANT)
        operand.tensor = run->executable->constants.at[value->number].tensor;
    return operand;
}

static bool run_own(const PlanRun *run, const Step *step) {
    CustomOperand operand[OP_MAX_INPUTS];
    for (int i = 0; i < step->in_count; i++) operand[i] = custom_operand(run, step->in[i]);
    return run_custom(step->custom, operand, run->base[step->out], &run->argument->random);
}

/* Where a part begins of what lies at `whole`. */
static char *region_place(const PlanRun *run, const Region *region, void *whole, size_t width) {
    int64_t offset = region->offset;
    for (int i = 0; i < region->shift_count; i++)
        offset += shift_of(run, region->shift[i]) * region->shift[i].element;
    return (char *)whole + offset * (int64_t)width;
}

static bool run_write(const PlanRun *run, const Step *step) {
    for (int i = 0; i < length(step->part); i++) {
        const Region *region = &step->part[i].region;
        const PlanValue *value = &run->plan->value[step->part[i].value];
        int64_t own[CB_MAX_RANK], *stride = own;
        contiguous_strides(region->rank, region->size, own);
        if (value->place == VALUE_INPUT) stride = run->inputs[value->number]->stride;
        char *to = region_place(run, region, run->base[step->out], element_bytes(value));
        if (!enqueue_copy(run->device, to, region->stride, run->base[step->part[i].value], stride,
                          region->rank, region->size, element_bytes(value)))
            return false;
    }
    return true;
}

static bool run_step(const PlanRun *run, const Step *step) {
    switch (step->kind) {
    case STEP_CUSTOM:
        return run_own(run, step);
    case STEP_KERNEL:
        return run_kernels(run, step);
    case STEP_TASK:
        return run_task(run, step);
    case STEP_CHECK:
        return run_check(run, step);
    case STEP_WRITE:
        return run_write(run, step);
    }
    check(false, "step of kind %d", (int)step->kind);
}

static void note_time(_Atomic int64_t *least, int64_t taken) {
    int64_t known = atomic_load_explicit(least, memory_order_relaxed);
    while ((known == 0 || taken < known) &&
           !atomic_compare_exchange_weak_explicit(least, &known, taken, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* By the device's clock; what is timed is waited for. */
static bool run_timed(const PlanRun *run, const Step *step, _Atomic int64_t *least) {
    const Device *device = devices[run->executable->device];
    const DeviceFault *fault = run->device->fault;
    _Atomic int64_t start = 0, end = 0;
    bool done = enqueue_launch(run->device) && device->record(&(DeviceEvent){.ns = &start}) &&
                run_step(run, step) && enqueue_launch(run->device) &&
                device->record(&(DeviceEvent){.ns = &end});
    device->drain();
    if (!done || (fault && fault->status != CB_OK)) return done;
    const char *kernel = step->kernel < 0 ? NULL : run->plan->kernel[step->kernel]->name;
    bool task = step->kind != STEP_KERNEL || !kernel;
    timeline_add(task ? "task" : "kernel", task ? step->origin : kernel, start, end);
    note_time(least, end - start);
    return true;
}

typedef struct Destination {
    char *at;
    int rank;
    const int64_t *size, *stride; /* in elements */
} Destination;

static Destination destination_of(const PlanRun *run, const Tensor *to, const Region *region) {
    if (!region) return (Destination){tensor_data(to), to->rank, to->size, to->stride};
    char *at = region_place(run, region, tensor_data(to), cb_dtype_size(to->dtype));
    return (Destination){at, region->rank, region->size, region->stride};
}

/* Where the value that a part takes is, with its strides: in an input that is apart it lies as in
 * the input itself. */
static const void *taken_from(const PlanRun *run, const PlanOutput *output, const Destination *part,
                              int64_t *stride) {
    const PlanValue *value = &run->plan->value[output->value];
    const Tensor *to = run->inputs[output->mutated_input];
    char *from = run->base[output->value];
    contiguous_strides(part->rank, part->size, stride);
    if (output->direct) {
        memcpy(stride, part->stride, sizeof *stride * (size_t)part->rank);
        return from + (part->at - (char *)tensor_data(to));
    }
    if (value->place != VALUE_INPUT) return from;
    const Stage *stage = stage_of(run->executable, value->number);
    if (stage) return run->block + stage->offset;
    memcpy(stride, run->inputs[value->number]->stride, sizeof *stride * CB_MAX_RANK);
    return from;
}

/* Mutated inputs take their values, unless they were computed there. */
static bool write_mutations(const PlanRun *run) {
    const Plan *plan = run->plan;
    for (int i = plan->output_count; i < length(plan->output); i++) {
        const PlanOutput *output = &plan->output[i];
        const Tensor *to = run->inputs[output->mutated_input];
        storage_written(to->storage);
        int64_t stride[CB_MAX_RANK];
        Destination part = destination_of(run, to, output->region);
        const void *from = taken_from(run, output, &part, stride);
        if (from == part.at) continue;
        if (!enqueue_copy(run->device, part.at, part.stride, from, stride, part.rank, part.size,
                          element_bytes(&plan->value[output->value])))
            return false;
    }
    return true;
}

static bool launch_all(const PlanRun *run) {
    int device = run->executable->device;
    if (!enqueue_launch(run->device)) return false;
    if (!run->device->fault) return true;
    devices[device]->drain();
    return device_tell(device, run->device->fault) == CB_OK;
}

static bool run_steps(const PlanRun *run) {
    const Executable *executable = run->executable;
    for (int i = 0; i < length(executable->stage); i++) {
        const Stage *stage = &executable->stage[i];
        if (!copy_out(run, run->inputs[stage->input], run->block + stage->offset)) return false;
    }
    const Step *step = run->plan->step;
    _Atomic int64_t *timed = executable->step_ns;
    for (int i = 0, count = length(step); i < count; i++)
        if (!(timed ? run_timed(run, &step[i], &timed[i]) : run_step(run, &step[i]))) return false;
    bool writes = writes_inputs(run->plan);
    if (!device_is_host(executable->device))
        return (!writes || write_mutations(run)) && launch_all(run);
    int64_t start = timed ? clock_ns() : 0;
    bool written = !writes || write_mutations(run);
    if (timed) note_time(&timed[length(step)], clock_ns() - start);
    return written;
}

static bool run_all(const PlanRun *run) {
    if (!make_outputs(run)) return false;
    bind(run);
    if (run_steps(run)) return true;
    if (!error_text()) fail_memory(0); /* what failed on another thread was said there */
    for (int k = 0; k < run->plan->output_count; k++) drop_output(run, k);
    return false;
}

/* ---- memory -------------------------------------------------------------------------------- */

static bool take_block(PlanRun *run, int64_t bytes) {
    if (bytes == 0) return true;
    run->memory = storage_new_on(run->executable->device, (size_t)bytes);
    if (run->memory) run->block = run->memory->data;
    return run->memory;
}

typedef struct StackRoom {
    _Alignas(64) char block[STACK_BYTES];
    void *pointer[STACK_POINTERS];
} StackRoom;

/* Pointers that the stack has no room for lie behind the block. */
static bool take_on_host(PlanRun *run, StackRoom *room, int64_t pointers) {
    int64_t bytes = run->executable->block_bytes + run->apart + run->aside;
    bool fits = pointers <= STACK_POINTERS;
    if (fits && bytes <= STACK_BYTES)
        run->block = room->block;
    else if (!take_block(run, fits ? bytes : bytes + pointers * (int64_t)sizeof(void *)))
        return false;
    run->base = fits ? room->pointer : (void **)(void *)(run->block + bytes);
    return true;
}

/* Pointers and argument are on the heap until all is launched, and so is the fault of a run that is
 * waited for. Where a step may follow one that fails, the block has the word `failed` behind what
 * the host's has. */
static __attribute__((noinline)) bool take_on_device(PlanRun *run, int64_t pointers) {
    const Executable *executable = run->executable;
    bool waits = option_int(OPTION_blocking) || executable->step_ns;
    size_t bytes = sizeof(void *) * (size_t)pointers + sizeof(RunArgument) +
                   sizeof(Scalar) * (size_t)length(run->plan->value);
    run->base = run->heap = memory_zalloc(bytes + (waits ? sizeof(DeviceFault) : 0));
    if (!run->heap) {
        fail_memory(bytes);
        return false;
    }
    run->argument = (RunArgument *)(void *)(run->base + pointers);
    run->device->argument = run->argument;
    if (waits) run->device->fault = (DeviceFault *)(void *)((char *)run->heap + bytes);
    int64_t block = executable->block_bytes + run->aside;
    if (length(run->plan->step) < 2) return take_block(run, block);
    if (!take_block(run, block + (int64_t)sizeof(int64_t))) return false;
    run->device->failed = run->block + block;
    return devices[executable->device]->fill(run->device->failed, 0, sizeof(int64_t));
}

static bool run(const Executable *executable, Tensor *const *inputs, Tensor **outputs,
                Tensor *given, Tensor *const *shell) {
    const Plan *plan = executable->plan;
    StackRoom room;
    RunArgument argument;
    bool overlaps[MOST_APART];
    DeviceRun device = {.executable = executable};
    PlanRun run = {.executable = executable,
                   .plan = plan,
                   .inputs = inputs,
                   .overlaps = overlaps,
                   .outputs = outputs,
                   .given = given,
                   .shell = shell,
                   .argument = &argument,
                   .device = &device};
    int64_t values = length(plan->value), pointers = values + executable->slot_count;
    bool host = device_is_host(executable->device);
    if (writes_inputs(plan)) {
        find_overlaps(&run, overlaps);
        run.apart = bytes_apart(&run);
        run.aside = bytes_aside(&run);
    }
    bool ok = host ? take_on_host(&run, &room, pointers) : take_on_device(&run, pointers);
    if (ok) {
        run.slot = run.base + values;
        if (plan->draws > 0) run.argument->random = random_take(plan->draws);
        ok = run_all(&run);
        if (!ok) random_return(run.argument->random, plan->draws);
    }
    if (!host) enqueue_drop(&device);
    if (device.fault) devices[executable->device]->drain(); /* for what was launched and has it */
    if (run.memory) storage_release(run.memory);
    if (run.heap) memory_free(run.heap);
    return ok;
}

bool executable_run(const Executable *executable, Tensor *const *inputs, Tensor **outputs) {
    return executable_run_for(executable, inputs, outputs, NULL);
}

bool executable_run_for(const Executable *executable, Tensor *const *inputs, Tensor **outputs,
                        Tensor *const *shell) {
    if (!executable_enter(executable)) return false;
    bool done = run(executable, inputs, outputs, NULL, shell);
    executable_leave(executable);
    return done;
}

bool executable_run_into(const Executable *executable, Tensor *const *inputs, Tensor *given) {
    if (!executable_enter(executable)) return false;
    Tensor *output = NULL;
    bool done = run(executable, inputs, &output, given, NULL);
    tensor_destroy(output);
    executable_leave(executable);
    return done;
}
