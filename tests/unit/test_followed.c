/* Which results require a gradient: of every op of the table, eagerly and while it is compiled, by
 * each of its floating point inputs alone. Both ask one place (grad_reach), and what it says is
 * what PyTorch says: nothing of a tensor's sizes or dtype alone, no integers, and steps with
 * gradients of zeros. */
#include "call_ops.h"
#include "gradients.h"

#include "fixture.h"

#include "elements.h"

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

/* All of them are wanted, not the first alone. */
#define COMPLAIN(...) (print_error(__VA_ARGS__), print_error("\n"), complaints++)
static int complaints;

enum { MOST = 8 };

/* Of ops that gradients.h has no row of: their results never require a gradient. */
static const GradientRow others[] = {
    {OP_full_like, "x: f64[3, 4]", "full_like(x, 2)", SIGNED},
    {OP_zeros_like, "x: f64[3, 4]", "zeros_like(x)", SIGNED},
    {OP_ones_like, "x: f64[3, 4]", "ones_like(x)", SIGNED},
    {OP_rand_like, "x: f64[3, 4]", "rand_like(x)", SIGNED},
    {OP_randn_like, "x: f64[3, 4]", "randn_like(x)", SIGNED},
    {OP_argsort, "x: f64[3, 4]", "argsort(x)", SIGNED},
    {OP_argtopk, "x: f64[3, 4]", "argtopk(x, 2)", SIGNED},
    {OP_argmax, "x: f64[3, 4]", "argmax(x)", SIGNED},
    {OP_argmin, "x: f64[3, 4]", "argmin(x, [1])", SIGNED},
    {OP_count_nonzero, "x: f64[3, 4]", "count_nonzero(x)", SIGNED},
    {OP_any, "x: f64[3, 4]", "any(x, 1)", SIGNED},
    {OP_all, "x: f64[3, 4]", "all(x, 1)", SIGNED},
    {OP_to, "x: f64[3, 4]", "to(x, i64)", SIGNED},
    {OP_detach, "x: f64[3, 4]", "detach(x)", SIGNED},
    {OP_max_pool1d_indices, "x: f64[1, 2, 6]", "max_pool1d_indices(x, 2)", SIGNED},
    {OP_max_pool2d_indices, "x: f64[1, 2, 6, 4]", "max_pool2d_indices(x, 2)", SIGNED},
    {OP_max_pool3d_indices, "x: f64[1, 2, 6, 4, 2]", "max_pool3d_indices(x, 2)", SIGNED},
};
enum { OTHERS = sizeof others / sizeof *others };

/* Further calls: attributes by which a result is of its operand's sizes alone, or is the operand;
 * tensors of no elements; steps. */
static const GradientRow odd[] = {
    {OP_dropout, "x: f64[3, 4]", "dropout(x, 1, true)", SIGNED},
    {OP_dropout, "x: f64[3, 4]", "dropout(x, 0.5, false)", SIGNED},
    {OP_tril, "x: f64[3, 3]", "tril(x, -5)", SIGNED},
    {OP_slice, "x: f64[3, 3]", "slice(x, 0, 3, 3)", SIGNED},
    {OP_pad, "x: f64[3]", "pad(x, [-3, 2])", SIGNED},
    {OP_to, "x: f64[3]", "to(x, f32)", SIGNED},
    {OP_pow, "x: f64[3]", "pow(x, 0)", POSITIVE},
    {OP_mul, "x: f64[3]", "zeros_like(x * 2) * 3", SIGNED},
    {OP_add, "x: f64[3], y: f64[3]", "ones_like(x) + detach(y)", SIGNED},
    {OP_add, "x: f64[3], y: f64[3]", "ones_like(x) + y", SIGNED},
    {OP_where, "x: f64[3], y: f64[3]", "where(x > 0, y, ones_like(x))", SIGNED},
    {OP_one_hot, "x: f64[3]", "to(one_hot(to(x, i64) * 0, 4), f64)", SIGNED},
    {OP_mean, "x: f64[0]", "mean(x)", SIGNED},
    {OP_floor, "x: f64[3]", "floor(x) + sign(x)", SIGNED},
};
enum { ODD = sizeof odd / sizeof *odd };

