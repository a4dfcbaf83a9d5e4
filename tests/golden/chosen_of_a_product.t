# A label chooses one element of a row: that is converted where it is read, and the product's rows are not stored anew.
graph(x: bf16[32, 64], w: bf16[64, 512], i: i64[32, 1]) {
  logits = to(matmul(x, w), dtype=f32)
  chosen = gather(logits, 1, i)
  return logsumexp(logits, 1, true) - chosen
}
--- plan
  check v0 in [0, 512) for gather
  matmul v3 = v1 @ v2 [1 x 32 x 512 x 64, sums in f32]
  k0_amax_isinf_where_sub(v3, v0, v4)
  return v4 f32[32, 1]
