/* safetensors inside: an open file as a table of names. */
#ifndef CARBIDE_IO_SAFETENSORS_H
#define CARBIDE_IO_SAFETENSORS_H

#include "base/map.h"
#include "base/tomb.h"
#include "tensor/tensor.h"

typedef struct SafeEntry {
    const char *name;
    Meta meta;
    int64_t begin, end;  /* bytes behind the header */
    const uint8_t *data; /* at any alignment */
} SafeEntry;

struct cb_safetensors {
    Tomb tomb;
    Arena *arena; /* holds all below */
    const char *path;
    const uint8_t *bytes; /* the whole file */
    size_t size;
    bool mapped;
    int count, metadata_count;
    SafeEntry *entry; /* in the order of their data */
    Map names;        /* hash of a name -> SafeEntry */
    const char *(*metadata)[2];
    struct yyjson_doc *json; /* the part of the header that is read */
};

/* Checks a file that stands in memory. path names it in errors; the bytes must outlive the
 * result. */
cb_safetensors *safetensors_parse(const char *path, const void *bytes, size_t size);
const SafeEntry *safetensors_find(const cb_safetensors *file, const char *name);
/* Elements [first, first + count) in row-major order, converted to dtype. Allocates nothing. */
void safetensors_read(const SafeEntry *entry, int64_t first, int64_t count, void *out,
                      cb_dtype dtype);

/* What a file of ours begins with behind its length. 16 hexadecimal digits follow: the checksum of
 * all bytes behind them, the header's and then each tensor's, which opening compares. */
extern const char safetensors_opening[];
/* The checksum of further bytes: XXH3-64 of every 16 KB, seeded with the one before. */
uint64_t safetensors_sum(uint64_t sum, const void *bytes, size_t count);

/* Whether a name, which stands in quotes for the header, can be read back: an error if not. */
cb_status safetensors_check_name(const char *name, const char *quoted, size_t length);

#endif
