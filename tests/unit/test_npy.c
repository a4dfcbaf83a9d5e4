/* npy files: what NumPy writes loads, what is saved NumPy would write, and a liar is refused. */
#include "fixture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inside.h"
#include "tensor/tensor.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static size_t read_file(const char *path, char *out, size_t capacity) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t count = fread(out, 1, capacity, file);
    fclose(file);
    return count;
}

/* A file of format 1.0 (or 2.0) with this header text and bytes of data. */
static cb_tensor *load(int version, const char *header, const void *data, size_t bytes) {
    char file[1024] = "\x93NUMPY";
    size_t length = strlen(header), at = 8;
    file[6] = (char)version;
    for (int i = 0; i < (version == 1 ? 2 : 4); i++) file[at++] = (char)(length >> (8 * i) & 255);
    memcpy(file + at, header, length);
    if (bytes) memcpy(file + at + length, data, bytes);
    const char *path = in_folder("made.npy");
    write_file(path, file, at + length + bytes);
    return cb_npy_load(path);
}

/* ---- good files ------------------------------------------------------------------------------ */

static void test_exact_bytes(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data((const float[]){1, 2, 3, 4, 5, 6}, CB_F32, cb_dims(2, 3));
    const char *path = in_folder("exact.npy");
    assert_int_equal(cb_npy_save(path, x), CB_OK);
    char bytes[256], expected[128];
    assert_int_equal(read_file(path, bytes, sizeof bytes), 128 + 24);
    const char *start = "\x93NUMPY\x01";
    const char *dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    memset(expected, ' ', sizeof expected);
    memcpy(expected, start, 8);
    expected[8] = 118;
    expected[9] = 0;
    memcpy(expected + 10, dict, strlen(dict));
    expected[127] = '\n';
    assert_memory_equal(bytes, expected, 128);
    assert_memory_equal(bytes + 128, cb_data(x), 24);
}

static void test_round_trip(void **state) {
    (void)state;
    const cb_dim_list shapes[] = {CB_NO_DIMS,
                                  cb_dims(5),
                                  cb_dims(0),
                                  cb_dims(3, 4),
                                  cb_dims(2, 0, 3),
                                  cb_dims(1, 1, 7),
                                  cb_dims(2, 1, 2, 1, 2, 1, 2, 3),
                                  cb_dims(100, 100, 3)};
    const char *path = in_folder("trip.npy");
    for (cb_dtype dtype = 0; dtype < CB_DTYPE_COUNT; dtype++) {
        if (dtype == CB_BF16) continue;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            cb_tensor *x = cb_empty(shapes[i], dtype);
            size_t bytes = tensor_span_bytes(tensor_at(x));
            uint8_t *data = cb_data(x);
            for (size_t k = 0; k < bytes; k++)
                data[k] = (uint8_t)(dtype == CB_BOOL ? k % 3 == 0 : k);
            assert_int_equal(cb_npy_save(path, x), CB_OK);
            cb_tensor *y = cb_npy_load(path);
            assert_non_null(y);
            assert_int_equal(cb_dtype_of(y), dtype);
            assert_int_equal(cb_rank(y), cb_rank(x));
            for (int d = 0; d < cb_rank(x); d++) assert_int_equal(cb_size(y, d), cb_size(x, d));
            assert_memory_equal(cb_data(y), data, bytes);
            cb_free(x);
            cb_free(y);
        }
    }
}

static void test_views(void **state) {
    (void)state;
    cb_tensor *x = cb_empty(cb_dims(300, 200), CB_I32);
    int32_t *data = cb_data(x);
    for (int i = 0; i < 60000; i++) data[i] = i;
    const char *path = in_folder("view.npy");
    assert_int_equal(cb_npy_save(path, cb_t(x)), CB_OK); /* several chunks */
    cb_tensor *y = cb_npy_load(path);
    assert_int_equal(cb_size(y, 0), 200);
    const int32_t *got = cb_data(y);
    for (int i = 0; i < 200; i++)
        for (int j = 0; j < 300; j++) assert_int_equal(got[i * 300 + j], j * 200 + i);
}

