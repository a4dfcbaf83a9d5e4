/* A kernel made runnable, and its work spread over threads.
 *
 * Not split: one parallel loop over the outer points. Split (few outer points, a long inner range):
 * one parallel loop per pass over (chunk, outer point), after each of which the accumulators of
 * each outer point are combined in chunk order; the number of chunks is the kernel's, so results do
 * not depend on the number of threads. Split, with sums that go to elements: each chunk has bins of
 * its own, which are added up in order (bins.h). In pieces: one parallel loop for each of them.
 *
 *     sum of 2^22 numbers: outer_size 1, split 64: 64 items, 64 slots, then 63 additions */
#include "base/memory.h"
#include "base/parallel.h"
#include "base/round.h"
#include "tensor/tensor.h"
#include "vm/bins.h"

enum {
    GRAIN_BYTES = 64 * 1024,      /* memory traffic that is worth waking a thread for */
    GRAIN_OPERATIONS = 32 * 1024, /* the same in additions */
    STACK_SLOTS = 256,
    PIECES_POINTS = 1024, /* fewer take less time than several programs */
    PIECE_LANES = 8       /* of a piece along the last axis, on average */
};

static const double MOST_GRAIN = 1e15;

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Items that make a piece of work worth a thread. */
static int64_t grain_of(const Kernel *kernel, int64_t items) {
    if (items == 0) return 1;
    double share = 1e30;
    if (kernel->bytes > 0) share = (double)GRAIN_BYTES / (double)kernel->bytes;
    if (kernel->operations > 0) {
        double of_operations = (double)GRAIN_OPERATIONS / (double)kernel->operations;
        if (of_operations < share) share = of_operations;
    }
    double grain = share * (double)items; /* more than items: all of them are a part of one */
    return grain < MOST_GRAIN ? largest(1, (int64_t)grain) : (int64_t)MOST_GRAIN;
}

/* By slot, what launch_run must know of each reduction; the arena of the analysis goes at once. */
static bool copy_reduces(Launch *launch, const Kernel *kernel, Arena *arena) {
    if (arena_guard(arena)) return false;
    KernelInfo info = kernel_analyze(kernel, arena);
    launch->pass_count = info.pass_count;
    launch->reduce_count = length(info.reduce);
    if (launch->reduce_count == 0) return true;
    launch->reduce = memory_alloc(sizeof *launch->reduce * (size_t)launch->reduce_count);
    if (!launch->reduce) return false;
    for (int r = 0; r < launch->reduce_count; r++) {
        const Expr *expr = info.reduce[r];
        launch->reduce[r].dtype = expr->dtype;
        launch->reduce[r].op = expr->imm.i;
        launch->reduce[r].pass = info.expr[expr->id].pass;
    }
    return true;
}

/* What the chunks of a split kernel add to, and what sinks do. false: no memory. */
static bool find_bins(Launch *launch, const Kernel *kernel) {
    int stores = length(kernel->store);
    for (int s = 0; s < stores; s++) {
        const Store *store = &kernel->store[s];
        bool sink = store->mode == STORE_SUM;
        if (!sink && (store->mode != STORE_ADD || launch->split == 1)) continue;
        if (!launch->bins) launch->bins = memory_alloc(sizeof *launch->bins * (size_t)(stores - s));
        if (!launch->bins) return false;
        const KernelBuffer *buffer = &kernel->buffer[store->buffer];
        launch->bins[launch->bins_count++] =
            (LaunchBins){store->buffer, sink, buffer->dtype, buffer->numel};
    }
    return true;
}

/* ---- pieces ---- */

typedef struct Cutting {
    Kernel *kernel[LAUNCH_PIECES];
    int count; /* more than LAUNCH_PIECES: too many */
} Cutting;

/* NULL: none, or too close together along the lanes. */
static int64_t *edges_along(Kernel *kernel, int axis) {
    int64_t *edge = kernel_edges(kernel, axis, kernel->arena);
    int64_t lanes = axis == kernel->outer_count - 1 ? PIECE_LANES : 1;
    return kernel->axis[axis].size < lanes * (length(edge) + 1) ? NULL : edge;
}

