"""Random calls of the ops beside PyTorch: every dtype, strided inputs, sizes of 0, rank 0, large enough to be
split; eagerly and compiled. dtype, shape, values and refusals must be PyTorch's.

    python tests/oracle/every_op.py [COUNT [SEED [OP ...]]]        needs torch and NumPy

What may differ is listed in KNOWN, each with its reason; with COUNT of 100,000 or more, an entry that met no
difference is an error, so that the list stays true. Prints each difference, ends with 1 when there were any."""
import random, sys, warnings
import numpy as np
import torch, torch.nn.functional as F
import carbide as cb

warnings.filterwarnings('ignore')
torch.set_num_threads(2)
TORCH = dict(bool=torch.bool, u8=torch.uint8, i8=torch.int8, i16=torch.int16, i32=torch.int32, i64=torch.int64,
             f16=torch.float16, bf16=torch.bfloat16, f32=torch.float32, f64=torch.float64)
NAME = {v: k for k, v in TORCH.items()}
INTS, FLOATS = ['u8', 'i8', 'i16', 'i32', 'i64'], ['f16', 'bf16', 'f32', 'f64']
RTOL = dict(f16=4e-3, bf16=3.2e-2, f32=2e-5, f64=1e-9)

R = random.choice
def I(low, high): return random.randint(low, high)
def chance(one_in): return random.randrange(one_in) == 0

# ---- arguments -----------------------------------------------------------------------------------

class Arg:
    """A tensor: its elements as NumPy has them (bf16 as f32), its dtype, a layout, PyTorch's own."""
    def __init__(self, array, dtype):
        self.dtype = dtype
        self.t = torch.from_numpy(np.array(array)).to(TORCH[dtype])
        self.array = self.t.float().numpy() if dtype == 'bf16' else self.t.numpy()
        self.layout = {}
        if array.ndim and chance(3):
            order = list(range(array.ndim)); random.shuffle(order)
            self.layout = dict(order=order, step=[I(1, 2) for _ in order], start=[I(0, 1) for _ in order])
    def carbide(self):
        return cb.laid(self.array, self.dtype, **self.layout) if self.layout else cb.tensor(self.array, self.dtype)
    def __repr__(self): return f'{self.dtype}{list(self.t.shape)}{"s" if self.layout else ""}'

def shape(least=0, most=3, zero=True):
    sizes = [R([1, 2, 3, 4, 5, 7]) for _ in range(I(least, most))]
    if sizes and zero and chance(12): sizes[I(0, len(sizes) - 1)] = 0
    if sizes and chance(40): sizes[-1] = R([33, 65, 5000])
    return sizes

def elements(sizes, dtype, plain=False):
    count = int(np.prod(sizes, dtype=int))
    if dtype == 'bool': return np.array([R([0, 1]) for _ in range(min(count, 97))] or [0])[np.arange(count) % max(1, min(count, 97))].reshape(sizes).astype(bool)
    some = np.random.default_rng(random.getrandbits(32))
    if dtype in INTS:
        a = some.integers(0 if dtype == 'u8' else -6, 9, count)
        return a.reshape(sizes).astype(cb.NUMPY[dtype])
    a = some.normal(0, 2, count)
    if not plain and chance(4):
        odd = some.integers(0, 6, count)
        a = np.where(odd == 0, some.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5], count), a)
    return a.reshape(sizes).astype(np.float64 if dtype == 'f64' else np.float32)

def any_dtype(): return R(['bool'] + INTS + FLOATS * 2 + ['f32', 'i64'])
def T(sizes=None, dtype=None, plain=False):
    sizes = shape() if sizes is None else sizes
    dtype = dtype or any_dtype()
    return Arg(elements(sizes, dtype, plain), dtype)
def X(sizes=None): return T(sizes, R(FLOATS), True)
def beside(sizes):
    """A shape that broadcasts with it."""
    sizes = list(sizes[I(0, len(sizes)):]) if sizes else []
    return [1 if chance(4) else s for s in sizes] if not chance(20) else shape()
def index(sizes, below):
    a = np.array([I(0, max(0, below - 1)) for _ in range(int(np.prod(sizes, dtype=int)))], np.int64)
    return Arg(a.reshape(sizes), 'i64')
