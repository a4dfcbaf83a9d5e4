"""Random programs that ask for gradients in every way, beside PyTorch's numbers: by several equal ops, by results on
the way, by views, by leaves that were written to where nothing is followed, of gradients; with copies and fills there.
Some ask for none inside, and what they return is gone back from outside, some of them twice: with a penalty on the
gradients. Some ask for values on the way, where a
compiled call is cut (not under fullgraph=1, and there without those that have hooks on the way).

    python tests/oracle/grad_programs.py [COUNT [SEED]]                       needs torch and NumPy
    python tests/oracle/grad_programs.py show SEED                            one program, as text

A program is a list of statements over tensors f64[3] that it and PyTorch run alike. It runs eagerly, compiled, on the
VM, op by op (backend=eager) and without the function (fullgraph=1), CALLS times each: w and v are leaves, t is none,
and what they hold goes on from call to call. Compared are all gradients, where there are none included, and the three
tensors with the gradients that backward left. A program that PyTorch refuses, as it needs elements from before a
write, is left out: graphs know values, not memory. So is an eager run that needs an operand from before one, where
PyTorch saved the result, and any that goes back from a gradient that is constant in eager; a compiled one that is cut
by a value or a hook, and so has no more than eager; and a program that asks by a view from before a write, which
PyTorch computes anew, or by a tensor with hooks and by others, behind which PyTorch has it without them. Ends with 1 when there
were differences, and with 77 where there is no torch."""
import random, sys
import needs
needs.need('numpy', 'torch')
import numpy as np
import torch
import carbide as cb

torch.set_num_threads(1)
CALLS = 3
LEAVES = ('w', 'v')
START = dict(w=[1.5, 0.7, -0.4], v=[0.25, 1.25, 2.25], t=[0.9, -1.1, 0.6])
WAYS = ('', 'backend=vm', 'backend=eager', 'fullgraph=1')
UNARY = ('exp', 'sin', 'cos', 'tanh', 'sigmoid', 'neg', 'square', 'softmax', 'log_softmax', 'cumsum', 'flip', 'floor', 'relu', 'reciprocal')
BINARY = ('add', 'sub', 'mul', 'div', 'maximum', 'hypot')
VIEWS = ('reshape', 'slice', 'select', 'narrow', 'same')
ALONG = ('softmax', 'log_softmax', 'cumsum') # take a dim

# ---- programs ---------------------------------------------------------------------------------------

class Program:
    """statement: (kind, what it makes or None, arguments). Names: w, v, t, x0, x1...; views have a row of 3, too."""
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.statements, self.names, self.count = [], ['w', 'v', 't'], 0
        self.given = set() # gradients, which PyTorch may give on one storage, and what is made of them: not written to
        for _ in range(self.random.randint(4, 14)): self.draw()
        self.outside = self.random.random() < 0.4
        if not self.outside: self.gradients()
        self.ask(random.Random(-seed))
        self.twice = self.outside and random.Random(seed).random() < 0.5

    def ask(self, random):
        """For values of what is there, by a draw of its own, so that programs are what they were without; and hooks."""
        kinds = ['value'] * random.choice((0, 0, 1, 1, 2, 3)) + ['hook'] * random.choice((0, 0, 0, 1, 2))
        for kind in kinds:
            at = random.randint(1, len(self.statements))
            there = [n for what, made, _ in self.statements[:at] for n in (made if isinstance(made, list) else [made])
                     if n and (kind == 'value' or what == 'op')] # PyTorch crashes by hooks of views behind a write
            x = random.choice(there + ['w', 't' if kind == 'value' else 'v'])
            self.statements.insert(at, (kind, None, (x,) if kind == 'value' else (x, random.choice((2, -1)))))

    def name(self):
        self.count += 1
        self.names.append(f'x{self.count - 1}')
        return self.names[-1]

    def some(self): # what came last, more often
        return self.random.choice(self.names[-3:] if self.random.random() < 0.4 else self.names)

    def draw(self):
        r = self.random.random()
        made = [s for s in self.statements if s[0] in ('op', 'view', 'quiet')]
        if r < 0.25 and made: # an equal one
            kind, _, rest = self.random.choice(made[-4:])
            self.statements.append((kind, self.name(), rest))
            if self.given & set(rest[1:]): self.given.add(self.names[-1])
        elif r < 0.60: self.op('op')
        elif r < 0.72: self.view()
        elif r < 0.77: self.op('quiet')
        elif r < 0.88: self.write()
        else: self.gradients()

    def op(self, kind):
        if self.random.random() < 0.5: rest = (self.random.choice(UNARY), self.some())
        else:
            other = self.random.choice((0.5, 2, 3)) if self.random.random() < 0.3 else self.some()
            rest = (self.random.choice(BINARY[:4]) if isinstance(other, (int, float)) else self.random.choice(BINARY), self.some(), other)
        self.statements.append((kind, self.name(), rest))
        if self.given & set(rest[1:]): self.given.add(self.names[-1])

    def view(self):
        x = self.some()
        self.statements.append(('view', self.name(), (self.random.choice(VIEWS), x)))
        if x in self.given: self.given.add(self.names[-1])

    def write(self):
        target = self.random.choice(('w', 'v', 't', 't')) if self.random.random() < 0.8 else self.some()
        if target in self.given: target = 't'
        value = self.random.choice((2, 0.5)) if self.random.random() < 0.3 else self.some()
        self.statements.append(('write', None, (target, value, self.random.random() < 0.3)))

    def gradients(self):
        kind = self.random.choices(('grad', 'grad_graph', 'backward'), (4, 4, 1))[0]
        parts = [(self.some(), self.random.choice((1, 2, 3, 0.5))) for _ in range(self.random.randint(1, 3))]
        by = [self.some() for _ in range(self.random.randint(1, 3))] if kind != 'backward' else []
        seeded = kind != 'backward' and self.random.random() < 0.2
        makes = [self.name() for _ in by]
        self.given.update(makes)
        self.statements.append((kind, makes, (parts, by, seeded)))

    def show(self):
        for kind, made, rest in self.statements: print(kind, made if made is not None else '', rest)

