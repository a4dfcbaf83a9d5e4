/* What functions over tensors refuse: several at a time, in place, files, values; with the words of
 * the error. Nothing is left over. */
#include "fixture.h"

#include <math.h>
#include <unistd.h>

static void pieces_are_refused(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(4, 6)), *out[4] = {NULL}, *nothing = cb_ones(cb_dims(0, 2));
    REFUSES(cb_split(NULL, 2, 0, out, 4), CB_ERR_ARGUMENT, "split: input 0 (x) is NULL");
    REFUSES(cb_chunk(NULL, 2, 0, out, 4), CB_ERR_ARGUMENT, "chunk: input 0 (x) is NULL");
    REFUSES(cb_split(x, 2, 2, out, 4), CB_ERR_INDEX, "split: dimension 2 is out of range [-2, 1]");
    REFUSES(cb_split(x, 2, -3, out, 4), CB_ERR_INDEX, "split: dimension -3 is out of range");
    REFUSES(cb_chunk(x, 2, -3, out, 4), CB_ERR_INDEX, "chunk: dimension -3 is out of range");
    REFUSES(cb_split(x, -1, 0, out, 4), CB_ERR_ARGUMENT, "pieces of size -1 do not cover");
    REFUSES(cb_split(x, 0, 0, out, 4), CB_ERR_ARGUMENT, "pieces of size 0 do not cover");
    REFUSES(cb_chunk(x, 0, 0, out, 4), CB_ERR_ARGUMENT, "chunk: 0 chunks");
    REFUSES(cb_split(x, 1, 1, out, 4), CB_ERR_ARGUMENT, "6 pieces do not fit into an array of 4");
    REFUSES(cb_split(x, 3, 1, NULL, 4), CB_ERR_ARGUMENT, "2 pieces do not fit into an array of 0");
    assert_int_equal(cb_split(nothing, 0, 0, out, 4), 1);
    assert_int_equal(cb_chunk(nothing, 3, 0, out, 4), 3);
    assert_int_equal(cb_chunk(x, 4, -1, out, 4), 3);
    assert_int_equal(cb_size(out[2], 1), 2);
}

static void lists_are_refused(void **state) {
    (void)state;
    cb_tensor *line = cb_ones(cb_dims(3)), *plane = cb_ones(cb_dims(3, 3));
    cb_tensor *hole[] = {line, NULL}, *ranks[] = {line, plane}, *sizes[] = {plane, plane};
    sizes[1] = cb_ones(cb_dims(3, 2));
    REFUSED(cb_cat(NULL, 1, 0), "cat: expects at least one tensor");
    REFUSED(cb_cat(hole, -1, 0), "cat: expects at least one tensor");
    REFUSED(cb_cat(hole, 2, 0), "cat: input 1 is NULL");
    REFUSED(cb_stack(hole, 2, 0), "stack: input 1 is NULL");
    REFUSED(cb_cat(ranks, 2, 0), "ranks differ");
    REFUSED(cb_cat(sizes, 2, 0), "sizes of dim 1 differ");
    REFUSED(cb_cat(sizes, 2, -3), "cat: dimension -3 is out of range [-2, 1]");
    REFUSED(cb_stack(ranks, 2, 0), "stack: input 1 is f32[3, 3], input 0 is f32[3]");
    REFUSED(cb_stack(sizes, 2, -4), "stack: input 1 is f32[3, 2]");
    REFUSED(cb_stack(ranks, 1, -3), "stack: dimension -3 is out of range [-2, 1]");
    cb_tensor *wide = cb_ones(cb_dims(1, 1, 1, 1, 1, 1, 1, 1));
    REFUSED(cb_stack(&wide, 1, 0), "more than 8 dimensions");
    REFUSED(cb_sort(NULL, 0, false, &wide), "NULL");
    assert_null(wide);
    REFUSED(cb_sort(line, 1, false, &wide), "dim 1 is outside of -1..0");
    REFUSED(cb_topk(line, 4, 0, true, NULL), "k 4 is outside of dim 0 of size 3");
    REFUSED(cb_topk(line, -1, 0, true, NULL), "k -1 is outside");
}

/* Of tensors of shape [0] alone the first is left; their dtypes count in any case. */
static void empty_tensors_are_left_out(void **state) {
    (void)state;
    cb_tensor *list[] = {cb_ones(cb_dims(0), CB_I32), cb_ones(cb_dims(2), CB_F32),
                         cb_ones(cb_dims(0), CB_F64)};
    cb_tensor *y = cb_cat(list, 3, 0);
    assert_int_equal(cb_dtype_of(y), CB_F64);
    assert_int_equal(cb_numel(y), 2);
    y = cb_cat((cb_tensor *[]){list[0], list[2]}, 2, 0);
    assert_int_equal(cb_dtype_of(y), CB_F64);
    assert_int_equal(cb_numel(y), 0);
    assert_int_equal(cb_dtype_of(cb_cat(list, 2, 0)), CB_F32);
    y = cb_cat((cb_tensor *[]){list[1], list[0]}, 2, 0);
    assert_int_equal(cb_dtype_of(y), CB_F32);
}

