"""Carbide from Python, for tests: every op by its name, tensors from NumPy arrays, compiled functions.

    import carbide as cb
    with cb.scope():
        x = cb.tensor(np.arange(6.0).reshape(2, 3), 'f32')
        y = cb.call('softmax', x, dim=1)            attributes by position or name, defaults as in C
        f = cb.compile(lambda x, y: cb.call('add', x, y), 'backend=vm,fullgraph=1')
        print(f(x, y).numpy(), f.explain())

The op table is read from the generated header build/gen/carbide_ops.h, so a new row is known here at
once. Tensors belong to scopes, as in C: a Tensor is a bare handle, good until its scope closes.
A call that fails raises Error (status, message). Inside a compiled function the error is left standing
and the Python exception comes out of the call of the compiled function.
NumPy has no bf16: its arrays are uint16 bits here, both ways (bf16_bits and bf16_values convert).
"""
import contextlib, ctypes, os, re, sys
from ctypes import (CDLL, CFUNCTYPE, POINTER, Structure, Union, byref, c_bool, c_char_p, c_double,
                    c_int, c_int64, c_size_t, c_void_p)
import numpy as np

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
BUILD = os.environ.get('CARBIDE_BUILD', os.path.join(ROOT, 'build'))
MAX_RANK, MAX_ARGS = 8, 1024

lib = CDLL(os.path.join(BUILD, 'libcarbide.so'))

# ---- C's types -----------------------------------------------------------------------------------

class DimList(Structure):
    _fields_ = [('count', c_int), ('at', c_int64 * MAX_RANK)]

class FloatList(Structure):
    _fields_ = [('count', c_int), ('at', c_double * MAX_RANK)]

class OperandValue(Union):
    _fields_ = [('tensor', c_void_p), ('f', c_double), ('i', c_int64)]

class Operand(Structure):
    _anonymous_ = ['value']
    _fields_ = [('kind', c_int), ('value', OperandValue)]

class Stats(Structure):
    _fields_ = [(n, c_int64) for n in ('calls graphs breaks recompiles eager_calls kernels kernels_eager '
                                       'bytes bytes_eager flops cache_hits').split()] + \
               [(n, c_double) for n in ('trace_ms compile_ms passes_ms schedule_ms source_ms '
                                        'compiler_ms').split()] + [('compiled', c_int64)]

class Memory(Structure):
    _fields_ = [(n, c_int64) for n in 'live_bytes cached_bytes peak_bytes live_tensors'.split()]

HOOK = CFUNCTYPE(c_void_p, c_void_p, c_void_p)
CALLBACK = CFUNCTYPE(c_int, POINTER(c_void_p), c_int, POINTER(c_void_p), c_void_p)
ERR_INDEX = -4
OPERAND_TENSOR, OPERAND_FLOAT, OPERAND_INT, OPERAND_BOOL = range(4)

def declare(name, result, *arguments):
    function = getattr(lib, 'cb_' + name)
    function.restype, function.argtypes = result, arguments
    return function

