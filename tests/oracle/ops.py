"""What every op means, in NumPy, on the judge's values: OPS[name](arguments as in the op table).

    pointwise  exact where one rounding decides; the functions of docs/architecture.md within 3 ulp
    sums       exact where every partial sum is (small integers), else within a bound of all orders
    the rest   moves elements about
Composites are their formulas; inside of them nothing has to be rounded to f16 or bf16.
Refused: wrong arguments, or a result that no two machines need agree on (floor of a rounded sum)."""
import math
import numpy as np
from values import *
from carbide import NUMPY

OPS = {}
ULPS = 3
ALL = 'all'

def op(function):
    OPS[function.__name__.rstrip('_')] = function
    return function

# ---- pointwise -----------------------------------------------------------------------------------

def shapes(*values):
    try: return np.broadcast_shapes(*(v.shape for v in values))
    except ValueError: raise Refused('shapes do not broadcast')

def spans(values, dtype, wide=False): return [as_span(v, dtype, wide) for v in values]

def corners(function, operands, dtype):
    """A function that is monotone in each operand and rounds once, from the corners of its operands."""
    c = compute(dtype)
    if all(o.exact for o in operands):
        return Span(np.asarray(rounded(c, function(*(o.lo for o in operands)))))
    results = [[]]
    for o in operands: results = [r + [e] for r in results for e in o.ends()]
    result = hull([np.asarray(rounded(c, function(*r))) for r in results])
    for o in operands: result = anything_where(result, o.anything)
    return result

def result_dtype(values, rule):
    dtype = promote(values)
    if rule == 'numeric': need(dtype != 'bool', 'a bool is no number')
    if rule == 'float' and not is_float(dtype): return 'f32'
    if rule == 'int': need(not is_float(dtype), 'needs integers')
    if rule == 'shift': need(category(dtype) == 1, 'needs integers')
    return dtype

def pointwise(name, rule, on_floats, on_integers=None, contracts=False, unrounded=None):
    def call(*values):
        shapes(*values)
        dtype = result_dtype(values, rule)
        if is_float(dtype):
            operands = spans(values, dtype, contracts)
            return store(corners(on_floats, operands, dtype), dtype,
                         unrounded and unrounded(operands, dtype))
        need(on_integers, f'{name} of integers')
        return Value(np.asarray(on_integers(*(as_integer(v, dtype) for v in values))).astype(NUMPY[dtype]), dtype)
    OPS[name] = call

def product(operands, dtype):
    """Before it is rounded: a product of two f32 is exact in f64; that of two f64 is widened a little."""
    a, b = operands[0], operands[-1]
    ends = [x * y for x in a.ends() for y in b.ends()]
    if dtype != 'f64': return hull(ends)
    whole = [np.abs(x) < 2.0 ** 26 for x in (a.lo, b.lo)] + [x == np.trunc(x) for x in (a.lo, b.lo)]
    small = whole[0] & whole[1] & whole[2] & whole[3] if a.exact and b.exact else False
    s = hull(ends)
    return Span(np.where(small, s.lo, np.nextafter(s.lo, -np.inf)), np.where(small, s.hi, np.nextafter(s.hi, np.inf)))

def quotient(x, y): return np.divide(x, y)

def divide(*values):
    shapes(*values)
    dtype = result_dtype(values, 'float')
    x, y = wide_numbers(values, dtype)
    result = corners(quotient, [x, y], dtype)
    if not y.exact: result = anything_where(result, (y.lo <= 0) & (y.hi >= 0) & np.ones(np.shape(x.lo), bool))
    return store(result, dtype)

def wide_numbers(values, dtype):
    """mul, div, floor_divide: a number beside f16 or bf16 counts as f32."""
    return [as_span(v, compute(dtype) if v.number else dtype) for v in values]

def multiply(*values):
    shapes(*values)
    dtype = result_dtype(values, 'same')
    if not is_float(dtype):
        a, b = (as_integer(v, dtype) for v in values)
        return Value(np.asarray(a & b if dtype == 'bool' else a * b), dtype)
    operands = wide_numbers(values, dtype)
    return store(corners(np.multiply, operands, dtype), dtype, product(operands, dtype))

@op
def square(x):
    need(x.dtype != 'bool', 'a bool is no number')
    if not is_float(x.dtype): return multiply(x, x)
    s = magnitudes(span(x.data))
    return store(corners(np.square, [s], x.dtype), x.dtype, product([s], x.dtype))

