"""Random calls of the ops of networks, with PyTorch's results, for tests/unit/test_oracle.c.

Each line of the file is one call in the text IR over x, w and v, the vectors of test_network_ops.c:
    call | sizes | first elements | sum of element i times (i * 7 % 13 + 1) | the same of |element|
or  call | refused            where PyTorch refuses the arguments.
Usage: /opt/peer/bin/python tests/oracle/random_calls.py COUNT SEED FILE [KIND ...], kinds as below"""
import random, sys
import needs
needs.need('torch')
import torch, torch.nn.functional as F

N = 1024
def values(seed):
    i = torch.arange(N, dtype=torch.float64)
    return ((i * 37 + seed * 11) % 23 - 11) / 8 + ((i * i + seed) % 7) / 16
flat = {'x': values(0), 'w': values(1), 'v': values(2)}

class Short(Exception): pass

def T(name, *shape):
    """A tensor of elements from somewhere in a vector, and its text."""
    count = 1
    for s in shape: count *= s
    if count > 600: raise Short
    at = random.randrange(0, N - count)
    text = f'reshape(slice({name}, 0, {at}, {at + count}), {list(shape)})'
    return flat[name][at:at + count].reshape(shape), text

def R(*choices): return random.choice(choices)
def I(low, high): return random.randint(low, high)

def text_of(value):
    if isinstance(value, str): return value
    if isinstance(value, bool): return 'true' if value else 'false'
    if isinstance(value, (tuple, list)): return str(list(value))
    return repr(value)

def numbers(n, low, high, single=0.5):
    if random.random() < single: return I(low, high)
    return tuple(I(low, high) for _ in range(n))

def spread(value, n): return (value,) * n if isinstance(value, int) else value

def spread_list(value): return list(value) if isinstance(value, (tuple, list)) else [value]

def call(name, tensors, **attributes):
    words = [t[1] for t in tensors if t is not None]
    words += [f'{k}={text_of(a)}' for k, a in attributes.items()]
    return f'{name}({", ".join(words)})'

def optional(tensor): return tensor if R(True, False) else None

def image(n, least=2, most=7, channels=None):
    channels = channels or I(1, 6)
    batch = [R(1, 2, 1, 2, 1, 2, 0)] if R(True, True, False) else []
    return batch + [channels] + [I(least, most) for _ in range(n)]

# ---- convolutions ------------------------------------------------------------------------------

def convolution():
    n = R(1, 2, 2, 3)
    groups = R(1, 1, 2, 3)
    inner, outer = I(1, 3), I(1, 2)
    shape = image(n, 3, 7, inner * groups)
    kernel = [I(1, 3) for _ in range(n)]
    X, W = T('x', *shape), T('w', outer * groups, inner, *kernel)
    B = optional(T('v', outer * groups))
    a = dict(stride=numbers(n, 1, 3), padding=numbers(n, 0, 2), dilation=numbers(n, 1, 2),
             groups=groups)
    if R(True, False, False, False): a.update(padding='same', stride=R(1, 1, 1, 2))
    return (call(f'conv{n}d', [X, W, B], **a),
            lambda: getattr(F, f'conv{n}d')(X[0], W[0], B and B[0], **a))

def transposed():
    n = R(1, 2, 2, 3)
    groups = R(1, 1, 2, 3)
    inner, outer = I(1, 2), I(1, 3)
    shape = image(n, 1, 4, inner * groups)
    if shape[0] == 0: raise Short # then PyTorch lets wrong arguments pass
    kernel = [I(1, 3) for _ in range(n)]
    X, W = T('x', *shape), T('w', inner * groups, outer, *kernel)
    B = optional(T('v', outer * groups))
    a = dict(stride=numbers(n, 1, 3), padding=numbers(n, 0, R(0, 1, 3)), output_padding=numbers(n, 0, R(0, 1, 2)),
             groups=groups, dilation=numbers(n, 1, 3))
    return (call(f'conv_transpose{n}d', [X, W, B], **a),
            lambda: getattr(F, f'conv_transpose{n}d')(X[0], W[0], B and B[0], **a))

