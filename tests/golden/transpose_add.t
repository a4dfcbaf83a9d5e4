graph(x: f32[256, 512], y: f32[512, 256]) {
  z = x + permute(y, [1, 0])
  return z
}
--- plan
  k0_add(v0, v1, v2)
  return v2 f32[256, 512]
--- loops
kernel k0_add(outer a0:256, outer a1:512) tile split 1 {
  b0: in f32[131072]
  b1: in f32[131072]
  b2: out f32[131072]
  t6 = f32 load b0[((a0*512) + a1)]
  t10 = f32 load b1[(a0 + (a1*256))]
  t11 = f32 add t6, t10
  store b2[((a0*512) + a1)] = t11
}
