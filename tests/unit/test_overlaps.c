/* Which tensors lie where others lie: by sorting, beside comparing each with each. */
#include "test_support.h"

#include "carbide.h"
#include "executable_of.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS = 60, ROUNDS = 2000, STORAGES = 3, BYTES = 4000 };

static int64_t draw(int64_t below) { return rand() % below; }

/* A shell over a storage, strided, of any dtype; now and then of no element. */
static void place(Tensor *x, Storage *storage) {
    static const cb_dtype dtypes[] = {CB_F32, CB_U8, CB_F64};
    *x = (Tensor){.storage = storage, .rank = 2, .dtype = dtypes[draw(3)]};
    x->size[0] = draw(4), x->size[1] = 1 + draw(3);
    x->stride[0] = draw(20), x->stride[1] = draw(3);
    x->offset = draw(100);
}

/* What a tensor spans, byte by byte. */
static void mark(const Tensor *x, bool *bytes) {
    int64_t start = x->offset * (int64_t)cb_dtype_size(x->dtype);
    memset(bytes, 0, BYTES);
    memset(bytes + start, 1, tensor_span_bytes(x));
}

static void compared_is_byte_by_byte(void **state) {
    (void)state;
    static Storage storage[2];
    static bool bytes[2][BYTES];
    Tensor x[2];
    srand(2);
    for (int round = 0; round < ROUNDS; round++) {
        bool expected = false;
        for (int i = 0; i < 2; i++) {
            place(&x[i], &storage[!draw(5)]);
            mark(&x[i], bytes[i]);
        }
        for (int b = 0; b < BYTES; b++) expected |= bytes[0][b] && bytes[1][b];
        bool some = tensor_span_bytes(&x[0]) && tensor_span_bytes(&x[1]);
        if (some)
            assert_int_equal(tensors_overlap(&x[0], &x[1]),
                             expected && x[0].storage == x[1].storage);
    }
}

static void sorted_is_as_compared(void **state) {
    (void)state;
    static Storage storage[STORAGES];
    static Tensor all[TENSORS];
    Tensor *x[TENSORS];
    bool overlaps[TENSORS];
    srand(1);
    for (int round = 0; round < ROUNDS; round++) {
        int count = (int)draw(TENSORS + 1), found = 0;
        for (int i = 0; i < count; i++) place(x[i] = &all[i], &storage[draw(STORAGES)]);
        tensors_mark_overlaps(x, count, overlaps);
        for (int i = 0; i < count; i++) {
            bool expected = false;
            for (int k = 0; k < count; k++)
                expected |= k != i && tensor_span_bytes(x[i]) && tensor_span_bytes(x[k]) &&
                            tensors_overlap(x[i], x[k]);
            assert_int_equal(overlaps[i], expected);
            found += expected;
        }
        if (count == TENSORS) assert_true(found > 0);
    }
}

/* ---- rows of one buffer ---------------------------------------------------------------------- */

enum { ROWS = 40, WIDTH = 33 };

static int descends(cb_tensor *const *x, int count, cb_tensor **out, void *user) {
    (void)out, (void)user;
    for (int i = 0; i < count / 2; i++)
        cb_assign_result(x[i], cb_sub(x[i], cb_mul(x[count / 2 + i], 0.5)));
    return 0;
}

/* Parameters that are rows of a flat one, in any order, are updated where they lie. */
static void rows_of_a_buffer_are_updated_in_place(void **state) {
    (void)state;
    cb_scope_open();
    cb_function *fast = cb_compile_n(descends, NULL, "backend=vm");
    cb_tensor *flat = cb_ones(cb_dims(ROWS, WIDTH)), *apart = cb_ones(cb_dims(ROWS, WIDTH));
    cb_tensor *gradient = cb_rand(cb_dims(ROWS, WIDTH)), *x[2 * ROWS], *y[2 * ROWS], *out[1];
    for (int i = 0; i < ROWS; i++) {
        int row = 7 * i % ROWS;
        x[i] = cb_select(flat, 0, row), y[i] = cb_select(apart, 0, row);
        x[ROWS + i] = y[ROWS + i] = cb_select(gradient, 0, row);
    }
    for (int call = 0; call < 3; call++) {
        assert_int_equal(cb_call_n(fast, x, 2 * ROWS, out, 1), 0);
        assert_int_equal(descends(y, 2 * ROWS, out, NULL), 0);
        assert_memory_equal(cb_data_const(flat), cb_data_const(apart),
                            sizeof(float) * ROWS * WIDTH);
    }
    assert_int_equal(cb_stats(fast).eager_calls, 0);
    x[3] = cb_slice(cb_reshape(flat, cb_dims(ROWS * WIDTH)), 0, 5, 5 + WIDTH); /* row 0, too */
    y[3] = cb_slice(cb_reshape(apart, cb_dims(ROWS * WIDTH)), 0, 5, 5 + WIDTH);
    assert_int_equal(cb_call_n(fast, x, 2 * ROWS, out, 1), 0);
    assert_int_equal(descends(y, 2 * ROWS, out, NULL), 0);
    assert_memory_equal(cb_data_const(flat), cb_data_const(apart), sizeof(float) * ROWS * WIDTH);
    assert_int_equal(cb_stats(fast).eager_calls, 1);
    cb_function_free(fast);
    cb_scope_close();
}

/* Inputs that are apart and values that are aside lie behind one another in the block of a run. */
static void apart_and_aside(void **state) {
    (void)state;
    bool generate = false;
    void *engine = &generate;
    cb_scope_open();
    Executable *e = executable_of(&engine,
                                  "graph(x: f32[40, 64], y: f32[40, 64], z: f32[40, 64]) {\n"
                                  "  part = mul(slice(x, dim=0, start=1, end=30), 2.0)\n"
                                  "  mutate x = slice_scatter(x, part, dim=0, start=1, end=30)\n"
                                  "  mutate y = mul(y, 3.0)\n  return add(z, 1.0)\n}",
                                  NULL);
    const Plan *plan = executable_plan(e);
    assert_true(plan->output[1].direct && plan->output[2].in_place);
    static const int first[] = {0, 50, 20};
    cb_tensor *base = ramp(cb_dims(90, 64), 0, 1), *was = cb_clone(base), *in[3], *out[1];
    for (int i = 0; i < 3; i++) in[i] = cb_slice(base, 0, first[i], first[i] + 40);
    assert_true(run_executable(e, in, out));
    assert_true(cb_item(cb_all(cb_eq(out[0], cb_add(cb_slice(was, 0, 20, 60), 1.0)))) == 1);
    cb_mul_(cb_slice(was, 0, 1, 30), 2.0);
    cb_mul_(cb_slice(was, 0, 50, 90), 3.0);
    assert_true(cb_item(cb_all(cb_eq(base, was))) == 1);
    executable_free(e);
    cb_scope_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compared_is_byte_by_byte),
        cmocka_unit_test(sorted_is_as_compared),
        cmocka_unit_test(rows_of_a_buffer_are_updated_in_place),
        cmocka_unit_test(apart_and_aside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
