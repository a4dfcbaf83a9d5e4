"""Gradients beside PyTorch's: the random calls of every_op.py whose tensors are f32 and f64, with a random
cotangent, eagerly; and a small network trained by plain descent, whose losses must be PyTorch's.

    python tests/oracle/gradients.py [--second] [COUNT [SEED [OP ...]]]        needs torch and NumPy

--second compares the gradients of the gradients' sum with random weights: PyTorch's create_graph, cb_grad_graph.

Elements that are not finite in PyTorch are not compared, nor calls that it refuses. What may differ is listed in
KNOWN, each with its reason. Prints each difference, ends with 1 when there were any, and with 77, which CTest
counts as skipped, where there is no torch."""
import random, sys, warnings
import needs
needs.need('numpy', 'torch')
import numpy as np
import torch
import carbide as cb
from cases import I, MAKE, NAME, R, chance
import cases_layers, cases_ops # their rows fill MAKE
from every_op import attempt

warnings.filterwarnings('ignore')
torch.set_num_threads(2)
RTOL = dict(f32=2e-4, f64=1e-9)
SECOND = '--second' in sys.argv
if SECOND: sys.argv.remove('--second')
KNOWN = [ # (what it is, test of (case), reason)
    ('sixths', lambda c: c.name == 'hardsigmoid', 'PyTorch multiplies gradients of f64 by 1 / 6 rounded to f32'),
    ('bytes negated', lambda c: c.name == 'atan2' and c.args[0].dtype == 'u8', 'PyTorch negates the u8, which wraps'),
    ('bytes times a number', lambda c: c.name in ('addcmul', 'addcdiv') and any(a.dtype == 'u8' for a in c.tensors()),
     'PyTorch multiplies the u8 by the value before it is converted, which wraps'),
    ('rows of one number', lambda c: c.name in ('group_norm', 'layer_norm', 'instance_norm') and c.args[0].t.dim() > 1 and c.args[0].t.numel() == c.args[0].t.shape[0] * c.args[0].t.shape[1],
     'x - mean is 0, and so are the gradients; PyTorch leaves what cancels to rounding, times the root of 1 / eps'),
    ('products of NaN', lambda c: c.name in ('cumprod', 'prod') and not bool(c.args[0].t.isfinite().all()),
     'PyTorch leaves out what stands behind a 0; here 0 times NaN or inf is NaN'),
    ('NaN by its place', lambda c: c.name in ('hardtanh', 'relu6', 'hardshrink', 'softshrink', 'elu', 'celu', 'selu') and bool(c.args[0].t.isnan().any()),
     'PyTorch gives the gradient, 0 or NaN to a NaN, by whether it is among the last elements, which are no vector'),
    ('prelu at 0', lambda c: SECOND and c.name == 'prelu' and bool((c.args[0].t == 0).any()),
     "PyTorch's first order counts 0 as negative, its second order as positive"),
    ('huber at NaN', lambda c: SECOND and c.name == 'huber_loss' and any(bool(a.t.isnan().any()) for a in c.tensors()),
     'PyTorch counts NaN as small in the first order, as large in the second'),
    ('quotients by 0', lambda c: SECOND and c.name == 'fmod' and bool((torch.as_tensor(getattr(c.args[1], 't', c.args[1])) == 0).any()),
     'fmod is NaN there; its quotient has no gradient in PyTorch, and here 0 times that of a quotient'),
    ('1e-12 in f32', lambda c: c.name == 'cosine_embedding_loss', 'PyTorch adds 1e-12 to squares, rounded to f32'),
]

