/* oneDNN as a provider (method/provider.h): libcarbide_onednn.so.
 *
 * A task becomes one primitive with the weight in oneDNN's own format (when it never changes), bias
 * as its bias, scale, residual and relu as post-ops (with a scale the bias, too, since it comes
 * after it). Where oneDNN has fast code for another layout of x or of the result only, the
 * primitive gets that one, with a reorder in front or behind. Its reference code, which is slower
 * than anything of ours, is refused.
 *
 * Work is immutable once made, and scratch memory is the caller's, so any number of threads may run
 * it. oneDNN takes as many OpenMP threads as the calling thread's setting says, both when a
 * primitive is made and when it runs: the task's number is set around every call. */
#include "method/provider.h"

#include "onednn_api.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 64, MOST_ARGUMENTS = 8 };

typedef struct OnednnWork {
    ProviderTask task;
    dnnl_primitive_desc_t describe;
    dnnl_primitive_t primitive, to_x, from_out; /* the last two: NULL, or reorders */
    MemoryLayout x, weight, scale, bias, out;   /* as the task has them */
    size_t scratch, x_at, out_at;               /* in the scratch: oneDNN's, x and out reordered */
} OnednnWork;

static struct {
    pthread_once_t once;
    dnnl_engine_t engine;
    char version[64], library[1024];
    const char *failure;
} library = {.once = PTHREAD_ONCE_INIT};

/* ---- threads ------------------------------------------------------------------------------ */

static int enter(const ProviderTask *task) {
    int before = omp_get_max_threads();
    if (before != task->threads) omp_set_num_threads(task->threads);
    return before;
}

static void leave(const ProviderTask *task, int before) {
    if (before != task->threads) omp_set_num_threads(before);
}

/* ---- layouts ------------------------------------------------------------------------------ */

