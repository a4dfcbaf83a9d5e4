# A part takes what a part of was written itself: that is asked for by the kernel that gives it, and
# made nowhere.
graph(a: f32[64, 64], b: f32[8, 64], v: f32[8, 2]) {
  w = slice_scatter(sin(b), v, 1, 3, 5)
  return slice_scatter(exp(a), w, 0, 8, 16)
}
--- plan
  k0_ge_lt_logical_and_sin(v0, v1, v2)
  k1_ge_lt_logical_and_exp(v2, v3, v4)
  return v4 f32[64, 64]
