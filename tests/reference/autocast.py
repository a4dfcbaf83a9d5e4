"""Result dtypes of ops under PyTorch's autocast on the CPU: writes tests/unit/autocast_cases.h.
Each case is a call in the text IR and the same call in Python, on operands a, b, c... A float
operand is tried as f32, bf16, the first one bf16 and the others f32, and f64; "" is what PyTorch
refuses. f16 autocast must say the same with f16 for bf16.
Usage: /opt/peer/bin/python tests/reference/autocast.py"""
import subprocess
import torch, torch.nn.functional as F

NAMES = {torch.float32: 'f32', torch.bfloat16: 'bf16', torch.float16: 'f16',
         torch.float64: 'f64', torch.int64: 'i64', torch.bool: 'bool'}
cases = []

def case(text, function, *shapes):
    cases.append((text, function, shapes))

x = [2, 4]
for name in '''neg abs square sqrt exp expm1 log log1p sin tanh erf sigmoid relu floor round isnan
               logical_not'''.split():
    case(f'{name}(a)', getattr(torch, name), x)
for name in 'add sub mul div pow fmod maximum atan2 eq lt logical_and'.split():
    case(f'{name}(a, b)', getattr(torch, name), x, x)
case('where(a > 0, a, b)', lambda a, b: torch.where(a > 0, a, b), x, x)
for name in 'sum prod amax amin mean var std logsumexp norm'.split():
    case(f'{name}(a, 1)', lambda a, f=getattr(torch, name): f(a, dim=1), x)
for name in 'sum prod any all max min argmax'.split():
    case(f'{name}(a)', getattr(torch, name), x)
case('cumsum(a, 1)', lambda a: a.cumsum(1), x)
case('cumprod(a, 1)', lambda a: a.cumprod(1), x)
case('concat(a, b)', lambda a, b: torch.cat([a, b]), x, x)
case('concat(unsqueeze(a, 0), unsqueeze(b, 0))', lambda a, b: torch.stack([a, b]), x, x)
case('pad(a, [1, 1])', lambda a: F.pad(a, (1, 1)), x)
case('reflection_pad(a, [1, 1])', lambda a: F.pad(a, (1, 1), mode='reflect'), x)
case('replication_pad(a, [1, 1])', lambda a: F.pad(a, (1, 1), mode='replicate'), x)
case('circular_pad(a, [1, 1])', lambda a: F.pad(a, (1, 1), mode='circular'), x)
case('prelu(a, b)', F.prelu, x, [4])
case('argsort(a)', torch.argsort, x)
case('transpose(a, 0, 1)', lambda a: a.t(), x)
case('tril(a)', torch.tril, x)
case('clamp(a, 0, 1)', lambda a: a.clamp(0, 1), x)
case('addcmul(a, b, c)', torch.addcmul, x, x, x)
case('addcdiv(a, b, c)', torch.addcdiv, x, x, x)
for name in '''leaky_relu elu selu relu6 hardtanh hardsigmoid hardswish gelu silu mish softplus
               softsign logsigmoid dropout'''.split():
    case(f'{name}(a)', getattr(F, name), x)
case('softmax(a, 1)', lambda a: a.softmax(1), x)
case('log_softmax(a, 1)', lambda a: a.log_softmax(1), x)
case('layer_norm(a, [4], b, c)', lambda a, b, c: F.layer_norm(a, (4,), b, c), x, [4], [4])
case('rms_norm(a, [4], b)', lambda a, b: F.rms_norm(a, (4,), b), x, [4])
case('normalize(a)', F.normalize, x)
case('cosine_similarity(a, b)', F.cosine_similarity, x, x)
case('matmul(a, b)', torch.matmul, [2, 3], [3, 4])
case('matmul(a, b)', torch.bmm, [2, 2, 3], [2, 3, 4])
case('matmul(a, b)', torch.matmul, [3], [3])
case('addmm(a, b, c)', torch.addmm, x, [2, 3], [3, 4])
case('linear(a, b, c)', F.linear, [2, 3], [4, 3], [4])
case('linear(a, b)', F.linear, [2, 3], [4, 3])
for name in 'mse_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits'.split():
    case(f'{name}(a, b)', getattr(F, name), x, x)
