# Sums that rows meet in; axes that no sink tells apart are merged.
graph(x: f32[8, 64, 4, 16]) {
  m = amax(x, [2, 3])
  a = sum(x, [0, 1])
  b = sum(x, [1])
  return m, a, b
}
--- plan
  k0_amax_sum_sum(v0, v1, v2, v3)
  return v1 f32[8, 64]
  return v2 f32[4, 16]
  return v3 f32[8, 4, 16]
--- loops
kernel k0_amax_sum_sum(outer a0:8, outer a1:64, inner a2:64) row split 1 parts 2 {
  b0: in f32[32768]
  b1: out f32[512]
  b2: out f32[64]
  b3: out f32[512]
  t22 = f32 load b0[(((a0*4096) + (a1*64)) + a2)]
  t23 = f32 reduce amax t22
  store b1[((a0*64) + a1)] = t23
  sum b2[a2] = t22
  sum b3[((a0*64) + a2)] = t22
}
