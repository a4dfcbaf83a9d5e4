/* The values of the coded expansions, against PyTorch's results, by a small interpreter of
 * primitive ops: no lowering, no engine. A case is an expression over x, i and friends and its
 * expected elements. */
#include "graph/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 256 };

typedef struct Value {
    double at[MOST];
} Value;

typedef struct Machine {
    Graph *graph;
    Value **value; /* by id */
} Machine;

static const double inputs[][24] = {
    {0.1, 1, -2, 3, 2, 1, 0, 0.5, 0.25},                                   /* x: f64[3, 3] */
    {1, 5, 3, NAN, 2, 7, -INFINITY, -INFINITY, -INFINITY, 4, 4, INFINITY}, /* s: f64[4, 3] */
    {2, -100, 0},                                                          /* t: i64[3] */
    {2, 0, 1, 1},                                                          /* i: i64[2, 2] */
    {1, -1, 2},                                                            /* v: f64[3] */
    {0.5, 0.25, 0.25, 0, 1, 0, 0.2, 0.3, 0.5},                             /* p: f64[3, 3] */
};
static const char header[] =
    "graph(x: f64[3, 3], s: f64[4, 3], t: i64[3], i: i64[2, 2], v: f64[3], "
    "p: f64[3, 3]) { return ";

static void unravel(const Node *node, int64_t element, int64_t *index) {
    for (int d = node->rank - 1; d >= 0; d--) {
        index[d] = element % node->size[d];
        element /= node->size[d];
    }
}

static int64_t ravel(const Node *node, const int64_t *index) {
    int64_t element = 0;
    for (int d = 0; d < node->rank; d++) element = element * node->size[d] + index[d];
    return element;
}

/* The element of a broadcast operand. */
static double broadcast(const Machine *m, const Node *operand, int rank, const int64_t *index) {
    int64_t own[CB_MAX_RANK];
    for (int d = 0; d < operand->rank; d++)
        own[d] = operand->size[d] == 1 ? 0 : index[d + rank - operand->rank];
    return m->value[operand->id]->at[ravel(operand, own)];
}

static Scalar scalar_of(double value, cb_dtype dtype) {
    if (dtype_is_float(dtype)) return (Scalar){.f = value};
    return (Scalar){.i = value >= 0x1p63 ? INT64_MAX : (int64_t)value};
}

static double double_of(Scalar value, cb_dtype dtype) {
    return dtype_is_float(dtype) ? value.f : (double)value.i;
}

static double pointwise(const Machine *m, const Node *node, const int64_t *index) {
    Scalar input[3];
    cb_dtype dtype = node->dtype;
    for (int k = 0; k < node->input_count; k++) {
        dtype = node->input[k]->dtype;
        input[k] = scalar_of(broadcast(m, node->input[k], node->rank, index), dtype);
    }
    if (node->op == OP_to)
        return double_of(scalar_convert(input[0], dtype, node->dtype), node->dtype);
    return double_of(scalar_eval(node->op, dtype, input), node->dtype);
}

static void reduce(const Machine *m, const Node *node, Value *out) {
    const Node *x = node->input[0];
    cb_dim_list dims = attr_dims(node->attrs, ATTR_sum_dim);
    bool keep = node->attrs->word[ATTR_sum_keepdim];
    Scalar identity = scalar_identity(node->op, node->dtype);
    for (int64_t e = 0; e < node_numel(node); e++) out->at[e] = double_of(identity, node->dtype);
    for (int64_t e = 0; e < node_numel(x); e++) {
        int64_t index[CB_MAX_RANK], kept[CB_MAX_RANK];
        unravel(x, e, index);
        int rank = 0, next = 0;
        for (int d = 0; d < x->rank; d++) {
            bool gone = next < dims.count && dims.at[next] == d;
            next += gone;
            if (!gone || keep) kept[rank++] = gone ? 0 : index[d];
        }
        double *slot = &out->at[ravel(node, kept)];
        Scalar pair[2] = {scalar_of(*slot, node->dtype),
                          scalar_of(m->value[x->id]->at[e], node->dtype)};
        *slot = double_of(scalar_eval(node->op, node->dtype, pair), node->dtype);
    }
}