OPS['mul'], OPS['div'] = multiply, divide
pointwise('add', 'same', np.add, lambda a, b: a | b if a.dtype == bool else a + b, contracts=True)
pointwise('sub', 'numeric', np.subtract, np.subtract, contracts=True)
pointwise('sqrt', 'float', np.sqrt)
pointwise('floor', 'same', np.floor, lambda a: a)
pointwise('ceil', 'same', np.ceil, lambda a: a)
pointwise('round', 'same', np.rint, lambda a: a)
pointwise('trunc', 'same', np.trunc, lambda a: a)

def larger(a, b): return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a > b, a, b))
def smaller(a, b): return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a < b, a, b))

def selected(name, pick, pick_integers):
    """The larger or smaller one: of two zeros either."""
    def call(a, b):
        shapes(a, b)
        dtype = promote([a, b])
        if not is_float(dtype): return Value(np.asarray(pick_integers(as_integer(a, dtype), as_integer(b, dtype))), dtype)
        x, y = spans([a, b], dtype)
        result = hull([corners(pick, [x, y], dtype).lo, corners(pick, [y, x], dtype).lo,
                       corners(pick, [x, y], dtype).hi, corners(pick, [y, x], dtype).hi])
        result = anything_where(result, x.anything | y.anything)
        return store(tight(result), dtype)
    OPS[name] = call

def tight(s): return Span(s.lo) if same(s.lo, s.hi).all() else s

selected('maximum', larger, np.maximum)
selected('minimum', smaller, np.minimum)

@op
def neg(x):
    dtype = result_dtype([x], 'numeric')
    if not is_float(dtype): return Value(np.asarray(-x.data), dtype)
    d = x.data # -(a * b) + c is contracted as well
    return Value(record(-d['hi'], -d['lo'], -d['wide_hi'], -d['wide_lo']), dtype)

@op
def abs_(x):
    if not is_float(x.dtype): return Value(np.asarray(np.abs(x.data)), x.dtype)
    return store(magnitudes(span(x.data)), x.dtype)

def magnitudes(s):
    if s.exact: return Span(np.abs(s.lo))
    across = (s.lo <= 0) & (s.hi >= 0)
    low = np.where(across, 0.0, np.fmin(np.abs(s.lo), np.abs(s.hi)))
    high = np.fmax(np.abs(s.lo), np.abs(s.hi))
    nan = np.isnan(s.lo)
    return anything_where(Span(np.where(nan, np.nan, low), np.where(nan, np.nan, high)), s.anything)

@op
def sign(x): # of NaN it is 0
    need(x.dtype != 'bool', 'a bool is no number')
    if not is_float(x.dtype): return Value(np.asarray(np.sign(x.data)), x.dtype)
    x_ = span(x.data)
    need(not x_.anything.any(), 'needs exact elements')
    return store(tight(hull([np.where(np.isnan(e), 0.0, (e > 0) * 1.0 - (e < 0) * 1.0) for e in x_.ends()])), x.dtype)

@op
def relu(x): # a zero keeps its sign
    dtype = result_dtype([x], 'numeric')
    if not is_float(dtype): return Value(np.where(x.data < 0, 0, x.data).astype(NUMPY[dtype]), dtype)
    return store(corners(lambda a: np.where(a < 0, 0.0, a), spans([x], dtype), dtype), dtype)

@op
def reciprocal(x): return divide(number(1.0), x) if is_float(x.dtype) else divide(number(1.0), convert(x, 'f32'))

@op
def frac(x):
    if not is_float(x.dtype): return Value(np.zeros_like(x.data), x.dtype)
    exact(x, 'exact elements before frac')
    s = span(x.data, wide=True)
    need(s.exact, 'needs an exact product')
    return store(Span(rounded(compute(x.dtype), s.lo - np.trunc(s.lo))), x.dtype)

@op
def copysign(a, b):
    dtype = result_dtype([a, b], 'float')
    shapes(a, b)
    x, y = spans([a, b], dtype)
    need(y.exact or (np.signbit(y.lo) == np.signbit(y.hi)).all(), 'needs a sign')
    need(not np.isnan(y.lo).any(), 'NaN has no sign')
    x = span(abs_(store(x, dtype)).data)
    return store(corners(lambda p, q: np.where(np.signbit(q), -p, p), [x, Span(y.lo)], dtype), dtype)

@op
def hypot(a, b): return near2(np.hypot, a, b)
@op
def atan2(a, b): return near2(np.arctan2, a, b)
@op
def rsqrt(x): return near(lambda a: 1 / np.sqrt(a), x, 'float', -1)

