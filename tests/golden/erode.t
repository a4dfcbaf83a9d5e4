# lanes run along the picture, not along the five columns of a window
graph(x: f32[100, 120]) {
  y = amin(window(window(x, 0, 5), 1, 5), [2, 3])
  return y
}
--- plan
  k0_amin(v0, v1)
  return v1 f32[96, 116]
--- loops
kernel k0_amin(outer a0:96, outer a1:116, inner a2:5, inner a3:5) tile split 1 {
  b0: in f32[12000]
  b1: out f32[11136]
  t33 = f32 load b0[((((a0*120) + a1) + (a2*120)) + a3)]
  t34 = f32 reduce amin t33
  store b1[((a0*116) + a1)] = t34
}