static void test_fortran_order(void **state) {
    (void)state;
    const int16_t data[] = {1, 4, 2, 5, 3, 6}; /* [[1, 2, 3], [4, 5, 6]] column by column */
    cb_tensor *x =
        load(2, "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n", data, 12);
    assert_non_null(x);
    assert_int_equal(cb_size(x, 0), 2);
    assert_int_equal(cb_stride(x, 0), 1);
    int64_t values[6];
    assert_int_equal(cb_read(x, values, CB_I64), CB_OK);
    for (int i = 0; i < 6; i++) assert_int_equal(values[i], i + 1);
}

/* Spacing, quotes, key order and byte-order marks that other writers use. */
static void test_loose_headers(void **state) {
    (void)state;
    const int8_t data[] = {5, -6};
    const char *headers[] = {
        "{'shape':(2,),'fortran_order':False,'descr':'|i1'}",
        "{ \"descr\" : \"<i1\" , \"shape\" : ( 2 , ) , \"fortran_order\" : False , } \n",
        "{'descr': '=i1', 'fortran_order': True, 'shape': (2), }",
        "{'descr': '>i1', 'fortran_order': False, 'shape': (1, 2), }",
    };
    for (int version = 1; version <= 3; version++)
        for (int i = 0; i < 4; i++) {
            cb_tensor *x = load(version, headers[i], data, 2);
            assert_null(cb_error());
            assert_int_equal(((int8_t *)cb_data(x))[1], -6);
        }
}

static void test_bool_values(void **state) {
    (void)state;
    cb_tensor *x =
        load(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", "\x00\x07\x01", 3);
    assert_memory_equal(cb_data(x), "\x00\x01\x01", 3); /* a bool holds 0 or 1 */
}

/* ---- bad files ------------------------------------------------------------------------------- */

static void test_bad_headers(void **state) {
    (void)state;
    static const struct {
        cb_status status;
        const char *header, *message;
    } cases[] = {
        {CB_ERR_IO, "", "not a dict"},
        {CB_ERR_IO, "{", "does not parse"},
        {CB_ERR_IO, "{}", "lacks a key"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False}", "lacks a key"},
        {CB_ERR_IO, "{'descr': '<f4' 'fortran_order': False}", "does not parse"},
        {CB_ERR_IO, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "records"},
        {CB_ERR_IO, "{'descr': '<f4', 'descr': '<f4', 'shape': ()}", "unexpected key"},
        {CB_ERR_IO, "{'colour': 3}", "unexpected key"},
        {CB_ERR_IO, "{'descr", "does not parse"},
        {CB_ERR_IO, "{'a_key_that_is_much_longer_than_any_that_there_is': 3}", "does not parse"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}", "not a bool"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': 3}", "not a tuple"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "bad size"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}", "bad size"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,", "bad size"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         "bad size"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
         "bad size"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
         "too large"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
         "more than 8 dimensions"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}",
         "shorter than its shape"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': ()} import os",
         "after its dict"},
        {CB_ERR_IO, "{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}",
         "longer than its shape"},
        {CB_ERR_DTYPE, "{'descr': '>f4', 'fortran_order': False, 'shape': ()}", "'>f4'"},
        {CB_ERR_DTYPE, "{'descr': '|f4', 'fortran_order': False, 'shape': ()}", "'|f4'"},
        {CB_ERR_DTYPE, "{'descr': '<c8', 'fortran_order': False, 'shape': ()}", "'<c8'"},
        {CB_ERR_DTYPE, "{'descr': '<u4', 'fortran_order': False, 'shape': ()}", "'<u4'"},
        {CB_ERR_DTYPE, "{'descr': '|O', 'fortran_order': False, 'shape': ()}", "'|O'"},
        {CB_ERR_DTYPE, "{'descr': '', 'fortran_order': False, 'shape': ()}", "''"},
        {CB_ERR_DTYPE, "{'descr': 'xi1', 'fortran_order': False, 'shape': ()}", "'xi1'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(load(1, cases[i].header, "\0\0\0\0", 4));
        expect_status(cases[i].status, cases[i].message);
        assert_int_equal(cb_memory().live_tensors, 0);
    }
}

