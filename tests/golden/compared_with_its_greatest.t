# What is compared with its own greatest element is contracted by name; the same sum beside is not.
graph(x: f32[8, 16], w: f32[16], b: f32[16], g: f32[8, 1]) {
  y = x * w - b
  m = amax(y, 1, true)
  z = b - x * w
  return where(y == m, g, 0), z
}
--- graph
graph(arg0: f32[8, 16], arg1: f32[16], arg2: f32[16], arg3: f32[8, 1]) {
  neg = neg(arg2)
  muladd = muladd(arg0, arg1, neg)
  amax = amax(muladd, dim=[1], keepdim=true)
  eq = eq(muladd, amax)
  where = where(eq, arg3, 0.0)
  mul = mul(arg0, arg1)
  sub = sub(arg2, mul)
  return where, sub
}
