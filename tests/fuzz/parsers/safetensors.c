/* safetensors: refused, or every tensor can be read to its end. */
#include "target.h"

#include "io/safetensors.h"

static void read_all(const cb_safetensors *file) {
    cb_scope_open();
    for (int i = 0; i < cb_safetensors_count(file); i++) {
        const char *name = cb_safetensors_name(file, i);
        claim(cb_safetensors_get(file, name) != NULL, "a tensor that is listed is there");
    }
    cb_scope_close();
    claim(!cb_safetensors_metadata(file, "") || file->metadata_count, "metadata from nowhere");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *bytes = exact_text(data, size);
    cb_safetensors *file = safetensors_parse("fuzzed", bytes, size);
    if (file) read_all(file);
    claim_error(file != NULL);
    cb_safetensors_close(file);
    free(bytes);
    return 0;
}
