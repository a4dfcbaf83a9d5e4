/* Runs a vector program: the loops around its sections.
 *
 * TILE: [low, high) is cut into runs along the lane axes and these into blocks of lanes; for
 * each block the passes follow, each a loop over the inner points. ROW: one outer point at a time;
 * each pass loops over the inner axes, the last in blocks of lanes; or several, whose lanes are a
 * block. So may several inner points of a TILE be, of few lanes. Everything lives in a frame on the
 * stack. */
#include "vm/instruction.h"

#include <string.h>

#ifdef __SSE__
#include <immintrin.h>
#endif

enum { TURN_POINTS = 64 };

typedef struct VmFrame {
    const Program *program;
    void *const *buffer;
    char *memory, **reg;
    Scalar *slot;
    int64_t lanes, rows;           /* of the block at hand */
    int64_t turn_step, turn_count; /* point along the turn axis, of how many; 0 of 0 elsewhere */
    int64_t outer, chunk;          /* number of the outer point (its first lane), of the chunk */
    int64_t at[VM_MAX_AXES];       /* coordinates */
    int64_t low[VM_MAX_AXES], high[VM_MAX_AXES]; /* ranges of the inner axes */
} VmFrame;

/* ---- instructions ---------------------------------------------------------------------------- */

static char *address(const VmFrame *f, const VmAccess *access) {
    const VmTerm *term = f->program->term + access->first_term;
    int64_t element = access->constant;
    if (access->rest >= 0 && !access->apart)
        element += *(const int64_t *)(const void *)f->reg[access->rest];
    for (int i = 0; i < access->term_count; i++) element += term[i].stride * f->at[term[i].axis];
    return (char *)f->buffer[access->buffer] + element * access->size;
}

/* Of the block's first lane, among all along the lane axes. */
static int64_t lane_place(const VmFrame *f) {
    const Program *p = f->program;
    int64_t place = 0;
    if (p->points) return f->at[p->lane_axis + 1] * p->size[p->lane_axis] + f->at[p->lane_axis];
    for (int axis = p->first_lane_axis; axis <= p->lane_axis; axis++)
        place = place * p->size[axis] + f->at[axis];
    return place;
}

static void set_lane_place(VmFrame *f, int64_t place) {
    const Program *p = f->program;
    int axis = p->lane_axis;
    for (; axis > p->first_lane_axis; axis--) {
        f->at[axis] = place % p->size[axis];
        place /= p->size[axis];
    }
    f->at[axis] = place;
}

static void *operand(const VmFrame *f, int number) { return number >= 0 ? f->reg[number] : NULL; }

/* A transposed input, a few elements of each lane at a time, side by side where the strides are
 * short. */
static void load_staged(const VmFrame *f, const VmInstr *in, int64_t n) {
    const VmAccess *access = &f->program->access[in->number];
    char *staging = f->memory + access->staging;
    int64_t step = f->turn_step % VM_TURN_LINE, line = VM_TURN_LINE * access->size;
    int64_t left = f->turn_count - f->turn_step;
    if (step == 0 && left >= VM_TURN_LINE) {
        const char *from = address(f, access);
        for (int64_t i = 0; i < n; i++) {
            const char *source = from + i * access->levels.stride[0] * access->size;
            for (int64_t at = 0; at < line; at += 16)
                memcpy(staging + i * line + at, source + at, 16);
        }
    }
    if (f->turn_step - step + VM_TURN_LINE > f->turn_count) /* the last few: straight from there */
        in->load(n, f->reg[in->y], address(f, access), access->levels.stride[0], NULL, NULL);
    else
        in->load(n, f->reg[in->y], staging + step * access->size, VM_TURN_LINE, NULL, NULL);
}

