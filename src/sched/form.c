/* How engines walk a kernel, and what it costs.
 *
 * The vector lanes go where memory is contiguous: along the inner axes (ROW) or across outer points
 * (TILE). Kernels with too few outer points for the threads are split along their first inner axis,
 * into chunks whose number depends on the sizes alone, so results do not depend on the threads. */
#include "base/round.h"
#include "sched/schedule.h"

enum {
    WINDOW_MOST = 64,            /* points of a row that is as good either way, as windows are */
    MOST_VARYING_ROWS = 1 << 12, /* a row that varies may be short in so many of them */
    BIN_SHARE = 4,               /* points for each bin of each chunk that adds to bins, at least */
    BIN_CHUNKS = 64,             /* and no more chunks than this */
    PART_SHARE = 8,              /* points for each element of each part of rows with sinks */
    PARTS = 64,                  /* of these, and more where each would have ... */
    PART_ROWS = 512              /* more rows than an f32 may add up */
};

/* Elements that lie side by side along axis, counted over all accesses. */
static void vote(Kernel *kernel, Expr *index, int axis, int *votes) {
    int64_t stride;
    Expr *rest;
    if (axis < 0 || !expr_uses_axis(index, axis)) return;
    if (index_linear(kernel, index, axis, &stride, &rest))
        *votes += stride == 1 || stride == -1 ? 2 : -1;
    else
        *votes -= 1;
}

/* Bytes of a point where generated code walks what is left of a row as vectors whose other lanes a
 * mask leaves out (codegen/c/prepare.c): four or eight wherever points are, and no condition. */
static int64_t masked_bytes(const Kernel *kernel) {
    size_t least = 8, most = 4;
    bool guarded = false;
    for (int s = 0; s < length(kernel->store); s++) {
        const Store *store = &kernel->store[s];
        size_t own = cb_dtype_size(kernel->buffer[store->buffer].dtype);
        if (!expr_uses_inner(kernel, store->index)) continue;
        least = own < least ? own : least, most = own > most ? own : most;
        guarded |= store->guard != NULL;
    }
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *x = kernel->expr[i];
        if (x->op != EX_load || !expr_uses_inner(kernel, x)) continue;
        size_t own = cb_dtype_size(kernel->buffer[x->imm.i].dtype);
        least = own < least ? own : least, most = own > most ? own : most;
        guarded |= x->input_count > 1;
    }
    return least == most && !guarded ? (int64_t)most : 0;
}

static bool varies(const Kernel *kernel, bool inner) {
    bool any = false;
    for (int a = 0; a < length(kernel->axis); a++)
        any |= kernel->axis[a].varies && kernel->axis[a].inner == inner;
    return any;
}

/* From which length on lanes go along rows. Where it varies and every point is stored, one by one
 * if lanes go across them, vectors under a mask are faster from a few points on, unless much is
 * computed once for each row, which has no lanes then. */
static int64_t least_along(const Kernel *kernel, const DeviceMachine *machine) {
    const RowWork work = kernel_row_work(kernel);
    int64_t bytes = varies(kernel, true) && work.stores ? masked_bytes(kernel) : 0;
    if (bytes && work.rows < DEAR_POINT)
        return work.points < DEAR_POINT ? machine->short_row / 2
                                        : machine->short_row * 3 * bytes / 16;
    return machine->short_row * (row_is_dear(&work) ? 3 : 2) / 2;
}

/* Rows that are too short for lanes along them, of which there are many. Where their length varies,
 * few rows are as good either way, and where their number does, it does not decide. */
bool has_short_rows(const Kernel *kernel, const DeviceMachine *machine) {
    if (kernel->inner_size >= least_along(kernel, machine)) return false;
    if (varies(kernel, true)) return kernel->outer_size > MOST_VARYING_ROWS;
    return kernel->outer_size >= machine->many_rows || varies(kernel, false);
}

/* The rows of a pointwise kernel (lay_short_axis) are parts enough. */
static bool folds(const Kernel *kernel) {
    for (int s = 0; s < length(kernel->store); s++)
        if (kernel->store[s].mode != STORE_SET) return true;
    for (int i = 0; i < length(kernel->expr); i++)
        if (kernel->expr[i]->op == EX_reduce) return true;
    return false;
}

/* What is folded on the way (a scan) is stored at every point: stores count as loads do. */
static void vote_of_stores(Kernel *kernel, int inner, int outer, int *along_inner,
                           int *along_outer) {
    for (int s = 0; s < length(kernel->store); s++) {
        Expr *place = kernel->store[s].index;
        if (!expr_uses_inner(kernel, place)) continue;
        vote(kernel, place, inner, along_inner);
        vote(kernel, place, outer, along_outer);
    }
}

Form form_of(Kernel *kernel, const DeviceMachine *machine) {
    int inner = length(kernel->axis) > kernel->outer_count ? length(kernel->axis) - 1 : -1;
    int outer = kernel->outer_count - 1, along_inner = 0, along_outer = 0;
    if (inner < 0) return FORM_TILE;
    if (kernel_has_sink(kernel)) return FORM_ROW;
    if (!kernel_has_scan(kernel) && has_short_rows(kernel, machine)) return FORM_TILE;
    if (!folds(kernel) && kernel_in_short_pieces(kernel, inner)) return FORM_TILE;
    for (int i = 0; i < length(kernel->expr); i++) {
        if (kernel->expr[i]->op != EX_load) continue;
        Expr *index = kernel->expr[i]->input[0];
        if (!expr_uses_inner(kernel, index)) continue; /* one for all of a row */
        vote(kernel, index, inner, &along_inner);
        vote(kernel, index, outer, &along_outer);
    }
    if (kernel_has_scan(kernel)) vote_of_stores(kernel, inner, outer, &along_inner, &along_outer);
    bool lanes = kernel->outer_count > 0 && axis_typical(kernel, outer) >= machine->short_row;
    int64_t row = axis_typical(kernel, inner);
    if (row < machine->short_row) along_outer++; /* a row of short pieces */
    if (along_inner == along_outer && row <= WINDOW_MOST) along_outer++;
    return lanes && along_outer > along_inner ? FORM_TILE : FORM_ROW;
}

