# Backward computes again what is cheap to have from a product and its bias: of gelu's inner values only
# the product itself stays in memory.
graph(x: f32[64, 32], w: f32[32, 128], b: f32[128], v: f32[128, 32]) {
  h = matmul(x, w) + b
  u = h * 0.7978845608 * (1 + h * h * 0.044715)
  return matmul(h * 0.5 * (1 + tanh(u)), v)
}
--- grad plan
  matmul v2 = v0 @ v1 [1 x 64 x 128 x 32] then k0_add_mul_add_mul(v2, v3, v4)
  matmul v6 = v4 @ v5 [1 x 64 x 32 x 128]
  matmul v8 = v7 @ v5 [1 x 64 x 128 x 32] then k1_add_mul_add_mul(v8, v2, v3)
  matmul v9 = v8 @ v1 [1 x 64 x 32 x 128]
  matmul v10 = v0 @ v8 [1 x 32 x 128 x 64]
  k2_sum(v8, v11)
  matmul v12 = v4 @ v7 [1 x 128 x 32 x 64]
  return v6 f32[64, 32]
  return v9 f32[64, 32]
  return v10 f32[32, 128]
  return v11 f32[128]
  return v12 f32[128, 32]
