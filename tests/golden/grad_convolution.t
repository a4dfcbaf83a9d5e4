# the gradient of a 3x3 weight, stride 1: a convolution with 3 x 3 positions, which Winograd computes
graph(x: f32[16, 64, 16, 16], w: f32[64, 64, 3, 3]) {
  return conv2d(x, w, padding=1)
}
--- grad plan
  convolution v2 = v0 * v1 [16 x 64 of 16x16 -> 64 of 16x16, kernel 3x3, padding 1x1]
  convolution v4 = v3 * v1 [16 x 64 of 16x16 -> 64 of 16x16, kernel 3x3, padding 1x1]
  convolution v5 = v3 * v0 [64 x 16 of 16x16 -> 64 of 3x3, kernel 16x16, padding 1x1, channels last]
  k0_copy(v5, v6)
  return v2 f32[16, 64, 16, 16]
  return v4 f32[16, 64, 16, 16]
  return v6 f32[64, 64, 3, 3]
