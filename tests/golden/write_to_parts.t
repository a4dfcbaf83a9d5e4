# Writes to parts of an input compute and move those parts alone: what reads the input behind them
# reads through the scatters, none of which is in memory.
graph(k: f32[4096, 64], v: f32[64], w: f32[2, 32]) {
  first = slice_scatter(k, reshape(v, [1, 64]), 0, 5, 6)
  rows = slice(first, 0, 100, 104, 2)
  inner = slice_scatter(rows, w * 2, 1, 1, 64, 2)
  second = slice_scatter(first, inner, 0, 100, 104, 2)
  mutate k = second
  return sum(second)
}
--- plan
  k0_copy(v0, v1)
  k1_mul(v2, v3)
  k2_ge_lt_logical_and_eq(v3, v4, v1, v5)
  return v5 f32[]
  mutate v1 f32[1, 64] -> input 0 at 320 by [64, 1]
  mutate v3 f32[2, 32] -> input 0 at 6401 by [128, 2]
