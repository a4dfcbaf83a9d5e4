/* A product in packed panels -> the product, blocked and threaded, with the epilogue run on each
 * finished piece.
 *
 * The work is cut into tasks (batch, row block, column block); a task computes its piece of the
 * result over the whole of k, KC at a time:
 *
 *     for each k block:       pack a row block of A (stays in L2)
 *       for some column panels: pack them of B (one stays in L1, several read together in L2)
 *         for each row panel:     register tile, panel by panel
 *       after the last k block: narrow to f16, bf16; epilogue
 *
 * When several row blocks need the same B (or several column blocks the same A) it is packed once,
 * by all threads, before the tasks; what a thread packs itself it keeps for its next task. Where k
 * is cut depends on k alone and every element sums in order of k, so that neither the number of
 * threads nor the cut into tasks changes a result. f16, and bf16 where the processor does not
 * multiply it, are widened while packing (gemm_type.c); both are summed in an f32 scratch of the
 * task. */
#include "base/parallel.h"
#include "base/round.h"
#include "cpu/gemm_internal.h"

enum {
    BLOCK_BYTES = 160 * 1024,        /* packed rows of A in one task: a part of L2 */
    SINGLE_BYTES = 512 * 1024,       /* an A this small is one block: then B is packed on the fly */
    SHARED_BYTES = 32 << 20,         /* packed A or B that tasks share */
    OWN_BYTES = 4 << 20,             /* a packed A larger than this is not shared by threads
                                      * alone */
    GROUP_BYTES = 96 * 1024,         /* panels of B that are packed at once: a part of L2 */
    TOGETHER = 8,                    /* panels that are packed at once for all tasks */
    ONCE_ROWS = 256,                 /* of a task whose sums are done after one k block */
    FINISH_BYTES = 128 * 1024,       /* a piece of the result that the epilogue still finds in L2 */
    FINISH_ROW = 512,                /* elements of its rows at the least, where there are more:
                                      * each is a call of the epilogue, unless rows are whole */
    FINISH_ELEMENTS = 1024,          /* narrowed before the epilogue takes them, or one row of the
                                 * piece */
    TASK_PRODUCTS = 250 * 1000,      /* multiplications that are worth waking a thread for */
    BATCH_PRODUCTS = 4 * 1000 * 1000 /* from here on one batch item feeds all threads */
};

typedef struct GemmJob {
    const Gemm *gemm;
    int64_t k_block, row_block, column_block, row_blocks, column_blocks;
    int64_t panel_rows; /* in each panel of A, of the type's rows that it has room for */
    int64_t group;      /* columns that are packed at once, where each task packs its own */
    bool rows_first;    /* a thread's tasks go along rows, with the columns that it holds */
    int64_t batch_low, batch_count;
    int64_t k_low, k_high, n_low, n_high; /* what this round of tasks covers */
    void *packed_a, *packed_b;            /* shared, or NULL: each task packs its own */
} GemmJob;

typedef struct Held { /* what was packed last: the next piece may want it, too */
    int64_t batch, lane, k;
} Held;

typedef struct GemmSpace { /* space of one thread */
    Storage *storage;
    char *a, *b;
    Held of_a, of_b;
    char *converted; /* one panel in its memory order */
    char *sum;       /* of the piece, where sums are narrowed */
} GemmSpace;

/* ---- shared packing ---- */

/* Bytes of one lane of a panel of a whole k block. */
static int64_t lane_bytes(const GemmJob *job) {
    const Gemm *gemm = job->gemm;
    return job->k_block / gemm->type->together * (int64_t)gemm->element;
}

/* Where a panel of a shared pack begins: k blocks outside, panels inside, all of full width. */
static char *shared_panel(const GemmJob *job, void *packed, int64_t panels, int width,
                          int64_t k_index, int64_t panel) {
    return (char *)packed + (k_index * panels + panel) * width * lane_bytes(job);
}

typedef struct SharedPack {
    const GemmJob *job;
    GemmLanes all;                    /* of the matrix */
    int64_t panels, together, groups; /* panels that are packed at once, and runs of so many */
    void *to;
} SharedPack;

