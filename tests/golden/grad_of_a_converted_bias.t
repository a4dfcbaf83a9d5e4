# A bias that is rounded on the way is an argument of its epilogue as any other, so its gelu's inner values are computed
# again, and gelu's derivative takes the sigmoid that gelu has: what is kept is the one, and not the product.
graph(x: bf16[64, 32], w: bf16[32, 128], b: f32[128], v: bf16[128, 32]) {
  h = matmul(x, w) + to(b, dtype=bf16)
  return matmul(gelu(h, tanh=true), v)
}
--- grad plan
  matmul v2 = v0 @ v1 [1 x 64 x 128 x 32, sums in f32] then k0_to_add_mul_add(v2, v3, v4, v5)
  matmul v7 = v4 @ v6 [1 x 64 x 32 x 128]
  matmul v9 = v8 @ v6 [1 x 64 x 128 x 32, sums in f32] then k1_mul(v9, v5, v10)
  matmul v11 = v10 @ v1 [1 x 64 x 32 x 128]
  matmul v12 = v0 @ v10 [1 x 32 x 128 x 64]
  k2_sum(v10, v13)
  matmul v14 = v4 @ v8 [1 x 128 x 32 x 64]
  return v7 bf16[64, 32]
  return v11 bf16[64, 32]
  return v12 bf16[32, 128]
  return v13 f32[128]
  return v14 bf16[128, 32]