class Left(Exception): pass # nothing to compare

# ---- both sides -------------------------------------------------------------------------------------

class Torch:
    def number(self, name, x, *rest):
        if name in ALONG: rest = (0,)
        if name == 'flip': rest = ([0],)
        return getattr(torch, name)(x, *rest)
    def view(self, name, x):
        if name == 'reshape': return x.reshape(1, 3).reshape(3)
        if name == 'slice': return x[0:3]
        if name == 'select': return x.reshape(1, 3)[0]
        if name == 'narrow': return x.reshape(3, 1).narrow(1, 0, 1).reshape(3)
        return x.contiguous().clone()
    def op(self, name, x, other=None):
        if other is None: return self.number(name, x)
        return self.number(name, x, other)
    def quiet(self, name, *rest):
        with torch.no_grad(): return self.op(name, *rest)
    def write(self, x, value, part):
        with torch.no_grad():
            if part: x = x[1:3]; value = value[1:3].clone() if isinstance(value, torch.Tensor) else value
            if isinstance(value, torch.Tensor): x.copy_(value)
            else: x.fill_(value)
    def follows(self, x): return x.requires_grad
    def grad(self, loss, seed, by, graph):
        return torch.autograd.grad(loss, by, seed, create_graph=graph, retain_graph=True, allow_unused=True)
    def backward(self, loss): loss.backward(retain_graph=True)
    def read(self, x): return x.detach().numpy().copy()
    def left(self, x): return x.grad
    def detach(self, x): return x.detach()
    def constant(self): return torch.full((3,), -77.0, dtype=torch.float64)
    def value(self, x): pass
    def hook(self, x, factor): x.register_hook(lambda g: g * factor)

class Carbide:
    def __init__(self, asks): self.asks = asks
    def op(self, name, x, other=None):
        if name in ALONG: return cb.call(name, x, 0)
        if name == 'flip': return cb.call(name, x, [0])
        return cb.call(name, x) if other is None else cb.call(name, x, other)
    def view(self, name, x):
        if name == 'reshape': return cb.call('reshape', cb.call('reshape', x, [1, 3]), [3])
        if name == 'slice': return cb.call('slice', x, 0, 0, 3)
        if name == 'select': return cb.call('select', cb.call('reshape', x, [1, 3]), 0, 0)
        if name == 'narrow': return cb.call('reshape', cb.call('narrow', cb.call('reshape', x, [3, 1]), 1, 0, 1), [3])
        return cb.call('clone', cb.call('contiguous', x))
    def quiet(self, name, *rest):
        cb.lib.cb_no_grad_open()
        try: return self.op(name, *rest)
        finally: cb.lib.cb_no_grad_close()
    def write(self, x, value, part):
        cb.lib.cb_no_grad_open()
        try:
            if part:
                x = cb.call('slice', x, 0, 1, 3)
                value = cb.call('clone', cb.call('slice', value, 0, 1, 3)) if isinstance(value, cb.Tensor) else value
            if isinstance(value, cb.Tensor): cb.assign(x, value)
            else: cb.fill_(x, value)
        finally: cb.lib.cb_no_grad_close()
    def grad(self, loss, seed, by, graph): return cb.grad(loss, seed, by, graph)
    def backward(self, loss): cb.backward(loss)
    def read(self, x): return x.numpy()
    def left(self, x):
        handle = cb.lib.cb_tensor_grad(x.handle)
        return cb.Tensor(handle) if handle else None
    def detach(self, x): return cb.call('detach', x)
    def constant(self): return cb.tensor(np.full(3, -77.0))
    def value(self, x):
        if self.asks: self.read(self.detach(x))
    def hook(self, x, factor): cb.register_hook(x, lambda g: cb.call('mul', g, factor))