/* Row by row, each from where it lies. */
static void load_rows(const VmFrame *f, const VmInstr *in, int64_t n) {
    const VmAccess *access = &f->program->access[in->number];
    const int64_t *rest = (const int64_t *)(const void *)f->reg[access->rest];
    const uint8_t *guard = operand(f, access->guard);
    const char *from = address(f, access);
    for (int64_t r = 0; r < f->rows; r++)
        in->load(n, f->reg[in->y] + r * n * access->lane_size, from + rest[r] * access->size,
                 access->levels.stride[0], NULL, guard ? guard + r * n : NULL);
}

static void load(const VmFrame *f, const VmInstr *in, int64_t n) {
    const VmAccess *access = &f->program->access[in->number];
    char *staging = access->staging >= 0 ? f->memory + access->staging : NULL;
    if (access->apart)
        load_rows(f, in, n / f->rows);
    else if (access->levels.count > 1)
        vm_walk_load(in, access, n, lane_place(f), f->reg[in->y], address(f, access), staging,
                     operand(f, access->guard));
    else if (staging && f->turn_count)
        load_staged(f, in, n);
    else
        in->load(n, f->reg[in->y], address(f, access), access->levels.stride[0],
                 operand(f, access->index), operand(f, access->guard));
}

static void store(const VmFrame *f, const VmInstr *in, int64_t n) {
    const VmAccess *access = &f->program->access[in->number];
    if (access->levels.count > 1)
        vm_walk_store(in, access, n, lane_place(f), address(f, access), f->reg[in->a],
                      operand(f, access->guard));
    else
        in->store(n, address(f, access), access->levels.stride[0], operand(f, access->index),
                  operand(f, access->guard), f->reg[in->a]);
}

static char *row(const VmFrame *f, const VmInstr *in) {
    const Program *p = f->program;
    int64_t position = 0;
    for (int axis = p->outer_count; axis < p->axis_count; axis++)
        position += p->inner_stride[axis] * f->at[axis];
    return f->memory + p->row_cache[in->number].offset + position * p->row_cache[in->number].size;
}

/* Slots of a reduce: one per chunk and outer point. */
static Scalar *slots(const VmFrame *f, const VmInstr *in, int64_t chunk) {
    const Program *p = f->program;
    return f->slot + (in->number * p->split + chunk) * p->outer_size + f->outer;
}

/* Row by row, each from an accumulator of its own. */
static void reduce_rows(const VmFrame *f, const VmInstr *in, int64_t n) {
    Scalar *sum = (Scalar *)(void *)f->reg[in->y];
    const char *x = f->reg[in->a];
    for (int64_t r = 0; r < f->rows; r++) in->reduce(n, sum + r, x + r * n * in->number);
}

static void scan_rows(const VmFrame *f, const VmInstr *in, int64_t n) {
    Scalar *sum = (Scalar *)(void *)f->reg[in->b];
    for (int64_t r = 0; r < f->rows; r++) {
        int64_t at = r * n * in->number;
        in->scan(n, f->reg[in->y] + at, f->reg[in->a] + at, sum + r);
    }
}

/* One point after the other, as where each is a block: a sum is the same whatever else its kernel
 * computes, which decides how many points a block has. */
static void fold_points(const VmFrame *f, const VmInstr *in, int64_t points) {
    char *sum = f->reg[in->y], *x = f->reg[in->b];
    int64_t bytes = f->rows * in->number;
    for (int64_t at = 0; at < points; at++) in->function(f->rows, sum, sum, x + at * bytes, NULL);
}

/* Of each lane, for all points of the block; or of each row, for all of its lanes. */
static void spread(const VmFrame *f, const VmInstr *in, int64_t n) {
    if (!f->program->points) {
        in->spread(f->rows, n / f->rows, f->reg[in->y], f->reg[in->a]);
        return;
    }
    int64_t bytes = f->rows * in->number;
    for (int64_t at = 0; at < n / f->rows; at++)
        memcpy(f->reg[in->y] + at * bytes, f->reg[in->a], (size_t)bytes);
}

