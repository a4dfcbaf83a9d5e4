/* MatmulTask -> the product: which of the kernels computes it, whether a constant B is packed once,
 * and its run. The rows of gemm_methods.def say who fits and what that costs: panels of packed
 * operands (gemm_panels.c), matrix-vector products (gemm_vector.c), small items (gemm_small.c),
 * thin ones (gemm_thin.c), few rows times rows that lie (gemm_swept.c) or times turned ones
 * (gemm_turned.c), or integers (gemm_integer.c). */
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/gemm_internal.h"
#include <math.h>
#include <string.h>

enum {
    STREAM_BYTES = 8 << 20, /* from here on a result is written past the caches */
    PACKED_ROWS = 512,      /* more rows than these hide the packing of B */
    FEW_ROWS = 64,          /* up to these, packing is a large part of the work */
    LARGE_BYTES = 64 << 20  /* of B: a second copy costs more (10 % of the time at 128 rows) */
};

/* ---- for every kernel ---- */

void gemm_fold(MatmulTask *task) {
    int64_t rows = task->m, stride = task->a_m;
    for (int d = task->batch_rank - 1; d >= 0; d--) {
        if (task->batch_size[d] == 1) continue;
        if (task->b_batch[d] != 0) return;
        if (rows == 1)
            stride = task->a_batch[d];
        else if (task->a_batch[d] != rows * stride)
            return;
        rows *= task->batch_size[d];
    }
    task->m = rows, task->a_m = stride, task->batch = 1, task->batch_rank = 0;
}

void gemm_batch_offsets(const MatmulTask *task, int64_t batch, int64_t *a, int64_t *b) {
    *a = task->a_offset, *b = task->b_offset;
    for (int d = task->batch_rank - 1; d >= 0; d--) {
        int64_t at = batch % task->batch_size[d];
        batch /= task->batch_size[d];
        *a += at * task->a_batch[d], *b += at * task->b_batch[d];
    }
}

void gemm_epilogue(const Gemm *gemm, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    if (!gemm->epilogue) return;
    int64_t n = gemm->task.n;
    bool whole = columns == n;
    for (int64_t r = row; r < row + rows; r += whole ? rows : 1) {
        int64_t low = r * n + column, high = low + (whole ? rows * n : columns);
        launch_part(gemm->epilogue, gemm->epilogue_buffer, low, high, 0, NULL);
    }
}

static bool run_empty_sum(const Gemm *gemm) {
    const MatmulTask *task = &gemm->task;
    int64_t rows = task->batch * task->m;
    cb_dtype dtype = task->wide ? CB_F32 : task->dtype;
    memset(gemm->out, 0, (size_t)(rows * task->n) * cb_dtype_size(dtype));
    gemm_epilogue(gemm, 0, rows, 0, task->n);
    return true;
}

/* ---- methods ---- */

static bool fits_integer(const MatmulTask *task) { return !dtype_is_float(task->dtype); }

static bool fits_panels(const MatmulTask *task) { return dtype_is_float(task->dtype); }

bool gemm_may_be_bf16(const MatmulTask *task) {
    bool rounds = task->dtype == CB_BF16 || (task->dtype == CB_F32 && task->reduced);
    return rounds && gemm_bf16();
}

static bool fits_amx(const MatmulTask *task) {
    return gemm_may_be_bf16(task) && !gemm_bf16()->rows_tile;
}

static bool fits_bf16(const MatmulTask *task) {
    return gemm_may_be_bf16(task) && gemm_bf16()->rows_tile;
}

static MethodCost cost_of_vector(const MatmulTask *task, bool constant);

static const struct {
    bool (*fits)(const MatmulTask *folded);
    MethodCost (*cost)(const MatmulTask *folded, bool constant);
    bool (*run)(const Gemm *gemm);
} methods[] = {
#define GEMM_METHOD(id, name, fits, cost, run) [GEMM_##id] = {fits, cost, run},
#include "cpu/gemm_methods.def"
#undef GEMM_METHOD
};

