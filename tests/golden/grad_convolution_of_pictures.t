# the gradient of a picture filter's weight: each tap's windows lie along memory, as rows of a product
graph(x: f32[4, 3, 16, 16], w: f32[16, 3, 5, 5]) {
  return conv2d(x, w, stride=2, padding=2)
}
--- grad plan
  convolution v2 = v0 * v1 [4 x 3 of 16x16 -> 16 of 8x8, kernel 5x5, stride 2x2, padding 2x2, channels last]
  k0_copy(v2, v3)
  k1_lt_logical_and_where(v1, v4)
  convolution v6 = v5 * v4 [4 x 16 of 8x8 -> 3 of 8x8, kernel 3x3, padding 1x1, channels last]
  convolution v7 = v5 * v4 [4 x 16 of 8x8 -> 3 of 8x9, kernel 3x2, padding 1x1, channels last]
  convolution v8 = v5 * v4 [4 x 16 of 8x8 -> 3 of 9x8, kernel 2x3, padding 1x1, channels last]
  convolution v9 = v5 * v4 [4 x 16 of 8x8 -> 3 of 9x9, kernel 2x2, padding 1x1, channels last]
  k2_lt_where(v6, v7, v8, v9, v10)
  k3_ge_lt_logical_and_ge(v0, v11)
  k4_copy(v11, v12)
  k5_copy(v5, v13)
  matmul v14 = v12 @ v13 [1 x 75 x 16 x 256]
  k6_copy(v14, v15)
  return v3 f32[4, 16, 8, 8]
  return v10 f32[4, 3, 16, 16]
  return v15 f32[16, 3, 5, 5]
