/* Index arithmetic in normal form (index.h). */
#include "lower/index.h"

#include <stdint.h>
#include <string.h>

enum { MAX_TERMS = 48 };

typedef struct IndexTerm {
    Expr *atom;
    int64_t factor;
} IndexTerm;

typedef struct Sum {
    int count;
    int64_t constant;
    IndexTerm term[MAX_TERMS];
} Sum;

/* Terms beyond count are not read, so they are not written: sums are made by the thousand. */
static void sum_open(Sum *sum, int64_t constant) {
    sum->count = 0;
    sum->constant = constant;
}

static void sum_copy(Sum *to, const Sum *from) {
    sum_open(to, from->constant);
    for (int i = 0; i < from->count; i++) to->term[to->count++] = from->term[i];
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }
static int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }
static int64_t absolute(int64_t a) { return a < 0 ? -a : a; }

static int64_t greatest_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b, b = r;
    }
    return absolute(a);
}

/* ---- sums ----------------------------------------------------------------------------------- */

static void sum_term(Sum *sum, Expr *atom, int64_t factor) {
    int at = 0;
    while (at < sum->count && sum->term[at].atom->id < atom->id) at++;
    if (at < sum->count && sum->term[at].atom == atom) {
        sum->term[at].factor += factor;
        if (sum->term[at].factor) return;
        memmove(sum->term + at, sum->term + at + 1,
                sizeof(IndexTerm) * (size_t)(--sum->count - at));
        return;
    }
    if (!factor) return;
    check(sum->count < MAX_TERMS, "index expression with more than %d terms", MAX_TERMS);
    memmove(sum->term + at + 1, sum->term + at, sizeof(IndexTerm) * (size_t)(sum->count++ - at));
    sum->term[at] = (IndexTerm){atom, factor};
}

static void sum_expr(Sum *sum, Expr *e, int64_t factor) {
    while (e->op == OP_add) {
        sum_expr(sum, e->input[1], factor);
        e = e->input[0];
    }
    if (e->op == OP_constant)
        sum->constant += e->imm.i * factor;
    else if (e->op == OP_mul && e->input[1]->op == OP_constant)
        sum_expr(sum, e->input[0], factor * e->input[1]->imm.i);
    else
        sum_term(sum, e, factor);
}

static Expr *pair_of(Kernel *kernel, Op op, cb_dtype dtype, Expr *a, int64_t b) {
    Expr *input[2] = {a, expr_int(kernel, b)};
    return expr_op(kernel, op, dtype, input, 2);
}

static Expr *pair(Kernel *kernel, Op op, Expr *a, int64_t b) {
    return pair_of(kernel, op, CB_I64, a, b);
}

static Expr *sum_build(Kernel *kernel, const Sum *sum) {
    Expr *result = NULL;
    for (int i = 0; i < sum->count; i++) {
        const IndexTerm *t = &sum->term[i];
        Expr *term = t->factor == 1 ? t->atom : pair(kernel, OP_mul, t->atom, t->factor);
        Expr *both[2] = {result, term};
        result = result ? expr_op(kernel, OP_add, CB_I64, both, 2) : term;
    }
    if (!result) return expr_int(kernel, sum->constant);
    return sum->constant ? pair(kernel, OP_add, result, sum->constant) : result;
}

static int64_t factor_of(const Sum *sum, const Expr *atom) {
    for (int i = 0; i < sum->count; i++)
        if (sum->term[i].atom == atom) return sum->term[i].factor;
    return 0;
}

/* c * (q % k) + c * k * (q / k)  ->  c * q, for one remainder term; the quotient is itself a normal
 * form, of which every term must be there. */
static bool with_quotient(Kernel *kernel, Sum *sum, const IndexTerm *term) {
    Expr *remainder = term->atom;
    int64_t c = term->factor, k = remainder->input[1]->imm.i;
    Sum quotient;
    sum_open(&quotient, 0);
    sum_expr(&quotient, index_divide(kernel, remainder->input[0], k), 1);
    if (quotient.count == 0) return false;
    for (int i = 0; i < quotient.count; i++)
        if (factor_of(sum, quotient.term[i].atom) != c * k * quotient.term[i].factor) return false;
    sum_term(sum, remainder, -c);
    for (int i = 0; i < quotient.count; i++)
        sum_term(sum, quotient.term[i].atom, -c * k * quotient.term[i].factor);
    sum->constant -= c * k * quotient.constant;
    sum_expr(sum, remainder->input[0], c);
    return true;
}

