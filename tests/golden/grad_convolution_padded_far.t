# a 3x3 weight whose windows may begin outside of x: no padding of x below g is left for squares
graph(x: f32[3, 17, 5, 6], w: f32[20, 17, 3, 3]) {
  return conv2d(x, w, padding=3)
}
--- grad plan
  convolution v2 = v0 * v1 [3 x 17 of 5x6 -> 20 of 9x10, kernel 3x3, padding 3x3]
  convolution v4 = v3 * v1 [3 x 20 of 9x10 -> 17 of 7x8, kernel 3x3]
  k0_copy(v4, v5)
  k1_copy(v3, v6)
  k2_ge_lt_logical_and_ge(v0, v7)
  k3_copy(v7, v8)
  matmul v9 = v6 @ v8 [1 x 20 x 153 x 270]
  k4_copy(v9, v10)
  return v2 f32[3, 20, 9, 10]
  return v5 f32[3, 17, 5, 6]
  return v10 f32[20, 17, 3, 3]
