/* Tokenizers: the words of GPT-2, merges beside a plain loop, bytes of every kind there and back,
 * and the files that are refused. */
#include "fixture.h"

#include "../../data/tokenizer.h"
#include "files_of_tests.h"

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_scope, close_scope)

/* ---- a vocabulary that the test makes ------------------------------------------------------- */

/* GPT-2's character of a byte, as UTF-8. */
static void put_byte(FILE *out, int byte) {
    int above = 0;
    for (int b = 0; b < byte; b++) above += b <= ' ' || (b >= 0x7f && b <= 0xa0) || b == 0xad;
    bool plain = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    int character = plain ? byte : 256 + above;
    if (byte == '"' || byte == '\\') putc('\\', out);
    if (character < 0x80)
        putc(character, out);
    else
        fprintf(out, "%c%c", 0xc0 | character >> 6, 0x80 | (character & 0x3f));
}

/* All bytes, backwards so that a byte is not its number, and the rest, in vocab.json's own form. */
static const char *vocabulary_file(const char *rest) {
    FILE *out = fopen(file("vocab.json"), "wb");
    fprintf(out, "{");
    for (int id = 0; id < 256; id++) {
        fprintf(out, "\"");
        put_byte(out, 255 - id);
        fprintf(out, "\": %d,\n", id);
    }
    fprintf(out, "%s}", rest);
    fclose(out);
    return file("vocab.json");
}

static const char *merges_file(const char *lines) {
    return written("merges.txt", lines, strlen(lines));
}

/* "\304\240" is the space's character. */
static const char small_rest[] = "\"he\": 256,\n\"ll\": 257,\n\"hell\": 258,\n\"\304\240w\": 259,\n"
                                 "\"or\": 260,\n\"\304\240wor\": 261,\n\"ld\": 262,\n"
                                 "\"hello\": 263,\n\"lo\": 264,\n\"<|endoftext|>\": 265";
static const char small_merges[] = "#version: 0.2\nh e\nl l\nhe ll\n\304\240 w\no r\n\304\240w or\n"
                                   "l d\nl o\n";

static cb_tokenizer *small(void) {
    cb_tokenizer *tokenizer =
        cb_tokenizer_gpt2(vocabulary_file(small_rest), merges_file(small_merges));
    assert_non_null(tokenizer);
    return tokenizer;
}

static void expect_ids(const cb_tokenizer *tokenizer, const char *text, bool special,
                       const int32_t *expected, int count) {
    int32_t ids[256];
    int64_t given = cb_tokenizer_encode(tokenizer, text, (int64_t)strlen(text), special, ids);
    assert_int_equal(given, count);
    for (int i = 0; i < count; i++) assert_int_equal(ids[i], expected[i]);
    char back[256];
    assert_int_equal(cb_tokenizer_decode(tokenizer, ids, given, back, sizeof back), strlen(text));
    assert_string_equal(back, text);
}

/* ---- words ---------------------------------------------------------------------------------- */

/* What Python's regex module finds with GPT-2's pattern; a bar stands between words. */
static const char *const words[] = {
    "Hello| world|!", "I|'m| here|,| they|'ll| say| we|'ve| 12|'d| y|'re| it|'s| can|'t",
    "I|'|M|'|LL|'s|t|'|l|'|v|'|r", "a|  | b|   |\t|c|\n\n\n", "   | x| '| y", "abc|123|def|45",
    "a|_|b| ==| [|1|]->|c", "don|'t|'t", " '|s| '|t",
    "\xc3\xa9t\xc3\xa9| \xe4\xb8\xad\xe6\x96\x87|\xe3\x80\x82|\xd9\xa3\xe2\x85\xa7",
    "e|\xcc\x81|a|\xc2\xa0|b| \xf0\x9f\x98\x80\xe2\x80\x8b|z",
    "\xe3\x80\x80|\xe3\x80\x80|x|\xe2\x80\xa8|y", "a|\x1c|b|\xc2\x85|c",
    /* no UTF-8: alone, cut off, too long, a surrogate, too large */
    "a|\xff|b|\xc3|c|\xe4\xb8| d|\xc0\x80|e|\xed\xa0\x80|f|\xf4\x90\x80\x80|g",
    "a|\xe0\x81\xa1|b|\xf0\x80\x81\xa1|c", /* the letter a in three and four bytes */
};