/* The place in the first input that an element of the result comes from. */
static void source_index(const Machine *m, const Node *node, int64_t *index) {
    const int64_t *word = node->attrs->word;
    int64_t own[CB_MAX_RANK];
    memcpy(own, index, sizeof own);
    switch (node->op) {
    case OP_permute:
        for (int d = 0; d < node->rank; d++) index[word[ATTR_permute_dims + 1 + d]] = own[d];
        return;
    case OP_slice:
        index[word[ATTR_slice_dim]] =
            word[ATTR_slice_start] + own[word[ATTR_slice_dim]] * word[ATTR_slice_step];
        return;
    case OP_gather:
        index[word[ATTR_gather_dim]] =
            (int64_t)m->value[node->input[1]->id]->at[ravel(node->input[1], own)];
        return;
    case OP_index_select:
        index[word[ATTR_index_select_dim]] =
            (int64_t)m->value[node->input[1]->id]->at[own[word[ATTR_index_select_dim]]];
        return;
    default:
        fail_msg("the interpreter lacks %s", op_info(node->op)->name);
    }
}

static double matmul(const Machine *m, const Node *node, const int64_t *index) { /* of matrices */
    const Node *a = node->input[0], *b = node->input[1];
    double sum = 0;
    for (int64_t k = 0; k < a->size[1]; k++)
        sum += m->value[a->id]->at[index[0] * a->size[1] + k] *
               m->value[b->id]->at[k * b->size[1] + index[1]];
    return sum;
}

static double concat(const Machine *m, const Node *node, int64_t *index) {
    int64_t *at = &index[node->attrs->word[ATTR_concat_dim]];
    const Node *from = node->input[0];
    int64_t size = from->size[node->attrs->word[ATTR_concat_dim]];
    if (*at >= size) {
        *at -= size;
        from = node->input[1];
    }
    return m->value[from->id]->at[ravel(from, index)];
}

static double element(const Machine *m, const Node *node, int64_t e) {
    int64_t index[CB_MAX_RANK] = {0};
    unravel(node, e, index);
    const Node *x = node->input_count ? node->input[0] : NULL;
    if (op_info(node->op)->kind == KIND_POINTWISE) return pointwise(m, node, index);
    switch (node->op) {
    case OP_input:
        return inputs[node->attrs->word[0]][e];
    case OP_constant:
        return double_of(node_constant(node), node->dtype);
    case OP_arange:
        return (double)(node->attrs->word[ATTR_arange_start] +
                        e * node->attrs->word[ATTR_arange_step]);
    case OP_reshape:
        return m->value[x->id]->at[e];
    case OP_expand:
        return broadcast(m, x, node->rank, index);
    case OP_matmul:
        return matmul(m, node, index);
    case OP_concat:
        return concat(m, node, index);
    default:
        source_index(m, node, index);
        return m->value[x->id]->at[ravel(x, index)];
    }
}

static Value *run(Machine *m, const Node *output) {
    Node **order = graph_order(m->graph);
    m->value = arena_new_array(m->graph->arena, Value *, length(m->graph->node));
    for (int k = 0; k < length(order); k++) {
        const Node *node = order[k];
        assert_true(node_numel(node) <= MOST);
        Value *value = m->value[node->id] = arena_new_array(m->graph->arena, Value, 1);
        if (op_info(node->op)->kind == KIND_REDUCE)
            reduce(m, node, value);
        else
            for (int64_t e = 0; e < node_numel(node); e++) value->at[e] = element(m, node, e);
    }
    return m->value[output->id];
}

static bool close_to(double found, double expected) {
    if (isnan(expected) || isnan(found)) return isnan(expected) && isnan(found);
    return found == expected || fabs(found - expected) <= 2e-6 * (1 + fabs(expected));
}

