/* safetensors: exact bytes, round trips, state dicts, and files that lie. */
#include "fixture.h"

#include "io/safetensors.h"
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[2][512];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void write_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static size_t make(char *out, const char *header, size_t data) {
    size_t length = strlen(header);
    memset(out, 0, 8);
    out[0] = (char)(length & 255);
    out[1] = (char)(length >> 8);
    memcpy(out + 8, header, length);
    memset(out + 8 + length, 1, data);
    return 8 + length + data;
}

/* A file with this header and so many bytes of data is refused with these words. */
static void expect_refused(const char *header, size_t data, const char *why) {
    static char bytes[8192];
    size_t size = make(bytes, header, data);
    assert_null(safetensors_parse("made", bytes, size));
    expect_error(why);
}

static void expect_count(const char *header, size_t data, int count) {
    static char bytes[8192];
    cb_safetensors *file = safetensors_parse("made", bytes, make(bytes, header, data));
    if (!file) print_error("%s\n", cb_error());
    assert_non_null(file);
    assert_int_equal(cb_safetensors_count(file), count);
    cb_safetensors_close(file);
}

/* ---- good files ------------------------------------------------------------------------------ */

static void bytes_are_the_formats(void **state) {
    (void)state;
    cb_tensor *tensors[] = {cb_from_data((const uint8_t[]){1, 2, 3}, CB_U8, cb_dims(3)),
                            cb_from_data((const float[]){1, 2}, CB_F32, cb_dims(2, 1))};
    const char *names[] = {"a", "b\"\xc3\xa9"};
    const char *path = in_folder("exact.safetensors");
    assert_int_equal(cb_safetensors_save(path, names, tensors, 2), CB_OK);
    char bytes[512];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\", \"carbide_xxh3\":\"XXXXXXXXXXXXXXXX\"},"
        "\"b\\\"\xc3\xa9\":{\"dtype\":\"F32\",\"shape\":[2,1],"
        "\"data_offsets\":[0,8]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    size_t padded = (strlen(header) + 7) / 8 * 8;
    assert_int_equal(size, 8 + padded + 11);
    assert_int_equal((uint8_t)bytes[0], padded);
    char *sum = strchr(header, 'X');
    size_t opening = (size_t)(sum - header);
    assert_memory_equal(bytes + 8, header, opening);
    assert_int_equal(strspn(bytes + 8 + opening, "0123456789abcdef"), 16);
    assert_memory_equal(bytes + 24 + opening, sum + 16, strlen(sum + 16));
    assert_memory_equal(bytes + 8 + padded, cb_data(tensors[1]), 8);
    assert_memory_equal(bytes + 16 + padded, cb_data(tensors[0]), 3);
}

/* Any bit of a file of ours: it is refused, or what it says is the same. Metadata that a package
 * carried on into a file of its own is none of ours. */
static void a_flipped_bit_is_noticed(void **state) {
    (void)state;
    cb_tensor *x = cb_transpose(cb_randn(cb_dims(90, 70)), 0, 1); /* more than one block of 16 KB */
    cb_tensor *tensors[] = {x, cb_clone(x),
                            cb_from_data((const uint8_t[]){1, 2, 3}, CB_U8, cb_dims(3))};
    const char *names[] = {"strided", "whole", "bytes"}, *path = in_folder("flipped.safetensors");
    assert_int_equal(cb_safetensors_save(path, names, tensors, 3), CB_OK);
    static char bytes[65536];
    FILE *file = fopen(path, "rb");
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_in_range(size, 50000, sizeof bytes - 1);
    size_t metadata = (size_t)(strstr(bytes + 8, "},") - bytes);
    for (size_t at = 0; at < size; at += at < 700 ? 1 : 61)
        for (int bit = 0; bit < 8; bit += at < 700 ? 1 : 3) {
            bytes[at] ^= (char)(1 << bit);
            cb_safetensors *open = safetensors_parse("flipped", bytes, size);
            bytes[at] ^= (char)(1 << bit);
            bool inside = at >= 8 && at < metadata; /* metadata of others, which is not compared */
            assert_true(!open || inside);
            if (open) assert_int_equal(cb_safetensors_count(open), 3);
            cb_safetensors_close(open);
            cb_clear_error();
        }
    bytes[size - 1] ^= 1;
    assert_null(safetensors_parse("flipped", bytes, size));
    expect_error("safetensors: flipped: the checksum is that of other bytes: the file is damaged");
    bytes[metadata - 5] = 'X'; /* one of the digits */
    cb_safetensors *other = safetensors_parse("other", bytes, size);
    assert_null(other);
    cb_clear_error();
    memcpy(strstr(bytes + 8, ", \""), " ,\"", 3); /* as another program writes it */
    other = safetensors_parse("other", bytes, size);
    assert_non_null(other);
    cb_safetensors_close(other);
}

