# Reads behind conditions: of the halves of a concatenation, inside of padding, through an index.
graph(x: f32[8, 16], y: f32[4, 16], i: i64[2, 20]) {
  c = concat(neg(x), y, dim=0)
  p = pad(c, padding=[1, 3, 0, 2], value=7.0)
  g = gather(p, dim=0, index=i)
  q = pad(g, padding=[0, 4])
  return q
}
--- plan
  check v0 in [0, 14) for gather
  k0_lt_ge_lt_logical_and(v0, v1, v2, v3)
  return v3 f32[2, 24]
--- loops
kernel k0_lt_ge_lt_logical_and(outer a0:2, outer a1:24) tile split 1 {
  b0: in i64[40]
  b1: in f32[128]
  b2: in f32[64]
  b3: out f32[48]
  t8 = bool lt [a1], 20:i64
  t11 = i64 load b0[((a0*20) + a1)] if t8
  t12 = bool ge t11, 0:i64
  t14 = bool lt t11, 12:i64
  t15 = bool logical_and t12, t14
  t18 = bool ge [(a1 + -1)], 0:i64
  t20 = bool lt [(a1 + -1)], 16:i64
  t21 = bool logical_and t18, t20
  t22 = bool logical_and t15, t21
  t23 = bool logical_and t8, t22
  t25 = bool lt t11, 8:i64
  t26 = bool logical_and t12, t25
  t29 = bool logical_and t23, t26
  t33 = f32 load b1[((a1 + (t11*16)) + -1)] if t29
  t34 = f32 neg t33
  t35 = bool logical_not t26
  t36 = bool logical_and t23, t35
  t39 = f32 load b2[((a1 + (t11*16)) + -129)] if t36
  t40 = f32 where t26, t34, t39
  t42 = f32 where t22, t40, 7.0:f32
  t44 = f32 where t8, t42, 0.0:f32
  store b3[((a0*24) + a1)] = t44
}
