#!/usr/bin/env python3
"""AlexNet (batch 32), ResNet-50 (batch 1) and GPT-2 124M (forward, 1 x 128): Carbide beside PyTorch on this CPU, in one run.

    python bench/compare_networks.py build/carbide [--threads 2] [--rounds 5] [--markdown] [--dtypes f32,bf16,autocast]
        [--peers eager,default,max-autotune,freezing] [case ...]

Every variant is a process of its own, so that its peak of resident memory is its own, and they are asked for samples in
turn, so that all see the same machine in the same minute. A figure is the median over rounds of a median over calls; first
call: from the call to its result, with empty caches of compiled kernels. torch.compile's best mode counts; "freezing" is
inductor's option for constant weights, off by default. The dtype "autocast" is a network of f32 weights and inputs called
inside torch.autocast("cpu", torch.bfloat16) and cb_autocast_open(CB_BF16); "bf16" has weights and inputs of bf16. Needs torch.
"""
import argparse
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

CASES = {"alexnet": 32, "resnet50": 1, "gpt2": 1}


# ---- the peer, in a process of its own ----

def resident_mb(field):
    with open("/proc/self/status") as status:
        return next(float(line.split()[1]) / 1e3 for line in status if line.startswith(field))


def peer(case, dtype, variant, threads):
    """Answers each line on stdin with the median over calls in ms; an empty line ends it, with a last line of facts."""
    import peer_models
    import torch

    torch.set_num_threads(threads)
    if variant == "freezing":
        import torch._inductor.config

        torch._inductor.config.freezing = True
    model, x = peer_models.subject(case, torch.bfloat16 if dtype == "bf16" else torch.float32, CASES[case])
    before = resident_mb("VmRSS")
    if variant != "eager":
        model = torch.compile(model, mode="max-autotune" if variant == "max-autotune" else None)

    def call():  # autocast is entered for each call: within one scope eager converts the weights only once
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == "autocast"):
            model(x)

    start = time.perf_counter()
    call()
    print(json.dumps({"first_call_s": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        if not line.strip():
            break
        print(sample_ms(call, float(line)), flush=True)
    print(json.dumps({"peak_mb": resident_mb("VmHWM"), "model_mb": before}), flush=True)


def sample_ms(call, seconds, least=5):
    call()
    times, limit = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < limit:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


# ---- the two sides, as the parent sees them ----

class Peer:
    def __init__(self, options, case, dtype, variant):
        self.caches = tempfile.mkdtemp(prefix="carbide-peer-")
        environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=self.caches, OMP_NUM_THREADS=str(options.threads))
        line = [sys.executable, __file__, "--peer", case, dtype, variant, str(options.threads)]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                                        stderr=None if options.verbose else subprocess.DEVNULL)
        self.facts = json.loads(self.answer())

    def answer(self):
        for line in self.process.stdout:
            if line[:1] in "{0123456789":  # max-autotune prints tables
                return line
        raise SystemExit("the peer process died; --verbose shows why")

    def ask(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.answer()

    def sample(self, seconds):
        return float(self.ask(str(seconds)))

    def close(self):
        self.facts.update(json.loads(self.ask("")))
        self.process.wait()
        shutil.rmtree(self.caches, ignore_errors=True)


class Own:
    """`carbide bench CASE --only SIDE`: the first process compiles, later ones find the kernels on disk."""

    def __init__(self, options, case, dtype, side, mode):
        self.caches = tempfile.mkdtemp(prefix="carbide-own-")
        precision = ["--autocast", "bf16"] if dtype == "autocast" else ["--dtype", dtype]
        self.line = [options.carbide, "bench", case, "--json", *precision, "--threads", str(options.threads),
                     "--only", side, "--mode", mode]
        self.facts = {}
        cold = self.call(0.01)
        warm = self.call(0.01)
        self.facts = {"first_call_s": cold["first_call_ms"] / 1e3, "warm_first_call_s": warm["first_call_ms"] / 1e3,
                      "peak_mb": warm["peak_memory_mb"], "cold_peak_mb": cold["peak_memory_mb"]}

    def call(self, seconds):
        environment = dict(os.environ, CARBIDE_CACHE_DIR=self.caches)
        out = subprocess.run(self.line + ["--seconds", str(seconds)], check=True, capture_output=True, text=True,
                             env=environment).stdout
        return json.loads(out.splitlines()[-1])

    def sample(self, seconds):
        row = self.call(seconds)
        return row["compiled_ms"] or row["eager_ms"]

    def close(self):
        shutil.rmtree(self.caches, ignore_errors=True)


def variants(options, case, dtype):
    for name in options.peers.split(","):
        yield f"torch {name}", lambda name=name: Peer(options, case, dtype, name)
    yield "carbide eager", lambda: Own(options, case, dtype, "eager", "default")
    for mode in options.modes.split(","):
        yield f"carbide {mode}", lambda mode=mode: Own(options, case, dtype, "compiled", mode)


def measure(options, case, dtype):
    """variant -> {"ms": ..., "first_call_s": ..., "peak_mb": ...}"""
    sides = {}
    for name, make in variants(options, case, dtype):
        print(f"# {case} {dtype}: {name} starts", file=sys.stderr, flush=True)
        sides[name] = make()
    samples = {name: [] for name in sides}
    for round_ in range(options.rounds):
        for name, side in sides.items():
            samples[name].append(side.sample(options.seconds))
    for side in sides.values():
        side.close()
    return {name: dict(side.facts, ms=statistics.median(samples[name])) for name, side in sides.items()}


def best_compile(rows):
    compiled = [row["ms"] for name, row in rows.items() if name.startswith("torch ") and name != "torch eager"]
    return min(compiled) if compiled else math.nan


def show(results, markdown):
    header = ["network", "variant", "ms", "vs best torch.compile", "first call s", "with kernels on disk s", "peak MB"]
    table = []
    for (case, dtype), rows in results.items():
        for name, row in rows.items():
            warm = f"{row['warm_first_call_s']:.2f}" if "warm_first_call_s" in row and "eager" not in name else "-"
            table.append([f"{case} B{CASES[case]} {dtype}", name, f"{row['ms']:.2f}", f"{best_compile(rows) / row['ms']:.2f}x",
                          f"{row['first_call_s']:.2f}", warm, f"{row['peak_mb']:.0f}"])
    if markdown:
        print("| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
        for line in table:
            print("| " + " | ".join(line) + " |")
        return
    width = [max(len(r[i]) for r in [header] + table) for i in range(len(header))]
    for line in [header] + table:
        print("  ".join(text.ljust(width[i]) for i, text in enumerate(line)).rstrip(), flush=True)


def main():
    if sys.argv[1:2] == ["--peer"]:
        peer(*sys.argv[2:5], int(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("carbide")
    parser.add_argument("case", nargs="*", help=" ".join(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one sample")
    parser.add_argument("--dtypes", default="f32,bf16,autocast")
    parser.add_argument("--peers", default="eager,default,max-autotune")
    parser.add_argument("--modes", default="default", help="of Carbide: default,max-autotune")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_intermixed_args()
    print(f"# {time.strftime('%Y-%m-%d')} {platform.machine()} threads {options.threads} rounds {options.rounds}", file=sys.stderr)
    results = {}
    for case in options.case or CASES:
        for dtype in options.dtypes.split(","):
            results[case, dtype] = measure(options, case, dtype)
    show(results, options.markdown)


if __name__ == "__main__":
    main()
