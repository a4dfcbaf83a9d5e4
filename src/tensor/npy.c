/* NumPy's .npy files: one array each.
 *
 * A file is "\x93NUMPY", the version, the header's length, a header that is a Python dict literal
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 * and the elements. Loading believes nothing: the header must parse, and the file must be exactly
 * as long as it says, before anything of that size is allocated. Saving writes a new file and
 * renames it, so that path holds the old array or the new one, never a part. */
#include "tensor/read.h"

#include "base/file.h"
#include "base/memory.h"
#include "tensor/place.h"
#include "tensor/tracer.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC = 8 /* with the version */, HEADER_LIMIT = 65536, CHUNK = 1 << 16 };

static const char magic[] = "\x93NUMPY";

/* ---- the header: a dict literal -------------------------------------------------------------- */

typedef struct Header {
    const char *path;
    const char *at; /* what is left, NUL-terminated */
    Meta meta;
    bool fortran;
} Header;

static bool refuse(const char *path, const char *why) {
    fail(CB_ERR_IO, "npy_load: %s: %s", path, why);
    return false;
}

/* Skips blanks, then text if it comes next. */
static bool accept(Header *h, const char *text) {
    h->at += strspn(h->at, " \t\n");
    size_t length = strlen(text);
    if (strncmp(h->at, text, length)) return false;
    h->at += length;
    return true;
}

/* A quoted text without escapes. */
static bool parse_quoted(Header *h, char *out, size_t bytes) {
    h->at += strspn(h->at, " \t\n");
    char quote = *h->at;
    if (quote != '\'' && quote != '"') return false;
    const char *end = strchr(h->at + 1, quote);
    if (!end || (size_t)(end - h->at) > bytes) return false;
    size_t length = (size_t)(end - h->at) - 1;
    memcpy(out, h->at + 1, length);
    out[length] = '\0';
    h->at = end + 1;
    return true;
}

static bool parse_descr(Header *h) {
    char descr[16];
    if (!parse_quoted(h, descr, sizeof descr))
        return refuse(h->path, "'descr' is not a simple dtype (records are not supported)");
    char names[64] = "";
    for (cb_dtype i = CB_DTYPE_COUNT - 1; i >= 0; i--) {
        const char *known = dtype_info(i)->npy;
        if (!known) continue;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, " %s", known);
        if (strcmp(known + 1, descr + (descr[0] != '\0'))) continue;
        /* The order of one byte does not matter; '=' is the writer's own, taken for ours. */
        if (descr[0] != known[0] && descr[0] != '=' &&
            (known[0] == '<' || !strchr("<>|", descr[0])))
            continue;
        h->meta.dtype = i;
        return true;
    }
    fail(CB_ERR_DTYPE, "npy_load: %s: dtype '%s' is not supported; there are%s", h->path, descr,
         names);
    return false;
}

static bool parse_size(Header *h, int64_t *size) {
    h->at += strspn(h->at, " \t\n");
    const char *digits = h->at;
    *size = 0;
    for (; *h->at >= '0' && *h->at <= '9'; h->at++)
        if (__builtin_mul_overflow(*size, 10, size) ||
            __builtin_add_overflow(*size, *h->at - '0', size))
            return false;
    return h->at != digits;
}

/* (), (3,), (2, 3) or (2, 3,) */
static bool parse_shape(Header *h) {
    if (!accept(h, "(")) return refuse(h->path, "'shape' is not a tuple");
    int rank = 0;
    for (bool more = true; !accept(h, ")");) {
        int64_t size;
        if (!more || !parse_size(h, &size)) return refuse(h->path, "'shape' holds a bad size");
        if (rank == CB_MAX_RANK) return refuse(h->path, "more than 8 dimensions");
        h->meta.size[rank++] = size;
        more = accept(h, ",");
    }
    h->meta.rank = (uint8_t)rank;
    return true;
}

static bool parse_order(Header *h) {
    h->fortran = accept(h, "True");
    if (h->fortran || accept(h, "False")) return true;
    return refuse(h->path, "'fortran_order' is not a bool");
}

static bool parse_header(Header *h) {
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    int seen = 0;
    if (!accept(h, "{")) return refuse(h->path, "the header is not a dict");
    while (!accept(h, "}")) {
        char key[32];
        if (!parse_quoted(h, key, sizeof key) || !accept(h, ":"))
            return refuse(h->path, "the header does not parse");
        int item = !strcmp(key, "descr")           ? DESCR
                   : !strcmp(key, "fortran_order") ? ORDER
                   : !strcmp(key, "shape")         ? SHAPE
                                                   : 0;
        if (!item || (seen & item)) return refuse(h->path, "the header has an unexpected key");
        seen |= item;
        if (item == DESCR && !parse_descr(h)) return false;
        if (item == ORDER && !parse_order(h)) return false;
        if (item == SHAPE && !parse_shape(h)) return false;
        if (accept(h, ",")) continue;
        if (!accept(h, "}")) return refuse(h->path, "the header does not parse");
        break;
    }
    if (seen != (DESCR | ORDER | SHAPE)) return refuse(h->path, "the header lacks a key");
    accept(h, "");
    if (!*h->at) return true;
    return refuse(h->path, "the header goes on after its dict");
}

/* ---- load ------------------------------------------------------------------------------------ */

