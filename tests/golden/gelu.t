# The seven-op gelu of the design page: one kernel, one axis.
graph(x: f32[64, 1024]) {
  u = (x + pow(x, 3.0) * 0.044715) * 0.7978845608
  y = (x * 0.5) * (tanh(u) + 1.0)
  return y
}
--- graph
graph(arg0: f32[64, 1024]) {
  mul = mul(arg0, arg0)
  mul_1 = mul(mul, arg0)
  mul_2 = mul(mul_1, 0.044715)
  add = add(arg0, mul_2)
  mul_3 = mul(add, 1.5957692)
  sigmoid = sigmoid(mul_3)
  mul_4 = mul(arg0, sigmoid)
  return mul_4
}
--- plan
  k0_mul_add_mul_sigmoid(v0, v1)
  return v1 f32[64, 1024]
--- loops
kernel k0_mul_add_mul_sigmoid(outer a0:65536) tile split 1 {
  b0: in f32[65536]
  b1: out f32[65536]
  t5 = f32 load b0[a0]
  t6 = f32 mul t5, t5
  t7 = f32 mul t6, t5
  t9 = f32 mul t7, 0.044714998453855515:f32
  t10 = f32 add t5, t9
  t12 = f32 mul t10, 1.5957691669464111:f32
  t13 = f32 sigmoid t12
  t14 = f32 mul t5, t13
  store b1[a0] = t14
}
