# a result and the index of a scatter_add, one kernel: both are stored, though no split of its axes
# can be lowered
graph(x: i32[1, 31]) {
  i = to(reshape(remainder(arange(0, 31), 31), [1, 31]), i16)
  s = scatter_add(x, 1, i, x)
  return i, s
}
--- plan
  k0_to(v0, v1)
  check v1 in [0, 31) for scatter_add
  k1_copy(v2, v3)
  k2_scatter_add(v2, v1, v3)
  return v0 i16[1, 31]
  return v3 i32[1, 31]
--- loops
kernel k0_to(outer a0:31) tile split 1 {
  b0: out i16[31]
  b1: out i64[31]
  t4 = i16 to i16 [(a0%31)]
  t5 = i64 to i64 t4
  store b0[a0] = t4
  store b1[a0] = t5
}
kernel k1_copy(outer a0:31) tile split 1 {
  b0: in i32[31]
  b1: out i32[31]
  t2 = i32 load b0[a0]
  store b1[a0] = t2
}
kernel k2_scatter_add(outer a0:1, inner a1:31) row split 1 {
  b0: in i32[31]
  b1: in i64[31]
  b2: inout i32[31]
  t6 = i32 load b0[a1]
  t7 = i64 load b1[a1]
  add b2[t7] = t6
}
