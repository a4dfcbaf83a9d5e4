# A bias per channel of a picture with its channels last: one loop, no runs of three.
graph(x: f32[480, 640, 3], b: f32[3]) {
  return relu(x * 2.0 + b)
}
--- plan
  k0_mul_add_relu(v0, v1, v2)
  return v2 f32[480, 640, 3]
--- loops
kernel k0_mul_add_relu(outer a0:921600) tile split 1 {
  b0: in f32[921600]
  b1: in f32[3]
  b2: out f32[921600]
  t10 = f32 load b0[a0]
  t12 = f32 mul t10, 2.0:f32
  t13 = f32 load b1[(a0%3)]
  t14 = f32 add t12, t13
  t15 = f32 relu t14
  store b2[a0] = t15
}