static void test_words_are_those_of_the_pattern(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char text[256], found[512] = "";
        size_t bytes = 0, used = 0, length;
        for (const char *c = words[i]; *c; c++)
            if (*c != '|') text[bytes++] = *c;
        text[bytes] = '\0';
        for (size_t at = 0; at < bytes; at += length) {
            length = split_word((const uint8_t *)text + at, bytes - at);
            assert_in_range(length, 1, bytes - at);
            used += (size_t)snprintf(found + used, sizeof found - used, "%s%.*s", at ? "|" : "",
                                     (int)length, text + at);
        }
        assert_string_equal(found, words[i]);
    }
}

/* ---- merges --------------------------------------------------------------------------------- */

static void test_a_small_vocabulary(void **state) {
    (void)state;
    cb_tokenizer *tokenizer = small();
    assert_int_equal(cb_tokenizer_count(tokenizer), 266);
    assert_int_equal(cb_tokenizer_id(tokenizer, "hell"), 258);
    assert_int_equal(cb_tokenizer_id(tokenizer, "none"), -1);
    /* "hello" is a token that no merge makes. */
    expect_ids(tokenizer, "hello world", false, (int32_t[]){258, 255 - 'o', 261, 262}, 4);
    expect_ids(tokenizer, "lll lo", false, (int32_t[]){257, 255 - 'l', 255 - ' ', 264}, 4);
    expect_ids(tokenizer, "ld<|endoftext|>ld", true, (int32_t[]){262, 265, 262}, 3);
    int32_t ids[32];
    assert_int_equal(cb_tokenizer_encode(tokenizer, "<|endoftext|>", 13, false, ids), 13);
    assert_int_equal(cb_tokenizer_encode(tokenizer, NULL, 0, true, NULL), 0);
    cb_tokenizer_free(tokenizer);
}

/* Of all pairs the lowest rank, the leftmost, over and over: what merge.c does with a heap. */
static int plainly(const cb_tokenizer *tokenizer, const uint8_t *text, int count, int32_t *ids) {
    for (int i = 0; i < count; i++) ids[i] = tokenizer->of_byte[text[i]];
    for (;;) {
        const PairMerge *best = NULL;
        int where = 0;
        for (int i = 0; i + 1 < count; i++)
            for (size_t m = 0; m < tokenizer->merges; m++) {
                const PairMerge *merge = &tokenizer->merge[m];
                if (merge->rank < 0 || merge->left != ids[i] || merge->right != ids[i + 1])
                    continue;
                if (!best || merge->rank < best->rank) best = merge, where = i;
            }
        if (!best) return count;
        ids[where] = best->token;
        memmove(ids + where + 1, ids + where + 2, (size_t)(--count - where - 1) * sizeof *ids);
    }
}

