# Of writes, what a later one leaves nothing of is dropped: the same part, one within, every other
# column. Not one that goes beyond, nor one along another dim, nor one of as many in other steps.
graph(p: f32[8, 8], q: f32[8, 8], r: f32[8, 8], v: f32[8, 2], w: f32[8, 4], x: f32[2, 8], s: f32[8, 8], t: f32[8, 8]) {
  pp = slice_scatter(slice_scatter(p, v, 1, 3, 5), w, 1, 2, 6)
  mutate p = slice_scatter(pp, exp(w), 1, 2, 6)
  qq = slice_scatter(slice_scatter(q, w, 1, 0, 7, 2), exp(w), 1, 0, 7, 2)
  mutate q = slice_scatter(qq, v, 1, 5, 7)
  rr = slice_scatter(slice_scatter(r, w, 1, 2, 6), x, 0, 3, 5)
  mutate r = slice_scatter(rr, v, 1, 2, 4)
  mutate s = slice_scatter(slice_scatter(s, w, 1, 0, 7, 2), exp(w), 1, 0, 4)
  mutate t = slice_scatter(slice_scatter(t, v, 1, 1, 3), exp(w), 1, 0, 7, 2)
  return
}
--- graph
graph(arg0: f32[8, 8], arg1: f32[8, 8], arg2: f32[8, 8], arg3: f32[8, 2], arg4: f32[8, 4], arg5: f32[2, 8], arg6: f32[8, 8], arg7: f32[8, 8]) {
  exp = exp(arg4)
  slice_scatter = slice_scatter(arg0, exp, dim=1, start=2, end=6)
  slice_scatter_1 = slice_scatter(arg1, exp, dim=1, end=7, step=2)
  slice_scatter_2 = slice_scatter(slice_scatter_1, arg3, dim=1, start=5, end=7)
  slice_scatter_3 = slice_scatter(arg2, arg4, dim=1, start=2, end=6)
  slice_scatter_4 = slice_scatter(slice_scatter_3, arg5, dim=0, start=3, end=5)
  slice_scatter_5 = slice_scatter(slice_scatter_4, arg3, dim=1, start=2, end=4)
  slice_scatter_6 = slice_scatter(arg6, arg4, dim=1, end=7, step=2)
  slice_scatter_7 = slice_scatter(slice_scatter_6, exp, dim=1, end=4)
  slice_scatter_8 = slice_scatter(arg7, arg3, dim=1, start=1, end=3)
  slice_scatter_9 = slice_scatter(slice_scatter_8, exp, dim=1, end=7, step=2)
  mutate arg0 = slice_scatter
  mutate arg1 = slice_scatter_2
  mutate arg2 = slice_scatter_5
  mutate arg6 = slice_scatter_7
  mutate arg7 = slice_scatter_9
  return
}
