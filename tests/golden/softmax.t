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
  t13 = f32 load b0[((a0*512) + a1)]
  t14 = f32 reduce amax t13
  t15 = f32 sub t13, t14
  t16 = f32 exp_nonpositive t15
  t17 = f32 reduce sum t16
  t18 = f32 div t16, t17
  store b1[((a0*512) + a1)] = t18
}
