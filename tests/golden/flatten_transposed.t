# Channels-last features in the order of a linear layer: the axes are those of the reading, so that
# no element's place takes a division.
graph(x: f32[8, 6, 6, 64]) {
  return flatten(permute(x, [0, 3, 1, 2]) * 2, 1)
}
--- loops
kernel k0_mul(outer a0:8, outer a1:64, outer a2:36) tile split 1 {
  b0: in f32[18432]
  b1: out f32[18432]
  t25 = f32 load b0[(((a0*2304) + a1) + (a2*64))]
  t27 = f32 mul t25, 2.0:f32
  store b1[(((a0*2304) + (a1*36)) + a2)] = t27
}
