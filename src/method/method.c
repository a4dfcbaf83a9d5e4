/* The choice for one step (method.h). */
#include "method/method.h"

#include "base/option.h"
#include "cpu/gemm.h"
#include "method/plugin.h"
#include "method/tune.h"
#include <string.h>

/* ---- candidates --------------------------------------------------------------------------- */

static void refuse(MethodRefusal *refusal, Reason reason, const char *detail) {
    if (refusal->reason != REASON_NONE) return;
    refusal->reason = reason;
    snprintf(refusal->detail, sizeof refusal->detail, "%s", detail);
}

static Provided *provide(const char *name, const Plan *plan, const Step *step, const void *weight,
                         MethodRefusal *refusal) {
    StepTask task;
    char why[128], text[256];
    const Task *own = &step->task;
    bool packs = weight && (own->kind != TASK_MATMUL || gemm_copies(&own->matmul));
    if (!task_of(plan, step, packs, &task)) {
        refuse(refusal, REASON_provider_refused, "only f32 and bf16 steps are offered");
        return NULL;
    }
    const Plugin *plugin = plugin_find(name);
    if (!plugin->provider) {
        refuse(refusal, plugin->reason, plugin->detail);
        return NULL;
    }
    Provided *provided = provided_new(plugin->provider, &task, own, weight, why, sizeof why);
    if (!provided) {
        snprintf(text, sizeof text, "%s %s: %s", plugin->provider->name, plugin->provider->version,
                 why);
        refuse(refusal, REASON_provider_refused, text);
    }
    return provided;
}

static void describe_provided(const char *name, const Provided *provided, bool epilogue, char *out,
                              size_t bytes) {
    const char *fused = !epilogue ? "" : provided_fuses(provided) ? ", fused" : ", epilogue after";
    snprintf(out, bytes, "%s (%s%s)", name, provided_method(provided), fused);
}

static int list_candidates(const Plan *plan, const Step *step, const void *weight,
                           Candidate *candidate) {
    int count = 0, number = 0;
    MethodRefusal ignored = {0}; /* no provider is asked for by name */
    for (const Method *m; (m = method_row(step->task.kind, number)); number++) {
        if (!method_fits(m, &step->task)) continue;
        Candidate c = {.method = m};
        if (m->provider) c.provided = provide(m->name, plan, step, weight, &ignored);
        if (m->provider && !c.provided) continue;
        check(count < MOST_CANDIDATES, "more than %d methods of a kind", MOST_CANDIDATES);
        candidate[count++] = c;
    }
    return count;
}

/* False: there is nothing to choose between, or no memory to measure with. */
static bool tune_step(const Plan *plan, const Step *step, const void *weight,
                      const Launch *epilogue, Work *out) {
    Candidate candidate[MOST_CANDIDATES];
    bool from_disk;
    int count = list_candidates(plan, step, weight, candidate);
    int best =
        count > 1 ? tune(plan, step, weight, epilogue, out, candidate, count, &from_disk) : -1;
    for (int i = 0; i < count; i++)
        if (i != best) provided_free(candidate[i].provided);
    if (best < 0) return false;
    out->provided = candidate[best].provided;
    const Method *method = candidate[best].method;
    size_t room = sizeof out->text, used;
    if (out->provided) {
        describe_provided(method->name, out->provided, epilogue != NULL, out->text, room);
    } else {
        out->method = method;
        snprintf(out->text, room, "%s", method->name);
    }
    used = strlen(out->text);
    snprintf(out->text + used, room - used, ", %s:", from_disk ? "measured before" : "measured");
    for (int i = 0; i < count; i++) {
        used = strlen(out->text);
        snprintf(out->text + used, room - used, "%s %s %.3f ms", i ? "," : "",
                 candidate[i].method->name, candidate[i].ms);
    }
    return true;
}

/* ---- entry -------------------------------------------------------------------------------- */

/* What a convolution's epilogue amounts to, for the methods of our own that can do it on the
 * way. */
static KnownEnd find_end(const Plan *plan, const Step *step) {
    StepTask task;
    if (step->kernel < 0 || !task_of(plan, step, false, &task)) return (KnownEnd){0};
    return (KnownEnd){.fused = task.fused,
                      .relu = task.task.relu,
                      .bias_dtype = (int8_t)task.task.bias_dtype,
                      .scale = task.scale,
                      .bias = task.bias,
                      .residual = task.residual};
}

void method_choose(const Plan *plan, const Step *step, ConstantWeight weight,
                   const Launch *epilogue, bool measure, Work *out, MethodRefusal *refusal) {
    const Task *task = &step->task;
    bool constant = weight.number >= 0;
    *out = (Work){.task = task, .method = method_own(task, constant)};
    if (!out->method->pack) return; /* nobody else computes such tasks */
    if (task->kind == TASK_CONVOLUTION) out->end = find_end(plan, step);
    const char *name = option_text(OPTION_provider);
    bool automatic = !strcmp(name, "auto"), measures = measure && automatic;
    bool asks = measures || (!automatic && strcmp(name, "own") != 0);
    const void *data = asks && constant ? weight.make(weight.owner, weight.number) : NULL;
    if (constant && !data) asks = false; /* no memory: the step that needs it fails by itself */
    if (asks && measures && tune_step(plan, step, data, epilogue, out)) return;
    if (asks && !measures) out->provided = provide(name, plan, step, data, refusal);
    if (out->provided)
        describe_provided(name, out->provided, epilogue != NULL, out->text, sizeof out->text);
    else
        snprintf(out->text, sizeof out->text, "%s", out->method->name);
}