def around(values, dtype, ulps=ULPS):
    """A span that many last places of the computation wide."""
    c = compute(dtype)
    special = ~np.isfinite(values) & (np.isnan(values) | ~np.isfinite(rounded(c, values)))
    infinite = np.isinf(values)
    lo, hi = step(rounded(c, values), c, -ulps), step(rounded(c, values), c, ulps)
    over = np.abs(values) > LARGEST[c] * 0.999999 # near the end: infinite or the last number
    lo = np.where(np.isnan(values) | infinite & (values > 0), values, lo)
    hi = np.where(np.isnan(values) | infinite & (values < 0), values, hi)
    lo = np.where(over & (values > 0), LARGEST[c] * 0.999999, lo)
    hi = np.where(over & (values < 0), -LARGEST[c] * 0.999999, hi)
    zero = values == 0
    return Span(np.where(zero, np.copysign(0.0, values), lo), np.where(zero, np.copysign(0.0, values), hi)), special

def precise(function, x, dtype):
    """In f64 for f32, in long double for f64."""
    if dtype != 'f64': return function(x)
    return np.asarray(function(x.astype(np.longdouble))).astype(np.float64)

def near(function, x, rule='float', direction=1):
    """A monotone function that is computed within a few last places."""
    dtype = result_dtype([x], rule)
    s = as_span(x, dtype, wide=True)
    ends = [precise(function, e, compute(dtype)) for e in s.ends()]
    parts = [p for e in ends for p in around(e, dtype)[0].ends()]
    return store(anything_where(hull(parts), s.anything | (np.isnan(parts[0]) & ~s_nan(s))
                                if not s.exact else s.anything), dtype)

def s_nan(s): return np.isnan(s.lo)

def near2(function, a, b):
    shapes(a, b)
    dtype = result_dtype([a, b], 'float')
    x, y = spans([a, b], dtype)
    need(x.exact and y.exact, 'needs exact elements')
    if dtype == 'f64': return store(around(np.asarray(function(x.lo.astype(np.longdouble), y.lo.astype(np.longdouble))).astype(np.float64), dtype)[0], dtype)
    return store(around(np.asarray(function(x.lo, y.lo)), dtype)[0], dtype)

def bounded_slope(function):
    """sin and cos: no steeper than 1."""
    def call(x):
        dtype = result_dtype([x], 'float')
        s = as_span(x, dtype, wide=True)
        centre = around(precise(function, s.lo, compute(dtype)), dtype)[0]
        if s.exact: return store(centre, dtype)
        width = (s.hi - s.lo) * 1.001
        result = Span(np.fmax(centre.lo - width, -1.0 - 1e-6), np.fmin(centre.hi + width, 1.0 + 1e-6))
        unknown = ~np.isfinite(s.lo) & ~np.isnan(s.lo) | ~np.isfinite(s.hi) & ~np.isnan(s.hi)
        nan = np.isnan(s.lo)
        result = Span(np.where(nan, np.nan, result.lo), np.where(nan, np.nan, result.hi))
        return store(anything_where(result, unknown), dtype)
    return call

def sigmoid(x): return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
def erf_of(x): return np.vectorize(math.erf, otypes=[float])(np.asarray(x, float)) if np.size(x) else np.asarray(x, float)
def erfc_of(x): return np.vectorize(math.erfc, otypes=[float])(np.asarray(x, float)) if np.size(x) else np.asarray(x, float)

INCREASING = dict(exp=np.exp, exp2=np.exp2, expm1=np.expm1, log=np.log, log2=np.log2, log10=np.log10, log1p=np.log1p,
                  asin=np.arcsin, atan=np.arctan, sinh=np.sinh, tanh=np.tanh, asinh=np.arcsinh, acosh=np.arccosh,
                  atanh=np.arctanh)
for name, function in INCREASING.items():
    OPS[name] = (lambda f: lambda x: near(f, x))(function)
OPS['acos'] = lambda x: near(np.arccos, x)
OPS['sin'], OPS['cos'] = bounded_slope(np.sin), bounded_slope(np.cos)

def only_exact(function):
    def call(x):
        need(is_exact(x) and as_span(x, result_dtype([x], 'float')).exact, 'needs exact elements')
        return near(function, x)
    return call
OPS['tan'], OPS['cosh'] = only_exact(np.tan), only_exact(np.cosh)

