# relu stays with the convolution; the pool reads it once per window element.
graph(x: f32[1, 8, 16, 16], w: f32[8, 8, 3, 3]) {
  y = max_pool2d(relu(conv2d(x, w, padding=1)), 3, 2, 1)
  return y
}
--- plan
  convolution v2 = v0 * v1 [1 x 8 of 16x16 -> 8 of 16x16, kernel 3x3, padding 1x1] then k0_relu(v2)
  k1_ge_logical_and_where_amax(v2, v3)
  return v3 f32[1, 8, 8, 8]
--- loops
kernel k0_relu(outer a0:2048) tile split 1 {
  b0: inout f32[2048]
  t9 = f32 load b0[a0]
  t10 = f32 relu t9
  store b0[a0] = t10
}
kernel k1_ge_logical_and_where_amax(outer a0:8, outer a1:8, outer a2:8, inner a3:3, inner a4:3) tile split 1 {
  b0: in f32[2048]
  b1: out f32[512]
  t48 = bool ge [(((a1*2) + a3) + -1)], 0:i64
  t51 = bool ge [(((a2*2) + a4) + -1)], 0:i64
  t52 = bool logical_and t48, t51
  t64 = f32 load b0[((((((a0*256) + (a1*32)) + (a2*2)) + (a3*16)) + a4) + -17)] if t52
  t66 = f32 where t52, t64, -inf:f32
  t67 = f32 reduce amax t66
  store b1[(((a0*64) + (a1*8)) + a2)] = t67
}
