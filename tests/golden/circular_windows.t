# A circular padding below windows is a value of its own: each of nine reads would choose its piece again
graph(x: f32[100, 120]) {
  a = concat(concat(slice(x, 0, 99, 100), x, dim=0), slice(x, 0, 0, 1), dim=0)
  b = concat(concat(slice(a, 1, 119, 120), a, dim=1), slice(a, 1, 0, 1), dim=1)
  y = sum(window(window(b, 0, 3), 1, 3), [2, 3])
  return y
}
--- plan
  k0_lt_logical_and_logical_not_logical_and(v0, v1)
  k1_lt_logical_and_logical_not_logical_and(v1, v2)
  k2_sum(v2, v3)
  return v3 f32[100, 120]
--- loops
kernel k0_lt_logical_and_logical_not_logical_and(outer a0:12240) tile split 1 {
  b0: in f32[12000]
  b1: out f32[12240]
  t7 = bool lt [a0], 12120:i64
  t10 = bool lt [a0], 120:i64
  t13 = bool logical_and t7, t10
  t18 = f32 load b0[(a0 + 11880)] if t13
  t19 = bool logical_not t10
  t20 = bool logical_and t7, t19
  t23 = f32 load b0[(a0 + -120)] if t20
  t24 = f32 where t10, t18, t23
  t25 = bool logical_not t7
  t28 = f32 load b0[(a0 + -12120)] if t25
  t29 = f32 where t7, t24, t28
  store b1[a0] = t29
}
kernel k1_lt_logical_and_logical_not_logical_and(outer a0:102, outer a1:122) tile split 1 {
  b0: in f32[12240]
  b1: out f32[12444]
  t8 = bool lt [a1], 121:i64
  t12 = bool lt [a1], 1:i64
  t15 = bool logical_and t8, t12
  t22 = f32 load b0[(((a0*120) + a1) + 119)] if t15
  t23 = bool logical_not t12
  t24 = bool logical_and t8, t23
  t26 = f32 load b0[(((a0*120) + a1) + -1)] if t24
  t27 = f32 where t12, t22, t26
  t28 = bool logical_not t8
  t30 = f32 load b0[(((a0*120) + a1) + -121)] if t28
  t31 = f32 where t8, t27, t30
  store b1[((a0*122) + a1)] = t31
}
kernel k2_sum(outer a0:100, outer a1:120, inner a2:3, inner a3:3) tile split 1 {
  b0: in f32[12444]
  b1: out f32[12000]
  t33 = f32 load b0[((((a0*122) + a1) + (a2*122)) + a3)]
  t34 = f32 reduce sum t33
  store b1[((a0*120) + a1)] = t34
}
