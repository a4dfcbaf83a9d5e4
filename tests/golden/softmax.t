graph(x: f32[8, 128, 512]) {
  y = softmax(x, dim=2)
  return y
}
--- plan
--- loops
