/* Where each expression of a kernel belongs: row-level or inner, in which sweep, kept or
 * recomputed.
 *
 *     amax(x); e = exp(x - amax); sum(e); store e / sum
 *     sweep 0: amax    sweep 1: e (kept for sweep 2), sum    sweep 2: the division and the store */
#include "lower/loop.h"

enum { MADE_LATER = 64 }; /* room for expressions, besides as many as there are */

typedef struct Analysis {
    const Kernel *kernel;
    Arena *arena;
    KernelInfo *info;
    int *cost;    /* arithmetic of an inner expression down to its loads, saturating */
    int *seen_in; /* the last sweep whose evaluation reached it; -1: none */
    bool *live, *valued;
    Expr **stack;
} Analysis;

static bool is_arithmetic(const Expr *e) { return e->op < EX_axis && e->op != OP_constant; }

static int own_cost(const Expr *e) {
    if (e->op == EX_load) return e->input_count == 2 ? 2 : 1;
    if (e->op == OP_to) return 1;
    return is_arithmetic(e) ? op_info(e->op)->cost : 0;
}

/* Marks what stores need; counts value uses. What only indices need is live, but has no users. */
static void mark(Analysis *a, Expr *e, bool value) {
    if (value) a->info->expr[e->id].users++;
    bool *seen = value ? &a->valued[e->id] : &a->live[e->id];
    if (*seen) return;
    *seen = a->live[e->id] = true;
    for (int i = 0; i < e->input_count; i++)
        mark(a, e->input[i], value && !(e->op == EX_load && i == 0));
}

static void mark_live(Analysis *a) {
    for (int i = 0; i < length(a->kernel->store); i++) {
        const Store *store = &a->kernel->store[i];
        mark(a, store->value, true);
        mark(a, store->index, false);
        if (store->guard) mark(a, store->guard, true);
    }
}

/* Expression ids are topological: one loop gives levels and costs. */
static void level(Analysis *a) {
    for (int id = 0; id < length(a->kernel->expr); id++) {
        Expr *e = a->kernel->expr[id];
        ExprInfo *info = &a->info->expr[id];
        info->inner = expr_uses_inner(a->kernel, e);
        int cost = own_cost(e);
        for (int i = 0; i < e->input_count; i++) {
            const Expr *input = e->input[i];
            int pass = a->info->expr[input->id].pass + (input->op == EX_reduce);
            if (pass > info->pass) info->pass = pass;
            cost += a->info->expr[input->id].inner ? a->cost[input->id] : 0;
        }
        a->cost[id] = cost < 1 << 20 ? cost : 1 << 20;
        info->index_only = a->live[id] && info->users == 0;
        if (!a->live[id]) continue;
        if (e->op == EX_reduce) push(a->arena, a->info->reduce, e);
        bool sweeps = info->inner || e->op == EX_reduce;
        if (sweeps && info->pass >= a->info->pass_count) a->info->pass_count = info->pass + 1;
    }
}

/* The sweep of an inner store; -1 for a row-level one. */
static int store_sweep(const Analysis *a, const Store *store) {
    const Expr *root[3] = {store->value, store->index, store->guard};
    int pass = 0;
    bool inner = store->mode == STORE_ADD;
    for (int i = 0; i < 3 && root[i]; i++) {
        int needs = a->info->expr[root[i]->id].pass + (root[i]->op == EX_reduce);
        if (needs > pass) pass = needs;
        inner |= a->info->expr[root[i]->id].inner;
    }
    return inner ? pass : -1;
}

static void place_stores(Analysis *a) {
    int count = length(a->kernel->store), *pass = a->info->store_pass;
    for (int s = 0; s < count; s++) {
        pass[s] = store_sweep(a, &a->kernel->store[s]);
        if (pass[s] >= a->info->pass_count) a->info->pass_count = pass[s] + 1;
    }
    for (int s = 0; s < count; s++)
        if (pass[s] < 0) pass[s] = a->info->pass_count;
}

/* One sweep's demand: walks from e, stops at rows that are kept, keeps what is dear and was reached
 * by an earlier sweep. */
static void demand(Analysis *a, Expr *root, int pass, int64_t *room) {
    push(a->arena, a->stack, root);
    while (length(a->stack)) {
        Expr *e = pop(a->stack);
        ExprInfo *info = &a->info->expr[e->id];
        if (!info->inner || info->index_only || a->seen_in[e->id] == pass) continue;
        bool again = a->seen_in[e->id] >= 0 || info->cached;
        if (a->seen_in[e->id] < 0) info->pass = pass;
        a->seen_in[e->id] = pass;
        int64_t bytes = a->kernel->inner_size * 8;
        if (again && !info->cached && a->cost[e->id] >= KEEP_COST && bytes <= *room) {
            info->cached = true;
            *room -= bytes;
        }
        if (info->cached && pass > info->pass) continue;
        for (int i = 0; i < e->input_count; i++)
            if (e->input[i]->op != EX_reduce) push(a->arena, a->stack, e->input[i]);
    }
}

static void keep_rows(Analysis *a) {
    const Kernel *kernel = a->kernel;
    bool may = kernel->form == FORM_ROW && kernel->split == 1 && !kernel_has_scan(kernel);
    int64_t room = may ? ROW_CACHE_BYTES : -1; /* not even for an empty row */
    for (int pass = 0; pass <= a->info->pass_count; pass++) {
        for (int r = 0; r < length(a->info->reduce); r++) {
            Expr *reduce = a->info->reduce[r];
            if (a->info->expr[reduce->id].pass == pass) demand(a, reduce->input[0], pass, &room);
        }
        for (int s = 0; s < length(kernel->store); s++) {
            if (a->info->store_pass[s] != pass) continue;
            demand(a, kernel->store[s].value, pass, &room);
            if (kernel->store[s].guard) demand(a, kernel->store[s].guard, pass, &room);
        }
    }
}

KernelInfo kernel_analyze(const Kernel *kernel, Arena *arena) {
    int count = length(kernel->expr);
    KernelInfo info = {.pass_count = 1};
    /* Whoever asks how indices lie makes a few more expressions, which nobody reads. */
    info.expr = arena_new_array(arena, ExprInfo, 2 * count + MADE_LATER);
    info.store_pass = arena_new_array(arena, int, length(kernel->store) + 1);
    Analysis a = {.kernel = kernel, .arena = arena, .info = &info};
    a.cost = arena_new_array(arena, int, count + 1);
    a.seen_in = arena_new_array(arena, int, count + 1);
    a.live = arena_new_array(arena, bool, count + 1);
    a.valued = arena_new_array(arena, bool, count + 1);
    for (int i = 0; i < count; i++) a.seen_in[i] = -1;
    mark_live(&a);
    level(&a);
    place_stores(&a);
    keep_rows(&a);
    return info;
}
