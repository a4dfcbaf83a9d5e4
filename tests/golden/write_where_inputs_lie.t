# Parts of inputs that the kernel writes which computes them, where they lie: p, read at the elements
# that are written; q, not read; r, whose old elements another kernel reads before; v, which another part
# of the kernel reads at these elements. Not s, read at other elements; t, whose rows are short; u,
# of which a result is what was computed; x, which is read for y, that comes last; nor z, of a fold.
graph(p: f32[64, 64], q: f32[64, 64], r: f32[64, 64], s: f32[64, 64], t: f32[64, 64], u: f32[64, 64], v: f32[64, 64], w: f32[64, 64], x: f32[64, 64], y: f32[64, 64], z: f32[64, 64]) {
  pp = slice(slice(p, 0, 1, 63), 1, 1, 63)
  mutate p = slice_scatter(p, slice_scatter(slice(p, 0, 1, 63), mul(pp, 2), 1, 1, 63), 0, 1, 63)
  qq = exp(slice(slice(w, 0, 0, 62), 1, 0, 62))
  mutate q = slice_scatter(q, slice_scatter(slice(q, 0, 1, 63), qq, 1, 1, 63), 0, 1, 63)
  rr = sin(slice(slice(r, 0, 1, 63), 1, 1, 63))
  mutate r = slice_scatter(r, slice_scatter(slice(r, 0, 1, 63), rr, 1, 1, 63), 0, 1, 63)
  ss = cos(slice(slice(s, 0, 0, 62), 1, 0, 62))
  mutate s = slice_scatter(s, slice_scatter(slice(s, 0, 1, 63), ss, 1, 1, 63), 0, 1, 63)
  mutate t = slice_scatter(t, tanh(slice(t, 1, 1, 9)), 1, 1, 9)
  uu = sqrt(slice(u, 1, 1, 33))
  mutate u = slice_scatter(u, uu, 1, 1, 33)
  vv = abs(slice(v, 1, 1, 63))
  mutate v = slice_scatter(v, vv, 1, 1, 63)
  mutate x = slice_scatter(x, log(slice(x, 0, 1, 63)), 0, 1, 63)
  mutate y = slice_scatter(y, slice(slice(x, 0, 1, 33), 1, 0, 64), 0, 1, 33)
  mutate z = slice_scatter(z, softmax(slice(z, 0, 0, 62), 1), 0, 1, 63)
  return sum(r, [1]), uu, sub(slice(v, 1, 1, 63), 1)
}
--- plan
  k0_sum(v0, v1)
  k1_sqrt(v2, v3)
  k2_amax_sub_exp_nonpositive_sum(v4, v5)
  k3_mul(v6, v6)
  k4_exp(v7, v8)
  k5_sin(v0, v0)
  k6_cos(v9, v10)
  k7_tanh(v11, v12)
  k8_sub_abs(v13, v14, v13)
  k9_log(v15, v16)
  k10_copy(v15, v17)
  return v1 f32[64]
  return v3 f32[64, 32]
  return v14 f32[64, 62]
  mutate v6 f32[62, 62] -> input 0 at 65 by [64, 1], in place
  mutate v8 f32[62, 62] -> input 1 at 65 by [64, 1], in place
  mutate v0 f32[62, 62] -> input 2 at 65 by [64, 1], in place
  mutate v10 f32[62, 62] -> input 3 at 65 by [64, 1]
  mutate v12 f32[64, 8] -> input 4 at 1 by [64, 1]
  mutate v3 f32[64, 32] -> input 5 at 1 by [64, 1]
  mutate v13 f32[64, 62] -> input 6 at 1 by [64, 1], in place
  mutate v16 f32[62, 64] -> input 8 at 64 by [64, 1]
  mutate v17 f32[32, 64] -> input 9 at 64 by [64, 1], in place
  mutate v5 f32[62, 64] -> input 10 at 64 by [64, 1]
