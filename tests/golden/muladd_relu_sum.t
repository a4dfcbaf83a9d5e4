# A full reduction with its pointwise producers: one kernel, split into chunks.
graph(w: f64[8388608], x: f64[8388608], b: f64[8388608]) {
  y = sum(relu(w * x + b))
  return y
}
--- plan
  k0_mul_add_relu_sum(v0, v1, v2, v3)
  return v3 f64[]
--- loops
kernel k0_mul_add_relu_sum(inner a0:8388608) row split 256 {
  b0: in f64[8388608]
  b1: in f64[8388608]
  b2: in f64[8388608]
  b3: out f64[1]
  t2 = f64 load b0[a0]
  t3 = f64 load b1[a0]
  t4 = f64 mul t2, t3
  t5 = f64 load b2[a0]
  t6 = f64 add t4, t5
  t7 = f64 relu t6
  t8 = f64 reduce sum t7
  store b3[0] = t8
}