KINKS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, 3.0, -3.0, 6.0, float('nan')] # where branches meet, and in none
CANCEL = ['cosine_similarity', 'hypot', 'cumprod', 'prod', 'copysign', 'norm'] # whose second order of hardly anything is rounding alone
DISTANCE = ['pairwise_distance', 'triplet_margin_loss'] # which is 1e-6 between equal elements: as much
def bend(case):
    """Elements that lie where a formula changes its branch, equal operands, rows with hardly a norm: now and then."""
    floats, some = [a for a in case.tensors() if a.dtype in RTOL], np.random.default_rng(random.getrandbits(32))
    for a in floats if case.name != 'binary_cross_entropy' and chance(3) else []: # which takes probabilities
        array, how = a.array.copy(), I(0, 3)
        if SECOND and case.name in DISTANCE: how = 3
        if how == 0 and floats[0].array.shape == array.shape: array[...] = floats[0].array
        elif how == 1 and array.ndim:
            array[some.random(array.shape[0]) < 0.5] *= 0 if SECOND and case.name in CANCEL else R([0, 1e-14] + [1e-9] * (a.dtype == 'f64'))
        else:
            odd = some.choice(KINKS if chance(2) else KINKS[:-1], array.shape)
            array = np.where(some.random(array.shape) < 0.4, odd, array).astype(array.dtype)
        a.array, a.t = array, torch.from_numpy(array.copy())

def float_case(name):
    """A call with f32 or f64 tensors alone, but for those that hold integers; None: this one is none."""
    case = MAKE[name](name)
    kinds = {a.dtype for a in case.tensors()}
    if not kinds & {'f32', 'f64'} or kinds & {'f16', 'bf16'}: return None
    bend(case)
    return case

def theirs_of(case):
    """(cotangent, wanted arguments, weights of their gradients, gradients) or None: nothing to compare."""
    floats = [a for a in case.tensors() if a.dtype in RTOL]
    wanted = floats if random.random() < 0.5 else [a for a in floats if random.random() < 0.5] # the others are constants
    for a in wanted: a.t = a.t.clone().requires_grad_()
    y = attempt(case.torch)
    if isinstance(y, str) or not y.requires_grad or NAME.get(y.dtype) not in RTOL: return None
    g = torch.from_numpy(np.random.default_rng(random.getrandbits(32)).normal(0, 1, tuple(y.shape))).to(y.dtype)
    try: grads = torch.autograd.grad(y, [a.t for a in wanted], g, allow_unused=True, create_graph=SECOND)
    except RuntimeError: return None # a function without a derivative
    if not SECOND: return g, wanted, [], grads
    weights = [None if d is None else torch.randn_like(d) for d in grads]
    parts = [(d * e).sum() for d, e in zip(grads, weights) if e is not None and d.requires_grad]
    if not parts: return None
    try: return g, wanted, weights, torch.autograd.grad(sum(parts), [a.t for a in wanted], allow_unused=True)
    except RuntimeError: return None

def difference(case, got, expected, wanted):
    if not SECOND and (got is None) != (expected is None):
        return 'no gradient, not one of zeros' if got is None else 'a gradient, where PyTorch has none'
    if expected is None: expected = torch.zeros_like(wanted.t)
    e = expected.detach().numpy(force=True).astype(np.float64)
    a = np.zeros_like(e) if got is None else got.numpy().astype(np.float64)
    if got is not None and got.dtype != wanted.dtype: return f'{got.dtype}, not {wanted.dtype}'
    if a.shape != e.shape: return f'{a.shape}, not {e.shape}'
    scale = np.abs(e[np.isfinite(e)]).max(initial=0)
    tolerance = RTOL['f32' if any(t.dtype == 'f32' for t in case.tensors()) else 'f64'] # sums of them, too
    with np.errstate(all='ignore'): fine = ~np.isfinite(e) | (np.abs(a - e) <= tolerance * (0.1 + scale))
    if fine.all(): return None
    i = int(np.argmin(fine.reshape(-1)))
    return f'[{i}] {a.reshape(-1)[i]!r}, not {e.reshape(-1)[i]!r}'

def second(first, weights, leaves):
    total = None
    for d, e in zip(first, weights):
        if d is None or e is None or not cb.lib.cb_requires_grad(d.handle): continue
        part = cb.call('sum', cb.call('mul', d, cb.tensor(e.numpy())))
        total = part if total is None else cb.call('add', total, part)
    return cb.grad(total, None, leaves) if total else [None] * len(leaves)

