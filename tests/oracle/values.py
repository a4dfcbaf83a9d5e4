"""Values of the judge: NumPy arrays of what each element may be.

Integers and bool are arrays of their own dtype, always exact. A floating point element is an interval
[lo, hi] in f64 that holds every result Carbide may give:
    lo is hi      exactly this, to the bit; NaN is NaN, whatever its bits
    -0.0, +0.0    a zero of either sign
    -inf, +inf    anything, NaN too
and [wide_lo, wide_hi], which also holds what a sum sees of it when a * b + c is contracted: the product
before it was rounded.
What moves elements about moves all four as one record, so every NumPy view is a view of them.

What follows is where the judge says how PyTorch computes, and where it is not NumPy's way:
    promotion    tensors with dims, tensors without, numbers: a later group counts only when its category
                 (bool < integer < float) is above; f16 with bf16 is f32; integers wrap; a float beside
                 integers is f32.
    f16, bf16    are computed in f32. A value between the ops of one compiled function may be rounded
                 to them or not; eagerly, and with the option precise, it is rounded after every op.
    conversions  float to integer truncates, NaN gives 0, what no i64 holds gives the lowest i64; then
                 the low bits. To f16 and bf16 everything goes by way of f32.
"""
import contextlib
import numpy as np
from carbide import DTYPES, FLOATS, MAX_ARGS, NUMPY, bf16_bits, bf16_values

np.seterr(all='ignore')
RECORD = np.dtype([('lo', 'f8'), ('hi', 'f8'), ('wide_lo', 'f8'), ('wide_hi', 'f8')])
UNIT = {'f16': 2.0 ** -24, 'bf16': 2.0 ** -24, 'f32': 2.0 ** -24, 'f64': 2.0 ** -53} # of the computation
LARGEST = {'f16': 65504.0, 'bf16': 3.3895313892515355e38, 'f32': 3.4028234663852886e38,
           'f64': 1.7976931348623157e308}
SMALLEST = {'f16': 2.0 ** -24, 'bf16': 2.0 ** -133, 'f32': 2.0 ** -149, 'f64': 5e-324}

class Refused(Exception):
    """The call is wrong, or the judge cannot say what its result is."""

class OutOfRange(Refused):
    """An index, which Carbide has to refuse, too."""

class Regime:
    rounds = False    # f16 and bf16 after every op
    contracts = True  # a * b + c may be one operation
regime = Regime()

@contextlib.contextmanager
def within(rounds, contracts):
    before = regime.rounds, regime.contracts
    regime.rounds, regime.contracts = rounds, contracts
    try: yield
    finally: regime.rounds, regime.contracts = before

def need(condition, why):
    if not condition: raise Refused(why)

# ---- dtypes --------------------------------------------------------------------------------------

def is_float(dtype): return dtype in FLOATS
def category(dtype): return 2 if is_float(dtype) else int(dtype != 'bool')
def compute(dtype): return 'f32' if dtype in ('f16', 'bf16') else dtype
def storage_of(dtype): return RECORD if is_float(dtype) else NUMPY[dtype]

def join(a, b):
    """Of two dtypes in the same group."""
    if a is None or b is None or a == b: return a or b
    if category(a) != category(b): return max(a, b, key=category)
    if category(a) == 2:
        return 'f32' if {a, b} == {'f16', 'bf16'} else max(a, b, key=DTYPES.index)
    if 'u8' in (a, b) and 'i8' in (a, b): return 'i16'
    return max(a, b, key=DTYPES.index)

def promote(values):
    groups = [None, None, None]
    for v in values:
        group = 2 if v.number else int(v.data.ndim == 0)
        groups[group] = join(groups[group], v.dtype)
    result = None
    for weak in reversed(groups):
        if weak is None: continue
        if result is None: result = weak
        elif category(result) > category(weak): result = join(weak, result)
        else: result = weak
    return result

def rounded(dtype, x):
    """f64 to the nearest of dtype, by way of f32 for the short ones."""
    if dtype == 'f64': return x
    single = np.asarray(x, np.float64).astype(np.float32)
    if dtype == 'f32': return single.astype(np.float64)
    if dtype == 'f16': return single.astype(np.float16).astype(np.float64)
    return bf16_values(bf16_bits(single)).astype(np.float64)

