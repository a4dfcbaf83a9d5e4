# a layer with its loss: the forward's own nodes, a sum to the bias, two products of matrices
graph(x: f32[64, 300], w: f32[10, 300], b: f32[10], t: i64[64]) {
  h = relu(linear(x, w, b))
  return cross_entropy(h, t)
}
--- grad
graph(arg0: f32[64, 300], arg1: f32[10, 300], arg2: f32[10], arg3: i64[64], arg4: f32[]) {
  linear = linear(arg0, arg1, arg2)
  relu = relu(linear)
  cross_entropy = cross_entropy(relu, arg3, none)
  le = le(relu, 0.0)
  arange = arange(start=0, end=10)
  ne = ne(arg3, -100)
  where = where(ne, arg3, 0)
  reshape = reshape(where, sizes=[64, 1])
  eq = eq(arange, reshape)
  reshape_1 = reshape(arg4, sizes=[1])
  expand = expand(reshape_1, sizes=[64])
  to = to(ne, dtype=i64)
  sum = sum(to, dim=[0])
  to_1 = to(sum, dtype=f32)
  div = div(expand, to_1)
  where_1 = where(ne, div, 0.0)
  neg = neg(where_1)
  reshape_2 = reshape(neg, sizes=[64, 1])
  where_2 = where(eq, reshape_2, 0.0)
  amax = amax(relu, dim=[1], keepdim=true)
  detach = detach(amax)
  sub = sub(relu, detach)
  exp = exp(sub)
  sum_1 = sum(exp, dim=[1])
  div_1 = div(where_1, sum_1)
  reshape_3 = reshape(div_1, sizes=[64, 1])
  expand_1 = expand(reshape_3, sizes=[64, 10])
  mul = mul(expand_1, exp)
  add = add(where_2, mul)
  where_3 = where(le, 0.0, add)
  permute = permute(arg1, dims=[1, 0])
  permute_1 = permute(permute, dims=[1, 0])
  matmul = matmul(where_3, permute_1)
  permute_2 = permute(where_3, dims=[1, 0])
  permute_3 = permute(arg0, dims=[1, 0])
  permute_4 = permute(permute_3, dims=[1, 0])
  matmul_1 = matmul(permute_2, permute_4)
  permute_5 = permute(matmul_1, dims=[1, 0])
  permute_6 = permute(permute_5, dims=[1, 0])
  sum_2 = sum(where_3, dim=[0], keepdim=true)
  reshape_4 = reshape(sum_2, sizes=[10])
  return cross_entropy, matmul, permute_6, reshape_4
}
--- grad plan
  matmul v2 = v0 @ v1 [1 x 64 x 10 x 300] then k0_add_relu(v2, v3)
  k1_amax_sub_exp_nonpositive_sum(v2, v4, v5)
  k2_ne_where(v6, v7)
  check v7 in [0, 10) for gather
  k3_ne_to_sum_log(v6, v5, v7, v2, v4, v8, v9, v10)
  k4_le_eq_neg_where(v2, v7, v10, v5, v4, v11, v12)
  matmul v13 = v11 @ v1 [1 x 64 x 300 x 10]
  matmul v14 = v11 @ v0 [1 x 10 x 300 x 64]
  return v9 f32[]
  return v13 f32[64, 300]
  return v14 f32[10, 300]
  return v12 f32[10]
