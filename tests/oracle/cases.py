"""A call of an op with PyTorch's of the same, and how its arguments are drawn. cases_ops.py and cases_layers.py
have a row for each op, every_op.py runs them."""
import random
import numpy as np
import torch, torch.nn.functional as F
import carbide as cb

TORCH = dict(bool=torch.bool, u8=torch.uint8, i8=torch.int8, i16=torch.int16, i32=torch.int32, i64=torch.int64,
             f16=torch.float16, bf16=torch.bfloat16, f32=torch.float32, f64=torch.float64)
NAME = {v: k for k, v in TORCH.items()}
INTS, FLOATS = ['u8', 'i8', 'i16', 'i32', 'i64'], ['f16', 'bf16', 'f32', 'f64']

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
    elif len(sizes) > 1 and chance(20): sizes[0] = R([70, 200, 1100]) # many short rows: code walks them as one run
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

OTHERS = {int: [0, 1, 2, -1, 3, -3, 5, 100, 300], float: [0.0, -0.0, 0.5, 1.0, 2.5, -1.5, 2.0, 0.25, 1e5], bool: [True, False]}

class Case:
    def __init__(self, name, function, *args, **attributes):
        self.name, self.function, self.args, self.attributes = name, function, args, attributes
    def tensors(self): return [a for a in self.args if isinstance(a, Arg)]
    def torch(self): return self.function(*[a.t if isinstance(a, Arg) else a for a in self.args], **self.attributes)
    def run(self, given):
        given = iter(given)
        return cb.call(self.name, *[next(given) if isinstance(a, Arg) else a for a in self.args], **self.attributes)
    def varied(self):
        """The same call with other numbers, of the same kind mostly; itself where it has none."""
        params = cb.ops[self.name].params
        kinds = {p.name: p.kind for p in params}
        def other(value, kind):
            if kind == 'double': return value * R([0.5, 1.0, 1.5, 2.0])
            if kind not in ('operand', 'cb_operand') or isinstance(value, Arg) or value is None: return value
            if not chance(6): return R(OTHERS[type(value)]) if type(value) in OTHERS else value
            return number()
        args = [other(a, p.kind) for a, p in zip(self.args, params)]
        return Case(self.name, self.function, *args, **{k: other(v, kinds[k]) for k, v in self.attributes.items()})
    def __repr__(self):
        parts = [repr(a) for a in self.args] + [f'{k}={v!r}' for k, v in self.attributes.items()]
        return f'{self.name}({", ".join(parts)})'

# ---- rows ----------------------------------------------------------------------------------------

MAKE = {} # op -> what draws a call of it
def op(*names):
    def add(make):
        for n in names: MAKE[n] = make
        return make
    return add

# ---- losses --------------------------------------------------------------------------------------

REDUCTIONS = cb.REDUCTIONS
def loss_case(name, *args, reduction=None, **attributes):
    """With the reduction as a text for PyTorch and as a number for us; attributes are keywords of both."""
    reduction = reduction or R(REDUCTIONS[:3])
    def theirs(*args, reduction, **attributes):
        return getattr(F, name)(*args, reduction=REDUCTIONS[reduction], **attributes)
    return Case(name, theirs, *args, reduction=REDUCTIONS.index(reduction), **attributes)
def probability(sizes, dtype):
    return Arg(np.random.default_rng(random.getrandbits(32)).uniform(0.02, 0.98, sizes).astype(np.float32), dtype)
