/* A finished group -> its kernel: axes split where accesses divide them, neighbours merged where
 * every access allows it, stores added, buffers bound to plan values. */
#include "sched/schedule.h"

#include <math.h>
#include <string.h>

enum {
    PIECE_MERGED = 32, /* points of rows between two conditions, on average */
    PART_LEAST = 3,    /* elements of rows that are walked one by one, */
    PART_BYTES = 9,    /* and bytes, at the least */
    PART_DEAR = 4      /* elements of one, of which vectors are mostly empty */
};

/* ---- merging axes ---------------------------------------------------------------------------- */

/* A few elements that stay in cache wherever they are read from. */
static bool is_small_load(const Kernel *kernel, const Expr *e, const DeviceMachine *machine) {
    return e->op == EX_load && e->input_count == 1 &&
           kernel->buffer[e->imm.i].numel <= machine->small;
}

bool may_run_flat(const Schedule *s, Kernel *kernel, int last) {
    const DeviceMachine *machine = s->machine;
    return s->options.generate && last > 0 && axis_typical(kernel, last) <= machine->flat_row &&
           axis_typical(kernel, last - 1) >= machine->short_row &&
           kernel_runs_flat(kernel, last, false);
}

/* Conditions on the coordinate along axis alone turn over between rows, and so they do along both
 * axes as one (index_compare). Merged, the rows of a piece are one run, if long enough for a loop
 * of its own. */
static bool turns_between_rows(const Schedule *s, const Group *group, const Expr *e, int axis) {
    Kernel *kernel = group->trial;
    bool compares = (e->op == OP_lt || e->op == OP_ge) && e->input[1]->op == OP_constant;
    if (!compares || e->input[0] != expr_axis(kernel, axis)) return false;
    if (group->anchor || domain_has_inner(&group->domain)) return false;
    int64_t pieces = length(kernel_edges(kernel, axis, s->arena)) + 1;
    int64_t points = axis_typical(kernel, axis) * axis_typical(kernel, axis + 1);
    return pieces <= PIECES_MAX && points >= pieces * PIECE_MERGED;
}

/* Of a member that has a place of its own: a sum of rows, or what goes to a part of an input. */
static bool stores_continue(const Schedule *s, const Group *group, int i, int axis, int next) {
    Expr *index = group->sink[i] ? group->sink[i] : direct_index(s, group, group->member[i]);
    return !index || index_continues(group->trial, index, axis, next);
}

/* A last axis that is short is merged, and a small operand that does not continue is gathered. */
static bool may_merge(const Schedule *s, const Group *group, int axis, int next) {
    const DeviceMachine *machine = s->machine;
    Kernel *kernel = group->trial;
    bool last = next == kernel->outer_count - 1 && next == length(kernel->axis) - 1;
    bool is_short = last && !group->anchor && axis_typical(kernel, next) < machine->short_row &&
                    !may_run_flat(s, kernel, next);
    for (int i = 0; i < length(group->member); i++)
        if (!stores_continue(s, group, i, axis, next)) return false;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (index_is_arithmetic(e)) continue; /* judged as a whole, where it is used */
        if (is_short && is_small_load(kernel, e, machine)) continue;
        if (turns_between_rows(s, group, e, axis)) continue;
        for (int k = 0; k < e->input_count; k++)
            if (index_is_arithmetic(e->input[k]) &&
                !index_continues(kernel, e->input[k], axis, next))
                return false;
    }
    return true;
}

static int axis_number(const Domain *domain, int at) {
    int number = 0;
    for (int i = 0; i < domain->count; i++)
        number += domain->inner[i] < domain->inner[at] ||
                  (domain->inner[i] == domain->inner[at] && i < at);
    return number;
}

