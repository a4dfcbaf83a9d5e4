/* Values leave a tensor: value requests, and copies of elements of any strides to any dtype.
 *
 * A request goes through the thread's tracer, which may have to run what it recorded so far.
 * Elements move in runs along the innermost dimension, through blocks of f64 (from floats) or i64
 * (from integers and bool), so that every pair of dtypes is one load loop and one store loop.
 *
 *     x = i32[2, 3] transposed, cb_read(x, out, CB_F32) -> 6 floats, column after column of x */
#include "tensor/read.h"

#include "base/file.h"
#include "tensor/place.h"
#include "tensor/thread.h"
#include "tensor/tracer.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 256 };

const char never_computed[] =
    "was traced, and never computed: it has no value. What another thread or the caller is to have"
    " of it, read before (cb_item, cb_data_const), or compute behind cb_disable_open";

static bool materialize(Tensor *x, TensorAccess access) {
    Tracer *tracer = tracer_current();
    if (tracer && !tracer->materialize(tracer, x, access)) return false;
    if (x->storage) return true;
    char text[128];
    Meta meta = tensor_meta(x);
    meta_format(&meta, text, sizeof text);
    fail(CB_ERR_GRAPH, "a %s %s", text, never_computed);
    return false;
}

const char *asking_begin(const char *what) {
    const char *before = thread_state.asks;
    if (!before) thread_state.asks = what;
    return before;
}

void asking_end(const char *before) { thread_state.asks = before; }

bool tensor_materialize(Tensor *x) { return materialize(x, ACCESS_NOW); }
bool tensor_overwritten(Tensor *x) { return materialize(x, ACCESS_WRITE); }

static bool hand_over_local(const Tensor *x, BytesTaker *take, void *user) {
    if (tensor_contiguous(x)) return take(user, tensor_data(x), tensor_span_bytes(x));
    enum { CHUNK = 1 << 14 };
    _Alignas(16) char chunk[CHUNK];
    size_t width = cb_dtype_size(x->dtype);
    int64_t step = CHUNK / (int64_t)width, total = sizes_numel(x->rank, x->size);
    for (int64_t done = 0; done < total; done += step) {
        int64_t count = total - done < step ? total - done : step;
        tensor_read_range(x, done, count, chunk, x->dtype);
        if (!take(user, chunk, (size_t)count * width)) return false;
    }
    return true;
}

bool tensor_hand_over(const Tensor *x, BytesTaker *take, void *user) {
    const Tensor *local = tensor_local(x);
    bool taken = local && hand_over_local(local, take, user);
    if (local) tensor_local_end(local, x);
    return taken;
}

static bool take_to_file(void *file, const void *bytes, size_t count) {
    return file_write(*(int *)file, bytes, count);
}

bool tensor_write(int file, const Tensor *x) { return tensor_hand_over(x, take_to_file, &file); }

static bool request(Tensor *x, TensorAccess access, const char *what) {
    if (!x) {
        fail(CB_ERR_ARGUMENT, "%s: x is NULL", what);
        return false;
    }
    const char *before = asking_begin(what);
    bool done = materialize(x, access);
    asking_end(before);
    return done;
}

bool tensor_request(Tensor *x, const char *what) { return request(x, ACCESS_NOW, what); }

/* ---- runs: count elements, stride elements apart on the side of the tensor ------------------ */

#define LOAD_LOOP(id, type, expression)                                                            \
    case CB_##id:                                                                                  \
        for (int i = 0; i < count; i++) {                                                          \
            type v = ((const type *)from)[i * stride];                                             \
            to[i] = (expression);                                                                  \
        }                                                                                          \
        break;

static void load_floats(const void *from, cb_dtype dtype, int64_t stride, int count, double *to) {
    switch (dtype) {
#define HALF_ROW(id, name, storage, ...) LOAD_LOOP(id, storage, (double)name##_to_f32(v))
#define FLOAT_ROW(id, name, storage, ...) LOAD_LOOP(id, storage, (double)v)
#include "op/dtype_rows.h"
    default:
        break;
    }
}

static void load_ints(const void *from, cb_dtype dtype, int64_t stride, int count, int64_t *to) {
    switch (dtype) {
#define BOOL_ROW(id, name, storage, ...) LOAD_LOOP(id, storage, v != 0)
#define NARROW_ROW(id, name, storage, ...) LOAD_LOOP(id, storage, v)
#define INTEGER_ROW NARROW_ROW
#include "op/dtype_rows.h"
    default:
        break;
    }
}

#define STORE_LOOP(id, type, expression)                                                           \
    case CB_##id:                                                                                  \
        for (int i = 0; i < count; i++) ((type *)to)[i] = (expression);                            \
        break;