static void run(VmFrame *f, VmSection section) {
    const Program *p = f->program;
    char **reg = f->reg;
    int64_t of_mode[] = {
        [VM_ONE] = 1, [VM_BY_ROW] = f->rows, [VM_LANES] = f->lanes, [VM_FULL] = p->full};
    for (const VmInstr *in = p->instr + section.first; in < p->instr + section.end; in++) {
        int64_t n = of_mode[in->mode];
        switch (in->kind) {
        case VM_OP:
            in->function(n, reg[in->y], reg[in->a], operand(f, in->b), operand(f, in->c));
            break;
        case VM_LOAD:
            load(f, in, n);
            break;
        case VM_POINT:
            reg[in->y] = address(f, &p->access[in->number]);
            break;
        case VM_STORE:
            store(f, in, n);
            break;
        case VM_REDUCE:
            reduce_rows(f, in, n / f->rows);
            break;
        case VM_SCAN:
            scan_rows(f, in, n / f->rows);
            break;
        case VM_SPREAD:
            spread(f, in, n);
            break;
        case VM_FOLD:
            fold_points(f, in, n / f->rows);
            break;
        case VM_COORDINATE:
            *(int64_t *)(void *)reg[in->y] = in->number < 0 ? lane_place(f) : f->at[in->number];
            break;
        case VM_ROW:
            reg[in->y] = row(f, in);
            break;
        case VM_SLOT_READ:
            in->function(n, reg[in->y], slots(f, in, 0), NULL, NULL);
            break;
        case VM_SLOT_WRITE:
            in->function(n, slots(f, in, f->chunk), reg[in->a], NULL, NULL);
            break;
        }
    }
}

/* ---- sweeps ---------------------------------------------------------------------------------- */

static void run_lanes(VmFrame *f, VmSection block) {
    const Program *p = f->program;
    int axis = p->lane_axis;
    if (axis < 0) {
        f->lanes = 1;
        run(f, block);
        return;
    }
    int64_t high = f->high[axis];
    for (int64_t at = f->low[axis]; at < high; at += p->capacity) {
        f->at[axis] = at;
        f->lanes = high - at < p->capacity ? high - at : p->capacity;
        run(f, block);
    }
}

/* The next combination of axes [first, end); false after the last. */
static bool advance(VmFrame *f, int first, int end) {
    for (int axis = end - 1; axis >= first; axis--) {
        if (++f->at[axis] < f->high[axis]) return true;
        f->at[axis] = f->low[axis];
    }
    return false;
}

/* As many points at a time as a block holds; those of a part of a row one by one. */
static void sweep_points(VmFrame *f, VmSection step) {
    const Program *p = f->program;
    int axis = p->lane_axis + 1;
    int64_t high = f->high[axis], most = f->rows == p->size[p->lane_axis] ? p->points : 1;
    for (int64_t at = f->low[axis], count; at < high; at += count) {
        count = high - at < most ? high - at : most;
        f->at[axis] = at;
        f->lanes = count * f->rows;
        run(f, step);
    }
    f->lanes = most * f->rows; /* what follows may be for the next sweep */
}

static void sweep(VmFrame *f, const VmPass *pass) {
    const Program *p = f->program;
    if (pass->step.first == pass->step.end && pass->block.first == pass->block.end) return;
    int first = p->outer_count, end = p->row && p->lane_axis >= 0 ? p->lane_axis : p->axis_count;
    for (int axis = first; axis < p->axis_count; axis++) {
        if (f->low[axis] >= f->high[axis]) return;
        f->at[axis] = f->low[axis];
    }
    if (p->points) {
        sweep_points(f, pass->step);
        return;
    }
    do {
        run(f, pass->step);
        if (p->rows)
            run(f, pass->block);
        else if (p->row)
            run_lanes(f, pass->block);
    } while (advance(f, first, end));
}

static void run_pass(VmFrame *f, const VmPass *pass) {
    run(f, pass->point);
    sweep(f, pass);
    run(f, pass->after);
}

/* ---- outer points ---------------------------------------------------------------------------- */