static Domain merged_domain(const Schedule *s, const Group *group) {
    const Domain *domain = &group->domain;
    Domain merged = {0};
    for (int i = 0; i < domain->count; i++) {
        bool join = i > 0 && domain->inner[i] == domain->inner[i - 1] &&
                    may_merge(s, group, axis_number(domain, i - 1), axis_number(domain, i));
        if (join) {
            merged.size[merged.count - 1] *= domain->size[i];
            merged.varies[merged.count - 1] |= domain->varies[i];
        } else {
            merged.size[merged.count] = domain->size[i];
            merged.varies[merged.count] = domain->varies[i];
            merged.inner[merged.count++] = domain->inner[i];
        }
    }
    return merged;
}

static void merge_axes(Schedule *s, Group *group) {
    Domain before = group->domain, merged = merged_domain(s, group);
    if (merged.count == before.count) return;
    const Node **member = group->member;
    if (group_lower(s, group, &merged)) return;
    group->member = member;
    check(group_lower(s, group, &before), "a group that was lowered before");
}

/* ---- splitting axes -------------------------------------------------------------------------- */

/* The least number by which an axis is divided on the way to an element; 0: none is. */
static int64_t least_cut(const Kernel *kernel, const Expr *index, int64_t least, int *axis) {
    bool divides = index_divides(index, OP_floor_divide) || index_divides(index, OP_remainder);
    if (divides && index->input[0]->op == EX_axis) {
        int64_t by = index->input[1]->imm.i, at = index->input[0]->imm.i;
        if ((!least || by < least) && kernel->axis[at].size % by == 0) *axis = (int)at, least = by;
    }
    for (int k = 0; k < index->input_count; k++)
        if (index_is_arithmetic(index->input[k]))
            least = least_cut(kernel, index->input[k], least, axis);
    return least;
}

static int64_t find_cut(const Kernel *kernel, int *axis) {
    int64_t least = 0;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        for (int k = 0; k < e->input_count && !index_is_arithmetic(e); k++)
            if (index_is_arithmetic(e->input[k]))
                least = least_cut(kernel, e->input[k], least, axis);
    }
    return least;
}

/* Every operand is reached without divisions, and the last axis makes good vectors; of folds, the
 * last one outside, for along the others nothing was gained. */
static bool is_plain(Kernel *kernel, const DeviceMachine *machine) {
    int64_t stride[2 * DOMAIN_AXES];
    Expr *rest;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        for (int k = 0; k < e->input_count && !index_is_arithmetic(e); k++)
            if (index_is_arithmetic(e->input[k]) &&
                !index_affine(kernel, e->input[k], stride, &rest))
                return false;
    }
    if (length(kernel->axis) > kernel->outer_count) {
        choose_form(kernel, machine);
        return kernel->form == FORM_TILE;
    }
    return axis_typical(kernel, length(kernel->axis) - 1) >= machine->short_row;
}

/* Where axis_number finds the number. */
static int numbered_axis(const Domain *domain, int number) {
    int at = 0;
    while (axis_number(domain, at) != number) at++;
    return at;
}

/* A value that is flattened after a transposition has axes that the domain cuts across:
 *
 *     out[a0], a0 < 9216, from x[a0 % 36 * 256 + a0 / 36]     ->     x[a1 * 256 + a0], a0 < 256
 *
 * Of a fold those of its results. False: the axes stay as they were. */
static bool split_axes(Schedule *s, Group *group) {
    const Domain before = group->domain;
    const Node **member = group->member;
    int axis = 0, cuts = 0;
    bool lowered = true;
    if (group->anchor) return false;
    for (int64_t by; lowered && (by = find_cut(group->trial, &axis)) > 0; cuts++) {
        Domain finer = group->domain;
        int at = numbered_axis(&finer, axis);
        if (finer.count == DOMAIN_AXES || finer.inner[at]) break;
        for (int i = finer.count++; i > at; i--) {
            finer.size[i] = finer.size[i - 1];
            finer.varies[i] = finer.varies[i - 1];
            finer.inner[i] = finer.inner[i - 1];
        }
        finer.size[at] /= by, finer.size[at + 1] = by;
        finer.varies[at] = finer.varies[at + 1] = false;
        lowered = group_lower(s, group, &finer);
    }
    if (!cuts) return false;
    if (lowered) merge_axes(s, group);
    if (lowered && is_plain(group->trial, s->machine)) return true;
    group->member = member;
    check(group_lower(s, group, &before), "a group that was lowered before");
    return false;
}

