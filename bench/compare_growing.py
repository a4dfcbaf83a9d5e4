#!/usr/bin/env python3
"""A text that grows, beside PyTorch: GPT-2 124M from 8 tokens on, each round computed anew; the same in turn, least of
the rounds for each length; torch.compile with the length marked as dynamic, and freed memory kept.

    python bench/compare_growing.py build/bench_growing [THREADS] [TOKENS] [ROUNDS]      needs torch; prints a table"""
import json, os, subprocess, sys, time

KEPT = {'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': str(1 << 40)}
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'models'))

def torch_rows(threads, tokens):
    import torch
    from networks import GPT, begun
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    net = begun(GPT(50304, length=1024, width=768, layers=12, heads=12)).eval()
    def next_token(text): return net(text)[:, -1].argmax(1, keepdim=True)
    compiled = torch.compile(next_token)
    rows = {'torch_ms': [], 'torch_compile_ms': []}
    with torch.no_grad():
        text = torch.randint(1, 50304, (1, 8))
        for _ in range(tokens):
            for key, f in (('torch_ms', next_token), ('torch_compile_ms', compiled)):
                start = time.perf_counter()
                token = f(text)
                rows[key].append((time.perf_counter() - start) * 1e3)
            text = torch.cat([text, token], 1)
    print(json.dumps(rows))

def run(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ, **KEPT)).stdout)

def main():
    if sys.argv[1] == '--torch': return torch_rows(int(sys.argv[2]), int(sys.argv[3]))
    program, threads, tokens, rounds = sys.argv[1], *[(sys.argv + [''] * 4)[i] or default for i, default in ((2, '2'), (3, '64'), (4, '2'))]
    least = {}
    for _ in range(int(rounds)):
        row = run([program, threads, tokens, '1'])
        print(f"{row['compiled']} compilations, {row['graphs']} graphs; weights {row['weights_mb']:.0f} MB, the process grew by {row['grown_mb']:.0f} MB")
        for rows in (row, run([sys.executable, __file__, '--torch', threads, tokens])):
            for key in rows:
                if key.endswith('_ms'): least[key] = [min(pair) for pair in zip(rows[key], least.get(key, rows[key]))]
    print('| token | eager ms | compiled ms | torch eager ms | torch.compile ms |\n' + '| --- ' * 5 + '|')
    keys = ['eager_ms', 'compiled_ms', 'torch_ms', 'torch_compile_ms']
    for i in sorted({0, 1, 2, 3, 7, 15, 31, 47, int(tokens) - 1} & set(range(int(tokens)))):
        print(f'| {i + 1} | ' + ' | '.join(f'{least[key][i]:.1f}' for key in keys) + ' |')
    print('| third to last | ' + ' | '.join(f'{sum(least[key][2:]):.0f}' for key in keys) + ' |')
    slower = [i + 1 for i in range(2, int(tokens)) if least['compiled_ms'][i] > least['eager_ms'][i]]
    print(f'tokens from the third on whose compiled round was slower than eager: {slower or "none"}')

main()