static void every_dtype_returns(void **state) {
    (void)state;
    cb_tensor *tensors[CB_DTYPE_COUNT + 3];
    char text[CB_DTYPE_COUNT + 3][8];
    const char *names[CB_DTYPE_COUNT + 3];
    cb_tensor *x = cb_mul(cb_randn(cb_dims(3, 5)), 3.0);
    int count = CB_DTYPE_COUNT;
    for (cb_dtype d = 0; d < CB_DTYPE_COUNT; d++) tensors[d] = cb_to(x, d);
    tensors[count++] = cb_transpose(x, 0, 1);
    tensors[count++] = cb_zeros(cb_dims(4, 0, 2));
    tensors[count++] = cb_sum(x);
    for (int i = 0; i < count; i++) {
        snprintf(text[i], sizeof text[i], "t.%d", i);
        names[i] = text[i];
    }
    const char *path = in_folder("all.safetensors");
    assert_int_equal(cb_safetensors_save(path, names, tensors, count), CB_OK);
    cb_safetensors *file = cb_safetensors_open(path);
    assert_non_null(file);
    assert_int_equal(cb_safetensors_count(file), count);
    assert_string_equal(cb_safetensors_metadata(file, "format"), "pt");
    assert_null(cb_safetensors_metadata(file, "author"));
    for (int i = 0; i < count; i++) {
        cb_tensor *y = cb_safetensors_get(file, names[i]);
        assert_non_null(y);
        assert_int_equal(cb_dtype_of(y), cb_dtype_of(tensors[i]));
        assert_int_equal(cb_rank(y), cb_rank(tensors[i]));
        for (int d = 0; d < cb_rank(y); d++)
            assert_int_equal(cb_size(y, d), cb_size(tensors[i], d));
        double a[15], b[15];
        assert_int_equal(cb_read(y, a, CB_F64), CB_OK);
        assert_int_equal(cb_read(tensors[i], b, CB_F64), CB_OK);
        assert_memory_equal(a, b, sizeof *a * (size_t)cb_numel(y));
    }
    assert_null(cb_safetensors_get(file, "t.99"));
    expect_error("there is no tensor 't.99'");
    cb_safetensors_close(file);
}

#define EMPTY(name, at)                                                                            \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[" at "," at "]}"

