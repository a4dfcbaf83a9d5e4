/* Generated C of long chains of costly ops: lane loops one after the other over a block of lanes.
 * What comes of them is, to the bit, what one loop computes: the same expressions over runs too
 * short for steps. */
#include "test_support.h"

#include "kernel_run.h"

enum { LANES = 1536, RUN = 64, OPS = 14, MANY_OPS = 30, MADE = 10 };

static const char *source(Arena *arena, const Kernel *kernel) {
    Buffer code = buffer_new(arena);
    c_render_kernel(kernel, NULL, &code);
    return buffer_text(&code);
}

static int loops_of(Arena *arena, const Kernel *kernel) {
    int count = 0;
    for (const char *at = source(arena, kernel); (at = strstr(at, "for (int l = 0")); at++) count++;
    return count;
}

/* ---- the same kernel with and without steps ---- */

/* % stands for the axes, # for the number of elements, @ for an element's place. */
static const Kernel *with_runs(Arena *arena, const char *text, const char *name, bool steps) {
    Buffer out = buffer_new(arena);
    putf(&out, "kernel %s", name);
    for (; *text; text++)
        if (*text == '%' && steps)
            putf(&out, "(outer a0:%d)", LANES);
        else if (*text == '%')
            putf(&out, "(outer a0:%d, outer a1:%d)", LANES / RUN, RUN);
        else if (*text == '#')
            putf(&out, "%d", LANES);
        else if (*text == '@')
            putf(&out, steps ? "[a0]" : "[((a0*%d)+a1)]", RUN);
        else
            putf(&out, "%c", *text);
    Buffer why = buffer_new(arena);
    Kernel *kernel = kernel_parse(arena, buffer_text(&out));
    if (!kernel) FAIL("%s\n%s", cb_error(), buffer_text(&out));
    if (!kernel_verify(kernel, &why)) FAIL("%s", buffer_text(&why));
    return kernel;
}

static bool same_bits(const Kernel *kernel, const Data *one, const Data *other) {
    for (int b = 0; b < length(kernel->buffer); b++) {
        cb_dtype dtype = kernel->buffer[b].dtype;
        size_t element = cb_dtype_size(dtype);
        for (int64_t i = 0; i < kernel->buffer[b].numel; i++) {
            const char *x = (char *)one->got[b] + (size_t)i * element;
            const char *y = (char *)other->got[b] + (size_t)i * element;
            double a = scalar_load(x, dtype).f, c = scalar_load(y, dtype).f;
            bool nan = dtype_is_float(dtype) && isnan(a) && isnan(c);
            if (nan || !memcmp(x, y, element)) continue;
            print_error("%s: b%d[%d]: %.17g, in one loop %.17g\n", kernel->name, b, (int)i, a, c);
            return false;
        }
    }
    return true;
}

static void check_alike(const Kernel *const *kernel, const Code *code, const char *text) {
    Data data[2];
    uint32_t state = random_state;
    for (int i = 0; i < 2; i++) {
        random_state = state;
        fill(kernel[i], &data[i]);
        code_function(code, kernel[i]->name)(data[i].bound, 0, LANES, 0, NULL); /* whole vectors */
    }
    if (!same_bits(kernel[0], &data[0], &data[1])) FAIL("%s", text);
    for (int i = 0; i < 2; i++) release(kernel[i], &data[i]);
}

/* loops: so many, or NULL: of most, several. */
static void check_steps(const char *const *text, const int *loops, int count) {
    Arena *arena = arena_new();
    const Kernel *kernel[2 * MADE];
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < 2 * count; i++)
        kernel[i] = with_runs(arena, text[i / 2], arena_format(arena, "k%d", i), i % 2 == 0);
    int several = 0;
    for (int i = 0; i < count; i++) {
        int made = loops_of(arena, kernel[2 * i]);
        if (loops) assert_int_equal(made, loops[i]);
        several += made > 1;
        assert_int_equal(loops_of(arena, kernel[2 * i + 1]), 1);
    }
    assert_true(several > count / 2);
    Code *code = compile(kernel, 2 * count, arena);
    for (int i = 0; i < count; i++) {
        check_alike(kernel + 2 * i, code, text[i]);
        if (loops) assert_true(check_kernel(kernel[2 * i], code)); /* random ones magnify errors */
    }
    code_release(code);
    arena_free(arena);
}

/* ---- kernels ---- */