# ---- pools -------------------------------------------------------------------------------------

def pool():
    n = R(1, 2, 2, 3)
    X = T('x', *image(n, 3, 8, I(1, 3)))
    a = dict(kernel_size=numbers(n, 1, 4))
    if R(True, False): a['stride'] = numbers(n, 1, 4)
    a['padding'] = numbers(n, 0, 2)
    if R(True, False):
        name = f'max_pool{n}d'
        a.update(dilation=numbers(n, 1, 2), ceil_mode=R(True, False))
    else:
        name = f'avg_pool{n}d'
        a.update(ceil_mode=R(True, False), count_include_pad=R(True, False))
        if n > 1 and R(True, False, False): a['divisor_override'] = I(1, 5)
        if n == 3 and min(X[0].shape[-3:]) < max(spread(a['kernel_size'], 3)):
            raise Short # PyTorch refuses it in 3d alone, padding or not
    return call(name, [X], **a), lambda: getattr(F, name)(X[0], **a)

def indices():
    n = R(1, 2, 2, 3)
    X = T('x', *image(n, 3, 8, I(1, 3)))
    a = dict(kernel_size=numbers(n, 1, 4), stride=numbers(n, 1, 4), padding=numbers(n, 0, 2),
             dilation=numbers(n, 1, 2), ceil_mode=R(True, False))
    return (call(f'max_pool{n}d_indices', [X], **a),
            lambda: getattr(F, f'max_pool{n}d')(X[0], return_indices=True, **a)[1])

def adaptive():
    n = R(1, 2, 2, 3)
    X = T('x', *image(n, 1, 8, I(1, 3)))
    size = numbers(n, R(0, 1, 1, 1), 9)
    name = f'adaptive_{R("avg", "max")}_pool{n}d'
    return call(name, [X], output_size=size), lambda: getattr(F, name)(X[0], size)

# ---- norms -------------------------------------------------------------------------------------

def channel_norm():
    c = R(2, 4, 6)
    X = T('x', I(1, 3), c, *[I(1, 5) for _ in range(I(1, 3))])
    W, B = optional(T('w', c)), optional(T('v', c))
    words = [w for w in (W and f'weight={W[1]}', B and f'bias={B[1]}') if w]
    eps = R(1e-5, 0.1)
    kind = I(0, 3)
    if kind == 0:
        g = R(1, 2, c)
        words = [X[1], str(g)] + words + [f'eps={eps!r}']
        return (f'group_norm({", ".join(words)})',
                lambda: F.group_norm(X[0], g, W and W[0], B and B[0], eps))
    if kind == 1:
        words = [X[1]] + words + [f'eps={eps!r}']
        return (f'instance_norm({", ".join(words)})',
                lambda: F.instance_norm(X[0], None, None, W and W[0], B and B[0], eps=eps))
    M, V = T('w', c), T('v', c)
    train = kind == 2
    words = [X[1], M[1], f'square({V[1]}) + 0.5'] + words
    words += [f'training={text_of(train)}', f'eps={eps!r}']
    return (f'batch_norm({", ".join(words)})',
            lambda: F.batch_norm(X[0], M[0].clone(), V[0].square() + 0.5, W and W[0], B and B[0],
                                 train, eps=eps))

def last_norm():
    shape = [I(1, 5) for _ in range(I(1, 4))]
    X = T('x', *shape)
    last = shape[-I(1, len(shape)):]
    W, B = optional(T('w', *last)), optional(T('v', *last))
    eps = R(1e-5, 0.1)
    if R(True, False):
        words = [X[1], str(last)] + ([f'weight={W[1]}'] if W else []) + [f'eps={eps!r}']
        return f'rms_norm({", ".join(words)})', lambda: F.rms_norm(X[0], last, W and W[0], eps)
    words = [w for w in (W and f'weight={W[1]}', B and f'bias={B[1]}') if w]
    return (f'layer_norm({", ".join([X[1], str(last)] + words + [f"eps={eps!r}"])})',
            lambda: F.layer_norm(X[0], last, W and W[0], B and B[0], eps))

# ---- attention ---------------------------------------------------------------------------------

