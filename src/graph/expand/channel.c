/* Expansions of what moves elements between channels and pictures, and of padding with elements.
 *
 *     glu(x)                   ->  first half * sigmoid(second half)
 *     pixel_shuffle(x, 2)      ->  [N, C * 4, H, W] as [N, C, H * 2, W * 2]
 *     reflection_pad(x, [1, 2]) ->  concat(flip(x[1:2]), x, flip(x[-3:-1])) along the last dim */
#include "graph/expand/expand.h"

static Node *refused(Op op, const char *needs) {
    fail(CB_ERR_SHAPE, "%s: needs %s", op_info(op)->name, needs);
    return NULL;
}

static Node *glu(Graph *graph, Node *x, int64_t given) {
    int dim = checked_dim(OP_glu, given, x->rank);
    if (dim < 0) return NULL;
    int64_t half = x->size[dim] / 2;
    if (x->size[dim] % 2) return refused(OP_glu, "an even number of elements to halve");
    Node *gate = call1(graph, OP_sigmoid, call_slice(graph, x, dim, half, 2 * half));
    return call2(graph, OP_mul, call_slice(graph, x, dim, 0, half), gate);
}

/* x * weight where x is negative; a weight for all channels or for each. Elsewhere a product with
 * 1, so that no gradient meets 0 * inf. */
static Node *prelu(Graph *graph, Node *x, Node *weight) {
    int64_t shape[CB_MAX_RANK] = {node_numel(weight), 1, 1, 1, 1, 1, 1, 1};
    int64_t channels = x->rank > 1 ? x->size[1] : 1;
    if (weight->rank > 1 || (shape[0] != 1 && shape[0] != channels))
        return refused(OP_prelu, "one weight, or a vector of one for each channel");
    int rank = shape[0] == 1 ? 0 : x->rank - 1;
    weight = node_reshape(graph, weight, rank, shape);
    Node *positive = call_number(graph, OP_gt, x, 0);
    Node *one = call_constant(graph, weight->dtype, 1);
    return call2(graph, OP_mul, x, call3(graph, OP_where, positive, one, weight));
}

/* ---- shuffles ----------------------------------------------------------------------------- */

/* The dims before the last three count as one batch. */
typedef struct Picture {
    int64_t batch, channels, height, width;
} Picture;

static bool open_picture(Op op, const Node *x, int64_t factor, Picture *p) {
    if (factor < 1 || factor > INT16_MAX) {
        fail(CB_ERR_ARGUMENT, "%s: a factor of %lld", op_info(op)->name, (long long)factor);
        return false;
    }
    if (x->rank < 3) return refused(op, "channels, height and width"), false;
    const int64_t *last = x->size + x->rank - 3;
    *p = (Picture){1, last[0], last[1], last[2]};
    for (int i = 0; i < x->rank - 3; i++) p->batch *= x->size[i];
    return true;
}

static Node *as_picture(Graph *graph, Node *y, const Node *x, int64_t channels, int64_t height,
                        int64_t width) {
    int64_t size[CB_MAX_RANK];
    for (int i = 0; i < x->rank - 3; i++) size[i] = x->size[i];
    size[x->rank - 3] = channels;
    size[x->rank - 2] = height;
    size[x->rank - 1] = width;
    return node_reshape(graph, y, x->rank, size);
}

static Node *pixel_shuffle(Graph *graph, Node *x, int64_t r) {
    Picture p;
    if (!open_picture(OP_pixel_shuffle, x, r, &p)) return NULL;
    if (p.channels % (r * r))
        return refused(OP_pixel_shuffle, "channels that upscale_factor squared divides");
    int64_t channels = p.channels / (r * r), apart[] = {p.batch, channels, r, r, p.height, p.width};
    Node *y = node_reshape(graph, x, 6, apart);
    y = call_permute(graph, y, (cb_dim_list){6, {0, 1, 4, 2, 5, 3}});
    return as_picture(graph, y, x, channels, p.height * r, p.width * r);
}

static Node *pixel_unshuffle(Graph *graph, Node *x, int64_t r) {
    Picture p;
    if (!open_picture(OP_pixel_unshuffle, x, r, &p)) return NULL;
    if (p.height % r || p.width % r)
        return refused(OP_pixel_unshuffle, "sizes that downscale_factor divides");
    int64_t apart[] = {p.batch, p.channels, p.height / r, r, p.width / r, r};
    Node *y = node_reshape(graph, x, 6, apart);
    y = call_permute(graph, y, (cb_dim_list){6, {0, 1, 3, 5, 2, 4}});
    return as_picture(graph, y, x, p.channels * r * r, p.height / r, p.width / r);
}

/* Channel group * k + i becomes channel i * groups + group. */
static Node *channel_shuffle(Graph *graph, Node *x, int64_t groups) {
    if (x->rank < 3) return refused(OP_channel_shuffle, "a batch, channels and spatial dims");
    if (groups < 1 || x->size[1] % groups) {
        fail(CB_ERR_ARGUMENT, "channel_shuffle: %lld groups do not divide %lld channels",
             (long long)groups, (long long)x->size[1]);
        return NULL;
    }
    int64_t rest = 1;
    for (int i = 2; i < x->rank; i++) rest *= x->size[i];
    Node *y = node_reshape(graph, x, 4, (int64_t[]){x->size[0], groups, x->size[1] / groups, rest});
    y = call_permute(graph, y, (cb_dim_list){4, {0, 2, 1, 3}});
    return node_reshape(graph, y, x->rank, x->size);
}

