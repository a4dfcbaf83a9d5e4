/* The header of a safetensors file, read and doubted.
 *
 * In:  bytes: u64 length N (little endian), N bytes of JSON, then data.
 * Out: a table of entries in the order of their data, each inside the file.
 * Invariants checked: the header fits, is UTF-8 without NUL, and is a JSON object; every tensor has
 * exactly dtype, shape and data_offsets; sizes are the product of the shape; no name comes twice;
 * the data lies without holes, without overlaps, from the header's end to the file's.
 *
 *     {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}} */
#include "io/safetensors.h"

#include "base/error.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/vec.h"
#include <cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, HEADER_LIMIT = 100 * 1000 * 1000 };

const char *const safetensors_dtypes[CB_DTYPE_COUNT] = {
    [CB_BOOL] = "BOOL", [CB_U8] = "U8",   [CB_I8] = "I8",     [CB_I16] = "I16", [CB_I32] = "I32",
    [CB_I64] = "I64",   [CB_F16] = "F16", [CB_BF16] = "BF16", [CB_F32] = "F32", [CB_F64] = "F64",
};

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

/* ---- text ----------------------------------------------------------------------------------- */

/* Bytes of the character at text, 0 when they are not the shortest form of a Unicode scalar. */
static size_t character(const uint8_t *text, size_t length) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t first = text[0];
    if (first < 0x80) return 1;
    size_t count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || count > length) return 0;
    uint32_t code = first & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    bool surrogate = code >= 0xd800 && code < 0xe000;
    return code < least[count] || code > 0x10ffff || surrogate ? 0 : count;
}

bool safetensors_utf8(const char *text, size_t length) {
    for (size_t at = 0, step; at < length; at += step) {
        step = character((const uint8_t *)text + at, length - at);
        if (!step) return false;
    }
    return true;
}

/* What the JSON parser would let pass: control characters, and \u0000, which would end a name. */
static bool check_text(const cb_safetensors *file, const char *text, size_t length) {
    if (!safetensors_utf8(text, length)) return refuse(file, "the header is not UTF-8");
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)text[i] < ' ' && !strchr("\t\n\r", text[i]))
            return refuse(file, "a control character at byte %zu of the header", i);
        if (!text[i]) return refuse(file, "a NUL at byte %zu of the header", i);
        if (text[i] != '\\') continue;
        if (length - i > 6 && memcmp(text + i, "\\u0000", 6) == 0)
            return refuse(file, "a NUL at byte %zu of the header", i);
        i++;
    }
    return true;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* cJSON keeps its allocator and the place of its last error in globals. */
static pthread_once_t hooked = PTHREAD_ONCE_INIT;
static bool ran_out; /* of memory, while parsing */

static void *json_alloc(size_t bytes) {
    void *out = memory_alloc(bytes);
    ran_out |= !out;
    return out;
}

static void hook(void) {
    cJSON_Hooks hooks = {json_alloc, memory_free};
    cJSON_InitHooks(&hooks);
}

/* One value of the header at a time, so that a hostile one of 100 MB takes no gigabytes. */
static bool parse_json(cb_safetensors *file, const char *text, size_t length, size_t place) {
    const char *end = text;
    pthread_once(&hooked, hook);
    lock_take(LOCK_json);
    ran_out = false;
    file->json = cJSON_ParseWithLengthOpts(text, length, &end, false);
    bool memory = !ran_out;
    lock_give(LOCK_json);
    if (!memory) return fail_memory(0), false;
    size_t used = (size_t)(end - text);
    if (file->json && used == length) return true;
    return refuse(file, "the header is not JSON, from byte %zu on", place + used);
}

static void release_json(cb_safetensors *file) {
    cJSON_Delete(file->json);
    file->json = NULL;
}

static bool parse_integer(const cJSON *item, int64_t *out) {
    const double most = 9007199254740992.0; /* 2^53: up to here doubles are exact */
    if (!cJSON_IsNumber(item)) return false;
    double value = item->valuedouble;
    if (!(value >= 0 && value <= most) || value != floor(value)) return false;
    *out = (int64_t)value;
    return true;
}

static bool parse_dtype(const cb_safetensors *file, SafeEntry *entry, const cJSON *item) {
    if (!cJSON_IsString(item)) return refuse(file, "'%.80s': dtype is not a text", entry->name);
    for (int i = 0; i < CB_DTYPE_COUNT; i++) {
        if (strcmp(item->valuestring, safetensors_dtypes[i])) continue;
        entry->meta.dtype = (int8_t)i;
        return true;
    }
    fail(CB_ERR_DTYPE,
         "safetensors: %s: '%.80s': dtype '%.40s' is not supported; there are F64 F32 F16 BF16 I64 "
         "I32 I16 I8 U8 BOOL",
         file->path, entry->name, item->valuestring);
    return false;
}

static bool parse_shape(const cb_safetensors *file, SafeEntry *entry, const cJSON *item) {
    if (!cJSON_IsArray(item)) return refuse(file, "'%.80s': shape is not a list", entry->name);
    int rank = 0;
    for (const cJSON *size = item->child; size; size = size->next) {
        if (rank == CB_MAX_RANK)
            return refuse(file, "'%.80s': more than %d dimensions", entry->name, CB_MAX_RANK);
        if (!parse_integer(size, &entry->meta.size[rank++]))
            return refuse(file, "'%.80s': shape holds a bad size", entry->name);
    }
    entry->meta.rank = (uint8_t)rank;
    return true;
}

