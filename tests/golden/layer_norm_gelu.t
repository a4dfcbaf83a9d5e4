graph(x: f32[64, 1024], w: f32[1024], b: f32[1024]) {
  n = layer_norm(x, [1024], w, b)
  y = gelu(n, tanh=true)
  return y
}
--- plan
--- loops
