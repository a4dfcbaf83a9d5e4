# What is compared with its own greatest element is contracted by name; the same sum beside is not,
# nor what is compared with another one's.
graph(x: f32[8, 16], w: f32[16], b: f32[16], g: f32[8, 1]) {
  y = x * w - b
  z = b - x * w
  u = x * b + w
  ties = where(z > amin(z, 1, true), g, 0)
  return where(y == amax(y, 1, true), g, 0), ties, x > amax(u, 1, true), b + x * w
}
--- graph
graph(arg0: f32[8, 16], arg1: f32[16], arg2: f32[16], arg3: f32[8, 1]) {
  neg = neg(arg2)
  muladd = muladd(arg0, arg1, neg)
  amax = amax(muladd, dim=[1], keepdim=true)
  eq = eq(muladd, amax)
  where = where(eq, arg3, 0.0)
  neg_1 = neg(arg0)
  muladd_1 = muladd(neg_1, arg1, arg2)
  amin = amin(muladd_1, dim=[1], keepdim=true)
  gt = gt(muladd_1, amin)
  where_1 = where(gt, arg3, 0.0)
  mul = mul(arg0, arg2)
  add = add(mul, arg1)
  amax_1 = amax(add, dim=[1], keepdim=true)
  gt_1 = gt(arg0, amax_1)
  mul_1 = mul(arg0, arg1)
  add_1 = add(arg2, mul_1)
  return where, where_1, gt_1, add_1
}
