/* Convolution of bf16 with channels last in the result, on AMX tiles (conv_amx.c).
 *
 *     out[p][o] = sum over positions q, channels i of x[p * stride + q][i] * weight[o][q][i]
 *
 * A tile holds 16 positions whose rows lie at one stride from each other. Tasks therefore copy
 * their part of x, with its padding (conv_tiles_copy.c), and number their positions over the whole
 * lines of the copy; what is summed past the end of a line is dropped.
 *
 *     task = panels of out channels x slabs of positions (lines of one image)
 *       copy the slabs
 *       for each 32 positions (x from L1), each panel of 32 out channels (weights from L2):
 *         all of k at once; meanwhile the sums before are narrowed, with bias, residual and relu
 *       other epilogues, at the end
 *
 * Weights are packed as [group][panel][step][two tiles]. The order of a sum is that of its steps,
 * whatever the tasks are. */
#include "cpu/conv_tiles.h"
#include "base/parallel.h"
#include "cpu/gemm_bf16.h"
#include <string.h>

enum {
    CACHE_BYTES = 1280 * 1024,  /* of x and of weights in a task: they stay in L2 */
    WEIGHT_BYTES = 1024 * 1024, /* of the weights, at the most */
    LEAST_CHANNELS = 8,         /* fewer make a line of the kernel too short */
    MOST_REST = 4,              /* elements of a line of the kernel that are worth a tail */
    TASKS = 4,                  /* for each thread, unless they come out even */
    ALIGNMENT = 64
};

/* ---- what is computed how ----------------------------------------------------------------- */

static const TileKernels *find_kernels(void) {
#if defined(CARBIDE_HAVE_AMX)
    if (gemm_bf16() == &gemm_bf16_amx) return &conv_tiles_amx;
#endif
    return NULL;
}

bool conv_fits_tiles(const ConvolutionTask *s) {
    bool bf16 = s->dtype == CB_BF16 || (s->dtype == CB_F32 && s->reduced);
    if (!bf16 || !s->channels_last || !find_kernels()) return false;
    int64_t inner = s->channels / s->groups;
    return inner >= LEAST_CHANNELS ||
           (s->groups == 1 && s->dilation[2] == 1 && inner * s->kernel[2] >= LEAST_CHANNELS);
}

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* One position of the kernel at stride 1: all images are one column of positions. False: they do
 * not lie so, or not as tiles want them. */
static bool flatten(ConvolutionTask *s) {
    int64_t step = s->x_spatial[2], total = s->batch;
    for (int d = 2; d >= 0; d--) {
        bool single = s->kernel[d] == 1 && s->stride[d] == 1 && s->padding[d] == 0;
        if (!single || (s->in_size[d] > 1 && s->x_spatial[d] != step)) return false;
        step *= s->in_size[d], total *= s->in_size[d];
    }
    if (s->batch > 1 && s->x_batch != step) return false;
    if (s->channels / s->groups % TILE_STEP || s->x_channel != 1 || total < TILE_SIDE) return false;
    s->batch = 1;
    for (int d = 0; d < 3; d++) {
        s->in_size[d] = s->out_size[d] = d == 1 ? total : 1;
        if (d != 1) s->dilation[d] = 1;
    }
    s->x_spatial[1] = s->x_spatial[2];
    return true;
}

/* Rows of a line of the kernel, and whether its last elements go to the tail. */
static void set_lines(Tiles *t) {
    int64_t run = t->inner * t->task.kernel[2], rest = run % TILE_STEP;
    bool tail = rest > 0 && rest <= MOST_REST && run > TILE_STEP;
    t->form = LINES;
    t->taps = t->task.kernel[0] * t->task.kernel[1];
    t->chunks = tail ? run / TILE_STEP : divide_up(run, TILE_STEP);
    t->rest = tail ? rest : 0;
    t->tail = divide_up(t->taps * t->rest, TILE_STEP);
}

