"""Views, writes, and what moves elements about: all exact."""
from ops_fold import *

# ---- views ---------------------------------------------------------------------------------------

def sizes_for(x, sizes):
    sizes = list(sizes) if not isinstance(sizes, int) else [sizes]
    need(sizes.count(-1) <= 1, 'two sizes are -1')
    if -1 in sizes:
        rest = int(np.prod([s for s in sizes if s != -1], dtype=np.int64))
        need(rest > 0 and x.size % rest == 0, 'sizes do not fit')
        sizes[sizes.index(-1)] = x.size // rest
    need(all(s >= 0 for s in sizes) and int(np.prod(sizes, dtype=np.int64)) == x.size, 'sizes do not fit')
    return sizes

def viewed(x, sizes):
    """As sizes over the same memory; None where strides do not say it."""
    data = x.data.view()
    try: data.shape = tuple(sizes)
    except AttributeError: return None
    return x.view(data)

@op
def view(x, sizes):
    result = viewed(x, sizes_for(x, sizes))
    need(result, 'needs a copy')
    return result
@op
def reshape(x, sizes):
    sizes = sizes_for(x, sizes)
    return viewed(x, sizes) or Value(x.data.reshape(sizes).copy(), x.dtype)
@op
def permute(x, dims):
    need(sorted(d % max(x.data.ndim, 1) for d in dims) == list(range(x.data.ndim)), 'no permutation')
    return x.view(x.data.transpose([d % x.data.ndim for d in dims]))
@op
def expand(x, sizes):
    new = len(sizes) - x.data.ndim
    need(new >= 0, 'too few sizes')
    need(all(s != -1 for s in sizes[:new]), 'a new dim needs its size')
    full = [x.shape[i - new] if s == -1 else s for i, s in enumerate(sizes)]
    need(all(x.shape[i - new] in (1, s) for i, s in enumerate(full) if i >= new), 'sizes do not fit')
    strides = [0 if i < new or x.shape[i - new] != s else x.data.strides[i - new] for i, s in enumerate(full)]
    return x.view(np.lib.stride_tricks.as_strided(x.data, full, strides)) # which may be written to
OPS['broadcast_to'] = expand
@op
def slice_(x, dim, start=0, end=2 ** 63 - 1, step=1):
    need(x.data.ndim > 0 and step > 0, 'no dim')
    return x.view(x.data[(slice(None),) * axis_of(x, dim) + (slice(start, end, step),)])
@op
def narrow(x, dim, start, length):
    need(x.data.ndim > 0, 'no dim')
    size = x.shape[axis_of(x, dim)]
    if start < 0: start += size
    need(0 <= start <= size and 0 <= length <= size - start, 'out of range')
    return slice_(x, dim, start, start + length)
@op
def select(x, dim, index):
    need(x.data.ndim > 0, 'no dim')
    d = axis_of(x, dim)
    need(-x.shape[d] <= index < x.shape[d], 'out of range')
    return x.view(x.data[(slice(None),) * d + (index, Ellipsis)])
@op
def flip(x, dims):
    return Value(np.flip(x.data, axes(x, dims) if len(dims) else ()).copy(), x.dtype)
@op
def flatten(x, start_dim=0, end_dim=-1):
    a, b = axis_of(x, start_dim), axis_of(x, end_dim)
    if x.data.ndim == 0: return reshape(x, [1])
    need(a <= b, 'ends before it starts')
    return reshape(x, list(x.shape[:a]) + [int(np.prod(x.shape[a:b + 1], dtype=np.int64))] + list(x.shape[b + 1:]))
@op
def unflatten(x, dim, sizes):
    d = axis_of(x, dim)
    need(x.data.ndim > 0 and -1 not in sizes and int(np.prod(sizes, dtype=np.int64)) == x.shape[d], 'sizes do not fit')
    return view(x, list(x.shape[:d]) + list(sizes) + list(x.shape[d + 1:]))
@op
def squeeze(x, dim=ALL):
    gone = [d for d in axes(x, dim) if x.shape[d] == 1]
    return x.view(np.squeeze(x.data, tuple(gone)))
@op
def unsqueeze(x, dim):
    rank = x.data.ndim + 1
    need(-rank <= dim < rank, 'no such dim')
    return x.view(np.expand_dims(x.data, dim % rank))
@op
def transpose(x, dim0, dim1):
    axis_of(x, dim0), axis_of(x, dim1)
    if x.data.ndim == 0: return x.view(x.data)
    return x.view(np.swapaxes(x.data, axis_of(x, dim0), axis_of(x, dim1)))