static void store_floats(const double *from, int count, void *to, cb_dtype dtype) {
    switch (dtype) {
#define HALF_ROW(id, name, storage, ...) STORE_LOOP(id, storage, name##_from_f32((float)from[i]))
#define FLOAT_ROW(id, name, storage, ...) STORE_LOOP(id, storage, (storage)from[i])
#include "op/dtype_rows.h"
    default:
        break;
    }
}

static void store_ints(const int64_t *from, int count, void *to, cb_dtype dtype) {
    switch (dtype) {
#define BOOL_ROW(id, name, storage, ...) STORE_LOOP(id, storage, from[i] != 0)
#define NARROW_ROW(id, name, storage, ...) STORE_LOOP(id, storage, (storage)from[i])
#define INTEGER_ROW NARROW_ROW
#define HALF_ROW(id, name, storage, ...) STORE_LOOP(id, storage, name##_from_f32((float)from[i]))
#define FLOAT_ROW NARROW_ROW
#include "op/dtype_rows.h"
    default:
        break;
    }
}

/* NaN and values out of range go where the op table's conversion sends them. */
static void store_truncated(const double *from, int count, char *to, cb_dtype source,
                            cb_dtype dtype) {
    size_t width = cb_dtype_size(dtype);
    for (int i = 0; i < count; i++) {
        Scalar value = scalar_convert((Scalar){.f = from[i]}, source, dtype);
        scalar_store(to + (size_t)i * width, dtype, value);
    }
}

#define COPY_LOOP(type)                                                                            \
    for (int64_t i = 0; i < count; i++) ((type *)to)[i] = ((const type *)from)[i * stride];        \
    break

static void copy_run(const char *from, size_t width, int64_t stride, int64_t count, char *to) {
    if (stride == 1) {
        memcpy(to, from, (size_t)count * width);
        return;
    }
    switch (width) {
    case 1:
        COPY_LOOP(uint8_t);
    case 2:
        COPY_LOOP(uint16_t);
    case 4:
        COPY_LOOP(uint32_t);
    default:
        COPY_LOOP(uint64_t);
    }
}

static void convert_run(const char *from, cb_dtype source, int64_t stride, int64_t count, char *to,
                        cb_dtype dtype) {
    union {
        double f[BLOCK];
        int64_t i[BLOCK];
    } block;
    int64_t from_step = stride * (int64_t)cb_dtype_size(source);
    int64_t to_step = (int64_t)cb_dtype_size(dtype);
    for (int64_t done = 0; done < count; done += BLOCK) {
        int part = count - done < BLOCK ? (int)(count - done) : BLOCK;
        if (!dtype_is_float(source)) {
            load_ints(from, source, stride, part, block.i);
            store_ints(block.i, part, to, dtype);
        } else {
            load_floats(from, source, stride, part, block.f);
            if (dtype_is_float(dtype))
                store_floats(block.f, part, to, dtype);
            else
                store_truncated(block.f, part, to, source, dtype);
        }
        from += from_step * part;
        to += to_step * part;
    }
}

/* ---- the walk over all dimensions ------------------------------------------------------------ */

typedef struct ElementWalk {
    int rank; /* at least 1 */
    int64_t size[CB_MAX_RANK], stride[CB_MAX_RANK];
} ElementWalk;

/* Without dimensions of one element, and with neighbours merged where one stride reaches both. */
static ElementWalk collapse(const Tensor *x) {
    ElementWalk w = {.rank = 0};
    for (int i = 0; i < x->rank; i++) {
        if (x->size[i] == 1) continue;
        int last = w.rank - 1;
        if (w.rank && w.stride[last] == x->stride[i] * x->size[i]) {
            w.size[last] *= x->size[i];
            w.stride[last] = x->stride[i];
        } else {
            w.size[w.rank] = x->size[i];
            w.stride[w.rank++] = x->stride[i];
        }
    }
    if (!w.rank) w = (ElementWalk){.rank = 1, .size = {1}, .stride = {1}};
    return w;
}

void tensor_read_range(const Tensor *x, int64_t first, int64_t count, void *out, cb_dtype dtype) {
    if (count <= 0) return;
    ElementWalk w = collapse(x);
    cb_dtype source = x->dtype;
    int64_t width = (int64_t)cb_dtype_size(source), to_width = (int64_t)cb_dtype_size(dtype);
    int64_t index[CB_MAX_RANK], rest = first, position = 0;
    int inner = w.rank - 1;
    for (int d = inner; d >= 0; d--) {
        index[d] = rest % w.size[d];
        rest /= w.size[d];
        position += index[d] * w.stride[d];
    }
    char *to = out;
    while (count > 0) {
        int64_t run = w.size[inner] - index[inner];
        if (run > count) run = count;
        const char *from = (const char *)tensor_data(x) + position * width;
        if (source == dtype)
            copy_run(from, (size_t)width, w.stride[inner], run, to);
        else
            convert_run(from, source, w.stride[inner], run, to, dtype);
        to += run * to_width;
        count -= run;
        index[inner] += run;
        position += run * w.stride[inner];
        for (int d = inner; d > 0 && index[d] == w.size[d]; d--) {
            position += w.stride[d - 1] - w.size[d] * w.stride[d];
            index[d] = 0;
            index[d - 1]++;
        }
    }
}

