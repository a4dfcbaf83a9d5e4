#!/usr/bin/env python3
"""PyTorch's times of the cases of bench/slots.c: eager and torch.compile, microseconds, the least of 300 calls.

and of functions of a position that moves, milliseconds for 256 of them: eager, torch.compile the first time,
and the least of 5 more.

    python bench/compare_slots.py            needs torch; run build/bench_slots beside it"""
import time

import torch

torch.set_num_threads(2)
cache, rows = torch.zeros(8, 4096, 64), torch.zeros(4096, 512)
grid = torch.rand(512, 512)


def slot(v):
    cache[:, 5:6] = v
    return v.sum()


def row(v):
    rows[5] = v[0] * 2
    return v.sum()


def every_other(v):
    grid[:, ::2] *= 0.5
    return v.sum()


def selected(v):
    return torch.masked_select(grid, grid > 0.5)


def places(v):
    return torch.nonzero(grid > 0.5)


keys, values, series = torch.zeros(8, 256, 64), torch.zeros(8, 256, 64), torch.rand(256 * 16, 64)


def decodes(v, at):
    token = v * 0.5
    keys[:, at:at + 1] = token
    values[:, at:at + 1] = token + 1
    return torch.nn.functional.scaled_dot_product_attention(v, keys, values, attn_mask=torch.arange(256) <= at)


def batches(v, at):
    return (torch.softmax(series[at * 16:at * 16 + 16], -1) - v[0].sum()).square().mean()


def recurs(v, at):
    h = v[0]
    for i in range(8):
        h = torch.tanh(h * 0.9 + series[at + i])
    return h


def whole_pass(function, v):
    start = time.perf_counter()
    for at in range(256):
        function(v, at)
    return (time.perf_counter() - start) * 1e3


def least_pass(function, v):
    return min(whole_pass(function, v) for _ in range(5))


def least(function, v):
    best = 1e9
    for _ in range(300):
        start = time.perf_counter()
        function(v)
        best = min(best, time.perf_counter() - start)
    return best * 1e6


with torch.no_grad():
    for function in (slot, row, every_other, selected, places):
        grid = torch.rand(512, 512)
        v = torch.ones(1, 512) if function is row else torch.ones(8, 1, 64)
        print(f"{function.__name__:12s} eager {least(function, v):10.1f}  torch.compile {least(torch.compile(function), v):10.1f}")
    for function in (decodes, batches, recurs):
        v = torch.ones(8, 1, 64)
        eager, fast = least_pass(function, v), torch.compile(function)
        first = whole_pass(fast, v)
        print(f"{function.__name__:12s} eager {eager:8.2f} ms  torch.compile first {first:9.2f}  then {least_pass(fast, v):8.2f}")
