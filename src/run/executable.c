/* Plan -> executable: kernels made runnable, buffers resolved to plan values, weights packed. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/round.h"
#include "base/timeline.h"
#include "run/enqueue.h"

enum { BLOCK_ALIGNMENT = 64 };

/* ---- stages ---- */

const Stage *stage_of(const Executable *executable, int input) {
    for (int i = 0; i < length(executable->stage); i++)
        if (executable->stage[i].input == input) return &executable->stage[i];
    return NULL;
}

static bool is_mutated(const Plan *plan, int input) {
    for (int i = plan->output_count; i < length(plan->output); i++)
        if (plan->output[i].mutated_input == input) return true;
    return false;
}

/* Inputs that an output is, or that another input becomes, while they are written themselves. */
static void find_stages(Executable *executable) {
    const Plan *plan = executable->plan;
    executable->block_bytes = round_up(plan->arena_bytes, BLOCK_ALIGNMENT);
    for (int i = 0; i < length(plan->output); i++) {
        const PlanValue *value = &plan->value[plan->output[i].value];
        if (value->place != VALUE_INPUT || stage_of(executable, value->number)) continue;
        if (plan->output[i].direct) continue;
        if (!is_mutated(plan, value->number)) continue;
        Stage stage = {value->number, executable->block_bytes};
        push(plan->arena, executable->stage, stage);
        int64_t bytes = value->numel * (int64_t)cb_dtype_size(value->dtype);
        executable->block_bytes += round_up(bytes, BLOCK_ALIGNMENT);
    }
}

/* A device's launches fail together, before any of them is made; but timed steps run one by one,
 * and one may fail behind another that has run. */
static void judge_mutations(Executable *executable) {
    const Plan *plan = executable->plan;
    bool at_once = device_is_host(executable->device) || !executable->step_ns;
    executable->in_place = arena_new_array(plan->arena, bool, length(plan->output) + 1);
    for (int i = plan->output_count; i < length(plan->output); i++) {
        executable->direct |= plan->output[i].direct;
        executable->in_place[i] = at_once && plan->output[i].in_place;
    }
}

/* ---- methods and packed constants ---- */

/* The weight of a task, when it never changes; else -1. */
static int constant_weight(const Plan *plan, const Step *step) {
    if (!method_row(step->task.kind, 0)->pack) return -1; /* no operand is a weight */
    int value = step->in[TASK_WEIGHT];
    return plan->value[value].place == VALUE_CONSTANT ? value : -1;
}

typedef struct WeightPacking { /* of a constant, for a step */
    const Executable *executable;
    Constants *constants;
    int number;
    cb_dtype dtype;
    Work work; /* another one than the step's */
} WeightPacking;

/* The weight as our own engine wants it, a storage. A constant that is another tensor in another
 * dtype need not be made for it. */
static void *pack(void *user) {
    WeightPacking *p = user;
    int device = p->executable->device;
    const Tensor *source = constant_source(p->constants, p->number);
    bool converts = source && work_packs_from(&p->work, source->dtype);
    const void *data = converts ? tensor_data(source) : constant_data(p->constants, p->number);
    if (!data) return NULL;
    cb_dtype dtype = converts ? source->dtype : p->dtype;
    bool packed = device_is_host(device) ? work_pack(&p->work, data, dtype)
                                         : enqueue_pack(device, &p->work, data, dtype);
    if (packed) return p->work.packed;
    work_free(&p->work);
    return NULL;
}

static void drop_packed(void *storage) { storage_release(storage); }

/* All that the packed weight follows from. */
static DerivedKey packing_key(const WeightPacking *p, const Buffer *layout) {
    Buffer key = buffer_new(p->executable->plan->arena);
    put_bytes(&key, (const char *)&p->constants->at[p->number].digest, sizeof(ConstantDigest));
    putf(&key, "on %d %s", p->executable->device, buffer_text(layout));
    return (DerivedKey){key.text, key.length};
}

/* Remembers that the executable uses it. */
static void hold(Executable *executable, Derived *packed) {
    for (int i = 0; i < length(executable->packed); i++)
        if (executable->packed[i] == packed) {
            derived_give(packed);
            return;
        }
    push(executable->plan->arena, executable->packed, packed);
}

/* The step's weight, packed by it or for any other one before. false: memory ran out. */
static bool take_packed(Executable *executable, Work *work, int number, cb_dtype dtype) {
    static const DerivedWay way = {pack, drop_packed};
    Arena *arena = executable->plan->arena;
    Buffer layout = buffer_new(arena);
    if (!work_layout(work, &layout)) return true;
    WeightPacking packing = {executable, &executable->constants, number, dtype, *work};
    DerivedKey key = packing_key(&packing, &layout);
    executable->packed = vec_grow(arena, executable->packed, 1, sizeof *executable->packed);
    Derived *packed = derived_take(&key, &way, &packing);
    if (!packed) return false;
    hold(executable, packed);
    work->packed = storage_retain(derived_value(packed));
    work->packs = true;
    return true;
}

