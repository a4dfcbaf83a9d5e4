# Of many writes a kernel would ask for each element whose it is: they are made in place whatever
# they write of it, where a loop cannot be cut at them, as one that folds. The parts that they read
# of what was there before are those that they leave alone: columns between those written, or all
# but those of an earlier step. What something reads behind them is copied first.
graph(x: f32[64, 16], w: f32[64, 16]) {
  y = x * 2
  a = slice_scatter(y, slice(y, 1, 15, 16) + 1, 1, 0, 1)
  b = slice_scatter(a, slice(y, 1, 13, 14) + 1, 1, 2, 3)
  c = slice_scatter(b, slice(y, 1, 11, 12) + 1, 1, 4, 5)
  d = slice_scatter(c, slice(y, 1, 9, 10) + 1, 1, 6, 7)
  e = slice_scatter(d, slice(y, 1, 7, 8) + 1, 1, 8, 9)
  f = slice_scatter(e, slice(y, 1, 1, 2) + sum(e, 1, true), 1, 1, 2)
  z = tanh(x)
  even = slice_scatter(z, slice(x, 1, 0, 2), 1, 0, 16, 8)
  u = tanh(w)
  k = slice_scatter(u, slice(w, 0, 0, 1), 0, 8, 9)
  l = slice_scatter(k, slice(w, 0, 0, 1), 0, 7, 8)
  m = slice_scatter(l, slice(w, 0, 0, 1), 0, 6, 7)
  n = slice_scatter(m, slice(w, 0, 0, 1), 0, 5, 6)
  o = slice_scatter(n, slice(w, 0, 0, 1), 0, 4, 5)
  return sum(f, 0), exp(even), sum(o, 0), u, slice(z, 1, 1, 16, 8) + sum(even)
}
--- plan
  k0_mul_tanh(v0, v1, v2)
  k1_add(v1, v3, v4, v5, v6, v7)
  write v1 v3 at 0 by [16, 1], v4 at 2 by [16, 1], v5 at 4 by [16, 1], v6 at 6 by [16, 1], v7 at 8 by [16, 1]
  k2_sum_add(v1, v1, v8, v9)
  write v1 v9 at 1 by [16, 1]
  k3_sum(v1, v10)
  k4_copy(v0, v11)
  write v2 v11 at 0 by [16, 8]
  k5_exp_sum(v2, v12, v13)
  k6_tanh(v14, v15)
  k7_copy(v14, v16)
  write v17 v15 at 0 by [16, 1], v16 at 128 by [16, 1], v16 at 112 by [16, 1], v16 at 96 by [16, 1], v16 at 80 by [16, 1], v16 at 64 by [16, 1]
  k8_sum(v17, v18)
  k9_add(v2, v13, v19)
  return v10 f32[16]
  return v12 f32[64, 16]
  return v18 f32[16]
  return v15 f32[64, 16]
  return v19 f32[64, 2]