/* q % k + k * above, where that is p / k and p as q but for a multiple of k, or q / k % j. */
static Expr *above_remainder(Kernel *kernel, Expr *remainder, Expr *above) {
    Expr *q = remainder->input[0];
    int64_t k = remainder->input[1]->imm.i, product;
    if (index_divides(above, OP_floor_divide) && above->input[1]->imm.i == k) {
        Expr *p = above->input[0];
        return index_remainder(kernel, p, k) == remainder ? p : NULL;
    }
    if (!index_divides(above, OP_remainder)) return NULL;
    int64_t j = above->input[1]->imm.i;
    if (__builtin_mul_overflow(j, k, &product)) return NULL;
    Expr *digit = index_remainder(kernel, index_divide(kernel, q, k), j);
    return digit == above ? index_remainder(kernel, q, product) : NULL;
}

static bool recombine_term(Kernel *kernel, Sum *sum, const IndexTerm *term) {
    if (with_quotient(kernel, sum, term)) return true;
    int64_t c = term->factor, k = term->atom->input[1]->imm.i;
    for (int i = 0; i < sum->count; i++) {
        Expr *above = sum->term[i].atom;
        if (sum->term[i].factor != c * k) continue;
        Expr *whole = above_remainder(kernel, term->atom, above);
        if (!whole) continue;
        sum_term(sum, term->atom, -c);
        sum_term(sum, above, -c * k);
        sum_expr(sum, whole, c);
        return true;
    }
    return false;
}

static void recombine(Kernel *kernel, Sum *sum) {
    for (int i = 0; i < sum->count; i++) {
        IndexTerm term = sum->term[i];
        if (index_divides(term.atom, OP_remainder) && recombine_term(kernel, sum, &term)) i = -1;
    }
}

Expr *index_add(Kernel *kernel, Expr *a, Expr *b) {
    Sum sum;
    sum_open(&sum, 0);
    sum_expr(&sum, a, 1);
    sum_expr(&sum, b, 1);
    recombine(kernel, &sum);
    return sum_build(kernel, &sum);
}

Expr *index_scale(Kernel *kernel, Expr *a, int64_t factor) {
    Sum sum;
    sum_open(&sum, 0);
    sum_expr(&sum, a, factor);
    return sum_build(kernel, &sum);
}

Expr *index_offset(Kernel *kernel, Expr *a, int64_t offset) {
    return index_add(kernel, a, expr_int(kernel, offset));
}

/* ---- division and remainder ----------------------------------------------------------------- */

/* a = divisor * whole + rest, where rest keeps the terms that the divisor does not divide and a
 * constant in [0, divisor). */
static void part(Expr *a, int64_t divisor, Sum *whole, Sum *rest) {
    Sum sum;
    sum_open(&sum, 0);
    sum_expr(&sum, a, 1);
    sum_open(whole, floor_div(sum.constant, divisor));
    sum_open(rest, floor_mod(sum.constant, divisor));
    for (int i = 0; i < sum.count; i++) {
        IndexTerm t = sum.term[i];
        if (t.factor % divisor == 0)
            whole->term[whole->count++] = (IndexTerm){t.atom, t.factor / divisor};
        else
            rest->term[rest->count++] = t;
    }
}

/* The common divisor of all factors of rest and of divisor. */
static int64_t common(const Sum *rest, int64_t divisor) {
    int64_t g = divisor;
    for (int i = 0; i < rest->count; i++) g = greatest_divisor(g, rest->term[i].factor);
    return g;
}

/* The same multiple of divisor below all of rest, when its bounds lie within one period. */
static bool one_period(const Expr *rest, int64_t divisor, int64_t *period) {
    if (!expr_bounded(rest)) return false;
    *period = floor_div(rest->low, divisor);
    return floor_div(rest->high, divisor) == *period;
}

/* rest = g * big + small with 0 <= small < g and g a divisor of the divisor: small decides nothing.
 * The largest such g among the factors; 0 when there is none. */
static int64_t split_small(Kernel *kernel, const Sum *rest, int64_t divisor, Sum *big, Sum *small) {
    int64_t best = 0;
    for (int i = 0; i < rest->count; i++) {
        int64_t g = absolute(rest->term[i].factor);
        if (g <= best || divisor % g) continue;
        Sum whole, left;
        part(sum_build(kernel, rest), g, &whole, &left);
        const Expr *bounds = sum_build(kernel, &left);
        if (bounds->low < 0 || bounds->high >= g) continue;
        best = g;
        sum_copy(big, &whole);
        sum_copy(small, &left);
    }
    return best;
}

/* A sum of a quotient or remainder and a number, divided: (x / k + c) / d -> (x + c * k) / (k * d),
 * and x % m / d -> x / d % (m / d), so that all quotients of one x are seen to be. */
