# Parts whose place an input says: read where they lie, by kernels and by products, and written
# there alone.
graph(k: f32[4096, 64], v: f32[2, 64], w: f32[64, 8], u: f32[4, 32], start: i64[], other: i64[]) {
  rows = dynamic_slice(k, start, 0, 128)
  first = dynamic_slice_scatter(k, v * 2, start, 0)
  window = dynamic_slice(first, start, 0, 8)
  inner = slice_scatter(window, slice_scatter(slice(window, 0, 0, 8, 2), u, 1, 8, 40), 0, 0, 8, 2)
  second = dynamic_slice_scatter(first, inner, start, 0)
  apart = slice_scatter(dynamic_slice(second, other, 0, 8), v, 0, 2, 4)
  third = dynamic_slice_scatter(second, apart, start, 0)
  mutate k = third
  return sum(rows, -1), matmul(rows, w), exp(dynamic_slice(second, start, 0, 8))
}
--- plan
  k0_minimum_maximum_sum(v0, v1, v2)
  matmul v4 = v1 @ v3 [1 x 128 x 8 x 64]
  k1_mul(v5, v6)
  k2_minimum_maximum_minimum_maximum(v0, v6, v1, v7, v8, v9)
  k3_ge_lt_logical_and_minimum(v5, v10, v0, v7, v8, v6, v1, v11)
  return v2 f32[128]
  return v4 f32[128, 8]
  return v9 f32[8, 64]
  mutate v6 f32[2, 64] -> input 0 at 0 + arg4 * 64 by [64, 1]
  mutate v7 f32[4, 32] -> input 0 at 8 + arg4 * 64 by [128, 1]
  mutate v11 f32[8, 64] -> input 0 at 0 + arg4 * 64 by [64, 1]
--- loops
kernel k0_minimum_maximum_sum(outer a0:128, inner a1:64) row split 1 {
  b0: in i64[1]
  b1: in f32[262144]
  b2: out f32[128]
  t6 = i64 load b0[0]
  t8 = i64 minimum t6, 3968:i64
  t9 = i64 maximum t8, 0:i64
  t13 = f32 load b1[(((a0*64) + a1) + (t9*64))]
  t14 = f32 reduce sum t13
  store b2[a0] = t14
}
kernel k1_mul(outer a0:128) tile split 1 {
  b0: in f32[128]
  b1: out f32[128]
  t5 = f32 load b0[a0]
  t7 = f32 mul t5, 2.0:f32
  store b1[a0] = t7
}
kernel k2_minimum_maximum_minimum_maximum(outer a0:8, outer a1:64) tile split 1 {
  b0: in i64[1]
  b1: in f32[128]
  b2: in f32[262144]
  b3: in f32[128]
  b4: out f32[512]
  b5: out f32[512]
  t6 = i64 load b0[0]
  t8 = i64 minimum t6, 4088:i64
  t9 = i64 maximum t8, 0:i64
  t12 = i64 minimum t6, 4094:i64
  t13 = i64 maximum t12, 0:i64
  t17 = bool ge [((a0 + t9) + (t13*-1))], 0:i64
  t19 = bool lt [((a0 + t9) + (t13*-1))], 2:i64
  t20 = bool logical_and t17, t19
  t26 = f32 load b1[((((a0*64) + a1) + (t9*64)) + (t13*-64))] if t20
  t27 = f32 load b2[(((a0*64) + a1) + (t9*64))]
  t28 = f32 where t20, t26, t27
  t33 = bool lt [a0], 7:i64
  t36 = bool eq [(a0%2)], 0:i64
  t37 = bool logical_and t33, t36
  t40 = bool ge [(a1 + -8)], 0:i64
  t42 = bool lt [(a1 + -8)], 32:i64
  t43 = bool logical_and t40, t42
  t44 = bool logical_and t37, t43
  t48 = f32 load b3[((a1 + ((a0/2)*32)) + -8)] if t44
  t51 = f32 where t43, t48, t28
  t52 = f32 where t37, t51, t28
  t53 = f32 exp t52
  store b4[((a0*64) + a1)] = t28
  store b5[((a0*64) + a1)] = t53
}
kernel k3_ge_lt_logical_and_minimum(outer a0:8, outer a1:64) tile split 1 {
  b0: in f32[128]
  b1: in i64[1]
  b2: in i64[1]
  b3: in f32[128]
  b4: in f32[512]
  b5: in f32[128]
  b6: in f32[262144]
  b7: out f32[512]
  t8 = bool ge [(a0 + -2)], 0:i64
  t10 = bool lt [(a0 + -2)], 2:i64
  t11 = bool logical_and t8, t10
  t14 = f32 load b0[(((a0*64) + a1) + -128)] if t11
  t15 = i64 load b1[0]
  t17 = i64 minimum t15, 4088:i64
  t18 = i64 maximum t17, 0:i64
  t20 = i64 load b2[0]
  t21 = i64 minimum t20, 4088:i64
  t22 = i64 maximum t21, 0:i64
  t26 = bool ge [((a0 + t18) + (t22*-1))], 0:i64
  t28 = bool lt [((a0 + t18) + (t22*-1))], 8:i64
  t29 = bool logical_and t26, t28
  t31 = bool lt [((a0 + t18) + (t22*-1))], 7:i64
  t32 = bool logical_and t26, t31
  t35 = bool eq [(((a0 + t18) + (t22*-1))%2)], 0:i64
  t36 = bool logical_and t32, t35
  t37 = bool logical_and t29, t36
  t40 = bool ge [(a1 + -8)], 0:i64
  t42 = bool lt [(a1 + -8)], 32:i64
  t43 = bool logical_and t40, t42
  t44 = bool logical_and t37, t43
  t48 = f32 load b3[((a1 + ((((a0 + t18) + (t22*-1))/2)*32)) + -8)] if t44
  t56 = f32 load b4[((((a0*64) + a1) + (t18*64)) + (t22*-64))] if t37
  t57 = f32 where t43, t48, t56
  t58 = f32 load b4[((((a0*64) + a1) + (t18*64)) + (t22*-64))] if t29
  t59 = f32 where t36, t57, t58
  t61 = i64 minimum t20, 4094:i64
  t62 = i64 maximum t61, 0:i64
  t65 = bool ge [((a0 + t18) + (t62*-1))], 0:i64
  t66 = bool lt [((a0 + t18) + (t62*-1))], 2:i64
  t67 = bool logical_and t65, t66
  t70 = f32 load b5[((((a0*64) + a1) + (t18*64)) + (t62*-64))] if t67
  t71 = f32 load b6[(((a0*64) + a1) + (t18*64))]
  t72 = f32 where t67, t70, t71
  t73 = f32 where t29, t59, t72
  t74 = f32 where t11, t14, t73
  store b7[((a0*64) + a1)] = t74
}
