"""The least program that still fails in the same way: shrink(program, fails)."""
from program import Line, Program, Ref, parse

def without_call(p):
    for k in range(len(p.calls)):
        if len(p.calls) > 1:
            q = p.copy()
            del q.calls[k]
            yield q
    for k, call in enumerate(p.calls):
        if call.times > 1:
            q = p.copy()
            q.calls[k].times = 1
            yield q

def fewer_modes(p):
    for k in range(len(p.modes)):
        if len(p.modes) > 1:
            q = p.copy()
            del q.modes[k]
            yield q
    for k, mode in enumerate(p.modes):
        for old, new in (('threads=3', 'threads=1'), ('threads=2', 'threads=1'), (' precise=1', ''), (',fuse=0', ''),
                         (',fullgraph=1', ''), ('backend=c', 'backend=vm')):
            if old in mode:
                q = p.copy()
                q.modes[k] = mode.replace(old, new)
                yield q

def fewer_results(p):
    for k in range(len(p.results)):
        q = p.copy()
        del q.results[k]
        yield q

def without_step(lines, k, others):
    """lines without one; its targets become one of its operands, or vanish."""
    line, rest = lines[k], lines[:k] + lines[k + 1:]
    yield rest, others
    for ref in dict.fromkeys(line.refs()):
        swapped = rest
        for target in line.targets: swapped = [l.replaced(target, ref) for l in swapped]
        yield swapped, [ref if o in line.targets else o for o in others]

def fewer_steps(p):
    for k in reversed(range(len(p.body))):
        for body, results in without_step(p.body, k, p.results):
            q = p.copy()
            q.body, q.results = body, results
            yield q
    for c, call in enumerate(p.calls):
        for k in reversed(range(len(call.setup))):
            for setup, arguments in without_step(call.setup, k, call.arguments):
                q = p.copy()
                q.calls[c].setup, q.calls[c].arguments = setup, [str(a) for a in arguments]
                yield q

def fewer_inputs(p):
    for k in range(len(p.params)):
        q = p.copy()
        del q.params[k]
        for call in q.calls: del call.arguments[k]
        yield q

def inputs_of_steps(p):
    """A step whose value a storage could have: its input instead."""
    for k, line in enumerate(p.body):
        for name in line.targets:
            for c in range(len(p.params)):
                q = p.copy()
                q.body = q.body[:k] + [l.replaced(name, Ref(p.params[c])) for l in q.body[k + 1:]]
                if name in q.results: continue
                yield q

def constant_numbers(p):
    """A number that changes becomes what it is in the first call."""
    for line in p.calls[0].setup:
        if line.op != 'number': continue
        q = p.copy()
        q.body = [l.replaced(line.targets[0], line.arguments[0]) for l in q.body]
        for call in q.calls: call.setup = [l for l in call.setup if l.targets != line.targets]
        yield q

def smaller(p):
    for c, call in enumerate(p.calls):
        for k, line in enumerate(call.setup):
            if line.op != 'base': continue
            for at, size in enumerate(line.arguments[1]):
                for other in sorted({0, 1, 2, size // 2, size - 1}):
                    if not 0 <= other < size: continue
                    q = p.copy()
                    for d in range(len(q.calls)): # all calls alike first
                        if k < len(q.calls[d].setup) and q.calls[d].setup[k].op == 'base' and \
                           q.calls[d].setup[k].arguments[1] == line.arguments[1]:
                            q.calls[d].setup[k].arguments[1] = list(line.arguments[1])
                            q.calls[d].setup[k].arguments[1][at] = other
                    yield q
            if line.arguments[2] in ('normal', 'wild', 'eighths', 'full'):
                q = p.copy()
                q.calls[c].setup[k].arguments[2] = 'small'
                yield q

def plainer(p):
    """Numbers in steps become smaller."""
    for k, line in enumerate(p.body):
        for at, a in enumerate(line.arguments):
            options = []
            if isinstance(a, int) and not isinstance(a, bool) and abs(a) > 1: options = [0, 1, a // 2]
            if isinstance(a, list) and a and not isinstance(a[0], Ref):
                options = [a[:i] + [v] + a[i + 1:] for i in range(len(a)) for v in (1, a[i] // 2) if v < a[i]]
            if isinstance(a, list) and len(a) > 1 and isinstance(a[0], Ref):
                options = [a[:i] + a[i + 1:] for i in range(len(a))]
            for o in options:
                q = p.copy()
                q.body[k].arguments[at] = o
                yield q

def shrink(program, fails, most=600):
    """fails(program) is asked at most so many times."""
    tries, again = 0, True
    while again:
        again = False
        for simpler in (without_call, fewer_modes, fewer_results, fewer_steps, fewer_inputs, inputs_of_steps, constant_numbers, smaller, plainer):
            progress = True
            while progress:
                progress = False
                for candidate in simpler(program):
                    tries += 1
                    if tries > most: return program
                    if fails(candidate):
                        program, again, progress = candidate, True, True
                        break
    return program
