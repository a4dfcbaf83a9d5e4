/* The expansion of interpolate: one spatial dim after the other, elements picked by computed
 * positions. The mode area is adaptive_avg_pool.
 *
 *     nearest  y[o] = x[floor(o * scale)]               scale = in / out, in f32 as PyTorch
 *              y[o] = x[floor((o + 0.5) * scale)] when exact
 *     linear   y[o] = x[i] * (1 - t) + x[i + 1] * t     i + t = max((o + 0.5) * scale - 0.5, 0),
 *                                                       or o * (in - 1) / (out - 1)
 *              (u8 as PyTorch: weights of 16 bits, each dim rounded)
 *     cubic    y[o] = the sum over k = -1..2 of x[i + k] * c(t - k), i at most and at least at the
 *              edges; i + t as above, without the maximum; c is Keys' kernel with a = -0.75 */
#include "graph/expand/expand.h"

#include <math.h>

typedef enum Mode { NEAREST, EXACT, LINEAR, CUBIC, AREA } Mode;

typedef struct Resize {
    Graph *graph;
    int dim;
    int64_t in, out;
    double scale;
    Mode mode;
    bool align_corners;
} Resize;

static Node *pick(const Resize *r, Node *x, Node *index) {
    Attrs attrs = attrs_default(OP_index_select);
    attrs.word[ATTR_index_select_dim] = r->dim;
    return graph_op(r->graph, OP_index_select, (Node *[]){x, index}, 2, &attrs, NULL);
}

enum { EXACT_FLOATS = 1 << 24 }; /* integers up to it are f32 */

/* Each element r times in a row, when that is what the positions come to. */
static bool repeats(const Resize *r) {
    if (r->out % r->in || r->out > EXACT_FLOATS) return false;
    int64_t times = r->out / r->in;
    float half = r->mode == EXACT ? 0.5f : 0.0f;
    for (int64_t o = 0; o < r->out; o++)
        if ((int64_t)floorf(((float)o + half) * (float)r->scale) != o / times) return false;
    return true;
}

static Node *repeat_each(const Resize *r, Node *x) {
    int64_t before = 1, rest = 1, times = r->out / r->in, size[CB_MAX_RANK];
    int rank = x->rank;
    for (int d = 0; d < rank; d++) {
        size[d] = d == r->dim ? r->out : x->size[d];
        if (d != r->dim) *(d < r->dim ? &before : &rest) *= x->size[d];
    }
    x = node_reshape(r->graph, x, 4, (int64_t[]){before, r->in, 1, rest});
    x = node_expand_to(r->graph, x, 4, (int64_t[]){before, r->in, times, rest});
    return node_reshape(r->graph, x, rank, size);
}

static Node *nearest(const Resize *r, Node *x) {
    Graph *graph = r->graph;
    if (repeats(r)) return repeat_each(r, x);
    Node *place = node_convert(graph, call_arange(graph, r->out, CB_I64), CB_F32);
    if (r->mode == EXACT) place = call_number(graph, OP_add, place, 0.5);
    place = call1(graph, OP_floor, call_number(graph, OP_mul, place, r->scale));
    Node *index = node_convert(graph, place, CB_I64);
    return pick(r, x, call_number(graph, OP_minimum, index, (double)(r->in - 1)));
}

/* ---- smooth modes --------------------------------------------------------------------------- */

/* Elements that one of the result is made of: where they are along the dim, i64, and what each
 * counts for, both [out]. */
typedef struct ResizeTap {
    Node *index, *weight;
} ResizeTap;
enum { MOST_TAPS = 4 };

static Node *within(const Resize *r, Node *index) {
    index = call_number(r->graph, OP_maximum, index, 0);
    return call_number(r->graph, OP_minimum, index, (double)(r->in - 1));
}

/* Where the elements of the result lie in x, [out]. */
static Node *places(const Resize *r, cb_dtype dtype) {
    Graph *graph = r->graph;
    Node *place = node_convert(graph, call_arange(graph, r->out, CB_I64), dtype);
    if (r->align_corners) {
        double step = r->out > 1 ? (double)(r->in - 1) / (double)(r->out - 1) : 0;
        return call_number(graph, OP_mul, place, step);
    }
    place = call_number(graph, OP_mul, call_number(graph, OP_add, place, 0.5), r->scale);
    return call_number(graph, OP_sub, place, 0.5);
}