/* Every proper prefix of a good file is refused, and so is a longer one. */
static void test_truncated(void **state) {
    (void)state;
    const char *path = in_folder("short.npy");
    cb_tensor *x = cb_from_data("abcd", CB_U8, cb_dims(4));
    assert_int_equal(cb_npy_save(path, x), CB_OK);
    cb_free(x);
    char bytes[256] = {0};
    size_t count = read_file(path, bytes, sizeof bytes);
    assert_int_equal(count, 132);
    for (size_t length = 0; length < count; length++) {
        write_file(path, bytes, length);
        assert_null(cb_npy_load(path));
        expect_status(CB_ERR_IO, "truncated");
    }
    write_file(path, bytes, count + 1);
    assert_null(cb_npy_load(path));
    expect_status(CB_ERR_IO, "longer than its shape");
}

/* One byte of a good file changed: an error or a tensor, never a crash. */
static void test_flipped_bytes(void **state) {
    (void)state;
    const char *path = in_folder("flip.npy");
    cb_tensor *x = cb_from_data((const int32_t[]){1, 2, 3, 4}, CB_I32, cb_dims(2, 2));
    assert_int_equal(cb_npy_save(path, x), CB_OK);
    char bytes[256];
    size_t count = read_file(path, bytes, sizeof bytes);
    int refused = 0;
    for (size_t i = 0; i < 80; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (char)(1 << bit);
            write_file(path, bytes, count);
            cb_tensor *y = cb_npy_load(path);
            assert_true((y != NULL) == (cb_error() == NULL));
            if (y) assert_true(tensor_span_bytes(tensor_at(y)) <= 16);
            refused += !y;
            cb_free(y);
            cb_clear_error();
            bytes[i] ^= (char)(1 << bit);
        }
    assert_true(refused > 300);
}

static void test_not_npy(void **state) {
    (void)state;
    const char *path = in_folder("other.npy");
    write_file(path, "PK\3\4 some zip file", 18);
    assert_null(cb_npy_load(path));
    expect_status(CB_ERR_IO, "not an npy file");
    write_file(path, "\x93NUMPY\x09\x00\x10\x00 a later version", 26);
    assert_null(cb_npy_load(path));
    expect_status(CB_ERR_IO, "an unknown version");
    write_file(path, "\x93NUMPY\x02\x00\xff\xff\xff\xff a long header", 26);
    assert_null(cb_npy_load(path));
    expect_status(CB_ERR_IO, "the header is too long");
    assert_null(cb_npy_load(in_folder("nowhere.npy")));
    expect_status(CB_ERR_IO, "No such file");
    assert_null(cb_npy_load(folder));
    expect_status(CB_ERR_IO, "directory");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_null(cb_npy_load(in_folder("pipe")));
    expect_status(CB_ERR_IO, "truncated");
    assert_null(cb_npy_load(NULL));
    expect_status(CB_ERR_ARGUMENT, "npy_load: path is NULL");
}

/* ---- saving ---------------------------------------------------------------------------------- */

static void test_bad_saves(void **state) {
    (void)state;
    cb_tensor *x = cb_empty(cb_dims(2), CB_BF16), *y = cb_from_data("ab", CB_U8, cb_dims(2));
    assert_int_equal(cb_npy_save(in_folder("bf16.npy"), x), CB_ERR_DTYPE);
    expect_status(CB_ERR_DTYPE, "no bf16");
    assert_int_equal(cb_npy_save(NULL, y), CB_ERR_ARGUMENT);
    expect_status(CB_ERR_ARGUMENT, "npy_save: path is NULL");
    assert_int_equal(cb_npy_save(in_folder("null.npy"), NULL), CB_ERR_ARGUMENT);
    expect_status(CB_ERR_ARGUMENT, "npy_save: x is NULL");
    assert_int_equal(cb_npy_save(in_folder("no/such/folder.npy"), y), CB_ERR_IO);
    expect_status(CB_ERR_IO, "No such file");
    assert_int_equal(mkdir(in_folder("taken"), 0700), 0);
    assert_int_equal(cb_npy_save(in_folder("taken"), y), CB_ERR_IO);
    expect_status(CB_ERR_IO, "npy_save");
}

