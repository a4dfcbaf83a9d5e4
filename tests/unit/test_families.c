/* Families of kernels that many layers and many threads share: a number is an argument where it has
 * changed, and nowhere else. */
#include "capture_support.h"
#include "fixture.h"

#include "jit/family.h"

enum { LAYERS = 7 };

static int counted(cb_function *fast, const char *words) {
    int count = 0;
    char *text = cb_explain(fast);
    for (const char *at = text; (at = strstr(at, words)); at++) count++;
    cb_free_text(text);
    return count;
}

static int layers(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user;
    for (int i = 0; i < count; i++) out[i] = cb_sub(in[i], cb_amax(in[i], cb_dims(-1), true));
    return count;
}

/* Layers of different widths, of which the first one is wider by more. */
static void call_layers(cb_function *fast, int rows, int more) {
    cb_tensor *in[LAYERS], *out[LAYERS];
    cb_scope_open();
    for (int i = 0; i < LAYERS; i++)
        in[i] =
            cb_sin(cb_to(cb_reshape(cb_arange(0, (int64_t)rows * (64 * i + 64 + (i ? 0 : more))),
                                    cb_dims(rows, -1)),
                         CB_F32));
    assert_int_equal(cb_call_n(fast, in, LAYERS, out, LAYERS), LAYERS);
    for (int i = 0; i < LAYERS; i++) {
        cb_tensor *wanted;
        layers(&in[i], 1, &wanted, NULL);
        expect_equal(out[i], wanted);
    }
    cb_scope_close();
}

/* Rows change, widths do not: those stay literal, although each layer has another one. Then the
 * first layer's changes, and is an argument of that one alone. */