@op
def t(x):
    need(x.data.ndim <= 2, 'more than 2 dims')
    return x.view(x.data.T)
@op
def window(x, dim, size, step=1, dilation=1):
    need(x.data.ndim > 0 and size > 0 and step > 0 and dilation > 0, 'no window')
    d = axis_of(x, dim)
    reach = (size - 1) * dilation + 1
    need(x.shape[d] >= reach, 'too long')
    shape, strides = list(x.shape), list(x.data.strides)
    shape[d], inner = (x.shape[d] - reach) // step + 1, strides[d]
    strides[d] *= step
    return x.view(np.lib.stride_tricks.as_strided(x.data, shape + [size], strides + [inner * dilation]))

def dense(x):
    """In row-major order, without gaps."""
    return x.data.flags.c_contiguous

# ---- elements in other places --------------------------------------------------------------------

def fresh(data, dtype): return Value(np.array(data, order='C'), dtype)

@op
def to(x, dtype): return x.view(x.data) if dtype in (None, x.dtype) else convert(x, dtype)
@op
def contiguous(x): return x.view(x.data) if dense(x) else fresh(x.data, x.dtype)
@op
def clone(x): return fresh(x.data, x.dtype)

def literal(value, dtype):
    """A number as an element of dtype, which has to hold it."""
    if is_float(dtype):
        element = rounded(dtype, np.float64(value))
        need(np.isfinite(element) or not math.isfinite(value), 'too large for the dtype')
        return record(element)
    if dtype == 'bool': return np.bool_(value != 0)
    need(math.isfinite(value), 'no integer')
    whole, ends = math.trunc(value), np.iinfo(NUMPY[dtype])
    need(ends.min <= value <= ends.max, 'too large for the dtype')
    return NUMPY[dtype].type(whole)

@op
def full(sizes, value, dtype='f32'): return fresh(np.full(tuple(sizes), literal(value, dtype)), dtype)
@op
def zeros(sizes, dtype='f32'): return full(sizes, 0, dtype)
@op
def ones(sizes, dtype='f32'): return full(sizes, 1, dtype)
@op
def full_like(x, value): return full(x.shape, value, x.dtype)
@op
def zeros_like(x): return full_like(x, 0)
@op
def ones_like(x): return full_like(x, 1)
@op
def arange(start, end, step=1, dtype='i64'):
    need(step != 0 and (end - start) * step >= 0 and dtype != 'bool', 'no range')
    return convert(Value(np.arange(start, end, step, dtype=np.int64), 'i64'), dtype)
@op
def eye(n, m=-1, dtype='f32'):
    need(n >= 0 and m >= -1, 'sizes')
    return convert(Value(np.eye(n, n if m < 0 else m, dtype=np.int64), 'i64'), dtype)

def keep_where(x, keep):
    need(x.data.ndim >= 2, 'no matrix')
    zero = np.zeros((), storage_of(x.dtype))
    return fresh(np.where(keep, x.data, zero), x.dtype)
def below(x): return np.arange(x.shape[-1])[None, :] - np.arange(x.shape[-2])[:, None]
@op
def tril(x, diagonal=0): need(x.data.ndim >= 2, 'no matrix'); return keep_where(x, below(x) <= diagonal)
@op
def triu(x, diagonal=0): need(x.data.ndim >= 2, 'no matrix'); return keep_where(x, below(x) >= diagonal)
@op
def repeat(x, repeats):
    need(len(repeats) >= x.data.ndim and all(r >= 0 for r in repeats), 'repeats')
    return fresh(np.tile(x.data, tuple(repeats)), x.dtype)
@op
def roll(x, shift, dim):
    need(x.data.ndim > 0, 'no dim')
    return fresh(np.roll(x.data, shift, axis_of(x, dim)), x.dtype)
@op
def one_hot(x, classes):
    need(x.dtype == 'i64' and classes > 0 and ((x.data >= 0) & (x.data < classes)).all(), 'class')
    return Value((x.data[..., None] == np.arange(classes)).astype(np.int64), 'i64')

def joined(values, dim):
    dtype = promote(values)
    rank = values[0].data.ndim
    need(rank > 0 and all(v.data.ndim == rank for v in values), 'ranks')
    d = axis_of(values[0], dim)
    need(all(v.shape[:d] + v.shape[d + 1:] == values[0].shape[:d] + values[0].shape[d + 1:] for v in values), 'sizes')
    return fresh(np.concatenate([moved(v, dtype) for v in values], d), dtype)
