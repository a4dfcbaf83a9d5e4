graph(x: f32[256, 512], y: f32[512, 256]) {
  z = x + permute(y, [1, 0])
  return z
}
--- plan
--- loops