def loosely(function, relative):
    """What NumPy has in f64 alone: within the bound in f32, refused in f64."""
    def call(x):
        dtype = result_dtype([x], 'float')
        need(dtype != 'f64' and x.size <= 5000, 'no reference in f64')
        s = as_span(x, dtype, wide=True)
        parts = [p for e in s.ends() for p in around(function(e), dtype, relative)[0].ends()]
        return store(anything_where(hull(parts), s.anything), dtype)
    return call
OPS['erf'], OPS['erfc'] = loosely(erf_of, ULPS), loosely(erfc_of, 6)
OPS['sigmoid'] = loosely(sigmoid, 4)

def power(a, b):
    shapes(a, b)
    dtype = result_dtype([a, b], 'numeric')
    if not is_float(dtype):
        base, exponent = np.broadcast_arrays(as_integer(a, dtype), as_integer(b, dtype))
        result, square, rest = np.ones_like(base), base.copy(), exponent.astype(np.int64).copy()
        while np.any(rest > 0):
            result = np.where(rest & 1 == 1, result * square, result)
            square, rest = square * square, np.where(rest > 0, rest >> 1, 0)
        negative = np.where(base == 1, 1, np.where(base == -1, np.where(exponent & 1 == 1, -1, 1), 0)) \
            if dtype != 'u8' else result
        return Value(np.where(exponent < 0, negative, result).astype(NUMPY[dtype]), dtype)
    x, y = spans([a, b], dtype)
    need(x.exact and y.exact, 'needs exact elements')
    if dtype == 'f64': result = np.power(x.lo.astype(np.longdouble), y.lo.astype(np.longdouble)).astype(np.float64)
    else: result = np.power(x.lo, y.lo)
    return store(around(np.asarray(result), dtype, 4)[0], dtype)
OPS['pow'] = power

# ---- quotients that are whole --------------------------------------------------------------------

def in_type(dtype): return np.float64 if dtype == 'f64' else np.float32

def exact_pair(a, b, dtype, wide_number=False):
    x, y = wide_numbers([a, b], dtype) if wide_number else spans([a, b], dtype)
    need(x.exact and y.exact, 'needs exact elements')
    t = in_type(compute(dtype))
    return np.broadcast_arrays(x.lo.astype(t), y.lo.astype(t))

@op
def fmod(a, b):
    shapes(a, b)
    dtype = result_dtype([a, b], 'numeric')
    if not is_float(dtype): return Value(np.asarray(np.fmod(as_integer(a, dtype), as_integer(b, dtype))), dtype)
    x, y = exact_pair(a, b, dtype)
    return store(Span(np.fmod(x, y).astype(np.float64)), dtype)

@op
def remainder(a, b): # the sign of the divisor; a zero keeps that of the dividend
    shapes(a, b)
    dtype = result_dtype([a, b], 'numeric')
    if not is_float(dtype): return Value(np.asarray(np.remainder(as_integer(a, dtype), as_integer(b, dtype))), dtype)
    x, y = exact_pair(a, b, dtype)
    m = np.fmod(x, y)
    return store(Span(np.where((m != 0) & ((y < 0) != (m < 0)), m + y, m).astype(np.float64)), dtype)

@op
def floor_divide(a, b):
    shapes(a, b)
    dtype = result_dtype([a, b], 'numeric')
    if not is_float(dtype): return Value(np.asarray(np.floor_divide(as_integer(a, dtype), as_integer(b, dtype))), dtype)
    x, y = exact_pair(a, b, dtype, True)
    m = np.fmod(x, y)
    q = (x - m) / y
    q = np.where((m != 0) & ((y < 0) != (m < 0)), q - 1, q).astype(x.dtype)
    f = np.floor(q)
    f = np.where(q - f > 0.5, f + 1, f)
    f = np.where(q == 0, np.copysign(0, x / y), f)
    return store(Span(np.where(y == 0, x / y, f).astype(np.float64)), dtype)

# ---- conditions and bits -------------------------------------------------------------------------

def comparison(name, compare):
    def call(a, b):
        shapes(a, b)
        dtype = promote([a, b])
        if not is_float(dtype): return Value(np.asarray(compare(as_integer(a, dtype), as_integer(b, dtype))), 'bool')
        x, y = spans([a, b], dtype)
        need(not (x.anything.any() or y.anything.any()), 'needs exact elements')
        if not (x.exact and y.exact) and name in ('eq', 'ne'):
            apart = (x.hi < y.lo) | (y.hi < x.lo) | np.isnan(x.lo) | np.isnan(y.lo) | ((x.lo == x.hi) & (y.lo == y.hi))
            need(apart.all(), 'needs exact elements')
        results = [compare(p, q) for p in x.ends() for q in y.ends()]
        need(all((r == results[0]).all() for r in results), 'needs exact elements')
        return Value(np.asarray(results[0]), 'bool')
    OPS[name] = call
