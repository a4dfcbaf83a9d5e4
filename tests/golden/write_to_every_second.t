# Every second element of every second row is read, computed and written where it lies: no position
# is divided, and all is one kernel.
graph(x: f32[100, 120]) {
  even = slice(x, 0, 0, 99, 2)
  twice = slice_scatter(even, slice(even, 1, 1, 120, 2) * 2, 1, 1, 120, 2)
  first = slice_scatter(x, twice, 0, 0, 99, 2)
  odd = slice(first, 0, 1, 100, 2)
  more = slice_scatter(odd, slice(odd, 1, 0, 119, 2) + 1, 1, 0, 119, 2)
  return relu(slice_scatter(first, more, 0, 1, 100, 2))
}
--- plan
  k0_lt_eq_logical_and_ge(v0, v1)
  return v1 f32[100, 120]
