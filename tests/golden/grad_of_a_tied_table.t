# Rows of a table are looked up, and it is the weight of the last product: what comes by the rows is added to what comes
# by the product, where that lies, but not to what comes to b by another way.
graph(b: f32[50, 16], c: f32[50, 16], i: i64[8], j: i64[4]) {
  table = b + c
  h = tanh(index_select(table, 0, i))
  return matmul(h, t(table)), index_select(table, 0, j), exp(b)
}
--- grad plan
  check v0 in [0, 50) for index_select
  check v1 in [0, 50) for index_select
  k0_add(v2, v3, v4)
  matmul v6 = v5 @ v4 [1 x 8 x 16 x 50] then k1_tanh_mul_sub_mul(v0, v4, v6, v7, v8)
  matmul v9 = v7 @ v4 [1 x 8 x 50 x 16]
  k2_copy(v1, v4, v10)
  matmul v11 = v5 @ v7 [1 x 50 x 16 x 8]
  k3_scatter_add(v12, v1, v11)
  k4_scatter_add(v8, v0, v11)
  k5_exp_mul_add(v2, v13, v11, v14, v15)
  return v9 f32[8, 50]
  return v10 f32[4, 16]
  return v14 f32[50, 16]
  return v15 f32[50, 16]
  return v11 f32[50, 16]
