# What goes to halves is rounded by the store alone; where it is also read on, it is rounded before
graph(x: f32[100], i: i64[100]) {
  a = to(x, dtype=f16)
  b = to(x * 2, dtype=bf16)
  return a, b, to(i, dtype=bf16), to(b, dtype=f32) + 1
}
--- plan
  k1_mul_to_add(v0, v2, v3)
  k0_to(v0, v1) with k2_to(v4, v5)
  return v1 f16[100]
  return v2 bf16[100]
  return v5 bf16[100]
  return v3 f32[100]
--- loops
kernel k0_to(outer a0:100) tile split 1 {
  b0: in f32[100]
  b1: out f16[100]
  t1 = f32 load b0[a0]
  store b1[a0] = t1
}
kernel k1_mul_to_add(outer a0:100) tile split 1 {
  b0: in f32[100]
  b1: out bf16[100]
  b2: out f32[100]
  t1 = f32 load b0[a0]
  t3 = f32 mul t1, 2.0:f32
  t4 = f32 to bf16 t3
  t6 = f32 add t4, 1.0:f32
  store b1[a0] = t3
  store b2[a0] = t6
}
kernel k2_to(outer a0:100) tile split 1 {
  b0: in i64[100]
  b1: out bf16[100]
  t1 = i64 load b0[a0]
  t3 = f32 to f32 t1
  store b1[a0] = t3
}
