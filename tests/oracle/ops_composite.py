"""Composites as their formulas; inside of them nothing has to be rounded to f16 or bf16."""
from ops_shape import *

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
def fitting(name, allowed=lambda dtype: False):
    """An op that refuses numbers that its dtype does not hold, unless they are allowed there."""
    plain = OPS[name]
    def call(*values):
        dtype = promote([v for v in values if v is not values[0] or name != 'where'])
        for v in values:
            if v.number and not allowed(dtype): literal((v.data['lo'] if is_float(v.dtype) else v.data).item(), dtype)
        return plain(*values)
    OPS[name] = call
fitting('maximum'), fitting('minimum'), fitting('where', lambda dtype: dtype in ('f16', 'bf16')) # infinite there
fitting('pow')
where = OPS['where']

@composite
def masked_fill(x, mask, value): # x keeps its dtype, and bool takes part as what it is
    literal(value, x.dtype)
    if is_float(x.dtype): return where(mask, number(float(value)), x)
    return where(mask, Value(np.asarray(literal(value, x.dtype)), x.dtype), x)
@composite
def clamp(x, low=None, high=None): # a NaN beside another limit is a NaN everywhere, and nothing is beyond a lone one
    for n in low, high:
        need(n is None or n != 0 or not np.signbit(n), 'which zero stays')
        if n is not None and category(number(n).dtype) == category(x.dtype): literal(n, x.dtype)
    low, high = (-np.inf if low is None or (high is None and low != low) else low), (np.inf if high is None or (low is None and high != high) else high)
    return o('minimum', o('maximum', x, low), high)
@composite
def lerp(x, y, weight):
    floats_only(x)
    if abs(weight) < 0.5: return o('add', x, o('mul', o('sub', y, x), float(weight)))
    return o('sub', y, o('mul', o('sub', y, x), 1.0 - float(weight)))
@composite
def addcmul(x, p, q, value=1.0):
    floats_only(x)
    product = o('mul', p, q)
    return o('add', x, product if value == 1 else o('mul', product, float(value)))
@composite
def addcdiv(x, p, q, value=1.0):
    floats_only(x)
    need(is_float(p.dtype) or is_float(q.dtype), 'integers are not divided')
    return o('add', x, o('mul', o('div', p, q), float(value)))
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
def relu6(x): need(x.dtype != 'bool', 'no number'); return clamp(x, 0, 6)
@composite
def hardtanh(x, low=-1.0, high=1.0): floats_only(x); need(not low > high, 'low is above high'); return clamp(x, low, high)
@composite
def hardsigmoid(x): floats_only(x); return o('div', clamp(o('add', x, 3), 0.0, 6.0), 6)
@composite
def hardswish(x): floats_only(x); return o('div', o('mul', x, clamp(o('add', x, 3), 0.0, 6.0)), 6)
@composite
def hardshrink(x, lambd=0.5): floats_only(x); literal(lambd, x.dtype); return where(o('le', abs_(x), float(lambd)), number(0), x)
@composite
def threshold(x, threshold, value):
    floats_only(x)
    literal(value, x.dtype)
    compared = convert(x, 'f32') if x.dtype in ('f16', 'bf16') else x # where PyTorch does not round the number
    return where(o('le', compared, float(threshold)), number(float(value)), x)
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
    ends = [e for x in s.ends() for e in around(x, value.dtype, ulps).ends()]
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

def corrected_mean(x, dims):
    """The mean and the mean of what is left of the elements without it: right to a last place of the largest."""
    s = span(mean(x, dims, True).data)
    largest = folder(axes(x, dims), True)(np.fmax, np.fmax(np.abs(x.data['lo']), np.abs(x.data['hi'])), 0.0)
    slack = np.where(np.isfinite(largest), largest, 0) * UNIT[x.dtype]
    return store(Span(s.lo - slack, s.hi + slack), x.dtype)

@composite
def layer_norm(x, normalized, weight=None, bias=None, eps=1e-5):
    floats_only(x)
    need(list(x.shape[x.data.ndim - len(normalized):]) == list(normalized) and len(normalized) > 0, 'sizes')
    dims = list(range(-len(normalized), 0))
    away = o('sub', x, corrected_mean(x, dims))
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

@op
def unfold(x, kernel_size, dilation=1, padding=0, stride=1):
    need(x.data.ndim == 4 and x.size > 0, 'rank')
    n = 2
    kernel = of_each(kernel_size, n)
    w = windows(padded(x, of_each(padding, n), 0.0), kernel, of_each(stride, n), of_each(dilation, n))
    w = permute(w, [0, 1, 4, 5, 2, 3])
    return fresh(w.data.reshape(w.shape[0], w.shape[1] * math.prod(kernel), -1), x.dtype)

def padded_by(index):
    def call(x, padding):
        n = len(padding) // 2
        need(len(padding) % 2 == 0 and 1 <= n <= 3 and n + 1 <= x.data.ndim <= n + 2 and x.size > 0, 'rank')
        need(min(padding) >= 0, 'widths')
        data = x.data
        for k in range(n):
            before, after, size = padding[2 * k], padding[2 * k + 1], data.shape[-1 - k]
            data = np.take(data, index(np.arange(-before, size + after), size), -1 - k)
        return fresh(data, x.dtype)
    return call

def mirrored(i, size):
    need(-i[0] < size and i[-1] < 2 * size - 1, 'a width as large as the size')
    return np.where(i < 0, -i, np.where(i >= size, 2 * (size - 1) - i, i))
def around_the_end(i, size):
    need(-i[0] <= size and i[-1] < 2 * size, 'a width larger than the size')
    return i % size
OPS['reflection_pad'], OPS['circular_pad'] = padded_by(mirrored), padded_by(around_the_end)
OPS['replication_pad'] = padded_by(lambda i, size: np.clip(i, 0, size - 1))

@composite
def addmm(x, a, b): return o('add', x, matmul(a, b))
