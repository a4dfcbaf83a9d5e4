# A reduction with its consumer over the same rows.
graph(x: f32[512, 1000]) {
  e = exp(x)
  y = e / unsqueeze(sum(e, 1), 1)
  return y
}
--- plan
  k0_exp_sum_div(v0, v1)
  return v1 f32[512, 1000]
--- loops
kernel k0_exp_sum_div(outer a0:512, inner a1:1000) row split 1 {
  b0: in f32[512000]
  b1: out f32[512000]
  t6 = f32 load b0[((a0*1000) + a1)]
  t7 = f32 exp t6
  t8 = f32 reduce sum t7
  t9 = f32 div t7, t8
  store b1[((a0*1000) + a1)] = t9
}
