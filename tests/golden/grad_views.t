# views, a broadcast, a value that two ops use, and an input that only comparisons read
graph(x: f32[8, 6], y: f32[6], c: f32[8, 6]) {
  a = t(x)
  s = slice(a, 0, 1, 5)
  z = where(c > 0, x * y, sigmoid(x))
  return s, z
}
--- grad
graph(arg0: f32[8, 6], arg1: f32[6], arg2: f32[8, 6], arg3: f32[4, 8], arg4: f32[8, 6]) {
  permute = permute(arg0, dims=[1, 0])
  slice = slice(permute, dim=0, start=1, end=5)
  gt = gt(arg2, 0.0)
  mul = mul(arg0, arg1)
  sigmoid = sigmoid(arg0)
  where = where(gt, mul, sigmoid)
  where_1 = where(gt, 0.0, arg4)
  mul_1 = mul(where_1, sigmoid)
  sub = sub(1.0, sigmoid)
  mul_2 = mul(mul_1, sub)
  where_2 = where(gt, arg4, 0.0)
  mul_3 = mul(where_2, arg1)
  add = add(mul_2, mul_3)
  zeros_like = zeros_like(permute)
  slice_scatter = slice_scatter(zeros_like, arg3, dim=0, start=1, end=5)
  permute_1 = permute(slice_scatter, dims=[1, 0])
  add_1 = add(add, permute_1)
  mul_4 = mul(where_2, arg0)
  sum = sum(mul_4, dim=[0], keepdim=true)
  reshape = reshape(sum, sizes=[6])
  return slice, where, add_1, reshape
}
--- grad plan
  k0_copy(v0, v1)
  k1_sigmoid_gt_mul_where(v0, v2, v3, v4, v5, v6, v7)
  k2_gt_where_mul_sum(v2, v4, v0, v8)
  return v1 f32[4, 8]
  return v6 f32[8, 6]
  return v7 f32[8, 6]
  return v8 f32[6]