static void choose_form(Tiles *t) {
    const ConvolutionTask *s = &t->task;
    bool column = flatten(&t->task);
    int64_t chunks = divide_up(t->inner, TILE_STEP);
    int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    if (!column && t->inner % TILE_STEP && s->dilation[2] == 1) set_lines(t);
    if (t->form != LINES || (t->taps * t->chunks + t->tail) * 4 > taps * chunks * 3) {
        t->form = column ? IN_PLACE : PLANES;
        t->taps = taps, t->chunks = chunks, t->rest = t->tail = 0;
    }
    t->steps = t->taps * t->chunks + t->tail;
    for (int d = 0; d < 2; d++) {
        t->phase[d] = t->form == LINES && d == 1 ? 1 : s->stride[1 + d];
        t->phases[d] = least(t->phase[d], (s->kernel[1 + d] - 1) * s->dilation[1 + d] + 1);
    }
    if (t->form == LINES) t->phases[1] = 1;
    t->planes = s->kernel[0] * t->phases[0] * t->phases[1];
    t->pitch = s->out_size[2];
    int64_t reach = (s->kernel[2] - 1) * s->dilation[2];
    if (t->form != PLANES) return;
    t->shares = s->stride[2] == 1 && reach >= s->padding[2];
    t->pitch = t->shares ? s->in_size[2] + s->padding[2] : t->pitch + reach / t->phase[1];
}

/* What a task reads of x over and over. */
static int64_t read_for(const Tiles *t, int64_t band) {
    return t->form == IN_PLACE ? band * t->inner * 2 : tile_copy_bytes(t, band);
}

static void set_band(Tiles *t, int64_t band) {
    t->bands = divide_up(t->task.out_size[1], band);
    t->band = divide_up(t->task.out_size[1], t->bands);
    if (t->pitch == 1 && t->bands > 1) {
        t->band = round_up(t->band, TILE_SIDE); /* whole tiles of a column */
        t->bands = divide_up(t->task.out_size[1], t->band);
    }
    t->slabs = t->task.batch * t->task.out_size[0] * t->bands;
    t->slabs_together = 1;
}

static int64_t tasks_of(const Tiles *t) {
    return t->task.groups * divide_up(t->panels, t->panels_together) *
           divide_up(t->slabs, t->slabs_together);
}

static bool is_enough(const Tiles *t) {
    int64_t threads = parallel_threads(), tasks = tasks_of(t);
    return tasks >= TASKS * threads || tasks % threads == 0;
}

/* Tasks whose parts of x and of the weights stay in L2. Where those are too few, the smaller of the
 * two is left whole: all threads read it. */
static void cut(Tiles *t) {
    int64_t band = t->task.out_size[1], least_band = divide_up(TILE_SPAN, t->pitch);
    int64_t panels = largest(1, least(t->panels, WEIGHT_BYTES / t->panel_bytes));
    t->panels_together = divide_up(t->panels, divide_up(t->panels, panels));
    int64_t most = CACHE_BYTES - least(WEIGHT_BYTES, t->panels_together * t->panel_bytes);
    int64_t one = read_for(t, 1), more = read_for(t, 2) - one;
    if (read_for(t, band) > most) band = largest(least_band, (most - one) / more + 1);
    set_band(t, band);
    int64_t halves = divide_up((t->band - 1) * t->pitch + t->task.out_size[2], TILE_SIDE);
    if (t->form != IN_PLACE && halves % 2 && 2 * tile_copy_bytes(t, t->band) <= most)
        t->slabs_together = least(2, t->slabs);
    bool heavy = t->panels * t->panel_bytes > t->slabs * read_for(t, t->band);
    while (!is_enough(t)) {
        if (t->slabs_together > 1)
            t->slabs_together = 1;
        else if (t->panels_together > 1 && (heavy || t->band <= least_band))
            t->panels_together = divide_up(t->panels_together, 2);
        else if (t->band > least_band)
            set_band(t, divide_up(t->band, 2));
        else
            break;
    }
    t->plane_lines = tile_plane_lines(t, t->band);
    t->copied = tile_copy_bytes(t, t->band);
}

