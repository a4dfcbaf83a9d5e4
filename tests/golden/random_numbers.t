# 24 random bits become an i32 before they become an f32: AVX2 converts no i64, and the loop would
# stay one number at a time
graph(x: f32[100]) {
  u = rand([100])
  return add(x, u)
}
--- loops
kernel k0_philox_right_shift_to_mul(outer a0:100) tile split 1 {
  b0: in f32[100]
  b1: in i64[2]
  b2: out f32[100]
  t1 = f32 load b0[a0]
  t4 = i64 load b1[1]
  t6 = i64 load b1[0]
  t7 = i64 philox t6, [(t4 + 0)], [a0]
  t9 = i64 right_shift t7, 39:i64
  t10 = i32 to i32 t9
  t11 = f32 to f32 t10
  t13 = f32 mul t11, 5.9604644775390625e-08:f32
  t14 = f32 add t1, t13
  store b2[a0] = t14
}