static void test_chains(void **state) {
    (void)state;
    static const char *const text[] = {
        /* two arrays in turn */
        "% tile split 1 { b0: in f64[#] b1: out f64[#] t0 = f64 load b0@ t1 = f64 tanh t0"
        " t2 = f64 tanh t1 t3 = f64 tanh t2 t4 = f64 tanh t3 t5 = f64 tanh t4 store b1@ = t5 }",
        /* products go into sums, and are inputs of several steps */
        "% tile split 1 { b0: in f32[#] b1: in f32[#] b2: out f32[#] t0 = f32 load b0@"
        " t1 = f32 load b1@ t2 = f32 mul t0, t1 t3 = f32 tanh t2 t4 = f32 mul t3, t1"
        " t5 = f32 add t4, t2 t6 = f32 tanh t4 t7 = f32 add t6, t2 t8 = f32 sin t7"
        " t9 = f32 mul t8, t8 t10 = f32 sub t9, t4 t11 = f32 add t10, t5 store b2@ = t11 }",
        /* halves come and go through arrays; the value between is stored, too */
        "% tile split 1 { b0: in f16[#] b1: out f16[#] b2: out f16[#] t0 = f32 load b0@"
        " t1 = f32 tanh t0 t2 = f32 sin t1 t3 = f32 add t2, t0 t4 = f32 tanh t3 t5 = f32 sin t4"
        " t6 = f32 add t5, t0 store b1@ = t3 store b2@ = t6 }",
        /* in place: what is stored is loaded again in the last step */
        "% tile split 1 { b0: inout f64[#] b1: inout f64[#] t0 = f64 load b0@ t1 = f64 load b1@"
        " t2 = f64 sigmoid t0 t3 = f64 sigmoid t2 t4 = f64 add t3, t1 t5 = f64 erf t4"
        " t6 = f64 add t5, t0 store b0@ = t4 store b1@ = t6 }",
        /* conditions are bytes in their array */
        "% tile split 1 { b0: in f32[#] b1: out f32[#] b2: out bool[#] t0 = f32 load b0@"
        " t1 = f32 tanh t0 t2 = f32 erf t1 t3 = bool lt t2, t0 t4 = f32 where t3, t2, t0"
        " t5 = f32 exp t4 t6 = f32 tanh t5 t7 = f32 where t3, t6, t1 t8 = f32 sin t7"
        " store b1@ = t8 store b2@ = t3 }",
        /* conversions on the way: of what may be rounded with them, so in one loop */
        "% tile split 1 { b0: in f32[#] b1: out f32[#] t0 = f32 load b0@ t1 = f32 tanh t0"
        " t2 = f64 to f64 t1 t3 = f64 tanh t2 t4 = f64 sin t3 t5 = f32 to f32 t4 t6 = f32 tanh t5"
        " store b1@ = t6 }",
    };
    static const int loops[] = {5, 3, 4, 3, 4, 1};
    check_steps(text, loops, 6);
}

static void test_calls(void **state) {
    (void)state;
    static const char *const text[] = {
        /* two functions, and loops for what is loaded, added and stored */
        "% tile split 1 { b0: in f32[#] b1: out f32[#] t0 = f32 load b0@ t1 = f32 tanh t0"
        " t2 = f32 tanh t1 t3 = f32 sin t2 t4 = f32 tanh t3 t5 = f32 add t4, t1 t6 = f32 tanh t5"
        " t7 = f32 sin t6 t8 = f32 tanh t7 t9 = f32 sin t8 t10 = f32 tanh t9 store b1@ = t10 }",
        /* one value for all lanes, as an array; a value is stored and read */
        "% tile split 1 { b0: in f64[#] b1: in f64[1] b2: out f64[#] b3: out f64[#]"
        " t0 = f64 load b0@ t1 = f64 load b1[0] t13 = f64 neg t1 t2 = f64 tanh t0"
        " t3 = f64 atan2 t2, t13 t4 = f64 sin t3 t5 = f64 add t4, t2 t6 = f64 tanh t5"
        " t7 = f64 sin t6 t8 = f64 tanh t7 t9 = f64 sigmoid t8 t10 = f64 mul t9, t3"
        " t11 = f64 tanh t10 t12 = f64 tanh t11 store b2@ = t9 store b3@ = t12 }",
        /* halves, in place */
        "% tile split 1 { b0: inout f16[#] b1: out f32[#] t0 = f32 load b0@ t1 = f32 tanh t0"
        " t2 = f32 tanh t1 t3 = f32 tanh t2 t4 = f32 tanh t3 t5 = f32 sub t4, t0 t6 = f32 tanh t5"
        " t7 = f32 tanh t6 t8 = f32 tanh t7 t9 = f32 tanh t8 t10 = f32 tanh t9 t11 = f32 add t10, "
        "t5"
        " store b0@ = t5 store b1@ = t11 }",
    };
    static const int loops[] = {2 + 3, 3 + 4, 1 + 3};
    check_steps(text, loops, 3);
}

/* Calls round what they take and give, where one loop may not. */
static const char *random_op(Arena *arena, int id, const char *type, bool calls) {
    static const char *const ops[] = {"add", "sub",  "mul",     "mul", "add", "neg",       "tanh",
                                      "sin", "tanh", "sigmoid", "erf", "exp", "gelu_value"};
    int op = (int)(next_random() % (calls ? 12 : 13)), a = id - 1 - (int)(next_random() % 2);
    int b = (int)(next_random() % (uint32_t)id);
    if (op < 5) return arena_format(arena, " t%d = %s %s t%d, t%d", id, type, ops[op], a, b);
    return arena_format(arena, " t%d = %s %s t%d", id, type, ops[op], a);
}

static const char *random_kernel(Arena *arena, int count) {
    const char *type = next_random() % 2 ? "f32" : "f64";
    Buffer out = buffer_new(arena);
    putf(&out, "%% tile split 1 { b0: in %s[#] b1: in %s[#] b2: out %s[#] b3: out %s[#]", type,
         type, type, type);
    putf(&out, " t0 = %s load b0@ t1 = %s load b1@", type, type);
    for (int id = 2; id < count; id++) put(&out, random_op(arena, id, type, count > OPS));
    putf(&out, " store b2@ = t%d store b3@ = t%d }", (int)(next_random() % (uint32_t)count),
         count - 1);
    return buffer_text(&out);
}

static void check_random(int ops) {
    Arena *arena = arena_new();
    const char *text[MADE];
    assert_int_equal(arena_guard(arena), 0);
    random_state = 7;
    for (int i = 0; i < MADE; i++) text[i] = random_kernel(arena, ops);
    check_steps(text, NULL, MADE);
    arena_free(arena);
}

static void test_random(void **state) {
    (void)state;
    check_random(OPS);
}

static void test_random_calls(void **state) {
    (void)state;
    check_random(MANY_OPS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
