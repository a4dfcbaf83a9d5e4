# What reads an index that is only looked at need not wait until all of it is there: one kernel.
graph(x: f32[8], i: i64[20]) {
  j = maximum(i, 0)
  dead = gather(x, 0, j)
  return square(j)
}
--- plan
  k0_maximum_square(v0, v1, v2)
  check v1 in [0, 8) for gather
  return v2 i64[20]
--- loops
kernel k0_maximum_square(outer a0:20) tile split 1 {
  b0: in i64[20]
  b1: out i64[20]
  b2: out i64[20]
  t1 = i64 load b0[a0]
  t3 = i64 maximum t1, 0:i64
  t4 = i64 square t3
  store b1[a0] = t3
  store b2[a0] = t4
}
