/* npy: refused, or a tensor whose elements can be added up. The file is one in memory. */
#define _GNU_SOURCE
#include "target.h"

#include <sys/mman.h>
#include <unistd.h>

static int open_file(char *path, size_t bytes) {
    int file = memfd_create("fuzzed", MFD_CLOEXEC);
    claim(file >= 0, "a file in memory");
    snprintf(path, bytes, "/proc/self/fd/%d", file);
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[64];
    static int file = -1;
    if (file < 0) file = open_file(path, sizeof path);
    claim(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size, "a file");
    cb_scope_open();
    cb_tensor *x = cb_npy_load(path);
    claim_error(x != NULL);
    double *element = x ? malloc(sizeof *element * (size_t)cb_numel(x) + 1) : NULL;
    if (x) claim(element && cb_read(x, element, CB_F64) == CB_OK, "elements that can be read");
    free(element);
    cb_scope_close();
    return 0;
}
