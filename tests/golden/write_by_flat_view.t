# A diagonal is a step through all of a matrix: it is written where the matrix lies, whatever shape
# the write sees, and what follows reads the matrix.
graph(x: f32[64, 64], d: f32[64]) {
  y = -x
  flat = reshape(y, [4096])
  written = reshape(slice_scatter(flat, d, 0, 0, 4096, 65), [64, 64])
  return exp(written), written
}
--- plan
  k0_neg(v0, v1)
  write v1 v2 at 0 by [65]
  k1_exp(v1, v3)
  return v3 f32[64, 64]
  return v1 f32[64, 64]
