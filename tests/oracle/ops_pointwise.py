"""Pointwise ops: exact where one rounding decides; the functions of docs/numerics.md within 3 ulp."""
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

MOST = 1 << 22 # elements of a result: two long vectors may broadcast to gigabytes

def shapes(*values):
    try: shape = np.broadcast_shapes(*(v.shape for v in values))
    except ValueError: raise Refused('shapes do not broadcast')
    need(math.prod(shape) <= MOST, 'too large')
    return shape

def spans(values, dtype, wide=False): return [as_span(v, dtype, wide) for v in values]

def points(s):
    """The ends of a span, and the -0 between them: relu is monotone but for it."""
    if s.exact: return s.ends()
    return s.lo, np.where((s.lo < 0) & (s.hi > 0), -0.0, s.lo), s.hi

def corners(function, operands, dtype):
    """A function that is monotone in each operand and rounds once, from the corners of its operands."""
    c = compute(dtype)
    if all(o.exact for o in operands):
        return Span(np.asarray(rounded(c, function(*(o.lo for o in operands)))))
    results = [[]]
    for o in operands: results = [r + [e] for r in results for e in points(o)]
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
            result = corners(on_floats, operands, dtype)
            return store(result, dtype, unrounded and unrounded(operands, dtype, result))
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

def chosen(mask, s, other):
    """The elements of s where the mask is set, else those of the other span."""
    return Span(np.where(mask, s.lo, other.lo), np.where(mask, s.hi, other.hi))

def doubled(operands, dtype, result):
    """C compilers take x + x for x * 2, and contract it: its sum with another may then be finite where x + x is not."""
    a, b = operands
    mask = same(a.lo, b.lo) & same(a.hi, b.hi)
    return chosen(mask, product([a, Span(np.array(2.0))], dtype), result) if mask.any() else None

def doubled_difference(operands, dtype, result):
    """x - -x as well."""
    a, b = operands
    return doubled([a, Span(-b.lo) if b.exact else Span(-b.hi, -b.lo)], dtype, result)

def quotient(operands, dtype, result):
    """And x / 2^k for a product with 2^-k."""
    x, y = operands
    inverse = 1 / y.lo
    mask = np.asarray((np.abs(np.frexp(y.lo)[0]) == 0.5) & np.isfinite(inverse) & (inverse != 0))
    return chosen(mask, product([x, Span(np.where(mask, inverse, 1.0))], dtype), result) if y.exact and mask.any() else None

def divide(*values):
    shapes(*values)
    dtype = result_dtype(values, 'float')
    x, y = wide_numbers(values, dtype)
    result = corners(np.divide, [x, y], dtype)
    if not y.exact: result = anything_where(result, (y.lo <= 0) & (y.hi >= 0) & np.ones(np.shape(x.lo), bool))
    return store(result, dtype, quotient([x, y], dtype, result))

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
pointwise('add', 'same', np.add, lambda a, b: a | b if a.dtype == bool else a + b, contracts=True, unrounded=doubled)
pointwise('sub', 'numeric', np.subtract, np.subtract, contracts=True, unrounded=doubled_difference)
subtract_numbers = OPS['sub']
def subtract(a, b):
    need(a.dtype != 'bool' and b.dtype != 'bool', 'a bool is no number')
    return subtract_numbers(a, b)
OPS['sub'] = subtract
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
        pairs = [(x, y), (y, x)]
        if a.number or b.number: pairs += [wide_numbers([a, b], dtype), wide_numbers([b, a], dtype)] # a limit, until it is stored
        ends = [corners(pick, list(pair), dtype) for pair in pairs]
        result = hull([e.lo for e in ends] + [e.hi for e in ends])
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
def rsqrt(x): return near(lambda a: 1 / np.sqrt(a), x)

def around(values, dtype, ulps=ULPS):
    """A span that many last places of the computation wide."""
    c = compute(dtype)
    infinite = np.isinf(values)
    lo, hi = step(rounded(c, values), c, -ulps), step(rounded(c, values), c, ulps)
    over = np.abs(values) > LARGEST[c] * 0.999999 # near the end: infinite or the last number
    lo = np.where(np.isnan(values) | infinite & (values > 0), values, lo)
    hi = np.where(np.isnan(values) | infinite & (values < 0), values, hi)
    lo = np.where(over & (values > 0), LARGEST[c] * 0.999999, lo)
    hi = np.where(over & (values < 0), -LARGEST[c] * 0.999999, hi)
    zero = values == 0
    return Span(np.where(zero, values, lo), np.where(zero, values, hi))