static void unusual_files_load(void **state) {
    (void)state;
    expect_count("{}", 0, 0);
    expect_count("{}   ", 0, 0);
    expect_count("{ \"a\" : {\"shape\":[],\"data_offsets\":[0,8],\"dtype\":\"I64\"} }", 8, 1);
    expect_count("{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]},"
                 "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[3,3]},"
                 "\"a\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
                 4, 3);
    expect_count("{" EMPTY("b", "4") "," EMPTY("d", "0") "," EMPTY("a", "4") "," EMPTY(
                     "c", "0") ",\"e\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                 4, 5);
    /* Data at odd addresses, and a bool that is neither 0 nor 1. */
    char bytes[256];
    size_t size = make(bytes,
                       "{\"b\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]},"
                       "\"f\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}",
                       9);
    float two[] = {1.5f, -2};
    memcpy(bytes + size - 8, two, 8);
    bytes[size - 9] = 7;
    cb_safetensors *file = safetensors_parse("made", bytes, size);
    assert_non_null(file);
    assert_true(cb_item(cb_select(cb_safetensors_get(file, "f"), 0, 1)) == -2);
    assert_true(cb_item(cb_safetensors_get(file, "b")) == 1);
    cb_safetensors_close(file);
}

/* ---- bad files ------------------------------------------------------------------------------- */

#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void liars_are_refused(void **state) {
    (void)state;
    expect_refused("", 0, "does not start with '{'");
    expect_refused("[1]", 0, "does not start with '{'");
    expect_refused("{\"a\":", 0, "not JSON, from byte 5 on: a value is missing");
    expect_refused("{}{}", 0, "goes on after its object");
    expect_refused("{,}", 0, "not JSON, from byte 1 on: no '\"'");
    expect_refused("{\"a\":1 2}", 0, "not JSON, from byte 7 on");
    expect_refused("{\"a\" {}}", 0, "not JSON, from byte 5 on: no ':'");
    expect_refused("{\"a", 0, "from byte 1 on: it ends within a text");
    expect_refused("{" TENSOR("a", "U8", "[1]", "[0,1]") ",}", 1, "not JSON");
    expect_refused("{" TENSOR("a", "U8", "[1]", "[0,1]") TENSOR("b", "U8", "[1]", "[1,2]") "}", 2,
                   "not JSON");
    expect_refused("{" TENSOR("a", "U8", "[1 1]", "[0,1]") "}", 1, "not JSON");
    expect_refused("{" TENSOR("a", "U8", "[1}", "[0,1]") "}", 1, "not JSON");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[0,2]") "}", 1, "ends at byte 2 of 1");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[0,2]") "}", 3, "1 bytes after the last tensor");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[1,3]") "}", 3, "a hole before it");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "U8", "[2]", "[1,3]") "}",
                   3, "'b' overlaps");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[0,2]") "," TENSOR("b", "U8", "[1]", "[3,4]") "}",
                   4, "'b' leaves a hole");
    expect_refused("{" TENSOR("a", "F32", "[2]", "[0,7]") "}", 7,
                   "7 bytes of data for a shape of 8");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[2,0]") "}", 2, "end before they begin");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[0]") "}", 2, "not a pair");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[0,2,3]") "}", 2, "not a pair");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[-1,1]") "}", 2, "not a pair");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[]") "}", 2, "not a pair");
    expect_refused("{" TENSOR("a", "U8", "[2]", "2") "}", 2, "not a pair");
    expect_refused("{\"a\":{\"dtype\":1}}", 2, "dtype is not a text");
    expect_refused("{\"a\":{\"dtype\":[\"U8\"]}}", 2, "dtype is not a text");
    expect_refused("{" TENSOR("a", "U8", "[2]", "[0,1e300]") "}", 2, "not a pair");
    expect_refused("{" TENSOR("a", "U8", "[1.5]", "[0,2]") "}", 2, "a bad size");
    expect_refused("{" TENSOR("a", "U8", "[2.0]", "[0,2]") "}", 2, "a bad size");
    expect_refused("{" TENSOR("a", "U8", "[-2]", "[0,2]") "}", 2, "a bad size");
    expect_refused("{" TENSOR("a", "U8", "[9223372036854775808]", "[0,2]") "}", 2, "a bad size");
    expect_refused("{" TENSOR("a", "U8", "[18446744073709551618]", "[0,2]") "}", 2, "a bad size");
    /* Sizes above 2^53, where doubles have gaps: each is the number that was written. */
    expect_refused("{" TENSOR("a", "U8", "[9007199254740993]", "[0,9007199254740993]") "}", 2,
                   "'a' ends at byte 9007199254740993 of 2 bytes");
    expect_refused("{" TENSOR("a", "U8", "[9223372036854775807]", "[0,2]") "}", 2,
                   "2 bytes of data for a shape of 9223372036854775807 bytes");
    expect_refused("{" TENSOR("a", "U8", "[true]", "[0,2]") "}", 2, "a bad size");
    expect_refused("{" TENSOR("a", "U8", "3", "[0,2]") "}", 2, "shape is not a list");
    expect_refused("{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "8 dimensions");
    expect_refused("{" TENSOR("a", "F64", "[9007199254740992,9007199254740992]", "[0,0]") "}", 0,
                   "too large");
    expect_refused("{" TENSOR("a", "F8_E4M3", "[2]", "[0,2]") "}", 2, "'F8_E4M3' is not supported");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, "has no data_offsets");
    expect_refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 2, "repeated key 'dtype'");
    expect_refused("{\"a\":{\"stride\":[1]}}", 2, "unexpected key 'stride'");
    expect_refused("{\"a\":[]}", 0, "'a' is not an object");
    expect_refused("{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}",
                   2, "repeated key 'a'");
    expect_refused("{\"__metadata__\":{\"a\":1}}", 0, "'a' is not a text");
    expect_refused("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "repeated key 'a'");
    expect_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "repeated key '__metadata__'");
}

