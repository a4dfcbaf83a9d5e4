"""Random programs: generate(seed, every) makes the same text for the same seed.

Steps are tried on the judge as they are drawn: what it refuses (wrong shapes, floor of a rounded sum,
a conversion that nothing defines) is dropped, so that every step of a program has one right result."""
import random
import numpy as np
import carbide as cb
import ops, values
from generate_windows import Windows
from program import Call, Line, Program, Ref, execute, judge_apply, judged, Mode
from values import FLOATS, Refused, Value, category, is_float

SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 33)
# About the thresholds of the code: vectors, splits, grains, tiles, radix sorts, streams, huge pages.
LONG = (64, 100, 127, 256, 257, 1000, 1024, 1025, 2047, 4096, 4097, 5000, 16384, 16385, 33000, 65537, 131073, 270000, 540001)
MOST_ELEMENTS = 3000

UNARY_FLOAT = ('neg abs sign square reciprocal sqrt rsqrt relu floor ceil round trunc frac isnan isinf isfinite logical_not '
               'exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc '
               'sigmoid hardsigmoid hardswish relu6 leaky_relu hardtanh hardshrink clone contiguous').split()
ROUGH = ('exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc '
         'sigmoid rsqrt hardsigmoid hardswish leaky_relu').split()
WITH_NUMBERS = dict(leaky_relu=[0.01], hardtanh=[-1.0, 1.0], hardshrink=[0.5], softplus=[1.0], elu=[1.0])
UNARY_INT = 'neg abs sign square relu floor bitwise_not logical_not clone contiguous isnan'.split()
UNARY_BOOL = 'bitwise_not logical_not clone contiguous logical_not'.split()
BINARY_ANY = 'add add add mul mul sub sub maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor'.split()
BINARY_FLOAT = 'div floor_divide remainder fmod atan2 hypot copysign pow'.split()
BINARY_INT = ('floor_divide remainder fmod bitwise_and bitwise_or bitwise_xor left_shift right_shift pow div').split()
NUMBERS = (0, 1, 2, -1, 3, 7, -2, 0.5, 1.5, -0.25, 2.0, 0.1, 1e-3, 100.0, True)
# Of those that change from call to call, by kind: beyond the small dtypes, too.
CHANGING = {int: (0, 1, 2, -1, 3, 5, 7, -2, -6, 100, 200, 300, 70000, -2 ** 31, 2 ** 40),
            float: (0.0, -0.0, 0.5, 1.0, 1.5, -0.25, 2.0, 3.0, -2.5, 0.1, 1e-3, 100.0, 70000.0, -3e10), bool: (True, False)}

