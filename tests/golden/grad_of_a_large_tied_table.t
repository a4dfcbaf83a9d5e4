# A few rows of a large table are looked up, and it is the weight of the last product, under autocast: who reads the
# gradient converts what comes by the product, and finds the sums of the rows.
graph(table: f32[4000, 64], i: i64[40]) {
  weight = to(table, dtype=bf16)
  h = to(tanh(index_select(table, 0, i)), dtype=bf16)
  return to(matmul(h, t(weight)), dtype=f32)
}
--- grad plan
  check v0 in [0, 4000) for index_select
  k0_to(v1, v2) with k1_to(v3, v4)
  matmul v5 = v4 @ v2 [1 x 40 x 64 x 4000, sums in f32] then k2_tanh_to_mul_sub(v0, v1, v5, v6, v7)
  matmul v8 = v6 @ v2 [1 x 40 x 4000 x 64] then k3_copy(v8, v9)
  k4_copy(v10)
  k5_to_scatter(v0, v10)
  k6_to(v0, v10, v11)
  check v11 in [0, 40) for scatter_add
  k7_copy(v12)
  k8_scatter_add(v7, v11, v12)
  k9_maximum_to(v10, v13)
  check v13 in [0, 40) for index_select
  matmul v14 = v4 @ v6 [1 x 4000 x 64 x 40] then k10_ge_where_add(v10, v13, v12, v14, v15)
  return v9 f32[40, 4000]
  return v15 f32[4000, 64]
