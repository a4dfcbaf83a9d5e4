# What is had of a product by one addition is no reason to keep another value in its place.
graph(x: f32[64, 32], w: f32[32, 128], b: f32[128], v: f32[128, 32]) {
  return matmul(square(matmul(x, w) + b), v)
}
--- grad plan
  matmul v2 = v0 @ v1 [1 x 64 x 128 x 32] then k0_add_square(v2, v3, v4)
  matmul v6 = v4 @ v5 [1 x 64 x 32 x 128]
  matmul v8 = v7 @ v5 [1 x 64 x 128 x 32] then k1_mul_add_mul(v8, v2, v3)
  matmul v9 = v8 @ v1 [1 x 64 x 32 x 128]
  matmul v10 = v0 @ v8 [1 x 32 x 128 x 64]
  k2_sum(v8, v11)
  matmul v12 = v4 @ v7 [1 x 128 x 32 x 64]
  return v6 f32[64, 32]
  return v9 f32[64, 32]
  return v10 f32[32, 128]
  return v11 f32[128]
  return v12 f32[128, 32]
