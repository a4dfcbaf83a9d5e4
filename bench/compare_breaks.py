#!/usr/bin/env python3
"""Values in the middle of a compiled function, beside PyTorch: the same functions, in turn, least of the rounds.

    python bench/compare_breaks.py build/bench_breaks [THREADS] [ROUNDS]      needs torch; prints a table"""
import json, os, subprocess, sys, time
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'models'))
from networks import GPT, begun  # noqa: E402

def activation(x): return x * 0.5 * (torch.tanh((x + x * x * x * 0.044715) * 0.79788456) + 1.0)

def branch(x):
    y = activation(x + 0.5)
    if y.mean().item() > 0: return activation(y - 0.25)
    return -y

def newton(x):
    goal = x.abs() + 1.0
    root = goal
    for i in range(50):
        step = (root + goal / root) * 0.5
        still = (step - root).abs().max().item() < 1e-5
        root = step
        if still: break
    return root

def k_means(x):
    centre = x[:16]
    number = torch.arange(16)
    for i in range(30):
        far = (centre * centre).sum(1) - x @ centre.t() * 2.0
        mine = (number[:, None] == far.argmin(1)[None]).to(x.dtype)
        step = mine @ x / mine.sum(1).clamp(min=1.0)[:, None]
        still = (step - centre).abs().max().item() < 1e-4
        centre = step
        if still: break
    return centre

def loss(w, x): return (((w - x) * (w - x) + 0.01).sqrt() + w * w * 0.05).sum()

def line_search(x):
    w = x * 0.0
    now = loss(w, x).item()
    for i in range(30):
        root = ((w - x) * (w - x) + 0.01).sqrt()
        slope = (w - x) / root + w * 0.1
        step = slope / (0.01 / (root * root * root) + 0.1)
        gain, rate = (slope * step).sum().item(), 1.0
        for halved in range(12):
            after = loss(w - step * rate, x).item()
            if after <= now - 1e-4 * rate * gain: break
            rate *= 0.5
        w = w - step * rate
        if now - after < 1e-4 * now: break
        now = after
    return w

BEAMS, TOP, END = 4, 8, 0

class BeamSearch:
    """examples/beam_search.h on GPT-2 with random weights."""
    def __init__(self, longest):
        self.net, self.longest = begun(GPT(50304, length=1024, width=768, layers=12, heads=12)).eval(), longest

    def grow(self, text, score, over):
        chance = torch.log_softmax(self.net(text)[:, -1], -1)
        chance, token = chance.topk(TOP, -1)
        only = torch.where(torch.arange(TOP) == 0, 0.0, -1e9)
        chance = torch.where(over[:, None], only, chance)
        token = torch.where(over[:, None], END, token)
        score = score[:, None] + chance
        drawn = (score - (-(torch.rand_like(score).clamp(1e-20).log())).log()).flatten().topk(BEAMS, 0)[1]
        token = token.flatten().gather(0, drawn)
        text = torch.cat([text.index_select(0, drawn // TOP), token[:, None]], 1)
        return text, score.flatten().gather(0, drawn), token == END

    def __call__(self, prompt):
        text = prompt.repeat(BEAMS, 1)
        score = torch.where(torch.arange(BEAMS) == 0, 0.0, -1e9)
        over = torch.zeros(BEAMS, dtype=torch.bool)
        while text.shape[1] < self.longest:
            text, score, over = self.grow(text, score, over)
            if over.all().item(): break
        return text, score

def least(function, x, runs):
    best = 1e30
    for run in range(-min(5, runs), runs):
        start = time.perf_counter()
        function(x)
        if run >= 0: best = min(best, time.perf_counter() - start)
    return best * 1e6

def main():
    program, threads, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2, int(sys.argv[3]) if len(sys.argv) > 3 else 3
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    cases = [('branch', branch, 1024, 1024, 100), ('branch', branch, 16, 16, 1000), ('newton', newton, 256, 1024, 100), ('newton', newton, 4, 16, 1000),
             ('k_means', k_means, 20000, 16, 50), ('k_means', k_means, 64, 16, 300), ('line_search', line_search, 256, 1024, 20), ('line_search', line_search, 4, 16, 100)]
    search = BeamSearch(32)
    cases.append(('beam_search', search, BEAMS, search.longest, 3))
    compiled = {name: torch.compile(function) for name, function, *_ in cases}
    rows = {}
    for _ in range(rounds):
        for line in subprocess.run([program, str(threads)], check=True, capture_output=True, text=True).stdout.splitlines():
            row = json.loads(line)
            mine = rows.setdefault(row['case'], dict(row))
            for key in ('eager_us', 'compiled_us'): mine[key] = min(mine[key], row[key])
        for name, function, height, width, runs in cases:
            x = torch.randint(1, 50304, (1, 8)) if function is search else torch.randn(height, width)
            mine = rows[f'{name} {height}x{width}']
            with torch.no_grad():
                for key, f in (('torch_us', function), ('torch_compile_us', compiled[name])):
                    mine[key] = min(mine.get(key, 1e30), least(f, x, runs))
    print('| case | graphs | eager us | compiled us | torch eager us | torch.compile us |\n| --- | --- | --- | --- | --- | --- |')
    for row in rows.values():
        print(f"| {row['case']} | {row['graphs']} | {row['eager_us']:.1f} | {row['compiled_us']:.1f} | {row['torch_us']:.1f} | {row['torch_compile_us']:.1f} |")

main()
