/* The header of a safetensors file, read and doubted.
 *
 * In:  bytes: u64 length N (little endian), N bytes of JSON, then data.
 * Out: a table of entries in the order of their data, each inside the file.
 * Invariants checked: the header fits, is a JSON object (in UTF-8: yyjson sees to that) and names
 * no NUL; every tensor has exactly dtype, shape and data_offsets; sizes are the product of the
 * shape; no name comes twice; the data lies without holes, without overlaps, from the header's end
 * to the file's; and what a checksum of ours stands for is still there.
 *
 *     {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}} */
#include "io/safetensors.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/vec.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

enum { LENGTH_BYTES = 8, HEADER_LIMIT = 100 * 1000 * 1000 };

static bool refuse(const cb_safetensors *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(const cb_safetensors *file, const char *format, ...) {
    char why[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    fail(CB_ERR_IO, "safetensors: %s: %s", file->path, why);
    return false;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void *json_alloc(void *user, size_t bytes) {
    (void)user;
    return memory_alloc(bytes);
}

static void *json_resize(void *user, void *pointer, size_t before, size_t bytes) {
    (void)user;
    (void)before;
    return memory_resize(pointer, bytes);
}

static void json_free(void *user, void *pointer) {
    (void)user;
    memory_free(pointer);
}

static yyjson_doc *read_json(const char *text, size_t length, yyjson_read_err *error) {
    yyjson_alc allocator = {json_alloc, json_resize, json_free, NULL};
    return yyjson_read_opts((char *)text, length, YYJSON_READ_NOFLAG, &allocator, error);
}

cb_status safetensors_check_name(const char *name, const char *quoted, size_t length) {
    yyjson_read_err error;
    yyjson_doc *json = read_json(quoted, length, &error);
    yyjson_doc_free(json);
    if (json) return CB_OK;
    if (error.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION) return fail_memory(0);
    return fail(CB_ERR_ARGUMENT, "safetensors_save: '%.80s' is not a name: %s", name, error.msg);
}

static bool not_json(const cb_safetensors *file, size_t place, const char *why) {
    return refuse(file, "the header is not JSON, from byte %zu on: %s", place, why);
}

/* Where \u0000 stands, which is JSON but would end a name; length when nowhere. */
static size_t find_nul(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (text[i] != '\\') continue;
        if (length - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) return i;
        i++;
    }
    return length;
}

/* One value of the header at a time, so that a hostile one of 100 MB takes no gigabytes. */
static bool parse_json(cb_safetensors *file, const char *text, size_t length, size_t place) {
    yyjson_read_err error;
    size_t nul = find_nul(text, length);
    if (nul < length) return refuse(file, "a NUL at byte %zu of the header", place + nul);
    file->json = read_json(text, length, &error);
    if (file->json) return true;
    if (error.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION) return fail_memory(0), false;
    return not_json(file, place + error.pos, error.msg);
}

static void release_json(cb_safetensors *file) {
    yyjson_doc_free(file->json);
    file->json = NULL;
}

static bool parse_integer(yyjson_val *item, int64_t *out) {
    if (!yyjson_is_uint(item) || yyjson_get_uint(item) > INT64_MAX) return false;
    *out = (int64_t)yyjson_get_uint(item);
    return true;
}

static bool parse_dtype(const cb_safetensors *file, SafeEntry *entry, yyjson_val *item) {
    if (!yyjson_is_str(item)) return refuse(file, "'%.80s': dtype is not a text", entry->name);
    for (cb_dtype i = 0; i < CB_DTYPE_COUNT; i++) {
        if (!yyjson_equals_str(item, dtype_info(i)->safetensors)) continue;
        entry->meta.dtype = i;
        return true;
    }
    char known[128] = "";
    for (cb_dtype i = CB_DTYPE_COUNT - 1; i >= 0; i--) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, " %s", dtype_info(i)->safetensors);
    }
    fail(CB_ERR_DTYPE, "safetensors: %s: '%.80s': dtype '%.40s' is not supported; there are%s",
         file->path, entry->name, yyjson_get_str(item), known);
    return false;
}

