# nine pieces that a product reads are written one by one, in the order in which they are computed, but for zeros
graph(x: f32[9, 4, 16], w: f32[16, 16]) {
  a = tanh(select(x, 0, 0))
  b = exp(a)
  c = tanh(b)
  d = exp(c)
  z = zeros_like(a)
  s = concat(concat(concat(d, c, dim=0), concat(b, a, dim=0), dim=0), concat(concat(z, d, dim=0), concat(concat(c, b, dim=0), a, dim=0), dim=0), dim=0)
  return matmul(s, w)
}
--- graph
graph(arg0: f32[9, 4, 16], arg1: f32[16, 16]) {
  expand = expand(constant(0.0, f32), sizes=[36, 16])
  slice = slice(arg0, dim=0, end=1)
  reshape = reshape(slice, sizes=[4, 16])
  tanh = tanh(reshape)
  slice_scatter = slice_scatter(expand, tanh, dim=0, start=12, end=16)
  slice_scatter_1 = slice_scatter(slice_scatter, tanh, dim=0, start=32, end=36)
  exp = exp(tanh)
  slice_scatter_2 = slice_scatter(slice_scatter_1, exp, dim=0, start=8, end=12)
  slice_scatter_3 = slice_scatter(slice_scatter_2, exp, dim=0, start=28, end=32)
  tanh_1 = tanh(exp)
  slice_scatter_4 = slice_scatter(slice_scatter_3, tanh_1, dim=0, start=4, end=8)
  slice_scatter_5 = slice_scatter(slice_scatter_4, tanh_1, dim=0, start=24, end=28)
  exp_1 = exp(tanh_1)
  slice_scatter_6 = slice_scatter(slice_scatter_5, exp_1, dim=0, end=4)
  slice_scatter_7 = slice_scatter(slice_scatter_6, exp_1, dim=0, start=20, end=24)
  matmul = matmul(slice_scatter_7, arg1)
  return matmul
}
--- plan
  k0_copy(v0)
  k1_tanh_exp_tanh_exp(v1, v2, v3, v4, v5)
  write v0 v2 at 192 by [16, 1], v2 at 512 by [16, 1], v3 at 128 by [16, 1], v3 at 448 by [16, 1], v4 at 64 by [16, 1], v4 at 384 by [16, 1], v5 at 0 by [16, 1], v5 at 320 by [16, 1]
  matmul v7 = v0 @ v6 [1 x 36 x 16 x 16]
  return v7 f32[36, 16]