typedef struct Followed {
    const char *inputs, *call;
    int count;
    int follows; /* what the call gave inside: cb_requires_grad, or -1 where it was refused */
    cb_tensor *in[MOST];
} Followed;

static cb_tensor *input_of(const Meta *meta, GradientDomain domain) {
    cb_dim_list sizes = {meta->rank, {0}};
    memcpy(sizes.at, meta->size, sizeof meta->size);
    if (meta->dtype == CB_BOOL) return cb_to(cb_randint(0, 2, sizes), CB_BOOL);
    if (!dtype_is_float(meta->dtype)) return cb_to(cb_randint(0, 3, sizes), meta->dtype);
    return cb_to(cb_add(cb_rand(sizes, CB_F64), domain == ABOVE_ONE ? 1.2 : 0.2), meta->dtype);
}

static int inside(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    Followed *call = user;
    (void)count;
    cb_tensor *y = call_ops(call->inputs, call->call, in);
    call->follows = y ? cb_requires_grad(y) : -1;
    if (!y) return -1;
    out[0] = cb_detach(y);
    return 1;
}

static const char *const options[] = {"backend=vm", "backend=vm, fullgraph=1"};

static void check_compiled(Followed *call, int expected) {
    cb_tensor *out[1];
    for (int k = 0; k < 2; k++) {
        cb_function *fast = cb_compile_n(inside, call, options[k]);
        int results = cb_call_n(fast, call->in, call->count, out, 1);
        if (call->follows != expected || (expected >= 0 && cb_stats(fast).eager_calls))
            COMPLAIN("%s of %s, %s: it requires a gradient: %d, in eager %d; %d eager calls, %s",
                     call->call, call->inputs, options[k], call->follows, expected,
                     (int)cb_stats(fast).eager_calls, cb_error() ? cb_error() : "no error");
        else if ((results == 1) != (expected >= 0))
            COMPLAIN("%s: %s", call->call, cb_error());
        cb_clear_error();
        cb_function_free(fast);
    }
}

/* By one of the inputs: what it is eagerly, 1, 0 or -1. */
static int check_input(Followed *call, int i) {
    cb_tensor *plain = call->in[i], *out[1];
    call->in[i] = cb_requires_grad_(cb_clone(plain), true);
    cb_scope_open();
    inside(call->in, call->count, out, call);
    cb_clear_error();
    int expected = call->follows;
    check_compiled(call, expected);
    cb_scope_close();
    call->in[i] = plain;
    return expected;
}

/* Does one of the calls' inputs lead to a result that requires a gradient? */
static bool check_call(const char *inputs, const char *text, GradientDomain domain) {
    Followed call = {.inputs = inputs, .call = text};
    bool leads = false;
    cb_scope_open();
    Arena *own = arena_new();
    Graph *graph = graph_of_call(own, inputs, text);
    if (!graph) COMPLAIN("%s of %s: %s", text, inputs, cb_error());
    call.count = graph ? length(graph->input) : 0;
    for (int i = 0; i < call.count; i++) {
        Meta meta = node_meta(graph->input[i]);
        call.in[i] = input_of(&meta, domain);
    }
    arena_free(own);
    for (int i = 0; i < call.count; i++)
        if (dtype_is_float(cb_dtype_of(call.in[i]))) leads |= check_input(&call, i) > 0;
    cb_scope_close();
    return leads;
}

static void check_table(Op op, const OpInfo *info) {
    int tensors;
    bool alone = tensors_alone(info, &tensors);
    bool whole = info->dtype == DTYPE_INT || info->dtype == DTYPE_SHIFT;
    char inputs[96], text[96];
    if (!tensors || whole) return;
    if (!alone || tensors > 2) COMPLAIN("%s has no row", info->name);
    snprintf(inputs, sizeof inputs, "x: f64[3, 4]%s", tensors > 1 ? ", y: f64[3, 4]" : "");
    snprintf(text, sizeof text, tensors > 1 ? "%s(x, y)" : "%s(x)", info->name);
    check_call(inputs, text, domain_of(op));
}