static void pack_shared_range(void *user, int64_t low, int64_t high) {
    const SharedPack *pack = user;
    const GemmJob *job = pack->job;
    const Gemm *gemm = job->gemm;
    int width = gemm_width(gemm, pack->all.of_a);
    _Alignas(64) char converted[GEMM_MAX_WIDTH * GEMM_K_BYTES];
    for (int64_t i = low; i < high; i++) {
        int64_t k_index = i / pack->groups, panel = i % pack->groups * pack->together;
        int64_t k = k_index * job->k_block, lane = panel * pack->all.each;
        GemmLanes l = pack->all;
        l.in += (lane * l.lane_stride + (job->k_low + k) * l.k_stride) * gemm_bytes(gemm, l.of_a);
        l.lanes = least(pack->together * l.each, l.lanes - lane);
        l.k = least(job->k_block, job->k_high - job->k_low - k);
        gemm_pack_lanes(gemm, shared_panel(job, pack->to, pack->panels, width, k_index, panel),
                        width * lane_bytes(job), &l, converted);
    }
}

static void pack_shared(const GemmJob *job, bool of_a) {
    const Gemm *gemm = job->gemm;
    const MatmulTask *s = &gemm->task;
    int64_t a, b, blocks = divide_up(job->k_high - job->k_low, job->k_block);
    gemm_batch_offsets(s, job->batch_low, &a, &b);
    SharedPack pack = {.job = job, .to = of_a ? job->packed_a : job->packed_b};
    if (of_a)
        pack.all = (GemmLanes){
            true, gemm->a + a * gemm->input_bytes, s->a_m, s->a_k, s->m, job->panel_rows, 0};
    else
        pack.all = (GemmLanes){false,
                               gemm->b + (b + job->n_low * s->b_n) * gemm->b_bytes,
                               s->b_n,
                               s->b_k,
                               job->n_high - job->n_low,
                               gemm->type->columns,
                               0};
    int width = gemm_width(gemm, of_a);
    pack.panels = divide_up(pack.all.lanes, pack.all.each);
    pack.together = pack.all.lane_stride == 1 ? least(pack.panels, TOGETHER) : 1;
    pack.groups = divide_up(pack.panels, pack.together);
    parallel_for(blocks * pack.groups, divide_up(128 * 1024, pack.together * width * GEMM_K_BYTES),
                 pack_shared_range, &pack);
}

/* ---- one task ---- */

typedef struct GemmPart { /* rows and columns of one task */
    int64_t batch, row, rows, column, columns, a_offset, b_offset;
} GemmPart;

/* From row to row, where the sums of a piece are. */
static int64_t sum_stride(const Gemm *gemm, const GemmPart *piece) {
    return gemm->narrow ? piece->columns + GEMM_SUM_GAP : gemm->task.n;
}

/* Where the sums of a piece are: in the result, or in the thread's scratch. */
static char *sum_at(const Gemm *gemm, const GemmPart *piece, const GemmSpace *own, int64_t row,
                    int64_t column) {
    int64_t first = (piece->batch * gemm->task.m + piece->row) * gemm->task.n + piece->column;
    char *sum = gemm->narrow ? own->sum : gemm->out + first * (int64_t)gemm->element;
    int64_t stride = sum_stride(gemm, piece);
    return sum + (row * stride + column - piece->column) * (int64_t)gemm->element;
}

/* Rows of the piece are done in columns [low, high): narrow them, run the epilogue, on a few rows
 * at a time: the epilogue finds what was narrowed in L1. */
static void finish(const Gemm *gemm, const GemmPart *piece, const GemmSpace *own, int64_t low,
                   int64_t high) {
    int64_t row = piece->batch * gemm->task.m + piece->row, n = gemm->task.n;
    int64_t few = gemm->narrow ? divide_up(FINISH_ELEMENTS, high - low) : piece->rows;
    for (int64_t r = 0; r < piece->rows; r += few) {
        int64_t rows = least(few, piece->rows - r);
        for (int64_t i = r; i < r + rows && gemm->narrow; i++)
            gemm->narrow(sum_at(gemm, piece, own, i, low),
                         gemm->out + ((row + i) * n + low) * gemm->input_bytes, high - low);
        gemm_epilogue(gemm, row + r, rows, low, high - low);
    }
}

/* Whether it is packed already; from here on it is. */
static bool holds(Held *held, Held wanted) {
    bool same = held->batch == wanted.batch && held->lane == wanted.lane && held->k == wanted.k;
    *held = wanted;
    return same;
}

