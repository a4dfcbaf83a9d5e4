"""Programs of the oracle: small texts that the judge and Carbide both run.

    mode eager threads=1                     how Carbide runs it; one line for each
    mode backend=c,fullgraph=1 threads=2 precise=1
    call 2                                   twice with the same tensors
    b0 = base(f32, [4, 6], small, 17)        a storage: dtype, sizes, kind of elements, seed
    a0 = slice(b0, 0, 0, 4, 2)               views of it
    p0 = number(0.5)                         a number, which may be another one in every call
    args a0 b0
    then fill_(r0, 2.0)                      eagerly after each time; r0 is its first result
    body x0 x1                               the compiled function
    v0 = add(x0, 1.5)
    assign(x1, v0)
    n0 = item(v0)                            a value request
    return v0 x1

A name is a letter of abnpvx and a number; names of the setup are captured where the body uses them. Every
call is of the same compiled function; results (earlier ones, too), the elements of all storages, what
shares memory with what, and strides of results are compared after each. `call 1 fails`: with an index out
of range, which has to be an error, and nothing more."""
import ast, re
import numpy as np
import carbide as cb
import ops, values
from values import OutOfRange, Refused, Value, need

# ---- elements ------------------------------------------------------------------------------------

def bits(seed, count):
    """Random 64 bits by splitmix64: the same in every version of NumPy."""
    with np.errstate(over='ignore'):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed * 7919)) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return z ^ (z >> np.uint64(31))

WILD = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.5, -3.5, 1e-40, -1e-40, 3.4e38, -3.4e38, 65504.0,
        65520.0, 6e-8, 1e-5, 127.5, 255.0, 256.0, -128.0, 32768.0, 2147483648.0, -2147483648.0, 4294967296.0, 9.3e18,
        16777217.0, 0.1, 1 / 3, 1.17549435e-38, 5e-324, 1e300]
EXTREMES = [0, 1, -1, 2, 3, 127, 128, -128, 255, 256, 32767, -32768, 65535, 2 ** 24 + 1, 2 ** 31 - 1, -2 ** 31, 2 ** 32,
            2 ** 53 + 1, 2 ** 63 - 1, -2 ** 63]