@op
def concat(a, b, dim=0): return joined([a, b], dim)
def cat(values, dim=0): return joined(values, dim)
def stack(values, dim=0):
    need(all(v.shape == values[0].shape for v in values), 'sizes')
    rank = values[0].data.ndim + 1
    need(-rank <= dim < rank, 'no such dim')
    dtype = promote(values)
    return fresh(np.stack([moved(v, dtype) for v in values], dim), dtype)

@op
def pad(x, padding, value=0.0):
    need(len(padding) % 2 == 0 and len(padding) // 2 <= x.data.ndim, 'padding')
    before, after = [0] * x.data.ndim, [0] * x.data.ndim
    for i in range(len(padding) // 2): before[-1 - i], after[-1 - i] = padding[2 * i], padding[2 * i + 1]
    sizes = [s + b + a for s, b, a in zip(x.shape, before, after)]
    need(all(s >= 0 for s in sizes), 'negative size')
    need(all(s + min(b, 0) + min(a, 0) >= 0 for s, b, a in zip(x.shape, before, after)), 'cut too far')
    out = np.full(sizes, literal(value, x.dtype))
    inner = tuple(slice(max(-b, 0), s - max(-a, 0)) for s, b, a in zip(x.shape, before, after))
    place = tuple(slice(max(b, 0), n - max(a, 0)) for n, b, a in zip(sizes, before, after))
    out[place] = x.data[inner]
    return Value(out, x.dtype)
@op
def slice_scatter(x, src, dim, start=0, end=2 ** 63 - 1, step=1):
    need(x.dtype == src.dtype, 'dtypes')
    out = clone(x)
    place = slice_(out, dim, start, end, step)
    need(place.shape == src.shape, 'sizes')
    place.data[...] = src.data
    return out

def checked_index(index, size):
    need(category(index.dtype) == 1, 'an index is an integer')
    i = index.data.astype(np.int64)
    if not ((i >= 0) & (i < size)).all(): raise OutOfRange('an index is out of range')
    return i

def fits(x, dim, index, src=None):
    need(x.data.ndim == index.data.ndim, 'ranks')
    need(all(a <= b for d, (a, b) in enumerate(zip(index.shape, x.shape)) if d != dim), 'sizes')
    if src is not None:
        need(src.dtype == x.dtype and src.data.ndim == index.data.ndim, 'source')
        need(all(a <= b for a, b in zip(index.shape, src.shape)), 'sizes')

def places(i, dim):
    grid = list(np.ogrid[tuple(slice(0, s) for s in i.shape)])
    grid[dim] = i
    return tuple(grid)

@op
def gather(x, dim, index):
    need(x.data.ndim > 0, 'no dim')
    d = axis_of(x, dim)
    fits(x, d, index)
    if index.size == 0: return fresh(np.empty(index.shape, x.data.dtype), x.dtype)
    return fresh(x.data[places(checked_index(index, x.shape[d]), d)], x.dtype)
@op
def index_select(x, dim, index):
    need(x.data.ndim > 0 and index.data.ndim == 1, 'no dim')
    d = axis_of(x, dim)
    return fresh(np.take(x.data, checked_index(index, x.shape[d]), d), x.dtype)
@op
def embedding(index, weight):
    need(weight.data.ndim == 2, 'weight')
    return fresh(weight.data[checked_index(index, weight.shape[0])], weight.dtype)

@op
def scatter(x, dim, index, src): # in row-major order: the last one stays
    need(x.data.ndim > 0, 'no dim')
    d = axis_of(x, dim)
    fits(x, d, index, src)
    out = clone(x)
    if index.size:
        part = src.data[tuple(slice(0, s) for s in index.shape)]
        flat = np.arange(out.size).reshape(out.shape)[places(checked_index(index, x.shape[d]), d)].ravel()
        _, last = np.unique(flat[::-1], return_index=True)
        last = flat.size - 1 - last
        out.data.reshape(-1)[flat[last]] = part.ravel()[last]
    return out

@op
def scatter_add(x, dim, index, src):
    need(x.data.ndim > 0, 'no dim')
    d = axis_of(x, dim)
    fits(x, d, index, src)
    if not index.size: return clone(x)
    place = places(checked_index(index, x.shape[d]), d)
    part = tuple(slice(0, s) for s in index.shape)
    if not is_float(x.dtype):
        out = clone(x)
        if x.dtype == 'bool': np.logical_or.at(out.data, place, src.data[part])
        else: np.add.at(out.data, place, src.data[part])
        return out
    base, more = span(x.data, True), span(src.data, True)
    def fold(function, base_values, more_values):
        out = np.array(base_values)
        function.at(out, place, np.asarray(more_values)[part])
        return out
    ends = [fold(np.add, b, m) for b, m in ([(base.lo, more.lo)] if base.exact and more.exact
                                            else [(base.lo, more.lo), (base.hi, more.hi)])]
    biggest = lambda s: np.where(np.isfinite(s.lo), np.fmax(np.abs(s.lo), np.abs(s.hi)), 0)
    magnitude = fold(np.add, biggest(base), biggest(more))
    unit = fold(np.minimum, grain(base.lo), grain(more.lo))
    counts = fold(np.add, np.zeros(x.shape), np.ones(src.shape))
    short = {'f16': 2.0 ** 11, 'bf16': 2.0 ** 8}.get(x.dtype, limit(x.dtype))
    certain = (magnitude / unit <= short) | (counts == 0) | ~np.isfinite(ends[0])
    if not (base.exact and more.exact): certain = counts == 0
    slack = np.where(certain, 0, (counts + 1) / short * magnitude)
    result = Span(ends[0] - slack, ends[-1] + slack)
    moved_zero = (counts > 0) & (result.lo <= 0) & (result.hi >= 0)
    result = Span(np.where(moved_zero & (result.lo == 0), -0.0, result.lo),
                  np.where(moved_zero & (result.hi == 0), 0.0, result.hi))
    result = anything_where(result, (counts > 0) & (magnitude > LARGEST[x.dtype] * 0.99))
    wild = lambda s: (~np.isfinite(s.lo) | ~np.isfinite(s.hi)) & ~same(s.lo, s.hi)
    result = anything_where(result, fold(np.logical_or, base.anything | (wild(base) & (counts > 0)), wild(more)))
    c = compute(x.dtype)
    return store(tight(Span(rounded(c, result.lo), rounded(c, result.hi))), x.dtype)

# ---- order ---------------------------------------------------------------------------------------

@op
def argsort(x, dim=-1, descending=False):
    """Equal elements as they stood, NaN as the greatest."""
    e = exact(x)
    if e.ndim == 0: need(dim in (0, -1), 'no such dim'); return Value(np.zeros((), np.int64), 'i64')
    d = axis_of(x, dim)
    if not descending: return Value(np.argsort(e, d, kind='stable').astype(np.int64), 'i64')
    back = np.flip(np.argsort(np.flip(e, d), d, kind='stable'), d)
    return Value((e.shape[d] - 1 - back).astype(np.int64), 'i64')

def taken(x, at, dim):
    if x.data.ndim == 0: return clone(x)
    return fresh(np.take_along_axis(x.data, at.data, axis_of(x, dim)), x.dtype)

@op
def argtopk(x, k, dim=-1, largest=True):
    size = x.shape[axis_of(x, dim)] if x.data.ndim else 1
    need(0 <= k <= size and (x.data.ndim or k), 'k')
    at = argsort(x, dim, largest)
    return at if not x.data.ndim else fresh(slice_(at, dim, 0, k).data, 'i64')

def sort(x, dim=-1, descending=False):
    at = argsort(x, dim, descending)
    return [taken(x, at, dim), at]
def topk(x, k, dim=-1, largest=True):
    at = argtopk(x, k, dim, largest)
    return [taken(x, at, dim), at]
def split(x, size, dim):
    need(x.data.ndim > 0 and size > 0, 'size')
    total = x.shape[axis_of(x, dim)]
    need(-(-total // size) <= MAX_ARGS, 'pieces')
    return [narrow(x, dim, at, min(size, total - at)) for at in range(0, max(total, 1), size)]
def chunk(x, chunks, dim):
    need(x.data.ndim > 0 and chunks > 0, 'chunks')
    total = x.shape[axis_of(x, dim)]
    need(total > 0, 'empty')
    return split(x, -(-total // chunks), dim)
SEVERAL = dict(sort=sort, topk=topk, split=split, chunk=chunk)

# ---- writes --------------------------------------------------------------------------------------

def spread(x):
    """Several elements are one in memory."""
    if x.size == 0: return False
    steps = sorted((st, n) for st, n in zip(x.data.strides, x.shape) if n > 1)
    reach = 0
    for st, n in steps:
        if st <= reach: return True
        reach += (n - 1) * st
    return False

def assign(x, value):
    need(not spread(x), 'expanded target')
    need(value.data.ndim <= x.data.ndim, 'sizes')
    need(all(s in (1, x.shape[i + x.data.ndim - value.data.ndim]) for i, s in enumerate(value.shape)), 'sizes')
    if value.number: new = literal(value.data['lo'].item() if is_float(value.dtype) else value.data.item(), x.dtype)
    else: new = value.data if value.dtype == x.dtype else convert(value, x.dtype).data
    x.data[...] = np.array(new)
    return x

def fill_(x, value): return assign(x, number(value))
