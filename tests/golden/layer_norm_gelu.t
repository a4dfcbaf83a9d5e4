graph(x: f32[64, 1024], w: f32[1024], b: f32[1024]) {
  n = layer_norm(x, [1024], w, b)
  y = gelu(n, tanh=true)
  return y
}
--- plan
  k0_sum_mul_sub_square(v0, v1, v2, v3)
  return v3 f32[64, 1024]
--- loops
kernel k0_sum_mul_sub_square(outer a0:64, inner a1:1024) row split 1 {
  b0: in f32[65536]
  b1: in f32[1024]
  b2: in f32[1024]
  b3: out f32[65536]
  t6 = f32 load b0[((a0*1024) + a1)]
  t7 = f32 reduce sum t6
  t9 = f32 mul t7, 0.0009765625:f32
  t10 = f32 sub t6, t9
  t11 = f32 square t10
  t12 = f32 reduce sum t11
  t13 = f32 reduce sum t10
  t14 = f32 mul t12, 0.0009765625:f32
  t15 = f32 mul t13, 0.0009765625:f32
  t16 = f32 square t15
  t17 = f32 sub t14, t16
  t19 = f32 maximum t17, 0.0:f32
  t21 = f32 add t19, 9.999999747378752e-06:f32
  t22 = f32 rsqrt t21
  t23 = f32 mul t10, t22
  t24 = f32 mul t15, t22
  t25 = f32 sub t23, t24
  t26 = f32 load b1[a1]
  t27 = f32 mul t25, t26
  t28 = f32 load b2[a1]
  t29 = f32 add t27, t28
  t31 = f32 mul t29, 0.044714998453855515:f32
  t32 = f32 mul t31, t29
  t33 = f32 mul t32, t29
  t34 = f32 add t29, t33
  t36 = f32 mul t34, 1.5957691669464111:f32
  t37 = f32 sigmoid t36
  t38 = f32 mul t29, t37
  store b3[((a0*1024) + a1)] = t38
}