def number(): return R([0, 1, 2, -1, 3, 0.5, 2.5, -1.5, True, 2.0])
def dim_of(a, odd=25):
    rank = max(1, a.t.dim())
    return I(-rank - 1, rank) if chance(odd) else I(-rank, rank - 1)
def dims_of(a):
    rank = a.t.dim()
    picked = random.sample(range(rank), I(0 if chance(9) else min(1, rank), rank)) if rank else R([[], [0]])
    return [d - max(rank, 1) if chance(3) else d for d in picked]

class Case:
    def __init__(self, name, function, *args, **attributes):
        self.name, self.function, self.args, self.attributes = name, function, args, attributes
    def tensors(self): return [a for a in self.args if isinstance(a, Arg)]
    def torch(self): return self.function(*[a.t if isinstance(a, Arg) else a for a in self.args], **self.attributes)
    def run(self, given):
        given = iter(given)
        return cb.call(self.name, *[next(given) if isinstance(a, Arg) else a for a in self.args], **self.attributes)
    def __repr__(self):
        parts = [repr(a) for a in self.args] + [f'{k}={v!r}' for k, v in self.attributes.items()]
        return f'{self.name}({", ".join(parts)})'

# ---- ops -----------------------------------------------------------------------------------------

MAKE = {}
def op(*names):
    def add(make):
        for n in names: MAKE[n] = make
        return make
    return add

@op(*'''neg abs sign square reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh
cosh tanh asinh acosh atanh erf erfc sigmoid relu floor ceil round trunc frac isnan isinf isfinite logical_not
bitwise_not'''.split())
def unary(name): return Case(name, getattr(torch, name), T())

@op(*'''add sub mul div floor_divide remainder fmod pow atan2 hypot copysign eq ne lt le gt ge logical_and logical_or
logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift maximum minimum'''.split())
def binary(name):
    function = getattr(torch, {'left_shift': 'bitwise_left_shift', 'right_shift': 'bitwise_right_shift'}.get(name, name))
    if name == 'pow' and chance(6): return Case(name, function, T(dtype=R(FLOATS)), 0.5)
    a = T()
    tensors = name in ('maximum', 'minimum', 'atan2', 'hypot', 'copysign', 'logical_and', 'logical_or', 'logical_xor')
    if not tensors and chance(3): return Case(name, function, a, number())
    return Case(name, function, a, T(beside(a.t.shape)))

@op('where')
def where(name):
    a = T()
    return Case(name, torch.where, T(beside(a.t.shape), R(['bool'] * 9 + ['u8'])), a, R([T(beside(a.t.shape)), number()]))

@op('sum', 'prod', 'amax', 'amin', 'any', 'all', 'mean', 'count_nonzero', 'logsumexp', 'norm')
def reduction(name):
    a, keep = T(), chance(2)
    d = dims_of(a)
    if name in ('prod',): d = d[:1] or [0]
    function = torch.linalg.vector_norm if name == 'norm' else getattr(torch, name)
    if name == 'count_nonzero': return Case(name, lambda x, dim: function(x, dim), a, dim=d)
    if name == 'prod': return Case(name, lambda x, dim, keepdim: function(x, dim[0], keepdim=keepdim), a, dim=d, keepdim=keep)
    if name == 'norm': return Case(name, lambda x, dim, keepdim: function(x, dim=dim or None, keepdim=keepdim), a, dim=d, keepdim=keep)
    return Case(name, lambda x, dim, keepdim: function(x, dim=dim, keepdim=keepdim), a, dim=d, keepdim=keep)

@op('var', 'std')
def spread(name):
    return Case(name, lambda x, dim, correction, keepdim: getattr(torch, name)(x, dim or None, correction=correction, keepdim=keepdim),
                a := T(), dim=dims_of(a), correction=I(0, 2), keepdim=chance(2))

@op('argmax', 'argmin')
def extreme(name):
    a = T()
    return Case(name, lambda x, dim, keepdim: getattr(torch, name)(x, dim, keepdim=keepdim), a, dim=dim_of(a), keepdim=chance(2))

@op('cumsum', 'cumprod', 'softmax', 'log_softmax', 'softmin')
def along(name):
    a = T()
    return Case(name, getattr(F if name == 'softmin' else torch, name), a, dim_of(a))

@op('argsort')
def argsort(name):
    a = T()
    return Case(name, lambda x, dim, descending: torch.argsort(x, dim=dim, descending=descending, stable=True), a,
                dim=dim_of(a), descending=chance(2))

