# layer norm: what x - mean loses to rounding has no gradient
graph(x: f32[512, 768], w: f32[768], b: f32[768]) {
  return layer_norm(x, [768], w, b)
}
--- grad
graph(arg0: f32[512, 768], arg1: f32[768], arg2: f32[768], arg3: f32[512, 768]) {
  layer_norm = layer_norm(arg0, normalized=[768], weight=arg1, bias=arg2)
  mul = mul(arg3, arg1)
  mean = mean(arg0, dim=[1], keepdim=true)
  detach = detach(mean)
  sub = sub(arg0, detach)
  square = square(sub)
  mean_1 = mean(square, dim=[1], keepdim=true)
  mean_2 = mean(sub, dim=[1], keepdim=true)
  square_1 = square(mean_2)
  sub_1 = sub(mean_1, square_1)
  maximum = maximum(sub_1, 0.0)
  add = add(maximum, 1e-05)
  rsqrt = rsqrt(add)
  mul_1 = mul(mul, rsqrt)
  lt = lt(sub_1, 0.0)
  eq = eq(sub_1, 0.0)
  neg = neg(mul)
  sum = sum(neg, dim=[1], keepdim=true)
  mul_2 = mul(sum, mean_2)
  mul_3 = mul(mul, sub)
  sum_1 = sum(mul_3, dim=[1], keepdim=true)
  add_1 = add(mul_2, sum_1)
  mul_4 = mul(add_1, -0.5)
  mul_5 = mul(mul_4, rsqrt)
  mul_6 = mul(mul_5, rsqrt)
  mul_7 = mul(mul_6, rsqrt)
  div = div(mul_7, 2.0)
  where = where(eq, div, mul_7)
  where_1 = where(lt, 0.0, where)
  div_1 = div(where_1, 768.0)
  expand = expand(div_1, sizes=[512, 768])
  mul_8 = mul(expand, 2.0)
  mul_9 = mul(mul_8, sub)
  add_2 = add(mul_1, mul_9)
  mul_10 = mul(sum, rsqrt)
  neg_1 = neg(where_1)
  mul_11 = mul(neg_1, 2.0)
  mul_12 = mul(mul_11, mean_2)
  add_3 = add(mul_10, mul_12)
  div_2 = div(add_3, 768.0)
  expand_1 = expand(div_2, sizes=[512, 768])
  add_4 = add(add_2, expand_1)
  mul_13 = mul(sub, rsqrt)
  mul_14 = mul(mean_2, rsqrt)
  sub_2 = sub(mul_13, mul_14)
  mul_15 = mul(arg3, sub_2)
  sum_2 = sum(mul_15, dim=[0], keepdim=true)
  reshape = reshape(sum_2, sizes=[768])
  sum_3 = sum(arg3, dim=[0], keepdim=true)
  reshape_1 = reshape(sum_3, sizes=[768])
  return layer_norm, add_4, reshape, reshape_1
}
--- grad plan
  k0_sum_div_sub_square(v0, v1, v2, v3, v4, v5, v6, v7)
  return v4 f32[512, 768]
  return v5 f32[512, 768]
  return v6 f32[768]
  return v7 f32[768]