/* Exactly bytes, or false with an error. */
static bool read_all(int file, const char *path, void *out, size_t bytes) {
    char *to = out;
    while (bytes) {
        ssize_t got = read(file, to, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return refuse(path, strerror(errno));
        if (got == 0) return refuse(path, "the file is truncated");
        to += got;
        bytes -= (size_t)got;
    }
    return true;
}

/* Reads up to the first element; returns the header's whole size, or 0 with an error. */
static size_t read_header(int file, Header *h, char *text) {
    unsigned char start[MAGIC + 4];
    if (!read_all(file, h->path, start, MAGIC)) return 0;
    if (memcmp(start, magic, 6)) return refuse(h->path, "not an npy file");
    if (start[6] < 1 || start[6] > 3) return refuse(h->path, "an unknown version of the format");
    size_t width = start[6] == 1 ? 2 : 4;
    if (!read_all(file, h->path, start + MAGIC, width)) return 0;
    size_t length = 0;
    for (size_t i = 0; i < width; i++) length |= (size_t)start[MAGIC + i] << (8 * i);
    if (length >= HEADER_LIMIT) return refuse(h->path, "the header is too long");
    if (!read_all(file, h->path, text, length)) return 0;
    text[length] = '\0';
    if (strlen(text) != length) return refuse(h->path, "the header holds a NUL");
    h->at = text;
    return parse_header(h) ? MAGIC + width + length : 0;
}

/* The file is as long as its header says. */
static bool check_length(int file, const Header *h, size_t start) {
    int64_t bytes = (int64_t)cb_dtype_size(h->meta.dtype);
    bool empty = false;
    for (int i = 0; i < h->meta.rank; i++) {
        if (h->meta.size[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(bytes, h->meta.size[i], &bytes))
            return refuse(h->path, "the shape is too large");
    }
    if (empty) bytes = 0;
    struct stat status;
    if (fstat(file, &status)) return refuse(h->path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return refuse(h->path, "not a regular file");
    int64_t there = (int64_t)status.st_size - (int64_t)start;
    if (there < bytes)
        return refuse(h->path, "the file is truncated: it is shorter than its shape");
    if (there == bytes) return true;
    return refuse(h->path, "the file is longer than its shape");
}

static Tensor *read_tensor(int file, Header *h) {
    if (h->fortran)
        for (int i = 0, j = h->meta.rank - 1; i < j; i++, j--) {
            int64_t size = h->meta.size[i];
            h->meta.size[i] = h->meta.size[j];
            h->meta.size[j] = size;
        }
    Tensor *x = tensor_new(&h->meta); /* of the host */
    if (!x) return NULL;
    size_t bytes = tensor_span_bytes(x);
    uint8_t *data = tensor_data(x);
    if (!read_all(file, h->path, data, bytes)) {
        tensor_destroy(x);
        return NULL;
    }
    if (h->meta.dtype == CB_BOOL)
        for (size_t i = 0; i < bytes; i++) data[i] = data[i] != 0;
    if (!h->fortran || x->rank < 2) return x;
    /* Column order is row order of the reversed shape: a view with everything reversed. */
    Meta meta = h->meta;
    int64_t stride[CB_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        meta.size[i] = x->size[x->rank - 1 - i];
        stride[i] = x->stride[x->rank - 1 - i];
    }
    Tensor *y = tensor_view_of(x, &meta, stride, 0);
    tensor_destroy(x);
    return y;
}

cb_tensor *cb_npy_load(const char *path) {
    if (!path) {
        fail(CB_ERR_ARGUMENT, "npy_load: path is NULL");
        return NULL;
    }
    int file =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a pipe's writer */
    if (file < 0) {
        refuse(path, strerror(errno));
        return NULL;
    }
    Tensor *x = NULL;
    char *text = memory_alloc(HEADER_LIMIT);
    if (text) {
        Header h = {.path = path};
        size_t start = read_header(file, &h, text);
        if (start && check_length(file, &h, start)) x = read_tensor(file, &h);
    } else {
        fail_memory(HEADER_LIMIT);
    }
    memory_free(text);
    close(file);
    return tensor_out(tensor_placed(x));
}

/* ---- save ------------------------------------------------------------------------------------ */

/* The text that NumPy writes, with the element data starting at a multiple of 64. */
static size_t format_header(const Tensor *x, char *out, size_t bytes) {
    const char *descr = dtype_info(x->dtype)->npy;
    char shape[CB_MAX_RANK * 24] = "";
    size_t used = 0;
    for (int i = 0; i < x->rank; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRId64, i ? ", " : "",
                                 x->size[i]);
    int length = snprintf(out + MAGIC + 2, bytes - MAGIC - 2,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }", descr,
                          shape, x->rank == 1 ? "," : "");
    size_t end = MAGIC + 2 + (size_t)length;
    size_t total = (end + 1 + 63) / 64 * 64;
    memset(out + end, ' ', total - end - 1);
    out[total - 1] = '\n';
    memcpy(out, magic, 6);
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)((total - MAGIC - 2) & 255);
    out[9] = (char)((total - MAGIC - 2) >> 8);
    return total;
}

static bool write_content(int file, void *user) {
    char header[512];
    return file_write(file, header, format_header(user, header, sizeof header)) &&
           tensor_write(file, user);
}

cb_status cb_npy_save(const char *path, cb_tensor *handle) {
    Tensor *x = tensor_in(handle, "npy_save");
    if (!path) return fail(CB_ERR_ARGUMENT, "npy_save: path is NULL");
    if (!tensor_request(x, "npy_save")) return cb_error_status();
    if (!dtype_info(x->dtype)->npy)
        return fail(CB_ERR_DTYPE,
                    "npy_save: the npy format has no %s: convert with cb_to(x, CB_F32) first",
                    cb_dtype_name(x->dtype));
    if (file_save(path, write_content, x)) return CB_OK;
    return fail_file("npy_save", path);
}
