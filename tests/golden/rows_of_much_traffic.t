# What a chunk of a row moves pays for it, not its points alone: here 57 bytes for each.
graph(a: f64[30003], b: f64[30003], c: f64[30003], n: f64[30003]) {
  x = a * a - b * b + c
  y = a * b * 2 + c
  l = x * x + y * y < 4
  s = sum(to(l, i64))
  return x, y, l, n + l, s
}
--- loops
kernel k0_mul_sub_add_mul(inner a0:30003) row split 26 {
  b0: in f64[30003]
  b1: in f64[30003]
  b2: in f64[30003]
  b3: in f64[30003]
  b4: out f64[30003]
  b5: out f64[30003]
  b6: out bool[30003]
  b7: out f64[30003]
  b8: out i64[1]
  t2 = f64 load b0[a0]
  t3 = f64 mul t2, t2
  t4 = f64 load b1[a0]
  t5 = f64 mul t4, t4
  t6 = f64 sub t3, t5
  t7 = f64 load b2[a0]
  t8 = f64 add t6, t7
  t9 = f64 mul t2, t4
  t11 = f64 mul t9, 2.0:f64
  t12 = f64 add t11, t7
  t13 = f64 mul t8, t8
  t14 = f64 mul t12, t12
  t15 = f64 add t13, t14
  t17 = bool lt t15, 4.0:f64
  t18 = f64 load b3[a0]
  t19 = f64 to f64 t17
  t20 = f64 add t18, t19
  t21 = i64 to i64 t17
  t22 = i64 reduce sum t21
  store b4[a0] = t8
  store b5[a0] = t12
  store b6[a0] = t17
  store b7[a0] = t20
  store b8[0] = t22
}
