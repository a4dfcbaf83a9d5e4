"""Random calls of the ops beside PyTorch: every dtype, strided inputs, sizes of 0, rank 0, large enough to be
split; eagerly and compiled. dtype, shape, values and refusals must be PyTorch's.

    python tests/oracle/every_op.py [COUNT [SEED [OP ...]]]        needs torch and NumPy

What may differ is listed in KNOWN, each with its reason; with COUNT of 1,000,000 or more, an entry that met no
difference is an error, so that the list stays true. Prints each difference, ends with 1 when there were any."""
import random, sys, warnings
from fractions import Fraction
import needs
needs.need('numpy', 'torch')
import numpy as np
import torch
import carbide as cb
from cases import FLOATS, MAKE, NAME
import cases_layers, cases_ops # their rows fill MAKE

warnings.filterwarnings('ignore')
torch.set_num_threads(2)
RTOL = dict(f16=4e-3, bf16=3.2e-2, f32=2e-5, f64=1e-9)

# ---- what is not drawn ----------------------------------------------------------------------------

UNDRAWN = {'convolution': 'conv1d to conv3d are made of it', 'attention': 'scaled_dot_product_attention is made of it',
           'attention_gradient': 'its gradient is'}
UNDRAWN.update({name: 'random numbers, of a generator of our own' for name in 'rand randn randint rand_like randn_like dropout'.split()})

# ---- what may differ -----------------------------------------------------------------------------

REFUSED = 'refused'
KNOWN = [ # (what it is, test of (case, PyTorch's result or error text, Carbide's), reason)
    ('no kernel', lambda c, t, k: isinstance(t, str) and ('not implemented for' in t or 'does not support bool' in t or 'do not support bool' in t.lower()) and not isinstance(k, str),
     'PyTorch has no kernel for the dtype; Carbide computes what promotion gives'),
    ('division by zero', lambda c, t, k: isinstance(t, str) and 'ZeroDivision' in t,
     'a check of the divisor would cost a pass over it: integers divided by 0 are 0 (carbide.h)'),
    ('no elements', lambda c, t, k: isinstance(k, str) and not isinstance(t, str) and ('is not a' in k or 'divided by 0' in k or c.name == 'roll') and any(a.t.numel() == 0 for a in c.tensors()),
     'PyTorch looks at no dtype, no divisor, and roll at no dim, where there are no elements'),
    ('scales that are not above 0', lambda c, t, k: c.name == 'scaled_dot_product_attention' and c.attributes.get('scale', 1) is not None and c.attributes.get('scale', 1) <= 0 and not isinstance(t, str) and bool(t.isnan().any()),
     'PyTorch multiplies the -inf of a mask with the scale, which is NaN or inf; Carbide masks what is scaled'),
    ('bool to a bool', lambda c, t, k: c.name == 'pow' and c.args[0].dtype == 'bool' and isinstance(c.args[1], bool),
     'PyTorch copies for the exponent True, fills with True for False, and has no power of bool for others'),
    ('logsumexp over nothing', lambda c, t, k: c.name == 'logsumexp' and not c.attributes['dim'] and isinstance(t, str),
     'no dims are all of them, as in other reductions; PyTorch ends with an error about its own shapes'),
    ('empty transposed convolution', lambda c, t, k: c.name.startswith('conv_transpose') and isinstance(k, str) and not isinstance(t, str) and t.numel() == 0,
     'PyTorch refuses a result of size 0 in 2d, and in 3d by the kernel that it chose; Carbide always'),
    ('topk of nothing', lambda c, t, k: c.name == 'argtopk' and c.args[0].t.dim() == 0 and c.args[1] == 0,
     'of a tensor without dims PyTorch returns the element for k of 0, too'),
    ('norm of one element', lambda c, t, k: c.name == 'group_norm' and c.args[0].t.numel() == c.args[0].t.shape[0] * c.args[1],
     'x - mean is 0, and the result the bias; PyTorch adds x * s and bias - mean * s, where s is the root of 1 / eps'),
    ('halves by a 0-d tensor', lambda c, t, k: c.name in ('floor_divide', 'remainder') and len(c.tensors()) == 2 and c.args[0].dtype in ('f16', 'bf16') and c.args[1].t.dim() == 0 and c.args[1].dtype in FLOATS and c.args[1].dtype != c.args[0].dtype,
     'PyTorch divides by the f32 of it, Carbide by the half that promotion makes of it: a floor shows the difference'),
    ('concat of nothing', lambda c, t, k: c.name == 'concat' and isinstance(k, str) and not isinstance(t, str) and all(list(a.t.shape) == [0] for a in c.tensors()),
     'PyTorch looks at no dim where all tensors are of size [0], which it skips'),
    ('prod of halves', lambda c, t, k: c.name == 'prod' and c.args[0].dtype == 'f16' and not isinstance(t, str) and not bool(t.isfinite().all()),
     'PyTorch multiplies in f16, so that 300 * 300 * 0.01 is inf; Carbide in f32, and rounds once'),
    ('linspace to integers', lambda c, t, k: c.name == 'linspace' and not isinstance(t, str) and t.dtype not in FLOATING and (k[1] == exact_line(c)).all(),
     'PyTorch multiplies by a rounded step, so that an integer between the ends may be truncated to the one before: (3, -1, 7)[3] is 0; Carbide divides, and has 1'),
    ('negative numbers for u8', lambda c, t, k: c.name == 'pad' and isinstance(t, str) and 'uint8_t without overflow' in t and -255 <= c.args[2] < 0,
     'PyTorch wraps them around in full, masked_fill and others, and refuses them in pad; Carbide wraps in all'),
    ('exponents beyond f16', lambda c, t, k: c.name == 'pow' and isinstance(t, str) and 'c10::Half without overflow' in t,
     'PyTorch refuses the number as a value of f16; the power itself is one'),
    ('exponents beyond f32', lambda c, t, k: c.name == 'pow' and c.args[0].dtype == 'f32' and isinstance(c.args[1], (int, float)) and float(torch.tensor(float(c.args[1]))) != c.args[1] and not isinstance(t, str),
     'PyTorch rounds a whole exponent to f32 in its vectors, so that an odd one is even, and does not in what is left of a run; Carbide does in neither'),
    ('entropies of halves', lambda c, t, k: c.name == 'cross_entropy' and not isinstance(t, str) and t.dtype in (torch.float16, torch.bfloat16) and agrees_in_f64(c, t, k),
     'PyTorch rounds each product of log-probability, target and weight to a half before it sums them, which cancel where targets have both signs; Carbide computes in f32'),
    ('one element', lambda c, t, k: c.name in ('full', 'full_like', 'linspace') and isinstance(k, str) and 'is no' in k and not isinstance(t, str) and t.numel() == 1,
     'PyTorch refuses a number that the dtype cannot hold, but for a single element'),
    ('distances of halves', lambda c, t, k: c.name == 'triplet_margin_loss' and not isinstance(t, str) and t.dtype in (torch.float16, torch.bfloat16) and agrees_in_f64(c, t, k),
     'PyTorch rounds large distances (p of 0.5) to halves before it subtracts them; Carbide computes in f32'),
    ('convolution with AMX', lambda c, t, k: AMX and c.name.startswith('conv') and not isinstance(t, str) and t.dtype == torch.bfloat16 and agrees_in_f64(c, t, k),
     'PyTorch 2.11 on processors with AMX: conv3d of bf16 [2, 1, 5, 5, 4] by [2, 1, 1, 2, 3] with stride 2 gives -29.75 for 6.3 (its own f64)'),
]
AMX = 'amx_bf16' in open('/proc/cpuinfo').read() # matrix units of x86

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

