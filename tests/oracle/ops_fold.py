"""Reductions, scans, products: exact where every partial sum is (small integers), else within a bound of all
orders."""
from ops_pointwise import *

# ---- reductions ----------------------------------------------------------------------------------

def axes(x, dim):
    if dim == ALL: return tuple(range(x.data.ndim))
    dims = [dim] if isinstance(dim, int) else list(dim)
    if not dims: return tuple(range(x.data.ndim))
    need(all(-max(x.data.ndim, 1) <= d < max(x.data.ndim, 1) for d in dims), 'no such dim')
    dims = [d % max(x.data.ndim, 1) for d in dims]
    need(len(set(dims)) == len(dims), 'a dim twice')
    return tuple(sorted(dims)) if x.data.ndim else ()

def axis_of(x, dim):
    rank = max(x.data.ndim, 1)
    need(-rank <= dim < rank, 'no such dim')
    return dim % rank

def grain(x):
    """The greatest power of two that divides each element."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 0))
    whole = (mantissa * 2.0 ** 53).astype(np.int64)
    return np.where(whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent - 53))

def limit(dtype): return 2.0 ** (53 if dtype == 'f64' else 24)

def bound_of_sum(count, dtype):
    return min(count + 1, 1100) * UNIT[dtype] * 1.01 + UNIT[dtype]

def summed(s, dtype, fold, count):
    """The sums of a span by fold (over some axes), in the precision of dtype and in any order."""
    magnitude = fold(np.add, np.where(np.isfinite(s.lo), np.fmax(np.abs(s.lo), np.abs(s.hi)), 0), 0.0)
    ends = [fold(np.add, e, 0.0) for e in s.ends()]
    if s.exact:
        unit = fold(np.minimum, grain(s.lo), np.inf)
        certain = (magnitude / unit <= limit(dtype)) | (magnitude == 0) | ~np.isfinite(ends[0])
    else: certain = np.zeros(magnitude.shape, bool)
    slack = np.where(certain, 0, bound_of_sum(count, dtype) * magnitude)
    lo, hi = ends[0] - slack, ends[-1] + slack
    lo, hi = np.where(lo == 0, -0.0, lo), np.where(hi == 0, 0.0, hi)
    result = Span(lo, hi)
    result = anything_where(result, fold(np.logical_or, s.anything, False) | (magnitude > LARGEST[dtype] * 0.99))
    if not s.exact:
        finite = fold(np.logical_and, np.isfinite(s.lo) & np.isfinite(s.hi), True)
        result = anything_where(result, ~finite & ~np.isnan(ends[0]))
    c = compute(dtype)
    lo, hi = rounded(c, result.lo), rounded(c, result.hi)
    return tight(Span(lo, hi))

def folder(axis, keepdim):
    def fold(function, x, start):
        x = np.asarray(x)
        return np.asarray(function.reduce(x, axis=axis, keepdims=keepdim, initial=start)) if x.dtype != bool \
            else np.asarray(function.reduce(x, axis=axis, keepdims=keepdim))
    return fold

def count_of(x, axis): return int(np.prod([x.shape[a] for a in axis], dtype=np.int64))

@op
def sum_(x, dim=ALL, keepdim=False):
    axis = axes(x, dim)
    if not is_float(x.dtype):
        return Value(np.asarray(np.sum(as_integer(x, 'i64'), axis=axis, keepdims=keepdim, dtype=np.int64)), 'i64')
    return store(summed(span(x.data, wide=True), x.dtype, folder(axis, keepdim), count_of(x, axis)), x.dtype)

@op
def prod(x, dim=ALL, keepdim=False):
    axis = axes(x, dim)
    if not is_float(x.dtype):
        return Value(np.asarray(np.prod(as_integer(x, 'i64'), axis=axis, keepdims=keepdim, dtype=np.int64)), 'i64')
    e = exact(x)
    fold = folder(axis, keepdim)
    result = fold(np.multiply, e, 1.0)
    size = fold(np.multiply, np.where((e == 0) | ~np.isfinite(e), 1, np.fmax(np.abs(e), 1)), 1.0)
    whole = fold(np.logical_and, e == np.trunc(e), True)
    certain = whole & (size <= limit(x.dtype)) & np.isfinite(result)
    count = count_of(x, axis)
    small = fold(np.multiply, np.where((e == 0) | ~np.isfinite(e), 1, np.fmin(np.abs(e), 1)), 1.0)
    slack = np.where(certain, 0, (count + 1) * UNIT[x.dtype] * np.abs(result))
    s = Span(result - slack, result + slack)
    zero = result == 0
    s = Span(np.where(zero, -0.0, s.lo), np.where(zero, 0.0, s.hi))
    wild = ~certain & ((size > LARGEST[x.dtype] * 1e-3) | (small < SMALLEST[compute(x.dtype)] * 1e10) | ~np.isfinite(result))
    c = compute(x.dtype)
    some = lambda mask: fold(np.logical_or, mask, False)
    nan = some(np.isnan(e)) | (some(np.isinf(e)) & some(e == 0)) # in every order
    s = anything_where(s, wild & ~nan)
    return store(tight(Span(rounded(c, s.lo), rounded(c, s.hi))), x.dtype)

def extreme(name, pick):
    def call(x, dim=ALL, keepdim=False):
        axis = axes(x, dim)
        need(count_of(x, axis) > 0, 'nothing to choose from')
        fold = folder(axis, keepdim)
        if not is_float(x.dtype): return Value(np.asarray(pick.reduce(x.data, axis=axis, keepdims=keepdim)), x.dtype)
        s = span(x.data)
        ends = [np.asarray(pick.reduce(e, axis=axis, keepdims=keepdim)) for e in s.ends()]
        some = [fold(np.logical_or, (e == 0) & np.signbit(e), False) for e in s.ends()]
        other = [fold(np.logical_or, (e == 0) & ~np.signbit(e), False) for e in s.ends()]
        lo = np.where((ends[0] == 0), np.where(some[0], -0.0, 0.0), ends[0])
        hi = np.where((ends[-1] == 0), np.where(other[-1], 0.0, -0.0), ends[-1])
        nan = fold(np.logical_or, np.isnan(s.lo), False)
        result = anything_where(Span(lo, hi), fold(np.logical_or, s.anything, False))
        result = Span(np.where(nan, np.nan, result.lo), np.where(nan, np.nan, result.hi))
        return store(tight(result), x.dtype)
    OPS[name] = call
extreme('amax', np.maximum), extreme('amin', np.minimum)
OPS['max'] = lambda x: OPS['amax'](x)
OPS['min'] = lambda x: OPS['amin'](x)

def quantified(test):
    def call(x, dim=ALL, keepdim=False): # of u8 it is u8, which was bool once
        result = np.asarray(test(as_integer(x, 'bool'), axis=axes(x, dim), keepdims=keepdim))
        return Value(result.astype(np.uint8), 'u8') if x.dtype == 'u8' else Value(result, 'bool')
    return call
OPS['any'], OPS['all'] = quantified(np.any), quantified(np.all)
@op
def count_nonzero(x, dim=ALL): return sum_(OPS['ne'](x, number(0)) if x.dtype != 'bool' else x, dim)

def arg(function):
    def call(x, dim=ALL, keepdim=False):
        axis = axes(x, dim)
        need(count_of(x, axis) > 0 and x.dtype != 'bool', 'nothing to choose from')
        e = exact(x)
        if len(axis) == e.ndim:
            at = np.asarray(function(e), np.int64)
            return Value(at.reshape([1] * e.ndim) if keepdim else at, 'i64')
        need(len(axis) == 1, 'one dim')
        at = np.asarray(function(e, axis=axis[0]), np.int64)
        return Value(np.expand_dims(at, axis[0]) if keepdim else at, 'i64')
    return call
OPS['argmax'], OPS['argmin'] = arg(np.argmax), arg(np.argmin)

@op
def cumsum(x, dim):
    d = axis_of(x, dim)
    if not is_float(x.dtype):
        e = as_integer(x, 'i64')
        return Value(e if e.ndim == 0 else np.cumsum(e, axis=d, dtype=np.int64), 'i64')
    if x.data.ndim == 0: return Value(x.data.copy(), x.dtype)
    def fold(function, values, start):
        return function.accumulate(np.asarray(values), axis=d) if np.size(values) else np.asarray(values)
    return store(summed(span(x.data, wide=True), x.dtype, fold, x.shape[d]), x.dtype)

@op
def cumprod(x, dim):
    d = axis_of(x, dim)
    if x.data.ndim == 0: return convert(x, x.dtype if is_float(x.dtype) else 'i64')
    if not is_float(x.dtype): return Value(np.cumprod(as_integer(x, 'i64'), axis=d, dtype=np.int64), 'i64')
    e = exact(x)
    need((e == np.trunc(e)).all() and (np.cumprod(np.fmax(np.abs(e), 1), axis=d) <= limit(x.dtype)).all(), 'rounds')
    result = np.cumprod(e, axis=d)
    return store(tight(Span(np.where(result == 0, -0.0, result), result)), x.dtype)

# ---- products ------------------------------------------------------------------------------------

@op
def matmul(a, b):
    dtype = promote([a, b])
    need(dtype != 'bool' and a.data.ndim > 0 and b.data.ndim > 0, 'no matrix')
    inner = b.shape[-2] if b.data.ndim > 1 else b.shape[0]
    need(a.shape[-1] == inner, 'inner sizes')
    batch = shapes(Value(np.empty(a.shape[:-2]), 'f64'), Value(np.empty(b.shape[:-2]), 'f64'))
    need(math.prod([*batch, *a.shape[-2:-1], *b.shape[-1:][:b.data.ndim - 1]]) <= MOST, 'too large')
    if not is_float(dtype): return Value(np.asarray(np.matmul(as_integer(a, dtype), as_integer(b, dtype))), dtype)
    x, y = spans([a, b], dtype, True)
    need(not x.anything.any() and not y.anything.any(), 'needs numbers')
    finite = all(np.isfinite(e).all() for e in x.ends() + y.ends())
    need(finite, 'needs finite elements')
    middle = np.matmul(x.lo, y.lo)
    p, q = np.fmax(np.abs(x.lo), np.abs(x.hi)), np.fmax(np.abs(y.lo), np.abs(y.hi))
    magnitude = np.matmul(p, q)
    width = np.matmul(x.hi - x.lo, q) + np.matmul(p, y.hi - y.lo)
    if dtype == 'bf16': # AMX takes subnormal elements as zeros, and leaves none
        tiny = lambda e: np.where(e < 2.0 ** -126, e, 0)
        flushed = np.matmul(tiny(p), q) + np.matmul(p, tiny(q))
    else: flushed = np.zeros(np.shape(middle))
    unit = np.min(grain(x.lo), initial=np.inf) * np.min(grain(y.lo), initial=np.inf)
    certain = magnitude / unit <= limit(dtype) if x.exact and y.exact else np.zeros(np.shape(middle), bool)
    if dtype == 'f64' and not np.all(certain): need(False, 'no reference in f64')
    slack = np.where(certain | (magnitude == 0), 0, (bound_of_sum(inner, dtype) + UNIT[dtype]) * magnitude + width) + flushed
    lo, hi = middle - slack, middle + slack
    result = Span(np.where(lo == 0, -0.0, lo), np.where(hi == 0, 0.0, hi))
    result = anything_where(result, magnitude > LARGEST[dtype] * 0.99)
    c = compute(dtype)
    return store(tight(Span(rounded(c, result.lo), rounded(c, result.hi))), dtype)