def elements(dtype, sizes, kind, seed, bound=0):
    """small, eighths, normal, wild, full, mask, below (a bound); in dtype, bf16 as bits."""
    count = int(np.prod(sizes, dtype=np.int64))
    r = bits(seed, count)
    unit = (r >> np.uint64(11)).astype(np.float64) * 2.0 ** -53
    if kind == 'iota': x = np.arange(count)
    elif kind == 'ones': x = np.ones(count)
    elif kind == 'mask': x = r & np.uint64(1)
    elif kind == 'below': x = (r % np.uint64(max(bound, 1))).astype(np.int64)
    elif kind == 'small': x = (r % np.uint64(17)).astype(np.int64) - (0 if dtype == 'u8' else 8)
    elif kind == 'eighths': x = ((r % np.uint64(129)).astype(np.float64) - 64) / 8
    elif kind == 'normal':
        x = (unit + (bits(seed + 1, count) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53 - 1) * 3
    elif kind == 'wild':
        x = np.where(r % np.uint64(3) == 0, (unit - 0.5) * 8, np.array(WILD)[(r >> np.uint64(8)) % np.uint64(len(WILD))])
    elif kind == 'full':
        x = np.where(r % np.uint64(3) == 0, np.array(EXTREMES, dtype=np.int64)[(r >> np.uint64(8)) % np.uint64(len(EXTREMES))],
                     bits(seed + 1, count).view(np.int64))
    else: raise Refused(f'no kind {kind}')
    x = x.reshape(sizes)
    if dtype == 'bf16': return cb.bf16_bits(x.astype(np.float32))
    if dtype == 'f16': return x.astype(np.float32).astype(np.float16)
    if dtype == 'bool': return x != 0
    return x.astype(cb.NUMPY[dtype])

# ---- text ----------------------------------------------------------------------------------------

class Ref(str):
    """The name of a value."""
NAME = re.compile(r'[abnprvx]\d+$')

class Line:
    """targets = op(arguments, named): targets may be none (assign), or several (sort)."""
    def __init__(self, targets, op, arguments, named=None):
        self.targets, self.op, self.arguments, self.named = list(targets), op, list(arguments), dict(named or {})
    def refs(self):
        found = []
        for a in list(self.arguments) + list(self.named.values()):
            if isinstance(a, Ref): found.append(a)
            if isinstance(a, list): found += [x for x in a if isinstance(x, Ref)]
        return found
    def replaced(self, old, new):
        swap = lambda a: [swap(x) for x in a] if isinstance(a, list) else new if isinstance(a, Ref) and a == old else a
        return Line(self.targets, self.op, [swap(a) for a in self.arguments], {k: swap(a) for k, a in self.named.items()})
    def __str__(self):
        words = [written(a) for a in self.arguments] + [f'{k}={written(a)}' for k, a in self.named.items()]
        text = f'{self.op}({", ".join(words)})'
        return f'{", ".join(self.targets)} = {text}' if self.targets else text

def written(a):
    if isinstance(a, (list, tuple)): return f'[{", ".join(map(written, a))}]'
    return str(a) if isinstance(a, str) else repr(a)

def read_argument(node):
    if isinstance(node, ast.List): return [read_argument(n) for n in node.elts]
    if isinstance(node, ast.Name):
        if node.id in ('inf', 'nan'): return float(node.id)
        return Ref(node.id) if NAME.match(node.id) and node.id not in cb.DTYPES else node.id
    if isinstance(node, ast.UnaryOp): return -read_argument(node.operand)
    return node.value

def read_line(text):
    statement = ast.parse(text).body[0]
    targets = []
    if isinstance(statement, ast.Assign):
        names = statement.targets[0]
        targets = [n.id for n in names.elts] if isinstance(names, ast.Tuple) else [names.id]
    call = statement.value
    return Line(targets, call.func.id, [read_argument(a) for a in call.args],
                {k.arg: read_argument(k.value) for k in call.keywords})

class Mode:
    """eager, or the options of cb_compile; threads, precise."""
    def __init__(self, text):
        words = text.split()
        settings = dict(w.split('=') for w in words[1:])
        self.text, self.eager, self.options = text, words[0] == 'eager', words[0]
        self.threads, self.precise = int(settings.get('threads', 1)), int(settings.get('precise', 0))
    def regime(self): return values.within(bool(self.eager or self.precise), not self.eager)

class Call:
    def __init__(self, times, setup, arguments, then=(), fails=False):
        self.times, self.setup, self.arguments = times, setup, arguments
        self.then, self.fails = list(then), fails

class Program:
    def __init__(self): self.modes, self.calls, self.params, self.body, self.results = [], [], [], [], []
    def __str__(self):
        lines = [f'mode {m}' for m in self.modes]
        for call in self.calls:
            lines += [f'call {call.times}' + (' fails' if call.fails else ''), *map(str, call.setup),
                      ' '.join(['args', *call.arguments]), *(f'then {line}' for line in call.then)]
        return '\n'.join(lines + [' '.join(['body', *self.params]), *map(str, self.body),
                                  ' '.join(['return', *self.results])]) + '\n'
    def copy(self): return parse(str(self))

def parse(text):
    program, place = Program(), None
    for line in text.splitlines():
        line = line.split('#')[0].strip()
        word, _, rest = line.partition(' ')
        if not line: continue
        if word == 'mode': program.modes.append(rest)
        elif word == 'call':
            program.calls.append(Call(int(rest.split()[0]), [], [], fails=rest.endswith('fails')))
            place = program.calls[-1].setup
        elif word == 'then': program.calls[-1].then.append(read_line(rest))
        elif word == 'args': program.calls[-1].arguments = rest.split()
        elif word == 'body': program.params, place = rest.split(), program.body
        elif word == 'return': program.results = rest.split()
        else: place.append(read_line(line))
    return program

# ---- both machines -------------------------------------------------------------------------------

def named_value(name, names):
    need(name in names, f'no value {name}')
    return names[name]

def resolve(argument, names):
    if isinstance(argument, Ref): return named_value(argument, names)
    if isinstance(argument, list): return [resolve(a, names) for a in argument]
    return argument

def execute(lines, names, apply):
    for line in lines:
        arguments = [resolve(a, names) for a in line.arguments]
        named = {k: resolve(a, names) for k, a in line.named.items()}
        result = apply(line.op, arguments, named)
        if not line.targets: continue
        results = result if isinstance(result, list) else [result]
        need(len(results) >= len(line.targets), 'too few results')
        names.update(zip(line.targets, results))

# ---- the judge -----------------------------------------------------------------------------------

def judge_apply(name, arguments, named):
    if name == 'base':
        dtype, sizes = arguments[0], arguments[1]
        return Value(values.load(elements(*arguments), dtype), dtype)
    if name == 'number': return arguments[0]
    if name == 'assign': return ops.assign(*arguments)
    if name == 'fill_': return ops.fill_(*arguments)
    if name == 'item':
        need(arguments[0].size == 1, 'one element')
        return float(values.exact(arguments[0]).reshape(-1)[0])
    if name in ('cat', 'stack'): return getattr(ops, name)(*arguments, **named)
    if name in ops.SEVERAL: return ops.SEVERAL[name](*arguments, **named)
    need(name in ops.OPS, f'the judge does not know {name}')
    given = []
    for param, argument in zip(cb.ops[name].params, arguments):
        plain = param.kind in ('operand', 'tensor') and isinstance(argument, (bool, int, float))
        given.append(values.number(argument) if plain else argument)
    need(any(isinstance(a, Value) and not a.number for a in given) or not any(
        p.kind in ('operand', 'tensor') for p in cb.ops[name].params), 'no tensor')
    result = ops.OPS[name](*given, **named)
    result.data = np.asarray(result.data)
    if not any(isinstance(a, Value) and a.storage is result.storage for a in given): # no view: dense
        result.data = np.array(result.data, order='C', copy=not result.data.flags.c_contiguous)
    return result

def in_elements(data):
    return tuple(s // data.itemsize for s in data.strides)

class Outcome:
    """After one call: the results, those of earlier times, and the storages, as they are then."""
    def __init__(self, results, older, bases):
        snapshot = lambda v: Value(v.data.copy(), v.dtype, v.storage)
        self.results, self.older = [snapshot(v) for v in results], [snapshot(v) for v in older]
        self.strides = [in_elements(v.data) for v in results]
        self.bases = {n: snapshot(v) for n, v in bases.items()}

def afterwards(call, names, results, apply):
    execute(call.then, {**names, **{f'r{k}': r for k, r in enumerate(results)}}, apply)

def judge_call(program, call):
    """One outcome for each time; none for a call that has to fail."""
    names, older = {}, []
    execute(call.setup, names, judge_apply)
    bases = {line.targets[0]: names[line.targets[0]] for line in call.setup if line.op == 'base'}
    for _ in range(call.times):
        inside = {**names, **{p: named_value(a, names) for p, a in zip(program.params, call.arguments)}}
        try: execute(program.body, inside, judge_apply)
        except OutOfRange:
            need(call.fails, 'an index is out of range')
            return
        need(not call.fails, 'does not fail')
        results = [named_value(r, inside) for r in program.results]
        need(all(isinstance(r, Value) for r in results), 'a result is a tensor')
        yield Outcome(results, older, bases)
        afterwards(call, names, results, judge_apply)
        if sum(v.size for v in results) < 5000: older += results

def judged(program, mode):
    with mode.regime(): return [list(judge_call(program, call)) for call in program.calls]

# ---- Carbide -------------------------------------------------------------------------------------

def carbide_apply(name, arguments, named):
    if name == 'base': return cb.tensor(elements(*arguments), arguments[0])
    if name == 'number': return arguments[0]
    if name in ('assign', 'fill_', 'cat', 'stack', 'sort', 'topk', 'split', 'chunk'):
        result = getattr(cb, name)(*arguments, **named)
        return list(result) if isinstance(result, tuple) else result
    if name == 'item': return arguments[0].item()
    return cb.call(name, *arguments, **named)

def describe(value, array, wrong):
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if array.ndim else ()
    got = array[at]
    if value.dtype == 'bf16': got = cb.bf16_values(got)
    element = value.data[at]
    want = element if not values.is_float(value.dtype) else \
        repr(float(element['lo'])) if values.same(element['lo'], element['hi']) else \
        f'{float(element["lo"])!r} .. {float(element["hi"])!r}'
    return f'{int(wrong.sum())} of {wrong.size} elements of {value}, first at {list(at)}: {got!r}, not {want}'

def compare(what, value, tensor):
    if tensor.dtype != value.dtype or tensor.shape != value.shape:
        return f'{what} is {tensor!r}, not {value!r}', None
    array = tensor.numpy()
    wrong = values.differing(value, array)
    return (f'{what}: {describe(value, array, wrong)}' if np.any(wrong) else None), array

def strides_agree(strides, outcome, i, mode):
    value = outcome.results[i]
    def agree(others): return all(s == t for s, t, n in zip(strides, others, value.shape) if n > 1)
    if agree(outcome.strides[i]): return True
    # A part of what the function itself made is a compiled function's result by itself, and dense but for what was
    # expanded.
    own = all(base.storage is not value.storage for base in outcome.bases.values())
    expanded = [s == 0 and n > 1 for s, n in zip(outcome.strides[i], value.shape)]
    dense = in_elements(np.empty([1 if e else n for e, n in zip(expanded, value.shape)], np.int8))
    return own and not mode.eager and agree([0 if e else s for e, s in zip(expanded, dense)])

def comparable(array):
    """Which NaN arithmetic gives is not defined (docs/numerics.md): all count as the same."""
    if array.dtype.kind == 'f': array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.tobytes()

def compare_call(program, mode, outcome, results, tensors):
    if len(results) != len(outcome.results): return f'{len(results)} results, not {len(outcome.results)}', []
    arrays = []
    for i, (value, tensor) in enumerate(zip(outcome.results, results)):
        difference, array = compare(f'result {program.results[i]}', value, tensor)
        if difference: return difference, []
        arrays.append(comparable(array))
        for k, name in enumerate(outcome.bases):
            shares = outcome.bases[name].storage is value.storage
            if value.size and tensor.shares(tensors[name]) != shares:
                return f'result {program.results[i]} shares{" no" if shares else ""} memory with {name}', []
        for k in range(i):
            shares = outcome.results[k].storage is value.storage
            if value.size and outcome.results[k].size and tensor.shares(results[k]) != shares:
                return f'results {program.results[k]} and {program.results[i]} share{" no" if shares else ""} memory', []
        if value.size and not strides_agree(tensor.strides, outcome, i, mode):
            return f'result {program.results[i]} has strides {tensor.strides}, not {outcome.strides[i]}', []
    for name, value in outcome.bases.items():
        difference, array = compare(f'storage {name}', value, tensors[name])
        if difference: return difference, []
        arrays.append(comparable(array))
    return None, arrays

def captures(program):
    """Does the body use tensors or numbers that it is not given?"""
    return any(ref[0] in 'abp' for line in program.body for ref in line.refs()) or \
        any(r[0] in 'ab' for r in program.results)

def run_times(program, mode, call, expected, invoke, names, seen):
    """The first difference."""
    older = []
    for time in range(len(expected) or call.times):
        results = invoke([named_value(a, names) for a in call.arguments])
        if not expected:
            cb.synchronize()
            return 'no error, though an index is out of range'
        outcome = expected[time]
        difference, arrays = compare_call(program, mode, outcome, results, names)
        for k, (value, tensor) in enumerate(zip(outcome.older, older)):
            difference = difference or compare(f'earlier result {k}', value, tensor)[0]
        if difference: return f'time {time + 1}: {difference}'
        seen.append(arrays)
        afterwards(call, names, results, carbide_apply)
        if sum(v.size for v in outcome.results) < 5000: older += results
    return None

def run_mode(program, mode, outcomes):
    """The first difference as a text, and the bytes of everything compared."""
    names, seen = {}, []
    def body(*inputs):
        inside = {**names, **dict(zip(program.params, inputs))}
        execute(program.body, inside, carbide_apply)
        return [named_value(r, inside) for r in program.results]
    cb.lib.cb_set_threads(mode.threads)
    cb.set_option('precise', mode.precise)
    function = None if mode.eager else cb.compile(body, mode.options)
    invoke = (lambda inputs: body(*inputs)) if mode.eager else function.call
    calls = list(zip(program.calls, outcomes))
    if 'fullgraph=1' in mode.options and captures(program): calls = calls[:1] # what it found stays
    try:
        for k, (call, expected) in enumerate(calls):
            with cb.scope():
                names.clear()
                execute(call.setup, names, carbide_apply)
                try: difference = run_times(program, mode, call, expected, invoke, names, seen)
                except cb.Error as error:
                    if 'fullgraph=1' in mode.options and 'fullgraph' in error.message: return None, seen
                    difference = None if call.fails and error.status == cb.ERR_INDEX else f'error: {error}'
                if difference is None and function and 'the C compiler failed' in function.explain():
                    difference = 'the C compiler failed' # what runs on the VM then is right, and slow
                if difference: return f'call {k + 1}, {difference}', seen
    finally:
        if function: function.free()
    return None, seen

def run(program):
    """None, or (mode, what differs). Raises Refused when the program makes no sense."""
    judgements, bytes_of = {}, {}
    for text in program.modes:
        mode = Mode(text)
        key = mode.eager, mode.precise
        if key not in judgements: judgements[key] = judged(program, mode)
        difference, seen = run_mode(program, mode, judgements[key])
        if difference: return text, difference
        before = bytes_of.setdefault((mode.options, mode.precise), (text, seen))
        if before[1][:len(seen)] != seen[:len(before[1])]: return text, f'other bits than with {before[0]}'
    return None
