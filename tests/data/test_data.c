/* Token files, batches and progress: what they give, and what they refuse. */
#include "fixture.h"

#include "carbide_data.h"
#include "files_of_tests.h"
#include <math.h>
#include <signal.h>

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, open_scope, close_scope_without_tensors)

static char *content(const char *name) {
    static char text[65536];
    FILE *in = fopen(file(name), "rb");
    assert_non_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    return text;
}

/* ---- token files ---------------------------------------------------------------------------- */

static void test_tokens_of_each_width(void **state) {
    (void)state;
    const int32_t ids[] = {0, 7, 200, 255, 65535, 70000};
    const int count[] = {0, 4, 5, 0, 6};
    for (int bytes = 1; bytes <= 4; bytes *= 2) {
        assert_int_equal(cb_tokens_save(file("ids"), ids, count[bytes], bytes), CB_OK);
        cb_tokens *tokens = cb_tokens_open(file("ids"), bytes, 100000);
        assert_int_equal(cb_tokens_count(tokens), count[bytes]);
        int64_t read[6];
        assert_int_equal(cb_tokens_read(tokens, 1, count[bytes] - 1, read), CB_OK);
        for (int i = 1; i < count[bytes]; i++) assert_int_equal(read[i - 1], ids[i]);
        assert_int_equal(cb_tokens_check(tokens), CB_OK);
        REFUSES(cb_tokens_read(tokens, 1, count[bytes], read), CB_ERR_INDEX, "there are");
        REFUSES(cb_tokens_read(tokens, -1, 1, read), CB_ERR_INDEX, "tokens from -1 on");
        cb_tokens_close(tokens);
    }
    REFUSES(cb_tokens_save(file("ids"), ids, 5, 1), CB_ERR_INDEX, "token 65535 at position 4");
    REFUSES(cb_tokens_save("/dev/full", ids, 4, 1), CB_ERR_IO, "No space left");
}

static void test_token_files_that_are_refused(void **state) {
    (void)state;
    REFUSED(cb_tokens_open(file("missing"), 1, 256), "No such file");
    REFUSED(cb_tokens_open(folder, 1, 256), "not a regular file");
    REFUSED(cb_tokens_open(NULL, 1, 256), "the path is NULL");
    REFUSED(cb_tokens_open(written("empty", "", 0), 1, 256), "the file is empty");
    REFUSED(cb_tokens_open(written("cut", "abc", 3), 2, 256), "the file is truncated: 3 bytes");
    REFUSED(cb_tokens_open(file("cut"), 3, 256), "tokens of 3 bytes");
    REFUSED(cb_tokens_open(file("cut"), 1, 0), "a vocabulary of 0");
}

static void test_numbers_outside_of_the_vocabulary(void **state) {
    (void)state;
    cb_tokens *tokens = cb_tokens_open(written("few", "\1\2\3\4\3\2\1", 7), 1, 4);
    int64_t read[7];
    assert_int_equal(cb_tokens_read(tokens, 0, 3, read), CB_OK);
    REFUSES(cb_tokens_check(tokens), CB_ERR_INDEX, "few: token 4 at position 3 is not in the");
    cb_token_reader *reader = cb_token_reader_new(tokens, 0, 7, 1, 6, 1);
    cb_tensor *x = NULL, *y = NULL;
    REFUSES(cb_token_reader_next(reader, &x, &y), CB_ERR_INDEX, "vocabulary of 4");
    assert_null(x);
    cb_token_reader_free(reader);
    cb_tokens_close(tokens);
}

/* ---- batches -------------------------------------------------------------------------------- */

