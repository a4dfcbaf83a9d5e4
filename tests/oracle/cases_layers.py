"""Calls of the ops of networks: convolutions, pools, norms, attention, resizing, losses over classes, shuffles."""
import random
import torch, torch.nn.functional as F
from cases import *

def image(n, least=2, most=6, channels=None, batch=True):
    """[batch,] channels, n spatial dims; now and then a batch of 0 or a long row."""
    sizes = [channels or I(1, 4)] + [I(least, most) for _ in range(n)]
    if chance(30): sizes[-1] = 300
    return ([R([1, 2, 2, 3, 0 if chance(4) else 2])] if batch or chance(2) else []) + sizes
def each(n, low, high): return I(low, high) if chance(2) else [I(low, high) for _ in range(n)]
def maybe(make): return None if chance(2) else make()
def a_float(): return R(FLOATS) if not chance(12) else R(['i64', 'bool', 'u8'])

# ---- convolutions, pools -------------------------------------------------------------------------

@op('conv_transpose1d', 'conv_transpose2d', 'conv_transpose3d')
def transposed(name):
    n = int(name[-2]); dtype = any_dtype(); groups = I(1, 2); c = groups * I(1, 2); o = I(1, 2)
    x = T([2] * I(0, 1) + [c] + [I(1, 4) for _ in range(n)], dtype, True)
    w = T([c, o] + [I(1, 5) for _ in range(n)], dtype, True)
    a = dict(stride=each(n, 1, 4), padding=each(n, 0, 1), output_padding=each(n, 0, R([0, 1, 2])), groups=groups,
             dilation=each(n, 1, 2))
    return Case(name, getattr(F, name), x, w, maybe(lambda: T([o * groups], dtype, True)), **a)

@op('max_pool1d_indices', 'max_pool2d_indices', 'max_pool3d_indices')
def pool_indices(name):
    n = int(name[8])
    a = dict(kernel_size=each(n, 1, 3), stride=each(n, 1, 3), padding=each(n, 0, 1), dilation=each(n, 1, 2),
             ceil_mode=chance(2))
    return Case(name, lambda x, **k: getattr(F, name[:10])(x, return_indices=True, **k)[1],
                T(image(n, 3, 8, batch=False), R(FLOATS + ['i64', 'u8']), True), **a)

@op('adaptive_avg_pool1d', 'adaptive_avg_pool2d', 'adaptive_avg_pool3d', 'adaptive_max_pool1d', 'adaptive_max_pool2d',
    'adaptive_max_pool3d')
def adaptive(name):
    n = int(name[-2]); function = getattr(F, name)
    pool = function
    if name == 'adaptive_avg_pool3d': # PyTorch adds in half precision there, and is off by 3 %
        pool = lambda x, size: function(x.float(), size).to(x.dtype) if x.dtype in (torch.float16, torch.bfloat16) else function(x, size)
    return Case(name, pool, T(image(n, 1, 8, batch=False), a_float(), True), each(n, 1, 9))

# ---- norms ---------------------------------------------------------------------------------------

def statistics(c, dtype):
    mean, variance = T([c], dtype, True), T([c], dtype, True)
    return mean, Arg(np.square(variance.t.double().numpy()) + 0.5, dtype)

def in_f32(function):
    """PyTorch rounds the mean of halves to a half: f16 [2, 2, 1, 2, 1] is off by 0.7."""
    def call(x, *others, **attributes):
        if x.dtype not in (torch.float16, torch.bfloat16): return function(x, *others, **attributes)
        wide = [y.float() if isinstance(y, torch.Tensor) else y for y in others]
        return function(x.float(), *wide, **attributes).to(x.dtype)
    return call

@op('batch_norm')
def batch_norm(name):
    dtype = a_float(); c = I(1, 4); train = chance(2)
    x = T([I(1, 3), c] + [I(1, 5) for _ in range(I(0, 3))], dtype, True)
    mean, variance = statistics(c, dtype)
    return Case(name, in_f32(lambda x, m, v, w, b, training, eps: F.batch_norm(x, m.clone(), v.clone(), w, b, training, eps=eps)), x,
                mean, variance, maybe(lambda: T([c], dtype, True)), maybe(lambda: T([c], dtype, True)),
                training=train, eps=R([1e-5, 0.1]))
@op('instance_norm')
def instance_norm(name):
    dtype = a_float(); c = I(1, 4)
    x = T([I(1, 3), c] + [I(1, 5) for _ in range(I(1, 3))], dtype, True)
    return Case(name, in_f32(lambda x, m, v, w, b, eps: F.instance_norm(x, m, v, w, b, eps=eps)), x, None, None,
                maybe(lambda: T([c], dtype, True)), maybe(lambda: T([c], dtype, True)), eps=R([1e-5, 0.1]))
@op('group_norm')
def group_norm(name):
    dtype = a_float(); c = R([2, 4, 6])
    x = T([I(1, 3), c] + [I(1, 5) for _ in range(I(0, 3))], dtype, True)
    return Case(name, in_f32(F.group_norm), x, R([1, 2, c, 4]), maybe(lambda: T([c], dtype, True)),
                maybe(lambda: T([c], dtype, True)), R([1e-5, 0.1]))