@op('reshape')
def reshape(name):
    a = T()
    sizes = R([[-1], [a.t.numel()], [1, -1], list(a.t.shape)[::-1], [2, -1]])
    return Case(name, torch.reshape, a, sizes)
@op('permute')
def permute(name):
    a = T(); d = list(range(a.t.dim())); random.shuffle(d)
    return Case(name, torch.permute, a, d)
@op('expand', 'broadcast_to')
def expand(name):
    a = T()
    return Case(name, lambda x, s: x.expand(s), a, shape(0, 1) + [R([s, -1, 3 if s == 1 else s]) for s in a.t.shape])
@op('flip')
def flip(name): return Case(name, torch.flip, a := T(), dims_of(a))
@op('flatten')
def flatten(name): return Case(name, torch.flatten, a := T(), dim_of(a), dim_of(a))
@op('squeeze')
def squeeze(name): return Case(name, lambda x, d: torch.squeeze(x, d), a := T(), dims_of(a))
@op('unsqueeze')
def unsqueeze(name): return Case(name, torch.unsqueeze, a := T(), dim_of(a))
@op('transpose')
def transpose(name): return Case(name, torch.transpose, a := T(), dim_of(a), dim_of(a))
@op('select')
def select(name): return Case(name, torch.select, a := T(), dim_of(a), I(-3, 3))
@op('narrow')
def narrow(name): return Case(name, torch.narrow, a := T(), dim_of(a), I(0, 2), I(0, 3))
@op('slice')
def slice_(name): return Case(name, lambda x, d, s, e, k: torch.ops.aten.slice(x, d, s, e, k), a := T(), dim_of(a), I(-4, 3), I(-3, 6), I(1, 3))
@op('window')
def window(name): return Case(name, lambda x, d, n, s: x.unfold(d, n, s), a := T(), dim_of(a), I(1, 3), I(1, 3))

@op('to')
def to(name):
    dtype = any_dtype()
    return Case(name, lambda x, d: x.to(TORCH[d]), T(plain=True), dtype)
@op('full')
def full(name):
    return Case(name, lambda s, v, d: torch.full(s, v, dtype=TORCH.get(d)), shape(), v := R([number(), 300, -1, 2**53 + 1, float('nan')]),
                'i64' if v == 2**53 + 1 else R([None, any_dtype()])) # PyTorch takes it for f16, as inf
@op('full_like')
def full_like(name): return Case(name, torch.full_like, T(), R([number(), 300, -1]))
@op('arange')
def arange(name):
    return Case(name, lambda a, b, c, d: torch.arange(a, b, c, dtype=TORCH[d]), I(-4, 4), I(-4, 9), R([1, 2, -1, 3]), R(INTS + FLOATS))
@op('linspace')
def linspace(name):
    return Case(name, lambda a, b, n, d: torch.linspace(a, b, n, dtype=TORCH[d]), R([0, -1, 0.5, 2]), R([3, 4.5, -2, 7]), I(0, 9), any_dtype())
@op('eye')
def eye(name): return Case(name, lambda n, m, d: torch.eye(n, m, dtype=TORCH[d]), I(0, 4), I(0, 4), any_dtype())

@op('gather')
def gather(name):
    a = T(shape(zero=False)); d = dim_of(a)
    at = d if -a.t.dim() <= d < a.t.dim() else 0
    sizes = [I(1, s) for s in a.t.shape]
    return Case(name, torch.gather, a, d, index(sizes, a.t.shape[at] if sizes else 1))
@op('index_select')
def index_select(name):
    a = T(shape(zero=False)); d = dim_of(a)
    n = a.t.shape[d] if -a.t.dim() <= d < a.t.dim() else 1
    return Case(name, torch.index_select, a, d, index([I(1, 4)] if a.t.dim() else [1], n))
@op('scatter', 'scatter_add')
def scatter(name):
    a = T(shape(zero=False)); d = dim_of(a)
    n = a.t.shape[d] if -a.t.dim() <= d < a.t.dim() else 1
    at = index(list(a.t.shape), n)
    if name == 'scatter' and a.t.dim(): # no two to one place: which one wins is nobody's promise
        at = Arg(np.broadcast_to(np.arange(n).reshape([-1 if i == d % a.t.dim() else 1 for i in range(a.t.dim())]), a.t.shape).copy(), 'i64')
    return Case(name, getattr(torch, name), a, d, at, T(list(a.t.shape), a.dtype if not chance(20) else None))