static bool parse_shape(const cb_safetensors *file, SafeEntry *entry, yyjson_val *item) {
    if (!yyjson_is_arr(item)) return refuse(file, "'%.80s': shape is not a list", entry->name);
    int rank = 0;
    size_t i, count;
    yyjson_val *size;
    yyjson_arr_foreach(item, i, count, size) {
        if (rank == CB_MAX_RANK)
            return refuse(file, "'%.80s': more than %d dimensions", entry->name, CB_MAX_RANK);
        if (!parse_integer(size, &entry->meta.size[rank++]))
            return refuse(file, "'%.80s': shape holds a bad size", entry->name);
    }
    entry->meta.rank = (uint8_t)rank;
    return true;
}

static bool parse_offsets(const cb_safetensors *file, SafeEntry *entry, yyjson_val *item) {
    if (yyjson_arr_size(item) != 2 || !parse_integer(yyjson_arr_get(item, 0), &entry->begin) ||
        !parse_integer(yyjson_arr_get(item, 1), &entry->end))
        return refuse(file, "'%.80s': data_offsets is not a pair of offsets", entry->name);
    if (entry->begin <= entry->end) return true;
    return refuse(file, "'%.80s': data_offsets end before they begin", entry->name);
}

static bool parse_entry(const cb_safetensors *file, SafeEntry *entry, yyjson_val *item) {
    static const char *const key[] = {"dtype", "shape", "data_offsets"};
    int seen = 0;
    size_t number, count;
    yyjson_val *name, *field;
    if (!yyjson_is_obj(item)) return refuse(file, "'%.80s' is not an object", entry->name);
    yyjson_obj_foreach(item, number, count, name, field) {
        int i = 0;
        while (i < 3 && !yyjson_equals_str(name, key[i])) i++;
        if (i == 3 || seen & (1 << i))
            return refuse(file, "'%.80s': %s key '%.40s'", entry->name,
                          i == 3 ? "unexpected" : "repeated", yyjson_get_str(name));
        seen |= 1 << i;
        if (i == 0 && !parse_dtype(file, entry, field)) return false;
        if (i == 1 && !parse_shape(file, entry, field)) return false;
        if (i == 2 && !parse_offsets(file, entry, field)) return false;
    }
    for (int i = 0; i < 3; i++)
        if (!(seen & (1 << i))) return refuse(file, "'%.80s' has no %s", entry->name, key[i]);
    return true;
}

static bool parse_metadata(cb_safetensors *file, yyjson_val *item) {
    if (file->metadata) return refuse(file, "repeated key '__metadata__'");
    if (!yyjson_is_obj(item)) return refuse(file, "__metadata__ is not an object");
    size_t number, count = yyjson_obj_size(item);
    yyjson_val *name, *field;
    file->metadata = arena_zalloc(file->arena, sizeof *file->metadata * (count + 1));
    Map known = map_new(file->arena);
    yyjson_obj_foreach(item, number, count, name, field) {
        const char *key = yyjson_get_str(name);
        if (!yyjson_is_str(field)) return refuse(file, "__metadata__: '%.40s' is not a text", key);
        uint64_t hash = hash_text(key);
        for (MapEntry *e = map_first(&known, hash); e; e = map_next(e))
            if (strcmp(e->value, key) == 0) /* untested: other names have other hashes */
                return refuse(file, "__metadata__: repeated key '%.40s'", key);
        map_put(&known, hash, (void *)key);
        const char **pair = file->metadata[file->metadata_count++];
        pair[0] = arena_text(file->arena, key);
        pair[1] = arena_text(file->arena, yyjson_get_str(field));
    }
    return true;
}

/* ---- the object ----------------------------------------------------------------------------- */

/* Where in the header's text. */
typedef struct HeaderReader {
    cb_safetensors *file;
    const char *text;
    size_t at, length;
} HeaderReader;

/* The next character that is no space; NUL at the end. */
static char peek(HeaderReader *r) {
    while (r->at < r->length && memchr(" \t\n\r", r->text[r->at], 4)) r->at++;
    return r->at < r->length ? r->text[r->at] : '\0';
}

static bool expect(HeaderReader *r, char wanted) {
    if (peek(r) != wanted)
        return refuse(r->file, "the header is not JSON, from byte %zu on: no '%c'", r->at, wanted);
    r->at++;
    return true;
}