def attention():
    rows, columns, depth, width = R(I(1, 7), I(1, 7), I(29, 70)), R(I(1, 7), I(29, 50)), I(1, 6), I(1, 6)
    heads, repeats = I(1, 3), R(1, 1, 2, 3)
    batch = R([], [], [I(1, 2)], [I(1, 2)], [2, I(1, 2)])
    a = {}
    if repeats > 1 or R(True, False, False): a['enable_gqa'] = True
    query_heads = heads * repeats + R(*[0] * 9, 1)
    Q = T('x', *batch, query_heads, rows, depth)
    value_heads = heads if R(*[True] * 9, False) else R(1, 2)
    K, V = T('w', *batch, heads, columns, depth), T('v', *batch, value_heads, columns, width)
    if R(True, False): a['scale'] = R(0.25, 1.5)
    words, mask = [Q[1], K[1], V[1]], None
    if R(True, False):
        M = T('v', *R([rows, columns], [1, columns], [rows, 1], [query_heads, rows, columns],
                      batch + [query_heads, rows, columns], batch + [1, rows, columns]))
        boolean = R(True, False)
        words.append(f'{M[1]} > 0' if boolean else M[1])
        mask = M[0] > 0 if boolean else M[0]
    elif R(True, False):
        a['is_causal'] = True # with a mask, PyTorch refuses it or not by the kernel that it chose
    text = ', '.join(words + [f'{k}={text_of(v)}' for k, v in a.items()])
    return (f'scaled_dot_product_attention({text})',
            lambda: F.scaled_dot_product_attention(Q[0], K[0], V[0], mask, **a))

# ---- resizing, blocks --------------------------------------------------------------------------

def resize():
    n = R(1, 2, 2, 3)
    X = T('x', I(1, 2), I(1, 2), *[I(1, 5) for _ in range(n)])
    linear = ('linear', 'bilinear', 'trilinear')[n - 1]
    mode = R('nearest', 'nearest-exact', linear, linear, 'bicubic', 'area')
    factor = lambda: R(0.4, 0.5, 0.75, 1.0, 1.3, 2.0, 2.5, 3.0)
    a = {}
    if R(True, False): a['size'] = numbers(n, 1, 8)
    elif R(True, False): a['scale_factor'] = factor()
    else: a['scale_factor'] = [factor() for _ in range(R(n, n, n, n, 2))]
    if R(True, False, False): a['recompute_scale_factor'] = True
    again = a.get('recompute_scale_factor') or mode == 'area'
    if n == 2 and mode.startswith('nearest') and not again and 1.3 in spread_list(a.get('scale_factor')):
        raise Short # where sizes stay, PyTorch's kernels for small and large pictures disagree
    corners = mode in (linear, 'bicubic') and R(True, False)
    flag = {'nearest-exact': 'exact', linear: 'linear', 'bicubic': 'cubic', 'area': 'area'}.get(mode)
    text = dict(a, **({flag: True} if flag else {}), **({'align_corners': True} if corners else {}))
    smooth = mode in (linear, 'bicubic')
    return (call('interpolate', [X], **text),
            lambda: F.interpolate(X[0], mode=mode, align_corners=corners if smooth else None, **a))

def blocks():
    shape = [I(3, 6), I(3, 6)]
    a = dict(kernel_size=numbers(2, 1, 3), dilation=numbers(2, 1, 2), padding=numbers(2, 0, 2),
             stride=numbers(2, 1, 3))
    batch = [I(1, 2)] if R(True, False) else []
    channels = I(1, 3)
    if R(True, False):
        X = T('x', *batch, channels, *shape)
        return call('unfold', [X], **a), lambda: F.unfold(X[0], **a)
    columns = F.unfold(torch.zeros(1, channels, *shape), **a).shape
    wrong = [R(0, 0, 0, 0, 0, 1), R(0, 0, 0, 0, 0, 1)]
    X = T('x', *batch, columns[1] + wrong[0], columns[2] + wrong[1])
    text = f'fold({X[1]}, {shape}, ' + ', '.join(f'{k}={text_of(v)}' for k, v in a.items()) + ')'
    return text, lambda: F.fold(X[0], shape, **a)

