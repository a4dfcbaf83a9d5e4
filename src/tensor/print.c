/* Tensors as text, character for character as PyTorch prints them.
 *
 * Up to 1000 elements are shown in full, of larger tensors the first and last three along every
 * dimension. One layout serves all shown elements: their common width, and for floats one of whole
 * numbers ("1."), four digits ("1.5000") or scientific ("1.5000e+00"), chosen from the finite
 * nonzero ones.
 *
 *     tensor([[1.0000, 2.5000],
 *             [0.0000,    nan]], dtype=torch.float64)
 *
 * But for one thing: a result that requires a gradient says so as a leaf does, requires_grad=True,
 * where PyTorch names its grad_fn. */
#include "tensor/read.h"

#include "base/buffer.h"
#include "tensor/place.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    EDGE = 3,
    THRESHOLD = 1000,
    LINE_WIDTH = 80,
    ELEMENT_TEXT = 352,
    INDENT = 7 /* "tensor(" */
};

typedef struct PrintFormat {
    const Tensor *x;
    bool summarize, floating;
    bool whole; /* every finite element is an integer */
    bool scientific;
    int width;
    double low, high; /* magnitudes of the finite nonzero elements; low > high: there are none */
} PrintFormat;

typedef void VisitElement(PrintFormat *layout, Scalar element);

/* ---- which elements are shown ---------------------------------------------------------------- */

static bool cut(const PrintFormat *layout, int dim) {
    return layout->summarize && layout->x->size[dim] > 2 * EDGE;
}

static int64_t shown(const PrintFormat *layout, int dim) {
    return cut(layout, dim) ? 2 * EDGE : layout->x->size[dim];
}

/* The index of the k-th shown one. */
static int64_t shown_index(const PrintFormat *layout, int dim, int64_t k) {
    return cut(layout, dim) && k >= EDGE ? layout->x->size[dim] - 2 * EDGE + k : k;
}

static Scalar element(const PrintFormat *layout, int64_t position) {
    cb_dtype dtype = layout->x->dtype;
    const char *data = tensor_data(layout->x);
    return scalar_load(data + position * (int64_t)cb_dtype_size(dtype), dtype);
}

static void visit_shown(PrintFormat *layout, int dim, int64_t position, VisitElement *visit) {
    const Tensor *x = layout->x;
    if (dim == x->rank) {
        visit(layout, element(layout, position));
        return;
    }
    for (int64_t k = 0; k < shown(layout, dim); k++)
        visit_shown(layout, dim + 1, position + shown_index(layout, dim, k) * x->stride[dim],
                    visit);
}

/* ---- elements -------------------------------------------------------------------------------- */

/* "1,5000" of a German locale becomes "1.5000". */
static void normalize_point(char *text) {
    char *point = text + strspn(text, "-0123456789");
    size_t length = strcspn(point, "0123456789e");
    *point = '.';
    memmove(point + 1, point + length, strlen(point + length) + 1);
}

static void format_double(const PrintFormat *layout, double value, char *text, size_t bytes) {
    if (isnan(value))
        snprintf(text, bytes, "nan"); /* C may say -nan */
    else if (isinf(value))
        snprintf(text, bytes, value < 0 ? "-inf" : "inf");
    else if (layout->scientific)
        snprintf(text, bytes, "%.4e", value);
    else if (layout->whole)
        snprintf(text, bytes, "%.0f.", value);
    else
        snprintf(text, bytes, "%.4f", value);
    if (isfinite(value)) normalize_point(text);
}

static void format_element(const PrintFormat *layout, Scalar value, char *text, size_t bytes) {
    if (layout->floating)
        format_double(layout, value.f, text, bytes);
    else if (layout->x->dtype == CB_BOOL)
        snprintf(text, bytes, value.i ? "True" : "False");
    else
        snprintf(text, bytes, "%" PRId64, value.i);
}

static void put_element(const PrintFormat *layout, int64_t position, Buffer *out) {
    char text[ELEMENT_TEXT];
    format_element(layout, element(layout, position), text, sizeof text);
    putf(out, "%*s", layout->width, text);
}

/* ---- the layout ------------------------------------------------------------------------------ */

static void note_range(PrintFormat *layout, Scalar value) {
    double magnitude = fabs(value.f);
    if (!isfinite(magnitude) || magnitude == 0.0) return;
    if (magnitude < layout->low) layout->low = magnitude;
    if (magnitude > layout->high) layout->high = magnitude;
    if (value.f != ceil(value.f)) layout->whole = false;
}

/* Zeros, infinities and NaN have no say in the width of floats, as in PyTorch. */
static void note_width(PrintFormat *layout, Scalar value) {
    if (layout->floating && (!isfinite(value.f) || value.f == 0.0)) return;
    char text[ELEMENT_TEXT];
    format_element(layout, value, text, sizeof text);
    int width = (int)strlen(text);
    if (width > layout->width) layout->width = width;
}

static PrintFormat choose_layout(const Tensor *x) {
    PrintFormat layout = {.x = x, .whole = true, .width = 1, .low = INFINITY};
    layout.summarize = cb_numel(x) > THRESHOLD;
    layout.floating = dtype_is_float(x->dtype);
    if (layout.floating) visit_shown(&layout, 0, 0, note_range);
    if (layout.low <= layout.high)
        layout.scientific =
            layout.high / layout.low > 1000.0 || layout.high > 1e8 || layout.low < 1e-4;
    visit_shown(&layout, 0, 0, note_width);
    return layout;
}