static int linear_taps(const Resize *r, cb_dtype dtype, ResizeTap *tap) {
    Graph *graph = r->graph;
    Node *place = call_number(graph, OP_maximum, places(r, dtype), 0);
    Node *below =
        call_number(graph, OP_minimum, call1(graph, OP_floor, place), (double)(r->in - 1));
    Node *share = call2(graph, OP_sub, place, below);
    Node *left = node_convert(graph, below, CB_I64);
    Node *right = call_number(graph, OP_add, left, 1);
    tap[0] = (ResizeTap){left, call2(graph, OP_sub, call_constant(graph, dtype, 1), share)};
    tap[1] = (ResizeTap){call_number(graph, OP_minimum, right, (double)(r->in - 1)), share};
    return 2;
}

/* The polynomial whose coefficients stand highest first. */
static Node *polynomial(Graph *graph, Node *x, const double *coefficient, int degree) {
    Node *y = call_number(graph, OP_mul, x, coefficient[0]);
    for (int i = 1; i < degree; i++)
        y = call2(graph, OP_mul, call_number(graph, OP_add, y, coefficient[i]), x);
    return call_number(graph, OP_add, y, coefficient[degree]);
}

/* What the element a distance away counts for: nearer than 1, and from there to 2. */
static Node *cubic_weight(Graph *graph, Node *distance, bool near) {
    static const double inner[] = {1.25, -2.25, 0, 1};  /* (a + 2) d^3 - (a + 3) d^2 + 1 */
    static const double outer[] = {-0.75, 3.75, -6, 3}; /* a d^3 - 5a d^2 + 8a d - 4a */
    return polynomial(graph, distance, near ? inner : outer, 3);
}

static int cubic_taps(const Resize *r, cb_dtype dtype, ResizeTap *tap) {
    Graph *graph = r->graph;
    Node *place = places(r, dtype), *below = call1(graph, OP_floor, place);
    Node *share = call2(graph, OP_sub, place, below);
    Node *first = node_convert(graph, below, CB_I64);
    for (int k = -1; k <= 2; k++) {
        Node *distance = k <= 0 ? call_number(graph, OP_sub, share, k)
                                : call_number(graph, OP_add, call1(graph, OP_neg, share), k);
        tap[k + 1] = (ResizeTap){within(r, call_number(graph, OP_add, first, k)),
                                 cubic_weight(graph, distance, k == 0 || k == 1)};
    }
    return MOST_TAPS;
}

/* [out] along the dim of x. */
static Node *along(const Resize *r, const Node *x, Node *weight) {
    int64_t shape[CB_MAX_RANK] = {r->out, 1, 1, 1, 1, 1, 1, 1};
    return node_reshape(r->graph, weight, x->rank - r->dim, shape);
}

static Node *weighted(const Resize *r, Node *x, const ResizeTap *tap, int count) {
    Node *sum = NULL;
    for (int i = 0; i < count; i++) {
        Node *weight = along(r, x, tap[i].weight);
        Node *part = call2(r->graph, OP_mul, pick(r, x, tap[i].index), weight);
        sum = sum ? call2(r->graph, OP_add, sum, part) : part;
    }
    return sum;
}

/* ---- bytes: as PyTorch, with weights of 16 bits, and rounded after each dim ----------------- */

/* What falls on the same element at an edge counts as one. */
static void join_taps(Graph *graph, ResizeTap *tap, int count) {
    Node *none = call_constant(graph, CB_F64, 0), *carried = NULL;
    for (int i = 0;; i++) {
        Node *whole = carried ? call2(graph, OP_add, tap[i].weight, carried) : tap[i].weight;
        tap[i].weight = whole;
        if (i + 1 == count) return;
        Node *again = call2(graph, OP_eq, tap[i].index, tap[i + 1].index);
        carried = call3(graph, OP_where, again, whole, none);
        tap[i].weight = call3(graph, OP_where, again, none, whole);
    }
}

