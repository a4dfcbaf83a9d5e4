# a kernel of one point: x is its own windows
graph(x: f32[16, 16, 16, 64], w: f32[32, 1, 1, 64]) {
  return convolution(x, w, stride=[1, 1], padding=[0, 0], dilation=[1, 1], channels_last=true)
}
--- grad plan
  convolution v2 = v0 * v1 [16 x 64 of 16x16 -> 32 of 16x16, kernel 1x1, channels last]
  convolution v4 = v3 * v1 [16 x 32 of 16x16 -> 64 of 16x16, kernel 1x1]
  k0_copy(v4, v5)
  matmul v6 = v3 @ v0 [1 x 32 x 64 x 4096]
  return v2 f32[16, 16, 16, 32]
  return v5 f32[16, 16, 16, 64]
  return v6 f32[32, 1, 1, 64]