T = c_void_p
for name, result, *arguments in [
        ('dtype_name', c_char_p, c_int), ('dtype_size', c_size_t, c_int), ('promote', c_int, c_int, c_int),
        ('error', c_char_p), ('error_status', c_int), ('clear_error', None), ('fail', c_int, c_int, c_char_p),
        ('site', None, c_char_p, c_int), ('scope_open', None), ('scope_close', None),
        ('keep', T, T), ('scope_add', T, T), ('free', None, T), ('cleanup', None), ('memory', Memory),
        ('from_data', T, c_void_p, c_int, DimList), ('empty', T, DimList, c_int),
        ('rank', c_int, T), ('size', c_int64, T, c_int), ('stride', c_int64, T, c_int),
        ('numel', c_int64, T), ('dtype_of', c_int, T), ('is_contiguous', c_bool, T),
        ('shares_storage', c_bool, T, T), ('item', c_double, T), ('item_int', c_int64, T),
        ('data', c_void_p, T), ('changed', None, T), ('read', c_int, T, c_void_p, c_int),
        ('format', c_size_t, T, c_void_p, c_size_t), ('manual_seed', None, ctypes.c_uint64),
        ('padding', DimList, c_char_p),
        ('split', c_int, T, c_int64, c_int, POINTER(T), c_int),
        ('chunk', c_int, T, c_int64, c_int, POINTER(T), c_int),
        ('sort', T, T, c_int, c_bool, POINTER(T)), ('topk', T, T, c_int64, c_int, c_bool, POINTER(T)),
        ('cat', T, POINTER(T), c_int, c_int), ('stack', T, POINTER(T), c_int, c_int),
        ('assign', T, T, T), ('fill_', T, T, Operand),
        ('requires_grad_', T, T, c_bool), ('requires_grad', c_bool, T), ('backward', c_int, T, T),
        ('register_hook', c_int, T, HOOK, c_void_p),
        ('grad', c_int, T, T, POINTER(T), c_int, POINTER(T)),
        ('grad_graph', c_int, T, T, POINTER(T), c_int, POINTER(T)), ('tensor_grad', T, T), ('zero_grad', None, T),
        ('no_grad_open', None), ('no_grad_close', None), ('autocast_open', None, c_int), ('autocast_close', None),
        ('compile_n', c_void_p, CALLBACK, c_void_p, c_char_p), ('function_free', None, c_void_p),
        ('call_n', c_int, c_void_p, POINTER(T), c_int, POINTER(T), c_int),
        ('explain', c_void_p, c_void_p), ('free_text', None, c_void_p), ('stats', Stats, c_void_p),
        ('set_option', c_int, c_char_p, c_char_p), ('get_option', c_char_p, c_char_p),
        ('set_threads', None, c_int), ('threads', c_int), ('synchronize', c_int)]:
    declare(name, result, *arguments)

DTYPES = ['bool', 'u8', 'i8', 'i16', 'i32', 'i64', 'f16', 'bf16', 'f32', 'f64']
assert [lib.cb_dtype_name(i).decode() for i in range(len(DTYPES))] == DTYPES
FLOATS = ('f16', 'bf16', 'f32', 'f64')
NUMPY = dict(zip(DTYPES, map(np.dtype, ('bool', 'u1', 'i1', 'i2', 'i4', 'i8', 'f2', 'u2', 'f4', 'f8'))))
OF_NUMPY = {kind: name for name, kind in NUMPY.items() if name != 'bf16'}

def dtype_code(name):
    return -1 if name is None else DTYPES.index(name)

def bf16_bits(values):
    """Rounded to nearest even from f32, as uint16."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    half = np.uint64(0x7fff) + ((bits >> np.uint64(16)) & np.uint64(1))
    nan = (bits >> np.uint64(16)) | np.uint64(0x40)
    return np.where(np.isnan(values), nan, (bits + half) >> np.uint64(16)).astype(np.uint16)

def bf16_values(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)

# ---- errors --------------------------------------------------------------------------------------

class Error(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status, self.message = status, message

inside = 0 # how many compiled functions are running their Python callback

def failed():
    """The sticky error as an exception; it stays for the library where that is in the middle of a call."""
    message, status = lib.cb_error(), lib.cb_error_status()
    if not inside: lib.cb_clear_error()
    return Error(status, message.decode() if message else 'failed without a message')

files = {}
def note_site():
    """The caller outside of this file is the source line of what is called next."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename == __file__: frame = frame.f_back
    name = frame.f_code.co_filename
    lib.cb_site(files.setdefault(name, os.path.basename(name).encode()), frame.f_lineno)

def wrap(handle):
    if not handle: raise failed()
    return Tensor(handle)

def checked(status):
    if status < 0: raise failed()
    return status

# ---- tensors -------------------------------------------------------------------------------------

