# The gradients of a matrix that every step of a recurrence reads are one product of all steps, of few rows each; those
# of another one, of as many rows as it has, are added up.
graph(x: f32[3, 4, 32], h: f32[4, 32], y: f32[32, 16], w: f32[32, 32], u: f32[32, 32], v: f32[16, 16]) {
  a = tanh(matmul(select(x, 0, 0), t(u)) + matmul(h, w))
  b = tanh(matmul(select(x, 0, 1), t(u)) + matmul(a, w))
  c = tanh(matmul(select(x, 0, 2), t(u)) + matmul(b, w))
  d = tanh(matmul(y, v))
  return c, matmul(d, v)
}
--- grad plan
  matmul v2 = v0 @ v1 [1 x 4 x 32 x 32]
  matmul v5 = v3 @ v4 [1 x 4 x 32 x 32] then k0_add_tanh(v5, v2)
  matmul v6 = v5 @ v1 [1 x 4 x 32 x 32]
  matmul v7 = v3 @ v4 [1 x 4 x 32 x 32] then k1_add_tanh(v7, v6)
  matmul v8 = v7 @ v1 [1 x 4 x 32 x 32]
  matmul v9 = v3 @ v4 [1 x 4 x 32 x 32] then k2_add_tanh_mul_sub(v9, v8, v10, v11, v12)
  matmul v15 = v13 @ v14 [1 x 32 x 16 x 16] then k3_tanh(v15)
  matmul v16 = v15 @ v14 [1 x 32 x 16 x 16]
  matmul v17 = v12 @ v1 [1 x 4 x 32 x 32] then k4_mul_sub_mul(v17, v7)
  matmul v18 = v17 @ v1 [1 x 4 x 32 x 32] then k5_mul_sub_mul(v18, v5)
  matmul v19 = v18 @ v4 [1 x 4 x 32 x 32]
  matmul v20 = v17 @ v4 [1 x 4 x 32 x 32]
  matmul v21 = v12 @ v4 [1 x 4 x 32 x 32]
  k6_lt_ge_lt_logical_and(v19, v20, v21, v22)
  matmul v23 = v18 @ v1 [1 x 4 x 32 x 32]
  matmul v25 = v24 @ v14 [1 x 32 x 16 x 16] then k7_mul_sub_mul(v25, v15)
  matmul v26 = v25 @ v14 [1 x 32 x 16 x 16]
  k8_lt_logical_not_ge_lt(v0, v5, v7, v27) with k9_lt_logical_not_ge_lt(v18, v17, v12, v28)
  matmul v29 = v27 @ v28 [1 x 32 x 32 x 12]
  k10_lt_logical_not_ge_lt(v3, v30)
  matmul v31 = v28 @ v30 [1 x 32 x 32 x 12]
  matmul v32 = v13 @ v25 [1 x 16 x 16 x 32]
  matmul v33 = v15 @ v24 [1 x 16 x 16 x 32] then k11_add(v33, v32)
  return v11 f32[4, 32]
  return v16 f32[32, 16]
  return v22 f32[3, 4, 32]
  return v23 f32[4, 32]
  return v26 f32[32, 16]
  return v29 f32[32, 32]
  return v31 f32[32, 32]
  return v33 f32[16, 16]