/* Random merges of a and b, one of which may come before the ones that make its sides. */
static void test_merges_beside_a_plain_loop(void **state) {
    (void)state;
    srand(5);
    for (int round = 0; round < 20; round++) {
        char token[40][16] = {"a", "b"}, rest[2048] = "", lines[2048] = "";
        int count = 2;
        for (int tries = 0; tries < 400 && count < 14; tries++) {
            const char *left = token[rand() % count], *right = token[rand() % count];
            char made[40];
            snprintf(made, sizeof made, "%s%s", left, right);
            bool known = strlen(made) > 9;
            for (int i = 0; i < count; i++) known = known || !strcmp(token[i], made);
            if (known) continue;
            char line[64], earlier[2048];
            snprintf(line, sizeof line, "%s %s\n", left, right);
            strcpy(earlier, lines);
            if (rand() % 2) /* at the front */
                snprintf(lines, sizeof lines, "%s%s", line, earlier);
            else
                strcat(lines, line);
            strcpy(token[count], made);
            snprintf(rest + strlen(rest), 64, "%s\"%s\": %d", count > 2 ? ",\n" : "", made,
                     254 + count);
            count++;
        }
        cb_tokenizer *tokenizer = cb_tokenizer_gpt2(vocabulary_file(rest), merges_file(lines));
        assert_non_null(tokenizer);
        for (int n = 0; n < 100; n++) {
            char text[40];
            int length = 1 + rand() % 39;
            for (int i = 0; i < length; i++) text[i] = "ab"[rand() % 2];
            int32_t expected[40], ids[40];
            int plain = plainly(tokenizer, (const uint8_t *)text, length, expected);
            assert_int_equal(cb_tokenizer_encode(tokenizer, text, length, true, ids), plain);
            assert_memory_equal(ids, expected, (size_t)plain * sizeof *ids);
        }
        cb_tokenizer_free(tokenizer);
    }
}

/* A million letters without a space: the square of that would take an hour. */
static void test_a_long_word(void **state) {
    (void)state;
    cb_tokenizer *tokenizer = small();
    enum { COUNT = 1000000 };
    char *text = malloc(COUNT);
    int32_t *ids = malloc(COUNT * sizeof *ids);
    memset(text, 'l', COUNT);
    assert_int_equal(cb_tokenizer_encode(tokenizer, text, COUNT, false, ids), COUNT / 2);
    for (int i = 0; i < COUNT / 2; i++) assert_int_equal(ids[i], 257);
    free(text), free(ids);
    cb_tokenizer_free(tokenizer);
}

/* ---- there and back ------------------------------------------------------------------------- */

static void there_and_back(const cb_tokenizer *tokenizer, const uint8_t *text, int bytes) {
    static int32_t ids[8192];
    static char back[8193];
    int64_t count = cb_tokenizer_encode(tokenizer, (const char *)text, bytes, true, ids);
    assert_in_range(count, bytes > 0, bytes);
    assert_int_equal(cb_tokenizer_decode(tokenizer, ids, count, back, sizeof back), bytes);
    assert_memory_equal(back, text, (size_t)bytes);
}

/* Every two bytes, every character of UTF-8, and random bytes with parts of special tokens. */
static void test_round_trips(void **state) {
    (void)state;
    cb_tokenizer *of[] = {small(), cb_tokenizer_bytes()};
    for (int k = 0; k < 2; k++) {
        uint8_t text[8192];
        for (int first = 0; first < 256; first++) {
            for (int i = 0; i < 256; i++)
                text[2 * i] = (uint8_t)first, text[2 * i + 1] = (uint8_t)i;
            there_and_back(of[k], text, 512);
        }
        int bytes = 0;
        for (uint32_t c = 0x80; c < 0x110000; c++) {
            if (c >= 0x800 && c < 0x10000) text[bytes++] = (uint8_t)(0xe0 | c >> 12);
            if (c >= 0x10000)
                text[bytes++] = (uint8_t)(0xf0 | c >> 18),
                text[bytes++] = (uint8_t)(0x80 | (c >> 12 & 63));
            text[bytes++] = (uint8_t)(c < 0x800 ? 0xc0 | c >> 6 : 0x80 | (c >> 6 & 63));
            text[bytes++] = (uint8_t)(0x80 | (c & 63));
            if (bytes < 8000) continue;
            there_and_back(of[k], text, bytes);
            bytes = 0;
        }
        static const char *const part[] = {"<|end", "<|endoftext|>", "oftext|>", " ", "\n ",
                                           "'s",    "hello"};
        srand(3);
        for (int n = 0; n < 2000; n++) {
            for (bytes = 0; bytes < 100;) {
                const char *next = part[rand() % 7];
                if (rand() % 2)
                    text[bytes++] = (uint8_t)rand();
                else
                    memcpy(text + bytes, next, strlen(next)), bytes += (int)strlen(next);
            }
            there_and_back(of[k], text, bytes);
        }
        cb_tokenizer_free(of[k]);
    }
}

