/* Token files, mapped, and batches of windows over them.
 *
 *     tokens   5 1 9 2 6 7        a window of length 3 at 1: inputs 1 9 2, targets 9 2 6
 *
 * The window of row r of batch n begins where data_draw(seed, n * batch + r) says. */
#include "position.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct cb_tokens {
    MappedFile file;
    int bytes; /* of a token: 1, 2 or 4 */
    int64_t count, vocabulary;
    char path[]; /* for errors */
};

/* ---- files ---------------------------------------------------------------------------------- */

static bool widths_known(const char *call, int bytes) {
    if (bytes == 1 || bytes == 2 || bytes == 4) return true;
    data_refuse(CB_ERR_ARGUMENT, "%s: tokens of %d bytes; there are 1, 2 and 4", call, bytes);
    return false;
}

/* The file's content makes tokens. */
static bool tokens_fit(const MappedFile *file, const char *path, int bytes) {
    if (file->count == 0)
        return data_refuse(CB_ERR_IO, "tokens_open: %s: the file is empty", path), false;
    if (file->count % (size_t)bytes == 0) return true;
    data_refuse(CB_ERR_IO,
                "tokens_open: %s: the file is truncated: %zu bytes are no whole number "
                "of tokens of %d",
                path, file->count, bytes);
    return false;
}

cb_tokens *cb_tokens_open(const char *path, int bytes, int64_t vocabulary) {
    if (!widths_known("tokens_open", bytes)) return NULL;
    if (vocabulary < 1)
        return data_refuse(CB_ERR_ARGUMENT, "tokens_open: a vocabulary of %" PRId64, vocabulary),
               NULL;
    MappedFile file;
    if (!data_map("tokens_open", path, &file)) return NULL;
    cb_tokens *tokens = NULL;
    if (tokens_fit(&file, path, bytes)) {
        size_t length = strlen(path) + 1;
        tokens = malloc(sizeof *tokens + length);
        if (!tokens) data_refuse(CB_ERR_MEMORY, "tokens_open: %s: out of memory", path);
        if (tokens) {
            *tokens = (cb_tokens){file, bytes, (int64_t)(file.count / (size_t)bytes), vocabulary};
            memcpy(tokens->path, path, length);
        }
    }
    if (!tokens) data_unmap(&file);
    return tokens;
}

void cb_tokens_close(cb_tokens *tokens) {
    if (tokens) data_unmap(&tokens->file);
    free(tokens);
}

int64_t cb_tokens_count(const cb_tokens *tokens) { return tokens ? tokens->count : 0; }

static uint32_t token_at(const cb_tokens *tokens, int64_t position) {
    const uint8_t *at = tokens->file.at + position * tokens->bytes;
    if (tokens->bytes == 1) return at[0];
    if (tokens->bytes == 2) return (uint32_t)(at[0] | at[1] << 8);
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Reads to out, unless that is NULL, and checks. */
static cb_status tokens_walk(const char *call, const cb_tokens *tokens, int64_t first,
                             int64_t count, int64_t *out) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t id = token_at(tokens, first + i);
        if ((int64_t)id >= tokens->vocabulary)
            return data_refuse(CB_ERR_INDEX,
                               "%s: %s: token %" PRIu32 " at position %" PRId64
                               " is not in the vocabulary of %" PRId64,
                               call, tokens->path, id, first + i, tokens->vocabulary);
        if (out) out[i] = id;
    }
    return CB_OK;
}

cb_status cb_tokens_read(const cb_tokens *tokens, int64_t first, int64_t count, int64_t *out) {
    if (!tokens || !out) return data_refuse(CB_ERR_ARGUMENT, "tokens_read: NULL");
    if (first < 0 || count < 0 || first > tokens->count - count)
        return data_refuse(CB_ERR_INDEX,
                           "tokens_read: %s: %" PRId64 " tokens from %" PRId64
                           " on; there are %" PRId64,
                           tokens->path, count, first, tokens->count);
    return tokens_walk("tokens_read", tokens, first, count, out);
}

cb_status cb_tokens_check(const cb_tokens *tokens) {
    if (!tokens) return data_refuse(CB_ERR_ARGUMENT, "tokens_check: NULL");
    return tokens_walk("tokens_check", tokens, 0, tokens->count, NULL);
}

