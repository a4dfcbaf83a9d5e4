# Positions that become one dim, and a sum by index over them, stay channels-last.
# arguments: 1
graph(x: f32[2, 16, 8, 8], v: f32[16, 16, 3, 3], u: f32[16, 16, 3, 3], w: f32[16, 16, 3, 3]) {
  y = relu(conv2d(relu(conv2d(relu(conv2d(x, v, padding=1)), u, padding=1)), w, padding=1))
  flat = reshape(y, [2, 16, 64])
  sums = scatter_add(zeros([2, 16, 64], dtype=f32), 2, to(flat > 0.5, i64) * 3, flat)
  return reshape(sums, [2, 16, 8, 8]) * 2
}
--- graph
graph(arg0: f32[2, 16, 8, 8], arg1: f32[16, 16, 3, 3], arg2: f32[16, 16, 3, 3], arg3: f32[16, 16, 3, 3], arg4: f32[16, 16, 3, 3], arg5: f32[16, 16, 3, 3], arg6: f32[16, 16, 3, 3]) {
  expand = expand(constant(0.0, f32), sizes=[2, 16, 64])
  permute = permute(expand, dims=[0, 2, 1])
  permute_1 = permute(arg0, dims=[0, 2, 3, 1])
  permute_2 = permute(arg4, dims=[0, 2, 3, 1])
  convolution = convolution(permute_1, permute_2, stride=[1, 1], padding=[1, 1], dilation=[1, 1], channels_last=true)
  relu = relu(convolution)
  permute_3 = permute(arg5, dims=[0, 2, 3, 1])
  convolution_1 = convolution(relu, permute_3, stride=[1, 1], padding=[1, 1], dilation=[1, 1], channels_last=true)
  relu_1 = relu(convolution_1)
  permute_4 = permute(arg6, dims=[0, 2, 3, 1])
  convolution_2 = convolution(relu_1, permute_4, stride=[1, 1], padding=[1, 1], dilation=[1, 1], channels_last=true)
  relu_2 = relu(convolution_2)
  reshape = reshape(relu_2, sizes=[2, 64, 16])
  gt = gt(reshape, 0.5)
  to = to(gt, dtype=i64)
  mul = mul(to, 3)
  scatter_add = scatter_add(permute, dim=1, index=mul, src=reshape)
  reshape_1 = reshape(scatter_add, sizes=[2, 8, 8, 16])
  mul_1 = mul(reshape_1, 2.0)
  permute_5 = permute(mul_1, dims=[0, 3, 1, 2])
  return permute_5
}
--- plan
  convolution v2 = v0 * v1 [2 x 16 of 8x8 -> 16 of 8x8, kernel 3x3, padding 1x1, channels last] then k0_relu(v2)
  convolution v4 = v2 * v3 [2 x 16 of 8x8 -> 16 of 8x8, kernel 3x3, padding 1x1, channels last] then k1_relu(v4)
  convolution v6 = v4 * v5 [2 x 16 of 8x8 -> 16 of 8x8, kernel 3x3, padding 1x1, channels last] then k2_relu_gt_to(v6, v7, v8)
  check v8 in [0, 64) for scatter_add
  k3_copy(v9)
  k4_scatter_add(v7, v8, v9)
  k5_mul(v9, v10)
  return v10 f32[2, 16, 8, 8]