@op('slice_scatter')
def slice_scatter(name):
    a = T(shape(1, 3, False)); d = dim_of(a, 10**6)
    n = a.t.shape[d]; s = I(0, n - 1); e = I(s, n); k = I(1, 2)
    sizes = list(a.t.shape); sizes[d] = len(range(s, e, k))
    return Case(name, torch.slice_scatter, a, T(sizes, a.dtype), d, s, e, k)
@op('pad')
def pad(name):
    a = T()
    return Case(name, lambda x, p, v: F.pad(x, p, value=v), a, [I(-1, 2) for _ in range(2 * I(0, a.t.dim()))], R([0, 0.5, 2, 300]))
@op('embedding')
def embedding(name): return Case(name, F.embedding, index(shape(0, 2), 4), T([4, I(1, 3)]))
@op('one_hot')
def one_hot(name): return Case(name, F.one_hot, index(shape(0, 2, False), 5), I(4, 6))
@op('tril', 'triu')
def triangle(name): return Case(name, getattr(torch, name), T(shape(2)), I(-2, 2))
@op('repeat')
def repeat(name): return Case(name, lambda x, r: x.repeat(r), a := T(), [I(0, 2) for _ in range(a.t.dim() + I(0, 1))])
@op('roll')
def roll(name): return Case(name, torch.roll, a := T(shape(1)), I(-3, 3), dim_of(a))

@op('masked_fill')
def masked_fill(name): return Case(name, torch.masked_fill, a := T(), T(beside(a.t.shape), 'bool'), R([number(), 300, -1]))
@op('clamp')
def clamp(name): return Case(name, torch.clamp, T(plain=True), R([None, number()]), R([None, number()]))
@op('lerp')
def lerp(name):
    dtype = R(FLOATS); a = T(dtype=dtype, plain=True)
    return Case(name, torch.lerp, a, T(beside(a.t.shape), dtype, True), R([0.25, 0.75, 2.0]))
@op('addcmul', 'addcdiv')
def addc(name):
    a = T(plain=True); b = T(beside(a.t.shape), plain=True)
    return Case(name, lambda x, p, q, value: getattr(torch, name)(x, p, q, value=value), a, b, T(beside(a.t.shape), plain=True), value=number())

@op('matmul')
def matmul(name):
    dtype = any_dtype(); batch = R([[], [], [2], [2, 3]]); m, k, n = I(0, 5), I(1, 6), I(1, 5)
    a = T(batch + R([[m, k], [k]]), dtype, True); b = T(R([[], batch]) + [k, n] if not chance(4) else [k], dtype, True)
    return Case(name, torch.matmul, a, b)
@op('linear')
def linear(name):
    dtype = any_dtype(); k, n = I(1, 6), I(1, 5)
    return Case(name, F.linear, T(shape(0, 2) + [k], dtype, True), T([n, k], dtype, True), T([n], dtype, True))
@op('addmm')
def addmm(name):
    dtype = any_dtype(); m, k, n = I(1, 5), I(1, 6), I(1, 5)
    return Case(name, torch.addmm, T(R([[m, n], [n]]), dtype, True), T([m, k], dtype, True), T([k, n], dtype, True))