class Tensor:
    __slots__ = ('handle',)
    def __init__(self, handle): self.handle = handle

    @property
    def dtype(self): return DTYPES[lib.cb_dtype_of(self.handle)]
    @property
    def shape(self): return tuple(lib.cb_size(self.handle, d) for d in range(lib.cb_rank(self.handle)))
    @property
    def strides(self):
        """In elements."""
        return tuple(lib.cb_stride(self.handle, d) for d in range(lib.cb_rank(self.handle)))

    def read(self, dtype):
        """Converted to dtype by cb_read."""
        out = np.empty(self.shape, NUMPY[dtype])
        note_site()
        checked(lib.cb_read(self.handle, out.ctypes.data, dtype_code(dtype)))
        return out

    def numpy(self):
        return self.read(self.dtype)

    def item(self):
        note_site()
        value = lib.cb_item(self.handle)
        if lib.cb_error(): raise failed()
        return value

    def item_int(self):
        note_site()
        value = lib.cb_item_int(self.handle)
        if lib.cb_error(): raise failed()
        return value

    def shares(self, other): return lib.cb_shares_storage(self.handle, other.handle)
    def keep(self): lib.cb_keep(self.handle); return self
    def free(self): lib.cb_free(self.handle)
    def __repr__(self): return f'{self.dtype}{list(self.shape)}'

def dims(values):
    if values == 'all': return DimList(-1)
    if isinstance(values, DimList): return values
    if isinstance(values, str): return lib.cb_padding(values.encode())
    if isinstance(values, (int, np.integer)): values = (values,)
    return DimList(len(values), (c_int64 * MAX_RANK)(*values))

def floats(values):
    if isinstance(values, (int, float)): values = (values,) if values else ()
    return FloatList(len(values), (c_double * MAX_RANK)(*values))

def tensor(array, dtype=None):
    """A contiguous copy. dtype is the array's own, 'bf16' for uint16 bits of it; others are converted."""
    array = np.asarray(array)
    if dtype is None: dtype = OF_NUMPY[array.dtype]
    if dtype == 'bf16' and array.dtype != np.uint16: array = bf16_bits(array.astype(np.float32))
    data = np.ascontiguousarray(array, NUMPY[dtype])
    note_site()
    return wrap(lib.cb_from_data(data.ctypes.data, dtype_code(dtype), dims(array.shape)))

def empty(sizes, dtype): return wrap(lib.cb_empty(dims(sizes), dtype_code(dtype)))

def laid(array, dtype=None, order=None, step=None, start=None, expanded=()):
    """As tensor(), but laid otherwise in memory: a view of a larger one.
    order     dims from the outermost in memory to the innermost
    step      stride of each dim in elements of its own, start: elements before the first
    expanded  dims of stride 0: only their first element counts"""
    array = np.asarray(array)
    rank = array.ndim
    order = list(order or range(rank))
    step, start = list(step or [1] * rank), list(start or [0] * rank)
    if dtype == 'bf16' and array.dtype != np.uint16: array = bf16_bits(array.astype(np.float32))
    small = array[tuple(slice(0, 1) if d in expanded else slice(None) for d in range(rank))]
    inner = small.transpose(order)
    sizes = [start[d] + small.shape[d] * step[d] for d in order]
    base = np.zeros(sizes, array.dtype)
    base.view(np.uint8 if base.itemsize == 1 else f'u{base.itemsize}')[...] = 1
    base[tuple(slice(start[d], None, step[d]) for d in order)] = inner
    x = tensor(base, dtype)
    for at, d in enumerate(order):
        if step[d] != 1 or start[d]: x = call('slice', x, at, start[d], sizes[at], step[d])
    if order != sorted(order): x = call('permute', x, [order.index(d) for d in range(rank)])
    if expanded: x = call('expand', x, array.shape)
    return x

@contextlib.contextmanager
def scope():
    lib.cb_scope_open()
    try: yield
    finally: lib.cb_scope_close()

# ---- ops -----------------------------------------------------------------------------------------

REDUCTIONS = ['none', 'mean', 'sum', 'batchmean']

