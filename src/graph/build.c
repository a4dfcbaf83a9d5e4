/* The builder of nodes from calls: check, promote, infer, convert, expand, intern.
 *
 *     graph_op(g, OP_add, {x: i32[3], 1.5 as a number})  ->  to = to(x, dtype=f32); add(to, 1.5)
 *
 * What is simplified here holds without looking further: constants are converted in place, a
 * conversion to the same dtype and a view of the same shape are their input, shorthand views
 * (transpose, squeeze, select...) become one of the six that lowering knows. Everything else is
 * left to the passes, so that a graph shows the ops that were called. */
#include "device/device.h"
#include "graph/expand/expand.h"
#include "graph/index_check.h"
#include "op/custom.h"

#include <math.h>
#include <string.h>

Node *node_convert(Graph *graph, Node *node, cb_dtype dtype) {
    cb_dtype from = node ? node->dtype : dtype;
    if (from == dtype) return node;
    if (node->op == OP_constant)
        return graph_constant(graph, dtype,
                              scalar_convert(node_constant(node), from, compute_dtype(dtype)));
    Meta meta = node_meta(node);
    meta.dtype = dtype;
    Attrs attrs = {{0}};
    attrs.word[ATTR_to_dtype] = dtype;
    return graph_intern(graph, OP_to, &meta, &node, 1, &attrs);
}

Node *node_number(Graph *graph, const char *op, cb_operand number, cb_dtype dtype) {
    Scalar value = number_scalar(&number);
    cb_dtype own = number_dtype(&number);
    char why[NUMBER_TEXT];
    if (number_converts(&number, dtype, why))
        return graph_constant(graph, dtype, scalar_convert(value, own, dtype));
    fail(CB_ERR_ARGUMENT, "%s: %s", op, why);
    return NULL;
}

/* ---- views -------------------------------------------------------------------------------- */

static Node *view_sizes(Graph *graph, Op op, int word, Node *node, int rank, const int64_t *size) {
    if (!node || node_has_sizes(node, rank, size)) return node;
    Meta meta = {.dtype = node->dtype, .rank = (uint8_t)rank};
    if (rank) memcpy(meta.size, size, sizeof *size * (size_t)rank);
    Attrs attrs = {{0}};
    attr_set_dims(&attrs, word, size_list(rank, size));
    return graph_intern(graph, op, &meta, &node, 1, &attrs);
}

Node *node_expand_to(Graph *graph, Node *node, int rank, const int64_t *size) {
    return view_sizes(graph, OP_expand, ATTR_expand_sizes, node, rank, size);
}

Node *node_reshape(Graph *graph, Node *node, int rank, const int64_t *size) {
    return view_sizes(graph, OP_reshape, ATTR_reshape_sizes, node, rank, size);
}

static bool identity_view(Op op, const Attrs *attrs, const Node *input, const Meta *result) {
    if (!node_has_sizes(input, result->rank, result->size)) return false;
    cb_dim_list dims;
    switch (op) {
    case OP_permute:
        dims = attr_dims(attrs, ATTR_permute_dims);
        for (int i = 0; i < dims.count; i++)
            if (dims.at[i] != i) return false;
        return true;
    case OP_flip:
        dims = attr_dims(attrs, ATTR_flip_dims);
        for (int i = 0; i < dims.count; i++)
            if (input->size[dims.at[i]] > 1) return false;
        return true;
    case OP_reshape:
    case OP_expand:
    case OP_slice: /* whose steps are positive */
        return true;
    default:
        check(false, "%s: a view of its operand's sizes", op_info(op)->name);
        return false;
    }
}

static Node *select_one(Graph *graph, Node *input, const Attrs *attrs, const Meta *result) {
    int64_t index = attrs->word[ATTR_select_index];
    Attrs slice = attrs_default(OP_slice);
    slice.word[ATTR_slice_dim] = attrs->word[ATTR_select_dim];
    slice.word[ATTR_slice_start] = index;
    slice.word[ATTR_slice_end] = index + 1;
    Node *sliced = graph_op(graph, OP_slice, &input, 1, &slice, NULL);
    return node_reshape(graph, sliced, result->rank, result->size);
}