static void run_point(VmFrame *f, int pass) {
    const Program *p = f->program;
    if (p->split == 1)
        for (int i = 0; i < p->pass_count; i++) run_pass(f, &p->pass[i]);
    else if (pass < p->pass_count)
        run_pass(f, &p->pass[pass]);
    if (p->split == 1 || pass == p->pass_count) run(f, p->pass[p->pass_count].point);
}

static void set_outer(VmFrame *f, int64_t outer) {
    const Program *p = f->program;
    for (int axis = p->outer_count - 1; axis >= 0; axis--) {
        f->at[axis] = outer % p->size[axis];
        outer /= p->size[axis];
    }
}

/* [low, high) of the outer points, of one chunk. Outer axes start at 0, so advance serves them
 * too. */
static void run_rows(VmFrame *f, int64_t low, int64_t high, int pass) {
    set_outer(f, low);
    f->lanes = 1;
    for (f->outer = low; f->outer < high; f->outer++) {
        run_point(f, pass);
        advance(f, 0, f->program->outer_count);
    }
}

/* As many rows at a time as a block holds; of a TILE, a part of one at either end. */
static void run_rows_together(VmFrame *f, int64_t low, int64_t high, int pass) {
    const Program *p = f->program;
    int row = p->first_lane_axis, lane = p->lane_axis;
    int64_t lanes = p->size[lane], each = p->row ? 1 : lanes; /* outer points of a row */
    set_outer(f, low);
    while (low < high) {
        int64_t start = p->row ? 0 : f->at[lane], left = p->size[row] - f->at[row];
        int64_t whole = start ? 0 : (high - low) / each;
        f->rows = whole < left ? whole : left;
        if (f->rows > p->rows) f->rows = p->rows;
        f->lanes = f->rows * lanes;
        int64_t points = f->rows * each;
        if (f->rows == 0) { /* a part of one */
            f->rows = 1, points = lanes - start;
            if (points > high - low) points = high - low;
            f->lanes = points;
        }
        run_point(f, pass);
        low += points;
        f->at[row] += f->rows - 1;
        if (!p->row) f->at[lane] += points > lanes ? lanes - 1 : points - 1;
        advance(f, 0, p->outer_count);
    }
}

/* Rows of lanes, whole but for the ends of a range that begins or ends within one. */
static void run_points(VmFrame *f, int64_t low, int64_t high, int pass) {
    const Program *p = f->program;
    int lane = p->lane_axis;
    set_outer(f, low);
    for (f->outer = low; f->outer < high; f->outer += f->rows) {
        int64_t left = p->size[lane] - f->at[lane];
        f->rows = high - f->outer < left ? high - f->outer : left;
        f->lanes = f->rows * (f->rows == p->size[lane] ? p->points : 1);
        run_point(f, pass);
        f->at[lane] += f->rows - 1;
        advance(f, 0, p->outer_count);
    }
}

static void run_runs(VmFrame *f, int64_t low, int64_t high, int pass) {
    const Program *p = f->program;
    set_outer(f, low);
    for (int64_t outer = low; outer < high;) {
        int64_t start = lane_place(f), left = p->lane_count - start;
        int64_t count = high - outer < left ? high - outer : left;
        for (int64_t done = 0; done < count; done += p->capacity) {
            set_lane_place(f, start + done);
            f->lanes = count - done < p->capacity ? count - done : p->capacity;
            f->outer = outer + done;
            run_point(f, pass);
        }
        set_lane_place(f, 0);
        advance(f, 0, p->first_lane_axis);
        outer += count;
    }
}

/* Few lanes, and many points along the turn axis for each: the cache lines of a transposed input
 * are used up while they are there. count: points along the turn axis; all axes inside it are
 * whole. */
