/* The choice for one step (method.h). */
#include "method/method.h"

#include "base/option.h"
#include "method/epilogue.h"
#include "method/tune.h"
#include <string.h>

/* given: the work, but for the method and what that makes. */
static bool create(const Work *given, const Method *method, const MethodCall *call,
                   MethodRefusal *refusal, Work *out) {
    *out = *given;
    out->method = method;
    snprintf(out->text, sizeof out->text, "%s", method->name);
    return !method->create || method->create(out, call, refusal);
}

static int list_candidates(const Work *given, const Step *step, const void *weight,
                           Candidate *candidate) {
    int count = 0, number = 0;
    MethodRefusal ignored = {0}; /* nobody is asked for by name */
    for (const Method *m; (m = method_row(step->task.kind, number)); number++) {
        MethodCall call = {m->name, step, weight};
        if (!method_fits(m, &step->task)) continue;
        check(count < MOST_CANDIDATES, "more than %d methods of a kind", MOST_CANDIDATES);
        count += create(given, m, &call, &ignored, &candidate[count].work);
    }
    return count;
}

/* False: there is nothing to choose between, or no memory to measure with. */
static bool tune_step(const Plan *plan, const Step *step, const void *weight,
                      const Launch *epilogue, Work *out) {
    Candidate candidate[MOST_CANDIDATES];
    bool from_disk;
    int count = list_candidates(out, step, weight, candidate);
    int best = count > 1 ? tune(plan, step, weight, epilogue, candidate, count, &from_disk) : -1;
    for (int i = 0; i < count; i++)
        if (i != best) work_free(&candidate[i].work);
    if (best < 0) return false;
    *out = candidate[best].work;
    size_t room = sizeof out->text, used = strlen(out->text);
    snprintf(out->text + used, room - used, ", %s:", from_disk ? "measured before" : "measured");
    for (int i = 0; i < count; i++) {
        used = strlen(out->text);
        snprintf(out->text + used, room - used, "%s %s %.3f ms", i ? "," : "",
                 candidate[i].work.method->name, candidate[i].ms);
    }
    return true;
}

void method_choose(const Plan *plan, const Step *step, ConstantWeight weight,
                   const Launch *epilogue, bool measure, Work *out, MethodRefusal *refusal) {
    const Task *task = &step->task;
    bool constant = weight.number >= 0;
    Work other, given = {.task = task, .end = known_end(plan, step)};
    create(&given, method_own(task, constant), NULL, NULL, out);
    if (!method_row(task->kind, 1)) {
        *out->text = '\0'; /* there was nothing to choose */
        return;
    }
    const char *name = option_text(OPTION_provider);
    const Method *provider = method_provider(task->kind);
    bool automatic = !strcmp(name, "auto"), measures = measure && automatic;
    bool asks = measures || (provider && !automatic && strcmp(name, "own") != 0);
    const void *data = asks && constant ? weight.make(weight.owner, weight.number) : NULL;
    if (constant && !data) asks = false; /* no memory: the step that needs it fails by itself */
    if (!asks) return;
    if (measures)
        tune_step(plan, step, data, epilogue, out);
    else if (create(&given, provider, &(MethodCall){name, step, data}, refusal, &other))
        *out = other;
}
