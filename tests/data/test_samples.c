/* Arrays of other programs, and batches of pictures: crops, turns, order, threads, damaged
 * files. */
#include "fixture.h"

#include "carbide_data.h"
#include "files_of_tests.h"
#include <math.h>
#include <signal.h>
#include <stb_image_write.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

/* ---- IDX and CSV ---------------------------------------------------------------------------- */

static void test_idx(void **state) {
    (void)state;
    static const uint8_t bytes[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255};
    cb_tensor *x = cb_idx_load(written("u8", bytes, sizeof bytes));
    int64_t value[6];
    assert_true(cb_dtype_of(x) == CB_U8 && cb_size(x, 0) == 2 && cb_size(x, 1) == 3);
    cb_read(x, value, CB_I64);
    assert_true(value[0] == 1 && value[3] == 4 && value[5] == 255);
    static const uint8_t shorts[] = {0, 0, 11, 1, 0, 0, 0, 2, 0xff, 0xfe, 1, 2};
    cb_read(cb_idx_load(written("i16", shorts, sizeof shorts)), value, CB_I64);
    assert_true(value[0] == -2 && value[1] == 258);
    static const uint8_t floats[] = {0, 0, 13, 1, 0, 0, 0, 1, 0x3f, 0xc0, 0, 0};
    assert_true(cb_item(cb_idx_load(written("f32", floats, sizeof floats))) == 1.5);
    static const uint8_t none[] = {0, 0, 8, 1, 0, 0, 0, 0};
    assert_int_equal(cb_numel(cb_idx_load(written("none", none, sizeof none))), 0);

    REFUSED(cb_idx_load(written("cut", bytes, sizeof bytes - 1)),
            "5 bytes of elements, where the sizes say 6");
    REFUSED(cb_idx_load(written("cut", bytes, 11)), "2 dimensions in 11 bytes");
    REFUSED(cb_idx_load(written("cut", bytes, 3)), "not an IDX file");
    REFUSED(cb_idx_load(written("gz", "\x1f\x8b\x08\x00", 4)), "gunzip it");
    REFUSED(cb_idx_load(written("type", "\0\0\7\1\0\0\0\0", 8)), "elements of type 0x07");
    uint8_t huge[4 + 4 * 5] = {0, 0, 14, 5};
    memset(huge + 4, 0xff, sizeof huge - 4);
    REFUSED(cb_idx_load(written("huge", huge, sizeof huge)), "the sizes say more than");
    REFUSED(cb_idx_load(file("missing")), "No such file");
}

static cb_tensor *csv(const char *text, char separator, int64_t skip) {
    return cb_csv_load(written("csv", text, strlen(text)), separator, skip);
}

static void test_csv(void **state) {
    (void)state;
    cb_tensor *x = csv("a,b,c\r\n1, 2.5 ,-3e2\r\n\n4,5,6", ',', 1);
    double value[6];
    assert_true(cb_size(x, 0) == 2 && cb_size(x, 1) == 3);
    cb_read(x, value, CB_F64);
    assert_true(value[0] == 1 && value[1] == 2.5 && value[2] == -300 && value[5] == 6);
    cb_read(csv("1\t2\n", '\t', 0), value, CB_F64);
    assert_true(value[1] == 2);
    REFUSED(csv("1,2\n3,x4\n", ',', 0), "csv:2: value 2, 'x4', is not a number");
    REFUSED(csv("1,2\n\n3,4x\n", ',', 0), "csv:3: value 2, '4x', is not a number");
    REFUSED(csv("1,2\n3,\n", ',', 0), "csv:2: value 2, '', is not a number");
    REFUSED(csv("1,2\n3\n", ',', 0), "csv:2: 1 values, where the lines before have 2");
    REFUSED(csv("1,2\n3,4,5\n", ',', 0), "csv:2: 3 values, where");
    REFUSED(csv("head\n", ',', 1), "there are no rows");
    REFUSED(csv("", ',', 0), "there are no rows");
}

/* ---- batches -------------------------------------------------------------------------------- */

enum { COUNT = 12, CHANNELS = 2, SIDE = 4 };

/* Picture i has pixels that tell i, and their own place and channel. */
static int pixel_of(int i, int c, int y, int x) { return 20 * i + 16 * c % 17 + 4 * y + x + 1; }

static cb_samples *counted(void) {
    static uint8_t pixel[COUNT][CHANNELS][SIDE][SIDE];
    int64_t label[COUNT];
    for (int i = 0; i < COUNT; i++) {
        label[i] = i;
        for (int k = 0; k < CHANNELS * SIDE * SIDE; k++)
            pixel[i][k / 16][k / 4 % 4][k % 4] = (uint8_t)pixel_of(i, k / 16, k / 4 % 4, k % 4);
    }
    return cb_samples_tensors(cb_from_data(pixel, CB_U8, cb_dims(COUNT, CHANNELS, SIDE, SIDE)),
                              cb_from_data(label, CB_I64, cb_dims(COUNT)));
}