static void bad_text_is_refused(void **state) {
    (void)state;
    expect_refused("{" TENSOR("\xff", "U8", "[1]", "[0,1]") "}", 1, "byte 2 on: invalid UTF-8");
    expect_refused("{" TENSOR("\xc0\x80", "U8", "[1]", "[0,1]") "}", 1, "invalid UTF-8");
    expect_refused("{" TENSOR("\xed\xa0\x80", "U8", "[1]", "[0,1]") "}", 1, "invalid UTF-8");
    expect_refused("{" TENSOR("\xf4\x90\x80\x80", "U8", "[1]", "[0,1]") "}", 1, "invalid UTF-8");
    expect_refused("{" TENSOR("\xe2\x82", "U8", "[1]", "[0,1]") "}", 1, "invalid UTF-8");
    expect_refused("{" TENSOR("a\\u0000b", "U8", "[1]", "[0,1]") "}", 1, "a NUL at byte 3");
    expect_refused("{" TENSOR("a", "U8\\u0000", "[1]", "[0,1]") "}", 1, "a NUL at byte 17");
    expect_refused("{" TENSOR("a\001b", "U8", "[1]", "[0,1]") "}", 1,
                   "byte 3 on: unexpected control character");
    expect_refused("{\001}", 0, "from byte 1 on: no '\"'");
    expect_refused("{" TENSOR("\\ud800", "U8", "[1]", "[0,1]") "}", 1, "not JSON");
    expect_count("{" TENSOR("a\\\\u0000", "U8", "[1]", "[0,1]") "}", 1, 1);
    expect_count("{" TENSOR("\xf0\x9f\x94\xa5\xe2\x82\xac", "U8", "[1]", "[0,1]") "}", 1, 1);
    static char deep[16384];
    size_t at = (size_t)sprintf(deep, "{\"a\":");
    memset(deep + at, '[', 4000);
    expect_refused(deep, 0, "not JSON");
    memset(deep + at, '[', 8000);
    expect_refused(deep, 0, "a has a description of");
}

