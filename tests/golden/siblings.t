# Several reductions over one read are one kernel.
graph(x: f32[512, 768]) {
  m = mean(x, 1)
  a = amax(x, 1)
  s = sum(square(x), 1)
  return m, a, s
}
--- plan
--- loops