class Param:
    """A parameter of an op: kind is operand, cb_operand (numbers alone), tensor, int64_t, double, bool, cb_dtype, cb_dim_list..."""
    def __init__(self, name, kind, text):
        self.name, self.kind, self.optional = name, kind, text.endswith('?') or '=' in text
        default = text.partition('=')[2]
        if not default: self.default = None
        elif kind == 'cb_dim_list':
            self.default = {'all': 'all', 'none': ()}[default] if default.isalpha() else int(default)
        elif kind == 'cb_float_list': self.default = ()
        elif kind == 'cb_dtype': self.default = None if default == 'same' else default
        elif kind == 'bool': self.default = default == 'true'
        elif kind == 'cb_operand':
            self.default = None if default == 'none' else float(default) if '.' in default else int(default)
        elif kind == 'double': self.default = float(default)
        else: self.default = REDUCTIONS.index(default) if default in REDUCTIONS else int(default)

class Op:
    def __init__(self, name, params):
        self.name, self.params = name, params
        declare(name, c_void_p, *(C_TYPE[p.kind] for p in params))
        self.function = getattr(lib, 'cb_' + name)

C_TYPE = {'operand': Operand, 'cb_operand': Operand, 'tensor': c_void_p, 'int64_t': c_int64, 'double': c_double, 'bool': c_bool,
          'cb_dtype': c_int, 'cb_dim_list': DimList, 'cb_float_list': FloatList}

def read_ops():
    text = open(os.path.join(BUILD, 'gen', 'carbide_ops.h')).read()
    for schema, name, arguments in re.findall(
            r'^/\* (\w+\(.*\)) \*/\nCB_API cb_tensor \*cb_(\w+)\((.*)\);$', text, re.M):
        texts = schema[schema.index('(') + 1:-1].split(', ')
        params = []
        for declaration, param in zip(arguments.split(', '), texts):
            kind = declaration.split()[0]
            if kind == 'cb_operand' and ':number' not in param: kind = 'operand'
            if kind == 'cb_tensor': kind = 'tensor'
            params.append(Param(re.match(r'\w+', param)[0], kind, param))
        yield name, Op(name, params)

ops = dict(read_ops())

def operand(value):
    if isinstance(value, Tensor): return Operand(OPERAND_TENSOR, tensor=value.handle)
    if isinstance(value, (bool, np.bool_)): return Operand(OPERAND_BOOL, i=int(value))
    if isinstance(value, (int, np.integer)): return Operand(OPERAND_INT, i=int(value))
    return Operand(OPERAND_FLOAT, f=float(value))

CONVERT = {'operand': operand, 'cb_operand': lambda x: Operand() if x is None else operand(x),
           'tensor': lambda x: x.handle if x is not None else None, 'int64_t': int, 'double': float,
           'bool': bool, 'cb_dtype': dtype_code, 'cb_dim_list': dims, 'cb_float_list': floats}

def call(name, *arguments, **named):
    """An op of the table."""
    op = ops[name]
    if len(arguments) > len(op.params): raise TypeError(f'{name} takes {len(op.params)} arguments')
    values = []
    for i, p in enumerate(op.params):
        if i < len(arguments): value = arguments[i]
        elif p.name in named: value = named.pop(p.name)
        elif p.optional: value = p.default
        else: raise TypeError(f'{name} needs {p.name}')
        values.append(CONVERT[p.kind](value))
    if named: raise TypeError(f'{name} has no {", ".join(named)}')
    note_site()
    return wrap(op.function(*values))

def handles(tensors): return (c_void_p * max(1, len(tensors)))(*(t.handle for t in tensors))

def pieces(function, x, size, dim):
    out = (c_void_p * MAX_ARGS)()
    note_site()
    return [Tensor(h) for h in out[:checked(function(x.handle, size, dim, out, MAX_ARGS))]]

def split(x, size, dim): return pieces(lib.cb_split, x, size, dim)
def chunk(x, chunks, dim): return pieces(lib.cb_chunk, x, chunks, dim)

