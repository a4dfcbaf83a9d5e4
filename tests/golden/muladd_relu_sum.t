# A full reduction with its pointwise producers: one kernel, split into chunks.
graph(w: f64[8388608], x: f64[8388608], b: f64[8388608]) {
  y = sum(relu(w * x + b))
  return y
}
--- plan
--- loops
