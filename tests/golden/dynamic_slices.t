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
  t40 = bool ge [a1], 8:i64
  t42 = bool lt [a1], 40:i64
  t43 = bool logical_and t40, t42
  t44 = bool logical_and t37, t43
  t49 = f32 load b3[((a1 + ((a0/2)*32)) + -8)] if t44
  t52 = f32 where t43, t49, t28
  t53 = f32 where t37, t52, t28
  t54 = f32 exp t53
  store b4[((a0*64) + a1)] = t28
  store b5[((a0*64) + a1)] = t54
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
  t9 = bool ge [a0], 2:i64
  t11 = bool lt [a0], 4:i64
  t12 = bool logical_and t9, t11
  t15 = f32 load b0[(((a0*64) + a1) + -128)] if t12
  t16 = i64 load b1[0]
  t18 = i64 minimum t16, 4088:i64
  t19 = i64 maximum t18, 0:i64
  t21 = i64 load b2[0]
  t22 = i64 minimum t21, 4088:i64
  t23 = i64 maximum t22, 0:i64
  t27 = bool ge [((a0 + t19) + (t23*-1))], 0:i64
  t29 = bool lt [((a0 + t19) + (t23*-1))], 8:i64
  t30 = bool logical_and t27, t29
  t32 = bool lt [((a0 + t19) + (t23*-1))], 7:i64
  t33 = bool logical_and t27, t32
  t36 = bool eq [(((a0 + t19) + (t23*-1))%2)], 0:i64
  t37 = bool logical_and t33, t36
  t38 = bool logical_and t30, t37
  t41 = bool ge [a1], 8:i64
  t43 = bool lt [a1], 40:i64
  t44 = bool logical_and t41, t43
  t45 = bool logical_and t38, t44
  t50 = f32 load b3[((a1 + ((((a0 + t19) + (t23*-1))/2)*32)) + -8)] if t45
  t58 = f32 load b4[((((a0*64) + a1) + (t19*64)) + (t23*-64))] if t38
  t59 = f32 where t44, t50, t58
  t60 = f32 load b4[((((a0*64) + a1) + (t19*64)) + (t23*-64))] if t30
  t61 = f32 where t37, t59, t60
  t63 = i64 minimum t21, 4094:i64
  t64 = i64 maximum t63, 0:i64
  t67 = bool ge [((a0 + t19) + (t64*-1))], 0:i64
  t68 = bool lt [((a0 + t19) + (t64*-1))], 2:i64
  t69 = bool logical_and t67, t68
  t72 = f32 load b5[((((a0*64) + a1) + (t19*64)) + (t64*-64))] if t69
  t73 = f32 load b6[(((a0*64) + a1) + (t19*64))]
  t74 = f32 where t69, t72, t73
  t75 = f32 where t30, t61, t74
  t76 = f32 where t12, t15, t75
  store b7[((a0*64) + a1)] = t76
}
