# A layer of AlexNet is one step: convolution, bias and relu.
graph(x: f32[2, 3, 64, 64], w: f32[64, 3, 11, 11], b: f32[64]) {
  y = relu(conv2d(x, w, b, stride=4, padding=2))
  return y
}
--- plan
  convolution v2 = v0 * v1 [2 x 3 of 64x64 -> 64 of 15x15, kernel 11x11, stride 4x4, padding 2x2] then k0_add_relu(v2, v3)
  return v2 f32[2, 64, 15, 15]