def with_indices(function, *arguments):
    indices = c_void_p()
    note_site()
    values = wrap(function(*arguments, byref(indices)))
    return values, Tensor(indices.value)

def sort(x, dim=-1, descending=False): return with_indices(lib.cb_sort, x.handle, dim, descending)
def topk(x, k, dim=-1, largest=True): return with_indices(lib.cb_topk, x.handle, k, dim, largest)

def cat(tensors, dim=0):
    note_site()
    return wrap(lib.cb_cat(handles(tensors), len(tensors), dim))

def stack(tensors, dim=0):
    note_site()
    return wrap(lib.cb_stack(handles(tensors), len(tensors), dim))

def assign(x, value):
    note_site()
    return wrap(lib.cb_assign(x.handle, value.handle))

def fill_(x, value):
    note_site()
    return wrap(lib.cb_fill_(x.handle, operand(value)))

# ---- gradients -----------------------------------------------------------------------------------

def requires_grad_(x, on=True):
    note_site()
    return wrap(lib.cb_requires_grad_(x.handle, on))

def backward(y, gradient=None):
    note_site()
    checked(lib.cb_backward(y.handle, gradient.handle if gradient else None))

def grad(y, gradient, wrt, graph=False):
    """The gradients of y by each of wrt, None where there is none; graph: with what they were computed from."""
    out = (c_void_p * max(1, len(wrt)))()
    note_site()
    call = lib.cb_grad_graph if graph else lib.cb_grad
    checked(call(y.handle, gradient.handle if gradient else None, handles(wrt), len(wrt), out))
    return [Tensor(h) if h else None for h in out[:len(wrt)]]

hooks = [] # callbacks, which must live

def register_hook(x, hook):
    """hook(Tensor) gives a Tensor."""
    hooks.append(HOOK(lambda g, user: hook(Tensor(g)).handle))
    note_site()
    if not lib.cb_register_hook(x.handle, hooks[-1], None): checked(lib.cb_error_status())

def synchronize(): checked(lib.cb_synchronize()) # what a device has found meanwhile is an error here
def set_option(name, value): checked(lib.cb_set_option(name.encode(), str(value).encode()))

# ---- compiled functions --------------------------------------------------------------------------

class Function:
    """A compiled Python function of tensors, which returns one or a list of them. Where it raises, the
    call raises the same."""
    def __init__(self, python, options):
        self.python, self.raised = python, None
        self.callback = CALLBACK(self.run) # must outlive the compiled function
        note_site()
        self.handle = lib.cb_compile_n(self.callback, None, options.encode() if options else None)
        if not self.handle: raise failed()

    def run(self, inputs, count, outputs, user):
        global inside
        inside += 1
        try:
            results = self.python(*(Tensor(inputs[i]) for i in range(count)))
            results = [results] if isinstance(results, Tensor) else list(results)
            for i, result in enumerate(results): outputs[i] = result.handle
            return len(results)
        except BaseException as error: # nothing may pass through C
            self.raised = error
            if not lib.cb_error(): lib.cb_fail(-1, f'{type(error).__name__}: {error}'.encode())
            return -1
        finally: inside -= 1

    def call(self, tensors):
        """The results as a list, whatever their number."""
        out = (c_void_p * MAX_ARGS)()
        self.raised = None
        note_site()
        count = lib.cb_call_n(self.handle, handles(tensors), len(tensors), out, MAX_ARGS)
        if count < 0:
            error = failed()
            raise self.raised if self.raised and not isinstance(self.raised, Error) else error
        return [Tensor(h) for h in out[:count]]

    def __call__(self, *tensors):
        results = self.call(tensors)
        return results[0] if len(results) == 1 else results

    def explain(self):
        text = lib.cb_explain(self.handle)
        try: return ctypes.string_at(text).decode()
        finally: lib.cb_free_text(text)

    def stats(self): return lib.cb_stats(self.handle)

    def free(self):
        if self.handle: lib.cb_function_free(self.handle)
        self.handle = None

def compile(python, options=None): return Function(python, options)