static Tiles tiles_of(const Convolution *common) {
    Tiles t = {.common = common, .kernel = find_kernels(), .task = common->task};
    t.inner = common->task.channels / common->task.groups;
    choose_form(&t);
    t.panels = divide_up(common->outputs, TILE_SPAN);
    t.panel_bytes = t.steps * TILE_STEP_BYTES;
    cut(&t);
    return t;
}

/* ---- weights ------------------------------------------------------------------------------ */

/* Where the weight of channel i at kernel position q stands among the rows of steps. */
static int64_t place_of(const Tiles *t, int64_t q, int64_t i) {
    int64_t tap = q, at = i;
    if (t->form == LINES) tap = q / t->task.kernel[2], at += q % t->task.kernel[2] * t->inner;
    int64_t left = at - t->chunks * TILE_STEP;
    return left < 0 ? (at / TILE_STEP * t->taps + tap) * TILE_STEP + at % TILE_STEP
                    : t->taps * t->chunks * TILE_STEP + tap * t->rest + left;
}

static void pack_panel(const Tiles *t, uint16_t *to, const uint16_t *weight, int lanes) {
    const ConvolutionTask *s = &t->task;
    int64_t positions = s->kernel[0] * s->kernel[1] * s->kernel[2];
    memset(to, 0, (size_t)t->panel_bytes);
    for (int64_t q = 0; q < positions; q++) {
        int64_t at[3] = {q / s->kernel[2] / s->kernel[1], q / s->kernel[2] % s->kernel[1],
                         q % s->kernel[2]};
        const uint16_t *from = weight;
        for (int d = 0; d < 3; d++) from += at[d] * s->weight_spatial[d];
        for (int64_t i = 0; i < t->inner; i++, from += s->weight_in) {
            int64_t place = place_of(t, q, i), k = place % TILE_STEP;
            uint16_t *row =
                to + place / TILE_STEP * TILE_STEP_BYTES / 2 + k / 2 * TILE_ROW_BYTES / 2 + k % 2;
            for (int j = 0; j < lanes; j++)
                row[j / TILE_SIDE * TILE_BYTES / 2 + j % TILE_SIDE * 2] = from[j * s->weight_out];
        }
    }
}

typedef struct Packing {
    const Tiles *tiles;
    char *to;
} Packing;

static void pack_panels(void *user, int64_t low, int64_t high) {
    const Packing *p = user;
    const Tiles *t = p->tiles;
    for (int64_t i = low; i < high; i++) {
        int64_t group = i / t->panels, output = i % t->panels * TILE_SPAN;
        int64_t from =
            t->task.weight_offset + (group * t->common->outputs + output) * t->task.weight_out;
        pack_panel(t, (uint16_t *)(p->to + i * t->panel_bytes),
                   (const uint16_t *)t->common->weight + from,
                   (int)least(TILE_SPAN, t->common->outputs - output));
    }
}

/* The loads of the last panel go on for two tiles. */
Storage *conv_tiles_pack(Convolution *common) {
    Tiles t = tiles_of(common);
    int64_t bytes = t.task.groups * t.panels * t.panel_bytes;
    Storage *storage = storage_new((size_t)(bytes + TILE_STEP_BYTES));
    if (!storage) return NULL;
    Packing packing = {&t, storage->data};
    memset(packing.to + bytes, 0, TILE_STEP_BYTES);
    parallel_for(t.task.groups * t.panels, divide_up(128 * 1024, t.panel_bytes), pack_panels,
                 &packing);
    return storage;
}

/* ---- slabs -------------------------------------------------------------------------------- */

typedef struct TilesPart {
    const Tiles *tiles;
    int64_t group, panel, panels, slabs;
    TileSlab slab[2];
    char *copy, *scratch;     /* of the slabs; for the copying */
    int64_t held, held_group; /* the slab, and group, that the copy begins with; or -1 */
    float *sum;               /* two blocks, in turn */
    TileSums waiting;
} TilesPart;

