# Two that write over one do so apart, and what one leaves alone the next one may not: then kernels
# compute it. A diagonal goes through all of a matrix, and is beside nothing.
graph(x: f32[64, 64], w: f32[64, 64], d: f32[64]) {
  y = tanh(x)
  first = slice_scatter(y, slice(w, 1, 0, 1), 1, 3, 4)
  second = slice_scatter(y, sum(first, 1, true), 1, 5, 6)
  z = exp(x)
  old = slice(z, 1, 7, 8)
  third = slice_scatter(z, slice(w, 1, 0, 1), 1, 3, 4)
  fourth = slice_scatter(third, sum(third, 1, true), 1, 7, 8)
  u = sin(x)
  beside = slice(u, 0, 63, 64)
  fifth = reshape(slice_scatter(reshape(u, [4096]), d, 0, 0, 4096, 65), [64, 64])
  return matmul(second, w), matmul(fourth, w) + old, matmul(fifth, w) + beside
}
--- plan
  k0_copy(v0, v1)
  k1_tanh_ge_lt_logical_and(v2, v1, v3, v4, v5, v6, v7, v8)
  write v4 v5 at 5 by [64, 1]
  matmul v9 = v4 @ v0 [1 x 64 x 64 x 64]
  write v6 v1 at 3 by [64, 1]
  k2_sum(v6, v10)
  k3_ge_lt_logical_and_where(v10, v6, v11)
  matmul v12 = v11 @ v0 [1 x 64 x 64 x 64] then k4_add(v12, v6)
  matmul v13 = v8 @ v0 [1 x 64 x 64 x 64] then k5_add(v13, v7)
  return v9 f32[64, 64]
  return v12 f32[64, 64]
  return v13 f32[64, 64]
