"""Reference values of tests/unit/test_network_ops.c: the same expressions in PyTorch.
Writes tests/unit/network_cases.h. Usage: /opt/peer/bin/python tests/reference/network_ops.py"""
import torch, torch.nn.functional as F

N = 1024
def values(seed):
    i = torch.arange(N, dtype=torch.float64)
    return ((i * 37 + seed * 11) % 23 - 11) / 8 + ((i * i + seed) % 7) / 16
x, w, v = values(0), values(1), values(2)
flat = {'x': x, 'w': w, 'v': v}

def T(name, *shape, at=0):
    n = 1
    for s in shape: n *= s
    t = flat[name][at:at + n].reshape(shape)
    return t, f"reshape(slice({name}, 0, {at}, {at + n}), {list(shape)})"

cases = []
def case(text, result):
    out = result.contiguous().flatten()
    assert out.numel() <= 400, (text, out.numel())
    cases.append((text, list(result.shape), out))

def conv(fn, name, X, W, B, **kw):
    t = f"{name}({X[1]}, {W[1]}" + (f", {B[1]}" if B else "") + "".join(f", {k}={list(a) if isinstance(a, tuple) else a}" for k, a in kw.items()) + ")"
    case(t, fn(X[0], W[0], B[0] if B else None, **kw))