static bool canonical_view(Op op) {
    return op == OP_reshape || op == OP_permute || op == OP_expand || op == OP_slice ||
           op == OP_flip || op == OP_window;
}

/* One spelling of each slice: the end right behind its last element. */
static void tighten_slice(Attrs *attrs, const Meta *result) {
    int64_t *start = &attrs->word[ATTR_slice_start], *step = &attrs->word[ATTR_slice_step];
    int64_t count = result->size[attrs->word[ATTR_slice_dim]];
    if (count <= 1) *step = 1;
    if (count == 0) *start = 0;
    attrs->word[ATTR_slice_end] = count ? *start + (count - 1) * *step + 1 : 0;
}

static Node *build_view(Graph *graph, Op op, Node *input, Attrs *attrs, const Meta *result) {
    if (op == OP_select) return select_one(graph, input, attrs, result);
    if (!canonical_view(op)) {
        Meta meta = node_meta(input);
        Attrs canonical;
        op = view_canonical(op, attrs, &meta, result, &canonical);
        return graph_op(graph, op, &input, 1, &canonical, NULL);
    }
    if (identity_view(op, attrs, input, result)) return input;
    if (op == OP_window && input->rank == 0) { /* the element, or a window of nothing */
        static const int64_t one[] = {1};
        return call_slice(graph, node_reshape(graph, input, 1, one), 0, 0, result->size[0]);
    }
    if (op == OP_slice) tighten_slice(attrs, result);
    return graph_intern(graph, op, result, &input, 1, attrs);
}

/* ---- composites --------------------------------------------------------------------------- */

/* A number among a composite's tensors takes their dtype, or the default one of its own category
 * when that is above theirs: what promotion would do with it in every op of the expansion. */
static void convert_numbers(Graph *graph, Node **input, int count, const bool *numbers) {
    cb_dtype tensors = CB_BOOL;
    for (int i = 0; i < count; i++)
        if (input[i] && !numbers[i]) tensors = cb_promote(tensors, input[i]->dtype);
    for (int i = 0; i < count; i++) {
        if (!input[i] || !numbers[i]) continue;
        cb_dtype own = input[i]->dtype;
        bool above = dtype_kind(own) > dtype_kind(tensors);
        cb_dtype weak = dtype_is_float(own) ? CB_F32 : own;
        input[i] = node_convert(graph, input[i], above ? weak : tensors);
    }
}

static bool inputs_given(Op op, Node *const *input) {
    const OpInfo *info = op_info(op);
    for (int i = 0, next = 0; i < info->param_count; i++) {
        ParamType type = info->param[i].type;
        if (type != PARAM_TENSOR && type != PARAM_OPTIONAL_TENSOR) continue;
        if (!input[next++] && type == PARAM_TENSOR) return false;
    }
    return true;
}

/* Numbers that are needed are there. */
static bool numbers_given(const OpInfo *info, const Attrs *attrs) {
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        bool optional = param->has_default && !number_given(&param->default_number);
        if (param->type != PARAM_NUMBER || optional) continue;
        cb_operand number = attr_number(attrs, param->word);
        if (number_given(&number)) continue;
        fail(CB_ERR_ARGUMENT, "%s: %s must be a number", info->name, param->name);
        return false;
    }
    return true;
}

/* dtypes that exist: the rules of primitives see to their own. CB_SAME becomes the default. */
static bool dtypes_known(const OpInfo *info, Attrs *attrs) {
    for (int i = 0; i < info->param_count; i++) {
        const Param *param = &info->param[i];
        if (param->type != PARAM_DTYPE) continue;
        int64_t *word = &attrs->word[param->word];
        if (*word == CB_SAME && param->has_default) *word = param->default_int;
        if (*word >= CB_SAME && *word < CB_DTYPE_COUNT) continue;
        fail(CB_ERR_DTYPE, "%s: %lld is not a dtype", info->name, (long long)*word);
        return false;
    }
    return true;
}