static Gemm gemm_of(const MatmulTask *task, GemmMethod method, const Operands *operands) {
    Gemm gemm = {.task = *task, .a = operands->in[0], .b = operands->in[1], .out = operands->out};
    gemm_fold(&gemm.task);
    bool bf16 = method == GEMM_AMX || method == GEMM_BF16;
    GemmChoice choice = gemm_choose(task->dtype, bf16, bf16);
    gemm.type = choice.type, gemm.convert = choice.convert;
    gemm.convert_b = task->rounds_b ? gemm_rounds(choice.type, task->dtype) : choice.convert;
    gemm.narrow = task->wide ? NULL : choice.narrow;
    gemm.element = task->dtype == CB_F64 ? sizeof(double) : sizeof(float);
    gemm.input_bytes = (int64_t)cb_dtype_size(task->dtype);
    gemm.b_bytes = task->rounds_b ? (int64_t)cb_dtype_size(CB_F32) : gemm.input_bytes;
    gemm.threads = parallel_threads();
    return gemm;
}

bool gemm_copies(const MatmulTask *task) {
    int64_t bytes = task->n * task->k * (int64_t)cb_dtype_size(task->dtype);
    return bytes <= LARGE_BYTES || task->batch * task->m <= FEW_ROWS || task->dtype == CB_BF16;
}

/* Whether panels of a constant B, made once, win time. */
static bool packing_wins(const Gemm *gemm) {
    const MatmulTask *s = &gemm->task;
    bool widens = gemm->convert && gemm->type->together == 1, bf16 = gemm->type == gemm_bf16();
    if (widens || s->batch != 1 || s->m * s->n * s->k == 0) return false;
    return (s->m <= PACKED_ROWS || bf16) && gemm_copies(s);
}

static MethodCost cost_of_vector(const MatmulTask *task, bool constant) {
    Gemm gemm = gemm_of(task, GEMM_PANELS, &(Operands){0});
    bool panels = constant && gemm_vector_wants_panels(task) && packing_wins(&gemm);
    bool model = !dtype_is_half(task->dtype);
    return gemm_cost_of(panels ? INFINITY : model ? gemm_vector_cycles(task) : 0);
}

bool gemm_fits(const MatmulTask *task, GemmMethod method) {
    MatmulTask folded = *task;
    gemm_fold(&folded);
    if (task->rounds_b && methods[method].run != gemm_panels) return false;
    return methods[method].fits(&folded);
}

MethodCost gemm_cost(const MatmulTask *task, GemmMethod method, bool constant) {
    MatmulTask folded = *task;
    gemm_fold(&folded);
    return methods[method].cost ? methods[method].cost(&folded, constant) : (MethodCost){0, 1};
}

bool gemm_packs_from(const MatmulTask *task, GemmMethod method, cb_dtype dtype) {
    Gemm gemm = gemm_of(task, method, &(Operands){0});
    return task->dtype == CB_BF16 && dtype == CB_F32 && gemm.type == gemm_bf16() &&
           packing_wins(&gemm);
}

static bool packs(const Gemm *gemm, GemmMethod method) {
    return methods[method].run == gemm_panels && packing_wins(gemm);
}

bool gemm_layout(const MatmulTask *task, GemmMethod method, Buffer *out) {
    Gemm gemm = gemm_of(task, method, &(Operands){0});
    const MatmulTask *s = &gemm.task;
    if (!packs(&gemm, method)) return false;
    putf(out, "%s %d", cb_dtype_name(s->dtype), gemm.type == gemm_bf16());
    put_numbers(out, "b", (const int64_t[]){s->k, s->n, s->b_k, s->b_n, s->b_offset}, 5);
    return true;
}

bool gemm_pack(const MatmulTask *task, GemmMethod method, const void *b, cb_dtype dtype,
               Storage **packed) {
    *packed = NULL;
    Gemm gemm = gemm_of(task, method, &(Operands){.in = {NULL, b}});
    if (!packs(&gemm, method)) return true;
    if (dtype != task->dtype) {
        gemm.convert_b = gemm_choose(dtype, true, true).convert;
        gemm.b_bytes = (int64_t)cb_dtype_size(dtype);
    }
    return gemm_pack_panels(&gemm, packed);
}

bool gemm_run(const MatmulTask *task, GemmMethod method, const Operands *operands) {
    if (task->batch * task->m * task->n == 0) return true;
    _Atomic bool failed = false;
    Gemm gemm = gemm_of(task, method, operands);
    gemm.packed = operands->packed;
    gemm.epilogue = operands->epilogue;
    gemm.epilogue_buffer = operands->epilogue_buffer;
    gemm.failed = &failed;
    int64_t bytes = task->batch * task->m * task->n * gemm.input_bytes;
    if (gemm.narrow && gemm.type->stream && !gemm.epilogue && bytes >= STREAM_BYTES)
        gemm.narrow = gemm.type->stream;
    return task->k == 0 ? run_empty_sum(&gemm) : methods[method].run(&gemm);
}