/* No load has a place that was itself loaded, or that axis and the one before it do not walk
 * through by strides, or a condition on another axis. */
static bool is_plain_walk(Kernel *kernel, int axis) {
    int64_t stride;
    Expr *rest;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (e->op != EX_load) continue;
        if (e->input_count > 1 && e->input[1]->axes & ~(1u << axis)) return false;
        if (!index_linear(kernel, e->input[0], axis, &stride, &rest)) return false;
        if (!index_linear(kernel, rest, axis - 1, &stride, &rest) || !index_is_computed(rest))
            return false;
    }
    return true;
}

/* Of a load, or -1: how far rows along the last axis, which it reads one by one, lie apart where
 * there is more between them; 0: they go on, or are the same. */
static int64_t apart(Kernel *kernel, const Expr *load, int last) {
    int64_t along, rows;
    Expr *rest;
    if (load->input_count > 1 || !index_linear(kernel, load->input[0], last, &along, &rest))
        return -1;
    if (along > 1 || !index_linear(kernel, rest, last - 1, &rows, &rest)) return -1;
    return along && rows != kernel->axis[last].size ? rows : 0;
}

/* Whether the rows are parts of longer ones, side by side: vectors of them go on into what lies
 * between (codegen/c/whole.c), where lanes across the rows would gather and scatter. Not where a
 * vector would be mostly of that, unless it gathers more: much is computed for a few points, which
 * compilers take apart in registers (c_gathers_rows). */
static bool goes_along_parts(const Schedule *s, Kernel *kernel, int last) {
    int64_t low[EXPR_AXES], high[EXPR_AXES], size = kernel->axis[last].size, bytes = 8, cost = 0;
    bool parts = false, registers = true;
    if (kernel->axis[last].varies || length(kernel_edges(kernel, last, s->arena))) return false;
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (e->op < OP_COUNT && e->op != OP_constant) cost += op_info(e->op)->cost;
        if (e->op != EX_load) continue;
        int64_t rows = apart(kernel, e, last),
                own = (int64_t)cb_dtype_size(kernel->buffer[e->imm.i].dtype);
        if (rows < 0) return false;
        parts |= rows > 0;
        registers &= rows <= 4 || rows == 8;
        if (own < bytes) bytes = own;
    }
    bool short_part = size < PART_LEAST || size * bytes < PART_BYTES;
    bool dear = size <= PART_DEAR && registers && cost >= DEAR_POINT;
    return parts && !short_part && !dear &&
           kernel_bounds_rows(kernel, last, kernel_whole_row(kernel, last), low, high);
}

/* A last axis that is short and could not be merged would be the lanes' own: made inner, it becomes
 * a loop within lanes along the axis before it, as the three coordinates of every pair of points
 * do, or the pieces of a stack along a new last dim. */
static void lay_short_axis(Schedule *s, Group *group) {
    const Domain before = group->domain;
    const Node **member = group->member;
    int last = before.count - 1;
    if (!s->options.generate || last < 1 || group->anchor || domain_has_inner(&before)) return;
    int64_t size = axis_typical(group->trial, last);
    if (axis_typical(group->trial, last - 1) < s->machine->short_row) return;
    bool is_short = size < s->machine->short_row && size > 1;
    is_short |= kernel_in_short_pieces(group->trial, last);
    is_short =
        is_short && is_plain_walk(group->trial, last) && !goes_along_parts(s, group->trial, last);
    if (!is_short && !may_run_flat(s, group->trial, last)) return;
    Domain laid = before;
    laid.inner[last] = true;
    if (group_lower(s, group, &laid)) return;
    group->member = member;
    check(group_lower(s, group, &before), "a group that was lowered before");
}