static void cut(Cutting *cutting, Kernel *kernel, int axis) {
    int64_t *edge = NULL;
    while (axis >= 0 && !(edge = edges_along(kernel, axis))) axis--;
    if (cutting->count >= LAUNCH_PIECES || !edge) {
        if (cutting->count < LAUNCH_PIECES) cutting->kernel[cutting->count] = kernel;
        cutting->count++;
        return;
    }
    for (int i = 0; i <= length(edge); i++) {
        int64_t low = i ? edge[i - 1] : 0;
        int64_t high = i < length(edge) ? edge[i] : kernel->axis[axis].size;
        cut(cutting, kernel_range(kernel, axis, low, high), axis - 1);
    }
}

/* Conditions on coordinates are masks for every block of lanes, and what they choose from is
 * gathered, an element at a time. Cut where they turn over, the pieces of a padding or a
 * concatenation are copies. Nothing that a piece writes may be read by another one. */
static bool may_cut(const Kernel *kernel) {
    bool plain = length(kernel->axis) == kernel->outer_count && kernel->split <= 1;
    if (!plain || kernel->outer_size < PIECES_POINTS) return false;
    for (int s = 0; s < length(kernel->store); s++)
        if (kernel->store[s].mode != STORE_SET) return false;
    for (int b = 0; b < length(kernel->buffer); b++)
        if (kernel->buffer[b].role == BUFFER_INOUT) return false;
    return true;
}

static bool build_pieces(Launch *launch, const Kernel *kernel, bool oracle, Arena *arena) {
    Cutting cutting = {.count = 0};
    if (arena_guard(arena)) return false;
    cut(&cutting, kernel_over(kernel, arena), kernel->outer_count - 1);
    if (cutting.count < 2 || cutting.count > LAUNCH_PIECES) return true;
    launch->piece = memory_zalloc(sizeof *launch->piece * (size_t)cutting.count);
    if (!launch->piece) return false;
    launch->piece_count = cutting.count;
    for (int i = 0; i < cutting.count; i++) {
        launch->piece[i].outer_size = cutting.kernel[i]->outer_size;
        launch->piece[i].program = program_build(cutting.kernel[i], oracle);
        if (!launch->piece[i].program) return false;
    }
    return true;
}

static bool take_pieces(Launch *launch, const Kernel *kernel, bool oracle) {
    if (!may_cut(kernel)) return true;
    Arena *arena = arena_new();
    bool done = arena && build_pieces(launch, kernel, oracle, arena);
    arena_free(arena);
    return done;
}

/* ---- making ---- */

bool launch_init(Launch *launch, const Kernel *kernel, KernelFunction *function, bool oracle) {
    *launch = (Launch){.function = function,
                       .form = kernel->form,
                       .outer_size = kernel->outer_size,
                       .split = kernel->split > 1 ? kernel->split : 1,
                       .parts = kernel->parts,
                       .pass_count = 1,
                       .unit = 1,
                       .buffer_count = length(kernel->buffer)};
    if (!find_bins(launch, kernel)) goto failed;
    launch->grain = grain_of(kernel, launch->outer_size * launch->split);
    if (launch->split > 1) {
        Arena *arena = arena_new();
        bool ok = arena && copy_reduces(launch, kernel, arena);
        arena_free(arena);
        if (!ok) goto failed;
    }
    if (!function) {
        launch->program = program_build(kernel, oracle);
        if (!launch->program || !take_pieces(launch, kernel, oracle)) goto failed;
        launch->unit = program_unit(launch->program);
        launch->grain = round_up(launch->grain, launch->unit);
    }
    return true;
failed:
    launch_free(launch);
    return false;
}

void launch_free(Launch *launch) {
    program_free(launch->program);
    for (int i = 0; i < launch->piece_count; i++) program_free(launch->piece[i].program);
    memory_free(launch->piece);
    memory_free(launch->reduce);
    memory_free(launch->bins);
    *launch = (Launch){0};
}