static dnnl_data_type_t type_of(const ProviderTask *task) {
    return task->dtype == CB_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Dims of size 1 get the stride that a contiguous tensor would have: oneDNN recognises formats by
 * strides. */
static dnnl_status_t strided(MemoryLayout *out, int rank, const int64_t *size,
                             const int64_t *stride, dnnl_data_type_t type) {
    dnnl_dims_t sizes = {0}, strides = {0};
    for (int d = rank - 1; d >= 0; d--) {
        sizes[d] = size[d], strides[d] = stride[d];
        if (size[d] != 1) continue;
        strides[d] = 1;
        for (int k = 0; k < rank; k++) /* as large as everything that lies inside of it */
            if (k != d && size[k] != 1 && (k > d || stride[k] * size[k] <= stride[d]))
                if (stride[k] * size[k] > strides[d]) strides[d] = stride[k] * size[k];
    }
    return layout_strided(out, rank, sizes, type, strides);
}

static dnnl_status_t layout_of(MemoryLayout *out, const ProviderTask *task,
                               const ProviderTensor *x) {
    return strided(out, x->rank, x->size, x->stride, type_of(task));
}

/* The weight of a convolution with groups has one dim more. */
static ProviderTensor weight_of(const ProviderTask *task) {
    ProviderTensor w = task->weight;
    if (task->kind != PROVIDER_CONVOLUTION || task->groups == 1) return w;
    for (int d = w.rank; d > 0; d--) w.size[d] = w.size[d - 1], w.stride[d] = w.stride[d - 1];
    w.rank++;
    w.size[1] /= task->groups;
    w.size[0] = task->groups;
    w.stride[0] = w.stride[1] * w.size[1];
    return w;
}

/* The bias of a convolution has one dim; all others have those of the result. */
static dnnl_status_t channel_layout(MemoryLayout *out, const ProviderTask *task, bool one_dim,
                                    cb_dtype dtype) {
    dnnl_dims_t size = {0}, stride = {0};
    int channel = task->kind == PROVIDER_MATMUL ? task->out.rank - 1 : 1;
    int64_t channels = task->out.size[channel];
    if (one_dim) channel = 0;
    for (int d = 0; d < task->out.rank; d++) size[d] = 1, stride[d] = d < channel ? channels : 1;
    size[channel] = channels;
    return layout_strided(out, one_dim ? 1 : task->out.rank, size,
                          dtype == CB_BF16 ? dnnl_bf16 : dnnl_f32, stride);
}

/* oneDNN's own bias comes before its post-ops. */
static bool is_own_bias(const ProviderTask *task) { return task->bias && !task->scale; }

static bool make_layouts(OnednnWork *w) {
    const ProviderTask *task = &w->task;
    ProviderTensor weight = weight_of(task);
    return !layout_of(&w->x, task, &task->x) && !layout_of(&w->weight, task, &weight) &&
           !layout_of(&w->out, task, &task->out) &&
           (!task->scale || !channel_layout(&w->scale, task, false, CB_F32)) &&
           (!task->bias ||
            !channel_layout(&w->bias, task, is_own_bias(task) && task->kind == PROVIDER_CONVOLUTION,
                            task->bias_dtype));
}

/* ---- primitives --------------------------------------------------------------------------- */

static bool make_attributes(const OnednnWork *w, dnnl_primitive_attr_t *attr) {
    dnnl_post_ops_t ops = NULL;
    *attr = NULL;
    bool ok = !dnnl_primitive_attr_create(attr) &&
              !dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user) &&
              !dnnl_post_ops_create(&ops);
    if (ok && w->task.reduced)
        ok = !dnnl_primitive_attr_set_fpmath_mode(*attr, dnnl_fpmath_mode_bf16);
    if (ok && w->task.scale)
        ok = !dnnl_post_ops_append_binary(ops, dnnl_binary_mul, layout_view(&w->scale));
    if (ok && w->task.scale && w->task.bias)
        ok = !dnnl_post_ops_append_binary(ops, dnnl_binary_add, layout_view(&w->bias));
    if (ok && w->task.residual)
        ok = !dnnl_post_ops_append_binary(ops, dnnl_binary_add, layout_view(&w->out));
    if (ok && w->task.relu) ok = !relu_append(ops);
    ok = ok && !dnnl_primitive_attr_set_post_ops(*attr, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    return ok;
}

/* Which layouts oneDNN may choose by itself. */
typedef struct Freedom {
    bool x, out;
} Freedom;

static dnnl_status_t describe(const OnednnWork *w, Freedom freedom,
                              const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out) {
    const ProviderTask *task = &w->task;
    ProviderTensor weight = weight_of(task);
    MemoryLayout any_x = {0}, any_out = {0}, any_weight = {0};
    ConvolutionDims dims = {0};
    for (int d = 0; d < task->x.rank - 2 && d < 3; d++) {
        dims.stride[d] = task->stride[d], dims.padding[d] = task->padding[d];
        dims.dilation[d] = task->dilation[d] - 1;
    }
    dnnl_status_t status = layout_any(&any_x, task->x.rank, task->x.size, type_of(task)) |
                           layout_any(&any_out, task->out.rank, task->out.size, type_of(task)) |
                           layout_any(&any_weight, weight.rank, weight.size, type_of(task));
    LayoutView x = layout_view(freedom.x ? &any_x : &w->x);
    LayoutView y = layout_view(freedom.out ? &any_out : &w->out);
    LayoutView of_weight = layout_view(task->pack ? &any_weight : &w->weight);
    LayoutView bias = is_own_bias(task) ? layout_view(&w->bias) : NULL;
    if (!status)
        status =
            task->kind == PROVIDER_MATMUL
                ? product_describe(out, library.engine, x, of_weight, bias, y, attr)
                : convolution_describe(out, library.engine, x, of_weight, bias, y, &dims, attr);
    layout_free(&any_x), layout_free(&any_out), layout_free(&any_weight);
    return status;
}

static const char *method_of(const_dnnl_primitive_desc_t describe) {
    const char *name = "";
    dnnl_primitive_desc_query(describe, dnnl_query_impl_info_str, 0, (void *)&name);
    return name;
}

/* A convolution through a matrix of windows is slower than reorders around a direct one. */
typedef enum Quality { REFERENCE, INDIRECT, DIRECT } Quality;

static Quality quality_of(const OnednnWork *w, const_dnnl_primitive_desc_t describe) {
    const char *name = method_of(describe);
    if (strstr(name, "ref")) return REFERENCE;
    return w->task.kind == PROVIDER_CONVOLUTION && strstr(name, "gemm") ? INDIRECT : DIRECT;
}

/* The best code; with layouts as they are, if oneDNN has it for these. */
static bool search(OnednnWork *w, const_dnnl_primitive_attr_t attr, char *why, size_t why_bytes) {
    static const Freedom freedoms[] = {{false, false}, {true, false}, {true, true}};
    Quality best = REFERENCE;
    for (int i = 0; best < DIRECT && i < 3; i++) {
        dnnl_primitive_desc_t found = NULL;
        if (freedoms[i].out && w->task.residual) break;
        dnnl_status_t status = describe(w, freedoms[i], attr, &found);
        if (status && i == 0)
            snprintf(why, why_bytes, "it has no code for the step (status %d)", (int)status);
        if (status) continue;
        Quality quality = quality_of(w, found);
        if (quality <= best) {
            if (best == REFERENCE)
                snprintf(why, why_bytes, "it has reference code alone (%s)", method_of(found));
            dnnl_primitive_desc_destroy(found);
            continue;
        }
        if (w->describe) dnnl_primitive_desc_destroy(w->describe);
        w->describe = found;
        best = quality;
    }
    return best > REFERENCE;
}

static bool find_implementation(OnednnWork *w, char *why, size_t why_bytes) {
    dnnl_primitive_attr_t attr;
    snprintf(why, why_bytes, "its attributes cannot be made");
    bool found = make_attributes(w, &attr) && search(w, attr, why, why_bytes);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return found;
}

static LayoutView wanted(const OnednnWork *w, dnnl_query_t what) {
    return dnnl_primitive_desc_query_md(w->describe, what, 0);
}

/* NULL and true: the two are the same. */
static bool make_reorder(LayoutView from, LayoutView to, dnnl_primitive_t *out) {
    dnnl_primitive_desc_t describe = NULL;
    *out = NULL;
    if (dnnl_memory_desc_equal(from, to)) return true;
    if (dnnl_reorder_primitive_desc_create(&describe, from, library.engine, to, library.engine,
                                           NULL))
        return false;
    dnnl_status_t status = dnnl_primitive_create(out, describe);
    dnnl_primitive_desc_destroy(describe);
    return !status;
}

static size_t add_scratch(size_t *total, size_t bytes) {
    size_t at = (*total + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *total = at + bytes;
    return at;
}

static bool make_primitives(OnednnWork *w, ProviderSizes *sizes) {
    LayoutView x = wanted(w, dnnl_query_src_md), out = wanted(w, dnnl_query_dst_md);
    LayoutView weight = wanted(w, dnnl_query_weights_md);
    if (dnnl_primitive_create(&w->primitive, w->describe) ||
        !make_reorder(layout_view(&w->x), x, &w->to_x) ||
        !make_reorder(out, layout_view(&w->out), &w->from_out))
        return false;
    w->scratch = dnnl_memory_desc_get_size(wanted(w, dnnl_query_scratchpad_md));
    sizes->scratch = w->scratch;
    if (w->to_x) w->x_at = add_scratch(&sizes->scratch, dnnl_memory_desc_get_size(x));
    if (w->from_out) w->out_at = add_scratch(&sizes->scratch, dnnl_memory_desc_get_size(out));
    bool same = dnnl_memory_desc_equal(layout_view(&w->weight), weight);
    sizes->packed = same ? 0 : dnnl_memory_desc_get_size(weight);
    snprintf(sizes->method, sizeof sizes->method, "%s%s", method_of(w->describe),
             w->to_x || w->from_out ? ", reordered" : "");
    return true;
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct Execution { /* one primitive with its arguments */
    dnnl_exec_arg_t argument[MOST_ARGUMENTS];
    int count;
    bool ok;
} Execution;

static void add(Execution *call, int name, LayoutView layout, const void *data) {
    dnnl_memory_t memory = NULL;
    if (dnnl_memory_create(&memory, layout, library.engine, (void *)data)) call->ok = false;
    call->argument[call->count++] = (dnnl_exec_arg_t){name, memory};
}

/* Runs the primitive and frees the arguments. */
static bool finish(Execution *call, const_dnnl_primitive_t primitive) {
    dnnl_stream_t stream = NULL;
    call->ok = call->ok && !dnnl_stream_create(&stream, library.engine, dnnl_stream_in_order) &&
               !dnnl_primitive_execute(primitive, stream, call->count, call->argument) &&
               !dnnl_stream_wait(stream);
    if (stream) dnnl_stream_destroy(stream);
    for (int i = 0; i < call->count; i++)
        if (call->argument[i].memory) dnnl_memory_destroy(call->argument[i].memory);
    return call->ok;
}

static bool run_reorder(const_dnnl_primitive_t reorder, LayoutView from_layout, const void *from,
                        LayoutView to_layout, void *to) {
    Execution call = {.ok = true};
    add(&call, DNNL_ARG_FROM, from_layout, from);
    add(&call, DNNL_ARG_TO, to_layout, to);
    return finish(&call, reorder);
}

static void add_operand(Execution *call, int *number, LayoutView layout, const void *data) {
    add(call, DNNL_ARG_ATTR_MULTIPLE_POST_OP((*number)++) | DNNL_ARG_SRC_1, layout, data);
}

static bool run_primitive(const OnednnWork *w, const ProviderOperands *o, const void *x,
                          void *out) {
    Execution call = {.ok = true};
    int post_op = 0;
    add(&call, DNNL_ARG_SRC, wanted(w, dnnl_query_src_md), x);
    add(&call, DNNL_ARG_WEIGHTS, wanted(w, dnnl_query_weights_md),
        o->packed ? o->packed : o->weight);
    add(&call, DNNL_ARG_DST, wanted(w, dnnl_query_dst_md), out);
    if (is_own_bias(&w->task)) add(&call, DNNL_ARG_BIAS, layout_view(&w->bias), o->bias);
    if (w->task.scale) add_operand(&call, &post_op, layout_view(&w->scale), o->scale);
    if (w->task.scale && w->task.bias) add_operand(&call, &post_op, layout_view(&w->bias), o->bias);
    if (w->task.residual) add_operand(&call, &post_op, layout_view(&w->out), o->residual);
    if (w->scratch)
        add(&call, DNNL_ARG_SCRATCHPAD, wanted(w, dnnl_query_scratchpad_md), o->scratch);
    return finish(&call, w->primitive);
}

static bool work_run(const void *user, const ProviderOperands *o) {
    const OnednnWork *w = user;
    const void *x = w->to_x ? (char *)o->scratch + w->x_at : o->x;
    void *out = w->from_out ? (char *)o->scratch + w->out_at : o->out;
    int before = enter(&w->task);
    bool ok = true;
    if (w->to_x)
        ok =
            run_reorder(w->to_x, layout_view(&w->x), o->x, wanted(w, dnnl_query_src_md), (void *)x);
    ok = ok && run_primitive(w, o, x, out);
    if (ok && w->from_out)
        ok = run_reorder(w->from_out, wanted(w, dnnl_query_dst_md), out, layout_view(&w->out),
                         o->out);
    leave(&w->task, before);
    return ok;
}

/* ---- weights ------------------------------------------------------------------------------ */

static bool reorder_once(const OnednnWork *w, LayoutView from_layout, const void *from,
                         LayoutView to_layout, void *to) {
    dnnl_primitive_t reorder = NULL;
    int before = enter(&w->task);
    bool ok = make_reorder(from_layout, to_layout, &reorder) && reorder &&
              run_reorder(reorder, from_layout, from, to_layout, to);
    if (reorder) dnnl_primitive_destroy(reorder);
    leave(&w->task, before);
    return ok;
}

static bool work_pack(const void *user, const void *weight, void *packed) {
    const OnednnWork *w = user;
    return reorder_once(w, layout_view(&w->weight), weight, wanted(w, dnnl_query_weights_md),
                        packed);
}

static bool work_unpack(const void *user, const void *packed, void *weight) {
    const OnednnWork *w = user;
    return reorder_once(w, wanted(w, dnnl_query_weights_md), packed, layout_view(&w->weight),
                        weight);
}

/* ---- entry -------------------------------------------------------------------------------- */

static void work_free(void *user) {
    OnednnWork *w = user;
    if (!w) return;
    if (w->primitive) dnnl_primitive_destroy(w->primitive);
    if (w->to_x) dnnl_primitive_destroy(w->to_x);
    if (w->from_out) dnnl_primitive_destroy(w->from_out);
    if (w->describe) dnnl_primitive_desc_destroy(w->describe);
    layout_free(&w->x), layout_free(&w->weight), layout_free(&w->out);
    layout_free(&w->scale), layout_free(&w->bias);
    free(w);
}

static void *work_create(const ProviderTask *task, ProviderSizes *sizes, char *why,
                         size_t why_bytes) {
    if (task->dtype != CB_F32 && task->dtype != CB_BF16) {
        snprintf(why, why_bytes, "it computes f32 and bf16 alone");
        return NULL;
    }
    OnednnWork *w = calloc(1, sizeof *w);
    int before = enter(task);
    *sizes = (ProviderSizes){0};
    snprintf(why, why_bytes, "a primitive cannot be made");
    if (w) w->task = *task;
    bool ok =
        w && make_layouts(w) && find_implementation(w, why, why_bytes) && make_primitives(w, sizes);
    leave(task, before);
    if (ok) return w;
    work_free(w);
    return NULL;
}

static void open_library(void) {
    const dnnl_version_t *version = dnnl_version();
    Dl_info info;
    snprintf(library.version, sizeof library.version, "%d.%d.%d", version->major, version->minor,
             version->patch);
    if (dladdr((void *)(size_t)dnnl_version, &info) && info.dli_fname)
        snprintf(library.library, sizeof library.library, "%s", info.dli_fname);
    if (version->major != DNNL_VERSION_MAJOR)
        library.failure = "oneDNN has another major version than the plugin was built with";
    else if (version->cpu_runtime != DNNL_RUNTIME_OMP && version->cpu_runtime != DNNL_RUNTIME_SEQ)
        library.failure = "oneDNN was not built for OpenMP threads";
    else if (dnnl_engine_create(&library.engine, dnnl_cpu, 0))
        library.failure = "oneDNN has no CPU engine";
}

/* NOLINTNEXTLINE(misc-use-internal-linkage): found by dlsym */
__attribute__((visibility("default"))) const Provider *carbide_provider(const char **why);

const Provider *carbide_provider(const char **why) {
    static const Provider provider = {.interface = PROVIDER_INTERFACE,
                                      .task_bytes = sizeof(ProviderTask),
                                      .name = "oneDNN",
                                      .version = library.version,
                                      .library = library.library,
                                      .create = work_create,
                                      .pack = work_pack,
                                      .unpack = work_unpack,
                                      .run = work_run,
                                      .free = work_free};
    pthread_once(&library.once, open_library);
    *why = library.failure;
    return library.failure ? NULL : &provider;
}