def step(x, dtype, steps):
    """x moved by so many last places of dtype, away from where steps is negative."""
    if dtype == 'f64':
        for _ in range(abs(steps)): x = np.nextafter(x, np.inf if steps > 0 else -np.inf)
        return x
    single = np.asarray(x).astype(np.float32)
    for _ in range(abs(steps)): single = np.nextafter(single, np.float32(np.inf if steps > 0 else -np.inf))
    return single.astype(np.float64)

# ---- values --------------------------------------------------------------------------------------

class Storage:
    """What views share: only its identity counts."""

class Value:
    __slots__ = ('data', 'dtype', 'storage', 'number')
    def __init__(self, data, dtype, storage=None, number=False):
        self.data, self.dtype, self.number = data, dtype, number
        self.storage = storage or Storage()
    @property
    def shape(self): return self.data.shape
    @property
    def size(self): return self.data.size
    def view(self, data): return Value(data, self.dtype, self.storage)
    def __repr__(self): return f'{self.dtype}{list(self.shape)}'

def number(x):
    if isinstance(x, bool): return Value(np.array(x), 'bool', number=True)
    if isinstance(x, int): return Value(np.array(x, np.int64), 'i64', number=True)
    return Value(record(np.array(float(x))), 'f32', number=True)

def record(lo, hi=None, wide_lo=None, wide_hi=None):
    hi = lo if hi is None else hi
    out = np.empty(np.shape(lo), RECORD)
    out['lo'], out['hi'] = lo, hi
    out['wide_lo'] = lo if wide_lo is None else wide_lo
    out['wide_hi'] = hi if wide_hi is None else wide_hi
    return out

def same(a, b):
    """To the bit, NaN equal to NaN."""
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))

class Span:
    """The elements of a float value as arrays of ends; hi is lo where all are exact."""
    def __init__(self, lo, hi=None):
        self.lo = lo
        self.hi = lo if hi is None else hi
    @property
    def exact(self): return self.hi is self.lo
    @property
    def anything(self): return (self.lo == -np.inf) & (self.hi == np.inf)
    def ends(self): return (self.lo,) if self.exact else (self.lo, self.hi)

def span(data, wide=False):
    lo, hi = (data['wide_lo'], data['wide_hi']) if wide and regime.contracts else (data['lo'], data['hi'])
    return Span(lo) if same(lo, hi).all() else Span(lo, hi)

def is_exact(value):
    return not is_float(value.dtype) or bool(same(value.data['lo'], value.data['hi']).all())

def exact(value, what='exact elements'):
    """The elements, which must be known to the bit: f64 for floats, else of their dtype."""
    if not is_float(value.dtype): return value.data
    need(is_exact(value), f'needs {what}')
    return value.data['lo']

def hull(parts):
    """The least span that holds the arrays: zeros keep both signs, a NaN among numbers is anything."""
    first = parts[0]
    if len(parts) == 1: return Span(first)
    lo, hi = first, first
    nan, all_nan = np.isnan(first), np.isnan(first)
    minus, plus = np.signbit(first), ~np.signbit(first)
    for p in parts[1:]:
        lo, hi = np.fmin(lo, p), np.fmax(hi, p)
        nan, all_nan = nan | np.isnan(p), all_nan & np.isnan(p)
        minus, plus = minus | np.signbit(p), plus | ~np.signbit(p)
    lo = np.where((lo == 0) & minus, -0.0, np.where(lo == 0, 0.0, lo))
    hi = np.where((hi == 0) & plus, 0.0, np.where(hi == 0, -0.0, hi))
    unknown = nan & ~all_nan
    lo, hi = np.where(unknown, -np.inf, lo), np.where(unknown, np.inf, hi)
    return Span(np.where(all_nan, np.nan, lo), np.where(all_nan, np.nan, hi))

def anything_where(result, mask):
    """result, but anything at all where the mask is set."""
    if not np.any(mask): return result
    return Span(np.where(mask, -np.inf, result.lo), np.where(mask, np.inf, result.hi))