static void broken_files_are_refused(void **state) {
    (void)state;
    assert_null(cb_safetensors_open(in_folder("none")));
    expect_error("No such file");
    assert_null(cb_safetensors_open(folder));
    expect_error("not a regular file");
    write_file(in_folder("empty"), "", 0);
    assert_null(cb_safetensors_open(in_folder("empty")));
    expect_error("truncated");
    write_file(in_folder("short"), "abc", 3);
    assert_null(cb_safetensors_open(in_folder("short")));
    expect_error("truncated");
    write_file(in_folder("long"), "\x00\x01\x00\x00\x00\x00\x00\x00{}", 10);
    assert_null(cb_safetensors_open(in_folder("long")));
    expect_error("with a header of 256");
    write_file(in_folder("noise"), "\x93\x1a\x77\x40\x5c\xe1\x09\x88 and so on", 18);
    assert_null(cb_safetensors_open(in_folder("noise")));
    expect_error("no safetensors file");
    write_file(in_folder("large"), "\xe0\x90\xf5\x05\x00\x00\x00\x00{\"a\"", 12);
    assert_int_equal(truncate(in_folder("large"), 100 << 20), 0); /* zeros follow, on no disk */
    assert_null(cb_safetensors_open(in_folder("large")));
    expect_error("not JSON, from byte 4 on: no ':'");
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_null(cb_safetensors_open(in_folder("pipe")));
    expect_error("not a regular file");
    /* Address space for a page more, not for the file. */
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = (struct rlimit){1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    cb_safetensors *file = cb_safetensors_open(in_folder("large"));
    setrlimit(RLIMIT_AS, &before);
    assert_null(file);
    expect_error("Cannot allocate memory");
    const char *twice[] = {"a", "a"};
    cb_tensor *x[] = {cb_ones(cb_dims(1)), cb_ones(cb_dims(2))};
    assert_int_equal(cb_safetensors_save(in_folder("x"), twice, x, 2), CB_ERR_ARGUMENT);
    expect_error("repeated name 'a'");
    const char *bad[] = {"\xff"};
    assert_int_equal(cb_safetensors_save(in_folder("x"), bad, x, 1), CB_ERR_ARGUMENT);
    expect_error("not a name");
    assert_int_equal(cb_safetensors_save("/nonexistent/x", twice, x, 1), CB_ERR_IO);
    expect_error("No such file");
}

/* A disk that is full, as the process's limit of a file's size has it. */
static void full_disks_leave_the_old_file(void **state) {
    (void)state;
    const char *names[] = {"a"}, *path = in_folder("full.safetensors");
    cb_tensor *small = cb_ones(cb_dims(3)), *large = cb_ones(cb_dims(1 << 16));
    assert_int_equal(cb_safetensors_save(path, names, &small, 1), CB_OK);
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){10000, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cb_status status = cb_safetensors_save(path, names, &large, 1);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, CB_ERR_IO);
    expect_error("File too large");
    cb_safetensors *file = cb_safetensors_open(path);
    assert_non_null(file);
    /* A file that is open stays what it was when another takes its place. */
    assert_int_equal(cb_safetensors_save(path, names, &large, 1), CB_OK);
    assert_int_equal(cb_numel(cb_safetensors_get(file, "a")), 3);
    cb_safetensors_close(file);
    assert_int_equal(cb_safetensors_save("/dev/null", names, &large, 1), CB_OK);
    struct stat device;
    assert_true(stat("/dev/null", &device) == 0 && S_ISCHR(device.st_mode));
    assert_int_equal(cb_safetensors_save("/dev/full", names, &large, 1), CB_ERR_IO);
    expect_error("No space left on device");
    assert_int_equal(cb_safetensors_save(folder, names, &small, 1), CB_ERR_IO);
    expect_error("directory");
}

/* ---- state dicts ----------------------------------------------------------------------------- */

static cb_module *net_new(int64_t width) {
    return cb_nn_sequential(cb_nn_linear(4, width, true), cb_nn_relu(),
                            cb_nn_layer_norm(cb_dims(8), 1e-5));
}

