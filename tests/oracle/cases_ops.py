"""Calls of the ops that compute, move and fold elements, and of those of networks that have few arguments."""
import random
import numpy as np
import torch, torch.nn.functional as F
from cases import *

@op(*'''neg abs sign square reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh
cosh tanh asinh acosh atanh erf erfc sigmoid relu floor ceil round trunc frac isnan isinf isfinite logical_not
bitwise_not'''.split())
def unary(name): return Case(name, getattr(torch, name), T())

@op(*'''add sub mul div floor_divide remainder fmod pow atan2 hypot copysign eq ne lt le gt ge logical_and logical_or
logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift maximum minimum'''.split())
def binary(name):
    function = getattr(torch, {'left_shift': 'bitwise_left_shift', 'right_shift': 'bitwise_right_shift'}.get(name, name))
    if name == 'pow' and chance(6): return Case(name, function, T(dtype=R(FLOATS)), R([0.5, -0.5, -2, 16777217]))
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

@op('argtopk')
def argtopk(name): # equal elements have no order in PyTorch: permutations, and the values where they lie
    a = T(shape(zero=False)); d = dim_of(a); n = a.t.shape[d] if -a.t.dim() <= d < a.t.dim() else 1
    inside = -a.t.dim() <= d < a.t.dim()
    order = np.argsort(np.random.default_rng(I(0, 9999)).random(a.t.shape), axis=d) if inside else np.zeros(a.t.shape)
    a = Arg(np.asarray(order, np.float64), R(['i16', 'i32', 'i64', 'f32', 'f64']))
    return Case(name, lambda x, k, d, largest: torch.topk(x, k, d, largest=largest)[1], a, I(0, n + int(chance(9))), d, chance(2))

@op('reshape')
def reshape(name):
    a = T()
    sizes = R([[-1], [a.t.numel()], [1, -1], list(a.t.shape)[::-1], [2, -1]])
    return Case(name, torch.reshape, a, sizes)
@op('view')
def view(name):
    a = T(); a.layout = {} # PyTorch's tensor lies dense
    return Case(name, lambda x, s: x.view(s), a, R([[-1], [a.t.numel()], [1, -1], list(a.t.shape)[::-1], [2, -1]]))
@op('unflatten')
def unflatten(name): return Case(name, torch.unflatten, a := T(shape(1)), dim_of(a), R([[-1, 1], [1, -1], [2, -1], [-1]]))
@op('t')
def t(name): return Case(name, torch.t, T(shape(0, 3)))
@op('contiguous', 'clone', 'detach')
def copy(name): return Case(name, lambda x: getattr(x, name)(), T())
@op('concat')
def concat(name):
    a = T(shape(1)); d = dim_of(a); sizes = list(a.t.shape)
    if -len(sizes) <= d < len(sizes): sizes[d] = I(0, 4)
    return Case(name, lambda a, b, d: torch.cat([a, b], d), a, T(sizes, R([a.dtype, any_dtype()])), d)
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
@op('zeros', 'ones')
def constant(name): return Case(name, lambda s, d: getattr(torch, name)(s, dtype=TORCH[d]), shape(), any_dtype())
@op('zeros_like', 'ones_like')
def constant_like(name): return Case(name, getattr(torch, name), T())
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
    some = dict(leaky_relu=[0.2], elu=[0.5], celu=[0.5], softplus=[2.0, 3.0], hardshrink=[R([0.25, 0.3])], softshrink=[R([0.25, -0.5])],
                hardtanh=[R([-1, -0.5, 1.0]), R([2, 0.5])], threshold=[R([1, 0.5]), R([5, 5.5])])
    return Case(name, getattr(torch, name, None) if name == 'hardshrink' else getattr(F, name), T(dtype=kind, plain=True), *some.get(name, []))
@op('mse_loss', 'l1_loss', 'smooth_l1_loss', 'huber_loss', 'binary_cross_entropy_with_logits', 'binary_cross_entropy', 'kl_div')
def loss(name):
    a = X(shape(1)) if not chance(4) else T(shape(1), plain=True)
    if name == 'binary_cross_entropy': a = probability(shape(1), R(FLOATS))
    b = probability(list(a.t.shape), a.dtype) if name == 'binary_cross_entropy' else T(list(a.t.shape), a.dtype, True)
    some = dict(smooth_l1_loss=dict(beta=R([1.0, 0.5, 2.0] + [0.0] * (a.dtype in FLOATS))), huber_loss=dict(delta=R([1.0, 0.5, 2.0])), kl_div=dict(log_target=chance(2)))
    if name.startswith('binary') and chance(2):
        weight, how = probability(R([list(a.t.shape), list(a.t.shape)[-1:]]), a.dtype), I(0, 2)
        if name == 'binary_cross_entropy': return loss_case(name, a, b, weight)
        return Case(name, lambda x, y, w, how, p: F.binary_cross_entropy_with_logits(x, y, w, reduction=REDUCTIONS[how], pos_weight=p),
                    a, b, weight, how, T(list(a.t.shape)[-1:], a.dtype, True))
    how = R(REDUCTIONS) if name == 'kl_div' else None
    return loss_case(name, a, b, reduction=how, **(some.get(name, {}) if chance(2) else {}))
@op('pairwise_distance')
def pairwise_distance(name):
    a = X(shape(1, 3, False))
    return Case(name, F.pairwise_distance, a, T(list(a.t.shape), a.dtype, True), p=R([1.0, 2.0, 2.0, 3.0]), keepdim=chance(2))
@op('cosine_embedding_loss')
def cosine_embedding(name):
    a = X([I(1, 5), I(1, 7)])
    y = Arg(np.random.default_rng(random.getrandbits(32)).choice([-1, 1], a.t.shape[0]), R(['i64', a.dtype]))
    return loss_case(name, a, T(list(a.t.shape), a.dtype, True), y, margin=R([0.0, 0.25, -0.5]))
@op('triplet_margin_loss')
def triplet(name):
    a = X([I(1, 5), I(1, 7)])
    b, c = (T(list(a.t.shape), a.dtype, True) for _ in range(2))
    return loss_case(name, a, b, c, margin=R([1.0, 2.5]), p=R([1.0, 2.0, 3.0]), swap=chance(2))
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
    n = int(name[-2]); a = T([2][:I(0, 1)] + [0 if chance(20) else 2] + [I(2, 6) for _ in range(n)], R(FLOATS + ['i64', 'u8']), True)
    return Case(name, lambda x, k, s, p: getattr(F, name)(x, k, s, p), a, I(1, 5), I(1, 3), I(0, 1))
@op('reflection_pad', 'replication_pad', 'circular_pad')
def element_pad(name):
    n = I(1, 3); a = T([2][:I(0, 1)] + [2] + [I(0 if chance(12) else 2, 5) for _ in range(n)], plain=True)
    least = R([0, -2, -2, -5])
    p = [I(least, 3) for _ in range(2 * n)]
    if name == 'circular_pad': # what goes round more than once, PyTorch reads where nothing is yet
        kept = [s + min(0, l) + min(0, r) for s, l, r in zip(list(a.t.shape)[::-1], p[::2], p[1::2])]
        p = [min(width, k) if k >= 0 else 0 for k, pair in zip(kept, zip(p[::2], p[1::2])) for width in pair]
    mode = dict(reflection_pad='reflect', replication_pad='replicate', circular_pad='circular')[name]
    return Case(name, lambda x, p: F.pad(x, p, mode), a, p)