size_t launch_bytes(const Launch *launch) {
    size_t bytes = program_bytes(launch->program);
    for (int i = 0; i < launch->piece_count; i++) bytes += program_bytes(launch->piece[i].program);
    return bytes;
}

/* ---- running ---- */

void launch_part(const Launch *launch, void *const *buffer, int64_t low, int64_t high, int pass,
                 void *slot) {
    if (launch->function)
        launch->function(buffer, low, high, pass, slot);
    else
        program_run(launch->program, buffer, low, high, pass, slot);
}

typedef struct Range { /* what one parallel loop hands to its threads */
    const Launch *launch;
    const LaunchPiece *piece; /* run_piece alone */
    void *const *buffer;
    int pass;
    void *slot;
} Range;

static void run_range(void *user, int64_t low, int64_t high) {
    const Range *range = user;
    launch_part(range->launch, range->buffer, low, high, range->pass, range->slot);
}

static void run_piece(void *user, int64_t low, int64_t high) {
    const Range *range = user;
    program_run(range->piece->program, range->buffer, low, high, 0, NULL);
}

static void run_pieces(const Launch *launch, void *const *buffer) {
    for (int i = 0; i < launch->piece_count; i++) {
        Range range = {.piece = &launch->piece[i], .buffer = buffer};
        parallel_for(range.piece->outer_size, launch->grain, run_piece, &range);
    }
}

typedef struct Combine { /* the chunks of one reduction */
    Op op;
    cb_dtype dtype;
    Scalar *slot; /* of chunk 0; those of the next chunk are outer_size further */
    int64_t outer_size, split;
} Combine;

/* Folds the chunks of outer points [low, high), in order, into the slots of chunk 0. */
static void combine_range(void *user, int64_t low, int64_t high) {
    const Combine *c = user;
    for (int64_t chunk = 1; chunk < c->split; chunk++) {
        const Scalar *part = c->slot + chunk * c->outer_size + low;
        scalar_fold(c->op, c->dtype, c->slot + low, part, high - low);
    }
}

static void combine(const Launch *launch, int reduce, Scalar *slot) {
    Combine c = {.op = launch->reduce[reduce].op,
                 .dtype = launch->reduce[reduce].dtype,
                 .slot = slot + reduce * launch->outer_size * launch->split,
                 .outer_size = launch->outer_size,
                 .split = launch->split};
    int64_t grain = GRAIN_BYTES / (launch->split * (int64_t)sizeof(Scalar));
    parallel_for(launch->outer_size, largest(grain, 1), combine_range, &c);
}

void launch_combine(const Launch *launch, int pass, Scalar *slot) {
    for (int r = 0; r < launch->reduce_count; r++)
        if (launch->reduce[r].pass == pass) combine(launch, r, slot);
}

static void run_split(const Launch *launch, void *const *buffer, Scalar *slot) {
    Range range = {.launch = launch, .buffer = buffer, .slot = slot};
    int64_t items = launch->outer_size * launch->split;
    for (range.pass = 0; range.pass < launch->pass_count; range.pass++) {
        parallel_for(items, launch->grain, run_range, &range);
        launch_combine(launch, range.pass, slot);
    }
    run_range(&range, 0, launch->outer_size);
}

bool launch_run(const Launch *launch, void *const *buffer) {
    if (launch->piece) {
        run_pieces(launch, buffer);
        return true;
    }
    if (launch->bins) return bins_run(launch, buffer);
    if (launch->split == 1) {
        Range range = {.launch = launch, .buffer = buffer};
        parallel_for(launch->outer_size, launch->grain, run_range, &range);
        return true;
    }
    int64_t slots = launch->outer_size * launch->split * launch->reduce_count;
    Scalar stack[STACK_SLOTS];
    if (slots <= STACK_SLOTS) {
        run_split(launch, buffer, stack);
        return true;
    }
    Storage *storage = storage_new((size_t)slots * sizeof(Scalar));
    if (!storage) return false;
    run_split(launch, buffer, storage->data);
    storage_release(storage);
    return true;
}
