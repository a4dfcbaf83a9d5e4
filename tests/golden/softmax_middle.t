# Along a dimension that is not contiguous: lanes across the columns.
graph(x: f32[8, 128, 512]) {
  y = softmax(x, dim=1)
  return y
}
--- plan
  k0_amax_sub_exp_nonpositive_sum(v0, v1)
  return v1 f32[8, 128, 512]
--- loops
kernel k0_amax_sub_exp_nonpositive_sum(outer a0:8, outer a1:512, inner a2:128) tile split 1 {
  b0: in f32[524288]
  b1: out f32[524288]
  t16 = f32 load b0[(((a0*65536) + (a2*512)) + a1)]
  t17 = f32 reduce amax t16
  t19 = f32 sub t16, t17
  t20 = f32 exp_nonpositive t19
  t21 = f32 reduce sum t20
  t22 = f32 div t20, t21
  store b1[(((a0*65536) + (a2*512)) + a1)] = t22
}
