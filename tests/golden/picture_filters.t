# Filters of a picture stay channels first: three channels, or one, fill no vector.
# arguments: 1
graph(x: f32[1, 3, 32, 32], w: f32[3, 1, 5, 5], e: f32[1, 1, 3, 3]) {
  h = conv2d(x, w, padding=2, groups=3)
  g = sum(relu(x - h), [1], true)
  return conv2d(g, e, padding=1) * conv2d(relu(g), e, padding=1)
}
--- graph
graph(arg0: f32[1, 3, 32, 32], arg1: f32[3, 1, 5, 5], arg2: f32[1, 1, 3, 3], arg3: f32[3, 1, 5, 5], arg4: f32[1, 1, 3, 3]) {
  convolution = convolution(arg0, arg3, stride=[1, 1], padding=[2, 2], dilation=[1, 1], groups=3)
  sub = sub(arg0, convolution)
  relu = relu(sub)
  sum = sum(relu, dim=[1], keepdim=true)
  convolution_1 = convolution(sum, arg4, stride=[1, 1], padding=[1, 1], dilation=[1, 1])
  relu_1 = relu(sum)
  convolution_2 = convolution(relu_1, arg4, stride=[1, 1], padding=[1, 1], dilation=[1, 1])
  mul = mul(convolution_1, convolution_2)
  return mul
}