static bool parse_offsets(const cb_safetensors *file, SafeEntry *entry, const cJSON *item) {
    const cJSON *begin = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *end = begin ? begin->next : NULL;
    if (!end || end->next || !parse_integer(begin, &entry->begin) ||
        !parse_integer(end, &entry->end))
        return refuse(file, "'%.80s': data_offsets is not a pair of offsets", entry->name);
    if (entry->begin <= entry->end) return true;
    return refuse(file, "'%.80s': data_offsets end before they begin", entry->name);
}

static bool parse_entry(const cb_safetensors *file, SafeEntry *entry, const cJSON *item) {
    static const char *const key[] = {"dtype", "shape", "data_offsets"};
    int seen = 0;
    if (!cJSON_IsObject(item)) return refuse(file, "'%.80s' is not an object", entry->name);
    for (const cJSON *field = item->child; field; field = field->next) {
        int i = 0;
        while (i < 3 && strcmp(field->string, key[i])) i++;
        if (i == 3 || seen & (1 << i))
            return refuse(file, "'%.80s': %s key '%.40s'", entry->name,
                          i == 3 ? "unexpected" : "repeated", field->string);
        seen |= 1 << i;
        if (i == 0 && !parse_dtype(file, entry, field)) return false;
        if (i == 1 && !parse_shape(file, entry, field)) return false;
        if (i == 2 && !parse_offsets(file, entry, field)) return false;
    }
    for (int i = 0; i < 3; i++)
        if (!(seen & (1 << i))) return refuse(file, "'%.80s' has no %s", entry->name, key[i]);
    return true;
}

static bool parse_metadata(cb_safetensors *file, const cJSON *item) {
    if (file->metadata) return refuse(file, "repeated key '__metadata__'");
    if (!cJSON_IsObject(item)) return refuse(file, "__metadata__ is not an object");
    int count = cJSON_GetArraySize(item);
    file->metadata = arena_zalloc(file->arena, sizeof *file->metadata * ((size_t)count + 1));
    Map known = map_new(file->arena);
    for (const cJSON *field = item->child; field; field = field->next) {
        if (!cJSON_IsString(field))
            return refuse(file, "__metadata__: '%.40s' is not a text", field->string);
        uint64_t hash = hash_text(field->string);
        for (MapEntry *e = map_first(&known, hash); e; e = map_next(e))
            if (strcmp(e->value, field->string) == 0) /* untested: other names have other hashes */
                return refuse(file, "__metadata__: repeated key '%.40s'", field->string);
        map_put(&known, hash, field->string);
        const char **pair = file->metadata[file->metadata_count++];
        pair[0] = arena_text(file->arena, field->string);
        pair[1] = arena_text(file->arena, field->valuestring);
    }
    return true;
}

/* ---- the object ----------------------------------------------------------------------------- */

/* Where in the header's text. */
typedef struct Reader {
    cb_safetensors *file;
    const char *text;
    size_t at, length;
} Reader;

/* The next character that is no space; NUL at the end. */
static char peek(Reader *r) {
    while (r->at < r->length && strchr(" \t\n\r", r->text[r->at])) r->at++;
    return r->at < r->length ? r->text[r->at] : '\0';
}

static bool expect(Reader *r, char wanted) {
    if (peek(r) != wanted)
        return refuse(r->file, "the header is not JSON, from byte %zu on", r->at);
    r->at++;
    return true;
}

static size_t string_end(const Reader *r, size_t at) {
    for (at++; at < r->length && r->text[at] != '"'; at++)
        if (r->text[at] == '\\') at++;
    return at + 1;
}

/* The end of the value that begins here, as far as brackets and quotes tell. */
static size_t value_end(const Reader *r) {
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
        if (depth == 0 && strchr("\"}]", c)) return at + 1;
    }
    return r->length;
}

static bool parse_value(Reader *r, size_t end, size_t most, const char *what) {
    size_t place = r->at;
    r->at = end;
    if (end > r->length) return refuse(r->file, "the header is not JSON: it ends within a text");
    if (end - place > most)
        return refuse(r->file, "%.40s has a description of %zu bytes", what, end - place);
    return parse_json(r->file, r->text + place, end - place, place);
}

/* "name": {...}; a tensor takes some hundred bytes. */
static bool parse_member(Reader *r) {
    enum { TENSOR_LIMIT = 1 << 12, METADATA_LIMIT = 1 << 24 };
    cb_safetensors *file = r->file;
    if (peek(r) != '"') return expect(r, '"');
    if (!parse_value(r, string_end(r, r->at), r->length, "a name")) return false;
    SafeEntry entry = {.name = arena_text(file->arena, cJSON_GetStringValue(file->json))};
    release_json(file);
    bool metadata = strcmp(entry.name, "__metadata__") == 0;
    if (!expect(r, ':')) return false;
    peek(r);
    if (!parse_value(r, value_end(r), metadata ? METADATA_LIMIT : TENSOR_LIMIT, entry.name))
        return false;
    bool fine = metadata ? parse_metadata(file, file->json) : parse_entry(file, &entry, file->json);
    release_json(file);
    if (fine && !metadata) push(file->arena, file->entry, entry);
    return fine;
}

static bool parse_entries(cb_safetensors *file, const char *text, size_t bytes) {
    Reader r = {file, text, 1, bytes};
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
    int64_t bytes = (int64_t)cb_dtype_size((cb_dtype)entry->meta.dtype);
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
    if (!check_text(file, text, (size_t)length)) return false;
    if (!parse_entries(file, text, (size_t)length)) return false;
    if (file->count) qsort(file->entry, (size_t)file->count, sizeof *file->entry, by_place);
    size_t start = LENGTH_BYTES + (size_t)length;
    return check_names(file) &&
           check_places(file, file->bytes + start, (int64_t)(file->size - start));
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
