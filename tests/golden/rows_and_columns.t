# Row and column sums of one tensor stay apart: different splits.
graph(x: f32[512, 768]) {
  r = sum(x, 1)
  c = sum(x, 0)
  return r, c
}
--- plan
