# A group may need another one through a third that ends before that one begins: they stay apart.
graph(arg0: f32[4, 4], arg1: f32[4, 4], arg2: f32[4, 4]) {
  mul = mul(arg0, 0.5)
  add = add(mul, arg1)
  slice = slice(arg2, dim=1, start=2, end=3)
  slice_scatter = slice_scatter(add, slice, dim=1, end=1)
  slice_1 = slice(slice_scatter, dim=0, start=2, end=3)
  reshape_1 = reshape(slice_1, sizes=[4])
  mul_1 = mul(reshape_1, 0.5)
  reshape_2 = reshape(mul_1, sizes=[1, 4])
  slice_scatter_1 = slice_scatter(slice_scatter, reshape_2, dim=0, start=2, end=3)
  add_2 = add(arg0, 0.25)
  mul_2 = mul(slice_scatter, 0.5)
  permute_1 = permute(add_2, dims=[1, 0])
  add_3 = add(mul_2, permute_1)
  permute_3 = permute(slice_scatter_1, dims=[1, 0])
  sum = sum(add_2, dim=[0], keepdim=true)
  mul_3 = mul(sum, 0.25)
  sub = sub(permute_3, mul_3)
  return slice_scatter_1, add_2, add_3, sub
}
--- plan
  k0_add_sum(v0, v1, v2)
  k1_lt_mul_add_where(v3, v0, v4, v1, v5, v6)
  k2_ge_lt_logical_and_mul(v5, v7)
  k3_mul_sub(v7, v2, v8)
  return v7 f32[4, 4]
  return v1 f32[4, 4]
  return v6 f32[4, 4]
  return v8 f32[4, 4]
