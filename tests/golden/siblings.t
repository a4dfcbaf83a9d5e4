# Several reductions over one read are one kernel.
graph(x: f32[512, 768]) {
  m = mean(x, 1)
  a = amax(x, 1)
  s = sum(square(x), 1)
  return m, a, s
}
--- plan
  k0_sum_div_amax_square(v0, v1, v2, v3)
  return v1 f32[512]
  return v2 f32[512]
  return v3 f32[512]
--- loops
kernel k0_sum_div_amax_square(outer a0:512, inner a1:768) row split 1 {
  b0: in f32[393216]
  b1: out f32[512]
  b2: out f32[512]
  b3: out f32[512]
  t6 = f32 load b0[((a0*768) + a1)]
  t7 = f32 reduce sum t6
  t9 = f32 div t7, 768.0:f32
  t10 = f32 reduce amax t6
  t11 = f32 square t6
  t12 = f32 reduce sum t11
  store b1[a0] = t9
  store b2[a0] = t10
  store b3[a0] = t12
}