/* ---- brackets -------------------------------------------------------------------------------- */

static void put_row(const PrintFormat *layout, int64_t position, int indent, Buffer *out) {
    int dim = layout->x->rank - 1;
    int64_t count = shown(layout, dim), stride = layout->x->stride[dim];
    int per_line = (LINE_WIDTH - indent) / (layout->width + 2); /* at least 2: width is below 22 */
    int entries = 0;                                            /* on this line; the dots are one */
    put(out, "[");
    for (int64_t k = 0; k < count; k++) {
        for (int dots = k == EDGE && cut(layout, dim); dots >= 0; dots--) {
            if (entries == per_line) {
                putf(out, ",\n%*s", indent + 1, "");
                entries = 0;
            } else if (k) {
                put(out, ", ");
            }
            if (dots)
                put(out, " ...");
            else
                put_element(layout, position + shown_index(layout, dim, k) * stride, out);
            entries++;
        }
    }
    put(out, "]");
}

static void put_nested(const PrintFormat *layout, int dim, int64_t position, int indent,
                       Buffer *out) {
    int left = layout->x->rank - dim;
    if (left == 0) put_element(layout, position, out);
    if (left == 1) put_row(layout, position, indent, out);
    if (left <= 1) return;
    put(out, "[");
    for (int64_t k = 0; k < shown(layout, dim); k++) {
        for (int dots = k == EDGE && cut(layout, dim); dots >= 0; dots--) {
            if (k) {
                put(out, ",");
                for (int i = 1; i < left; i++) put(out, "\n");
                putf(out, "%*s", indent + 1, "");
            }
            int64_t start = position + shown_index(layout, dim, k) * layout->x->stride[dim];
            if (dots)
                put(out, "...");
            else
                put_nested(layout, dim + 1, start, indent + 1, out);
        }
    }
    put(out, "]");
}

/* ", dtype=torch.float64", on a line of its own where it would pass the line's end. */
static void put_suffix(Buffer *out, const char *suffix, size_t *line) {
    size_t length = strlen(suffix);
    if (*line + length + 2 > LINE_WIDTH) {
        putf(out, ",\n%*s%s", INDENT, "", suffix);
        *line = INDENT + length;
    } else {
        putf(out, ", %s", suffix);
        *line += length + 2;
    }
}

/* x, or a copy of it on the host. PyTorch names the device where it is not the default, and what
 * made a result that requires a gradient: grad_fn, of which nothing is known here. */
static void put_tensor(const Tensor *x, const Tensor *of, Buffer *out) {
    bool empty = cb_numel(x) == 0;
    put(out, "tensor(");
    if (empty) {
        put(out, "[]");
    } else {
        PrintFormat layout = choose_layout(x);
        put_nested(&layout, 0, 0, INDENT, out);
    }
    const char *newline = strrchr(buffer_text(out), '\n');
    size_t line = newline ? strlen(newline) + 1 : out->length + 2;
    if (of->device != device_default()) {
        char text[40];
        snprintf(text, sizeof text, "device='%s'", devices[of->device]->name);
        put_suffix(out, text, &line);
    }
    if (empty && x->rank != 1) {
        Buffer sizes = buffer_new(out->arena);
        put(&sizes, "size=(");
        for (int i = 0; i < x->rank; i++) putf(&sizes, "%s%" PRId64, i ? ", " : "", x->size[i]);
        put(&sizes, ")");
        put_suffix(out, buffer_text(&sizes), &line);
    }
    bool implied = x->dtype == CB_F32 || (!empty && (x->dtype == CB_I64 || x->dtype == CB_BOOL));
    if (!implied) {
        char dtype[40];
        snprintf(dtype, sizeof dtype, "dtype=%s", dtype_info(x->dtype)->torch);
        put_suffix(out, dtype, &line);
    }
    if (of->history) put_suffix(out, "requires_grad=True", &line);
    put(out, ")");
}

/* The text, or NULL: out of memory. */
static const char *format_local(const Tensor *x, const Tensor *of, Arena *arena) {
    if (!arena || arena_guard(arena)) {
        fail_memory(0);
        return NULL;
    }
    Buffer out = buffer_new(arena);
    put_tensor(x, of, &out);
    return buffer_text(&out);
}

static const char *format_tensor(const Tensor *x, Arena *arena) {
    const Tensor *local = tensor_local(x);
    const char *text = local ? format_local(local, x, arena) : NULL;
    if (local) tensor_local_end(local, x);
    return text;
}

size_t cb_format(cb_tensor *handle, char *out, size_t bytes) {
    Tensor *x = tensor_in(handle, "format");
    if (bytes) out[0] = '\0';
    if (!tensor_request(x, "format")) return 0;
    Arena *arena = arena_new();
    const char *text = format_tensor(x, arena);
    size_t length = text ? strlen(text) : 0;
    if (text && bytes) {
        size_t copied = length < bytes ? length : bytes - 1;
        memcpy(out, text, copied);
        out[copied] = '\0';
    }
    arena_free(arena);
    return length;
}

void cb_print(cb_tensor *handle) {
    Tensor *x = tensor_in(handle, "print");
    if (!tensor_request(x, "print")) return;
    Arena *arena = arena_new();
    const char *text = format_tensor(x, arena);
    if (text) printf("%s\n", text);
    arena_free(arena);
}