def padding():
    shape = [I(1, 5) for _ in range(I(1, 4))]
    X = T('x', *shape)
    widths = [I(-1, 2) for _ in range(2 * I(1, len(shape)))]
    return f'pad({X[1]}, {widths}, 0.5)', lambda: F.pad(X[0], widths, value=0.5)

def element_padding():
    n = I(1, 3)
    X = T('x', *image(n, 1, 4, I(1, 3)))
    widths = [I(-1, 4) for _ in range(2 * n)] if R(True, False) else [I(0, 2) for _ in range(2 * n)]
    name, mode = R(('reflection_pad', 'reflect'), ('replication_pad', 'replicate'), ('circular_pad', 'circular'))
    shape = X[0].shape
    empty = any(shape[-1 - i] + widths[2 * i] + widths[2 * i + 1] < 1 for i in range(n))
    if empty or (mode == 'circular' and min(widths) < 0):
        raise Short # PyTorch gives what was in memory
    return f'{name}({X[1]}, {widths})', lambda: F.pad(X[0], widths, mode)

def shuffle():
    r = I(1, 3)
    batch = [I(1, 2)] if R(True, False) else []
    kind = I(0, 4)
    if kind == 0:
        X = T('x', *batch, I(1, 2) * r * r, I(1, 3), I(1, 3))
        return f'pixel_shuffle({X[1]}, {r})', lambda: F.pixel_shuffle(X[0], r)
    if kind == 1:
        X = T('x', *batch, I(1, 2), I(1, 2) * r, I(1, 2) * r)
        return f'pixel_unshuffle({X[1]}, {r})', lambda: F.pixel_unshuffle(X[0], r)
    if kind == 2:
        X = T('x', I(1, 2), I(1, 3) * r, *[I(1, 3) for _ in range(I(0, 2))])
        return f'channel_shuffle({X[1]}, {r})', lambda: torch.channel_shuffle(X[0], r)
    shape = [I(1, 4) for _ in range(I(1, 3))]
    X = T('x', *shape)
    if kind == 3:
        dim = R(*range(-len(shape), len(shape)))
        return f'glu({X[1]}, {dim})', lambda: F.glu(X[0], dim)
    W = T('w', R(1, shape[1] if len(shape) > 1 else 1, 2))
    return f'prelu({X[1]}, {W[1]})', lambda: F.prelu(X[0], W[0])

# ---- losses, activations, reductions -----------------------------------------------------------

def loss():
    classes = I(2, 5)
    shape = R([classes], [I(1, 4), classes], [I(1, 2), classes, I(1, 3)])
    X = T('x', *shape)
    rest = [s for i, s in enumerate(shape) if i != (1 if len(shape) > 1 else 0)]
    target = torch.arange(max(1, torch.Size(rest).numel())) * 3 % classes
    target = target.reshape(rest)
    wanted = f'reshape(remainder(arange(0, {target.numel()}) * 3, {classes}), {rest})'
    ignore = R(-100, 1)
    smoothing = R(0.0, 0.1)
    kind = I(0, 2)
    if kind == 0:
        return (f'nll_loss({X[1]}, {wanted}, ignore_index={ignore})',
                lambda: F.nll_loss(X[0], target, ignore_index=ignore))
    if kind == 1:
        return (f'cross_entropy({X[1]}, {wanted}, ignore_index={ignore}, label_smoothing={smoothing})',
                lambda: F.cross_entropy(X[0], target, ignore_index=ignore, label_smoothing=smoothing))
    Y = T('w', *shape)
    name = R('mse_loss', 'l1_loss', 'smooth_l1_loss', 'binary_cross_entropy_with_logits')
    beta = {'beta': R(0.5, 2.0)} if name == 'smooth_l1_loss' else {}
    return call(name, [X, Y], **beta), lambda: getattr(F, name)(X[0], Y[0], **beta)

