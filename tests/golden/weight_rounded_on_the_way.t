# A weight in f32 is rounded by the products that read it, in either layout, and no kernel writes it in
# bf16. One that is computed is rounded where it is, and so is one that fewer rows read.
graph(x: bf16[64, 96], w: f32[32, 96], g: bf16[64, 32], few: bf16[63, 96], v: f32[32, 96]) {
  h = to(w, dtype=bf16)
  computed = to(w * 2, dtype=bf16)
  other = to(v, dtype=bf16)
  return matmul(x, permute(h, [1, 0])), matmul(g, h), matmul(x, permute(computed, [1, 0])), matmul(few, permute(other, [1, 0]))
}
--- plan
  matmul v2 = v0 @ v1 [1 x 64 x 32 x 96, rounds b]
  matmul v4 = v3 @ v1 [1 x 64 x 96 x 32, rounds b]
  k0_mul_to(v1, v5)
  matmul v6 = v0 @ v5 [1 x 64 x 32 x 96]
  k1_to(v7, v8)
  matmul v10 = v9 @ v8 [1 x 63 x 32 x 96]
  return v2 bf16[64, 32]
  return v4 bf16[64, 96]
  return v6 bf16[64, 32]
  return v10 bf16[63, 32]