# ---- attention -----------------------------------------------------------------------------------

@op('scaled_dot_product_attention')
def attention(name):
    dtype = R(FLOATS)
    rows, columns, depth, width, heads, repeats = I(1, 7), I(1, 7), I(1, 6), I(1, 6), I(1, 3), R([1, 1, 2])
    if chance(20): rows, columns = 150, 210
    batch = R([[], [2], [2, 1]])
    query = T(batch + [heads * repeats, rows, depth], dtype, True)
    key, value = T(batch + [heads, columns, depth], dtype, True), T(batch + [heads, columns, width], dtype, True)
    mask, a = None, dict(enable_gqa=repeats > 1, scale=R([None, 0.25, 1.5]))
    if chance(2):
        mask = T(R([[rows, columns], [1, columns], [rows, 1], batch + [1, rows, columns]]), R(['bool', dtype]), True)
    elif chance(3): a['is_causal'] = True # with a mask, PyTorch refuses it or not by the kernel that it chose
    return Case(name, F.scaled_dot_product_attention, query, key, value, mask, **a)

# ---- resizing, blocks, shuffles ------------------------------------------------------------------

@op('interpolate')
def interpolate(name):
    n = I(1, 3); linear = ('linear', 'bilinear', 'trilinear')[n - 1]
    mode = R(['nearest', 'nearest-exact', linear, 'area'] + ['bicubic'] * (n == 2))
    x = T([I(1, 2), I(1, 3)] + [I(2, 6) for _ in range(n)], R(FLOATS), True)
    flag = {'nearest-exact': 'exact', linear: 'linear', 'bicubic': 'cubic', 'area': 'area'}.get(mode)
    corners = mode in (linear, 'bicubic') and chance(2)
    by = dict(size=[I(1, 9) for _ in range(n)]) if chance(2) else dict(scale_factor=R([0.5, 1.0, 2.0, 2.5]))
    given = dict(by, **({flag: True} if flag else {}), **({'align_corners': True} if corners else {}))
    smooth = corners if mode in (linear, 'bicubic') else None
    return Case(name, lambda x, **ours: F.interpolate(x, mode=mode, align_corners=smooth, **by), x, **given)

def block_attributes():
    return dict(kernel_size=each(2, 1, 3), dilation=each(2, 1, 2), padding=each(2, 0, 2), stride=each(2, 1, 3))
@op('unfold')
def unfold(name): return Case(name, F.unfold, T(image(2, 3, 6, batch=False), a_float(), True), **block_attributes())
@op('fold')
def fold(name):
    sizes, a, c = [I(3, 6), I(3, 6)], block_attributes(), I(1, 3)
    try: columns = F.unfold(torch.zeros(1, c, *sizes), **a).shape
    except RuntimeError: columns = [1, c, 1] # no window fits: refused
    wrong = int(chance(12))
    return Case(name, F.fold, T([2] * I(0, 1) + [columns[1] + wrong, columns[2]], a_float(), True), sizes, **a)
@op('pixel_shuffle')
def pixel_shuffle(name):
    r = I(1, 3)
    return Case(name, F.pixel_shuffle, T([2] * I(0, 1) + [I(1, 2) * r * r + int(chance(12)), I(1, 3), I(1, 3)]), r)
@op('pixel_unshuffle')
def pixel_unshuffle(name):
    r = I(1, 3)
    return Case(name, F.pixel_unshuffle, T([2] * I(0, 1) + [I(1, 2), I(1, 2) * r + int(chance(12)), I(1, 2) * r]), r)
@op('channel_shuffle')
def channel_shuffle(name):
    r = I(1, 3)
    return Case(name, torch.channel_shuffle, T([I(1, 2), I(1, 3) * r] + [I(1, 3) for _ in range(I(1, 2))]), r)

# ---- losses, what else has weights ---------------------------------------------------------------

@op('nll_loss', 'cross_entropy')
def class_loss(name):
    classes = I(2, 5); sizes = R([[classes], [I(1, 4), classes], [I(1, 2), classes, I(1, 3)]])
    rest = [s for i, s in enumerate(sizes) if i != (1 if len(sizes) > 1 else 0)]
    a = dict(ignore_index=R([-100, -100, 1]))
    if name == 'cross_entropy': a['label_smoothing'] = R([0.0, 0.1])
    x = T(sizes, R(FLOATS), True)
    target = T(sizes, x.dtype, True) if name == 'cross_entropy' and chance(3) else index(rest, classes)
    weight = [Arg(np.random.default_rng(random.getrandbits(32)).uniform(0.2, 2, classes).astype(np.float32), x.dtype)] if chance(2) else []
    return loss_case(name, x, target, *weight, **a)
@op('prelu')
def prelu(name):
    x = T(shape(1, 3), a_float(), True)
    channels = x.t.shape[1] if x.t.dim() > 1 else 1
    return Case(name, F.prelu, x, T([R([1, channels])], x.dtype, True))
@op('max', 'min')
def whole(name): return Case(name, getattr(torch, name), T())