/* By value: how many places of the plan read it. */
static int *count_readers(const Plan *plan) {
    int *readers = arena_new_array(plan->arena, int, length(plan->value) + 1);
    for (int s = 0; s < length(plan->step); s++) {
        const Step *step = &plan->step[s];
        for (int i = 0; i < step->in_count; i++) readers[step->in[i]]++;
        for (int i = 0; i < length(step->part); i++) readers[step->part[i].value]++;
        for (int k = 0; k < step_kernels(step); k++) {
            const KernelBuffer *buffer = plan->kernel[step_kernel(step, k)]->buffer;
            for (int i = 0; i < length(buffer); i++) readers[buffer[i].value]++;
        }
    }
    for (int i = 0; i < length(plan->output); i++) readers[plan->output[i].value]++;
    return readers;
}

static const void *make_constant(void *constants, int number) {
    return constant_data(constants, number);
}

/* Who computes the step, and its weight as that method wants it. */
static bool prepare_task(Executable *executable, ExecutableOptions options, int s, int *readers) {
    const Plan *plan = executable->plan;
    const Step *step = &plan->step[s];
    Work *work = &executable->work[s];
    int weight = constant_weight(plan, step);
    int number = weight < 0 ? -1 : plan->value[weight].number;
    Constants *constants = &executable->constants;
    if (!options.choose || !device_is_host(plan->device)) /* others call with host pointers */
        *work = (Work){.task = &step->task, .method = method_own(&step->task, number >= 0)};
    else
        method_choose(plan, step, (ConstantWeight){make_constant, constants, number},
                      step->kernel < 0 ? NULL : &executable->first.launch[step->kernel],
                      options.tune, work, &executable->refusal);
    if (number < 0) return true;
    if (!take_packed(executable, work, number, plan->value[weight].dtype)) return false;
    if (work->packs && --readers[weight] == 0) constant_drop(constants, number);
    return true;
}

/* Constants that nobody reads but in packed form are let go. */
static bool prepare_tasks(Executable *executable, ExecutableOptions options) {
    const Plan *plan = executable->plan;
    int *readers = count_readers(plan);
    executable->work = arena_new_array(plan->arena, Work, length(plan->step) + 1);
    executable->work_count = length(plan->step);
    for (int s = 0; s < executable->work_count; s++)
        if (plan->step[s].kind == STEP_TASK && !prepare_task(executable, options, s, readers))
            return false;
    for (int v = 0; v < length(plan->value); v++) {
        if (plan->value[v].place != VALUE_CONSTANT) continue;
        if (!readers[v])
            constant_drop(&executable->constants, plan->value[v].number);
        else if (!constant_make(&executable->constants, plan->value[v].number))
            return false;
    }
    return true;
}

/* ---- what is shared ---- */

bool executable_enter(const Executable *executable) {
    SharedUse *use = executable->use;
    if (!use) return true;
    atomic_fetch_add(&use->readers, 1);
    if (!atomic_load(&use->retired)) return true;
    executable_leave(executable);
    return false;
}

void executable_leave(const Executable *executable) {
    if (executable->use) atomic_fetch_sub(&executable->use->readers, 1);
}

static void give_shared(Executable *executable) {
    devices[executable->device]->drain(); /* for what was launched and reads all this */
    for (int s = 0; s < executable->work_count; s++) work_free(&executable->work[s]);
    for (int i = 0; i < length(executable->packed); i++) derived_give(executable->packed[i]);
    constants_free(&executable->constants);
    executable->work_count = 0;
    executable->packed = NULL;
}

/* Whoever enters before `retired` is seen here, and whoever enters behind it leaves again. */
void executable_retire(Executable *executable) {
    if (!executable || !executable->use) return;
    atomic_store(&executable->use->retired, true);
    if (!atomic_load(&executable->use->readers)) give_shared(executable);
}

int executable_packed(const Executable *executable, int64_t *bytes) {
    int most = 0;
    *bytes = 0;
    if (!executable_enter(executable)) return 0;
    for (int i = 0; i < length(executable->packed); i++) {
        const Storage *storage = derived_value(executable->packed[i]);
        int users = derived_users(executable->packed[i]);
        *bytes += (int64_t)storage->bytes;
        if (users > most) most = users;
    }
    executable_leave(executable);
    return most;
}

/* ---- entry ---- */