/* The packed rows of the piece for k block [k, k + count): element 0 of its first panel. */
static const char *rows_of_a(const GemmJob *job, const GemmPart *piece, GemmSpace *own, int64_t k,
                             int64_t count) {
    const Gemm *gemm = job->gemm;
    const MatmulTask *task = &gemm->task;
    int width = gemm->type->rows;
    int64_t each = job->panel_rows;
    if (job->packed_a)
        return shared_panel(job, job->packed_a, divide_up(task->m, each), width,
                            (k - job->k_low) / job->k_block, piece->row / each);
    Held wanted = {piece->batch, piece->row, k};
    if (holds(&own->of_a, wanted)) return own->a;
    int64_t from = piece->a_offset + piece->row * task->a_m + k * task->a_k;
    GemmLanes l = {
        true, gemm->a + from * gemm->input_bytes, task->a_m, task->a_k, piece->rows, each, count};
    gemm_pack_lanes(gemm, own->a, width * lane_bytes(job), &l, own->converted);
    return own->a;
}

static const char *shared_panel_of_b(const GemmJob *job, int64_t column, int64_t k) {
    int width = job->gemm->type->columns;
    return shared_panel(job, job->packed_b, divide_up(job->n_high - job->n_low, width), width,
                        (k - job->k_low) / job->k_block, (column - job->n_low) / width);
}

/* The panel of B that begins with a column, of `columns` that are packed together. */
static const char *panels_of_b(const GemmJob *job, const GemmPart *piece, GemmSpace *own,
                               int64_t column, int64_t columns, int64_t k, int64_t count) {
    const Gemm *gemm = job->gemm;
    const MatmulTask *task = &gemm->task;
    int width = gemm->type->columns;
    if (job->packed_b) return shared_panel_of_b(job, column, k);
    Held wanted = {piece->batch, column, k};
    if (holds(&own->of_b, wanted)) return own->b;
    int64_t from = piece->b_offset + column * task->b_n + k * task->b_k;
    GemmLanes l = {false, gemm->b + from * gemm->b_bytes, task->b_n, task->b_k, columns, width,
                   count};
    gemm_pack_lanes(gemm, own->b, width * lane_bytes(job), &l, own->converted);
    return own->b;
}

typedef struct Panel { /* of B, and the rows of A that it meets */
    const char *a, *b;
    int64_t k, count, column;
    int columns;
} Panel;

/* The panel of a packed B that comes after p, which is read soon; or NULL. */
static const char *panel_after(const GemmJob *job, const GemmPart *piece, const Panel *p) {
    int64_t column = p->column + p->columns, k = p->k;
    if (!job->packed_b || !job->gemm->type->tile_ahead) return NULL;
    if (column >= piece->column + piece->columns) column = piece->column, k += p->count;
    return k < job->k_high ? shared_panel_of_b(job, column, k) : NULL;
}

/* The panel times all rows of the piece. A packed B comes from memory; while the rows are at this
 * panel the processor is asked for the next one, an equal share with each tile. */
static void multiply_panel(const GemmJob *job, const GemmPart *piece, const GemmSpace *own,
                           Panel p) {
    const Gemm *gemm = job->gemm;
    const GemmType *type = gemm->type;
    int64_t stride = sum_stride(gemm, piece);
    GemmAhead ahead = {panel_after(job, piece, &p), type->columns * lane_bytes(job), 0,
                       divide_up(piece->rows, job->panel_rows)};
    const char *a = p.a;
    for (int64_t r = 0; r < piece->rows; r += job->panel_rows) {
        char *sum = sum_at(gemm, piece, own, r, p.column);
        int rows = (int)least(job->panel_rows, piece->rows - r);
        if (ahead.panel)
            type->tile_ahead(p.count, a, p.b, sum, stride, rows, p.columns, p.k > 0, &ahead);
        else
            type->tile(p.count, a, p.b, sum, stride, rows, p.columns, p.k > 0);
        ahead.part++, a += type->rows * lane_bytes(job);
    }
}

