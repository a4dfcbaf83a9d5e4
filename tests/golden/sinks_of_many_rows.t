# Few points, but more rows than an f32 may add up.
graph(x: f32[2000, 16]) {
  r = sum(x, 1)
  c = sum(x, 0)
  return r, c
}
--- loops
kernel k0_sum_sum(outer a0:2000, inner a1:16) row split 1 parts 3 {
  b0: in f32[32000]
  b1: out f32[2000]
  b2: out f32[16]
  t6 = f32 load b0[((a0*16) + a1)]
  t7 = f32 reduce sum t6
  store b1[a0] = t7
  sum b2[a1] = t6
}
