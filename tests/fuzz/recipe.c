/* Random recipes (recipe.h). Choose an op, find operands that it can take, ask op_infer what comes
 * out. Shapes come from one small family (B, R, C), so that broadcasts, rows and columns meet
 * often. */
#include "recipe.h"

#include <math.h>
#include <string.h>

/* xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled"
 * (2016) */
static uint64_t next(uint64_t *state) {
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

static int pick(uint64_t *state, int count) { return (int)((next(state) >> 33) % (uint64_t)count); }

/* Ops whose results stay in a range where engines can be compared. */
static const Op unary[] = {OP_neg,   OP_abs,         OP_sign,  OP_square, OP_relu,      OP_sigmoid,
                           OP_tanh,  OP_sin,         OP_cos,   OP_erf,    OP_floor,     OP_ceil,
                           OP_trunc, OP_round,       OP_atan,  OP_exp,    OP_log1p,     OP_sqrt,
                           OP_isnan, OP_logical_not, OP_expm1, OP_rsqrt,  OP_reciprocal};
static const Op binary[] = {OP_add, OP_sub, OP_mul,         OP_maximum,  OP_minimum,
                            OP_div, OP_lt,  OP_ge,          OP_eq,       OP_atan2,
                            OP_add, OP_mul, OP_logical_and, OP_remainder};
static const Op reduce[] = {OP_sum, OP_amax, OP_amin, OP_mean, OP_any,
                            OP_all, OP_var,  OP_sum,  OP_prod};
static const Op view[] = {OP_permute, OP_flip,      OP_slice, OP_unsqueeze,
                          OP_flatten, OP_transpose, OP_select};
static const Op composite[] = {OP_softmax,    OP_log_softmax, OP_gelu,   OP_silu, OP_softplus,
                               OP_leaky_relu, OP_normalize,   OP_argmax, OP_elu};
/* Ops of exact recipes; never both a product and a sum, since contraction is allowed. */
static const Op exact_unary[] = {OP_neg,   OP_abs,  OP_sign,  OP_relu,        OP_floor,
                                 OP_ceil,  OP_sqrt, OP_trunc, OP_round,       OP_isnan,
                                 OP_floor, OP_sqrt, OP_to,    OP_logical_not, OP_reciprocal};
static const Op products[] = {OP_mul, OP_div, OP_div, OP_maximum, OP_minimum,
                              OP_lt,  OP_ge,  OP_eq,  OP_div,     OP_remainder};
static const Op sums[] = {OP_add, OP_sub, OP_div, OP_maximum, OP_minimum,     OP_lt,
                          OP_ge,  OP_eq,  OP_div, OP_fmod,    OP_floor_divide};
static const Op exact_reduce[] = {OP_amax, OP_amin, OP_any, OP_amax, OP_amin, OP_all, OP_amax};
#define PICK(state, table) table[pick(state, (int)(sizeof table / sizeof *table))]

static bool is_reduced(const Recipe *r, int value) {
    return value >= r->input_count &&
           op_info(r->step[value - r->input_count].op)->kind == KIND_REDUCE;
}

static Operand choose(const Recipe *r, uint64_t *state) {
    int count = r->input_count + r->step_count;
    int recent =
        pick(state, 3) ? count - 1 - pick(state, count < 4 ? count : 4) : pick(state, count);
    return (Operand){recent, 0.0};
}

/* Exact recipes are about what comes behind a value: chains, and rows beside their numbers. */
static Operand choose_exact(const Recipe *r, bool first, uint64_t *state) {
    int count = r->input_count + r->step_count, row = count - 1;
    while (row >= 0 && !is_reduced(r, row)) row--;
    if (first && !is_reduced(r, count - 1) && pick(state, 3)) return (Operand){count - 1, 0.0};
    if (!first && row >= 0 && pick(state, 3)) return (Operand){row, 0.0};
    return (Operand){pick(state, count), 0.0};
}

static const Meta *meta_of(const Recipe *r, Operand o) { return &r->meta[o.value]; }

static int any_dim(const Recipe *r, Operand o, uint64_t *state) {
    return pick(state, meta_of(r, o)->rank);
}

static bool fill_view(const Recipe *r, RecipeStep *s, uint64_t *state) {
    const Meta *m = meta_of(r, s->input[0]);
    cb_dim_list dims = {m->rank, {0}};
    if (m->rank == 0) return false;
    int dim = any_dim(r, s->input[0], state);
    switch (s->op) {
    case OP_permute:
        for (int i = 0; i < m->rank; i++) dims.at[i] = (i + dim) % m->rank;
        attr_set_dims(&s->attrs, ATTR_permute_dims, dims);
        return true;
    case OP_flip:
        attr_set_dims(&s->attrs, ATTR_flip_dims, cb_dims(dim));
        return true;
    case OP_slice:
        s->attrs.word[ATTR_slice_dim] = dim;
        s->attrs.word[ATTR_slice_start] = pick(state, 2);
        s->attrs.word[ATTR_slice_step] = 1 + pick(state, 2);
        return m->size[dim] > 1;
    case OP_unsqueeze:
        s->attrs.word[ATTR_unsqueeze_dim] = dim;
        return m->rank < 4;
    case OP_transpose:
        s->attrs.word[ATTR_transpose_dim0] = dim;
        s->attrs.word[ATTR_transpose_dim1] = m->rank - 1;
        return true;
    case OP_select:
        s->attrs.word[ATTR_select_dim] = dim;
        s->attrs.word[ATTR_select_index] = pick(state, (int)m->size[dim]);
        return m->size[dim] > 0;
    default:
        return true;
    }
}

static bool fill_reduce(const Recipe *r, RecipeStep *s, uint64_t *state) {
    const Meta *m = meta_of(r, s->input[0]);
    if (m->rank == 0) return false;
    bool all = pick(state, 5) == 0;
    int keep = s->op == OP_var ? ATTR_var_keepdim : ATTR_sum_keepdim;
    attr_set_dims(&s->attrs, ATTR_sum_dim, all ? CB_ALL : cb_dims(any_dim(r, s->input[0], state)));
    s->attrs.word[keep] = r->exact || pick(state, 2); /* so that what follows can meet its rows */
    return s->op != OP_prod || meta_numel(m) < 40;
}

static bool fill_composite(const Recipe *r, RecipeStep *s, uint64_t *state) {
    const Meta *m = meta_of(r, s->input[0]);
    if (m->rank == 0) return false;
    int dim = any_dim(r, s->input[0], state);
    if (s->op == OP_softmax) s->attrs.word[ATTR_softmax_dim] = dim;
    if (s->op == OP_log_softmax) s->attrs.word[ATTR_log_softmax_dim] = dim;
    if (s->op == OP_normalize) s->attrs.word[ATTR_normalize_dim] = dim;
    if (s->op == OP_argmax) attr_set_dims(&s->attrs, ATTR_argmax_dim, cb_dims(dim));
    return true;
}

static Op pick_op(int kind, uint64_t *state) {
    if (kind < 6) return PICK(state, unary);
    if (kind < 12) return PICK(state, binary);
    if (kind < 14) return PICK(state, reduce);
    if (kind < 16) return PICK(state, view);
    if (kind < 18) return PICK(state, composite);
    return kind < 19 ? OP_where : OP_matmul;
}

static Op pick_exact(const Recipe *r, int kind, uint64_t *state) {
    if (kind < 6) return PICK(state, exact_unary);
    if (kind < 12) return r->multiplies ? PICK(state, products) : PICK(state, sums);
    if (kind < 14) return PICK(state, exact_reduce);
    return kind < 16 ? PICK(state, view) : OP_where;
}

static bool fill_step(const Recipe *r, RecipeStep *s, uint64_t *state) {
    static const cb_dtype targets[] = {CB_I32, CB_F64, CB_F32, CB_I64};
    s->count = 1;
    int kind = pick(state, r->exact ? 17 : 20);
    s->op = r->exact ? pick_exact(r, kind, state) : pick_op(kind, state);
    s->attrs = attrs_default(s->op);
    if (s->op == OP_to) s->attrs.word[ATTR_to_dtype] = PICK(state, targets);
    s->count = s->op == OP_where ? 3 : kind >= 6 && kind < 12 ? 2 : s->op == OP_matmul ? 2 : 1;
    for (int i = 0; i < s->count; i++)
        s->input[i] = r->exact ? choose_exact(r, i == 0, state) : choose(r, state);
    bool number = kind >= 6 && kind < 12 && pick(state, 3) == 0;
    if (number) s->input[1] = (Operand){-1, 0.25 * (1 + pick(state, 12))};
    if (kind >= 12 && kind < 14) return fill_reduce(r, s, state);
    if (kind >= 14 && kind < 16) return fill_view(r, s, state);
    return s->op == OP_where || op_info(s->op)->kind != KIND_COMPOSITE ||
           fill_composite(r, s, state);
}

/* ---- running --------------------------------------------------------------------------------- */

static cb_tensor *run_step(const RecipeStep *s, cb_tensor *const *value) {
    cb_operand input[3];
    for (int i = 0; i < s->count; i++)
        input[i] = s->input[i].value < 0 ? cb_operand_float(s->input[i].number)
                                         : cb_operand_tensor(value[s->input[i].value]);
    return apply_handles(s->op, input, s->count, &s->attrs);
}

/* Ops that never round: a jitter there would tear apart what is equal by construction. */
static bool is_exact(Op op) {
    switch (op) {
    case OP_neg:
    case OP_abs:
    case OP_sign:
    case OP_relu:
    case OP_floor:
    case OP_ceil:
    case OP_trunc:
    case OP_round:
    case OP_isnan:
    case OP_logical_not:
    case OP_logical_and:
    case OP_maximum:
    case OP_minimum:
    case OP_lt:
    case OP_ge:
    case OP_eq:
    case OP_amax:
    case OP_amin:
    case OP_any:
    case OP_all:
    case OP_argmax:
    case OP_where:
        return true;
    default:
        return op_info(op)->kind == KIND_VIEW;
    }
}

/* x with each element off by up to two units in the last place. */
static Tensor *jittered(Tensor *x, uint64_t *state) {
    static double block[4096];
    cb_dtype dtype = cb_dtype_of(x);
    if (!x || (dtype != CB_F32 && dtype != CB_F64) || cb_numel(x) > 4096) return x;
    cb_dim_list sizes = {cb_rank(x), {0}};
    for (int i = 0; i < sizes.count; i++) sizes.at[i] = cb_size(x, i);
    double unit = dtype == CB_F32 ? 0x1p-23 : 0x1p-52;
    for (int64_t k = 0; k < cb_numel(x); k++) block[k] = 1.0 + unit * (pick(state, 5) - 2);
    cb_tensor *factor = cb_from_data(block, CB_F64, sizes);
    return cb_mul(x, dtype == CB_F64 ? factor : cb_to(factor, dtype));
}

/* x without what is small beside `beside`, as a sum that cancels loses it. */
static Tensor *cancelled(Tensor *x, Tensor *beside) {
    bool same = cb_dtype_of(x) == cb_dtype_of(beside) && cb_rank(x) == cb_rank(beside);
    for (int i = 0; i < cb_rank(x) && same; i++) same = cb_size(x, i) == cb_size(beside, i);
    return same ? cb_sub(cb_add(x, beside), beside) : x;
}

/* A fold also rounds inside: there operands are off, too, so that what cancels does not. Between
 * the ops of a composite something may cancel: gelu(-10) is -8e-38, or -0 by way of 1 + erf. */
static Tensor *run_jittered(const RecipeStep *s, Tensor *const *value, uint64_t *state) {
    Tensor *operand[MAX_VALUES];
    if (is_exact(s->op)) return run_step(s, value);
    OpKind kind = op_info(s->op)->kind;
    for (int i = 0; i < s->count; i++) {
        int v = s->input[i].value;
        if (v >= 0) operand[v] = kind == KIND_POINTWISE ? value[v] : jittered(value[v], state);
    }
    Tensor *x = run_step(s, operand);
    int first = s->input[0].value;
    if (kind == KIND_COMPOSITE && first >= 0 && pick(state, 2)) x = cancelled(x, value[first]);
    return jittered(x, state);
}

int recipe_call(cb_tensor *const *inputs, int input_count, cb_tensor **outputs, void *user) {
    const Recipe *r = user;
    Tensor *value[MAX_VALUES];
    for (int i = 0; i < input_count; i++) value[i] = inputs[i];
    uint64_t state = r->jitter * 0x9E3779B97F4A7C15ull;
    for (int i = 0; i < r->step_count; i++)
        value[input_count + i] =
            r->jitter ? run_jittered(&r->step[i], value, &state) : run_step(&r->step[i], value);
    for (int i = 0; i < r->output_count; i++) outputs[i] = value[r->output[i]];
    return r->output_count;
}

/* Small integers, whose quotients sit on steps, fractions, and both ends of the range. */
static double any_number(uint64_t *state) {
    static const float ends[] = {1e-40f, 2e-40f, 0x1p-149f, 0x1p-126f, 1e38f, 3e38f,
                                 1e-30f, 0.0f,   -0.0f,     INFINITY,  NAN,   -1e-39f};
    int kind = pick(state, 8);
    if (kind == 0) return PICK(state, ends);
    if (kind < 4) return pick(state, 100) - 30;
    return (float)((double)(next(state) >> 11) * 0x1p-53 * 4.0 - 2.0);
}

void recipe_inputs(const Recipe *r, cb_tensor **out) {
    uint64_t state = r->seed * 977 + 1;
    static double block[4096];
    for (int i = 0; i < r->input_count; i++) {
        const Meta *m = &r->input[i];
        cb_dim_list sizes = {m->rank, {0}};
        memcpy(sizes.at, m->size, sizeof m->size);
        int64_t count = meta_numel(m);
        for (int64_t k = 0; k < count; k++)
            block[k] = r->exact ? any_number(&state)
                                : (float)((double)(next(&state) >> 11) * 0x1p-53 * 4.0 - 2.0);
        bool wide = r->widened && m->dtype == CB_F32;
        cb_tensor *x = cb_from_data(block, CB_F64, sizes);
        out[i] = wide || m->dtype == CB_F64 ? x : cb_to(x, m->dtype);
    }
}

/* Tries a step for real, on the metas alone: an eager run of a fresh copy would be slow and is not
 * needed, since shapes follow from values of the same shape. */
static bool try_step(Recipe *r, const RecipeStep *s, Tensor **value) {
    Tensor *y = run_step(s, value);
    cb_clear_error();
    if (!y || cb_rank(y) > 4 || cb_numel(y) > 4096) return false;
    int number = r->input_count + r->step_count;
    value[number] = y;
    r->meta[number] = tensor_meta(tensor_in(y, "fuzz"));
    r->step[r->step_count++] = *s;
    return true;
}

void recipe_random(Recipe *r, uint64_t seed) {
    static const int64_t family[][3] = {{2, 5, 7},  {1, 5, 7},   {2, 5, 1},   {2, 1, 7},
                                        {3, 4, 33}, {1, 16, 16}, {1, 3, 1030}};
    static const cb_dtype kinds[] = {CB_F32, CB_F32, CB_F32,  CB_F32,
                                     CB_I32, CB_F64, CB_BOOL, CB_I64};
    uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
    Tensor *value[MAX_VALUES];
    for (int i = 0; i < 4; i++) next(&state);
    *r = (Recipe){.seed = seed, .input_count = 1 + pick(&state, MAX_INPUTS)};
    r->exact = seed % 3 == 0;
    r->multiplies = seed % 2;
    int base = r->exact && pick(&state, 4) == 0 ? 6 : pick(&state, 6);
    for (int i = 0; i < r->input_count; i++) {
        Meta m = {.dtype = (int8_t)(i ? PICK(&state, kinds) : CB_F32),
                  .rank = (uint8_t)(1 + pick(&state, 3))};
        const int64_t *sizes = family[base < 4 ? pick(&state, 4) : base];
        for (int d = 0; d < m.rank; d++) m.size[d] = sizes[3 - m.rank + d];
        r->input[i] = r->meta[i] = m;
    }
    recipe_inputs(r, value);
    int steps = 2 + pick(&state, r->exact ? 6 : MAX_STEPS - 2);
    for (int tries = 0; r->step_count < steps && tries < 200; tries++) {
        RecipeStep s = {0};
        if (fill_step(r, &s, &state)) try_step(r, &s, value);
    }
    int last = r->input_count + r->step_count - 1;
    r->output_count = 1 + (last > 1 && pick(&state, 3) == 0);
    r->output[0] = last;
    r->output[1] = pick(&state, last);
}

/* ---- shrinking and printing ----------------------------------------------------------------- */

bool recipe_without(const Recipe *r, int step, Recipe *out) {
    int gone = r->input_count + step, heir = -1;
    const RecipeStep *s = &r->step[step];
    for (int i = 0; i < s->count && heir < 0; i++)
        if (s->input[i].value >= 0 &&
            memcmp(&r->meta[s->input[i].value], &r->meta[gone], sizeof(Meta)) == 0)
            heir = s->input[i].value;
    *out = *r;
    out->step_count = 0;
    for (int k = 0; k < r->step_count; k++) {
        if (k == step) continue;
        RecipeStep *t = &out->step[out->step_count];
        *t = r->step[k];
        out->meta[r->input_count + out->step_count++] = r->meta[r->input_count + k];
        for (int i = 0; i < t->count; i++) {
            if (t->input[i].value == gone && heir < 0) return false;
            if (t->input[i].value == gone)
                t->input[i].value = heir;
            else if (t->input[i].value > gone)
                t->input[i].value--;
        }
    }
    for (int i = 0; i < r->output_count; i++) {
        if (r->output[i] == gone && heir < 0) return false;
        out->output[i] = r->output[i] == gone ? heir : r->output[i] - (r->output[i] > gone);
    }
    return out->step_count > 0;
}

static void print_step(const RecipeStep *s, int number, FILE *out) {
    const OpInfo *info = op_info(s->op);
    fprintf(out, "  v%d = %s(", number, info->name);
    for (int i = 0; i < s->count; i++) {
        fputs(i ? ", " : "", out);
        if (s->input[i].value < 0)
            fprintf(out, "%g", s->input[i].number);
        else
            fprintf(out, "v%d", s->input[i].value);
    }
    for (int p = 0; p < info->param_count; p++) {
        const Param *param = &info->param[p];
        if (param->word < 0) continue;
        fprintf(out, ", %s=", param->name);
        if (param->type == PARAM_FLOAT)
            fprintf(out, "%g", attr_float(&s->attrs, param->word));
        else if (param->type != PARAM_DIMS)
            fprintf(out, "%lld", (long long)s->attrs.word[param->word]);
        else {
            cb_dim_list dims = attr_dims(&s->attrs, param->word);
            for (int i = 0; i < dims.count; i++)
                fprintf(out, "%s%lld", i ? "," : "[", (long long)dims.at[i]);
            fputs(dims.count > 0 ? "]" : "all", out);
        }
    }
    fprintf(out, ")\n");
}

void recipe_print(const Recipe *r, FILE *out) {
    char text[128];
    for (int i = 0; i < r->input_count; i++) {
        meta_format(&r->input[i], text, sizeof text);
        fprintf(out, "  v%d: %s\n", i, text);
    }
    for (int i = 0; i < r->step_count; i++) print_step(&r->step[i], r->input_count + i, out);
    for (int i = 0; i < r->output_count; i++) fprintf(out, "  return v%d\n", r->output[i]);
}