static void run_piece(const GemmJob *job, const GemmPart *piece, GemmSpace *own) {
    const Gemm *gemm = job->gemm;
    const GemmType *type = gemm->type;
    int64_t high = piece->column + piece->columns;
    int64_t piece_columns = FINISH_BYTES / (int64_t)gemm->element / piece->rows;
    if (gemm->narrow) piece_columns = piece->columns; /* long runs of a row, from the scratch */
    for (int64_t k = job->k_low; k < job->k_high; k += job->k_block) {
        int64_t count = least(job->k_block, job->k_high - k);
        bool last = k + count == gemm->task.k;
        const char *a = rows_of_a(job, piece, own, k, count), *b = NULL;
        int64_t done = piece->column;
        for (int64_t j = piece->column; j < high; j += type->columns) {
            if ((j - piece->column) % job->group == 0)
                b = panels_of_b(job, piece, own, j, least(job->group, high - j), k, count);
            int columns = (int)least(type->columns, high - j);
            multiply_panel(job, piece, own, (Panel){a, b, k, count, j, columns});
            b += type->columns * lane_bytes(job);
            if (last && (j + columns == high || j + columns - done >= piece_columns)) {
                finish(gemm, piece, own, done, j + columns);
                done = j + columns;
            }
        }
    }
}

static bool own_open(const GemmJob *job, GemmSpace *own) {
    const Gemm *gemm = job->gemm;
    int64_t lane = lane_bytes(job), element = (int64_t)gemm->element;
    bool converts = gemm->convert || gemm->convert_b;
    int64_t panels = divide_up(job->row_block, job->panel_rows);
    int64_t a = job->packed_a ? 0 : panels * gemm->type->rows * lane;
    int64_t b = job->packed_b ? 0 : job->group * lane;
    int64_t sum = gemm->narrow ? job->row_block * (job->column_block + GEMM_SUM_GAP) * element : 0;
    int64_t converted =
        converts ? GEMM_MAX_WIDTH * job->k_block * element / gemm->type->together : 0;
    *own = (GemmSpace){.of_a.batch = -1, .of_b.batch = -1};
    if (a + b + sum + converted == 0) return true;
    a = round_up(a, 64), b = round_up(b, 64), sum = round_up(sum, 64);
    own->storage = storage_new((size_t)(a + b + sum + converted));
    if (!own->storage) return false;
    own->a = own->storage->data;
    own->b = own->a + a;
    own->sum = own->b + b;
    own->converted = own->sum + sum;
    return true;
}

static void run_tasks(void *user, int64_t low, int64_t high) {
    const GemmJob *job = user;
    const Gemm *gemm = job->gemm;
    GemmSpace own;
    if (!own_open(job, &own)) {
        atomic_store_explicit(gemm->failed, true, memory_order_relaxed);
        return;
    }
    if (gemm->type->begin) gemm->type->begin();
    for (int64_t task = low; task < high; task++) {
        int64_t fast = job->rows_first ? job->row_blocks : job->column_blocks;
        int64_t slow = job->rows_first ? job->column_blocks : job->row_blocks;
        int64_t one = task % fast, other = task / fast % slow;
        GemmPart piece = {.batch = job->batch_low + task / fast / slow,
                          .row = (job->rows_first ? one : other) * job->row_block,
                          .column =
                              job->n_low + (job->rows_first ? other : one) * job->column_block};
        piece.rows = least(job->row_block, gemm->task.m - piece.row);
        piece.columns = least(job->column_block, job->n_high - piece.column);
        gemm_batch_offsets(&gemm->task, piece.batch, &piece.a_offset, &piece.b_offset);
        run_piece(job, &piece, &own);
    }
    if (gemm->type->end) gemm->type->end();
    if (own.storage) storage_release(own.storage);
}

/* ---- cutting the work ---- */

/* Sums of one k block that wait in a scratch for nothing but to be narrowed. */
static bool sums_once(const GemmJob *job) {
    const Gemm *gemm = job->gemm;
    return gemm->narrow && !gemm->packed && job->k_block >= gemm->task.k;
}

/* Panels of a task whose sums the scratch holds: a thread's `panels` in equal strips, if there are
 * such. Half of it for sums that are done at once: the strip of B is in L2 with them. */
static int64_t strip(const GemmJob *job, int64_t panels) {
    int64_t panel_bytes = job->row_block * job->gemm->type->columns * (int64_t)job->gemm->element;
    int64_t room = job->gemm->type->sum_bytes / (sums_once(job) ? 2 : 1);
    int64_t strips = divide_up(panels * panel_bytes, room);
    if (strips > panels) return 1;
    for (int64_t more = 0; more < 4 && strips + more <= panels; more++)
        if (panels % (strips + more) == 0) return panels / (strips + more);
    return divide_up(panels, strips);
}

/* A tile of few rows waits for its own sums, so a block of rows is cut into equal panels. AMX has
 * tiles of one height. */