/* The binary digits behind the point that leave the greatest weight below 2^15: 1 has 14. */
static int weight_digits(const Resize *r) {
    double most = 0;
    int digits = 0;
    for (int64_t o = 0; o < r->out; o++) {
        double step = r->out > 1 ? (double)(r->in - 1) / (double)(r->out - 1) : 0;
        double place = r->align_corners ? (double)o * step : ((double)o + 0.5) * r->scale - 0.5;
        double share = place - floor(place), near = share < 0.5 ? share : 1 - share;
        bool edge = place <= 0 || place >= (double)(r->in - 1);
        double weight = r->mode == LINEAR ? 1 - near : ((1.25 * near) - 2.25) * near * near + 1;
        most = fmax(most, edge ? 1 : weight);
    }
    while ((int)(0.5 + most * (double)(1 << (digits + 1))) < 1 << 15) digits++;
    return digits;
}

static Node *whole_weight(Graph *graph, Node *weight, double unit) {
    Node *scaled = call_number(graph, OP_mul, weight, unit);
    Node *up = call1(graph, OP_floor, call_number(graph, OP_add, scaled, 0.5));
    Node *down = call1(graph, OP_ceil, call_number(graph, OP_sub, scaled, 0.5));
    Node *whole = call3(graph, OP_where, call_number(graph, OP_lt, scaled, 0), down, up);
    whole = call_number(graph, OP_mul, whole, 1 / unit);
    return node_convert(graph, whole, CB_F32);
}

/* Products and sums of bytes and such weights are exact in f32. */
static Node *resize_bytes(const Resize *r, Node *x, ResizeTap *tap, int count) {
    Graph *graph = r->graph;
    double unit = (double)(1 << weight_digits(r));
    join_taps(graph, tap, count);
    for (int i = 0; i < count; i++) tap[i].weight = whole_weight(graph, tap[i].weight, unit);
    Node *sum = weighted(r, node_convert(graph, x, CB_F32), tap, count);
    sum = call1(graph, OP_floor, call_number(graph, OP_add, sum, 0.5));
    sum = call_number(graph, OP_minimum, call_number(graph, OP_maximum, sum, 0), UINT8_MAX);
    return node_convert(graph, sum, CB_U8);
}

static Node *smooth(const Resize *r, Node *x) {
    ResizeTap tap[MOST_TAPS];
    bool bytes = x->dtype == CB_U8;
    cb_dtype dtype = bytes ? CB_F64 : x->dtype;
    int count = r->mode == LINEAR ? linear_taps(r, dtype, tap) : cubic_taps(r, dtype, tap);
    return bytes ? resize_bytes(r, x, tap, count) : weighted(r, x, tap, count);
}

/* ---- arguments ------------------------------------------------------------------------------ */

/* One factor for each of n dims; false with an error. */
static bool factors(const Attrs *attrs, int n, double *factor) {
    cb_float_list list = attr_floats(attrs, ATTR_interpolate_scale_factor);
    bool fits = list.count == 1 || list.count == n;
    for (int i = 0; i < n && fits; i++) {
        factor[i] = list.at[list.count == 1 ? 0 : i];
        fits = factor[i] > 0;
    }
    if (fits) return true;
    fail(list.count == 1 ? CB_ERR_ARGUMENT : CB_ERR_SHAPE,
         "interpolate: scale_factor is one positive number or one for each of %d spatial dims, "
         "not %d",
         n, list.count);
    return false;
}

/* The sizes of the result and the steps through x. */
static bool measure(const Node *x, const Attrs *attrs, Mode mode, int64_t *out, double *scale) {
    double factor[3] = {0};
    bool again = attrs->word[ATTR_interpolate_recompute_scale_factor];
    int n = x->rank - 2;
    if (n < 1 || n > 3) {
        fail(CB_ERR_SHAPE, "interpolate: needs a batch, channels and 1 to 3 spatial dims");
        return false;
    }
    bool sized = attr_dims(attrs, ATTR_interpolate_size).count != 0;
    if (sized == (attr_floats(attrs, ATTR_interpolate_scale_factor).count != 0) ||
        (sized && again)) {
        fail(CB_ERR_ARGUMENT, "interpolate: needs either a size or a positive scale_factor, which "
                              "alone can be recomputed");
        return false;
    }
    int least = mode == AREA ? 0 : 1; /* a pool may have no result */
    if (sized &&
        !spatial_numbers(OP_interpolate, attrs, ATTR_interpolate_size, "size", n, least, out))
        return false;
    if (!sized && !factors(attrs, n, factor)) return false;
    for (int i = 0; i < n; i++) {
        int64_t in = x->size[2 + i];
        double size = sized ? (double)out[i] : floor((double)in * factor[i]);
        if (!sized) out[i] = size < 0x1p62 ? (int64_t)size : -1;
        scale[i] = sized || again || mode == AREA ? (double)in / (double)out[i] : 1 / factor[i];
        if (in >= least && out[i] >= least) continue;
        fail(CB_ERR_SHAPE, "interpolate: %lld elements of dim %d become %.15g", (long long)in,
             2 + i, size);
        return false;
    }
    return true;
}

