/* The choice for one step (method.h), and the recorded model that it follows without measuring. */
#include "method/method.h"

#include "base/cpu.h"
#include "base/option.h"
#include "cpu/gemm_internal.h"
#include "method/plugin.h"
#include "method/tune.h"
#include <math.h>
#include <string.h>

/* ---- the recorded model ------------------------------------------------------------------- */

/* Steps that oneDNN computes faster than our engine, as measured on 2026-11-21 with oneDNN 2.6.3 on
 * an AMD Zen 5 with AVX-512 and 2 threads. Single steps by the tuner, constant weights, fused
 * epilogues: products of 1 to 4096 rows, convolutions of 8 to 384 channels; below these sizes its
 * calls cost more than its code wins. Whole networks, ms of provider=own and of provider=onednn:
 *
 *                      f32            bf16
 *     AlexNet   B32    51.7   94.6    32.1   51.3
 *     ResNet-50 B1     16.9   19.3    10.6   10.9
 *     GPT-2     T128   76.4   73.9    37.3   38.4
 *
 * f32 products are our own: in GPT-2 all layers are faster so, the head, whose weight is too large
 * to pack a second time, is slower (25.6 ms against 23.2), and to load and prepare oneDNN takes 20
 * ms of the first call.
 *
 * bf16 products are our own where the processor multiplies bf16: single ones are 3 to 8 % slower
 * than oneDNN's at GPT-2's layers there, 4 to 23 % faster at its head and AlexNet's, and the
 * network is no slower; on a Xeon with AMX (2 threads) it took 17.6 ms, with oneDNN 19.4.
 *
 * Convolutions with channels last are our own: Winograd's method where it fits (it multiplies
 * less), and no slower in the network elsewhere (bf16, where the processor multiplies it: 8 %
 * faster to 3 % slower with an epilogue, up to 25 % slower without one). On AMX tiles, on a Xeon
 * with 2 threads, AlexNet took 17.9 ms and ResNet-50 5.4, with oneDNN 20.7 and 6.7.
 *
 * oneDNN emulates bf16 on processors without instructions for it: there (the same machine, oneDNN
 * held to AVX512_CORE, we to f32) GPT-2 took 203 ms with it and 90 with our own engine, ResNet-50
 * 40 where these rules chose and 21. In other cases mode=max-autotune finds out. */
typedef struct ProviderRule {
    TaskKind kind;
    cb_dtype dtype;
    bool channels_last;                   /* a convolution whose result is so */
    double least_products, most_products; /* multiplications of the step */
    bool (*unless)(const Task *task, bool constant);
} ProviderRule;

static bool own_multiplies_bf16(const Task *task, bool constant) {
    (void)task, (void)constant;
    return gemm_bf16() != NULL;
}

static bool own_method_leads(const Task *task, bool constant) {
    return method_own(task, constant)->leads;
}

static const ProviderRule rules[] = {
    {TASK_MATMUL, CB_BF16, false, 5e5, INFINITY, own_multiplies_bf16},
    {TASK_CONVOLUTION, CB_F32, false, 2e6, INFINITY, own_method_leads},
    {TASK_CONVOLUTION, CB_BF16, false, 3e5, INFINITY, own_method_leads},
    {TASK_CONVOLUTION, CB_BF16, true, 3e5, 1e9, own_multiplies_bf16},
};

static bool model_prefers(const Task *task, cb_dtype dtype, bool constant) {
    bool product = task->kind == TASK_MATMUL;
    bool channels_last = !product && task->convolution.channels_last;
    double products = (double)task_flops(task) / 2;
    if (product ? task->matmul.reduced : task->convolution.reduced) return false; /* not measured */
    if (dtype == CB_BF16 ? !cpu_has_bf16() : cpu_level() < CPU_V4) return false;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const ProviderRule *r = &rules[i];
        if (r->kind != task->kind || r->dtype != dtype || r->channels_last != channels_last)
            continue;
        if (products >= r->least_products && products <= r->most_products)
            return !r->unless(task, constant);
    }
    return false;
}

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

/* By the option and the recorded model, without measuring: "own", or whom to ask. */
static const char *provider_for(const Task *task, cb_dtype dtype, bool constant) {
    const char *name = option_text(OPTION_provider);
    if (strcmp(name, "auto") != 0) return name;
    return model_prefers(task, dtype, constant) ? "onednn" : "own";
}

void method_choose(const Plan *plan, const Step *step, ConstantWeight weight,
                   const Launch *epilogue, bool measure, Work *out, MethodRefusal *refusal) {
    const Task *task = &step->task;
    bool constant = weight.number >= 0;
    *out = (Work){.task = task, .method = method_own(task, constant)};
    if (!out->method->pack) return; /* nobody else computes such tasks */
    if (task->kind == TASK_CONVOLUTION) out->end = find_end(plan, step);
    cb_dtype dtype = (cb_dtype)plan->value[step->out].dtype;
    bool measures = measure && !strcmp(option_text(OPTION_provider), "auto");
    const char *name = provider_for(task, dtype, constant);
    bool asks = measures || strcmp(name, "own") != 0;
    const void *data = asks && constant ? weight.make(weight.owner, weight.number) : NULL;
    if (constant && !data) asks = false; /* no memory: the step that needs it fails by itself */
    if (asks && measures && tune_step(plan, step, data, epilogue, out)) return;
    if (asks && !measures) out->provided = provide(name, plan, step, data, refusal);
    if (out->provided)
        describe_provided(name, out->provided, epilogue != NULL, out->text, sizeof out->text);
    else
        snprintf(out->text, sizeof out->text, "%s", out->method->name);
}
