# Of a product whose last row alone is needed, that row; and of one that is needed elsewhere, all.
graph(x: f32[2, 8, 16], w: f32[16, 24], b: f32[24], v: f32[16, 4], c: f32[2, 8, 24]) {
  last = select(relu(matmul(x, w) + b), 1, -1)
  all = matmul(x, v)
  columns = narrow(matmul(x, w * 2), 2, 3, 5)
  full = narrow(matmul(x, w * 3) + c, 1, 2, 2)
  return last, all, narrow(all, 1, 2, 2), columns, full
}
--- graph
graph(arg0: f32[2, 8, 16], arg1: f32[16, 24], arg2: f32[24], arg3: f32[16, 4], arg4: f32[2, 8, 24]) {
  slice = slice(arg0, dim=1, start=7, end=8)
  matmul = matmul(slice, arg1)
  add = add(matmul, arg2)
  relu = relu(add)
  reshape = reshape(relu, sizes=[2, 24])
  matmul_1 = matmul(arg0, arg3)
  slice_1 = slice(matmul_1, dim=1, start=2, end=4)
  mul = mul(arg1, 2.0)
  matmul_2 = matmul(arg0, mul)
  slice_2 = slice(matmul_2, dim=2, start=3, end=8)
  mul_1 = mul(arg1, 3.0)
  matmul_3 = matmul(arg0, mul_1)
  add_1 = add(matmul_3, arg4)
  slice_3 = slice(add_1, dim=1, start=2, end=4)
  return reshape, matmul_1, slice_1, slice_2, slice_3
}
--- plan
  matmul v2 = v0 @ v1 [2 x 1 x 24 x 16] then k0_add_relu(v2, v3)
  matmul v5 = v0 @ v4 [2 x 8 x 4 x 16]
  k1_copy(v5, v6)
  k2_mul(v1, v7)
  matmul v8 = v0 @ v7 [2 x 8 x 24 x 16]
  k3_copy(v8, v9)
  k4_mul(v1, v10)
  matmul v11 = v0 @ v10 [2 x 8 x 24 x 16] then k5_add(v11, v12)
  k6_copy(v11, v13)
  return v2 f32[2, 24]
  return v5 f32[2, 8, 4]
  return v6 f32[2, 2, 4]
  return v9 f32[2, 8, 5]
  return v13 f32[2, 2, 24]