static void open_slab(const Tiles *t, TileSlab *slab, int64_t number) {
    slab->first = number % t->bands * t->band;
    slab->lines = least(t->band, t->task.out_size[1] - slab->first);
    slab->z = number / t->bands % t->task.out_size[0];
    slab->image = number / t->bands / t->task.out_size[0];
}

static void copy_slabs(TilesPart *task, int64_t first) {
    const Tiles *t = task->tiles;
    bool held = task->held == first && task->held_group == task->group;
    for (int64_t i = 0; i < task->slabs; i++) {
        TileSlab *slab = &task->slab[i];
        open_slab(t, slab, first + i);
        slab->copy = task->copy + i * t->copied;
        if (!held) tile_copy(t, slab, task->group, task->scratch);
    }
    task->held = first, task->held_group = task->group;
}

/* ---- blocks of positions ------------------------------------------------------------------ */

/* The rows of 16 positions from number `at` of the slab on. */
static const char *rows_at(const TilesPart *task, const TileSlab *slab, int64_t at) {
    const Tiles *t = task->tiles;
    if (t->form != IN_PLACE) return slab->copy + at * t->sweep.stride;
    int64_t from = t->task.x_offset + task->group * t->inner;
    return t->common->x + 2 * from + (slab->first + at) * t->sweep.stride;
}

/* Adds the half block that begins at number `at`; false: it has no results. */
static bool add_half(const TilesPart *task, const TileSlab *slab, int64_t at, TileBlock *block) {
    const Tiles *t = task->tiles;
    const ConvolutionTask *s = &t->task;
    int half = block->low != NULL, before = block->count, skipped = 0;
    int64_t all = slab->lines * t->pitch, first = at;
    if (t->form == IN_PLACE && slab->first + at + TILE_SIDE > s->out_size[1]) {
        first = s->out_size[1] - TILE_SIDE - slab->first; /* x ends: some positions again */
        skipped = (int)(at - first);
    }
    int64_t y = at / t->pitch, x = at % t->pitch;
    int64_t line = ((slab->image * s->out_size[0] + slab->z) * s->out_size[1] + slab->first + y) *
                   s->out_size[2];
    for (int lane = skipped; lane < TILE_SIDE && at < all; lane++, at++) {
        if (x < s->out_size[2]) {
            block->lane[block->count] = (uint8_t)(half * TILE_SIDE + lane);
            block->at[block->count++] = (line + x) * s->out_channels;
        }
        if (++x == t->pitch) x = 0, line += s->out_size[2];
    }
    if (block->count == before) return false;
    *(half ? &block->high : &block->low) = rows_at(task, slab, first);
    return true;
}

static void multiply(TilesPart *task, const TileBlock *block) {
    const Tiles *t = task->tiles;
    for (int64_t p = task->panel; p < task->panel + task->panels; p++) {
        float *sum = task->sum;
        if (task->waiting.block && task->waiting.sum == sum) sum += TILE_SPAN * TILE_SPAN;
        const char *weight = t->common->packed + (task->group * t->panels + p) * t->panel_bytes;
        TileSums now = {.block = block, .sum = sum};
        now.channel = task->group * t->common->outputs + p * TILE_SPAN;
        now.columns = (int)least(TILE_SPAN, t->common->outputs - p * TILE_SPAN);
        t->kernel->multiply(&t->sweep, &now, weight, t->common->end, &task->waiting);
        task->waiting = now;
    }
}

