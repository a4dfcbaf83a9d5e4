#!/usr/bin/env python3
"""Carbide beside NumPy, PyTorch eager and torch.compile on this CPU, in one run.

    python bench/compare_cpu.py build/carbide [--threads 2] [--rounds 7] [--markdown] [case ...]

One process holds torch; `carbide bench --only eager|compiled` is called in turn with it, round after round, so that both
see the same machine in the same minute, and each one variant alone in its caches. Every figure is the median over the
rounds of a median over calls. Needs torch and numpy in the
Python that runs it (docs/benchmarks.md says how they were installed).
"""
import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "/tmp/carbide-peer-inductor")


def gelu(x, torch):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Peer:
    """The same cases as `carbide bench`, on torch and numpy."""

    def __init__(self, threads):
        import numpy
        import torch

        self.torch, self.numpy = torch, numpy
        torch.set_num_threads(threads)
        torch.manual_seed(0)

    def cases(self):
        t, np = self.torch, self.numpy
        big, medium = t.randn(1 << 24), t.randn(1 << 22)
        rows = medium.view(-1, 1024)
        w, x, b = (t.randn(1 << 21, dtype=t.float64) for _ in range(3))
        norm = t.nn.LayerNorm(1024)
        out, small, array = t.empty_like(big), t.randn(1024), medium.numpy()
        mlp = t.nn.Sequential(t.nn.Linear(784, 512), t.nn.ReLU(), t.nn.Linear(512, 512), t.nn.ReLU(),
                              t.nn.Linear(512, 10)).eval()
        batch = t.randn(64, 784)
        row_array = array.reshape(-1, 1024)

        def softmax_numpy():
            e = np.exp(row_array - row_array.max(axis=1, keepdims=True))
            return e / e.sum(axis=1, keepdims=True)

        return {
            "copy": (lambda: out.copy_(big), None),
            "gelu": (lambda v: gelu(v, t), (big,)),
            "muladd_relu_sum": (lambda p, q, r: (p * q + r).relu().sum(), (w, x, b)),
            "softmax": (lambda v: t.softmax(v, -1), (rows,)),
            "layernorm_gelu": (lambda v: gelu(norm(v), t), (rows,)),
            "mlp": (mlp, (batch,)),
            "overhead": (lambda v: gelu(v, t), (small,)),
            "eager_add": (lambda: t.add(medium, medium), None, lambda: array + array),
            "eager_exp": (lambda: t.exp(medium), None, lambda: np.exp(array)),
            "eager_sum": (lambda: t.sum(medium), None, lambda: array.sum()),
            "eager_softmax": (lambda: t.softmax(rows, -1), None, softmax_numpy),
        }

    def prepare(self, names):
        """name -> {variant: callable}; compiled ones have been called already."""
        ready, first = {}, {}
        with self.torch.no_grad():
            for name, (function, arguments, *numpy) in self.cases().items():
                if names and name not in names:
                    continue
                if arguments is None:
                    ready[name] = {"torch_eager": function}
                else:
                    compiled = self.torch.compile(function)
                    start = time.perf_counter()
                    compiled(*arguments)
                    first[name] = time.perf_counter() - start
                    ready[name] = {
                        "torch_eager": lambda f=function, a=arguments: f(*a),
                        "torch_compile": lambda f=compiled, a=arguments: f(*a),
                    }
                if numpy:
                    ready[name]["numpy"] = numpy[0]
        return ready, first


def median_ms(function, budget=0.25, least=5):
    function()
    start = time.perf_counter()
    function()
    count = max(least, min(300, int(budget / max(time.perf_counter() - start, 1e-7))))
    times = []
    for _ in range(count):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def carbide(command, name, threads, *more):
    line = [command, "bench", name, "--json", "--threads", str(threads), *more]
    out = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return [json.loads(row) for row in out.splitlines() if row.startswith("{")][-1]


def measure(options, peer):
    ready, first = peer.prepare(options.case)
    rows = {}
    for _ in range(options.rounds):
        for name, variants in ready.items():
            row = rows.setdefault(name, {})
            with peer.torch.no_grad():
                for variant, function in variants.items():
                    row.setdefault(variant, []).append(median_ms(function))
            for key, side in (("carbide_eager", "eager"), ("carbide", "compiled")):
                own = carbide(options.carbide, name, options.threads, "--only", side, "--seconds", "0.3")
                row.setdefault(key, []).append(own[side + "_ms"])
            if "own" not in row:  # compile times, and how far the outputs are from float64
                row["own"] = carbide(options.carbide, name, options.threads, "--seconds", "0.1")
    for name, row in rows.items():
        for key in list(row):
            if key != "own":
                row[key] = statistics.median(row[key])
        row["torch_first_call_s"] = first.get(name)
    return rows


def show(rows, markdown):
    header = ["case", "numpy ms", "torch eager ms", "torch.compile ms", "carbide eager ms", "carbide ms",
              "vs torch.compile", "vs torch eager", "first call s / cold ms"]
    table = []
    for name, row in rows.items():
        cell = lambda key: f"{row[key]:.4f}" if row.get(key) else "-"
        ratio = lambda key: f"{row[key] / row['carbide']:.2f}x" if row.get(key) else "-"
        first = f"{row['torch_first_call_s']:.1f}" if row["torch_first_call_s"] else "-"
        table.append([name, cell("numpy"), cell("torch_eager"), cell("torch_compile"), cell("carbide_eager"),
                      cell("carbide"), ratio("torch_compile"), ratio("torch_eager"),
                      f"{first} / {row['own'].get('compile_cold_ms') or 0:.0f}"])
    if markdown:
        print("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
        for line in table:
            print("| " + " | ".join(line) + " |")
        return
    width = [max(len(r[i]) for r in [header] + table) for i in range(len(header))]
    for line in [header] + table:
        print("  ".join(text.rjust(width[i]) for i, text in enumerate(line)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("carbide")
    parser.add_argument("case", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    peer = Peer(options.threads)
    print(f"# {time.strftime('%Y-%m-%d')} {platform.machine()} torch {peer.torch.__version__} "
          f"numpy {peer.numpy.__version__} threads {options.threads} rounds {options.rounds}", file=sys.stderr)
    show(measure(options, peer), options.markdown)


if __name__ == "__main__":
    main()
