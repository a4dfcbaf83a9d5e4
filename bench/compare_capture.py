#!/usr/bin/env python3
"""Calls of compiled functions beside PyTorch: guards, sizes and numbers that change, many ops. The same functions in
turn, least of the rounds; freed memory is kept, caches on disk are empty in each round.

    python bench/compare_capture.py build/bench_capture [THREADS] [ROUNDS] [RUNS] [PART OF A NAME]     needs torch; prints a table"""
import json, os, subprocess, sys, tempfile, time

KEPT = {'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': str(1 << 40)}

def torch_rows(threads, runs, part):
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(1)

    def adds_all(rate, *x):
        y = torch.relu(x[0])
        for other in x[1:]: y = y + other
        return y

    def block(rate, x, w):
        wide = torch.nn.functional.gelu(x @ w)
        return torch.softmax(wide + wide.mean(1, keepdim=True), 1)

    def step(rate, x, g): return x - (g + x * 0.01) * rate

    def many_ops(rate, x, y):
        z = x
        for _ in range(500): z = z * 0.5 + y
        return z

    def measure(name, function, inputs, rates, runs, whole=False):
        if part not in name: return
        different = [(inputs[k % len(inputs)], 0.1 / (1 + k % rates)) for k in range(len(inputs) * rates)]
        def least(f):
            best = 1e30
            for run in range(-2, runs):
                start = time.perf_counter()
                for x, rate in different: f(rate, *x)
                if run >= 0: best = min(best, (time.perf_counter() - start) / len(different))
            return best * 1e6
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=whole)
        eager = least(function)
        start = time.perf_counter()
        for x, rate in different: compiled(rate, *x)
        first = (time.perf_counter() - start) * 1e6
        print(json.dumps({'case': name, 'torch_us': eager, 'torch_compile_us': least(compiled), 'torch_first_us': first}), flush=True)

    with torch.no_grad():
        ones, weight = [torch.ones(2, 2) for _ in range(100)], torch.randn(64, 256)
        for count in (1, 16, 100): measure(f'{count} inputs', adds_all, [ones[:count]], 1, 20 * runs)
        sizes = [(torch.randn(8 + 3 * k, 64), weight) for k in range(100)]
        measure('20 batch sizes', block, sizes[:20], 1, runs)
        measure('100 batch sizes', block, sizes, 1, runs // 4)
        measure('100 learning rates', step, [(torch.randn(10000), torch.randn(10000))], 100, runs // 4)
        measure('1000 ops', many_ops, [(torch.randn(4), torch.randn(4))], 1, 5 * runs)
        measure('1000 ops fullgraph', many_ops, [(torch.randn(4), torch.randn(4))], 1, 5 * runs, whole=True)
        measure('1 inputs fullgraph', adds_all, [ones[:1]], 1, 20 * runs, whole=True)

def main():
    if sys.argv[1] == '--torch': return torch_rows(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    program, threads, rounds, runs, part = sys.argv[1], *[(sys.argv + [''] * 5)[i] or default for i, default in enumerate(('2', '3', '200', ''), 2)]
    rows = {}
    for _ in range(int(rounds)):
        for command in ([program, threads, runs, part], [sys.executable, __file__, '--torch', threads, runs, part]):
            with tempfile.TemporaryDirectory() as folder:
                fresh = {'CARBIDE_CACHE_DIR': folder, 'TORCHINDUCTOR_CACHE_DIR': folder}
                text = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ, **KEPT, **fresh)).stdout
            for row in map(json.loads, text.splitlines()):
                mine = rows.setdefault(row['case'], dict(row))
                for key, value in row.items(): mine[key] = min(mine.get(key, value), value)
    print('| case | graphs | eager us | compiled us | torch eager us | torch.compile us | first calls ms | torch.compile ms |\n' + '| --- ' * 8 + '|')
    for row in rows.values():
        print(f"| {row['case']} | {row['graphs']} | {row['eager_us']:.2f} | {row['compiled_us']:.2f} | {row['torch_us']:.2f} | "
              f"{row['torch_compile_us']:.2f} | {row['first_us'] / 1e3:.0f} | {row['torch_first_us'] / 1e3:.0f} |")

main()
