# a reduction over a stack joins its pieces; their views of one row keep the other positions
graph(x: f32[3, 40, 60]) {
  a = roll(select(x, 0, 0), 1, 1)
  b = roll(select(x, 0, 1), -1, 0)
  s = concat(concat(unsqueeze(a, 0), unsqueeze(b, 0), dim=0), slice(x, 0, 2, 3), dim=0)
  t = sum(s, 0)
  return t
}
--- graph
graph(arg0: f32[3, 40, 60]) {
  slice = slice(arg0, dim=0, end=1)
  reshape = reshape(slice, sizes=[40, 60])
  slice_1 = slice(reshape, dim=1, start=59, end=60)
  slice_2 = slice(reshape, dim=1, end=59)
  concat = concat(slice_1, slice_2, dim=1)
  add = add(concat, 0.0)
  slice_3 = slice(arg0, dim=0, start=1, end=2)
  reshape_1 = reshape(slice_3, sizes=[40, 60])
  slice_4 = slice(reshape_1, dim=0, start=1, end=40)
  slice_5 = slice(reshape_1, dim=0, end=1)
  concat_1 = concat(slice_4, slice_5)
  add_1 = add(add, concat_1)
  slice_6 = slice(arg0, dim=0, start=2, end=3)
  reshape_2 = reshape(slice_6, sizes=[40, 60])
  add_2 = add(add_1, reshape_2)
  return add_2
}
--- plan
  k0_lt_logical_not_where_add(v0, v1)
  return v1 f32[40, 60]
--- loops
kernel k0_lt_logical_not_where_add(outer a0:40, outer a1:60) tile split 1 {
  b0: in f32[7200]
  b1: out f32[2400]
  t8 = bool lt [a1], 1:i64
  t14 = f32 load b0[(((a0*60) + a1) + 59)] if t8
  t15 = bool logical_not t8
  t17 = f32 load b0[(((a0*60) + a1) + -1)] if t15
  t18 = f32 where t8, t14, t17
  t20 = f32 add t18, 0.0:f32
  t22 = bool lt [a0], 39:i64
  t28 = f32 load b0[(((a0*60) + a1) + 2460)] if t22
  t29 = bool logical_not t22
  t31 = f32 load b0[(((a0*60) + a1) + 60)] if t29
  t32 = f32 where t22, t28, t31
  t33 = f32 add t20, t32
  t37 = f32 load b0[(((a0*60) + a1) + 4800)]
  t38 = f32 add t33, t37
  store b1[((a0*60) + a1)] = t38
}