def run(program, side, state, allowed=None):
    """The results of one call: a tensor for each gradient, -77s where there is none. allowed: the statements that
    PyTorch ran; None: this is PyTorch, which finds them."""
    values, results, decided, versions = dict(state), [], [], {}
    for number, (kind, made, rest) in enumerate(program.statements):
        if allowed is not None and not allowed[number]:
            for name in made if isinstance(made, list) else []: values[name] = values['t']
            continue
        decided.append(True)
        if kind in ('op', 'quiet'): values[made] = getattr(side, kind)(rest[0], *(values[a] if isinstance(a, str) else a for a in rest[1:]))
        elif kind == 'value': side.value(values[rest[0]])
        elif kind == 'hook':
            if allowed is None and not side.follows(values[rest[0]]): decided[-1] = False; continue
            side.hook(values[rest[0]], rest[1])
        elif kind == 'view':
            values[made] = side.view(rest[0], values[rest[1]])
            if allowed is None: versions[made] = values[made]._version
        elif kind == 'write':
            target, value = values[rest[0]], values[rest[1]] if isinstance(rest[1], str) else rest[1]
            if allowed is None and side.follows(target) and rest[0] not in LEAVES: decided[-1] = False; continue
            side.write(target, value, rest[2])
        else:
            parts, by, seeded = rest
            loss = None
            if allowed is None and not any(side.follows(values[x]) for x, _ in parts): loss = False
            if allowed is None and not all(side.follows(values[x]) for x in by): loss = False
            if loss is False:
                decided[-1] = False
                for name in made: values[name] = values['t']
                continue
            if any(values[x]._version != versions[x] for x in by if x in versions): raise Left('a view from before a write')
            if len(by) > 1 and any(values[x]._backward_hooks for x in by if allowed is None): raise Left('by a tensor with hooks, and others')
            for x, weight in parts:
                part = side.op('mul', values[x], weight)
                loss = part if loss is None else side.op('add', loss, part)
            if not seeded: loss = side.op('sum', loss)
            if kind == 'backward': side.backward(loss); continue
            got = side.grad(loss, values['t'] if seeded else None, [values[x] for x in by], kind == 'grad_graph')
            for name, g in zip(made, got):
                values[name] = values['t'] if g is None else g
                results.append(side.constant() if g is None else side.detach(g)) # a history ends with the call
    if program.outside: return [side.op('mul', values[program.names[-1]], 0.5), side.op('mul', values[program.names[-2]], 2.0)], decided
    return results or [side.constant()], decided

def go_back(program, side, results, follows, state):
    """From outside: from both results at once, or from the first one that PyTorch goes back from; twice: with a penalty."""
    loss = None
    for x, follow in zip(results, follows):
        part = side.op('sum', side.op('mul', x, x)) if follow else None
        if part is not None: loss = part if loss is None else side.op('add', loss, part)
    gradients = side.grad(loss, None, [state[k] for k in LEAVES], True) if loss is not None and program.twice else []
    for g in gradients:
        if g is not None: loss = side.op('add', loss, side.op('sum', side.op('mul', side.op('sin', g), g)))
    if loss is not None: side.backward(loss)

