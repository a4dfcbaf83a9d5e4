/* Which expressions a stretch of code needs and where each is declared (emit.h); no text.
 *
 * Expression ids are topological (inputs before users), so a region is collected in one walk over
 * descending ids and declared in walks over ascending ids, without recursion. */
#include "codegen/emit.h"
#include "lower/index.h"

enum { INLINE_SIZE = 8 }; /* nodes of text in one expression */

/* ---- preparation ------------------------------------------------------------------------- */

static bool is_index_op(const Expr *x) {
    bool divides = index_divides(x, OP_floor_divide) || index_divides(x, OP_remainder);
    return x->dtype == CB_I64 && (x->op == OP_add || x->op == OP_mul || divides);
}

static bool varies_with_lanes(const Emit *e, const Expr *x) {
    if (x->op == EX_reduce || x->op == EX_scan || expr_uses_axis(x, e->lane_axis)) return true;
    for (int i = 0; i < x->input_count; i++) {
        const Local *input = &e->local[x->input[i]->id];
        bool reduced = input->inner ? !input->per_point && !input->plain : input->level > 0;
        if (reduced) return true;
    }
    return false;
}

static int max_int(int a, int b) { return a > b ? a : b; }

static void prepare_local(Emit *e, const Expr *x) {
    Local *local = &e->local[x->id];
    local->plain =
        x->dtype == CB_I64 && (x->op == EX_axis || x->op == OP_constant || is_index_op(x));
    local->inner = x->op == EX_scan;
    if (x->op == EX_axis) {
        local->level = e->axis_level[x->imm.i];
        local->inner = e->kernel->axis[x->imm.i].inner;
    }
    for (int i = 0; i < x->input_count; i++) {
        const Local *input = &e->local[x->input[i]->id];
        local->level = max_int(local->level, input->level);
        local->inner |= input->inner && x->op != EX_reduce;
        local->plain &= input->plain;
    }
    if (x->op == EX_reduce) local->level = e->row_level;
    if (x->op == EX_scan) local->level = e->body_level;
    if (e->written_out && local->inner && !local->plain && !varies_with_lanes(e, x)) {
        local->per_point = true;
        local->level = 0;
    } else if (e->written_out && local->inner) {
        local->level = e->body_level;
    }
    local->cached = e->keeps_rows && e->info.expr[x->id].cached && local->level == e->body_level;
}

static void note_use(Emit *e, const Expr *x, int pass) {
    Local *local = &e->local[x->id];
    local->last_use = max_int(local->last_use, pass);
}

static void prepare_uses(Emit *e) {
    for (int id = 0; id < e->count; id++) {
        const Expr *x = e->kernel->expr[id];
        if (!e->info.expr[id].users) continue;
        for (int i = 0; i < x->input_count; i++) note_use(e, x->input[i], e->info.expr[id].pass);
    }
    for (int s = 0; s < length(e->kernel->store); s++) {
        const Store *store = &e->kernel->store[s];
        note_use(e, store->value, e->info.store_pass[s]);
        if (store->guard) note_use(e, store->guard, e->info.store_pass[s]);
    }
}

static Access access_of(Emit *e, Expr *index) {
    Access access = {.rest = index, .level = NO_LEVEL};
    if (e->lane_axis != NO_LANE)
        access.linear = index_linear(e->kernel, index, e->lane_axis, &access.stride, &access.rest);
    return access;
}

/* An address pays when it can be set up outside of the vector loop. */
static void place_access(const Emit *e, Access *access) {
    if (!access->linear || access->stride == 0) return;
    int level = max_int(e->local[access->rest->id].level, e->origin_level);
    bool changes = e->written_out && e->local[access->rest->id].inner; /* from point to point */
    if (level < e->lane_level && !changes) access->level = level;
}

static void prepare_accesses(Emit *e) {
    Kernel *kernel = e->kernel;
    int before = length(kernel->expr), stores = length(kernel->store);
    Access *load = arena_new_array(e->arena, Access, before + 1);
    e->store = arena_new_array(e->arena, Access, stores + 1);
    for (int id = 0; id < before; id++) {
        Expr *x = kernel->expr[id];
        if (x->op != EX_load) continue;
        load[id] = access_of(e, x->input[0]);
        const KernelBuffer *buffer = &kernel->buffer[x->imm.i];
        e->has_inout |= buffer->role != BUFFER_IN || buffer->shared;
    }
    for (int s = 0; s < stores; s++) {
        e->store[s] = access_of(e, kernel->store[s].index);
        e->has_inout |= kernel->buffer[kernel->store[s].buffer].role == BUFFER_INOUT;
    }
    e->count = length(kernel->expr);
    e->load = arena_new_array(e->arena, Access, e->count + 1);
    for (int id = 0; id < before; id++) e->load[id] = load[id];
}

void emit_prepare(Emit *e) {
    e->suffix = "";
    prepare_accesses(e);
    e->info = kernel_analyze(e->kernel, e->arena);
    e->local = arena_new_array(e->arena, Local, e->count + 1);
    for (int id = 0; id < e->count; id++) prepare_local(e, e->kernel->expr[id]);
    prepare_uses(e);
    for (int id = 0; id < e->count; id++)
        if (e->kernel->expr[id]->op == EX_load) place_access(e, &e->load[id]);
    for (int s = 0; s < length(e->kernel->store); s++) place_access(e, &e->store[s]);
}