static size_t string_end(const HeaderReader *r, size_t at) {
    for (at++; at < r->length && r->text[at] != '"'; at++)
        if (r->text[at] == '\\') at++;
    return at + 1;
}

/* The end of the value that begins here, as far as brackets and quotes tell. */
static size_t value_end(const HeaderReader *r) {
    int depth = 0;
    for (size_t at = r->at; at < r->length; at++) {
        char c = r->text[at];
        if (c == '"') {
            at = string_end(r, at) - 1;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0) return at;
            depth--;
        } else if (c == ',' && depth == 0) {
            return at;
        }
        if (depth == 0 && memchr("\"}]", c, 3)) return at + 1;
    }
    return r->length;
}

static bool parse_value(HeaderReader *r, size_t end, size_t most, const char *what) {
    size_t place = r->at;
    r->at = end;
    if (end > r->length) return not_json(r->file, place, "it ends within a text");
    if (end == place) return not_json(r->file, place, "a value is missing");
    if (end - place > most)
        return refuse(r->file, "%.40s has a description of %zu bytes", what, end - place);
    return parse_json(r->file, r->text + place, end - place, place);
}

/* "name": {...}; a tensor takes some hundred bytes. */
static bool parse_member(HeaderReader *r) {
    enum { TENSOR_LIMIT = 1 << 12, METADATA_LIMIT = 1 << 24 };
    cb_safetensors *file = r->file;
    if (peek(r) != '"') return expect(r, '"');
    if (!parse_value(r, string_end(r, r->at), r->length, "a name")) return false;
    SafeEntry entry = {
        .name = arena_text(file->arena, yyjson_get_str(yyjson_doc_get_root(file->json)))};
    release_json(file);
    bool metadata = strcmp(entry.name, "__metadata__") == 0;
    if (!expect(r, ':')) return false;
    peek(r);
    if (!parse_value(r, value_end(r), metadata ? METADATA_LIMIT : TENSOR_LIMIT, entry.name))
        return false;
    bool fine = metadata ? parse_metadata(file, yyjson_doc_get_root(file->json))
                         : parse_entry(file, &entry, yyjson_doc_get_root(file->json));
    release_json(file);
    if (fine && !metadata) push(file->arena, file->entry, entry);
    return fine;
}

static bool parse_entries(cb_safetensors *file, const char *text, size_t bytes) {
    HeaderReader r = {file, text, 1, bytes};
    bool more = peek(&r) != '}';
    while (more) {
        if (!parse_member(&r)) return false;
        more = peek(&r) == ',';
        if (more) r.at++;
    }
    if (!expect(&r, '}')) return false;
    peek(&r);
    file->count = length(file->entry);
    if (r.at == r.length) return true;
    return refuse(file, "the header goes on after its object");
}

/* ---- the tensors among each other ----------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const SafeEntry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool check_size(const cb_safetensors *file, const SafeEntry *entry) {
    int64_t bytes = (int64_t)cb_dtype_size(entry->meta.dtype);
    bool empty = false;
    for (int i = 0; i < entry->meta.rank; i++) empty = empty || entry->meta.size[i] == 0;
    for (int i = 0; i < entry->meta.rank && !empty; i++)
        if (__builtin_mul_overflow(bytes, entry->meta.size[i], &bytes))
            return refuse(file, "'%.80s': the shape is too large", entry->name);
    if (empty) bytes = 0;
    if (entry->end - entry->begin == bytes) return true;
    return refuse(file, "'%.80s': %" PRId64 " bytes of data for a shape of %" PRId64 " bytes",
                  entry->name, entry->end - entry->begin, bytes);
}

static bool check_names(cb_safetensors *file) {
    file->names = map_new(file->arena);
    for (int i = 0; i < file->count; i++) {
        SafeEntry *entry = &file->entry[i];
        if (safetensors_find(file, entry->name))
            return refuse(file, "repeated key '%.200s'", entry->name);
        map_put(&file->names, hash_text(entry->name), entry);
    }
    return true;
}

static bool check_places(cb_safetensors *file, const uint8_t *data, int64_t there) {
    int64_t at = 0;
    for (int i = 0; i < file->count; i++) {
        SafeEntry *entry = &file->entry[i];
        if (entry->end > there)
            return refuse(file,
                          "'%.80s' ends at byte %" PRId64 " of %" PRId64
                          " bytes of data: the file is truncated or tampered with",
                          entry->name, entry->end, there);
        if (entry->begin != at)
            return refuse(file, "'%.80s' %s", entry->name,
                          entry->begin < at ? "overlaps the tensor before it"
                                            : "leaves a hole before it");
        if (!check_size(file, entry)) return false;
        at = entry->end;
        entry->data = data + entry->begin;
    }
    if (at == there) return true;
    return refuse(file, "%" PRId64 " bytes after the last tensor", there - at);
}

/* ---- the checksum --------------------------------------------------------------------------- */