/* 60 tokens that count up: a window is right when it counts, and stays in 10 .. 49. */
static void test_batches_by_seed_and_position(void **state) {
    (void)state;
    uint8_t bytes[60];
    for (int i = 0; i < 60; i++) bytes[i] = (uint8_t)i;
    cb_tokens *tokens = cb_tokens_open(written("counts", bytes, 60), 1, 256);
    cb_token_reader *reader = cb_token_reader_new(tokens, 10, 50, 3, 5, 9);
    int64_t in[200][15], out[15];
    bool begun[64] = {0};
    for (int n = 0; n < 200; n++) {
        cb_tensor *x, *y;
        if (n == 180)
            assert_int_equal(
                cb_training_save(file("at180"), NULL, NULL, NULL, cb_token_reader_state(reader)),
                CB_OK);
        assert_int_equal(cb_token_reader_next(reader, &x, &y), CB_OK);
        assert_int_equal(cb_size(x, 0) * 10 + cb_size(x, 1), 35);
        cb_read(x, in[n], CB_I64), cb_read(y, out, CB_I64);
        for (int i = 0; i < 15; i++) {
            assert_int_equal(out[i], in[n][i] + 1);
            assert_true(in[n][i] >= 10 && out[i] < 50);
            if (i % 5)
                assert_int_equal(in[n][i], in[n][i - 1] + 1);
            else
                begun[in[n][i]] = true;
        }
    }
    for (int i = 10; i < 45; i++) assert_true(begun[i]); /* 600 draws of 35 places */
    cb_token_reader_free(reader);

    /* Another seed, until the state is loaded. */
    cb_token_reader *again = cb_token_reader_new(tokens, 10, 50, 3, 5, 1);
    cb_module *position = cb_token_reader_state(again);
    assert_int_equal(cb_training_load(file("at180"), NULL, NULL, NULL, position), CB_OK);
    for (int n = 180; n < 200; n++) {
        cb_tensor *x, *y;
        assert_int_equal(cb_token_reader_next(again, &x, &y), CB_OK);
        cb_read(x, out, CB_I64);
        assert_memory_equal(out, in[n], sizeof out);
    }
    cb_token_reader_free(again);
    REFUSED(cb_token_reader_new(tokens, 0, 5, 1, 5, 1), "a token behind each row, of 5 tokens");
    REFUSED(cb_token_reader_new(tokens, 0, 61, 1, 5, 1), "there are 60");
    REFUSED(cb_token_reader_new(tokens, 0, 60, 0, 5, 1), "batches of [0, 5]");
    cb_tokens_close(tokens);
}

/* ---- progress ------------------------------------------------------------------------------- */

static void test_log_and_curve(void **state) {
    (void)state;
    static char log[64];
    snprintf(log, sizeof log, "%s", file("log"));
    cb_progress *progress = cb_progress_new(0, 4, 10, "tokens", log);
    assert_non_null(progress);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(cb_progress_step(progress, i, i == 2 ? NAN : 1.0 / i, 1e-3), CB_OK);
    assert_int_equal(cb_progress_value(progress, 3, "validation", 0.5), CB_OK);
    REFUSES(cb_progress_value(progress, 3, "a\"b", 0.5), CB_ERR_ARGUMENT, "not a plain name");
    cb_progress_free(progress);
    assert_non_null(
        strstr(content("log"), "{\"step\": 2, \"loss\": null, \"lr\": 0.001, \"tokens/s\""));

    /* Killed within a line behind step 3, whose checkpoint was of step 2. */
    FILE *out = fopen(log, "a");
    fputs("{\"step\": 4, \"lo", out);
    fclose(out);
    progress = cb_progress_new(2, 4, 10, "tokens", log);
    assert_null(strstr(content("log"), "\"step\": 3"));
    assert_null(strstr(content("log"), "\"step\": 4"));
    assert_non_null(strstr(content("log"), "\"step\": 2"));
    assert_int_equal(cb_progress_step(progress, 3, 0.25, 1e-3), CB_OK);
    assert_int_equal(cb_progress_curve(progress, file("curve")), CB_OK);
    /* Steps 1 and 3: 2 is no number. The first is the greatest, at the top. */
    assert_non_null(strstr(content("curve"), "loss 0.25"));
    char *points = strstr(content("curve"), "points=\"");
    double x[2], y[2];
    assert_int_equal(sscanf(points, "points=\"%lf,%lf %lf,%lf \"", x, y, x + 1, y + 1), 4);
    assert_true(x[0] < x[1] && fabs(y[0] - 34) < 0.1 && fabs(y[1] - 320) < 0.1);
    REFUSES(cb_progress_curve(progress, "/dev/full"), CB_ERR_IO, "No space left");
    REFUSES(cb_progress_curve(progress, file("none/curve")), CB_ERR_IO, "No such file");
    cb_progress_free(progress);
    REFUSED(cb_progress_new(0, 4, 10, "tokens", file("none/log")), "No such file");
    REFUSED(cb_progress_new(5, 4, 10, "tokens", NULL), "steps 5 .. 4");
    progress = cb_progress_new(0, 4, 10, "tokens", "/dev/full");
    REFUSES(cb_progress_step(progress, 1, 1, 1), CB_ERR_IO, "No space left");
    cb_progress_free(progress);
}

static void test_interrupts_are_noted_once(void **state) {
    (void)state;
    cb_interrupt_catch();
    assert_false(cb_interrupted());
    raise(SIGINT);
    assert_true(cb_interrupted());
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    assert_true(action.sa_handler == SIG_DFL); /* the second one ends the program */
    signal(SIGTERM, SIG_DFL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_tokens_of_each_width),
        TEST(test_token_files_that_are_refused),
        TEST(test_numbers_outside_of_the_vocabulary),
        TEST(test_batches_by_seed_and_position),
        TEST(test_log_and_curve),
        TEST(test_interrupts_are_noted_once),
    };
    return in_folder(tests, sizeof tests / sizeof *tests);
}
