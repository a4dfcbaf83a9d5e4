/* safetensors files: opened by mapping, read by name, saved whole or not at all.
 *
 * In:  cb_safetensors_open(path), then cb_safetensors_get(file, "0.weight").
 * Out: copies of the tensors. Saving orders them by element size, so that each lies aligned, and
 *      then by name, as the Python package does; equal state gives equal bytes.
 *
 *     24 00 .. 00 {"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}} 01 02 03
 *
 * A checksum stands in the metadata, where others overlook it. */
#include "io/safetensors.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "tensor/place.h"
#include "tensor/read.h"
#include "tensor/tracer.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 14 };

/* ---- open ------------------------------------------------------------------------------------ */

static const void *map_file(const char *path, size_t *size) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe's writer is not awaited */
    struct stat status;
    const char *why = NULL;
    void *bytes = MAP_FAILED;
    if (file < 0 || fstat(file, &status))
        why = strerror(errno);
    else if (!S_ISREG(status.st_mode))
        why = "not a regular file";
    else if (status.st_size == 0)
        why = "the file is truncated: no header";
    if (!why) {
        *size = (size_t)status.st_size;
        bytes = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes == MAP_FAILED) why = strerror(errno);
    }
    if (file >= 0) close(file);
    if (!why) return bytes;
    fail(CB_ERR_IO, "safetensors: %s: %s", path, why);
    return NULL;
}

cb_safetensors *cb_safetensors_open(const char *path) {
    if (!path) {
        fail(CB_ERR_ARGUMENT, "safetensors_open: path is NULL");
        return NULL;
    }
    size_t size = 0;
    const void *bytes = map_file(path, &size);
    if (!bytes) return NULL;
    cb_safetensors *file = safetensors_parse(path, bytes, size);
    if (file)
        file->mapped = true;
    else
        munmap((void *)bytes, size);
    return file;
}

/* False with an error for a file that is closed. */
static bool is_open(const cb_safetensors *file, const char *what) {
    return file && tomb_lives(&file->tomb, what);
}

void cb_safetensors_close(cb_safetensors *file) {
    if (!is_open(file, "safetensors_close: the file")) return;
    if (file->mapped) munmap((void *)file->bytes, file->size);
    arena_free(file->arena);
    tomb_bury(&file->tomb);
}

int cb_safetensors_count(const cb_safetensors *file) {
    return is_open(file, "safetensors_count: the file") ? file->count : 0;
}

const char *cb_safetensors_name(const cb_safetensors *file, int index) {
    bool there = is_open(file, "safetensors_name: the file") && index >= 0 && index < file->count;
    return there ? file->entry[index].name : NULL;
}

const char *cb_safetensors_metadata(const cb_safetensors *file, const char *key) {
    bool asked = key && is_open(file, "safetensors_metadata: the file");
    for (int i = 0; asked && i < file->metadata_count; i++)
        if (strcmp(file->metadata[i][0], key) == 0) return file->metadata[i][1];
    return NULL;
}

const SafeEntry *safetensors_find(const cb_safetensors *file, const char *name) {
    for (MapEntry *e = map_first(&file->names, hash_text(name)); e; e = map_next(e)) {
        const SafeEntry *entry = e->value;
        if (strcmp(entry->name, name) == 0) return entry; /* untested: others have other hashes */
    }
    return NULL;
}

void safetensors_read(const SafeEntry *entry, int64_t first, int64_t count, void *out,
                      cb_dtype dtype) {
    cb_dtype from = entry->meta.dtype;
    size_t width = cb_dtype_size(from), out_width = cb_dtype_size(dtype);
    const uint8_t *data = entry->data + (size_t)first * width;
    if (from == dtype && from != CB_BOOL) { /* a bool may hold more than 0 and 1 */
        if (count) memcpy(out, data, (size_t)count * width);
        return;
    }
    _Alignas(16) uint8_t aligned[CHUNK];
    Storage storage = {.data = aligned};
    Tensor x = {.storage = &storage, .dtype = from, .rank = 1, .stride = {1}};
    int64_t step = CHUNK / (int64_t)width;
    for (int64_t done = 0; done < count; done += x.size[0]) {
        x.size[0] = count - done < step ? count - done : step;
        memcpy(aligned, data + (size_t)done * width, (size_t)x.size[0] * width);
        if (from == CB_BOOL)
            for (int64_t i = 0; i < x.size[0]; i++) aligned[i] = aligned[i] != 0;
        tensor_read_range(&x, 0, x.size[0], (uint8_t *)out + (size_t)done * out_width, dtype);
    }
}

cb_tensor *cb_safetensors_get(const cb_safetensors *file, const char *name) {
    if (!file || !name) {
        fail(CB_ERR_ARGUMENT, "safetensors_get: NULL");
        return NULL;
    }
    if (!is_open(file, "safetensors_get: the file")) return NULL;
    const SafeEntry *entry = safetensors_find(file, name);
    if (!entry) {
        fail(CB_ERR_ARGUMENT, "safetensors_get: there is no tensor '%s'", name);
        return NULL;
    }
    Tensor *x = tensor_new(&entry->meta);
    if (x) safetensors_read(entry, 0, cb_numel(x), tensor_data(x), x->dtype);
    return tensor_out(tensor_placed(x));
}

/* ---- save ------------------------------------------------------------------------------------ */

typedef struct SavedTensor {
    const char *name;
    const Tensor *tensor;
} SavedTensor;

