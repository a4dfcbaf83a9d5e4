/* Generated C of short rows that are walked by whole vectors: pools, parts of longer rows, which
 * read and write beyond what is theirs, and nothing beyond a buffer. */
#include "test_support.h"

#include "elements.h"
#include "kernel_run.h"

#include <sys/mman.h>
#include <unistd.h>

static const char *source(Arena *arena, const char *text) {
    Buffer code = buffer_new(arena);
    c_render_kernel(kernel_parse(arena, text), NULL, &code);
    return buffer_text(&code);
}

/* 3 x 3 windows with a line of padding before and behind, 14 of them in a row. */
#define POOL(dtype, other, op)                                                                     \
    "kernel pool_" op "_" dtype "(outer a0:3, outer a1:14, outer a2:14, inner a3:3, inner a4:3) "  \
    "tile split 1 { b0: in " dtype "[2352] b1: out " dtype "[588]"                                 \
    " t0 = bool ge [(((a1*2)+a3)+-1)], 0:i64 t1 = bool ge [(((a2*2)+a4)+-1)], 0:i64"               \
    " t2 = bool logical_and t0, t1 t3 = " dtype                                                    \
    " load b0[(((((a0*784)+(a1*56))+((a3*28)+a4))+(a2*2))+-29)] if t2 t4 = " dtype                 \
    " where t2, t3, " other ":" dtype " t5 = " dtype " reduce " op " t4"                           \
    " store b1[(((a0*196)+(a1*14))+a2)] = t5 }"

/* a0 rows of `row` elements, from the second one of each `of` on and from the first one. */
#define PARTS(name, dtype, value, rows, row, of, in, out)                                          \
    "kernel " name "(outer a0:" rows ", outer a1:" row ") tile split 1 { b0: in " dtype "[" in "]" \
    " b1: in " dtype "[" rows "] b2: out " dtype "[" out "]"                                       \
    " t0 = " value " load b0[(((a0*" of ")+a1)+1)] t1 = " value " load b0[((a0*" of ")+a1)]"       \
    " t2 = " value " load b1[a0] t3 = " value " mul t0, t2 t4 = " value " add t3, t1"              \
    " store b2[((a0*" row ")+a1)] = t4 }"

static const char *const whole[] = {
    POOL("f32", "-inf", "amax"),
    POOL("f64", "0", "sum"),
    POOL("i16", "-32768", "amax"),
    PARTS("threes", "f32", "f32", "50", "3", "6", "300", "150"),
    PARTS("halves", "f16", "f32", "40", "10", "20", "800", "400"),
    PARTS("brains", "bf16", "f32", "40", "17", "34", "1360", "680"),
    PARTS("bytes", "u8", "u8", "40", "17", "30", "1200", "680"),
    PARTS("doubles", "f64", "f64", "30", "20", "41", "1230", "600"),
    PARTS("close", "i64", "i64", "40", "5", "6", "240", "200"),
    "kernel windows(outer a0:40, outer a1:7, inner a2:2, inner a3:2) tile split 1 {"
    " b0: in f32[1120] b1: out f32[280] t0 = f32 load b0[((((a0*28)+(a1*2))+(a2*14))+a3)]"
    " t1 = f32 reduce amax t0 store b1[((a0*7)+a1)] = t1 }",
    "kernel pieces(outer a0:40, outer a1:5) tile split 1 { b0: in f32[240] b1: in f32[160]"
    " b2: out f32[200] t0 = bool lt [a0], 20:i64 t1 = bool ge [a0], 20:i64"
    " t2 = f32 load b0[((a0*6)+a1)] if t0 t3 = f32 load b1[(((a0*8)+a1)+-160)] if t1"
    " t4 = f32 where t0, t2, t3 store b2[((a0*5)+a1)] = t4 }",
};

/* Rows backwards, rows that are stored elsewhere, or under a condition; too few of them; those
 * whose length is not known; columns, of which the last row's end is that of the buffer. */
static const char *const not_whole[] = {
    "kernel backwards(outer a0:40, outer a1:5) tile split 1 { b0: in f32[320] b1: out f32[200]"
    " t0 = f32 load b0[(((a0*8)+(a1*-1))+4)] store b1[((a0*5)+a1)] = t0 }",
    "kernel apart(outer a0:40, outer a1:5) tile split 1 { b0: in f32[320] b1: out f32[240]"
    " t0 = f32 load b0[((a0*8)+a1)] store b1[((a0*6)+a1)] = t0 }",
    "kernel some(outer a0:40, outer a1:5) tile split 1 { b0: in f32[320] b1: out f32[200]"
    " t0 = f32 load b0[((a0*8)+a1)] t1 = bool gt t0, 0:f32 store b1[((a0*5)+a1)] = t0 if t1 }",
    "kernel few(outer a0:2, outer a1:5) tile split 1 { b0: in f32[13] b1: out f32[10]"
    " t0 = f32 load b0[((a0*8)+a1)] store b1[((a0*5)+a1)] = t0 }",
    "kernel varying(outer a0:40, outer a1:5+) tile split 1 { b0: in f32[320] b1: out f32[200]"
    " t0 = f32 load b0[((a0*8)+a1)] store b1[((a0*5)+a1)] = t0 }",
    "kernel columns(outer a0:40, outer a1:5) tile split 1 { b0: in f32[320] b1: in f32[5]"
    " b2: out f32[200] t0 = f32 load b0[((a0*8)+a1)] t1 = f32 load b1[a1] t2 = f32 add t0, t1"
    " store b2[((a0*5)+a1)] = t2 }",
};

enum { WHOLE = sizeof whole / sizeof *whole, NOT_WHOLE = sizeof not_whole / sizeof *not_whole };