static const struct {
    const char *call;
    int count;
    double expected[36];
} cases[] = {
    {"argmax(s, 1)", 4, {1, 0, 0, 2}},
    {"argmin(s, 1)", 4, {0, 0, 0, 0}},
    {"argmax(s)", 1, {3}},
    {"argmax(x, 0, true)", 3, {1, 1, 1}},
    {"argmin(constant(3, f32))", 1, {0}},
    {"logsumexp(s, 1)", 4, {5.1429316, NAN, -INFINITY, INFINITY}},
    {"logsumexp(x, [0, 1])", 1, {3.6398050}},
    {"softmax(v, 0)", 3, {0.2594965, 0.0351190, 0.7053845}},
    {"log_softmax(v, 0)", 3, {-1.3490122, -3.3490122, -0.3490122}},
    {"cross_entropy(x, t)", 1, {2.3726380}},
    {"cross_entropy(x, t, label_smoothing=0.1)", 1, {2.2751380}},
    {"cross_entropy(x, t * 0 - 100)", 1, {NAN}},
    {"cross_entropy(x, p)", 1, {1.3592940}},
    {"cross_entropy(x, p, label_smoothing=0.1)", 1, {1.3634607}},
    {"cross_entropy(v, constant(2, i64))", 1, {0.3490122}},
    {"nll_loss(log_softmax(x, 1), t)", 1, {2.3726380}},
    {"nll_loss(x, t)", 1, {1}},
    {"cross_entropy(x, t, abs(v))", 1, {2.7070713}},
    {"cross_entropy(x, t, abs(v), label_smoothing=0.1)", 1, {2.5794876}},
    {"cross_entropy(x, t, none, -100, 0)", 3, {3.3759379, 0.0000000, 1.3693381}},
    {"cross_entropy(x, t, abs(v), reduction=2)", 1, {8.1212139}},
    {"cross_entropy(x, p, abs(v), reduction=0)", 3, {2.4199224, 1.4076060, 1.6540071}},
    {"cross_entropy(x, p, abs(v), label_smoothing=0.1)", 1, {1.8612554}},
    {"nll_loss(x, where(t < 0, 2, t), abs(v), 0)", 1, {0.5000000}},
    {"huber_loss(x, p, delta=0.5)", 1, {0.3918056}},
    {"smooth_l1_loss(x, p, 2, 0.5)", 1, {7.0525000}},
    {"mse_loss(v, 0.5, 0)", 3, {0.2500000, 2.2500000, 2.2500000}},
    {"binary_cross_entropy(p, sigmoid(x), v)", 1, {25.7118814}},
    {"binary_cross_entropy_with_logits(x, p, v, 2, abs(v))", 1, {9.3435262}},
    {"kl_div(x, p)", 1, {-0.4604860}},
    {"kl_div(x, p, 3)", 1, {-1.3814579}},
    {"kl_div(x, p, 2, true)", 1, {-3.7462661}},
    {"pairwise_distance(x, p, 3)", 3, {2.2815465, 3.0723180, 0.3162346}},
    {"pairwise_distance(x, p, 1e301)", 3, {2.2499990, 3.0000010, 0.2499990}},
    {"cosine_embedding_loss(x, p, v, 0.1, 0)", 3, {1.1459135, 0.4345225, 0.0000000}},
    {"triplet_margin_loss(x, p, v, 1.5)", 1, {0.3583226}},
    {"triplet_margin_loss(x, p, v, 1, 1, swap=true, reduction=0)",
     3,
     {0.9000000, 1.0000040, 0.0000000}},
    {"layer_norm(v, [3], v, v)", 3, {1.2672604, 0.3363019, 4.1380831}},
    {"rms_norm(v, [3], v)", 3, {0.7071066, 0.7071066, 2.8284264}},
    {"linear(x, x, v)", 9, {6.01, -0.7, 2, 1.3, 13, 3.25, 1, 0.25, 2.3125}},
    {"repeat(v, [2, 2])", 12, {1, -1, 2, 1, -1, 2, 1, -1, 2, 1, -1, 2}},
    {"repeat(x, [1, 2])",
     18,
     {0.1, 1, -2, 0.1, 1, -2, 3, 2, 1, 3, 2, 1, 0, 0.5, 0.25, 0, 0.5, 0.25}},
    {"repeat(v, [0])", 0, {0}},
    {"roll(x, 1, 1)", 9, {-2, 0.1, 1, 1, 3, 2, 0.25, 0, 0.5}},
    {"roll(v, -4, 0)", 3, {-1, 2, 1}},
    {"tril(x, -1)", 9, {0, 0, 0, 3, 0, 0, 0, 0.5, 0}},
    {"triu(x, 1)", 9, {0, 1, -2, 0, 0, 1, 0, 0, 0}},
    {"eye(2, 3)", 6, {1, 0, 0, 0, 1, 0}},
    {"eye(2)", 4, {1, 0, 0, 1}},
    {"linspace(-1, 1, 5)", 5, {-1, -0.5, 0, 0.5, 1}},
    {"linspace(0, 10, 4, i32)", 4, {0, 3, 6, 10}},
    {"linspace(3, 7, 1)", 1, {3}},
    {"one_hot(i, 3)", 12, {0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0}},
    {"embedding(i, x)", 12, {0, 0.5, 0.25, 0.1, 1, -2, 3, 2, 1, 3, 2, 1}},
    {"dropout(x, 0.5, false)", 9, {0.1, 1, -2, 3, 2, 1, 0, 0.5, 0.25}},
    {"dropout(v, 1)", 3, {0, 0, 0}},
    {"full_like(i, 7)", 4, {7, 7, 7, 7}},
    {"var(v, 0)", 1, {2.3333333}},
    {"std(v, 0, 0, true)", 1, {1.2472191}},
    {"mean(x, [0])", 3, {1.0333333, 1.1666667, -0.25}},
    {"count_nonzero(x, 1)", 3, {3, 3, 2}},
    {"clamp(t, -1, 1)", 3, {1, -1, 0}},
    {"clamp(t, high=0)", 3, {0, -100, 0}},
    {"clamp(v, 0)", 3, {1, 0, 2}},
    {"pow(s, 0.5)",
     12,
     {1, 2.2360680, 1.7320508, NAN, 1.4142136, 2.6457513, NAN, NAN, NAN, 2, 2, INFINITY}},
    {"gelu(v)", 3, {0.8413447, -0.1586553, 1.9544997}},
    {"gelu(v, true)", 3, {0.8411920, -0.1588080, 1.9545977}},
    {"softplus(v * 15)", 3, {15.0000003, 3.059e-7, 30}},
    {"lerp(v * 1e8, v, 1)", 3, {1, -1, 2}},
    {"hardswish(v)", 3, {0.6666667, -0.3333333, 1.6666667}},
    {"elu(v, 2)", 3, {1, -1.2642411, 2}},
    {"norm(v)", 1, {2.4494897}},
    {"normalize(x)",
     9,
     {0.0446767, 0.4467671, -0.8935341, 0.8017837, 0.5345225, 0.2672612, 0, 0.8944272, 0.4472136}},
    {"cosine_similarity(v, v * -2, 0)", 1, {-1}},
    {"smooth_l1_loss(v, 0.5)", 1, {0.7083333}},
    {"binary_cross_entropy_with_logits(v, ones_like(v))", 1, {0.5844838}},
};

static void expect_case(size_t number) {
    Arena *arena = arena_new();
    char *text = arena_format(arena, "%s%s }", header, cases[number].call);
    Machine machine = {graph_parse(arena, text), NULL};
    if (!machine.graph) fail_msg("%s: %s", cases[number].call, cb_error());
    graph_optimize(machine.graph, NULL);
    const Node *output = machine.graph->output[0];
    assert_int_equal(node_numel(output), cases[number].count);
    Value *value = run(&machine, output);
    for (int e = 0; e < cases[number].count; e++)
        if (!close_to(value->at[e], cases[number].expected[e]))
            fail_msg("%s [%d] is %.9g, not %.9g", cases[number].call, e, value->at[e],
                     cases[number].expected[e]);
    arena_free(arena);
}

static void test_values(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) expect_case(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