static void resolve_buffers(Executable *executable) {
    const Plan *plan = executable->plan;
    int kernels = length(plan->kernel), count = 0;
    for (int k = 0; k < kernels; k++) count += length(plan->kernel[k]->buffer) + 1;
    executable->first_slot = arena_new_array(plan->arena, int, kernels + 1);
    executable->slot_value = arena_new_array(plan->arena, int, count + 1);
    for (int k = 0; k < kernels; k++) {
        executable->first_slot[k] = executable->slot_count;
        const KernelBuffer *buffer = plan->kernel[k]->buffer;
        for (int i = 0; i < length(buffer); i++)
            executable->slot_value[executable->slot_count++] = buffer[i].value;
        if (executable->sizes.vary || kernels >= SHARING_KERNELS)
            executable->slot_count++; /* for the launch's argument */
    }
}

/* Whoever wants to be told at exit wants to know the times, too. */
bool explain_wants_times(void) {
    const char *explain = option_name(OPTION_explain);
    return option_int(OPTION_profile) || !explain || *explain;
}

static bool prepare(Executable *executable, ExecutableOptions options) {
    const Plan *plan = executable->plan;
    if (!engine_prepare(executable, options)) return false;
    resolve_buffers(executable);
    if (explain_wants_times() || timeline_on())
        executable->step_ns = arena_new_array(plan->arena, _Atomic int64_t, length(plan->step) + 1);
    find_stages(executable);
    judge_mutations(executable);
    if (executable->constants.count) executable->use = arena_new_array(plan->arena, SharedUse, 1);
    return prepare_tasks(executable, options);
}

static Executable *give_up(Executable *executable) {
    executable_free(executable);
    fail_memory(0);
    return NULL;
}

Executable *executable_new(const Plan *plan, ExecutableOptions options) {
    Executable *executable = memory_zalloc(sizeof *executable);
    if (!executable) {
        arena_free(plan->arena);
        constants_free(&options.constants);
        fail_memory(sizeof *executable);
        return NULL;
    }
    executable->plan = plan;
    executable->device = plan->device;
    atomic_init(&executable->engine, &executable->first);
    executable->constants = options.constants;
    executable->sizes = options.sizes;
    if (arena_guard(plan->arena)) return give_up(executable);
    if (!prepare(executable, options)) return give_up(executable);
    arena_seal(plan->arena);
    return executable;
}

void executable_free(Executable *executable) {
    if (!executable) return;
    devices[executable->device]->drain(); /* for what was launched and reads all this */
    engine_free(executable);
    give_shared(executable);
    arena_free(executable->plan->arena);
    memory_free(executable);
}

size_t executable_bytes(const Executable *executable) {
    size_t bytes = sizeof *executable + arena_bytes(executable->plan->arena);
    for (int k = 0; k < executable->first.launch_count; k++)
        bytes += launch_bytes(&executable->first.launch[k]);
    return bytes;
}

const Plan *executable_plan(const Executable *executable) { return executable->plan; }

ExecutableInfo executable_info(const Executable *executable) {
    const Generated *generated = &atomic_load(&executable->engine)->generated;
    bool pends = atomic_load(&executable->pends);
    return (ExecutableInfo){.reason = generated->reason,
                            .message = generated->message,
                            .cache = generated->cache,
                            .source = generated->source,
                            .functions = generated->functions,
                            .files = generated->files,
                            .file_bytes = generated->file_bytes,
                            .origin = generated->origin,
                            .pending_ms = pends ? clock_ms() - executable->pends_since : -1,
                            .source_ms = generated->source_ms,
                            .compiler_ms = generated->compiler_ms,
                            .work = executable->work,
                            .refusal = executable->refusal};
}

int executable_copies(const Executable *executable, int64_t *bytes) {
    const Plan *plan = executable->plan;
    int copies = 0;
    *bytes = 0;
    for (int i = plan->output_count; i < length(plan->output); i++) {
        if (plan->output[i].direct || executable->in_place[i]) continue;
        const PlanValue *value = &plan->value[plan->output[i].value];
        *bytes += 2 * value->numel * (int64_t)cb_dtype_size(value->dtype);
        copies++;
    }
    return copies;
}

/* What an input takes from memory of the plan's own is copied where it cannot be computed in place,
 * which the plan does not know of. */
int64_t executable_moves(const Executable *executable) {
    const Plan *plan = executable->plan;
    int64_t bytes = plan->bytes;
    for (int i = plan->output_count; i < length(plan->output); i++) {
        const PlanValue *value = &plan->value[plan->output[i].value];
        bool known =
            plan->output[i].direct || plan->output[i].region || value->place == VALUE_INPUT;
        if (known || executable->in_place[i]) continue;
        bytes += 2 * value->numel * (int64_t)cb_dtype_size(value->dtype);
    }
    return bytes;
}

double executable_step_ms(const Executable *executable, int step) {
    if (!executable->step_ns) return -1;
    return (double)atomic_load_explicit(&executable->step_ns[step], memory_order_relaxed) * 1e-6;
}
