/* The expansion of interpolate: one spatial dim after the other, elements picked by computed
 * positions.
 *
 *     nearest  y[o] = x[floor(o * scale)]                        scale = in / out, in f32 as
 *              PyTorch
 *              y[o] = x[floor((o + 0.5) * scale)] when exact
 *     linear   y[o] = x[i] * (1 - t) + x[i + 1] * t              i + t = max((o + 0.5) * scale -
 *              0.5, 0),
 *                                                                or o * (in - 1) / (out - 1) */
#include "graph/call.h"

#include <math.h>

typedef struct Resize {
    Graph *graph;
    int dim;
    int64_t in, out;
    double scale;
    bool align_corners, exact;
} Resize;

static Node *pick(const Resize *r, Node *x, Node *index) {
    Attrs attrs = attrs_default(OP_index_select);
    attrs.word[ATTR_index_select_dim] = r->dim;
    return graph_op(r->graph, OP_index_select, (Node *[]){x, index}, 2, &attrs, NULL);
}

/* Each element r times in a row, when that is what the positions come to. */
static bool repeats(const Resize *r) {
    if (r->out % r->in) return false;
    int64_t times = r->out / r->in;
    float half = r->exact ? 0.5f : 0.0f;
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
    if (r->exact) place = call_number(graph, OP_add, place, 0.5);
    place = call1(graph, OP_floor, call_number(graph, OP_mul, place, r->scale));
    if (!place) return NULL;
    Node *index = node_convert(graph, place, CB_I64);
    return pick(r, x, call_number(graph, OP_minimum, index, (double)(r->in - 1)));
}

static Node *linear(const Resize *r, Node *x) {
    Graph *graph = r->graph;
    cb_dtype dtype = (cb_dtype)x->dtype;
    int64_t shape[CB_MAX_RANK] = {r->out, 1, 1, 1, 1, 1, 1, 1};
    Node *place = node_convert(graph, call_arange(graph, r->out, CB_I64), dtype);
    if (r->align_corners) {
        double step = r->out > 1 ? (double)(r->in - 1) / (double)(r->out - 1) : 0;
        place = call_number(graph, OP_mul, place, step);
    } else {
        place = call_number(graph, OP_mul, call_number(graph, OP_add, place, 0.5), r->scale);
        place = call_number(graph, OP_maximum, call_number(graph, OP_sub, place, 0.5), 0);
    }
    Node *below =
        call_number(graph, OP_minimum, call1(graph, OP_floor, place), (double)(r->in - 1));
    Node *share = call2(graph, OP_sub, place, below);
    if (!share) return NULL;
    share = node_reshape(graph, share, x->rank - r->dim, shape);
    Node *left = node_convert(graph, below, CB_I64);
    Node *right =
        call_number(graph, OP_minimum, call_number(graph, OP_add, left, 1), (double)(r->in - 1));
    Node *one = call_constant(graph, dtype, 1);
    return call2(graph, OP_add,
                 call2(graph, OP_mul, pick(r, x, left), call2(graph, OP_sub, one, share)),
                 call2(graph, OP_mul, pick(r, x, right), share));
}

/* The sizes of the result and the steps through x. */
static bool measure(const Node *x, const Attrs *attrs, int64_t *out, double *scale) {
    double factor = attr_float(attrs, ATTR_interpolate_scale_factor);
    int n = x->rank - 2;
    if (n < 1 || n > 3) {
        fail(CB_ERR_SHAPE, "interpolate: needs a batch, channels and 1 to 3 spatial dims");
        return false;
    }
    bool sized = attr_dims(attrs, ATTR_interpolate_size).count != 0;
    if (sized == (factor != 0) || !(factor >= 0)) {
        fail(CB_ERR_ARGUMENT, "interpolate: needs either a size or a positive scale_factor");
        return false;
    }
    if (sized && !spatial_numbers(OP_interpolate, attrs, ATTR_interpolate_size, "size", n, 1, out))
        return false;
    for (int i = 0; i < n; i++) {
        int64_t in = x->size[2 + i];
        if (!sized) out[i] = (int64_t)floor((double)in * factor);
        scale[i] = sized ? (double)in / (double)out[i] : 1 / factor;
        if (in > 0 && out[i] > 0) continue;
        fail(CB_ERR_SHAPE, "interpolate: %lld elements of dim %d become %lld", (long long)in, 2 + i,
             (long long)out[i]);
        return false;
    }
    return true;
}

Node *expand_resize(Graph *graph, Node *given, const Attrs *attrs) {
    int64_t out[3];
    double scale[3];
    bool is_linear = attrs->word[ATTR_interpolate_linear];
    bool corners = attrs->word[ATTR_interpolate_align_corners];
    bool exact = attrs->word[ATTR_interpolate_exact];
    if (!measure(given, attrs, out, scale)) return NULL;
    if (is_linear ? exact : corners) {
        fail(CB_ERR_ARGUMENT, "interpolate: align_corners goes with linear, exact with nearest");
        return NULL;
    }
    Node *x = is_linear ? node_widen(graph, given) : given;
    for (int i = 0; x && i < given->rank - 2; i++) {
        Resize r = {graph, 2 + i, given->size[2 + i], out[i], scale[i], corners, exact};
        bool same = r.in == r.out;
        if (same && (is_linear || scale[i] == 1))
            continue; /* linear: whatever the scale, as in PyTorch */
        x = is_linear ? linear(&r, x) : nearest(&r, x);
    }
    return node_narrow(graph, x, given);
}
