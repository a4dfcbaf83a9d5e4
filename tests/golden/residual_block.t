# A block of ResNet in eval: a step for each convolution, the sum in the last one.
# arguments: 1
graph(x: f32[1, 8, 14, 14], w: f32[8, 8, 3, 3], m: f32[8], v: f32[8], g: f32[8], b: f32[8], w2: f32[8, 8, 3, 3], m2: f32[8], v2: f32[8], g2: f32[8], b2: f32[8]) {
  h = relu(batch_norm(conv2d(x, w, padding=1), m, v, g, b))
  y = relu(batch_norm(conv2d(h, w2, padding=1), m2, v2, g2, b2) + x)
  return y
}
--- plan
  convolution v2 = v0 * v1 [1 x 8 of 14x14 -> 8 of 14x14, kernel 3x3, padding 1x1] then k0_add_relu(v2, v3)
  convolution v5 = v2 * v4 [1 x 8 of 14x14 -> 8 of 14x14, kernel 3x3, padding 1x1] then k1_add_relu(v5, v6, v0)
  return v5 f32[1, 8, 14, 14]
