# Writes to parts of what is computed are made where it lies, when all that reads it as it was has
# run: of y by three of them, of which no state in between is in memory, of the product behind what
# reads its rows. An input is copied first. Whole rows that nobody reads meanwhile are left to the
# loop, and so is a base that is a result itself.
graph(x: f32[64, 64], w: f32[64, 64]) {
  y = x * 2
  column = slice(y, 1, 3, 4)
  first = slice_scatter(y, tanh(column), 1, 5, 6)
  line = slice(first, 0, 7, 8)
  inner = slice_scatter(line, slice(line, 1, 5, 6) + 1, 1, 6, 7)
  second = slice_scatter(first, inner, 0, 7, 8)
  third = slice_scatter(second, transpose(slice(second, 0, 8, 9), 0, 1), 1, 9, 10)
  product = matmul(x, w)
  zeroed = slice_scatter(product, sum(slice(product, 1, 0, 8), 1, true), 1, 63, 64)
  copied = slice_scatter(w, slice(x, 1, 0, 1), 1, 1, 2)
  rows = slice_scatter(w, slice(x, 0, 0, 1), 0, 1, 2)
  result = exp(x)
  beside = slice_scatter(result, slice(x, 1, 0, 1), 1, 1, 2)
  return matmul(third, w), zeroed, copied, rows, result, beside
}
--- plan
  k0_copy(v0, v1)
  k1_mul_ge_lt_logical_and(v0, v2, v1, v3, v4, v5, v6)
  k2_tanh(v3, v7)
  k3_add(v7, v3, v8)
  k4_ge_lt_logical_and_where(v7, v3, v9)
  write v3 v7 at 5 by [64, 1], v8 at 454 by [64, 1], v9 at 9 by [64, 1]
  matmul v10 = v3 @ v2 [1 x 64 x 64 x 64]
  matmul v11 = v0 @ v2 [1 x 64 x 64 x 64]
  k5_sum(v11, v12)
  write v11 v12 at 63 by [64, 1]
  write v13 v2 at 0 by [64, 1], v1 at 1 by [64, 1]
  return v10 f32[64, 64]
  return v11 f32[64, 64]
  return v13 f32[64, 64]
  return v4 f32[64, 64]
  return v5 f32[64, 64]
  return v6 f32[64, 64]