/* Chunks that may have bins of their own to add to: all of their bins together stay well below the
 * points, so that filling and adding them costs little beside these. */
static int64_t most_bins(const Kernel *kernel, int64_t most) {
    for (int i = 0; i < length(kernel->store); i++) {
        const Store *store = &kernel->store[i];
        int64_t bins = kernel->buffer[store->buffer].numel + 1;
        if (store->mode != STORE_ADD) continue;
        most = least(most, kernel->outer_size * kernel->inner_size / (BIN_SHARE * bins));
        most = least(most, BIN_CHUNKS);
    }
    return most;
}

/* Of its points, each of which reads and writes a buffer once: less of one that is indexed. */
static int64_t traffic(const Kernel *kernel) {
    int64_t bytes = 0, points = kernel->outer_size * kernel->inner_size;
    for (int i = 0; i < length(kernel->buffer); i++) {
        const KernelBuffer *b = &kernel->buffer[i];
        bytes += least(b->numel, points) * (int64_t)cb_dtype_size(b->dtype);
    }
    return bytes;
}

/* Parts of so many points that pay for adding them up, of those that read and write `bytes`. */
static int64_t parts_of(int64_t points, int64_t bytes, const DeviceMachine *machine) {
    int64_t by_points = points / machine->chunk, by_bytes = bytes / machine->chunk_bytes;
    return by_bytes > by_points ? by_bytes : by_points;
}

/* Where the number of rows varies, a row has to be worth it: else a text that grows has split rows
 * from 11 tokens on, whole ones again from 16 on, and each time other code. */
static bool splits_alone(const Kernel *kernel, const DeviceMachine *machine) {
    return !varies(kernel, false) ||
           parts_of(kernel->inner_size, traffic(kernel) / kernel->outer_size, machine) > 1;
}

static int64_t split_of(const Kernel *kernel, const DeviceMachine *machine) {
    bool inner = length(kernel->axis) > kernel->outer_count;
    int64_t enough = kernel->form == FORM_ROW ? machine->rows_busy : machine->tiles_busy;
    if (!inner || kernel->outer_size >= enough || kernel->outer_size == 0) return 1;
    if (!kernel_may_split(kernel) || !folds(kernel) || !splits_alone(kernel, machine)) return 1;
    int64_t first = kernel->axis[kernel->outer_count].size;
    int64_t points = kernel->outer_size * kernel->inner_size;
    int64_t split =
        least(parts_of(points, traffic(kernel), machine), most_bins(kernel, machine->most_chunks));
    if (kernel->form == FORM_TILE) split = least(split, kernel->inner_size / machine->short_row);
    if (split > first) split = first;
    if (split < 2) return 1;
    int64_t chunk = divide_up(first, split);
    return divide_up(first, chunk); /* no empty chunk */
}

/* Parts of the rows of a kernel with sinks: their elements together are few beside the points. */
static int64_t parts_of_rows(const Kernel *kernel, const DeviceMachine *machine) {
    int64_t rows = kernel->outer_size, points = rows * kernel->inner_size, elements = 0;
    for (int s = 0; s < length(kernel->store); s++)
        if (kernel->store[s].mode == STORE_SUM)
            elements += kernel->buffer[kernel->store[s].buffer].numel;
    if (!elements) return 1;
    int64_t parts = least(PARTS, parts_of(points, traffic(kernel), machine));
    if (rows / PART_ROWS > parts) parts = rows / PART_ROWS;
    parts = least(least(parts, rows), points / (PART_SHARE * elements));
    return parts < 2 ? 1 : divide_up(rows, divide_up(rows, parts)); /* no empty part */
}

/* Of a row of a matrix that is read, the row counts. */
static int64_t elements_met(const Kernel *kernel, int buffer) {
    int64_t points = kernel->outer_size * kernel->inner_size, times = 0;
    for (int i = 0; i < length(kernel->expr); i++)
        times += kernel->expr[i]->op == EX_load && kernel->expr[i]->imm.i == buffer;
    for (int s = 0; s < length(kernel->store); s++) times += kernel->store[s].buffer == buffer;
    return least(kernel->buffer[buffer].numel, points * times);
}

static void count_costs(Kernel *kernel) {
    kernel->bytes = kernel->operations = 0;
    for (int i = 0; i < length(kernel->buffer); i++) {
        const KernelBuffer *b = &kernel->buffer[i];
        int64_t bytes = elements_met(kernel, i) * (int64_t)cb_dtype_size(b->dtype);
        kernel->bytes += b->role == BUFFER_INOUT ? 2 * bytes : bytes;
    }
    const bool *live = kernel_live(kernel, kernel->arena);
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (!live[i]) continue;
        bool inner = expr_uses_inner(kernel, e) || e->op == EX_reduce;
        int cost = e->op < EX_axis ? op_info(e->op)->cost : e->op >= EX_reduce;
        if (e->dtype == CB_I64 && e->op == OP_add) cost = 0; /* mostly addresses */
        kernel->operations += cost * kernel->outer_size * (inner ? kernel->inner_size : 1);
    }
}

void choose_form(Kernel *kernel, const DeviceMachine *machine) {
    kernel->form = form_of(kernel, machine);
    kernel->split = split_of(kernel, machine);
    kernel->parts = parts_of_rows(kernel, machine);
    count_costs(kernel);
}
