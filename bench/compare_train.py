#!/usr/bin/env python3
"""Training steps beside PyTorch on this CPU, in one run: forward, cross entropy, gradients, clipping to 1 and AdamW, in f32.

    python bench/compare_train.py build/bench_train [--threads 2] [--rounds 5] [--seconds 1] [CASE ...]

CASE: digits, gpt_small, gpt (6 layers, 384 wide, 12 texts of 256), cnn; gpt2 (124M, 1 text of 256), gpt2_bf16 (under autocast), resnet18 (8 pictures).

Each variant is a process of its own and all are asked for samples in turn, so that they see the same machine in the same
minutes. A row has the median and the least of all samples; the least processor time of a step, of all threads together,
which with --threads 1 says most where others use the machine; the peak of resident memory, and how much of it came after the
first step began. torch: AdamW(fused=True), the fastest of its ways on a CPU (the optimizer's step compiled takes twice as
long, and 90 s to compile), and freed memory kept, as compare_cpu.py tells; torch.compile: the network with its loss. The
better one of eager and compile counts. A GPT begins as GPT-2 does, on both sides; where first losses differ by a tenth,
there is no row. First steps: with empty caches, and of a new process with full ones; what of Carbide's is compiling stands
beside them, for a first step is also the first touch of all its memory. Needs torch; prints a table."""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
VARIANTS = ("eager", "compiled", "torch eager", "torch.compile")

def resident_mb(field):
    with open("/proc/self/status") as status: return next(float(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith(field))

# ---- the peer, in a process of its own: the protocol of bench/train.c ----

def network(case):
    import torch, torch.nn as nn
    sys.path.insert(0, os.path.join(HERE, "..", "tests", "models"))
    from networks import GPT, ResNet, begun
    torch.manual_seed(1)
    if case == "digits":
        net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
        return net, torch.randn(64, 64), torch.randint(0, 10, (64,))
    if case == "cnn":
        layers = [l for i, o, s in ((3, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1))
                  for l in (nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU())]
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
        return net, torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    if case == "resnet18": return ResNet((2, 2, 2, 2), bottleneck=False), torch.randn(8, 3, 224, 224), torch.randint(0, 1000, (8,))
    if case.startswith("gpt2"): return begun(GPT(50304, 1024, 768, 12, 12)), torch.randint(0, 50304, (1, 256)), torch.randint(0, 50304, (256,))
    batch, length, width, layers, heads = (4, 64, 128, 2, 4) if case == "gpt_small" else (12, 256, 384, 6, 6)
    return begun(GPT(256, length, width, layers, heads)), torch.randint(0, 256, (batch, length)), torch.randint(0, 256, (batch * length,))

def peer(case, variant, threads):
    import torch
    torch.set_num_threads(threads)
    net, x, target = network(case)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    def loss_of(x, target): return torch.nn.functional.cross_entropy(net(x).flatten(0, -2), target)
    if variant == "torch.compile": loss_of = torch.compile(loss_of)
    def step():
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=case.endswith("bf16")): loss = loss_of(x, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        return (time.perf_counter() - start) * 1e3
    losses, model = [], resident_mb("VmRSS:")
    first = step()
    for line in sys.stdin:
        if not line.strip(): break
        times, end, worked = [], time.perf_counter() + float(line), time.process_time()
        while len(times) < 3 or time.perf_counter() < end: times.append(step())
        worked = (time.process_time() - worked) * 1e3 / len(times)
        print(json.dumps({"median_ms": statistics.median(times), "least_ms": min(times), "cpu_ms": worked}), flush=True)
    print(json.dumps({"first_ms": first, "peak_mb": resident_mb("VmHWM:"), "model_mb": model, "loss": losses[0]}), flush=True)

# ---- the sides, as the parent sees them ----

class Side:
    def __init__(self, line, caches):
        environment = dict(os.environ, **KEEP, CARBIDE_CACHE_DIR=caches, TORCHINDUCTOR_CACHE_DIR=caches)
        self.samples = []
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer: raise SystemExit("a side died")
        return json.loads(answer)

    def close(self):
        facts = self.ask("")
        self.process.wait()
        if self.process.returncode: raise SystemExit("a side failed")
        least = {key: min(s[key] for s in self.samples) for key in ("least_ms", "cpu_ms")}
        return dict(facts, median_ms=statistics.median(s["median_ms"] for s in self.samples), **least)

def measure(options, case):
    def start(variant):
        peer = [sys.executable, __file__, "--peer"] if variant.startswith("torch") else [options.program]
        side = Side([*peer, case, variant, str(options.threads)], caches)
        side.ask("0.01")
        return side

    with tempfile.TemporaryDirectory(prefix="carbide-train-") as caches:
        sides = {variant: start(variant) for variant in VARIANTS}
        for _ in range(options.rounds):
            for side in sides.values(): side.samples.append(side.ask(str(options.seconds)))
        rows = {variant: side.close() for variant, side in sides.items()}
        for variant in VARIANTS[1::2]:
            warm = start(variant).ask("")
            rows[variant].update(warm_ms=warm["first_ms"], warm_compile_ms=warm.get("compile_ms"))
        return rows

def figure(value, unit=1): return "" if not value else f"{value / unit:.2f}"

def main():
    if sys.argv[1] == "--peer": return peer(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("case", nargs="*", default=["digits", "gpt_small", "gpt", "cnn"])
    for name, default in (("--threads", 2), ("--rounds", 5)): parser.add_argument(name, type=int, default=default)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one sample")
    options = parser.parse_intermixed_args()
    print("| step | variant | median ms | least ms | CPU ms | torch's better / it: median, least | first step, cold and warm, s | compiling of it | kernels | peak MB | of it after the model |\n" + "| --- " * 11 + "|")
    for case in options.case:
        rows = measure(options, case)
        losses = [row["loss"] for row in rows.values()]
        if max(losses) > 1.1 * min(losses): raise SystemExit(f"{case}: the sides do not begin alike, their losses are {losses}")
        best, least = (min(rows[v][key] for v in VARIANTS if v.startswith("torch")) for key in ("median_ms", "least_ms"))
        for variant, row in rows.items():
            print(f"| {case} | {variant} | {row['median_ms']:.2f} | {row['least_ms']:.2f} | {row['cpu_ms']:.2f} | {best / row['median_ms']:.2f}, {least / row['least_ms']:.2f} | {figure(row['first_ms'], 1e3)} {figure(row.get('warm_ms'), 1e3)} | "
                  f"{figure(row.get('compile_ms'), 1e3)} {figure(row.get('warm_compile_ms'), 1e3)} | "
                  f"{row.get('kernels') or '-'} | {row['peak_mb']:.0f} | {row['peak_mb'] - row['model_mb']:.0f} |", flush=True)

main()