static void test_which(void **state) {
    (void)state;
    Arena *arena = arena_new();
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < WHOLE; i++)
        if (!strstr(source(arena, whole[i]), "enum { n = ")) FAIL("%s", whole[i]);
    const char *brains = PARTS("brains", "bf16", "f32", "40", "17", "34", "1360", "680");
    assert_non_null(strstr(source(arena, brains), "enum { n = 32 }"));
    for (int i = 0; i < NOT_WHOLE; i++)
        if (strstr(source(arena, not_whole[i]), "enum { n = ")) FAIL("%s", not_whole[i]);
    check_all(not_whole, NOT_WHOLE);
    arena_free(arena);
}

/* An element of each buffer between two pages that nobody may touch: at the first one's end, or at
 * the other's beginning. */
static char *fenced(size_t bytes, bool behind) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    char *pages = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + page, room, PROT_READ | PROT_WRITE), 0);
    return pages + page + (behind ? 0 : room - bytes);
}

static void run_fenced(const Kernel *kernel, KernelFunction *function, const Data *data,
                       bool behind) {
    void *bound[MAX_BUFFERS];
    int out = length(kernel->buffer) - 1;
    for (int b = 0; b <= out; b++) {
        size_t bytes = (size_t)kernel->buffer[b].numel * cb_dtype_size(kernel->buffer[b].dtype);
        bound[b] = fenced(bytes, behind);
        memcpy(bound[b], data->before[b], bytes);
    }
    function(bound, 0, kernel->outer_size, 0, NULL); /* bits of it all at once, and in ranges */
    assert_memory_equal(bound[out], data->got[out],
                        (size_t)kernel->buffer[out].numel *
                            cb_dtype_size(kernel->buffer[out].dtype));
}

static void test_nothing_beyond_a_buffer(void **state) {
    (void)state;
    Arena *arena = arena_new();
    const Kernel *kernel[WHOLE];
    assert_int_equal(arena_guard(arena), 0);
    for (int i = 0; i < WHOLE; i++) assert_non_null(kernel[i] = kernel_parse(arena, whole[i]));
    Code *code = compile(kernel, WHOLE, arena);
    check_all(whole, WHOLE);
    for (int i = 0; i < WHOLE; i++) {
        Data data;
        KernelFunction *function = code_function(code, kernel[i]->name);
        fill(kernel[i], &data);
        run_plain(kernel[i], function, data.bound);
        for (int behind = 0; behind < 2; behind++) run_fenced(kernel[i], function, &data, behind);
        release(kernel[i], &data);
    }
    code_release(code);
    arena_free(arena);
}

/* ---- whole functions ------------------------------------------------------------------------ */

static cb_tensor *pads(cb_tensor *x) { return cb_add(cb_pad(x, cb_dims(0, 0, 1, 1, 1, 1)), 1); }
static cb_tensor *rolls(cb_tensor *x) { return cb_mul(cb_roll(cb_roll(x, 1, 0), 1, 1), 2); }
static cb_tensor *factors;
static cb_tensor *scales(cb_tensor *x) { /* in place: x is where the result goes */
    return cb_assign(x, cb_mul(x, cb_add(cb_select(factors, 0, 0), 1)));
}
static cb_tensor *squares(cb_tensor *x) { return cb_assign(x, cb_clamp(cb_mul(x, x), -100, 100)); }
static cb_tensor *pool_gradient(cb_tensor *x) {
    cb_tensor *y = cb_max_pool2d(cb_reshape(x, cb_dims(2, 3, 16, 16)), 3, 2, 1), *g;
    return cb_grad(cb_sum(cb_mul(y, y)), NULL, &x, 1, &g) == CB_OK ? g : NULL;
}
static cb_tensor *pool_indices(cb_tensor *x) {
    return cb_max_pool2d_indices(cb_reshape(x, cb_dims(2, 3, 16, 16)), 3, 2, 1);
}

static cb_tensor *picture(int columns, int channels) {
    int64_t count = (int64_t)6 * columns * channels;
    cb_tensor *x =
        cb_to(cb_reshape(cb_arange(1, count + 1), cb_dims(6, columns, channels)), CB_F32);
    return cb_add(cb_mul(cb_sin(x), 0.5), 1);
}

/* Pieces of pieces keep to their ranges, rows of results that lie where they were read overlap in
 * none, and the compiler takes all of it. */
static void test_functions(void **state) {
    (void)state;
    cb_function_1 *const function[] = {pads, rolls, scales, squares, pool_gradient, pool_indices};
    cb_scope_open();
    for (int k = 0; k < 6; k++) {
        bool pools = k >= 4, leads = function[k] == pool_gradient;
        int columns = pools ? 16 : 6, channels = pools ? 16 : 5;
        cb_tensor *x = cb_requires_grad_(picture(columns, channels), leads);
        cb_tensor *u = cb_requires_grad_(picture(columns, channels), leads);
        factors = picture(columns, channels);
        cb_function *fast = cb_compile(function[k]);
        expect_tensor(cb_call(fast, x), function[k](u), 1e-6, 1e-6);
        char *said = cb_explain(fast);
        if (strstr(said, "vector VM")) FAIL("%d: not compiled: %s", k, said);
        cb_free_text(said);
        cb_function_free(fast);
    }
    assert_null(cb_error());
    cb_scope_close();
}

int main(void) {
    cb_set_option("cache", "0");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which),
        cmocka_unit_test(test_nothing_beyond_a_buffer),
        cmocka_unit_test(test_functions),
    };
    int failed = cmocka_run_group_tests_name("codegen of whole rows", tests, NULL, NULL);
    cb_cleanup();
    return failed;
}