static void state_dicts_return(void **state) {
    (void)state;
    cb_module *a = net_new(8), *b = net_new(8);
    const char *path = in_folder("net.safetensors");
    assert_int_equal(cb_module_save_state(a, path), CB_OK);
    cb_tensor *x = cb_randn(cb_dims(2, 4));
    assert_true(cb_item(cb_max(cb_abs(cb_sub(cb_forward(a, x), cb_forward(b, x))))) > 0);
    assert_int_equal(cb_module_load_state(b, path, true), CB_OK);
    assert_true(cb_item(cb_max(cb_abs(cb_sub(cb_forward(a, x), cb_forward(b, x))))) == 0);
    assert_int_equal(cb_module_to(b, CB_BF16), CB_OK);
    assert_int_equal(cb_module_load_state(b, path, true), CB_OK);
    assert_int_equal(cb_dtype_of(cb_module_get(b, "0.weight")), CB_BF16);
    cb_tensor *rounded = cb_to(cb_module_get(a, "0.weight"), CB_BF16);
    assert_true(cb_item(cb_max(cb_abs(cb_sub(rounded, cb_module_get(b, "0.weight"))))) == 0);
    cb_module_parameter(b, "bias", cb_ones(cb_dims(1)));
    assert_int_equal(cb_module_load_state(b, path, false), CB_OK);
    cb_module_free(a);
    cb_module_free(b);
}

static void differences_are_reported(void **state) {
    (void)state;
    cb_module *net = net_new(8);
    cb_tensor *before = cb_clone(cb_module_get(net, "2.weight"));
    const char *names[] = {"0.weight", "2.weight", "3.weight"};
    cb_tensor *tensors[] = {cb_ones(cb_dims(8, 5)), cb_zeros(cb_dims(8)), cb_ones(cb_dims(2))};
    const char *path = in_folder("other.safetensors");
    assert_int_equal(cb_safetensors_save(path, names, tensors, 3), CB_OK);
    assert_int_equal(cb_module_load_state(net, path, true), CB_ERR_ARGUMENT);
    expect_error("Error(s) in loading state_dict for Sequential:\n"
                 "\tMissing key(s) in state_dict: \"0.bias\", \"2.bias\".\n"
                 "\tUnexpected key(s) in state_dict: \"3.weight\".\n"
                 "\tsize mismatch for 0.weight: copying a param with shape torch.Size([8, 5]) from "
                 "checkpoint, the shape in current model is torch.Size([8, 4]).");
    assert_int_equal(cb_module_load_state(net, path, false), CB_ERR_ARGUMENT);
    expect_error("Sequential:\n\tsize mismatch for 0.weight");
    char *keys;
    tensors[0] = cb_ones(cb_dims(8, 4));
    assert_int_equal(cb_safetensors_save(in_folder("some"), names, tensors, 3), CB_OK);
    assert_int_equal(cb_module_load_state_keys(net, in_folder("some"), false, &keys), CB_OK);
    assert_string_equal(keys, "_IncompatibleKeys(missing_keys=['0.bias', '2.bias'], "
                              "unexpected_keys=['3.weight'])");
    cb_free_text(keys);
    assert_int_equal(cb_module_save_state(net, in_folder("all")), CB_OK);
    assert_int_equal(cb_module_load_state_keys(net, in_folder("all"), true, &keys), CB_OK);
    assert_string_equal(keys, "<All keys matched successfully>");
    cb_free_text(keys);
    assert_int_equal(cb_module_load_state_keys(net, in_folder("none"), true, &keys), CB_ERR_IO);
    assert_null(keys);
    cb_clear_error();
    before = cb_clone(cb_module_get(net, "2.weight"));
    cb_tensor *change = cb_max(cb_abs(cb_sub(before, cb_module_get(net, "2.weight"))));
    assert_true(cb_item(change) == 0); /* nothing half-loaded */
    write_file(in_folder("noise"), "no weights in here", 18);
    assert_int_equal(cb_module_load_state(net, in_folder("noise"), true), CB_ERR_IO);
    expect_error("no safetensors file");
    cb_module_free(net);
}