static void writes_are_refused(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(2, 3)), *whole = cb_ones(cb_dims(2), CB_I64);
    REFUSED(cb_assign(NULL, x), "assign: the target is NULL");
    REFUSED(cb_assign(x, NULL), "assign: the value is NULL; a number is written by cb_fill_");
    REFUSED(cb_assign(x, whole), "assign: i64[2] does not broadcast to f32[2, 3]");
    REFUSED(cb_assign(whole, x), "assign: f32[2, 3] does not broadcast to i64[2]");
    REFUSED(cb_assign(cb_expand(cb_ones(cb_dims(1, 3)), cb_dims(2, 3)), x), "dimension 0 of the");
    REFUSED(cb_assign(cb_window(cb_ones(cb_dims(4)), 0, 3, 1), cb_ones(cb_dims(2, 3))),
            "the target's windows overlap");
    assert_non_null(
        cb_assign(cb_expand(cb_ones(cb_dims(1, 3)), cb_dims(1, 3)), cb_ones(cb_dims(3))));
    REFUSED(cb_add_(whole, 0.5), "a result of f32[2] does not fit i64[2] in place");
    cb_tensor *empty = cb_expand(cb_ones(cb_dims(1, 0)), cb_dims(2, 0));
    assert_non_null(cb_fill_(empty, cb_operand_int(1)));
    REFUSED(cb_item_int(x), "item_int");
    REFUSED(cb_item_int(NULL), "item_int");
    REFUSED(cb_data(NULL), "data");
    assert_int_equal(cb_item_int(cb_full(cb_dims(1), 7.9)), 7);
    REFUSED(cb_item_int(cb_full(cb_dims(1), NAN)), "item_int: the element nan is no i64");
    REFUSED(cb_item_int(cb_full(cb_dims(1), 0x1p63)), "is no i64");
    REFUSED(cb_item_int(cb_full(cb_dims(1), -0x1p64)), "is no i64");
    assert_true(cb_item_int(cb_full(cb_dims(1), -0x1p63)) == INT64_MIN);
    cb_changed(NULL);
    assert_null(cb_error());
    double number[6];
    REFUSES(cb_read(NULL, number, CB_F64), CB_ERR_ARGUMENT, "read: x is NULL");
    REFUSES(cb_read(x, NULL, CB_F64), CB_ERR_ARGUMENT, "read: out is NULL");
    REFUSES(cb_read(x, number, (cb_dtype)-1), CB_ERR_DTYPE, "read: -1 is not a dtype");
    REFUSES(cb_read(x, number, (cb_dtype)127), CB_ERR_DTYPE, "read: 127 is not a dtype");
    assert_int_equal(cb_read(empty, NULL, CB_F64), CB_OK);
    assert_false(cb_shares_storage(NULL, x));
    expect_error("shares_storage");
    assert_false(cb_shares_storage(x, NULL));
    assert_false(cb_shares_storage(NULL, NULL));
    expect_error("shares_storage");
}

/* A view of one element may have as many of them as a number can count, and no op room for them. */
static void sizes_beyond_memory(void **state) {
    (void)state;
    cb_tensor *x = cb_expand(cb_ones(cb_dims(1), CB_U8), cb_dims(INT64_MAX / 4));
    assert_non_null(x);
    REFUSED(cb_neg(x), "out of memory");
    REFUSED(cb_to(x, CB_F64), "");
    REFUSED(cb_expand(cb_ones(cb_dims(1)), cb_dims(INT64_MAX / 2)), "");
}

