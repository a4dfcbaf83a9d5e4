# A batch norm in eval disappears into the weights of the convolution before it.
# arguments: 1
graph(x: f32[1, 8, 14, 14], w: f32[16, 8, 3, 3], m: f32[16], v: f32[16], g: f32[16], b: f32[16]) {
  y = relu(batch_norm(conv2d(x, w, padding=1), m, v, g, b))
  return y
}
--- graph
graph(arg0: f32[1, 8, 14, 14], arg1: f32[16, 8, 3, 3], arg2: f32[16], arg3: f32[16], arg4: f32[16], arg5: f32[16], arg6: f32[16, 8, 3, 3], arg7: f32[16, 1, 1]) {
  convolution = convolution(arg0, arg6, stride=[1, 1], padding=[1, 1], dilation=[1, 1])
  add = add(convolution, arg7)
  relu = relu(add)
  return relu
}
--- plan
  convolution v2 = v0 * v1 [1 x 8 of 14x14 -> 16 of 14x14, kernel 3x3, padding 1x1] then k0_add_relu(v2, v3)
  return v2 f32[1, 16, 14, 14]
