/* Artifacts: entries of the kernel cache in one file, for other machines (artifact.c). */
#ifndef CARBIDE_JIT_ARTIFACT_H
#define CARBIDE_JIT_ARTIFACT_H

#include "carbide.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The file: this, as bytes of a little-endian machine, then the fit and the items. */
typedef struct ArtifactHeader {
    char magic[8];  /* ARTIFACT_MAGIC; the last byte is the version of the format */
    uint64_t hash;  /* XXH3 of all that follows it, header and rest */
    uint64_t bytes; /* behind the header */
    uint32_t fit_bytes, items;
} ArtifactHeader;
#define ARTIFACT_MAGIC "CBARTIF\1"

typedef struct ArtifactItem { /* then description and object follow */
    uint32_t text_bytes, reserved;
    uint64_t object_bytes;
} ArtifactItem;

/* How descriptions of what the tuner measured begin (method/tune.c): version, processor. */
#define TUNED_TEXT "carbide %s\ncpu %s\ntuned "

enum { ARTIFACT_ALL, ARTIFACT_LOADED };
/* Of the whole cache, or of the code that is loaded; *count: how many entries. */
cb_status artifacts_save(const char *path, int which, int *count);
cb_status artifacts_load(const char *path, int *count);

#endif
