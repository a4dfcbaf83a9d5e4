# What the step of another product reads of a product is one value, gelu's derivative: it is kept, and the product not.
graph(x: f32[64, 32], w: f32[32, 128], b: f32[128], v: f32[128, 32]) {
  return matmul(gelu(matmul(x, w) + b, tanh=true), v)
}
--- grad plan
  matmul v2 = v0 @ v1 [1 x 64 x 128 x 32] then k0_add_mul_add_mul(v2, v3, v4, v5)
  matmul v7 = v4 @ v6 [1 x 64 x 32 x 128]
  matmul v9 = v8 @ v6 [1 x 64 x 128 x 32] then k1_mul(v9, v5)
  matmul v10 = v9 @ v1 [1 x 64 x 32 x 128]
  matmul v11 = v0 @ v9 [1 x 32 x 128 x 64]
  k2_sum(v9, v12)
  matmul v13 = v4 @ v8 [1 x 128 x 32 x 64]
  return v7 f32[64, 32]
  return v10 f32[64, 32]
  return v11 f32[32, 128]
  return v12 f32[128]
  return v13 f32[128, 32]
