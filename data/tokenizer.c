/* Tokenizers: text -> the numbers of its tokens, and back.
 *
 *     "Hi!<|endoftext|>"  ->  special tokens are cut out  ->  words (split.c)
 *                         ->  a word that is a token, or its merges (merge.c)
 *
 * A token is bytes, and each of the 256 is one, so any text can be encoded, and what comes back is
 * the same bytes whether they are UTF-8 or not. */
#include "tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- the vocabulary ------------------------------------------------------------------------- */

/* The slot of these bytes, or the empty one where they belong. */
static int32_t *slot_of(const cb_tokenizer *tokenizer, const void *bytes, size_t length) {
    size_t at = (size_t)XXH3_64bits(bytes, length) & (tokenizer->slots - 1);
    for (; tokenizer->slot[at] != NO_TOKEN; at = (at + 1) & (tokenizer->slots - 1)) {
        const Token *token = &tokenizer->token[tokenizer->slot[at]];
        if (token->length != length) continue;
        if (memcmp(tokenizer->bytes + token->start, bytes, length) == 0) break;
    }
    return &tokenizer->slot[at];
}

int32_t tokenizer_find(const cb_tokenizer *tokenizer, const void *bytes, size_t length) {
    return tokenizer->slots ? *slot_of(tokenizer, bytes, length) : NO_TOKEN;
}

/* At most half of the slots are taken. */
static bool grow_slots(cb_tokenizer *tokenizer) {
    size_t slots = tokenizer->slots ? 2 * tokenizer->slots : 1024;
    int32_t *slot = malloc(slots * sizeof *slot);
    if (!slot) return false;
    for (size_t i = 0; i < slots; i++) slot[i] = NO_TOKEN;
    free(tokenizer->slot);
    tokenizer->slot = slot;
    tokenizer->slots = slots;
    for (int32_t i = 0; i < tokenizer->count; i++) {
        const Token *token = &tokenizer->token[i];
        *slot_of(tokenizer, tokenizer->bytes + token->start, token->length) = i;
    }
    return true;
}

static bool grow_tokens(cb_tokenizer *tokenizer) {
    size_t capacity = tokenizer->token_capacity ? 2 * (size_t)tokenizer->token_capacity : 512;
    Token *token = realloc(tokenizer->token, capacity * sizeof *token);
    if (!token || capacity > INT32_MAX) return free(capacity > INT32_MAX ? token : NULL), false;
    tokenizer->token = token;
    tokenizer->token_capacity = (int32_t)capacity;
    return true;
}

static bool grow_bytes(cb_tokenizer *tokenizer, size_t length) {
    size_t capacity = 2 * (tokenizer->bytes_count + length) + 1024;
    uint8_t *bytes = realloc(tokenizer->bytes, capacity);
    if (!bytes) return false;
    tokenizer->bytes = bytes;
    tokenizer->bytes_capacity = capacity;
    return true;
}

bool tokenizer_add(cb_tokenizer *tokenizer, const void *bytes, size_t length) {
    bool room = tokenizer->count < tokenizer->token_capacity || grow_tokens(tokenizer);
    room = room && (2 * (size_t)tokenizer->count < tokenizer->slots || grow_slots(tokenizer));
    room = room && (length <= tokenizer->bytes_capacity - tokenizer->bytes_count ||
                    grow_bytes(tokenizer, length));
    if (!room) return data_refuse(CB_ERR_MEMORY, "tokenizer: out of memory"), false;
    *slot_of(tokenizer, bytes, length) = tokenizer->count;
    memcpy(tokenizer->bytes + tokenizer->bytes_count, bytes, length);
    tokenizer->token[tokenizer->count++] =
        (Token){.start = tokenizer->bytes_count, .length = (uint32_t)length};
    tokenizer->bytes_count += length;
    return true;
}

void cb_tokenizer_free(cb_tokenizer *tokenizer) {
    if (!tokenizer) return;
    free(tokenizer->token);
    free(tokenizer->bytes);
    free(tokenizer->slot);
    free(tokenizer->merge);
    free(tokenizer);
}

cb_tokenizer *cb_tokenizer_bytes(void) {
    cb_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) return data_refuse(CB_ERR_MEMORY, "tokenizer_bytes: out of memory"), NULL;
    bool made = merge_table_make(tokenizer, 0);
    for (int i = 0; i < 256 && made; i++) {
        tokenizer->of_byte[i] = i;
        made = tokenizer_add(tokenizer, &(uint8_t){(uint8_t)i}, 1);
        if (made) tokenizer->token[i].whole = true;
    }
    if (made) return tokenizer;
    cb_tokenizer_free(tokenizer);
    return NULL;
}

int64_t cb_tokenizer_count(const cb_tokenizer *tokenizer) {
    return tokenizer ? tokenizer->count : 0;
}

int32_t cb_tokenizer_add_special(cb_tokenizer *tokenizer, const char *text) {
    if (!tokenizer || !text || !*text) {
        data_refuse(CB_ERR_ARGUMENT, "tokenizer_add_special: %s",
                    tokenizer && text ? "an empty text" : "NULL");
        return NO_TOKEN;
    }
    int32_t id = tokenizer_find(tokenizer, text, strlen(text));
    if (id == NO_TOKEN && tokenizer_add(tokenizer, text, strlen(text))) id = tokenizer->count - 1;
    if (id == NO_TOKEN || tokenizer->token[id].special) return id;
    tokenizer->token[id].special = true;
    tokenizer->specials++;
    return id;
}

int32_t cb_tokenizer_id(const cb_tokenizer *tokenizer, const char *text) {
    return tokenizer && text ? tokenizer_find(tokenizer, text, strlen(text)) : NO_TOKEN;
}