static Expr *divide_again(Kernel *kernel, const Sum *sum, int64_t divisor) {
    if (sum->count != 1 || sum->term[0].factor != 1) return NULL;
    const Expr *atom = sum->term[0].atom;
    int64_t product, offset, number;
    if (index_divides(atom, OP_floor_divide)) {
        number = atom->input[1]->imm.i;
        if (__builtin_mul_overflow(number, divisor, &product) ||
            __builtin_mul_overflow(number, sum->constant, &offset))
            return NULL;
        return index_divide(kernel, index_offset(kernel, atom->input[0], offset), product);
    }
    if (sum->constant || !index_divides(atom, OP_remainder)) return NULL;
    number = atom->input[1]->imm.i;
    if (number % divisor) return NULL;
    return index_remainder(kernel, index_divide(kernel, atom->input[0], divisor), number / divisor);
}

static Expr *divide_rest(Kernel *kernel, const Sum *rest, int64_t divisor) {
    Sum big, small;
    int64_t g = split_small(kernel, rest, divisor, &big, &small);
    if (!g) {
        g = common(rest, divisor);
        sum_copy(&big, rest);
        for (int i = 0; i < big.count; i++) big.term[i].factor /= g;
        big.constant = floor_div(big.constant, g);
    }
    divisor /= g;
    if (divisor == 1) return sum_build(kernel, &big);
    Expr *again = divide_again(kernel, &big, divisor);
    return again ? again : pair(kernel, OP_floor_divide, sum_build(kernel, &big), divisor);
}

Expr *index_divide(Kernel *kernel, Expr *a, int64_t divisor) {
    check(divisor > 0, "index division by %lld", (long long)divisor);
    if (divisor == 1) return a;
    Sum whole, rest;
    int64_t period;
    part(a, divisor, &whole, &rest);
    if (one_period(sum_build(kernel, &rest), divisor, &period))
        whole.constant += period;
    else
        sum_expr(&whole, divide_rest(kernel, &rest, divisor), 1);
    recombine(kernel, &whole);
    return sum_build(kernel, &whole);
}

/* x % m % k -> x % k when k divides m. */
static Expr *strip_remainder(Kernel *kernel, Sum *rest, int64_t divisor) {
    Sum plain;
    sum_open(&plain, rest->constant);
    bool changed = false;
    for (int i = 0; i < rest->count; i++) {
        Expr *atom = rest->term[i].atom;
        bool inside = index_divides(atom, OP_remainder) && atom->input[1]->imm.i % divisor == 0;
        sum_expr(&plain, inside ? atom->input[0] : atom, rest->term[i].factor);
        changed |= inside;
    }
    return changed ? index_remainder(kernel, sum_build(kernel, &plain), divisor) : NULL;
}

Expr *index_remainder(Kernel *kernel, Expr *a, int64_t divisor) {
    check(divisor > 0, "index remainder by %lld", (long long)divisor);
    if (divisor == 1) return expr_int(kernel, 0);
    Sum whole, rest;
    int64_t period;
    part(a, divisor, &whole, &rest);
    Expr *reduced = sum_build(kernel, &rest);
    if (one_period(reduced, divisor, &period))
        return index_offset(kernel, reduced, -period * divisor);
    Expr *stripped = strip_remainder(kernel, &rest, divisor);
    if (stripped) return stripped;
    Sum big, small;
    int64_t g = split_small(kernel, &rest, divisor, &big, &small);
    if (g > 1) {
        Expr *high = index_remainder(kernel, sum_build(kernel, &big), divisor / g);
        return index_add(kernel, index_scale(kernel, high, g), sum_build(kernel, &small));
    }
    g = common(&rest, divisor);
    int64_t left = rest.constant % g; /* g * (x + c / g) % (g * d) + c % g, in [0, g) */
    for (int i = 0; i < rest.count; i++) rest.term[i].factor /= g;
    rest.constant = (rest.constant - left) / g;
    Expr *inner = pair(kernel, OP_remainder, sum_build(kernel, &rest), divisor / g);
    return index_offset(kernel, index_scale(kernel, inner, g), left);
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* factor * x < number, as x < *number or x >= *number, and the same of >=. */
static Op divide_sides(Op op, int64_t factor, int64_t *number) {
    int64_t negated = floor_div(-*number, absolute(factor));
    bool back = factor < 0;
    *number = back ? negated + 1 : -negated;
    if (!back) return op;
    return op == OP_lt ? OP_ge : OP_lt;
}

Expr *index_compare(Kernel *kernel, Op op, Expr *position, int64_t number) {
    Sum sum;
    sum_open(&sum, 0);
    if (expr_bounded(position)) sum_expr(&sum, position, 1);
    if (sum.count != 1 || !index_writes(number) || !index_writes(sum.constant))
        return pair_of(kernel, op, CB_BOOL, position, number);
    number -= sum.constant;
    op = divide_sides(op, sum.term[0].factor, &number);
    Expr *atom = sum.term[0].atom;
    int64_t product;
    if (!index_divides(atom, OP_floor_divide) ||
        __builtin_mul_overflow(number, atom->input[1]->imm.i, &product))
        return pair_of(kernel, op, CB_BOOL, atom, number);
    return index_compare(kernel, op, atom->input[0], product);
}

/* ---- positions ------------------------------------------------------------------------------- */

Expr *index_dot(Kernel *kernel, int rank, const int64_t *stride, Expr *const *position) {
    Sum sum;
    sum_open(&sum, 0);
    for (int i = 0; i < rank; i++) sum_expr(&sum, position[i], stride[i]);
    recombine(kernel, &sum);
    return sum_build(kernel, &sum);
}

Expr *index_flatten(Kernel *kernel, int rank, const int64_t *size, Expr *const *position) {
    int64_t stride[EXPR_AXES];
    for (int i = rank - 1, next = rank; i >= 0; next = i--)
        stride[i] = next < rank ? stride[next] * size[next] : 1;
    return index_dot(kernel, rank, stride, position);
}

void index_unflatten(Kernel *kernel, int rank, const int64_t *size, Expr *flat, Expr **position) {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        Expr *q = index_divide(kernel, flat, stride);
        position[i] = size[i] <= 1 ? expr_int(kernel, 0)
                      : i == 0     ? q
                                   : index_remainder(kernel, q, size[i]);
        stride *= size[i] ? size[i] : 1;
    }
}