static int by_width_then_name(const void *a, const void *b) {
    const SavedTensor *x = a, *y = b;
    if (x->tensor->dtype != y->tensor->dtype) {
        size_t p = cb_dtype_size(x->tensor->dtype);
        size_t q = cb_dtype_size(y->tensor->dtype);
        if (p != q) return p > q ? -1 : 1;
        return x->tensor->dtype > y->tensor->dtype ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static void put_quoted(Buffer *out, const char *text) {
    put(out, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putf(out, "\\%c", *text);
        else if ((uint8_t)*text < ' ')
            putf(out, "\\u%04x", *text);
        else
            put_bytes(out, text, 1);
    }
    put(out, "\"");
}

/* The header with its length before it, padded so that the data starts at a multiple of 8. */
static void put_header(Buffer *out, const SavedTensor *item, int count) {
    int64_t at = 0;
    put_bytes(out, "\0\0\0\0\0\0\0\0", 8);
    put(out, safetensors_opening);
    put(out, "0000000000000000\"}");
    for (int i = 0; i < count; i++) {
        const Tensor *x = item[i].tensor;
        int64_t end = at + cb_numel(x) * (int64_t)cb_dtype_size(x->dtype);
        put(out, ",");
        put_quoted(out, item[i].name);
        putf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_info(x->dtype)->safetensors);
        for (int d = 0; d < x->rank; d++) putf(out, "%s%" PRId64, d ? "," : "", x->size[d]);
        putf(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, end);
        at = end;
    }
    put(out, "}");
    while (out->length % 8) put(out, " ");
    uint64_t length = out->length - 8;
    for (int i = 0; i < 8; i++) out->text[i] = (char)(length >> (8 * i) & 255);
}

typedef struct Content {
    Buffer header;
    const SavedTensor *item;
    int count;
} Content;

static bool write_content(int file, void *user) {
    const Content *content = user;
    bool written = file_write(file, content->header.text, content->header.length);
    for (int i = 0; i < content->count && written; i++)
        written = tensor_write(file, content->item[i].tensor);
    return written;
}

static bool take_to_sum(void *user, const void *bytes, size_t count) {
    uint64_t *sum = user;
    *sum = safetensors_sum(*sum, bytes, count);
    return true;
}

/* The checksum, into its place in the header. */
static bool put_sum(Content *content) {
    char digits[17], *to = content->header.text + 8 + strlen(safetensors_opening),
                     *behind = to + 16;
    size_t before = (size_t)(behind - content->header.text);
    uint64_t sum = safetensors_sum(0, behind, content->header.length - before);
    for (int i = 0; i < content->count; i++)
        if (!tensor_hand_over(content->item[i].tensor, take_to_sum, &sum)) return false;
    snprintf(digits, sizeof digits, "%016" PRIx64, sum);
    memcpy(to, digits, 16);
    return true;
}

static cb_status save(Arena *arena, const char *path, SavedTensor *item, int count) {
    if (arena_guard(arena)) return fail_memory(0);
    qsort(item, (size_t)count, sizeof *item, by_width_then_name);
    Content content = {buffer_new(arena), item, count};
    put_header(&content.header, item, count);
    if (!put_sum(&content)) return fail_memory(0);
    if (file_save(path, write_content, &content)) return CB_OK;
    return fail_file("safetensors_save", path);
}

static cb_status check_items(const SavedTensor *item, int count, Arena *arena) {
    if (arena_guard(arena)) return fail_memory(0);
    Map known = map_new(arena);
    for (int i = 0; i < count; i++) {
        const char *name = item[i].name;
        if (!name || strcmp(name, "__metadata__") == 0)
            return fail(CB_ERR_ARGUMENT, "safetensors_save: tensor %d: not a name: %s", i,
                        name ? name : "NULL");
        Buffer quoted = buffer_new(arena);
        put_quoted(&quoted, name);
        if (safetensors_check_name(name, quoted.text, quoted.length)) return cb_error_status();
        uint64_t hash = hash_text(name);
        for (MapEntry *e = map_first(&known, hash); e; e = map_next(e))
            if (strcmp(e->value, name) == 0) /* untested: other names have other hashes */
                return fail(CB_ERR_ARGUMENT, "safetensors_save: repeated name '%s'", name);
        map_put(&known, hash, (void *)name);
        if (!tensor_request((Tensor *)item[i].tensor, "safetensors_save")) return cb_error_status();
    }
    return CB_OK;
}

cb_status cb_safetensors_save(const char *path, const char *const *names, cb_tensor *const *tensors,
                              int count) {
    if (!path || count < 0 || (count && (!names || !tensors)))
        return fail(CB_ERR_ARGUMENT, "safetensors_save: NULL");
    size_t bytes = sizeof(SavedTensor) * ((size_t)count + 1);
    SavedTensor *item = memory_zalloc(bytes);
    Arena *arena = arena_new();
    cb_status status = item && arena ? CB_OK : fail_memory(bytes);
    for (int i = 0; i < count && !status; i++) {
        item[i] = (SavedTensor){names[i], tensor_in(tensors[i], "safetensors_save")};
        if (tensors[i] && !item[i].tensor) status = cb_error_status();
    }
    if (!status) status = check_items(item, count, arena);
    if (!status) status = save(arena, path, item, count);
    arena_free(arena);
    memory_free(item);
    return status;
}
