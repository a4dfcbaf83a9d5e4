# The end of a residual block: the sum is part of the convolution's step.
graph(x: f32[1, 64, 14, 14], w: f32[256, 64, 1, 1], s: f32[256], t: f32[256], r: f32[1, 256, 14, 14]) {
  c = conv2d(x, w)
  n = c * reshape(s, [256, 1, 1]) + reshape(t, [256, 1, 1])
  y = relu(n + r)
  return y
}
--- plan
  convolution v2 = v0 * v1 [1 x 64 of 14x14 -> 256 of 14x14, kernel 1x1] then k0_mul_add_relu(v2, v3, v4, v5)
  return v2 f32[1, 256, 14, 14]
