/* Beam search over a small GPT-2 (examples/beam_search.h): texts that grow, random numbers, a value
 * that ends the loop. Compiled it chooses as eager does, from a graph for each length. */
#include "elements.h"
#include "fixture.h"

#include "beam_search.h"

#include "carbide_models.h"

enum { LONGEST = 20 };

static cb_module *new_net(int64_t vocabulary) {
    cb_gpt2_config config = cb_gpt2_tiny_config();
    config.vocabulary = vocabulary;
    cb_manual_seed(1);
    cb_module *net = cb_model_gpt2(config);
    assert_non_null(net);
    cb_module_train(net, false);
    return net;
}

/* The texts of both are equal, token by token. Their length. */
static int64_t expect_same(cb_function *fast, Search *search, cb_tensor *prompt, uint64_t seed) {
    cb_tensor *eager[2], *compiled[2];
    cb_manual_seed(seed);
    assert_int_equal(beam_search(&prompt, 1, eager, search), 2);
    double after = cb_item(cb_rand(1));
    cb_manual_seed(seed);
    assert_int_equal(cb_call_n(fast, &prompt, 1, compiled, 2), 2);
    assert_true(cb_item(cb_rand(1)) == after);
    expect_tensor(compiled[0], eager[0], 0, 0);
    expect_tensor(compiled[1], eager[1], 1e-4, 1e-4);
    return cb_size(compiled[0], 1);
}

static cb_tensor *prompt_of(int64_t length) { return cb_randint(1, TOP, cb_dims(1, length)); }

static void expect_graphs(cb_function *fast, int64_t graphs) {
    assert_int_equal(cb_stats(fast).graphs, graphs);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
}

static void lengths_are_graphs(void **state) {
    (void)state;
    Search search = {new_net(64), LONGEST, 1};
    cb_function *fast = cb_compile_n(beam_search, &search, "backend=vm");
    cb_tensor *prompt = prompt_of(4);
    for (uint64_t seed = 1; seed <= 8; seed++) expect_same(fast, &search, prompt, seed);
    expect_graphs(fast, LONGEST - 4);
    for (int i = 0; i < 3; i++) expect_same(fast, &search, prompt_of(4), 1);
    expect_graphs(fast, LONGEST - 4);
    expect_same(fast, &search, prompt_of(6), 1); /* its first round; then it finds the others */
    expect_graphs(fast, LONGEST - 4 + 1);
    cb_function_free(fast);
    cb_module_free(search.net);
}

/* Of TOP tokens END is a candidate of every round: all beams come to it, at one length or
 * another. */
static void beams_end(void **state) {
    (void)state;
    Search search = {new_net(TOP), LONGEST, 1};
    cb_tensor *prompt = prompt_of(2);
    cb_function *fast = cb_compile_n(beam_search, &search, "backend=vm");
    int64_t shortest = LONGEST, longest = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        int64_t length = expect_same(fast, &search, prompt, seed);
        if (length < shortest) shortest = length;
        if (length > longest) longest = length;
    }
    assert_true(shortest < longest && shortest < LONGEST);
    expect_graphs(fast, longest - 2);
    cb_function_free(fast);
    cb_module_free(search.net);
}

int main(void) {
    cb_set_threads(1); /* nothing here is worth a second one */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lengths_are_graphs, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(beams_end, open_scope, close_scope_without_error),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