/* ---- names and values ------------------------------------------------------------------------ */

int node_value(Schedule *s, const Node *node) {
    int *value = &s->value[node->id];
    if (*value >= 0) return *value;
    bool input = node->op == OP_input;
    cb_dtype dtype = s->wide[node->id] ? CB_F32 : node->dtype;
    PlanValue v = {.dtype = dtype, .place = VALUE_TEMPORARY, .numel = node_numel(node)};
    if (input) {
        v.place = VALUE_INPUT, v.number = (int)node->attrs->word[0];
        int arguments = length(s->plan->input);
        if (v.number >= arguments) v.place = VALUE_CONSTANT, v.number -= arguments;
    }
    push(s->plan->arena, s->plan->value, v);
    return *value = length(s->plan->value) - 1;
}

static int random_value(Schedule *s) {
    for (int i = 0; i < length(s->plan->value); i++)
        if (s->plan->value[i].place == VALUE_RANDOM) return i;
    push(s->plan->arena, s->plan->value,
         (PlanValue){.dtype = CB_I64, .place = VALUE_RANDOM, .numel = 2});
    return length(s->plan->value) - 1;
}

static void bind_buffers(Schedule *s, Kernel *kernel) {
    for (int i = 0; i < length(kernel->buffer); i++) {
        int id = kernel->buffer[i].value;
        int value = id < 0 ? random_value(s) : node_value(s, s->graph->node[id]);
        kernel->buffer[i].value = value;
        kernel->buffer[i].dtype = s->plan->value[value].dtype;
    }
}

enum { NAME_OPS = 4, ORIGIN_OPS = 12 };

/* What the user calls it: folds by what they fold with, scans by the op that is one. */
static const char *name_of(const Expr *e) {
    Op op = e->op == EX_reduce ? (Op)e->imm.i : e->op;
    for (int i = 0; e->op == EX_scan && i < OP_COUNT; i++)
        if (op_info(i)->kind == KIND_SCAN && op_info(i)->scan_of == e->imm.i) op = i;
    return op_info(op)->name;
}

/* The ops of an expression in computing order: k3_exp_sum_div. */
static void name_kernel(Schedule *s, Kernel *kernel) {
    Buffer name = buffer_new(s->arena), origin = buffer_new(s->arena);
    const char *last = "";
    int count = 0;
    putf(&name, "k%d", length(s->plan->kernel));
    const bool *live = kernel_live(kernel, s->arena);
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (!live[i]) continue;
        if (index_is_arithmetic(e) || e->op == OP_constant || e->op == EX_load) continue;
        const char *op = name_of(e);
        if (strcmp(op, last) == 0) continue;
        if (count < NAME_OPS) putf(&name, "_%s", op);
        if (count < ORIGIN_OPS) putf(&origin, "%s%s", count ? ", " : "", op);
        kernel->kind = hash_mix(kernel->kind, hash_text(op));
        last = op;
        count++;
    }
    for (int i = 0; i < length(kernel->store); i++) {
        static const char *const of[] = {
            [STORE_LAST] = "scatter", [STORE_ADD] = "scatter_add", [STORE_SUM] = "sum"};
        const char *op = of[kernel->store[i].mode];
        if (!op) continue;
        if (count < NAME_OPS) putf(&name, "_%s", op);
        if (count < ORIGIN_OPS) putf(&origin, "%s%s", count ? ", " : "", op);
        kernel->kind = hash_mix(kernel->kind, hash_text(op));
        count++;
    }
    if (!count) put(&name, "_copy"), put(&origin, "copy");
    if (count > ORIGIN_OPS) putf(&origin, " and %d more", count - ORIGIN_OPS);
    kernel->name = buffer_text(&name);
    kernel->origin = buffer_text(&origin);
}

