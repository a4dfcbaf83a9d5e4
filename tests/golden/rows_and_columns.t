# Row and column sums of one tensor stay apart: different splits.
graph(x: f32[512, 768]) {
  r = sum(x, 1)
  c = sum(x, 0)
  return r, c
}
--- plan
  k0_sum(v0, v1)
  k1_sum(v0, v2)
  return v1 f32[512]
  return v2 f32[768]
