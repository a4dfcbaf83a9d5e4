# Heads beside each other, and the sums of their columns: the columns are those of the reading, so that
# lanes go along them, where memory does.
graph(q: f32[4, 6, 64, 64], k: f32[4, 6, 64, 64]) {
  a = reshape(permute(q, [0, 2, 1, 3]), [4, 64, 384])
  b = reshape(permute(k, [0, 2, 1, 3]), [4, 64, 384])
  both = concat(a, b, dim=2)
  bias = sum(both, [0, 1])
  return both, bias
}
--- loops
kernel k0_lt_logical_not_where_sum(outer a0:12, outer a1:64, inner a2:4, inner a3:64) tile split 4 {
  b0: in f32[98304]
  b1: in f32[98304]
  b2: out f32[196608]
  b3: out f32[768]
  t21 = bool lt [((a0*64) + a1)], 384:i64
  t32 = f32 load b0[((((a2*24576) + (a3*64)) + (a0*4096)) + a1)] if t21
  t33 = bool logical_not t21
  t38 = f32 load b1[(((((a2*24576) + (a3*64)) + (a0*4096)) + a1) + -24576)] if t33
  t39 = f32 where t21, t32, t38
  t40 = f32 reduce sum t39
  store b2[((((a2*49152) + (a3*768)) + (a0*64)) + a1)] = t39
  store b3[((a0*64) + a1)] = t40
}
