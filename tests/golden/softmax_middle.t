# Along a dimension that is not contiguous: lanes across the columns.
graph(x: f32[8, 128, 512]) {
  y = softmax(x, dim=1)
  return y
}
--- plan
--- loops