static void test_bytes_and_special_tokens(void **state) {
    (void)state;
    cb_tokenizer *tokenizer = cb_tokenizer_bytes();
    expect_ids(tokenizer, "Az \xff", true, (int32_t[]){'A', 'z', ' ', 255}, 4);
    assert_int_equal(cb_tokenizer_add_special(tokenizer, "<a>"), 256);
    assert_int_equal(cb_tokenizer_add_special(tokenizer, "<a><b>"), 257);
    assert_int_equal(cb_tokenizer_add_special(tokenizer, "<a>"), 256); /* the same one */
    assert_int_equal(cb_tokenizer_count(tokenizer), 258);
    expect_ids(tokenizer, "<<a><b><a>x<a", true, (int32_t[]){'<', 257, 256, 'x', '<', 'a'}, 6);
    expect_ids(tokenizer, "<a>", false, (int32_t[]){'<', 'a', '>'}, 3);
    REFUSES(cb_tokenizer_add_special(tokenizer, ""), -1, "an empty text");
    int64_t bytes;
    assert_memory_equal(cb_tokenizer_token(tokenizer, 257, &bytes), "<a><b>", 6);
    assert_int_equal(bytes, 6);
    REFUSED(cb_tokenizer_token(tokenizer, 258, &bytes), "258 is not in the vocabulary of 258");
    char text[] = "......";
    assert_int_equal(cb_tokenizer_decode(tokenizer, (int32_t[]){'a', 257}, 2, text, 4), 7);
    assert_memory_equal(text, "a<a\0..", sizeof text); /* what fits, and nothing behind it */
    assert_int_equal(cb_tokenizer_decode(tokenizer, (int32_t[]){'a', 257}, 2, NULL, 0), 7);
    REFUSES(cb_tokenizer_decode(tokenizer, (int32_t[]){'a', -1}, 2, text, 4), -1,
            "-1 at position 1");
    REFUSES(cb_tokenizer_encode(NULL, "a", 1, true, NULL), -1, "tokenizer_encode: NULL");
    cb_tokenizer_free(tokenizer);
}

static void test_a_file_of_text(void **state) {
    (void)state;
    cb_tokenizer *tokenizer = small();
    const char *text = written("text", "hell world<|endoftext|>", 23);
    assert_int_equal(cb_tokenizer_encode_file(tokenizer, text, true, file("ids"), 2), CB_OK);
    cb_tokens *tokens = cb_tokens_open(file("ids"), 2, cb_tokenizer_count(tokenizer));
    int64_t ids[4];
    assert_int_equal(cb_tokens_count(tokens), 4);
    assert_int_equal(cb_tokens_read(tokens, 0, 4, ids), CB_OK);
    assert_true(ids[0] == 258 && ids[1] == 261 && ids[2] == 262 && ids[3] == 265);
    cb_tokens_close(tokens);
    REFUSES(cb_tokenizer_encode_file(tokenizer, text, true, file("ids"), 1), CB_ERR_INDEX,
            "token 258");
    REFUSES(cb_tokenizer_encode_file(tokenizer, file("missing"), true, file("ids"), 2), CB_ERR_IO,
            "No such");
    cb_tokenizer_free(tokenizer);
}

/* ---- files that are refused ----------------------------------------------------------------- */

static void refuses_vocabulary(const char *rest, const char *why) {
    REFUSED(cb_tokenizer_gpt2(vocabulary_file(rest), merges_file("")), why);
}