/* Query, key and value of fewer dims than another have leading ones of size 1. */
static void attention_ranks(Graph *graph, Node **input) {
    int rank = 0, least = CB_MAX_RANK;
    for (int i = 0; i < 3; i++) {
        if (input[i]->rank > rank) rank = input[i]->rank;
        if (input[i]->rank < least) least = input[i]->rank;
    }
    for (int i = 0; i < 3 && least >= 2; i++) {
        int64_t size[CB_MAX_RANK];
        int added = rank - input[i]->rank;
        for (int d = 0; d < rank; d++) size[d] = d < added ? 1 : input[i]->size[d - added];
        input[i] = node_reshape(graph, input[i], rank, size);
    }
}

/* The dtype rule of the op over the inputs that are there; those that it converts are converted.
 * Formulas over several tensors are computed in their common dtype, as PyTorch's kernels are. */
static bool composite_dtypes(Graph *graph, Op op, Node **input) {
    const OpInfo *info = op_info(op);
    Meta meta[NODE_MAX_INPUTS];
    int count = 0;
    for (int i = 0; i < info->arity; i++)
        if (input[i]) meta[count++] = node_meta(input[i]);
    cb_dtype promoted;
    if (!op_takes(op, meta, count, &promoted)) return false;
    if (info->dtype == DTYPE_FLOAT && !dtype_is_float(promoted)) promoted = CB_F32;
    bool converts =
        info->dtype == DTYPE_FLOAT || (info->dtype != DTYPE_SAME && info->formula && count > 1);
    for (int i = 0; i < info->arity && converts; i++)
        if (input[i]) input[i] = node_convert(graph, input[i], promoted);
    return true;
}

/* As a word: not `t` in "tensor". */
static bool says(const char *text, const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
    size_t bytes = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += bytes) {
        bool begins = at == text || !memchr(letters, at[-1], sizeof letters - 1);
        if (begins && !memchr(letters, at[bytes], sizeof letters - 1)) return true;
    }
    return false;
}

void graph_name_error(const CompositeCall *call) {
    if (!call || !cb_error()) return;
    const char *name = op_info(call->op)->name;
    char text[OP_MAX_INPUTS][128] = {""};
    op_rename_error(name);
    bool all = says(error_text(), name); /* already */
    for (int i = 0; i < call->count; i++) {
        if (!call->input[i]) continue;
        Meta meta = node_meta(call->input[i]);
        meta_format(&meta, text[i], sizeof text[i]);
        all = all && strstr(error_text(), text[i]);
    }
    if (all) return;
    fail_also(", in %s(", name);
    for (int i = 0; i < call->count; i++)
        if (call->input[i]) fail_also(i ? ", %s" : "%s", text[i]);
    fail_also(")");
}

static const CompositeCall *call_of(Graph *graph, Op op, Node *const *input, int count) {
    CompositeCall *call = arena_alloc(graph->arena, sizeof *call);
    Node **copy = arena_new_array(graph->arena, Node *, count + 1);
    for (int i = 0; i < count; i++) copy[i] = input[i];
    *call = (CompositeCall){op, count, copy};
    return call;
}

