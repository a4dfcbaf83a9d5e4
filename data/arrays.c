/* Arrays of other programs: IDX, which MNIST comes in, and CSV. (npy: cb_npy_load.)
 *
 *     00 00 08 03  00 00 ea 60  00 00 00 1c  00 00 00 1c  ...   u8[60000, 28, 28]
 *     5.1,3.5,1.4,0.2                                           f64[rows, columns] */
#include "files.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* ---- IDX ------------------------------------------------------------------------------------ */

typedef struct IdxType {
    int code; /* the third byte */
    cb_dtype dtype;
} IdxType;

static bool idx_dtype(const char *path, const MappedFile *file, cb_dtype *dtype) {
    static const IdxType known[] = {{8, CB_U8},   {9, CB_I8},   {11, CB_I16},
                                    {12, CB_I32}, {13, CB_F32}, {14, CB_F64}};
    if (file->count >= 2 && file->at[0] == 0x1f && file->at[1] == 0x8b)
        return data_refuse(CB_ERR_IO, "idx_load: %s: compressed by gzip: gunzip it", path), false;
    if (file->count < 4 || file->at[0] || file->at[1])
        return data_refuse(CB_ERR_IO, "idx_load: %s: not an IDX file", path), false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (file->at[2] == known[i].code) return *dtype = known[i].dtype, true;
    return data_refuse(CB_ERR_IO, "idx_load: %s: elements of type 0x%02x", path, file->at[2]),
           false;
}

/* Sizes are u32, the most significant byte first, and as many as the fourth byte says. */
static bool idx_sizes(const char *path, const MappedFile *file, cb_dim_list *sizes, size_t width) {
    int rank = file->at[3];
    size_t header = 4 + 4 * (size_t)rank, bytes = width;
    if (rank > CB_MAX_RANK || file->count < header)
        return data_refuse(CB_ERR_IO, "idx_load: %s: %d dimensions in %zu bytes", path, rank,
                           file->count),
               false;
    sizes->count = rank;
    bool fits = true;
    for (int i = 0; i < rank; i++) {
        const uint8_t *at = file->at + 4 + 4 * i;
        uint32_t size =
            (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
        sizes->at[i] = size;
        fits = fits && !__builtin_mul_overflow(bytes, (size_t)size, &bytes);
    }
    if (fits && bytes == file->count - header) return true;
    data_refuse(CB_ERR_IO,
                "idx_load: %s: %zu bytes of elements, where the sizes say %s%zu: the file is "
                "truncated or no IDX",
                path, file->count - header, fits ? "" : "more than ", bytes);
    return false;
}

cb_tensor *cb_idx_load(const char *path) {
    MappedFile file;
    cb_dtype dtype;
    cb_dim_list sizes = {0};
    if (!data_map("idx_load", path, &file)) return NULL;
    cb_tensor *x = NULL;
    if (idx_dtype(path, &file, &dtype) && idx_sizes(path, &file, &sizes, cb_dtype_size(dtype))) {
        size_t header = 4 + 4 * (size_t)sizes.count, count = file.count - header,
               width = cb_dtype_size(dtype);
        uint8_t *element = malloc(count + 1);
        if (!element) data_refuse(CB_ERR_MEMORY, "idx_load: %s: out of memory", path);
        for (size_t i = 0; element && i < count; i++) /* turned around */
            element[i] = file.at[header + i / width * width + (width - 1 - i % width)];
        if (element) x = cb_from_data(element, dtype, sizes);
        free(element);
    }
    data_unmap(&file);
    return x;
}

/* ---- CSV ------------------------------------------------------------------------------------ */

typedef struct CsvReader {
    const char *path;
    char separator;
    locale_t c; /* a point is a point, wherever the program runs */
    double *value;
    size_t count, capacity;
    int64_t line, rows, columns;
} CsvReader;

static bool csv_add(CsvReader *reader, double value) {
    if (reader->count == reader->capacity) {
        size_t capacity = reader->capacity ? 2 * reader->capacity : 1024;
        double *grown = realloc(reader->value, capacity * sizeof *grown);
        if (!grown)
            return data_refuse(CB_ERR_MEMORY, "csv_load: %s: out of memory", reader->path), false;
        reader->value = grown, reader->capacity = capacity;
    }
    reader->value[reader->count++] = value;
    return true;
}

static bool csv_field(CsvReader *reader, const char *at, size_t length, int64_t column) {
    char field[64], *end = field;
    while (length && (*at == ' ' || *at == '\t')) at++, length--;
    while (length && (at[length - 1] == ' ' || at[length - 1] == '\t')) length--;
    snprintf(field, sizeof field, "%.*s", (int)(length < 63 ? length : 63), at);
    double value = length && length < sizeof field ? strtod_l(field, &end, reader->c) : 0;
    if (end == field || *end)
        return data_refuse(CB_ERR_IO,
                           "csv_load: %s:%" PRId64 ": value %" PRId64 ", '%s', is not a number",
                           reader->path, reader->line, column, field),
               false;
    return csv_add(reader, value);
}

static bool csv_line(CsvReader *reader, const char *at, const char *end) {
    int64_t column = 1;
    for (const char *stop; at <= end; at = stop + 1, column++) {
        stop = memchr(at, reader->separator, (size_t)(end - at));
        if (!stop) stop = end;
        if (!csv_field(reader, at, (size_t)(stop - at), column)) return false;
    }
    column--;
    if (reader->rows++ == 0) reader->columns = column;
    if (column == reader->columns) return true;
    data_refuse(CB_ERR_IO,
                "csv_load: %s:%" PRId64 ": %" PRId64
                " values, where the lines before have %" PRId64,
                reader->path, reader->line, column, reader->columns);
    return false;
}

/* Empty lines are skipped, and a CR before the end of one is none of its. */
static bool csv_lines(CsvReader *reader, const MappedFile *file, int64_t skip) {
    const char *at = (const char *)file->at, *last = at + file->count;
    for (const char *stop; at < last; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(last - at));
        if (!stop) stop = last;
        const char *end = stop > at && stop[-1] == '\r' ? stop - 1 : stop;
        if (++reader->line > skip && end > at && !csv_line(reader, at, end)) return false;
    }
    if (reader->rows) return true;
    return data_refuse(CB_ERR_IO, "csv_load: %s: there are no rows", reader->path), false;
}

cb_tensor *cb_csv_load(const char *path, char separator, int64_t skip) {
    MappedFile file;
    CsvReader reader = {.path = path, .separator = separator};
    if (!data_map("csv_load", path, &file)) return NULL;
    reader.c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!reader.c) data_refuse(CB_ERR_MEMORY, "csv_load: %s: out of memory", path);
    cb_tensor *x = NULL;
    if (reader.c && csv_lines(&reader, &file, skip))
        x = cb_from_data(reader.value, CB_F64, (cb_dim_list){2, {reader.rows, reader.columns}});
    if (reader.c) freelocale(reader.c);
    free(reader.value);
    data_unmap(&file);
    return x;
}
