# What inputs take as wholes is computed last, where that keeps less than its results: so no product is
# behind it that may fail, and it is computed where the inputs lie. A sum over more than it gives is
# computed at once.
graph(x: f32[64, 64], w: f32[64, 64], v: f32[64, 64], m: f32[64, 64], b: f32[64], y: f32[64, 64]) {
  g = matmul(x, w)
  moment = m * 0.9 + g
  mutate m = moment
  mutate w = w - moment * 0.1
  h = matmul(g, v)
  mutate b = b - sum(h, dim=0)
  mutate y = matmul(matmul(h, v), v)
  return
}
--- plan
  matmul v2 = v0 @ v1 [1 x 64 x 64 x 64]
  matmul v4 = v2 @ v3 [1 x 64 x 64 x 64]
  k0_sum_sub(v4, v5, v6)
  matmul v7 = v4 @ v3 [1 x 64 x 64 x 64]
  matmul v8 = v7 @ v3 [1 x 64 x 64 x 64]
  k1_mul_add_mul_sub(v9, v2, v1, v10, v11)
  mutate v10 f32[64, 64] -> input 3
  mutate v11 f32[64, 64] -> input 1
  mutate v6 f32[64] -> input 4
  mutate v8 f32[64, 64] -> input 5