/* ---- text -> tokens ------------------------------------------------------------------------- */

/* Where the next special token of text[at ..] begins, and which one it is; the longest of those
 * that begin there. bytes and NO_TOKEN: there is none. */
static int64_t next_special(const cb_tokenizer *tokenizer, const char *text, int64_t at,
                            int64_t bytes, int32_t *which) {
    int64_t best = bytes;
    uint32_t longest = 0;
    *which = NO_TOKEN;
    for (int32_t i = tokenizer->count - 1, left = tokenizer->specials; i >= 0 && left; i--) {
        const Token *token = &tokenizer->token[i];
        if (!token->special) continue;
        left--;
        /* Nothing that begins behind the best one is of interest. */
        size_t within = (size_t)(bytes - at);
        if (*which != NO_TOKEN && (uint64_t)(best - at) + token->length < within)
            within = (size_t)(best - at) + token->length;
        const char *found =
            memmem(text + at, within, tokenizer->bytes + token->start, token->length);
        if (!found) continue;
        int64_t start = found - text;
        if (start > best || (start == best && token->length <= longest)) continue;
        best = start;
        longest = token->length;
        *which = i;
    }
    return best;
}

/* A stretch of text without special tokens. */
static int64_t encode_words(const cb_tokenizer *tokenizer, MergeSpace *space, const uint8_t *text,
                            size_t bytes, int32_t *ids) {
    int64_t count = 0;
    for (size_t length; bytes; text += length, bytes -= length) {
        length = tokenizer->merge_count ? split_word(text, bytes) : 1;
        int32_t id =
            length == 1 ? tokenizer->of_byte[*text] : tokenizer_find(tokenizer, text, length);
        if (id != NO_TOKEN && tokenizer->token[id].whole) {
            ids[count++] = id;
            continue;
        }
        int64_t given = merge_word(tokenizer, space, text, length, ids + count);
        if (given < 0) return -1;
        count += given;
    }
    return count;
}

int64_t cb_tokenizer_encode(const cb_tokenizer *tokenizer, const char *text, int64_t bytes,
                            bool special, int32_t *ids) {
    if (!tokenizer || bytes < 0 || (bytes && (!text || !ids)))
        return data_refuse(CB_ERR_ARGUMENT, "tokenizer_encode: NULL, or %" PRId64 " bytes", bytes),
               -1;
    MergeSpace space = {0};
    int64_t count = 0;
    for (int64_t at = 0; at < bytes && count >= 0;) {
        int32_t which = NO_TOKEN;
        int64_t end = special ? next_special(tokenizer, text, at, bytes, &which) : bytes;
        int64_t given = encode_words(tokenizer, &space, (const uint8_t *)text + at,
                                     (size_t)(end - at), ids + count);
        count = given < 0 ? -1 : count + given;
        at = end;
        if (which == NO_TOKEN || count < 0) continue;
        ids[count++] = which;
        at += tokenizer->token[which].length;
    }
    merge_space_free(&space);
    return count;
}

cb_status cb_tokenizer_encode_file(const cb_tokenizer *tokenizer, const char *text_path,
                                   bool special, const char *path, int bytes) {
    if (!tokenizer) return data_refuse(CB_ERR_ARGUMENT, "tokenizer_encode_file: NULL");
    MappedFile text;
    if (!data_map("tokenizer_encode_file", text_path, &text)) return cb_error_status();
    int32_t *ids = malloc((text.count + 1) * sizeof *ids);
    int64_t count = -1;
    if (ids)
        count = (cb_tokenizer_encode)(tokenizer, (const char *)text.at, (int64_t)text.count,
                                      special, ids);
    else
        data_refuse(CB_ERR_MEMORY, "tokenizer_encode_file: %s: out of memory", text_path);
    cb_status status = count < 0 ? cb_error_status() : (cb_tokens_save)(path, ids, count, bytes);
    free(ids);
    data_unmap(&text);
    return status;
}

/* ---- tokens -> text ------------------------------------------------------------------------- */

const char *cb_tokenizer_token(const cb_tokenizer *tokenizer, int32_t id, int64_t *bytes) {
    if (!tokenizer || !bytes) return data_refuse(CB_ERR_ARGUMENT, "tokenizer_token: NULL"), NULL;
    if (id < 0 || id >= tokenizer->count) {
        data_refuse(CB_ERR_INDEX,
                    "tokenizer_token: %" PRId32 " is not in the vocabulary of %" PRId32, id,
                    tokenizer->count);
        return NULL;
    }
    *bytes = tokenizer->token[id].length;
    return (const char *)tokenizer->bytes + tokenizer->token[id].start;
}

int64_t cb_tokenizer_decode(const cb_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                            char *text, int64_t capacity) {
    if (!tokenizer || count < 0 || (count && !ids) || capacity < 0 || (capacity && !text))
        return data_refuse(CB_ERR_ARGUMENT, "tokenizer_decode: NULL, or a count below 0"), -1;
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer->count) {
            data_refuse(CB_ERR_INDEX,
                        "tokenizer_decode: %" PRId32 " at position %" PRId64
                        " is not in the vocabulary of %" PRId32,
                        ids[i], i, tokenizer->count);
            return -1;
        }
        const Token *token = &tokenizer->token[ids[i]];
        int64_t room = capacity - 1 - bytes, length = token->length;
        if (room > 0)
            memcpy(text + bytes, tokenizer->bytes + token->start,
                   (size_t)(length < room ? length : room));
        bytes += length;
    }
    if (capacity) text[bytes < capacity ? bytes : capacity - 1] = '\0';
    return bytes;
}
