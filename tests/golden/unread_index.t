# Indices of ops that nothing needs are looked at all the same: once where an op that is needed looks
# at them, too; before anything else is computed; not at all where they are in range by construction.
graph(x: f32[8, 16], n: i64[8], i: i64[20], s: i64[20]) {
  y = exp(x)
  dead = gather(y, 0, reshape(i * 3, [2, 10]))
  twice = index_select(n, 0, i * 3)
  never = isnan(scatter(n, 0, s, s))
  sorted = gather(x, 1, argsort(neg(x), 1))
  rows = index_select(x, 0, i)
  beside = index_select(n, 0, reshape(i, [20]))
  hot = one_hot(n, 7)
  return where(reshape(never, [8, 1]), x, y), rows
}
--- graph
graph(arg0: f32[8, 16], arg1: i64[8], arg2: i64[20], arg3: i64[20]) {
  exp = exp(arg0)
  index_select = index_select(arg0, dim=0, index=arg2)
  mul = mul(arg2, 3)
  check mul below 8 for gather
  check arg3 below 8 for scatter
  check arg1 below 7 for index_select
  return exp, index_select
}
--- plan
  check v0 in [0, 8) for index_select
  check v1 in [0, 8) for scatter
  check v2 in [0, 7) for index_select
  k0_copy(v0, v3)
  check v3 in [0, 8) for gather
  k1_exp(v4, v5)
  k2_copy(v0, v4, v6)
  return v5 f32[8, 16]
  return v6 f32[20, 16]