static Node *build_composite(Graph *graph, Op op, Node *const *given, int count, Attrs *attrs,
                             const bool *numbers) {
    const OpInfo *info = op_info(op);
    Node *input[NODE_MAX_INPUTS] = {NULL};
    for (int i = 0; i < count; i++) input[i] = given[i];
    if (!inputs_given(op, input) || !dtypes_known(info, attrs)) return NULL;
    if (numbers) convert_numbers(graph, input, count, numbers);
    if (!composite_dtypes(graph, op, input)) return NULL;
    if (op == OP_scaled_dot_product_attention) attention_ranks(graph, input);
    if (op_draws(op, attrs)) attrs->word[info->word_count] = graph->random_count++;
    bool outermost = !graph->expanding, failed_before = cb_error() != NULL;
    Origin origin = graph->origin;
    if (!origin.call) graph->origin.call = call_of(graph, op, given, count);
    graph->expanding = true;
    Node *expansion = expand_composite(graph, op, input, attrs);
    if (outermost) graph->expanding = false;
    if (!expansion && outermost && !failed_before) graph_name_error(graph->origin.call);
    graph->origin = origin;
    if (!expansion) return NULL;
    Meta meta = node_meta(expansion);
    Node *node = node_intern(graph, op, &meta, input, info->arity, attrs, expansion);
    if (op_refuses(op)) value_check_called(graph, node);
    return node;
}

/* ---- numbers ------------------------------------------------------------------------------ */

/* A constant of f16 or bf16 with a value that the dtype has; other nodes as they are. */
static Node *rounded(Graph *graph, Node *node) {
    if (!node || node->op != OP_constant) return node;
    cb_dtype dtype = node->dtype;
    Scalar value = node_constant(node);
    return graph_constant(graph, dtype, scalar_convert(value, compute_dtype(dtype), dtype));
}

/* The same of a number that comes as an input. */
static Node *unrounded(Graph *graph, Node *node, cb_dtype dtype) {
    Meta meta = node_meta(node);
    meta.dtype = dtype;
    Attrs attrs = {{0}};
    attrs.word[ATTR_unrounded_dtype] = dtype;
    node = node_convert(graph, node, compute_dtype(dtype));
    return graph_intern(graph, OP_unrounded, &meta, &node, 1, &attrs);
}

/* PyTorch rounds a number to the dtype of the tensor beside it, but for WIDE_NUMBER ops and inside
 * of composite ones. */
static Node *convert_operand(Graph *graph, Op op, Node *node, cb_dtype dtype, bool number) {
    bool wide = graph->expanding || op_info(op)->flags & WIDE_NUMBER;
    if (number && wide && dtype_is_half(dtype) && node->op != OP_constant)
        return unrounded(graph, node, dtype);
    Node *converted = node_convert(graph, node, dtype);
    return number && !wide ? rounded(graph, converted) : converted;
}

/* An overflow is refused of FITS_NUMBER ops, the base of a power and an exponent with a fraction
 * excepted; and in f16 and bf16 where takes it as an infinity: masks are often -1e9. */
static bool must_fit(Op op, bool last, cb_dtype own, cb_dtype dtype) {
    if (op == OP_where && dtype_is_half(dtype)) return false;
    return op_info(op)->flags & FITS_NUMBER && (op != OP_pow || (last && !dtype_is_float(own)));
}

/* What PyTorch refuses of a plain number in the dtype that it is converted to: one that overflows;
 * division of integers by 0, powers of them below 0. */
static bool number_allowed(Graph *graph, Op op, const Node *number, bool last, cb_dtype dtype) {
    Scalar value = node_constant(number);
    cb_dtype own = number->dtype;
    bool whole = last && !dtype_is_float(dtype) && !dtype_is_float(own);
    if (whole && op_divides(op) && scalar_convert(value, own, dtype).i == 0) {
        fail(CB_ERR_ARGUMENT, "%s: %s", op_info(op)->name, op_refuses(op));
        return false;
    }
    if (whole && op == OP_pow && value.i < 0) {
        fail(CB_ERR_ARGUMENT, "pow: integers have no power of %lld", (long long)value.i);
        return false;
    }
    return !must_fit(op, last, own, dtype) ||
           node_number(graph, op_info(op)->name, number_from(own, value), dtype);
}