static int64_t rows_of_panel(const GemmType *type, int64_t block) {
    return type->rows_tile ? divide_up(block, divide_up(block, type->rows)) : type->rows;
}

/* Blocks of rows: an A that is small is one, but for an epilogue, whose pieces are to have long
 * rows. Where sums wait in a scratch and B is packed in every call, it is one all the same: for
 * several, all of B would be packed first, and read by each. */
static int64_t blocks_of_rows(const GemmJob *job) {
    const Gemm *gemm = job->gemm;
    int64_t m = gemm->task.m, rows = gemm->type->rows, lane = lane_bytes(job);
    int64_t finished =
        FINISH_BYTES / (int64_t)gemm->element / least(job->n_high - job->n_low, FINISH_ROW);
    int64_t blocks = gemm->epilogue ? divide_up(m, finished) : 1;
    if (sums_once(job)) return divide_up(m, ONCE_ROWS);
    if (m * lane <= SINGLE_BYTES) return gemm->narrow && !gemm->packed ? 1 : blocks;
    int64_t most = BLOCK_BYTES / lane / rows * rows;
    int64_t packed = divide_up(m, most < rows ? rows : most);
    return packed > blocks ? packed : blocks;
}

/* Panels of one of about `parts` tasks: of those that a thread takes one after the other it has the
 * least. Of five panels in four parts, two each would be four for one thread and one for the
 * next. */
static int64_t fair_panels(int64_t panels, int64_t parts, int64_t threads) {
    int64_t most = divide_up(panels, parts), best = most, least_load = INT64_MAX;
    for (int64_t each = most; each >= 1 && each >= panels / parts; each--) {
        int64_t load = divide_up(divide_up(panels, each), threads) * each;
        if (load < least_load) best = each, least_load = load;
    }
    return best;
}

/* Cuts rows, then columns, so that each thread has work; narrow matrices are cut along columns
 * only. Rows of an epilogue's pieces stay long if there are tasks enough. */
static void cut(GemmJob *job, int64_t threads) {
    const Gemm *gemm = job->gemm;
    int64_t m = gemm->task.m, n = job->n_high - job->n_low;
    int64_t rows = gemm->type->rows, columns = gemm->type->columns;
    int64_t blocks = blocks_of_rows(job);
    if (job->batch_count < threads && blocks > 1 && blocks % threads && m >= 4 * rows * threads)
        blocks = round_up(blocks, threads);
    job->panel_rows = rows_of_panel(gemm->type, divide_up(m, blocks));
    job->row_block = round_up(divide_up(m, blocks), job->panel_rows);
    job->row_blocks = divide_up(m, job->row_block);
    int64_t tasks = job->row_blocks * job->batch_count, parts = 1;
    if (tasks < threads || (tasks % threads && tasks < 4 * threads))
        parts = gemm->narrow ? threads : 2 * threads;
    int64_t part = columns * fair_panels(divide_up(n, columns), parts, threads);
    if (gemm->epilogue && tasks >= threads && part < FINISH_ROW) part = least(n, FINISH_ROW);
    job->column_block = round_up(part, columns);
    if (gemm->narrow) job->column_block = columns * strip(job, job->column_block / columns);
    job->column_blocks = divide_up(n, job->column_block);
}

/* Which operand is packed for all tasks, if it is asked for. Of sums that are done at once it is
 * the smaller one, and a thread goes along it with what it has packed of the other. An A that no
 * two tasks of a thread share is not, if it is large: it would go to memory and come back. */
static void choose_shared(GemmJob *job, bool *a, bool *b) {
    const Gemm *gemm = job->gemm;
    int64_t m = gemm->task.m, k = job->k_high - job->k_low;
    bool rows = job->row_blocks > 1, columns = job->column_blocks > 1;
    *b = !gemm->packed && rows;
    if (sums_once(job)) *b = *b && (m > job->n_high - job->n_low || !columns);
    *a = !*b && columns;
    if (*a && job->column_blocks <= gemm->threads && !rows)
        *a = divide_up(k, job->k_block) * m * lane_bytes(job) <= OWN_BYTES;
    job->rows_first = *a && rows;
}

/* All columns of a task, where its next one has the same; as many as a part of L2 holds, where they
 * lie side by side (gemm_pack.c); else one panel, which is in L1 when it is multiplied. */