static void a_layer_has_its_own_numbers(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(layers, NULL, "");
    for (int rows = 10; rows < 14; rows++) call_layers(fast, rows, 0);
    assert_in_range(cb_stats(fast).compiled, 1, 2);
    assert_int_equal(counted(fast, "= number["), 0);
    for (int more = 16; more < 128; more += 16) call_layers(fast, 10 + more, more);
    assert_in_range(cb_stats(fast).compiled, 2, 3);
    assert_int_equal(counted(fast, "n0 = number[0]"), 1);
    assert_int_equal(counted(fast, "number[1]"), 0);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

/* Another function of the same ops runs what the process has, and says so. */
static void kernels_of_another_function(void **state) {
    (void)state;
    cb_function *one = cb_compile_n(layers, NULL, ""), *other = cb_compile_n(layers, NULL, "");
    call_layers(one, 10, 0);
    call_layers(other, 10, 0);
    assert_int_equal(cb_stats(one).compiled, 1);
    assert_int_equal(cb_stats(other).compiled, 0);
    assert_int_equal(counted(other, "engine: C, which the process had"), 1);
    assert_int_equal(counted(other, "compiled now"), 0);
    cb_function_free(one);
    cb_function_free(other);
}

/* Layers of one width are one function, for the first sizes and for all of them. */
static void layers_of_one_width_are_one(void **state) {
    (void)state;
    cb_function *fast = cb_compile_n(layers, NULL, "");
    for (int rows = 10; rows < 13; rows++) {
        cb_tensor *x = cb_rand(cb_dims(rows, 64)), *in[] = {x, cb_neg(x), cb_exp(x)}, *out[3];
        assert_int_equal(cb_call_n(fast, in, 3, out, 3), 3);
    }
    assert_int_equal(counted(fast, "; 3 kernels, 1 different"), 3);
    cb_function_free(fast);
}

static cb_tensor *one_longer(cb_tensor *x, cb_tensor *one) {
    return cb_exp(cb_cat(((cb_tensor *[]){x, one}), 2, 0));
}

/* Where the second part begins is a number below 0, and no literal either. */
static void a_text_that_grows(void **state) {
    (void)state;
    cb_function *fast = cb_compile(one_longer, "");
    for (int length = 20; length < 40; length++) {
        cb_tensor *x = cb_rand(cb_dims(length)), *one = cb_rand(1);
        expect_tensor(cb_call(fast, x, one), one_longer(x, one), 1e-6, 1e-6);
    }
    assert_in_range(cb_stats(fast).compiled, 1, 2);
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
}

static cb_tensor *every_second(cb_tensor *x) { return cb_mul(cb_slice(x, 1, 0, 64, 2), 3.0); }

/* Of rows whose number varies and is 3 now, 2 is no size: the compiler
 * makes vectors of a stride that it sees. */
static void a_stride_is_no_number_of_rows(void **state) {
    (void)state;
    cb_tensor *x = cb_rand(cb_dims(3, 64));
    assert_int_equal(cb_mark_dynamic(x, 0), CB_OK);
    cb_function *fast = cb_compile(every_second, "fullgraph=1");
    expect_equal(cb_call(fast, x), every_second(x));
    assert_int_equal(counted(fast, "[l * 2L]"), 1);
    cb_function_free(fast);
}

static cb_tensor *greatest(cb_tensor *x) { return cb_argmax(x, 1); }

/* Where the greatest one is counts in as many bytes as the elements have: rows of any length end
 * under a mask. */
static void positions_are_as_wide_as_elements(void **state) {
    (void)state;
    cb_tensor *x = cb_rand(cb_dims(20, 40));
    cb_function *fast = cb_compile(greatest, "dynamic=1");
    expect_equal(cb_call(fast, x), greatest(x));
    assert_int_equal(counted(fast, " on = MASKED("), 2);
    assert_int_equal(counted(fast, "int64_t q"), 0);
    cb_function_free(fast);
}

static cb_tensor *table; /* of words */

static int appended(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user, (void)count;
    out[0] = cb_cat(((cb_tensor *[]){in[0], in[1]}), 2, 0);
    out[1] = cb_sum(cb_embedding(out[0], table), cb_dims(0), false);
    out[2] = cb_sum(cb_to(cb_eq(out[0], in[1]), CB_I64));
    return 3;
}

/* Heads of 16: where the old ones end is a multiple of that, and the size that the cache had. */
static int cached(cb_tensor *const *in, int count, cb_tensor **out, void *user) {
    (void)user, (void)count;
    out[0] = cb_cat(((cb_tensor *[]){in[0], in[1]}), 2, 1);
    out[1] = cb_softmax(cb_matmul(in[1], cb_transpose(out[0], 1, 2)), -1);
    out[2] = cb_matmul(out[1], out[0]);
    return 3;
}

/* What comes back grows, from its first element on. How many of so many lengths are compiled. */
static int64_t grown(cb_function_n *function, cb_tensor *first, cb_tensor *next, int lengths) {
    families_cleanup(); /* no code of the ones before */
    cb_function *fast = cb_compile_n(function, NULL, "");
    cb_tensor *in[2] = {first, next}, *out[3], *wanted[3];
    for (int i = 0; i < lengths; i++) {
        assert_int_equal(cb_call_n(fast, in, 2, out, 3), 3);
        function(in, 2, wanted, NULL);
        for (int k = 0; k < 3; k++) expect_tensor(out[k], wanted[k], 1e-5, 1e-5);
        in[0] = out[0];
    }
    int64_t compiled = cb_stats(fast).compiled;
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    cb_function_free(fast);
    return compiled;
}

/* Short ones as well: where the second part begins is no literal there, either. */
static void texts_from_their_first_token(void **state) {
    (void)state;
    table = cb_rand(cb_dims(12, 16));
    cb_tensor *row = cb_rand(cb_dims(4, 1, 16));
    assert_in_range(grown(appended, cb_arange(0, 1), cb_arange(5, 6), 24), 1, 2);
    assert_in_range(grown(cached, cb_rand(cb_dims(4, 2, 16)), row, 24), 1, 2);
    assert_in_range(grown(cached, cb_rand(cb_dims(4, 40, 16)), row, 12), 1, 2);
}

/* ---- the table ------------------------------------------------------------------------------- */

static FamilyKernel kernel_of(Arena *arena, const int64_t number[3]) {
    FamilyKernel kernel = {.key = {17, 4}, .holes = {.arena = arena}};
    for (int h = 0; h < 3; h++)
        push(arena, kernel.holes.hole, ((TextNumber){{.i = number[h]}, CB_I64, true}));
    return kernel;
}

static Code *any_code(void) {
    char source[] = "int nothing;\n";
    CodeResult result = code_load(source, strlen(source), NULL, 0, NULL);
    assert_non_null(result.code);
    return result.code;
}

/* What does not change with a length is known by its structure, until the code goes. */
static void kernels_are_known_again(void **state) {
    (void)state;
    Code *code = any_code();
    Arena *arena = arena_new();
    assert_true(arena && !arena_guard(arena));
    Kernel *one = kernel_new(arena), *other = kernel_new(arena);
    one->key[0] = other->key[0] = 91, one->key[1] = 2, other->key[1] = 3;
    const int64_t number[] = {7, 8, 9};
    FamilyKernel made = kernel_of(arena, number);
    memcpy(made.kernel, one->key, sizeof made.kernel);
    family_choose(&made, NULL, &(FamilyUsual){.count = 0});
    family_add(&made, code, NULL);
    FamilyKernel again = family_kernel(one, arena), new = family_kernel(other, arena);
    assert_memory_equal(again.key, made.key, sizeof made.key);
    assert_int_equal(length(again.holes.hole), 3);
    for (int h = 0; h < 3; h++) assert_int_equal(again.holes.hole[h].value.i, number[h]);
    assert_memory_not_equal(new.key, made.key, sizeof made.key);
    families_cleanup();
    again = family_kernel(one, arena);
    assert_memory_equal(again.key, new.key, sizeof new.key);
    code_release(code);
    arena_free(arena);
}

/* Compiles it, as another one of the plan or another thread would, after one of other sizes. */
static FamilyKernel compiled(Arena *arena, Code *code, const int64_t number[3],
                             const int64_t before[3]) {
    FamilyKernel kernel = kernel_of(arena, number), other = kernel_of(arena, before);
    family_choose(&kernel, &other, &(FamilyUsual){.count = 0});
    family_add(&kernel, code, NULL);
    return kernel;
}

static void expect_arguments(const FamilyKernel *kernel, int a, int b, int c) {
    const int *argument = kernel->holes.argument;
    assert_true(argument[0] == a && argument[1] == b && argument[2] == c);
}

/* Objects of a process are mappings, which the system counts. */
static void codes_are_bounded(void **state) {
    (void)state;
    Code *code = any_code();
    Arena *arena = arena_new();
    assert_true(arena && !arena_guard(arena));
    const int64_t number[] = {7, 8, 9};
    KernelFunction *function;
    for (uint64_t family = 0; family < 1200; family++) {
        FamilyKernel kernel = kernel_of(arena, number);
        kernel.key[0] = kernel.kernel[0] = family;
        family_choose(&kernel, NULL, &(FamilyUsual){.count = 0});
        family_add(&kernel, code, NULL);
    }
    int known = 0;
    for (uint64_t family = 0; family < 1200; family++) {
        FamilyKernel kernel = kernel_of(arena, number);
        kernel.key[0] = family;
        Code *found = family_find(&kernel, &function);
        assert_int_equal(found != NULL, family >= 1200 - 1024);
        if (found) known++, code_release(found);
    }
    assert_int_equal(known, 1024);
    families_cleanup();
    code_release(code);
    arena_free(arena);
}

/* Ten layers of one kernel, each compiled by ten threads: it is one choice of arguments. After six
 * of those, everything is one. */
static void choices_are_counted(void **state) {
    (void)state;
    Code *code = any_code();
    Arena *arena = arena_new();
    assert_true(arena && !arena_guard(arena));
    for (int64_t layer = 0; layer < 10; layer++)
        for (int thread = 0; thread < 10; thread++) {
            const int64_t number[] = {100 + layer, 50, 70}, before[] = {100 + layer, 40, 70};
            FamilyKernel kernel = compiled(arena, code, number, before);
            expect_arguments(&kernel, -1, 0, -1);
        }
    KernelFunction *function;
    FamilyKernel found = kernel_of(arena, (int64_t[]){104, 60, 70});
    Code *served = family_find(&found, &function);
    assert_ptr_equal(served, code);
    code_release(served);
    expect_arguments(&found, -1, 0, -1);
    found = kernel_of(arena, (int64_t[]){111, 60, 70});
    assert_null(family_find(&found, &function));
    /* The layer's own code says which were arguments. */
    found = compiled(arena, code, (int64_t[]){103, 40, 90}, (int64_t[]){103, 40, 70});
    expect_arguments(&found, -1, 0, 1);
    found = compiled(arena, code, (int64_t[]){204, 40, 70}, (int64_t[]){104, 40, 70});
    expect_arguments(&found, 0, 1, -1);
    found = compiled(arena, code, (int64_t[]){300, 31, 71}, (int64_t[]){300, 31, 72});
    expect_arguments(&found, -1, -1, 0);
    found = compiled(arena, code, (int64_t[]){301, 31, 73}, (int64_t[]){302, 31, 73});
    expect_arguments(&found, 0, -1, -1);
    found = compiled(arena, code, (int64_t[]){401, 33, 33}, (int64_t[]){401, 34, 34});
    expect_arguments(&found, -1, 0, 0);
    found = kernel_of(arena, (int64_t[]){401, 40, 50}); /* numbers that were equal so far */
    assert_null(family_find(&found, &function));
    found = compiled(arena, code, (int64_t[]){501, 35, 36}, (int64_t[]){501, 34, 36});
    expect_arguments(&found, 0, 1, 2);
    code_release(code);
    arena_free(arena);
}

/* Of an axis of two points that varies, 1 is the last one. */
static void the_last_of_two_follows_the_size(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_true(arena && !arena_guard(arena));
    for (int64_t size = 2; size < 4; size++) {
        int64_t *varying = NULL;
        push(arena, varying, size);
        FamilyKernel kernel = kernel_of(arena, (int64_t[]){1, 0, -1}), one = kernel;
        FamilyUsual usual = {&one, 1, varying};
        family_choose(&kernel, NULL, &usual);
        expect_arguments(&kernel, size == 2 ? 0 : -1, -1, -1);
    }
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kernels_of_another_function, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(a_layer_has_its_own_numbers, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(layers_of_one_width_are_one, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test(the_last_of_two_follows_the_size),
        cmocka_unit_test_setup_teardown(a_text_that_grows, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(a_stride_is_no_number_of_rows, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(positions_are_as_wide_as_elements, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(texts_from_their_first_token, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(kernels_are_known_again, open_scope,
                                        close_scope_without_error),
        cmocka_unit_test_setup_teardown(codes_are_bounded, open_scope, close_scope_without_error),
        cmocka_unit_test_setup_teardown(choices_are_counted, open_scope, close_scope_without_error),
    };
    setenv("CARBIDE_PASSING_SIZES", "0", 1); /* all of them are compiled */
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
