# Activations that are one op each to the engines: lower/join.c.
graph(x: f32[4096]) {
  a = gelu(x)
  b = hardswish(a)
  c = leaky_relu(b)
  d = hardsigmoid(c)
  e = softshrink(d)
  f = hardshrink(e, 0.25)
  g = hardtanh(f)
  return g
}
--- plan
  k0_gelu_value_hardswish_value_leaky_value_hardsigmoid_value(v0, v1)
  return v1 f32[4096]
--- loops
kernel k0_gelu_value_hardswish_value_leaky_value_hardsigmoid_value(outer a0:4096) tile split 1 {
  b0: in f32[4096]
  b1: out f32[4096]
  t1 = f32 load b0[a0]
  t9 = f32 gelu_value t1
  t19 = f32 hardswish_value t9
  t23 = f32 leaky_value t19, 0.009999999776482582:f32
  t29 = f32 hardsigmoid_value t23
  t37 = f32 softshrink_value t29, 0.5:f32
  t41 = f32 hardshrink_value t37, 0.25:f32
  t46 = f32 clamp_value t41, -1.0:f32, 1.0:f32
  store b1[a0] = t46
}
