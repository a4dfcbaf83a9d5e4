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
  t19 = bool ge [a1], 1:i64
  t21 = bool lt [a1], 17:i64
  t22 = bool logical_and t19, t21
  t23 = bool logical_and t15, t22
  t24 = bool logical_and t8, t23
  t26 = bool lt t11, 8:i64
  t27 = bool logical_and t12, t26
  t30 = bool logical_and t24, t27
  t35 = f32 load b1[((a1 + (t11*16)) + -1)] if t30
  t36 = f32 neg t35
  t37 = bool logical_not t27
  t38 = bool logical_and t24, t37
  t41 = f32 load b2[((a1 + (t11*16)) + -129)] if t38
  t42 = f32 where t27, t36, t41
  t44 = f32 where t23, t42, 7.0:f32
  t46 = f32 where t8, t44, 0.0:f32
  store b3[((a0*24) + a1)] = t46
}