/* ---- taking apart ---------------------------------------------------------------------------- */

bool expr_uses_axis(const Expr *expr, int axis) { return expr->axes >> axis & 1; }

bool expr_uses_inner(const Kernel *kernel, const Expr *expr) {
    return expr->axes >> kernel->outer_count != 0;
}

bool index_linear(Kernel *kernel, Expr *index, int axis, int64_t *stride, Expr **rest) {
    Sum sum;
    sum_open(&sum, 0);
    sum_expr(&sum, index, 1);
    Expr *variable = expr_axis(kernel, axis);
    *stride = factor_of(&sum, variable);
    if (*stride) sum_term(&sum, variable, -*stride);
    *rest = sum_build(kernel, &sum);
    return !expr_uses_axis(*rest, axis);
}

bool index_affine(Kernel *kernel, Expr *index, int64_t *stride, Expr **rest) {
    Sum sum;
    sum_open(&sum, 0);
    sum_expr(&sum, index, 1);
    for (int axis = 0; axis < length(kernel->axis); axis++) {
        Expr *variable = expr_axis(kernel, axis);
        stride[axis] = factor_of(&sum, variable);
        if (stride[axis]) sum_term(&sum, variable, -stride[axis]);
    }
    *rest = sum_build(kernel, &sum);
    return (*rest)->axes == 0;
}

static bool has_term(const Expr *index, const Expr *term) {
    if (index == term) return true;
    for (int i = 0; i < index->input_count && index_is_arithmetic(index); i++)
        if (has_term(index->input[i], term)) return true;
    return false;
}

Expr *index_where(Kernel *kernel, Expr *index, const Expr *condition) {
    for (int i = 0; i < 2 && condition->op == OP_logical_and; i++)
        index = index_where(kernel, index, condition->input[i]);
    bool even = condition->op == OP_eq && index_divides(condition->input[0], OP_remainder) &&
                condition->input[1]->op == OP_constant && condition->input[1]->imm.i == 0;
    if (!even) return index;
    Expr *whole = index_add(kernel, index, condition->input[0]);
    return has_term(whole, condition->input[0]) ? index : whole;
}

bool index_is_arithmetic(const Expr *e) {
    return e->dtype == CB_I64 && (e->op == OP_add || e->op == OP_mul || e->op == EX_axis ||
                                  e->op == OP_floor_divide || e->op == OP_remainder);
}

bool index_is_computed(const Expr *e) {
    for (int k = 0; k < e->input_count; k++)
        if (!index_is_computed(e->input[k])) return false;
    return index_is_arithmetic(e) || e->op == OP_constant;
}

bool index_continues(Kernel *kernel, Expr *index, int axis, int next) {
    int64_t stride[EXPR_AXES];
    Expr *rest;
    if (!expr_uses_axis(index, axis) && !expr_uses_axis(index, next)) return true;
    return index_affine(kernel, index, stride, &rest) &&
           stride[axis] == stride[next] * kernel->axis[next].size;
}
