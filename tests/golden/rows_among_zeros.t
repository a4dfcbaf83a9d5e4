# A few rows among zeros, an embedding's gradient, are added where they are read: nobody writes the zeros.
graph(d: bf16[4000, 64], g: f32[40, 64], i: i64[40]) {
  zeros = to(full([4000, 64], 0.0), dtype=f32)
  place = expand(reshape(i, [40, 1]), [40, 64])
  rows = scatter_add(zeros, 0, place, g)
  all = to(d, dtype=f32) + rows
  return sqrt(sum(all * all)), all * 0.5
}
--- plan
  check v0 in [0, 4000) for scatter
  k0_copy(v1)
  k1_to_scatter(v0, v1)
  k2_to(v0, v1, v2)
  check v2 in [0, 40) for scatter_add
  k3_copy(v4)
  k4_scatter_add(v3, v2, v4)
  k5_maximum_to(v1, v5)
  check v5 in [0, 40) for index_select
  k6_ge_where_add_mul(v6, v1, v5, v4, v7, v8)
  return v7 f32[]
  return v8 f32[4000, 64]
