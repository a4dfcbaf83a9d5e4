/* The iteration space of a group: the dimensions of its element-level values in row-major order,
 * each outer (parallel) or inner (folded by reductions). Softmax over f32[32, 128, 64] along dim 2
 * runs over {32 outer, 128 outer, 64 inner}; row-level values have the outer dimensions alone. */
#include "sched/schedule.h"

static void add_axis(Domain *domain, int64_t size, bool inner) {
    if (size == 1) return;
    domain->size[domain->count] = size;
    domain->inner[domain->count++] = inner;
}

static bool folds(const Node *node, int dim) {
    OpKind kind = op_info(node->op)->kind;
    if (kind == KIND_SCAN) return node->attrs->word[ATTR_along_dim] == dim;
    if (kind != KIND_REDUCE) return false;
    cb_dim_list dims = attr_dims(node->attrs, ATTR_sum_dim);
    for (int i = 0; i < dims.count; i++)
        if (dims.at[i] == dim) return true;
    return false;
}

Domain domain_of(const Node *node) {
    OpKind kind = op_info(node->op)->kind;
    const Node *shape = kind == KIND_REDUCE || kind == KIND_SCAN ? node->input[0] : node;
    Domain domain = {0};
    for (int i = 0; i < shape->rank; i++) add_axis(&domain, shape->size[i], folds(node, i));
    return domain;
}

int64_t domain_total(const Domain *domain) {
    int64_t total = 1;
    for (int i = 0; i < domain->count; i++) total *= domain->size[i];
    return total;
}

int64_t domain_outer(const Domain *domain) {
    int64_t outer = 1;
    for (int i = 0; i < domain->count; i++) outer *= domain->inner[i] ? 1 : domain->size[i];
    return outer;
}

bool domain_has_inner(const Domain *domain) {
    for (int i = 0; i < domain->count; i++)
        if (domain->inner[i]) return true;
    return false;
}

bool domain_equal(const Domain *a, const Domain *b) {
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (a->size[i] != b->size[i] || a->inner[i] != b->inner[i]) return false;
    return true;
}

/* Walks both from the last axis, cutting the longer one where the shorter ends. Axes that do not
 * divide each other ([6, 4] and [4, 6]) leave a as it is: b's positions are then quotients of
 * a's. */
static void refine(const Domain *a, const Domain *b, Domain *out) {
    Domain reversed = {0};
    int i = a->count - 1, j = b->count - 1;
    int64_t left_a = i < 0 ? 1 : a->size[i], left_b = j < 0 ? 1 : b->size[j];
    *out = *a;
    while (i >= 0 && j >= 0) {
        int64_t cut = left_a < left_b ? left_a : left_b;
        if (cut == 0 || left_a % cut || left_b % cut || reversed.count == DOMAIN_AXES) return;
        add_axis(&reversed, cut, a->inner[i]);
        if ((left_a /= cut) == 1 && --i >= 0) left_a = a->size[i];
        if ((left_b /= cut) == 1 && --j >= 0) left_b = b->size[j];
    }
    out->count = reversed.count;
    for (int k = 0; k < reversed.count; k++) {
        out->size[k] = reversed.size[reversed.count - 1 - k];
        out->inner[k] = reversed.inner[reversed.count - 1 - k];
    }
}

bool domain_same_split(const Domain *a, const Domain *b) {
    Domain ab, ba;
    if (!domain_has_inner(a) || !domain_has_inner(b)) return true;
    if (domain_total(a) != domain_total(b)) return false;
    refine(a, b, &ab);
    refine(b, a, &ba);
    return domain_equal(&ab, &ba);
}

bool domain_join(const Domain *a, const Domain *b, Domain *out) {
    bool inner_a = domain_has_inner(a), inner_b = domain_has_inner(b);
    if (inner_b && !inner_a) return domain_join(b, a, out);
    int64_t total_a = domain_total(a), total_b = domain_total(b);
    if (total_a == total_b) {
        refine(a, b, out);
        return true;
    }
    *out = *a; /* b may be row-level beside a */
    return inner_a && domain_outer(a) == total_b;
}

bool domain_take(const Domain *rows, const Domain *sums, Domain *out) {
    *out = *rows;
    if (domain_total(rows) == domain_total(sums)) refine(rows, sums, out);
    return domain_total(rows) == domain_total(sums) || domain_outer(rows) == domain_total(sums);
}
