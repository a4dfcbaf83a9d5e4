# The seven-op gelu of the design page: one kernel, one axis.
graph(x: f32[64, 1024]) {
  u = (x + pow(x, 3.0) * 0.044715) * 0.7978845608
  y = (x * 0.5) * (tanh(u) + 1.0)
  return y
}
--- graph
--- plan
--- loops
