# one channel to a group: the weight's gradient is a sum for each tap, all of one kernel
graph(x: f32[8, 64, 28, 28], w: f32[64, 1, 3, 3]) {
  return convolution(x, w, stride=[1, 1], padding=[1, 1], dilation=[1, 1], groups=64)
}
--- grad plan
  convolution v2 = v0 * v1 [8 x 64 of 28x28 -> 64 of 28x28, kernel 3x3, padding 1x1, groups 64]
  convolution v4 = v3 * v1 [8 x 64 of 28x28 -> 64 of 28x28, kernel 3x3, padding 1x1, groups 64]
  k0_ge_logical_and_where_mul(v0, v3, v5, v6, v7, v8, v9, v10, v11, v12, v13)
  k1_lt_where(v5, v6, v7, v8, v9, v10, v11, v12, v13, v14)
  return v2 f32[8, 64, 28, 28]
  return v4 f32[8, 64, 28, 28]
  return v14 f32[64, 1, 3, 3]