def theirs_of(program):
    """[(results, state)] of the calls, and what of the program ran; Left where PyTorch refuses it."""
    side, found = Torch(), []
    state = {k: torch.tensor(x, dtype=torch.float64, requires_grad=k in LEAVES) for k, x in START.items()}
    allowed = None
    for _ in range(CALLS):
        try: results, decided = run(program, side, state)
        except RuntimeError as error: raise Left(str(error)[:100])
        if allowed is not None and decided != allowed: raise Left('not the same each call')
        allowed = decided
        try:
            follows = [side.follows(x) for x in results] if program.outside else []
            go_back(program, side, results, follows, state)
        except RuntimeError as error: raise Left(str(error)[:100])
        found.append([side.read(x) for x in results] + ends(program, side, state) + [np.array(follows)])
        if not all(np.isfinite(x).all() and np.abs(x).max(initial=0) < 1e6 for x in found[-1][:-1]): raise Left('not finite')
        for k in LEAVES: state[k].grad = None
    return found, allowed

def ends(program, side, state):
    """Of a penalty that is 0, one side may have no gradient where the other one has zeros."""
    lefts = [side.left(state[k]) for k in LEAVES]
    return [np.full(3, 0.0 if program.twice else -77.0) if x is None else side.read(x) for x in lefts] + [side.read(state[k]) for k in state]

def ours_of(program, way, allowed):
    side, found, f = Carbide(way != 'fullgraph=1'), [], None
    with cb.scope():
        state = {k: cb.tensor(np.array(x)) for k, x in START.items()}
        for k in LEAVES: cb.requires_grad_(state[k])
        options = ', '.join([way] * bool(way) + ['backward=orders'] * program.twice) if way is not None else None
        if options is not None: f = cb.compile(lambda: run(program, side, state, allowed)[0], options)
        for _ in range(CALLS):
            with cb.scope():
                results = f.call([]) if f else run(program, side, state, allowed)[0]
                follows = [bool(cb.lib.cb_requires_grad(x.handle)) for x in results] if program.outside else []
                go_back(program, side, results, follows, state)
                found.append([side.read(side.detach(x)) for x in results] + ends(program, side, state) + [np.array(follows)])
                for k in LEAVES: cb.lib.cb_zero_grad(state[k].handle)
        eager = f.stats().eager_calls if f else 0
        if f: f.free()
    return found, eager

def difference(ours, theirs):
    for call, (a, b) in enumerate(zip(ours, theirs)):
        if len(a) != len(b): return f'call {call}: {len(a)} results, not {len(b)}'
        for i, (x, y) in enumerate(zip(a, b)):
            if x.shape != y.shape: return f'call {call}, result {i}: {x.shape}, not {y.shape}'
            if x.dtype == bool and not (x == y).all(): return f'call {call}: results with a history: {x}, not {y}'
            if x.dtype != bool and not (np.abs(x - y) <= 1e-9 * (1 + np.abs(y).max(initial=0))).all(): return f'call {call}, result {i}: {x}, not {y}'
    return None

def check(seed):
    """The differences of one program."""
    program = Program(seed)
    theirs, allowed = theirs_of(program)
    found, by_op, constant = [], 0, False
    hooked = any(kind == 'hook' for kind, _, _ in program.statements)
    for way in (None,) + WAYS:
        if hooked and way == 'fullgraph=1': continue
        try: ours, eager = ours_of(program, way, allowed)
        except cb.Error as error:
            told = str(error)
            asks = way != 'fullgraph=1' and any(kind in ('value', 'hook') for kind, _, _ in program.statements)
            if (asks or way in (None, 'backend=eager')) and 'was modified in place' in told: continue
            constant |= way is None and 'nothing that the tensor was computed' in told
            if (way == 'backend=eager' or constant) and 'nothing that the tensor was computed' in told: continue
            found.append(f'{"eager" if way is None else way or "compiled"}: {str(error)[:200]}')
            continue
        what = difference(ours, theirs)
        by_op += eager > 0
        if what: found.append(f'{"eager" if way is None else way or "compiled"}: {what}')
    return found, by_op

def main():
    if sys.argv[1:2] == ['show']: return Program(int(sys.argv[2])).show()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    compared, wrong, eager, left = 0, 0, 0, {}
    for seed in range(first, first + count):
        try: found, by_op = check(seed)
        except Left as why: left[str(why)[:40]] = left.get(str(why)[:40], 0) + 1; continue
        compared, eager = compared + 1, eager + by_op
        for what in found:
            wrong += 1
            print(f'{seed}: {what}', flush=True)
    print(f'{compared} programs, {wrong} differences, {eager} runs op by op; left out: {left}')
    sys.exit(1 if wrong else 0)
if __name__ == '__main__': main()