def exact_line(case):
    """Integers of linspace: the ends truncated, what lies between in whole numbers."""
    start, end, steps = int(case.args[0]), int(case.args[1]), case.args[2]
    line = [start + Fraction(k * (end - start), steps - 1) for k in range(steps)] if steps > 1 else [start] * steps
    return np.array([int(v) for v in line])

def agrees_in_f64(case, theirs, ours):
    """Carbide's result of a case in halves is PyTorch's of the same numbers in f64, rounded."""
    exact = case.function(*[a.t.double() if hasattr(a, 't') else a for a in case.args], **case.attributes)
    return not isinstance(ours, str) and difference(case, exact.to(theirs.dtype), ours) is None

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
    if case.name in CANCEL or case.name in LOSSES:
        scale = 1 + max(float(np.abs(np.nan_to_num(a.array.astype(np.float64), posinf=0, neginf=0)).max(initial=0)) for a in case.tensors())
    if case.name in LOSSES: scale = scale + np.abs(e) # sums of differences
    if case.name == 'linspace': scale = max(abs(case.args[0]), abs(case.args[1]))
    with np.errstate(all='ignore'):
        fine = (a == e) | (np.isnan(a) & np.isnan(e)) | (np.abs(a - e) <= RTOL[wanted] * (1e-3 + scale))
    if case.name in ('prod', 'cumprod'): # which of the last roundings leaves the range
        fine |= (np.minimum(np.abs(a), np.abs(e)) > 0.5 * TOP[wanted]) & (np.sign(a) == np.sign(e))
        beyond = [np.isinf(v) | np.isnan(v) | (v == 0) for v in (a, e)]
        if case.tensors()[0].t.numel() > 1000: # what leaves it on the way, by the order
            fine |= beyond[0] & beyond[1]
            if case.name == 'cumprod' and a.ndim:
                fine |= np.minimum.accumulate(np.minimum(np.abs(a), np.abs(e)), case.args[1]) < LEAST.get(wanted, LEAST['f32'])
                fine |= np.maximum.accumulate(np.maximum(np.abs(a), np.abs(e)), case.args[1]) > 0.5 * TOP[wanted]
    if fine.all(): return None
    i = int(np.argmin(fine.reshape(-1)))
    return f'[{i}] {a.reshape(-1)[i]!r}, not {e.reshape(-1)[i]!r}'