class Writer(Windows):
    NUMBERS = NUMBERS
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.large = self.chance(0.05)
        self.program = Program()
        self.values = {} # name -> Value, of the body
        self.changing = [] # names of numbers that are others in every call
        self.starts = [] # pairs of them: where a part of a dim begins and ends, always as far apart
        self.next = 0
        self.rough = self.chance(0.35) # may use what is known within a bound only

    def chance(self, p): return self.random.random() < p
    def pick(self, *choices): return self.random.choice(choices)
    def choose(self, choices): return self.random.choice(list(choices))
    def number(self, low, high): return self.random.randint(low, high)

    # ---- inputs ------------------------------------------------------------------------------

    def dtype(self):
        if self.chance(0.5): return self.pick('f32', 'f32', 'f32', 'f64', 'i64', 'i32')
        return self.choose(cb.DTYPES)

    def sizes(self, most=MOST_ELEMENTS):
        if self.large:
            long = self.choose(LONG)
            shape = self.pick([long], [long], [2, long], [long, 3], [1, long], [3, 5, long // 10 + 1])
            if np.prod(shape) <= 600000: return shape
            return [long // 4]
        while True:
            rank = self.pick(0, 1, 1, 2, 2, 2, 3, 3, 4)
            shape = [self.choose(SIZES) for _ in range(rank)]
            if self.chance(0.85): shape = [max(s, 1) for s in shape]
            if self.chance(0.06) and rank: shape[-1] = self.pick(64, 100, 127, 128, 257, 300, 1025)
            if np.prod(shape) <= most: return shape

    def changing_number(self, old=None):
        """Of the kind of the old one, mostly."""
        kind = type(old) if old is not None and self.chance(0.85) else self.pick(int, int, float, float, float, bool)
        return self.choose(CHANGING[kind])

    def a_number(self, *choices):
        if self.changing and self.chance(0.7): return self.choose(self.changing)
        return self.choose(choices)

    def kind(self, dtype):
        if dtype == 'bool': return 'mask'
        if is_float(dtype): return self.pick('small', 'small', 'small', 'eighths', 'eighths', 'normal', 'wild')
        return self.pick('small', 'small', 'full', 'full', 'mask')

    def base(self, name, dtype, sizes, kind=None):
        return Line([name], 'base', [dtype, list(sizes), kind or self.kind(dtype), self.number(1, 99999)])

    def setup(self):
        """Storages, views of them, and what is passed: the same tensor twice, views of one storage."""
        lines, names, count = [], {}, 0
        def add(line):
            execute([line], names, judge_apply)
            lines.append(line)
        for k in range(self.pick(1, 1, 2, 2, 3)):
            add(self.base(f'b{k}', self.dtype(), self.sizes()))
        arguments = []
        for _ in range(self.pick(1, 2, 2, 3)):
            name = self.choose([l.targets[0] for l in lines])
            for _ in range(self.pick(0, 0, 1, 1, 2)):
                line = self.a_view(Ref(name), names[name])
                if line is None: continue
                line.targets = [f'a{count}']
                try: add(line)
                except Refused: continue
                name, count = f'a{count}', count + 1
            arguments.append(name)
        if self.chance(0.25): # an index among the inputs
            name = f'b{sum(l.op == "base" for l in lines)}'
            sizes = self.pick([3], [9], [2, 3], [4, 1], list(names[arguments[0]].shape))
            add(Line([name], 'base', [self.pick('i64', 'i32', 'u8'), sizes, 'below', self.number(1, 99999), self.pick(1, 2, 3, 5)]))
            arguments.append(name)
        if self.chance(0.2): arguments.append(self.choose(arguments))
        return Call(self.pick(1, 2, 2), lines, arguments), names

    # ---- steps -------------------------------------------------------------------------------

    def a_view(self, ref, v):
        rank, pick = v.data.ndim, self.pick
        kind = pick('slice', 'slice', 'slice', 'transpose', 'permute', 'reshape', 'reshape', 'expand', 'unsqueeze', 'squeeze',
                    'select', 'narrow', 'flatten', 'window', 'flip', 't', 'unflatten', 'view')
        if rank == 0 and kind not in ('unsqueeze', 'expand', 'reshape', 'flatten', 'squeeze', 't'): return None
        d = self.number(-rank, rank - 1) if rank else 0
        size = v.shape[d] if rank else 1
        if self.starts and size and self.chance(0.6):
            start, end = self.choose(self.starts)
            kind = pick('slice', 'slice', 'narrow', 'select')
            if kind == 'slice': return Line([], kind, [ref, d, start, end, pick(1, 1, 1, 2, 3)])
            return Line([], kind, [ref, d, start] + ([pick(0, 1, 1, 2, 3)] if kind == 'narrow' else []))
        if kind == 'slice':
            start = self.number(0, size) if self.chance(0.6) else 0
            end = self.number(start, size + 1) if self.chance(0.6) else 2 ** 63 - 1
            if self.chance(0.2): start -= size
            return Line([], 'slice', [ref, d, start, end, pick(1, 1, 2, 2, 3, 5)])
        if kind == 'transpose': return Line([], kind, [ref, d, self.number(-rank, rank - 1)])
        if kind == 'permute':
            order = list(range(rank))
            self.random.shuffle(order)
            return Line([], kind, [ref, order])
        if kind in ('reshape', 'view'): return Line([], kind, [ref, self.other_sizes(v.size)])
        if kind == 'expand':
            sizes = [s if s != 1 or self.chance(0.3) else pick(1, 2, 3, 5) for s in v.shape]
            if self.chance(0.4) and rank < 5: sizes = [pick(1, 2, 3)] + sizes
            return Line([], pick('expand', 'broadcast_to'), [ref, sizes]) if v.size * 16 < 200000 else None
        if kind == 'unsqueeze': return Line([], kind, [ref, self.number(-rank - 1, rank)]) if rank < 5 else None
        if kind == 'squeeze': return Line([], kind, [ref] + ([[d]] if rank and self.chance(0.5) else []))
        if kind == 'select': return Line([], kind, [ref, d, self.number(-size, size - 1)]) if size else None
        if kind == 'narrow':
            start = self.number(0, size)
            return Line([], kind, [ref, d, start, self.number(0, size - start)])
        if kind == 'flatten': return Line([], kind, [ref] + ([self.number(0, max(rank - 1, 0)), -1] if self.chance(0.5) else []))
        if kind == 'window':
            if v.size > 20000: return None
            return Line([], kind, [ref, d, self.number(1, max(1, min(size, 5))), pick(1, 1, 2, 3), pick(1, 1, 2)])
        if kind == 'flip': return Line([], kind, [ref, self.random.sample(range(rank), self.number(1, rank))])
        if kind == 'unflatten':
            f = self.factor(size)
            return Line([], kind, [ref, d, [f, size // f]]) if size and rank < 6 else None
        return Line([], kind, [ref])

    def factor(self, n): return self.choose([f for f in range(1, min(n, 40) + 1) if n % f == 0] or [1])

    def other_sizes(self, count):
        if count == 0: return self.pick([0], [0, 3], [2, 0])
        sizes = []
        for _ in range(self.number(0, 3)):
            f = self.factor(count)
            sizes.append(f)
            count //= f
        sizes.append(count)
        self.random.shuffle(sizes)
        return sizes

    def any_name(self, test=lambda v: True):
        """Late values are more likely."""
        names = [n for n, v in self.values.items() if isinstance(v, Value) and test(v)]
        if not names: return None
        late = names[-4:] if self.chance(0.6) else names
        return Ref(self.choose(late))

    def partner(self, v):
        """Another operand of a binary op on v."""
        def suits(w):
            try: shape = np.broadcast_shapes(v.shape, w.shape)
            except ValueError: return False
            return np.prod(shape) <= max(v.size, w.size, MOST_ELEMENTS)
        name = self.any_name(suits)
        if name is None or self.chance(0.6 if self.changing else 0.3): return self.a_number(*NUMBERS)
        return name

    def step(self):
        """A line without targets, or None."""
        kinds = [self.unary] * 4 + [self.binary] * 6 + [self.views] * 6 + [self.write] * 4 + [self.reduce] * 3 + \
                [self.cast] * 2 + [self.moves] * 5 + [self.order] * 2 + [self.select_by] * 2 + [self.product, self.make, self.layers, self.windows] + [self.formula, self.positions] * 2
        return self.choose(kinds)()

    def unary(self):
        name = self.any_name()
        v = self.values[name]
        op = self.choose([UNARY_BOOL, UNARY_INT, UNARY_FLOAT][category(v.dtype)])
        if op in ROUGH and not self.rough: return None
        numbers = [self.a_number(d) for d in WITH_NUMBERS.get(op, ())] if self.changing else []
        return Line([], op, [name] + numbers)

    def binary(self):
        name = self.any_name()
        v = self.values[name]
        other = self.partner(v)
        special = BINARY_FLOAT if is_float(v.dtype) else BINARY_INT
        op = self.choose(BINARY_ANY if self.chance(0.65) else special)
        if op in ('atan2', 'hypot', 'pow') and is_float(v.dtype) and not self.rough: return None
        pair = [name, other]
        if self.chance(0.3): pair.reverse()
        return Line([], op, pair)

    def views(self):
        name = self.any_name()
        return self.a_view(name, self.values[name])

    def write(self):
        target = self.any_name()
        v = self.values[target]
        if self.chance(0.15): return Line([], 'fill_', [target, self.a_number(*(n * 1.0 for n in NUMBERS))])
        def suits(w):
            return w.data.ndim <= v.data.ndim and all(
                s in (1, v.shape[i + v.data.ndim - w.data.ndim]) for i, s in enumerate(w.shape))
        value = self.any_name(suits)
        return value and Line([], 'assign', [target, value])

    def dims(self, v):
        rank = v.data.ndim
        if rank == 0 or self.chance(0.25): return []
        chosen = self.random.sample(range(rank), self.number(1, rank))
        return [[d - (rank if self.chance(0.3) else 0) for d in chosen]]

    def reduce(self):
        name = self.any_name()
        v = self.values[name]
        op = self.pick('sum', 'sum', 'sum', 'amax', 'amin', 'any', 'all', 'prod', 'mean', 'cumsum', 'cumsum', 'cumprod', 'argmax',
                       'argmin', 'count_nonzero', 'max', 'min', 'softmax', 'log_softmax', 'var')
        if op in ('softmax', 'log_softmax', 'var') and not self.rough: return None
        rank = v.data.ndim
        one = [self.number(-rank, rank - 1) if rank else 0]
        if op in ('cumsum', 'cumprod', 'softmax', 'log_softmax'): return Line([], op, [name] + one)
        if op in ('max', 'min'): return Line([], op, [name])
        if op in ('argmax', 'argmin'):
            return Line([], op, [name] + ([one] if self.chance(0.7) else []), {'keepdim': True} if self.chance(0.3) else {})
        named = {'keepdim': True} if op != 'count_nonzero' and self.chance(0.4) else {}
        return Line([], op, [name] + self.dims(v), named)

    def cast(self): return Line([], 'to', [self.any_name(), self.dtype()])

    def index(self, sizes, bound):
        """Elements 0 .. bound - 1 as a value: an arithmetic progression, with duplicates."""
        count = int(np.prod(sizes, dtype=np.int64))
        if bound < 1 or count > 200000: return None
        def suits(w):
            return category(w.dtype) == 1 and list(w.shape) == list(sizes) and w.size and ((w.data >= 0) & (w.data < bound)).all()
        if self.chance(0.6):
            ready = self.any_name(suits)
            if ready: return ready
        start, stride, last = self.number(0, 9), self.pick(1, 1, 3, 5, 7), Ref(self.fresh())
        lines = [Line([last], 'arange', [start, start + count * stride, stride] if count else [0, 0])]
        lines.append(Line([Ref(self.fresh())], 'remainder', [last, bound]))
        if self.chance(0.3): lines.append(Line([Ref(self.fresh())], 'floor_divide', [lines[-1].targets[0], self.pick(1, 2, 3)]))
        lines.append(Line([Ref(self.fresh())], 'reshape', [lines[-1].targets[0], list(sizes)]))
        if self.chance(0.3): lines.append(Line([Ref(self.fresh())], 'to', [lines[-1].targets[0], self.pick('i32', 'i64', 'i16') if bound < 32768 else 'i32']))
        for line in lines: self.add(line)
        return Ref(lines[-1].targets[0])

    def moves(self):
        name = self.any_name()
        v = self.values[name]
        rank = v.data.ndim
        if rank == 0: return None
        d = self.number(0, rank - 1)
        op = self.pick('cat', 'cat', 'concat', 'stack', 'pad', 'roll', 'repeat', 'tril', 'triu', 'slice_scatter', 'gather',
                       'gather', 'index_select', 'scatter', 'scatter', 'scatter_add', 'scatter_add', 'embedding', 'split', 'chunk', 'one_hot')
        if op in ('cat', 'concat', 'stack'):
            def suits(w):
                if w.data.ndim != rank: return False
                return all(a == b for k, (a, b) in enumerate(zip(v.shape, w.shape)) if op == 'stack' or k != d)
            others = [self.any_name(suits) for _ in range(1 if op == 'concat' else self.number(0, 2))]
            if op == 'concat': return Line([], op, [name, others[0], d])
            return Line([], op, [[name] + others, d])
        if op == 'pad':
            widths = [self.number(-2, 3) for _ in range(2 * self.number(1, min(rank, 4)))]
            return Line([], op, [name, widths, self.a_number(0.0, 1.0, -2.0, 7.5)])
        if op == 'roll': return Line([], op, [name, self.number(-9, 9), d])
        if op == 'repeat':
            times = [self.pick(1, 1, 2, 3) for _ in range(rank)]
            return Line([], op, [name, times]) if v.size * np.prod(times) < 200000 else None
        if op in ('tril', 'triu'): return Line([], op, [name, self.number(-3, 3)])
        if op in ('split', 'chunk'):
            line = Line([], op, [name, self.number(1, max(1, v.shape[d])), d])
            return line
        if op == 'one_hot':
            index = self.index(v.shape[:1], 5)
            return index and Line([], op, [index, 5])
        if op == 'slice_scatter':
            start, step = self.number(0, v.shape[d]), self.pick(1, 1, 2, 3)
            part = v.data[(slice(None),) * d + (slice(start, None, step),)]
            source = self.any_name(lambda w: w.shape == part.shape and w.dtype == v.dtype)
            return source and Line([], op, [name, source, d, start, 2 ** 63 - 1, step])
        if op == 'embedding':
            if rank != 2: return None
            index = self.index(self.pick([3], [2, 3], [7]), v.shape[0])
            return index and Line([], op, [index, name])
        if op == 'index_select':
            index = self.index([self.number(0, 12)], v.shape[d])
            return index and Line([], op, [name, d, index])
        sizes = [s if self.chance(0.7) else self.number(0, s) for s in v.shape]
        if op == 'gather':
            sizes[d] = self.number(1, 9)
            index = self.index(sizes, v.shape[d])
            return index and Line([], op, [name, d, index])
        source = self.any_name(lambda w: w.dtype == v.dtype and w.data.ndim == rank)
        if source is None: return None
        w = self.values[source]
        sizes = [min(a, b) if k != d else b for k, (a, b) in enumerate(zip(sizes, w.shape))]
        index = self.index(sizes, v.shape[d])
        return index and Line([], op, [name, d, index, source])

    def order(self):
        name = self.any_name()
        rank = self.values[name].data.ndim
        d = self.number(-rank, rank - 1) if rank else 0
        size = self.values[name].shape[d] if rank else 1
        op = self.pick('sort', 'sort', 'topk', 'argsort')
        if op == 'topk': return Line([], op, [name, self.number(0, size), d, self.chance(0.6)])
        return Line([], op, [name, d, self.chance(0.4)])

    def select_by(self):
        condition = self.any_name(lambda v: v.dtype == 'bool')
        if condition is None: return None
        v = self.values[condition]
        if self.chance(0.3):
            name = self.any_name(lambda w: w.shape == v.shape)
            return Line([], 'masked_fill', [name, condition, self.a_number(0.0, 1.5, -3.0)])
        return Line([], 'where', [condition, self.partner(v), self.partner(v)])

    def product(self):
        a = self.any_name(lambda v: v.data.ndim in (1, 2, 3))
        if a is None: return None
        v = self.values[a]
        b = self.any_name(lambda w: w.data.ndim in (1, 2, 3) and (w.shape[-2] if w.data.ndim > 1 else w.shape[0]) == v.shape[-1])
        if b is None: return None
        w = self.values[b]
        columns = w.size // max(v.shape[-1], 1)
        if v.data.ndim == w.data.ndim == 3 and v.shape[0] == w.shape[0]: columns //= max(v.shape[0], 1)
        return Line([], 'matmul', [a, b]) if v.size * columns <= 3e6 else None

    def positions(self):
        """Arithmetic over positions, which looks like that of indices."""
        like = self.values[self.any_name()]
        count = like.size
        if not 0 < count < 20000: return None
        names = []
        def add(op, *arguments):
            names.append(Ref(self.fresh()))
            self.add(Line([names[-1]], op, list(arguments)))
            return names[-1]
        first = self.pick(0, 0, 0, 1, -3)
        x = add('arange', first, first + count)
        for _ in range(self.number(1, 4)):
            op = self.pick('remainder', 'floor_divide', 'mul', 'add', 'sub', 'reshape', 'pair', 'permute')
            size = self.factor(count) if self.chance(0.7) else self.number(1, 40)
            if op == 'pair' and len(names) > 1: x = add(self.pick('add', 'mul', 'sub'), x, self.choose(names))
            elif op == 'reshape': x = add('reshape', x, self.other_sizes(count))
            elif op == 'permute':
                order = list(range(self.values[x].data.ndim))
                self.random.shuffle(order)
                x = add('permute', x, order)
            elif op in ('remainder', 'floor_divide', 'mul', 'add', 'sub'): x = add(op, x, size)
        return Line([], 'reshape', [x, list(like.shape)])

    def make(self):
        v = self.values[self.any_name()]
        op = self.pick('full', 'zeros', 'arange', 'eye', 'full_like')
        if op == 'full': return Line([], op, [list(v.shape), self.a_number(1.5, -2.0, 3.0), self.dtype()])
        if op == 'zeros': return Line([], op, [list(v.shape), self.dtype()])
        if op == 'arange': return Line([], op, [0, v.shape[-1] if v.data.ndim else 3, 1, self.pick('i64', 'i32', 'f32')])
        if op == 'eye': return Line([], op, [self.number(0, 5), self.number(-1, 5), self.pick('f32', 'i64')])
        return Line([], op, [self.any_name(), self.a_number(2.0)])

    def formula(self):
        name = self.any_name(lambda v: is_float(v.dtype))
        if self.changing and self.chance(0.4): return Line([], 'clamp', [self.any_name(), self.a_number(-1.5), self.a_number(2.0)])
        if name is None: return None
        v = self.values[name]
        like = lambda: self.any_name(lambda w: w.dtype == v.dtype and w.shape == v.shape)
        op = self.pick('lerp', 'addcmul', 'addcdiv', 'clamp', 'threshold', 'layer_norm', 'norm', 'std', 'logsumexp', 'glu', 'mse_loss',
                       'l1_loss', 'gelu', 'silu', 'softplus', 'elu', 'softsign')
        if op in ('gelu', 'silu', 'softplus', 'elu', 'softsign'):
            return Line([], op, [name] + [self.a_number(d) for d in WITH_NUMBERS.get(op, ())]) if self.rough else None
        if op in ('mse_loss', 'l1_loss'): return Line([], op, [name, like()])
        if op in ('glu', 'layer_norm', 'norm', 'std', 'logsumexp'):
            if v.data.ndim == 0 or not self.rough: return None
            if op == 'glu': return Line([], op, [name, self.number(-v.data.ndim, v.data.ndim - 1)])
            if op == 'layer_norm': return Line([], op, [name, list(v.shape[-self.number(1, v.data.ndim):])])
            return Line([], op, [name, [self.number(0, v.data.ndim - 1)]])
        if op == 'clamp': return Line([], op, [name, self.a_number(-1.5), self.a_number(2.0)])
        if op == 'threshold': return Line([], op, [name, self.a_number(0.5), self.a_number(-1.0)])
        if op == 'lerp': return Line([], op, [name, like(), self.a_number(0.5, 0.25, 0.1)])
        return Line([], op, [name, like(), like(), self.a_number(1.0, 2.0, 0.5)])

    # ---- the whole ---------------------------------------------------------------------------

    def fresh(self):
        self.next += 1
        return f'v{self.next - 1}'

    def add(self, line):
        execute([line], self.values, judge_apply)
        self.program.body.append(line)

    def try_step(self):
        before = len(self.program.body), dict(self.values)
        try:
            line = self.step()
            if line is None: return
            if line.op in ('assign', 'fill_'): self.add(line)
            elif line.op in ('sort', 'topk'):
                line.targets = [Ref(self.fresh()), Ref(self.fresh())]
                self.add(line)
            elif line.op in ('split', 'chunk'):
                count = len(judge_apply(line.op, [self.values[line.arguments[0]]] + line.arguments[1:], {}))
                line.targets = [Ref(self.fresh()) for _ in range(min(count, 3))]
                if count <= 32: self.add(line)
            else:
                line.targets = [Ref(self.fresh())]
                self.add(line)
                v = self.values[line.targets[0]]
                if v.size > max(200000, 4 * MOST_ELEMENTS) * (4 if self.large else 1): raise Refused('large')
        except Refused: # what was written to stays as it was: refusals come before writes
            del self.program.body[before[0]:]
            self.values = before[1]

    def value_request(self):
        name = self.any_name(lambda v: v.size == 1 and values.is_exact(v))
        if name is None: return
        line = Line([f'n{self.next}'], 'item', [name])
        self.next += 1
        self.add(line)
        number, other = Ref(line.targets[0]), self.any_name()
        if number is None or not np.isfinite(self.values[number]): return
        line = Line([Ref(self.fresh())], self.pick('add', 'mul'), [other, number])
        try: self.add(line)
        except Refused: pass

    def write_body(self):
        call, names = self.setup()
        self.program.calls.append(call)
        self.program.params = [f'x{k}' for k in range(len(call.arguments))]
        self.values = {p: names[a] for p, a in zip(self.program.params, call.arguments)}
        for k in range(self.pick(1, 1, 2, 3) if self.chance(0.35) else 0):
            line = Line([f'p{k}'], 'number', [self.changing_number()])
            call.setup.append(line)
            self.values[Ref(line.targets[0])] = line.arguments[0]
            self.changing.append(Ref(line.targets[0]))
        for k in range(self.pick(1, 1, 2) if self.chance(0.3) else 0):
            start, length = self.number(-3, 5), self.pick(1, 1, 2, 3, 4, 6)
            pair = [Line([f'p{7 + 2 * k}'], 'number', [start]), Line([f'p{8 + 2 * k}'], 'number', [start + length])]
            call.setup += pair
            for line in pair: self.values[Ref(line.targets[0])] = line.arguments[0]
            self.starts.append(tuple(Ref(line.targets[0]) for line in pair))
        if self.chance(0.15): # a tensor that the function finds outside
            outside = self.choose(names)
            self.values[Ref(outside)] = names[outside]
        steps = self.number(2, 6) if self.large else self.pick(*range(1, 12), 20, 30)
        for _ in range(steps * 2):
            if len(self.program.body) >= steps: break
            self.try_step()
            if self.chance(0.01): self.value_request()
        outputs = [n for n, v in self.values.items() if isinstance(v, Value)]
        late = outputs[-6:]
        if self.chance(0.2): self.afterwards(call)
        self.program.results = sorted(set([outputs[-1]] + [self.choose(late if self.chance(0.7) else outputs)
                                                           for _ in range(self.number(0, 4))]))

    def afterwards(self, call):
        """What the caller does between two times: writes to results and inputs."""
        for _ in range(self.number(1, 2)):
            target = Ref(self.pick('r0', 'r0', 'r1', *[line.targets[0] for line in call.setup if line.op != 'number']))
            call.then.append(Line([], 'fill_', [target, self.pick(1.0, 2.0, -3.0)]))

    def move_starts(self, call):
        numbers = {line.targets[0]: line for line in call.setup if line.op == 'number'}
        for start, end in self.starts:
            if self.chance(0.2): continue
            length = numbers[end].arguments[0] - numbers[start].arguments[0] + self.pick(0, 0, 0, 0, 1)
            numbers[start].arguments[0] = self.number(-3, 6)
            numbers[end].arguments[0] = numbers[start].arguments[0] + length

    def failing_call(self):
        """Another bound for an index among the inputs."""
        call = self.program.copy().calls[0]
        call.fails, call.then = True, []
        bounded = [line for line in call.setup if line.op == 'base' and line.arguments[2] == 'below']
        for line in bounded: line.arguments[4] = self.pick(40, 200)
        return call if bounded else None

    def other_call(self):
        """The first call with something changed that a guard has to see."""
        first = self.program.copy().calls[0]
        kind = self.pick('elements', 'elements', 'dtype', 'sizes', 'strides', 'alias', 'anew')
        if not all(r[0] in 'pvx' for l in self.program.body for r in l.refs()): kind = 'elements'
        for line in first.setup:
            if line.op == 'base': line.arguments[3] = self.number(1, 99999)
            if line.op == 'number' and Ref(line.targets[0]) in self.changing and self.chance(0.8):
                line.arguments[0] = self.changing_number(line.arguments[0])
        self.move_starts(first)
        if (self.changing or self.starts) and self.chance(0.6): return first
        if kind == 'anew':
            other = self.setup()[0]
            other.setup += [line for line in first.setup if line.op == 'number']
            return other
        bases = [l for l in first.setup if l.op == 'base']
        line = self.choose(bases)
        if kind == 'dtype':
            line.arguments[0] = self.dtype()
            line.arguments[2] = self.kind(line.arguments[0])
        if kind == 'sizes' and line.arguments[1]:
            at = self.number(0, len(line.arguments[1]) - 1)
            line.arguments[1][at] = max(0, line.arguments[1][at] + self.pick(-1, 1, 2, 3, -2))
        if kind == 'strides': # the same elements, laid otherwise
            name = line.targets[0]
            rank = len(line.arguments[1])
            if rank < 1: return first
            order = list(range(rank))
            self.random.shuffle(order)
            sizes = line.arguments[1]
            line.arguments[1] = [sizes[d] * (2 if k == rank - 1 else 1) for k, d in enumerate(order)]
            line.targets = ['b9']
            at = first.setup.index(line)
            first.setup[at + 1:at + 1] = [
                Line(['a90'], 'slice', [Ref('b9'), rank - 1, 0, 2 ** 63 - 1, 2]),
                Line(['a91'], 'permute', [Ref('a90'), [order.index(d) for d in range(rank)]])]
            first.setup = [l if l in first.setup[:at + 3] else l.replaced(name, Ref('a91')) for l in first.setup]
            first.arguments = ['a91' if a == name else a for a in first.arguments]
        if kind == 'alias': first.arguments[self.number(0, len(first.arguments) - 1)] = self.choose(first.arguments)
        return first

def sound(program):
    """Does the judge accept all of it, in the regimes of its modes?"""
    try:
        done = set()
        for text in program.modes:
            mode = Mode(text)
            if (mode.eager, mode.precise) in done: continue
            done.add((mode.eager, mode.precise))
            judged(program, mode)
        return True
    except Refused: return False

def without_dead(program):
    """What results need, without writes: nobody has to notice that dead code would fail."""
    kept, wanted = [], set(program.results)
    for line in reversed(program.body):
        if not wanted & set(line.targets): continue
        kept.insert(0, line)
        if not line.op.endswith('_like'): wanted |= set(line.refs())
    other = program.copy()
    other.body = kept
    return other

def only(program, call):
    other = program.copy()
    other.calls = [call]
    return other

def modes_for(writer, compiled):
    """Eagerly, by the VM, and by the C compiler where compiled is set; 1 to 3 threads."""
    body = writer.program.body
    whole = not any(line.op == 'item' for line in body)
    varies = writer.changing or writer.starts
    short = any(v.dtype in ('f16', 'bf16') for v in writer.values.values() if isinstance(v, Value))
    threads = lambda: f'threads={writer.number(1, 3)}'
    precise = lambda: ' precise=1' if short and writer.chance(0.4) else ''
    graph = lambda: ',fullgraph=1' if whole and writer.chance(0.1 if varies else 0.5) else \
        f',dynamic={writer.number(0, 1)}' if varies and writer.chance(0.3) else ''
    fuse = lambda: ',fuse=0' if writer.chance(0.1) else ''
    modes = [f'eager {threads()}', f'backend=vm{graph()}{fuse()} {threads()}{precise()}']
    if writer.large: modes.append(modes[-1][:modes[-1].index('threads=')] + threads())
    if compiled: modes.append(f'backend=c{graph()}{fuse()} {threads()}{precise()}')
    return modes

def generate(seed, every):
    """The program of a seed; one in `every` is also compiled by the C compiler."""
    for attempt in range(100):
        writer = Writer(seed * 100 + attempt)
        try: writer.write_body()
        except Refused: continue
        program = writer.program
        program.modes = modes_for(writer, every and seed % every == 0)
        if not sound(program): continue
        for _ in range(writer.pick(2, 3, 4) if writer.changing or writer.starts else writer.pick(0, 1, 1, 2, 3)):
            try: call = writer.other_call()
            except Refused: continue
            if len(call.arguments) == len(program.params) and sound(only(program, call)): program.calls.append(call)
        writes = any(line.op in ('assign', 'fill_') for line in program.body) # may overwrite what failed
        failing = None if writes else writer.failing_call()
        if failing and sound(only(program, failing)) and sound(without_dead(only(program, failing))):
            program.calls.insert(writer.number(0, len(program.calls)), failing)
        return program
    raise AssertionError(f'no program for seed {seed}')