static void constructions_are_refused(void **state) {
    (void)state;
    float data[2] = {1, 2};
    cb_dim_list huge = cb_dims(INT64_MAX / 2, 4), negative = cb_dims(-1);
    REFUSED(cb_from_data(data, CB_F32, negative), "from_data: ");
    REFUSED(cb_from_data(data, CB_F32, huge), "from_data");
    REFUSED(cb_from_data(data, (cb_dtype)99, cb_dims(2)), "from_data");
    int whole[2] = {1, 2};
    double wide[2];
    void *any = whole;
    REFUSED(cb_from_data(whole, CB_I64, 2),
            "from_data: the pointer is to i32, and the dtype is i64: a void pointer is believed");
    REFUSED(cb_from_data(wide, CB_F32, 2), "the pointer is to f64, and the dtype is f32");
    REFUSED(cb_from_data((int[]){1, 2}, CB_F32, cb_dims(2)), "the pointer is to i32");
    REFUSED(cb_from_data((const double[2]){1, 2}, CB_F32, cb_dims(2)), "the pointer is to f64");
    REFUSED(cb_from_data((wide), CB_F32, (cb_dim_list){1, {2}}), "the pointer is to f64");
    REFUSED(cb_from_data((float *)wide, CB_F64, (cb_dim_list){1, {1}}), "the pointer is to f32");
    assert_non_null(cb_from_data((long long[]){1, 2}, CB_I64, cb_dims(2)));
    assert_non_null(cb_from_data((float[2][2]){{1, 2}, {3, 4}}, CB_F32, cb_dims(2, 2)));
    assert_non_null(cb_from_data(wide + 0, CB_F64, (cb_dim_list){2, {1, 2}}));
    assert_non_null(cb_from_data(whole, CB_I32, 2));
    cb_tensor *x = cb_from_data(any, CB_F32, 2);
    REFUSES(cb_read(x, wide, CB_F32), CB_ERR_DTYPE,
            "read: the pointer is to f64, and the dtype is f32");
    assert_int_equal(cb_read(x, wide, CB_F64), CB_OK);
    REFUSED(cb_from_data(NULL, CB_F32, cb_dims(2)), "from_data");
    assert_non_null(cb_from_data(NULL, CB_F32, cb_dims(0)));
    REFUSED(cb_empty(huge, CB_F32), "empty");
    REFUSED(cb_empty(cb_dims(INT64_MAX / 4), CB_F64), "empty");
}

static void files_are_refused(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/carbide-refusals-%d", (int)getpid());
    cb_tensor *x = cb_ones(cb_dims(2));
    const char *name[] = {"a", NULL}, *own[] = {"__metadata__"};
    cb_tensor *both[] = {x, NULL};
    REFUSED(cb_npy_load(NULL), "NULL");
    REFUSES(cb_npy_save(NULL, x), CB_ERR_ARGUMENT, "NULL");
    REFUSES(cb_npy_save(path, NULL), CB_ERR_ARGUMENT, "NULL");
    REFUSED(cb_npy_load("/dev/null"), "the file is truncated");
    REFUSED(cb_safetensors_open(NULL), "safetensors_open: path is NULL");
    REFUSES(cb_safetensors_save(NULL, name, both, 1), CB_ERR_ARGUMENT, "safetensors_save: NULL");
    REFUSES(cb_safetensors_save(path, NULL, both, 1), CB_ERR_ARGUMENT, "safetensors_save: NULL");
    REFUSES(cb_safetensors_save(path, name, NULL, 1), CB_ERR_ARGUMENT, "safetensors_save: NULL");
    REFUSES(cb_safetensors_save(path, name, both, -1), CB_ERR_ARGUMENT, "safetensors_save: NULL");
    REFUSES(cb_safetensors_save(path, name, both, 2), CB_ERR_ARGUMENT, "not a name: NULL");
    REFUSES(cb_safetensors_save(path, own, both, 1), CB_ERR_ARGUMENT, "not a name: __metadata__");
    name[1] = "b";
    REFUSES(cb_safetensors_save(path, name, both, 2), CB_ERR_ARGUMENT, "safetensors_save");
    assert_int_equal(access(path, F_OK), -1);
    assert_null(cb_safetensors_name(NULL, 0));
    assert_null(cb_safetensors_metadata(NULL, "format"));
    REFUSED(cb_safetensors_get(NULL, "a"), "safetensors_get: NULL");
    /* Names of any characters come back; so does a file without tensors. */
    name[0] = "tab\t, \"quoted\" \\ and \001";
    both[1] = x;
    assert_int_equal(cb_safetensors_save(path, name, both, 2), CB_OK);
    cb_safetensors *file = cb_safetensors_open(path);
    assert_non_null(file);
    assert_int_equal(cb_safetensors_count(file), 2);
    assert_null(cb_safetensors_name(file, -1));
    assert_null(cb_safetensors_name(file, 2));
    assert_null(cb_safetensors_metadata(file, NULL));
    assert_null(cb_safetensors_metadata(file, "formats"));
    assert_string_equal(cb_safetensors_metadata(file, "format"), "pt");
    assert_non_null(cb_safetensors_get(file, name[0]));
    REFUSED(cb_safetensors_get(file, NULL), "safetensors_get: NULL");
    REFUSED(cb_safetensors_get(file, "c"), "there is no tensor 'c'");
    cb_safetensors_close(file);
    assert_int_equal(cb_safetensors_save(path, NULL, NULL, 0), CB_OK);
    file = cb_safetensors_open(path);
    assert_int_equal(cb_safetensors_count(file), 0);
    cb_safetensors_close(file);
    unlink(path);
}

