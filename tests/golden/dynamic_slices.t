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
  k2_minimum_maximum_minimum_maximum(v0, v6, v1, v7)
  k3_minimum_maximum_lt_eq(v0, v8, v7, v6, v1, v5, v9, v10, v11)
  return v2 f32[128]
  return v4 f32[128, 8]
  return v10 f32[8, 64]
  mutate v6 f32[2, 64] -> input 0 at 0 + arg4 * 64 by [64, 1]
  mutate v8 f32[4, 32] -> input 0 at 8 + arg4 * 64 by [128, 1]
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
  b3: out f32[512]
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
  store b3[((a0*64) + a1)] = t28
}
kernel k3_minimum_maximum_lt_eq(outer a0:8, outer a1:64) tile split 1 {
  b0: in i64[1]
  b1: in f32[128]
  b2: in f32[512]
  b3: in f32[128]
  b4: in f32[262144]
  b5: in f32[128]
  b6: in i64[1]
  b7: out f32[512]
  b8: out f32[512]
  t6 = i64 load b0[0]
  t8 = i64 minimum t6, 4088:i64
  t9 = i64 maximum t8, 0:i64
  t16 = bool lt [a0], 7:i64
  t20 = bool eq [(a0%2)], 0:i64
  t21 = bool logical_and t16, t20
  t24 = bool ge [(a1 + -8)], 0:i64
  t26 = bool lt [(a1 + -8)], 32:i64
  t27 = bool logical_and t24, t26
  t28 = bool logical_and t21, t27
  t32 = f32 load b1[((a1 + ((a0/2)*32)) + -8)] if t28
  t37 = f32 load b2[(a1 + ((a0/2)*128))] if t21
  t38 = f32 where t27, t32, t37
  t39 = f32 load b2[((a0*64) + a1)]
  t40 = f32 where t21, t38, t39
  t42 = i64 minimum t6, 4094:i64
  t43 = i64 maximum t42, 0:i64
  t57 = f32 exp t40
  t60 = bool ge [(a0 + -2)], 0:i64
  t61 = bool lt [(a0 + -2)], 2:i64
  t62 = bool logical_and t60, t61
  t65 = f32 load b5[(((a0*64) + a1) + -128)] if t62
  t66 = i64 load b6[0]
  t67 = i64 minimum t66, 4088:i64
  t68 = i64 maximum t67, 0:i64
  t72 = bool ge [((a0 + (t9*-1)) + t68)], 0:i64
  t73 = bool lt [((a0 + (t9*-1)) + t68)], 8:i64
  t74 = bool logical_and t72, t73
  t75 = bool lt [((a0 + (t9*-1)) + t68)], 7:i64
  t76 = bool logical_and t72, t75
  t79 = bool eq [(((a0 + (t9*-1)) + t68)%2)], 0:i64
  t80 = bool logical_and t76, t79
  t81 = bool logical_and t74, t80
  t82 = bool logical_and t81, t27
  t86 = f32 load b1[((a1 + ((((a0 + (t9*-1)) + t68)/2)*32)) + -8)] if t82
  t90 = f32 load b2[(a1 + ((((a0 + (t9*-1)) + t68)/2)*128))] if t81
  t91 = f32 where t27, t86, t90
  t96 = f32 load b2[((((a0*64) + a1) + (t9*-64)) + (t68*64))] if t74
  t97 = f32 where t80, t91, t96
  t100 = bool ge [((a0 + (t43*-1)) + t68)], 0:i64
  t101 = bool lt [((a0 + (t43*-1)) + t68)], 2:i64
  t102 = bool logical_and t100, t101
  t105 = f32 load b3[((((a0*64) + a1) + (t43*-64)) + (t68*64))] if t102
  t107 = f32 load b4[(((a0*64) + a1) + (t68*64))]
  t108 = f32 where t102, t105, t107
  t109 = f32 where t74, t97, t108
  t110 = f32 where t62, t65, t109
  store b7[((a0*64) + a1)] = t57
  store b8[((a0*64) + a1)] = t110
}