static bool has_other_row(Op op) {
    for (int i = 0; i < OTHERS; i++)
        if (others[i].op == op) return true;
    return false;
}

static void every_op(void **state) {
    (void)state;
    for (Op op = OP_none + 1; op < OP_COUNT; op++) {
        const OpInfo *info = op_info(op);
        if (!info->name || info->kind == KIND_SPECIAL || info->flags & LOWERED) continue;
        if (op == OP_attention || op == OP_one_hot) continue; /* the library's own; of integers */
        if (!has_gradient_row(op) && !has_other_row(op)) check_table(op, info);
    }
    assert_int_equal(complaints, 0);
}

static void every_row(void **state) {
    (void)state;
    for (int i = 0; i < GRADIENT_ROWS; i++) {
        const GradientRow *row = &gradient_rows[i];
        check_call(row->inputs, row->call, row->domain);
    }
    for (int i = 0; i < ODD; i++) check_call(odd[i].inputs, odd[i].call, odd[i].domain);
    assert_int_equal(complaints, 0);
}

static void sizes_and_integers_alone(void **state) {
    (void)state;
    for (int i = 0; i < OTHERS; i++)
        if (check_call(others[i].inputs, others[i].call, others[i].domain))
            COMPLAIN("%s requires a gradient", others[i].call);
    assert_int_equal(complaints, 0);
}

/* PyTorch's: rows of `odd`, in their order. */
static void as_in_pytorch(void **state) {
    static const bool expected[ODD] = {true,  true,  true, true, true,  true, true,
                                       false, false, true, true, false, true, true};
    (void)state;
    for (int i = 0; i < ODD; i++)
        if (check_call(odd[i].inputs, odd[i].call, odd[i].domain) != expected[i])
            COMPLAIN("%s: not as in PyTorch", odd[i].call);
    assert_int_equal(complaints, 0);
}

/* ---- what follows from it -------------------------------------------------------------------- */

static cb_tensor *accumulates(cb_tensor *w) {
    cb_tensor *sum = cb_zeros_like(w);
    for (int i = 0; i < 3; i++) cb_add_(sum, cb_mul(cb_detach(w), i));
    cb_assign(cb_slice(sum, 0, 1, 3), cb_slice(cb_detach(w), 0, 0, 2));
    return sum;
}

/* There is none by a tensor of w's sizes alone. */
static cb_tensor *gradient_by_ones(cb_tensor *w) {
    cb_tensor *ones = cb_ones_like(w), *by[] = {w, ones}, *g[2];
    if (cb_grad(cb_sum(cb_mul(w, ones)), NULL, by, 2, g) != CB_OK) return NULL;
    return cb_add(g[0], g[1] ? 1000 : 1);
}

static cb_tensor *back_from_ones(cb_tensor *w) {
    cb_tensor *loss = cb_sum(cb_mul(cb_ones_like(w), 2));
    return cb_backward(loss, NULL) == CB_OK ? loss : NULL;
}

static cb_tensor *momentum(cb_tensor *w) {
    cb_tensor *g;
    if (cb_grad(cb_sum(cb_square(w)), NULL, &w, 1, &g) != CB_OK) return NULL;
    return cb_add(cb_mul(cb_zeros_like(w), 0.9), g);
}

/* Behind a value that was asked for, of a result whose history is promised: its sizes alone. */
static cb_tensor *sizes_of_promised(cb_tensor *w) {
    cb_tensor *y = cb_mul(w, 3), *loss = cb_sum(y);
    if (cb_backward(loss, NULL) != CB_OK || cb_item(loss) < 0) return NULL;
    cb_zero_grad(w);
    return cb_add(cb_zeros_like(y), cb_gt(y, 4));
}

/* As the one before, where the elements are in somebody's hands, and ops run at once. */
static cb_tensor *sizes_of_promised_at_once(cb_tensor *w) {
    cb_tensor *y = cb_mul(w, 3), *loss = cb_sum(y);
    if (cb_backward(loss, NULL) != CB_OK || !cb_data(y)) return NULL;
    cb_zero_grad(w);
    return cb_zeros_like(y);
}