/* Equal numbers of bytes, and names: an order that does not depend on the one given. */
static void saved_files_do_not_depend_on_the_order(void **state) {
    (void)state;
    char path[2][64], bytes[2][1024];
    const char *name[] = {"i", "f", "b", "h", "c", "a"};
    const cb_dtype dtype[] = {CB_I32, CB_F32, CB_BF16, CB_F16, CB_I32, CB_I32};
    size_t size[2];
    for (int turn = 0; turn < 2; turn++) {
        const char *names[6];
        cb_tensor *x[6];
        for (int i = 0; i < 6; i++) {
            int k = turn ? 5 - i : i;
            names[i] = name[k], x[i] = cb_full(cb_dims(2), (double)k, dtype[k]);
        }
        snprintf(path[turn], sizeof path[turn], "/tmp/carbide-order-%d-%d", turn, (int)getpid());
        assert_int_equal(cb_safetensors_save(path[turn], names, x, 6), CB_OK);
        FILE *file = fopen(path[turn], "rb");
        size[turn] = fread(bytes[turn], 1, sizeof bytes[turn], file);
        fclose(file);
        unlink(path[turn]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
}

static void scopes_and_autocasts_are_refused(void **state) {
    (void)state;
    cb_autocast_open(CB_F32);
    expect_error("autocast_open: f32 is no lower precision");
    cb_autocast_close();
    cb_autocast_open((cb_dtype)99);
    expect_error("autocast_open: this is no lower precision");
    cb_autocast_close();
    cb_autocast_open((cb_dtype)-7);
    expect_error("autocast_open: this is no lower precision");
    cb_autocast_close();
    cb_autocast_close();
    expect_error("autocast_close: no autocast is open in this thread");
    cb_autocast_open(CB_BF16);
    REFUSED(cb_matmul(NULL, cb_ones(cb_dims(2, 2))), "matmul: input 0");
    REFUSED(cb_matmul(cb_ones(cb_dims(3, 2)), cb_ones(cb_dims(3, 2))), "inner sizes differ");
    cb_tensor *y = cb_matmul(cb_ones(cb_dims(2, 2), CB_F64), cb_ones(cb_dims(2, 2), CB_F64));
    assert_int_equal(cb_dtype_of(y), CB_F64);
    cb_autocast_close();
}

/* A statistic that is not asked for is not moved; one that does not fit is an error of the call. */
static void running_statistics_are_refused(void **state) {
    (void)state;
    for (cb_dtype dtype = CB_F32; dtype <= CB_F64; dtype++) {
        cb_tensor *x = cb_to(cb_reshape(cb_arange(0, 12), cb_dims(2, 2, 3)), dtype);
        cb_tensor *mean = cb_zeros(cb_dims(2), dtype), *var = cb_ones(cb_dims(2), dtype);
        REFUSED(cb_batch_norm(x, mean, NULL, NULL, NULL, true, 0.5, 1e-5), "go together");
        REFUSED(cb_batch_norm(x, NULL, var, NULL, NULL, true, 0.5, 1e-5), "go together");
        cb_tensor *narrow = cb_zeros(cb_dims(3), dtype);
        REFUSED(cb_batch_norm(x, narrow, var, NULL, NULL, true, 0.5, 1e-5), "batch_norm");
        REFUSED(cb_batch_norm(x, mean, narrow, NULL, NULL, true, 0.5, 1e-5), "batch_norm");
        REFUSED(cb_instance_norm(x, narrow, var, NULL, NULL, true, 0.5, 1e-5), "instance_norm");
        REFUSED(cb_batch_norm(NULL, mean, var, NULL, NULL, true, 0.5, 1e-5), "batch_norm");
        cb_tensor *turned = cb_expand(cb_zeros(cb_dims(1), dtype), cb_dims(2));
        REFUSED(cb_batch_norm(x, turned, var, NULL, NULL, true, 0.5, 1e-5), "is expanded");
        REFUSED(cb_batch_norm(x, mean, turned, NULL, NULL, true, 0.5, 1e-5), "is expanded");
    }
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope_without_tensors)

int main(void) {
    const struct CMUnitTest tests[] = {
        ONE(pieces_are_refused),
        ONE(lists_are_refused),
        ONE(empty_tensors_are_left_out),
        ONE(writes_are_refused),
        ONE(constructions_are_refused),
        ONE(sizes_beyond_memory),
        ONE(files_are_refused),
        ONE(saved_files_do_not_depend_on_the_order),
        ONE(scopes_and_autocasts_are_refused),
        ONE(running_statistics_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
