# softmax and its gradient are one kernel
graph(x: f32[256, 1000]) {
  return softmax(x, 1)
}
--- grad
graph(arg0: f32[256, 1000], arg1: f32[256, 1000]) {
  softmax = softmax(arg0, dim=1)
  mul = mul(arg1, softmax)
  sum = sum(mul, dim=[1], keepdim=true)
  sub = sub(arg1, sum)
  mul_1 = mul(softmax, sub)
  return softmax, mul_1
}
--- grad plan
  k0_amax_sub_exp_nonpositive_sum(v0, v1, v2, v3)
  return v2 f32[256, 1000]
  return v3 f32[256, 1000]
