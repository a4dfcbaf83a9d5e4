# A layer is one step: matrix product, bias and relu.
graph(x: f32[64, 784], w: f32[512, 784], b: f32[512], v: f32[10, 512], c: f32[10]) {
  h = relu(linear(x, w, b))
  y = linear(h, v, c)
  return y
}
--- plan
  matmul v2 = v0 @ v1 [1 x 64 x 512 x 784] then k0_add_relu(v2, v3)
  matmul v5 = v2 @ v4 [1 x 64 x 10 x 512] then k1_add(v5, v6)
  return v5 f32[64, 10]
--- loops
kernel k0_add_relu(outer a0:64, outer a1:512) tile split 1 {
  b0: inout f32[32768]
  b1: in f32[512]
  t6 = f32 load b0[((a0*512) + a1)]
  t7 = f32 load b1[a1]
  t8 = f32 add t6, t7
  t9 = f32 relu t8
  store b0[((a0*512) + a1)] = t9
}
kernel k1_add(outer a0:64, outer a1:10) tile split 1 {
  b0: inout f32[640]
  b1: in f32[10]
  t6 = f32 load b0[((a0*10) + a1)]
  t7 = f32 load b1[a1]
  t8 = f32 add t6, t7
  store b0[((a0*10) + a1)] = t8
}
