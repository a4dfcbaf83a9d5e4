graph(x: f32[8, 128, 512]) {
  y = softmax(x, dim=2)
  return y
}
--- plan
  k0_amax_sub_exp_nonpositive_sum(v0, v1)
  return v1 f32[8, 128, 512]
--- loops
kernel k0_amax_sub_exp_nonpositive_sum(outer a0:1024, inner a1:512) row split 1 {
  b0: in f32[524288]
  b1: out f32[524288]
  t9 = f32 load b0[((a0*512) + a1)]
  t10 = f32 reduce amax t9
  t11 = f32 sub t9, t10
  t12 = f32 exp_nonpositive t11
  t13 = f32 reduce sum t12
  t14 = f32 div t12, t13
  store b1[((a0*512) + a1)] = t14
}