@op('conv1d', 'conv2d', 'conv3d')
def conv(name):
    n = int(name[4]); dtype = any_dtype(); groups = I(1, 2); c = groups * I(1, 2); o = groups * I(1, 2)
    x = T([2][:I(0, 1)] + [c] + [I(2, 5) for _ in range(n)], dtype, True)
    w = T([o, c // groups] + [I(1, 3) for _ in range(n)], dtype, True)
    return Case(name, lambda x, w, **k: getattr(F, name)(x, w, **k), x, w, stride=I(1, 2), padding=I(0, 1), dilation=I(1, 2), groups=groups)

@op(*'''relu6 selu hardsigmoid hardswish silu mish softsign logsigmoid tanhshrink gelu leaky_relu elu celu softplus
hardshrink softshrink hardtanh threshold'''.split())
def activation(name):
    kind = any_dtype() if chance(3) else R(FLOATS)
    some = dict(leaky_relu=[0.2], elu=[0.5], celu=[0.5], softplus=[2.0, 3.0], hardshrink=[0.25], softshrink=[R([0.25, -0.5])],
                hardtanh=[R([-1, -0.5, 1.0]), R([2, 0.5])], threshold=[R([1, 0.5]), R([5, 5.5])])
    return Case(name, getattr(torch, name, None) if name == 'hardshrink' else getattr(F, name), T(dtype=kind, plain=True), *some.get(name, []))
@op('mse_loss', 'l1_loss', 'smooth_l1_loss', 'binary_cross_entropy_with_logits')
def loss(name):
    a = X(shape(1)) if not chance(4) else T(shape(1), plain=True)
    return Case(name, getattr(F, name), a, T(list(a.t.shape), a.dtype, True))
@op('layer_norm', 'rms_norm')
def last_norm(name):
    a = X(shape(1, 3, False)) if not chance(8) else T(shape(1), plain=True)
    return Case(name, getattr(F, name), a, list(a.t.shape)[-I(1, a.t.dim()):])
@op('normalize')
def normalize(name): return Case(name, lambda x, dim: F.normalize(x, dim=dim), a := (X() if not chance(8) else T(plain=True)), dim=dim_of(a))
@op('cosine_similarity')
def cosine(name):
    a = X(shape(1))
    return Case(name, F.cosine_similarity, a, T(beside(a.t.shape), a.dtype, True), dim_of(a))
@op('glu')
def glu(name): return Case(name, F.glu, a := (X(shape(1)) if not chance(8) else T()), dim_of(a))
@op('max_pool1d', 'max_pool2d', 'max_pool3d', 'avg_pool1d', 'avg_pool2d', 'avg_pool3d')
def pool(name):
    n = int(name[-2]); a = T([2][:I(0, 1)] + [2] + [I(2, 6) for _ in range(n)], R(FLOATS + ['i64', 'u8']), True)
    return Case(name, lambda x, k, s, p: getattr(F, name)(x, k, s, p), a, I(1, 3), I(1, 3), I(0, 1))
@op('reflection_pad', 'replication_pad', 'circular_pad')
def element_pad(name):
    n = I(1, 3); a = T([2] + [I(2, 5) for _ in range(n)], plain=True)
    mode = dict(reflection_pad='reflect', replication_pad='replicate', circular_pad='circular')[name]
    return Case(name, lambda x, p: F.pad(x, p, mode), a, [I(0, 2) for _ in range(2 * n)])

# ---- what may differ -----------------------------------------------------------------------------

REFUSED = 'refused'
KNOWN = [ # (what it is, test of (case, PyTorch's result or error text, Carbide's), reason)
    ('no kernel', lambda c, t, k: isinstance(t, str) and ('not implemented for' in t or 'does not support bool' in t or 'do not support bool' in t.lower()) and not isinstance(k, str),
     'PyTorch has no kernel for the dtype; Carbide computes what promotion gives'),
    ('division by zero', lambda c, t, k: isinstance(t, str) and 'ZeroDivision' in t,
     'a check of the divisor would cost a pass over it: integers divided by 0 are 0 (carbide.h)'),
    ('no elements', lambda c, t, k: isinstance(k, str) and not isinstance(t, str) and ('is not a' in k or 'divided by 0' in k or c.name == 'roll') and any(a.t.numel() == 0 for a in c.tensors()),
     'PyTorch looks at no dtype, no divisor, and roll at no dim, where there are no elements'),
    ('square roots of -inf', lambda c, t, k: c.name == 'pow' and 0.5 in c.args,
     'x ** 0.5 is a square root in PyTorch, and pow(-inf, 0.5) here, which is inf'),
    ('bool to a bool', lambda c, t, k: c.name == 'pow' and c.args[0].dtype == 'bool' and c.args[1] is True,
     'PyTorch copies for the exponent True, and has no power of bool for others'),
    ('logsumexp over nothing', lambda c, t, k: c.name == 'logsumexp' and not c.attributes['dim'] and isinstance(t, str),
     'no dims are all of them, as in other reductions; PyTorch ends with an error about its own shapes'),
    ('pools in 3d', lambda c, t, k: isinstance(t, str) and c.name == 'avg_pool3d' and 'smaller than kernel size' in t,
     'PyTorch refuses a kernel larger than x in 3d alone, padding or not'),
]

def known_of(case, theirs, ours):
    for k in KNOWN:
        if k[1](case, theirs, ours): return k[0]

# ---- comparison ----------------------------------------------------------------------------------

def values(y):
    a = y.numpy()
    return cb.bf16_values(a) if y.dtype == 'bf16' else a

def difference(case, theirs, ours):
    """None, or what differs; theirs a tensor or an error's text, ours (dtype, array) or one."""
    if isinstance(theirs, str) or isinstance(ours, str):
        if isinstance(theirs, str) and isinstance(ours, str): return None
        return f'PyTorch: {theirs[:100]}' if isinstance(theirs, str) else f'Carbide: {ours[:140]}'
    dtype, array = ours
    wanted = NAME[theirs.dtype]
    if dtype != wanted: return f'{dtype}, not {wanted}'
    if array.shape != tuple(theirs.shape): return f'{array.shape}, not {tuple(theirs.shape)}'
    expected = theirs.float().numpy() if wanted == 'bf16' else theirs.numpy()
    if wanted not in FLOATS: return None if (array == expected).all() else f'{array.flatten()[:6]}, not {expected.flatten()[:6]}'
    a, e = array.astype(np.float64), expected.astype(np.float64)
    scale = np.abs(e[np.isfinite(e)]).max(initial=0) if case.name in SUMS else np.abs(e)
    if case.name in CANCEL: scale = 1 + max(float(np.abs(np.nan_to_num(a.array.astype(np.float64), posinf=0, neginf=0)).max(initial=0)) for a in case.tensors())
    with np.errstate(all='ignore'):
        fine = (a == e) | (np.isnan(a) & np.isnan(e)) | (np.abs(a - e) <= RTOL[wanted] * (1e-3 + scale))
    if case.name in ('prod', 'cumprod'): # which of the last roundings leaves the range
        fine |= (np.minimum(np.abs(a), np.abs(e)) > 0.5 * TOP[wanted]) & (np.sign(a) == np.sign(e))
    if fine.all(): return None
    i = int(np.argmin(fine.reshape(-1)))
    return f'[{i}] {a.reshape(-1)[i]!r}, not {e.reshape(-1)[i]!r}'
TOP = {'f16': 65504.0, 'bf16': 3.3895e38, 'f32': 3.4028e38, 'f64': 1.7976e308}
SUMS = set('''sum mean var std norm cumsum cumprod prod matmul linear addmm conv1d conv2d conv3d logsumexp layer_norm rms_norm
normalize cosine_similarity addcmul addcdiv scatter_add lerp avg_pool1d avg_pool2d avg_pool3d'''.split())

CANCEL = set('gelu tanhshrink mish silu logsigmoid softplus var std log_softmax layer_norm rms_norm cosine_similarity binary_cross_entropy_with_logits'.split())

def attempt(call):
    try: return call()
    except cb.Error as error: return error.message
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AssertionError) as error: return f'{error}'[:300]

def check(case, number):
    theirs = attempt(case.torch)
    found = []
    with cb.scope():
        given = [a.carbide() for a in case.tensors()]
        def eager():
            y = case.run(given)
            return y.dtype, values(y)
        def compiled(options):
            f = cb.compile(lambda *x: case.run(x), options)
            try:
                y = f(*given)
                return y.dtype, values(y)
            finally: f.free()
        ways = [('eager', eager), ('vm', lambda: compiled('backend=vm,fullgraph=1'))]
        if number % 100 == 0: ways.append(('c', lambda: compiled('backend=c')))
        for way, call in ways:
            ours = attempt(call)
            what = difference(case, theirs, ours)
            if what: found.append((way, what, known_of(case, theirs, ours)))
    return found

def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000 # 200 a second
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    names = sys.argv[3:] or sorted(MAKE)
    met, wrong = {}, 0
    for number in range(count):
        name = names[number % len(names)]
        state = random.getstate()
        case = MAKE[name](name)
        for way, what, known in check(case, number):
            if known: met[known] = met.get(known, 0) + 1; continue
            wrong += 1
            print(f'{way}: {case}: {what}', flush=True)
    print(f'{count} calls of {len(names)} ops, {wrong} differences, besides: {met}')
    idle = [k[0] for k in KNOWN if k[0] not in met] if count >= 100000 and len(names) == len(MAKE) else []
    for k in idle: print(f'known difference that no call showed: {k}')
    sys.exit(1 if wrong or idle else 0)
if __name__ == '__main__': main()