static bool resembles(const Kernel *kernel, const Kernel *like) {
    return kernel->outer_count == like->outer_count && length(kernel->axis) == length(like->axis) &&
           kernel->kind == like->kind;
}

/* The same kernel of the plan over other sizes tells which axes vary, where the sizes themselves
 * may be equal by chance: 12 heads, and 12 tokens. */
static void compare_axes(Schedule *s, Kernel *kernel) {
    const Plan *like = s->options.sizes.like;
    int count = like ? length(like->kernel) : 0, at = s->likened;
    while (at < count && !resembles(kernel, like->kernel[at])) at++;
    if (at == count) return;
    const Axis *other = like->kernel[at]->axis;
    s->likened = at + 1;
    kernel->like = at;
    for (int a = 0; a < length(kernel->axis); a++)
        kernel->axis[a].varies = kernel->axis[a].size != other[a].size || other[a].varies;
}

/* A store narrows what it gets: a value that was rounded to the same halves before goes there as it
 * was. Adding stores need it rounded. */
static void round_once(Kernel *kernel) {
    for (int i = 0; i < length(kernel->store); i++) {
        Store *store = &kernel->store[i];
        cb_dtype dtype = kernel->buffer[store->buffer].dtype;
        const Expr *e = store->value;
        if (e->op != OP_to || e->imm.i != dtype || store->mode == STORE_ADD) continue;
        if (dtype_is_half(dtype)) store->value = expr_to(kernel, e->input[0], CB_F32);
    }
}

/* ---- halves that are only moved ---- */

/* The value with the loads of halves in it as loads of 16 bits; NULL where anything is computed of
 * them or numbers are put among them. */
static Expr *as_bits(Kernel *kernel, Expr *e, cb_dtype half) {
    if (e->op == EX_load && kernel->buffer[e->imm.i].dtype == half)
        return expr_load(kernel, (int)e->imm.i, CB_I16, e->input[0],
                         e->input_count == 2 ? e->input[1] : NULL);
    bool zero = e->op == OP_constant && e->imm.f == 0 && !signbit(e->imm.f);
    if (zero) return expr_constant(kernel, CB_I16, (Scalar){.i = 0});
    if (e->op != OP_where) return NULL;
    Expr *yes = as_bits(kernel, e->input[1], half);
    Expr *no = yes ? as_bits(kernel, e->input[2], half) : NULL;
    return no ? expr_op(kernel, OP_where, CB_I16, (Expr *[]){e->input[0], yes, no}, 3) : NULL;
}

/* Whether nothing reads halves as numbers, conditions and indices included. */
static bool reads_no_halves(const Kernel *kernel, Arena *arena) {
    const bool *live = kernel_live(kernel, arena);
    for (int i = 0; i < length(kernel->expr); i++) {
        const Expr *e = kernel->expr[i];
        if (!live[i] || e->op != EX_load || e->dtype == CB_I16) continue;
        if (dtype_is_half(kernel->buffer[e->imm.i].dtype)) return false;
    }
    return true;
}

/* A kernel of copies alone has no arithmetic: halves go as they are, and are not widened. */
static void move_bits(Schedule *s, Kernel *kernel) {
    for (int i = 0; i < length(kernel->store); i++) {
        const Store *store = &kernel->store[i];
        bool copies = store->value->op == EX_load || store->value->op == OP_where;
        bool half = dtype_is_half(kernel->buffer[store->buffer].dtype);
        if (!copies || !half || store->mode == STORE_ADD) return;
    }
    Kernel *moved = kernel_copy(kernel, s->arena);
    for (int i = 0; i < length(moved->store); i++) {
        Store *store = &moved->store[i];
        store->value = as_bits(moved, store->value, moved->buffer[store->buffer].dtype);
        if (!store->value) return;
    }
    if (!reads_no_halves(moved, s->arena)) return;
    for (int i = 0; i < length(moved->buffer); i++)
        if (dtype_is_half(moved->buffer[i].dtype)) moved->buffer[i].dtype = CB_I16;
    *kernel = *moved;
}