def check(case):
    """The differences of one call, or None when there was nothing to compare."""
    theirs = theirs_of(case)
    if not theirs: return None
    g, wanted, weights, grads = theirs
    with cb.scope():
        given = [a.carbide() for a in case.tensors()]
        leaves = [cb.requires_grad_(x) for x, a in zip(given, case.tensors()) if a in wanted]
        def ours():
            y = attempt(lambda: case.run(given))
            if isinstance(y, str): return None # every_op.py says which calls are refused
            if not cb.lib.cb_requires_grad(y.handle): return 'the result does not require a gradient'
            first = cb.grad(y, cb.tensor(g.numpy()), leaves, graph=SECOND)
            return second(first, weights, leaves) if SECOND else first
        got = attempt(ours)
        if got is None: return None
        if isinstance(got, str): return [f'Carbide: {got[:160]}']
        found = [difference(case, x, e, a) for x, e, a in zip(got, grads, wanted)]
        return [f'to argument {i}: {what}' for i, what in enumerate(found) if what]

# ---- a network --------------------------------------------------------------------------------------

def train(steps=20):
    """Two layers with a layer norm between them, cross entropy, descent in place: the losses of both."""
    some = np.random.default_rng(3)
    data = [some.normal(0, 1, (64, 20)), some.integers(0, 5, 64)]
    start = [some.normal(0, 0.3, s) for s in ((32, 20), (32,), (32,), (32,), (5, 32), (5,))]
    x, t = torch.tensor(data[0], dtype=torch.float32), torch.tensor(data[1])
    theirs, ours = [torch.tensor(p, dtype=torch.float32, requires_grad=True) for p in start], []
    losses = [[], []]
    F = torch.nn.functional
    for _ in range(steps):
        w1, b1, s, o, w2, b2 = theirs
        loss = F.cross_entropy(F.linear(F.gelu(F.layer_norm(F.linear(x, w1, b1), [32], s, o)), w2, b2), t)
        grads = torch.autograd.grad(loss, theirs)
        with torch.no_grad():
            for p, d in zip(theirs, grads): p -= 0.5 * d
        losses[0].append(loss.item())
    with cb.scope():
        x, t = cb.tensor(data[0].astype(np.float32)), cb.tensor(data[1])
        ours = [cb.requires_grad_(cb.tensor(p.astype(np.float32))) for p in start]
        for _ in range(steps):
            with cb.scope():
                w1, b1, s, o, w2, b2 = ours
                h = cb.call('layer_norm', cb.call('linear', x, w1, b1), [32], s, o)
                loss = cb.call('cross_entropy', cb.call('linear', cb.call('gelu', h), w2, b2), t)
                cb.backward(loss)
                cb.lib.cb_no_grad_open()
                for p in ours:
                    d = cb.Tensor(cb.lib.cb_tensor_grad(p.handle))
                    cb.assign(p, cb.call('sub', p, cb.call('mul', d, 0.5)))
                    cb.lib.cb_zero_grad(p.handle)
                cb.lib.cb_no_grad_close()
                losses[1].append(loss.item())
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses[1], losses[0]))
    print(f'{steps} steps, loss {losses[0][0]:.4f} to {losses[0][-1]:.4f}, furthest from PyTorch by {worst:.1e}')
    return worst < 1e-5 and losses[0][-1] < 0.8 * losses[0][0]

def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    names = sys.argv[3:] or sorted(MAKE)
    compared, wrong, met = {}, 0, {}
    for number in range(count):
        name = names[number % len(names)]
        case = float_case(name)
        found = check(case) if case else None
        if found is None: continue
        compared[name] = compared.get(name, 0) + 1
        known = [k[0] for k in KNOWN if found and k[1](case)]
        if known: met[known[0]] = met.get(known[0], 0) + 1
        for what in found if not known else []:
            wrong += 1
            print(f'{case}: {what}', flush=True)
    print(f'{sum(compared.values())} gradients of {len(compared)} ops, {wrong} differences, besides: {met}')
    sys.exit(1 if wrong or not train() else 0)
if __name__ == '__main__': main()