case('cross_entropy(a, b)', F.cross_entropy, x, x)
target = 'full([2], 1, i64)'
case(f'cross_entropy(a, {target})', lambda a: F.cross_entropy(a, torch.ones(2).long()), x)
case(f'nll_loss(a, {target})', lambda a: F.nll_loss(a, torch.ones(2).long()), x)
for d in (1, 2, 3):
    image, kernel = [1, 2] + [5] * d, [3] * d
    case(f'conv{d}d(a, b, c)', getattr(F, f'conv{d}d'), image, [3, 2] + kernel, [3])
    case(f'conv_transpose{d}d(a, b, c)', getattr(F, f'conv_transpose{d}d'), image,
         [2, 3] + kernel, [3])
    for name in (f'max_pool{d}d', f'avg_pool{d}d', f'adaptive_avg_pool{d}d',
                 f'adaptive_max_pool{d}d'):
        case(f'{name}(a, 2)', lambda a, f=getattr(F, name): f(a, 2), image)
s = [2, 4, 3, 3]
case('batch_norm(a, b, c, d, e)', lambda a, b, c, d, e: F.batch_norm(a, b, c, d, e), s, *[[4]] * 4)
case('batch_norm(a, weight=b, bias=c, training=true)',
     lambda a, b, c: F.batch_norm(a, None, None, b, c, training=True), s, [4], [4])
case('instance_norm(a, weight=b, bias=c)',
     lambda a, b, c: F.instance_norm(a, weight=b, bias=c), s, [4], [4])
case('group_norm(a, 2, b, c)', lambda a, b, c: F.group_norm(a, 2, b, c), s, [4], [4])
q = [1, 2, 3, 4]
case('scaled_dot_product_attention(a, b, c)', F.scaled_dot_product_attention, q, q, q)
case('scaled_dot_product_attention(a, b, c, d)', F.scaled_dot_product_attention, q, q, q, [3, 3])
case('interpolate(a, scale_factor=2)', lambda a: F.interpolate(a, scale_factor=2), s)
case('interpolate(a, scale_factor=2, linear=true)',
     lambda a: F.interpolate(a, scale_factor=2, mode='bilinear'), s)
case('unfold(a, 2)', lambda a: F.unfold(a, 2), s)
case('fold(a, 3, 2)', lambda a: F.fold(a, (3, 3), 2), [1, 8, 4])

def result(function, shapes, first, others, lower):
    operands = [torch.rand(*s).to(others if i else first) for i, s in enumerate(shapes)]
    try:
        with torch.autocast('cpu', dtype=lower):
            return NAMES[function(*operands).dtype]
    except RuntimeError:
        return ''

def row(function, shapes, lower):
    f32, f64 = torch.float32, torch.float64
    pairs = (f32, f32), (lower, lower), (lower, f32), (f64, f64)
    return [result(function, shapes, first, others, lower) for first, others in pairs]

with open('tests/unit/autocast_cases.h', 'w') as out:
    out.write(f'''/* Generated by tests/reference/autocast.py with PyTorch {torch.__version__.split("+")[0]}. A call on operands a, b, c... of
 * these sizes, and the dtype of its result under bf16 autocast when all operands are f32; bf16; the
 * first one bf16, the others f32; f64. "": PyTorch refuses. */
static const struct {{
    const char *call, *sizes[5], *dtype[4];
}} cases[] = {{
''')
    for text, function, shapes in cases:
        dtypes = row(function, shapes, torch.bfloat16)
        half = row(function, shapes, torch.float16)
        assert half == [d.replace('bf16', 'f16') for d in dtypes], (text, dtypes, half)
        sizes = ', '.join(f'"{s}"' for s in shapes)
        results = ', '.join(f'"{d}"' for d in dtypes)
        out.write(f'    {{"{text}", {{{sizes}}}, {{{results}}}}},\n')
    out.write('};\n')
subprocess.run(['clang-format', '-i', 'tests/unit/autocast_cases.h'], check=True)