cb_status cb_tokens_save(const char *path, const int32_t *ids, int64_t count, int bytes) {
    if (!widths_known("tokens_save", bytes)) return CB_ERR_ARGUMENT;
    if (count < 0 || (count && !ids)) return data_refuse(CB_ERR_ARGUMENT, "tokens_save: no tokens");
    uint8_t *file = malloc((size_t)count * (size_t)bytes + 1), *to = file;
    if (!file) return data_refuse(CB_ERR_MEMORY, "tokens_save: out of memory");
    int64_t limit = INT64_C(1) << 8 * bytes;
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= limit) {
            free(file);
            return data_refuse(CB_ERR_INDEX,
                               "tokens_save: token %" PRId32 " at position %" PRId64
                               " does not fit into %d bytes",
                               ids[i], i, bytes);
        }
        for (int k = 0; k < bytes; k++) *to++ = (uint8_t)(ids[i] >> 8 * k);
    }
    bool saved = data_save("tokens_save", path, file, (size_t)(to - file));
    free(file);
    return saved ? CB_OK : cb_error_status();
}

/* ---- batches -------------------------------------------------------------------------------- */

struct cb_token_reader {
    const cb_tokens *tokens;
    int64_t first, places; /* windows begin at first .. first + places - 1 */
    int64_t batch, length;
    BatchPosition position;
    int64_t window[]; /* batch * length inputs, as many targets, and length + 1 as they lie */
};

static bool reader_fits(const cb_tokens *tokens, int64_t first, int64_t end, int64_t batch,
                        int64_t length) {
    if (!tokens)
        return data_refuse(CB_ERR_ARGUMENT, "token_reader_new: the tokens are NULL"), false;
    if (first < 0 || end > tokens->count || first > end) {
        data_refuse(CB_ERR_INDEX,
                    "token_reader_new: %s: tokens %" PRId64 " .. %" PRId64 "; there are %" PRId64,
                    tokens->path, first, end, tokens->count);
        return false;
    }
    bool sized = batch > 0 && length > 0 && batch < INT32_MAX / length;
    if (sized && length < end - first) return true;
    data_refuse(CB_ERR_SHAPE,
                "token_reader_new: %s: batches of [%" PRId64 ", %" PRId64
                "] and a token behind each row, of %" PRId64 " tokens",
                tokens->path, batch, length, end - first);
    return false;
}

cb_token_reader *cb_token_reader_new(const cb_tokens *tokens, int64_t first, int64_t end,
                                     int64_t batch, int64_t length, uint64_t seed) {
    if (!reader_fits(tokens, first, end, batch, length)) return NULL;
    size_t numbers = (size_t)(2 * batch * length + length + 1);
    cb_token_reader *reader = malloc(sizeof *reader + numbers * sizeof *reader->window);
    if (!reader) return data_refuse(CB_ERR_MEMORY, "token_reader_new: out of memory"), NULL;
    *reader = (cb_token_reader){.tokens = tokens,
                                .first = first,
                                .places = end - first - length,
                                .batch = batch,
                                .length = length};
    if (position_open(&reader->position, "TokenReader", seed)) return reader;
    cb_token_reader_free(reader);
    return NULL;
}

cb_status cb_token_reader_next(cb_token_reader *reader, cb_tensor **inputs, cb_tensor **targets) {
    if (!reader || !inputs || !targets)
        return data_refuse(CB_ERR_ARGUMENT, "token_reader_next: NULL");
    uint64_t seed;
    int64_t batch, length = reader->length, all = reader->batch * length;
    if (!position_read(&reader->position, &seed, &batch)) return cb_error_status();
    int64_t *in = reader->window, *target = in + all, *row = target + all;
    for (int64_t r = 0; r < reader->batch; r++) {
        uint64_t place = (uint64_t)batch * (uint64_t)reader->batch + (uint64_t)r;
        uint64_t start = data_draw(seed, place, (uint64_t)reader->places);
        cb_status status = tokens_walk("token_reader_next", reader->tokens,
                                       reader->first + (int64_t)start, length + 1, row);
        if (status != CB_OK) return status;
        memcpy(in + r * length, row, (size_t)length * sizeof *row);
        memcpy(target + r * length, row + 1, (size_t)length * sizeof *row);
    }
    cb_dim_list sizes = {2, {reader->batch, length}};
    cb_tensor *x = cb_from_data(in, CB_I64, sizes), *y = cb_from_data(target, CB_I64, sizes);
    if (x && y && position_write(&reader->position, seed, batch + 1)) {
        *inputs = x, *targets = y;
        return CB_OK;
    }
    cb_free(x), cb_free(y);
    return cb_error_status();
}

cb_module *cb_token_reader_state(cb_token_reader *reader) {
    return reader ? reader->position.state
                  : (data_refuse(CB_ERR_ARGUMENT, "token_reader_state: NULL"), NULL);
}

void cb_token_reader_free(cb_token_reader *reader) {
    if (reader) position_close(&reader->position);
    free(reader);
}
