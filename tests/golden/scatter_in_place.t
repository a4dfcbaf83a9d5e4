# What nobody needs as it was is scattered to where it lies: products, scatters before. m is needed
# again, and n by what is added to it: those are copied.
graph(x: f32[8, 16], w: f32[16, 4], i: i64[3, 4], s: f32[3, 4]) {
  p = matmul(x, w)
  a = scatter_add(p, 0, i, s)
  b = scatter(a, 0, i, s * 2)
  m = matmul(x * 2, w)
  c = scatter_add(m, 0, i, s)
  n = matmul(x * 3, w)
  d = scatter_add(n, 0, i, slice(n, 0, 0, 3, 1) * s)
  return b, c + m, d
}
--- plan
  check v0 in [0, 8) for scatter_add
  matmul v3 = v1 @ v2 [1 x 8 x 4 x 16]
  k0_scatter_add(v4, v0, v3)
  k1_mul_scatter(v4, v0, v3)
  k2_mul(v1, v5)
  matmul v6 = v5 @ v2 [1 x 8 x 4 x 16]
  k3_copy(v6, v7)
  k4_scatter_add(v4, v0, v7)
  k5_add(v7, v6, v8)
  k6_mul(v1, v9)
  matmul v10 = v9 @ v2 [1 x 8 x 4 x 16]
  k7_copy(v10, v11)
  k8_mul_scatter_add(v10, v4, v0, v11)
  return v3 f32[8, 4]
  return v8 f32[8, 4]
  return v11 f32[8, 4]
