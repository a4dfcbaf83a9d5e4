/* GPT-2's two files -> a tokenizer.
 *
 *     vocab.json   {"!": 0, "\"": 1, ..., "\u0120the": 262, ..., "<|endoftext|>": 50256}
 *     merges.txt   #version: 0.2
 *                  \u0120 t            a line per merge, the first one of the lowest rank
 *
 * In both a byte is a character: itself where that is printable and no space, else one of U+0100 to
 * U+0143 (a space is U+0120). Everything is checked: each byte is a token, the numbers are 0 ..
 * count-1 without a hole, a merge is of two tokens and makes a third one. */
#include "tokenizer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* yyjson is inside of libcarbide, too, where nobody else sees it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#undef yyjson_api
#define yyjson_api static
#include <yyjson.c>
#pragma GCC diagnostic pop

typedef struct VocabularyFile {
    const char *path;
    MappedFile file;
    cb_tokenizer *tokenizer;
} VocabularyFile;

/* Which line text[at] is in, from 1 on. */
static size_t line_of(const VocabularyFile *from, size_t at) {
    size_t line = 1;
    for (size_t i = 0; i < at && i < from->file.count; i++) line += from->file.at[i] == '\n';
    return line;
}

static bool refuse_at(const VocabularyFile *from, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool refuse_at(const VocabularyFile *from, size_t at, const char *format, ...) {
    char why[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    data_refuse(CB_ERR_IO, "tokenizer_gpt2: %s:%zu: %s", from->path, line_of(from, at), why);
    return false;
}

/* ---- bytes as characters -------------------------------------------------------------------- */

static bool printable(int byte) {
    return (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
}

/* The byte that a character of up to two bytes stands for; -1: none. */
static int byte_of(const uint8_t **at, const uint8_t *end) {
    int character = *(*at)++;
    if (character >= 0x80) {
        if (character < 0xc2 || character > 0xdf || *at == end || (**at & 0xc0) != 0x80) return -1;
        character = (character & 0x1f) << 6 | (*(*at)++ & 0x3f);
    }
    if (character < 256) return printable(character) ? character : -1;
    int byte = -1; /* the others, in order, are U+0100 and on */
    for (int left = character - 256; left >= 0 && byte < 255; left -= !printable(byte)) byte++;
    return byte < 256 && character - 256 < 68 ? byte : -1;
}

/* In place, since bytes are no longer than their characters; false: one is no byte. */
static bool bytes_of(uint8_t *text, size_t length, size_t *bytes) {
    const uint8_t *from = text, *end = text + length;
    for (*bytes = 0; from < end;) {
        int byte = byte_of(&from, end);
        if (byte < 0) return false;
        text[(*bytes)++] = (uint8_t)byte;
    }
    return true;
}

/* ---- vocab.json ----------------------------------------------------------------------------- */

/* Names are read where they lie, so that their places tell their lines. */
static bool place_tokens(VocabularyFile *from, yyjson_val *root, const char *text,
                         yyjson_val **key) {
    size_t count = yyjson_obj_size(root), index, most;
    yyjson_val *name, *number;
    yyjson_obj_foreach(root, index, most, name, number) {
        size_t at = (size_t)(yyjson_get_str(name) - text);
        uint64_t id = yyjson_is_uint(number) ? yyjson_get_uint(number) : UINT64_MAX;
        if (id >= count)
            return refuse_at(from, at, "'%.80s' has no number of 0 .. %zu", yyjson_get_str(name),
                             count - 1);
        if (key[id])
            return refuse_at(from, at, "'%.80s' and '%.80s' are both %" PRIu64,
                             yyjson_get_str(key[id]), yyjson_get_str(name), id);
        key[id] = name;
    }
    return true;
}

static bool add_tokens(VocabularyFile *from, size_t count, const char *text, yyjson_val **key) {
    for (size_t id = 0; id < count; id++) {
        char *name = (char *)(uintptr_t)yyjson_get_str(key[id]);
        size_t at = (size_t)(name - text), length = yyjson_get_len(key[id]), bytes;
        char shown[81];
        if (!name || !length) return refuse_at(from, at, "token %zu is empty", id);
        snprintf(shown, sizeof shown, "%.80s", name);
        if (!bytes_of((uint8_t *)name, length, &bytes))
            return refuse_at(from, at, "'%s' has a character that stands for no byte", shown);
        if (tokenizer_find(from->tokenizer, name, bytes) != NO_TOKEN)
            return refuse_at(from, at, "'%s' is there twice", shown);
        if (!tokenizer_add(from->tokenizer, name, bytes)) return false;
    }
    for (int byte = 0; byte < 256; byte++) {
        int32_t id = tokenizer_find(from->tokenizer, &(uint8_t){(uint8_t)byte}, 1);
        if (id == NO_TOKEN) return refuse_at(from, 0, "there is no token of the byte 0x%02x", byte);
        from->tokenizer->of_byte[byte] = id;
    }
    return true;
}

static bool read_object(VocabularyFile *from, yyjson_val *root, const char *text) {
    size_t count = yyjson_obj_size(root);
    if (!yyjson_is_obj(root) || count < 256 || count > INT32_MAX)
        return refuse_at(from, 0, "not an object of 256 tokens and more");
    yyjson_val **key = calloc(count, sizeof *key);
    if (!key) return data_refuse(CB_ERR_MEMORY, "tokenizer_gpt2: out of memory"), false;
    bool read = place_tokens(from, root, text, key) && add_tokens(from, count, text, key);
    free(key);
    return read;
}

static bool read_vocabulary(VocabularyFile *from) {
    size_t count = from->file.count;
    char *text = calloc(1, count + YYJSON_PADDING_SIZE);
    if (!text) return data_refuse(CB_ERR_MEMORY, "tokenizer_gpt2: out of memory"), false;
    if (count) memcpy(text, from->file.at, count);
    yyjson_read_err error;
    yyjson_doc *json = yyjson_read_opts(text, count, YYJSON_READ_INSITU, NULL, &error);
    bool memory = !json && error.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION;
    if (memory) data_refuse(CB_ERR_MEMORY, "tokenizer_gpt2: out of memory");
    if (!json && !memory) refuse_at(from, error.pos, "not JSON: %s", error.msg);
    bool read = json && read_object(from, yyjson_doc_get_root(json), text);
    yyjson_doc_free(json);
    free(text);
    return read;
}

/* ---- merges.txt ----------------------------------------------------------------------------- */

/* One line of "left right", which is the tokens' bytes as characters. */
static bool read_merge(VocabularyFile *from, size_t at, uint8_t *line, size_t length) {
    cb_tokenizer *tokenizer = from->tokenizer;
    char shown[81];
    snprintf(shown, sizeof shown, "%.*s", (int)(length < 80 ? length : 80), (const char *)line);
    uint8_t *space = memchr(line, ' ', length);
    size_t before = space ? (size_t)(space - line) : 0, left, right;
    if (!before || before + 1 == length || memchr(space + 1, ' ', length - before - 1))
        return refuse_at(from, at, "'%s' is not two tokens with a space between them", shown);
    if (!bytes_of(line, before, &left) || !bytes_of(space + 1, length - before - 1, &right))
        return refuse_at(from, at, "'%s' has a character that stands for no byte", shown);
    PairMerge merge = {.rank = tokenizer->merge_count};
    merge.left = tokenizer_find(tokenizer, line, left);
    merge.right = tokenizer_find(tokenizer, space + 1, right);
    memmove(line + left, space + 1, right);
    merge.token = tokenizer_find(tokenizer, line, left + right);
    if (merge.left < 0 || merge.right < 0 || merge.token < 0)
        return refuse_at(from, at, "'%s': %s is not in the vocabulary", shown,
                         merge.left < 0    ? "the left token"
                         : merge.right < 0 ? "the right token"
                                           : "what both make");
    return merge_add(tokenizer, merge) || refuse_at(from, at, "'%s' is there twice", shown);
}

/* A first line that begins with #version is none. */
static bool read_lines(VocabularyFile *from, uint8_t *text) {
    static const char version[] = "#version";
    size_t count = from->file.count, end;
    for (size_t at = 0; at < count; at = end + 1) {
        const uint8_t *stop = memchr(text + at, '\n', count - at);
        end = stop ? (size_t)(stop - text) : count;
        bool heading =
            at == 0 && end >= sizeof version - 1 && !memcmp(text, version, sizeof version - 1);
        if (!heading && !read_merge(from, at, text + at, end - at)) return false;
    }
    return true;
}

static bool read_merges(VocabularyFile *from) {
    size_t count = from->file.count, lines = 1;
    for (size_t i = 0; i < count; i++) lines += from->file.at[i] == '\n';
    if (!merge_table_make(from->tokenizer, lines)) return false;
    uint8_t *text = malloc(count + 1);
    if (!text) return data_refuse(CB_ERR_MEMORY, "tokenizer_gpt2: out of memory"), false;
    if (count) memcpy(text, from->file.at, count);
    bool read = read_lines(from, text);
    free(text);
    return read;
}

/* ---- both ----------------------------------------------------------------------------------- */

/* Which tokens are what their own bytes merge to. */
static bool mark_whole(cb_tokenizer *tokenizer) {
    MergeSpace space = {0};
    uint32_t longest = 0;
    for (int32_t i = 0; i < tokenizer->count; i++)
        if (tokenizer->token[i].length > longest) longest = tokenizer->token[i].length;
    int32_t *ids = malloc(longest * sizeof *ids);
    if (!ids) return data_refuse(CB_ERR_MEMORY, "tokenizer_gpt2: out of memory"), false;
    int64_t given = 0;
    for (int32_t i = 0; i < tokenizer->count && given >= 0; i++) {
        Token *token = &tokenizer->token[i];
        given = merge_word(tokenizer, &space, tokenizer->bytes + token->start, token->length, ids);
        token->whole = given == 1 && ids[0] == i;
    }
    free(ids);
    merge_space_free(&space);
    return given >= 0;
}

static bool read_file(const char *path, cb_tokenizer *tokenizer, bool (*read)(VocabularyFile *)) {
    VocabularyFile from = {.path = path, .tokenizer = tokenizer};
    if (!data_map("tokenizer_gpt2", path, &from.file)) return false;
    bool done = read(&from);
    data_unmap(&from.file);
    return done;
}

cb_tokenizer *cb_tokenizer_gpt2(const char *vocabulary, const char *merges) {
    cb_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return data_refuse(CB_ERR_MEMORY, "tokenizer_gpt2: out of memory"), NULL;
    static const char end[] = "<|endoftext|>";
    if (read_file(vocabulary, tokenizer, read_vocabulary) &&
        read_file(merges, tokenizer, read_merges) && mark_whole(tokenizer)) {
        if (tokenizer_find(tokenizer, end, strlen(end)) != NO_TOKEN)
            (cb_tokenizer_add_special)(tokenizer, end);
        return tokenizer;
    }
    cb_tokenizer_free(tokenizer);
    return NULL;
}