static void tied_weights_are_saved_once(void **state) {
    (void)state;
    cb_module *net = cb_nn_sequential(cb_nn_embedding(5, 4), cb_nn_linear(4, 5, false));
    cb_module_share(cb_module_child(net, "1"), "weight", cb_module_get(net, "0.weight"));
    const char *path = in_folder("tied.safetensors");
    assert_int_equal(cb_module_save_state(net, path), CB_OK);
    cb_safetensors *file = cb_safetensors_open(path);
    assert_int_equal(cb_safetensors_count(file), 1);
    assert_string_equal(cb_safetensors_name(file, 0), "0.weight");
    cb_tensor *saved = cb_safetensors_get(file, "0.weight");
    cb_safetensors_close(file);
    cb_fill_(cb_module_get(net, "0.weight"), 0);
    assert_int_equal(cb_module_load_state(net, path, true), CB_OK);
    assert_true(cb_item(cb_max(cb_abs(cb_sub(saved, cb_module_get(net, "1.weight"))))) == 0);
    cb_module_free(net);
}

/* Weights that the compiler baked into its code are not used after others were loaded. */
static void compiled_modules_see_new_weights(void **state) {
    (void)state;
    cb_module *a = cb_nn_batch_norm1d(4, 1e-5, 0.1), *b = cb_nn_batch_norm1d(4, 1e-5, 0.1);
    cb_tensor *x = cb_mul(cb_randn(cb_dims(5, 4)), 3.0);
    assert_non_null(cb_forward(a, x)); /* a's variance is no longer b's */
    cb_module_train(a, false);
    cb_module_train(b, false);
    const char *path = in_folder("new.safetensors");
    assert_int_equal(cb_module_save_state(a, path), CB_OK);
    cb_function *compiled = cb_compile(b, "backend=vm");
    assert_non_null(cb_call(compiled, x));
    assert_non_null(cb_call(compiled, x));
    assert_int_equal(cb_module_load_state(b, path, true), CB_OK);
    cb_tensor *difference = cb_sub(cb_call(compiled, x), cb_forward(a, x));
    assert_true(cb_item(cb_max(cb_abs(difference))) < 1e-5);
    cb_function_free(compiled);
    cb_module_free(a);
    cb_module_free(b);
}

static void strided_parameters_load(void **state) {
    (void)state;
    cb_module *net = cb_module_new("Net", NULL, NULL);
    cb_tensor *x = cb_randn(cb_dims(3, 4));
    cb_module_parameter(net, "w", cb_transpose(cb_clone(x), 0, 1));
    const char *path = in_folder("strided.safetensors");
    assert_int_equal(cb_module_save_state(net, path), CB_OK);
    cb_fill_(cb_module_get(net, "w"), 0);
    assert_int_equal(cb_module_load_state(net, path, true), CB_OK);
    cb_tensor *back = cb_transpose(cb_module_get(net, "w"), 0, 1);
    assert_true(cb_item(cb_max(cb_abs(cb_sub(back, x)))) == 0);
    cb_module_free(net);
}

/* ---- random damage --------------------------------------------------------------------------- */

static uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Whatever the bytes are: an error, or tensors that can be read to their ends. */
static void damage_is_survived(void **state) {
    (void)state;
    const char *seed = "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR(
        "a.weight", "F32", "[2,3]", "[0,24]") "," TENSOR("b", "BF16", "[4]", "[24,32]") "}";
    const char soup[] = "{}[]\",:0123456789.eE+-\\u dataFI_";
    uint64_t random = 88172645463325252u;
    char good[512], *bytes = malloc(512);
    size_t whole = make(good, seed, 32);
    int loaded = 0, refused = 0;
    for (int round = 0; round < 40000; round++) {
        size_t size = whole;
        memcpy(bytes, good, size);
        for (int n = (int)(random_next(&random) % 4); n >= 0; n--) {
            uint64_t r = random_next(&random);
            size_t at = r % 11 ? 8 + (r >> 8) % (size - 8) : (r >> 8) % size;
            bytes[at] = r % 3 ? soup[(r >> 32) % (sizeof soup - 1)] : (char)(r >> 40);
        }
        if (random % 7 == 0) size = random_next(&random) % size;
        char *exact = malloc(size + !size); /* a read past the end is seen by sanitizers */
        memcpy(exact, bytes, size);
        cb_safetensors *file = safetensors_parse("made", exact, size);
        file ? loaded++ : refused++;
        assert_true(file ? !cb_error() : !!cb_error());
        cb_scope_open();
        for (int i = 0; i < cb_safetensors_count(file); i++)
            assert_non_null(cb_safetensors_get(file, cb_safetensors_name(file, i)));
        cb_scope_close();
        cb_safetensors_close(file);
        cb_clear_error();
        free(exact);
    }
    free(bytes);
    assert_true(loaded > 1000 && refused > 10000);
}

