# Parts of inputs that are written through views of other forms: a row of a layer, both where inputs
# say; of a transposed tensor; of one with other dims; of a part that is not what was there, which is
# written as a whole.
graph(k: f32[4, 512, 64], h: f32[512, 4, 64], f: f32[2048, 64], o: f32[64, 64], q: f32[8, 8], v: f32[64], w: f32[4, 64], layer: i64[], pos: i64[]) {
  rows = reshape(dynamic_slice(k, layer, 0, 1), [512, 64])
  row = dynamic_slice_scatter(rows, reshape(v, [1, 64]), pos, 0)
  mutate k = dynamic_slice_scatter(k, reshape(row, [1, 512, 64]), layer, 0)
  turned = permute(h, [1, 0, 2])
  heads = dynamic_slice_scatter(turned, reshape(w, [4, 1, 64]), pos, 1)
  mutate h = permute(heads, [1, 0, 2])
  many = reshape(f, [4, 512, 64])
  mutate f = reshape(slice_scatter(many, reshape(w, [4, 1, 64]), 1, 7, 8), [2048, 64])
  other = slice_scatter(slice(o, 0, 3, 5), reshape(v, [2, 32]), 1, 0, 32)
  mutate o = slice_scatter(o, other, 0, 2, 4)
  mutate q = permute(slice_scatter(q, reshape(slice(v, 0, 0, 8), [1, 8]), 0, 3, 4), [1, 0])
  return
}
--- plan
  k0_copy(v0, v1) with k1_copy(v2, v3)
  k2_lt_where(v0, v4, v5)
  k3_ge_lt_logical_and_where(v0, v6, v7)
  mutate v1 f32[1, 64] -> input 0 at 0 + arg7 * 32768 + arg8 * 64 by [64, 1]
  mutate v3 f32[4, 1, 64] -> input 1 at 0 + arg8 * 256 by [64, 256, 1]
  mutate v3 f32[4, 1, 64] -> input 2 at 448 by [32768, 64, 1]
  mutate v5 f32[2, 64] -> input 3 at 128 by [64, 1]
  mutate v7 f32[8, 8] -> input 4