def store(result, dtype, unrounded=None):
    """A new value of dtype from a span in the precision of its computation. unrounded: of a product."""
    short = dtype in ('f16', 'bf16')
    ends = [rounded(dtype, e) for e in result.ends()] if short else list(result.ends())
    final = Span(*ends)
    if short and not regime.rounds:
        final = hull(ends + [e for e in result.ends()])
        final = anything_where(final, result.anything)
        if same(final.lo, final.hi).all(): final = Span(final.lo)
    wide = final
    if unrounded is not None and regime.contracts:
        wide = anything_where(hull(list(final.ends()) + list(unrounded.ends())), final.anything)
    data = record(final.lo, final.hi, wide.lo, wide.hi)
    return Value(data, dtype)

# ---- conversion ----------------------------------------------------------------------------------

def to_integer(x, dtype):
    """f64 elements, truncated and wrapped."""
    fits = (x >= -2.0 ** 63) & (x < 2.0 ** 63)
    whole = np.where(fits, np.trunc(np.where(fits, x, 0)), 0).astype(np.int64)
    whole = np.where(fits | np.isnan(x), whole, np.iinfo(np.int64).min)
    return whole.astype(NUMPY[dtype])

def integers_as_float(data, dtype):
    """Exact elements rounded once (twice to f16 and bf16), in f64."""
    if dtype == 'f64': return data.astype(np.float64)
    return rounded(dtype, data.astype(np.float32).astype(np.float64))

def as_span(value, dtype, wide=False):
    """A value of any dtype in the precision in which dtype computes, as its span."""
    if not is_float(value.dtype):
        full = integers_as_float(value.data, compute(dtype))
        if compute(dtype) == dtype or value.number: return Span(integers_as_float(value.data, dtype))
        short = integers_as_float(value.data, dtype)
        return Span(short) if regime.rounds or same(full, short).all() else hull([full, short])
    s = span(value.data, wide)
    if value.number: return Span(rounded(dtype, s.lo))
    if value.dtype == dtype: return s
    ends = [rounded(compute(dtype), e) for e in s.ends()]
    if compute(dtype) == dtype: return Span(*ends)
    short = [rounded(dtype, e) for e in s.ends()]
    if regime.rounds: return Span(*short)
    both = hull(short + ends)
    return Span(both.lo) if same(both.lo, both.hi).all() else both

def as_integer(value, dtype):
    """A value of any dtype as elements of an integer dtype or bool."""
    if not is_float(value.dtype):
        return value.data != 0 if dtype == 'bool' else value.data.astype(NUMPY[dtype])
    s = span(value.data)
    need(not s.anything.any(), 'needs exact elements')
    convert = (lambda x: x != 0) if dtype == 'bool' else (lambda x: to_integer(x, dtype))
    if not s.exact: # what lies between the ends converts as they do
        whole = [convert(e) if dtype == 'bool' else to_integer(e, 'i64') for e in s.ends()]
        across = (s.lo < 0) & (s.hi > 0) & ((dtype == 'bool') | (np.fmax(-s.lo, s.hi) >= 2.0 ** 63))
        need((whole[0] == whole[1]).all() and not across.any(), 'needs exact elements')
    return convert(s.lo)

def convert(value, dtype):
    """to(value, dtype): a new value."""
    if not is_float(dtype): return Value(np.array(as_integer(value, dtype)), dtype)
    if value.dtype == dtype: return Value(value.data.copy(), dtype)
    if not is_float(value.dtype): return store(as_span(value, compute(dtype)), dtype)
    s = span(value.data)
    return store(Span(*[rounded(compute(dtype), e) for e in s.ends()]), dtype)

# ---- judgement -----------------------------------------------------------------------------------

def load(array, dtype):
    """The data of a value from a NumPy array, bf16 as bits."""
    if dtype == 'bf16': return record(bf16_values(array).astype(np.float64))
    return record(array.astype(np.float64)) if is_float(dtype) else np.array(array)

def differing(value, array):
    """Where array, as Carbide read it back, is not what the value says."""
    if not is_float(value.dtype): return value.data != array
    x = (bf16_values(array) if value.dtype == 'bf16' else array).astype(np.float64)
    lo, hi = rounded(value.dtype, value.data['lo']), rounded(value.dtype, value.data['hi'])
    low = (x > lo) | ((x == lo) & (np.signbit(lo) | ~np.signbit(x)))
    high = (x < hi) | ((x == hi) & (~np.signbit(hi) | np.signbit(x)))
    right = (low & high) | (np.isnan(lo) & np.isnan(hi) & np.isnan(x))
    return ~(right | ((lo == -np.inf) & (hi == np.inf)))
