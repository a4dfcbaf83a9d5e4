# A histogram: every chunk adds to bins of its own. Where the last write stays, points go in order.
graph(x: f32[64], i: i64[200000], s: f32[200000], y: f32[64]) {
  a = scatter_add(x, 0, i, s * 2)
  b = scatter(y, 0, i, s)
  return a, b
}
--- plan
  check v0 in [0, 64) for scatter_add
  k0_copy(v1, v3)
  k1_mul_scatter_add(v2, v0, v3)
  k2_copy(v4, v5)
  k3_scatter(v2, v0, v5)
  return v3 f32[64]
  return v5 f32[64]
--- loops
kernel k0_copy(outer a0:64) tile split 1 {
  b0: in f32[64]
  b1: out f32[64]
  t1 = f32 load b0[a0]
  store b1[a0] = t1
}
kernel k1_mul_scatter_add(inner a0:200000) row split 36 {
  b0: in f32[200000]
  b1: in i64[200000]
  b2: inout f32[64]
  t2 = f32 load b0[a0]
  t4 = f32 mul t2, 2.0:f32
  t5 = i64 load b1[a0]
  add b2[t5] = t4
}
kernel k2_copy(outer a0:64) tile split 1 {
  b0: in f32[64]
  b1: out f32[64]
  t1 = f32 load b0[a0]
  store b1[a0] = t1
}
kernel k3_scatter(inner a0:200000) row split 1 {
  b0: in f32[200000]
  b1: in i64[200000]
  b2: inout f32[64]
  t2 = f32 load b0[a0]
  t3 = i64 load b1[a0]
  last b2[t3] = t2
}
