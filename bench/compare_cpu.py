#!/usr/bin/env python3
"""Carbide beside NumPy, PyTorch eager and torch.compile on this CPU, in one run.

    python bench/compare_cpu.py build/carbide [--threads 2] [--rounds 7] [--markdown] [case ...]

torch runs in two processes: as installed, where the C library gives a freed large result back to the system and the next
one is new pages; and tuned as its users tune it, with freed memory kept (KEEP below; Carbide keeps it by itself). Both and
`carbide bench --only eager|compiled` are asked in turn, round after round, so that all see the same machine in the same
minute, and each one variant alone in its caches. Every figure is the median over the rounds of a median over calls. Needs
torch and numpy in the Python that runs it (docs/benchmarks.md says how they were installed).
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
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


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
        bins = {k: (t.randn(1 << k), t.randint(1 << k, (1 << 22,))) for k in (10, 16, 22)}
        fives, column = t.randn(200000, 5), t.randn(200000, 1)
        words, table, grad = t.randint(1000, (8192, 1)), t.randn(1000, 64), t.randn(8192, 64)

        def scatter(x, index):
            return lambda: x.scatter_add(0, index, medium)

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
            "eager_short_rows": (lambda: fives * column, None, lambda: fives.numpy() * column.numpy()),
            "scatter_2_10": (scatter(*bins[10]), None),
            "scatter_2_16": (scatter(*bins[16]), None),
            "scatter_2_22": (scatter(*bins[22]), None),
            "scatter_rows": (lambda: table.scatter_add(0, words.expand(-1, 64), grad), None),
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


def serve(threads, names):
    """The peer's process: says how long first calls took, then answers "CASE VARIANT" with a median in ms."""
    peer = Peer(threads)
    ready, first = peer.prepare(names)
    print(json.dumps({"first_call_s": first, "variants": {name: list(v) for name, v in ready.items()},
                      "versions": f"torch {peer.torch.__version__} numpy {peer.numpy.__version__}"}), flush=True)
    with peer.torch.no_grad():
        for line in sys.stdin:
            name, variant = line.split()
            print(median_ms(ready[name][variant]), flush=True)


class Served:
    """A peer's process, as the parent sees it."""

    def __init__(self, options, suffix, environment):
        line = [sys.executable, __file__, "--serve", options.carbide, "--threads", str(options.threads), *options.case]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})
        self.suffix, self.facts = suffix, json.loads(self.process.stdout.readline())

    def ask(self, name, variant):
        print(name, variant, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def measure(options, peers):
    rows = {}
    for _ in range(options.rounds):
        for name, variants in peers[0].facts["variants"].items():
            row = rows.setdefault(name, {})
            for variant in variants:
                for peer in peers:
                    row.setdefault(variant + peer.suffix, []).append(peer.ask(name, variant))
            for key, side in (("carbide_eager", "eager"), ("carbide", "compiled")):
                own = carbide(options.carbide, name, options.threads, "--only", side, "--seconds", "0.3")
                row.setdefault(key, []).append(own[side + "_ms"])
            if "own" not in row:  # compile times, and how far the outputs are from float64
                row["own"] = carbide(options.carbide, name, options.threads, "--seconds", "0.1")
    for name, row in rows.items():
        for key in list(row):
            if key != "own":
                row[key] = statistics.median(row[key])
        row["torch_first_call_s"] = peers[0].facts["first_call_s"].get(name)
    return rows


def show(rows, markdown):
    columns = [("numpy", "numpy_kept"), ("torch eager", "torch_eager"), ("kept", "torch_eager_kept"),
               ("torch.compile", "torch_compile"), ("kept", "torch_compile_kept"), ("carbide eager", "carbide_eager"),
               ("carbide", "carbide")]
    header = ["case", *(title + " ms" for title, _ in columns), "vs torch.compile, kept", "vs torch eager, kept",
              "carbide eager vs torch eager, kept", "first call s / cold ms"]
    table = []
    for name, row in rows.items():
        ratio = lambda key, own: f"{row[key] / row[own]:.2f}x" if row.get(key) else "-"
        both = lambda key, own: f"{ratio(key, own)}, {ratio(key + '_kept', own)}"
        first = f"{row['torch_first_call_s']:.1f}" if row["torch_first_call_s"] else "-"
        table.append([name, *(f"{row[key]:.4f}" if row.get(key) else "-" for _, key in columns),
                      both("torch_compile", "carbide"), both("torch_eager", "carbide"),
                      both("torch_eager", "carbide_eager"), f"{first} / {row['own'].get('compile_cold_ms') or 0:.0f}"])
    if markdown:
        print("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
        for line in table:
            print("| " + " | ".join(line) + " |")
        return
    width = [max(len(r[i]) for r in [header] + table) for i in range(len(header))]
    for line in [header] + table:
        print("  ".join(text.rjust(width[i]) for i, text in enumerate(line)))


def processor():
    with open("/proc/cpuinfo") as info:
        facts = dict(line.split(":", 1) for line in info.read().split("\n\n")[0].splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    return f"{facts.get('model name', platform.machine())} (family {facts.get('cpu family', '?')})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("carbide")
    parser.add_argument("case", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    if options.serve:
        return serve(options.threads, options.case)
    peers = [Served(options, "", {}), Served(options, "_kept", KEEP)]
    print(f"# {time.strftime('%Y-%m-%d')} {processor()} {peers[0].facts['versions']} threads {options.threads} "
          f"rounds {options.rounds}", file=sys.stderr)
    show(measure(options, peers), options.markdown)
    for peer in peers:
        peer.process.stdin.close()
        peer.process.wait()


if __name__ == "__main__":
    main()