/* That the number was beside, in the error; NULL. */
static Node *name_operand(const Meta *meta) {
    char text[128];
    meta_format(meta, text, sizeof text);
    fail_also(": %s", text);
    return NULL;
}

/* A power by a plain number where PyTorch computes none, but a root, which is NaN of -inf (f16 has
 * no such kernel there); and where f32 would round an odd exponent to an even one. NULL: it is a
 * power as any other. */
static Node *power_by_number(Graph *graph, Node *x, const Node *number) {
    if (number->op != OP_constant || !dtype_is_float(x->dtype)) return NULL;
    double exponent = scalar_convert(node_constant(number), number->dtype, CB_F64).f;
    if (fabs(exponent) == 0.5 && x->dtype != CB_F16)
        return call1(graph, exponent > 0 ? OP_sqrt : OP_rsqrt, x);
    if (x->dtype != CB_F32 || !pow_needs_f64(exponent)) return NULL;
    Node *wide = call_number(graph, OP_pow, node_convert(graph, x, CB_F64), exponent);
    return node_convert(graph, wide, CB_F32);
}

/* ---- rank 0 ------------------------------------------------------------------------------- */

/* Ops along a dim that PyTorch computes on tensors of rank 0 as on vectors of one element. */
static bool lifts(Op op, Node *const *input, int count) {
    bool along =
        op_info(op)->kind == KIND_SCAN || op == OP_argsort || op == OP_argtopk || op_has_index(op);
    bool any = false, all = along;
    for (int i = 0; i < count && all; i++) {
        any |= input[i] && input[i]->rank == 0;
        all = input[i] && input[i]->rank <= 1;
    }
    return any && all && !(op == OP_index_select && input[0]->rank == 1);
}

static Node *lifted(Graph *graph, Op op, Node *const *input, int count, const Attrs *attrs) {
    static const int64_t one[] = {1};
    Node *vector[NODE_MAX_INPUTS];
    for (int i = 0; i < count; i++)
        vector[i] = input[i]->rank ? input[i] : node_reshape(graph, input[i], 1, one);
    Node *result = graph_op(graph, op, vector, count, attrs, NULL);
    const Node *like = input[op == OP_gather];
    if (!result || like->rank) return result;
    if (node_numel(result) == 1) return node_reshape(graph, result, 0, NULL);
    fail(CB_ERR_SHAPE, "%s: a tensor without dimensions has one element, not %lld",
         op_info(op)->name, (long long)node_numel(result));
    return NULL;
}

/* any and all over no dims: unlike other reductions, PyTorch's leave each element alone. */
static Node *truths(Graph *graph, Node *x) {
    Node *y = node_convert(graph, x, CB_BOOL);
    return x->dtype == CB_U8 ? node_convert(graph, y, CB_U8) : y;
}

_Static_assert(ATTR_any_dim == ATTR_all_dim, "any and all are called alike");

/* ---- operations of the user's --------------------------------------------------------------- */

static bool custom_runs_on(int device, const Attrs *attrs, Op op) {
    if (device_is_host(device)) return true;
    fail(CB_ERR_ARGUMENT,
         "%s: its kernel runs on the host, and what it takes lies on another device: "
         "cb_to_device(x, \"cpu\")",
         op_call_name(op, attrs->word));
    return false;
}

/* ---- full --------------------------------------------------------------------------------- */

/* With a value that is an argument: that, everywhere. */
static Node *full_of(Graph *graph, Node *value, Attrs *attrs) {
    Inferred inferred;
    attr_set_number(attrs, ATTR_full_value, number_from(value->dtype, (Scalar){0}));
    if (!op_infer(OP_full, NULL, 0, attrs, &inferred)) return NULL;
    const Meta *meta = &inferred.result;
    return node_expand_to(graph, node_convert(graph, value, meta->dtype), meta->rank, meta->size);
}

/* ---- entry -------------------------------------------------------------------------------- */