/* Read back, each pixel as the number that it was; the label of each. */
static void batch_of(cb_sample_reader *reader, int batch, int all, float *pixel, int64_t *label) {
    cb_tensor *x, *y;
    assert_int_equal(cb_sample_reader_next(reader, &x, &y), CB_OK);
    assert_int_equal(cb_numel(x), all);
    assert_int_equal(cb_numel(y), batch);
    cb_read(x, pixel, CB_F32), cb_read(y, label, CB_I64);
    cb_free(x), cb_free(y);
}

static void test_in_order_in_the_middle(void **state) {
    (void)state;
    cb_samples *samples = counted();
    assert_true(cb_samples_count(samples) == COUNT && cb_samples_classes(samples) == COUNT);
    cb_sample_options options = {
        .batch = 4, .height = 2, .width = 2, .flip = true, .mean = {0.5}, .deviation = {2}};
    cb_sample_reader *reader = cb_sample_reader_new(samples, &options);
    float pixel[4 * CHANNELS * 4];
    int64_t label[4];
    for (int n = 0; n < 4; n++) {
        batch_of(reader, 4, 4 * CHANNELS * 4, pixel, label);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(label[i], (4 * n + i) % COUNT);
            for (int k = 0; k < CHANNELS * 4; k++) {
                float whole = (float)pixel_of((int)label[i], k / 4, 1 + k / 2 % 2, 1 + k % 2) / 255;
                assert_true(pixel[i * CHANNELS * 4 + k] == (k < 4 ? (whole - 0.5f) / 2 : whole));
            }
        }
    }
    cb_sample_reader_free(reader);
    cb_samples_free(samples);
}

/* Which window of which picture this is, turned or not: top, left 0 .. 4 with a border of 1. */
static bool is_window(const float *pixel, int i, int top, int left, bool flip) {
    for (int k = 0; k < CHANNELS * 4; k++) {
        int y = top - 1 + k / 2 % 2, x = left - 1 + (flip ? 1 - k % 2 : k % 2);
        bool inside = y >= 0 && y < SIDE && x >= 0 && x < SIDE;
        float whole = inside ? (float)pixel_of(i, k / 4, y, x) / 255 : 0;
        if (pixel[k] != whole) return false;
    }
    return true;
}

/* Each epoch has every picture once, in another order; all windows come up, turned and not. */
static void test_random_windows(void **state) {
    (void)state;
    cb_samples *samples = counted();
    cb_sample_options options = {
        .batch = 3, .height = 2, .width = 2, .pad = 1, .random = true, .flip = true, .seed = 5};
    cb_sample_reader *reader = cb_sample_reader_new(samples, &options);
    int seen[2][5][5] = {0}, same = 0, first[COUNT];
    for (int epoch = 0; epoch < 100; epoch++) {
        bool there[COUNT] = {0};
        for (int n = 0; n < 4; n++) {
            float pixel[3 * CHANNELS * 4];
            int64_t label[3];
            batch_of(reader, 3, 3 * CHANNELS * 4, pixel, label);
            for (int i = 0; i < 3; i++) {
                assert_false(there[label[i]]);
                there[label[i]] = true;
                if (epoch == 0) first[3 * n + i] = (int)label[i];
                same += epoch && first[3 * n + i] == (int)label[i];
                bool found = false;
                for (int w = 0; w < 50 && !found; w++) {
                    found = is_window(pixel + i * CHANNELS * 4, (int)label[i], w / 10, w / 2 % 5,
                                      w % 2);
                    seen[w % 2][w / 10][w / 2 % 5] += found;
                }
                assert_true(found);
            }
        }
    }
    for (int w = 0; w < 50; w++)
        assert_in_range(seen[w % 2][w / 10][w / 2 % 5], 5, 60); /* of 1200: 24 */
    assert_in_range(same, 40, 200); /* of 1188 in orders without relation: 99 */
    cb_sample_reader_free(reader);
    cb_samples_free(samples);
}

