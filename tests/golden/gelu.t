# The seven-op gelu of the design page: one kernel, one axis.
graph(x: f32[64, 1024]) {
  u = (x + pow(x, 3.0) * 0.044715) * 0.7978845608
  y = (x * 0.5) * (tanh(u) + 1.0)
  return y
}
--- graph
graph(arg0: f32[64, 1024]) {
  mul = mul(arg0, 0.5)
  mul_1 = mul(arg0, arg0)
  mul_2 = mul(mul_1, arg0)
  mul_3 = mul(mul_2, 0.044715)
  add = add(arg0, mul_3)
  mul_4 = mul(add, 0.7978846)
  tanh = tanh(mul_4)
  add_1 = add(tanh, 1.0)
  mul_5 = mul(mul, add_1)
  return mul_5
}
--- plan
  k0_mul_add_mul_tanh(v0, v1)
  return v1 f32[64, 1024]
--- loops
kernel k0_mul_add_mul_tanh(outer a0:65536) tile split 1 {
  b0: in f32[65536]
  b1: out f32[65536]
  t6 = f32 load b0[a0]
  t8 = f32 mul t6, 0.5:f32
  t9 = f32 mul t6, t6
  t10 = f32 mul t9, t6
  t12 = f32 mul t10, 0.044714998453855515:f32
  t13 = f32 add t6, t12
  t15 = f32 mul t13, 0.7978845834732056:f32
  t16 = f32 tanh t15
  t18 = f32 add t16, 1.0:f32
  t19 = f32 mul t8, t18
  store b1[a0] = t19
}