LEAST = {'f32': 1.1755e-38, 'f64': 2.2251e-308} # of normal numbers; halves are multiplied in f32
TOP = {'f16': 65504.0, 'bf16': 3.3895e38, 'f32': 3.4028e38, 'f64': 1.7976e308}
SUMS = set('''sum mean var std norm cumsum cumprod prod matmul linear addmm conv1d conv2d conv3d logsumexp layer_norm rms_norm
normalize cosine_similarity addcmul addcdiv scatter_add lerp avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
adaptive_avg_pool2d adaptive_avg_pool3d conv_transpose1d conv_transpose2d conv_transpose3d interpolate fold
scaled_dot_product_attention'''.split())

CANCEL = set('''gelu tanhshrink mish silu logsigmoid softplus var std log_softmax layer_norm rms_norm batch_norm
instance_norm group_norm cosine_similarity logsumexp'''.split())
LOSSES = set('''nll_loss cross_entropy binary_cross_entropy_with_logits binary_cross_entropy kl_div mse_loss l1_loss smooth_l1_loss
huber_loss pairwise_distance cosine_embedding_loss triplet_margin_loss'''.split())

def attempt(call):
    try: return call()
    except cb.Error as error: return error.message
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, AssertionError) as error: return f'{error}'[:300]

def check(case, compiles):
    """(way, case, what differs, known): once eagerly and by compiled functions, and by one compiled function
    with numbers that change from call to call."""
    theirs = attempt(case.torch)
    found = []
    cases = [case] + [case.varied() for _ in range(2)]
    varies = any(repr(c) != repr(case) for c in cases)
    with cb.scope():
        given = [a.carbide() for a in case.tensors()]
        def eager():
            y = case.run(given)
            return y.dtype, values(y)
        def compiled(options):
            f = cb.compile(lambda *x: case.run(x), options)
            try:
                y = f(*given)
                if 'the C compiler failed' in f.explain(): raise RuntimeError('the C compiler failed')
                return y.dtype, values(y)
            finally: f.free()
        ways = [('eager', eager), ('vm', lambda: compiled('backend=vm,fullgraph=1'))]
        if compiles: ways.append(('c', lambda: compiled('backend=c')))
        for way, call in ways:
            ours = attempt(call)
            what = difference(case, theirs, ours)
            if what: found.append((way, case, what, known_of(case, theirs, ours)))
        if varies: found += check_varied(cases + cases[1:], given, 'backend=c' if compiles else 'backend=vm')
    return found

def check_varied(cases, given, options):
    now, found = None, []
    f = cb.compile(lambda *x: now.run(x), options)
    for k, now in enumerate(cases):
        def once():
            y = f(*given)
            return y.dtype, values(y)
        theirs, ours = attempt(now.torch), attempt(once)
        what = difference(now, theirs, ours)
        if what: found.append((f'call {k + 1} of {options}', now, what, known_of(now, theirs, ours)))
    f.free()
    return found

def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000 # 200 a second
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    names = sys.argv[3:] or sorted(MAKE)
    missing = sorted(set(cb.ops) - set(MAKE) - set(UNDRAWN))
    if missing: sys.exit(f'no row draws {", ".join(missing)}')
    met, wrong = {}, 0
    for number in range(count):
        name = names[number % len(names)]
        for way, case, what, known in check(MAKE[name](name), number % (100 if count <= 10000 else 20) == 0):
            if known: met[known] = met.get(known, 0) + 1; continue
            wrong += 1
            print(f'{way}: {case}: {what}', flush=True)
    print(f'{count} calls of {len(names)} ops, {wrong} differences, besides: {met}')
    idle = [k[0] for k in KNOWN if k[0] not in met and (AMX or 'AMX' not in k[0])] if count >= 1000000 and len(names) == len(MAKE) else []
    for k in idle: print(f'known difference that no call showed: {k}')
    sys.exit(1 if wrong or idle else 0)
if __name__ == '__main__': main()