/* ---- collecting a region -------------------------------------------------------------------- */

void emit_begin(Emit *e) {
    for (int id = 0; id < e->count; id++) {
        Local *local = &e->local[id];
        local->uses = 0;
        local->needed = local->chosen = false;
    }
    truncate_to(e->queue, 0);
    truncate_to(e->rooted, 0);
}

/* A value that the loops of the region read from an array. */
static bool is_array(const Emit *e, const Local *local) {
    if (local->inner) return e->flat && local->level < e->lane_level;
    return e->boundary && local->level == e->lane_level;
}

void emit_root(Emit *e, Expr *x, int user_level) {
    Local *local = &e->local[x->id];
    if (x->op == OP_constant || local->plain || local->name.text) return;
    local->uses++;
    local->user_level = user_level;
    if (local->needed) return;
    local->needed = true;
    if (is_array(e, local)) push(e->arena, e->queue, x);
}

static void root_index(Emit *e, Expr *index, int user_level) {
    if (e->local[index->id].plain) return;
    if (!is_index_op(index) || e->info.expr[index->id].users) {
        emit_root(e, index, user_level);
        return;
    }
    for (int i = 0; i < index->input_count; i++) root_index(e, index->input[i], user_level);
}

static void root_access(Emit *e, const Access *access, Expr *index, int user_level) {
    if (access->level == NO_LEVEL)
        root_index(e, index, user_level);
    else if (!access->name)
        root_index(e, access->rest, access->level);
}

void emit_root_store(Emit *e, int s, int user_level) {
    const Store *store = &e->kernel->store[s];
    emit_root(e, store->value, user_level);
    if (store->guard) emit_root(e, store->guard, user_level);
    root_access(e, &e->store[s], store->index, user_level);
    push(e->arena, e->rooted, s);
}

/* A value that is only read here: a kept row, a slot of a split kernel, an array to be. */
static bool is_leaf(const Emit *e, const Expr *x) {
    const Local *local = &e->local[x->id];
    if (is_array(e, local)) return true;
    check(x->op != EX_reduce || e->reduce_leaves, "kernel %s: a reduce is used before its sweep",
          e->kernel->name);
    return local->kept || x->op == EX_reduce;
}

/* where(c, a load if c, a load if not c): in a run over many rows each condition on the column is a
 * pattern in memory, of which the loop makes masks. One is enough. */
static void choose_loads(Emit *e, const Expr *where) {
    if (!e->flat || where->op != OP_where || e->has_inout) return;
    for (int i = 1; i < 3; i++) {
        const Expr *load = where->input[i];
        if (load->op != EX_load || load->input_count < 2) continue;
        const Expr *guard = load->input[1];
        if (i == 2 && guard->op != OP_logical_not) continue;
        e->local[load->id].chosen = (i == 1 ? guard : guard->input[0]) == where->input[0];
    }
}

/* Its users are behind it, and have been seen. */
static void collect_load(Emit *e, Expr *x, Local *local) {
    root_access(e, &e->load[x->id], x->input[0], local->level);
    local->chosen &= local->uses == 1 && local->user_level == local->level;
    if (x->input_count > 1 && !local->chosen) emit_root(e, x->input[1], local->level);
}

void emit_collect(Emit *e) {
    for (int id = e->count - 1; id >= 0; id--) {
        Expr *x = e->kernel->expr[id];
        Local *local = &e->local[id];
        if (!local->needed || is_leaf(e, x)) continue;
        if (x->op == EX_load) {
            collect_load(e, x, local);
            continue;
        }
        choose_loads(e, x);
        for (int i = 0; i < x->input_count; i++) emit_root(e, x->input[i], local->level);
    }
}

/* ---- inlining ---------------------------------------------------------------------------- */

static int inline_size(const Emit *e, const Expr *x) {
    int size = 1;
    for (int i = 0; i < x->input_count; i++) {
        const Local *input = &e->local[x->input[i]->id];
        if (input->needed && !input->name.text) size += input->size;
    }
    return size;
}

/* With a literal operand the compiler drops most of the text (pow), which a function cannot. */
bool emit_may_call(const Expr *x) {
    if (x->op >= OP_COUNT || x->op == OP_constant) return false;
    const OpInfo *info = op_info(x->op);
    bool same = (dtype_is_float(x->dtype) && info->kind == KIND_POINTWISE) || x->op == OP_philox;
    for (int i = 0; i < x->input_count; i++)
        same &= x->input[i]->dtype == x->dtype && x->input[i]->op != OP_constant;
    return same && info->cost >= APART_COST;
}

bool emit_calls_apart(const Emit *e, const Expr *x) { return e->apart && emit_may_call(x); }

bool emit_inlines(Emit *e, const Expr *x) {
    Local *local = &e->local[x->id];
    if (emit_calls_apart(e, x)) return false;
    if (local->chosen) return true;
    bool keep = local->cached && !local->kept;
    local->size = inline_size(e, x);
    bool wanted_again =
        e->names_last && x->op != EX_load && local->inner && local->last_use > e->pass;
    if (x->op == EX_scan || keep || wanted_again || (x->op == EX_load && e->has_inout))
        return false;
    return local->uses == 1 && local->user_level == local->level && local->size <= INLINE_SIZE;
}