for name, compare in dict(eq=np.equal, ne=np.not_equal, lt=np.less, le=np.less_equal, gt=np.greater,
                          ge=np.greater_equal).items(): comparison(name, compare)

def tested(name, test):
    def call(x):
        if not is_float(x.dtype): return Value(np.full(x.shape, name == 'isfinite'), 'bool')
        s = span(x.data)
        need(not s.anything.any(), 'needs exact elements')
        results = [test(e) for e in s.ends()]
        need(all((r == results[0]).all() for r in results), 'needs exact elements')
        return Value(np.asarray(results[0]), 'bool')
    OPS[name] = call
tested('isnan', np.isnan), tested('isinf', np.isinf), tested('isfinite', np.isfinite)

def logical(name, function):
    def call(*values):
        shapes(*values)
        return Value(np.asarray(function(*(as_integer(v, 'bool') for v in values))), 'bool')
    OPS[name] = call
logical('logical_not', np.logical_not), logical('logical_and', np.logical_and)
logical('logical_or', np.logical_or), logical('logical_xor', np.logical_xor)
pointwise('bitwise_not', 'int', None, np.invert)
pointwise('bitwise_and', 'int', None, np.bitwise_and)
pointwise('bitwise_or', 'int', None, np.bitwise_or)
pointwise('bitwise_xor', 'int', None, np.bitwise_xor)

def shift(function):
    def call(a, b):
        shapes(a, b)
        dtype = result_dtype([a, b], 'shift')
        x, y = as_integer(a, dtype), as_integer(b, dtype)
        bits = NUMPY[dtype].itemsize * 8
        return Value(np.asarray(function(x, y, (y < 0) | (y >= bits), bits)).astype(NUMPY[dtype]), dtype)
    return call
OPS['left_shift'] = shift(lambda x, y, out, bits: np.where(out, 0, np.left_shift(x, np.where(out, 0, y))))
OPS['right_shift'] = shift(lambda x, y, out, bits: np.where(
    out, np.where(x < 0, -1, 0), np.right_shift(x, np.where(out, 0, y))))

@op
def where(condition, a, b):
    need(condition.dtype == 'bool' and not condition.number, 'the condition is no bool tensor')
    shape = shapes(condition, a, b)
    dtype = promote([a, b])
    x, y = (np.broadcast_to(moved(v, dtype), shape) for v in (a, b))
    return Value(np.where(condition.data, x, y), dtype)

def moved(value, dtype):
    """The data of value in dtype, to be moved about; a product keeps what it was before rounding."""
    if value.dtype == dtype and not value.number: return value.data
    if not is_float(dtype): return as_integer(value, dtype)
    return store(as_span(value, dtype), dtype).data

# ---- reductions ----------------------------------------------------------------------------------

def axes(x, dim):
    if dim == ALL: return tuple(range(x.data.ndim))
    dims = [dim] if isinstance(dim, int) else list(dim)
    if not dims: return tuple(range(x.data.ndim))
    need(all(-max(x.data.ndim, 1) <= d < max(x.data.ndim, 1) for d in dims), 'no such dim')
    if x.data.ndim == 0: return ()
    dims = [d % x.data.ndim for d in dims]
    need(len(set(dims)) == len(dims), 'a dim twice')
    return tuple(sorted(dims))

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
    s = anything_where(s, wild & ~np.isnan(result))
    return store(tight(Span(rounded(c, s.lo), rounded(c, s.hi))), x.dtype)