/* ---- the public API ------------------------------------------------------------------------ */

/* x has a storage, and the host is to have what lies in it. */
static bool host_reads(const Tensor *x) {
    const CheckpointHead *head = (const void *)checkpoint_current();
    return !head || head->host_reads(x);
}

static bool request_item(Tensor *x, const char *what) {
    if (!x) return tensor_request(x, what);
    int64_t count = cb_numel(x);
    if (count == 1) return tensor_request(x, what);
    char text[128];
    Meta meta = tensor_meta(x);
    meta_format(&meta, text, sizeof text);
    fail(CB_ERR_SHAPE, "%s: %s has %lld elements, not one", what, text, (long long)count);
    return false;
}

bool tensor_item(Tensor *x, const char *what, Scalar *value) {
    Scalar local;
    if (!request_item(x, what) || !host_reads(x)) return false;
    const void *element = tensor_data(x);
    if (!device_is_host(x->device)) {
        if (!devices[x->device]->download(&local, element, cb_dtype_size(x->dtype))) return false;
        element = &local;
    }
    *value = scalar_load(element, x->dtype);
    return true;
}

/* The element of a tensor that has one. */
static bool read_item(cb_tensor *handle, const char *what, Scalar *value, cb_dtype *dtype) {
    Tensor *x = tensor_in(handle, what);
    if (!tensor_item(x, what, value)) return false;
    *dtype = x->dtype;
    return true;
}

double cb_item(cb_tensor *handle) {
    Scalar value;
    cb_dtype dtype;
    if (!read_item(handle, "item", &value, &dtype)) return NAN;
    return dtype_is_float(dtype) ? value.f : (double)value.i;
}

int64_t cb_item_int(cb_tensor *handle) {
    Scalar value;
    cb_dtype dtype;
    if (!read_item(handle, "item_int", &value, &dtype)) return 0;
    if (!number_fits(dtype, value, CB_I64)) {
        fail(CB_ERR_ARGUMENT, "item_int: the element %g is no i64", value.f);
        return 0;
    }
    return scalar_convert(value, dtype, CB_I64).i;
}

static void *pointer_to(cb_tensor *handle, TensorAccess access, const char *what) {
    Tensor *x = tensor_in(handle, what);
    if (x && !device_is_host(x->device)) {
        fail(CB_ERR_ARGUMENT,
             "%s: x lies on %s, whose memory the host cannot touch; cb_read copies its elements",
             what, devices[x->device]->name);
        return NULL;
    }
    return request(x, access, what) && host_reads(x) ? tensor_data(x) : NULL;
}

void *cb_data(cb_tensor *x) { return pointer_to(x, ACCESS_POINTER, "data"); }
const void *cb_data_const(cb_tensor *x) { return pointer_to(x, ACCESS_NOW, "data_const"); }

void cb_changed(cb_tensor *handle) {
    Tensor *x = tensor_in(handle, "changed");
    if (!x || (!x->storage && !tracer_current())) return;
    if (materialize(x, ACCESS_CHANGE)) storage_written(x->storage);
}

cb_status cb_mark_dynamic(cb_tensor *handle, int dim) {
    Tensor *x = tensor_in(handle, "mark_dynamic");
    if (!x) return fail(CB_ERR_ARGUMENT, "mark_dynamic: x is NULL");
    if (dim < -x->rank || dim >= x->rank)
        return fail(CB_ERR_SHAPE, "mark_dynamic: dim %d of a tensor of rank %d", dim, x->rank);
    x->dynamic |= (uint8_t)(1u << (dim < 0 ? dim + x->rank : dim));
    return CB_OK;
}

cb_status cb_read(cb_tensor *handle, void *out, cb_dtype dtype) {
    Tensor *x = tensor_in(handle, "read");
    if (!x) return fail(CB_ERR_ARGUMENT, "read: x is NULL");
    if (!tensor_data_fits("read", dtype)) return CB_ERR_DTYPE;
    if (dtype < 0 || dtype >= CB_DTYPE_COUNT)
        return fail(CB_ERR_DTYPE, "read: %d is not a dtype", (int)dtype);
    int64_t count = cb_numel(x);
    if (!out && count) return fail(CB_ERR_ARGUMENT, "read: out is NULL");
    if (!tensor_request(x, "read") || !host_reads(x)) return cb_error_status();
    const Tensor *local = tensor_local(x);
    if (!local) return cb_error_status();
    tensor_read_range(local, 0, count, out, dtype);
    tensor_local_end(local, x);
    return CB_OK;
}