Node *graph_op(Graph *graph, Op op, Node *const *input, int input_count, const Attrs *attrs,
               const bool *numbers) {
    const OpInfo *info = op_info(op);
    check(input_count <= info->arity, "%s: takes %d tensors, not %d", info->name, info->arity,
          input_count);
    Attrs own = attrs_default(op);
    if (attrs) attrs_copy(&own, attrs, op);
    if (!numbers_given(info, &own)) return NULL;
    int argument = op == OP_full ? attr_argument(attr_float(&own, ATTR_full_value + 1)) : -1;
    if (argument >= 0 && attr_number(&own, ATTR_full_value).kind == CB_OPERAND_FLOAT)
        return full_of(graph, graph->input[argument], &own);
    if (info->kind == KIND_COMPOSITE)
        return build_composite(graph, op, input, input_count, &own, numbers);
    while (op == OP_custom && input_count && !input[input_count - 1]) input_count--;
    if (info->kind == KIND_CUSTOM && !custom_runs_on(graph->device, &own, op)) return NULL;
    if (lifts(op, input, input_count)) return lifted(graph, op, input, input_count, attrs);
    Meta meta[NODE_MAX_INPUTS];
    Node *converted[NODE_MAX_INPUTS];
    for (int i = 0; i < input_count; i++) {
        if (!input[i]) return NULL;
        meta[i] = node_meta(input[i]);
        meta[i].number = numbers && numbers[i];
    }
    Inferred inferred;
    bool truth = op == OP_any || op == OP_all;
    if (truth && own.word[ATTR_any_dim] == 0) return truths(graph, input[0]);
    if (!op_infer(op, meta, input_count, &own, &inferred)) return NULL;
    if (op == OP_to) return rounded(graph, node_convert(graph, input[0], inferred.result.dtype));
    for (int i = 0; i < input_count; i++) {
        bool last = i == input_count - 1; /* the exponent, or divisor */
        bool checked = numbers && numbers[i] && input[i]->op == OP_constant;
        if (checked && !number_allowed(graph, op, input[i], last, inferred.input_dtype[i]))
            return name_operand(&meta[last ? 0 : input_count - 1]);
        converted[i] =
            convert_operand(graph, op, input[i], inferred.input_dtype[i], numbers && numbers[i]);
    }
    inferred.result.number = false;
    bool known = op == OP_pow && numbers && numbers[1];
    Node *power = known ? power_by_number(graph, converted[0], input[1]) : NULL;
    if (power) return power;
    if (info->kind == KIND_VIEW) return build_view(graph, op, converted[0], &own, &inferred.result);
    if (op_draws(op, &own)) own.word[info->word_count] = graph->random_count++;
    Node *node = graph_intern(graph, op, &inferred.result, converted, input_count, &own);
    if (op_has_index(op)) index_check_called(graph, node);
    if (op_refuses(op)) value_check_called(graph, node);
    if (op == OP_custom && op_draws(op, &own)) push(graph->arena, graph->effect, node);
    /* PyTorch's any and all of u8 are u8. */
    return truth && meta[0].dtype == CB_U8 ? node_convert(graph, node, CB_U8) : node;
}

Node *graph_with_inputs(Graph *graph, const Node *node, Node *const *input) {
    Op op = node->op;
    bool same = true;
    for (int i = 0; i < node->input_count; i++) same &= input[i] == node->input[i];
    if (same) return graph->node[node->id];
    Meta meta = node_meta(node);
    Node *expansion = NULL;
    if (op_info(op)->kind == KIND_COMPOSITE) {
        Origin origin = graph->origin;
        if (!origin.call) graph->origin.call = call_of(graph, op, input, node->input_count);
        expansion = expand_composite(graph, op, input, node->attrs);
        graph->origin = origin;
        check(expansion, "%s does not expand over equal inputs", op_info(op)->name);
    }
    return node_intern(graph, op, &meta, input, node->input_count, node->attrs, expansion);
}