def extreme(name, pick, start):
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
extreme('amax', np.maximum, -np.inf), extreme('amin', np.minimum, np.inf)
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
    if x.data.ndim == 0: return reshape(x, [1])
    a, b = axis_of(x, start_dim), axis_of(x, end_dim)
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
    """A number as an element of dtype; an integer dtype has to hold it."""
    if is_float(dtype): return record(rounded(dtype, np.float64(value)))
    if dtype == 'bool': return np.bool_(value != 0)
    need(math.isfinite(value), 'no integer')
    whole, ends = math.trunc(value), np.iinfo(NUMPY[dtype])
    need(ends.min <= whole <= ends.max, 'too large for the dtype')
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
    need(category(x.dtype) == 1 and classes > 0 and ((x.data >= 0) & (x.data < classes)).all(), 'class')
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
    if regime.rounds or compute(x.dtype) == x.dtype: pass
    result = Span(ends[0] - slack, ends[-1] + slack)
    moved_zero = (counts > 0) & (result.lo <= 0) & (result.hi >= 0)
    result = Span(np.where(moved_zero & (result.lo == 0), -0.0, result.lo), np.where(moved_zero & (result.hi == 0), 0.0, result.hi))
    result = anything_where(result, (counts > 0) & (magnitude > LARGEST[x.dtype] * 0.99))
    wild = ~np.isfinite(base.lo) | ~np.isfinite(base.hi)
    result = anything_where(result, fold(np.logical_or, base.anything | (wild & (counts > 0) & ~base_exact(base)),
                                         more.anything | ((~np.isfinite(more.lo) | ~np.isfinite(more.hi)) & ~base_exact(more))))
    c = compute(x.dtype)
    return store(tight(Span(rounded(c, result.lo), rounded(c, result.hi))), x.dtype)

def base_exact(s): return same(s.lo, s.hi)

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
    need(0 <= k <= size, 'k')
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
    return [narrow(x, dim, at, min(size, total - at)) for at in range(0, max(total, 1), size)]