/* The same batches for any number of threads, from any position, after a jump, too. */
static void test_threads_change_nothing(void **state) {
    (void)state;
    cb_samples *samples = counted();
    enum { ALL = 5 * CHANNELS * 9, BATCHES = 60 };
    static float expected[BATCHES][ALL], pixel[ALL];
    static int64_t labels[BATCHES][5], label[5];
    for (int threads = 0; threads <= 4; threads++) {
        cb_sample_options options = {.batch = 5,
                                     .height = 3,
                                     .width = 3,
                                     .pad = 2,
                                     .random = true,
                                     .flip = true,
                                     .threads = threads,
                                     .seed = 9};
        cb_sample_reader *reader = cb_sample_reader_new(samples, &options);
        for (int n = 0; n < BATCHES; n++) {
            if (n == 20 && !threads)
                assert_int_equal(cb_training_save(file("at20"), NULL, NULL, NULL,
                                                  cb_sample_reader_state(reader)),
                                 CB_OK);
            batch_of(reader, 5, ALL, threads ? pixel : expected[n], threads ? label : labels[n]);
            if (!threads) continue;
            assert_memory_equal(pixel, expected[n], sizeof pixel);
            assert_memory_equal(label, labels[n], sizeof label);
        }
        options.seed = 1; /* until the state is loaded */
        cb_sample_reader *again = cb_sample_reader_new(samples, &options);
        batch_of(again, 5, ALL, pixel, label);
        for (int turn = 0; turn < 2; turn++) {
            assert_int_equal(
                cb_training_load(file("at20"), NULL, NULL, NULL, cb_sample_reader_state(again)),
                CB_OK);
            for (int n = 20; n < 24; n++) {
                batch_of(again, 5, ALL, pixel, label);
                assert_memory_equal(pixel, expected[n], sizeof pixel);
            }
        }
        cb_sample_reader_free(again);
        again = cb_sample_reader_new(samples, &options); /* another seed at the same position */
        for (int n = 0; n < 20; n++) batch_of(again, 5, ALL, pixel, label);
        assert_int_equal(
            cb_training_load(file("at20"), NULL, NULL, NULL, cb_sample_reader_state(again)), CB_OK);
        batch_of(again, 5, ALL, pixel, label);
        assert_memory_equal(pixel, expected[20], sizeof pixel);
        cb_sample_reader_free(again);
        cb_sample_reader_free(reader);
    }
    cb_samples_free(samples);
}

/* A damaged file may say any position. */
static void test_positions_that_are_refused(void **state) {
    (void)state;
    static const int64_t position[] = {INT64_MAX, INT64_MAX - 2, -1, INT64_MIN, (int64_t)1 << 60};
    cb_samples *samples = counted();
    cb_sample_options options = {.batch = 2, .height = 2, .width = 2};
    for (options.threads = 0; options.threads < 3; options.threads++) {
        cb_sample_reader *reader = cb_sample_reader_new(samples, &options);
        cb_tensor *x = NULL, *y = NULL, *words;
        words = cb_module_get(cb_sample_reader_state(reader), "position");
        for (size_t i = 0; i < sizeof position / sizeof *position; i++) {
            cb_assign(words, cb_from_data((int64_t[]){1, position[i]}, CB_I64, cb_dims(2)));
            REFUSES(cb_sample_reader_next(reader, &x, &y), CB_ERR_INDEX, "a reader's position is ");
        }
        assert_null(x);
        cb_assign(words, cb_from_data((int64_t[]){1, ((int64_t)1 << 60) - 1}, CB_I64, cb_dims(2)));
        assert_int_equal(cb_sample_reader_next(reader, &x, &y), CB_OK);
        cb_sample_reader_free(reader);
    }
    cb_samples_free(samples);
}

static void test_samples_that_are_refused(void **state) {
    (void)state;
    cb_tensor *label = cb_from_data((int64_t[]){0, -1}, CB_I64, cb_dims(2));
    cb_tensor *pictures = cb_zeros(cb_dims(2, 4, 4), CB_U8);
    REFUSED(cb_samples_tensors(pictures, label), "label -1 at position 1");
    REFUSED(cb_samples_tensors(cb_zeros(cb_dims(2, 4, 4), CB_F32), label), "pictures of f32");
    REFUSED(cb_samples_tensors(cb_zeros(cb_dims(3, 4, 4), CB_U8), label), "with as many labels");
    REFUSED(cb_samples_tensors(NULL, label), "samples_tensors: NULL");
    cb_samples *samples = counted();
    cb_sample_options options = {.batch = 0, .height = 2, .width = 2};
    REFUSED(cb_sample_reader_new(samples, &options), "batches of 0 windows of 2 x 2");
    options.batch = 2, options.threads = 65;
    REFUSED(cb_sample_reader_new(samples, &options), "65 threads");
    for (options.threads = 0; options.threads < 3; options.threads++) {
        options.height = 5;
        cb_sample_reader *reader = cb_sample_reader_new(samples, &options);
        cb_tensor *x = NULL, *y = NULL;
        for (int turn = 0; turn < 2; turn++) /* the position stays */
            REFUSES(cb_sample_reader_next(reader, &x, &y), CB_ERR_SHAPE,
                    "a picture of 4 x 4, for windows of 5 x 2");
        assert_null(x);
        cb_sample_reader_free(reader);
    }
    cb_samples_free(samples);
}

/* ---- folders -------------------------------------------------------------------------------- */

