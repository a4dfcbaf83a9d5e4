# Three convolutions run channels-last: the transposes are views, but for the one in front of the
# flattened features.
# arguments: 1
graph(x: f32[2, 3, 32, 32], w: f32[16, 3, 3, 3], b: f32[16], v: f32[16, 16, 3, 3], c: f32[16], u: f32[16, 16, 3, 3], l: f32[10, 256]) {
  h = max_pool2d(relu(conv2d(x, w, b, padding=1)), 2)
  r = relu(conv2d(h, v, c, padding=1) + h)
  y = adaptive_avg_pool2d(conv2d(r, u, padding=1), 4)
  return linear(flatten(y, 1), l)
}
--- graph
graph(arg0: f32[2, 3, 32, 32], arg1: f32[16, 3, 3, 3], arg2: f32[16], arg3: f32[16, 16, 3, 3], arg4: f32[16], arg5: f32[16, 16, 3, 3], arg6: f32[10, 256], arg7: f32[16, 3, 3, 3], arg8: f32[16], arg9: f32[16, 16, 3, 3], arg10: f32[16], arg11: f32[16, 16, 3, 3], arg12: f32[10, 256]) {
  permute = permute(arg0, dims=[0, 2, 3, 1])
  permute_1 = permute(arg7, dims=[0, 2, 3, 1])
  convolution = convolution(permute, permute_1, stride=[1, 1], padding=[1, 1], dilation=[1, 1], channels_last=true)
  reshape = reshape(arg8, sizes=[1, 1, 1, 16])
  add = add(convolution, reshape)
  relu = relu(add)
  window = window(relu, dim=1, size=2, step=2)
  window_1 = window(window, dim=2, size=2, step=2)
  amax = amax(window_1, dim=[4, 5])
  permute_2 = permute(arg9, dims=[0, 2, 3, 1])
  convolution_1 = convolution(amax, permute_2, stride=[1, 1], padding=[1, 1], dilation=[1, 1], channels_last=true)
  reshape_1 = reshape(arg10, sizes=[1, 1, 1, 16])
  add_1 = add(convolution_1, reshape_1)
  add_2 = add(add_1, amax)
  relu_1 = relu(add_2)
  permute_3 = permute(arg11, dims=[0, 2, 3, 1])
  convolution_2 = convolution(relu_1, permute_3, stride=[1, 1], padding=[1, 1], dilation=[1, 1], channels_last=true)
  window_2 = window(convolution_2, dim=1, size=4, step=4)
  window_3 = window(window_2, dim=2, size=4, step=4)
  sum = sum(window_3, dim=[4, 5])
  mul = mul(sum, 0.0625)
  permute_4 = permute(mul, dims=[0, 3, 1, 2])
  reshape_2 = reshape(permute_4, sizes=[2, 256])
  permute_5 = permute(arg12, dims=[1, 0])
  matmul = matmul(reshape_2, permute_5)
  return matmul
}
--- plan
  convolution v2 = v0 * v1 [2 x 3 of 32x32 -> 16 of 32x32, kernel 3x3, padding 1x1, channels last] then k0_add_relu(v2, v3)
  k1_amax(v2, v4)
  convolution v6 = v4 * v5 [2 x 16 of 16x16 -> 16 of 16x16, kernel 3x3, padding 1x1, channels last] then k2_add_relu(v6, v7, v4)
  convolution v9 = v6 * v8 [2 x 16 of 16x16 -> 16 of 16x16, kernel 3x3, padding 1x1, channels last]
  k3_sum(v9, v10)
  k4_mul(v10, v11)
  matmul v13 = v11 @ v12 [1 x 2 x 10 x 256]
  return v13 f32[2, 10]
