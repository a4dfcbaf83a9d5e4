# Much traffic, but so many elements that there are few parts of them.
graph(x: f32[64, 4096]) {
  r = sum(x, 1)
  c = sum(x, 0)
  return r, c
}
--- loops
kernel k0_sum_sum(outer a0:64, inner a1:4096) row split 1 parts 8 {
  b0: in f32[262144]
  b1: out f32[64]
  b2: out f32[4096]
  t6 = f32 load b0[((a0*4096) + a1)]
  t7 = f32 reduce sum t6
  store b1[a0] = t7
  sum b2[a1] = t6
}