/* ---- a file that is closed ------------------------------------------------------------------ */

static void expect_closed(const char *call) {
    char text[64];
    snprintf(text, sizeof text, "%s: the file was freed at ", call);
    if (!cb_error() || !strstr(cb_error(), text)) FAIL("%s: %s", call, cb_error());
    cb_clear_error();
}

static void a_closed_file_is_an_error(void **state) {
    (void)state;
    cb_module *net = net_new(2);
    const char *path = in_folder("closed.safetensors");
    assert_int_equal(cb_module_save_state(net, path), CB_OK);
    cb_safetensors *file = cb_safetensors_open(path);
    assert_true(cb_safetensors_count(file) > 0);
    cb_safetensors_close(file);
    assert_null(cb_error());
    cb_safetensors_close(file);
    expect_closed("safetensors_close");
    assert_int_equal(cb_safetensors_count(file), 0);
    expect_closed("safetensors_count");
    assert_null(cb_safetensors_name(file, 0));
    expect_closed("safetensors_name");
    assert_null(cb_safetensors_metadata(file, "format"));
    expect_closed("safetensors_metadata");
    assert_null(cb_safetensors_get(file, "weight"));
    expect_closed("safetensors_get");
    cb_module_free(net);
}

/* ---- allocations that fail ------------------------------------------------------------------- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    cb_module *net = net_new(8);
    const char *path = in_folder("fail.safetensors");
    bool done = false;
    for (int limit = 0; limit < 400 && !done; limit++) {
        allocations_left = limit;
        done = cb_module_save_state(net, path) == CB_OK &&
               cb_module_load_state(net, path, true) == CB_OK;
        allocations_left = -1;
        cb_clear_error();
    }
    assert_true(done);
    cb_module_free(net);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, open_scope, close_scope)

static int no_partial_files(void **state) {
    (void)state;
    DIR *listing = opendir(folder);
    int partial = 0;
    for (struct dirent *e; (e = readdir(listing));) {
        if (strstr(e->d_name, ".part")) partial++;
        unlink(in_folder(e->d_name));
    }
    closedir(listing);
    rmdir(folder);
    return partial;
}

int main(void) {
    cb_set_allocator((cb_allocator){failing_resize, NULL});
    strcpy(folder, "/tmp/carbide-safetensors-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        ONE(bytes_are_the_formats),
        ONE(a_flipped_bit_is_noticed),
        ONE(every_dtype_returns),
        ONE(a_closed_file_is_an_error),
        ONE(unusual_files_load),
        ONE(liars_are_refused),
        ONE(bad_text_is_refused),
        ONE(broken_files_are_refused),
        ONE(full_disks_leave_the_old_file),
        ONE(state_dicts_return),
        ONE(differences_are_reported),
        ONE(tied_weights_are_saved_once),
        ONE(strided_parameters_load),
        ONE(compiled_modules_see_new_weights),
        ONE(damage_is_survived),
        ONE(every_allocation_may_fail),
    };
    int failed = cmocka_run_group_tests(tests, NULL, no_partial_files);
    cb_cleanup();
    return failed;
}
