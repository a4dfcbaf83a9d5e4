graph(x: f32[256, 1000], t: i64[256]) {
  y = cross_entropy(x, t)
  return y
}
--- plan
  k0_amax_sub_exp_nonpositive_sum(v0, v1, v2)
  k1_ne_where(v3, v4)
  check v4 in [0, 1000) for gather
  k2_ne_to_sum_log(v3, v2, v4, v0, v1, v5)
  return v5 f32[]
--- loops
kernel k0_amax_sub_exp_nonpositive_sum(outer a0:256, inner a1:1000) row split 1 {
  b0: in f32[256000]
  b1: out f32[256]
  b2: out f32[256]
  t6 = f32 load b0[((a0*1000) + a1)]
  t7 = f32 reduce amax t6
  t8 = f32 sub t6, t7
  t9 = f32 exp_nonpositive t8
  t10 = f32 reduce sum t9
  store b1[a0] = t7
  store b2[a0] = t10
}
kernel k1_ne_where(outer a0:256) tile split 1 {
  b0: in i64[256]
  b1: out i64[256]
  t1 = i64 load b0[a0]
  t3 = bool ne t1, -100:i64
  t5 = i64 where t3, t1, 0:i64
  store b1[a0] = t5
}
kernel k2_ne_to_sum_log(inner a0:256) row split 1 {
  b0: in i64[256]
  b1: in f32[256]
  b2: in i64[256]
  b3: in f32[256000]
  b4: in f32[256]
  b5: out f32[1]
  t2 = i64 load b0[a0]
  t4 = bool ne t2, -100:i64
  t5 = i64 to i64 t4
  t6 = i64 reduce sum t5
  t7 = f32 load b1[a0]
  t8 = f32 log t7
  t9 = i64 load b2[a0]
  t13 = f32 load b3[((a0*1000) + t9)]
  t14 = f32 load b4[a0]
  t15 = f32 sub t13, t14
  t16 = f32 sub t8, t15
  t18 = f32 where t4, t16, 0.0:f32
  t19 = f32 to f32 t6
  t20 = f32 div t18, t19
  t21 = f32 reduce sum t20
  store b5[0] = t21
}