/* Of the plan, with the same body: the layers of a network have few of them. */
static const Kernel *find_kernel(const Schedule *s, const Kernel *kernel) {
    const Kernel *first = map_get(&s->kernel, kernel->key[0]);
    return first && first->key[1] == kernel->key[1] ? first : NULL;
}

static int add_kernel(Schedule *s, Kernel *kernel) {
    name_kernel(s, kernel);
    round_once(kernel);
    move_bits(s, kernel);
    compare_axes(s, kernel);
    choose_form(kernel, s->machine);
    kernel_key(kernel, s->arena, kernel->key);
    const Kernel *first = find_kernel(s, kernel);
    Arena *home = s->plan->arena;
    Kernel *kept = first ? kernel_again(first, kernel, home) : kernel_copy(kernel, home);
    if (!first) map_put(&s->kernel, kernel->key[0], kept);
    push(home, s->plan->kernel, kept);
    return length(s->plan->kernel) - 1;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int out_buffer(Schedule *s, Kernel *kernel, const Node *node) {
    int value = node_value(s, node);
    for (int i = 0; i < length(kernel->buffer); i++)
        if (kernel->buffer[i].value == value) {
            kernel->buffer[i].role = BUFFER_INOUT;
            return i;
        }
    return kernel_buffer(kernel, node->dtype, BUFFER_OUT, node_numel(node), value);
}

enum { VALUE_OPEN = -1 };

static int out_or_open(Schedule *s, Kernel *kernel, const Node *node) {
    if (!s->direct[node->id]) return out_buffer(s, kernel, node);
    return kernel_buffer(kernel, node->dtype, BUFFER_OUT, node_numel(node), VALUE_OPEN);
}

/* What may go to where an input lies is known when all stores are. */
static void settle_open(Schedule *s, Group *group, const bool *stored) {
    for (int i = 0, at = 0; i < length(group->member); i++) {
        if (!stored[i]) continue;
        Store *store = &group->trial->store[at++];
        KernelBuffer *buffer = &group->trial->buffer[store->buffer];
        if (buffer->value != VALUE_OPEN) continue;
        if (!store_direct(s, group, group->member[i], store))
            buffer->value = node_value(s, group->member[i]);
    }
}

/* What becomes a whole input is stored there as the run goes on, if the kernel knows of it where it
 * must (sched/in_place.c). */
static void share_updated(Schedule *s, const Group *group, const bool *stored) {
    Kernel *kernel = group->trial;
    if (!length(s->graph->mutation) || group->anchor) return;
    for (int i = 0, at = 0; i < length(group->member); i++) {
        if (!stored[i]) continue;
        const Store *store = &kernel->store[at++];
        const Node *input = updated_input(s, group->member[i]);
        int value = input ? node_value(s, input) : VALUE_OPEN;
        if (input && kernel_updates(kernel, store, value)) kernel_share(kernel, store, value);
    }
}

int finish_group(Schedule *s, Group *group, const bool *stored) {
    if (!split_axes(s, group)) merge_axes(s, group);
    lay_short_axis(s, group);
    Kernel *kernel = group->trial;
    int64_t total = domain_total(&group->domain);
    bind_buffers(s, kernel);
    for (int i = 0; i < length(group->member); i++) {
        const Node *node = group->member[i];
        if (!stored[i]) continue;
        Expr *index = node_numel(node) == total ? group->element : group->row;
        if (group->sink[i]) index = group->sink[i];
        kernel_store(kernel, out_or_open(s, kernel, node), index, group->value[i], NULL,
                     group->sink[i] ? STORE_SUM : STORE_SET);
    }
    settle_open(s, group, stored);
    share_updated(s, group, stored);
    kernel->node_count = length(group->member);
    return add_kernel(s, kernel);
}

/* ---- scatter --------------------------------------------------------------------------------- */

/* A group without members, to lower expansions over domain with its reads collected. */
static Group *open_group(Schedule *s, const Domain *domain) {
    Group *group = arena_zalloc(s->arena, sizeof *group);
    group_open(s, group, domain);
    return group;
}

/* Lowered, and without what it writes yet: out is to be known. */
typedef struct ScatterKernel {
    Kernel *kernel;
    Expr *index, *value; /* that is stored, and where */
} ScatterKernel;

static ScatterKernel scatter_copy(Schedule *s, const Node *node) {
    Domain domain = domain_of(node);
    Group *group = open_group(s, &domain);
    Expr *position[CB_MAX_RANK];
    index_unflatten(group->trial, node->rank, node->size, group->element, position);
    Expr *value = lower_at(&group->lowering, node->input[0], position, NULL);
    bind_buffers(s, group->trial);
    return (ScatterKernel){group->trial, group->element, value};
}

/* Over the index: dim is inner (updates of one row in order), the others are outer: points of
 * different rows never meet. */
static ScatterKernel scatter_update(Schedule *s, const Node *node) {
    const Node *index = node->input[1];
    int dim = (int)node->attrs->word[ATTR_along_dim];
    Domain domain = {0};
    for (int i = 0; i < index->rank; i++) {
        domain.size[domain.count] = index->size[i];
        domain.inner[domain.count++] = i == dim;
    }
    Group *group = open_group(s, &domain);
    Kernel *kernel = group->trial;
    Expr *position[CB_MAX_RANK];
    index_unflatten(kernel, index->rank, index->size, group->element, position);
    Expr *value = lower_at(&group->lowering, node->input[2], position, NULL);
    Expr *target = lower_at(&group->lowering, index, position, NULL);
    bind_buffers(s, kernel);
    position[dim] = expr_to(kernel, target, CB_I64);
    return (ScatterKernel){kernel, index_flatten(kernel, node->rank, node->size, position), value};
}

static int add_scatter(Schedule *s, const Node *node, const ScatterKernel *of, StoreMode mode) {
    int out = out_buffer(s, of->kernel, node);
    if (mode != STORE_SET) of->kernel->buffer[out].role = BUFFER_INOUT;
    kernel_store(of->kernel, out, of->index, of->value, NULL, mode);
    return add_kernel(s, of->kernel);
}

/* What was scattered to, where nobody needs it as it was: elements would be copied from where they
 * lie to their own place. -1: there is no such. */
static int scattered_value(const Schedule *s, const Node *node, const int *uses,
                           const ScatterKernel *copy, const Kernel *update) {
    const Node *base = node->input[0];
    const Expr *copied = copy->value;
    if (uses[base->id] != 1 || is_write(base)) return -1;
    if (copied->op != EX_load || copied->input[0] != copy->index) return -1;
    int value = copy->kernel->buffer[copied->imm.i].value;
    const PlanValue *v = &s->plan->value[value];
    bool same = v->place == VALUE_TEMPORARY && v->dtype == node->dtype;
    same = same && s->value[base->id] == value;
    return same && !kernel_reads(update, value) ? value : -1;
}

void finish_scatter(Schedule *s, Group *group, const int *uses, int kernel[2]) {
    const Node *node = group->anchor;
    ScatterKernel copy = scatter_copy(s, node), update = scatter_update(s, node);
    int value = scattered_value(s, node, uses, &copy, update.kernel);
    if (value >= 0) s->value[node->id] = value;
    kernel[0] = value < 0 ? add_scatter(s, node, &copy, STORE_SET) : -1;
    kernel[1] = add_scatter(s, node, &update, node->op == OP_scatter_add ? STORE_ADD : STORE_LAST);
}
