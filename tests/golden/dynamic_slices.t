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
  k2_minimum_maximum_ge_lt(v0, v6, v1, v7)
  k3_minimum_maximum_lt_eq(v0, v8, v7, v5, v9, v10, v11)
  return v2 f32[128]
  return v4 f32[128, 8]
  return v10 f32[8, 64]
  mutate v6 f32[2, 64] -> input 0[arg4 + 0:2, 0:64]
  mutate v8 f32[4, 32] -> input 0[arg4 + 0:7:2, 8:40]
  mutate v11 f32[8, 64] -> input 0[arg4 + 0:8, 0:64]
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
kernel k2_minimum_maximum_ge_lt(outer a0:4096, outer a1:64) tile split 1 {
  b0: in i64[1]
  b1: in f32[128]
  b2: in f32[262144]
  b3: out f32[262144]
  t6 = i64 load b0[0]
  t8 = i64 minimum t6, 4094:i64
  t9 = i64 maximum t8, 0:i64
  t13 = bool ge [(a0 + (t9*-1))], 0:i64
  t15 = bool lt [(a0 + (t9*-1))], 2:i64
  t16 = bool logical_and t13, t15
  t20 = f32 load b1[(((a0*64) + a1) + (t9*-64))] if t16
  t21 = f32 load b2[((a0*64) + a1)]
  t22 = f32 where t16, t20, t21
  store b3[((a0*64) + a1)] = t22
}
kernel k3_minimum_maximum_lt_eq(outer a0:8, outer a1:64) tile split 1 {
  b0: in i64[1]
  b1: in f32[128]
  b2: in f32[262144]
  b3: in f32[128]
  b4: in i64[1]
  b5: out f32[512]
  b6: out f32[512]
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
  t40 = f32 load b2[((a1 + (t9*64)) + ((a0/2)*128))] if t21
  t41 = f32 where t27, t32, t40
  t43 = f32 load b2[(((a0*64) + a1) + (t9*64))]
  t44 = f32 where t21, t41, t43
  t45 = f32 exp t44
  t48 = bool ge [(a0 + -2)], 0:i64
  t49 = bool lt [(a0 + -2)], 2:i64
  t50 = bool logical_and t48, t49
  t53 = f32 load b3[(((a0*64) + a1) + -128)] if t50
  t54 = i64 load b4[0]
  t55 = i64 minimum t54, 4088:i64
  t56 = i64 maximum t55, 0:i64
  t60 = bool ge [((a0 + (t9*-1)) + t56)], 0:i64
  t61 = bool lt [((a0 + (t9*-1)) + t56)], 8:i64
  t62 = bool logical_and t60, t61
  t63 = bool lt [((a0 + (t9*-1)) + t56)], 7:i64
  t64 = bool logical_and t60, t63
  t67 = bool eq [(((a0 + (t9*-1)) + t56)%2)], 0:i64
  t68 = bool logical_and t64, t67
  t69 = bool logical_and t62, t68
  t70 = bool logical_and t69, t27
  t74 = f32 load b1[((a1 + ((((a0 + (t9*-1)) + t56)/2)*32)) + -8)] if t70
  t79 = f32 load b2[((a1 + (t9*64)) + ((((a0 + (t9*-1)) + t56)/2)*128))] if t69
  t80 = f32 where t27, t74, t79
  t83 = f32 load b2[(((a0*64) + a1) + (t56*64))] if t62
  t84 = f32 where t68, t80, t83
  t85 = f32 load b2[(((a0*64) + a1) + (t56*64))]
  t86 = f32 where t62, t84, t85
  t87 = f32 where t50, t53, t86
  store b5[((a0*64) + a1)] = t45
  store b6[((a0*64) + a1)] = t87
}
