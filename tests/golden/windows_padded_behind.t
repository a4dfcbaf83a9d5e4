# A padding behind the columns alone, below windows, is a value of its own, too
graph(x: f32[100, 120]) {
  y = sum(window(window(pad(x, padding=[0, 2]), 0, 3), 1, 3), [2, 3])
  return y
}
--- plan
  k0_lt_where(v0, v1)
  k1_sum(v1, v2)
  return v2 f32[98, 120]
