# The product itself is read, too, so it is there: gelu's derivative is computed again from it.
graph(x: f32[64, 32], w: f32[32, 128], v: f32[128, 32], u: f32[128, 8]) {
  a = matmul(x, w)
  return matmul(gelu(a, tanh=true), v), matmul(a, u)
}
--- grad plan
  matmul v2 = v0 @ v1 [1 x 64 x 128 x 32] then k0_mul_add_mul_sigmoid(v2, v3)
  matmul v5 = v3 @ v4 [1 x 64 x 32 x 128]
  matmul v7 = v2 @ v6 [1 x 64 x 8 x 128]
  matmul v9 = v8 @ v4 [1 x 64 x 128 x 32]
  matmul v11 = v10 @ v6 [1 x 64 x 128 x 8] then k1_mul_add_mul_sigmoid(v11, v9, v2)
  matmul v12 = v11 @ v1 [1 x 64 x 32 x 128]
  matmul v13 = v0 @ v11 [1 x 32 x 128 x 64]
  matmul v14 = v3 @ v8 [1 x 128 x 32 x 64]
  matmul v15 = v2 @ v10 [1 x 128 x 8 x 64]
  return v5 f32[64, 32]
  return v7 f32[64, 8]
  return v12 f32[64, 32]
  return v13 f32[32, 128]
  return v14 f32[128, 32]
  return v15 f32[128, 8]