static void choose_group(GemmJob *job) {
    int64_t columns = job->gemm->type->columns, all = job->column_block / columns;
    int64_t few = job->gemm->task.b_n == 1 ? GROUP_BYTES / (columns * lane_bytes(job)) : 1;
    job->group = columns * (job->rows_first ? all : least(all, few < 1 ? 1 : few));
}

/* One round: shared packing if asked for, then the tasks. */
static bool run_round(GemmJob *job, bool share) {
    const Gemm *gemm = job->gemm;
    const MatmulTask *task = &gemm->task;
    int64_t k = job->k_high - job->k_low, n = job->n_high - job->n_low;
    cut(job, gemm->threads);
    Storage *shared = NULL;
    job->packed_a = NULL;
    job->packed_b = (void *)(uintptr_t)gemm->packed;
    bool share_a = false, share_b = false;
    if (share) choose_shared(job, &share_a, &share_b);
    choose_group(job);
    if (share_a || share_b) {
        int64_t panels =
            share_a ? divide_up(task->m, job->panel_rows) : divide_up(n, gemm->type->columns);
        int64_t lanes = panels * gemm_width(gemm, share_a);
        shared = storage_new((size_t)(lanes * divide_up(k, job->k_block) * lane_bytes(job)));
        if (!shared) return false;
        *(share_b ? &job->packed_b : &job->packed_a) = shared->data;
        pack_shared(job, share_a);
    }
    int64_t tasks = job->batch_count * job->row_blocks * job->column_blocks;
    int64_t products = job->row_block * job->column_block * k;
    parallel_for(tasks, divide_up(TASK_PRODUCTS, products), run_tasks, job);
    if (shared) storage_release(shared);
    return !atomic_load_explicit(gemm->failed, memory_order_relaxed);
}

int64_t gemm_k_block(const Gemm *gemm) {
    const GemmType *type = gemm->type;
    int64_t k = gemm->task.k, limit = type->k_bytes / (int64_t)gemm->element * type->together;
    return round_up(divide_up(k, divide_up(k, limit)), type->k_unit < 4 ? 4 : type->k_unit);
}

/* Rounds over columns and k, so that shared packs stay within SHARED_BYTES. */
static bool run_batch(const Gemm *gemm, int64_t low, int64_t count, bool share) {
    const MatmulTask *task = &gemm->task;
    GemmJob job = {.gemm = gemm, .batch_low = low, .batch_count = count};
    job.k_block = gemm_k_block(gemm);
    int64_t k_most = task->k, n_most = task->n;
    if (share && !gemm->packed) {
        int64_t columns = gemm->type->columns;
        int64_t elements = SHARED_BYTES / (int64_t)gemm->element * gemm->type->together;
        int64_t n_least = gemm->narrow ? columns : 1024; /* a scratch does not outlive its round */
        n_most = elements / task->k / columns * columns;
        if (n_most < n_least) n_most = n_least;
        if (!gemm->narrow) k_most = elements / least(n_most, task->n) / job.k_block * job.k_block;
        if (k_most < job.k_block) k_most = job.k_block;
    }
    for (job.n_low = 0; job.n_low < task->n; job.n_low = job.n_high) {
        job.n_high = least(task->n, job.n_low + n_most);
        for (job.k_low = 0; job.k_low < task->k; job.k_low = job.k_high) {
            job.k_high = least(task->k, job.k_low + k_most);
            if (!run_round(&job, share)) return false;
        }
    }
    return true;
}

bool gemm_panels(const Gemm *gemm) {
    const MatmulTask *task = &gemm->task;
    if (task->batch > 1 && (double)task->m * (double)task->n * (double)task->k < BATCH_PRODUCTS)
        return run_batch(gemm, 0, task->batch, false);
    bool ok = true;
    for (int64_t b = 0; ok && b < task->batch; b++) ok = run_batch(gemm, b, 1, true);
    return ok;
}

bool gemm_pack_panels(const Gemm *gemm, Storage **packed) {
    const MatmulTask *s = &gemm->task;
    GemmJob job = {.gemm = gemm, .batch_count = 1, .k_high = s->k, .n_high = s->n};
    job.k_block = gemm_k_block(gemm);
    int64_t lanes = round_up(s->n, gemm->type->columns), blocks = divide_up(s->k, job.k_block);
    *packed = storage_new((size_t)(lanes * blocks * lane_bytes(&job)));
    if (!*packed) return false;
    job.packed_b = (*packed)->data;
    pack_shared(&job, false);
    return true;
}