/* False with an error when there are several, or what does not go with it. */
static bool mode_of(const Node *x, const Attrs *attrs, Mode *mode) {
    static const struct {
        int word;
        Mode mode;
    } flags[] = {{ATTR_interpolate_exact, EXACT},
                 {ATTR_interpolate_linear, LINEAR},
                 {ATTR_interpolate_cubic, CUBIC},
                 {ATTR_interpolate_area, AREA}};
    int found = 0;
    *mode = NEAREST;
    for (int i = 0; i < 4; i++) {
        if (!attrs->word[flags[i].word]) continue;
        *mode = flags[i].mode;
        found++;
    }
    bool smooth = *mode == LINEAR || *mode == CUBIC;
    if (found > 1 || (attrs->word[ATTR_interpolate_align_corners] && !smooth)) {
        fail(CB_ERR_ARGUMENT, "interpolate: exact, linear, cubic and area are one mode each, and "
                              "align_corners goes with linear and cubic");
        return false;
    }
    if (*mode != CUBIC || x->rank == 4) return true;
    fail(CB_ERR_SHAPE, "interpolate: cubic needs two spatial dims, not %d", x->rank - 2);
    return false;
}

static Node *area(Graph *graph, Node *x, const int64_t *out) {
    static const Op ops[] = {OP_adaptive_avg_pool1d, OP_adaptive_avg_pool2d,
                             OP_adaptive_avg_pool3d};
    int n = x->rank - 2;
    cb_dim_list size = {n, {0}};
    for (int i = 0; i < n; i++) size.at[i] = out[i];
    Attrs attrs = attrs_default(ops[n - 1]);
    attr_set_dims(&attrs, ATTR_adaptive_avg_pool1d_output_size, size);
    return graph_op(graph, ops[n - 1], &x, 1, &attrs, NULL);
}
_Static_assert(ATTR_adaptive_avg_pool1d_output_size == ATTR_adaptive_avg_pool2d_output_size &&
                   ATTR_adaptive_avg_pool1d_output_size == ATTR_adaptive_avg_pool3d_output_size,
               "adaptive pools are called alike");

static Node *resized(const Resize *r, Node *x) {
    bool same = r->in == r->out;
    bool kept = r->mode == LINEAR || (r->mode == CUBIC && x->dtype == CB_U8); /* as PyTorch */
    if (same && (kept || r->scale == 1)) return x;
    return r->mode == LINEAR || r->mode == CUBIC ? smooth(r, x) : nearest(r, x);
}

Node *expand_resize(Graph *graph, Node *given, const Attrs *attrs) {
    int64_t out[3];
    double scale[3];
    Mode mode;
    bool corners = attrs->word[ATTR_interpolate_align_corners];
    if (!mode_of(given, attrs, &mode) || !measure(given, attrs, mode, out, scale)) return NULL;
    if (mode == AREA) return area(graph, given, out);
    bool is_smooth = mode == LINEAR || mode == CUBIC, bytes = is_smooth && given->dtype == CB_U8;
    if (is_smooth && !bytes && !dtype_is_float(given->dtype)) {
        fail(CB_ERR_DTYPE, "interpolate: %s is neither u8 nor a floating point dtype",
             cb_dtype_name(given->dtype));
        return NULL;
    }
    Node *x = is_smooth ? node_widen(graph, given) : given;
    int n = given->rank - 2;
    for (int k = 0; x && k < n; k++) {
        int i = bytes ? n - 1 - k : k; /* bytes are rounded between dims: the last goes first */
        x = resized(&(Resize){graph, 2 + i, given->size[2 + i], out[i], scale[i], mode, corners},
                    x);
    }
    return node_narrow(graph, x, given);
}
