# the gradient of a convolution's weight: the windows of x, and one product
graph(x: f32[16, 64, 16, 16], w: f32[64, 64, 3, 3]) {
  return conv2d(x, w, padding=1)
}
--- grad plan
  convolution v2 = v0 * v1 [16 x 64 of 16x16 -> 64 of 16x16, kernel 3x3, padding 1x1]
  convolution v4 = v3 * v1 [16 x 64 of 16x16 -> 64 of 16x16, kernel 3x3, padding 1x1]
  k0_copy(v3, v5)
  k1_ge_lt_logical_and_ge(v0, v6)
  matmul v7 = v5 @ v6 [1 x 64 x 576 x 4096]
  k2_copy(v7, v8)
  return v2 f32[16, 64, 16, 16]
  return v4 f32[16, 64, 16, 16]
  return v8 f32[64, 64, 3, 3]
