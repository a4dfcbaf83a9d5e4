/* FX: what a trace records of calls with unusual arguments, with and without examples. Run, the
 * graph gives what the function gives. */
#include "fx_support.h"

typedef cb_tensor *Body(cb_tensor *x);

static int call_body(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)count;
    out[0] = (*(Body **)user)(in[0]);
    return 1;
}

static cb_tensor *slice_last(cb_tensor *x) { return cb_slice(x, -1, 1, 3); }
static cb_tensor *slice_third_last(cb_tensor *x) { return cb_slice(x, -3, 1, INT64_MAX, 2); }
static cb_tensor *number_first(cb_tensor *x) { return cb_atan2(1.0, x); }
static cb_tensor *truth(cb_tensor *x) { return cb_add(x, cb_operand_bool(true)); }
static cb_tensor *padded(cb_tensor *x) { return cb_conv2d(x, x, NULL, 1, "same"); }
static cb_tensor *resized(cb_tensor *x) { return cb_interpolate(x, CB_NO_DIMS, 2.0); }
static cb_tensor *without_weight(cb_tensor *x) {
    return cb_layer_norm(x, cb_dims(4), NULL, cb_ones(cb_dims(4)));
}
static cb_tensor *same_dtype(cb_tensor *x) { return cb_to(x, CB_SAME); }
static cb_tensor *clamped_above(cb_tensor *x) { return cb_clamp(x, NULL, 1); }
static cb_tensor *spread(cb_tensor *x) { return cb_permute(x, cb_dims(3, 2, 1, 0)); }
static cb_tensor *no_dims(cb_tensor *x) { return cb_sum(x, CB_NO_DIMS); }
static cb_tensor *filled(cb_tensor *x) {
    return cb_add(x, cb_full(cb_dims(4), cb_operand_bool(true)));
}

static const struct {
    Body *body;
    const char *words;
} traces[] = {
    {slice_last, "operator.getitem](args = (%x, (Ellipsis, slice(1, 3, None)))"},
    {slice_third_last, "operator.getitem](args = (%x, (Ellipsis, slice(1, None, 2), slice(None, "
                       "None, None), slice(None, None, None)))"},
    {number_first, "call_function[target=torch.atan2](args = (1.0, %x)"},
    {truth, "operator.add](args = (%x, True)"},
    {padded, "conv2d](args = (%x, %x), kwargs = {padding: same})"},
    {resized, "interpolate](args = (%x,), kwargs = {scale_factor: 2.0})"},
    {without_weight, "layer_norm](args = (%x, (4,), None, %ones)"},
    {same_dtype, "call_method[target=to](args = (%x, None), kwargs = {})"},
    {clamped_above, "call_method[target=clamp](args = (%x,), kwargs = {max: 1})"},
    {spread, "call_method[target=permute](args = (%x, 3, 2, 1, 0), kwargs = {})"},
    {no_dims, "call_method[target=sum](args = (%x,), kwargs = {dim: ()})"},
    {filled, "torch.full](args = ((4,), True), kwargs = {})"},
};

static void arguments_are_recorded(void **state) {
    (void)state;
    for (int k = 0; k < 2 * (int)(sizeof traces / sizeof *traces); k++) {
        Body *body = traces[k / 2].body;
        cb_tensor *x = cb_randn(cb_dims(4, 4, 4, 4)), *y;
        cb_graph *graph = k % 2 ? cb_symbolic_trace_function_with(call_body, &body, "x", &x, 1)
                                : cb_symbolic_trace_function(call_body, &body, 1, NULL);
        expect_no_error();
        char *text = cb_graph_text(graph);
        if (!strstr(text, traces[k / 2].words))
            print_error("no '%s' in:\n%s\n", traces[k / 2].words, text);
        assert_non_null(strstr(text, traces[k / 2].words));
        cb_free_text(text);
        int count = cb_graph_run(graph, &x, 1, &y, 1);
        expect_no_error();
        assert_int_equal(count, 1);
        cb_tensor *expected = body(x);
        assert_int_equal(cb_dtype_of(y), cb_dtype_of(expected));
        assert_true(cb_item(cb_all(cb_eq(y, expected))) == 1);
        cb_graph_free(graph);
    }
}

/* What a graph cannot say, it refuses when it runs. */
static cb_tensor *slice_nowhere(cb_tensor *x) { return cb_slice(x, 8, 1, 3); }
static cb_tensor *slice_far(cb_tensor *x) { return cb_slice(x, 300, 1, 3); }
static cb_tensor *slice_before(cb_tensor *x) { return cb_slice(x, -9, 1, 3); }
static cb_tensor *slice_far_before(cb_tensor *x) { return cb_slice(x, -300, 1, 3); }
static cb_tensor *norm_of_all(cb_tensor *x) { return cb_layer_norm(x, CB_ALL); }

static void arguments_without_a_meaning(void **state) {
    (void)state;
    static const struct {
        Body *body;
        const char *words;
    } cases[] = {
        {slice_nowhere, "slice: dim 8 is outside"},
        {slice_far, "slice: dim 8 is outside"},
        {slice_before, "slice: dim -9 is outside"},
        {slice_far_before, "slice: dim -9 is outside"},
        {norm_of_all, "normalized_shape must be a list of integers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Body *body = cases[i].body;
        cb_graph *graph = cb_symbolic_trace_function(call_body, &body, 1, NULL);
        expect_no_error();
        cb_tensor *x = cb_ones(cb_dims(1, 1, 1, 1, 1, 1, 1, 4)), *y;
        assert_true(cb_graph_run(graph, &x, 1, &y, 1) < 0);
        expect_error(cases[i].words);
        cb_graph_free(graph);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(arguments_are_recorded),
        ONE(arguments_without_a_meaning),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