static void run_turned_block(VmFrame *f, int64_t count) {
    const Program *p = f->program;
    int lane = p->lane_axis, turn = p->turn_axis;
    int64_t first = f->at[turn], size = p->size[lane];
    int64_t most = p->capacity < VM_TURN_LANES ? p->capacity : VM_TURN_LANES;
    do {
        for (int64_t at = 0; at < size; at += most) {
            f->at[lane] = at;
            f->lanes = size - at < most ? size - at : most;
            f->turn_count = count;
            for (f->turn_step = 0; f->turn_step < count; f->turn_step++) {
                f->at[turn] = first + f->turn_step;
                run_point(f, 0);
            }
            f->turn_count = 0;
        }
        f->at[lane] = 0;
    } while (advance(f, turn + 1, lane));
}

static void run_turned(VmFrame *f, int64_t low, int64_t high) {
    const Program *p = f->program;
    int64_t below = 1; /* outer points of one step along the turn axis */
    for (int axis = p->turn_axis + 1; axis < p->outer_count; axis++) below *= p->size[axis];
    int64_t whole = (low + below - 1) / below * below;
    if (whole > high) whole = high;
    run_runs(f, low, whole, 0);
    while (high - whole >= below) {
        set_outer(f, whole);
        int64_t count = (high - whole) / below, left = p->size[p->turn_axis] - f->at[p->turn_axis];
        if (count > left) count = left;
        if (count > TURN_POINTS) count = TURN_POINTS;
        run_turned_block(f, count);
        whole += count * below;
    }
    run_runs(f, whole, high, 0);
}

static void run_tiles(VmFrame *f, int64_t low, int64_t high, int pass) {
    const Program *p = f->program;
    if (p->lane_axis < 0)
        run_rows(f, low, high, pass); /* no outer axis: one point */
    else if (p->points)
        run_points(f, low, high, pass);
    else if (p->turn_axis >= 0)
        run_turned(f, low, high);
    else
        run_runs(f, low, high, pass);
}

static void run_outer(VmFrame *f, int64_t low, int64_t high, int pass) {
    if (f->program->rows)
        run_rows_together(f, low, high, pass);
    else if (f->program->row)
        run_rows(f, low, high, pass);
    else
        run_tiles(f, low, high, pass);
}

/* Work item = chunk * outer_size + outer point. */
static void run_chunks(VmFrame *f, int64_t low, int64_t high, int pass) {
    const Program *p = f->program;
    int axis = p->outer_count;
    int64_t length = (p->size[axis] + p->split - 1) / p->split;
    while (low < high) {
        f->chunk = low / p->outer_size;
        int64_t start = f->chunk * p->outer_size, end = start + p->outer_size;
        if (end > high) end = high;
        f->low[axis] = f->chunk * length;
        f->high[axis] =
            f->low[axis] + length < p->size[axis] ? f->low[axis] + length : p->size[axis];
        run_outer(f, low - start, end - start, pass);
        low = end;
    }
}

/* ---- entry ----------------------------------------------------------------------------------- */

static void set_registers(VmFrame *f) {
    const Program *p = f->program;
    for (int i = 0; i < p->register_count; i++) {
        const VmRegister *r = &p->registers[i];
        f->reg[i] =
            r->place == VM_CONSTANT ? (char *)p->constant + r->offset : f->memory + r->offset;
    }
}

void program_run(const Program *program, void *const *buffer, int64_t low, int64_t high, int pass,
                 void *slot) {
    if (low >= high) return;
    char memory[program->frame_bytes + VM_PAGE];
    char *reg[program->register_count + 1];
    VmFrame f = {.program = program, .buffer = buffer, .reg = reg, .slot = slot, .rows = 1};
    f.memory = memory + (-(uintptr_t)memory & (VM_PAGE - 1));
    for (int axis = 0; axis < program->axis_count; axis++) f.high[axis] = program->size[axis];
    set_registers(&f);
    run(&f, program->entry);
    if (program->split > 1 && pass < program->pass_count)
        run_chunks(&f, low, high, pass);
    else
        run_outer(&f, low, high, pass);
#ifdef __SSE__
    if (program->streams) _mm_sfence(); /* other threads see what went past the caches */
#endif
}