/* Gray 10 * value; a PNG keeps it as it is. */
static void put_picture(const char *name, int value, bool jpeg) {
    uint8_t pixel[8 * 8 * 3];
    memset(pixel, 10 * value, sizeof pixel);
    int written_fine = jpeg ? stbi_write_jpg(file(name), 8, 8, 3, pixel, 95)
                            : stbi_write_png(file(name), 8, 8, 3, pixel, 24);
    assert_true(written_fine);
}

static void test_folders_of_pictures(void **state) {
    (void)state;
    mkdir(file("set"), 0700), mkdir(file("set/b"), 0700), mkdir(file("set/a"), 0700);
    REFUSED(cb_samples_folder(file("set"), 3), "no folders with pictures");
    put_picture("set/b/2.png", 4, false), put_picture("set/b/1.PNG", 3, false);
    put_picture("set/a/1.jpg", 2, true);
    written("set/a/notes.txt", "x", 1), written("set/readme", "x", 1);
    cb_samples *samples = cb_samples_folder(file("set"), 3);
    assert_true(cb_samples_count(samples) == 3 && cb_samples_classes(samples) == 2);
    assert_string_equal(cb_samples_class(samples, 0), "a");
    assert_string_equal(cb_samples_class(samples, 1), "b");
    assert_null(cb_samples_class(samples, 2));
    cb_sample_options options = {.batch = 3, .height = 8, .width = 8, .threads = 1};
    cb_sample_reader *reader = cb_sample_reader_new(samples, &options);
    static float pixel[3 * 3 * 64];
    int64_t label[3];
    batch_of(reader, 3, 3 * 3 * 64, pixel, label);
    assert_true(label[0] == 0 && label[1] == 1 && label[2] == 1);
    for (int i = 0; i < 3 * 3 * 64; i++)
        assert_true(fabs(255 * (double)pixel[i] - 10 * (2 + i / 192)) <= (i < 192 ? 2 : 1e-4));
    cb_sample_reader_free(reader);

    /* Cut off within its data, where the decoder would fill up; damaged; gone. */
    char bytes[4096], *path = strdup(file("set/a/1.jpg"));
    FILE *in = fopen(path, "rb");
    size_t count = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    for (int way = 0; way < 4; way++) {
        const char *why[] = {"1.jpg: the picture is truncated", "1.jpg: not a picture",
                             "1.jpg: not a picture", "1.jpg: No such"};
        if (way == 3)
            unlink(path);
        else
            written("set/a/1.jpg", way == 1 ? "GIF89a" : bytes,
                    way == 0   ? count - 3
                    : way == 1 ? 6
                               : 0);
        options.threads = way; /* 0 to 3 */
        reader = cb_sample_reader_new(samples, &options);
        cb_tensor *x, *y;
        for (int again = 0; again < 2; again++)
            REFUSES(cb_sample_reader_next(reader, &x, &y), CB_ERR_IO, why[way]);
        written("set/a/1.jpg", bytes, count); /* mended */
        static float mended[3 * 3 * 64];
        int64_t again[3];
        batch_of(reader, 3, 3 * 3 * 64, mended, again);
        assert_memory_equal(mended, pixel, sizeof pixel);
        assert_memory_equal(again, label, sizeof label);
        cb_sample_reader_free(reader);
    }
    free(path);
    cb_samples_free(samples);
    REFUSED(cb_samples_folder(file("nowhere"), 3), "No such file");
    REFUSED(cb_samples_folder(file("set"), 2), "2 channels");
}

/* In a child the threads are gone, which is said, and freeing waits for none. Ctrl-C is the main
 * thread's. */
static void test_forks_and_signals(void **state) {
    (void)state;
    cb_samples *samples = counted();
    cb_sample_options options = {.batch = 2, .height = 4, .width = 4, .threads = 2};
    cb_sample_reader *reader = cb_sample_reader_new(samples, &options);
    cb_tensor *x, *y;
    assert_int_equal(cb_sample_reader_next(reader, &x, &y), CB_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        bool refused = cb_sample_reader_next(reader, &x, &y) == CB_ERR_ARGUMENT &&
                       strstr(cb_error(), "forked");
        cb_sample_reader_free(reader);
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cb_interrupt_catch();
    kill(getpid(), SIGINT);
    assert_true(cb_interrupted());
    signal(SIGTERM, SIG_DFL);
    assert_int_equal(cb_sample_reader_next(reader, &x, &y), CB_OK);
    cb_sample_reader_free(reader);
    cb_samples_free(samples);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_idx),
        TEST(test_csv),
        TEST(test_in_order_in_the_middle),
        TEST(test_random_windows),
        TEST(test_threads_change_nothing),
        TEST(test_positions_that_are_refused),
        TEST(test_samples_that_are_refused),
        TEST(test_folders_of_pictures),
        TEST(test_forks_and_signals),
    };
    return in_folder(tests, sizeof tests / sizeof *tests);
}