static void multiply_slabs(TilesPart *task) {
    const Tiles *t = task->tiles;
    TileBlock block[2];
    int turn = 0;
    block[0].low = block[0].high = NULL, block[0].count = 0;
    for (int64_t i = 0; i < task->slabs; i++) {
        const TileSlab *slab = &task->slab[i];
        for (int64_t at = 0; at < slab->lines * t->pitch; at += TILE_SIDE) {
            if (!add_half(task, slab, at, &block[turn]) || !block[turn].high) continue;
            multiply(task, &block[turn]);
            turn = !turn;
            block[turn].low = block[turn].high = NULL, block[turn].count = 0;
        }
    }
    if (block[turn].low) multiply(task, &block[turn]);
    t->kernel->end(t->common->end, &task->waiting);
}

/* ---- tasks -------------------------------------------------------------------------------- */

/* An epilogue that End cannot stand for. */
static void finish(const TilesPart *task) {
    const Tiles *t = task->tiles;
    const Convolution *c = t->common;
    const ConvolutionTask *s = &t->task;
    int64_t channel = task->panel * TILE_SPAN;
    int64_t columns = least(task->panels * TILE_SPAN, c->outputs - channel);
    for (int64_t i = 0; i < task->slabs; i++) {
        const TileSlab *slab = &task->slab[i];
        int64_t line = (slab->image * s->out_size[0] + slab->z) * s->out_size[1] + slab->first;
        conv_epilogue(c,
                      line * s->out_size[2] * s->out_channels + task->group * c->outputs + channel,
                      s->out_channels, slab->lines * s->out_size[2], columns);
    }
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const Tiles *t = user;
    _Alignas(ALIGNMENT) float sum[2 * TILE_SPAN * TILE_SPAN];
    int64_t past = (TILE_SIDE + t->task.padding[2]) * TILE_ROW_BYTES; /* rows that are read, too */
    int64_t copies = t->slabs_together * t->copied + past;
    int64_t parts = divide_up(t->slabs, t->slabs_together);
    int64_t blocks = divide_up(t->panels, t->panels_together);
    Storage *storage = storage_new((size_t)(copies + tile_scratch_bytes(t)));
    if (!storage) {
        atomic_store_explicit(t->common->failed, true, memory_order_relaxed);
        return;
    }
    TilesPart task = {.tiles = t, .copy = storage->data, .held = -1, .sum = sum};
    task.scratch = task.copy + copies;
    for (int64_t i = 0; i < t->slabs_together; i++) tile_clear(t, task.copy + i * t->copied);
    t->common->type->begin();
    for (int64_t i = low; i < high; i++) { /* positions innermost: the weights stay in the cache */
        int64_t first = i % parts * t->slabs_together;
        task.group = i / parts / blocks;
        task.panel = i / parts % blocks * t->panels_together;
        task.panels = least(t->panels_together, t->panels - task.panel);
        task.slabs = least(t->slabs_together, t->slabs - first);
        copy_slabs(&task, first);
        multiply_slabs(&task);
        if (t->common->epilogue) finish(&task);
    }
    t->common->type->end();
    storage_release(storage);
}

/* ---- entry -------------------------------------------------------------------------------- */

static void set_sweep(Tiles *t, int64_t *offset) {
    tile_offsets(t, offset);
    offset[t->steps] = 0; /* the loads go on for a tile */
    t->sweep = (TileSteps){.count = t->steps, .stride = TILE_ROW_BYTES, .offset = offset};
    if (t->form == IN_PLACE) t->sweep.stride = 2 * t->task.x_spatial[1];
}

void conv_tiles_run(Convolution *common) {
    Tiles t = tiles_of(common);
    Storage *storage = storage_new((size_t)(t.steps + 1) * sizeof(int64_t));
    if (!storage) {
        atomic_store_explicit(common->failed, true, memory_order_relaxed);
        return;
    }
    set_sweep(&t, storage->data);
    int64_t products = t.panels * TILE_SPAN * t.steps * TILE_STEP * t.slabs * t.band * t.pitch;
    int64_t tasks = tasks_of(&t);
    parallel_for(tasks, divide_up(CONV_TASK_PRODUCTS, divide_up(products, tasks)), run_tasks, &t);
    storage_release(storage);
}
