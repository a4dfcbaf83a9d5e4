# windows of a kernel so large are not stored: batch and channels are exchanged
graph(x: f32[4, 8, 64], w: f32[8, 8, 33]) {
  return conv1d(x, w, padding=16)
}
--- grad plan
  convolution v2 = v0 * v1 [4 x 8 of 64 -> 8 of 64, kernel 33, padding 16, channels last]
  k0_copy(v2, v3)
  convolution v5 = v4 * v1 [4 x 8 of 64 -> 8 of 64, kernel 33, padding 16, channels last]
  k1_copy(v5, v6)
  convolution v7 = v0 * v4 [8 x 4 of 64 -> 8 of 33, kernel 64, padding 16, channels last]
  k2_copy(v7, v8)
  return v3 f32[4, 8, 64]
  return v6 f32[4, 8, 64]
  return v8 f32[8, 8, 33]
