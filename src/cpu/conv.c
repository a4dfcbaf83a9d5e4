/* ConvolutionTask -> the result: what is common to the methods.
 *
 * x and the weight of f16, and of bf16 where the processor or the method does not multiply that,
 * are widened to f32 as a whole before (gemm_type.c), x by Winograd on the way; sums are narrowed
 * piece by piece. Whatever the method and the number of threads, an element is one sum in one
 * order. */
#include "cpu/conv.h"
#include "base/cpu.h"
#include "base/parallel.h"
#include "cpu/conv_internal.h"
#include <string.h>

/* ---- the end of a piece ------------------------------------------------------------------- */

static void run_epilogue(const Convolution *c, int64_t low, int64_t count) {
    launch_part(c->epilogue, c->epilogue_buffer, low, low + count, 0, NULL);
}

void conv_epilogue(const Convolution *c, int64_t first, int64_t step, int64_t rows,
                   int64_t columns) {
    if (!c->epilogue) return;
    if (step == columns) {
        run_epilogue(c, first, rows * columns);
        return;
    }
    for (int64_t r = 0; r < rows; r++) run_epilogue(c, first + r * step, columns);
}

static EndRow *end_row(void) {
    static EndRow *const of_level[] = CPU_LEVELS(end_row_);
#if defined(CARBIDE_HAVE_BF16)
    if (gemm_bf16()) return end_row_bf16;
#endif
    return of_level[cpu_level()];
}

void conv_finish(const Convolution *c, int64_t first, int64_t step, int64_t rows, int64_t columns,
                 const float *sum, int64_t sum_stride) {
    if (c->end) {
        EndRow *end = end_row();
        int64_t channel = first % c->task.out_channels;
        for (int64_t r = 0; r < rows; r++)
            end(c->end, sum + r * sum_stride, channel, first + r * step, columns);
        return;
    }
    bool together = sum_stride == columns && step == columns;
    int64_t runs = together ? 1 : rows, run = together ? rows * columns : columns;
    for (int64_t r = 0; r < runs && c->narrow; r++)
        c->narrow(sum + r * sum_stride, c->out + (first + r * step) * c->out_bytes, run);
    conv_epilogue(c, first, step, rows, columns);
}

/* By channel, in f32. */
static void read_channels(const void *from, cb_dtype dtype, int64_t count, float *to) {
    GemmConvert *widen = gemm_choose(dtype, false, false).convert;
    if (widen)
        widen(from, to, count);
    else
        memcpy(to, from, (size_t)count * sizeof *to);
}

/* Sets c->end, which takes the place of the epilogue where that is a known one. The block that
 * scale and bias lie in; NULL: no memory. */
static Storage *set_end(Convolution *c, End *end) {
    int64_t count = c->task.out_channels + END_PADDING;
    Storage *storage = storage_new((size_t)(2 * count) * sizeof(float));
    if (!storage) return NULL;
    const KnownEnd *e = c->known_end;
    float *scale = storage->data, *bias = scale + count;
    *end = (End){.f32 = c->out_bytes == 4, .out = c->out, .scale = scale, .bias = bias};
    for (int64_t i = 0; i < count; i++) scale[i] = 1, bias[i] = 0;
    c->end = end;
    if (!c->epilogue || !e) return storage;
    c->epilogue = NULL;
    end->relu = e->relu;
    if (e->residual >= 0) end->residual = c->epilogue_buffer[e->residual];
    if (e->scale >= 0)
        read_channels(c->epilogue_buffer[e->scale], CB_F32, c->task.out_channels, scale);
    if (e->bias >= 0)
        read_channels(c->epilogue_buffer[e->bias], e->bias_dtype, c->task.out_channels, bias);
    return storage;
}

/* ---- methods ------------------------------------------------------------------------------ */

static bool conv_fits_always(const ConvolutionTask *task) {
    (void)task;
    return true;
}

static bool conv_fits_turned(const ConvolutionTask *task) {
    if (task->channels_last) return false;
    ConvolutionTask last = conv_turned(task);
    return conv_fits_depthwise(&last) || conv_is_direct(&last);
}

