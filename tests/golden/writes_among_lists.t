# Kernels of one kind are one step, but none waits for a later one past a write to what it computes,
# of what it computes, or to what it reads; nor is one that reads what was there before computed
# with what reads it behind the write.
graph(x: f32[48, 48], w: f32[48, 48], v: f32[48, 1], q: f32[48, 48], r: f32[48, 1]) {
  y = tanh(x)
  written = slice_scatter(y, v, 1, 3, 4)
  part = exp(slice(x, 1, 0, 1))
  other = slice_scatter(matmul(x, w), part, 1, 5, 6)
  u = cumsum(w, 0)
  before = abs(slice(u, 1, 0, 1))
  third = slice_scatter(u, slice(w, 1, 0, 1), 1, 0, 1)
  return before, matmul(written, tanh(q)), exp(slice(matmul(other, w), 1, 0, 1)), before * slice(matmul(third, x), 1, 0, 1), abs(r)
}
--- plan
  k0_cumsum(v0, v1, v2)
  k1_abs(v1, v3)
  k2_tanh(v4, v5)
  write v5 v6 at 3 by [48, 1]
  k3_tanh(v7, v8)
  matmul v9 = v5 @ v8 [1 x 48 x 48 x 48]
  matmul v10 = v4 @ v0 [1 x 48 x 48 x 48]
  k4_exp(v4, v11)
  write v10 v11 at 5 by [48, 1]
  matmul v12 = v10 @ v0 [1 x 48 x 48 x 48]
  k5_exp(v12, v13)
  write v1 v2 at 0 by [48, 1]
  matmul v14 = v1 @ v4 [1 x 48 x 48 x 48]
  k6_mul(v3, v14, v15)
  k7_abs(v16, v17)
  return v3 f32[48, 1]
  return v9 f32[48, 48]
  return v13 f32[48, 1]
  return v15 f32[48, 1]
  return v17 f32[48, 1]
