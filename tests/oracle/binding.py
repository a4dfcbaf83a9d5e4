"""The Python binding of the oracle's tests gives and takes what it says, and the judge refuses what it cannot."""
import os, re
import needs
needs.need('numpy')
import numpy as np
import carbide as cb
import ops, values

def same(a, b): return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()

def raises(status, text, call):
    try: call()
    except cb.Error as error:
        assert error.status == status and text in error.message, (error.status, error.message)
        assert cb.lib.cb_error() is None
        return
    raise AssertionError(f'no error: {text}')

random = np.random.default_rng(1)
with cb.scope():
    for dtype, kind in cb.NUMPY.items(): # every dtype, every order in memory
        array = (random.random((3, 4, 5)) * 200 - 90).astype(np.int64).astype(kind)
        x = cb.tensor(array, dtype)
        assert x.dtype == dtype and x.shape == (3, 4, 5) and same(x.numpy(), array)
        y = cb.laid(array, dtype, order=[2, 0, 1], step=[2, 1, 3], start=[1, 0, 2])
        # from the outermost: 5 of step 3 behind 2, 3 of step 2 behind 1, 4
        assert y.strides == (2 * 4, 1, 3 * 7 * 4) and same(y.numpy(), array), y.strides
        z = cb.laid(array, dtype, expanded=[1])
        assert z.strides == (5, 0, 1) and same(z.numpy(), np.repeat(array[:, :1], 4, 1))
    some = np.array([1.0, -2.5, np.inf, np.nan, 3.1415927, 1e-40, 65535.5], np.float32)
    assert same(cb.call('to', cb.tensor(some), 'bf16').numpy(), cb.bf16_bits(some))
    assert same(cb.call('to', cb.tensor(cb.bf16_bits(some), 'bf16'), 'f32').numpy(),
                cb.bf16_values(cb.bf16_bits(some)))

    x = cb.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert same(cb.call('sum', x, 1, keepdim=True).numpy(), np.float32([[3], [12]]))
    assert same(cb.call('sub', x, 1).numpy(), x.numpy() - 1)
    assert cb.call('interpolate', cb.call('reshape', x, [1, 1, 2, 3]), scale_factor=2).shape == (1, 1, 4, 6)
    assert cb.call('slice', x, 1, 1).shape == (2, 2) and cb.call('full', (2,), 3).dtype == 'i64'
    assert [p.shape for p in cb.split(x, 2, 1)] == [(2, 2), (2, 1)]
    assert cb.topk(x, 2, 1)[1].numpy().tolist() == [[2, 1], [2, 1]]
    assert same(cb.stack([x, x]).numpy(), np.stack([x.numpy()] * 2))
    assert cb.call('sum', x).item() == 15 and cb.call('amax', x).item_int() == 5
    raises(-2, 'do not broadcast', lambda: cb.call('add', x, cb.tensor(np.zeros(5, np.float32))))
    raises(-7, 'no_such', lambda: cb.set_option('no_such', 1))

    for options in 'backend=c', 'backend=vm', 'backend=vm,fullgraph=1':
        f = cb.compile(lambda x, y: [cb.call('add', x, y), cb.assign(y, x)], options)
        y = cb.tensor(np.ones((2, 3), np.float32))
        total, written = f(x, y)
        assert same(total.numpy(), x.numpy() + 1) and same(y.numpy(), x.numpy()) and written.shares(y)
        assert f.stats().graphs == 1 and 'binding.py:' in f.explain()
        f.free()
    refused = cb.compile(lambda x: cb.call('matmul', x, x))
    raises(-2, 'matmul', lambda: refused(x))
    try: cb.compile(lambda x: 1 / 0)(x)
    except ZeroDivisionError: cb.lib.cb_clear_error()
    else: raise AssertionError('an exception got lost')

rows = open(os.path.join(cb.ROOT, 'docs', 'ops.md')).read() # written from the same table
besides = {'assign', 'fill_', 'split', 'chunk', 'sort', 'topk', 'nonzero', 'masked_select', 'cat', 'stack'} # functions
differ = set(re.findall(r'^\| `cb_(\w+)\(', rows, re.M)) ^ (set(cb.ops) | besides)
assert not differ, f'docs/ops.md is not that of the op table ({sorted(differ)}): make docs'

def refuses(why, call):
    """The judge does, where it cannot say what is right, or would take gigabytes to."""
    try: call()
    except values.Refused as refused: assert why in str(refused), refused
    else: raise AssertionError(f'the judge takes it: {why}')

def between(low, high): return values.Value(values.record(np.array(low), np.array(high)), 'f64')
long = values.Value(values.load(np.ones((65537, 1)), 'f64'), 'f64')
for name in 'mul', 'matmul': refuses('too large', lambda: ops.OPS[name](long, values.Value(long.data.T, 'f64')))
for low, high in (-2e31, 4.6e46), (-300.0, -44.0), (-2.0 ** 63, 1e30): # the ends give one i8, and what lies between others
    refuses('exact elements', lambda: values.as_integer(between(low, high), 'i8'))
refuses('exact elements', lambda: values.as_integer(between(-1.0, 1.0), 'bool'))
assert values.as_integer(between(3.25, 3.5), 'i8') == 3 and values.as_integer(between(1e20, 1e40), 'i64') == -2 ** 63
