# What meets its own extreme in an op is contracted by name, also through a sign; and a product from
# which it is taken is rounded before, but for one by a power of two. Others are as they are.
graph(x: f32[8, 16], w: f32[16], b: f32[8, 16]) {
  y = x * w
  q = x * b + w
  s = y + b
  u = x * 1.1
  v = x * 0.5
  return y - amin(y), q / amax(abs(q), 1, true), maximum(s, amax(s, 1, true)), u - amin(b), x * 1.5 / amax(x * 1.5), v - amin(v)
}
--- graph
graph(arg0: f32[8, 16], arg1: f32[16], arg2: f32[8, 16]) {
  muladd = muladd(arg0, arg1, -0.0)
  amin = amin(muladd, dim=[0, 1])
  sub = sub(muladd, amin)
  muladd_1 = muladd(arg0, arg2, arg1)
  abs = abs(muladd_1)
  amax = amax(abs, dim=[1], keepdim=true)
  div = div(muladd_1, amax)
  add = add(muladd, arg2)
  amax_1 = amax(add, dim=[1], keepdim=true)
  maximum = maximum(add, amax_1)
  mul = mul(arg0, 1.1)
  amin_1 = amin(arg2, dim=[0, 1])
  sub_1 = sub(mul, amin_1)
  mul_1 = mul(arg0, 1.5)
  amax_2 = amax(mul_1, dim=[0, 1])
  div_1 = div(mul_1, amax_2)
  mul_2 = mul(arg0, 0.5)
  amin_2 = amin(mul_2, dim=[0, 1])
  sub_2 = sub(mul_2, amin_2)
  return sub, div, maximum, sub_1, div_1, sub_2
}
