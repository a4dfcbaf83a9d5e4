# the gradient of a convolution's weight: the windows of x, and one product
graph(x: f32[16, 64, 16, 16], w: f32[64, 64, 3, 3]) {
  return conv2d(x, w, stride=2, padding=1)
}
--- grad plan
  convolution v2 = v0 * v1 [16 x 64 of 16x16 -> 64 of 8x8, kernel 3x3, stride 2x2, padding 1x1, channels last]
  k0_copy(v2, v3)
  k1_lt_logical_and_where(v1, v4)
  convolution v6 = v5 * v4 [16 x 64 of 8x8 -> 64 of 9x9, kernel 2x2, padding 1x1, channels last]
  convolution v7 = v5 * v4 [16 x 64 of 8x8 -> 64 of 9x10, kernel 2x1, padding 1x1, channels last]
  convolution v8 = v5 * v4 [16 x 64 of 8x8 -> 64 of 10x9, kernel 1x2, padding 1x1, channels last]
  convolution v9 = v5 * v4 [16 x 64 of 8x8 -> 64 of 10x10, kernel 1x1, padding 1x1, channels last]
  k2_lt_logical_and_logical_not_logical_and(v6, v7, v8, v9, v10)
  k3_copy(v5, v11)
  k4_ge_logical_and_where(v0, v12)
  matmul v13 = v11 @ v12 [1 x 64 x 576 x 1024]
  k5_copy(v13, v14)
  return v3 f32[16, 64, 8, 8]
  return v10 f32[16, 64, 16, 16]
  return v14 f32[64, 64, 3, 3]