/* ---- padding ------------------------------------------------------------------------------ */

static Node *repeated(Graph *graph, Node *x, int dim, int64_t count) {
    int64_t size[CB_MAX_RANK];
    for (int i = 0; i < x->rank; i++) size[i] = i == dim ? count : x->size[i];
    return node_expand_to(graph, x, x->rank, size);
}

/* What is left of a dim without the elements that negative widths crop. */
static Node *cropped(Graph *graph, Node *x, int dim, int64_t left, int64_t right) {
    if (left >= 0 && right >= 0) return x;
    int64_t size = x->size[dim];
    return call_slice(graph, x, dim, left < 0 ? -left : 0, right < 0 ? size + right : size);
}

/* `count` elements to stand before (or after) those of dim. */
static Node *border(Graph *graph, Op op, Node *x, int dim, int64_t count, bool after) {
    int64_t n = x->size[dim];
    if (op == OP_replication_pad) {
        Node *edge = call_slice(graph, x, dim, after ? n - 1 : 0, after ? n : 1);
        return repeated(graph, edge, dim, count);
    }
    if (op == OP_circular_pad)
        return call_slice(graph, x, dim, after ? 0 : n - count, after ? count : n);
    Node *mirrored =
        call_slice(graph, x, dim, after ? n - 1 - count : 1, after ? n - 1 : 1 + count);
    return call_flip(graph, mirrored, dim);
}

static bool check_border(Op op, const Node *x, int dim, int64_t left, int64_t right) {
    int64_t n = x->size[dim], most = left > right ? left : right;
    int64_t least = left < right ? left : right, kept = -1, size = -1, limit = INT32_MAX;
    if (least > INT64_MIN / 4) {
        kept = n + (left < 0 ? left : 0) + (right < 0 ? right : 0);
        if (__builtin_add_overflow(n, left, &size) || __builtin_add_overflow(size, right, &size))
            size = -1;
    }
    if (op == OP_reflection_pad) limit = n - 1;
    if (op == OP_circular_pad) limit = kept;
    bool fits = most <= limit && size >= 0;
    if (!fits)
        fail(CB_ERR_SHAPE, "%s: padding of %lld and %lld for dim %d of size %lld",
             op_info(op)->name, (long long)left, (long long)right, dim, (long long)n);
    return fits;
}

/* Elements of x to mirror or to repeat in every dim but the batch. */
static bool check_elements(Op op, const Node *x, int first) {
    for (int i = first; i < x->rank && op != OP_circular_pad; i++)
        if (x->size[i] == 0)
            return fail(CB_ERR_SHAPE, "%s: dim %d is empty", op_info(op)->name, i), false;
    return true;
}

/* left and right of them, and what is cropped; first of all when the rest goes round. */
static Node *padded_dim(Graph *graph, Op op, Node *x, int dim, int64_t left, int64_t right) {
    bool round = op == OP_circular_pad;
    if (round) x = cropped(graph, x, dim, left, right);
    Node *y = x;
    if (left > 0) y = call_concat(graph, border(graph, op, x, dim, left, false), y, dim);
    if (right > 0) y = call_concat(graph, y, border(graph, op, x, dim, right, true), dim);
    return round ? y : cropped(graph, y, dim, left, right);
}

/* One dim after the other, the last first, as the list has them; negative numbers crop. */
static Node *pad(Graph *graph, Op op, Node *x, cb_dim_list padding) {
    int n = padding.count / 2;
    if (padding.count < 2 || padding.count > 6 || padding.count % 2) {
        fail(CB_ERR_ARGUMENT, "%s: padding is a left and a right number for 1 to 3 dims, not %d",
             op_info(op)->name, padding.count);
        return NULL;
    }
    if (x->rank != n + 1 && x->rank != n + 2)
        return refused(op, "channels, a pair of numbers for each spatial dim, perhaps a batch");
    if (!check_elements(op, x, x->rank - n - 1)) return NULL;
    bool any = op == OP_circular_pad;
    for (int i = 0; x && i < n; i++) {
        int dim = x->rank - 1 - i;
        int64_t left = padding.at[2 * i], right = padding.at[2 * i + 1];
        if (!check_border(op, x, dim, left, right)) return NULL;
        any |= x->size[dim] + left + right > 0;
        x = padded_dim(graph, op, x, dim, left, right);
    }
    if (any) return x;
    return refused(op, "elements that are left");
}

Node *expand_channel(Graph *graph, Op op, Node *const *input, const Attrs *attrs) {
    switch (op) {
    case OP_glu:
        return glu(graph, input[0], attrs->word[ATTR_glu_dim]);
    case OP_prelu:
        return prelu(graph, input[0], input[1]);
    case OP_pixel_shuffle:
        return pixel_shuffle(graph, input[0], attrs->word[ATTR_pixel_shuffle_upscale_factor]);
    case OP_pixel_unshuffle:
        return pixel_unshuffle(graph, input[0], attrs->word[ATTR_pixel_unshuffle_downscale_factor]);
    case OP_channel_shuffle:
        return channel_shuffle(graph, input[0], attrs->word[ATTR_channel_shuffle_groups]);
    default:
        return pad(graph, op, input[0], attr_dims(attrs, ATTR_reflection_pad_padding));
    }
}
