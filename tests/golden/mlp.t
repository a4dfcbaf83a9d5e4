# A layer is one step: matrix product, bias and relu.
graph(x: f32[64, 784], w: f32[512, 784], b: f32[512], v: f32[10, 512], c: f32[10]) {
  h = relu(linear(x, w, b))
  y = linear(h, v, c)
  return y
}
--- plan
--- loops
