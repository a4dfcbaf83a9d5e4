/* GPT-2's vocabulary and merges: refused, or a tokenizer that gives back the bytes of any text. The
 * input is both files and a text, with a NUL between; the files are ones in memory. */
#define _GNU_SOURCE
#include "target.h"

#include "carbide_data.h"
#include <sys/mman.h>
#include <unistd.h>

typedef struct MemoryFile {
    int file;
    char path[64];
} MemoryFile;

/* The bytes up to a NUL, or to the end, as a file; what is behind them. */
static const uint8_t *fill(MemoryFile *to, const uint8_t *data, size_t *size) {
    if (!to->file) to->file = memfd_create("fuzzed", MFD_CLOEXEC);
    snprintf(to->path, sizeof to->path, "/proc/self/fd/%d", to->file);
    const uint8_t *end = *size ? memchr(data, 0, *size) : NULL;
    size_t bytes = end ? (size_t)(end - data) : *size;
    claim(ftruncate(to->file, 0) == 0 && pwrite(to->file, data, bytes, 0) == (ssize_t)bytes,
          "a file");
    *size -= bytes + (end != NULL);
    return data + bytes + (end != NULL);
}

static void there_and_back(const cb_tokenizer *tokenizer, const uint8_t *text, size_t size,
                           bool special) {
    int32_t *ids = malloc((size + 1) * sizeof *ids);
    char *back = malloc(size + 1);
    claim(ids && back, "memory");
    int64_t count = cb_tokenizer_encode(tokenizer, (const char *)text, (int64_t)size, special, ids);
    claim(count >= (size > 0) && (size_t)count <= size, "as many tokens as there may be");
    claim(cb_tokenizer_decode(tokenizer, ids, count, back, (int64_t)size + 1) == (int64_t)size,
          "the length");
    claim(size == 0 || memcmp(back, text, size) == 0, "the same bytes");
    free(ids), free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static MemoryFile vocabulary, merges;
    data = fill(&vocabulary, data, &size);
    data = fill(&merges, data, &size);
    cb_tokenizer *read = cb_tokenizer_gpt2(vocabulary.path, merges.path);
    claim_error(read != NULL);
    cb_tokenizer *tokenizer = read ? read : cb_tokenizer_bytes();
    cb_tokenizer_add_special(tokenizer, "<a>");
    there_and_back(tokenizer, data, size, true);
    there_and_back(tokenizer, data, size, false);
    claim_error(true);
    cb_tokenizer_free(tokenizer);
    return 0;
}