/* Another view, without a history, of what has one. */
static cb_tensor *view_of_promised(cb_tensor *w) {
    cb_tensor *y = cb_mul(w, 3), *loss = cb_sum(y);
    if (cb_backward(loss, NULL) != CB_OK || cb_item(loss) < 0) return NULL;
    cb_zero_grad(w);
    cb_no_grad_open();
    cb_tensor *pairs = cb_view(y, cb_dims(2, 2));
    cb_no_grad_close();
    return cb_add(pairs, 1);
}

/* A step whose result requires a gradient that there is none of, and that nobody asks for. */
static cb_tensor *floors_beside(cb_tensor *w) {
    cb_tensor *g, *bucket = cb_floor_divide(w, 2), *place = cb_to(bucket, CB_I64);
    if (cb_grad(cb_sum(cb_square(w)), NULL, &w, 1, &g) != CB_OK) return NULL;
    return cb_add(cb_mul(g, place), cb_requires_grad(bucket));
}

static cb_tensor *goes_back_to_floors(cb_tensor *w) {
    cb_tensor *g, *loss = cb_sum(cb_mul(cb_floor_divide(w, 2), w));
    return cb_grad(loss, NULL, &w, 1, &g) == CB_OK ? g : NULL;
}

/* Of remainders, which divide so on the way back: the quotient is a constant there. */
static cb_tensor *remainders(cb_tensor *w) {
    cb_tensor *g, *h, *y = cb_remainder(cb_mul(w, w), cb_add(w, 0.5));
    if (cb_grad_graph(cb_sum(y), NULL, &w, 1, &g) != CB_OK) return NULL;
    return cb_grad(cb_sum(cb_square(g)), NULL, &w, 1, &h) == CB_OK ? h : NULL;
}

static void check_function(cb_function_1 *function, bool whole) {
    static const char *const how[] = {"backend=vm", "backend=vm, fullgraph=1"};
    cb_tensor *w = cb_requires_grad_(cb_arange(1, 5, 1, CB_F32), true), *wanted = function(w);
    cb_clear_error();
    for (int k = 0; k < (whole ? 2 : 1); k++) {
        cb_function *fast = cb_compile(function, how[k]);
        for (int round = 0; round < 3; round++) {
            cb_tensor *got = cb_call(fast, w);
            assert_true(!got == !wanted);
            if (wanted) expect_tensor(got, wanted, 0, 1e-6);
            assert_true(!wanted == !!cb_error());
            cb_clear_error();
        }
        assert_int_equal(cb_stats(fast).eager_calls, 0);
        cb_function_free(fast);
    }
}

static void functions_of_sizes(void **state) {
    (void)state;
    cb_scope_open();
    check_function(accumulates, true);
    check_function(gradient_by_ones, true);
    check_function(back_from_ones, true);
    check_function(momentum, true);
    check_function(floors_beside, true);
    check_function(goes_back_to_floors, true);
    check_function(remainders, true);
    check_function(view_of_promised, false);
    check_function(sizes_of_promised, false);
    check_function(sizes_of_promised_at_once, false);
    cb_scope_close();
}

/* The op and its line, eagerly and compiled. */
static void errors_name_the_op(void **state) {
    (void)state;
    cb_tensor *w = cb_requires_grad_(cb_arange(1, 5, 1, CB_F32), true);
    cb_function *fast = cb_compile(goes_back_to_floors, "backend=vm");
    assert_null(goes_back_to_floors(w));
    expect_error("comes to floor_divide (test_followed.c:");
    assert_null(cb_call(fast, w));
    expect_error("comes to floor_divide (test_followed.c:");
    cb_function_free(fast);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_op),      TEST(every_row),          TEST(sizes_and_integers_alone),
        TEST(as_in_pytorch), TEST(functions_of_sizes), TEST(errors_name_the_op)};
    return cmocka_run_group_tests_name("followed", tests, NULL, NULL);
}