def activation():
    X = T('x', I(1, 4), I(1, 9))
    name, a = R(('leaky_relu', dict(slope=R(0.1, 0.3))), ('elu', dict(alpha=R(0.5, 2.0))),
                ('softplus', dict(beta=R(0.5, 2.0), threshold=R(1.0, 20.0))), ('gelu', {}),
                ('hardtanh', dict(low=R(-2.0, -0.5), high=R(0.5, 1.5))), ('selu', {}),
                ('relu6', {}), ('hardsigmoid', {}), ('hardswish', {}), ('silu', {}), ('mish', {}),
                ('softsign', {}), ('logsigmoid', {}), ('celu', dict(alpha=R(0.5, 2.0))), ('tanhshrink', {}),
                ('hardshrink', dict(lambd=R(0.25, 0.5))), ('softshrink', dict(lambd=R(0.25, 0.5))),
                ('threshold', dict(threshold=0.25, value=-3.0)), ('softmin', dict(dim=R(0, 1))), ('normalize', dict(dim=R(0, 1, -1))),
                ('softmax', dict(dim=R(0, 1, -1))), ('log_softmax', dict(dim=R(0, 1, -2))))
    given = {{'slope': 'negative_slope', 'low': 'min_val', 'high': 'max_val'}.get(k, k): v
             for k, v in a.items()}
    return call(name, [X], **a), lambda: getattr(F, name)(X[0], **given)

def reduction():
    shape = [I(1, 4) for _ in range(I(1, 4))]
    X = T('x', *shape)
    dims = random.sample(range(len(shape)), I(1, len(shape)))
    if R(True, False): dims = [d - len(shape) for d in dims]
    keep = R(True, False)
    name = R('sum', 'prod', 'amax', 'amin', 'mean', 'var', 'std', 'norm', 'logsumexp', 'argmax',
             'argmin', 'cumsum', 'cumprod', 'count_nonzero')
    if name in ('prod', 'argmax', 'argmin', 'cumsum', 'cumprod'): dims = dims[:1]
    if name in ('cumsum', 'cumprod'):
        return f'{name}({X[1]}, {dims[0]})', lambda: getattr(torch, name)(X[0], dims[0])
    if name == 'count_nonzero':
        return f'{name}({X[1]} > 0, {dims})', lambda: torch.count_nonzero(X[0] > 0, dims)
    function = torch.linalg.vector_norm if name == 'norm' else getattr(torch, name)
    if name in ('var', 'std'):
        c = I(0, 2)
        return (f'{name}({X[1]}, {dims}, {c}, {text_of(keep)})',
                lambda: function(X[0], dims, correction=c, keepdim=keep))
    if name in ('argmax', 'argmin', 'prod'):
        return (f'{name}({X[1]}, {dims}, {text_of(keep)})',
                lambda: function(X[0], dims[0], keepdim=keep))
    return (f'{name}({X[1]}, {dims}, {text_of(keep)})',
            lambda: function(X[0], dim=dims, keepdim=keep))

kinds = [convolution, transposed, pool, pool, adaptive, channel_norm, last_norm, attention, resize,
         blocks, padding, loss, indices, element_padding, shuffle, activation, reduction]
LONGEST = 400

def line(kinds):
    text, function = random.choice(kinds)()
    try:
        result = function()
    except (RuntimeError, ValueError, IndexError, AssertionError) as error:
        return f'{text} | refused', str(error)
    if result.numel() > LONGEST: raise Short
    data = result.to(torch.float64).contiguous().flatten()
    weight = torch.arange(len(data), dtype=torch.float64) * 7 % 13 + 1
    first = ' '.join('%.10g' % d for d in data[:8].tolist())
    return ' | '.join((text, ' '.join(map(str, result.shape)), first,
                       '%.12g' % (data * weight).sum(), '%.5g' % (data.abs() * weight).sum())), ''

def main():
    count, seed, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    drawn = [globals()[name] for name in sys.argv[4:]] or kinds
    random.seed(seed)
    with open(path, 'w') as out:
        while count:
            try:
                text, error = line(drawn)
            except (Short, RuntimeError):
                continue
            if error and random.random() < 0.5: continue
            out.write(text + '\n')
            count -= 1
main()