def precise(function, x, dtype):
    """In f64 for f32, in long double for f64."""
    if dtype != 'f64': return function(x)
    return np.asarray(function(x.astype(np.longdouble))).astype(np.float64)

def near(function, x, rule='float'):
    """A monotone function that is computed within a few last places."""
    dtype = result_dtype([x], rule)
    s = as_span(x, dtype, wide=True)
    ends = [precise(function, e, compute(dtype)) for e in s.ends()]
    parts = [p for e in ends for p in around(e, dtype).ends()]
    unknown = s.anything if s.exact else s.anything | (np.isnan(parts[0]) & ~np.isnan(s.lo))
    return store(anything_where(hull(parts), unknown), dtype)

def near2(function, a, b):
    shapes(a, b)
    dtype = result_dtype([a, b], 'float')
    x, y = spans([a, b], dtype)
    need(x.exact and y.exact, 'needs exact elements')
    pair = (x.lo, y.lo) if dtype != 'f64' else (x.lo.astype(np.longdouble), y.lo.astype(np.longdouble))
    return store(around(np.asarray(function(*pair)).astype(np.float64), dtype), dtype)

def bounded_slope(function):
    """sin and cos: no steeper than 1."""
    def call(x):
        dtype = result_dtype([x], 'float')
        s = as_span(x, dtype, wide=True)
        centre = around(precise(function, s.lo, compute(dtype)), dtype)
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
        parts = [p for e in s.ends() for p in around(function(e), dtype, relative).ends()]
        return store(anything_where(hull(parts), s.anything), dtype)
    return call
OPS['erf'], OPS['erfc'] = loosely(erf_of, ULPS), loosely(erfc_of, 6)
OPS['sigmoid'] = loosely(sigmoid, 4)

def power(a, b):
    shapes(a, b)
    dtype = result_dtype([a, b], 'numeric')
    if not is_float(dtype):
        need(not b.number or as_integer(b, 'i64') >= 0, 'integers have no negative power')
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
    elif dtype == 'f32' and b.number: result = np.power(x.lo.astype(np.float64), as_span(b, 'f64').lo) # odd before it is rounded
    else: result = np.power(x.lo, y.lo)
    ends = (y.lo == 0.5) & (np.isinf(x.lo) | (x.lo == 0)) # NumPy may take a square root; pow of -inf is inf, of -0.0 is 0.0
    result = np.where(ends, np.abs(x.lo), result)
    if b.number and dtype != 'f16' and np.all(np.abs(y.lo) == 0.5): # a root, which is NaN of -inf and keeps the sign of a zero
        root = np.sqrt(x.lo)
        result = root if np.all(y.lo > 0) else 1 / root
    return store(around(np.asarray(result), dtype, 4), dtype)
OPS['pow'] = power

# ---- quotients that are whole --------------------------------------------------------------------

def in_type(dtype): return np.float64 if dtype == 'f64' else np.float32

def exact_pair(a, b, dtype, wide_number=False):
    x, y = wide_numbers([a, b], dtype) if wide_number else spans([a, b], dtype)
    need(x.exact and y.exact, 'needs exact elements')
    t = in_type(compute(dtype))
    return np.broadcast_arrays(x.lo.astype(t), y.lo.astype(t))

def divides(b, dtype):
    """The number 0 is refused; of a tensor nobody looks."""
    need(is_float(dtype) or not b.number or as_integer(b, dtype) != 0, 'integers are not divided by 0')

@op
def fmod(a, b):
    shapes(a, b)
    dtype = result_dtype([a, b], 'numeric')
    divides(b, dtype)
    if not is_float(dtype): return Value(np.asarray(np.fmod(as_integer(a, dtype), as_integer(b, dtype))), dtype)
    x, y = exact_pair(a, b, dtype)
    return store(Span(np.fmod(x, y).astype(np.float64)), dtype)

@op
def remainder(a, b): # the sign of the divisor; a zero keeps that of the dividend
    shapes(a, b)
    dtype = result_dtype([a, b], 'numeric')
    divides(b, dtype)
    if not is_float(dtype): return Value(np.asarray(np.remainder(as_integer(a, dtype), as_integer(b, dtype))), dtype)
    x, y = exact_pair(a, b, dtype)
    m = np.fmod(x, y)
    return store(Span(np.where((m != 0) & ((y < 0) != (m < 0)), m + y, m).astype(np.float64)), dtype)

@op
def floor_divide(a, b):
    shapes(a, b)
    dtype = result_dtype([a, b], 'numeric')
    divides(b, dtype)
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
