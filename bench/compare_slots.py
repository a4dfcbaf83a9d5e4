#!/usr/bin/env python3
"""PyTorch's times of the cases of bench/slots.c: eager and torch.compile, microseconds, the least of 300 calls.

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