/* The old file or the new one, and nothing beside it. */
static void test_replaces(void **state) {
    (void)state;
    cb_tensor *x = cb_from_data("abcd", CB_U8, cb_dims(4)), *y = cb_narrow(x, 0, 2, 2);
    const char *path = in_folder("same.npy");
    assert_int_equal(cb_npy_save(path, x), CB_OK);
    assert_int_equal(cb_npy_save(path, y), CB_OK);
    cb_tensor *z = cb_npy_load(path);
    assert_int_equal(cb_numel(z), 2);
    assert_memory_equal(cb_data(z), "cd", 2);
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        assert_null(strstr(entry->d_name, ".part"));
    closedir(directory);
}

/* Disks that are full from the first byte, or from the second part of a strided tensor on. */
static void test_modes_stay(void **state) {
    (void)state;
    struct stat info;
    const char *path = in_folder("private.npy");
    mode_t mask = umask(022);
    assert_int_equal(cb_npy_save(path, cb_ones(2)), CB_OK);
    for (mode_t mode = 0600; mode <= 0666; mode += 0066) { /* what others may: nothing; write */
        assert_int_equal(chmod(path, mode), 0);
        assert_int_equal(cb_npy_save(path, cb_ones(2)), CB_OK);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, mode & 0644);
    }
    umask(mask);
    unlink(path);
}

static void test_full_disks(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(100, 200)), *small = cb_ones(cb_dims(2));
    const char *path = in_folder("full.npy");
    assert_int_equal(cb_npy_save("/dev/full", small), CB_ERR_IO);
    expect_status(CB_ERR_IO, "No space left on device");
    assert_int_equal(cb_npy_save(path, small), CB_OK);
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){20000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cb_status status = cb_npy_save(path, cb_t(x));
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, CB_ERR_IO);
    expect_status(CB_ERR_IO, "File too large");
    assert_int_equal(cb_numel(cb_npy_load(path)), 2); /* the old one */
}

/* Nobody waits for a reader of a pipe, or for the writer of one. */
static void test_pipes(void **state) {
    (void)state;
    cb_tensor *x = cb_ones(cb_dims(2));
    const char *path = in_folder("pipe.npy");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(cb_npy_save(path, x), CB_ERR_IO);
    expect_status(CB_ERR_IO, "No such device or address");
    assert_null(cb_npy_load(path));
    expect_status(CB_ERR_IO, "truncated");
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    char bytes[256];
    assert_int_equal(cb_npy_save(path, x), CB_OK);
    assert_int_equal(read(reader, bytes, sizeof bytes), 136);
    int writer = open(path, O_WRONLY);
    assert_int_equal(write(writer, bytes, 136), 136);
    assert_null(cb_npy_load(path));
    expect_status(CB_ERR_IO, "not a regular file");
    assert_int_equal(read(reader, bytes, sizeof bytes), 8);
    assert_null(cb_npy_load(path)); /* its writer is there, and writes nothing */
    expect_status(CB_ERR_IO, "Resource temporarily unavailable");
    close(writer), close(reader);
}

/* A signal that the host has held back before stays its own. */
static void test_signals_of_the_host(void **state) {
    (void)state;
    sigset_t held, before, pending;
    sigemptyset(&held);
    sigaddset(&held, SIGPIPE);
    assert_int_equal(sigprocmask(SIG_BLOCK, &held, &before), 0);
    raise(SIGPIPE);
    assert_int_equal(cb_npy_save(in_folder("signal.npy"), cb_ones(cb_dims(2))), CB_OK);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGPIPE));
    int signal_number;
    assert_int_equal(sigwait(&held, &signal_number), 0);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
}

static int make_folder(void **state) {
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/carbide-npy-XXXXXX", base ? base : "/tmp");
    return !mkdtemp(folder);
}

static int remove_folder(void **state) {
    (void)state;
    DIR *directory = opendir(folder);
    if (!directory) return 1;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.') remove(in_folder(entry->d_name));
    closedir(directory);
    return rmdir(folder);
}

int main(void) {
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_##name, open_scope, close_scope_without_tensors)
    const struct CMUnitTest tests[] = {
        TEST(exact_bytes),   TEST(round_trip),  TEST(views),       TEST(fortran_order),
        TEST(loose_headers), TEST(bool_values), TEST(bad_headers), TEST(truncated),
        TEST(flipped_bytes), TEST(not_npy),     TEST(bad_saves),   TEST(replaces),
        TEST(modes_stay),    TEST(full_disks),  TEST(pipes),       TEST(signals_of_the_host),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