# windows
X = T('x', 3, 7)
case(f"window({X[1]}, 1, 3, 2)", X[0].unfold(1, 3, 2))
# convolutions
conv(F.conv1d, 'conv1d', T('x', 2, 3, 9), T('w', 4, 3, 3), T('v', 4), stride=2, padding=1)
conv(F.conv1d, 'conv1d', T('x', 4, 9), T('w', 4, 2, 2), None, dilation=3, groups=2)
conv(F.conv2d, 'conv2d', T('x', 2, 3, 5, 6), T('w', 4, 3, 3, 3), T('v', 4), padding=1)
conv(F.conv2d, 'conv2d', T('x', 1, 4, 7, 6), T('w', 6, 2, 3, 2), T('v', 6), stride=(2, 1), padding=(2, 0), dilation=(1, 2), groups=2)
conv(F.conv2d, 'conv2d', T('x', 3, 4, 4), T('w', 2, 3, 1, 1), None)
conv(F.conv2d, 'conv2d', T('x', 1, 6, 5, 5), T('w', 6, 1, 3, 3), T('v', 6), stride=2, padding=1, groups=6)
conv(F.conv2d, 'conv2d', T('x', 1, 40, 3, 4), T('w', 3, 40, 2, 2), None, padding=1)
conv(F.conv3d, 'conv3d', T('x', 1, 2, 4, 3, 5), T('w', 3, 2, 2, 3, 2), T('v', 3), stride=(2, 1, 2), padding=(1, 1, 0))
conv(F.conv_transpose1d, 'conv_transpose1d', T('x', 2, 3, 4), T('w', 3, 2, 3), T('v', 2), stride=2, padding=1, output_padding=1)
conv(F.conv_transpose2d, 'conv_transpose2d', T('x', 1, 4, 3, 3), T('w', 4, 2, 3, 2), T('v', 4), stride=(2, 3), padding=(0, 1), output_padding=(1, 0), groups=2, dilation=(2, 1))
conv(F.conv_transpose2d, 'conv_transpose2d', T('x', 2, 3, 3), T('w', 2, 3, 2, 2), None)
conv(F.conv_transpose3d, 'conv_transpose3d', T('x', 1, 2, 2, 2, 2), T('w', 2, 2, 2, 1, 2), T('v', 2), stride=2, padding=(1, 0, 0))
# pools
X = T('x', 2, 2, 5, 6)
case(f"max_pool2d({X[1]}, 3, 2, 1)", F.max_pool2d(X[0], 3, 2, 1))
case(f"max_pool2d({X[1]}, [2, 3], ceil_mode=true)", F.max_pool2d(X[0], (2, 3), ceil_mode=True))
case(f"max_pool2d({X[1]}, 2, 1, 0, 2)", F.max_pool2d(X[0], 2, 1, 0, 2))
X = T('x', 3, 10)
case(f"max_pool1d({X[1]}, 3)", F.max_pool1d(X[0], 3))
case(f"avg_pool1d({X[1]}, 3, 2, 1)", F.avg_pool1d(X[0], 3, 2, 1))
X = T('x', 1, 2, 3, 4, 5)
case(f"max_pool3d({X[1]}, 2, 2, 1)", F.max_pool3d(X[0], 2, 2, 1))
case(f"avg_pool3d({X[1]}, 2, 1, 1, count_include_pad=false)", F.avg_pool3d(X[0], 2, 1, 1, count_include_pad=False))
X = T('x', 2, 2, 5, 6)
case(f"avg_pool2d({X[1]}, 3, 2, 1)", F.avg_pool2d(X[0], 3, 2, 1))
case(f"avg_pool2d({X[1]}, 3, 2, 1, true)", F.avg_pool2d(X[0], 3, 2, 1, True))
case(f"avg_pool2d({X[1]}, [3, 2], 3, 1, true, false)", F.avg_pool2d(X[0], (3, 2), 3, 1, True, False))
case(f"avg_pool2d({X[1]}, 2, 2, 0, true)", F.avg_pool2d(X[0], 2, 2, 0, True))
case(f"avg_pool2d({X[1]}, 2, divisor_override=3)", F.avg_pool2d(X[0], 2, divisor_override=3))
case(f"adaptive_avg_pool2d({X[1]}, 1)", F.adaptive_avg_pool2d(X[0], 1))
case(f"adaptive_avg_pool2d({X[1]}, [5, 3])", F.adaptive_avg_pool2d(X[0], (5, 3)))
case(f"adaptive_avg_pool2d({X[1]}, [3, 4])", F.adaptive_avg_pool2d(X[0], (3, 4)))
case(f"adaptive_avg_pool2d({X[1]}, 7)", F.adaptive_avg_pool2d(X[0], 7))
case(f"adaptive_max_pool2d({X[1]}, [2, 4])", F.adaptive_max_pool2d(X[0], (2, 4)))
case(f"adaptive_max_pool2d({X[1]}, 1)", F.adaptive_max_pool2d(X[0], 1))
X = T('x', 2, 7)
case(f"adaptive_avg_pool1d({X[1]}, 3)", F.adaptive_avg_pool1d(X[0], 3))
case(f"adaptive_max_pool1d({X[1]}, 3)", F.adaptive_max_pool1d(X[0], 3))
X = T('x', 2, 3, 4, 4)
case(f"adaptive_avg_pool3d({X[1]}, [2, 3, 2])", F.adaptive_avg_pool3d(X[0], (2, 3, 2)))
# norms
X, M, Vv, W, B = T('x', 2, 4, 3, 2), T('w', 4), T('v', 4, at=20), T('w', 4, at=8), T('v', 4)
var = (Vv[0].square() + 0.25, f"square({Vv[1]}) + 0.25")
case(f"batch_norm({X[1]}, {M[1]}, {var[1]}, {W[1]}, {B[1]})", F.batch_norm(X[0], M[0], var[0], W[0], B[0]))
case(f"batch_norm({X[1]}, {M[1]}, {var[1]}, eps=0.5)", F.batch_norm(X[0], M[0], var[0], eps=0.5))
case(f"batch_norm({X[1]}, {M[1]}, {var[1]}, {W[1]}, {B[1]}, training=true)", F.batch_norm(X[0], M[0].clone(), var[0].clone(), W[0], B[0], training=True))
case(f"instance_norm({X[1]}, weight={W[1]}, bias={B[1]})", F.instance_norm(X[0], weight=W[0], bias=B[0]))
case(f"instance_norm({X[1]}, {M[1]}, {var[1]}, use_input_stats=false)", F.instance_norm(X[0], M[0], var[0], use_input_stats=False))
case(f"group_norm({X[1]}, 2, {W[1]}, {B[1]})", F.group_norm(X[0], 2, W[0], B[0]))
case(f"group_norm({T('x', 3, 6)[1]}, 3)", F.group_norm(T('x', 3, 6)[0], 3))
# attention
Q, K, V = T('x', 2, 3, 5, 4), T('w', 2, 3, 6, 4), T('v', 2, 3, 6, 3)
sdpa = F.scaled_dot_product_attention
case(f"scaled_dot_product_attention({Q[1]}, {K[1]}, {V[1]})", sdpa(Q[0], K[0], V[0]))
case(f"scaled_dot_product_attention({Q[1]}, {K[1]}, {V[1]}, is_causal=true, scale=0.3)", sdpa(Q[0], K[0], V[0], is_causal=True, scale=0.3))
Mk = T('w', 5, 6, at=300)
case(f"scaled_dot_product_attention({Q[1]}, {K[1]}, {V[1]}, {Mk[1]})", sdpa(Q[0], K[0], V[0], Mk[0]))
bm = (Mk[0] > 0); bm[2] = False
case(f"scaled_dot_product_attention({Q[1]}, {K[1]}, {V[1]}, logical_and({Mk[1]} > 0, reshape(arange(0, 5) != 2, [5, 1])))", sdpa(Q[0], K[0], V[0], bm))
K2, V2 = T('w', 2, 2, 6, 4), T('v', 2, 2, 6, 3)
Q4 = T('x', 2, 4, 5, 4)
Mh = T('w', 4, 5, 6, at=300)
case(f"scaled_dot_product_attention({Q4[1]}, {K2[1]}, {V2[1]}, {Mh[1]}, enable_gqa=true)", sdpa(Q4[0], K2[0], V2[0], Mh[0], enable_gqa=True))
Qm, Km, Vm = T('x', 5, 4), T('w', 6, 4), T('v', 6, 3)
case(f"scaled_dot_product_attention({Qm[1]}, {Km[1]}, {Vm[1]})", sdpa(Qm[0], Km[0], Vm[0]))
# interpolate
X = T('x', 1, 2, 4, 5)
case(f"interpolate({X[1]}, scale_factor=2)", F.interpolate(X[0], scale_factor=2))
case(f"interpolate({X[1]}, [7, 3])", F.interpolate(X[0], (7, 3)))
case(f"interpolate({X[1]}, scale_factor=1.7)", F.interpolate(X[0], scale_factor=1.7))
case(f"interpolate({X[1]}, [7, 9], linear=true)", F.interpolate(X[0], (7, 9), mode='bilinear'))
case(f"interpolate({X[1]}, [2, 9], linear=true, align_corners=true)", F.interpolate(X[0], (2, 9), mode='bilinear', align_corners=True))
case(f"interpolate({X[1]}, scale_factor=0.6, linear=true)", F.interpolate(X[0], scale_factor=0.6, mode='bilinear'))
X = T('x', 2, 3, 4)
case(f"interpolate({X[1]}, 7, linear=true)", F.interpolate(X[0], 7, mode='linear'))
X = T('x', 1, 1, 2, 3, 2)
case(f"interpolate({X[1]}, [3, 4, 5], linear=true)", F.interpolate(X[0], (3, 4, 5), mode='trilinear'))
# blocks
X = T('x', 2, 2, 4, 5)
case(f"unfold({X[1]}, [2, 3], 1, [1, 0], 2)", F.unfold(X[0], (2, 3), 1, (1, 0), 2))
case(f"unfold({T('x', 2, 4, 5)[1]}, 2, 2)", F.unfold(T('x', 2, 4, 5)[0], 2, 2))
X = T('x', 2, 12, 6)
case(f"fold({X[1]}, [4, 5], [2, 3], 1, [1, 0], 2)", F.fold(X[0], (4, 5), (2, 3), 1, (1, 0), 2))
X = T('x', 8, 6)
case(f"fold({X[1]}, [4, 5], 2, [2, 2])", F.fold(X[0], (4, 5), 2, (2, 2)))

FIRST = 8
with open('tests/unit/network_cases.h', 'w') as out:
    out.write('/* Generated by tests/reference/network_ops.py with PyTorch %s. An expression over x, w and v (see\n'
              ' * test_network_ops.c), the sizes of its value, the first %d elements, and the sum of all elements,\n'
              ' * element i times i * 7 %% 13 + 1. */\n' % (torch.__version__.split('+')[0], FIRST))
    out.write('enum { FIRST = %d };\n\nstatic const struct {\n    const char *call;\n    cb_dim_list sizes;\n'
              '    double first[FIRST], sum, magnitude;\n} cases[] = {\n' % FIRST)
    for text, shape, data in cases:
        weight = torch.arange(len(data), dtype=torch.float64) * 7 % 13 + 1
        first = ', '.join('%.8g' % d.item() for d in data[:FIRST])
        out.write('    {"%s",\n     {%d, {%s}},\n     {%s},\n     %.10g,\n     %.4g},\n' % (
            text, len(shape), ', '.join(map(str, shape)) or '0', first, (data * weight).sum().item(),
            (data.abs() * weight).sum().item()))
    out.write('};\n')
print(len(cases))