def chunk(x, chunks, dim):
    need(x.data.ndim > 0 and chunks > 0, 'chunks')
    total = x.shape[axis_of(x, dim)]
    need(total > 0, 'empty')
    return split(x, -(-total // chunks), dim)
SEVERAL = dict(sort=sort, topk=topk, split=split, chunk=chunk)

# ---- products ------------------------------------------------------------------------------------

@op
def matmul(a, b):
    dtype = promote([a, b])
    need(dtype != 'bool' and a.data.ndim > 0 and b.data.ndim > 0, 'no matrix')
    inner = b.shape[-2] if b.data.ndim > 1 else b.shape[0]
    need(a.shape[-1] == inner, 'inner sizes')
    shapes(Value(np.empty(a.shape[:-2]), 'f64'), Value(np.empty(b.shape[:-2]), 'f64'))
    if not is_float(dtype): return Value(np.asarray(np.matmul(as_integer(a, dtype), as_integer(b, dtype))), dtype)
    x, y = spans([a, b], dtype, True)
    need(not x.anything.any() and not y.anything.any(), 'needs numbers')
    finite = all(np.isfinite(e).all() for e in x.ends() + y.ends())
    need(finite, 'needs finite elements')
    middle = np.matmul(x.lo, y.lo)
    p, q = np.fmax(np.abs(x.lo), np.abs(x.hi)), np.fmax(np.abs(y.lo), np.abs(y.hi))
    magnitude = np.matmul(p, q)
    width = np.matmul(x.hi - x.lo, q) + np.matmul(p, y.hi - y.lo)
    unit = np.min(grain(x.lo), initial=np.inf) * np.min(grain(y.lo), initial=np.inf)
    certain = magnitude / unit <= limit(dtype) if x.exact and y.exact else np.zeros(np.shape(middle), bool)
    if dtype == 'f64' and not np.all(certain): need(False, 'no reference in f64')
    slack = np.where(certain | (magnitude == 0), 0, (bound_of_sum(inner, dtype) + UNIT[dtype]) * magnitude + width)
    lo, hi = middle - slack, middle + slack
    result = Span(np.where(lo == 0, -0.0, lo), np.where(hi == 0, 0.0, hi))
    result = anything_where(result, magnitude > LARGEST[dtype] * 0.99)
    c = compute(dtype)
    return store(tight(Span(rounded(c, result.lo), rounded(c, result.hi))), dtype)

# ---- composites: their formulas ------------------------------------------------------------------

def composite(function):
    name = function.__name__.rstrip('_')
    def call(*arguments, **named):
        with within(False, True): result = function(*arguments, **named)
        return settled(result)
    OPS[name] = call
    return call

def settled(value):
    """Rounded to its dtype where the regime says so."""
    if value.dtype not in ('f16', 'bf16') or not regime.rounds: return value
    d = value.data
    lo, hi = rounded(value.dtype, d['lo']), rounded(value.dtype, d['hi'])
    return Value(record(lo, hi), value.dtype)

def o(name, *arguments, **named):
    return OPS[name](*(number(a) if isinstance(a, (int, float)) and name in OPERANDS else a for a in arguments), **named)
OPERANDS = set('add sub mul div maximum minimum gt lt le ge eq ne where pow exp log sqrt'.split())

def floats_only(x): need(is_float(x.dtype), 'floats') # an attribute has no dtype of its own
@composite
def masked_fill(x, mask, value): floats_only(x); return where(mask, number(float(value)), x)
@composite
def clamp(x, low=-np.inf, high=np.inf): return o('minimum', o('maximum', x, low), high)
@composite
def lerp(x, y, weight): floats_only(x); return o('add', x, o('mul', o('sub', y, x), float(weight)))
@composite
def addcmul(x, p, q, value=1.0): floats_only(x); return o('add', x, o('mul', o('mul', p, q), float(value)))
@composite
def addcdiv(x, p, q, value=1.0): floats_only(x); return o('add', x, o('mul', o('div', p, q), float(value)))
@composite
def mean(x, dim=ALL, keepdim=False):
    need(is_float(x.dtype), 'the mean of integers')
    return o('div', sum_(x, dim, keepdim), float(count_of(x, axes(x, dim))))
@composite
def var(x, dim=ALL, correction=1, keepdim=False):
    count = count_of(x, axes(x, dim))
    return o('div', sum_(o('square', o('sub', x, mean(x, dim, True))), dim, keepdim), float(max(count - correction, 0)))
@composite
def leaky_relu(x, slope=0.01): floats_only(x); return where(o('gt', x, 0), x, o('mul', x, float(slope)))
@composite
def relu6(x): return clamp(x, 0, 6)
@composite
def hardtanh(x, low=-1.0, high=1.0): floats_only(x); return clamp(x, low, high)
@composite
def hardsigmoid(x): floats_only(x); return o('div', clamp(o('add', x, 3), 0.0, 6.0), 6)
@composite
def hardswish(x): floats_only(x); return o('div', o('mul', x, clamp(o('add', x, 3), 0.0, 6.0)), 6)
@composite
def hardshrink(x, lambd=0.5): floats_only(x); return where(o('le', abs_(x), float(lambd)), number(0), x)
@composite
def threshold(x, threshold, value): floats_only(x); return where(o('le', x, float(threshold)), number(float(value)), x)
@composite
def softmax(x, dim):
    floats_only(x)
    e = o('exp', o('sub', x, OPS['amax'](x, dim, True)))
    return o('div', e, sum_(e, dim, True))
@composite
def log_softmax(x, dim):
    floats_only(x)
    s = o('sub', x, OPS['amax'](x, dim, True))
    return o('sub', s, o('log', sum_(o('exp', s), dim, True)))
@composite
def linear(x, weight, bias=None):
    need(weight.data.ndim == 2, 'weight')
    product = matmul(x, t(weight))
    return o('add', product, bias) if bias is not None else product
def widened(value, ulps):
    """For formulas that may be written in another order."""
    s = span(value.data)
    ends = [e for x in s.ends() for e in around(x, value.dtype, ulps)[0].ends()]
    return store(anything_where(hull(ends), s.anything), value.dtype)

@composite
def gelu(x, tanh=False):
    floats_only(x)
    need(not tanh, 'gelu by tanh')
    return widened(o('mul', o('mul', x, 0.5), o('add', OPS['erf'](o('mul', x, 0.7071067811865476)), 1.0)), 4)
@composite
def silu(x): floats_only(x); return widened(o('mul', x, OPS['sigmoid'](x)), 2)
@composite
def softplus(x, beta=1.0, threshold=20.0):
    floats_only(x)
    need(is_exact(x), 'needs exact elements')
    return where(o('gt', o('mul', x, beta), threshold), x, o('div', OPS['log1p'](OPS['exp'](o('mul', x, beta))), beta))
@composite
def elu(x, alpha=1.0): floats_only(x); return where(o('gt', x, 0), x, o('mul', OPS['expm1'](x), alpha))
@composite
def softsign(x): floats_only(x); return o('div', x, o('add', abs_(x), 1.0))
@composite
def logsumexp(x, dim, keepdim=False):
    floats_only(x)
    need(np.isfinite(exact(x)).all(), 'needs finite elements')
    top = OPS['amax'](x, dim, True)
    total = o('log', sum_(o('exp', o('sub', x, top)), dim, keepdim))
    return o('add', total, top if keepdim else OPS['amax'](x, dim, False))
@composite
def norm(x, dim=ALL, keepdim=False): floats_only(x); return o('sqrt', sum_(square(x), dim, keepdim))
@composite
def std(x, dim=ALL, correction=1, keepdim=False): floats_only(x); return o('sqrt', OPS['var'](x, dim, correction, keepdim))
@composite
def mse_loss(x, target):
    need(x.dtype == target.dtype, 'dtypes')
    return mean(square(o('sub', x, target)))
@composite
def l1_loss(x, target):
    need(x.dtype == target.dtype, 'dtypes')
    return mean(abs_(o('sub', x, target)))
@composite
def glu(x, dim=-1):
    floats_only(x)
    need(x.data.ndim > 0 and x.shape[axis_of(x, dim)] % 2 == 0, 'halves')
    half = x.shape[axis_of(x, dim)] // 2
    return widened(o('mul', narrow(x, dim, 0, half), OPS['sigmoid'](narrow(x, dim, half, half))), 2)
@composite
def layer_norm(x, normalized, weight=None, bias=None, eps=1e-5):
    floats_only(x)
    need(list(x.shape[x.data.ndim - len(normalized):]) == list(normalized) and len(normalized) > 0, 'sizes')
    dims = list(range(-len(normalized), 0))
    away = o('sub', x, mean(x, dims, True))
    spread_ = o('sqrt', o('add', mean(square(away), dims, True), float(eps)))
    result = widened(o('div', away, spread_), 6)
    if weight is not None: result = o('mul', result, weight)
    return o('add', result, bias) if bias is not None else result

def padded(x, widths, value):
    """Behind the first dims nothing: widths of the last ones on both sides."""
    flat = [w for w in reversed(widths) for _ in range(2)]
    return pad(x, flat, value)

def windows(x, kernel, stride, dilation):
    """The windows of the last dims, their elements behind."""
    first = x.data.ndim - len(kernel)
    for k in range(len(kernel)): x = window(x, first + k, kernel[k], stride[k], dilation[k])
    return x

def of_each(a, n): return [a] * n if isinstance(a, int) else list(a) * (n if len(a) == 1 else 1)

def pooled(n, kind):
    def call(x, kernel_size, stride=(), padding=0, dilation=1):
        floats_only(x)
        need(x.data.ndim in (n + 1, n + 2), 'rank')
        kernel = of_each(kernel_size, n)
        steps = of_each(stride, n) if stride != () else kernel
        edges = of_each(padding, n)
        need(all(2 * e <= k for e, k in zip(edges, kernel)), 'padding')
        x = padded(x, edges, -np.inf if kind == 'max' else 0.0)
        w = windows(x, kernel, steps, of_each(dilation, n))
        need(w.size > 0, 'empty')
        dims = list(range(-n, 0))
        if kind == 'max': return OPS['amax'](w, dims)
        return o('div', sum_(w, dims), float(np.prod(kernel)))
    call.__name__ = f'{kind}_pool{n}d'
    composite(call)
for n in 1, 2: pooled(n, 'max'), pooled(n, 'avg')

def convolved(n):
    def call(x, weight, bias=None, stride=1, padding=0, dilation=1):
        need(x.dtype == weight.dtype and x.data.ndim == n + 2 and weight.data.ndim == n + 2, 'rank')
        need(x.shape[1] == weight.shape[1] and x.size and weight.size, 'channels')
        kernel = weight.shape[2:]
        need(all(k not in (3, 5) for k in kernel) or n == 1, 'may round otherwise') # Winograd's method
        w = windows(padded(x, of_each(padding, n), 0.0), kernel, of_each(stride, n), of_each(dilation, n))
        w = permute(w, [0, *range(2, 2 + n), 1, *range(2 + n, 2 + 2 * n)]) # batch, places, channels, elements
        rows = reshape(w, [*w.shape[:1 + n], int(np.prod(w.shape[1 + n:]))])
        result = matmul(rows, t(reshape(weight, [weight.shape[0], -1])))
        if bias is not None: result = o('add', result, bias)
        return permute(result, [0, 1 + n, *range(1, 1 + n)])
    call.__name__ = f'conv{n}d'
    composite(call)
for n in 1, 2: convolved(n)

@composite
def addmm(x, a, b): return o('add', x, matmul(a, b))

# ---- writes --------------------------------------------------------------------------------------

def spread(x):
    """Several elements are one in memory."""
    flat = np.lib.stride_tricks.as_strided(np.zeros(0, np.int8), (0,))
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