static void test_vocabularies_that_are_refused(void **state) {
    (void)state;
    refuses_vocabulary("\"xy\": 256,\n", "vocab.json:257: not JSON: ");
    refuses_vocabulary("\"xy\": 3", "vocab.json:257: '\xc3\xbc' and 'xy' are both 3");
    refuses_vocabulary("\"xy\": 256,\n\"xz\": 256", "vocab.json:258: 'xy' and 'xz' are both 256");
    refuses_vocabulary("\"xy\": 300", "vocab.json:257: 'xy' has no number of 0 .. 256");
    refuses_vocabulary("\"xy\": 257", "vocab.json:257: 'xy' has no number of 0 .. 256");
    refuses_vocabulary("\"xy\": -1", "vocab.json:257: 'xy' has no number");
    refuses_vocabulary("\"xy\": \"5\"", "vocab.json:257: 'xy' has no number");
    refuses_vocabulary("\"\": 256", "vocab.json:257: token 256 is empty");
    refuses_vocabulary("\"xy\": 256,\n\"xy\": 257", "vocab.json:258: 'xy' is there twice");
    refuses_vocabulary("\n\"x y\": 256",
                       "vocab.json:258: 'x y' has a character that stands for no");
    refuses_vocabulary("\"x\304\250\304\204\305\204\": 256", "stands for no byte"); /* U+0144 */
    refuses_vocabulary("\"\xe4\xb8\xad\": 256", "stands for no byte");
    const char *merges = merges_file("");
    REFUSED(cb_tokenizer_gpt2(written("v", "", 0), merges), "v:1: not JSON");
    REFUSED(cb_tokenizer_gpt2(written("v", "[1]", 3), merges), "v:1: not an object of 256 tokens");
    REFUSED(cb_tokenizer_gpt2(written("v", "{}", 2), merges), "v:1: not an object of 256 tokens");
    REFUSED(cb_tokenizer_gpt2(file("missing"), merges), "No such file");
    FILE *out = fopen(file("v"), "wb");
    fprintf(out, "{\"no\": 0");
    for (int i = 1; i < 256; i++)
        fprintf(out, ", "), putc('"', out), put_byte(out, i), fprintf(out, "\": %d", i);
    fprintf(out, "}");
    fclose(out);
    REFUSED(cb_tokenizer_gpt2(file("v"), merges), "v:1: there is no token of the byte 0x00");
}

static void refuses_merges(const char *lines, const char *why) {
    REFUSED(cb_tokenizer_gpt2(vocabulary_file(small_rest), merges_file(lines)), why);
}

static void test_merges_that_are_refused(void **state) {
    (void)state;
    refuses_merges("#version: 0.2\nhe", "merges.txt:2: 'he' is not two tokens");
    refuses_merges("h e\n\nl l\n", "merges.txt:2: '' is not two tokens");
    refuses_merges("h e l", "merges.txt:1: 'h e l' is not two tokens");
    refuses_merges(" he", "merges.txt:1: ' he' is not two");
    refuses_merges("h e\nhx l", "merges.txt:2: 'hx l': the left token is not in the vocabulary");
    refuses_merges("l xh", "the right token is not in the vocabulary");
    refuses_merges("h x", "merges.txt:1: 'h x': what both make is not in the vocabulary");
    refuses_merges("h e\nl l\nh e\n", "merges.txt:3: 'h e' is there twice");
    refuses_merges("h e\r\n", "merges.txt:1: 'h e\r' has a character that stands for no byte");
    REFUSED(cb_tokenizer_gpt2(vocabulary_file(small_rest), folder), "not a regular file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_words_are_those_of_the_pattern),
        TEST(test_a_small_vocabulary),
        TEST(test_merges_beside_a_plain_loop),
        TEST(test_a_long_word),
        TEST(test_round_trips),
        TEST(test_bytes_and_special_tokens),
        TEST(test_a_file_of_text),
        TEST(test_vocabularies_that_are_refused),
        TEST(test_merges_that_are_refused),
    };
    return in_folder(tests, sizeof tests / sizeof *tests);
}