static const ConvMethod methods[CONV_METHODS] = {
#define CONV_METHOD(id, name, fits, cost, fits_bf16, pack, run, tile, ends, places)                \
    [CONV_##id] = {name, fits, cost, fits_bf16, pack, run, tile, ends, places},
#include "cpu/conv_methods.def"
#undef CONV_METHOD
};

const char *convolution_method_name(int method) { return methods[method].name; }

bool convolution_fits(const ConvolutionTask *task, int method) {
    return methods[method].fits(task);
}

MethodCost convolution_cost(const ConvolutionTask *task, int method, bool constant) {
    const ConvMethod *by = &methods[method];
    return by->cost ? by->cost(task, by->tile, constant) : (MethodCost){0, 1};
}

/* The method of a task with channels last that stands for a turned one: one that sums as the
 * definition does. Eager takes this way, and eager is what other results are measured against. */
static int exact_method(const ConvolutionTask *last) {
    static const int8_t exact[] = {CONV_DEPTHWISE, CONV_TILES, CONV_DIRECT};
    for (size_t i = 0; i < sizeof exact; i++)
        if (convolution_fits(last, exact[i])) return exact[i];
    check(false, "a turned convolution that nobody computes");
    return -1;
}

/* ---- entry -------------------------------------------------------------------------------- */

static Storage *pack(Convolution *c) {
    Storage *converted = c->convert ? conv_convert_weight(c) : NULL;
    if (c->convert && !converted) return NULL;
    Storage *packed = c->method->pack(c);
    if (converted) storage_release(converted);
    return packed;
}

/* Whether sums come to an End. Those of bf16 do in the pass that narrows them anyway; of f32 the
 * epilogue is as fast. */
static bool has_end(const Convolution *c) {
    const ConvolutionTask *s = &c->task;
    bool known = c->epilogue && c->known_end && s->channels_last;
    return c->method->ends || (known && s->dtype == CB_BF16 && !c->method->tile);
}

static bool run(Convolution *c) {
    bool converts = c->convert && !c->method->tile, ends = has_end(c);
    End end;
    Storage *x = converts ? conv_convert_x(c) : NULL, *packed = NULL;
    Storage *channels = ends ? set_end(c, &end) : NULL;
    bool ready = (x || !converts) && (channels || !ends);
    if (ready && !c->packed && c->method->pack && (packed = pack(c))) c->packed = packed->data;
    ready = ready && (c->packed || !c->method->pack);
    if (ready) c->method->run(c);
    if (packed) storage_release(packed);
    if (channels) storage_release(channels);
    if (x) storage_release(x);
    return ready && !atomic_load_explicit(c->failed, memory_order_relaxed);
}

static bool run_empty_sum(const Convolution *c) {
    int64_t numel = c->task.batch * c->task.out_channels * c->positions;
    memset(c->out, 0, (size_t)(numel * c->out_bytes));
    if (c->epilogue) run_epilogue(c, 0, numel);
    return true;
}

static Convolution convolution_of(const ConvolutionTask *task, const ConvMethod *method,
                                  const Operands *operands) {
    Convolution c = {.task = *task, .method = method, .epilogue = operands->epilogue};
    c.x = operands->in[0], c.weight = operands->in[1], c.out = operands->out;
    c.packed = operands->packed;
    c.epilogue_buffer = operands->epilogue_buffer;
    if (operands->end && operands->end->fused) c.known_end = operands->end;
    bool bf16 = c.method->fits_bf16 && c.method->fits_bf16(task);
    GemmChoice choice = gemm_choose(task->dtype, task->reduced, bf16);
    c.type = choice.type, c.convert = choice.convert, c.narrow = task->wide ? NULL : choice.narrow;
    c.element = task->dtype == CB_F64 ? sizeof(double) : sizeof(float);
    c.x_bytes = c.element / c.type->together;
    c.out_bytes = (int64_t)cb_dtype_size(task->wide ? CB_F32 : task->dtype);
    c.positions = task->out_size[0] * task->out_size[1] * task->out_size[2];
    c.outputs = task->out_channels / task->groups;
    return c;
}

static void run_epilogues(void *user, int64_t low, int64_t high) {
    run_epilogue(user, low, high - low);
}

static bool run_turned(Convolution *c) {
    ConvolutionTask last = conv_turned(&c->task);
    if (!conv_turned_run(c, &last, exact_method(&last))) return false;
    int64_t numel = last.batch * last.out_channels * c->positions;
    if (c->epilogue) parallel_for(numel, 16 * 1024, run_epilogues, c);
    return true;
}

static bool is_empty(const Convolution *c) {
    return c->task.batch == 0 || c->outputs == 0 || c->positions == 0;
}

/* The convolution that packs: of a method over copies with channels last, the one over those. */
static Convolution packing_of(const ConvolutionTask *task, int method, const void *weight) {
    const ConvMethod *by = &methods[method];
    ConvolutionTask last;
    if (!by->run) {
        last = conv_turned(task);
        by = &methods[exact_method(&last)];
        task = &last;
    }
    Convolution c = convolution_of(task, by, &(Operands){.in = {NULL, weight}});
    if (c.convert && !c.method->tile) conv_converted_x(&c.task);
    return c;
}

static bool packs(const Convolution *c) {
    return c->method->pack && !is_empty(c) && c->task.channels > 0;
}

bool convolution_layout(const ConvolutionTask *task, int method, Buffer *out) {
    Convolution c = packing_of(task, method, NULL);
    const ConvolutionTask *s = &c.task;
    if (!packs(&c)) return false;
    putf(out, "%s %s %d %d", c.method->name, cb_dtype_name(s->dtype), s->reduced, s->channels_last);
    put_numbers(out, "channels", (const int64_t[]){s->channels, s->out_channels, s->groups}, 3);
    put_numbers(out, "kernel", s->kernel, 3);
    put_numbers(out, "dilation", s->dilation, 3);
    put_numbers(out, "weight", (const int64_t[]){s->weight_offset, s->weight_out, s->weight_in}, 3);
    put_numbers(out, "spatial", s->weight_spatial, 3);
    if (!c.method->packs_places) return true;
    putf(out, " x %lld", (long long)s->x_channel);
    put_numbers(out, "spatial", s->x_spatial, 3);
    return true;
}

bool convolution_pack(const ConvolutionTask *task, int method, const void *weight,
                      Storage **packed) {
    Convolution c = packing_of(task, method, weight);
    *packed = NULL;
    if (!packs(&c)) return true;
    *packed = pack(&c);
    return *packed != NULL;
}

bool convolution_run(const ConvolutionTask *task, int method, const Operands *operands) {
    _Atomic bool failed = false;
    const ConvMethod *by = &methods[method];
    Convolution c = convolution_of(task, by, operands);
    c.failed = &failed;
    if (is_empty(&c)) return true;
    if (task->channels == 0) return run_empty_sum(&c);
    return c.method->run ? run(&c) : run_turned(&c);
}
