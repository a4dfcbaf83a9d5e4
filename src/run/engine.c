/* The kernels of a plan made runnable: generated code, or the vector VM, or first the one and then
 * the other.
 *
 * Code that is made later, on another thread, is written down as an engine of its own, which runs
 * see once it is whole: they read one pointer per step, and take no lock. The VM's programs stay
 * until the executable goes, since nobody counts the runs that are at them.
 *
 *     later = 1:   first: programs           <- engine
 *     generate:    first: programs,  second: functions  <- engine */
#include "base/clock.h"
#include "base/memory.h"
#include "run/executable.h"

static bool init_launches(Engine *engine, const Plan *plan, Arena *arena, bool oracle) {
    int kernels = length(plan->kernel);
    KernelFunction **function = engine->generated.function;
    engine->launch = arena_new_array(arena, Launch, kernels + 1);
    for (int k = 0; k < kernels; k++) {
        if (!launch_init(&engine->launch[k], plan->kernel[k], function ? function[k] : NULL,
                         oracle))
            return false;
        engine->launch[k].argument = function ? engine->generated.argument[k] : NULL;
        engine->launch[k].buffer_count += engine->launch[k].argument != NULL;
        engine->launch_count++;
    }
    return true;
}

bool engine_prepare(Executable *executable, ExecutableOptions options) {
    const Plan *plan = executable->plan;
    bool generates = options.generate && !options.oracle && length(plan->kernel);
    if (generates && !options.later)
        generate(plan, options.sizes, plan->arena, NULL, &executable->first.generated);
    if (generates && options.later) {
        atomic_init(&executable->pends, true);
        executable->pends_since = clock_ms();
    }
    return init_launches(&executable->first, plan, plan->arena, options.oracle);
}

static void release(Engine *engine) {
    for (int k = 0; k < engine->launch_count; k++) launch_free(&engine->launch[k]);
    generated_release(&engine->generated);
    memory_free(engine->generated.message);
}

static void free_later(Engine *engine) {
    if (!engine) return;
    release(engine);
    arena_free(engine->arena);
    memory_free(engine);
}

void engine_free(Executable *executable) {
    Engine *engine = atomic_load(&executable->engine);
    if (engine != &executable->first) free_later(engine);
    release(&executable->first);
}

/* Where nothing was generated, the first one's launches go on. */
static bool make_later(Engine *engine, const Executable *executable, Stop *stop) {
    engine->arena = arena_new();
    if (!engine->arena || arena_guard(engine->arena)) return false;
    generate(executable->plan, executable->sizes, engine->arena, stop, &engine->generated);
    if (!engine->generated.function)
        engine->launch = executable->first.launch;
    else if (!init_launches(engine, executable->plan, engine->arena, false))
        return false;
    arena_seal(engine->arena);
    return true;
}

bool executable_generate(Executable *executable, Stop *stop) {
    if (!atomic_load(&executable->pends)) return true; /* the parent of a forked process did */
    Engine *engine = memory_zalloc(sizeof *engine);
    bool made = engine && make_later(engine, executable, stop);
    if (made)
        atomic_store(&executable->engine, engine);
    else
        free_later(engine);
    atomic_store(&executable->pends, false);
    return made;
}