/* One blank, as no writer of JSON has it alone: who writes a file anew with our metadata in it,
 * which say nothing of his tensors, has none or one behind every comma and colon. */
const char safetensors_opening[] = "{\"__metadata__\":{\"format\":\"pt\", \"carbide_xxh3\":\"";

uint64_t safetensors_sum(uint64_t sum, const void *bytes, size_t count) {
    enum { BLOCK = 1 << 14 };
    for (const char *at = bytes; count;) {
        size_t block = count < BLOCK ? count : BLOCK;
        sum = hash_bytes(at, block, sum);
        at += block, count -= block;
    }
    return sum;
}

/* A file of others has none, or does not begin as ours: nothing is compared then. */
static bool check_sum(const cb_safetensors *file, const char *text, size_t bytes) {
    size_t opening = strlen(safetensors_opening);
    if (bytes < opening + 16 || memcmp(text, safetensors_opening, opening) != 0) return true;
    const char *behind = text + opening + 16;
    uint64_t sum = safetensors_sum(0, behind, (size_t)(text + bytes - behind));
    for (int i = 0; i < file->count; i++)
        sum = safetensors_sum(sum, file->entry[i].data,
                              (size_t)(file->entry[i].end - file->entry[i].begin));
    char digits[17];
    snprintf(digits, sizeof digits, "%016" PRIx64, sum);
    if (memcmp(text + opening, digits, 16) == 0) return true;
    return refuse(file, "the checksum is that of other bytes: the file is damaged");
}

static bool read_header(cb_safetensors *file) {
    uint64_t length = 0;
    if (file->size < LENGTH_BYTES) return refuse(file, "the file is truncated: no header");
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)file->bytes[i] << (8 * i);
    if (length > HEADER_LIMIT)
        return refuse(file, "a header of %" PRIu64 " bytes is longer than %d: no safetensors file",
                      length, HEADER_LIMIT);
    if (length > file->size - LENGTH_BYTES)
        return refuse(file, "the file is truncated: %zu bytes, with a header of %" PRIu64,
                      file->size, length);
    const char *text = (const char *)file->bytes + LENGTH_BYTES;
    if (!length || *text != '{') return refuse(file, "the header does not start with '{'");
    if (!parse_entries(file, text, (size_t)length)) return false;
    if (file->count) qsort(file->entry, (size_t)file->count, sizeof *file->entry, by_place);
    size_t start = LENGTH_BYTES + (size_t)length;
    return check_names(file) &&
           check_places(file, file->bytes + start, (int64_t)(file->size - start)) &&
           check_sum(file, text, (size_t)length);
}

/* Memory that runs out here jumps back: the JSON hangs in file, where closing finds it. */
static bool guarded(cb_safetensors *file) {
    if (!arena_guard(file->arena)) return read_header(file);
    fail_memory(0);
    return false;
}

cb_safetensors *safetensors_parse(const char *path, const void *bytes, size_t size) {
    Arena *arena = arena_new();
    cb_safetensors *file = memory_zalloc(sizeof *file);
    if (!arena || !file) {
        arena_free(arena);
        memory_free(file);
        fail_memory(sizeof *file);
        return NULL;
    }
    *file = (cb_safetensors){.arena = arena, .path = path, .bytes = bytes, .size = size};
    bool fine = guarded(file);
    release_json(file);
    file->path = NULL;
    if (fine) return file;
    cb_safetensors_close(file);
    return NULL;
}
